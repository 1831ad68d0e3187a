/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /metrics: Prometheus text over HTTP, from ledgers and share pages at the moment of the request.
 */
#include "host-agent/agent/metrics.h"

#include <errno.h>
#include <event2/buffer.h>
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/ivshmem.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/mps.h"
#include "host-agent/agent/placement.h"
#include "host-agent/agent/relay.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/stream.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/shared/quota.h"
#include "host-agent/shared/share.h"
#include "migration/ledger.h"

#define HTTP_TIMEOUT_S	5
#define HTTP_MAX_HEADER 4096u
#define MAX_CONNS	32u
#define BACKLOG		64
#define NS		1e-9
#define HEALTH_FRESH_NS (2 * GANTRY_NS_PER_S)

typedef double value_fn(const void *object);

struct family {
	const char *name;
	const char *help;
	bool counter;
	value_fn *value;
};

/* ---- the agent's own ---- */

#define COUNTER(name, field, scale)                    \
	static double name(const void *object)         \
	{                                              \
		const struct gantry_agent *a = object; \
                                                       \
		return (double)a->field * (scale);     \
	}
COUNTER(agent_restarts, restarts, 1)
COUNTER(agent_attaches, counters.attaches, 1)
COUNTER(agent_refused, counters.attach_refused, 1)
COUNTER(agent_handovers, counters.handovers, 1)
COUNTER(agent_handovers_failed, counters.handovers_failed, 1)
COUNTER(agent_handover_bytes, counters.handover_bytes, 1)
COUNTER(agent_handover_downtime, counters.handover_downtime_ns, NS)
COUNTER(agent_pulled_bytes, counters.pulled_bytes, 1)
COUNTER(agent_queue_pulled_bytes, counters.queue_pulled_bytes, 1)
COUNTER(agent_buffers_lost, counters.buffers_lost, 1)
COUNTER(agent_vm_migrations, counters.vm_migrations, 1)
COUNTER(agent_vm_migrations_back, counters.vm_migrations_back, 1)
COUNTER(agent_vm_migrations_half, counters.vm_migrations_half, 1)
COUNTER(agent_vm_pause, counters.vm_pause_ns, NS)
COUNTER(agent_vm_downtime, counters.vm_downtime_ns, NS)
COUNTER(agent_adoptions, counters.adoptions, 1)
COUNTER(agent_adoptions_refused, counters.adoptions_refused, 1)
COUNTER(agent_unadopted, counters.unadopted, 1)
COUNTER(agent_adoption_last, counters.adoption_ns_last, NS)
COUNTER(agent_protocol_errors, counters.protocol_errors, 1)
COUNTER(agent_denied_peers, counters.denied_peers, 1)
COUNTER(agent_workers_spawned, counters.workers_spawned, 1)
COUNTER(agent_worker_restarts, counters.worker_restarts, 1)
COUNTER(agent_device_faults, counters.device_faults, 1)
COUNTER(agent_journal_errors, counters.journal_errors, 1)
COUNTER(agent_keep_errors, counters.keep_errors, 1)
COUNTER(agent_fd_exhausted, counters.fd_exhausted, 1)
COUNTER(agent_slow_readers, counters.slow_readers, 1)
COUNTER(agent_attach_seconds, counters.attach_ns_total, NS)
COUNTER(agent_recover_seconds, counters.recover_ns_last, NS)
COUNTER(agent_mps_terminated, counters.mps_terminated, 1)
COUNTER(agent_mps_deaths, counters.mps_deaths, 1)
COUNTER(agent_upgrades, upgrade.record.ndone, 1)
COUNTER(agent_upgrades_refused, upgrade.record.nrefused, 1)
COUNTER(agent_upgrades_back, upgrade.record.nback, 1)
COUNTER(agent_upgrade_seconds, upgrade.record.took_ns, NS)
COUNTER(agent_upgrade_pause_seconds, upgrade.record.pause_ns, NS)
COUNTER(agent_events, nevents, 1)
COUNTER(agent_migrations, migrated.ndone, 1)
COUNTER(agent_migrations_failed, migrated.nfailed, 1)
COUNTER(agent_migrated_bytes, migrated.moved_bytes, 1)
COUNTER(agent_migration_rounds, migrated.rounds, 1)
COUNTER(agent_migration_pause, migrated.pause_ns, NS)
COUNTER(agent_migration_last_pause, migrated.last_pause_ns, NS)
COUNTER(agent_migration_last_task, migrated.last_task_ns, NS)
COUNTER(agent_started, started_unix_ns, NS)
#undef COUNTER

