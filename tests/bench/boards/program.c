/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of a workload, as a guest: bench-board-program KERNEL opens a session at $GANTRY_DOOR, finds the kernel, and says "ok". At each line
 * "LAUNCHES" of its input it puts so many launches into its queue, waits for the last, looks at the result, and answers "done NANOSECONDS",
 * of CLOCK_MONOTONIC. With BYTES behind KERNEL the buffers are so large, each launch reads what the one before wrote, and of that many bytes the kernel works on the first
 * 4096.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "guest-shim/gantry.h"

#define N	  1024u
#define MAX_TRIES 5u

static struct gantry_session *session;
static gantry_queue queue;
static gantry_buffer buffers[2];
static struct gantry_task task;
static int32_t in[N], out[N];
static uint64_t buffer_bytes = sizeof(in);
static bool chained;

static void need(int r, const char *what)
{
	if (r >= 0)
		return;
	printf("err %s: %s\n", what, gantry_last_error());
	exit(1);
}

static void open_session(const char *kernel)
{
	const struct gantry_queue_options options = { .kind = GANTRY_KIND_FPGA };
	unsigned int ntries = 0;
	int r;

	/* On a busy machine the first worker takes its time to try all images. */
	do
		r = gantry_open(NULL, NULL, &session);
	while (r < 0 && ++ntries < MAX_TRIES);
	need(r, "gantry_open");
	need(gantry_queue_open(session, &options, &queue), "gantry_queue_open");
	for (unsigned int i = 0; i < N; i++)
		in[i] = (int32_t)i * 7;
	for (int i = 0; i < 2; i++)
		need(gantry_alloc(session, buffer_bytes, 0, &buffers[i]), "gantry_alloc");
	need(gantry_write(session, buffers[0], 0, in, sizeof(in)), "gantry_write");
	need(gantry_kernel_find(session, kernel, NULL, &task.kernel), kernel);
	printf("ok\n");
}

static void run(unsigned int launches)
{
	const struct {
		uint64_t a, c;
		uint32_t n, pad;
	} args = { .n = N };
	struct gantry_access access[] = {
		{ .mode = GANTRY_R, .arg_off = 0 },
		{ .mode = GANTRY_W, .arg_off = 8 },
	};
	struct timespec now;
	gantry_ticket last;

	task.args = &args;
	task.args_bytes = sizeof(args);
	task.access = access;
	task.naccess = 2;
	for (unsigned int i = 0; i < launches; i++) {
		access[0].buffer = buffers[chained && i % 2];
		access[1].buffer = buffers[!chained || i % 2 == 0];
		need(gantry_submit(session, queue, &task, 1, &last), "gantry_submit");
	}
	need(gantry_wait(session, &last, 1, GANTRY_FOREVER), "gantry_wait");
	need(gantry_read(session, access[1].buffer, 0, out, sizeof(out)), "gantry_read");
	clock_gettime(CLOCK_MONOTONIC, &now);
	for (unsigned int i = 0; i < N; i++)
		if (out[i] != in[i] + (chained ? (int32_t)launches : 1)) {
			printf("err element %u is wrong\n", i);
			exit(1);
		}
	printf("done %" PRIu64 "\n", (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
}

int main(int argc, char **argv)
{
	unsigned int launches;
	char line[32];

	if (argc != 2 && argc != 3)
		return 2;
	chained = argc == 3;
	if (chained)
		buffer_bytes = strtoull(argv[2], NULL, 10);
	if (buffer_bytes < sizeof(in))
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_session(argv[1]);
	while (fgets(line, sizeof(line), stdin) && sscanf(line, "%u", &launches) == 1)
		run(launches);
	gantry_close(session);
	return 0;
}
