/* SPDX-License-Identifier: Apache-2.0 */
#include "fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "admin.pb-c.h"
#include "base/array.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "peer.pb-c.h"

#define FIELDS(var, one_name, many_name, array)                           \
	const struct gantry_fields var = { .one = (one_name),             \
					   .many = (many_name),           \
					   .n = GANTRY_ARRAY_SIZE(array), \
					   .list = (array) }
#define AT(type, member) .off = offsetof(type, member)

#define DEVICE(member) AT(Gantry__Admin__Device, member)
static const struct gantry_field device_list[] = {
	{ "name", "DEVICE", GANTRY_FIELD_TEXT, DEVICE(name) },
	{ "kind", "KIND", GANTRY_FIELD_TEXT, DEVICE(kind) },
	{ "state", "STATE", GANTRY_FIELD_STATE, DEVICE(state) },
	{ "lanes", "LANES", GANTRY_FIELD_U32, DEVICE(lanes) },
	{ "running", "RUN", GANTRY_FIELD_U32, DEVICE(running) },
	{ "waiting", "WAIT", GANTRY_FIELD_U32, DEVICE(waiting) },
	{ "sessions", "SESSIONS", GANTRY_FIELD_U32, DEVICE(sessions) },
	{ "mem_used", "USED", GANTRY_FIELD_BYTES, DEVICE(mem_used) },
	{ "mem_bytes", "MEM", GANTRY_FIELD_BYTES, DEVICE(mem_bytes) },
	{ "mem_peak", NULL, GANTRY_FIELD_BYTES, DEVICE(mem_peak) },
	{ "device_ns", "TIME", GANTRY_FIELD_NS, DEVICE(device_ns) },
	{ "units", NULL, GANTRY_FIELD_U32, DEVICE(units) },
	{ "model", "MODEL", GANTRY_FIELD_TEXT, DEVICE(model) },
	{ "id", NULL, GANTRY_FIELD_TEXT, DEVICE(id) },
	{ "backend", NULL, GANTRY_FIELD_TEXT, DEVICE(backend) },
	{ "opts", NULL, GANTRY_FIELD_LIST, DEVICE(n_opts) },
	{ "reason", NULL, GANTRY_FIELD_TEXT, DEVICE(reason) },
	{ "arch", NULL, GANTRY_FIELD_TEXT, DEVICE(arch) },
	{ "numa_node", NULL, GANTRY_FIELD_OPT_I64, DEVICE(numa_node) },
	{ "slab_bytes", NULL, GANTRY_FIELD_BYTES, DEVICE(slab_bytes) },
	{ "slab_pool_bytes", NULL, GANTRY_FIELD_BYTES, DEVICE(slab_pool_bytes) },
	{ "slab_dirty_bytes", NULL, GANTRY_FIELD_BYTES, DEVICE(slab_dirty_bytes) },
	{ "temperature_c", NULL, GANTRY_FIELD_OPT_I64, DEVICE(temperature_c) },
	{ "clock_mhz", NULL, GANTRY_FIELD_OPT_U64, DEVICE(clock_mhz) },
	{ "mem_clock_mhz", NULL, GANTRY_FIELD_OPT_U64, DEVICE(mem_clock_mhz) },
	{ "board_mem_used", NULL, GANTRY_FIELD_OPT_BYTES, DEVICE(board_mem_used) },
	{ "board_mem_bytes", NULL, GANTRY_FIELD_OPT_BYTES, DEVICE(board_mem_bytes) },
	{ "ecc_uncorrected", NULL, GANTRY_FIELD_OPT_U64, DEVICE(ecc_uncorrected) },
	{ "faults", NULL, GANTRY_FIELD_OPT_U64, DEVICE(faults) },
	{ "last_fault", NULL, GANTRY_FIELD_OPT_U64, DEVICE(last_fault) },
	{ "health_age_ns", NULL, GANTRY_FIELD_OPT_NS, DEVICE(health_age_ns) },
};
FIELDS(gantry_device_fields, "device", "devices", device_list);

#define TENANT(member) AT(Gantry__Admin__Tenant, member)
#define CONFIG(member) \
	AT(Gantry__Admin__TenantSet, member), .via = offsetof(Gantry__Admin__Tenant, config)
