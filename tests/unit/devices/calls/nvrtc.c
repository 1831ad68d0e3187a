/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of NVRTC's in the worker, and what compiles them: the compiler's process is a function call here, and NVRTC is played. Both sides get what
 * the other one should never send.
 */
#include "devices/cuda/calls/nvrtc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/rtc.h"
#include "tests/unit/runner.h"

/* ---- NVRTC, played ---- */

static struct {
	char text[512]; /* all that it was given, in one line */
	bool breaks;	/* the source does not compile */
} played;

static void tell(const char *what, const char *text)
{
	size_t len = strlen(played.text);

	(void)snprintf(played.text + len, sizeof(played.text) - len, "%s=%s;", what, text);
}

static int play_create(gantry_nvrtc_program *program, const char *source, const char *name,
		       int nheaders, const char *const *headers, const char *const *names)
{
	tell("source", source);
	tell("name", name ? name : "(none)");
	for (int i = 0; i < nheaders; i++)
		tell(names[i], headers[i]);
	*program = (gantry_nvrtc_program)&played;
	return 0;
}

static int play_expression(gantry_nvrtc_program program, const char *expression)
{
	(void)program;
	tell("expression", expression);
	return 0;
}

static int play_compile(gantry_nvrtc_program program, int noptions, const char *const *options)
{
	(void)program;
	for (int i = 0; i < noptions; i++)
		tell("option", options[i]);
	return played.breaks ? 6 : 0;
}

static int play_log_size(gantry_nvrtc_program program, size_t *ret_bytes)
{
	(void)program;
	*ret_bytes = sizeof("said");
	return 0;
}

static int play_log(gantry_nvrtc_program program, char *log)
{
	(void)program;
	memcpy(log, "said", sizeof("said"));
	return 0;
}

static int play_text_size(gantry_nvrtc_program program, size_t *ret_bytes)
{
	(void)program;
	if (played.breaks)
		return 4;
	*ret_bytes = strlen(played.text) + 1;
	return 0;
}

static int play_text(gantry_nvrtc_program program, char *text)
{
	(void)program;
	memcpy(text, played.text, strlen(played.text) + 1);
	return 0;
}

static int play_none(gantry_nvrtc_program program, size_t *ret_bytes)
{
	(void)program;
	*ret_bytes = 0;
	return 0;
}

static int play_lowered(gantry_nvrtc_program program, const char *expression, const char **ret_name)
{
	(void)program;
	*ret_name = strcmp(expression, "twice<int>") == 0 ? "_Z5twiceIiE" : NULL;
	return *ret_name ? 0 : 10;
}

static const struct gantry_nvrtc nvrtc = {
	.create = play_create,
	.compile = play_compile,
	.log_size = play_log_size,
	.log = play_log,
	.cubin_size = play_none,
	.cubin = play_text,
	.ptx_size = play_text_size,
	.ptx = play_text,
	.add_expression = play_expression,
	.lowered = play_lowered,
};

/* ---- the way between ---- */

static struct {
	void *bytes; /* the latest request and result */
	size_t nbytes;
	void *made;
	size_t nmade;
	int answer; /* -errno in place of a result */
	void (*spoil)(void);
} way;

static int go(void *cookie, const void *text, uint64_t bytes, void **ret_made, uint64_t *ret_bytes)
{
	struct gantry_err err;
	int r;

	ck_assert_ptr_eq(cookie, &way);
	if (way.answer < 0)
		return way.answer;
	free(way.bytes);
	way.bytes = malloc(bytes);
	memcpy(way.bytes, text, bytes);
	way.nbytes = bytes;
	memset(played.text, 0, sizeof(played.text));
	r = gantry_cuda_rtc_compile(&nvrtc, text, bytes, &way.made, &way.nmade, &err);
	ck_assert_int_eq(r, 0);
	if (way.spoil)
		way.spoil();
	*ret_made = way.made;
	*ret_bytes = way.nmade;
	return 0;
}

static struct gantry_calls_rtc rtc;

#define F(name) ((__typeof__(name) *)gantry_calls_rtc_symbol(#name))

int nvrtcCreateProgram(void **program, const char *source, const char *name, int nheaders,
		       const char *const *headers, const char *const *names);
int nvrtcDestroyProgram(void **program);
int nvrtcAddNameExpression(void *program, const char *expression);
int nvrtcCompileProgram(void *program, int noptions, const char *const *options);
int nvrtcCompileProgramWith(void *program, int noptions, const char *const *options,
			    const char *source, uint32_t nheaders, const char *const *headers,
			    const char *const *names);
