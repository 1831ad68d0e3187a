/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the hip backend: a device, its streams and memory, and which file does what.
 *
 * driver.c loads AMD's runtime; container.c (with pack.c) looks at code; device.c opens devices; image.c takes modules and
 * guests' code; window.c has memory behind descriptors, mem.c host memory and what commands use of either; stream.c takes
 * commands and tells what has finished; work.c and body.c hand them on, rows.c many launches at once (devices/rows.h); time.c and marks.c have events (devices/devtime.h, devices/marks.h).
 *
 * Memory is of two kinds, as configured. With ROCm 6 and newer, memory of the device lies behind descriptors, in
 * *windows*, and outlives the process. Where the runtime has no such (*staged*) sessions' memory is the host's, and a command gets device
 * memory of its own: its ranges are copied there before it and those that it writes are copied back after it, in the same
 * stream. Ranges of a session's heap, which is host memory everywhere, are used as they are where the device reaches
 * them, else staged too. What commands get so is the stream's: the order of the stream lets the next command have it.
 *
 * How a completion gets here: behind each batch of commands the GPU writes a word to pinned memory, which poll() reads; devices/watch.h wakes a
 * device thread that sleeps meanwhile. A batch that ends in a copy behind others has an event instead (devices/marks.h). Where
 * the runtime cannot write (hipStreamWriteValue32() is optional, and tried before it is relied on) it is a callback behind each batch, which the runtime calls on a thread of its own; it writes the word and wakes the device
 * thread. A batch is what was submitted until flush(), or while two before it are under way: a stream stands still until a
 * callback has returned, so there should not be one behind each command. hipStreamAddCallback() is
 * what all runtimes have: hipLaunchHostFunc() is declared by ROCm 5.2 and not in its library.
 *
 * A bad access ends the process: the runtime aborts it. So each session has a worker of its own (GANTRY_CAP_ABORTS).
 *
 * Threads: what is not marked otherwise belongs to the device thread.
 */
#ifndef GANTRY_DEVICES_HIP_BACKEND_H
#define GANTRY_DEVICES_HIP_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "devices/device.h"
#include "devices/devtime.h"
#include "devices/finished.h"
#include "devices/gather.h"
#include "devices/hip/container.h"
#include "devices/hip/driver.h"
#include "devices/hip/module.h"
#include "devices/hostmem.h"
#include "devices/marks.h"
#include "devices/rows.h"
#include "devices/watch.h"

/* Commands a stream holds. A power of two. */
#define GANTRY_HIP_DEPTH 512u
/* Commands of one stream whose end is told together, at most. */
#define GANTRY_HIP_BATCH GANTRY_ROWS_MAX
/* Ranges and scratch buffers of one command. */
#define GANTRY_HIP_PLACES (GANTRY_MAX_CMD_ARGS + 32u)
/* Arenas that were outgrown by commands in flight. */
#define GANTRY_HIP_RETIRED 16u
/* Patterns of 8 bytes that one command can bring. */
#define GANTRY_HIP_PATTERNS 15u

struct gantry_kernel {
	struct gantry_kernel *next; /* of the image */
	struct gantry_image *image;
	const struct gantry_signature *sig;
	gantry_body *body;		      /* NULL: @function is launched as it is */
	struct gantry_hip_function *function; /* NULL with a body */
	uint32_t max_threads;
	uint32_t mean_ns; /* that it took; 0: it has never ended */
};

struct gantry_image {
	struct gantry_list link; /* gantry_dev.images */
	struct gantry_dev *dev;
	void *library; /* of an installed module; else NULL */
	void *code;    /* owned: the runtime may read it as long as the module is loaded */
	struct gantry_hip_object object; /* in @code */
	struct gantry_hip_module *module;
	uint32_t nfunctions;
	struct gantry_hip_function **functions; /* of an installed module's list */
	uint64_t rounds_per_ms;			/* gantry_opencl_calls' */
	struct gantry_kernel *kernels;		/* owned */
};

struct gantry_mem {
	struct gantry_hostmem host; /* first; of a window only link and len */
	struct gantry_dev *dev;
	char *address; /* on the device; NULL: it does not reach this memory */
	bool is_window;
	bool pinned;
	struct gantry_list maps; /* window.c's */
};

/* A range as a command uses it. */
struct gantry_hip_place {
	struct gantry_opencl_buffer buffer; /* what host functions see; first */
	char *address;
	unsigned char *host; /* where a staged place is copied back to; NULL: nowhere */
};

