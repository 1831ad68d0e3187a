/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's memory: made before a worker sees it, taken back when no worker can touch it any
 * more.
 *
 * Threads: the agent's one; the segment's first page is shared with guest and worker.
 * Blocking: never.
 * Order: new or blank, map, admit; the road between them is attach.h's and restore.h's. Ends are
 * gantry_detach()'s, which calls gantry_session_free() last; so does the agent at its own end.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_SESSION_H
#define GANTRY_HOST_AGENT_AGENT_SESSION_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/list.h"
#include "host-agent/agent/ask.h"
#include "migration/ledger.h"
#include "proto/segment.h"

struct gantry_agent;
struct gantry_conn;
struct gantry_doormem;
struct gantry_session_sample;
struct gantry_tenant;
struct gantry_worker;
struct gantry_worker_class;

enum gantry_session_phase {
	GANTRY_PHASE_WAITING,	/* for a worker */
	GANTRY_PHASE_ATTACHING, /* the worker was asked */
	GANTRY_PHASE_ATTACHED,
	GANTRY_PHASE_RECOVERING, /* its worker died; a successor is on the way */
	GANTRY_PHASE_DETACHING,
	GANTRY_PHASE_RESTORED, /* of an earlier agent; not yet known who serves it */
	GANTRY_PHASE_HELD,     /* nobody serves it: it is on its way to another host, or from one */
};

/* A queue's oldest task in flight, as the watch over deadlines first saw it. */
struct gantry_oldest {
	uint64_t done; /* tasks before it */
	uint64_t seen_ns;
};

/* Where a session's memory is, and what wakes its two ends, where they are not its own. Descriptors are borrowed. */
struct gantry_session_place {
	struct gantry_doormem *doormem;
	uint32_t desk;
	uint64_t generation;
	uint64_t off;
	int fd;
	int bell_fd;
	uint32_t wake; /* enum gantry_session_wake */
	int wake_fd;   /* negative: none */
	bool is_used;  /* something else lies there: what the session has never had is cleared */
};

struct gantry_session {
	struct gantry_list link;
	struct gantry_list worker_link; /* worker->sessions */
	struct gantry_list want_link;	/* agent->wanting: sessions without a worker */
	struct gantry_agent *agent;
	struct gantry_tenant *tenant;
	struct gantry_conn *conn; /* NULL once the guest is gone */
	struct gantry_worker *worker;
	enum gantry_session_phase phase;
	uint64_t id;
	uint32_t version;
	uint32_t share_slot;
	uint64_t
		leaving; /* bits: devices that drain and that queues of it are leaving (migrate.c) */
	uint64_t served_by;   /* worker that was asked last; 0: none, or not known */
	uint64_t device_mask; /* that its worker was given with it; 0: not known */
	bool welcomed;
	bool slots_held;
	bool broken;	   /* a part of it was not found after a restart */
	int door_fd;	   /* after a restart, until it is known who serves the session */
	int32_t verdict;   /* for the recovery under way */
	bool apart;	   /* served by a worker of its own, to find out whose faults these are */
	bool others_first; /* its worker's end has taken others along, who come first */
	bool orphaned;	   /* its device is gone, with its memory or without another to go to */
	bool judged;	   /* the verdict is fault.c's */
	uint32_t
		nsuspected; /* so often it was one of several who may have caused a fault, within an hour */
	uint64_t suspected_ns; /* the latest */
	int32_t reason;	       /* why it ends */
	uint32_t recoveries;   /* worker deaths in quick succession */
	uint64_t finished;     /* tasks, at the latest of them */
	uint32_t ntries;       /* workers in a row that could not take it */
	bool has_run_here;     /* a worker of ours has had it */
	struct gantry_shape shape;
	struct gantry_doormem *doormem; /* that its segment is in; NULL: it has one of its own */
	uint32_t desk;
	uint64_t charged_bytes; /* of the tenant's host memory */
	bool is_vsock; /* who is behind its relay comes by AF_VSOCK; else by a Unix stream socket */
	int segment_fd;
	uint64_t segment_off; /* in it */
	int bell_fd;
	bool is_relayed;   /* its guest is a relay, whose own comes back with the nonce */
	bool is_arriving;  /* from another host, and not ours yet */
	bool has_moved;	   /* another host has it */
	bool is_adopted;   /* it began on another host */
	bool awaits_guest; /* who comes with the nonce is its guest */
	bool has_key;	   /* nonce is a key that its guest asked for; see adopt.h */
	bool is_following; /* it is copied ahead to go with its machine: should that hang up, it waits, and is not over */
	bool is_seated; /* unadopted, and its guest comes with its machine: seat.h */
	bool unadopted; /* arrived, and no program has it yet: it is held, or being taken over */
	struct gantry_doormem *seating; /* that it is on its way into, to its seat: seat.c */
	struct gantry_moving
		*moving; /* move_in.c: its segment is on the way to where its new guest shares it */
	uint64_t guest_session; /* is_adopted: its number as the guest knows it */
	struct event *guest_timer;
	uint8_t nonce[16];
	uint32_t wake; /* enum gantry_session_wake */
	int wake_fd;   /* of EVENTFD and SOCKET: its worker's to signal, never ours */
	int ledger_fd;
	int slab_fd;
	struct gantry_segment_header *segment; /* its first page */
	struct gantry_ledger ledger;
	uint64_t attached_unix_ns;
	uint64_t began_ns;
	uint64_t died_ns;    /* when its worker was seen dead, latest */
	uint64_t faulted_ns; /* when that worker's fault was told; 0: there was none */
	char program[32];
	struct gantry_missing *missing; /* what its guest wanted and there is not; NULL: nothing */
	uint32_t nmissing;
	pid_t pid;
	uid_t uid;
	struct event *timer; /* of the step under way */
	struct gantry_oldest oldest[GANTRY_MAX_QUEUES];
	struct gantry_session_sample *sample; /* placement_sample.c's */
	struct gantry_list slabs;	      /* slab.c: by device and offset */
	struct gantry_list needs;	      /* its worker's requests for more that wait */
	uint32_t nneeds;
	uint32_t
		ngathers; /* its worker was asked so often to gather its memory and has not answered */
	bool goes_on;	  /* its queues are let go when it has */
	uint32_t npulls;   /* buffers that are being fetched for it now: no other worker gets it */
	bool loss_told;	   /* of buffers that cannot be fetched any more */
	uint32_t nopening; /* tokens of its that are being adopted just now */
};

