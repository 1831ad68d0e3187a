/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/mover/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/fd.h"

#define NBUFS 4u /* a MiB stays in a processor's cache */

struct gantry_store {
	pthread_mutex_t lock; /* all below but the thread itself */
	pthread_cond_t put;   /* something was, or the end has come */
	pthread_cond_t wrote;
	pthread_t thread;
	bool has_thread;
	bool ends;
	int status;			       /* of the first write that failed */
	uint32_t nput, nwritten;	       /* since ever */
	struct gantry_store_item items[NBUFS]; /* put and not written: by number */
	void *spare[NBUFS]; /* owned; the buffer that put() gives for the item of this number */
};

GANTRY_DEFINE_CLEANUP(struct gantry_store *, gantry_store_free);

int gantry_store_new(size_t buf_bytes, struct gantry_store **ret_store)
{
	_cleanup_(gantry_store_freep) struct gantry_store *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	/* Default ones: initializing them cannot fail. */
	(void)pthread_mutex_init(&s->lock, NULL);
	(void)pthread_cond_init(&s->put, NULL);
	(void)pthread_cond_init(&s->wrote, NULL);
	for (uint32_t i = 0; i < NBUFS; i++) {
		s->spare[i] = malloc(buf_bytes);
		if (!s->spare[i])
			return -ENOMEM;
	}
	*ret_store = GANTRY_TAKE_PTR(s);
	return 0;
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
	for (uint32_t i = 0; i < NBUFS; i++)
		free(s->spare[i]);
	(void)pthread_cond_destroy(&s->wrote);
	(void)pthread_cond_destroy(&s->put);
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}

static int write_item(const struct gantry_store_item *item)
{
	return gantry_write_all_at(item->fd, item->data, item->bytes, item->off);
}

static void *write_items(void *arg)
{
	struct gantry_store *s = arg;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		struct gantry_store_item item;
		int r;

		while (s->nwritten == s->nput && !s->ends)
			pthread_cond_wait(&s->put, &s->lock);
		if (s->nwritten == s->nput)
			break;
		item = s->items[s->nwritten % NBUFS];
		r = s->status;
		pthread_mutex_unlock(&s->lock);
		r = r < 0 ? r : write_item(&item); /* after a failure nothing is of use */
		pthread_mutex_lock(&s->lock);
		s->status = r;
		s->spare[s->nwritten % NBUFS] = item.buf;
		s->nwritten++;
		pthread_cond_signal(&s->wrote);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int gantry_store_put(struct gantry_store *s, const struct gantry_store_item *item, void **ret_buf)
{
	int r;

	if (!s->has_thread) {
		s->has_thread = pthread_create(&s->thread, NULL, write_items, s) == 0;
		if (!s->has_thread) {
			*ret_buf = item->buf;
			return write_item(item);
		}
	}
	pthread_mutex_lock(&s->lock);
	while (s->nput - s->nwritten == NBUFS)
		pthread_cond_wait(&s->wrote, &s->lock);
	r = s->status;
	if (r == 0) {
		*ret_buf = s->spare[s->nput % NBUFS];
		s->spare[s->nput % NBUFS] = NULL;
		s->items[s->nput++ % NBUFS] = *item;
		pthread_cond_signal(&s->put);
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

int gantry_store_drain(struct gantry_store *s)
{
	int r;

	pthread_mutex_lock(&s->lock);
	while (s->nwritten != s->nput)
		pthread_cond_wait(&s->wrote, &s->lock);
	r = s->status;
	pthread_mutex_unlock(&s->lock);
	return r;
}
