/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/cuda/calls/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

/* Of the memory, behind the head: @nids numbers, padded to 8 bytes, then the request, padded likewise. */
struct entry {
	uint32_t bytes; /* of all of it */
	uint16_t what;	/* enum gantry_calls_recipe */
	uint16_t nsubjects;
	uint32_t nids; /* the subjects come first */
	uint32_t request_bytes;
};

static uint64_t pad(uint64_t bytes)
{
	return (bytes + 7) & ~7ull;
}

static const uint32_t *ids_of(const struct entry *e)
{
	return (const uint32_t *)(e + 1);
}

static const uint8_t *request_of(const struct entry *e)
{
	return (const uint8_t *)(e + 1) + pad(e->nids * sizeof(uint32_t));
}

static uint8_t *half(const struct gantry_recipes *r, uint32_t which)
{
	return (uint8_t *)(r->head + 1) + which * r->half_bytes;
}

#define PAGES_BYTES (64ull << 10) /* that are asked for at a time */

/* The first @bytes of half @which may be used. */
static bool have_pages(struct gantry_recipes *r, uint32_t which, uint64_t bytes)
{
	uint64_t upto = (bytes + PAGES_BYTES - 1) & ~(PAGES_BYTES - 1);
	uint64_t from = sizeof(*r->head) + which * r->half_bytes;

	upto = upto < r->half_bytes ? upto : r->half_bytes;
	if (!r->reserve || bytes <= r->reserved[which])
		return true;
	r->no_pages = r->reserve(r->reserve_cookie, from + r->reserved[which],
				 upto - r->reserved[which]) < 0;
	if (!r->no_pages)
		r->reserved[which] = upto;
	return !r->no_pages;
}

#define FULL_TIMES 4u
#define FULL_LEAST (64u << 10)

/* What is needed of it is in the way of each look: the more of it, the fewer looks. */
static void set_full(struct gantry_recipes *r, uint64_t needed_bytes)
{
	uint64_t bytes = needed_bytes < r->half_bytes ? FULL_TIMES * needed_bytes : r->half_bytes;

	bytes = bytes > FULL_LEAST ? bytes : FULL_LEAST;
	r->full_bytes = bytes < r->half_bytes ? bytes : r->half_bytes;
}

void gantry_recipes_init(struct gantry_recipes *recipes, void *base, uint64_t bytes,
			 gantry_recipes_reserve *reserve, const void *reserve_cookie)
{
	*recipes = (struct gantry_recipes){ 0 };
	if (!base || bytes < sizeof(struct gantry_keep_head) + 2 * sizeof(struct entry))
		return;
	recipes->head = base;
	recipes->half_bytes = (bytes - sizeof(struct gantry_keep_head)) / 2 & ~7ull;
	recipes->reserve = reserve;
	recipes->reserve_cookie = reserve_cookie;
	set_full(recipes, 0);
}

/* What lies there was written by another, or lies elsewhere now. */
static void forget_latest(struct gantry_recipes *r)
{
	r->nlatest = r->forgotten = 0;
}

void gantry_recipes_bar(struct gantry_recipes *recipes, const char *why)
{
	if (!recipes->head || gantry_load_relaxed(&recipes->head->barred))
		return;
	(void)snprintf(recipes->head->why, sizeof(recipes->head->why), "%s", why);
	/* Release: the sentence is there. */
	gantry_store_release(&recipes->head->barred, 1u);
}

void gantry_recipes_clear(struct gantry_recipes *recipes)
{
	if (!recipes->head)
		return;
	forget_latest(recipes);
	gantry_store_release(&recipes->head->used[0], (uint64_t)0);
	gantry_store_release(&recipes->head->used[1], (uint64_t)0);
	gantry_store_release(&recipes->head->active, 0u);
	gantry_store_release(&recipes->head->barred, 0u);
}

/* Those who write at the same time are at different places. */
static uint64_t writer_of(const struct gantry_recipes *recipes)
{
	return (uint64_t)(uintptr_t)recipes;
}

