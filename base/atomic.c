/* SPDX-License-Identifier: Apache-2.0 */
#include "base/atomic.h"

#ifdef GANTRY_ATOMIC_UNDER_TSAN
uint32_t gantry_fence_dummy;
#endif
