/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recipes: a library that the test plays makes, sets and ends objects, as a guest's requests say; what was written down makes a second
 * table what the first one is.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "devices/cuda/calls/recipe.h"
#include "tests/unit/runner.h"

#define KIND	7u
#define NTHINGS 6000u
#define SMALL	(16u << 10) /* of the memory */

/* What the library has of an object; its name is 0x1000 and on. */
struct thing {
	bool alive;
	uint64_t made_of; /* native */
	uint64_t mode;
	uint64_t values[4];
};

enum {
	MAKE = 1,
	SET_MODE,
	SET_VALUE,
	END,
	SPOIL,
	LAST
};

struct world {
	struct thing things[NTHINGS];
	uint32_t nthings;
	bool fails;
	struct gantry_calls_site site;
	struct gantry_recipes recipes;
};

static struct world *at; /* of the call that runs */

static struct thing *thing(uint64_t native)
{
	return &at->things[(native - 0x1000) / 16];
}

/* The object to make it of or 0, then where it goes. */
static void serve_make(struct gantry_calls_run *run)
{
	uint64_t of = gantry_calls_take_handle(run, KIND, false);
	uint64_t *place = gantry_calls_take_place(run);
	uint64_t native = 0x1000 + at->nthings * 16;

	gantry_calls_need(run, place);
	if (!gantry_calls_may_run(run))
		return;
	if (!at->fails)
		at->things[at->nthings++] = (struct thing){ .alive = true, .made_of = of };
	gantry_calls_ran(run, 0, !at->fails);
	gantry_calls_give_object(run, KIND, native);
}

static void serve_mode(struct gantry_calls_run *run)
{
	uint64_t mode, object;

	gantry_calls_take(run, &mode, sizeof(mode));
	object = gantry_calls_take_handle(run, KIND, false);
	if (!gantry_calls_may_run(run))
		return;
	thing(object)->mode = mode;
	gantry_calls_ran(run, 0, true);
}

static void serve_value(struct gantry_calls_run *run)
{
	uint64_t which, value, object;

	gantry_calls_take(run, &which, sizeof(which));
	gantry_calls_take(run, &value, sizeof(value));
	object = gantry_calls_take_handle(run, KIND, false);
	if (which >= 4)
		gantry_calls_refuse(run);
	if (!gantry_calls_may_run(run))
		return;
	thing(object)->values[which] = value;
	gantry_calls_ran(run, 0, true);
}

static void serve_end(struct gantry_calls_run *run)
{
	uint64_t object = gantry_calls_take_handle(run, KIND, true);

	if (!gantry_calls_may_run(run))
		return;
	thing(object)->alive = false;
	gantry_calls_ran(run, 0, true);
}

static void serve_spoil(struct gantry_calls_run *run)
{
	(void)gantry_calls_take_handle(run, KIND, false);
	if (gantry_calls_may_run(run))
		gantry_calls_ran(run, 0, true);
}

static const struct gantry_calls_function functions[] = {
	{ MAKE, "make", serve_make, GANTRY_RECIPE_MAKES },
	{ SET_MODE, "setMode", serve_mode, GANTRY_RECIPE_SETS },
	{ SET_VALUE, "setValue", serve_value, GANTRY_RECIPE_SETS_ONE },
	{ END, "end", serve_end, GANTRY_RECIPE_ENDS },
	{ SPOIL, "spoil", serve_spoil, GANTRY_RECIPE_BARS },
};
static const struct gantry_calls_ender no_enders[] = { { 0, NULL, NULL } };
static const char *const no_needs[] = { NULL };
static const struct gantry_calls_library library = { .name = "played",
						     .soname = "none",
						     .needs = no_needs,
						     .functions = functions,
						     .nfunctions = LAST - 1,
						     .enders = no_enders };
static const struct gantry_calls_library *const libraries[] = { &library, NULL };

static void *symbol(void *cookie, const struct gantry_calls_library *l, const char *name)
{
	(void)l;
	(void)name;
	return cookie;
}

