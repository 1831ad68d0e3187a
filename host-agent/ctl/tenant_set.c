/* SPDX-License-Identifier: Apache-2.0 */
/* tenant create and tenant set: one list of settings, from which options and the request follow. */
#include <string.h>

#include "base/bytes.h"
#include "host-agent/ctl/context.h"
#include "host-agent/ctl/verbs.h"

/* S(option, member of TenantSet, type, metavar, help, words for completion) */
#define TENANT_SETTINGS(S)                                                                         \
	S("mem", mem_bytes, SIZE, "SIZE", "device memory its sessions may hold, such as 20G",      \
	  NONE)                                                                                    \
	S("virtual", virtual_bytes, SIZE, "SIZE", "device memory they may allocate", NONE)         \
	S("heap", heap_bytes, SIZE, "SIZE", "heap of one session's shared memory", NONE)           \
	S("host-mem", host_mem_bytes, SIZE, "SIZE", "shared memory of all its sessions together",  \
	  NONE)                                                                                    \
	S("weight", weight, NUMBER, "N", "share of device time against others, by weight", NONE)   \
	S("priority", priority, SIGNED, "N", "highest priority its queues may ask for", NONE)      \
	S("sessions", sessions, NUMBER, "N", "sessions at once", NONE)                             \
	S("queues", queues, NUMBER, "N", "queues of one session", NONE)                            \
	S("inflight", inflight, NUMBER, "N", "tasks in flight of one session", NONE)               \
	S("deadline", deadline_ns, TIME, "TIME", "longest run of one task; 0: any", NONE)          \
	S("isolation", isolation, TEXT, "MODE", "isolated, packed or pooled", NONE)                \
	S("trust-group", trust_group, TEXT, "NAME", "with whom a GPU or a worker is shared", NONE) \
	S("compute-percent", compute_percent, NUMBER, "N",                                         \
	  "of a GPU's processors that a packed session may use; 0: all", NONE)                     \
	S("spin", spin_ns, TIME, "TIME", "longest spinning of a worker that waits for a device",   \
	  NONE)                                                                                    \
	S("devices", devices, TEXT, "LIST", "devices it may use, comma separated; or all", DEVICE) \
	S("group", group, TEXT, "NAME", "group of devices whose policy places its queues", NONE)   \
	S("min-devices", min_devices, NUMBER, "N", "devices it keeps beside more urgent tenants",  \
	  NONE)                                                                                    \
	S("max-devices", max_devices, NUMBER, "N", "devices its queues are on at once; 0: any",    \
	  NONE)                                                                                    \
	S("door", door, TEXT, "PATH", "where its door's socket is", FILE)                          \
	S("door-mode", door_mode, TEXT, "MODE", "permission bits of its door, octal", NONE)        \
	S("door-owner", door_owner, TEXT, "USER[:GROUP]", "who owns its door", NONE)               \
	S("on-full", on_full, TEXT, "WHAT", "when there is no room to attach: refuse or queue",    \
	  NONE)                                                                                    \
	S("recipes", recipes, TEXT, "WHEN",                                                        \
	  "whose library objects are written down: moves, always or no", RECIPES)                  \
	S("communicators", communicators, YES, "yes|no",                                           \
	  "whether its workers speak with each other, as NCCL's do", NONE)                         \
	S("ivshmem", ivshmem, YES, "yes|no", "whether virtual machines may come in", NONE)         \
	S("ivshmem-size", ivshmem_bytes, SIZE, "SIZE", "memory of a machine, a power of two",      \
	  NONE)                                                                                    \
	S("ivshmem-vectors", ivshmem_vectors, NUMBER, "N", "as many as QEMU's device has", NONE)   \
	S("ivshmem-machines", ivshmem_machines, NUMBER, "N", "machines at once", NONE)             \
	S("ivshmem-mode", ivshmem_mode, TEXT, "MODE", "permission bits of that socket, octal",     \
	  NONE)                                                                                    \
	S("ivshmem-owner", ivshmem_owner, TEXT, "USER[:GROUP]", "who owns that socket", NONE)      \
	S("vsock-cid", vsock_cid, NUMBER, "CID", "of the machine that may come in by vsock", NONE)

