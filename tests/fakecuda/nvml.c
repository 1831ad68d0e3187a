/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake of NVML, declared from its documentation. Devices are those of FAKECUDA_DEVICES; what they say comes from
 * the file FAKECUDA_NVML, read at each call, one KEY=VALUE a line:
 *   temperature=45 sm_clock=1980 mem_clock=3201 used=BYTES total=BYTES ecc=0 xid=0 xid_device=0
 * mig=N divides the first GPU into N instances. A change of xid_count (with its number in xid) is an event. FAKECUDA_LOST is as for the driver: 15.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define EXPORT	       __attribute__((visibility("default")))
#define MAX_DEVICES    16
#define MAX_PARTS      7 /* of the first GPU, as MIG instances */
#define INIT_NO_ATTACH 2u

typedef int nvmlReturn_t;
typedef struct device *nvmlDevice_t;
typedef struct events *nvmlEventSet_t;

enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNKNOWN = 999,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_MEMORY = 20,
};

#define NVML_EVENT_XID 0x8ull

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
	char busIdLegacy[16];
	unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;

typedef struct {
	nvmlDevice_t device;
	unsigned long long eventType;
	unsigned long long eventData;
	unsigned int gpuInstanceId;
	unsigned int computeInstanceId;
} nvmlEventData_t;

struct device {
	unsigned int idx;
};

struct events {
	uint64_t seen;
};

static struct device devices[MAX_DEVICES];
static struct device parts[MAX_PARTS]; /* idx: of the GPU */
static unsigned int ninits;

EXPORT nvmlReturn_t nvmlInit_v2(void);
EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags);
EXPORT nvmlReturn_t nvmlShutdown(void);
EXPORT const char *nvmlErrorString(nvmlReturn_t result);
EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int len);
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *ret_count);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int idx, nvmlDevice_t *ret_device);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *ret_device);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *ret_device);
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int len);
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int len);
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *ret_info);
EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *ret_c);
EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int clock, unsigned int *ret_mhz);
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *ret_memory);
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *ret_memory);
EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter,
						unsigned long long *ret_count);
EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *ret_current,
					 unsigned int *ret_pending);
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *ret_count);
EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int idx,
							nvmlDevice_t *ret_mig);
EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
						     unsigned long long *ret_types);
EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
					     nvmlEventSet_t set);
EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *ret_set);
EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set);
EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *ret_data,
					unsigned int timeout_ms);

static uint64_t said(const char *key, uint64_t otherwise)
{
	const char *path = getenv("FAKECUDA_NVML");
	FILE *file = path && *path ? fopen(path, "re") : NULL;
	size_t len = strlen(key);
	char line[128];

	if (!file)
		return otherwise;
	while (fgets(line, sizeof(line), file))
		if (strncmp(line, key, len) == 0 && line[len] == '=')
			otherwise = strtoull(line + len + 1, NULL, 0);
	(void)fclose(file);
	return otherwise;
}

static bool is_lost(unsigned int idx)
{
	const char *path = getenv("FAKECUDA_LOST");
	FILE *file = path && *path ? fopen(path, "re") : NULL;
	unsigned int listed = 0;
	bool lost = false, any = false;

	if (!file)
		return false;
	while (!lost && fscanf(file, "%u", &listed) == 1) {
		any = true;
		lost = listed == idx;
	}
	(void)fclose(file);
	return lost || !any;
}

static unsigned int count(void)
{
	const char *text = getenv("FAKECUDA_DEVICES");
	unsigned long n = text && *text ? strtoul(text, NULL, 0) : 1;

	return n > MAX_DEVICES ? MAX_DEVICES : (unsigned int)n;
}

