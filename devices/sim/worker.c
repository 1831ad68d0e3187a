/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work=cpu: a simulated device whose results are right, because a cpu device of one core does the
 * work.
 */
#include <errno.h>
#include <string.h>

#include "devices/sim/sim.h"

int gantry_sim_worker_open(struct gantry_sim_worker *worker, const char *work,
			   const struct gantry_device_host *host, struct gantry_err *err)
{
	const struct gantry_device_conf conf = { .name = "work", .backend = "cpu" };
	const struct gantry_stream_attr attr = { 0 };
	int r;

	if (!work)
		return 0;
	if (strcmp(work, "cpu") != 0)
		return gantry_err_set(err, -EINVAL, "work: only cpu can do it");
	r = gantry_device_open(&conf, host, &worker->device, err);
	if (r < 0)
		return gantry_err_wrap(err, r, "work");
	return worker->device.backend->stream_create(worker->device.dev, &attr, &worker->stream,
						     err);
}

void gantry_sim_worker_close(struct gantry_sim_worker *worker)
{
	gantry_device_close(&worker->device);
}

static void unwrap_range(struct gantry_range *range)
{
	if (range->mem)
		range->mem = range->mem->inner;
}

static void unwrap_launch(struct gantry_cmd_launch *launch)
{
	const struct gantry_signature *sig = launch->kernel->sig;

	launch->kernel = launch->kernel->inner;
	for (uint32_t i = 0; i < launch->nargs; i++)
		if (sig->args[i].mode)
			unwrap_range(&launch->args[i].range);
}

void gantry_sim_worker_run(struct gantry_sim_worker *worker, const struct gantry_cmd *cmd,
			   struct gantry_done *done)
{
	const struct gantry_backend *backend = worker->device.backend;
	struct gantry_cmd inner = *cmd;
	struct gantry_done told;

	if (!backend)
		return;
	if (cmd->kind == GANTRY_CMD_LAUNCH) {
		unwrap_launch(&inner.launch);
	} else if (cmd->kind == GANTRY_CMD_COPY) {
		unwrap_range(&inner.copy.dst);
		unwrap_range(&inner.copy.src);
	} else {
		unwrap_range(&inner.fill.dst);
	}
	/* One core and one command at a time: it is run by this poll() and no other. */
	if (backend->submit(worker->stream, &inner) < 0 ||
	    backend->poll(worker->device.dev, &told, 1) != 1) {
		done->status = GANTRY_E_INTERNAL;
		done->blast = GANTRY_BLAST_CMD;
		return;
	}
	done->status = told.status;
	done->blast = told.blast;
}
