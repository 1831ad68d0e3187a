/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/forks.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gantry_list watches = GANTRY_LIST_INIT(watches);

static void in_child(void)
{
	gantry_list_for_each_safe(&watches, struct gantry_fork_watch, link, w) {
		gantry_list_remove(&w->link);
		w->in_child(w->cookie);
	}
	gantry_forks_unlock();
}

static void register_handlers(void)
{
	/*
	 * Without memory for it children keep their parents' doors for as long as they live: no reason to refuse. The C
	 * library takes the handlers back when this one is unloaded.
	 */
	(void)pthread_atfork(gantry_forks_lock, gantry_forks_unlock, in_child);
}

void gantry_forks_lock(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, register_handlers);
	pthread_mutex_lock(&lock);
}

void gantry_forks_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void gantry_forks_watch_locked(struct gantry_fork_watch *w, void (*in_child_of)(void *cookie),
			       void *cookie)
{
	w->in_child = in_child_of;
	w->cookie = cookie;
	gantry_list_push_back(&watches, &w->link);
}

void gantry_forks_forget(struct gantry_fork_watch *w)
{
	gantry_forks_lock();
	if (w->in_child)
		gantry_list_remove(&w->link);
	gantry_forks_unlock();
}
