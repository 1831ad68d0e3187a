/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory management as programs use it: addresses first, memory behind them piece by piece. argv[1] is the image with
 * kernels.cuh's kernels. With argv[2] the last part waits for that file to end, while the worker dies.
 */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda-programs/parts.h"

#define MIB ((size_t)1 << 20)

static CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes =
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
static const CUmemAccessDesc all = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
				     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
static const CUmemAccessDesc look = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
				      .flags = CU_MEM_ACCESS_FLAGS_PROT_READ };
static const CUmemAccessDesc none = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
				      .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE };
static CUfunction kernel;
static size_t granule;

static CUmemGenericAllocationHandle create(size_t bytes)
{
	CUmemGenericAllocationHandle handle;

	OK(cuMemCreate(&handle, bytes, &prop, 0));
	return handle;
}

/* As allocators do it: the handle is given up once it is mapped. */
static void put(CUdeviceptr at, size_t bytes)
{
	CUmemGenericAllocationHandle handle = create(bytes);

	OK(cuMemMap(at, bytes, 0, handle, 0));
	OK(cuMemSetAccess(at, bytes, &all, 1));
	OK(cuMemRelease(handle));
}

static float sum(CUdeviceptr x, int32_t n)
{
	void *params[] = { &x, &n, NULL };
	float result = 0;
	CUdeviceptr out;

	OK(cuMemAlloc(&out, sizeof(result)));
	OK(cuMemsetD32(out, 0, 1));
	params[2] = &out;
	/* The last block may have more threads than there are numbers. */
	OK(cuLaunchKernel(kernel, (unsigned int)(n + 255) / 256, 1, 1, 256, 1, 1, 0, 0, params,
			  NULL));
	OK(cuMemcpyDtoH(&result, out, sizeof(result)));
	OK(cuMemFree(out));
	return result;
}

