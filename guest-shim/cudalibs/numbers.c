/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of objects: those that are given here, and what is known of any. Arrays are by the place that is in a number's low bits. */
#include "guest-shim/cudalibs/numbers.h"

#include <pthread.h>

#include "base/atomic.h"
#include "guest-shim/cudalibs/call.h"
#include "proto/calls.h"

#define PLACES 65536u

/* Numbers that were given here: one that is alive, or 0. Read atomically, written under the lock. */
static struct {
	pthread_mutex_t lock;
	uint64_t alive[GANTRY_CALLS_CHOSEN];
	uint16_t generation[GANTRY_CALLS_CHOSEN];
	uint32_t first; /* no place before it is free */
} choice = { .lock = PTHREAD_MUTEX_INITIALIZER };
/* That have succeeded; that nodes of graphs name; that the program has ended while they do. Read and written atomically. */
static uint64_t proven[PLACES];
static uint64_t in_graphs[PLACES];
static uint64_t retired[PLACES];

static bool is_chosen(uint64_t number)
{
	return number <= INT32_MAX && (number & GANTRY_CALLS_CHOSEN);
}

static void lock_choice(void)
{
	(void)pthread_mutex_lock(&choice.lock);
}

static void unlock_choice(void)
{
	(void)pthread_mutex_unlock(&choice.lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	/* Nothing waits under the lock. The C library takes the handlers back when this one is unloaded. */
	(void)pthread_atfork(lock_choice, unlock_choice, unlock_choice); /* or a child may hang */
}

uint64_t gantry_call_number_choose(void)
{
	uint64_t number = 0;

	lock_choice();
	for (uint32_t i = choice.first; i < GANTRY_CALLS_CHOSEN && number == 0; i++) {
		choice.first = i + 1;
		if (choice.alive[i])
			continue;
		choice.generation[i] = (uint16_t)(choice.generation[i] + 1u) & INT16_MAX;
		number = (uint64_t)choice.generation[i] << 16 | GANTRY_CALLS_CHOSEN | i;
		gantry_store_relaxed(&choice.alive[i], number);
	}
	unlock_choice();
	return number;
}

bool gantry_call_number_is_chosen(uint64_t number)
{
	return is_chosen(number);
}

void gantry_call_number_give_up(uint64_t number)
{
	uint32_t i = number % GANTRY_CALLS_CHOSEN;

	lock_choice();
	if (choice.alive[i] == number) {
		gantry_store_relaxed(&choice.alive[i], 0);
		if (i < choice.first)
			choice.first = i;
	}
	unlock_choice();
}

bool gantry_call_number_has_ended(uint64_t number)
{
	if (gantry_load_relaxed(&retired[number % PLACES]) == number)
		return true;
	return is_chosen(number) &&
	       gantry_load_relaxed(&choice.alive[number % GANTRY_CALLS_CHOSEN]) != number;
}

void gantry_call_number_end(uint64_t number)
{
	if (gantry_call_number_is_in_graph(number))
		gantry_store_relaxed(&retired[number % PLACES], number);
	else if (is_chosen(number))
		gantry_call_number_give_up(number);
}

void gantry_call_number_prove(uint64_t number)
{
	gantry_store_relaxed(&proven[number % PLACES], number);
}

bool gantry_call_number_is_proven(uint64_t number)
{
	return gantry_load_relaxed(&proven[number % PLACES]) == number;
}

void gantry_call_number_in_graph(uint64_t number)
{
	gantry_store_relaxed(&in_graphs[number % PLACES], number);
}

bool gantry_call_number_is_in_graph(uint64_t number)
{
	return gantry_load_relaxed(&in_graphs[number % PLACES]) == number;
}

void gantry_call_session_began(void)
{
	for (uint32_t i = 0; i < PLACES; i++) {
		gantry_store_relaxed(&in_graphs[i], 0);
		gantry_store_relaxed(&retired[i], 0);
		gantry_store_relaxed(&proven[i], 0);
	}
	/* Nothing of the last session is alive; its numbers are not given again before all others of their places were. */
	lock_choice();
	for (uint32_t i = 0; i < GANTRY_CALLS_CHOSEN; i++)
		gantry_store_relaxed(&choice.alive[i], 0);
	choice.first = 0;
	unlock_choice();
}
