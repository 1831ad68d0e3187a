/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/worker/output.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/fd.h"
#include "base/log.h"
#include "host-agent/worker/worker.h"

#define CHUNK_BYTES (64u << 10)
/* Nobody's output is looked at once in so many finished batches. */
#define DROP_EVERY 256u

/* Of the process, as standard output is. */
static struct {
	pthread_mutex_t lock; /* from begin() to end() */
	bool is_open;	      /* set before sessions are */
	int was[2];	      /* standard output and error, before; the log goes to the second */
	int files[2];	      /* that standard output is, and that standard error is meanwhile */
	bool swapped;
	uint32_t nskipped; /* atomic */
	uint64_t dropped;  /* bytes that were nobody's */
	uint8_t chunk[CHUNK_BYTES];
} output = { .lock = PTHREAD_MUTEX_INITIALIZER,
	     .was = { -EBADF, -EBADF },
	     .files = { -EBADF, -EBADF } };

/* Of a size that does not change, whatever is written. */
static int file_new(void)
{
	int fd = memfd_create("gantry-output", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, WORKER_OUTPUT_BYTES) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0) {
		int r = -errno;

		gantry_fd_close(fd);
		return r;
	}
	return fd;
}

int worker_output_open(struct gantry_err *err)
{
	for (int i = 0; i < 2; i++) {
		output.files[i] = file_new();
		if (output.files[i] < 0)
			return gantry_err_set(err, output.files[i],
					      "no file for what kernels print");
		/* Above the three that have a meaning. */
		output.was[i] = fcntl(STDOUT_FILENO + i, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		if (output.was[i] < 0)
			return gantry_err_set(err, -errno, "standard output and error are closed");
	}
	(void)fflush(stdout);
	if (dup2(output.files[0], STDOUT_FILENO) < 0)
		return gantry_err_set(err, -errno, "standard output cannot be a file in memory");
	gantry_log_fd_set(output.was[1]);
	output.is_open = true;
	return 0;
}

void worker_output_close(void)
{
	(void)fflush(stdout);
	if (output.is_open) {
		(void)dup2(output.was[0], STDOUT_FILENO);
		gantry_log_fd_set(STDERR_FILENO);
	}
	output.is_open = false;
	for (unsigned int i = 0; i < 2; i++) {
		gantry_fd_close(output.files[i]);
		gantry_fd_close(output.was[i]);
		output.files[i] = output.was[i] = -EBADF;
	}
}

void worker_output_is_at(struct wsession *s, uint32_t slot)
{
	gantry_store_relaxed(&s->output, slot + 1);
}

/* ---- where it goes ---- */

struct place {
	struct gantry_output
		*head; /* the guest writes there too: nothing is read back but its counts */
	uint8_t *ring[2];
	uint64_t bytes; /* of a ring */
};

/* Freed meanwhile, its memory is the guest's all the same: only the guest can be harmed. */
static bool place_of(struct wsession *s, struct place *ret_place)
{
	uint32_t slot = gantry_load_relaxed(&s->output);
	const struct gantry_ledger_object *obj;
	struct gantry_ledger_buffer b;
	void *at;

	if (slot == 0)
		return false;
	obj = &s->ledger.objects[slot - 1];
	if (gantry_load_acquire(&obj->state) != GANTRY_OBJECT_LIVE ||
	    gantry_load_relaxed(&obj->type) != GANTRY_HANDLE_BUFFER)
		return false;
	/* Another thread may free it and put another there: what was read is what is used. */
	b = obj->buffer;
	if (b.place != GANTRY_PLACE_HEAP || !(b.alloc_flags & GANTRY_ALLOC_OUTPUT) ||
	    b.bytes < GANTRY_OUTPUT_MIN_BYTES ||
	    gantry_region_span(&s->heap, b.off, b.bytes, GANTRY_LINE, &at) < 0)
		return false;
	ret_place->head = at;
	ret_place->bytes = GANTRY_OUTPUT_RING(b.bytes);
	for (unsigned int i = 0; i < 2; i++)
		ret_place->ring[i] = (uint8_t *)at + sizeof(struct gantry_output) +
				     i * ret_place->bytes;
	return true;
}

static void put(const struct place *place, unsigned int which, uint64_t *at, const uint8_t *bytes,
		uint64_t n)
{
	while (n > 0) {
		uint64_t off = *at % place->bytes;
		uint64_t part = gantry_min_u64(n, place->bytes - off);

		gantry_region_copy_in(place->ring[which] + off, bytes, part);
		bytes += part;
		*at += part;
		n -= part;
	}
}

/* How much has been written to a file; the next begins at its start again. */
static uint64_t take_count(int fd)
{
	off_t n = lseek(fd, 0, SEEK_CUR);

	if (n <= 0)
		return 0;
	(void)lseek(fd, 0, SEEK_SET);
	return gantry_min_u64((uint64_t)n, WORKER_OUTPUT_BYTES);
}

/* A large one has its pages taken back. */
static void give_back(int fd, uint64_t n)
{
	if (n > CHUNK_BYTES)
		(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				WORKER_OUTPUT_BYTES);
}

static uint64_t move(const struct place *place, unsigned int which)
{
	int fd = output.files[which];
	uint64_t n = take_count(fd), at = gantry_load_relaxed(&place->head->put[which]);
	uint64_t lost = n > place->bytes ? n - place->bytes : 0;

	if (n == 0)
		return 0;
	at += lost;
	for (uint64_t off = lost; off < n;) {
		ssize_t got = pread(fd, output.chunk, gantry_min_u64(n - off, CHUNK_BYTES),
				    (off_t)off);

		if (got <= 0)
			break;
		put(place, which, &at, output.chunk, (uint64_t)got);
		off += (uint64_t)got;
	}
	give_back(fd, n);
	/* Release: pairs with the guest's acquire; the bytes are there. */
	gantry_store_release(&place->head->put[which], at);
	return lost;
}

/* ---- on device threads ---- */

static void drop_locked(void)
{
	uint64_t n;

	(void)fflush(stdout);
	n = take_count(output.files[0]);
	give_back(output.files[0], n);
	if (ferror(stdout))
		clearerr(stdout);
	if (n == 0)
		return;
	output.dropped += n;
	gantry_log(
		GANTRY_LOG_WARN,
		"what kernels print is dropped, %llu bytes so far: it is nobody's in a worker of "
		"several sessions, or of a session that does not take it; isolation: isolated",
		(unsigned long long)output.dropped);
}

bool worker_output_begin(const struct wdevice *d, struct wsession *s)
{
	bool is_one = d->engine->isolated && d->nsessions == 1;

	if (!output.is_open)
		return false;
	if (!is_one || gantry_load_relaxed(&s->output) == 0) {
		if (gantry_fetch_add(&output.nskipped, 1) % DROP_EVERY != 0)
			return false;
		pthread_mutex_lock(&output.lock);
		drop_locked();
		pthread_mutex_unlock(&output.lock);
		return false;
	}
	pthread_mutex_lock(&output.lock);
	output.swapped = dup2(output.files[1], STDERR_FILENO) >= 0;
	return true;
}

void worker_output_end(struct wsession *s, uint32_t fault)
{
	struct place place;
	uint64_t lost = 0;

	(void)fflush(stdout);
	if (output.swapped)
		(void)dup2(output.was[1], STDERR_FILENO);
	if (ferror(stdout)) {
		clearerr(stdout);
		lost++;
	}
	if (place_of(s, &place)) {
		for (unsigned int i = 0; i < 2; i++)
			lost += move(&place, i);
		if (lost)
			gantry_store_relaxed(&place.head->lost,
					     gantry_load_relaxed(&place.head->lost) + lost);
		if (fault)
			gantry_store_relaxed(&place.head->fault, fault);
	} else {
		drop_locked();
	}
	pthread_mutex_unlock(&output.lock);
}
