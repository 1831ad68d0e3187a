/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of the test board: two regions whose logic is RTL, in models that Verilator made, and a memory that they share. All run on
 * one clock; the memory takes one request a cycle, of each region in turn, and answers a read LATENCY cycles later. So every count
 * of cycles is exact and the same on every run.
 *
 * Options: lock=PATH (one process has the board), memory=BYTES, and for tests load_ms=N (loading takes so long), fail_loads=N (the
 * next N fail), fail_copies=N (of copies, behind spare_copies=N that do not), hang=1 (no launch ends), hang_n=N (no launch of vadd ends whose last argument is N), lost_after=N (the board is gone after so many loads), memory_lost=1 (a load destroys what is in memory),
 * naps=1 (waiting takes as long as it may, if nobody wakes; without end while a test has set gantry_test_board_sleeps).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "devices/board/driver.h"
#include "tests/fpga/model.h"

#define NREGIONS      2u
#define MAX_LIBRARIES 16u
#define LATENCY	      4u
#define MEMORY_BYTES  (64u << 20)
#define CYCLES_A_WAIT 2000u
#define LOST_BYTE     0xdb
#define MAX_WINDOWS   4u

struct answer {
	bool valid;
	uint32_t region;
	uint8_t to;
	uint8_t data[MODEL_BEAT_BYTES];
};

/*
 * A bitstream that was loaded once stays in the process: its model has thread-local objects, which keep the loader from unloading it, and the
 * loader knows it by its path, which has the number of a descriptor; so that stays too.
 */
struct library {
	uint64_t sum; /* of its bytes */
	int fd;
	const struct model *model;
};

/* For tests, by their names; atomic. Naps that were begun, and whether they have no end but to be woken. */
__attribute__((visibility("default"))) uint32_t gantry_test_board_naps;
__attribute__((visibility("default"))) uint32_t gantry_test_board_sleeps;

static struct library libraries[MAX_LIBRARIES];
static unsigned int nlibraries;

#define VADD_N (GANTRY_BOARD_ARGS + 8u * 6u) /* behind three buffers of two registers */

/* A launch behind the one at work on a window. The RTL knows none: what this does takes the cycles of its writes. */
struct chain {
	bool waits;
	bool refused; /* nothing is behind it, but what would have been copied is spoilt */
	bool ended; /* it has begun; that the one before had ended, as follows, has not been seen */
	uint64_t control, cycles;
	uint32_t nargs, ncopies;
	uint64_t args[GANTRY_BOARD_MAX_ARGS];
	struct gantry_board_copy copies[GANTRY_BOARD_MAX_ARGS];
};

struct region {
	struct chain chains[MAX_WINDOWS];
	const struct model *model;
	void *state;
	struct model_port port;
	uint32_t hung; /* windows whose launch does not end */
};

struct board {
	uint8_t *memory;
	uint64_t mem_bytes;
	uint64_t cycles;
	uint32_t turn; /* whose request is taken first */
	int lock_fd;
	uint64_t hang_n; /* 0: none */
	uint64_t load_ms, fail_loads, fail_copies, spare_copies, lost_after, nloads, refuse_next;
	bool has_lost_after, memory_lost, hang, naps;
	pthread_mutex_t lock;
	pthread_cond_t woke;
	bool woken; /* under the lock */
	struct region regions[NREGIONS];
	struct answer answers[LATENCY];
};

static int refuse(int code, char *text, size_t cap, const char *sentence)
{
	(void)snprintf(text, cap, "%s", sentence);
	return code;
}

/* ---- the clock ---- */

static void unload(struct region *region)
{
	if (region->state)
		region->model->destroy(region->state);
	memset(region, 0, sizeof(*region));
}

