/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of cuBLAS on one device, one after the other and each checked, while the host moves the program to another: until the file
 * argv[2] ends (argv[1] is an image, as others take one). With "generator" it has random numbers too, whose generator nobody can make anew;
 * with "communicator" one of NCCL's, of one rank ("none": the host has no NCCL); with "still" it does nothing until then, while its
 * worker dies. "generator lost": then the handles are at an end, and new ones are to be had.
 */
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <curand.h>
#include <errno.h>
#include <fcntl.h>
#ifndef WITHOUT_NCCL
#include <nccl.h>
#endif
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N 64

#define MUST(what)                                                       \
	do {                                                             \
		if (!(what)) {                                           \
			printf("FAILED line %d: %s\n", __LINE__, #what); \
			exit(1);                                         \
		}                                                        \
	} while (0)

static float a[N * N], b[N * N], c[N * N], wanted[N * N];

static void fill(void)
{
	for (int i = 0; i < N * N; i++) {
		a[i] = (float)(i % 7) - 3;
		b[i] = (float)(i % 5) - 2;
	}
	/* Columns first, as cuBLAS has them. */
	for (int row = 0; row < N; row++)
		for (int column = 0; column < N; column++)
			for (int k = 0; k < N; k++)
				wanted[column * N + row] += a[k * N + row] * b[column * N + k];
}

struct work {
	cublasHandle_t host, device; /* where they look for scalars */
	cudaStream_t stream;
	float *d[3], *one;
};

static void start(struct work *w)
{
	const float one = 1;

	for (int i = 0; i < 3; i++)
		MUST(cudaMalloc((void **)&w->d[i], sizeof(a)) == cudaSuccess);
	MUST(cudaMalloc((void **)&w->one, sizeof(one)) == cudaSuccess);
	MUST(cudaMemcpy(w->d[0], a, sizeof(a), cudaMemcpyHostToDevice) == cudaSuccess);
	MUST(cudaMemcpy(w->d[1], b, sizeof(b), cudaMemcpyHostToDevice) == cudaSuccess);
	MUST(cudaMemcpy(w->one, &one, sizeof(one), cudaMemcpyHostToDevice) == cudaSuccess);
	MUST(cudaStreamCreate(&w->stream) == cudaSuccess);
	MUST(cublasCreate(&w->host) == CUBLAS_STATUS_SUCCESS);
	MUST(cublasCreate(&w->device) == CUBLAS_STATUS_SUCCESS);
	MUST(cublasSetStream(w->device, w->stream) == CUBLAS_STATUS_SUCCESS);
	MUST(cublasSetPointerMode(w->device, CUBLAS_POINTER_MODE_DEVICE) == CUBLAS_STATUS_SUCCESS);
}

static void check(const struct work *w)
{
	MUST(cudaDeviceSynchronize() == cudaSuccess);
	MUST(cudaMemcpy(c, w->d[2], sizeof(c), cudaMemcpyDeviceToHost) == cudaSuccess);
	MUST(memcmp(c, wanted, sizeof(c)) == 0);
}

static void step(const struct work *w)
{
	const float one = 1, none = 0;
	cublasPointerMode_t mode;
	cublasHandle_t passing;

	MUST(cudaMemset(w->d[2], 0, sizeof(c)) == cudaSuccess);
	MUST(cublasSgemm(w->host, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, w->d[0], N, w->d[1], N,
			 &none, w->d[2], N) == CUBLAS_STATUS_SUCCESS);
	check(w);
	MUST(cudaMemset(w->d[2], 0, sizeof(c)) == cudaSuccess);
	MUST(cublasSgemm(w->device, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, w->one, w->d[0], N, w->d[1],
			 N, w->one, w->d[2], N) == CUBLAS_STATUS_SUCCESS);
	check(w);
	MUST(cublasGetPointerMode(w->device, &mode) == CUBLAS_STATUS_SUCCESS);
	MUST(mode == CUBLAS_POINTER_MODE_DEVICE);
	MUST(cublasGetPointerMode(w->host, &mode) == CUBLAS_STATUS_SUCCESS);
	MUST(mode == CUBLAS_POINTER_MODE_HOST);
	MUST(cublasCreate(&passing) == CUBLAS_STATUS_SUCCESS);
	MUST(cublasDestroy(passing) == CUBLAS_STATUS_SUCCESS);
}

static void have_generator(const struct work *w)
{
	curandGenerator_t generator;

	MUST(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT) == CURAND_STATUS_SUCCESS);
	MUST(curandSetPseudoRandomGeneratorSeed(generator, 1) == CURAND_STATUS_SUCCESS);
	MUST(curandGenerateUniform(generator, w->d[2], N) == CURAND_STATUS_SUCCESS);
	MUST(cudaDeviceSynchronize() == cudaSuccess);
}

