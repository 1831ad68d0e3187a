/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libgantry-opencl: OpenCL 1.2 over gantry.h, for programs that know OpenCL only. docs/opencl.md says what they get.
 *
 *   object.c   handles: made, counted, recognised when they are stale
 *   host.c     the session, and what the tenant's devices are
 *   line.c     its queues
 *   part.c     sub-devices
 *   platform.c context.c queue.c buffer.c image.c sampler.c program.c binary.c link.c source.c kernel.c event.c   objects of OpenCL
 *   command.c  the order of commands: what starts when, and where
 *   stamp.c    the host's times of them
 *   transfer.c image_transfer.c color.c map.c order.c launch.c   commands
 *   il.c       programs in SPIR-V
 *   fitted.c   code for work-groups of one size
 *   output.c   what kernels print
 *   pump.c     the driver's one thread
 *   refused.c  what OpenCL has and this driver does not
 *   dispatch.c the table that the ICD loader calls by
 *
 * A command is an event. What a device does becomes tasks of a queue of the session, put by the thread that enqueues, with
 * the tickets of the events that it waits for. What the program's processor does (reading, writing, mapping) is done by the
 * thread that enqueues, once the device has come so far. A command that waits for something that has no ticket yet, such
 * as a user event, stays with its queue until the pump starts it.
 *
 * Threads: everything is under one lock, the gate; it is let go while a call waits for the host or for a callback. The
 * pump runs callbacks and what had to wait; it is started for the first such work, and ends when no context is left.
 * Trust: a program's handles are looked up, not believed; what the host says is checked where it is a number of something.
 */
#ifndef GANTRY_GUEST_SHIM_OPENCL_ICD_H
#define GANTRY_GUEST_SHIM_OPENCL_ICD_H

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_0_APIS
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#define CL_USE_DEPRECATED_OPENCL_2_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "guest-shim/gantry.h"
#include "guest-shim/output.h"
#include "proto/opencl.h"
#include "proto/spirv.h"

#define GANTRY_MAX_VALUE_BYTES 1024u /* of one argument that is passed by value */

#define ICD_MAX_ARGS   63u /* of a kernel: a signature has 64, and the first is the range */
#define ICD_MAX_IMAGES (ICD_MAX_ARGS / 2) /* of these: each takes two */

/* ---- object.c ---- */

enum icd_type {
	ICD_DEVICE = 0, /* sub-devices */
	ICD_CONTEXT,
	ICD_QUEUE,
	ICD_MEM,
	ICD_PROGRAM,
	ICD_KERNEL,
	ICD_EVENT,
	ICD_SAMPLER,
	ICD_NTYPES,
};

/*
 * What every handle points to. Its memory is never given back, so that a stale handle leads here and not to a crash: it is
 * recognised while nothing new has its place, which is as late as possible.
 */
struct icd_object {
	const struct _cl_icd_dispatch *dispatch; /* first: the loader reads it */
	uint32_t type;				 /* enum icd_type */
	uint32_t refs;				 /* the program's; 0: the handle is stale */
	uint32_t holds;				 /* the driver's own */
	uint64_t serial; /* no two objects have the same, also in one place */
	struct gantry_list free;
};

extern const struct _cl_icd_dispatch icd_dispatch;

void icd_gate_lock(void);
void icd_gate_unlock(void);
/* Waits for a change of any event or queue; on the pump's thread does some of its work instead. Gate held. */
void icd_gate_wait(void);
void icd_gate_changed(void);
void icd_gate_sleep(pthread_cond_t *cond);

/* All below: gate held. One reference. NULL: no memory. */
void *icd_object_new(enum icd_type type);
/* @handle as an object, or NULL where it is not one of this type that the program has. */
void *icd_object_get(const void *handle, enum icd_type type);
/* The same where something of the driver's has it, whatever the program has let go of. */
void *icd_object_get_held(const void *handle, enum icd_type type);
cl_int icd_object_retain(const void *handle, enum icd_type type, cl_int otherwise);
cl_int icd_object_release(const void *handle, enum icd_type type, cl_int otherwise);
void icd_object_hold(void *object);
void icd_object_drop(void *object);
/* A reference of the program's less. */
void icd_object_let_go(void *object);
/*
 * Around what lets the gate go while an object is made: a program's stale handle may be the same, and another thread let go of
 * it. give() returns it, or NULL and ends it where @result is no success. NULL is allowed.
 */
