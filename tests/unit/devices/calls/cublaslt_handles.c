/* SPDX-License-Identifier: Apache-2.0 */
/* What programs do with cuBLASLt's objects: cuBLAS's handle for its own, descriptors in their own memory, and its log. */
#include <cublasLt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "devices/cuda/calls/run.h"
#include "guest-shim/cudalibs/call.h"
#include "guest-shim/cudalibs/numbers.h"
#include "tests/unit/runner.h"

#define OF_BLAS	  0x8000u /* what the libraries call their objects */
#define OF_LT	  0x8100u
#define OF_LAYOUT 0x8200u
#define OF_DESC	  0x8300u
#define OF_WISH	  0x8400u

extern const struct gantry_calls_library gantry_calls_cublasLt;
/* Nobody takes the usual road here. */
const struct gantry_call_road gantry_call_road_session = { 0 };

static struct gantry_calls_site site;
static uintptr_t seen;
static unsigned int ncalls;

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
				cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
				cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
				cublasLtMatmulPreference_t wish, int requested,
				cublasLtMatmulHeuristicResult_t results[], int *ret_count)
{
	ncalls++;
	seen = (uintptr_t)handle;
	ck_assert_ptr_eq((void *)desc, (void *)OF_DESC);
	ck_assert(a == b && b == c && c == d);
	ck_assert_ptr_eq((void *)wish, (void *)OF_WISH);
	for (int i = 0; i < requested; i++)
		results[i].workspaceSize = 77;
	*ret_count = requested;
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy(cublasLtHandle_t handle)
{
	ncalls++;
	seen = (uintptr_t)handle;
	return CUBLAS_STATUS_SUCCESS;
}

static unsigned int nlayouts;

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *ret_layout, cudaDataType type,
				    uint64_t rows, uint64_t cols, int64_t ld)
{
	(void)type;
	(void)cols;
	if (ld < (int64_t)rows)
		return CUBLAS_STATUS_INVALID_VALUE;
	*ret_layout = (cublasLtMatrixLayout_t)(uintptr_t)(0x9000 + 16 * ++nlayouts);
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_destroy(cublasLtMatrixLayout_t layout)
{
	ck_assert_uint_gt((uintptr_t)layout, 0x9000);
	nlayouts--;
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t layout_get(cublasLtMatrixLayout_t layout,
				 cublasLtMatrixLayoutAttribute_t attribute, void *buf, size_t size,
				 size_t *ret_written)
{
	(void)attribute;
	memset(buf, 0, size);
	seen = (uintptr_t)layout;
	*ret_written = size;
	return CUBLAS_STATUS_SUCCESS;
}

static void *find_symbol(void *cookie, const struct gantry_calls_library *library, const char *name)
{
	(void)cookie;
	(void)library;
	return strcmp(name, "cublasLtMatmulAlgoGetHeuristic") == 0     ? (void *)heuristic
	       : strcmp(name, "cublasLtDestroy") == 0		       ? (void *)destroy
	       : strcmp(name, "cublasLtMatrixLayoutCreate") == 0       ? (void *)layout_create
	       : strcmp(name, "cublasLtMatrixLayoutDestroy") == 0      ? (void *)layout_destroy
	       : strcmp(name, "cublasLtMatrixLayoutGetAttribute") == 0 ? (void *)layout_get
								       : NULL;
}

static int is_device(void *cookie, const void *address)
{
	(void)cookie;
	(void)address;
	return 0;
}

static bool reaches(void *cookie, void *stream, uint64_t address)
{
	(void)cookie;
	(void)stream;
	(void)address;
	return false;
}

static bool is_captured; /* calls become nodes of a graph */
static unsigned int ncarried;

static int carry(void *cookie, struct gantry_call_library *library,
		 const struct gantry_call_route *route, const void *request, size_t bytes,
		 void *reply, size_t reply_bytes)
{
	const struct gantry_calls_library *const libraries[] = { &gantry_calls_cublasLt, NULL };
	struct gantry_pack out;

	(void)cookie;
	(void)library;
	ncarried++;
	if (is_captured)
		return 1;
	gantry_pack_init(&out, GANTRY_CALLS_MAX_BYTES);
	gantry_calls_serve(&site, libraries, NULL, request, bytes, &out);
	if (route->waits) {
		ck_assert_uint_le(out.len, reply_bytes);
		memcpy(reply, out.bytes, out.len);
	}
	gantry_pack_fini(&out);
	return 0;
}

static void *add(const char *type, uint64_t native)
{
	return (void *)(uintptr_t)gantry_calls_table_add(&site.table, gantry_calls_kind(type),
							 native);
}

static cublasStatus_t ask(void *handle)
{
	void *layout = add("cublasLtMatrixLayout_t", OF_LAYOUT);
	cublasLtMatmulHeuristicResult_t result;
	cublasStatus_t status;
	int count = 0;

	memset(&result, 0, sizeof(result));
	status = cublasLtMatmulAlgoGetHeuristic(handle, add("cublasLtMatmulDesc_t", OF_DESC),
						layout, layout, layout, layout,
						add("cublasLtMatmulPreference_t", OF_WISH), 1,
						&result, &count);
	if (status == CUBLAS_STATUS_SUCCESS) {
		ck_assert_int_eq(count, 1);
		ck_assert_uint_eq(result.workspaceSize, 77);
	}
	return status;
}

START_TEST(test_cublas_handle_stands_for_cublaslts)
{
	static const struct gantry_call_road road = { .carry = carry, .is_device = is_device };
	void *blas, *lt;

	site = (struct gantry_calls_site){ .symbol = find_symbol, .reaches = reaches };
	gantry_calls_table_init(&site.table);
	gantry_call_road_set(&road);
	ck_assert_int_eq(ask(add("cublasLtMatmulDesc_t", OF_DESC)), CUBLAS_STATUS_INVALID_VALUE);
	ck_assert_uint_eq(ncalls, 0);
	blas = add("cublasHandle_t", OF_BLAS);
	lt = add("cublasLtHandle_t", OF_LT);
	ck_assert_int_eq(ask(blas), 0);
	ck_assert_uint_eq(seen, OF_BLAS);
	ck_assert_int_eq(ask(lt), 0);
	ck_assert_uint_eq(seen, OF_LT);
	/* It ends as what it is. */
	ck_assert_int_eq(cublasLtDestroy(blas), CUBLAS_STATUS_INVALID_VALUE);
	ck_assert_uint_eq(ncalls, 2);
	ck_assert_int_eq(cublasLtDestroy(lt), 0);
	ck_assert_int_eq(ask(lt), CUBLAS_STATUS_INVALID_VALUE);
	gantry_calls_table_fini(&site.table);
	gantry_call_road_set(NULL);
}
END_TEST

static void begin(void)
{
	static const struct gantry_call_road road = { .carry = carry, .is_device = is_device };

	site = (struct gantry_calls_site){ .symbol = find_symbol, .reaches = reaches };
	gantry_calls_table_init(&site.table);
	gantry_call_road_set(&road);
	nlayouts = 0;
	seen = 0;
}

static void end(void)
{
	gantry_calls_table_fini(&site.table);
	gantry_call_road_set(NULL);
}

static cublasStatus_t look_at(cublasLtMatrixLayout_t layout)
{
	uint64_t rows;
	size_t written;

	seen = 0;
	return cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows,
						sizeof(rows), &written);
}

START_TEST(test_descriptor_in_the_programs_memory_is_an_object_of_the_worker)
{
	cublasLtMatrixLayoutOpaque_t layout, copy, never;

	begin();
	memset(&layout, 0x5a, sizeof(layout));
	memset(&never, 0x5a, sizeof(never));
	ck_assert_int_eq(cublasLtMatrixLayoutInit(&layout, CUDA_R_32F, 8, 8, 8), 0);
	ck_assert_int_eq(look_at(&layout), 0);
	ck_assert_uint_eq(seen, 0x9010);
	/* A copy is the same object, and making another of it leaves the first. */
	copy = layout;
	ck_assert_int_eq(look_at(&copy), 0);
	ck_assert_uint_eq(seen, 0x9010);
	ck_assert_int_eq(cublasLtMatrixLayoutInit(&copy, CUDA_R_32F, 4, 4, 4), 0);
	ck_assert_uint_eq(nlayouts, 2);
	ck_assert_int_eq(look_at(&layout), 0);
	ck_assert_uint_eq(seen, 0x9010);
	/* One made again in its place takes the first's place. */
	ck_assert_int_eq(cublasLtMatrixLayoutInit(&layout, CUDA_R_32F, 8, 8, 8), 0);
	ck_assert_uint_eq(nlayouts, 2);
	/* What is none, and one that could not be made. */
	ck_assert_int_eq(look_at(&never), CUBLAS_STATUS_INVALID_VALUE);
	ck_assert_uint_eq(seen, 0);
	ck_assert_int_eq(cublasLtMatrixLayoutInit(&never, CUDA_R_32F, 8, 8, 4), 0);
	ck_assert_int_eq(look_at(&never), CUBLAS_STATUS_INVALID_VALUE);
	ck_assert_int_eq(cublasLtMatrixLayoutInit_internal(&layout, 8, CUDA_R_32F, 8, 8, 8),
			 CUBLAS_STATUS_INVALID_VALUE);
	end();
}
END_TEST

/* A graph's node is carried again when the program has long ended what the node names. */
START_TEST(test_what_a_graph_names_lives_on)
{
	cublasLtMatrixLayout_t layout, other, next;
	unsigned int before;

	begin();
	ck_assert_int_eq(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 8, 8, 8), 0);
	ck_assert_int_eq(cublasLtMatrixLayoutCreate(&other, CUDA_R_32F, 8, 8, 8), 0);
	is_captured = true;
	ck_assert_int_eq(look_at(layout), 0);
	is_captured = false;
	ck_assert_uint_eq(seen, 0);
	before = ncarried;
	ck_assert_int_eq(cublasLtMatrixLayoutDestroy(layout), 0);
	ck_assert_uint_eq(ncarried, before);
	ck_assert_uint_eq(nlayouts, 2);
	/* The program has it no longer, and nothing else gets its number. */
	ck_assert_int_eq(look_at(layout), CUBLAS_STATUS_INVALID_VALUE);
	ck_assert_int_eq(cublasLtMatrixLayoutCreate(&next, CUDA_R_32F, 8, 8, 8), 0);
	ck_assert_uint_ne((uint16_t)(uintptr_t)next, (uint16_t)(uintptr_t)layout);
	ck_assert_uint_eq(nlayouts, 3);
	/* What no graph names ends as ever. */
	ck_assert_int_eq(cublasLtMatrixLayoutDestroy(other), 0);
	ck_assert_uint_eq(nlayouts, 2);
	end();
}
END_TEST

