/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of several sessions: memory of their own behind a descriptor, made here or brought by the agent. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "host-agent/worker/memory.h"

/* Never the same twice on a host: a token of a buffer that is gone must not open the next one in its slot. */
uint64_t worker_share_id(const struct wsession *s, uint32_t slot)
{
	static_assert(GANTRY_LEDGER_NOBJECTS <= 1u << 13, "a slot fits its bits of a share id");

	return s->id << 40 | (uint64_t)(s->ledger.objects[slot].gen & 0x7ffffffu) << 13 | slot;
}

int worker_shared_make(struct wsession *s, uint32_t slot, uint64_t bytes, int fd)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	struct wshared *shared = calloc(1, sizeof(*shared));

	if (!shared)
		return GANTRY_E_NO_MEMORY;
	shared->fd = fd;
	if (fd < 0 && gantry_memfd_create("gantry-shared", worker_page_up(bytes),
					  GANTRY_MEMFD_SEALED, &shared->fd) < 0) {
		free(shared);
		return GANTRY_E_NO_MEMORY;
	}
	b->place = GANTRY_PLACE_OWN;
	s->objects[slot].shared = shared;
	return GANTRY_OK;
}

int worker_shared_back(struct wsession *s, const struct gantry_ledger_object *obj, uint64_t len)
{
	const struct wshared *shared = s->objects[obj - s->ledger.objects].shared;

	if (!shared) /* lost with an earlier worker */
		return GANTRY_E_HANDLE;
	if (fallocate(shared->fd, 0, 0, (off_t)len) < 0)
		return GANTRY_E_NO_MEMORY;
	return GANTRY_OK;
}

/* A shared buffer on one device: imported, or mapped here where the device takes host memory only. */
struct wmapped {
	struct gantry_mem *mem;
	void *base; /* NULL: imported */
	uint64_t bytes;
};

void worker_shared_unmap(struct wdevice *d, void *arg)
{
	struct wmapped *mapped = arg;

	d->device.backend->mem_free(mapped->mem);
	if (mapped->base)
		(void)munmap(mapped->base,
			     mapped->bytes); /* cannot fail for what mmap() returned */
	free(mapped);
}

/* Device memory belongs to its device's thread, which frees it soon; the descriptor may go before. */
void worker_shared_close(struct wsession *s, struct wobject *rt)
{
	for (uint32_t i = 0; i < s->engine->ndevices; i++)
		if (rt->shared->on[i])
			(void)worker_device_post(s->engine->devices[i], worker_shared_unmap,
						 rt->shared->on[i]);
	gantry_fd_close(rt->shared->fd);
	free(rt->shared);
	rt->shared = NULL;
}

/* Another handle to the same memory: it was adopted more than once. */
bool worker_shared_elsewhere(const struct wsession *s, uint32_t slot)
{
	uint64_t share_id = s->ledger.objects[slot].buffer.share_id;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		if (i != slot && worker_is_buffer(&s->ledger.objects[i]) &&
		    s->ledger.objects[i].buffer.place == GANTRY_PLACE_OWN &&
		    s->ledger.objects[i].buffer.share_id == share_id)
			return true;
	return false;
}

static int map_host(struct wdevice *d, int fd, struct wmapped *m, struct gantry_err *err)
{
	int r;

	m->base = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m->base == MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "mapping a shared buffer");
	r = d->device.backend->mem_host(d->device.dev, m->base, m->bytes, &m->mem, err);
	if (r < 0)
		(void)munmap(m->base, m->bytes);
	return r;
}

static int map_on(struct wdevice *d, int fd, uint64_t bytes, struct wmapped **ret_mapped)
{
	struct wmapped *m = calloc(1, sizeof(*m));
	struct gantry_err err;
	int r;

	if (!m)
		return GANTRY_E_NO_MEMORY;
	m->bytes = bytes;
	if (d->device.info.caps & GANTRY_CAP_MEM_FD)
		r = d->device.backend->mem_import(d->device.dev, fd, 0, bytes, &m->mem, &err);
	else
		r = map_host(d, fd, m, &err);
	if (r < 0) {
		free(m);
		return GANTRY_E_NO_MEMORY;
	}
	*ret_mapped = m;
	return GANTRY_OK;
}

