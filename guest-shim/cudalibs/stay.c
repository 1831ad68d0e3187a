/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/cudalibs/stay.h"

#include <string.h>

#define PLACES 65536u

static size_t padded(size_t bytes)
{
	return (bytes + 7) & ~(size_t)7;
}

void gantry_stay_clear(struct gantry_stay *stay)
{
	stay->n = stay->nhandles = 0;
	stay->bytes = stay->last = stay->end = 0;
	stay->queue = 0;
}

bool gantry_stay_has_room(const struct gantry_stay *stay, size_t bytes, uint32_t nhandles)
{
	return stay->n + 1 < GANTRY_CALLS_TOGETHER &&
	       padded(bytes) <= sizeof(stay->requests) - stay->bytes &&
	       nhandles <= GANTRY_STAY_HANDLES - stay->nhandles;
}

void gantry_stay_add(struct gantry_stay *stay, struct gantry_call_library *library,
		     const struct gantry_call_route *route, const void *request, size_t bytes)
{
	const uint32_t more = GANTRY_CALLS_MORE;
	uint8_t *to = stay->requests + stay->bytes;

	stay->calls[stay->n++] = (struct gantry_stay_call){ .library = library,
							    .name = route->name,
							    .first = stay->nhandles,
							    .nhandles = route->nhandles,
							    .drops = route->drops };
	memcpy(stay->handles + stay->nhandles, route->handles,
	       route->nhandles * sizeof(stay->handles[0]));
	stay->nhandles += route->nhandles;
	memset(to + bytes, 0, padded(bytes) - bytes);
	memcpy(to, request, bytes);
	memcpy(to + offsetof(struct gantry_calls_request, flags), &more, sizeof(more));
	stay->last = stay->bytes;
	stay->end = stay->last + bytes;
	stay->bytes += padded(bytes);
}

size_t gantry_stay_take(const struct gantry_stay *stay, uint8_t *to, bool more)
{
	memcpy(to, stay->requests, stay->bytes);
	if (!more && stay->n > 0)
		memset(to + stay->last + offsetof(struct gantry_calls_request, flags), 0,
		       sizeof(((struct gantry_calls_request *)0)->flags));
	return more ? stay->bytes : stay->end;
}

bool gantry_stay_share(const uint64_t *a, uint32_t na, const uint64_t *b, uint32_t nb)
{
	for (uint32_t i = 0; i < na; i++)
		for (uint32_t k = 0; k < nb; k++)
			if (a[i] % PLACES == b[k] % PLACES)
				return true;
	return false;
}

bool gantry_stay_shares(const struct gantry_stay *stay, const uint64_t *handles, uint32_t n)
{
	return gantry_stay_share(stay->handles, stay->nhandles, handles, n);
}

bool gantry_stay_is_about(const struct gantry_stay *stay, const uint64_t *handles, uint32_t n)
{
	for (uint32_t i = 0; i < stay->n; i++) {
		const struct gantry_stay_call *call = &stay->calls[i];

		if (!call->drops &&
		    !gantry_stay_share(stay->handles + call->first, call->nhandles, handles, n))
			return false;
	}
	return true;
}
