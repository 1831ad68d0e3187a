/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What calls of the Runtime API cost, as frameworks make them: prints "ready", then "NAME CALLS WALL_NS CPU_NS" for each sort, of one call
 * in the mean: the wall's time until all is done, and the processor time of this thread. Arguments: how many calls (100000), the sort.
 */
#include <cstring>
#include <ctime>

#include "kernels.cuh"
#include "runtime_parts.cuh"

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return double(t.tv_sec) * 1e9 + double(t.tv_nsec);
}

static float *x, *y;
static cudaStream_t stream;
static cudaEvent_t event;

static void plain()
{
	saxpy<<<1, 32, 0, stream>>>(1, 1.f, x, y);
}

/* As PyTorch does before and after each kernel. */
static void asked()
{
	cudaStreamCaptureStatus status;
	int device;

	OK(cudaGetDevice(&device));
	OK(cudaStreamIsCapturing(stream, &status));
	plain();
	OK(cudaGetLastError());
}

static void recorded()
{
	plain();
	OK(cudaEventRecord(event, stream));
	(void)cudaEventQuery(event);
}

static void filled()
{
	OK(cudaMemsetAsync(y, 0, 4, stream));
}

static void copied()
{
	OK(cudaMemcpyAsync(y, x, 128, cudaMemcpyDeviceToDevice, stream));
}

static void waited()
{
	plain();
	OK(cudaStreamSynchronize(stream));
}

static void fetched()
{
	float value;

	plain();
	OK(cudaMemcpyAsync(&value, y, 4, cudaMemcpyDeviceToHost, stream));
	OK(cudaStreamSynchronize(stream));
}

static void two_kernels()
{
	plain();
	number<<<1, 32, 0, stream>>>(pair{ x, 1, {} }, 1);
}

static const char *only;

static void measure(const char *name, void (*call)(), int n)
{
	double wall, cpu;

	if (only && strcmp(only, name) != 0)
		return;
	for (int i = 0; i < n / 10 + 1; i++)
		call();
	OK(cudaStreamSynchronize(stream));
	wall = now(CLOCK_MONOTONIC);
	cpu = now(CLOCK_THREAD_CPUTIME_ID);
	for (int i = 0; i < n; i++)
		call();
	OK(cudaStreamSynchronize(stream));
	printf("%s %d %.0f %.0f\n", name, n, (now(CLOCK_MONOTONIC) - wall) / n,
	       (now(CLOCK_THREAD_CPUTIME_ID) - cpu) / n);
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 100000;

	only = argc > 2 ? argv[2] : nullptr;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);

	OK(cudaMalloc(&x, 4096));
	OK(cudaMalloc(&y, 4096));
	OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	printf("ready\n");
	measure("launch", plain, n);
	measure("launch_asked", asked, n);
	measure("two_kernels", two_kernels, n);
	measure("launch_recorded", recorded, n);
	measure("fill", filled, n);
	measure("copy_within", copied, n);
	measure("launch_waited", waited, n / 20 + 1);
	measure("launch_fetched", fetched, n / 20 + 1);
	OK(cudaStreamDestroy(stream));
	OK(cudaFree(x));
	OK(cudaFree(y));
	return 0;
}
