/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker with communicators tells NCCL of the host that it is on: the environment has NCCL_HOSTID=gantry-000, made by the worker
 * before it has threads; whoever makes a communicator on a part of a GPU writes the part's number into the digits, in place.
 */
#ifndef GANTRY_DEVICES_HOSTS_H
#define GANTRY_DEVICES_HOSTS_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define GANTRY_COMMUNICATORS_HOST  "gantry-"
#define GANTRY_COMMUNICATORS_WHOLE GANTRY_COMMUNICATORS_HOST "000"

/* The host in the environment of such a worker, to be read and written in place; NULL: the process has no communicators. */
static inline char *gantry_communicators_host(void)
{
	char *host = getenv("NCCL_HOSTID");

	return host && strncmp(host, GANTRY_COMMUNICATORS_HOST,
			       strlen(GANTRY_COMMUNICATORS_HOST)) == 0
		       ? host
		       : NULL;
}

#endif