const struct gantry_verb_option gantry_tenant_options[] = {
#define OPTION(name, member, type, metavar, help, words) \
	{ name, metavar, help, GANTRY_WORDS_##words },
	TENANT_SETTINGS(OPTION)
#undef OPTION
		{ 0 },
};

enum setting_type {
	SIZE,
	NUMBER,
	SIGNED,
	TIME,
	YES,
	TEXT
};

static const struct {
	const char *name;
	enum setting_type type;
	size_t off; /* in TenantSet, of a pointer */
} settings[] = {
#define SETTING(name, member, type, metavar, help, words) \
	{ name, type, offsetof(Gantry__Admin__TenantSet, member) },
	TENANT_SETTINGS(SETTING)
#undef SETTING
};
#define NSETTINGS (sizeof(settings) / sizeof(settings[0]))

/* What the request points at while it is sent. */
struct values {
	Gantry__Admin__UInt numbers[NSETTINGS];
	Gantry__Admin__SInt sint;
};

static int parse_signed(const char *text, int64_t *ret_value, struct gantry_err *err)
{
	bool negative = *text == '-';
	uint64_t value;
	int r = gantry_u64_parse(text + negative, 0, INT32_MAX, &value, err);

	if (r == 0)
		*ret_value = negative ? -(int64_t)value : (int64_t)value;
	return r;
}

static int parse_setting(size_t i, const char *text, struct values *values, const void **ret_value,
			 struct gantry_err *err)
{
	uint64_t *number = &values->numbers[i].value;

	*ret_value = &values->numbers[i];
	switch (settings[i].type) {
	case SIZE:
		return gantry_size_parse(text, number, err);
	case NUMBER:
		return gantry_u64_parse(text, 0, UINT64_MAX, number, err);
	case TIME:
		return gantry_duration_parse(text, number, err);
	case YES:
		*number = strcmp(text, "yes") == 0;
		return *number || strcmp(text, "no") == 0
			       ? 0
			       : gantry_err_set(err, -EINVAL, "it is yes or no");
	case SIGNED:
		*ret_value = &values->sint;
		return parse_signed(text, &values->sint.value, err);
	case TEXT:
		*ret_value = text;
		return *text ? 0 : gantry_err_set(err, -EINVAL, "it is empty");
	}
	return -EINVAL;
}

/* *@ret_n: how many options were given. */
static int fill_set(struct gantry_ctl *ctl, Gantry__Admin__TenantSet *set, struct values *values,
		    size_t *ret_n)
{
	size_t n = 0;

	for (size_t i = 0; i < NSETTINGS; i++) {
		const char *text = gantry_ctl_option(ctl, settings[i].name);
		struct gantry_err err = GANTRY_ERR_NONE;
		const void *value;

		values->numbers[i] = (Gantry__Admin__UInt)GANTRY__ADMIN__UINT__INIT;
		if (!text)
			continue;
		if (parse_setting(i, text, values, &value, &err) < 0)
			return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
					       "--%s %s: %s; see gantryctl tenant set --help",
					       settings[i].name, text, err.text);
		memcpy((char *)set + settings[i].off, &value, sizeof(value));
		n++;
	}
	*ret_n = n;
	return 0;
}

int gantry_ctl_tenant_create(struct gantry_ctl *ctl)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	struct values values = { .sint = GANTRY__ADMIN__SINT__INIT };
	Gantry__Admin__TenantSet set = GANTRY__ADMIN__TENANT_SET__INIT;
	size_t n;
	int r = fill_set(ctl, &set, &values, &n);

	if (r)
		return r;
	set.name = ctl->args[0];
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_TENANT_CREATE;
	request.tenant_create = &set;
	return gantry_ctl_change(ctl, &request, "tenant %s: created", set.name);
}

int gantry_ctl_tenant_set(struct gantry_ctl *ctl)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	struct values values = { .sint = GANTRY__ADMIN__SINT__INIT };
	Gantry__Admin__TenantSet set = GANTRY__ADMIN__TENANT_SET__INIT;
	size_t n;
	int r = fill_set(ctl, &set, &values, &n);

	if (r)
		return r;
	if (n == 0)
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_USAGE,
			"tenant set: set what? name at least one limit, such as --weight 3");
	set.name = ctl->args[0];
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_TENANT_SET;
	request.tenant_set = &set;
	return gantry_ctl_change(ctl, &request, "tenant %s: changed", set.name);
}
