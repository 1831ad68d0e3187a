/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the author of a kernel for the fake driver sees.
 *
 * An "image" of the fake driver is text that names a shared object, FAKECUDA_IMAGE() below. It is
 * accepted wherever the real driver takes an image: as PTX text with that line in a comment, and as
 * the bytes of a cubin or fatbin that hold it. The device function NAME is the host function
 * fakecuda_NAME() of that object; it runs on the thread of its stream. An object for which many blocks
 * are hard work exports a constant int fakecuda_occupancy: what a multiprocessor holds of them at most.
 */
#ifndef GANTRY_TESTS_FAKECUDA_KERNEL_H
#define GANTRY_TESTS_FAKECUDA_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One line of text; @so has no blanks in it, @arch is "sm_90" or the like. */
#define FAKECUDA_IMAGE(so, arch) "FAKECUDA so=" so " arch=" arch "\n"
/* The same as PTX. */
#define FAKECUDA_PTX(so, arch) \
	".version 8.0\n.target " arch "\n.address_size 64\n// " FAKECUDA_IMAGE(so, arch)

/* Layout of a kernel's parameters, in order; ends with a size of 0. */
struct fakecuda_param {
	uint32_t offset;
	uint32_t size;
};

struct fakecuda_geometry {
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_bytes;
	/* Nonzero once the context ends or has failed: what waits must stop. */
	int (*ending)(void *cookie);
	void *cookie;
	uint32_t cluster[3]; /* 0: none was asked for */
	int cooperative;
	/*
	 * Of a texture or surface that the program made: the element at @x, @y and @z or layer, in elements from 0, as it is stored;
	 * outside as the texture's address modes say (clamped, wrapped, or its border), without filtering. Returns its bytes, 16 at
	 * most; 0: there is no such texture, or outside of a surface.
	 */
	unsigned int (*texture_read)(unsigned long long texture, int64_t x, int64_t y, int64_t z,
				     void *ret_element);
	/* 0: there is no such surface, or outside. */
	unsigned int (*surface_write)(unsigned long long surface, int64_t x, int64_t y, int64_t z,
				      const void *element);
	/* cudaGraphSetConditional(). Nonzero: there is no such condition; the real one fails the context, perhaps. */
	int (*set_condition)(uint64_t handle, uint32_t value);
	void (*print)(void *cookie,
		      const char *text); /* printf() of a kernel, with @cookie above */
};

/*
 * @params[i] is the address of the i-th parameter's copy. Returns 0, or the CUresult that becomes the
 * context's sticky error.
 */
typedef int fakecuda_kernel(void **params, const struct fakecuda_geometry *geometry);

/*
 * Defines the device function NAME with the members of @fields, a struct's, as parameters:
 *   FAKECUDA_KERNEL(set, { uint32_t *out; uint32_t value; }, FAKECUDA_P(set, out), FAKECUDA_P(set, value))
 *   { ... }
 */
#define FAKECUDA_P(name, member)                                           \
	{                                                                  \
		offsetof(struct fakecuda_args_##name, member),             \
			sizeof(((struct fakecuda_args_##name *)0)->member) \
	}
#define FAKECUDA_KERNEL(name, fields, ...)                                                \
	struct fakecuda_args_##name fields;                                               \
	extern const struct fakecuda_param fakecuda_params_##name[];                      \
	const struct fakecuda_param fakecuda_params_##name[] = { __VA_ARGS__, { 0, 0 } }; \
	fakecuda_kernel fakecuda_##name;                                                  \
	int fakecuda_##name(void **params, const struct fakecuda_geometry *geometry)

#ifdef __cplusplus
}
#endif

#endif
