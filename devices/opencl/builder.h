/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder: a process beside the one that uses devices, in whose children vendors' compilers and loaders first see
 * what they are given. Each piece of work has a process of its own, which may hang, crash or write files; what comes of
 * it is an answer and a binary. So a device's process runs no compiler, starts no program and writes no file.
 *
 * A process has one builder, from before its first call of OpenCL until it ends. It keeps a private folder for PoCL,
 * which takes code from files only (POCL_CACHE_DIR), and removes it when the process is gone, however that ended.
 *
 * Trust: for a guest's bytes a child gives up what it can: files to write but below the folder, files to read but those
 *   that compilers need, processor time and memory.
 * Threads: any; one piece of work at a time.
 * Blocking: until the work is done or its time is over.
 */
#ifndef GANTRY_DEVICES_OPENCL_BUILDER_H
#define GANTRY_DEVICES_OPENCL_BUILDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/opencl/driver.h"
#include "devices/opencl/fit.h"

/* Starts the process's builder unless it runs. Before any call of OpenCL in this process. */
int gantry_opencl_builder_start(struct gantry_err *err);

/* For which device, and whose bytes. */
struct gantry_opencl_work {
	const char *library; /* NULL: the usual one */
	struct gantry_opencl_choice choice;
	bool of_guest;
	bool of_gpu;	  /* the device's driver wants its files, and addresses without end */
	const char *keep; /* file to write a compiled binary to as well; NULL: none */
};

/*
 * Text to a binary of that device; *ret_binary comes from malloc(). Of a guest's text it is whole, for gantry_opencl_builder_fit():
 * a device's process strips it before it loads it. -ENOEXEC: it does not compile, with the compiler's
 * first complaint. -ETIMEDOUT: it took too long. A text whose first line begins with GANTRY_OPENCL_OPTIONS is compiled with
 * the options that follow there: -D NAME[=VALUE], -U NAME, -cl-..., -w, -Werror. @log (NULL: no) gets what the compiler had to
 * say, in either case, cut to GANTRY_OPENCL_LOG_BYTES and terminated.
 */
#define GANTRY_OPENCL_OPTIONS	"//gantry-options:"
#define GANTRY_OPENCL_LOG_BYTES (32u << 10)
int gantry_opencl_builder_compile(const struct gantry_opencl_work *work, const void *text,
				  size_t nbytes, void **ret_binary, size_t *ret_nbytes, char *log,
				  struct gantry_err *err);
/* Loads a binary once, to see whether that works; after it, this process loads it without writing a file. */
int gantry_opencl_builder_try(const struct gantry_opencl_work *work, const void *binary,
			      size_t nbytes, struct gantry_err *err);

/*
 * Has @binary, a PoCL container with the program's intermediate code, give code for @fit, which this process then loads when it
 * launches such a work-group for the first time. The kernel runs in the child, with arguments that mean nothing.
 */
int gantry_opencl_builder_fit(const struct gantry_opencl_work *work, const void *binary,
			      size_t nbytes, const struct gantry_opencl_fit *fit,
			      struct gantry_err *err);

/* ---- between the two processes ---- */

#define GANTRY_OPENCL_BUILDER_MAGIC 0x444c4243u

enum gantry_opencl_builder_op {
	GANTRY_OPENCL_COMPILE = 1,
	GANTRY_OPENCL_TRY = 2,
	GANTRY_OPENCL_FIT = 3,
};

/* With two descriptors: what to work on, and a memfd for what comes of it. */
struct gantry_opencl_builder_request {
	uint32_t magic;
	uint32_t op; /* enum gantry_opencl_builder_op */
	uint32_t of_guest;
	uint32_t of_gpu;
	uint64_t nbytes;
	char library[256]; /* "": NULL */
	char platform[128];
	char device[128];
	char keep[256]; /* "": NULL */
	struct gantry_opencl_fit fit;
};

struct gantry_opencl_builder_answer {
	uint32_t magic;
	int32_t r; /* 0 or -errno */
	uint64_t nbytes;
	uint64_t log_bytes; /* behind what was compiled */
	char text[GANTRY_ERR_TEXT_MAX];
};

/* The builder's whole life: in the forked process, never returns. @folder goes with it. */
_Noreturn void gantry_opencl_builder_main(int sock, const char *folder);

/* Where what is compiled lies apart from what is loaded, below the folder. */
#define GANTRY_OPENCL_APART "made"

/* build.c: one piece of work, in a process made for it. */
void gantry_opencl_build(const struct gantry_opencl_builder_request *req, int in, int out,
			 const char *folder, struct gantry_opencl_builder_answer *answer);

#endif
