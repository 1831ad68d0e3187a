/* SPDX-License-Identifier: Apache-2.0 */
/* [group NAME], [policy NAME], and what they have to do with devices and tenants. */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "host-agent/agent/config.h"
#include "host-agent/policy/builtin.h"

#define TIMEOUT_NS     (100 * GANTRY_NS_PER_MS)
#define TIMEOUT_MAX_NS (10 * GANTRY_NS_PER_S)

static_assert(GANTRY_CONFIG_MAX_DEVICES <= GANTRY_POLICY_MAX_DEVICES,
	      "a view has room for every device");
static_assert(GANTRY_CONFIG_MAX_TENANTS <= GANTRY_POLICY_MAX_TENANTS, "and for every tenant");

static int set_text(char *field, size_t cap, const char *key, const char *value,
		    struct gantry_err *err)
{
	if (gantry_str_copy(field, cap, value) < 0)
		return gantry_err_set(err, -EINVAL, "%s is longer than %zu characters", key,
				      cap - 1);
	return 0;
}

/* ---- sections ---- */

const struct gantry_group_section *gantry_config_group(const struct gantry_config *config,
						       const char *name)
{
	for (uint32_t i = 0; i < config->ngroups; i++)
		if (strcmp(config->groups[i].name, name) == 0)
			return &config->groups[i];
	return NULL;
}

const struct gantry_policy_section *gantry_config_policy(const struct gantry_config *config,
							 const char *name)
{
	for (uint32_t i = 0; i < config->npolicies; i++)
		if (strcmp(config->policies[i].name, name) == 0)
			return &config->policies[i];
	return NULL;
}

int gantry_group_enter(struct gantry_config *config, const char *name, uint32_t *ret_idx,
		       struct gantry_err *err)
{
	const struct gantry_group_section *known = gantry_config_group(config, name);
	struct gantry_group_section *group;

	if (known) {
		*ret_idx = (uint32_t)(known - config->groups);
		return 0;
	}
	if (config->ngroups == GANTRY_CONFIG_MAX_GROUPS)
		return gantry_err_set(err, -EINVAL, "more than %u groups",
				      GANTRY_CONFIG_MAX_GROUPS);
	group = &config->groups[config->ngroups];
	*group = (struct gantry_group_section){ .policy = "elastic" };
	(void)gantry_str_copy(group->name, sizeof(group->name), name); /* a valid name fits */
	*ret_idx = config->ngroups++;
	return 0;
}

int gantry_policy_enter(struct gantry_config *config, const char *name, uint32_t *ret_idx,
			struct gantry_err *err)
{
	const struct gantry_policy_section *known = gantry_config_policy(config, name);
	struct gantry_policy_section *policy;

	if (known) {
		*ret_idx = (uint32_t)(known - config->policies);
		return 0;
	}
	if (config->npolicies == GANTRY_CONFIG_MAX_POLICIES)
		return gantry_err_set(err, -EINVAL, "more than %u policies",
				      GANTRY_CONFIG_MAX_POLICIES);
	policy = &config->policies[config->npolicies];
	*policy = (struct gantry_policy_section){ .fallback = "elastic", .timeout_ns = TIMEOUT_NS };
	(void)gantry_str_copy(policy->name, sizeof(policy->name), name); /* a valid name fits */
	*ret_idx = config->npolicies++;
	return 0;
}

int gantry_group_key(struct gantry_group_section *group, const char *key, const char *value,
		     struct gantry_err *err)
{
	if (strcmp(key, "devices") == 0)
		return set_text(group->devices, sizeof(group->devices), key, value, err);
	if (strcmp(key, "policy") == 0)
		return set_text(group->policy, sizeof(group->policy), key, value, err);
	if (strcmp(key, "options") == 0)
		return set_text(group->options, sizeof(group->options), key, value, err);
	return gantry_err_set(err, -EINVAL, "[group] has no key \"%s\"", key);
}

int gantry_policy_key(struct gantry_policy_section *policy, const char *key, const char *value,
		      struct gantry_err *err)
{
	if (strcmp(key, "path") == 0) {
		if (value[0] != '/')
			return gantry_err_set(err, -EINVAL,
					      "path must be a full path of a shared object");
		return set_text(policy->path, sizeof(policy->path), key, value, err);
	}
	if (strcmp(key, "fallback") == 0)
		return set_text(policy->fallback, sizeof(policy->fallback), key, value, err);
	if (strcmp(key, "timeout") == 0) {
		if (gantry_duration_parse(value, &policy->timeout_ns, err) < 0)
			return gantry_err_wrap(err, -EINVAL, "%s", key);
		if (policy->timeout_ns < GANTRY_NS_PER_MS || policy->timeout_ns > TIMEOUT_MAX_NS)
			return gantry_err_set(err, -EINVAL, "timeout is from 1ms to 10s");
		return 0;
	}
	return gantry_err_set(err, -EINVAL, "[policy] has no key \"%s\"", key);
}

/* ---- the whole ---- */

