/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linking on the spot: inputs are gathered here, and linked by the driver with the worker at cuLinkComplete(). What the program gets for
 * a cubin holds all inputs (proto/cuda_link.h): loaded, kept in a file or handed on, it is linked again where it is loaded. So an
 * input that does not assemble is told of at cuLinkComplete() rather than when it was added.
 */
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/clock.h"
#include "guest-shim/cuda/core.h"
#include "proto/cuda_link.h"

#define FATBIN_MAGIC 0xba55ed50u
#define LOG_BYTES    (32u << 10)

struct input {
	struct gantry_link_input head;
	char *bytes; /* owned */
};

/* A log of the program's: where it lies, and where it is said how long it is. */
struct log {
	char *buffer;
	size_t room;
	void **ret_bytes; /* NULL: nobody asks */
};

struct CUlinkState_st {
	uint32_t noptions;
	uint32_t ninputs;
	struct gantry_link_option options[GANTRY_LINK_MAX_OPTIONS];
	struct input inputs[GANTRY_LINK_MAX_INPUTS];
	struct log info;
	struct log error;
	void **ret_ms; /* CU_JIT_WALL_TIME */
	char *image;   /* owned; NULL: not completed */
	bool is_busy; /* cuLinkComplete() waits for the host, without the lock: others find nothing */
};

/* ---- options ---- */

static CUresult take_option(struct CUlinkState_st *link, CUjit_option option, void **value)
{
	switch (option) {
	case CU_JIT_INFO_LOG_BUFFER:
		link->info.buffer = *value;
		return CUDA_SUCCESS;
	case CU_JIT_ERROR_LOG_BUFFER:
		link->error.buffer = *value;
		return CUDA_SUCCESS;
	case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
		link->info.room = (size_t)(uintptr_t)*value;
		link->info.ret_bytes = value;
		return CUDA_SUCCESS;
	case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
		link->error.room = (size_t)(uintptr_t)*value;
		link->error.ret_bytes = value;
		return CUDA_SUCCESS;
	case CU_JIT_WALL_TIME:
		link->ret_ms = value;
		return CUDA_SUCCESS;
#define CASE(name) case name:
		GANTRY_LINK_OPTIONS(CASE)
#undef CASE
		if (link->noptions == GANTRY_LINK_MAX_OPTIONS)
			return CUDA_ERROR_INVALID_VALUE;
		link->options[link->noptions++] =
			(struct gantry_link_option){ option, (uint32_t)(uintptr_t)*value };
		return CUDA_SUCCESS;
	case CU_JIT_TARGET_FROM_CUCONTEXT: /* always */
	case CU_JIT_FALLBACK_STRATEGY:
	case CU_JIT_CACHE_MODE: /* the host has its own */
		return CUDA_SUCCESS;
	default:
		return option < CU_JIT_NUM_OPTIONS
			       ? cu_unsupported("cuLinkCreate with a target or symbols of its own")
			       : CUDA_ERROR_INVALID_VALUE;
	}
}

static void tell(const struct log *log, const char *text, size_t len)
{
	if (log->buffer && log->room) {
		len = GANTRY_MIN(len, log->room - 1);
		memcpy(log->buffer, text, len);
		log->buffer[len] = '\0';
	} else {
		len = 0;
	}
	if (log->ret_bytes)
		*log->ret_bytes = (void *)(uintptr_t)len;
}

/* ---- inputs ---- */

