/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside our libcuda.so.1: CUDA's Driver API over a session of Gantry. NVIDIA's driver is with the worker.
 *
 *   core.c    the process: its session, devices, statuses to CUresult, errors that stay
 *   handle.c  which handles are alive
 *   ctx.c     contexts; module.c images, functions, variables; launch.c their launches
 *   memory.c  allocations; pool.c small ones; stage.c pieces of pinned memory that pageable copies go through; copy.c copies
 *   stream.c  streams; event.c events; hostfn.c functions of the host's between tasks; bell.c threads that streams wait for
 *   box.c     copies in two and three dimensions, fills of rows
 *   graph.h   graphs and captures: which of those files does what; graphmem.h memory that graphs allocate
 *   output.c  what kernels print; link.c images that are linked on the spot
 *   hostmem.c memory of the program's that it registers; pages.h how its pages become pinned memory
 *   managed.h what is said of managed memory
 *   memop.h   words that a stream writes or waits for
 *   array.h   arrays, textures and surfaces
 *   mirror.h  variables that program and kernels have both
 *   vmm.h     addresses and memory apart from each other
 *   ipc.h     memory and events of other processes; aside.h copies beside all streams
 *   road.c    what the forwarding libraries of the toolkit use of all that
 *   api_*.c   what is exported; streams_*.c twice: the second time for a default stream per thread
 *
 * A stream is a queue of the session with one device in its mask, an event a ticket and 8 bytes for the device's clock, a
 * device pointer an address of the session's window, where buffers with GANTRY_ALLOC_FIXED lie: kernels and programs have
 * the same one, and nothing is translated.
 *
 * Threads: cu.lock guards everything here; it is not held while something is waited for, except by a submission for room in
 * a ring. Functions named _locked want it. Errors: CUresult, as the Driver API documents.
 */
#ifndef GANTRY_GUEST_SHIM_CUDA_CORE_H
#define GANTRY_GUEST_SHIM_CUDA_CORE_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest-shim/device.h"
#include "guest-shim/gantry.h"

#define CU_MAX_DEVICES	  16u
#define CU_MAX_STACK	  32u /* contexts pushed by one thread */
#define CU_DRIVER_VERSION 13000

enum cu_kind {
	CU_KIND_CTX = 1,
	CU_KIND_STREAM,
	CU_KIND_EVENT,
	CU_KIND_MODULE, /* and libraries */
	CU_KIND_FUNC,	/* and kernels */
	CU_KIND_GRAPH,
	CU_KIND_NODE,
	CU_KIND_EXEC,
	CU_KIND_USER_OBJECT,
	CU_KIND_POOL,
	CU_KIND_ARRAY,
	CU_KIND_MIPMAP, /* an array with levels */
	CU_KIND_LINK,
	CU_KIND_PHYSICAL, /* memory without an address */
};

struct cu_device {
	uint32_t index; /* as the session numbers it */
	struct gantry_reply_device info;
	int32_t attributes[CU_DEVICE_ATTRIBUTE_MAX];
	struct CUctx_st *primary; /* NULL: not retained */
	uint32_t nprimary;
	unsigned int primary_flags;
	struct CUmemPoolHandle_st *default_pool; /* NULL: nobody has asked */
	struct CUmemPoolHandle_st *pool;	 /* NULL: the default one */
	uint64_t granule; /* of what is reserved and mapped; 0: that is not to be had */
};

struct CUctx_st {
	struct cu_device *dev;
	unsigned int flags;
	struct CUstream_st *streams; /* all, the legacy one too */
	struct CUstream_st *legacy;
	struct CUmod_st *modules;
	uint64_t id;
	size_t limits[CU_LIMIT_MAX];
	uint64_t peers; /* bit d: it has asked to reach device d, as it does anyway */
};

struct cu_capture; /* capture.c */

/* Nodes of one graph, not owned. */
struct cu_nodes {
	struct CUgraphNode_st **node;
	uint32_t n;
	uint32_t cap;
};

