/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake of NVRTC offers; declared from NVRTC's documentation, since its own header may be absent. */
#ifndef GANTRY_TESTS_FAKECUDA_NVRTC_H
#define GANTRY_TESTS_FAKECUDA_NVRTC_H

#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct program *nvrtcProgram;
typedef int nvrtcResult;

enum {
	NVRTC_SUCCESS = 0,
	NVRTC_ERROR_OUT_OF_MEMORY = 1,
	NVRTC_ERROR_INVALID_INPUT = 3,
	NVRTC_ERROR_INVALID_PROGRAM = 4,
	NVRTC_ERROR_INVALID_OPTION = 5,
	NVRTC_ERROR_COMPILATION = 6,
};

EXPORT nvrtcResult nvrtcVersion(int *major, int *minor);
EXPORT const char *nvrtcGetErrorString(nvrtcResult result);
EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram *ret_program, const char *source,
				      const char *name, int nheaders, const char *const *headers,
				      const char *const *include_names);
EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program);
EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int nopts, const char *const *opts);
EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *ret_bytes);
EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log);
EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *ret_bytes);
EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *ptx);
EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *ret_bytes);
EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *cubin);
EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int *ret_count);
EXPORT nvrtcResult nvrtcGetSupportedArchs(int *archs);

#endif
