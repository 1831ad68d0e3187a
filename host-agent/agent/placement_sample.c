/* SPDX-License-Identifier: Apache-2.0 */
/* What queues do, from their ledgers: seen twice, the difference tells. */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/kernels.h"
#include "host-agent/agent/placement.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "proto/codec.h"

#define QUIET_NS   (100 * GANTRY_NS_PER_MS) /* a queue without work for so long is idle */
#define LOST_NS	   GANTRY_NS_PER_S /* a queue that was sent and has not come may be sent again */
#define KINDS_NS   GANTRY_NS_PER_S /* modules come and go seldom */
#define LOOK_AHEAD 4u		   /* tasks: before a launch there are copies and waits */
#define ALL_KINDS  UINT64_MAX

void gantry_session_sample_free(struct gantry_session *s)
{
	free(s->sample);
	s->sample = NULL;
}

static struct gantry_session_sample *sample_of(struct gantry_session *s)
{
	uint32_t n = s->ledger.nqueues;

	if (s->sample)
		return s->sample;
	s->sample = calloc(1, sizeof(*s->sample) + n * sizeof(s->sample->queues[0]));
	if (s->sample)
		s->sample->nqueues = n;
	return s->sample;
}

/* ---- kernels ---- */

/* Of a kernel of the guest's own: the kind that its image is for. */
static uint64_t kinds_of_image(const struct gantry_session *s, uint64_t handle)
{
	struct gantry_ledger_object image =
		s->ledger.objects[GANTRY_HANDLE_SLOT(handle) % GANTRY_LEDGER_NOBJECTS];

	return image.image.own.kind < GANTRY_NKINDS ? 1ull << image.image.own.kind : 0;
}

static uint64_t look_up(const struct gantry_agent *a, const struct gantry_session *s,
			uint64_t handle)
{
	struct gantry_ledger_object kernel =
		s->ledger.objects[GANTRY_HANDLE_SLOT(handle) % GANTRY_LEDGER_NOBJECTS];
	uint64_t kinds;

	if (kernel.type != GANTRY_HANDLE_KERNEL || kernel.state != GANTRY_OBJECT_LIVE)
		return ALL_KINDS; /* its tasks fail wherever they are */
	kernel.kernel.name[sizeof(kernel.kernel.name) - 1] = '\0';
	if (GANTRY_LEDGER_IS_OWN(&kernel.kernel))
		kinds = kinds_of_image(s, kernel.kernel.own.image);
	else
		kinds = gantry_kernels_kinds(a, kernel.kernel.name);
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *o = &s->ledger.objects[i];
		uint16_t kind = gantry_load_relaxed(&o->variant_kind);

		if (gantry_load_relaxed(&o->variant_of) == handle && kind < GANTRY_NKINDS)
			kinds |= 1ull << kind;
	}
	return kinds ? kinds : ALL_KINDS;
}

static uint64_t kinds_of(const struct gantry_agent *a, struct gantry_session *s, uint64_t handle,
			 uint64_t now_ns)
{
	struct gantry_session_sample *sample = s->sample;
	struct gantry_kernel_kinds *k;

	for (uint32_t i = 0; i < GANTRY_SAMPLE_KERNELS; i++)
		if (sample->kernels[i].handle == handle && sample->kernels[i].until_ns > now_ns)
			return sample->kernels[i].kinds;
	k = &sample->kernels[sample->next_kernel++ % GANTRY_SAMPLE_KERNELS];
	*k = (struct gantry_kernel_kinds){ .handle = handle,
					   .kinds = look_up(a, s, handle),
					   .until_ns = now_ns + KINDS_NS };
	return k->kinds;
}

/* The kernel of the queue's next launch; 0: none is near. */
static uint64_t next_kernel(const struct gantry_session *s, uint32_t slot)
{
	const struct gantry_ledger_queue *led = &s->ledger.queues[slot];
	uint64_t issued = gantry_load_relaxed(&led->issued);
	uint64_t taken = gantry_load_relaxed(&led->taken);

	for (uint64_t pos = issued; pos != taken && pos - issued < LOOK_AHEAD; pos++) {
		struct gantry_desc desc = gantry_ledger_task(&s->ledger, slot, pos)->desc;
		union gantry_op_any args;

		if (desc.op == GANTRY_OP_launch &&
		    gantry_desc_decode(&desc, false, s->version, &args) == GANTRY_OK)
			return args.launch.kernel;
	}
	return 0;
}