/* Pinned host memory of a slot. */
struct gantry_hip_cell {
	volatile int32_t verdict[2]; /* enum gantry_opencl_verdict */
	uint64_t patterns[GANTRY_HIP_PATTERNS];
} __attribute__((aligned(128)));

/* Pinned host memory of a stream, apart from others'. */
struct gantry_hip_word {
	uint32_t word; /* commands of the stream that have finished; free-running */
	uint32_t reserved[15];
};

struct gantry_hip_slot {
	struct gantry_done done; /* the tag is set from the start, the rest when it has finished */
	struct gantry_stream *stream;
	struct gantry_kernel *kernel; /* of a launch */
	uint32_t estimate_ns;	      /* 0: nothing of it is on the device */
	bool judged;		      /* its cell counts */
	bool closed;		      /* a batch ends with it */
	bool unsent;		      /* it never got to the runtime, as something had failed */
	uint32_t npatterns;
	/* Of the last of a batch, where a callback tells its end: how many commands it has, and which is the next. */
	uint32_t nbatch;
	uint32_t end;
};

struct gantry_stream {
	struct gantry_list link;   /* gantry_dev.streams */
	struct gantry_list active; /* gantry_dev.active, while commands are in flight */
	struct gantry_dev *dev;
	struct gantry_hip_stream *native;
	/* Free-running: accepted; of closed batches; of those that have finished; told by poll(). */
	uint32_t submitted;
	uint32_t closed;
	uint32_t closed_before; /* @closed as it was one batch ago */
	uint32_t finished;
	uint32_t told;
	uint32_t njudged;	  /* in flight, with a verdict */
	gantry_hip_result broken; /* nothing that is under way will be told; also a callback's */
	uint64_t asked_at;	  /* cycles when it was asked last, or had progress */
	uint32_t place;
	uint32_t *word;	    /* how many commands have ended */
	char *word_address; /* as the device has it */
	struct gantry_marks marks;
	struct gantry_gather gather;
	struct gantry_rows *rows; /* of launches that use memory in place; made for the first */
	struct gantry_devtime_stream time;

	/* Of the command that is being enqueued. */
	struct gantry_env env;
	struct gantry_opencl_calls calls;
	struct gantry_image *image;
	struct gantry_hip_slot *slot;
	uint32_t nplaces;
	struct gantry_hip_place places[GANTRY_HIP_PLACES];

	/* Device memory for staged ranges and scratch, used anew by each command. */
	char *arena;
	uint64_t arena_len;
	uint64_t arena_used;
	uint64_t scratch_used; /* by this command, in all arenas */
	uint32_t nretired;
	char *retired[GANTRY_HIP_RETIRED];

	struct gantry_hip_slot slots[GANTRY_HIP_DEPTH];
	struct gantry_hip_cell *cells; /* one for each slot */
	char *cells_address;	       /* as the device has them */
};

struct gantry_dev {
	/* Set by open(), constant after. */
	const struct gantry_device_host *host;
	const struct gantry_hip_driver *hip;
	int device;
	char arch[64]; /* "gfx90a:sramecc+:xnack-" */
	uint64_t mem_bytes;
	uint64_t scratch_bytes; /* limit of one command */
	uint64_t slab_align;
	uint32_t units;
	uint32_t max_threads; /* of a block */
	uint32_t max_shared;  /* bytes */
	bool windows;
	bool graphs;		       /* rows of launches go as graphs */
	struct gantry_hip_stream *own; /* for clearing */

	struct gantry_list streams;
	struct gantry_list mems;
	struct gantry_list images;

	struct gantry_list active;
	struct gantry_finished finished; /* of callbacks; unused with words */
	struct gantry_hip_word *words;	 /* pinned; by place */
	char *words_address;		 /* as the device has them */
	bool writes;			 /* the GPU writes them; else callbacks do */
	struct gantry_devtime time;
	struct gantry_watch watch; /* runs where the GPU writes words */
	uint32_t lost;		   /* nonzero: a command failed, and all that follow will */
};

/* image.c */
int gantry_hip_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			  size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err);
void gantry_hip_image_unload(struct gantry_image *image);
int gantry_hip_kernel_get(struct gantry_image *image, const char *symbol,
			  const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			  struct gantry_err *err);

