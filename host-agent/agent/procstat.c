/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/procstat.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"

#define STAT_MAX    4096u
#define PF_EXITING  0x4u
#define PF_SIGNALED 0x400u

/* Fields of the text, as proc(5) counts them, from 1. */
enum field {
	FIELD_NAME = 2,
	FIELD_STATE = 3,
	FIELD_FLAGS = 9,
	FIELD_STARTTIME = 22,
	FIELD_SIGNAL = 31,
};

/* Where the next of the fields that are wanted begins; NULL: the text ends before. */
static const char *forward(const char *at, enum field from, enum field to)
{
	for (int field = from; at && field < (int)to; field++) {
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	return at;
}

static int parse(const char *text, struct gantry_procstat *ret)
{
	uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
	const char *name_end = strrchr(text, ')'); /* the name before it may hold anything */
	const char *state = forward(name_end, FIELD_NAME, FIELD_STATE);
	const char *flags = forward(state, FIELD_STATE, FIELD_FLAGS);
	const char *starttime = forward(flags, FIELD_FLAGS, FIELD_STARTTIME);
	const char *pending = forward(starttime, FIELD_STARTTIME, FIELD_SIGNAL);

	if (!pending || hz == 0)
		return -ENOTSUP;
	ret->state = *state;
	ret->started_ns = strtoull(starttime, NULL, 10) * (GANTRY_NS_PER_S / hz);
	/* One that is in a driver's hands has the signal before it, and takes it afterwards. */
	ret->ending = *state == 'X' || *state == 'Z' ||
		      (strtoul(flags, NULL, 10) & (PF_EXITING | PF_SIGNALED)) ||
		      (strtoull(pending, NULL, 10) >> (SIGKILL - 1) & 1);
	return 0;
}

int gantry_procstat(pid_t pid, pid_t tid, struct gantry_procstat *ret)
{
	_cleanup_free_ char *text = NULL;
	char path[64];
	int r;

	/* they fit */
	if (tid)
		(void)gantry_str_format(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid,
					(int)tid);
	else
		(void)gantry_str_format(path, sizeof(path), "/proc/%d/stat", (int)pid);
	r = gantry_file_read(path, STAT_MAX, &text, NULL);
	if (r < 0)
		return r == -ENOENT || r == -ESRCH ? -ESRCH : -ENOTSUP;
	return parse(text, ret);
}
