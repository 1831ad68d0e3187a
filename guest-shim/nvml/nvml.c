/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnvidia-ml.so.1 for guests: what tools and PyTorch ask NVIDIA's management library, answered with the tenant's own
 * view. Its functions and structures are declared here, from its documentation: the header is no part of the toolkit.
 * What belongs to the board (temperatures, power, clocks, errors) is not the tenant's: those functions say NOT_SUPPORTED
 * (rest.c). Nothing of a board can be set.
 *
 * Threads: any.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "guest-shim/gantry.h"
#include "guest-shim/nvml/nvml.h"
#include "guest-shim/nvml/view.h"

#define NS_PER_S 1000000000ull

/* ---- beginning and end ---- */

static int status_of(int r)
{
	switch (r) {
	case 0:
	case GANTRY_E_NO_DEVICE:
		return NVML_SUCCESS;
	case GANTRY_E_NO_AGENT:
		return NVML_ERROR_DRIVER_NOT_LOADED;
	case GANTRY_E_DENIED:
		return NVML_ERROR_NO_PERMISSION;
	default:
		return NVML_ERROR_UNKNOWN;
	}
}

/* Where somebody else has begun and not ended. */
static bool begin_again(void)
{
	struct gantry_nvml_view *view = gantry_nvml_lock();
	bool is_begun = view->nusers > 0;

	if (is_begun)
		view->nusers++;
	gantry_nvml_unlock();
	return is_begun;
}

EXPORT int nvmlInitWithFlags(unsigned int flags)
{
	struct gantry_nvml_view seen;
	struct gantry_nvml_view *view;
	int result;

	(void)flags; /* that no GPU is well enough, or that none shall be attached */
	if (begin_again())
		return NVML_SUCCESS;
	/* Not under the lock, for which a fork waits: to look takes as long as the agent does. */
	result = status_of(gantry_nvml_look(&seen));
	if (result != NVML_SUCCESS)
		return result;
	view = gantry_nvml_lock();
	if (view->nusers++ == 0) {
		view->ndevices = seen.ndevices;
		memcpy(view->devices, seen.devices, sizeof(seen.devices[0]) * seen.ndevices);
	}
	gantry_nvml_unlock();
	return result;
}

EXPORT int nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

EXPORT int nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

EXPORT int nvmlShutdown(void)
{
	struct gantry_nvml_view *view = gantry_nvml_lock();
	int result = view->nusers ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;

	if (view->nusers)
		view->nusers--;
	gantry_nvml_unlock();
	return result;
}

