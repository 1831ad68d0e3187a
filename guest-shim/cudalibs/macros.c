/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/cudalibs/macros.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS	  1024u
#define NONE	  UINT32_MAX
#define BODY	  256u /* and what is longer is left out */
#define TEXT	  4096u
#define DEPTH	  16u	/* of macros in macros */
#define MAX_STEPS 1024u /* of one text */

static bool is_word_char(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static size_t word_len(const char *at)
{
	size_t len = 0;

	while (is_word_char(at[len]))
		len++;
	return len;
}

static uint32_t *bucket_of(struct gantry_macros *m, const char *name, size_t len)
{
	uint32_t sum = 2166136261u;

	for (size_t i = 0; i < len; i++)
		sum = (sum ^ (uint8_t)name[i]) * 16777619u;
	return &m->buckets[sum % BUCKETS];
}

/* From macro @i on, the first of that name. */
static uint32_t of_name(const struct gantry_macros *m, uint32_t i, const char *name, size_t len)
{
	while (i != NONE && (strncmp(m->macros[i].name, name, len) != 0 || m->macros[i].name[len]))
		i = m->macros[i].next;
	return i;
}

static uint32_t find(struct gantry_macros *m, const char *name, size_t len)
{
	return m->buckets ? of_name(m, *bucket_of(m, name, len), name, len) : NONE;
}

/* ---- definitions ---- */

static bool make_room(struct gantry_macros *m)
{
	uint32_t room = m->room ? 2 * m->room : 256;
	struct gantry_macro *macros;

	if (!m->buckets) {
		m->buckets = malloc(BUCKETS * sizeof(*m->buckets));
		if (!m->buckets)
			return false;
		memset(m->buckets, 0xff, BUCKETS * sizeof(*m->buckets)); /* NONE */
	}
	if (m->n < m->room)
		return true;
	macros = realloc(m->macros, room * sizeof(*macros));
	if (!macros)
		return false;
	m->macros = macros;
	m->room = room;
	return true;
}

static void add(struct gantry_macros *m, const char *name, size_t len, const char *body)
{
	struct gantry_macro macro;
	uint32_t *bucket;

	for (uint32_t i = find(m, name, len); i != NONE;
	     i = of_name(m, m->macros[i].next, name, len))
		if (strcmp(m->macros[i].body, body) == 0)
			return;
	if (m->n == GANTRY_MACROS_MAX || m->has_failed)
		return;
	macro.name = strndup(name, len);
	macro.body = strdup(body);
	if (!macro.name || !macro.body || !make_room(m)) {
		free(macro.name);
		free(macro.body);
		m->has_failed = true;
		return;
	}
	bucket = bucket_of(m, name, len);
	macro.next = *bucket;
	*bucket = m->n;
	m->macros[m->n++] = macro;
}

/* The rest of the line without comments and blanks at its ends. False: it is no part of a name. */
static bool take_body(const char *at, char body[BODY])
{
	bool has_ended = false;
	size_t len = 0;

	for (at += strspn(at, " \t"); *at && *at != '\n'; at++) {
		if (at[0] == '/' && (at[1] == '/' || at[1] == '*'))
			break;
		if (at[0] == '\\' && at[1] == '\n') {
			at++;
		} else if (isspace((unsigned char)*at)) {
			has_ended = len > 0;
		} else if (has_ended || !(is_word_char(*at) || strchr("./<>\"+-", *at)) ||
			   len == BODY - 1) {
			return false;
		} else {
			body[len++] = *at;
		}
	}
	body[len] = '\0';
	return true;
}

void gantry_macros_define(struct gantry_macros *macros, const char *at)
{
	char body[BODY];
	size_t len;

	at += strspn(at, " \t");
	len = word_len(at);
	/* One with parameters makes no name here. */
	if (len > 0 && at[len] != '(' && take_body(at + len, body))
		add(macros, at, len, body);
}

void gantry_macros_define_option(struct gantry_macros *macros, const char *option)
{
	size_t len = word_len(option);
	char body[BODY];

	if (len > 0 && !option[len])
		add(macros, option, len, "1");
	else if (len > 0 && option[len] == '=' && take_body(option + len + 1, body))
		add(macros, option, len, body);
}

void gantry_macros_fini(struct gantry_macros *macros)
{
	for (uint32_t i = 0; i < macros->n; i++) {
		free(macros->macros[i].name);
		free(macros->macros[i].body);
	}
	free(macros->macros);
	free(macros->buckets);
	*macros = (struct gantry_macros){ 0 };
}

/* ---- what becomes of a text ---- */

struct walk {
	struct gantry_macros *macros;
	void (*fn)(void *cookie, const char *text);
	void *cookie;
	uint32_t nsteps, ntexts;
};

/* The next word from *@at on that is a macro's, and its first definition; NONE: the text is what it is. */
static uint32_t next_macro(const struct walk *w, const char *text, size_t *at, uint32_t depth)
{
	while (text[*at]) {
		size_t len = word_len(text + *at);
		uint32_t macro = len > 0 && depth < DEPTH ? find(w->macros, text + *at, len) : NONE;

		if (macro != NONE)
			return macro;
		*at += len > 0 ? len : 1;
	}
	return NONE;
}

/* Up to @at nothing of @text changes any more. */
static void walk(struct walk *w, const char *text, size_t at, uint32_t depth)
{
	uint32_t macro;
	size_t len;

	if (w->nsteps++ == MAX_STEPS || w->ntexts == GANTRY_MACROS_MAX_TEXTS ||
	    w->macros->has_failed) {
		w->nsteps = MAX_STEPS;
		return;
	}
	macro = next_macro(w, text, &at, depth);
	if (macro == NONE) {
		w->ntexts++;
		w->fn(w->cookie, text);
		return;
	}
	len = word_len(text + at);
	for (uint32_t i = macro; i != NONE && w->nsteps < MAX_STEPS;
	     i = of_name(w->macros, w->macros->macros[i].next, text + at, len)) {
		char *made;

		if (asprintf(&made, "%.*s%s%s", (int)at, text, w->macros->macros[i].body,
			     text + at + len) < 0) {
			w->macros->has_failed = true;
			return;
		}
		if (strlen(made) < TEXT)
			walk(w, made, at, depth + 1);
		free(made);
	}
	/* Or it is not defined there. */
	if (w->nsteps < MAX_STEPS)
		walk(w, text, at + len, depth);
}

void gantry_macros_expand(struct gantry_macros *macros, const char *text,
			  void (*fn)(void *cookie, const char *text), void *cookie)
{
	struct walk w = { .macros = macros, .fn = fn, .cookie = cookie };

	walk(&w, text, 0, 0);
}