static void announced(void)
{
	CUmemAllocationProp other = prop;
	int there = 0;
	size_t bytes = 0;

	begin("announced");
	OK(cuDeviceGetAttribute(&there, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
				0));
	CHECK(there == 1);
	OK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	OK(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	CHECK(granule >= 4096 && (granule & (granule - 1)) == 0 && bytes % granule == 0);
	other.location.id = 99;
	IS(cuMemGetAllocationGranularity(&bytes, &other, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
	   INVALID_DEVICE);
	other = prop;
	other.type = CU_MEM_ALLOCATION_TYPE_INVALID;
	IS(cuMemGetAllocationGranularity(&bytes, &other, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
	   INVALID_VALUE);
	IS(cuMemGetAllocationGranularity(NULL, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
	   INVALID_VALUE);
	end();
}

static void reserved(void)
{
	CUdeviceptr a, b, c;
	void *own;

	begin("reserved");
	OK(cuMemAddressReserve(&a, 1024 * MIB, 0, 0, 0));
	OK(cuMemAddressReserve(&b, 64 * MIB, 64 * MIB, 0, 0));
	CHECK(a % granule == 0 && b % (64 * MIB) == 0);
	CHECK(b >= a + 1024 * MIB || b + 64 * MIB <= a);
	/* A place that is free may be wished for, and is a wish only. */
	OK(cuMemAddressReserve(&c, 2 * MIB, 0, a + 512 * MIB, 0));
	CHECK(c + 2 * MIB <= a || c >= a + 1024 * MIB);
	OK(cuMemAddressFree(c, 2 * MIB));
	IS(cuMemAddressReserve(&c, 2 * MIB + 1, 0, 0, 0), INVALID_VALUE);
	IS(cuMemAddressReserve(&c, 0, 0, 0, 0), INVALID_VALUE);
	IS(cuMemAddressReserve(&c, 2 * MIB, 3, 0, 0), INVALID_VALUE);
	IS(cuMemAddressReserve(&c, 2 * MIB, 0, 0, 1), INVALID_VALUE);
	IS(cuMemAddressReserve(NULL, 2 * MIB, 0, 0, 0), INVALID_VALUE);
	IS(cuMemAddressFree(a, 512 * MIB), INVALID_VALUE);
	IS(cuMemAddressFree(a + granule, 1024 * MIB - granule), INVALID_VALUE);
	OK(cuMemAddressFree(a, 1024 * MIB));
	IS(cuMemAddressFree(a, 1024 * MIB), INVALID_VALUE);
	/* Where the program has something of its own meanwhile, another place will do. */
	own = mmap((void *)(uintptr_t)a, granule, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(own == (void *)(uintptr_t)a);
	OK(cuMemAddressReserve(&c, 1024 * MIB, 0, 0, 0));
	CHECK(c >= a + granule || c + 1024 * MIB <= a);
	OK(cuMemAddressFree(c, 1024 * MIB));
	CHECK(munmap(own, granule) == 0);
	OK(cuMemAddressFree(b, 64 * MIB));
	end();
}

/* A segment that grows, as PyTorch's does: pieces one behind the other are one memory. */
static void grown(void)
{
	static uint32_t words[3 * 1024];
	size_t piece = 2 * granule, bytes;
	CUdeviceptr at, base;
	unsigned int type = 0;

	begin("grown");
	OK(cuMemAddressReserve(&at, 64 * granule, 0, 0, 0));
	put(at, piece);
	OK(cuMemsetD32(at, 0x3f800000, piece / 4)); /* 1.0 */
	CHECK(sum(at, 1000) == 1000);
	put(at + piece, piece);
	put(at + 2 * piece, granule);
	OK(cuMemsetD32(at, 0x40000000, (2 * piece + granule) / 4)); /* 2.0, over all three */
	CHECK(sum(at + piece - 4 * 500, 1000) == 2000);
	for (size_t i = 0; i < sizeof(words) / 4; i++)
		words[i] = (uint32_t)i;
	/* Copies over the seam, from and to the host, and on the device. */
	OK(cuMemcpyHtoD(at + piece - 4096, words, sizeof(words)));
	memset(words, 0, sizeof(words));
	OK(cuMemcpyDtoD(at + 2 * piece - 100, at + piece - 4096, sizeof(words)));
	OK(cuMemcpyDtoH(words, at + 2 * piece - 100, sizeof(words)));
	for (size_t i = 0; i < sizeof(words) / 4; i++)
		CHECK(words[i] == i);
	OK(cuMemsetD2D8(at + piece - 300, 200, 7, 100, 4));
	OK(cuMemcpyDtoH(words, at + piece - 300, 700));
	CHECK(((uint8_t *)words)[0] == 7 && ((uint8_t *)words)[699] == 7);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + piece));
	CHECK(type == CU_MEMORYTYPE_DEVICE);
	OK(cuMemGetAddressRange(&base, &bytes, at + piece + 5));
	CHECK(base == at + piece && bytes == piece);
	IS(cuMemFree(at), INVALID_VALUE);
	OK(cuMemUnmap(at, 2 * piece + granule));
	OK(cuMemAddressFree(at, 64 * granule));
	end();
}

static void granted(void)
{
	CUmemLocation here = all.location;
	unsigned long long flags = 99;
	uint32_t word = 5;
	CUdeviceptr at;

	begin("granted");
	OK(cuMemAddressReserve(&at, 4 * granule, 0, 0, 0));
	put(at, granule);
	put(at + granule, granule);
	OK(cuMemGetAccess(&flags, &here, at));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(cuMemsetD32(at, 5, 2 * granule / 4));
	OK(cuMemSetAccess(at + granule, granule, &look, 1));
	OK(cuMemGetAccess(&flags, &here, at + granule + 17));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
	OK(cuMemcpyDtoH(&word, at + granule, 4));
	CHECK(word == 5);
	IS(cuMemcpyHtoD(at + granule, &word, 4), INVALID_VALUE);
	/* Nothing of it is written where not all may be. */
	IS(cuMemsetD32(at, 6, 2 * granule / 4), INVALID_VALUE);
	OK(cuMemcpyDtoH(&word, at, 4));
	CHECK(word == 5);
	OK(cuMemSetAccess(at, 2 * granule, &none, 1));
	OK(cuMemGetAccess(&flags, &here, at));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
	IS(cuMemcpyDtoH(&word, at, 4), INVALID_VALUE);
	OK(cuMemSetAccess(at, 2 * granule, &all, 1));
	OK(cuMemcpyDtoH(&word, at, 4));
	CHECK(word == 5);
	IS(cuMemGetAccess(&flags, &here, at + 3 * granule), INVALID_VALUE);
	OK(cuMemUnmap(at, 2 * granule));
	IS(cuMemcpyDtoH(&word, at, 4), INVALID_VALUE);
	/* A new mapping begins without access. */
	put(at, granule);
	OK(cuMemUnmap(at, granule));
	OK(cuMemAddressFree(at, 4 * granule));
	end();
}

/* What memory holds goes where it goes. */
/* It is a wish, by CUDA's documentation: the memory says whether it was met. */
static void not_compressed(void)
{
	CUmemAllocationProp wish = prop, got;
	CUmemGenericAllocationHandle handle;
	int has = 1;

	begin("not compressed");
	OK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, 0));
	CHECK(is_native || has == 0);
	wish.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
	OK(cuMemCreate(&handle, granule, &wish, 0));
	OK(cuMemGetAllocationPropertiesFromHandle(&got, handle));
	CHECK(has || got.allocFlags.compressionType == CU_MEM_ALLOCATION_COMP_NONE);
	OK(cuMemRelease(handle));
	end();
}

static void moved(void)
{
	CUmemGenericAllocationHandle handle = 0, again = 0;
	CUmemAllocationProp got;
	CUdeviceptr at;

	begin("moved");
	OK(cuMemAddressReserve(&at, 8 * granule, 0, 0, 0));
	handle = create(3 * granule);
	OK(cuMemMap(at, 3 * granule, 0, handle, 0));
	OK(cuMemSetAccess(at, 3 * granule, &all, 1));
	OK(cuMemsetD32(at, 0x3f800000, 3 * granule / 4));
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + granule)));
	CHECK(again == handle);
	OK(cuMemRelease(again));
	OK(cuMemUnmap(at, 3 * granule));
	OK(cuMemMap(at + 4 * granule, 3 * granule, 0, handle, 0));
	OK(cuMemSetAccess(at + 4 * granule, 3 * granule, &look, 1));
	CHECK(sum(at + 4 * granule, 1234) == 1234);
	OK(cuMemGetAllocationPropertiesFromHandle(&got, handle));
	CHECK(got.type == prop.type && got.location.type == prop.location.type &&
	      got.location.id == 0 && got.allocFlags.compressionType == 0);
	OK(cuMemRelease(handle));
	/* Its last handle is gone, it is not. */
	CHECK(sum(at + 5 * granule, 100) == 100);
	OK(cuMemUnmap(at + 4 * granule, 3 * granule));
	OK(cuMemAddressFree(at, 8 * granule));
	end();
}

