/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent has a worker do with sessions and their buffers: messages to calls of the engine, and back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "host-agent/control/packet.h"
#include "host-agent/worker/migrate_msg.h"
#include "host-agent/worker/process.h"

#define ATTACH_FDS 5u

void worker_attach(struct worker *w, uint64_t tag, const Gantry__Worker__Attach *a, const int *fds,
		   unsigned int nfds)
{
	struct gantry_engine_shared shared[GANTRY_PACKET_MAX_FDS];
	struct gantry_engine_attach args = {
		.session_id = a->session_id,
		.epoch = a->epoch,
		.version = a->version,
		.tenant_slot = a->tenant_slot,
		.tenant = a->tenant,
		.share_slot = a->share_slot,
		.verdict = a->verdict,
		.recover = a->recover,
		.segment_bytes = a->segment_bytes,
		.segment_off = a->segment_off,
		.wake = a->wake,
		.wake_fd = -EBADF,
		.address = a->address,
		.device_mask = a->device_mask,
		.window_address = a->window_address,
		.shared = shared,
		.nshared = (uint32_t)a->n_shared,
	};
	unsigned int nfixed = ATTACH_FDS + (a->wake >= GANTRY_SESSION_WAKE_EVENTFD);
	struct gantry_err err = { 0 };
	int r;

	if (nfds != nfixed + a->n_shared || nfds > GANTRY_PACKET_MAX_FDS ||
	    a->wake > GANTRY_SESSION_WAKE_SOCKET) {
		worker_say_done(tag, GANTRY_E_ARG,
				"Attach does not carry the descriptors it names");
		return;
	}
	args.segment_fd = fds[0];
	args.bell_fd = fds[1];
	args.ledger_fd = fds[2];
	args.slab_fd = fds[3];
	args.quota_fd = fds[4];
	if (nfixed > ATTACH_FDS)
		args.wake_fd = fds[ATTACH_FDS];
	for (size_t i = 0; i < a->n_shared; i++)
		shared[i] = (struct gantry_engine_shared){ .share_id = a->shared[i]->share_id,
							   .bytes = a->shared[i]->bytes,
							   .fd = fds[nfixed + i] };
	r = gantry_failpoint_io(GANTRY_FAILPOINT_WORKER_ATTACH);
	if (r == 0)
		r = gantry_engine_attach(w->engine, &args, &err);
	gantry_failpoint(GANTRY_FAILPOINT_WORKER_ATTACHED);
	worker_say_done(tag,
			r == 0	       ? GANTRY_OK
			: r == -ENODEV ? GANTRY_E_NO_DEVICE
				       : GANTRY_E_INTERNAL,
			err.text);
}

void worker_give_slabs(struct worker *w, const Gantry__Worker__GiveSlabs *g, const int *fds,
		       unsigned int nfds)
{
	struct gantry_engine_slab slabs[GANTRY_ENGINE_MAX_SLABS];
	struct gantry_engine_slabs give = {
		.session_id = g->session_id,
		.device = g->device,
		.off = g->off,
		.bytes = g->bytes,
		.slabs = slabs,
		.nslabs = (uint32_t)g->n_slabs,
		.last = g->last,
		.status = g->status,
	};
	int r;

	if (g->n_slabs != nfds || nfds > GANTRY_ENGINE_MAX_SLABS) {
		gantry_log(GANTRY_LOG_WARN, "GiveSlabs does not carry the descriptors it names");
		return;
	}
	for (size_t i = 0; i < g->n_slabs; i++)
		slabs[i] = (struct gantry_engine_slab){ .off = g->slabs[i]->off,
							.bytes = g->slabs[i]->bytes,
							.fd = fds[i],
							.fresh = g->slabs[i]->fresh };
	r = gantry_engine_give_slabs(w->engine, &give);
	if (r < 0 && r != -ENOENT)
		gantry_log(GANTRY_LOG_WARN, "slabs for session %llu are of no use: %s",
			   (unsigned long long)g->session_id, strerror(-r));
}

