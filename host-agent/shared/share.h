/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Share pages: how workers that know nothing of each other share a device fairly, without the agent on the road.
 *
 * One page per device, in a memfd that the agent and the workers of that device map; guests never do. It
 * holds the device's lanes (who may have work on the device), an entry per session, per tenant and per
 * worker. A session that has work takes a free lane if nobody who waits comes before it:
 *   order: higher priority; then the tenant with the least virtual time; then the session with the least.
 * Virtual time is measured device time divided by weight (start-time fair queueing: Goyal et al. 1996), so
 * tenants get device time in proportion to weights whatever their number of sessions, tasks or their length,
 * and what one leaves another uses at once. A tenant that was idle starts at the virtual time of the least
 * waiting or running one, or where nobody is, at the greatest there is: idleness earns no credit and
 * work nobody else wanted to do costs none.
 * Holders read one word (arrivals) before each submission; only when it moved do they look who waits,
 * and they hand over when a waiter's priority is higher or their lead in virtual time exceeds the slice.
 *
 * A device that is a GPU (hdr.gpu) has lanes for sessions, and two more rules. Its lanes are held by one party at a
 * time: by the sessions of one worker, or of the workers of one MPS server, for only these run side by side (of an AMD GPU
 * its administrator may say that all do: gantry_device_party()); between
 * parties the order above holds. And inside a party a lane is always free, so who runs is decided by units, thousandths
 * of the device that a session's commands in flight can fill. While these sum up to less than the device nobody waits
 * for anybody, whatever the weights. When they do not, a session stands back whose lead over another that has commands
 * in flight exceeds the slice, until it has none. What is observed then is time spent waiting for
 * others, too; copies between host and device never wait for that. A session pays for what its commands take alone, where that is known, and tells which part of the device
 * that is; where it is not, it pays for what those leave, shared with its like by units. What errs there errs for both
 * sides, so a session that fills the device and never has it alone asks its party for a moment of quiet.
 * Guests put batches of work and wait for their end. The pause between two batches, short against them, is no
 * idleness: who has it keeps (a slice or two of) what it lags behind, and who leads does not fill the device
 * just then, for the sake of some microseconds, with what the other then has to wait for. Nor does the party hand the GPU over
 * in such a pause (hdr.turn_pause_us), unless who waits is more urgent or a slice behind; what it kept from others it pays for.
 *
 * Death anywhere leaves the page usable: every decision is one compare-and-swap of a lane or a store to one's own
 * entry. The agent frees a dead worker's lanes (gantry_share_bury()); waiters look again at least
 * every GANTRY_SHARE_PATIENCE_NS.
 *
 * Trust: workers and agent. Numbers from the page are bounded before use all the same.
 * Threads: entries of a session and of a worker are written by that worker's device thread; tenants' weights by
 * the agent; everything is accessed atomically.
 */
#ifndef GANTRY_HOST_AGENT_SHARED_SHARE_H
#define GANTRY_HOST_AGENT_SHARED_SHARE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define GANTRY_SHARE_MAGIC	    0x45524148534e4147ull
#define GANTRY_SHARE_NLANES	    64u
#define GANTRY_SHARE_NTENANTS	    256u
#define GANTRY_SHARE_NSESSIONS	    1024u
#define GANTRY_SHARE_NWORKERS	    1024u
#define GANTRY_SHARE_WEIGHT_MAX	    10000u
#define GANTRY_SHARE_WEIGHT_DEFAULT 100u
#define GANTRY_SHARE_SLICE_NS	    2000000u /* lead that a holder from another worker may gain */
#define GANTRY_SHARE_SLICE_SAME_WORKER_NS \
	100000u /* handing over inside a worker costs no wake-up */
/* The longest sleep; and after it a waiter that was called and does not come is passed over. */
/*
 * Past this a waiter that was called and did not come counts as gone. Longer than a busy host lets a woken thread
 * wait for a processor (5 ms was not: heavier tenants lost their turns); the agent buries the dead sooner anyhow.
 */
#define GANTRY_SHARE_PATIENCE_NS 25000000u
#define GANTRY_SHARE_WHOLE	 1000u /* units of a whole device */
/* Work in flight of one queue of a GPU, in microseconds: while it is full, and after a more urgent one came. */
#define GANTRY_SHARE_WINDOW_CONTENDED_US 300u
#define GANTRY_SHARE_WINDOW_URGENT_US	 100u
#define GANTRY_SHARE_URGENT_US		 20000u /* for so long after */
/*
 * A session of a GPU without commands in flight has not gone, but waits for its guest to put the next ones, for a
 * sixteenth of the time that it had some, and so long at most.
 */
