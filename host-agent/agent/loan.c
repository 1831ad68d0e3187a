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
	struct gantry_lent what;
	uint64_t orphan_bytes; /* of slabs that its lender has let go of, counted here */
};

void gantry_loans_fini(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->loans, struct loan, link, loan) {
		gantry_list_remove(&loan->link);
		free(loan);
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

static struct loan *another(struct gantry_agent *a, const struct gantry_lent *what)
{
	gantry_list_for_each(&a->loans, struct loan, link, loan)
		if (overlaps(&loan->what, what))
			return loan;
	return NULL;
}

/* Who else has borrowed it counts it now. */
static void end(struct gantry_agent *a, struct loan *loan)
{
	struct loan *heir;

	gantry_list_remove(&loan->link);
	heir = loan->orphan_bytes ? another(a, &loan->what) : NULL;
	if (heir)
		heir->orphan_bytes += loan->orphan_bytes;
	else if (loan->orphan_bytes) {
		a->pools[loan->what.device].session_bytes -= loan->orphan_bytes;
		a->pools[loan->what.device].is_short = false;
		gantry_devices_room_again(a);
	}
	free(loan);
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
	struct loan *loan = another(a, slab);

	if (!loan)
		return;
	loan->orphan_bytes += slab->bytes;
	a->pools[slab->device].session_bytes += slab->bytes;
}

uint64_t gantry_loans_held(const struct gantry_tenant *t, uint32_t device, uint64_t *ret_all)
{
	uint64_t here = 0, all = 0;

	gantry_list_for_each(&t->agent->loans, struct loan, link, loan) {
		if (loan->tenant != t)
			continue;
		all += loan->orphan_bytes;
		here += loan->what.device == device ? loan->orphan_bytes : 0;
	}
	*ret_all = all;
	return here;
}