void icd_object_hold_new(void *object);
void *icd_object_give(void *object, cl_int result);
/* One that nobody but the caller has, and nobody is given. NULL is allowed. */
void icd_object_throw_away(void *object);
bool icd_object_any(enum icd_type type);

/* ---- answers ---- */

/* Where a query goes: (size, value, size_ret) of clGetXInfo. */
struct icd_to {
	size_t size;
	void *value;
	size_t *ret;
};
cl_int icd_answer(const struct icd_to *to, const void *from, size_t n);
cl_int icd_answer_text(const struct icd_to *to, const char *text);
#define ICD_ANSWER(to, type, x) icd_answer(to, &(const type){ (type)(x) }, sizeof(type))
/* Puts @result where the program wants it; NULL is allowed. Returns @object. */
void *icd_result(cl_int *ret, cl_int result, void *object);
/* The nearest result of OpenCL to a status of libgantry's. */
cl_int icd_status(int status);

/* ---- host.c ---- */

struct icd_host {
	struct gantry_session *session;
	uint32_t nusers;
	pid_t pid;
	struct gantry_list lines; /* struct icd_line: all of the session */
	uint32_t nspare;
	struct icd_freed *freed;
	struct gantry_printed printed;
	/* stamp.c */
	struct icd_cell *free_cells, *put_cells, *cell_blocks;
};

/* A queue of the session. One that no command queue has any more is the next one's: to close it would wait for its tasks. */
struct icd_line {
	struct gantry_list link;
	gantry_queue queue;
	uint32_t kind;
	bool is_spare;
	gantry_ticket last; /* of what was put last; 0: nothing */
	int64_t apart_ns;   /* this process's clock over the host's: at most so much */
	bool knows_apart;
};

/* A kernel that the host has installed. */
struct icd_builtin {
	char *name;
	char *signature;
};

/* A format of images: for which of their types (bit: its number less the first) when they are read, written, or both. */
struct icd_format {
	cl_image_format format;
	uint32_t types[3];
};

/* Parts that one domain makes of a device, and the compute units of each. */
#define ICD_DOMAIN_PARTS 64u
struct icd_domain {
	uint32_t nparts;
	uint16_t units[ICD_DOMAIN_PARTS];
};

struct _cl_device_id {
	struct icd_object object;
	struct _cl_device_id *
		parent; /* held; NULL: the platform's, else a sub-device, which has all else of it */
	struct gantry_launch_part part; /* of the platform's device */
	uint32_t units;
	uint32_t ways; /* how it can be divided: GANTRY_PART_EQUALLY, GANTRY_PART_COUNTS */
	struct icd_domain domains[GANTRY_PART_NDOMAINS];
	cl_device_partition_property *made_by; /* owned; with its 0; NULL: not by dividing */
	uint32_t type_words;
	uint32_t kind; /* enum gantry_kind */
	cl_device_type type;
	bool compiles; /* takes programs in OpenCL C */
	char *about;   /* what the host says of it */
	struct gantry_props props;
	/* Of what it says, what each launch asks for. */
	uint64_t local_bytes;
	uint64_t items[3]; /* of one work-group; UINT64_MAX: it does not say */
	uint32_t nbuiltins;
	struct icd_builtin *builtins;
	uint32_t nformats; /* 0: it has no images */
	struct icd_format *formats;
};
struct _cl_platform_id {
	const struct _cl_icd_dispatch *dispatch;
};
extern struct _cl_platform_id icd_platform;

