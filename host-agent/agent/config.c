/* SPDX-License-Identifier: Apache-2.0 */
/* Sections and files; the keys of tenants are in config_tenant.c. */
#include "host-agent/agent/config.h"

#include <errno.h>
#include <glob.h>
#include <grp.h>
#include <ini.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/shared/share.h"
#include "proto/stream.h"

/* inih cuts lines off past its own limit; ours is lower, so that nothing is ever cut silently. */
#define MAX_LINE	   190u
#define MAX_WARM_WORKERS   64u
#define MAX_WARM_PACKED	   16u
#define WORKER_USER	   "gantry-worker" /* packages make it */
#define SEGMENTS_ALIGN	   (2ull << 20)
#define ADOPTION_GRACE_NS  (300 * GANTRY_NS_PER_S)
#define MACHINE_GRACE_NS   (120 * GANTRY_NS_PER_S)
#define MIGRATION_STILL_NS (2 * 60 * GANTRY_NS_PER_S)
#define VSOCK_GRACE_NS	   (10 * GANTRY_NS_PER_S)
/* Below are programs without position independence; above is the kernel. */
#define SEGMENTS_LOWEST	 0x100000000ull
#define SEGMENTS_HIGHEST 0x7fffffe00000ull

enum section_kind {
	SECTION_NONE,
	SECTION_AGENT,
	SECTION_DEVICE,
	SECTION_TENANT,
	SECTION_GROUP,
	SECTION_POLICY,
};

/* State of parsing one text. */
struct parse {
	struct gantry_config *config;
	const char *source;
	struct gantry_err *err;
	int code; /* of the first error; its sentence is in err, without file and line */
	enum section_kind kind;
	uint32_t idx; /* of the section's device, tenant, group or policy */
	char section[64];
	uint32_t nseen; /* keys of this section given in this text */
	char seen[128][40];
};

struct gantry_config *gantry_config_new(void)
{
	struct gantry_config *config = calloc(1, sizeof(*config));

	if (!config)
		return NULL;
	config->agent.admin_mode = 0660;
	config->agent.warm_workers = 2;
	config->agent.warm_packed = 2;
	config->agent.confine = true;
	config->agent.mps_clients = GANTRY_MPS_CLIENTS;
	config->agent.vsock_port = GANTRY_STREAM_PORT;
	config->agent.vsock_grace_ns = VSOCK_GRACE_NS;
	config->agent.adoption_grace_ns = ADOPTION_GRACE_NS;
	config->agent.machine_grace_ns = MACHINE_GRACE_NS;
	config->agent.migration_still_ns = MIGRATION_STILL_NS;
	/* it fits */
	(void)gantry_str_copy(config->agent.policy, sizeof(config->agent.policy), "static");
	/* it fits */
	(void)gantry_str_copy(config->agent.mps, sizeof(config->agent.mps), "auto");
	/* it fits */
	(void)gantry_str_copy(config->agent.cgroup, sizeof(config->agent.cgroup), "auto");
	/* it fits */
	(void)gantry_str_copy(config->agent.worker_user, sizeof(config->agent.worker_user), "auto");
	config->agent.segments_base = GANTRY_CONFIG_SEGMENTS_BASE;
	config->agent.segments_end = GANTRY_CONFIG_SEGMENTS_END;
	config->devices = calloc(GANTRY_CONFIG_MAX_DEVICES, sizeof(*config->devices));
	config->tenants = calloc(GANTRY_CONFIG_MAX_TENANTS, sizeof(*config->tenants));
	if (!config->devices || !config->tenants) {
		gantry_config_free(config);
		return NULL;
	}
	return config;
}

void gantry_config_free(struct gantry_config *config)
{
	if (!config)
		return;
	free(config->devices);
	free(config->tenants);
	free(config);
}

GANTRY_DEFINE_CLEANUP(struct gantry_config *, gantry_config_free);

struct gantry_tenant_conf *gantry_config_tenant(const struct gantry_config *config,
						const char *name)
{
	for (uint32_t i = 0; i < config->ntenants; i++)
		if (strcmp(config->tenants[i].name, name) == 0)
			return &config->tenants[i];
	return NULL;
}

struct gantry_device_section *gantry_config_device(const struct gantry_config *config,
						   const char *name)
{
	for (uint32_t i = 0; i < config->ndevices; i++)
		if (strcmp(config->devices[i].name, name) == 0)
			return &config->devices[i];
	return NULL;
}

/* ---- [agent] ---- */

static int parse_bool(const char *key, const char *value, bool *ret_bool, struct gantry_err *err)
{
	if (strcmp(value, "yes") == 0 || strcmp(value, "true") == 0 || strcmp(value, "1") == 0)
		*ret_bool = true;
	else if (strcmp(value, "no") == 0 || strcmp(value, "false") == 0 || strcmp(value, "0") == 0)
		*ret_bool = false;
	else
		return gantry_err_set(err, -EINVAL, "%s is \"yes\" or \"no\"", key);
	return 0;
}

