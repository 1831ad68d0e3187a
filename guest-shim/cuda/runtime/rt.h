/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside our libcudart.so.13: CUDA's Runtime API and what nvcc's code registers with it, over the Driver API of libcuda.so.1
 * and nothing else of it.
 *
 *   register.c  images, functions and variables of the program, found by their host addresses
 *   device.c    devices, their properties, this thread's device and last error
 *   memory.c    memory; streams_rt.c what goes into streams, compiled twice; objects.c streams, events, functions
 *
 * Threads: rt.lock guards what is registered. An error of a call is the thread's last one too. CUresult and cudaError_t
 * have the same numbers.
 */
#ifndef GANTRY_GUEST_SHIM_CUDA_RUNTIME_RT_H
#define GANTRY_GUEST_SHIM_CUDA_RUNTIME_RT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
/* After cuda.h: its types are the runtime's. */
#include <cuda_runtime_api.h>

/* First of most calls: started, with the thread's device, whose primary context is current. */
cudaError_t rt_enter(void);
/* Last of most calls: what it returns is the thread's last error, unless it is none. */
cudaError_t rt_leave(CUresult result);
/* The same for calls that tell of what others did (NOT_READY is no error to remember). */
cudaError_t rt_unsupported_call(const char *name);
int rt_device(void);
/* A call of the driver's, entered and left. */
#define RT(call)                                    \
	({                                          \
		cudaError_t rt_error_ = rt_enter(); \
                                                    \
		if (rt_error_ == cudaSuccess)       \
			rt_error_ = rt_leave(call); \
		rt_error_;                          \
	})

/* The function of the program's at @host, or a kernel's handle, loaded now where it was not; the context is current. */
cudaError_t rt_function(const void *host, CUfunction *ret_function);
/* The same for the driver, which has the attributes' names, numbers and layout too: they stay the caller's. INVALID_VALUE. */
CUresult rt_config(const cudaLaunchConfig_t *config, CUlaunchConfig *ret_own);
/* And back: the host function of @function, or that itself where there is none. */
const void *rt_host_of(CUfunction function);
/*
 * Where @bytes from @off on of the variable at @host are, for a copy of @kind to it or from it: enters too.
 * InvalidMemcpyDirection: no such copy; InvalidValue: the variable is not so long.
 */
cudaError_t rt_symbol(const void *host, size_t bytes, size_t off, enum cudaMemcpyKind kind, bool to,
		      CUdeviceptr *ret_address);
cudaError_t rt_variable(const void *host, CUdeviceptr *ret_address, size_t *ret_bytes);

/* A copy in three dimensions as the driver has it. */
CUresult rt_box(const struct cudaMemcpy3DParms *from, CUDA_MEMCPY3D *ret_to);
CUresult rt_unbox(const CUDA_MEMCPY3D *from, struct cudaMemcpy3DParms *ret_to);

/* What <<<>>> has left for the launch that follows. */
struct rt_call {
	dim3 grid;
	dim3 block;
	size_t shared;
	cudaStream_t stream;
};

#endif
