/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/control/framing.h"

/* A listener with a full backlog cannot be polled for: it is asked again this often. */
#define BACKLOG_RETRY_NS (5 * GANTRY_NS_PER_MS)

struct gantry_client {
	int sock; /* non-blocking */
	uint64_t tag;
};

static int connect_within(const char *path, uint64_t deadline_ns, int *ret_sock)
{
	const struct timespec pause = { .tv_nsec = BACKLOG_RETRY_NS };
	int r;

	while ((r = gantry_unix_connect(path, SOCK_STREAM | SOCK_NONBLOCK, ret_sock)) == -EAGAIN) {
		if (gantry_deadline_passed(deadline_ns))
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
	return r;
}

int gantry_client_open(const char *path, uint64_t deadline_ns, struct gantry_client **ret_client,
		       struct gantry_err *err)
{
	_cleanup_free_ struct gantry_client *client = calloc(1, sizeof(*client));
	int r;

	if (!client)
		return gantry_err_set(err, -ENOMEM, "no memory");
	r = connect_within(path, deadline_ns, &client->sock);
	if (r == -ETIMEDOUT)
		return gantry_err_set(err, r, "%s accepts no connection", path);
	if (r < 0)
		return gantry_err_set_errno(err, r, "connecting to %s", path);
	*ret_client = GANTRY_TAKE_PTR(client);
	return 0;
}

struct gantry_client *gantry_client_close(struct gantry_client *client)
{
	if (client) {
		gantry_fd_close(client->sock);
		free(client);
	}
	return NULL;
}

int gantry_client_fd(const struct gantry_client *client)
{
	return client->sock;
}

int gantry_client_explain(int r, struct gantry_err *err)
{
	switch (r) {
	case -ETIMEDOUT:
		return gantry_err_set(err, r, "no answer in the time given");
	case -ENODATA:
	case -EPIPE:
	case -ECONNRESET:
		return gantry_err_set(err, -ECONNRESET, "the connection ended without an answer");
	case -EPROTO:
	case -EMSGSIZE:
		return gantry_err_set(err, -EPROTO,
				      "what answers there does not speak our protocol");
	default:
		return gantry_err_set_errno(err, r, "speaking with the agent");
	}
}

int gantry_client_send(struct gantry_client *client, Gantry__Admin__AdminRequest *request,
		       uint64_t deadline_ns, struct gantry_err *err)
{
	int r;

	request->protocol = GANTRY_CLIENT_PROTOCOL;
	request->tag = ++client->tag;
	r = gantry_frame_send(client->sock, &request->base, deadline_ns);
	/* The other end may have refused us and closed before it read everything: its answer says why. */
	if (r < 0 && r != -EPIPE && r != -ECONNRESET)
		return gantry_client_explain(r, err);
	return 0;
}

int gantry_client_recv(struct gantry_client *client, uint64_t deadline_ns,
		       Gantry__Admin__AdminReply **ret_reply, struct gantry_err *err)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	ProtobufCMessage *message;
	int r;

	r = gantry_frame_recv(client->sock, &gantry__admin__admin_reply__descriptor,
			      GANTRY_FRAME_REPLY_MAX_BYTES, deadline_ns, &message);
	if (r < 0)
		return gantry_client_explain(r, err);
	reply = (Gantry__Admin__AdminReply *)message;
	/* An agent that could not read the request cannot know its tag. */
	if (reply->tag != client->tag && !(reply->tag == 0 && reply->code != 0))
		return gantry_err_set(err, -EPROTO, "the answer is to another request");
	*ret_reply = GANTRY_TAKE_PTR(reply);
	return 0;
}

int gantry_client_call(struct gantry_client *client, Gantry__Admin__AdminRequest *request,
		       uint64_t deadline_ns, Gantry__Admin__AdminReply **ret_reply,
		       struct gantry_err *err)
{
	int r = gantry_client_send(client, request, deadline_ns, err);

	if (r < 0)
		return r;
	return gantry_client_recv(client, deadline_ns, ret_reply, err);
}

void gantry_client_reply_free(Gantry__Admin__AdminReply *reply)
{
	if (reply)
		gantry__admin__admin_reply__free_unpacked(reply, NULL);
}
