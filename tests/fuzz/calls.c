/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: 8 bytes that choose a function of cuBLAS, its number or any, then the items of a request for it. With bit 62 of those, what follows are
 * whole requests of one task, each of which chooses its function by the number that it has. The library
 * is that of the trials in tests/unit/devices/calls, which reads all that it is given and writes all that it is asked for.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/calls/batch.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/devices/calls/roundtrip.h"

#define MAX_BYTES   4096u
#define MAX_OBJECTS 256u
#define DEVICE	    0x200000000000ull

static struct gantry_calls_site site;
static int mode;

/* ---- what the generated library calls ---- */

static void touch(const void *at, uint64_t len)
{
	static volatile uint8_t sum;

	for (uint64_t i = 0; i < len; i++)
		sum += ((const uint8_t *)at)[i];
}

static bool is_device(const void *at)
{
	return (uintptr_t)at >> 40 == DEVICE >> 40;
}

void note_bytes(const void *bytes, size_t len)
{
	touch(bytes, len);
}

void note_u64(uint64_t value)
{
	(void)value;
}

void note_object(uint64_t native)
{
	assert(native != 0);
}

void note_text(const char *text)
{
	if (text)
		touch(text, strlen(text));
}

void note_texts(const char *const *texts, int64_t count)
{
	for (int64_t i = 0; texts && i < count; i++)
		note_text(texts[i]);
}

void note_memory(const void *at, uint64_t len)
{
	/* The library would read it on the host. */
	assert(mode == 1 || !is_device(at));
	if (at && !is_device(at))
		touch(at, len);
}

void note_name(const char *name)
{
	(void)name;
}

void bound_to(void *stream)
{
	(void)stream;
}

bool is_expected(const char *name)
{
	(void)name;
	return false;
}

int mock_mode(void)
{
	return mode;
}

void fill(void *at, uint64_t len)
{
	if (at && !is_device(at))
		memset(at, 0x5a, len);
}

void new_handle(void *to, size_t len)
{
	static uint64_t natives = 0x100000;

	natives++;
	memcpy(to, &natives, len);
}

const char *mock_text(void)
{
	return "text";
}

static void *find_mock(void *cookie, const struct gantry_calls_library *library, const char *name)
{
	(void)cookie;
	(void)library;
	for (const struct mock *mock = mocks; mock->name; mock++)
		if (strcmp(mock->name, name) == 0)
			return mock->function;
	return NULL;
}

static bool reaches(void *cookie, void *stream, uint64_t address)
{
	(void)cookie;
	(void)stream;
	return is_device((const void *)(uintptr_t)address);
}

/* ---- one input ---- */

static uint64_t choose(uint64_t which)
{
	for (uint32_t i = 0; i < tried->nfunctions; i++)
		if (tried->functions[i].id == which)
			return which;
	return tried->functions[which % tried->nfunctions].id;
}

/* Objects pile up over inputs, and the more there are the longer one is looked for. */
static void start(void)
{
	if (site.table.nobjects > MAX_OBJECTS)
		gantry_calls_table_fini(&site.table);
	site.symbol = find_mock;
	site.reaches = reaches;
}

static void check(const struct gantry_pack *reply)
{
	const struct gantry_calls_reply *header = (const struct gantry_calls_reply *)reply->bytes;

	assert(!reply->failed && reply->len >= sizeof(*header));
	assert(header->state == GANTRY_CALLS_RAN || header->state == GANTRY_CALLS_REFUSED);
	assert(header->bytes == reply->len - sizeof(*header));
	assert(header->state == GANTRY_CALLS_RAN || header->bytes == 0);
}

static void check_all(const struct gantry_pack *reply)
{
	const struct gantry_calls_reply *header = (const struct gantry_calls_reply *)reply->bytes;

	assert(!reply->failed && reply->len >= sizeof(*header));
	assert(header->state == GANTRY_CALLS_RAN || header->state == GANTRY_CALLS_REFUSED ||
	       header->state == GANTRY_CALLS_UNKNOWN);
	assert(header->nfailures < GANTRY_CALLS_TOGETHER);
	assert(reply->len == sizeof(*header) + header->bytes +
				     header->nfailures * sizeof(struct gantry_calls_failure));
}

/* Requests as they are, but for the functions: those are found by following the lengths as far as they go. */
static void serve_whole(const uint8_t *data, size_t len)
{
	const struct gantry_calls_library *const libraries[] = { tried, NULL };
	uint8_t *requests = malloc(len ? len : 1);
	struct gantry_pack reply;

	assert(requests);
	memcpy(requests, data, len);
	for (size_t at = 0; len - at >= sizeof(struct gantry_calls_request);) {
		struct gantry_calls_request head;

		memcpy(&head, requests + at, sizeof(head));
		head.function = choose(head.function);
		memcpy(requests + at, &head, sizeof(head));
		if (head.bytes > len - at - sizeof(head))
			break;
		at += sizeof(head) + ((head.bytes + 7) & ~7ull);
		if (at > len)
			break;
	}
	start();
	gantry_pack_init(&reply, GANTRY_CALLS_MAX_BYTES + (1 << 12));
	gantry_calls_serve_all(&site, libraries, NULL, requests, len, NULL, &reply);
	check_all(&reply);
	gantry_pack_fini(&reply);
	free(requests);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	const struct gantry_calls_library *const libraries[] = { tried, NULL };
	struct gantry_calls_request *request;
	struct gantry_pack reply;
	uint64_t which;

	if (len < sizeof(which) || len > MAX_BYTES)
		return 0;
	memcpy(&which, data, sizeof(which));
	mode = (int)(which >> 63);
	len -= sizeof(which);
	if (which >> 62 & 1) {
		serve_whole(data + sizeof(which), len);
		return 0;
	}
	request = malloc(sizeof(*request) + len);
	assert(request);
	*request = (struct gantry_calls_request){
		.version = GANTRY_CALLS_VERSION,
		.function = choose(which),
		.bytes = len,
		.reply_bytes = 1 << 20,
	};
	memcpy(request + 1, data + sizeof(which), len);
	start();
	gantry_pack_init(&reply, GANTRY_CALLS_MAX_BYTES + sizeof(struct gantry_calls_reply));
	gantry_calls_serve(&site, libraries, NULL, request, sizeof(*request) + len, &reply);
	check(&reply);
	gantry_pack_fini(&reply);
	free(request);
	return 0;
}
