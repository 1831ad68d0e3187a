/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the cuda backend: a device, its streams and memory, and which file does what.
 *
 * driver.c loads the driver; device.c opens devices; health.c asks NVML; image.c takes modules and
 * compile.c makes them from source; mem.c has plain memory, window.c slabs and windows, texture.c arrays and what is seen
 * through them; graph.c graphs with conditions; stream.c
 * takes commands and tells what has finished; launch.c, body.c and move.c enqueue them; batch.c has the
 * calls for rows of launches (devices/rows.h); aside.c runs host functions that take long; time.c has the events for device time (devices/devtime.h);
 * fault.c says what an error means; output.c has the driver write what kernels printed.
 *
 * How a completion gets here: after a batch of commands flush() enqueues one write of the stream's count
 * into its word, host memory that the device writes to. poll() reads words and calls no driver.
 *
 * Threads: what is not marked otherwise belongs to the device thread.
 */
#ifndef GANTRY_DEVICES_CUDA_BACKEND_H
#define GANTRY_DEVICES_CUDA_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "devices/cuda/driver.h"
#include "devices/cuda/libraries.h"
#include "devices/cuda/module.h"
#include "devices/device.h"
#include "devices/devtime.h"
#include "devices/gather.h"
#include "devices/marks.h"
#include "devices/rows.h"
#include "devices/watch.h"

/* Commands a stream holds: more than the core keeps in flight of one queue. A power of two. */
#define GANTRY_CUDA_DEPTH 512u
/* Commands after which a stream is flushed without being asked: a write costs a quarter of a launch. */
#define GANTRY_CUDA_BATCH GANTRY_ROWS_MAX

struct gantry_cuda_nvml;

/* Host memory that the device writes to; one for each place that a stream can have. */
struct gantry_cuda_cell {
	/* Commands of the stream that have finished, written by the device; free-running. */
	uint32_t word;
	uint32_t reserved[15];
	struct gantry_cuda_verdict verdicts[GANTRY_CUDA_DEPTH]; /* by slot */
};

struct gantry_kernel {
	struct gantry_kernel *next; /* of the image */
	struct gantry_image *image;
	const struct gantry_signature *sig;
	gantry_body *body;		   /* NULL: @function is launched as it is */
	CUfunction function;		   /* NULL with a body */
	struct gantry_reply_param *layout; /* of a raw kernel's parameters; else NULL */
	uint32_t nparams;
	uint32_t params_bytes;
	uint32_t max_threads;
	uint32_t static_shared; /* bytes */
	uint32_t dyn_shared;	/* bytes that the function was last allowed */
	uint32_t mean_ns;	/* of its device time */
	uint32_t graph; /* enum gantry_cuda_graph_kernel; then it has neither function nor body */
};

/* What occupancy() has been asked; a small cache, overwritten in turn. */
struct gantry_cuda_occupancy {
	uint32_t function;
	uint32_t nthreads;
	uint32_t shared_bytes;
	uint32_t nblocks; /* 0: empty */
};
#define GANTRY_CUDA_OCCUPANCIES 64u

struct gantry_image {
	struct gantry_list link; /* gantry_dev.images */
	struct gantry_dev *dev;
	void *library;				    /* of an installed module; else NULL */
	const struct gantry_cuda_module *installed; /* its description; else NULL */
	CUmodule module;
	CUfunction *functions; /* of the installed module's list */
	uint32_t nfunctions;
	uint32_t next_occupancy;
	struct gantry_cuda_occupancy occupancies[GANTRY_CUDA_OCCUPANCIES];
	struct gantry_kernel *kernels; /* owned */
	bool is_graphs;		       /* its kernels are those of proto/cuda_graph.h */
};

enum gantry_cuda_mem_kind {
	GANTRY_CUDA_MEM_HOST,
	GANTRY_CUDA_MEM_ALLOC,
	GANTRY_CUDA_MEM_WINDOW,
	GANTRY_CUDA_MEM_VARIABLE, /* of an image */
	GANTRY_CUDA_MEM_TEXTURE,  /* an array, or what is made of one */
};

