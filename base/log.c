/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"

/* Process-wide: a process has one log. All but the level is guarded by the lock. */
static struct {
	pthread_mutex_t lock;
	uint32_t level; /* read without the lock, so that a dropped line costs one load */
	enum gantry_log_format format;
	const char *program;
	gantry_log_sink_fn sink;
	void *sink_arg;
	int fd;
} the_log = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.level = GANTRY_LOG_INFO,
	.fd = STDERR_FILENO,
};

static const struct {
	enum gantry_log_level level;
	const char *name;   /* as configured */
	const char *prefix; /* as printed; nothing for what needs no remark */
} levels[] = {
	{ GANTRY_LOG_ERR, "err", "error: " },
	{ GANTRY_LOG_WARN, "warn", "warning: " },
	{ GANTRY_LOG_INFO, "info", "" },
	{ GANTRY_LOG_DEBUG, "debug", "debug: " },
};

#define NLEVELS (sizeof(levels) / sizeof(levels[0]))

static const char *level_prefix(enum gantry_log_level level)
{
	for (size_t i = 0; i < NLEVELS; i++)
		if (levels[i].level == level)
			return levels[i].prefix;
	return "";
}

/*
 * systemd sets JOURNAL_STREAM to "device:inode" of the stream it gave us; a redirected stderr
 * differs.
 */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char mine[48];
	struct stat st;

	if (!stream || fstat(STDERR_FILENO, &st) < 0)
		return false;
	(void)snprintf(mine, sizeof(mine), "%llu:%llu", (unsigned long long)st.st_dev,
		       (unsigned long long)st.st_ino);
	return strcmp(stream, mine) == 0;
}

void gantry_log_open(const char *program)
{
	bool journal = stderr_is_journal();

	pthread_mutex_lock(&the_log.lock);
	the_log.program = program;
	the_log.format = journal ? GANTRY_LOG_JOURNAL : GANTRY_LOG_PLAIN;
	pthread_mutex_unlock(&the_log.lock);
}

void gantry_log_level_set(enum gantry_log_level level)
{
	gantry_store_relaxed(&the_log.level, (uint32_t)level);
}

enum gantry_log_level gantry_log_level_get(void)
{
	return (enum gantry_log_level)gantry_load_relaxed(&the_log.level);
}

void gantry_log_format_set(enum gantry_log_format format)
{
	pthread_mutex_lock(&the_log.lock);
	the_log.format = format;
	pthread_mutex_unlock(&the_log.lock);
}

int gantry_log_level_parse(const char *text, enum gantry_log_level *ret_level)
{
	for (size_t i = 0; i < NLEVELS; i++) {
		if (strcmp(levels[i].name, text) == 0) {
			*ret_level = levels[i].level;
			return 0;
		}
	}
	return -EINVAL;
}

void gantry_log_fd_set(int fd)
{
	pthread_mutex_lock(&the_log.lock);
	the_log.fd = fd;
	pthread_mutex_unlock(&the_log.lock);
}

void gantry_log_sink_set(gantry_log_sink_fn sink, void *arg)
{
	pthread_mutex_lock(&the_log.lock);
	the_log.sink = sink;
	the_log.sink_arg = arg;
	pthread_mutex_unlock(&the_log.lock);
}

static void write_fd_locked(enum gantry_log_level level, const char *text)
{
	char line[GANTRY_LOG_LINE_MAX + 64];
	int len;

	if (the_log.format == GANTRY_LOG_JOURNAL)
		len = snprintf(line, sizeof(line) - 1, "<%d>%s", (int)level, text);
	else
		len = snprintf(line, sizeof(line) - 1, "%s%s%s%s", the_log.program ?: "",
			       the_log.program ? ": " : "", level_prefix(level), text);
	if (len < 0)
		return;
	if ((size_t)len > sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len] = '\n';
	/* A log that cannot be written has nowhere to complain. */
	if (write(the_log.fd, line, (size_t)len + 1) < 0)
		return;
}

static void emit_locked(enum gantry_log_level level, const char *text)
{
	if (the_log.sink)
		the_log.sink(the_log.sink_arg, level, text);
	else
		write_fd_locked(level, text);
}

/* May this site write a line now? Reports what an earlier window suppressed. */
static bool site_admit_locked(struct gantry_log_site *site, enum gantry_log_level level)
{
	uint64_t now = gantry_now_ns();

	if (site->window_start_ns == 0 || now - site->window_start_ns >= GANTRY_LOG_WINDOW_NS) {
		uint32_t suppressed = site->suppressed;
		char text[64];

		site->window_start_ns = now;
		site->lines = 0;
		site->suppressed = 0;
		if (suppressed > 0) {
			(void)snprintf(text, sizeof(text), "%u similar lines were suppressed",
				       suppressed);
			emit_locked(level, text);
		}
	}
	if (site->lines >= GANTRY_LOG_BURST) {
		site->suppressed++;
		return false;
	}
	site->lines++;
	return true;
}

/*
 * One line is one record: what a peer's text contains must not start another, nor drive a terminal.
 */
static void blank_control_characters(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = ' ';
}

void gantry_log_at(struct gantry_log_site *site, enum gantry_log_level level, const char *fmt, ...)
{
	char text[GANTRY_LOG_LINE_MAX];
	int saved_errno = errno;
	va_list args;

	if (level > gantry_log_level_get())
		return;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	blank_control_characters(text);

	pthread_mutex_lock(&the_log.lock);
	if (site_admit_locked(site, level))
		emit_locked(level, text);
	pthread_mutex_unlock(&the_log.lock);
	errno = saved_errno;
}
