/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/devices/steps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "tests/fakecuda/kernel.h"
#include "tests/unit/devices/steps_inside.h"
#include "tests/unit/runner.h"

#define WAIT_NS	 (20 * GANTRY_NS_PER_S)
#define MAX_SIGS 8u

struct steps steps;
static const struct steps_inside *inside;
static struct gantry_signature sigs[MAX_SIGS];
static unsigned int nsigs;

static void wake(void *cookie)
{
	(void)cookie;
	(void)gantry_fetch_add(&steps.nwakes, 1);
	(void)gantry_futex_wake(&steps.nwakes, 1);
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	(void)tag;
	return 0;
}

static const struct gantry_device_host host = { wake, cancelled, NULL };

static const struct {
	const char *name;
	const char *opts[2];
	const struct steps_inside *inside;
} backends[STEPS_BACKENDS] = {
	[STEPS_CUDA] = { "cuda", { "driver=" FAKE_DRIVER, "nvml=none" }, &steps_inside_cuda },
	[STEPS_HIP] = { "hip", { "library=" HIPCUDA, "scratch=64M" }, &steps_inside_hip },
};

static struct gantry_image *ptx_image(void)
{
	static const char text[] = FAKECUDA_PTX(CUDA_KERNELS, "sm_90");
	char path[] = "/tmp/gantry-unit-cuda-XXXXXX";
	int fd = mkstemp(path);
	struct gantry_image *loaded;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gantry_write_all(fd, text, sizeof(text) - 1), 0);
	gantry_fd_close(fd);
	ck_assert_int_eq(steps.device.backend->image_load(steps.device.dev, path, NULL, 0, &loaded,
							  &steps.err),
			 0);
	ck_assert_int_eq(unlink(path), 0);
	return loaded;
}

static struct gantry_image *bundle_image(void)
{
	static char code[64 << 10];
	FILE *file = fopen(STEPS_BUNDLE, "r");
	struct gantry_image *loaded;
	size_t n;

	ck_assert_ptr_nonnull(file);
	n = fread(code, 1, sizeof(code), file);
	(void)fclose(file);
	ck_assert_msg(steps.device.backend->image_load(steps.device.dev, NULL, code, n, &loaded,
						       &steps.err) == 0,
		      "%s", steps.err.text);
	return loaded;
}

struct gantry_image *steps_image(void)
{
	return steps.device.info.kind == GANTRY_KIND_HIP ? bundle_image() : ptx_image();
}

/* Memory of the device: plain where the backend has that, or a window. */
static struct gantry_mem *device_mem(void)
{
	const struct gantry_backend *be = steps.device.backend;
	uint64_t align = steps.device.info.slab_align;
	struct gantry_mem *mem;
	int fd;

	if (be->mem_alloc) {
		ck_assert_int_eq(
			be->mem_alloc(steps.device.dev, sizeof(steps.bytes), &mem, &steps.err), 0);
		return mem;
	}
	ck_assert_int_eq(be->window_open(steps.device.dev, 0, align, &mem, &steps.err), 0);
	ck_assert_int_eq(be->slab_create(steps.device.dev, align, &fd, &steps.err), 0);
	ck_assert_int_eq(be->window_map(mem, 0, align, fd, &steps.err), 0);
	gantry_fd_close(fd);
	return mem;
}

/* @opts end with a NULL. */
static void begin(enum steps_backend backend, const char *const *opts)
{
	struct gantry_device_conf conf = { .name = "dut0",
					   .backend = backends[backend].name,
					   .opts = opts };
	const struct gantry_stream_attr attr = { 0 };
	const struct gantry_backend *be;

	while (opts[conf.nopts])
		conf.nopts++;
	inside = backends[backend].inside;
	ck_assert_int_eq(setenv("HIPCUDA_DRIVER", FAKE_DRIVER, 1), 0);
	ck_assert_msg(gantry_device_open(&conf, &host, &steps.device, &steps.err) == 0, "%s",
		      steps.err.text);
	be = steps.device.backend;
	ck_assert_int_eq(be->thread_enter(steps.device.dev, &steps.err), 0);
	ck_assert_int_eq(be->stream_create(steps.device.dev, &attr, &steps.stream, &steps.err), 0);
	steps.image = steps_image();
	steps.mem = device_mem();
	ck_assert_int_eq(be->mem_host(steps.device.dev, steps.bytes, sizeof(steps.bytes),
				      &steps.of_host, &steps.err),
			 0);
	if (backend == STEPS_HIP)
		gantry_unit_forgive(); /* a runtime is never unloaded */
}

