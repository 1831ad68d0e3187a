/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/buffers.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_BUCKETS 64u

static uint32_t bucket_of(gantry_buffer handle, uint32_t nbuckets)
{
	/* Slot numbers are dense; the generation only tells users of one slot apart. */
	return GANTRY_HANDLE_SLOT(handle) & (nbuckets - 1);
}

void gantry_buffers_fini(struct gantry_buffers *buffers)
{
	for (uint32_t i = 0; i < buffers->nbuckets; i++) {
		struct gantry_buffer_info *next;

		for (struct gantry_buffer_info *info = buffers->buckets[i]; info; info = next) {
			next = info->next;
			free(info->range);
			free(info);
		}
	}
	free(buffers->buckets);
	*buffers = (struct gantry_buffers){ 0 };
}

static int grow(struct gantry_buffers *buffers)
{
	uint32_t nbuckets = buffers->nbuckets ? buffers->nbuckets * 2 : FIRST_BUCKETS;
	struct gantry_buffer_info **buckets = calloc(nbuckets, sizeof(struct gantry_buffer_info *));

	if (!buckets)
		return -ENOMEM;
	for (uint32_t i = 0; i < buffers->nbuckets; i++) {
		struct gantry_buffer_info *next;

		for (struct gantry_buffer_info *info = buffers->buckets[i]; info; info = next) {
			uint32_t bucket = bucket_of(info->handle, nbuckets);

			next = info->next;
			info->next = buckets[bucket];
			buckets[bucket] = info;
		}
	}
	free(buffers->buckets);
	buffers->buckets = buckets;
	buffers->nbuckets = nbuckets;
	return 0;
}

int gantry_buffers_add(struct gantry_buffers *buffers, struct gantry_buffer_info *info)
{
	uint32_t bucket;

	if (gantry_buffers_find(buffers, info->handle))
		return -EEXIST;
	if (buffers->n >= buffers->nbuckets && grow(buffers) < 0)
		return -ENOMEM;
	bucket = bucket_of(info->handle, buffers->nbuckets);
	info->next = buffers->buckets[bucket];
	buffers->buckets[bucket] = info;
	buffers->n++;
	return 0;
}

static struct gantry_buffer_info **find_link(const struct gantry_buffers *buffers,
					     gantry_buffer handle)
{
	struct gantry_buffer_info **link;

	if (buffers->nbuckets == 0)
		return NULL;
	link = &buffers->buckets[bucket_of(handle, buffers->nbuckets)];
	while (*link && (*link)->handle != handle)
		link = &(*link)->next;
	return *link ? link : NULL;
}

struct gantry_buffer_info *gantry_buffers_find(const struct gantry_buffers *buffers,
					       gantry_buffer handle)
{
	struct gantry_buffer_info **link = find_link(buffers, handle);

	return link ? *link : NULL;
}

struct gantry_buffer_info *gantry_buffers_remove(struct gantry_buffers *buffers,
						 gantry_buffer handle)
{
	struct gantry_buffer_info **link = find_link(buffers, handle);
	struct gantry_buffer_info *info;

	if (!link)
		return NULL;
	info = *link;
	*link = info->next;
	info->next = NULL;
	buffers->n--;
	return info;
}