/* What the program has said of a stream or of a graph's kernel, and reads back; nothing is done with it here (attr.c). */
struct cu_hints {
	CUaccessPolicyWindow window;
	CUsynchronizationPolicy waits;
	CUlaunchMemSyncDomain domain;
	CUlaunchMemSyncDomainMap domains;
};

struct CUstream_st {
	struct CUstream_st *next; /* of the context */
	struct CUctx_st *ctx;
	gantry_queue queue;
	bool shares_queue; /* another stream's: the session has no more */
	bool is_blocking;  /* it and the legacy stream wait for each other */
	bool is_default;   /* of a thread; not to be destroyed */
	pthread_t thread;  /* whose, then */
	unsigned int flags;
	int priority;
	uint64_t id;
	gantry_ticket last;	    /* of the newest task; 0: there was none */
	gantry_ticket checked;	    /* up to it no task has failed */
	gantry_ticket after_legacy; /* the legacy stream's task that it has waited for */
	struct cu_capture *capture; /* NULL: what is put into it runs */
	struct cu_nodes tips;	    /* what the next captured node comes after */
	struct cu_hints hints;
	struct cu_twin *builds; /* what is put into it becomes this one's nodes; NULL: it runs */
	bool is_held;		/* a thread puts a graph into it, which others' calls wait for */
	pthread_t holder;
};

struct cu_cell; /* event.c */

struct CUevent_st {
	struct CUctx_st *ctx;
	unsigned int flags;
	gantry_ticket ticket; /* 0: not recorded, or nothing was to be waited for */
	bool is_recorded;
	struct cu_cell *cell;		/* NULL: without timing */
	uint64_t captured;		/* by which capture it was recorded last; 0: by none */
	struct cu_nodes tips;		/* where, then */
	struct cu_shared_event *shared; /* NULL: this process's alone (ipc.h) */
};

struct cu_variable {
	struct cu_variable *next;
	char *name;
	uint32_t device;
	gantry_buffer buffer;
	CUdeviceptr address;
	size_t bytes;
	bool is_managed; /* the program has it too (mirror.h) */
};

struct CUmod_st {
	struct CUmod_st *next; /* of its context's */
	struct CUctx_st *ctx;  /* that it ends with; NULL: a library's, which outlives them */
	gantry_image image;
	struct CUfunc_st *funcs;
	struct cu_variable *variables;
};

struct CUfunc_st {
	struct CUfunc_st *next;
	struct CUmod_st *module;
	gantry_kernel kernel;
	char *name;
	uint32_t nparams;
	uint32_t params_bytes;
	struct gantry_reply_param *params;
	int32_t attributes[GANTRY_FUNCTION_ATTRIBUTES];
	/* What a multiprocessor was last said to hold of blocks like these; @per_unit 0: nobody has asked. */
	uint32_t asked_device;
	uint32_t asked_threads;
	uint32_t asked_shared;
	uint32_t per_unit;
};

enum cu_memory {
	CU_MEMORY_DEVICE,
	CU_MEMORY_PINNED,
	CU_MEMORY_MANAGED, /* pinned, which the program takes for managed */
	CU_MEMORY_VARIABLE,
	CU_MEMORY_REGISTERED, /* pages of the program's that are pinned memory now, by their own addresses */
	CU_MEMORY_MAPPED, /* device memory that the program has put there */
	CU_MEMORY_GRAPH,  /* of a graph; without a buffer while no memory lies there */
	CU_MEMORY_OPENED, /* device memory of another process */
};

struct cu_alloc {
	CUdeviceptr address;
	size_t bytes;
	gantry_buffer buffer; /* 0: of pinned memory that no device has an address of */
	uint64_t off;	      /* in the buffer */
	enum cu_memory kind;
	struct CUctx_st *ctx; /* NULL: it has ended, of variables; of mapped memory and graphs' */
	uint32_t device;
	void *host;			 /* of pinned memory: here */
	struct cu_chunk *chunk;		 /* of small ones */
	struct CUmemPoolHandle_st *pool; /* that it is counted in; NULL: none */
	uint64_t id;
	unsigned int flags;
	struct cu_physical *physical; /* of mapped memory */
	struct cu_spot *spot;	      /* of a graph's */
	uint32_t access;	      /* of that: two bits of CUmemAccess_flags for each device */
};

