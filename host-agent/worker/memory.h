/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files about a session's memory tell each other: object.c (handles), slab.c (offsets and host memory),
 * charge.c, buffer.c, back.c (where buffers' bytes are), share.c, window.c with window_slabs.c, window_open.c and wash.c (device memory), job.c (commands of the worker's own), move.c with carry.c, quiet.c
 * and marks.c (buffers that change their place), replica.c (copies beside it), ahead.c (copies of those that a queue will move with). The rest of the
 * worker needs worker.h only.
 *
 * Functions named _locked want session->lock held; the others take it themselves where they need it.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_MEMORY_H
#define GANTRY_HOST_AGENT_WORKER_MEMORY_H

#include "host-agent/worker/marks.h"
#include "host-agent/worker/worker.h"

#define WORKER_MAX_ASKS 64u /* of one window, not answered yet */
/* As large as slabs get: what is copied to one need not wait for the next. */
#define WORKER_ASK_AT_ONCE (4ull << 30)

/* Slabs that the agent was asked for. */
struct wask {
	struct wextent part;
	int status;	   /* it was refused, and the buffer that needs it has not heard */
	bool ahead;	   /* of need */
	bool given_up;	   /* whoever needed it went elsewhere */
	uint64_t ndropped; /* slabs of the window that were given back before it was sent */
};

/* Device memory of a session: parts of its slab space have slabs behind them. */
struct wwindow {
	struct gantry_mem *mem;	      /* NULL: not open yet, or no more */
	struct gantry_stream *stream; /* of jobs; the device's thread */
	uint64_t align;
	uint64_t bytes;
	uint64_t address;      /* where it is to be; 0: anywhere */
	uint64_t ranges;       /* where ranges of the session's lie, if possible; 0: anywhere */
	bool is_known;	       /* the guest knows it: nowhere else */
	bool gone;	       /* its thread lets go: no job may begin */
	bool unclean;	       /* slabs may hold what an earlier worker left */
	struct wextent *slabs; /* mapped, sorted */
	uint32_t nslabs;
	uint32_t cap;
	uint64_t mapped_bytes;
	uint64_t held_bytes; /* may stay mapped when nobody uses them */
	uint64_t ndropped;   /* slabs given back so far */
	uint32_t nasks;
	struct wask asks[WORKER_MAX_ASKS];
	uint64_t reserve_after_ns; /* after a refusal */
};

/* An answer of the agent's on its way to the device's thread. */
struct wgive {
	struct wsession *session; /* held */
	uint64_t off;
	uint64_t bytes;
	int status;
	bool last;
	uint32_t nslabs;
	struct wextent slabs[GANTRY_ENGINE_MAX_SLABS];
	int fds[GANTRY_ENGINE_MAX_SLABS];
	bool fresh[GANTRY_ENGINE_MAX_SLABS];
};

/* Until every task that was bound before it began has finished. Stays where it is while it has visits. */
struct wquiet {
	struct wsession *session;
	uint64_t queues; /* bits: those that count */
	uint32_t visits; /* under the lock: threads that have not said how far they are */
	bool reached;
	uint64_t tails[GANTRY_MAX_QUEUES];
};

enum wcarry_way {
	CARRY_SPILL, /* from the window to host memory; on its device's thread */
	CARRY_FETCH, /* from host memory to the window; likewise */
	CARRY_PEER,  /* from another device's window; on the thread of the one it goes to */
};

/* Bytes on their way from one place of a buffer to another. */
struct wcarry {
	struct wsession *session;
	enum wcarry_way way;
	uint32_t from; /* PEER: the device it comes from */
	uint64_t off;
	uint64_t len;
	const struct wmarks *only; /* NULL: all of it */
	bool downwards;		   /* of `only`: the last first */
	uint64_t at;   /* so far it is copied, or with the device; downwards: from here on */
	uint64_t most; /* bytes at a time; 0: as many as there may be */
	uint64_t moved_bytes;
	void *base; /* the piece of the slab's file that is with the device */
	uint64_t base_bytes;
	struct gantry_mem *host;
};

/*
 * Of a buffer that is copied ahead, to where its queue will go: it is used where it is, and each write is marked. Under
 * the lock. The device that it goes to has been charged and is in the ledger's `to`, but for a SPILL.
 */
