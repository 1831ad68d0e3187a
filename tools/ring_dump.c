/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints a session's segment: ring-dump [-v] PATH
 * PATH is the segment's memfd, as /proc/PID/fd/N of the worker or the guest, or a copy in a file. With -v also the
 * tasks that are not finished. Nothing is written; the rings may move while they are read.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "proto/codec.h"
#include "proto/ring.h"

struct dump {
	struct gantry_region segment;
	struct gantry_segment_header header; /* a copy */
};

static int map_file(const char *path, struct gantry_region *ret_region)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *base;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)sizeof(struct gantry_segment_header))
		return -ENODATA;
	base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	*ret_region = (struct gantry_region){ base, (uint64_t)st.st_size };
	return 0;
}

static const char *session_state(uint32_t state)
{
	static const char *const names[] = { "starting", "attached", "recovering", "detached" };

	return state < 4 ? names[state] : "in no known state";
}

static const char *queue_state(uint32_t state)
{
	static const char *const names[] = { "closed", "open", "closing" };

	return state < 3 ? names[state] : "?";
}

/* -EINVAL with a sentence printed: not a segment whose rings can be found. */
static int check_header(const struct gantry_segment_header *h, uint64_t bytes)
{
	uint64_t stride = gantry_ring_stride_bytes(h->nslots);

	if (h->magic != GANTRY_WIRE_MAGIC) {
		fprintf(stderr, "ring-dump: no segment: its magic is %#" PRIx64 "\n", h->magic);
		return -EINVAL;
	}
	if (h->segment_bytes > bytes)
		printf("warning: the segment has %" PRIu64 " bytes, this is %" PRIu64 "\n",
		       h->segment_bytes, bytes);
	if (stride == 0 || stride != h->queue_stride_bytes || h->nqueues > GANTRY_MAX_QUEUES) {
		fprintf(stderr, "ring-dump: %u queues of %u slots, %u bytes apart, make no sense\n",
			h->nqueues, h->nslots, h->queue_stride_bytes);
		return -EINVAL;
	}
	return 0;
}

static void print_header(const struct gantry_segment_header *h)
{
	printf("session %" PRIu64 " is %s, epoch %" PRIu64 ", protocol %u\n", h->session_id,
	       session_state(h->state), h->epoch, h->version);
	if (h->state == GANTRY_SESSION_DETACHED)
		printf("reason: %s (%d): %s\n", gantry_status_name(h->reason), h->reason,
		       gantry_status_text(h->reason));
	printf("segment %" PRIu64 " bytes: %u queues of %u slots at %#" PRIx64 ", heap %" PRIu64
	       " bytes at %#" PRIx64 "\n",
	       h->segment_bytes, h->nqueues, h->nslots, h->queues_off, h->heap_bytes, h->heap_off);
	printf("bell %" PRIu64 "\n\n", h->bell);
	printf("%5s %-8s %12s %12s %12s %8s %6s %6s %7s\n", "queue", "state", "put", "taken",
	       "done", "failed", "ready", "asleep", "parked");
}

static void print_field(const struct gantry_op_field *field, const uint8_t *at)
{
	uint64_t value = 0;

	memcpy(&value, at, field->len_bytes);
	if (value != 0)
		printf(field->len_bytes == 8 ? " %s=%#" PRIx64 : " %s=%" PRIu64, field->name,
		       value);
}

static void print_desc(const struct gantry_desc *desc, bool control, uint32_t version)
{
	const struct gantry_op_info *info = gantry_op_info(desc->op);
	union gantry_op_any args;
	int status = gantry_desc_decode(desc, control, version, &args);
	uint32_t off = 0;

	printf(" %s", info ? info->name : "?");
	for (uint32_t i = 0; info && i < info->nfields; i++) {
		print_field(&info->fields[i], desc->imm + off);
		off += info->fields[i].len_bytes;
	}
	if (desc->len_bytes)
		printf(" +%u bytes %s", desc->len_bytes,
		       desc->flags & GANTRY_DESC_INLINE ? "inline" : "in the heap");
	if (status != GANTRY_OK)
		printf("  refused: %s", gantry_status_name(status));
	printf("\n");
}

/* Slots below head may hold newer tasks already; those say so by their positions. */
static void print_tasks(const struct gantry_ring_map *map, bool control, uint32_t version)
{
	uint64_t done = gantry_load_acquire(&map->area->done);
	uint64_t head = gantry_load_acquire(&map->area->head);
	uint64_t tail = gantry_load_acquire(&map->area->tail);

	if (tail - head > map->nslots) {
		printf("      tail makes no sense\n");
		return;
	}
	for (uint64_t pos = GANTRY_MAX(done, tail - GANTRY_MIN(tail, map->nslots)); pos < tail;
	     pos++) {
		struct gantry_desc desc;

		gantry_region_copy_out(&desc, &map->desc[pos & map->mask], sizeof(desc));
		printf("      %s %" PRIu64, pos < head ? "taken" : "ready", pos + 1);
		print_desc(&desc, control, version);
	}
}

static void print_queue(const struct dump *d, uint32_t slot, bool verbose)
{
	struct gantry_queue_area a;
	struct gantry_ring_map map;

	if (gantry_ring_map_init(&map, &d->segment, d->header.queues_off, slot, d->header.nslots) <
	    0) {
		printf("%5u lies outside the segment\n", slot);
		return;
	}
	gantry_region_copy_out(&a, map.area, sizeof(a));
	if (a.state == GANTRY_QUEUE_CLOSED && a.tail == 0)
		return;
	printf("%5u %-8s %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %8" PRIu64 " %6" PRId64
	       " %6u %7s\n",
	       slot, queue_state(a.state), a.tail, a.head, a.done, a.nfailed,
	       (int64_t)(a.tail - a.head), a.waiters, a.parked ? "yes" : "no");
	if (verbose)
		print_tasks(&map, slot == 0, d->header.version);
}

int main(int argc, char **argv)
{
	bool verbose = argc == 3 && strcmp(argv[1], "-v") == 0;
	struct dump d;
	int r;

	if (argc != 2 && !verbose) {
		fprintf(stderr, "usage: ring-dump [-v] PATH\n");
		return 2;
	}
	r = map_file(argv[argc - 1], &d.segment);
	if (r < 0) {
		fprintf(stderr, "ring-dump: %s: %s\n", argv[argc - 1], strerror(-r));
		return 1;
	}
	gantry_region_copy_out(&d.header, d.segment.base, sizeof(d.header));
	if (check_header(&d.header, d.segment.bytes) < 0)
		return 1;
	print_header(&d.header);
	for (uint32_t slot = 0; slot < d.header.nqueues; slot++)
		print_queue(&d, slot, verbose);
	return 0;
}