/* The session, opened where there is none that lives; one user more. CL_SUCCESS or why not. Gate held. */
cl_int icd_host_take(struct icd_host **ret_host);
void icd_host_put(struct icd_host *host);
/* Every device; looked up once. Fewer than 1: no agent answers, or the tenant has none. Gate held. */
uint32_t icd_devices(struct _cl_device_id **ret_devices);
/* One of the platform's, or a part that anything has. Gate held. */
bool icd_device_valid(const struct _cl_device_id *device);
/* The value on the line of @about that begins with @key and a space; NULL: there is none. @about may be NULL. */
const char *icd_device_line(const char *about, const char *key);
/* A number of its description; 0 where it says none. */
uint64_t icd_device_number(const struct _cl_device_id *device, const char *key);
uint64_t icd_device_mem_bytes(const struct _cl_device_id *device);
uint64_t icd_device_alloc_bytes(const struct _cl_device_id *device);
const struct icd_builtin *icd_device_builtin(const struct _cl_device_id *device, const char *name);
/* Its kernels' names with ";" between them, malloc'd. */
char *icd_device_builtin_names(const struct _cl_device_id *device);
int icd_line_take(struct icd_host *host, uint32_t kind, struct icd_line **ret_line);
void icd_line_put(struct icd_host *host, struct icd_line *line);
/* Two words for times; NULL: there is no room. @ticket: of the last task that writes there. */
struct icd_cell *icd_cell_take(struct icd_host *host);
void icd_cell_put(struct icd_host *host, struct icd_cell *cell, gantry_ticket ticket);
/* When all before it is done the host's clock goes to word @which. Status of libgantry. */
int icd_stamp(struct icd_host *host, const struct icd_line *line, const struct icd_cell *cell,
	      unsigned which, gantry_ticket *ret_ticket);
/* What it wrote, by its own clock; 0, 0: nothing. @heard_ns: a time of this process's at which it was known to be over. */
void icd_stamps_read(struct icd_host *host, struct icd_line *line, const struct icd_cell *cell,
		     uint64_t heard_ns, uint64_t ret_ns[2]);
void icd_cells_free(struct icd_host *host);
/* Of a session that is closed. */
void icd_lines_free(struct icd_host *host);
/* The host lets go of it when what has been put is done: a task whose kernel is gone fails. */
void icd_kernel_free(struct icd_host *host, gantry_kernel kernel);

/* ---- objects ---- */

struct _cl_context {
	struct icd_object object;
	struct icd_host *host;
	uint32_t ndevices;
	struct _cl_device_id **devices;	   /* owned; each held */
	cl_context_properties *properties; /* with its 0; NULL: none */
	size_t nproperties;
};

struct _cl_command_queue {
	struct icd_object object;
	struct _cl_context *context;  /* held */
	struct _cl_device_id *device; /* held */
	cl_command_queue_properties properties;
	struct icd_line *line;
	gantry_ticket last;	   /* of what was put last; 0: nothing */
	uint32_t nwaiting;	   /* its events in ICD_WAITING or ICD_RUNNING */
	struct _cl_event *barrier; /* held; commands after it wait for it */
};

/* What of a buffer is mapped. */
struct icd_mapped {
	uint64_t off; /* in the memory that it is of */
	uint64_t bytes;
	/* Of an image with something between its rows or slices: only these are written; region[0] 0: all of it. */
	size_t region[3], pitch[2];
};

struct icd_mapping {
	struct gantry_list link;
	void *at; /* as the program has it */
	void *mapped; /* what gantry_map() gave; NULL: @at is memory of this process, written back at the end */
	bool is_shadow;		/* @at is the driver's own */
	struct icd_mapped what; /* @off is in the session's buffer */
	cl_map_flags flags;
	uint32_t nusers; /* its buffer's list, and commands */
};
void icd_mapping_put(struct gantry_session *session, struct icd_mapping *mapping);

typedef void(CL_CALLBACK *icd_mem_fn)(cl_mem, void *);
struct icd_mem_callback {
	struct icd_mem_callback *next;
	icd_mem_fn fn;
	void *user;
};

struct _cl_mem {
	struct icd_object object;
	struct _cl_context *context; /* held */
	struct _cl_mem *parent;	     /* held; of a sub-buffer, or of an image over a buffer */
	cl_mem_flags flags;
	size_t bytes;
	size_t origin; /* in the parent */
	void *host_ptr;
	gantry_buffer buffer; /* the parent's, of a sub-buffer */
	struct gantry_list mappings;
	uint32_t nmappings;
	struct icd_mem_callback *callbacks; /* the last registered first */
	/* How an image lies in @bytes; type 0: a buffer. */
	struct gantry_launch_image image;
	uint32_t pixel_bytes;
};

struct _cl_sampler {
	struct icd_object object;
	struct _cl_context *context; /* held */
	struct gantry_launch_sampler what;
};