void gantry_recipes_take_over(struct gantry_recipes *recipes)
{
	if (!recipes->head)
		return;
	forget_latest(recipes);
	gantry_store_release(&recipes->head->writer, writer_of(recipes));
	/* Pairs with the one in append(): who wrote just now is seen, or sees this. */
	gantry_fence_full();
}

/* Another writes there: what each has made the other does not know. */
static bool is_another_s(struct gantry_recipes *recipes)
{
	uint64_t writer = gantry_load_acquire(&recipes->head->writer);

	if (writer == 0)
		gantry_recipes_take_over(recipes);
	if (writer == 0 || writer == writer_of(recipes))
		return false;
	gantry_recipes_bar(recipes, "libraries on two devices at once, as it went to the other");
	return true;
}

/* ---- looking at entries ---- */

/* A private copy of a half. */
struct view {
	uint8_t *at; /* NULL: there is no memory */
	uint64_t bytes;
	uint32_t half;
};

static uint64_t used_of(const struct gantry_recipes *r, uint32_t which)
{
	uint64_t used = gantry_load_acquire(&r->head->used[which]);

	return used <= r->half_bytes ? used : 0;
}

static struct view view_copy(struct gantry_recipes *r)
{
	struct view v = { .half = gantry_load_acquire(&r->head->active) & 1 };

	v.bytes = used_of(r, v.half);
	/* Whoever wrote how much there is may have written no more than that. */
	v.at = have_pages(r, v.half, v.bytes) ? malloc(v.bytes ? v.bytes : 1) : NULL;
	if (v.at)
		memcpy(v.at, half(r, v.half), v.bytes);
	return v;
}

/* The entry at @off; NULL: there is none that could be. */
static const struct entry *entry_at(const struct view *v, uint64_t off)
{
	const struct entry *e = (const void *)(v->at + off);
	uint64_t bytes;

	if (off > v->bytes || v->bytes - off < sizeof(*e))
		return NULL;
	bytes = sizeof(*e) + pad(e->nids * (uint64_t)sizeof(uint32_t)) + pad(e->request_bytes);
	return e->bytes == bytes && bytes <= v->bytes - off && e->nsubjects <= e->nids &&
			       e->nids <= 2 * GANTRY_RECIPE_IDS
		       ? e
		       : NULL;
}

bool gantry_recipes_each(struct gantry_recipes *recipes,
			 bool (*each)(void *arg, const uint32_t *subjects, uint32_t nsubjects,
				      const void *request, size_t bytes),
			 void *arg)
{
	const struct entry *e;
	bool all = true;
	struct view v;

	if (!recipes->head)
		return true;
	v = view_copy(recipes);
	if (!v.at)
		return false;
	for (uint64_t off = 0; all && off < v.bytes; off += e->bytes) {
		e = entry_at(&v, off);
		all = e && each(arg, ids_of(e), e->nsubjects, request_of(e), e->request_bytes);
		if (!all)
			break;
	}
	free(v.at);
	return all;
}

/* ---- what is needed yet ---- */

/* An entry of which an object is a subject. */
struct link {
	uint32_t entry;
	uint32_t next; /* index + 1 */
};

struct known {
	uint32_t id; /* 0: free */
	bool ended;
	bool needed;
	uint32_t links;	 /* index + 1 of the first */
	uint32_t waiter; /* index + 1 of the object to look at after it */
};

/* A compaction. All of it is private: the view's memory too. */
struct table {
	struct view v;
	uint32_t n;
	uint32_t *offs; /* of the @n entries */
	bool *stays;
	uint64_t *sums;
	uint64_t sums_mask;
	struct known *of;
	uint32_t shift; /* of a product's upper bits that say where an object's place is */
	uint64_t odd;	/* nobody outside knows it: who chose numbers cannot choose their places */
	struct link *links;
	uint32_t nlinks;
	uint32_t waiting; /* index + 1 of objects that are needed and have not been looked at */
	uint64_t nlooked;
};

