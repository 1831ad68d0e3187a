/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doors without shared memory: an AF_VSOCK stream to the host, or a Unix stream socket. stream_link.c keeps the segment
 * in step with the host's; here are the connection, its loss and its return.
 *
 * There is no thread of ours: whoever waits reads the socket for all. The one that holds recv_lock leads, the others
 * sleep on `turn` and one of them takes over when it leaves. Whoever puts tasks sends them, as far as the socket takes
 * them; what is left goes when somebody waits, looks or puts.
 *
 * Locks, in this order: request_lock of the session, recv_lock, send_lock.
 */
#include <errno.h>
#include <limits.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/str.h"
#include "guest-shim/error.h"
#include "guest-shim/handshake.h"
#include "guest-shim/sockets.h"
#include "guest-shim/stream_link.h"
#include "guest-shim/transport.h"

#define RETRY_FIRST_NS	 (5 * GANTRY_NS_PER_MS)
#define RETRY_MAX_NS	 (250 * GANTRY_NS_PER_MS)
#define GRACE_DEFAULT_MS 10000u
#define REQUEST_MAX	 64u
#define RECEIVES_PER_GO	 64 /* so that one who looks in passing comes back */

enum stream_state {
	STREAM_DOWN,	   /* no connection; the next try at retry_ns */
	STREAM_CONNECTING, /* connect() is under way */
	STREAM_GREETING,   /* HELLO was sent */
	STREAM_SYNCING,	   /* WELCOME came, and the host's positions are to */
	STREAM_LIVE,
	STREAM_DEAD, /* for good: notice says why */
};

struct stream {
	pthread_mutex_t recv_lock; /* whoever receives, connects and ends */
	pthread_mutex_t send_lock; /* whoever sends; `sock` changes under both */
	struct sockaddr_storage addr;
	socklen_t addr_len;
	pid_t pid; /* whose it is: a forked child's copy only closes */

	/* under recv_lock */
	struct gantry_door_refuse notice;
	struct gantry_door_hello hello;
	struct gantry_door_welcome welcome;
	bool is_welcome; /* `welcome` is the session's */
	uint32_t grace_ms;
	uint64_t lost_ns;
	uint64_t retry_ns;
	uint64_t pause_ns;
	struct gantry_stream_rx rx;

	/* under send_lock; state is read without */
	uint32_t state;	    /* enum stream_state */
	uint32_t is_broken; /* a send failed: whoever receives looks */
	struct gantry_stream_tx tx;
	uint32_t tag;		/* of the request under way or answered last */
	uint32_t request_bytes; /* 0: none under way */
	bool request_is_due;
	_Alignas(8) uint8_t request[REQUEST_MAX];

	_Alignas(8) uint8_t answer[REQUEST_MAX]; /* under recv_lock, until answered is set */
	uint32_t answered;

	uint32_t turn; /* futex of those who wait while another leads */
	uint32_t nfollowers;
	uint32_t is_polling; /* the leader sleeps in poll() */
	int nudge;	     /* eventfd: it looks again at what is to be sent */
	int sock;
	struct gantry_link link;
};

