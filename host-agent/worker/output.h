/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels print. A driver writes that to this process's standard output, and of failed assertions to standard error,
 * on threads of its own too, and says not whose it is. So standard output is a bounded file in memory here, and what a worker of one session finds there when
 * a task has finished goes to the buffer that the session has for it (struct gantry_output). In a worker of several sessions it is
 * dropped, counted, and told in the log. Guests decide what is in it: it goes nowhere else.
 *
 * Threads: open() before sessions; begin() and end() on device threads, one at a time between them; the rest any.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_OUTPUT_H
#define GANTRY_HOST_AGENT_WORKER_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct wdevice;
struct wsession;

/* What one flush may bring; more is lost, and counted as one byte for each flush that lost some. */
#define WORKER_OUTPUT_BYTES (4u << 20)

/* Standard output of the process is ours from now on, and its log goes where standard error went. Once. 0 or -errno. */
int worker_output_open(struct gantry_err *err);
/* All is as it was; behind the last session. */
void worker_output_close(void);

/* The session's buffer for it is object @slot. */
void worker_output_is_at(struct wsession *s, uint32_t slot);

/* True: what is written until end() is @s's, to standard error too, where failed assertions are told. */
bool worker_output_begin(const struct wdevice *d, struct wsession *s);
void worker_output_end(struct wsession *s, uint32_t fault);

#endif