struct icd_arg {
	char *type;
	char *name;
	cl_kernel_arg_address_qualifier where;
	cl_kernel_arg_access_qualifier access;
	cl_kernel_arg_type_qualifier qualifiers;
	uint32_t bytes; /* passed by value; 0: unknown, or not by value */
};

struct icd_kernel_info {
	char *name;
	char *signature;  /* of an installed kernel; else NULL */
	char *attributes; /* that its text gives it; NULL: none */
	size_t work_group, compiled[3], multiple;
	uint64_t local_bytes, private_bytes;
	uint32_t nargs;
	struct icd_arg *args;
};

/* Of a program in SPIR-V. */
struct icd_il {
	void *module; /* owned; checked */
	size_t bytes;
	uint32_t nconstants;
	struct gantry_spirv_constant *constants; /* owned; that the program has set */
};

struct _cl_program {
	struct icd_object object;
	struct _cl_context *context; /* held */
	uint32_t sort;		     /* enum icd_program_sort */
	char *source;		     /* terminated; of a source, or of a binary that holds one */
	uint8_t *
		binary; /* of a binary that the host made once; of ICD_IL, what it was built of last */
	size_t nbinary;
	struct icd_il il;
	/* Of its last build. */
	cl_build_status status;
	cl_program_binary_type made;
	char *options;
	char *log;
	char *flat; /* what went to the host: headers put in, options in the first line */
	gantry_image image;
	uint32_t nkernels;
	struct icd_kernel_info *kernels;
	uint32_t nmade; /* kernel objects of it */
	uint32_t nfitted;
	struct icd_fitted *fitted; /* owned; of this build: fitted.c */
	bool building;
};

enum icd_program_sort {
	ICD_SOURCE,
	ICD_BINARY,  /* @binary */
	ICD_PACKED,  /* a binary of ours: @source with options in its first line */
	ICD_BUILTIN, /* installed kernels */
	ICD_IL,	     /* SPIR-V */
	ICD_LIBRARY, /* made by clLinkProgram() */
};

struct icd_value {
	bool set;
	uint32_t bytes; /* of local memory too */
	struct _cl_mem *mem;
	uint64_t serial; /* of @mem, when it was set */
	void *value;	 /* owned; by value */
	uint32_t room;	 /* of @value */
};

struct _cl_kernel {
	struct icd_object object;
	struct _cl_program *program; /* held */
	const struct icd_kernel_info *info;
	struct icd_value *values;
	char *signature; /* what @kernel was asked for with */
	gantry_kernel kernel;
	bool is_found; /* @kernel is right for the values that it has */
};

/* ---- commands ---- */

struct icd_work;
struct _cl_event;

/* What a command does. Copied when it has to wait. */
struct icd_work {
	/* On the program's processor: without the gate, when all before it has finished. Result of OpenCL. */
	cl_int (*on_host)(struct _cl_event *event, struct icd_work *work);
	/* On a device: puts tasks, after @after; *ret_ticket of the last. Status of libgantry. With the gate. */
	int (*on_device)(struct _cl_event *event, struct icd_work *work, const gantry_ticket *after,
			 unsigned nafter, gantry_ticket *ret_ticket);
	void (*fini)(struct icd_work *work); /* NULL: nothing to do */
	bool is_prompt;			     /* on_host() takes no time that its bytes tell */
	struct _cl_mem *mem, *other;	     /* held */
	struct _cl_mem **mems;		     /* of a launch: held by what it owns */
	uint32_t nmems;
	uint64_t off, other_off, bytes;
	void *ptr;
	void *owned; /* its fini()'s */
	size_t region[3], pitch[2], other_pitch[2];
	uint64_t pattern[16]; /* of 128 bytes at most */
	uint32_t pattern_bytes;
	cl_map_flags flags;
};

enum icd_state {
	ICD_WAITING = 0, /* for something without a ticket; or a user event without a status */
	ICD_RUNNING,	 /* a thread is at it */
	ICD_ON_DEVICE,	 /* has a ticket */
	ICD_ENDED,
};

struct icd_event_callback {
	struct gantry_list link;
	void(CL_CALLBACK *fn)(cl_event, cl_int, void *);
	void *user;
	cl_int at;
};

