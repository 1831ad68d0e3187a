/* SPDX-License-Identifier: Apache-2.0 */
/* Memory in other ways than allocation. With an argument it runs natively, for comparison: what is ours alone is left out. */
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels.cuh"
#include "runtime_parts.cuh"

#define N 5000
#define PAGE 4096

static bool is_native;
static float *x;

static unsigned char *pages(size_t bytes, int file = -1)
{
	void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
			file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0);

	CHECK(at != MAP_FAILED);
	return (unsigned char *)at;
}

/* Kernels and copies use it, and the program sees at once what they did. */
static void registered_pages()
{
	const size_t bytes = 8 * PAGE;
	cudaPointerAttributes attributes;
	unsigned char *host = pages(bytes);
	float *floats = (float *)host;
	cudaStream_t stream;
	void *device;

	part = "registered pages";
	OK(cudaStreamCreate(&stream));
	for (size_t i = 0; i < bytes; i++)
		host[i] = (unsigned char)(i * 7);
	OK(cudaHostRegister(host, bytes, cudaHostRegisterMapped));
	for (size_t i = 0; i < bytes; i++)
		CHECK(host[i] == (unsigned char)(i * 7));
	OK(cudaPointerGetAttributes(&attributes, host + PAGE));
	CHECK(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == host + PAGE);
	OK(cudaHostGetDevicePointer(&device, host, 0));
	number<<<N / 250, 250, 0, stream>>>(pair{ (float *)device, 3, {} }, N);
	OK(cudaStreamSynchronize(stream));
	CHECK(floats[0] == 3 && floats[N - 1] == N + 2);
	/* What one copy brings the next takes, without the program in between. */
	OK(cudaMemset(x, 0, N * sizeof(float)));
	OK(cudaMemcpyAsync(x, floats, N * sizeof(float), cudaMemcpyHostToDevice, stream));
	number<<<N / 250, 250, 0, stream>>>(pair{ x, 9, {} }, N / 2);
	OK(cudaMemcpyAsync(floats, x, N * sizeof(float), cudaMemcpyDeviceToHost, stream));
	OK(cudaMemcpyAsync(x + 1, floats, 4, cudaMemcpyHostToDevice, stream));
	OK(cudaMemcpyAsync(floats + 1, x + 1, 4, cudaMemcpyDeviceToHost, stream));
	OK(cudaStreamSynchronize(stream));
	CHECK(floats[0] == 9 && floats[1] == 9 && floats[2] == 11 && floats[N - 1] == N + 2);
	OK(cudaHostUnregister(host));
	CHECK(floats[0] == 9 && floats[N - 1] == N + 2);
	host[0] = 1;
	OK(cudaStreamDestroy(stream));
	CHECK(munmap(host, bytes) == 0);
	end();
}

/* From the middle of a page to that of another, of malloc()'s, on the stack, and of a file. */
static void there_and_back(unsigned char *host, size_t bytes)
{
	std::vector<unsigned char> before(host, host + bytes);
	unsigned char *device;
	cudaStream_t stream;
	cudaError_t registered = cudaHostRegister(host, bytes, cudaHostRegisterDefault);

	/* Not every driver takes parts of pages, or every kind of memory: ours does. */
	if (is_native && registered != cudaSuccess) {
		(void)cudaGetLastError();
		return;
	}
	OK(registered);
	OK(cudaMalloc(&device, bytes));
	OK(cudaStreamCreate(&stream));
	CHECK(memcmp(host, before.data(), bytes) == 0);
	for (size_t i = 0; i < bytes; i++)
		host[i] = (unsigned char)(i * 11 + 1);
	OK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
	OK(cudaStreamSynchronize(stream));
	memset(host, 0, bytes);
	/* A row of it at odd places too. */
	OK(cudaMemcpyAsync(host, device, bytes / 2, cudaMemcpyDefault, stream));
	OK(cudaMemcpyAsync(host + bytes / 2, device + bytes / 2, bytes - bytes / 2, cudaMemcpyDeviceToHost, stream));
	OK(cudaStreamSynchronize(stream));
	for (size_t i = 0; i < bytes; i++)
		CHECK(host[i] == (unsigned char)(i * 11 + 1));
	OK(cudaHostUnregister(host));
	for (size_t i = 0; i < bytes; i++)
		CHECK(host[i] == (unsigned char)(i * 11 + 1));
	OK(cudaStreamDestroy(stream));
	OK(cudaFree(device));
}

static void registered_as_it_lies()
{
	unsigned char on_stack[3 * PAGE];
	unsigned char *mine = (unsigned char *)malloc(40 * PAGE), *small = (unsigned char *)malloc(100);
	FILE *file = tmpfile();
	unsigned char *mapped;

	part = "registered as it lies";
	CHECK(file && ftruncate(fileno(file), 4 * PAGE) == 0);
	mapped = pages(4 * PAGE, fileno(file));
	memset(on_stack, 5, sizeof(on_stack));
	memset(mine, 6, 40 * PAGE);
	memset(small, 7, 100);
	there_and_back(mine + 123, 33 * PAGE + 17);
	there_and_back(small, 100);
	there_and_back(on_stack, sizeof(on_stack));
	there_and_back(mapped, 4 * PAGE);
	for (int i = 0; i < 20; i++)
		there_and_back(mine, 40 * PAGE);
	free(mine);
	free(small);
	CHECK(munmap(mapped, 4 * PAGE) == 0);
	fclose(file);
	end();
}

