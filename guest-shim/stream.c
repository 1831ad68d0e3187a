/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doors without shared memory: an AF_VSOCK stream to the host, or a Unix stream socket.
 *
 * There is no thread of ours: whoever waits reads the socket for all. The one that holds recv_lock leads, the others
 * sleep on `turn` and one of them takes over when it leaves. Whoever puts tasks sends them, as far as the socket takes
 * them; what is left goes when somebody waits, looks or puts.
 */
#include <errno.h>
#include <linux/vm_sockets.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/str.h"
#include "guest-shim/error.h"
#include "guest-shim/handshake.h"
#include "guest-shim/sockets.h"
#include "guest-shim/stream_door.h"
#include "guest-shim/transport.h"

static uint32_t state_of(const struct gantry_stream_door *d)
{
	return gantry_stream_door_state(d);
}

/* ---- addresses ---- */

static int parse_number(const char **at, uint32_t *ret_number)
{
	char *end;
	unsigned long number;

	if (**at < '0' || **at > '9')
		return -EINVAL;
	errno = 0;
	number = strtoul(*at, &end, 10);
	if (errno || number >= UINT32_MAX)
		return -EINVAL;
	*at = end;
	*ret_number = (uint32_t)number;
	return 0;
}

/* "", "CID" or "CID:PORT" */
static int vsock_address(const char *where, struct gantry_stream_door *d)
{
	struct sockaddr_vm addr = {
		.svm_family = AF_VSOCK,
		.svm_cid = VMADDR_CID_HOST,
		.svm_port = GANTRY_STREAM_PORT,
	};
	const char *at = where;
	int r = 0;

	if (*at)
		r = parse_number(&at, &addr.svm_cid);
	if (r == 0 && *at == ':') {
		at++;
		r = parse_number(&at, &addr.svm_port);
	}
	if (r < 0 || *at)
		return gantry_fail(GANTRY_E_ARG,
				   "a vsock door is vsock: or vsock:CID:PORT, not vsock:%.60s",
				   where);
	memcpy(&d->addr, &addr, sizeof(addr));
	d->addr_len = sizeof(addr);
	return 0;
}

static int unix_address(const char *where, struct gantry_stream_door *d)
{
	struct sockaddr_un addr;
	int r = gantry_unix_address(where, &addr, &d->addr_len);

	if (r == 0)
		memcpy(&d->addr, &addr, sizeof(addr));
	return r;
}

/* ---- waiting ---- */

/* What somebody waits for: tasks (@map), an answer (NULL), or only that the stream lives (@seq 0). */
static bool has_come(struct gantry_stream_door *d, const struct gantry_ring_map *map, uint64_t seq)
{
	if (state_of(d) == GANTRY_STREAM_DEAD)
		return true;
	if (map)
		return gantry_ring_done(map) >= seq;
	return seq ? gantry_load_acquire(&d->answered) : state_of(d) == GANTRY_STREAM_LIVE;
}

/*
 * What one waits for is seldom there at once: where the socket was read to its end, looking into it again before the sleep
 * would be a system call more for each round trip. So would be poll() before the receive, which can wait by itself
 * as long as a short task takes.
 */
static void lead_locked(struct gantry_stream_door *d, const struct gantry_ring_map *map,
			uint64_t seq, uint64_t deadline_ns)
{
	uint64_t left_ns;
	bool came = true;

	do {
		bool waits = false;

		left_ns = gantry_deadline_left_ns(deadline_ns);
		if (left_ns > 0 && !d->has_more) {
			waits = came && gantry_stream_door_may_wait(d, left_ns);
			if (!waits)
				gantry_stream_door_poll(d, deadline_ns);
		}
		came = gantry_stream_door_step(d, waits);
		if (came)
			gantry_stream_door_tell(d);
	} while (!has_come(d, map, seq) && left_ns > 0);
}

/* Until the one who leads has news, or leaves. */
static void follow(struct gantry_stream_door *d, uint32_t turn, uint64_t deadline_ns)
{
	(void)gantry_fetch_add(&d->nfollowers, 1);
	(void)gantry_futex_wait(&d->turn, turn, deadline_ns);
	(void)gantry_fetch_sub(&d->nfollowers, 1);
}

static void wait_for(struct gantry_stream_door *d, const struct gantry_ring_map *map, uint64_t seq,
		     uint64_t deadline_ns)
{
	for (;;) {
		uint32_t turn = gantry_load_acquire(&d->turn);

		if (has_come(d, map, seq))
			return;
		if (pthread_mutex_trylock(&d->recv_lock) == 0) {
			lead_locked(d, map, seq, deadline_ns);
			pthread_mutex_unlock(&d->recv_lock);
			gantry_stream_door_tell(d);
			return;
		}
		if (gantry_deadline_passed(deadline_ns))
			return;
		follow(d, turn, deadline_ns);
	}
}

/* ---- the transport ---- */

static int connect_failed(const struct gantry_stream_door *d, const char *where, int errnum)
{
	int status = errnum == EACCES || errnum == EPERM ? GANTRY_E_DENIED : GANTRY_E_NO_AGENT;
	char what[160];

	if (d->addr.ss_family == AF_VSOCK && (errnum == EAFNOSUPPORT || errnum == ENODEV))
		return gantry_fail(
			GANTRY_E_NO_AGENT,
			"this machine has no vsock device: the host gives one, and its driver is vmw_vsock_virtio_transport");
	(void)gantry_str_format(what, sizeof(what), "connecting to %s%.108s",
				d->addr.ss_family == AF_VSOCK ? "vsock:" : "", where);
	return gantry_fail_errno(status, errnum, what);
}

