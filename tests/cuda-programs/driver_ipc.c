/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that processes share:
 *
 *   driver_ipc IMAGE            two processes of its own: what one makes the other opens
 *   driver_ipc IMAGE make FILE  writes the handle of some memory to FILE and waits for the end of its input
 *   driver_ipc IMAGE open FILE  opens that, says "opened", waits for the end of its input, and looks again
 *   driver_ipc IMAGE lose FILE  opens that, says "opened", waits for the end of its input, has lost it, and opens it again
 *   driver_ipc IMAGE none FILE  must not open it
 *   driver_ipc IMAGE promise FILE  writes the handle of an event that does not come while its input has not ended
 *   driver_ipc IMAGE await FILE    waits for that, of which only its maker's end is heard
 */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/cuda-programs/parts.h"

#define LARGE (5u << 20)
#define N     256u
#define SMALL (N * sizeof(float))

static CUmodule module;
static CUfunction saxpy;

static void start(const char *path)
{
	(void)set_out();
	OK(cuModuleLoad(&module, path));
	OK(cuModuleGetFunction(&saxpy, module, "saxpy"));
}

static void put_saxpy(float a, CUdeviceptr x, CUdeviceptr y)
{
	int32_t n = N;
	void *params[] = { &n, &a, &x, &y };

	OK(cuLaunchKernel(saxpy, 1, 1, 1, N, 1, 1, 0, 0, params, NULL));
}

static void holds(CUdeviceptr at, float value)
{
	float x[N];

	OK(cuMemcpyDtoH(x, at, sizeof(x)));
	for (unsigned int i = 0; i < N; i++)
		CHECK(x[i] == value);
}

static uint32_t bits(float value)
{
	uint32_t as;

	memcpy(&as, &value, sizeof(as));
	return as;
}

static void say(int fd, const void *what, size_t bytes)
{
	CHECK(write(fd, what, bytes) == (ssize_t)bytes);
}

static void hear(int fd, void *what, size_t bytes)
{
	CHECK(read(fd, what, bytes) == (ssize_t)bytes);
}

/* ---- two processes ---- */

static void open_misused(const CUipcMemHandle *given)
{
	CUipcMemHandle wrong = *given;
	CUdeviceptr at = 0;

	begin("misused");
	BAD(cuIpcOpenMemHandle(NULL, *given, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), INVALID_VALUE);
	IS(cuIpcOpenMemHandle(&at, *given, 0), INVALID_VALUE);
	wrong.reserved[10] ^= 1; /* one bit of what nobody can guess */
	BAD(cuIpcOpenMemHandle(&at, wrong, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), INVALID_HANDLE);
	memset(&wrong, 0, sizeof(wrong));
	BAD(cuIpcOpenMemHandle(&at, wrong, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), INVALID_HANDLE);
	/* More than there is, and from elsewhere in it. */
	wrong = *given;
	memset(wrong.reserved + 24, 0xff, 16);
	BAD(cuIpcOpenMemHandle(&at, wrong, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), INVALID_HANDLE);
	BAD(cuIpcCloseMemHandle(0x1000), INVALID_VALUE);
	CHECK(at == 0);
	end();
}

/* ---- events ---- */

struct shared {
	CUipcEventHandle event, spare;
	CUipcMemHandle memory;
};

/* The other process has looked, and found that this has not happened yet. */
static void hold_stream(void *data)
{
	char byte;

	hear(*(int *)data, &byte, 1);
}

/* An event is destroyed before its record is reached, and another is recorded meanwhile, which may lie where that one did. */
static void made_after_another(CUstream stream, int to)
{
	const struct timespec while_held = { .tv_nsec = 50000000 };
	CUipcEventHandle handle;
	CUevent before, after;
	CUstream other;
	int held[2];
	char byte = 0;

	begin("events one after the other");
	CHECK(pipe(held) == 0);
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&before, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cuLaunchHostFunc(stream, hold_stream, &held[0]));
	OK(cuEventRecord(before, stream));
	OK(cuEventDestroy(before));
	OK(cuEventCreate(&after, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < 8; i++)
		OK(cuEventRecord(after, other));
	(void)nanosleep(&while_held, NULL);
	say(held[1], &byte, 1);
	OK(cuCtxSynchronize());
	OK(cuIpcGetEventHandle(&handle, after));
	say(to, &handle, sizeof(handle));
	end();
}

