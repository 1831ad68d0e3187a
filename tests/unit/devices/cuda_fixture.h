/* SPDX-License-Identifier: Apache-2.0 */
/* One device of the cuda backend over the fake driver, with a stream; what its tests have in common. */
#ifndef GANTRY_TESTS_UNIT_DEVICES_CUDA_FIXTURE_H
#define GANTRY_TESTS_UNIT_DEVICES_CUDA_FIXTURE_H

#include <stdint.h>

#include "base/clock.h"
#include "devices/registry.h"
#include "devices/signature.h"

#define WAIT_NS (20 * GANTRY_NS_PER_S)
#define MIB	(1ull << 20)

extern struct gantry_err err;
extern struct gantry_device device;
extern struct gantry_stream *stream;
extern uint32_t nwakes;	       /* changed and woken by the backend */
extern uint64_t cancelled_tag; /* the command whose session is gone */
extern const struct gantry_device_host host;

/* @more: further options, NULL at the end; may be NULL. */
int open_with(struct gantry_device *ret_device, const char *const *more);
struct gantry_stream *new_stream(struct gantry_device *on, int32_t priority);
/* `device`, entered, with `stream`. */
void open_device(const char *const *more);
void wait_done(struct gantry_done *ret_done, unsigned int n);
/* To `stream`; so do those that follow. */
int submit(struct gantry_cmd *cmd, uint64_t tag);
struct gantry_done run(struct gantry_cmd *cmd);
struct gantry_mem *host_mem(void *base, uint64_t len);
struct gantry_mem *device_mem(uint64_t len);
struct gantry_cmd copy_cmd(struct gantry_mem *dst, uint64_t dst_off, struct gantry_mem *src,
			   uint64_t src_off, uint64_t len);
struct gantry_cmd fill_cmd(struct gantry_mem *dst, uint64_t off, uint64_t len, uint64_t pattern,
			   uint32_t bytes);
void run_ok(struct gantry_cmd cmd);
/* A file of PTX, as an administrator may install it. */
struct gantry_image *ptx_image(void);
struct gantry_image *module_image(void);
/* Signatures are kept: a test has 16. */
int try_kernel(struct gantry_image *image, const char *name, const char *signature,
	       struct gantry_kernel **ret_kernel);
struct gantry_cmd launch_cmd(struct gantry_image *image, const char *name, const char *signature);
/* As a device thread does: waits to be woken. */
void sleep_until_done(struct gantry_done *ret_done);

#endif
