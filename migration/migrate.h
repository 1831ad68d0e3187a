/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of a migration: work leaves a source and goes on at a sink, from one lane, device or host to
 * another.
 *
 *            start              dirty is little            orphaned          drained        copied
 *      IDLE -------> PRECOPY ------------------> ORPHAN -----------> DRAIN ---------> COPY -------> ADOPT ----> DONE
 *       ^            | ^  |                        |                   |                |           |   (commit)
 *       |            | +--+ rounds                 |                   |                |           |
 *       |            v                             v                   v                v           v
 *       +---------- ABORT <------------------------+-------------------+----------------+-----------+ until release
 *          (discarded, resumed)                                                                       was asked for
 *
 * What holds in each state (gantry_migration_invariant() has it as data):
 *
 *   state    who takes from the ring   valid epoch   where the bytes are
 *   IDLE     source                    source's      at the source
 *   PRECOPY  source                    source's      at the source; copies at the sink that may be stale
 *   ORPHAN   source, then nobody       source's      as above; what was issued still writes
 *   DRAIN    nobody                    source's      as above, until it is empty
 *   COPY     nobody                    source's      at the source, which no one writes
 *   ADOPT    nobody, then the sink     source's until release, then the sink's     at both; the sink's count after release
 *   DONE     sink                      sink's        at the sink
 *   ABORT    nobody, then the source   source's      at the source
 *
 * There is one moment at which the work changes hands: when source->release() answers 0. Before it every failure,
 * and every cancel, ends at the source; after it nothing leads back, and the sink is asked to adopt until it has.
 * release() is asked for only when the sink's ready() has answered 0: it holds everything that it needs. tests/model/handover.pml
 * searches all ways in which source, sink and link can fail around that moment.
 *
 * The machine is pure: it has no thread, no clock and does no I/O; it calls the two tables of functions, and is told the
 * time. Trust: it believes its two sides; those check what they get from a peer.
 * Threads: one at a time. Blocking: never, as its two sides never do.
 */
#ifndef GANTRY_MIGRATION_MIGRATE_H
#define GANTRY_MIGRATION_MIGRATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum gantry_migration_state {
	GANTRY_MIGRATION_IDLE,
	GANTRY_MIGRATION_PRECOPY,
	GANTRY_MIGRATION_ORPHAN,
	GANTRY_MIGRATION_DRAIN,
	GANTRY_MIGRATION_COPY,
	GANTRY_MIGRATION_ADOPT,
	GANTRY_MIGRATION_DONE,
	GANTRY_MIGRATION_ABORT,
	GANTRY_MIGRATION_NSTATES,
};

/* Who has the work: may take from the ring, and is right about the bytes. */
enum gantry_migration_owner {
	GANTRY_MIGRATION_SOURCE,
	GANTRY_MIGRATION_SINK,
};

/* "precopy", ...; never NULL. */
const char *gantry_migration_state_name(enum gantry_migration_state state);

/* Whether the machine may go from one state to the other. A state never goes to itself. */
bool gantry_migration_may(enum gantry_migration_state from, enum gantry_migration_state to);

struct gantry_migration_invariant {
	const char *ring;  /* who takes from it */
	const char *epoch; /* whose is valid */
	const char *bytes; /* where they are */
	bool source_takes;
	bool sink_takes;
};
const struct gantry_migration_invariant *gantry_migration_invariant(
	enum gantry_migration_state state);

/*
 * What both sides answer: 0, it is done; -EAGAIN, not yet: call gantry_migration_step() when something has
 * changed; any other -errno: it cannot be, and @err says why. None blocks. An operation that answered -EAGAIN is called
 * again with the same arguments until it answers something else, or the migration is cancelled. Outputs are written with 0 only.
 */

/* Bytes on their way from a source to a sink that cannot reach the source's memory. */
struct gantry_migration_chunk {
	uint64_t object; /* which buffer, segment or table: the two sides agree on it */
	uint64_t off;
	uint64_t len_bytes;
	const void *bytes; /* NULL: zeros. The caller's, until put() has answered */
};

struct gantry_migration_sink {
	/* Reserve and charge room for @owned_bytes, find what the work needs (kernels, devices). Undone by discard(). */
	int (*prepare)(void *cookie, uint64_t owned_bytes, struct gantry_err *err);
	/* Take a chunk. NULL where the source copies by itself. Called by sources only. */
	int (*put)(void *cookie, const struct gantry_migration_chunk *chunk,
		   struct gantry_err *err);
	/* Everything is here, and would survive: from now on only a release or a discard is waited for. */
	int (*ready)(void *cookie, struct gantry_err *err);
	/*
	 * The source has let go: take the ring, at a new epoch, and run. Asked until it answers 0; an error says that what the sink now
	 * owns has ended there.
	 */
	int (*adopt)(void *cookie, struct gantry_err *err);
	/* Forget all of it. May be called without prepare(), and more than once. An error counts as done: nobody else has it. */
	int (*discard)(void *cookie, struct gantry_err *err);
};

