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

bool gantry_cuda_fault_is_earlier(CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
		return true;
	default:
		return false;
	}
}

/*
 * A device that fell off the bus shows as one of several results that mean something else too, so NVML is asked. The
 * rest can only come from what a kernel did: it ends this context, and nobody need wait for NVML.
 */
static bool is_lost(const struct gantry_dev *dev, CUresult result)
{
	switch ((int)result) {
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
		return true;
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_MPS_CLIENT_TERMINATED:
		return false;
	default:
		return gantry_cuda_nvml_lost(dev->nvml);
	}
}

void gantry_cuda_fault_done(struct gantry_dev *dev, struct gantry_done *done)
{
	if (dev->lost == 0)
		dev->lost = is_lost(dev, (CUresult)gantry_load_relaxed(&dev->fault)) ? 1 : -1;
	done->status = dev->lost > 0 ? GANTRY_E_DEVICE_LOST : GANTRY_E_DEVICE_FAULT;
	done->blast = dev->lost > 0 ? GANTRY_BLAST_DEVICE : GANTRY_BLAST_CONTEXT;
}
