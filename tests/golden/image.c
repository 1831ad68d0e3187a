/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The image format as bytes: a small image with a record of each type, 32 bytes a line; runs of equal lines are
 * counted. To be compared with image-1.txt: two builds that print the same read each other's images.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "migration/image.h"

#define LINE 32

static uint8_t line[LINE], before[LINE];
static size_t nline, nequal;

static void print_line(void)
{
	for (size_t i = 0; i < LINE; i++)
		printf("%02x", before[i]);
	printf(nequal > 1 ? " x %zu\n" : "\n", nequal);
}

static int print(void *cookie, const void *data, size_t len)
{
	const uint8_t *p = data;

	(void)cookie;
	for (; len > 0; len--) {
		line[nline++] = *p++;
		if (nline < LINE)
			continue;
		nline = 0;
		if (nequal > 0 && memcmp(line, before, LINE) != 0) {
			print_line();
			nequal = 0;
		}
		memcpy(before, line, LINE);
		nequal++;
	}
	return 0;
}

static void fill(struct gantry_ledger *ledger)
{
	struct gantry_ledger_object *o = &ledger->objects[9];

	ledger->queues[1].taken = 5;
	ledger->queues[1].issued = ledger->queues[1].done = 4;
	ledger->queues[1].state = GANTRY_QUEUE_OPEN;
	ledger->queues[1].kind = GANTRY_KIND_CPU;
	gantry_ledger_task(ledger, 1, 4)->desc.op = 42;
	o->gen = 2;
	o->type = GANTRY_HANDLE_BUFFER;
	o->state = GANTRY_OBJECT_LIVE;
	o->buffer.bytes = 100;
	o->buffer.rights = GANTRY_RW;
}

int main(void)
{
	struct gantry_image_writer w = { .write = print };
	const struct gantry_image_session session = {
		.ledger_version = GANTRY_LEDGER_VERSION_OLDEST, /* frozen with it */
		.wire_version = 1,
		.nqueues = 2,
		.nslots = 16,
		.segment_bytes = 4 << 20,
		.slab_bytes = 1 << 20,
		.store_bytes = GANTRY_LEDGER_STORE_BYTES,
		.virtual_bytes = 3 << 20,
		.mem_bytes = 2 << 20,
		.session_id = 7,
		.epoch = 3,
		.resident_bytes = 4096,
		.attached_unix_ns = 11,
		.flags = GANTRY_IMAGE_RELAYED,
		.inflight = 12,
		.nonce = "a nonce",
		.token = "a token",
		.tenant = "red",
		.program = "a program",
		.host = "north",
		.ndevices = 1,
		.devices = { { .name = "cpu0", .kind = GANTRY_KIND_CPU } },
	};
	static uint8_t page[GANTRY_PAGE];
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_ledger ledger;
	int fd;
	int r = gantry_ledger_create(7, "red", 2, 16, session.segment_bytes, session.slab_bytes,
				     &ledger, &fd, &err);

	if (r < 0)
		return 1;
	fill(&ledger);
	memset(page, 0x5a, sizeof(page));
	r = gantry_image_write_session(&w, &session);
	r = r < 0 ? r : gantry_image_write_round(&w, 1);
	r = r < 0 ? r : gantry_image_write_pages(&w, GANTRY_IMAGE_SLAB, 4096, page, 4096, NULL);
	r = r < 0 ? r : gantry_image_write_zero(&w, GANTRY_IMAGE_SEGMENT, 8192, 4096);
	r = r < 0 ? r : gantry_image_write_ledger(&w, &ledger);
	r = r < 0 ? r : gantry_image_write_end(&w);
	if (nequal > 0)
		print_line();
	for (size_t i = 0; i < nline; i++)
		printf("%02x", line[i]);
	printf("\n%zu records, %zu bytes\n", (size_t)w.nrecords, (size_t)w.nbytes);
	gantry_ledger_close(&ledger);
	gantry_fd_close(fd);
	return r < 0;
}