static int copy_text(const char *key, char *dst, size_t cap, const char *value,
		     struct gantry_err *err)
{
	if (strlen(value) >= cap)
		return gantry_err_set(err, -EINVAL, "%s is longer than %zu characters", key,
				      cap - 1);
	(void)gantry_str_copy(dst, cap, value); /* it fits */
	return 0;
}

static bool is_address(const char *value)
{
	const char *colon = strrchr(value, ':');
	uint64_t port;

	return colon && colon != value && gantry_u64_parse(colon + 1, 1, 65535, &port, NULL) == 0;
}

static int parse_migration_listen(struct gantry_agent_conf *agent, const char *value,
				  struct gantry_err *err)
{
	if (value[0] != '\0' && !is_address(value))
		return gantry_err_set(err, -EINVAL,
				      "migration_listen is ADDRESS:PORT, such as 0.0.0.0:16601");
	return copy_text("migration_listen", agent->migration_listen,
			 sizeof(agent->migration_listen), value, err);
}

static int parse_certificates(struct gantry_agent_conf *agent, const char *value,
			      struct gantry_err *err)
{
	if (value[0] != '\0' && value[0] != '/')
		return gantry_err_set(err, -EINVAL,
				      "migration_certificates is the full path of a folder");
	return copy_text("migration_certificates", agent->migration_certificates,
			 sizeof(agent->migration_certificates), value, err);
}

static int parse_metrics(struct gantry_agent_conf *agent, const char *value, struct gantry_err *err)
{
	if (value[0] != '\0' && !gantry_str_starts(value, "unix:/") && !is_address(value))
		return gantry_err_set(
			err, -EINVAL,
			"metrics is unix:/PATH or ADDRESS:PORT, such as 127.0.0.1:9477");
	return copy_text("metrics", agent->metrics, sizeof(agent->metrics), value, err);
}

static int parse_dirs(struct gantry_agent_conf *agent, const char *value, struct gantry_err *err)
{
	_cleanup_free_ char *copy = strdup(value);
	char *save = NULL;

	if (!copy)
		return -ENOMEM;
	agent->ndirs = 0;
	for (char *dir = strtok_r(copy, ": ", &save); dir; dir = strtok_r(NULL, ": ", &save)) {
		int r;

		if (dir[0] != '/')
			return gantry_err_set(err, -EINVAL,
					      "module_dirs names \"%s\", which is no full path",
					      dir);
		if (agent->ndirs == GANTRY_CONFIG_MAX_DIRS)
			return gantry_err_set(err, -EINVAL,
					      "module_dirs names more than %u folders",
					      GANTRY_CONFIG_MAX_DIRS);
		r = copy_text("module_dirs", agent->module_dirs[agent->ndirs], GANTRY_CONFIG_TEXT,
			      dir, err);
		if (r < 0)
			return r;
		agent->ndirs++;
	}
	return 0;
}

static int parse_admin_mode(struct gantry_agent_conf *agent, const char *value,
			    struct gantry_err *err)
{
	char *end;
	unsigned long mode = strtoul(value, &end, 8);

	if (value[0] < '0' || value[0] > '7' || *end || mode > 0777)
		return gantry_err_set(err, -EINVAL,
				      "admin_mode must be octal permission bits, such as 0660");
	agent->admin_mode = (uint32_t)mode;
	return 0;
}

static int parse_cgroup(struct gantry_agent_conf *agent, const char *value, struct gantry_err *err)
{
	if (strcmp(value, "auto") != 0 && strcmp(value, "off") != 0 && value[0] != '/')
		return gantry_err_set(err, -EINVAL,
				      "cgroup is \"auto\", \"off\" or the full path of a folder");
	return copy_text("cgroup", agent->cgroup, sizeof(agent->cgroup), value, err);
}

/* A name or a number; -ENOENT. */
static int find_user(const char *name, uid_t *ret_uid, gid_t *ret_gid)
{
	const struct passwd *pw = getpwnam(name);
	uint64_t number;

	if (!pw && gantry_u64_parse(name, 0, UINT32_MAX - 1, &number, NULL) < 0)
		return -ENOENT;
	*ret_uid = pw ? pw->pw_uid : (uid_t)number;
	*ret_gid = pw ? pw->pw_gid : (gid_t)number;
	return 0;
}

static int find_group(const char *name, gid_t *ret_gid)
{
	const struct group *gr = getgrnam(name);
	uint64_t number;

	if (!gr && gantry_u64_parse(name, 0, UINT32_MAX - 1, &number, NULL) < 0)
		return -ENOENT;
	*ret_gid = gr ? gr->gr_gid : (gid_t)number;
	return 0;
}

