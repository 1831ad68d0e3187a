/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/cuda/calls/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/cleanup.h"

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

void gantry_recipes_init(struct gantry_recipes *recipes, void *base, uint64_t bytes)
{
	*recipes = (struct gantry_recipes){ 0 };
	if (!base || bytes < sizeof(struct gantry_keep_head) + 2 * sizeof(struct entry))
		return;
	recipes->head = base;
	recipes->half_bytes = (bytes - sizeof(struct gantry_keep_head)) / 2 & ~7ull;
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
	gantry_store_release(&recipes->head->used[0], (uint64_t)0);
	gantry_store_release(&recipes->head->used[1], (uint64_t)0);
	gantry_store_release(&recipes->head->active, 0u);
	gantry_store_release(&recipes->head->barred, 0u);
}

/* ---- looking at entries ---- */

/* A half as it is, in memory that nobody writes meanwhile. */
struct view {
	const uint8_t *at;
	uint64_t bytes;
};

static struct view view_of(const struct gantry_recipes *r)
{
	uint32_t active = gantry_load_acquire(&r->head->active) & 1;
	uint64_t used = gantry_load_acquire(&r->head->used[active]);

	return (struct view){ half(r, active), used <= r->half_bytes ? used : 0 };
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

bool gantry_recipes_each(const struct gantry_recipes *recipes,
			 bool (*each)(void *arg, const uint32_t *subjects, uint32_t nsubjects,
				      const void *request, size_t bytes),
			 void *arg)
{
	_cleanup_free_ uint8_t *copy = NULL;
	const struct entry *e;
	struct view v;

	if (!recipes->head)
		return true;
	v = view_of(recipes);
	copy = malloc(v.bytes ? v.bytes : 1);
	if (!copy)
		return false;
	memcpy(copy, v.at, v.bytes);
	v.at = copy;
	for (uint64_t off = 0; off < v.bytes; off += e->bytes) {
		e = entry_at(&v, off);
		if (!e || !each(arg, ids_of(e), e->nsubjects, request_of(e), e->request_bytes))
			return false;
	}
	return true;
}

/* ---- what is needed yet ---- */

struct known {
	uint32_t id; /* 0: free */
	bool ended;
	bool needed;
};

struct table {
	struct known *of;
	uint32_t mask;
};

static struct known *find(const struct table *t, uint32_t id)
{
	uint32_t i = id * 0x9e3779b1u & t->mask;

