/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/ctl/samples.h"

#include <stdio.h>

#include "base/array.h"

#define T(text) ((char *)(text))
#define UINT(name, number)                                                        \
	static Gantry__Admin__UInt name = {                                       \
		PROTOBUF_C_MESSAGE_INIT(&gantry__admin__uint__descriptor), number \
	}
#define BASE(type) PROTOBUF_C_MESSAGE_INIT(&gantry__admin__##type##__descriptor)

static char *opts[] = { T("cores=1"), T("mem=1G") };
static Gantry__Admin__Device cpu0 = {
	.base = BASE(device),
	.name = T("cpu0"),
	.kind = T("cpu"),
	.state = GANTRY__ADMIN__DEVICE_STATE__ENABLED,
	.lanes = 2,
	.units = 1,
	.mem_bytes = 1ull << 30,
	.mem_used = 3 << 20,
	.mem_peak = 5 << 20,
	.device_ns = 1234567890,
	.sessions = 2,
	.running = 1,
	.waiting = 1,
	.model = T("a processor"),
	.id = T("cpu:0"),
	.reason = T(""),
	.backend = T("cpu"),
	.n_opts = 2,
	.opts = opts,
};
static Gantry__Admin__Device cpu1 = {
	.base = BASE(device),
	.name = T("cpu1"),
	.kind = T("cpu"),
	.state = GANTRY__ADMIN__DEVICE_STATE__FAILED,
	.mem_bytes = UINT64_MAX,
	.model = T("a \"processor\""),
	.id = T("cpu:1"),
	.reason = T("it is gone"),
	.backend = T("cpu"),
};
UINT(gpu_clock, 1980);
UINT(gpu_mem_clock, 3201);
UINT(gpu_board_used, 3ull << 30);
UINT(gpu_board, 141ull << 30);
UINT(gpu_ecc, 0);
UINT(gpu_faults, 2);
UINT(gpu_last_fault, 31);
UINT(gpu_health_age, 1500000000);
static Gantry__Admin__SInt gpu_temperature = {
	PROTOBUF_C_MESSAGE_INIT(&gantry__admin__sint__descriptor), 36
};
static Gantry__Admin__SInt gpu_node = { PROTOBUF_C_MESSAGE_INIT(&gantry__admin__sint__descriptor),
					1 };
const Gantry__Admin__Device gantry_sample_gpu = {
	.base = BASE(device),
	.name = T("cuda0"),
	.kind = T("cuda"),
	.state = GANTRY__ADMIN__DEVICE_STATE__ENABLED,
	.lanes = 16,
	.units = 132,
	.mem_bytes = 128ull << 30,
	.model = T("a GPU"),
	.id = T("GPU-1"),
	.reason = T(""),
	.backend = T("cuda"),
	.arch = T("sm_90"),
	.numa_node = &gpu_node,
	.slab_bytes = 64 << 20,
	.slab_pool_bytes = 128 << 20,
	.slab_dirty_bytes = 2 << 20,
	.temperature_c = &gpu_temperature,
	.clock_mhz = &gpu_clock,
	.mem_clock_mhz = &gpu_mem_clock,
	.board_mem_used = &gpu_board_used,
	.board_mem_bytes = &gpu_board,
	.ecc_uncorrected = &gpu_ecc,
	.faults = &gpu_faults,
	.last_fault = &gpu_last_fault,
	.health_age_ns = &gpu_health_age,
};
static Gantry__Admin__Device *device_ptrs[] = { &cpu0, &cpu1 };
static Gantry__Admin__DeviceList devices = { .base = BASE(device_list),
					     .n_devices = 2,
					     .devices = device_ptrs };

UINT(mem, 256ull << 20);
UINT(virt, 1ull << 30);
UINT(weight, 3);
UINT(nsessions, 8);
UINT(lane, 2);
static Gantry__Admin__SInt priority = { .base = BASE(sint), .value = -2 };
static char red_door[108] = "/run/gantry/doors/red/door",
	    blue_door[108] = "/run/gantry/doors/blue/door";
