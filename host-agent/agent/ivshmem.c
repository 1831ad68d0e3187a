/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/ivshmem.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/channel.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/door.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/seat.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/monitor/store.h"
#include "proto/vocab.h"

#define BEAT_NS	     GANTRY_NS_PER_S
#define PAUSE_MIN_NS GANTRY_NS_PER_MS
#define PAUSE_MAX_NS (64 * GANTRY_NS_PER_MS)
#define MAX_HELD     64u
/* What the kernel counts for a message of 8 bytes, generously; and what all of them may take. */
#define MESSAGE_COST 2048u
#define SOCKET_BYTES (GANTRY_IVSHMEM_MAX_MESSAGES * MESSAGE_COST)

static void machine_gone(struct gantry_machine *m, const char *why);
static void look(struct gantry_machine *m);

/* ---- the handshake ---- */

unsigned gantry_ivshmem_handshake(const struct gantry_doormem *m,
				  struct gantry_ivshmem_message msgs[GANTRY_IVSHMEM_MAX_MESSAGES])
{
	const int64_t machine = m->host_peer == GANTRY_DOORMEM_HOST_PEER ? GANTRY_DOORMEM_OWN_PEER
									 : GANTRY_DOORMEM_HOST_PEER;
	unsigned n = 0;

	msgs[n++] = (struct gantry_ivshmem_message){ GANTRY_IVSHMEM_VERSION, -EBADF };
	msgs[n++] = (struct gantry_ivshmem_message){ machine, -EBADF };
	msgs[n++] = (struct gantry_ivshmem_message){ -1, m->fd };
	for (uint32_t i = 0; i < m->nvectors; i++)
		msgs[n++] = (struct gantry_ivshmem_message){ m->host_peer, m->bells[i] };
	for (uint32_t i = 0; m->interrupts && i < m->nvectors; i++)
		msgs[n++] = (struct gantry_ivshmem_message){ machine, m->vectors[i] };
	return n;
}

