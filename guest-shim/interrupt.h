/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Being woken by an ivshmem device's interrupt, through vfio: where the device is bound to vfio-pci, which needs a virtual
 * IOMMU, and no other process holds it. Memory and doorbell stay those of sysfs.
 *
 * Threads: sleep from any; wanted_back from one at a time; open and close while nobody else uses it.
 */
#ifndef GANTRY_GUEST_SHIM_INTERRUPT_H
#define GANTRY_GUEST_SHIM_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

#include "guest-shim/listener.h"
#include "guest-shim/pcidev.h"

#define GANTRY_INTERRUPT_VECTOR 0u

struct gantry_interrupt {
	int container;
	int group;
	int device;
	int event;   /* signalled by the vector */
	int request; /* signalled when the machine wants the device back */
	struct gantry_listener listener;
	uint32_t is_armed;
};

/* 0; -errno where there is no such thing, which is no failure: @ret_interrupt is closed then. */
int gantry_interrupt_open(const struct gantry_pcidev *dev, struct gantry_interrupt *ret_interrupt);

/* Also of one that is closed, and in a forked child. */
void gantry_interrupt_close(struct gantry_interrupt *i);

/* Gives the device back, while others may be asleep: nobody is woken by it any more. */
void gantry_interrupt_release(struct gantry_interrupt *i);

/*
 * One sleep while *@word is @seen; may come back early. False, at once, where no interrupt wakes anybody.
 */
bool gantry_interrupt_sleep(struct gantry_interrupt *i, const uint64_t *word, uint64_t seen,
			    uint64_t deadline_ns);

/* Whether the machine wants the device back. Never waits. */
bool gantry_interrupt_wanted_back(const struct gantry_interrupt *i);

#endif
