/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

int gantry_thread_start(pthread_t *ret_thread, void *(*fn)(void *), void *arg)
{
	sigset_t all, before;
	int r;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(ret_thread, NULL, fn, arg);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -r;
}

void gantry_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	/* None of these can fail for what they are given. */
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(cond, &attr);
	(void)pthread_condattr_destroy(&attr);
}

unsigned int gantry_cpus_allowed(void)
{
	cpu_set_t set;

	/* More processors than the set holds is the only way to fail here: certainly more than one. */
	return sched_getaffinity(0, sizeof(set), &set) < 0 ? 2 : (unsigned int)CPU_COUNT(&set);
}