EXPORT const char *nvmlErrorString(int result)
{
	static const struct {
		int result;
		const char *text;
	} words[] = {
		{ NVML_SUCCESS, "Success" },
		{ NVML_ERROR_UNINITIALIZED, "Uninitialized" },
		{ NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument" },
		{ NVML_ERROR_NOT_SUPPORTED, "Not Supported" },
		{ NVML_ERROR_NO_PERMISSION, "Insufficient Permissions" },
		{ NVML_ERROR_NOT_FOUND, "Not Found" },
		{ NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size" },
		{ NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded" },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (words[i].result == result)
			return words[i].text;
	return "Unknown Error";
}

/* ---- looking ---- */

static int is_begun(void)
{
	uint32_t nusers = gantry_nvml_lock()->nusers;

	gantry_nvml_unlock();
	return nusers ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

/* A copy of what is known of @handle, which is the place of a device. */
static int find(nvmlDevice_t handle, const void *answer, struct gantry_nvml_device *ret_device)
{
	struct gantry_nvml_view *view = gantry_nvml_lock();
	int result = view->nusers ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;

	for (uint32_t i = 0; view->nusers && answer && i < view->ndevices; i++)
		if ((void *)handle == (void *)&view->devices[i]) {
			*ret_device = view->devices[i];
			result = NVML_SUCCESS;
		}
	gantry_nvml_unlock();
	return result;
}

static int copy_text(char *to, unsigned int room, const char *text)
{
	if (!to)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(text) >= room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(to, text, strlen(text) + 1);
	return NVML_SUCCESS;
}

/* ---- the system ---- */

/* The driver of this process is Gantry's. */
EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	int result = is_begun();

	return result == NVML_SUCCESS ? copy_text(version, length, gantry_version()) : result;
}

EXPORT int nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	char text[80];

	(void)snprintf(text, sizeof(text), "%d.%s", CUDA_VERSION / 1000, gantry_version());
	return copy_text(version, length, text);
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *version)
{
	if (!version)
		return NVML_ERROR_INVALID_ARGUMENT;
	*version = CUDA_VERSION;
	return NVML_SUCCESS;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	return nvmlSystemGetCudaDriverVersion(version);
}

/* ---- devices ---- */

EXPORT int nvmlDeviceGetCount_v2(unsigned int *count)
{
	const struct gantry_nvml_view *view = gantry_nvml_lock();
	int result = !view->nusers ? NVML_ERROR_UNINITIALIZED
		     : !count	   ? NVML_ERROR_INVALID_ARGUMENT
				   : NVML_SUCCESS;

	if (result == NVML_SUCCESS)
		*count = view->ndevices;
	gantry_nvml_unlock();
	return result;
}

EXPORT int nvmlDeviceGetCount(unsigned int *count)
{
	return nvmlDeviceGetCount_v2(count);
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	struct gantry_nvml_view *view = gantry_nvml_lock();
	int result = !view->nusers			  ? NVML_ERROR_UNINITIALIZED
		     : !device || index >= view->ndevices ? NVML_ERROR_INVALID_ARGUMENT
							  : NVML_SUCCESS;

	if (result == NVML_SUCCESS)
		*device = (nvmlDevice_t)&view->devices[index];
	gantry_nvml_unlock();
	return result;
}

EXPORT int nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static void uuid_text(const struct gantry_nvml_device *device, char ret_text[48])
{
	const uint8_t *u = device->info.uuid;

	(void)snprintf(ret_text, 48,
		       "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		       u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
		       u[12], u[13], u[14], u[15]);
}

/* As libcuda numbers them: a bus for each. */
static unsigned int bus_of(const struct gantry_nvml_device *device)
{
	return device->ordinal + 1;
}

/* The first device that @is one for @text. */
static int find_by(const char *text, bool (*is)(const struct gantry_nvml_device *, const char *),
		   nvmlDevice_t *device)
{
	struct gantry_nvml_view *view = gantry_nvml_lock();
	int result = !view->nusers	? NVML_ERROR_UNINITIALIZED
		     : !text || !device ? NVML_ERROR_INVALID_ARGUMENT
					: NVML_ERROR_NOT_FOUND;

	for (uint32_t i = 0; result == NVML_ERROR_NOT_FOUND && i < view->ndevices; i++)
		if (is(&view->devices[i], text)) {
			*device = (nvmlDevice_t)&view->devices[i];
			result = NVML_SUCCESS;
		}
	gantry_nvml_unlock();
	return result;
}

static bool has_uuid(const struct gantry_nvml_device *device, const char *text)
{
	char own[48];

	uuid_text(device, own);
	return strcmp(own, text) == 0;
}

static bool is_at(const struct gantry_nvml_device *device, const char *text)
{
	unsigned int domain, bus, slot;

	return sscanf(text, "%x:%x:%x", &domain, &bus, &slot) == 3 && domain == 0 && slot == 0 &&
	       bus == bus_of(device);
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	return find_by(uuid, has_uuid, device);
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
	return find_by(id, is_at, device);
}

EXPORT int nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *device)
{
	return find_by(id, is_at, device);
}

EXPORT int nvmlDeviceGetName(nvmlDevice_t handle, char *name, unsigned int length)
{
	struct gantry_nvml_device device;
	char text[sizeof(device.info.name) + 1];
	int result = find(handle, name, &device);

	if (result != NVML_SUCCESS)
		return result;
	(void)snprintf(text, sizeof(text), "%.*s", (int)sizeof(device.info.name), device.info.name);
	return copy_text(name, length, text);
}

EXPORT int nvmlDeviceGetUUID(nvmlDevice_t handle, char *uuid, unsigned int length)
{
	struct gantry_nvml_device device;
	char text[48];
	int result = find(handle, uuid, &device);

	if (result != NVML_SUCCESS)
		return result;
	uuid_text(&device, text);
	return copy_text(uuid, length, text);
}

EXPORT int nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned int *index)
{
	struct gantry_nvml_device device;
	int result = find(handle, index, &device);

	if (result == NVML_SUCCESS)
		*index = device.ordinal;
	return result;
}

EXPORT int nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned int *number)
{
	return nvmlDeviceGetIndex(handle, number);
}

EXPORT int nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor)
{
	struct gantry_nvml_device device;
	int result = find(handle, major && minor ? major : NULL, &device);

	if (result == NVML_SUCCESS) {
		*major = device.capability[0];
		*minor = device.capability[1];
	}
	return result;
}