static void serve(struct board *board, uint32_t r, struct answer *slot)
{
	struct model_port *port = &board->regions[r].port;
	/* Past the memory's end nothing is written, and 0 is read. */
	bool inside = port->addr <= board->mem_bytes - MODEL_BEAT_BYTES;

	port->ready = 1;
	board->turn = (r + 1) % NREGIONS;
	if (port->we) {
		for (unsigned int lane = 0; inside && lane < MODEL_BEAT_BYTES / 4; lane++)
			if (port->lanes >> lane & 1)
				memcpy(board->memory + port->addr + (size_t)4 * lane,
				       port->data + (size_t)4 * lane, 4);
		return;
	}
	slot->valid = true;
	slot->region = r;
	slot->to = port->from;
	memset(slot->data, 0, sizeof(slot->data));
	if (inside)
		memcpy(slot->data, board->memory + port->addr, sizeof(slot->data));
}

/* One cycle of everything. */
static void cycle(struct board *board)
{
	struct answer *slot = &board->answers[board->cycles % LATENCY];
	struct answer due = *slot;
	bool taken = false;

	slot->valid = false;
	for (uint32_t r = 0; r < NREGIONS; r++) {
		struct region *region = &board->regions[r];

		if (!region->state)
			continue;
		region->port.answer = due.valid && due.region == r;
		region->port.answer_to = due.to;
		region->port.answer_data = due.data;
		region->model->settle(region->state, &region->port);
	}
	for (uint32_t i = 0; i < NREGIONS && !taken; i++) {
		uint32_t r = (board->turn + i) % NREGIONS;

		taken = board->regions[r].state && board->regions[r].port.req;
		if (taken)
			serve(board, r, slot);
	}
	for (uint32_t r = 0; r < NREGIONS; r++) {
		struct region *region = &board->regions[r];

		if (region->state)
			region->model->clock(region->state, &region->port);
		region->port.wr_valid = 0;
	}
	board->cycles++;
}

/* ---- the driver's table ---- */

static int parse_options(struct board *board, const char *options, const char **ret_lock,
			 char *copy, char *text, size_t cap)
{
	char *save = NULL;

	for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '=');
		uint64_t n;

		if (!value)
			return refuse(-EINVAL, text, cap, "an option is not key=value");
		*value++ = '\0';
		n = strtoull(value, NULL, 10);
		if (strcmp(word, "lock") == 0)
			*ret_lock = options + (value - copy);
		else if (strcmp(word, "memory") == 0)
			board->mem_bytes = n;
		else if (strcmp(word, "load_ms") == 0)
			board->load_ms = n;
		else if (strcmp(word, "fail_loads") == 0)
			board->fail_loads = n;
		else if (strcmp(word, "fail_copies") == 0)
			board->fail_copies = n;
		else if (strcmp(word, "spare_copies") == 0)
			board->spare_copies = n;
		else if (strcmp(word, "refuse_next") == 0)
			board->refuse_next = n;
		else if (strcmp(word, "lost_after") == 0)
			board->lost_after = n, board->has_lost_after = true;
		else if (strcmp(word, "hang") == 0)
			board->hang = n != 0;
		else if (strcmp(word, "hang_n") == 0)
			board->hang_n = n;
		else if (strcmp(word, "memory_lost") == 0)
			board->memory_lost = n != 0;
		else if (strcmp(word, "naps") == 0)
			board->naps = n != 0;
		else
			return refuse(-EINVAL, text, cap, "no such option");
	}
	if (board->mem_bytes < MODEL_BEAT_BYTES || board->mem_bytes > (1u << 30))
		return refuse(-EINVAL, text, cap, "memory is from 64 bytes to 1 GiB");
	return 0;
}

