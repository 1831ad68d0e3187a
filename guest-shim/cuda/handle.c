/* SPDX-License-Identifier: Apache-2.0 */
/* Which handles are alive: a handle that is none, or was destroyed, is an answer and no crash. */
#include <stdlib.h>

#include "base/list.h"
#include "guest-shim/cuda/core.h"

struct entry {
	const void *object; /* NULL: never used; GONE: was */
	enum cu_kind kind;
};
#define GONE ((const void *)&entries)

static struct entry *entries;
static uint32_t nentries; /* a power of two */
static uint32_t nused;	  /* with those gone */

static uint32_t place(const void *object)
{
	return (uint32_t)(((uintptr_t)object >> 4) * 0x9e3779b97f4a7c15ull >> 32) & (nentries - 1);
}

static void insert(const void *object, enum cu_kind kind)
{
	uint32_t i = place(object);

	while (entries[i].object)
		i = (i + 1) & (nentries - 1);
	entries[i] = (struct entry){ object, kind };
	nused++;
}

static bool grow(void)
{
	struct entry *before = entries;
	uint32_t n = nentries, live = 0;

	for (uint32_t i = 0; i < n; i++)
		live += before[i].object && before[i].object != GONE;
	nentries = n ? n : 64;
	while (nentries < 4 * (live + 1))
		nentries *= 2;
	entries = calloc(nentries, sizeof(*entries));
	if (!entries) {
		entries = before;
		nentries = n;
		return false;
	}
	nused = 0;
	for (uint32_t i = 0; i < n; i++)
		if (before[i].object && before[i].object != GONE)
			insert(before[i].object, before[i].kind);
	free(before);
	return true;
}

bool cu_handle_add_locked(const void *object, enum cu_kind kind)
{
	if (2 * (nused + 1) > nentries && !grow())
		return false;
	insert(object, kind);
	return true;
}

static struct entry *find(const void *object)
{
	if (!object || !nentries)
		return NULL;
	for (uint32_t i = place(object); entries[i].object; i = (i + 1) & (nentries - 1))
		if (entries[i].object == object)
			return &entries[i];
	return NULL;
}

void cu_handle_remove_locked(const void *object)
{
	struct entry *entry = find(object);

	if (entry)
		entry->object = GONE;
}

const void *cu_handle_next_locked(enum cu_kind kind, uint32_t *at)
{
	while (*at < nentries) {
		const struct entry *entry = &entries[(*at)++];

		if (entry->object && entry->object != GONE && entry->kind == kind)
			return entry->object;
	}
	return NULL;
}

bool cu_handle_is_locked(const void *object, enum cu_kind kind)
{
	const struct entry *entry = find(object);

	return entry && entry->kind == kind;
}
