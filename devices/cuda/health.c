/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a GPU is, as NVIDIA's management library tells. It is loaded at run time, and its header need not be there: what
 * is used of it is declared here, from its documentation. All of it is optional: what the library, or this GPU,
 * does not have is left out of the answer.
 *
 * Threads: any. The library is thread-safe; counting of events has a lock of its own.
 * Blocking: no longer than the library takes to ask the kernel driver; nothing waits for an event.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "devices/cuda/backend.h"
#include "devices/hosts.h"

/* nvml.h */
#define NVML_SUCCESS	       0
#define NVML_ERROR_GPU_IS_LOST 15
#define NVML_INIT_NO_ATTACH    2u
#define NVML_TEMPERATURE_GPU   0
#define NVML_CLOCK_SM	       1
#define NVML_CLOCK_MEM	       2
#define NVML_UNCORRECTED       1
#define NVML_VOLATILE_ECC      0
#define NVML_EVENT_XID	       0x8ull
#define NVML_MIG_ENABLED       1u

struct nvml_memory {
	unsigned long long total;
	unsigned long long free;
	unsigned long long used;
};

struct nvml_event {
	void *device;
	unsigned long long type;
	unsigned long long data; /* of an Xid: its number */
	unsigned int gpu_instance;
	unsigned int compute_instance;
};

/* Member, symbol, parameters. All return an nvmlReturn_t. */
#define NVML_FUNCTIONS(F)                                                                \
	F(init, nvmlInitWithFlags, unsigned int)                                         \
	F(shutdown, nvmlShutdown, void)                                                  \
	F(count, nvmlDeviceGetCount_v2, unsigned int *)                                  \
	F(by_index, nvmlDeviceGetHandleByIndex_v2, unsigned int, void **)                \
	F(by_pci, nvmlDeviceGetHandleByPciBusId_v2, const char *, void **)               \
	F(by_uuid, nvmlDeviceGetHandleByUUID, const char *, void **)                     \
	F(uuid, nvmlDeviceGetUUID, void *, char *, unsigned int)                         \
	F(temperature, nvmlDeviceGetTemperature, void *, int, unsigned int *)            \
	F(clock, nvmlDeviceGetClockInfo, void *, int, unsigned int *)                    \
	F(memory, nvmlDeviceGetMemoryInfo, void *, struct nvml_memory *)                 \
	F(ecc, nvmlDeviceGetTotalEccErrors, void *, int, int, unsigned long long *)      \
	F(link_generation, nvmlDeviceGetMaxPcieLinkGeneration, void *, unsigned int *)   \
	F(link_width, nvmlDeviceGetMaxPcieLinkWidth, void *, unsigned int *)             \
	F(events_new, nvmlEventSetCreate, void **)                                       \
	F(events_free, nvmlEventSetFree, void *)                                         \
	F(events_register, nvmlDeviceRegisterEvents, void *, unsigned long long, void *) \
	F(events_wait, nvmlEventSetWait_v2, void *, struct nvml_event *, unsigned int)   \
	F(mig_mode, nvmlDeviceGetMigMode, void *, unsigned int *, unsigned int *)        \
	F(mig_max, nvmlDeviceGetMaxMigDeviceCount, void *, unsigned int *)               \
	F(mig_by_index, nvmlDeviceGetMigDeviceHandleByIndex, void *, unsigned int, void **)

struct nvml_calls {
#define MEMBER(member, symbol, ...) int (*member)(__VA_ARGS__);
	NVML_FUNCTIONS(MEMBER)
#undef MEMBER
};

struct gantry_cuda_nvml {
	void *library;
	struct nvml_calls calls;
	void *gpu;	      /* the whole GPU */
	void *instance;	      /* the MIG instance where the device is one, else the GPU */
	pthread_mutex_t lock; /* protects what follows; the counts are read without */
	bool watches;	      /* somebody has asked: from then on events are counted */
	void *events;	      /* NULL: it tells of none */
	uint64_t nfaults;
	uint32_t last_fault;
	uint32_t lost; /* seen to be off the bus */
};

/* Errors of which NVIDIA's documents say that the GPU must be reset before anybody uses it. */
static const uint32_t ruinous[] = { 48, 74, 79, 95, 109, 119, 120, 140, 143 };

static int load(const char *path, void **ret_library, struct nvml_calls *ret_calls,
		struct gantry_err *err)
{
	static const char *const symbols[] = {
#define SYMBOL(member, symbol, ...) #symbol,
		NVML_FUNCTIONS(SYMBOL)
#undef SYMBOL
	};
	struct nvml_calls calls = { 0 };
	void **slots[] = {
#define SLOT(member, symbol, ...) (void **)&calls.member,
		NVML_FUNCTIONS(SLOT)
#undef SLOT
	};
	/* NCCL begins NVML once more, with all GPUs, and by then the process may do nothing of what that takes the first time. */
	unsigned int flags = gantry_communicators_host() ? 0 : NVML_INIT_NO_ATTACH;
	void *library;

