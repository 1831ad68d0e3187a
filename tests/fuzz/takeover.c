/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What another build wrote and this one reads when it takes over: a candidate's hello, what a monitor leaves for the program
 * that it becomes, names of descriptors that systemd kept, the agent's journal.
 * Input: a byte that says which; then the text.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host-agent/agent/build.h"
#include "host-agent/agent/journal.h"
#include "host-agent/monitor/document.h"
#include "tests/fuzz/fuzz.h"

/* What it says is read again as it was; and it is judged, whatever it says. */
static void try_hello(const char *text, size_t len)
{
	struct gantry_build build, again, self;
	struct gantry_err err = GANTRY_ERR_NONE;
	char buf[GANTRY_BUILD_TEXT_MAX];
	int n;

	if (gantry_build_parse(text, len, &build) < 0)
		return;
	n = gantry_build_format(&build, buf, sizeof(buf));
	assert(n > 0);
	assert(gantry_build_parse(buf, (size_t)n, &again) == 0);
	assert(strcmp(build.version, again.version) == 0);
	assert(strcmp(build.problem, again.problem) == 0);
	assert(memcmp(build.formats, again.formats, sizeof(build.formats)) == 0);
	gantry_build_self(&self);
	if (gantry_build_may_follow(&self, &build, true, &err) < 0)
		assert(err.text[0]);
	(void)gantry_build_may_return(&self, &build, NULL);
	assert(gantry_build_version_compare(build.version, build.version) == 0);
}

static void try_monitor(const char *text, size_t len)
{
	while (len > 0) {
		const char *newline = memchr(text, '\n', len);
		size_t n = newline ? (size_t)(newline - text) + 1 : len;
		struct gantry_monitor_line line, again;
		char copy[2 * GANTRY_MONITOR_LINE_MAX], buf[GANTRY_MONITOR_LINE_MAX];
		size_t m = n < sizeof(copy) - 1 ? n : sizeof(copy) - 1;

		memcpy(copy, text, m);
		copy[m] = '\0';
		if (gantry_monitor_line_parse(copy, &line) == 0) {
			assert(line.fd >= 0 && line.pid >= 0 && line.restarts >= 0);
			assert(gantry_monitor_line_format(&line, buf) > 0);
			assert(gantry_monitor_line_parse(buf, &again) == 0);
			assert(again.kind == line.kind && again.pid == line.pid &&
			       again.fd == line.fd && again.status == line.status &&
			       again.version == line.version && strcmp(again.name, line.name) == 0);
			assert(line.kind != GANTRY_MONITOR_LINE_FD || line.name[0]);
		}
		text += n;
		len -= n;
	}
}

static void try_names(const char *text, size_t len)
{
	char *names = malloc(len + 1);
	const char *at = names;

	if (!names)
		abort();
	memcpy(names, text, len);
	names[len] = '\0';
	for (size_t i = 0; i <= len + 1; i++) {
		char name[GANTRY_MONITOR_NAME_MAX];

		at = gantry_shelf_name_next(at, name);
		assert(at >= names && at <= names + len);
		assert(strlen(name) < sizeof(name) && !strchr(name, ':'));
	}
	assert(*at == '\0'); /* there are never more names than bytes */
	free(names);
}

static void check_journal_line(void *arg, const struct gantry_journal_line *line)
{
	char buf[1024];

	(void)arg;
	assert(memchr(line->program, '\0', sizeof(line->program)));
	assert(memchr(line->host, '\0', sizeof(line->host)));
	assert(line->upgrade.state < GANTRY_NUPGRADE_STATES);
	assert(gantry_journal_format(line, buf, sizeof(buf)) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	const char *text = (const char *)data + 1;

	if (len == 0)
		return 0;
	switch (data[0] % 4) {
	case 0:
		try_hello(text, len - 1);
		break;
	case 1:
		try_monitor(text, len - 1);
		break;
	case 2:
		try_names(text, len - 1);
		break;
	default:
		(void)gantry_journal_parse(text, len - 1, check_journal_line, NULL);
		break;
	}
	return 0;
}