#define GANTRY_SHARE_PAUSE_SHIFT 4
/* So long at most do others begin nothing, that it may be seen what commands take alone: theirs end first, in turns with these. */
#define GANTRY_SHARE_QUIET_US 20000u
#define GANTRY_SHARE_PAUSE_US 500u
/*
 * For how long the party that has a GPU keeps it without commands while another waits. To hand over and back costs some hundred
 * microseconds of switching contexts: who waits for about as long as that before it does loses at most as much again by it.
 */
#define GANTRY_SHARE_TURN_PAUSE_US     100u /* unless configured */
#define GANTRY_SHARE_TURN_PAUSE_MAX_US 1000u

enum gantry_share_state {
	GANTRY_SHARE_FREE = 0,
	GANTRY_SHARE_IDLE = 1,
	GANTRY_SHARE_WAITING = 2,
	GANTRY_SHARE_RUNNING = 3,
};

struct gantry_share_tenant {
	/* agent */
	uint32_t used;	 /* 1: this entry is a tenant's */
	uint32_t weight; /* 1..GANTRY_SHARE_WEIGHT_MAX */
	/* workers */
	uint64_t vtime_ns;  /* device time x GANTRY_SHARE_WEIGHT_DEFAULT / weight */
	uint64_t device_ns; /* measured, for accounts */
	uint32_t nactive;   /* not authoritative: sessions waiting or running, for display */
	uint32_t reserved;
	uint64_t
		session_vtime_ns; /* the greatest of its sessions': where one starts that finds none active */
	uint8_t pad[24];
};
static_assert(sizeof(struct gantry_share_tenant) == 64, "share page format");

struct gantry_share_session {
	uint32_t state;	   /* enum gantry_share_state */
	uint32_t tenant;   /* index; agent, before use */
	uint32_t worker;   /* index; agent, before use */
	int32_t priority;  /* of its most urgent runnable queue */
	uint64_t vtime_ns; /* unweighted device time, against the tenant's other sessions */
	uint64_t device_ns;
	uint64_t wait_ns;	/* total time it waited for a lane */
	uint64_t wait_since_ns; /* CLOCK_MONOTONIC, while it wants */
	uint32_t waits;		/* times it got a lane after it had been refused one */
	/*
	 * When somebody first stood back from a free lane for this session, in microseconds (never 0); 0: nobody does.
	 * The session clears it when it comes; one that does not come in time is passed over.
	 */
	uint32_t called_us;
	uint16_t wants;	  /* 1: waits for a lane, perhaps for one more than it holds */
	uint16_t refused; /* 1: a take failed since it began to want */
	uint32_t nheld;	  /* lanes it holds; lanes[] is the authority */
	/* of a GPU */
	uint32_t party; /* agent: who has the device together with it */
	uint32_t units; /* thousandths of the device that its commands in flight can fill */
	uint32_t
		part; /* thousandths of the device that it had lately beside others; 0: not known */
	uint32_t crowded; /* whether others had commands in flight when it was charged last */
	uint32_t filled;  /* units when it had commands in flight last */
	/* In microseconds, never 0 once set: it has had work, short pauses left out, from then to then. */
	uint32_t busy_us;
	uint32_t left_us;    /* 0: its commands are in flight */
	uint32_t stood_back; /* 1: it led by a slice, and comes back when it leads no more */
	uint32_t quiet_us;   /* when it asked for quiet; 0: it does not */
	uint32_t reserved;
	uint64_t lanes; /* bits: while it waits, those that it can do with; 0: any */
	uint8_t pad[16];
};
static_assert(sizeof(struct gantry_share_session) == 128, "share page format");

struct gantry_share_worker {
	uint32_t wake; /* futex of its device thread while it waits for a lane */
	uint32_t asleep;
	uint8_t pad[56];
};
static_assert(sizeof(struct gantry_share_worker) == 64, "share page format");

