/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed variables over the Driver API: driver_managed IMAGE, then nothing, or "taken": addresses that the program has for itself, or
 * a file, which is read to its end while the worker dies.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda-programs/parts.h"

static CUlibrary library;
static CUmodule module;
static CUfunction bump;

static void load(const char *path)
{
	OK(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetModule(&module, library));
	OK(cuModuleGetFunction(&bump, module, "managed_bump"));
}

static void put_bump(int by)
{
	void *params[] = { &by };

	OK(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL));
}

/* Asked of the kernel: the program may not have it. */
static int is_there(const void *at)
{
	int ends[2], is;

	CHECK(pipe(ends) == 0);
	is = write(ends[1], at, 1) == 1;
	(void)close(ends[0]);
	(void)close(ends[1]);
	return is;
}

static void looked_up(void)
{
	CUdeviceptr one, other;
	unsigned int is = 0;
	size_t bytes;
	int *count;

	begin("looked up");
	IS(cuLibraryGetManaged(NULL, NULL, library, "managed_count"), INVALID_VALUE);
	IS(cuLibraryGetManaged(&one, &bytes, library, "counter"),
	   NOT_FOUND); /* a variable of the device's alone */
	IS(cuLibraryGetManaged(&one, &bytes, library, "nobody"), NOT_FOUND);
	IS(cuLibraryGetManaged(&one, &bytes, library, NULL), INVALID_VALUE);
	OK(cuModuleGetGlobal(&one, &bytes, module, "managed_count"));
	CHECK(bytes == sizeof(int));
	bytes = 0;
	OK(cuLibraryGetManaged(&other, NULL, library, "managed_count"));
	OK(cuLibraryGetManaged(NULL, &bytes, library, "managed_count"));
	CHECK(one == other && bytes == sizeof(int));
	count = (int *)(uintptr_t)one;
	CHECK(*count == 7);
	*count = 30;
	put_bump(12);
	OK(cuCtxSynchronize());
	CHECK(*count == 42);
	OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_MANAGED, one));
	CHECK(is == 1);
	OK(cuModuleGetGlobal(&other, &bytes, module, "counter"));
	OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_MANAGED, other));
	CHECK(is == 0);
	end();
}

static void unloaded(void)
{
	CUdeviceptr count, table;
	size_t bytes;

	begin("unloaded");
	OK(cuLibraryGetManaged(&count, &bytes, library, "managed_count"));
	OK(cuLibraryGetManaged(&table, &bytes, library, "managed_table"));
	CHECK(is_there((void *)(uintptr_t)count) &&
	      is_there((void *)(uintptr_t)(table + bytes - 1)));
	OK(cuLibraryUnload(library));
	if (!is_native)
		CHECK(!is_there((void *)(uintptr_t)count) &&
		      !is_there((void *)(uintptr_t)(table + bytes - 1)));
	end();
}

/* The fake driver places it where it was; a real one may not, which is not what this asks then. */
static void taken(const char *path)
{
	CUdeviceptr table, again;
	CUresult is;
	size_t bytes;
	void *page;

	begin("taken");
	OK(cuLibraryGetManaged(&table, &bytes, library, "managed_table"));
	OK(cuLibraryUnload(library));
	page = (void *)(uintptr_t)((table + bytes - 1) & ~(CUdeviceptr)4095);
	CHECK(mmap(page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		   0) == page);
	load(path);
	is = cuLibraryGetManaged(&again, &bytes, library, "managed_table");
	if (is == CUDA_SUCCESS)
		CHECK(again != table);
	else
		must(is, CUDA_ERROR_NOT_SUPPORTED, __LINE__);
	CHECK(is_there(page) && !is_there((void *)(uintptr_t)table));
	/* Others are as good as they were. */
	OK(cuLibraryGetManaged(&again, &bytes, library, "managed_count"));
	put_bump(1);
	OK(cuCtxSynchronize());
	CHECK(*(int *)(uintptr_t)again == 8);
	end();
}

static void lost(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CUdeviceptr count;
	size_t bytes;
	char byte;
	int by = 1;
	void *params[] = { &by };
	CUresult is;

	begin("lost");
	CHECK(fd >= 0);
	OK(cuLibraryGetManaged(&count, &bytes, library, "managed_count"));
	printf("waiting\n");
	CHECK(read(fd, &byte, 1) == 0);
	/* Nobody goes on with what it held at first, or elsewhere. */
	is = cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL);
	if (is == CUDA_SUCCESS)
		is = cuCtxSynchronize();
	must(is, CUDA_ERROR_LAUNCH_FAILED, __LINE__);
	IS(cuCtxSynchronize(), LAUNCH_FAILED);
	CHECK(*(int *)(uintptr_t)count == 7);
	end();
}

int main(int argc, char **argv)
{
	CUcontext ctx;

	if (argc < 2)
		return 2;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	is_native = argc > 2 && strcmp(argv[2], "native") == 0;
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	load(argv[1]);
	if (argc > 2 && strcmp(argv[2], "taken") == 0) {
		taken(argv[1]);
	} else if (argc > 2 && !is_native) {
		lost(argv[2]);
	} else {
		looked_up();
		unloaded();
	}
	return 0;
}
