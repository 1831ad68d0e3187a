/* SPDX-License-Identifier: Apache-2.0 */
/* Host functions that run aside, over the fake driver: who waits for them, and who does not. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "devices/keep.h"
#include "devices/registry.h"
#include "tests/fakecuda/kernel.h"
#include "tests/unit/devices/cuda_aside.h"
#include "tests/unit/runner.h"

#define WAIT_NS (20 * GANTRY_NS_PER_S)
#define LONG_MS 60u
#define RED	((const void *)(uintptr_t)0x1000)
#define BLUE	((const void *)(uintptr_t)0x2000)

static struct gantry_err err;
static struct gantry_device device;
static struct gantry_image *image, *code;
static struct aside_state *state;
static void *module;
static uint32_t nwakes, noff, nback;
static struct gantry_signature sigs[8];
static unsigned int nsigs;

static void wake(void *cookie)
{
	(void)cookie;
	gantry_fetch_add(&nwakes, 1);
	(void)gantry_futex_wake(&nwakes, 1);
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	(void)tag;
	return 0;
}

static void off_device(void *cookie, uint64_t tag, bool off)
{
	(void)cookie;
	(void)tag;
	noff += off;
	nback += !off;
}

static const struct gantry_device_host host = { wake, cancelled, NULL, off_device };

static struct gantry_image *code_image(void)
{
	static const char text[] = FAKECUDA_PTX(CUDA_KERNELS, "sm_90");
	struct gantry_image *made;

	ck_assert_msg(device.backend->image_load(device.dev, NULL, text, sizeof(text), &made,
						 &err) == 0,
		      "%s", err.text);
	return made;
}

static void open_device(void)
{
	const char *opts[] = { "driver=" FAKE_DRIVER, "nvml=" FAKE_NVML, "filters=contract" };
	struct gantry_device_conf conf = {
		.name = "cuda0", .backend = "cuda", .opts = opts, .nopts = 3
	};

	ck_assert_msg(gantry_device_open(&conf, &host, &device, &err) == 0, "%s", err.text);
	ck_assert_int_eq(device.backend->thread_enter(device.dev, &err), 0);
	ck_assert_msg(device.backend->image_load(device.dev, ASIDE_MODULE, NULL, 0, &image, &err) ==
			      0,
		      "%s", err.text);
	code = code_image();
	module = dlopen(ASIDE_MODULE, RTLD_NOW | RTLD_LOCAL);
	ck_assert_ptr_nonnull(module);
	state = dlsym(module, "aside_state");
	ck_assert_ptr_nonnull(state);
	memset(state, 0, sizeof(*state));
}

static void close_device(void)
{
	gantry_device_close(&device);
	ck_assert_int_eq(dlclose(module), 0);
}

static struct gantry_stream *stream_of(const void *owner, bool is_alone)
{
	const struct gantry_stream_attr attr = { .owner = owner, .is_alone = is_alone };
	struct gantry_stream *made;

	ck_assert_msg(device.backend->stream_create(device.dev, &attr, &made, &err) == 0, "%s",
		      err.text);
	return made;
}

static struct gantry_stream *new_stream(const void *owner)
{
	return stream_of(owner, false);
}

static struct gantry_cmd launch_cmd(struct gantry_image *of, const char *name,
				    const char *signature)
{
	struct gantry_signature *sig = &sigs[nsigs++];
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH };

	ck_assert_int_eq(gantry_signature_parse(signature, sig, &err), 0);
	ck_assert_msg(device.backend->kernel_get(of, name, sig, &cmd.launch.kernel, &err) == 0,
		      "%s", err.text);
	for (unsigned int i = 0; i < 3; i++)
		cmd.launch.grid[i] = cmd.launch.block[i] = 1;
	cmd.launch.nargs = sig->nargs;
	return cmd;
}

static int submit(struct gantry_stream *stream, struct gantry_cmd *cmd, uint64_t tag)
{
	cmd->tag = tag;
	return device.backend->submit(stream, cmd);
}

static void wait_done(struct gantry_done *ret_done, unsigned int n)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)WAIT_NS);
	unsigned int count = 0;

	while (count < n) {
		count += device.backend->poll(device.dev, ret_done + count, n - count);
		ck_assert_msg(!gantry_deadline_passed(deadline), "only %u of %u ended", count, n);
	}
}

/* Polls until @word is @value, as what is told from poll() has to come there; nothing finishes meanwhile. */
static void wait_for(const uint32_t *word, uint32_t value)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)WAIT_NS);
	struct gantry_done done;

	while (gantry_load_acquire(word) != value) {
		ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 0);
		ck_assert_msg(!gantry_deadline_passed(deadline), "still %u",
			      gantry_load_relaxed(word));
	}
}

