/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls-tape record FOLDER FILE ABOUT | replay FOLDER FILE: calls of each forwarding library in FOLDER, written down with their replies, or
 * replayed. Recording wants our libcudart and a session; replaying wants nothing. Prints TAP, a test of which the
 * name is how many requests there were.
 *
 * What a library's worker has not is recorded too: it answers so, and its part ends.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cufft.h>
#include <curand.h>
#include <cusolverDn.h>
#include <cusparse.h>
#include <nvrtc.h>

#include "base/array.h"
#include "tests/calls-tape/tape.h"

#define N 64

static const char *folder;
static float *at[TAPE_BUFFERS];

static void *open_one(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);

	if (!library) {
		printf("not ok 1 - %s\n", dlerror());
		exit(EXIT_FAILURE);
	}
	return library;
}

static void *function(const char *soname, const char *name)
{
	char path[4096];
	void *found;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, soname);
	found = dlsym(open_one(path), name);
	if (!found) {
		printf("not ok 1 - %s\n", dlerror());
		exit(EXIT_FAILURE);
	}
	return found;
}

#define F(soname, name) __typeof__(&name) f_##name = (__typeof__(&name))function(soname, #name)

/* What a call returned, which is what the expression says. Returns it. */
#define CALL(expression) see_status(#expression, (int)(expression))

static int see_status(const char *what, int status)
{
	tape_see(what, &status, sizeof(status));
	return status;
}

static void see_text(const char *what, const char *text)
{
	tape_see(what, text, strlen(text) + 1);
}

/* ---- the libraries ---- */

static void try_cublas(void)
{
	static const char so[] = "libcublas.so.13";
	static const float one = 1, zero = 0;
	cublasHandle_t handle = NULL;
	float dot = 0;
	int version = 0, largest = 0;
	F(so, cublasCreate_v2);
	F(so, cublasDestroy_v2);
	F(so, cublasGetStatusString);
	F(so, cublasGetVersion_v2);
	F(so, cublasIsamax_v2);
	F(so, cublasSdot_v2);
	F(so, cublasSetMathMode);
	F(so, cublasSgemm_v2);

	if (CALL(f_cublasCreate_v2(&handle)) != 0)
		return;
	(void)CALL(f_cublasGetVersion_v2(handle, &version));
	tape_see("version of cuBLAS", &version, sizeof(version));
	see_text("a status", f_cublasGetStatusString(CUBLAS_STATUS_INVALID_VALUE));
	(void)CALL(f_cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH));
	(void)CALL(
		f_cublasSgemm_v2(handle, 0, 0, 8, 8, 8, &one, at[0], 8, at[0], 8, &zero, at[1], 8));
	(void)CALL(f_cublasSdot_v2(handle, N, at[0], 1, at[1], 1, &dot));
	tape_see("a product of vectors", &dot, sizeof(dot));
	(void)CALL(f_cublasIsamax_v2(handle, N, at[0], 1, &largest));
	tape_see("the largest", &largest, sizeof(largest));
	/* What is wrong is told by the next call that waits. */
	(void)CALL(f_cublasSgemm_v2(handle, 0, 0, -1, 8, 8, &one, at[0], 8, at[0], 8, &zero, at[1],
				    8));
	(void)CALL(f_cublasGetVersion_v2(handle, &version));
	(void)CALL(f_cublasGetVersion_v2(handle, &version));
	(void)CALL(f_cublasGetVersion_v2((cublasHandle_t)0x1234, &version));
	(void)CALL(f_cublasDestroy_v2(handle));
	(void)CALL(f_cublasGetVersion_v2(handle, &version));
}

