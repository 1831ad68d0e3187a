/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest of the confinement tests:
 *	confine-guest escape AGENT VICTIM   what kernel escape could do, a line each: NAME ERRNO
 *	confine-guest hold [ADDRESS]        opens a session, prints where its segment is, ends with its input; ADDRESS
 *	                                    is occupied beforehand
 *	confine-guest speak                 for each line WHAT A B what kernel speak answers (speak.h)
 *	confine-guest orphan                opens a session, forks; the parent ends, its child keeps everything open
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest-shim/gantry.h"
#include "tests/system/confine/escape.h"

#define TIMEOUT_NS INT64_C(20000000000)
#define N	   256u

static int failed(const char *what)
{
	printf("%s: %s\n", what, gantry_last_error());
	fflush(stdout);
	return 1;
}

static int run(struct gantry_session *s, gantry_queue queue, const struct gantry_task *task)
{
	gantry_ticket ticket;
	int r = gantry_submit(s, queue, task, 1, &ticket);

	return r < 0 ? r : gantry_wait(s, &ticket, 1, TIMEOUT_NS);
}

/* Through the device's library: its code was mapped, and its threads started, under the filter. */
static int multiply(struct gantry_session *s, gantry_queue queue)
{
	struct {
		uint64_t a, b, c;
		uint32_t m, n, k;
	} args = { .m = N, .n = N, .k = N };
	struct gantry_access access[3];
	struct gantry_task task = {
		.args = &args, .args_bytes = sizeof(args), .access = access, .naccess = 3
	};
	static float values[N * N];
	gantry_buffer buffers[3];

	for (unsigned i = 0; i < N * N; i++)
		values[i] = 1;
	for (unsigned i = 0; i < 3; i++) {
		if (gantry_alloc(s, sizeof(values), 0, &buffers[i]) < 0 ||
		    gantry_write(s, buffers[i], 0, values, sizeof(values)) < 0)
			return failed("buffers");
		access[i] = (struct gantry_access){ .buffer = buffers[i],
						    .mode = i < 2 ? GANTRY_R : GANTRY_W,
						    .arg_off = (uint16_t)(8 * i) };
	}
	if (gantry_kernel_find(s, "gemm", NULL, &task.kernel) < 0 || run(s, queue, &task) < 0 ||
	    gantry_read(s, buffers[2], 0, values, sizeof(values)) < 0)
		return failed("gemm");
	for (unsigned i = 0; i < N * N; i++)
		if (values[i] != (float)N) {
			printf("gemm: element %u is %f\n", i, (double)values[i]);
			return 1;
		}
	return 0;
}

static int escape(struct gantry_session *s, uint64_t agent, uint64_t victim)
{
	static const char *const names[] = {
#define ESCAPE_NAME(name) #name,
		ESCAPES(ESCAPE_NAME)
#undef ESCAPE_NAME
	};
	struct {
		uint64_t out, agent, victim, address;
	} args = { .agent = agent, .victim = victim, .address = (uintptr_t)names };
	struct gantry_access access = { .mode = GANTRY_W, .arg_off = 0 };
	struct gantry_task task = {
		.args = &args, .args_bytes = sizeof(args), .access = &access, .naccess = 1
	};
	int32_t errnos[ESCAPE_COUNT];
	gantry_queue queue;

	if (gantry_queue_open(s, NULL, &queue) < 0 ||
	    gantry_alloc(s, sizeof(errnos), 0, &access.buffer) < 0 ||
	    gantry_kernel_find(s, "escape", NULL, &task.kernel) < 0 || run(s, queue, &task) < 0 ||
	    gantry_read(s, access.buffer, 0, errnos, sizeof(errnos)) < 0)
		return failed("escape");
	for (int i = 0; i < ESCAPE_COUNT; i++)
		printf("%s %d\n", names[i], errnos[i]);
	if (multiply(s, queue))
		return 1;
	printf("still serving\n");
	fflush(stdout);
	return getchar() == EOF ? 0 : 1;
}

static int speak(struct gantry_session *s)
{
	struct {
		uint64_t out, what, a, b;
	} args = { 0 };
	struct gantry_access access = { .mode = GANTRY_W, .arg_off = 0 };
	struct gantry_task task = {
		.args = &args, .args_bytes = sizeof(args), .access = &access, .naccess = 1
	};
	int64_t answer = 0;
	gantry_queue queue;
	char line[128];

	if (gantry_queue_open(s, NULL, &queue) < 0 ||
	    gantry_alloc(s, sizeof(answer), 0, &access.buffer) < 0 ||
	    gantry_kernel_find(s, "speak", NULL, &task.kernel) < 0)
		return failed("speak");
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64, &args.what, &args.a,
			   &args.b) != 3)
			return 2;
		if (run(s, queue, &task) < 0 ||
		    gantry_read(s, access.buffer, 0, &answer, sizeof(answer)) < 0)
			return failed("speak");
		printf("answer %" PRId64 "\n", answer);
		fflush(stdout);
	}
	return 0;
}

static int hold(struct gantry_session *s)
{
	struct gantry_props props;

	if (gantry_props_get(s, GANTRY_KIND_ANY, &props) < 0)
		return failed("properties");
	printf("session %" PRIu64 " translated %u\n", props.session_id, props.translated);
	fflush(stdout);
	return getchar() == EOF ? 0 : 1;
}

static int orphan(void)
{
	pid_t child = fork();

	if (child == 0) {
		/* Holds what the parent had until its input ends. */
		(void)!getchar();
		_exit(0);
	}
	printf("child %d\n", (int)child);
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	struct gantry_session *s;
	int r;

	if (strcmp(verb, "hold") == 0 && argc > 2 &&
	    mmap((void *)(uintptr_t)strtoull(argv[2], NULL, 16), 4096, PROT_READ,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED) {
		printf("cannot occupy %s\n", argv[2]);
		return 1;
	}
	if (gantry_open(NULL, NULL, &s) < 0)
		return failed("open");
	if (strcmp(verb, "escape") == 0 && argc > 3)
		r = escape(s, strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
	else if (strcmp(verb, "hold") == 0)
		r = hold(s);
	else if (strcmp(verb, "speak") == 0)
		r = speak(s);
	else if (strcmp(verb, "orphan") == 0)
		r = orphan();
	else
		r = 2;
	gantry_close(s);
	return r;
}
