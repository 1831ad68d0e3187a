/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions that go to another host together with their machine, whose device stays in: neither its programs nor their
 * library notice more than a pause. QEMU carries the door memory as the machine's own memory, without what hosts have
 * written there since it first looked; the sessions' segments come by their movers (handover.h, staged), and this puts
 * them where the machine knows them.
 *
 *   there            the machine is expected: the door memory of whoever connects is COMING. Nothing in it is believed or
 *                    written, for QEMU fills it. Which of them it is is said with the seats; others are served then.
 *   here             newcomers wait; sessions are copied ahead; the machine stands still; sessions are held, the last of
 *                    them is copied; the machine's QEMU ends, and sessions that are held stay, with the door memory
 *   there            the machine is there and stands still, and the sessions are this agent's: each is given its seat:
 *                    desk, place, number, and what this host's predecessor had written on the desk. Then the door is
 *                    open, under the epoch that the machine knows, and the machine may run.
 *
 * Somebody who knows of the machine says each step (gantryctl vm migrate). Who falls silent is waited for, not forever.
 *
 * Trust: who asks is an administrator, but what is asked was read out of memory that a machine writes: every number is
 * checked. Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_SEAT_H
#define GANTRY_HOST_AGENT_AGENT_SEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "admin.pb-c.h"
#include "base/err.h"

struct gantry_answer;
struct gantry_doormem;
struct gantry_machine;
struct gantry_session;
struct gantry_tenant;

#define GANTRY_SEAT_HOST_BYTES (64u + 2u * 256u) /* DoorSeat.host */

/* ---- sessions ---- */

/* @s, which is being made for an arrival or whose machine has gone without it, waits for its machine. */
void gantry_seat_expect(struct gantry_session *s, bool keyed);
/* It stays after all, and its machine is not here: it waits for it. @s may be gone afterwards. */
void gantry_seat_await(struct gantry_session *s);
/*
 * It is copied ahead to go with its machine; or no more. Written down for an agent after this one, which knows nothing of the
 * copy: its machine may have gone by then, and somebody will want the session there, or here again.
 */
void gantry_seat_follow(struct gantry_session *s, bool on);
/*
 * Its machine has hung up, and the agent that copied it ahead is no more. It is as it is, for whoever copies it again; if nobody
 * does within machine_grace, it waits for its machine. @s may be gone afterwards.
 */
void gantry_seat_drift(struct gantry_session *s);
/* It is copied again: a way to another host has just begun, whose end says what becomes of it. */
void gantry_seat_drift_no_more(struct gantry_session *s);
/* It is about to be freed. */
void gantry_seat_forget(struct gantry_session *s);
/* Of an earlier agent: what the monitor kept of @s. */
void gantry_seat_restore(struct gantry_session *s);

/* ---- the door that is left ---- */

/* Where the programs of @m sit, into @ret_seats, whose memory is the answer's. */
void gantry_seats_read(const struct gantry_doormem *m, struct gantry_answer *r,
		       Gantry__Admin__DoorSeats *ret_seats);

/* The machine stays, and with it who was about to follow it and is not on the way. */
void gantry_seats_stay(struct gantry_doormem *m);

/* ---- the door that is come to ---- */

/* A machine has connected: it may be the one that is expected, and waits to be told. */
void gantry_seat_came(struct gantry_machine *machine);
/* None is expected any more: those that wait to be told are served. */
void gantry_seat_expect_no_more(struct gantry_tenant *t);
/* 0: sessions are on their way to their seats, and m->is_coming ends with that. -errno with a sentence: nothing was done. */
int gantry_seats_take(struct gantry_doormem *m, const Gantry__Admin__DoorSeats *seats,
		      struct gantry_err *err);

#endif