#define PLACEMENT(name, field, scale)                                     \
	static double name(const void *object)                            \
	{                                                                 \
		const struct gantry_placement *p =                        \
			((const struct gantry_agent *)object)->placement; \
                                                                          \
		return p ? (double)p->field * (scale) : 0;                \
	}
PLACEMENT(placement_looks, nlooks, 1)
PLACEMENT(placement_decisions, ndecisions, 1)
PLACEMENT(placement_moves, nmoves, 1)
PLACEMENT(placement_failures, nfailures, 1)
PLACEMENT(placement_seconds, decide_ns, NS)
#undef PLACEMENT

static double agent_sessions(const void *object)
{
	return (double)gantry_list_count(&((const struct gantry_agent *)object)->sessions);
}

static double agent_mps(const void *object)
{
	return (double)gantry_mps_count(object);
}

static double agent_workers(const void *object)
{
	return (double)gantry_list_count(&((const struct gantry_agent *)object)->workers);
}

static const struct family agent_families[] = {
	{ "gantry_start_time_seconds", "When the agent started, as Unix time", false,
	  agent_started },
	{ "gantry_agent_restarts_total", "Agents started again by the monitor", true,
	  agent_restarts },
	{ "gantry_agent_upgrades_total", "Times that another build took over", true,
	  agent_upgrades },
	{ "gantry_agent_upgrades_refused_total", "Builds that were not let take over", true,
	  agent_upgrades_refused },
	{ "gantry_agent_upgrades_back_total", "Builds that took over and failed", true,
	  agent_upgrades_back },
	{ "gantry_agent_upgrade_seconds", "How long the latest upgrade took", false,
	  agent_upgrade_seconds },
	{ "gantry_agent_upgrade_pause_seconds",
	  "How long no new guest was let in during the latest upgrade", false,
	  agent_upgrade_pause_seconds },
	{ "gantry_sessions", "Sessions now", false, agent_sessions },
	{ "gantry_workers", "Worker processes now", false, agent_workers },
	{ "gantry_attaches_total", "Sessions attached", true, agent_attaches },
	{ "gantry_attach_refused_total", "Guests refused at a door", true, agent_refused },
	{ "gantry_attach_seconds_total", "Time from HELLO to WELCOME, summed", true,
	  agent_attach_seconds },
	{ "gantry_host_migrations_total", "Sessions that went to another host or came from one",
	  true, agent_handovers },
	{ "gantry_host_migrations_failed_total", "Those that stayed where they were", true,
	  agent_handovers_failed },
	{ "gantry_host_migration_sent_bytes_total", "Bytes that went to other hosts", true,
	  agent_handover_bytes },
	{ "gantry_host_migration_downtime_seconds", "Of the latest session that went", false,
	  agent_handover_downtime },
	{ "gantry_host_migration_pulled_bytes_total", "Bytes fetched for sessions that came lazily",
	  true, agent_pulled_bytes },
	{ "gantry_host_migration_buffers_lost_total",
	  "Buffers of such sessions that could not be fetched any more", true, agent_buffers_lost },
	{ "gantry_vm_migrations_total", "Virtual machines that went with their sessions, or came",
	  true, agent_vm_migrations },
	{ "gantry_vm_migrations_back_total", "Those that failed and were undone", true,
	  agent_vm_migrations_back },
	{ "gantry_vm_migrations_half_total", "Those that failed and could not be undone", true,
	  agent_vm_migrations_half },
	{ "gantry_vm_migration_pause_seconds", "Of the sessions of the latest machine that went",
	  false, agent_vm_pause },
	{ "gantry_vm_migration_downtime_seconds", "Of the latest machine that went, as QEMU says",
	  false, agent_vm_downtime },
	{ "gantry_adoptions_total", "Sessions from other hosts that a program took over", true,
	  agent_adoptions },
	{ "gantry_adoptions_refused_total", "Programs whose key no session here waits for", true,
	  agent_adoptions_refused },
	{ "gantry_adoptions_missed_total",
	  "Sessions from other hosts that nobody took over in time", true, agent_unadopted },
	{ "gantry_adoption_wait_seconds", "From arrival to adoption, of the latest one", false,
	  agent_adoption_last },
	{ "gantry_protocol_errors_total", "Peers that broke the rules", true,
	  agent_protocol_errors },
	{ "gantry_door_denied_total", "Guests of users that a door does not admit", true,
	  agent_denied_peers },
	{ "gantry_workers_spawned_total", "Worker processes started", true, agent_workers_spawned },
	{ "gantry_worker_restarts_total", "Sessions given to another worker after a death", true,
	  agent_worker_restarts },
	{ "gantry_context_faults_total", "Contexts of workers that failed", true,
	  agent_device_faults },
	{ "gantry_recovery_seconds", "How long the latest such change took", false,
	  agent_recover_seconds },
	{ "gantry_placement_looks_total", "Times queues and devices were looked at to place queues",
	  true, placement_looks },
	{ "gantry_placement_decisions_total", "Decisions of policies about where queues are", true,
	  placement_decisions },
	{ "gantry_placement_seconds_total", "How long these took, summed", true,
	  placement_seconds },
	{ "gantry_placement_moves_total", "Queues sent to another device by a policy", true,
	  placement_moves },
	{ "gantry_placement_failures_total", "Decisions that were late, or could not be used", true,
	  placement_failures },
	{ "gantry_journal_errors_total", "Times the journal could not be written", true,
	  agent_journal_errors },
	{ "gantry_keep_errors_total", "Descriptors the monitor did not take", true,
	  agent_keep_errors },
	{ "gantry_descriptors_exhausted_total", "Times no descriptor was left for a guest", true,
	  agent_fd_exhausted },
	{ "gantry_slow_readers_total", "Connections dropped because they did not read", true,
	  agent_slow_readers },
	{ "gantry_mps_servers", "MPS control daemons now", false, agent_mps },
	{ "gantry_mps_terminated_total",
	  "Packed workers whose MPS server was told before their end", true, agent_mps_terminated },
	{ "gantry_mps_deaths_total", "MPS control daemons that ended unasked", true,
	  agent_mps_deaths },
	{ "gantry_migrations_total", "Migrations that arrived", true, agent_migrations },
	{ "gantry_migrations_failed_total", "Migrations that stayed where they were", true,
	  agent_migrations_failed },
	{ "gantry_migration_bytes_total", "Bytes that migrations moved", true,
	  agent_migrated_bytes },
	{ "gantry_migration_pulled_bytes_total",
	  "Bytes moved for tasks of queues that had gone lazily", true, agent_queue_pulled_bytes },
	{ "gantry_migration_rounds_total", "Rounds of copying ahead", true,
	  agent_migration_rounds },
	{ "gantry_migration_pause_seconds_total",
	  "Time in which what migrated stood still, tasks that were waited for within", true,
	  agent_migration_pause },
	{ "gantry_migration_last_pause_seconds", "Of the latest migration", false,
	  agent_migration_last_pause },
	{ "gantry_migration_last_task_seconds",
	  "The longest task that the latest migration waited for", false,
	  agent_migration_last_task },
	{ "gantry_events_total", "Events ever", true, agent_events },
};

