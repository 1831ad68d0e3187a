/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process has a GPU do, by the device's clock: libgpu-trace.so, which NVIDIA's driver loads into it where CUDA_INJECTION64_PATH
 * names it. So it sees a program as well as the worker that serves one. It writes lines to the file GPU_TRACE.PID while a file
 * GPU_TRACE.on is there:
 *
 *   K START END STREAM NAME      a kernel
 *   C START END STREAM BYTES     a copy
 *   F START END STREAM BYTES     a fill
 *   A START END - NAME           a call of the driver
 *   E TEXT                       what CUPTI, which tells all this, could not do
 *
 * Times are nanoseconds. GPU_TRACE_CUPTI: path of libcupti.
 *
 * Threads: one of its own looks for the file; the lines are written by it, and by whichever of CUPTI's has them.
 */
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/array.h"

#define EXPORT	     __attribute__((visibility("default")))
#define BUFFER_BYTES (4u << 20)
#define LOOK_US	     20000u
/* So many looks between two times that what is there is asked for. */
#define FLUSH_LOOKS 10u

static struct {
	__typeof__(&cuptiActivityRegisterCallbacks) call;
	__typeof__(&cuptiActivityEnable) enable;
	__typeof__(&cuptiActivityDisable) disable;
	__typeof__(&cuptiActivityGetNextRecord) next;
	__typeof__(&cuptiActivityFlushAll) flush;
	__typeof__(&cuptiGetCallbackName) name;
} cupti;

static const CUpti_ActivityKind kinds[] = {
	CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
	CUPTI_ACTIVITY_KIND_MEMCPY,
	CUPTI_ACTIVITY_KIND_MEMSET,
	CUPTI_ACTIVITY_KIND_DRIVER,
};

/* stdio locks it. */
static FILE *out;

__attribute__((format(printf, 1, 2))) static void line(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vfprintf(out, format, args); /* a full disk shows in what is missing */
	va_end(args);
}

static void buffer_wanted(uint8_t **buffer, size_t *size, size_t *max_records)
{
	*buffer = aligned_alloc(8, BUFFER_BYTES);
	*size = *buffer ? BUFFER_BYTES : 0;
	*max_records = 0;
}

static void call_line(const CUpti_ActivityAPI *call)
{
	const char *name = NULL;

	if (cupti.name(CUPTI_CB_DOMAIN_DRIVER_API, call->cbid, &name) != CUPTI_SUCCESS || !name)
		name = "unknown";
	line("A %llu %llu - %s\n", (unsigned long long)call->start, (unsigned long long)call->end,
	     name);
}

static void record_line(const CUpti_Activity *record)
{
	switch (record->kind) {
	case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
		const CUpti_ActivityKernel10 *k = (const void *)record;

		line("K %llu %llu %u %s\n", (unsigned long long)k->start,
		     (unsigned long long)k->end, k->streamId, k->name ? k->name : "unknown");
		break;
	}
	case CUPTI_ACTIVITY_KIND_MEMCPY: {
		const CUpti_ActivityMemcpy6 *c = (const void *)record;

		line("C %llu %llu %u %llu\n", (unsigned long long)c->start,
		     (unsigned long long)c->end, c->streamId, (unsigned long long)c->bytes);
		break;
	}
	case CUPTI_ACTIVITY_KIND_MEMSET: {
		const CUpti_ActivityMemset4 *f = (const void *)record;

		line("F %llu %llu %u %llu\n", (unsigned long long)f->start,
		     (unsigned long long)f->end, f->streamId, (unsigned long long)f->bytes);
		break;
	}
	case CUPTI_ACTIVITY_KIND_DRIVER:
		call_line((const void *)record);
		break;
	default:
		break;
	}
}

static void buffer_filled(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
			  size_t valid_size)
{
	CUpti_Activity *record = NULL;

	(void)context;
	(void)stream;
	(void)size;
	while (cupti.next(buffer, valid_size, &record) == CUPTI_SUCCESS)
		record_line(record);
	(void)fflush(out); /* as in line() */
	free(buffer);
}

static void set_traced(bool on)
{
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(kinds); i++) {
		CUptiResult result = on ? cupti.enable(kinds[i]) : cupti.disable(kinds[i]);

		if (result != CUPTI_SUCCESS)
			line("E kind %d: CUPTI error %d\n", (int)kinds[i], (int)result);
	}
}

static void *look(void *arg)
{
	const char *wanted = arg;
	bool on = false;

	for (unsigned int looks = 1;; looks++) {
		bool now = access(wanted, F_OK) == 0;

		if (now != on)
			set_traced(now);
		if (now != on || looks % FLUSH_LOOKS == 0)
			(void)cupti.flush(0); /* what is not ready yet comes with the next one */
		on = now;
		(void)usleep(LOOK_US); /* returns early at most */
	}
	return NULL;
}

static bool find(void *library)
{
	cupti.call = (__typeof__(cupti.call))dlsym(library, "cuptiActivityRegisterCallbacks");
	cupti.enable = (__typeof__(cupti.enable))dlsym(library, "cuptiActivityEnable");
	cupti.disable = (__typeof__(cupti.disable))dlsym(library, "cuptiActivityDisable");
	cupti.next = (__typeof__(cupti.next))dlsym(library, "cuptiActivityGetNextRecord");
	cupti.flush = (__typeof__(cupti.flush))dlsym(library, "cuptiActivityFlushAll");
	cupti.name = (__typeof__(cupti.name))dlsym(library, "cuptiGetCallbackName");
	return cupti.call && cupti.enable && cupti.disable && cupti.next && cupti.flush &&
	       cupti.name;
}

/* The driver's name for it, called when it is initialised; 1: all is well, and it is not called again. */
EXPORT int InitializeInjection(void);

int InitializeInjection(void)
{
	static char path[4096], wanted[4096];
	const char *trace = getenv("GPU_TRACE"), *name = getenv("GPU_TRACE_CUPTI");
	pthread_t thread;
	void *library;

	if (!trace || (size_t)snprintf(wanted, sizeof(wanted), "%s.on", trace) >= sizeof(wanted) ||
	    (size_t)snprintf(path, sizeof(path), "%s.%d", trace, (int)getpid()) >= sizeof(path))
		return 1;
	out = fopen(path, "we");
	if (!out)
		return 1;
	library = dlopen(name ? name : "libcupti.so.13", RTLD_NOW);
	if (!library)
		line("E %s\n", dlerror());
	else if (!find(library))
		line("E CUPTI lacks a function\n");
	else if (cupti.call(buffer_wanted, buffer_filled) != CUPTI_SUCCESS)
		line("E CUPTI takes no buffers\n");
	else if (pthread_create(&thread, NULL, look, wanted) != 0)
		line("E no thread\n");
	(void)fflush(out); /* as in line() */
	return 1;
}
