/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers: made, ended, read, written, mapped. */
#include <errno.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/clock.h"
#include "guest-shim/control.h"
#include "guest-shim/copy.h"
#include "guest-shim/device.h"
#include "guest-shim/error.h"
#include "guest-shim/memory.h"
#include "guest-shim/ranges.h"
#include "guest-shim/wait.h"

/* Between buffers in the heap: a multiple of the alignment that OpenCL promises, 32 of which pass before the first place of a page comes again. */
#define APART_ALIGN 128u
#define APART_BYTES (9 * APART_ALIGN)

int gantry_memory_add(struct gantry_session *s, struct gantry_buffer_info *info)
{
	int r;

	gantry_uses_forget(s, info->handle);
	pthread_mutex_lock(&s->table_lock);
	r = gantry_buffers_add(&s->buffers, info);
	pthread_mutex_unlock(&s->table_lock);
	if (r == -EEXIST)
		return gantry_control_bad_reply(s, "a buffer's handle that is in use");
	return r < 0 ? gantry_fail_plain(GANTRY_E_NO_MEMORY) : 0;
}

int gantry_memory_find(struct gantry_session *s, gantry_buffer buffer,
		       struct gantry_buffer_info *ret_info)
{
	const struct gantry_buffer_info *info;

	pthread_mutex_lock(&s->table_lock);
	info = gantry_buffers_find(&s->buffers, buffer);
	if (info)
		*ret_info = *info;
	pthread_mutex_unlock(&s->table_lock);
	return info ? 0
		    : gantry_fail(GANTRY_E_HANDLE, "0x%llx is no buffer of this session",
				  (unsigned long long)buffer);
}

/*
 * The host hears of it before the heap's allocator does: so no buffer can be announced in memory
 * that the host takes for another's. One that never had a handle is none of the host's business.
 */
static void end_buffer(struct gantry_session *s, struct gantry_buffer_info *info)
{
	struct gantry_range *range = info->range;

	info->range = NULL;
	if (info->handle)
		gantry_control_free_buffer(s, info);
	else
		free(info);
	gantry_range_put(s, range);
}

/* Its memory is the program's, too: host memory that is shared. */
static bool is_here(const struct gantry_session *s, const struct gantry_buffer_info *info)
{
	return info->range && !s->transport->is_pumped;
}

/* ---- alloc ---- */

static int check_alloc(uint64_t bytes, unsigned flags)
{
	if (bytes == 0 || bytes > GANTRY_MAX_BUFFER_BYTES)
		return gantry_fail(GANTRY_E_ARG, "a buffer has 1 to %llu bytes",
				   GANTRY_MAX_BUFFER_BYTES);
	if (flags &
	    ~(GANTRY_ALLOC_HOST | GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_SHARED | GANTRY_ALLOC_FIXED |
	      GANTRY_ALLOC_OUTPUT | GANTRY_ALLOC_WHOLE | GANTRY_ALLOC_KEPT))
		return gantry_fail(GANTRY_E_ARG, "unknown flags 0x%x", flags);
	if ((flags & GANTRY_ALLOC_KEPT) && !(flags & GANTRY_ALLOC_HOST))
		return gantry_fail(GANTRY_E_ARG, "what is kept at the host is host memory");
	if ((flags & GANTRY_ALLOC_WHOLE) && !(flags & GANTRY_ALLOC_FIXED))
		return gantry_fail(GANTRY_E_ARG, "memory that can be mapped is of a fixed address");
	if ((flags & GANTRY_ALLOC_FIXED) && (flags & GANTRY_ALLOC_SHARED))
		return gantry_fail(GANTRY_E_ARG,
				   "shared memory is the host's, and has no device address");
	if ((flags & GANTRY_ALLOC_HOST) &&
	    (flags & ~(GANTRY_ALLOC_OUTPUT | GANTRY_ALLOC_KEPT)) != GANTRY_ALLOC_HOST)
		return gantry_fail(GANTRY_E_ARG, "host memory is neither device memory nor shared");
	if ((flags & GANTRY_ALLOC_OUTPUT) &&
	    (!(flags & GANTRY_ALLOC_HOST) || bytes < GANTRY_OUTPUT_MIN_BYTES))
		return gantry_fail(GANTRY_E_ARG,
				   "output of kernels goes to host memory, of %u bytes at least",
				   GANTRY_OUTPUT_MIN_BYTES);
	return 0;
}

