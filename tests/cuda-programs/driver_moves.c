/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work on one device that goes on and on, checked at every step, while the host moves it to another: until the file argv[2] ends. What
 * argv[3] says it has besides: "variable", "reserved", "shared", "array" and "conditions" belong to a device; "both" works on two; with
 * "long" a kernel of argv[4], an image, runs for 14 seconds; with "turns" there is always one of it that waits for what is put later.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda-programs/attributes.h"
#include "tests/cuda-programs/parts.h"

#define N	65536
#define CHECKED 16 /* rounds until results are looked at */

static int called_enough;

struct work {
	CUmodule module;
	CUfunction saxpy;
	CUstream streams[2];
	CUevent first;
	CUdeviceptr ones, x, y; /* x grows by 1 each round, y by x */
	float *seen;		/* pinned */
	CUgraphExec graph;
	uint64_t rounds;
	double expected; /* of each of y */
};

static void add(const struct work *w, CUstream stream, CUdeviceptr from, CUdeviceptr to)
{
	float a = 1;
	int32_t n = N;
	CUdeviceptr x = from, y = to;
	void *params[] = { &n, &a, &x, &y };

	OK(cuLaunchKernel(w->saxpy, N / 256, 1, 1, 256, 1, 1, 0, stream, params, NULL));
}

static void load(struct work *w, const char *path)
{
	OK(cuModuleLoad(&w->module, path));
	OK(cuModuleGetFunction(&w->saxpy, w->module, "saxpy"));
	set_attributes(w->saxpy);
	check_attributes(w->saxpy);
}

/* What a round does, as a graph: its addresses are in it. */
static void capture(struct work *w)
{
	CUgraph graph;

	OK(cuStreamBeginCapture(w->streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
	add(w, w->streams[0], w->ones, w->x);
	OK(cuStreamEndCapture(w->streams[0], &graph));
	OK(cuGraphInstantiate(&w->graph, graph, 0));
	OK(cuGraphDestroy(graph));
}

static void start(struct work *w, const char *path)
{
	load(w, path);
	for (int i = 0; i < 2; i++)
		OK(cuStreamCreate(&w->streams[i], CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&w->first, CU_EVENT_DEFAULT));
	OK(cuMemAlloc(&w->ones, N * sizeof(float)));
	OK(cuMemAlloc(&w->x, N * sizeof(float)));
	OK(cuMemAlloc(&w->y, N * sizeof(float)));
	OK(cuMemHostAlloc((void **)&w->seen, N * sizeof(float), 0));
	OK(cuMemsetD32(w->ones, 0x3f800000, N));
	OK(cuMemsetD32(w->x, 0, N));
	OK(cuMemsetD32(w->y, 0, N));
	OK(cuCtxSynchronize()); /* streams that do not block wait for no fill */
	capture(w);
}

/* A small whole number of rounds at a time, so that floats stay exact: then x and y begin anew. */
static void step(struct work *w)
{
	OK(cuGraphLaunch(w->graph, w->streams[0]));
	OK(cuEventRecord(w->first, w->streams[0]));
	OK(cuStreamWaitEvent(w->streams[1], w->first, 0));
	add(w, w->streams[1], w->x, w->y);
	OK(cuEventRecord(w->first, w->streams[1]));
	OK(cuStreamWaitEvent(w->streams[0], w->first, 0));
	w->rounds++;
	w->expected += (double)w->rounds;
	if (w->rounds % CHECKED)
		return;
	OK(cuMemcpyDtoHAsync(w->seen, w->y, N * sizeof(float), w->streams[1]));
	OK(cuStreamSynchronize(w->streams[1]));
	for (int i = 0; i < N; i++)
		CHECK((double)w->seen[i] == w->expected);
	if (w->rounds < 64 * CHECKED)
		return;
	OK(cuMemsetD32Async(w->x, 0, N, w->streams[1]));
	OK(cuMemsetD32Async(w->y, 0, N, w->streams[1]));
	OK(cuStreamSynchronize(w->streams[1]));
	w->rounds = 0;
	w->expected = 0;
}

/* Memory that comes and goes, and a stream, as allocators of frameworks do. */
static void churn(void)
{
	CUdeviceptr some;
	CUstream stream;
	uint32_t word = 0;

	OK(cuMemAlloc(&some, 3 << 20));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemsetD32Async(some + (2 << 20), 0x12345678, 1, stream));
	OK(cuMemcpyDtoHAsync(&word, some + (2 << 20), sizeof(word), stream));
	OK(cuStreamSynchronize(stream));
	CHECK(word == 0x12345678);
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(some));
}

