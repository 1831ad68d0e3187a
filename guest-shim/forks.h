/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that a forked child must not keep: a claim, or a connection, lives as long as any copy of its
 * descriptor, and the host is to notice its owner's end, not its grandchildren's.
 *
 * Whoever opens or closes such a descriptor does it between lock and unlock, together with the word that holds its number:
 * a fork in between would give the child a copy that nobody knows of.
 * Threads: any. Locks: taken before those of a door's sending side, after all others.
 */
#ifndef GANTRY_GUEST_SHIM_FORKS_H
#define GANTRY_GUEST_SHIM_FORKS_H

#include "base/list.h"

struct gantry_fork_watch {
	struct gantry_list link;
	void (*in_child)(void *cookie); /* closes the child's copies; takes no lock */
	void *cookie;
};

void gantry_forks_lock(void);
void gantry_forks_unlock(void);

/* From now on; @w stays where it is until it is forgotten. Under the lock. */
void gantry_forks_watch_locked(struct gantry_fork_watch *w, void (*in_child)(void *cookie),
			       void *cookie);

/* Also of one that was never watched (zeroes), or that a fork has ended. */
void gantry_forks_forget(struct gantry_fork_watch *w);

#endif
