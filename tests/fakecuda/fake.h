/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake of NVIDIA's public driver API over host memory, for tests on machines without a GPU. It is made from the
 * documentation in cuda.h and knows nothing else. It prints nothing and checks arguments as far as tests need.
 *
 * State is one structure behind one lock; commands run outside it, on a thread per stream that starts with the
 * first command. What is left ends with its context.
 *
 * Environment, read by cuInit() while no context is alive:
 *   FAKECUDA_DEVICES=N         devices, 1 if unset; 0 makes cuInit() say CUDA_ERROR_NO_DEVICE
 *   FAKECUDA_MEM=BYTES         memory of a device, counted per process; 4 GiB if unset
 *   FAKECUDA_DIRTY=1           new memory holds 0x5a instead of zeroes
 *   FAKECUDA_SWITCH_US=N       so long passes before a stream that was idle begins: another process has the device
 *   FAKECUDA_FAIL=CALL:N:CODE[,...]   the N-th call of CALL (cuMemCreate) answers CODE; N+ also all later ones
 *   FAKECUDA_PEERS=0           no device reaches another's memory
 *   FAKECUDA_LOST=PATH         once this file is there, its devices ("0 2", or empty for all) are off the bus
 *   FAKECUDA_MPS_GROUP=PATH    processes with the same file share faults, as clients of one MPS server do; "pipes": a
 *                              file in CUDA_MPS_PIPE_DIRECTORY, where there is such a folder
 *   FAKECUDA_NVML=PATH         lines KEY=VALUE that NVML answers from, read at each call: see nvml.c
 *
 * A module is loaded once no kernel runs in the context, as NVIDIA's driver does it (docs/results/2026-11-24-h200.md).
 *
 * Kernels named fault, trap, assert and endless are in every image: three make their context fail with 700,
 * 719 and 710, the fourth never ends.
 */
#ifndef GANTRY_TESTS_FAKECUDA_FAKE_H
#define GANTRY_TESTS_FAKECUDA_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* What the header declares is what these libraries export; the rest of the files is built hidden. */
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "tests/fakecuda/kernel.h"

#define FAKE_MAX_DEVICES 16
#define FAKE_GRANULARITY (2ull << 20)
#define FAKE_MAX_PARAMS	 64
#define FAKE_MAX_NODES	 256
#define FAKE_MAX_SOS	 8
#define FAKE_ARCH_MAJOR	 9
#define FAKE_ARCH_MINOR	 0

enum fake_range_kind {
	FAKE_ALLOC = 1,	   /* cuMemAlloc */
	FAKE_HOST = 2,	   /* cuMemHostAlloc */
	FAKE_REGISTER = 3, /* cuMemHostRegister */
	FAKE_RESERVE = 4,  /* cuMemAddressReserve */
	FAKE_MAP = 5,	   /* cuMemMap, inside a reservation */
};

struct fake_slab;

struct fake_range {
	struct fake_range *next;
	enum fake_range_kind kind;
	uint64_t base;
	uint64_t len;
	CUdevice ordinal;
	struct CUctx_st *ctx;	/* NULL: of the process */
	struct fake_slab *slab; /* FAKE_MAP */
	uint32_t access;	/* FAKE_MAP: bits of the devices that cuMemSetAccess has named */
};

/* Physical memory: a descriptor and who refers to it. */
struct fake_slab {
	int fd;
	uint64_t len;
	CUdevice ordinal;
	unsigned int nrefs; /* handles and mappings */
	bool counted;	    /* made here, so charged here */
};

enum fake_cmd_kind {
	FAKE_COPY,
	FAKE_SET,
	FAKE_LAUNCH,
	FAKE_WRITE,
	FAKE_AWAIT,
	FAKE_RECORD,
	FAKE_AWAIT_EVENT,
	FAKE_CALL,
	FAKE_FREE,
	FAKE_BOX,
	FAKE_ASSIGN,
	FAKE_BRANCH,
};

/* What kernels set through its number. */
struct fake_condition {
	struct fake_condition *next; /* of all */
	const struct CUgraph_st *graph;
	uint64_t number;
	uint32_t first;
	bool assigns; /* @first at each launch */
	bool has_node;
	uint32_t value; /* atomic */
};

struct fake_cmd {
	struct fake_cmd *next;
	enum fake_cmd_kind kind;
	union {
		struct {
			uint64_t dst, src, len;
			bool peer; /* each end is its own context's to reach */
		} copy;
		struct {
			uint64_t dst, count;
			uint32_t value, width;
		} set;
		struct {
			struct CUfunc_st *func;
			struct fakecuda_geometry geometry;
			uint32_t nparams;
			void *params[FAKE_MAX_PARAMS];
			unsigned char *bytes;
		} launch;
		struct {
			uint64_t at, value;
			uint32_t width, flags;
		} word;
		struct {
			struct CUevent_st *event;
			uint64_t seq;
		} event;
		struct {
			CUhostFn fn;
			void *data;
		} call;
		uint64_t free_at;
		CUDA_MEMCPY3D box;
		struct {
			uint64_t number;
			uint32_t value;
		} assign;
		struct {
			uint64_t number;
			CUgraphConditionalNodeType type;
			uint32_t n;
			struct fake_cmd **bodies; /* each a list; owned */
		} branch;
	};
};

