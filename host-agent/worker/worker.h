/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the worker: the structures on the road of a task and who owns them.
 *
 *   intake.c    ring -> ledger          takes, copies
 *   bind.c      ledger -> command       checks, resolves, backs memory
 *   device.c    the device thread       join.c, lane.c, issue.c, reap.c, park.c: thread.h
 *   faults.c    what a board could not load
 *   flight.c    how long it watches what is in flight
 *   complete.c  done -> segment         statuses, publication   wake.c    wake-ups of the guest
 *   control.c   operations of queue 0   memory.c  buffers   session.c  attach, detach, recovery
 *
 * Threads: a queue belongs to the device thread that its device names. A session's control queue belongs to its
 * home thread, or where that serves none of its queues any more to the one that took the last of them (join.c), and to the
 * stand-in (standin.c) while that thread is inside a long kernel. The object table is changed under session->lock and read without it (see object_get()). No lock
 * is taken on the road of a warm task.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_WORKER_H
#define GANTRY_HOST_AGENT_WORKER_WORKER_H

#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"
#include "base/spin.h"
#include "devices/keep.h"
#include "devices/modules.h"
#include "devices/registry.h"
#include "host-agent/shared/quota.h"
#include "host-agent/shared/share.h"
#include "host-agent/worker/alone.h"
#include "host-agent/worker/engine.h"
#include "migration/ledger.h"
#include "proto/ring.h"

#define WORKER_PUBLISH_BATCH 16u   /* completions a waiting guest may be kept from seeing */
#define WORKER_PUBLISH_NS    5000u /* device time after which a completion is published at once */
#define WORKER_CHARGE_NS     10000u /* and charged at once: small against any slice of the share page */
#define WORKER_WINDOW_US     2000u /* work in flight per queue, by estimate */
/*
 * Of a GPU's queue that nobody else waits for and that stays there: a program's own waits between its steps, some milliseconds, are
 * not to let the device run empty.
 */
#define WORKER_WINDOW_ALONE_US 10000u
#define WORKER_WINDOW_BOARD_US (3600u * 1000000u) /* of an FPGA: no limit by time */
#define WORKER_WINDOW_TASKS    512u		  /* places for them */
#define WORKER_WINDOW_HERE     32u /* of a device that runs them on this thread: deeper gains nothing */
/*
 * A flush costs a quarter of a short launch on an NVIDIA GPU (2.53 against 3.39 us), after every 32nd 2 %; and until
 * one comes nobody sees what finished. A quarter of the window, so that the device has work while one is seen.
 */
#define WORKER_FLUSH_TASKS 32u
/* While others want a GPU little is in flight; each command this long is seen to end, so that the next follows at once. */
#define WORKER_FLUSH_NS 50000u
#define WORKER_MAX_UNKNOWN \
	8u /* commands in flight whose length nobody knows, while others want a GPU */
#define WORKER_FLIGHT_NS \
	2000000u /* the longest spin while commands are in flight; a tenant may have less */
#define WORKER_TURN_TASKS 64u	  /* tasks of one queue before the next queue has its turn */
#define WORKER_TURN_NS	  500000u /* and the device time of a turn */
/* A device that works by itself: a turn beside others', who wait for the thread meanwhile. Some launches. */
#define WORKER_TURN_BESIDE_US 8u
#define WORKER_TURN_CONTROL \
	32u		       /* control operations of one session before others have their turn */
#define WORKER_MAX_DYING 1024u /* freed buffers waiting for their last users; more answer AGAIN */

#define WORKER_MAX_MODULE_DIRS 16u

struct wdevice;
struct wsession;
struct wimage;
struct wload;
struct wquestion;
struct wahead;
struct wmigration;
struct worker_compiler;

/*
 * An installed kernel in use, one per name and engine: a copy of what its modules said when it was first asked
 * for, and its form on each device. Never changed after it is on the list but for the last two members.
 * Or a kernel of a guest's image, one per symbol, signature and image; it ends with the image.
 */
struct wkernel {
	struct gantry_list link;
	struct wimage *image; /* NULL: installed */
	uint64_t recipe_off;  /* of a guest's: in the store */
	char *module;	      /* the module asked for, or that of the first image */
	bool any_module;      /* found by name alone */
	char *name;
	char *sig_text;
	char *tenant; /* whose view of the modules it is, where some of them are a tenant's own; else NULL */
	uint32_t flags;
	struct gantry_signature sig;
	char *image_paths
		[GANTRY_NKINDS];      /* atomic: a board's changes where another image takes over */
	struct gantry_list old_paths; /* of those before, which threads may still read */
	uint32_t
		boards; /* atomic: devices for which its form for boards is, as bits; others have another model's image only */
	uint32_t leaves; /* atomic: the drain with which its form for boards goes; 0: it stays */
	struct gantry_kernel
		*on[GANTRY_ENGINE_MAX_DEVICES]; /* set by that device's thread on first use */
	/* The images (gantry_engine.images_turn) of which a board has none for it, and the status that says so; 0: not known. Likewise. */
	uint32_t none_at[GANTRY_ENGINE_MAX_DEVICES];
	int none_status[GANTRY_ENGINE_MAX_DEVICES];
	struct gantry_ledger_settings set; /* of a guest's; under the session's lock */
	uint32_t set_turn;		   /* atomic; grows with each of them (setting.c) */
	uint32_t set_seen[GANTRY_ENGINE_MAX_DEVICES]; /* as on[] has them; likewise */
	uint64_t avg_ns[GANTRY_ENGINE_MAX_DEVICES]; /* device time; each device's thread its own */
	struct walone alone[GANTRY_ENGINE_MAX_DEVICES]; /* of a GPU; likewise */
};

