/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend contract: what a kind of accelerator has to offer, and what it may count on.
 *
 * A backend is one constant struct gantry_backend; devices/null/null.c is a complete one to copy.
 * Vendor libraries are loaded inside open() or probe() with dlopen; where they are missing, probe()
 * finds 0 devices.
 *
 * Trust: callers have validated everything: spans lie inside their memory, kernels belong to the
 *   device, arguments fit the signature. Backends assert that, they do not re-check it.
 * Threads: a device belongs to one device thread. open() and every later call on it, its streams,
 *   memory, images and kernels come from that thread, except where a member says otherwise. A
 *   backend may have threads of its own; they talk to the device thread by host->wake() and poll().
 * Blocking: submit() and poll() never wait. The others may take time, none for ever.
 * Errors: 0 or -errno, a sentence in *err. What goes wrong in a submitted command is told by its
 *   gantry_done.
 * Order of calls: open, thread_enter, stream_create, then commands; stream_destroy when idle;
 *   mem_free when no command uses it; close last, which also ends what is left.
 *
 * Optional members may be NULL, alone or as the group that the comment names; the core then does
 * without. devices/contract.h wraps a backend and checks both sides of all this; tests run on the
 * wrapped one.
 */
#ifndef GANTRY_DEVICES_DEVICE_H
#define GANTRY_DEVICES_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/manifest.h"
#include "devices/module.h"
#include "proto/asked.h"
#include "proto/vocab.h"

#define GANTRY_BACKEND_ABI  1u
#define GANTRY_MAX_CMD_ARGS 64u

/* Opaque, each backend has its own. */
struct gantry_dev;
struct gantry_stream;
struct gantry_mem;
struct gantry_image;
struct gantry_kernel;

enum gantry_device_caps {
	/* mem_import() works: memory survives the worker in its descriptor */
	GANTRY_CAP_MEM_FD = 1 << 0,
	/* kernels work on mem_host() memory at full speed */
	GANTRY_CAP_HOST_DIRECT = 1 << 1,
	/* only poll() makes progress, on the device thread; no wake() need come */
	GANTRY_CAP_CALLER_RUNS = 1 << 2,
	/* image_load() takes bytes from a guest */
	GANTRY_CAP_GUEST_IMAGES = 1 << 3,
	/* copies take memory of another device of this backend */
	GANTRY_CAP_PEER = 1 << 4,
	/* a second process cannot open the device */
	GANTRY_CAP_EXCLUSIVE = 1 << 5,
	/* device_ns is of a simulated clock */
	GANTRY_CAP_VIRTUAL_TIME = 1 << 6,
	/* memory apart from the host's, behind descriptors: the slab and window members exist */
	GANTRY_CAP_WINDOW = 1 << 7,
	/*
	 * a vendor's driver in the kernel is called while the device works: a confined worker then keeps ioctl() and
	 * the opening of device files
	 */
	GANTRY_CAP_DRIVER = 1 << 8,
	/* a guest's image runs as code of the host, in the process that loads it: for isolated workers only */
	GANTRY_CAP_HOST_CODE = 1 << 9,
	/* launches may want all their blocks at once, and clusters of them: gantry_cmd_launch.groups */
	GANTRY_CAP_GROUPS = 1 << 12,
	/* GANTRY_CMD_STAMP: the device has a clock */
	GANTRY_CAP_STAMP = 1 << 11,
	/* a bad access ends the process that submitted it: for isolated workers only, which the agent sees to */
	GANTRY_CAP_ABORTS = 1 << 10,
	/* ranges that say what their contents are need not be copied to it again: gantry_range.contents */
	GANTRY_CAP_KEEPS = 1 << 13,
};

