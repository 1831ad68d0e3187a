/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of [tenant NAME]: one table that reading and writing follow. */
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "host-agent/agent/config.h"
#include "host-agent/shared/quota.h"
#include "host-agent/shared/share.h"
#include "proto/doormem.h"
#include "proto/wire.h"

#define PRIORITY_LIMIT 100
#define MAX_SESSIONS   1000u
#define MAX_MACHINES   64u
#define MAX_CPU_MILLI  (1024u * 1000u)
#define MAX_CPU_WEIGHT 10000u /* the kernel's */

enum value_kind {
	VALUE_SIZE,
	VALUE_U32,
	VALUE_PRIORITY,
	VALUE_DURATION,
	VALUE_ISOLATION,
	VALUE_NAME,
	VALUE_TEXT,
	VALUE_OWNER,
	VALUE_MODE,
	VALUE_UIDS,
	VALUE_ON_FULL,
	VALUE_CPU,
	VALUE_YES,
	VALUE_RECIPES,
	VALUE_POWER, /* of two; bytes */
};

struct tenant_key {
	const char *name;
	uint64_t bit;
	enum value_kind kind;
	size_t off;
	size_t cap; /* of texts */
	uint64_t min;
	uint64_t max;
};

#define FIELD(member)	   offsetof(struct gantry_tenant_conf, member)
#define TEXT_FIELD(member) FIELD(member), sizeof(((struct gantry_tenant_conf *)0)->member)