static void let_go(uint32_t n)
{
	(void)gantry_fetch_add(&state->ngo, n);
	(void)gantry_futex_wake(&state->ngo, INT32_MAX);
}

static struct gantry_mem *host_mem(void *base, uint64_t len)
{
	struct gantry_mem *mem;

	ck_assert_msg(device.backend->mem_host(device.dev, base, len, &mem, &err) == 0, "%s",
		      err.text);
	return mem;
}

/* ---- who waits ---- */

START_TEST(test_function_that_takes_long_holds_up_its_own_stream_only)
{
	struct gantry_stream *held, *free_one, *others;
	struct gantry_done done;

	open_device();
	struct gantry_cmd hold = launch_cmd(image, "hold", "void");
	struct gantry_cmd nap = launch_cmd(code, "nap", "u32");
	nap.launch.args[0].value.u32 = 0;
	held = new_stream(RED);
	free_one = new_stream(RED);
	others = new_stream(BLUE);
	ck_assert_int_eq(submit(held, &hold, 1), 0);
	wait_for(&state->nwaiting, 1);
	for (unsigned int i = 0; i < 20; i++) {
		ck_assert_int_eq(submit(i % 2 ? free_one : others, &nap, 100 + i), 0);
		wait_done(&done, 1);
		ck_assert_uint_eq(done.tag, 100 + i);
		ck_assert_int_eq(done.status, GANTRY_OK);
	}
	/* Its own stream says: later. */
	ck_assert_int_eq(submit(held, &nap, 2), -EAGAIN);
	let_go(1);
	wait_done(&done, 1);
	ck_assert_uint_eq(done.tag, 1);
	ck_assert_int_eq(done.status, GANTRY_OK);
	ck_assert_int_eq(submit(held, &nap, 2), 0);
	wait_done(&done, 1);
	ck_assert_uint_eq(done.tag, 2);
	close_device();
}
END_TEST

START_TEST(test_functions_of_a_session_run_one_by_one_and_sessions_beside_each_other)
{
	struct gantry_stream *red[2], *blue;
	struct gantry_done done[3];

	open_device();
	struct gantry_cmd hold = launch_cmd(image, "hold", "void");
	red[0] = new_stream(RED);
	red[1] = new_stream(RED);
	blue = new_stream(BLUE);
	ck_assert_int_eq(submit(red[0], &hold, 1), 0);
	wait_for(&state->nwaiting, 1);
	ck_assert_int_eq(submit(red[1], &hold, 2), 0);
	ck_assert_int_eq(submit(blue, &hold, 3), 0);
	wait_for(&state->nwaiting, 2);
	/* The second of the same session has not begun: the other session's is the one that did. */
	ck_assert_uint_eq(gantry_load_relaxed(&state->nentered), 2);
	let_go(1);
	wait_done(done, 1);
	ck_assert_uint_eq(done[0].tag, 1);
	wait_for(&state->nentered, 3);
	let_go(2);
	wait_done(done, 2);
	ck_assert_uint_eq(done[0].tag + done[1].tag, 5);
	close_device();
}
END_TEST

START_TEST(test_what_a_function_enqueues_lies_between_its_neighbours)
{
	uint32_t seen[2][64];
	struct gantry_stream *stream;
	struct gantry_done done;
	struct gantry_mem *memory, *copies;

	open_device();
	ck_assert_int_eq(device.backend->mem_alloc(device.dev, 256, &memory, &err), 0);
	copies = host_mem(seen, sizeof(seen));
	struct gantry_cmd paint = launch_cmd(image, "paint", "w:u32*,u32");
	struct gantry_cmd nap = launch_cmd(code, "nap", "u32");
	struct gantry_cmd fill = { .kind = GANTRY_CMD_FILL,
				   .fill = { { memory, 0, 256 }, 0x11111111, 4 } };
	struct gantry_cmd copy = { .kind = GANTRY_CMD_COPY,
				   .copy = { { copies, 0, 256 }, { memory, 0, 256 } } };

	paint.launch.args[0].range = (struct gantry_range){ memory, 0, 256 };
	paint.launch.args[1].value.u32 = 0x22222222;
	nap.launch.args[0].value.u32 = 20;
	stream = new_stream(RED);
	struct gantry_cmd *const row[] = { &nap, &fill, &paint, &copy, &fill };
	for (unsigned int i = 0; i < 5; i++) {
		/* Nothing ends before the nap does, but the function may be at work. */
		while (submit(stream, row[i], i) == -EAGAIN)
			if (device.backend->poll(device.dev, &done, 1) == 1)
				ck_assert_uint_lt(done.tag, i);
	}
	do
		wait_done(&done, 1);
	while (done.tag != 4);
	for (unsigned int i = 0; i < 64; i++)
		ck_assert_uint_eq(seen[0][i], 0x22222222);
	copy.copy.dst.off = 256;
	ck_assert_int_eq(submit(stream, &copy, 9), 0);
	wait_done(&done, 1);
	for (unsigned int i = 0; i < 64; i++)
		ck_assert_uint_eq(seen[1][i], 0x11111111);
	close_device();
}
END_TEST

