/* SPDX-License-Identifier: Apache-2.0 */
/* What a descriptor of a tensor is to the fake driver and its kernels: 128 bytes. */
#ifndef GANTRY_TESTS_FAKECUDA_TENSOR_H
#define GANTRY_TESTS_FAKECUDA_TENSOR_H

#include <assert.h>
#include <stdint.h>

#define FAKECUDA_TENSOR 0x7e45012u
enum {
	FAKECUDA_TENSOR_TILED = 1,
	FAKECUDA_TENSOR_IM2COL = 2
};

struct fakecuda_tensor {
	uint32_t magic;
	uint8_t kind;
	uint8_t type;
	uint8_t rank;
	uint8_t element_bytes;
	uint64_t address;
	uint64_t strides[4];
	uint32_t dims[5]; /* one less */
	uint16_t box[5];  /* or the lower corner */
	int16_t upper[3];
	uint16_t channels;
	uint16_t pixels;
	uint8_t swizzle;
	uint8_t fill;
	uint8_t none[38];
};
static_assert(sizeof(struct fakecuda_tensor) == 128, "as large as CUDA's");

#endif
