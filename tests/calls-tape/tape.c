/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/calls-tape/tape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	FILE *out; /* NULL: it is replayed */
	uint8_t *bytes;
	size_t len, pos;
	unsigned int nrequests;
	void *buffers[TAPE_BUFFERS];
	const struct gantry_call_road *other;
} tape;

static _Noreturn void fail(const char *what, const char *of)
{
	printf("not ok 1 - %s %s (request %u)\n", what, of, tape.nrequests);
	(void)fflush(stdout);
	exit(EXIT_FAILURE);
}

static size_t padded(size_t n)
{
	return (n + 7) & ~(size_t)7;
}

/* ---- entries ---- */

static void put(const void *bytes, size_t n)
{
	static const uint8_t zeros[8];

	if ((n > 0 && fwrite(bytes, 1, n, tape.out) != n) ||
	    fwrite(zeros, 1, padded(n) - n, tape.out) != padded(n) - n)
		fail("writing", "the file");
}

/* Two parts, each padded. */
static void put_entry(enum tape_kind kind, const void *first, size_t first_bytes,
		      const void *second, size_t second_bytes)
{
	const uint64_t head[2] = { kind, padded(first_bytes) + second_bytes };

	put(head, sizeof(head));
	put(first, first_bytes);
	put(second, second_bytes);
}

static const uint8_t *take_entry(enum tape_kind kind, const char *of, size_t *ret_bytes)
{
	const uint8_t *at = tape.bytes + tape.pos + 2 * sizeof(uint64_t);
	uint64_t head[2];

	if (tape.len - tape.pos < sizeof(head))
		fail("the recording has ended before", of);
	memcpy(head, tape.bytes + tape.pos, sizeof(head));
	tape.pos += sizeof(head);
	if (head[0] != kind)
		fail("the recording has something else than", of);
	if (head[1] > tape.len - tape.pos || padded(head[1]) > tape.len - tape.pos)
		fail("the recording is cut short at", of);
	tape.pos += padded(head[1]);
	*ret_bytes = head[1];
	return at;
}

/* A name and what belongs to it: those, and how far into the entry the latter begins. */
static const uint8_t *take_named(enum tape_kind kind, const char *name, size_t *ret_bytes)
{
	const uint8_t *entry = take_entry(kind, name, ret_bytes);
	size_t name_bytes = padded(strlen(name) + 1);

	if (*ret_bytes < name_bytes || strcmp((const char *)entry, name) != 0)
		fail("the recording has something else than", name);
	*ret_bytes -= name_bytes;
	return entry + name_bytes;
}

/* ---- the file ---- */

void tape_record(const char *path, const char *about)
{
	const uint64_t magic = TAPE_MAGIC;

	tape.out = fopen(path, "wbe");
	if (!tape.out)
		fail("opening", path);
	put(&magic, sizeof(magic));
	put_entry(TAPE_ABOUT, about, strlen(about) + 1, NULL, 0);
}

void tape_replay(const char *path)
{
	FILE *in = fopen(path, "rbe");
	uint64_t magic = 0;
	size_t n;

	tape.bytes = malloc(TAPE_MAX_FILE);
	if (!in || !tape.bytes)
		fail("opening", path);
	tape.len = fread(tape.bytes, 1, TAPE_MAX_FILE, in);
	(void)fclose(in);
	if (tape.len >= sizeof(magic))
		memcpy(&magic, tape.bytes, sizeof(magic));
	if (magic != TAPE_MAGIC || tape.len % 8 != 0)
		fail("no recording:", path);
	tape.pos = sizeof(magic);
	printf("# %s\n", (const char *)take_entry(TAPE_ABOUT, "about", &n));
}

unsigned int tape_close(void)
{
	size_t n;

	if (tape.out) {
		put_entry(TAPE_END, NULL, 0, NULL, 0);
		if (fclose(tape.out) != 0)
			fail("writing", "the file");
	} else {
		(void)take_entry(TAPE_END, "the end", &n);
		free(tape.bytes);
	}
	return tape.nrequests;
}

/* ---- what the program has ---- */

