/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration: what files and the state directory say, parsed into an object of its own.
 *
 * A struct gantry_config is built whole, checked whole, and only then put in place of an older one.
 * Sections: [agent], [device NAME], [tenant NAME], [group NAME], [policy NAME]; keys: gantry.conf(5). Strict: an unknown section
 * or key, a
 * bad value, a key given twice are errors with file, line and a sentence.
 *
 * Trust: text is input (fuzzed): bounded, and nothing in it is opened or run here.
 * Threads: one. Blocking: gantry_config_load() reads files.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_CONFIG_H
#define GANTRY_HOST_AGENT_AGENT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/str.h"

#define GANTRY_CONFIG_MAX_BYTES	   (1024u * 1024u)
#define GANTRY_CONFIG_MAX_DEVICES  8u /* as many as a worker opens */
#define GANTRY_CONFIG_MAX_TENANTS  256u
#define GANTRY_CONFIG_MAX_OPTS	   32u
#define GANTRY_CONFIG_MAX_GROUPS   GANTRY_CONFIG_MAX_DEVICES
#define GANTRY_CONFIG_MAX_POLICIES 16u
#define GANTRY_CONFIG_MAX_DIRS	   16u
#define GANTRY_CONFIG_MAX_UIDS	   32u
#define GANTRY_CONFIG_TEXT	   192u
#define GANTRY_CONFIG_SLAB_POOL	   (128ull << 20)
/* A door's memory holds its desks and the smallest segment. */
#define GANTRY_CONFIG_IVSHMEM_MIN (8ull << 20)
/*
 * Free in ordinary processes and under AddressSanitizer and ThreadSanitizer; a memfd there, registered
 * with an NVIDIA H200 (driver 580), has the same address on the device. Device memory is handed out from
 * 0x7fff... downwards, so places are given from the base upwards.
 */
#define GANTRY_CONFIG_SEGMENTS_BASE 0x7e8000000000ull
#define GANTRY_CONFIG_SEGMENTS_END  0x7f0000000000ull
#define GANTRY_CONFIG_NAME	    (GANTRY_NAME_LEN_MAX + 1)

/* How a tenant's sessions are kept apart; and, of workers, the steward's, which serves none. */
enum gantry_isolation {
	GANTRY_ISOLATED = 0,
	GANTRY_POOLED = 1,
	GANTRY_STEWARD = 2,
	GANTRY_PACKED = 3,
};

const char *gantry_isolation_name(uint32_t isolation);

enum gantry_on_full {
	GANTRY_ON_FULL_REFUSE = 0,
	GANTRY_ON_FULL_QUEUE = 1,
};

/* Of which sessions it is written down what makes objects of libraries anew. */
enum gantry_recipes_conf {
	GANTRY_RECIPES_MOVES = 0, /* that can go to another device */
	GANTRY_RECIPES_ALWAYS = 1,
	GANTRY_RECIPES_NO = 2,
};

struct gantry_agent_conf {
	char admin[GANTRY_CONFIG_TEXT]; /* path of the socket; "": RUNDIR/admin.sock */
	uint32_t admin_mode;
	char metrics[GANTRY_CONFIG_TEXT]; /* "": none; "unix:PATH" or "ADDRESS:PORT" */
	uint32_t warm_workers;		  /* isolated ones kept ready */
	uint32_t warm_packed; /* of each class of packed ones; none without warm_workers */
	uint32_t ndirs;
	char module_dirs[GANTRY_CONFIG_MAX_DIRS][GANTRY_CONFIG_TEXT];
	bool confine;
	char cgroup[GANTRY_CONFIG_TEXT]; /* "auto", "off", or a folder of a cgroup2 file system */
	char worker_user[GANTRY_CONFIG_TEXT]; /* "auto", "none", or user[:group] */
	uid_t worker_uid; /* what that means; 0: workers stay what the agent is */
	gid_t worker_gid;
	uint64_t segments_base; /* addresses of segments: [base, end); 0, 0: anywhere */
	uint64_t segments_end;
	uint64_t spin_ns; /* bound of a worker's idle spinning; 0: the worker's default */
	char mps[GANTRY_CONFIG_TEXT]; /* "auto", "off", or the control program's path */
	uint32_t mps_clients;	      /* of one MPS server */
	uint32_t mps_multiuser;	      /* enum gantry_mps_multiuser */
	uint32_t vsock_port;
	uint64_t vsock_grace_ns;    /* how long a session outlives its stream */
	uint64_t adoption_grace_ns; /* how long one that has arrived waits to be adopted */
	uint64_t
		machine_grace_ns; /* how long one whose machine has left waits to be sent after it */
	char policy[GANTRY_CONFIG_NAME]; /* of devices and tenants without a group */
	char policy_options[GANTRY_CONFIG_TEXT];
	char migration_listen[GANTRY_CONFIG_TEXT]; /* "ADDRESS:PORT"; "": no session comes in */
	char migration_certificates[GANTRY_CONFIG_TEXT]; /* folder; "": none goes out either */
	uint64_t migration_still_ns; /* how long a session may stand still for its last pages */
	char migration_name[64];     /* that our certificate is for; "": the host's name */
};

