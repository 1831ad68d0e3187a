/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compilers for guest images: CUDA C++ source through NVRTC, PTX and what is still to be linked through nvJitLink, all to a cubin. The members
 * image_is_text, compiler_open and compile of the backend's table.
 *
 * Trust: the text is hostile. It meets NVRTC and nvJitLink in a process of its own, which can open no file: so
 *   source includes none, and no error message shows one.
 * Libraries: "nvrtc=PATH" and "nvjitlink=PATH" of the device, else the sonames of CUDA 13 and 12 as dlopen() finds
 *   them; nvJitLink is looked for beside an NVRTC that was named. Neither needs a driver. Without nvJitLink, PTX and links come
 *   back as they are, and the driver compiles them at image_load(), on the device's thread.
 * What is no text goes to image_load() as it is. The driver takes no length and believes the headers:
 *   gantry_cuda_image_check() looks at them first.
 */
#ifndef GANTRY_DEVICES_CUDA_COMPILE_H
#define GANTRY_DEVICES_CUDA_COMPILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "devices/device.h"
#include "proto/cuda_link.h"

enum gantry_cuda_image_sort {
	GANTRY_CUDA_SOURCE = 1, /* anything that is none of the others */
	GANTRY_CUDA_PTX = 2,
	GANTRY_CUDA_CUBIN = 3,
	GANTRY_CUDA_FATBIN = 4,
};

/* What @bytes look like. Any thread. */
enum gantry_cuda_image_sort gantry_cuda_image_sort(const void *bytes, size_t nbytes);

/* An image that is still to be linked (proto/cuda_link.h), which is none of those sorts. Any thread. */
bool gantry_cuda_link_is(const void *bytes, size_t nbytes);
/* The image whose kernels build graphs (proto/cuda_graph.h). */
bool gantry_cuda_graph_is(const void *bytes, size_t nbytes);
/* Whether a linker may be given them: of known options, and inputs that are what they say and pass as images. 0 or -ENOEXEC with a sentence. */
int gantry_cuda_link_check(const void *bytes, size_t nbytes, struct gantry_err *err);
/* The @index-th of one that has passed. */
struct gantry_link_option gantry_cuda_link_option(const void *bytes, uint32_t index);
struct gantry_link_input gantry_cuda_link_input(const void *bytes,
						const struct gantry_link_header *header,
						uint32_t index);

/*
 * Whether cuModuleLoadData() may be given @bytes: what headers announce lies inside, PTX ends with a NUL. -ENOEXEC
 * with a sentence: cut short, another architecture's (@arch "sm_90"; NULL: any), or not an image at all.
 */
int gantry_cuda_image_check(const void *bytes, size_t nbytes, const char *arch,
			    struct gantry_err *err);

/* As device.h says. One thread of one process. */
bool gantry_cuda_image_is_text(const void *bytes, size_t nbytes);
int gantry_cuda_compiler_open(const struct gantry_device_conf *conf, struct gantry_err *err);
int gantry_cuda_compile(const struct gantry_device_conf *conf, const char *arch, const void *bytes,
			size_t nbytes, void **ret_image, size_t *ret_nbytes, char *log,
			size_t log_bytes, struct gantry_err *err);

#endif