static uint64_t size_of(const struct table *t)
{
	return 1ull << (64 - t->shift);
}

static const struct entry *entry_of(const struct table *t, uint32_t i)
{
	return (const void *)(t->v.at + t->offs[i]);
}

static struct known *find(const struct table *t, uint32_t id)
{
	uint64_t i = id * t->odd >> t->shift;

	while (t->of[i].id && t->of[i].id != id)
		i = (i + 1) & (size_of(t) - 1);
	t->of[i].id = id;
	return &t->of[i];
}

/* Where entries are, and how many objects they name. False: not all of it is entries. */
static bool table_measure(struct table *t, uint64_t *ret_nids)
{
	const struct entry *e;
	uint64_t off;

	*ret_nids = 0;
	for (off = 0; (e = entry_at(&t->v, off)) != NULL; off += e->bytes, t->n++) {
		*ret_nids += e->nids;
		if (t->offs)
			t->offs[t->n] = (uint32_t)off;
	}
	return off == t->v.bytes;
}

static bool table_init(struct table *t)
{
	uint64_t nids, size = 64;

	/* No entry is smaller than its head. */
	t->offs = calloc(t->v.bytes / sizeof(struct entry) + 1, sizeof(*t->offs));
	if (!t->v.at || t->v.bytes > UINT32_MAX || !t->offs || !table_measure(t, &nids))
		return false;
	t->shift = 64 - 6;
	while (size_of(t) < 2 * nids + 2)
		t->shift--;
	while (size < 2ull * t->n + 2)
		size *= 2;
	t->sums_mask = size - 1;
	t->of = calloc(size_of(t), sizeof(*t->of));
	t->links = calloc(nids + 1, sizeof(*t->links));
	t->stays = calloc(t->n + 1, sizeof(*t->stays));
	t->sums = calloc(size, sizeof(*t->sums));
	t->odd = (uint64_t)(uintptr_t)t->of * 0x9e3779b97f4a7c15ull | 1;
	return t->of && t->links && t->stays && t->sums;
}

static void table_fini(struct table *t)
{
	free(t->v.at);
	free(t->offs);
	free(t->of);
	free(t->links);
	free(t->stays);
	free(t->sums);
}

static void need(struct table *t, struct known *k)
{
	if (k->needed)
		return;
	k->needed = true;
	k->waiter = t->waiting;
	t->waiting = (uint32_t)(k - t->of) + 1;
}

/* Whatever was ended is as gone as its last entry says. */
static void find_alive(struct table *t)
{
	for (uint32_t n = 0; n < t->n; n++) {
		const struct entry *e = entry_of(t, n);

		for (uint32_t i = 0; i < e->nids; i++) {
			struct known *k = find(t, ids_of(e)[i]);

			if (i >= e->nsubjects)
				continue;
			if (e->what == GANTRY_RECIPE_ENDS || e->what == GANTRY_RECIPE_MAKES)
				k->ended = e->what == GANTRY_RECIPE_ENDS;
			t->links[t->nlinks++] = (struct link){ n, k->links };
			k->links = t->nlinks;
		}
	}
	for (uint64_t i = 0; i < size_of(t); i++)
		if (t->of[i].id && !t->of[i].ended)
			need(t, &t->of[i]);
}

/* What needed objects were made of and set with is needed too. Each entry is looked at once, however they follow each other. */
static void find_needed(struct table *t)
{
	while (t->waiting) {
		struct known *k = &t->of[t->waiting - 1];

		t->waiting = k->waiter;
		for (uint32_t l = k->links; l; l = t->links[l - 1].next) {
			uint32_t n = t->links[l - 1].entry;
			const struct entry *e = entry_of(t, n);

			if (t->stays[n])
				continue;
			t->stays[n] = true;
			t->nlooked++;
			for (uint32_t i = 0; i < e->nids; i++)
				need(t, find(t, ids_of(e)[i]));
		}
	}
}