enum gantry_mps_multiuser {
	GANTRY_MPS_MULTIUSER_AUTO = 0,
	GANTRY_MPS_MULTIUSER_YES = 1,
	GANTRY_MPS_MULTIUSER_NO = 2,
};

/*
 * Clients that one MPS server takes: 48 before, 60 from the Hopper generation on, says NVIDIA's documentation of the
 * service (16 before Volta). The lower one unless configured.
 */
#define GANTRY_MPS_CLIENTS	   48u
#define GANTRY_MPS_CLIENTS_HIGHEST 60u

struct gantry_device_section {
	char name[GANTRY_CONFIG_NAME];
	char backend[GANTRY_CONFIG_NAME];
	uint64_t mem_bytes;		   /* 0: the backend's default */
	uint32_t lanes;			   /* 0: the backend's default */
	uint64_t turn_pause_ns;		   /* of a GPU: gantry_share_set_turn_pause() */
	uint64_t slab_pool_bytes;	   /* scrubbed slabs that are kept ready */
	char affinity[GANTRY_CONFIG_TEXT]; /* "": auto; "off"; a list of processors */
	uint32_t nopts;
	char opts[GANTRY_CONFIG_MAX_OPTS][GANTRY_CONFIG_TEXT]; /* "key=value", the backend's own */
};

/* [group NAME]: devices with a policy of their own, for the tenants that name the group. */
struct gantry_group_section {
	char name[GANTRY_CONFIG_NAME];
	char devices[GANTRY_CONFIG_TEXT * 4]; /* comma separated */
	char policy[GANTRY_CONFIG_NAME];
	char options[GANTRY_CONFIG_TEXT];
};

/* [policy NAME]: one that comes as a shared object. */
struct gantry_policy_section {
	char name[GANTRY_CONFIG_NAME];
	char path[GANTRY_CONFIG_TEXT];
	char fallback[GANTRY_CONFIG_NAME]; /* a built-in one, for while this one is not to be had */
	uint64_t timeout_ns;		   /* of one decision */
};

/* Bits of gantry_tenant_conf.set, one per key: which ones a source gave. */
enum gantry_tenant_key {
	GANTRY_TENANT_MEM = 1 << 0,
	GANTRY_TENANT_VIRTUAL = 1 << 1,
	GANTRY_TENANT_HEAP = 1 << 2,
	GANTRY_TENANT_HOST_MEM = 1 << 3,
	GANTRY_TENANT_WEIGHT = 1 << 4,
	GANTRY_TENANT_PRIORITY = 1 << 5,
	GANTRY_TENANT_SESSIONS = 1 << 6,
	GANTRY_TENANT_QUEUES = 1 << 7,
	GANTRY_TENANT_INFLIGHT = 1 << 8,
	GANTRY_TENANT_DEADLINE = 1 << 9,
	GANTRY_TENANT_ISOLATION = 1 << 10,
	GANTRY_TENANT_TRUST_GROUP = 1 << 11,
	GANTRY_TENANT_DEVICES = 1 << 12,
	GANTRY_TENANT_DOOR = 1 << 13,
	GANTRY_TENANT_DOOR_MODE = 1 << 14,
	GANTRY_TENANT_DOOR_OWNER = 1 << 15,
	GANTRY_TENANT_DOOR_UIDS = 1 << 16,
	GANTRY_TENANT_ON_FULL = 1 << 17,
	GANTRY_TENANT_WORKER_CPU = 1 << 18,
	GANTRY_TENANT_WORKER_MEM = 1 << 19,
	GANTRY_TENANT_WORKER_PIDS = 1 << 20,
	GANTRY_TENANT_COMPUTE_PERCENT = 1 << 21,
	GANTRY_TENANT_SPIN = 1 << 22,
	GANTRY_TENANT_IVSHMEM = 1 << 23,
	GANTRY_TENANT_IVSHMEM_SIZE = 1 << 24,
	GANTRY_TENANT_IVSHMEM_VECTORS = 1 << 25,
	GANTRY_TENANT_IVSHMEM_MACHINES = 1 << 26,
	GANTRY_TENANT_IVSHMEM_MODE = 1 << 27,
	GANTRY_TENANT_IVSHMEM_OWNER = 1 << 28,
	GANTRY_TENANT_VSOCK_CID = 1 << 29,
	GANTRY_TENANT_VSOCK_PATH = 1 << 30,
	GANTRY_TENANT_GROUP = 1ull << 31,
	GANTRY_TENANT_MIN_DEVICES = 1ull << 32,
	GANTRY_TENANT_MAX_DEVICES = 1ull << 33,
	GANTRY_TENANT_REPLICAS = 1ull << 34,
	GANTRY_TENANT_RECIPES = 1ull << 35,
	GANTRY_TENANT_COMMUNICATORS = 1ull << 36,
};