static void try_cublaslt(void)
{
	static const char so[] = "libcublasLt.so.13";
	cublasLtHandle_t handle = NULL;
	cublasLtMatmulDesc_t product = NULL;
	cublasLtMatrixLayout_t layout = NULL;
	cublasLtMatmulPreference_t preference = NULL;
	cublasLtMatmulHeuristicResult_t found;
	int32_t transposed = CUBLAS_OP_T, read = 0;
	size_t written = 0, version;
	int n = 0;
	F(so, cublasLtCreate);
	F(so, cublasLtDestroy);
	F(so, cublasLtGetVersion);
	F(so, cublasLtMatmulAlgoGetHeuristic);
	F(so, cublasLtMatmulDescCreate);
	F(so, cublasLtMatmulDescDestroy);
	F(so, cublasLtMatmulDescGetAttribute);
	F(so, cublasLtMatmulDescSetAttribute);
	F(so, cublasLtMatmulPreferenceCreate);
	F(so, cublasLtMatmulPreferenceDestroy);
	F(so, cublasLtMatrixLayoutCreate);
	F(so, cublasLtMatrixLayoutDestroy);

	memset(&found, 0, sizeof(found));
	version = f_cublasLtGetVersion();
	tape_see("version of cuBLASLt", &version, sizeof(version));
	if (CALL(f_cublasLtCreate(&handle)) != 0)
		return;
	(void)CALL(f_cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	(void)CALL(f_cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA,
						    &transposed, sizeof(transposed)));
	(void)CALL(f_cublasLtMatmulDescGetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &read,
						    sizeof(read), &written));
	tape_see("an attribute", &read, sizeof(read));
	(void)CALL(f_cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 8, 8, 8));
	(void)CALL(f_cublasLtMatmulPreferenceCreate(&preference));
	(void)CALL(f_cublasLtMatmulAlgoGetHeuristic(handle, product, layout, layout, layout, layout,
						    preference, 1, &found, &n));
	tape_see("how many plans", &n, sizeof(n));
	(void)CALL(f_cublasLtMatmulPreferenceDestroy(preference));
	(void)CALL(f_cublasLtMatrixLayoutDestroy(layout));
	(void)CALL(f_cublasLtMatmulDescDestroy(product));
	(void)CALL(f_cublasLtDestroy(handle));
}

static void try_cufft(void)
{
	static const char so[] = "libcufft.so.12";
	cufftHandle plan = 0;
	size_t work = 0;
	int version = 0;
	F(so, cufftDestroy);
	F(so, cufftExecC2C);
	F(so, cufftGetSize);
	F(so, cufftGetVersion);
	F(so, cufftPlan1d);

	(void)CALL(f_cufftGetVersion(&version));
	tape_see("version of cuFFT", &version, sizeof(version));
	if (CALL(f_cufftPlan1d(&plan, N, CUFFT_C2C, 1)) != 0)
		return;
	(void)CALL(f_cufftGetSize(plan, &work));
	tape_see("memory to work in", &work, sizeof(work));
	(void)CALL(
		f_cufftExecC2C(plan, (cufftComplex *)at[0], (cufftComplex *)at[1], CUFFT_FORWARD));
	(void)CALL(f_cufftPlan1d(&plan, -1, CUFFT_C2C, 1));
	(void)CALL(f_cufftDestroy(plan));
}

static void try_curand(void)
{
	static const char so[] = "libcurand.so.10";
	curandGenerator_t generator = NULL;
	float numbers[N] = { 0 };
	int version = 0;
	F(so, curandCreateGenerator);
	F(so, curandCreateGeneratorHost);
	F(so, curandDestroyGenerator);
	F(so, curandGenerateUniform);
	F(so, curandGetVersion);
	F(so, curandSetPseudoRandomGeneratorSeed);

	(void)CALL(f_curandGetVersion(&version));
	tape_see("version of cuRAND", &version, sizeof(version));
	if (CALL(f_curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_PHILOX4_32_10)) != 0)
		return;
	(void)CALL(f_curandSetPseudoRandomGeneratorSeed(generator, 42));
	(void)CALL(f_curandGenerateUniform(generator, at[1], N));
	(void)CALL(f_curandGenerateUniform(generator, numbers, N));
	(void)CALL(f_curandDestroyGenerator(generator));
	(void)CALL(f_curandCreateGeneratorHost(&generator, CURAND_RNG_PSEUDO_PHILOX4_32_10));
	(void)CALL(f_curandSetPseudoRandomGeneratorSeed(generator, 42));
	(void)CALL(f_curandGenerateUniform(generator, numbers, N));
	tape_see("numbers", numbers, sizeof(numbers));
	(void)CALL(f_curandDestroyGenerator(generator));
}

static void try_cusparse(void)
{
	static const char so[] = "libcusparse.so.12";
	static _Alignas(16) float results[4]; /* as long as any scalar */
	cusparseHandle_t handle = NULL;
	cusparseSpVecDescr_t x = NULL;
	cusparseDnVecDescr_t y = NULL;
	size_t work = 0;
	int version = 0;
	F(so, cusparseCreate);
	F(so, cusparseCreateDnVec);
	F(so, cusparseCreateSpVec);
	F(so, cusparseDestroy);
	F(so, cusparseDestroyDnVec);
	F(so, cusparseDestroySpVec);
	F(so, cusparseGetErrorString);
	F(so, cusparseGetVersion);
	F(so, cusparseSpVV);
	F(so, cusparseSpVV_bufferSize);

	if (CALL(f_cusparseCreate(&handle)) != 0)
		return;
	(void)CALL(f_cusparseGetVersion(handle, &version));
	tape_see("version of cuSPARSE", &version, sizeof(version));
	see_text("a status", f_cusparseGetErrorString(CUSPARSE_STATUS_NOT_SUPPORTED));
	/* The second half of the first buffer has numbers from 0. */
	(void)CALL(f_cusparseCreateSpVec(&x, N, N, at[0] + TAPE_BYTES / 8, at[0],
					 CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
	(void)CALL(f_cusparseCreateDnVec(&y, N, at[0], CUDA_R_32F));
	(void)CALL(f_cusparseSpVV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, x, y,
					     results, CUDA_R_32F, &work));
	(void)CALL(f_cusparseSpVV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, x, y, results,
				  CUDA_R_32F, at[1]));
	tape_see("a product of vectors", results, sizeof(results[0]));
	(void)CALL(f_cusparseDestroySpVec(x));
	(void)CALL(f_cusparseDestroyDnVec(y));
	(void)CALL(f_cusparseDestroy(handle));
}