void steps_begin(enum steps_backend backend, const char *fail, const char *opt)
{
	const char *opts[] = { backends[backend].opts[0], backends[backend].opts[1],
			       "filters=contract", opt, NULL };

	if (fail)
		ck_assert_int_eq(setenv("FAKECUDA_FAIL", fail, 1), 0);
	begin(backend, opts);
}

void steps_begin_bare(enum steps_backend backend)
{
	const char *opts[] = { backends[backend].opts[0], backends[backend].opts[1], NULL };

	begin(backend, opts);
}

void steps_end(void)
{
	gantry_device_close(&steps.device);
}

void steps_forget(void)
{
	nsigs = 0;
}

struct gantry_cmd steps_launch_of(const char *name, const char *signature)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH };
	struct gantry_signature *sig = &sigs[nsigs++];

	ck_assert_uint_le(nsigs, MAX_SIGS);
	ck_assert_int_eq(gantry_signature_parse(signature, sig, &steps.err), 0);
	ck_assert_msg(steps.device.backend->kernel_get(steps.image, name, sig, &cmd.launch.kernel,
						       &steps.err) == 0,
		      "%s", steps.err.text);
	for (unsigned int i = 0; i < 3; i++)
		cmd.launch.grid[i] = cmd.launch.block[i] = 1;
	cmd.launch.nargs = sig->nargs;
	return cmd;
}

/* *x = *x * factor + 1, with x the first word of the device's memory. */
struct gantry_cmd steps_step(uint32_t factor)
{
	static struct gantry_cmd step;

	if (!step.launch.kernel)
		step = steps_launch_of("step", "rw:u32*,u32");
	step.launch.args[0].range = (struct gantry_range){ steps.mem, 0, 4 };
	step.launch.args[1].value.u64 = factor;
	return step;
}

void steps_submit(struct gantry_cmd cmd, uint64_t tag)
{
	cmd.tag = tag;
	ck_assert_int_eq(steps.device.backend->submit(steps.stream, &cmd), 0);
}

void steps_wait(struct gantry_done *ret_done, unsigned int n)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)WAIT_NS);
	unsigned int count = 0;

	while (count < n) {
		count += steps.device.backend->poll(steps.device.dev, ret_done + count, n - count);
		ck_assert_msg(!gantry_deadline_passed(deadline), "only %u of %u ended", count, n);
	}
}

void steps_sleep(struct gantry_done *ret_done)
{
	uint32_t before = gantry_load_acquire(&steps.nwakes);

	while (steps.device.backend->poll(steps.device.dev, ret_done, 1) == 0) {
		if (gantry_load_acquire(&steps.nwakes) == before)
			ck_assert_int_ne(gantry_futex_wait(&steps.nwakes, before,
							   gantry_deadline_ns((int64_t)WAIT_NS)),
					 -ETIMEDOUT);
		before = gantry_load_acquire(&steps.nwakes);
	}
}

uint32_t steps_word(void)
{
	struct gantry_done done;
	uint32_t word;

	steps_submit(
		(struct gantry_cmd){ .kind = GANTRY_CMD_COPY,
				     .copy = { { steps.of_host, 0, 4 }, { steps.mem, 0, 4 } } },
		7);
	steps_wait(&done, 1);
	ck_assert_int_eq(done.status, GANTRY_OK);
	memcpy(&word, steps.bytes, sizeof(word));
	return word;
}

void steps_expect(struct gantry_kernel *kernel, uint32_t ns)
{
	inside->expect(kernel, ns);
}

uint32_t steps_nkept(void)
{
	return inside->nkept(steps.stream);
}

bool steps_marked(void)
{
	return inside->marked(steps.stream);
}