/* ---- tenants ---- */

struct living {
	double tasks, failed, device_ns, scrubbed, resident_peak;
};

static struct living sum_living(const struct gantry_tenant *t)
{
	struct living sum = { 0 };

	gantry_list_for_each(&t->agent->sessions, struct gantry_session, link, s) {
		const struct gantry_ledger_header *hdr = s->ledger.hdr;

		if (s->tenant != t || !hdr)
			continue;
		sum.tasks += (double)gantry_load_relaxed(&hdr->tasks_finished);
		sum.failed += (double)gantry_load_relaxed(&hdr->tasks_failed);
		sum.device_ns += (double)gantry_load_relaxed(&hdr->device_ns);
		sum.scrubbed += (double)gantry_load_relaxed(&hdr->scrubbed_bytes);
	}
	return sum;
}

static uint32_t desks_taken(const struct gantry_tenant *t)
{
	uint32_t n = 0;

	gantry_list_for_each(&t->machines, struct gantry_machine, link, m)
		n += gantry_doormem_claims(m->mem);
	return n;
}

struct relayed {
	uint32_t n;
	struct gantry_relay_page sum;
};

static struct relayed relayed(const struct gantry_tenant *t)
{
	struct relayed r;

	r.n = gantry_relays_count(t, &r.sum);
	return r;
}

