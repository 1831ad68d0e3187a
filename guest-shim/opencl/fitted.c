/* SPDX-License-Identifier: Apache-2.0 */
/* Code for work-groups of one size, asked for before the first launch of each: other drivers compile it then too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/calls.h"

#define FITTED_MAX   64u /* sizes of one program: its further ones have the code for all */
#define NARROW_ITEMS 65536u
#define NAME_ROOM    128u

struct icd_fitted {
	const struct icd_kernel_info *info;
	uint64_t local[3];
	bool is_wide;
	bool is_making; /* a thread waits for the host */
};

static struct icd_fitted *find(const struct _cl_program *program, const struct icd_fitted *wanted)
{
	for (uint32_t i = 0; i < program->nfitted; i++) {
		struct icd_fitted *at = &program->fitted[i];

		if (at->info == wanted->info && at->is_wide == wanted->is_wide &&
		    memcmp(at->local, wanted->local, sizeof(at->local)) == 0)
			return at;
	}
	return NULL;
}

static struct icd_fitted *add(struct _cl_program *program, const struct icd_fitted *wanted)
{
	if (!program->fitted)
		program->fitted = calloc(FITTED_MAX, sizeof(*program->fitted));
	if (!program->fitted || program->nfitted == FITTED_MAX)
		return NULL;
	program->fitted[program->nfitted] = *wanted;
	return &program->fitted[program->nfitted++];
}

/* What the host answers makes no difference: the kernel that it has runs with any size. */
static void ask(struct _cl_kernel *kernel, const struct icd_fitted *wanted)
{
	struct gantry_session *session = kernel->program->context->host->session;
	gantry_image image = kernel->program->image;
	char *signature = strdup(kernel->signature);
	char name[NAME_ROOM];
	gantry_kernel found;
	int n = snprintf(name, sizeof(name), "%s@%u,%u,%u%s", wanted->info->name,
			 (unsigned)wanted->local[0], (unsigned)wanted->local[1],
			 (unsigned)wanted->local[2], wanted->is_wide ? ",wide" : "");

	icd_gate_unlock();
	if (signature && n > 0 && (size_t)n < sizeof(name) &&
	    gantry_kernel_from(session, image, name, signature, &found) == 0)
		(void)gantry_kernel_free(session, found); /* it goes with the session, else */
	icd_gate_lock();
	free(signature);
}

bool icd_fit(struct _cl_kernel *kernel, const uint64_t offset[3], const uint64_t global[3],
	     const uint64_t local[3])
{
	struct icd_fitted wanted = { .info = kernel->info }, *at;
	struct _cl_program *program = kernel->program;

	if (kernel->info->signature || kernel->info->compiled[0])
		return false; /* installed, or with that code from the start */
	for (int i = 0; i < 3; i++) {
		if (offset[i])
			return false;
		wanted.local[i] = local[i];
		wanted.is_wide = wanted.is_wide || global[i] >= NARROW_ITEMS;
	}
	at = find(program, &wanted);
	if (at && !at->is_making)
		return false;
	icd_object_hold(kernel);
	if (at) {
		while (at->is_making)
			icd_gate_wait();
	} else {
		at = add(program, &wanted);
		if (at) {
			at->is_making = true;
			ask(kernel, &wanted);
			at->is_making = false;
			icd_gate_changed();
		}
	}
	icd_object_drop(kernel);
	return at != NULL;
}