static Gantry__Admin__TenantSet red_config = {
	.base = BASE(tenant_set),
	.name = T("red"),
	.mem_bytes = &mem,
	.virtual_bytes = &virt,
	.weight = &weight,
	.priority = &priority,
	.sessions = &nsessions,
	.isolation = T("isolated"),
	.trust_group = T(""),
	.devices = T("all"),
	.door = red_door,
	.door_mode = T("0666"),
	.door_owner = T(""),
	.on_full = T("refuse"),
	.recipes = T("always"),
};
static Gantry__Admin__TenantSet blue_config = {
	.base = BASE(tenant_set),
	.name = T("blue"),
	.isolation = T("pooled"),
	.trust_group = T("lab"),
	.devices = T("cpu0"),
	.door = blue_door,
	.door_mode = T("0660"),
	.door_owner = T("nobody"),
	.on_full = T("queue"),
};
static Gantry__Admin__Tenant red = {
	.base = BASE(tenant),
	.config = &red_config,
	.source = T("/etc/gantry/gantryd.conf:12"),
	.sessions = 1,
	.mem_used = 2 << 20,
	.mem_peak = 4 << 20,
	.virtual_used = 8 << 20,
	.host_mem_used = 64 << 20,
	.device_ns = 999999999,
	.tasks_finished = 1000000,
	.tasks_failed = 1,
	.denied = 2,
	.protocol_errors = 3,
	.worker_restarts = 4,
	.state = T("open"),
};
static Gantry__Admin__Tenant blue = {
	.base = BASE(tenant),
	.config = &blue_config,
	.source = T("cli"),
	.state = T("open"),
};
static Gantry__Admin__Tenant *tenant_ptrs[] = { &red, &blue };
static Gantry__Admin__TenantList tenants = { .base = BASE(tenant_list),
					     .n_tenants = 2,
					     .tenants = tenant_ptrs };

static Gantry__Admin__Session session = {
	.base = BASE(session),
	.session_id = 7,
	.replicas = 2,
	.replica_bytes = 8192,
	.moved_bytes = 12288,
	.tenant = T("red"),
	.program = T("evil\033[2J\nname"),
	.pid = 4242,
	.uid = 1000,
	.worker_id = 3,
	.worker_pid = 4300,
	.mode = T("isolated"),
	.state = T("attached"),
	.version = 1,
	.epoch = 1,
	.segment_bytes = 64 << 20,
	.virtual_used = 8 << 20,
	.resident_used = 2 << 20,
	.resident_peak = 4 << 20,
	.tasks_finished = 1000000,
	.tasks_failed = 1,
	.device_ns = 999999999,
	.queues = 2,
	.buffers = 5,
	.attached_unix_ns = 1700000000123456789ull,
	.worker_restarts = 1,
	.door = T("unix"),
	.wakeup = T("futex"),
	.mapping = T(""),
};
static Gantry__Admin__Session *session_ptrs[] = { &session };
static Gantry__Admin__SessionList sessions = { .base = BASE(session_list),
					       .n_sessions = 1,
					       .sessions = session_ptrs };

static Gantry__Admin__Queue queue = {
	.base = BASE(queue),
	.session_id = 7,
	.tenant = T("red"),
	.slot = 1,
	.device = T("cpu0"),
	.lane = &lane,
	.priority = -1,
	.paused = 1,
	.submitted = 120,
	.taken = 110,
	.issued = 105,
	.done = 100,
	.failed = 2,
	.device_ns = 5000,
};
static Gantry__Admin__Queue *queue_ptrs[] = { &queue };
static Gantry__Admin__QueueList queues = { .base = BASE(queue_list),
					   .n_queues = 1,
					   .queues = queue_ptrs };

static char *confined[] = { T("seccomp"), T("nnp") },
	    *unconfined[] = { T("cgroup: no permission") };
static Gantry__Admin__Worker worker = {
	.base = BASE(worker),
	.worker_id = 3,
	.pid = 4300,
	.mode = T("isolated"),
	.trust_group = T(""),
	.state = T("busy"),
	.sessions = 1,
	.version = T("0.0.9"),
	.other_build = 1,
	.n_confined = 2,
	.confined = confined,
	.n_unconfined = 1,
	.unconfined = unconfined,
};
static Gantry__Admin__Worker *worker_ptrs[] = { &worker };
static Gantry__Admin__WorkerList workers = { .base = BASE(worker_list),
					     .n_workers = 1,
					     .workers = worker_ptrs };