#define TENANT(name, expression)                        \
	static double name(const void *object)          \
	{                                               \
		const struct gantry_tenant *t = object; \
                                                        \
		return (double)(expression);            \
	}
TENANT(tenant_mem_used, gantry_load_relaxed(&t->quota->mem_used))
TENANT(tenant_mem_peak, gantry_load_relaxed(&t->quota->mem_peak))
TENANT(tenant_mem_limit, t->conf.mem_bytes)
TENANT(tenant_virtual_used, gantry_load_relaxed(&t->quota->virtual_used))
TENANT(tenant_host_mem_used, t->host_mem_used)
TENANT(tenant_device_seconds, ((double)t->device_ns + sum_living(t).device_ns) * NS)
TENANT(tenant_tasks, (double)t->tasks_finished + sum_living(t).tasks)
TENANT(tenant_failed, (double)t->tasks_failed + sum_living(t).failed)
TENANT(tenant_missing, (double)t->calls_missing)
TENANT(tenant_scrubbed, (double)t->scrubbed_bytes + sum_living(t).scrubbed)
TENANT(tenant_denied, t->denied + gantry_load_relaxed(&t->quota->denied))
TENANT(tenant_protocol_errors, t->protocol_errors)
TENANT(tenant_worker_restarts, t->worker_restarts)
TENANT(tenant_device_faults, t->device_faults)
TENANT(tenant_sessions, t->nsessions)
TENANT(tenant_weight, t->conf.weight)
TENANT(tenant_machines, gantry_list_count(&t->machines))
TENANT(tenant_claims, t->nclaims)
TENANT(tenant_looks, t->nlooks)
TENANT(tenant_cleared, t->cleared_bytes)
TENANT(tenant_clearings, t->nclearings)
TENANT(tenant_desks, desks_taken(t))
TENANT(tenant_relays, relayed(t).n)
TENANT(tenant_relay_in, relayed(t).sum.bytes_in)
TENANT(tenant_relay_out, relayed(t).sum.bytes_out)
TENANT(tenant_relay_tasks, relayed(t).sum.tasks)
TENANT(tenant_reconnects, relayed(t).sum.reconnects)
TENANT(tenant_channels, gantry_list_count(&t->channels))
TENANT(tenant_wakeups, gantry_load_relaxed(&t->quota->wakes))
TENANT(tenant_replicas, gantry_load_relaxed(&t->quota->replicas_made))
TENANT(tenant_replicas_dropped, gantry_load_relaxed(&t->quota->replicas_dropped))
TENANT(tenant_replica_bytes, gantry_load_relaxed(&t->quota->replica_bytes))
#undef TENANT

