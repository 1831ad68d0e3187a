/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers of a session that came lazily, fetched as its tasks use them.
 *
 * Trust: workers may have been taken over, and the other host is believed as far as its own session goes: neither reaches
 * anything but that session's slab.
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_HANDOVER_PULL_H
#define GANTRY_HOST_AGENT_AGENT_HANDOVER_PULL_H

#include <stdbool.h>
#include <stdint.h>

#include "worker.pb-c.h"

struct gantry_handover;
struct gantry_mover_msg;
struct gantry_session;
struct gantry_worker;

/* Its buffers are elsewhere from now on: before anyone has it. */
void gantry_pull_mark(struct gantry_session *s);
/* Bytes that are elsewhere yet, and of how many buffers. */
uint64_t gantry_pull_away(const struct gantry_session *s, uint32_t *ret_n);
/* The session is ours. false: it did not come lazily. */
bool gantry_pull_begin(struct gantry_handover *h);

/* The mover can be asked; a buffer is there. */
void gantry_pull_ready(struct gantry_handover *h);
void gantry_pull_came(struct gantry_handover *h, const struct gantry_mover_msg *msg);
void gantry_pull_need(struct gantry_worker *w, const Gantry__Worker__NeedBytes *msg);
/* Its successor is not to have the session while session->npulls is not 0. */
void gantry_pull_worker_gone(struct gantry_session *s);

/* Nothing more is wanted. */
void gantry_pull_end(struct gantry_handover *h, const char *why);
/* Nobody can fetch what @s has elsewhere yet: that is told, and its worker hears that all of it is lost. */
void gantry_pull_lost(struct gantry_session *s, const char *why);
/* The mover is gone, and so is what was not fetched. */
void gantry_pull_broken(struct gantry_handover *h);
/* The hand-over's memory for it. */
void gantry_pull_forget(struct gantry_handover *h);

#endif
