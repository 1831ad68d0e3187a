/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions on their way to other hosts and from them. Who may run a session when is migration/handover.h's; this is
 * the agent's part around it: what may go, how it is held still, what is written down, who is told.
 *
 *   handover.c      the list, the journal, questions after an answer that was lost
 *   handover_out.c  a session leaves: movable?, rounds, held still, offered (handover_out.h has its other files)
 *   handover_in.c   one arrives: limits, memory, the ledger checked and charged, adopted (handover_in.h has its other files)
 *   handover_pull.c one has come lazily: what its tasks use is fetched
 *
 * Threads: the agent's one. Blocking: never: a mover (mover.h) does what takes time.
 * Trust: what arrives is another host's word, even with a good certificate.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_HANDOVER_H
#define GANTRY_HOST_AGENT_AGENT_HANDOVER_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "host-agent/mover/talk.h"
#include "migration/handover.h"

struct gantry_agent;
struct gantry_conn;
struct gantry_mover_process;
struct gantry_session;
struct gantry_tenant;

#define GANTRY_HANDOVERS_KEPT 64u   /* finished ones that can still be shown */
#define GANTRY_TOMBSTONES_MAX 1024u /* arrived and ended, of which the source may not know */

enum gantry_handover_phase {
	GANTRY_HANDOVER_CONNECTING,
	GANTRY_HANDOVER_COPYING,  /* rounds; the session runs */
	GANTRY_HANDOVER_DRAINING, /* what its devices have is finished; nothing new begins */
	GANTRY_HANDOVER_STILL,	  /* no worker; the last round */
	GANTRY_HANDOVER_ASKING,	  /* offered, and no answer came: asked again and again */
	GANTRY_HANDOVER_SERVING,  /* it runs there, and what it uses is fetched from here */
	GANTRY_HANDOVER_PULLING,  /* it runs here, and what it uses is fetched */
	GANTRY_HANDOVER_DONE,
	GANTRY_HANDOVER_FAILED,
};

/* A phase began, and what had been moved by then. */
struct gantry_handover_mark {
	enum gantry_handover_phase phase;
	uint64_t at_ns;
	uint64_t page_bytes;
};

#define GANTRY_HANDOVER_MARKS 16u /* later ones are not kept, but for the end */

struct gantry_handover {
	struct gantry_list link; /* agent->handovers */
	struct gantry_agent *agent;
	uint64_t id;
	bool is_incoming;
	enum gantry_handover_phase phase; /* gantry_handover_enter() changes it */
	struct gantry_handover_mark marks[GANTRY_HANDOVER_MARKS];
	uint32_t nmarks;
	uint32_t state;		/* enum gantry_handover_source, or _destination */
	uint64_t session_id;	/* here */
	uint64_t guest_session; /* as its guest knows it */
	uint8_t token[16];
	uint8_t nonce[16]; /* of its guest; zero: it has none */
	char host[256];	   /* the other one */
	uint32_t port;
	char tenant[32];
	struct gantry_mover_process *mover;
	struct event *timer;
	int staging_fd; /* incoming: the ledger that the mover fills */
	struct gantry_image_session image;
	bool is_dry;
	int code; /* of the result: an exit code of gantryctl */
	char text[GANTRY_MOVER_TEXT];
	uint64_t began_ns;
	uint64_t ended_ns;
	uint64_t held_ns; /* when the session was held still */
	uint64_t downtime_ns;
	uint64_t drain_ns;
	uint64_t sent_bytes;
	uint64_t page_bytes;
	uint64_t owned_bytes; /* resident, when it began */
	uint32_t rounds;
	/* Staged: it is copied ahead, and then goes in step with its machine, as somebody says who knows of that. */
	bool is_staged;
	bool is_ready;	  /* only what is written from now on is left to copy */
	bool is_prepared; /* held still, and all of it is there */
	bool may_hold;
	bool may_commit;
	bool was_still; /* its devices had nothing at the look before */
	bool is_lazy;
	bool pull_ready;	  /* its mover can be asked for buffers */
	struct gantry_list pulls; /* handover_pull.c's */
	uint32_t npulled;	  /* buffers that were fetched */
	uint64_t pulled_bytes;	  /* of them; out: as the mover says */
	uint64_t touched_bytes;	  /* of them, what the tasks that wanted them said they use */
	uint64_t away_bytes;	  /* that were there when it came */
	bool gathering;		  /* its worker brings its buffers to host memory */
	bool freeze_waits;	  /* for that, the mover */
	uint32_t naheads;	  /* so often copies of what lies in windows were asked for */
	uint64_t gathered_by;	  /* the worker that was asked */
};

