/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/build.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "host-agent/monitor/protocol.h"
#include "migration/ledger.h"
#include "proto/doormem.h"
#include "proto/wire.h"

#define LINE_MAX_LEN 320u
#define END_MARK     "end"

static const struct {
	const char *name;
	const char *what; /* for sentences */
	struct gantry_build_range own;
} formats[GANTRY_NFORMATS] = {
	[GANTRY_FORMAT_MONITOR] = { "monitor",
				    "the monitor's protocol",
				    { GANTRY_MONITOR_VERSION, GANTRY_MONITOR_VERSION } },
	[GANTRY_FORMAT_NAMES] = { "names",
				  "names of kept descriptors",
				  { GANTRY_KEEP_VERSION_OLDEST, GANTRY_KEEP_VERSION } },
	[GANTRY_FORMAT_JOURNAL] = { "journal",
				    "the journal",
				    { GANTRY_JOURNAL_VERSION, GANTRY_JOURNAL_VERSION } },
	[GANTRY_FORMAT_LEDGER] = { "ledger",
				   "ledgers",
				   { GANTRY_LEDGER_VERSION_OLDEST, GANTRY_LEDGER_VERSION } },
	[GANTRY_FORMAT_PAGES] = { "pages",
				  "share pages",
				  { GANTRY_PAGES_VERSION, GANTRY_PAGES_VERSION } },
	[GANTRY_FORMAT_WORKER] = { "worker",
				   "the workers' protocol",
				   { GANTRY_WORKER_PROTOCOL, GANTRY_WORKER_PROTOCOL } },
	[GANTRY_FORMAT_DOORMEM] = { "doormem",
				    "memories of virtual machines",
				    { GANTRY_DOORMEM_VERSION, GANTRY_DOORMEM_VERSION } },
	[GANTRY_FORMAT_WIRE] = { "wire",
				 "the guests' protocol",
				 { GANTRY_WIRE_VERSION_MIN, GANTRY_WIRE_VERSION_MAX } },
};

const char *gantry_build_format_name(enum gantry_build_format format)
{
	return formats[format].name;
}

void gantry_build_self(struct gantry_build *ret_build)
{
	*ret_build = (struct gantry_build){ 0 };
	/* it fits: a version is short */
	(void)gantry_str_copy(ret_build->version, sizeof(ret_build->version), gantry_build_version);
	for (unsigned int i = 0; i < GANTRY_NFORMATS; i++)
		ret_build->formats[i] = formats[i].own;
}

/* ---- as text ---- */

int gantry_build_format(const struct gantry_build *build, char *buf, size_t cap)
{
	size_t len = 0;
	int n = snprintf(buf, cap, "gantryd %s\n", build->version);

	for (unsigned int i = 0; i < GANTRY_NFORMATS && n >= 0 && len + (size_t)n < cap; i++) {
		len += (size_t)n;
		n = snprintf(buf + len, cap - len, "format %s %u %u\n", formats[i].name,
			     build->formats[i].oldest, build->formats[i].newest);
	}
	if (n >= 0 && len + (size_t)n < cap) {
		len += (size_t)n;
		n = build->problem[0]
			    ? snprintf(buf + len, cap - len, "problem %s\n", build->problem)
			    : 0;
	}
	if (n >= 0 && len + (size_t)n < cap) {
		len += (size_t)n;
		n = snprintf(buf + len, cap - len, END_MARK "\n");
	}
	return n < 0 || len + (size_t)n >= cap ? -E2BIG : (int)(len + (size_t)n);
}

static int parse_format(const char *line, struct gantry_build *b)
{
	struct gantry_build_range range;
	char name[24], rest;

	if (sscanf(line, "format %23s %u %u%c", name, &range.oldest, &range.newest, &rest) != 3 ||
	    range.oldest > range.newest)
		return -EINVAL;
	for (unsigned int i = 0; i < GANTRY_NFORMATS; i++)
		if (strcmp(formats[i].name, name) == 0)
			b->formats[i] = range;
	return 0; /* one that we do not know is of something that we have not written */
}

static bool printable(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			return false;
	return true;
}

