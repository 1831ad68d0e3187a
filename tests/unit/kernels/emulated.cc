/* SPDX-License-Identifier: Apache-2.0 */
/* The device code of core-cuda.so for the emulator. */
#include "tests/unit/kernels/emulator.h"

#include "devices/kernels/core/cuda/core.cu"