/* "CPUS[/WEIGHT]" */
struct gantry_cpu_share {
	uint32_t milli;	 /* thousandths of a processor; 0: no bound */
	uint32_t weight; /* against other workers, 1 to 10000 */
};

struct gantry_tenant_conf {
	char name[GANTRY_CONFIG_NAME];
	char source[GANTRY_CONFIG_TEXT]; /* the file that defines it, or "cli" */
	uint64_t set;			 /* enum gantry_tenant_key: given rather than default */
	uint64_t mem_bytes;
	uint64_t virtual_bytes;
	uint64_t heap_bytes;
	uint64_t host_mem_bytes;
	uint32_t weight;
	int32_t priority;
	uint32_t sessions;
	uint32_t queues;
	uint32_t inflight;
	uint64_t deadline_ns;
	uint32_t isolation;		      /* enum gantry_isolation */
	char trust_group[GANTRY_CONFIG_NAME]; /* "": the tenant alone */
	char devices[GANTRY_CONFIG_TEXT * 4]; /* comma separated; "all" */
	char group[GANTRY_CONFIG_NAME];	      /* of devices; "": none */
	uint32_t min_devices;		      /* that it keeps beside more urgent tenants; 0: one */
	uint32_t max_devices;		      /* that its queues are on at once; 0: any number */
	char door[GANTRY_CONFIG_TEXT];	      /* "": RUNDIR/doors/NAME/door */
	uint32_t door_mode;
	char door_owner[GANTRY_CONFIG_TEXT]; /* user[:group]; "": the agent's own */
	uint32_t nuids;
	uid_t door_uids[GANTRY_CONFIG_MAX_UIDS]; /* who may connect; none: whom the mode admits */
	uint32_t on_full;			 /* enum gantry_on_full */
	/* one worker process, where cgroups may be used; 0: no bound */
	struct gantry_cpu_share worker_cpu;
	uint64_t worker_mem_bytes; /* beside device memory and segments */
	uint32_t worker_pids;
	uint32_t
		compute_percent; /* of a GPU's multiprocessors that a packed session may use; 0: all */
	uint64_t spin_ns;	 /* longest wait for a device that a worker spends spinning */
	/* virtual machines at RUNDIR/doors/NAME/ivshmem.sock */
	uint32_t replicas;	   /* 1: devices that only read a buffer get a copy of it */
	uint32_t recipes;	   /* enum gantry_recipes_conf */
	uint32_t communicators;	   /* 1: its workers speak with each other (net.h) */
	uint32_t ivshmem;	   /* 1: they may come */
	uint64_t ivshmem_bytes;	   /* of each one's memory */
	uint32_t ivshmem_vectors;  /* as many as QEMU's device has */
	uint32_t ivshmem_machines; /* at once */
	uint32_t ivshmem_mode;
	char ivshmem_owner[GANTRY_CONFIG_TEXT]; /* user[:group]; "": the agent's own */
	uint32_t
		vsock_cid; /* of the tenant's virtual machine; 0: it has none that comes by AF_VSOCK */
	char vsock_path
		[GANTRY_CONFIG_TEXT]; /* a Unix stream socket that its hypervisor connects to; "": none */
};

