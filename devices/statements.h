/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of statements, a line each: words between blanks, "#" starts a comment. The form of manifests and descriptions.
 *
 * Trust: parsed as hostile input: printable ASCII, tabs and newlines only; nothing else reaches a caller or a log.
 * Threads: any; the functions keep no state.
 */
#ifndef GANTRY_DEVICES_STATEMENTS_H
#define GANTRY_DEVICES_STATEMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define GANTRY_STATEMENT_MAX_WORDS 16u
#define GANTRY_KERNEL_NAME_MAX	   63u
#define GANTRY_FILE_NAME_MAX	   127u

/* One statement, of at least one word; words live until the call returns. 0, or -errno with a sentence: no more follow. */
typedef int gantry_statement(void *arg, char **words, unsigned int nwords, struct gantry_err *err);

/*
 * Calls @each for every statement of @text, which need not be terminated. -EINVAL: not such a text, or a statement of more than
 * @max_words words (at most GANTRY_STATEMENT_MAX_WORDS); else what @each said. Errors name the line. -ENOMEM.
 */
int gantry_statements_parse(const char *text, size_t len, unsigned int max_words,
			    gantry_statement *each, void *arg, struct gantry_err *err);

/* A C identifier of at most GANTRY_KERNEL_NAME_MAX letters: it becomes part of a symbol. */
bool gantry_kernel_name_valid(const char *name);
/* A plain name of at most GANTRY_FILE_NAME_MAX letters: a file beside its manifest and nowhere else. */
bool gantry_file_name_valid(const char *name);

#endif
