/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles OpenCL C for PoCL: board-image PLATFORM TEXT BINARY [TEXT BINARY ...]. Exit status: 0; 1, with a sentence; 77 where there is
 * no such platform.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "devices/opencl/builder.h"

#define MAX_TEXT_BYTES (1u << 20)

static int make(const struct gantry_opencl_work *work, const char *from, const char *to,
		struct gantry_err *err)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_free_ void *binary = NULL;
	size_t len, n;
	int r = gantry_file_read(from, MAX_TEXT_BYTES, &text, &len);

	if (r < 0)
		return gantry_err_set_errno(err, r, "%s", from);
	r = gantry_opencl_builder_compile(work, text, len, &binary, &n, NULL, err);
	if (r < 0)
		return r;
	r = gantry_file_replace(to, binary, n, 0644);
	return r < 0 ? gantry_err_set_errno(err, r, "%s", to) : 0;
}

int main(int argc, char **argv)
{
	struct gantry_opencl_work work = { .choice.platform = argc > 1 ? argv[1] : NULL };
	struct gantry_err err = GANTRY_ERR_NONE;
	int r = argc >= 4 && argc % 2 == 0
			? gantry_opencl_builder_start(&err)
			: gantry_err_set(&err, -EINVAL,
					 "usage: board-image PLATFORM TEXT BINARY ...");

	for (int i = 2; i + 1 < argc && r == 0; i += 2)
		r = make(&work, argv[i], argv[i + 1], &err);
	if (r < 0)
		fprintf(stderr, "board-image: %s\n", err.text);
	return r == 0 ? 0 : r == -ENODEV ? 77 : 1;
}
