/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/cuda/libraries.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "devices/cuda/module.h"

/* Declared here, as their headers belong to the toolkit; the numbers are of their documentation. */
#define SUCCESS		   0
#define CUFFT_ALLOC_FAILED 2

/* Plans that a stream keeps. */
#define PLANS_MAX 8u

struct cufft_plan {
	int kind, n, batch;
	int handle;
	uint64_t work_bytes;
	uint64_t used; /* when last; 0: the entry is free */
};

struct cufft {
	struct gantry_cufft table; /* first: kernels are given its address */
	void *stream;
	uint64_t clock;
	struct cufft_plan plans[PLANS_MAX];
	int (*create)(int *ret_plan);
	int (*destroy)(int plan);
	int (*set_auto_allocation)(int plan, int yes);
	int (*make_plan_many)(int plan, int rank, int *n, int *inembed, int istride, int idist,
			      int *onembed, int ostride, int odist, int kind, int batch,
			      size_t *ret_work_bytes);
	int (*set_stream)(int plan, void *stream);
};

struct cublas {
	struct gantry_cublas table; /* first, as above */
	int (*create)(void **ret_handle);
	int (*destroy)(void *handle);
	int (*set_stream)(void *handle, void *stream);
};

enum state {
	UNTRIED = 0,
	READY,
	ABSENT,
};

struct gantry_cuda_libraries {
	void *stream;
	char *folder;
	enum state cublas_state, cufft_state;
	struct cublas cublas;
	struct cufft cufft;
};

struct gantry_cuda_libraries *gantry_cuda_libraries_open(void *stream, const char *folder)
{
	struct gantry_cuda_libraries *libraries = calloc(1, sizeof(*libraries));

	if (!libraries)
		return NULL;
	libraries->stream = stream;
	if (folder) {
		libraries->folder = strdup(folder);
		if (!libraries->folder) {
			free(libraries);
			return NULL;
		}
	}
	return libraries;
}

/*
 * They start threads and register handlers, and so cannot be unloaded: a second load finds them where
 * they are.
 */
