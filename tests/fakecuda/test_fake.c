/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver behaves as cuda.h documents the real one, as far as other tests rely on it. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fakecuda/fake.h"
#include "tests/fakecuda/group.h"
#include "tests/unit/runner.h"

#define OK(call)   ck_assert_int_eq((call), CUDA_SUCCESS)
#define SLAB_BYTES (4ull << 20)
#define WINDOW	   0x200000000000ull

static CUcontext ctx;

static void begin(void)
{
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
}

static void end(void)
{
	OK(cuDevicePrimaryCtxRelease(0));
}

static CUfunction function(const char *name)
{
	CUmodule module;
	CUfunction func;

	OK(cuModuleLoadData(&module, FAKECUDA_PTX(TEST_KERNELS, "sm_90")));
	OK(cuModuleGetFunction(&func, module, name));
	return func;
}

static void launch(CUfunction func, CUstream stream, void **params)
{
	OK(cuLaunchKernel(func, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static CUmemAllocationProp prop_of(int ordinal)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes =
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR };

	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = ordinal;
	return prop;
}

START_TEST(test_commands_of_a_stream_run_in_order)
{
	CUstream stream;
	CUdeviceptr x;
	uint32_t factor = 3, expected = 1, is;

	begin();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc(&x, 4));
	OK(cuMemsetD32Async(x, 1, 1, stream));
	for (int i = 0; i < 100; i++) {
		launch(function("step"), stream, (void *[]){ &x, &factor });
		expected = expected * factor + 1;
	}
	factor = 0; /* parameters were copied */
	OK(cuMemcpyDtoHAsync(&is, x, 4, stream));
	OK(cuStreamSynchronize(stream));
	ck_assert_uint_eq(is, expected);
	end();
}
END_TEST