/* Calls that are the same but for what they set: a sum over what tells one from another, never 0. */
static uint64_t sum_of(const struct entry *e)
{
	const struct gantry_calls_request *request = (const void *)request_of(e);
	uint64_t sum = 0xcbf29ce484222325ull ^ request->function, first = 0;

	for (uint32_t i = 0; i < e->nids; i++)
		sum = (sum ^ ids_of(e)[i]) * 0x100000001b3ull;
	if (e->what == GANTRY_RECIPE_SETS_ONE &&
	    e->request_bytes >= sizeof(*request) + sizeof(first))
		memcpy(&first, request + 1, sizeof(first));
	sum = (sum ^ first) * 0x9e3779b97f4a7c15ull;
	return sum ? sum : 1;
}

static bool replaces(const struct entry *e)
{
	return (e->what == GANTRY_RECIPE_SETS || e->what == GANTRY_RECIPE_SETS_ONE) &&
	       e->request_bytes >= sizeof(struct gantry_calls_request);
}

/* From the last on, so that of the same the last one stays. */
static void drop_replaced(struct table *t)
{
	for (uint32_t n = t->n; n-- > 0;) {
		const struct entry *e = entry_of(t, n);
		uint64_t sum = t->stays[n] && replaces(e) ? sum_of(e) : 0;
		uint64_t at = (sum * t->odd >> 32) & t->sums_mask;

		while (sum && t->sums[at] && t->sums[at] != sum)
			at = (at + 1) & t->sums_mask;
		if (sum && t->sums[at] == sum)
			t->stays[n] = false;
		if (sum)
			t->sums[at] = sum;
	}
}

/* Entries only move down in the copy; so many bytes are left of it. */
static uint64_t close_ranks(struct table *t)
{
	uint64_t used = 0;

	for (uint32_t n = 0; n < t->n; n++) {
		uint32_t bytes = entry_of(t, n)->bytes;

		if (!t->stays[n])
			continue;
		memmove(t->v.at + used, entry_of(t, n), bytes);
		used += bytes;
	}
	return used;
}

static bool write_other(struct gantry_recipes *r, const struct view *v, uint64_t used)
{
	uint32_t other = !v->half;

	if (!have_pages(r, other, used))
		return false;
	memcpy(half(r, other), v->at, used);
	gantry_store_release(&r->head->used[other], used);
	/* Release: whoever comes after our death reads the one or the other, whole. */
	gantry_store_release(&r->head->active, other);
	return true;
}

bool gantry_recipes_compact(struct gantry_recipes *recipes, struct gantry_recipes_work *ret_work)
{
	struct table t = { .v = view_copy(recipes) };
	bool done = table_init(&t);
	uint64_t needed = 0;

	if (done) {
		find_alive(&t);
		find_needed(&t);
		drop_replaced(&t);
		/* No more than was copied out of a half. */
		needed = close_ranks(&t);
		done = write_other(recipes, &t.v, needed);
	}
	if (done) {
		set_full(recipes, needed);
		forget_latest(recipes);
	}
	if (ret_work)
		*ret_work = (struct gantry_recipes_work){ t.n, t.nlooked };
	table_fini(&t);
	return done;
}

/* ---- the latest ---- */

static void remember(struct gantry_recipes *r, uint64_t off, uint32_t what,
		     const struct gantry_calls_notes *notes)
{
	uint64_t i = r->nlatest++ % GANTRY_RECIPES_LATEST;

	r->latest[i].off = off;
	r->latest[i].id = notes->nsubjects == 1 ? notes->subjects[0] : 0;
	r->latest[i].what = what;
	if (r->nlatest - r->forgotten > GANTRY_RECIPES_LATEST)
		r->forgotten++;
}

/*
 * @id ends. Where all behind the entry that made it is about it alone, none of that is needed, nor that it ended. False: there is more, or it is
 * not remembered.
 */
