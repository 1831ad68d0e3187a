/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/control/qemu.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#define CMDLINE_MAX_BYTES (256u << 10)

int gantry_qemu_has_uuid(uint32_t pid, const char *uuid)
{
	_cleanup_free_ char *line = NULL;
	char path[64];
	size_t len;

	(void)gantry_str_format(path, sizeof(path), "/proc/%u/cmdline", pid); /* it fits */
	if (pid == 0 || gantry_file_read(path, CMDLINE_MAX_BYTES, &line, &len) < 0)
		return -ENOENT;
	for (const char *word = line; word < line + len; word += strlen(word) + 1)
		if (strcmp(word, "-uuid") == 0 && word + 6 < line + len)
			return strcmp(word + 6, uuid) == 0;
	return 0;
}
