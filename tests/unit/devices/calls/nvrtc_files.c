/* SPDX-License-Identifier: Apache-2.0 */
/* A program of NVRTC's that is compiled with files of the guest's, there and back, against a library that notes what it got. */
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/cuda/calls/run.h"
#include "guest-shim/cudalibs/call.h"
#include "tests/unit/runner.h"

#define PROGRAM 0x7000u

extern const struct gantry_calls_library gantry_calls_nvrtc;
/* Nobody takes the usual road here. */
const struct gantry_call_road gantry_call_road_session = { 0 };

static struct gantry_calls_site site;
static char got[512];
static bool is_apart, waits;
/* So many bytes of the request stay away. */
static size_t cut;
static char folder[32], file[64];

static void note(const char *text)
{
	size_t len = strlen(got);

	(void)snprintf(got + len, sizeof(got) - len, "%s;", text);
}

/* ---- the library ---- */

static nvrtcResult create(nvrtcProgram *program, const char *source, const char *name, int nheaders,
			  const char *const *headers, const char *const *names)
{
	(void)source, (void)name, (void)nheaders, (void)headers, (void)names;
	*program = (nvrtcProgram)PROGRAM;
	return NVRTC_SUCCESS;
}

static nvrtcResult destroy(nvrtcProgram *program)
{
	*program = NULL;
	return NVRTC_SUCCESS;
}

static nvrtcResult compile(nvrtcProgram program, int noptions, const char *const *options)
{
	ck_assert_uint_eq((uintptr_t)program, PROGRAM);
	note("as it is");
	for (int i = 0; i < noptions; i++)
		note(options[i]);
	return NVRTC_SUCCESS;
}

static int compile_with(nvrtcProgram program, int noptions, const char *const *options,
			const char *source, uint32_t nheaders, const char *const *headers,
			const char *const *names)
{
	ck_assert_uint_eq((uintptr_t)program, PROGRAM);
	for (int i = 0; i < noptions; i++)
		note(options[i]);
	note(source);
	for (uint32_t i = 0; i < nheaders; i++) {
		note(names[i]);
		note(headers[i]);
	}
	return NVRTC_ERROR_COMPILATION;
}

static void *find_symbol(void *cookie, const struct gantry_calls_library *library, const char *name)
{
	static const struct {
		const char *name;
		void *function;
	} symbols[] = {
		{ "nvrtcCreateProgram", (void *)create },
		{ "nvrtcDestroyProgram", (void *)destroy },
		{ "nvrtcCompileProgram", (void *)compile },
		{ "nvrtcCompileProgramWith", (void *)compile_with },
	};

	(void)cookie, (void)library;
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		if (strcmp(name, symbols[i].name) == 0)
			return symbols[i].function;
	return NULL;
}

/* ---- the way ---- */

static int carry(void *cookie, struct gantry_call_library *library,
		 const struct gantry_call_route *route, const void *request, size_t bytes,
		 void *reply, size_t reply_bytes)
{
	const struct gantry_calls_library *const libraries[] = { &gantry_calls_nvrtc, NULL };
	uint8_t *copy = malloc(bytes);
	struct gantry_calls_request head;
	struct gantry_pack out;

	(void)cookie, (void)library;
	ck_assert_ptr_nonnull(copy);
	memcpy(copy, request, bytes);
	memcpy(&head, copy, sizeof(head));
	head.bytes -= cut;
	memcpy(copy, &head, sizeof(head));
	is_apart = route->is_apart;
	waits = route->waits;
	gantry_pack_init(&out, GANTRY_CALLS_MAX_BYTES);
	gantry_calls_serve(&site, libraries, NULL, copy, bytes - cut, &out);
	if (route->waits) {
		ck_assert_uint_le(out.len, reply_bytes);
		memcpy(reply, out.bytes, out.len);
	}
	gantry_pack_fini(&out);
	free(copy);
	return 0;
}