/* Until the device thread has been woken since @before. */
static void wait_for_wake(uint32_t before)
{
	while (gantry_load_acquire(&nwakes) == before)
		ck_assert_int_ne(gantry_futex_wait(&nwakes, before,
						   gantry_deadline_ns((int64_t)WAIT_NS)),
				 -ETIMEDOUT);
}

START_TEST(test_end_of_a_function_wakes_whoever_does_not_poll)
{
	struct gantry_stream *stream;
	struct gantry_done done;
	uint32_t before;

	open_device();
	struct gantry_cmd hold = launch_cmd(image, "hold", "void");
	stream = new_stream(RED);
	ck_assert_int_eq(submit(stream, &hold, 1), 0);
	wait_for(&state->nwaiting, 1);
	before = gantry_load_acquire(&nwakes);
	let_go(1);
	wait_for_wake(before);
	wait_done(&done, 1);
	close_device();
}
END_TEST

/* Whoever comes late to look makes nothing of what was there before: estimates hold further calls back. */
START_TEST(test_function_that_leaves_nothing_on_the_device_has_no_time_of_it)
{
	struct gantry_stream *stream;
	struct gantry_done done;
	uint32_t before;
	uint64_t late;

	open_device();
	struct gantry_cmd hold = launch_cmd(image, "hold", "void");
	stream = new_stream(RED);
	ck_assert_int_eq(submit(stream, &hold, 1), 0);
	wait_for(&state->nwaiting, 1);
	before = gantry_load_acquire(&nwakes);
	let_go(1);
	wait_for_wake(before);
	/* The round that sees it ended; what it told the device is told back later. */
	if (device.backend->poll(device.dev, &done, 1) == 0) {
		late = gantry_deadline_ns((int64_t)LONG_MS * (int64_t)GANTRY_NS_PER_MS);
		while (!gantry_deadline_passed(late))
			gantry_cpu_relax();
		wait_done(&done, 1);
	}
	ck_assert_uint_eq(done.tag, 1);
	ck_assert_uint_gt(done.device_ns, 0);
	ck_assert_uint_lt(done.device_ns, GANTRY_NS_PER_US);
	close_device();
}
END_TEST

static void wait_without_poll(const uint32_t *word, uint32_t value)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)WAIT_NS);

	while (gantry_load_acquire(word) != value)
		ck_assert(!gantry_deadline_passed(deadline));
}

/* Whoever submits has counted the new command already, and would take the call for another one than the newest. */
START_TEST(test_core_hears_from_poll_alone_that_a_function_takes_long)
{
	struct gantry_stream *stream;
	struct gantry_done done;
	uint64_t long_since;

	open_device();
	struct gantry_cmd hold = launch_cmd(image, "hold", "void");
	stream = new_stream(RED);
	ck_assert_int_eq(submit(stream, &hold, 1), 0);
	wait_without_poll(&state->nwaiting, 1);
	long_since = gantry_deadline_ns(5 * (int64_t)GANTRY_NS_PER_MS);
	while (!gantry_deadline_passed(long_since))
		gantry_cpu_relax();
	ck_assert_int_eq(submit(stream, &hold, 2), -EAGAIN);
	ck_assert_uint_eq(noff, 0);
	ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 0);
	ck_assert_uint_eq(noff, 1);
	let_go(1);
	wait_done(&done, 1);
	ck_assert_uint_eq(nback, 1);
	close_device();
}
END_TEST

