/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVRTC's functions, as the process that compiles has loaded them, and a program's whole compilation by them: what a program in a guest
 * made with nvrtcCreateProgram() and its like (proto/cuda_rtc.h). Declared here, for its header is no part of what a build needs.
 */
#ifndef GANTRY_DEVICES_CUDA_RTC_H
#define GANTRY_DEVICES_CUDA_RTC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "proto/cuda_rtc.h"

typedef struct _nvrtcProgram *gantry_nvrtc_program;

struct gantry_nvrtc {
	int (*create)(gantry_nvrtc_program *program, const char *source, const char *name,
		      int nheaders, const char *const *headers, const char *const *names);
	int (*compile)(gantry_nvrtc_program program, int noptions, const char *const *options);
	int (*log_size)(gantry_nvrtc_program program, size_t *ret_size);
	int (*log)(gantry_nvrtc_program program, char *log);
	int (*cubin_size)(gantry_nvrtc_program program, size_t *ret_size);
	int (*cubin)(gantry_nvrtc_program program, char *cubin);
	int (*ptx_size)(gantry_nvrtc_program program, size_t *ret_size);
	int (*ptx)(gantry_nvrtc_program program, char *ptx);
	int (*narchs)(int *ret_n);
	int (*archs)(int *ret_archs);
	const char *(*error)(int result);
	/* Those that only programs of guests want; any may be missing. */
	int (*add_expression)(gantry_nvrtc_program program, const char *expression);
	int (*lowered)(gantry_nvrtc_program program, const char *expression, const char **ret_name);
	int (*ltoir_size)(gantry_nvrtc_program program, size_t *ret_size);
	int (*ltoir)(gantry_nvrtc_program program, char *ltoir);
	int (*optixir_size)(gantry_nvrtc_program program, size_t *ret_size);
	int (*optixir)(gantry_nvrtc_program program, char *optixir);
};

/* Whether these bytes are a request, as their beginning says. */
bool gantry_cuda_rtc_is(const void *bytes, size_t nbytes);
/*
 * Once in a process. 0 and a result, from malloc(), also of a program that does not compile; -ENOEXEC: it is no request; -ENOMEM. The
 * request is checked; what NVRTC makes of the texts is why this has a process of its own.
 */
int gantry_cuda_rtc_compile(const struct gantry_nvrtc *nvrtc, const void *bytes, size_t nbytes,
			    void **ret_result, size_t *ret_nbytes, struct gantry_err *err);

#endif