static int take_lock(struct board *board, const char *lock, char *text, size_t cap)
{
	char path[256];

	if (!lock)
		return 0;
	(void)snprintf(path, sizeof(path), "%.*s", (int)strcspn(lock, " "), lock);
	board->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (board->lock_fd < 0)
		return refuse(-errno, text, cap, "the lock cannot be opened");
	if (flock(board->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return refuse(-EBUSY, text, cap, "another process has the board");
	return 0;
}

static void board_close(void *handle)
{
	struct board *board = handle;

	if (!board)
		return;
	for (uint32_t r = 0; r < NREGIONS; r++)
		unload(&board->regions[r]);
	if (board->lock_fd >= 0)
		close(board->lock_fd);
	free(board->memory);
	free(board);
}

static int board_open(const char *options, const struct gantry_board_file *files, uint32_t nfiles,
		      void **ret_board, struct gantry_board_info *ret_info, char *text, size_t cap)
{
	struct board *board = calloc(1, sizeof(*board));
	char *copy = strdup(options);
	const char *lock = NULL;
	int r = -ENOMEM;

	(void)files;
	(void)nfiles;
	if (board && copy) {
		board->lock_fd = -1;
		(void)pthread_mutex_init(&board->lock, NULL);
		(void)pthread_cond_init(&board->woke, NULL);
		board->mem_bytes = MEMORY_BYTES;
		r = parse_options(board, options, &lock, copy, text, cap);
		if (r == 0)
			r = take_lock(board, lock, text, cap);
		if (r == 0 && !(board->memory = calloc(1, board->mem_bytes)))
			r = -ENOMEM;
	}
	free(copy);
	if (r < 0) {
		if (board)
			board_close(board);
		return r;
	}
	*ret_info = (struct gantry_board_info){ .model = "two-regions",
						.nregions = NREGIONS,
						.mem_align = MODEL_BEAT_BYTES,
						.mem_bytes = board->mem_bytes,
						.clock_hz = 250000000 };
	*ret_board = board;
	return 0;
}

/* FNV-1a: tells our own test images apart. 0: the file cannot be read. */
static uint64_t sum_of(int fd)
{
	uint64_t sum = 0xcbf29ce484222325u;
	uint8_t bytes[4096];
	off_t at = 0;
	ssize_t n;

	while ((n = pread(fd, bytes, sizeof(bytes), at)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			sum = (sum ^ bytes[i]) * 0x100000001b3u;
		at += n;
	}
	return n < 0 ? 0 : sum;
}

static int load_library(int fd, struct library *ret_library, char *text, size_t cap)
{
	struct library library = { .sum = sum_of(fd) };
	char path[64];
	void *handle;

	for (unsigned int i = 0; i < nlibraries; i++)
		if (libraries[i].sum == library.sum) {
			*ret_library = libraries[i];
			return 0;
		}
	if (nlibraries == MAX_LIBRARIES)
		return refuse(-ENOSPC, text, cap, "too many different bitstreams");
	library.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (library.fd < 0)
		return refuse(-errno, text, cap, "no descriptor for the file");
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", library.fd);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	library.model = handle ? dlsym(handle, "model_entry") : NULL;
	if (!library.model) {
		if (handle)
			dlclose(handle);
		close(library.fd);
		return refuse(-ENOEXEC, text, cap, "the file is no bitstream of this board");
	}
	libraries[nlibraries++] = library;
	*ret_library = library;
	return 0;
}

static int load_model(struct region *region, int fd, char *text, size_t cap)
{
	struct library library = { 0 };
	int r = load_library(fd, &library, text, cap);

	if (r < 0)
		return r;
	region->model = library.model;
	region->state = region->model->create();
	return region->state ? 0 : refuse(-ENOMEM, text, cap, "no memory for the model");
}

static int board_load(void *handle, const struct gantry_board_file *file, char *text, size_t cap)
{
	struct board *board = handle;
	uint32_t place = file->place;
	struct timespec delay = { .tv_sec = (time_t)(board->load_ms / 1000),
				  .tv_nsec = (long)(board->load_ms % 1000) * 1000000 };
	int r;

	if (place >= NREGIONS)
		return refuse(-EINVAL, text, cap, "this board has regions only");
	if (board->has_lost_after && board->nloads >= board->lost_after)
		return refuse(-ENODEV, text, cap, "the board does not answer");
	board->nloads++;
	unload(&board->regions[place]);
	if (board->memory_lost)
		memset(board->memory, LOST_BYTE, board->mem_bytes);
	(void)nanosleep(&delay, NULL);
	if (board->fail_loads > 0) {
		board->fail_loads--;
		return refuse(-EIO, text, cap, "the configuration port reports an error");
	}
	r = load_model(&board->regions[place], file->fd, text, cap);
	if (r < 0)
		unload(&board->regions[place]);
	return r;
}

static void address(struct region *region, uint32_t off)
{
	region->port.window = (uint8_t)(off / GANTRY_BOARD_WINDOW_BYTES);
	region->port.reg = (uint8_t)(off % GANTRY_BOARD_WINDOW_BYTES / 8);
}

static bool hangs(const struct board *board, const struct region *region, uint32_t off)
{
	return board->hang || (region->hung >> off / GANTRY_BOARD_WINDOW_BYTES & 1);
}

static uint64_t read_unit(struct board *board, struct region *region, uint32_t off)
{
	address(region, off);
	region->port.answer = 0;
	region->model->settle(region->state, &region->port);
	if (hangs(board, region, off) && off % GANTRY_BOARD_WINDOW_BYTES == GANTRY_BOARD_CONTROL)
		return region->port.rd_data & ~(uint64_t)GANTRY_BOARD_DONE;
	return region->port.rd_data;
}

/* NULL: no image of ours has so many windows. */
static struct chain *chain_of(struct region *region, uint32_t off)
{
	uint32_t window = off / GANTRY_BOARD_WINDOW_BYTES;

	return window < MAX_WINDOWS ? &region->chains[window] : NULL;
}

static uint64_t board_read(void *handle, uint32_t r, uint32_t off)
{
	struct board *board = handle;
	struct region *region = &board->regions[r];
	const struct chain *chain;

	if (r >= NREGIONS || !region->state)
		return UINT64_MAX;
	chain = chain_of(region, off);
	if (chain && chain->ended && off % GANTRY_BOARD_WINDOW_BYTES == GANTRY_BOARD_CONTROL)
		return chain->control;
	if (chain && chain->ended && off % GANTRY_BOARD_WINDOW_BYTES == GANTRY_BOARD_CYCLES)
		return chain->cycles;
	return read_unit(board, region, off);
}

/* A write takes a cycle, for all. */
static void write_unit(struct board *board, struct region *region, uint32_t off, uint64_t value)
{
	if (board->hang_n && off % GANTRY_BOARD_WINDOW_BYTES == VADD_N) {
		uint32_t window = 1u << off / GANTRY_BOARD_WINDOW_BYTES;

		region->hung = value == board->hang_n ? region->hung | window
						      : region->hung & ~window;
	}
	address(region, off);
	region->port.wr_valid = 1;
	region->port.wr_data = value;
	cycle(board);
}

static void board_write(void *handle, uint32_t r, uint32_t off, uint64_t value)
{
	struct board *board = handle;
	struct region *region = &board->regions[r];
	struct chain *chain;

	if (r >= NREGIONS || !region->state)
		return;
	chain = chain_of(region, off);
	if (chain && chain->ended && off % GANTRY_BOARD_WINDOW_BYTES == GANTRY_BOARD_CONTROL)
		chain->ended = false; /* the window is the next one's */
	else
		write_unit(board, region, off, value);
}

static int copy_fails(struct board *board)
{
	if (board->fail_copies == 0)
		return 0;
	if (board->spare_copies > 0) {
		board->spare_copies--;
		return 0;
	}
	board->fail_copies--;
	return -EIO;
}

static int board_mem_read(void *handle, uint64_t at, void *to, uint64_t len)
{
	struct board *board = handle;
	int r = copy_fails(board);

	if (r == 0)
		memcpy(to, board->memory + at, len);
	return r;
}

static int board_mem_write(void *handle, uint64_t at, const void *from, uint64_t len)
{
	struct board *board = handle;
	int r = copy_fails(board);

	if (r == 0)
		memcpy(board->memory + at, from, len);
	return r;
}

/* The launch at work in the window has ended, perhaps: then the one behind it begins. */
static void go_on(struct board *board, struct region *region, uint32_t off)
{
	struct chain *chain = chain_of(region, off);
	uint64_t control = read_unit(board, region, off + GANTRY_BOARD_CONTROL);

	if (!(control & GANTRY_BOARD_DONE))
		return;
	chain->waits = false;
	for (uint32_t i = 0; chain->refused && i < chain->ncopies; i++)
		memset(chain->copies[i].to, 0xdb, chain->copies[i].len);
	if (chain->refused)
		return;
	chain->cycles = read_unit(board, region, off + GANTRY_BOARD_CYCLES);
	for (uint32_t i = 0; i < chain->ncopies; i++) {
		if (copy_fails(board) < 0)
			control |= GANTRY_BOARD_FAILED;
		else
			memcpy(chain->copies[i].to, board->memory + chain->copies[i].at,
			       chain->copies[i].len);
	}
	chain->control = control;
	chain->ended = true;
	write_unit(board, region, off + GANTRY_BOARD_CONTROL, GANTRY_BOARD_DONE);
	for (uint32_t i = 0; i < chain->nargs; i++)
		write_unit(board, region, off + GANTRY_BOARD_ARGS + 8 * i, chain->args[i]);
	write_unit(board, region, off + GANTRY_BOARD_CONTROL, GANTRY_BOARD_START);
}

static void go_on_all(struct board *board)
{
	for (uint32_t r = 0; r < NREGIONS; r++)
		for (uint32_t w = 0; w < MAX_WINDOWS; w++)
			if (board->regions[r].chains[w].waits)
				go_on(board, &board->regions[r], w * GANTRY_BOARD_WINDOW_BYTES);
}

static int board_follow(void *handle, uint32_t r, uint32_t off, const uint64_t *args,
			uint32_t nargs, const struct gantry_board_copy *copies, uint32_t ncopies)
{
	struct board *board = handle;
	struct region *region = &board->regions[r];
	struct chain *chain = r < NREGIONS && region->state ? chain_of(region, off) : NULL;
	uint64_t control;

	if (!chain || nargs > GANTRY_BOARD_MAX_ARGS || ncopies > GANTRY_BOARD_MAX_ARGS)
		return -EINVAL;
	control = read_unit(board, region, off + GANTRY_BOARD_CONTROL);
	if (chain->waits || chain->ended || control & GANTRY_BOARD_DONE ||
	    (control & GANTRY_BOARD_IDLE && !hangs(board, region, off)))
		return -EAGAIN;
	*chain = (struct chain){ .waits = true, .nargs = nargs, .ncopies = ncopies };
	memcpy(chain->args, args, nargs * sizeof(*args));
	memcpy(chain->copies, copies, ncopies * sizeof(*copies));
	if (board->refuse_next == 0)
		return 0;
	board->refuse_next--;
	chain->refused = true;
	return 1;
}

static void nap(struct board *board, uint64_t ns)
{
	struct timespec until;

	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += (long)ns; /* less than a second */
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	if (gantry_load_relaxed(&gantry_test_board_sleeps) && ns > 0)
		until.tv_sec += 3600;
	gantry_fetch_add(&gantry_test_board_naps, 1);
	(void)pthread_mutex_lock(&board->lock);
	while (!board->woken &&
	       pthread_cond_timedwait(&board->woke, &board->lock, &until) != ETIMEDOUT)
		;
	board->woken = false;
	(void)pthread_mutex_unlock(&board->lock);
}

static void board_wake(void *handle)
{
	struct board *board = handle;

	(void)pthread_mutex_lock(&board->lock);
	board->woken = true;
	(void)pthread_cond_signal(&board->woke);
	(void)pthread_mutex_unlock(&board->lock);
}

/* Simulated time has nothing to do with @timeout_ns: so many cycles at a time. */
static int board_wait(void *handle, uint64_t timeout_ns)
{
	struct board *board = handle;

	if (board->naps)
		nap(board, timeout_ns);
	for (uint32_t i = 0; i < CYCLES_A_WAIT; i++) {
		cycle(board);
		go_on_all(board);
	}
	return 1;
}

static uint64_t board_cycles(void *handle)
{
	return ((struct board *)handle)->cycles;
}

__attribute__((visibility("default")))
const struct gantry_board_driver gantry_board_driver_entry = {
	.abi = GANTRY_BOARD_ABI,
	.bytes = sizeof(struct gantry_board_driver),
	.name = "two-regions",
	.open = board_open,
	.close = board_close,
	.load = board_load,
	.read = board_read,
	.write = board_write,
	.mem_read = board_mem_read,
	.mem_write = board_mem_write,
	.wait = board_wait,
	.cycles = board_cycles,
	.takes_later_files = 1,
	.wake = board_wake,
	.follow = board_follow,
};
