/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling what guests send: in a process for each text, that can do nothing else.
 *
 * The worker starts a small process before it has threads and a device: the forge. It loads compilers when it is first
 * asked, and forks a child for each text. The child has the text, a memfd for the result and one socket, may open no
 * file and no socket, and has limits on processor time and memory; the forge ends it at a wall-clock limit, or when
 * the worker hangs up. So a text that hangs, crashes or breaks into its compiler harms its own compilation.
 *
 * Threads: start and stop: one. The rest: any, several at once.
 * Blocking: worker_compile() until the result is there, some 100 ms beyond the limit at most.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_COMPILE_H
#define GANTRY_HOST_AGENT_WORKER_COMPILE_H

#include <stdbool.h>

#include "base/err.h"
#include "devices/device.h"

struct worker_compiler;

struct worker_compile_limits {
	uint32_t wall_ms;
	uint32_t cpu_s;
	uint64_t mem_bytes; /* of addresses */
	uint64_t out_bytes;
	void (*confine)(void); /* the last thing a child does before it compiles; NULL: nothing */
};
extern const struct worker_compile_limits worker_compile_defaults;

#define WORKER_COMPILE_LOG 32768u

/*
 * Starts the forge, for a process that has one thread. *ret_compiler is NULL where no device's backend compiles.
 * @devices are copied. -errno with a sentence.
 */
int worker_compiler_start(const struct gantry_device_conf *devices, uint32_t ndevices,
			  const struct worker_compile_limits *limits,
			  struct worker_compiler **ret_compiler, struct gantry_err *err);
/* Ends the forge and what it compiles. NULL is allowed. */
void worker_compiler_stop(struct worker_compiler *c);

struct worker_compilation {
	uint32_t device; /* the i-th of start */
	const char *arch;
	const void *text;
	uint64_t nbytes;
	bool (*stop)(void *cookie); /* asked now and then: true ends it with CANCELLED */
	void *cookie;
};

/*
 * 0, and *ret_fd, a memfd of *ret_bytes that is the caller's. Else a status, with a sentence: IMAGE: it does not
 * compile; LIMIT: it took too long; UNSUPPORTED: no compiler; CANCELLED; NO_MEMORY; INTERNAL. @log gets the compiler's
 * log, terminated, WORKER_COMPILE_LOG bytes at most, in any case.
 */
int worker_compile(struct worker_compiler *c, const struct worker_compilation *what, int *ret_fd,
		   uint64_t *ret_bytes, char *log, struct gantry_err *err);

#endif
