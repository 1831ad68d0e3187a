/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/cuda/calls/quick.h"

#include <stddef.h>

#include "base/atomic.h"
#include "base/checked.h"

/* The function's place, taken for it where it has none and @take; NULL: it has none. */
static struct gantry_quick_function *find(struct gantry_quick *quick, uint64_t id, bool take)
{
	for (uint32_t i = 0; i < GANTRY_QUICK_PROBES; i++) {
		struct gantry_quick_function *f =
			&quick->functions[((id ^ id >> 32) + i) & (GANTRY_QUICK_KNOWN - 1)];
		uint64_t has = gantry_load_relaxed(&f->id);

		if (has == 0 && !take)
			return NULL;
		/* Whoever else takes it at the same time is found in @has. */
		if (has == id || (has == 0 && (gantry_cas(&f->id, &has, id) || has == id)))
			return f;
	}
	return NULL;
}

/* Numbers that two threads change at once may lose one of the changes: the function is called slow or quick a little later. */
void gantry_quick_learn(struct gantry_quick *quick, uint64_t id, uint64_t ns)
{
	struct gantry_quick_function *f = find(quick, id, true);
	uint32_t nquick, wanted;

	if (!f)
		return;
	nquick = gantry_load_relaxed(&f->nquick);
	wanted = gantry_load_relaxed(&f->wanted);
	if (wanted == 0)
		wanted = GANTRY_QUICK_RUNS;
	if (ns <= GANTRY_QUICK_NS) {
		nquick = GANTRY_MIN(nquick + 1, GANTRY_QUICK_RUNS_MAX + GANTRY_QUICK_FORGIVEN);
	} else if (nquick >= wanted + GANTRY_QUICK_FORGIVEN && ns <= GANTRY_QUICK_LONG_NS) {
		nquick -= GANTRY_QUICK_FORGIVEN;
	} else {
		nquick = 0;
		wanted = GANTRY_MIN(2 * wanted, GANTRY_QUICK_RUNS_MAX);
	}
	gantry_store_relaxed(&f->nquick, nquick);
	gantry_store_relaxed(&f->wanted, wanted);
}

bool gantry_quick_is(struct gantry_quick *quick, uint64_t id)
{
	const struct gantry_quick_function *f = find(quick, id, false);

	/* A place that was taken a moment ago wants none yet. */
	return f && gantry_load_relaxed(&f->nquick) > 0 &&
	       gantry_load_relaxed(&f->nquick) >= gantry_load_relaxed(&f->wanted);
}
