/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backends of this build, and devices made from a configuration, with filters on top.
 *
 * Threads: the list is constant; gantry_device_open() belongs to the device thread.
 */
#ifndef GANTRY_DEVICES_REGISTRY_H
#define GANTRY_DEVICES_REGISTRY_H

#include "devices/device.h"

/* NULL-terminated, in build order. */
extern const struct gantry_backend *const gantry_backends[];

/* NULL if this build has none of that name. */
const struct gantry_backend *gantry_backend_find(const char *name);

/*
 * An opened device with the backend that serves it: a filter's or the contract checker's where the
 * configuration asks for them with opts "filters=record,delay,error" (outermost first; "contract"
 * is the checker) and "FILTER.key=value".
 */
struct gantry_device {
	const struct gantry_backend *backend;
	struct gantry_dev *dev;
	struct gantry_device_info info;
};

/* -ENODEV: unknown backend or no such device; else as gantry_backend.open. */
int gantry_device_open(const struct gantry_device_conf *conf, const struct gantry_device_host *host,
		       struct gantry_device *ret_device, struct gantry_err *err);
void gantry_device_close(struct gantry_device *device);

#endif
