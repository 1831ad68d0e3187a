/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A neighbour with a deep queue, as others notice a fault by: it keeps DEPTH rounds in flight, each of its own
 * buffers, and checks the sum of every one. A round: fill, spin, checksum, all idempotent.
 */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "tests/system/progs/guest.h"

#define MAX_DEPTH   64u
#define ROUND_BYTES (64u << 10)
#define WAIT_S	    60

struct round {
	gantry_buffer data, sum;
	gantry_ticket ticket;
	uint32_t value;
	bool flying;
};

static struct {
	pthread_t thread;
	struct round rounds[MAX_DEPTH];
	gantry_queue queue;
	gantry_kernel fill, spin, checksum;
	unsigned depth;
	uint64_t spin_ns;
	uint32_t stop;	 /* atomic, as the rest below */
	uint32_t failed; /* -status */
	uint64_t nrounds;
	uint64_t ndoubt;
	uint64_t longest_ns; /* between two rounds that ended */
	char what[256];
} deep;

static uint64_t wanted_sum(uint32_t value)
{
	uint64_t word = value | (uint64_t)value << 32, sum = ROUND_BYTES;

	for (uint64_t i = 0; i < ROUND_BYTES / 8; i++)
		sum += checksum_word(word, i);
	return sum;
}

static int submit_round(struct round *r, uint32_t value)
{
	struct {
		uint64_t dst, n;
		uint32_t value, pad;
	} fill = { .n = ROUND_BYTES / 4, .value = value };
	struct {
		uint64_t data, sum, n;
	} sum = { .n = ROUND_BYTES };
	struct gantry_access written = { .buffer = r->data, .mode = GANTRY_W };
	struct gantry_access read[2] = {
		{ .buffer = r->data, .mode = GANTRY_R },
		{ .buffer = r->sum, .mode = GANTRY_W, .arg_off = 8 },
	};
	struct gantry_task tasks[3] = {
		{ .kernel = deep.fill,
		  .args = &fill,
		  .args_bytes = sizeof(fill),
		  .access = &written,
		  .naccess = 1,
		  .flags = GANTRY_TASK_IDEMPOTENT },
		{ .kernel = deep.spin,
		  .args = &deep.spin_ns,
		  .args_bytes = 8,
		  .flags = GANTRY_TASK_IDEMPOTENT },
		{ .kernel = deep.checksum,
		  .args = &sum,
		  .args_bytes = sizeof(sum),
		  .access = read,
		  .naccess = 2,
		  .flags = GANTRY_TASK_IDEMPOTENT },
	};

	r->value = value;
	r->flying = true;
	return gantry_submit(session, deep.queue, tasks, 3, &r->ticket);
}

static int finish_round(struct round *r)
{
	uint64_t seen = 0;
	int status = gantry_wait(session, &r->ticket, 1, WAIT_S * SECOND);

	r->flying = false;
	if (status == GANTRY_E_IN_DOUBT) {
		gantry_fetch_add(&deep.ndoubt, 1);
		return 0;
	}
	if (status == 0)
		status = gantry_read(session, r->sum, 0, &seen, sizeof(seen));
	if (status == 0 && seen != wanted_sum(r->value)) {
		(void)snprintf(deep.what, sizeof(deep.what), "round %u has a wrong sum", r->value);
		return GANTRY_E_INTERNAL;
	}
	if (status < 0)
		(void)snprintf(deep.what, sizeof(deep.what), "round %u: %s", r->value,
			       gantry_last_error());
	return status;
}

static int prepare(void)
{
	int r = gantry_queue_open(session, NULL, &deep.queue);

	if (r == 0)
		r = gantry_kernel_find(session, "fill", "w:u32*,u64,u32", &deep.fill);
	if (r == 0)
		r = gantry_kernel_find(session, "spin", "u64", &deep.spin);
	if (r == 0)
		r = gantry_kernel_find(session, "checksum", "r:u8*,w:u64*,u64", &deep.checksum);
	for (unsigned i = 0; i < deep.depth && r == 0; i++) {
		r = gantry_alloc(session, ROUND_BYTES, GANTRY_ALLOC_DEVICE, &deep.rounds[i].data);
		if (r == 0)
			r = gantry_alloc(session, 8, GANTRY_ALLOC_DEVICE, &deep.rounds[i].sum);
	}
	if (r < 0)
		(void)snprintf(deep.what, sizeof(deep.what), "%s", gantry_last_error());
	return r;
}

static void *work(void *arg)
{
	uint64_t last = now_ns();
	uint32_t value = 0;
	int r = 0;

	(void)arg;
	while (r == 0 && !gantry_load_acquire(&deep.stop)) {
		struct round *round = &deep.rounds[value % deep.depth];

		if (round->flying) {
			r = finish_round(round);
			if (now_ns() - last > gantry_load_relaxed(&deep.longest_ns))
				gantry_store_relaxed(&deep.longest_ns, now_ns() - last);
			last = now_ns();
			if (r == 0)
				gantry_fetch_add(&deep.nrounds, 1);
		}
		if (r == 0)
			r = submit_round(round, value++);
	}
	for (unsigned i = 0; i < deep.depth && r == 0; i++)
		if (deep.rounds[i].flying)
			r = finish_round(&deep.rounds[i]);
	gantry_store_release(&deep.failed, (uint32_t)-r);
	return NULL;
}

static void tell(void)
{
	int failed = -(int)gantry_load_acquire(&deep.failed);

	if (failed < 0)
		printf("error %s %s\n", status_name(failed), deep.what);
	else
		printf("ok rounds %" PRIu64 " doubt %" PRIu64 " longest_ns %" PRIu64 "\n",
		       gantry_load_acquire(&deep.nrounds), gantry_load_acquire(&deep.ndoubt),
		       gantry_load_relaxed(&deep.longest_ns));
}

/* deep start DEPTH SPIN_NS | forget (the longest pause so far) | check (another DEPTH rounds) | stop */
void do_deep(char **w)
{
	if (strcmp(w[1], "start") == 0) {
		int r;

		memset(&deep, 0, sizeof(deep));
		deep.depth = w[2] ? (unsigned)atoi(w[2]) % (MAX_DEPTH + 1) : 8;
		deep.depth = deep.depth ? deep.depth : 1;
		deep.spin_ns = w[2] && w[3] ? strtoull(w[3], NULL, 0) : 0;
		r = prepare();
		if (r < 0) {
			printf("error %s %s\n", status_name(r), deep.what);
			return;
		}
		if (pthread_create(&deep.thread, NULL, work, NULL) != 0)
			abort();
		printf("ok\n");
	} else if (strcmp(w[1], "forget") == 0) {
		gantry_store_relaxed(&deep.longest_ns, 0);
		tell();
	} else if (strcmp(w[1], "check") == 0) {
		uint64_t wanted = gantry_load_acquire(&deep.nrounds) + deep.depth;

		for (unsigned i = 0; i < WAIT_S * 1000 && !gantry_load_acquire(&deep.failed) &&
				     gantry_load_acquire(&deep.nrounds) < wanted;
		     i++)
			(void)poll(NULL, 0, 1);
		if (!gantry_load_acquire(&deep.failed) &&
		    gantry_load_acquire(&deep.nrounds) < wanted)
			printf("error STUCK fewer than %u rounds in a minute\n", deep.depth);
		else
			tell();
	} else {
		gantry_store_release(&deep.stop, 1);
		(void)pthread_join(deep.thread, NULL);
		tell();
	}
}