union control {
	char buf[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

static void add_fd(struct msghdr *h, union control *control, int fd)
{
	struct cmsghdr *c;

	h->msg_control = control->buf;
	h->msg_controllen = sizeof(control->buf);
	c = CMSG_FIRSTHDR(h);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
}

/* As many as the socket takes, in one call: from the first on nothing may come between. */
static int send_messages(int fd, const struct gantry_ivshmem_message *msgs, unsigned n)
{
	struct mmsghdr hdrs[GANTRY_IVSHMEM_MAX_MESSAGES];
	union control controls[GANTRY_IVSHMEM_MAX_MESSAGES];
	struct iovec iov[GANTRY_IVSHMEM_MAX_MESSAGES];
	uint64_t values[GANTRY_IVSHMEM_MAX_MESSAGES];
	int r;

	memset(hdrs, 0, sizeof(hdrs));
	memset(controls, 0, sizeof(controls));
	for (unsigned i = 0; i < n; i++) {
		values[i] = htole64((uint64_t)msgs[i].value);
		iov[i] = (struct iovec){ .iov_base = &values[i], .iov_len = sizeof(values[i]) };
		hdrs[i].msg_hdr.msg_iov = &iov[i];
		hdrs[i].msg_hdr.msg_iovlen = 1;
		if (msgs[i].fd >= 0)
			add_fd(&hdrs[i].msg_hdr, &controls[i], msgs[i].fd);
	}
	do
		r = sendmmsg(fd, hdrs, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

static void room_for_more(evutil_socket_t fd, short what, void *arg);

/*
 * QEMU has what it waits for with the first three; to stop there would be worse than to be late with the others. The
 * machine's own interrupts are said when the first program asks for them: see the header.
 */
static void send_rest(struct gantry_machine *m)
{
	struct gantry_ivshmem_message msgs[GANTRY_IVSHMEM_MAX_MESSAGES];
	unsigned n = gantry_ivshmem_handshake(m->mem, msgs);
	int r = m->nsent < n ? send_messages(m->fd, msgs + m->nsent, n - m->nsent) : 0;

	if (r < 0 && r != -EAGAIN && r != -ETOOMANYREFS) {
		machine_gone(m, "its hypervisor does not take the handshake");
		return;
	}
	m->nsent += r > 0 ? (uint32_t)r : 0;
	if (m->nsent >= n)
		gantry_event_free(&m->room_event);
	else if (gantry_timer_set(m->agent, &m->room_event, PAUSE_MIN_NS, room_for_more, m) < 0)
		machine_gone(m, "no memory for its handshake");
}

static void room_for_more(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	send_rest(arg);
}

void gantry_ivshmem_tell(struct gantry_doormem *mem)
{
	gantry_list_for_each_safe(&mem->tenant->machines, struct gantry_machine, link, m)
		if (m->mem == mem) {
			send_rest(m); /* m is nobody's afterwards, if that ends it */
			return;
		}
}

/* ---- connections that are over ---- */

struct held {
	struct gantry_list link; /* agent->held: the oldest first */
	struct gantry_agent *agent;
	uint64_t id;
	int fd;
	struct event *event;
};

static void let_go(struct held *h)
{
	gantry_keep_drop(h->agent, "h/%llx", (unsigned long long)h->id);
	gantry_event_free(&h->event);
	gantry_list_remove(&h->link);
	gantry_fd_close(h->fd);
	free(h);
}

static void held_readable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	let_go(arg);
}

/* Until the other side ends it: see the header. Takes @fd over. */
static void hold(struct gantry_agent *a, int fd)
{
	struct held *h = calloc(1, sizeof(*h));

	if (!h) {
		gantry_fd_close(fd);
		return;
	}
	if (gantry_list_count(&a->held) >= MAX_HELD)
		let_go(gantry_list_entry(a->held.next, struct held, link));
	h->agent = a;
	h->id = a->next_machine_id++;
	h->fd = fd;
	gantry_list_init(&h->link);
	gantry_list_push_back(&a->held, &h->link);
	gantry_keep(a, fd, "h/%llx", (unsigned long long)h->id);
	h->event = event_new(a->base, fd, EV_READ, held_readable, h);
	if (!h->event || event_add(h->event, NULL) < 0)
		let_go(h);
}

void gantry_ivshmem_fini(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->held, struct held, link, h)
		let_go(h);
}

/* The end alone would have QEMU read for ever: a version that is none ends it with a sentence. */
static void turn_away(struct gantry_tenant *t, int fd, int status, const char *text)
{
	const struct gantry_ivshmem_message msg = { status, -EBADF };

	(void)send_messages(fd, &msg, 1); /* an empty socket takes 8 bytes */
	hold(t->agent, fd);
	t->denied++;
	gantry_event(t->agent, "machine-refused", t, NULL, NULL, "%s (%d)", text, status);
}

/* ---- looking ---- */

static void beat(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_machine *m = arg;

	(void)fd;
	(void)what;
	gantry_doormem_beat(m->mem);
	/* it is there: no memory needed */
	(void)gantry_timer_set(m->agent, &m->beat_timer, BEAT_NS, beat, m);
	(void)gantry_doormem_look(m->mem);
	gantry_parts_go_on(m->agent);
	send_rest(m);
}

static void pause_over(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_machine *m = arg;

	(void)fd;
	(void)what;
	(void)event_add(m->bell_event, NULL); /* it was there before: no memory needed */
}

/*
 * A doorbell counts again after a pause, which grows while looks find nothing: a machine that rings for ever is looked
 * at now and then.
 */
static void look(struct gantry_machine *m)
{
	(void)event_del(m->bell_event); /* cannot fail for an event of ours */
	if (gantry_doormem_look(m->mem) > 0)
		m->pause_ns = PAUSE_MIN_NS;
	else if (m->pause_ns < PAUSE_MAX_NS)
		m->pause_ns *= 2;
	(void)gantry_timer_set(m->agent, &m->pause_timer, m->pause_ns, pause_over, m);
	send_rest(
		m); /* a claim may have asked for interrupts; m is nobody's afterwards, if that ends it */
}

/* The hypervisor holds it too, and may have cleared O_NONBLOCK, or read it before us. */
static void bell_rang(evutil_socket_t fd, short what, void *arg)
{
	uint64_t count;
	struct iovec iov = { .iov_base = &count, .iov_len = sizeof(count) };

	(void)what;
	/* A kernel that cannot, before 5.8, has it ring for ever: it is looked at now and then. */
	(void)!preadv2((int)fd, &iov, 1, -1, RWF_NOWAIT);
	look(arg);
}

/* ---- machines ---- */

static void free_machine(struct gantry_machine *m)
{
	gantry_event_free(&m->conn_event);
	gantry_event_free(&m->room_event);
	gantry_event_free(&m->bell_event);
	gantry_event_free(&m->pause_timer);
	gantry_event_free(&m->beat_timer);
	gantry_event_free(&m->drain.timer);
	gantry_list_remove(&m->link);
	gantry_fd_close(m->fd);
	free(m);
}

/* Its guests' sessions end. The connection is the other side's to end. */
static void end_machine(struct gantry_machine *m, int status, const char *text)
{
	int fd = m->fd;
	struct gantry_doormem *mem = m->mem;
	struct gantry_tenant *t = m->tenant;

	gantry_keep_drop(m->agent, "m/%llx/conn", (unsigned long long)mem->id);
	gantry_list_remove(&m->link);
	gantry_event_free(&m->conn_event);
	gantry_event_free(&m->bell_event);
	m->fd = -EBADF;
	hold(m->agent, fd);
	t->nsessions++; /* keeps the tenant alive meanwhile */
	gantry_doormem_close(mem, status, text);
	t->nsessions--;
	free_machine(m);
	gantry_tenant_reap(t);
}

static void machine_gone(struct gantry_machine *m, const char *why)
{
	gantry_event(m->agent, "machine-gone", m->tenant, NULL, NULL, "machine %llu, pid %d: %s",
		     (unsigned long long)m->mem->id, (int)m->pid, why);
	m->mem->has_hung_up = true;
	end_machine(m, GANTRY_E_CLOSED, "the machine is gone");
}

/* QEMU says nothing: only the end can be readable. */
static void conn_readable(evutil_socket_t fd, short what, void *arg)
{
	char byte;
	ssize_t n = recv((int)fd, &byte, 1, MSG_DONTWAIT);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	machine_gone(arg, n > 0 ? "it speaks, which QEMU does not" : "it hung up");
}

static int watch(struct gantry_machine *m)
{
	struct event_base *base = m->agent->base;

	m->conn_event = event_new(base, m->fd, EV_READ | EV_PERSIST, conn_readable, m);
	m->bell_event = event_new(base, m->mem->bells[GANTRY_DOORMEM_BELL_VECTOR],
				  EV_READ | EV_PERSIST, bell_rang, m);
	if (!m->conn_event || !m->bell_event || event_add(m->conn_event, NULL) < 0 ||
	    event_add(m->bell_event, NULL) < 0)
		return -ENOMEM;
	return gantry_timer_set(m->agent, &m->beat_timer, BEAT_NS, beat, m);
}

/* Takes @mem over on success, never @fd: an event may be waiting for the connection that it is to be. */
static int new_machine(struct gantry_tenant *t, struct gantry_doormem *mem,
		       struct gantry_machine **ret_machine)
{
	struct gantry_machine *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->agent = t->agent;
	m->tenant = t;
	m->mem = mem;
	m->fd = -EBADF;
	m->pause_ns = PAUSE_MIN_NS;
	gantry_list_init(&m->link);
	*ret_machine = m;
	return 0;
}

/* From here on it is the tenant's. */
static int connect_machine(struct gantry_machine *m, int fd)
{
	struct ucred cred;

	m->fd = fd;
	if (gantry_fd_peer_cred(fd, &cred) == 0) {
		m->pid = cred.pid;
		m->uid = cred.uid;
	}
	gantry_list_push_back(&m->tenant->machines, &m->link);
	return watch(m);
}

/* ---- the listener ---- */

static bool has_room(const struct gantry_tenant *t)
{
	return t->host_mem_used <= t->conf.host_mem_bytes &&
	       gantry_ivshmem_bytes(t) <= t->conf.host_mem_bytes - t->host_mem_used;
}

static int may_connect(struct gantry_tenant *t, struct gantry_err *err)
{
	const struct gantry_tenant_conf *conf = &t->conf;
	size_t n = gantry_list_count(&t->machines);

	if (t->drain.is_on)
		return gantry_err_set(err, GANTRY_E_AGAIN, "the door is draining");
	if (n >= conf->ivshmem_machines)
		return gantry_err_set(err, GANTRY_E_FULL, "%zu of ivshmem_machines = %u are here",
				      n, conf->ivshmem_machines);
	if (!has_room(t))
		gantry_doormems_end(t);
	if (!has_room(t))
		return gantry_err_set(err, GANTRY_E_LIMIT,
				      "the tenant's host_mem has no room for another door memory");
	return 0;
}

/* All that a machine needs, before anyone waits for it. */
static int prepare(struct gantry_tenant *t, struct gantry_machine **ret_machine,
		   struct gantry_err *err)
{
	struct gantry_doormem *mem;
	int r = may_connect(t, err);

	if (r < 0)
		return r;
	if (gantry_doormem_new(t, t->agent->next_machine_id++, gantry_ivshmem_bytes(t),
			       t->conf.ivshmem_vectors, &mem, err) < 0)
		return GANTRY_E_AGAIN;
	if (new_machine(t, mem, ret_machine) == 0)
		return 0;
	gantry_doormem_close(mem, GANTRY_E_AGAIN, "the host is out of memory");
	return gantry_err_set(err, GANTRY_E_AGAIN, "the host is out of memory");
}

static void unprepare(struct gantry_machine *m)
{
	if (!m)
		return;
	gantry_doormem_close(m->mem, GANTRY_E_CLOSED, "nobody came");
	free_machine(m);
}

static bool takes_it_all(int fd)
{
	int want = SOCKET_BYTES, have = 0;
	socklen_t len = sizeof(have);

	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &want, sizeof(want)); /* the next line sees */
	return getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &have, &len) == 0 &&
	       (size_t)have >= SOCKET_BYTES;
}

