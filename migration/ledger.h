/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger: everything about one session that must outlive its worker, in a host-private memfd.
 *
 * The agent makes it, the monitor keeps its descriptor, one worker at a time (the owner of the epoch) writes it,
 * guests never see it. Crash recovery, agent restart and migration all take a session over by reading it
 * with gantry_ledger_open(), which validates it as input: its last writer may have died anywhere, or
 * have been broken into.
 *
 * Writing order per queue (each step is complete when its counter moves, counters move last):
 *   taken   accepted task copied to tasks[taken % nslots], then taken++, then the ring's head is published
 *   issued  issued++ before the command is given to the device
 *   done    status kept in failures, done++, then published to the guest
 * So after a crash: [0, done) finished; [done, issued) were with the device, in doubt; [issued, taken)
 * accepted and never started; what the ring holds past taken is still the guest's.
 *
 * Threads: one writer per field; lines marked "agent" are written by the agent and read by the worker.
 */
#ifndef GANTRY_MIGRATION_LEDGER_H
#define GANTRY_MIGRATION_LEDGER_H

#include <assert.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/codec.h"
#include "proto/wire.h"

#define GANTRY_LEDGER_MAGIC   0x52474c59544e4147ull
#define GANTRY_LEDGER_VERSION 3u
/* 2: without numbers of devices (`places`) and without settings of kernels, which are 0 there; read as they are. */
#define GANTRY_LEDGER_VERSION_OLDEST 2u
#define GANTRY_LEDGER_NOBJECTS	     8192u
/* Of a task in a queue, which a ticket has 56 bits for; none comes so far. */
#define GANTRY_LEDGER_POSITION_MAX ((1ull << 56) - GANTRY_MAX_SLOTS)

/* A buffer, kernel or image of the session. 128 bytes. */
enum gantry_object_state {
	GANTRY_OBJECT_FREE = 0,
	GANTRY_OBJECT_LIVE = 1,
	GANTRY_OBJECT_DYING = 2, /* handle stale, memory not back yet */
};

enum gantry_buffer_place {
	GANTRY_PLACE_NONE = 0, /* virtual: no memory behind it yet */
	GANTRY_PLACE_HEAP = 1, /* the segment's heap, at off */
	GANTRY_PLACE_SLAB = 2, /* the session's slab, at off */
	GANTRY_PLACE_OWN = 3,  /* a descriptor of its own: shared buffers */
	/* device memory: in the window of `device`, at off, which is its place in the slab too */
	GANTRY_PLACE_WINDOW = 4,
	/* its bytes are at the host that the session came from yet, and belong at off of the slab */
	GANTRY_PLACE_AWAY = 5,
	GANTRY_PLACE_LOST = 6, /* they were, and cannot be had any more; off is still its own */
	GANTRY_PLACE_IMAGE =
		7, /* a variable of an image, an array or a texture: gone with its worker */
	GANTRY_PLACE_RANGE =
		8, /* no memory: addresses of a device, from `address` on, where others are mapped */
};

/* Whether the buffer has a range of the slab's file for its own, whatever is there by now. */
#define GANTRY_PLACE_HAS_RANGE(place)                                    \
	((place) == GANTRY_PLACE_SLAB || (place) == GANTRY_PLACE_AWAY || \
	 (place) == GANTRY_PLACE_LOST)

struct gantry_ledger_buffer {
	uint64_t bytes;
	uint64_t off;
	uint64_t charged_bytes; /* resident bytes charged to tenant and device */
	uint32_t place;		/* enum gantry_buffer_place */
	uint32_t device;	/* index of the device whose pool is charged */
	uint32_t alloc_flags;
	uint32_t rights;    /* GANTRY_R, GANTRY_RW */
	uint64_t share_id;  /* PLACE_OWN: the agent's name for its descriptor */
	uint32_t adopted;   /* 1: another session's quota carries it */
	uint32_t host_copy; /* enum gantry_host_copy */
	/* host memory charged to the tenant: where a buffer lies that no device's pool is charged for, or its copy */
	uint64_t host_bytes;
	uint32_t
		to; /* 1 + the device that it is on its way to, whose pool is charged already; 0: none */
	/*
	 * Bit i: of a buffer in a window, the i-th device's has memory for a copy that is only read, whose bytes are charged
	 * there too. That of the buffer's own device, or of `to`, counts for nothing. Whether the copy is any good only the
	 * worker knows.
	 */
	uint32_t replicas;
	/* With GANTRY_ALLOC_FIXED: where on its device the guest was told that it lies, from then on for life; 0: it was not told. */
	uint64_t address;
	/* With GANTRY_ALLOC_WHOLE: handle of the range where it is mapped too, at range_off; 0: none. */
	uint64_t range;
	uint64_t range_off;
	uint32_t range_rights; /* what kernels may do there: 0, GANTRY_R, GANTRY_RW */
	uint32_t reserved;
};