static uint64_t align_of(const struct gantry_buffer_info *info)
{
	return info->bytes < GANTRY_PAGE ? GANTRY_LINE : GANTRY_PAGE;
}

/*
 * In the heap, for kernels that run on the host's processors. Those take a load for one of what was just stored when the low 12 bits of
 * the addresses agree, and wait: of arrays that all begin with a page that is every other load. So what follows begins elsewhere in its
 * page, as long as there is room for that.
 */
static int place_apart(struct gantry_session *s, struct gantry_buffer_info *info)
{
	if (info->bytes >= GANTRY_PAGE && info->bytes <= UINT64_MAX - APART_BYTES &&
	    gantry_range_take(s, info->bytes + APART_BYTES, APART_ALIGN, 0, &info->range) == 0)
		return 0;
	return gantry_range_take(s, info->bytes, align_of(info), 0, &info->range);
}

/* Where the buffer's memory is to be: turns 0 into what there is, takes the heap's part of it. */
static int place(struct gantry_session *s, struct gantry_buffer_info *info, uint64_t deadline_ns)
{
	bool is_kept = info->flags & GANTRY_ALLOC_KEPT;

	info->flags &= ~GANTRY_ALLOC_KEPT;
	/* Where no memory is shared, what is mapped is a copy, whatever it was asked to be. */
	if (info->flags == GANTRY_ALLOC_HOST && s->transport->is_pumped && !is_kept)
		info->flags = GANTRY_ALLOC_DEVICE;
	if ((info->flags & GANTRY_ALLOC_OUTPUT) && s->transport->is_pumped && !is_kept)
		return gantry_fail(GANTRY_E_UNSUPPORTED,
				   "output of kernels comes through shared memory only");
	if (info->flags & GANTRY_ALLOC_HOST)
		return gantry_range_take(s, info->bytes, align_of(info), deadline_ns, &info->range);
	if (info->flags != 0)
		return 0;
	if ((s->props & GANTRY_PROP_HOST_DIRECT) && place_apart(s, info) == 0)
		info->flags = GANTRY_ALLOC_HOST;
	else
		info->flags = GANTRY_ALLOC_DEVICE;
	return 0;
}

static int alloc(struct gantry_session *s, struct gantry_buffer_info *info, uint64_t deadline_ns)
{
	struct gantry_op_buf_alloc args = { .bytes = info->bytes };
	struct gantry_desc desc;
	int r = place(s, info, deadline_ns);

	if (r < 0)
		return r;
	args.alloc_flags = info->flags;
	args.heap_off = info->range ? info->range->off : 0;
	gantry_desc_put_buf_alloc(&desc, &args);
	r = gantry_control_call_handle(s, &desc, NULL, 0, GANTRY_HANDLE_BUFFER, deadline_ns,
				       &info->handle);
	return r < 0 ? r : gantry_memory_add(s, info);
}

int gantry_alloc(struct gantry_session *session, uint64_t bytes, unsigned flags,
		 gantry_buffer *ret_buffer)
{
	struct gantry_buffer_info *info;
	gantry_buffer handle;
	int r = gantry_session_enter(session);

	if (r == 0)
		r = check_alloc(bytes, flags);
	if (r < 0)
		return r;
	if (!ret_buffer)
		return gantry_fail(GANTRY_E_ARG, "there is nowhere to put the buffer");
	info = calloc(1, sizeof(*info));
	if (!info)
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	info->bytes = bytes;
	info->flags = flags;
	r = alloc(session, info, gantry_session_deadline(session));
	handle = info->handle;
	if (r < 0) {
		end_buffer(session, info);
		return r;
	}
	*ret_buffer = handle;
	return 0;
}

