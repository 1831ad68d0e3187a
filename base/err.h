/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sentence about a failure, for a human to read.
 *
 * A function that fails returns -errno; where somebody will read about it, it also takes a final
 * `struct gantry_err *err`. The sentence is set where the cause is first known and wrapped on the
 * way up, so the reader sees "attaching tenant red: mapping 4096 bytes: Cannot allocate memory".
 *
 * Threads: a gantry_err belongs to its caller; nothing here is shared.
 * Blocking: never. Allocates nothing.
 */
#ifndef GANTRY_BASE_ERR_H
#define GANTRY_BASE_ERR_H

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GANTRY_ERR_TEXT_MAX 256

struct gantry_err {
	int code;			/* -errno; 0 when nothing was set */
	char text[GANTRY_ERR_TEXT_MAX]; /* always terminated; a longer sentence is cut short */
};

/* An object without an error: `struct gantry_err err = GANTRY_ERR_NONE;` */
#define GANTRY_ERR_NONE \
	{               \
		0, ""   \
	}

/*
 * Record @code and the sentence. @err may be NULL: the caller did not want to know.
 * @fmt should not name the errno; gantry_err_set() does not add it either: say what was tried.
 * Returns @code, so that `return gantry_err_set(err, -EINVAL, ...)` reads as one step.
 */
int gantry_err_set(struct gantry_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * As gantry_err_set(), and ends the sentence with ": " and the text of the errno in @code.
 * For a failed system call, where the errno is all that is known.
 */
int gantry_err_set_errno(struct gantry_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Put "@fmt: " before the sentence already in @err and set its code to @code. Without an earlier
 * sentence the errno's own text takes its place. What does not fit is cut from the end of the inner
 * sentence. Returns @code. @err may be NULL.
 */
int gantry_err_wrap(struct gantry_err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#ifdef __cplusplus
}
#endif

#endif