static void come_in(struct gantry_machine *m, int fd)
{
	struct gantry_tenant *t = m->tenant;
	struct gantry_ivshmem_message msgs[GANTRY_IVSHMEM_MAX_MESSAGES];
	unsigned n = gantry_ivshmem_handshake(m->mem, msgs);
	int r;

	/* Before a word is said: whoever replaces us says what we have not, as the state tells him. */
	gantry_keep(t->agent, fd, "m/%llx/conn", (unsigned long long)m->mem->id);
	r = send_messages(fd, msgs, n);
	m->nsent = r > 0 ? (uint32_t)r : 0;
	if (connect_machine(m, fd) < 0) {
		machine_gone(m, "no memory to watch it");
		return;
	}
	gantry_doormem_open(m->mem);
	gantry_drain_size_taken(t);
	gantry_event(t->agent, "machine-connected", t, NULL, NULL,
		     "machine %llu, pid %d uid %u, has %llu bytes and %u vectors",
		     (unsigned long long)m->mem->id, (int)m->pid, m->uid,
		     (unsigned long long)m->mem->bytes, m->mem->nvectors);
	gantry_seat_came(m);
	send_rest(m);
}

static void accept_ready(evutil_socket_t listener, short what, void *arg)
{
	struct gantry_tenant *t = arg;
	struct gantry_machine *m = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;
	int r = prepare(t, &m, &err);
	int fd = gantry_door_accept_one(t->agent, t, (int)listener, t->ivshmem_event, NULL, NULL);

	(void)what;
	if (fd < 0) {
		unprepare(m);
		return;
	}
	if (r == 0 && takes_it_all(fd)) {
		come_in(m, fd);
		return;
	}
	turn_away(t, fd, r < 0 ? r : GANTRY_E_AGAIN,
		  r < 0 ? err.text : "the kernel gives its socket too little room");
	unprepare(m);
}