static CUresult check_input(CUjitInputType type, const void *data, size_t bytes)
{
	static const uint32_t fatbin = FATBIN_MAGIC;

	switch (type) {
	case CU_JIT_INPUT_PTX:
		return memmem(data, bytes, ".version", strlen(".version")) ? CUDA_SUCCESS
									   : CUDA_ERROR_INVALID_PTX;
	case CU_JIT_INPUT_CUBIN:
		return bytes >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_INVALID_IMAGE;
	case CU_JIT_INPUT_FATBINARY:
		return bytes >= sizeof(fatbin) && memcmp(data, &fatbin, sizeof(fatbin)) == 0
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_INVALID_IMAGE;
	case CU_JIT_INPUT_OBJECT:
	case CU_JIT_INPUT_LIBRARY:
		return cu_unsupported("cuLinkAddData of objects and libraries of the host's");
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult add_locked(struct CUlinkState_st *link, CUjitInputType type, const void *data,
			   size_t bytes, const char *name)
{
	/* PTX may come with its NUL or without. */
	bool is_ptx = type == CU_JIT_INPUT_PTX;
	size_t len = is_ptx ? strnlen(data, bytes) : bytes;
	struct input *input = &link->inputs[link->ninputs];
	CUresult result;

	if (link->image || link->ninputs == GANTRY_LINK_MAX_INPUTS)
		return CUDA_ERROR_INVALID_VALUE;
	result = check_input(type, data, len);
	if (result != CUDA_SUCCESS)
		return result;
	input->bytes = calloc(1, len + 1);
	if (!input->bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(input->bytes, data, len);
	input->head = (struct gantry_link_input){ .type = type, .bytes = len + is_ptx };
	(void)snprintf(input->head.name, sizeof(input->head.name), "%s", name ? name : "");
	link->ninputs++;
	return CUDA_SUCCESS;
}

/* With the lock on success. */
static CUresult enter(struct CUlinkState_st *link)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	if (result != CUDA_SUCCESS)
		return result;
	return cu_handle_is_locked(link, CU_KIND_LINK) && !link->is_busy
		       ? CUDA_SUCCESS
		       : cu_leave(CUDA_ERROR_INVALID_HANDLE);
}

static CUresult add(struct CUlinkState_st *link, CUjitInputType type, const void *data,
		    size_t bytes, const char *name, unsigned int n)
{
	CUresult result = data && bytes > 0 && bytes <= GANTRY_MAX_IMAGE_BYTES
				  ? enter(link)
				  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	return cu_leave(n ? cu_unsupported("cuLinkAddData with options of its own")
			  : add_locked(link, type, data, bytes, name));
}

/* ---- the whole ---- */

static uint64_t aligned(uint64_t bytes)
{
	return (bytes + 7) / 8 * 8;
}

/* All inputs in one piece. */
static CUresult make_image(struct CUlinkState_st *link, uint64_t *ret_bytes)
{
	struct gantry_link_header header = { .version = GANTRY_LINK_VERSION,
					     .noptions = link->noptions,
					     .ninputs = link->ninputs };
	size_t options_bytes = link->noptions * sizeof(link->options[0]);
	uint64_t off = sizeof(header) + options_bytes +
		       link->ninputs * sizeof(struct gantry_link_input);
	char *at;

	for (uint32_t i = 0; i < link->ninputs; i++) {
		off = aligned(off);
		link->inputs[i].head.off = off;
		off += link->inputs[i].head.bytes; /* at most a GiB each */
	}
	if (off > GANTRY_MAX_IMAGE_BYTES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(header.magic, GANTRY_LINK_MAGIC, sizeof(header.magic));
	header.bytes = off;
	link->image = calloc(1, off);
	if (!link->image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(link->image, &header, sizeof(header));
	memcpy(link->image + sizeof(header), link->options, options_bytes);
	at = link->image + sizeof(header) + options_bytes;
	for (uint32_t i = 0; i < link->ninputs; i++) {
		const struct input *input = &link->inputs[i];

		memcpy(at + i * sizeof(input->head), &input->head, sizeof(input->head));
		memcpy(link->image + input->head.off, input->bytes, input->head.bytes);
	}
	*ret_bytes = off;
	return CUDA_SUCCESS;
}

static CUresult result_of(int status)
{
	if (status == GANTRY_E_IMAGE && strstr(gantry_last_error(), "PTX does not assemble"))
		return CUDA_ERROR_INVALID_PTX;
	return status == GANTRY_E_IMAGE ? CUDA_ERROR_INVALID_IMAGE : cu_result(status);
}

/* It is loaded once, for what the linker says. */
static CUresult try_image(struct CUlinkState_st *link, uint64_t bytes)
{
	char *log = calloc(1, LOG_BYTES);
	uint64_t from = gantry_now_ns();
	gantry_image image;
	const char *apart;
	CUresult result;
	float ms;
	int r;

	if (!log)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = gantry_image_load_log(cu.session, GANTRY_KIND_CUDA, link->image, bytes, log, LOG_BYTES,
				  &image);
	result = result_of(r);
	if (r == 0)
		(void)gantry_image_free(cu.session, image);
	apart = strchr(log, GANTRY_LINK_LOGS_APART);
	tell(&link->info, log, apart ? (size_t)(apart - log) : 0);
	/* What the host has refused the linker has not seen. */
	apart = apart ? apart + 1 : r < 0 ? gantry_last_error() : "";
	tell(&link->error, apart, strlen(apart));
	ms = (float)(gantry_now_ns() - from) / (float)GANTRY_NS_PER_MS;
	if (link->ret_ms)
		memcpy(link->ret_ms, &ms, sizeof(ms));
	free(log);
	return result;
}

static void link_free(struct CUlinkState_st *link)
{
	for (uint32_t i = 0; i < link->ninputs; i++)
		free(link->inputs[i].bytes);
	free(link->image);
	free(link);
}

/* ---- exported ---- */

CUresult CUDAAPI cuLinkCreate(unsigned int n, CUjit_option *options, void **values,
			      CUlinkState *state)
{
	struct CUlinkState_st *link;
	struct CUctx_st *ctx;
	CUresult result = state && (!n || (options && values)) ? cu_enter(&ctx)
							       : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	link = calloc(1, sizeof(*link));
	if (!link)
		return cu_leave(CUDA_ERROR_OUT_OF_MEMORY);
	for (unsigned int i = 0; i < n && result == CUDA_SUCCESS; i++)
		result = take_option(link, options[i], &values[i]);
	if (result == CUDA_SUCCESS && !cu_handle_add_locked(link, CU_KIND_LINK))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS)
		*state = link;
	else
		link_free(link);
	return cu_leave(result);
}

CUresult CUDAAPI cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
			       const char *name, unsigned int n, CUjit_option *options,
			       void **values)
{
	(void)options;
	(void)values;
	return add(state, type, data, bytes, name, n);
}

CUresult CUDAAPI cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path,
			       unsigned int n, CUjit_option *options, void **values)
{
	CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
	char *bytes = NULL;
	struct stat st;
	FILE *file;

	(void)options;
	(void)values;
	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	file = fopen(path, "re");
	if (!file)
		return result;
	if (fstat(fileno(file), &st) == 0 && st.st_size > 0 &&
	    (uint64_t)st.st_size <= GANTRY_MAX_IMAGE_BYTES)
		bytes = malloc((size_t)st.st_size);
	if (bytes && fread(bytes, 1, (size_t)st.st_size, file) == (size_t)st.st_size)
		result = add(state, type, bytes, (size_t)st.st_size, path, n);
	(void)fclose(file);
	free(bytes);
	return result;
}

CUresult CUDAAPI cuLinkComplete(CUlinkState state, void **cubin, size_t *ret_bytes)
{
	CUresult result = cubin ? enter(state) : CUDA_ERROR_INVALID_VALUE;
	uint64_t bytes = 0;

	if (result != CUDA_SUCCESS)
		return result;
	if (state->image || state->ninputs == 0)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	result = make_image(state, &bytes);
	if (result != CUDA_SUCCESS)
		return cu_leave(result);
	state->is_busy = true;
	(void)pthread_mutex_unlock(&cu.lock);
	result = try_image(state, bytes);
	(void)pthread_mutex_lock(&cu.lock);
	state->is_busy = false;
	if (result == CUDA_SUCCESS) {
		*cubin = state->image;
		if (ret_bytes)
			*ret_bytes = bytes;
	}
	return cu_leave(result);
}

CUresult CUDAAPI cuLinkDestroy(CUlinkState state)
{
	CUresult result = enter(state);

	if (result != CUDA_SUCCESS)
		return result;
	cu_handle_remove_locked(state);
	(void)cu_leave(CUDA_SUCCESS);
	link_free(state);
	return CUDA_SUCCESS;
}