/* One device as the configuration names it: "[device cpu0] backend = cpu, cores = 2, mem = 1G". */
struct gantry_device_conf {
	const char *name;    /* "cpu0" */
	const char *backend; /* "cpu" */
	uint64_t mem_bytes;  /* its pool; 0: the backend's default */
	uint32_t lanes;	     /* commands at once; 0: the backend's default */
	uint32_t nopts;
	const char *const *opts; /* backend's own "key=value" */
	const char *affinity;	 /* the core's: processors of its device thread; NULL: auto */
};

/* The value of an option, or NULL. */
const char *gantry_device_opt(const struct gantry_device_conf *conf, const char *key);
/*
 * -EINVAL, naming the option, when there is one that is neither in @keys (NULL-terminated) nor a
 * filter's ("filters=...", "FILTER.key=...").
 */
int gantry_device_opts_check(const struct gantry_device_conf *conf, const char *const *keys,
			     struct gantry_err *err);

struct gantry_device_info {
	uint32_t kind;	      /* enum gantry_kind */
	uint32_t caps;	      /* enum gantry_device_caps */
	uint32_t lanes;	      /* streams that make progress at the same time */
	uint32_t units;	      /* cores, multiprocessors */
	uint64_t mem_bytes;   /* of the pool */
	uint64_t board_bytes; /* of all of @id, which may be several devices; 0: never is */
	uint32_t mem_align;   /* of ranges inside a gantry_mem; a power of two */
	int32_t numa_node;    /* -1: none */
	uint64_t bytes_per_s; /* estimate for copies between host and device; 0: unknown */
	uint64_t
		within_bytes_per_s; /* and for those within the device's memory; 0: as the others */
	uint64_t slab_align;	    /* lengths and places of slabs in a window; 0: no windows */
	char name[64];		    /* model, for people */
	char id[48];		    /* UUID or PCI address; "" if none */
	char arch[16];		    /* what images are made for ("sm_90"); "" if none */
	char pci[16];		    /* address of its slot, "0000:17:00.0"; "" if it has none */
	/* what a guest may know of it, as lines "KEY VALUE" (docs/opencl.md); lives as long as the device; NULL: nothing */
	const char *about;
};

/* What a device says of its state; a member is valid if its bit of @known is set. */
enum gantry_health_known {
	GANTRY_HEALTH_TEMPERATURE = 1 << 0,
	GANTRY_HEALTH_CLOCKS = 1 << 1,
	GANTRY_HEALTH_MEM = 1 << 2,
	GANTRY_HEALTH_ECC = 1 << 3,
	GANTRY_HEALTH_FAULTS = 1 << 4,
	GANTRY_HEALTH_COPIES = 1 << 5,
};

struct gantry_device_health {
	uint32_t known;	       /* enum gantry_health_known */
	int32_t temperature_c; /* of the chip */
	uint32_t clock_mhz;
	uint32_t mem_clock_mhz;
	uint64_t mem_used; /* by everybody on the host */
	uint64_t mem_total;
	uint64_t
		ecc_uncorrected; /* memory errors that could not be mended, since the driver's start */
	uint64_t nfaults;	 /* critical events since open (NVIDIA: Xid) */
	uint32_t last_fault;	 /* number of the latest */
	/* Of a board's launches, since open: bytes copied to its memory, not copied since they were there, and copied back. */
	uint64_t copied_in;
	uint64_t kept;
	uint64_t copied_out;
	uint64_t followed; /* and how many it began by itself, right behind another */
};