int worker_shared_mem(struct wdevice *d, struct wsession *s, const struct gantry_ledger_object *obj,
		      struct gantry_mem **ret_mem)
{
	struct wshared *shared = s->objects[obj - s->ledger.objects].shared;
	int status;

	if (!shared)
		return GANTRY_E_HANDLE;
	if (!shared->on[d->index]) {
		status = map_on(d, shared->fd, worker_page_up(obj->buffer.bytes),
				&shared->on[d->index]);
		if (status != GANTRY_OK)
			return status;
	}
	*ret_mem = shared->on[d->index]->mem;
	return GANTRY_OK;
}

/* ---- to another host, or back from the way there ---- */

/* Both have the pages. */
static int copy_file(int from, uint64_t from_off, int to, uint64_t to_off, uint64_t bytes)
{
	void *src = mmap(NULL, bytes, PROT_READ, MAP_SHARED, from, (off_t)from_off);
	void *dst = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, to, (off_t)to_off);
	int r = src == MAP_FAILED || dst == MAP_FAILED ? -ENOMEM : 0;

	if (r == 0)
		memcpy(dst, src, bytes);
	/* Mappings of ours: unmapping cannot fail. */
	if (src != MAP_FAILED)
		(void)munmap(src, bytes);
	if (dst != MAP_FAILED)
		(void)munmap(dst, bytes);
	return r;
}

/* Nobody else carries it any more: another session did that has let go of it. */
static int take_charge(struct wsession *s, struct gantry_ledger_buffer *b)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;

	if (gantry_quota_charge(&hdr->virtual_used, &hdr->virtual_bytes, b->bytes) < 0)
		return GANTRY_E_LIMIT;
	if (gantry_quota_charge(&s->quota->virtual_used, &s->quota->virtual_bytes, b->bytes) < 0 ||
	    worker_charge_host(s, b) != GANTRY_OK) {
		gantry_quota_refund(&hdr->virtual_used, b->bytes);
		return GANTRY_E_LIMIT;
	}
	b->adopted = 0;
	return GANTRY_OK;
}

/* Its bytes lie at @off of the slab now. */
static void settled_locked(struct wsession *s, uint32_t slot, uint64_t off, uint32_t place)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;

	gantry_store_relaxed(&b->off, off);
	/* Release: whoever reads the ledger after our death finds a whole buffer on either side of this. */
	gantry_store_release(&b->place, place);
	if (s->objects[slot].shared)
		worker_shared_close(s, &s->objects[slot]);
	s->engine->events.keep(s->engine->events.cookie, s->id, b->share_id, 0, -1);
	gantry_store_relaxed(&s->objects[slot].ready, 0u);
}

int worker_shared_settle_locked(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	uint64_t len = worker_page_up(b->bytes), off;
	int status = GANTRY_OK;

	if (worker_shared_elsewhere(s, slot))
		return GANTRY_E_UNSUPPORTED;
	if (!s->objects[slot]
		     .shared) /* lost with an earlier worker: its handle answers as before */
		return GANTRY_OK;
	if (!b->adopted && !b->charged_bytes && !b->host_bytes) { /* never used */
		settled_locked(s, slot, 0, GANTRY_PLACE_NONE);
		return GANTRY_OK;
	}
	if (b->adopted)
		status = take_charge(s, b);
	if (status != GANTRY_OK)
		return status;
	if (worker_slab_take_locked(s, len, &off) < 0)
		return GANTRY_E_NO_MEMORY;
	if (fallocate(s->slab_fd, 0, (off_t)off, (off_t)len) < 0 ||
	    copy_file(s->objects[slot].shared->fd, 0, s->slab_fd, off, len) < 0) {
		worker_scrub_host(s, off, len);
		worker_slab_put_locked(s, off, len);
		return GANTRY_E_NO_MEMORY;
	}
	settled_locked(s, slot, off, GANTRY_PLACE_SLAB);
	return GANTRY_OK;
}

