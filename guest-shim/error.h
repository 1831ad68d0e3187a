/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a failed call leaves behind for its thread: gantry_last_error().
 *
 * Inside guest-shim a function either returns 0 or a negative enum gantry_status whose sentence is
 * recorded already, or, where its header says so, -errno and records nothing.
 * Threads: each thread has a sentence of its own. Blocking: never. Allocates nothing.
 */
#ifndef GANTRY_GUEST_SHIM_ERROR_H
#define GANTRY_GUEST_SHIM_ERROR_H

#include "proto/vocab.h"

/* Records a sentence for gantry_last_error(). */
void gantry_fail_text(const char *fmt, ...) __attribute__((format(printf, 1, 2), cold));

/*
 * gantry_fail(status, fmt, ...) records the sentence and is @status, so that `return gantry_fail(...)` reads as one
 * step. No function, so that its callers' callers are known to fail where they are compiled.
 */
#define gantry_fail(status, ...) (gantry_fail_text(__VA_ARGS__), (status))

/* The same with the status's own sentence. */
int gantry_fail_plain(int status) __attribute__((cold));

/* For -errno of a system call: "@what: No such file or directory". @errnum is positive. */
int gantry_fail_errno(int status, int errnum, const char *what) __attribute__((cold));

#endif
