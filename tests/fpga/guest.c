/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a session at $GANTRY_DOOR and says "ok ID". Then takes lines "vadd COUNT", "scale COUNT", "grid COUNT" or "gridded COUNT" (vadd with a grid) "huge COUNT" (grid, without end) or "wide COUNT" (grid, with a block larger than any), or
 * "find 0": vadd, kept; "start COUNT": launches of it, not waited for; "finish 0": waits for them, "before 0": for those of the start before; "held COUNT": both; "endless COUNT": vadd of fewer elements, which the test board may be told not to end. "queues COUNT", which opens so many more from standard input: so many launches of that kernel on
 * devices of kind fpga, whose result it checks. "chain COUNT": two buffers, each of which is scaled into the other so often; "more COUNT": on from there; "meddle COUNT": that many
 * launches of buffers that it writes all the while, itself and by another queue, and then one of what it has written last, which it checks. Answers "ok NUMBER-OF-WRONG-ELEMENTS" or "err STATUS SENTENCE". Ends when its input does.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "guest-shim/gantry.h"

#define N	  4096u
#define ENDLESS_N 100u

static struct gantry_session *session;
static gantry_queue queue;
static gantry_buffer buffers[3];
static int32_t values[3][N];

static int answer(int status, uint64_t value)
{
	if (status < 0)
		printf("err %d %s\n", status, gantry_last_error());
	else
		printf("ok %" PRIu64 "\n", value);
	return status;
}

static int open_session(void)
{
	const struct gantry_queue_options options = { .kind = GANTRY_KIND_FPGA };
	struct gantry_props props;
	int r = gantry_open(NULL, NULL, &session);

	if (r == 0)
		r = gantry_props_get(session, GANTRY_KIND_ANY, &props);
	if (r == 0)
		r = gantry_queue_open(session, &options, &queue);
	for (int i = 0; i < 3 && r == 0; i++)
		r = gantry_alloc(session, sizeof(values[i]), 0, &buffers[i]);
	return answer(r, r < 0 ? 0 : props.session_id);
}

static uint32_t grid[3], block[3]; /* of launches; zeroes: none */

static int submit(const char *kernel, const void *args, uint32_t args_bytes,
		  const struct gantry_access *access, uint32_t naccess, uint32_t count)
{
	struct gantry_task task = {
		.args = args, .args_bytes = args_bytes, .access = access, .naccess = naccess
	};
	gantry_ticket last;
	int r;

	memcpy(task.grid, grid, sizeof(task.grid));
	memcpy(task.block, block, sizeof(task.block));
	r = gantry_kernel_find(session, kernel, NULL, &task.kernel);

	for (uint32_t i = 0; i < count && r == 0; i++)
		r = gantry_submit(session, queue, &task, 1, &last);
	if (r == 0)
		r = gantry_wait(session, &last, 1, GANTRY_FOREVER);
	return r;
}

static int vadd(uint32_t count, uint64_t n)
{
	const struct {
		uint64_t a, b, c, n;
	} args = { .n = n };
	const struct gantry_access access[] = {
		{ .buffer = buffers[0], .mode = GANTRY_R, .arg_off = 0 },
		{ .buffer = buffers[1], .mode = GANTRY_R, .arg_off = 8 },
		{ .buffer = buffers[2], .mode = GANTRY_W, .arg_off = 16 },
	};

	return submit("board_vadd", &args, sizeof(args), access, 3, count);
}

static int scale(uint32_t count)
{
	const struct {
		uint64_t a, c;
		int32_t factor, pad;
		uint64_t n;
	} args = { .factor = -3, .n = N };
	const struct gantry_access access[] = {
		{ .buffer = buffers[0], .mode = GANTRY_R, .arg_off = 0 },
		{ .buffer = buffers[2], .mode = GANTRY_W, .arg_off = 8 },
	};

	return submit("board_scale", &args, sizeof(args), access, 2, count);
}

/* Of 64 x 4 blocks of 16 x 1. */
static int run_grid(uint32_t count, bool is_huge, bool is_wide, uint64_t *ret_wrong)
{
	const struct {
		uint64_t c;
		int32_t factor, pad;
	} args = { .factor = 7 };
	const struct gantry_access access[] = { { .buffer = buffers[2], .mode = GANTRY_W } };
	int r;

	grid[0] = 64, grid[1] = 4, grid[2] = 1;
	block[0] = 16, block[1] = 1, block[2] = 1;
	for (int i = 0; i < 3 && is_huge; i++)
		grid[i] = UINT32_MAX;
	if (is_wide)
		block[0] = 1u << 20, grid[0] = grid[1] = 1;
	r = submit("board_grid", &args, sizeof(args), access, 1, count);
	memset(grid, 0, sizeof(grid));
	memset(block, 0, sizeof(block));
	if (r == 0)
		r = gantry_read(session, buffers[2], 0, values[2], sizeof(values[2]));
	*ret_wrong = 0;
	for (uint32_t i = 0; i < N && r == 0; i++)
		*ret_wrong += values[2][i] != (int32_t)i * 7 + 16;
	return r;
}

