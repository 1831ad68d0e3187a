/* SPDX-License-Identifier: Apache-2.0 */
/* The managed variables as an image of their own; the other one's programs have none. */
#include "kernels.cuh"
#include "managed.cuh"
