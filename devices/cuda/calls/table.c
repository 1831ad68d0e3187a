/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A number is the place, from 1, and above its 16 bits 15 of generation: some libraries' handles are ints, and none
 * may be negative. Places from GANTRY_CALLS_CHOSEN are an array of their own: there the guest says what an object's number is.
 */
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/calls/run.h"

#define PLACE_BITS 16u
#define GENERATION 0x7fffu
#define FIRST	   64u

struct gantry_calls_kept {
	struct gantry_calls_kept *next;
	size_t bytes;
	_Alignas(16) uint8_t value[];
};

void gantry_calls_table_init(struct gantry_calls_table *table)
{
	*table = (struct gantry_calls_table){ 0 };
}

static void forget(struct gantry_calls_table *table, struct gantry_calls_object *object)
{
	while (object->kept) {
		struct gantry_calls_kept *next = object->kept->next;

		table->kept_bytes -= object->kept->bytes;
		free(object->kept);
		object->kept = next;
	}
	object->nkept = 0;
	gantry_calls_steps_free(object->steps);
	object->steps = NULL;
}

void gantry_calls_table_fini(struct gantry_calls_table *table)
{
	for (uint32_t i = 0; i < table->nobjects; i++)
		forget(table, &table->objects[i]);
	for (uint32_t i = 0; i < table->nchosen; i++)
		forget(table, &table->chosen[i]);
	free(table->objects);
	free(table->chosen);
	gantry_calls_table_init(table);
}

static bool grow(struct gantry_calls_table *table)
{
	uint32_t n = table->nobjects ? 2 * table->nobjects : FIRST;
	struct gantry_calls_object *objects;

	if (n > GANTRY_CALLS_MAX_OBJECTS)
		n = GANTRY_CALLS_MAX_OBJECTS;
	if (n == table->nobjects)
		return false;
	objects = realloc(table->objects, n * sizeof(*objects));
	if (!objects)
		return false;
	memset(objects + table->nobjects, 0, (n - table->nobjects) * sizeof(*objects));
	for (uint32_t i = n; i-- > table->nobjects;) {
		objects[i].next_free = table->first_free;
		table->first_free = i + 1;
	}
	table->objects = objects;
	table->nobjects = n;
	return true;
}

static uint64_t number(const struct gantry_calls_table *table,
		       const struct gantry_calls_object *object)
{
	uint64_t place = object->is_chosen
				 ? (uint64_t)(object - table->chosen) + GANTRY_CALLS_CHOSEN
				 : (uint64_t)(object - table->objects) + 1;

	return place | (uint64_t)object->generation << PLACE_BITS;
}

/* NULL: there is no such place. */
static struct gantry_calls_object *at(struct gantry_calls_table *table, uint64_t id)
{
	uint64_t place = id & ((1u << PLACE_BITS) - 1);

	if (place >= GANTRY_CALLS_CHOSEN)
		return place - GANTRY_CALLS_CHOSEN < table->nchosen
			       ? &table->chosen[place - GANTRY_CALLS_CHOSEN]
			       : NULL;
	return place > 0 && place <= table->nobjects ? &table->objects[place - 1] : NULL;
}

/* ---- by the library's own name of it ---- */

static uint32_t *bucket_of(struct gantry_calls_table *table, uint64_t native)
{
	return &table->buckets[native * 0x9e3779b97f4a7c15ull >> 32 & (GANTRY_CALLS_BUCKETS - 1)];
}

static uint32_t place_of(const struct gantry_calls_table *table,
			 const struct gantry_calls_object *object)
{
	return (uint32_t)(number(table, object) & ((1u << PLACE_BITS) - 1));
}

static void name(struct gantry_calls_table *table, struct gantry_calls_object *object)
{
	uint32_t *bucket = bucket_of(table, object->native);

	object->next_named = *bucket;
	*bucket = place_of(table, object);
}

static void unname(struct gantry_calls_table *table, struct gantry_calls_object *object)
{
	uint32_t *link = bucket_of(table, object->native);
	uint32_t place = place_of(table, object);

	while (*link != place)
		link = &at(table, *link)->next_named;
	*link = object->next_named;
}

static struct gantry_calls_object *find_native(struct gantry_calls_table *table, uint32_t kind,
					       uint64_t native)
{
	struct gantry_calls_object *object;

	for (uint32_t place = *bucket_of(table, native); place; place = object->next_named) {
		object = at(table, place);
		if (object->native == native && object->kind == kind)
			return object;
	}
	return NULL;
}

uint64_t gantry_calls_table_known(struct gantry_calls_table *table, uint32_t kind, uint64_t native)
{
	const struct gantry_calls_object *object = native ? find_native(table, kind, native) : NULL;

	return object ? number(table, object) : 0;
}

uint64_t gantry_calls_table_add(struct gantry_calls_table *table, uint32_t kind, uint64_t native)
{
	struct gantry_calls_object *object = native ? find_native(table, kind, native) : NULL;

	if (!native)
		return 0;
	if (object)
		return number(table, object);
	if (!table->first_free && !grow(table))
		return 0;
	object = &table->objects[table->first_free - 1];
	table->first_free = object->next_free;
	*object = (struct gantry_calls_object){
		.native = native,
		.kind = kind,
		.born = ++table->nborn,
		.generation = (object->generation + 1) & GENERATION,
	};
	name(table, object);
	return number(table, object);
}

