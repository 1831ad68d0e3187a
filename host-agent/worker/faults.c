/* SPDX-License-Identifier: Apache-2.0 */
/* What a board has given up, in the log: no task need fail of it, and nobody else would tell. Device thread. */
#include "base/log.h"
#include "host-agent/worker/worker.h"

void worker_faults_tell(struct wdevice *d)
{
	struct gantry_device_health health = { 0 };
	struct gantry_err why = GANTRY_ERR_NONE;

	if (d->device.info.kind != GANTRY_KIND_FPGA || !d->device.backend->health)
		return;
	/* What is gone is told by the end of its tasks. */
	if (d->device.backend->health(d->device.dev, &health, &why) < 0 ||
	    health.nfaults == d->nfaults)
		return;
	d->nfaults = health.nfaults;
	gantry_log(GANTRY_LOG_WARN, "device %s: %s", d->name, why.text);
}
