/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A candidate that does what the file beside it, PROGRAM.does, says: its first line is a word, the rest what it says
 * of itself.
 *   silent    says nothing, and waits to be ended
 *   ends      says it, and ends
 *   waits     says it, and waits; ends when it was given everything, without the baton
 *   stalls    says it, and waits even when it was given everything, without the baton
 *   takes     takes the baton and says so, and dies of SIGABRT
 *   grabs     takes the baton, and dies without saying so
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "host-agent/monitor/link.h"

static char *read_orders(size_t *ret_len)
{
	char path[PATH_MAX];
	char *text;
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 8);

	if (n < 0)
		return NULL;
	memcpy(path + n, ".does", sizeof(".does"));
	return gantry_file_read(path, 65536, &text, ret_len) < 0 ? NULL : text;
}

static int say(int sock, const char *text, size_t len)
{
	int fd = memfd_create("hello", MFD_CLOEXEC);

	if (fd < 0 || gantry_write_all(fd, text, len) < 0)
		return -1;
	return gantry_link_send(sock, GANTRY_MONITOR_HELLO, 0, 0, NULL, fd);
}

static int take(struct gantry_store *store)
{
	char byte;
	int baton = gantry_store_find(store, GANTRY_MONITOR_BATON);

	return baton >= 0 && read(baton, &byte, 1) == 1 ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct gantry_store store;
	int32_t restarts;
	size_t len = 0;
	char *orders = read_orders(&len), *newline = orders ? strchr(orders, '\n') : NULL;
	int sock = -1;

	for (int i = 1; i < argc; i++)
		if (gantry_str_starts(argv[i], "--agent-fd="))
			sock = atoi(argv[i] + strlen("--agent-fd="));
	if (sock < 0 || !newline)
		return 3;
	*newline = '\0';
	if (strcmp(orders, "silent") == 0) {
		(void)pause();
		return 4;
	}
	if (say(sock, newline + 1, len - (size_t)(newline + 1 - orders)) < 0)
		return 5;
	if (strcmp(orders, "ends") == 0)
		return 6;
	gantry_store_init(&store, true);
	if (gantry_link_take_over(sock, 60000, &store, &restarts) < 0)
		return 7;
	if (strcmp(orders, "waits") == 0)
		return 8;
	if (strcmp(orders, "stalls") == 0)
		(void)pause();
	if (take(&store) < 0)
		return 9;
	if (strcmp(orders, "takes") == 0 &&
	    gantry_link_send(sock, GANTRY_MONITOR_TAKEN, 0, 0, NULL, -EBADF) < 0)
		return 10;
	abort();
}
