/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels/emulator.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define WARP	    32u
#define THREADS_MAX 256u
/* At the same time: what the fake driver says that its device holds. */
#define BLOCKS_MAX  128u
#define COROUTINES  16384u
#define STACK_BYTES (64u << 10)
#define SHARED_MAX  8u
/* What static shared memory may hold on a device. */
#define SHARED_BYTES  (48u << 10)
#define EXCHANGED_MAX 8u

struct barrier {
	uint32_t expected;
	uint32_t arrived;
	uint64_t opened; /* how often */
};

struct warp {
	struct barrier barrier;
	unsigned char slots[WARP][EXCHANGED_MAX];
};

struct block {
	uint32_t idx;
	struct barrier barrier;
	struct warp warps[THREADS_MAX / WARP];
	const void *keys[SHARED_MAX];
	void *arrays[SHARED_MAX];
	size_t nbytes;
};

struct coroutine {
	void *sp; /* of a coroutine that does not run */
	struct block *block;
	uint32_t thread;
	bool is_done;
	const struct barrier *waits_at;
	uint64_t opened; /* of the barrier when it began to wait */
};

static struct {
	emulator_entry *entry;
	const void *args;
	uint32_t nblocks, nthreads;
	bool together;
	struct barrier grid;
	struct block blocks[BLOCKS_MAX];
	struct coroutine coroutines[COROUTINES];
	struct coroutine *current;
	void *scheduler_sp;
	char *stacks;
} emu;

static void die(const char *what)
{
	(void)fprintf(stderr, "emulator: %s\n", what);
	abort();
}

/*
 * emulator_switch(&from_sp, to_sp) keeps the registers that a function must keep on the stack that it
 * leaves, and returns on the other one.
 */
void emulator_switch(void **from_sp, void *to_sp);
/* Where a new coroutine begins: calls coroutine_main() on an aligned stack. */
void emulator_begin(void);

__asm__(".text\n"
	".globl emulator_switch\n"
	".type emulator_switch, @function\n"
	"emulator_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".globl emulator_begin\n"
	".type emulator_begin, @function\n"
	"emulator_begin:\n"
	"	call emulator_main\n"
	"	ud2\n");

void emulator_main(void);

static void leave(void)
{
	emulator_switch(&emu.current->sp, emu.scheduler_sp);
}

void emulator_main(void)
{
	emu.entry(emu.args);
	emu.current->is_done = true;
	leave();
}

static void coroutine_init(struct coroutine *co, struct block *block, uint32_t thread)
{
	size_t slot = (size_t)(co - emu.coroutines);
	void **top = (void **)(emu.stacks + (slot + 1) * STACK_BYTES);

	*co = (struct coroutine){ .block = block, .thread = thread };
	/* The call in emulator_begin wants 16 bytes' alignment before it. */
	*--top = NULL;
	*--top = NULL;
	*--top = (void *)emulator_begin;
	for (int i = 0; i < 6; i++)
		*--top = NULL;
	co->sp = top;
}

static bool is_ready(const struct coroutine *co)
{
	return !co->is_done && (!co->waits_at || co->waits_at->opened != co->opened);
}

/* Until all are done. */
static void schedule(uint32_t ncoroutines)
{
	uint32_t ndone = 0;

	while (ndone < ncoroutines) {
		bool progress = false;

		for (uint32_t i = 0; i < ncoroutines; i++) {
			struct coroutine *co = &emu.coroutines[i];

			if (!is_ready(co))
				continue;
			co->waits_at = NULL;
			emu.current = co;
			emulator_switch(&emu.scheduler_sp, co->sp);
			progress = true;
			ndone += co->is_done;
		}
		if (!progress)
			die("a barrier that not all threads reach");
	}
	emu.current = NULL;
}

static void block_init(struct block *block, uint32_t idx)
{
	*block = (struct block){ .idx = idx, .barrier = { .expected = emu.nthreads } };
	for (uint32_t w = 0; w < emu.nthreads / WARP; w++)
		block->warps[w].barrier.expected = WARP;
}

static void block_fini(struct block *block)
{
	for (uint32_t i = 0; i < SHARED_MAX; i++)
		free(block->arrays[i]);
}