/* mem.c */
int gantry_hip_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			  struct gantry_mem **ret_mem, struct gantry_err *err);
int gantry_hip_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			struct gantry_mem **ret_mem, struct gantry_err *err);
void gantry_hip_mem_free(struct gantry_mem *mem);
/* Of @range on the device; NULL: it is not reached. */
char *gantry_hip_address(const struct gantry_range *range);

/*
 * Places of the stream's present command; all -errno. take: of a range, for a use of @mode. scratch: device memory of
 * @bytes. end: copies back what has to be (@ok: what was enqueued counts), and lets go of all.
 */
int gantry_hip_place_take(struct gantry_stream *stream, const struct gantry_range *range,
			  uint32_t mode, struct gantry_hip_place **ret_place);
int gantry_hip_place_scratch(struct gantry_stream *stream, uint64_t bytes,
			     struct gantry_hip_place **ret_place);
int gantry_hip_places_end(struct gantry_stream *stream, bool ok);
/* Device memory that no command uses any more; all of it at the stream's end. */
void gantry_hip_arena_trim(struct gantry_stream *stream);
void gantry_hip_arena_end(struct gantry_stream *stream);

/* window.c: as gantry_backend has them. */
int gantry_hip_slab_align(struct gantry_dev *dev, struct gantry_err *err);
int gantry_hip_slab_create(struct gantry_dev *dev, uint64_t len, int *ret_fd,
			   struct gantry_err *err);
int gantry_hip_slab_scrub(struct gantry_dev *dev, int fd, uint64_t len, struct gantry_err *err);
int gantry_hip_window_open(struct gantry_dev *dev, uint64_t address, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err);
int gantry_hip_window_map(struct gantry_mem *window, uint64_t off, uint64_t len, int fd,
			  struct gantry_err *err);
void gantry_hip_window_unmap(struct gantry_mem *window, uint64_t off, uint64_t len);
void gantry_hip_window_close(struct gantry_mem *window);

/* The slot of position @position. */
static inline struct gantry_hip_slot *gantry_hip_slot_at(struct gantry_stream *stream,
							 uint32_t position)
{
	return &stream->slots[position % GANTRY_HIP_DEPTH];
}

/* stream.c */
/* What all streams share; before the first of them. */
int gantry_hip_streams_begin(struct gantry_dev *dev, struct gantry_err *err);
int gantry_hip_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			     struct gantry_stream **ret_stream, struct gantry_err *err);
void gantry_hip_stream_destroy(struct gantry_stream *stream);
int gantry_hip_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd);
void gantry_hip_flush(struct gantry_stream *stream);
void gantry_hip_boundary(struct gantry_stream *stream);
unsigned gantry_hip_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n);
/* Waits for what is in flight, and for the runtime's threads to be out of our functions. */
void gantry_hip_streams_end(struct gantry_dev *dev);
/* 0 or -errno of a call that enqueues. */
int gantry_hip_outcome(gantry_hip_result result);

/* time.c */
extern const struct gantry_devtime_driver gantry_hip_devtime;

/* marks.c */
extern const struct gantry_marks_driver gantry_hip_marks;

/* rows.c */
/* Keeps @launch for the open batch, and returns 1; 0: it must go at once, as what it uses has to be staged; or -errno. */
int gantry_hip_keep(struct gantry_stream *stream, const struct gantry_cmd_launch *launch);

/* work.c: the three kinds of command. */
/* -EINVAL: the device, or the function on it, cannot do that. */
int gantry_hip_check_shape(const struct gantry_stream *stream,
			   const struct gantry_cmd_launch *launch);
int gantry_hip_launch(struct gantry_stream *stream, const struct gantry_cmd_launch *launch);
int gantry_hip_copy(struct gantry_stream *stream, const struct gantry_cmd_copy *copy);
int gantry_hip_fill(struct gantry_stream *stream, const struct gantry_cmd_fill *fill);
/* On the device; the bytes may overlap. */
int gantry_hip_move(struct gantry_stream *stream, char *dst, const char *src, uint64_t len);
int gantry_hip_set(struct gantry_stream *stream, char *dst, uint64_t len, uint64_t pattern,
		   uint32_t pattern_bytes);

/* body.c: host functions of installed modules. */
void gantry_hip_body_init(struct gantry_stream *stream);
int gantry_hip_body_run(struct gantry_stream *stream, const struct gantry_cmd_launch *launch);

#endif
