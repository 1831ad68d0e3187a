/* SPDX-License-Identifier: Apache-2.0 */
/* Small helpers for text: bounded copies, names, hexadecimal, random bytes. Threads: any. */
#ifndef GANTRY_BASE_STR_H
#define GANTRY_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Longest name that gantry_name_valid() accepts, without the terminator. */
#define GANTRY_NAME_LEN_MAX 31

/*
 * Copy @src into @dst of @cap bytes (at least 1). Always terminates; what does not fit is cut off.
 * 0, or -E2BIG when something was cut off.
 */
int gantry_str_copy(char *dst, size_t cap, const char *src);

/* The same for formatted text. */
int gantry_str_format(char *dst, size_t cap, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Bytes that are not printable ASCII become '?': for text that a stranger chose and a terminal, a
 * log or a label will show.
 */
void gantry_str_make_printable(char *text);

bool gantry_str_equal(const char *a, const char *b);
bool gantry_str_starts(const char *text, const char *prefix);

/* [a-z0-9][a-z0-9_.-]{0,30}: tenants, devices, policies. NULL is not valid. */
bool gantry_name_valid(const char *name);

/*
 * The same for @cap bytes that a peer filled: valid only when a terminator is among them.
 * Pass a private copy, never shared memory.
 */
bool gantry_name_valid_bounded(const char *name, size_t cap);

/*
 * Lower-case hexadecimal of @len bytes; @cap must be at least 2 * @len + 1. 0 or -E2BIG (nothing
 * written).
 */
int gantry_hex_encode(const void *data, size_t len, char *dst, size_t cap);

/* Exactly 2 * @len hexadecimal digits to @len bytes. 0 or -EINVAL (@dst is then undefined). */
int gantry_hex_decode(const char *hex, void *dst, size_t len);

/* Random bytes fit for keys. May block once, early in boot. 0 or -errno. */
int gantry_random_bytes(void *dst, size_t len);

#ifdef __cplusplus
}
#endif

#endif
