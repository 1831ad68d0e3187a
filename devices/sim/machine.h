/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A described machine: its devices, how fast they are joined, how long kernels run. The text format
 * is docs/sim.md's. Serves the sim backend, and tests of placement that want no backend.
 *
 * Trust: the text is the administrator's or a test's; it is bounded and checked.
 * Threads: constant after parsing.
 */
#ifndef GANTRY_DEVICES_SIM_MACHINE_H
#define GANTRY_DEVICES_SIM_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "proto/vocab.h"

#define GANTRY_SIM_MAX_BYTES   (256u * 1024u)
#define GANTRY_SIM_MAX_DEVICES 64u
#define GANTRY_SIM_MAX_KERNELS 1024u
#define GANTRY_SIM_MAX_LANES   64u
/* The place of memory that belongs to no device. Others are indices of devices. */
#define GANTRY_SIM_HOST	   GANTRY_SIM_MAX_DEVICES
#define GANTRY_SIM_NPLACES (GANTRY_SIM_MAX_DEVICES + 1u)

struct gantry_sim_device {
	char name[GANTRY_NAME_LEN_MAX + 1];
	int kind; /* enum gantry_kind */
	uint64_t mem_bytes;
	uint32_t nlanes;  /* kernels and fills at once */
	uint32_t ncopies; /* copies at once */
};

struct gantry_sim_link {
	double gb_per_s; /* which is also bytes a nanosecond; 0: no link */
	uint64_t latency_ns;
};

/* One line of the kernel table. */
struct gantry_sim_kernel {
	char name[64]; /* "*": every kernel */
	int device;    /* index, or -1 */
	int kind;      /* if device is -1; GANTRY_KIND_ANY: everywhere */
	uint64_t constant_ns;
	double ns_per_byte;
	double ns_per_element;
};

struct gantry_sim_machine {
	uint32_t ndevices;
	uint32_t nkernels;
	struct gantry_sim_device devices[GANTRY_SIM_MAX_DEVICES];
	struct gantry_sim_link links[GANTRY_SIM_NPLACES][GANTRY_SIM_NPLACES]; /* both ways equal */
	struct gantry_sim_kernel kernels[GANTRY_SIM_MAX_KERNELS];
};

/*
 * -EINVAL: the sentence names the line; -ENOMEM. @text need not be terminated. Freed with free().
 */
int gantry_sim_machine_parse(const char *text, size_t len, struct gantry_sim_machine **ret_machine,
			     struct gantry_err *err);
/* The same for the file at @path. */
int gantry_sim_machine_read(const char *path, struct gantry_sim_machine **ret_machine,
			    struct gantry_err *err);

/* The index of the device, or -ENOENT. */
int gantry_sim_device_find(const struct gantry_sim_machine *machine, const char *name);

/*
 * How long @bytes take between two places. Without a link between them the way leads through the
 * host, first one link, then the other; a place without any link has one of 10 GB/s to the host.
 * Inside one place: the link of the place with itself, else 100 GB/s.
 */
uint64_t gantry_sim_copy_ns(const struct gantry_sim_machine *machine, uint32_t from, uint32_t to,
			    uint64_t bytes);

/*
 * How long a kernel runs on device @idx: by the line that is most specific, kernel before place,
 * device before kind before any; 10 us when there is none.
 */
uint64_t gantry_sim_kernel_ns(const struct gantry_sim_machine *machine, uint32_t idx,
			      const char *kernel, uint64_t bytes, uint64_t elements);

#endif