	while (t->of[i].id && t->of[i].id != id)
		i = (i + 1) & t->mask;
	t->of[i].id = id;
	return &t->of[i];
}

static bool table_init(struct table *t, uint64_t n)
{
	uint64_t size = 64;

	while (size < 2 * n + 2)
		size *= 2;
	t->of = size <= 1u << 28 ? calloc(size, sizeof(*t->of)) : NULL;
	t->mask = (uint32_t)size - 1;
	return t->of;
}

static bool concerns_needed(const struct table *t, const struct entry *e)
{
	for (uint32_t i = 0; i < e->nsubjects; i++)
		if (find(t, ids_of(e)[i])->needed)
			return true;
	return false;
}

/* Whatever was ended is as gone as its last entry says. */
static void find_alive(const struct table *t, const struct view *v)
{
	const struct entry *e;

	for (uint64_t off = 0; (e = entry_at(v, off)) != NULL; off += e->bytes)
		for (uint32_t i = 0; i < e->nids; i++) {
			struct known *k = find(t, ids_of(e)[i]);

			if (i < e->nsubjects && e->what == GANTRY_RECIPE_ENDS)
				k->ended = true;
			else if (i < e->nsubjects && e->what == GANTRY_RECIPE_MAKES)
				k->ended = false;
		}
	for (uint64_t i = 0; i <= t->mask; i++)
		t->of[i].needed = t->of[i].id && !t->of[i].ended;
}

/* What needed objects were made of and set with is needed too. */
static void find_needed(const struct table *t, const struct view *v)
{
	bool again = true;

	while (again) {
		const struct entry *e;

		again = false;
		for (uint64_t off = 0; (e = entry_at(v, off)) != NULL; off += e->bytes) {
			if (!concerns_needed(t, e))
				continue;
			for (uint32_t i = 0; i < e->nids; i++) {
				struct known *k = find(t, ids_of(e)[i]);

				again = again || !k->needed;
				k->needed = true;
			}
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

/* Offsets of those of @offs that stay; from the last on, so that of the same the last one does. */
static uint32_t drop_replaced(const struct view *v, uint32_t *offs, uint32_t n, uint64_t *sums,
			      uint64_t mask)
{
	uint32_t left = n;

	for (uint32_t i = n; i-- > 0;) {
		const struct entry *e = (const void *)(v->at + offs[i]);
		uint64_t sum = replaces(e) ? sum_of(e) : 0, at = sum & mask;

		while (sum && sums[at] && sums[at] != sum)
			at = (at + 1) & mask;
		if (sum && sums[at] == sum)
			continue;
		if (sum)
			sums[at] = sum;
		offs[--left] = offs[i];
	}
	memmove(offs, offs + left, (n - left) * sizeof(*offs));
	return n - left;
}

static uint64_t copy_those(const struct view *v, const uint32_t *offs, uint32_t n, uint8_t *to)
{
	uint64_t used = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct entry *e = (const void *)(v->at + offs[i]);

		memcpy(to + used, e, e->bytes);
		used += e->bytes;
	}
	return used;
}

static void take_other(struct gantry_recipes *r, uint64_t used)
{
	uint32_t other = !(gantry_load_relaxed(&r->head->active) & 1);

	gantry_store_release(&r->head->used[other], used);
	/* Release: whoever comes after our death reads the one or the other, whole. */
	gantry_store_release(&r->head->active, other);
}

void gantry_recipes_compact(struct gantry_recipes *recipes)
{
	struct view v = view_of(recipes);
	_cleanup_free_ uint32_t *offs = NULL;
	_cleanup_free_ uint64_t *sums = NULL;
	struct table t = { 0 };
	const struct entry *e;
	uint64_t n = 0, nids = 0, size = 64, off;

	for (off = 0; (e = entry_at(&v, off)) != NULL; off += e->bytes, n++)
		nids += e->nids;
	while (size < 2 * n + 2)
		size *= 2;
	offs = calloc(n + 1, sizeof(*offs));
	sums = calloc(size, sizeof(*sums));
	if (off == v.bytes && offs && sums && table_init(&t, nids)) {
		uint32_t kept = 0;

		find_alive(&t, &v);
		find_needed(&t, &v);
		for (off = 0; (e = entry_at(&v, off)) != NULL; off += e->bytes)
			if (concerns_needed(&t, e))
				offs[kept++] = (uint32_t)off;
		kept = drop_replaced(&v, offs, kept, sums, size - 1);
		take_other(recipes,
			   copy_those(&v, offs, kept, half(recipes, !(recipes->head->active & 1))));
	}
	free(t.of);
}

/* ---- writing down ---- */

static void write_ids(uint32_t *to, const struct gantry_calls_notes *notes)
{
	memcpy(to, notes->subjects, notes->nsubjects * sizeof(*to));
	memcpy(to + notes->nsubjects, notes->others, notes->nothers * sizeof(*to));
}

static bool append(struct gantry_recipes *r, uint32_t what, const struct gantry_calls_notes *notes,
		   const void *request, size_t bytes)
{
	uint32_t active = gantry_load_relaxed(&r->head->active) & 1, nids;
	uint64_t used = gantry_load_relaxed(&r->head->used[active]);
	struct entry *e = (void *)(half(r, active) + used);
	uint64_t wants;

	nids = notes->nsubjects + notes->nothers;
	wants = sizeof(*e) + pad(nids * sizeof(uint32_t)) + pad(bytes);
	if (used > r->half_bytes || used % 8 || wants > r->half_bytes - used)
		return false;
	memset(e, 0, wants);
	*e = (struct entry){ .bytes = (uint32_t)wants,
			     .what = (uint16_t)what,
			     .nsubjects = (uint16_t)notes->nsubjects,
			     .nids = nids,
			     .request_bytes = (uint32_t)bytes };
	write_ids((uint32_t *)(e + 1), notes);
	memcpy((uint8_t *)(uintptr_t)request_of(e), request, bytes);
	/* Release: it is whole. */
	gantry_store_release(&r->head->used[active], used + wants);
	return true;
}

/* What is needed fills most of it: soon it would be looked at for every call. */
static bool is_crowded(const struct gantry_recipes *r)
{
	return view_of(r).bytes > r->half_bytes / 8 * 7;
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
	if (notes->nsubjects == 0 && !notes->failed)
		return;
	if (!notes->failed && append(recipes, function->recipe, notes, request, bytes))
		return;
	if (!notes->failed)
		gantry_recipes_compact(recipes);
	if (notes->failed || is_crowded(recipes) ||
	    !append(recipes, function->recipe, notes, request, bytes))
		gantry_recipes_bar(recipes, "more objects of libraries than are written down");
}
