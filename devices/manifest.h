/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel manifests.
 *
 * A manifest is a text file NAME.manifest of an installed module:
 *
 *   # comment
 *   module core 1
 *   image cpu core.so
 *   kernel fill w:u32*,u64,u32 pure
 *
 * "module NAME VERSION" comes first. "image KIND FILE" names the module's image for devices of a
 * kind, a file beside the manifest. "kernel NAME SIGNATURE FLAG..." declares a kernel (signatures:
 * devices/signature.h); flags are pure and split. "tenant NAME": nobody else finds the kernels.
 *
 * Trust: parsed as hostile input (fuzzed): bounded sizes, no file is opened here, no code is
 * loaded.
 * Threads: any; the functions keep no state.
 */
#ifndef GANTRY_DEVICES_MANIFEST_H
#define GANTRY_DEVICES_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/signature.h"
#include "proto/vocab.h"

#define GANTRY_MANIFEST_MAX_BYTES   (256u * 1024u)
#define GANTRY_MANIFEST_MAX_KERNELS 1024u

enum gantry_kernel_flags {
	GANTRY_KERNEL_PURE = 1,	 /* safe to run again when no written range overlaps a read one */
	GANTRY_KERNEL_SPLIT = 2, /* uses several lanes */
};

struct gantry_kernel_def {
	char *name;
	char *sig_text; /* canonical, as gantry_signature_format() writes it */
	uint32_t flags; /* enum gantry_kernel_flags */
	struct gantry_signature sig;
};

struct gantry_manifest {
	char *module;
	uint32_t version;
	char *images[GANTRY_NKINDS]; /* file name per kind; NULL: none */
	char *tenant;		     /* whose alone the kernels are; NULL: everybody's */
	uint32_t nkernels;
	struct gantry_kernel_def *kernels;
};

/* The enum gantry_kind of "cpu", "cuda", ...; -EINVAL for other words, "any" among them. */
int gantry_kind_of_name(const char *name);

/*
 * @text need not be terminated. The caller frees with gantry_manifest_free(). Errors name the line.
 */
int gantry_manifest_parse(const char *text, size_t len, struct gantry_manifest **ret_manifest,
			  struct gantry_err *err);
void gantry_manifest_free(struct gantry_manifest *manifest);
/* NULL if it has no such kernel. */
const struct gantry_kernel_def *gantry_manifest_find(const struct gantry_manifest *manifest,
						     const char *name);

#endif