static const struct tenant_key keys[] = {
	{ "mem", GANTRY_TENANT_MEM, VALUE_SIZE, FIELD(mem_bytes), 0, 1, 1ull << 50 },
	{ "virtual", GANTRY_TENANT_VIRTUAL, VALUE_SIZE, FIELD(virtual_bytes), 0, 1, 1ull << 46 },
	{ "heap", GANTRY_TENANT_HEAP, VALUE_SIZE, FIELD(heap_bytes), 0, 65536,
	  GANTRY_SEGMENT_MAX_BYTES / 2 },
	{ "host_mem", GANTRY_TENANT_HOST_MEM, VALUE_SIZE, FIELD(host_mem_bytes), 0, 1, 1ull << 50 },
	{ "weight", GANTRY_TENANT_WEIGHT, VALUE_U32, FIELD(weight), 0, 1, GANTRY_SHARE_WEIGHT_MAX },
	{ "priority", GANTRY_TENANT_PRIORITY, VALUE_PRIORITY, FIELD(priority), 0, 0, 0 },
	{ "sessions", GANTRY_TENANT_SESSIONS, VALUE_U32, FIELD(sessions), 0, 0, MAX_SESSIONS },
	{ "queues", GANTRY_TENANT_QUEUES, VALUE_U32, FIELD(queues), 0, 1, GANTRY_MAX_QUEUES - 1 },
	{ "inflight", GANTRY_TENANT_INFLIGHT, VALUE_U32, FIELD(inflight), 0, 0, 1u << 20 },
	{ "deadline", GANTRY_TENANT_DEADLINE, VALUE_DURATION, FIELD(deadline_ns), 0, 0,
	  UINT64_MAX },
	{ "isolation", GANTRY_TENANT_ISOLATION, VALUE_ISOLATION, FIELD(isolation), 0, 0, 0 },
	{ "trust_group", GANTRY_TENANT_TRUST_GROUP, VALUE_NAME, TEXT_FIELD(trust_group), 0, 0 },
	{ "devices", GANTRY_TENANT_DEVICES, VALUE_TEXT, TEXT_FIELD(devices), 1, 0 },
	{ "door", GANTRY_TENANT_DOOR, VALUE_TEXT, TEXT_FIELD(door), 0, 0 },
	{ "door_mode", GANTRY_TENANT_DOOR_MODE, VALUE_MODE, FIELD(door_mode), 0, 0, 0777 },
	{ "door_owner", GANTRY_TENANT_DOOR_OWNER, VALUE_OWNER, TEXT_FIELD(door_owner), 0, 0 },
	{ "door_uids", GANTRY_TENANT_DOOR_UIDS, VALUE_UIDS, 0, 0, 0, 0 },
	{ "on_full", GANTRY_TENANT_ON_FULL, VALUE_ON_FULL, FIELD(on_full), 0, 0, 0 },
	{ "worker_cpu", GANTRY_TENANT_WORKER_CPU, VALUE_CPU, FIELD(worker_cpu), 0, 0,
	  MAX_CPU_MILLI },
	{ "worker_mem", GANTRY_TENANT_WORKER_MEM, VALUE_SIZE, FIELD(worker_mem_bytes), 0, 0,
	  1ull << 50 },
	{ "worker_pids", GANTRY_TENANT_WORKER_PIDS, VALUE_U32, FIELD(worker_pids), 0, 0, 1u << 22 },
	{ "compute_percent", GANTRY_TENANT_COMPUTE_PERCENT, VALUE_U32, FIELD(compute_percent), 0, 0,
	  100 },
	{ "spin", GANTRY_TENANT_SPIN, VALUE_DURATION, FIELD(spin_ns), 0, 0, UINT64_MAX },
	{ "ivshmem", GANTRY_TENANT_IVSHMEM, VALUE_YES, FIELD(ivshmem), 0, 0, 0 },
	{ "ivshmem_size", GANTRY_TENANT_IVSHMEM_SIZE, VALUE_POWER, FIELD(ivshmem_bytes), 0,
	  GANTRY_CONFIG_IVSHMEM_MIN, GANTRY_DOORMEM_MAX_BYTES },
	{ "ivshmem_vectors", GANTRY_TENANT_IVSHMEM_VECTORS, VALUE_U32, FIELD(ivshmem_vectors), 0, 1,
	  GANTRY_DOORMEM_MAX_VECTORS },
	{ "ivshmem_machines", GANTRY_TENANT_IVSHMEM_MACHINES, VALUE_U32, FIELD(ivshmem_machines), 0,
	  1, MAX_MACHINES },
	{ "ivshmem_mode", GANTRY_TENANT_IVSHMEM_MODE, VALUE_MODE, FIELD(ivshmem_mode), 0, 0, 0777 },
	{ "ivshmem_owner", GANTRY_TENANT_IVSHMEM_OWNER, VALUE_OWNER, TEXT_FIELD(ivshmem_owner), 0,
	  0 },
	{ "vsock_cid", GANTRY_TENANT_VSOCK_CID, VALUE_U32, FIELD(vsock_cid), 0, 0, UINT32_MAX - 1 },
	{ "vsock_path", GANTRY_TENANT_VSOCK_PATH, VALUE_TEXT, TEXT_FIELD(vsock_path), 0, 0 },
	{ "group", GANTRY_TENANT_GROUP, VALUE_NAME, TEXT_FIELD(group), 0, 0 },
	{ "min_devices", GANTRY_TENANT_MIN_DEVICES, VALUE_U32, FIELD(min_devices), 0, 0,
	  GANTRY_CONFIG_MAX_DEVICES },
	{ "max_devices", GANTRY_TENANT_MAX_DEVICES, VALUE_U32, FIELD(max_devices), 0, 0,
	  GANTRY_CONFIG_MAX_DEVICES },
	{ "replicas", GANTRY_TENANT_REPLICAS, VALUE_YES, FIELD(replicas), 0, 0, 0 },
	{ "recipes", GANTRY_TENANT_RECIPES, VALUE_RECIPES, FIELD(recipes), 0, 0, 0 },
	{ "communicators", GANTRY_TENANT_COMMUNICATORS, VALUE_YES, FIELD(communicators), 0, 0, 0 },
};

const char *const gantry_tenant_keys[] = {
	"mem",
	"virtual",
	"heap",
	"host_mem",
	"weight",
	"priority",
	"sessions",
	"queues",
	"inflight",
	"deadline",
	"isolation",
	"trust_group",
	"devices",
	"door",
	"door_mode",
	"door_owner",
	"door_uids",
	"on_full",
	"worker_cpu",
	"worker_mem",
	"worker_pids",
	"compute_percent",
	"spin",
	"ivshmem",
	"ivshmem_size",
	"ivshmem_vectors",
	"ivshmem_machines",
	"ivshmem_mode",
	"ivshmem_owner",
	"vsock_cid",
	"vsock_path",
	"group",
	"min_devices",
	"max_devices",
	"replicas",
	"recipes",
	"communicators",
	NULL,
};
static_assert(GANTRY_ARRAY_SIZE(keys) + 1 == GANTRY_ARRAY_SIZE(gantry_tenant_keys),
	      "one name for each key");

