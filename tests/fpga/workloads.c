/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fpga/workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"

/* Launches of a Rodinia program's main kernel. 150 ms is a loading. */
static const char machine[] = "device fpga0 fpga 4G\n"
			      "kernel gaussian fpga0 4500us\n"
			      "kernel lava fpga0 4500us\n"
			      "kernel nw fpga0 1500us\n"
			      "kernel pathfinder fpga0 3ms\n"
			      "kernel particle fpga0 2ms\n"
			      "kernel hotspot fpga0 750us\n";

static const struct simulation_image images[] = {
	{ .name = "gaussian", .kernels = "gaussian:1:0" },
	{ .name = "lava", .kernels = "lava:1:0" },
	{ .name = "nw", .kernels = "nw:1:0" },
	{ .name = "pathfinder", .kernels = "pathfinder:1:0" },
	{ .name = "particle", .kernels = "particle:1:0" },
	{ .name = "hotspot", .kernels = "hotspot:1:0" },
	{ .name = "hotspot2", .kernels = "hotspot:2:0" },
	{ .name = "hotspot4", .kernels = "hotspot:4:0" },
	{ .name = "particle2", .kernels = "particle:2:0" },
	{ .name = "particle4", .kernels = "particle:4:0" },
	{ .name = "gaussian2", .kernels = "gaussian:2:17" },
	{ .name = "gaussian4", .kernels = "gaussian:4:52" },
	{ .name = "lava2", .kernels = "lava:2:17" },
	{ .name = "lava4", .kernels = "lava:4:52" },
	{ .name = "gaussian-lava", .kernels = "gaussian:1:17 lava:1:17" },
	{ .name = "gaussian-hotspot", .kernels = "gaussian:1:17 hotspot:1:17" },
	{ .name = "rodinia4", .kernels = "gaussian:1:52 lava:1:52 nw:1:52 pathfinder:1:52" },
	{ .name = "lava-nw", .kernels = "lava:1:17 nw:1:17" },
	{ .name = "nw-pathfinder", .kernels = "nw:1:17 pathfinder:1:17" },
	{ .name = "gaussian-nw", .kernels = "gaussian:1:17 nw:1:17" },
	{ .name = "particle-hotspot", .kernels = "particle:1:0 hotspot:1:0" },
	{ .name = "mixed4", .kernels = "gaussian:1:52 hotspot:1:52 lava:1:52 particle:1:52" },
};

const struct workload workloads[] = {
	{ 'A', "hotspot:20 hotspot:20", "hotspot2" },
	{ 'B', "hotspot:20 hotspot:20 hotspot:20 hotspot:20", "hotspot4" },
	{ 'C', "particle:10 particle:10", "particle2" },
	{ 'D', "particle:10 particle:10 particle:10 particle:10", "particle4" },
	{ 'E', "gaussian:2000 gaussian:2000", "gaussian2" },
	{ 'F', "gaussian:2000 gaussian:2000 gaussian:2000 gaussian:2000", "gaussian4" },
	{ 'G', "lava:400 lava:400", "lava2" },
	{ 'H', "lava:400 lava:400 lava:400 lava:400", "lava4" },
	{ 'I', "gaussian:2000 lava:400", "gaussian-lava" },
	{ 'J', "gaussian:2000 hotspot:20", "gaussian-hotspot" },
	{ 'K', "gaussian:2000 lava:400 nw:1000 pathfinder:400", "rodinia4" },
	{ 'L', "lava:400 nw:1000", "lava-nw" },
	{ 'M', "nw:1000 pathfinder:400", "nw-pathfinder" },
	{ 'N', "gaussian:2000 nw:1000", "gaussian-nw" },
	{ 'O', "particle:10 hotspot:20", "particle-hotspot" },
	{ 'P', "gaussian:40 hotspot:20 lava:18 particle:10", "mixed4" },
};
const unsigned int nworkloads = GANTRY_ARRAY_SIZE(workloads);

void workload_init(struct simulation *sim, const struct workload *workload)
{
	char kernel[64];
	const char *at = workload->programs;
	unsigned int n;
	int len;

	simulation_init(sim, machine, WORKLOAD_CONFIGURE_NS);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(images); i++)
		simulation_add_image(sim, &images[i]);
	for (; sscanf(at, " %63[^:]:%u%n", kernel, &n, &len) == 2; at += len) {
		/* The image's own text of the name lives as long as the simulation. */
		for (uint32_t i = 0; i < sim->nimages; i++) {
			if (strcmp(sim->images[i]->name, kernel) == 0)
				(void)simulation_add_program(sim, sim->images[i]->name, n);
		}
	}
}

struct workload_result workload_measure(const struct workload *workload)
{
	struct workload_result result = { 0 };
	struct simulation_result run;
	struct simulation sim;

	workload_init(&sim, workload);
	run = simulation_run(&sim, GANTRY_PLAN_AUTO, NULL);
	result.manager_ns = run.total_ns;
	result.nloads = run.counts.nloads;
	result.modes_ns[0] = simulation_run(&sim, GANTRY_PLAN_SINGLE, NULL).total_ns;
	result.modes_ns[1] = simulation_run(&sim, GANTRY_PLAN_SPATIAL, NULL).total_ns;
	result.spatial_ns = simulation_run(&sim, GANTRY_PLAN_AUTO, workload->shared).total_ns;
	result.single_ns = simulation_alone_ns(&sim, NULL);
	result.shared_ns = simulation_alone_ns(&sim, workload->shared);
	result.best_fixed_ns = gantry_min_u64(gantry_min_u64(result.single_ns, result.shared_ns),
					      result.spatial_ns);
	simulation_fini(&sim);
	return result;
}
