/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/worker/output.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/checked.h"
#include "base/fd.h"
#include "base/log.h"
#include "host-agent/worker/worker.h"

#define CHUNK_BYTES (64u << 10)
/* Nobody's output is looked at once in so many finished batches. */
#define DROP_EVERY 256u

/*
 * Drivers may print on threads of their own while what has come is taken. So a file is not rewound while it is standard output, but
 * when it is half full the other takes its place; what somebody was just then writing to the one before is taken whenever
 * somebody looks, long before it is used again.
 */
struct file {
	int fd;
	uint64_t taken; /* from its start */
};

/* Of the process, as standard output is. */
static struct {
	pthread_mutex_t lock; /* from begin() to end() */
	bool is_open;	      /* set before sessions are */
	int was[2];	      /* standard output and error, before; the log goes to the second */
	struct file files
		[3]; /* standard output is the first or second, by turns; standard error meanwhile the third */
	unsigned int turn; /* which of the first two it is */
	bool swapped;
	uint32_t nskipped; /* atomic */
	uint64_t dropped;  /* bytes that were nobody's */
	uint64_t told;	   /* so many of them the log has been told of */
	uint8_t chunk[CHUNK_BYTES];
} output = { .lock = PTHREAD_MUTEX_INITIALIZER,
	     .was = { -EBADF, -EBADF },
	     .files = { { .fd = -EBADF }, { .fd = -EBADF }, { .fd = -EBADF } } };

/* Of a size that does not change, whatever is written. */
static int memory_new(void)
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

/* Opened by name: then threads that write at the same time have a place each (what memfd_create() gives does not see to that). */
static int file_new(void)
{
	char path[32];
	int fd = memory_new(), again;

	if (fd < 0)
		return fd;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	if (again < 0)
		return fd;
	gantry_fd_close(fd);
	return again;
}

int worker_output_open(struct gantry_err *err)
{
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(output.files); i++) {
		output.files[i] = (struct file){ .fd = file_new() };
		if (output.files[i].fd < 0)
			return gantry_err_set(err, output.files[i].fd,
					      "no file for what kernels print");
	}
	for (int i = 0; i < 2; i++) {
		/* Above the three that have a meaning. */
		output.was[i] = fcntl(STDOUT_FILENO + i, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		if (output.was[i] < 0)
			return gantry_err_set(err, -errno, "standard output and error are closed");
	}
	(void)fflush(stdout);
	output.turn = 0;
	if (dup2(output.files[0].fd, STDOUT_FILENO) < 0)
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
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(output.files); i++) {
		gantry_fd_close(output.files[i].fd);
		output.files[i].fd = -EBADF;
	}
	for (unsigned int i = 0; i < 2; i++) {
		gantry_fd_close(output.was[i]);
		output.was[i] = -EBADF;
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

/* How far a file has been written. */
static uint64_t end_of(const struct file *file)
{
	off_t n = lseek(file->fd, 0, SEEK_CUR);

	return n < 0 ? file->taken : gantry_min_u64((uint64_t)n, WORKER_OUTPUT_BYTES);
}

/* What is new in a file, to @place (NULL: nobody's) as its stream @which. A large one has its pages taken back. ret_lost grows. */
static uint64_t move(struct file *file, const struct place *place, unsigned int which,
		     uint64_t *ret_lost)
{
	uint64_t end = end_of(file), n = end > file->taken ? end - file->taken : 0;
	uint64_t at, lost;

	if (n > 0 && place) {
		lost = n > place->bytes ? n - place->bytes : 0;
		at = gantry_load_relaxed(&place->head->put[which]) + lost;
		for (uint64_t off = file->taken + lost; off < end;) {
			ssize_t got = pread(file->fd, output.chunk,
					    gantry_min_u64(end - off, CHUNK_BYTES), (off_t)off);

			if (got <= 0)
				break;
			put(place, which, &at, output.chunk, (uint64_t)got);
			off += (uint64_t)got;
		}
		/* Release: pairs with the guest's acquire; the bytes are there. */
		gantry_store_release(&place->head->put[which], at);
		*ret_lost += lost;
	}
	file->taken += n;
	if (n > CHUNK_BYTES)
		(void)fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				(off_t)file->taken);
	return n;
}

static void rewind_file(struct file *file)
{
	(void)lseek(file->fd, 0, SEEK_SET);
	file->taken = 0;
}

/* Standard output, of which both files have a part. Returns how much it was. */
static uint64_t move_stdout(const struct place *place, uint64_t *ret_lost)
{
	struct file *now = &output.files[output.turn], *next = &output.files[!output.turn];
	uint64_t n = move(next, place, 0, ret_lost);

	if (end_of(now) > WORKER_OUTPUT_BYTES / 2) {
		rewind_file(next);
		if (dup2(next->fd, STDOUT_FILENO) >= 0)
			output.turn = !output.turn;
	}
	return n + move(now, place, 0, ret_lost);
}

static void move_stderr(const struct place *place, uint64_t *ret_lost)
{
	struct file *file = &output.files[2];

	if (move(file, place, 1, ret_lost) > 0)
		rewind_file(file);
}

/* ---- on device threads ---- */

static void drop_locked(void)
{
	uint64_t n, lost = 0;

	(void)fflush(stdout);
	n = move_stdout(NULL, &lost);
	move_stderr(NULL, &lost);
	if (ferror(stdout))
		clearerr(stdout);
	if (n == 0)
		return;
	output.dropped += n;
	/* Kernels decide how often: the log is told when it is twice as much. */
	if (output.dropped < 2 * output.told)
		return;
	output.told = output.dropped;
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
	output.swapped = dup2(output.files[2].fd, STDERR_FILENO) >= 0;
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
		(void)move_stdout(&place, &lost);
		move_stderr(&place, &lost);
		if (lost)
			gantry_store_relaxed(&place.head->lost,
					     gantry_load_relaxed(&place.head->lost) + lost);
		if (fault)
			gantry_store_relaxed(&place.head->fault, fault);
	} else {
		/* The buffer is gone: what comes is nobody's until there is another. */
		gantry_store_relaxed(&s->output, 0);
		drop_locked();
	}
	pthread_mutex_unlock(&output.lock);
}
