/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "devices/statements.h"

/* One more than the longest statement has, so that a surplus word is noticed. */
#define MAX_WORDS 6u

GANTRY_DEFINE_CLEANUP(struct gantry_manifest *, gantry_manifest_free);

struct parser {
	struct gantry_manifest *manifest;
	uint32_t kernels_cap;
	unsigned int nwords;
	char **words;
	struct gantry_err *err;
};

static int copy_text(const char *text, char **ret_copy, struct gantry_err *err)
{
	char *copy = strdup(text);

	if (!copy)
		return gantry_err_set(err, -ENOMEM, "no memory for the manifest");
	*ret_copy = copy;
	return 0;
}

static int parse_module(struct parser *p)
{
	uint64_t version;
	int r;

	if (p->nwords != 3)
		return gantry_err_set(p->err, -EINVAL, "write \"module NAME VERSION\"");
	if (p->manifest->module)
		return gantry_err_set(p->err, -EINVAL, "the module is named already");
	if (!gantry_name_valid(p->words[1]))
		return gantry_err_set(p->err, -EINVAL, "\"%.40s\" is no module name", p->words[1]);
	r = gantry_u64_parse(p->words[2], 1, UINT32_MAX, &version, p->err);
	if (r < 0)
		return gantry_err_wrap(p->err, -EINVAL, "version");
	p->manifest->version = (uint32_t)version;
	return copy_text(p->words[1], &p->manifest->module, p->err);
}

int gantry_kind_of_name(const char *name)
{
	for (int kind = GANTRY_KIND_ANY + 1; kind < GANTRY_NKINDS; kind++)
		if (strcmp(gantry_kind_name(kind), name) == 0)
			return kind;
	return -EINVAL;
}

static int parse_image(struct parser *p)
{
	int kind;

	if (p->nwords != 3)
		return gantry_err_set(p->err, -EINVAL, "write \"image KIND FILE\"");
	kind = gantry_kind_of_name(p->words[1]);
	if (kind < 0)
		return gantry_err_set(p->err, -EINVAL, "\"%.40s\" is no kind of device",
				      p->words[1]);
	if (p->manifest->images[kind])
		return gantry_err_set(p->err, -EINVAL, "the image for %s is named already",
				      p->words[1]);
	if (!gantry_file_name_valid(p->words[2]))
		return gantry_err_set(p->err, -EINVAL,
				      "\"%.40s\" is no name of a file beside the manifest",
				      p->words[2]);
	return copy_text(p->words[2], &p->manifest->images[kind], p->err);
}

static int parse_tenant(struct parser *p)
{
	if (p->nwords != 2)
		return gantry_err_set(p->err, -EINVAL, "write \"tenant NAME\"");
	if (p->manifest->tenant)
		return gantry_err_set(p->err, -EINVAL, "whose the module is is said already");
	if (!gantry_name_valid(p->words[1]))
		return gantry_err_set(p->err, -EINVAL, "\"%.40s\" is no name of a tenant",
				      p->words[1]);
	return copy_text(p->words[1], &p->manifest->tenant, p->err);
}

static int parse_flag(const char *word, uint32_t *flags, struct gantry_err *err)
{
	uint32_t flag;

	if (strcmp(word, "pure") == 0)
		flag = GANTRY_KERNEL_PURE;
	else if (strcmp(word, "split") == 0)
		flag = GANTRY_KERNEL_SPLIT;
	else
		return gantry_err_set(err, -EINVAL, "\"%.40s\" is no flag of a kernel", word);
	if (*flags & flag)
		return gantry_err_set(err, -EINVAL, "the flag %s stands there twice", word);
	*flags |= flag;
	return 0;
}

/* Room for one more kernel, zeroed. Grows by doubling, so 1024 kernels cost ten moves. */
static int reserve_kernel(struct parser *p)
{
	struct gantry_manifest *m = p->manifest;
	uint32_t cap = p->kernels_cap ? 2 * p->kernels_cap : 8;
	struct gantry_kernel_def *grown;

	if (m->nkernels == GANTRY_MANIFEST_MAX_KERNELS)
		return gantry_err_set(p->err, -EINVAL, "more than %u kernels",
				      GANTRY_MANIFEST_MAX_KERNELS);
	if (m->nkernels < p->kernels_cap) {
		memset(&m->kernels[m->nkernels], 0, sizeof(*m->kernels));
		return 0;
	}
	grown = realloc(m->kernels, cap * sizeof(*grown));
	if (!grown)
		return gantry_err_set(p->err, -ENOMEM, "no memory for the manifest");
	m->kernels = grown;
	p->kernels_cap = cap;
	memset(&grown[m->nkernels], 0, sizeof(*grown));
	return 0;
}

