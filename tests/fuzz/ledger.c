/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: a byte that chooses; 0: the rest is the ledger; else patches of a good ledger, each an offset (4 bytes), a
 * length (1 byte) and that many bytes. A ledger is a megabyte: patches let a fuzzer reach all of it.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/fd.h"
#include "migration/ledger.h"
#include "tests/fuzz/fuzz.h"

#define NQUEUES 4u
#define NSLOTS	16u

static uint8_t *good; /* a ledger as its maker left it */
static uint8_t *work; /* the one that is patched, equal to good between runs */
static uint64_t bytes;

static void make_good(void)
{
	struct gantry_ledger ledger;
	struct gantry_err err;
	int fd;

	bytes = gantry_ledger_bytes(NQUEUES, NSLOTS);
	if (gantry_ledger_create(7, "fuzz", NQUEUES, NSLOTS, 1 << 24, 1 << 24, &ledger, &fd, &err) <
	    0)
		abort();
	good = aligned_alloc(4096, (bytes + 4095) & ~4095ull);
	work = aligned_alloc(4096, (bytes + 4095) & ~4095ull);
	if (!good || !work)
		abort();
	memcpy(good, ledger.hdr, bytes);
	memcpy(work, good, bytes);
	gantry_ledger_close(&ledger);
	gantry_fd_close(fd);
}

/* What whoever takes the session over counts on. */
static void check_accepted(const uint8_t *base)
{
	const struct gantry_ledger_header *h = (const void *)base;
	const struct gantry_ledger_queue *queues = (const void *)(base + h->queues_off);

	for (uint32_t i = 0; i < h->nqueues; i++) {
		assert(queues[i].done <= queues[i].issued);
		assert(queues[i].issued <= queues[i].taken);
		assert(queues[i].taken - queues[i].done <= h->nslots);
	}
}

static void check(const uint8_t *base, uint64_t len)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int r = gantry_ledger_check(base, len, &err);

	if (r == 0)
		check_accepted(base);
	else
		assert(r < 0 && err.text[0]);
}

static void check_raw(const uint8_t *data, size_t len)
{
	uint8_t *copy = aligned_alloc(64, (len + 63) & ~(size_t)63 ? (len + 63) & ~(size_t)63 : 64);

	if (!copy)
		abort();
	if (len)
		memcpy(copy, data, len);
	check(copy, len);
	free(copy);
}

static uint64_t next_patch(struct fuzz_input *in, uint8_t patch[256], size_t *ret_len)
{
	uint64_t off = fuzz_u32(in) % bytes;
	size_t len = fuzz_u8(in);

	len = fuzz_take(in, patch, len);
	*ret_len = len < bytes - off ? len : bytes - off;
	return off;
}

static void check_patched(struct fuzz_input in)
{
	struct fuzz_input again = in;
	uint8_t patch[256];
	size_t len;

	while (in.len > 0) {
		uint64_t off = next_patch(&in, patch, &len);

		memcpy(work + off, patch, len);
	}
	check(work, bytes);
	while (again.len > 0) {
		uint64_t off = next_patch(&again, patch, &len);

		memcpy(work + off, good + off, len);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };

	if (!good)
		make_good();
	if (fuzz_u8(&in) == 0)
		check_raw(in.data, in.len);
	else
		check_patched(in);
	return 0;
}
