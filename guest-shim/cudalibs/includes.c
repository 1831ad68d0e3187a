/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/cudalibs/includes.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "guest-shim/cudalibs/macros.h"

#define BUCKETS 1024u
#define NONE	UINT32_MAX

struct text {
	char *name;	     /* NULL: the source */
	const char *content; /* as it is */
	char *own;	     /* as it goes along, where that is something else; freed */
	uint32_t next;	     /* in the bucket */
	uint32_t dir;	     /* a file: the folder that it was found in, or below */
	bool is_file;
	bool is_alias; /* for a name that a macro makes; who writes that name means what he would without it */
};

/* What a macro is to say: it stands where a name would, in that text. */
struct wish {
	char *macro;
	uint32_t text;
};

struct set {
	char **dirs;
	uint32_t ndirs;
	struct text *texts; /* the source, headers that were given, files */
	uint32_t n, room;
	uint32_t buckets[BUCKETS];
	uint32_t nfiles;
	uint64_t bytes; /* of files */
	char **options; /* NULL: as it was given */
	uint32_t noptions;
	struct gantry_macros macros;
	struct wish *wishes;
	uint32_t nwishes, wishes_room;
	bool has_failed; /* there is no memory */
	bool has_changed;
};

/* ---- paths ---- */

/* Of an absolute one, without looking. */
static void normalise(char *path)
{
	char *to = path;

	for (const char *at = path; *at;) {
		size_t n = strcspn(at + 1, "/");

		if (n == 2 && at[1] == '.' && at[2] == '.') {
			while (to > path && *--to != '/')
				;
		} else if (n > 1 || (n == 1 && at[1] != '.')) {
			memmove(to, at, n + 1);
			to += n + 1;
		}
		at += n + 1;
	}
	if (to == path)
		*to++ = '/';
	*to = '\0';
}

/* NULL: no memory. */
static char *join(struct set *s, const char *dir, size_t len, const char *name)
{
	char *path = NULL;

	if (asprintf(&path, "%.*s/%s", (int)len, dir, name) < 0) {
		s->has_failed = true;
		return NULL;
	}
	normalise(path);
	return path;
}

/* Which of the folders it lies in; NONE. */
static uint32_t dir_of(const struct set *s, const char *path)
{
	for (uint32_t i = 0; i < s->ndirs; i++) {
		size_t len = strlen(s->dirs[i]);

		if (len == 1 || (strncmp(path, s->dirs[i], len) == 0 && path[len] == '/'))
			return i;
	}
	return NONE;
}

