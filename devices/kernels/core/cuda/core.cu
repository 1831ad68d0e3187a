/* SPDX-License-Identifier: Apache-2.0 */
/* The device code of core-cuda.so, as one unit. */
#include "devices/kernels/core/cuda/dp.cu"
#include "devices/kernels/core/cuda/finance.cu"
#include "devices/kernels/core/cuda/gemm.cu"
#include "devices/kernels/core/cuda/image.cu"
#include "devices/kernels/core/cuda/linear.cu"
#include "devices/kernels/core/cuda/memory.cu"
#include "devices/kernels/core/cuda/misc.cu"
#include "devices/kernels/core/cuda/particles.cu"
#include "devices/kernels/core/cuda/random.cu"
#include "devices/kernels/core/cuda/search.cu"
#include "devices/kernels/core/cuda/stencil.cu"
#include "devices/kernels/core/cuda/vector.cu"
