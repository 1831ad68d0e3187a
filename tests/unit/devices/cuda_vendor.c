/* SPDX-License-Identifier: Apache-2.0 */
/* What of cuBLAS and cuFFT the cuda backend calls, for the test of how it does. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* The handles that there are, and the stream that the last one got. */
struct vendor_state {
	int nhandles, nplans, last_plan;
	void *stream;
};

EXPORT extern struct vendor_state vendor_state;
struct vendor_state vendor_state;

EXPORT int cublasCreate_v2(void **ret_handle);
EXPORT int cublasDestroy_v2(void *handle);
EXPORT int cublasSetStream_v2(void *handle, void *stream);
EXPORT int cublasSgemm_v2(void *handle);
EXPORT int cublasDgemm_v2(void *handle);
EXPORT int cufftCreate(int *ret_plan);
EXPORT int cufftDestroy(int plan);
EXPORT int cufftSetAutoAllocation(int plan, int yes);
EXPORT int cufftMakePlanMany(int plan, int rank, int *n, int *inembed, int istride, int idist,
			     int *onembed, int ostride, int odist, int kind, int batch,
			     size_t *ret_work_bytes);
EXPORT int cufftSetStream(int plan, void *stream);
EXPORT int cufftSetWorkArea(int plan, void *memory);
EXPORT int cufftExecC2C(int plan);
EXPORT int cufftExecR2C(int plan);
EXPORT int cufftExecC2R(int plan);

int cublasCreate_v2(void **ret_handle)
{
	vendor_state.nhandles++;
	*ret_handle = &vendor_state;
	return 0;
}

int cublasDestroy_v2(void *handle)
{
	vendor_state.nhandles -= handle == &vendor_state;
	return 0;
}

int cublasSetStream_v2(void *handle, void *stream)
{
	vendor_state.stream = stream;
	return handle == &vendor_state ? 0 : 1;
}

int cublasSgemm_v2(void *handle)
{
	return handle == &vendor_state ? 0 : 1;
}

int cublasDgemm_v2(void *handle)
{
	return handle == &vendor_state ? 0 : 1;
}

int cufftCreate(int *ret_plan)
{
	vendor_state.nplans++;
	*ret_plan = ++vendor_state.last_plan;
	return 0;
}

int cufftDestroy(int plan)
{
	(void)plan;
	vendor_state.nplans--;
	return 0;
}

int cufftSetAutoAllocation(int plan, int yes)
{
	(void)plan;
	return yes ? 1 : 0;
}

/* As the library does with a length that it has no room for. */
int cufftMakePlanMany(int plan, int rank, int *n, int *inembed, int istride, int idist,
		      int *onembed, int ostride, int odist, int kind, int batch,
		      size_t *ret_work_bytes)
{
	(void)plan;
	(void)istride;
	(void)idist;
	(void)ostride;
	(void)odist;
	(void)kind;
	if (rank != 1 || inembed || onembed)
		return 4;
	if (*n == 666)
		return 2;
	*ret_work_bytes = (size_t)*n * (size_t)batch;
	return 0;
}

int cufftSetStream(int plan, void *stream)
{
	(void)plan;
	vendor_state.stream = stream;
	return 0;
}

int cufftSetWorkArea(int plan, void *memory)
{
	(void)plan;
	(void)memory;
	return 0;
}

int cufftExecC2C(int plan)
{
	return plan == vendor_state.last_plan ? 0 : 1;
}

int cufftExecR2C(int plan)
{
	return plan == vendor_state.last_plan ? 0 : 1;
}

int cufftExecC2R(int plan)
{
	return plan == vendor_state.last_plan ? 0 : 1;
}
