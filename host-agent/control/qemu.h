/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which virtual machine a QEMU runs, by what it was started with.
 *
 * Threads: any. Blocking: as long as reading a file of /proc takes.
 */
#ifndef GANTRY_HOST_AGENT_CONTROL_QEMU_H
#define GANTRY_HOST_AGENT_CONTROL_QEMU_H

#include <stdint.h>

/* Was it started with "-uuid @uuid", as libvirt does? 1 or 0; -ENOENT: its command line cannot be read. */
int gantry_qemu_has_uuid(uint32_t pid, const char *uuid);

#endif