struct CUstream_st {
	struct CUstream_st *next;
	struct CUctx_st *ctx;
	pthread_t thread;
	pthread_cond_t work;
	struct fake_cmd *head, **tail;
	unsigned int flags;
	int priority;
	bool started; /* there is a thread */
	bool busy;    /* a command is running */
	bool launch;  /* and is a kernel */
	bool closing; /* destroyed: the thread leaves when it has nothing to do */
	bool left;    /* the thread is about to end */
};

struct CUctx_st {
	struct CUctx_st *next; /* of cuCtxCreate() */
	CUdevice ordinal;
	unsigned int nrefs;
	unsigned int flags;
	CUresult sticky;
	bool ending;
	uint64_t group_faults; /* when it began */
	size_t limits[CU_LIMIT_MAX];
	char *fifo; /* what kernels have printed; NULL: nothing */
	size_t fifo_bytes;
	uint64_t printed; /* free-running */
	bool assert_told;
	struct CUstream_st *streams;
	struct CUstream_st *null_stream;
};

struct CUevent_st {
	unsigned int nrefs;
	unsigned int flags;
	uint64_t recorded; /* records asked for */
	uint64_t done;	   /* records done */
	uint64_t time_ns;
	struct CUctx_st *ctx;
};

struct CUgraphNode_st {
	struct fake_cmd *cmd;
	uint32_t nbodies;
	struct CUgraph_st **bodies; /* of a node with a condition, whose @cmd has none; owned */
};

/* Kernels, fills, copies and conditions in a row. Nodes end with their graph, and their handles are of no use from then on. */
struct CUgraph_st {
	unsigned int nrefs; /* itself, and what was made of it */
	bool destroyed;
	const struct CUgraph_st *of; /* a body: the graph that it is in */
	bool has_exec;		     /* of those with conditions: only one at a time */
	size_t nnodes;
	struct CUgraphNode_st nodes[FAKE_MAX_NODES];
};

struct CUgraphExec_st {
	struct CUgraph_st *graph;
	size_t nnodes;
	struct fake_cmd *cmds[FAKE_MAX_NODES];
};

struct CUmod_st {
	struct CUmod_st *next;
	void *sos[FAKE_MAX_SOS]; /* of what was linked, several */
	unsigned int nsos;
	struct CUfunc_st *funcs;
	struct CUctx_st *ctx;
};

struct CUfunc_st {
	struct CUfunc_st *next;
	struct CUmod_st *mod;
	fakecuda_kernel *fn;
	const struct fakecuda_param *params;
	uint32_t nparams;
	uint32_t param_bytes;
	int max_dynamic;  /* bytes of shared memory that a launch may ask for; 0: 48 KiB */
	int carveout;	  /* percent, and 1; 0: the driver decides */
	int non_portable; /* clusters of more than 8 are allowed */
	char name[128];
};

/* Elements row after row and plane after plane; with levels, each is an array of its own. */
struct CUarray_st {
	struct CUarray_st *next;
	struct CUctx_st *ctx;
	struct CUmipmappedArray_st *of; /* a level: ended with it */
	CUDA_ARRAY3D_DESCRIPTOR desc;	/* dimensions that are not there are 1 */
	uint64_t element_bytes;
	uint64_t len;
	unsigned char *bytes;
};

struct CUmipmappedArray_st {
	unsigned int nlevels;
	struct CUarray_st *levels[32];
};

struct fake_texture {
	struct fake_texture *next;
	struct CUctx_st *ctx;
	unsigned long long number;
	bool is_surface;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC sampling;
};

struct fake {
	pthread_mutex_t lock;
	bool cut; /* the server ends our work: kernels stop, and what is behind them goes on */
	pthread_cond_t changed; /* an event, a stream or a context */
	bool inited;
	int ndevices;
	bool peers;
	uint64_t mem_bytes;
	uint64_t used[FAKE_MAX_DEVICES];
	bool dirty;
	uint64_t switch_us;
	char lost_path[256];
	struct CUctx_st primary[FAKE_MAX_DEVICES];
	struct CUctx_st *created;
	struct fake_range *ranges;
	struct CUmod_st *modules;
	struct CUarray_st *arrays;
	struct fake_texture *textures;
	struct fake_condition *conditions;
	uint64_t next_condition;
	unsigned long long next_texture;
};

extern struct fake fake;