/* Kernels of which a queue remembers what they took there. */
#define WORKER_LENGTHS 8u
/* What a kernel took in one queue: elsewhere it may have other arguments, and in a pooled worker another tenant. */
struct wlength {
	const struct wkernel *kernel;
	uint64_t avg_ns;
};

/* What a queue's tasks have had moved to where it went lazily. */
struct wpulls {
	uint64_t id;  /* of the migration; 0: none */
	uint32_t gen; /* of the queue that it brought */
	uint32_t from, to;
	uint64_t pulled_bytes;
	uint64_t touched_bytes; /* of them, what those tasks said that they use */
};

/* What the worker keeps beside a ledger object; nothing that must survive it. */
struct wobject {
	/*
	 * Atomic. Bit d: device d may read the buffer as it is now, bit 8 + d: may write it. Set on d's thread by
	 * worker_buffer_range(); until then the road of a task goes through the lock.
	 */
	uint32_t ready;
	/* Under the lock: */
	uint32_t users;	 /* bit d: tasks of device d may be using it */
	int stuck;	 /* status of a move that failed, for the next task that uses it */
	bool moving;	 /* a job has it: it is neither used nor released */
	uint32_t puller; /* for a task of this queue, which uses so much of it; 0: for none */
	uint64_t wanted_bytes;
	uint32_t for_task; /* wsession.mover_id of a task that needs it where it is */
	uint64_t
		used; /* wsession.clock when it was last made ready: what is not ready was not used since */
	uint32_t dirty;	 /* under the lock; bit d: device d's window may hold bytes of the buffer */
	uint64_t queues; /* atomic; bit q: tasks of queue q have used the buffer or kernel */
	uint64_t writer; /* atomic; ticket of the task that will have written it last */
	uint32_t
		clean; /* under the lock; bit d: device d's window has the same bytes (replica.c) */
	struct wahead *ahead; /* under the lock; it is copied ahead (ahead.c) */
	struct wkernel *kernel
		[GANTRY_NKINDS]; /* atomic; [0]: as found by name; [k]: a variant for devices of kind k */
	struct wshared *
		shared; /* changed under the lock; stays while a task that uses the buffer is unfinished */
	struct wimage *
		image; /* under the lock; of a guest's image, and of kernels and variables made from it */
	struct gantry_mem *
		variable; /* of an image, or an array or texture, on the buffer's device; NULL: lost with a worker, or ended */
	uint64_t skip;	  /* where a buffer of another session's begins in it (loan.c) */
	bool borrowed; /* under the lock; it is that, and of this worker's life: its end is told */
	bool ends; /* under the lock; the device's thread has been told to let go of the variable */
	bool mapped;	/* under the lock; it lies in the range that its ledger names */
	int not_mapped; /* why it does not, for good; 0: it may yet */
	uint64_t *
		tails; /* under the lock; dying buffer: what every queue had been given when it was freed */
};

/* Memory of a shared buffer. */
struct wshared {
	int fd;
	struct wmapped *on[GANTRY_ENGINE_MAX_DEVICES]; /* share.c */
};

/* Bytes of a buffer, of the heap or of what is shared. */
struct wspan {
	uint64_t space;
	uint64_t off;
	uint64_t len;
};

/* The ways of copies by a device that has memory of its own. */
enum wcopy_way {
	WCOPY_OVER_BUS, /* between the host and the device */
	WCOPY_WITHIN,	/* the device */
	WCOPY_WAYS,
};

struct wcopy {
	uint64_t bytes; /* 0: it is none */
	enum wcopy_way way;
};