/* An array, a level of one, a texture or a surface. */
struct gantry_cuda_texture {
	struct gantry_list link;   /* of the array's @made; alone: of none, or that is gone */
	struct gantry_list made;   /* what was made of it */
	uint32_t what;		   /* enum gantry_texture_what */
	CUarray array;		   /* NULL: it has levels, or is gone */
	CUmipmappedArray mipmap;   /* owned */
	unsigned long long native; /* texture or surface; 0: gone */
	uint32_t nlevels;
	uint32_t element; /* bytes, of an array */
	uint64_t row_bytes;
	uint64_t rows; /* of a plane */
	uint64_t planes;
	uint64_t size[3]; /* in elements, as it was asked for */
	uint32_t format;
	uint32_t channels;
	uint32_t flags;
	struct gantry_cuda_graph *graph; /* owned; NULL: it is no graph */
};

/* Of a piece of host memory. */
enum gantry_cuda_piece {
	GANTRY_CUDA_PIECE_NEW,	  /* no command has used it */
	GANTRY_CUDA_PIECE_PINNED, /* the device reaches it, and it is ours to unregister */
	GANTRY_CUDA_PIECE_PLAIN,  /* it could not be pinned */
};

struct gantry_mem {
	struct gantry_list link; /* gantry_dev.mems */
	struct gantry_dev *dev;
	uint32_t kind;	/* enum gantry_cuda_mem_kind */
	bool reachable; /* kernels may use @address, of host memory where its piece is pinned */
	unsigned char *base;  /* of host memory; else NULL */
	uint8_t *pieces;      /* of host memory: enum gantry_cuda_piece */
	uint64_t piece_bytes; /* all but the last have so many */
	CUdeviceptr address;  /* as the device has it */
	uint64_t len;
	struct gantry_list maps;	     /* of a window */
	struct gantry_cuda_texture *texture; /* owned; NULL: plain memory */
};

struct gantry_cuda_slot {
	struct gantry_done done; /* the tag is set from the start, the rest when it has finished */
	struct gantry_kernel *kernel; /* NULL: a copy or fill */
	uint32_t estimate_ns;
	bool judged;   /* its verdict was asked for */
	bool closed;   /* the word is written behind it: what follows begins when that is done */
	bool unsent;   /* the device never had it, as the context had failed */
	bool stamped;  /* @stamp is recorded behind what came before */
	CUevent stamp; /* made when first used */
};

/* Scratch memory of a stream's running bodies. */
struct gantry_cuda_scratch {
	CUdeviceptr address;
	uint64_t len;
	uint64_t used;
	uint32_t nretired;
	CUdeviceptr retired[16]; /* grown out of during the run; freed behind it */
};

struct gantry_cuda_host_write {
	uint32_t *word;
	uint32_t value;
};

/* Fills of one length and value (fill.c). */
struct gantry_cuda_fills {
	uint64_t len;
	uint32_t value;
	uint32_t nseen;	 /* fills like that, up to as many as it is worth */
	uint32_t others; /* other fills since */
	bool refused;	 /* by the driver: no more of this */
	CUgraph native;
	CUgraphExec exec; /* NULL: not made */
	CUgraphNode node;
};

struct gantry_cuda_graph; /* graph.c */
struct gantry_cuda_aside; /* aside.c */
struct gantry_cuda_reach; /* aside.c */

struct gantry_stream {
	struct gantry_list link;   /* gantry_dev.streams */
	struct gantry_list active; /* gantry_dev.active, while commands are in flight */
	struct gantry_dev *dev;
	const void *owner;		/* gantry_stream_attr.owner */
	const struct gantry_keep *keep; /* and keep */
	bool is_alone;			/* and is_alone */
	int (*compile)(void *cookie, const void *text, size_t nbytes, void **ret_made,
		       size_t *ret_nbytes); /* and compile */
	void *compile_cookie;
	CUstream native;
	uint32_t place; /* of its cell */
	struct gantry_cuda_cell *cell;
	/* Free-running: accepted, followed by a mark or a write, seen finished, told by poll(). */
	uint32_t submitted;
	uint32_t flushed;
	uint32_t flushed_before; /* @flushed as it was one batch ago */
	uint32_t finished;
	uint32_t told;
	uint32_t njudged;  /* in flight, with a verdict */
	uint32_t ncareful; /* so many launches more are told apart */
	struct gantry_marks marks;
	struct gantry_rows *rows; /* made for the first launch */
	struct gantry_gather gather;
	struct gantry_devtime_stream time;
	struct gantry_cuda_fills fills;
	struct gantry_cuda_graph *builds; /* launches become nodes of it; NULL: they run */
	struct gantry_cuda_aside *aside;  /* made for the first that runs so */
	bool off_device;     /* nothing but that is in flight: no device time is counted */
	bool launched;	     /* kernels that may have printed, since the driver was asked last */
	uint64_t printed_at; /* cycles, when it was */
	uint64_t asked_at; /* cycles when there was progress last, or the driver was asked for it */