static const struct family tenant_families[] = {
	{ "gantry_replicas_total", "Copies of buffers made for devices that only read", true,
	  tenant_replicas },
	{ "gantry_replicas_dropped_total", "Such copies that gave their memory back", true,
	  tenant_replicas_dropped },
	{ "gantry_replica_bytes_total", "Copied for them", true, tenant_replica_bytes },
	{ "gantry_tenant_memory_used_bytes", "Resident device memory", false, tenant_mem_used },
	{ "gantry_tenant_memory_limit_bytes", "Resident device memory allowed", false,
	  tenant_mem_limit },
	{ "gantry_tenant_memory_peak_bytes", "Most resident device memory ever", false,
	  tenant_mem_peak },
	{ "gantry_tenant_memory_virtual_bytes", "Allocated device memory", false,
	  tenant_virtual_used },
	{ "gantry_tenant_host_memory_used_bytes", "Host memory of segments", false,
	  tenant_host_mem_used },
	{ "gantry_tenant_device_seconds_total", "Measured device time", true,
	  tenant_device_seconds },
	{ "gantry_tenant_tasks_total", "Tasks finished", true, tenant_tasks },
	{ "gantry_tenant_tasks_failed_total", "Tasks finished with an error", true, tenant_failed },
	{ "gantry_tenant_calls_missing_total", "Calls of functions that guests' libraries have not",
	  true, tenant_missing },
	{ "gantry_tenant_sessions", "Sessions now", false, tenant_sessions },
	{ "gantry_tenant_weight", "Share of device time", false, tenant_weight },
	{ "gantry_tenant_machines", "Virtual machines connected by shared memory", false,
	  tenant_machines },
	{ "gantry_tenant_machine_claims_total", "Programs of machines that came to attach", true,
	  tenant_claims },
	{ "gantry_tenant_machine_looks_total", "Times desks of machines were looked at", true,
	  tenant_looks },
	{ "gantry_tenant_machine_cleared_bytes_total",
	  "Memory of machines' doors that was cleared after a session", true, tenant_cleared },
	{ "gantry_tenant_machine_clearings_total", "Steps in which that was done", true,
	  tenant_clearings },
	{ "gantry_tenant_machine_desks", "Desks of machines taken by programs", false,
	  tenant_desks },
	{ "gantry_tenant_relays", "Relay processes now: sessions whose guests are behind streams",
	  false, tenant_relays },
	{ "gantry_tenant_relay_tasks_total", "Tasks that relays put for their guests", true,
	  tenant_relay_tasks },
	{ "gantry_tenant_relay_in_bytes_total", "Data that relays took from their guests", true,
	  tenant_relay_in },
	{ "gantry_tenant_relay_out_bytes_total", "Data that relays gave to their guests", true,
	  tenant_relay_out },
	{ "gantry_tenant_stream_reconnects_total", "Streams that broke and came back", true,
	  tenant_reconnects },
	{ "gantry_tenant_wake_channels", "Channels by which programs of machines are woken", false,
	  tenant_channels },
	{ "gantry_tenant_wakeups_total",
	  "Interrupts and bytes sent to wake programs of machines, and relays", true,
	  tenant_wakeups },
	{ "gantry_tenant_worker_restarts_total", "Sessions given to another worker", true,
	  tenant_worker_restarts },
	{ "gantry_tenant_context_faults_total",
	  "Failed contexts that the tenant's tasks caused, or may have caused", true,
	  tenant_device_faults },
	{ "gantry_tenant_protocol_errors_total", "Guests that broke the rules", true,
	  tenant_protocol_errors },
	{ "gantry_quota_denied_total", "Requests refused for a limit", true, tenant_denied },
	{ "gantry_scrub_bytes_total", "Memory wiped before reuse", true, tenant_scrubbed },
};

/* ---- devices ---- */

static double device_mem_used(const void *object)
{
	return (double)gantry_load_relaxed(
		&((const struct gantry_agent_device *)object)->page->hdr.mem_used);
}

static double device_mem(const void *object)
{
	return (double)((const struct gantry_agent_device *)object)->mem_bytes;
}

static double device_seconds(const void *object)
{
	const struct gantry_agent_device *d = object;
	double ns = 0;

	for (uint32_t i = 0; i < GANTRY_SHARE_NTENANTS; i++)
		ns += (double)gantry_load_relaxed(&d->page->tenants[i].device_ns);
	return ns * NS;
}

static double device_running(const void *object)
{
	const struct gantry_agent_device *d = object;
	double n = 0;

	for (uint32_t i = 0; i < GANTRY_SHARE_NLANES; i++)
		n += gantry_load_relaxed(&d->page->lanes[i]) != 0;
	return n;
}

static double device_waiting(const void *object)
{
	const struct gantry_agent_device *d = object;
	double n = 0;

	for (uint32_t i = 0; i < GANTRY_SHARE_NSESSIONS; i++)
		n += gantry_load_relaxed(&d->page->sessions[i].state) == GANTRY_SHARE_WAITING;
	return n;
}

static double device_lanes(const void *object)
{
	return ((const struct gantry_agent_device *)object)->lanes;
}

static double device_up(const void *object)
{
	return ((const struct gantry_agent_device *)object)->state == GANTRY_DEVICE_ENABLED;
}

static const struct gantry_slab_pool *pool_of(const struct gantry_agent_device *d)
{
	return &d->agent->pools[d - d->agent->devices];
}