static int parse_worker_user(struct gantry_agent_conf *agent, const char *value,
			     struct gantry_err *err)
{
	char name[GANTRY_CONFIG_TEXT], *group;
	uid_t uid = 0;
	gid_t gid = 0;
	int r = copy_text("worker_user", name, sizeof(name), value, err);

	if (r < 0)
		return r;
	if (strcmp(name, "auto") != 0 && strcmp(name, "none") != 0) {
		group = strchr(name, ':');
		if (group)
			*group++ = '\0';
		if (find_user(name, &uid, &gid) < 0)
			return gantry_err_set(err, -EINVAL,
					      "worker_user: there is no user \"%.40s\"", name);
		if (group && find_group(group, &gid) < 0)
			return gantry_err_set(err, -EINVAL,
					      "worker_user: there is no group \"%.40s\"", group);
		if (uid == 0)
			return gantry_err_set(
				err, -EINVAL,
				"worker_user must not be root; \"none\" changes no user");
	}
	agent->worker_uid = uid;
	agent->worker_gid = gid;
	return copy_text("worker_user", agent->worker_user, sizeof(agent->worker_user), value, err);
}

/* "BASE-END", hexadecimal; "none": anywhere. */
static int parse_segment_range(struct gantry_agent_conf *agent, const char *value,
			       struct gantry_err *err)
{
	unsigned long long base = 0, end = 0;
	int used = 0;

	if (strcmp(value, "none") != 0 &&
	    (sscanf(value, "0x%14llx-0x%14llx%n", &base, &end, &used) != 2 || value[used]))
		return gantry_err_set(
			err, -EINVAL,
			"segment_range is BASE-END in hexadecimal, such as 0x7e8000000000-0x7f0000000000, or none");
	if (base % SEGMENTS_ALIGN || end % SEGMENTS_ALIGN)
		return gantry_err_set(err, -EINVAL,
				      "segment_range must begin and end at multiples of 2 MiB");
	if (used && (base < SEGMENTS_LOWEST || base >= end || end > SEGMENTS_HIGHEST))
		return gantry_err_set(err, -EINVAL,
				      "segment_range must lie, in this order, within 0x%llx-0x%llx",
				      SEGMENTS_LOWEST, SEGMENTS_HIGHEST);
	agent->segments_base = base;
	agent->segments_end = end;
	return 0;
}

static int parse_mps(struct gantry_agent_conf *agent, const char *value, struct gantry_err *err)
{
	if (value[0] != '/' && strcmp(value, "auto") != 0 && strcmp(value, "off") != 0)
		return gantry_err_set(
			err, -EINVAL,
			"mps is auto, off, or the full path of nvidia-cuda-mps-control");
	return copy_text("mps", agent->mps, sizeof(agent->mps), value, err);
}

static int parse_mps_multiuser(struct gantry_agent_conf *agent, const char *value,
			       struct gantry_err *err)
{
	static const char *const words[] = {
		[GANTRY_MPS_MULTIUSER_AUTO] = "auto",
		[GANTRY_MPS_MULTIUSER_YES] = "yes",
		[GANTRY_MPS_MULTIUSER_NO] = "no",
	};

	for (uint32_t i = 0; i < GANTRY_ARRAY_SIZE(words); i++)
		if (strcmp(value, words[i]) == 0) {
			agent->mps_multiuser = i;
			return 0;
		}
	return gantry_err_set(err, -EINVAL, "mps_multiuser is auto, yes or no");
}

/* How long somebody is waited for. */
static int parse_grace(const char *key, const char *value, uint64_t *ret_ns, struct gantry_err *err)
{
	uint64_t ns;

	if (gantry_duration_parse(value, &ns, err) < 0)
		return gantry_err_wrap(err, -EINVAL, "%s", key);
	if (ns > GANTRY_STREAM_GRACE_MAX_S * GANTRY_NS_PER_S)
		return gantry_err_set(err, -EINVAL, "%s is at most an hour", key);
	*ret_ns = ns;
	return 0;
}

/* In no time nothing can be sent: every session would stay. */
static int parse_still(const char *key, const char *value, uint64_t *ret_ns, struct gantry_err *err)
{
	uint64_t ns = 0;
	int r = parse_grace(key, value, &ns, err);

	if (r == 0 && ns < GANTRY_NS_PER_MS)
		return gantry_err_set(err, -EINVAL, "%s is 1 ms at least", key);
	if (r == 0)
		*ret_ns = ns;
	return r;
}

static int parse_count(const char *key, const char *value, uint64_t min, uint64_t max,
		       uint32_t *ret_count, struct gantry_err *err)
{
	uint64_t number;

	if (gantry_u64_parse(value, min, max, &number, err) < 0)
		return gantry_err_wrap(err, -EINVAL, "%s", key);
	*ret_count = (uint32_t)number;
	return 0;
}

