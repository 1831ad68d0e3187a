/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording of calls of the forwarding libraries: each request that a stub sends with the reply that it got, and what the program then had of
 * it. Replayed, the stubs send the same to nobody, get the replies out of the file, and the program has to have the same.
 *
 * A file is TAPE_MAGIC and entries, each an 8-byte word of its kind, one of its length, and its bytes, padded to 8:
 *
 *   TAPE_ABOUT     a text: where it was made, with the driver's version
 *   TAPE_ADDRESS   where a buffer of device memory was, and its length: 8 bytes each
 *   TAPE_REQUEST   the function's name with its NUL, padded to 8, then the request as on the wire (proto/calls.h)
 *   TAPE_REPLY     what the road returned and the failure of an earlier call that is to be told, 8 bytes each, then the reply as on the wire, or nothing
 *   TAPE_SEEN      a text that says what, with its NUL, padded to 8, then bytes
 *   TAPE_END       nothing
 *
 * Requests hold content and no addresses but those of buffers, so they are the same each time. The function's number is not compared: it changes
 * with its description, its items need not. One thread.
 */
#ifndef GANTRY_TESTS_CALLS_TAPE_H
#define GANTRY_TESTS_CALLS_TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest-shim/cudalibs/call.h"

#define TAPE_MAGIC    0x3165706174796e47ull
#define TAPE_BUFFERS  2u
#define TAPE_BYTES    4096u
#define TAPE_MAX_FILE (64u << 20)

enum tape_kind {
	TAPE_ABOUT = 1,
	TAPE_ADDRESS = 2,
	TAPE_REQUEST = 3,
	TAPE_REPLY = 4,
	TAPE_SEEN = 5,
	TAPE_END = 6,
};

/* @path is made anew, or read; ends the program with a sentence where that fails. @about: of a new one. */
void tape_record(const char *path, const char *about);
void tape_replay(const char *path);
/* Everything was there. Returns how many requests there were. */
unsigned int tape_close(void);

/* The road that the stubs are to take: @other's, written down; or the tape's alone. */
const struct gantry_call_road *tape_road(const struct gantry_call_road *other);

/* Buffer @i at @address; replayed, returns where it was. */
void *tape_buffer(unsigned int i, void *address);
/* What the program has: written down, or compared. */
void tape_see(const char *what, const void *bytes, size_t n);

#endif
