/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/journal.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "proto/door.h"

#define WRITE_SOON_NS (10 * GANTRY_NS_PER_MS)
#define RETRY_NS      (5 * GANTRY_NS_PER_S)
#define LINE_MAX_LEN  512
#define END_MARK      "end\n"

/* ---- lines ---- */

static int format_upgrade(const struct gantry_upgrade_record *u, char *buf, size_t cap)
{
	return snprintf(buf, cap,
			"upgrade %u %u %u %u %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
			" %s %s %" PRIx64 " %" PRIx64 "\n",
			u->state, u->id, u->restart_workers, u->ndone, u->nrefused, u->nback,
			u->began_ns, u->yielded_ns, u->pause_ns, u->took_ns, u->from, u->to,
			u->from_program, u->to_program);
}

static bool parse_upgrade(const char *text, struct gantry_upgrade_record *u)
{
	int n;

	static_assert(sizeof(u->from) == 32 && sizeof(u->to) == 32, "the widths below");
	n = sscanf(text,
		   "upgrade %u %u %u %u %u %u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
		   " %31s %31s %" SCNx64 " %" SCNx64,
		   &u->state, &u->id, &u->restart_workers, &u->ndone, &u->nrefused, &u->nback,
		   &u->began_ns, &u->yielded_ns, &u->pause_ns, &u->took_ns, u->from, u->to,
		   &u->from_program, &u->to_program);
	/* The programs are what builds before this one do not write, and pass over. */
	if (n != 14)
		u->from_program = u->to_program = 0;
	return n >= 12 && u->state < GANTRY_NUPGRADE_STATES;
}

int gantry_journal_format(const struct gantry_journal_line *line, char *buf, size_t cap)
{
	char hex[2 * sizeof(line->program) + 1], nonce[2 * sizeof(line->nonce) + 1];
	int n = -1;

	switch (line->kind) {
	case GANTRY_JOURNAL_NEXT:
		n = snprintf(buf, cap, "next %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", line->id,
			     line->worker, line->migration);
		break;
	case GANTRY_JOURNAL_SESSION:
		/* it fits */
		(void)gantry_hex_encode(line->program, sizeof(line->program), hex, sizeof(hex));
		n = snprintf(buf, cap, "session %" PRIu64 " %" PRIu64 " %s\n", line->id,
			     line->unix_ns, hex);
		break;
	case GANTRY_JOURNAL_TOKEN:
		(void)gantry_hex_encode(line->token.bytes, sizeof(line->token.bytes), hex,
					sizeof(hex)); /* it fits */
		n = snprintf(buf, cap, "token %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %u %u\n", hex,
			     line->token.session_id, line->token.share_id, line->token.buffer_bytes,
			     line->token.tenant_slot, line->token.mode);
		break;
	case GANTRY_JOURNAL_DEVICE:
		n = snprintf(buf, cap, "device %s %u\n", line->device, line->state);
		break;
	case GANTRY_JOURNAL_HANDOVER:
		(void)gantry_hex_encode(line->token.bytes, sizeof(line->token.bytes), hex,
					sizeof(hex)); /* it fits */
		(void)gantry_hex_encode(line->nonce, sizeof(line->nonce), nonce,
					sizeof(nonce)); /* it fits */
		n = snprintf(buf, cap, "handover %s %s %" PRIu64 " %u %" PRIu64 " %u %s %s\n",
			     line->is_incoming ? "in" : "out", hex, line->id, line->state,
			     line->guest_session, line->port, line->host[0] ? line->host : "-",
			     nonce);
		break;
	case GANTRY_JOURNAL_UPGRADE:
		n = format_upgrade(&line->upgrade, buf, cap);
		break;
	}
	return n < 0 || (size_t)n >= cap ? -E2BIG : n;
}

