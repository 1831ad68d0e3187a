/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of one virtual machine's door (proto/doormem.h): its desks, and the binding of connections (conn.h) to
 * them; and the parts of it that are sessions' segments. ivshmem.c brings it to the machine.
 *
 * Trust: the machine can write every byte of it at any time. Nothing is read back that we wrote, claims and messages
 * are copied once. What is done for it in a second is bounded.
 * Threads: the agent's one. Blocking: never; descriptors that the machine's hypervisor holds are not written here.
 * Order: new or restore; look and beat; close; it goes with its last session.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_DOORMEM_H
#define GANTRY_HOST_AGENT_AGENT_DOORMEM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "host-agent/agent/ask.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/extents.h"
#include "host-agent/agent/parts.h"
#include "proto/doormem.h"

struct gantry_doormem;

/* What may be done in a second, with a little on account. */
struct gantry_budget {
	uint32_t left;
	uint32_t most;
	uint32_t per_s;
	uint64_t filled_ns;
};

struct gantry_desk {
	struct gantry_conn conn; /* while it is open */
	struct gantry_doormem *mem;
	uint32_t index;
	bool open;
	uint64_t seen; /* the generation that was dealt with last */
	uint8_t boot_id[16];
	uint32_t wake; /* enum gantry_doormem_wake: what is used of what the claim offers */
	uint32_t wake_vector;
	uint32_t bell_vector;
	enum gantry_desk_part part; /* that its session is to have; NONE when it has it */
	uint64_t part_off;
	struct gantry_shape shape; /* of who waits for a part */
	uint32_t version;
	uint32_t taken; /* the boxes' counts, as they are meant to be */
	uint32_t host_posted;
	uint32_t notice_posted;
};

struct gantry_doormem {
	struct gantry_agent *agent;
	struct gantry_tenant *tenant;
	uint64_t id; /* of the machine, in names of what the monitor keeps */
	uint64_t epoch;
	uint64_t bytes;
	uint32_t nvectors;
	uint32_t
		host_peer; /* our id on the ivshmem wire; of an earlier agent's memory perhaps another */
	uint32_t state; /* enum gantry_doormem_state */
	bool abandoned; /* no machine has it any more */
	bool is_ending; /* and no session: it goes when it is clean */
	bool has_hung_up; /* its hypervisor has ended: sessions that are about to follow it are not lost */
	/* seat.h */
	bool is_coming; /* QEMU fills it: nothing is read or written */
	uint64_t coming_until_ns;
	uint32_t nseating;	  /* sessions on their way to their seats */
	uint64_t leaves_until_ns; /* nobody new comes in; 0: as usual */
	int fd;
	int seek_fd; /* the same, with a position of its own: nobody else can hold the lock of that */
	int bells[GANTRY_DOORMEM_MAX_VECTORS];	 /* the host's doorbells: the machine rings */
	int vectors[GANTRY_DOORMEM_MAX_VECTORS]; /* the machine's interrupts: workers signal */
	bool interrupts; /* a program of the machine has asked for them: its hypervisor needs them too */
	struct gantry_doormem_header *hdr;
	struct gantry_doormem_desk *shared; /* desks, as the machine sees them */
	uint32_t heartbeat;
	uint8_t boot_id[16]; /* the newest */
	uint32_t first;	     /* desk that a look begins with */
	uint32_t next_bell;
	struct gantry_budget dealings;
	struct gantry_budget claims;
	struct gantry_extents extents;
	uint32_t nsessions;		  /* that have an extent */
	struct gantry_list orphan_link;	  /* agent->orphans */
	struct gantry_list clearing_link; /* agent->clearing: extents of it are being cleared */
	uint32_t nclearing;		  /* so many */
	uint64_t clear_next; /* whose turn it is: the one that begins here, or after it */
	struct gantry_desk desks[GANTRY_DOORMEM_DESKS];
};

/* Fresh memory, kept by the monitor, charged to the tenant. -errno with a sentence. */
int gantry_doormem_new(struct gantry_tenant *t, uint64_t id, uint64_t bytes, uint32_t nvectors,
		       struct gantry_doormem **ret_mem, struct gantry_err *err);
/* The machine has it, or will have in the next moment. */
void gantry_doormem_open(struct gantry_doormem *m);
/* Of an earlier agent's, before gantry_doormem_open(): what the memory itself says, so that it may be the machine's lie. */
bool gantry_doormem_is_open(const struct gantry_doormem *m);
/*
 * One of an earlier agent's, out of its descriptors; @fd is taken over on success. Sessions claim their parts, then
 * gantry_doormem_resume().
 */
int gantry_doormem_restore(struct gantry_tenant *t, uint64_t id, uint32_t nvectors, uint64_t epoch,
			   int fd, struct gantry_doormem **ret_mem, struct gantry_err *err);
/* Claims that nobody serves: those of before are told to come again. */
void gantry_doormem_resume(struct gantry_doormem *m);
/* CLOSED for good: its guests' sessions end. It is freed when the last has, and what they left is cleared: see reap. */
void gantry_doormem_close(struct gantry_doormem *m, int status, const char *text);
void gantry_doormem_drain(struct gantry_doormem *m, bool drain);
/* Its guests' sessions end, and claims that have none yet. */
void gantry_doormem_evict(struct gantry_doormem *m, const char *text);
/* Deals with what is new on its desks. Returns how much that was; the rest has its turn in the next look. */
unsigned gantry_doormem_look(struct gantry_doormem *m);
/* About once a second. */
void gantry_doormem_beat(struct gantry_doormem *m);
uint32_t gantry_doormem_guests(const struct gantry_doormem *m);
uint32_t gantry_doormem_claims(const struct gantry_doormem *m);

/* Frees it if no machine, no session and no clearing has it. */
void gantry_doormem_reap(struct gantry_doormem *m);
/* Memories of @t that only wait to be clean go at once, however long that takes. */
void gantry_doormems_end(struct gantry_tenant *t);

/* ---- machines that bring their sessions along: seat.h ---- */

/* It goes to another host in the next moments, and whoever claims now is better served there. */
bool gantry_doormem_is_leaving(struct gantry_doormem *m);
/* It is COMING, until gantry_doormem_came(), or @until_ns: then it is served as one that has come with nothing. */
void gantry_doormem_await(struct gantry_doormem *m, uint64_t until_ns);
/* It has been another host's under this epoch, which its machine knows. */
void gantry_doormem_become(struct gantry_doormem *m, uint64_t epoch);
/* Its sessions have their seats: it is open. */
void gantry_doormem_came(struct gantry_doormem *m);

/* ---- sessions in it ---- */

/* The part of the memory that begins at @off belongs to no session any more, and no worker has it mapped. */
void gantry_doormem_put(struct gantry_doormem *m, uint64_t off);
/* After a restart: the desk of a session, as its kept name says; its part is taken. -errno with a sentence. */
int gantry_doormem_adopt(struct gantry_doormem *m, struct gantry_session *s, uint32_t desk,
			 uint64_t off, uint64_t bytes, uint64_t generation, struct gantry_err *err);
/* The connection of a session so adopted. */
void gantry_doormem_rejoin(struct gantry_session *s);
/* @s waits for a program, whose claim, if it is still there, was answered by nobody: it sees that and claims anew. */
void gantry_doormem_release_claim(struct gantry_session *s);
/* What the guest says of itself, copied now, for lists: false if @s is of no door memory. */
bool gantry_doormem_claim_of(const struct gantry_session *s, struct gantry_doormem_desk *ret_line);

#endif
