/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/pace.h"

#include "base/checked.h"
#include "base/clock.h"

#define TRIALS	     4u
#define FIRST_ROUNDS 4096u
#define ROUNDS_MAX   (1ull << 40)
#define GROWTH	     4u
/* Trials take so long at least, the shorter ones a part of it: then starting the loop does not count. */
#define TRIAL_NS (2 * GANTRY_NS_PER_MS)

static int fastest(int (*go)(void *cookie, uint64_t nrounds), void *cookie, uint64_t nrounds,
		   uint64_t *ret_ns)
{
	uint64_t best = UINT64_MAX;

	for (unsigned int i = 0; i < TRIALS; i++) {
		uint64_t start_ns = gantry_now_ns();
		int r = go(cookie, nrounds);

		if (r < 0)
			return r;
		best = gantry_min_u64(best, gantry_now_ns() - start_ns);
	}
	*ret_ns = gantry_max_u64(best, 1);
	return 0;
}

int gantry_pace_measure(int (*go)(void *cookie, uint64_t nrounds), void *cookie,
			uint64_t *ret_rounds_per_ms)
{
	uint64_t nrounds = FIRST_ROUNDS, before_ns = 0, ns = 0;
	int r = fastest(go, cookie, nrounds, &ns);

	/* On a machine that does much else, it is waiting that takes the time of few rounds. */
	do {
		before_ns = ns;
		nrounds *= GROWTH;
		if (r == 0)
			r = fastest(go, cookie, nrounds, &ns);
	} while (r == 0 && nrounds < ROUNDS_MAX && (ns < TRIAL_NS || ns < GROWTH / 2 * before_ns));
	if (r < 0)
		return r;
	/* What both trials took beside the rounds is no part of them. Below 2^42 rounds, so the product fits. */
	ns = ns > before_ns ? ns - before_ns : 1;
	nrounds -= nrounds / GROWTH;
	*ret_rounds_per_ms = gantry_max_u64(nrounds * GANTRY_NS_PER_MS / ns, 1);
	return 0;
}