/* Of a buffer in a window: what the slab's file has at its offset. */
enum gantry_host_copy {
	GANTRY_HOST_COPY_NONE = 0,
	GANTRY_HOST_COPY_FILLING = 1, /* worth nothing yet */
	GANTRY_HOST_COPY_CLEAN = 2,   /* the same bytes */
};

/*
 * What a guest has set of a kernel of its own (GANTRY_ASK_SET), so that it is set again where the kernel is found anew: the
 * latest value of each number from GANTRY_LEDGER_SET_FIRST on. Devices on which nothing was set keep what they have.
 */
#define GANTRY_LEDGER_SET_FIRST 8u
#define GANTRY_LEDGER_NSET	8u

struct gantry_ledger_settings {
	uint32_t devices; /* bit n: on device n, as the guest numbers them */
	uint32_t which;	  /* bit i: value[i] was set */
	int32_t value[GANTRY_LEDGER_NSET];
};

/*
 * Kernels and images are recipes: what is there makes them anew. Those of guests lie in the session's image store, a
 * memfd of its own; what only the worker writes there is trusted as little as this.
 */
struct gantry_ledger_kernel {
	union {
		char name[96]; /* installed: "MODULE/NAME"; "/NAME" where any module may have it */
		struct {
			uint64_t installed;    /* 0: a name begins with a character */
			uint64_t image;	       /* handle of a guest's image, live or dying */
			uint64_t off;	       /* in the store: the symbol, then the signature */
			uint32_t symbol_bytes; /* each with its NUL */
			uint32_t sig_bytes;
			struct gantry_ledger_settings set; /* 0 where an older build made it */
		} own;
	};
	uint64_t sig_hash; /* of an installed kernel's signature: another one is another kernel */
};

struct gantry_ledger_image {
	union {
		char module[96]; /* installed */
		struct {
			uint64_t installed; /* 0 */
			uint64_t off;	    /* in the store */
			uint64_t bytes;
			uint32_t kind; /* of device */
			uint32_t reserved;
			uint8_t hash
				[32]; /* SHA-256 of what the guest loaded, text before it was compiled */
		} own;
	};
	uint64_t reserved;
};

/* Whether a kernel or image is of bytes that a guest loaded. */
#define GANTRY_LEDGER_IS_OWN(body) ((body)->own.installed == 0)

#define GANTRY_LEDGER_STORE_BYTES (1ull << 30) /* of every image store */

struct gantry_ledger_object {
	uint32_t gen;	       /* grows at each reuse of the slot */
	uint8_t type;	       /* enum gantry_handle_type */
	uint8_t state;	       /* enum gantry_object_state */
	uint16_t variant_kind; /* of a kernel that is another's form for devices of one kind */
	uint64_t
		made_by; /* position + 1 of the control operation that made it: undone if that was in doubt */
	uint64_t variant_of; /* that other's handle; 0: a kernel of its own, or no kernel */
	union {
		struct gantry_ledger_buffer buffer;
		struct gantry_ledger_kernel kernel;
		struct gantry_ledger_image image;
	};
};
static_assert(sizeof(struct gantry_ledger_object) == 128, "ledger format");

/* An accepted task: the checked private copy that the worker runs from. */
struct gantry_ledger_task {
	struct gantry_desc desc;
	struct gantry_inline inl;
};
static_assert(sizeof(struct gantry_ledger_task) == 256, "ledger format");

/* In place of a time: the oldest command is at work on the host, and no deadline runs for it. */
#define GANTRY_LEDGER_OFF_DEVICE UINT64_MAX

