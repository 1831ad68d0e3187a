/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "guest-shim/opencl/calls.h"
#include "tests/unit/runner.h"

cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *platforms, cl_uint *ret_n);

/* ---- handles ---- */

static struct _cl_context *context_new(void)
{
	struct _cl_context *context;

	icd_gate_lock();
	context = icd_object_new(ICD_CONTEXT);
	icd_gate_unlock();
	ck_assert_ptr_nonnull(context);
	return context;
}

START_TEST(test_object_is_gone_when_the_last_reference_is)
{
	struct _cl_context *context = context_new();
	cl_uint refs = 0;

	ck_assert_ptr_eq(context->object.dispatch, &icd_dispatch);
	ck_assert_int_eq(icd_clRetainContext(context), CL_SUCCESS);
	ck_assert_int_eq(icd_clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof(refs),
					      &refs, NULL),
			 CL_SUCCESS);
	ck_assert_uint_eq(refs, 2);
	ck_assert_int_eq(icd_clReleaseContext(context), CL_SUCCESS);
	ck_assert_int_eq(icd_clReleaseContext(context), CL_SUCCESS);
	ck_assert_int_eq(icd_clReleaseContext(context), CL_INVALID_CONTEXT);
	ck_assert_int_eq(icd_clRetainContext(context), CL_INVALID_CONTEXT);
	/* The loader still finds the table behind a stale handle. */
	ck_assert_ptr_eq(context->object.dispatch, &icd_dispatch);
}
END_TEST

START_TEST(test_object_that_is_held_has_a_stale_handle_and_is_there)
{
	struct _cl_context *context = context_new();

	icd_gate_lock();
	icd_object_hold(context);
	icd_gate_unlock();
	ck_assert_int_eq(icd_clReleaseContext(context), CL_SUCCESS);
	ck_assert_int_eq(icd_clRetainContext(context), CL_INVALID_CONTEXT);
	icd_gate_lock();
	ck_assert(icd_object_any(ICD_CONTEXT));
	icd_object_drop(context);
	ck_assert(!icd_object_any(ICD_CONTEXT));
	icd_gate_unlock();
}
END_TEST

START_TEST(test_object_of_another_type_or_no_object_is_recognised)
{
	struct _cl_context *context = context_new();
	uint64_t stray = 0;

	icd_gate_lock();
	ck_assert_ptr_null(icd_object_get(context, ICD_EVENT));
	ck_assert_ptr_null(icd_object_get(NULL, ICD_CONTEXT));
	ck_assert_ptr_null(icd_object_get(&stray, ICD_CONTEXT));
	ck_assert_ptr_null(icd_object_get((char *)context + 8, ICD_CONTEXT));
	ck_assert_ptr_null(icd_object_get((void *)UINTPTR_MAX, ICD_CONTEXT));
	ck_assert_ptr_eq(icd_object_get(context, ICD_CONTEXT), context);
	icd_gate_unlock();
	(void)icd_clReleaseContext(context);
}
END_TEST

START_TEST(test_object_place_is_not_taken_again_at_once)
{
	struct _cl_context *first = context_new(), *others[200];
	uint64_t serial = first->object.serial;

	(void)icd_clReleaseContext(first);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(others); i++) {
		others[i] = context_new();
		ck_assert(i > 10 || others[i] != first);
		ck_assert_uint_gt(others[i]->object.serial, serial);
		for (size_t j = 0; j < i; j++)
			ck_assert_ptr_ne(others[i], others[j]);
	}
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(others); i++)
		ck_assert_int_eq(icd_clReleaseContext(others[i]), CL_SUCCESS);
}
END_TEST

