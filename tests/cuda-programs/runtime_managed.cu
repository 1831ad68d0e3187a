/* SPDX-License-Identifier: Apache-2.0 */
/* Variables that program and kernels have both. With "two" it wants two devices. */
#include <cstring>

#include "kernels.cuh"
#include "managed.cuh"
#include "runtime_parts.cuh"

static void one_address()
{
	unsigned long long *out, where[2];

	part = "one address";
	CHECK(managed_count == 7 && managed_table[0] == 0 && managed_pointer == nullptr);
	OK(cudaMalloc(&out, sizeof(where)));
	managed_where<<<1, 1>>>(out);
	OK(cudaMemcpy(where, out, sizeof(where), cudaMemcpyDeviceToHost));
	CHECK(where[0] == (unsigned long long)&managed_count);
	CHECK(where[1] == (unsigned long long)&managed_table);
	OK(cudaFree(out));
	end();
}

static void to_and_fro()
{
	cudaStream_t stream, other;
	cudaEvent_t event;
	cudaError_t is;

	part = "to and fro";
	managed_count = 10;
	managed_bump<<<1, 1>>>(1);
	OK(cudaDeviceSynchronize());
	CHECK(managed_count == 11);
	OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	OK(cudaEventCreate(&event));
	managed_count *= 2;
	managed_bump<<<1, 1, 0, stream>>>(1);
	OK(cudaStreamSynchronize(stream));
	CHECK(managed_count == 23);
	managed_bump<<<1, 1, 0, stream>>>(1);
	managed_bump<<<1, 1, 0, stream>>>(1);
	OK(cudaEventRecord(event, stream));
	OK(cudaEventSynchronize(event));
	CHECK(managed_count == 25);
	/* What the program writes, the next task of any stream finds. */
	managed_count = -1;
	managed_bump<<<1, 1, 0, other>>>(3);
	while ((is = cudaStreamQuery(other)) == cudaErrorNotReady)
		;
	OK(is);
	CHECK(managed_count == 2);
	managed_bump<<<1, 1, 0, other>>>(3);
	OK(cudaEventRecord(event, other));
	while ((is = cudaEventQuery(event)) == cudaErrorNotReady)
		;
	OK(is);
	CHECK(managed_count == 5);
	OK(cudaEventDestroy(event));
	OK(cudaStreamDestroy(other));
	OK(cudaStreamDestroy(stream));
	end();
}

/* Each side writes elements of its own; neither undoes the other's. */
static void tables()
{
	part = "tables";
	for (int i = 0; i < TABLE; i++)
		managed_table[i] = i;
	managed_scale<<<TABLE / 200, 200>>>(0, TABLE, 2.0);
	OK(cudaDeviceSynchronize());
	for (int i = 0; i < TABLE; i++)
		CHECK(managed_table[i] == 2.0 * i);
	for (int round = 0; round < 5; round++) {
		for (int i = round; i < TABLE; i += 997)
			managed_table[i] = -i;
		managed_scale<<<1, 100>>>(1000 * round, 100, 3.0);
		OK(cudaDeviceSynchronize());
	}
	for (int i = 0; i < TABLE; i++) {
		double is = 2.0 * i;

		for (int round = 0; round < 5; round++) {
			if (i >= round && (i - round) % 997 == 0)
				is = -i;
			if (i >= 1000 * round && i < 1000 * round + 100)
				is *= 3.0;
		}
		CHECK(managed_table[i] == is);
	}
	end();
}

static void pointers()
{
	part = "pointers";
	managed_pointer = &managed_count;
	managed_follow<<<1, 1>>>(1234);
	OK(cudaDeviceSynchronize());
	CHECK(managed_count == 1234 && managed_pointer == &managed_count);
	end();
}

static void look(void *data)
{
	*(int *)data = managed_count;
	managed_count = 100;
}

static void functions()
{
	int seen = 0;

	part = "functions of the program";
	managed_count = 1;
	managed_bump<<<1, 1>>>(1);
	OK(cudaLaunchHostFunc(0, look, &seen));
	managed_bump<<<1, 1>>>(1);
	OK(cudaDeviceSynchronize());
	CHECK(seen == 2 && managed_count == 101);
	end();
}