	/* Of the body that runs now. */
	struct gantry_env env;
	struct gantry_image *image;
	uint64_t tag;
	bool judged;
	bool on_host; /* an argument is host memory */
	struct gantry_cuda_scratch scratch;
	struct gantry_cuda_libraries *libraries; /* made when first asked for */
	struct gantry_cuda_calls calls;

	struct gantry_cuda_slot slots[GANTRY_CUDA_DEPTH];
	struct gantry_cuda_host_write
		writes[GANTRY_CUDA_DEPTH]; /* without stream memory operations */
};

struct gantry_dev {
	/* Set by open(), constant after. */
	const struct gantry_device_host *host;
	const struct gantry_cuda_driver *driver;
	CUdevice device;
	CUcontext context;
	CUstream own; /* to clear memory with */
	struct gantry_cuda_cell *cells;
	struct gantry_cuda_nvml *nvml; /* NULL: none; any thread */
	char *nvrtc;		       /* library to load; NULL: the usual one */
	char *libraries;	       /* folder of NVIDIA's libraries; NULL: the system's */
	char arch[16];
	uint64_t mem_bytes;
	uint64_t board_bytes; /* of the GPU, of which this device may be a part */
	uint64_t slab_align;
	uint64_t scratch_bytes; /* limit of a stream */
	uint32_t units;
	uint32_t max_grid[3];
	uint32_t max_block[3];
	uint32_t max_threads; /* of a block */
	uint32_t nresident;   /* threads that the device can hold at once */
	uint32_t max_shared;  /* of a block, static and dynamic */
	int least_priority;   /* the driver's: greater numbers are less */
	int greatest_priority;
	bool mem_ops;	    /* the device has stream memory operations */
	bool pageable;	    /* kernels reach memory that is not registered */
	bool pins_in_place; /* pinned memory has the host's addresses on the device */
	CUresult
		pin_refused; /* why host memory could not be pinned the last time; CUDA_SUCCESS: it could */
	char *link_log;		    /* owned; NULL: nothing was linked since anybody asked */
	struct gantry_list sisters; /* of the process; under the lock of window.c */

	struct gantry_list streams;
	struct gantry_list active;
	struct gantry_list owners;	 /* aside.c */
	struct gantry_cuda_reach *reach; /* aside.c; NULL: nobody has asked since it changed */
	uint32_t reach_is_old;		 /* atomic: 1: addresses of its memory have changed since */
	struct gantry_list mems;
	struct gantry_list images;
	uint64_t mem_used;
	CUdeviceptr zeroes; /* texture.c; 0: nobody has needed any */
	uint64_t limits[3]; /* ask.c: of the context, as they were at first; 0: nobody has asked */
	CUevent stamp_base; /* what stamps count from; NULL: there was none yet */
	uint64_t stamp_base_ns;
	struct gantry_devtime time;
	int32_t lost; /* after a fault: the whole device is gone (1), or not (-1) */

	/* Shared with the watcher (watch.c), by atomic loads and stores. */
	uint32_t fault; /* CUresult; set once, by whoever meets it */
	struct gantry_watch watch;
};

/* fault.c */
/* Does every later call on the context fail as well? Then the process is of no use any more. */
bool gantry_cuda_sticky(CUresult result);
/* What met the context. The first sticky result stays; others are ignored. Any thread. */
void gantry_cuda_fault_note(struct gantry_dev *dev, CUresult result);
/* The gantry_done of commands in flight, of the fault that was noted. Device thread. */
void gantry_cuda_fault_done(struct gantry_dev *dev, struct gantry_done *done);
/*
 * Does @result say that a kernel has failed? What a call that answers so was to enqueue is not with the device: the
 * context had failed before.
 */
bool gantry_cuda_fault_is_earlier(CUresult result);
/* gantry_cuda_err(), and notes what is sticky. */
int gantry_cuda_check(struct gantry_dev *dev, CUresult result, const char *what,
		      struct gantry_err *err);

/*
 * output.c: what the kernels of @stream have printed goes to the standard output of the process, where the session wants
 * that, before it is told that they have finished.
 */
void gantry_cuda_output_tell(struct gantry_stream *stream);

/* image.c */
int gantry_cuda_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			   size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err);
void gantry_cuda_image_unload(struct gantry_image *image);
/* Device code that was checked, or that the driver itself has made. */
int gantry_cuda_code_load(struct gantry_dev *dev, const void *bytes, CUmodule *ret_module,
			  struct gantry_err *err);

