/* SPDX-License-Identifier: Apache-2.0 */
/* A device under test: opening, small commands, and waiting for their ends. */
#ifndef GANTRY_TESTS_CONTRACT_DEVICES_FIXTURE_H
#define GANTRY_TESTS_CONTRACT_DEVICES_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/registry.h"

#define DUT_MAX_OPTS 12

/* Files; NULL: there is none. */
struct dut_images {
	const char *module; /* installed: the probe's kernels */
	const char *code;   /* of kernels probe_step and geometry, as a guest sends it */
	bool are_real;	    /* for a vendor's driver, not for a fake of it */
};

/* One row of the suite. */
struct dut_row {
	const char *title;
	const char *backend;
	bool moves_data; /* null does not */
	const char *opts[DUT_MAX_OPTS];
	/*
	 * Chooses what the row cannot say, once a test opens it: adds options at @ret_opts and returns how many
	 * (-ENODEV: skip the test), and writes the images. Optional: the probe module for cpu devices.
	 */
	int (*choose)(const char **ret_opts, struct dut_images *images);
};

struct dut {
	const struct dut_row *row;
	struct dut_images images;
	struct gantry_device device;
	struct gantry_device_host host;
	struct gantry_stream *stream;
	struct gantry_image *image;
	uint32_t nwakes;       /* atomic; also a futex */
	uint32_t cancel_after; /* questions answered with no; 0: never cancelled */
	uint32_t nquestions;   /* atomic */
	uint64_t last_tag;
	struct gantry_signature sigs[16];
	unsigned int nsigs;
};

/* Opens with one stream; ends the test on failure. */
struct dut *dut_open(const struct dut_row *row);
void dut_close(struct dut *dut);

struct gantry_stream *dut_stream(struct dut *dut, int32_t priority);
/*
 * Memory of the device of @bytes zeroes; by import, with the descriptor in *@ret_fd (may be NULL).
 */
struct gantry_mem *dut_import(struct dut *dut, uint64_t bytes, int *ret_fd);
/* For devices with windows; places and lengths in units of slab_align. */
struct gantry_mem *dut_window(struct dut *dut, uint64_t n);
/* Makes a slab and maps it; the descriptor is the caller's. */
int dut_slab(struct dut *dut, struct gantry_mem *window, uint64_t at, uint64_t n);
void dut_map(struct dut *dut, struct gantry_mem *window, uint64_t at, uint64_t n, int fd);
struct gantry_mem *dut_host(struct dut *dut, void *base, uint64_t bytes);
/*
 * Where the image is that the build put at @built: there, or beside this program (in a bundle). Static until the
 * next call.
 */
const char *dut_image_path(const char *built);
/* A kernel of the probe module. */
struct gantry_kernel *dut_kernel(struct dut *dut, const char *name, const char *signature);

/*
 * For .choose: NVIDIA GPUs where there is a driver, else the fake one of this build; GANTRY_TEST_CUDA_DRIVER
 * names another library, or is "fake".
 */
int dut_choose_cuda(const char **ret_opts, struct dut_images *images);

/*
 * For .choose: PoCL, where the build has the backend; GANTRY_TEST_OPENCL_PLATFORM names another platform, and
 * GANTRY_TEST_OPENCL_CACHE a folder for what was compiled where the build's own is not there.
 */
int dut_choose_opencl(const char **ret_opts, struct dut_images *images);

/* For .choose: the stand-in for AMD's runtime as ROCm 6 has it, and as ROCm 5 has it, which knows no windows. */
int dut_choose_hip(const char **ret_opts, struct dut_images *images);
int dut_choose_hip5(const char **ret_opts, struct dut_images *images);
/* The stand-in over NVIDIA's driver, real or fake, which is chosen as by dut_choose_cuda(). */
int dut_choose_hip_cuda(const char **ret_opts, struct dut_images *images);

struct gantry_cmd dut_fill(struct gantry_mem *mem, uint64_t off, uint64_t len, uint64_t pattern,
			   uint32_t pattern_bytes);
struct gantry_cmd dut_copy(struct gantry_mem *dst, uint64_t dst_off, struct gantry_mem *src,
			   uint64_t src_off, uint64_t len);
struct gantry_cmd dut_launch(struct gantry_kernel *kernel, uint32_t nargs);
void dut_arg_range(struct gantry_cmd *cmd, uint32_t idx, struct gantry_mem *mem, uint64_t off,
		   uint64_t len);

/* Gives @cmd the next tag and submits it. */
int dut_submit(struct dut *dut, struct gantry_stream *stream, struct gantry_cmd *cmd);
/* Polls until @n commands have ended; ends the test after some seconds. */
void dut_wait(struct dut *dut, struct gantry_done *ret_done, unsigned int n);
/* One command from submission to end. */
struct gantry_done dut_run(struct dut *dut, struct gantry_cmd *cmd);

#endif