static nvmlReturn_t enter(nvmlDevice_t device)
{
	if (ninits == 0)
		return NVML_ERROR_UNINITIALIZED;
	if ((device < devices || device >= devices + MAX_DEVICES || device->idx >= count()) &&
	    (device < parts || device >= parts + MAX_PARTS))
		return NVML_ERROR_INVALID_ARGUMENT;
	return is_lost(device->idx) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

/* To begin with GPUs takes what a process does not do once it is confined; to begin once more takes nothing. */
nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	static bool has_gpus;

	if (!(flags & INIT_NO_ATTACH) && !has_gpus) {
		if (prctl(PR_GET_SECCOMP) != 0)
			return NVML_ERROR_UNKNOWN;
		has_gpus = true;
	}
	for (unsigned int i = 0; i < MAX_DEVICES; i++)
		devices[i].idx = i;
	ninits++;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void)
{
	if (ninits == 0)
		return NVML_ERROR_UNINITIALIZED;
	ninits--;
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
	return result == NVML_SUCCESS		  ? "Success"
	       : result == NVML_ERROR_GPU_IS_LOST ? "GPU is lost"
						  : "Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int len)
{
	(void)snprintf(version, len, "580.0");
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *ret_count)
{
	if (ninits == 0)
		return NVML_ERROR_UNINITIALIZED;
	*ret_count = count();
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int idx, nvmlDevice_t *ret_device)
{
	nvmlReturn_t r = idx < count() ? enter(&devices[idx]) : NVML_ERROR_INVALID_ARGUMENT;

	if (r == NVML_SUCCESS)
		*ret_device = &devices[idx];
	return r;
}

static void write_uuid(unsigned int idx, char *uuid, unsigned int len)
{
	(void)snprintf(uuid, len, "GPU-66616b65-0000-0000-0000-0000000000%02x", idx);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *ret_device)
{
	char is[64];

	for (unsigned int i = 0; i < count(); i++) {
		write_uuid(i, is, sizeof(is));
		if (strcmp(is, uuid) == 0)
			return nvmlDeviceGetHandleByIndex_v2(i, ret_device);
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *ret_device)
{
	unsigned int domain, bus, slot;

	if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3 || bus < 0xf0 ||
	    bus - 0xf0 >= count())
		return NVML_ERROR_NOT_FOUND;
	return nvmlDeviceGetHandleByIndex_v2(bus - 0xf0, ret_device);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int len)
{
	nvmlReturn_t r = enter(device);

	if (r == NVML_SUCCESS)
		(void)snprintf(name, len, "Fake GPU");
	return r;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int len)
{
	nvmlReturn_t r = enter(device);

	if (r == NVML_SUCCESS && device >= parts && device < parts + MAX_PARTS)
		(void)snprintf(uuid, len, "MIG-66616b65-0000-0000-0000-0000000000%02x",
			       (unsigned int)(device - parts));
	else if (r == NVML_SUCCESS)
		write_uuid(device->idx, uuid, len);
	return r;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *ret_info)
{
	nvmlReturn_t r = enter(device);

	if (r != NVML_SUCCESS)
		return r;
	memset(ret_info, 0, sizeof(*ret_info));
	ret_info->bus = 0xf0 + device->idx;
	(void)snprintf(ret_info->busId, sizeof(ret_info->busId), "00000000:%02X:00.0",
		       ret_info->bus);
	return r;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *ret_c)
{
	nvmlReturn_t r = enter(device);

	if (r == NVML_SUCCESS && sensor != 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*ret_c = (unsigned int)said("temperature", 45);
	return r;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int clock, unsigned int *ret_mhz)
{
	nvmlReturn_t r = enter(device);

	if (r == NVML_SUCCESS)
		*ret_mhz = clock == 2 ? (unsigned int)said("mem_clock", 3201)
				      : (unsigned int)said("sm_clock", 1980);
	return r;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *ret_memory)
{
	nvmlReturn_t r = enter(device);

	if (r != NVML_SUCCESS)
		return r;
	ret_memory->total = said("total", 4ull << 30);
	ret_memory->used = said("used", 512ull << 20);
	ret_memory->free = ret_memory->total - ret_memory->used;
	return r;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *ret_memory)
{
	nvmlMemory_t memory;
	nvmlReturn_t r = nvmlDeviceGetMemoryInfo(device, &memory);

	if (r != NVML_SUCCESS)
		return r;
	ret_memory->total = memory.total;
	ret_memory->used = memory.used;
	ret_memory->free = memory.free;
	ret_memory->reserved = 0;
	return r;
}

/* @type 1: uncorrected. @counter 0: since the driver's start. */
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter,
					 unsigned long long *ret_count)
{
	nvmlReturn_t r = enter(device);

	if (r == NVML_SUCCESS)
		*ret_count = type == 1 && counter == 0 ? said("ecc", 0) : 0;
	return r;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *ret_current,
				  unsigned int *ret_pending)
{
	nvmlReturn_t r = enter(device);

	if (r == NVML_SUCCESS)
		*ret_current = *ret_pending = device == &devices[0] && said("mig", 0) > 0;
	return r;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *ret_count)
{
	nvmlReturn_t r = enter(device);

	if (r == NVML_SUCCESS)
		*ret_count = device == &devices[0] ? MAX_PARTS : 0;
	return r;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int idx,
						 nvmlDevice_t *ret_mig)
{
	nvmlReturn_t r = enter(device);

	if (r != NVML_SUCCESS)
		return r;
	if (device != &devices[0] || idx >= MAX_PARTS || idx >= said("mig", 0))
		return NVML_ERROR_NOT_FOUND;
	*ret_mig = &parts[idx];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *ret_types)
{
	nvmlReturn_t r = enter(device);

	if (r == NVML_SUCCESS)
		*ret_types = NVML_EVENT_XID;
	return r;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *ret_set)
{
	*ret_set = calloc(1, sizeof(**ret_set));
	if (!*ret_set)
		return NVML_ERROR_MEMORY;
	(*ret_set)->seen = said("xid_count", 0);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	free(set);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
				      nvmlEventSet_t set)
{
	nvmlReturn_t r = enter(device);

	if (r == NVML_SUCCESS && (!set || types & ~NVML_EVENT_XID))
		return NVML_ERROR_NOT_SUPPORTED;
	return r;
}

/* Looks now and then; the file has no other way to tell. */
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *ret_data,
				 unsigned int timeout_ms)
{
	const struct timespec pause = { .tv_nsec = 5000000 };

	for (unsigned int waited = 0;; waited += 5) {
		uint64_t now = said("xid_count", 0);

		if (now > set->seen) {
			set->seen++;
			memset(ret_data, 0, sizeof(*ret_data));
			ret_data->device = &devices[said("xid_device", 0) % MAX_DEVICES];
			ret_data->eventType = NVML_EVENT_XID;
			ret_data->eventData = said("xid", 79);
			return NVML_SUCCESS;
		}
		if (waited >= timeout_ms)
			return NVML_ERROR_TIMEOUT;
		(void)nanosleep(&pause, NULL);
	}
}