static void misused(void)
{
	CUmemGenericAllocationHandle handle, other;
	CUmemAllocationProp odd = prop;
	CUmemAccessDesc bad = all;
	unsigned long long flags;
	CUdeviceptr at;
	int fd;

	begin("misused");
	OK(cuMemAddressReserve(&at, 16 * granule, 0, 0, 0));
	IS(cuMemCreate(&handle, granule + 1, &prop, 0), INVALID_VALUE);
	IS(cuMemCreate(&handle, 0, &prop, 0), INVALID_VALUE);
	IS(cuMemCreate(&handle, granule, &prop, 1), INVALID_VALUE);
	IS(cuMemCreate(&handle, granule, NULL, 0), INVALID_VALUE);
	odd.location.id = -1;
	IS(cuMemCreate(&handle, granule, &odd, 0), INVALID_DEVICE);
	handle = create(2 * granule);
	other = create(granule);
	/* Where it cannot lie. */
	IS(cuMemMap(at + 1, 2 * granule, 0, handle, 0), INVALID_VALUE);
	IS(cuMemMap(at, 2 * granule, granule, handle, 0), INVALID_VALUE);
	IS(cuMemMap(at, 2 * granule, 0, handle, 1), INVALID_VALUE);
	IS(cuMemMap(at, 3 * granule, 0, handle, 0), INVALID_VALUE);
	IS(cuMemMap(at, 0, 0, handle, 0), INVALID_VALUE);
	IS(cuMemMap(at + 15 * granule, 2 * granule, 0, handle, 0), INVALID_VALUE);
	IS(cuMemMap(at - 2 * granule, 2 * granule, 0, handle, 0), INVALID_VALUE);
	BAD(cuMemMap(at, 2 * granule, 0, 0, 0), INVALID_VALUE);
	BAD(cuMemMap(at, 2 * granule, 0, (CUmemGenericAllocationHandle)(uintptr_t)&at, 0),
	    INVALID_VALUE);
	OK(cuMemMap(at + granule, 2 * granule, 0, handle, 0));
	/* Twice, and what is under it. */
	IS(cuMemMap(at + 2 * granule, granule, 0, other, 0), INVALID_VALUE);
	IS(cuMemMap(at + granule, granule, 0, other, 0), INVALID_VALUE);
	BAD(cuMemMap(at + 8 * granule, 2 * granule, 0, handle, 0), NOT_SUPPORTED);
	IS(cuMemAddressFree(at, 16 * granule), INVALID_VALUE);
	/* Parts of it, and more than it. */
	IS(cuMemUnmap(at + granule, granule), INVALID_VALUE);
	IS(cuMemUnmap(at + 2 * granule, granule), INVALID_VALUE);
	IS(cuMemUnmap(at + granule, 3 * granule), INVALID_VALUE);
	IS(cuMemUnmap(at + 8 * granule, granule), INVALID_VALUE);
	IS(cuMemUnmap(at + granule, 0), INVALID_VALUE);
	IS(cuMemUnmap(at, (size_t)-1), INVALID_VALUE);
	IS(cuMemSetAccess(at + granule, granule, &all, 1), INVALID_VALUE);
	IS(cuMemSetAccess(at, 3 * granule, &all, 1), INVALID_VALUE);
	IS(cuMemSetAccess(at + granule, 2 * granule, NULL, 1), INVALID_VALUE);
	IS(cuMemSetAccess(at + granule, 2 * granule, &all, 0), INVALID_VALUE);
	bad.flags = 2;
	IS(cuMemSetAccess(at + granule, 2 * granule, &bad, 1), INVALID_VALUE);
	bad = all;
	bad.location.id = 77;
	IS(cuMemSetAccess(at + granule, 2 * granule, &bad, 1), INVALID_DEVICE);
	IS(cuMemGetAccess(&flags, &bad.location, at + granule), INVALID_DEVICE);
	BAD(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
	    NOT_SUPPORTED);
	BAD(cuMemRetainAllocationHandle(&other, (void *)(uintptr_t)at), INVALID_VALUE);
	OK(cuMemUnmap(at + granule, 2 * granule));
	IS(cuMemUnmap(at + granule, 2 * granule), INVALID_VALUE);
	OK(cuMemRelease(handle));
	BAD(cuMemRelease(handle), INVALID_VALUE);
	BAD(cuMemMap(at, 2 * granule, 0, handle, 0), INVALID_VALUE);
	OK(cuMemRelease(other));
	OK(cuMemAddressFree(at, 16 * granule));
	end();
}

