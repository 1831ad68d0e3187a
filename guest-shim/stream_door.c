/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/stream_door.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/str.h"
#include "guest-shim/sockets.h"

#define RETRY_FIRST_NS	 (5 * GANTRY_NS_PER_MS)
#define RETRY_MAX_NS	 (250 * GANTRY_NS_PER_MS)
#define GRACE_DEFAULT_MS 10000u
#define RECEIVES_PER_GO	 64 /* so that one who looks in passing comes back */

static uint32_t state_of(const struct gantry_stream_door *d)
{
	return gantry_stream_door_state(d);
}

void gantry_stream_door_tell(struct gantry_stream_door *d)
{
	(void)gantry_fetch_add(&d->turn, 1);
	/* Pairs with the increment in follow(): it sleeps and we see it, or it sees `turn`. */
	gantry_fence_full();
	if (gantry_load_relaxed(&d->nfollowers))
		(void)gantry_futex_wake(&d->turn, INT_MAX); /* nobody may be asleep */
}

/* ---- the connection ---- */

static void set_state_locked(struct gantry_stream_door *d, enum gantry_stream_door_state state)
{
	gantry_store_release(&d->state, (uint32_t)state);
}

/* In place of the socket that was; @sock is the door's now. */
static void set_socket(struct gantry_stream_door *d, int sock, enum gantry_stream_door_state state)
{
	pthread_mutex_lock(&d->send_lock);
	gantry_fd_close(d->sock);
	d->sock = sock;
	d->is_broken = 0;
	set_state_locked(d, state);
	pthread_mutex_unlock(&d->send_lock);
}

static void drop_socket(struct gantry_stream_door *d, enum gantry_stream_door_state state)
{
	gantry_forks_lock();
	set_socket(d, -EBADF, state);
	gantry_forks_unlock();
}

/* For good. The sentence that came first stays. */
static void die(struct gantry_stream_door *d, int status, const char *text)
{
	if (d->notice.status == 0) {
		d->notice.status = status;
		(void)gantry_str_copy(d->notice.text, sizeof(d->notice.text), text);
	}
	drop_socket(d, GANTRY_STREAM_DEAD);
	if (d->link.header) { /* for those who look at the segment alone */
		gantry_store_relaxed(&d->link.header->reason, d->notice.status);
		/* Release: pairs with the acquire in gantry_session_alive(). */
		gantry_store_release(&d->link.header->state, (uint32_t)GANTRY_SESSION_DETACHED);
	}
	gantry_stream_door_tell(d);
}

static bool can_return(const struct gantry_stream_door *d)
{
	static const uint8_t none[sizeof(d->hello.nonce)];

	return !d->is_welcome || memcmp(d->hello.nonce, none, sizeof(none)) != 0;
}

/* The connection is no good; a session that it had may be found again. */
static void lose(struct gantry_stream_door *d)
{
	uint64_t now_ns = gantry_now_ns();

	if (state_of(d) == GANTRY_STREAM_DEAD)
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
	if (state_of(d) == GANTRY_STREAM_LIVE || d->lost_ns == 0) {
		d->lost_ns = now_ns;
		d->pause_ns = 0;
	}
	drop_socket(d, GANTRY_STREAM_DOWN);
	d->retry_ns = now_ns + d->pause_ns;
	d->pause_ns = d->pause_ns ? gantry_min_u64(d->pause_ns * 2, RETRY_MAX_NS) : RETRY_FIRST_NS;
}

/* It was made so that connect() does not wait; sends say that they do not, each by itself. */
static bool let_wait(int sock)
{
	const struct timeval limit = { .tv_usec = GANTRY_STREAM_WAIT_NS / GANTRY_NS_PER_US };

	return setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0 &&
	       gantry_fd_nonblock(sock, false) == 0;
}

static void greet(struct gantry_stream_door *d)
{
	gantry_stream_rx_init(&d->rx);
	d->has_more = true;
	d->can_wait = let_wait(d->sock);
	pthread_mutex_lock(&d->send_lock);
	gantry_stream_tx_init(&d->tx);
	(void)gantry_stream_tx_put(&d->tx, &d->hello, sizeof(d->hello)); /* it is empty */
	set_state_locked(d, GANTRY_STREAM_GREETING);
	pthread_mutex_unlock(&d->send_lock);
}

void gantry_stream_door_greet(struct gantry_stream_door *d, const struct gantry_door_hello *hello)
{
	d->hello = *hello;
	greet(d);
}

