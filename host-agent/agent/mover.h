/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mover processes: each is one side of one session's way to or from another host (mover/main.c). A mover ends when our
 * end of its socket closes.
 *
 * Trust: a receiving one reads another host's bytes: what it says is input; sizes and kinds are checked here.
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_MOVER_H
#define GANTRY_HOST_AGENT_AGENT_MOVER_H

#include "base/err.h"
#include "host-agent/mover/talk.h"

struct gantry_agent;
struct gantry_mover_process;

struct gantry_mover_events {
	/* It said something; @len bytes. It may be ended inside. */
	void (*said)(void *arg, const struct gantry_mover_msg *msg, size_t len);
	/* It is gone, without a word or after FAILED. Ended here too: it is not valid any more. */
	void (*gone)(void *arg);
};

/* Starts one. @start and @fds go to it first; the descriptors stay the caller's. -errno with a sentence. */
int gantry_mover_spawn(struct gantry_agent *a, const struct gantry_mover_start *start,
		       const int *fds, unsigned int nfds, const struct gantry_mover_events *events,
		       void *arg, struct gantry_mover_process **ret_mover, struct gantry_err *err);

/* Fills what is the same for all: certificates, our name, confinement. */
void gantry_mover_start_init(struct gantry_agent *a, struct gantry_mover_start *start,
			     uint32_t role);

/* One that does not take it is as good as gone, and says so by its end. */
void gantry_mover_send_msg(struct gantry_mover_process *m, uint32_t kind, int code,
			   const uint8_t *token, const char *text, const int *fds,
			   unsigned int nfds);
void gantry_mover_send_words(struct gantry_mover_process *m, uint32_t kind, const uint8_t *token,
			     uint64_t first, uint64_t second);

/* ACCEPT: where the session is to go. */
void gantry_mover_send_place(struct gantry_mover_process *m, const uint8_t *token,
			     uint64_t slab_pages_bytes, const int *fds, unsigned int nfds);

/* Closes our end: it ends by itself. Its events do not come any more. NULL is allowed. */
void gantry_mover_end(struct gantry_mover_process *m);

/* The agent ends: movers are no more its business. */
void gantry_movers_forget(struct gantry_agent *a);

#endif
