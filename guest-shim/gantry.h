/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libgantry: use the host's accelerators without owning them.
 *
 * A program opens a session, finds kernels by name, makes buffers, and submits tasks to queues. A task
 * names a kernel, its arguments and the byte ranges of buffers that it reads and writes; where it runs,
 * which copies that needs and when it starts is the host's business.
 *
 *   struct gantry_session *s;
 *   gantry_open(NULL, NULL, &s);                                   connects to $GANTRY_DOOR
 *   gantry_kernel_find(s, "saxpy", "f32,r:f32*,rw:f32*,u64", &saxpy);
 *   gantry_alloc(s, n * sizeof(float), 0, &x); ...
 *   gantry_submit(s, queue, &task, 1, &ticket);
 *   gantry_wait(s, &ticket, 1, GANTRY_FOREVER);
 *   gantry_close(s);
 *
 * Returns: 0 (or a count) on success, a negative enum gantry_status on failure; gantry_strerror() gives a
 *   sentence, gantry_last_error() the sentence of this thread's last failed call, with details.
 *   Statuses from -1 concern the call, from -100 the session, from -200 the device. Outputs are written on
 *   success only.
 * Threads: every function may be called from any thread; calls on one queue take that queue's lock.
 *   The library prints nothing, takes no signal, and calls nothing back. It keeps no thread: gantry_write() and
 *   gantry_read() of 8 MiB and more use up to 3 helpers where there are CPUs to spare, which end before they return.
 * Time: timeouts are nanoseconds; 0 asks without waiting, GANTRY_FOREVER waits as long as the session
 *   lives. A call without a timeout waits at most the session's call timeout (10 s unless changed) for the host.
 * fork(): the session stays with the parent; in the child every call but gantry_close() returns
 *   GANTRY_E_FORKED, and gantry_close() frees the child's copy only.
 * exit, dlclose: a session still open is closed by the kernel; close it first to wait for its tasks.
 */
#ifndef GANTRY_H
#define GANTRY_H

#include <stddef.h>
#include <stdint.h>

#include "proto/vocab.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GANTRY_API_VERSION 1
#define GANTRY_FOREVER	   INT64_C(-1)

struct gantry_session;

/* Handles mean something inside their session only; 0 is none. */
typedef uint64_t gantry_buffer;
typedef uint64_t gantry_image;
typedef uint64_t gantry_kernel;
typedef uint64_t gantry_queue;
typedef uint64_t gantry_ticket; /* 0: finished, always */

/* ---- session ---- */

/* What to ask for; 0 means the tenant's default. The tenant's configuration has the last word. */
struct gantry_limits {
	uint64_t heap_bytes;	 /* shared memory for host buffers and copies */
	uint64_t mem_bytes;	 /* resident device memory */
	uint64_t virtual_bytes;	 /* device memory that may be allocated */
	uint32_t nqueues;	 /* open at once */
	uint32_t nslots;	 /* tasks in one queue's ring, a power of two */
	int64_t call_timeout_ns; /* for calls that have no timeout of their own */
	uint64_t reserved[4];	 /* 0 */
};

/*
 * Opens a session at door @where: "unix:PATH", or PATH; "ivshmem:", "ivshmem:PCI-ADDRESS" or "ivshmem:FOLDER" in a
 * virtual machine; NULL: the environment's GANTRY_DOOR, else the well-known path /run/gantry/door, else the machine's
 * ivshmem device. Waits for the agent at most the call timeout, and for a place where the tenant has its guests wait for one;
 * an agent that makes way for another build meanwhile is waited for too.
 * NO_AGENT: nothing answers there; DENIED, FULL, LIMIT: the agent's refusal, or the system's; VERSION: no common
 * version; ARG: several devices, and none named.
 */
int gantry_open(const char *where, const struct gantry_limits *ask,
		struct gantry_session **ret_session);

/*
 * Ends the session: unfinished tasks are cancelled, handles, mapped and host memory are gone. NULL is
 * allowed. No other thread may be inside a call on the session.
 */
void gantry_close(struct gantry_session *session);

/*
 * A session that goes to another host (gantryctl session migrate) and whose program shares memory with this one, at a Unix or
 * ivshmem door, is taken over there by a program that has its key: the same one or another, a standby. A session nobody
 * has asked the key of does not go. The key is a secret, good once; asking again makes another and the one before worthless.
 * UNSUPPORTED: a door that takes none, such as a stream, behind which the program itself follows; or an older agent.
 */
#define GANTRY_KEY_BYTES 16u
int gantry_session_key(struct gantry_session *session, uint8_t ret_key[GANTRY_KEY_BYTES]);

