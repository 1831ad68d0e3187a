/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/cuda/calls/batch.h"

#include <string.h>
#include <time.h>

/* Bytes of the first of the requests in @bytes, with padding where there are more; 0: it cannot be. */
static size_t first_of(const void *at, size_t bytes, struct gantry_calls_request *ret_head)
{
	size_t padded;

	if (bytes < sizeof(*ret_head))
		return 0;
	memcpy(ret_head, at, sizeof(*ret_head));
	/* The last one is whatever is left, and is looked at when it is served. */
	if (!(ret_head->flags & GANTRY_CALLS_MORE))
		return bytes;
	if (ret_head->flags != GANTRY_CALLS_MORE || ret_head->reply_bytes != 0 ||
	    ret_head->bytes > bytes - sizeof(*ret_head))
		return 0;
	padded = sizeof(*ret_head) + ((ret_head->bytes + 7) & ~7ull);
	return padded < bytes ? padded : 0;
}

uint32_t gantry_calls_functions(const void *requests, size_t bytes,
				uint64_t ret_functions[GANTRY_CALLS_TOGETHER])
{
	const uint8_t *at = requests;
	uint32_t n = 0;

	while (bytes > 0) {
		struct gantry_calls_request head;
		size_t len = first_of(at, bytes, &head);

		if (len == 0 || n == GANTRY_CALLS_TOGETHER || (n > 0 && len == bytes && head.flags))
			return 0;
		ret_functions[n++] = head.function;
		at += len;
		bytes -= len;
	}
	return n;
}

struct failures {
	uint32_t n;
	struct gantry_calls_failure of[GANTRY_CALLS_TOGETHER];
};

static uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* that clock is always there */
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* What began at *began has ended. */
static void learn(struct gantry_calls_site *site, struct gantry_quick *quick, uint32_t state,
		  uint64_t function, uint64_t *began)
{
	uint64_t now = quick ? now_ns() : 0;

	/* What is never known to be quick is never called on another thread. */
	if (quick && state == GANTRY_CALLS_RAN && !gantry_calls_has_groups(site, function))
		gantry_quick_learn(quick, function, now - *began);
	*began = now;
}

uint32_t gantry_calls_serve_all(struct gantry_calls_site *site,
				const struct gantry_calls_library *const *libraries, void *stream,
				void *requests, size_t bytes, struct gantry_quick *quick,
				struct gantry_pack *reply)
{
	uint64_t functions[GANTRY_CALLS_TOGETHER];
	uint32_t n = gantry_calls_functions(requests, bytes, functions), state;
	struct failures failures = { 0 };
	uint64_t began = quick ? now_ns() : 0;
	uint8_t *at = requests;

	for (uint32_t i = 0; i + 1 < n; i++) {
		struct gantry_calls_request head = { 0 };
		size_t len = first_of(at, bytes, &head);
		uint64_t ret;

		/* By itself it is a request like any other. */
		head.flags = 0;
		memcpy(at, &head, sizeof(head));
		state = gantry_calls_serve_unread(site, libraries, stream, at,
						  sizeof(head) + head.bytes, &ret);
		learn(site, quick, state, functions[i], &began);
		if (state != GANTRY_CALLS_RAN || ret != 0)
			failures.of[failures.n++] = (struct gantry_calls_failure){ i, state, ret };
		at += len;
		bytes -= len;
	}
	/* Of requests that do not lie as they must the first has a flag that is refused. */
	state = gantry_calls_serve(site, libraries, stream, at, bytes, reply);
	learn(site, quick, state, n ? functions[n - 1] : 0, &began);
	if (failures.n > 0 && !reply->failed) {
		((struct gantry_calls_reply *)(void *)reply->bytes)->nfailures = failures.n;
		gantry_pack_bytes(reply, failures.of, failures.n * sizeof(failures.of[0]));
	}
	return state;
}