EXPORT int nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, struct nvml_pci *pci)
{
	struct gantry_nvml_device device;
	int result = find(handle, pci, &device);

	if (result != NVML_SUCCESS)
		return result;
	*pci = (struct nvml_pci){ .bus = bus_of(&device) };
	(void)snprintf(pci->legacy, sizeof(pci->legacy), "0000:%02X:00.0", pci->bus);
	(void)snprintf(pci->id, sizeof(pci->id), "00000000:%02X:00.0", pci->bus);
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetPciInfo_v2(nvmlDevice_t handle, struct nvml_pci *pci)
{
	return nvmlDeviceGetPciInfo_v3(handle, pci);
}

EXPORT int nvmlDeviceGetPciInfo(nvmlDevice_t handle, struct nvml_pci *pci)
{
	return nvmlDeviceGetPciInfo_v3(handle, pci);
}

/* ---- what the process has ---- */

static uint64_t used_of(const struct gantry_nvml_device *device)
{
	uint64_t used = gantry_nvml_use().resident_bytes;

	return used < device->info.mem_bytes ? used : device->info.mem_bytes;
}

EXPORT int nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, struct nvml_memory *memory)
{
	struct gantry_nvml_device device;
	int result = find(handle, memory, &device);

	if (result != NVML_SUCCESS)
		return result;
	memory->total = device.info.mem_bytes;
	memory->used = used_of(&device);
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, struct nvml_memory_v2 *memory)
{
	struct gantry_nvml_device device;
	int result = find(handle, memory, &device);

	if (result != NVML_SUCCESS)
		return result;
	if (memory->version != (sizeof(*memory) | 2u << 24))
		return NVML_ERROR_INVALID_ARGUMENT;
	memory->total = device.info.mem_bytes;
	memory->reserved = 0;
	memory->used = used_of(&device);
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* What was known when a device was asked last. */
struct asked {
	uint64_t at_ns;
	uint64_t worked_ns;
};

/* Of the time since the device was asked last, how much the process's work took on its devices; at first, nothing. */
EXPORT int nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, struct nvml_utilization *rates)
{
	static struct asked asked[GANTRY_NVML_DEVICES];
	struct gantry_nvml_device device;
	struct gantry_nvml_use use;
	uint64_t now, percent = 0;
	struct asked *last;
	int result = find(handle, rates, &device);

	if (result != NVML_SUCCESS)
		return result;
	use = gantry_nvml_use();
	now = now_ns();
	last = &asked[device.ordinal];
	(void)gantry_nvml_lock();
	if (last->at_ns && now > last->at_ns && use.device_ns >= last->worked_ns)
		percent = (use.device_ns - last->worked_ns) * 100 / (now - last->at_ns);
	*last = (struct asked){ now, use.device_ns };
	gantry_nvml_unlock();
	rates->gpu = (unsigned int)(percent < 100 ? percent : 100);
	rates->memory = 0;
	return NVML_SUCCESS;
}

/* This process, if it works with CUDA: others are not seen from here. */
static int one_process(nvmlDevice_t handle, unsigned int *count, void *infos, size_t info_bytes)
{
	struct nvml_process_v2 own = { .pid = (unsigned int)getpid(),
				       .gpu_instance = UINT32_MAX,
				       .compute_instance = UINT32_MAX };
	struct gantry_nvml_device device;
	struct gantry_nvml_use use;
	int result = find(handle, count, &device);
	unsigned int room;

	if (result != NVML_SUCCESS)
		return result;
	use = gantry_nvml_use();
	room = *count;
	*count = use.is_open ? 1 : 0;
	if (!use.is_open)
		return NVML_SUCCESS;
	if (room == 0)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	if (!infos)
		return NVML_ERROR_INVALID_ARGUMENT;
	own.used = use.resident_bytes;
	memcpy(infos, &own, info_bytes);
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t handle, unsigned int *count,
						void *infos)
{
	return one_process(handle, count, infos, sizeof(struct nvml_process_v1));
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned int *count,
						   void *infos)
{
	return one_process(handle, count, infos, sizeof(struct nvml_process_v2));
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned int *count,
						   void *infos)
{
	return one_process(handle, count, infos, sizeof(struct nvml_process_v2));
}

static int no_process(nvmlDevice_t handle, unsigned int *count)
{
	struct gantry_nvml_device device;
	int result = find(handle, count, &device);

	if (result == NVML_SUCCESS)
		*count = 0;
	return result;
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t handle, unsigned int *count,
						 void *infos)
{
	(void)infos;
	return no_process(handle, count);
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t handle, unsigned int *count,
						    void *infos)
{
	(void)infos;
	return no_process(handle, count);
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned int *count,
						    void *infos)
{
	(void)infos;
	return no_process(handle, count);
}