static void events_of_one(int from, int to)
{
	int let_go[2] = { from, 0 };
	struct shared shared;
	CUevent event, spare, plain, none;
	CUdeviceptr at;
	CUstream stream;
	char byte = 0;

	begin("events made");
	IS(cuEventCreate(&none, CU_EVENT_INTERPROCESS), INVALID_VALUE); /* with timing */
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&spare, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	BAD(cuIpcGetEventHandle(&shared.event, plain), INVALID_HANDLE);
	OK(cuIpcGetEventHandle(&shared.event, event));
	OK(cuIpcGetEventHandle(&shared.spare, spare));
	BAD(cuIpcOpenEventHandle(&none, shared.event), INVALID_CONTEXT);
	OK(cuMemAlloc(&at, LARGE));
	OK(cuMemsetD32(at, bits(1), N));
	OK(cuIpcGetMemHandle(&shared.memory, at));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuEventRecord(event, stream)); /* and once more: the latest counts */
	OK(cuStreamSynchronize(stream));
	OK(cuEventQuery(event)); /* it is a task of the stream as any */
	OK(cuLaunchHostFunc(stream, hold_stream, &let_go[0]));
	OK(cuMemsetD32Async(at, bits(2), N, stream));
	OK(cuEventRecord(event, stream));
	IS(cuEventQuery(event), NOT_READY);
	say(to, &shared, sizeof(shared));
	OK(cuEventSynchronize(event));
	end();
	/* More often than there are words. */
	begin("events recorded often");
	for (int i = 0; i < 50; i++)
		OK(cuEventRecord(event, i % 2 ? stream : 0));
	OK(cuCtxSynchronize());
	say(to, &byte, 1);
	end();
	made_after_another(stream, to);
	hear(from, &byte, 1);
	OK(cuEventDestroy(plain));
	OK(cuEventDestroy(spare));
	OK(cuEventDestroy(event));
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(at));
}

static void events_of_other(int from, int to)
{
	struct shared shared;
	CUevent event, spare, none = NULL;
	CUdeviceptr at;
	CUstream stream;
	float x = 0;
	char byte = 0;

	begin("events opened");
	hear(from, &shared, sizeof(shared));
	OK(cuIpcOpenMemHandle(&at, shared.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuIpcOpenEventHandle(&event, shared.event));
	OK(cuIpcOpenEventHandle(&spare, shared.spare));
	OK(cuEventQuery(spare)); /* it was never recorded */
	OK(cuEventSynchronize(spare));
	IS(cuEventQuery(event), NOT_READY);
	OK(cuMemcpyDtoH(&x, at, sizeof(x)));
	CHECK(x == 1);
	BAD(cuIpcGetEventHandle(&shared.spare, event), INVALID_HANDLE);
	if (!is_native) {
		IS(cuEventRecord(event, 0), NOT_SUPPORTED);
		shared.event.reserved[12] ^= 1;
		IS(cuIpcOpenEventHandle(&none, shared.event), INVALID_HANDLE);
		memset(shared.spare.reserved + 24, 0x7f, 8); /* beyond the page */
		IS(cuIpcOpenEventHandle(&none, shared.spare), INVALID_HANDLE);
	}
	say(to, &byte, 1); /* now it may go on */
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamWaitEvent(stream, event, 0));
	OK(cuMemcpyDtoHAsync(&x, at, sizeof(x), stream));
	OK(cuStreamSynchronize(stream));
	CHECK(x == 2);
	hear(from, &byte, 1);
	OK(cuEventQuery(event)); /* it has come, and is not recorded any more */
	OK(cuEventSynchronize(event));
	hear(from, &shared.spare, sizeof(shared.spare));
	OK(cuIpcOpenEventHandle(&none, shared.spare));
	OK(cuEventQuery(none)); /* the other made after one that was reached later */
	OK(cuEventDestroy(none));
	OK(cuEventDestroy(event));
	OK(cuEventDestroy(spare));
	BAD(cuEventQuery(event), INVALID_HANDLE);
	OK(cuIpcCloseMemHandle(at));
	OK(cuStreamDestroy(stream));
	end();
	say(to, &byte, 1);
}

