/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A board of the simulated machine (docs/sim.md) under the manager of bitstreams, in virtual time: what programs take that queue launches, and
 * what they would take as such boards are shared without a manager. The same on every run.
 */
#ifndef GANTRY_TESTS_FPGA_SIMULATION_H
#define GANTRY_TESTS_FPGA_SIMULATION_H

#include "devices/board/board.h"
#include "devices/sim/machine.h"

#define SIMULATION_MAX_PROGRAMS 16u
#define SIMULATION_MAX_IMAGES	48u

/* A program with one queue of launches of one kernel. */
struct simulation_program {
	const char *kernel;
	uint32_t nlaunches;
	uint32_t
		depth; /* of its ring: so many launches are to be seen at most; 1: it waits for each */
	uint64_t starts_ns;
	uint64_t ended_ns;	  /* results */
	uint64_t longest_wait_ns; /* from when a launch could have begun */
};

/* Written down as "gaussian:1:17 lava:1:17": kernels, units, per cent slower. */
struct simulation_image {
	const char *name;
	const char *kernels;
	const char *places; /* "whole", "0 1"; NULL: whole */
};

struct simulation {
	struct gantry_sim_machine *machine;
	uint32_t nregions;
	uint64_t configure_ns;
	bool loses_memory;
	uint64_t save_ns;
	uint64_t age_ns;
	uint32_t nimages;
	struct gantry_bitstream *images[SIMULATION_MAX_IMAGES];
	uint32_t nprograms;
	struct simulation_program programs[SIMULATION_MAX_PROGRAMS];
	int (*load_fails)(uint32_t image,
			  uint32_t nth); /* optional: what the nth loading, from 1, ends with */
};

struct simulation_result {
	uint64_t total_ns; /* from the end of the first loading until the last program's end */
	uint64_t first_ns; /* the first loading's end */
	struct gantry_board_counts counts;
};

/* The times of kernels come from @machine_text's first device; loading takes @configure_ns everywhere. */
void simulation_init(struct simulation *sim, const char *machine_text, uint64_t configure_ns);
void simulation_fini(struct simulation *sim);
void simulation_add_image(struct simulation *sim, const struct simulation_image *image);
struct simulation_program *simulation_add_program(struct simulation *sim, const char *kernel,
						  uint32_t nlaunches);

/* Under the manager. @only: the name of the one image there is; NULL: all. */
struct simulation_result simulation_run(struct simulation *sim, enum gantry_plan_mode mode,
					const char *only);
/*
 * Without a manager: one program after the other has the board. @image: the image that all use, which is loaded; NULL: each its own of one unit, and
 * loading where the kernel changes.
 */
uint64_t simulation_alone_ns(const struct simulation *sim, const char *image);

#endif
