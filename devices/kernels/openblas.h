/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What env->handle(env, "openblas") points to on cpu devices: entries of libopenblas.so.0, which
 * the cpu backend opens when a kernel first asks. Kernels thus need neither its headers nor its
 * presence at build time.
 *
 * Threads: any lane may call the entries at the same time. The backend limits OpenBLAS to the
 * calling thread (set_num_threads(1)) where lanes share cores.
 */
#ifndef GANTRY_DEVICES_KERNELS_OPENBLAS_H
#define GANTRY_DEVICES_KERNELS_OPENBLAS_H

#include <stdint.h>

/* CBLAS's numbers for row-major order and for a matrix taken as it is, or transposed. */
#define GANTRY_CBLAS_ROW_MAJOR 101
#define GANTRY_CBLAS_NO_TRANS  111
#define GANTRY_CBLAS_TRANS     112

/* Sized: new members are added at the end only. No member is NULL. */
struct gantry_openblas {
	uint32_t size;
	uint32_t reserved;
	/* cblas_sgemm, cblas_dgemm; the LP64 library: counts are int. */
	void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
		      const float *a, int lda, const float *b, int ldb, float beta, float *c,
		      int ldc);
	void (*dgemm)(int order, int trans_a, int trans_b, int m, int n, int k, double alpha,
		      const double *a, int lda, const double *b, int ldb, double beta, double *c,
		      int ldc);
	/* openblas_set_num_threads */
	void (*set_num_threads)(int nthreads);
};

#endif
