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
#include "devices/device.h"
#include "devices/module.h"
#include "devices/signature.h"

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

/*
 * What a command's host function is offered of a range: the backend's, for as long as the command is enqueued. 0 or -errno.
 */
struct gantry_opencl_buffer;
typedef int gantry_installed_take(struct gantry_stream *stream, const struct gantry_range *range,
				  uint32_t mode, struct gantry_opencl_buffer **ret_buffer);

/*
 * Runs @body, a kernel with signature @sig, whose buffers are devices/opencl/module.h's. 0: it has run; what it returned is
 * *@ret_result. -errno: what it would have used could not be taken.
 */
int gantry_installed_run(struct gantry_stream *stream, struct gantry_env *env, gantry_body *body,
			 const struct gantry_signature *sig, const struct gantry_cmd_launch *launch,
			 gantry_installed_take *take, int *ret_result);
/* How the command of a body ends that returned @result. */
void gantry_installed_ended(struct gantry_done *done, int result);

#endif
