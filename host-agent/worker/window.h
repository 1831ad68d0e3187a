/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files about windows tell each other: window.c (asking, placing, giving back), window_slabs.c (slabs that come),
 * window_open.c (their life) and wash.c (what freed buffers leave). The rest of the worker needs memory.h.
 *
 * Functions named _locked want session->lock held.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_WINDOW_H
#define GANTRY_HOST_AGENT_WORKER_WINDOW_H

#include "host-agent/worker/memory.h"

/* Between the windows of a session's devices. */
#define WORKER_WINDOW_SPACING (1ull << 40)
/* Behind them, in the same order, what its ranges have of each device. */
#define WORKER_RANGES_BYTES (4ull << 40)
/* What all sessions of a tenant may have in a worker that others share: a process has 128 TiB. */
#define WORKER_RANGES_OF_TENANT (8ull << 40)
/* Before another slab is asked for ahead of need, after a refusal. */
#define WORKER_WINDOW_RETRY_NS 1000000000u

static inline uint64_t worker_window_down(const struct wwindow *w, uint64_t off)
{
	return off & ~(w->align - 1);
}

static inline uint64_t worker_window_up(const struct wwindow *w, uint64_t off)
{
	return (off + w->align - 1) & ~(w->align - 1);
}

static inline uint64_t worker_extent_end(const struct wextent *e)
{
	return e->off + e->len;
}

/* A range on its way back, and the windows that it is still washed in. */
struct washed {
	struct gantry_list link; /* wsession.washing */
	struct wextent part;
	uint32_t left;
	bool again; /* a slab came meanwhile that may hold anything */
	bool lost;  /* it could not be washed, and stays out of use as long as the session lives */
};

/* ---- window.c ---- */
/* The first slab that ends past @off. */
uint32_t worker_window_slab_after(const struct wwindow *w, uint64_t off);
/* The first part of [off, end) behind which slabs are mapped. */
bool worker_window_next_mapped(const struct wwindow *w, uint64_t off, uint64_t end,
			       struct wextent *ret_part);
/* Mapped granules that no buffer touches; and how much of that stays mapped. */
uint64_t worker_window_spare_locked(const struct wsession *s, const struct wwindow *w);
uint64_t worker_window_held_bytes(const struct wwindow *w);
bool worker_window_is_free_locked(const struct wsession *s, const struct wextent *part);
void worker_window_forget_ask(struct wwindow *w, struct wask *ask);
/* Whether an answer that is on its way may bring the slab again: it may not be given back then. */
bool worker_window_may_come_again(const struct wwindow *w, const struct wextent *slab);
/* Unmaps and gives back the @i-th slab. Device thread. */
void worker_window_drop_slab_locked(struct wdevice *d, struct wsession *s, uint32_t i);
/* Asks for what may be wanted next. */
void worker_window_reserve_locked(struct wsession *s, uint32_t device);

#endif
