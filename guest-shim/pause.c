/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/pause.h"

#include <sched.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"

#define YIELD_NS (10 * GANTRY_NS_PER_US) /* a sleep costs more than this whatever it is asked for */
#define MIN_NS	 (20 * GANTRY_NS_PER_US)
#define MAX_NS	 GANTRY_NS_PER_MS
#define SHARE	 4 /* a pause is this part of what was waited so far */

bool gantry_pause(struct gantry_pause *p)
{
	uint64_t now = gantry_now_ns(), waited, ns;
	struct timespec ts = { 0, 0 };

	if (now >= p->deadline_ns)
		return false;
	if (p->start_ns == 0)
		p->start_ns = now;
	waited = now - p->start_ns;
	if (waited < YIELD_NS) {
		(void)sched_yield(); /* cannot fail on Linux */
		return true;
	}
	ns = GANTRY_MAX(MIN_NS, GANTRY_MIN(MAX_NS, waited / SHARE));
	ts.tv_nsec = (long)GANTRY_MIN(ns, p->deadline_ns - now);
	(void)nanosleep(&ts, NULL); /* interrupted: the caller looks again, which is all it wants */
	return true;
}
