/* SPDX-License-Identifier: Apache-2.0 */
/* What freed buffers leave in windows is filled with zeros before its range is anyone's again. See window.c. */
#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "host-agent/worker/window.h"

#define WASH_AT_ONCE (256ull << 20)

struct wash_job {
	struct wjob job; /* first */
	struct washed *range;
	uint64_t at;
	bool begun;
};

/* Slabs that lie in the range wholly need no washing if they are given back, where the agent has it done. */
static void drop_inside(struct wdevice *d, struct wsession *s, const struct washed *range)
{
	struct wwindow *w = s->windows[d->index];
	uint64_t spare;

	pthread_mutex_lock(&s->lock);
	spare = worker_window_spare_locked(s, w);
	for (uint32_t i = w->nslabs; i-- > 0;) {
		const struct wextent *slab = &w->slabs[i];

		if (slab->off < range->part.off ||
		    worker_extent_end(slab) > worker_extent_end(&range->part))
			continue;
		if (worker_window_may_come_again(w, slab))
			continue;
		if (spare + slab->len <= worker_window_held_bytes(w))
			spare += slab->len;
		else
			worker_window_drop_slab_locked(d, s, i);
	}
	pthread_mutex_unlock(&s->lock);
}

static enum wjob_next wash_next(struct wdevice *d, struct wjob *base, struct gantry_cmd *cmd)
{
	struct wash_job *job = (struct wash_job *)base;
	struct wwindow *w = base->session->windows[d->index];
	struct wextent part;

	if (base->status != GANTRY_OK)
		return JOB_END;
	if (!job->begun)
		drop_inside(d, base->session, job->range);
	job->begun = true;
	if (!worker_window_next_mapped(w, job->at, worker_extent_end(&job->range->part), &part))
		return JOB_END;
	part.len = GANTRY_MIN(part.len, WASH_AT_ONCE);
	job->at = worker_extent_end(&part);
	gantry_count_add(&base->session->ledger.hdr->scrubbed_bytes, part.len);
	cmd->kind = GANTRY_CMD_FILL;
	cmd->fill.dst = (struct gantry_range){ w->mem, part.off, part.len };
	cmd->fill.pattern = 0;
	cmd->fill.pattern_bytes = 8;
	return JOB_COMMAND;
}

static void wash_end(struct wdevice *d, struct wjob *base)
{
	struct wash_job *job = (struct wash_job *)base;
	struct wsession *s = base->session;
	struct washed *range = job->range;
	bool last;

	pthread_mutex_lock(&s->lock);
	range->lost = range->lost || base->status != GANTRY_OK;
	last = --range->left == 0 && !range->lost;
	if (last) {
		gantry_list_remove(&range->link);
		s->nwashing--;
		if (range->again)
			worker_window_wash_locked(s, range->part.off, range->part.len, UINT32_MAX);
		else
			worker_slab_put_locked(s, range->part.off, range->part.len);
		free(range);
	}
	if (!gantry_load_acquire(&s->ending))
		(void)worker_window_trim_locked(d, s, false);
	pthread_mutex_unlock(&s->lock);
	free(job);
	if (last) /* somebody may wait for room */
		worker_session_wake(s);
}

static int wash_start_locked(struct wsession *s, uint32_t device, struct washed *range)
{
	struct wash_job *job = calloc(1, sizeof(*job));

	if (!job)
		return -ENOMEM;
	job->job.next = wash_next;
	job->job.end = wash_end;
	job->range = range;
	job->at = range->part.off;
	if (worker_job_start_locked(s, device, &job->job) < 0) {
		free(job);
		return -ENOMEM;
	}
	range->left++;
	return 0;
}

void worker_window_wash_locked(struct wsession *s, uint64_t off, uint64_t len, uint32_t windows)
{
	struct washed *range = NULL;
	struct wextent part;

	for (uint32_t i = 0; i < s->engine->ndevices; i++) {
		const struct wwindow *w = s->windows[i];

		if (!(windows >> i & 1) || !w || !w->mem || w->gone ||
		    !worker_window_next_mapped(w, off, off + len, &part))
			continue;
		if (!range) {
			range = calloc(1, sizeof(*range));
			if (!range)
				return; /* out of use: nobody may see what is there */
			range->part = (struct wextent){ off, len };
			gantry_list_init(&range->link);
			gantry_list_push_back(&s->washing, &range->link);
			s->nwashing++;
		}
		if (wash_start_locked(s, i, range) < 0)
			range->lost = true;
	}
	if (!range)
		worker_slab_put_locked(s, off, len);
}
