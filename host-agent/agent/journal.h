/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal: names and numbers of what is alive, in RUNDIR/journal, for an agent that starts
 * after one that died.
 *
 * Only what the monitor's descriptors do not tell: programs' names, times, tokens, devices out of
 * service. Losing it
 * costs those, never a session. Replaced whole; one line a thing:
 *   next SESSION WORKER LAST_MIGRATION
 *   session ID ATTACHED_UNIX_NS PROGRAM(hexadecimal)
 *   token BYTES(hexadecimal) SESSION SHARE BUFFER_BYTES TENANT_SLOT MODE
 *   device NAME STATE
 *   handover out|in TOKEN(hexadecimal) SESSION STATE GUEST_SESSION PORT HOST NONCE(hexadecimal)
 *   upgrade STATE ID RESTART_WORKERS NDONE NREFUSED NBACK BEGAN_NS YIELDED_NS PAUSE_NS TOOK_NS FROM TO [FROM_PROGRAM TO_PROGRAM]
 *   end
 * This is GANTRY_JOURNAL_VERSION (build.h): an agent of another build may read it.
 * Trust: read as input: bounded, and lines that make no sense are passed over.
 * Threads: the agent's one; format and parse any. Blocking: to write a small file, without fsync.
 * Order: gantry_journal_touch() any time; gantry_journal_now() where it cannot wait.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_JOURNAL_H
#define GANTRY_HOST_AGENT_AGENT_JOURNAL_H

#include <stddef.h>
#include <stdint.h>

#include "host-agent/agent/config.h"
#include "host-agent/agent/token.h"
#include "host-agent/agent/upgrade.h"

struct gantry_agent;

#define GANTRY_JOURNAL_MAX_BYTES (4u * 1024u * 1024u)

enum gantry_journal_kind {
	GANTRY_JOURNAL_NEXT,
	GANTRY_JOURNAL_SESSION,
	GANTRY_JOURNAL_TOKEN,
	GANTRY_JOURNAL_DEVICE,
	GANTRY_JOURNAL_HANDOVER,
	GANTRY_JOURNAL_UPGRADE,
};

struct gantry_journal_line {
	enum gantry_journal_kind kind;
	uint64_t id;	    /* SESSION; NEXT: next session */
	uint64_t worker;    /* NEXT */
	uint64_t migration; /* NEXT: the latest */
	uint64_t unix_ns;   /* SESSION */
	char program[32];   /* SESSION */
	struct gantry_token token;
	char device[GANTRY_CONFIG_NAME];
	uint32_t state; /* DEVICE; HANDOVER: of that side */
	/* HANDOVER: token.bytes, too; id is the session's */
	bool is_incoming;
	uint32_t port;
	uint64_t guest_session;
	char host[256];
	uint8_t nonce[16];
	struct gantry_upgrade_record upgrade;
};

/* Appends a line to @buf; returns its length, or -E2BIG. */
int gantry_journal_format(const struct gantry_journal_line *line, char *buf, size_t cap);

/*
 * Calls @fn for each good line. Returns 0, or -ENODATA when the end mark is missing (the file was
 * cut).
 */
int gantry_journal_parse(const char *text, size_t len,
			 void (*fn)(void *arg, const struct gantry_journal_line *line), void *arg);

/* Something that is alive changed: write it down soon. */
void gantry_journal_touch(struct gantry_agent *a);
void gantry_journal_now(struct gantry_agent *a);

#endif
