/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin socket from a client's side: connect, ask, take the reply. No presentation.
 *
 * Trust: the agent is trusted to be the agent, not to be well: its frames are bounded and checked, and whatever
 *   answers on the socket cannot make the caller wait past its deadline, nor allocate without bound.
 * Threads: a connection belongs to one thread.
 * Blocking: until the deadline given (base/clock.h), never longer.
 * Failures: -errno with a sentence. Those a caller tells apart:
 *   -ENOENT, -ECONNREFUSED, -ECONNRESET: nobody answers there; -EACCES: the socket's mode forbids it;
 *   -ETIMEDOUT: the deadline passed; -EPROTO: what came is no reply.
 */
#ifndef GANTRY_HOST_AGENT_CTL_CLIENT_H
#define GANTRY_HOST_AGENT_CTL_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "admin.pb-c.h"
#include "base/cleanup.h"
#include "base/err.h"

#define GANTRY_CLIENT_PROTOCOL 1u
#define GANTRY_CLIENT_SOCKET   "/run/gantry/admin.sock"

struct gantry_client;

/* Connects to @path. The caller owns *@ret_client. */
int gantry_client_open(const char *path, uint64_t deadline_ns, struct gantry_client **ret_client,
		       struct gantry_err *err);

/* NULL is allowed. Returns NULL. */
struct gantry_client *gantry_client_close(struct gantry_client *client);
GANTRY_DEFINE_CLEANUP(struct gantry_client *, gantry_client_close);

/* The connection's descriptor, non-blocking; stays the client's. For other messages in the same framing. */
int gantry_client_fd(const struct gantry_client *client);

/* A sentence and a code for what gantry_frame_send() or gantry_frame_recv() returned. */
int gantry_client_explain(int r, struct gantry_err *err);

/* Sends @request; its protocol and tag are set here. */
int gantry_client_send(struct gantry_client *client, Gantry__Admin__AdminRequest *request,
		       uint64_t deadline_ns, struct gantry_err *err);

/*
 * The next reply to the last request. A reply whose code is not 0 is a success here: see its code and text.
 * The caller frees *@ret_reply with gantry_client_reply_free().
 */
int gantry_client_recv(struct gantry_client *client, uint64_t deadline_ns,
		       Gantry__Admin__AdminReply **ret_reply, struct gantry_err *err);

/* Send, then receive. */
int gantry_client_call(struct gantry_client *client, Gantry__Admin__AdminRequest *request,
		       uint64_t deadline_ns, Gantry__Admin__AdminReply **ret_reply,
		       struct gantry_err *err);

/* NULL is allowed. */
void gantry_client_reply_free(Gantry__Admin__AdminReply *reply);
GANTRY_DEFINE_CLEANUP(Gantry__Admin__AdminReply *, gantry_client_reply_free);

#endif
