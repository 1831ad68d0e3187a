/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints a session's ledger: ledger-dump [-v] PATH
 * PATH is the ledger's memfd, as /proc/PID/fd/N of the monitor, the agent or a worker, or a copy in a file. With -v
 * also each object and each task that is not finished. Exit status 1 when the ledger would be refused at adoption:
 * it then prints the header and why.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "migration/ledger.h"
#include "proto/codec.h"

static int map_file(const char *path, const uint8_t **ret_base, uint64_t *ret_bytes)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *base;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)sizeof(struct gantry_ledger_header))
		return -ENODATA;
	base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	*ret_base = base;
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

static void print_header(const struct gantry_ledger_header *h)
{
	printf("session %" PRIu64 " of %.32s, epoch %" PRIu64 "%s\n", h->session_id, h->tenant,
	       h->epoch, h->detach ? ", ending" : "");
	if (h->condemned)
		printf("condemned: %s\n", gantry_status_name(-(int)h->condemned));
	printf("%u queues of %u slots, segment %" PRIu64 " bytes, slab %" PRIu64 " bytes\n",
	       h->nqueues, h->nslots, h->segment_bytes, h->slab_bytes);
	printf("virtual %" PRIu64 " bytes, resident %" PRIu64 " (peak %" PRIu64 ")\n",
	       h->virtual_used, h->resident_used, h->resident_peak);
	printf("tasks finished %" PRIu64 ", failed %" PRIu64 "; device time %" PRIu64
	       " ns; worker restarts %" PRIu64 "\n\n",
	       h->tasks_finished, h->tasks_failed, h->device_ns, h->worker_restarts);
	printf("%5s %-8s %12s %12s %12s %8s %6s %8s %s\n", "queue", "state", "taken", "issued",
	       "done", "failed", "device", "priority", "");
}

static void print_task(const struct gantry_ledger_task *task, uint64_t pos, uint64_t issued)
{
	const struct gantry_op_info *info = gantry_op_info(task->desc.op);

	printf("      %s %" PRIu64 " %s", pos < issued ? "in doubt" : "accepted", pos + 1,
	       info ? info->name : "?");
	if (task->desc.len_bytes)
		printf(" +%u bytes", task->desc.len_bytes);
	printf("\n");
}

static void print_queue(const struct gantry_ledger *l, uint32_t slot, bool verbose)
{
	const struct gantry_ledger_queue *q = &l->queues[slot];
	static const char *const states[] = { "closed", "open", "closing" };

	if (q->state == GANTRY_QUEUE_CLOSED && q->taken == 0)
		return;
	printf("%5u %-8s %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %8" PRIu64 " %6u %8d%s%s%s\n",
	       slot, q->state < 3 ? states[q->state] : "?", q->taken, q->issued, q->done,
	       q->nfailed, q->device, q->priority, q->paused ? " paused" : "",
	       q->guest_paused ? " paused-by-guest" : "", q->broken ? " broken" : "");
	for (uint64_t pos = q->done; verbose && pos < q->taken; pos++)
		print_task(gantry_ledger_task(l, slot, pos), pos, q->issued);
}

static void print_object(const struct gantry_ledger_object *o, uint32_t slot)
{
	static const char *const places[] = { "nowhere", "heap", "slab",  "own",  "window",
					      "away",	 "lost", "image", "range" };

	printf("  %" PRIx64 "%s ", GANTRY_HANDLE(o->type, o->gen, slot),
	       o->state == GANTRY_OBJECT_DYING ? " (dying)" : "");
	switch (o->type) {
	case GANTRY_HANDLE_BUFFER:
		printf("buffer %" PRIu64 " bytes, %s at %#" PRIx64 ", %" PRIu64
		       " charged, copies on devices %#x\n",
		       o->buffer.bytes,
		       o->buffer.place < sizeof(places) / sizeof(places[0])
			       ? places[o->buffer.place]
			       : "?",
		       o->buffer.off, o->buffer.charged_bytes, o->buffer.replicas);
		break;
	case GANTRY_HANDLE_KERNEL:
		if (GANTRY_LEDGER_IS_OWN(&o->kernel))
			printf("kernel of image 0x%" PRIx64 " at %" PRIu64 "\n",
			       o->kernel.own.image, o->kernel.own.off);
		else
			printf("kernel %.96s\n", o->kernel.name);
		break;
	case GANTRY_HANDLE_IMAGE:
		if (GANTRY_LEDGER_IS_OWN(&o->image))
			printf("image of the guest's, %" PRIu64 " bytes at %" PRIu64 " for %s\n",
			       o->image.own.bytes, o->image.own.off,
			       gantry_kind_name((int)o->image.own.kind));
		else
			printf("image %.96s\n", o->image.module);
		break;
	default:
		printf("of unknown type %u\n", o->type);
	}
}

