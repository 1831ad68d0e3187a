/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the sim backend: a device of a described machine, run by a virtual clock.
 *
 * Each open device has a clock of its own: it tells what its commands would take, and in which
 * order they would end, not how several devices meet in time. Tests of placement over a whole
 * machine use machine.h and clock.h directly.
 */
#ifndef GANTRY_DEVICES_SIM_SIM_H
#define GANTRY_DEVICES_SIM_SIM_H

#include <stdbool.h>

#include "base/list.h"
#include "devices/registry.h"
#include "devices/sim/clock.h"
#include "devices/sim/machine.h"

#define GANTRY_SIM_DEPTH 64u

/* With work=cpu the cpu device that really does the work; its backend is NULL otherwise. */
struct gantry_sim_worker {
	struct gantry_device device;
	struct gantry_stream *stream;
};

struct gantry_kernel {
	struct gantry_kernel *next; /* of the image */
	char name[64];
	const struct gantry_signature *sig;
	struct gantry_kernel *inner; /* the worker's */
};

struct gantry_image {
	struct gantry_list link;
	struct gantry_dev *dev;
	struct gantry_kernel *kernels;
	struct gantry_image *inner;
};

struct gantry_mem {
	struct gantry_list link;
	struct gantry_dev *dev;
	uint32_t place; /* in the machine: the device, or the host */
	uint64_t charged;
	struct gantry_mem *inner;
};

enum gantry_sim_engine {
	GANTRY_SIM_COMPUTE,
	GANTRY_SIM_COPY
};
#define GANTRY_SIM_NENGINES 2u

struct gantry_sim_slot {
	uint64_t seq; /* order of submission over all streams */
	uint64_t duration_ns;
	enum gantry_sim_engine engine;
	struct gantry_cmd cmd;
};

struct gantry_stream {
	struct gantry_list link;
	struct gantry_dev *dev;
	int32_t priority;
	bool running; /* the command at head has started */
	uint32_t head;
	uint32_t tail;
	struct gantry_sim_slot slots[GANTRY_SIM_DEPTH];
};

struct gantry_dev {
	struct gantry_sim_machine *machine;
	uint32_t idx;
	uint64_t mem_used;
	uint64_t last_seq;
	uint32_t nfree[GANTRY_SIM_NENGINES]; /* lanes and copy engines without a command */
	struct gantry_sim_clock clock;	     /* its events are streams whose head command ends */
	struct gantry_sim_worker worker;
	struct gantry_list streams;
	struct gantry_list mems;
	struct gantry_list images;
};

/* run.c */
int gantry_sim_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd);
unsigned gantry_sim_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n);

/* worker.c: the real work. Does nothing and succeeds without work=cpu. */
int gantry_sim_worker_open(struct gantry_sim_worker *worker, const char *work,
			   const struct gantry_device_host *host, struct gantry_err *err);
void gantry_sim_worker_close(struct gantry_sim_worker *worker);
/* Runs @cmd now; what became of it is written to @done. */
void gantry_sim_worker_run(struct gantry_sim_worker *worker, const struct gantry_cmd *cmd,
			   struct gantry_done *done);

#endif
