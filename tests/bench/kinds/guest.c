/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue that is forced from device to device by its program, with a task between any two moves.
 *
 *   open                   a session at $GANTRY_DOOR with a queue and a buffer
 *   run MASK MASK N        N times: where the queue may be is set to the one mask and to the other by turns, a task is put and waited
 *                          for. The task writes the next number to the next of the buffer's words, so that a task that was lost, ran
 *                          twice or saw another's bytes leaves a word that is wrong. Says {"s":..., "failed":..., "wrong":...}
 */
#include <stdio.h>
#include <string.h>

#include "guest-shim/gantry.h"
#include "tests/bench/bench.h"

#define NWORDS	     1024u
#define LONG_WAIT_NS INT64_C(60000000000)

static struct gantry_session *session;
static gantry_queue queue;
static gantry_buffer buffer;
static uint32_t expected[NWORDS];
static uint32_t nput;

static void cmd_open(const struct bench_args *args)
{
	gantry_ticket t;
	int r = gantry_open(NULL, NULL, &session);

	(void)args;
	r = r < 0 ? r : gantry_queue_open(session, NULL, &queue);
	r = r < 0 ? r : gantry_alloc(session, sizeof(expected), GANTRY_ALLOC_DEVICE, &buffer);
	r = r < 0 ? r : gantry_submit_fill(session, queue, buffer, 0, sizeof(expected), 0, 4, &t);
	r = r < 0 ? r : gantry_wait(session, &t, 1, LONG_WAIT_NS);
	if (r < 0)
		bench_fail("open: %s", gantry_last_error());
	else
		printf("{\"opened\":true}\n");
}

/* Negative: nothing more can be put. */
static int one_task(uint64_t *nfailed)
{
	uint32_t word = nput % NWORDS;
	gantry_ticket t;
	int r;

	expected[word] = ++nput;
	r = gantry_submit_fill(session, queue, buffer, word * 4ull, 4, nput, 4, &t);
	if (r < 0)
		return r;
	*nfailed += gantry_wait(session, &t, 1, LONG_WAIT_NS) < 0;
	return 0;
}

static int count_wrong(uint64_t *ret_wrong)
{
	uint32_t seen[NWORDS];
	int r = gantry_read(session, buffer, 0, seen, sizeof(seen));

	*ret_wrong = 0;
	for (uint32_t i = 0; i < NWORDS && r >= 0; i++)
		*ret_wrong += seen[i] != expected[i];
	return r;
}

static void cmd_run(const struct bench_args *args)
{
	int64_t masks[2] = { (int64_t)bench_arg(args, 0, 1), (int64_t)bench_arg(args, 1, 1) };
	uint64_t n = bench_arg(args, 2, 1000), nfailed = 0, wrong, began_ns, took_ns;
	int r = 0;

	if (!session) {
		bench_fail("open a session first");
		return;
	}
	began_ns = gantry_now_ns();
	for (uint64_t i = 0; i < n && r >= 0; i++) {
		r = gantry_queue_set(session, queue, GANTRY_QUEUE_DEVICE_MASK, masks[i % 2]);
		r = r < 0 ? r : one_task(&nfailed);
	}
	took_ns = gantry_now_ns() - began_ns;
	r = r < 0 ? r : count_wrong(&wrong);
	if (r < 0)
		bench_fail("run: %s", gantry_last_error());
	else
		printf("{\"s\":%.6f,\"failed\":%llu,\"wrong\":%llu}\n", (double)took_ns / 1e9,
		       (unsigned long long)nfailed, (unsigned long long)wrong);
}

int main(void)
{
	static const struct bench_command commands[] = {
		{ "open", cmd_open },
		{ "run", cmd_run },
		{ "pin", bench_pin },
		{ 0 },
	};

	return bench_serve(commands);
}
