/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to workers and their answers; what workers say unasked.
 *
 * Trust: a worker may be taken over by its guest: what it says is input.
 * Threads: the agent's one. Blocking: never: what does not fit the socket waits in worker->out.
 * Order: each call's function is called once, at the latest by gantry_call_fail_all(); not after
 * gantry_call_forget().
 */
#ifndef GANTRY_HOST_AGENT_AGENT_CALL_H
#define GANTRY_HOST_AGENT_AGENT_CALL_H

#include <event2/util.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker.pb-c.h"

struct gantry_worker;

/* @answer is NULL when the worker died or did not answer in time; @fd, if any, is the callee's. */
typedef void gantry_call_fn(void *arg, const Gantry__Worker__FromWorker *answer, int fd);
/*
 * Send @msg (its tag is filled in) and call @fn with the answer. Without @fn nothing is waited for.
 * -EPIPE: the
 * worker is gone; @fn is then not called.
 */
int gantry_call(struct gantry_worker *w, Gantry__Worker__ToWorker *msg, const int *fds,
		unsigned int nfds, uint64_t timeout_ns, gantry_call_fn *fn, void *arg);
/* The calls of @arg come to nothing: their answers are dropped. */
void gantry_call_forget(struct gantry_worker *w, const void *arg);
/* A failure that a worker reports: @otherwise where it is none of the protocol's. */
int gantry_status_of_worker(int32_t status, int otherwise);
/* An answer is due, or a packet has not left yet. */
bool gantry_call_waits(const struct gantry_worker *w);
void gantry_call_fail_all(struct gantry_worker *w);
void gantry_call_readable(evutil_socket_t fd, short what, void *arg);

#endif