/* An event holds those that it waited for: a long chain may end at once. */
START_TEST(test_chain_of_any_length_ends_without_a_stack_of_it)
{
	struct _cl_context *context = context_new();
	struct _cl_event *last = NULL;

	icd_gate_lock();
	for (size_t i = 0; i < 500000; i++) {
		struct _cl_event *event = icd_object_new(ICD_EVENT);

		ck_assert_ptr_nonnull(event);
		gantry_list_init(&event->waiting);
		gantry_list_init(&event->watched);
		gantry_list_init(&event->callbacks);
		event->context = context;
		icd_object_hold(context);
		event->deps = malloc(sizeof(struct _cl_event *));
		event->deps[0] = last;
		event->ndeps = last != NULL;
		if (last) {
			icd_object_hold(last);
			icd_object_let_go(last);
		}
		last = event;
	}
	icd_object_let_go(last);
	ck_assert(!icd_object_any(ICD_EVENT));
	ck_assert_uint_eq(context->object.holds, 0);
	icd_gate_unlock();
	ck_assert_int_eq(icd_clReleaseContext(context), CL_SUCCESS);
}
END_TEST

/* The parent's session, thread and commands are not the child's; it may have its own. */
START_TEST(test_child_of_a_fork_has_no_object_of_its_parent)
{
	struct _cl_context *context = context_new(), *own;
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		bool good = icd_clRetainContext(context) == CL_INVALID_CONTEXT &&
			    !icd_object_any(ICD_CONTEXT);

		for (int i = 0; i < 100 && good; i++) {
			own = context_new();
			good = own != context && icd_clReleaseContext(own) == CL_SUCCESS;
		}
		_exit(good ? 0 : 1);
	}
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(icd_clReleaseContext(context), CL_SUCCESS);
}
END_TEST

/* ---- the thread ---- */

struct noted {
	struct icd_call call; /* first */
	pthread_t thread;
	bool done;
};

static void note(struct icd_call *call)
{
	struct noted *noted = (struct noted *)call;

	icd_gate_lock();
	noted->thread = pthread_self();
	noted->done = true;
	icd_gate_changed();
	icd_gate_unlock();
}

/* Whoever leaves a thread behind fails. */
START_TEST(test_pump_runs_calls_and_ends_when_the_library_goes)
{
	struct _cl_context *context = context_new();
	struct noted first = { .call.run = note }, second = { .call.run = note };

	icd_gate_lock();
	ck_assert_int_eq(icd_pump_need(), CL_SUCCESS);
	ck_assert_int_eq(icd_pump_need(), CL_SUCCESS);
	icd_pump_call(&first.call);
	icd_pump_call(&second.call);
	while (!first.done || !second.done)
		icd_gate_wait();
	ck_assert(!pthread_equal(first.thread, pthread_self()));
	ck_assert(pthread_equal(first.thread, second.thread));
	ck_assert(!icd_pump_is_me());
	icd_gate_unlock();
	ck_assert_int_eq(icd_clReleaseContext(context), CL_SUCCESS);
	icd_gate_lock();
	icd_pump_end();
	icd_pump_end();
	icd_gate_unlock();
}
END_TEST

static void never(struct icd_call *call)
{
	(void)call;
	_exit(2);
}