static bool reaches(void *cookie, void *stream, uint64_t address)
{
	(void)cookie;
	(void)stream;
	(void)address;
	return true;
}

static struct world *new_world(void *memory, size_t bytes)
{
	struct world *w = calloc(1, sizeof(*w));

	ck_assert_ptr_nonnull(w);
	gantry_calls_table_init(&w->site.table);
	w->site.symbol = symbol;
	w->site.reaches = reaches;
	w->site.cookie = w;
	gantry_recipes_init(&w->recipes, memory, bytes, NULL, NULL);
	return w;
}

static void end_world(struct world *w)
{
	gantry_calls_table_fini(&w->site.table);
	free(w);
}

static uint8_t *new_memory(size_t bytes)
{
	uint8_t *memory = calloc(1, bytes);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

/* A call with @words; the first word of its reply, or 0. */
static uint64_t call(struct world *w, uint64_t function, const uint64_t *words, uint32_t n,
		     uint32_t wanted)
{
	struct {
		struct gantry_calls_request head;
		uint64_t words[4];
	} request = { .head = { .version = GANTRY_CALLS_VERSION,
				.function = function,
				.bytes = n * sizeof(uint64_t),
				.reply_bytes = 64 } };
	struct gantry_pack reply;
	uint64_t first = 0;

	memcpy(request.words, words, n * sizeof(uint64_t));
	at = w;
	w->site.recipes = &w->recipes;
	gantry_pack_init(&reply, 4096);
	ck_assert_uint_eq(gantry_calls_serve(&w->site, libraries, NULL, &request,
					     sizeof(request.head) + n * sizeof(uint64_t), &reply),
			  wanted);
	if (reply.len >= sizeof(struct gantry_calls_reply) + sizeof(first))
		memcpy(&first, reply.bytes + sizeof(struct gantry_calls_reply), sizeof(first));
	gantry_pack_fini(&reply);
	return first;
}

static uint64_t make(struct world *w, uint64_t of)
{
	return call(w, MAKE, (uint64_t[]){ of, 1 }, 2, GANTRY_CALLS_RAN);
}

static void set_mode(struct world *w, uint64_t id, uint64_t mode)
{
	(void)call(w, SET_MODE, (uint64_t[]){ mode, id }, 2, GANTRY_CALLS_RAN);
}

static void set_value(struct world *w, uint64_t id, uint64_t which, uint64_t value)
{
	(void)call(w, SET_VALUE, (uint64_t[]){ which, value, id }, 3, GANTRY_CALLS_RAN);
}

static void end_one(struct world *w, uint64_t id)
{
	(void)call(w, END, &id, 1, GANTRY_CALLS_RAN);
}

struct again {
	struct world *w;
	uint32_t nfailed;
};

static bool again(void *arg, const uint32_t *subjects, uint32_t nsubjects, const void *request,
		  size_t bytes)
{
	struct again *a = arg;

	at = a->w;
	a->nfailed += !gantry_calls_remake(&a->w->site, libraries, NULL, subjects, nsubjects,
					   request, bytes);
	return true;
}

/* Another world out of what @from has written down. */
static struct world *remade(const struct world *from)
{
	struct again a = { .w = new_world(NULL, 0) };

	ck_assert(gantry_recipes_each(&from->recipes, again, &a));
	ck_assert_uint_eq(a.nfailed, 0);
	gantry_calls_table_settle(&a.w->site.table);
	return a.w;
}

static const struct thing *found(struct world *w, uint64_t id)
{
	const struct gantry_calls_object *object = gantry_calls_table_find(&w->site.table, KIND,
									   id);

	at = w;
	return object ? thing(object->native) : NULL;
}

static void same(struct world *a, struct world *b, const uint64_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct thing *x = found(a, ids[i]), *y = found(b, ids[i]);

		ck_assert_int_eq(!x, !y);
		if (!x)
			continue;
		ck_assert(y->alive);
		ck_assert_uint_eq(x->mode, y->mode);
		ck_assert_mem_eq(x->values, y->values, sizeof(x->values));
	}
}

