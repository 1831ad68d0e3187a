/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of calls-guest have in common. */
#ifndef GANTRY_TESTS_GPU_CALLS_GUEST_H
#define GANTRY_TESTS_GPU_CALLS_GUEST_H

#include <stddef.h>
#include <stdint.h>

/* The library's function, or the program's end. */
void *calls_function(const char *folder, const char *soname, const char *name);
void calls_tell(int good, const char *what);
double calls_now_us(void);
/* Address of buffer @i on the device, and what lies there once all is done. */
float *calls_at(int i);
void calls_read(int i, void *to, size_t bytes);
/* That the road has put into queues so far. */
uint64_t calls_tasks(void);

/* calls_tensors.c */
void try_tensors(const char *folder, void *stream);
void measure_tensors(const char *folder, int n);

#endif