static int agent_key(struct gantry_agent_conf *agent, const char *key, const char *value,
		     struct gantry_err *err)
{
	if (strcmp(key, "admin") == 0)
		return copy_text(key, agent->admin, sizeof(agent->admin), value, err);
	if (strcmp(key, "admin_mode") == 0)
		return parse_admin_mode(agent, value, err);
	if (strcmp(key, "metrics") == 0)
		return parse_metrics(agent, value, err);
	if (strcmp(key, "module_dirs") == 0)
		return parse_dirs(agent, value, err);
	if (strcmp(key, "confine") == 0)
		return parse_bool(key, value, &agent->confine, err);
	if (strcmp(key, "cgroup") == 0)
		return parse_cgroup(agent, value, err);
	if (strcmp(key, "worker_user") == 0)
		return parse_worker_user(agent, value, err);
	if (strcmp(key, "segment_range") == 0)
		return parse_segment_range(agent, value, err);
	if (strcmp(key, "warm_workers") == 0)
		return parse_count(key, value, 0, MAX_WARM_WORKERS, &agent->warm_workers, err);
	if (strcmp(key, "warm_packed") == 0)
		return parse_count(key, value, 0, MAX_WARM_PACKED, &agent->warm_packed, err);
	if (strcmp(key, "mps") == 0)
		return parse_mps(agent, value, err);
	if (strcmp(key, "mps_multiuser") == 0)
		return parse_mps_multiuser(agent, value, err);
	if (strcmp(key, "mps_clients") == 0)
		return parse_count(key, value, 1, GANTRY_MPS_CLIENTS_HIGHEST, &agent->mps_clients,
				   err);
	if (strcmp(key, "vsock_port") == 0)
		return parse_count(key, value, 1, UINT32_MAX - 1, &agent->vsock_port, err);
	if (strcmp(key, "vsock_grace") == 0)
		return parse_grace(key, value, &agent->vsock_grace_ns, err);
	if (strcmp(key, "adoption_grace") == 0)
		return parse_grace(key, value, &agent->adoption_grace_ns, err);
	if (strcmp(key, "machine_grace") == 0)
		return parse_grace(key, value, &agent->machine_grace_ns, err);
	if (strcmp(key, "policy") == 0)
		return copy_text(key, agent->policy, sizeof(agent->policy), value, err);
	if (strcmp(key, "policy_options") == 0)
		return copy_text(key, agent->policy_options, sizeof(agent->policy_options), value,
				 err);
	if (strcmp(key, "migration_listen") == 0)
		return parse_migration_listen(agent, value, err);
	if (strcmp(key, "migration_certificates") == 0)
		return parse_certificates(agent, value, err);
	if (strcmp(key, "migration_still") == 0)
		return parse_still(key, value, &agent->migration_still_ns, err);
	if (strcmp(key, "migration_name") == 0)
		return copy_text(key, agent->migration_name, sizeof(agent->migration_name), value,
				 err);
	if (strcmp(key, "spin") == 0) {
		if (gantry_duration_parse(value, &agent->spin_ns, err) < 0)
			return gantry_err_wrap(err, -EINVAL, "%s", key);
		return 0;
	}
	return gantry_err_set(err, -EINVAL, "[agent] has no key \"%s\"", key);
}

/* ---- [device NAME] ---- */

/* Keys that backends and filters know; "FILTER.key" beside them. */
static const char *const backend_keys[] = {
	"cores",  "cpus",	"filters",   "file",	 "index",   "uuid",   "scratch",
	"window", "numa",	"clock",     "platform", "gpu",	    "driver", "nvrtc",
	"nvml",	  "nvjitlink",	"libraries", "images",	 "library", "device", "memory",
	"cache",  "guest_code", "fitted",    "board",	 "mode",    "age",    "retries",
	"stuck",  "longest",	"keep",	     "work",	 "holder",  "graphs", "processes",
};

bool gantry_device_section_says(const struct gantry_device_section *device, const char *option)
{
	for (uint32_t i = 0; i < device->nopts; i++)
		if (strcmp(device->opts[i], option) == 0)
			return true;
	return false;
}

static int device_opt(struct gantry_device_section *device, const char *key, const char *value,
		      struct gantry_err *err)
{
	bool known = strchr(key, '.') != NULL;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(backend_keys); i++)
		known = known || strcmp(key, backend_keys[i]) == 0;
	if (!known)
		return gantry_err_set(err, -EINVAL, "[device] has no key \"%s\"", key);
	if (device->nopts == GANTRY_CONFIG_MAX_OPTS)
		return gantry_err_set(err, -EINVAL,
				      "a device has at most %u options of its backend",
				      GANTRY_CONFIG_MAX_OPTS);
	if (gantry_str_format(device->opts[device->nopts], GANTRY_CONFIG_TEXT, "%s=%s", key,
			      value) < 0)
		return gantry_err_set(err, -EINVAL, "%s is longer than %u characters", key,
				      GANTRY_CONFIG_TEXT - 2);
	device->nopts++;
	return 0;
}

