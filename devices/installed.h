/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Installed images that are shared objects with host functions, as devices/module.h has them: what backends that load
 * such do alike.
 *
 * Trust: the files are the administrator's. Threads: any. Blocking: a library's constructors run.
 */
#ifndef GANTRY_DEVICES_INSTALLED_H
#define GANTRY_DEVICES_INSTALLED_H

#include "base/err.h"
#include "devices/module.h"

/*
 * Loads the object at @path for dlsym() and dlclose(). -ENOEXEC: it is not a path (a bare name would be searched for in
 * the system's folders), or no shared object.
 */
int gantry_installed_open(const char *path, void **ret_library, struct gantry_err *err);

/* The host function of kernel @symbol, or NULL; @library may be NULL. */
gantry_body *gantry_installed_body(void *library, const char *symbol);

/* For gantry_env.parallel where a run has one lane: the caller does it all. */
void gantry_installed_serial(struct gantry_env *env, uint64_t n, uint64_t grain,
			     void (*fn)(void *arg, uint64_t begin, uint64_t end), void *arg);

#endif
