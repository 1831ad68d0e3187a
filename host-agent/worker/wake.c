/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waking threads of the guest: by futex where it shares our kernel; else by what its transport brought, or not at
 * all where it polls.
 *
 * An eventfd may be shared with a hypervisor, which clears O_NONBLOCK on the file description, and whose writes add to
 * the counter: a write would wait while the counter is full. So it is written only while it is empty. One that is not
 * has a wake-up on the way already. What is left is a hypervisor that fills it in between: a thread of a worker of that
 * machine's own tenant then waits for it, and the agent, which never writes to such a descriptor, ends the worker.
 */
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/futex.h"
#include "host-agent/worker/worker.h"

static void ring_eventfd(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	const uint64_t one = 1;

	if (poll(&p, 1, 0) == 0)
		(void)!write(fd, &one, sizeof(one)); /* a full one wakes by itself */
}

static void signal_guest(const struct wsession *s)
{
	const uint8_t byte = 1;

	if (s->wake == GANTRY_SESSION_WAKE_EVENTFD)
		ring_eventfd(s->wake_fd);
	else if (s->wake == GANTRY_SESSION_WAKE_SOCKET)
		/* a full one has enough in it to wake */
		(void)gantry_fd_send(s->wake_fd, &byte, sizeof(byte), NULL, 0, MSG_DONTWAIT);
}

void worker_wake_waiters(struct wsession *s, struct gantry_ring_consumer *ring)
{
	/* The full fence in both pairs with the one in bind_wait() too. */
	if (s->wake == GANTRY_SESSION_WAKE_FUTEX)
		(void)gantry_ring_wake(ring);
	else if (gantry_ring_must_wake(ring))
		signal_guest(s);
}

void worker_wake_all(struct wsession *s)
{
	if (s->wake != GANTRY_SESSION_WAKE_FUTEX) {
		signal_guest(s);
		return;
	}
	(void)gantry_futex_wake(&s->hdr->state, INT32_MAX);
	for (uint32_t i = 0; i < s->ledger.nqueues; i++)
		(void)gantry_ring_wake(&s->queues[i].ring);
}
