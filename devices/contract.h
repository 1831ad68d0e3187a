/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract checker: a filter, "contract", that watches both sides of devices/device.h.
 *
 * Of the caller: the one thread, the order of calls, objects alive and of this device, spans inside
 * their memory, arguments that fit the signature, nothing destroyed while in use, no submission
 * after an error that ended its stream or device. Of the backend: exactly one gantry_done for each
 * command, in order within a stream, statuses and blasts that exist and fit each other, outputs and
 * sentences as the return value says.
 *
 * A violation is a bug of ours, so it ends the process: one sentence on stderr, then abort(). It
 * allocates and takes a lock on each submission: for tests, not for production.
 */
#ifndef GANTRY_DEVICES_CONTRACT_H
#define GANTRY_DEVICES_CONTRACT_H

#include "devices/filter.h"

extern const struct gantry_filter gantry_filter_contract;

/*
 * Puts a checker on an opened device, for tests that bring a backend of their own; what such a
 * backend asks of its host is not checked. *@device is replaced, also as the one to close.
 */
int gantry_contract_wrap(struct gantry_device *device, struct gantry_err *err);

#endif
