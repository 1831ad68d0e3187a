/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workloads like those of section 4.2 of the Arax paper (its A to P), scaled: a loading takes 150 ms where the paper's board took 15 s.
 *
 * The paper gives ratios, not times of kernels; ours are chosen so that the ratios it does give come out: A to D have kernels that do not get in each
 * other's way; in E to N an image of two makes each kernel 17 % slower and one of four 52 %; particle and hotspot together take a quarter of
 * a loading (O, where an image of both saves 81 %), and the four kernels of P together twice one (40 %). J is the paper's hardest case made harder: one
 * program four hundred times as long as the other, for which the image of both is the wrong one.
 */
#ifndef GANTRY_TESTS_FPGA_WORKLOADS_H
#define GANTRY_TESTS_FPGA_WORKLOADS_H

#include "tests/fpga/simulation.h"

#define WORKLOAD_CONFIGURE_NS 150000000ull

struct workload {
	char name;
	const char *programs; /* "gaussian:2000 lava:400": kernels and launches */
	const char *shared;   /* the image of several units that suits it */
};

extern const struct workload workloads[];
extern const unsigned int nworkloads;

/* The board with all images and the programs of @workload. */
void workload_init(struct simulation *sim, const struct workload *workload);

/* What became of a workload; times from the end of the first loading. */
struct workload_result {
	uint64_t manager_ns;
	uint64_t single_ns;   /* images of one unit, a program at a time */
	uint64_t shared_ns;   /* the image of several units, a program at a time */
	uint64_t spatial_ns;  /* that image, all at once, never changed */
	uint64_t modes_ns[2]; /* the manager when told: single, spatial */
	uint64_t best_fixed_ns;
	uint64_t nloads;
};

struct workload_result workload_measure(const struct workload *workload);

#endif