static void registered_wrongly()
{
	unsigned char *host = pages(8 * PAGE), *pinned;
	void *device;

	part = "registered wrongly";
	IS(cudaHostRegister(nullptr, PAGE, 0), cudaErrorInvalidValue);
	IS(cudaHostRegister(host, 0, 0), cudaErrorInvalidValue);
	IS(cudaHostRegister(host, PAGE, 0x1000), cudaErrorInvalidValue);
	IS(cudaHostUnregister(host), cudaErrorHostMemoryNotRegistered);
	OK(cudaHostRegister(host, 4 * PAGE, 0));
	IS(cudaHostRegister(host, 4 * PAGE, 0), cudaErrorHostMemoryAlreadyRegistered);
	IS(cudaHostRegister(host + PAGE, 6 * PAGE, 0), cudaErrorHostMemoryAlreadyRegistered);
	if (!is_native) {
		IS(cudaFreeHost(host), cudaErrorInvalidValue);
		IS(cudaFree(host), cudaErrorInvalidValue);
		IS(cudaHostUnregister(host + PAGE), cudaErrorHostMemoryNotRegistered);
		IS(cudaHostRegister(host + 4 * PAGE, SIZE_MAX - 4096, 0), cudaErrorInvalidValue);
		OK(cudaHostRegister(host + 4 * PAGE + 8, 2 * PAGE, 0));
		IS(cudaHostGetDevicePointer(&device, host + 4 * PAGE + 8, 0), cudaErrorNotSupported);
		OK(cudaHostUnregister(host + 4 * PAGE + 8));
	}
	OK(cudaMallocHost(&pinned, PAGE));
	IS(cudaHostRegister(pinned, PAGE, 0), cudaErrorHostMemoryAlreadyRegistered);
	OK(cudaFreeHost(pinned));
	CHECK(munmap(host + 6 * PAGE, PAGE) == 0);
	IS(cudaHostRegister(host + 5 * PAGE, 2 * PAGE, 0), cudaErrorInvalidValue);
	(void)cudaGetLastError();
	OK(cudaHostUnregister(host));
	end();
}

/* Of the child's too it was, as it was; that it has no CUDA is no reason to lose memory. */
static void registered_and_forked()
{
	const size_t bytes = 40 * PAGE;
	unsigned char *mine = (unsigned char *)malloc(bytes), *device, last;
	int status;
	pid_t pid;

	part = "registered and forked";
	memset(mine, 7, bytes);
	OK(cudaHostRegister(mine, bytes, 0));
	OK(cudaMalloc(&device, bytes));
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		for (size_t i = 0; i < bytes; i++)
			if (mine[i] != 7)
				_exit(1);
		memset(mine, 8, bytes);
		free(mine);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(mine[0] == 7 && mine[bytes - 1] == 7);
	mine[bytes - 1] = 9;
	OK(cudaMemcpy(device, mine, bytes, cudaMemcpyHostToDevice));
	OK(cudaMemcpy(&last, device + bytes - 1, 1, cudaMemcpyDeviceToHost));
	CHECK(last == 9);
	OK(cudaFree(device));
	OK(cudaHostUnregister(mine));
	free(mine);
	end();
}

/* The last: it ends the device's context, and with it what is registered there. */
static void registered_and_unmapped()
{
	unsigned char *gone = pages(4 * PAGE), *replaced = pages(4 * PAGE), *kept = pages(4 * PAGE), *file_too;
	FILE *file = tmpfile();

	part = "registered and unmapped";
	CHECK(file && ftruncate(fileno(file), 4 * PAGE) == 0);
	file_too = pages(4 * PAGE, fileno(file));
	memset(kept, 3, 4 * PAGE);
	for (unsigned char *host : { gone, replaced, kept })
		OK(cudaHostRegister(host, 4 * PAGE, 0));
	CHECK(munmap(gone, 4 * PAGE) == 0);
	OK(cudaHostUnregister(gone));
	CHECK(mmap(gone, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == gone);
	OK(cudaHostRegister(gone, 4 * PAGE, 0));
	CHECK(munmap(gone, 4 * PAGE) == 0);
	CHECK(mmap(replaced, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fileno(file), 0) == replaced);
	OK(cudaDeviceReset());
	replaced[0] = 11;
	CHECK(file_too[0] == 11 && kept[0] == 3 && kept[4 * PAGE - 1] == 3);
	kept[0] = 4;
	CHECK(munmap(replaced, 4 * PAGE) == 0 && munmap(kept, 4 * PAGE) == 0 && munmap(file_too, 4 * PAGE) == 0);
	(void)fclose(file);
	end();
}

int main(int argc, char **argv)
{
	(void)argv;
	is_native = argc > 1;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	OK(cudaMalloc(&x, N * sizeof(float)));
	registered_pages();
	registered_as_it_lies();
	registered_wrongly();
	registered_and_forked();
	if (!is_native)
		registered_and_unmapped();
	return 0;
}
