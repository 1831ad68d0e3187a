/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong on a device, whom it hurts, and how it is told. */
#include "base/atomic.h"
#include "devices/cuda/backend.h"

void gantry_cuda_fault_note(struct gantry_dev *dev, CUresult result)
{
	uint32_t none = CUDA_SUCCESS;

	(void)gantry_cas(&dev->fault, &none, (uint32_t)result);
}

int gantry_cuda_check(struct gantry_dev *dev, CUresult result, const char *what,
		      struct gantry_err *err)
{
	if (gantry_cuda_sticky(result))
		gantry_cuda_fault_note(dev, result);
	return gantry_cuda_err(dev->driver, result, what, err);
}

/*
 * A device that fell off the bus shows as any of several results, so NVML is asked too. What else is
 * sticky ends this context, and the others of the process with it.
 */
static bool is_lost(const struct gantry_dev *dev, CUresult result)
{
	switch (result) {
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
		return true;
	default:
		return gantry_cuda_nvml_lost(dev->nvml);
	}
}

void gantry_cuda_fault_done(const struct gantry_dev *dev, struct gantry_done *done)
{
	CUresult result = (CUresult)gantry_load_relaxed(&dev->fault);
	bool lost = is_lost(dev, result);

	done->status = lost ? GANTRY_E_DEVICE_LOST : GANTRY_E_DEVICE_FAULT;
	done->blast = lost ? GANTRY_BLAST_DEVICE : GANTRY_BLAST_CONTEXT;
}