void worker_detach(struct worker *w, uint64_t tag, const Gantry__Worker__Detach *d)
{
	struct leaving *l = malloc(sizeof(*l));

	if (!l) {
		worker_say_done(tag, GANTRY_E_NO_MEMORY, "no memory to remember the detach");
		return;
	}
	gantry_list_init(&l->link);
	l->session_id = d->session_id;
	l->tag = tag;
	gantry_list_push_back(&w->leaving, &l->link);
	if (gantry_engine_detach(w->engine, d->session_id,
				 d->part ? GANTRY_ENGINE_PART : d->reason) == 0)
		return; /* answered by worker_session_gone() */
	worker_session_gone(w, d->session_id);
}

void worker_gather(struct worker *w, uint64_t tag, const Gantry__Worker__Gather *g)
{
	int r = g->what > GANTRY_GATHER_NONE
			? -EINVAL
			: gantry_engine_gather(w->engine, g->session_id,
					       (enum gantry_gather)g->what, tag);

	if (r < 0) /* else answered by say_gathered() */
		worker_say_done(
			tag, r == -ENOMEM ? GANTRY_E_NO_MEMORY : GANTRY_E_ARG,
			r == -ENOMEM ? "its worker cannot bring its buffers to host memory: out of "
				       "memory"
			: r == -ENOENT ? "its worker has not got the session (any more)"
				       : "its worker does not know what is to come to host memory: "
					 "it is of another build");
}

void worker_export(struct worker *w, uint64_t tag, const Gantry__Worker__Export *x)
{
	Gantry__Worker__Exported answer = GANTRY__WORKER__EXPORTED__INIT;
	from_worker msg = GANTRY__WORKER__FROM_WORKER__INIT;
	_cleanup_close_ int fd = -EBADF;

	answer.status = gantry_engine_export(w->engine, x->session_id, x->buffer, x->mode, &fd,
					     &answer.bytes, &answer.share_id);
	msg.tag = tag;
	msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_EXPORTED;
	msg.exported = &answer;
	worker_say(&msg, &fd, fd >= 0 ? 1 : 0);
}

static int borrow(struct worker *w, uint64_t tag, const Gantry__Worker__Import *m, const int *fds,
		  unsigned int nfds)
{
	struct gantry_engine_slab slabs[GANTRY_ENGINE_MAX_SLABS];
	const struct gantry_engine_loan loan = { .tag = tag,
						 .session_id = m->session_id,
						 .share_id = m->share_id,
						 .bytes = m->bytes,
						 .skip = m->skip,
						 .device = m->device,
						 .nslabs = nfds };

	if (m->n_slabs != nfds || nfds > GANTRY_ENGINE_MAX_SLABS)
		return GANTRY_E_ARG;
	for (unsigned int i = 0; i < nfds; i++)
		slabs[i] = (struct gantry_engine_slab){ .bytes = m->slabs[i]->bytes, .fd = fds[i] };
	return gantry_engine_borrow(w->engine, &loan, slabs);
}

void worker_import(struct worker *w, uint64_t tag, const Gantry__Worker__Import *m, const int *fds,
		   unsigned int nfds)
{
	uint64_t buffer = 0;
	int status;

	if (m->n_slabs > 0) {
		status = borrow(w, tag, m, fds, nfds);
		if (status == GANTRY_OK)
			return; /* answered by on_borrowed() */
	} else {
		status = nfds == 1 ? gantry_engine_import(w->engine, m->session_id, m->share_id,
							  m->bytes, m->mode, fds[0], &buffer)
				   : GANTRY_E_ARG;
	}
	worker_say_imported(tag, status, buffer);
}

void worker_migrate(struct worker *w, uint64_t tag, const Gantry__Worker__Migrate *m)
{
	const struct gantry_engine_migrate args = gantry_migrate_of_msg(m);
	struct gantry_engine_migration report = { .id = m->id, .session_id = m->session_id };
	struct gantry_err err = { 0 };

	report.error = gantry_engine_migrate(w->engine, &args, &report, &err);
	if (report.error < 0)
		(void)snprintf(report.text, sizeof(report.text), "%s", err.text);
	report.over = report.error < 0;
	worker_say_migration(tag, &report);
}
