/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakecuda/libraries/fake.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

struct job {
	void (*work)(void *args);
	_Alignas(16) char args[];
};

/* The driver is in the process already, and not where names are looked for. */
static void *driver(const char *name)
{
	void *library = dlopen(FAKE_DRIVER, RTLD_NOW | RTLD_NOLOAD);

	return library ? dlsym(library, name) : NULL;
}

static void run(void *data)
{
	struct job *job = data;

	job->work(job->args);
	free(job);
}

int fake_enqueue(void *stream, void (*work)(void *args), const void *args, size_t bytes)
{
	CUresult (*launch)(CUstream, CUhostFn, void *) =
		(CUresult(*)(CUstream, CUhostFn, void *))driver("cuLaunchHostFunc");
	struct job *job = malloc(sizeof(*job) + bytes);
	CUresult r;

	if (!launch || !job) {
		free(job);
		return 1;
	}
	job->work = work;
	memcpy(job->args, args, bytes);
	r = launch(stream, run, job);
	if (r != CUDA_SUCCESS)
		free(job);
	return r;
}

int fake_device(void)
{
	CUresult (*ask)(CUdevice *) = (CUresult(*)(CUdevice *))driver("cuCtxGetDevice");
	CUdevice device = -1;

	return ask && ask(&device) == CUDA_SUCCESS ? device : -1;
}

int fake_wait_all(void)
{
	CUresult (*wait)(void) = (CUresult(*)(void))driver("cuCtxSynchronize");

	return wait ? (int)wait() : 1;
}

int fake_wait(void *stream)
{
	CUresult (*wait)(CUstream) = (CUresult(*)(CUstream))driver("cuStreamSynchronize");

	return wait ? (int)wait(stream) : 1;
}
