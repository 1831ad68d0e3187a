/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/worker/affinity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/vocab.h"

static int add_range(unsigned long first, unsigned long last, cpu_set_t *set)
{
	if (last < first)
		return -EINVAL;
	if (last >= CPU_SETSIZE)
		return -ERANGE;
	for (unsigned long cpu = first; cpu <= last; cpu++)
		CPU_SET(cpu, set);
	return 0;
}

static int parse_number(const char **at, unsigned long *ret_number)
{
	char *end;

	if (**at < '0' || **at > '9')
		return -EINVAL;
	errno = 0;
	*ret_number = strtoul(*at, &end, 10);
	if (errno != 0)
		return -ERANGE;
	*at = end;
	return 0;
}

int gantry_cpulist_parse(const char *text, cpu_set_t *ret_set)
{
	cpu_set_t set;
	int r;

	CPU_ZERO(&set);
	for (const char *at = text;; at++) {
		unsigned long first, last;

		r = parse_number(&at, &first);
		last = first;
		if (r == 0 && *at == '-') {
			at++;
			r = parse_number(&at, &last);
		}
		if (r == 0)
			r = add_range(first, last, &set);
		if (r < 0)
			return r;
		if (*at == '\0' || *at == '\n')
			break;
		if (*at != ',')
			return -EINVAL;
	}
	*ret_set = set;
	return 0;
}

/* Of a device whose place is not known: -ENOENT. */
static int near_device(const struct gantry_device_info *info, cpu_set_t *ret_set)
{
	int r = -ENOENT;

	/* A cpu device has processors of its own, by its own option. */
	if (info->kind == GANTRY_KIND_CPU)
		return -ENOENT;
	if (strchr(info->id, ':'))
		r = gantry_topology_near(info->id, -1, ret_set);
	if (r < 0 && info->numa_node >= 0)
		r = gantry_topology_near(NULL, info->numa_node, ret_set);
	return r < 0 ? -ENOENT : 0;
}

int gantry_affinity_apply(const char *setting, const struct gantry_device_info *info,
			  struct gantry_err *err)
{
	cpu_set_t wanted, allowed;
	int r;

	if (setting && strcmp(setting, "off") == 0)
		return 0;
	if (!setting || setting[0] == '\0' || strcmp(setting, "auto") == 0)
		r = near_device(info, &wanted);
	else
		r = gantry_cpulist_parse(setting, &wanted);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return gantry_err_set(err, r, "\"%s\" is no list of processors", setting);
	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
		return gantry_err_set_errno(err, -errno, "asking for this thread's processors");
	CPU_AND(&wanted, &wanted, &allowed);
	if (CPU_COUNT(&wanted) == 0)
		return 0;
	if (sched_setaffinity(0, sizeof(wanted), &wanted) < 0)
		return gantry_err_set_errno(err, -errno, "binding a device's thread");
	return 1;
}
