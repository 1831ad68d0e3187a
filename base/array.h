/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of arrays and the object around a member. */
#ifndef GANTRY_BASE_ARRAY_H
#define GANTRY_BASE_ARRAY_H

#include <stddef.h>

/* Elements of a true array (not of a pointer). */
#define GANTRY_ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* The @type whose @member is at @ptr. @ptr must not be NULL. */
#define gantry_container_of(ptr, type, member) \
	((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