struct gantry_config {
	struct gantry_agent_conf agent;
	uint32_t ndevices;
	struct gantry_device_section *devices; /* owned */
	uint32_t ntenants;
	struct gantry_tenant_conf *tenants; /* owned */
	uint32_t ngroups;
	uint32_t npolicies;
	struct gantry_group_section groups[GANTRY_CONFIG_MAX_GROUPS];
	struct gantry_policy_section policies[GANTRY_CONFIG_MAX_POLICIES];
};

/* An empty configuration: defaults, no device, no tenant. NULL: no memory. */
struct gantry_config *gantry_config_new(void);
void gantry_config_free(struct gantry_config *config);

/*
 * Add what @text says. @source is named in errors and kept as where tenants come from. A tenant or
 * device that is there
 * already gets the new keys (drop-ins). -EINVAL with "SOURCE:LINE: sentence"; -ENOMEM. @config is
 * half changed after
 * a failure: free it.
 */
int gantry_config_parse(struct gantry_config *config, const char *source, const char *text,
			size_t len, struct gantry_err *err);

/*
 * What no single line can say: pooled tenants have devices that exist, and so on. -EINVAL with a
 * sentence.
 */
int gantry_config_check(const struct gantry_config *config, struct gantry_err *err);

/*
 * The whole configuration in its order of precedence, later over earlier for each key: @path,
 * @path.d/ *.conf in the
 * order of their names, @state_dir/tenants.d/ *.conf (what gantryctl changed; may be NULL). A
 * missing @path is an
 * empty file when @path_optional.
 */
int gantry_config_load(const char *path, bool path_optional, const char *state_dir,
		       struct gantry_config **ret_config, struct gantry_err *err);

/* NULL if there is none. */
struct gantry_tenant_conf *gantry_config_tenant(const struct gantry_config *config,
						const char *name);
struct gantry_device_section *gantry_config_device(const struct gantry_config *config,
						   const char *name);

/* Whether the backend's options are given as "key=value". */
bool gantry_device_section_says(const struct gantry_device_section *device, const char *option);

/* A tenant with default limits. */
void gantry_tenant_conf_init(struct gantry_tenant_conf *tenant, const char *name,
			     const char *source);

/* One key of a tenant as the files spell it, for the CLI's changes. -EINVAL with a sentence. */
int gantry_tenant_conf_set(struct gantry_tenant_conf *tenant, const char *key, const char *value,
			   struct gantry_err *err);

/* "user", "user:group", names or numbers; what is not given becomes -1. -EINVAL: there is no such one. */
int gantry_owner_parse(const char *text, uid_t *ret_uid, gid_t *ret_gid, struct gantry_err *err);

/* The value of a key as the files spell it; -EINVAL: no such key; -E2BIG. */
int gantry_tenant_conf_get(const struct gantry_tenant_conf *tenant, const char *key, char *buf,
			   size_t cap);

/* The names of all tenant keys, NULL-terminated. */
extern const char *const gantry_tenant_keys[];

/*
 * The keys of @mask as text of a file. The caller frees *@ret_text.
 */
int gantry_tenant_conf_write(const struct gantry_tenant_conf *tenant, uint64_t mask,
			     char **ret_text);

/* ---- config_group.c ---- */

/* The section of that name, made if it is not there. -EINVAL: there are too many. */
int gantry_group_enter(struct gantry_config *config, const char *name, uint32_t *ret_idx,
		       struct gantry_err *err);
int gantry_policy_enter(struct gantry_config *config, const char *name, uint32_t *ret_idx,
			struct gantry_err *err);
/* One key of such a section. -EINVAL with a sentence. */
int gantry_group_key(struct gantry_group_section *group, const char *key, const char *value,
		     struct gantry_err *err);
int gantry_policy_key(struct gantry_policy_section *policy, const char *key, const char *value,
		      struct gantry_err *err);
/* What no single line of them can say. -EINVAL with a sentence. */
int gantry_config_check_groups(const struct gantry_config *config, struct gantry_err *err);
/* NULL if there is none. */
const struct gantry_group_section *gantry_config_group(const struct gantry_config *config,
						       const char *name);
const struct gantry_policy_section *gantry_config_policy(const struct gantry_config *config,
							 const char *name);
/* Whether @name is one of comma separated @names. */
bool gantry_config_lists(const char *names, const char *name);

#endif
