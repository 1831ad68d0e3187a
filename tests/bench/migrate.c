/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a queue's move from one device to another costs, in one process: bench-migrate [MIB [MOVES]]
 *
 * First: a queue that owns MIB mebibytes on a cpu device with memory of its own, a tenth of which its tasks rewrite each
 * second, goes to another such device; every byte is compared afterwards. The baseline copies as many bytes into new memory of
 * the same sort. Then: MOVES forced moves between two plain cpu devices, a task between any two of them, against the same calls and
 * tasks without moves. Then two devices that read one buffer (replicas.h). A line a figure: NAME VALUE UNIT.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "tests/bench/bench.h"
#include "tests/bench/replicas.h"
#include "tests/inproc/inproc.h"

#define MIB	  (1ull << 20)
#define PART	  MIB
#define MAX_PARTS 4096u
#define CHECKED	  (16 * MIB) /* at a time */

void bench_must(int r, const char *what)
{
	if (r == 0)
		return;
	fprintf(stderr, "bench-migrate: %s: %d, %s\n", what, r, gantry_last_error());
	exit(1);
}

void bench_print(const char *name, double value, const char *unit)
{
	printf("%s %.6g %s\n", name, value, unit);
	(void)fflush(stdout);
}

/* ---- one large move ---- */

struct writer {
	struct gantry_session *s;
	gantry_queue q;
	gantry_buffer b;
	uint64_t nparts;
	uint64_t n; /* parts written so far */
	uint64_t every_ns;
	uint64_t next_ns;
	uint32_t value[MAX_PARTS];
};

static void write_part(struct writer *w)
{
	uint64_t part = w->n++ % w->nparts;
	gantry_ticket t;

	w->value[part] = (uint32_t)w->n;
	bench_must(gantry_submit_fill(w->s, w->q, w->b, part * PART, PART, w->value[part], 4, &t),
		   "fill");
}

/* What is due by now. */
static void write_due(struct writer *w)
{
	while (gantry_now_ns() >= w->next_ns) {
		write_part(w);
		w->next_ns += w->every_ns;
	}
}

static struct gantry_engine_migration report_of(struct inproc_host *h, bool *ret_over)
{
	struct gantry_engine_migration report;

	pthread_mutex_lock(&h->kept_lock);
	report = h->migration;
	*ret_over = h->nmigrations_over > 0;
	pthread_mutex_unlock(&h->kept_lock);
	return report;
}

static uint64_t count_wrong(struct writer *w)
{
	gantry_buffer staged;
	uint64_t wrong = 0;
	gantry_ticket t;
	uint32_t *words;

	bench_must(gantry_alloc(w->s, CHECKED, GANTRY_ALLOC_HOST, &staged), "alloc");
	for (uint64_t off = 0; off < w->nparts * PART; off += CHECKED) {
		bench_must(gantry_submit_copy(w->s, w->q, staged, 0, w->b, off, CHECKED, &t),
			   "copy");
		bench_must(gantry_wait(w->s, &t, 1, GANTRY_FOREVER), "wait");
		bench_must(gantry_map(w->s, staged, 0, CHECKED, GANTRY_R, GANTRY_FOREVER,
				      (void **)&words),
			   "map");
		for (uint64_t i = 0; i < CHECKED / 4; i++)
			wrong += words[i] != w->value[(off + i * 4) / PART];
		bench_must(gantry_unmap(w->s, words), "unmap");
	}
	return wrong;
}

/* Into new memory behind a descriptor, as the destination's is. Seconds. */
static double plain_copy(uint64_t bytes)
{
	uint8_t *from = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	uint64_t began;
	uint8_t *to;
	int fd;

	bench_must(from == MAP_FAILED, "mmap");
	memset(from, 1, bytes);
	bench_must(gantry_memfd_create("plain", bytes, GANTRY_MEMFD_SEALED, &fd), "memfd");
	began = gantry_now_ns();
	to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	bench_must(to == MAP_FAILED, "mmap");
	memcpy(to, from, bytes);
	began = gantry_now_ns() - began;
	(void)munmap(from, bytes);
	(void)munmap(to, bytes);
	gantry_fd_close(fd);
	return (double)began / 1e9;
}