static char *groups_of[] = { T("-"), T("gpus") }, *tenants_of[] = { T("red") };
UINT(policy_timeout, 20000000);
static Gantry__Admin__Policy elastic = {
	.base = BASE(policy),
	.name = T("elastic"),
	.summary = T("queues spread"),
	.source = T("built in"),
	.state = T("ready"),
	.reason = T(""),
	.fallback = T(""),
	.n_groups = 1,
	.groups = groups_of,
};
static Gantry__Admin__Policy mine = {
	.base = BASE(policy),
	.name = T("mine"),
	.summary = T("as \"I\" like it"),
	.source = T("/usr/lib/gantry/policies/mine.so"),
	.state = T("failed"),
	.reason = T("it did not answer within 20ms"),
	.pid = 77,
	.fallback = T("elastic"),
	.timeout_ns = &policy_timeout,
	.n_groups = 1,
	.groups = groups_of + 1,
};
static Gantry__Admin__Policy *policy_ptrs[] = { &elastic, &mine };
static Gantry__Admin__PolicyList policies = { .base = BASE(policy_list),
					      .n_policies = 2,
					      .policies = policy_ptrs };
static Gantry__Admin__Group group = {
	.base = BASE(group),
	.name = T("gpus"),
	.devices = T("gpu0,gpu1"),
	.policy = T("mine"),
	.options = T("eager=1"),
	.decides = T("elastic"),
	.n_tenants = 1,
	.tenants = tenants_of,
	.decisions = 1000,
	.moves = 12,
	.failures = 1,
	.decide_ns = 4500000,
	.last_move = T("7:2 from gpu0 to gpu1: gpu1 has less to do"),
};
static Gantry__Admin__Group *group_ptrs[] = { &group };
static Gantry__Admin__GroupList groups = { .base = BASE(group_list),
					   .n_groups = 1,
					   .groups = group_ptrs };

static char *kinds[] = { T("cpu") }, *problems[] = { T("bad.manifest:3: no such type f16") };
static Gantry__Admin__Kernel kernel = {
	.base = BASE(kernel),
	.name = T("saxpy"),
	.module = T("core"),
	.module_version = 1,
	.signature = T("f32,r:f32*,rw:f32*,u64"),
	.n_kinds = 1,
	.kinds = kinds,
	.split = 1,
};
static Gantry__Admin__Kernel *kernel_ptrs[] = { &kernel };
static Gantry__Admin__KernelList kernels = {
	.base = BASE(kernel_list),
	.n_kernels = 1,
	.kernels = kernel_ptrs,
	.n_problems = 1,
	.problems = problems,
};

static Gantry__Admin__Metric metric1 = {
	.base = BASE(metric),
	.name = T("gantry_tenant_memory_used_bytes"),
	.labels = T("tenant=\"red\""),
	.value = 2097152,
};
static Gantry__Admin__Metric metric2 = {
	.base = BASE(metric),
	.name = T("gantry_worker_restarts_total"),
	.labels = T(""),
	.value = 4,
};
static Gantry__Admin__Metric *metric_ptrs[] = { &metric1, &metric2 };
static Gantry__Admin__Stats stats = { .base = BASE(stats), .n_metrics = 2, .metrics = metric_ptrs };

static Gantry__Admin__Check check1 = {
	.base = BASE(check),
	.name = T("journal"),
	.state = T("ok"),
	.text = T("/run/gantry is a tmpfs"),
	.advice = T(""),
};
static Gantry__Admin__Check check2 = {
	.base = BASE(check),
	.name = T("cgroup"),
	.state = T("warn"),
	.text = T("no delegation"),
	.advice = T("set Delegate=yes"),
};
static Gantry__Admin__Check *check_ptrs[] = { &check1, &check2 };
static Gantry__Admin__Doctor doctor = { .base = BASE(doctor), .n_checks = 2, .checks = check_ptrs };

static Gantry__Admin__Version version = {
	.base = BASE(version),
	.agent = T("0.1.0"),
	.wire_min = 1,
	.wire_max = 1,
	.started_unix_ns = 1700000000000000000ull,
	.agent_pid = 4000,
	.monitor_pid = 3999,
	.agent_restarts = 1,
};

static Gantry__Admin__Event attached = {
	.base = BASE(event),
	.unix_ns = 1700000000123456789ull,
	.kind = T("session-attached"),
	.tenant = T("red"),
	.session_id = 7,
	.worker_id = 3,
	.device = T(""),
	.text = T("photo, pid 4242"),
};
static Gantry__Admin__Event died = {
	.base = BASE(event),
	.unix_ns = 1700000001123456789ull,
	.kind = T("worker-died"),
	.tenant = T("red"),
	.worker_id = 3,
	.device = T("cpu0"),
	.text = T("killed by \"signal 9\"\nand more"),
};
Gantry__Admin__Event *const gantry_sample_events[] = { &attached, &died };
const size_t gantry_sample_nevents = GANTRY_ARRAY_SIZE(gantry_sample_events);

