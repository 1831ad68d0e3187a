/* SPDX-License-Identifier: Apache-2.0 */
/* The road of a task, end to end in one process: see inproc.h. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest-shim/device.h"
#include "guest-shim/session.h"
#include "tests/inproc/inproc.h"
#include "tests/unit/runner.h"

static const char *const one_cpu[] = { "cpu cores=1" };
static const char *const two_cpus[] = { "cpu cores=1", "cpu cores=1" };
static const char *const wide_cpu[] = { "cpu cores=2" };

struct fixture {
	struct inproc_host *h;
	struct gantry_session *s;
	gantry_queue q;
	uint32_t index;
};

static struct fixture setup(const char *const *devices, uint32_t n)
{
	struct fixture f = { .h = inproc_start(devices, n) };

	ck_assert_int_eq(inproc_open(f.h, NULL, &f.s, &f.index), GANTRY_OK);
	ck_assert_int_eq(gantry_queue_open(f.s, NULL, &f.q), GANTRY_OK);
	return f;
}

static void teardown(struct fixture *f)
{
	gantry_close(f->s);
	inproc_stop(f->h);
}

static gantry_kernel find(struct fixture *f, const char *name)
{
	gantry_kernel k = 0;

	ck_assert_msg(gantry_kernel_find(f->s, name, NULL, &k) == GANTRY_OK, "%s: %s", name,
		      gantry_last_error());
	return k;
}

struct saxpy_args {
	float a;
	uint32_t pad;
	uint64_t x;
	uint64_t y;
	uint64_t n;
};

static void run_saxpy(struct fixture *f, unsigned flags)
{
	enum {
		N = 1000
	};
	gantry_kernel k = find(f, "saxpy");
	gantry_buffer x, y;
	float in[N], out[N];
	struct saxpy_args args = { .a = 2, .n = N };
	struct gantry_access acc[2] = { { .mode = GANTRY_R, .arg_off = 8 },
					{ .mode = GANTRY_RW, .arg_off = 16 } };
	struct gantry_task task = {
		.kernel = k, .args = &args, .args_bytes = sizeof(args), .access = acc, .naccess = 2
	};
	gantry_ticket t;

	ck_assert_int_eq(gantry_alloc(f->s, sizeof(in), flags, &x), GANTRY_OK);
	ck_assert_int_eq(gantry_alloc(f->s, sizeof(in), flags, &y), GANTRY_OK);
	for (int i = 0; i < N; i++)
		in[i] = (float)i;
	ck_assert_int_eq(gantry_write(f->s, x, 0, in, sizeof(in)), GANTRY_OK);
	ck_assert_int_eq(gantry_write(f->s, y, 0, in, sizeof(in)), GANTRY_OK);
	acc[0].buffer = x;
	acc[1].buffer = y;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(gantry_submit(f->s, f->q, &task, 1, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f->s, &t, 1, 5000000000), GANTRY_OK);
	ck_assert_int_eq(gantry_read(f->s, y, 0, out, sizeof(out)), GANTRY_OK);
	for (int i = 0; i < N; i++)
		ck_assert_float_eq(out[i], (float)i * 7);
	ck_assert_int_eq(gantry_free(f->s, x), GANTRY_OK);
	ck_assert_int_eq(gantry_free(f->s, y), GANTRY_OK);
}

START_TEST(test_road_saxpy_on_host_buffers)
{
	struct fixture f = setup(one_cpu, 1);

	run_saxpy(&f, GANTRY_ALLOC_HOST);
	teardown(&f);
}
END_TEST

START_TEST(test_road_saxpy_on_device_buffers)
{
	struct fixture f = setup(one_cpu, 1);

	run_saxpy(&f, GANTRY_ALLOC_DEVICE);
	teardown(&f);
}
END_TEST

START_TEST(test_road_saxpy_on_lanes_and_two_devices)
{
	struct fixture f = setup(wide_cpu, 1);

	run_saxpy(&f, GANTRY_ALLOC_DEVICE);
	teardown(&f);
	f = setup(two_cpus, 2);
	run_saxpy(&f, GANTRY_ALLOC_DEVICE);
	teardown(&f);
}
END_TEST

/* Five buffers and their arguments are more than fits beside a descriptor: they travel through the heap. */
START_TEST(test_road_black_scholes_with_arguments_in_the_heap)
{
	enum {
		N = 100
	};
	struct fixture f = setup(one_cpu, 1);
	struct {
		uint64_t buf[5], n;
		float rate, volatility;
	} args = { .n = N, .rate = 0.08f, .volatility = 0.3f };
	struct gantry_access acc[5];
	struct gantry_task task = { .kernel = find(&f, "black_scholes_book"),
				    .args = &args,
				    .args_bytes = sizeof(args),
				    .access = acc,
				    .naccess = 5 };
	float values[N], call[N];
	gantry_ticket t;

	for (int i = 0; i < N; i++)
		values[i] = 60;
	for (int i = 0; i < 5; i++) {
		acc[i] = (struct gantry_access){ .mode = i < 3 ? GANTRY_R : GANTRY_W,
						 .arg_off = (uint16_t)(8 * i) };
		ck_assert_int_eq(gantry_alloc(f.s, sizeof(values), 0, &acc[i].buffer), GANTRY_OK);
		if (i == 2)
			for (int k = 0; k < N; k++)
				values[k] = 1;
		ck_assert_int_eq(gantry_write(f.s, acc[i].buffer, 0, values, sizeof(values)),
				 GANTRY_OK);
	}
	for (int i = 0; i < 600; i++) /* over the ring's end, with records given back */
		ck_assert_int_eq(gantry_submit(f.s, f.q, &task, 1, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 5000000000), GANTRY_OK);
	ck_assert_int_eq(gantry_read(f.s, acc[3].buffer, 0, call, sizeof(call)), GANTRY_OK);
	ck_assert_float_eq_tol(call[N - 1], 9.426783f, 0.001f);
	teardown(&f);
}
END_TEST