struct gantry_ledger_queue {
	/* line 0, worker */
	uint64_t taken;
	uint64_t issued;
	uint64_t done;
	uint64_t nfailed;
	uint64_t
		cancel_below; /* tasks before this position that are not issued finish as cancelled */
	uint64_t
		issued_at_ns; /* CLOCK_MONOTONIC of the oldest command in flight; kept only under a deadline; or GANTRY_LEDGER_OFF_DEVICE */
	uint64_t device_ns;
	uint32_t state; /* enum gantry_queue_state */
	uint32_t gen;
	/* line 1, worker */
	uint64_t device_mask;
	uint32_t device; /* index of the device that serves it now */
	int32_t priority;
	uint32_t window_us;
	uint32_t fail_stop;
	uint32_t kind;
	uint32_t guest_paused;
	uint32_t broken; /* fail_stop hit: later tasks are not run */
	uint32_t
		sorted; /* 1: its worker's context failed, and what certainly never began was counted back from issued */
	uint64_t
		doubt_below; /* tasks before it may have run under an earlier worker, whatever issued says now */
	uint64_t
		opened_by; /* position + 1 of the control operation that opened it: undone if that was in doubt */
	uint64_t
		untried_below; /* the newest launch so far of a kernel that had not finished in this worker yet; + 1 */
	/* line 2, agent */
	uint32_t paused; /* bits: 1: the administrator paused it; GANTRY_LEDGER_* below */
	/*
	 * (1 + device) << 16 | 1 + lane: of that device it takes this lane and no other; 0: any. Cleared where the queue
	 * is opened anew.
	 */
	uint32_t lane;
	uint64_t verdict_pos; /* the task at this position ... */
	int32_t verdict;      /* ... gets this status at recovery; 0: none */
	uint8_t pad1[44];
};
static_assert(sizeof(struct gantry_ledger_queue) == 192, "ledger format");

#define GANTRY_LEDGER_LANE(device, lane) (((device) + 1u) << 16 | ((lane) + 1u))
#define GANTRY_LEDGER_LANES		 64u /* of a device, at most */

/* In a queue's `paused`: the agent holds it for the moment. */
#define GANTRY_LEDGER_HELD 2u
/* The same, while its worker is exchanged for one of another build. */
#define GANTRY_LEDGER_EXCHANGED 4u

struct gantry_ledger_header {
	/* agent, constant */
	uint64_t magic;
	uint32_t version;
	uint32_t nqueues;
	uint32_t nslots;
	uint32_t nobjects;
	uint64_t queues_off;
	uint64_t objects_off;
	uint64_t tasks_off; /* nqueues x nslots x struct gantry_ledger_task */
	uint64_t ledger_bytes;
	uint64_t session_id;
	uint64_t segment_bytes;
	uint64_t slab_bytes;
	char tenant[32];
	uint64_t address; /* where workers are to map the segment; 0: anywhere */
	uint8_t pad0[8];
	/* agent: fences. Only the worker that was given this epoch may write. */
	uint64_t epoch;
	uint64_t
		device_allowed; /* bit i: the session may use its i-th device now (drain, disable) */
	uint32_t detach;	/* 1: the session is ending; issue nothing more */
	uint32_t reserved0;
	uint64_t mem_bytes; /* limits of this session, beside the tenant's */
	uint64_t virtual_bytes;
	uint32_t inflight; /* tasks taken and not finished, over all its queues; 0: no limit */
	uint32_t reserved1;
	uint8_t pad1[16];
	/* worker: totals */
	uint64_t tasks_finished;
	uint64_t tasks_failed;
	uint64_t device_ns;
	uint64_t bytes_in;
	uint64_t bytes_out;
	uint64_t virtual_used;
	uint64_t resident_used;
	uint64_t resident_peak;
	uint64_t scrubbed_bytes;
	uint64_t worker_restarts;
	uint64_t
		condemned; /* minus the status the session was ended with for breaking rules; 0: none */
	uint64_t translated;   /* 1: its mapping of the segment is not at address */
	uint64_t window_bytes; /* of slabs mapped in its windows, handed out or not */
	uint64_t
		host_used; /* host memory charged for buffers: spilled, copies, shared ones beside windows */
	uint64_t moved_bytes; /* between host and windows, or from one to another */
	/*
	 * Which devices do the work of those that the guest knows: see gantry_ledger_device(). Bits 32 on: all work is being
	 * handed from one device to another, and its buffers in windows count as there (worker/migrate_whole.c).
	 */
	uint64_t places;
};
static_assert(sizeof(struct gantry_ledger_header) == 320, "ledger format");

