/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files about a session that arrives tell each other: handover_listen.c (who calls), handover_in.c (its place, its road) and
 * handover_ledger.c (what it brings, and what that costs).
 */
#ifndef GANTRY_HOST_AGENT_AGENT_HANDOVER_IN_H
#define GANTRY_HOST_AGENT_AGENT_HANDOVER_IN_H

#include "base/err.h"
#include "host-agent/agent/handover.h"

/* Another host has called: a mover of ours hears what it brings. @fd stays the caller's. One call too many is not answered. */
void gantry_handover_take_host(struct gantry_agent *a, int fd);

/*
 * The session's copied ledger, checked as memory, is one of this host's: its devices are those here that play its own. -ENODEV: there are none
 * such; -ENOENT: a kernel is not installed; -EINVAL.
 */
int gantry_handover_settle_ledger(struct gantry_handover *h, struct gantry_session *s,
				  struct gantry_err *err);
/* What the settled ledger has is charged, as far as there is room; the ledger says how far. -EDQUOT, -ENOMEM. */
int gantry_handover_charge_ledger(struct gantry_session *s, struct gantry_err *err);

#endif