/* Reading and writing a buffer wait for the tasks that use it, on whatever queues, and for no others. */
START_TEST(test_road_access_waits_for_the_buffers_own_tasks)
{
	struct fixture f = setup(two_cpus, 2);
	uint64_t ns = 300000000, n = 1000;
	uint32_t word[1000] = { 0 };
	struct {
		uint64_t buf, n;
		uint32_t value, pad;
	} args = { .n = n, .value = 7 };
	struct gantry_access acc = { .mode = GANTRY_W };
	struct gantry_task slow = { .kernel = find(&f, "spin"), .args = &ns, .args_bytes = 8 };
	struct gantry_task fill = { .kernel = find(&f, "fill"),
				    .args = &args,
				    .args_bytes = sizeof(args),
				    .access = &acc,
				    .naccess = 1 };
	struct gantry_queue_options other = { .device_mask = 2 };
	gantry_buffer unused, used;
	gantry_ticket t, t2;
	gantry_queue q2;

	ck_assert_int_eq(gantry_queue_set(f.s, f.q, GANTRY_QUEUE_DEVICE_MASK, 1), GANTRY_OK);
	ck_assert_int_eq(gantry_queue_open(f.s, &other, &q2), GANTRY_OK);
	for (unsigned flags = GANTRY_ALLOC_HOST; flags <= GANTRY_ALLOC_DEVICE; flags++) {
		ck_assert_int_eq(gantry_alloc(f.s, sizeof(word), flags, &unused), GANTRY_OK);
		ck_assert_int_eq(gantry_alloc(f.s, sizeof(word), flags, &used), GANTRY_OK);
		acc.buffer = used;
		ck_assert_int_eq(gantry_submit(f.s, q2, &fill, 1, &t2), GANTRY_OK);
		ck_assert_int_eq(gantry_submit(f.s, f.q, &slow, 1, NULL), GANTRY_OK);
		ck_assert_int_eq(gantry_submit(f.s, f.q, &fill, 1, &t), GANTRY_OK);
		if (flags == GANTRY_ALLOC_HOST) { /* a copied one needs the device, which is busy */
			ck_assert_int_eq(gantry_write(f.s, unused, 0, word, sizeof(word)),
					 GANTRY_OK);
			ck_assert_int_eq(gantry_test(f.s, t), 0);
		}
		ck_assert_int_eq(gantry_read(f.s, used, 0, word, sizeof(word)), GANTRY_OK);
		ck_assert_int_eq(gantry_test(f.s, t), 1);
		ck_assert_int_eq(gantry_test(f.s, t2), 1);
		ck_assert_uint_eq(word[999], 7);
	}
	teardown(&f);
}
END_TEST

