/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/misuse/neighbour.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "tests/misuse/hostile.h"
#include "tests/unit/runner.h"

#define CALL_NS (10 * (int64_t)GANTRY_NS_PER_S)

/* The kernel's formula, written down a second time: see docs/kernels.md. */
static uint64_t mix64(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint64_t checksum(const uint8_t *bytes, uint64_t n)
{
	uint64_t sum = n;

	for (uint64_t i = 0; i < n / 8; i++) {
		uint64_t word;

		memcpy(&word, bytes + 8 * i, sizeof(word));
		sum += mix64(word + (i + 1) * 0x9e3779b97f4a7c15ull);
	}
	return sum;
}

static int one_round(struct neighbour *n, uint64_t seed)
{
	struct {
		uint64_t data;
		uint64_t sum;
		uint64_t n;
	} args = { .n = NEIGHBOUR_BYTES };
	const struct gantry_access access[2] = {
		{ .buffer = n->data, .mode = GANTRY_R, .arg_off = 0 },
		{ .buffer = n->sum, .mode = GANTRY_W, .arg_off = 8 },
	};
	const struct gantry_task task = { .kernel = n->kernel,
					  .args = &args,
					  .args_bytes = sizeof(args),
					  .access = access,
					  .naccess = 2,
					  .flags = GANTRY_TASK_IDEMPOTENT };
	gantry_ticket t;
	uint64_t seen = 0;
	int r;

	hostile_noise(&seed, n->mine, sizeof(n->mine));
	r = gantry_write(n->session, n->data, 0, n->mine, sizeof(n->mine));
	if (r == 0)
		r = gantry_submit(n->session, n->queue, &task, 1, &t);
	if (r == 0)
		r = gantry_wait(n->session, &t, 1, CALL_NS);
	if (r == 0)
		r = gantry_read(n->session, n->sum, 0, &seen, sizeof(seen));
	if (r < 0) {
		(void)snprintf(n->what, sizeof(n->what), "%s", gantry_last_error());
		return r;
	}
	if (seen != checksum(n->mine, sizeof(n->mine))) {
		(void)snprintf(n->what, sizeof(n->what),
			       "checksum %#llx instead of %#llx in round %llu",
			       (unsigned long long)seen,
			       (unsigned long long)checksum(n->mine, sizeof(n->mine)),
			       (unsigned long long)n->rounds);
		return GANTRY_E_INTERNAL;
	}
	return 0;
}

static void *work(void *arg)
{
	struct neighbour *n = arg;

	for (uint64_t i = 0; !gantry_load_relaxed(&n->stop); i++) {
		n->status = one_round(n, i);
		if (n->status < 0) {
			gantry_store_release(&n->failed,
					     1u); /* pairs with the acquire in neighbour_check() */
			break;
		}
		(void)gantry_fetch_add(&n->rounds, 1);
		(void)poll(NULL, 0,
			   1); /* leave the two processors of a small machine to the attack */
	}
	return NULL;
}

void neighbour_start(struct neighbour *n, struct gantry_session *session)
{
	memset(n, 0, sizeof(*n));
	n->session = session;
	ck_assert_int_eq(gantry_queue_open(session, NULL, &n->queue), GANTRY_OK);
	ck_assert_int_eq(gantry_kernel_find(session, "checksum", "r:u8*,w:u64*,u64", &n->kernel),
			 GANTRY_OK);
	ck_assert_int_eq(gantry_alloc(session, NEIGHBOUR_BYTES, GANTRY_ALLOC_DEVICE, &n->data),
			 GANTRY_OK);
	ck_assert_int_eq(gantry_alloc(session, 8, GANTRY_ALLOC_DEVICE, &n->sum), GANTRY_OK);
	ck_assert_int_eq(pthread_create(&n->thread, NULL, work, n), 0);
}

void neighbour_check(struct neighbour *n)
{
	/* One may have begun before; two more have not. */
	uint64_t wanted = gantry_load_relaxed(&n->rounds) + 3;
	uint64_t deadline = gantry_deadline_ns(CALL_NS);

	while (gantry_load_relaxed(&n->rounds) < wanted) {
		ck_assert_msg(!gantry_load_acquire(&n->failed), "the neighbour was hurt: %d, %s",
			      n->status, n->what);
		ck_assert_msg(!gantry_deadline_passed(deadline), "the neighbour stands still");
		(void)poll(NULL, 0, 1);
	}
}

void neighbour_stop(struct neighbour *n)
{
	gantry_store_relaxed(&n->stop, 1u);
	(void)pthread_join(n->thread, NULL);
}
