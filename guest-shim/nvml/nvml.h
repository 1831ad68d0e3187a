/* SPDX-License-Identifier: Apache-2.0 */
/* What of NVIDIA's management library is answered, declared from its documentation. */
#ifndef GANTRY_GUEST_SHIM_NVML_NVML_H
#define GANTRY_GUEST_SHIM_NVML_NVML_H

/* As our libcuda has it. */
#define CUDA_VERSION 13000

/* Nobody else declares them. */
#define EXPORT __attribute__((visibility("default")))

typedef struct nvmlDevice_st *nvmlDevice_t;

/* nvmlReturn_t */
enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_UNKNOWN = 999,
};

struct nvml_memory {
	unsigned long long total, free, used;
};

struct nvml_memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};

struct nvml_utilization {
	unsigned int gpu, memory; /* percent */
};

struct nvml_pci {
	char legacy[16];
	unsigned int domain, bus, device, vendor_device, subsystem;
	char id[32];
};

struct nvml_process_v1 {
	unsigned int pid;
	unsigned long long used;
};

struct nvml_process_v2 {
	unsigned int pid;
	unsigned long long used;
	unsigned int gpu_instance, compute_instance;
};

int nvmlInit(void);
int nvmlInit_v2(void);
int nvmlInitWithFlags(unsigned int flags);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);
int nvmlSystemGetDriverVersion(char *version, unsigned int length);
int nvmlSystemGetNVMLVersion(char *version, unsigned int length);
int nvmlSystemGetCudaDriverVersion(int *version);
int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlDeviceGetCount(unsigned int *count);
int nvmlDeviceGetCount_v2(unsigned int *count);
int nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device);
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
int nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device);
int nvmlDeviceGetName(nvmlDevice_t handle, char *name, unsigned int length);
int nvmlDeviceGetUUID(nvmlDevice_t handle, char *uuid, unsigned int length);
int nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned int *index);
int nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned int *number);
int nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor);
int nvmlDeviceGetPciInfo(nvmlDevice_t handle, struct nvml_pci *pci);
int nvmlDeviceGetPciInfo_v2(nvmlDevice_t handle, struct nvml_pci *pci);
int nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, struct nvml_pci *pci);
int nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, struct nvml_memory *memory);
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, struct nvml_memory_v2 *memory);
int nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, struct nvml_utilization *rates);
int nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t handle, unsigned int *count, void *infos);
int nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned int *count, void *infos);
int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned int *count, void *infos);
int nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t handle, unsigned int *count, void *infos);
int nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t handle, unsigned int *count, void *infos);
int nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned int *count, void *infos);

#endif
