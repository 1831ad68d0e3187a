/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest program that the container tests run: container-guest work | loop | greedy BYTES
 *
 * work: one saxpy, checked. loop: saxpys until killed; prints "ready" after the first. greedy: asks for BYTES.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/gantry.h"

#define N	   1000u
#define TIMEOUT_NS INT64_C(20000000000)

struct args {
	float alpha;
	uint64_t x, y, n;
};

static int failed(const char *what)
{
	printf("%s: %s\n", what, gantry_last_error());
	return 1;
}

static int add_up(struct gantry_session *s, gantry_queue queue, gantry_kernel kernel,
		  gantry_buffer x, gantry_buffer y)
{
	struct args args = { .alpha = 2, .n = N };
	struct gantry_access access[] = {
		{ .buffer = x, .mode = GANTRY_R, .arg_off = offsetof(struct args, x) },
		{ .buffer = y, .mode = GANTRY_RW, .arg_off = offsetof(struct args, y) },
	};
	struct gantry_task task = {
		.kernel = kernel,
		.args = &args,
		.args_bytes = sizeof(args),
		.access = access,
		.naccess = 2,
	};
	float values[N];
	gantry_ticket ticket;

	for (unsigned i = 0; i < N; i++)
		values[i] = (float)i;
	if (gantry_write(s, x, 0, values, sizeof(values)) < 0 ||
	    gantry_write(s, y, 0, values, sizeof(values)) < 0)
		return failed("write");
	if (gantry_submit(s, queue, &task, 1, &ticket) < 0)
		return failed("submit");
	if (gantry_wait(s, &ticket, 1, TIMEOUT_NS) < 0)
		return failed("wait");
	if (gantry_read(s, y, 0, values, sizeof(values)) < 0)
		return failed("read");
	for (unsigned i = 0; i < N; i++)
		if (values[i] != 3 * (float)i) {
			printf("element %u is %f\n", i, (double)values[i]);
			return 1;
		}
	return 0;
}

static int work(struct gantry_session *s, int loop)
{
	struct gantry_props props;
	gantry_buffer x, y;
	gantry_kernel kernel;
	gantry_queue queue;

	if (gantry_props_get(s, GANTRY_KIND_ANY, &props) < 0 ||
	    gantry_queue_open(s, NULL, &queue) < 0 ||
	    gantry_kernel_find(s, "saxpy", "f32,r:f32*,rw:f32*,u64", &kernel) < 0 ||
	    gantry_alloc(s, N * sizeof(float), 0, &x) < 0 ||
	    gantry_alloc(s, N * sizeof(float), 0, &y) < 0)
		return failed("preparing");
	if (add_up(s, queue, kernel, x, y))
		return 1;
	printf("%s session=%" PRIu64 "\n", loop ? "ready" : "worked", props.session_id);
	fflush(stdout);
	while (loop)
		if (add_up(s, queue, kernel, x, y))
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "work";
	struct gantry_session *s;
	gantry_buffer buffer;
	int status;

	status = gantry_open(NULL, NULL, &s);
	if (status < 0) {
		printf("open: %d: %s\n", status, gantry_last_error());
		return 1;
	}
	if (strcmp(verb, "greedy") == 0 && argc > 2) {
		status = gantry_alloc(s, strtoull(argv[2], NULL, 10), GANTRY_ALLOC_DEVICE, &buffer);
		printf("greedy: %d\n", status);
		status = status == GANTRY_E_LIMIT ? 0 : 1;
	} else {
		status = work(s, strcmp(verb, "loop") == 0);
	}
	gantry_close(s);
	return status;
}