/* Blocks [first, first + count) at the same time. */
static void run_blocks(uint32_t first, uint32_t count)
{
	for (uint32_t b = 0; b < count; b++) {
		block_init(&emu.blocks[b], first + b);
		for (uint32_t t = 0; t < emu.nthreads; t++)
			coroutine_init(&emu.coroutines[b * emu.nthreads + t], &emu.blocks[b], t);
	}
	schedule(count * emu.nthreads);
	for (uint32_t b = 0; b < count; b++)
		block_fini(&emu.blocks[b]);
}

int emulator_holds(uint32_t nblocks, uint32_t nthreads)
{
	return nblocks <= BLOCKS_MAX && nblocks * nthreads <= COROUTINES;
}

void emulator_run(emulator_entry *entry, uint32_t nblocks, uint32_t nthreads, int together,
		  const void *args)
{
	if (nthreads == 0 || nthreads > THREADS_MAX || nthreads % WARP != 0 || nblocks == 0 ||
	    (together && !emulator_holds(nblocks, nthreads)))
		die("a launch that no device could do");
	if (!emu.stacks) {
		void *stacks = mmap(NULL, (size_t)COROUTINES * STACK_BYTES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (stacks == MAP_FAILED)
			die("no memory for stacks");
		emu.stacks = stacks;
	}
	emu.entry = entry;
	emu.args = args;
	emu.nblocks = nblocks;
	emu.nthreads = nthreads;
	emu.together = together;
	emu.grid = (struct barrier){ .expected = nblocks * nthreads };
	if (together)
		run_blocks(0, nblocks);
	else
		for (uint32_t b = 0; b < nblocks; b++)
			run_blocks(b, 1);
}

static void barrier_wait(struct barrier *barrier)
{
	if (++barrier->arrived == barrier->expected) {
		barrier->arrived = 0;
		barrier->opened++;
		return;
	}
	emu.current->waits_at = barrier;
	emu.current->opened = barrier->opened;
	leave();
}

static struct warp *warp_of_current(void)
{
	return &emu.current->block->warps[emu.current->thread / WARP];
}

uint32_t thread_idx(void)
{
	return emu.current->thread;
}

uint32_t block_idx(void)
{
	return emu.current->block->idx;
}

uint32_t block_threads(void)
{
	return emu.nthreads;
}

uint32_t grid_blocks(void)
{
	return emu.nblocks;
}

void block_sync(void)
{
	barrier_wait(&emu.current->block->barrier);
}

void warp_sync(void)
{
	barrier_wait(&warp_of_current()->barrier);
}

void grid_sync(void)
{
	if (!emu.together)
		die("a barrier of the grid in a launch that is not together");
	barrier_wait(&emu.grid);
}

uint64_t clock_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t count_bits(uint32_t word)
{
	return (uint32_t)__builtin_popcount(word);
}

void emulator_exchange(const void *value, void *ret_value, size_t bytes, uint32_t from)
{
	struct warp *warp = warp_of_current();

	if (bytes > EXCHANGED_MAX)
		die("a shuffle of more than 8 bytes");
	memcpy(warp->slots[thread_idx() % WARP], value, bytes);
	warp_sync();
	memcpy(ret_value, warp->slots[from], bytes);
	warp_sync();
}

uint32_t vote(int yes)
{
	struct warp *warp = warp_of_current();
	uint32_t votes = 0;

	warp->slots[thread_idx() % WARP][0] = yes != 0;
	warp_sync();
	for (uint32_t lane = 0; lane < WARP; lane++)
		votes |= (uint32_t)warp->slots[lane][0] << lane;
	warp_sync();
	return votes;
}

void *emulator_shared(const void *key, size_t bytes)
{
	struct block *block = emu.current->block;
	uint32_t i = 0;

	while (i < SHARED_MAX && block->keys[i] && block->keys[i] != key)
		i++;
	if (i == SHARED_MAX)
		die("more shared arrays than the emulator keeps");
	if (block->keys[i])
		return block->arrays[i];
	block->nbytes += bytes;
	if (block->nbytes > SHARED_BYTES)
		die("more shared memory than a block has");
	block->keys[i] = key;
	/* Contents are undefined: make them unlike what a kernel would like to find. */
	if (posix_memalign(&block->arrays[i], 16, bytes) != 0)
		die("no memory");
	memset(block->arrays[i], 0xa5, bytes);
	return block->arrays[i];
}
