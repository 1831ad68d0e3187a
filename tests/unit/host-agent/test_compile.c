/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The forge as a worker has it, confined: what compiles, what does not, what a text cannot see. With NVRTC and
 * nvJitLink where they are installed; no GPU or driver is needed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "host-agent/worker/compile.h"
#include "host-agent/worker/confine.h"
#include "proto/cuda_link.h"
#include "proto/cuda_rtc.h"
#include "proto/vocab.h"
#include "tests/unit/runner.h"

static const char *const null_opts[] = { "images=yes" };
static const struct gantry_device_conf devices[] = {
	{ .name = "null0", .backend = "null", .nopts = 1, .opts = null_opts },
	{ .name = "cuda0", .backend = "cuda" },
};

static struct worker_compiler *compiler;
static char log_text[WORKER_COMPILE_LOG];
static struct gantry_err err;

static void start(void)
{
	struct worker_compile_limits limits = worker_compile_defaults;

	limits.confine = gantry_confine_compiler;
	ck_assert_int_eq(worker_compiler_start(devices, 2, &limits, &compiler, &err), 0);
	ck_assert_ptr_nonnull(compiler);
}

static void stop(void)
{
	worker_compiler_stop(compiler);
}

static int compile_bytes(uint32_t device, const char *arch, const void *text, size_t text_bytes,
			 char first[8])
{
	const struct worker_compilation what = {
		.device = device, .arch = arch, .text = text, .nbytes = text_bytes
	};
	uint64_t nbytes = 0;
	int fd = -EBADF;
	int status = worker_compile(compiler, &what, &fd, &nbytes, log_text, &err);

	if (status == GANTRY_OK) {
		const char *image = mmap(NULL, nbytes, PROT_READ, MAP_SHARED, fd, 0);

		ck_assert_ptr_ne(image, MAP_FAILED);
		memcpy(first, image, nbytes < 8 ? nbytes : 8);
		(void)munmap((void *)(uintptr_t)image, nbytes);
		gantry_fd_close(fd);
	}
	return status;
}

static int compile(uint32_t device, const char *arch, const char *text, char first[8])
{
	return compile_bytes(device, arch, text, strlen(text), first);
}

START_TEST(test_compile_text_can_open_no_file)
{
	char first[8];

	ck_assert_int_eq(compile(0, "", "null-source 1\nopen /etc/hostname\nkernel k 4\n", first),
			 GANTRY_OK);
	ck_assert_str_eq(log_text, "cannot be opened\n");
	ck_assert_mem_eq(first, "null-ima", 8);
}
END_TEST

START_TEST(test_compile_for_a_device_that_is_not_there_is_refused)
{
	char first[8];

	ck_assert_int_eq(compile(7, "", "null-source 1\n", first), GANTRY_E_UNSUPPORTED);
}
END_TEST

START_TEST(test_compile_without_a_forge_is_refused)
{
	struct worker_compiler *none = (void *)1;
	struct gantry_device_conf plain = { .name = "null0", .backend = "null" };
	const struct worker_compilation what = { .text = "x", .nbytes = 1, .arch = "" };
	uint64_t nbytes;
	int fd;

	ck_assert_int_eq(worker_compiler_start(&plain, 1, &worker_compile_defaults, &none, &err),
			 0);
	ck_assert_ptr_null(none);
	ck_assert_int_eq(worker_compile(none, &what, &fd, &nbytes, log_text, &err),
			 GANTRY_E_UNSUPPORTED);
}
END_TEST

#define SOURCE "extern \"C\" __global__ void scale(float *x, float a) { x[threadIdx.x] *= a; }\n"

/* False, and said, where the machine has no NVRTC (or the build no cuda). */
static bool nvrtc_is_here(char first[8])
{
	int status = compile(1, "sm_90", SOURCE, first);

	if (status == GANTRY_E_UNSUPPORTED)
		return false;
	ck_assert_msg(status == GANTRY_OK, "%d: %s\n%s", status, err.text, log_text);
	return true;
}