/* What the core offers a device; lives as long as the device. */
struct gantry_device_host {
	/*
	 * Tells the device thread to poll() soon; it may be asleep. A device calls it when a
	 * command has finished outside poll(), unless earlier ones still wait for a poll(): sleep
	 * only after poll() has returned 0. Any thread; never blocks.
	 */
	void (*wake)(void *cookie);
	/*
	 * Nonzero: the running command @tag should stop as soon as it can (its session is gone).
	 * Any thread.
	 */
	int (*cancelled)(void *cookie, uint64_t tag);
	void *cookie;
	/*
	 * The command @tag, the newest of its stream, is at work on the host and leaves the device to others (@off); or it goes on,
	 * and what follows is the device's time again. Told of what takes milliseconds, on the device's thread: by poll(), and
	 * that it goes on by submit() too. Whoever is submitting has counted one command more than there is. Optional.
	 */
	void (*off_device)(void *cookie, uint64_t tag, bool off);
	/*
	 * For devices whose driver writes what kernels have printed to the process's standard output and error: when it is asked to
	 * synchronise, or at any time until they have finished. Before it is told that @tag, a command, has finished: whether its
	 * session wants that now. True: the driver is asked then, where it wants to be asked, and print_end() is called, on the same thread, whatever came of it. @fault: the driver's number of what
	 * has ended the context; 0: nothing. By poll(). Optional, both or neither.
	 */
	bool (*print_begin)(void *cookie, uint64_t tag);
	void (*print_end)(void *cookie, uint64_t tag, uint32_t fault);
};

struct gantry_stream_attr {
	int32_t priority; /* higher first, as far as the device knows priorities */
	/*
	 * So many launches are to be told apart, should the context fail: of them the stream knows which one was at
	 * work. For sessions whose context has failed; it costs time.
	 */
	uint32_t ncareful;
	/* Whose it is: streams of one owner share what installed modules keep. Means nothing else. */
	const void *owner;
	/* Where installed modules keep what makes their things of this owner anew (devices/keep.h); outlives the stream. NULL: nowhere. */
	const struct gantry_keep *keep;
	/* Nobody else's work is on this device in the process: what holds up its thread holds up this owner alone. */
	bool is_alone;
	/*
	 * For installed modules: has the device's compile() work on what a guest wants compiled, in a process that can do nothing else, on the
	 * owner's account. Blocks. 0 and *ret_made, from malloc(); -EOPNOTSUPP: there is no compiler; -EDQUOT: it took too much;
	 * -ENOEXEC, -ECANCELED, -ENOMEM. NULL: there is none.
	 */
	int (*compile)(void *cookie, const void *text, size_t nbytes, void **ret_made,
		       size_t *ret_nbytes);
	void *compile_cookie;
};

/* Who else an error hurts. The core acts on this, never on vendor codes. */
enum gantry_blast {
	GANTRY_BLAST_NONE = 0, /* no error */
	GANTRY_BLAST_CMD = 1,  /* this command only */
	GANTRY_BLAST_STREAM = 2,
	GANTRY_BLAST_CONTEXT = 3, /* every session of this worker; the worker must end */
	GANTRY_BLAST_DEVICE = 4,  /* every worker of this device */
};

struct gantry_done {
	uint64_t tag;
	/*
	 * enum gantry_status. Where a context has failed: GANTRY_E_INTERRUPTED of those, the newest of their streams,
	 * that certainly never began; of those that may have, a fault.
	 */
	int32_t status;
	uint32_t blast;	    /* enum gantry_blast */
	uint64_t device_ns; /* measured device time of the command */
	uint32_t units; /* of gantry_device_info.units, those that it was kept to; 0: it had all */
	uint64_t stamp_ns; /* of a stamp that went well: the device's clock, never 0; else 0 */
};

enum gantry_cmd_kind {
	GANTRY_CMD_LAUNCH = 1,
	GANTRY_CMD_COPY = 2,
	GANTRY_CMD_FILL = 3,
	GANTRY_CMD_STAMP =
		4, /* GANTRY_CAP_STAMP: reads the clock when what is before it has finished; no members */
};

/* A range of device memory as a command uses it. */
struct gantry_range {
	struct gantry_mem *mem;
	uint64_t off;
	uint64_t len;
	/*
	 * Of a command on a device with GANTRY_CAP_KEEPS: a number for what is in all of @mem that has to do with this range before the
	 * command begins. The same number for the same range is the same bytes, and nobody writes them unseen; 0: that is not known.
	 */
	uint64_t contents;
};