struct wqueue {
	struct wsession *session;
	uint32_t slot;
	bool open;	  /* this thread serves it; set and cleared by its device thread */
	uint32_t target;  /* atomic: index of the device that shall serve it */
	uint32_t held;	  /* atomic; 1: on its way to another device, nothing is issued */
	uint32_t leaving; /* atomic; 1: it will be, and then waits for what is in flight */
	struct wmigration *migration; /* under the lock; that moves it */
	struct wpulls pulls;	      /* under the lock; of the lazy one that brought it here */
	bool has_launched;	      /* of its thread */
	uint64_t
		made_for; /* of its thread: a ticket, and the number of what that task leaves in buffers */
	uint64_t makes;
	uint32_t
		drain_seen; /* of its thread: the latest drain of images that it knows of, and ... */
	uint64_t accepted_below; /* ... what it had accepted then: these tasks run */
	uint32_t
		native; /* of its thread: 1 + the device it left for a kernel that this one lacked; 0: none */
	struct gantry_ring_consumer ring;
	struct gantry_ledger_queue *led;
	struct gantry_stream *stream;
	int lane; /* of the device; -1: none */
	uint64_t
		rests_since; /* it has a lane and nothing in flight; cycles; 0: that was not seen */
	bool blocked;	     /* its next task waits for a ticket or for memory */
	uint32_t share_seen; /* for gantry_share_must_yield() */
	uint64_t window_ns;  /* estimated device time in flight */
	uint32_t nunknown;   /* in flight without an estimate */
	uint32_t nunflushed; /* submitted since the last flush */
	uint32_t ntold;	     /* worker_count_back()'s own */
	uint64_t head_published;
	uint64_t done_published;
	uint64_t unpublished_ns;
	bool off_device;       /* its newest command in flight is at work on the host */
	uint64_t uncharged_ns; /* device time that the share page does not know yet */
	uint64_t spared_ns;    /* no GPU: of it, what the commands left of the device */
	uint64_t alone_ns;     /* GPU: of it, what is known to be the commands' own */
	bool alone_unknown;    /* GPU: of some of them it is not known */
	uint32_t units;	       /* GPU: of the newest in flight; 0: there is none */
	uint64_t failed_slots[GANTRY_MAX_SLOTS /
			      64]; /* status words that are not 0; they are never read back */
	uint64_t doubt_below; /* tasks before this were in flight when an earlier worker died */
	uint64_t
		verdict_pos; /* the one at this position, the oldest of them, gets this status unless it is 0 */
	int32_t verdict;
	bool judged; /* verdict_pos is the task that gets it, see bind.c */
	uint64_t
		suspect_below; /* of the tasks before it a launch made the context fail; 0: not known so well */
	uint32_t nredone;
	struct wspan redone[WORKER_WINDOW_TASKS]; /* written wholly by tasks that ran again */
	uint64_t est_ns[WORKER_WINDOW_TASKS];	  /* of tasks in flight, by position */
	struct wkernel *inflight_kernel[WORKER_WINDOW_TASKS];
	struct wcopy copies[WORKER_WINDOW_TASKS];
	/* Bits of tasks in flight, by position, that do nothing: each ends with the one before it. */
	uint64_t riders[WORKER_WINDOW_TASKS / 64];
	uint32_t nriders;
	struct wlength lengths[WORKER_LENGTHS]; /* on the device of now */
};

/* A session on a GPU; its device thread's own. */
struct wgpu {
	int lane;	    /* + 1; 0: none */
	uint32_t seen;	    /* for gantry_share_must_yield() */
	uint64_t looked_at; /* who waits; cycles */
	uint32_t nflying;   /* commands of all its queues */
	uint32_t units;	    /* of them, as the share page has it, but not bounded */
	bool alone;	    /* nobody was beside when the oldest in flight began */
	bool quiet;	    /* it has asked for quiet */
	uint64_t asked_at;  /* for that; cycles */
	uint64_t
		ended_at; /* when one was seen to end last, or the oldest in flight began; cycles */
	/* It has a lane and nothing in flight; CLOCK_MONOTONIC. */
	uint64_t rest_ns; /* since then; 0: that was not seen */
	uint64_t paid_ns; /* to then it has paid for it */
};

struct wextent {
	uint64_t off;
	uint64_t len;
};

/* Where the bytes of a guest's images lie (store.c). Made when the first is loaded. */
struct wstore {
	int fd;
	uint8_t *base;
	struct wextent *used; /* under the session's lock; sorted */
	uint32_t nused;
	uint32_t cap;
};

struct wwindow; /* memory.h */