struct gantry_share_header {
	uint64_t magic;
	uint32_t nlanes;    /* agent: lanes in use, 1..GANTRY_SHARE_NLANES */
	uint32_t nsessions; /* entries to look at: one past the highest in use */
	uint32_t disabled;  /* agent: nobody may take a lane */
	uint32_t gpu;	    /* agent: lanes are for sessions, of one party at a time */
	uint64_t mem_bytes; /* agent: the device's pool */
	uint32_t
		urgent_us; /* when a session of priority last wanted a GPU, in microseconds; 0: never */
	int32_t urgent_priority;
	uint32_t turn_pause_us; /* agent: see GANTRY_SHARE_TURN_PAUSE_US; 0: handed over at once */
	uint8_t pad0[20];
	uint32_t arrivals; /* grows by 4 when a session starts to wait: a multiple of it always */
	uint32_t watch;	   /* 1: the agent wants to be told when somebody next begins to wait */
	uint8_t pad1[56];
	uint64_t mem_used; /* workers: bytes backed from the pool */
	uint64_t mem_peak;
	uint64_t
		vtime_ns; /* workers: the greatest of any tenant: where one starts that finds none active */
	uint8_t pad2[40];
};
static_assert(sizeof(struct gantry_share_header) == 192, "share page format");

struct gantry_share_page {
	struct gantry_share_header hdr;
	uint32_t lanes[GANTRY_SHARE_NLANES]; /* 0: free; else session index + 1 */
	struct gantry_share_tenant tenants[GANTRY_SHARE_NTENANTS];
	struct gantry_share_session sessions[GANTRY_SHARE_NSESSIONS];
	struct gantry_share_worker workers[GANTRY_SHARE_NWORKERS];
};

/* ---- agent ---- */

/* A page for a device of @nlanes lanes and @mem_bytes memory. The caller owns the descriptor and the mapping. */
int gantry_share_create(const char *device, uint32_t nlanes, uint64_t mem_bytes,
			struct gantry_share_page **ret_page, int *ret_fd, struct gantry_err *err);
/* Maps an existing one and checks its size and magic. */
int gantry_share_open(int fd, struct gantry_share_page **ret_page, struct gantry_err *err);
void gantry_share_close(struct gantry_share_page *page);

void gantry_share_set_tenant(struct gantry_share_page *page, uint32_t tenant, uint32_t weight);
/* A session's entry before it is given to a worker, and after the session's end. */
void gantry_share_admit(struct gantry_share_page *page, uint32_t session, uint32_t tenant,
			uint32_t worker);
void gantry_share_dismiss(struct gantry_share_page *page, uint32_t session);
/* The device is a GPU; at most @most sessions have commands in flight at once, 0: as many as there are. */
void gantry_share_set_gpu(struct gantry_share_page *page, bool gpu, uint32_t most);
/* For how long a party keeps a GPU between two batches, in microseconds. Whoever has it goes by it from now on. */
void gantry_share_set_turn_pause(struct gantry_share_page *page, uint32_t us);
/* With whom the session has a GPU together; after admit. */
void gantry_share_set_party(struct gantry_share_page *page, uint32_t session, uint32_t party);
/* Frees every lane that sessions of dead @worker hold and wakes who waits. Returns how many were held. */
unsigned gantry_share_bury(struct gantry_share_page *page, uint32_t worker);
/* Stops (or allows again) that lanes are taken; holders are told to give theirs back. */
void gantry_share_disable(struct gantry_share_page *page, bool disabled);
/*
 * The agent looks at the page no more until a worker tells it that somebody wants the device (gantry_share_tells()). Whoever is
 * there already is not told of: look after this.
 */
void gantry_share_watch(struct gantry_share_page *page);
/* Whether a lane is held or wanted. */
bool gantry_share_is_busy(const struct gantry_share_page *page);
/* Lanes held, and sessions that wait for one; for display and policies. */
void gantry_share_count(const struct gantry_share_page *page, uint32_t *ret_held,
			uint32_t *ret_waiting);
/* Wakes a worker's device thread so that it looks at its sessions again. */
void gantry_share_nudge(struct gantry_share_page *page, uint32_t worker);

/* ---- worker: one thread per (worker, page) ---- */

/* The session has work of @priority and no lane. Announces it once; harmless to repeat. */
void gantry_share_want(struct gantry_share_page *page, uint32_t session, int32_t priority);
/* After a want: whether the caller has to tell the agent, which sleeps. Once for each gantry_share_watch(). */
bool gantry_share_tells(struct gantry_share_page *page);
/*
 * Takes a lane for a session that wants one, if one is free and nobody waiting comes before it. Returns the lane
 * or -EAGAIN.
 */
