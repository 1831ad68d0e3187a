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
#define PARAMS	  8u	/* of one macro, and more are left out */
#define VARIANTS  8u	/* of one argument */

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

static bool is_same(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

/* @params: names with commas between; NULL: it has none, nor parentheses. */
static void add(struct gantry_macros *m, const char *name, size_t len, const char *params,
		const char *body)
{
	struct gantry_macro macro;
	uint32_t *bucket;

	for (uint32_t i = find(m, name, len); i != NONE;
	     i = of_name(m, m->macros[i].next, name, len))
		if (strcmp(m->macros[i].body, body) == 0 && is_same(m->macros[i].params, params))
			return;
	if (m->n == GANTRY_MACROS_MAX || m->has_failed)
		return;
	macro.name = strndup(name, len);
	macro.body = strdup(body);
	macro.params = params ? strdup(params) : NULL;
	if (!macro.name || !macro.body || (params && !macro.params) || !make_room(m)) {
		free(macro.name);
		free(macro.body);
		free(macro.params);
		m->has_failed = true;
		return;
	}
	bucket = bucket_of(m, name, len);
	macro.next = *bucket;
	*bucket = m->n;
	m->macros[m->n++] = macro;
}

/*
 * From @at to @end, or to the end of the line, without comments, and without blanks at the ends and beside what stands between words anyway. False: it
 * is no part of a name.
 */
static bool take_body(const char *at, const char *end, char body[BODY])
{
	static const char between[] = "(),#";
	bool has_blank = false;
	size_t len = 0;

	for (; *at && *at != '\n' && at != end; at++) {
		if (at[0] == '/' && (at[1] == '/' || at[1] == '*'))
			break;
		if (at[0] == '\\' && at[1] == '\n') {
			at++;
		} else if (isspace((unsigned char)*at)) {
			has_blank = len > 0 && !strchr(between, body[len - 1]);
		} else if ((has_blank && !strchr(between, *at)) ||
			   !(is_word_char(*at) || strchr("./<>\"+-(),#", *at)) || len == BODY - 1) {
			return false;
		} else {
			body[len++] = *at;
			has_blank = false;
		}
	}
	body[len] = '\0';
	return true;
}

/* The names between parentheses at @at; where they end, or NULL: there are too many, or it is something else. */
static const char *take_params(const char *at, char params[BODY])
{
	const char *end = at + 1 + strcspn(at + 1, ")\n");
	uint32_t n = 1;

	if (*end != ')' || !take_body(at + 1, end, params) || strpbrk(params, "(/<>\"+-#"))
		return NULL;
	for (const char *comma = strchr(params, ','); comma; comma = strchr(comma + 1, ','))
		n++;
	return n <= PARAMS ? end + 1 : NULL;
}

void gantry_macros_define(struct gantry_macros *macros, const char *at)
{
	char params[BODY], body[BODY];
	const char *behind;
	size_t len;

	at += strspn(at, " \t");
	len = word_len(at);
	if (len == 0)
		return;
	behind = at[len] == '(' ? take_params(at + len, params) : at + len;
	if (behind && take_body(behind, NULL, body))
		add(macros, at, len, at[len] == '(' ? params : NULL, body);
}

void gantry_macros_define_option(struct gantry_macros *macros, const char *option)
{
	size_t len = word_len(option);
	char body[BODY];

	if (len > 0 && !option[len])
		add(macros, option, len, NULL, "1");
	else if (len > 0 && option[len] == '=' && take_body(option + len + 1, NULL, body))
		add(macros, option, len, NULL, body);
}

void gantry_macros_fini(struct gantry_macros *macros)
{
	for (uint32_t i = 0; i < macros->n; i++) {
		free(macros->macros[i].name);
		free(macros->macros[i].body);
		free(macros->macros[i].params);
	}
	free(macros->macros);
	free(macros->buckets);
	*macros = (struct gantry_macros){ 0 };
}

/* ---- arguments ---- */

struct args {
	uint32_t n;
	const char *at[PARAMS];
	size_t len[PARAMS];
};

/* Behind the parenthesis that closes the one at @at, with what is between; NULL: none does, or it is too much. */
static const char *take_args(const char *at, struct args *args)
{
	const char *begin = ++at;
	uint32_t depth = 0;

	for (args->n = 0; *at && *at != '\n'; at++) {
		bool ends = depth == 0 && (*at == ',' || *at == ')');

		depth += (*at == '(') - (*at == ')' && depth > 0);
		if (!ends)
			continue;
		if (args->n == PARAMS)
			return NULL;
		args->at[args->n] = begin;
		args->len[args->n++] = (size_t)(at - begin);
		if (*at == ')')
			return at + 1;
		begin = at + 1;
	}
	return NULL;
}

/* Which of @params the word is; NONE: none. What stands for the rest has its own name inside. */
static uint32_t param_of(const char *params, const char *word, size_t len)
{
	for (uint32_t i = 0; params && len > 0; i++) {
		size_t here = strcspn(params, ",");

		if ((here == len && strncmp(params, word, len) == 0) ||
		    (strncmp(params, "...", 3) == 0 && len == strlen("__VA_ARGS__") &&
		     strncmp(word, "__VA_ARGS__", len) == 0))
			return i;
		params = params[here] ? params + here + 1 : NULL;
	}
	return NONE;
}

/* Whether the macro takes so many; the last takes the rest, where it is written so. */
static bool fits(const char *params, struct args *args)
{
	uint32_t n = *params ? 1 : 0;

	for (const char *comma = strchr(params, ','); comma; comma = strchr(comma + 1, ','))
		n++;
	if (n > 0 && args->n > n && strstr(params, "...")) {
		args->len[n - 1] =
			(size_t)(args->at[args->n - 1] + args->len[args->n - 1] - args->at[n - 1]);
		args->n = n;
	}
	return args->n == n || (n == 0 && args->n == 1 && args->len[0] == 0);
}

/* ---- what becomes of a text ---- */

struct walk {
	struct gantry_macros *macros;
	void (*fn)(void *cookie, const char *text);
	void *cookie;
	uint32_t nsteps, ntexts;
};

static void walk(struct walk *w, const char *text, size_t at, uint32_t depth);

/* What arguments may become, of which one of each is chosen. */
struct variants {
	uint32_t n;
	char *texts[VARIANTS];
};

static void note_variant(void *cookie, const char *text)
{
	struct variants *v = cookie;

	if (v->n < VARIANTS)
		v->texts[v->n] = strdup(text);
	if (v->n < VARIANTS && v->texts[v->n])
		v->n++;
}

/* As @w, of one argument; what it takes counts there. */
static void vary(struct walk *w, const char *at, size_t len, uint32_t depth, struct variants *v)
{
	struct walk inner = { w->macros, note_variant, v, w->nsteps, 0 };
	char *text = strndup(at, len);

	w->macros->has_failed |= !text;
	if (text)
		walk(&inner, text, 0, depth + 1);
	w->nsteps = inner.nsteps;
	free(text);
}

/* The @len bytes of @body at @at, with what the words between are as arguments: as written beside # and ##, else as @become. */
static void put_body(FILE *out, const struct gantry_macro *macro, const struct args *args,
		     char *const *become)
{
	const char *at = macro->body;
	bool pastes = false;

	while (*at) {
		size_t len = word_len(at);
		bool quotes = macro->params && at[0] == '#' && at[1] != '#';
		const char *word = quotes ? at + 1 : at;
		size_t word_bytes = quotes ? word_len(word) : len;
		uint32_t arg = param_of(macro->params, word, word_bytes);

		if (at[0] == '#' && at[1] == '#') {
			at += 2;
			pastes = true;
			continue;
		}
		if (arg != NONE && arg < args->n) {
			bool raw = quotes || pastes || strncmp(word + word_bytes, "##", 2) == 0;

			(void)fprintf(out, quotes ? "\"%.*s\"" : "%.*s",
				      raw ? (int)args->len[arg] : (int)strlen(become[arg]),
				      raw ? args->at[arg] : become[arg]);
			at = word + word_bytes;
		} else {
			(void)fwrite(at, 1, len > 0 ? len : 1, out);
			at += len > 0 ? len : 1;
		}
		pastes = false;
	}
}

/* @text with what it has from @at to @end become what @macro makes of @args. */
static void replace(struct walk *w, const char *text, size_t at, const char *end, uint32_t depth,
		    const struct gantry_macro *macro, const struct args *args, char *const *become)
{
	char *made = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&made, &len);

	if (!out) {
		w->macros->has_failed = true;
		return;
	}
	(void)fwrite(text, 1, at, out);
	put_body(out, macro, args, become);
	(void)fputs(end, out);
	if (fclose(out) != 0)
		w->macros->has_failed = true;
	else if (len < TEXT)
		walk(w, made, at, depth + 1);
	free(made);
}

