/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels print. A driver writes that to this process's standard output, and of failed assertions to standard error, whenever it likes,
 * on threads of its own too, and says not whose it is. So both are bounded files in memory here, and what a worker of one session finds there when
 * a task has finished goes to the buffer that the session has for it (struct gantry_output). In a worker of several sessions, or of one that has no such buffer,
 * standard output is dropped, counted, and told in the log; of standard error, where libraries complain too, some lines are the log's. Guests decide what is in it:
 * it goes nowhere else.
 *
 * Threads: open() before sessions; begin() and end() on device threads; the rest any.
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

/*
 * Standard output and error of the process are ours from now on, and its log goes where standard error went; so does what a sanitizer
 * says, and what was said on standard error before abort(). Once. 0 or -errno.
 */
int worker_output_open(struct gantry_err *err);
/* All is as it was; behind the last session. */
void worker_output_close(void);

/* The session's buffer for it is object @slot. */
void worker_output_is_at(struct wsession *s, uint32_t slot);

/* True: somebody looks at end() for what is written until then, be it @s's or nobody's: so it is worth while to have the driver write it. */
bool worker_output_begin(const struct wdevice *d, struct wsession *s);
void worker_output_end(const struct wdevice *d, struct wsession *s, uint32_t fault);

/* Standard error to the log, where no session takes it. */
void worker_output_look(void);
/* Both, as nobody's: the process is about to end. */
void worker_output_rest(void);

#endif