static cublasStatus_t name_in_graph(void *handle)
{
	int ids[1], count;

	return cublasLtMatmulAlgoGetIds(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F,
					CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, 1, ids, &count);
}

/* The same of objects whose numbers the worker gives. */
START_TEST(test_handle_that_a_graph_names_is_at_an_end_for_the_program)
{
	void *lt;

	begin();
	ncalls = 0;
	lt = add("cublasLtHandle_t", OF_LT);
	is_captured = true;
	ck_assert_int_eq(name_in_graph(lt), 0);
	is_captured = false;
	ck_assert_int_eq(cublasLtDestroy(lt), 0);
	ck_assert_uint_eq(ncalls, 0);
	ck_assert_int_eq(ask(lt), CUBLAS_STATUS_INVALID_VALUE);
	ck_assert_int_eq(cublasLtDestroy(lt), CUBLAS_STATUS_INVALID_VALUE);
	ck_assert_uint_eq(ncalls, 0);
	end();
}
END_TEST

/* In another session the same numbers are of other objects, which no graph names. */
START_TEST(test_another_session_knows_nothing_of_the_last_ones_graphs)
{
	cublasLtMatrixLayout_t layout, next, left;
	void *lt;

	begin();
	ck_assert_int_eq(cublasLtMatrixLayoutCreate(&left, CUDA_R_32F, 8, 8, 8), 0);
	ncalls = 0;
	lt = add("cublasLtHandle_t", OF_LT);
	ck_assert_int_eq(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 8, 8, 8), 0);
	is_captured = true;
	ck_assert_int_eq(name_in_graph(lt), 0);
	ck_assert_int_eq(look_at(layout), 0);
	is_captured = false;
	ck_assert_int_eq(cublasLtDestroy(lt), 0);
	ck_assert_int_eq(cublasLtMatrixLayoutDestroy(layout), 0);
	end();
	begin();
	gantry_call_session_began();
	ck_assert_ptr_eq(add("cublasLtHandle_t", OF_LT), lt);
	ck_assert_int_eq(ask(lt), 0);
	/* It ends now, and the place of what was kept for a graph is free again. */
	ck_assert_int_eq(cublasLtDestroy(lt), 0);
	ck_assert_uint_eq(ncalls, 2);
	ck_assert_int_eq(look_at(layout), CUBLAS_STATUS_INVALID_VALUE);
	ck_assert_int_eq(cublasLtMatrixLayoutCreate(&next, CUDA_R_32F, 8, 8, 8), 0);
	/* Nor is what it left without an end. */
	ck_assert_uint_eq((uint16_t)(uintptr_t)next, (uint16_t)(uintptr_t)left);
	ck_assert_int_eq(look_at(left), CUBLAS_STATUS_INVALID_VALUE);
	ck_assert_int_eq(cublasLtMatrixLayoutDestroy(next), 0);
	end();
}
END_TEST

