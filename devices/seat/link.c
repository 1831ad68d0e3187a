/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A seat's end of its socket: asks, answers, bells, and how the seat is lost. One thread reads, the bell's; what it hears for the
 * device thread it leaves under the lock.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "base/thread.h"
#include "devices/seat/client.h"

/* An agent that is there ends workers of a dead steward within milliseconds; one that starts within seconds. */
#define END_MS 20000

/* ---- loss; any thread ---- */

static void lose(struct gantry_dev *dev, uint32_t before, uint32_t loss)
{
	(void)gantry_cas(&dev->lost, &before, loss);
}

/* ---- hearing; the bell's thread ---- */

/* What nobody asked for any more is dropped. */
static void take_answer(struct gantry_dev *dev, const struct gantry_seat_answer *answer, int fd)
{
	(void)pthread_mutex_lock(&dev->lock);
	if (answer->what == GANTRY_SEAT_CONDEMNED) {
		(void)gantry_str_copy(dev->why, sizeof(dev->why), answer->text);
		lose(dev, GANTRY_SEAT_KEPT, GANTRY_SEAT_REFUSED);
	} else if (answer->what == dev->asked) {
		dev->answer = *answer;
		dev->answer_fd = fd;
		dev->asked = 0;
		fd = -EBADF;
	}
	(void)pthread_mutex_unlock(&dev->lock);
	gantry_fd_close(fd);
}

/* One message; false: there will be no more. */
static bool hear(struct gantry_dev *dev)
{
	struct gantry_seat_answer answer;
	unsigned int nfds = 0;
	int fd = -EBADF;
	ssize_t n = gantry_fd_recv(dev->sock, &answer, sizeof(answer), &fd, 1, &nfds, MSG_DONTWAIT);

	if (n == (ssize_t)sizeof(answer)) {
		answer.text[sizeof(answer.text) - 1] = '\0';
		take_answer(dev, &answer, nfds ? fd : -EBADF);
		return true;
	}
	if (nfds)
		gantry_fd_close(fd);
	/* A holder that left with a bell unread: the kernel tells that before what it said last. */
	return n > 0 || n == -EAGAIN || n == -ECONNRESET;
}

/* Whoever waits for an answer looks again, and the device thread at its page. */
static void tell_device_thread(struct gantry_dev *dev)
{
	bool is_open;

	(void)pthread_mutex_lock(&dev->lock);
	is_open = dev->page != NULL;
	/* The holder rings again once it sees that this bell was heard; what it tells in between is seen by the one who is woken. */
	if (is_open)
		gantry_store_relaxed(&dev->page->worker.heard, dev->page->worker.heard + 1);
	(void)pthread_cond_broadcast(&dev->changed);
	(void)pthread_mutex_unlock(&dev->lock);
	gantry_fence_full(); /* pairs with the fence of a holder that rings */
	if (is_open)
		dev->host->wake(dev->host->cookie);
}

static void *listen_to_holder(void *arg)
{
	struct gantry_dev *dev = arg;
	struct pollfd p[2] = { { .fd = dev->sock, .events = POLLIN },
			       { .fd = dev->stop, .events = POLLIN } };
	int patience_ms = -1;

	for (;;) {
		int n = poll(p, 2, patience_ms);

		if (n < 0 && errno != EINTR)
			return NULL;
		if (n < 0)
			continue;
		if (p[1].revents)
			return NULL;
		if (n == 0) {
			/* The holder lives on: it has dropped this seat, and could not say so. */
			lose(dev, GANTRY_SEAT_HOLDER_GONE, GANTRY_SEAT_REFUSED);
			patience_ms = -1;
		} else if (!hear(dev)) {
			lose(dev, GANTRY_SEAT_KEPT, GANTRY_SEAT_HOLDER_GONE);
			p[0].fd = -1;
			patience_ms = dev->answer_ms < END_MS ? (int)dev->answer_ms : END_MS;
		}
		tell_device_thread(dev);
	}
}

/* ---- asking; the device thread ---- */

/*
 * Waits for room as long as for an answer. A holder that does not read for so long has the seat no longer: what it was not told to end would
 * stay in use, and numbers would mean one thing here and another there. The bell's thread sees the end.
 */
static void send_ask(struct gantry_dev *dev, const struct gantry_seat_ask *ask, int fd)
{
	if (gantry_fd_send(dev->sock, ask, sizeof(*ask), &fd, fd >= 0 ? 1 : 0, 0) < 0)
		(void)shutdown(dev->sock, SHUT_RDWR);
}

