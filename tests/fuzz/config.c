/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a configuration file. */
#include "host-agent/agent/config.h"

#include <assert.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"

/* What is written for the state directory is read back as it was. */
static void check_tenant(const struct gantry_tenant_conf *tenant)
{
	struct gantry_config *again = gantry_config_new();
	struct gantry_err err = GANTRY_ERR_NONE;
	char *text = NULL;

	if (!again)
		abort();
	assert(gantry_name_valid(tenant->name));
	if (gantry_tenant_conf_write(tenant, tenant->set, &text) < 0)
		abort();
	if (gantry_config_parse(again, "again", text, strlen(text), &err) < 0)
		abort();
	assert(again->ntenants == 1);
	assert(strcmp(again->tenants[0].name, tenant->name) == 0);
	assert(again->tenants[0].set == tenant->set);
	assert(again->tenants[0].mem_bytes == tenant->mem_bytes);
	assert(again->tenants[0].weight == tenant->weight);
	free(text);
	gantry_config_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct gantry_config *config = gantry_config_new();
	struct gantry_err err = GANTRY_ERR_NONE;

	if (!config)
		abort();
	if (gantry_config_parse(config, "fuzz", (const char *)data, len, &err) < 0) {
		assert(err.text[0]);
	} else {
		assert(config->ndevices <= GANTRY_CONFIG_MAX_DEVICES);
		assert(config->ntenants <= GANTRY_CONFIG_MAX_TENANTS);
		for (uint32_t i = 0; i < config->ntenants; i++)
			check_tenant(&config->tenants[i]);
		(void)gantry_config_check(config, &err);
	}
	gantry_config_free(config);
	return 0;
}