static const struct gantry_field tenant_list[] = {
	{ "name", "TENANT", GANTRY_FIELD_TEXT, CONFIG(name) },
	{ "state", "STATE", GANTRY_FIELD_TEXT, TENANT(state) },
	{ "sessions", "SESSIONS", GANTRY_FIELD_U32, TENANT(sessions) },
	{ "mem_used", "USED", GANTRY_FIELD_BYTES, TENANT(mem_used) },
	{ "mem_bytes", "MEM", GANTRY_FIELD_OPT_BYTES, CONFIG(mem_bytes) },
	{ "mem_peak", NULL, GANTRY_FIELD_BYTES, TENANT(mem_peak) },
	{ "virtual_used", NULL, GANTRY_FIELD_BYTES, TENANT(virtual_used) },
	{ "virtual_bytes", NULL, GANTRY_FIELD_OPT_BYTES, CONFIG(virtual_bytes) },
	{ "host_mem_used", NULL, GANTRY_FIELD_BYTES, TENANT(host_mem_used) },
	{ "host_mem_bytes", NULL, GANTRY_FIELD_OPT_BYTES, CONFIG(host_mem_bytes) },
	{ "heap_bytes", NULL, GANTRY_FIELD_OPT_BYTES, CONFIG(heap_bytes) },
	{ "weight", "WEIGHT", GANTRY_FIELD_OPT_U64, CONFIG(weight) },
	{ "priority", "PRIORITY", GANTRY_FIELD_OPT_I64, CONFIG(priority) },
	{ "isolation", "ISOLATION", GANTRY_FIELD_TEXT, CONFIG(isolation) },
	{ "trust_group", NULL, GANTRY_FIELD_TEXT, CONFIG(trust_group) },
	{ "compute_percent", NULL, GANTRY_FIELD_OPT_U64, CONFIG(compute_percent) },
	{ "spin_ns", NULL, GANTRY_FIELD_OPT_NS, CONFIG(spin_ns) },
	{ "devices", "DEVICES", GANTRY_FIELD_TEXT, CONFIG(devices) },
	{ "group", NULL, GANTRY_FIELD_TEXT, CONFIG(group) },
	{ "min_devices", NULL, GANTRY_FIELD_OPT_U64, CONFIG(min_devices) },
	{ "max_devices", NULL, GANTRY_FIELD_OPT_U64, CONFIG(max_devices) },
	{ "max_sessions", NULL, GANTRY_FIELD_OPT_U64, CONFIG(sessions) },
	{ "max_queues", NULL, GANTRY_FIELD_OPT_U64, CONFIG(queues) },
	{ "max_inflight", NULL, GANTRY_FIELD_OPT_U64, CONFIG(inflight) },
	{ "deadline_ns", NULL, GANTRY_FIELD_OPT_NS, CONFIG(deadline_ns) },
	{ "on_full", NULL, GANTRY_FIELD_TEXT, CONFIG(on_full) },
	{ "recipes", NULL, GANTRY_FIELD_TEXT, CONFIG(recipes) },
	{ "communicators", NULL, GANTRY_FIELD_OPT_U64, CONFIG(communicators) },
	{ "door", NULL, GANTRY_FIELD_TEXT, CONFIG(door) },
	{ "door_mode", NULL, GANTRY_FIELD_TEXT, CONFIG(door_mode) },
	{ "door_owner", NULL, GANTRY_FIELD_TEXT, CONFIG(door_owner) },
	{ "ivshmem", NULL, GANTRY_FIELD_OPT_U64, CONFIG(ivshmem) },
	{ "ivshmem_bytes", NULL, GANTRY_FIELD_OPT_BYTES, CONFIG(ivshmem_bytes) },
	{ "ivshmem_vectors", NULL, GANTRY_FIELD_OPT_U64, CONFIG(ivshmem_vectors) },
	{ "ivshmem_machines", NULL, GANTRY_FIELD_OPT_U64, CONFIG(ivshmem_machines) },
	{ "ivshmem_mode", NULL, GANTRY_FIELD_TEXT, CONFIG(ivshmem_mode) },
	{ "ivshmem_owner", NULL, GANTRY_FIELD_TEXT, CONFIG(ivshmem_owner) },
	{ "vsock_cid", NULL, GANTRY_FIELD_OPT_U64, CONFIG(vsock_cid) },
	{ "source", NULL, GANTRY_FIELD_TEXT, TENANT(source) },
	{ "device_ns", "TIME", GANTRY_FIELD_NS, TENANT(device_ns) },
	{ "tasks_finished", "DONE", GANTRY_FIELD_U64, TENANT(tasks_finished) },
	{ "tasks_failed", "FAILED", GANTRY_FIELD_U64, TENANT(tasks_failed) },
	{ "denied", "DENIED", GANTRY_FIELD_U64, TENANT(denied) },
	{ "protocol_errors", NULL, GANTRY_FIELD_U64, TENANT(protocol_errors) },
	{ "worker_restarts", NULL, GANTRY_FIELD_U64, TENANT(worker_restarts) },
};
FIELDS(gantry_tenant_fields, "tenant", "tenants", tenant_list);

