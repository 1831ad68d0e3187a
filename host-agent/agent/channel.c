/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/channel.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/door.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/ivshmem.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/monitor/store.h"
#include "proto/doormem.h"

#define PAUSE_NS (10 * GANTRY_NS_PER_MS) /* between two looks at what a guest says */

struct channel {
	struct gantry_list link; /* tenant->channels */
	struct gantry_agent *agent;
	struct gantry_tenant *tenant;
	int fd;
	bool is_port;	 /* else it came by the vsock door */
	pid_t pid;	 /* the hypervisor's; 0: not known */
	uint32_t number; /* another one with each hello */
	uint64_t epoch;	 /* of the door memory; 0: nobody has said hello */
	struct event *event;
	struct event *pause_timer;
	uint32_t nbytes;
	_Alignas(8) uint8_t bytes[sizeof(struct gantry_wake_hello)];
};

/* ---- life ---- */

static void keep(const struct channel *c)
{
	gantry_keep(c->agent, c->fd, GANTRY_KEPT_CHANNEL, c->number, c->tenant->slot,
		    (unsigned long long)c->epoch);
}

static void drop(const struct channel *c)
{
	gantry_keep_drop(c->agent, GANTRY_KEPT_CHANNEL, c->number, c->tenant->slot,
			 (unsigned long long)c->epoch);
}

static uint32_t next_number(struct gantry_agent *a)
{
	a->last_channel += a->last_channel == UINT32_MAX ? 2 : 1; /* never 0 */
	return a->last_channel;
}

/* Sessions that are woken by it have copies of the socket: bytes into those go nowhere. */
static void end_channel(struct channel *c)
{
	drop(c);
	gantry_event_free(&c->event);
	gantry_event_free(&c->pause_timer);
	gantry_list_remove(&c->link);
	gantry_fd_close(c->fd);
	free(c);
}

static void readable(evutil_socket_t fd, short what, void *arg);

static void pause_over(evutil_socket_t fd, short what, void *arg)
{
	struct channel *c = arg;

	(void)fd;
	(void)what;
	(void)event_add(c->event, NULL); /* it was there before: no memory needed */
}

/* Which listener it connected to; the socket knows, after a restart too. */
static bool came_by_port(const struct gantry_tenant *t, int fd)
{
	struct sockaddr_un at = { 0 };
	socklen_t len = sizeof(at) - 1; /* the path ends with a zero */

	return getsockname(fd, (struct sockaddr *)&at, &len) == 0 && at.sun_family == AF_UNIX &&
	       strcmp(at.sun_path, t->wake_path) == 0;
}

/* Takes @fd over. NULL: no memory. */
static struct channel *new_channel(struct gantry_tenant *t, int fd, uint32_t number, uint64_t epoch)
{
	struct channel *c = calloc(1, sizeof(*c));

	if (!c) {
		gantry_fd_close(fd);
		return NULL;
	}
	c->agent = t->agent;
	c->tenant = t;
	c->fd = fd;
	c->is_port = came_by_port(t, fd);
	c->number = number;
	c->epoch = epoch;
	gantry_list_init(&c->link);
	gantry_list_push_back(&t->channels, &c->link);
	keep(c);
	c->event = event_new(t->agent->base, fd, EV_READ | EV_PERSIST, readable, c);
	if (c->event && event_add(c->event, NULL) == 0)
		return c;
	end_channel(c);
	return NULL;
}

/* Whose port it is says who has connected; behind a vsock there may be anybody. */
static void learn_pid(struct channel *c)
{
	struct ucred cred;

	if (c && gantry_fd_peer_cred(c->fd, &cred) == 0)
		c->pid = cred.pid;
}

/* ---- what guests say ---- */

static bool is_of(const struct channel *c, const struct gantry_machine *m)
{
	return !c->pid || !m->pid || c->pid == m->pid;
}

static bool has_machine(const struct channel *c, uint64_t epoch)
{
	gantry_list_for_each(&c->tenant->machines, struct gantry_machine, link, m)
		if (m->mem->epoch == epoch && is_of(c, m))
			return true;
	return false;
}

/* A new process has the port: claims with the number of the one before mean nothing any more. */
static void take_hello(struct channel *c, const struct gantry_wake_hello *hello)
{
	struct gantry_wake_welcome answer = { .magic = GANTRY_WAKE_MAGIC, .nonce = hello->nonce };

	if (hello->reserved != 0 || hello->epoch == 0 || !has_machine(c, hello->epoch))
		return; /* it polls, having no answer */
	drop(c);
	c->number = next_number(c->agent);
	c->epoch = hello->epoch;
	keep(c);
	answer.number = c->number;
	/* One that does not read has no answer either. */
	(void)gantry_fd_send(c->fd, &answer, sizeof(answer), NULL, 0, MSG_DONTWAIT);
}

/* The beginning of what may become a hello stays. */
static void pass_over_noise(struct channel *c)
{
	const uint32_t magic = GANTRY_WAKE_MAGIC;

	while (c->nbytes > 0 &&
	       memcmp(c->bytes, &magic, c->nbytes < sizeof(magic) ? c->nbytes : sizeof(magic)) != 0)
		memmove(c->bytes, c->bytes + 1, --c->nbytes);
}