/* Bytes of an argument; any alignment. They are there until submit() returns. */
struct gantry_raw {
	const void *bytes;
	uint32_t len;
};

struct gantry_cmd_launch {
	struct gantry_kernel *kernel;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_bytes;
	uint32_t groups; /* of GANTRY_TASK_GROUPS; 0 without GANTRY_CAP_GROUPS. Hostile numbers */
	uint32_t nargs;
	/* The number of what it leaves in ranges that it writes and whose contents are known before; never used for anything else. */
	uint64_t makes;
	/* Of a raw signature: the parameters as the image lays them out; the caller's until submit() returns. */
	const uint8_t *raw;
	uint32_t raw_bytes;
	/*
	 * In signature order: a range for buffer arguments, the value for others (as the signature
	 * says).
	 */
	union {
		struct gantry_range range;
		union gantry_value value;
		/* of type bN or one behind it: the slot, where it lies in the caller's memory */
		struct gantry_raw raw;
	} args[GANTRY_MAX_CMD_ARGS];
};

struct gantry_cmd_copy {
	struct gantry_range dst; /* len equal in both */
	struct gantry_range src;
	uint64_t makes; /* as a launch's */
};

struct gantry_cmd_fill {
	struct gantry_range dst;
	uint64_t pattern;
	uint32_t pattern_bytes; /* 1, 2, 4 or 8; dst.len is a multiple */
	uint64_t makes;		/* as a launch's */
};

/* Copied by submit() as far as needed; the caller may reuse it at once. */
struct gantry_cmd {
	uint32_t kind; /* enum gantry_cmd_kind */
	uint32_t reserved;
	uint64_t tag; /* the caller's; comes back in gantry_done */
	union {
		struct gantry_cmd_launch launch;
		struct gantry_cmd_copy copy;
		struct gantry_cmd_fill fill;
	};
};

enum gantry_question_what {
	GANTRY_QUESTION_ATTRIBUTES =
		1, /* int32_t each: the device's, from its number0 on, as many as fit */
	GANTRY_QUESTION_ADDRESS =
		2, /* of range, which is backed; kernels reach it from now on: uint64_t */
	GANTRY_QUESTION_KERNEL = 3, /* struct gantry_reply_function */
	GANTRY_QUESTION_PARAMS =
		4, /* struct gantry_reply_param each, from number0 on, as many as fit */
	GANTRY_QUESTION_OCCUPANCY =
		5,		 /* blocks of number0 threads and number1 bytes at once: uint32_t */
	GANTRY_QUESTION_SET = 6, /* the kernel's attribute number0 is to be number1: nothing */
	GANTRY_QUESTION_CLUSTERS =
		8, /* clusters of blocks at once, as GANTRY_ASK_CLUSTERS has it: uint32_t */
	GANTRY_QUESTION_TENSOR =
		9, /* part number0 of what kernels copy parts of tensor with: GANTRY_TENSOR_PART_BYTES */
	GANTRY_QUESTION_LIMIT =
		7, /* limit number0 of kernels is to be number1: uint64_t, what it is now. For all that the device runs */
	GANTRY_QUESTION_MANAGED =
		10, /* of range, a variable of an image: uint32_t, whether the program is to see it at its address */
};
struct gantry_keep;
#define GANTRY_QUESTION_LIMITS 8u /* numbers of limits are below it */

/* What a guest wants to know of a device, a kernel of its image, or its memory. Numbers are hostile. */
struct gantry_question {
	uint32_t what; /* enum gantry_question_what */
	uint32_t reserved;
	struct gantry_kernel *kernel; /* or NULL */
	struct gantry_range range;
	uint64_t number[3];
	const struct gantry_wire_tensor *tensor; /* or NULL */
	/* Of a limit, and from the core: what others want it to be at least, and what it may cost the device in all. */
	uint64_t at_least;
	uint64_t mem_bytes; /* 0: not known */
};
#define GANTRY_ANSWER_BYTES  112u
#define GANTRY_MAX_RAW_BYTES 32768u /* of a kernel's parameters */