struct cu {
	pthread_mutex_t lock;
	uint32_t ready; /* atomic: cuInit() has succeeded */
	struct gantry_session *session;
	uint32_t ndevices;
	struct cu_device devices[CU_MAX_DEVICES];
	uint32_t sticky; /* atomic: CUresult that every call returns from now on */
	uint64_t next_id;
	struct gantry_props props;
};
extern struct cu cu;

/* ---- core.c ---- */
CUresult cu_start(unsigned int flags);
/* A call may go on: started, in the process that started it, and nothing has failed for good. Takes no lock. */
CUresult cu_check(void);
/* The same, with cu.lock held on success and the thread's context, which is alive. */
CUresult cu_enter(struct CUctx_st **ret_ctx);
CUresult cu_leave(CUresult result);
/* The session is behind a stream: memory of the host's is not the device's, and what goes to and from the program is sent. */
bool cu_is_far(void);
/* Of a call's status; statuses of tasks that have failed for good stay. */
CUresult cu_result(int status);
/* What is not there, by name, which is static: counted, and the agent is told (gantryctl session show --unsupported). Any time. */
CUresult cu_unsupported(const char *name);
/* This thread is in a function of the host's between tasks, from where CUDA is not to be called. */
extern _Thread_local bool cu_in_callback;

/* ---- handle.c; under the lock ---- */
bool cu_handle_add_locked(const void *object, enum cu_kind kind);
void cu_handle_remove_locked(const void *object);
bool cu_handle_is_locked(const void *object, enum cu_kind kind);
/* Those that are alive, one after the other; *@at is 0 for the first. NULL: no more. None is added meanwhile. */
const void *cu_handle_next_locked(enum cu_kind kind, uint32_t *at);

/* ---- ctx.c ---- */
CUresult cu_ctx_current_locked(struct CUctx_st **ret_ctx);
CUresult cu_ctx_set_locked(struct CUctx_st *ctx); /* NULL: none */
CUresult cu_ctx_push_locked(struct CUctx_st *ctx);
CUresult cu_ctx_pop_locked(struct CUctx_st **ret_ctx);
CUresult cu_ctx_new_locked(struct cu_device *dev, unsigned int flags, struct CUctx_st **ret_ctx);
/* Waits for its streams; gives the lock up meanwhile. */
void cu_ctx_end_locked(struct CUctx_st *ctx);
CUresult cu_device_get(CUdevice ordinal, struct cu_device **ret_dev);
uint32_t cu_device_ordinal(const struct cu_device *dev);

/* ---- stream.c ---- */
/* @handle may be 0, legacy or per-thread. */
CUresult cu_stream_get_locked(struct CUctx_st *ctx, CUstream handle, bool per_thread,
			      struct CUstream_st **ret_stream);
CUresult cu_stream_new_locked(struct CUctx_st *ctx, unsigned int flags, int priority,
			      struct CUstream_st **ret_stream);
void cu_stream_end_locked(struct CUstream_st *stream);
/* Before something is put into it: what it has to wait for is put first. */
CUresult cu_stream_begin_locked(struct CUstream_st *stream);
/* The result of a submission that gave @ticket. */
CUresult cu_stream_put_locked(struct CUstream_st *stream, int status, gantry_ticket ticket);
/* Waits for all that was put, with the lock given up; then what failed since it was asked last. */
CUresult cu_stream_wait_locked(struct CUstream_st *stream);
CUresult cu_stream_query_locked(struct CUstream_st *stream);
CUresult cu_ctx_wait_locked(struct CUctx_st *ctx);
/* Nothing that was put into its streams is under way. */
bool cu_ctx_is_idle_locked(const struct CUctx_st *ctx);
/* Waits for one ticket with the lock given up. */
CUresult cu_ticket_wait_locked(gantry_ticket ticket);
/*
 * Waits until the stream's ring has room for what a call puts, with the lock given up: what ends a task there may be another thread's call. So for a graph
 * that another thread puts into it. INVALID_HANDLE: the stream is gone since.
 */