static bool parse_token(const char *text, struct gantry_token *t)
{
	char hex[2 * GANTRY_DOOR_TOKEN + 2];

	return sscanf(text, "token %33s %" SCNu64 " %" SCNu64 " %" SCNu64 " %u %u", hex,
		      &t->session_id, &t->share_id, &t->buffer_bytes, &t->tenant_slot,
		      &t->mode) == 6 &&
	       gantry_hex_decode(hex, t->bytes, sizeof(t->bytes)) == 0 &&
	       (t->mode == GANTRY_R || t->mode == GANTRY_RW);
}

static bool parse_session(const char *text, struct gantry_journal_line *l)
{
	char hex[2 * sizeof(l->program) + 2];

	return sscanf(text, "session %" SCNu64 " %" SCNu64 " %65s", &l->id, &l->unix_ns, hex) ==
		       3 &&
	       gantry_hex_decode(hex, l->program, sizeof(l->program)) == 0 &&
	       memchr(l->program, '\0', sizeof(l->program));
}

static bool parse_handover(const char *text, struct gantry_journal_line *l)
{
	char hex[2 * GANTRY_DOOR_TOKEN + 2], nonce[2 * sizeof(l->nonce) + 2], way[4];

	if (sscanf(text, "handover %3s %33s %" SCNu64 " %u %" SCNu64 " %u %255s %33s", way, hex,
		   &l->id, &l->state, &l->guest_session, &l->port, l->host, nonce) != 8 ||
	    gantry_hex_decode(hex, l->token.bytes, sizeof(l->token.bytes)) < 0 ||
	    gantry_hex_decode(nonce, l->nonce, sizeof(l->nonce)) < 0)
		return false;
	l->is_incoming = strcmp(way, "in") == 0;
	return l->is_incoming || strcmp(way, "out") == 0;
}

static bool parse_line(const char *text, struct gantry_journal_line *l)
{
	*l = (struct gantry_journal_line){ 0 };
	if (gantry_str_starts(text, "next ")) {
		l->kind = GANTRY_JOURNAL_NEXT;
		return sscanf(text, "next %" SCNu64 " %" SCNu64 " %" SCNu64, &l->id, &l->worker,
			      &l->migration) >= 2; /* older builds write no third */
	}
	if (gantry_str_starts(text, "session ")) {
		l->kind = GANTRY_JOURNAL_SESSION;
		return parse_session(text, l);
	}
	if (gantry_str_starts(text, "token ")) {
		l->kind = GANTRY_JOURNAL_TOKEN;
		return parse_token(text, &l->token);
	}
	if (gantry_str_starts(text, "device ")) {
		l->kind = GANTRY_JOURNAL_DEVICE;
		return sscanf(text, "device %31s %u", l->device, &l->state) == 2 &&
		       gantry_name_valid(l->device);
	}
	if (gantry_str_starts(text, "handover ")) {
		l->kind = GANTRY_JOURNAL_HANDOVER;
		return parse_handover(text, l);
	}
	if (gantry_str_starts(text, "upgrade ")) {
		l->kind = GANTRY_JOURNAL_UPGRADE;
		return parse_upgrade(text, &l->upgrade);
	}
	return false;
}

int gantry_journal_parse(const char *text, size_t len,
			 void (*fn)(void *arg, const struct gantry_journal_line *line), void *arg)
{
	size_t at = 0;

	while (at < len) {
		const char *newline = memchr(text + at, '\n', len - at);
		size_t n = newline ? (size_t)(newline - text) - at : len - at;
		struct gantry_journal_line line;
		char copy[LINE_MAX_LEN];

		if (newline && n == strlen(END_MARK) - 1 && memcmp(text + at, END_MARK, n) == 0)
			return 0;
		if (newline && n < sizeof(copy)) {
			memcpy(copy, text + at, n);
			copy[n] = '\0';
			if (parse_line(copy, &line))
				fn(arg, &line);
		}
		at += n + 1;
	}
	return -ENODATA;
}

/* ---- the file ---- */

