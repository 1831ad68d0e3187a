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

#include "base/atomic.h"
#include "base/fd.h"
#include "base/futex.h"
#include "host-agent/worker/worker.h"
#include "proto/doormem.h"

static bool ring_eventfd(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	const uint64_t one = 1;

	/* One that is full wakes by itself. */
	return poll(&p, 1, 0) == 0 && write(fd, &one, sizeof(one)) == sizeof(one);
}

/*
 * One byte for each time that the guest began to listen: what lies in the channel does not grow while nobody listens. A
 * byte that is lost costs one wait, for the next one is for another number.
 */
static bool send_byte(struct wsession *s)
{
	const uint8_t byte = GANTRY_WAKE_BYTE_SENT;
	uint32_t listening = gantry_load_relaxed(&s->hdr->listening);

	if (gantry_exchange(&s->woken_for, listening) == listening)
		return false;
	/* A full one has enough in it to wake. */
	return gantry_fd_send(s->wake_fd, &byte, sizeof(byte), NULL, 0, MSG_DONTWAIT) == 1;
}

/* After a full fence that follows what the guest is told. */
static void signal_guest(struct wsession *s)
{
	bool is_sent = false;

	if (s->wake == GANTRY_SESSION_WAKE_EVENTFD)
		is_sent = ring_eventfd(s->wake_fd);
	else if (s->wake == GANTRY_SESSION_WAKE_SOCKET)
		is_sent = send_byte(s);
	if (is_sent)
		gantry_count_add(&s->quota->wakes, 1);
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
		/* Full fence: pairs with the one of a guest that begins to listen, and then looks at the state. */
		gantry_fence_full();
		signal_guest(s);
		return;
	}
	(void)gantry_futex_wake(&s->hdr->state, INT32_MAX);
	for (uint32_t i = 0; i < s->ledger.nqueues; i++)
		(void)gantry_ring_wake(&s->queues[i].ring);
}
