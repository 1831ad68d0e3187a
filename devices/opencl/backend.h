/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the opencl backend: a device, its streams and memory, and which file does what.
 *
 * driver.c loads OpenCL; container.c looks at binaries; builder.c, builder_main.c and build.c compile and try them in
 * processes of their own, and fit.c and fitted.c for sizes of work-groups; device.c opens devices; image.c takes modules and guests' code; mem.c has memory, and
 * makes of its ranges what OpenCL can use, twin.c keeps them on a device with memory of its own, and pixels.c images and samplers; part.c has parts of the device; stream.c takes commands and tells what has finished; enqueue.c and body.c hand them on.
 *
 * Memory is the host's: OpenCL 1.2 has no memory that outlives a process. Where the device works on host memory
 * (*direct*, as PoCL does), a range becomes a cl_mem over the very bytes. Elsewhere (*staged*) the device has twins of the ranges that
 * commands use (twin.c), which stay; what commands write is read back at the end of their batch.
 *
 * How a completion gets here: the last event of a batch of commands has a callback, which OpenCL calls on a thread of its own; it
 * marks the batch and wakes the device thread. poll() asks OpenCL for each command's result and times. A batch is
 * what was submitted until flush(), or while two before it are under way (devices/gather.h): a callback is a change of threads,
 * and on a CPU device those are processors that compute.
 *
 * Threads: what is not marked otherwise belongs to the device thread.
 */
#ifndef GANTRY_DEVICES_OPENCL_BACKEND_H
#define GANTRY_DEVICES_OPENCL_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "devices/device.h"
#include "devices/finished.h"
#include "devices/gather.h"
#include "devices/hostmem.h"
#include "devices/opencl/builder.h"
#include "devices/opencl/driver.h"
#include "devices/opencl/module.h"
#include "proto/opencl.h"

/* Commands a stream holds. A power of two. */
#define GANTRY_OPENCL_DEPTH 128u
/* Commands of one stream whose end is told together, at most. */
#define GANTRY_OPENCL_BATCH 32u
/* Events of one command whose times are added up; of what is between the last two the span counts. */
#define GANTRY_OPENCL_EVENTS 8u
/* Ranges, scratch buffers and the verdict of one command. */
#define GANTRY_OPENCL_PLACES (GANTRY_MAX_CMD_ARGS + 32u)
#define GANTRY_OPENCL_KEPT   16u
/* Twins of a device that stay; streams at work on one of them; those that the commands of one batch write. */
#define GANTRY_OPENCL_TWINS	 512u
#define GANTRY_OPENCL_TWIN_USERS 4u
#define GANTRY_OPENCL_DIRTY	 (GANTRY_OPENCL_PLACES + 64u)
/* Parts that one domain may make of a device to be offered. */
#define GANTRY_OPENCL_DOMAIN_PARTS 64u
/* Parts of the device that a stream has queues for. */
#define GANTRY_OPENCL_PARTS 16u

struct gantry_kernel {
	struct gantry_kernel *next; /* of the image */
	struct gantry_image *image;
	const struct gantry_signature *sig;
	gantry_body *body;  /* NULL: @function is launched as it is */
	uint32_t function;  /* place in gantry_image.functions; of no use with a body */
	uint64_t max_local; /* work-items of a work-group */
	uint32_t only[3];   /* the one size of a work-group that it has code for; 0: any */
	uint32_t mean_ns;   /* that it took; 0: it has never ended */
};

/* One kernel of a program. Each stream has a cl_kernel of its own for it: setting arguments is no call for two. */
struct gantry_opencl_function {
	const char *name; /* owned by the image */
	uint32_t id;	  /* place in gantry_stream.kernels, unique in the device */
};

/* A size of work-groups that code of a kernel was made for, or could not be. */
struct gantry_opencl_fitted {
	uint32_t function; /* place in gantry_image.functions */
	uint32_t local[3];
	uint32_t breadth; /* enum gantry_opencl_breadth */
	int32_t r;	  /* 0 or -errno; -EAGAIN: not known yet */
	uint32_t ntimeouts;
	uint32_t nlacks;   /* how often the host lacked something for it */
	uint64_t again_ns; /* a deadline: it is not tried before; 0: at once */
};

