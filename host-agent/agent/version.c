/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing else knows the version of gantryd: tests link the same objects with another of these. */
#include "host-agent/agent/build.h"

const char gantry_build_version[] = GANTRY_VERSION;
