/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs with conditions over the fake driver: built by tasks, of which any may be a stranger's. */
#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "devices/cuda/backend.h"
#include "proto/cuda_graph.h"
#include "tests/fakecuda/kernel.h"
#include "tests/unit/devices/cuda_fixture.h"
#include "tests/unit/runner.h"

static struct gantry_image *graphs, *image;
static struct gantry_cmd tasks[GANTRY_CUDA_GRAPH_NKERNELS];
static struct gantry_cmd count_down;
static struct gantry_mem *words;
static uint32_t here[64];

static struct gantry_image *load(const void *bytes, size_t nbytes)
{
	struct gantry_image *loaded;

	ck_assert_msg(device.backend->image_load(device.dev, NULL, bytes, nbytes, &loaded, &err) ==
			      0,
		      "%s", err.text);
	return loaded;
}

static void begin(void)
{
	static const char text[] = FAKECUDA_PTX(CUDA_KERNELS, "sm_90");

	open_device(NULL);
	graphs = load(GANTRY_CUDA_GRAPH_MAGIC, GANTRY_CUDA_GRAPH_MAGIC_BYTES);
	image = load(text, sizeof(text));
#define TASK(member, name, signature) \
	tasks[GANTRY_CUDA_GRAPH_##member] = launch_cmd(graphs, name, signature);
	GANTRY_CUDA_GRAPH_KERNELS(TASK)
#undef TASK
	count_down = launch_cmd(image, "count_down", "raw");
	memset(here, 0, sizeof(here));
	words = host_mem(here, sizeof(here));
}

static void end(void)
{
	device.backend->mem_free(words);
	device.backend->image_unload(image);
	device.backend->image_unload(graphs);
	gantry_device_close(&device);
}

static int try_make(uint32_t what, uint64_t width, uint32_t flags, struct gantry_mem *of,
		    struct gantry_mem **ret_mem, uint64_t *ret_value)
{
	const struct gantry_wire_texture spec = { .width = width, .flags = flags };
	uint64_t len;

	return device.backend->texture_make(device.dev, what, &spec, of, ret_mem, &len, ret_value,
					    &err);
}

static struct gantry_mem *new_graph(void)
{
	struct gantry_mem *graph;
	uint64_t value;

	ck_assert_msg(try_make(GANTRY_TEXTURE_GRAPH, 0, 0, NULL, &graph, &value) == 0, "%s",
		      err.text);
	return graph;
}

/* Its buffer is not needed. */
static uint64_t condition(struct gantry_mem *graph, uint32_t value)
{
	struct gantry_mem *mem;
	uint64_t handle;

	ck_assert_msg(try_make(GANTRY_TEXTURE_CONDITION, value, 1, graph, &mem, &handle) == 0, "%s",
		      err.text);
	device.backend->mem_free(mem);
	return handle;
}

static struct gantry_cmd task(enum gantry_cuda_graph_kernel which, struct gantry_mem *graph)
{
	struct gantry_cmd cmd = tasks[which];

	cmd.launch.args[0].range = (struct gantry_range){ graph, 0, 1 };
	return cmd;
}

static int32_t plain(enum gantry_cuda_graph_kernel which, struct gantry_mem *graph)
{
	struct gantry_cmd cmd = task(which, graph);

	return run(&cmd).status;
}

static int32_t branch(struct gantry_mem *graph, uint64_t handle, uint32_t type, uint32_t n)
{
	struct gantry_cmd cmd = task(GANTRY_CUDA_GRAPH_BRANCH, graph);

	cmd.launch.args[1].value.u64 = handle;
	cmd.launch.args[2].value.u64 = type;
	cmd.launch.args[3].value.u64 = n;
	return run(&cmd).status;
}

static int32_t body(struct gantry_mem *graph, uint32_t i)
{
	struct gantry_cmd cmd = task(GANTRY_CUDA_GRAPH_BODY, graph);

	cmd.launch.args[1].value.u64 = i;
	return run(&cmd).status;
}

static int32_t copy(struct gantry_mem *graph, struct gantry_range dst, struct gantry_range src)
{
	struct gantry_cmd cmd = task(GANTRY_CUDA_GRAPH_COPY, graph);

	cmd.launch.args[1].range = dst;
	cmd.launch.args[2].range = src;
	return run(&cmd).status;
}

static int32_t fill(struct gantry_mem *graph, struct gantry_range dst, uint32_t value,
		    uint32_t width)
{
	struct gantry_cmd cmd = task(GANTRY_CUDA_GRAPH_FILL, graph);

	cmd.launch.args[1].range = dst;
	cmd.launch.args[2].value.u64 = value;
	cmd.launch.args[3].value.u64 = width;
	return run(&cmd).status;
}

static int32_t count(uint64_t handle)
{
	const uint64_t params[] = { handle, (uintptr_t)here };
	struct gantry_cmd cmd = count_down;

	cmd.launch.raw = (const uint8_t *)params;
	cmd.launch.raw_bytes = sizeof(params);
	return run(&cmd).status;
}

/* As long as here[0] counts down. */
static void build_while(struct gantry_mem *graph)
{
	uint64_t handle = condition(graph, 1);

	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_BEGIN, graph), GANTRY_OK);
	ck_assert_int_eq(branch(graph, handle, GANTRY_CUDA_BRANCH_WHILE, 1), GANTRY_OK);
	ck_assert_int_eq(body(graph, 0), GANTRY_OK);
	ck_assert_int_eq(count(handle), GANTRY_OK);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_END, graph), GANTRY_OK);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_END, graph), GANTRY_OK);
}