static void try_cusolver(void)
{
	static const char so[] = "libcusolver.so.12";
	cusolverDnHandle_t handle = NULL;
	int version = 0, work = 0;
	F(so, cusolverDnCreate);
	F(so, cusolverDnDestroy);
	F(so, cusolverDnSpotrf_bufferSize);
	F(so, cusolverGetVersion);

	(void)CALL(f_cusolverGetVersion(&version));
	tape_see("version of cuSOLVER", &version, sizeof(version));
	if (CALL(f_cusolverDnCreate(&handle)) != 0)
		return;
	(void)CALL(
		f_cusolverDnSpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, 8, at[0], 8, &work));
	tape_see("memory to work in", &work, sizeof(work));
	(void)CALL(f_cusolverDnDestroy(handle));
}

static void try_nvrtc(void)
{
	static const char so[] = "libnvrtc.so.13";
	int major = 0, minor = 0, n = 0;
	int archs[256] = { 0 };
	F(so, nvrtcGetErrorString);
	F(so, nvrtcGetNumSupportedArchs);
	F(so, nvrtcGetSupportedArchs);
	F(so, nvrtcVersion);

	(void)CALL(f_nvrtcVersion(&major, &minor));
	tape_see("version of NVRTC", &major, sizeof(major));
	see_text("a status", f_nvrtcGetErrorString(NVRTC_ERROR_COMPILATION));
	if (CALL(f_nvrtcGetNumSupportedArchs(&n)) != 0 || n > (int)GANTRY_ARRAY_SIZE(archs))
		return;
	(void)CALL(f_nvrtcGetSupportedArchs(archs));
	tape_see("architectures", archs, sizeof(archs));
}

/* ---- the two ways ---- */

static void record_memory(void)
{
	static float begin[TAPE_BYTES / sizeof(float)];
	const int half = TAPE_BYTES / 8;
	void *runtime = open_one("libcudart.so.13");
	__typeof__(&cudaMemcpy) copy = (__typeof__(copy))dlsym(runtime, "cudaMemcpy");
	cudaError_t (*alloc)(void **, size_t) =
		(cudaError_t(*)(void **, size_t))dlsym(runtime, "cudaMalloc");

	for (int i = 0; i < half; i++) {
		begin[i] = (float)(i % 7) - 3;
		memcpy(&begin[half + i], &i, sizeof(i));
	}
	for (unsigned int i = 0; i < TAPE_BUFFERS; i++) {
		void *made = NULL;

		if (!alloc || !copy || alloc(&made, TAPE_BYTES) != cudaSuccess ||
		    copy(made, begin, TAPE_BYTES, cudaMemcpyHostToDevice) != cudaSuccess) {
			printf("not ok 1 - memory of the device\n");
			exit(EXIT_FAILURE);
		}
		at[i] = tape_buffer(i, made);
	}
}

int main(int argc, char **argv)
{
	const bool records = argc == 5 && strcmp(argv[1], "record") == 0;
	const struct gantry_call_road *usual;
	void (*set)(const struct gantry_call_road *);

	if (!records && (argc != 4 || strcmp(argv[1], "replay") != 0))
		return EXIT_FAILURE;
	printf("1..1\n");
	folder = argv[2];
	if (records) {
		tape_record(argv[3], argv[4]);
		record_memory();
	} else {
		tape_replay(argv[3]);
		for (unsigned int i = 0; i < TAPE_BUFFERS; i++)
			at[i] = tape_buffer(i, NULL);
	}
	usual = (const struct gantry_call_road *)function("libgantry-cudalibs.so.0",
							  "gantry_call_road_session");
	set = (void (*)(const struct gantry_call_road *))function("libgantry-cudalibs.so.0",
								  "gantry_call_road_set");
	set(tape_road(usual));
	try_cublas();
	try_cublaslt();
	try_cufft();
	try_curand();
	try_cusparse();
	try_cusolver();
	try_nvrtc();
	printf("ok 1 - %u requests\n", tape_close());
	return EXIT_SUCCESS;
}