	library = dlopen(path ? path : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return gantry_err_set(err, -ENODEV, "no NVML: %s", dlerror());
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(symbols); i++)
		*slots[i] = dlsym(library, symbols[i]);
	if (!calls.init || !calls.shutdown || calls.init(flags) != NVML_SUCCESS) {
		(void)dlclose(library); /* nothing of it was used */
		return gantry_err_set(err, -ENODEV, "NVML does not start");
	}
	*ret_library = library;
	*ret_calls = calls;
	return 0;
}

static void unload(void *library, const struct nvml_calls *calls)
{
	(void)calls->shutdown(); /* its end is no concern of ours */
	(void)dlclose(library);
}

static void watch_events(struct gantry_cuda_nvml *nvml)
{
	const struct nvml_calls *calls = &nvml->calls;

	if (!calls->events_new || !calls->events_free || !calls->events_register ||
	    !calls->events_wait || calls->events_new(&nvml->events) != NVML_SUCCESS) {
		nvml->events = NULL;
		return;
	}
	if (calls->events_register(nvml->gpu, NVML_EVENT_XID, nvml->events) == NVML_SUCCESS)
		return;
	(void)calls->events_free(nvml->events); /* was made just now */
	nvml->events = NULL;
}

struct gantry_cuda_nvml *gantry_cuda_nvml_open(const char *path, const char *pci, const char *uuid)
{
	struct gantry_cuda_nvml *nvml;

	/* "none": not wanted. */
	if (path && strcmp(path, "none") == 0)
		return NULL;
	nvml = calloc(1, sizeof(*nvml));
	if (!nvml || load(path, &nvml->library, &nvml->calls, NULL) < 0) {
		free(nvml);
		return NULL;
	}
	if (!nvml->calls.by_pci || nvml->calls.by_pci(pci, &nvml->gpu) != NVML_SUCCESS) {
		unload(nvml->library, &nvml->calls);
		free(nvml);
		return NULL;
	}
	if (!gantry_str_starts(uuid, "MIG-") || !nvml->calls.by_uuid ||
	    nvml->calls.by_uuid(uuid, &nvml->instance) != NVML_SUCCESS)
		nvml->instance = nvml->gpu;
	(void)pthread_mutex_init(&nvml->lock, NULL); /* default attributes cannot fail */
	return nvml;
}

void gantry_cuda_nvml_close(struct gantry_cuda_nvml *nvml)
{
	if (!nvml)
		return;
	if (nvml->events)
		(void)nvml->calls.events_free(nvml->events); /* as unload() */
	unload(nvml->library, &nvml->calls);
	(void)pthread_mutex_destroy(&nvml->lock);
	free(nvml);
}

/* Did the call work? A GPU that is gone says so in any of them, for good. */
static bool worked(struct gantry_cuda_nvml *nvml, int result)
{
	if (result == NVML_ERROR_GPU_IS_LOST)
		gantry_store_relaxed(&nvml->lost, 1u);
	return result == NVML_SUCCESS;
}

bool gantry_cuda_nvml_lost(struct gantry_cuda_nvml *nvml)
{
	unsigned int celsius;

	if (!nvml)
		return false;
	if (nvml->calls.temperature)
		(void)worked(nvml,
			     nvml->calls.temperature(nvml->gpu, NVML_TEMPERATURE_GPU, &celsius));
	return gantry_load_relaxed(&nvml->lost) != 0;
}

uint64_t gantry_cuda_nvml_link(struct gantry_cuda_nvml *nvml)
{
	/* Bytes a second of one lane, by generation, as copies reach it: some 88 % of the wire's. */
	static const uint64_t lane[] = { 0,
					 220000000ull,
					 440000000ull,
					 867000000ull,
					 1733000000ull,
					 3467000000ull,
					 6900000000ull };
	unsigned int generation = 0;
	unsigned int width = 0;

	if (!nvml || !nvml->calls.link_generation || !nvml->calls.link_width ||
	    !worked(nvml, nvml->calls.link_generation(nvml->gpu, &generation)) ||
	    !worked(nvml, nvml->calls.link_width(nvml->gpu, &width)) ||
	    generation >= GANTRY_ARRAY_SIZE(lane) || width > 32)
		return 0;
	return lane[generation] * width;
}

