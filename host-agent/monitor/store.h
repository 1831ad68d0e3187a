/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named descriptors: what the monitor keeps for the agent, and the agent's own list of what it
 * gave.
 *
 * Threads: one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_MONITOR_STORE_H
#define GANTRY_HOST_AGENT_MONITOR_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "host-agent/monitor/protocol.h"

/* More than any host's sessions need; a broken agent cannot make the monitor keep more. */
#define GANTRY_STORE_MAX 65536u

struct gantry_store_entry {
	char name[GANTRY_MONITOR_NAME_MAX];
	int fd;
};

struct gantry_store {
	struct gantry_store_entry *entries; /* owned, in no order */
	size_t nentries;
	size_t cap;
	bool owns; /* descriptors are closed when their entry goes */
};

void gantry_store_init(struct gantry_store *store, bool owns);
void gantry_store_fini(struct gantry_store *store);

/*
 * Keep @fd under @name, instead of one that is there. An owning store takes @fd over on success.
 * -EINVAL: empty or too long a name; -ENOSPC: full; -ENOMEM.
 */
int gantry_store_put(struct gantry_store *store, const char *name, int fd);

/* The descriptor, still the store's, or -ENOENT. */
int gantry_store_find(const struct gantry_store *store, const char *name);

/* Remove an entry without closing its descriptor, which becomes the caller's; -ENOENT. */
int gantry_store_take(struct gantry_store *store, const char *name);

void gantry_store_drop(struct gantry_store *store, const char *name);

/* Every entry whose name starts with @prefix. */
void gantry_store_drop_tree(struct gantry_store *store, const char *prefix);

#endif