int nvrtcGetProgramLogSize(void *program, size_t *ret_bytes);
int nvrtcGetProgramLog(void *program, char *log);
int nvrtcGetPTXSize(void *program, size_t *ret_bytes);
int nvrtcGetPTX(void *program, char *ptx);
int nvrtcGetCUBINSize(void *program, size_t *ret_bytes);
int nvrtcGetLTOIRSize(void *program, size_t *ret_bytes);
int nvrtcGetLoweredName(void *program, const char *expression, const char **ret_name);
int nvrtcGetPCHCreateStatus(void *program);

static void setup(void)
{
	memset(&way, 0, sizeof(way));
	memset(&played, 0, sizeof(played));
	rtc = (struct gantry_calls_rtc){ .compile = go, .cookie = &way };
	gantry_calls_rtc_here(&rtc);
}

static void teardown(void)
{
	free(way.bytes);
	gantry_calls_rtc_here(NULL);
	ck_assert_uint_eq(rtc.bytes, 0);
}

static const char *const headers[] = { "int x;", "" };
static const char *const names[] = { "x.h", "empty.h" };
static const char *const options[] = { "-arch=sm_90", "--std=c++17" };

static void *make(void)
{
	void *program = NULL;

	ck_assert_int_eq(F(nvrtcCreateProgram)(&program, "source", "p.cu", 2, headers, names), 0);
	return program;
}

static void end(void *program)
{
	ck_assert_int_eq(F(nvrtcDestroyProgram)(&program), 0);
	ck_assert_ptr_null(program);
}

static void log_is(void *program, const char *text)
{
	char log[512];
	size_t n = 0;

	ck_assert_int_eq(F(nvrtcGetProgramLogSize)(program, &n), 0);
	ck_assert_uint_le(n, sizeof(log));
	ck_assert_int_eq(F(nvrtcGetProgramLog)(program, log), 0);
	ck_assert_uint_eq(strlen(log) + 1, n);
	ck_assert_msg(strstr(log, text) != NULL, "%s", log);
}

START_TEST(test_program_goes_whole_and_comes_back)
{
	void *program = make();
	char ptx[sizeof(played.text)];
	const char *name;
	size_t n = 99;

	ck_assert_int_eq(F(nvrtcAddNameExpression)(program, "twice<int>"), 0);
	ck_assert_int_eq(F(nvrtcAddNameExpression)(program, "nobody"), 0);
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 2, options), 0);
	ck_assert_int_eq(F(nvrtcGetPTXSize)(program, &n), 0);
	ck_assert_int_eq(F(nvrtcGetPTX)(program, ptx), 0);
	ck_assert_uint_eq(n, strlen(ptx) + 1);
	ck_assert_str_eq(ptx, "source=source;name=p.cu;x.h=int x;;empty.h=;expression=twice<int>;"
			      "expression=nobody;option=-arch=sm_90;option=--std=c++17;");
	ck_assert_int_eq(F(nvrtcGetCUBINSize)(program, &n), 0);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(F(nvrtcGetLoweredName)(program, "twice<int>", &name), 0);
	ck_assert_str_eq(name, "_Z5twiceIiE");
	ck_assert_int_eq(F(nvrtcGetLoweredName)(program, "nobody", &name), 10);
	ck_assert_int_eq(F(nvrtcGetLoweredName)(program, "another", &name), 10);
	ck_assert_int_eq(F(nvrtcAddNameExpression)(program, "late"), 8);
	log_is(program, "said");
	end(program);
}
END_TEST

START_TEST(test_program_is_compiled_with_other_texts_for_once)
{
	const char *const with[] = { "int y;" }, *const called[] = { "/inc/y.h" };
	void *program = make();
	char ptx[sizeof(played.text)];

	ck_assert_int_eq(F(nvrtcAddNameExpression)(program, "nobody"), 0);
	ck_assert_int_eq(F(nvrtcCompileProgramWith)(program, 1, options, "other", 1, with, called),
			 0);
	ck_assert_int_eq(F(nvrtcGetPTX)(program, ptx), 0);
	ck_assert_str_eq(
		ptx,
		"source=other;name=p.cu;/inc/y.h=int y;;expression=nobody;option=-arch=sm_90;");
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 0, NULL), 0);
	ck_assert_int_eq(F(nvrtcGetPTX)(program, ptx), 0);
	ck_assert_str_eq(ptx, "source=source;name=p.cu;x.h=int x;;empty.h=;expression=nobody;");
	ck_assert_int_eq(F(nvrtcCompileProgramWith)(NULL, 0, NULL, "other", 1, with, called), 4);
	ck_assert_int_eq(F(nvrtcCompileProgramWith)(program, 0, NULL, NULL, 1, with, called), 3);
	ck_assert_int_eq(F(nvrtcCompileProgramWith)(program, 0, NULL, "other", 1, NULL, called), 3);
	ck_assert_int_eq(
		F(nvrtcCompileProgramWith)(program, 0, NULL, "other", UINT32_MAX, with, called), 3);
	ck_assert_int_eq(F(nvrtcCompileProgramWith)(program, 1, NULL, "other", 1, with, called), 3);
	end(program);
}
END_TEST