struct gantry_image {
	struct gantry_list link; /* gantry_dev.images */
	struct gantry_dev *dev;
	void *library; /* of an installed module; else NULL */
	cl_program program;
	bool of_guest;
	char *log;  /* of the compiler, of a guest's text; owned; NULL: there is none */
	char *said; /* what image_say() found of its kernels; owned; NULL: it was not asked yet */
	uint32_t nfunctions;
	struct gantry_opencl_function
		*functions;	       /* of the module's list, then those launched as they are */
	uint64_t rounds_per_ms;	       /* gantry_opencl_calls' */
	struct gantry_kernel *kernels; /* owned */
	void *whole; /* of a guest's: with intermediate code; owned; NULL: there is none, or it is not wanted */
	size_t nwhole;
	uint32_t nfitted;
	struct gantry_opencl_fitted *fitted; /* owned */
};

struct gantry_mem {
	struct gantry_hostmem host; /* first */
	struct gantry_dev *dev;
};

/* A command of a stream's, by its number: what another stream does later waits for it. */
struct gantry_opencl_mark {
	struct gantry_stream *stream; /* NULL: none */
	uint32_t at;
};

/* A stream's last use of a twin, by number of its commands. */
struct gantry_opencl_twin_user {
	struct gantry_stream *stream;
	uint32_t used_at;
	uint32_t wrote_at;
	bool wrote;
};

/* What the device has of a range; twin.c. */
struct gantry_opencl_twin {
	struct gantry_list link; /* gantry_dev.twins */
	struct gantry_mem *of;
	uint64_t off;
	uint64_t len;
	struct gantry_launch_image image; /* what @mem is; type 0: a buffer */
	cl_mem mem;
	uint64_t contents;  /* as gantry_range's; 0: nobody is to find it */
	uint64_t taken;	    /* the attempt at a command that took it last */
	uint64_t filled_in; /* and that in which it was filled */
	bool spoilt; /* another one has been written by the same command that has some of its bytes */
	uint32_t nusers;
	struct gantry_opencl_twin_user users[GANTRY_OPENCL_TWIN_USERS];
	struct gantry_stream
		*stray; /* that may yet fill it for a command that was refused; NULL: none */
	struct gantry_opencl_mark filled; /* from host memory */
	struct gantry_opencl_mark back;	  /* to it */
};

/* A range as the commands of one run use it. */
struct gantry_opencl_place {
	struct gantry_opencl_buffer buffer; /* what host functions see; first */
	cl_mem mem;
	unsigned char *host;		 /* NULL: scratch memory */
	struct gantry_opencl_twin *twin; /* whose @mem is; NULL: nobody's */
	uint64_t contents;		 /* of a twin's range, before the command */
	bool read_back;			 /* staged, and written by the command */
	bool is_verdict;
	bool is_kept; /* @mem is one of the stream's, for the next command too */
	struct gantry_launch_image image; /* what @mem is; type 0: a buffer */
};

/* A memory object over host memory as it is: the same ranges come again and again. */
struct gantry_opencl_kept {
	cl_mem mem; /* NULL: none */
	unsigned char *host;
	uint64_t len;
	struct gantry_launch_image image; /* type 0: a buffer */
};

/* Written by device code through host memory, or copied from the device's. */
struct gantry_opencl_cell {
	volatile int32_t words[16];
} __attribute__((aligned(128)));

/* A queue of a stream's on a part of the device. */
struct gantry_opencl_part {
	struct gantry_list leaving; /* when its stream has let go of it: it outlives the device */
	const struct gantry_opencl_driver *cl;
	struct gantry_launch_part what;
	cl_device_id device;
	cl_device_id domain; /* that @device is a part of; NULL: none */
	cl_command_queue queue;
	uint32_t used_below; /* commands of the stream before this one may be there */
	bool looks_late;     /* the driver may look at @device until @queue is nobody else's */
};

struct gantry_opencl_slot {
	struct gantry_done done; /* the tag is set from the start, the rest when it has finished */
	struct gantry_stream *stream;
	struct gantry_kernel *kernel; /* of a launch, which may have printed */
	cl_event events[GANTRY_OPENCL_EVENTS];
	uint32_t nevents;
	uint32_t copies;      /* of @events, those that bring or fetch twins; a bit each */
	uint32_t estimate_ns; /* 0: nothing of it is on the device */
	bool judged;	      /* its cell counts */
	bool closed;	      /* a batch ends with it */
	bool unread;	      /* what its batch wrote could not be read back */
	uint64_t host_ns;     /* that it took this thread */
	/* Of the first of a batch that is closed: how many commands it has; 1: they are done; OpenCL's thread writes that. */
	uint32_t nbatch;
	uint32_t finished;
};

