/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakehip/fake.h"

#define MOST_GPUS 16

static _Thread_local int current;

static int number(const char *name, int otherwise)
{
	const char *text = getenv(name);

	return text ? atoi(text) : otherwise;
}

int fake_version(void)
{
#ifdef FAKEHIP_ROCM5
	return 50221153;
#else
	return number("FAKEHIP_VERSION", 60240092);
#endif
}

int fake_ngpus(void)
{
	int n = number("FAKEHIP_GPUS", 1);

	return n < 0 ? 0 : n > MOST_GPUS ? MOST_GPUS : n;
}

void fake_fault(const char *what, const void *address)
{
	fprintf(stderr, "Memory access fault by GPU node-1 (%s) on address %p.\n", what, address);
	abort();
}

static bool has(int device)
{
	return device >= 0 && device < fake_ngpus();
}

gantry_hip_result hipInit(unsigned flags)
{
	(void)flags;
	return fake_ngpus() ? GANTRY_HIP_SUCCESS : GANTRY_HIP_INVALID_DEVICE;
}

gantry_hip_result hipRuntimeGetVersion(int *version)
{
	*version = fake_version();
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipGetDeviceCount(int *count)
{
	*count = fake_ngpus();
	return *count ? GANTRY_HIP_SUCCESS : GANTRY_HIP_NO_DEVICE;
}

gantry_hip_result hipSetDevice(int device)
{
	if (!has(device))
		return GANTRY_HIP_INVALID_DEVICE;
	current = device;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipDeviceGetName(char *name, int len, int device)
{
	if (!has(device) || !name || len < 1)
		return GANTRY_HIP_INVALID_VALUE;
	(void)snprintf(name, (size_t)len, "Stand-in for an AMD GPU on the CPU");
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipDeviceTotalMem(size_t *bytes, int device)
{
	if (!has(device) || !bytes)
		return GANTRY_HIP_INVALID_VALUE;
	*bytes = FAKE_GPU_BYTES;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipDeviceGetAttribute(int *value, int attribute, int device)
{
	if (!has(device) || !value)
		return GANTRY_HIP_INVALID_VALUE;
	switch (attribute) {
	case GANTRY_HIP_ATTR_UNITS:
		*value = 4;
		break;
	case GANTRY_HIP_ATTR_MAX_THREADS_PER_BLOCK:
	case GANTRY_HIP_ATTR_MAX_BLOCK_X:
		*value = FAKE_THREADS;
		break;
	case GANTRY_HIP_ATTR_SHARED_PER_BLOCK:
		*value = 64 << 10;
		break;
#ifndef FAKEHIP_ROCM5
	case GANTRY_HIP_ATTR_VIRTUAL_MEMORY:
		*value = number("FAKEHIP_WINDOWS", 1);
		break;
#endif
	default:
		return GANTRY_HIP_INVALID_VALUE;
	}
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipDeviceGetPCIBusId(char *id, int len, int device)
{
	if (!has(device) || !id || len < 13)
		return GANTRY_HIP_INVALID_VALUE;
	(void)snprintf(id, (size_t)len, "0000:%02x:00.0", 0x40 + device);
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 1;
	*greatest = -1;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipDeviceCanAccessPeer(int *can, int device, int peer)
{
	if (!has(device) || !has(peer) || !can)
		return GANTRY_HIP_INVALID_DEVICE;
	*can = device != peer;
	return GANTRY_HIP_SUCCESS;
}

/* The layouts that the real libraries have: where the name of the processor lies, and how large the whole is. */
static gantry_hip_result properties(char *to, size_t bytes, size_t arch_off, int device)
{
	const char *arch = getenv("FAKEHIP_ARCH");

	if (!to || !has(device))
		return GANTRY_HIP_INVALID_VALUE;
	memset(to, 0, bytes);
	(void)snprintf(to, 256, "Stand-in for an AMD GPU on the CPU");
	(void)snprintf(to + arch_off, 256, "%s", arch ? arch : "gfx90a:sramecc+:xnack-");
	return GANTRY_HIP_SUCCESS;
}

#ifndef FAKEHIP_ROCM5
gantry_hip_result hipGetDevicePropertiesR0600(void *to, int device)
{
	return properties(to, 1472, 1160, device);
}
#endif

/* Under this name the old layout, in newer libraries too. */
gantry_hip_result hipGetDeviceProperties(void *to, int device)
{
	return properties(to, 792, 396, device);
}