#define SESSION(member) AT(Gantry__Admin__Session, member)
static const struct gantry_field session_list[] = {
	{ "session_id", "SESSION", GANTRY_FIELD_U64, SESSION(session_id) },
	{ "tenant", "TENANT", GANTRY_FIELD_TEXT, SESSION(tenant) },
	{ "program", "PROGRAM", GANTRY_FIELD_TEXT, SESSION(program) },
	{ "pid", "PID", GANTRY_FIELD_U32, SESSION(pid) },
	{ "uid", NULL, GANTRY_FIELD_U32, SESSION(uid) },
	{ "mode", "MODE", GANTRY_FIELD_TEXT, SESSION(mode) },
	{ "state", "STATE", GANTRY_FIELD_TEXT, SESSION(state) },
	{ "worker_id", NULL, GANTRY_FIELD_U64, SESSION(worker_id) },
	{ "worker_pid", "WORKER", GANTRY_FIELD_U32, SESSION(worker_pid) },
	{ "queues", "QUEUES", GANTRY_FIELD_U32, SESSION(queues) },
	{ "buffers", NULL, GANTRY_FIELD_U64, SESSION(buffers) },
	{ "replicas", NULL, GANTRY_FIELD_U32, SESSION(replicas) },
	{ "replica_bytes", NULL, GANTRY_FIELD_BYTES, SESSION(replica_bytes) },
	{ "moved_bytes", NULL, GANTRY_FIELD_BYTES, SESSION(moved_bytes) },
	{ "resident_used", "USED", GANTRY_FIELD_BYTES, SESSION(resident_used) },
	{ "resident_peak", NULL, GANTRY_FIELD_BYTES, SESSION(resident_peak) },
	{ "virtual_used", NULL, GANTRY_FIELD_BYTES, SESSION(virtual_used) },
	{ "segment_bytes", NULL, GANTRY_FIELD_BYTES, SESSION(segment_bytes) },
	{ "device_ns", "TIME", GANTRY_FIELD_NS, SESSION(device_ns) },
	{ "tasks_finished", "DONE", GANTRY_FIELD_U64, SESSION(tasks_finished) },
	{ "tasks_failed", "FAILED", GANTRY_FIELD_U64, SESSION(tasks_failed) },
	{ "epoch", NULL, GANTRY_FIELD_U64, SESSION(epoch) },
	{ "version", NULL, GANTRY_FIELD_U32, SESSION(version) },
	{ "worker_restarts", NULL, GANTRY_FIELD_U64, SESSION(worker_restarts) },
	{ "attached_unix_ns", NULL, GANTRY_FIELD_TIME, SESSION(attached_unix_ns) },
	{ "door", NULL, GANTRY_FIELD_TEXT, SESSION(door) },
	{ "wakeup", NULL, GANTRY_FIELD_TEXT, SESSION(wakeup) },
	{ "machine", NULL, GANTRY_FIELD_U64, SESSION(machine) },
	{ "desk", NULL, GANTRY_FIELD_U32, SESSION(desk) },
	{ "mapping", NULL, GANTRY_FIELD_TEXT, SESSION(mapping) },
	{ "read_mib_per_s", NULL, GANTRY_FIELD_U32, SESSION(read_mib_per_s) },
	{ "write_mib_per_s", NULL, GANTRY_FIELD_U32, SESSION(write_mib_per_s) },
	{ "address", NULL, GANTRY_FIELD_U64, SESSION(address) },
	{ "translated", NULL, GANTRY_FIELD_BOOL, SESSION(translated) },
};
FIELDS(gantry_session_fields, "session", "sessions", session_list);

#define MISSING(member) AT(Gantry__Admin__Missing, member)
static const struct gantry_field missing_list[] = {
	{ "name", "FUNCTION", GANTRY_FIELD_TEXT, MISSING(name) },
	{ "calls", "CALLS", GANTRY_FIELD_U64, MISSING(calls) },
};
FIELDS(gantry_missing_fields, "function", "unsupported", missing_list);

