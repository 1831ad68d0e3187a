/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest that means harm: hostile-bar FOLDER SECONDS [SEED] writes whatever into all of an ivshmem device's memory, and
 * rings every doorbell, until its time is over. FOLDER is the device's in sysfs.
 *
 * Half of its writes are nonsense anywhere; the others go where the host reads: claims that come and go, boxes with
 * messages that are nearly right, cursors of rings.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/doormem.h"

#define BURST	 4096u
#define DOORBELL 3 /* of 32-bit registers */

static uint64_t state;

static uint64_t draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static double now_s(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static volatile uint8_t *map_file(const char *folder, const char *name, uint64_t *ret_bytes)
{
	char path[512];
	struct stat st;
	void *ptr;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		perror(path);
		exit(1);
	}
	*ret_bytes = st.st_size < 4096 ? 4096 : (uint64_t)st.st_size;
	ptr = mmap(NULL, *ret_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ptr == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	(void)close(fd); /* the mapping stays */
	return ptr;
}

static void scribble(volatile uint8_t *memory, uint64_t bytes)
{
	volatile uint64_t *words = (volatile uint64_t *)memory;

	/* Small numbers, all ones, single bits: more is understood of them than of noise. */
	uint64_t value = draw();

	switch (draw() % 4) {
	case 0:
		value &= 0xff;
		break;
	case 1:
		value = UINT64_C(1) << (value % 64);
		break;
	case 2:
		value = UINT64_MAX;
		break;
	}
	words[draw() % (bytes / 8)] = value;
}

/* A claim, or its end, and a message of which one byte may be wrong. */
static void bother(volatile uint8_t *memory)
{
	uint64_t off = 4096 + draw() % GANTRY_DOORMEM_DESKS * GANTRY_DOORMEM_DESK_BYTES;
	volatile struct gantry_doormem_desk *desk = (volatile void *)(memory + off);
	struct gantry_door_hello hello = { 0 };
	const uint8_t *bytes = (const void *)&hello;

	gantry_door_header_init(&hello.h, GANTRY_DOOR_HELLO, (uint32_t)draw());
	((uint8_t *)&hello)[draw() % sizeof(hello)] = (uint8_t)draw();
	for (unsigned i = 0; i < sizeof(hello); i++)
		desk->guest_box[i] = bytes[i];
	desk->generation = desk->generation + draw() % 3;
	if (draw() % 2)
		desk->posted = desk->posted + 1;
	if (draw() % 16 == 0)
		desk->host_taken = (uint32_t)draw();
}

int main(int argc, char **argv)
{
	uint64_t bytes, register_bytes, nwrites = 0, nrings = 0;
	volatile uint8_t *memory;
	volatile uint32_t *registers;
	double end;

	if (argc < 3) {
		fprintf(stderr, "usage: hostile-bar FOLDER SECONDS [SEED]\n");
		return 2;
	}
	state = argc > 3 ? strtoull(argv[3], NULL, 0) : 88172645463325252ull;
	end = now_s() + atof(argv[2]);
	memory = map_file(argv[1], "resource2", &bytes);
	registers = (volatile uint32_t *)map_file(argv[1], "resource0", &register_bytes);
	printf("started\n");
	(void)fflush(stdout); /* the test sees what is missing */
	while (now_s() < end) {
		for (unsigned i = 0; i < BURST; i++, nwrites++) {
			/* Where desks and the first segments lie, or anywhere. */
			if (draw() % 2)
				scribble(memory, draw() % 2 ? (8u << 20) : bytes);
			else
				bother(memory);
			if (i % 16 == 0) {
				registers[DOORBELL] = (uint32_t)draw() % 3 << 16 |
						      (uint32_t)draw() %
							      (2 * GANTRY_DOORMEM_MAX_VECTORS);
				nrings++;
			}
		}
	}
	printf("wrote %" PRIu64 " times, rang %" PRIu64 " times\n", nwrites, nrings);
	return 0;
}
