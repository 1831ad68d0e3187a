/* SPDX-License-Identifier: Apache-2.0 */
/* Many copies in one call, and what a program says of its managed memory. */
#include <stdint.h>
#include <string.h>

#include "tests/cuda-programs/parts.h"

#define N 64

static CUdeviceptr device; /* 2 * N * 4 bytes, and as many again */
static uint32_t *pinned;
static CUstream stream;

static CUmemcpyAttributes order(CUmemcpySrcAccessOrder is)
{
	return (CUmemcpyAttributes){ .srcAccessOrder = is };
}

static CUdeviceptr at(const void *host)
{
	return (CUdeviceptr)(uintptr_t)host;
}

static void CUDA_CB write_nine(void *data)
{
	*(uint32_t *)data = 9;
}

static void bytes_in_one_call(void)
{
	uint32_t here[N], back[N] = { 0 }, late = 1;
	CUmemcpyAttributes attributes[] = { order(CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL),
					    order(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) };
	CUdeviceptr dsts[] = { device, device + 4 * N, at(back) };
	CUdeviceptr srcs[] = { at(here), at(pinned), 0 };
	size_t sizes[] = { 4 * N, 4 * N, 4 * N }, from[] = { 0, 2 };

	begin("bytes in one call");
	for (uint32_t i = 0; i < N; i++) {
		here[i] = i;
		pinned[i] = 100 + i;
	}
	OK(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, from, 1, stream));
	/* Both were read during the call. */
	memset(here, 0xff, sizeof(here));
	memset(pinned, 0xff, 4 * N);
	dsts[0] = at(back);
	srcs[0] = device;
	dsts[1] = at(pinned);
	srcs[1] = device + 4 * N;
	attributes[0].flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
	OK(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, from, 1, stream));
	OK(cuStreamSynchronize(stream));
	for (uint32_t i = 0; i < N; i++)
		CHECK(back[i] == i && pinned[i] == 100 + i);
	/* What the stream itself writes before is what is copied, also of the program's own memory. */
	OK(cuLaunchHostFunc(stream, write_nine, &late));
	dsts[0] = device;
	srcs[0] = at(&late);
	sizes[0] = 4;
	dsts[1] = device + 4;
	srcs[1] = device + 8;
	sizes[1] = 0;
	dsts[2] = device + 4;
	srcs[2] = at(&late);
	sizes[2] = 4;
	attributes[0] = order(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
	OK(cuMemcpyBatchAsync(dsts, srcs, sizes, 3, attributes, from, 2, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH(back, device, 8));
	CHECK(back[0] == 9 && back[1] == 9);
	end();
}

static void bytes_misused(void)
{
	CUmemcpyAttributes attributes[] = { order(CU_MEMCPY_SRC_ACCESS_ORDER_ANY),
					    order(CU_MEMCPY_SRC_ACCESS_ORDER_ANY) };
	CUdeviceptr dsts[] = { device, device + 16 }, srcs[] = { device + 32, device + 64 };
	size_t sizes[] = { 4, 4 }, from[] = { 0, 1 };

	begin("bytes misused");
	OK(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, from, 2, stream));
	IS(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, from, 2, NULL), INVALID_VALUE);
	IS(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, from, 2, CU_STREAM_LEGACY),
	   INVALID_VALUE);
	BAD(cuMemcpyBatchAsync(NULL, srcs, sizes, 2, attributes, from, 1, stream), INVALID_VALUE);
	BAD(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, NULL, from, 1, stream), INVALID_VALUE);
	IS(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, from, 0, stream), INVALID_VALUE);
	IS(cuMemcpyBatchAsync(dsts, srcs, sizes, 1, attributes, from, 2, stream), INVALID_VALUE);
	from[0] = 1;
	IS(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, from, 1, stream), INVALID_VALUE);
	from[0] = from[1] = 0;
	IS(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, from, 2, stream), INVALID_VALUE);
	from[1] = 2;
	IS(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, from, 2, stream), INVALID_VALUE);
	attributes[0] = order(CU_MEMCPY_SRC_ACCESS_ORDER_INVALID);
	IS(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, from, 1, stream), INVALID_VALUE);
	attributes[0] = order(CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
	attributes[0].flags = 2;
	BAD(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, from, 1, stream), INVALID_VALUE);
	attributes[0].flags = 0;
	sizes[1] = (size_t)1 << 40;
	BAD(cuMemcpyBatchAsync(dsts, srcs, sizes, 2, attributes, from, 1, stream), INVALID_VALUE);
	OK(cuStreamSynchronize(stream));
	end();
}

static CUmemcpy3DOperand pointer(CUdeviceptr is, size_t row, size_t height)
{
	CUmemcpy3DOperand end = { .type = CU_MEMCPY_OPERAND_TYPE_POINTER };

	end.op.ptr.ptr = is;
	end.op.ptr.rowLength = row;
	end.op.ptr.layerHeight = height;
	return end;
}