/*
 * At door @where (as gantry_open()) of the same tenant on the session's new host: takes over the session with this key, waiting
 * for it at most @timeout_ns. Nothing of it ran between the old host and now; from now on it does. Handles of buffers, kernels,
 * images and queues, and tickets, are what they were: what had been put into its queues when it left, finished or not. The program at the old
 * host has GANTRY_E_MOVED from every call; what it put or wrote into mapped memory while the session was leaving may be lost,
 * so ask gantry_queue_next() and put again what is past that. Statuses of failed tasks are known of the last nslots tasks of a
 * queue. Host buffers are mapped again with gantry_map(), at other addresses.
 * An agent that ends meanwhile, or makes way for another build, is waited for. TIMEOUT, NOT_FOUND (timeout 0): no session with this
 * key has come; another program has it; or it has waited too long. NO_AGENT: as gantry_open(). UNSUPPORTED: the door is a stream. VERSION: an older agent.
 */
int gantry_session_adopt(const char *where, const uint8_t key[GANTRY_KEY_BYTES], int64_t timeout_ns,
			 struct gantry_session **ret_session);

/* What a session has, for whoever adopted it: in the order of handle slots; @after 0 for the first. 1; 0: no more are. */
struct gantry_buffer_found {
	gantry_buffer buffer;
	uint64_t bytes;
	uint32_t flags; /* GANTRY_ALLOC_* */
	uint32_t reserved;
};
int gantry_buffer_next(struct gantry_session *session, gantry_buffer after,
		       struct gantry_buffer_found *ret_found);

/* Its open queues. The tickets of the queue's tasks are GANTRY_TICKET(slot, 1) to GANTRY_TICKET(slot, submitted). */
struct gantry_queue_found {
	gantry_queue queue;
	uint64_t
		submitted; /* sequence number of the last task in it; what earlier queues of the slot had counts */
	uint64_t finished; /* all tasks up to this one have */
	uint32_t slot;
	uint32_t kind; /* of devices, as it was opened */
};
int gantry_queue_next(struct gantry_session *session, gantry_queue after,
		      struct gantry_queue_found *ret_found);

/* Properties that hold for every device the session may use, for the session's whole life. */
struct gantry_props {
	uint32_t ndevices;    /* of the kind; GANTRY_KIND_ANY: of every kind */
	uint32_t kinds;	      /* bit k: devices of kind k */
	uint32_t lanes;	      /* tasks that may run at once on one device */
	uint32_t host_direct; /* 1: devices work on host buffers without copies */
	uint64_t mem_bytes;
	uint64_t virtual_bytes;
	uint64_t heap_bytes;
	uint32_t nqueues;
	uint32_t nslots;
	uint32_t window_us;
	int32_t priority_max;
	char name[48];
	uint64_t session_id;
	uint32_t translated; /* 1: host buffers have other addresses on the host than here */
	uint32_t reserved;
};
int gantry_props_get(struct gantry_session *session, int kind, struct gantry_props *ret_props);

/*
 * What may be known of the session's devices of @kind, as text: lines "KEY VALUE" (docs/opencl.md lists the keys of OpenCL
 * devices; others have none), then a line "kernel NAME SIGNATURE" for each installed kernel that they have. @text gets as
 * much as fits, terminated. Returns 0 and in *ret_bytes how many bytes all of it has, with the NUL. NO_DEVICE;
 * UNSUPPORTED: an older agent.
 */
int gantry_describe(struct gantry_session *session, int kind, char *text, uint64_t text_bytes,
		    uint64_t *ret_bytes);

struct gantry_stats {
	uint64_t tasks_submitted; /* by this process */
	uint64_t tasks_finished;
	uint64_t tasks_failed;
	uint64_t device_ns; /* measured device time */
	uint64_t bytes_in;  /* copied towards devices; host buffers are not copied */
	uint64_t bytes_out;
	uint64_t virtual_bytes;
	uint64_t resident_bytes;
	uint64_t resident_peak_bytes;
	uint64_t worker_restarts;
	uint64_t wakeups_sent; /* to the host: system calls, or doorbells rung */
	uint64_t sleeps;       /* for it, each one system call or some */
};
int gantry_stats_get(struct gantry_session *session, struct gantry_stats *ret_stats);

/* ---- memory ---- */

/*
 * A buffer of @bytes. Its contents are undefined until written. @flags: GANTRY_ALLOC_*, 0 lets the library choose.
 * LIMIT: over what the tenant may allocate; NO_MEMORY: no room in the heap (GANTRY_ALLOC_HOST).
 * Device memory is backed when first used: a task may fail with LIMIT or NO_MEMORY then.
 */
int gantry_alloc(struct gantry_session *session, uint64_t bytes, unsigned flags,
		 gantry_buffer *ret_buffer);

/* The handle is stale at once; tasks submitted earlier, on any queue, still use the memory. Never waits. */
int gantry_free(struct gantry_session *session, gantry_buffer buffer);

