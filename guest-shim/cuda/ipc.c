/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of another process of the tenant. A handle is a token of the agent's, which nobody can guess, for the buffer that the allocation
 * is in, and where it is in there. Who opens it has the buffer mapped elsewhere, under a handle and at an address of its own session's;
 * a second time it gets what it has. Small allocations share a buffer, so the token outlives them: each that has a handle has a slot in a page
 * of the process's besides, which says that it is there, and who opens one looks.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "guest-shim/cuda/graph.h"
#include "guest-shim/cuda/ipc.h"
#include "guest-shim/cuda/vmm.h"
#include "guest-shim/session.h"

#define MAGIC	0x32435049u /* "IPC2" */
#define NO_SLOT 0xffffu
static_assert(CU_PAGE_SLOTS < NO_SLOT, "they fit a handle");

struct handle {
	uint32_t magic;
	uint16_t slot;	 /* in the page; NO_SLOT: the buffer is the allocation's alone */
	uint16_t device; /* as the session numbers it: the same in all of a tenant's */
	uint8_t token[GANTRY_DOOR_TOKEN];
	uint64_t off; /* of the allocation in the buffer */
	uint64_t bytes;
	uint64_t id; /* of the allocation in its process: never two of the same name */
	uint8_t page[GANTRY_DOOR_TOKEN];
};
static_assert(sizeof(struct handle) == sizeof(CUipcMemHandle), "a handle fills CUDA's");

/* What this process has told others of. */
struct exported {
	struct exported *next;
	gantry_buffer buffer;
	uint8_t token[GANTRY_DOOR_TOKEN];
};
static struct exported *all_exported;

/* What it has of others. Several allocations, or events, may be in one buffer. */
static struct cu_opened *all_opened;

struct opened_alloc {
	struct opened_alloc *next;
	struct cu_opened *in;
	uint64_t off;
	uint64_t bytes;
	uint32_t nrefs;
};
static struct opened_alloc *allocs;

/* ---- handles ---- */

static struct exported *find_exported(gantry_buffer buffer, const uint8_t *token)
{
	struct exported *e = all_exported;

	while (e && (token ? memcmp(e->token, token, sizeof(e->token)) != 0 : e->buffer != buffer))
		e = e->next;
	return e;
}