/* Fills @def; what it owns is freed with the manifest, also when this fails half way. */
static int fill_kernel(struct parser *p, struct gantry_kernel_def *def)
{
	char text[GANTRY_SIGNATURE_TEXT_MAX];
	int r = gantry_signature_parse(p->words[2], &def->sig, p->err);

	if (r == 0 && gantry_signature_is_opencl(&def->sig))
		r = gantry_err_set(p->err, -EINVAL,
				   "bN, local and range are for kernels of sessions' images");
	if (r < 0)
		return gantry_err_wrap(p->err, r, "kernel %s", p->words[1]);
	for (unsigned int i = 3; i < p->nwords; i++) {
		r = parse_flag(p->words[i], &def->flags, p->err);
		if (r < 0)
			return r;
	}
	r = gantry_signature_format(&def->sig, text, sizeof(text));
	if (r < 0)
		return gantry_err_set(p->err, r, "the signature is too long");
	r = copy_text(p->words[1], &def->name, p->err);
	return r < 0 ? r : copy_text(text, &def->sig_text, p->err);
}

static int parse_kernel(struct parser *p)
{
	struct gantry_manifest *m = p->manifest;
	int r;

	if (p->nwords < 3)
		return gantry_err_set(p->err, -EINVAL,
				      "write \"kernel NAME SIGNATURE [FLAG ...]\"");
	if (!gantry_kernel_name_valid(p->words[1]))
		return gantry_err_set(p->err, -EINVAL, "\"%.70s\" is no kernel name", p->words[1]);
	if (gantry_manifest_find(m, p->words[1]))
		return gantry_err_set(p->err, -EINVAL, "kernel %s stands there twice", p->words[1]);
	r = reserve_kernel(p);
	if (r < 0)
		return r;
	return fill_kernel(p, &m->kernels[m->nkernels++]);
}

static int parse_statement(void *arg, char **words, unsigned int nwords, struct gantry_err *err)
{
	struct parser *p = arg;

	p->words = words;
	p->nwords = nwords;
	p->err = err;
	if (strcmp(words[0], "module") == 0)
		return parse_module(p);
	if (!p->manifest->module)
		return gantry_err_set(err, -EINVAL, "the first statement must be \"module\"");
	if (strcmp(words[0], "image") == 0)
		return parse_image(p);
	if (strcmp(words[0], "kernel") == 0)
		return parse_kernel(p);
	if (strcmp(words[0], "tenant") == 0)
		return parse_tenant(p);
	return gantry_err_set(err, -EINVAL, "\"%.40s\" is not module, image, tenant or kernel",
			      words[0]);
}

int gantry_manifest_parse(const char *text, size_t len, struct gantry_manifest **ret_manifest,
			  struct gantry_err *err)
{
	_cleanup_(gantry_manifest_freep) struct gantry_manifest *manifest = NULL;
	struct parser p = { 0 };
	int r;

	if (len > GANTRY_MANIFEST_MAX_BYTES)
		return gantry_err_set(err, -EINVAL, "the manifest has more than %u bytes",
				      GANTRY_MANIFEST_MAX_BYTES);
	manifest = calloc(1, sizeof(*manifest));
	if (!manifest)
		return gantry_err_set(err, -ENOMEM, "no memory for the manifest");
	p.manifest = manifest;
	r = gantry_statements_parse(text, len, MAX_WORDS, parse_statement, &p, err);
	if (r < 0)
		return r;
	if (!manifest->module)
		return gantry_err_set(err, -EINVAL, "the manifest names no module");
	*ret_manifest = GANTRY_TAKE_PTR(manifest);
	return 0;
}

void gantry_manifest_free(struct gantry_manifest *manifest)
{
	if (!manifest)
		return;
	for (uint32_t i = 0; i < manifest->nkernels; i++) {
		free(manifest->kernels[i].name);
		free(manifest->kernels[i].sig_text);
	}
	for (unsigned int kind = 0; kind < GANTRY_NKINDS; kind++)
		free(manifest->images[kind]);
	free(manifest->kernels);
	free(manifest->module);
	free(manifest->tenant);
	free(manifest);
}

const struct gantry_kernel_def *gantry_manifest_find(const struct gantry_manifest *manifest,
						     const char *name)
{
	for (uint32_t i = 0; i < manifest->nkernels; i++)
		if (strcmp(manifest->kernels[i].name, name) == 0)
			return &manifest->kernels[i];
	return NULL;
}