struct wsession {
	struct gantry_list link; /* engine's list; control thread */
	struct gantry_engine *engine;
	uint64_t id;
	uint64_t epoch;
	uint64_t
		fence; /* the ledger's epoch at first: another one means that this worker is fenced */
	uint32_t version;
	uint32_t share_slot;
	char tenant[GANTRY_NAME_LEN_MAX + 1]; /* its name, for modules that are one tenant's */
	uint64_t device_mask;
	uint32_t home; /* index of the device that what has no other is charged to */
	uint32_t
		control; /* atomic: whose thread serves queue 0 and alone gives it away; home at first */
	int slab_fd;
	int bell_fd;
	uint32_t wake; /* enum gantry_session_wake */
	int wake_fd;
	uint32_t woken_for; /* `listening` as it was when the latest byte was sent */
	struct gantry_region segment;
	bool segment_is_borrowed;
	bool translated; /* it is not where it was to be */
	struct gantry_region heap;
	struct gantry_segment_header *hdr;
	struct gantry_ledger ledger;
	struct gantry_quota_page *quota;
	struct wqueue *queues;	 /* ledger.nqueues of them */
	struct wobject *objects; /* GANTRY_LEDGER_NOBJECTS of them */
	/* What is in buffers (contents.c), GANTRY_LEDGER_NOBJECTS of them under a lock of their own; NULL: no device wants to know. */
	struct wcontents *contents;
	pthread_mutex_t contents_lock;
	uint64_t ncontents;
	uint64_t slab_bytes; /* the ledger's, as it was when it was checked */
	uint64_t served
		[GANTRY_ENGINE_MAX_DEVICES]; /* bit q: queue q belongs to that device's thread (atomic) */
	struct gantry_mem *heap_mem[GANTRY_ENGINE_MAX_DEVICES];
	struct gantry_mem *slab_mem[GANTRY_ENGINE_MAX_DEVICES];
	struct wwindow *windows[GANTRY_ENGINE_MAX_DEVICES]; /* of devices that have them */
	uint32_t nwindows;
	/*
	 * Bits, changed under the lock: windows where programs have addresses, and whose slabs have not all come to this worker, since there
	 * was one before. No kernel begins before.
	 */
	uint32_t known_away;
	uint32_t
		njobs; /* atomic: of all devices (job.c); nobody leaves before the last has ended */
	struct gantry_list washing; /* under the lock: those ranges */
	/* Under the lock: the one task for which buffers are moved at a time. */
	struct wqueue *mover; /* also read without; NULL: none */
	uint64_t mover_pos;
	uint64_t mover_seen_ns; /* when it was last tried */
	uint32_t mover_id;
	uint64_t clock;
	uint32_t nreplicas;	    /* changed under the lock: copies in windows, good or stale */
	uint64_t replicas_after_ns; /* under the lock: until then none is made */
	uint32_t nwashing;	    /* changed under the lock: ranges that come back soon */
	struct wgpu gpu[GANTRY_ENGINE_MAX_DEVICES];
	/* What it has asked for of each limit of the device's context; each device's thread its own. */
	uint64_t limits[GANTRY_ENGINE_MAX_DEVICES][GANTRY_QUESTION_LIMITS];
	bool careful;	    /* its context failed: launches are told apart for a while */
	uint32_t nsuspects; /* launches of which one did that */
	uint32_t
		stepping; /* atomic; 1: there are several, and until they are settled one command runs at a time */
	uint32_t ending;    /* atomic; 1: issue nothing more, threads let go */
	uint32_t condemned; /* atomic: minus the status, once */
	bool joined
		[GANTRY_ENGINE_MAX_DEVICES]; /* that device's thread holds it; each thread its own */
	bool lane_asked
		[GANTRY_ENGINE_MAX_DEVICES]; /* it has told the share page that it wants a lane; likewise */
	bool deaf[GANTRY_ENGINE_MAX_DEVICES]; /* the bell does not wake it; likewise */
	uint32_t
		nrefs; /* atomic: device threads that still hold it, and a call of the control thread */
	uint32_t
		waiting; /* atomic; bit d: a queue of device d's thread waits for a ticket of another's */
	uint64_t
		unfinished; /* atomic: tasks taken and not published as finished, control queue left out */

	pthread_mutex_t lock;	 /* object table's changes, slab extents, dying list */
	struct wextent *extents; /* free parts of the slab, sorted */
	uint32_t nextents;
	uint32_t extents_cap;
	uint32_t ndying;
	uint32_t dying[WORKER_MAX_DYING]; /* object slots */
	uint32_t next_object;

	uint32_t leaving; /* atomic; 1: all its work will go to another device, as wqueue.leaving */
	uint32_t
		still; /* atomic; 1: all its work goes to another device, no operation of queue 0 begins */
	struct wmigration *whole; /* under the lock; that moves it */
	uint32_t gather_turn;	  /* grows with each NONE (gather.c) */
	bool has_settled;	  /* what could be shared may lie in the slab since ALL */

	/* By the numbers that the guest has for devices: what makes anew what installed modules keep for it there. */
	struct gantry_keep keeps[GANTRY_LEDGER_NUMBERS];
	uint32_t keeps_own; /* bit n: keeps[n] is memory of this worker's, which ends with it */
	struct wstore store;
	struct gantry_list images;  /* struct wimage; under the lock */
	struct wload *load;	    /* the job of the control queue; whoever serves that */
	struct wquestion *question; /* to a device of another thread (ask.c); likewise */
	uint64_t
		range_bytes; /* atomic, changed under the lock: of addresses that it has reserved, on all devices */
	uint32_t output; /* atomic: slot and 1 of the buffer for what kernels print; 0: none */
	uint64_t
		compile_since_ns; /* under the lock: a minute of compiling, and what was used of it */
	uint64_t compiled_ns;
};

/* One device and its thread. */
struct wdevice {
	struct gantry_engine *engine;
	uint32_t index;
	struct gantry_device_conf conf;
	char name[32];
	struct gantry_device device;
	bool usable;
	bool runs_here;	  /* GANTRY_CAP_CALLER_RUNS */
	uint64_t nfaults; /* of a board, that have been told */
	char error[160];
	pthread_t thread;
	struct gantry_share_page *page;
	uint32_t owner;
	int epoll_fd;
	int wake_fd; /* eventfd of ours: control thread and lane threads; guests never hold it */
	uint32_t asleep; /* atomic: in epoll or about to be */
	struct gantry_spin spin;
	bool spin_is_default; /* nobody configured how long */

