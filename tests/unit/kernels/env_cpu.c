/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the cpu's kernels. */
#include "tests/unit/kernels/env.h"

const struct env_device *const env_device = NULL;