/*
 * Makes [off, off + len) readable and writable at *ret_ptr until gantry_unmap(). @mode: GANTRY_R: contents
 * are there; GANTRY_W: they are undefined and all of the range must be written; GANTRY_RW: both. Host
 * buffers (GANTRY_ALLOC_HOST) are mapped without copying, and devices copy from and to them at the speed of their
 * link: who moves much data fills such a buffer in place rather than with gantry_write(). Waits until tasks
 * submitted before it that may use the buffer have finished, at most @timeout_ns. The program must not submit tasks
 * that use the range while it is mapped.
 */
int gantry_map(struct gantry_session *session, gantry_buffer buffer, uint64_t off, uint64_t len,
	       int mode, int64_t timeout_ns, void **ret_ptr);

/* Ends a mapping; what was written is the buffer's contents for tasks submitted after it. */
int gantry_unmap(struct gantry_session *session, void *ptr);

/*
 * Copies between the program's memory and a buffer, after the tasks that were submitted before and use that
 * buffer (others are not waited for; where tasks of several queues used it at once, all are), and returns when the
 * program's memory may be used again. One copy for host buffers.
 */
int gantry_write(struct gantry_session *session, gantry_buffer buffer, uint64_t off,
		 const void *src, uint64_t len);
int gantry_read(struct gantry_session *session, gantry_buffer buffer, uint64_t off, void *dst,
		uint64_t len);

/*
 * Gives another session the right to use a buffer made with GANTRY_ALLOC_SHARED. *ret_fd is a descriptor
 * to pass on (SCM_RIGHTS, inheritance); whoever holds it may adopt once or often until the buffer is
 * freed. The memory stays charged to this session. @mode: GANTRY_R or GANTRY_RW. The caller closes the descriptor.
 * Order between sessions is the programs' affair: wait for a ticket, then tell the other side.
 */
int gantry_share(struct gantry_session *session, gantry_buffer buffer, int mode, int *ret_fd);
int gantry_adopt(struct gantry_session *session, int fd, gantry_buffer *ret_buffer,
		 uint64_t *ret_bytes);

/* ---- images and kernels ---- */

/*
 * Loads an image of @bytes for devices of @kind; @image may go after the call. Cpu devices take installed modules only:
 * UNSUPPORTED. Cuda devices take a fatbin, a cubin, PTX, or CUDA C++ source, which includes no files. The host compiles
 * text: such a call waits up to a minute, whatever the call timeout. NO_DEVICE: the session has none of the kind;
 * IMAGE: it does not compile, is cut short, is for another device; LIMIT: of memory (images count as allocated device
 * memory), or compiling takes too long; NO_MEMORY: it has to fit the heap.
 */
int gantry_image_load(struct gantry_session *session, int kind, const void *image, uint64_t bytes,
		      gantry_image *ret_image);
/*
 * The same; @log gets what the compiler had to say, on success too, cut to @log_bytes and terminated. Of an OpenCL image that
 * loads, first what kernels it has (docs/opencl.md).
 */
int gantry_image_load_log(struct gantry_session *session, int kind, const void *image,
			  uint64_t bytes, char *log, uint64_t log_bytes, gantry_image *ret_image);
/* An installed module by name. NOT_FOUND. */
int gantry_image_find(struct gantry_session *session, const char *module, gantry_image *ret_image);
/* Kernels made from it stay. */
int gantry_image_free(struct gantry_session *session, gantry_image image);

/*
 * A kernel by name, from installed modules. @signature is what the program will pass, as in manifests
 * ("f32,r:f32*,rw:f32*,u64"); NULL or "" accepts the installed one. NO_KERNEL, SIGNATURE.
 */
int gantry_kernel_find(struct gantry_session *session, const char *name, const char *signature,
		       gantry_kernel *ret_kernel);
/*
 * The same, from one image. Kernels of OpenCL images may have parameters of type bN (N bytes as they are) and local (local
 * memory; its 8-byte slot says how much), and before all of them range: 32 bytes that are no parameter, offsets of global
 * identifiers, number of dimensions and part of the device; of images and samplers docs/opencl.md tells. One that was loaded has names and sizes of parameters, not signatures, so @signature is
 * needed: SIGNATURE names the first parameter that is not as long as it says. Names are the image's symbols: mangled,
 * unless the source says extern "C"; of OpenCL images also "NAME@X,Y,Z", with code for work-groups of one size.
 */
int gantry_kernel_from(struct gantry_session *session, gantry_image image, const char *name,
		       const char *signature, gantry_kernel *ret_kernel);
/* Adds @image's @symbol as the form of @kernel for devices of @kind. */
int gantry_kernel_variant(struct gantry_session *session, gantry_kernel kernel, gantry_image image,
			  const char *symbol, int kind);