#define SLABS(name, field)                                              \
	static double name(const void *object)                          \
	{                                                               \
		const struct gantry_agent_device *d = object;           \
                                                                        \
		return d->slab_align ? (double)pool_of(d)->field : NAN; \
	}
SLABS(slab_session_bytes, session_bytes)
SLABS(slab_pool_bytes, clean_bytes)
SLABS(slab_dirty_bytes, dirty_bytes)
SLABS(slab_made, nmade)
SLABS(slab_refused, nrefused)
SLABS(slab_scrubbed_bytes, scrubbed_bytes)
#undef SLABS

/* Not there where the device does not say it. */
#define HEALTH(name, bit, field)                                                \
	static double name(const void *object)                                  \
	{                                                                       \
		const struct gantry_agent_device *d = object;                   \
                                                                                \
		return d->health.known & (bit) ? (double)d->health.field : NAN; \
	}
HEALTH(health_temperature, GANTRY_HEALTH_TEMPERATURE, temperature_c)
HEALTH(health_clock, GANTRY_HEALTH_CLOCKS, clock_mhz * 1e6)
HEALTH(health_mem_clock, GANTRY_HEALTH_CLOCKS, mem_clock_mhz * 1e6)
HEALTH(health_mem_used, GANTRY_HEALTH_MEM, mem_used)
HEALTH(health_mem_total, GANTRY_HEALTH_MEM, mem_total)
HEALTH(health_ecc, GANTRY_HEALTH_ECC, ecc_uncorrected)
HEALTH(health_faults, GANTRY_HEALTH_FAULTS, nfaults)
HEALTH(health_copied_in, GANTRY_HEALTH_COPIES, copied_in)
HEALTH(health_kept, GANTRY_HEALTH_COPIES, kept)
HEALTH(health_copied_out, GANTRY_HEALTH_COPIES, copied_out)
HEALTH(health_followed, GANTRY_HEALTH_COPIES, followed)
#undef HEALTH

static double device_faults(const void *object)
{
	return (double)((const struct gantry_agent_device *)object)->nfaults;
}

static const struct family device_families[] = {
	{ "gantry_device_up", "1: serves", false, device_up },
	{ "gantry_device_lanes", "Tasks that can run at once", false, device_lanes },
	{ "gantry_device_lanes_busy", "Lanes in use", false, device_running },
	{ "gantry_device_sessions_waiting", "Sessions that wait for a lane", false,
	  device_waiting },
	{ "gantry_device_memory_bytes", "Memory of the device's pool", false, device_mem },
	{ "gantry_device_memory_used_bytes", "Of it, in use", false, device_mem_used },
	{ "gantry_device_seconds_total", "Measured device time of all tenants", true,
	  device_seconds },
	{ "gantry_slab_session_bytes", "Device memory in slabs of sessions", false,
	  slab_session_bytes },
	{ "gantry_slab_pool_bytes", "Device memory in slabs that are zeroed and ready", false,
	  slab_pool_bytes },
	{ "gantry_slab_dirty_bytes", "Device memory in slabs that wait to be zeroed", false,
	  slab_dirty_bytes },
	{ "gantry_slab_made_total", "Slabs made by the steward", true, slab_made },
	{ "gantry_slab_refused_total", "Requests for slabs refused", true, slab_refused },
	{ "gantry_slab_scrubbed_bytes_total", "Device memory zeroed after use", true,
	  slab_scrubbed_bytes },
	{ "gantry_device_temperature_celsius", "Temperature of the chip", false,
	  health_temperature },
	{ "gantry_device_clock_hertz", "Clock of the processors", false, health_clock },
	{ "gantry_device_memory_clock_hertz", "Clock of the memory", false, health_mem_clock },
	{ "gantry_device_board_memory_used_bytes", "Memory of the board used by everybody", false,
	  health_mem_used },
	{ "gantry_device_board_memory_bytes", "Memory of the board", false, health_mem_total },
	{ "gantry_device_ecc_uncorrected_total", "Memory errors that could not be mended", true,
	  health_ecc },
	{ "gantry_device_faults_total", "Critical events of the device", true, health_faults },
	{ "gantry_device_context_faults_total", "Contexts on it that failed", true, device_faults },
	{ "gantry_device_board_copied_in_bytes_total", "Copied to a board for its launches", true,
	  health_copied_in },
	{ "gantry_device_board_kept_bytes_total",
	  "Not copied, for the board had them from earlier launches", true, health_kept },
	{ "gantry_device_board_copied_out_bytes_total", "Copied back from a board", true,
	  health_copied_out },
	{ "gantry_device_board_followed_total",
	  "Launches that a board began by itself, right behind another", true, health_followed },
};

