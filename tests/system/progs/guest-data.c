/* SPDX-License-Identifier: Apache-2.0 */
/* Contents of buffers: random words by a seed, from and to pageable memory, and sums of them by the device. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/system/progs/guest.h"

#define CHUNK_WORDS (UINT64_C(8) << 20)

static uint64_t random_word(uint64_t seed, uint64_t i)
{
	return mix64(i + seed * 0x9e3779b97f4a7c15ull);
}

/* props [KIND] */
void do_props(char **w)
{
	struct gantry_props p;
	int r = gantry_props_get(session, w[1] ? atoi(w[1]) : 0, &p);

	if (r < 0)
		answer(r);
	else
		printf("ok devices %u kinds %u lanes %u mem %" PRIu64 " virtual %" PRIu64
		       " queues %u translated %u name %s\n",
		       p.ndevices, p.kinds, p.lanes, p.mem_bytes, p.virtual_bytes, p.nqueues,
		       p.translated, p.name);
}

/* usage: virtual and resident bytes now */
void do_usage(char **w)
{
	struct gantry_stats st;
	int r = gantry_stats_get(session, &st);

	(void)w;
	if (r < 0)
		answer(r);
	else
		printf("ok virtual %" PRIu64 " resident %" PRIu64 " peak %" PRIu64 "\n",
		       st.virtual_bytes, st.resident_bytes, st.resident_peak_bytes);
}

/* random BUFFER BYTES SEED: "ok NS", the time of the copies alone */
void do_random(char **w)
{
	uint64_t nwords = strtoull(w[2], NULL, 0) / 8, seed = strtoull(w[3], NULL, 0), ns = 0;
	uint64_t *chunk = malloc(CHUNK_WORDS * 8);
	int r = chunk ? 0 : GANTRY_E_NO_MEMORY;

	for (uint64_t done = 0; done < nwords && r == 0; done += CHUNK_WORDS) {
		uint64_t n = nwords - done < CHUNK_WORDS ? nwords - done : CHUNK_WORDS, start;

		for (uint64_t i = 0; i < n; i++)
			chunk[i] = random_word(seed, done + i);
		start = now_ns();
		r = gantry_write(session, get(w[1]), done * 8, chunk, n * 8);
		ns += now_ns() - start;
	}
	free(chunk);
	if (r < 0)
		answer(r);
	else
		printf("ok %" PRIu64 "\n", ns);
}

/* same BUFFER BYTES SEED: "ok WRONG-WORDS NS" */
void do_same(char **w)
{
	uint64_t nwords = strtoull(w[2], NULL, 0) / 8, seed = strtoull(w[3], NULL, 0);
	uint64_t wrong = 0, ns = 0, *chunk = malloc(CHUNK_WORDS * 8);
	int r = chunk ? 0 : GANTRY_E_NO_MEMORY;

	for (uint64_t done = 0; done < nwords && r == 0; done += CHUNK_WORDS) {
		uint64_t n = nwords - done < CHUNK_WORDS ? nwords - done : CHUNK_WORDS;
		uint64_t start = now_ns();

		r = gantry_read(session, get(w[1]), done * 8, chunk, n * 8);
		ns += now_ns() - start;
		for (uint64_t i = 0; r == 0 && i < n; i++)
			wrong += chunk[i] != random_word(seed, done + i);
	}
	free(chunk);
	if (r < 0)
		answer(r);
	else
		printf("ok %" PRIu64 " %" PRIu64 "\n", wrong, ns);
}

/* word BUFFER OFF: the 64-bit word there */
void do_word(char **w)
{
	uint64_t word = 0;
	int r = gantry_read(session, get(w[1]), strtoull(w[2], NULL, 0), &word, sizeof(word));

	if (r < 0)
		answer(r);
	else
		printf("ok %" PRIu64 "\n", word);
}

/* expect BYTES SEED: what `sum` has to say of such a buffer */
void do_expect(char **w)
{
	uint64_t bytes = strtoull(w[1], NULL, 0), seed = strtoull(w[2], NULL, 0), sum = bytes;

	for (uint64_t i = 0; i < bytes / 8; i++)
		sum += checksum_word(random_word(seed, i), i);
	printf("ok %" PRIu64 "\n", sum);
}

/* sum QUEUE BUFFER BYTES: its checksum by the device */
void do_sum(char **w)
{
	struct {
		uint64_t data, sum, n;
	} args = { .n = strtoull(w[3], NULL, 0) };
	gantry_buffer out = 0;
	gantry_ticket ticket = 0;
	uint64_t seen = 0;
	int r = gantry_alloc(session, sizeof(seen), GANTRY_ALLOC_DEVICE, &out);
	struct gantry_access access[2] = {
		{ .buffer = get(w[2]), .len = args.n, .mode = GANTRY_R },
		{ .buffer = out, .mode = GANTRY_W, .arg_off = 8 },
	};
	struct gantry_task task = { .args = &args,
				    .args_bytes = sizeof(args),
				    .naccess = 2,
				    .access = access,
				    .flags = GANTRY_TASK_IDEMPOTENT };

	if (r == 0)
		r = find_kernel("checksum", &task.kernel);
	if (r == 0)
		r = gantry_submit(session, get(w[1]), &task, 1, &ticket);
	if (r == 0)
		r = gantry_wait(session, &ticket, 1, GANTRY_FOREVER);
	if (r == 0)
		r = gantry_read(session, out, 0, &seen, sizeof(seen));
	if (out)
		(void)gantry_free(session, out);
	if (r < 0)
		answer(r);
	else
		printf("ok %" PRIu64 "\n", seen);
}

/* pattern QUEUE TICKET BUFFER OFF BYTES WORD: a fill, not waited for */
void do_pattern(char **w)
{
	gantry_ticket t = 0;
	int r = gantry_submit_fill(session, get(w[1]), get(w[3]), strtoull(w[4], NULL, 0),
				   strtoull(w[5], NULL, 0), strtoull(w[6], NULL, 0), 8, &t);

	answer_named(r, w[2], t);
}

/* copy QUEUE TICKET DST OFF SRC OFF BYTES: not waited for */
void do_copy(char **w)
{
	gantry_ticket t = 0;
	int r = gantry_submit_copy(session, get(w[1]), get(w[3]), strtoull(w[4], NULL, 0),
				   get(w[5]), strtoull(w[6], NULL, 0), strtoull(w[7], NULL, 0), &t);

	answer_named(r, w[2], t);
}