struct wahead {
	const void *mover; /* whose */
	enum wcarry_way way;
	uint32_t to;	     /* PEER, FETCH: the device it goes to */
	struct wmarks dirty; /* written since it was copied, or never copied */
	struct wmarks aging; /* as dirty, and whoever wrote it is waited for */
	struct wmarks again; /* as dirty, of the next round: it was copied before it was written */
	struct wmarks todo;  /* of the round under way */
	bool carried; /* a piece of it is being copied: it may be used, but neither moved nor released */
};

/* What a task, or a queue that moves, wants of a buffer. */
enum wuse {
	WUSE_READ,
	WUSE_WRITE,
	WUSE_OWN, /* that its place is there; nothing of it is used yet */
};

enum wjob_next {
	JOB_COMMAND, /* *cmd is to be submitted; its tag is set */
	JOB_WAIT,    /* not yet; whoever ends that wakes the device */
	JOB_END,
};

/* The head of a job. */
struct wjob {
	struct gantry_list link;
	struct wsession *session;
	bool flying;	       /* a command is with the device */
	bool urgent;	       /* a task or a queue waits for it: it is not put off */
	int status;	       /* of a command that failed; DETACHED: the session ends */
	struct gantry_cmd cmd; /* to be submitted, if its tag is not 0 */
	/* The next command; END soon once there is a status. Device thread. */
	enum wjob_next (*next)(struct wdevice *d, struct wjob *job, struct gantry_cmd *cmd);
	/* Frees it. Device thread. */
	void (*end)(struct wdevice *d, struct wjob *job);
};

static inline uint64_t worker_page_up(uint64_t bytes)
{
	return (bytes + GANTRY_PAGE - 1) & ~(uint64_t)(GANTRY_PAGE - 1);
}

static inline bool worker_is_buffer(const struct gantry_ledger_object *obj)
{
	return obj->state != GANTRY_OBJECT_FREE && obj->type == GANTRY_HANDLE_BUFFER;
}

static inline bool worker_has_window(const struct wdevice *d)
{
	return d->device.info.caps & GANTRY_CAP_WINDOW;
}

/* Whether the buffer's offset in the slab space is its own: memory is there, or on its way. */
static inline bool worker_holds_offset(const struct gantry_ledger_buffer *b)
{
	return GANTRY_PLACE_HAS_RANGE(b->place) || b->place == GANTRY_PLACE_WINDOW ||
	       (b->place == GANTRY_PLACE_NONE && b->charged_bytes);
}

/* Whether it counts as virtual memory of the session: ranges are but addresses. */
static inline bool worker_is_virtual(const struct gantry_ledger_buffer *b)
{
	return b->place != GANTRY_PLACE_HEAP && b->place != GANTRY_PLACE_IMAGE &&
	       b->place != GANTRY_PLACE_RANGE;
}

/* ---- slab.c ---- */
/* The pages of [off, off + len) go back to the kernel, which clears them before anyone sees them again. */
void worker_scrub_host(struct wsession *s, uint64_t off, uint64_t len);
/* Whole pages of the slab space. -ENOMEM: no such range is free. */
int worker_slab_take_locked(struct wsession *s, uint64_t len, uint64_t *ret_off);
/* As reserving: -EINVAL where a part of it is not free. */
int worker_slab_take_at_locked(struct wsession *s, uint64_t off, uint64_t len);
void worker_slab_put_locked(struct wsession *s, uint64_t off, uint64_t len);

/* ---- charge.c ---- */
void worker_deny(struct wsession *s);
/* Resident memory: the session's own limit, the tenant's, then the device's pool. LIMIT or NO_MEMORY. */
int worker_charge_resident(struct wdevice *d, struct wsession *s, uint64_t bytes);
void worker_refund_resident(struct wsession *s, uint32_t device, uint64_t bytes);
/* A buffer that moves to another device takes its charge along; the memory itself stays where it is. */
int worker_charge_move(struct wdevice *d, struct wsession *s, struct gantry_ledger_buffer *b);

/* The buffer's host memory; *host_bytes says it. LIMIT. */
int worker_charge_host(struct wsession *s, struct gantry_ledger_buffer *b);
void worker_refund_host(struct wsession *s, struct gantry_ledger_buffer *b);
/* The device's pool alone: for a buffer on its way there. NO_MEMORY. */
int worker_charge_pool(struct wdevice *d, uint64_t bytes);
void worker_refund_pool(struct wsession *s, uint32_t device, uint64_t bytes);

/* ---- back.c ---- */
/* First use of a buffer with memory of its own: charge, then back. */
int worker_back_own_locked(struct wdevice *d, struct wsession *s, struct gantry_ledger_object *obj);

