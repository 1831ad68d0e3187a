/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts on devices that failed: whose task did it, and what that means for everybody in flight.
 *
 * Threads: the agent's one. Blocking: never.
 * Order: gantry_fault_told() while the worker lives, gantry_fault_untold() when only its exit status told; the
 * verdicts are read when its sessions get a successor (recover.c).
 */
#ifndef GANTRY_HOST_AGENT_AGENT_FAULT_H
#define GANTRY_HOST_AGENT_AGENT_FAULT_H

#include <stdbool.h>

#include "worker.pb-c.h"

struct gantry_session;
struct gantry_worker;

/* The worker's last word. It is ended, whether it leaves by itself or not. */
void gantry_fault_told(struct gantry_worker *w, const Gantry__Worker__DeviceFault *msg);
/* It left because of a fault, and its word was lost; or the MPS server of its contexts ended. */
void gantry_fault_untold(struct gantry_worker *w);
/* It died, of a fault or not: in a packed group others may have a fault because of it. */
void gantry_fault_worker_died(struct gantry_worker *w);
/* Tasks of it are on a device, as far as the ledgers tell: its end would be a fault of those who share its server. */
bool gantry_fault_may_follow(const struct gantry_worker *w);
/* Counts a fault against the session's tenant. */
void gantry_fault_blame(struct gantry_session *s);

#endif