struct gantry_backend {
	uint32_t abi;  /* GANTRY_BACKEND_ABI */
	uint32_t size; /* sizeof(struct gantry_backend) of the backend's build */
	const char *name;
	uint32_t kind; /* enum gantry_kind */
	uint32_t reserved;

	/*
	 * Devices the machine has without being configured, each written to @confs (name, backend,
	 * opts are static or live until the next probe). Any thread, before any open. Returns how
	 * many, at most @cap; 0 is no error. NULL: devices exist by configuration only.
	 */
	int (*probe)(struct gantry_device_conf *confs, unsigned cap, struct gantry_err *err);

	/*
	 * -ENODEV: not there; -EBUSY: another process has it; -EINVAL: configuration (say which
	 * key).
	 */
	int (*open)(const struct gantry_device_conf *conf, const struct gantry_device_host *host,
		    struct gantry_dev **ret_dev, struct gantry_device_info *ret_info,
		    struct gantry_err *err);
	/* Ends the device with everything on it. NULL is allowed. */
	void (*close)(struct gantry_dev *dev);
	/* Once, from the device thread, before its first command. Optional. */
	int (*thread_enter)(struct gantry_dev *dev, struct gantry_err *err);

	/*
	 * Images. @path: an installed image (@bytes NULL); else guest bytes, only with
	 * GANTRY_CAP_GUEST_IMAGES: whole images only, checked to be no shorter than they say. -ENOEXEC:
	 * not an image for this device. Memory of @bytes may go after it.
	 */
	int (*image_load)(struct gantry_dev *dev, const char *path, const void *bytes,
			  size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err);
	void (*image_unload)(struct gantry_image *image);
	/*
	 * -ENOENT: no such symbol; -EINVAL: its parameters are not those of @sig (a guest's image; the
	 * sentence names the first that differs); -EOPNOTSUPP: they are more than a launch can carry.
	 * @sig stays valid as long as the kernel; the kernel goes with its image.
	 */
	int (*kernel_get)(struct gantry_image *image, const char *symbol,
			  const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			  struct gantry_err *err);
	/*
	 * What there is to say of the guest's image that image_load() took last, or refused (@image NULL), terminated and cut
	 * to @cap: its kernels (docs/opencl.md), the compiler's log. Optional.
	 */
	void (*image_say)(struct gantry_dev *dev, struct gantry_image *image, char *text,
			  size_t cap);

	/*
	 * Answers @question into @ret_answer (GANTRY_ANSWER_BYTES); returns how many bytes. -EINVAL: a number out of range;
	 * -EOPNOTSUPP: this device does not know. Optional.
	 */
	int (*ask)(struct gantry_dev *dev, const struct gantry_question *question, void *ret_answer,
		   struct gantry_err *err);
	/*
	 * A variable of an image, as memory that kernels and commands use; mem_free() before the image goes. -ENOENT. Optional.
	 */
	int (*image_variable)(struct gantry_image *image, const char *symbol,
			      struct gantry_mem **ret_mem, uint64_t *ret_len,
			      struct gantry_err *err);

	/*
	 * Arrays, textures and surfaces, as a group. Optional.
	 * texture_bytes: device memory that an array of @spec takes at most; -EINVAL, -EOPNOTSUPP: there is none such. Pure.
	 * texture_make: @what of enum gantry_texture_what, @of the array it is made of or NULL. *ret_len: an array's bytes,
	 * row after row and plane after plane, for copies only, and zero at first; 1 of what is not to be copied, which is refused. *ret_value:
	 * what kernels are given. What is made of an array is of no use once that is gone; mem_free() ends either.
	 */
	int (*texture_bytes)(uint32_t what, const struct gantry_wire_texture *spec,
			     uint64_t *ret_bytes);
	int (*texture_make)(struct gantry_dev *dev, uint32_t what,
			    const struct gantry_wire_texture *spec, struct gantry_mem *of,
			    struct gantry_mem **ret_mem, uint64_t *ret_len, uint64_t *ret_value,
			    struct gantry_err *err);

