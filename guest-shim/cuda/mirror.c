/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/cuda/mirror.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "guest-shim/cuda/aside.h"
#include "guest-shim/cuda/pages.h"

#define BLOCK 512u /* what has changed goes in runs that so much without a change ends */

struct mirror {
	struct mirror *next;
	const struct cu_variable *variable;
	gantry_buffer buffer;
	uint8_t *host;	 /* where the variable is */
	uint8_t *shadow; /* what both had last */
	size_t bytes;
};

static struct mirror *mirrors; /* atomic where it is only looked at */
static size_t total;
static bool may_differ; /* the program was let look since all was last compared */
static bool is_attached;
/* Under cu.lock: something was put into a stream since all that was there had come. */
static bool is_under_way;

/* ---- pages ---- */

static uintptr_t first_page(const struct mirror *m)
{
	return (uintptr_t)m->host & ~(uintptr_t)(CU_PAGE - 1);
}

static uintptr_t last_page(const struct mirror *m)
{
	return ((uintptr_t)m->host + m->bytes - 1) & ~(uintptr_t)(CU_PAGE - 1);
}

/* Small variables share pages. */
static bool is_others(uintptr_t page, const struct mirror *mine)
{
	for (const struct mirror *m = mirrors; m; m = m->next)
		if (m != mine && first_page(m) <= page && page <= last_page(m))
			return true;
	return false;
}

/* The next pages before @end that are no other variable's: from *@at on, which is @end where there are none. Returns their end. */
static uintptr_t own_pages(const struct mirror *m, uintptr_t *at, uintptr_t end)
{
	uintptr_t page;

	while (*at < end && is_others(*at, m))
		*at += CU_PAGE;
	for (page = *at; page < end && !is_others(page, m);)
		page += CU_PAGE;
	return page;
}

static void unmap(const struct mirror *m, uintptr_t end)
{
	uintptr_t at = first_page(m);

	for (uintptr_t next = own_pages(m, &at, end); at < end; next = own_pages(m, &at, end)) {
		(void)munmap((void *)at, next - at);
		at = next;
	}
}

