/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of a program. Libraries never log: they return errors, and the program logs each once,
 * where the error stops travelling.
 *
 * Each call site may write GANTRY_LOG_BURST lines in GANTRY_LOG_WINDOW_NS; what comes beyond is
 * counted, and the count is reported with the first line of a later window. So a hostile peer
 * cannot fill the disk.
 *
 * Threads: any; a line is written with one write() and never torn.
 * Blocking: as stderr does, unless another sink is set.
 */
#ifndef GANTRY_BASE_LOG_H
#define GANTRY_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The numbers are syslog's, as journald reads them from a "<3>" prefix. */
enum gantry_log_level {
	GANTRY_LOG_ERR = 3,
	GANTRY_LOG_WARN = 4,
	GANTRY_LOG_INFO = 6,
	GANTRY_LOG_DEBUG = 7,
};

enum gantry_log_format {
	GANTRY_LOG_PLAIN,   /* "gantryd: warning: text" */
	GANTRY_LOG_JOURNAL, /* "<4>text" */
};

#define GANTRY_LOG_BURST     10u
#define GANTRY_LOG_WINDOW_NS 5000000000ull
#define GANTRY_LOG_LINE_MAX  1024

/* State of one call site; zeroed at start. Private to log.c. */
struct gantry_log_site {
	uint64_t window_start_ns;
	uint32_t lines;
	uint32_t suppressed;
};

/* Gets a finished line without its newline. Called under the log's lock: it must not log. */
typedef void (*gantry_log_sink_fn)(void *arg, enum gantry_log_level level, const char *line);

/*
 * Name the program (kept by pointer) and choose the format: JOURNAL when stderr is the journal
 * (JOURNAL_STREAM names it), else PLAIN. Optional; call before threads start.
 */
void gantry_log_open(const char *program);

/* Lines above @level are dropped. The default is INFO. */
void gantry_log_level_set(enum gantry_log_level level);
enum gantry_log_level gantry_log_level_get(void);
void gantry_log_format_set(enum gantry_log_format format);

/* "err", "warn", "info" or "debug". 0 or -EINVAL. */
int gantry_log_level_parse(const char *text, enum gantry_log_level *ret_level);

/* Lines go to descriptor @fd, which stays the caller's, rather than to standard error. */
void gantry_log_fd_set(int fd);

/* Send lines to @sink instead of stderr; NULL goes back. @arg must live as long. */
void gantry_log_sink_set(gantry_log_sink_fn sink, void *arg);

void gantry_log_at(struct gantry_log_site *site, enum gantry_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* gantry_log(GANTRY_LOG_WARN, "tenant %s: %s", name, err.text); A newline is added. */
#define gantry_log(level, ...)                                   \
	do {                                                     \
		static struct gantry_log_site log_site_;         \
		gantry_log_at(&log_site_, (level), __VA_ARGS__); \
	} while (0)

#ifdef __cplusplus
}
#endif

#endif
