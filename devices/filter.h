/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters: backends that stand on another backend and change, delay, check or write down its calls.
 *
 * A filter opens what lies beneath it with gantry_filter_open_next() and offers a vtable made by
 * gantry_filter_init(): every member passes through until the filter replaces it. Objects (streams,
 * memory, images, kernels) pass through as they are, unless the filter wraps them; a member that
 * takes such an object and no device can be copied from the vtable beneath, and is.
 *
 * Threads: as gantry_backend. What a filter adds must keep the contract of devices/device.h on both
 * sides.
 */
#ifndef GANTRY_DEVICES_FILTER_H
#define GANTRY_DEVICES_FILTER_H

#include "devices/registry.h"

/* What lies beneath a filter; private to the registry. */
struct gantry_filter_next;

struct gantry_filter {
	const char *name;
	/*
	 * As gantry_backend.open. *@ret_device gets a vtable and a device of the filter's; its
	 * close() closes the device beneath.
	 */
	int (*open)(const struct gantry_filter_next *next, const struct gantry_device_conf *conf,
		    const struct gantry_device_host *host, struct gantry_device *ret_device,
		    struct gantry_err *err);
};

/* Opens the filter or backend beneath. @host lives as long as the device. */
int gantry_filter_open_next(const struct gantry_filter_next *next,
			    const struct gantry_device_conf *conf,
			    const struct gantry_device_host *host, struct gantry_device *ret_device,
			    struct gantry_err *err);

/*
 * The first member of a filter's struct gantry_dev. @ops is the vtable that the filter offers;
 * members that the device beneath lacks are NULL in it.
 */
struct gantry_filter_dev {
	struct gantry_device next;
	struct gantry_backend ops;
};

/* @close frees the filter's device after it has closed the one beneath. */
void gantry_filter_init(struct gantry_filter_dev *dev, const struct gantry_device *next,
			void (*close)(struct gantry_dev *dev));

/* NULL-terminated: the filters of this build. */
extern const struct gantry_filter *const gantry_filters[];

#endif
