/* SPDX-License-Identifier: Apache-2.0 */
/* Admin verbs about machines that go to another host with their device and their sessions: seat.h. */
#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/ivshmem.h"
#include "host-agent/agent/seat.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"

/* Also one whose machine has hung up, and left sessions that are held. */
static struct gantry_doormem *find_memory(struct gantry_agent *a, const char *tenant, uint64_t id,
					  struct gantry_answer *r)
{
	struct gantry_tenant *t = gantry_tenant_find(a, tenant);
	struct gantry_doormem *m = gantry_ivshmem_find(a, id);

	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		if (!m && s->doormem && s->doormem->id == id)
			m = s->doormem;
	if (t && m && m->tenant == t)
		return m;
	gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND,
			   "no machine %llu is connected to tenant %.40s", (unsigned long long)id,
			   tenant);
	return NULL;
}

void gantry_verb_door_seats(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			    struct gantry_answer *r)
{
	const Gantry__Admin__DoorLeave *body = q->door_seats;
	struct gantry_doormem *m = find_memory(a, body->tenant, body->peer, r);
	Gantry__Admin__DoorSeats *msg;

	if (!m)
		return;
	if (body->limit_ns)
		m->leaves_until_ns =
			gantry_deadline_ns((int64_t)gantry_min_u64(body->limit_ns, INT64_MAX));
	else
		gantry_seats_stay(m);
	msg = gantry_answer_take(r, sizeof(*msg));
	gantry_seats_read(m, r, msg);
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_SEATS;
	r->msg.seats = msg;
}

void gantry_verb_door_expect(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			     struct gantry_answer *r)
{
	const Gantry__Admin__DoorExpect *body = q->door_expect;
	struct gantry_tenant *t = gantry_tenant_find(a, body->tenant);
	struct gantry_seat_expected e = { .bytes = body->bytes };

	if (!t || !t->conf.ivshmem) {
		gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND,
				   "there is no tenant %.40s with an ivshmem door", body->tenant);
		return;
	}
	if (body->limit_ns == 0) {
		gantry_seat_expect_no_more(t);
		return;
	}
	if (t->expected.until_ns && !gantry_deadline_passed(t->expected.until_ns) &&
	    strcmp(t->expected.uuid, body->uuid) != 0) {
		gantry_answer_fail(r, GANTRY_ADMIN_BUSY,
				   "tenant %.40s expects another machine just now", body->tenant);
		return;
	}
	if (!gantry_is_pow2(body->bytes) || body->bytes > t->conf.ivshmem_bytes) {
		gantry_answer_fail(
			r, GANTRY_ADMIN_QUOTA,
			"tenant %.40s may have %llu bytes for a machine there (ivshmem_size), and its "
			"device has %llu",
			body->tenant, (unsigned long long)t->conf.ivshmem_bytes,
			(unsigned long long)body->bytes);
		return;
	}
	if (!*body->uuid || gantry_str_copy(e.uuid, sizeof(e.uuid), body->uuid) < 0) {
		gantry_answer_fail(r, GANTRY_ADMIN_USAGE, "%.40s is no UUID", body->uuid);
		return;
	}
	e.until_ns = gantry_deadline_ns((int64_t)gantry_min_u64(body->limit_ns, INT64_MAX));
	t->expected = e;
}

void gantry_verb_door_take(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			   struct gantry_answer *r)
{
	const Gantry__Admin__DoorTake *body = q->door_take;
	struct gantry_doormem *m = find_memory(a, body->tenant, body->peer, r);
	struct gantry_err err = GANTRY_ERR_NONE;
	int status;

	if (!m)
		return;
	if (!body->seats) {
		gantry_answer_fail(r, GANTRY_ADMIN_USAGE, "it does not say who sits where");
		return;
	}
	status = gantry_seats_take(m, body->seats, &err);
	if (status < 0)
		gantry_answer_fail(r,
				   status == -EBUSY    ? GANTRY_ADMIN_BUSY
				   : status == -ENOENT ? GANTRY_ADMIN_NOT_FOUND
						       : GANTRY_ADMIN_FAILED,
				   "%s", err.text);
	else
		gantry_ivshmem_tell(m);
}