static gantry_kernel held;
static gantry_ticket last_held, last_before; /* of the latest start, and of the one before */

/* Of the kernel that was found before. */
static int start(uint32_t count)
{
	const struct {
		uint64_t a, b, c, n;
	} args = { .n = N };
	const struct gantry_access access[] = {
		{ .buffer = buffers[0], .mode = GANTRY_R, .arg_off = 0 },
		{ .buffer = buffers[1], .mode = GANTRY_R, .arg_off = 8 },
		{ .buffer = buffers[2], .mode = GANTRY_W, .arg_off = 16 },
	};
	const struct gantry_task task = { .kernel = held,
					  .args = &args,
					  .args_bytes = sizeof(args),
					  .access = access,
					  .naccess = 3 };
	int r = 0;

	last_before = last_held;
	for (uint32_t i = 0; i < count && r == 0; i++)
		r = gantry_submit(session, queue, &task, 1, &last_held);
	return r;
}

/* true: @command is one of these, and *@ret_r what came of it. */
static bool run_held(const char *command, uint32_t count, int *ret_r)
{
	if (strcmp(command, "find") == 0)
		*ret_r = gantry_kernel_find(session, "board_vadd", NULL, &held);
	else if (strcmp(command, "start") == 0)
		*ret_r = start(count);
	else if (strcmp(command, "finish") == 0)
		*ret_r = gantry_wait(session, &last_held, 1, GANTRY_FOREVER);
	else if (strcmp(command, "before") == 0)
		*ret_r = gantry_wait(session, &last_before, 1, GANTRY_FOREVER);
	else if (strcmp(command, "held") == 0 && (*ret_r = start(count)) == 0)
		*ret_r = gantry_wait(session, &last_held, 1, GANTRY_FOREVER);
	else
		return strcmp(command, "held") == 0;
	return true;
}

/* ---- what may stay on the board ---- */

#define FACTOR 3u
#define AHEAD  8u

static uint32_t power; /* what has become of each element of buffer 0 */

static int scale_to(gantry_buffer from, gantry_buffer to, uint32_t count, gantry_ticket *ret_last)
{
	const struct {
		uint64_t a, c;
		int32_t factor, pad;
		uint64_t n;
	} args = { .factor = FACTOR, .n = N };
	const struct gantry_access access[] = {
		{ .buffer = from, .mode = GANTRY_R, .arg_off = 0 },
		{ .buffer = to, .mode = GANTRY_W, .arg_off = 8 },
	};
	struct gantry_task task = {
		.args = &args, .args_bytes = sizeof(args), .access = access, .naccess = 2
	};
	int r = gantry_kernel_find(session, "board_scale", NULL, &task.kernel);

	for (uint32_t i = 0; i < count && r == 0; i++)
		r = gantry_submit(session, queue, &task, 1, ret_last);
	return r;
}

static int check_scaled(gantry_buffer buffer, uint32_t by, uint64_t *ret_wrong)
{
	int r = gantry_read(session, buffer, 0, values[2], sizeof(values[2]));

	for (uint32_t i = 0; i < N && r == 0; i++)
		*ret_wrong += (uint32_t)values[2][i] != (uint32_t)values[0][i] * by;
	return r;
}

static int chain(uint32_t count, bool goes_on, uint64_t *ret_wrong)
{
	gantry_ticket last, tickets[AHEAD];
	int r = 0;

	if (!goes_on) {
		power = 1;
		for (uint32_t i = 0; i < N; i++)
			values[0][i] = (int32_t)(i * 2654435761u + 1);
		r = gantry_write(session, buffers[0], 0, values[0], sizeof(values[0]));
	}
	for (uint32_t i = 0; i < 2 * count && r == 0; i++) {
		r = scale_to(buffers[i % 2], buffers[1 - i % 2], 1, &last);
		/* As many as may be are under way; what became of each is looked at. */
		if (r == 0 && i >= AHEAD)
			r = gantry_wait(session, &tickets[i % AHEAD], 1, GANTRY_FOREVER);
		tickets[i % AHEAD] = last;
		power *= FACTOR;
	}
	for (uint32_t i = 0; i < 2 * count && i < AHEAD && r == 0; i++)
		r = gantry_wait(session, &tickets[i], 1, GANTRY_FOREVER);
	return r == 0 ? check_scaled(buffers[0], power, ret_wrong) : r;
}