#ifndef WITHOUT_NCCL
static ncclComm_t communicator;

static void have_communicator(const struct work *w)
{
	ncclUniqueId id;

	if (ncclGetUniqueId(&id) != ncclSuccess) {
		printf("none\n");
		exit(3);
	}
	MUST(ncclCommInitRank(&communicator, 1, id, 0) == ncclSuccess);
	MUST(ncclAllReduce(w->d[0], w->d[2], N * N, ncclFloat, ncclSum, communicator, w->stream) ==
	     ncclSuccess);
	MUST(cudaDeviceSynchronize() == cudaSuccess);
	MUST(cudaMemcpy(c, w->d[2], sizeof(c), cudaMemcpyDeviceToHost) == cudaSuccess);
	MUST(memcmp(c, a, sizeof(c)) == 0);
}

static void end_communicator(void)
{
	MUST(!communicator || ncclCommDestroy(communicator) == ncclSuccess);
}
#else
static void have_communicator(const struct work *w)
{
	(void)w;
	printf("none\n");
	exit(3);
}

static void end_communicator(void)
{
}
#endif

/* What was there before is at an end, and said so; what is made from here on is as good as ever. */
static void check_lost(const struct work *w)
{
	struct work again = *w;
	cublasPointerMode_t mode;

	MUST(cublasGetPointerMode(w->device, &mode) != CUBLAS_STATUS_SUCCESS);
	MUST(cublasCreate(&again.host) == CUBLAS_STATUS_SUCCESS);
	MUST(cublasCreate(&again.device) == CUBLAS_STATUS_SUCCESS);
	MUST(cublasSetStream(again.device, again.stream) == CUBLAS_STATUS_SUCCESS);
	MUST(cublasSetPointerMode(again.device, CUBLAS_POINTER_MODE_DEVICE) ==
	     CUBLAS_STATUS_SUCCESS);
	step(&again);
}

/* Whether its other end has been closed. */
static int has_ended(int fd)
{
	char byte;
	ssize_t n = read(fd, &byte, 1);

	return n == 0 || (n < 0 && errno != EAGAIN);
}

int main(int argc, char **argv)
{
	struct work w;
	bool still;
	int fd;

	if (argc < 3)
		return 2;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	fill();
	start(&w);
	if (argc > 3 && strcmp(argv[3], "generator") == 0)
		have_generator(&w);
	if (argc > 3 && strcmp(argv[3], "communicator") == 0)
		have_communicator(&w);
	still = strcmp(argv[argc - 1], "still") == 0 || strcmp(argv[argc - 1], "lost") == 0;
	fd = open(argv[2], O_RDONLY | O_CLOEXEC | (still ? 0 : O_NONBLOCK));
	MUST(fd >= 0);
	for (int n = 0; n < 3 || !has_ended(fd); n++) {
		step(&w);
		if (n == 2)
			printf("working\n");
	}
	if (strcmp(argv[argc - 1], "lost") == 0) {
		check_lost(&w);
		printf("ok lost\n");
		return 0;
	}
	step(&w);
	end_communicator();
	MUST(cublasDestroy(w.device) == CUBLAS_STATUS_SUCCESS);
	MUST(cublasDestroy(w.host) == CUBLAS_STATUS_SUCCESS);
	printf("ok products\n");
	return 0;
}
