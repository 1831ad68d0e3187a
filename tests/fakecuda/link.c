/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linking on the spot: inputs are images of this driver, and the cubin names the shared objects of them all. An input's line
 * "// NEEDS fakecuda_NAME" is a reference that one of them has to have.
 */
#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/fake.h"

#define TEXT_BYTES 16384u

struct CUlinkState_st {
	char sos[FAKE_MAX_SOS][PATH_MAX];
	unsigned int nsos;
	char needs[FAKE_MAX_SOS][128];
	unsigned int nneeds;
	char *logs[2]; /* the program's: of information, of errors */
	size_t log_bytes[2];
	bool verbose;
	char cubin[sizeof(Elf64_Ehdr) + TEXT_BYTES];
};

static void say(struct CUlinkState_st *link, unsigned int which, const char *text, const char *what)
{
	if (link->logs[which] && link->log_bytes[which] > 0)
		(void)snprintf(link->logs[which], link->log_bytes[which], "%s '%s'\n", text, what);
}

CUresult cuLinkCreate(unsigned int n, CUjit_option *options, void **values, CUlinkState *ret_state)
{
	CUresult r = fake_enter(__func__);
	struct CUlinkState_st *link;

	if (r != CUDA_SUCCESS)
		return r;
	link = calloc(1, sizeof(*link));
	if (!link)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned int i = 0; i < n; i++) {
		if (options[i] == CU_JIT_INFO_LOG_BUFFER || options[i] == CU_JIT_ERROR_LOG_BUFFER)
			link->logs[options[i] == CU_JIT_ERROR_LOG_BUFFER] = values[i];
		if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)
			link->log_bytes[0] = (size_t)(uintptr_t)values[i];
		if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
			link->log_bytes[1] = (size_t)(uintptr_t)values[i];
		if (options[i] == CU_JIT_LOG_VERBOSE)
			link->verbose = values[i] != NULL;
	}
	*ret_state = link;
	return CUDA_SUCCESS;
}

CUresult cuLinkAddData(CUlinkState link, CUjitInputType type, void *data, size_t size,
		       const char *name, unsigned int n, CUjit_option *options, void **values)
{
	static const char key[] = "// NEEDS ";
	CUresult r = fake_enter(__func__);
	const char *needs;

	(void)n;
	(void)options;
	(void)values;
	if (r != CUDA_SUCCESS)
		return r;
	if (link->nsos == FAKE_MAX_SOS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = fake_image_read(data, 0, link->sos[link->nsos], PATH_MAX);
	if (r != CUDA_SUCCESS) {
		say(link, 1, "error   : no FAKECUDA line in", name);
		return type == CU_JIT_INPUT_PTX && r == CUDA_ERROR_INVALID_IMAGE
			       ? CUDA_ERROR_INVALID_PTX
			       : r;
	}
	link->nsos++;
	needs = memmem(data, size, key, strlen(key));
	if (needs) {
		size_t len = strcspn(needs + strlen(key), "\n");

		(void)snprintf(link->needs[link->nneeds++], sizeof(link->needs[0]), "%.*s",
			       (int)len, needs + strlen(key));
	}
	return CUDA_SUCCESS;
}

static bool has(const struct CUlinkState_st *link, const char *name)
{
	bool found = false;

	for (unsigned int i = 0; i < link->nsos && !found; i++) {
		void *so = dlopen(link->sos[i], RTLD_NOW | RTLD_LOCAL);

		found = so && dlsym(so, name);
		if (so)
			(void)dlclose(so);
	}
	return found;
}

CUresult cuLinkComplete(CUlinkState link, void **ret_cubin, size_t *ret_size)
{
	static const unsigned char ident[EI_NIDENT] = { 0x7f,	     'E', 'L', 'F', ELFCLASS64,
							ELFDATA2LSB, 1,	  51,  7 };
	CUresult r = fake_enter(__func__);
	Elf64_Ehdr head = { .e_type = ET_EXEC,
			    .e_machine = 190,
			    .e_version = 1,
			    .e_flags = 0x5a005a,
			    .e_ehsize = sizeof(head) };
	char *text = link->cubin + sizeof(head);

	if (r != CUDA_SUCCESS)
		return r;
	for (unsigned int i = 0; i < link->nneeds; i++)
		if (!has(link, link->needs[i])) {
			say(link, 1, "error   : Undefined reference to", link->needs[i]);
			return CUDA_ERROR_INVALID_IMAGE;
		}
	for (unsigned int i = 0; i < link->nsos; i++) {
		size_t at = strlen(text);

		(void)snprintf(text + at, TEXT_BYTES - at, "FAKECUDA so=%s arch=sm_90\n",
			       link->sos[i]);
	}
	if (link->verbose)
		say(link, 0, "info    : linked for", "sm_90");
	memcpy(head.e_ident, ident, sizeof(ident));
	head.e_shoff = sizeof(link->cubin);
	memcpy(link->cubin, &head, sizeof(head));
	*ret_cubin = link->cubin;
	if (ret_size)
		*ret_size = sizeof(link->cubin);
	return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState link)
{
	CUresult r = fake_enter(__func__);

	if (r == CUDA_SUCCESS)
		free(link);
	return r;
}