/* It runs when the memory of whoever submitted it is another command's. */
START_TEST(test_function_aside_takes_no_arguments_that_are_places)
{
	static const char *const texts[] = { "b16", "u32,b8" };
	struct gantry_signature sig;
	struct gantry_kernel *kernel = NULL;

	open_device();
	for (unsigned int i = 0; i < 2; i++) {
		ck_assert_int_eq(gantry_signature_parse_own(texts[i], &sig, &err), 0);
		ck_assert_int_eq(device.backend->kernel_get(image, "hold", &sig, &kernel, &err),
				 -EINVAL);
		ck_assert_ptr_null(kernel);
	}
	close_device();
}
END_TEST

/* ---- which need no thread ---- */

START_TEST(test_quick_function_runs_where_it_is_submitted)
{
	struct gantry_stream *stream;
	struct gantry_done done;

	open_device();
	struct gantry_cmd hold = launch_cmd(image, "hold", "void");
	state->is_quick = 1;
	stream = stream_of(RED, true);
	let_go(8);
	for (unsigned int i = 0; i < 8; i++) {
		ck_assert_int_eq(submit(stream, &hold, i), 0);
		/* Without any poll(): the stream takes the next at once. */
		ck_assert_uint_eq(gantry_load_relaxed(&state->nentered), i + 1);
	}
	for (unsigned int i = 0; i < 8; i++) {
		wait_done(&done, 1);
		ck_assert_uint_eq(done.tag, i);
		ck_assert_int_eq(done.status, GANTRY_OK);
	}
	close_device();
}
END_TEST

/* The session cannot take along what such a module has of it, and is to be told so. */
START_TEST(test_module_with_things_of_a_session_that_writes_nothing_down_bars_it)
{
	static union {
		struct gantry_keep_head head;
		uint8_t bytes[4096];
	} memory[2];
	struct gantry_done done;

	open_device();
	struct gantry_cmd hold = launch_cmd(image, "hold", "void");
	state->is_quick = _i == 1;
	let_go(2);
	memory[1].head.writer = 7; /* somebody does */
	for (unsigned int i = 0; i < 2; i++) {
		const struct gantry_keep keep = { .base = &memory[i], .bytes = sizeof(memory[i]) };
		const struct gantry_stream_attr attr = { .owner = i ? RED : BLUE,
							 .is_alone = true,
							 .keep = &keep };
		struct gantry_stream *stream;

		ck_assert_int_eq(device.backend->stream_create(device.dev, &attr, &stream, &err),
				 0);
		ck_assert_uint_eq(memory[i].head.barred, 0);
		ck_assert_int_eq(submit(stream, &hold, i), 0);
		wait_done(&done, 1);
		ck_assert_uint_eq(memory[i].head.barred, i == 0);
		ck_assert_str_eq(memory[i].head.why,
				 i == 0 ? "an installed module that writes nothing down" : "");
		device.backend->stream_destroy(stream);
	}
	close_device();
}
END_TEST

START_TEST(test_quick_function_waits_for_a_slow_one_of_its_session)
{
	struct gantry_stream *slow, *quick;
	struct gantry_done done[2];

	open_device();
	struct gantry_cmd hold = launch_cmd(image, "hold", "void");
	slow = stream_of(RED, true);
	quick = stream_of(RED, true);
	ck_assert_int_eq(submit(slow, &hold, 1), 0);
	wait_for(&state->nwaiting, 1);
	state->is_quick = 1;
	/* The table that both use is the other thread's now. */
	ck_assert_int_eq(submit(quick, &hold, 2), 0);
	ck_assert_uint_eq(gantry_load_relaxed(&state->nentered), 1);
	let_go(2);
	wait_done(done, 2);
	ck_assert_uint_eq(gantry_load_relaxed(&state->nentered), 2);
	close_device();
}
END_TEST

START_TEST(test_quick_function_beside_other_sessions_runs_aside)
{
	struct gantry_stream *stream;
	struct gantry_done done;

	open_device();
	struct gantry_cmd hold = launch_cmd(image, "hold", "void");
	state->is_quick = 1;
	stream = new_stream(RED);
	/* On this thread it would never come back. */
	ck_assert_int_eq(submit(stream, &hold, 1), 0);
	wait_for(&state->nwaiting, 1);
	let_go(1);
	wait_done(&done, 1);
	close_device();
}
END_TEST