/* Beside the rest, until long after a move has begun. */
static void run_long(const char *path)
{
	uint64_t ns = 14000000000u;
	void *params[] = { &ns };
	CUfunction spin;
	CUmodule module;
	CUstream stream;

	OK(cuModuleLoad(&module, path));
	OK(cuModuleGetFunction(&spin, module, "spin_ns"));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* Whether its other end has been closed. */
static int has_ended(int fd)
{
	char byte;
	ssize_t n = read(fd, &byte, 1);

	return n == 0 || (n < 0 && errno != EAGAIN);
}

/* A kernel in one of two streams by turns, which ends once the next one is there and this has been put behind it. */
struct turns {
	CUfunction until;
	CUdeviceptr words[2];
	CUstream streams[2], other;
};

static void begin_turn(struct turns *t, int turn)
{
	void *params[] = { &t->words[turn % 2] };

	OK(cuMemsetD32Async(t->words[turn % 2], 0, 2, t->streams[turn % 2]));
	OK(cuLaunchKernel(t->until, 1, 1, 1, 1, 1, 1, 0, t->streams[turn % 2], params, NULL));
}

static void end_turn(const struct turns *t, int turn)
{
	OK(cuMemsetD32Async(t->words[turn % 2], 1, 2, t->other));
	OK(cuStreamSynchronize(t->streams[turn % 2]));
}

/* Meanwhile, calls that the host answers: each is to come back. */
static void *call(void *arg)
{
	CUstream stream;

	OK(cuCtxSetCurrent(arg));
	while (!__atomic_load_n(&called_enough, __ATOMIC_ACQUIRE)) {
		OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		OK(cuStreamDestroy(stream));
		(void)usleep(20000);
	}
	return NULL;
}

static void work_by_turns(CUcontext ctx, const char *path, int fd)
{
	struct turns t;
	CUmodule module;
	pthread_t caller;
	int turn = 0;

	OK(cuModuleLoad(&module, path));
	OK(cuModuleGetFunction(&t.until, module, "until"));
	OK(cuStreamCreate(&t.other, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 2; i++) {
		OK(cuStreamCreate(&t.streams[i], CU_STREAM_NON_BLOCKING));
		OK(cuMemAlloc(&t.words[i], 8));
	}
	CHECK(pthread_create(&caller, NULL, call, ctx) == 0);
	for (begin_turn(&t, turn); !has_ended(fd); turn++) {
		begin_turn(&t, turn + 1);
		(void)usleep(30000);
		end_turn(&t, turn);
		if (turn == 2)
			printf("working\n");
	}
	end_turn(&t, turn);
	__atomic_store_n(&called_enough, 1, __ATOMIC_RELEASE);
	CHECK(pthread_join(caller, NULL) == 0);
}

struct seen_device {
	char name[100];
	CUuuid uuid;
	size_t bytes;
	int major, count;
};

static struct seen_device look(void)
{
	struct seen_device seen;

	memset(&seen, 0, sizeof(seen));
	OK(cuDeviceGetCount(&seen.count));
	OK(cuDeviceGetName(seen.name, sizeof(seen.name), 0));
	OK(cuDeviceGetUuid_v2(&seen.uuid, 0));
	OK(cuDeviceTotalMem(&seen.bytes, 0));
	OK(cuDeviceGetAttribute(&seen.major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
	return seen;
}

static void have(const struct work *w, const char *what)
{
	CUDA_ARRAY_DESCRIPTOR plane = { 16, 16, CU_AD_FORMAT_FLOAT, 1 };
	CUdeviceptr variable, reserved;
	CUipcMemHandle handle;
	CUcontext other, mine;
	CUgraphConditionalHandle condition;
	CUgraph graph;
	CUarray array;
	size_t bytes;

	if (strcmp(what, "variable") == 0) {
		OK(cuModuleGetGlobal(&variable, &bytes, w->module, "factor"));
	} else if (strcmp(what, "reserved") == 0) {
		OK(cuMemAddressReserve(&reserved, 64 << 20, 0, 0, 0));
	} else if (strcmp(what, "shared") == 0) {
		OK(cuMemAlloc(&variable, 4096));
		OK(cuIpcGetMemHandle(&handle, variable));
	} else if (strcmp(what, "array") == 0) {
		OK(cuArrayCreate(&array, &plane));
	} else if (strcmp(what, "conditions") == 0) {
		OK(cuGraphCreate(&graph, 0));
		OK(cuGraphConditionalHandleCreate(&condition, graph, NULL, 0, 0));
	} else if (strcmp(what, "both") == 0) {
		OK(cuCtxGetCurrent(&mine));
		OK(cuDevicePrimaryCtxRetain(&other, 1));
		OK(cuCtxSetCurrent(other));
		OK(cuMemAlloc(&variable, 4096));
		OK(cuCtxSetCurrent(mine));
	}
}

int main(int argc, char **argv)
{
	struct work w = { 0 };
	struct seen_device before, after;
	CUcontext ctx;
	bool is_long;
	int fd;

	if (argc < 3)
		return 2;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	begin("moves");
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	before = look();
	start(&w, argv[1]);
	if (argc > 4 && strcmp(argv[3], "long") == 0)
		run_long(argv[4]);
	else if (argc > 3)
		have(&w, argv[3]);
	fd = open(argv[2], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	CHECK(fd >= 0);
	is_long = argc > 4 && strcmp(argv[3], "long") == 0;
	if (argc > 4 && strcmp(argv[3], "turns") == 0)
		work_by_turns(ctx, argv[4], fd);
	for (int n = 0; !has_ended(fd); n++) {
		step(&w);
		if (n % CHECKED == 5)
			check_attributes(w.saxpy);
		if (n % CHECKED == 3)
			churn();
		if (n == CHECKED)
			printf("working\n");
		/* What it frees is not free before the long kernel ends: not too much of that. */
		if (is_long)
			(void)usleep(20000);
	}
	check_attributes(w.saxpy);
	after = look();
	CHECK(memcmp(&before, &after, sizeof(before)) == 0);
	/* What is loaded now is of the device of now. */
	OK(cuCtxSynchronize());
	OK(cuModuleUnload(w.module));
	load(&w, argv[1]);
	w.rounds = 0;
	w.expected = 0;
	OK(cuMemsetD32(w.x, 0, N));
	OK(cuMemsetD32(w.y, 0, N));
	OK(cuCtxSynchronize());
	capture(&w);
	for (int n = 0; n < 2 * CHECKED; n++)
		step(&w);
	OK(cuCtxSynchronize());
	end();
	return 0;
}