int gantry_kernel_free(struct gantry_session *session, gantry_kernel kernel);

/* ---- queues ---- */

struct gantry_queue_options {
	int32_t priority;     /* higher runs first, up to the tenant's priority_max */
	uint32_t kind;	      /* enum gantry_kind: devices that may serve it; 0: any */
	uint64_t device_mask; /* 0: any; else bit i allows the session's i-th device */
	uint32_t window_us;   /* bound on work in flight; 0: default */
	uint32_t fail_stop;   /* 1: after a failed task later ones fail with GANTRY_E_INTERRUPTED */
	uint64_t reserved[4]; /* 0 */
};
/* Tasks of a queue run in the order they were submitted. @options may be NULL. */
int gantry_queue_open(struct gantry_session *session, const struct gantry_queue_options *options,
		      gantry_queue *ret_queue);
int gantry_queue_set(struct gantry_session *session, gantry_queue queue, int key, int64_t value);
/* Waits for its tasks (at most the call timeout), then ends the queue. Its tickets stay good. */
int gantry_queue_close(struct gantry_session *session, gantry_queue queue);
/* Cancels tasks that have not been issued to a device; their tickets finish with GANTRY_E_CANCELLED. */
int gantry_cancel(struct gantry_session *session, gantry_queue queue);

/* ---- tasks ---- */

struct gantry_access {
	gantry_buffer buffer;
	uint64_t off;
	uint64_t len;  /* 0: to the end */
	uint16_t mode; /* enum gantry_access_mode */
	uint16_t
		arg_off; /* where in args the address goes: an 8-byte slot; GANTRY_NO_ARG: nowhere */
	uint32_t reserved; /* 0 */
};
#define GANTRY_NO_ARG 0xffffu

struct gantry_task {
	gantry_kernel kernel; /* 0: only bring the accessed ranges to the device */
	uint32_t grid[3];     /* 0: the kernel decides */
	uint32_t block[3];
	uint32_t shared_bytes;
	uint32_t est_us; /* expected run time, 0: unknown */
	const void
		*args; /* packed in signature order, naturally aligned; 8-byte slots for buffers */
	uint32_t args_bytes;
	uint32_t naccess;
	const struct gantry_access *access;
	/* Further tickets of this session to be finished first. Order only: the task runs also when they failed. */
	const gantry_ticket *after;
	uint32_t nafter;
	uint32_t flags; /* GANTRY_TASK_* */
};

/*
 * Puts @n tasks into the queue, in order; *ret_last (may be NULL) is the ticket of the last, and the tickets before
 * it count down by one where no task has @after. Waits for room in the ring at most the call timeout: AGAIN
 * is returned when none came; tasks already put stay put and *ret_last names the last of them.
 * What can be checked here is checked here; a task may still fail later, by its ticket.
 */
int gantry_submit(struct gantry_session *session, gantry_queue queue,
		  const struct gantry_task *tasks, unsigned n, gantry_ticket *ret_last);

/* Copies, fills and markers are tasks too. */
int gantry_submit_copy(struct gantry_session *session, gantry_queue queue, gantry_buffer dst,
		       uint64_t dst_off, gantry_buffer src, uint64_t src_off, uint64_t bytes,
		       gantry_ticket *ret_ticket);
int gantry_submit_fill(struct gantry_session *session, gantry_queue queue, gantry_buffer buffer,
		       uint64_t off, uint64_t bytes, uint64_t pattern, unsigned pattern_bytes,
		       gantry_ticket *ret_ticket);
int gantry_submit_marker(struct gantry_session *session, gantry_queue queue,
			 gantry_ticket *ret_ticket);
/* Tasks submitted to @queue after this wait until these tickets are finished, well or not. */
int gantry_submit_wait(struct gantry_session *session, gantry_queue queue,
		       const gantry_ticket *tickets, unsigned n, gantry_ticket *ret_ticket);

/*
 * Waits until all @n tickets are finished. 0: all finished well; TIMEOUT; the status of the first one that
 * failed; GANTRY_E_DETACHED or _PROTOCOL once the session has ended. Waiting twice, or from several threads,
 * is harmless. Statuses of the last 65536 failed tasks of a queue are remembered.
 */
int gantry_wait(struct gantry_session *session, const gantry_ticket *tickets, unsigned n,
		int64_t timeout_ns);
/* 1: finished well; 0: not yet; negative: finished with that status, or the session ended. */
int gantry_test(struct gantry_session *session, gantry_ticket ticket);

/* ---- errors ---- */

/* Never NULL; the text is static. */
const char *gantry_strerror(int status);
/* The sentence of this thread's last failed call; "" if none. Valid until the thread's next call. */
const char *gantry_last_error(void);
/* "0.1.0" */
const char *gantry_version(void);

#ifdef __cplusplus
}
#endif

#endif
