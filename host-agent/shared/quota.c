/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/shared/quota.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "host-agent/shared/share.h"
#include "migration/ledger.h"

static int map_page(int fd, struct gantry_quota_page **ret_page, struct gantry_err *err)
{
	void *page;

	page = mmap(NULL, sizeof(struct gantry_quota_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    0);
	if (page == MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "mapping a tenant page");
	*ret_page = page;
	return 0;
}

int gantry_quota_create(const char *tenant, struct gantry_quota_page **ret_page, int *ret_fd,
			struct gantry_err *err)
{
	_cleanup_close_ int fd = -EBADF;
	struct gantry_quota_page *page;
	int r;

	r = gantry_memfd_create("gantry-tenant", sizeof(*page), GANTRY_MEMFD_SEALED, &fd);
	if (r < 0)
		return gantry_err_set_errno(err, r, "making the page of tenant %s", tenant);
	r = map_page(fd, &page, err);
	if (r < 0)
		return gantry_err_wrap(err, r, "tenant %s", tenant);
	page->magic = GANTRY_QUOTA_MAGIC;
	page->spin_ns = GANTRY_QUOTA_SPIN_NS;
	*ret_page = page;
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

int gantry_quota_open(int fd, struct gantry_quota_page **ret_page, struct gantry_err *err)
{
	struct gantry_quota_page *page;
	int r;

	r = gantry_memfd_check(fd, sizeof(*page));
	if (r < 0)
		return gantry_err_set_errno(err, r, "looking at a tenant page's descriptor");
	r = map_page(fd, &page, err);
	if (r < 0)
		return r;
	if (gantry_load_relaxed(&page->magic) != GANTRY_QUOTA_MAGIC) {
		gantry_quota_close(page);
		return gantry_err_set(err, -EINVAL, "this is no tenant page");
	}
	*ret_page = page;
	return 0;
}

void gantry_quota_close(struct gantry_quota_page *page)
{
	if (page)
		(void)munmap(page, sizeof(*page)); /* fails only for an address that is not ours */
}

int gantry_quota_charge(uint64_t *used, const uint64_t *limit, uint64_t bytes)
{
	uint64_t before = gantry_load_relaxed(used);

	if (bytes == 0)
		return 0;
	do {
		/* Read again at each try: the agent may have lowered it meanwhile. */
		uint64_t most = gantry_load_relaxed(limit);

		if (before > most || bytes > most - before)
			return -EDQUOT;
	} while (!gantry_cas(used, &before, before + bytes));
	return 0;
}

void gantry_quota_refund(uint64_t *used, uint64_t bytes)
{
	uint64_t before = gantry_load_relaxed(used);

	while (!gantry_cas(used, &before, before > bytes ? before - bytes : 0))
		;
}

/* What one object shows as charged, once: the second look finds nothing. */
static uint64_t take_charge(struct gantry_ledger_object *obj, uint64_t most, uint32_t *ret_device,
			    uint32_t *ret_to, uint32_t *ret_replicas)
{
	uint64_t bytes;

	if (gantry_load_relaxed(&obj->state) == GANTRY_OBJECT_FREE ||
	    gantry_load_relaxed(&obj->type) != GANTRY_HANDLE_BUFFER)
		return 0;
	bytes = gantry_load_relaxed(&obj->buffer.charged_bytes);
	*ret_device = gantry_load_relaxed(&obj->buffer.device);
	*ret_to = gantry_load_relaxed(&obj->buffer.to);
	*ret_replicas = gantry_load_relaxed(&obj->buffer.replicas);
	gantry_store_relaxed(&obj->buffer.to, 0u);
	gantry_store_relaxed(&obj->buffer.replicas, 0u);
	gantry_store_relaxed(&obj->buffer.charged_bytes, (uint64_t)0);
	return GANTRY_MIN(bytes, most);
}

/* Devices whose part of a buffer's charge is not a replica's. */
static uint32_t own_bits(uint32_t device, uint32_t to)
{
	return (device < 32 ? 1u << device : 0) | (to > 0 && to <= 32 ? 1u << (to - 1) : 0);
}

/* Copies that were only read, each as large as the buffer; at most @most bytes of all. Returns how many. */
static uint64_t refund_replicas(struct gantry_share_page *const *devices, uint32_t ndevices,
				uint32_t replicas, uint64_t bytes, uint64_t most)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < ndevices && i < 32; i++) {
		if (!(replicas >> i & 1) || !devices[i] || bytes > most - sum)
			continue;
		gantry_quota_refund(&devices[i]->hdr.mem_used, bytes);
		sum += bytes;
	}
	return sum;
}

void gantry_quota_settle(struct gantry_quota_page *tenant, struct gantry_share_page *const *devices,
			 uint32_t ndevices, struct gantry_ledger *ledger, uint64_t mem_max,
			 uint64_t virtual_max)
{
	uint64_t resident = gantry_load_relaxed(&ledger->hdr->resident_used);
	uint64_t virtual = gantry_load_relaxed(&ledger->hdr->virtual_used);
	uint64_t host = gantry_load_relaxed(&ledger->hdr->host_used);
	uint64_t left = mem_max;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		uint32_t device = UINT32_MAX;
		uint32_t to = 0;
		uint32_t replicas = 0;
		uint64_t bytes = take_charge(&ledger->objects[i], left, &device, &to, &replicas);

		left -= bytes;
		left -= refund_replicas(devices, ndevices, replicas & ~own_bits(device, to), bytes,
					left);
		if (bytes > 0 && to > 0 && to - 1 != device && to <= ndevices && devices[to - 1])
			gantry_quota_refund(&devices[to - 1]->hdr.mem_used, bytes);
		if (bytes > 0 && device < ndevices && devices[device])
			gantry_quota_refund(&devices[device]->hdr.mem_used, bytes);
	}
	gantry_quota_refund(&tenant->mem_used, GANTRY_MIN(resident, mem_max));
	gantry_quota_refund(&tenant->virtual_used, GANTRY_MIN(virtual, virtual_max));
	/* Nothing is in host memory that was not allocated. */
	gantry_quota_refund(&tenant->host_used, GANTRY_MIN(host, 2 * virtual_max));
	gantry_store_relaxed(&ledger->hdr->host_used, (uint64_t)0);
	gantry_store_relaxed(&ledger->hdr->resident_used, (uint64_t)0);
	gantry_store_relaxed(&ledger->hdr->virtual_used, (uint64_t)0);
}

void gantry_quota_peak(uint64_t *peak, const uint64_t *used)
{
	uint64_t now = gantry_load_relaxed(used);
	uint64_t before = gantry_load_relaxed(peak);

	while (before < now && !gantry_cas(peak, &before, now))
		;
}
