/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stand-ins for libraries of NVIDIA's toolkit over the fake driver: a few functions each, written from the public
 * documentation, computed by the processor in the order of their stream. Nothing of this is fast.
 */
#ifndef GANTRY_TESTS_FAKECUDA_LIBRARIES_FAKE_H
#define GANTRY_TESTS_FAKECUDA_LIBRARIES_FAKE_H

#include <stddef.h>

/* Runs @work with a copy of @bytes at @args behind what @stream has. 0, or the driver's code. */
int fake_enqueue(void *stream, void (*work)(void *args), const void *args, size_t bytes);
/* The calling thread's device, as the driver numbers it. */
int fake_device(void);
/* Until @stream has nothing left; or the context. */
int fake_wait(void *stream);
int fake_wait_all(void);

#endif