START_TEST(test_compile_cuda_source_to_a_cubin)
{
	char first[8];

	if (!nvrtc_is_here(first))
		return;
	ck_assert_mem_eq(first, "\177ELF", 4);
	/* Devices that differ get PTX for the lesser one. */
	ck_assert_int_eq(compile(1, "sm_90,sm_80", SOURCE, first), GANTRY_OK);
	ck_assert_int_ne(memcmp(first, "\177ELF", 4), 0);
}
END_TEST

START_TEST(test_compile_cuda_source_with_errors_gives_the_log)
{
	char first[8];

	if (!nvrtc_is_here(first))
		return;
	ck_assert_int_eq(compile(1, "sm_90", "__global__ void k() { nonsense; }\n", first),
			 GANTRY_E_IMAGE);
	ck_assert_ptr_nonnull(strstr(err.text, "identifier \"nonsense\" is undefined"));
	ck_assert_ptr_nonnull(strstr(log_text, "1 error detected"));
}
END_TEST

START_TEST(test_compile_cuda_source_sees_no_file_of_the_host)
{
	char first[8];

	if (!nvrtc_is_here(first))
		return;
	ck_assert_int_eq(compile(1, "sm_90", "#include \"/etc/passwd\"\n", first), GANTRY_E_IMAGE);
	ck_assert_ptr_null(strstr(log_text, "root"));
}
END_TEST

/* ---- whole programs ---- */

static struct {
	struct gantry_rtc_request head;
	char texts[4096];
	size_t len;
} rtc;

static void rtc_add(const char *text)
{
	ck_assert_uint_lt(rtc.len + strlen(text), sizeof(rtc.texts));
	memcpy(rtc.texts + rtc.len, text, strlen(text) + 1);
	rtc.len += strlen(text) + 1;
}