void gantry_ivshmem_look_again(struct gantry_agent *a)
{
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		if (t->ivshmem_event)
			/* it was there before: no memory needed */
			(void)event_add(t->ivshmem_event, NULL);
	gantry_channels_look_again(a);
}

static struct gantry_door_at where(const struct gantry_tenant *t)
{
	struct gantry_door_at at = { .path = t->ivshmem_path,
				     .type = SOCK_STREAM,
				     .mode = t->conf.ivshmem_mode,
				     .owner = t->conf.ivshmem_owner };

	(void)gantry_str_format(at.kept, sizeof(at.kept), "v/%s", t->conf.name); /* it fits */
	return at;
}

static void shut_listener(struct gantry_tenant *t)
{
	struct gantry_door_at at = where(t);

	gantry_channels_shut(t);
	gantry_door_unlisten(t, &at, &t->ivshmem_fd, &t->ivshmem_event);
}

static int open_listener(struct gantry_tenant *t, struct gantry_err *err)
{
	char what[GANTRY_CONFIG_NAME + 24];
	struct gantry_door_at at = where(t);
	int r;

	(void)gantry_str_format(what, sizeof(what), "doors/%s/ivshmem.sock",
				t->conf.name); /* fits */
	r = gantry_agent_run_path(t->agent, t->ivshmem_path, sizeof(t->ivshmem_path), what, err);
	/* First what a machine may want as soon as it is in. */
	if (r == 0)
		r = gantry_channels_open(t, err);
	if (r == 0)
		r = gantry_door_listen(t, &at, accept_ready, &t->ivshmem_fd, &t->ivshmem_event,
				       err);
	if (r < 0)
		gantry_channels_shut(t);
	return r;
}