static bool map_pages(uintptr_t page, size_t bytes)
{
	void *at = (void *)page;
	void *got = mmap(at, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (got != MAP_FAILED && got != at)
		(void)munmap(got, bytes); /* a kernel that does not know the flag */
	return got == at;
}

static bool map(const struct mirror *m)
{
	uintptr_t at = first_page(m), end = last_page(m) + CU_PAGE;

	for (uintptr_t next = own_pages(m, &at, end); at < end; next = own_pages(m, &at, end)) {
		if (!map_pages(at, next - at)) {
			unmap(m, at);
			return false;
		}
		at = next;
	}
	return true;
}

/* A variable that is lost, with its worker, takes the program's trust in all of them along. */
static CUresult outcome(int status)
{
	CUresult result;

	if (status >= 0)
		return CUDA_SUCCESS;
	result = cu_result(status);
	return gantry_load_relaxed(&cu.sticky) ? result : cu_result(GANTRY_E_INTERRUPTED);
}

/* ---- to the device ---- */

/* How far the bytes from @off on are what both had last. */
static size_t same(const struct mirror *m, size_t off)
{
	size_t n;

	for (; off < m->bytes; off += n) {
		n = GANTRY_MIN(m->bytes - off, BLOCK);
		if (memcmp(m->host + off, m->shadow + off, n) != 0)
			break;
	}
	while (off < m->bytes && m->host[off] == m->shadow[off])
		off++;
	return off;
}

/* The end of what has changed from @off on: the last such byte before a block without any. */
static size_t changed(const struct mirror *m, size_t off)
{
	size_t end = off + 1;

	for (size_t at = end; at < m->bytes && at - end < BLOCK && at - off < CU_ASIDE_BYTES; at++)
		if (m->host[at] != m->shadow[at])
			end = at + 1;
	return end;
}

static int push(struct mirror *m)
{
	int r = 0;

	for (size_t off = same(m, 0); off < m->bytes && r == 0; off = same(m, off)) {
		size_t n = changed(m, off) - off;

		/* Another thread may write meanwhile: what was sent is what both have. */
		memcpy(cu_aside_piece(), m->host + off, n);
		memcpy(m->shadow + off, cu_aside_piece(), n);
		r = cu_aside_copy(m->variable->device, m->buffer, off, n, true);
		off += n;
	}
	return r;
}

static int push_all(void)
{
	int r = 0;

	if (!may_differ && !is_attached && total > CU_ASIDE_BYTES)
		return 0;
	may_differ = false;
	for (struct mirror *m = mirrors; m && r == 0; m = m->next)
		r = push(m);
	return r;
}

CUresult cu_mirror_push_locked(void)
{
	int r;

	if (!gantry_load_relaxed(&mirrors))
		return CUDA_SUCCESS;
	cu_aside_enter();
	r = push_all();
	cu_aside_leave();
	is_under_way = true;
	return outcome(r);
}

/* ---- from the device ---- */

static void take(struct mirror *m, size_t off, size_t bytes)
{
	const uint8_t *came = cu_aside_piece();

	if (memcmp(came, m->shadow + off, bytes) == 0)
		return;
	for (size_t i = 0; i < bytes; i++)
		if (came[i] != m->shadow[off + i])
			m->host[off + i] = m->shadow[off + i] = came[i];
}

static int pull_all(void)
{
	int r = 0;

	may_differ = true;
	for (struct mirror *m = mirrors; m; m = m->next)
		for (size_t off = 0, n; off < m->bytes && r == 0; off += n) {
			n = GANTRY_MIN(m->bytes - off, CU_ASIDE_BYTES);
			r = cu_aside_copy(m->variable->device, m->buffer, off, n, false);
			if (r == 0)
				take(m, off, n);
		}
	return r;
}

static bool is_idle(void)
{
	const struct CUctx_st *ctx;
	uint32_t at = 0;

	while ((ctx = cu_handle_next_locked(CU_KIND_CTX, &at)))
		if (!cu_ctx_is_idle_locked(ctx))
			return false;
	return true;
}

CUresult cu_mirror_pull_locked(CUresult result)
{
	CUresult mine;
	int r;

	if (!gantry_load_relaxed(&mirrors) || !is_under_way || result != CUDA_SUCCESS)
		return result;
	is_under_way = !is_idle();
	cu_aside_enter();
	r = pull_all();
	cu_aside_leave();
	mine = outcome(r);
	return mine == CUDA_SUCCESS ? result : mine;
}

/* ---- functions of the host's; what fails here is told by the next call ---- */

void cu_mirror_before_function(void)
{
	if (!gantry_load_relaxed(&mirrors))
		return;
	cu_aside_enter();
	(void)outcome(pull_all());
	cu_aside_leave();
}

void cu_mirror_behind_function(void)
{
	if (!gantry_load_relaxed(&mirrors))
		return;
	cu_aside_enter();
	may_differ = true;
	(void)outcome(push_all());
	cu_aside_leave();
}

/* ---- which there are ---- */

static bool is_managed(const struct cu_variable *variable)
{
	uint32_t is = 0;
	int n = gantry_device_ask(cu.session, GANTRY_ASK_MANAGED, variable->device,
				  variable->buffer, (struct gantry_ask_numbers){ { 0 } }, &is,
				  sizeof(is));

	return n == sizeof(is) && is; /* an older host does not know: then it is device memory */
}

static CUresult begin(struct mirror *m)
{
	int r = cu_aside_open(m->variable->device);

	if (r < 0)
		return cu_result(r);
	if (!map(m))
		return cu_unsupported("a managed variable where the program has other memory");
	for (size_t off = 0, n; off < m->bytes && r == 0; off += n) {
		n = GANTRY_MIN(m->bytes - off, CU_ASIDE_BYTES);
		r = cu_aside_copy(m->variable->device, m->buffer, off, n, false);
		if (r == 0)
			memcpy(m->shadow + off, cu_aside_piece(), n);
	}
	if (r < 0) {
		unmap(m, last_page(m) + CU_PAGE);
		return cu_result(r);
	}
	memcpy(m->host, m->shadow, m->bytes);
	return CUDA_SUCCESS;
}

CUresult cu_mirror_add_locked(struct cu_variable *variable)
{
	struct mirror *m;
	CUresult result;

	if (!is_managed(variable))
		return CUDA_SUCCESS;
	m = calloc(1, sizeof(*m));
	if (m)
		*m = (struct mirror){ .variable = variable,
				      .buffer = variable->buffer,
				      .host = (uint8_t *)(uintptr_t)variable->address,
				      .shadow = malloc(variable->bytes),
				      .bytes = variable->bytes };
	if (!m || !m->shadow) {
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	cu_aside_enter();
	result = begin(m);
	if (result == CUDA_SUCCESS) {
		m->next = mirrors;
		gantry_store_relaxed(&mirrors, m);
		total += m->bytes;
		may_differ = true;
		is_under_way = true; /* kernels may have begun to use it */
		variable->is_managed = true;
	}
	cu_aside_leave();
	if (result != CUDA_SUCCESS) {
		free(m->shadow);
		free(m);
	}
	return result;
}

void cu_mirror_remove_locked(const struct cu_variable *variable)
{
	struct mirror **at = &mirrors, *m;

	if (!gantry_load_relaxed(&mirrors))
		return;
	cu_aside_enter();
	while (*at && (*at)->variable != variable)
		at = &(*at)->next;
	m = *at;
	if (m) {
		gantry_store_relaxed(at, m->next);
		unmap(m, last_page(m) + CU_PAGE);
		total -= m->bytes;
		free(m->shadow);
		free(m);
	}
	cu_aside_leave();
}

bool cu_mirror_touches_locked(CUdeviceptr address, size_t bytes)
{
	for (const struct mirror *m = mirrors; m; m = m->next) {
		CUdeviceptr at = (CUdeviceptr)(uintptr_t)m->host;

		if (address < at + m->bytes && at < address + bytes)
			return true;
	}
	return false;
}

void cu_mirror_attach_locked(void)
{
	cu_aside_enter();
	is_attached = true;
	cu_aside_leave();
}