CUresult cu_ipc_export_locked(gantry_buffer buffer, uint8_t ret_token[GANTRY_DOOR_TOKEN])
{
	struct exported *e = find_exported(buffer, NULL);
	CUresult result;

	if (e) {
		memcpy(ret_token, e->token, sizeof(e->token));
		return CUDA_SUCCESS;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->buffer = buffer;
	result = cu_result(gantry_device_share(cu.session, buffer, GANTRY_RW, e->token));
	if (result != CUDA_SUCCESS) {
		free(e);
		return result;
	}
	e->next = all_exported;
	all_exported = e;
	memcpy(ret_token, e->token, sizeof(e->token));
	return CUDA_SUCCESS;
}

/* ---- small allocations that handles were made of ---- */

struct told {
	struct told *next;
	uint64_t id;
	struct cu_page *page;
	uint32_t index;
};
static struct told *all_told;

static struct told **find_told(uint64_t id)
{
	struct told **at = &all_told;

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

static int write_alloc(const struct told *t, uint64_t id)
{
	return cu_slot_move(t->page->device, t->page->buffer,
			    cu_slot_off(t->index) + offsetof(struct cu_slot, alloc), &id,
			    sizeof(id), true);
}

static CUresult tell(const struct cu_alloc *alloc, struct told **ret_told)
{
	struct told *t = *find_told(alloc->id);
	CUresult result;

	*ret_told = t;
	if (t)
		return CUDA_SUCCESS;
	t = calloc(1, sizeof(*t));
	if (!t)
		return CUDA_ERROR_OUT_OF_MEMORY;
	t->id = alloc->id;
	result = cu_slot_take_locked(alloc->ctx->dev, &t->page, &t->index);
	if (result == CUDA_SUCCESS) {
		result = cu_result(write_alloc(t, alloc->id));
		if (result != CUDA_SUCCESS)
			cu_slot_put_locked(t->page, t->index);
	}
	if (result != CUDA_SUCCESS) {
		free(t);
		return result;
	}
	t->next = all_told;
	*ret_told = all_told = t;
	return CUDA_SUCCESS;
}

void cu_ipc_freed_locked(uint64_t id)
{
	struct told **at = find_told(id), *t = *at;

	if (!t)
		return;
	/* Where it cannot be said, the slot says nothing else. */
	if (write_alloc(t, 0) == 0)
		cu_slot_put_locked(t->page, t->index);
	*at = t->next;
	free(t);
}

bool cu_ipc_is_capable(const struct cu_alloc *alloc)
{
	return alloc->kind == CU_MEMORY_DEVICE && !alloc->pool;
}

static CUresult put_slot(const struct cu_alloc *alloc, struct handle *handle)
{
	struct told *t;
	CUresult result = tell(alloc, &t);

	if (result != CUDA_SUCCESS)
		return result;
	handle->slot = (uint16_t)t->index;
	return cu_ipc_export_locked(t->page->buffer, handle->page);
}

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *ret_handle, CUdeviceptr address)
{
	const struct cu_alloc *alloc;
	struct handle handle;
	struct CUctx_st *ctx;
	CUresult result = ret_handle ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	alloc = cu_alloc_find_locked(address);
	if (!alloc || alloc->address != address || !cu_ipc_is_capable(alloc))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	handle = (struct handle){ .magic = MAGIC,
				  .slot = NO_SLOT,
				  .device = (uint16_t)alloc->device,
				  .off = alloc->off,
				  .bytes = alloc->bytes,
				  .id = alloc->id };
	result = cu_ipc_export_locked(alloc->buffer, handle.token);
	if (result == CUDA_SUCCESS && alloc->chunk)
		result = put_slot(alloc, &handle);
	if (result == CUDA_SUCCESS)
		memcpy(ret_handle, &handle, sizeof(handle));
	return cu_leave(result);
}

/* ---- memory of others ---- */

static struct cu_device *device_of(uint32_t index)
{
	for (uint32_t i = 0; i < cu.ndevices; i++)
		if (cu.devices[i].index == index)
			return &cu.devices[i];
	return NULL;
}

static struct cu_opened *find_opened(const uint8_t *token)
{
	struct cu_opened *o = all_opened;

	while (o && memcmp(o->token, token, sizeof(o->token)) != 0)
		o = o->next;
	return o;
}

static CUresult adopt_result(int status)
{
	/* A token of nobody's, of memory that was freed, of another tenant's: the same to whoever shows it. */
	return status == GANTRY_E_NOT_FOUND	? CUDA_ERROR_INVALID_HANDLE
	       : status == GANTRY_E_UNSUPPORTED ? CUDA_ERROR_MAP_FAILED
						: cu_result(status);
}

/* The buffer is here, under an address that is nobody's else in this process. */
static CUresult open_buffer(uint32_t device, const uint8_t *token, struct cu_opened **ret_opened)
{
	struct cu_opened *o = calloc(1, sizeof(*o));
	struct gantry_reply_address answer;
	CUresult result;
	int r;

	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->dev = device_of(device);
	memcpy(o->token, token, sizeof(o->token));
	r = o->dev ? gantry_device_adopt(cu.session, token, &o->buffer, &o->bytes)
		   : GANTRY_E_NOT_FOUND;
	if (r < 0) {
		free(o);
		return adopt_result(r);
	}
	r = gantry_device_ask(cu.session, GANTRY_ASK_ADDRESS, o->dev->index, o->buffer,
			      (struct gantry_ask_numbers){ { 0 } }, &answer, sizeof(answer));
	result = r == sizeof(answer) ? CUDA_SUCCESS : cu_result(r < 0 ? r : GANTRY_E_INTERNAL);
	if (result == CUDA_SUCCESS && !cu_keep_clear(answer.address, o->bytes))
		result = CUDA_ERROR_MAP_FAILED;
	if (result != CUDA_SUCCESS) {
		(void)gantry_free(cu.session, o->buffer); /* nobody uses it */
		free(o);
		return result;
	}
	o->address = answer.address;
	o->next = all_opened;
	*ret_opened = all_opened = o;
	return CUDA_SUCCESS;
}

static void close_buffer(struct cu_opened *o)
{
	struct cu_opened **at = &all_opened;

	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	cu_give_up_clear(o->address, o->bytes);
	(void)gantry_free(cu.session, o->buffer);
	free(o);
}

CUresult cu_ipc_take_locked(uint32_t device, const uint8_t token[GANTRY_DOOR_TOKEN],
			    struct cu_opened **ret_opened)
{
	struct cu_opened *o = find_opened(token);
	CUresult result = CUDA_SUCCESS;

	/* CUDA opens handles of other processes only. */
	if (find_exported(0, token))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!o)
		result = open_buffer(device, token, &o);
	if (result != CUDA_SUCCESS)
		return result;
	o->nusers++;
	*ret_opened = o;
	return CUDA_SUCCESS;
}

void cu_ipc_put_locked(struct cu_opened *opened)
{
	if (--opened->nusers == 0)
		close_buffer(opened);
}

bool cu_ipc_is_alive(const uint8_t token[GANTRY_DOOR_TOKEN])
{
	gantry_buffer buffer;
	uint64_t bytes;
	int r = gantry_device_adopt(cu.session, token, &buffer, &bytes);

	if (r == 0)
		(void)gantry_free(cu.session, buffer); /* nobody knows of it */
	return r != GANTRY_E_NOT_FOUND;
}

static struct opened_alloc *find_alloc(const struct cu_opened *in, uint64_t off)
{
	struct opened_alloc *a = allocs;