/* Each choice of what the arguments from @arg on may become. */
static void choose(struct walk *w, const char *text, size_t at, const char *end, uint32_t depth,
		   const struct gantry_macro *macro, const struct args *args, uint32_t arg,
		   char **become)
{
	struct variants v = { 0 };

	if (arg == args->n) {
		replace(w, text, at, end, depth, macro, args, become);
		return;
	}
	vary(w, args->at[arg], args->len[arg], depth, &v);
	for (uint32_t i = 0; i < v.n; i++) {
		become[arg] = v.texts[i];
		if (w->nsteps < MAX_STEPS)
			choose(w, text, at, end, depth, macro, args, arg + 1, become);
		free(v.texts[i]);
	}
}

/* The word at @at is @macro's, if it is followed by what that takes. */
static void apply(struct walk *w, const char *text, size_t at, uint32_t depth,
		  const struct gantry_macro *macro)
{
	const char *end = text + at + word_len(text + at);
	char *become[PARAMS] = { NULL };
	struct args args = { 0 };

	if (macro->params) {
		end = *end == '(' ? take_args(end, &args) : NULL;
		if (!end || !fits(macro->params, &args))
			return;
	}
	choose(w, text, at, end, depth, macro, &args, 0, become);
}

/* Of what the quotes at @at hold, where no word is a macro's. */
static size_t quoted_len(const char *at)
{
	size_t len = 1 + strcspn(at + 1, "\"");

	return at[len] ? len + 1 : len;
}

