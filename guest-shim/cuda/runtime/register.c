/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nvcc's code registers before main(): images, and the functions and variables in them, by their host addresses. A managed
 * variable has none: the program has a pointer to it, which is set when the program is about to use it the first time.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/cuda/runtime/rt.h"

struct image {
	const void *bytes;
	CUlibrary library; /* NULL: not loaded yet, which the first use does */
};

enum entry_kind {
	FUNCTION,
	VARIABLE,
};

struct entry {
	const void *host; /* NULL: empty */
	struct image *image;
	const char *name; /* of the program, which stays as long */
	size_t bytes;
	enum entry_kind kind;
	CUfunction function;
};

struct managed {
	struct managed *next;
	struct image *image;
	void **pointer; /* the program's; NULL in it: not set yet */
	const char *name;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct managed *all_managed;
static struct entry *entries;
static size_t nentries; /* a power of two */
static size_t nused;

/* ---- the table ---- */

static size_t place(const void *host)
{
	return (size_t)(((uintptr_t)host >> 3) * 0x9e3779b97f4a7c15ull >> 20) & (nentries - 1);
}

static struct entry *find(const void *host)
{
	if (nentries == 0 || !host)
		return NULL;
	for (size_t i = place(host); entries[i].host; i = (i + 1) & (nentries - 1))
		if (entries[i].host == host)
			return &entries[i];
	return NULL;
}

static void put(struct entry entry)
{
	size_t i = place(entry.host);

	while (entries[i].host && entries[i].host != entry.host)
		i = (i + 1) & (nentries - 1);
	nused += !entries[i].host;
	entries[i] = entry;
}

static bool grow(void)
{
	struct entry *before = entries;
	size_t n = nentries;

	nentries = n ? 2 * n : 256;
	entries = calloc(nentries, sizeof(*entries));
	if (!entries) {
		entries = before;
		nentries = n;
		return false;
	}
	nused = 0;
	for (size_t i = 0; i < n; i++)
		if (before[i].host && before[i].image)
			put(before[i]);
	free(before);
	return true;
}

/* Without memory a use of it finds nothing, and says so. */
static void add(struct entry entry)
{
	(void)pthread_mutex_lock(&lock);
	if (2 * (nused + 1) <= nentries || grow())
		put(entry);
	(void)pthread_mutex_unlock(&lock);
}

static void forget_managed(const struct image *image)
{
	for (struct managed **at = &all_managed; *at;) {
		struct managed *m = *at;

		if (m->image != image) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		free(m);
	}
}

/* ---- what nvcc's code calls ---- */

void **CUDARTAPI __cudaRegisterFatBinary(void *fatbin);
void **CUDARTAPI __cudaRegisterFatBinary(void *fatbin)
{
	struct image *image = calloc(1, sizeof(*image));

	if (image)
		image->bytes = fatbin;
	return (void **)image;
}

void CUDARTAPI __cudaRegisterFatBinaryEnd(void **handle);
void CUDARTAPI __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle; /* nothing is loaded before it is used */
}

void CUDARTAPI __cudaUnregisterFatBinary(void **handle);
void CUDARTAPI __cudaUnregisterFatBinary(void **handle)
{
	struct image *image = (struct image *)handle;

	if (!image)
		return;
	(void)pthread_mutex_lock(&lock);
	for (size_t i = 0; i < nentries; i++)
		if (entries[i].host && entries[i].image == image)
			entries[i].image = NULL; /* the place stays taken, for those behind it */
	forget_managed(image);
	(void)pthread_mutex_unlock(&lock);
	if (image->library)
		(void)cuLibraryUnload(image->library); /* the process may be at its end */
	free(image);
}

void CUDARTAPI __cudaRegisterFunction(void **handle, const char *host, char *device,
				      const char *name, int limit, uint3 *tid, uint3 *bid,
				      dim3 *block, dim3 *grid, int *warp);
void CUDARTAPI __cudaRegisterFunction(void **handle, const char *host, char *device,
				      const char *name, int limit, uint3 *tid, uint3 *bid,
				      dim3 *block, dim3 *grid, int *warp)
{
	(void)device;
	(void)limit;
	(void)tid;
	(void)bid;
	(void)block;
	(void)grid;
	(void)warp;
	if (handle && host)
		add((struct entry){ .host = host,
				    .image = (struct image *)handle,
				    .name = name,
				    .kind = FUNCTION });
}

void CUDARTAPI __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
				 size_t bytes, int constant, int global);
void CUDARTAPI __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
				 size_t bytes, int constant, int global)
{
	(void)device;
	(void)ext;
	(void)constant;
	(void)global;
	if (handle && host)
		add((struct entry){ .host = host,
				    .image = (struct image *)handle,
				    .name = name,
				    .bytes = bytes,
				    .kind = VARIABLE });
}

void CUDARTAPI __cudaRegisterManagedVar(void **handle, void **pointer, char *device,
					const char *name, int ext, size_t bytes, int constant,
					int global);
void CUDARTAPI __cudaRegisterManagedVar(void **handle, void **pointer, char *device,
					const char *name, int ext, size_t bytes, int constant,
					int global)
{
	struct managed *m = handle && pointer ? calloc(1, sizeof(*m)) : NULL;

	(void)device;
	(void)ext;
	(void)bytes;
	(void)constant;
	(void)global;
	if (!m)
		return;
	*m = (struct managed){ .image = (struct image *)handle, .pointer = pointer, .name = name };
	(void)pthread_mutex_lock(&lock);
	m->next = all_managed;
	all_managed = m;
	(void)pthread_mutex_unlock(&lock);
}