uint64_t fake_now_ns(void);

/* What every call does first; @call is __func__. 0, or what the call must return. */
CUresult fake_enter(const char *call);
/* The same, and a context is current. */
CUresult fake_enter_ctx(const char *call, struct CUctx_st **ret_ctx);
/* NULL: none. */
struct CUctx_st *fake_ctx_current(void);
bool fake_is_lost(CUdevice ordinal);
/* With the lock: @ctx and, in a group, everybody's fail from now on. */
void fake_fail_locked(struct CUctx_st *ctx, CUresult code);
/* With the lock: everything of @ctx ends; gives the lock up in between. */
void fake_ctx_end_locked(struct CUctx_st *ctx);

/* fail.c */
void fake_fail_load(const char *text);
CUresult fake_fail_ask(const char *call);

/* group.c: of processes that share faults. */
int fake_group_join(const char *path);
void fake_group_leave(void);
bool fake_in_group(void);
/* Faults so far; @ret_code is the last one's. */
uint64_t fake_group_faults(CUresult *ret_code);
void fake_group_tell(CUresult code);
/* A kernel begins (1) or ends (-1). */
void fake_group_busy(int delta);

/* memory.c; with the lock. */
struct fake_range *fake_range_add(enum fake_range_kind kind, uint64_t base, uint64_t len,
				  struct CUctx_st *ctx);
struct fake_range *fake_range_at(enum fake_range_kind kind, uint64_t base);
/* What is asked of its beginning from now on is that it is managed. */
void fake_managed_add(uint64_t addr);
struct fake_range *fake_range_around(enum fake_range_kind kind, uint64_t addr);
void fake_range_drop(struct fake_range *range);
/* No part lies in a reservation without memory behind it that one of @devices (bits) may use. */
bool fake_reaches(uint64_t addr, uint64_t len, uint32_t devices);
void fake_memory_end(struct CUctx_st *ctx);
CUresult fake_charge(CUdevice ordinal, uint64_t len);

/* texture.c */
CUresult fake_run_box(const CUDA_MEMCPY3D *box);
unsigned int fake_texture_read(unsigned long long texture, int64_t x, int64_t y, int64_t z,
			       void *ret_element);
unsigned int fake_surface_write(unsigned long long surface, int64_t x, int64_t y, int64_t z,
				const void *element);
/* With the lock: what @ctx has. */
void fake_textures_end(struct CUctx_st *ctx);

/* stream.c; with the lock where it says so. */
/* NULL means the context's own stream. */
struct CUstream_st *fake_stream_locked(struct CUctx_st *ctx, CUstream stream);
/* Takes @cmd in any case. */
CUresult fake_put_locked(struct CUstream_st *stream, struct fake_cmd *cmd);
CUresult fake_put(CUstream stream, struct CUctx_st *ctx, struct fake_cmd *cmd);
struct fake_cmd *fake_cmd_new(enum fake_cmd_kind kind);
struct fake_cmd *fake_cmd_copy(const struct fake_cmd *cmd);
void fake_cmd_free(struct fake_cmd *cmd);
void fake_cmds_free(struct fake_cmd *cmds); /* a list */
/* Waits until @stream has nothing left; the context's error. */
CUresult fake_drain_locked(struct CUstream_st *stream);
void fake_streams_end_locked(struct CUctx_st *ctx);
/* Whether a kernel runs in one of them, or is next. */
bool fake_launches_locked(const struct CUctx_st *ctx);
void fake_event_unref_locked(struct CUevent_st *event);

/* print.c */
void fake_print(void *cookie, const char *text); /* a stream's kernel; without the lock */
void fake_print_flush(void);			 /* of the current context; without the lock */
void fake_print_assert_locked(struct CUctx_st *ctx);
void fake_print_flush_locked(struct CUctx_st *ctx);

/* graph.c; without the lock. What kernels set; nonzero: there is no such condition. */
int fake_condition_set(uint64_t number, uint32_t value);
uint32_t fake_condition_get(uint64_t number);

/* run.c */
CUresult fake_run(struct CUstream_st *stream, struct fake_cmd *cmd);

/* module.c; with the lock. */
void fake_modules_end(struct CUctx_st *ctx);
/* Finds the line of an image in @bytes, the first or one that follows; 0 or the CUresult. */
CUresult fake_image_read(const void *bytes, unsigned int index, char *ret_so, size_t so_bytes);
/* Of any of its objects. */
void *fake_module_symbol(const struct CUmod_st *mod, const char *name);
CUresult fake_params_copy(const struct CUfunc_st *func, void **params, void **extra,
			  struct fake_cmd *cmd);
/* A launch that is no stream's yet. */
CUresult fake_launch_new(CUfunction func, const struct fakecuda_geometry *geometry, void **params,
			 void **extra, struct fake_cmd **ret_cmd);

#endif
