/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries: images that the program loads itself. Their kernels are handles, which launches take as they take functions. */
#include "guest-shim/cuda/runtime/rt.h"

cudaError_t CUDARTAPI cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
					  enum cudaJitOption *jit_options, void **jit_values,
					  unsigned int njit, enum cudaLibraryOption *options,
					  void **values, unsigned int n)
{
	return RT(cuLibraryLoadData(library, code, (CUjit_option *)jit_options, jit_values, njit,
				    (CUlibraryOption *)options, values, n));
}

cudaError_t CUDARTAPI cudaLibraryLoadFromFile(cudaLibrary_t *library, const char *path,
					      enum cudaJitOption *jit_options, void **jit_values,
					      unsigned int njit, enum cudaLibraryOption *options,
					      void **values, unsigned int n)
{
	return RT(cuLibraryLoadFromFile(library, path, (CUjit_option *)jit_options, jit_values,
					njit, (CUlibraryOption *)options, values, n));
}

cudaError_t CUDARTAPI cudaLibraryUnload(cudaLibrary_t library)
{
	return RT(cuLibraryUnload(library));
}

cudaError_t CUDARTAPI cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library,
					   const char *name)
{
	return RT(cuLibraryGetKernel(kernel, library, name));
}

cudaError_t CUDARTAPI cudaLibraryGetGlobal(void **ptr, size_t *bytes, cudaLibrary_t library,
					   const char *name)
{
	CUdeviceptr address = 0;
	cudaError_t error = RT(cuLibraryGetGlobal(&address, bytes, library, name));

	if (error == cudaSuccess && ptr)
		*ptr = (void *)(uintptr_t)address;
	return error;
}

cudaError_t CUDARTAPI cudaLibraryGetManaged(void **ptr, size_t *bytes, cudaLibrary_t library,
					    const char *name)
{
	CUdeviceptr address = 0;
	cudaError_t error = RT(cuLibraryGetManaged(ptr ? &address : NULL, bytes, library, name));

	if (error == cudaSuccess && ptr)
		*ptr = (void *)(uintptr_t)address;
	return error;
}

cudaError_t CUDARTAPI cudaKernelSetAttributeForDevice(cudaKernel_t kernel,
						      enum cudaFuncAttribute attribute, int value,
						      int ordinal)
{
	CUfunction function;
	cudaError_t error = RT((CUresult)rt_function(kernel, &function));

	/* The numbers are the same. */
	return error == cudaSuccess ? RT(cuKernelSetAttribute((CUfunction_attribute)attribute,
							      value, (CUkernel)function, ordinal))
				    : error;
}

cudaError_t CUDARTAPI cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
	CUfunction function;
	cudaError_t error = RT(kernel ? (CUresult)rt_function(host, &function)
				      : CUDA_ERROR_INVALID_VALUE);

	if (error == cudaSuccess)
		*kernel = (cudaKernel_t)function;
	return error;
}
