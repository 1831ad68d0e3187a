/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/worker/output.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/checked.h"
#include "base/fd.h"
#include "base/log.h"
#include "host-agent/worker/worker.h"

#define CHUNK_BYTES (64u << 10)
/* Nobody's output is asked for, and looked at, once in so many finished batches. */
#define DROP_EVERY 256u
/* Of what drivers say on standard error the log gets so much at a time; also of what a process says that ends itself. */
#define LOG_BYTES 4096u
/* Before the latter. */
#define LAST_WORDS "standard error: "

/*
 * Drivers may print on threads of their own while what has come is taken. So a file is not rewound while it is the standard stream,
 * but when it is half full the other takes its place; what somebody was just then writing to the one before is taken whenever
 * somebody looks, long before it is used again.
 */
struct file {
	int fd;
	uint64_t taken; /* from its start */
};

struct stream {
	struct file files[2]; /* by turns */
	unsigned int turn;    /* which of them it is now */
};

/* Of the process, as its standard streams are. The first is standard output, the second standard error, in all that has two. */
static struct {
	pthread_mutex_t lock;
	bool is_open; /* set before sessions are */
	int was[2];   /* the log goes to the second */
	struct stream streams[2];
	uint32_t
		wanted; /* atomic: a session of a worker of its own takes both, standard error is not the log's */
	uint32_t nskipped; /* atomic */
	uint64_t dropped;  /* bytes that were nobody's */
	uint64_t told;	   /* so many of them the log has been told of */
	uint8_t chunk[CHUNK_BYTES];
} output = { .lock = PTHREAD_MUTEX_INITIALIZER,
	     .was = { -EBADF, -EBADF },
	     .streams = { { .files = { { .fd = -EBADF }, { .fd = -EBADF } } },
			  { .files = { { .fd = -EBADF }, { .fd = -EBADF } } } } };

/* A sanitizer's: what it finds is told whoever has standard error. */
__attribute__((weak)) void __sanitizer_set_report_fd(void *fd);

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

/* ---- what nobody comes to take ---- */

static struct file *file_now(unsigned int which)
{
	return &output.streams[which].files[output.streams[which].turn];
}

/* How far a file has been written. */
static uint64_t end_of(const struct file *file)
{
	off_t n = lseek(file->fd, 0, SEEK_CUR);

	return n < 0 ? file->taken : gantry_min_u64((uint64_t)n, WORKER_OUTPUT_BYTES);
}

static uint64_t new_bytes(const struct file *file)
{
	uint64_t end = end_of(file);

	return end > file->taken ? end - file->taken : 0;
}

/*
 * abort() is told of on standard error first, by assert() and by the C library: the end of that goes where the log goes. In a signal's
 * handler, whatever holds the lock.
 */
static void say_last_words(int sig)
{
	const struct file *file = file_now(1);
	uint64_t n_new = new_bytes(file), n_told = gantry_min_u64(n_new, LOG_BYTES);
	char line[sizeof(LAST_WORDS) + LOG_BYTES] = LAST_WORDS;
	char *text = line + sizeof(LAST_WORDS) - 1;
	ssize_t n = pread(file->fd, text, n_told, (off_t)(file->taken + n_new - n_told));

	(void)sig;
	while (n > 0 && text[n - 1] == '\n')
		n--;
	if (n <= 0)
		return;
	/* One line: what kernels print comes here too, and is no record of the log's. */
	for (ssize_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			text[i] = ' ';
	text[n] = '\n';
	(void)!write(output.was[1], line, (size_t)(text + n + 1 - line));
}

/* ---- opening ---- */

static void report_fd_set(int fd)
{
	if (__sanitizer_set_report_fd)
		__sanitizer_set_report_fd((void *)(intptr_t)fd);
}

static int stream_open(struct stream *stream, unsigned int which, struct gantry_err *err)
{
	int target = STDOUT_FILENO + (int)which;

	stream->turn = 0;
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(stream->files); i++) {
		stream->files[i] = (struct file){ .fd = file_new() };
		if (stream->files[i].fd < 0)
			return gantry_err_set(err, stream->files[i].fd,
					      "no file for what kernels print");
	}
	/* Above the three that have a meaning. */
	output.was[which] = fcntl(target, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (output.was[which] < 0)
		return gantry_err_set(err, -errno, "standard output and error are closed");
	if (which == 1) {
		gantry_log_fd_set(output.was[1]);
		report_fd_set(output.was[1]);
	}
	if (dup2(stream->files[0].fd, target) < 0)
		return gantry_err_set(err, -errno, "standard output cannot be a file in memory");
	return 0;
}

static void stream_close(struct stream *stream, unsigned int which)
{
	if (output.was[which] >= 0)
		(void)dup2(output.was[which], STDOUT_FILENO + (int)which);
	if (which == 1) {
		gantry_log_fd_set(STDERR_FILENO);
		report_fd_set(STDERR_FILENO);
	}
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(stream->files); i++) {
		gantry_fd_close(stream->files[i].fd);
		stream->files[i].fd = -EBADF;
	}
	gantry_fd_close(output.was[which]);
	output.was[which] = -EBADF;
}

