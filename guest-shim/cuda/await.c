/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for words of memory: a thread of ours, made at the first one, looks at each whose turn in its stream has come, ever more seldom while
 * nothing comes of it, and lets the stream go on. Words of a device are copied here by a queue of its own, which waits for nothing.
 *
 * A word whose memory is freed meanwhile is waited for in vain, as it is where freeing waits for the stream. A lock of its own, as in hostfn.c.
 */
#include <stdlib.h>
#include <time.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "guest-shim/cuda/memop.h"

#define NPLACES	      512u /* for words of devices */
#define LEAST_LOOK_NS 10000u
#define MOST_LOOK_NS  1000000u

struct waiting {
	struct waiting *next;
	struct cu_word word;
	gantry_ticket after; /* 0: its turn has come */
	uint64_t value;
	unsigned int flags;
	struct cu_cell *cell;
	uint32_t place;	     /* where a device's word is copied to */
	gantry_ticket asked; /* by what; 0: nothing is under way */
	bool is_over;	     /* the word was seen */
	bool is_told;	     /* to its stream, or there was no room to */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t come = PTHREAD_COND_INITIALIZER;
static struct waiting *all;
static struct cu_bell bell;
static gantry_queue copying[CU_MAX_DEVICES];
static gantry_buffer places_buffer;
static uint64_t *places;
static bool is_taken[NPLACES];

/* ---- looking ---- */

static bool holds(const struct waiting *w, uint64_t now)
{
	uint64_t mask = w->word.is_wide ? UINT64_MAX : UINT32_MAX;
	uint64_t differ = (now - w->value) & mask;

	switch (w->flags) {
	case CU_STREAM_WAIT_VALUE_EQ:
		return differ == 0;
	case CU_STREAM_WAIT_VALUE_AND:
		return (now & w->value & mask) != 0;
	case CU_STREAM_WAIT_VALUE_NOR:
		return (~(now | w->value) & mask) != 0;
	default: /* at least, going round */
		return differ <= mask / 2;
	}
}

static uint64_t read_word(const void *at, bool is_wide)
{
	/* Acquire: what was written before the word is there for what follows. */
	return is_wide ? gantry_load_acquire((const uint64_t *)at)
		       : gantry_load_acquire((const uint32_t *)at);
}

/* A device's word, when its copy has come. */
static bool look_there(struct waiting *w, bool *ret_vain)
{
	gantry_queue queue = copying[cu_device_ordinal(w->word.dev)];
	int r;

	if (w->asked) {
		r = gantry_test(cu.session, w->asked);
		if (r == 0)
			return false;
		w->asked = 0;
		if (r > 0 && holds(w, read_word(&places[w->place], w->word.is_wide)))
			return true;
	}
	r = gantry_submit_copy(cu.session, queue, places_buffer, w->place * sizeof(uint64_t),
			       w->word.buffer, w->word.off,
			       w->word.is_wide ? sizeof(uint64_t) : sizeof(uint32_t), &w->asked);
	*ret_vain = r < 0 && r != GANTRY_E_AGAIN;
	return false;
}

static bool is_over(struct waiting *w, bool *ret_vain)
{
	if (w->is_over)
		return true;
	if (w->after && gantry_test(cu.session, w->after) == 0)
		return false;
	w->after = 0;
	return w->word.host ? holds(w, read_word(w->word.host, w->word.is_wide))
			    : look_there(w, ret_vain);
}

/* False: not now. */
static bool let_go_on(struct waiting *w)
{
	bool again = w->is_told;

	w->is_told = true;
	return cu_bell_ring(&bell, w->cell, again);
}

/* Whether something has come of it. */
static bool look_at_all_locked(void)
{
	struct waiting **at = &all;
	bool some = false;

	while (*at) {
		struct waiting *w = *at;
		bool is_vain = false;

		w->is_over = is_over(w, &is_vain);
		/* What waits in vain is not looked at again, and its stream stays where it is. */
		if (!is_vain && (!w->is_over || !let_go_on(w))) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		if (!w->word.host)
			is_taken[w->place] = false;
		free(w);
		some = true;
	}
	return some;
}

static void rest_locked(uint64_t ns)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)ns;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	(void)pthread_cond_clockwait(&come, &lock, CLOCK_MONOTONIC, &until);
}