START_TEST(test_graph_runs_its_body_while_the_condition_holds)
{
	struct gantry_mem *graph;

	begin();
	graph = new_graph();
	here[0] = 5;
	build_while(graph);
	ck_assert_uint_eq(here[0], 5); /* nothing has run */
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_RUN, graph), GANTRY_OK);
	ck_assert_uint_eq(here[0], 0);
	here[0] = 3;
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_RUN, graph), GANTRY_OK);
	ck_assert_uint_eq(here[0], 0);
	device.backend->mem_free(graph);
	end();
}
END_TEST

START_TEST(test_operands_of_nodes_are_checked_as_those_of_commands)
{
	struct gantry_mem *graph, *other, *plain_mem;
	struct gantry_range at, first, second;

	begin();
	graph = new_graph();
	other = new_graph();
	plain_mem = device_mem(MIB);
	at = (struct gantry_range){ words, 4, 8 };
	first = (struct gantry_range){ plain_mem, 0, 8 };
	second = (struct gantry_range){ plain_mem, 4, 8 };
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_BEGIN, graph), GANTRY_OK);
	ck_assert_int_eq(fill(graph, first, 7, 4), GANTRY_OK);
	ck_assert_int_eq(copy(graph, at, first), GANTRY_OK);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_END, graph), GANTRY_OK);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_RUN, graph), GANTRY_OK);
	ck_assert_uint_eq(here[1], 7);
	ck_assert_uint_eq(here[2], 7);
	ck_assert_uint_eq(here[3], 0);

	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_BEGIN, other), GANTRY_OK);
	ck_assert_int_eq(fill(other, first, 7, 3), GANTRY_E_ARG);
	ck_assert_int_eq(fill(other, first, 7, 0), GANTRY_E_ARG);
	ck_assert_int_eq(fill(other, (struct gantry_range){ plain_mem, 2, 8 }, 7, 4), GANTRY_E_ARG);
	ck_assert_int_eq(fill(other, (struct gantry_range){ plain_mem, 0, 6 }, 7, 4), GANTRY_E_ARG);
	ck_assert_int_eq(copy(other, first, second), GANTRY_E_ARG);
	ck_assert_int_eq(copy(other, first, (struct gantry_range){ words, 0, 12 }), GANTRY_E_ARG);
	ck_assert_int_eq(copy(other, at, (struct gantry_range){ words, 16, 8 }),
			 GANTRY_E_UNSUPPORTED);
	/* Neither memory. */
	ck_assert_int_eq(fill(other, (struct gantry_range){ graph, 0, 1 }, 7, 1),
			 GANTRY_E_UNSUPPORTED);
	ck_assert_int_eq(fill(other, (struct gantry_range){ 0 }, 7, 1), GANTRY_E_UNSUPPORTED);
	/* What went wrong first is why it is not made. */
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_END, other), GANTRY_E_ARG);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_RUN, other), GANTRY_E_ARG);
	device.backend->mem_free(plain_mem);
	device.backend->mem_free(other);
	device.backend->mem_free(graph);
	end();
}
END_TEST

