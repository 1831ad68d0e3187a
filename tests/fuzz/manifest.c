/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a manifest. Its first line also serves as a signature. */
#include "devices/manifest.h"

#include <assert.h>
#include <stdlib.h>

#include "devices/signature.h"
#include "tests/fuzz/fuzz.h"

/* What a signature's canonical text says is the signature itself. */
static void check_signature(const struct gantry_signature *sig)
{
	char text[GANTRY_SIGNATURE_TEXT_MAX + 8];
	struct gantry_signature again;

	assert(sig->nargs <= GANTRY_SIGNATURE_MAX_ARGS);
	for (uint32_t i = 0; i < sig->nargs; i++) {
		const struct gantry_sig_arg *arg = &sig->args[i];
		uint32_t bytes = arg->len_bytes;
		uint32_t align = !arg->mode && gantry_arg_type_bytes(arg->type) == 0 ? 8 : bytes;

		assert(bytes > 0 && arg->off_bytes % align == 0);
		assert(arg->off_bytes + bytes <= sig->args_bytes);
	}
	assert(gantry_signature_format(sig, text, sizeof(text)) == 0);
	assert(gantry_signature_parse(text, &again, NULL) == 0);
	assert(again.nargs == sig->nargs && again.args_bytes == sig->args_bytes);
	assert(memcmp(again.args, sig->args, sig->nargs * sizeof(sig->args[0])) == 0);
}

static void try_signature(const uint8_t *data, size_t len)
{
	char *text = malloc(len + 1);
	struct gantry_signature sig;
	struct gantry_err err;

	if (!text)
		abort();
	memcpy(text, data, len);
	text[len] = '\0';
	if (gantry_signature_parse(text, &sig, &err) == 0)
		check_signature(&sig);
	free(text);
}

static void try_manifest(const uint8_t *data, size_t len)
{
	struct gantry_manifest *manifest = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;

	if (gantry_manifest_parse((const char *)data, len, &manifest, &err) < 0) {
		assert(err.code < 0 && err.text[0] && manifest == NULL);
		return;
	}
	assert(manifest->module && manifest->nkernels <= GANTRY_MANIFEST_MAX_KERNELS);
	for (uint32_t i = 0; i < manifest->nkernels; i++) {
		const struct gantry_kernel_def *kernel = &manifest->kernels[i];

		assert(gantry_manifest_find(manifest, kernel->name) == kernel);
		check_signature(&kernel->sig);
	}
	for (int kind = 0; kind < GANTRY_NKINDS; kind++)
		assert(!manifest->images[kind] || !strchr(manifest->images[kind], '/'));
	gantry_manifest_free(manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	const uint8_t *end = len ? memchr(data, '\n', len) : NULL;

	try_signature(data, end ? (size_t)(end - data) : len);
	try_manifest(data, len);
	return 0;
}
