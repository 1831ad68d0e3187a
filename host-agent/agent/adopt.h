/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions whose guests share memory, and programs that take them over on another host. A guest asks for its session's key;
 * when the session has come from another host it is held, unadopted, until a program of the same tenant shows that key at a
 * door. The key is good once, and for one program; a program that comes first waits. Who comes too late finds nothing.
 *
 *   guest asks KEY ----> has_key, kept by the monitor (a later KEY makes the earlier one worthless)
 *   session leaves ----> the guest at the source has MOVED and no session
 *   session arrives ---> has_key, unadopted, HELD: no worker has it --no one in adoption_grace--> it ends
 *   HELLO with ADOPT --> moves in where its guest shares memory, gets a worker, WELCOME; the key is spent
 *
 * Trust: a key is 128 random bits that only the guest, the agents and their monitors know; beside it the door has to be the
 * tenant's. Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_ADOPT_H
#define GANTRY_HOST_AGENT_AGENT_ADOPT_H

#include <stdbool.h>
#include <stdint.h>

struct gantry_conn;
struct gantry_door_key;
struct gantry_session;

/* KEY came from an attached guest. */
void gantry_adopt_key(struct gantry_conn *c, const struct gantry_door_key *msg);
/* A HELLO with ADOPT came: it gets the session, waits for it, or is refused. */
void gantry_adopt_hello(struct gantry_conn *c);

/* @s, which is being made for an arrival, is for whoever has @key. */
void gantry_adopt_expect(struct gantry_session *s, const uint8_t key[16]);
/* It is ours, held, and no worker has it: who waits for it gets it, else it waits. It may be gone afterwards. */
void gantry_adopt_await(struct gantry_session *s);
/* It may not be taken over until it is awaited again: it is to go on to another host. */
void gantry_adopt_withhold(struct gantry_session *s);
/* It is not for who has the key any more, but for the guest that it has; its key, if that has asked for one, goes on. */
void gantry_adopt_settle(struct gantry_session *s);
/* Its worker has it: its program is welcome. */
void gantry_adopt_attached(struct gantry_session *s);
/* The worker of one that nobody has yet is gone: true, and it is held again. */
bool gantry_adopt_worker_gone(struct gantry_session *s);
/* It is about to be freed. */
void gantry_adopt_forget(struct gantry_session *s);

/* Of an earlier agent: what the monitor kept of @s. */
void gantry_adopt_restore(struct gantry_session *s);

#endif