static void print_objects(const struct gantry_ledger *l, bool verbose)
{
	uint32_t counts[256] = { 0 };

	if (verbose)
		printf("\n");
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		if (l->objects[i].state == GANTRY_OBJECT_FREE)
			continue;
		counts[l->objects[i].type]++;
		if (verbose)
			print_object(&l->objects[i], i);
	}
	printf("\n%u buffers, %u kernels, %u images\n", counts[GANTRY_HANDLE_BUFFER],
	       counts[GANTRY_HANDLE_KERNEL], counts[GANTRY_HANDLE_IMAGE]);
}

/* A copy: the owner goes on writing, and what was checked must be what is printed. */
static int check_copy(const uint8_t *base, uint64_t bytes, uint8_t **ret_copy,
		      struct gantry_err *err)
{
	_cleanup_free_ uint8_t *copy =
		aligned_alloc(GANTRY_PAGE, (bytes + GANTRY_PAGE - 1) / GANTRY_PAGE * GANTRY_PAGE);
	int r;

	if (!copy)
		return gantry_err_set(err, -ENOMEM, "copying %" PRIu64 " bytes", bytes);
	memcpy(copy, base, bytes);
	r = gantry_ledger_check(copy, bytes, err);
	*ret_copy = GANTRY_TAKE_PTR(copy);
	return r;
}

int main(int argc, char **argv)
{
	bool verbose = argc == 3 && strcmp(argv[1], "-v") == 0;
	_cleanup_free_ uint8_t *copy = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_ledger l;
	const uint8_t *base = NULL;
	uint64_t bytes = 0;
	int r;

	if (argc != 2 && !verbose) {
		fprintf(stderr, "usage: ledger-dump [-v] PATH\n");
		return 2;
	}
	r = map_file(argv[argc - 1], &base, &bytes);
	if (r < 0) {
		fprintf(stderr, "ledger-dump: %s: %s\n", argv[argc - 1], strerror(-r));
		return 1;
	}
	r = check_copy(base, bytes, &copy, &err);
	if (!copy ||
	    (r < 0 && ((struct gantry_ledger_header *)copy)->magic != GANTRY_LEDGER_MAGIC)) {
		fprintf(stderr, "ledger-dump: no ledger: %s\n", err.text);
		return 1;
	}
	l = (struct gantry_ledger){ .hdr = (struct gantry_ledger_header *)copy, .bytes = bytes };
	print_header(l.hdr);
	if (r < 0) {
		/* Offsets in it are not to be followed. */
		printf("refused at adoption: %s\n", err.text);
		return 1;
	}
	l.nqueues = l.hdr->nqueues;
	l.nslots = l.hdr->nslots;
	l.queues = (struct gantry_ledger_queue *)(copy + l.hdr->queues_off);
	l.objects = (struct gantry_ledger_object *)(copy + l.hdr->objects_off);
	l.tasks = (struct gantry_ledger_task *)(copy + l.hdr->tasks_off);
	for (uint32_t slot = 0; slot < l.hdr->nqueues; slot++)
		print_queue(&l, slot, verbose);
	print_objects(&l, verbose);
	return 0;
}
