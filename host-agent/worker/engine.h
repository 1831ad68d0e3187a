/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's engine: device threads that run sessions' tasks. What gantry-worker wraps in a process, and tests
 * run as threads of their own.
 *
 * Order of calls: start, then attach/detach/export/import in any order, then stop.
 * Threads: one caller thread (the control thread); callbacks come from device threads.
 * Blocking: start opens the devices. Nothing else waits for a device: what takes time ends in a callback.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_ENGINE_H
#define GANTRY_HOST_AGENT_WORKER_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/device.h"
#include "host-agent/shared/wake.h"
#include "migration/migrate.h"

#define GANTRY_ENGINE_MAX_DEVICES  8u
#define GANTRY_ENGINE_MAX_SESSIONS 512u

struct gantry_engine;
struct worker_compiler;

struct gantry_engine_migration {
	uint64_t id;
	uint64_t session_id;
	uint32_t slot;
	uint32_t from; /* device */
	uint32_t to;
	enum gantry_migration_state state;
	bool over;
	int error; /* -errno of one that is over and did not end at its destination */
	struct gantry_migration_counts counts;
	/* Of a lazy one that has arrived, each time that a task has had a buffer moved since; then nothing above but names counts. */
	uint64_t pulled_bytes;
	uint64_t touched_bytes; /* of them, what those tasks said that they use */
	char text[GANTRY_ERR_TEXT_MAX];
};

/* Any thread of the engine, and the caller's; none may block or call the engine. */
struct gantry_engine_events {
	/* A detach finished: no thread touches the session any more and its descriptors are closed. */
	void (*detached)(void *cookie, uint64_t session_id);
	/* The engine ended the session by itself; the agent is to detach it. */
	void (*ended)(void *cookie, uint64_t session_id, int status, const char *text);
	/* A shared buffer has memory of its own (@fd is the engine's, to be duplicated or sent), or lost it (-1, 0). */
	void (*keep)(void *cookie, uint64_t session_id, uint64_t share_id, uint64_t bytes, int fd);
	/*
	 * A window of the session's needs slabs behind all of [off, off + bytes); the agent answers by
	 * gantry_engine_give_slabs(), in its own time. And: the slab at @off is mapped no more, its descriptor not needed.
	 * For one window the order of both is that of the calls.
	 */
	void (*need_slabs)(void *cookie, uint64_t session_id, uint32_t device, uint64_t off,
			   uint64_t bytes);
	void (*drop_slab)(void *cookie, uint64_t session_id, uint32_t device, uint64_t off,
			  uint64_t bytes);
	/* Work has come to a device that the agent watches (share.h); NULL: nobody is told. */
	void (*busy)(void *cookie);
	/*
	 * The context on @device has failed, and what has finished is published. @blast CONTEXT: somebody's task did it;
	 * DEVICE: the device is gone. A process ends here. If it returns, what was in flight fails with @status.
	 */
	void (*device_fault)(void *cookie, const char *device, unsigned blast, int status,
			     const char *text);
	/*
	 * A task uses @touched_bytes of buffer @slot, whose bytes are at another host yet: the agent answers by
	 * gantry_engine_give_bytes() once they are in the slab's file, or cannot be had. @touched_bytes 0: asked again, of another agent.
	 */
	void (*need_bytes)(void *cookie, uint64_t session_id, uint32_t slot,
			   uint64_t touched_bytes);
	/* What gantry_engine_borrow() began is over: a status, and the session's handle. NULL: nothing is borrowed. */
	void (*borrowed)(void *cookie, uint64_t tag, int status, uint64_t buffer);
	/* What gantry_engine_gather() began is over. @status not OK: buffer @slot could not be gathered. NULL: nobody asks. */
	void (*gathered)(void *cookie, uint64_t tag, int status, uint32_t slot);
	/* A migration has come a step further; with report->over it is the last word of it. NULL: nobody wants to know. */
	void (*migration)(void *cookie, const struct gantry_engine_migration *report);
	void *cookie;
};

