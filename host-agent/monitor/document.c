/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/monitor/document.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#define WORDS 6u

struct words {
	unsigned int n;
	char *at[WORDS];
};

/* Words with one space between them, and nothing else in the line; n is 0 where there are more than any line has. */
static void split(char *line, struct words *ret)
{
	char *save, *word;

	ret->n = 0;
	for (word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		if (ret->n == WORDS) {
			ret->n = 0;
			return;
		}
		ret->at[ret->n++] = word;
	}
}

static bool number(const char *word, long min, int32_t *ret)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(word, &end, 10);
	if (errno || end == word || *end || value < min || value > INT32_MAX)
		return false;
	*ret = (int32_t)value;
	return true;
}

static bool parse_agent(const struct words *w, struct gantry_monitor_line *l)
{
	int32_t is_child, was_ready;

	l->kind = GANTRY_MONITOR_LINE_AGENT;
	if (w->n != 6 || !number(w->at[1], 1, &l->pid) || !number(w->at[2], 0, &l->fd) ||
	    !number(w->at[3], 0, &is_child) || !number(w->at[4], 0, &was_ready) ||
	    !number(w->at[5], 0, &l->restarts))
		return false;
	l->is_child = is_child != 0;
	l->was_ready = was_ready != 0;
	return true;
}

static bool parse_fd(const struct words *w, struct gantry_monitor_line *l)
{
	l->kind = GANTRY_MONITOR_LINE_FD;
	return w->n == 3 && number(w->at[1], 0, &l->fd) &&
	       gantry_str_copy(l->name, sizeof(l->name), w->at[2]) == 0;
}

static bool parse(const struct words *w, struct gantry_monitor_line *l)
{
	int32_t version;

	if (w->n == 0)
		return false;
	if (strcmp(w->at[0], "gantry-monitor") == 0) {
		l->kind = GANTRY_MONITOR_LINE_VERSION;
		if (w->n != 2 || !number(w->at[1], 0, &version))
			return false;
		l->version = (uint32_t)version;
		return true;
	}
	if (strcmp(w->at[0], "agent") == 0)
		return parse_agent(w, l);
	if (strcmp(w->at[0], "leaving") == 0) {
		l->kind = GANTRY_MONITOR_LINE_LEAVING;
		return w->n == 2 && number(w->at[1], 0, &l->pid);
	}
	if (strcmp(w->at[0], "exited") == 0) {
		l->kind = GANTRY_MONITOR_LINE_EXITED;
		return w->n == 3 && number(w->at[1], 1, &l->pid) &&
		       number(w->at[2], INT32_MIN, &l->status);
	}
	if (strcmp(w->at[0], "fd") == 0)
		return parse_fd(w, l);
	l->kind = GANTRY_MONITOR_LINE_END;
	return w->n == 1 && strcmp(w->at[0], "end") == 0;
}

int gantry_monitor_line_parse(const char *text, struct gantry_monitor_line *ret_line)
{
	struct gantry_monitor_line line = { 0 };
	char copy[GANTRY_MONITOR_LINE_MAX];
	struct words words;
	size_t len = strlen(text);

	if (len > 0 && text[len - 1] == '\n')
		len--;
	if (len >= sizeof(copy))
		return -EPROTO;
	memcpy(copy, text, len);
	copy[len] = '\0';
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)copy[i] < ' ' || copy[i] == 0x7f)
			return -EPROTO;
	split(copy, &words);
	if (!parse(&words, &line))
		return -EPROTO;
	*ret_line = line;
	return 0;
}

int gantry_monitor_line_format(const struct gantry_monitor_line *l,
			       char buf[GANTRY_MONITOR_LINE_MAX])
{
	int n = -1;

	switch (l->kind) {
	case GANTRY_MONITOR_LINE_VERSION:
		n = snprintf(buf, GANTRY_MONITOR_LINE_MAX, "gantry-monitor %u\n", l->version);
		break;
	case GANTRY_MONITOR_LINE_AGENT:
		n = snprintf(buf, GANTRY_MONITOR_LINE_MAX, "agent %d %d %d %d %d\n", l->pid, l->fd,
			     l->is_child, l->was_ready, l->restarts);
		break;
	case GANTRY_MONITOR_LINE_LEAVING:
		n = snprintf(buf, GANTRY_MONITOR_LINE_MAX, "leaving %d\n", l->pid);
		break;
	case GANTRY_MONITOR_LINE_EXITED:
		n = snprintf(buf, GANTRY_MONITOR_LINE_MAX, "exited %d %d\n", l->pid, l->status);
		break;
	case GANTRY_MONITOR_LINE_FD:
		n = snprintf(buf, GANTRY_MONITOR_LINE_MAX, "fd %d %s\n", l->fd, l->name);
		break;
	case GANTRY_MONITOR_LINE_END:
		n = snprintf(buf, GANTRY_MONITOR_LINE_MAX, "end\n");
		break;
	}
	return n < 0 || n >= GANTRY_MONITOR_LINE_MAX ? -E2BIG : n;
}

const char *gantry_shelf_name_next(const char *names, char ret_name[GANTRY_MONITOR_NAME_MAX])
{
	size_t len = names ? strcspn(names, ":") : 0;

	ret_name[0] = '\0';
	if (len > 0 && len < GANTRY_MONITOR_NAME_MAX) {
		memcpy(ret_name, names, len);
		ret_name[len] = '\0';
	}
	if (!names)
		return NULL;
	return names + len + (names[len] == ':');
}