/* link.c: images that are still to be linked */
/* What the last link said, if nobody asked: it is nobody's any more. */
void gantry_cuda_link_forget(struct gantry_dev *dev);
int gantry_cuda_link(struct gantry_dev *dev, const void *bytes, size_t nbytes, CUmodule *ret_module,
		     struct gantry_err *err);
/* What the linker said of the last one. */
void gantry_cuda_image_say(struct gantry_dev *dev, struct gantry_image *image, char *text,
			   size_t cap);
int gantry_cuda_kernel_get(struct gantry_image *image, const char *symbol,
			   const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			   struct gantry_err *err);

/* mem.c */
int gantry_cuda_mem_alloc(struct gantry_dev *dev, uint64_t len, struct gantry_mem **ret_mem,
			  struct gantry_err *err);
int gantry_cuda_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			 struct gantry_mem **ret_mem, struct gantry_err *err);
void gantry_cuda_mem_free(struct gantry_mem *mem);
/*
 * A command is about to use [off, off + len) of host memory, which is pinned piece by piece: the first use of one takes
 * milliseconds. Returns how many bytes from @off on lie in the same piece; one call of the driver's takes no more.
 */
uint64_t gantry_cuda_mem_use(struct gantry_mem *mem, uint64_t off, uint64_t len);
/* The same of all its pieces, and of any memory: whether kernels on @dev may use the range. */
/* All of it is memory of the device's that has addresses. */
bool gantry_cuda_mem_is(const struct gantry_dev *dev, uint64_t address, uint64_t bytes);
bool gantry_cuda_mem_reach(const struct gantry_dev *dev, const struct gantry_range *range);
/* The host memory that @address lies in; NULL: none. */
struct gantry_mem *gantry_cuda_mem_host_at(struct gantry_dev *dev, CUdeviceptr address);
/* A memory object with nothing behind it yet, on the device's list; NULL: no memory. */
struct gantry_mem *gantry_cuda_mem_new(struct gantry_dev *dev, uint32_t kind, uint64_t len);

/* texture.c */
int gantry_cuda_texture_bytes(uint32_t what, const struct gantry_wire_texture *spec,
			      uint64_t *ret_bytes);
int gantry_cuda_texture_make(struct gantry_dev *dev, uint32_t what,
			     const struct gantry_wire_texture *spec, struct gantry_mem *of,
			     struct gantry_mem **ret_mem, uint64_t *ret_len, uint64_t *ret_value,
			     struct gantry_err *err);
/* Of gantry_cuda_mem_free(): what was made of it goes too. */
void gantry_cuda_texture_end(struct gantry_mem *mem);
/* A copy of which an end is an array: 0, 1 or -errno as gantry_cuda_copy(). */
int gantry_cuda_texture_copy(struct gantry_stream *stream, const struct gantry_cmd_copy *cmd);

/* graph.c */
int gantry_cuda_graph_new(struct gantry_dev *dev, struct gantry_cuda_graph **ret_graph,
			  struct gantry_err *err);
void gantry_cuda_graph_free(struct gantry_cuda_graph *graph);
int gantry_cuda_graph_condition(struct gantry_cuda_graph *graph, uint64_t value, uint32_t flags,
				unsigned long long *ret_handle, struct gantry_err *err);
/* Graphs with kernels of @image can be launched no more. */
void gantry_cuda_graphs_forget(struct gantry_dev *dev, const struct gantry_image *image);
/* Which of its kernels @symbol is, if @sig is that one's. */
int gantry_cuda_graph_kernel(const char *symbol, const struct gantry_signature *sig,
			     uint32_t *ret_kernel, struct gantry_err *err);
/* A launch of such a kernel, as gantry_cuda_launch(): 0, or 1 where the device has nothing to do. What is not possible is told with the task. */
int gantry_cuda_graph_run(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
			  struct gantry_cuda_slot *slot);
/* A launch with raw parameters while @stream builds a graph. */
int gantry_cuda_graph_take(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
			   struct gantry_cuda_slot *slot);

/* launch.c: what a launch with raw parameters has to be. */
int gantry_cuda_launch_check(struct gantry_dev *dev, const struct gantry_cmd_launch *launch);

/* window.c */
int gantry_cuda_slab_create(struct gantry_dev *dev, uint64_t len, int *ret_fd,
			    struct gantry_err *err);