/* ---- answer.c, variable.c ---- */
/* What a new object has for made_by until an operation is answered with it: it is undone when the worker dies before. */
#define WORKER_NOT_TOLD GANTRY_LEDGER_POSITION_MAX
/* What a backend's -errno is to a guest that asked. */
int worker_device_status(int r);
/*
 * Whether the buffer in @slot, which nobody has any more, may end: it is no variable, or the device has let go of that. Else its
 * thread does so soon, and ends the buffer: until then it is there, and charged for.
 */
bool worker_variable_gone_locked(struct wsession *s, uint32_t slot);
/* Device @d leaves the session: all that it has there, of buffers and of those that ended, before the images go. Device thread. */
void worker_variables_leave_locked(struct wdevice *d, struct wsession *s);

/* ---- range.c: addresses where memory of the session lies too ---- */
/* The device has such for the session. */
bool worker_has_ranges(const struct wdevice *d, const struct wsession *s);
/* Something is mapped in the range in @slot, or the buffer there is mapped: it is not to be freed. */
bool worker_range_holds_locked(const struct wsession *s, uint32_t slot);
/* The ranges of the ledger are where they were, with nothing in them yet; -errno with a sentence. Device thread. */
int worker_ranges_open(struct wdevice *d, struct wsession *s, struct gantry_err *err);
/* What was mapped in ranges before the worker died is again, if its slabs have come. Device thread. */
void worker_ranges_again_locked(struct wdevice *d, struct wsession *s);
/* OK: the buffer in @slot is mapped where its ledger says. AGAIN: not yet. Else why it cannot be. */
int worker_range_known_locked(const struct wsession *s, uint32_t slot);
/* `reserve` and `map` on the device's thread: a status. */
int worker_range_make(struct wdevice *d, struct wsession *s, const struct gantry_op_reserve *op,
		      struct gantry_reply_variable *ret_made, struct gantry_err *err);
int worker_range_map(struct wdevice *d, struct wsession *s, const struct gantry_op_map *op,
		     struct gantry_err *err);

/* ---- move.c ---- */
/*
 * The buffer, in host memory or another device's window, is to come to device @d's window; or, in a window, to host
 * memory. AGAIN: it is on its way, or has to wait for others; the device is woken. Else why it cannot.
 */
int worker_move_to_window_locked(struct wdevice *d, struct wsession *s, uint32_t slot);
int worker_move_to_host_locked(struct wdevice *d, struct wsession *s, uint32_t slot);
/* The same of one in a window for no task's sake, where no task of the session is bound meanwhile. */
int worker_move_out_locked(struct wsession *s, uint32_t slot);
/* What was done for a move to a window that does not happen. */
void worker_move_forget_locked(struct wsession *s, uint32_t slot);
/*
 * Device @d has not @bytes for the session: what it has there and uses least is moved to host memory. AGAIN: that has
 * begun; NO_MEMORY: it would not be enough.
 */
int worker_move_make_room_locked(struct wdevice *d, struct wsession *s, uint64_t bytes,
				 bool machine_is_full);
/* The buffer's bytes in host memory, beside those in its window, go: they are about to differ. */
void worker_move_drop_copy_locked(struct wsession *s, struct gantry_ledger_buffer *b);

/* Whether the task that this thread is binding may have buffers moved; @slot is kept for it then. */
bool worker_move_claim_locked(struct wdevice *d, struct wsession *s, uint32_t slot);
/* Whether the buffer was brought for another thread's task, which has not been bound yet. */
bool worker_move_is_others_locked(const struct wdevice *d, const struct wsession *s, uint32_t slot);
/*
 * For replica.c: bytes of the buffer are copied to device @device's window, or from there to host memory, and it stays where it
 * is; or device @device's copy ends. AGAIN: it has begun, the buffer is moving.
 */
int worker_move_copy_locked(struct wsession *s, uint32_t slot, uint32_t device,
			    enum wcarry_way way);
int worker_move_drop_locked(struct wsession *s, uint32_t slot, uint32_t device);

/* Room at device @d for the buffer, which is elsewhere: charged, and the ledger says so. LIMIT, NO_MEMORY. */
int worker_move_reserve_locked(struct wdevice *d, struct wsession *s, uint32_t slot);
/* Two windows of which one can read the other. */
bool worker_are_peers(const struct wdevice *a, const struct wdevice *b);

