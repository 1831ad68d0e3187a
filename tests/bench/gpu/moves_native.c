/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a move between two GPUs is compared with, by hand over the driver API:
 *
 *   open [N]            contexts on the first N GPUs: 2
 *   peer BYTES N        a copy from the one to the other, N times: the median and the best
 *   own BYTES           device memory on the first GPU, filled; it stays
 *   checkpoint PID      NVIDIA's process checkpoint of another program and its way back: cuCheckpointProcess*, of drivers
 *                       since CUDA 12.8
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

/* Their names in the library, where cuda.h renames them by macros. */
#define TEXT(name)   #name
#define SYMBOL(name) TEXT(name)

#define CALLS(X)                    \
	X(cuInit)                   \
	X(cuDeviceGet)              \
	X(cuDeviceCanAccessPeer)    \
	X(cuDevicePrimaryCtxRetain) \
	X(cuCtxSetCurrent)          \
	X(cuCtxEnablePeerAccess)    \
	X(cuStreamCreate)           \
	X(cuStreamSynchronize)      \
	X(cuMemAlloc)               \
	X(cuMemFree)                \
	X(cuMemsetD8Async)          \
	X(cuMemcpyPeerAsync)        \
	X(cuGetErrorName)

static struct {
#define MEMBER(name) __typeof__(&name) name##_call;
	CALLS(MEMBER)
} cu;

#define NGPUS 2

static void *library;
static CUdevice devices[NGPUS];
static CUcontext contexts[NGPUS];
static CUstream streams[NGPUS];

static int failed(const char *what, CUresult r)
{
	const char *name = "?";

	if (cu.cuGetErrorName_call)
		(void)cu.cuGetErrorName_call(r, &name); /* an unknown one keeps the question mark */
	bench_fail("%s: %s", what, name);
	return -1;
}

#define TRY(call, ...)                                             \
	do {                                                       \
		CUresult try_result = cu.call##_call(__VA_ARGS__); \
		if (try_result != CUDA_SUCCESS)                    \
			return failed(#call, try_result);          \
	} while (0)

static int load_driver(void)
{
	const char *path = getenv("GANTRY_TEST_CUDA_DRIVER");
	void *symbol;

	library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
	if (!library) {
		bench_fail("%s", dlerror());
		return -1;
	}
#define RESOLVE(name)                                             \
	symbol = dlsym(library, SYMBOL(name));                    \
	if (!symbol) {                                            \
		bench_fail("the driver has no %s", SYMBOL(name)); \
		return -1;                                        \
	}                                                         \
	memcpy(&cu.name##_call, &symbol, sizeof(symbol));
	CALLS(RESOLVE)
	return 0;
}

static int open_gpus(int n)
{
	if (load_driver() < 0)
		return -1;
	TRY(cuInit, 0);
	for (int i = 0; i < n; i++) {
		TRY(cuDeviceGet, &devices[i], i);
		TRY(cuDevicePrimaryCtxRetain, &contexts[i], devices[i]);
		TRY(cuCtxSetCurrent, contexts[i]);
		TRY(cuStreamCreate, &streams[i], CU_STREAM_NON_BLOCKING);
	}
	for (int i = 0; n == NGPUS && i < n; i++) {
		int can = 0;

		TRY(cuDeviceCanAccessPeer, &can, devices[i], devices[!i]);
		TRY(cuCtxSetCurrent, contexts[i]);
		if (can)
			TRY(cuCtxEnablePeerAccess, contexts[!i], 0);
	}
	return 0;
}

static void cmd_open(const struct bench_args *args)
{
	int n = bench_arg(args, 0, NGPUS) == 1 ? 1 : NGPUS;

	if (open_gpus(n) == 0)
		printf("{\"opened\":%d}\n", n);
}

static int take(int gpu, uint64_t bytes, CUdeviceptr *ret_ptr)
{
	TRY(cuCtxSetCurrent, contexts[gpu]);
	TRY(cuMemAlloc, ret_ptr, bytes);
	TRY(cuMemsetD8Async, *ret_ptr, 7, bytes, streams[gpu]);
	TRY(cuStreamSynchronize, streams[gpu]);
	return 0;
}

/* On the destination's stream, as Gantry's are. */
static int copy_once(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
	TRY(cuMemcpyPeerAsync, to, contexts[1], from, contexts[0], bytes, streams[1]);
	TRY(cuStreamSynchronize, streams[1]);
	return 0;
}

static int give_back(CUdeviceptr from, CUdeviceptr to)
{
	TRY(cuMemFree, to);
	TRY(cuCtxSetCurrent, contexts[0]);
	TRY(cuMemFree, from);
	return 0;
}

static void cmd_peer(const struct bench_args *args)
{
	uint64_t bytes = bench_arg(args, 0, 1ull << 30), n = bench_arg(args, 1, 5);
	struct bench_samples s;
	CUdeviceptr from, to;
	int r = 0;

	if (take(0, bytes, &from) < 0 || take(1, bytes, &to) < 0)
		return;
	bench_samples_init(&s, n);
	for (uint64_t i = 0; i <= n && r == 0; i++) {
		uint64_t start = gantry_cycles();

		r = copy_once(to, from, bytes);
		if (i > 0)
			bench_sample(&s, gantry_cycles() - start);
	}
	if (r == 0 && give_back(from, to) == 0)
		printf("{\"ns\":%.0f,\"best_ns\":%.0f}\n", bench_quantile(&s, .5),
		       bench_quantile(&s, 0));
	bench_samples_fini(&s);
}

static void cmd_own(const struct bench_args *args)
{
	uint64_t bytes = bench_arg(args, 0, 1ull << 30);
	CUdeviceptr ptr;

	if (take(0, bytes, &ptr) == 0)
		printf("{\"owned\":%llu}\n", (unsigned long long)bytes);
}

/* What all four take behind the pid is optional. */
typedef CUresult (*process_call)(int pid, void *args);

static void cmd_checkpoint(const struct bench_args *args)
{
	static const char *const steps[] = { "Lock", "Checkpoint", "Restore", "Unlock" };
	int pid = (int)bench_arg(args, 0, 0);
	uint64_t ns[4];

	for (int i = 0; i < 4; i++) {
		char name[64];
		process_call call;
		uint64_t start;
		void *symbol;
		CUresult r;

		(void)snprintf(name, sizeof(name), "cuCheckpointProcess%s", steps[i]); /* it fits */
		symbol = dlsym(library, name);
		if (!symbol) {
			bench_fail("the driver has no %s", name);
			return;
		}
		memcpy(&call, &symbol, sizeof(call));
		start = gantry_now_ns();
		r = call(pid, NULL);
		ns[i] = gantry_now_ns() - start;
		if (r != CUDA_SUCCESS) {
			(void)failed(name, r);
			return;
		}
	}
	printf("{\"lock_ns\":%llu,\"checkpoint_ns\":%llu,\"restore_ns\":%llu,\"unlock_ns\":%llu}\n",
	       (unsigned long long)ns[0], (unsigned long long)ns[1], (unsigned long long)ns[2],
	       (unsigned long long)ns[3]);
}

int main(void)
{
	static const struct bench_command commands[] = {
		{ "open", cmd_open }, { "peer", cmd_peer },
		{ "own", cmd_own },   { "checkpoint", cmd_checkpoint },
		{ NULL, NULL },
	};

	return bench_serve(commands);
}