START_TEST(test_child_of_a_fork_runs_none_of_its_parents_callbacks)
{
	struct _cl_context *context;
	struct icd_call call = { .run = never };
	struct noted noted = { .call.run = note };
	int status = 0;
	pid_t pid;

	icd_gate_lock();
	icd_pump_call(&call); /* no thread runs it here */
	icd_gate_unlock();
	pid = fork();
	if (pid == 0) {
		context = context_new();
		icd_gate_lock();
		if (icd_pump_need() != CL_SUCCESS)
			_exit(3);
		icd_pump_call(&noted.call);
		while (!noted.done)
			icd_gate_wait();
		icd_gate_unlock();
		_exit(icd_clReleaseContext(context) == CL_SUCCESS ? 0 : 4);
	}
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- without an agent ---- */

START_TEST(test_platform_without_an_agent_is_not_there)
{
	cl_platform_id platform = NULL;
	cl_uint n = 7;

	ck_assert_int_eq(clIcdGetPlatformIDsKHR(1, &platform, &n), CL_PLATFORM_NOT_FOUND_KHR);
	ck_assert_uint_eq(n, 0);
	ck_assert_ptr_null(platform);
	ck_assert_int_eq(clIcdGetPlatformIDsKHR(0, &platform, NULL), CL_INVALID_VALUE);
	ck_assert_int_eq(clIcdGetPlatformIDsKHR(0, NULL, NULL), CL_INVALID_VALUE);
	ck_assert_int_eq(icd_clGetDeviceIDs(&icd_platform, CL_DEVICE_TYPE_ALL, 0, NULL, &n),
			 CL_DEVICE_NOT_FOUND);
}
END_TEST

START_TEST(test_calls_with_null_name_what_is_missing)
{
	size_t one = 1;
	uint32_t word = 0;
	cl_int result = CL_SUCCESS;

	ck_assert_int_eq(icd_clReleaseMemObject(NULL), CL_INVALID_MEM_OBJECT);
	ck_assert_int_eq(icd_clReleaseCommandQueue(NULL), CL_INVALID_COMMAND_QUEUE);
	ck_assert_int_eq(icd_clReleaseProgram(NULL), CL_INVALID_PROGRAM);
	ck_assert_int_eq(icd_clReleaseKernel(NULL), CL_INVALID_KERNEL);
	ck_assert_int_eq(icd_clReleaseEvent(NULL), CL_INVALID_EVENT);
	ck_assert_int_eq(icd_clFinish(NULL), CL_INVALID_COMMAND_QUEUE);
	ck_assert_int_eq(icd_clFlush(NULL), CL_INVALID_COMMAND_QUEUE);
	ck_assert_int_eq(icd_clSetKernelArg(NULL, 0, 4, &word), CL_INVALID_KERNEL);
	ck_assert_int_eq(icd_clBuildProgram(NULL, 0, NULL, NULL, NULL, NULL), CL_INVALID_PROGRAM);
	ck_assert_int_eq(icd_clEnqueueNDRangeKernel(NULL, NULL, 1, NULL, &one, NULL, 0, NULL, NULL),
			 CL_INVALID_COMMAND_QUEUE);
	ck_assert_int_eq(icd_clEnqueueReadBuffer(NULL, NULL, CL_TRUE, 0, 4, &word, 0, NULL, NULL),
			 CL_INVALID_COMMAND_QUEUE);
	ck_assert_int_eq(icd_clWaitForEvents(0, NULL), CL_INVALID_VALUE);
	ck_assert_int_eq(icd_clWaitForEvents(1, &(cl_event){ NULL }), CL_INVALID_EVENT);
	ck_assert_int_eq(icd_clGetPlatformInfo(NULL, CL_PLATFORM_NAME, 0, NULL, NULL),
			 CL_INVALID_PLATFORM);
	ck_assert_int_eq(icd_clGetDeviceInfo(NULL, CL_DEVICE_NAME, 0, NULL, NULL),
			 CL_INVALID_DEVICE);
	ck_assert_ptr_null(icd_clCreateBuffer(NULL, 0, 64, NULL, &result));
	ck_assert_int_eq(result, CL_INVALID_CONTEXT);
	ck_assert_ptr_null(icd_clCreateContext(NULL, 0, NULL, NULL, NULL, &result));
	ck_assert_int_eq(result, CL_INVALID_VALUE);
	ck_assert_ptr_null(
		icd_clCreateContext(NULL, 1, &(cl_device_id){ NULL }, NULL, NULL, &result));
	ck_assert_int_eq(result, CL_INVALID_DEVICE);
}
END_TEST

START_TEST(test_table_has_every_function_of_opencl_1_2)
{
	const void *const *table = (const void *const *)(const void *)&icd_dispatch;
	size_t first = offsetof(struct _cl_icd_dispatch, clCreateSubDevices) / sizeof(void *);
	size_t last = offsetof(struct _cl_icd_dispatch, clEnqueueBarrierWithWaitList) /
		      sizeof(void *);
	size_t old = offsetof(struct _cl_icd_dispatch, clGetExtensionFunctionAddress) /
		     sizeof(void *);

	for (size_t i = 0; i <= old; i++)
		ck_assert_ptr_nonnull(table[i]);
	for (size_t i = first; i <= last; i++)
		ck_assert_ptr_nonnull(table[i]);
}
END_TEST

START_TEST(test_answer_that_does_not_fit_writes_nothing)
{
	char text[4] = "xyz";
	size_t n = 0;

	ck_assert_int_eq(icd_answer_text(&(struct icd_to){ 3, text, &n }, "abc"), CL_INVALID_VALUE);
	ck_assert_str_eq(text, "xyz");
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(icd_answer_text(&(struct icd_to){ 0, NULL, &n }, "abc"), CL_SUCCESS);
	ck_assert_uint_eq(n, 4);
	ck_assert_int_eq(icd_answer_text(&(struct icd_to){ 4, text, NULL }, "abc"), CL_SUCCESS);
	ck_assert_str_eq(text, "abc");
}
END_TEST

/* ---- texts ---- */

static const struct {
	const char *options, *host; /* NULL: refused */
} options[] = {
	{ "", "" },
	{ NULL, "" },
	{ "-D A=1 -DB -cl-mad-enable", "-D A=1 -DB -cl-mad-enable " },
	{ "-I /tmp -I. -w", "-w " },
	{ "-cl-std=CL1.2  -Werror", "-cl-std=CL1.2 -Werror " },
	{ "-D", NULL },
	{ "-I", NULL },
	{ "-cl-nothing", NULL },
	{ "something", NULL },
	{ "-D\nX", "-D X " },
};

START_TEST(test_options_are_known_or_refused)
{
	char *taken = icd_options_for_host(options[_i].options);

	if (!options[_i].host)
		ck_assert_ptr_null(taken);
	else
		ck_assert_str_eq(taken, options[_i].host);
	free(taken);
}
END_TEST

START_TEST(test_flatten_puts_headers_in_their_places)
{
	const struct icd_header headers[] = { { "a.h", "#pragma once\nint a;" },
					      { "b.h", "#include \"a.h\"\nint b;\n" } };
	char *flat = icd_source_flatten(
		"#include \"a.h\"\n # include <b.h>\n#include \"nowhere.h\"\nint c;", NULL, 2,
		headers);

	ck_assert_ptr_nonnull(flat);
	ck_assert_ptr_nonnull(strstr(flat, "int a;"));
	ck_assert_ptr_null(strstr(strstr(flat, "int a;") + 1, "int a;"));
	ck_assert_ptr_nonnull(strstr(flat, "int b;"));
	ck_assert_ptr_nonnull(strstr(flat, "#include \"nowhere.h\"\nint c;\n"));
	free(flat);
}
END_TEST

START_TEST(test_flatten_of_a_header_that_includes_itself_ends)
{
	const struct icd_header header = { "a.h", "#include \"a.h\"\n" };

	ck_assert_ptr_null(icd_source_flatten("#include \"a.h\"\n", NULL, 1, &header));
}
END_TEST

START_TEST(test_kernels_are_read_as_the_host_says_them)
{
	struct icd_kernel_info *kernels = NULL;
	const char *rest = NULL;
	uint32_t n = 0;

	ck_assert(icd_kernels_parse(
		"kernels\nkernel\tk\t64\t8\t4\t1\t128\t16\t32\n"
		"attributes\treqd_work_group_size(8,4,1)\n"
		"arg\t4507\t4515\t1\t0\tint*\ta\narg\t4510\t4515\t0\t0\tfloat3\tv\n"
		"kernel\tl\t1\t0\t0\t0\t0\t0\t1\nend\nwarning: x\n",
		&kernels, &n, &rest));
	ck_assert_uint_eq(n, 2);
	ck_assert_str_eq(kernels[0].name, "k");
	ck_assert_uint_eq(kernels[0].work_group, 64);
	ck_assert_uint_eq(kernels[0].compiled[1], 4);
	ck_assert_uint_eq(kernels[0].local_bytes, 128);
	ck_assert_str_eq(kernels[0].attributes, "reqd_work_group_size(8,4,1)");
	ck_assert_ptr_null(kernels[1].attributes);
	ck_assert_uint_eq(kernels[0].nargs, 2);
	ck_assert_str_eq(kernels[0].args[0].type, "int*");
	ck_assert_uint_eq(kernels[0].args[0].where, CL_KERNEL_ARG_ADDRESS_GLOBAL);
	ck_assert_uint_eq(kernels[0].args[1].bytes, 16);
	ck_assert_uint_eq(kernels[1].nargs, 0);
	ck_assert_str_eq(rest, "warning: x\n");
	icd_kernel_infos_free(kernels, n);
}
END_TEST

static const char *const cut[] = {
	"",
	"kernels\n",
	"kernels\nkernel\tk\t64",
	"kernels\narg\t1\t1\t1\t1\ta\tb\nend\n",
	"kernels\nattributes\ta\nend\n",
	"warning: there is no kernel\n",
	"kernels\nkernel\tk\t64\t8\t4\t1\t128\t16\t32\narg\t45",
};

START_TEST(test_kernels_cut_short_are_refused)
{
	struct icd_kernel_info *kernels = NULL;
	const char *rest = NULL;
	uint32_t n = 77;

	ck_assert(!icd_kernels_parse(cut[_i], &kernels, &n, &rest));
	ck_assert_ptr_null(kernels);
	ck_assert_uint_eq(n, 77);
}
END_TEST

START_TEST(test_installed_kernel_has_the_arguments_of_its_signature)
{
	char name[] = "saxpy", signature[] = "f32,r:f32*,rw:f32*,u64", bad[] = "f32,thing";
	struct icd_kernel_info *info = calloc(1, sizeof(*info));

	ck_assert(icd_kernel_of_builtin(&(struct icd_builtin){ name, signature }, info));
	ck_assert_uint_eq(info->nargs, 4);
	ck_assert_uint_eq(info->args[0].bytes, 4);
	ck_assert_uint_eq(info->args[1].qualifiers, CL_KERNEL_ARG_TYPE_CONST);
	ck_assert_uint_eq(info->args[2].where, CL_KERNEL_ARG_ADDRESS_GLOBAL);
	ck_assert_str_eq(info->args[3].type, "ulong");
	icd_kernel_infos_free(info, 1);
	info = calloc(1, sizeof(*info));
	ck_assert(!icd_kernel_of_builtin(&(struct icd_builtin){ name, bad }, info));
	free(info);
}
END_TEST

/* ---- colours ---- */

#define F(x)                        \
	{                           \
		.f = { x, x, x, x } \
	}

static const struct {
	cl_image_format format;
	union {
		float f[4];
		int32_t i[4];
		uint32_t u[4];
	} color;
	unsigned char pixel[16];
} colors[] = {
	/* Ties go to the even number, and what does not fit to the end of the range. */
	{ { CL_RGBA, CL_UNORM_INT8 }, { .f = { 0.5f, 0.25f, 2, -1 } }, { 128, 64, 255, 0 } },
	{ { CL_RGBA, CL_SNORM_INT8 }, { .f = { 0.5f, -0.25f, -1, -3 } }, { 64, 0xe0, 0x81, 0x80 } },
	{ { CL_BGRA, CL_UNORM_INT8 }, { .f = { 1, 0.2f, 0.4f, 0.6f } }, { 102, 51, 255, 153 } },
	{ { CL_ARGB, CL_UNSIGNED_INT8 }, { .u = { 1, 2, 3, 400 } }, { 255, 1, 2, 3 } },
	{ { CL_A, CL_SIGNED_INT8 }, { .i = { 1, 2, 3, -400 } }, { 0x80 } },
	{ { CL_RG, CL_SIGNED_INT16 }, { .i = { -2, 70000, 3, 4 } }, { 0xfe, 0xff, 0xff, 0x7f } },
	{ { CL_RA, CL_UNSIGNED_INT16 }, { .u = { 0x102, 7, 7, 0x10000 } }, { 2, 1, 0xff, 0xff } },
	{ { CL_R, CL_UNORM_INT16 }, { .f = { 0.5f } }, { 0x00, 0x80 } },
	{ { CL_R, CL_UNSIGNED_INT32 }, { .u = { 0x01020304 } }, { 4, 3, 2, 1 } },
	{ { CL_R, CL_FLOAT }, { .f = { 1 } }, { 0, 0, 0x80, 0x3f } },
	/* Halves: one, a tie, the largest, too large, the least, half of it, less; no number. */
	{ { CL_R, CL_HALF_FLOAT }, F(1.0f), { 0x00, 0x3c } },
	{ { CL_R, CL_HALF_FLOAT }, F(1.00048828125f), { 0x00, 0x3c } },
	{ { CL_R, CL_HALF_FLOAT }, F(1.00146484375f), { 0x02, 0x3c } },
	{ { CL_R, CL_HALF_FLOAT }, F(-65504.0f), { 0xff, 0xfb } },
	{ { CL_R, CL_HALF_FLOAT }, F(65520.0f), { 0x00, 0x7c } },
	{ { CL_R, CL_HALF_FLOAT }, F(0x1p-24f), { 0x01, 0x00 } },
	{ { CL_R, CL_HALF_FLOAT }, F(0x1p-25f), { 0x00, 0x00 } },
	{ { CL_R, CL_HALF_FLOAT }, F(0x1.8p-25f), { 0x01, 0x00 } },
	{ { CL_R, CL_HALF_FLOAT }, F(-0x1p-30f), { 0x00, 0x80 } },
	{ { CL_R, CL_HALF_FLOAT }, F(0x1.ffcp-15f), { 0x00, 0x04 } },
	{ { CL_R, CL_HALF_FLOAT }, F(__builtin_inff()), { 0x00, 0x7c } },
	{ { CL_R, CL_HALF_FLOAT }, F(__builtin_nanf("")), { 0x00, 0x7e } },
	{ { CL_R, CL_UNORM_INT8 }, F(__builtin_nanf("")), { 0 } },
};

START_TEST(test_color_becomes_the_pixel_that_the_standard_prefers)
{
	unsigned char pixel[16];

	memset(pixel, 0xaa, sizeof(pixel));
	icd_color_to_pixel(&colors[_i].format, &colors[_i].color, pixel);
	ck_assert_mem_eq(pixel, colors[_i].pixel, sizeof(pixel));
}
END_TEST

#ifdef GANTRY_ATOMIC_UNDER_TSAN
/* It has no pthread_clockjoin_np(), so the driver's thread is never joined, to it. The runner counts threads. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "report_thread_leaks=0";
}
#endif

int main(void)
{
	Suite *suite = suite_create("opencl");
	TCase *handles = gantry_unit_case(suite, "handles");
	TCase *calls = gantry_unit_case(suite, "calls");
	TCase *texts = gantry_unit_case(suite, "texts");

	tcase_add_test(handles, test_object_is_gone_when_the_last_reference_is);
	tcase_add_test(handles, test_object_that_is_held_has_a_stale_handle_and_is_there);
	tcase_add_test(handles, test_object_of_another_type_or_no_object_is_recognised);
	tcase_add_test(handles, test_object_place_is_not_taken_again_at_once);
	tcase_add_test(handles, test_chain_of_any_length_ends_without_a_stack_of_it);
	tcase_add_test(handles, test_child_of_a_fork_has_no_object_of_its_parent);
	tcase_add_test(handles, test_child_of_a_fork_runs_none_of_its_parents_callbacks);
	tcase_add_test(handles, test_pump_runs_calls_and_ends_when_the_library_goes);
	tcase_add_test(calls, test_platform_without_an_agent_is_not_there);
	tcase_add_test(calls, test_calls_with_null_name_what_is_missing);
	tcase_add_test(calls, test_table_has_every_function_of_opencl_1_2);
	tcase_add_test(calls, test_answer_that_does_not_fit_writes_nothing);
	tcase_add_loop_test(texts, test_options_are_known_or_refused, 0,
			    GANTRY_ARRAY_SIZE(options));
	tcase_add_test(texts, test_flatten_puts_headers_in_their_places);
	tcase_add_test(texts, test_flatten_of_a_header_that_includes_itself_ends);
	tcase_add_test(texts, test_kernels_are_read_as_the_host_says_them);
	tcase_add_loop_test(texts, test_kernels_cut_short_are_refused, 0, GANTRY_ARRAY_SIZE(cut));
	tcase_add_test(texts, test_installed_kernel_has_the_arguments_of_its_signature);
	tcase_add_loop_test(texts, test_color_becomes_the_pixel_that_the_standard_prefers, 0,
			    GANTRY_ARRAY_SIZE(colors));
	return gantry_unit_run(suite);
}
