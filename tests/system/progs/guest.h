/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the guest that does what it is told; guest.c has the table of its commands. */
#ifndef GANTRY_TESTS_SYSTEM_PROGS_GUEST_H
#define GANTRY_TESTS_SYSTEM_PROGS_GUEST_H

#include <stdint.h>

#include "guest-shim/gantry.h"

#define SECOND 1000000000ll

/* NULL until it is told to open one. */
extern struct gantry_session *session;

/* What a command called NAME; a number stands for itself. */
uint64_t get(const char *name);
void set(const char *name, uint64_t value);
const char *status_name(int status);
/* Prints the one line of an answer; the second form names @value on success. */
void answer(int status);
void answer_named(int status, const char *name, uint64_t value);
/* Found once: a later call asks the host for nothing. */
int find_kernel(const char *name, gantry_kernel *ret_kernel);
uint64_t mix64(uint64_t z);
/* What the kernel checksum adds for the @i-th word. */
uint64_t checksum_word(uint64_t word, uint64_t i);
uint64_t now_ns(void);

/* guest-data.c */
void do_props(char **words);
void do_usage(char **words);
void do_random(char **words);
void do_same(char **words);
void do_word(char **words);
void do_expect(char **words);
void do_sum(char **words);
void do_pattern(char **words);
void do_copy(char **words);

/* guest-images.c */
void do_image(char **words);
void do_image_find(char **words);
void do_image_free(char **words);
void do_kernel(char **words);
void do_find(char **words);
void do_launch(char **words);
void do_first(char **words);

/* guest-deep.c */
void do_deep(char **words);

#endif
