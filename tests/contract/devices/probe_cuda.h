/* SPDX-License-Identifier: Apache-2.0 */
/* The device code inside the module: for the fake driver a line of text, else what nvcc made. */
#ifndef GANTRY_TESTS_CONTRACT_DEVICES_PROBE_CUDA_H
#define GANTRY_TESTS_CONTRACT_DEVICES_PROBE_CUDA_H

#ifdef PROBE_FAKE
#include "tests/fakecuda/kernel.h"
static const char probe_code[] = FAKECUDA_PTX(PROBE_FAKE, "sm_90");
#else
#include "probe_code.inc"
#endif

#endif
