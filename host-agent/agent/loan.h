/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory that one session of a tenant has of another: the lender's slabs, which the borrower's worker maps too. A loan is one such
 * buffer in one borrower. While the lender has the slabs they count as its; those that it lets go of meanwhile live on with the borrower's
 * mappings, and count here until the last loan that has them ends: for the tenant, once however many have borrowed them, and for the device.
 *
 * Slabs that were ever lent go back to the driver and not to the pool (slab.h): nobody can tell whether a worker that let go of a loan
 * really did. An agent after this one knows which they are, and no more which loans there were: until they end it counts nothing of those.
 *
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_LOAN_H
#define GANTRY_HOST_AGENT_AGENT_LOAN_H

#include <stdint.h>

struct gantry_agent;
struct gantry_session;
struct gantry_tenant;

/* Part of a device's window of the session @owner. */
struct gantry_lent {
	uint64_t owner;
	uint32_t device;
	uint64_t off;
	uint64_t bytes;
};

void gantry_loans_fini(struct gantry_agent *a);
/* Before the borrower's worker hears of it; @what: all of the slabs that it gets (gantry_slabs_lend()). -ENOMEM. */
int gantry_loan_begin(struct gantry_session *borrower, uint64_t share_id,
		      const struct gantry_lent *what);
/* The borrower's worker has let go of one loan of that buffer; of all, for it is gone. */
void gantry_loan_end(struct gantry_session *borrower, uint64_t share_id);
void gantry_loans_end(struct gantry_session *borrower);
/* How many the session has. */
uint32_t gantry_loans_of(const struct gantry_session *borrower);
/* The owner has let go of a slab that was lent. */
void gantry_loans_orphan(struct gantry_agent *a, const struct gantry_lent *slab);
/* What borrowers of the tenant have that no lender counts any more; on one device, and on all. */
uint64_t gantry_loans_held(const struct gantry_tenant *t, uint32_t device, uint64_t *ret_all);

#endif