struct gantry_stream {
	struct gantry_list link; /* gantry_dev.streams */
	struct gantry_dev *dev;
	cl_command_queue queue; /* of the present command: @whole, or a part's */
	cl_command_queue whole; /* on all of the device */
	struct gantry_opencl_part *parts[GANTRY_OPENCL_PARTS]; /* owned; NULL: none */
	uint32_t next_part; /* the oldest: it makes room, if nothing is in flight there */
	cl_kernel *kernels; /* by gantry_opencl_function.id; NULL: not made yet */
	uint32_t nkernels;
	/* Free-running: accepted; of closed batches; of those that have ended; told by poll(). */
	uint32_t submitted;
	uint32_t closed;
	uint32_t closed_before; /* @closed as it was one batch ago */
	uint32_t ended;
	uint32_t told;
	uint32_t njudged;     /* in flight, with a verdict */
	uint64_t time_end_ns; /* when the last command ended, by the driver's clock */
	uint64_t
		asked_ns; /* when the oldest batch in flight was asked about, or first waited for; 0: not yet */
	struct gantry_gather gather;
	struct gantry_devtime_stream time; /* what commands are expected to take */

	/* Of the command that is being enqueued. */
	struct gantry_env env;
	struct gantry_opencl_calls calls;
	struct gantry_image *image;
	struct gantry_opencl_slot *slot;
	uint64_t scratch_used;
	uint32_t nplaces;
	struct gantry_opencl_place places[GANTRY_OPENCL_PLACES];
	struct gantry_opencl_kept kept[GANTRY_OPENCL_KEPT];
	uint32_t next_kept; /* the oldest: it makes room */
	/* What the open batch wrote, to be read back. */
	uint32_t ndirty;
	struct gantry_opencl_twin *dirty[GANTRY_OPENCL_DIRTY];
	bool stray; /* something of a command that was refused may be under way */
	/* Of the present command: for twins that it has to have; and that the device never has room for them. */
	uint64_t wanted_bytes;
	bool hopeless;

	struct gantry_opencl_slot slots[GANTRY_OPENCL_DEPTH];
	struct gantry_opencl_cell *cells; /* one for each slot */
};

struct gantry_dev {
	/* Set by open(), constant after. */
	const struct gantry_device_host *host;
	const struct gantry_opencl_driver *cl;
	struct gantry_opencl_target target;
	struct gantry_opencl_work work; /* as the builder is told */
	cl_context context;
	char *strings;	    /* what @work names */
	const char *cache;  /* folder for what was compiled of installed modules; NULL: none */
	char identity[256]; /* what binaries are made for: device and driver, with their versions */
	uint64_t mem_bytes;
	uint64_t scratch_bytes; /* limit of one command */
	uint64_t device_bytes;	/* of the device's own memory, and of one object there at most */
	uint64_t most_bytes;
	uint64_t keep_bytes; /* that twins may take while no command needs them */
	uint32_t kind_bits;  /* CL_DEVICE_TYPE_* */
	uint32_t units;
	uint32_t max_local;
	bool direct;
	bool is_pocl;
	bool guest_code; /* guests' own code is taken */
	bool fits;	 /* and compiled for sizes of work-groups */
	/* How it can be divided: GANTRY_PART_EQUALLY and _COUNTS, and the parts that each domain makes. */
	uint32_t partition;
	struct {
		uint32_t nparts;
		uint32_t units[GANTRY_OPENCL_DOMAIN_PARTS];
	} domains[GANTRY_PART_NDOMAINS];
	cl_sampler
		samplers[GANTRY_SAMPLER_COUNT]; /* by gantry_sampler_index(); NULL: not made yet */

	struct gantry_list streams;
	struct gantry_list mems;
	struct gantry_list images;
	uint64_t *function_ids; /* bit set: taken */
	uint32_t nfunction_words;

	struct gantry_list twins; /* those used last come last */
	uint32_t ntwins;
	uint64_t twin_bytes;
	uint64_t nattempts; /* at commands */
	/* Bytes of twins that were filled, found as they were, and read back. Atomic; the device thread writes them. */
	uint64_t copied_in;
	uint64_t kept;
	uint64_t copied_out;

	struct gantry_devtime time; /* of which there is the driver alone */
	struct gantry_finished finished;
	char *log; /* of the guest's text that image_load() took or refused last: GANTRY_OPENCL_LOG_BYTES */
	char *about;   /* gantry_device_info.about */
	uint32_t lost; /* nonzero: a command failed in a way that says nothing of what it hurt */
};

/* image.c */
int gantry_opencl_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			     size_t nbytes, struct gantry_image **ret_image,
			     struct gantry_err *err);
