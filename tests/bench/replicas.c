/* SPDX-License-Identifier: Apache-2.0 */
/* Queues on two devices that read one buffer: with a copy on each, against a buffer that is moved to and fro. */
#include "tests/bench/replicas.h"

#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "tests/bench/bench.h"
#include "tests/inproc/inproc.h"

#define MIB	(1ull << 20)
#define READ	4096ull /* of the buffer, a task */
#define WRITTEN 16u /* in one round of so many tasks the first writes, where there is a writer */

struct world {
	struct inproc_host *h;
	struct gantry_session *s;
	gantry_queue q[2];
	gantry_buffer b;
	gantry_buffer out[2];
	uint64_t *moved_bytes;
};

static void world_open(struct world *w, uint64_t mib)
{
	static const char *const devices[] = { "cpu cores=1 window=yes", "cpu cores=1 window=yes" };
	uint32_t index;
	gantry_ticket t;

	w->h = inproc_start(devices, 2);
	bench_must(inproc_open(w->h, NULL, &w->s, &index), "open");
	w->moved_bytes = &w->h->sessions[index].ledger.hdr->moved_bytes;
	bench_must(gantry_alloc(w->s, mib * MIB, GANTRY_ALLOC_DEVICE, &w->b), "alloc");
	for (uint32_t i = 0; i < 2; i++) {
		struct gantry_queue_options options = { .device_mask = 1ull << i };

		bench_must(gantry_queue_open(w->s, &options, &w->q[i]), "queue");
		bench_must(gantry_alloc(w->s, READ, GANTRY_ALLOC_DEVICE, &w->out[i]), "alloc");
	}
	bench_must(gantry_submit_fill(w->s, w->q[0], w->b, 0, mib * MIB, 1, 4, &t), "fill");
	bench_must(gantry_wait(w->s, &t, 1, GANTRY_FOREVER), "wait");
}

/* @n tasks, on one device and the other in turns, each waited for. Seconds; bytes that were moved. */
static double alternate(struct world *w, uint64_t n, bool writes, bool replicas,
			uint64_t *ret_bytes)
{
	uint64_t before, began;
	gantry_ticket t;

	/* Both have used it, nobody has a copy, and it is where the first task is. */
	gantry_store_relaxed(&w->h->quota->wishes, (uint32_t)GANTRY_QUOTA_NO_REPLICAS);
	for (uint32_t i = 0; i < 3; i++) {
		bench_must(gantry_submit_copy(w->s, w->q[i % 2], w->out[i % 2], 0, w->b, 0, READ,
					      &t),
			   "copy");
		bench_must(gantry_wait(w->s, &t, 1, GANTRY_FOREVER), "wait");
	}
	gantry_store_relaxed(&w->h->quota->wishes,
			     replicas ? 0u : (uint32_t)GANTRY_QUOTA_NO_REPLICAS);
	before = gantry_load_relaxed(w->moved_bytes);
	began = gantry_now_ns();
	for (uint64_t i = 0; i < n; i++) {
		uint32_t k = i % 2;

		if (writes && i % WRITTEN == 0)
			bench_must(gantry_submit_fill(w->s, w->q[k], w->b, 0, READ, (uint32_t)i, 4,
						      &t),
				   "fill");
		else
			bench_must(gantry_submit_copy(w->s, w->q[k], w->out[k], 0, w->b, 0, READ,
						      &t),
				   "copy");
		bench_must(gantry_wait(w->s, &t, 1, GANTRY_FOREVER), "wait");
	}
	*ret_bytes = gantry_load_relaxed(w->moved_bytes) - before;
	return (double)(gantry_now_ns() - began) / 1e9;
}

void bench_replicas(uint64_t mib, uint64_t n)
{
	struct world w;
	uint64_t bytes[4];
	double s[4];

	world_open(&w, mib);
	/* A B A B: both of a pair have the machine as it is in these seconds. */
	for (uint32_t i = 0; i < 4; i++)
		s[i] = alternate(&w, n, i / 2, i % 2, &bytes[i]);
	bench_print("replica_read_us", s[1] / (double)n * 1e6, "us");
	bench_print("replica_read_moved_us", s[0] / (double)n * 1e6, "us");
	bench_print("replica_read_ratio", s[0] / s[1], "");
	bench_print("replica_read_copies", (double)bytes[1] / (double)(mib * MIB), "");
	bench_print("replica_read_moves", (double)bytes[0] / (double)(mib * MIB), "");
	bench_print("replica_mixed_ratio", s[2] / s[3], "");
	bench_print("replica_mixed_bytes_ratio", (double)bytes[3] / (double)bytes[2], "");
	gantry_close(w.s);
	inproc_stop(w.h);
}