int gantry_share_take(struct gantry_share_page *page, uint32_t session);
/* The same with one of @lanes (bits; 0: any) of a device that is no GPU. */
int gantry_share_take_of(struct gantry_share_page *page, uint32_t session, uint64_t lanes);
/*
 * With which lanes (bits; 0: any) the session's waiting ends; before it wants and takes one. While none of them is free nobody
 * stands back for it, and who holds one of them does when its turn has come.
 */
void gantry_share_accept(struct gantry_share_page *page, uint32_t session, uint64_t lanes);
/* The same for what moves bytes between host and GPU, and keeps nobody of its party from the processors. */
int gantry_share_take_to_move(struct gantry_share_page *page, uint32_t session);
/* Nothing more to do: a waiting session gives its turn up. */
void gantry_share_leave(struct gantry_share_page *page, uint32_t session);
/* Gives a lane back and wakes the session whose turn it is. @still_wants: it goes on waiting for the next turn. */
void gantry_share_give(struct gantry_share_page *page, uint32_t session, int lane,
		       bool still_wants);
/* Books measured device time. */
void gantry_share_charge(struct gantry_share_page *page, uint32_t session, uint64_t device_ns);
/*
 * The same of commands that were kept to a part of the device, of no GPU: all of @device_ns where another session was refused a
 * lane, which these held, and else without @spared_ns, what they left of the device.
 */
void gantry_share_charge_part(struct gantry_share_page *page, uint32_t session, uint64_t device_ns,
			      uint64_t spared_ns);
/* Of a GPU: the units of the session's commands in flight, 0 when there are none. Cheap; told whenever they change. */
void gantry_share_use(struct gantry_share_page *page, uint32_t session, uint32_t units);
/* Whether anybody began to wait since @seen was brought up to date. One load: for each submission. */
bool gantry_share_has_news(const struct gantry_share_page *page, uint32_t seen);
/* Whether others of the party have commands in flight: what is measured is not the session's own alone. */
bool gantry_share_is_alone(const struct gantry_share_page *page, uint32_t session);
/*
 * Asks that others of the party begin nothing for a moment, and lets go of that. false: another has asked. Who asks goes
 * on whatever its lead, and pays for it.
 */
bool gantry_share_ask_quiet(struct gantry_share_page *page, uint32_t session);
void gantry_share_end_quiet(struct gantry_share_page *page, uint32_t session);
/*
 * Books time of commands of @units on a GPU: observed, and what they take with nobody beside (0: not known). What is
 * charged, gantry_share_charge() adds.
 */
void gantry_share_charge_units(struct gantry_share_page *page, uint32_t session,
			       uint64_t observed_ns, uint64_t alone_ns, uint32_t units);
/*
 * Whether the holder of a lane of a GPU, which has had nothing in flight for @idle_ns, keeps it from other parties that wait, as its guest
 * may put more at once. false, too, where nobody is kept waiting by it, and where somebody of its own party waits.
 */
bool gantry_share_keeps(const struct gantry_share_page *page, uint32_t session, uint64_t idle_ns);
/* Books the part of @from_ns to @to_ns (CLOCK_MONOTONIC), in which it did so, that others waited. */
void gantry_share_charge_pause(struct gantry_share_page *page, uint32_t session, uint64_t from_ns,
			       uint64_t to_ns);
/* How much work the session may have in flight on a GPU, at most @us; in microseconds. */
uint32_t gantry_share_window_us(const struct gantry_share_page *page, uint32_t session, uint32_t us,
				uint32_t seen);
/*
 * Whether the holder of a lane should give it back before its next submission. *seen is the holder's copy of arrivals
 * (0 at first): the fast path is one load and one compare.
 */
bool gantry_share_must_yield(struct gantry_share_page *page, uint32_t session, uint32_t *seen);
/* The same before what gantry_share_take_to_move() is for. */
bool gantry_share_must_yield_to_move(struct gantry_share_page *page, uint32_t session,
				     uint32_t *seen);
/* Sleeps until nudged, woken by a lane's release, or @deadline_ns; never longer than the patience. */
void gantry_share_sleep(struct gantry_share_page *page, uint32_t worker, uint32_t ticket,
			uint64_t deadline_ns);
/* To be read before the last failing gantry_share_take(); passed to sleep so that no wake-up is lost. */
uint32_t gantry_share_ticket(struct gantry_share_page *page, uint32_t worker);

#endif