START_TEST(test_hostile_conditions_are_refused)
{
	struct gantry_mem *graph, *other, *mem = NULL;
	uint64_t handle, foreign, value = 99;

	begin();
	graph = new_graph();
	other = new_graph();
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_GRAPH, 0, 0, graph, &mem, &value), -EINVAL);
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_CONDITION, 0, 0, NULL, &mem, &value), -EINVAL);
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_CONDITION, 0, 0, words, &mem, &value), -EINVAL);
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_CONDITION, 0, 2, graph, &mem, &value), -EINVAL);
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_CONDITION, 1ull << 32, 0, graph, &mem, &value),
			 -EINVAL);
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_SURFACE, 0, 0, graph, &mem, &value), -EINVAL);
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_LEVEL, 0, 0, graph, &mem, &value), -EINVAL);
	ck_assert_ptr_null(mem);
	ck_assert_uint_eq(value, 99);
	handle = condition(graph, 0);
	foreign = condition(other, 0);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_BEGIN, graph), GANTRY_OK);
	/* It is built: what it has is what it has. */
	ck_assert_int_eq(try_make(GANTRY_TEXTURE_CONDITION, 0, 0, graph, &mem, &value), -EINVAL);
	ck_assert_int_eq(branch(graph, 0, GANTRY_CUDA_BRANCH_IF, 1), GANTRY_E_ARG);
	ck_assert_int_eq(branch(graph, UINT64_MAX, GANTRY_CUDA_BRANCH_IF, 1), GANTRY_E_ARG);
	ck_assert_int_eq(branch(graph, foreign, GANTRY_CUDA_BRANCH_IF, 1), GANTRY_E_ARG);
	ck_assert_int_eq(branch(graph, handle, 3, 1), GANTRY_E_ARG);
	ck_assert_int_eq(branch(graph, handle, UINT32_MAX, 1), GANTRY_E_ARG);
	ck_assert_int_eq(branch(graph, handle, GANTRY_CUDA_BRANCH_IF, 0), GANTRY_E_ARG);
	ck_assert_int_eq(branch(graph, handle, GANTRY_CUDA_BRANCH_IF, 3), GANTRY_E_ARG);
	ck_assert_int_eq(branch(graph, handle, GANTRY_CUDA_BRANCH_WHILE, 2), GANTRY_E_ARG);
	ck_assert_int_eq(branch(graph, handle, GANTRY_CUDA_BRANCH_SWITCH, 0), GANTRY_E_ARG);
	ck_assert_int_eq(branch(graph, handle, GANTRY_CUDA_BRANCH_SWITCH, UINT32_MAX),
			 GANTRY_E_NO_MEMORY);
	ck_assert_int_eq(branch(graph, handle, GANTRY_CUDA_BRANCH_SWITCH,
				GANTRY_CUDA_GRAPH_MAX_NODES),
			 GANTRY_E_NO_MEMORY);
	ck_assert_int_eq(branch(graph, handle, GANTRY_CUDA_BRANCH_IF, 2), GANTRY_OK);
	ck_assert_int_eq(branch(graph, handle, GANTRY_CUDA_BRANCH_IF, 2), GANTRY_E_ARG);
	ck_assert_int_eq(body(graph, 2), GANTRY_E_ARG);
	ck_assert_int_eq(body(graph, UINT32_MAX), GANTRY_E_ARG);
	ck_assert_int_eq(body(graph, 1), GANTRY_OK);
	ck_assert_int_eq(body(graph, 0), GANTRY_E_ARG); /* there is no branch in it */
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_END, graph), GANTRY_OK);
	ck_assert_int_eq(body(graph, 1), GANTRY_E_ARG); /* again */
	/* Freed on the way, what it would have taken runs. */
	device.backend->mem_free(graph);
	here[0] = 9;
	ck_assert_int_eq(count(foreign), GANTRY_OK);
	ck_assert_uint_eq(here[0], 8);
	device.backend->mem_free(other);
	end();
}
END_TEST

