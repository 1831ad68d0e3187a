/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the cpu backend: a device, its lanes and streams, and which file does what.
 *
 * With one core there is one lane and no thread: poll() runs the commands (GANTRY_CAP_CALLER_RUNS).
 * With more, each lane is a thread; a lane that took a stream runs its commands until another
 * stream should have its turn, and idle lanes help with env->parallel().
 *
 * Threads: members say which thread may touch them. "Device thread" is the caller of the backend;
 * "lane" is whoever runs the commands, which with one core is the device thread too.
 */
#ifndef GANTRY_DEVICES_CPU_CPU_H
#define GANTRY_DEVICES_CPU_CPU_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/spin.h"
#include "devices/device.h"
#include "devices/kernels/openblas.h"

/*
 * Commands a stream holds. The window of a few milliseconds that the core keeps in flight is filled
 * by 64 commands of 30 us; shorter ones come back before the core could submit that many. A power
 * of two.
 */
#define GANTRY_CPU_DEPTH     64u
#define GANTRY_CPU_MAX_CORES 256u
/* That of the GPUs which a device with windows stands for. */
#define GANTRY_CPU_SLAB_ALIGN (2ull << 20)

struct gantry_kernel {
	struct gantry_kernel *next; /* of the image */
	gantry_body *body;
	const struct gantry_signature *sig;
	uint64_t mean_ns; /* running mean of its device time; any lane, relaxed */
};

struct gantry_image {
	struct gantry_list link; /* gantry_dev.images */
	void *library;
	struct gantry_kernel *kernels; /* owned */
};

struct gantry_mem {
	struct gantry_list link; /* gantry_dev.mems */
	struct gantry_dev *dev;
	unsigned char *base;
	uint64_t len;
	uint64_t charged; /* bytes of the device's pool */
	bool mapped;	  /* by us, so unmapped by us */
};

/* A command with its pointers resolved, and after it has run its result. */
struct gantry_cpu_cmd {
	uint32_t kind; /* enum gantry_cmd_kind */
	uint32_t pattern_bytes;
	struct gantry_done done; /* the tag is set from the start */
	unsigned char *dst;
	const unsigned char *src;
	uint64_t len;
	uint64_t pattern;
	struct gantry_kernel *kernel;
	struct gantry_call call; /* call.args is args below */
	union gantry_value args[GANTRY_MAX_CMD_ARGS];
};

struct gantry_stream {
	struct gantry_list link;  /* gantry_dev.streams; device thread */
	struct gantry_list ready; /* gantry_dev.ready, under its rules */
	struct gantry_dev *dev;
	int32_t priority;
	/*
	 * Free-running positions in slots: submitted and reaped by the device thread, run by a
	 * lane.
	 */
	uint32_t submitted;
	uint32_t reaped;
	uint32_t run;
	/*
	 * Commands submitted and not finished. Whoever makes it nonzero schedules the stream; the
	 * lane that makes it zero must not touch the stream again, since it may be destroyed then.
	 */
	uint32_t pending;
	struct gantry_cpu_cmd slots[GANTRY_CPU_DEPTH];
};

struct gantry_cpu_lane {
	struct gantry_env env;
	struct gantry_dev *dev;
	uint64_t tag;	   /* of the running command */
	bool splitting;	   /* inside parallel(); nested calls run inline */
	uint64_t extra_ns; /* device time that other lanes gave to the running command */
	unsigned char *scratch;
	uint64_t scratch_used;
	pthread_t thread;
	uint32_t idx;
	struct gantry_spin spin;
} __attribute__((aligned(64)));

struct gantry_dev {
	/* Set by open(), constant after. */
	const struct gantry_device_host *host;
	uint32_t ncores;
	uint64_t mem_bytes;
	uint64_t scratch_bytes;	  /* a lane */
	uint64_t ns_per_cycle_22; /* nanoseconds a TSC tick, times 2^22 */
	cpu_set_t cpus;
	bool pinned;
	bool windows; /* memory in slabs and windows instead of imports */

	/* Device thread. */
	struct gantry_list streams;
	struct gantry_list mems;
	struct gantry_list images;
	uint64_t mem_used;

