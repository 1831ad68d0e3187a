/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/devices/cuda_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/futex.h"
#include "tests/fakecuda/kernel.h"
#include "tests/unit/runner.h"

#define MAX_OPTS 6

struct gantry_err err;
struct gantry_device device;
struct gantry_stream *stream;
static struct gantry_signature sigs[16];
static unsigned int nsigs;
uint32_t nwakes;
uint64_t cancelled_tag = UINT64_MAX;

static void wake(void *cookie)
{
	(void)cookie;
	gantry_fetch_add(&nwakes, 1);
	(void)gantry_futex_wake(&nwakes, 1);
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	return gantry_load_relaxed(&cancelled_tag) == tag;
}

const struct gantry_device_host host = { wake, cancelled, NULL };

int open_with(struct gantry_device *ret_device, const char *const *more)
{
	const char *opts[MAX_OPTS] = { "driver=" FAKE_DRIVER, "nvml=" FAKE_NVML,
				       "filters=contract" };
	struct gantry_device_conf conf = {
		.name = "cuda0", .backend = "cuda", .opts = opts, .nopts = 3
	};

	while (more && *more)
		opts[conf.nopts++] = *more++;
	err = (struct gantry_err)GANTRY_ERR_NONE;
	return gantry_device_open(&conf, &host, ret_device, &err);
}

struct gantry_stream *new_stream(struct gantry_device *on, int32_t priority)
{
	const struct gantry_stream_attr attr = { .priority = priority };
	struct gantry_stream *made;

	ck_assert_msg(on->backend->stream_create(on->dev, &attr, &made, &err) == 0, "%s", err.text);
	return made;
}

void open_device(const char *const *more)
{
	ck_assert_msg(open_with(&device, more) == 0, "%s", err.text);
	ck_assert_int_eq(device.backend->thread_enter(device.dev, &err), 0);
	stream = new_stream(&device, 0);
}

void wait_done(struct gantry_done *ret_done, unsigned int n)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)WAIT_NS);
	unsigned int count = 0;

	while (count < n) {
		count += device.backend->poll(device.dev, ret_done + count, n - count);
		ck_assert_msg(!gantry_deadline_passed(deadline), "only %u of %u ended", count, n);
	}
}

int submit(struct gantry_cmd *cmd, uint64_t tag)
{
	cmd->tag = tag;
	return device.backend->submit(stream, cmd);
}

struct gantry_done run(struct gantry_cmd *cmd)
{
	static uint64_t tag = 1000000;
	struct gantry_done done;

	ck_assert_int_eq(submit(cmd, ++tag), 0);
	wait_done(&done, 1);
	ck_assert_uint_eq(done.tag, tag);
	return done;
}

struct gantry_mem *host_mem(void *base, uint64_t len)
{
	struct gantry_mem *mem;

	ck_assert_msg(device.backend->mem_host(device.dev, base, len, &mem, &err) == 0, "%s",
		      err.text);
	return mem;
}

struct gantry_mem *device_mem(uint64_t len)
{
	struct gantry_mem *mem;

	ck_assert_msg(device.backend->mem_alloc(device.dev, len, &mem, &err) == 0, "%s", err.text);
	return mem;
}

struct gantry_cmd copy_cmd(struct gantry_mem *dst, uint64_t dst_off, struct gantry_mem *src,
			   uint64_t src_off, uint64_t len)
{
	return (struct gantry_cmd){ .kind = GANTRY_CMD_COPY,
				    .copy = { { dst, dst_off, len }, { src, src_off, len } } };
}

struct gantry_cmd fill_cmd(struct gantry_mem *dst, uint64_t off, uint64_t len, uint64_t pattern,
			   uint32_t bytes)
{
	return (struct gantry_cmd){ .kind = GANTRY_CMD_FILL,
				    .fill = { { dst, off, len }, pattern, bytes } };
}

void run_ok(struct gantry_cmd cmd)
{
	struct gantry_done done = run(&cmd);

	ck_assert_msg(done.status == GANTRY_OK, "%s", gantry_status_text(done.status));
}

/* A file of PTX, as an administrator may install it. */
struct gantry_image *ptx_image(void)
{
	static const char text[] = FAKECUDA_PTX(CUDA_KERNELS, "sm_90");
	char path[] = "/tmp/gantry-unit-cuda-XXXXXX";
	int fd = mkstemp(path);
	struct gantry_image *image;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gantry_write_all(fd, text, sizeof(text) - 1), 0);
	gantry_fd_close(fd);
	ck_assert_msg(device.backend->image_load(device.dev, path, NULL, 0, &image, &err) == 0,
		      "%s", err.text);
	ck_assert_int_eq(unlink(path), 0);
	return image;
}

struct gantry_image *module_image(void)
{
	struct gantry_image *image;

	ck_assert_msg(device.backend->image_load(device.dev, CUDA_MODULE, NULL, 0, &image, &err) ==
			      0,
		      "%s", err.text);
	return image;
}

int try_kernel(struct gantry_image *image, const char *name, const char *signature,
	       struct gantry_kernel **ret_kernel)
{
	struct gantry_signature *sig = &sigs[nsigs++];

	ck_assert_int_eq(gantry_signature_parse_own(signature, sig, &err), 0);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	return device.backend->kernel_get(image, name, sig, ret_kernel, &err);
}

struct gantry_cmd launch_cmd(struct gantry_image *image, const char *name, const char *signature)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH };

	ck_assert_msg(try_kernel(image, name, signature, &cmd.launch.kernel) == 0, "%s", err.text);
	for (unsigned int i = 0; i < 3; i++)
		cmd.launch.grid[i] = cmd.launch.block[i] = 1;
	cmd.launch.nargs = sigs[nsigs - 1].nargs;
	return cmd;
}

void sleep_until_done(struct gantry_done *ret_done)
{
	uint32_t before = gantry_load_acquire(&nwakes);

	while (device.backend->poll(device.dev, ret_done, 1) == 0) {
		while (gantry_load_acquire(&nwakes) == before)
			ck_assert_int_ne(gantry_futex_wait(&nwakes, before,
							   gantry_deadline_ns((int64_t)WAIT_NS)),
					 -ETIMEDOUT);
		before = gantry_load_acquire(&nwakes);
	}
}