START_TEST(test_objects_are_again_what_they_were_under_their_numbers)
{
	uint8_t *memory = new_memory(SMALL);
	struct world *w = new_world(memory, SMALL), *other;
	uint64_t chosen = GANTRY_CALLS_CHOSEN | 5 | 3ull << 16, ids[5];

	ids[0] = make(w, 0);
	ids[1] = make(w, ids[0]);
	ids[2] = make(w, ids[1]);
	(void)call(w, MAKE, (uint64_t[]){ ids[2], chosen }, 2, GANTRY_CALLS_RAN);
	ids[3] = chosen;
	set_mode(w, ids[0], 1);
	set_value(w, ids[2], 0, 10);
	set_value(w, ids[2], 1, 11);
	set_mode(w, ids[0], 2);
	set_value(w, ids[2], 0, 12);
	set_value(w, chosen, 3, 13);
	end_one(w, ids[1]);  /* what was made of it lives on */
	ids[4] = make(w, 0); /* in its place, under another number */
	ck_assert_uint_ne(ids[4], ids[1]);
	for (int turn = 0; turn < 2; turn++) {
		other = remade(w);
		same(w, other, ids, 5);
		ck_assert_ptr_null(found(other, ids[1]));
		ck_assert_uint_eq(
			found(other, ids[3])->made_of,
			gantry_calls_table_find(&other->site.table, KIND, ids[2])->native);
		/* What is made next has a number of nobody's. */
		for (int i = 0; i < 5; i++)
			ck_assert_uint_ne(make(other, 0), ids[i]);
		end_world(other);
		(void)gantry_recipes_compact(&w->recipes,
					     NULL); /* and again, of what is left of it */
	}
	ck_assert_uint_eq(w->recipes.head->barred, 0);
	end_world(w);
	free(memory);
}
END_TEST

START_TEST(test_what_comes_and_goes_takes_no_room_for_good)
{
	uint8_t *memory = new_memory(SMALL);
	struct world *w = new_world(memory, SMALL), *other;
	uint64_t ids[2] = { make(w, 0), 0 };

	ids[1] = make(w, ids[0]);
	for (uint64_t i = 0; i < 5000; i++) {
		uint64_t passing = make(w, ids[0]);

		set_value(w, passing, i % 4, i);
		set_mode(w, ids[0], i);
		set_value(w, ids[1], i % 4, i);
		end_one(w, passing);
	}
	ck_assert_uint_eq(w->recipes.head->barred, 0);
	other = remade(w);
	same(w, other, ids, 2);
	ck_assert_uint_eq(found(other, ids[0])->mode, 4999);
	end_world(other);
	end_world(w);
	free(memory);
}
END_TEST

START_TEST(test_what_ends_at_once_leaves_nothing)
{
	uint8_t *memory = new_memory(SMALL);
	struct world *w = new_world(memory, SMALL);
	uint64_t stays = make(w, 0), used = w->recipes.head->used[0];

	for (uint64_t i = 0; i < 2000; i++) {
		uint64_t passing = make(w, stays), inner = make(w, 0);

		set_value(w, inner, 1, i);
		end_one(w, inner);
		set_value(w, passing, 1, i);
		set_value(w, passing, 2, i);
		end_one(w, passing);
		ck_assert_uint_eq(w->recipes.head->used[0], used);
	}
	ck_assert_uint_eq(w->recipes.head->active, 0);
	end_world(w);
	free(memory);
}
END_TEST