bool gantry_config_lists(const char *names, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = names; *at; at += strcspn(at, ", ")) {
		at += strspn(at, ", ");
		if (strncmp(at, name, len) == 0 && strchr(", ", at[len]))
			return true;
	}
	return false;
}

/* @who: "group gpus", or what else names a policy. */
static int check_policy(const struct gantry_config *config, const char *who, const char *name,
			const char *options, struct gantry_err *err)
{
	const struct gantry_policy *policy = gantry_policy_find(name);
	char text[GANTRY_ERR_TEXT_MAX] = "";
	void *state = NULL;

	if (!policy && !gantry_config_policy(config, name))
		return gantry_err_set(
			err, -EINVAL,
			"%s names policy \"%.40s\", which is neither built in nor a [policy]; see gantryctl policy list",
			who, name);
	if (!policy)
		return 0; /* its own process reads its options */
	if (!policy->create)
		return options[0] ? gantry_err_set(err, -EINVAL, "%s: policy %s has no options",
						   who, name)
				  : 0;
	if (policy->create(options, &state, text, sizeof(text)) < 0)
		return gantry_err_set(err, -EINVAL, "%s: policy %s: %s", who, name, text);
	if (policy->destroy)
		policy->destroy(state);
	return 0;
}

static int check_group_devices(const struct gantry_config *config,
			       const struct gantry_group_section *group, struct gantry_err *err)
{
	char names[sizeof(group->devices)];
	char *save = NULL;
	uint32_t n = 0;

	(void)gantry_str_copy(names, sizeof(names), group->devices); /* the same size */
	for (char *name = strtok_r(names, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
		n++;
		if (!gantry_config_device(config, name))
			return gantry_err_set(err, -EINVAL,
					      "group %s has device %.40s, which is not configured",
					      group->name, name);
		for (const struct gantry_group_section *o = config->groups; o < group; o++)
			if (gantry_config_lists(o->devices, name))
				return gantry_err_set(err, -EINVAL,
						      "device %s is in groups %s and %s", name,
						      o->name, group->name);
	}
	if (n == 0)
		return gantry_err_set(err, -EINVAL,
				      "group %s has no devices; give it devices = NAME[,NAME...]",
				      group->name);
	return 0;
}

static int check_group(const struct gantry_config *config, const struct gantry_group_section *group,
		       struct gantry_err *err)
{
	char who[GANTRY_CONFIG_NAME + 8];
	int r = check_group_devices(config, group, err);

	if (r < 0)
		return r;
	(void)gantry_str_format(who, sizeof(who), "group %s", group->name); /* it fits */
	return check_policy(config, who, group->policy, group->options, err);
}

static int check_one_policy(const struct gantry_policy_section *policy, struct gantry_err *err)
{
	if (gantry_policy_find(policy->name))
		return gantry_err_set(
			err, -EINVAL,
			"[policy %s]: a built-in policy has that name; choose another",
			policy->name);
	if (policy->path[0] == '\0')
		return gantry_err_set(err, -EINVAL, "[policy %s] has no path", policy->name);
	if (!gantry_policy_find(policy->fallback))
		return gantry_err_set(err, -EINVAL,
				      "[policy %s]: fallback \"%.40s\" is no built-in policy",
				      policy->name, policy->fallback);
	return 0;
}

static int check_tenant(const struct gantry_config *config, const struct gantry_tenant_conf *t,
			struct gantry_err *err)
{
	const struct gantry_group_section *group = gantry_config_group(config, t->group);

	if (t->max_devices && t->min_devices > t->max_devices)
		return gantry_err_set(
			err, -EINVAL,
			"%s: tenant %s: min_devices, %u, is more than max_devices, %u", t->source,
			t->name, t->min_devices, t->max_devices);
	if (t->group[0] == '\0')
		return 0;
	if (!group)
		return gantry_err_set(err, -EINVAL,
				      "%s: tenant %s is of group %s, which is not configured",
				      t->source, t->name, t->group);
	if (strcmp(t->devices, "all") == 0)
		return 0;
	for (uint32_t i = 0; i < config->ndevices; i++)
		if (gantry_config_lists(group->devices, config->devices[i].name) &&
		    gantry_config_lists(t->devices, config->devices[i].name))
			return 0;
	return gantry_err_set(err, -EINVAL,
			      "%s: tenant %s may use none of the devices of its group, %s",
			      t->source, t->name, t->group);
}

int gantry_config_check_groups(const struct gantry_config *config, struct gantry_err *err)
{
	int r = check_policy(config, "[agent]", config->agent.policy, config->agent.policy_options,
			     err);

	for (uint32_t i = 0; i < config->npolicies && r == 0; i++)
		r = check_one_policy(&config->policies[i], err);
	for (uint32_t i = 0; i < config->ngroups && r == 0; i++)
		r = check_group(config, &config->groups[i], err);
	for (uint32_t i = 0; i < config->ntenants && r == 0; i++)
		r = check_tenant(config, &config->tenants[i], err);
	return r;
}