/* One core runs kernels on the device thread; its sessions' control operations are answered all the same. */
START_TEST(test_road_control_operations_do_not_wait_for_a_long_kernel)
{
	struct fixture f = setup(one_cpu, 1);
	struct fixture g = { .h = f.h };
	uint64_t ns = 1000000000; /* of processor time: more on a busy machine */
	struct gantry_task slow = { .kernel = find(&f, "spin"), .args = &ns, .args_bytes = 8 };
	struct gantry_props props;
	gantry_buffer b;
	gantry_ticket t;

	ck_assert_int_eq(gantry_submit(f.s, f.q, &slow, 1, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 20000000), GANTRY_E_TIMEOUT); /* it runs by now */
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(gantry_alloc(f.s, 4096, GANTRY_ALLOC_DEVICE, &b), GANTRY_OK);
		ck_assert_int_eq(gantry_free(f.s, b), GANTRY_OK);
	}
	/* A session that comes meanwhile, as in a pooled worker. */
	ck_assert_int_eq(inproc_open(g.h, NULL, &g.s, &g.index), GANTRY_OK);
	ck_assert_int_eq(gantry_queue_open(g.s, NULL, &g.q), GANTRY_OK);
	ck_assert_int_eq(gantry_props_get(g.s, GANTRY_KIND_ANY, &props), GANTRY_OK);
	ck_assert_int_eq(gantry_test(f.s, t), 0);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 10000000000), GANTRY_OK);
	/* And the device thread serves them again. */
	ck_assert_int_eq(gantry_alloc(f.s, 4096, GANTRY_ALLOC_DEVICE, &b), GANTRY_OK);
	gantry_close(g.s);
	teardown(&f);
}
END_TEST

START_TEST(test_road_many_empty_tasks_finish_in_order)
{
	struct fixture f = setup(one_cpu, 1);
	struct gantry_task task[64] = { { .kernel = find(&f, "empty") } };
	gantry_ticket t = 0;

	for (int i = 1; i < 64; i++)
		task[i] = task[0];
	for (int i = 0; i < 500; i++)
		ck_assert_int_eq(gantry_submit(f.s, f.q, task, 64, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 5000000000), GANTRY_OK);
	ck_assert_uint_eq(GANTRY_TICKET_SEQ(t), 64 * 500);
	teardown(&f);
}
END_TEST

START_TEST(test_road_failures_have_statuses_by_ticket)
{
	struct fixture f = setup(one_cpu, 1);
	gantry_kernel fail = find(&f, "fail");
	int32_t args[2] = { -22, 0 };
	struct gantry_task bad = { .kernel = fail, .args = args, .args_bytes = 8 };
	struct gantry_task good = { .kernel = find(&f, "empty") };
	gantry_ticket tb, tg;

	ck_assert_int_eq(gantry_submit(f.s, f.q, &bad, 1, &tb), GANTRY_OK);
	ck_assert_int_eq(gantry_submit(f.s, f.q, &good, 1, &tg), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &tg, 1, 5000000000), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &tb, 1, 5000000000), GANTRY_E_KERNEL);
	ck_assert_int_eq(gantry_wait(f.s, &tb, 1, 0), GANTRY_E_KERNEL);
	teardown(&f);
}
END_TEST

START_TEST(test_road_tickets_order_two_queues)
{
	struct fixture f = setup(two_cpus, 2);
	gantry_queue q2;
	struct gantry_queue_options other = { .device_mask = 2 };
	gantry_kernel spin = find(&f, "spin");
	uint64_t ns = 20000000;
	struct gantry_task slow = { .kernel = spin, .args = &ns, .args_bytes = 8 };
	gantry_ticket first, second;
	struct gantry_task after = { .kernel = find(&f, "empty"), .after = &first, .nafter = 1 };

	ck_assert_int_eq(gantry_queue_open(f.s, &other, &q2), GANTRY_OK);
	ck_assert_int_eq(gantry_submit(f.s, f.q, &slow, 1, &first), GANTRY_OK);
	ck_assert_int_eq(gantry_submit(f.s, q2, &after, 1, &second), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &second, 1, 5000000000), GANTRY_OK);
	ck_assert_int_eq(gantry_test(f.s, first), 1);
	ck_assert_int_eq(gantry_queue_close(f.s, q2), GANTRY_OK);
	teardown(&f);
}
END_TEST