void gantry_ivshmem_open(struct gantry_tenant *t)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	t->ivshmem_state[0] = '\0';
	if (!t->conf.ivshmem || t->ivshmem_fd >= 0 || open_listener(t, &err) == 0)
		return;
	(void)gantry_str_copy(t->ivshmem_state, sizeof(t->ivshmem_state),
			      err.text); /* for people */
	gantry_event(t->agent, "door-failed", t, NULL, NULL, "%s", err.text);
}

void gantry_ivshmem_shut(struct gantry_tenant *t)
{
	shut_listener(t);
}

void gantry_ivshmem_close(struct gantry_tenant *t, int status, const char *text)
{
	shut_listener(t);
	t->nsessions++; /* keeps the tenant alive while its machines end under us */
	gantry_list_for_each_safe(&t->machines, struct gantry_machine, link, m)
		end_machine(m, status, text);
	t->nsessions--;
	gantry_channels_close(t);
}

uint64_t gantry_ivshmem_bytes(const struct gantry_tenant *t)
{
	if (t->expected.until_ns && !gantry_deadline_passed(t->expected.until_ns))
		return t->expected.bytes;
	return t->ivshmem_bytes ? t->ivshmem_bytes : t->conf.ivshmem_bytes;
}

/* ---- after a restart ---- */

struct kept_machine {
	unsigned long long id;
	unsigned int tenant; /* slot */
	unsigned int nvectors;
	unsigned long long epoch;
};

static int take_conn(struct gantry_agent *a, uint64_t id)
{
	char name[GANTRY_MONITOR_NAME_MAX];

	(void)gantry_str_format(name, sizeof(name), "m/%llx/conn",
				(unsigned long long)id); /* fits */
	return gantry_store_take(&a->handed, name);
}

/* Its hypervisor is gone, and sessions in its memory go after it, or wait for it. */
static bool leaves_sessions(const struct gantry_agent *a, unsigned long long id)
{
	for (size_t i = 0; i < a->handed.nentries; i++) {
		char following[GANTRY_MONITOR_NAME_MAX], seated[GANTRY_MONITOR_NAME_MAX];
		unsigned long long session, machine, off, bytes, generation;
		unsigned int desk;

		if (sscanf(a->handed.entries[i].name, GANTRY_KEPT_DESK, &session, &machine, &desk,
			   &off, &bytes, &generation) != 6 ||
		    machine != id)
			continue;
		/* they fit */
		(void)gantry_str_format(following, sizeof(following), GANTRY_KEPT_FOLLOWING,
					session);
		(void)gantry_str_format(seated, sizeof(seated), GANTRY_KEPT_SEATED, session);
		if (gantry_store_find(&a->handed, following) >= 0 ||
		    gantry_store_find(&a->handed, seated) >= 0)
			return true;
	}
	return false;
}

/* Until its sessions have claimed their parts it is on a list; then it is as one whose machine has just hung up. */
static void restore_orphan(struct gantry_tenant *t, const struct kept_machine *k, int fd)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_doormem *mem;

	if (gantry_doormem_restore(t, k->id, k->nvectors, k->epoch, fd, &mem, &err) < 0) {
		gantry_event(t->agent, "machine-gone", t, NULL, NULL,
			     "the memory of machine %llu is not taken over: %s", k->id, err.text);
		gantry_fd_close(fd);
		gantry_keep_drop_tree(t->agent, "m/%llx/", k->id);
		return;
	}
	mem->has_hung_up = true;
	gantry_list_push_back(&t->agent->orphans, &mem->orphan_link);
}