bool gantry_calls_table_put(struct gantry_calls_table *table, uint32_t kind, uint64_t native,
			    uint64_t id)
{
	uint64_t place = id & ((1u << PLACE_BITS) - 1);
	struct gantry_calls_object *object;

	if (id > INT32_MAX || place == 0 || place >= GANTRY_CALLS_CHOSEN)
		return false;
	while (place > table->nobjects)
		if (!grow(table))
			return false;
	object = &table->objects[place - 1];
	if (object->native || find_native(table, kind, native))
		return false;
	*object = (struct gantry_calls_object){
		.native = native,
		.kind = kind,
		.born = ++table->nborn,
		.generation = (uint32_t)(id >> PLACE_BITS),
	};
	name(table, object);
	return true;
}

void gantry_calls_table_settle(struct gantry_calls_table *table)
{
	table->first_free = 0;
	for (uint32_t i = table->nobjects; i-- > 0;) {
		if (table->objects[i].native)
			continue;
		table->objects[i].next_free = table->first_free;
		table->first_free = i + 1;
	}
}

bool gantry_calls_table_is_free(const struct gantry_calls_table *table, uint64_t id)
{
	uint64_t i = id % GANTRY_CALLS_CHOSEN;

	return id <= INT32_MAX && (id & GANTRY_CALLS_CHOSEN) &&
	       (i >= table->nchosen || !table->chosen[i].native);
}

static bool grow_chosen(struct gantry_calls_table *table, uint32_t i)
{
	uint32_t n = table->nchosen ? table->nchosen : FIRST;
	struct gantry_calls_object *objects;

	if (i < table->nchosen)
		return true;
	while (n <= i)
		n *= 2;
	objects = realloc(table->chosen, n * sizeof(*objects));
	if (!objects)
		return false;
	memset(objects + table->nchosen, 0, (n - table->nchosen) * sizeof(*objects));
	table->chosen = objects;
	table->nchosen = n;
	return true;
}

bool gantry_calls_table_add_as(struct gantry_calls_table *table, uint32_t kind, uint64_t native,
			       uint64_t id)
{
	uint32_t i = id % GANTRY_CALLS_CHOSEN;
	uint64_t known;

	if (!grow_chosen(table, i))
		return false;
	/* What is made now was not there before: that number is of an object that has ended. */
	known = gantry_calls_table_known(table, kind, native);
	if (known)
		gantry_calls_table_drop(table, known);
	if (table->chosen[i].native)
		gantry_calls_table_drop(table, number(table, &table->chosen[i]));
	table->chosen[i] = (struct gantry_calls_object){
		.native = native,
		.kind = kind,
		.born = ++table->nborn,
		.generation = (uint32_t)(id >> PLACE_BITS),
		.is_chosen = true,
	};
	name(table, &table->chosen[i]);
	return true;
}

struct gantry_calls_object *gantry_calls_table_find(struct gantry_calls_table *table, uint32_t kind,
						    uint64_t id)
{
	struct gantry_calls_object *object = at(table, id);

	return object && object->native && object->kind == kind && number(table, object) == id
		       ? object
		       : NULL;
}

void *gantry_calls_table_keep(struct gantry_calls_table *table, uint64_t id, const void *from,
			      size_t bytes)
{
	struct gantry_calls_object *object = at(table, id);
	struct gantry_calls_kept *kept;

	if (object->nkept == GANTRY_CALLS_MAX_KEPT ||
	    bytes > GANTRY_CALLS_MAX_KEPT_BYTES - table->kept_bytes)
		return NULL;
	kept = malloc(sizeof(*kept) + bytes);
	if (!kept)
		return NULL;
	kept->bytes = bytes;
	table->kept_bytes += bytes;
	memcpy(kept->value, from, bytes);
	kept->next = object->kept;
	object->kept = kept;
	object->nkept++;
	return kept->value;
}

void gantry_calls_table_drop(struct gantry_calls_table *table, uint64_t id)
{
	struct gantry_calls_object *object = at(table, id);

	forget(table, object);
	if (object->native)
		unname(table, object);
	object->native = 0;
	if (object->is_chosen)
		return;
	object->next_free = table->first_free;
	table->first_free = (uint32_t)(object - table->objects) + 1;
}

static int newest_first(const void *a, const void *b)
{
	const struct gantry_calls_object *left = *(const struct gantry_calls_object *const *)a;
	const struct gantry_calls_object *right = *(const struct gantry_calls_object *const *)b;

	return left->born < right->born ? 1 : -(left->born > right->born);
}

/* Those of @objects that are alive go to @alive[n] and on, or to @each without such; how many there are then. */
static uint32_t end_some(const struct gantry_calls_object *objects, uint32_t nobjects,
			 const struct gantry_calls_object **alive, uint32_t n,
			 void (*each)(void *arg, const struct gantry_calls_object *object),
			 void *arg)
{
	for (uint32_t i = 0; i < nobjects; i++) {
		if (!objects[i].native)
			continue;
		if (alive)
			alive[n++] = &objects[i];
		else
			each(arg, &objects[i]);
	}
	return n;
}

void gantry_calls_table_end(struct gantry_calls_table *table,
			    void (*each)(void *arg, const struct gantry_calls_object *object),
			    void *arg)
{
	const struct gantry_calls_object **alive =
		calloc((size_t)table->nobjects + table->nchosen + 1, sizeof(*alive));
	uint32_t n = end_some(table->objects, table->nobjects, alive, 0, each, arg);

	n = end_some(table->chosen, table->nchosen, alive, n, each, arg);
	if (n > 0)
		qsort(alive, n, sizeof(*alive), newest_first);
	for (uint32_t i = 0; i < n; i++)
		each(arg, alive[i]);
	free(alive);
	gantry_calls_table_fini(table);
}
