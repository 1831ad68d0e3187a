/* SPDX-License-Identifier: Apache-2.0 */
/* Where devices are, from the kernel's own files: for builds without hwloc. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "host-agent/worker/affinity.h"

static int read_list(const char *path, cpu_set_t *ret_set)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[4096];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return -ENOENT;
	text[n] = '\0';
	return gantry_cpulist_parse(text, ret_set) < 0 ? -ENOENT : 0;
}

int gantry_topology_near(const char *pci, int node, cpu_set_t *ret_set)
{
	unsigned int domain, bus, dev, func;
	char path[128];

	if (!pci)
		/* it fits */
		(void)gantry_str_format(path, sizeof(path),
					"/sys/devices/system/node/node%d/cpulist", node);
	else if (sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &dev, &func) == 4)
		(void)gantry_str_format(path, sizeof(path), /* likewise */
					"/sys/bus/pci/devices/%04x:%02x:%02x.%x/local_cpulist",
					domain, bus, dev, func);
	else
		return -EINVAL;
	return read_list(path, ret_set);
}