START_TEST(test_slab_outlives_its_maker_at_the_same_address)
{
	CUmemAllocationProp prop = prop_of(0);
	CUmemAccessDesc access = { prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr window;
	uint32_t word = 0;
	int fd;

	begin();
	OK(cuMemCreate(&handle, SLAB_BYTES, &prop, 0));
	OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	OK(cuMemRelease(handle));
	for (int round = 0; round < 2; round++) {
		OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		OK(cuMemAddressReserve(&window, 1ull << 40, 0, WINDOW, 0));
		if (window != WINDOW)
			gantry_unit_skip("the place of windows is taken (by a sanitizer)");
		OK(cuMemMap(window + SLAB_BYTES, SLAB_BYTES, 0, handle, 0));
		OK(cuMemRelease(handle));
		OK(cuMemSetAccess(window + SLAB_BYTES, SLAB_BYTES, &access, 1));
		if (round == 0)
			OK(cuMemsetD32(window + SLAB_BYTES, 0xabcd, SLAB_BYTES / 4));
		else
			OK(cuMemcpyDtoH(&word, window + 2 * SLAB_BYTES - 4, 4));
		ck_assert_int_eq(cuMemAddressFree(window, 1ull << 40), CUDA_ERROR_INVALID_VALUE);
		OK(cuMemUnmap(window + SLAB_BYTES, SLAB_BYTES));
		OK(cuMemAddressFree(window, 1ull << 40));
		end();
		begin();
	}
	ck_assert_uint_eq(word, 0xabcd);
	close(fd);
	end();
}
END_TEST

START_TEST(test_copy_to_where_nothing_is_mapped_is_an_illegal_address)
{
	CUdeviceptr window;
	uint32_t word = 1;

	begin();
	OK(cuMemAddressReserve(&window, SLAB_BYTES, 0, 0, 0));
	ck_assert_int_eq(cuMemcpyHtoD(window, &word, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	end();
}
END_TEST

/* Mapped memory is whose cuMemSetAccess says; cuMemcpyPeer alone asks each end's own context. */
START_TEST(test_copy_reaches_what_its_own_device_may_use)
{
	CUmemAllocationProp prop = prop_of(0);
	CUmemAccessDesc access[2] = { { prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE },
				      { prop_of(1).location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE } };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr window, there;
	CUcontext other;
	uint32_t word = 0;

	setenv("FAKECUDA_DEVICES", "2", 1);
	begin();
	OK(cuMemCreate(&handle, SLAB_BYTES, &prop, 0));
	OK(cuMemAddressReserve(&window, SLAB_BYTES, 0, 0, 0));
	OK(cuMemMap(window, SLAB_BYTES, 0, handle, 0));
	OK(cuMemSetAccess(window, SLAB_BYTES, access, 1));
	OK(cuMemsetD32(window, 0xabcd, SLAB_BYTES / 4));
	OK(cuDevicePrimaryCtxRetain(&other, 1));
	OK(cuCtxSetCurrent(other));
	OK(cuMemAlloc(&there, SLAB_BYTES));
	OK(cuMemcpyPeer(there, other, window, ctx, SLAB_BYTES));
	OK(cuMemcpyDtoH(&word, there, 4));
	ck_assert_uint_eq(word, 0xabcd);
	OK(cuMemSetAccess(window, SLAB_BYTES, access, 2));
	OK(cuMemcpyDtoD(there, window, SLAB_BYTES));
	OK(cuMemSetAccess(window, SLAB_BYTES, access, 1));
	ck_assert_int_eq(cuMemcpyDtoD(there, window, SLAB_BYTES), CUDA_ERROR_ILLEGAL_ADDRESS);
	OK(cuDevicePrimaryCtxRelease(1));
	OK(cuCtxSetCurrent(ctx));
	OK(cuMemUnmap(window, SLAB_BYTES));
	OK(cuMemAddressFree(window, SLAB_BYTES));
	OK(cuMemRelease(handle));
	end();
}
END_TEST

START_TEST(test_fault_is_every_later_call)
{
	static const struct {
		const char *name;
		CUresult code;
	} rows[] = { { "fault", CUDA_ERROR_ILLEGAL_ADDRESS },
		     { "trap", CUDA_ERROR_LAUNCH_FAILED },
		     { "assert", CUDA_ERROR_ASSERT } };
	CUdeviceptr ptr;
	uint32_t word = 0;

	begin();
	launch(function(rows[_i].name), NULL, NULL);
	/* Behind the fault nothing runs. */
	(void)cuMemHostRegister(&word, 4, 0);
	(void)cuStreamWriteValue32(NULL, (uintptr_t)&word, 1, 0);
	ck_assert_int_eq(cuCtxSynchronize(), rows[_i].code);
	ck_assert_int_eq(cuMemAlloc(&ptr, 16), rows[_i].code);
	ck_assert_int_eq(cuStreamQuery(NULL), rows[_i].code);
	ck_assert_uint_eq(word, 0);
	end();
}
END_TEST

START_TEST(test_endless_kernel_runs_until_its_context_ends)
{
	begin();
	launch(function("endless"), NULL, NULL);
	ck_assert_int_eq(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	end();
}
END_TEST

START_TEST(test_module_is_loaded_behind_the_kernels_of_its_context)
{
	CUfunction linger;
	CUdeviceptr out;
	void *params[] = { &out };
	CUstream stream;

	begin();
	linger = function("linger");
	OK(cuMemAlloc(&out, 4));
	OK(cuMemsetD32(out, 0, 1));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	launch(linger, stream, params);
	(void)function("linger");
	ck_assert_uint_eq(*(uint32_t *)(uintptr_t)out, 1);
	end();
}
END_TEST

START_TEST(test_streams_wait_for_values_and_events)
{
	static uint32_t word;
	CUstream one, two;
	CUevent event, last;
	float ms = -1;

	begin();
	OK(cuMemHostRegister(&word, 4, 0));
	OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, 0));
	OK(cuEventCreate(&last, 0));
	OK(cuStreamWaitValue32(one, (uintptr_t)&word, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuEventRecord(event, one));
	OK(cuStreamWaitEvent(two, event, 0));
	OK(cuStreamWriteValue32(two, (uintptr_t)&word, 2, 0));
	OK(cuEventRecord(last, two));
	ck_assert_int_eq(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(cuStreamQuery(two), CUDA_ERROR_NOT_READY);
	__atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
	OK(cuEventSynchronize(last));
	ck_assert_uint_eq(word, 2);
	OK(cuEventElapsedTime(&ms, event, last));
	ck_assert(ms >= 0);
	OK(cuEventDestroy(event));
	OK(cuEventDestroy(last));
	OK(cuStreamDestroy(one));
	OK(cuStreamDestroy(two));
	end();
}
END_TEST

START_TEST(test_ordered_failures_hit_the_call_they_name)
{
	CUdeviceptr ptr;

	setenv("FAKECUDA_FAIL", "cuMemAlloc:2:2,cuMemGetInfo:1+:999", 1);
	begin();
	OK(cuMemAlloc(&ptr, 16));
	ck_assert_int_eq(cuMemAlloc(&ptr, 16), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAlloc(&ptr, 16));
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(cuMemGetInfo(NULL, NULL), CUDA_ERROR_UNKNOWN);
	end();
}
END_TEST

START_TEST(test_memory_past_the_device_is_refused)
{
	CUmemAllocationProp prop = prop_of(0);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr;
	size_t left, total;

	setenv("FAKECUDA_MEM", "4194304", 1);
	begin();
	OK(cuMemCreate(&handle, 2 << 20, &prop, 0));
	OK(cuMemGetInfo(&left, &total));
	ck_assert_uint_eq(left, 2 << 20);
	ck_assert_int_eq(cuMemAlloc(&ptr, 4 << 20), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemRelease(handle));
	OK(cuMemAlloc(&ptr, 4 << 20));
	OK(cuMemFree(ptr));
	end();
}
END_TEST

START_TEST(test_image_for_another_device_is_refused)
{
	CUmodule module;

	begin();
	ck_assert_int_eq(cuModuleLoadData(&module, FAKECUDA_PTX(TEST_KERNELS, "sm_80")),
			 CUDA_ERROR_NO_BINARY_FOR_GPU);
	ck_assert_int_eq(cuModuleLoadData(&module, ".version 8.0\n"), CUDA_ERROR_INVALID_PTX);
	OK(cuModuleLoadData(&module, FAKECUDA_PTX(TEST_KERNELS, "sm_90")));
	end();
}
END_TEST

START_TEST(test_lost_device_answers_nothing_more)
{
	char path[] = "/tmp/gantry-fakecuda.XXXXXX";
	CUdevice dev;
	int fd = mkstemp(path);
	int value;

	ck_assert_int_ge(fd, 0);
	close(fd);
	unlink(path);
	setenv("FAKECUDA_LOST", path, 1);
	begin();
	OK(cuCtxSynchronize());
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	ck_assert_int_eq(cuCtxSynchronize(), CUDA_ERROR_UNKNOWN);
	OK(cuDeviceGet(&dev, 0));
	ck_assert_int_eq(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, dev),
			 CUDA_ERROR_DEVICE_UNAVAILABLE);
	unlink(path);
	end();
}
END_TEST

/* What is in the file that standard output is meanwhile. */
static size_t printed(int fd, char text[256])
{
	ssize_t n;

	(void)fflush(stdout);
	n = pread(fd, text, 255, 0);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	return (size_t)n;
}

START_TEST(test_what_kernels_print_waits_for_a_synchronisation_and_keeps_the_newest)
{
	int was = dup(STDOUT_FILENO), fd = memfd_create("out", MFD_CLOEXEC);
	CUfunction print;
	CUstream stream;
	char text[256];

	begin();
	print = function("print");
	OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	(void)fflush(stdout);
	ck_assert_int_ge(dup2(fd, STDOUT_FILENO), 0);
	launch(print, stream, NULL);
	while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
		(void)sched_yield();
	ck_assert_uint_eq(printed(fd, text), 0);
	OK(cuStreamSynchronize(stream));
	ck_assert_uint_eq(printed(fd, text), 16);
	ck_assert_str_eq(text, "a kernel prints\n");
	/* The buffer is as long as it was told to be. */
	OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 16));
	launch(print, stream, NULL);
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(printed(fd, text), 32);
	(void)fflush(stdout);
	ck_assert_int_ge(dup2(was, STDOUT_FILENO), 0);
	(void)close(was);
	(void)close(fd);
	end();
}
END_TEST

START_TEST(test_link_joins_the_objects_of_its_inputs)
{
	static char wrong[] = ".version 8.0\n";
	static char needs[] = FAKECUDA_PTX(TEST_KERNELS, "sm_90") "// NEEDS fakecuda_nothing\n";
	static char image[] = FAKECUDA_PTX(TEST_KERNELS, "sm_90");
	char log[256] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)(uintptr_t)sizeof(log) };
	CUlinkState link;
	CUmodule module;
	CUfunction func;
	void *cubin;

	begin();
	OK(cuLinkCreate(2, options, values, &link));
	ck_assert_int_eq(cuLinkAddData(link, CU_JIT_INPUT_PTX, wrong, sizeof(wrong), "w", 0, NULL,
				       NULL),
			 CUDA_ERROR_INVALID_PTX);
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, image, sizeof(image), "i", 0, NULL, NULL));
	OK(cuLinkComplete(link, &cubin, NULL));
	OK(cuModuleLoadData(&module, cubin));
	OK(cuModuleGetFunction(&func, module, "step"));
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, needs, sizeof(needs), "n", 0, NULL, NULL));
	ck_assert_int_eq(cuLinkComplete(link, &cubin, NULL), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_ptr_nonnull(strstr(log, "fakecuda_nothing"));
	OK(cuLinkDestroy(link));
	end();
}
END_TEST