	/* thread's own */
	uint32_t nvain; /* wake-ups by bells, in a row, after which there was nothing to do */
	struct wsession *sessions[GANTRY_ENGINE_MAX_SESSIONS];
	uint32_t nsessions;
	uint32_t nactive; /* commands with the device */
	uint32_t nlanes_held;
	bool lane_wanted; /* in this round a queue could not have a lane */
	bool lane_short;  /* in the round before */
	uint64_t turn_ns; /* device time of this turn */
	uint32_t nturns;  /* queues that had something to issue, in this round */
	uint32_t nbeside; /* in the round before */
	uint64_t
		flight_since; /* cycles when a command went to the idle device or one was seen to end */
	uint64_t copied_per_s[WCOPY_WAYS]; /* bytes, as copies went lately; 0: there was none */
	uint64_t
		run_since; /* atomic: cycles when the command being run inside poll() began; 0: none (standin.c) */
	uint32_t stood_in;	      /* atomic: the stand-in serves this thread's control queues */
	pthread_mutex_t control_lock; /* held by the stand-in meanwhile */
	struct gantry_cmd cmd;	      /* built here, copied by submit() */

	/* calls from the control thread */
	pthread_mutex_t call_lock;
	struct gantry_list calls;
	uint32_t ncalls; /* atomic: looked at without the lock */
	bool stop;
	struct gantry_list images; /* loaded here, by path */
	struct gantry_list
		dying_images; /* of guests, that commands in flight still use; thread's own */
	uint32_t
		jobs_fresh; /* rounds since a job has come that was not looked at; 0: there is none */
	struct gantry_list jobs;
	struct wqueue *binding; /* whose task worker_bind() looks at */
	bool binds_use; /* it uses its buffers, rather than copying between them and the heap */
};

struct gantry_engine {
	struct gantry_engine_events events;
	uint32_t ndevices;
	struct wdevice *devices[GANTRY_ENGINE_MAX_DEVICES];
	pthread_mutex_t module_lock;
	struct gantry_modules *modules[WORKER_MAX_MODULE_DIRS]; /* under module_lock */
	uint32_t nmodules;
	struct gantry_list kernels; /* every struct wkernel */
	uint32_t ndrains;     /* atomic: how often kernels of images have begun to leave; from 1 */
	uint32_t images_turn; /* atomic: how often it was looked which images there are; from 1 */
	pthread_mutex_t session_lock;
	struct gantry_list sessions;

	struct worker_compiler *compiler; /* NULL: none of the devices has one */
	bool isolated;			  /* as gantry_engine_conf has it */
	pthread_mutex_t load_lock;
	pthread_cond_t load_cond;
	uint32_t nloads; /* threads that load images; under load_lock */

	pthread_t standin;
	bool standin_runs;
	uint32_t standin_word;	 /* futex */
	uint32_t standin_asleep; /* atomic */
	uint32_t standin_stop;	 /* atomic */
	uint64_t check_cycles;
};

/* ---- device.c, join.c, lane.c ---- */
int worker_device_start(struct gantry_engine *e, uint32_t index,
			const struct gantry_device_conf *conf, int share_fd, uint32_t owner,
			uint64_t spin_ns, struct wdevice **ret_dev, struct gantry_err *err);
/* Ends the thread, once it has let go of its sessions, and the device. */
void worker_device_stop(struct wdevice *d);
void worker_device_free(struct wdevice *d);
void worker_device_wake(struct wdevice *d);
/* The agent is told that the device has work, if it asked to be; after gantry_share_want(). */
void worker_device_tell(struct wdevice *d);
/* Runs fn(d, arg) on the device thread, soon; never waits. -ENOMEM. */
int worker_device_post(struct wdevice *d, void (*fn)(struct wdevice *d, void *arg), void *arg);

/* ---- flight.c ---- */
/*
 * How long it is worth to watch commands in flight: what they are expected to take, and as much again, if that is within
 * what their tenant may spin. Without an estimate: all of that. What takes longer is slept through, but for its end.
 */
uint64_t worker_flight_watch_ns(const struct wdevice *d);
/*
 * After a fault that several launches may have caused: until those of this device are settled it has one command of the
 * session in flight. When those of all devices are, stepping ends.
 */
bool worker_flight_may_step(const struct wdevice *d, struct wsession *s);
/* How long a sleep may be that the end of a flight does not cut short. */
int worker_flight_park_ms(const struct wdevice *d);
/* faults.c: says what a board has given up since it was asked last. Before the thread sleeps. */
void worker_faults_tell(struct wdevice *d);
/* What @k is expected to take in @q: as it went there lately, or else anywhere on this device; 0: nobody knows. */
uint64_t worker_flight_expect_ns(const struct wdevice *d, const struct wqueue *q,
				 const struct wkernel *k);