/* ---- handover.c ---- */

struct gantry_handover *gantry_handover_new(struct gantry_agent *a, bool is_incoming);
/* It is in that phase from now on. */
void gantry_handover_enter(struct gantry_handover *h, enum gantry_handover_phase phase);
/* Its result; it stays on the list for those who ask. */
void gantry_handover_finish(struct gantry_handover *h, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* One that never was any: it leaves the list, and is gone. */
void gantry_handover_discard(struct gantry_handover *h);
struct gantry_handover *gantry_handover_find(struct gantry_agent *a, uint64_t id);
struct gantry_handover *gantry_handover_by_token(struct gantry_agent *a, bool is_incoming,
						 const uint8_t *token);
/* The one that has to do with a session now; NULL: none. */
struct gantry_handover *gantry_handover_of(const struct gantry_session *s);
bool gantry_handover_is_over(const struct gantry_handover *h);
/* Another host was offered it, and nobody knows yet who has it. */
bool gantry_handover_is_offered(const struct gantry_session *s);
const char *gantry_handover_phase_name(const struct gantry_handover *h);
/* The same of one that was; not every word of the former. */
const char *gantry_handover_phase_text(enum gantry_handover_phase phase);
/* Where a session has gone whose guest comes with @nonce; NULL: nobody here knows. */
const struct gantry_handover *gantry_handover_gone(const struct gantry_agent *a,
						   const uint8_t *nonce);
/* Writes the journal. 0, or -EIO: what was decided is not written down. */
int gantry_handover_record(struct gantry_agent *a);
void gantry_handovers_fini(struct gantry_agent *a);

/* ---- the journal ---- */

struct gantry_journal_line;
/* Whether @h is to be in the journal, and its line. */
bool gantry_handover_line(const struct gantry_handover *h, struct gantry_journal_line *ret_line);
/* Of an agent before us. */
void gantry_handover_restore(struct gantry_agent *a, const struct gantry_journal_line *line);

/* ---- handover_out.c ---- */

struct gantry_handover_ask {
	const char *to;	    /* HOST, HOST:PORT or [ADDRESS]:PORT */
	uint64_t bandwidth; /* bytes a second; 0: all there is */
	bool is_dry;
	bool is_staged;
	bool is_lazy; /* its buffers are fetched when its tasks use them there */
};

/* 0 and *ret_id; else an exit code of gantryctl with a sentence. */
int gantry_handover_begin(struct gantry_session *s, const struct gantry_handover_ask *ask,
			  uint64_t *ret_id, struct gantry_err *err);
/* Of a staged one: its machine stands still, so that it may be held; with @commit, the machine is there, so that it may go. */
void gantry_handover_proceed(struct gantry_handover *h, bool commit);
/* The staged one of @s that is not over; NULL: there is none. */
struct gantry_handover *gantry_handover_staged(const struct gantry_session *s);
/* 0; else an exit code with a sentence: it is over, or offered already. */
int gantry_handover_cancel(struct gantry_handover *h, struct gantry_err *err);
/*
 * Another build takes over (upgrade.c): what is not offered stays, what arrives is refused, and both sides are told why;
 * nobody new is let in. What is offered is asked about by whoever serves then.
 */
void gantry_handovers_stop(struct gantry_agent *a);
/* After all we go on: the other hosts that have called meanwhile are let in. */
void gantry_handovers_go_on(struct gantry_agent *a);
/* Of those that are not over: is there one that is not a question about an answer that was lost? */
bool gantry_handovers_under_way(const struct gantry_agent *a);
/* Is there a lazy one of which not all has been fetched? */
bool gantry_handovers_fetch(const struct gantry_agent *a);
/* Its worker is dead and buried. true: it is held still, and must get no other. */
bool gantry_handover_worker_gone(struct gantry_session *s);
/* Offered, and nobody knows whether it was taken: ask. */
void gantry_handover_ask(struct gantry_handover *h);
/* It comes to rest to leave: nobody may begin to share memory with it. */
bool gantry_handover_settles(const struct gantry_session *s);
/* The session is about to end, whatever the reason. */
void gantry_handover_session_ends(struct gantry_session *s);

/* ---- handover_in.c ---- */

/* The listener that the configuration asks for. */
void gantry_handovers_apply(struct gantry_agent *a);
void gantry_handovers_close(struct gantry_agent *a);

#endif
