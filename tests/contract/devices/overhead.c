/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command costs besides its work: nanoseconds per command, submitted and polled in batches,
 * for the device that the arguments describe:
 *
 *	overhead [--launch IMAGE] [--commands N] BACKEND [KEY=VALUE ...]
 *
 * Commands are fills of 8 bytes, so the figure includes about 2 ns of work where data is moved at all; with --launch they are
 * launches of "empty" of that image. A fake driver says nothing about time; what calls and instructions a command
 * takes besides it is seen when this runs under callgrind, with fewer commands.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "devices/registry.h"
#include "devices/signature.h"

#define NCOMMANDS 2000000u
#define NROUNDS	  5u

static unsigned int ncommands = NCOMMANDS, nrounds = NROUNDS;

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

/* Nanoseconds for all commands of which at most @window are in the device. */
static uint64_t run(const struct gantry_device *device, struct gantry_stream *stream,
		    struct gantry_cmd *cmd, unsigned int window)
{
	uint64_t start = gantry_now_ns();
	unsigned int submitted = 0, finished = 0;

	while (finished < ncommands) {
		while (submitted < ncommands && submitted - finished < window) {
			cmd->tag = submitted;
			if (device->backend->submit(stream, cmd) < 0)
				break;
			submitted++;
		}
		if (device->backend->flush)
			device->backend->flush(stream);
		finished += poll_once(device);
	}
	return gantry_now_ns() - start;
}

static int make_fill(const struct gantry_device *device, struct gantry_cmd *cmd,
		     struct gantry_err *err)
{
	static uint64_t memory[512];
	int r = device->backend->mem_host(device->dev, memory, sizeof(memory), &cmd->fill.dst.mem,
					  err);

	cmd->kind = GANTRY_CMD_FILL;
	cmd->fill.dst.len = 8;
	cmd->fill.pattern_bytes = 8;
	return r;
}

static int make_launch(const struct gantry_device *device, const char *path, struct gantry_cmd *cmd,
		       struct gantry_err *err)
{
	static struct gantry_signature none;
	static char code[1 << 20];
	struct gantry_image *image;
	FILE *file = fopen(path, "r");
	size_t n = file ? fread(code, 1, sizeof(code), file) : 0;
	int r;

	if (file)
		(void)fclose(file);
	cmd->kind = GANTRY_CMD_LAUNCH;
	for (unsigned int i = 0; i < 3; i++)
		cmd->launch.grid[i] = cmd->launch.block[i] = 1;
	r = gantry_signature_parse("void", &none, err);
	if (r == 0)
		r = device->backend->image_load(device->dev, NULL, code, n, &image, err);
	return r < 0 ? r
		     : device->backend->kernel_get(image, "empty", &none, &cmd->launch.kernel, err);
}

static int measure(const struct gantry_device *device, const char *image)
{
	static const unsigned int windows[] = { 1, 16, 64 };
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_stream_attr attr = { 0 };
	struct gantry_cmd cmd = { 0 };
	struct gantry_stream *stream;

	if ((device->backend->thread_enter &&
	     device->backend->thread_enter(device->dev, &err) < 0) ||
	    (image ? make_launch(device, image, &cmd, &err) : make_fill(device, &cmd, &err)) < 0 ||
	    device->backend->stream_create(device->dev, &attr, &stream, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return EXIT_FAILURE;
	}
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(windows); i++) {
		uint64_t best = UINT64_MAX;

		for (unsigned int round = 0; round < nrounds; round++) {
			uint64_t ns = run(device, stream, &cmd, windows[i]);

			best = ns < best ? ns : best;
		}
		printf("window %2u: %.1f ns a command\n", windows[i], (double)best / ncommands);
	}
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	const struct gantry_device_host host = { .wake = wake, .cancelled = cancelled };
	struct gantry_err err = GANTRY_ERR_NONE;
	const char *image = NULL;
	struct gantry_device device;
	int status;

	for (; argc > 2 && strncmp(argv[1], "--", 2) == 0; argc -= 2, argv += 2) {
		if (strcmp(argv[1], "--launch") == 0)
			image = argv[2];
		else
			ncommands = (unsigned int)strtoul(argv[2], NULL, 10);
	}
	if (argc < 2 || ncommands == 0) {
		fprintf(stderr, "usage: overhead [--launch IMAGE] [--commands N] BACKEND "
				"[KEY=VALUE ...]\n");
		return EXIT_FAILURE;
	}
	nrounds = ncommands < NCOMMANDS ? 1 : NROUNDS;
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
	status = measure(&device, image);
	gantry_device_close(&device);
	return status;
}
