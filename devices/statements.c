/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/statements.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool gantry_kernel_name_valid(const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len > GANTRY_KERNEL_NAME_MAX || is_digit(name[0]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_letter(name[i]) && !is_digit(name[i]) && name[i] != '_')
			return false;
	return true;
}

bool gantry_file_name_valid(const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len > GANTRY_FILE_NAME_MAX || name[0] == '.')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_letter(name[i]) && !is_digit(name[i]) && !strchr("_.+-", name[i]))
			return false;
	return true;
}

static int check_bytes(const char *text, size_t len, struct gantry_err *err)
{
	unsigned int line = 1;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '\n')
			line++;
		else if (c != '\t' && (c < 0x20 || c > 0x7e))
			return gantry_err_set(err, -EINVAL, "line %u: byte 0x%02x is not text",
					      line, c);
	}
	return 0;
}

/* @line is cut at its words; a comment ends it. */
static int parse_line(char *line, unsigned int max_words, gantry_statement *each, void *arg,
		      struct gantry_err *err)
{
	char *words[GANTRY_STATEMENT_MAX_WORDS];
	unsigned int nwords = 0;
	char *save = NULL;

	line[strcspn(line, "#")] = '\0';
	for (char *word = strtok_r(line, " \t", &save); word; word = strtok_r(NULL, " \t", &save)) {
		if (nwords == max_words)
			return gantry_err_set(err, -EINVAL, "too many words");
		words[nwords++] = word;
	}
	return nwords > 0 ? each(arg, words, nwords, err) : 0;
}

int gantry_statements_parse(const char *text, size_t len, unsigned int max_words,
			    gantry_statement *each, void *arg, struct gantry_err *err)
{
	_cleanup_free_ char *copy = NULL;
	unsigned int number = 1;
	int r = check_bytes(text, len, err);

	assert(max_words <= GANTRY_STATEMENT_MAX_WORDS);
	if (r < 0)
		return r;
	copy = strndup(text, len);
	if (!copy)
		return gantry_err_set(err, -ENOMEM, "no memory for the text");
	for (char *line = copy; line; number++) {
		char *end = strchr(line, '\n');

		if (end)
			*end++ = '\0';
		r = parse_line(line, max_words, each, arg, err);
		if (r < 0)
			return gantry_err_wrap(err, r, "line %u", number);
		line = end;
	}
	return 0;
}
