/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that tools look for and whose answer is not the tenant's: of the board, of its links, of other processes.
 * Whatever they are called with, they say NOT_SUPPORTED, as the library does on boards that lack something.
 */
#include "guest-shim/nvml/nvml.h"

#define REST(F)                                      \
	F(nvmlDeviceGetTemperature)                  \
	F(nvmlDeviceGetTemperatureThreshold)         \
	F(nvmlDeviceGetFanSpeed)                     \
	F(nvmlDeviceGetPowerUsage)                   \
	F(nvmlDeviceGetPowerState)                   \
	F(nvmlDeviceGetPowerManagementLimit)         \
	F(nvmlDeviceGetEnforcedPowerLimit)           \
	F(nvmlDeviceGetTotalEnergyConsumption)       \
	F(nvmlDeviceGetPerformanceState)             \
	F(nvmlDeviceGetClockInfo)                    \
	F(nvmlDeviceGetMaxClockInfo)                 \
	F(nvmlDeviceGetCurrentClocksThrottleReasons) \
	F(nvmlDeviceGetEccMode)                      \
	F(nvmlDeviceGetTotalEccErrors)               \
	F(nvmlDeviceGetPersistenceMode)              \
	F(nvmlDeviceGetDisplayMode)                  \
	F(nvmlDeviceGetDisplayActive)                \
	F(nvmlDeviceGetComputeMode)                  \
	F(nvmlDeviceGetMigMode)                      \
	F(nvmlDeviceGetMaxMigDeviceCount)            \
	F(nvmlDeviceGetMigDeviceHandleByIndex)       \
	F(nvmlDeviceGetBrand)                        \
	F(nvmlDeviceGetArchitecture)                 \
	F(nvmlDeviceGetSerial)                       \
	F(nvmlDeviceGetVbiosVersion)                 \
	F(nvmlDeviceGetBAR1MemoryInfo)               \
	F(nvmlDeviceGetEncoderUtilization)           \
	F(nvmlDeviceGetDecoderUtilization)           \
	F(nvmlDeviceGetProcessUtilization)           \
	F(nvmlDeviceGetCurrPcieLinkGeneration)       \
	F(nvmlDeviceGetCurrPcieLinkWidth)            \
	F(nvmlDeviceGetMaxPcieLinkGeneration)        \
	F(nvmlDeviceGetMaxPcieLinkWidth)             \
	F(nvmlDeviceGetPcieThroughput)               \
	F(nvmlDeviceGetNvLinkState)                  \
	F(nvmlDeviceGetNvLinkVersion)                \
	F(nvmlDeviceGetNvLinkCapability)             \
	F(nvmlDeviceGetNvLinkRemoteDeviceType)       \
	F(nvmlDeviceGetNvLinkRemotePciInfo)          \
	F(nvmlDeviceGetNvLinkRemotePciInfo_v2)       \
	F(nvmlDeviceGetP2PStatus)                    \
	F(nvmlDeviceGetTopologyCommonAncestor)       \
	F(nvmlDeviceGetCpuAffinity)                  \
	F(nvmlDeviceGetGpuFabricInfo)                \
	F(nvmlDeviceGetGpuFabricInfoV)               \
	F(nvmlDeviceGetSupportedEventTypes)          \
	F(nvmlDeviceGetFieldValues)                  \
	F(nvmlDeviceRegisterEvents)                  \
	F(nvmlEventSetCreate)                        \
	F(nvmlEventSetFree)                          \
	F(nvmlEventSetWait)                          \
	F(nvmlEventSetWait_v2)                       \
	F(nvmlSystemGetProcessName)                  \
	F(nvmlUnitGetCount)

#define DEFINE(name)                             \
	EXPORT int name(void);                   \
	int name(void)                           \
	{                                        \
		return NVML_ERROR_NOT_SUPPORTED; \
	}
REST(DEFINE)