START_TEST(test_quick_function_that_fails_hurts_its_command_only)
{
	struct gantry_stream *stream;
	struct gantry_done done;

	open_device();
	struct gantry_cmd result = launch_cmd(image, "result", "i32");
	state->is_quick = 1;
	stream = stream_of(RED, true);
	result.launch.args[0].value.i32 = -EINVAL;
	ck_assert_int_eq(submit(stream, &result, 1), 0);
	wait_done(&done, 1);
	ck_assert_int_eq(done.status, GANTRY_E_KERNEL);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	result.launch.args[0].value.i32 = 0;
	ck_assert_int_eq(submit(stream, &result, 2), 0);
	wait_done(&done, 1);
	ck_assert_int_eq(done.status, GANTRY_OK);
	close_device();
}
END_TEST

/* ---- what it costs ---- */

START_TEST(test_time_on_the_host_is_no_device_time_and_the_core_hears_of_it)
{
	const struct timespec nap = { .tv_nsec = LONG_MS * 1000000l };
	struct gantry_stream *stream;
	struct gantry_done done;
	uint64_t released_ns;

	open_device();
	struct gantry_cmd hold = launch_cmd(image, "hold", "void");
	stream = new_stream(RED);
	noff = nback = 0;
	ck_assert_int_eq(submit(stream, &hold, 1), 0);
	wait_for(&noff, 1);
	(void)nanosleep(&nap, NULL); /* this is what shall not be counted */
	ck_assert_uint_eq(nback, 0);
	released_ns = gantry_now_ns();
	let_go(1);
	wait_done(&done, 1);
	ck_assert_uint_eq(noff, 1);
	ck_assert_uint_eq(nback, 1);
	/* Not a moment of what came before that. */
	ck_assert_uint_le(done.device_ns, gantry_now_ns() - released_ns);
	close_device();
}
END_TEST

/* ---- how it ends ---- */

START_TEST(test_function_that_fails_hurts_its_command_only)
{
	static const struct {
		int32_t returned, status;
	} cases[] = { { -EINVAL, GANTRY_E_KERNEL },
		      { -ECANCELED, GANTRY_E_CANCELLED },
		      { 0, GANTRY_OK } };
	struct gantry_stream *stream;
	struct gantry_done done;

	open_device();
	struct gantry_cmd result = launch_cmd(image, "result", "i32");
	stream = new_stream(RED);
	for (unsigned int i = 0; i < 3; i++) {
		result.launch.args[0].value.i32 = cases[i].returned;
		ck_assert_int_eq(submit(stream, &result, i), 0);
		wait_done(&done, 1);
		ck_assert_int_eq(done.status, cases[i].status);
		ck_assert_uint_eq(done.blast,
				  cases[i].returned ? GANTRY_BLAST_CMD : GANTRY_BLAST_NONE);
	}
	close_device();
}
END_TEST

START_TEST(test_function_is_offered_what_module_h_says)
{
	unsigned char bytes[256] = { 0 };
	struct gantry_stream *stream;
	struct gantry_done done;

	open_device();
	struct gantry_cmd offer = launch_cmd(image, "offer", "rw:u8*");
	offer.launch.args[0].range = (struct gantry_range){ host_mem(bytes, sizeof(bytes)), 0,
							    sizeof(bytes) };
	stream = new_stream(RED);
	ck_assert_int_eq(submit(stream, &offer, 1), 0);
	wait_done(&done, 1);
	ck_assert_int_eq(done.status, GANTRY_OK);
	ck_assert_uint_eq(state->refused, 7);
	ck_assert_uint_eq(state->here, 7);
	ck_assert_uint_eq(bytes[255], 0x5a);
	close_device();
}
END_TEST

/* Memory that goes and comes between two runs is seen as it is then. */
START_TEST(test_functions_see_memory_that_came_later)
{
	unsigned char bytes[2][64] = { 0 };
	struct gantry_stream *stream;
	struct gantry_mem *first;
	struct gantry_done done;

	open_device();
	struct gantry_cmd offer = launch_cmd(image, "offer", "rw:u8*");
	stream = new_stream(RED);
	first = host_mem(bytes[0], 64);
	for (unsigned int i = 0; i < 2; i++) {
		offer.launch.args[0].range =
			(struct gantry_range){ i ? host_mem(bytes[1], 64) : first, 0, 64 };
		ck_assert_int_eq(submit(stream, &offer, i), 0);
		wait_done(&done, 1);
		ck_assert_uint_eq(bytes[i][0], 0x5a);
		if (i == 0)
			device.backend->mem_free(first);
	}
	close_device();
}
END_TEST

