/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenant pages: a tenant's limits and what its sessions have used, shared by the agent and that tenant's workers.
 *
 * Limits are the agent's (it changes them live), counters are everyone's: charge before use, refund after
 * release. Each session's charges are also in its ledger, so that the agent can refund a dead session's.
 */
#ifndef GANTRY_HOST_AGENT_SHARED_QUOTA_H
#define GANTRY_HOST_AGENT_SHARED_QUOTA_H

#include <assert.h>
#include <stdint.h>

#include "base/err.h"

#define GANTRY_QUOTA_MAGIC   0x41544f55514e4147ull
#define GANTRY_QUOTA_SPIN_NS 2000000u /* unless the agent says otherwise */

enum gantry_quota_wish {
	GANTRY_QUOTA_NO_REPLICAS = 1 << 0, /* a buffer has one place, whoever reads it */
	/* What makes objects of libraries anew is written down: of every session, or of none. Neither: where a session can go to another device. */
	GANTRY_QUOTA_RECIPES_ALWAYS = 1 << 1,
	GANTRY_QUOTA_RECIPES_NEVER = 1 << 2,
};

struct gantry_quota_page {
	/* agent */
	uint64_t magic;
	uint64_t mem_bytes;	/* resident device memory */
	uint64_t virtual_bytes; /* allocated device memory */
	uint64_t deadline_ns;	/* longest run of one task; 0: none */
	uint32_t inflight;	/* tasks taken and not finished, per session; 0: no limit */
	int32_t priority_max;
	uint32_t nobjects; /* handles per session */
	uint32_t
		wishes; /* enum gantry_quota_wish; workers of older builds take any for NO_REPLICAS */
	uint64_t spin_ns; /* longest wait for a device that a worker spends spinning */
	uint64_t
		host_bytes; /* host memory for buffers beside pools; 0: no limit but virtual_bytes */
	/* workers */
	uint64_t mem_used;
	uint64_t mem_peak;
	uint64_t virtual_used;
	uint64_t denied; /* requests refused for a limit */
	uint64_t host_used;
	uint64_t wakes; /* of guests in machines, and of relays: signals and bytes sent */
	/* of copies for devices that only read; they begin again at 0 */
	uint32_t replicas_made;
	uint32_t replicas_dropped;
	uint64_t replica_bytes; /* that were copied for them */
};
static_assert(sizeof(struct gantry_quota_page) == 128, "tenant page format");

int gantry_quota_create(const char *tenant, struct gantry_quota_page **ret_page, int *ret_fd,
			struct gantry_err *err);
int gantry_quota_open(int fd, struct gantry_quota_page **ret_page, struct gantry_err *err);
void gantry_quota_close(struct gantry_quota_page *page);

/*
 * Adds @bytes to *@used unless that passes *@limit. 0 or -EDQUOT (nothing changed). Other workers
 * may charge at the same time; the sum never passes the limit.
 */
int gantry_quota_charge(uint64_t *used, const uint64_t *limit, uint64_t bytes);
/* Takes @bytes off; stops at 0 where the page lies. */
void gantry_quota_refund(uint64_t *used, uint64_t bytes);
struct gantry_ledger;
struct gantry_share_page;

/*
 * A session is over and no worker writes its ledger any more: what the ledger still shows as charged goes back to the
 * tenant and to the devices' pools (@devices in the order the ledger's indices mean; NULL: none there now). This is
 * the only place that refunds at an end; workers refund what is freed before. The last writer may have lied: at most
 * @mem_max and @virtual_max are refunded. The ledger shows nothing afterwards.
 */
void gantry_quota_settle(struct gantry_quota_page *tenant, struct gantry_share_page *const *devices,
			 uint32_t ndevices, struct gantry_ledger *ledger, uint64_t mem_max,
			 uint64_t virtual_max);

/* Raises *@peak to *@used where that is more; after a charge. */
void gantry_quota_peak(uint64_t *peak, const uint64_t *used);

#endif