#define QUEUE(member) AT(Gantry__Admin__Queue, member)
static const struct gantry_field queue_list[] = {
	{ "session_id", "SESSION", GANTRY_FIELD_U64, QUEUE(session_id) },
	{ "slot", "SLOT", GANTRY_FIELD_U32, QUEUE(slot) },
	{ "tenant", "TENANT", GANTRY_FIELD_TEXT, QUEUE(tenant) },
	{ "device", "DEVICE", GANTRY_FIELD_TEXT, QUEUE(device) },
	{ "lane", "LANE", GANTRY_FIELD_OPT_U64, QUEUE(lane) },
	{ "priority", "PRIORITY", GANTRY_FIELD_I32, QUEUE(priority) },
	{ "paused", "PAUSED", GANTRY_FIELD_BOOL, QUEUE(paused) },
	{ "submitted", "SUBMITTED", GANTRY_FIELD_U64, QUEUE(submitted) },
	{ "taken", "TAKEN", GANTRY_FIELD_U64, QUEUE(taken) },
	{ "issued", "ISSUED", GANTRY_FIELD_U64, QUEUE(issued) },
	{ "done", "DONE", GANTRY_FIELD_U64, QUEUE(done) },
	{ "failed", "FAILED", GANTRY_FIELD_U64, QUEUE(failed) },
	{ "device_ns", "TIME", GANTRY_FIELD_NS, QUEUE(device_ns) },
};
FIELDS(gantry_queue_fields, "queue", "queues", queue_list);

#define WORKER(member) AT(Gantry__Admin__Worker, member)
static const struct gantry_field worker_list[] = {
	{ "worker_id", "WORKER", GANTRY_FIELD_U64, WORKER(worker_id) },
	{ "pid", "PID", GANTRY_FIELD_U32, WORKER(pid) },
	{ "mode", "MODE", GANTRY_FIELD_TEXT, WORKER(mode) },
	{ "trust_group", "GROUP", GANTRY_FIELD_TEXT, WORKER(trust_group) },
	{ "state", "STATE", GANTRY_FIELD_TEXT, WORKER(state) },
	{ "sessions", "SESSIONS", GANTRY_FIELD_U32, WORKER(sessions) },
	{ "compute_percent", NULL, GANTRY_FIELD_U32, WORKER(compute_percent) },
	{ "mps_server", NULL, GANTRY_FIELD_U32, WORKER(mps_server) },
	{ "mps_priority", NULL, GANTRY_FIELD_U32, WORKER(mps_priority) },
	{ "version", NULL, GANTRY_FIELD_TEXT, WORKER(version) },
	{ "other_build", "OTHER BUILD", GANTRY_FIELD_BOOL, WORKER(other_build) },
	{ "looking", NULL, GANTRY_FIELD_BOOL, WORKER(looking) },
	{ "confined", "CONFINED BY", GANTRY_FIELD_LIST, WORKER(n_confined) },
	{ "unconfined", "NOT BY", GANTRY_FIELD_LIST, WORKER(n_unconfined) },
};
FIELDS(gantry_worker_fields, "worker", "workers", worker_list);

#define POLICY(member) AT(Gantry__Admin__Policy, member)
static const struct gantry_field policy_list[] = {
	{ "name", "POLICY", GANTRY_FIELD_TEXT, POLICY(name) },
	{ "state", "STATE", GANTRY_FIELD_TEXT, POLICY(state) },
	{ "source", "SOURCE", GANTRY_FIELD_TEXT, POLICY(source) },
	{ "groups", "GROUPS", GANTRY_FIELD_LIST, POLICY(n_groups) },
	{ "summary", "WHAT IT DOES", GANTRY_FIELD_TEXT, POLICY(summary) },
	{ "reason", NULL, GANTRY_FIELD_TEXT, POLICY(reason) },
	{ "pid", NULL, GANTRY_FIELD_U32, POLICY(pid) },
	{ "fallback", NULL, GANTRY_FIELD_TEXT, POLICY(fallback) },
	{ "timeout_ns", NULL, GANTRY_FIELD_OPT_NS, POLICY(timeout_ns) },
};
FIELDS(gantry_policy_fields, "policy", "policies", policy_list);

#define GROUP(member) AT(Gantry__Admin__Group, member)
static const struct gantry_field group_list[] = {
	{ "name", "GROUP", GANTRY_FIELD_TEXT, GROUP(name) },
	{ "devices", "DEVICES", GANTRY_FIELD_TEXT, GROUP(devices) },
	{ "policy", "POLICY", GANTRY_FIELD_TEXT, GROUP(policy) },
	{ "options", NULL, GANTRY_FIELD_TEXT, GROUP(options) },
	{ "decides", "DECIDES", GANTRY_FIELD_TEXT, GROUP(decides) },
	{ "tenants", "TENANTS", GANTRY_FIELD_LIST, GROUP(n_tenants) },
	{ "decisions", "DECISIONS", GANTRY_FIELD_U64, GROUP(decisions) },
	{ "moves", "MOVES", GANTRY_FIELD_U64, GROUP(moves) },
	{ "failures", "FAILED", GANTRY_FIELD_U64, GROUP(failures) },
	{ "decide_ns", NULL, GANTRY_FIELD_NS, GROUP(decide_ns) },
	{ "last_move", "LATEST MOVE", GANTRY_FIELD_TEXT, GROUP(last_move) },
};
FIELDS(gantry_group_fields, "group", "groups", group_list);

