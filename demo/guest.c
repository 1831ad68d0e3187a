/* SPDX-License-Identifier: Apache-2.0 */
#include "guest.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

void die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

int check(int status, const char *what)
{
	if (status < 0)
		die("%s: %s", what,
		    *gantry_last_error() ? gantry_last_error() : gantry_strerror(status));
	return status;
}

gantry_buffer alloc_buffer(struct gantry_session *s, uint64_t bytes)
{
	gantry_buffer buffer;

	check(gantry_alloc(s, bytes, 0, &buffer), "allocating a buffer");
	return buffer;
}

double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

gantry_ticket submit(struct gantry_session *s, gantry_queue queue, gantry_kernel kernel,
		     const void *args, size_t args_bytes, const struct gantry_access *access,
		     unsigned naccess)
{
	/* These kernels write only what they do not read, so a task may run again if its worker dies. */
	const struct gantry_task task = {
		.kernel = kernel,
		.args = args,
		.args_bytes = (uint32_t)args_bytes,
		.access = access,
		.naccess = naccess,
		.flags = GANTRY_TASK_IDEMPOTENT,
	};
	gantry_ticket ticket;

	check(gantry_submit(s, queue, &task, 1, &ticket), "submitting a task");
	return ticket;
}

/* --- rounds --- */

void work_open(struct work *work)
{
	struct gantry_session *s = work->session;

	check(gantry_kernel_find(s, "checksum", "r:u8*,w:u64*,u64", &work->checksum),
	      "kernel checksum");
	for (unsigned lane = 0; lane < work->nlanes; lane++) {
		check(gantry_queue_open(s, NULL, &work->queue[lane]), "opening a queue");
		work->sums[lane] = alloc_buffer(s, NSUMS * sizeof(uint64_t));
	}
}

gantry_ticket work_checksum(struct work *work, unsigned lane, unsigned slot, gantry_buffer buffer,
			    uint64_t bytes)
{
	struct {
		uint64_t bytes, sum, n;
	} args = { .n = bytes };
	struct gantry_access access[] = {
		{ .buffer = buffer, .mode = GANTRY_R, .arg_off = 0 },
		{ .buffer = work->sums[lane],
		  .off = slot * sizeof(uint64_t),
		  .len = sizeof(uint64_t),
		  .mode = GANTRY_W,
		  .arg_off = sizeof(uint64_t) },
	};

	return submit(work->session, work->queue[lane], work->checksum, &args, sizeof(args), access,
		      COUNT(access));
}

struct progress {
	gantry_ticket pending[LANES_MAX][DEPTH];
	unsigned unread;    /* rounds of each lane whose checksums have not been compared */
	uint64_t submitted; /* rounds */
	uint64_t finished;
	uint64_t different;
	uint64_t failed;
	uint64_t wanted; /* the first round's checksum */
	double last_s;	 /* when the last round finished */
	double longest_s;
};

/* Waits for the round in @slot of @lane, if one is there. */
static void finish_round(struct work *work, struct progress *p, unsigned lane, unsigned slot)
{
	gantry_ticket ticket = p->pending[lane][slot];
	double now;
	int status;

	if (!ticket)
		return;
	p->pending[lane][slot] = 0;
	status = gantry_wait(work->session, &ticket, 1, GANTRY_FOREVER);
	if (status <= GANTRY_E_PROTOCOL)
		check(status, "waiting for a round");
	now = now_s();
	if (p->finished && now - p->last_s > p->longest_s)
		p->longest_s = now - p->last_s;
	p->last_s = now;
	p->finished++;
	if (status < 0 && p->failed++ == 0)
		fprintf(stderr, "round %" PRIu64 " failed: %s\n", p->finished,
			gantry_strerror(status));
}

/* Waits for all rounds and compares their results. */
static void look(struct work *work, struct progress *p)
{
	uint64_t sums[NSUMS];

	for (unsigned slot = 0; slot < DEPTH; slot++)
		for (unsigned lane = 0; lane < work->nlanes; lane++)
			finish_round(work, p, lane, slot);
	for (unsigned lane = 0; lane < work->nlanes && p->unread; lane++) {
		check(gantry_read(work->session, work->sums[lane], 0, sums,
				  p->unread * sizeof(sums[0])),
		      "reading checksums");
		for (unsigned i = 0; i < p->unread; i++)
			p->different += sums[i] != p->wanted;
	}
	p->unread = 0;
}

/* One round alone: what all later ones are compared with. */
static void first_round(struct work *work, struct progress *p)
{
	p->pending[0][0] = work->round(work, 0, 0);
	p->submitted++;
	finish_round(work, p, 0, 0);
	if (p->failed)
		die("the first round failed");
	check(gantry_read(work->session, work->sums[0], 0, &p->wanted, sizeof(p->wanted)),
	      "reading a checksum");
	printf("started %016" PRIx64 "\n", p->wanted);
	fflush(stdout);
}

static int told_to_stop(void)
{
	struct pollfd pfd = { .fd = STDIN_FILENO, .events = POLLIN };

	return poll(&pfd, 1, 0) > 0;
}

int work_loop(struct work *work)
{
	struct progress p = { 0 };
	struct gantry_stats stats;

	first_round(work, &p);
	/* The oldest round of each queue makes room for the next. */
	while (!told_to_stop()) {
		if (p.unread == NSUMS)
			look(work, &p);
		for (unsigned lane = 0; lane < work->nlanes; lane++) {
			finish_round(work, &p, lane, p.unread % DEPTH);
			p.pending[lane][p.unread % DEPTH] = work->round(work, lane, p.unread);
			p.submitted++;
		}
		p.unread++;
	}
	look(work, &p);
	check(gantry_stats_get(work->session, &stats), "reading statistics");
	printf("ended rounds=%" PRIu64 " finished=%" PRIu64 " different=%" PRIu64 " failed=%" PRIu64
	       " tasks=%" PRIu64 " checksum=%016" PRIx64
	       " longest_ms=%.1f device_s=%.3f restarts=%" PRIu64 "\n",
	       p.submitted, p.finished, p.different, p.failed, p.submitted * work->tasks_per_round,
	       p.wanted, p.longest_s * 1e3, (double)stats.device_ns / 1e9, stats.worker_restarts);
	return p.different || p.failed || p.finished != p.submitted;
}