/* @place: NULL for memory of its own; else the part of the door memory there is the session's, or given back. */
int gantry_session_new(struct gantry_tenant *t, const struct gantry_shape *shape, uint32_t version,
		       const struct gantry_session_place *place,
		       struct gantry_session **ret_session, struct gantry_err *err);
/*
 * Its segment is at @place from now on, where its bytes are already; the memory that it had goes back. No worker has it.
 * @place is the session's, or given back. -errno with a sentence: it has none any more, and must end.
 */
int gantry_session_move_in(struct gantry_session *s, const struct gantry_session_place *place,
			   struct gantry_err *err);
/* An object with nothing in it, on the list. */
struct gantry_session *gantry_session_blank(struct gantry_agent *a, struct gantry_tenant *t,
					    uint64_t id);
/* Maps the segment's first page. */
int gantry_session_map(struct gantry_session *s, struct gantry_err *err);
/* From here on only this worker may say, to a successor of ours, that it serves @s. */
void gantry_session_served_by(struct gantry_session *s, uint64_t worker_id);
/* Entries in share pages, before a worker gets it. */
void gantry_session_admit(struct gantry_session *s, struct gantry_worker *w);
void gantry_session_free(struct gantry_session *s);
/* Of the worker that is to serve it: its tenant's, unless it is kept apart. */
void gantry_session_class(const struct gantry_session *s, struct gantry_worker_class *ret_class);
struct gantry_session *gantry_session_find(struct gantry_agent *a, uint64_t id);
void gantry_session_allow(struct gantry_session *s);
/* Its queues begin nothing new until it is let go; what its devices have is finished. */
void gantry_session_hold(struct gantry_session *s);
void gantry_session_let_go(struct gantry_session *s);
bool gantry_session_is_held(const struct gantry_session *s);
/* Whether its devices have nothing of it any more. */
bool gantry_session_is_still(const struct gantry_session *s);
/* Is the worker's mapping of the segment elsewhere than proposed; as it says. @s has a ledger. */
bool gantry_session_translated(const struct gantry_session *s);
/* The same of the guest's: as the guest says, for the administrator's eyes only. */
bool gantry_session_guest_translated(const struct gantry_session *s);
/* How many LIVE buffers; for lists. */
uint64_t gantry_session_buffers(const struct gantry_session *s);
/* Copies of its buffers in windows of devices that only read them, good or stale, and their bytes. */
uint32_t gantry_session_replicas(const struct gantry_session *s, uint64_t *ret_bytes);

#endif