static CUmemcpy3DOperand array_at(CUarray array, size_t x, size_t y)
{
	CUmemcpy3DOperand end = { .type = CU_MEMCPY_OPERAND_TYPE_ARRAY };

	end.op.array.array = array;
	end.op.array.offset = (CUoffset3D){ x, y, 0 };
	return end;
}

static void boxes_in_one_call(void)
{
	const CUDA_ARRAY_DESCRIPTOR desc = {
		.Width = 8, .Height = 8, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1
	};
	CUDA_MEMCPY3D_BATCH_OP ops[3] = { 0 };
	uint8_t here[64], back[64] = { 0 };
	uint32_t words[4] = { 1, 2, 3, 4 }, got[4] = { 0 };
	CUarray array;

	begin("boxes in one call");
	for (unsigned int i = 0; i < 64; i++)
		here[i] = (uint8_t)i;
	OK(cuArrayCreate(&array, &desc));
	OK(cuMemsetD8(device, 0, 256));
	OK(cuCtxSynchronize());
	/* 3 x 2 bytes of rows of 8, planes of 4 rows, twice; they lie close there. */
	ops[0].src = pointer(at(here), 8, 4);
	ops[0].dst = pointer(device, 0, 0);
	ops[0].extent = (CUextent3D){ 3, 2, 2 };
	ops[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
	/* Elements of the array, 2 x 2 of them. */
	ops[1].src = pointer(at(words), 0, 0);
	ops[1].dst = array_at(array, 3, 5);
	ops[1].extent = (CUextent3D){ 2, 2, 1 };
	ops[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
	OK(cuMemcpy3DBatchAsync(2, ops, 0, stream));
	ops[0].src = array_at(array, 4, 5);
	ops[0].dst = pointer(at(got), 2, 0);
	ops[0].extent = (CUextent3D){ 1, 2, 1 };
	OK(cuMemcpy3DBatchAsync(1, ops, 0, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(got[0] == 2 && got[1] == 0 && got[2] == 4);
	OK(cuMemcpyDtoH(back, device, 13));
	CHECK(!memcmp(back, (uint8_t[]){ 0, 1, 2, 8, 9, 10, 32, 33, 34, 40, 41, 42, 0 }, 13));
	IS(cuMemcpy3DBatchAsync(1, ops, 0, NULL), INVALID_VALUE);
	BAD(cuMemcpy3DBatchAsync(0, ops, 0, stream), INVALID_VALUE);
	BAD(cuMemcpy3DBatchAsync(1, NULL, 0, stream), INVALID_VALUE);
	IS(cuMemcpy3DBatchAsync(1, ops, 1, stream), INVALID_VALUE);
	ops[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
	BAD(cuMemcpy3DBatchAsync(2, ops, 0, stream), INVALID_VALUE);
	ops[0].extent.depth = 0;
	IS(cuMemcpy3DBatchAsync(1, ops, 0, stream), INVALID_VALUE);
	ops[0].extent = (CUextent3D){ 3, 1, 1 };
	IS(cuMemcpy3DBatchAsync(1, ops, 0, stream), INVALID_VALUE); /* rows of 2 */
	ops[0].dst.type = (CUmemcpy3DOperandType)7;
	BAD(cuMemcpy3DBatchAsync(1, ops, 0, stream), INVALID_VALUE);
	OK(cuStreamSynchronize(stream));
	OK(cuArrayDestroy(array));
	end();
}

/* ---- managed memory ---- */

#define PAGE 4096u

static int of(CUmem_range_attribute attribute, CUdeviceptr from, size_t bytes)
{
	int value = 77;

	OK(cuMemRangeGetAttribute(&value, sizeof(value), attribute, from, bytes));
	return value;
}

static void said_of_managed_memory(void)
{
	const CUmemLocation gpu = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 };
	const CUmemLocation host = { .type = CU_MEM_LOCATION_TYPE_HOST };
	const CUmemLocation nowhere = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99 };
	CUmem_range_attribute attributes[] = { CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
					       CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY };
	int list[3], one;
	void *results[] = { &one, list };
	size_t sizes[] = { sizeof(one), sizeof(list) };
	CUdeviceptr m;

	begin("said of managed memory");
	OK(cuMemAllocManaged(&m, 8 * PAGE, CU_MEM_ATTACH_GLOBAL));
	memset((void *)(uintptr_t)m, 3, 8 * PAGE);
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, 8 * PAGE) == 0);
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, m, PAGE) == CU_DEVICE_INVALID);
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, m, PAGE) == CU_DEVICE_INVALID);
	OK(cuMemAdvise(m + PAGE, 4 * PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu));
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m + PAGE, 4 * PAGE) == 1);
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m + 2 * PAGE, 1) == 1);
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, 2 * PAGE) == 0);
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m + 4 * PAGE, 2 * PAGE) == 0);
	OK(cuMemAdvise(m + 2 * PAGE, PAGE, CU_MEM_ADVISE_UNSET_READ_MOSTLY, gpu));
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m + PAGE, 2 * PAGE) == 0);
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m + 3 * PAGE, 2 * PAGE) == 1);
	OK(cuMemAdvise(m, 8 * PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, gpu));
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, m, 8 * PAGE) == 0);
	OK(cuMemAdvise(m, PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, m, PAGE) == CU_DEVICE_CPU);
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, m, 2 * PAGE) == CU_DEVICE_INVALID);
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, m + PAGE, PAGE) ==
	      CU_MEM_LOCATION_TYPE_DEVICE);
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, m + PAGE, PAGE) == 0);
	OK(cuMemAdvise(m, 8 * PAGE, CU_MEM_ADVISE_SET_ACCESSED_BY, gpu));
	OK(cuMemAdvise(m, 8 * PAGE, CU_MEM_ADVISE_SET_ACCESSED_BY, host));
	OK(cuMemRangeGetAttributes(results, sizes, attributes, 2, m + 3 * PAGE, PAGE));
	CHECK(one == 1 && list[2] == CU_DEVICE_INVALID &&
	      ((list[0] == 0 && list[1] == CU_DEVICE_CPU) ||
	       (list[1] == 0 && list[0] == CU_DEVICE_CPU)));
	OK(cuMemAdvise(m, PAGE, CU_MEM_ADVISE_UNSET_ACCESSED_BY, gpu));
	OK(cuMemRangeGetAttribute(list, sizeof(list), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, m,
				  2 * PAGE));
	CHECK(list[0] == CU_DEVICE_CPU && list[1] == CU_DEVICE_INVALID);
	/* It may be asked to be anywhere, and what it holds is what it held. */
	OK(cuMemPrefetchAsync(m, 8 * PAGE, gpu, 0, stream));
	OK(cuStreamSynchronize(stream));
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, m, 8 * PAGE) == 0);
	OK(cuMemPrefetchAsync(m + PAGE, PAGE, host, 0, stream));
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, m + PAGE, PAGE) == CU_DEVICE_CPU);
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, m + PAGE, PAGE) ==
	      CU_MEM_LOCATION_TYPE_HOST);
	OK(cuStreamSynchronize(stream));
	for (size_t i = 0; i < 8 * PAGE; i += 509)
		CHECK(((volatile unsigned char *)(uintptr_t)m)[i] == 3);
	IS(cuMemAdvise(device, 256, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu), INVALID_VALUE);
	BAD(cuMemAdvise(m, 9 * PAGE, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu), INVALID_VALUE);
	BAD(cuMemAdvise(m, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu), INVALID_VALUE);
	IS(cuMemAdvise(m, PAGE, (CUmem_advise)99, gpu), INVALID_VALUE);
	IS(cuMemAdvise(m, PAGE, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, nowhere), INVALID_DEVICE);
	IS(cuMemPrefetchAsync(m, PAGE, nowhere, 0, stream), INVALID_DEVICE);
	IS(cuMemPrefetchAsync(m, PAGE, gpu, 1, stream), INVALID_VALUE);
	IS(cuMemPrefetchAsync(device, 256, gpu, 0, stream), INVALID_VALUE);
	IS(cuMemRangeGetAttribute(&one, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, PAGE),
	   INVALID_VALUE);
	BAD(cuMemRangeGetAttribute(NULL, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m, PAGE),
	    INVALID_VALUE);
	IS(cuMemRangeGetAttribute(&one, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, device, 256),
	   INVALID_VALUE);
	IS(cuMemRangeGetAttribute(&one, 4, (CUmem_range_attribute)99, m, PAGE), INVALID_VALUE);
	OK(cuMemFree(m));
	/* Nothing was said of what comes there next. */
	OK(cuMemAllocManaged(&m, 8 * PAGE, CU_MEM_ATTACH_GLOBAL));
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, m + 3 * PAGE, PAGE) == 0);
	CHECK(of(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, m, PAGE) == CU_DEVICE_INVALID);
	OK(cuMemFree(m));
	end();
}

int main(int argc, char **argv)
{
	void *memory;

	(void)argv;
	is_native = argc == 2;
	(void)set_out();
	OK(cuMemAlloc(&device, 16 * N));
	OK(cuMemAllocHost(&memory, 4 * N));
	pinned = memory;
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	bytes_in_one_call();
	bytes_misused();
	boxes_in_one_call();
	said_of_managed_memory();
	return 0;
}