/* ---- mappings ---- */

/*
 * Unlinks the first mapping that is at @ptr (if not NULL) or of @buffer (if not 0). NULL: there is
 * none.
 */
static struct gantry_mapping *unlink_locked(struct gantry_session *s, const void *ptr,
					    gantry_buffer buffer)
{
	for (struct gantry_mapping **link = &s->mappings; *link; link = &(*link)->next) {
		struct gantry_mapping *m = *link;

		if ((ptr && m->ptr == ptr) || (buffer && m->buffer == buffer)) {
			*link = m->next;
			return m;
		}
	}
	return NULL;
}

static void mapping_free(struct gantry_session *s, struct gantry_mapping *m)
{
	gantry_range_put(s, m->staging);
	free(m);
}

static int map_host(struct gantry_session *s, const struct gantry_buffer_info *info,
		    struct gantry_mapping *m, uint64_t deadline_ns)
{
	m->ptr = (uint8_t *)gantry_range_ptr(s, info->range) + m->off;
	return gantry_uses_wait(s, info->handle, deadline_ns);
}

/* What will be overwritten need not be fetched, and the write at the end keeps the order. */
static int map_device(struct gantry_session *s, struct gantry_mapping *m, uint64_t deadline_ns)
{
	int r = gantry_range_take(s, m->len, GANTRY_PAGE, deadline_ns, &m->staging);

	if (r < 0)
		return r;
	m->ptr = gantry_range_ptr(s, m->staging);
	if (!(m->mode & GANTRY_R))
		return 0;
	return gantry_copy_to_range(s, m->buffer, m->off, m->staging, m->len, deadline_ns);
}

static int check_map(const struct gantry_buffer_info *info, uint64_t off, uint64_t len, int mode)
{
	if (mode != GANTRY_R && mode != GANTRY_W && mode != GANTRY_RW)
		return gantry_fail(GANTRY_E_ARG,
				   "a mapping is for GANTRY_R, GANTRY_W or GANTRY_RW");
	if (len == 0)
		return gantry_fail(GANTRY_E_ARG, "a mapping of no bytes");
	if (!gantry_range_inside(off, len, info->bytes))
		return gantry_fail(GANTRY_E_SPAN,
				   "the mapping reaches past the buffer's %llu bytes",
				   (unsigned long long)info->bytes);
	return 0;
}

int gantry_map(struct gantry_session *session, gantry_buffer buffer, uint64_t off, uint64_t len,
	       int mode, int64_t timeout_ns, void **ret_ptr)
{
	struct gantry_buffer_info info;
	struct gantry_mapping *m;
	uint64_t deadline_ns;
	int r = gantry_session_enter(session);

	if (r == 0)
		r = gantry_session_alive(session);
	if (r < 0)
		return r;
	if (!ret_ptr || timeout_ns < GANTRY_FOREVER)
		return gantry_fail_plain(GANTRY_E_ARG);
	r = gantry_memory_find(session, buffer, &info);
	if (r == 0)
		r = check_map(&info, off, len, mode);
	if (r < 0)
		return r;
	m = malloc(sizeof(*m));
	if (!m)
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	*m = (struct gantry_mapping){ .buffer = buffer, .off = off, .len = len, .mode = mode };
	deadline_ns = gantry_deadline_ns(timeout_ns);
	r = is_here(session, &info) ? map_host(session, &info, m, timeout_ns == 0 ? 0 : deadline_ns)
				    : map_device(session, m, deadline_ns);
	if (r < 0) {
		mapping_free(session, m);
		return r;
	}
	*ret_ptr = m->ptr;
	pthread_mutex_lock(&session->table_lock);
	m->next = session->mappings;
	session->mappings = m;
	pthread_mutex_unlock(&session->table_lock);
	return 0;
}