START_TEST(test_road_two_sessions_share_one_device)
{
	struct fixture f = setup(one_cpu, 1);
	struct fixture g = { .h = f.h };
	uint64_t ns = 200000;

	ck_assert_int_eq(inproc_open(f.h, NULL, &g.s, &g.index), GANTRY_OK);
	ck_assert_int_eq(gantry_queue_open(g.s, NULL, &g.q), GANTRY_OK);
	struct gantry_task tf = { .kernel = find(&f, "spin"), .args = &ns, .args_bytes = 8 };
	struct gantry_task tg = { .kernel = find(&g, "spin"), .args = &ns, .args_bytes = 8 };
	gantry_ticket a, b;

	for (int i = 0; i < 200; i++) {
		ck_assert_int_eq(gantry_submit(f.s, f.q, &tf, 1, &a), GANTRY_OK);
		ck_assert_int_eq(gantry_submit(g.s, g.q, &tg, 1, &b), GANTRY_OK);
	}
	ck_assert_int_eq(gantry_wait(f.s, &a, 1, 10000000000), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(g.s, &b, 1, 10000000000), GANTRY_OK);
	gantry_close(g.s);
	teardown(&f);
}
END_TEST

static struct fixture setup_woken(void)
{
	struct fixture f = { .h = inproc_start(one_cpu, 1) };

	f.h->wake = GANTRY_SESSION_WAKE_EVENTFD;
	ck_assert_int_eq(inproc_open(f.h, NULL, &f.s, &f.index), GANTRY_OK);
	ck_assert_int_eq(gantry_queue_open(f.s, NULL, &f.q), GANTRY_OK);
	return f;
}

START_TEST(test_road_guest_without_futexes_is_woken_by_its_descriptor)
{
	struct fixture f = setup_woken();
	uint64_t ns = 20000000;
	struct gantry_task slow = { .kernel = find(&f, "spin"), .args = &ns, .args_bytes = 8 };
	gantry_ticket t;

	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(gantry_submit(f.s, f.q, &slow, 1, &t), GANTRY_OK);
		ck_assert_int_eq(gantry_wait(f.s, &t, 1, 20000000000), GANTRY_OK);
	}
	ck_assert_uint_ge(f.h->nwoken, 1);
	teardown(&f);
}
END_TEST

/* A write to it would wait: the worker knows better, and lets go of the session. */
START_TEST(test_road_full_descriptor_of_a_guest_holds_nobody_up)
{
	struct fixture f = setup_woken();
	struct pollfd p = { .fd = f.h->sessions[f.index].wake_fd, .events = POLLIN };
	const uint64_t full = UINT64_MAX - 1;
	uint64_t count;

	if (poll(&p, 1, 0) == 1)
		ck_assert_int_eq(read(p.fd, &count, sizeof(count)), sizeof(count));
	ck_assert_int_eq(write(p.fd, &full, sizeof(full)), sizeof(full));
	inproc_detach(f.h, f.index);
	teardown(&f);
}
END_TEST

static uint64_t *words(const struct fixture *f, uint64_t *ret_heap_off)
{
	gantry_buffer buffer;
	void *ptr;

	ck_assert_int_eq(gantry_alloc(f->s, 64, GANTRY_ALLOC_HOST, &buffer), GANTRY_OK);
	ck_assert_int_eq(gantry_map(f->s, buffer, 0, 64, GANTRY_RW, GANTRY_FOREVER, &ptr),
			 GANTRY_OK);
	memset(ptr, 0, 64);
	*ret_heap_off = (uint64_t)((uint8_t *)ptr - f->s->heap_region.base);
	return ptr;
}

