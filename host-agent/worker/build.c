/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/worker/build.h"

#include <fcntl.h>
#include <sys/prctl.h>

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

void worker_build_fill(Gantry__Worker__Ready *ready)
{
	ready->version = (char *)(uintptr_t)GANTRY_VERSION;
	ready->program = program;
}
