/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the device thread tell each other: device.c (start, end and rounds), join.c (queues and sessions that come and
 * go), lane.c (who has a lane), issue.c (a queue's turn), reap.c (what has finished) and park.c (sleep). gpu.c does lane.c's part where the
 * device's share page is a GPU's. The rest of the worker needs worker.h only.
 *
 * Threads: the device's own, always.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_THREAD_H
#define GANTRY_HOST_AGENT_WORKER_THREAD_H

#include "host-agent/worker/worker.h"

/* ---- device.c ---- */
/* Looks at every session once. Returns what it found to do. */
unsigned worker_round(struct wdevice *d);

/* ---- join.c ---- */
/* A queue that this thread serves from now on gets its stream. False: it cannot, and its session is condemned. */
bool worker_queue_open(struct wdevice *d, struct wqueue *q);
/* The session's control queue is this thread's to serve. */
bool worker_has_control(const struct wdevice *d, const struct wsession *s);
/* The queue leaves this thread if it is closing and empty, or shall be served by another device. */
bool worker_queue_leaves(struct wdevice *d, struct wqueue *q);
/* Whether the device has anything of the session's. */
bool worker_in_flight(struct wdevice *d, struct wsession *s);
/* The thread lets go of its session number @i; the last one takes that number. */
void worker_device_drop(struct wdevice *d, uint32_t i);

/* ---- lane.c ---- */
/* A queue whose device was drained, and that has nowhere else to go, waits as a paused one does. */
bool worker_may_issue(const struct wqueue *q);
/* Whether the queue's next task needs one. */
bool worker_needs_lane(const struct wqueue *q);
/* Whether a queue could use a lane at once, if it had one. */
bool worker_wants_lane(const struct wdevice *d, const struct wqueue *q);
/* The lane for the next task: held and still ours, or taken now. */
bool worker_lane_ready(struct wdevice *d, struct wqueue *q);
/* Books what was measured of the queue, and gives its lane back if it has one. */
void worker_lane_give(struct wdevice *d, struct wqueue *q, bool still_wants);
/* After a turn: gives the lane back of a queue that has had nothing in flight for a while, however busy the thread is otherwise. */
void worker_lane_rest(struct wdevice *d, struct wqueue *q);
/* Books device time that was measured. Not for each task: it takes some ten locked instructions. */
void worker_charge_time(struct wdevice *d, struct wqueue *q);

/* ---- issue.c ---- */
/* Returns how many tasks were issued, or finished without. */
unsigned worker_turn(struct wdevice *d, struct wqueue *q);

/* ---- reap.c ---- */
/* Finishes what the device has finished. Returns how many commands. */
unsigned worker_reap(struct wdevice *d);
/* The device refuses what it cannot refuse while it is well: the agent is told. */
void worker_tell_unusable(struct wdevice *d, const char *why);

/* ---- park.c ---- */
/* A round found nothing to do. @ticket: of the share page's word, from before that round. */
void worker_idle(struct wdevice *d, uint32_t ticket);

#endif
