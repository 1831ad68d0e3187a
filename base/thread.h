/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of libraries, in programs that know nothing of them; and what they wait for each other with. Threads: any. Blocking: never. */
#ifndef GANTRY_BASE_THREAD_H
#define GANTRY_BASE_THREAD_H

#include <pthread.h>

/* A thread that takes no signal: these are the program's own threads'. 0 or -errno of pthread_create(). */
int gantry_thread_start(pthread_t *ret_thread, void *(*fn)(void *), void *arg);
/* A condition whose times are CLOCK_MONOTONIC's. */
void gantry_cond_init(pthread_cond_t *cond);
/* On how many processors the calling thread may run. */
unsigned int gantry_cpus_allowed(void);

#endif
