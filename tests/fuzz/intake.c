/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: what a hostile guest puts into its rings, one record after the other: a byte that chooses the queue (0 is
 * control; bit 7: lie about the tail instead, 8 bytes), a descriptor, and 192 bytes where it says inline. A real
 * engine with a cpu device serves them, beside a second session that must not notice.
 */
#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "proto/ring.h"
#include "tests/fuzz/fuzz.h"
#include "tests/inproc/inproc.h"

#define NQUEUES	      3u /* control, and two that were opened in order */
#define NSLOTS	      16u
#define MAX_RECORDS   64u
#define SETTLE_NS     (20 * GANTRY_NS_PER_MS) /* longer: paused, or waits for what never comes */
#define WITNESS_NS    INT64_C(10000000000)
#define WITNESS_EVERY 16u
#define REOPEN_EVERY  256u
#define MEM_BYTES     (8ull << 20)

static struct inproc_host *host;
static struct gantry_session *witness;
static gantry_queue witness_queue;

static struct {
	struct gantry_session *session;
	uint32_t index;
	struct gantry_region segment;
	struct gantry_ring_producer rings[NQUEUES];
	bool lied;
} guest;

static void guest_open(void)
{
	const struct gantry_limits ask = { .nslots = NSLOTS, .heap_bytes = 1 << 20 };
	const struct gantry_segment_header *h;
	struct inproc_session *s;
	gantry_queue queue;

	if (inproc_open(host, &ask, &guest.session, &guest.index) != GANTRY_OK)
		abort();
	for (uint32_t i = 1; i < NQUEUES; i++)
		if (gantry_queue_open(guest.session, NULL, &queue) != GANTRY_OK)
			abort();
	s = &host->sessions[guest.index];
	h = mmap(NULL, s->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->segment_fd, 0);
	if (h == MAP_FAILED)
		abort();
	guest.segment = (struct gantry_region){ (uint8_t *)h, s->segment_bytes };
	for (uint32_t i = 0; i < NQUEUES; i++) {
		struct gantry_ring_map map;

		if (gantry_ring_map_init(&map, &guest.segment, h->queues_off, i, NSLOTS) < 0)
			abort();
		gantry_ring_producer_init(&guest.rings[i], &map);
	}
	guest.lied = false;
}

static void guest_close(void)
{
	inproc_detach(host, guest.index);
	gantry_close(guest.session);
	munmap(guest.segment.base, guest.segment.bytes);
}

static void start(void)
{
	static const char *const devices[] = { "cpu cores=1" };
	uint32_t index;

	host = inproc_start(devices, 1);
	host->quota->mem_bytes = MEM_BYTES;
	host->quota->virtual_bytes = 4 * MEM_BYTES;
	if (inproc_open(host, NULL, &witness, &index) != GANTRY_OK ||
	    gantry_queue_open(witness, NULL, &witness_queue) != GANTRY_OK)
		abort();
	guest_open();
}

static void put(struct gantry_ring_producer *p, struct fuzz_input *in)
{
	struct gantry_desc *desc = gantry_ring_desc(p, 0);

	if (gantry_ring_reserve(p, 1) < 0)
		return;
	fuzz_take(in, desc, sizeof(*desc));
	if (desc->flags & GANTRY_DESC_INLINE)
		fuzz_take(in, gantry_ring_inline(p, 0), sizeof(struct gantry_inline));
	gantry_ring_publish(p, 1);
}

static void put_record(struct fuzz_input *in)
{
	uint8_t which = fuzz_u8(in);
	struct gantry_ring_producer *p = &guest.rings[(which & 0x7f) % NQUEUES];

	if (which & 0x80) {
		guest.lied = true;
		gantry_store_release(&p->map.area->tail, fuzz_u64(in));
	} else {
		put(p, in);
	}
}

static void ring_bell(void)
{
	const uint64_t one = 1;

	(void)!write(host->sessions[guest.index].bell_fd, &one,
		     sizeof(one)); /* full: it rings already */
}

static bool ended(void)
{
	return gantry_load_acquire(&host->sessions[guest.index].ended) != 0;
}

/* Whether the engine finished everything. */
static bool settled(void)
{
	for (uint32_t i = 0; i < NQUEUES; i++) {
		uint64_t done = gantry_ring_done(&guest.rings[i].map);

		assert(guest.lied || done <= guest.rings[i].tail);
		if (done != guest.rings[i].tail)
			return false;
	}
	return true;
}

static bool settle(void)
{
	uint64_t deadline_ns = gantry_now_ns() + SETTLE_NS;

	ring_bell();
	while (!ended() && !settled()) {
		if (gantry_deadline_passed(deadline_ns))
			return false;
		gantry_cpu_relax();
	}
	/* Descriptors are calls: only positions that lie end a session. */
	if (ended() && !guest.lied)
		abort();
	return !ended() && !guest.lied;
}

static void ask_witness(void)
{
	gantry_ticket ticket;

	if (gantry_submit_marker(witness, witness_queue, &ticket) != GANTRY_OK ||
	    gantry_wait(witness, &ticket, 1, WITNESS_NS) != GANTRY_OK)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static uint64_t runs;
	struct fuzz_input in = { data, len };
	uint32_t nrecords = 0;
	bool whole;

	if (!host)
		start();
	while (in.len > 0 && nrecords++ < MAX_RECORDS)
		put_record(&in);
	whole = settle();
	if (runs % WITNESS_EVERY == 0 || !whole)
		ask_witness();
	if (!whole || ++runs % REOPEN_EVERY == 0) {
		guest_close();
		guest_open();
	}
	return 0;
}