	/*
	 * Memory. mem_import: [off, off + len) of a descriptor that outlives the worker
	 * (GANTRY_CAP_MEM_FD); the caller keeps the descriptor and decides which parts are backed.
	 * mem_alloc: backed now, lost with the worker; contents undefined, never another tenant's.
	 * mem_host: host memory that guest and worker share, for copies, and for kernels with
	 * GANTRY_CAP_HOST_DIRECT; 0 with a sentence in *err: copies work, but not at full speed, and
	 * kernels may not take it. At least one of import, alloc and the windows exists. -ENOMEM: the
	 * device or the host has no room.
	 */
	int (*mem_import)(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			  struct gantry_mem **ret_mem, struct gantry_err *err);
	int (*mem_alloc)(struct gantry_dev *dev, uint64_t len, struct gantry_mem **ret_mem,
			 struct gantry_err *err);
	int (*mem_host)(struct gantry_dev *dev, void *base, uint64_t len,
			struct gantry_mem **ret_mem, struct gantry_err *err);
	void (*mem_free)(struct gantry_mem *mem);

	/*
	 * Slabs and windows, as a group (GANTRY_CAP_WINDOW): memory apart from the host's that outlives every
	 * process that uses it. A slab is physical memory behind a descriptor; a window is a range of device
	 * addresses of which parts have slabs behind them. Lengths and offsets are multiples of
	 * info.slab_align. The process that makes slabs need not be one that maps them.
	 * slab_create: @len bytes, all zero; *ret_fd is the caller's and all that holds them.
	 * slab_scrub: all zero again. May take time, as slab_create may.
	 * window_open: @len addresses from @address (0: anywhere) with nothing behind them; mem_free closes it.
	 * -EADDRINUSE: that place is taken. A range of a command lies where slabs are mapped.
	 * window_map: the whole slab @fd of @len bytes at @off, where nothing is mapped; the caller keeps @fd.
	 * window_unmap: exactly what one window_map mapped; no command uses it.
	 */
	int (*slab_create)(struct gantry_dev *dev, uint64_t len, int *ret_fd,
			   struct gantry_err *err);
	int (*slab_scrub)(struct gantry_dev *dev, int fd, uint64_t len, struct gantry_err *err);
	int (*window_open)(struct gantry_dev *dev, uint64_t address, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err);
	int (*window_map)(struct gantry_mem *window, uint64_t off, uint64_t len, int fd,
			  struct gantry_err *err);
	void (*window_unmap)(struct gantry_mem *window, uint64_t off, uint64_t len);
	/*
	 * A slab behind more than one address, as a pair. Optional, with windows only.
	 * window_alias: what one window_map mapped at [@from, @from + @len) of @window lies at @off of @range too, another window of the
	 * device, where nothing is mapped; kernels may neither read nor write it there yet. It lives until window_unmap of exactly that, or
	 * mem_free of @range, whatever becomes of @window.
	 * window_rights: what kernels of this device, and of those that reach its windows, may do with what exactly one window_alias
	 * mapped: 0, GANTRY_R or GANTRY_RW.
	 */
	int (*window_alias)(struct gantry_mem *range, uint64_t off, struct gantry_mem *window,
			    uint64_t from, uint64_t len, struct gantry_err *err);
	int (*window_rights)(struct gantry_mem *range, uint64_t off, uint64_t len, uint32_t rights,
			     struct gantry_err *err);

	/*
	 * Two windows of one length, opened on two devices of the process that reach each other's (GANTRY_CAP_PEER), exchange their
	 * addresses: what one window_map mapped in one of them lies at the same offset of it, elsewhere. No command uses either, and
	 * nothing lies in a range too (window_alias). On the thread of @mine's device; the other's does nothing with @its meanwhile.
	 * Optional. -ENOTRECOVERABLE: what they have mapped is nowhere; after other errors all is as it was.
	 */
	int (*window_swap)(struct gantry_mem *mine, struct gantry_mem *its, struct gantry_err *err);