struct _cl_event {
	struct icd_object object;
	struct _cl_context *context;	 /* held */
	struct _cl_command_queue *queue; /* held; NULL: a user event */
	cl_command_type command;
	uint32_t state; /* enum icd_state */
	cl_int status;	/* CL_COMPLETE or negative, once it has ended */
	gantry_ticket ticket;
	gantry_ticket end_ticket; /* of the stamp behind it; 0: there is none */
	struct icd_cell *cell;	  /* where its times go; NULL: none */
	gantry_ticket
		blocker; /* of a command for this processor: what the device has to be done with; 0: nothing */
	struct icd_work *work; /* of a command that waits */
	uint32_t ndeps;
	struct _cl_event **deps; /* held */
	struct _cl_event *above; /* while icd_event_refresh() is at those that it waited for */
	struct _cl_mem **mems;	 /* held: whose end the program wants to be told of */
	uint32_t nmems;
	struct gantry_list waiting; /* of all that wait */
	struct gantry_list watched; /* of what the pump looks at */
	struct gantry_list callbacks;
	bool orders;	       /* a barrier */
	uint64_t times[4];     /* queued, submitted, started, ended */
	uint64_t device_ns[2]; /* started, ended, by the host's clock; 0: times[] has them */
};

/* Gate held. */
void icd_event_end(struct _cl_event *event, cl_int status);
/* Looks whether what is on a device has finished. */
void icd_event_refresh(struct _cl_event *event);
/* The pump looks at it, so that its callbacks run and its times are right. CL_SUCCESS or no thread. */
cl_int icd_event_watch(struct _cl_event *event);
/* Until it has ended; its status. */
cl_int icd_event_wait(struct _cl_event *event);
uint64_t icd_now_ns(void);

struct icd_waits {
	cl_uint n;
	const cl_event *list;
};
/*
 * Puts a command; @work is taken over in any case. Gate held, let go meanwhile where it is done here. @ret_event may be NULL.
 */
cl_int icd_enqueue(struct _cl_command_queue *q, cl_command_type command, struct icd_work *work,
		   bool is_blocking, const struct icd_waits *waits, cl_event *ret_event);
/* Starts it if it can be started; @may_wait: for the device, on this thread. true: something was done. */
bool icd_event_start(struct _cl_event *event, bool may_wait);
/* The same for one that was kept; then what it does is let go of. */
bool icd_event_resume(struct _cl_event *event);
/* All of them valid, of @context (NULL: of one); or the result that says what is wrong. */
cl_int icd_waits_check(const struct icd_waits *waits, const struct _cl_context *context);
extern struct gantry_list icd_waiting; /* all events that wait, oldest first */

/* ---- pump.c ---- */
/* Starts the thread where it is not there. Gate held. */
cl_int icd_pump_need(void);
void icd_pump_kick(void);
bool icd_pump_is_me(void);
/* Does one thing there is to do; false: there is nothing. Gate held, let go meanwhile. */
bool icd_pump_step(void);
/* Runs on the pump, later. @context is for it to hold. */
struct icd_call {
	struct gantry_list link;
	void (*run)(struct icd_call *call); /* without the gate; frees it */
};
void icd_pump_call(struct icd_call *call);
extern struct gantry_list icd_watched;
/* In the child of a fork(): there is no thread, and what the parent's had to do is not the child's. */
void icd_pump_forget(void);
/* The library goes: returns when it has ended, or is in a callback that does not return. Gate held, let go meanwhile. */
void icd_pump_end(void);

/* ---- output.c ---- */
/* A program of this text is about to be loaded: what its kernels print, if they do, is to come here. Without the gate. */
void icd_output_expect(struct icd_host *host, const void *text, size_t bytes);
/* What was printed by what the program now knows to be done becomes its output. Gate held, let go meanwhile. */
void icd_output_pass_on(struct icd_host *host);

/* ---- part.c ---- */
/* What the host's description says of parts. */
void icd_parts_find(struct _cl_device_id *device);
/* Of queries that have to do with parts. Gate held. */
cl_int icd_part_info(const struct _cl_device_id *device, cl_device_info what,
		     const struct icd_to *to);

/* ---- il.c ---- */
/* Which intermediate languages the device takes, up to the end of the line; NULL: none. */
const char *icd_il_version(const struct _cl_device_id *device);
cl_int icd_il_build(struct _cl_program *program, const char *options);
void icd_il_end(struct icd_il *il);

