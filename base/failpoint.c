/* SPDX-License-Identifier: Apache-2.0 */
#include "base/failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/futex.h"

/* Whoever writes the page from outside wakes nobody. */
#define LOOK_NS (5 * GANTRY_NS_PER_MS)

static const struct gantry_failpoint_info infos[] = {
#define GANTRY_FAILPOINT(id, name, kind, program, what) \
	{ name, GANTRY_FAILPOINT_##kind, program, what },
#include "base/failpoints.def"
#undef GANTRY_FAILPOINT
};

/* NULL: nobody tests. Written once, before there are threads. */
static struct gantry_failpoint_slot *slots;

const struct gantry_failpoint_info *gantry_failpoint_at(uint32_t point)
{
	return point < GANTRY_NFAILPOINTS ? &infos[point] : NULL;
}

void gantry_failpoints_open(void)
{
	const char *path = getenv("GANTRY_FAILPOINTS");
	struct stat st;
	void *page;
	int fd;

	if (!path || slots)
		return;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    st.st_size >= (off_t)GANTRY_FAILPOINT_PAGE_BYTES) {
		page = mmap(NULL, GANTRY_FAILPOINT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			    fd, 0);
		slots = page == MAP_FAILED ? NULL : page;
	}
	(void)close(fd); /* the mapping stays */
}

/* True: it was more than 0, and is less by one. */
static bool count_down(uint32_t *count)
{
	uint32_t n = gantry_load_relaxed(count);

	do {
		if (n == 0)
			return false;
		if (n == GANTRY_FAILPOINT_ALWAYS)
			return true;
	} while (!gantry_cas(count, &n, n - 1));
	return true;
}

/* The action, once those that are to be skipped have passed; only one process gets each of its times. */
static uint32_t due(struct gantry_failpoint_slot *slot, uint32_t kind)
{
	/* Acquire: skip and times are the test's of this action. */
	uint32_t action = gantry_load_acquire(&slot->action);

	if (action == GANTRY_FAILPOINT_NOTHING || action == GANTRY_FAILPOINT_STALLED ||
	    (action == GANTRY_FAILPOINT_FAIL && kind != GANTRY_FAILPOINT_IO) ||
	    count_down(&slot->skip) || !count_down(&slot->times))
		return GANTRY_FAILPOINT_NOTHING;
	gantry_store_relaxed(&slot->pid, (int32_t)getpid());
	gantry_count_add(&slot->fired, 1u);
	return action;
}

static void stand_still(struct gantry_failpoint_slot *slot)
{
	gantry_store_release(&slot->action, (uint32_t)GANTRY_FAILPOINT_STALLED);
	while (gantry_load_acquire(&slot->action) == GANTRY_FAILPOINT_STALLED)
		(void)gantry_futex_wait(&slot->action, GANTRY_FAILPOINT_STALLED,
					gantry_now_ns() + LOOK_NS); /* it is looked at again */
}

int gantry_failpoint_io(enum gantry_failpoint point)
{
	struct gantry_failpoint_slot *slot = slots ? &slots[point] : NULL;

	if (!slot)
		return 0;
	gantry_count_add(&slot->hits, 1u);
	switch (due(slot, infos[point].kind)) {
	case GANTRY_FAILPOINT_DIE:
		_exit(GANTRY_FAILPOINT_STATUS);
	case GANTRY_FAILPOINT_STALL:
		stand_still(slot);
		return 0;
	case GANTRY_FAILPOINT_FAIL:
		return -EIO;
	default:
		return 0;
	}
}

void gantry_failpoint(enum gantry_failpoint point)
{
	(void)gantry_failpoint_io(point); /* a step does not fail */
}
