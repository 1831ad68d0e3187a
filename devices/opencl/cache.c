/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binaries of installed modules. Compiling one takes seconds; with a folder for them (option cache) that happens once for
 * each text, device and driver, and not in each worker. Whoever may write to the folder decides what code workers run:
 * it is the administrator's, or the workers' own user's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sha256.h"
#include "base/str.h"
#include "devices/opencl/backend.h"
#include "devices/opencl/container.h"

/* Grows with what build.c does with a text. */
#define VERSION		 "gantry opencl 1"
#define MAX_BINARY_BYTES (256u << 20)
#define PATH_ROOM	 256u

static int name_of(const struct gantry_dev *dev, const char *text, size_t nbytes, char *path)
{
	uint8_t hash[GANTRY_SHA256_BYTES];
	char hex[2 * GANTRY_SHA256_BYTES + 1];
	struct gantry_sha256 sum;

	gantry_sha256_init(&sum);
	gantry_sha256_add(&sum, VERSION, sizeof(VERSION));
	gantry_sha256_add(&sum, dev->identity, strlen(dev->identity) + 1);
	gantry_sha256_add(&sum, text, nbytes);
	gantry_sha256_end(&sum, hash);
	if (gantry_hex_encode(hash, sizeof(hash), hex, sizeof(hex)) < 0)
		return -EINVAL;
	return gantry_str_format(path, PATH_ROOM, "%s/%.32s.bin", dev->cache, hex);
}

/* A file that is damaged is as good as none. */
static bool find(const char *path, void **ret_binary, size_t *ret_nbytes)
{
	char *data = NULL;
	size_t n = 0;

	if (gantry_file_read(path, MAX_BINARY_BYTES, &data, &n) < 0)
		return false;
	if (gantry_opencl_container_check(data, n, NULL, NULL) < 0) {
		free(data);
		return false;
	}
	*ret_binary = data;
	*ret_nbytes = n;
	return true;
}

int gantry_opencl_binary_of(struct gantry_dev *dev, const char *text, size_t nbytes,
			    void **ret_binary, size_t *ret_nbytes, struct gantry_err *err)
{
	struct gantry_opencl_work work = dev->work;
	_cleanup_free_ void *binary = NULL;
	char path[PATH_ROOM];
	size_t n = 0;
	bool found = false;
	int r;

	if (dev->cache && name_of(dev, text, nbytes, path) == 0) {
		work.keep = path;
		found = find(path, &binary, &n);
	}
	/* Also what was found is tried: it must not end this process, and writes PoCL's files. */
	if (found && gantry_opencl_builder_try(&work, binary, n, NULL) < 0) {
		free(binary);
		binary = NULL;
		found = false;
	}
	if (!found) {
		r = gantry_opencl_builder_compile(&work, text, nbytes, &binary, &n, NULL, err);
		if (r == 0)
			r = gantry_opencl_builder_try(&work, binary, n, err);
		if (r < 0)
			return r;
	}
	*ret_binary = GANTRY_TAKE_PTR(binary);
	*ret_nbytes = n;
	return 0;
}
