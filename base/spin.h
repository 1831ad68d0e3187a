/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long to spin before parking, learnt from how earlier waits went.
 *
 * A spin that succeeds saves a sleep and a wake-up (0.3 us against some 35 us). One that fails
 *burns a core, and where the peer needs this very CPU it delays what it waits for. So the budget
 *doubles after a wait that spinning caught, halves after one it did not, falls to zero after a few
 *failures, and is always zero on one CPU. From zero, every 16th wait tries a spin, longer each time, to notice
 *better times.
 *
 *	gantry_spin_begin(&spin);
 *	while (!(ready = look()) && gantry_spin_again(&spin))
 *		;
 *	gantry_spin_end(&spin, ready);
 *	if (!ready)
 *		park();
 *
 * Threads: one gantry_spin belongs to one thread. Blocking: never; no system call between begin and
 *end.
 */
#ifndef GANTRY_BASE_SPIN_H
#define GANTRY_BASE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/clock.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gantry_spin {
	uint64_t budget_cycles; /* for the next wait */
	uint64_t max_cycles;	/* 0: never spin */
	uint64_t floor_cycles;	/* a budget below this becomes 0; the length of the first trial */
	uint64_t trial_cycles;	/* length of the next trial */
	uint64_t until_cycles;	/* end of the spin under way */
	uint32_t idle_waits;	/* waits begun since the budget fell to zero */
};

/*
 * @max_ns bounds one spin; 0 turns spinning off. @ncpus is how many CPUs the thread may run on; 0
 * asks the system (sched_getaffinity). The first wait may spin half of @max_ns.
 */
void gantry_spin_init(struct gantry_spin *spin, uint64_t max_ns, unsigned int ncpus);

/* Raises the bound of one spin to @max_ns. Where spinning is off it stays so. */
void gantry_spin_allow(struct gantry_spin *spin, uint64_t max_ns);

/* Start of a wait. */
void gantry_spin_begin(struct gantry_spin *spin);

/* End of the spinning part of a wait: @hit says whether what was waited for came. */
void gantry_spin_end(struct gantry_spin *spin, bool hit);

/* One relaxed turn; false when the budget is used up and it is time to park. */
static inline bool gantry_spin_again(const struct gantry_spin *spin)
{
	if (gantry_cycles() >= spin->until_cycles)
		return false;
	gantry_cpu_relax();
	return true;
}

#ifdef __cplusplus
}
#endif

#endif
