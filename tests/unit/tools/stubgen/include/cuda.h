/* SPDX-License-Identifier: Apache-2.0 */
/* A toolkit of one library that nobody has, for the tests of tools/stubgen. */
#define CUDA_VERSION 13000