START_TEST(test_tasks_of_graphs_out_of_turn_are_refused)
{
	static const enum gantry_cuda_graph_kernel building[] = { GANTRY_CUDA_GRAPH_END,
								  GANTRY_CUDA_GRAPH_BODY,
								  GANTRY_CUDA_GRAPH_BRANCH };
	struct gantry_mem *graph, *other;
	struct gantry_kernel *kernel;

	begin();
	graph = new_graph();
	other = new_graph();
	ck_assert_int_eq(try_kernel(graphs, "begin", "rw:u8*,u64", &kernel), -EINVAL);
	ck_assert_int_eq(try_kernel(graphs, "begin", "raw", &kernel), -EINVAL);
	ck_assert_int_eq(try_kernel(graphs, "other", "void", &kernel), -ENOENT);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_RUN, graph), GANTRY_E_ARG);
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(building); i++)
		ck_assert_int_eq(plain(building[i], graph), GANTRY_E_ARG);
	for (uint32_t i = 1; i < GANTRY_CUDA_GRAPH_NKERNELS; i++) {
		ck_assert_int_eq(plain(i, words), GANTRY_E_ARG);
		ck_assert_int_eq(plain(i, NULL), GANTRY_E_ARG);
	}
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_BEGIN, graph), GANTRY_OK);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_BEGIN, graph), GANTRY_E_ARG);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_BEGIN, other), GANTRY_E_ARG);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_END, other), GANTRY_E_ARG);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_END, graph), GANTRY_OK);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_END, graph), GANTRY_E_ARG);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_BEGIN, graph), GANTRY_E_ARG);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_RUN, graph), GANTRY_OK); /* of nothing */
	device.backend->mem_free(graph);
	device.backend->mem_free(other);
	end();
}
END_TEST

START_TEST(test_graph_is_no_deeper_and_no_larger_than_it_may_be)
{
	struct gantry_mem *graph, *mem;
	uint64_t handles[GANTRY_CUDA_GRAPH_MAX_CONDITIONS], value;

	begin();
	graph = new_graph();
	for (uint32_t i = 0; i < GANTRY_CUDA_GRAPH_MAX_CONDITIONS; i++)
		handles[i] = condition(graph, 0);
	ck_assert_int_lt(try_make(GANTRY_TEXTURE_CONDITION, 0, 0, graph, &mem, &value), 0);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_BEGIN, graph), GANTRY_OK);
	for (uint32_t i = 1; i < GANTRY_CUDA_GRAPH_MAX_DEPTH; i++) {
		ck_assert_int_eq(branch(graph, handles[i], GANTRY_CUDA_BRANCH_IF, 1), GANTRY_OK);
		ck_assert_int_eq(body(graph, 0), GANTRY_OK);
	}
	ck_assert_int_eq(branch(graph, handles[0], GANTRY_CUDA_BRANCH_SWITCH,
				GANTRY_CUDA_GRAPH_MAX_NODES - 40),
			 GANTRY_OK);
	ck_assert_int_eq(body(graph, 0), GANTRY_E_ARG);
	/* Freed so far inside. */
	for (int i = 0; i < 9; i++)
		ck_assert_int_eq(fill(graph, (struct gantry_range){ words, 0, 4 }, 1, 4),
				 GANTRY_OK);
	ck_assert_int_eq(fill(graph, (struct gantry_range){ words, 0, 4 }, 1, 4),
			 GANTRY_E_NO_MEMORY);
	device.backend->mem_free(graph);
	end();
}
END_TEST