static void close_orphans(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->orphans, struct gantry_doormem, orphan_link, mem) {
		gantry_list_remove(&mem->orphan_link);
		gantry_doormem_close(mem, GANTRY_E_CLOSED, "the machine is gone");
	}
}

static void restore_machine(struct gantry_agent *a, const struct kept_machine *k, int fd)
{
	struct gantry_tenant *t = gantry_tenant_by_slot(a, k->tenant);
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_machine *m = NULL;
	struct gantry_doormem *mem = NULL;
	struct gantry_ivshmem_message msgs[GANTRY_IVSHMEM_MAX_MESSAGES];
	int conn = take_conn(a, k->id);

	if (k->id >= a->next_machine_id)
		a->next_machine_id = k->id + 1;
	if (t && conn < 0 && k->nvectors <= GANTRY_DOORMEM_MAX_VECTORS &&
	    leaves_sessions(a, k->id)) {
		restore_orphan(t, k, fd);
		return;
	}
	/* Without its connection nobody would ever know that it is gone. */
	if (t && conn >= 0 && k->nvectors > 0 && k->nvectors <= GANTRY_DOORMEM_MAX_VECTORS &&
	    gantry_doormem_restore(t, k->id, k->nvectors, k->epoch, fd, &mem, &err) == 0 &&
	    new_machine(t, mem, &m) == 0) {
		/* With interrupts, if there are sessions that have them: gantry_ivshmem_resume(). */
		m->nsent = gantry_doormem_is_open(mem) ? gantry_ivshmem_handshake(mem, msgs) : 0;
		gantry_keep(a, conn, "m/%llx/conn", k->id);
		if (connect_machine(m, conn) < 0) {
			machine_gone(m, "no memory to watch it");
			return;
		}
		gantry_doormem_open(mem);
		send_rest(m);
		return;
	}
	gantry_event(a, "machine-gone", t, NULL, NULL, "machine %llu is not taken over: %s", k->id,
		     err.text[0] ? err.text : "its connection, or its tenant, is lost");
	if (conn >= 0)
		hold(a, conn);
	if (mem)
		gantry_doormem_close(mem, GANTRY_E_INTERNAL, "the host is out of memory");
	else
		gantry_fd_close(fd);
	gantry_keep_drop_tree(a, "m/%llx/", k->id);
}

static void restore_held(struct gantry_agent *a)
{
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		unsigned long long id;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		if (sscanf(name, "h/%llx", &id) != 1) {
			i++;
			continue;
		}
		gantry_keep_drop(a, "%s", name);
		hold(a, gantry_store_take(&a->handed, name));
		i = 0; /* entries have moved */
	}
}

void gantry_ivshmem_restore(struct gantry_agent *a)
{
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		struct kept_machine k;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		if (sscanf(name, GANTRY_KEPT_DOORMEM, &k.id, &k.tenant, &k.nvectors, &k.epoch) !=
		    4) {
			i++;
			continue;
		}
		restore_machine(a, &k, gantry_store_take(&a->handed, name));
		i = 0; /* entries have moved */
	}
	gantry_drain_restore(a);
	gantry_channels_restore(a);
	restore_held(a); /* after the machines: numbers of theirs are not given again */
}

void gantry_ivshmem_resume(struct gantry_agent *a)
{
	close_orphans(a);
	gantry_list_for_each_safe(&a->tenants, struct gantry_tenant, link, t) {
		bool is_closed = t->removed || !t->conf.ivshmem;

		if (is_closed)
			gantry_channels_close(t);
		gantry_list_for_each_safe(&t->machines, struct gantry_machine, link, m) {
			if (m->mem->interrupts)
				m->nsent = GANTRY_IVSHMEM_MAX_MESSAGES;
			gantry_doormem_resume(m->mem);
			if (is_closed)
				end_machine(m, GANTRY_E_DETACHED, "the door was closed");
		}
	}
}

struct gantry_doormem *gantry_ivshmem_find(struct gantry_agent *a, uint64_t id)
{
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		gantry_list_for_each(&t->machines, struct gantry_machine, link, m)
			if (m->mem->id == id)
				return m->mem;
	gantry_list_for_each(&a->orphans, struct gantry_doormem, orphan_link, mem)
		if (mem->id == id)
			return mem;
	return NULL;
}