/*
 * Devices as the guest numbers them: number n, of these few, is the engine's device n XOR what bits 4n to 4n + 3 of `places` say.
 * All that the ledger says of devices is of the engine's.
 */
#define GANTRY_LEDGER_NUMBERS 8u

static inline uint32_t gantry_ledger_device(uint64_t places, uint32_t number)
{
	return number < GANTRY_LEDGER_NUMBERS ? number ^ (uint32_t)(places >> 4 * number & 15)
					      : number;
}

/* The number that the guest has for the engine's device. */
static inline uint32_t gantry_ledger_number(uint64_t places, uint32_t device)
{
	for (uint32_t number = 0; number < GANTRY_LEDGER_NUMBERS; number++)
		if (gantry_ledger_device(places, number) == device)
			return number;
	return device;
}

/* In `places`: all work goes from one of the engine's devices to another. */
#define GANTRY_LEDGER_HANDS_OVER(from, to) \
	((uint64_t)((from) + 1u) << 32 | (uint64_t)((to) + 1u) << 40)
#define GANTRY_LEDGER_HANDS_FROM(places) ((uint32_t)((places) >> 32 & 255) - 1u)
#define GANTRY_LEDGER_HANDS_TO(places)	 ((uint32_t)((places) >> 40 & 255) - 1u)
#define GANTRY_LEDGER_NUMBERING(places)	 ((places)&UINT32_MAX)

/* Where the buffer counts as being: one that was on its way when all work was handed over has arrived. */
static inline uint32_t gantry_ledger_whereabouts(uint64_t places,
						 const struct gantry_ledger_buffer *b)
{
	return places >> 32 && b->place == GANTRY_PLACE_WINDOW &&
			       (b->alloc_flags & GANTRY_ALLOC_FIXED) &&
			       b->to == GANTRY_LEDGER_HANDS_TO(places) + 1
		       ? GANTRY_LEDGER_HANDS_TO(places)
		       : b->device;
}

/* The numbering after the devices have changed places. */
uint64_t gantry_ledger_exchange(uint64_t places, uint32_t a, uint32_t b);

/*
 * A mapped ledger. nqueues and nslots are as they were when it was checked: unlike those in hdr, a worker
 * that was broken into cannot change them under a reader.
 */
struct gantry_ledger {
	struct gantry_ledger_header *hdr;
	struct gantry_ledger_queue *queues;
	struct gantry_ledger_object *objects;
	struct gantry_ledger_task *tasks;
	uint64_t bytes;
	uint32_t nqueues;
	uint32_t nslots;
};

/* Bytes that a ledger of this shape takes; 0: the shape is not allowed. */
uint64_t gantry_ledger_bytes(uint32_t nqueues, uint32_t nslots);

/*
 * Makes a new ledger in a sealed memfd. @tenant is copied. The caller owns *ret_fd and closes *ret_ledger.
 */
int gantry_ledger_create(uint64_t session_id, const char *tenant, uint32_t nqueues, uint32_t nslots,
			 uint64_t segment_bytes, uint64_t slab_bytes,
			 struct gantry_ledger *ret_ledger, int *ret_fd, struct gantry_err *err);

/*
 * Maps and validates: header, every object (states, places inside segment and slab, no two live slab ranges
 * overlap), every queue (done <= issued <= taken <= done + nslots). -EINVAL with a sentence says which.
 */
int gantry_ledger_open(int fd, struct gantry_ledger *ret_ledger, struct gantry_err *err);

/* The validation alone, on memory of any origin (fuzzed). @bytes is the size of the mapping. */
int gantry_ledger_check(const void *base, uint64_t bytes, struct gantry_err *err);

/* Unmaps. NULL and closed ones are allowed. */
void gantry_ledger_close(struct gantry_ledger *ledger);

static inline struct gantry_ledger_task *gantry_ledger_task(const struct gantry_ledger *l,
							    uint32_t queue, uint64_t pos)
{
	return &l->tasks[(uint64_t)queue * l->nslots + (pos & (l->nslots - 1))];
}

#endif
