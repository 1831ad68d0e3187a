/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels as an image of their own. */
#include "conditions.cuh"