START_TEST(test_what_ends_behind_what_goes_on_takes_nothing_of_it_along)
{
	uint8_t *memory = new_memory(SMALL);
	struct world *w = new_world(memory, SMALL), *other;
	uint64_t ids[3] = { make(w, 0), make(w, 0), 0 };

	set_value(w, ids[0], 1, 7);
	ids[2] = make(w, ids[1]); /* needs it, alive or not */
	set_value(w, ids[1], 2, 8);
	end_one(w, ids[1]);
	set_value(w, ids[2], 3, 9);
	other = remade(w);
	ids[1] = ids[2];
	same(w, other, ids, 2);
	end_world(other);
	/* Whoever takes it over remembers nothing of it, and takes nothing off that it has not written. */
	gantry_recipes_take_over(&w->recipes);
	end_one(w, ids[2]);
	other = remade(w);
	same(w, other, ids, 1);
	end_world(other);
	end_world(w);
	free(memory);
}
END_TEST

START_TEST(test_more_than_there_is_room_for_bars)
{
	uint8_t *memory = new_memory(SMALL);
	struct world *w = new_world(memory, SMALL);

	for (int i = 0; i < 1000; i++)
		(void)make(w, 0);
	ck_assert_uint_eq(w->recipes.head->barred, 1);
	ck_assert_ptr_nonnull(strstr(w->recipes.head->why, "more objects"));
	gantry_recipes_clear(&w->recipes);
	ck_assert_uint_eq(w->recipes.head->barred, 0);
	ck_assert_uint_ne(make(w, 0), 0);
	ck_assert_uint_ne(w->recipes.head->used[0], 0);
	end_world(w);
	free(memory);
}
END_TEST

START_TEST(test_what_cannot_be_made_anew_bars_and_says_its_name)
{
	uint8_t *memory = new_memory(SMALL);
	struct world *w = new_world(memory, SMALL);
	uint64_t id = make(w, 0);

	(void)call(w, SPOIL, &id, 1, GANTRY_CALLS_RAN);
	ck_assert_uint_eq(w->recipes.head->barred, 1);
	ck_assert_str_eq(w->recipes.head->why, "spoil");
	end_world(w);
	free(memory);
}
END_TEST

START_TEST(test_calls_that_fail_or_are_refused_are_not_written_down)
{
	uint8_t *memory = new_memory(SMALL);
	struct world *w = new_world(memory, SMALL);
	uint64_t id = make(w, 0), used = w->recipes.head->used[0];

	w->fails = true;
	(void)call(w, MAKE, (uint64_t[]){ 0, 1 }, 2, GANTRY_CALLS_RAN);
	w->fails = false;
	(void)call(w, SET_VALUE, (uint64_t[]){ 9, 1, id }, 3, GANTRY_CALLS_REFUSED);
	(void)call(w, END, (uint64_t[]){ id + 1 }, 1, GANTRY_CALLS_REFUSED);
	ck_assert_uint_eq(w->recipes.head->used[0], used);
	end_world(w);
	free(memory);
}
END_TEST

/* Memory that anybody may have written to harms nobody who reads it. */
START_TEST(test_garbage_is_looked_at_and_no_more)
{
	uint8_t *memory = new_memory(SMALL);

	srand(5);
	for (int round = 0; round < 200; round++) {
		struct world *w = new_world(memory, SMALL);
		struct again a = { .w = new_world(NULL, 0) };
		uint64_t id = make(w, 0);

		set_value(w, make(w, id), 1, 2);
		for (int i = rand() % 6; i > 0; i--)
			memory[(uint32_t)rand() % 512] = (uint8_t)rand();
		(void)gantry_recipes_each(&w->recipes, again, &a);
		gantry_calls_table_settle(&a.w->site.table);
		(void)gantry_recipes_compact(&w->recipes, NULL);
		(void)make(w, 0);
		end_world(a.w);
		end_world(w);
		memset(memory, 0, SMALL);
	}
	free(memory);
}
END_TEST