void gantry_opencl_image_unload(struct gantry_image *image);
int gantry_opencl_kernel_get(struct gantry_image *image, const char *symbol,
			     const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			     struct gantry_err *err);
/* Place of the first argument that is a parameter: type range is none. */
static inline uint32_t gantry_opencl_first_param(const struct gantry_signature *sig)
{
	return sig->nargs && sig->args[0].type == GANTRY_ARG_RANGE && !sig->args[0].mode ? 1 : 0;
}

/* The stream's own cl_kernel of @image's function @index; NULL: no memory, or the driver refuses. */
cl_kernel gantry_opencl_kernel_of(struct gantry_stream *stream, const struct gantry_image *image,
				  uint32_t index);

/* fitted.c: what a guest asks for: "NAME", or with code for one size of work-groups "NAME@X,Y,Z" or "NAME@X,Y,Z,wide" */
struct gantry_opencl_wish {
	char name[GANTRY_OPENCL_FIT_NAME];
	uint32_t local[3]; /* 0: none */
	uint32_t breadth;  /* enum gantry_opencl_breadth */
};
int gantry_opencl_wish_parse(const char *symbol, struct gantry_opencl_wish *ret_wish);
/* Has code made of @kernel, which is called @name, once; -errno: there is none, and the code for all sizes serves. */
int gantry_opencl_fit(struct gantry_kernel *kernel, const char *name, const uint32_t local[3],
		      uint32_t breadth, struct gantry_err *err);

/* cache.c: binaries of installed modules, by what they were made of and for. */
int gantry_opencl_binary_of(struct gantry_dev *dev, const char *text, size_t nbytes,
			    void **ret_binary, size_t *ret_nbytes, struct gantry_err *err);

/* about.c: what guests may know of a device, and of an image. docs/opencl.md has the format. */
void gantry_opencl_about(struct gantry_dev *dev);
void gantry_opencl_image_say(struct gantry_dev *dev, struct gantry_image *image, char *text,
			     size_t cap);

/* mem.c */
int gantry_opencl_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			     struct gantry_mem **ret_mem, struct gantry_err *err);
int gantry_opencl_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err);
void gantry_opencl_mem_free(struct gantry_mem *mem);
/* Does a device work on host memory as it is? Tried, not believed. */
bool gantry_opencl_mem_is_direct(struct gantry_dev *dev);

/*
 * Places of the stream's present command; all -errno. take: of a range, for a use of @mode; over: of one that all of is written. scratch: device memory of
 * @bytes. end: sees to it that what was written is read back (@ok: what was enqueued counts; what it made has number @makes), and lets go of all.
 */
int gantry_opencl_place_over(struct gantry_stream *stream, const struct gantry_range *range,
			     struct gantry_opencl_place **ret_place);
int gantry_opencl_place_take(struct gantry_stream *stream, const struct gantry_range *range,
			     uint32_t mode, struct gantry_opencl_place **ret_place);
/* The same of an image, whose description was checked; NULL: of a buffer. */
int gantry_opencl_place_image(struct gantry_stream *stream, const struct gantry_range *range,
			      const struct gantry_launch_image *image, uint32_t mode,
			      struct gantry_opencl_place **ret_place);
int gantry_opencl_place_scratch(struct gantry_stream *stream, uint64_t bytes,
				struct gantry_opencl_place **ret_place);
int gantry_opencl_place_verdict(struct gantry_stream *stream,
				struct gantry_opencl_place **ret_place);
int gantry_opencl_places_end(struct gantry_stream *stream, bool ok, uint64_t makes);
/* Of the device's memory, as @image says (type 0: a buffer); all of a place from host memory, or there. */
int gantry_opencl_object_make(struct gantry_stream *stream, const struct gantry_launch_image *image,
			      uint64_t len, cl_mem *ret_mem);
int gantry_opencl_place_write(struct gantry_stream *stream,
			      const struct gantry_opencl_place *place);
int gantry_opencl_place_read(struct gantry_stream *stream, const struct gantry_opencl_place *place);
/* The stream ends. */
void gantry_opencl_places_forget(struct gantry_stream *stream);

/*
 * twin.c: what stays on a device whose memory is apart.
 * take: @range's twin for the present command, with what host memory has, or somebody in flight has made of it; @fresh: the command
 * writes all of it. -EAGAIN: not before something that is in flight has ended. look: whether it has what host memory has not, without taking it.
 * used: the present command is over, and what it made has number @makes. read_back: what the open batch wrote, with events of @last.
 */