/* What @k took in @q. */
void worker_flight_learn_kernel(struct wdevice *d, struct wqueue *q, struct wkernel *k,
				uint64_t device_ns);
/* What copies take here: what is known of the link, and of the memory, is often not what they do. */
void worker_flight_learn(struct wdevice *d, struct wcopy copy, const struct gantry_done *done);
/* The session's memory on this device, its bell, its queues; or the end of all that. Device thread. */
void worker_device_adopt(struct wdevice *d, void *session);

/* ---- gpu.c ---- */
/* The device's share page is a GPU's. */
bool worker_gpu(const struct wdevice *d);
bool worker_gpu_has_lane(const struct wdevice *d, const struct wqueue *q);
/* The session's lane for the queue's next task: held and still ours, or taken now. */
bool worker_gpu_lane_ready(struct wdevice *d, struct wqueue *q);
/*
 * The newest command in flight of the queue, which has been submitted, leaves the device to others (@off) for as long as it works on the host, or
 * comes back. Before it is finished it came back.
 */
void worker_gpu_off_device(struct wdevice *d, struct wqueue *q, bool off);
/* Where nothing of the session is in flight. True: it had one. */
bool worker_gpu_give(struct wdevice *d, struct wsession *s, bool still_wants);
/* Others wait for the GPU, on which a session here has nothing just now, and keeps it for a moment: its guest may put more. */
bool worker_gpu_keeps(const struct wdevice *d);
/* In each round: a lane under which nothing is in flight is given back soon, whatever else the thread has to do. */
void worker_gpu_rest(struct wdevice *d, struct wsession *s);
/* d->cmd is with the device; the queue's oldest command has finished, before worker_finish(). */
void worker_gpu_submitted(struct wdevice *d, struct wqueue *q);
void worker_gpu_done(struct wdevice *d, struct wqueue *q, struct wkernel *k, uint64_t device_ns);
/* Books what was measured of the queue. */
void worker_gpu_charge(struct wdevice *d, struct wqueue *q);
uint32_t worker_gpu_window_us(const struct wdevice *d, const struct wqueue *q, uint32_t us);
/* The device is a GPU, and others want it too. */
bool worker_gpu_crowded(const struct wdevice *d, const struct wqueue *q);

/* ---- standin.c ---- */
/* Before the first device thread, and after the last. */
void worker_standin_init(struct gantry_engine *e);
int worker_standin_start(struct gantry_engine *e, struct gantry_err *err);
void worker_standin_stop(struct gantry_engine *e);
/* Around a poll() that may run a command on this thread. */
uint64_t worker_run_begin(struct wdevice *d);
void worker_run_end(struct wdevice *d, uint64_t began);
/* A device thread is awake again. */
void worker_standin_wake(struct gantry_engine *e);

/* ---- intake.c ---- */
/* Moves what the guest has put into the ledger, within limits. Returns tasks taken, or -EPROTO (condemn). */
int worker_intake(struct wqueue *q);

/* ---- bind.c ---- */
enum wbind {
	WBIND_COMMAND, /* d->cmd is ready to submit */
	WBIND_FINISH,  /* nothing to run: finish it with *ret_status, in order */
	WBIND_WAIT,    /* not yet: a ticket, or memory that is on its way back */
};
/* What the command in d->cmd copies. */
struct wcopy worker_copy_of(const struct wdevice *d, const struct wqueue *q);
/* The clock of a stamp, the queue's oldest task, goes where it says; before worker_finish(). */
void worker_stamp(struct wqueue *q, uint64_t ns);
/* The next task to issue, at led->issued. */
enum wbind worker_bind(struct wdevice *d, struct wqueue *q, int *ret_status, uint64_t *ret_est_ns,
		       struct wkernel **ret_kernel);
/* Whether the next task is not to run, whatever it is: no lane, and no pause, matters to it. */
bool worker_doomed(const struct wqueue *q);

/* ---- replay.c ---- */
/* Handles of buffers that the task at @pos uses, at most @cap; hints, as the guest may change its mind. */
uint32_t worker_task_buffers(struct wqueue *q, uint64_t pos, uint64_t *ret_handles, uint32_t cap);
/*
 * Whether a task in doubt, harmless to run twice, finds what it reads as it was the first time; it has to run again
 * then. In the order of positions.
 */
bool worker_replay_reads_the_same(struct wqueue *q, uint64_t pos);

/* ---- complete.c ---- */
/* The next task does nothing, and something is in flight: it is issued, and ends with the one before it. */
void worker_ride(struct wqueue *q);
/* The newest command in flight is as if it had not been issued, and what rode behind it. */
void worker_unissue(struct wqueue *q);
/*
 * Of those that failed with the context the ones that certainly never began, the newest of their queues, are as if they had not been
 * issued: in each queue of which all is told.
 */