static CUresult load_locked(struct image *image)
{
	if (image->library)
		return CUDA_SUCCESS;
	return cuLibraryLoadData(&image->library, image->bytes, NULL, NULL, 0, NULL, NULL, 0);
}

static CUresult place_managed_locked(struct image *image)
{
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr address;
	size_t bytes;

	for (const struct managed *m = all_managed; m && result == CUDA_SUCCESS; m = m->next) {
		if (m->image != image || *m->pointer)
			continue;
		result = load_locked(image);
		if (result == CUDA_SUCCESS)
			result = cuLibraryGetManaged(&address, &bytes, image->library, m->name);
		if (result == CUDA_SUCCESS)
			*m->pointer = (void *)(uintptr_t)address;
	}
	return result;
}

/* The program is about to use a managed variable. What fails is the thread's last error; the program has a NULL then. */
char CUDARTAPI __cudaInitModule(void **handle);
char CUDARTAPI __cudaInitModule(void **handle)
{
	cudaError_t error = handle ? rt_enter() : cudaErrorInvalidResourceHandle;
	CUresult result;

	if (error != cudaSuccess)
		return 0;
	(void)pthread_mutex_lock(&lock);
	result = place_managed_locked((struct image *)handle);
	(void)pthread_mutex_unlock(&lock);
	return rt_leave(result) == cudaSuccess;
}

/* ---- use ---- */

cudaError_t rt_function(const void *host, CUfunction *ret_function)
{
	CUresult result = CUDA_SUCCESS;
	struct entry *entry;

	(void)pthread_mutex_lock(&lock);
	entry = find(host);
	if (!entry || !entry->image || entry->kind != FUNCTION) {
		(void)pthread_mutex_unlock(&lock);
		return cuKernelGetFunction(ret_function, (CUkernel)(uintptr_t)host) == CUDA_SUCCESS
			       ? cudaSuccess
			       : cudaErrorInvalidDeviceFunction;
	}
	if (!entry->function) {
		result = load_locked(entry->image);
		if (result == CUDA_SUCCESS)
			result = cuLibraryGetKernel((CUkernel *)&entry->function,
						    entry->image->library, entry->name);
	}
	*ret_function = entry->function;
	(void)pthread_mutex_unlock(&lock);
	return result == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidDeviceFunction
					      : (cudaError_t)result;
}

const void *rt_host_of(CUfunction function)
{
	const void *host = function;

	(void)pthread_mutex_lock(&lock);
	for (size_t i = 0; i < nentries; i++)
		if (entries[i].host && entries[i].image && entries[i].function == function &&
		    entries[i].kind == FUNCTION)
			host = entries[i].host;
	(void)pthread_mutex_unlock(&lock);
	return host;
}

/* The image that has the variable at @host, and its name there; NULL: none. */
static struct image *image_of(const void *host, const char **ret_name)
{
	const struct entry *entry = find(host);

	if (entry && entry->kind == VARIABLE) {
		*ret_name = entry->name;
		return entry->image;
	}
	for (const struct managed *m = all_managed; m; m = m->next)
		if (host && *m->pointer == host) {
			*ret_name = m->name;
			return m->image;
		}
	return NULL;
}

cudaError_t rt_variable(const void *host, CUdeviceptr *ret_address, size_t *ret_bytes)
{
	const char *name = NULL;
	struct image *image;
	CUresult result;

	(void)pthread_mutex_lock(&lock);
	image = image_of(host, &name);
	if (!image) {
		(void)pthread_mutex_unlock(&lock);
		return cudaErrorInvalidSymbol;
	}
	result = load_locked(image);
	if (result == CUDA_SUCCESS)
		result = cuLibraryGetGlobal(ret_address, ret_bytes, image->library, name);
	(void)pthread_mutex_unlock(&lock);
	return result == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : (cudaError_t)result;
}

static bool goes(enum cudaMemcpyKind kind, bool to)
{
	return kind == (to ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost) ||
	       kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
}

cudaError_t rt_symbol(const void *host, size_t bytes, size_t off, enum cudaMemcpyKind kind, bool to,
		      CUdeviceptr *ret_address)
{
	cudaError_t error = goes(kind, to) ? rt_enter() : cudaErrorInvalidMemcpyDirection;
	size_t size = 0;

	if (error == cudaSuccess)
		error = rt_variable(host, ret_address, &size);
	if (error == cudaSuccess && (off > size || bytes > size - off))
		error = cudaErrorInvalidValue;
	if (error == cudaSuccess)
		*ret_address += off;
	return error;
}

/* ---- <<<>>> ---- */

/* A kernel's call may have calls in its arguments. */
#define CALLS 16u
static _Thread_local struct rt_call calls[CALLS];
static _Thread_local unsigned int ncalls;

unsigned int CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
						   struct CUstream_st *stream);
unsigned int CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
						   struct CUstream_st *stream)
{
	if (ncalls == CALLS)
		return 1;
	calls[ncalls++] = (struct rt_call){ grid, block, shared, stream };
	return 0;
}

cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared,
						 void *stream);
cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared,
						 void *stream)
{
	if (ncalls == 0)
		return cudaErrorMissingConfiguration;
	ncalls--;
	*grid = calls[ncalls].grid;
	*block = calls[ncalls].block;
	*shared = calls[ncalls].shared;
	*(cudaStream_t *)stream = calls[ncalls].stream;
	return cudaSuccess;
}

/* The handle of a kernel is the address of its host function: it is loaded on the device of the launch. */
cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
	struct entry *entry;

	(void)pthread_mutex_lock(&lock);
	entry = find(host);
	(void)pthread_mutex_unlock(&lock);
	*kernel = (cudaKernel_t)(uintptr_t)host;
	return entry ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