START_TEST(test_program_that_does_not_compile_has_a_log_and_no_code)
{
	void *program = make();
	size_t n = 99;

	played.breaks = true;
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 0, NULL), 6);
	ck_assert_int_eq(F(nvrtcGetPTXSize)(program, &n), 4);
	ck_assert_uint_eq(n, 99);
	log_is(program, "said");
	/* And once more, with other luck. */
	played.breaks = false;
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 0, NULL), 0);
	ck_assert_int_eq(F(nvrtcGetPTXSize)(program, &n), 0);
	end(program);
}
END_TEST

START_TEST(test_program_before_it_is_compiled_has_nothing)
{
	void *program = make();
	const char *name;
	size_t n = 99;

	ck_assert_int_eq(F(nvrtcGetPTXSize)(program, &n), 4);
	ck_assert_int_eq(F(nvrtcGetLTOIRSize)(program, &n), 4);
	ck_assert_uint_eq(n, 99);
	ck_assert_int_eq(F(nvrtcGetLoweredName)(program, "x", &name), 9);
	ck_assert_int_eq(F(nvrtcGetPCHCreateStatus)(program), 13);
	log_is(program, "");
	end(program);
}
END_TEST

START_TEST(test_words_that_are_wrong_are_refused)
{
	const char *const hole[] = { "a", NULL };
	void *program = NULL;

	ck_assert_int_eq(F(nvrtcCreateProgram)(&program, NULL, NULL, 0, NULL, NULL), 3);
	ck_assert_int_eq(F(nvrtcCreateProgram)(&program, "s", NULL, -1, headers, names), 3);
	ck_assert_int_eq(F(nvrtcCreateProgram)(&program, "s", NULL, 2, NULL, names), 3);
	ck_assert_int_eq(F(nvrtcCreateProgram)(&program, "s", NULL, 2, hole, names), 1);
	ck_assert_ptr_null(program);
	ck_assert_int_eq(F(nvrtcDestroyProgram)(&program), 4);
	ck_assert_int_eq(F(nvrtcCompileProgram)(NULL, 0, NULL), 4);
	program = make();
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 1, NULL), 3);
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 2, hole), 3);
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, INT32_MAX, options), 3);
	ck_assert_int_eq(F(nvrtcAddNameExpression)(program, NULL), 3);
	end(program);
	ck_assert_ptr_null(gantry_calls_rtc_symbol("nvrtcVersion"));
}
END_TEST

START_TEST(test_host_without_a_compiler_says_so_in_the_log)
{
	void *program = make();

	way.answer = -EOPNOTSUPP;
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 0, NULL), 11);
	log_is(program, "no NVRTC");
	way.answer = -EDQUOT;
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 0, NULL), 11);
	log_is(program, "took longer");
	way.answer = -ENOEXEC;
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 0, NULL), 11);
	log_is(program, "did not come to an end");
	way.answer = -ENOMEM;
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 0, NULL), 1);
	end(program);
}
END_TEST

START_TEST(test_programs_hold_no_more_than_a_session_may)
{
	const size_t n = 100u << 20;
	char *much = malloc(n + 1);
	void *program[3] = { NULL };

	ck_assert_ptr_nonnull(much);
	memset(much, 'x', n);
	much[n] = '\0';
	ck_assert_int_eq(F(nvrtcCreateProgram)(&program[0], much, NULL, 0, NULL, NULL), 0);
	ck_assert_int_eq(F(nvrtcCreateProgram)(&program[1], much, NULL, 0, NULL, NULL), 0);
	ck_assert_int_eq(F(nvrtcCreateProgram)(&program[2], much, NULL, 0, NULL, NULL), 1);
	end(program[0]);
	ck_assert_int_eq(F(nvrtcCreateProgram)(&program[2], much, NULL, 0, NULL, NULL), 0);
	end(program[1]);
	end(program[2]);
	free(much);
}
END_TEST

/* ---- a process that compiles and has been taken over ---- */

static size_t spoilt_at;
static unsigned int spoilt_bit;

static void cut(void)
{
	way.nmade = spoilt_at;
}

static void flip(void)
{
	((uint8_t *)way.made)[spoilt_at] ^= (uint8_t)(1u << spoilt_bit);
}