#define MIGRATION(member) AT(Gantry__Admin__Migration, member)
static const struct gantry_field migration_list[] = {
	{ "migration_id", "MIGRATION", GANTRY_FIELD_U64, MIGRATION(id) },
	{ "kind", NULL, GANTRY_FIELD_TEXT, MIGRATION(kind) },
	{ "session_id", "SESSION", GANTRY_FIELD_U64, MIGRATION(session_id) },
	{ "slot", "QUEUE", GANTRY_FIELD_U32, MIGRATION(slot) },
	{ "tenant", "TENANT", GANTRY_FIELD_TEXT, MIGRATION(tenant) },
	{ "from", "FROM", GANTRY_FIELD_TEXT, MIGRATION(from) },
	{ "to", "TO", GANTRY_FIELD_TEXT, MIGRATION(to) },
	{ "why", NULL, GANTRY_FIELD_TEXT, MIGRATION(why) },
	{ "over", NULL, GANTRY_FIELD_BOOL, MIGRATION(over) },
	{ "last_bytes", NULL, GANTRY_FIELD_BYTES, MIGRATION(last_bytes) },
	{ "dirty_bytes", NULL, GANTRY_FIELD_BYTES, MIGRATION(dirty_bytes) },
	{ "direction", "WAY", GANTRY_FIELD_TEXT, MIGRATION(direction) },
	{ "host", "HOST", GANTRY_FIELD_TEXT, MIGRATION(host) },
	{ "port", NULL, GANTRY_FIELD_U32, MIGRATION(port) },
	{ "state", "STATE", GANTRY_FIELD_TEXT, MIGRATION(state) },
	{ "rounds", "ROUNDS", GANTRY_FIELD_U32, MIGRATION(rounds) },
	{ "owned_bytes", "OWNED", GANTRY_FIELD_BYTES, MIGRATION(owned_bytes) },
	{ "page_bytes", "MOVED", GANTRY_FIELD_BYTES, MIGRATION(page_bytes) },
	{ "sent_bytes", NULL, GANTRY_FIELD_BYTES, MIGRATION(sent_bytes) },
	{ "lazy", NULL, GANTRY_FIELD_BOOL, MIGRATION(lazy) },
	{ "pulled_bytes", NULL, GANTRY_FIELD_BYTES, MIGRATION(pulled_bytes) },
	{ "touched_bytes", NULL, GANTRY_FIELD_BYTES, MIGRATION(touched_bytes) },
	{ "elapsed_ns", "TIME", GANTRY_FIELD_NS, MIGRATION(elapsed_ns) },
	{ "drain_ns", NULL, GANTRY_FIELD_NS, MIGRATION(drain_ns) },
	{ "downtime_ns", "DOWN", GANTRY_FIELD_NS, MIGRATION(downtime_ns) },
	{ "dry_run", NULL, GANTRY_FIELD_BOOL, MIGRATION(dry_run) },
	{ "code", NULL, GANTRY_FIELD_I32, MIGRATION(code) },
	{ "text", "WHAT HAPPENED", GANTRY_FIELD_TEXT, MIGRATION(text) },
};
FIELDS(gantry_migration_fields, "migration", "migrations", migration_list);

#define KERNEL(member) AT(Gantry__Admin__Kernel, member)
static const struct gantry_field kernel_list[] = {
	{ "name", "KERNEL", GANTRY_FIELD_TEXT, KERNEL(name) },
	{ "module", "MODULE", GANTRY_FIELD_TEXT, KERNEL(module) },
	{ "module_version", "VERSION", GANTRY_FIELD_U32, KERNEL(module_version) },
	{ "kinds", "KINDS", GANTRY_FIELD_LIST, KERNEL(n_kinds) },
	{ "pure", "PURE", GANTRY_FIELD_BOOL, KERNEL(pure) },
	{ "split", "SPLIT", GANTRY_FIELD_BOOL, KERNEL(split) },
	{ "signature", "SIGNATURE", GANTRY_FIELD_TEXT, KERNEL(signature) },
};
FIELDS(gantry_kernel_fields, "kernel", "kernels", kernel_list);