	/* Streams: in order inside one, free across. -EAGAIN: no more streams. */
	int (*stream_create)(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			     struct gantry_stream **ret_stream, struct gantry_err *err);
	void (*stream_destroy)(struct gantry_stream *stream);

	/*
	 * Starts @cmd; must not wait for it. 0: exactly one gantry_done with this tag will come
	 * from poll(). -EAGAIN: the device is full, try after poll(). Any other -errno: refused, no
	 * gantry_done will come. -EINVAL: a grid, block or amount of shared memory that the device
	 * does not do; -ENOMEM; -ENODEV: it is gone. What is found out after submit() is told by the gantry_done.
	 */
	int (*submit)(struct gantry_stream *stream, const struct gantry_cmd *cmd);
	/*
	 * Finished commands of all streams, in order within each stream, at most @n. Returns how
	 * many. With GANTRY_CAP_CALLER_RUNS it also makes progress: a call runs at most one command
	 * that takes real time, the next of the stream with the highest priority, so the caller
	 * polls while it has commands in the device. Without it host->wake() follows a completion
	 * that poll() has not seen.
	 */
	unsigned (*poll)(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n);
	/*
	 * Submissions so far reach the device: now, or while it has enough of the stream, by the poll() behind the one that finds
	 * some of that finished. Optional: submission is immediate.
	 */
	void (*flush)(struct gantry_stream *stream);
	/*
	 * Somebody may wait for the newest submission: it is not kept back, nor its end to be told with that of much that
	 * follows. Optional: nothing is kept back for long.
	 */
	void (*boundary)(struct gantry_stream *stream);

	/*
	 * Boards that hold one image per region: makes @image resident in @region, which is idle;
	 * may take seconds. Optional: images are additive.
	 */
	int (*region_configure)(struct gantry_dev *dev, uint32_t region, struct gantry_image *image,
				struct gantry_err *err);

	/*
	 * 0, or -EIO with the sentence why the device should not be used; *ret_health either way. Any thread.
	 * Optional.
	 */
	int (*health)(struct gantry_dev *dev, struct gantry_device_health *ret_health,
		      struct gantry_err *err);

	/*
	 * Compilers for guest images, as a group. They take no device.
	 * image_is_text: @bytes must go through compile() before image_load() takes them. Cheap; any thread.
	 * compiles: whether a device of @conf has one, asked before anything is opened; NULL: each has.
	 * compiler_open: before the first compile(), in the process whose children compile: loads what they need, for no
	 * file can be opened later. -EOPNOTSUPP: no compiler here.
	 * compile: makes of text an image that loads on devices of @arch (info.arch; several with commas between
	 * them where the devices differ). Called in a process made for this one call, without other threads and
	 * without devices, in which it may hang or crash: limits are that process's affair. @conf says which
	 * libraries. *ret_image comes from malloc(). The compiler's log goes to @log, terminated and cut to
	 * @log_bytes, in either case. -ENOEXEC: the text does not compile.
	 */
	bool (*image_is_text)(const void *bytes, size_t nbytes);
	bool (*compiles)(const struct gantry_device_conf *conf);
	int (*compiler_open)(const struct gantry_device_conf *conf, struct gantry_err *err);
	int (*compile)(const struct gantry_device_conf *conf, const char *arch, const void *bytes,
		       size_t nbytes, void **ret_image, size_t *ret_nbytes, char *log,
		       size_t log_bytes, struct gantry_err *err);

	/*
	 * No stream of @owner (gantry_stream_attr) is left, nor will one be made for who it was: what modules keep for it goes, in time.
	 * Must not wait for that. Optional.
	 */
	void (*owner_left)(struct gantry_dev *dev, const void *owner);
};

#endif
