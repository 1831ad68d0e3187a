/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spin.h"

#include "base/thread.h"

/*
 * A trial must outlast a warm round trip between two cores (0.3 us measured) and cost little when
 * it fails.
 */
#define SPIN_FLOOR_NS 2000u

/*
 * From a budget of zero one wait in this many makes a trial. Each trial that fails is followed by one twice
 * as long, up to the bound and then from the floor again: what spinning could catch may take longer than the
 * floor, and while both sides sleep for each other it always does.
 */
#define SPIN_TRIAL_EVERY 16u

static uint64_t ns_to_cycles(uint64_t ns)
{
	return ns / GANTRY_NS_PER_US * gantry_cycles_per_us() +
	       ns % GANTRY_NS_PER_US * gantry_cycles_per_us() / GANTRY_NS_PER_US;
}

void gantry_spin_init(struct gantry_spin *spin, uint64_t max_ns, unsigned int ncpus)
{
	if (ncpus == 0)
		ncpus = gantry_cpus_allowed();

	*spin = (struct gantry_spin){ 0 };
	if (ncpus == 1 || max_ns == 0)
		return;
	spin->max_cycles = ns_to_cycles(max_ns);
	spin->floor_cycles = ns_to_cycles(max_ns < SPIN_FLOOR_NS ? max_ns : SPIN_FLOOR_NS);
	spin->trial_cycles = spin->floor_cycles;
	spin->budget_cycles = spin->max_cycles / 2;
	if (spin->budget_cycles < spin->floor_cycles)
		spin->budget_cycles = spin->floor_cycles;
}

void gantry_spin_allow(struct gantry_spin *spin, uint64_t max_ns)
{
	uint64_t max_cycles = ns_to_cycles(max_ns);

	if (spin->max_cycles && spin->max_cycles < max_cycles)
		spin->max_cycles = max_cycles;
}

void gantry_spin_begin(struct gantry_spin *spin)
{
	uint64_t budget = spin->budget_cycles;

	if (budget == 0) {
		spin->idle_waits++;
		if (spin->idle_waits % SPIN_TRIAL_EVERY == 0)
			budget = spin->trial_cycles;
	}
	spin->until_cycles = budget ? gantry_cycles() + budget : 0;
}

void gantry_spin_end(struct gantry_spin *spin, bool hit)
{
	if (spin->until_cycles == 0)
		return;			/* nothing was tried, so nothing was learnt */
	if (spin->budget_cycles == 0) { /* it was a trial */
		if (hit)
			spin->budget_cycles = spin->trial_cycles;
		spin->trial_cycles *= 2;
		if (hit || spin->trial_cycles > spin->max_cycles)
			spin->trial_cycles = spin->floor_cycles;
	}
	if (!hit) {
		spin->budget_cycles /= 2;
		if (spin->budget_cycles < spin->floor_cycles)
			spin->budget_cycles = 0;
		return;
	}
	spin->idle_waits = 0;
	spin->budget_cycles *= 2;
	if (spin->budget_cycles < spin->floor_cycles)
		spin->budget_cycles = spin->floor_cycles;
	if (spin->budget_cycles > spin->max_cycles)
		spin->budget_cycles = spin->max_cycles;
}
