/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Installed kernels: watched, told to workers, listed for the admin socket.
 *
 * Threads: the agent's one. Blocking: never, but for reading manifests.
 * Order: start once, stop once; the others between.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_KERNELS_H
#define GANTRY_HOST_AGENT_AGENT_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "admin.pb-c.h"

struct gantry_agent;
struct gantry_answer;

int gantry_kernels_start(struct gantry_agent *a);
void gantry_kernels_stop(struct gantry_agent *a);
void gantry_kernels_rescan(struct gantry_agent *a);
/* Kinds of devices, as bits, that have a form of "MODULE/NAME" ("/NAME": of any module); 0: it is not installed. */
uint64_t gantry_kernels_kinds(const struct gantry_agent *a, const char *name);
/* Whether "MODULE/NAME" is installed, "/NAME" in any module; with a signature of @sig_hash unless that is 0. */
bool gantry_kernels_have(const struct gantry_agent *a, const char *name, uint64_t sig_hash);
void gantry_kernels_list(struct gantry_agent *a, struct gantry_answer *r,
			 Gantry__Admin__KernelList *list);

#endif
