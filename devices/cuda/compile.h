/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compilers for guest images: CUDA C source through NVRTC, PTX through nvJitLink, both to a cubin. The two
 * members image_is_text and compile of the backend's table.
 *
 * Trust: the text is hostile. NVRTC and nvJitLink get it in a process of their own (host-agent/worker/compile.h).
 * Libraries: "nvrtc=PATH" and "nvjitlink=PATH" of the device, else the sonames of CUDA 13 and 12 as dlopen() finds
 *   them. Neither needs a driver. Without nvJitLink compile() gives PTX back as it is, and the driver compiles it at
 *   image_load().
 * What is not text goes to image_load() as it is: ELF (a cubin), a fatbin. gantry_cuda_image_check() is for that
 *   side: the driver takes no length and believes the headers.
 */
#ifndef GANTRY_DEVICES_CUDA_COMPILE_H
#define GANTRY_DEVICES_CUDA_COMPILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "devices/device.h"

enum gantry_cuda_image_sort {
	GANTRY_CUDA_SOURCE = 1, /* anything that is none of the others */
	GANTRY_CUDA_PTX = 2,
	GANTRY_CUDA_CUBIN = 3,
	GANTRY_CUDA_FATBIN = 4,
};

/* What @bytes look like. Any thread. */
enum gantry_cuda_image_sort gantry_cuda_image_sort(const void *bytes, size_t nbytes);

/*
 * Whether cuModuleLoadData() may be given @bytes: what headers announce lies inside, PTX ends with a NUL. -ENOEXEC
 * with a sentence: cut short, another architecture's (@arch "sm_90"; NULL: any), or not an image at all.
 */
int gantry_cuda_image_check(const void *bytes, size_t nbytes, const char *arch,
			    struct gantry_err *err);

/* As device.h says. */
bool gantry_cuda_image_is_text(const void *bytes, size_t nbytes);
int gantry_cuda_compile(const struct gantry_device_conf *conf, const char *arch, const void *bytes,
			size_t nbytes, void **ret_image, size_t *ret_nbytes, char *log,
			size_t log_bytes, struct gantry_err *err);

#endif