void gantry_tenant_conf_init(struct gantry_tenant_conf *tenant, const char *name,
			     const char *source)
{
	*tenant = (struct gantry_tenant_conf){
		.mem_bytes = 1ull << 30,
		.virtual_bytes = 4ull << 30,
		.heap_bytes = 64ull << 20,
		.host_mem_bytes = 2ull << 30,
		.weight = GANTRY_SHARE_WEIGHT_DEFAULT,
		.sessions = 16,
		.queues = 16,
		.devices = "all",
		.door_mode = 0660,
		.worker_cpu = { .weight = 100 },
		.worker_mem_bytes = 4ull << 30,
		.worker_pids = 1024,
		.spin_ns = GANTRY_QUOTA_SPIN_NS,
		.replicas = 1,
		.ivshmem_bytes = 256ull << 20,
		.ivshmem_vectors = 8,
		.ivshmem_machines = 1,
		.ivshmem_mode = 0660,
	};
	/* Both were checked, or come from us: a cut is no harm. */
	(void)gantry_str_copy(tenant->name, sizeof(tenant->name), name);
	(void)gantry_str_copy(tenant->source, sizeof(tenant->source), source);
}

static const struct tenant_key *find_key(const char *name)
{
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(keys); i++)
		if (strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

static int set_size(const struct tenant_key *key, uint64_t *field, const char *value,
		    struct gantry_err *err)
{
	uint64_t bytes;
	int r = gantry_size_parse(value, &bytes, err);

	if (r < 0)
		return gantry_err_wrap(err, -EINVAL, "%s", key->name);
	if (bytes < key->min || bytes > key->max)
		return gantry_err_set(err, -EINVAL,
				      "%s must be from %" PRIu64 " to %" PRIu64 " bytes", key->name,
				      key->min, key->max);
	*field = bytes;
	return 0;
}

static int set_power(const struct tenant_key *key, uint64_t *field, const char *value,
		     struct gantry_err *err)
{
	uint64_t bytes = 0;
	int r = set_size(key, &bytes, value, err);

	if (r < 0)
		return r;
	if (!gantry_is_pow2(bytes))
		return gantry_err_set(err, -EINVAL,
				      "%s must be a power of two, as PCI wants it, such as 256M",
				      key->name);
	*field = bytes;
	return 0;
}

static int set_u32(const struct tenant_key *key, uint32_t *field, const char *value,
		   struct gantry_err *err)
{
	uint64_t number;

	if (gantry_u64_parse(value, key->min, key->max, &number, err) < 0)
		return gantry_err_wrap(err, -EINVAL, "%s", key->name);
	*field = (uint32_t)number;
	return 0;
}

static int set_priority(int32_t *field, const char *value, struct gantry_err *err)
{
	bool negative = value[0] == '-';
	uint64_t number;

	if (gantry_u64_parse(value + negative, 0, PRIORITY_LIMIT, &number, err) < 0)
		return gantry_err_set(err, -EINVAL, "priority must be a number from -%d to %d",
				      PRIORITY_LIMIT, PRIORITY_LIMIT);
	*field = negative ? -(int32_t)number : (int32_t)number;
	return 0;
}

static int set_duration(const struct tenant_key *key, uint64_t *field, const char *value,
			struct gantry_err *err)
{
	if (gantry_duration_parse(value, field, err) < 0)
		return gantry_err_wrap(err, -EINVAL, "%s", key->name);
	return 0;
}

static int set_choice(const struct tenant_key *key, uint32_t *field, const char *value,
		      const char *zero, const char *one, struct gantry_err *err)
{
	if (strcmp(value, zero) == 0)
		*field = 0;
	else if (strcmp(value, one) == 0)
		*field = 1;
	else
		return gantry_err_set(err, -EINVAL, "%s is \"%s\" or \"%s\"", key->name, zero, one);
	return 0;
}

static const char *const isolations[] = {
	[GANTRY_ISOLATED] = "isolated",
	[GANTRY_POOLED] = "pooled",
	[GANTRY_STEWARD] = "steward",
	[GANTRY_PACKED] = "packed",
};

const char *gantry_isolation_name(uint32_t isolation)
{
	return isolation < GANTRY_ARRAY_SIZE(isolations) ? isolations[isolation] : "unknown";
}

static int set_isolation(const struct tenant_key *key, uint32_t *field, const char *value,
			 struct gantry_err *err)
{
	for (uint32_t i = 0; i < GANTRY_ARRAY_SIZE(isolations); i++)
		if (i != GANTRY_STEWARD && strcmp(value, isolations[i]) == 0) {
			*field = i;
			return 0;
		}
	return gantry_err_set(err, -EINVAL, "%s is \"isolated\", \"packed\" or \"pooled\"",
			      key->name);
}

static const char *const recipes_words[] = {
	[GANTRY_RECIPES_MOVES] = "moves",
	[GANTRY_RECIPES_ALWAYS] = "always",
	[GANTRY_RECIPES_NO] = "no",
};

static int set_recipes(const struct tenant_key *key, uint32_t *field, const char *value,
		       struct gantry_err *err)
{
	for (uint32_t i = 0; i < GANTRY_ARRAY_SIZE(recipes_words); i++)
		if (strcmp(value, recipes_words[i]) == 0) {
			*field = i;
			return 0;
		}
	return gantry_err_set(err, -EINVAL, "%s is \"moves\", \"always\" or \"no\"", key->name);
}

/* "2", "0.5", "1.25/200", "0/50" */
static int set_cpu(const struct tenant_key *key, struct gantry_cpu_share *field, const char *value,
		   struct gantry_err *err)
{
	char copy[32], *dot, *slash;
	uint64_t whole, part = 0, weight = 100;
	bool good = gantry_str_copy(copy, sizeof(copy), value) == 0;

	slash = strchr(copy, '/');
	if (slash)
		*slash++ = '\0';
	dot = strchr(copy, '.');
	if (dot)
		*dot++ = '\0';
	good = good && gantry_u64_parse(copy, 0, key->max / 1000, &whole, NULL) == 0;
	if (good && dot) {
		size_t digits = strlen(dot);

		good = digits >= 1 && digits <= 3 &&
		       gantry_u64_parse(dot, 0, 999, &part, NULL) == 0;
		for (; good && digits < 3; digits++)
			part *= 10;
	}
	if (good && slash)
		good = gantry_u64_parse(slash, 1, MAX_CPU_WEIGHT, &weight, NULL) == 0;
	if (!good || whole * 1000 + part > key->max)
		return gantry_err_set(err, -EINVAL,
				      "%s is CPUS or CPUS/WEIGHT, such as 1.5 or 2/200", key->name);
	*field = (struct gantry_cpu_share){ .milli = (uint32_t)(whole * 1000 + part),
					    .weight = (uint32_t)weight };
	return 0;
}

/*
 * What is set, also by gantryctl, is written to a file and must read back as it was: a line's end would begin another
 * key, a semicolon a comment.
 */
static bool is_one_line(const char *value)
{
	for (; *value; value++)
		if ((unsigned char)*value < 0x20 || *value == 0x7f || *value == ';')
			return false;
	return true;
}

static int set_text(const struct tenant_key *key, char *field, const char *value,
		    struct gantry_err *err)
{
	if (!is_one_line(value))
		return gantry_err_set(err, -EINVAL, "%s holds a semicolon or a control character",
				      key->name);
	if (strlen(value) >= key->cap)
		return gantry_err_set(err, -EINVAL, "%s is longer than %zu characters", key->name,
				      key->cap - 1);
	if (key->min && value[0] == '\0')
		return gantry_err_set(err, -EINVAL, "%s must not be empty", key->name);
	(void)gantry_str_copy(field, key->cap, value); /* it fits */
	return 0;
}

static int set_name(const struct tenant_key *key, char *field, const char *value,
		    struct gantry_err *err)
{
	if (value[0] != '\0' && !gantry_name_valid(value))
		return gantry_err_set(err, -EINVAL, "%s must be a name of a-z, 0-9, _ . -",
				      key->name);
	return set_text(key, field, value, err);
}

static int set_mode(const struct tenant_key *key, uint32_t *field, const char *value,
		    struct gantry_err *err)
{
	char *end;
	unsigned long mode = strtoul(value, &end, 8);

	if (value[0] < '0' || value[0] > '7' || *end || mode > key->max)
		return gantry_err_set(err, -EINVAL,
				      "%s must be octal permission bits, such as 0660", key->name);
	*field = (uint32_t)mode;
	return 0;
}

int gantry_owner_parse(const char *text, uid_t *ret_uid, gid_t *ret_gid, struct gantry_err *err)
{
	char user[GANTRY_CONFIG_TEXT];
	char *colon;
	struct passwd *pw;
	struct group *gr;

	(void)gantry_str_copy(user, sizeof(user), text); /* the same size */
	colon = strchr(user, ':');
	if (colon)
		*colon++ = '\0';
	*ret_uid = (uid_t)-1;
	*ret_gid = (gid_t)-1;
	if (user[0]) {
		char *end;
		unsigned long uid = strtoul(user, &end, 10);

		pw = getpwnam(user);
		if (!pw && *end)
			return gantry_err_set(err, -EINVAL, "there is no user %s", user);
		*ret_uid = pw ? pw->pw_uid : (uid_t)uid;
	}
	if (colon && *colon) {
		char *end;
		unsigned long gid = strtoul(colon, &end, 10);

		gr = getgrnam(colon);
		if (!gr && *end)
			return gantry_err_set(err, -EINVAL, "there is no group %s", colon);
		*ret_gid = gr ? gr->gr_gid : (gid_t)gid;
	}
	return 0;
}

static int set_owner(const struct tenant_key *key, char *field, const char *value,
		     struct gantry_err *err)
{
	uid_t uid;
	gid_t gid;
	int r = set_text(key, field, value, err);

	if (r == 0)
		r = gantry_owner_parse(value, &uid, &gid, err);
	return r < 0 ? gantry_err_wrap(err, r, "%s", key->name) : 0;
}

static int parse_uid(const char *text, uid_t *ret_uid, struct gantry_err *err)
{
	uint64_t number;
	struct passwd *pw;

	if (gantry_u64_parse(text, 0, UINT32_MAX - 1, &number, NULL) == 0) {
		*ret_uid = (uid_t)number;
		return 0;
	}
	pw = getpwnam(text);
	if (!pw)
		return gantry_err_set(err, -EINVAL, "door_uids names \"%s\", which is no user",
				      text);
	*ret_uid = pw->pw_uid;
	return 0;
}

static int set_uids(struct gantry_tenant_conf *tenant, const char *value, struct gantry_err *err)
{
	_cleanup_free_ char *copy = strdup(value);
	uid_t uids[GANTRY_CONFIG_MAX_UIDS];
	uint32_t n = 0;
	char *save = NULL;

	if (!copy)
		return -ENOMEM;
	for (char *word = strtok_r(copy, ", ", &save); word; word = strtok_r(NULL, ", ", &save)) {
		int r;

		if (n == GANTRY_CONFIG_MAX_UIDS)
			return gantry_err_set(err, -EINVAL, "door_uids names more than %u users",
					      GANTRY_CONFIG_MAX_UIDS);
		r = parse_uid(word, &uids[n], err);
		if (r < 0)
			return r;
		n++;
	}
	memcpy(tenant->door_uids, uids, n * sizeof(uids[0]));
	tenant->nuids = n;
	return 0;
}

int gantry_tenant_conf_set(struct gantry_tenant_conf *tenant, const char *name, const char *value,
			   struct gantry_err *err)
{
	const struct tenant_key *key = find_key(name);
	void *field;
	int r = -EINVAL;

	if (!key)
		return gantry_err_set(err, -EINVAL, "tenants have no key \"%s\"", name);
	field = (char *)tenant + key->off;
	switch (key->kind) {
	case VALUE_SIZE:
		r = set_size(key, field, value, err);
		break;
	case VALUE_POWER:
		r = set_power(key, field, value, err);
		break;
	case VALUE_YES:
		r = set_choice(key, field, value, "no", "yes", err);
		break;
	case VALUE_U32:
		r = set_u32(key, field, value, err);
		break;
	case VALUE_PRIORITY:
		r = set_priority(field, value, err);
		break;
	case VALUE_DURATION:
		r = set_duration(key, field, value, err);
		break;
	case VALUE_ISOLATION:
		r = set_isolation(key, field, value, err);
		break;
	case VALUE_RECIPES:
		r = set_recipes(key, field, value, err);
		break;
	case VALUE_ON_FULL:
		r = set_choice(key, field, value, "refuse", "queue", err);
		break;
	case VALUE_NAME:
		r = set_name(key, field, value, err);
		break;
	case VALUE_TEXT:
		r = set_text(key, field, value, err);
		break;
	case VALUE_OWNER:
		r = set_owner(key, field, value, err);
		break;
	case VALUE_MODE:
		r = set_mode(key, field, value, err);
		break;
	case VALUE_UIDS:
		r = set_uids(tenant, value, err);
		break;
	case VALUE_CPU:
		r = set_cpu(key, field, value, err);
		break;
	}
	if (r == 0)
		tenant->set |= key->bit;
	return r;
}

static int format_uids(const struct gantry_tenant_conf *tenant, char *buf, size_t cap)
{
	size_t len = 0;

	if (cap == 0)
		return -E2BIG;
	buf[0] = '\0';
	for (uint32_t i = 0; i < tenant->nuids; i++) {
		int n = snprintf(buf + len, cap - len, "%s%u", i ? "," : "", tenant->door_uids[i]);

		if (n < 0 || (size_t)n >= cap - len)
			return -E2BIG;
		len += (size_t)n;
	}
	return 0;
}

static int format_cpu(const struct gantry_cpu_share *share, char *buf, size_t cap)
{
	return gantry_str_format(buf, cap, "%u.%03u/%u", share->milli / 1000, share->milli % 1000,
				 share->weight);
}

int gantry_tenant_conf_get(const struct gantry_tenant_conf *tenant, const char *name, char *buf,
			   size_t cap)
{
	const struct tenant_key *key = find_key(name);
	char quantity[GANTRY_QUANTITY_MAX];
	const void *field;
	uint32_t u32 = 0;

	if (!key)
		return -EINVAL;
	field = (const char *)tenant + key->off;
	switch (key->kind) {
	case VALUE_SIZE:
	case VALUE_POWER:
		gantry_size_format(*(const uint64_t *)field, quantity);
		return gantry_str_copy(buf, cap, quantity);
	case VALUE_DURATION:
		gantry_duration_format(*(const uint64_t *)field, quantity);
		return gantry_str_copy(buf, cap, quantity);
	case VALUE_PRIORITY:
		return gantry_str_format(buf, cap, "%" PRId32, *(const int32_t *)field);
	case VALUE_NAME:
	case VALUE_TEXT:
	case VALUE_OWNER:
		return gantry_str_copy(buf, cap, field);
	case VALUE_UIDS:
		return format_uids(tenant, buf, cap);
	case VALUE_CPU:
		return format_cpu(field, buf, cap);
	default:
		memcpy(&u32, field, sizeof(u32));
		break;
	}
	if (key->kind == VALUE_ISOLATION)
		return gantry_str_copy(buf, cap, gantry_isolation_name(u32));
	if (key->kind == VALUE_YES)
		return gantry_str_copy(buf, cap, u32 ? "yes" : "no");
	if (key->kind == VALUE_RECIPES)
		return gantry_str_copy(buf, cap, recipes_words[u32]);
	if (key->kind == VALUE_ON_FULL)
		return gantry_str_copy(buf, cap, u32 ? "queue" : "refuse");
	return gantry_str_format(buf, cap, key->kind == VALUE_MODE ? "%04o" : "%u", u32);
}

int gantry_tenant_conf_write(const struct gantry_tenant_conf *tenant, uint64_t mask,
			     char **ret_text)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	char value[GANTRY_CONFIG_TEXT * 4];
	int r = 0;

	if (!out)
		return -ENOMEM;
	fprintf(out,
		"# Written by gantryd: changes made with gantryctl. Wins over other files.\n[tenant %s]\n",
		tenant->name);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(keys) && r == 0; i++) {
		if (!(mask & keys[i].bit))
			continue;
		r = gantry_tenant_conf_get(tenant, keys[i].name, value, sizeof(value));
		if (r == 0)
			fprintf(out, "%s = %s\n", keys[i].name, value);
	}
	if (fclose(out) != 0 && r == 0)
		r = -ENOMEM;
	if (r == 0)
		*ret_text = GANTRY_TAKE_PTR(text);
	return r;
}