/* One header, one option and one expression. What came of it, part by part. */
static struct gantry_rtc_result *rtc_compile(const char *source, const char *header,
					     const char *option, const char *expression)
{
	const struct worker_compilation what = { .device = 1, .arch = "sm_90", .text = &rtc };
	struct worker_compilation sized = what;
	struct gantry_rtc_result *result;
	uint64_t nbytes = 0;
	void *map;
	int fd;

	rtc.head = (struct gantry_rtc_request){ .magic = GANTRY_RTC_MAGIC,
						.version = GANTRY_RTC_VERSION,
						.nheaders = 1,
						.noptions = 1,
						.nexpressions = 1 };
	rtc.len = 0;
	rtc_add(source);
	rtc_add("p.cu");
	rtc_add(header);
	rtc_add("mine.h");
	rtc_add(option);
	rtc_add(expression);
	sized.nbytes = rtc.head.bytes = sizeof(rtc.head) + rtc.len;
	ck_assert_msg(worker_compile(compiler, &sized, &fd, &nbytes, log_text, &err) == GANTRY_OK,
		      "%s", err.text);
	map = mmap(NULL, nbytes, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	result = malloc(nbytes);
	memcpy(result, map, nbytes);
	(void)munmap(map, nbytes);
	gantry_fd_close(fd);
	return result;
}

#define KERNEL                                                                            \
	"#include \"mine.h\"\ntemplate <typename T> __global__ void twice(T *x) { *x *= " \
	"MINE; }\n"

START_TEST(test_compile_program_with_header_option_and_expression)
{
	struct gantry_rtc_result *result;
	const char *at;
	char first[8];

	if (!nvrtc_is_here(first))
		return;
	result = rtc_compile(KERNEL, "#define MINE 2\n", "-arch=sm_90", "twice<int>");
	at = (const char *)(result + 1);
	ck_assert_msg(result->result == 0, "%s", at);
	at += result->bytes[GANTRY_RTC_LOG];
	ck_assert_ptr_nonnull(strstr(at, ".target sm_90"));
	at += result->bytes[GANTRY_RTC_PTX];
	ck_assert_mem_eq(at, "\177ELF", 4);
	at += result->bytes[GANTRY_RTC_CUBIN] + result->bytes[GANTRY_RTC_LTOIR] +
	      result->bytes[GANTRY_RTC_OPTIXIR];
	ck_assert_str_eq(at, "_Z5twiceIiEvPT_");
	free(result);
	result = rtc_compile(KERNEL, "#define MINE 2\n", "-dlto", "twice<int>");
	ck_assert_int_eq(result->result, 0);
	ck_assert_uint_gt(result->bytes[GANTRY_RTC_LTOIR], 0);
	free(result);
}
END_TEST

START_TEST(test_compile_program_sees_no_file_of_the_host_whatever_its_options_say)
{
	static const char *const options[] = { "-I/etc", "--pre-include=/etc/passwd",
					       "--options-file=/etc/passwd" };
	struct gantry_rtc_result *result;
	char first[8];

	if (!nvrtc_is_here(first))
		return;
	for (size_t i = 0; i < 3; i++) {
		result = rtc_compile("#include <passwd>\n", "", options[i], "x");
		ck_assert_int_ne(result->result, 0);
		ck_assert_ptr_null(strstr((const char *)(result + 1), "root"));
		free(result);
	}
	result = rtc_compile("int x = nonsense;\n", "", "-arch=sm_90", "y");
	ck_assert_int_eq(result->result, 6);
	ck_assert_ptr_nonnull(strstr((const char *)(result + 1), "p.cu(1): error"));
	ck_assert_uint_eq(result->bytes[GANTRY_RTC_CUBIN], 0);
	free(result);
}
END_TEST

START_TEST(test_compile_ptx_that_does_not_assemble_gives_the_log)
{
	char first[8];
	int status = compile(1, "sm_90",
			     ".version 7.0\n.target sm_80\n.address_size 64\n"
			     ".visible .entry k() { nonsense; ret; }\n",
			     first);

	/* Without nvJitLink it goes to the driver as it is. */
	if (status == GANTRY_OK || status == GANTRY_E_UNSUPPORTED)
		return;
	ck_assert_int_eq(status, GANTRY_E_IMAGE);
	ck_assert_ptr_nonnull(strstr(log_text, "error"));
}
END_TEST

/* ---- links ---- */

#define HEAD   ".version 7.0\n.target sm_80\n.address_size 64\n"
#define ANSWER HEAD ".visible .func (.param .b32 r) answer() { st.param.b32 [r], 42; ret; }\n"
#define ASKS                                                                     \
	HEAD ".extern .func (.param .b32 r) answer();\n"                         \
	     ".visible .entry linked(.param .u64 out) {\n"                       \
	     ".reg .b32 %r1; .reg .u64 %rd1; ld.param.u64 %rd1, [out];\n"        \
	     "{ .param .b32 r; call (r), answer, (); ld.param.b32 %r1, [r]; }\n" \
	     "st.global.u32 [%rd1], %r1; ret; }\n"
#define BROKEN HEAD "nonsense;\n"

/* As a guest's library makes one, of PTX. */
static struct {
	struct gantry_link_header header;
	struct gantry_link_option options[5];
	struct gantry_link_input inputs[2];
	char bytes[2][1024];
} image;

/* CUjit_option's numbers: registers, threads, optimization, verbosity; the first again. */
static int compile_link(const char *arch, const char *a, const char *b, uint32_t value,
			char first[8])
{
	static const uint32_t options[] = { 0, 1, 7, 12, 0 };
	static const char *const names[] = { "first.ptx", "second.ptx" };
	const char *const texts[] = { a, b };

	memset(&image, 0, sizeof(image));
	memcpy(image.header.magic, GANTRY_LINK_MAGIC, GANTRY_LINK_MAGIC_BYTES);
	image.header.version = GANTRY_LINK_VERSION;
	image.header.noptions = 5;
	image.header.ninputs = 2;
	image.header.bytes = sizeof(image);
	for (unsigned int i = 0; i < 5; i++)
		image.options[i] = (struct gantry_link_option){ options[i], value };
	for (unsigned int i = 0; i < 2; i++) {
		(void)strcpy(image.bytes[i], texts[i]);
		image.inputs[i] = (struct gantry_link_input){
			.type = 1,
			.off = (uint64_t)((char *)image.bytes[i] - (char *)&image),
			.bytes = strlen(texts[i]) + 1,
		};
		(void)strcpy(image.inputs[i].name, names[i]);
	}
	return compile_bytes(1, arch, &image, sizeof(image), first);
}

/* False where the machine has no nvJitLink: then it goes to the driver as it is. */
static bool nvjitlink_is_here(void)
{
	char first[8];
	int status = compile(1, "sm_90", BROKEN, first);

	return status == GANTRY_E_IMAGE;
}

START_TEST(test_compile_link_to_a_cubin_whatever_numbers_its_options_have)
{
	static const uint32_t values[] = { 0, 1, 3, 64, 1024, 65536, UINT32_MAX };
	char first[8] = { 0 };

	if (!nvjitlink_is_here())
		return;
	for (unsigned int i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		ck_assert_msg(compile_link("sm_90", ASKS, ANSWER, values[i], first) == GANTRY_OK,
			      "%u: %s", values[i], err.text);
		ck_assert_mem_eq(first, "\177ELF", 4);
		ck_assert_ptr_nonnull(strchr(log_text, GANTRY_LINK_LOGS_APART));
	}
	/* What the linker says, and no error. */
	ck_assert_int_ne(log_text[0], GANTRY_LINK_LOGS_APART);
	ck_assert_str_eq(strchr(log_text, GANTRY_LINK_LOGS_APART) + 1, "");
}
END_TEST

START_TEST(test_compile_link_that_does_not_assemble_or_link_gives_the_log)
{
	char first[8];

	if (!nvjitlink_is_here())
		return;
	ck_assert_int_eq(compile_link("sm_90", ANSWER, BROKEN, 1, first), GANTRY_E_IMAGE);
	ck_assert_ptr_nonnull(strstr(err.text, "PTX does not assemble: "));
	ck_assert_ptr_nonnull(strstr(strchr(log_text, GANTRY_LINK_LOGS_APART), "error"));
	ck_assert_int_eq(compile_link("sm_90", ASKS, HEAD, 1, first), GANTRY_E_IMAGE);
	ck_assert_ptr_nonnull(strstr(err.text, "it does not link: "));
	ck_assert_ptr_nonnull(strstr(strchr(log_text, GANTRY_LINK_LOGS_APART), "ndefined"));
	/* It is told by its own name, which is read when all inputs are there. */
	ck_assert_msg(strstr(log_text, "first.ptx") != NULL, "%s", log_text);
}
END_TEST

/* What nvJitLink cannot do for all of them the driver does, as with PTX. */
START_TEST(test_compile_link_for_devices_that_differ_comes_back_as_it_is)
{
	char first[8];

	if (!nvjitlink_is_here())
		return;
	ck_assert_int_eq(compile_link("sm_90,sm_80", ASKS, ANSWER, 1, first), GANTRY_OK);
	ck_assert_mem_eq(first, GANTRY_LINK_MAGIC, GANTRY_LINK_MAGIC_BYTES);
	image.header.reserved = 1;
	ck_assert_int_eq(compile_bytes(1, "sm_90", &image, sizeof(image), first), GANTRY_E_IMAGE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("compile");
	TCase *tc = gantry_unit_case(suite, "compile");

	tcase_add_checked_fixture(tc, start, stop);
	tcase_add_test(tc, test_compile_text_can_open_no_file);
	tcase_add_test(tc, test_compile_for_a_device_that_is_not_there_is_refused);
	tcase_add_test(tc, test_compile_without_a_forge_is_refused);
	tcase_add_test(tc, test_compile_cuda_source_to_a_cubin);
	tcase_add_test(tc, test_compile_cuda_source_with_errors_gives_the_log);
	tcase_add_test(tc, test_compile_cuda_source_sees_no_file_of_the_host);
	tcase_add_test(tc, test_compile_program_with_header_option_and_expression);
	tcase_add_test(tc, test_compile_program_sees_no_file_of_the_host_whatever_its_options_say);
	tcase_add_test(tc, test_compile_ptx_that_does_not_assemble_gives_the_log);
	tcase_add_test(tc, test_compile_link_to_a_cubin_whatever_numbers_its_options_have);
	tcase_add_test(tc, test_compile_link_that_does_not_assemble_or_link_gives_the_log);
	tcase_add_test(tc, test_compile_link_for_devices_that_differ_comes_back_as_it_is);
	return gantry_unit_run(suite);
}