START_TEST(test_road_stamps_grow_and_a_place_past_the_heap_is_refused)
{
	struct fixture f = setup(one_cpu, 1);
	uint64_t at, *word = words(&f, &at);
	gantry_ticket t;

	ck_assert_int_eq(gantry_submit_stamp(f.s, f.q, at, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_submit_stamp(f.s, f.q, at + 8, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 20000000000), GANTRY_OK);
	ck_assert_uint_gt(word[0], 0);
	ck_assert_uint_ge(word[1], word[0]);
	ck_assert_uint_eq(word[2], 0);
	ck_assert_int_eq(gantry_submit_stamp(f.s, f.q, at + 4, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 20000000000), GANTRY_E_SPAN);
	ck_assert_int_eq(gantry_submit_stamp(f.s, f.q, f.s->heap_region.bytes, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 20000000000), GANTRY_E_SPAN);
	ck_assert_int_eq(gantry_submit_await(f.s, f.q, UINT64_MAX - 7, 1, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 20000000000), GANTRY_E_SPAN);
	teardown(&f);
}
END_TEST

START_TEST(test_road_task_behind_an_await_runs_once_the_guest_has_written_its_word)
{
	struct fixture f = setup(one_cpu, 1);
	uint64_t at, *word = words(&f, &at);
	gantry_ticket t, other;
	gantry_queue bell;

	ck_assert_int_eq(gantry_queue_open(f.s, NULL, &bell), GANTRY_OK);
	gantry_store_release(word, (uint64_t)6);
	ck_assert_int_eq(gantry_submit_await(f.s, f.q, at, 7, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_submit_marker(f.s, f.q, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_submit_marker(f.s, bell, &other), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &other, 1, 20000000000), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 10000000), GANTRY_E_TIMEOUT);
	ck_assert_int_eq(gantry_await_end(f.s, bell, at, 7), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 20000000000), GANTRY_OK);
	/* It may be another's by the time there is room to tell once more. */
	gantry_store_release(word, (uint64_t)0);
	ck_assert_int_eq(gantry_submit_await(f.s, f.q, at, 7, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_await_again(f.s, bell, at), GANTRY_OK);
	ck_assert_uint_eq(gantry_load_acquire(word), 0);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 10000000), GANTRY_E_TIMEOUT);
	ck_assert_int_eq(gantry_await_end(f.s, bell, at, 7), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(f.s, &t, 1, 20000000000), GANTRY_OK);
	teardown(&f);
}
END_TEST

/* Completions are seen late, as those of a device that works by itself. */
static const char *const late_cpu[] = { "cpu cores=1 filters=delay delay.time=3s" };

static gantry_ticket put_spin(struct fixture *f, uint64_t ns)
{
	struct gantry_task task = { .kernel = find(f, "spin"), .args = &ns, .args_bytes = 8 };
	gantry_ticket t;

	ck_assert_int_eq(gantry_submit(f->s, f->q, &task, 1, &t), GANTRY_OK);
	return t;
}

START_TEST(test_road_task_behind_a_marker_is_with_the_device_before_those_before_have_ended)
{
	struct fixture f = setup(late_cpu, 1);
	const struct gantry_ledger_queue *led =
		&f.h->sessions[f.index].ledger.queues[GANTRY_HANDLE_SLOT(f.q)];
	gantry_ticket first = put_spin(&f, 1000), marker, second, last;

	ck_assert_int_eq(gantry_submit_marker(f.s, f.q, &marker), GANTRY_OK);
	second = put_spin(&f, 1000);
	ck_assert_int_eq(gantry_submit_marker(f.s, f.q, &last), GANTRY_OK);
	while (gantry_load_acquire(&led->issued) < 4)
		sched_yield();
	ck_assert_uint_eq(gantry_load_acquire(&led->done), 0);
	ck_assert_int_eq(gantry_test(f.s, marker), 0);
	ck_assert_int_eq(gantry_wait(f.s, &last, 1, 20000000000), GANTRY_OK);
	ck_assert_int_eq(gantry_test(f.s, first), 1);
	ck_assert_int_eq(gantry_test(f.s, marker), 1);
	ck_assert_int_eq(gantry_test(f.s, second), 1);
	teardown(&f);
}
END_TEST

static int ask(struct fixture *f, enum gantry_ask what, uint32_t device, uint64_t object)
{
	uint8_t answer[112];

	return gantry_device_ask(f->s, what, device, object, (struct gantry_ask_numbers){ { 0 } },
				 answer, sizeof(answer));
}