static int is_device(void *cookie, const void *address)
{
	(void)cookie, (void)address;
	return 0;
}

static void setup(void)
{
	static const struct gantry_call_road road = { .carry = carry, .is_device = is_device };
	FILE *out;

	(void)snprintf(folder, sizeof(folder), "/tmp/gantry-files-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(file, sizeof(file), "%s/a.h", folder);
	out = fopen(file, "w");
	ck_assert_ptr_nonnull(out);
	ck_assert_int_ge(fputs("in the file", out), 0);
	ck_assert_int_eq(fclose(out), 0);
	cut = 0;
	got[0] = '\0';
	site = (struct gantry_calls_site){ .symbol = find_symbol };
	gantry_calls_table_init(&site.table);
	gantry_call_road_set(&road);
}

static void teardown(void)
{
	gantry_calls_table_fini(&site.table);
	gantry_call_road_set(NULL);
	ck_assert_int_eq(unlink(file), 0);
	ck_assert_int_eq(rmdir(folder), 0);
}

static nvrtcProgram make(void)
{
	static const char *const headers[] = { "given" }, *const names[] = { "g.h" };
	nvrtcProgram program = NULL;

	ck_assert_int_eq(nvrtcCreateProgram(&program, "#include <a.h>", "p.cu", 1, headers, names),
			 0);
	return program;
}

START_TEST(test_program_goes_with_the_files_that_it_includes)
{
	const char *const options[] = { "-I", folder };
	nvrtcProgram program = make();
	char wanted[256];

	ck_assert_int_eq(nvrtcCompileProgram(program, 2, options), NVRTC_ERROR_COMPILATION);
	(void)snprintf(wanted, sizeof(wanted), "-I;%s;#include \"%s\";g.h;given;%s;in the file;",
		       folder, file, file);
	ck_assert_str_eq(got, wanted);
	ck_assert(waits && is_apart);
	ck_assert_int_eq(nvrtcDestroyProgram(&program), 0);
}
END_TEST

START_TEST(test_program_without_files_goes_as_it_was_made)
{
	const char *const options[] = { "-I/nowhere", "-G" }, *const hole[] = { "-I", NULL };
	nvrtcProgram program = make(), gone = program;

	ck_assert_int_eq(nvrtcCompileProgram(program, 0, NULL), 0);
	ck_assert_int_eq(nvrtcCompileProgram(program, 2, options), 0);
	ck_assert_str_eq(got, "as it is;as it is;-I/nowhere;-G;");
	got[0] = '\0';
	ck_assert_int_eq(nvrtcCompileProgram(program, 2, hole), NVRTC_ERROR_INVALID_INPUT);
	ck_assert_int_eq(nvrtcCompileProgram(NULL, 0, NULL), NVRTC_ERROR_INVALID_INPUT);
	ck_assert_int_eq(nvrtcDestroyProgram(&program), 0);
	ck_assert_int_eq(nvrtcCompileProgram(gone, 0, NULL), NVRTC_ERROR_INVALID_INPUT);
	ck_assert_str_eq(got, "");
}
END_TEST

/* Whatever is left of a request, the library gets all of a program or is not called. */
START_TEST(test_request_that_is_cut_off_is_refused)
{
	const char *const options[] = { "-I", folder };
	nvrtcProgram program = make();

	for (cut = 8; cut < 200; cut += 8)
		ck_assert_int_eq(nvrtcCompileProgram(program, 2, options),
				 NVRTC_ERROR_INVALID_INPUT);
	ck_assert_str_eq(got, "");
	cut = 0;
	ck_assert_int_eq(nvrtcDestroyProgram(&program), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("nvrtc files");
	TCase *tc = gantry_unit_case(suite, "nvrtc files");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_program_goes_with_the_files_that_it_includes);
	tcase_add_test(tc, test_program_without_files_goes_as_it_was_made);
	tcase_add_test(tc, test_request_that_is_cut_off_is_refused);
	return gantry_unit_run(suite);
}