START_TEST(test_graph_runs_no_more_when_an_image_of_its_is_gone)
{
	struct gantry_mem *graph;

	begin();
	graph = new_graph();
	here[0] = 2;
	build_while(graph);
	device.backend->image_unload(image);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_RUN, graph), GANTRY_E_NOT_FOUND);
	ck_assert_uint_eq(here[0], 2);
	image = NULL;
	device.backend->mem_free(graph);
	end();
}
END_TEST

START_TEST(test_graph_takes_launches_to_its_end_though_an_image_of_its_is_gone)
{
	static const char text[] = FAKECUDA_PTX(CUDA_KERNELS, "sm_90");
	struct gantry_mem *graph;
	uint64_t handle;

	begin();
	graph = new_graph();
	handle = condition(graph, 1);
	here[0] = 2;
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_BEGIN, graph), GANTRY_OK);
	ck_assert_int_eq(count(handle), GANTRY_OK);
	device.backend->image_unload(image);
	image = load(text, sizeof(text));
	count_down = launch_cmd(image, "count_down", "raw");
	(void)count(handle); /* taken or refused, it does not run */
	ck_assert_uint_eq(here[0], 2);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_END, graph), GANTRY_E_NOT_FOUND);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_RUN, graph), GANTRY_E_NOT_FOUND);
	ck_assert_uint_eq(here[0], 2);
	ck_assert_int_eq(count(handle), GANTRY_OK);
	ck_assert_uint_eq(here[0], 1);
	device.backend->mem_free(graph);
	end();
}
END_TEST

START_TEST(test_launches_that_a_graph_does_not_take_are_refused)
{
	struct gantry_mem *graph;
	struct gantry_cmd cmd;
	uint64_t params[2] = { 0 };

	begin();
	graph = new_graph();
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_BEGIN, graph), GANTRY_OK);
	cmd = launch_cmd(image, "step", "rw:u32*,u32");
	cmd.launch.args[0].range = (struct gantry_range){ words, 0, 4 };
	ck_assert_int_eq(run(&cmd).status, GANTRY_E_UNSUPPORTED);
	cmd = count_down;
	cmd.launch.raw = (const uint8_t *)params;
	cmd.launch.raw_bytes = 8;
	ck_assert_int_eq(run(&cmd).status, GANTRY_E_ARG);
	cmd.launch.raw_bytes = sizeof(params);
	cmd.launch.block[0] = UINT32_MAX;
	ck_assert_int_eq(run(&cmd).status, GANTRY_E_ARG);
	cmd.launch.block[0] = 1;
	cmd.launch.shared_bytes = UINT32_MAX;
	ck_assert_int_eq(run(&cmd).status, GANTRY_E_ARG);
	cmd.launch.shared_bytes = 0;
	cmd.launch.groups = GANTRY_TASK_TOGETHER;
	ck_assert_int_eq(run(&cmd).status, GANTRY_E_UNSUPPORTED);
	ck_assert_int_eq(plain(GANTRY_CUDA_GRAPH_END, graph), GANTRY_E_UNSUPPORTED);
	device.backend->mem_free(graph);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_graph");
	TCase *graph = gantry_unit_case(suite, "graphs");

	tcase_add_test(graph, test_graph_runs_its_body_while_the_condition_holds);
	tcase_add_test(graph, test_operands_of_nodes_are_checked_as_those_of_commands);
	tcase_add_test(graph, test_hostile_conditions_are_refused);
	tcase_add_test(graph, test_tasks_of_graphs_out_of_turn_are_refused);
	tcase_add_test(graph, test_graph_is_no_deeper_and_no_larger_than_it_may_be);
	tcase_add_test(graph, test_graph_runs_no_more_when_an_image_of_its_is_gone);
	tcase_add_test(graph, test_graph_takes_launches_to_its_end_though_an_image_of_its_is_gone);
	tcase_add_test(graph, test_launches_that_a_graph_does_not_take_are_refused);
	return gantry_unit_run(suite);
}