/* Which processors there are is the worker's to say. */
static int parse_affinity(struct gantry_device_section *device, const char *value,
			  struct gantry_err *err)
{
	bool list = value[0] >= '0' && value[0] <= '9' &&
		    value[strspn(value, "0123456789,-")] == '\0';

	if (!list && strcmp(value, "auto") != 0 && strcmp(value, "off") != 0)
		return gantry_err_set(
			err, -EINVAL,
			"affinity is \"auto\", \"off\" or a list of processors, such as "
			"0-3,8");
	return copy_text("affinity", device->affinity, sizeof(device->affinity), value, err);
}

static int parse_turn_pause(struct gantry_device_section *device, const char *value,
			    struct gantry_err *err)
{
	if (gantry_duration_parse(value, &device->turn_pause_ns, err) < 0)
		return gantry_err_wrap(err, -EINVAL, "turn_pause");
	if (device->turn_pause_ns > GANTRY_SHARE_TURN_PAUSE_MAX_US * GANTRY_NS_PER_US)
		return gantry_err_set(err, -EINVAL, "turn_pause is 0 to %u us",
				      GANTRY_SHARE_TURN_PAUSE_MAX_US);
	return 0;
}

static int device_key(struct gantry_device_section *device, const char *key, const char *value,
		      struct gantry_err *err)
{
	uint64_t number;

	if (strcmp(key, "backend") == 0) {
		if (!gantry_name_valid(value))
			return gantry_err_set(err, -EINVAL, "backend must be a name, such as cpu");
		return copy_text(key, device->backend, sizeof(device->backend), value, err);
	}
	if (strcmp(key, "mem") == 0) {
		if (gantry_size_parse(value, &device->mem_bytes, err) < 0)
			return gantry_err_wrap(err, -EINVAL, "%s", key);
		return 0;
	}
	if (strcmp(key, "lanes") == 0) {
		if (gantry_u64_parse(value, 1, GANTRY_SHARE_NLANES, &number, err) < 0)
			return gantry_err_wrap(err, -EINVAL, "%s", key);
		device->lanes = (uint32_t)number;
		return 0;
	}
	if (strcmp(key, "turn_pause") == 0)
		return parse_turn_pause(device, value, err);
	if (strcmp(key, "slab_pool") == 0) {
		if (gantry_size_parse(value, &device->slab_pool_bytes, err) < 0)
			return gantry_err_wrap(err, -EINVAL, "%s", key);
		return 0;
	}
	if (strcmp(key, "affinity") == 0)
		return parse_affinity(device, value, err);
	return device_opt(device, key, value, err);
}

/* ---- sections ---- */

static int enter_device(struct parse *p, const char *name)
{
	struct gantry_config *c = p->config;
	struct gantry_device_section *device = gantry_config_device(c, name);

	if (!device) {
		if (c->ndevices == GANTRY_CONFIG_MAX_DEVICES)
			return gantry_err_set(p->err, -EINVAL, "more than %u devices",
					      GANTRY_CONFIG_MAX_DEVICES);
		device = &c->devices[c->ndevices++];
		*device = (struct gantry_device_section){
			.slab_pool_bytes = GANTRY_CONFIG_SLAB_POOL,
			.turn_pause_ns = GANTRY_SHARE_TURN_PAUSE_US * GANTRY_NS_PER_US,
		};
		/* a valid name fits */
		(void)gantry_str_copy(device->name, sizeof(device->name), name);
	}
	p->idx = (uint32_t)(device - c->devices);
	return 0;
}

static int enter_tenant(struct parse *p, const char *name)
{
	struct gantry_config *c = p->config;
	struct gantry_tenant_conf *tenant = gantry_config_tenant(c, name);

	if (!tenant) {
		if (c->ntenants == GANTRY_CONFIG_MAX_TENANTS)
			return gantry_err_set(p->err, -EINVAL, "more than %u tenants",
					      GANTRY_CONFIG_MAX_TENANTS);
		tenant = &c->tenants[c->ntenants++];
		gantry_tenant_conf_init(tenant, name, p->source);
	}
	p->idx = (uint32_t)(tenant - c->tenants);
	return 0;
}

static int enter_group(struct parse *p, const char *name)
{
	return gantry_group_enter(p->config, name, &p->idx, p->err);
}

static int enter_policy(struct parse *p, const char *name)
{
	return gantry_policy_enter(p->config, name, &p->idx, p->err);
}

