/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the contract checker (devices/contract.h): contract.c has the device, its objects and what is said when a rule is broken;
 * contract_command.c commands, their ends and the host as the backend sees it; contract_memory.c memory, slabs and windows.
 */
#ifndef GANTRY_DEVICES_CONTRACT_INSIDE_H
#define GANTRY_DEVICES_CONTRACT_INSIDE_H

#include <pthread.h>

#include "devices/wrap.h"

/* Every output of the backend starts with this, so that a write on failure shows. */
#define GANTRY_CONTRACT_UNTOUCHED ((void *)0x1)

struct gantry_dev {
	struct gantry_filter_dev filter; /* first: devices/filter.h */
	const struct gantry_device_host *host;
	struct gantry_device_host checked_host;
	pthread_t thread;
	bool entered; /* thread_enter() was called, or there is none */
	bool broken;  /* an error hurt more than a stream */
	struct gantry_objects objects;
	struct gantry_list slabs;   /* of contract_memory.c */
	pthread_mutex_t lock;	    /* protects flights: cancelled() comes from any thread */
	struct gantry_list flights; /* of contract_command.c */
};

/* ---- contract.c ---- */
void gantry_contract_violation(const struct gantry_dev *dev, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));
void gantry_contract_check_thread(const struct gantry_dev *dev, const char *call);
/* @opaque is a living object of that type of the device. */
struct gantry_object *gantry_contract_check_object(const struct gantry_dev *dev, const void *opaque,
						   uint32_t type, const char *what);
/*
 * After a call that can fail: the return value, the sentence and the output must agree. Wraps the
 * output and returns @r. A backend tells what it lacks, so -ENOMEM of our own needs no undo here:
 * close() does it.
 */
int gantry_contract_check_made(struct gantry_dev *dev, const char *call, int r, uint32_t type,
			       void *made, const struct gantry_err *inner,
			       struct gantry_object **ret_object, struct gantry_err *err);

/* ---- contract_command.c ---- */
void gantry_contract_commands_init(struct gantry_dev *dev);
void gantry_contract_commands_fini(struct gantry_dev *dev);
/* Those of @ops that are there are checked. */
void gantry_contract_commands_cover(struct gantry_backend *ops);

/* ---- contract_memory.c ---- */
/* A range of a window has slabs behind all of it. */
void gantry_contract_check_mapped(struct gantry_dev *dev, const struct gantry_object *window,
				  uint64_t off, uint64_t len);
void gantry_contract_memory_init(struct gantry_dev *dev);
void gantry_contract_memory_fini(struct gantry_dev *dev);
void gantry_contract_memory_cover(struct gantry_backend *ops);

#endif