/* Each is needed by the next alone, in whichever order: once it took a look at all of them for each. */
START_TEST(test_a_long_chain_is_gone_through_once)
{
	const uint32_t n = 5000, bytes = 4u << 20;
	uint8_t *memory = new_memory(bytes);
	struct world *w = new_world(memory, bytes), *other;
	struct gantry_recipes_work work;
	uint64_t *ids = calloc(n, sizeof(*ids));

	ck_assert_ptr_nonnull(ids);
	for (uint32_t i = 0; i < n; i++)
		ids[i] = make(w, i ? ids[i - 1] : 0);
	for (uint32_t i = 0; i + 1 < n; i++)
		end_one(w, i % 2 ? ids[i] : ids[n - 2 - i / 2 * 2]);
	ck_assert(gantry_recipes_compact(&w->recipes, &work));
	ck_assert_uint_eq(work.nentries, 2 * n - 1);
	ck_assert_uint_le(work.nlooked, work.nentries);
	ck_assert_uint_eq(w->recipes.head->barred, 0);
	other = remade(w);
	same(w, other, &ids[n - 1], 1);
	ck_assert_uint_eq(other->nthings, n);
	end_world(other);
	end_world(w);
	free(ids);
	free(memory);
}
END_TEST

/* A host that runs out of memory: what was not asked for, or not had, ends the process at a touch. */
struct host {
	uint8_t *memory;
	uint64_t bytes;
	uint64_t left; /* it gives no more */
	uint32_t nasked;
};

static int give_pages(const void *cookie, uint64_t off, uint64_t bytes)
{
	struct host *host = *(struct host *const *)cookie;
	uint64_t from = off & ~4095ull, to = (off + bytes + 4095) & ~4095ull;

	host->nasked++;
	ck_assert_uint_le(off + bytes, host->bytes);
	if (bytes > host->left)
		return -ENOMEM;
	host->left -= bytes;
	ck_assert_int_eq(mprotect(host->memory + from, to - from, PROT_READ | PROT_WRITE), 0);
	return 0;
}

static struct world *world_of(struct host *const *host)
{
	struct world *w = new_world(NULL, 0);

	gantry_recipes_init(&w->recipes, (*host)->memory, (*host)->bytes, give_pages, host);
	return w;
}