int worker_output_open(struct gantry_err *err)
{
	struct sigaction on_abort = { .sa_handler = say_last_words, .sa_flags = SA_RESETHAND };
	int r = 0;

	(void)fflush(stdout);
	for (unsigned int i = 0; i < 2 && r == 0; i++)
		r = stream_open(&output.streams[i], i, err);
	if (r < 0)
		return r;
	(void)sigaction(SIGABRT, &on_abort, NULL);
	output.is_open = true;
	return 0;
}

void worker_output_close(void)
{
	(void)fflush(stdout);
	if (output.is_open) {
		worker_output_rest();
		(void)signal(SIGABRT, SIG_DFL);
	}
	output.is_open = false;
	gantry_store_relaxed(&output.wanted, 0u);
	for (unsigned int i = 0; i < 2; i++)
		stream_close(&output.streams[i], i);
}

void worker_output_is_at(struct wsession *s, uint32_t slot)
{
	gantry_store_relaxed(&s->output, slot + 1);
	if (s->engine->isolated)
		gantry_store_relaxed(&output.wanted, 1u);
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

/* What is new in a file, to @place (NULL: nobody's) as its stream @which. A large one has its pages taken back. ret_lost grows. */
static uint64_t move(struct file *file, const struct place *place, unsigned int which,
		     uint64_t *ret_lost)
{
	uint64_t n = new_bytes(file), end = file->taken + n;
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

/* What is new in a stream, of which both files have a part. Returns how much it was. */
static uint64_t move_stream(unsigned int which, const struct place *place, uint64_t *ret_lost)
{
	struct stream *stream = &output.streams[which];
	struct file *now = &stream->files[stream->turn], *next = &stream->files[!stream->turn];
	uint64_t n = move(next, place, which, ret_lost);

	if (end_of(now) > WORKER_OUTPUT_BYTES / 2) {
		rewind_file(next);
		if (dup2(next->fd, STDOUT_FILENO + (int)which) >= 0)
			stream->turn = !stream->turn;
	}
	return n + move(now, place, which, ret_lost);
}

/* What this process itself has in its buffer for standard output, as drivers do. */
static uint64_t flush_stdout(void)
{
	(void)fflush(stdout);
	if (!ferror(stdout))
		return 0;
	clearerr(stdout);
	return 1;
}

/* ---- nobody's ---- */

static void drop_stdout_locked(void)
{
	uint64_t n, lost = flush_stdout();

	n = move_stream(0, NULL, &lost);
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

/* What drivers and libraries say, and what failed assertions do: a line of it is one of the log, as far as the log takes them. */
static void log_part(const struct file *file)
{
	uint64_t n = gantry_min_u64(new_bytes(file), LOG_BYTES);
	char text[LOG_BYTES + 1], *rest = text, *line;
	ssize_t got = pread(file->fd, text, n, (off_t)file->taken);

	if (got <= 0)
		return;
	text[got] = '\0';
	while ((line = strsep(&rest, "\n")))
		if (*line)
			gantry_log(GANTRY_LOG_WARN, "standard error: %s", line);
}

static void log_stderr_locked(void)
{
	struct stream *stream = &output.streams[1];
	uint64_t lost = 0;

	log_part(&stream->files[!stream->turn]);
	log_part(&stream->files[stream->turn]);
	(void)move_stream(1, NULL, &lost);
}

void worker_output_look(void)
{
	if (!output.is_open || gantry_load_relaxed(&output.wanted))
		return;
	pthread_mutex_lock(&output.lock);
	log_stderr_locked();
	pthread_mutex_unlock(&output.lock);
}

void worker_output_rest(void)
{
	if (!output.is_open)
		return;
	pthread_mutex_lock(&output.lock);
	drop_stdout_locked();
	log_stderr_locked();
	pthread_mutex_unlock(&output.lock);
}

/* ---- on device threads ---- */

static bool takes(const struct wdevice *d, const struct wsession *s)
{
	return d->engine->isolated && d->nsessions == 1 && gantry_load_relaxed(&s->output) != 0;
}

bool worker_output_begin(const struct wdevice *d, struct wsession *s)
{
	if (!output.is_open)
		return false;
	return takes(d, s) || gantry_fetch_add(&output.nskipped, 1) % DROP_EVERY == 0;
}

static void give_locked(const struct place *place, uint32_t fault)
{
	uint64_t lost = flush_stdout();

	for (unsigned int i = 0; i < 2; i++)
		(void)move_stream(i, place, &lost);
	if (lost)
		gantry_store_relaxed(&place->head->lost,
				     gantry_load_relaxed(&place->head->lost) + lost);
	if (fault)
		gantry_store_relaxed(&place->head->fault, fault);
}

void worker_output_end(const struct wdevice *d, struct wsession *s, uint32_t fault)
{
	bool is_taken = takes(d, s);
	struct place place;

	pthread_mutex_lock(&output.lock);
	if (is_taken && place_of(s, &place)) {
		give_locked(&place, fault);
	} else {
		drop_stdout_locked();
		if (is_taken) {
			/* The buffer is gone: what comes is nobody's until there is another. */
			gantry_store_relaxed(&s->output, 0);
			gantry_store_relaxed(&output.wanted, 0u);
		}
	}
	pthread_mutex_unlock(&output.lock);
}