	/* With one core the device thread's; with more, @lock protects all of this block. */
	pthread_mutex_t lock;
	pthread_cond_t work;	 /* something is ready, or stopping */
	pthread_cond_t job_done; /* a helper has left a job */
	struct gantry_list ready;
	struct gantry_list jobs; /* of parallel() */
	uint32_t nasleep;	 /* lanes in pthread_cond_wait() */
	bool stopping;

	/* Written under @lock, read as hints without it. */
	uint32_t nwork; /* streams ready and jobs open */
	uint32_t nidle; /* lanes without work, spinning or asleep */

	/*
	 * Lanes add to the first, the device thread sets the second: see gantry_cpu_poll_lanes().
	 */
	uint32_t nfinished __attribute__((aligned(64)));
	uint32_t nreaped __attribute__((aligned(64)));

	pthread_mutex_t library_lock;
	struct gantry_openblas *openblas; /* NULL, or openblas_table */
	struct gantry_openblas openblas_table;
	void *openblas_library;

	uint32_t nthreads; /* lanes whose thread runs */
	struct gantry_cpu_lane lanes[];
};

/* image.c */
int gantry_cpu_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			  size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err);
void gantry_cpu_image_unload(struct gantry_image *image);
int gantry_cpu_kernel_get(struct gantry_image *image, const char *symbol,
			  const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			  struct gantry_err *err);

/* mem.c */
int gantry_cpu_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			  struct gantry_mem **ret_mem, struct gantry_err *err);
int gantry_cpu_mem_alloc(struct gantry_dev *dev, uint64_t len, struct gantry_mem **ret_mem,
			 struct gantry_err *err);
int gantry_cpu_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			struct gantry_mem **ret_mem, struct gantry_err *err);
void gantry_cpu_mem_free(struct gantry_mem *mem);
int gantry_cpu_slab_create(struct gantry_dev *dev, uint64_t len, int *ret_fd,
			   struct gantry_err *err);
int gantry_cpu_slab_scrub(struct gantry_dev *dev, int fd, uint64_t len, struct gantry_err *err);
int gantry_cpu_window_open(struct gantry_dev *dev, uint64_t address, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err);
int gantry_cpu_window_map(struct gantry_mem *window, uint64_t off, uint64_t len, int fd,
			  struct gantry_err *err);
void gantry_cpu_window_unmap(struct gantry_mem *window, uint64_t off, uint64_t len);

/* stream.c */
int gantry_cpu_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			     struct gantry_stream **ret_stream, struct gantry_err *err);
void gantry_cpu_stream_destroy(struct gantry_stream *stream);
int gantry_cpu_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd);
unsigned gantry_cpu_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n);
/*
 * Puts @stream behind the ready ones of its priority. With lanes the caller holds gantry_dev.lock.
 */
void gantry_cpu_ready_push(struct gantry_stream *stream);
/* The stream to serve next, taken off; NULL when none is ready. The same about the lock. */
struct gantry_stream *gantry_cpu_ready_pop(struct gantry_dev *dev);

/* run.c: runs @cmd on @lane and fills in its result. */
void gantry_cpu_run(struct gantry_cpu_lane *lane, struct gantry_cpu_cmd *cmd);

/* env.c: what running kernels get. */
void gantry_cpu_lane_init(struct gantry_cpu_lane *lane, struct gantry_dev *dev, uint32_t idx);
void gantry_cpu_lane_fini(struct gantry_cpu_lane *lane);
void gantry_cpu_libraries_close(struct gantry_dev *dev);

/* lanes.c: the threads. */
int gantry_cpu_lanes_start(struct gantry_dev *dev, struct gantry_err *err);
void gantry_cpu_lanes_stop(struct gantry_dev *dev);
/* Makes @stream, which has just become busy, known to the lanes. */
void gantry_cpu_lanes_schedule(struct gantry_stream *stream);
/*
 * split.c: gantry_env.parallel over lanes, and the help of an idle one (lock held, dropped inside).
 */
void gantry_cpu_parallel(struct gantry_env *env, uint64_t n, uint64_t grain,
			 void (*fn)(void *arg, uint64_t begin, uint64_t end), void *arg);
bool gantry_cpu_help_locked(struct gantry_dev *dev);

#endif