void worker_count_back(const struct gantry_done *failed, uint32_t nfailed);
/* The oldest task in flight (or the next one, not issued) finished, and those that ride behind it. */
void worker_finish(struct wqueue *q, int status, uint64_t device_ns);
/* The newest command in flight is at work on the host (@off), where no deadline runs, or goes on to the device. */
void worker_off_device(struct wqueue *q, bool off);
/* Publishes what finished; wakes who waits. */
void worker_publish(struct wqueue *q);

/* ---- control.c ---- */
/* Serves the session's queue 0. Returns how many operations, or -EPROTO. */
int worker_control(struct wdevice *d, struct wsession *s);

/* ---- object.c, slab.c, buffer.c, back.c, share.c, charge.c ---- */
/*
 * The live object @handle of @type, or a dying buffer that this task may still use (@q at @pos; NULL: live only).
 * NULL: unknown, stale, of another type.
 */
struct gantry_ledger_object *worker_object_get(struct wsession *s, uint64_t handle, uint32_t type,
					       const struct wqueue *q, uint64_t pos);
/*
 * A free object of @type, GANTRY_OBJECT_FREE until the caller makes it live, before it lets go of the lock. 0 or a
 * status.
 */
int worker_object_new_locked(struct wsession *s, uint32_t type, uint32_t *ret_slot);
uint64_t worker_object_handle(const struct wsession *s, uint32_t slot);
void worker_object_publish(struct wsession *s, uint32_t slot, uint64_t made_by);
void worker_object_end_locked(struct wsession *s, uint32_t slot);
int worker_buffer_alloc(struct wsession *s, const struct gantry_op_buf_alloc *args,
			uint64_t made_by, uint64_t *ret_handle);
int worker_buffer_free(struct wsession *s, uint64_t handle);
/* The buffers of a recovered ledger are what buffers can be: inside heap and slab, charged as they are backed. */
bool worker_buffer_possible(const struct wsession *s, const struct gantry_ledger_buffer *b);
/* Gives back buffers whose last users have finished. Returns how many are still dying. */
uint32_t worker_buffer_reap(struct wsession *s);
/*
 * [off, off + len) of @obj on device @d, backed and charged, to be read, or written too. len 0: to the end. 0 or a
 * status; AGAIN: memory is on its way, the device is woken then.
 */
int worker_buffer_range(struct wdevice *d, struct wsession *s, struct gantry_ledger_object *obj,
			uint64_t off, uint64_t len, bool write, struct gantry_range *ret_range);
/* All of @obj, to be written, under the lock: for whom no task keeps the buffer from being freed. */
int worker_buffer_range_locked(struct wdevice *d, struct wsession *s,
			       struct gantry_ledger_object *obj, struct gantry_range *ret_range);
int worker_heap_range(struct wdevice *d, struct wsession *s, uint64_t off, uint64_t len,
		      struct gantry_range *ret_range);
int worker_slab_init(struct wsession *s, struct gantry_err *err);
/* After a recovery: what the ledger's buffers hold of the slab is taken, all else of it is empty. -EINVAL. */
int worker_slab_recover(struct wsession *s);
/* After a recovery: the session's and the tenant's counters say what its buffers hold, and no more. */
void worker_charges_recover(struct wsession *s);
int worker_buffer_adopt(struct wsession *s, uint64_t share_id, uint64_t bytes, uint32_t mode,
			int fd, uint64_t *ret_handle);
int worker_buffer_export(struct wsession *s, uint64_t handle, uint32_t mode, int *ret_fd,
			 uint64_t *ret_bytes, uint64_t *ret_share_id);
void worker_memory_release(struct wsession *s);
/* Memory of device @d that the session holds, before the thread lets go. Device thread. */
void worker_memory_leave(struct wdevice *d, struct wsession *s);

/* ---- window_open.c, window_slabs.c ---- */
/* The session's windows, as tables; before the ledger's buffers are looked at. */
int worker_windows_init(struct wsession *s, const struct gantry_engine_attach *a,
			struct gantry_err *err);
/* The session's window of this device, if it has windows. Device thread. */
int worker_window_open(struct wdevice *d, struct wsession *s, struct gantry_err *err);
/* OK: wherever the session's programs have addresses there is what was there. AGAIN: it is on its way. Else why it does not come. */
int worker_windows_known(struct wsession *s);
/* Whether the thread may let go: no job is left, and none can begin that needs it. Device thread. */
bool worker_windows_close(struct wdevice *d, struct wsession *s);
void worker_windows_free(struct wsession *s);

/* ---- move.c ---- */
/* The task that buffers were moved for is bound, or not to be: others may move theirs. */
void worker_move_over(struct wsession *s);

/* ---- replica.c ---- */
/* A queue has left device @d: copies of buffers there that none of the others has used go. Its thread. */
void worker_replica_left(struct wdevice *d, struct wsession *s);

/* ---- job.c ---- */
/* Whether a command's tag is a job's; its session. */
bool worker_job_is(uint64_t tag);
const struct wsession *worker_job_session(uint64_t tag);
/* Whether jobs that have just come wait for a better moment: the thread is @busy, or may soon be. */
bool worker_jobs_put_off(struct wdevice *d, bool busy);
/* Gets on with the thread's jobs. Returns how many did. */
unsigned worker_jobs_run(struct wdevice *d);
void worker_job_done(struct wdevice *d, const struct gantry_done *done);