/* One buffer is written by copies of no order with the launches, the other, which lies in memory of its own, as it likes. */
static int meddle(uint32_t count, uint64_t *ret_wrong)
{
	gantry_buffer mine;
	gantry_ticket last;
	int32_t *seen;
	void *ptr;
	int r = gantry_alloc(session, sizeof(values[0]), GANTRY_ALLOC_HOST, &mine);

	if (r == 0)
		r = gantry_map(session, mine, 0, sizeof(values[0]), GANTRY_RW, GANTRY_FOREVER,
			       &ptr);
	if (r < 0)
		return r;
	seen = ptr;
	for (uint32_t n = 0; n < count && r == 0; n++) {
		r = scale_to(n % 2 ? mine : buffers[0], buffers[1], 1, &last);
		for (uint32_t i = 0; i < N; i++)
			seen[i] = values[0][i] = (int32_t)(n * 40503u + i);
		if (r == 0)
			r = gantry_write(session, buffers[0], 0, values[0], sizeof(values[0]));
	}
	if (r == 0)
		r = gantry_wait(session, &last, 1, GANTRY_FOREVER);
	for (uint32_t n = 0; n < 2 && r == 0; n++) {
		r = scale_to(n ? mine : buffers[0], buffers[1], 1, &last);
		if (r == 0)
			r = gantry_wait(session, &last, 1, GANTRY_FOREVER);
		if (r == 0)
			r = check_scaled(buffers[1], FACTOR, ret_wrong);
	}
	if (r == 0)
		r = gantry_unmap(session, ptr);
	return r == 0 ? gantry_free(session, mine) : r;
}

static int open_queues(uint32_t count)
{
	const struct gantry_queue_options options = { .kind = GANTRY_KIND_FPGA };
	gantry_queue more;
	int r = 0;

	for (uint32_t i = 0; i < count && r == 0; i++)
		r = gantry_queue_open(session, &options, &more);
	return r;
}

static int run(const char *kernel, uint32_t count, uint64_t *ret_wrong)
{
	int is_vadd = strcmp(kernel, "scale") != 0;
	int r = 0;

	*ret_wrong = 0;
	if (run_held(kernel, count, &r))
		return r;
	if (strcmp(kernel, "chain") == 0 || strcmp(kernel, "more") == 0)
		return chain(count, strcmp(kernel, "more") == 0, ret_wrong);
	if (strcmp(kernel, "meddle") == 0)
		return meddle(count, ret_wrong);
	if (strcmp(kernel, "endless") == 0)
		return vadd(count, ENDLESS_N);
	if (strcmp(kernel, "queues") == 0)
		return open_queues(count);
	if (strcmp(kernel, "grid") == 0 || strcmp(kernel, "huge") == 0 ||
	    strcmp(kernel, "wide") == 0)
		return run_grid(count, strcmp(kernel, "huge") == 0, strcmp(kernel, "wide") == 0,
				ret_wrong);
	grid[0] = strcmp(kernel, "gridded") == 0 ? 2 : 0;

	for (uint32_t i = 0; i < N; i++) {
		values[0][i] = (int32_t)(i * 2654435761u);
		values[1][i] = (int32_t)(i * 40503u);
	}
	for (int i = 0; i < 2 && r == 0; i++)
		r = gantry_write(session, buffers[i], 0, values[i], sizeof(values[i]));
	if (r == 0)
		r = is_vadd ? vadd(count, N) : scale(count);
	if (r == 0)
		r = gantry_read(session, buffers[2], 0, values[2], sizeof(values[2]));
	*ret_wrong = 0;
	for (uint32_t i = 0; i < N && r == 0; i++) {
		uint32_t a = (uint32_t)values[0][i], b = (uint32_t)values[1][i];

		*ret_wrong += (uint32_t)values[2][i] != (is_vadd ? a + b : a * (uint32_t)-3);
	}
	return r;
}

int main(void)
{
	char line[64], kernel[32];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (open_session() < 0)
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		uint32_t count;
		uint64_t wrong = 0;
		int r;

		if (sscanf(line, "%31s %" SCNu32, kernel, &count) != 2)
			return 2;
		r = run(kernel, count, &wrong);
		(void)answer(r, wrong);
	}
	gantry_close(session);
	return 0;
}
