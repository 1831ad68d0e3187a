/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/pace.h"

#include "base/checked.h"
#include "base/clock.h"

/* Long enough that starting the loop does not count, short enough that the trials seldom are interrupted. */
#define TRIAL_NS     (2 * GANTRY_NS_PER_MS)
#define TRIALS	     3u
#define FIRST_ROUNDS 4096u
#define ROUNDS_MAX   (1ull << 40)
#define GROWTH	     8u

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
	uint64_t nrounds = FIRST_ROUNDS, ns = 0;
	int r = fastest(go, cookie, nrounds, &ns);

	while (r == 0 && ns < TRIAL_NS && nrounds < ROUNDS_MAX) {
		nrounds *= GROWTH;
		r = fastest(go, cookie, nrounds, &ns);
	}
	if (r < 0)
		return r;
	/* Below 2^40 rounds, so the product fits. */
	*ret_rounds_per_ms = gantry_max_u64(nrounds * GANTRY_NS_PER_MS / ns, 1);
	return 0;
}