struct gantry_migration_source {
	/* Find what the work owns, begin to note what is written. Undone by resume(). */
	int (*begin)(void *cookie, uint64_t *ret_owned_bytes, struct gantry_err *err);
	/*
	 * While the work runs, copy what was written since the round before (all of it in round 0) to @sink. @ret_bytes: so many
	 * were copied; @ret_dirty: so many have been written since and would be copied next.
	 */
	int (*round)(void *cookie, uint32_t round, const struct gantry_migration_sink *sink,
		     void *sink_cookie, uint64_t *ret_bytes, uint64_t *ret_dirty,
		     struct gantry_err *err);
	/* From now on nobody takes from the ring; the program may go on putting. */
	int (*orphan)(void *cookie, struct gantry_err *err);
	/* What was issued has finished. @ret_longest_ns: the time the longest of it took after orphan(). */
	int (*drained)(void *cookie, uint64_t *ret_longest_ns, struct gantry_err *err);
	/* What was written since the last round. */
	int (*copy)(void *cookie, const struct gantry_migration_sink *sink, void *sink_cookie,
		    uint64_t *ret_bytes, struct gantry_err *err);
	/*
	 * Give the work up, for good: with 0 the source never runs it again, even if it dies and comes back. With an error it has
	 * not been given up and never will be.
	 */
	int (*release)(void *cookie, struct gantry_err *err);
	/*
	 * Take it up again where it was. May be called without begin(). An error: it ended at the source, as it may at any time.
	 */
	int (*resume)(void *cookie, struct gantry_err *err);
};

#define GANTRY_MIGRATION_MAX_ROUNDS 16u

/* When to stop copying ahead. A member that is 0 takes the default. */
struct gantry_migration_policy {
	uint64_t pause_ns;    /* copying what is dirty should take no longer: 10 ms */
	uint32_t max_rounds;  /* 8; at most GANTRY_MIGRATION_MAX_ROUNDS */
	uint32_t max_percent; /* of the owned bytes, moved in all rounds: 200 */
	bool no_precopy;      /* orphan at once: for work that owns little, or whose move is free */
};

struct gantry_migration_counts {
	uint64_t owned_bytes;
	uint64_t moved_bytes; /* of all rounds and of the last copy */
	uint64_t last_bytes;  /* of it, while the work stood still */
	uint32_t nrounds;
	uint64_t round_bytes[GANTRY_MIGRATION_MAX_ROUNDS];
	uint64_t dirty_bytes; /* after the last round */
	uint64_t longest_task_ns;
	uint64_t state_ns[GANTRY_MIGRATION_NSTATES]; /* time in each state that was left */
	uint64_t
		pause_ns; /* from orphan until somebody takes from the ring again, its longest task within */
	uint64_t total_ns;
};

struct gantry_migration {
	const struct gantry_migration_source *source;
	const struct gantry_migration_sink *sink;
	void *source_cookie;
	void *sink_cookie;
	struct gantry_migration_policy policy;
	enum gantry_migration_state state;
	unsigned step;	    /* of the state: which operation is asked */
	bool committed;	    /* release() has answered 0 */
	bool release_asked; /* it was called, and has not refused: cancel comes too late */
	bool cancelled;
	bool began; /* the source was asked to begin, the sink to prepare */
	uint64_t started_ns;
	uint64_t entered_ns;  /* the state */
	uint64_t round_ns;    /* when the round under way began */
	uint64_t orphaned_ns; /* 0: it was not */
	struct gantry_migration_counts counts;
	struct gantry_err err; /* why it was aborted, or what the sink said of its end */
};

/* In IDLE. Both tables and what cookies point to outlive @m. @policy NULL: the defaults. */
void gantry_migration_init(struct gantry_migration *m, const struct gantry_migration_source *source,
			   void *source_cookie, const struct gantry_migration_sink *sink,
			   void *sink_cookie, const struct gantry_migration_policy *policy);

/* Leaves IDLE. -EALREADY: it has left it before; a machine makes one journey. */
int gantry_migration_start(struct gantry_migration *m, uint64_t now_ns);

/*
 * Asks one operation. 1: it went on, and is to be called again with the time as it is by then: what an operation takes counts.
 * -EAGAIN: something has to happen first. 0: DONE, the sink has the work; m->err.code is not 0 if it has
 * ended there. Another -errno: the state is IDLE again and the source has the work; m->err says why. Once it has
 * ended it answers the same again.
 */
int gantry_migration_step(struct gantry_migration *m, uint64_t now_ns);

/*
 * Ask for the way back; the next steps take it, and end with -ECANCELED. -EALREADY: it is over, or the source was
 * asked to let go, after which nobody can call the work back.
 */
int gantry_migration_cancel(struct gantry_migration *m, const char *why);

/* A side is gone, or will never answer: as if the operation under way had answered @code. After the commit: nothing. */
void gantry_migration_fail(struct gantry_migration *m, int code, const char *why);

/* Whether it is over, either way; who has the work now. While release() has not answered that is the source. */
bool gantry_migration_over(const struct gantry_migration *m);
enum gantry_migration_owner gantry_migration_owner(const struct gantry_migration *m);

#endif