void *tape_buffer(unsigned int i, void *address)
{
	uint64_t words[2] = { (uintptr_t)address, TAPE_BYTES };
	size_t n;

	if (tape.out) {
		put_entry(TAPE_ADDRESS, words, sizeof(words), NULL, 0);
	} else {
		const uint8_t *entry = take_entry(TAPE_ADDRESS, "a buffer", &n);

		if (n != sizeof(words))
			fail("no address of", "a buffer");
		memcpy(words, entry, sizeof(words));
	}
	tape.buffers[i] = (void *)(uintptr_t)words[0];
	return tape.buffers[i];
}

void tape_see(const char *what, const void *bytes, size_t n)
{
	const uint8_t *wanted;
	size_t len;

	if (tape.out) {
		put_entry(TAPE_SEEN, what, strlen(what) + 1, bytes, n);
		return;
	}
	wanted = take_named(TAPE_SEEN, what, &len);
	if (len != n || memcmp(wanted, bytes, n) != 0)
		fail("not what was recorded:", what);
}

/* ---- the road ---- */

static void enter(void *cookie)
{
	(void)cookie;
	if (tape.out && tape.other->enter)
		tape.other->enter(tape.other->cookie);
}

static int carry_recorded(struct gantry_call_library *library,
			  const struct gantry_call_route *route, const void *request, size_t bytes,
			  void *reply, size_t reply_bytes)
{
	int64_t said[2];

	put_entry(TAPE_REQUEST, route->name, strlen(route->name) + 1, request, bytes);
	said[0] = tape.other->carry(tape.other->cookie, library, route, request, bytes, reply,
				    reply_bytes);
	said[1] = library->late;
	put_entry(TAPE_REPLY, said, sizeof(said), reply, said[0] == 0 && reply ? reply_bytes : 0);
	return (int)said[0];
}

/* But for the function's number. */
static bool is_request(const uint8_t *wanted, size_t wanted_bytes, const void *request,
		       size_t bytes)
{
	struct gantry_calls_request head;

	if (wanted_bytes != bytes || bytes < sizeof(head))
		return false;
	memcpy(&head, wanted, sizeof(head));
	head.function = ((const struct gantry_calls_request *)request)->function;
	return memcmp(&head, request, sizeof(head)) == 0 &&
	       memcmp(wanted + sizeof(head), (const uint8_t *)request + sizeof(head),
		      bytes - sizeof(head)) == 0;
}

static int carry(void *cookie, struct gantry_call_library *library,
		 const struct gantry_call_route *route, const void *request, size_t bytes,
		 void *reply, size_t reply_bytes)
{
	const uint8_t *entry;
	int64_t said[2];
	size_t n;

	(void)cookie;
	tape.nrequests++;
	if (tape.out)
		return carry_recorded(library, route, request, bytes, reply, reply_bytes);
	entry = take_named(TAPE_REQUEST, route->name, &n);
	if (!is_request(entry, n, request, bytes))
		fail("not the request that was recorded:", route->name);
	entry = take_entry(TAPE_REPLY, route->name, &n);
	if (n < sizeof(said) || n - sizeof(said) > reply_bytes || (n > sizeof(said) && !reply))
		fail("not the reply that the request has room for:", route->name);
	memcpy(said, entry, sizeof(said));
	if (n > sizeof(said))
		memcpy(reply, entry + sizeof(said), n - sizeof(said));
	library->late = (int32_t)said[1];
	return (int)said[0];
}

static int is_device(void *cookie, const void *address)
{
	(void)cookie;
	for (unsigned int i = 0; i < TAPE_BUFFERS; i++)
		if ((uintptr_t)address - (uintptr_t)tape.buffers[i] < TAPE_BYTES)
			return 1;
	return 0;
}

static int device(void *cookie)
{
	(void)cookie;
	return 0;
}

const struct gantry_call_road *tape_road(const struct gantry_call_road *other)
{
	static const struct gantry_call_road road = {
		.enter = enter,
		.carry = carry,
		.is_device = is_device,
		.device = device,
	};

	tape.other = other;
	return &road;
}
