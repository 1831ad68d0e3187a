/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent does with share pages: makes them, and gives entries to tenants, sessions and workers. */
#include <errno.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/shared/share_parts.h"

static int map_page(int fd, struct gantry_share_page **ret_page, struct gantry_err *err)
{
	void *page = mmap(NULL, sizeof(struct gantry_share_page), PROT_READ | PROT_WRITE,
			  MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "mapping a share page");
	*ret_page = page;
	return 0;
}

int gantry_share_create(const char *device, uint32_t nlanes, uint64_t mem_bytes,
			struct gantry_share_page **ret_page, int *ret_fd, struct gantry_err *err)
{
	_cleanup_close_ int fd = -EBADF;
	struct gantry_share_page *page = NULL;
	char name[64];
	int r;

	if (nlanes < 1 || nlanes > GANTRY_SHARE_NLANES)
		return gantry_err_set(err, -EINVAL, "device %s: %u lanes, not 1 to %u", device,
				      nlanes, GANTRY_SHARE_NLANES);
	(void)gantry_str_format(name, sizeof(name), "gantry-share-%s",
				device); /* cut: display only */
	r = gantry_memfd_create(name, sizeof(*page), GANTRY_MEMFD_SEALED, &fd);
	if (r < 0)
		return gantry_err_set_errno(err, r, "making the share page of %s", device);
	r = map_page(fd, &page, err);
	if (r < 0)
		return gantry_err_wrap(err, r, "device %s", device);
	page->hdr.magic = GANTRY_SHARE_MAGIC;
	page->hdr.nlanes = nlanes;
	page->hdr.mem_bytes = mem_bytes;
	page->hdr.arrivals = SHARE_ARRIVAL; /* not 0: a new holder looks once */
	*ret_page = page;
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

int gantry_share_open(int fd, struct gantry_share_page **ret_page, struct gantry_err *err)
{
	struct gantry_share_page *page = NULL;
	uint32_t lanes;
	int r;

	r = gantry_memfd_check(fd, sizeof(*page));
	if (r < 0)
		return gantry_err_set_errno(err, r, "looking at a share page's descriptor");
	r = map_page(fd, &page, err);
	if (r < 0)
		return r;
	lanes = gantry_load_relaxed(&page->hdr.nlanes);
	if (gantry_load_relaxed(&page->hdr.magic) != GANTRY_SHARE_MAGIC || lanes < 1 ||
	    lanes > GANTRY_SHARE_NLANES) {
		gantry_share_close(page);
		return gantry_err_set(err, -EINVAL, "this is no share page");
	}
	*ret_page = page;
	return 0;
}

void gantry_share_close(struct gantry_share_page *page)
{
	if (page)
		(void)munmap(page, sizeof(*page)); /* fails only for an address that is not ours */
}

void gantry_share_set_tenant(struct gantry_share_page *page, uint32_t tenant, uint32_t weight)
{
	struct gantry_share_tenant *t = &page->tenants[tenant % GANTRY_SHARE_NTENANTS];

	if (weight > GANTRY_SHARE_WEIGHT_MAX)
		weight = GANTRY_SHARE_WEIGHT_MAX;
	gantry_store_relaxed(&t->weight, weight);
	if (weight > 0) {
		gantry_store_relaxed(&t->used, 1u);
		return;
	}
	/* Given up: the next tenant of this entry starts with nothing. */
	gantry_store_relaxed(&t->used, 0u);
	gantry_store_relaxed(&t->vtime_ns, (uint64_t)0);
	gantry_store_relaxed(&t->session_vtime_ns, (uint64_t)0);
	gantry_store_relaxed(&t->device_ns, (uint64_t)0);
	gantry_store_relaxed(&t->nactive, 0u);
}

/* One past the highest entry in use. */
static void set_nsessions(struct gantry_share_page *page)
{
	uint32_t n = GANTRY_SHARE_NSESSIONS;

	while (n > 0 && gantry_load_relaxed(&page->sessions[n - 1].state) == GANTRY_SHARE_FREE)
		n--;
	/* Release: pairs with the acquire in share_nsessions(). */
	gantry_store_release(&page->hdr.nsessions, n);
}

/* Nobody serves this session: it holds and wants nothing. Returns how many lanes it had. */
static unsigned clear_session(struct gantry_share_page *page, uint32_t session)
{
	struct gantry_share_session *s = &page->sessions[session];
	unsigned nheld;

	gantry_store_relaxed(&s->wants, (uint16_t)0);
	gantry_store_relaxed(&s->called_us, 0u);
	nheld = share_free_lanes_of(page, session);
	gantry_store_relaxed(&s->nheld, 0u);
	gantry_store_relaxed(&s->units, 0u);
	gantry_store_relaxed(&s->filled, 0u);
	gantry_store_relaxed(&s->left_us, 0u);
	gantry_store_relaxed(&s->stood_back, 0u);
	gantry_store_relaxed(&s->quiet_us, 0u);
	gantry_store_relaxed(&s->lanes, (uint64_t)0);
	share_update_state(page, s);
	return nheld;
}

void gantry_share_set_gpu(struct gantry_share_page *page, bool gpu, uint32_t most)
{
	gantry_store_relaxed(&page->hdr.gpu, gpu ? 1u : 0u);
	if (gpu)
		gantry_store_relaxed(&page->hdr.nlanes, most >= 1 && most < GANTRY_SHARE_NLANES
								? most
								: GANTRY_SHARE_NLANES);
}

void gantry_share_set_turn_pause(struct gantry_share_page *page, uint32_t us)
{
	gantry_store_relaxed(&page->hdr.turn_pause_us, us);
}

void gantry_share_set_party(struct gantry_share_page *page, uint32_t session, uint32_t party)
{
	gantry_store_relaxed(&page->sessions[session % GANTRY_SHARE_NSESSIONS].party, party);
}

void gantry_share_admit(struct gantry_share_page *page, uint32_t session, uint32_t tenant,
			uint32_t worker)
{
	struct gantry_share_session *s = &page->sessions[session % GANTRY_SHARE_NSESSIONS];

	gantry_store_relaxed(&s->tenant, tenant % GANTRY_SHARE_NTENANTS);
	gantry_store_relaxed(&s->worker, worker % GANTRY_SHARE_NWORKERS);
	/* Moved to another worker, it keeps what it used; only a new one starts at nothing. */
	if (gantry_load_relaxed(&s->state) != GANTRY_SHARE_FREE)
		return;
	gantry_store_relaxed(&s->priority, 0);
	gantry_store_relaxed(&s->vtime_ns, (uint64_t)0);
	gantry_store_relaxed(&s->device_ns, (uint64_t)0);
	gantry_store_relaxed(&s->wait_ns, (uint64_t)0);
	gantry_store_relaxed(&s->waits, 0u);
	gantry_store_relaxed(&s->nheld, 0u);
	gantry_store_relaxed(&s->wants, (uint16_t)0);
	gantry_store_relaxed(&s->called_us, 0u);
	gantry_store_relaxed(&s->units, 0u);
	gantry_store_relaxed(&s->filled, 0u);
	gantry_store_relaxed(&s->left_us, 0u);
	gantry_store_relaxed(&s->stood_back, 0u);
	gantry_store_relaxed(&s->quiet_us, 0u);
	gantry_store_relaxed(&s->lanes, (uint64_t)0);
	gantry_store_relaxed(&s->state, (uint32_t)GANTRY_SHARE_IDLE);
	set_nsessions(page);
}

void gantry_share_dismiss(struct gantry_share_page *page, uint32_t session)
{
	session %= GANTRY_SHARE_NSESSIONS;
	(void)clear_session(page, session);
	gantry_store_relaxed(&page->sessions[session].state, (uint32_t)GANTRY_SHARE_FREE);
	set_nsessions(page);
	/* Full fence: pairs with the one in announce(). */
	gantry_fence_full();
	share_call_waiters(page);
}

unsigned gantry_share_bury(struct gantry_share_page *page, uint32_t worker)
{
	uint32_t n = share_nsessions(page);
	unsigned nheld = 0;

	worker %= GANTRY_SHARE_NWORKERS;
	for (uint32_t i = 0; i < n; i++) {
		const struct gantry_share_session *s = &page->sessions[i];

		if (gantry_load_relaxed(&s->state) != GANTRY_SHARE_FREE &&
		    share_worker_of(s) == worker)
			nheld += clear_session(page, i);
	}
	gantry_store_relaxed(&page->workers[worker].asleep, 0u);
	/* Full fence: pairs with the one in announce(). */
	gantry_fence_full();
	share_call_waiters(page);
	return nheld;
}

void gantry_share_disable(struct gantry_share_page *page, bool disabled)
{
	gantry_store_relaxed(&page->hdr.disabled, disabled ? 1u : 0u);
	/* Release: holders that see the new arrivals see disabled too. */
	(void)gantry_fetch_add(&page->hdr.arrivals, SHARE_ARRIVAL);
	/* Full fence: pairs with the one in announce(). */
	gantry_fence_full();
	if (!disabled)
		share_call_waiters(page);
}