/* 0: go on; 1: that was the end mark. */
static int parse_line(const char *line, bool first, struct gantry_build *b)
{
	if (!printable(line))
		return -EINVAL;
	if (first)
		return gantry_str_starts(line, "gantryd ") && line[8]
			       ? gantry_str_copy(b->version, sizeof(b->version), line + 8)
			       : -EINVAL;
	if (strcmp(line, END_MARK) == 0)
		return 1;
	if (gantry_str_starts(line, "format "))
		return parse_format(line, b);
	if (gantry_str_starts(line, "problem "))
		(void)gantry_str_copy(b->problem, sizeof(b->problem),
				      line + 8); /* cut is better than unsaid */
	return 0;
}

int gantry_build_parse(const char *text, size_t len, struct gantry_build *ret_build)
{
	struct gantry_build b = { 0 };
	size_t at = 0;

	while (at < len) {
		const char *newline = memchr(text + at, '\n', len - at);
		size_t n = newline ? (size_t)(newline - text) - at : len;
		char line[LINE_MAX_LEN];
		int r;

		if (!newline || n >= sizeof(line))
			return -EINVAL;
		memcpy(line, text + at, n);
		line[n] = '\0';
		if (strlen(line) != n)
			return -EINVAL;
		r = parse_line(line, at == 0, &b);
		if (r < 0)
			return -EINVAL;
		if (r > 0) {
			*ret_build = b;
			return 0;
		}
		at += n + 1;
	}
	return -EINVAL;
}

/* ---- which may follow which ---- */

int gantry_build_version_compare(const char *a, const char *b)
{
	for (;;) {
		char *end_a, *end_b;
		unsigned long x = strtoul(a, &end_a, 10), y = strtoul(b, &end_b, 10);

		if (end_a == a || end_b == b)
			return (end_a != a) - (end_b != b);
		if (x != y)
			return x < y ? -1 : 1;
		if (*end_a != '.' || *end_b != '.')
			return (*end_a == '.') - (*end_b == '.');
		a = end_a + 1;
		b = end_b + 1;
	}
}

/* A reader of @next that finds what @now wrote. */
static int reads(const struct gantry_build *writer, const struct gantry_build *reader,
		 const char *advice, struct gantry_err *err)
{
	for (unsigned int i = 0; i < GANTRY_NFORMATS; i++) {
		const struct gantry_build_range *w = &writer->formats[i];
		const struct gantry_build_range *r = &reader->formats[i];

		if (w->newest >= r->oldest && w->newest <= r->newest)
			continue;
		return gantry_err_set(err, -EPROTO,
				      "%s writes %s in version %u, and %s reads %u to %u%s",
				      writer->version, formats[i].what, w->newest, reader->version,
				      r->oldest, r->newest, advice);
	}
	return 0;
}

int gantry_build_may_follow(const struct gantry_build *now, const struct gantry_build *next,
			    bool downgrade, struct gantry_err *err)
{
	int r = reads(now, next, ": upgrade by a version between, or restart the service", err);

	if (r < 0)
		return r;
	/* Segments live as long as their guests: every version in use has to be understood, not only the newest. */
	if (next->formats[GANTRY_FORMAT_WIRE].oldest > now->formats[GANTRY_FORMAT_WIRE].oldest)
		return gantry_err_set(
			err, -EPROTO,
			"%s serves guests of protocol %u and later, and there may be some "
			"of %u: restart the service when they have ended",
			next->version, next->formats[GANTRY_FORMAT_WIRE].oldest,
			now->formats[GANTRY_FORMAT_WIRE].oldest);
	if (!downgrade && gantry_build_version_compare(next->version, now->version) < 0)
		return gantry_err_set(
			err, -EPERM,
			"it is version %s, older than %s that serves; --downgrade takes it",
			next->version, now->version);
	if (next->problem[0])
		return gantry_err_set(err, -EINVAL, "version %s cannot serve here: %s",
				      next->version, next->problem);
	return 0;
}

int gantry_build_may_return(const struct gantry_build *now, const struct gantry_build *next,
			    struct gantry_err *err)
{
	return reads(next, now, "", err);
}