static int dial_apart_from_forks(struct gantry_stream_door *d)
{
	int sock = socket(d->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r = sock < 0 ? -errno : gantry_fd_above_stdio(&sock);

	if (r < 0) {
		gantry_fd_close(sock);
		return r;
	}
	do {
		r = connect(sock, (const struct sockaddr *)&d->addr, d->addr_len) < 0 ? -errno : 0;
	} while (r == -EINTR);
	if (r < 0 && r != -EINPROGRESS) {
		gantry_fd_close(sock);
		return r;
	}
	set_socket(d, sock, GANTRY_STREAM_CONNECTING);
	return r;
}

/* 0, or -errno of connect(); -EINPROGRESS counts as 0. */
static int dial(struct gantry_stream_door *d)
{
	int r;

	gantry_forks_lock();
	r = dial_apart_from_forks(d);
	gantry_forks_unlock();
	if (r == 0)
		greet(d);
	return r == -EINPROGRESS ? 0 : r;
}

static int connect_error(const struct gantry_stream_door *d)
{
	socklen_t len = sizeof(int);
	int err = 0;

	return getsockopt(d->sock, SOL_SOCKET, SO_ERROR, &err, &len) < 0 ? -errno : -err;
}

static int dial_once(struct gantry_stream_door *d, uint64_t deadline_ns)
{
	struct pollfd pfd = { .events = POLLOUT };
	int r;

	while ((r = dial(d)) == -EAGAIN && !gantry_deadline_passed(deadline_ns))
		(void)poll(NULL, 0,
			   1); /* a full backlog, which a Unix socket does not tell the end of */
	if (r < 0 || state_of(d) != GANTRY_STREAM_CONNECTING)
		return r;
	pfd.fd = d->sock;
	do {
		r = poll(&pfd, 1, gantry_deadline_poll_ms(deadline_ns));
	} while (r < 0 && errno == EINTR);
	return r == 0 ? -ETIMEDOUT : connect_error(d);
}

int gantry_stream_door_dial(struct gantry_stream_door *d, uint64_t deadline_ns)
{
	int r;

	do { /* a vsock gives up by itself after two seconds, which a machine may need to come up */
		r = dial_once(d, deadline_ns);
	} while (r == -ETIMEDOUT && !gantry_deadline_passed(deadline_ns));
	if (r == 0 && state_of(d) == GANTRY_STREAM_CONNECTING)
		greet(d);
	return r;
}

static void look_at_connecting(struct gantry_stream_door *d)
{
	struct pollfd pfd = { .fd = d->sock, .events = POLLOUT };

	if (poll(&pfd, 1, 0) <= 0)
		return;
	if (connect_error(d) < 0)
		lose(d);
	else
		greet(d);
}

/* When it is too late to be found again, wherever the way back stands: what answers may be mute. */
static uint64_t grace_end_ns(const struct gantry_stream_door *d)
{
	return d->lost_ns ? d->lost_ns + d->grace_ms * GANTRY_NS_PER_MS : GANTRY_DEADLINE_NEVER;
}

static void come_back(struct gantry_stream_door *d)
{
	uint64_t now_ns = gantry_now_ns();

	if (d->is_welcome && now_ns > grace_end_ns(d))
		die(d, GANTRY_E_DETACHED, "the host hung up, and the connection did not come back");
	else if (state_of(d) == GANTRY_STREAM_DOWN && now_ns >= d->retry_ns && dial(d) < 0)
		lose(d);
	if (state_of(d) == GANTRY_STREAM_CONNECTING)
		look_at_connecting(d);
}

/* ---- receiving ---- */

static bool same_session(const struct gantry_stream_door *d, const struct gantry_door_welcome *w)
{
	return w->session_id == d->welcome.session_id && w->version == d->welcome.version &&
	       w->segment_bytes == d->welcome.segment_bytes && w->nqueues == d->welcome.nqueues &&
	       w->nslots == d->welcome.nslots &&
	       memcmp(w->nonce, d->welcome.nonce, sizeof(w->nonce)) == 0;
}

static int take_welcome(struct gantry_stream_door *d, const struct gantry_door_welcome *w)
{
	int r;

	if (state_of(d) != GANTRY_STREAM_GREETING || (d->is_welcome && !same_session(d, w)))
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
		set_state_locked(d, GANTRY_STREAM_SYNCING);
	pthread_mutex_unlock(&d->send_lock);
	return r < 0 ? -EPROTO : 0;
}

static int take_positions(struct gantry_stream_door *d, const struct gantry_stream_positions *p)
{
	int r = -EPROTO;

	pthread_mutex_lock(&d->send_lock);
	if (state_of(d) == GANTRY_STREAM_SYNCING)
		r = gantry_link_restart(&d->link, p);
	if (r == 0) {
		d->request_is_due = d->request_bytes > 0;
		set_state_locked(d, GANTRY_STREAM_LIVE);
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
static int take_refuse(struct gantry_stream_door *d, const struct gantry_door_refuse *refuse)
{
	if (state_of(d) == GANTRY_STREAM_LIVE || state_of(d) == GANTRY_STREAM_SYNCING)
		return -EPROTO;
	if (d->is_welcome && refuse->status == GANTRY_E_AGAIN)
		return -ECONNRESET;
	d->notice = *refuse;
	return -ECONNRESET;
}

static int take_answer(struct gantry_stream_door *d, const struct gantry_door_header *frame)
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
	struct gantry_stream_door *d = cookie;
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
		return state_of(d) == GANTRY_STREAM_LIVE ? take_answer(d, frame) : -EPROTO;
	case GANTRY_STREAM_POSITIONS:
		return take_positions(d, (const void *)frame);
	default:
		return state_of(d) == GANTRY_STREAM_LIVE ? gantry_link_take(&d->link, frame)
							 : -EPROTO;
	}
}

static void *payload_place(void *cookie, uint64_t heap_off, uint32_t bytes)
{
	struct gantry_stream_door *d = cookie;

	return state_of(d) == GANTRY_STREAM_LIVE ? gantry_link_place(&d->link, heap_off, bytes)
						 : NULL;
}

/* ---- sending ---- */

static void put_request_locked(struct gantry_stream_door *d)
{
	if (d->request_is_due && d->request_bytes > 0 &&
	    gantry_stream_tx_put(&d->tx, d->request, d->request_bytes) == 0)
		d->request_is_due = false;
}

/* All that there is, as far as the socket takes it. 0: all went; -EAGAIN; -ECONNRESET. */
static int send_locked(struct gantry_stream_door *d)
{
	int filled, r;

	if (d->sock < 0 || state_of(d) == GANTRY_STREAM_CONNECTING || d->is_broken)
		return -EAGAIN;
	do {
		filled = 0;
		put_request_locked(d);
		if (state_of(d) == GANTRY_STREAM_LIVE)
			while ((filled = gantry_link_put_next(&d->link, &d->tx)) > 0)
				;
		r = gantry_stream_flush(&d->tx, d->sock);
	} while (r == 0 && (filled < 0 || d->request_is_due));
	return r;
}

/* true: somebody else, or the next look at the socket, has to send the rest. */
static bool send_all(struct gantry_stream_door *d)
{
	int r;

	do {
		/* Who holds it is sending, or ends it; the second look sees what it did not. */
		if (pthread_mutex_trylock(&d->send_lock) != 0)
			return true;
		r = send_locked(d);
		if (r == -ECONNRESET)
			gantry_store_relaxed(&d->is_broken, 1u);
		pthread_mutex_unlock(&d->send_lock);
		gantry_fence_full();
	} while (r == 0 && state_of(d) == GANTRY_STREAM_LIVE && gantry_link_has_more(&d->link));
	return r != 0;
}

void gantry_stream_door_kick(struct gantry_stream_door *d)
{
	uint64_t one = 1;

	if (send_all(d) && gantry_load_relaxed(&d->is_polling))
		(void)!write(d->nudge, &one, sizeof(one)); /* full: it is awake */
}

void gantry_stream_door_ask(struct gantry_stream_door *d, struct gantry_door_header *msg)
{
	pthread_mutex_lock(&d->send_lock);
	msg->tag = ++d->tag; /* an answer to one that was given up is known by its tag */
	memcpy(d->request, msg, msg->len_bytes);
	d->request_bytes = msg->len_bytes;
	d->request_is_due = true;
	gantry_store_relaxed(&d->answered, 0u);
	pthread_mutex_unlock(&d->send_lock);
	gantry_stream_door_kick(d);
}

/* ---- a turn ---- */

static void receive(struct gantry_stream_door *d, bool waits, bool *ret_came)
{
	const struct gantry_stream_sink sink = {
		.cookie = d,
		.payload = payload_place,
		.frame = take_frame,
	};
	int r = 1;

	d->has_more = true;
	for (int i = 0; i < RECEIVES_PER_GO && d->has_more && r > 0; i++) {
		r = gantry_stream_receive(&d->rx, d->sock, waits && i == 0, &sink);
		*ret_came |= r > 0;
		d->has_more = r == GANTRY_STREAM_CAME_MORE;
	}
	if (r == -EPROTO || r == -ENOMEM)
		die(d, r == -ENOMEM ? GANTRY_E_NO_MEMORY : GANTRY_E_PROTOCOL,
		    r == -ENOMEM ? "no memory for the session's copy of its segment"
				 : "what the host sent makes no sense");
	else if (r < 0 || (r == 0 && gantry_load_relaxed(&d->is_broken)))
		lose(d);
}

bool gantry_stream_door_step(struct gantry_stream_door *d, bool waits)
{
	bool came = false;

	if (state_of(d) != GANTRY_STREAM_LIVE)
		come_back(d);
	if (d->sock < 0 || state_of(d) == GANTRY_STREAM_CONNECTING)
		return false;
	(void)send_all(d);
	receive(d, waits, &came);
	return came;
}

/* Whether poll() is to say when the socket takes more. */
static bool has_unsent(struct gantry_stream_door *d)
{
	bool has;

	pthread_mutex_lock(&d->send_lock);
	has = !gantry_stream_tx_is_empty(&d->tx) || d->request_is_due ||
	      (state_of(d) == GANTRY_STREAM_LIVE && gantry_link_has_more(&d->link));
	pthread_mutex_unlock(&d->send_lock);
	return has || state_of(d) == GANTRY_STREAM_CONNECTING;
}

bool gantry_stream_door_may_wait(struct gantry_stream_door *d, uint64_t left_ns)
{
	return d->can_wait && left_ns > 2 * GANTRY_STREAM_WAIT_NS &&
	       state_of(d) == GANTRY_STREAM_LIVE && !has_unsent(d);
}

void gantry_stream_door_poll(struct gantry_stream_door *d, uint64_t deadline_ns)
{
	struct pollfd pfds[2] = { { .fd = d->sock, .events = POLLIN },
				  { .fd = d->nudge, .events = POLLIN } };
	uint64_t count;

	gantry_store_relaxed(&d->is_polling, 1u);
	/* Full fence: pairs with the one in send_all(); it sees us poll or we see what it put. */
	gantry_fence_full();
	if (has_unsent(d) && d->sock >= 0)
		pfds[0].events |= POLLOUT;
	if (state_of(d) == GANTRY_STREAM_DOWN)
		deadline_ns = gantry_min_u64(deadline_ns, d->retry_ns);
	deadline_ns = gantry_min_u64(deadline_ns, grace_end_ns(d));
	(void)poll(pfds, 2, gantry_deadline_poll_ms(deadline_ns)); /* the next step sees */
	gantry_store_relaxed(&d->is_polling, 0u);
	if (pfds[1].revents)
		(void)!read(d->nudge, &count, sizeof(count));
}

/* ---- life ---- */

/* A claim on the host that ends with the last copy of it: a child keeps none. */
static void close_copies(void *cookie)
{
	struct gantry_stream_door *d = cookie;

	d->sock = gantry_fd_close(d->sock);
	d->nudge = gantry_fd_close(d->nudge);
}

static struct gantry_stream_door *new_locked(void)
{
	struct gantry_stream_door *d =
		aligned_alloc(_Alignof(struct gantry_stream_door),
			      (sizeof(*d) + _Alignof(struct gantry_stream_door) - 1) &
				      ~(_Alignof(struct gantry_stream_door) - 1));

	if (!d)
		return NULL;
	memset(d, 0, sizeof(*d));
	d->sock = -EBADF;
	d->pid = getpid();
	d->grace_ms = GRACE_DEFAULT_MS;
	d->nudge = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->nudge < 0 || gantry_fd_above_stdio(&d->nudge) < 0) {
		gantry_fd_close(d->nudge);
		free(d);
		return NULL;
	}
	pthread_mutex_init(&d->recv_lock, NULL);
	pthread_mutex_init(&d->send_lock, NULL);
	gantry_forks_watch_locked(&d->fork_watch, close_copies, d);
	return d;
}

struct gantry_stream_door *gantry_stream_door_new(void)
{
	struct gantry_stream_door *d;

	gantry_forks_lock();
	d = new_locked();
	gantry_forks_unlock();
	return d;
}

/* So that the session ends now, and not when nobody has come back for a while. */
static void say_bye(struct gantry_stream_door *d)
{
	struct gantry_door_header bye;

	gantry_stream_header_init(&bye, GANTRY_STREAM_BYE, sizeof(bye), 0);
	(void)gantry_stream_flush(&d->tx, d->sock);
	if (gantry_stream_tx_put(&d->tx, &bye, sizeof(bye)) == 0)
		(void)gantry_stream_flush(&d->tx, d->sock); /* else it takes the while */
}

void gantry_stream_door_free(struct gantry_stream_door *d)
{
	bool is_ours = d->pid == getpid();

	if (is_ours && state_of(d) == GANTRY_STREAM_LIVE)
		say_bye(d);
	gantry_forks_forget(&d->fork_watch);
	gantry_fd_close(d->sock);
	gantry_fd_close(d->nudge);
	gantry_link_fini(&d->link, is_ours);
	free(d);
}
