/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the other parts of Gantry are: installed, in a relocatable folder, or in a build tree, judged by where this
 * program is.
 */
#ifndef GANTRY_HOST_AGENT_CTL_FIND_H
#define GANTRY_HOST_AGENT_CTL_FIND_H

#include <limits.h>

/* A program: gantryd, gantry-worker, gantry-demo. 0, or -ENOENT with @ret_path untouched. */
int gantry_find_program(const char *name, char ret_path[PATH_MAX]);

/* libgantry.so.0. 0 or -ENOENT. */
int gantry_find_library(char ret_path[PATH_MAX]);

/* libgantry-opencl.so.1, and the file that tells ICD loaders of it. 0, or -ENOENT where one of them is missing. */
int gantry_find_opencl(char ret_path[PATH_MAX], char ret_icd[PATH_MAX]);

/* Our libcuda.so.1, beside which the other libraries for programs of CUDA are. 0 or -ENOENT. */
int gantry_find_cuda(char ret_path[PATH_MAX]);

#endif