START_TEST(test_host_without_memory_bars_and_touches_nothing_that_it_did_not_give)
{
	struct host host = { .bytes = 4u << 20, .left = 300u << 10 }, *at_host = &host;
	struct world *w, *after;
	uint64_t id = 0;

	host.memory = mmap(NULL, host.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(host.memory, MAP_FAILED);
	ck_assert_int_eq(mprotect(host.memory, 4096, PROT_READ | PROT_WRITE), 0); /* the head's */
	w = world_of(&at_host);
	for (uint32_t i = 0; i < NTHINGS - 1 && !w->recipes.head->barred; i++)
		id = make(w, id);
	ck_assert_uint_eq(w->recipes.head->barred, 1);
	ck_assert_ptr_nonnull(strstr(w->recipes.head->why, "the host had no memory"));
	ck_assert_uint_gt(w->recipes.head->used[0] + w->recipes.head->used[1], 128u << 10);
	ck_assert_uint_lt(host.nasked, 20); /* not for every call */
	id = make(w, id);		    /* calls go on */
	ck_assert_uint_ne(id, 0);
	end_world(w);
	/* Another worker's, and one before that said there was more than there ever were pages for. */
	host.left = 0;
	after = world_of(&at_host);
	after->recipes.head->used[after->recipes.head->active] = 1u << 20;
	ck_assert(!gantry_recipes_compact(&after->recipes, NULL));
	end_world(after);
	(void)munmap(host.memory, host.bytes);
}
END_TEST

START_TEST(test_one_who_finds_that_another_writes_bars_and_does_not_write)
{
	uint8_t *memory = new_memory(SMALL);
	struct world *w = new_world(memory, SMALL), *after = new_world(memory, SMALL);
	uint64_t used;

	(void)make(w, 0);
	gantry_recipes_take_over(&after->recipes);
	(void)make(after, 0);
	used = after->recipes.head->used[0];
	ck_assert_uint_eq(after->recipes.head->barred, 0);
	(void)make(w, 0);
	ck_assert_uint_eq(after->recipes.head->used[0], used);
	ck_assert_uint_eq(after->recipes.head->barred, 1);
	ck_assert_ptr_nonnull(strstr(after->recipes.head->why, "two devices"));
	end_world(after);
	end_world(w);
	free(memory);
}
END_TEST

#ifndef GANTRY_ATOMIC_UNDER_TSAN /* it would rightly say that they race */
struct spoiler {
	uint8_t *memory;
	uint32_t stop;
};

static void *spoil_on(void *arg)
{
	struct spoiler *s = arg;
	uint32_t x = 7;

	while (!gantry_load_relaxed(&s->stop)) {
		x = x * 1664525u + 1013904223u;
		/* Entries get longer, shorter, more and fewer, and name other objects. */
		gantry_store_relaxed(&s->memory[sizeof(struct gantry_keep_head) + (x >> 8) % 2048],
				     (uint8_t)((x >> 24) % 3 ? 0 : x >> 20));
	}
	return NULL;
}

/* Two may think that it is theirs, for as long as it takes to see. */
START_TEST(test_memory_that_changes_meanwhile_is_looked_at_and_no_more)
{
	uint8_t *memory = new_memory(SMALL), *whole = new_memory(SMALL);
	struct world *w = new_world(memory, SMALL);
	struct spoiler spoiler = { .memory = memory };
	pthread_t thread;

	for (int i = 0; i < 40; i++)
		set_value(w, make(w, 0), 1, 2);
	memcpy(whole, memory, SMALL);
	ck_assert_int_eq(pthread_create(&thread, NULL, spoil_on, &spoiler), 0);
	for (int round = 0; round < 1000; round++) {
		struct again a = { .w = new_world(NULL, 0) };

		memcpy(memory, whole, SMALL);
		(void)gantry_recipes_compact(&w->recipes, NULL);
		(void)gantry_recipes_each(&w->recipes, again, &a);
		gantry_calls_table_settle(&a.w->site.table);
		ck_assert_uint_le(w->recipes.head->used[0], w->recipes.half_bytes);
		ck_assert_uint_le(w->recipes.head->used[1], w->recipes.half_bytes);
		end_world(a.w);
	}
	gantry_store_relaxed(&spoiler.stop, 1u);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	memcpy(memory, whole, SMALL);
	ck_assert(gantry_recipes_compact(&w->recipes, NULL));
	end_world(w);
	free(whole);
	free(memory);
}
END_TEST
#endif

int main(void)
{
	Suite *suite = suite_create("recipes");
	TCase *tc = gantry_unit_case(suite, "recipes");

	tcase_add_test(tc, test_objects_are_again_what_they_were_under_their_numbers);
	tcase_add_test(tc, test_what_comes_and_goes_takes_no_room_for_good);
	tcase_add_test(tc, test_what_ends_at_once_leaves_nothing);
	tcase_add_test(tc, test_what_ends_behind_what_goes_on_takes_nothing_of_it_along);
	tcase_add_test(tc, test_more_than_there_is_room_for_bars);
	tcase_add_test(tc, test_what_cannot_be_made_anew_bars_and_says_its_name);
	tcase_add_test(tc, test_calls_that_fail_or_are_refused_are_not_written_down);
	tcase_add_test(tc, test_garbage_is_looked_at_and_no_more);
	tcase_add_test(tc, test_a_long_chain_is_gone_through_once);
	tcase_add_test(tc, test_host_without_memory_bars_and_touches_nothing_that_it_did_not_give);
	tcase_add_test(tc, test_one_who_finds_that_another_writes_bars_and_does_not_write);
#ifndef GANTRY_ATOMIC_UNDER_TSAN
	tcase_add_test(tc, test_memory_that_changes_meanwhile_is_looked_at_and_no_more);
#endif
	return gantry_unit_run(suite);
}
