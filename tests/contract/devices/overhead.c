/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command costs besides its work: nanoseconds per command, submitted and polled in batches,
 * for the device that the arguments describe:
 *
 *	overhead BACKEND [KEY=VALUE ...]
 *
 * Commands are fills of 8 bytes, so the figure includes about 2 ns of work where data is moved at
 * all.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "devices/registry.h"

#define NCOMMANDS 2000000u
#define NROUNDS	  5u

static void wake(void *cookie)
{
	(void)cookie;
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	(void)tag;
	return 0;
}

static unsigned int poll_once(const struct gantry_device *device)
{
	struct gantry_done done[32];

	return device->backend->poll(device->dev, done, GANTRY_ARRAY_SIZE(done));
}

/* Nanoseconds for NCOMMANDS commands of which at most @window are in the device. */
static uint64_t run(const struct gantry_device *device, struct gantry_stream *stream,
		    struct gantry_cmd *cmd, unsigned int window)
{
	uint64_t start = gantry_now_ns();
	unsigned int submitted = 0, finished = 0;

	while (finished < NCOMMANDS) {
		while (submitted < NCOMMANDS && submitted - finished < window) {
			cmd->tag = submitted;
			if (device->backend->submit(stream, cmd) < 0)
				break;
			submitted++;
		}
		finished += poll_once(device);
	}
	return gantry_now_ns() - start;
}

static int measure(const struct gantry_device *device)
{
	static const unsigned int windows[] = { 1, 16, 64 };
	static uint64_t memory[512];
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_stream_attr attr = { 0 };
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_FILL };
	struct gantry_stream *stream;

	if (device->backend->mem_host(device->dev, memory, sizeof(memory), &cmd.fill.dst.mem,
				      &err) < 0 ||
	    (device->backend->thread_enter &&
	     device->backend->thread_enter(device->dev, &err) < 0) ||
	    device->backend->stream_create(device->dev, &attr, &stream, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return EXIT_FAILURE;
	}
	cmd.fill.dst.len = 8;
	cmd.fill.pattern_bytes = 8;
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(windows); i++) {
		uint64_t best = UINT64_MAX;

		for (unsigned int round = 0; round < NROUNDS; round++) {
			uint64_t ns = run(device, stream, &cmd, windows[i]);

			best = ns < best ? ns : best;
		}
		printf("window %2u: %.1f ns a command\n", windows[i], (double)best / NCOMMANDS);
	}
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	const struct gantry_device_host host = { .wake = wake, .cancelled = cancelled };
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device device;
	int status;

	if (argc < 2) {
		fprintf(stderr, "usage: overhead BACKEND [KEY=VALUE ...]\n");
		return EXIT_FAILURE;
	}
	struct gantry_device_conf conf = {
		.name = "dut",
		.backend = argv[1],
		.nopts = (uint32_t)(argc - 2),
		.opts = (const char *const *)(argv + 2),
	};
	if (gantry_device_open(&conf, &host, &device, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return EXIT_FAILURE;
	}
	status = measure(&device);
	gantry_device_close(&device);
	return status;
}