struct gantry_engine_conf {
	uint32_t ndevices;
	const struct gantry_device_conf *devices;
	const int *share_fds; /* one per device; the engine maps them, the caller closes them */
	uint32_t share_owner; /* this worker's entry in every share page */
	uint32_t nmodule_dirs;
	const char *const *module_dirs;
	uint64_t spin_ns; /* longest idle spin; UINT64_MAX: the default */
	const struct gantry_engine_events *events;
	struct worker_compiler *compiler; /* outlives the engine; NULL: guests' texts are refused */
	bool isolated; /* all sessions are of one tenant: its own code may run in this process */
};

struct gantry_engine_device {
	char name[32];
	struct gantry_device_info info;
	char error[160]; /* not empty: could not be opened */
};

/* Opens the devices, each on its own thread. A device that fails to open is reported in @ret_devices and left out. */
int gantry_engine_start(const struct gantry_engine_conf *conf, struct gantry_engine **ret_engine,
			struct gantry_engine_device *ret_devices, struct gantry_err *err);
/* Detaches every session and joins the threads. NULL is allowed. */
void gantry_engine_stop(struct gantry_engine *engine);

struct gantry_engine_shared {
	uint64_t share_id;
	uint64_t bytes;
	int fd;
};

struct gantry_engine_attach {
	uint64_t session_id;
	uint64_t epoch;
	uint32_t version;
	uint32_t tenant_slot;
	const char *
		tenant; /* its name, a longer one than names may be is nobody's; NULL: none. By it modules of one tenant are found */
	uint32_t share_slot;
	/*
	 * recover: status of the oldest task in flight of each queue. The others in flight, and all of them where this
	 * is 0, run again where they can be repeated, and are in doubt where not.
	 */
	int32_t verdict;
	int recover;
	uint64_t segment_bytes;
	uint64_t segment_off; /* in its descriptor; a multiple of a page */
	uint64_t address;     /* 0: anywhere */
	void *mapped; /* not NULL: the segment is mapped here, by a caller in this process, and stays */
	uint64_t device_mask;
	uint64_t
		window_address; /* of device 0's window; device i's lies i << 40 further; 0: anywhere */
	int segment_fd;
	int bell_fd;
	int ledger_fd;
	int slab_fd;
	int quota_fd;
	uint32_t wake; /* enum gantry_session_wake */
	int wake_fd;   /* of EVENTFD and SOCKET */
	uint32_t nshared;
	const struct gantry_engine_shared *shared;
};

/* Takes the session over. Descriptors stay the caller's (duplicated inside). The rings are served from now on. */
int gantry_engine_attach(struct gantry_engine *engine, const struct gantry_engine_attach *attach,
			 struct gantry_err *err);
/* As a reason: the session does not end, another worker or host will have it. Its guest is not told. */
#define GANTRY_ENGINE_PART 1
/* Starts the session's end here; events->detached follows. -ENOENT: no such session. */
int gantry_engine_detach(struct gantry_engine *engine, uint64_t session_id, int reason);

/* What is to come to the session's host memory, see gather.c. */
enum gantry_gather {
	GANTRY_GATHER_AHEAD = 0, /* copies of what is in windows; the session works on */
	GANTRY_GATHER_ALL = 1, /* all of it; its queues are held, and nothing of it is in flight */
	/* It stays: what was asked before ends with CANCELLED, the copies are not wanted any more. Its queues are held until the answer. */
	GANTRY_GATHER_NONE = 2,
};
/* events->gathered follows, with @tag. -ENOENT: no such session; -ENOMEM. */
int gantry_engine_gather(struct gantry_engine *engine, uint64_t session_id, enum gantry_gather what,
			 uint64_t tag);

#define GANTRY_ENGINE_MAX_SLABS 128u

struct gantry_engine_slab {
	uint64_t off;
	uint64_t bytes;
	int fd;
	int fresh; /* all zero: no worker has been given it before */
};

