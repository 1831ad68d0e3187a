/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong on a device, whom it hurts, and how it is told. */
#include "base/array.h"
#include "base/atomic.h"
#include "devices/cuda/backend.h"

/* What a result of the driver's that stays tells of the device. */
enum device {
	ASK, /* it may be gone, which shows as one of several results that mean something else too */
	THERE, /* it can only come from what a kernel did, or a neighbour */
	GONE,
};

/* Every later call on the context fails as well. */
static const struct fault {
	int result;
	bool of_kernel; /* a kernel has failed: what the call that says so was to enqueue is not with the device */
	enum device device;
} faults[] = {
	{ CUDA_ERROR_DEINITIALIZED, false, ASK },
	{ CUDA_ERROR_DEVICE_UNAVAILABLE, false, GONE },
	{ CUDA_ERROR_NO_DEVICE, false, GONE },
	{ CUDA_ERROR_INVALID_DEVICE, false, GONE },
	{ CUDA_ERROR_ECC_UNCORRECTABLE, false, ASK },
	{ CUDA_ERROR_NVLINK_UNCORRECTABLE, false, ASK },
	{ 226 /* CUDA_ERROR_CONTAINED, since 12.8 */, false, ASK },
	{ CUDA_ERROR_ILLEGAL_ADDRESS, true, THERE },
	{ CUDA_ERROR_LAUNCH_TIMEOUT, true, ASK },
	{ CUDA_ERROR_CONTEXT_IS_DESTROYED, false, ASK },
	{ CUDA_ERROR_ASSERT, true, THERE },
	{ CUDA_ERROR_HARDWARE_STACK_ERROR, true, THERE },
	{ CUDA_ERROR_ILLEGAL_INSTRUCTION, true, THERE },
	{ CUDA_ERROR_MISALIGNED_ADDRESS, true, THERE },
	{ CUDA_ERROR_INVALID_ADDRESS_SPACE, true, THERE },
	{ CUDA_ERROR_INVALID_PC, true, THERE },
	{ CUDA_ERROR_LAUNCH_FAILED, true, ASK },
	{ 721 /* CUDA_ERROR_TENSOR_MEMORY_LEAK, since 12.8 */, false, ASK },
	{ CUDA_ERROR_MPS_RPC_FAILURE, false, ASK },
	{ CUDA_ERROR_MPS_CLIENT_TERMINATED, false, THERE },
	{ CUDA_ERROR_EXTERNAL_DEVICE, false, ASK },
	{ CUDA_ERROR_UNKNOWN, false, ASK },
};

/* NULL: the call failed, and others need not. */
static const struct fault *fault_of(CUresult result)
{
	for (size_t i = 0; result != CUDA_SUCCESS && i < GANTRY_ARRAY_SIZE(faults); i++)
		if (faults[i].result == (int)result)
			return &faults[i];
	return NULL;
}

bool gantry_cuda_sticky(CUresult result)
{
	return fault_of(result) != NULL;
}

bool gantry_cuda_fault_is_earlier(CUresult result)
{
	const struct fault *fault = fault_of(result);

	return fault && fault->of_kernel;
}

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

static bool is_lost(const struct gantry_dev *dev, CUresult result)
{
	const struct fault *fault = fault_of(result);

	if (fault && fault->device != ASK)
		return fault->device == GONE;
	return gantry_cuda_nvml_lost(dev->nvml);
}

void gantry_cuda_fault_done(struct gantry_dev *dev, struct gantry_done *done)
{
	if (dev->lost == 0)
		dev->lost = is_lost(dev, (CUresult)gantry_load_relaxed(&dev->fault)) ? 1 : -1;
	done->status = dev->lost > 0 ? GANTRY_E_DEVICE_LOST : GANTRY_E_DEVICE_FAULT;
	done->blast = dev->lost > 0 ? GANTRY_BLAST_DEVICE : GANTRY_BLAST_CONTEXT;
}