static void copies()
{
	static double table[TABLE];
	cudaPointerAttributes attributes;
	size_t bytes;
	void *at;
	int value = 77;

	part = "copies";
	OK(cudaMemcpyToSymbol(managed_count, &value, sizeof(value)));
	CHECK(managed_count == 77);
	managed_count = 78;
	OK(cudaMemcpyFromSymbol(&value, managed_count, sizeof(value)));
	CHECK(value == 78);
	for (int i = 0; i < TABLE; i++)
		table[i] = i / 2.0;
	OK(cudaMemcpy(managed_table, table, sizeof(table), cudaMemcpyDefault));
	CHECK(managed_table[TABLE - 1] == (TABLE - 1) / 2.0);
	managed_table[5] = 1e9;
	OK(cudaMemcpyAsync(table, managed_table, sizeof(table), cudaMemcpyDeviceToHost, 0));
	OK(cudaStreamSynchronize(0));
	CHECK(table[5] == 1e9 && table[6] == 3);
	OK(cudaMemset(managed_table, 0, sizeof(managed_table)));
	CHECK(managed_table[5] == 0 && managed_table[TABLE - 1] == 0);
	OK(cudaGetSymbolAddress(&at, managed_count));
	CHECK(at == &managed_count);
	OK(cudaGetSymbolSize(&bytes, managed_table));
	CHECK(bytes == sizeof(managed_table));
	OK(cudaPointerGetAttributes(&attributes, &managed_table[3]));
	CHECK(attributes.type == cudaMemoryTypeManaged && attributes.hostPointer == &managed_table[3] &&
	      attributes.devicePointer == &managed_table[3]);
	OK(cudaMemAdvise(managed_table, sizeof(managed_table), cudaMemAdviseSetReadMostly,
			 cudaMemLocation{ cudaMemLocationTypeDevice, 0 }));
	OK(cudaMallocManaged(&at, 100000));
	OK(cudaMemset(at, 5, 100000));
	for (int i = 0; i < 100000; i++)
		CHECK(((char *)at)[i] == 5);
	OK(cudaFree(at));
	end();
}

static void graphs()
{
	cudaGraphExec_t exec;
	cudaStream_t stream;
	cudaGraph_t graph;

	part = "graphs";
	OK(cudaStreamCreate(&stream));
	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	managed_bump<<<1, 1, 0, stream>>>(1);
	managed_bump<<<1, 1, 0, stream>>>(2);
	OK(cudaStreamEndCapture(stream, &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 5; i++) {
		managed_count = 10 * i;
		OK(cudaGraphLaunch(exec, stream));
		OK(cudaStreamSynchronize(stream));
		CHECK(managed_count == 10 * i + 3);
	}
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaStreamDestroy(stream));
	end();
}

/* While one stream is at work the program may use what is another's. */
static void attached()
{
	cudaStream_t stream;

	part = "attached";
	OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	OK(cudaStreamAttachMemAsync(stream, &managed_count, 0, cudaMemAttachSingle));
	OK(cudaStreamSynchronize(stream));
	managed_count = 5;
	managed_scale<<<TABLE / 200, 200>>>(0, TABLE, 2.0);
	managed_count = 6;
	managed_bump<<<1, 1, 0, stream>>>(1);
	OK(cudaStreamSynchronize(stream));
	CHECK(managed_count == 7);
	IS(cudaStreamAttachMemAsync(stream, (char *)&managed_table + 8, 0, cudaMemAttachSingle),
	   cudaErrorInvalidValue);
	(void)cudaGetLastError();
	OK(cudaDeviceSynchronize());
	OK(cudaStreamDestroy(stream));
	end();
}

/* Kernels of the image run where the variables are, and nowhere else. */
static void two_devices()
{
	part = "two devices";
	managed_count = 1;
	OK(cudaSetDevice(1));
	managed_bump<<<1, 1>>>(1);
	IS(cudaGetLastError(), cudaErrorNotSupported);
	OK(cudaSetDevice(0));
	managed_bump<<<1, 1>>>(1);
	OK(cudaDeviceSynchronize());
	CHECK(managed_count == 2);
	end();
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "two") == 0) {
		two_devices();
		return 0;
	}
	one_address();
	to_and_fro();
	tables();
	pointers();
	functions();
	copies();
	graphs();
	attached();
	return 0;
}