/* ---- replica.c: copies for devices that only read ---- */
/* `ready`, once device @device may use the buffer in @slot: as it is, for all who may. */
uint32_t worker_replica_ready_locked(const struct wsession *s, uint32_t slot, uint32_t device,
				     bool write);
/*
 * A buffer that is not in device @d's window, or for use_host, whose device works on host memory: is in some window. OK: a copy
 * will do, or is its place now. AGAIN: one is on its way. UNSUPPORTED: it has to move.
 */
int worker_replica_use_locked(struct wdevice *d, struct wsession *s, uint32_t slot, enum wuse use);
int worker_replica_use_host_locked(struct wdevice *d, struct wsession *s, uint32_t slot,
				   enum wuse use);
/* A task of device @d that is being bound will write it: its copies are stale. AGAIN: who had one made comes first. */
int worker_replica_written_locked(struct wdevice *d, struct wsession *s, uint32_t slot);
/* The copy in host memory is worth nothing any more. */
void worker_replica_host_gone_locked(struct wsession *s, uint32_t slot);
/* What worker_move_copy_locked() and worker_move_drop_locked() have done. */
void worker_replica_made_locked(struct wsession *s, uint32_t slot, uint32_t device,
				enum wcarry_way way, uint64_t bytes);
void worker_replica_dropped_locked(struct wsession *s, uint32_t slot, uint32_t device);
/* The buffer is to move to device @device, whose copy's charge is that of the ledger's `to` by now. */
void worker_replica_absorb_locked(struct wsession *s, uint32_t slot, uint32_t device);
/* No device has a copy in its window any more, nor uses one. Those that had, as bits: slabs are still there. */
uint32_t worker_replica_forget_locked(struct wsession *s, uint32_t slot);
/* Another device has a good copy: it becomes the place, and the memory here goes. AGAIN: it is moving; NO_MEMORY. */
int worker_replica_yield_locked(struct wsession *s, uint32_t slot);
/* Copies in windows of @devices (bits) go. Whether there were any; the device is woken then. */
bool worker_replica_shed_locked(struct wsession *s, uint32_t devices);
/* For a second none is made. */
void worker_replica_pause_locked(struct wsession *s);

/* ---- quiet.c ---- */
/* Threads of @devices (bits) are visited. NO_MEMORY: not all of them are; those that are have to be waited for. */
int worker_quiet_begin_locked(struct wquiet *quiet, struct wsession *s, uint32_t devices,
			      uint64_t queues);
/* Whether no visit is under way: it may be given back. */
bool worker_quiet_visited(struct wquiet *quiet);
/* Device @d is woken when it may be. */
bool worker_quiet_reached(struct wdevice *d, struct wquiet *quiet);

/* ---- carry.c ---- */
/* Where in the slab space the next copy goes, and how much it is; false: there is none. */
bool worker_carry_peek(const struct wcarry *c, uint64_t *ret_off, uint64_t *ret_bytes);
/* The next copy, on device @d's thread; the one before has finished. *ret_more: false, there is none. A status. */
int worker_carry_next(struct wdevice *d, struct wcarry *c, struct gantry_cmd *cmd, bool *ret_more);
void worker_carry_close(struct wdevice *d, struct wcarry *c);

/* ---- ahead.c ---- */
/* Whether the buffer has to stay where it is for the moment. */
bool worker_ahead_holds_locked(const struct wsession *s, uint32_t slot);
/* A task that is bound will write this part of it. */
void worker_ahead_written_locked(struct wsession *s, uint32_t slot, uint64_t off, uint64_t len);
/* Its copy is worth nothing any more; what was reserved for it stays, see worker_move_forget_locked(). */
void worker_ahead_end_locked(struct wsession *s, uint32_t slot);

/* ---- back.c ---- */
/* As a task of that device's that it binds, and that uses @len bytes, would have it brought. A status; AGAIN: it is on its way. */
int worker_buffer_bring_locked(struct wdevice *d, struct wsession *s, uint32_t slot, uint64_t len,
			       enum wuse use);

/* ---- migrate.c ---- */
/*
 * A buffer has been moved for a task of queue ->puller, into @to's window, or NULL: to host memory. Where that queue came lazily it is
 * counted and told.
 */
void worker_migration_pulled_locked(struct wsession *s, uint32_t slot, const struct wdevice *to);

/* ---- contents.c ---- */
/* After the engine's devices are open. -ENOMEM. */
int worker_contents_init(struct wsession *s);
/*
 * The next task of @q that is bound uses the buffer in @slot, which has no memory that others reach, and writes it. Returns what is in it then,
 * for gantry_range.contents. What the task leaves is @q's `makes`, if made_for is the task's ticket. With s->contents only.
 */