int gantry_cuda_slab_scrub(struct gantry_dev *dev, int fd, uint64_t len, struct gantry_err *err);
int gantry_cuda_window_open(struct gantry_dev *dev, uint64_t address, uint64_t len,
			    struct gantry_mem **ret_mem, struct gantry_err *err);
int gantry_cuda_window_map(struct gantry_mem *window, uint64_t off, uint64_t len, int fd,
			   struct gantry_err *err);
void gantry_cuda_window_unmap(struct gantry_mem *window, uint64_t off, uint64_t len);
int gantry_cuda_window_alias(struct gantry_mem *range, uint64_t off, struct gantry_mem *window,
			     uint64_t from, uint64_t len, struct gantry_err *err);
int gantry_cuda_window_rights(struct gantry_mem *range, uint64_t off, uint64_t len, uint32_t rights,
			      struct gantry_err *err);
int gantry_cuda_window_swap(struct gantry_mem *mine, struct gantry_mem *its,
			    struct gantry_err *err);
/* What is left mapped, and the addresses. */
void gantry_cuda_window_close(struct gantry_mem *window);
/*
 * Whether either device reaches what is mapped in the other's window, as window_map() lets it: for windows of devices that
 * were open by then, as all of a process are.
 */
bool gantry_cuda_sees(const struct gantry_mem *mine, const struct gantry_mem *its);
/* Whether another device of the process is a part of the same GPU: both have one context. */
bool gantry_cuda_has_twin(const struct gantry_dev *dev);
/* Which part of its GPU the device is, of those that the process has open; 0: the first, or the whole. */
uint32_t gantry_cuda_part(const struct gantry_dev *dev);
/* Tells the other devices of the process that there is one more, or one less. */
void gantry_cuda_sisters_join(struct gantry_dev *dev);
void gantry_cuda_sisters_leave(struct gantry_dev *dev);
/* Granularity of slabs and of their places. */
int gantry_cuda_slab_align(struct gantry_dev *dev, uint64_t *ret_align, struct gantry_err *err);

/* stream.c */
int gantry_cuda_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			      struct gantry_stream **ret_stream, struct gantry_err *err);
void gantry_cuda_stream_destroy(struct gantry_stream *stream);
int gantry_cuda_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd);
unsigned gantry_cuda_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n);
void gantry_cuda_flush(struct gantry_stream *stream);
void gantry_cuda_boundary(struct gantry_stream *stream);
/* What was submitted reaches the device, and its end is told by the word, also if more is to come. */
void gantry_cuda_close_batch(struct gantry_stream *stream);
/* Waits for what is in flight, some seconds at most; false when it did not end. */
bool gantry_cuda_drain(struct gantry_dev *dev);
/* Learns gantry_dev.mem_ops and how long nothing takes; before the first stream. */
void gantry_cuda_stream_calibrate(struct gantry_dev *dev);

/* stamp.c */
int gantry_cuda_stamp_put(struct gantry_stream *stream, struct gantry_cuda_slot *slot);
/* It has finished: the clock goes to its gantry_done. */
void gantry_cuda_stamp_read(struct gantry_stream *stream, struct gantry_cuda_slot *slot);
void gantry_cuda_stamp_fini(struct gantry_stream *stream);

/* ask.c */
/* tensor.c */
int gantry_cuda_ask_tensor(struct gantry_dev *dev, const struct gantry_question *question,
			   void *ret_answer, struct gantry_err *err);
int gantry_cuda_ask(struct gantry_dev *dev, const struct gantry_question *question,
		    void *ret_answer, struct gantry_err *err);
int gantry_cuda_image_variable(struct gantry_image *image, const char *symbol,
			       struct gantry_mem **ret_mem, uint64_t *ret_len,
			       struct gantry_err *err);
/* Takes the layout of a raw kernel's parameters. */
int gantry_cuda_layout_take(struct gantry_kernel *kernel, struct gantry_err *err);
/* The addresses of @call's parameters; @ret_params has room for GANTRY_MAX_CMD_ARGS. */
void gantry_cuda_call_params(const struct gantry_rows_call *call, void **ret_params);

/* marks.c */
extern const struct gantry_marks_driver gantry_cuda_marks;

/* time.c */
extern const struct gantry_devtime_driver gantry_cuda_devtime;

/*
 * What enqueues a command returns 0; 1 when it is finished with nothing enqueued, with its status in
 * @slot; -errno when it is refused. A sticky error is noted as a fault, and 0.
 */
