/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: names of errors, and entry points by name. The tables are made by tools/gen-cuda. */
#include <string.h>

#include "guest-shim/cuda/core.h"

struct cu_entry {
	const char *name;
	int version; /* of CUDA, in which the form was new */
	int (*plain)(void);
	int (*per_thread)(void);
};
extern const struct cu_entry
	cu_entries[]; /* forms of a name: oldest first; a NULL name ends them */

struct cu_error {
	int code;
	const char *name;
};
extern const struct cu_error cu_errors[];

static const struct cu_error *error_of(CUresult result)
{
	for (const struct cu_error *e = cu_errors; e->name; e++)
		if (e->code == (int)result)
			return e;
	return NULL;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **name)
{
	const struct cu_error *e = error_of(error);

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = e ? e->name : NULL;
	return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Sentences for what programs meet; of the others the name says enough. */
static const struct cu_error sentences[] = {
	{ CUDA_SUCCESS, "no error" },
	{ CUDA_ERROR_INVALID_VALUE, "invalid argument" },
	{ CUDA_ERROR_OUT_OF_MEMORY, "out of memory" },
	{ CUDA_ERROR_NOT_INITIALIZED, "initialization error" },
	{ CUDA_ERROR_DEINITIALIZED, "driver shutting down" },
	{ CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable" },
	{ CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected" },
	{ CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal" },
	{ CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid" },
	{ CUDA_ERROR_INVALID_CONTEXT, "invalid device context" },
	{ CUDA_ERROR_NO_BINARY_FOR_GPU,
	  "no kernel image is available for execution on the device" },
	{ CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed" },
	{ CUDA_ERROR_FILE_NOT_FOUND, "file not found" },
	{ CUDA_ERROR_INVALID_HANDLE, "invalid resource handle" },
	{ CUDA_ERROR_NOT_FOUND, "named symbol not found" },
	{ CUDA_ERROR_NOT_READY, "device not ready" },
	{ CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered" },
	{ CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch" },
	{ CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated" },
	{ CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed" },
	{ CUDA_ERROR_ASSERT, "device-side assert triggered" },
	{ CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error" },
	{ CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered" },
	{ CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address" },
	{ CUDA_ERROR_INVALID_PC, "invalid program counter" },
	{ CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure" },
	{ CUDA_ERROR_NOT_PERMITTED, "operation not permitted" },
	{ CUDA_ERROR_NOT_SUPPORTED, "operation not supported" },
	{ CUDA_ERROR_UNKNOWN, "unknown error" },
};

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **text)
{
	const struct cu_error *e = error_of(error);

	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = e ? e->name : NULL;
	for (size_t i = 0; i < sizeof(sentences) / sizeof(sentences[0]); i++)
		if (sentences[i].code == (int)error)
			*text = sentences[i].name;
	return e ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- entry points ---- */

static CUresult find(const char *name, void **function, int version, uint64_t flags,
		     CUdriverProcAddressQueryResult *status)
{
	const struct cu_entry *found = NULL;
	bool is_known = false;

	if (!name || !function ||
	    (flags & ~(uint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM |
				 CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)))
		return CUDA_ERROR_INVALID_VALUE;
	for (const struct cu_entry *e = cu_entries; e->name; e++) {
		if (strcmp(e->name, name) != 0)
			continue;
		is_known = true;
		if (e->version <= version)
			found = e;
	}
	*function = NULL;
	if (status)
		*status = found	     ? CU_GET_PROC_ADDRESS_SUCCESS
			  : is_known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				     : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	/* No such function is no error: NULL says so. */
	if (!found)
		return CUDA_SUCCESS;
	*function = (void *)(flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
				     ? found->per_thread
				     : found->plain);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags,
				  CUdriverProcAddressQueryResult *status)
{
	return find(name, function, version, flags, status);
}

#undef cuGetProcAddress
CUresult CUDAAPI cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags);
CUresult CUDAAPI cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
	return find(name, function, version, flags, NULL);
}