int gantry_unmap(struct gantry_session *session, void *ptr)
{
	struct gantry_mapping *m;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	pthread_mutex_lock(&session->table_lock);
	m = ptr ? unlink_locked(session, ptr, 0) : NULL;
	pthread_mutex_unlock(&session->table_lock);
	if (!m)
		return gantry_fail(GANTRY_E_ARG, "nothing is mapped at %p", ptr);
	r = gantry_session_alive(session);
	if (r == 0 && m->staging && (m->mode & GANTRY_W))
		r = gantry_copy_from_range(session, m->buffer, m->off, m->staging, m->len,
					   gantry_session_deadline(session));
	mapping_free(session, m);
	return r;
}

/* ---- free ---- */

int gantry_free(struct gantry_session *session, gantry_buffer buffer)
{
	struct gantry_buffer_info *info;
	struct gantry_mapping *m;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	do {
		pthread_mutex_lock(&session->table_lock);
		m = buffer ? unlink_locked(session, NULL, buffer) : NULL;
		pthread_mutex_unlock(&session->table_lock);
		if (m)
			mapping_free(session, m);
	} while (m);

	pthread_mutex_lock(&session->table_lock);
	info = gantry_buffers_remove(&session->buffers, buffer);
	pthread_mutex_unlock(&session->table_lock);
	if (!info)
		return gantry_fail(GANTRY_E_HANDLE, "0x%llx is no buffer of this session",
				   (unsigned long long)buffer);
	end_buffer(session, info);
	return 0;
}

/* ---- read and write ---- */

static int find_span(struct gantry_session *s, gantry_buffer buffer, uint64_t off, uint64_t len,
		     const void *ptr, struct gantry_buffer_info *ret_info)
{
	int r = gantry_session_enter(s);

	if (r == 0)
		r = gantry_session_alive(s);
	if (r == 0)
		r = gantry_memory_find(s, buffer, ret_info);
	if (r < 0)
		return r;
	if (len > 0 && !ptr)
		return gantry_fail(GANTRY_E_ARG, "%llu bytes at NULL", (unsigned long long)len);
	if (!gantry_range_inside(off, len, ret_info->bytes))
		return gantry_fail(GANTRY_E_SPAN, "the range reaches past the buffer's %llu bytes",
				   (unsigned long long)ret_info->bytes);
	return 0;
}

int gantry_write(struct gantry_session *session, gantry_buffer buffer, uint64_t off,
		 const void *src, uint64_t len)
{
	struct gantry_buffer_info info;
	int r = find_span(session, buffer, off, len, src, &info);

	if (r < 0 || len == 0)
		return r;
	if (!is_here(session, &info))
		return gantry_copy_in(session, buffer, off, src, len);
	r = gantry_uses_wait(session, buffer, gantry_session_deadline(session));
	if (r == 0)
		gantry_region_copy_in((uint8_t *)gantry_range_ptr(session, info.range) + off, src,
				      len);
	return r;
}

static int read_span(struct gantry_session *session, gantry_buffer buffer, uint64_t off, void *dst,
		     uint64_t len)
{
	struct gantry_buffer_info info;
	int r = find_span(session, buffer, off, len, dst, &info);

	if (r < 0 || len == 0)
		return r;
	if (!is_here(session, &info))
		return gantry_copy_out(session, buffer, off, dst, len);
	r = gantry_uses_wait(session, buffer, gantry_session_deadline(session));
	if (r == 0)
		gantry_region_copy_out(dst, (uint8_t *)gantry_range_ptr(session, info.range) + off,
				       len);
	return r;
}

int gantry_read(struct gantry_session *session, gantry_buffer buffer, uint64_t off, void *dst,
		uint64_t len)
{
	int r = read_span(session, buffer, off, dst, len);

	/* A device that was unplugged meanwhile has left memory that reads as zeroes, or as all ones. */
	if (r == 0 && len > 0 && session->transport->is_apart)
		r = gantry_session_look_now(session);
	return r;
}
