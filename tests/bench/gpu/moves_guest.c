/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program whose queue is moved from one GPU to another while it works:
 *
 *   open BYTES PARTS     a session, a queue on a CUDA device, a buffer of so many parts, each filled by a task
 *   write AT_NS RUN_NS PARTS_PER_S   tasks that rewrite one part after the other at that pace, each waited for: how many, and
 *                        the longest time between two ends
 *   work                 one task, waited for
 *   wrong                how many words are not what was written last
 *   close
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/gantry.h"
#include "tests/bench/bench.h"

#define CHECKED (64ull << 20)

static struct gantry_session *session;
static gantry_queue queue;
static gantry_buffer buffer;
static uint64_t part_bytes, nparts, nwritten;
static uint32_t *values;

static int failed(const char *what)
{
	bench_fail("%s: %s", what, gantry_last_error());
	return -1;
}

#define TRY(call, ...)                        \
	do {                                  \
		if (call(__VA_ARGS__) < 0)    \
			return failed(#call); \
	} while (0)

/* The next part gets the next value. */
static int write_part(gantry_ticket *ret_ticket)
{
	uint64_t part = nwritten++ % nparts;

	values[part] = (uint32_t)nwritten;
	TRY(gantry_submit_fill, session, queue, buffer, part * part_bytes, part_bytes, values[part],
	    4, ret_ticket);
	return 0;
}

static int wait_for(gantry_ticket *ticket)
{
	TRY(gantry_wait, session, ticket, 1, GANTRY_FOREVER);
	return 0;
}

static int open_session(uint64_t bytes, uint64_t parts)
{
	struct gantry_queue_options options = { .kind = GANTRY_KIND_CUDA };
	gantry_ticket last;

	part_bytes = bytes / parts;
	nparts = parts;
	values = calloc(parts, sizeof(*values));
	if (!values) {
		bench_fail("no memory");
		return -1;
	}
	TRY(gantry_open, NULL, NULL, &session);
	TRY(gantry_queue_open, session, &options, &queue);
	TRY(gantry_alloc, session, parts * part_bytes, GANTRY_ALLOC_DEVICE, &buffer);
	for (uint64_t i = 0; i < parts; i++)
		if (write_part(&last) < 0)
			return -1;
	return wait_for(&last);
}

static void cmd_open(const struct bench_args *args)
{
	uint64_t bytes = bench_arg(args, 0, 1ull << 30), parts = bench_arg(args, 1, 1024);

	if (parts == 0 || bytes % parts || bytes / parts % 4) {
		bench_fail("%llu bytes are not %llu parts of whole words",
			   (unsigned long long)bytes, (unsigned long long)parts);
		return;
	}
	if (open_session(bytes, parts) == 0)
		printf("{\"owned\":%llu}\n", (unsigned long long)bytes);
}

static void cmd_write(const struct bench_args *args)
{
	uint64_t at = bench_arg(args, 0, 0), run_ns = bench_arg(args, 1, GANTRY_NS_PER_S);
	uint64_t pace = bench_arg(args, 2, 100);
	uint64_t before = nwritten, longest = 0, last, due;
	gantry_ticket ticket;

	bench_wait_until(at);
	at = gantry_now_ns();
	last = at;
	for (due = 0; due < run_ns; due += GANTRY_NS_PER_S / pace) {
		uint64_t now;

		bench_wait_until(at + due);
		if (write_part(&ticket) < 0 || wait_for(&ticket) < 0)
			return;
		now = gantry_now_ns();
		longest = now - last > longest ? now - last : longest;
		last = now;
	}
	printf("{\"written\":%llu,\"longest_ns\":%llu}\n", (unsigned long long)(nwritten - before),
	       (unsigned long long)longest);
}

static void cmd_work(const struct bench_args *args)
{
	uint64_t start = gantry_now_ns();
	gantry_ticket ticket;

	(void)args;
	if (write_part(&ticket) == 0 && wait_for(&ticket) == 0)
		printf("{\"ns\":%llu}\n", (unsigned long long)(gantry_now_ns() - start));
}

/* Of one part, or a piece of it. */
static int64_t count_unlike(const uint32_t *words, uint64_t n, uint32_t value)
{
	int64_t wrong = 0;

	for (uint64_t i = 0; i < n; i++)
		wrong += words[i] != value;
	return wrong;
}

/* -1: why was said. */
static int64_t count_wrong(uint32_t *words)
{
	uint64_t bytes = nparts * part_bytes, len;
	int64_t wrong = 0;

	for (uint64_t off = 0; off < bytes; off += len) {
		len = bytes - off < CHECKED ? bytes - off : CHECKED;
		TRY(gantry_read, session, buffer, off, words, len);
		for (uint64_t at = 0, run; at < len; at += run) {
			uint64_t left = part_bytes - (off + at) % part_bytes;

			run = left < len - at ? left : len - at;
			wrong += count_unlike(words + at / 4, run / 4,
					      values[(off + at) / part_bytes]);
		}
	}
	return wrong;
}

static void cmd_wrong(const struct bench_args *args)
{
	uint32_t *words = malloc(CHECKED);
	int64_t wrong;

	(void)args;
	if (!words) {
		bench_fail("no memory");
		return;
	}
	wrong = count_wrong(words);
	free(words);
	if (wrong >= 0)
		printf("{\"words\":%lld}\n", (long long)wrong);
}

static void cmd_close(const struct bench_args *args)
{
	(void)args;
	gantry_close(session);
	session = NULL;
	free(values);
	values = NULL;
	printf("{\"closed\":true}\n");
}

int main(void)
{
	static const struct bench_command commands[] = {
		{ "open", cmd_open },	{ "write", cmd_write }, { "work", cmd_work },
		{ "wrong", cmd_wrong }, { "close", cmd_close }, { NULL, NULL },
	};

	return bench_serve(commands);
}
