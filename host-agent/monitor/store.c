/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/monitor/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"

void gantry_store_init(struct gantry_store *store, bool owns)
{
	*store = (struct gantry_store){ .owns = owns };
}

/* Linear searches: a host has some thousand entries and adds few a second. */
static struct gantry_store_entry *find(const struct gantry_store *store, const char *name)
{
	for (size_t i = 0; i < store->nentries; i++)
		if (strcmp(store->entries[i].name, name) == 0)
			return &store->entries[i];
	return NULL;
}

static void remove_entry(struct gantry_store *store, struct gantry_store_entry *entry)
{
	if (store->owns)
		gantry_fd_close(entry->fd);
	*entry = store->entries[--store->nentries];
}

void gantry_store_fini(struct gantry_store *store)
{
	while (store->nentries > 0)
		remove_entry(store, &store->entries[store->nentries - 1]);
	free(store->entries);
	*store = (struct gantry_store){ .owns = store->owns };
}

static int grow(struct gantry_store *store)
{
	size_t cap = store->cap ? store->cap * 2 : 64;
	struct gantry_store_entry *entries;

	if (store->nentries < store->cap)
		return 0;
	if (store->nentries >= GANTRY_STORE_MAX)
		return -ENOSPC;
	entries = realloc(store->entries, cap * sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	store->entries = entries;
	store->cap = cap;
	return 0;
}

int gantry_store_put(struct gantry_store *store, const char *name, int fd)
{
	struct gantry_store_entry *entry = find(store, name);
	int r;

	if (name[0] == '\0' || strlen(name) >= GANTRY_MONITOR_NAME_MAX)
		return -EINVAL;
	if (entry) {
		if (store->owns && entry->fd != fd)
			gantry_fd_close(entry->fd);
		entry->fd = fd;
		return 0;
	}
	r = grow(store);
	if (r < 0)
		return r;
	entry = &store->entries[store->nentries++];
	(void)gantry_str_copy(entry->name, sizeof(entry->name), name); /* its length was checked */
	entry->fd = fd;
	return 0;
}

int gantry_store_find(const struct gantry_store *store, const char *name)
{
	const struct gantry_store_entry *entry = find(store, name);

	return entry ? entry->fd : -ENOENT;
}

int gantry_store_take(struct gantry_store *store, const char *name)
{
	struct gantry_store_entry *entry = find(store, name);
	int fd;

	if (!entry)
		return -ENOENT;
	fd = entry->fd;
	*entry = store->entries[--store->nentries];
	return fd;
}

void gantry_store_drop(struct gantry_store *store, const char *name)
{
	struct gantry_store_entry *entry = find(store, name);

	if (entry)
		remove_entry(store, entry);
}

void gantry_store_drop_tree(struct gantry_store *store, const char *prefix)
{
	size_t i = 0;

	while (i < store->nentries) {
		if (gantry_str_starts(store->entries[i].name, prefix))
			remove_entry(store, &store->entries[i]); /* another entry is at i now */
		else
			i++;
	}
}