	while (a && (a->in != in || a->off != off))
		a = a->next;
	return a;
}

static CUresult open_alloc(struct CUctx_st *ctx, struct cu_opened *in, const struct handle *handle,
			   CUdeviceptr *ret_address)
{
	const struct cu_alloc alloc = { .address = in->address + handle->off,
					.bytes = handle->bytes,
					.buffer = in->buffer,
					.off = handle->off,
					.kind = CU_MEMORY_OPENED,
					.ctx = ctx,
					.device = in->dev->index };
	struct opened_alloc *a = calloc(1, sizeof(*a));
	CUresult result = a ? cu_alloc_add_locked(&alloc) : CUDA_ERROR_OUT_OF_MEMORY;

	if (result != CUDA_SUCCESS) {
		free(a);
		return result;
	}
	*a = (struct opened_alloc){
		.next = allocs, .in = in, .off = handle->off, .bytes = handle->bytes, .nrefs = 1
	};
	allocs = a;
	*ret_address = alloc.address;
	return CUDA_SUCCESS;
}

/* Whether the allocation is the one that the handle was made of, still. */
static CUresult check_slot(const struct handle *handle)
{
	uint64_t off = cu_slot_off(handle->slot) + offsetof(struct cu_slot, alloc), id = 0;
	struct cu_opened *page;
	CUresult result;
	int r = 0;

	if (handle->slot == NO_SLOT)
		return CUDA_SUCCESS;
	result = cu_ipc_take_locked(handle->device, handle->page, &page);
	if (result != CUDA_SUCCESS)
		return result;
	if (gantry_range_inside(off, sizeof(id), page->bytes))
		r = cu_slot_move(page->dev->index, page->buffer, off, &id, sizeof(id), false);
	cu_ipc_put_locked(page);
	if (r < 0)
		return cu_result(r);
	return id && id == handle->id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult open(struct CUctx_st *ctx, const struct handle *handle, CUdeviceptr *ret_address)
{
	struct cu_opened *in;
	struct opened_alloc *a;
	CUresult result = cu_ipc_take_locked(handle->device, handle->token, &in);

	if (result != CUDA_SUCCESS)
		return result;
	result = check_slot(handle);
	if (result != CUDA_SUCCESS) {
		cu_ipc_put_locked(in);
		return result;
	}
	a = find_alloc(in, handle->off);
	if (a && a->bytes == handle->bytes) {
		cu_ipc_put_locked(in);
		a->nrefs++;
		*ret_address = in->address + a->off;
		return CUDA_SUCCESS;
	}
	/* Anybody may have written the rest of a handle. */
	if (a || handle->bytes == 0 ||
	    !gantry_range_inside(handle->off, handle->bytes, in->bytes) ||
	    cu_alloc_touches_locked(in->address + handle->off, handle->bytes))
		result = CUDA_ERROR_INVALID_HANDLE;
	else
		result = open_alloc(ctx, in, handle, ret_address);
	if (result != CUDA_SUCCESS)
		cu_ipc_put_locked(in);
	return result;
}

CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *ret_address, CUipcMemHandle given,
				    unsigned int flags)
{
	struct handle handle;
	struct CUctx_st *ctx;
	CUresult result = ret_address && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
				  ? cu_enter(&ctx)
				  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	memcpy(&handle, &given, sizeof(handle));
	if (handle.magic != MAGIC)
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	return cu_leave(open(ctx, &handle, ret_address));
}

static struct opened_alloc **find_at(CUdeviceptr address)
{
	struct opened_alloc **at = &allocs;

	while (*at && (*at)->in->address + (*at)->off != address)
		at = &(*at)->next;
	return at;
}

static void end(struct opened_alloc **at)
{
	struct opened_alloc *a = *at;
	struct cu_opened *in = a->in;

	*at = a->next;
	cu_alloc_forget_locked(in->address + a->off);
	free(a);
	cu_ipc_put_locked(in);
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address)
{
	struct opened_alloc **at;
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	if (result != CUDA_SUCCESS)
		return result;
	at = find_at(address);
	if (!*at)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	if ((*at)->nrefs > 1) {
		(*at)->nrefs--;
		return cu_leave(CUDA_SUCCESS);
	}
	/* What kernels do there is not to find it gone; the lock is given up meanwhile. */
	result = cu_ctx_wait_locked(ctx);
	at = find_at(address);
	if (*at && --(*at)->nrefs == 0)
		end(at);
	return cu_leave(result);
}

void cu_ipc_close_all_locked(const struct CUctx_st *ctx)
{
	for (struct opened_alloc **at = &allocs; *at;) {
		const struct cu_alloc *alloc =
			cu_alloc_find_locked((*at)->in->address + (*at)->off);

		if (alloc && alloc->ctx == ctx)
			end(at);
		else
			at = &(*at)->next;
	}
}