static void understand(struct channel *c)
{
	struct gantry_wake_hello hello;

	pass_over_noise(c);
	if (c->nbytes < sizeof(hello))
		return;
	memcpy(&hello, c->bytes, sizeof(hello));
	c->nbytes = 0;
	take_hello(c, &hello);
}

/* No more than one hello in a pause; the rest waits in the socket, and then in the guest. */
static void readable(evutil_socket_t fd, short what, void *arg)
{
	struct channel *c = arg;
	ssize_t n = recv((int)fd, c->bytes + c->nbytes, sizeof(c->bytes) - c->nbytes, MSG_DONTWAIT);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		end_channel(c);
		return;
	}
	c->nbytes += (uint32_t)n;
	understand(c);
	(void)event_del(c->event); /* cannot fail for an event of ours */
	if (gantry_timer_set(c->agent, &c->pause_timer, PAUSE_NS, pause_over, c) < 0)
		end_channel(c);
}

static const struct channel *find(const struct gantry_doormem *m, uint32_t number)
{
	gantry_list_for_each(&m->tenant->channels, struct channel, link, c)
		if (c->number == number && c->epoch == m->epoch)
			return c;
	return NULL;
}

int gantry_channel_socket(const struct gantry_doormem *m, uint32_t number)
{
	const struct channel *c = find(m, number);

	return c ? c->fd : -ENOENT;
}

const char *gantry_channel_name(const struct gantry_doormem *m, uint32_t number)
{
	const struct channel *c = find(m, number);

	return !c ? NULL : c->is_port ? "port" : "vsock";
}

/* ---- the listener ---- */

static bool is_full(const struct gantry_tenant *t)
{
	return gantry_list_count(&t->channels) >=
	       (size_t)t->conf.ivshmem_machines * GANTRY_CHANNELS_PER_MACHINE;
}

static void take_port(struct gantry_tenant *t, int fd)
{
	if (gantry_door_scarce(t->agent, fd) || is_full(t))
		gantry_fd_close(fd);
	else
		learn_pid(new_channel(t, fd, next_number(t->agent), 0));
}

bool gantry_channel_is_hello(const void *bytes, size_t len)
{
	const uint32_t magic = GANTRY_WAKE_MAGIC;

	return len >= sizeof(magic) && memcmp(bytes, &magic, sizeof(magic)) == 0;
}

void gantry_channel_take(struct gantry_tenant *t, int fd, const void *bytes, size_t len)
{
	struct channel *c;

	if (is_full(t)) {
		gantry_fd_close(fd);
		return;
	}
	c = new_channel(t, fd, next_number(t->agent), 0);
	if (!c)
		return;
	c->nbytes = (uint32_t)(len < sizeof(c->bytes) ? len : sizeof(c->bytes));
	memcpy(c->bytes, bytes, c->nbytes);
	understand(c);
}

static void accept_ready(evutil_socket_t listener, short what, void *arg)
{
	struct gantry_tenant *t = arg;

	(void)what;
	gantry_door_accept(t, (int)listener, t->wake_event, take_port);
}

static struct gantry_door_at where(const struct gantry_tenant *t)
{
	struct gantry_door_at at = { .path = t->wake_path,
				     .type = SOCK_STREAM,
				     .mode = t->conf.ivshmem_mode,
				     .owner = t->conf.ivshmem_owner };

	(void)gantry_str_format(at.kept, sizeof(at.kept), "vw/%s", t->conf.name); /* it fits */
	return at;
}

int gantry_channels_open(struct gantry_tenant *t, struct gantry_err *err)
{
	char what[GANTRY_CONFIG_NAME + 24];
	struct gantry_door_at at = where(t);
	int r;

	(void)gantry_str_format(what, sizeof(what), "doors/%s/wake.sock", t->conf.name); /* fits */
	r = gantry_agent_run_path(t->agent, t->wake_path, sizeof(t->wake_path), what, err);
	return r < 0 ? r
		     : gantry_door_listen(t, &at, accept_ready, &t->wake_fd, &t->wake_event, err);
}

void gantry_channels_shut(struct gantry_tenant *t)
{
	struct gantry_door_at at = where(t);

	gantry_door_unlisten(t, &at, &t->wake_fd, &t->wake_event);
}

void gantry_channels_close(struct gantry_tenant *t)
{
	gantry_channels_shut(t);
	gantry_list_for_each_safe(&t->channels, struct channel, link, c)
		end_channel(c);
}

void gantry_channels_look_again(struct gantry_agent *a)
{
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		if (t->wake_event)
			/* it was there before: no memory needed */
			(void)event_add(t->wake_event, NULL);
}

/* ---- after a restart ---- */

void gantry_channels_restore(struct gantry_agent *a)
{
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		unsigned int number, slot;
		unsigned long long epoch;
		struct gantry_tenant *t;
		int fd;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		if (sscanf(name, GANTRY_KEPT_CHANNEL, &number, &slot, &epoch) != 3) {
			i++;
			continue;
		}
		fd = gantry_store_take(&a->handed, name);
		t = gantry_tenant_by_slot(a, slot);
		if (number > a->last_channel)
			a->last_channel = number;
		if (t) {
			learn_pid(new_channel(t, fd, number, epoch));
		} else {
			gantry_keep_drop(a, "%s", name);
			gantry_fd_close(fd);
		}
		i = 0; /* entries have moved */
	}
}