static bool take_off(struct gantry_recipes *r, uint32_t id)
{
	uint32_t active = gantry_load_relaxed(&r->head->active) & 1;

	for (uint64_t n = r->nlatest; n > r->forgotten; n--) {
		uint64_t i = (n - 1) % GANTRY_RECIPES_LATEST;

		if (r->latest[i].id != id || r->latest[i].what == GANTRY_RECIPE_ENDS)
			return false;
		if (r->latest[i].what != GANTRY_RECIPE_MAKES)
			continue;
		r->nlatest = n - 1;
		gantry_store_release(&r->head->used[active], r->latest[i].off);
		return true;
	}
	return false;
}

/* ---- writing down ---- */

static bool append(struct gantry_recipes *r, uint32_t what, const struct gantry_calls_notes *notes,
		   const void *request, size_t bytes)
{
	uint32_t active = gantry_load_relaxed(&r->head->active) & 1;
	uint64_t used = gantry_load_relaxed(&r->head->used[active]);
	uint32_t nids = notes->nsubjects + notes->nothers;
	struct entry e = { .what = (uint16_t)what,
			   .nsubjects = (uint16_t)notes->nsubjects,
			   .nids = nids,
			   .request_bytes = (uint32_t)bytes };
	uint64_t wants = sizeof(e) + pad(nids * sizeof(uint32_t)) + pad(bytes);
	uint8_t *to = half(r, active) + used, *ids = to + sizeof(e);

	if (used > r->half_bytes || used % 8 || wants > r->half_bytes - used ||
	    (used > 0 && used + wants > r->full_bytes) || !have_pages(r, active, used + wants))
		return false;
	e.bytes = (uint32_t)wants;
	memset(to, 0, wants);
	memcpy(to, &e, sizeof(e));
	memcpy(ids, notes->subjects, notes->nsubjects * sizeof(uint32_t));
	memcpy(ids + notes->nsubjects * sizeof(uint32_t), notes->others,
	       notes->nothers * sizeof(uint32_t));
	memcpy(ids + pad(nids * sizeof(uint32_t)), request, bytes);
	/* Release: it is whole. */
	gantry_store_release(&r->head->used[active], used + wants);
	remember(r, used, what, notes);
	gantry_fence_full(); /* pairs with the one in gantry_recipes_take_over() */
	(void)is_another_s(r);
	return true;
}

/* What is needed fills most of it: soon it would be looked at for every call. */
static bool is_crowded(const struct gantry_recipes *r)
{
	return used_of(r, gantry_load_relaxed(&r->head->active) & 1) > r->half_bytes / 8 * 7;
}

void gantry_recipes_note(struct gantry_recipes *recipes,
			 const struct gantry_calls_function *function,
			 const struct gantry_calls_notes *notes, const void *request, size_t bytes)
{
	if (!recipes->head || function->recipe == GANTRY_RECIPE_NONE ||
	    gantry_load_relaxed(&recipes->head->barred))
		return;
	if (function->recipe == GANTRY_RECIPE_BARS) {
		gantry_recipes_bar(recipes, function->name);
		return;
	}
	if ((notes->nsubjects == 0 && !notes->failed) || is_another_s(recipes))
		return;
	if (!notes->failed && function->recipe == GANTRY_RECIPE_ENDS && notes->nsubjects == 1 &&
	    take_off(recipes, notes->subjects[0]))
		return;
	if (!notes->failed && append(recipes, function->recipe, notes, request, bytes))
		return;
	if (!notes->failed)
		(void)gantry_recipes_compact(recipes, NULL);
	if (notes->failed || is_crowded(recipes) ||
	    !append(recipes, function->recipe, notes, request, bytes))
		gantry_recipes_bar(
			recipes,
			recipes->no_pages
				? "objects of libraries that the host had no memory to write down"
				: "more objects of libraries than are written down");
}