static void large(uint64_t mib)
{
	static const char *const devices[] = { "cpu cores=1 window=yes", "cpu cores=1 window=yes" };
	const struct timespec nap = { .tv_nsec = 1000000 };
	struct inproc_host *h = inproc_start(devices, 2);
	static struct writer w;
	struct gantry_engine_migrate ask = { .id = 1, .slot = 0, .device = 1 };
	struct gantry_engine_migration r;
	struct gantry_queue_options options = { .device_mask = 1 };
	struct gantry_err err;
	bool over = false;
	uint32_t index;
	double copy_s;

	bench_must(inproc_open(h, NULL, &w.s, &index), "open");
	bench_must(gantry_queue_open(w.s, &options, &w.q), "queue");
	bench_must(gantry_queue_set(w.s, w.q, GANTRY_QUEUE_DEVICE_MASK, 0), "mask");
	w.nparts = mib * MIB / PART;
	bench_must(gantry_alloc(w.s, w.nparts * PART, GANTRY_ALLOC_DEVICE, &w.b), "alloc");
	for (uint64_t i = 0; i < w.nparts; i++)
		write_part(&w);
	bench_must(count_wrong(&w) != 0, "before the move");
	w.every_ns = 10ull * GANTRY_NS_PER_S / w.nparts; /* a tenth of it a second */
	w.next_ns = gantry_now_ns();
	ask.session_id = h->sessions[index].id;
	ask.slot = GANTRY_HANDLE_SLOT(w.q);
	bench_must(gantry_engine_migrate(h->engine, &ask, &r, &err), "migrate");
	while (!over) {
		write_due(&w);
		r = report_of(h, &over);
		(void)nanosleep(&nap, NULL); /* shorter is no harm */
	}
	bench_must(r.error, r.text);
	copy_s = plain_copy(r.counts.moved_bytes);
	bench_print("migrate_owned_mib", (double)(r.counts.owned_bytes >> 20), "MiB");
	bench_print("migrate_rounds", r.counts.nrounds, "");
	bench_print("migrate_moved_ratio",
		    (double)r.counts.moved_bytes / (double)r.counts.owned_bytes, "");
	bench_print("migrate_pause_ms",
		    (double)(r.counts.pause_ns - r.counts.longest_task_ns) / 1e6, "ms");
	bench_print("migrate_longest_task_ms", (double)r.counts.longest_task_ns / 1e6, "ms");
	bench_print("migrate_total_ms", (double)r.counts.total_ns / 1e6, "ms");
	bench_print("migrate_plain_copy_ms", copy_s * 1e3, "ms");
	bench_print("migrate_total_ratio", (double)r.counts.total_ns / 1e9 / copy_s, "");
	bench_print("migrate_wrong_words", (double)count_wrong(&w), "");
	gantry_close(w.s);
	inproc_stop(h);
}

/* ---- many small ones ---- */

/* Of one time. */
struct cost {
	double us;
	double switches; /* of all threads, from one to another on a processor: this does not grow with the machine's load alone */
};

static double switches_now(void)
{
	struct rusage u;

	bench_must(getrusage(RUSAGE_SELF, &u), "getrusage");
	return (double)(u.ru_nvcsw + u.ru_nivcsw);
}

/* @n times: where the queue may be is set, a task is put and waited for. */
static struct cost alternate(struct gantry_session *s, gantry_queue q, uint64_t n, bool moves)
{
	struct gantry_task task = { 0 };
	double switches;
	uint64_t began;
	gantry_ticket t;

	bench_must(gantry_kernel_find(s, "empty", NULL, &task.kernel), "kernel");
	switches = switches_now();
	began = gantry_now_ns();
	for (uint64_t i = 0; i < n; i++) {
		bench_must(gantry_queue_set(s, q, GANTRY_QUEUE_DEVICE_MASK, moves && i % 2 ? 2 : 1),
			   "mask");
		bench_must(gantry_submit(s, q, &task, 1, &t), "submit");
		bench_must(gantry_wait(s, &t, 1, GANTRY_FOREVER), "wait");
	}
	return (struct cost){
		.us = (double)(gantry_now_ns() - began) / 1e3 / (double)n,
		.switches = (switches_now() - switches) / (double)n,
	};
}

static void forced(uint64_t n)
{
	static const char *const devices[] = { "cpu cores=1", "cpu cores=1" };
	struct inproc_host *h = inproc_start(devices, 2);
	struct gantry_session *s;
	const struct gantry_ledger_queue *led;
	uint64_t done;
	struct cost without, with;
	gantry_queue q;
	uint32_t index;

	bench_must(inproc_open(h, NULL, &s, &index), "open");
	bench_must(gantry_queue_open(s, NULL, &q), "queue");
	led = &h->sessions[index].ledger.queues[GANTRY_HANDLE_SLOT(q)];
	(void)alternate(s, q, n / 100 + 1, true);
	without = alternate(s, q, n, false);
	done = led->done;
	with = alternate(s, q, n, true);
	bench_print("forced_moves", (double)n, "");
	bench_print("forced_moves_lost", (double)(n - (led->done - done) + led->nfailed), "");
	bench_print("forced_move_us", with.us - without.us, "us");
	bench_print("forced_task_us", without.us, "us");
	bench_print("forced_move_switches", with.switches - without.switches, "");
	bench_print("forced_task_switches", without.switches, "");
	gantry_close(s);
	inproc_stop(h);
}

int main(int argc, char **argv)
{
	uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 0) : 1024;
	uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 0) : 890000;

	if (mib < 16 || mib % 16 || mib > MAX_PARTS || n == 0) {
		fprintf(stderr, "usage: bench-migrate [MIB [MOVES]], MIB a multiple of 16\n");
		return 2;
	}
	large(mib);
	forced(n);
	bench_replicas(mib < 64 ? mib : 64, n / 20000 + 32);
	return 0;
}