START_TEST(test_who_leaves_is_cleaned_up_after_and_nobody_else)
{
	struct gantry_stream *red, *blue;
	struct gantry_done done;
	uint64_t who[2];

	open_device();
	struct gantry_cmd hold = launch_cmd(image, "hold", "void");
	red = new_stream(RED);
	blue = new_stream(BLUE);
	let_go(3);
	ck_assert_int_eq(submit(red, &hold, 1), 0);
	wait_done(&done, 1);
	who[0] = gantry_load_relaxed(&state->last);
	ck_assert_int_eq(submit(blue, &hold, 2), 0);
	wait_done(&done, 1);
	who[1] = gantry_load_relaxed(&state->last);
	ck_assert_uint_ne(who[0], who[1]);
	device.backend->stream_destroy(red);
	device.backend->owner_left(device.dev, RED);
	wait_for(&state->nleft, 1);
	ck_assert_uint_eq(state->owners[0], who[0]);
	/* Nobody of that name has anything any more; one who comes is another. */
	device.backend->owner_left(device.dev, RED);
	red = new_stream(RED);
	ck_assert_int_eq(submit(red, &hold, 3), 0);
	wait_done(&done, 1);
	ck_assert_uint_ne(gantry_load_relaxed(&state->last), who[0]);
	ck_assert_uint_eq(gantry_load_relaxed(&state->nleft), 1);
	/* The module goes: both are told before. */
	device.backend->image_unload(image);
	ck_assert_uint_eq(gantry_load_relaxed(&state->nleft), 3);
	ck_assert_uint_eq(state->nlost, 0);
	close_device();
}
END_TEST

START_TEST(test_fault_beside_a_function_waits_for_it)
{
	struct gantry_stream *held, *other;
	struct gantry_done done;

	open_device();
	struct gantry_cmd hold = launch_cmd(image, "hold", "void");
	struct gantry_cmd fault = launch_cmd(code, "fault", "void");
	held = new_stream(RED);
	other = new_stream(BLUE);
	ck_assert_int_eq(submit(held, &hold, 1), 0);
	wait_for(&state->nwaiting, 1);
	ck_assert_int_eq(submit(other, &fault, 2), 0);
	wait_done(&done, 1);
	ck_assert_uint_eq(done.tag, 2);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CONTEXT);
	let_go(1);
	wait_done(&done, 1);
	ck_assert_uint_eq(done.tag, 1);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CONTEXT);
	/* As a worker does: what the driver holds of a context that is broken goes with the process. */
	gantry_device_close(&device);
	_exit(0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("devices/cuda/aside");
	TCase *tc = gantry_unit_case(suite, "aside");

	tcase_add_test(tc, test_function_that_takes_long_holds_up_its_own_stream_only);
	tcase_add_test(tc,
		       test_functions_of_a_session_run_one_by_one_and_sessions_beside_each_other);
	tcase_add_test(tc, test_what_a_function_enqueues_lies_between_its_neighbours);
	tcase_add_test(tc, test_end_of_a_function_wakes_whoever_does_not_poll);
	tcase_add_test(tc, test_function_that_leaves_nothing_on_the_device_has_no_time_of_it);
	tcase_add_test(tc, test_core_hears_from_poll_alone_that_a_function_takes_long);
	tcase_add_test(tc, test_function_aside_takes_no_arguments_that_are_places);
	tcase_add_test(tc, test_quick_function_runs_where_it_is_submitted);
	tcase_add_test(tc, test_quick_function_waits_for_a_slow_one_of_its_session);
	tcase_add_loop_test(
		tc, test_module_with_things_of_a_session_that_writes_nothing_down_bars_it, 0, 2);
	tcase_add_test(tc, test_quick_function_beside_other_sessions_runs_aside);
	tcase_add_test(tc, test_quick_function_that_fails_hurts_its_command_only);
	tcase_add_test(tc, test_time_on_the_host_is_no_device_time_and_the_core_hears_of_it);
	tcase_add_test(tc, test_function_that_fails_hurts_its_command_only);
	tcase_add_test(tc, test_function_is_offered_what_module_h_says);
	tcase_add_test(tc, test_functions_see_memory_that_came_later);
	tcase_add_test(tc, test_who_leaves_is_cleaned_up_after_and_nobody_else);
	tcase_add_test(tc, test_fault_beside_a_function_waits_for_it);
	return gantry_unit_run(suite);
}
