/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of NCCL:
 *	cuda-library-ranks all              one process, a rank on each of its devices, by ncclCommInitAll
 *	cuda-library-ranks rank R N FILE    rank R of N processes, on device R where there are so many; rank 0 writes the id into FILE
 *	cuda-library-ranks leaves R N FILE  the same; the last rank ends where the others sum once more, and they give up
 * The last line says how it went: "ok", or "no ...".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

/* The header declares them without saying that they take nothing. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

#define N	    1000
#define ROUNDS	    20
#define DEVICES_MAX 8

#define MUST(what)                                                          \
	do {                                                                \
		int r_ = (int)(what);                                       \
		if (r_) {                                                   \
			printf("no %s line %d: %d\n", #what, __LINE__, r_); \
			fflush(stdout);                                     \
			_exit(1);                                           \
		}                                                           \
	} while (0)

struct rank {
	int device;
	ncclComm_t comm;
	cudaStream_t stream;
	float *from, *to;
};

static void have_rank(struct rank *r, float value)
{
	float values[N];

	for (int i = 0; i < N; i++)
		values[i] = value + (float)i;
	MUST(cudaSetDevice(r->device));
	MUST(cudaStreamCreate(&r->stream));
	MUST(cudaMalloc((void **)&r->from, sizeof(values)));
	MUST(cudaMalloc((void **)&r->to, sizeof(values)));
	MUST(cudaMemcpy(r->from, values, sizeof(values), cudaMemcpyHostToDevice));
}

/* Of ranks that had 1, 2, ... to begin with. */
static void check_sum(struct rank *r, int nranks)
{
	float values[N];

	MUST(cudaSetDevice(r->device));
	MUST(cudaStreamSynchronize(r->stream));
	MUST(cudaMemcpy(values, r->to, sizeof(values), cudaMemcpyDeviceToHost));
	for (int i = 0; i < N; i++)
		MUST(values[i] != (float)(nranks * (nranks + 1) / 2 + nranks * i));
	MUST(cudaMemset(r->to, 0, sizeof(values)));
}

static int all(void)
{
	struct rank ranks[DEVICES_MAX] = { 0 };
	ncclComm_t comms[DEVICES_MAX + 1];
	int n = 0, count = 0;

	MUST(cudaGetDeviceCount(&n));
	/* Of a device that is not there, at once: the others' ranks would wait for its. */
	MUST(ncclCommInitAll(comms, n + 1, NULL) == ncclSuccess);
	MUST(ncclCommInitAll(comms, n, NULL));
	for (int i = 0; i < n; i++) {
		ranks[i] = (struct rank){ .device = i, .comm = comms[i] };
		have_rank(&ranks[i], (float)(i + 1));
	}
	/* The thread's device is the last one all the time: a communicator knows its own. */
	for (int i = 0; i < n; i++) {
		int rank = -1;

		MUST(ncclCommCount(comms[i], &count));
		MUST(ncclCommUserRank(comms[i], &rank));
		MUST(count != n || rank != i);
	}
	for (int round = 0; round < ROUNDS; round++) {
		MUST(ncclGroupStart());
		MUST(ncclGroupStart());
		for (int i = 0; i < n; i++)
			MUST(ncclAllReduce(ranks[i].from, ranks[i].to, N, ncclFloat, ncclSum,
					   ranks[i].comm, ranks[i].stream));
		MUST(ncclGroupEnd());
		MUST(ncclGroupEnd());
		for (int i = 0; i < n; i++)
			check_sum(&ranks[i], n);
	}
	MUST(ncclGroupEnd() != ncclInvalidUsage);
	for (int i = 0; i < n; i++)
		MUST(ncclCommDestroy(comms[i]));
	printf("ok %d ranks\n", n);
	return 0;
}

static void pass_id(ncclUniqueId *id, int rank, const char *path)
{
	char temporary[512];
	FILE *file;

	snprintf(temporary, sizeof(temporary), "%s.new", path);
	if (rank == 0) {
		MUST(ncclGetUniqueId(id));
		file = fopen(temporary, "wb");
		MUST(!file || fwrite(id, sizeof(*id), 1, file) != 1 || fclose(file) != 0);
		MUST(rename(temporary, path));
		return;
	}
	while (!(file = fopen(path, "rb")))
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	MUST(fread(id, sizeof(*id), 1, file) != 1);
	fclose(file);
}

static int one(int rank, int nranks, const char *path, int leaves)
{
	struct rank r = { 0 };
	ncclResult_t error = ncclSuccess;
	ncclUniqueId id;
	int ndevices = 0;

	MUST(cudaGetDeviceCount(&ndevices));
	r.device = rank % ndevices;
	have_rank(&r, (float)(rank + 1));
	pass_id(&id, rank, path);
	MUST(ncclCommInitRank(&r.comm, nranks, id, rank));
	for (int round = 0; round < ROUNDS; round++) {
		MUST(ncclAllReduce(r.from, r.to, N, ncclFloat, ncclSum, r.comm, r.stream));
		check_sum(&r, nranks);
	}
	if (leaves && rank == nranks - 1)
		_exit(0);
	if (leaves) {
		MUST(ncclAllReduce(r.from, r.to, N, ncclFloat, ncclSum, r.comm, r.stream));
		while (error == ncclSuccess) {
			MUST(ncclCommGetAsyncError(r.comm, &error));
			nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
		}
		MUST(ncclCommAbort(r.comm));
		MUST(cudaDeviceSynchronize());
		printf("ok without the others\n");
		return 0;
	}
	MUST(ncclCommDestroy(r.comm));
	printf("ok rank %d\n", rank);
	return 0;
}

int main(int argc, char **argv)
{
	int leaves = argc == 5 && strcmp(argv[1], "leaves") == 0;

	if (argc == 2 && strcmp(argv[1], "all") == 0)
		return all();
	if (leaves || (argc == 5 && strcmp(argv[1], "rank") == 0))
		return one(atoi(argv[2]), atoi(argv[3]), argv[4], leaves);
	return 2;
}
