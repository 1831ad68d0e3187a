/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/loan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "host-agent/agent/agent.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/tenant.h"

struct loan {
	struct gantry_list link; /* agent->loans */
	struct gantry_tenant *tenant;
	uint64_t borrower;
	uint64_t share_id;
	struct gantry_lent what; /* whole slabs: a worker that has part of one has all of it */
};

/* A slab that its lender has let go of while others had it. */
struct orphan {
	struct gantry_list link; /* agent->left_slabs */
	struct gantry_tenant *tenant;
	struct gantry_lent what;
};

void gantry_loans_fini(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->loans, struct loan, link, loan) {
		gantry_list_remove(&loan->link);
		free(loan);
	}
	gantry_list_for_each_safe(&a->left_slabs, struct orphan, link, orphan) {
		gantry_list_remove(&orphan->link);
		free(orphan);
	}
}

int gantry_loan_begin(struct gantry_session *borrower, uint64_t share_id,
		      const struct gantry_lent *what)
{
	struct loan *loan = malloc(sizeof(*loan));

	if (!loan)
		return -ENOMEM;
	*loan = (struct loan){ .tenant = borrower->tenant,
			       .borrower = borrower->id,
			       .share_id = share_id,
			       .what = *what };
	gantry_list_init(&loan->link);
	gantry_list_push_back(&borrower->agent->loans, &loan->link);
	return 0;
}

static bool overlaps(const struct gantry_lent *a, const struct gantry_lent *b)
{
	return a->owner == b->owner && a->device == b->device && a->off < b->off + b->bytes &&
	       b->off < a->off + a->bytes;
}

static struct loan *borrowed(struct gantry_agent *a, const struct gantry_lent *what)
{
	gantry_list_for_each(&a->loans, struct loan, link, loan)
		if (overlaps(&loan->what, what))
			return loan;
	return NULL;
}

static void end(struct gantry_agent *a, struct loan *loan)
{
	gantry_list_remove(&loan->link);
	free(loan);
	gantry_list_for_each_safe(&a->left_slabs, struct orphan, link, orphan) {
		struct gantry_slab_pool *pool = &a->pools[orphan->what.device];

		if (borrowed(a, &orphan->what))
			continue;
		pool->session_bytes -= orphan->what.bytes;
		pool->is_short = false;
		gantry_list_remove(&orphan->link);
		free(orphan);
		gantry_devices_room_again(a);
	}
}

void gantry_loan_end(struct gantry_session *borrower, uint64_t share_id)
{
	gantry_list_for_each(&borrower->agent->loans, struct loan, link, loan)
		if (loan->borrower == borrower->id && loan->share_id == share_id) {
			end(borrower->agent, loan);
			return;
		}
}

void gantry_loans_end(struct gantry_session *borrower)
{
	gantry_list_for_each_safe(&borrower->agent->loans, struct loan, link, loan)
		if (loan->borrower == borrower->id)
			end(borrower->agent, loan);
}

uint32_t gantry_loans_of(const struct gantry_session *borrower)
{
	uint32_t n = 0;

	gantry_list_for_each(&borrower->agent->loans, struct loan, link, loan)
		n += loan->borrower == borrower->id;
	return n;
}

void gantry_loans_orphan(struct gantry_agent *a, const struct gantry_lent *slab)
{
	const struct loan *loan = borrowed(a, slab);
	struct orphan *orphan = loan ? malloc(sizeof(*orphan)) : NULL;

	if (!orphan) /* nobody has it; or the host has no memory to count it */
		return;
	*orphan = (struct orphan){ .tenant = loan->tenant, .what = *slab };
	gantry_list_init(&orphan->link);
	gantry_list_push_back(&a->left_slabs, &orphan->link);
	a->pools[slab->device].session_bytes += slab->bytes;
}

uint64_t gantry_loans_held(const struct gantry_tenant *t, uint32_t device, uint64_t *ret_all)
{
	uint64_t here = 0, all = 0;

	gantry_list_for_each(&t->agent->left_slabs, struct orphan, link, orphan) {
		if (orphan->tenant != t)
			continue;
		all += orphan->what.bytes;
		here += orphan->what.device == device ? orphan->what.bytes : 0;
	}
	*ret_all = all;
	return here;
}
