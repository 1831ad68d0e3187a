/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels print, as CUDA shows it: its driver writes printf() of device code to the program's standard output, and what a failed
 * assertion says to its standard error. There is a buffer for it (guest-shim/output.h) once an image has been loaded whose kernels may print.
 */
#include <string.h>

#include "guest-shim/cuda/core.h"
#include "guest-shim/output.h"

/* Nothing of CUDA's is taken under its lock. */
static struct gantry_printed printed = GANTRY_PRINTED_INIT;
static _Thread_local bool is_due;

/* ---- whether anything can come ---- */

static bool has(const void *image, size_t bytes, const char *name)
{
	return memmem(image, bytes, name, strlen(name)) != NULL;
}

/* What printf() and assert() are in device code. Of what is compressed nobody knows. */
static bool may_print(const void *image, size_t bytes)
{
	return cu_image_is_compressed(image, bytes) || has(image, bytes, "vprintf") ||
	       has(image, bytes, "__assertfail");
}

void cu_output_want(const void *image, size_t bytes)
{
	if (!gantry_printed_is_wanted(&printed) && may_print(image, bytes))
		gantry_printed_want(&printed, cu.session);
}

/* ---- showing ---- */

void cu_output_show(void)
{
	is_due = false;
	gantry_printed_show(&printed);
}

void cu_output_due(void)
{
	is_due = true;
}

void cu_output_leave(void)
{
	if (is_due)
		cu_output_show();
}

int cu_output_wait(gantry_ticket ticket)
{
	int r = gantry_printed_wait(&printed, cu.session, &ticket, 1);

	is_due = true;
	return r;
}

/* ---- faults ---- */

CUresult cu_output_fault(void)
{
	uint32_t fault = gantry_printed_fault(&printed);

	switch (fault) {
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
		return (CUresult)fault;
	default:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	}
}