/* An answer to need_slabs, or a part of it. */
struct gantry_engine_slabs {
	uint64_t session_id;
	uint32_t device;
	uint64_t off; /* as asked */
	uint64_t bytes;
	uint32_t nslabs;
	const struct gantry_engine_slab *slabs;
	int last;
	int status; /* not 0: what is still missing of the range cannot be had */
};

/*
 * Slabs for a window. Descriptors stay the caller's (duplicated inside). -ENOENT: no such session, its slabs are not
 * wanted; -EINVAL; -ENOMEM: as if the message had not come.
 */
int gantry_engine_give_slabs(struct gantry_engine *engine, const struct gantry_engine_slabs *slabs);
/*
 * OK: the bytes of buffer @slot are in the slab's file; else they are lost. @slot GANTRY_LEDGER_NOBJECTS, not OK: all that is elsewhere
 * yet is lost, wanted or not. -ENOENT, -EINVAL: it does not wait for that.
 */
int gantry_engine_give_bytes(struct gantry_engine *engine, uint64_t session_id, uint32_t slot,
			     int status);
/* Another agent listens: what was asked for and not answered is asked for again. */
void gantry_engine_ask_again(struct gantry_engine *engine);

/*
 * Device memory of another session: the slabs in which it lies, whose descriptors stay the caller's. A status; OK: events->borrowed()
 * tells how it went.
 */
struct gantry_engine_loan {
	uint64_t tag; /* the caller's */
	uint64_t session_id;
	uint64_t share_id;
	uint64_t bytes;
	uint64_t skip; /* where it begins in the first slab */
	uint32_t device;
	uint32_t nslabs;
};
int gantry_engine_borrow(struct gantry_engine *engine, const struct gantry_engine_loan *loan,
			 const struct gantry_engine_slab *slabs);

/*
 * Statuses, not errnos. *ret_fd is the caller's; of device memory there is none, for its slabs are behind others. ACCESS: @mode is more
 * than the session itself may.
 */
int gantry_engine_export(struct gantry_engine *engine, uint64_t session_id, uint64_t buffer,
			 uint32_t mode, int *ret_fd, uint64_t *ret_bytes, uint64_t *ret_share_id);
int gantry_engine_import(struct gantry_engine *engine, uint64_t session_id, uint64_t share_id,
			 uint64_t bytes, uint32_t mode, int fd, uint64_t *ret_buffer);

struct gantry_engine_migrate {
	uint64_t id; /* the caller's name for it */
	uint64_t session_id;
	uint32_t slot;	 /* of the queue, not 0 */
	uint32_t device; /* where it is to go */
	int lazy;	 /* at once; its tasks pull their buffers */
	int whole; /* instead of a queue all that the session works on, with the addresses that its program knows */
	int dry_run; /* look whether it could, and what it would take along */
	struct gantry_migration_policy policy;
};

/*
 * Begins to move the queue; events->migration tells how it goes. *ret_report: what it owns now. -ENOENT: no such session or queue;
 * -ENODEV: no such device, or the queue may not use it; -EALREADY: it is there; -EBUSY: it is moving; -ENOEXEC: the device has no
 * form of one of its kernels; -ENOMEM.
 */
int gantry_engine_migrate(struct gantry_engine *engine, const struct gantry_engine_migrate *migrate,
			  struct gantry_engine_migration *ret_report, struct gantry_err *err);
/* It turns back if it still can; its last report says so. -ENOENT: there is none of that name. */
int gantry_engine_migrate_cancel(struct gantry_engine *engine, uint64_t session_id, uint64_t id);

/* Looks for new modules. -errno with a sentence; the old ones stay. */
int gantry_engine_rescan(struct gantry_engine *engine, struct gantry_err *err);
/* Shared pages changed: every device thread looks at them at once. */
void gantry_engine_nudge(struct gantry_engine *engine);
/* How many sessions are served now; the ids of the first @cap of them. */
uint32_t gantry_engine_sessions(struct gantry_engine *engine, uint64_t *ret_ids, uint32_t cap);

#endif
