/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ownership that ends with the scope.
 *
 * A variable marked here is released when it goes out of scope; GANTRY_TAKE_PTR() and
 * GANTRY_TAKE_FD() mark the line where ownership moves on instead. A function that uses these uses
 * no goto for the same objects.
 *
 *	_cleanup_close_ int fd = -EBADF;
 *	_cleanup_free_ char *text = NULL;
 *	_cleanup_(gantry_guest_freep) struct gantry_guest *g = gantry_guest_new();
 *	...
 *	*ret_guest = GANTRY_TAKE_PTR(g);
 *
 * Always initialise: the release runs on every way out.
 */
#ifndef GANTRY_BASE_CLEANUP_H
#define GANTRY_BASE_CLEANUP_H

#include <errno.h>
#include <stdlib.h>

#include "base/fd.h"

#define _cleanup_(func) __attribute__((cleanup(func)))
#define _cleanup_free_	_cleanup_(gantry_freep)
#define _cleanup_close_ _cleanup_(gantry_closep)

/* The pointer's value, leaving NULL behind. */
#define GANTRY_TAKE_PTR(ptr)                          \
	__extension__({                               \
		__typeof__(ptr) *take_from_ = &(ptr); \
		__typeof__(ptr) taken_ = *take_from_; \
		*take_from_ = NULL;                   \
		taken_;                               \
	})

/* The descriptor, leaving -EBADF behind. */
#define GANTRY_TAKE_FD(fd)                \
	__extension__({                   \
		int *take_from_ = &(fd);  \
		int taken_ = *take_from_; \
		*take_from_ = -EBADF;     \
		taken_;                   \
	})

/*
 * Define <func>p(), for use in _cleanup_(), from <func>(@type), where @type is a pointer type:
 * GANTRY_DEFINE_CLEANUP(struct gantry_guest *, gantry_guest_free) gives gantry_guest_freep().
 */
#define GANTRY_DEFINE_CLEANUP(type, func)                                \
	static inline __attribute__((unused)) void func##p(type *object) \
	{                                                                \
		if (*object)                                             \
			func(*object);                                   \
	}                                                                \
	struct gantry_cleanup_needs_semicolon_

static inline void gantry_freep(void *ptr)
{
	free(*(void **)ptr);
}

static inline void gantry_closep(int *fd)
{
	gantry_fd_close(*fd);
}

#endif