#define IMAGE(member) AT(Gantry__Admin__Image, member)
static const struct gantry_field image_list[] = {
	{ "name", "IMAGE", GANTRY_FIELD_TEXT, IMAGE(name) },
	{ "device", "DEVICE", GANTRY_FIELD_TEXT, IMAGE(device) },
	{ "version", "VERSION", GANTRY_FIELD_U32, IMAGE(version) },
	{ "board", "BOARD", GANTRY_FIELD_TEXT, IMAGE(board) },
	{ "tenant", "TENANT", GANTRY_FIELD_TEXT, IMAGE(tenant) },
	{ "configure_ns", "LOADING", GANTRY_FIELD_NS, IMAGE(configure_ns) },
	{ "memory_kept", NULL, GANTRY_FIELD_BOOL, IMAGE(memory_kept) },
	{ "sessions", "SESSIONS", GANTRY_FIELD_U32, IMAGE(sessions) },
	{ "leaving", "LEAVING", GANTRY_FIELD_BOOL, IMAGE(leaving) },
	{ "tasks", NULL, GANTRY_FIELD_U64, IMAGE(tasks) },
	{ "waits_for", NULL, GANTRY_FIELD_U32, IMAGE(waits_for) },
	{ "waits_first", NULL, GANTRY_FIELD_TEXT, IMAGE(waits_first) },
	{ "problem", "PROBLEM", GANTRY_FIELD_TEXT, IMAGE(problem) },
};
FIELDS(gantry_image_fields, "image", "images", image_list);

#define IMAGE_KERNEL(member) AT(Gantry__Admin__ImageKernel, member)
static const struct gantry_field image_kernel_list[] = {
	{ "name", "KERNEL", GANTRY_FIELD_TEXT, IMAGE_KERNEL(name) },
	{ "window", "WINDOW", GANTRY_FIELD_U32, IMAGE_KERNEL(window) },
	{ "units", "UNITS", GANTRY_FIELD_U32, IMAGE_KERNEL(units) },
	{ "slower_percent", "SLOWER", GANTRY_FIELD_U32, IMAGE_KERNEL(slower_percent) },
	{ "run_ns", "RUN", GANTRY_FIELD_NS, IMAGE_KERNEL(run_ns) },
	{ "pure", "PURE", GANTRY_FIELD_BOOL, IMAGE_KERNEL(pure) },
	{ "signature", "SIGNATURE", GANTRY_FIELD_TEXT, IMAGE_KERNEL(signature) },
};
FIELDS(gantry_image_kernel_fields, "kernel", "kernels", image_kernel_list);

#define IMAGE_FILE(member) AT(Gantry__Admin__ImageFile, member)
static const struct gantry_field image_file_list[] = {
	{ "place", "PLACE", GANTRY_FIELD_TEXT, IMAGE_FILE(place) },
	{ "file", "FILE", GANTRY_FIELD_TEXT, IMAGE_FILE(file) },
	{ "bytes", "SIZE", GANTRY_FIELD_BYTES, IMAGE_FILE(bytes) },
	{ "sha256", "SHA256", GANTRY_FIELD_TEXT, IMAGE_FILE(sha256) },
};
FIELDS(gantry_image_file_fields, "file", "files", image_file_list);

#define EVENT(member) AT(Gantry__Admin__Event, member)
static const struct gantry_field event_list[] = {
	{ "unix_ns", "TIME", GANTRY_FIELD_TIME, EVENT(unix_ns) },
	{ "kind", "EVENT", GANTRY_FIELD_TEXT, EVENT(kind) },
	{ "tenant", "TENANT", GANTRY_FIELD_TEXT, EVENT(tenant) },
	{ "session_id", "SESSION", GANTRY_FIELD_U64, EVENT(session_id) },
	{ "worker_id", "WORKER", GANTRY_FIELD_U64, EVENT(worker_id) },
	{ "device", "DEVICE", GANTRY_FIELD_TEXT, EVENT(device) },
	{ "text", "TEXT", GANTRY_FIELD_TEXT, EVENT(text) },
};
FIELDS(gantry_event_fields, "event", "events", event_list);

#define CHECK(member) AT(Gantry__Admin__Check, member)
static const struct gantry_field check_list[] = {
	{ "name", "CHECK", GANTRY_FIELD_TEXT, CHECK(name) },
	{ "state", "STATE", GANTRY_FIELD_TEXT, CHECK(state) },
	{ "text", "FOUND", GANTRY_FIELD_TEXT, CHECK(text) },
	{ "advice", NULL, GANTRY_FIELD_TEXT, CHECK(advice) },
};
FIELDS(gantry_check_fields, "check", "checks", check_list);

