/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One invocation of gantryctl: what was asked, where the answer goes, and the connection to the agent.
 *
 * A handler returns an exit code. gantry_ctl_fail() writes the one line about a failure; whoever calls it returns
 * what it returns, and nobody else writes about it.
 * Threads: one. Blocking: until the deadline of --timeout.
 */
#ifndef GANTRY_HOST_AGENT_CTL_CONTEXT_H
#define GANTRY_HOST_AGENT_CTL_CONTEXT_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "host-agent/ctl/client.h"

/* Scripts rely on these. */
enum gantry_ctl_exit {
	GANTRY_CTL_OK = 0,
	GANTRY_CTL_FAILED = 1,
	GANTRY_CTL_USAGE = 2,
	GANTRY_CTL_NOT_FOUND = 3,
	GANTRY_CTL_DENIED = 4,
	GANTRY_CTL_UNREACHABLE = 5,
	GANTRY_CTL_QUOTA = 6,
	GANTRY_CTL_BUSY = 7,
	GANTRY_CTL_UNSUPPORTED = 8,
	GANTRY_CTL_HALF = 9, /* what was begun could be neither finished nor undone */
	GANTRY_CTL_TIMEOUT = 124,
};

#define GANTRY_CTL_SCHEMA	   1
#define GANTRY_CTL_OPTIONS_MAX	   32
#define GANTRY_CTL_TIMEOUT_DEFAULT (10ll * 1000000000)

struct gantry_verb;

struct gantry_ctl {
	const char *socket_path;
	bool json;
	bool headings;
	bool raw_bytes;
	bool colour;
	bool timeout_given;
	int64_t timeout_ns;

	char **argv; /* of the process: the order of its words may have changed */
	const struct gantry_verb *verb;
	char **args; /* ends with NULL */
	int nargs;
	const char *values
		[GANTRY_CTL_OPTIONS_MAX]; /* of the verb's options; "" for a flag; NULL: not given */

	struct gantry_client *client; /* opened when first used */
	FILE *out;
	FILE *err;
	bool failed; /* the line about it has been written */
	struct gantry_err
		*into; /* not NULL: gantry_ctl_fail() puts its sentence there and writes nothing */
};

void gantry_ctl_init(struct gantry_ctl *ctl);
void gantry_ctl_fini(struct gantry_ctl *ctl);

/* The value of an option of the verb that runs; "" for a flag; NULL: not given. The verb must know it. */
const char *gantry_ctl_option(const struct gantry_ctl *ctl, const char *name);

/* --bandwidth in bytes a second, 0 where it is not given: 0, or what gantry_ctl_fail() returned. */
int gantry_ctl_bandwidth(struct gantry_ctl *ctl, uint64_t *ret_bytes);

/* CLOCK_MONOTONIC nanoseconds at which --timeout, counted from now, is over. */
uint64_t gantry_ctl_deadline(const struct gantry_ctl *ctl);

/* Writes "gantryctl: ..." (and the same as JSON where asked for), or keeps it: ctl->into. Returns @code. */
int gantry_ctl_fail(struct gantry_ctl *ctl, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Connects, if not yet done. 0, or what gantry_ctl_fail() returned. */
int gantry_ctl_connect(struct gantry_ctl *ctl);

/*
 * One request and its reply, which has the body @want (any, when negative). 0, or what gantry_ctl_fail() returned:
 * unreachable, timed out, refused by the agent, or answered with something else. The caller frees *@ret_reply.
 */
int gantry_ctl_ask(struct gantry_ctl *ctl, Gantry__Admin__AdminRequest *request, int want,
		   Gantry__Admin__AdminReply **ret_reply);

/* The same without a word: 0, or -errno with a sentence; a refusal by the agent is a reply with a code. */
int gantry_ctl_ask_quietly(struct gantry_ctl *ctl, Gantry__Admin__AdminRequest *request,
			   Gantry__Admin__AdminReply **ret_reply, struct gantry_err *err);

/* The same for a change, whose reply says only that it was done: prints that. */
int gantry_ctl_change(struct gantry_ctl *ctl, Gantry__Admin__AdminRequest *request, const char *fmt,
		      ...) __attribute__((format(printf, 3, 4)));

/* Prints that something was done. Returns 0. */
int gantry_ctl_done(struct gantry_ctl *ctl, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* What the agent says of @tenant's doors for virtual machines, in reply->doors. 0, or what gantry_ctl_fail() returned. */
int gantry_ctl_door_show(struct gantry_ctl *ctl, const char *tenant,
			 Gantry__Admin__AdminReply **ret_reply);

/* "SESSION:SLOT". 0, or what gantry_ctl_fail() returned. */
int gantry_ctl_parse_queue(struct gantry_ctl *ctl, const char *text, uint64_t *ret_session,
			   uint32_t *ret_slot);
/* The number of a session, likewise. */
int gantry_ctl_parse_session(struct gantry_ctl *ctl, const char *text, uint64_t *ret_id);

/* A new object with "schema" in it. */
json_object *gantry_ctl_json_new(void);
/* Prints @object and puts it. Returns 0. */
int gantry_ctl_json_print(struct gantry_ctl *ctl, json_object *object);
/* The same on one line, flushed: for streams. */
int gantry_ctl_json_line(struct gantry_ctl *ctl, json_object *object);

/* The exit code for the code of a reply: an agent of a later version may answer some that we do not know. */
int gantry_ctl_code(int code);

/* Maps a failure of client.h to an exit code and a sentence with advice. */
int gantry_ctl_fail_client(struct gantry_ctl *ctl, int r, const struct gantry_err *err);

#endif
