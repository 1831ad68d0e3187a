/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one monitor leaves for the program that it becomes, and what systemd says of descriptors that it kept: as text, and
 * back. Another build wrote it, so it is read as input.
 *
 *   gantry-monitor VERSION
 *   agent PID SOCKET IS_CHILD WAS_READY RESTARTS
 *   leaving PID
 *   exited PID STATUS          each worker that ended and nobody was told of
 *   fd NUMBER NAME             each kept descriptor
 *   end
 *
 * Threads: any. Blocking: no.
 */
#ifndef GANTRY_HOST_AGENT_MONITOR_DOCUMENT_H
#define GANTRY_HOST_AGENT_MONITOR_DOCUMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "host-agent/monitor/protocol.h"

/* With its newline and its end. */
#define GANTRY_MONITOR_LINE_MAX 160

enum gantry_monitor_line_kind {
	GANTRY_MONITOR_LINE_VERSION,
	GANTRY_MONITOR_LINE_AGENT,
	GANTRY_MONITOR_LINE_LEAVING,
	GANTRY_MONITOR_LINE_EXITED,
	GANTRY_MONITOR_LINE_FD,
	GANTRY_MONITOR_LINE_END,
};

struct gantry_monitor_line {
	enum gantry_monitor_line_kind kind;
	uint32_t version;
	int32_t pid;	/* AGENT, EXITED: positive; LEAVING: 0 is nobody */
	int32_t status; /* EXITED */
	int32_t fd;	/* AGENT: the socket to it; FD */
	bool is_child;
	bool was_ready;
	int32_t restarts;
	char name[GANTRY_MONITOR_NAME_MAX]; /* FD: not empty */
};

/* @text: a line, with or without its newline. 0 or -EPROTO. */
int gantry_monitor_line_parse(const char *text, struct gantry_monitor_line *ret_line);
/* With a newline. Its length, or -E2BIG. */
int gantry_monitor_line_format(const struct gantry_monitor_line *line,
			       char buf[GANTRY_MONITOR_LINE_MAX]);

/*
 * The next of names with colons between them (LISTEN_FDNAMES), and what comes after it. Empty: it is too long to be one of
 * ours. @names may be NULL: there are none.
 */
const char *gantry_shelf_name_next(const char *names, char ret_name[GANTRY_MONITOR_NAME_MAX]);

#endif