uint64_t worker_contents_use(struct wqueue *q, uint32_t slot, bool write);
/* The buffer is released. */
void worker_contents_end(struct wsession *s, uint32_t slot);

/* ---- pull.c ---- */
/* Of a buffer AWAY or LOST that a task uses: AGAIN, it was asked for; or it is lost. */
int worker_pull_locked(struct wsession *s, uint32_t slot, uint64_t touched_bytes);
/* Another agent listens. */
void worker_pull_ask_again_locked(struct wsession *s);

/* ---- loan.c ---- */
/* The buffer is another session's, or others may have it: what is there stays there. */
static inline bool worker_loan_ties(const struct gantry_ledger_buffer *b)
{
	return (b->place == GANTRY_PLACE_WINDOW || b->place == GANTRY_PLACE_IMAGE) &&
	       b->share_id != 0;
}
/* Whether the buffer is device memory that other sessions may borrow; UNSUPPORTED. */
int worker_loan_export_locked(struct wsession *s, uint64_t handle, uint32_t mode,
			      uint64_t *ret_bytes, uint64_t *ret_share_id);

/* ---- share.c ---- */
uint64_t worker_share_id(const struct wsession *s, uint32_t slot);
/* Memory of its own for the buffer in @slot: @fd, which becomes its, or new where that is negative. A status. */
int worker_shared_make(struct wsession *s, uint32_t slot, uint64_t bytes, int fd);
int worker_shared_back(struct wsession *s, const struct gantry_ledger_object *obj, uint64_t len);
void worker_shared_close(struct wsession *s, struct wobject *rt);
/* Another handle to the same memory: it was adopted more than once. */
bool worker_shared_elsewhere(const struct wsession *s, uint32_t slot);
struct wmapped;
/*
 * A buffer that could be shared, or was, and of which no other session has a part any more, gets a place in the slab, for its
 * way to another host; no task uses it. UNSUPPORTED: two handles name the same memory; LIMIT, NO_MEMORY.
 */
int worker_shared_settle_locked(struct wsession *s, uint32_t slot);
/* The other way, where it stays or has arrived: it has memory of its own again. Nothing uses it; under the lock. -errno. */
int worker_shared_unsettle(struct wsession *s, uint32_t slot);
/* The memory of a shared buffer leaves device @d, on its thread. */
void worker_shared_unmap(struct wdevice *d, void *mapped);
int worker_shared_mem(struct wdevice *d, struct wsession *s, const struct gantry_ledger_object *obj,
		      struct gantry_mem **ret_mem);

/* ---- window.c, wash.c, window_open.c ---- */
/*
 * A place for @len bytes, where slabs are mapped if possible; @whole: the slabs there are its own, whole granules. -ENOMEM: the slab space is full.
 */
int worker_window_place_locked(struct wsession *s, uint32_t device, uint64_t len, bool whole,
			       uint64_t *ret_off);
/* After something was placed: asks for what the next one may want. */
void worker_window_placed_locked(struct wsession *s, uint32_t device);
/* OK: slabs are behind all of it. AGAIN: they were asked for, the device is woken. Else they cannot be had. */
int worker_window_want_locked(struct wsession *s, uint32_t device, uint64_t off, uint64_t len);
/* Nobody wants slabs there any more: refusals that were not heard are forgotten, slabs that come yet are given back. */
void worker_window_unask_locked(struct wsession *s, uint32_t device, uint64_t off, uint64_t len);
/*
 * The range becomes free once it holds zeros in @windows (bits), of which it may have been a part; at once where none
 * of them has memory there.
 */
void worker_window_wash_locked(struct wsession *s, uint64_t off, uint64_t len, uint32_t windows);
/* Gives slabs back that nobody uses, beyond the reserve; or all of them. Whether there were any. Device thread. */
bool worker_window_trim_locked(struct wdevice *d, struct wsession *s, bool all);
/* The range's buffer has left the window: slabs there that nobody else needs are given back. Device thread. */
void worker_window_leave_range(struct wdevice *d, struct wsession *s, uint64_t off, uint64_t len);
void worker_window_leave(struct wdevice *d, struct wsession *s);

/* ---- job.c ---- */
/* Device @device runs @job from now on, which has next and end set. -ENOMEM: it does not. */
int worker_job_start_locked(struct wsession *s, uint32_t device, struct wjob *job);

#endif