void *gantry_cuda_libraries_load(const char *folder, const char *name)
{
	char path[PATH_MAX];

	if (folder && gantry_str_format(path, sizeof(path), "%s/%s", folder, name) == 0) {
		void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

		if (library)
			return library;
	}
	return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

/* The first of @names, which end with NULL. */
static void *load(const char *folder, const char *const *names)
{
	void *library = NULL;

	for (; *names && !library; names++)
		library = gantry_cuda_libraries_load(folder, *names);
	return library;
}

struct symbol {
	const char *name;
	void *ret_function;
};

static bool resolve(void *library, const struct symbol *symbols, size_t nsymbols)
{
	for (size_t i = 0; i < nsymbols; i++) {
		void *address = dlsym(library, symbols[i].name);

		if (!address)
			return false;
		/* POSIX wants this conversion to work; ISO C has no cast for it. */
		memcpy(symbols[i].ret_function, &address, sizeof(address));
	}
	return true;
}

static enum state cublas_open(struct gantry_cuda_libraries *libraries)
{
	/* cuBLAS needs the first of these, and does not find it where the folder is not the system's. */
	static const char *const light[] = { "libcublasLt.so.13", "libcublasLt.so.12", NULL };
	static const char *const names[] = { "libcublas.so.13", "libcublas.so.12", NULL };
	struct cublas *c = &libraries->cublas;
	const struct symbol symbols[] = {
		{ "cublasCreate_v2", &c->create },	  { "cublasDestroy_v2", &c->destroy },
		{ "cublasSetStream_v2", &c->set_stream }, { "cublasSgemm_v2", &c->table.sgemm },
		{ "cublasDgemm_v2", &c->table.dgemm },
	};
	void *library;

	(void)load(libraries->folder, light); /* without it the next one says so */
	library = load(libraries->folder, names);
	if (!library || !resolve(library, symbols, sizeof(symbols) / sizeof(symbols[0])))
		return ABSENT;
	c->table.size = sizeof(c->table);
	if (c->create(&c->table.handle) != SUCCESS)
		return ABSENT;
	if (c->set_stream(c->table.handle, libraries->stream) != SUCCESS) {
		(void)c->destroy(c->table.handle); /* nothing was done with it */
		return ABSENT;
	}
	return READY;
}

static int plan_make(struct cufft *c, struct cufft_plan *plan, int kind, int n, int batch)
{
	size_t work_bytes = 0;
	int handle;
	int r = c->create(&handle);

	if (r != SUCCESS)
		return r == CUFFT_ALLOC_FAILED ? -ENOMEM : -EINVAL;
	/* Work memory is the kernel's scratch memory: bounded, and there only while it is needed. */
	r = c->set_auto_allocation(handle, 0);
	if (r == SUCCESS)
		r = c->make_plan_many(handle, 1, &n, NULL, 1, n, NULL, 1, n, kind, batch,
				      &work_bytes);
	if (r == SUCCESS)
		r = c->set_stream(handle, c->stream);
	if (r != SUCCESS) {
		(void)c->destroy(handle); /* it was of no use */
		return r == CUFFT_ALLOC_FAILED ? -ENOMEM : -EINVAL;
	}
	*plan = (struct cufft_plan){
		.kind = kind,
		.n = n,
		.batch = batch,
		.handle = handle,
		.work_bytes = work_bytes,
	};
	return 0;
}

static int cufft_plan(void *cache, int kind, int n, int batch, int *ret_plan,
		      uint64_t *ret_work_bytes)
{
	struct cufft *c = cache;
	struct cufft_plan *oldest = &c->plans[0], made;
	int r;

	for (unsigned int i = 0; i < PLANS_MAX; i++) {
		struct cufft_plan *plan = &c->plans[i];

		if (plan->used != 0 && plan->kind == kind && plan->n == n && plan->batch == batch) {
			plan->used = ++c->clock;
			*ret_plan = plan->handle;
			*ret_work_bytes = plan->work_bytes;
			return 0;
		}
		if (plan->used < oldest->used)
			oldest = plan;
	}
	r = plan_make(c, &made, kind, n, batch);
	if (r < 0)
		return r;
	/* cuFFT waits for a plan's transforms before it frees what they use. */
	if (oldest->used != 0)
		(void)c->destroy(oldest->handle);
	made.used = ++c->clock;
	*oldest = made;
	*ret_plan = made.handle;
	*ret_work_bytes = made.work_bytes;
	return 0;
}

static enum state cufft_open(struct gantry_cuda_libraries *libraries)
{
	static const char *const names[] = { "libcufft.so.12", "libcufft.so.11", NULL };
	struct cufft *c = &libraries->cufft;
	const struct symbol symbols[] = {
		{ "cufftCreate", &c->create },
		{ "cufftDestroy", &c->destroy },
		{ "cufftSetAutoAllocation", &c->set_auto_allocation },
		{ "cufftMakePlanMany", &c->make_plan_many },
		{ "cufftSetStream", &c->set_stream },
		{ "cufftSetWorkArea", &c->table.work },
		{ "cufftExecC2C", &c->table.c2c },
		{ "cufftExecR2C", &c->table.r2c },
		{ "cufftExecC2R", &c->table.c2r },
	};
	void *library = load(libraries->folder, names);

	if (!library || !resolve(library, symbols, sizeof(symbols) / sizeof(symbols[0])))
		return ABSENT;
	c->stream = libraries->stream;
	c->table.size = sizeof(c->table);
	c->table.cache = c;
	c->table.plan = cufft_plan;
	return READY;
}

void *gantry_cuda_libraries_get(struct gantry_cuda_libraries *libraries, const char *name)
{
	if (strcmp(name, "cublas") == 0) {
		if (libraries->cublas_state == UNTRIED)
			libraries->cublas_state = cublas_open(libraries);
		return libraries->cublas_state == READY ? &libraries->cublas.table : NULL;
	}
	if (strcmp(name, "cufft") == 0) {
		if (libraries->cufft_state == UNTRIED)
			libraries->cufft_state = cufft_open(libraries);
		return libraries->cufft_state == READY ? &libraries->cufft.table : NULL;
	}
	return NULL;
}

void gantry_cuda_libraries_close(struct gantry_cuda_libraries *libraries)
{
	if (!libraries)
		return;
	/* Handles go with the context if a fault makes these fail. */
	if (libraries->cublas_state == READY)
		(void)libraries->cublas.destroy(libraries->cublas.table.handle);
	for (unsigned int i = 0; i < PLANS_MAX; i++)
		if (libraries->cufft.plans[i].used != 0)
			(void)libraries->cufft.destroy(libraries->cufft.plans[i].handle);
	free(libraries->folder);
	free(libraries);
}