/* What it says is refused, or is told as it is: all of it inside its bounds, which a sanitizer sees. */
static void ask_all(void *program)
{
	const char *name;
	char *text;
	size_t n;

	if (F(nvrtcGetPTXSize)(program, &n) == 0) {
		ck_assert_uint_le(n, way.nmade);
		text = malloc(n ? n : 1);
		ck_assert_int_eq(F(nvrtcGetPTX)(program, text), 0);
		ck_assert(n == 0 || text[n - 1] == '\0');
		free(text);
	}
	ck_assert_int_eq(F(nvrtcGetProgramLogSize)(program, &n), 0);
	text = malloc(n);
	ck_assert_int_eq(F(nvrtcGetProgramLog)(program, text), 0);
	ck_assert(text[n - 1] == '\0');
	free(text);
	(void)F(nvrtcGetLoweredName)(program, "nobody", &name);
}

START_TEST(test_result_that_is_cut_is_refused_at_any_length)
{
	void *program = make();

	ck_assert_int_eq(F(nvrtcAddNameExpression)(program, "twice<int>"), 0);
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 2, options), 0);
	way.spoil = cut;
	for (size_t n = way.nmade; n-- > 0;) {
		spoilt_at = n;
		ck_assert_int_eq(F(nvrtcCompileProgram)(program, 2, options), 11);
		log_is(program, "did not come to an end");
	}
	end(program);
}
END_TEST

START_TEST(test_result_with_any_bit_changed_stays_inside_its_bounds)
{
	void *program = make();
	size_t n;

	ck_assert_int_eq(F(nvrtcAddNameExpression)(program, "twice<int>"), 0);
	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 2, options), 0);
	n = way.nmade;
	way.spoil = flip;
	for (spoilt_at = 0; spoilt_at < n; spoilt_at++)
		for (spoilt_bit = 0; spoilt_bit < 8; spoilt_bit++) {
			(void)F(nvrtcCompileProgram)(program, 2, options);
			ask_all(program);
		}
	end(program);
}
END_TEST

/* ---- a worker that has been taken over ---- */

static int compile_copy(const void *bytes, size_t n)
{
	void *copy = malloc(n ? n : 1), *result = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;
	size_t nresult;
	int r;

	memcpy(copy, bytes, n);
	r = gantry_cuda_rtc_compile(&nvrtc, copy, n, &result, &nresult, &err);
	ck_assert(r == 0 || (r == -ENOEXEC && err.text[0]));
	free(copy);
	free(result);
	return r;
}

START_TEST(test_request_that_is_cut_or_changed_is_looked_at_inside_its_bounds)
{
	void *program = make();
	struct gantry_rtc_request *head;
	uint8_t *bytes;
	size_t n;

	ck_assert_int_eq(F(nvrtcCompileProgram)(program, 2, options), 0);
	bytes = way.bytes;
	n = way.nbytes;
	head = way.bytes;
	ck_assert(gantry_cuda_rtc_is(bytes, n));
	ck_assert(!gantry_cuda_rtc_is(bytes, GANTRY_RTC_MAGIC_BYTES - 1));
	ck_assert_int_eq(compile_copy(bytes, n), 0);
	for (size_t len = 0; len < n; len++) {
		head->bytes = n;
		ck_assert_int_eq(compile_copy(bytes, len), -ENOEXEC);
		head->bytes = len;
		ck_assert_int_eq(compile_copy(bytes, len), -ENOEXEC);
	}
	head->bytes = n;
	for (size_t i = 0; i < n; i++)
		for (unsigned int bit = 0; bit < 8; bit++) {
			bytes[i] ^= (uint8_t)(1u << bit);
			(void)compile_copy(bytes, n);
			bytes[i] ^= (uint8_t)(1u << bit);
		}
	end(program);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("calls nvrtc");
	TCase *tc = gantry_unit_case(suite, "nvrtc");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_program_goes_whole_and_comes_back);
	tcase_add_test(tc, test_program_is_compiled_with_other_texts_for_once);
	tcase_add_test(tc, test_program_that_does_not_compile_has_a_log_and_no_code);
	tcase_add_test(tc, test_program_before_it_is_compiled_has_nothing);
	tcase_add_test(tc, test_words_that_are_wrong_are_refused);
	tcase_add_test(tc, test_host_without_a_compiler_says_so_in_the_log);
	tcase_add_test(tc, test_programs_hold_no_more_than_a_session_may);
	tcase_add_test(tc, test_result_that_is_cut_is_refused_at_any_length);
	tcase_add_test(tc, test_result_with_any_bit_changed_stays_inside_its_bounds);
	tcase_add_test(tc, test_request_that_is_cut_or_changed_is_looked_at_inside_its_bounds);
	return gantry_unit_run(suite);
}