int gantry_opencl_twin_take(struct gantry_stream *stream, const struct gantry_range *range,
			    const struct gantry_launch_image *image, bool fresh,
			    struct gantry_opencl_twin **ret_twin);
int gantry_opencl_twin_look(struct gantry_stream *stream, const struct gantry_range *range,
			    bool *ret_newer);
void gantry_opencl_twins_used(struct gantry_stream *stream, bool ok, uint64_t makes);
int gantry_opencl_twins_read_back(struct gantry_stream *stream, struct gantry_opencl_slot *last);
/* No more stay than may; all go that can, false: there was none. */
void gantry_opencl_twins_trim(struct gantry_dev *dev);
bool gantry_opencl_twins_make_way(struct gantry_dev *dev);
/* The memory goes, or the stream. */
void gantry_opencl_twins_leave_mem(struct gantry_mem *mem);
void gantry_opencl_twins_leave_stream(struct gantry_stream *stream);

/* pixels.c: images and samplers of guests' kernels */
/* -EINVAL: @image cannot be, or is not inside @range. */
int gantry_opencl_pixels_check(const struct gantry_launch_image *image,
			       const struct gantry_range *range);
/* An image; over @host where it is not NULL. */
cl_mem gantry_opencl_pixels_make(struct gantry_dev *dev, const struct gantry_launch_image *image,
				 cl_mem_flags flags, void *host, cl_int *ret_result);
/* All of it from host memory, or there. */
int gantry_opencl_pixels_write(struct gantry_stream *stream,
			       const struct gantry_opencl_place *place);
int gantry_opencl_pixels_read(struct gantry_stream *stream,
			      const struct gantry_opencl_place *place);
/* The device's own; NULL: it cannot be, or the driver refuses. */
cl_sampler gantry_opencl_sampler(struct gantry_dev *dev,
				 const struct gantry_launch_sampler *sampler);
void gantry_opencl_samplers_release(struct gantry_dev *dev);

/* stream.c */
int gantry_opencl_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
				struct gantry_stream **ret_stream, struct gantry_err *err);
void gantry_opencl_stream_destroy(struct gantry_stream *stream);
int gantry_opencl_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd);
void gantry_opencl_flush(struct gantry_stream *stream);
/* What was submitted so far ends by itself, and is told; of all streams. */
void gantry_opencl_close_batch(struct gantry_stream *stream);
void gantry_opencl_close_batches(struct gantry_dev *dev);
void gantry_opencl_boundary(struct gantry_stream *stream);
unsigned gantry_opencl_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n);
/* Waits for what is in flight, and for OpenCL's threads to be out of our functions. */
void gantry_opencl_streams_end(struct gantry_dev *dev);
/* Where the next event of the present command goes. */
cl_event *gantry_opencl_event_slot(struct gantry_stream *stream);
/* 0 or -errno of a call that enqueues. */
int gantry_opencl_outcome(struct gantry_stream *stream, cl_int result);

/* The last event of what the stream has in flight; NULL: there is none. */
cl_event gantry_opencl_last_event(struct gantry_stream *stream);

/* part.c: parts of the device */
/* How it can be divided, tried. */
void gantry_opencl_parts_find(struct gantry_dev *dev);
/*
 * What comes next runs there, after all before it; 0 or -errno. A device that has no such part, for a stream may be led to
 * another than the guest knows, gives the one that is nearest to it. -EAGAIN: it has a queue for no more parts until something
 * of the stream has ended.
 */
int gantry_opencl_part_use(struct gantry_stream *stream, const struct gantry_launch_part *part);
void gantry_opencl_parts_end(struct gantry_stream *stream);

/* enqueue.c: the three kinds of command. */
int gantry_opencl_launch(struct gantry_stream *stream, const struct gantry_cmd_launch *launch);
int gantry_opencl_copy(struct gantry_stream *stream, const struct gantry_cmd_copy *copy);
int gantry_opencl_fill(struct gantry_stream *stream, const struct gantry_cmd_fill *fill);
/* Between places; the bytes may overlap. */
int gantry_opencl_move(struct gantry_stream *stream, struct gantry_opencl_place *dst,
		       struct gantry_opencl_place *src, uint64_t len);
int gantry_opencl_set(struct gantry_stream *stream, const struct gantry_opencl_place *dst,
		      uint64_t off, uint64_t len, uint64_t pattern, uint32_t pattern_bytes);

/* body.c: host functions of installed modules. */
void gantry_opencl_body_init(struct gantry_stream *stream);
int gantry_opencl_body_run(struct gantry_stream *stream, const struct gantry_cmd_launch *launch);

#endif
