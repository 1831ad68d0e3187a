/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/worker/build.h"

#include <assert.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

static uint64_t program;

void worker_build_note(void)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);

	program = fd < 0 ? 0 : gantry_file_identity(fd);
	/* Started by descriptor, the kernel would name us by its number. For people only. */
	(void)prctl(PR_SET_NAME, "gantry-worker");
}

void worker_ready_init(struct worker_ready *ready, uint64_t worker_id,
		       const struct gantry_confine_report *report)
{
	gantry__worker__ready__init(&ready->msg);
	for (unsigned int i = 0; i < report->nmissing; i++)
		ready->missing[i] = (char *)(uintptr_t)report->missing[i];
	ready->msg.protocol = 1;
	ready->msg.worker_id = worker_id;
	ready->msg.pid = (uint32_t)getpid();
	ready->msg.version = (char *)(uintptr_t)GANTRY_VERSION;
	ready->msg.program = program;
	ready->msg.devices = ready->infos;
	ready->msg.confined = (char **)(uintptr_t)report->held;
	ready->msg.n_confined = report->nheld;
	ready->msg.unconfined = ready->missing;
	ready->msg.n_unconfined = report->nmissing;
}

void worker_ready_add(struct worker_ready *ready, const char *name,
		      const struct gantry_device_info *info, const char *error)
{
	Gantry__Worker__DeviceInfo *to = &ready->info[ready->msg.n_devices];

	assert(ready->msg.n_devices < GANTRY_ENGINE_MAX_DEVICES);
	gantry__worker__device_info__init(to);
	to->name = (char *)(uintptr_t)name;
	to->kind = info->kind;
	to->caps = info->caps;
	to->lanes = info->lanes;
	to->units = info->units;
	to->mem_bytes = info->mem_bytes;
	to->model = (char *)(uintptr_t)info->name;
	to->id = (char *)(uintptr_t)info->id;
	to->arch = (char *)(uintptr_t)info->arch;
	to->slab_align = info->slab_align;
	to->numa_node = info->numa_node;
	to->error = (char *)(uintptr_t)error;
	ready->infos[ready->msg.n_devices++] = to;
}
