/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/migrate.h"

#include <errno.h>
#include <inttypes.h>

#include "base/atomic.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "worker.pb-c.h"

static int check(const struct gantry_agent *a, const struct gantry_session *s, uint32_t slot,
		 uint32_t device, struct gantry_err *err)
{
	uint64_t mask = s->tenant->device_mask & gantry_devices_serving(a);

	if (slot == 0 || slot >= s->ledger.nqueues ||
	    gantry_load_relaxed(&s->ledger.queues[slot].state) != GANTRY_QUEUE_OPEN)
		return gantry_err_set(err, -ENOENT, "session %" PRIu64 " has no queue %u", s->id,
				      slot);
	if (device >= a->ndevices || !(mask >> device & 1))
		return gantry_err_set(err, -EINVAL, "the device does not serve tenant %s just now",
				      s->tenant->conf.name);
	if (!s->worker || s->phase != GANTRY_PHASE_ATTACHED)
		return gantry_err_set(err, -EBUSY, "session %" PRIu64 " has no worker just now",
				      s->id);
	if (s->worker->unusable >> device & 1)
		return gantry_err_set(err, -EINVAL, "the session's worker could not open %s",
				      a->devices[device].conf.name);
	return 0;
}

int gantry_queue_migrate(struct gantry_agent *a, struct gantry_session *s, uint32_t slot,
			 uint32_t device, const char *why, struct gantry_err *err)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__PlaceQueue place = GANTRY__WORKER__PLACE_QUEUE__INIT;
	int r = check(a, s, slot, device, err);

	if (r < 0)
		return r;
	if (gantry_load_relaxed(&s->ledger.queues[slot].device) == device)
		return 0;
	place.session_id = s->id;
	place.slot = slot;
	place.device = device;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_PLACE_QUEUE;
	msg.place_queue = &place;
	r = gantry_call(s->worker, &msg, NULL, 0, 0, NULL, NULL);
	if (r < 0)
		return gantry_err_set_errno(err, r, "telling the worker");
	gantry_event(a, "queue-placed", NULL, s, NULL, "queue %u to %s: %s", slot,
		     a->devices[device].conf.name, why);
	return 0;
}