/* All of a regular file; NULL. */
static char *read_all(struct set *s, int fd)
{
	uint64_t room = GANTRY_INCLUDES_MAX_BYTES - s->bytes;
	_cleanup_free_ char *text = NULL;
	struct stat st;
	size_t len = 0;
	ssize_t n;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < 0 ||
	    (uint64_t)st.st_size > room)
		return NULL;
	text = malloc((size_t)st.st_size + 1);
	if (!text) {
		s->has_failed = true;
		return NULL;
	}
	while (len < (size_t)st.st_size && (n = read(fd, text + len, (size_t)st.st_size - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	/* Else it is no text. */
	return strlen(text) == len ? GANTRY_TAKE_PTR(text) : NULL;
}

static char *read_file(struct set *s, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	char *text;

	if (fd < 0)
		return NULL;
	text = read_all(s, fd);
	(void)close(fd);
	return text;
}

/* ---- texts ---- */

static uint32_t bucket_of(const char *name)
{
	uint32_t sum = 2166136261u;

	for (; *name; name++)
		sum = (sum ^ (uint8_t)*name) * 16777619u;
	return sum % BUCKETS;
}

static uint32_t find(const struct set *s, const char *name)
{
	uint32_t i = s->buckets[bucket_of(name)];

	while (i != NONE && strcmp(s->texts[i].name, name) != 0)
		i = s->texts[i].next;
	return i;
}

/* Takes @name and @own in any case. */
static uint32_t add(struct set *s, char *name, const char *content, char *own)
{
	struct text text = { .name = name, .content = content, .own = own, .next = NONE };

	if (s->n == s->room) {
		uint32_t room = s->room ? 2 * s->room : 64;
		struct text *texts = realloc(s->texts, room * sizeof(*texts));

		if (!texts) {
			s->has_failed = true;
			free(name);
			free(own);
			return NONE;
		}
		s->texts = texts;
		s->room = room;
	}
	if (name && find(s, name) == NONE) { /* the first of a name is found */
		text.next = s->buckets[bucket_of(name)];
		s->buckets[bucket_of(name)] = s->n;
	}
	s->texts[s->n] = text;
	return s->n++;
}

/* Takes @path. */
static uint32_t add_file(struct set *s, char *path, uint32_t dir)
{
	uint32_t i = path ? find(s, path) : NONE;
	char *content;

	if (i != NONE || !path || s->nfiles == GANTRY_INCLUDES_MAX_FILES ||
	    strpbrk(path, "\"\n\r") || dir_of(s, path) == NONE) {
		free(path);
		return i;
	}
	content = read_file(s, path);
	if (!content) {
		free(path);
		return NONE;
	}
	i = add(s, path, content, content);
	if (i == NONE)
		return NONE;
	s->texts[i].is_file = true;
	s->texts[i].dir = dir;
	s->nfiles++;
	s->bytes += strlen(content);
	return i;
}

/* What text @by means with @name; NONE: nothing that is read here. */
static uint32_t resolve(struct set *s, uint32_t by, const char *name, bool is_quoted, bool is_next)
{
	uint32_t given = is_next ? NONE : find(s, name), found = NONE;
	uint32_t from = is_next && s->texts[by].is_file ? s->texts[by].dir + 1 : 0;

	if (given != NONE && !s->texts[given].is_file && !s->texts[given].is_alias)
		return NONE; /* NVRTC takes that one */
	if (name[0] == '/') {
		char *path = join(s, "", 0, name);

		return path ? add_file(s, path, dir_of(s, path)) : NONE;
	}
	if (is_quoted && !is_next && s->texts[by].is_file) {
		const char *beside = s->texts[by].name;
		size_t len = (size_t)(strrchr(beside, '/') - beside);
		uint32_t dir = s->texts[by].dir;

		found = add_file(s, join(s, beside, len, name), dir);
	}
	for (uint32_t i = from; i < s->ndirs && found == NONE && !s->has_failed; i++)
		found = add_file(s, join(s, s->dirs[i], strlen(s->dirs[i]), name), i);
	return found;
}

/* ---- looking through a text ---- */

struct look {
	struct set *set;
	uint32_t text;
	const char *copied; /* up to here it is in @out */
	FILE *out;	    /* NULL: nothing is to be written otherwise yet */
	char *bytes;
	size_t len;
	bool is_asking; /* the line is a condition: in parentheses a name may be asked for, whatever the macro is called */
};

static const char *blanks(const char *at)
{
	return at + strspn(at, " \t");
}

static bool is_name_char(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static void add_wish(struct set *s, uint32_t text, const char *name, size_t len)
{
	uint32_t room = s->wishes_room ? 2 * s->wishes_room : 16;
	struct wish wish = { .macro = strndup(name, len), .text = text };

	if (wish.macro && s->nwishes == s->wishes_room) {
		struct wish *wishes = realloc(s->wishes, room * sizeof(*wishes));

		if (wishes) {
			s->wishes = wishes;
			s->wishes_room = room;
		}
	}
	if (!wish.macro || s->nwishes == s->wishes_room) {
		s->has_failed = true;
		free(wish.macro);
		return;
	}
	s->wishes[s->nwishes++] = wish;
}

/* In place of what stands from @from to @to. */
static void write_name(struct look *l, const char *from, const char *to, const char *before,
		       uint32_t file)
{
	struct set *s = l->set;

	if (!l->out)
		l->out = open_memstream(&l->bytes, &l->len);
	if (!l->out) {
		s->has_failed = true;
		return;
	}
	(void)fwrite(l->copied, 1, (size_t)(from - l->copied), l->out);
	(void)fprintf(l->out, "%s\"%s\"", before, s->texts[file].name);
	l->copied = to;
	s->has_changed = true;
}

/* At @at may stand a name that is included or asked for; @next: the word before it, where that says which of several. Where it goes on. */
static const char *look_at_name(struct look *l, const char *at, const char *next)
{
	char closing = *at == '<' ? '>' : '"';
	size_t len;
	uint32_t file;
	char *name;

	if (*at != '<' && *at != '"')
		return at;
	len = strcspn(at + 1, closing == '>' ? ">\n" : "\"\n");
	if (at[1 + len] != closing || len == 0)
		return at;
	name = strndup(at + 1, len);
	if (!name) {
		l->set->has_failed = true;
		return at;
	}
	file = resolve(l->set, l->text, name, closing == '"', next);
	free(name);
	if (file != NONE)
		write_name(l, next ? next : at, at + len + 2, next ? "include " : "", file);
	return at + len + 2;
}

/* Behind the parenthesis that closes the one at @at; @at where none of the line's does. */
static const char *skip_parentheses(const char *at)
{
	uint32_t depth = 0;

	for (const char *to = at; *to && *to != '\n'; to++) {
		depth += (*to == '(') - (*to == ')');
		if (depth == 0)
			return to + 1;
	}
	return at;
}

/* A name may stand at @at, or a macro for one, with what it takes. As look_at_name(). */
static const char *look_at_name_or_macro(struct look *l, const char *at)
{
	const char *end = at;

	while (is_name_char(*end))
		end++;
	if (end == at)
		return look_at_name(l, at, NULL);
	if (*blanks(end) == '(')
		end = skip_parentheses(blanks(end));
	add_wish(l->set, l->text, at, (size_t)(end - at));
	return end;
}

static const char *look_at_directive(struct look *l, const char *at)
{
	const char *word = blanks(at + 1);
	size_t len = 0;

	while (is_name_char(word[len]))
		len++;
	l->is_asking = (len == 2 && strncmp(word, "if", len) == 0) ||
		       (len == 4 && strncmp(word, "elif", len) == 0);
	if (len == strlen("include") && strncmp(word, "include", len) == 0)
		return look_at_name_or_macro(l, blanks(word + len));
	if (len == strlen("define") && strncmp(word, "define", len) == 0)
		gantry_macros_define(&l->set->macros, word + len);
	if (len == strlen("include_next") && strncmp(word, "include_next", len) == 0)
		return look_at_name(l, blanks(word + len), word);
	return at + 1;
}

static const char *look_at_word(struct look *l, const char *at)
{
	size_t len = 0;
	const char *open;

	while (is_name_char(at[len]))
		len++;
	open = blanks(at + len);
	if (*open != '(')
		return at + len;
	if (len == strlen("__has_include") && strncmp(at, "__has_include", len) == 0)
		return look_at_name_or_macro(l, blanks(open + 1));
	return l->is_asking ? look_at_name(l, blanks(open + 1), NULL) : at + len;
}

static const char *skip_line_comment(const char *at)
{
	for (; *at && *at != '\n'; at++)
		if (at[0] == '\\' && at[1] == '\n')
			at++;
	return at;
}

/* Behind the closing @quote, or where the line ends without. */
static const char *skip_quoted(const char *at, char quote)
{
	for (at++; *at && *at != '\n' && *at != quote; at++)
		if (*at == '\\' && at[1])
			at++;
	return *at == quote ? at + 1 : at;
}

/* R"delimiter( ... )delimiter" */
static const char *skip_raw(const char *at)
{
	size_t len = strcspn(at + 1, "(\n\"");
	char end[32];
	const char *found;

	if (at[1 + len] != '(' || len > 16)
		return at + 1;
	(void)snprintf(end, sizeof(end), ")%.*s\"", (int)len, at + 1);
	found = strstr(at, end);
	return found ? found + strlen(end) : at + strlen(at);
}

/* What no name of a file is looked for in; NULL: it is none of that. */
static const char *skip(const char *begin, const char *at)
{
	const char *end;

	if (at[0] == '/' && at[1] == '/')
		return skip_line_comment(at);
	if (at[0] == '/' && at[1] == '*') {
		end = strstr(at + 2, "*/");
		return end ? end + 2 : at + strlen(at);
	}
	if (*at == '"')
		return at > begin && at[-1] == 'R' ? skip_raw(at) : skip_quoted(at, '"');
	if (*at == '\'') /* or it parts a number's digits */
		return at > begin && is_name_char(at[-1]) ? at + 1 : skip_quoted(at, '\'');
	return NULL;
}

static void look_through(struct look *l, const char *begin)
{
	bool is_first = true; /* on its line */

	for (const char *at = begin; *at && !l->set->has_failed;) {
		const char *behind = skip(begin, at);

		if (behind) {
			at = behind;
		} else if (*at == '\n') {
			is_first = at == begin || at[-1] != '\\';
			l->is_asking = l->is_asking && !is_first;
			at++;
		} else if (*at == '#' && is_first) {
			at = look_at_directive(l, at);
			is_first = false;
		} else if (is_name_char(*at)) {
			at = look_at_word(l, at);
			is_first = false;
		} else {
			is_first = is_first && isspace((unsigned char)*at);
			at++;
		}
	}
}

static void follow_text(struct set *s, uint32_t i)
{
	struct look l = { .set = s, .text = i, .copied = s->texts[i].content };
	bool is_whole;

	look_through(&l, s->texts[i].content);
	if (!l.out)
		return;
	(void)fputs(l.copied, l.out);
	is_whole = !ferror(l.out);
	if (fclose(l.out) != 0 || !is_whole || s->has_failed) {
		s->has_failed = true;
		free(l.bytes);
		return;
	}
	free(s->texts[i].own);
	s->texts[i].content = s->texts[i].own = l.bytes;
}

/* ---- names that macros make ---- */

struct grant {
	struct set *set;
	const struct wish *wish;
};

/* A header of that name that includes file @i: which of several lines say, they find what is meant. */
static void add_alias(struct set *s, const char *name, uint32_t i)
{
	char *own = NULL, *copy = strdup(name);
	uint32_t alias;

	if (!copy || asprintf(&own, "#include \"%s\"\n", s->texts[i].name) < 0) {
		free(copy);
		s->has_failed = true;
		return;
	}
	s->nfiles++;
	s->bytes += strlen(own);
	alias = add(s, copy, own, own);
	if (alias != NONE)
		s->texts[alias].is_alias = true;
}

/* The wish may mean @text. */
static void grant_one(void *cookie, const char *text)
{
	const struct grant *g = cookie;
	struct set *s = g->set;
	size_t len = strlen(text);
	bool is_quoted = text[0] == '"';
	uint32_t file;
	char *name;

	if (s->has_failed || len < 3 || (!is_quoted && text[0] != '<') ||
	    text[len - 1] != (is_quoted ? '"' : '>') || s->nfiles + 1 >= GANTRY_INCLUDES_MAX_FILES)
		return;
	name = strndup(text + 1, len - 2);
	s->has_failed |= !name;
	file = name ? resolve(s, g->wish->text, name, is_quoted, false) : NONE;
	if (file != NONE) {
		s->has_changed = true;
		if (find(s, name) == NONE)
			add_alias(s, name, file);
	}
	free(name);
}

/* All texts, and what wishes bring; what those bring may define what others want. */
static void follow_all(struct set *s)
{
	uint32_t next = 0, before;

	do {
		for (; next < s->n && !s->has_failed; next++)
			follow_text(s, next);
		before = s->n;
		for (uint32_t i = 0; i < s->nwishes && !s->has_failed; i++) {
			struct grant grant = { s, &s->wishes[i] };

			gantry_macros_expand(&s->macros, s->wishes[i].macro, grant_one, &grant);
			s->has_failed |= s->macros.has_failed;
		}
	} while (s->n > before && !s->has_failed);
}

/* ---- options ---- */

/* The value of option @i by one of its names, in it or in the one behind; NULL. *@ret_len: of what comes before it. */
static const char *value_of(const struct gantry_includes_given *given, uint32_t i,
			    const char *const *names, size_t *ret_len)
{
	const char *option = given->options[i];

	for (; *names; names++) {
		size_t len = strlen(*names);
		bool joins = (*names)[1] != '-' && len == 2; /* without a sign between */

		if (strncmp(option, *names, len) != 0)
			continue;
		*ret_len = len;
		if (!option[len])
			return i + 1 < given->noptions ? given->options[i + 1] : NULL;
		if (option[len] == '=' || joins) {
			*ret_len = len + (option[len] == '=');
			*ret_len += strspn(option + *ret_len, " ");
			return option + *ret_len;
		}
	}
	return NULL;
}

static void take_dirs(struct set *s, const struct gantry_includes_given *given)
{
	static const char *const names[] = { "-I", "--include-path", NULL };
	_cleanup_free_ char *here = getcwd(NULL, 0);

	s->dirs = calloc(given->noptions + 1, sizeof(*s->dirs));
	s->has_failed |= !s->dirs;
	for (uint32_t i = 0; i < given->noptions && !s->has_failed; i++) {
		size_t len;
		const char *value = value_of(given, i, names, &len);
		char *dir;

		if (!value || !*value || (value[0] != '/' && !here))
			continue;
		dir = value[0] == '/' ? join(s, "", 0, value) : join(s, here, strlen(here), value);
		if (dir)
			s->dirs[s->ndirs++] = dir;
	}
}

static void take_macros(struct set *s, const struct gantry_includes_given *given)
{
	static const char *const names[] = { "-D", "--define-macro", NULL };

	for (uint32_t i = 0; i < given->noptions; i++) {
		size_t len;
		const char *value = value_of(given, i, names, &len);

		if (value)
			gantry_macros_define_option(&s->macros, value);
	}
}

/* A file that comes before the source is named in an option. */
static void follow_options(struct set *s, const struct gantry_includes_given *given)
{
	static const char *const names[] = { "--pre-include", "-include", NULL };

	s->noptions = given->noptions;
	s->options = calloc(given->noptions + 1, sizeof(*s->options));
	s->has_failed |= !s->options;
	for (uint32_t i = 0; i < given->noptions && !s->has_failed; i++) {
		size_t len;
		const char *value = value_of(given, i, names, &len);
		uint32_t file = value ? resolve(s, 0, value, true, false) : NONE;
		bool is_behind = i + 1 < given->noptions && value == given->options[i + 1];

		if (file == NONE)
			continue;
		if (asprintf(&s->options[i + is_behind], "%.*s%s", is_behind ? 0 : (int)len,
			     given->options[i], s->texts[file].name) < 0) {
			s->options[i + is_behind] = NULL;
			s->has_failed = true;
		}
		s->has_changed = true;
	}
}

/* ---- the whole ---- */

static void set_free(struct set *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		free(s->texts[i].name);
		free(s->texts[i].own);
	}
	for (uint32_t i = 0; i < s->ndirs; i++)
		free(s->dirs[i]);
	for (uint32_t i = 0; s->options && i < s->noptions; i++)
		free(s->options[i]);
	for (uint32_t i = 0; i < s->nwishes; i++)
		free(s->wishes[i].macro);
	gantry_macros_fini(&s->macros);
	free(s->wishes);
	free(s->texts);
	free(s->dirs);
	free(s->options);
	free(s);
}

static void take_given(struct set *s, const struct gantry_includes_given *given)
{
	(void)add(s, NULL, given->source, NULL);
	for (uint32_t i = 0; i < given->nheaders && !s->has_failed; i++) {
		char *name = strdup(given->names[i]);

		s->has_failed |= !name;
		if (name)
			(void)add(s, name, given->headers[i], NULL);
	}
}

static int fill(struct set *s, const struct gantry_includes_given *given,
		struct gantry_includes *ret_set)
{
	struct gantry_includes set = { .source = s->texts[0].content, .nheaders = s->n - 1 };

	set.headers = calloc(s->n, sizeof(*set.headers));
	set.names = calloc(s->n, sizeof(*set.names));
	set.options = calloc(given->noptions + 1, sizeof(*set.options));
	if (!set.headers || !set.names || !set.options) {
		free(set.headers);
		free(set.names);
		free(set.options);
		return -ENOMEM;
	}
	for (uint32_t i = 1; i < s->n; i++) {
		set.headers[i - 1] = s->texts[i].content;
		set.names[i - 1] = s->texts[i].name;
	}
	for (uint32_t i = 0; i < given->noptions; i++)
		set.options[i] = s->options[i] ? s->options[i] : given->options[i];
	set.own = s;
	*ret_set = set;
	return 1;
}

int gantry_includes_follow(const struct gantry_includes_given *given,
			   struct gantry_includes *ret_set)
{
	struct set *s = calloc(1, sizeof(*s));
	int r = 0;

	*ret_set = (struct gantry_includes){ 0 };
	if (!s)
		return -ENOMEM;
	memset(s->buckets, 0xff, sizeof(s->buckets)); /* NONE */
	take_dirs(s, given);
	if (s->ndirs > 0 && !s->has_failed) {
		take_given(s, given);
		take_macros(s, given);
		if (!s->has_failed)
			follow_options(s, given);
		follow_all(s);
		if (s->has_changed && !s->has_failed)
			r = fill(s, given, ret_set);
	}
	if (s->has_failed)
		r = -ENOMEM;
	if (r <= 0)
		set_free(s);
	return r;
}

void gantry_includes_fini(struct gantry_includes *set)
{
	if (set->own)
		set_free(set->own);
	free(set->headers);
	free(set->names);
	free(set->options);
	*set = (struct gantry_includes){ 0 };
}