/* The next word from *@at on that is a macro's, and its first definition; NONE: the text is what it is. */
static uint32_t next_macro(const struct walk *w, const char *text, size_t *at, uint32_t depth)
{
	while (text[*at]) {
		size_t len = word_len(text + *at);
		uint32_t macro = len > 0 && depth < DEPTH ? find(w->macros, text + *at, len) : NONE;

		if (macro != NONE)
			return macro;
		*at += len > 0 ? len : text[*at] == '"' ? quoted_len(text + *at) : 1;
	}
	return NONE;
}

/* Up to @at nothing of @text changes any more. */
static void walk(struct walk *w, const char *text, size_t at, uint32_t depth)
{
	uint32_t macro;
	size_t len;

	if (w->nsteps++ >= MAX_STEPS || w->ntexts == GANTRY_MACROS_MAX_TEXTS ||
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
	     i = of_name(w->macros, w->macros->macros[i].next, text + at, len))
		apply(w, text, at, depth, &w->macros->macros[i]);
	/* Or it is not defined there. */
	if (w->nsteps < MAX_STEPS)
		walk(w, text, at + len, depth);
}

void gantry_macros_expand(struct gantry_macros *macros, const char *text,
			  void (*fn)(void *cookie, const char *text), void *cookie)
{
	struct walk w = { .macros = macros, .fn = fn, .cookie = cookie };
	char clean[BODY];

	if (take_body(text, NULL, clean))
		walk(&w, clean, 0, 0);
}
