/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actor: a guest that does what standard input says, one line an order, one line an answer: "ok ..." or
 * "err STATUS SENTENCE". Tests in Python decide what happens when; orders are listed in actor.c.
 */
#ifndef GANTRY_TESTS_SYSTEM_ACTOR_H
#define GANTRY_TESTS_SYSTEM_ACTOR_H

#include <stddef.h>
#include <stdint.h>

#include "guest-shim/gantry.h"

#define ACTOR_NJOBS 8u

/* Statuses as they are counted: which, how often. */
struct tally {
	unsigned n;
	struct {
		int status;
		uint64_t count;
	} of[16];
};
void tally_add(struct tally *t, int status);
/* "0=95 -15=3" into @text. */
void tally_print(const struct tally *t, char *text, size_t cap);

/* What the kernel checksum answers for @n words. */
uint64_t checksum_of(const uint64_t *words, uint64_t n);

/* A task of @kernel with up to two buffers before or after one scalar. */
struct launch {
	gantry_kernel kernel;
	union {
		struct {
			float alpha;
			uint64_t x, y, n;
		} saxpy;
		struct {
			uint64_t bytes, sum, n;
		} checksum;
		uint64_t ns;
		int32_t answer;
	} args;
	struct gantry_access access[2];
	struct gantry_task task;
};
void launch_add(struct launch *l, gantry_kernel saxpy, gantry_buffer one, gantry_buffer y,
		uint64_t idx);
void launch_checksum(struct launch *l, gantry_kernel checksum, gantry_buffer bytes, uint64_t len,
		     gantry_buffer sums, uint64_t idx);

/*
 * Work that goes on by itself on a queue and buffers of its own until it has done @limit rounds (0: until stopped).
 * adds: adds 1 to each of many elements in turn, and knows for each how often that was said to be done.
 * pairs: writes a pattern and takes its checksum, again and again, without waiting in between.
 * churn: makes buffers, uses and frees them, opens queues and closes them.
 * loop: pairs with a wait for each, and the answer read back: what a neighbour notices.
 */
int job_start(struct gantry_session *s, unsigned job, const char *kind, uint64_t limit);
uint64_t job_rounds(unsigned job);
/* Ends it (at once, or after its limit) and tells what it saw. 0 or a status. */
int job_end(unsigned job, int at_once, char *text, size_t cap);

#endif