/* Memory that there is not is refused where it is made, and what is given back can be had again. */
static void exhausted(void)
{
	enum {
		MOST = 4096
	};
	static CUmemGenericAllocationHandle handles[MOST];
	size_t was, now, total, piece;
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr at;
	int n = 0;

	begin("exhausted");
	OK(cuMemGetInfo(&was, &total));
	/* A dozen or so, whatever there is. */
	piece = (was / 12 + granule) / granule * granule;
	while (n < MOST && (result = cuMemCreate(&handles[n], piece, &prop, 0)) == CUDA_SUCCESS)
		n++;
	CHECK(result == CUDA_ERROR_OUT_OF_MEMORY && n > 2);
	OK(cuMemGetInfo(&now, &total));
	CHECK(now <= was - (size_t)n * piece);
	OK(cuMemAddressReserve(&at, piece, 0, 0, 0));
	OK(cuMemMap(at, piece, 0, handles[--n], 0));
	OK(cuMemSetAccess(at, piece, &all, 1));
	OK(cuMemsetD8(at, 1, piece));
	OK(cuMemUnmap(at, piece));
	OK(cuMemRelease(handles[n]));
	put(at, piece);
	OK(cuMemUnmap(at, piece));
	OK(cuMemAddressFree(at, piece));
	while (n > 0)
		OK(cuMemRelease(handles[--n]));
	end();
}

