/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes from a process that runs a foreign policy: its greeting, its choices. And views: whatever one says, each built-in
 * policy makes a placement of it that passes the check.
 * Input: a byte that says which of these; then the packet.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host-agent/policy/builtin.h"
#include "host-agent/policy/packet.h"
#include "tests/fuzz/fuzz.h"

static struct gantry_policy_choice choices[GANTRY_POLICY_MAX_QUEUES];
static struct gantry_policy_arrays arrays;

static void try_hello(const uint8_t *data, size_t len)
{
	struct gantry_policy_hello hello;
	struct gantry_err err = GANTRY_ERR_NONE;
	int r = gantry_policy_hello_unpack(data, len, &hello, &err);

	assert(r == 0 || (r == -EINVAL && err.text[0]) || r == -EINVAL);
	if (r == 0)
		assert(strlen(hello.summary) < sizeof(hello.summary));
}

static void try_choices(const uint8_t *data, size_t len)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	uint32_t n = len > 64 ? (uint32_t)((len - 24) / sizeof(choices[0])) : 1;

	if (n > GANTRY_POLICY_MAX_QUEUES)
		n = GANTRY_POLICY_MAX_QUEUES;
	(void)gantry_policy_choices_unpack(data, len, 1, n, choices, &err);
}

static void place(const struct gantry_policy *policy)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	void *state = NULL;
	char text[64];

	if (policy->create)
		assert(policy->create("", &state, text, sizeof(text)) == 0);
	gantry_policy_stay(&arrays.view, choices);
	assert(policy->place(state, &arrays.view, choices) == 0);
	gantry_policy_enforce(&arrays.view, choices);
	assert(gantry_policy_check(&arrays.view, choices, &err) == 0);
	if (policy->destroy)
		policy->destroy(state);
}

static void try_view(const uint8_t *data, size_t len)
{
	const struct gantry_policy *policy;
	uint64_t number;

	if (gantry_policy_view_unpack(data, len, &number, &arrays) < 0)
		return;
	for (unsigned int i = 0; (policy = gantry_policy_at(i)); i++)
		place(policy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	if (len == 0)
		return 0;
	if (data[0] % 3 == 0)
		try_hello(data + 1, len - 1);
	else if (data[0] % 3 == 1)
		try_choices(data + 1, len - 1);
	else
		try_view(data + 1, len - 1);
	return 0;
}
