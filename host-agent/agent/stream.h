/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server on a stream socket: listener, accept with limits, messages in, bounded answers out.
 *
 * Trust: whoever connects is hostile until its user says otherwise. Input is bounded by in_max, a
 * peer that neither speaks nor reads by time, the number of connections by conns_max and, so that
 * no ordinary user takes them all, by user_max.
 * Threads: the agent's. Blocking: never.
 * Order of calls: a connection lives from ops->admit() until the stream drops it; a callback may
 * end its own connection with gantry_stream_end(), and drop any other.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_STREAM_H
#define GANTRY_HOST_AGENT_AGENT_STREAM_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/list.h"

struct bufferevent;
struct gantry_agent;
struct gantry_stream;

/* First member of what a server knows about a connection. */
struct gantry_stream_conn {
	struct gantry_list link;
	struct gantry_stream *stream;
	struct bufferevent *bev;
	int fd; /* the bufferevent's */
	uid_t uid;
	gid_t gid;
	pid_t pid;
	bool closing; /* when what is written has left; nothing more is read */
	bool deaf;    /* nothing more is read, but it stays */
};

struct gantry_stream_ops {
	const char *what; /* "the admin socket", for sentences */
	const char *kept; /* the listener's name at the monitor; NULL: a restart opens it anew */
	size_t conn_bytes;
	size_t in_max; /* of one message */
	unsigned int conns_max;
	unsigned int user_max; /* of one user, root excepted; 0: no other limit */
	int idle_s;
	int write_s;
	/* @c is filled in and follows nobody yet. False: it is turned away. May be NULL. */
	bool (*admit)(struct gantry_stream_conn *c);
	/* Messages in frames (framing.h): their type, and one of them. */
	const ProtobufCMessageDescriptor *desc;
	void (*serve)(struct gantry_stream_conn *c, const ProtobufCMessage *msg);
	/* What came is none; the stream ends @c after whatever is answered. */
	void (*garbage)(struct gantry_stream_conn *c, const char *text);
	/* Where there is no desc: bytes taken, or -EAGAIN: not a whole message yet. */
	ssize_t (*take)(struct gantry_stream_conn *c, const uint8_t *data, size_t len);
};

/* Serve on the listener @fd, taken over even on failure. @server is the callbacks' affair. */
int gantry_stream_new(struct gantry_agent *a, const struct gantry_stream_ops *ops, int fd,
		      void *server, struct gantry_stream **ret_stream, struct gantry_err *err);

/* The same on a Unix socket at @path, unlinked at the end; the one of an earlier agent if it left one. */
int gantry_stream_open(struct gantry_agent *a, const struct gantry_stream_ops *ops,
		       const char *path, mode_t mode, void *server,
		       struct gantry_stream **ret_stream, struct gantry_err *err);

void gantry_stream_close(struct gantry_stream *s);

void *gantry_stream_server(const struct gantry_stream_conn *c);
struct gantry_agent *gantry_stream_agent(const struct gantry_stream_conn *c);
struct gantry_list *gantry_stream_conns(struct gantry_stream *s);

/* What cannot be sent ends the connection, later. */
void gantry_stream_send(struct gantry_stream_conn *c, const ProtobufCMessage *msg);
void gantry_stream_write(struct gantry_stream_conn *c, const void *data, size_t len);
/* Bytes that the peer has not taken yet. */
size_t gantry_stream_backlog(const struct gantry_stream_conn *c);
/* Nothing more is read from it; it stays for what is sent. */
void gantry_stream_deafen(struct gantry_stream_conn *c);
/* Nothing more is read; it goes when what is written has left. */
void gantry_stream_end(struct gantry_stream_conn *c);
/* Now. Not from a callback about @c itself. */
void gantry_stream_drop(struct gantry_stream_conn *c);

#endif
