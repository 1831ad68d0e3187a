/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker with communicators tells NCCL of the host that it is on: the environment has NCCL_HOSTID=gantry-000, made by the worker
 * before it has threads; whoever makes a communicator on a part of a GPU writes the part's number into the digits, in place.
 */
#ifndef GANTRY_DEVICES_HOSTS_H
#define GANTRY_DEVICES_HOSTS_H

#define GANTRY_COMMUNICATORS_HOST  "gantry-"
#define GANTRY_COMMUNICATORS_WHOLE GANTRY_COMMUNICATORS_HOST "000"

#endif