static bool has_begun;

static void enter_once(void *cookie)
{
	(void)cookie;
	if (!has_begun)
		gantry_call_session_began();
	has_begun = true;
}

static int carry_in_session(void *cookie, struct gantry_call_library *library,
			    const struct gantry_call_route *route, const void *request,
			    size_t bytes, void *reply, size_t reply_bytes)
{
	enter_once(cookie);
	return carry(cookie, library, route, request, bytes, reply, reply_bytes);
}

/* The very first call makes a descriptor, as PyTorch's products do: its number is the new session's. */
START_TEST(test_session_begins_with_the_making_of_a_descriptor)
{
	static const struct gantry_call_road road = { .enter = enter_once,
						      .carry = carry_in_session,
						      .is_device = is_device };
	cublasLtMatrixLayout_t layout;

	begin();
	gantry_call_road_set(&road);
	has_begun = false;
	ck_assert_int_eq(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 8, 8, 8), 0);
	ck_assert_int_eq(look_at(layout), 0);
	ck_assert_int_eq(cublasLtMatrixLayoutDestroy(layout), 0);
	end();
}
END_TEST

static bool is_over;

static void *make_and_end(void *unused)
{
	(void)unused;
	while (!gantry_load_relaxed(&is_over))
		gantry_call_number_give_up(gantry_call_number_choose());
	return NULL;
}