uint64_t gantry_placement_capable(struct gantry_placement *p, struct gantry_session *s,
				  uint32_t slot, uint64_t now_ns)
{
	const struct gantry_ledger_queue *led = &s->ledger.queues[slot];
	uint64_t asked_mask = gantry_load_relaxed(&led->device_mask);
	uint32_t kind = gantry_load_relaxed(&led->kind);
	uint64_t handle = next_kernel(s, slot);
	uint64_t kinds = handle ? kinds_of(p->agent, s, handle, now_ns) : ALL_KINDS;
	uint64_t mask = 0;

	for (uint32_t i = 0; i < p->agent->ndevices; i++) {
		const struct gantry_agent_device *d = &p->agent->devices[i];

		if (d->kind < GANTRY_NKINDS && (kinds >> d->kind & 1) &&
		    (kind == GANTRY_KIND_ANY || kind == d->kind))
			mask |= 1ull << i;
	}
	return asked_mask ? mask & asked_mask : mask;
}

/* ---- queues ---- */

static void note_device(struct gantry_queue_sample *q, uint32_t device, uint64_t now_ns)
{
	if (q->device != device + 1) {
		if (q->device)
			q->came_ns = now_ns;
		q->device = device + 1;
	}
	if (q->asked == q->device || (q->asked && now_ns - q->asked_ns > LOST_NS))
		q->asked = 0;
}

static void note_run_time(struct gantry_queue_sample *q, uint32_t device, uint64_t ndone,
			  uint64_t device_ns)
{
	uint64_t *run_ns = &q->run_ns[device];
	uint64_t one_ns = device_ns / ndone;

	if (one_ns == 0)
		return;
	*run_ns = *run_ns ? (*run_ns * 3 + one_ns) / 4 : one_ns;
}

static void note_work(struct gantry_queue_sample *q, bool has_work, uint64_t device_ns,
		      uint64_t period_ns, uint64_t now_ns)
{
	uint64_t part = device_ns * GANTRY_POLICY_WHOLE / (period_ns ? period_ns : 1);
	uint32_t demand = part < GANTRY_POLICY_WHOLE ? (uint32_t)part : GANTRY_POLICY_WHOLE;

	if (has_work)
		demand = GANTRY_POLICY_WHOLE;
	if (has_work || device_ns)
		q->worked_ns = now_ns;
	if (q->began_ns == 0 && (has_work || device_ns)) {
		q->began_ns = now_ns;
		q->demand = demand;
	} else if (q->began_ns && now_ns - q->worked_ns > QUIET_NS) {
		q->began_ns = 0;
		q->demand = 0;
	} else {
		q->demand = (q->demand * 3 + demand) / 4;
	}
}

/* Returns whether it has work, or had some lately. */
static bool sample_queue(const struct gantry_placement *p, struct gantry_session *s, uint32_t slot,
			 uint64_t now_ns)
{
	const struct gantry_ledger_queue *led = &s->ledger.queues[slot];
	struct gantry_queue_sample *q = &s->sample->queues[slot];
	uint32_t device = gantry_load_relaxed(&led->device);
	uint64_t done = gantry_load_relaxed(&led->done);
	uint64_t device_ns = gantry_load_relaxed(&led->device_ns);
	uint32_t gen = gantry_load_relaxed(&led->gen);
	bool has_work = gantry_load_relaxed(&led->taken) > done &&
			!gantry_load_relaxed(&led->paused) &&
			!gantry_load_relaxed(&led->guest_paused);
	bool known = q->device && q->gen == gen;

	if (gantry_load_relaxed(&led->state) != GANTRY_QUEUE_OPEN || device >= p->agent->ndevices) {
		*q = (struct gantry_queue_sample){ 0 };
		return false;
	}
	if (!known)
		*q = (struct gantry_queue_sample){ .gen = gen,
						   .done = done,
						   .device_ns = device_ns };
	/* What it did since it was looked at last, most of it where it was then. */
	if (done > q->done && device_ns > q->device_ns && q->device == device + 1)
		note_run_time(q, device, done - q->done, device_ns - q->device_ns);
	note_work(q, has_work, device_ns > q->device_ns ? device_ns - q->device_ns : 0,
		  now_ns - p->looked_ns, now_ns);
	note_device(q, device, now_ns);
	q->done = done;
	q->device_ns = device_ns;
	return q->began_ns != 0;
}

uint32_t gantry_placement_sample(struct gantry_placement *p, uint64_t now_ns)
{
	uint32_t nactive = 0;

	gantry_list_for_each(&p->agent->sessions, struct gantry_session, link, s) {
		if (s->phase != GANTRY_PHASE_ATTACHED || !s->ledger.hdr || !sample_of(s))
			continue;
		for (uint32_t slot = 1; slot < s->sample->nqueues; slot++)
			nactive += sample_queue(p, s, slot, now_ns);
	}
	return nactive;
}