static void wait_for_end(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char byte;

	CHECK(fd >= 0);
	printf("waiting\n");
	CHECK(read(fd, &byte, 1) == 0);
	(void)close(fd);
}

/* What kernels know by its address alone is where it was when another worker has the session. */
static void outlived(const char *path)
{
	CUmemGenericAllocationHandle kept;
	CUdeviceptr at;
	float one = 1;

	begin("outlived");
	OK(cuMemAddressReserve(&at, 64 * granule, 0, 0, 0));
	put(at, 2 * granule);
	put(at + 2 * granule, granule);
	kept = create(granule);
	OK(cuMemMap(at + 8 * granule, granule, 0, kept, 0));
	OK(cuMemSetAccess(at + 8 * granule, granule, &look, 1));
	OK(cuMemsetD32(at, 0x3f800000, 3 * granule / 4));
	CHECK(sum(at, 1000) == 1000);
	wait_for_end(path);
	CHECK(sum(at + 2 * granule - 4 * 500, 1000) == 1000);
	IS(cuMemcpyHtoD(at + 8 * granule, &one, sizeof(one)), INVALID_VALUE);
	OK(cuMemSetAccess(at + 8 * granule, granule, &all, 1));
	OK(cuMemcpyHtoD(at + 8 * granule, &one, sizeof(one)));
	CHECK(sum(at + 8 * granule, 1) == 1);
	OK(cuMemUnmap(at + 8 * granule, granule));
	OK(cuMemMap(at + 3 * granule, granule, 0, kept, 0));
	OK(cuMemSetAccess(at + 3 * granule, granule, &all, 1));
	CHECK(sum(at + 3 * granule - 4 * 9, 10) == 10);
	OK(cuMemRelease(kept));
	OK(cuMemUnmap(at, 4 * granule));
	OK(cuMemAddressFree(at, 64 * granule));
	end();
}

int main(int argc, char **argv)
{
	CUmodule module;
	CUcontext ctx;

	if (argc != 2 && argc != 3)
		return 2;
	is_native = argc == 3 && strcmp(argv[2], "native") == 0;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	begin("start");
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuModuleLoad(&module, argv[1]));
	OK(cuModuleGetFunction(&kernel, module, "sum"));
	announced();
	if (argc == 3 && !is_native) {
		outlived(argv[2]);
		return 0;
	}
	reserved();
	grown();
	granted();
	not_compressed();
	moved();
	misused();
	exhausted();
	return 0;
}