CUresult cu_stream_room_locked(struct CUstream_st *stream);
/* It would not wait. */
bool cu_stream_has_room_locked(const struct CUstream_st *stream);
/* What this thread puts until it lets go lies in the stream without anything of other threads' between, though it waits for room. */
void cu_stream_hold_locked(struct CUstream_st *stream);
void cu_stream_let_go_locked(struct CUstream_st *stream);

/* ---- event.c ---- */
struct cu_cell *cu_cell_take_locked(void);
/* What may still write to it has @ticket. */
void cu_cell_put_locked(struct cu_cell *cell, gantry_ticket ticket);
/* In the session's heap. */
uint64_t cu_cell_off(const struct cu_cell *cell);
uint64_t *cu_cell_word(const struct cu_cell *cell);
CUresult cu_event_record_locked(struct CUevent_st *event, struct CUstream_st *stream);
/* What is put into @stream from now on comes after what @event was recorded behind. */
CUresult cu_event_await_locked(struct CUevent_st *event, struct CUstream_st *stream);
void cu_event_end_locked(struct CUevent_st *event);
/* All of a context. */
void cu_event_end_all_locked(const struct CUctx_st *ctx);

/* ---- bell.c ---- */
struct cu_bell {
	gantry_queue queue; /* nothing in it ever waits */
	bool runs;
};
/* Its queue and the thread that runs @fn for good, with no signal, where they are not there yet. The caller keeps others from it. */
bool cu_bell_start(struct cu_bell *bell, void *(*fn)(void *));
/*
 * The stream that waits for @cell to be 1 goes on. False: there was no room for the word of it; @again then, for the cell may be somebody
 * else's by now, whose stream is to wait.
 */
bool cu_bell_ring(const struct cu_bell *bell, const struct cu_cell *cell, bool again);

/* ---- hostfn.c ---- */
CUresult cu_hostfn_put_locked(struct CUstream_st *stream, CUhostFn fn, void *data,
			      CUstreamCallback callback);

/* ---- memory.c ---- */
/* Pinned memory that no device reaches, for the session is behind a stream: copies treat it as pageable. */
static inline bool cu_alloc_is_far(const struct cu_alloc *alloc)
{
	return alloc->host && !alloc->buffer;
}
/* The allocation around @address; NULL: none. */
struct cu_alloc *cu_alloc_find_locked(CUdeviceptr address);
/* The same, if all @bytes lie in it; *ret_off from the beginning of its buffer. */
struct cu_alloc *cu_alloc_span_locked(CUdeviceptr address, size_t bytes, uint64_t *ret_off);
CUresult cu_alloc_add_locked(const struct cu_alloc *alloc);
/* Program and device may use it at one address: allocated so, or a variable. */
static inline bool cu_alloc_is_managed(const struct cu_alloc *alloc)
{
	return alloc->kind == CU_MEMORY_MANAGED ||
	       (alloc->kind == CU_MEMORY_VARIABLE && alloc->host);
}
/* Counted in @pool, or in none (NULL). */
CUresult cu_alloc_device_locked(struct CUctx_st *ctx, size_t bytes, struct CUmemPoolHandle_st *pool,
				CUdeviceptr *ret_address);
CUresult cu_alloc_host_locked(struct CUctx_st *ctx, size_t bytes, enum cu_memory kind,
			      unsigned int flags, void **ret_host);
/* Waits for what its context has under way. */
CUresult cu_free_device_locked(CUdeviceptr address);
/* Free when what @stream has by now has finished, which nobody waits for. */
CUresult cu_free_behind_locked(CUdeviceptr address, const struct CUstream_st *stream);
/* What was freed so, and whose turn has come. */
void cu_alloc_reap_locked(void);
CUresult cu_free_host_locked(void *host);
/* What a context had. */
void cu_free_all_locked(const struct CUctx_st *ctx);
void cu_alloc_forget_locked(CUdeviceptr address);