START_TEST(test_road_questions_are_answered_or_refused_and_change_nothing)
{
	struct fixture f = setup(two_cpus, 2);
	gantry_buffer moves, fixed, ends;

	ck_assert_int_eq(ask(&f, GANTRY_ASK_DEVICE, 0, 0), sizeof(struct gantry_reply_device));
	ck_assert_int_eq(ask(&f, GANTRY_ASK_DEVICE, 1, 0), sizeof(struct gantry_reply_device));
	ck_assert_int_eq(ask(&f, GANTRY_ASK_DEVICE, 2, 0), GANTRY_E_NO_DEVICE);
	ck_assert_int_eq(ask(&f, GANTRY_ASK_DEVICE, UINT32_MAX, 0), GANTRY_E_NO_DEVICE);
	ck_assert_int_eq(ask(&f, GANTRY_ASK_ATTRIBUTES, 0, 0), GANTRY_E_UNSUPPORTED);
	ck_assert_int_eq(ask(&f, GANTRY_ASK_KERNEL, 0, find(&f, "saxpy")), GANTRY_E_NO_KERNEL);
	ck_assert_int_eq(ask(&f, GANTRY_ASK_KERNEL, 0, 0), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_alloc(f.s, 4096, GANTRY_ALLOC_DEVICE, &moves), GANTRY_OK);
	ck_assert_int_eq(ask(&f, GANTRY_ASK_ADDRESS, 0, moves), GANTRY_E_ACCESS);
	/* Only variables of images are managed or not. */
	ck_assert_int_eq(ask(&f, GANTRY_ASK_MANAGED, 0, moves), GANTRY_E_ACCESS);
	ck_assert_int_eq(ask(&f, GANTRY_ASK_MANAGED, 0, 0), GANTRY_E_HANDLE);
	ck_assert_int_eq(ask(&f, GANTRY_NASKS, 0, moves), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_alloc(f.s, 4096, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED, &fixed),
			 GANTRY_OK);
	/* The cpu device has no addresses to tell. */
	ck_assert_int_eq(ask(&f, GANTRY_ASK_ADDRESS, 0, fixed), GANTRY_E_UNSUPPORTED);
	ck_assert_int_eq(gantry_alloc(f.s, 4096, GANTRY_ALLOC_SHARED | GANTRY_ALLOC_FIXED, &ends),
			 GANTRY_E_ARG);
	ck_assert_int_eq(gantry_free(f.s, moves), GANTRY_OK);
	ck_assert_int_eq(ask(&f, GANTRY_ASK_ADDRESS, 0, moves), GANTRY_E_HANDLE);
	teardown(&f);
}
END_TEST

START_TEST(test_road_groups_of_blocks_are_refused_where_a_device_knows_of_none)
{
	struct fixture f = setup(two_cpus, 2);
	const struct gantry_task none = { .flags = 1u << 23 };
	struct gantry_task task = { .kernel = find(&f, "empty") };
	gantry_ticket together, cluster, plain;

	task.flags = GANTRY_TASK_TOGETHER;
	ck_assert_int_eq(gantry_submit(f.s, f.q, &task, 1, &together), GANTRY_OK);
	task.flags = GANTRY_TASK_CLUSTER(2, 1, 1);
	ck_assert_int_eq(gantry_submit(f.s, f.q, &task, 1, &cluster), GANTRY_OK);
	task.flags = 0;
	ck_assert_int_eq(gantry_submit(f.s, f.q, &task, 1, &plain), GANTRY_OK);
	ck_assert_int_eq(gantry_submit(f.s, f.q, &none, 1, NULL), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_wait(f.s, &plain, 1, GANTRY_FOREVER), GANTRY_OK);
	ck_assert_int_eq(gantry_test(f.s, together), GANTRY_E_UNSUPPORTED);
	ck_assert_int_eq(gantry_test(f.s, cluster), GANTRY_E_UNSUPPORTED);
	teardown(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("road");
	TCase *tc = gantry_unit_case(suite, "road");

	tcase_add_test(tc, test_road_saxpy_on_host_buffers);
	tcase_add_test(tc, test_road_stamps_grow_and_a_place_past_the_heap_is_refused);
	tcase_add_test(tc, test_road_task_behind_an_await_runs_once_the_guest_has_written_its_word);
	tcase_add_test(tc, test_road_questions_are_answered_or_refused_and_change_nothing);
	tcase_add_test(tc, test_road_groups_of_blocks_are_refused_where_a_device_knows_of_none);
	tcase_add_test(tc, test_road_saxpy_on_device_buffers);
	tcase_add_test(tc, test_road_saxpy_on_lanes_and_two_devices);
	tcase_add_test(tc, test_road_black_scholes_with_arguments_in_the_heap);
	tcase_add_test(tc, test_road_access_waits_for_the_buffers_own_tasks);
	tcase_add_test(tc, test_road_control_operations_do_not_wait_for_a_long_kernel);
	tcase_add_test(tc, test_road_many_empty_tasks_finish_in_order);
	tcase_add_test(
		tc,
		test_road_task_behind_a_marker_is_with_the_device_before_those_before_have_ended);
	tcase_add_test(tc, test_road_failures_have_statuses_by_ticket);
	tcase_add_test(tc, test_road_tickets_order_two_queues);
	tcase_add_test(tc, test_road_two_sessions_share_one_device);
	tcase_add_test(tc, test_road_guest_without_futexes_is_woken_by_its_descriptor);
	tcase_add_test(tc, test_road_full_descriptor_of_a_guest_holds_nobody_up);
	return gantry_unit_run(suite);
}