static void *thread_main(void *arg)
{
	uint64_t look_ns = LEAST_LOOK_NS;

	(void)arg;
	(void)pthread_mutex_lock(&lock);
	for (;;) {
		if (!all) {
			(void)pthread_cond_wait(&come, &lock);
			look_ns = LEAST_LOOK_NS;
			continue;
		}
		if (look_at_all_locked())
			look_ns = LEAST_LOOK_NS;
		else
			rest_locked(look_ns);
		look_ns = GANTRY_MIN(look_ns + look_ns / 4, MOST_LOOK_NS);
	}
	return NULL;
}

/* ---- beginning; with cu.lock and this file's ---- */

static bool make_places(void)
{
	void *at;

	if (places)
		return true;
	if (!places_buffer && gantry_alloc(cu.session, NPLACES * sizeof(uint64_t),
					   GANTRY_ALLOC_HOST, &places_buffer) < 0)
		return false;
	if (gantry_map(cu.session, places_buffer, 0, NPLACES * sizeof(uint64_t), GANTRY_RW,
		       GANTRY_FOREVER, &at) < 0)
		return false;
	places = at;
	return true;
}

/* False: there are as many waits for words of devices already, or the session has no more queues. */
static bool take_place(const struct cu_device *dev, uint32_t *ret_place)
{
	const struct gantry_queue_options options = { .kind = GANTRY_KIND_CUDA,
						      .device_mask = 1ull << dev->index };
	gantry_queue *queue = &copying[cu_device_ordinal(dev)];

	if (!make_places() || (!*queue && gantry_queue_open(cu.session, &options, queue) < 0))
		return false;
	for (uint32_t i = 0; i < NPLACES; i++)
		if (!is_taken[i]) {
			is_taken[i] = true;
			*ret_place = i;
			return true;
		}
	return false;
}

static void put_back(struct waiting *w)
{
	(void)pthread_mutex_lock(&lock);
	if (!w->word.host)
		is_taken[w->place] = false;
	(void)pthread_mutex_unlock(&lock);
	if (w->cell)
		cu_cell_put_locked(w->cell, 0);
	free(w);
}

static CUresult prepare(const struct cu_word *word, struct waiting **ret_waiting)
{
	struct waiting *w = calloc(1, sizeof(*w));
	bool is_ready;

	if (!w)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->word = *word;
	(void)pthread_mutex_lock(&lock);
	is_ready = cu_bell_start(&bell, thread_main) &&
		   (word->host || take_place(word->dev, &w->place));
	(void)pthread_mutex_unlock(&lock);
	if (!is_ready) {
		free(w);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	w->cell = cu_cell_take_locked();
	if (!w->cell) {
		put_back(w);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_waiting = w;
	return CUDA_SUCCESS;
}

/* Two tasks: one tells when its turn has come, the other waits. */
static CUresult put(struct CUstream_st *stream, struct waiting *w)
{
	gantry_ticket ticket = 0;
	int r;

	do
		r = gantry_submit_marker(cu.session, stream->queue, &ticket);
	while (r == GANTRY_E_AGAIN);
	w->after = ticket;
	if (r == 0)
		do
			r = gantry_submit_await(cu.session, stream->queue, cu_cell_off(w->cell), 1,
						&ticket);
		while (r == GANTRY_E_AGAIN);
	return cu_stream_put_locked(stream, r, ticket);
}

CUresult cu_await_put_locked(struct CUstream_st *stream, const struct cu_word *word, uint64_t value,
			     unsigned int flags)
{
	struct waiting *w;
	CUresult result = cu_stream_begin_locked(stream);

	if (result == CUDA_SUCCESS)
		result = prepare(word, &w);
	if (result != CUDA_SUCCESS)
		return result;
	w->value = value;
	w->flags = flags;
	result = put(stream, w);
	if (result != CUDA_SUCCESS) {
		put_back(w);
		return result;
	}
	/* Its word is somebody else's when the task that waits for it is done. */
	cu_cell_put_locked(w->cell, stream->last);
	(void)pthread_mutex_lock(&lock);
	w->next = all;
	all = w;
	(void)pthread_cond_signal(&come);
	(void)pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}