static int enter_section(struct parse *p, const char *section)
{
	static const struct {
		const char *word;
		enum section_kind kind;
		int (*enter)(struct parse *p, const char *name);
	} kinds[] = {
		{ "device", SECTION_DEVICE, enter_device },
		{ "tenant", SECTION_TENANT, enter_tenant },
		{ "group", SECTION_GROUP, enter_group },
		{ "policy", SECTION_POLICY, enter_policy },
	};
	const char *name = strchr(section, ' ');

	p->kind = SECTION_NONE;
	p->nseen = 0;
	/* only compared with itself */
	(void)gantry_str_copy(p->section, sizeof(p->section), section);
	if (strcmp(section, "agent") == 0) {
		p->kind = SECTION_AGENT;
		return 0;
	}
	if (name)
		name += strspn(name, " ");
	for (size_t i = 0; name && i < GANTRY_ARRAY_SIZE(kinds); i++) {
		size_t len = strlen(kinds[i].word);

		if (!gantry_str_starts(section, kinds[i].word) || section[len] != ' ')
			continue;
		if (!gantry_name_valid(name))
			return gantry_err_set(
				p->err, -EINVAL,
				"\"%.40s\" is no name: a-z, 0-9, _ . -, at most %d characters",
				name, GANTRY_NAME_LEN_MAX);
		p->kind = kinds[i].kind;
		return kinds[i].enter(p, name);
	}
	return gantry_err_set(
		p->err, -EINVAL,
		"[%.40s] is none of [agent], [device NAME], [tenant NAME], [group NAME], [policy NAME]",
		section);
}

static int note_key(struct parse *p, const char *key)
{
	for (uint32_t i = 0; i < p->nseen; i++)
		if (strcmp(p->seen[i], key) == 0)
			return gantry_err_set(p->err, -EINVAL, "\"%.40s\" is given twice", key);
	if (p->nseen < GANTRY_ARRAY_SIZE(p->seen))
		/* a cut one is unknown */
		(void)gantry_str_copy(p->seen[p->nseen++], sizeof(p->seen[0]), key);
	return 0;
}

static int take_key(struct parse *p, const char *section, const char *key, const char *value)
{
	int r = 0;

	/*
	 * The same section again, further down, starts anew only where its name changed in between.
	 */
	if (strcmp(section, p->section) != 0)
		r = enter_section(p, section);
	if (r < 0)
		return r;
	r = note_key(p, key);
	if (r < 0)
		return r;
	switch (p->kind) {
	case SECTION_AGENT:
		return agent_key(&p->config->agent, key, value, p->err);
	case SECTION_DEVICE:
		return device_key(&p->config->devices[p->idx], key, value, p->err);
	case SECTION_TENANT:
		return gantry_tenant_conf_set(&p->config->tenants[p->idx], key, value, p->err);
	case SECTION_GROUP:
		return gantry_group_key(&p->config->groups[p->idx], key, value, p->err);
	case SECTION_POLICY:
		return gantry_policy_key(&p->config->policies[p->idx], key, value, p->err);
	default:
		return gantry_err_set(p->err, -EINVAL, "\"%.40s\" stands before the first section",
				      key);
	}
}

/* inih's handler: nonzero goes on. Only the first error counts; inih reports its line. */
static int ini_key(void *arg, const char *section, const char *key, const char *value)
{
	struct parse *p = arg;

	if (p->code < 0)
		return 0;
	p->code = take_key(p, section, key, value ? value : "");
	return p->code == 0;
}

/*
 * A copy of the text that inih reads as we mean it: without indentation, which it takes for
 * continued lines, and
 * with every line short enough. Enters the sections on the way, so that one without keys exists.
 */
static int prepare(struct parse *p, const char *text, size_t len, char **ret_copy)
{
	_cleanup_free_ char *copy = malloc(len + 1);
	size_t out = 0, at = 0;
	int line_no = 0;

	if (!copy)
		return -ENOMEM;
	while (at < len) {
		const char *line = text + at;
		const char *newline = memchr(line, '\n', len - at);
		size_t line_len = newline ? (size_t)(newline - line) : len - at;
		size_t skip = 0;
		int r = 0;

		line_no++;
		if (memchr(line, '\0', line_len))
			r = gantry_err_set(p->err, -EINVAL, "the line has a NUL byte");
		while (skip < line_len && (line[skip] == ' ' || line[skip] == '\t'))
			skip++;
		if (line_len - skip > MAX_LINE)
			r = gantry_err_set(p->err, -EINVAL, "the line is longer than %u characters",
					   MAX_LINE);
		if (r == 0 && skip < line_len && line[skip] == '[') {
			char section[MAX_LINE + 1] = "";
			const char *end = memchr(line + skip, ']', line_len - skip);

			if (end)
				memcpy(section, line + skip + 1, (size_t)(end - line) - skip - 1);
			r = end ? enter_section(p, section)
				: gantry_err_set(p->err, -EINVAL, "the section has no \"]\"");
		}
		if (r < 0)
			return gantry_err_wrap(p->err, r, "%s:%d", p->source, line_no);
		memcpy(copy + out, line + skip, line_len - skip);
		out += line_len - skip;
		if (newline)
			copy[out++] = '\n';
		at += line_len + 1;
	}
	copy[out] = '\0';
	*ret_copy = GANTRY_TAKE_PTR(copy);
	return 0;
}

