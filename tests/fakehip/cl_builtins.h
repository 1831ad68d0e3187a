/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs OpenCL kernels that were compiled for the host, for the stand-ins of AMD's runtime: work-items take turns at
 * barriers, as the threads of tests/unit/kernels/emulator.h, and groups come one after another. The glue that emulate.py
 * makes includes this; cl_builtins.c has those functions of OpenCL C that the installed kernels call.
 *
 * Threads: any; one launch at a time, the others wait.
 */
#ifndef GANTRY_TESTS_FAKEHIP_CL_BUILTINS_H
#define GANTRY_TESTS_FAKEHIP_CL_BUILTINS_H

#include <stdint.h>

#include "tests/fakecuda/kernel.h"
#include "tests/unit/kernels/emulator.h"

#define VISIBLE __attribute__((visibility("default")))

/* 0. Blocks of a multiple of 32 work-items. */
int cl_run(emulator_entry *entry, void **params, const struct fakecuda_geometry *geometry);

#endif
