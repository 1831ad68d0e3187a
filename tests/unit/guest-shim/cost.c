/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost TASKS BATCH [asleep]: so many warm tasks of a guest at one kind of door, BATCH at a time, for count-cost: what
 * lies in counted_submit() and counted_wait() is a guest's own part, without the time that it spins. A host that is
 * asleep wants its bell rung for each batch.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "guest-shim/session.h"
#include "tests/unit/guest-shim/fake_host.h"

#define WARM	  10
#define BATCH_MAX 32

static struct fake_host host;
static struct gantry_session *session;
static gantry_queue queue;
static struct gantry_task tasks[BATCH_MAX];
static unsigned int batch = BATCH_MAX;

__attribute__((noipa)) int counted_submit(gantry_ticket *ret_ticket);
__attribute__((noipa)) int counted_wait(gantry_ticket ticket);

int counted_submit(gantry_ticket *ret_ticket)
{
	return gantry_submit(session, queue, tasks, batch, ret_ticket);
}

int counted_wait(gantry_ticket ticket)
{
	return gantry_wait(session, &ticket, 1, GANTRY_FOREVER);
}

static int run(unsigned int nbatches)
{
	for (unsigned int i = 0; i < nbatches; i++) {
		const struct gantry_queue_end *q;
		gantry_ticket ticket;

		if (counted_submit(&ticket) < 0)
			return -1;
		q = &session->queues[GANTRY_TICKET_QUEUE(ticket)];
		while (gantry_ring_done(&q->ring.map) < GANTRY_TICKET_SEQ(ticket))
			(void)sched_yield(); /* under valgrind one thread runs at a time */
		if (counted_wait(ticket) < 0)
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct gantry_access accesses[2];
	uint64_t args[3] = { 0 };
	unsigned int ntasks = argc > 1 ? (unsigned int)atoi(argv[1]) : 0;
	gantry_kernel kernel;
	int r;

	if (argc > 2)
		batch = (unsigned int)atoi(argv[2]);
	if (batch < 1 || batch > BATCH_MAX)
		return 2;

	fake_host_init(&host);
	host.nslots = 64;
	host.is_awake = argc < 4;
	fake_host_start(&host);
	r = gantry_open(host.where, NULL, &session);
	if (r == 0)
		r = gantry_queue_open(session, NULL, &queue);
	if (r == 0)
		r = gantry_kernel_find(session, "k", NULL, &kernel);
	for (uint16_t i = 0; r == 0 && i < 2; i++) {
		accesses[i] = (struct gantry_access){ .mode = GANTRY_RW, .arg_off = i * 8 };
		r = gantry_alloc(session, 4096, 0, &accesses[i].buffer);
	}
	for (unsigned int i = 0; r == 0 && i < BATCH_MAX; i++)
		tasks[i] = (struct gantry_task){
			.kernel = kernel,
			.args = args,
			.args_bytes = sizeof(args),
			.naccess = 2,
			.access = accesses,
		};
	if (r == 0)
		r = run(WARM + ntasks / batch);
	if (r < 0)
		fprintf(stderr, "%d %s\n", r, gantry_last_error());
	gantry_close(session);
	fake_host_stop(&host);
	return r < 0;
}
