/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer of the OpenCL loader (OPENCL_LAYERS) that makes any OpenCL device behave as an FPGA board does under its vendor's OpenCL: a
 * stand-in where there is no board. What runs above it is not changed for it; what runs below computes the results.
 *
 * Rules are words of GANTRY_FPGA_RULES, "key=value key=value":
 *
 *   board=PATH        the board: a file that stands for it (struct board_file). One process at a time has a context on it. Needed
 *   vendor=intel      the first program made from a binary is loaded, others when a kernel of theirs is enqueued (the default)
 *   vendor=xilinx     every program is loaded when it is made, and refused while another is alive; text is refused
 *   configure_us=N    loading takes so long (0); everything that was enqueued ends before
 *   memory=lost|kept  what loading does to buffers (lost)
 *
 * Where the platform below has several devices each is a region of the board, with an image of its own: the others go on while it is loaded.
 *
 * What an image does is said by the name of a kernel in it that nobody runs: rules, and for each kernel __KERNEL_uUNITS_tMICROSECONDS
 * [_sPERCENT]: launches of KERNEL take so long, so many at once. Without _s they are slower by the number of units in the image, as
 * section 4.2 of the Arax paper has it: 17 % where there are two, 52 % where there are four. A kernel without a rule has one unit and takes
 * as long as it does.
 *
 * What goes wrong is written into the board's file while it is in use: the next loadings, copies or launches fail, or the board is gone.
 */
#ifndef GANTRY_TESTS_FPGA_RULES_H
#define GANTRY_TESTS_FPGA_RULES_H

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_icd.h>

#include <stdbool.h>
#include <stdint.h>

/* The board's file, mapped by whoever has it and by tests (tests/fpga/rules.py has the same). */
struct board_file {
	/* Written by tests. */
	uint32_t fail_loads;	/* so many loadings fail */
	uint32_t fail_copies;	/* reads and writes of buffers */
	uint32_t fail_launches; /* they end with an error */
	uint32_t gone;		/* nonzero: nothing works any more */
	/* Written by the layer. */
	uint32_t nloads;   /* tries */
	uint32_t nrefused; /* contexts, because another process has the board */
	uint32_t nlaunches;
	uint32_t nrunning;
	uint32_t most_running;
	uint32_t free_loads; /* written by tests: so many take no time */
	uint64_t
		first_load_ns; /* when the first loading ended: the clock CLOCK_MONOTONIC; 0: none did. Tests may clear it */
	uint64_t last_load_ns;
	uint32_t
		nbeside; /* loadings that a launch of another region was at work before and after */
	uint32_t
		refuse_behind; /* written by tests: so many launches are refused while another is at work */
};

#define RULES_MAX_KERNELS 32u

/* A kernel of an image: its units, and launches that wait for one. */
struct rules_kernel {
	char name[64];
	uint32_t units;
	uint32_t busy;
	uint64_t run_ns;
	struct job *first, *last; /* ready, and waiting for a unit */
};

/* An image: a program that was made from a binary. */
struct rules_image {
	uint64_t sum;
	bool known; /* its rules have been read */
	uint32_t nkernels;
	struct rules_kernel kernels[RULES_MAX_KERNELS];
};

/* jobs.c: launches in time. All under one lock of its own. */

/* Looks for rules__... among the kernels of @program. */
void rules_image_read(const cl_icd_dispatch *below, cl_program program, struct rules_image *image);
/*
 * @real was enqueued in @queue: makes of it a command that ends when the image says, whose event is *@ret_event (NULL: nobody wants it).
 * Takes @real over.
 */
cl_int rules_job_start(const cl_icd_dispatch *below, cl_command_queue queue, cl_event real,
		       struct rules_image *image, const char *kernel, struct board_file *board,
		       cl_event *ret_event);
/* When it began and ended; false: no launch of ours. */
bool rules_job_times(cl_event event, uint64_t *ret_start_ns, uint64_t *ret_end_ns);
/* Has the end of the launch told, if it is one; by the layer's thread, or at once. */
bool rules_job_watch(cl_event event, void(CL_CALLBACK *notify)(cl_event, cl_int, void *),
		     void *user);
/* The event goes. */
void rules_job_forget(cl_event event);
/* The board is gone: whatever is under way fails. */
void rules_jobs_fail(void);

#endif
