/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same as native.c through libgantry: a session at $GANTRY_DOOR, one queue on a CUDA device, or on an AMD GPU's where
 * $BENCH_GPU_KIND is hip.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "guest-shim/gantry.h"
#include "tests/bench/bench.h"
#include "tests/bench/gpu/gpu.h"

#define IMAGE_MAX (64u << 20)

static struct gantry_session *session;
static gantry_queue queue;
static gantry_image image;
static gantry_ticket last; /* of the newest task */
static int kind = GANTRY_KIND_CUDA;

static int failed(const char *what)
{
	bench_fail("%s: %s", what, gantry_last_error());
	return -1;
}

#define TRY(call, ...)                        \
	do {                                  \
		if (call(__VA_ARGS__) < 0)    \
			return failed(#call); \
	} while (0)

static int load_image(const char *path)
{
	char *bytes = NULL;
	size_t nbytes;
	int r;

	if (gantry_file_read(path, IMAGE_MAX, &bytes, &nbytes) < 0) {
		bench_fail("cannot read %s", path);
		return -1;
	}
	r = gantry_image_load(session, kind, bytes, nbytes, &image);
	free(bytes);
	return r < 0 ? failed("gantry_image_load") : 0;
}

int gpu_open(const char *image_path, int priority, uint64_t *ret_ns)
{
	struct gantry_queue_options options = { .priority = priority };
	const char *wanted = getenv("BENCH_GPU_KIND");
	uint64_t start = gantry_now_ns();
	struct gpu_kernel k;

	if (wanted && strcmp(wanted, "hip") == 0)
		kind = GANTRY_KIND_HIP;
	options.kind = kind;
	TRY(gantry_open, NULL, NULL, &session);
	TRY(gantry_queue_open, session, &options, &queue);
	if (load_image(image_path) < 0 || gpu_kernel("empty", "void", &k) < 0 ||
	    gpu_launch(&k, (struct gpu_dim){ 1, 1, 1 }, (struct gpu_dim){ 1, 1, 1 }, NULL) < 0 ||
	    gpu_sync() < 0)
		return -1;
	*ret_ns = gantry_now_ns() - start;
	return 0;
}

void gpu_close(void)
{
	gantry_close(session);
	session = NULL;
}

int gpu_alloc(uint64_t bytes, gpu_buffer *ret_buffer)
{
	TRY(gantry_alloc, session, bytes, GANTRY_ALLOC_DEVICE, ret_buffer);
	return 0;
}

int gpu_free(gpu_buffer buffer)
{
	TRY(gantry_free, session, buffer);
	return 0;
}

int gpu_pin(uint64_t bytes, struct gpu_pinned *ret_pinned)
{
	TRY(gantry_alloc, session, bytes, GANTRY_ALLOC_HOST, &ret_pinned->buffer);
	TRY(gantry_map, session, ret_pinned->buffer, 0, bytes, GANTRY_RW, GANTRY_FOREVER,
	    &ret_pinned->ptr);
	memset(ret_pinned->ptr, 1, bytes);
	TRY(gantry_unmap, session, ret_pinned->ptr); /* tasks may use it from here on */
	ret_pinned->bytes = bytes;
	return 0;
}

int gpu_unpin(struct gpu_pinned *pinned)
{
	TRY(gantry_free, session, pinned->buffer);
	return 0;
}

int gpu_write(gpu_buffer buffer, const void *src, uint64_t bytes)
{
	TRY(gantry_write, session, buffer, 0, src, bytes);
	return 0;
}

int gpu_read(gpu_buffer buffer, void *dst, uint64_t bytes)
{
	TRY(gantry_read, session, buffer, 0, dst, bytes);
	return 0;
}

int gpu_write_pinned(gpu_buffer buffer, const struct gpu_pinned *src, uint64_t bytes)
{
	TRY(gantry_submit_copy, session, queue, buffer, 0, src->buffer, 0, bytes, &last);
	return 0;
}

int gpu_read_pinned(gpu_buffer buffer, const struct gpu_pinned *dst, uint64_t bytes)
{
	TRY(gantry_submit_copy, session, queue, dst->buffer, 0, buffer, 0, bytes, &last);
	return 0;
}

int gpu_fill(gpu_buffer buffer, uint8_t value, uint64_t bytes)
{
	TRY(gantry_submit_fill, session, queue, buffer, 0, bytes, value, 1, &last);
	return 0;
}

int gpu_kernel(const char *name, const char *signature, struct gpu_kernel *ret_kernel)
{
	struct gantry_err err;

	if (gantry_signature_parse(signature, &ret_kernel->sig, &err) < 0) {
		bench_fail("%s: %s", name, err.text);
		return -1;
	}
	TRY(gantry_kernel_from, session, image, name, signature, &ret_kernel->handle);
	return 0;
}

int gpu_launch(const struct gpu_kernel *kernel, struct gpu_dim grid, struct gpu_dim block,
	       const union gpu_arg *args)
{
	struct gantry_access access[GPU_MAX_ARGS];
	uint8_t packed[8 * GPU_MAX_ARGS];
	struct gantry_task task = {
		.kernel = kernel->handle,
		.grid = { grid.x, grid.y, grid.z },
		.block = { block.x, block.y, block.z },
		.args = packed,
		.args_bytes = kernel->sig.args_bytes,
		.access = access,
	};

	for (uint32_t i = 0; i < kernel->sig.nargs; i++) {
		const struct gantry_sig_arg *arg = &kernel->sig.args[i];

		if (arg->mode)
			access[task.naccess++] = (struct gantry_access){
				.buffer = args[i].buffer,
				.mode = arg->mode,
				.arg_off = arg->off_bytes,
			};
		else
			memcpy(packed + arg->off_bytes, &args[i], gantry_arg_type_bytes(arg->type));
	}
	TRY(gantry_submit, session, queue, &task, 1, &last);
	return 0;
}

int gpu_sync(void)
{
	TRY(gantry_wait, session, &last, 1, GANTRY_FOREVER);
	return 0;
}
