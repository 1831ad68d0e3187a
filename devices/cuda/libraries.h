/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA's libraries for installed modules: cuBLAS and cuFFT, loaded when a kernel first asks and
 * bound to one stream. What kernels get is declared in devices/cuda/module.h.
 *
 * Threads: the device thread, with the stream's context current; also for close.
 * Blocking: first use of a library loads it, which may take a second; later calls do not block.
 */
#ifndef GANTRY_DEVICES_CUDA_LIBRARIES_H
#define GANTRY_DEVICES_CUDA_LIBRARIES_H

struct gantry_cuda_libraries;

/*
 * @stream is a CUstream that outlives the result. @folder is searched for the libraries before the
 * system's folders; NULL: these alone. Copied. Loads nothing. NULL: no memory.
 */
struct gantry_cuda_libraries *gantry_cuda_libraries_open(void *stream, const char *folder);
/* The stream is idle. NULL is allowed. */
void gantry_cuda_libraries_close(struct gantry_cuda_libraries *libraries);

/*
 * Any library by its soname, from @folder (may be NULL) or else the system's folders, for dlsym(). It stays for the
 * process's life. NULL: there is none.
 */
void *gantry_cuda_libraries_load(const char *folder, const char *soname);

/*
 * What env->handle(env, @name) returns for "cublas" and "cufft": a struct gantry_cublas or
 * gantry_cufft that lives until the close; NULL for other names and where the library is missing or
 * refuses. A failure is remembered.
 */
void *gantry_cuda_libraries_get(struct gantry_cuda_libraries *libraries, const char *name);

#endif