static void deadline_in(uint64_t ms, struct timespec *ret)
{
	uint64_t at_ns = gantry_now_ns() + ms * GANTRY_NS_PER_MS;

	ret->tv_sec = (time_t)(at_ns / GANTRY_NS_PER_S);
	ret->tv_nsec = (long)(at_ns % GANTRY_NS_PER_S);
}

/*
 * Of a holder that is gone there is no answer, and a refusal would end sessions that go on in another process, for the agent ends
 * this one. One that is there and silent has the seat no longer: an answer that came later would be taken for the next ask's.
 */
static void await_locked(struct gantry_dev *dev)
{
	struct timespec until;
	uint32_t lost;

	deadline_in(dev->answer_ms, &until);
	while (dev->asked) {
		lost = gantry_load_acquire(&dev->lost);
		if (lost == GANTRY_SEAT_REFUSED || (lost && !dev->page))
			return;
		if (lost)
			(void)pthread_cond_wait(&dev->changed, &dev->lock);
		else if (pthread_cond_timedwait(&dev->changed, &dev->lock, &until) == ETIMEDOUT &&
			 dev->asked) {
			lose(dev, GANTRY_SEAT_KEPT, GANTRY_SEAT_REFUSED);
			(void)shutdown(dev->sock, SHUT_RDWR);
		}
	}
}

static int loss_locked(struct gantry_dev *dev, struct gantry_err *err)
{
	if (gantry_load_acquire(&dev->lost) != GANTRY_SEAT_REFUSED)
		return gantry_err_set(err, -ENODEV, "the process that holds the device has ended");
	return gantry_err_set(err, -EIO, "%s",
			      dev->why[0] ? dev->why
					  : "the process that holds the device does not answer");
}

int gantry_seat_ask(struct gantry_dev *dev, const struct gantry_seat_ask *ask, int fd,
		    struct gantry_seat_answer *ret_answer, int *ret_fd, struct gantry_err *err)
{
	int r = 0, got;

	(void)pthread_mutex_lock(&dev->lock);
	dev->asked = ask->what;
	dev->answer_fd = -EBADF;
	(void)pthread_mutex_unlock(&dev->lock);
	if (!gantry_load_acquire(&dev->lost))
		send_ask(dev, ask, fd);
	(void)pthread_mutex_lock(&dev->lock);
	await_locked(dev);
	if (dev->asked)
		r = loss_locked(dev, err);
	dev->asked = 0;
	*ret_answer = dev->answer;
	got = dev->answer_fd;
	(void)pthread_mutex_unlock(&dev->lock);
	if (r < 0)
		return r;
	if (ret_answer->r < 0 || (got >= 0) != (ret_fd != NULL)) {
		gantry_fd_close(got);
		return gantry_err_set(err, ret_answer->r < 0 ? ret_answer->r : -EIO, "%s",
				      ret_answer->text[0] ? ret_answer->text
							  : strerror(-ret_answer->r));
	}
	if (ret_fd)
		*ret_fd = got;
	return 0;
}

void gantry_seat_say(struct gantry_dev *dev, uint32_t what, uint32_t id)
{
	struct gantry_seat_ask ask = { .what = what, .id = id };

	/* A holder that is gone has nothing to end. */
	if (!gantry_load_acquire(&dev->lost))
		send_ask(dev, &ask, -EBADF);
}

void gantry_seat_ring(struct gantry_dev *dev)
{
	const uint8_t byte = 0;

	/* A socket that is full has enough in it to wake. */
	(void)gantry_fd_send(dev->sock, &byte, sizeof(byte), NULL, 0, MSG_DONTWAIT);
}

/* ---- life ---- */

static int start_thread(struct gantry_dev *dev, struct gantry_err *err)
{
	int r = gantry_thread_start(&dev->thread, listen_to_holder, dev);

	if (r < 0)
		return gantry_err_set_errno(err, r, "a thread for the seat's socket");
	dev->started = true;
	return 0;
}

int gantry_seat_link_start(struct gantry_dev *dev, struct gantry_err *err)
{
	const struct timeval patience = { .tv_sec = dev->answer_ms / 1000,
					  .tv_usec = dev->answer_ms % 1000 * 1000 };
	int r = gantry_fd_nonblock(dev->sock, false);

	if (r < 0 ||
	    setsockopt(dev->sock, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0)
		return gantry_err_set_errno(err, r < 0 ? r : -errno, "the seat's socket");
	return start_thread(dev, err);
}

void gantry_seat_link_stop(struct gantry_dev *dev)
{
	uint64_t one = 1;

	if (!dev->started)
		return;
	(void)!write(dev->stop, &one, sizeof(one));
	(void)pthread_join(dev->thread, NULL);
}