/* ---- all of them ---- */

typedef void each_fn(void *arg, const struct gantry_metric *m);

static void emit(const struct family *f, const void *object, const char *labels, each_fn *fn,
		 void *arg)
{
	const struct gantry_metric m = { f->name, f->help, f->counter, labels, f->value(object) };

	if (!isnan(m.value)) /* else the object has no such thing */
		fn(arg, &m);
}

static void each_tenant(struct gantry_agent *a, const struct family *f, each_fn *fn, void *arg)
{
	char labels[64];

	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t) {
		if (t->removed)
			continue;
		/* it fits */
		(void)gantry_str_format(labels, sizeof(labels), "tenant=\"%s\"", t->conf.name);
		emit(f, t, labels, fn, arg);
	}
}

static const char *const doors[] = { GANTRY_CONN_UNIX, GANTRY_CONN_IVSHMEM, GANTRY_CONN_VSOCK,
				     GANTRY_CONN_STREAM };

static double sessions_by(const struct gantry_tenant *t, const char *door)
{
	double n = 0;

	gantry_list_for_each(&t->agent->sessions, struct gantry_session, link, s)
		n += s->tenant == t && s->conn && strcmp(s->conn->transport, door) == 0;
	return n;
}

/* Tenants by doors. */
static void each_door(struct gantry_agent *a, each_fn *fn, void *arg)
{
	char labels[96];

	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		for (size_t i = 0; i < GANTRY_ARRAY_SIZE(doors) && !t->removed; i++) {
			const struct gantry_metric m = {
				"gantry_tenant_door_sessions",
				"Sessions now, by the kind of door they came by", false, labels,
				sessions_by(t, doors[i])
			};

			/* it fits */
			(void)gantry_str_format(labels, sizeof(labels), "tenant=\"%s\",door=\"%s\"",
						t->conf.name, doors[i]);
			fn(arg, &m);
		}
}

static void each_device(struct gantry_agent *a, const struct family *f, each_fn *fn, void *arg)
{
	char labels[256];

	for (uint32_t i = 0; i < a->ndevices; i++) {
		const struct gantry_agent_device *d = &a->devices[i];

		if (!d->used)
			continue;
		/* UUID and gpu, where the device has them, join with the vendor's own exporters. */
		(void)gantry_str_format(labels, sizeof(labels), "device=\"%s\",kind=\"%s\"%s%s%s",
					d->conf.name,
					d->kind ? gantry_kind_name((int)d->kind) : d->conf.backend,
					/* it fits */
					d->id[0] ? ",UUID=\"" : "", d->id, d->id[0] ? "\"" : "");
		emit(f, d, labels, fn, arg);
	}
}

void gantry_metrics_each(struct gantry_agent *a, each_fn *fn, void *arg)
{
	gantry_health_ask(a, HEALTH_FRESH_NS); /* for the next who asks */
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(agent_families); i++)
		emit(&agent_families[i], a, "", fn, arg);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(tenant_families); i++)
		each_tenant(a, &tenant_families[i], fn, arg);
	each_door(a, fn, arg);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(device_families); i++)
		each_device(a, &device_families[i], fn, arg);
}

/* ---- HTTP ---- */

struct text {
	struct evbuffer *out;
	const char *last; /* the family before */
};

static void write_metric(void *arg, const struct gantry_metric *m)
{
	struct text *text = arg;

	if (!text->last || strcmp(text->last, m->name) != 0)
		(void)evbuffer_add_printf(text->out, "# HELP %s %s\n# TYPE %s %s\n", m->name,
					  m->help, m->name,
					  /* a short answer shows itself */
					  m->counter ? "counter" : "gauge");
	text->last = m->name;
	(void)evbuffer_add_printf(text->out, "%s%s%s%s %.17g\n", m->name, m->labels[0] ? "{" : "",
				  m->labels, m->labels[0] ? "}" : "", m->value); /* as above */
}