static void add(FILE *out, const struct gantry_journal_line *line)
{
	char text[LINE_MAX_LEN];

	if (gantry_journal_format(line, text, sizeof(text)) > 0)
		(void)fputs(text, out); /* its end shows at fclose() */
}

static void add_all(struct gantry_agent *a, FILE *out)
{
	struct gantry_journal_line line = {
		.kind = GANTRY_JOURNAL_NEXT,
		.id = a->next_session_id,
		.worker = a->next_worker_id,
		.migration = a->last_handover,
	};

	add(out, &line);
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s) {
		line = (struct gantry_journal_line){
			.kind = GANTRY_JOURNAL_SESSION,
			.id = s->id,
			.unix_ns = s->attached_unix_ns,
		};
		memcpy(line.program, s->program, sizeof(line.program));
		add(out, &line);
	}
	for (size_t i = 0; i < a->tokens.ntokens; i++) {
		line = (struct gantry_journal_line){
			.kind = GANTRY_JOURNAL_TOKEN,
			.token = a->tokens.tokens[i],
		};
		add(out, &line);
	}
	for (uint32_t i = 0; i < a->ndevices; i++) {
		line = (struct gantry_journal_line){
			.kind = GANTRY_JOURNAL_DEVICE,
			.state = a->devices[i].state,
		};
		/* it fits */
		(void)gantry_str_copy(line.device, sizeof(line.device), a->devices[i].conf.name);
		if (a->devices[i].used && a->devices[i].admin_off)
			add(out, &line);
	}
	gantry_list_for_each(&a->handovers, struct gantry_handover, link, h)
		if (gantry_handover_line(h, &line))
			add(out, &line);
	line = (struct gantry_journal_line){
		.kind = GANTRY_JOURNAL_UPGRADE,
		.upgrade = a->upgrade.record,
	};
	if (a->upgrade.record.id)
		add(out, &line);
	(void)fputs(END_MARK, out); /* its end shows at fclose() */
}

/*
 * No fsync: the journal outlives the agent, not the machine. The token bytes in it let their bearer
 * adopt buffers,
 * so nobody else may read it.
 */
static int write_journal(struct gantry_agent *a)
{
	char path[PATH_MAX], temporary[PATH_MAX];
	FILE *out;
	int fd, r = 0;

	if (gantry_str_format(path, sizeof(path), "%s/journal", a->args.run_dir) < 0 ||
	    gantry_str_format(temporary, sizeof(temporary), "%s/journal.new", a->args.run_dir) < 0)
		return -ENAMETOOLONG;
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	out = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (!out) {
		r = -errno;
		gantry_fd_close(fd);
		return r;
	}
	add_all(a, out);
	if (fclose(out) != 0)
		r = -errno;
	if (r == 0 && rename(temporary, path) < 0)
		r = -errno;
	if (r < 0)
		(void)unlink(temporary); /* the failure being reported is the one that matters */
	return r;
}

static void write_due(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	gantry_journal_now(arg);
}

void gantry_journal_now(struct gantry_agent *a)
{
	bool failed_before = a->journal_failed;
	int r = gantry_failpoint_io(GANTRY_FAILPOINT_JOURNAL_WRITE);

	if (r == 0)
		r = write_journal(a);

	a->journal_failed = r < 0;
	if (r == 0)
		return;
	a->counters.journal_errors++;
	if (!failed_before)
		gantry_event(a, "journal-failed", NULL, NULL, NULL,
			     "%s/journal: %s; service goes on", a->args.run_dir, strerror(-r));
	/* or at the next change */
	(void)gantry_timer_set(a, &a->journal_event, RETRY_NS, write_due, a);
}

void gantry_journal_touch(struct gantry_agent *a)
{
	if (a->journal_failed || a->stopping)
		return; /* the retry is on its way; or nobody will read it */
	if (a->journal_event && event_pending(a->journal_event, EV_TIMEOUT, NULL))
		return;
	/* or at the next change */
	(void)gantry_timer_set(a, &a->journal_event, WRITE_SOON_NS, write_due, a);
}