static int stream_connect(int (*address)(const char *where, struct gantry_stream_door *d),
			  const char *where, uint64_t deadline_ns, void **ret_cookie)
{
	struct gantry_stream_door *d = gantry_stream_door_new();
	int r;

	if (!d)
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	r = address(where, d);
	if (r == 0) {
		r = gantry_stream_door_dial(d, deadline_ns);
		if (r < 0)
			r = connect_failed(d, where, -r);
	}
	if (r < 0) {
		gantry_stream_door_free(d);
		return r;
	}
	*ret_cookie = d;
	return 0;
}

static int vsock_connect(const char *where, uint64_t deadline_ns, void **ret_cookie)
{
	return stream_connect(vsock_address, where, deadline_ns, ret_cookie);
}

static int unix_stream_connect(const char *where, uint64_t deadline_ns, void **ret_cookie)
{
	return stream_connect(unix_address, where, deadline_ns, ret_cookie);
}

/* A connection that ends before there is a session is not tried again. */
static void greet_until(struct gantry_stream_door *d, uint64_t deadline_ns)
{
	for (;;) {
		(void)gantry_stream_door_step(d, false);
		if (state_of(d) == GANTRY_STREAM_LIVE || state_of(d) == GANTRY_STREAM_DEAD ||
		    (state_of(d) == GANTRY_STREAM_DOWN && !d->is_welcome) ||
		    gantry_deadline_passed(deadline_ns))
			return;
		gantry_stream_door_poll(d, deadline_ns);
	}
}

static int stream_handshake(void *cookie, const struct gantry_door_hello *hello,
			    uint64_t deadline_ns, struct gantry_attachment *ret_attachment)
{
	struct gantry_stream_door *d = cookie;

	pthread_mutex_lock(&d->recv_lock);
	gantry_stream_door_greet(d, hello);
	greet_until(d, deadline_ns);
	pthread_mutex_unlock(&d->recv_lock);
	if (d->notice.status < 0)
		return gantry_fail(d->notice.status, "%s",
				   d->notice.text[0] ? d->notice.text
						     : gantry_status_text(d->notice.status));
	if (state_of(d) == GANTRY_STREAM_DOWN && !d->is_welcome)
		return gantry_handshake_failed(-ECONNRESET);
	if (state_of(d) != GANTRY_STREAM_LIVE)
		return gantry_handshake_failed(-ETIMEDOUT);
	*ret_attachment = (struct gantry_attachment){
		.welcome = d->welcome,
		.segment_fd = -EBADF,
		.mapped = d->link.segment.base,
	};
	return 0;
}

static void stream_kick(void *cookie)
{
	gantry_stream_door_kick(cookie);
}

static void stream_sleep(void *cookie, const struct gantry_ring_map *map, uint64_t seq,
			 uint64_t deadline_ns)
{
	wait_for(cookie, map, seq, deadline_ns);
}

static int stream_peek(void *cookie, struct gantry_door_refuse *ret_notice)
{
	struct gantry_stream_door *d = cookie;
	int r;

	*ret_notice = (struct gantry_door_refuse){ 0 };
	/* Whoever holds it is reading, and will notice what there is to notice. */
	if (pthread_mutex_trylock(&d->recv_lock) != 0)
		return 0;
	(void)gantry_stream_door_step(d, false);
	*ret_notice = d->notice;
	r = state_of(d) == GANTRY_STREAM_DEAD ? -ECONNRESET : 0;
	pthread_mutex_unlock(&d->recv_lock);
	gantry_stream_door_tell(d);
	return r;
}

static int stream_request(void *cookie, void *msg, uint16_t kind, void *ret_answer,
			  uint64_t deadline_ns)
{
	struct gantry_door_header *h = msg;
	struct gantry_stream_door *d = cookie;
	const struct gantry_door_header *answer = (const void *)d->answer;

	if (h->len_bytes > sizeof(d->request))
		return gantry_fail_plain(GANTRY_E_ARG);
	gantry_stream_door_ask(d, h);
	while (!has_come(d, NULL, 1) && !gantry_deadline_passed(deadline_ns))
		wait_for(d, NULL, 1, deadline_ns);

	/* Acquire: pairs with the release in take_answer(). */
	if (!gantry_load_acquire(&d->answered))
		return gantry_request_failed(state_of(d) == GANTRY_STREAM_DEAD ? -ECONNRESET
									       : -ETIMEDOUT);
	if (answer->kind != kind)
		return gantry_fail(GANTRY_E_PROTOCOL,
				   "the agent answered with a message of kind %u", answer->kind);
	memcpy(ret_answer, d->answer, gantry_door_len(kind));
	return 0;
}

static void stream_close(void *cookie)
{
	gantry_stream_door_free(cookie);
}

/* Two ways to be named, and no other difference. */
#define STREAM_TRANSPORT(prefix_, connect_)                                                \
	{                                                                                  \
		.prefix = (prefix_), .connect = (connect_), .handshake = stream_handshake, \
		.kick = stream_kick, .request = stream_request, .peek = stream_peek,       \
		.sleep = stream_sleep, .is_pumped = true, .close = stream_close,           \
	}

const struct gantry_transport_ops gantry_transport_vsock = STREAM_TRANSPORT("vsock:",
									    vsock_connect);
const struct gantry_transport_ops gantry_transport_stream = STREAM_TRANSPORT("stream:",
									     unix_stream_connect);
