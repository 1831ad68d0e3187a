/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's end: a machine that claims desks, posts messages and scribbles, up to the point where a device is needed. */
#include <assert.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/list.h"
#include "base/log.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/doormem.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/ivshmem.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/monitor/store.h"
#include "tests/fuzz/desk.h"

#define MEMORY_BYTES (8u << 20)
#define NVECTORS     2u
#define STEPS_MAX    256
/* The header and all desks. */
#define SHARED_BYTES (GANTRY_DOORMEM_DESK_BYTES * (1 + GANTRY_DOORMEM_DESKS))

static struct gantry_agent agent;
static struct gantry_tenant *tenant;
static struct gantry_config *config;
static char dir[64];

enum step {
	CLAIMS,
	LEAVES,
	CLAIMS_ODDLY,
	POSTS,
	GREETS,
	COUNTS,
	READS, /* what it was told */
	SCRIBBLES,
	IS_DRAINED,
	NSTEPS
};

/* ---- an agent ---- */

static void end_agent(void)
{
	char path[128];

	gantry_tenant_free(tenant);
	gantry_ivshmem_fini(&agent);
	gantry_event_free(&agent.journal_event);
	gantry_event_free(&agent.door_retry_timer);
	gantry_event_free(&agent.clear_timer);
	gantry_store_fini(&agent.kept);
	event_base_free(agent.base);
	free(agent.events);
	gantry_config_free(config);
	(void)snprintf(path, sizeof(path), "%s/doors/red", dir);
	(void)rmdir(path);
	(void)snprintf(path, sizeof(path), "%s/doors", dir);
	(void)rmdir(path);
	(void)rmdir(dir);
}

static void make_agent(void)
{
	static const char text[] = "[tenant red]\nsessions = 4\nivshmem = yes\nivshmem_size = 8M\n";

	gantry_log_level_set(GANTRY_LOG_ERR);
	(void)snprintf(dir, sizeof(dir), "/tmp/gantry-fuzz-XXXXXX");
	agent.args.run_dir = mkdtemp(dir);
	gantry_agent_blank(&agent);
	agent.next_machine_id = 1;
	agent.base = event_base_new();
	agent.events = calloc(GANTRY_EVENTS_KEPT, sizeof(*agent.events));
	config = gantry_config_new();
	if (!agent.args.run_dir || !agent.base || !agent.events || !config ||
	    gantry_config_parse(config, "fuzz", text, sizeof(text) - 1, NULL) < 0)
		abort();
	agent.config = config;
	gantry_tenants_apply(&agent, config);
	tenant = gantry_tenant_find(&agent, "red");
	if (!tenant)
		abort();
	(void)atexit(end_agent);
}

/* ---- a machine ---- */

static void post(struct gantry_doormem_desk *d)
{
	gantry_store_release(&d->posted, gantry_load_relaxed(&d->posted) + 1);
}

static void greet(struct gantry_doormem_desk *d, struct fuzz_input *in)
{
	struct gantry_door_hello hello = { .version_min = 1, .version_max = 1 };

	gantry_door_header_init(&hello.h, GANTRY_DOOR_HELLO, 0);
	hello.heap_bytes = fuzz_u64(in);
	hello.nqueues = fuzz_u32(in);
	memcpy(d->guest_box, &hello, sizeof(hello));
	post(d);
}

/* What it was told is a message, each time; the count may be its own invention. */
static void read_boxes(struct gantry_doormem_desk *d)
{
	gantry_store_release(&d->host_taken, gantry_load_acquire(&d->host_posted));
	gantry_store_release(&d->notice_taken, gantry_load_acquire(&d->notice_posted));
}

static void do_step(struct gantry_doormem *m, struct fuzz_input *in)
{
	uint8_t step = fuzz_u8(in) % NSTEPS;
	struct gantry_doormem_desk *d = &m->shared[fuzz_u8(in) % GANTRY_DOORMEM_DESKS];

	switch (step) {
	case CLAIMS:
		d->generation = (d->generation | 1) + (d->generation & 1 ? 2 : 0);
		break;
	case LEAVES:
		d->generation += d->generation & 1;
		break;
	case CLAIMS_ODDLY:
		d->generation = fuzz_u64(in);
		fuzz_take(in, d->boot_id, 1);
		d->wake = fuzz_u8(in);
		d->wake_vector = fuzz_u8(in);
		break;
	case POSTS:
		fuzz_take_box(in, d->guest_box, sizeof(d->guest_box));
		post(d);
		break;
	case GREETS:
		greet(d, in);
		break;
	case COUNTS:
		d->posted = fuzz_u32(in);
		d->host_taken = fuzz_u32(in);
		break;
	case READS:
		read_boxes(d);
		break;
	case SCRIBBLES:
		fuzz_scribble(in, (uint8_t *)m->hdr, SHARED_BYTES);
		break;
	default:
		gantry_doormem_drain(m, fuzz_u8(in) & 1);
	}
}

void fuzz_desk_of_agent(struct fuzz_input *in)
{
	struct gantry_doormem *m = NULL;

	if (!tenant)
		make_agent();
	if (gantry_doormem_new(tenant, agent.next_machine_id++, MEMORY_BYTES, NVECTORS, &m, NULL) <
	    0)
		abort();
	gantry_doormem_open(m);
	for (int i = 0; i < STEPS_MAX && in->len > 0; i++) {
		do_step(m, in);
		(void)gantry_doormem_look(m);
		assert(gantry_doormem_claims(m) <= GANTRY_DOORMEM_DESKS);
		assert(gantry_doormem_guests(m) == 0); /* there is no device to be had */
		assert(m->nsessions == 0 && gantry_extents_used(&m->extents) == 0);
		assert(tenant->nhalf_open <= GANTRY_DOORMEM_DESKS);
	}
	gantry_doormem_beat(m);
	gantry_doormem_close(m, GANTRY_E_DETACHED, "the input ends");
	assert(tenant->ndoormems == 0 && tenant->host_mem_used == 0 && tenant->nhalf_open == 0);
}
