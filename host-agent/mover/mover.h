/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mover, as its files share it: one hand-over, one connection, one agent.
 *
 * Threads: one. Blocking: everything; the agent is another process and waits for nothing here.
 */
#ifndef GANTRY_HOST_AGENT_MOVER_MOVER_H
#define GANTRY_HOST_AGENT_MOVER_MOVER_H

#include "base/err.h"
#include "host-agent/mover/talk.h"
#include "host-agent/mover/tls.h"

#define GANTRY_MOVER_AGENT_FD 3
#define GANTRY_MOVER_MAX_FDS  4u
#define GANTRY_MOVER_CPUS \
	2u /* with no more a side has one thread: source and destination may be on one machine, and a third only waits and wakes */

struct gantry_mover {
	struct gantry_mover_start start;
	struct gantry_tls *tls;
	int sock;
	int agent_fd;
	int fds[GANTRY_MOVER_MAX_FDS]; /* of START or ACCEPT: segment, slab, ledger, store */
	unsigned int nfds;
	int code; /* of the failure: an exit code of gantryctl */
	struct gantry_err err;
};

/* ---- words.c: what all roles need ---- */

/* Sets code and sentence; returns -1. */
int gantry_mover_fail(struct gantry_mover *m, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same with the sentence that is in m->err, for a result of tls.h or image.h. */
int gantry_mover_fail_err(struct gantry_mover *m, int r);

void gantry_mover_init(struct gantry_mover_msg *msg, uint32_t kind);
/* To the agent; one that is gone ends us. */
void gantry_mover_tell(struct gantry_mover *m, const struct gantry_mover_msg *msg, size_t len);
void gantry_mover_tell_kind(struct gantry_mover *m, uint32_t kind);
/* From the agent: waits for one of @kinds (0: none more); CANCEL and its end fail. -EAGAIN after @timeout_ns. */
int gantry_mover_hear(struct gantry_mover *m, struct gantry_mover_msg *ret_msg,
		      const uint32_t *kinds, uint64_t timeout_ns);
/* Whether the agent wants an end now; sleeps for @ns otherwise. 0, or -1 with the failure set. */
int gantry_mover_pause(struct gantry_mover *m, uint64_t ns);

/* On the link. 0, or -1 with the failure set; a REFUSED of the other side is one. */
int gantry_mover_say(struct gantry_mover *m, uint32_t kind, const uint8_t *token, int code,
		     const char *text);
int gantry_mover_listen(struct gantry_mover *m, struct gantry_mover_msg *ret_msg,
			const uint32_t *kinds, uint64_t timeout_ns);

/* Whether the other side has said something out of turn, such as that it does not want what is being sent. 0, or -1 with the failure set. */
int gantry_mover_overhear(struct gantry_mover *m);

/* ---- pull.c, after a lazy hand-over; 0: nothing more is wanted, or -1 with the failure set ---- */
struct gantry_pages;
int gantry_mover_serve(struct gantry_mover *m, const struct gantry_pages *slab);
int gantry_mover_pull(struct gantry_mover *m, uint64_t slab_bytes);

/* ---- the roles; 0, or -1 with the failure set ---- */
int gantry_mover_send(struct gantry_mover *m);	  /* send.c */
int gantry_mover_query(struct gantry_mover *m);	  /* main.c */
int gantry_mover_receive(struct gantry_mover *m); /* receive.c */

#endif
