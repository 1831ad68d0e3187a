/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a build of gantryd is: its version, and the formats in which builds leave things to each other. A build that
 * is to take over says it (candidate.h), the one that serves compares.
 *
 * Trust: gantry_build_parse() takes the word of a program that is to be run as this one, but nothing is believed of
 * its form: bounded, and refused where it makes no sense.
 * Threads: any. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_BUILD_H
#define GANTRY_HOST_AGENT_AGENT_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Packets of worker.proto; Configure and Ready carry it. */
#define GANTRY_WORKER_PROTOCOL 1u
/* Names under which descriptors are kept: keep.h. */
#define GANTRY_KEEP_VERSION 6u
/*
 * 1: without keys of sessions (GANTRY_KEPT_KEY, GANTRY_KEPT_HEIR); 2: without machines that bring their sessions along
 * (GANTRY_KEPT_SEATED, GANTRY_KEPT_COMING); 3: without sessions that follow one (GANTRY_KEPT_FOLLOWING); 4: without slabs that were lent (GANTRY_KEPT_LENT);
 * 5: without networks of tenants (GANTRY_KEPT_NET). All are read as they are.
 */
#define GANTRY_KEEP_VERSION_OLDEST 1u
/* RUNDIR/journal: journal.h. */
#define GANTRY_JOURNAL_VERSION 1u
/* Share pages and tenants' pages: host-agent/shared. */
#define GANTRY_PAGES_VERSION 1u

/* The version of this program, in a file of its own (version.c), so that a test can link another. */
extern const char gantry_build_version[];

#define GANTRY_BUILD_TEXT_MAX 4096u

enum gantry_build_format {
	GANTRY_FORMAT_MONITOR, /* what monitor and agent say to each other */
	GANTRY_FORMAT_NAMES,
	GANTRY_FORMAT_JOURNAL,
	GANTRY_FORMAT_LEDGER,
	GANTRY_FORMAT_PAGES,
	GANTRY_FORMAT_WORKER,
	GANTRY_FORMAT_DOORMEM,
	GANTRY_FORMAT_WIRE, /* segments: what guests speak */
	GANTRY_NFORMATS,
};

/* A build writes the newest that it reads. Both 0: it knows of no such thing. */
struct gantry_build_range {
	uint32_t oldest;
	uint32_t newest;
};

struct gantry_build {
	char version[32];
	struct gantry_build_range formats[GANTRY_NFORMATS];
	char problem[GANTRY_ERR_TEXT_MAX]; /* why it could not serve here; "": nothing known */
};

/* The running program. */
void gantry_build_self(struct gantry_build *ret_build);

const char *gantry_build_format_name(enum gantry_build_format format);

/* As text, a line each, with its end; the length or -E2BIG. */
int gantry_build_format(const struct gantry_build *build, char *buf, size_t cap);
/* -EINVAL: it is none, or was cut. */
int gantry_build_parse(const char *text, size_t len, struct gantry_build *ret_build);

/* <0, 0, >0 as the numbers in @a and @b are; what follows them does not count. */
int gantry_build_version_compare(const char *a, const char *b);

/*
 * May @next take over from @now? 0; or, with a sentence: -EPROTO: it does not read what @now has written;
 * -EPERM: it is older, and @downgrade is not set; -EINVAL: it has a problem of its own.
 */
int gantry_build_may_follow(const struct gantry_build *now, const struct gantry_build *next,
			    bool downgrade, struct gantry_err *err);

/* And back, if it fails? 0, or -EPROTO with a sentence: what @next writes @now does not read. */
int gantry_build_may_return(const struct gantry_build *now, const struct gantry_build *next,
			    struct gantry_err *err);

#endif