/* Any of it is memory of CUDA's. */
bool cu_alloc_touches_locked(CUdeviceptr address, size_t bytes);

/* ---- ipc.c and ipc_event.c ---- */
/* Made by another process. */
bool cu_event_is_anothers(const struct CUevent_st *event);
/* Other processes can have it. */
bool cu_ipc_is_capable(const struct cu_alloc *alloc);
/* What a context had of other processes; nothing of its is under way. */
void cu_ipc_close_all_locked(const struct CUctx_st *ctx);
/* An allocation that shares its buffer with others was freed: handles of it open nothing from now on. */
void cu_ipc_freed_locked(uint64_t id);

/* ---- hostmem.c ---- */
struct cu_registered {
	struct cu_registered *next;
	struct CUctx_st *ctx;
	CUdeviceptr host; /* the program's address */
	size_t bytes;
	unsigned int flags;
	CUdeviceptr shared;  /* pages that are pinned memory now */
	size_t shared_bytes; /* 0: none */
	CUdeviceptr heap;    /* what pinned memory it is */
	CUdeviceptr device;  /* the device's address of @shared */
};
/* What the program has registered around @address; NULL: nothing. */
struct cu_registered *cu_registered_find_locked(CUdeviceptr address);
CUresult cu_register_locked(struct CUctx_st *ctx, void *host, size_t bytes, unsigned int flags);
CUresult cu_unregister_locked(void *host);
/* What a context had. */
void cu_unregister_all_locked(const struct CUctx_st *ctx);
CUresult cu_registered_device_locked(const struct cu_registered *r, CUdeviceptr host,
				     CUdeviceptr *ret_address);
/* How much from @address on is of one sort: pages that are shared, or what is beside them. */
size_t cu_registered_part_locked(CUdeviceptr address, size_t bytes);

/* ---- pool.c ---- */
#define CU_POOL_MAX (256u << 10) /* larger ones have a buffer of their own */
CUresult cu_pool_take_locked(struct CUctx_st *ctx, size_t bytes, struct cu_alloc *ret_alloc);
/* Nothing uses it any more. */
void cu_pool_put_locked(const struct cu_alloc *alloc);
void cu_pool_forget_locked(const struct CUctx_st *ctx);
CUresult cu_buffer_new_locked(const struct cu_device *dev, size_t bytes, unsigned int flags,
			      gantry_buffer *ret_buffer, CUdeviceptr *ret_address);

/* ---- api_pool.c ---- */
/* The pool that memory of @dev is allocated from where none is named. */
CUresult cu_mempool_of_locked(struct cu_device *dev, struct CUmemPoolHandle_st **ret_pool);
const struct cu_device *cu_mempool_device(const struct CUmemPoolHandle_st *pool);
CUresult cu_mempool_take_locked(struct CUmemPoolHandle_st *pool, size_t bytes);
void cu_mempool_put_locked(struct CUmemPoolHandle_st *pool, size_t bytes);

/* ---- output.c; without the lock where nothing else is said ---- */
/* Before @image is loaded: what its kernels print is to come here. */
void cu_output_want(const void *image, size_t bytes);
/* Under the lock or without: this thread's call is one at which CUDA shows what kernels have printed. */
void cu_output_due(void);
/* The end of a call. */
void cu_output_leave(void);
/* At once. */
void cu_output_show(void);
/* For a task, however long it takes; shows what is printed meanwhile, and makes it due. As gantry_wait(). */
int cu_output_wait(gantry_ticket ticket);
/* What ended the device's context; an illegal address where nobody knows. Any time. */
CUresult cu_output_fault(void);

