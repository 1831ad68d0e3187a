/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers between sessions: SHARE makes a token, ADOPT shows one.
 *
 * Trust: both messages are a guest's, Keep is a worker's.
 * Threads: the agent's one. Blocking: never: workers answer later.
 * Order: share, then adopt; gantry_exchange_session_gone() before a session's memory goes.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_EXCHANGE_H
#define GANTRY_HOST_AGENT_AGENT_EXCHANGE_H

#include "worker.pb-c.h"

struct gantry_conn;
struct gantry_door_adopt;
struct gantry_door_share;
struct gantry_session;
struct gantry_worker;

void gantry_exchange_share(struct gantry_conn *c, const struct gantry_door_share *msg);
void gantry_exchange_adopt(struct gantry_conn *c, const struct gantry_door_adopt *msg);
/* A worker's Keep. Takes @fd over. */
void gantry_exchange_keep(struct gantry_worker *w, const Gantry__Worker__Keep *msg, int fd);
void gantry_exchange_session_gone(struct gantry_session *s);

#endif
