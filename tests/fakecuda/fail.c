/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that fail by order of the environment. */
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/fake.h"

#define MAX_ORDERS 16

static struct {
	char call[48];
	unsigned long nth;
	bool later_too;
	CUresult code;
	unsigned long count;
} orders[MAX_ORDERS];

static unsigned int norders;

static void load_one(const char *text)
{
	const char *colon = strchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;
	char *end;

	if (len == 0 || len >= sizeof(orders[0].call) || norders == MAX_ORDERS)
		return;
	memset(&orders[norders], 0, sizeof(orders[0]));
	memcpy(orders[norders].call, text, len);
	orders[norders].nth = strtoul(colon + 1, &end, 10);
	if (*end == '+') {
		orders[norders].later_too = true;
		end++;
	}
	orders[norders].code = *end == ':' ? (CUresult)strtoul(end + 1, NULL, 10)
					   : CUDA_ERROR_UNKNOWN;
	norders++;
}

void fake_fail_load(const char *text)
{
	norders = 0;
	while (text && *text) {
		load_one(text);
		text = strchr(text, ',');
		text = text ? text + 1 : NULL;
	}
}

/* cuda.h renames cuMemAlloc to cuMemAlloc_v2: a test names the first. */
static bool is_named(const char *call, const char *name)
{
	size_t len = strlen(name);

	return strncmp(call, name, len) == 0 &&
	       (call[len] == '\0' || strncmp(call + len, "_v", 2) == 0);
}

CUresult fake_fail_ask(const char *call)
{
	for (unsigned int i = 0; i < norders; i++) {
		unsigned long count;

		if (!is_named(call, orders[i].call))
			continue;
		count = __sync_add_and_fetch(&orders[i].count, 1);
		if (count == orders[i].nth || (orders[i].later_too && count > orders[i].nth))
			return orders[i].code;
	}
	return CUDA_SUCCESS;
}
