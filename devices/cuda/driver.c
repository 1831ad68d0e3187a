/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/cuda/driver.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/str.h"
#include "devices/library.h"

#define OLDEST_VERSION 12040

/* The one driver of the process; @lock protects all of it. */
static struct {
	pthread_mutex_t lock;
	struct gantry_library library;
	char visible[80]; /* what CUDA_VISIBLE_DEVICES was set to by us */
	bool started;
	struct gantry_cuda_driver table;
} process = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.library = { .what = "NVIDIA driver",
		     .needed = "12.4 or newer is needed",
		     .option = "driver" },
};

static const struct gantry_library_symbol symbols[] = {
#define SYMBOL(member, symbol) { #symbol, offsetof(struct gantry_cuda_driver, member), false },
	GANTRY_CUDA_FUNCTIONS(SYMBOL)
#undef SYMBOL
};

static int start_locked(const char *visible, struct gantry_err *err)
{
	CUresult result;

	if (process.started && strcmp(process.visible, visible ? visible : "") != 0)
		return gantry_err_set(
			err, -EBUSY,
			"gpu: a process serves one MIG instance and no other GPU; this one has begun with %s",
			process.visible[0] ? process.visible : "whole GPUs");
	if (process.started)
		return 0;
	/* The driver knows no other way to choose an instance. */
	if (visible) {
		if (gantry_str_copy(process.visible, sizeof(process.visible), visible) < 0 ||
		    setenv("CUDA_VISIBLE_DEVICES", visible, 1) < 0)
			return gantry_err_set(err, -EINVAL, "gpu: not the name of a MIG instance");
	}
	/* Devices in the order that nvidia-smi and our documents count them in. */
	(void)setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0); /* without it the order is another */
	result = process.table.Init(0);
	if (result == CUDA_SUCCESS)
		result = process.table.DriverGetVersion(&process.table.version);
	if (result != CUDA_SUCCESS) {
		(void)gantry_cuda_err(&process.table, result, "cuInit", err);
		return gantry_cuda_errno(result) == -EBUSY ? -EBUSY : -ENODEV;
	}
	if (process.table.version < OLDEST_VERSION)
		return gantry_err_set(
			err, -ENODEV,
			"the NVIDIA driver speaks CUDA %d.%d; 12.4 or newer is needed",
			process.table.version / 1000, process.table.version % 1000 / 10);
	process.started = true;
	return 0;
}

int gantry_cuda_driver_open(const char *path, const char *visible,
			    const struct gantry_cuda_driver **ret_driver, struct gantry_err *err)
{
	int r;

	(void)pthread_mutex_lock(&process.lock);
	r = gantry_library_open(&process.library, path ? path : "libcuda.so.1", symbols,
				GANTRY_ARRAY_SIZE(symbols), &process.table, err);
	if (r == 0)
		r = start_locked(visible, err);
	(void)pthread_mutex_unlock(&process.lock);
	if (r < 0)
		return r;
	*ret_driver = &process.table;
	return 0;
}

int gantry_cuda_errno(CUresult result)
{
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
	case CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
		return -EINVAL;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
	case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
		return -ENODEV;
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
	case CUDA_ERROR_SYSTEM_NOT_READY:
	case CUDA_ERROR_MPS_SERVER_NOT_READY:
	case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
	case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED:
		return -EBUSY;
	case CUDA_ERROR_INVALID_IMAGE:
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
	case CUDA_ERROR_INVALID_PTX:
	case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
	case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
	case CUDA_ERROR_JIT_COMPILATION_DISABLED:
	case CUDA_ERROR_INVALID_SOURCE:
	case CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND:
	case CUDA_ERROR_SHARED_OBJECT_INIT_FAILED:
		return -ENOEXEC;
	case CUDA_ERROR_NOT_FOUND:
		return -ENOENT;
	case CUDA_ERROR_NOT_PERMITTED:
		return -EPERM;
	case CUDA_ERROR_NOT_SUPPORTED:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}

int gantry_cuda_err(const struct gantry_cuda_driver *driver, CUresult result, const char *what,
		    struct gantry_err *err)
{
	const char *name = NULL;
	const char *text = NULL;

	if (result == CUDA_SUCCESS)
		return 0;
	/* Both leave NULL for a number that they do not know. */
	(void)driver->GetErrorName(result, &name);
	(void)driver->GetErrorString(result, &text);
	return gantry_err_set(err, gantry_cuda_errno(result), "%s: %s (%d): %s", what,
			      name ? name : "CUDA error", (int)result, text ? text : "unknown");
}
