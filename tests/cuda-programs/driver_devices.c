/* SPDX-License-Identifier: Apache-2.0 */
/* A program that has made more streams on its first device than its session has queues, and then comes to another. */
#include <stdint.h>

#include "tests/cuda-programs/parts.h"

#define STREAMS 100u

static void write_and_read(CUcontext ctx, CUstream stream)
{
	uint32_t word = 0;
	CUdeviceptr p;

	OK(cuCtxSetCurrent(ctx));
	OK(cuMemAlloc(&p, 4));
	OK(cuMemsetD32Async(p, 7, 1, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH(&word, p, 4));
	CHECK(word == 7);
	OK(cuMemFree(p));
}

int main(void)
{
	CUcontext first = set_out(), other;
	CUstream streams[STREAMS], beyond;

	begin("more streams than queues");
	for (unsigned int i = 0; i < STREAMS; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	write_and_read(first, streams[STREAMS - 1]);
	end();

	begin("another device behind them");
	OK(cuDevicePrimaryCtxRetain(&other, 1));
	write_and_read(other, NULL);
	OK(cuStreamCreate(&beyond, CU_STREAM_NON_BLOCKING));
	write_and_read(other, beyond);
	end();

	for (unsigned int i = 0; i < STREAMS; i++)
		OK(cuStreamDestroy(streams[i]));
	return 0;
}