/* Handles of what its maker has freed open nothing; small ones neither, though other allocations are where they were. */
static void opened_after_free(const CUipcMemHandle *handles, int from)
{
	CUipcMemHandle fresh, mixed;
	CUdeviceptr at = 0;

	begin("freed");
	hear(from, &fresh, sizeof(fresh));
	for (int i = 0; i < 2; i++)
		BAD(cuIpcOpenMemHandle(&at, handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		    INVALID_HANDLE);
	CHECK(at == 0);
	OK(cuIpcOpenMemHandle(&at, fresh, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	holds(at, 9);
	if (!is_native) {
		CUdeviceptr none = 0;

		/* Also while another of its buffer is open, and with what says that the other is there. */
		IS(cuIpcOpenMemHandle(&none, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		   INVALID_HANDLE);
		mixed = fresh;
		memcpy(mixed.reserved + 40, handles[1].reserved + 40, 8); /* its name */
		IS(cuIpcOpenMemHandle(&none, mixed, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		   INVALID_HANDLE);
		mixed = fresh;
		memset(mixed.reserved + 4, 0xfe, 2); /* a slot beyond the page */
		IS(cuIpcOpenMemHandle(&none, mixed, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
		   INVALID_HANDLE);
		CHECK(none == 0);
	}
	OK(cuIpcCloseMemHandle(at));
	end();
}

static void other_process(const char *path, int from, int to)
{
	CUipcMemHandle handles[2];
	CUdeviceptr large, small, again, own;
	unsigned int is = 2;
	size_t bytes;
	char byte = 0;

	start(path);
	hear(from, handles, sizeof(handles));
	open_misused(&handles[0]);
	begin("opened");
	OK(cuIpcOpenMemHandle(&large, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	OK(cuIpcOpenMemHandle(&small, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	holds(large, 3);
	holds(large + LARGE - N * sizeof(float), 5);
	holds(small, 7);
	OK(cuMemGetAddressRange(&again, &bytes, large + 100));
	CHECK(again == large && bytes == LARGE);
	OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, large));
	CHECK(is_native || is == 0); /* only its maker passes it on */
	BAD(cuMemFree(large), INVALID_VALUE);
	OK(cuIpcOpenMemHandle(&again, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(again == large);
	/* Kernels and copies of this process, between its own memory and the other's. */
	OK(cuMemAlloc(&own, LARGE));
	OK(cuMemsetD32(own, bits(10), N));
	put_saxpy(2, own, large); /* 3 + 2 * 10 */
	OK(cuMemcpyDtoD(small, large, SMALL));
	OK(cuCtxSynchronize());
	holds(large, 23);
	end();
	say(to, &byte, 1);
	hear(from, &byte, 1);
	begin("closed");
	holds(large, 42);
	OK(cuIpcCloseMemHandle(large));
	holds(large, 42); /* it was opened twice */
	OK(cuIpcCloseMemHandle(large));
	BAD(cuIpcCloseMemHandle(large), INVALID_VALUE);
	BAD(cuMemcpyDtoH(&byte, large, 1), INVALID_VALUE);
	OK(cuIpcCloseMemHandle(small));
	OK(cuMemFree(own));
	end();
	say(to, &byte, 1);
	opened_after_free(handles, from);
	say(to, &byte, 1);
	events_of_other(from, to);
}

static void refused(CUdeviceptr large)
{
	CUipcMemHandle handle;
	CUdeviceptr at;
	void *host;

	begin("refused");
	IS(cuIpcGetMemHandle(NULL, large), INVALID_VALUE);
	BAD(cuIpcGetMemHandle(&handle, 0x1000), INVALID_VALUE);
	BAD(cuIpcGetMemHandle(&handle, large + 256), INVALID_VALUE); /* not its beginning */
	OK(cuMemAllocHost(&host, 4096));
	BAD(cuIpcGetMemHandle(&handle, (CUdeviceptr)(uintptr_t)host), INVALID_VALUE);
	OK(cuMemFreeHost(host));
	OK(cuMemAllocAsync(&at, 1 << 20, 0));
	BAD(cuIpcGetMemHandle(&handle, at), INVALID_VALUE);
	OK(cuMemFreeAsync(at, 0));
	OK(cuIpcGetMemHandle(&handle, large));
	BAD(cuIpcOpenMemHandle(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), INVALID_CONTEXT);
	end();
}

static void one_process(const char *path, int from, int to)
{
	CUipcMemHandle handles[2], again;
	CUdeviceptr large, small, kept;
	unsigned int is = 0;
	char byte = 0;

	start(path);
	begin("made");
	OK(cuMemAlloc(&large, LARGE));
	OK(cuMemAlloc(&small, SMALL));
	OK(cuMemsetD32(large, bits(3), N));
	OK(cuMemsetD32(large + LARGE - N * sizeof(float), bits(5), N));
	OK(cuMemsetD32(small, bits(7), N));
	OK(cuCtxSynchronize());
	OK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, large));
	CHECK(is == 1);
	OK(cuIpcGetMemHandle(&handles[0], large));
	OK(cuIpcGetMemHandle(&handles[1], small));
	OK(cuIpcGetMemHandle(&again, large));
	CHECK(is_native || memcmp(&again, &handles[0], sizeof(again)) == 0);
	end();
	refused(large);
	say(to, handles, sizeof(handles));
	hear(from, &byte, 1);
	begin("seen by both");
	holds(large, 23);
	holds(small, 23);
	OK(cuMemsetD32(large, bits(42), N));
	OK(cuCtxSynchronize());
	end();
	say(to, &byte, 1);
	hear(from, &byte, 1);
	begin("given back");
	OK(cuMemAlloc(&kept, SMALL)); /* what the small ones lie in stays */
	OK(cuMemFree(small));
	OK(cuMemFree(large));
	OK(cuMemAlloc(&small, SMALL));
	OK(cuMemsetD32(small, bits(9), N));
	OK(cuCtxSynchronize());
	OK(cuIpcGetMemHandle(&again, small));
	CHECK(memcmp(&again, &handles[1], sizeof(again)) != 0);
	say(to, &again, sizeof(again));
	hear(from, &byte, 1);
	OK(cuMemFree(small));
	OK(cuMemFree(kept));
	end();
	events_of_one(from, to);
}

static int both(const char *path)
{
	int there[2], back[2], status = 0;
	pid_t child;

	CHECK(pipe(there) == 0 && pipe(back) == 0);
	(void)fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		other_process(path, there[0], back[1]);
		_exit(0);
	}
	one_process(path, back[0], there[1]);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return 0;
}

/* ---- one at a time ---- */

static void wait_for_end(void)
{
	char byte;

	CHECK(read(0, &byte, 1) == 0);
}

static void make(const char *file)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	CUipcMemHandle handle;
	CUdeviceptr at;

	begin("made");
	CHECK(fd >= 0);
	OK(cuMemAlloc(&at, 16u << 20));
	OK(cuMemsetD32(at, bits(11), N));
	OK(cuCtxSynchronize());
	OK(cuIpcGetMemHandle(&handle, at));
	say(fd, &handle, sizeof(handle));
	(void)close(fd);
	printf("made\n");
	wait_for_end();
	end();
}

static CUipcMemHandle read_handle(const char *file)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	CUipcMemHandle handle;

	CHECK(fd >= 0);
	hear(fd, &handle, sizeof(handle));
	(void)close(fd);
	return handle;
}

static void open_it(const char *file)
{
	CUdeviceptr at;

	begin("outlived");
	OK(cuIpcOpenMemHandle(&at, read_handle(file), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	holds(at, 11);
	printf("opened\n");
	wait_for_end();
	holds(at, 11);
	put_saxpy(1, at, at);
	holds(at, 22);
	OK(cuMemsetD32(at, bits(11), N)); /* as others expect it */
	OK(cuCtxSynchronize());
	OK(cuIpcCloseMemHandle(at));
	end();
}

/* Its worker dies meanwhile: what it had opened is gone, and what it has made is not. */
static void lose(const char *file)
{
	CUipcMemHandle handle = read_handle(file);
	CUdeviceptr at, own;
	float x[N];

	begin("opened again");
	OK(cuIpcOpenMemHandle(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	holds(at, 11);
	OK(cuMemAlloc(&own, SMALL));
	OK(cuMemsetD32(own, bits(5), N));
	OK(cuCtxSynchronize());
	printf("opened\n");
	wait_for_end();
	IS(cuMemcpyDtoH(x, at, sizeof(x)), NOT_FOUND);
	holds(own, 5);
	(void)cuIpcCloseMemHandle(at); /* it may tell of that copy once more, and closes */
	OK(cuIpcOpenMemHandle(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	holds(at, 11);
	OK(cuIpcCloseMemHandle(at));
	OK(cuMemFree(own));
	end();
}

static void open_none(const char *file)
{
	CUdeviceptr at;

	begin("nobody's");
	IS(cuIpcOpenMemHandle(&at, read_handle(file), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
	   INVALID_HANDLE);
	end();
}

/* Its worker has other things to do for longer than anybody waits. */
static void open_too_late(const char *file)
{
	CUipcMemHandle handle = read_handle(file);
	CUdeviceptr at;

	begin("too late");
	CHECK(cuIpcOpenMemHandle(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != CUDA_SUCCESS);
	printf("refused\n");
	wait_for_end();
	end();
}

static void wait_in_stream(void *data)
{
	(void)data;
	wait_for_end();
}

static void promise(const char *file)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	CUipcEventHandle handle;
	CUevent event;

	begin("promised");
	CHECK(fd >= 0);
	OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cuIpcGetEventHandle(&handle, event));
	OK(cuLaunchHostFunc(0, wait_in_stream, NULL));
	OK(cuEventRecord(event, 0));
	say(fd, &handle, sizeof(handle));
	(void)close(fd);
	printf("made\n");
	OK(cuCtxSynchronize());
	end();
}

static void await(const char *file)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	CUipcEventHandle handle;
	CUevent event;

	begin("given up");
	CHECK(fd >= 0);
	hear(fd, &handle, sizeof(handle));
	(void)close(fd);
	OK(cuIpcOpenEventHandle(&event, handle));
	IS(cuEventQuery(event), NOT_READY);
	printf("opened\n");
	IS(cuEventSynchronize(event), LAUNCH_FAILED);
	OK(cuEventDestroy(event));
	end();
}

int main(int argc, char **argv)
{
	if (argc == 3)
		is_native = strcmp(argv[2], "native") == 0;
	if (argc == 2 || is_native)
		return both(argv[1]);
	if (argc != 4)
		return 2;
	start(argv[1]);
	if (strcmp(argv[2], "make") == 0)
		make(argv[3]);
	else if (strcmp(argv[2], "open") == 0)
		open_it(argv[3]);
	else if (strcmp(argv[2], "lose") == 0)
		lose(argv[3]);
	else if (strcmp(argv[2], "late") == 0)
		open_too_late(argv[3]);
	else if (strcmp(argv[2], "promise") == 0)
		promise(argv[3]);
	else if (strcmp(argv[2], "await") == 0)
		await(argv[3]);
	else
		open_none(argv[3]);
	return 0;
}