static uint32_t state_of(const struct stream *d)
{
	return gantry_load_acquire(&d->state);
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
static int vsock_address(const char *where, struct stream *d)
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

static int unix_address(const char *where, struct stream *d)
{
	struct sockaddr_un addr;
	int r = gantry_unix_address(where, &addr, &d->addr_len);

	if (r == 0)
		memcpy(&d->addr, &addr, sizeof(addr));
	return r;
}

/* ---- the connection ---- */

static void wake_followers(struct stream *d)
{
	(void)gantry_fetch_add(&d->turn, 1);
	gantry_fence_full(); /* pairs with the increment in wait_for(): it sleeps and we see it, or it sees `turn` */
	if (gantry_load_relaxed(&d->nfollowers))
		(void)gantry_futex_wake(&d->turn, INT_MAX); /* nobody may be asleep */
}

static void set_state_locked(struct stream *d, enum stream_state state)
{
	gantry_store_release(&d->state, (uint32_t)state);
}

static void drop_socket(struct stream *d, enum stream_state state)
{
	pthread_mutex_lock(&d->send_lock);
	d->sock = gantry_fd_close(d->sock);
	d->is_broken = 0;
	set_state_locked(d, state);
	pthread_mutex_unlock(&d->send_lock);
}

/* For good. The sentence that came first stays. */
static void die(struct stream *d, int status, const char *text)
{
	if (d->notice.status == 0) {
		d->notice.status = status;
		(void)gantry_str_copy(d->notice.text, sizeof(d->notice.text), text);
	}
	drop_socket(d, STREAM_DEAD);
	if (d->link.header) { /* for those who look at the segment alone */
		gantry_store_relaxed(&d->link.header->reason, d->notice.status);
		/* Release: pairs with the acquire in gantry_session_alive(). */
		gantry_store_release(&d->link.header->state, (uint32_t)GANTRY_SESSION_DETACHED);
	}
	wake_followers(d);
}

static bool can_return(const struct stream *d)
{
	static const uint8_t none[sizeof(d->hello.nonce)];

	return !d->is_welcome || memcmp(d->hello.nonce, none, sizeof(none)) != 0;
}

/* The connection is no good; a session that it had may be found again. */
static void lose(struct stream *d)
{
	uint64_t now_ns = gantry_now_ns();

	if (state_of(d) == STREAM_DEAD)
		return;
	if (d->notice.status != 0) {
		die(d, d->notice.status, d->notice.text);
		return;
	}
	if (d->link.header &&
	    gantry_load_relaxed(&d->link.header->state) == GANTRY_SESSION_DETACHED) {
		int reason = gantry_load_relaxed(&d->link.header->reason);

		die(d, reason < 0 ? reason : GANTRY_E_DETACHED, gantry_status_text(reason));
		return;
	}
	if (!can_return(d)) {
		die(d, GANTRY_E_DETACHED, "the agent hung up");
		return;
	}
	if (state_of(d) == STREAM_LIVE || d->lost_ns == 0) {
		d->lost_ns = now_ns;
		d->pause_ns = 0;
	}
	drop_socket(d, STREAM_DOWN);
	d->retry_ns = now_ns + d->pause_ns;
	d->pause_ns = d->pause_ns ? gantry_min_u64(d->pause_ns * 2, RETRY_MAX_NS) : RETRY_FIRST_NS;
}

static void greet(struct stream *d)
{
	gantry_stream_rx_init(&d->rx);
	pthread_mutex_lock(&d->send_lock);
	gantry_stream_tx_init(&d->tx);
	(void)gantry_stream_tx_put(&d->tx, &d->hello, sizeof(d->hello)); /* it is empty */
	set_state_locked(d, STREAM_GREETING);
	pthread_mutex_unlock(&d->send_lock);
}

/* 0, or -errno of connect(); -EINPROGRESS counts as 0. */
static int dial(struct stream *d)
{
	int sock = socket(d->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r;

	if (sock < 0)
		return -errno;
	if (gantry_fd_above_stdio(&sock) < 0) {
		gantry_fd_close(sock);
		return -EMFILE;
	}
	do {
		r = connect(sock, (const struct sockaddr *)&d->addr, d->addr_len) < 0 ? -errno : 0;
	} while (r == -EINTR);
	if (r < 0 && r != -EINPROGRESS) {
		gantry_fd_close(sock);
		return r;
	}
	pthread_mutex_lock(&d->send_lock);
	d->sock = sock;
	set_state_locked(d, STREAM_CONNECTING);
	pthread_mutex_unlock(&d->send_lock);
	if (r == 0)
		greet(d);
	return 0;
}

static void look_at_connecting(struct stream *d)
{
	struct pollfd pfd = { .fd = d->sock, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int err = 0;

	if (poll(&pfd, 1, 0) <= 0)
		return;
	if (getsockopt(d->sock, SOL_SOCKET, SO_ERROR, &err, &len) < 0 || err != 0)
		lose(d);
	else
		greet(d);
}

static void try_again(struct stream *d)
{
	uint64_t now_ns = gantry_now_ns();

	if (now_ns < d->retry_ns)
		return;
	if (now_ns - d->lost_ns > d->grace_ms * GANTRY_NS_PER_MS) {
		die(d, GANTRY_E_DETACHED, "the host hung up, and the connection did not come back");
		return;
	}
	if (dial(d) < 0)
		lose(d);
}

/* ---- receiving ---- */

static bool same_session(const struct stream *d, const struct gantry_door_welcome *w)
{
	return w->session_id == d->welcome.session_id && w->version == d->welcome.version &&
	       w->segment_bytes == d->welcome.segment_bytes && w->nqueues == d->welcome.nqueues &&
	       w->nslots == d->welcome.nslots &&
	       memcmp(w->nonce, d->welcome.nonce, sizeof(w->nonce)) == 0;
}

static int take_welcome(struct stream *d, const struct gantry_door_welcome *w)
{
	int r;

	if (state_of(d) != STREAM_GREETING || (d->is_welcome && !same_session(d, w)))
		return -EPROTO;
	if (!d->is_welcome) {
		r = gantry_link_init(&d->link, w);
		if (r < 0)
			return r;
		d->welcome = *w;
		d->is_welcome = true;
		memcpy(d->hello.nonce, w->nonce, sizeof(d->hello.nonce));
	}
	pthread_mutex_lock(&d->send_lock);
	r = gantry_link_put_positions(&d->link, &d->tx);
	if (r == 0)
		set_state_locked(d, STREAM_SYNCING);
	pthread_mutex_unlock(&d->send_lock);
	return r < 0 ? -EPROTO : 0;
}

static int take_positions(struct stream *d, const struct gantry_stream_positions *p)
{
	int r = -EPROTO;

	pthread_mutex_lock(&d->send_lock);
	if (state_of(d) == STREAM_SYNCING)
		r = gantry_link_restart(&d->link, p);
	if (r == 0) {
		d->request_is_due = d->request_bytes > 0;
		set_state_locked(d, STREAM_LIVE);
	}
	pthread_mutex_unlock(&d->send_lock);
	if (r == 0) {
		d->grace_ms = p->grace_ms;
		d->lost_ns = 0;
		d->pause_ns = 0;
	}
	return r;
}

/* REFUSE ends what was begun; "not now" to one who comes back means that. */
static int take_refuse(struct stream *d, const struct gantry_door_refuse *refuse)
{
	if (state_of(d) == STREAM_LIVE || state_of(d) == STREAM_SYNCING)
		return -EPROTO;
	if (d->is_welcome && refuse->status == GANTRY_E_AGAIN)
		return -ECONNRESET;
	d->notice = *refuse;
	return -ECONNRESET;
}

static int take_answer(struct stream *d, const struct gantry_door_header *frame)
{
	pthread_mutex_lock(&d->send_lock);
	if (d->request_bytes > 0 && frame->tag == d->tag && frame->len_bytes <= sizeof(d->answer)) {
		memcpy(d->answer, frame, frame->len_bytes);
		d->request_bytes = 0;
		gantry_store_release(&d->answered, 1u);
	}
	pthread_mutex_unlock(&d->send_lock);
	return 0; /* else it came too late */
}

static int take_frame(void *cookie, const struct gantry_door_header *frame)
{
	struct stream *d = cookie;
	uint16_t kind = frame->kind;

	if (kind < GANTRY_STREAM_POSITIONS && gantry_door_check(frame, frame->len_bytes, &kind) < 0)
		return -EPROTO;
	switch (kind) {
	case GANTRY_DOOR_WELCOME:
		return take_welcome(d, (const void *)frame);
	case GANTRY_DOOR_REFUSE:
		return take_refuse(d, (const void *)frame);
	case GANTRY_DOOR_NOTICE:
		memcpy(&d->notice, frame, sizeof(d->notice));
		return 0;
	case GANTRY_DOOR_SHARED:
	case GANTRY_DOOR_ADOPTED:
		return state_of(d) == STREAM_LIVE ? take_answer(d, frame) : -EPROTO;
	case GANTRY_STREAM_POSITIONS:
		return take_positions(d, (const void *)frame);
	default:
		return state_of(d) == STREAM_LIVE ? gantry_link_take(&d->link, frame) : -EPROTO;
	}
}

static void *payload_place(void *cookie, uint64_t heap_off, uint32_t bytes)
{
	struct stream *d = cookie;

	return state_of(d) == STREAM_LIVE ? gantry_link_place(&d->link, heap_off, bytes) : NULL;
}

/* ---- sending ---- */

static void put_request_locked(struct stream *d)
{
	if (d->request_is_due && d->request_bytes > 0 &&
	    gantry_stream_tx_put(&d->tx, d->request, d->request_bytes) == 0)
		d->request_is_due = false;
}

/* All that there is, as far as the socket takes it. 0: all went; -EAGAIN; -ECONNRESET. */
static int send_locked(struct stream *d)
{
	int filled, r;

	if (d->sock < 0 || state_of(d) == STREAM_CONNECTING || d->is_broken)
		return -EAGAIN;
	do {
		filled = 0;
		put_request_locked(d);
		if (state_of(d) == STREAM_LIVE)
			while ((filled = gantry_link_put_next(&d->link, &d->tx)) > 0)
				;
		r = gantry_stream_flush(&d->tx, d->sock);
	} while (r == 0 && (filled < 0 || d->request_is_due));
	return r;
}

static void stream_kick(void *cookie)
{
	struct stream *d = cookie;
	uint64_t one = 1;
	int r;

	do {
		/* Who holds it is sending, or ends it; the second look sees what it did not. */
		if (pthread_mutex_trylock(&d->send_lock) != 0) {
			r = -EAGAIN;
			break;
		}
		r = send_locked(d);
		if (r == -ECONNRESET)
			gantry_store_relaxed(&d->is_broken, 1u);
		pthread_mutex_unlock(&d->send_lock);
		gantry_fence_full();
	} while (r == 0 && state_of(d) == STREAM_LIVE && gantry_link_has_more(&d->link));
	if (r != 0 && gantry_load_relaxed(&d->is_polling))
		(void)!write(d->nudge, &one, sizeof(one)); /* full: it is awake */
}

/* ---- leading ---- */

/* Sends and receives what can be at once. true: something came. */
static bool step(struct stream *d)
{
	const struct gantry_stream_sink sink = {
		.cookie = d,
		.payload = payload_place,
		.frame = take_frame,
	};
	bool came = false;
	int r;

	if (state_of(d) == STREAM_DOWN)
		try_again(d);
	if (state_of(d) == STREAM_CONNECTING)
		look_at_connecting(d);
	if (d->sock < 0 || state_of(d) == STREAM_CONNECTING)
		return false;
	pthread_mutex_lock(&d->send_lock);
	if (send_locked(d) == -ECONNRESET)
		gantry_store_relaxed(&d->is_broken, 1u);
	pthread_mutex_unlock(&d->send_lock);
	for (int i = 0; i < RECEIVES_PER_GO; i++) {
		r = gantry_stream_receive(&d->rx, d->sock, &sink);
		if (r <= 0)
			break;
		came = true;
	}
	if (r == -EPROTO || r == -ENOMEM)
		die(d, r == -ENOMEM ? GANTRY_E_NO_MEMORY : GANTRY_E_PROTOCOL,
		    r == -ENOMEM ? "no memory for the session's copy of its segment"
				 : "what the host sent makes no sense");
	else if (r < 0 || (r == 0 && gantry_load_relaxed(&d->is_broken)))
		lose(d);
	return came;
}

/* What poll() waits for, until @deadline_ns or the next try. */
static void poll_for(struct stream *d, uint64_t deadline_ns)
{
	struct pollfd pfds[2] = { { .fd = d->sock, .events = POLLIN },
				  { .fd = d->nudge, .events = POLLIN } };
	uint64_t count;
	bool more;

	gantry_store_relaxed(&d->is_polling, 1u);
	/* Full fence: pairs with the one in stream_kick(); it sees us poll or we see what it put. */
	gantry_fence_full();
	pthread_mutex_lock(&d->send_lock);
	more = !gantry_stream_tx_is_empty(&d->tx) || d->request_is_due ||
	       (state_of(d) == STREAM_LIVE && gantry_link_has_more(&d->link));
	pthread_mutex_unlock(&d->send_lock);
	if (state_of(d) == STREAM_CONNECTING || (more && d->sock >= 0))
		pfds[0].events |= POLLOUT;
	if (state_of(d) == STREAM_DOWN)
		deadline_ns = gantry_min_u64(deadline_ns, d->retry_ns);
	(void)poll(pfds, 2, gantry_deadline_poll_ms(deadline_ns)); /* the next step sees */
	gantry_store_relaxed(&d->is_polling, 0u);
	if (pfds[1].revents)
		(void)!read(d->nudge, &count, sizeof(count));
}

/* What somebody waits for: tasks (@map), an answer (NULL), or only that the stream lives (@seq 0). */
static bool has_come(struct stream *d, const struct gantry_ring_map *map, uint64_t seq)
{
	if (state_of(d) == STREAM_DEAD)
		return true;
	if (map)
		return gantry_ring_done(map) >= seq;
	return seq ? gantry_load_acquire(&d->answered) : state_of(d) == STREAM_LIVE;
}

static void lead_locked(struct stream *d, const struct gantry_ring_map *map, uint64_t seq,
			uint64_t deadline_ns)
{
	for (;;) {
		bool came = step(d);

		if (has_come(d, map, seq) || gantry_deadline_passed(deadline_ns))
			return;
		if (!came) {
			poll_for(d, deadline_ns);
			continue;
		}
		wake_followers(d);
	}
}

static void wait_for(struct stream *d, const struct gantry_ring_map *map, uint64_t seq,
		     uint64_t deadline_ns)
{
	for (;;) {
		uint32_t turn = gantry_load_acquire(&d->turn);

		if (has_come(d, map, seq))
			return;
		if (pthread_mutex_trylock(&d->recv_lock) == 0) {
			lead_locked(d, map, seq, deadline_ns);
			pthread_mutex_unlock(&d->recv_lock);
			wake_followers(d);
			return;
		}
		if (gantry_deadline_passed(deadline_ns))
			return;
		(void)gantry_fetch_add(&d->nfollowers, 1);
		(void)gantry_futex_wait(&d->turn, turn, deadline_ns);
		(void)gantry_fetch_sub(&d->nfollowers, 1);
	}
}

/* ---- the transport ---- */

static int stream_connect(int (*address)(const char *where, struct stream *d), const char *where,
			  void **ret_cookie)
{
	struct stream *d = aligned_alloc(_Alignof(struct stream),
					 (sizeof(*d) + _Alignof(struct stream) - 1) &
						 ~(_Alignof(struct stream) - 1));
	int r;

	if (!d)
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	memset(d, 0, sizeof(*d));
	d->sock = -EBADF;
	d->pid = getpid();
	d->grace_ms = GRACE_DEFAULT_MS;
	d->nudge = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->nudge < 0 || gantry_fd_above_stdio(&d->nudge) < 0)
		r = gantry_fail_errno(GANTRY_E_NO_MEMORY, errno, "making an eventfd");
	else
		r = address(where, d);
	if (r < 0) {
		gantry_fd_close(d->nudge);
		free(d);
		return r;
	}
	pthread_mutex_init(&d->recv_lock, NULL);
	pthread_mutex_init(&d->send_lock, NULL);
	*ret_cookie = d;
	return 0;
}

static int connect_failed(const struct stream *d, const char *where, int errnum)
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

/* The first connection: errors are told, not waited out. */
static int stream_dial_first(struct stream *d, const char *where, uint64_t deadline_ns)
{
	struct pollfd pfd = { .events = POLLOUT };
	socklen_t len = sizeof(int);
	int err = 0;
	int r;

	while ((r = dial(d)) == -EAGAIN && !gantry_deadline_passed(deadline_ns))
		(void)poll(NULL, 0,
			   1); /* a full backlog, which a Unix socket does not tell the end of */
	if (r < 0)
		return connect_failed(d, where, -r);
	if (state_of(d) != STREAM_CONNECTING)
		return 0;
	pfd.fd = d->sock;
	do {
		r = poll(&pfd, 1, gantry_deadline_poll_ms(deadline_ns));
	} while (r < 0 && errno == EINTR);
	if (r == 0)
		return connect_failed(d, where, ETIMEDOUT);
	if (getsockopt(d->sock, SOL_SOCKET, SO_ERROR, &err, &len) < 0 || err != 0)
		return connect_failed(d, where, err);
	greet(d);
	return 0;
}

/* So that the session ends now, and not when nobody has come back for a while. */
static void say_bye(struct stream *d)
{
	struct gantry_door_header bye;

	gantry_stream_header_init(&bye, GANTRY_STREAM_BYE, sizeof(bye), 0);
	(void)gantry_stream_flush(&d->tx, d->sock);
	if (gantry_stream_tx_put(&d->tx, &bye, sizeof(bye)) == 0)
		(void)gantry_stream_flush(&d->tx, d->sock); /* else it takes the while */
}

static void stream_close(void *cookie)
{
	struct stream *d = cookie;
	bool is_ours = d->pid == getpid();

	if (is_ours && state_of(d) == STREAM_LIVE)
		say_bye(d);
	gantry_fd_close(d->sock);
	gantry_fd_close(d->nudge);
	gantry_link_fini(&d->link, is_ours);
	free(d);
}

static int open_first(int (*address)(const char *where, struct stream *d), const char *where,
		      uint64_t deadline_ns, void **ret_cookie)
{
	void *d = NULL;
	int r = stream_connect(address, where, &d);

	if (r < 0)
		return r;
	r = stream_dial_first(d, where, deadline_ns);
	if (r < 0) {
		stream_close(d);
		return r;
	}
	*ret_cookie = d;
	return 0;
}

static int vsock_connect(const char *where, uint64_t deadline_ns, void **ret_cookie)
{
	return open_first(vsock_address, where, deadline_ns, ret_cookie);
}

static int unix_stream_connect(const char *where, uint64_t deadline_ns, void **ret_cookie)
{
	return open_first(unix_address, where, deadline_ns, ret_cookie);
}

/* A connection that ends before there is a session is not tried again. */
static void greet_until(struct stream *d, uint64_t deadline_ns)
{
	for (;;) {
		(void)step(d);
		if (state_of(d) == STREAM_LIVE || state_of(d) == STREAM_DEAD ||
		    (state_of(d) == STREAM_DOWN && !d->is_welcome) ||
		    gantry_deadline_passed(deadline_ns))
			return;
		poll_for(d, deadline_ns);
	}
}

static int stream_handshake(void *cookie, const struct gantry_door_hello *hello,
			    uint64_t deadline_ns, struct gantry_attachment *ret_attachment)
{
	struct stream *d = cookie;

	pthread_mutex_lock(&d->recv_lock);
	d->hello = *hello;
	greet(d); /* nothing has gone so far */
	greet_until(d, deadline_ns);
	pthread_mutex_unlock(&d->recv_lock);
	if (d->notice.status < 0)
		return gantry_fail(d->notice.status, "%s",
				   d->notice.text[0] ? d->notice.text
						     : gantry_status_text(d->notice.status));
	if (state_of(d) == STREAM_DOWN && !d->is_welcome)
		return gantry_handshake_failed(-ECONNRESET);
	if (state_of(d) != STREAM_LIVE)
		return gantry_handshake_failed(-ETIMEDOUT);
	*ret_attachment = (struct gantry_attachment){
		.welcome = d->welcome,
		.segment_fd = -EBADF,
		.mapped = d->link.segment.base,
	};
	return 0;
}

static void stream_sleep(void *cookie, const struct gantry_ring_map *map, uint64_t seq,
			 uint64_t deadline_ns)
{
	wait_for(cookie, map, seq, deadline_ns);
}

static int stream_peek(void *cookie, struct gantry_door_refuse *ret_notice)
{
	struct stream *d = cookie;
	int r;

	*ret_notice = (struct gantry_door_refuse){ 0 };
	/* Whoever holds it is reading, and will notice what there is to notice. */
	if (pthread_mutex_trylock(&d->recv_lock) != 0)
		return 0;
	(void)step(d);
	*ret_notice = d->notice;
	r = state_of(d) == STREAM_DEAD ? -ECONNRESET : 0;
	pthread_mutex_unlock(&d->recv_lock);
	wake_followers(d);
	return r;
}

static int stream_request(void *cookie, void *msg, uint16_t kind, void *ret_answer,
			  uint64_t deadline_ns)
{
	struct gantry_door_header *h = msg;
	struct stream *d = cookie;
	const struct gantry_door_header *answer = (const void *)d->answer;
	int r = 0;

	if (h->len_bytes > sizeof(d->request))
		return gantry_fail_plain(GANTRY_E_ARG);
	pthread_mutex_lock(&d->send_lock);
	h->tag = ++d->tag; /* an answer to one that was given up is known by its tag */
	memcpy(d->request, msg, h->len_bytes);
	d->request_bytes = h->len_bytes;
	d->request_is_due = true;
	gantry_store_relaxed(&d->answered, 0u);
	pthread_mutex_unlock(&d->send_lock);
	stream_kick(d);
	while (!has_come(d, NULL, 1) && !gantry_deadline_passed(deadline_ns))
		wait_for(d, NULL, 1, deadline_ns);

	if (!gantry_load_acquire(&d->answered))
		r = gantry_request_failed(state_of(d) == STREAM_DEAD ? -ECONNRESET : -ETIMEDOUT);
	else if (answer->kind != kind)
		r = gantry_fail(GANTRY_E_PROTOCOL, "the agent answered with a message of kind %u",
				answer->kind);
	else
		memcpy(ret_answer, d->answer, gantry_door_len(kind));
	return r;
}

const struct gantry_transport_ops gantry_transport_vsock = {
	.prefix = "vsock:",
	.connect = vsock_connect,
	.handshake = stream_handshake,
	.kick = stream_kick,
	.request = stream_request,
	.peek = stream_peek,
	.sleep = stream_sleep,
	.is_pumped = true,
	.close = stream_close,
};

const struct gantry_transport_ops gantry_transport_stream = {
	.prefix = "stream:",
	.connect = unix_stream_connect,
	.handshake = stream_handshake,
	.kick = stream_kick,
	.request = stream_request,
	.peek = stream_peek,
	.sleep = stream_sleep,
	.is_pumped = true,
	.close = stream_close,
};
