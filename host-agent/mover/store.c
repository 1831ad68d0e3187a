/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/mover/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "base/cleanup.h"

#define NBATCHES    4u
#define NPIECES	    32u
#define BATCH_BYTES (256u << 10) /* all batches stay in a processor's cache */
#define ALONE_BYTES (64u << 10)	 /* where the next one is not filled meanwhile */

/* What is written by one call: bytes that lie one behind the other in the file. */
struct batch {
	int fd;
	uint64_t off;
	size_t bytes;
	uint32_t npieces, nholders;
	struct iovec pieces[NPIECES];
	void *holders[NPIECES]; /* owned; each had something added since the one before */
};

struct gantry_store {
	gantry_store_release_fn *release;
	bool is_unheld; /* something was added since the last hold() */
	pthread_mutex_t
		lock; /* all below but the thread itself, and the batches while they are one side's */
	pthread_cond_t put; /* a batch was, or the end has come */
	pthread_cond_t wrote;
	pthread_t thread;
	bool has_thread, wants_thread;
	bool ends;
	int status;			/* of the first write that failed */
	uint32_t nput, nwritten;	/* batches, since ever */
	struct batch batches[NBATCHES]; /* by number; number nput is being filled */
};

GANTRY_DEFINE_CLEANUP(struct gantry_store *, gantry_store_free);

int gantry_store_new(gantry_store_release_fn *release, bool has_thread,
		     struct gantry_store **ret_store)
{
	struct gantry_store *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->release = release;
	s->wants_thread = has_thread;
	/* Default ones: initializing them cannot fail. */
	(void)pthread_mutex_init(&s->lock, NULL);
	(void)pthread_cond_init(&s->put, NULL);
	(void)pthread_cond_init(&s->wrote, NULL);
	*ret_store = s;
	return 0;
}

static void empty(struct gantry_store *s, struct batch *b)
{
	for (uint32_t i = 0; i < b->nholders; i++)
		s->release(b->holders[i]);
	b->npieces = b->nholders = 0;
	b->bytes = 0;
}

void gantry_store_free(struct gantry_store *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->ends = true;
	pthread_cond_signal(&s->put);
	pthread_mutex_unlock(&s->lock);
	if (s->has_thread)
		(void)pthread_join(s->thread, NULL);
	for (uint32_t i = 0; i < NBATCHES; i++)
		empty(s, &s->batches[i]);
	(void)pthread_cond_destroy(&s->wrote);
	(void)pthread_cond_destroy(&s->put);
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}

/* Uses its pieces up. */
static int write_batch(struct batch *b)
{
	struct iovec *at = b->pieces, *end = b->pieces + b->npieces;

	while (at < end) {
		ssize_t n = pwritev(b->fd, at, (int)(end - at), (off_t)b->off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		b->off += (uint64_t)n;
		for (; at < end && (size_t)n >= at->iov_len; at++)
			n -= (ssize_t)at->iov_len;
		if (at < end) {
			at->iov_base = (uint8_t *)at->iov_base + n;
			at->iov_len -= (size_t)n;
		}
	}
	return 0;
}

static void *write_batches(void *arg)
{
	struct gantry_store *s = arg;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		struct batch *b;
		int r;

		while (s->nwritten == s->nput && !s->ends)
			pthread_cond_wait(&s->put, &s->lock);
		if (s->nwritten == s->nput)
			break;
		b = &s->batches[s->nwritten % NBATCHES];
		r = s->status;
		pthread_mutex_unlock(&s->lock);
		r = r < 0 ? r : write_batch(b); /* after a failure nothing is of use */
		pthread_mutex_lock(&s->lock);
		s->status = r;
		s->nwritten++;
		pthread_cond_signal(&s->wrote);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static struct batch *filling(struct gantry_store *s)
{
	return &s->batches[s->nput % NBATCHES];
}

static void write_here(struct gantry_store *s)
{
	struct batch *b = filling(s);

	s->status = s->status < 0 ? s->status
				  : write_batch(b); /* after a failure nothing is of use */
	empty(s, b);
}

/* What is being filled goes to the thread, where there is one, and the next is empty. */
static void put(struct gantry_store *s)
{
	if (filling(s)->npieces == 0)
		return;
	if (s->wants_thread && !s->has_thread)
		s->has_thread = pthread_create(&s->thread, NULL, write_batches, s) == 0;
	if (!s->has_thread) {
		write_here(s);
		return;
	}
	pthread_mutex_lock(&s->lock);
	s->nput++;
	pthread_cond_signal(&s->put);
	while (s->nput - s->nwritten == NBATCHES)
		pthread_cond_wait(&s->wrote, &s->lock);
	pthread_mutex_unlock(&s->lock);
	empty(s, filling(s)); /* it was written */
}

static int status_of(struct gantry_store *s)
{
	int r;

	pthread_mutex_lock(&s->lock);
	r = s->status;
	pthread_mutex_unlock(&s->lock);
	return r;
}

int gantry_store_add(struct gantry_store *s, int fd, uint64_t off, const void *data, size_t bytes)
{
	size_t enough = s->wants_thread ? BATCH_BYTES : ALONE_BYTES;
	struct batch *b = filling(s);

	if (b->npieces == NPIECES || b->bytes >= enough ||
	    (b->npieces > 0 && (b->fd != fd || b->off + b->bytes != off)))
		put(s);
	b = filling(s);
	if (b->npieces == 0) {
		b->fd = fd;
		b->off = off;
	}
	b->pieces[b->npieces++] = (struct iovec){ .iov_base = (void *)(uintptr_t)data,
						  .iov_len = bytes };
	b->bytes += bytes;
	s->is_unheld = true;
	return status_of(s);
}

void gantry_store_hold(struct gantry_store *s, void *holder)
{
	if (!s->is_unheld) {
		s->release(holder);
		return;
	}
	s->is_unheld = false;
	/* Where a part of it went with the batch before, that is written before this one is. */
	filling(s)->holders[filling(s)->nholders++] = holder;
}

int gantry_store_drain(struct gantry_store *s)
{
	int r;

	put(s);
	s->is_unheld = false;
	pthread_mutex_lock(&s->lock);
	while (s->nwritten != s->nput)
		pthread_cond_wait(&s->wrote, &s->lock);
	r = s->status;
	pthread_mutex_unlock(&s->lock);
	for (uint32_t i = 0; i < NBATCHES; i++)
		empty(s, &s->batches[i]);
	return r;
}