/* ---- kernel.c ---- */
/*
 * The engine's kernel of that name (NULL module: any) for @tenant, for a new handle: what only images have that leave is
 * not found any more. NULL: none.
 */
struct wkernel *worker_kernel_find(struct gantry_engine *e, const char *tenant, const char *module,
				   const char *name);
/* The same for a handle that there was before: images that leave have it for its tasks that were accepted. */
struct wkernel *worker_kernel_find_again(struct gantry_engine *e, const char *tenant,
					 const char *module, const char *name);
/* Whether an image that leaves has such a kernel, which is why it was not found. */
bool worker_kernel_is_leaving(struct gantry_engine *e, const char *tenant, const char *module,
			      const char *name);
/* Whether @k's form for @kind is about to go, or gone, and the queue's next task to be bound came too late for it. The queue's thread. */
bool worker_kernel_came_too_late(const struct wkernel *k, struct wqueue *q, uint32_t kind);
/* The queue hears of images that leave: what it has accepted so far still runs. Its thread, before it accepts more. */
void worker_queue_hear_of_drains(struct wqueue *q);
/* Tells one signature from another; never 0 for a signature there is. */
uint64_t worker_kernel_sig_hash(const struct wkernel *k);
/* Calls @fn for each kernel of modules for @tenant that has a form for @kind, under the modules' lock. Any thread. */
void worker_kernels_each(struct gantry_engine *e, const char *tenant, uint32_t kind,
			 void (*fn)(void *cookie, const char *name, const char *sig), void *cookie);
/* Whether a module of that name is installed for @tenant. */
bool worker_module_exists(struct gantry_engine *e, const char *tenant, const char *module);
/* The form of @k on device @d, loaded on first use by the device's thread. 0 or a status. */
int worker_kernel_on(struct wdevice *d, struct wkernel *k, struct gantry_kernel **ret_kernel);
/* Whether there is a form of the kernel object in @slot for device @d, loaded or not. Any thread. */
bool worker_kernel_has_form(const struct wsession *s, uint32_t slot, const struct wdevice *d);
int worker_modules_open(struct gantry_engine *e, const struct gantry_engine_conf *conf,
			struct gantry_err *err);
int worker_modules_rescan(struct gantry_engine *e, struct gantry_err *err);
void worker_modules_free(struct gantry_engine *e);
void worker_images_free(struct wdevice *d);

/* ---- keep.c ---- */
/* A kernel of the installed module that calls libraries. */
bool worker_keeps(const struct gantry_ledger_object *obj);
/* The session has found a kernel that may keep something: from now on there is memory for what makes it anew. */
void worker_keeps_open_locked(struct wsession *s);
void worker_keeps_close(struct wsession *s);
/* For a stream of the session's on device @device; NULL: devices so far up have none. */
const struct gantry_keep *worker_keep_of(const struct wsession *s, uint32_t device);
/* What stands against making it anew elsewhere, perhaps in @buf; NULL: nothing does. */
const char *worker_keep_barred(const struct wsession *s, uint32_t device, char *buf, size_t cap);

/* ---- session.c ---- */
/* The session, held until worker_session_leave(); NULL: there is none, or its last thread just let go. */
struct wsession *worker_session_get(struct gantry_engine *e, uint64_t id);
/* Ends the session for breaking the rules; the first reason stays. */
void worker_condemn(struct wsession *s, int status, const char *text);
uint64_t worker_queue_tail(const struct wqueue *q);
/* The thread that serves a queue changes to its device's. */
int worker_queue_place(struct wsession *s, struct wqueue *q);
/* Devices as the guest numbers them, and the engine's: migrate_whole.c lets them change places. */
uint32_t worker_device_numbered(const struct wsession *s, uint32_t number);
uint64_t worker_devices_numbered(const struct wsession *s, uint64_t numbers);
uint32_t worker_number_of(const struct wsession *s, uint32_t device);
/* At a recovery, before anything looks at devices: a handing over that was decided is done. -EINVAL: it cannot be. */
int worker_places_recover(struct wsession *s);
/* Whether the queue may be served by that device: the tenant's, usable, in service, and of those it asked for. */
bool worker_queue_fits(const struct wsession *s, const struct wqueue *q, uint32_t device);
/* One more holds the session; the caller does already, or keeps those who do from letting go. */
void worker_session_hold(struct wsession *s);
/* Whoever held the session lets go; the last one ends it. */
void worker_session_leave(struct wsession *s);
/* Every device thread that may serve one of its queues looks again. */
void worker_session_wake(struct wsession *s);

/* ---- wake.c ---- */
/* After what a ring's waiters wait for was published: full fence, and whoever sleeps on it is woken. Never waits. */
void worker_wake_waiters(struct wsession *s, struct gantry_ring_consumer *ring);
/* The header's state has changed: all its threads look again. Never waits. */
void worker_wake_all(struct wsession *s);

#endif