/* ---- stage.c ---- */
struct cu_piece {
	gantry_buffer buffer; /* 0: bytes of the heap, which are sent */
	uint64_t off;
	uint8_t *host;
	size_t bytes;
	bool is_taken;
	gantry_ticket ticket; /* what uses it */
};
/* A piece of pinned memory for a copy, which is the caller's until it is put; its ticket says what uses it then. */
CUresult cu_stage_take_locked(struct cu_piece **ret_piece);
/* NULL: none is free just now. Never waits. */
struct cu_piece *cu_stage_try_locked(void);
void cu_stage_put_locked(struct cu_piece *piece);
/* Puts a copy between @off of @buffer and the first @bytes of the piece (@is_write: from it). As gantry_submit_copy(). */
int cu_stage_submit(const struct CUstream_st *stream, const struct cu_piece *piece, bool is_write,
		    gantry_buffer buffer, uint64_t off, size_t bytes, gantry_ticket *ret_ticket);

/* ---- copy.c ---- */
struct cu_copy {
	CUdeviceptr dst; /* or an address of the program's */
	CUdeviceptr src;
	size_t bytes;
	bool dst_may_be_pageable; /* else it has to be memory of CUDA's */
	bool src_may_be_pageable;
	bool waits; /* for the end, where CUDA does */
	/* An end that is an array, row after row; its address counts from the first byte. NULL: it is none. */
	struct CUarray_st *dst_array;
	struct CUarray_st *src_array;
};
CUresult cu_copy_locked(struct CUstream_st *stream, const struct cu_copy *copy);
CUresult cu_fill_locked(struct CUstream_st *stream, CUdeviceptr dst, uint64_t pattern,
			unsigned int width, size_t count);

/* ---- box.c ---- */
CUresult cu_copy_box_locked(struct CUstream_st *stream, const CUDA_MEMCPY3D *what, bool waits);
/* Pitch and height count where there are several rows. */
CUresult cu_fill_rows_locked(struct CUstream_st *stream, const CUDA_MEMSET_NODE_PARAMS *rows);

/* ---- attr.c ---- */
/* INVALID_VALUE: no such hint, or not its value. */
CUresult cu_hints_set(struct cu_hints *hints, const struct cu_device *dev,
		      CUlaunchAttributeID which, const CUlaunchAttributeValue *value);
CUresult cu_hints_get(const struct cu_hints *hints, CUlaunchAttributeID which,
		      CUlaunchAttributeValue *ret_value);

/* ---- image.c ---- */
/*
 * How long an image is of one of the driver's formats, of which all is there; 0: it is none. @image becomes what lies in the wrapper that nvcc leaves
 * around it. @file_bytes: of what was read from a file, with a NUL behind it; 0: its own headers say how long it is.
 */
uint64_t cu_image_find(const void **image, uint64_t file_bytes);
/* Some part of a fatbin is, or makes no sense. */
bool cu_image_is_compressed(const void *image, size_t bytes);

/* ---- module.c ---- */
/* @file_bytes: as above. @ctx: as the module has it. Without the lock. */
CUresult cu_module_load(const void *image, uint64_t file_bytes, struct CUctx_st *ctx,
			struct CUmod_st **ret_module);
void cu_module_end_locked(struct CUmod_st *module);
CUresult cu_func_get_locked(struct CUctx_st *ctx, struct CUmod_st *module, const char *name,
			    struct CUfunc_st **ret_func);
CUresult cu_variable_get_locked(struct CUctx_st *ctx, struct CUmod_st *module, const char *name,
				struct cu_variable **ret_variable);
/* Kernels of it may: not where another device has a managed variable of it. */
bool cu_module_runs_on(const struct CUmod_st *module, const struct cu_device *dev);
CUresult cu_func_ask(const struct cu_device *dev, const struct CUfunc_st *func,
		     enum gantry_ask what, uint64_t number0, uint64_t number1, void *ret_answer,
		     size_t bytes);

/* ---- launch.c ---- */
struct cu_launch {
	struct CUfunc_st *func;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_bytes;
	uint32_t groups; /* of GANTRY_TASK_GROUPS */
	void **params;
	void **extra;
};
CUresult cu_launch_locked(struct CUstream_st *stream, const struct cu_launch *launch);

#endif
