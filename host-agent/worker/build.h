/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker, a steward too, says of itself: which program it is, for agents of other builds, its devices, and what it is kept from.
 * Threads: the control thread. Blocking: never.
 * Order: note() first, while /proc can be seen; Ready then as often as an agent asks.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_BUILD_H
#define GANTRY_HOST_AGENT_WORKER_BUILD_H

#include "host-agent/worker/confine.h"
#include "host-agent/worker/engine.h"
#include "worker.pb-c.h"

/* A message with what it points at. */
struct worker_ready {
	Gantry__Worker__Ready msg;
	Gantry__Worker__DeviceInfo info[GANTRY_ENGINE_MAX_DEVICES];
	Gantry__Worker__DeviceInfo *infos[GANTRY_ENGINE_MAX_DEVICES];
	char *missing[GANTRY_CONFINE_MAX];
};

void worker_build_note(void);
/* Without devices and sessions; @report outlives it. */
void worker_ready_init(struct worker_ready *ready, uint64_t worker_id,
		       const struct gantry_confine_report *report);
/* One more device, GANTRY_ENGINE_MAX_DEVICES at most; all that is given outlives @ready. @error "": it is open. */
void worker_ready_add(struct worker_ready *ready, const char *name,
		      const struct gantry_device_info *info, const char *error);

#endif
