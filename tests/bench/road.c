/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The road of an empty task in one process, for profilers: bench-road [TASKS [BATCH [DEVICE [IMAGE]]]]
 * With an image, its kernel "empty" is taken, and the device is shared as a GPU is.
 * A batch of 0 waits for each task before the next: round trips.
 *
 *   valgrind --tool=callgrind --separate-threads=yes --fair-sched=yes bench-road 64000
 *   perf stat bench-road 4000000
 *
 * tests/bench/road-cost runs the first of these and prints instructions per task, by function.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/fd.h"
#include "host-agent/shared/share.h"
#include "tests/bench/bench.h"
#include "tests/inproc/inproc.h"

#define MAX_BATCH 4096u
#define IMAGE_MAX (64u << 20)

/* Half of @batch is with the worker while the other half is put. */
static int run(struct gantry_session *s, gantry_queue q, const struct gantry_task *tasks,
	       uint64_t n, unsigned batch)
{
	gantry_ticket before = 0;
	gantry_ticket last = 0;
	int r = 0;

	for (uint64_t i = 0; i < n && r == 0; i += batch) {
		before = last;
		r = gantry_submit(s, q, tasks, batch, &last);
		if (r == 0 && before)
			r = gantry_wait(s, &before, 1, GANTRY_FOREVER);
	}
	return r == 0 ? gantry_wait(s, &last, 1, GANTRY_FOREVER) : r;
}

static int trips(struct gantry_session *s, gantry_queue q, const struct gantry_task *task,
		 uint64_t n, struct bench_samples *samples)
{
	gantry_ticket t;
	int r = 0;

	for (uint64_t i = 0; i < n && r == 0; i++) {
		uint64_t start = gantry_cycles();

		r = gantry_submit(s, q, task, 1, &t);
		if (r == 0)
			r = gantry_wait(s, &t, 1, GANTRY_FOREVER);
		bench_sample(samples, gantry_cycles() - start);
	}
	return r;
}

/* The kernel of a file that the device takes; NULL: the installed one. */
static int find_empty(struct gantry_session *s, const char *path, gantry_kernel *ret_kernel)
{
	char *bytes = NULL;
	gantry_image image;
	size_t nbytes;
	int r;

	if (!path)
		return gantry_kernel_find(s, "empty", NULL, ret_kernel);
	if (gantry_file_read(path, IMAGE_MAX, &bytes, &nbytes) < 0) {
		fprintf(stderr, "bench-road: cannot read %s\n", path);
		return -1;
	}
	r = gantry_image_load(s, GANTRY_KIND_CUDA, bytes, nbytes, &image);
	free(bytes);
	return r < 0 ? r : gantry_kernel_from(s, image, "empty", "void", ret_kernel);
}

int main(int argc, char **argv)
{
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;
	unsigned batch = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 32;
	const char *const devices[] = { argc > 3 ? argv[3] : "cpu cores=1" };
	const char *image = argc > 4 ? argv[4] : NULL;
	static struct gantry_task tasks[MAX_BATCH];
	struct inproc_host *host;
	struct gantry_session *s;
	gantry_kernel empty;
	gantry_queue q;
	uint32_t index;
	struct bench_samples samples = { 0 };
	uint64_t start_ns, ns;
	int r;

	if (batch > MAX_BATCH || n < batch)
		return 2;
	if (batch == 0)
		bench_samples_init(&samples, n);
	else
		n -= n % batch;
	host = inproc_start(devices, 1);
	gantry_share_set_gpu(host->pages[0], image != NULL, 0);
	r = inproc_open(host, NULL, &s, &index);
	if (r == 0)
		r = gantry_queue_open(s, NULL, &q);
	if (r == 0)
		r = find_empty(s, image, &empty);
	for (unsigned i = 0; i < MAX_BATCH; i++)
		tasks[i] = (struct gantry_task){ .kernel = empty,
						 .grid = { 1, 1, 1 },
						 .block = { 1, 1, 1 } };
	if (r == 0)
		r = run(s, q, tasks, 100, 100);
	start_ns = gantry_now_ns();
	if (r == 0)
		r = batch ? run(s, q, tasks, n, batch) : trips(s, q, tasks, n, &samples);
	ns = gantry_now_ns() - start_ns;
	if (r < 0) {
		fprintf(stderr, "bench-road: %s\n", gantry_last_error());
		return 1;
	}
	printf("{\"tasks\":%llu,\"ns_per_task\":%.1f,\"tasks_per_s\":%.0f", (unsigned long long)n,
	       (double)ns / (double)n, (double)n * 1e9 / (double)ns);
	if (batch == 0) {
		printf(",");
		bench_samples_print(&samples);
		bench_samples_fini(&samples);
	}
	printf("}\n");
	gantry_close(s);
	inproc_stop(host);
	return 0;
}