/* launch.c */
CUresult gantry_cuda_call(struct gantry_stream *stream, const struct gantry_rows_call *call);
int gantry_cuda_launch(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
		       struct gantry_cuda_slot *slot);
/* batch.c */
extern const struct gantry_rows_driver gantry_cuda_rows;
/* body.c */
int gantry_cuda_body_run(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
			 struct gantry_cuda_slot *slot);
void gantry_cuda_body_init(struct gantry_stream *stream);
void gantry_cuda_body_fini(struct gantry_stream *stream);
/* move.c */
int gantry_cuda_copy(struct gantry_stream *stream, const struct gantry_cmd_copy *copy);
int gantry_cuda_fill(struct gantry_stream *stream, const struct gantry_cmd_fill *fill);
/* aside.c */
/*
 * The host function of @launch, of an image with GANTRY_CUDA_ASIDE, as the command @tag at the stream's position. 1: it was
 * quick and has run; *ret_result is what it returned. 0: it runs aside, and until gantry_cuda_aside_look() has said that it
 * ended the stream takes nothing more. -EOPNOTSUPP, -ENOMEM: refused.
 */
int gantry_cuda_aside_run(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
			  uint64_t tag, int *ret_result);
bool gantry_cuda_aside_is_busy(const struct gantry_stream *stream);
/* Whether one has ended since it was asked last; its status is in its slot then. */
bool gantry_cuda_aside_look(struct gantry_stream *stream);
/* By poll() alone, of what runs: the core hears once that it takes long. */
void gantry_cuda_aside_tell(struct gantry_stream *stream);
/* The stream is idle. */
void gantry_cuda_aside_fini(struct gantry_stream *stream);
/* Memory of the device came or went. */
void gantry_cuda_reach_changed(struct gantry_dev *dev);
/* What modules have of @who is to go; its thread does that, and ends. */
void gantry_cuda_owner_left(struct gantry_dev *dev, const void *who);
/* All of them, and waits for that. */
void gantry_cuda_owners_end(struct gantry_dev *dev);
/*
 * After a fault, or with a function that does not return: ends the threads that are idle, and has nothing undone. False: one is not, and
 * uses the device until the process ends.
 */
bool gantry_cuda_owners_abandon(struct gantry_dev *dev);
/* body.c: what a host function that returned @result makes of its slot. */
void gantry_cuda_body_ended(struct gantry_stream *stream, struct gantry_cuda_slot *slot,
			    int result);
/* body.c: the arguments of a host function. 0, or -EOPNOTSUPP. */
int gantry_cuda_body_args(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
			  union gantry_value *ret_args);
/* fill.c */
/* Enqueues a fill with words of @value, if it is one of many alike; false: another way is better. */
bool gantry_cuda_fill_again(struct gantry_stream *stream, CUdeviceptr dst, uint64_t len,
			    uint32_t value);
void gantry_cuda_fills_fini(struct gantry_stream *stream);
/* move.c */
/* @len bytes at @dst, of @pattern repeated; any alignment. Of device memory or memory it reaches. */
CUresult gantry_cuda_fill_device(struct gantry_stream *stream, CUdeviceptr dst, uint64_t len,
				 uint64_t pattern, uint32_t pattern_bytes);

/* The slot of position @position. */
static inline struct gantry_cuda_slot *gantry_cuda_slot_at(struct gantry_stream *stream,
							   uint32_t position)
{
	return &stream->slots[position % GANTRY_CUDA_DEPTH];
}

/* health.c. @pci and @uuid name the device; NULL where NVML is missing or does not know it. */
struct gantry_cuda_nvml *gantry_cuda_nvml_open(const char *path, const char *pci, const char *uuid);
void gantry_cuda_nvml_close(struct gantry_cuda_nvml *nvml);
/* Off the bus, as far as NVML knows. Any thread. */
bool gantry_cuda_nvml_lost(struct gantry_cuda_nvml *nvml);
/* Bytes a second over the bus; 0: unknown. */
uint64_t gantry_cuda_nvml_link(struct gantry_cuda_nvml *nvml);
int gantry_cuda_health(struct gantry_dev *dev, struct gantry_device_health *ret_health,
		       struct gantry_err *err);
/*
 * What NVML finds on the machine, without a CUDA context: names for the option gpu, MIG instances in place of
 * the GPUs that are divided. Returns how many; -errno where @path (NULL: the usual) is missing.
 */
int gantry_cuda_nvml_list(const char *path, char (*ret_names)[80], unsigned cap,
			  struct gantry_err *err);

#endif