int worker_shared_unsettle(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	uint64_t len = worker_page_up(b->bytes), off = b->off;
	bool had = b->place == GANTRY_PLACE_SLAB;
	struct wshared *shared = calloc(1, sizeof(*shared));
	uint64_t share_id = worker_share_id(s, slot);
	int r;

	if (!shared)
		return -ENOMEM;
	r = gantry_memfd_create("gantry-shared", len, GANTRY_MEMFD_SEALED, &shared->fd);
	if (r == 0 && had && fallocate(shared->fd, 0, 0, (off_t)len) < 0)
		r = -errno;
	if (r == 0 && had)
		r = copy_file(s->slab_fd, off, shared->fd, 0, len);
	if (r < 0) {
		gantry_fd_close(shared->fd);
		free(shared);
		return r;
	}
	s->objects[slot].shared = shared;
	worker_contents_end(s, slot); /* from now on others write it, unseen */
	/* The agent has it first: from then on it outlives us. */
	s->engine->events.keep(s->engine->events.cookie, s->id, share_id, b->bytes, shared->fd);
	gantry_store_relaxed(&b->share_id, share_id);
	gantry_store_relaxed(&b->off, (uint64_t)0);
	gantry_store_release(&b->place, (uint32_t)GANTRY_PLACE_OWN);
	gantry_store_relaxed(&s->objects[slot].ready, 0u);
	if (had) {
		worker_scrub_host(s, off, len);
		worker_window_wash_locked(s, off, len, s->objects[slot].dirty);
		s->objects[slot].dirty = 0;
	}
	return 0;
}

/* ---- between sessions ---- */

int worker_buffer_adopt(struct wsession *s, uint64_t share_id, uint64_t bytes, uint32_t mode,
			int fd, uint64_t *ret_handle)
{
	struct gantry_ledger_buffer *b;
	uint32_t slot;
	int status;

	pthread_mutex_lock(&s->lock);
	status = worker_object_new_locked(s, GANTRY_HANDLE_BUFFER, &slot);
	if (status == GANTRY_OK)
		status = worker_shared_make(s, slot, bytes, fd);
	if (status == GANTRY_OK) {
		b = &s->ledger.objects[slot].buffer;
		b->bytes = bytes;
		b->alloc_flags = GANTRY_ALLOC_SHARED;
		b->rights = mode;
		b->share_id = share_id;
		b->adopted = 1;
		worker_object_publish(s, slot, 0);
		*ret_handle = worker_object_handle(s, slot);
	}
	pthread_mutex_unlock(&s->lock);
	return status;
}

static int export_locked(struct wsession *s, uint64_t handle, uint32_t mode, int *ret_fd,
			 uint64_t *ret_bytes, uint64_t *ret_share_id)
{
	struct gantry_ledger_object *obj = worker_object_get(s, handle, GANTRY_HANDLE_BUFFER, NULL,
							     0);
	const struct wshared *shared = obj ? s->objects[GANTRY_HANDLE_SLOT(handle)].shared : NULL;
	int status = GANTRY_OK;
	int fd;

	if (!obj)
		return GANTRY_E_HANDLE;
	if (!shared) {
		*ret_fd = -EBADF;
		return worker_loan_export_locked(s, handle, mode, ret_bytes, ret_share_id);
	}
	if (mode & ~obj->buffer.rights)
		return GANTRY_E_ACCESS;
	/* Others will write to it without asking us: its pages are taken and charged before they can. */
	if (!obj->buffer.adopted && !obj->buffer.charged_bytes)
		status = worker_back_own_locked(s->engine->devices[s->home], s, obj);
	if (status != GANTRY_OK)
		return status;
	fd = fcntl(shared->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return GANTRY_E_INTERNAL;
	*ret_fd = fd;
	*ret_bytes = obj->buffer.bytes;
	*ret_share_id = obj->buffer.share_id;
	return GANTRY_OK;
}

int worker_buffer_export(struct wsession *s, uint64_t handle, uint32_t mode, int *ret_fd,
			 uint64_t *ret_bytes, uint64_t *ret_share_id)
{
	int status;

	pthread_mutex_lock(&s->lock);
	status = export_locked(s, handle, mode, ret_fd, ret_bytes, ret_share_id);
	pthread_mutex_unlock(&s->lock);
	return status;
}