int gantry_config_parse(struct gantry_config *config, const char *source, const char *text,
			size_t len, struct gantry_err *err)
{
	struct parse p = { .config = config, .source = source };
	struct gantry_err own = GANTRY_ERR_NONE;
	_cleanup_free_ char *copy = NULL;
	int line, r;

	p.err = err ? err : &own;
	if (len > GANTRY_CONFIG_MAX_BYTES)
		return gantry_err_set(err, -EINVAL, "%s: larger than %u bytes", source,
				      GANTRY_CONFIG_MAX_BYTES);
	r = prepare(&p, text, len, &copy);
	if (r < 0)
		return r;
	p.section[0] = '\0';
	p.kind = SECTION_NONE;
	p.nseen = 0;
	line = ini_parse_string(copy, ini_key, &p);
	if (line < 0)
		return -ENOMEM;
	if (line > 0 && p.code == 0)
		return gantry_err_set(err, -EINVAL, "%s:%d: neither \"key = value\" nor a section",
				      source, line);
	if (p.code < 0)
		return gantry_err_wrap(err, p.code, "%s:%d", source, line);
	return 0;
}

/* ---- the whole ---- */

static int check_tenant_devices(const struct gantry_config *config,
				const struct gantry_tenant_conf *tenant, struct gantry_err *err)
{
	_cleanup_free_ char *copy = strdup(tenant->devices);
	char *save = NULL;

	if (!copy)
		return -ENOMEM;
	if (strcmp(copy, "all") == 0)
		return 0;
	for (char *name = strtok_r(copy, ", ", &save); name; name = strtok_r(NULL, ", ", &save))
		if (!gantry_config_device(config, name))
			return gantry_err_set(
				err, -EINVAL,
				"%s: tenant %s may use device %s, which is not configured",
				tenant->source, tenant->name, name);
	return 0;
}

/* A machine is one tenant's. */
static int check_vsock(const struct gantry_config *config, uint32_t idx, struct gantry_err *err)
{
	const struct gantry_tenant_conf *tenant = &config->tenants[idx];

	if (tenant->vsock_path[0] != '\0' && tenant->vsock_path[0] != '/')
		return gantry_err_set(err, -EINVAL, "%s: tenant %s: vsock_path must be a full path",
				      tenant->source, tenant->name);
	if (tenant->vsock_cid == 1 || tenant->vsock_cid == 2)
		return gantry_err_set(
			err, -EINVAL,
			"%s: tenant %s: vsock_cid %u is the host's own, not a machine's",
			tenant->source, tenant->name, tenant->vsock_cid);
	for (uint32_t i = 0; i < idx; i++) {
		const struct gantry_tenant_conf *other = &config->tenants[i];

		if (tenant->vsock_cid && tenant->vsock_cid == other->vsock_cid)
			return gantry_err_set(err, -EINVAL,
					      "%s: tenants %s and %s have the same vsock_cid, %u",
					      tenant->source, other->name, tenant->name,
					      tenant->vsock_cid);
		if (tenant->vsock_path[0] && strcmp(tenant->vsock_path, other->vsock_path) == 0)
			return gantry_err_set(err, -EINVAL,
					      "%s: tenants %s and %s have the same vsock_path",
					      tenant->source, other->name, tenant->name);
	}
	return 0;
}

/* ---- GPUs that are several devices ---- */

/* "": not given. */
static const char *device_option(const struct gantry_device_section *device, const char *key)
{
	size_t len = strlen(key);

	for (uint32_t i = 0; i < device->nopts; i++)
		if (strncmp(device->opts[i], key, len) == 0 && device->opts[i][len] == '=')
			return device->opts[i] + len + 1;
	return "";
}

static const char *gpu_of(const struct gantry_device_section *device)
{
	const char *gpu = device_option(device, "gpu");

	return gpu[0] ? gpu : "0";
}

/* As far as names tell: one GPU has several, and who opens it knows better. */
static int check_gpus(const struct gantry_config *config, struct gantry_err *err)
{
	for (uint32_t i = 0; i < config->ndevices; i++) {
		const struct gantry_device_section *a = &config->devices[i];

		for (uint32_t k = 0; k < i; k++) {
			const struct gantry_device_section *b = &config->devices[k];

			if (strcmp(a->backend, "cuda") != 0 || strcmp(b->backend, "cuda") != 0 ||
			    strcmp(gpu_of(a), gpu_of(b)) != 0 ||
			    strcmp(device_option(a, "driver"), device_option(b, "driver")) != 0 ||
			    (a->mem_bytes && b->mem_bytes))
				continue;
			return gantry_err_set(
				err, -EINVAL,
				"[device %s] and [device %s] are one GPU, %s: each needs mem, and %s has none",
				b->name, a->name, gpu_of(a), b->mem_bytes ? a->name : b->name);
		}
	}
	return 0;
}