/* Whatever another thread of its parent's was about when it came. */
START_TEST(test_child_of_a_fork_makes_numbers)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, make_and_end, NULL), 0);
	for (int i = 0; i < 200; i++) {
		int status;
		pid_t pid = fork();

		ck_assert_int_ge(pid, 0);
		if (pid == 0) {
			(void)alarm(20);
			_exit(gantry_call_number_choose() ? 0 : 1);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
	gantry_store_relaxed(&is_over, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

static unsigned int nlogged;
static int last_level;
static char last_function[64], last_message[64];

static void logger(int level, const char *function, const char *message)
{
	nlogged++;
	last_level = level;
	(void)snprintf(last_function, sizeof(last_function), "%s", function);
	(void)snprintf(last_message, sizeof(last_message), "%s", message);
}

START_TEST(test_log_tells_what_was_called_to_whom_the_program_says)
{
	char path[] = "/tmp/gantry-unit-log-XXXXXX", line[128] = "";
	cublasLtMatrixLayout_t layout;
	FILE *file;

	begin();
	ck_assert_int_eq(cublasLtLoggerSetCallback(logger), 0);
	ck_assert_int_eq(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 8, 8, 8), 0);
	ck_assert_uint_eq(nlogged, 0);
	/* Failures alone. */
	ck_assert_int_eq(cublasLtLoggerSetLevel(1), 0);
	ck_assert_int_eq(look_at(layout), 0);
	ck_assert_uint_eq(nlogged, 0);
	ck_assert_int_ne(look_at((cublasLtMatrixLayout_t)0x77), 0);
	ck_assert_uint_eq(nlogged, 1);
	ck_assert_int_eq(last_level, 1);
	ck_assert_str_eq(last_function, "cublasLtMatrixLayoutGetAttribute");
	ck_assert_str_eq(last_message, "returned 7");
	/* All calls, into a file too. */
	close(mkstemp(path));
	ck_assert_int_eq(cublasLtLoggerSetMask(16), 0);
	ck_assert_int_eq(cublasLtLoggerOpenFile(path), 0);
	ck_assert_int_eq(look_at(layout), 0);
	ck_assert_uint_eq(nlogged, 2);
	ck_assert_int_eq(last_level, 5);
	/* What is no level, no mask and no file changes nothing. */
	ck_assert_int_ne(cublasLtLoggerSetLevel(6), 0);
	ck_assert_int_ne(cublasLtLoggerSetMask(-1), 0);
	ck_assert_int_ne(cublasLtLoggerOpenFile("/nonexistent/log"), 0);
	ck_assert_int_eq(cublasLtLoggerForceDisable(), 0);
	ck_assert_int_eq(cublasLtLoggerSetLevel(5), 0);
	ck_assert_int_eq(look_at(layout), 0);
	ck_assert_uint_eq(nlogged, 2);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
	ck_assert_str_eq(line, "[cublasLt][5][cublasLtMatrixLayoutGetAttribute] returned 0\n");
	ck_assert_ptr_null(fgets(line, sizeof(line), file));
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(unlink(path), 0);
	end();
}
END_TEST

static char last_line[128];

static void line_logger(const char *line)
{
	nlogged++;
	(void)snprintf(last_line, sizeof(last_line), "%s", line);
}

/* cuBLAS's: on or off, and whole lines. */
START_TEST(test_log_of_lines_is_on_when_the_program_says_so)
{
	struct gantry_call_library blas = { .name = "cublas" };
	char path[] = "/tmp/gantry-unit-log-XXXXXX", line[128] = "";
	FILE *file;

	nlogged = 0;
	close(mkstemp(path));
	ck_assert_ptr_null((void *)gantry_call_log_get_lines(&blas));
	gantry_call_log_lines(&blas, line_logger);
	ck_assert_ptr_eq((void *)gantry_call_log_get_lines(&blas), (void *)line_logger);
	gantry_call_log(&blas, "cublasCreate_v2", 0);
	ck_assert_uint_eq(nlogged, 0);
	ck_assert(!gantry_call_log_configure(&blas, 1, 0, 0, "/nonexistent/log"));
	ck_assert(gantry_call_log_configure(&blas, 1, 0, 0, path));
	gantry_call_log(&blas, "cublasCreate_v2", 0);
	ck_assert_uint_eq(nlogged, 1);
	ck_assert_str_eq(last_line, "[cublas][5][cublasCreate_v2] returned 0\n");
	gantry_call_log(&blas, "cublasCreate_v2", 7);
	ck_assert_str_eq(last_line, "[cublas][1][cublasCreate_v2] returned 7\n");
	ck_assert(gantry_call_log_configure(&blas, 0, 0, 0, NULL));
	gantry_call_log(&blas, "cublasCreate_v2", 7);
	ck_assert_uint_eq(nlogged, 2);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
	ck_assert_str_eq(line, "[cublas][5][cublasCreate_v2] returned 0\n");
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
	ck_assert_ptr_null(fgets(line, sizeof(line), file));
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cublasLt handles");
	TCase *tc = gantry_unit_case(suite, "handles");

	tcase_add_test(tc, test_cublas_handle_stands_for_cublaslts);
	tcase_add_test(tc, test_descriptor_in_the_programs_memory_is_an_object_of_the_worker);
	tcase_add_test(tc, test_what_a_graph_names_lives_on);
	tcase_add_test(tc, test_handle_that_a_graph_names_is_at_an_end_for_the_program);
	tcase_add_test(tc, test_another_session_knows_nothing_of_the_last_ones_graphs);
	tcase_add_test(tc, test_session_begins_with_the_making_of_a_descriptor);
	tcase_add_test(tc, test_child_of_a_fork_makes_numbers);
	tcase_add_test(tc, test_log_tells_what_was_called_to_whom_the_program_says);
	tcase_add_test(tc, test_log_of_lines_is_on_when_the_program_says_so);
	return gantry_unit_run(suite);
}
