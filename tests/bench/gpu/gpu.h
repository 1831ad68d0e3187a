/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the GPU benchmarks need of a GPU, in two forms with the same programs on top: native.c is what one writes by
 * hand with the CUDA driver API, guest.c is the same through libgantry.
 *
 * Returns: 0, or -1 after bench_fail() has said why. Threads: one. Work goes to one stream (queue), in order.
 */
#ifndef GANTRY_TESTS_BENCH_GPU_GPU_H
#define GANTRY_TESTS_BENCH_GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devices/signature.h"

#define GPU_MAX_ARGS 16u

typedef uint64_t gpu_buffer;

/* Memory that a device reads and writes at link speed: pinned natively, a host buffer of Gantry's. Touched. */
struct gpu_pinned {
	void *ptr;
	gpu_buffer buffer;
	uint64_t bytes;
};

struct gpu_kernel {
	uint64_t handle;
	struct gantry_signature sig;
};

union gpu_arg {
	gpu_buffer buffer;
	uint64_t u64;
	uint32_t u32;
	int32_t i32;
	float f32;
};

struct gpu_dim {
	uint32_t x, y, z;
};

/* Opens the device (the session) and loads the image file. *ret_ns: how long until the first kernel was done. */
int gpu_open(const char *image_path, int priority, uint64_t *ret_ns);
void gpu_close(void);

int gpu_alloc(uint64_t bytes, gpu_buffer *ret_buffer);
int gpu_free(gpu_buffer buffer);
int gpu_pin(uint64_t bytes, struct gpu_pinned *ret_pinned);
int gpu_unpin(struct gpu_pinned *pinned);

/* Pageable memory; both return when the memory may be used again. */
int gpu_write(gpu_buffer buffer, const void *src, uint64_t bytes);
int gpu_read(gpu_buffer buffer, void *dst, uint64_t bytes);
/* Enqueued; gpu_sync() waits. */
int gpu_write_pinned(gpu_buffer buffer, const struct gpu_pinned *src, uint64_t bytes);
int gpu_read_pinned(gpu_buffer buffer, const struct gpu_pinned *dst, uint64_t bytes);
int gpu_fill(gpu_buffer buffer, uint8_t value, uint64_t bytes);

/* @signature as Gantry writes it: "r:f32*,w:f32*,u32". */
int gpu_kernel(const char *name, const char *signature, struct gpu_kernel *ret_kernel);
int gpu_launch(const struct gpu_kernel *kernel, struct gpu_dim grid, struct gpu_dim block,
	       const union gpu_arg *args);
int gpu_sync(void);

#endif