static Gantry__Peer__Device peer_device = {
	.base = PROTOBUF_C_MESSAGE_INIT(&gantry__peer__device__descriptor),
	.name = T("cpu0"),
	.kind = T("cpu"),
	.state = T("enabled"),
	.lanes = 2,
	.mem_bytes = 1ull << 30,
	.mem_used = 0,
};
Gantry__Peer__Device *const gantry_sample_peer_devices[] = { &peer_device };
const size_t gantry_sample_npeer_devices = GANTRY_ARRAY_SIZE(gantry_sample_peer_devices);

void gantry_sample_doors(const char *dir)
{
	(void)snprintf(red_door, sizeof(red_door), "%s/red/door", dir);
	(void)snprintf(blue_door, sizeof(blue_door), "%s/blue/door", dir);
}

static Gantry__Admin__Migration migration = {
	.base = BASE(migration),
	.id = 3,
	.kind = T("session"),
	.session_id = 7,
	.tenant = T("red"),
	.direction = T("out"),
	.host = T("south"),
	.port = 16601,
	.state = T("done"),
	.text = T("the session has moved to south"),
	.rounds = 3,
	.owned_bytes = 256 << 20,
	.page_bytes = 300 << 20,
	.sent_bytes = 301 << 20,
	.elapsed_ns = 900000000,
	.drain_ns = 2000000,
	.downtime_ns = 90000000,
};
static Gantry__Admin__Migration *migration_ptrs[] = { &migration };
static Gantry__Admin__MigrationList migrations = { .base = BASE(migration_list),
						   .n_migrations = 1,
						   .migrations = migration_ptrs };

static Gantry__Admin__IvshmemDoor ivshmem_door = {
	.base = PROTOBUF_C_MESSAGE_INIT(&gantry__admin__ivshmem_door__descriptor),
	.socket = T("/run/gantry/doors/red/ivshmem.sock"),
	.size_bytes = 256 << 20,
	.max_bytes = 256 << 20,
	.vectors = 8,
	.max_peers = 1,
	.state = T("open"),
	.reason = T(""),
};
static Gantry__Admin__VsockDoor vsock_door = {
	.base = PROTOBUF_C_MESSAGE_INIT(&gantry__admin__vsock_door__descriptor),
	.cid = 42,
	.port = 7070,
	.socket = T(""),
	.state = T("open"),
	.reason = T(""),
};
static Gantry__Admin__Doors doors_of_red = {
	.base = PROTOBUF_C_MESSAGE_INIT(&gantry__admin__doors__descriptor),
	.tenant = T("red"),
	.ivshmem = &ivshmem_door,
	.vsock = &vsock_door,
};

int gantry_sample_reply(int body_case, Gantry__Admin__AdminReply *reply)
{
#define ANSWER(REQUEST, REPLY, member, message)                              \
	case GANTRY__ADMIN__ADMIN_REQUEST__BODY_##REQUEST:                   \
		reply->body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_##REPLY; \
		reply->member = &(message);                                  \
		return 0

	switch (body_case) {
		ANSWER(VERSION, VERSION, version, version);
		ANSWER(DEVICE_LIST, DEVICES, devices, devices);
		ANSWER(TENANT_LIST, TENANTS, tenants, tenants);
		ANSWER(SESSION_LIST, SESSIONS, sessions, sessions);
		ANSWER(QUEUE_LIST, QUEUES, queues, queues);
		ANSWER(KERNEL_LIST, KERNELS, kernels, kernels);
		ANSWER(STATS, STATS, stats, stats);
		ANSWER(WORKER_LIST, WORKERS, workers, workers);
		ANSWER(MIGRATION_LIST, MIGRATIONS, migrations, migrations);
		ANSWER(DOCTOR, DOCTOR, doctor, doctor);
		ANSWER(DOOR_SHOW, DOORS, doors, doors_of_red);
		ANSWER(POLICY_LIST, POLICIES, policies, policies);
		ANSWER(GROUP_LIST, GROUPS, groups, groups);
	default:
		return -1;
	}
#undef ANSWER
}