#define METRIC(member) AT(Gantry__Admin__Metric, member)
static const struct gantry_field metric_list[] = {
	{ "name", "METRIC", GANTRY_FIELD_TEXT, METRIC(name) },
	{ "labels", "LABELS", GANTRY_FIELD_TEXT, METRIC(labels) },
	{ "value", "VALUE", GANTRY_FIELD_DOUBLE, METRIC(value) },
};
FIELDS(gantry_metric_fields, "metric", "metrics", metric_list);

#define VERSION(member) AT(Gantry__Admin__Version, member)
static const struct gantry_field version_list[] = {
	{ "version", "AGENT", GANTRY_FIELD_TEXT, VERSION(agent) },
	{ "wire_min", "WIRE MIN", GANTRY_FIELD_U32, VERSION(wire_min) },
	{ "wire_max", "WIRE MAX", GANTRY_FIELD_U32, VERSION(wire_max) },
	{ "started_unix_ns", "STARTED", GANTRY_FIELD_TIME, VERSION(started_unix_ns) },
	{ "pid", "PID", GANTRY_FIELD_U32, VERSION(agent_pid) },
	{ "monitor_pid", "MONITOR", GANTRY_FIELD_U32, VERSION(monitor_pid) },
	{ "restarts", "RESTARTS", GANTRY_FIELD_U64, VERSION(agent_restarts) },
};
FIELDS(gantry_version_fields, "agent", "agents", version_list);

#define PEER_DEVICE(member) AT(Gantry__Peer__Device, member)
static const struct gantry_field peer_device_list[] = {
	{ "name", "DEVICE", GANTRY_FIELD_TEXT, PEER_DEVICE(name) },
	{ "kind", "KIND", GANTRY_FIELD_TEXT, PEER_DEVICE(kind) },
	{ "state", "STATE", GANTRY_FIELD_TEXT, PEER_DEVICE(state) },
	{ "lanes", "LANES", GANTRY_FIELD_U32, PEER_DEVICE(lanes) },
	{ "mem_used", "USED", GANTRY_FIELD_BYTES, PEER_DEVICE(mem_used) },
	{ "mem_bytes", "MEM", GANTRY_FIELD_BYTES, PEER_DEVICE(mem_bytes) },
};
FIELDS(gantry_peer_device_fields, "device", "devices", peer_device_list);

const char *gantry_device_state_name(int state)
{
	switch (state) {
	case GANTRY__ADMIN__DEVICE_STATE__ENABLED:
		return "enabled";
	case GANTRY__ADMIN__DEVICE_STATE__DISABLED:
		return "disabled";
	case GANTRY__ADMIN__DEVICE_STATE__DRAINING:
		return "draining";
	case GANTRY__ADMIN__DEVICE_STATE__FAILED:
		return "failed";
	default:
		return "unknown";
	}
}

void gantry_time_format(uint64_t unix_ns, char buf[40])
{
	time_t seconds = (time_t)(unix_ns / GANTRY_NS_PER_S);
	struct tm tm;
	char day[24] = "";

	if (gmtime_r(&seconds, &tm))
		(void)strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm); /* fits */
	(void)snprintf(buf, 40, "%s.%09" PRIu64 "Z", day, (uint64_t)(unix_ns % GANTRY_NS_PER_S));
}

/* The field's place in @object; NULL where the message it is in is absent. */
static const void *place_of(const struct gantry_field *field, const void *object)
{
	const char *at = object;
	const char *inner;

	if (field->via) {
		memcpy(&inner, at + field->via, sizeof(inner));
		at = inner;
	}
	return at ? at + field->off : NULL;
}

static bool is_optional(enum gantry_field_type type)
{
	return type >= GANTRY_FIELD_OPT_U64;
}

static enum gantry_field_type plain_type(enum gantry_field_type type)
{
	switch (type) {
	case GANTRY_FIELD_OPT_BYTES:
		return GANTRY_FIELD_BYTES;
	case GANTRY_FIELD_OPT_NS:
		return GANTRY_FIELD_NS;
	case GANTRY_FIELD_OPT_U64:
		return GANTRY_FIELD_U64;
	default:
		return type;
	}
}

/* Where the value itself is; NULL: absent. */
static const void *value_of(const struct gantry_field *field, const void *object)
{
	const char *at = place_of(field, object);
	const char *message;

	if (!at || !is_optional(field->type))
		return at;
	memcpy(&message, at, sizeof(message));
	if (!message)
		return NULL;
	return message + (field->type == GANTRY_FIELD_OPT_I64
				  ? offsetof(Gantry__Admin__SInt, value)
				  : offsetof(Gantry__Admin__UInt, value));
}

/* A repeated string field is its count, then its array. */
static size_t list_of(const void *at, char ***ret_items)
{
	size_t count;

	memcpy(&count, at, sizeof(count));
	memcpy(ret_items, (const char *)at + sizeof(count), sizeof(*ret_items));
	return count;
}