int gantry_config_check(const struct gantry_config *config, struct gantry_err *err)
{
	int r;

	for (uint32_t i = 0; i < config->ndevices; i++)
		if (config->devices[i].backend[0] == '\0')
			return gantry_err_set(err, -EINVAL, "[device %s] names no backend",
					      config->devices[i].name);
	for (uint32_t i = 0; i < config->ntenants; i++) {
		const struct gantry_tenant_conf *tenant = &config->tenants[i];

		r = check_tenant_devices(config, tenant, err);
		if (r < 0)
			return r;
		if (tenant->heap_bytes > tenant->host_mem_bytes)
			return gantry_err_set(
				err, -EINVAL,
				"%s: tenant %s: a heap of one session does not fit into host_mem",
				tenant->source, tenant->name);
		if (tenant->ivshmem && tenant->ivshmem_bytes > tenant->host_mem_bytes)
			return gantry_err_set(
				err, -EINVAL,
				"%s: tenant %s: the memory of one machine, ivshmem_size, does not fit into host_mem",
				tenant->source, tenant->name);
		if (tenant->communicators && tenant->isolation != GANTRY_ISOLATED)
			return gantry_err_set(
				err, -EINVAL,
				"%s: tenant %s: communicators wants isolation = isolated: workers of a trust group are not the tenant's alone",
				tenant->source, tenant->name);
		if (tenant->door[0] != '\0' && tenant->door[0] != '/')
			return gantry_err_set(err, -EINVAL,
					      "%s: tenant %s: door must be a full path",
					      tenant->source, tenant->name);
		r = check_vsock(config, i, err);
		if (r < 0)
			return r;
	}
	r = check_gpus(config, err);
	return r < 0 ? r : gantry_config_check_groups(config, err);
}

static int load_file(struct gantry_config *config, const char *path, const char *source,
		     bool optional, struct gantry_err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r = gantry_file_read(path, GANTRY_CONFIG_MAX_BYTES, &text, &len);

	if (r == -ENOENT && optional)
		return 0;
	if (r < 0)
		return gantry_err_set_errno(err, r, "cannot read %s", path);
	return gantry_config_parse(config, source ? source : path, text, len, err);
}

/* @state: files of the state directory; tenants that only they define come from the CLI. */
static int load_dir(struct gantry_config *config, const char *pattern, bool state,
		    struct gantry_err *err)
{
	glob_t found;
	int r = 0;

	switch (glob(pattern, 0, NULL, &found)) {
	case 0:
		break;
	case GLOB_NOMATCH:
		return 0;
	default:
		return gantry_err_set(err, -EIO, "cannot list %s", pattern);
	}
	for (size_t i = 0; i < found.gl_pathc && r == 0; i++) {
		uint32_t before = config->ntenants;

		r = load_file(config, found.gl_pathv[i], NULL, false, err);
		for (uint32_t t = before; state && t < config->ntenants; t++)
			(void)gantry_str_copy(config->tenants[t].source,
					      /* it fits */
					      sizeof(config->tenants[t].source), "cli");
	}
	globfree(&found);
	return r;
}

int gantry_config_load(const char *path, bool path_optional, const char *state_dir,
		       struct gantry_config **ret_config, struct gantry_err *err)
{
	_cleanup_(gantry_config_freep) struct gantry_config *config = gantry_config_new();
	char pattern[512];
	int r;

	if (!config)
		return gantry_err_set(err, -ENOMEM, "no memory for the configuration");
	r = load_file(config, path, NULL, path_optional, err);
	if (r == 0 && gantry_str_format(pattern, sizeof(pattern), "%s.d/*.conf", path) == 0)
		r = load_dir(config, pattern, false, err);
	if (r == 0 && state_dir &&
	    gantry_str_format(pattern, sizeof(pattern), "%s/tenants.d/*.conf", state_dir) == 0)
		r = load_dir(config, pattern, true, err);
	if (r < 0)
		return r;
	if (strcmp(config->agent.worker_user, "auto") == 0 && geteuid() == 0)
		(void)find_user(WORKER_USER, &config->agent.worker_uid,
				&config->agent.worker_gid); /* or there is none: told per worker */
	r = gantry_config_check(config, err);
	if (r < 0)
		return r;
	*ret_config = GANTRY_TAKE_PTR(config);
	return 0;
}