/* ---- fitted.c ---- */
/*
 * Before a launch of a kernel that the host has found: code for work-groups of that size, asked for once. true: it let the gate go
 * meanwhile, so what was checked is to be checked again.
 */
bool icd_fit(struct _cl_kernel *kernel, const uint64_t offset[3], const uint64_t global[3],
	     const uint64_t local[3]);

/* ---- ends of objects, when nobody has them any more; gate held ---- */
void icd_part_end(struct _cl_device_id *part);
void icd_context_end(struct _cl_context *context);
/* The program has let go of it. */
void icd_queue_left(struct _cl_command_queue *queue);
void icd_queue_end(struct _cl_command_queue *queue);
void icd_mem_end(struct _cl_mem *mem);
void icd_sampler_end(struct _cl_sampler *sampler);
void icd_program_end(struct _cl_program *program);
void icd_kernel_end(struct _cl_kernel *kernel);
void icd_event_free(struct _cl_event *event);
/* The program has let go of it. */
void icd_event_left(struct _cl_event *event);

bool icd_context_has(const struct _cl_context *context, const struct _cl_device_id *device);

/* ---- buffer.c, for image.c too ---- */
cl_int icd_mem_check_flags(cl_mem_flags flags);
/* One of the context's, without memory; @flags as the program has them. */
struct _cl_mem *icd_mem_new(struct _cl_context *context, cl_mem_flags flags, size_t bytes);
/* Its memory, with what is at @host_ptr where the flags say so. Status of libgantry. */
int icd_mem_back(struct _cl_mem *mem, void *host_ptr);
/* The most that one of the context's devices takes. */
uint64_t icd_context_alloc_bytes(const struct _cl_context *context);
/* A buffer of that handle; NULL: none, or an image. */
struct _cl_mem *icd_buffer_get(const void *handle);
struct _cl_mem *icd_image_get(const void *handle);
/* Flags that a part, or an image over a buffer, has of what it is of. CL_INVALID_VALUE: they contradict. */
cl_int icd_mem_inherit(const struct _cl_mem *parent, cl_mem_flags *flags);

/* ---- image.c ---- */
/* The first of the context's devices that has images; NULL: none has. */
const struct _cl_device_id *icd_context_images(const struct _cl_context *context);
/* A box of it in its bytes; CL_INVALID_VALUE: it has no such box. */
cl_int icd_image_map_box(const struct _cl_mem *mem, const size_t *origin, const size_t *region,
			 struct icd_mapped *ret_mapped);

/* ---- color.c ---- */
/* @color is what clEnqueueFillImage() takes of such an image: 16 bytes. ret_pixel: its bytes. */
void icd_color_to_pixel(const cl_image_format *format, const void *color,
			unsigned char ret_pixel[16]);
/* A parameter that is an image; a device that tells no qualifiers has none. */
static inline bool icd_arg_is_image(const struct icd_arg *arg)
{
	return arg->access >= CL_KERNEL_ARG_ACCESS_READ_ONLY &&
	       arg->access <= CL_KERNEL_ARG_ACCESS_READ_WRITE;
}
static inline bool icd_arg_is_sampler(const struct icd_arg *arg)
{
	return arg->where == CL_KERNEL_ARG_ADDRESS_PRIVATE && arg->type &&
	       __builtin_strcmp(arg->type, "sampler_t") == 0;
}

/* ---- program.c, source.c ---- */
/* The headers that a text includes, put in their places. Malloc'd; NULL: no memory, or too deep. */
struct icd_header {
	const char *name;
	const char *text;
};
char *icd_source_flatten(const char *text, const char *options, uint32_t nheaders,
			 const struct icd_header *headers);
/* Options that the host takes (those for headers are left out), malloc'd; NULL: one that OpenCL does not know. */
char *icd_options_for_host(const char *options);
/* The host's description of an image. false: it is cut short or cannot be. */
bool icd_kernels_parse(const char *text, struct icd_kernel_info **ret_kernels, uint32_t *ret_n,
		       const char **ret_rest);
bool icd_kernel_of_builtin(const struct icd_builtin *builtin, struct icd_kernel_info *ret_info);
void icd_kernel_infos_free(struct icd_kernel_info *infos, uint32_t n);
const struct icd_kernel_info *icd_program_kernel(const struct _cl_program *program,
						 const char *name);

#endif