/* A client of the group in a process of its own; it launches kernel @name once @go is readable. */
static pid_t client(const char *name, int go)
{
	pid_t pid = fork();
	char byte;

	ck_assert_int_ge(pid, 0);
	if (pid > 0)
		return pid;
	(void)!read(go, &byte, 1);
	begin();
	launch(function(name), NULL, NULL);
	for (;;)
		pause();
}

static void wait_until_busy(const char *path, pid_t pid)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct fake_group *group = mmap(NULL, sizeof(*group), PROT_READ, MAP_SHARED, fd, 0);
	bool busy = false;

	ck_assert_ptr_ne(group, MAP_FAILED);
	close(fd);
	while (!busy) {
		usleep(1000);
		for (unsigned int i = 0; i < FAKE_GROUP_SLOTS; i++)
			busy |= group->slots[i].pid == pid &&
				__atomic_load_n(&group->slots[i].busy, __ATOMIC_SEQ_CST) > 0;
	}
	munmap(group, sizeof(*group));
}

static CUresult wait_for_fault(int tries)
{
	CUresult r = cuCtxSynchronize();

	while (r == CUDA_SUCCESS && tries-- > 0) {
		usleep(5000);
		r = cuCtxSynchronize();
	}
	return r;
}

START_TEST(test_clients_of_a_group_share_faults_and_killed_kernels)
{
	static const char *const kernels[] = { "fault", "endless" };
	char path[] = "/tmp/gantry-fakecuda.XXXXXX";
	int status, go[2], fd = mkstemp(path);
	pid_t pid;

	ck_assert_int_ge(fd, 0);
	close(fd);
	setenv("FAKECUDA_MPS_GROUP", path, 1);
	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	pid = client(kernels[_i], go[0]);
	begin();
	ck_assert_int_eq(write(go[1], "", 1), 1);
	if (_i == 1) {
		wait_until_busy(path, pid);
		OK(wait_for_fault(10));
		kill(pid, SIGKILL);
	}
	ck_assert_int_eq(wait_for_fault(2000), CUDA_ERROR_ILLEGAL_ADDRESS);
	end();
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(go[0]);
	close(go[1]);
	/* Whoever comes after is healthy. */
	begin();
	OK(wait_for_fault(5));
	end();
	unlink(path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fakecuda");
	TCase *tc = gantry_unit_case(suite, "driver");

	tcase_add_test(tc, test_commands_of_a_stream_run_in_order);
	tcase_add_test(tc, test_slab_outlives_its_maker_at_the_same_address);
	tcase_add_test(tc, test_copy_to_where_nothing_is_mapped_is_an_illegal_address);
	tcase_add_test(tc, test_copy_reaches_what_its_own_device_may_use);
	tcase_add_loop_test(tc, test_fault_is_every_later_call, 0, 3);
	tcase_add_test(tc, test_endless_kernel_runs_until_its_context_ends);
	tcase_add_test(tc, test_module_is_loaded_behind_the_kernels_of_its_context);
	tcase_add_test(tc, test_streams_wait_for_values_and_events);
	tcase_add_test(tc, test_ordered_failures_hit_the_call_they_name);
	tcase_add_test(tc, test_memory_past_the_device_is_refused);
	tcase_add_test(tc, test_image_for_another_device_is_refused);
	tcase_add_test(tc, test_lost_device_answers_nothing_more);
	tcase_add_test(tc,
		       test_what_kernels_print_waits_for_a_synchronisation_and_keeps_the_newest);
	tcase_add_test(tc, test_link_joins_the_objects_of_its_inputs);
	tcase_add_loop_test(tc, test_clients_of_a_group_share_faults_and_killed_kernels, 0, 2);
	return gantry_unit_run(suite);
}
