/* SPDX-License-Identifier: Apache-2.0 */
/* Where movers of other hosts call: the address, and how many are let in. */
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/handover_in.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/run.h"
#include "host-agent/monitor/store.h"

#define BACKLOG		 16
#define ACCEPTS_PER_TURN 4
#define ACCEPT_PAUSE_NS	 (100 * GANTRY_NS_PER_MS)

static void pause_over(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;

	(void)fd;
	(void)what;
	if (a->handover_event)
		(void)event_add(a->handover_event,
				NULL); /* it was there before: no memory needed */
}

/*
 * Anybody may connect, and each costs a process: after a few, and while there are no descriptors, it is looked away for
 * a moment.
 */
static void host_ready(evutil_socket_t listener, short what, void *arg)
{
	struct gantry_agent *a = arg;
	bool is_scarce = false;

	(void)what;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		int fd = accept4((int)listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			is_scarce = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
			break;
		}
		gantry_handover_take_host(a, fd);
		gantry_fd_close(fd);
	}
	a->counters.fd_exhausted += is_scarce;
	(void)event_del(a->handover_event); /* cannot fail for an event of ours */
	if (gantry_timer_set(a, &a->handover_pause, ACCEPT_PAUSE_NS, pause_over, a) < 0)
		(void)event_add(a->handover_event, NULL); /* it was there before */
}

static int listen_at(const char *where, struct gantry_err *err)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV | AI_NUMERICHOST,
	};
	char text[GANTRY_CONFIG_TEXT], *host = text, *colon;
	struct addrinfo *found;
	int fd, one = 1, r;

	(void)gantry_str_copy(text, sizeof(text), where); /* the same size */
	colon = strrchr(text, ':'); /* the configuration's check saw it and the port */
	*colon = '\0';
	if (host[0] == '[' && colon > host + 1 && colon[-1] == ']') {
		colon[-1] = '\0';
		host++;
	}
	r = getaddrinfo(host, colon + 1, &hints, &found);
	if (r != 0)
		return gantry_err_set(err, -EADDRNOTAVAIL, "%s: %s", where, gai_strerror(r));
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one,
				 sizeof(one)); /* or bind says */
	r = fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0
		    ? -errno
		    : 0;
	freeaddrinfo(found);
	if (r < 0) {
		gantry_fd_close(fd);
		return gantry_err_set_errno(err, r, "opening %s", where);
	}
	return fd;
}

/* The monitor keeps it under the address, in which systemd would take a colon for an end. false: too long for a name. */
static bool kept_name(const char *where, char name[GANTRY_MONITOR_NAME_MAX])
{
	if (gantry_str_format(name, GANTRY_MONITOR_NAME_MAX, "hosts/%s", where) < 0)
		return false;
	for (char *c = name; *c; c++)
		if (*c == ':')
			*c = '+';
	return true;
}

/* That of the agent before us: who has called meanwhile waits in it, and nobody else can have taken its place. */
static int open_listener(struct gantry_agent *a, const char *where, struct gantry_err *err)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	bool kept = kept_name(where, name);
	int fd = kept ? gantry_store_take(&a->handed, name) : -ENOENT;

	if (fd < 0)
		fd = listen_at(where, err);
	if (fd >= 0 && kept)
		gantry_keep(a, fd, "%s", name);
	return fd;
}

void gantry_handovers_close(struct gantry_agent *a)
{
	char name[GANTRY_MONITOR_NAME_MAX];

	if (a->handover_fd >= 0 && kept_name(a->handover_where, name))
		gantry_keep_drop(a, "%s", name);
	gantry_event_free(&a->handover_pause);
	gantry_event_free(&a->handover_event);
	a->handover_fd = gantry_fd_close(a->handover_fd);
	a->handover_where[0] = '\0';
}

void gantry_handovers_apply(struct gantry_agent *a)
{
	const char *where = a->config->agent.migration_listen;
	struct gantry_err err = GANTRY_ERR_NONE;
	int fd;

	if (strcmp(where, a->handover_where) == 0)
		return;
	/* The monitor lets go of its own a moment later; the next address may be another of the same port. */
	if (a->handover_fd >= 0)
		(void)shutdown(a->handover_fd,
			       SHUT_RDWR); /* of a listener of ours: it cannot fail */
	gantry_handovers_close(a);
	if (!where[0])
		return;
	if (!a->config->agent.migration_certificates[0]) {
		gantry_log(GANTRY_LOG_ERR,
			   "no session comes in: migration_listen needs migration_certificates");
		return;
	}
	fd = open_listener(a, where, &err);
	if (fd < 0) {
		gantry_log(GANTRY_LOG_ERR, "no session comes in: %s", err.text);
		return;
	}
	a->handover_fd = fd;
	(void)gantry_str_copy(a->handover_where, sizeof(a->handover_where),
			      where); /* the same size */
	a->handover_event = event_new(a->base, fd, EV_READ | EV_PERSIST, host_ready, a);
	if (!a->handover_event || event_add(a->handover_event, NULL) < 0) {
		gantry_log(GANTRY_LOG_ERR, "no session comes in: no memory");
		gantry_handovers_close(a);
	}
}
