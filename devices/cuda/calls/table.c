/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A number is the place, from 1, and above its 16 bits 15 of generation: some libraries' handles are ints, and none
 * may be negative.
 */
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/calls/run.h"

#define PLACE_BITS 16u
#define GENERATION 0x7fffu
#define FIRST	   64u

struct gantry_calls_kept {
	struct gantry_calls_kept *next;
	uint64_t value[2];
};

void gantry_calls_table_init(struct gantry_calls_table *table)
{
	*table = (struct gantry_calls_table){ 0 };
}

static void forget(struct gantry_calls_object *object)
{
	while (object->kept) {
		struct gantry_calls_kept *next = object->kept->next;

		free(object->kept);
		object->kept = next;
	}
	object->nkept = 0;
}

void gantry_calls_table_fini(struct gantry_calls_table *table)
{
	for (uint32_t i = 0; i < table->nobjects; i++)
		forget(&table->objects[i]);
	free(table->objects);
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
	return (uint64_t)(object - table->objects + 1) | (uint64_t)object->generation << PLACE_BITS;
}

/* Getters answer with objects that the guest has a number for: few are alive, and such calls are rare. */
static struct gantry_calls_object *find_native(struct gantry_calls_table *table, uint32_t kind,
					       uint64_t native)
{
	for (uint32_t i = 0; i < table->nobjects; i++)
		if (table->objects[i].native == native && table->objects[i].kind == kind)
			return &table->objects[i];
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
	return number(table, object);
}

struct gantry_calls_object *gantry_calls_table_find(struct gantry_calls_table *table, uint32_t kind,
						    uint64_t id)
{
	uint64_t place = id & ((1u << PLACE_BITS) - 1);
	struct gantry_calls_object *object;

	if (place == 0 || place > table->nobjects)
		return NULL;
	object = &table->objects[place - 1];
	return object->native && object->kind == kind && number(table, object) == id ? object
										     : NULL;
}

static struct gantry_calls_object *at(struct gantry_calls_table *table, uint64_t id)
{
	return &table->objects[(id & ((1u << PLACE_BITS) - 1)) - 1];
}

void *gantry_calls_table_keep(struct gantry_calls_table *table, uint64_t id, const void *from,
			      size_t bytes)
{
	struct gantry_calls_object *object = at(table, id);
	struct gantry_calls_kept *kept;

	if (object->nkept == GANTRY_CALLS_MAX_KEPT || bytes > sizeof(kept->value))
		return NULL;
	kept = calloc(1, sizeof(*kept));
	if (!kept)
		return NULL;
	memcpy(kept->value, from, bytes);
	kept->next = object->kept;
	object->kept = kept;
	object->nkept++;
	return kept->value;
}

void gantry_calls_table_drop(struct gantry_calls_table *table, uint64_t id)
{
	struct gantry_calls_object *object = at(table, id);

	forget(object);
	object->native = 0;
	object->next_free = table->first_free;
	table->first_free = (uint32_t)(object - table->objects) + 1;
}

static int newest_first(const void *a, const void *b)
{
	const struct gantry_calls_object *left = *(const struct gantry_calls_object *const *)a;
	const struct gantry_calls_object *right = *(const struct gantry_calls_object *const *)b;

	return left->born < right->born ? 1 : -(left->born > right->born);
}

void gantry_calls_table_end(struct gantry_calls_table *table,
			    void (*each)(void *arg, const struct gantry_calls_object *object),
			    void *arg)
{
	const struct gantry_calls_object **alive = calloc(table->nobjects + 1ul, sizeof(*alive));
	uint32_t n = 0;

	for (uint32_t i = 0; i < table->nobjects; i++) {
		if (!table->objects[i].native)
			continue;
		if (alive)
			alive[n++] = &table->objects[i];
		else
			each(arg, &table->objects[i]);
	}
	if (n > 0)
		qsort(alive, n, sizeof(*alive), newest_first);
	for (uint32_t i = 0; i < n; i++)
		each(arg, alive[i]);
	free(alive);
	gantry_calls_table_fini(table);
}