static void reply(struct gantry_stream_conn *c, const char *status, const char *type,
		  const void *body, size_t len)
{
	char head[256];

	(void)gantry_str_format(head, sizeof(head),
				"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
				"Connection: close\r\n\r\n",
				status, type, len); /* it fits */
	gantry_stream_write(c, head, strlen(head));
	gantry_stream_write(c, body, len);
	gantry_stream_end(c);
}

static void refuse(struct gantry_stream_conn *c, const char *status)
{
	static const char sentence[] = "there is GET /metrics\n";

	reply(c, status, "text/plain", sentence, strlen(sentence));
}

static void reply_metrics(struct gantry_stream_conn *c)
{
	struct text text = { .out = evbuffer_new() };

	if (!text.out) {
		refuse(c, "503 Service Unavailable");
		return;
	}
	gantry_metrics_each(gantry_stream_agent(c), write_metric, &text);
	reply(c, "200 OK", "text/plain; version=0.0.4", evbuffer_pullup(text.out, -1),
	      evbuffer_get_length(text.out));
	evbuffer_free(text.out);
}

/* All that is asked of a request is its first line; an answer ends the connection. */
static ssize_t take_request(struct gantry_stream_conn *c, const uint8_t *data, size_t len)
{
	static const char wanted[] = "GET /metrics";
	const uint8_t *end = memmem(data, len, "\r\n\r\n", 4);
	size_t n = strlen(wanted);

	if (!end)
		return -EAGAIN;
	/* The blank line lies behind: there is a byte after what is compared. */
	if (len > n && memcmp(data, wanted, n) == 0 && (data[n] == ' ' || data[n] == '?'))
		reply_metrics(c);
	else if (len > 4 && memcmp(data, "GET ", 4) == 0)
		refuse(c, "404 Not Found");
	else
		refuse(c, "405 Method Not Allowed");
	return end + 4 - data;
}

static void refuse_garbage(struct gantry_stream_conn *c, const char *text)
{
	(void)text;
	refuse(c, "431 Request Header Fields Too Large");
}

/* ---- start and stop ---- */

static const struct gantry_stream_ops ops = {
	.what = "metrics",
	.conn_bytes = sizeof(struct gantry_stream_conn),
	.in_max = HTTP_MAX_HEADER,
	.conns_max = MAX_CONNS,
	.idle_s = HTTP_TIMEOUT_S,
	.write_s = HTTP_TIMEOUT_S,
	.garbage = refuse_garbage,
	.take = take_request,
};

static int listen_at(const struct addrinfo *at, int *ret_fd)
{
	int one = 1, r;
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, at->ai_addr, at->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
		r = -errno;
		gantry_fd_close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

static int open_tcp(struct gantry_agent *a, const char *where, struct gantry_err *err)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
	};
	char text[GANTRY_CONFIG_TEXT], *host = text, *colon;
	struct addrinfo *found;
	int fd = -EBADF, r;

	(void)gantry_str_copy(text, sizeof(text), where); /* the same size */
	colon = strrchr(text, ':'); /* the configuration's check saw it and the port */
	*colon = '\0';
	if (host[0] == '[' && colon > host + 1 && colon[-1] == ']') {
		colon[-1] = '\0';
		host++;
	}
	r = getaddrinfo(host[0] ? host : NULL, colon + 1, &hints, &found);
	if (r != 0)
		return gantry_err_set(err, -EADDRNOTAVAIL, "metrics: %s: %s", where,
				      gai_strerror(r));
	r = listen_at(found, &fd);
	freeaddrinfo(found);
	if (r < 0)
		return gantry_err_set_errno(err, r, "metrics: opening %s", where);
	return gantry_stream_new(a, &ops, fd, a, &a->metrics, err);
}

int gantry_metrics_start(struct gantry_agent *a, struct gantry_err *err)
{
	const char *where = a->config->agent.metrics;

	if (!where[0])
		return 0;
	if (!gantry_str_starts(where, "unix:"))
		return open_tcp(a, where, err);
	return gantry_stream_open(a, &ops, where + strlen("unix:"), 0660, a, &a->metrics, err);
}

void gantry_metrics_stop(struct gantry_agent *a)
{
	gantry_stream_close(a->metrics);
	a->metrics = NULL;
}
