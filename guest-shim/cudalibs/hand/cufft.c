/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuFFT's data over several GPUs, which for a session are its one GPU several times: what a descriptor says of it lies in the program's memory, and
 * its parts in device memory that is the program's own, as if it had allocated it itself. So it goes to the worker by content each time. The other
 * end is devices/cuda/calls/hand/cufft.c.
 */
#include <cufftXt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/cudalibs/call.h"

/* Of device memory, so that a part begins where an allocation would. */
#define ALIGNMENT 256u

/* One that was made here. */
struct made {
	cudaLibXtDesc descriptor;
	cudaXtDesc parts;
	uint64_t memory; /* 0: its parts are empty */
	uint64_t host_bytes;
	struct made *next;
};

static struct {
	pthread_mutex_t lock;
	struct made *first;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void lock_all(void)
{
	(void)pthread_mutex_lock(&all.lock);
}

static void unlock_all(void)
{
	(void)pthread_mutex_unlock(&all.lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(lock_all, unlock_all, unlock_all); /* or a child may hang */
}

/* NULL: nobody made it here, or it was freed. */
static struct made **find_locked(const cudaLibXtDesc *descriptor)
{
	for (struct made **link = &all.first; *link; link = &(*link)->next)
		if (&(*link)->descriptor == descriptor)
			return link;
	return NULL;
}

/* ---- a descriptor as an argument ---- */

void gantry_hand_put_cudaLibXtDesc(struct gantry_call *call, cudaLibXtDesc *descriptor);

void gantry_hand_put_cudaLibXtDesc(struct gantry_call *call, cudaLibXtDesc *descriptor)
{
	const cudaXtDesc *parts = descriptor ? descriptor->descriptor : NULL;
	struct gantry_calls_spread spread;
	uint64_t how = !parts ? 0 : descriptor == call->record ? 2 : 1;

	gantry_call_put(call, &how, sizeof(how));
	if (how != 1)
		return;
	call->record = descriptor;
	if (parts->nGPUs < 1 || parts->nGPUs > MAX_CUDA_DESCRIPTOR_GPUS ||
	    !gantry_call_are_own_devices(parts->GPUs, parts->nGPUs)) {
		call->refused = true;
		return;
	}
	spread = (struct gantry_calls_spread){
		.version = descriptor->version,
		.parts_version = parts->version,
		.library = (int32_t)descriptor->library,
		.format = descriptor->subFormat,
		.nparts = (uint64_t)parts->nGPUs,
	};
	gantry_call_put(call, &spread, sizeof(spread));
	for (int i = 0; i < parts->nGPUs; i++) {
		const struct gantry_calls_part part = { (uintptr_t)parts->data[i], parts->size[i] };

		gantry_call_put(call, &part, sizeof(part));
	}
	gantry_call_out(call, &descriptor->subFormat, sizeof(descriptor->subFormat));
}

/* ---- making and freeing ---- */

void gantry_hand_cufftXtMalloc(struct gantry_call *call, cufftHandle plan,
			       cudaLibXtDesc **descriptor, cufftXtSubFormat format);
void gantry_hand_cufftXtFree(struct gantry_call *call, cudaLibXtDesc *descriptor);

static uint64_t whole(uint64_t bytes)
{
	return (bytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

/* Memory for the parts; the worker's numbers are sums of sizes that a device had room for. */
static int place_parts(struct made *made, const struct gantry_calls_spread_measure *measure)
{
	uint64_t bytes = 0;
	int r;

	for (uint64_t i = 0; i < measure->spread.nparts; i++)
		bytes += whole(measure->bytes[i]);
	r = bytes > 0 ? gantry_call_mem_alloc(bytes, &made->memory) : 0;
	if (r < 0)
		return r;
	bytes = made->memory;
	for (uint64_t i = 0; i < measure->spread.nparts; i++) {
		if (measure->bytes[i] > 0)
			made->parts.data[i] = (void *)(uintptr_t)bytes;
		made->parts.size[i] = measure->bytes[i];
		bytes += whole(measure->bytes[i]);
	}
	return 0;
}

static cufftResult make(const struct gantry_calls_spread_measure *measure, int own,
			cudaLibXtDesc **descriptor)
{
	struct made *made = calloc(1, sizeof(*made));

	if (!made || measure->spread.nparts > MAX_CUDA_DESCRIPTOR_GPUS ||
	    place_parts(made, measure) < 0) {
		free(made);
		return CUFFT_ALLOC_FAILED;
	}
	made->host_bytes = measure->host_bytes;
	made->parts.version = measure->spread.parts_version;
	made->parts.nGPUs = (int)measure->spread.nparts;
	for (int i = 0; i < made->parts.nGPUs; i++)
		made->parts.GPUs[i] = own;
	made->descriptor.version = measure->spread.version;
	made->descriptor.descriptor = &made->parts;
	made->descriptor.library = (libFormat)measure->spread.library;
	made->descriptor.subFormat = measure->spread.format;
	lock_all();
	made->next = all.first;
	all.first = made;
	unlock_all();
	*descriptor = &made->descriptor;
	return CUFFT_SUCCESS;
}

static void put_plan(struct gantry_call *call, cufftHandle plan)
{
	gantry_call_handle(call, (uint64_t)(uint32_t)plan, GANTRY_CALL_BOUND | GANTRY_CALL_OR_NULL);
}

void gantry_hand_cufftXtMalloc(struct gantry_call *call, cufftHandle plan,
			       cudaLibXtDesc **descriptor, cufftXtSubFormat format)
{
	struct gantry_calls_spread_measure measure;
	int32_t wanted = (int32_t)format;
	cufftResult ret;

	put_plan(call, plan);
	gantry_call_put(call, &wanted, sizeof(wanted));
	gantry_call_out(call, &measure, sizeof(measure));
	call->refused |= !descriptor;
	ret = (cufftResult)gantry_call_finish(call);
	if (ret == CUFFT_SUCCESS)
		ret = make(&measure, gantry_call_own_device(), descriptor);
	gantry_call_answer(call, (int32_t)ret);
}

void gantry_hand_cufftXtFree(struct gantry_call *call, cudaLibXtDesc *descriptor)
{
	struct made **link, *made = NULL;

	lock_all();
	link = find_locked(descriptor);
	if (link) {
		made = *link;
		*link = made->next;
	}
	unlock_all();
	if (made && made->memory)
		(void)gantry_call_mem_free(made->memory); /* its session may be no more */
	free(made);
	gantry_call_answer(call, made || !descriptor ? CUFFT_SUCCESS : CUFFT_INVALID_VALUE);
}

void gantry_hand_cufftXtQueryPlan(struct gantry_call *call, cufftHandle plan, void *to,
				  cufftXtQueryType type);

void gantry_hand_cufftXtQueryPlan(struct gantry_call *call, cufftHandle plan, void *to,
				  cufftXtQueryType type)
{
	int32_t wanted = (int32_t)type;

	put_plan(call, plan);
	gantry_call_put(call, &wanted, sizeof(wanted));
	gantry_call_out(call, to, sizeof(cufftXt1dFactors));
	call->refused |= !to;
}

/* ---- copying ---- */

void gantry_hand_cufftXtMemcpy(struct gantry_call *call, cufftHandle plan, void *to, void *from,
			       cufftXtCopyType type);

/* What the program has of it on the host: of a descriptor of its own making what that says. */
static uint64_t host_bytes_of(const cudaLibXtDesc *descriptor)
{
	const cudaXtDesc *parts = descriptor ? descriptor->descriptor : NULL;
	struct made **link;
	uint64_t bytes = 0;

	lock_all();
	link = find_locked(descriptor);
	if (link)
		bytes = (*link)->host_bytes;
	unlock_all();
	for (int i = 0; !link && parts && i < parts->nGPUs && i < MAX_CUDA_DESCRIPTOR_GPUS; i++)
		if (__builtin_add_overflow(bytes, parts->size[i], &bytes))
			return UINT64_MAX;
	return bytes;
}

void gantry_hand_cufftXtMemcpy(struct gantry_call *call, cufftHandle plan, void *to, void *from,
			       cufftXtCopyType type)
{
	int32_t wanted = (int32_t)type;

	put_plan(call, plan);
	gantry_call_put(call, &wanted, sizeof(wanted));
	call->refused |= !to || !from;
	switch (call->refused ? CUFFT_COPY_UNDEFINED : type) {
	case CUFFT_COPY_HOST_TO_DEVICE:
		gantry_hand_put_cudaLibXtDesc(call, to);
		gantry_call_in(call, from, host_bytes_of(to));
		break;
	case CUFFT_COPY_DEVICE_TO_HOST:
		gantry_hand_put_cudaLibXtDesc(call, from);
		gantry_call_out(call, to, host_bytes_of(from));
		break;
	case CUFFT_COPY_DEVICE_TO_DEVICE:
		gantry_hand_put_cudaLibXtDesc(call, to);
		gantry_hand_put_cudaLibXtDesc(call, from);
		break;
	default:
		call->refused = true;
		break;
	}
}
