/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/error.h"
#include "guest-shim/queue.h"
#include "guest-shim/wait.h"

/* Whether everything that the range waits for has finished. */
static bool is_over(const struct gantry_session *s, const struct gantry_range *range)
{
	for (uint32_t i = 0; i < s->nqueues; i++)
		if (range->after[i] > gantry_queue_done(&s->queues[i]))
			return false;
	return true;
}

static void reclaim_locked(struct gantry_session *s)
{
	struct gantry_range **link = &s->deferred;

	while (*link) {
		struct gantry_range *range = *link;

		if (!is_over(s, range)) {
			link = &range->next;
			continue;
		}
		*link = range->next;
		gantry_heap_put(&s->heap, range->block);
		free(range);
	}
}

/*
 * 0; -ENOMEM; -ENOSPC; or -EAGAIN when something is on its way back: the oldest one's conditions
 * are copied to @ret_after.
 */
static int take(struct gantry_session *s, struct gantry_range *range, uint64_t bytes,
		uint64_t align, uint64_t ret_after[GANTRY_MAX_QUEUES])
{
	int r;

	pthread_mutex_lock(&s->heap_lock);
	reclaim_locked(s);
	r = gantry_heap_take(&s->heap, bytes, align, &range->block);
	if (r == -ENOSPC && s->deferred) {
		memcpy(ret_after, s->deferred->after, sizeof(s->deferred->after));
		r = -EAGAIN;
	}
	pthread_mutex_unlock(&s->heap_lock);
	return r;
}

int gantry_range_take(struct gantry_session *s, uint64_t bytes, uint64_t align,
		      uint64_t deadline_ns, struct gantry_range **ret_range)
{
	struct gantry_range *range = calloc(1, sizeof(*range));
	uint64_t after[GANTRY_MAX_QUEUES];
	int r;

	if (!range)
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	while ((r = take(s, range, bytes, align, after)) == -EAGAIN) {
		r = gantry_wait_tails(s, after, deadline_ns);
		if (r == GANTRY_E_TIMEOUT)
			r = gantry_fail(GANTRY_E_NO_MEMORY,
					"the heap has no room; freed buffers are still in use");
		if (r < 0) {
			free(range);
			return r;
		}
	}
	if (r < 0) {
		free(range);
		return gantry_fail(GANTRY_E_NO_MEMORY, "the heap has no %llu bytes in one piece",
				   (unsigned long long)bytes);
	}
	range->off = range->block->off;
	range->bytes = bytes;
	*ret_range = range;
	return 0;
}

void gantry_range_put(struct gantry_session *s, struct gantry_range *range)
{
	struct gantry_range **link = &s->deferred;

	if (!range)
		return;
	gantry_wait_snapshot(s, range->after);
	range->next = NULL;

	pthread_mutex_lock(&s->heap_lock);
	while (*link) /* at the end: the oldest is over first */
		link = &(*link)->next;
	*link = range;
	reclaim_locked(s);
	pthread_mutex_unlock(&s->heap_lock);
}

void gantry_ranges_fini(struct gantry_session *s)
{
	struct gantry_range *next;

	for (struct gantry_range *range = s->deferred; range; range = next) {
		next = range->next;
		free(range);
	}
	s->deferred = NULL;
}