static json_object *json_list(const void *at)
{
	json_object *array = json_object_new_array();
	char **items;
	size_t n = list_of(at, &items);

	for (size_t i = 0; i < n; i++)
		json_object_array_add(array, json_object_new_string(items[i]));
	return array;
}

static json_object *json_value(const struct gantry_field *field, const void *at)
{
	switch (field->type) {
	case GANTRY_FIELD_TEXT:
		return json_object_new_string(*(char *const *)at ? *(char *const *)at : "");
	case GANTRY_FIELD_LIST:
		return json_list(at);
	case GANTRY_FIELD_BOOL:
		return json_object_new_boolean(*(const protobuf_c_boolean *)at);
	case GANTRY_FIELD_U32:
		return json_object_new_uint64(*(const uint32_t *)at);
	case GANTRY_FIELD_I32:
		return json_object_new_int(*(const int32_t *)at);
	case GANTRY_FIELD_STATE:
		return json_object_new_string(
			gantry_device_state_name((int)*(const Gantry__Admin__DeviceState *)at));
	case GANTRY_FIELD_DOUBLE:
		return json_object_new_double(*(const double *)at);
	case GANTRY_FIELD_OPT_I64:
		return json_object_new_int64(*(const int64_t *)at);
	default:
		return json_object_new_uint64(*(const uint64_t *)at);
	}
}

json_object *gantry_fields_json(const struct gantry_fields *fields, const void *object)
{
	json_object *result = json_object_new_object();

	for (size_t i = 0; i < fields->n; i++) {
		const void *at = value_of(&fields->list[i], object);

		json_object_object_add(result, fields->list[i].key,
				       at ? json_value(&fields->list[i], at) : NULL);
	}
	return result;
}

static char *text_list(const void *at)
{
	char *text = NULL;
	size_t len, n;
	char **items;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	n = list_of(at, &items);
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%s%s", i ? "," : "", items[i]);
	fclose(out);
	return text;
}

static void quantity_text(enum gantry_field_type type, uint64_t value, bool raw, char *buf,
			  size_t cap)
{
	if (type == GANTRY_FIELD_BYTES && !raw)
		gantry_size_format_rounded(value, buf);
	else if (type == GANTRY_FIELD_NS && !raw)
		gantry_duration_format_rounded(value, buf);
	else
		(void)snprintf(buf, cap, "%" PRIu64, value);
}

static char *value_text(const struct gantry_field *field, const void *at, bool raw)
{
	char buf[64];

	switch (plain_type(field->type)) {
	case GANTRY_FIELD_TEXT:
		return strdup(*(char *const *)at ? *(char *const *)at : "");
	case GANTRY_FIELD_LIST:
		return text_list(at);
	case GANTRY_FIELD_BOOL:
		return strdup(*(const protobuf_c_boolean *)at ? "yes" : "no");
	case GANTRY_FIELD_STATE:
		return strdup(
			gantry_device_state_name((int)*(const Gantry__Admin__DeviceState *)at));
	case GANTRY_FIELD_U32:
		(void)snprintf(buf, sizeof(buf), "%" PRIu32, *(const uint32_t *)at);
		break;
	case GANTRY_FIELD_I32:
		(void)snprintf(buf, sizeof(buf), "%" PRId32, *(const int32_t *)at);
		break;
	case GANTRY_FIELD_OPT_I64:
		(void)snprintf(buf, sizeof(buf), "%" PRId64, *(const int64_t *)at);
		break;
	case GANTRY_FIELD_DOUBLE:
		(void)snprintf(buf, sizeof(buf), "%.15g", *(const double *)at);
		break;
	case GANTRY_FIELD_TIME:
		gantry_time_format(*(const uint64_t *)at, buf);
		break;
	default:
		quantity_text(plain_type(field->type), *(const uint64_t *)at, raw, buf,
			      sizeof(buf));
	}
	return strdup(buf);
}

char *gantry_field_text(const struct gantry_field *field, const void *object, bool raw)
{
	const void *at = value_of(field, object);
	char *text = at ? value_text(field, at, raw) : strdup("");

	for (char *c = text; c && *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return text;
}

bool gantry_field_is_number(const struct gantry_field *field)
{
	switch (field->type) {
	case GANTRY_FIELD_TEXT:
	case GANTRY_FIELD_LIST:
	case GANTRY_FIELD_BOOL:
	case GANTRY_FIELD_STATE:
	case GANTRY_FIELD_TIME:
		return false;
	default:
		return true;
	}
}