static void read_events(struct gantry_cuda_nvml *nvml, struct gantry_device_health *health)
{
	struct nvml_event event;
	bool has_events = true; /* as far as the thread that reads them knows */

	/* No waiting, neither here nor behind another thread that reads them now. */
	if (pthread_mutex_trylock(&nvml->lock) == 0) {
		/* Not before: workers never ask, and a set of events holds descriptors. */
		if (!nvml->watches)
			watch_events(nvml);
		nvml->watches = true;
		while (nvml->events &&
		       worked(nvml, nvml->calls.events_wait(nvml->events, &event, 0))) {
			if (!(event.type & NVML_EVENT_XID))
				continue;
			(void)gantry_fetch_add(&nvml->nfaults, 1);
			gantry_store_relaxed(&nvml->last_fault, (uint32_t)event.data);
		}
		has_events = nvml->events != NULL;
		(void)pthread_mutex_unlock(&nvml->lock);
	}
	if (!has_events)
		return;
	health->known |= GANTRY_HEALTH_FAULTS;
	health->nfaults = gantry_load_relaxed(&nvml->nfaults);
	health->last_fault = gantry_load_relaxed(&nvml->last_fault);
}

static void read_sensors(struct gantry_cuda_nvml *nvml, struct gantry_device_health *health)
{
	const struct nvml_calls *calls = &nvml->calls;
	struct nvml_memory memory;
	unsigned long long ecc;
	unsigned int core, mem;

	if (calls->temperature &&
	    worked(nvml, calls->temperature(nvml->gpu, NVML_TEMPERATURE_GPU, &core))) {
		health->known |= GANTRY_HEALTH_TEMPERATURE;
		health->temperature_c = (int32_t)core;
	}
	if (calls->clock && worked(nvml, calls->clock(nvml->gpu, NVML_CLOCK_SM, &core)) &&
	    worked(nvml, calls->clock(nvml->gpu, NVML_CLOCK_MEM, &mem))) {
		health->known |= GANTRY_HEALTH_CLOCKS;
		health->clock_mhz = core;
		health->mem_clock_mhz = mem;
	}
	if (calls->memory && worked(nvml, calls->memory(nvml->instance, &memory))) {
		health->known |= GANTRY_HEALTH_MEM;
		health->mem_used = memory.used;
		health->mem_total = memory.total;
	}
	if (calls->ecc &&
	    worked(nvml, calls->ecc(nvml->gpu, NVML_UNCORRECTED, NVML_VOLATILE_ECC, &ecc))) {
		health->known |= GANTRY_HEALTH_ECC;
		health->ecc_uncorrected = ecc;
	}
}

int gantry_cuda_health(struct gantry_dev *dev, struct gantry_device_health *ret_health,
		       struct gantry_err *err)
{
	struct gantry_cuda_nvml *nvml = dev->nvml;

	*ret_health = (struct gantry_device_health){ 0 };
	if (!nvml)
		return 0;
	read_sensors(nvml, ret_health);
	read_events(nvml, ret_health);
	if (gantry_load_relaxed(&nvml->lost))
		return gantry_err_set(err, -EIO, "the GPU has fallen off the bus");
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(ruinous); i++)
		if (ret_health->nfaults && ret_health->last_fault == ruinous[i])
			return gantry_err_set(err, -EIO,
					      "the driver reported Xid %u: the GPU needs a reset",
					      ret_health->last_fault);
	return 0;
}

/* ---- finding devices ---- */

static unsigned list_instances(const struct nvml_calls *calls, void *gpu, char (*names)[80],
			       unsigned cap)
{
	unsigned int max = 0;
	unsigned count = 0;

	if (calls->mig_max(gpu, &max) != NVML_SUCCESS)
		return 0;
	for (unsigned int i = 0; i < max && count < cap; i++) {
		void *instance = NULL;

		if (calls->mig_by_index(gpu, i, &instance) == NVML_SUCCESS &&
		    calls->uuid(instance, names[count], sizeof(names[0])) == NVML_SUCCESS)
			count++;
	}
	return count;
}

static bool is_divided(const struct nvml_calls *calls, void *gpu)
{
	unsigned int now = 0, later = 0;

	return calls->mig_mode && calls->mig_max && calls->mig_by_index &&
	       calls->mig_mode(gpu, &now, &later) == NVML_SUCCESS && now == NVML_MIG_ENABLED;
}

static unsigned list_gpus(const struct nvml_calls *calls, char (*names)[80], unsigned cap)
{
	unsigned int total = 0;
	unsigned count = 0;

	if (calls->count(&total) != NVML_SUCCESS)
		return 0;
	for (unsigned int i = 0; i < total && count < cap; i++) {
		void *gpu = NULL;

		if (calls->by_index(i, &gpu) != NVML_SUCCESS)
			continue;
		if (is_divided(calls, gpu))
			count += list_instances(calls, gpu, names + count, cap - count);
		else if (calls->uuid(gpu, names[count], sizeof(names[0])) == NVML_SUCCESS)
			count++;
	}
	return count;
}

int gantry_cuda_nvml_list(const char *path, char (*ret_names)[80], unsigned cap,
			  struct gantry_err *err)
{
	struct nvml_calls calls;
	void *library;
	unsigned count = 0;
	int r = load(path, &library, &calls, err);

	if (r < 0)
		return r;
	if (calls.count && calls.by_index && calls.uuid)
		count = list_gpus(&calls, ret_names, cap);
	unload(library, &calls);
	return (int)count;
}
