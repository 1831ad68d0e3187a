/* SPDX-License-Identifier: Apache-2.0 */
/* Programs in SPIR-V: of a device that takes them, and of one that does not. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/system/guests/opencl_probe.h"

#define IL_VERSION 0x105B
#define PROGRAM_IL 0x1169
#define SPEC_ID	   (-71) /* CL_INVALID_SPEC_ID */
#define CONSTANT   7
#define N	   64

/* Of OpenCL 2.1 and 2.2; CreateProgramWithIL also of an extension. */
static cl_program (*create_with_il)(cl_context, const void *, size_t, cl_int *);
static cl_program (*create_with_il_khr)(cl_context, const void *, size_t, cl_int *);
static cl_int (*set_constant)(cl_program, cl_uint, size_t, const void *);

static void load(const struct world *w)
{
	void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
	void *(*find)(cl_platform_id, const char *);

	*(void **)&create_with_il = dlsym(library, "clCreateProgramWithIL");
	*(void **)&set_constant = dlsym(library, "clSetProgramSpecializationConstant");
	*(void **)&find = dlsym(library, "clGetExtensionFunctionAddressForPlatform");
	if (!create_with_il || !set_constant || !find) {
		printf("skip the loader is older than OpenCL 2.2\n");
		exit(0);
	}
	*(void **)&create_with_il_khr = find(w->platform, "clCreateProgramWithILKHR");
}

static uint32_t *read_words(const char *path, size_t *ret_bytes)
{
	FILE *file = fopen(path, "rb");
	uint32_t *words = malloc(1 << 20);

	if (!file || !words)
		exit(2);
	*ret_bytes = fread(words, 1, 1 << 20, file);
	(void)fclose(file);
	return words;
}

static void build(const struct world *w, cl_program program)
{
	cl_int result = cl.BuildProgram(program, 1, &w->device, "-cl-kernel-arg-info", NULL, NULL);
	char log[4096] = "";

	if (result != CL_SUCCESS) {
		(void)cl.GetProgramBuildInfo(program, w->device, CL_PROGRAM_BUILD_LOG, sizeof(log),
					     log, NULL);
		printf("log %s\n", log);
	}
	must(result, "clBuildProgram");
}

/* Kernel "reverse" in groups, and "shifted" by the constant. */
static void run(const struct world *w, cl_program program, const char *name, bool in_groups)
{
	cl_int x[N], result, n = N;
	size_t global = N, local = 16;
	cl_kernel kernel = cl.CreateKernel(program, name, &result);
	cl_mem mem;

	must(result, name);
	for (int i = 0; i < N; i++)
		x[i] = i * i;
	mem = cl.CreateBuffer(w->context, CL_MEM_COPY_HOST_PTR, sizeof(x), x, &result);
	must(result, "clCreateBuffer");
	must(cl.SetKernelArg(kernel, 0, sizeof(mem), &mem), "clSetKernelArg");
	must(in_groups ? cl.SetKernelArg(kernel, 1, 16 * sizeof(cl_int), NULL)
		       : cl.SetKernelArg(kernel, 1, sizeof(n), &n),
	     "clSetKernelArg");
	must(cl.EnqueueNDRangeKernel(w->queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL),
	     name);
	must(cl.EnqueueReadBuffer(w->queue, mem, CL_TRUE, 0, sizeof(x), x, 0, NULL, NULL), "read");
	show_bytes(name, x, sizeof(x));
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
}

void probe_il(const struct world *w, const char *path)
{
	const cl_int five = 5;
	char version[64] = "";
	size_t bytes, n = 0;
	uint32_t *words = read_words(path, &bytes);
	cl_program program;
	cl_int result;

	load(w);
	must(cl.GetDeviceInfo(w->device, IL_VERSION, sizeof(version), version, NULL), "version");
	printf("il %s\n", version);
	program = create_with_il(w->context, words, bytes, &result);
	must(result, "clCreateProgramWithIL");
	build(w, program);
	run(w, program, "reverse", true);
	run(w, program, "shifted", false);
	must(cl.ReleaseProgram(program), "clReleaseProgram");
	program = create_with_il(w->context, words, bytes, &result);
	must(result, "clCreateProgramWithIL");
	must(set_constant(program, CONSTANT, sizeof(five), &five), "a specialization constant");
	build(w, program);
	run(w, program, "shifted", false);
	must(cl.GetProgramInfo(program, PROGRAM_IL, 0, NULL, &n), "CL_PROGRAM_IL");
	show("bytes of the language", n);
	must(cl.ReleaseProgram(program), "clReleaseProgram");
	free(words);
}

/* ---- Gantry's own ---- */

static void refuse(const struct world *w, const void *il, size_t bytes, cl_int wanted,
		   const char *name)
{
	cl_int result = 1;
	cl_program program = create_with_il(w->context, il, bytes, &result);

	expect(result, wanted, name);
	expect_true(!program, "and is no program");
}

static void check_constants(cl_program program)
{
	const uint64_t value = 5;

	expect(set_constant(program, 99, 4, &value), SPEC_ID, "a constant that is not there");
	expect(set_constant(program, CONSTANT, 8, &value), CL_INVALID_VALUE, "a constant too long");
	expect(set_constant(program, CONSTANT, 4, NULL), CL_INVALID_VALUE, "a constant of nothing");
	expect(set_constant(program, CONSTANT, 4, &value), CL_SUCCESS, "a constant");
}

/* What the program is given as its binary is the same program again, with its constants. */
static void check_binary(const struct world *w, cl_program program)
{
	size_t bytes = 0;
	unsigned char *binary;
	cl_int result, status;
	cl_program again;

	must(cl.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(bytes), &bytes, NULL),
	     "CL_PROGRAM_BINARY_SIZES");
	binary = malloc(bytes);
	must(cl.GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary), &binary, NULL),
	     "CL_PROGRAM_BINARIES");
	again = cl.CreateProgramWithBinary(w->context, 1, &w->device, &bytes,
					   (const unsigned char **)&binary, &status, &result);
	expect(result, CL_SUCCESS, "a program of the binary");
	build(w, again);
	run(w, again, "shifted", false);
	must(cl.ReleaseProgram(again), "clReleaseProgram");
	free(binary);
}

static void check_program(const struct world *w, const uint32_t *words, size_t bytes)
{
	uint32_t *other = malloc(bytes), *back = malloc(bytes);
	cl_program program;
	cl_int result;

	if (!other || !back)
		exit(2);
	for (size_t i = 0; i < bytes / 4; i++)
		other[i] = __builtin_bswap32(words[i]);
	expect_true(create_with_il_khr != NULL, "the extension's function");
	program = create_with_il_khr(w->context, other, bytes, &result);
	expect(result, CL_SUCCESS, "words in the other order of bytes");
	must(cl.GetProgramInfo(program, PROGRAM_IL, bytes, back, NULL), "CL_PROGRAM_IL");
	expect_true(memcmp(back, words, bytes) == 0, "are the words");
	expect(cl.GetProgramInfo(program, PROGRAM_IL, 4, back, NULL), CL_INVALID_VALUE,
	       "no room for them");
	expect(cl.CompileProgram(program, 0, NULL, NULL, 0, NULL, NULL, NULL, NULL),
	       CL_INVALID_OPERATION, "compiling it apart");
	expect(cl.BuildProgram(program, 0, NULL, "-fplugin=x", NULL, NULL),
	       CL_INVALID_BUILD_OPTIONS, "options that are none");
	check_constants(program);
	build(w, program);
	check_binary(w, program);
	must(cl.ReleaseProgram(program), "clReleaseProgram");
	free(other);
	free(back);
}

void probe_il_misuse(const struct world *w, const char *path)
{
	size_t bytes;
	uint32_t *words = read_words(path, &bytes), none = 0;
	char version[64] = "";
	cl_int value = 1;
	uint32_t kept;

	load(w);
	must(cl.GetDeviceInfo(w->device, IL_VERSION, sizeof(version), version, NULL), "version");
	expect(set_constant(w->program, CONSTANT, 4, &value), CL_INVALID_PROGRAM,
	       "a constant of a program in OpenCL C");
	if (!version[0]) {
		refuse(w, words, bytes, CL_INVALID_OPERATION, "a language that no device takes");
		return;
	}
	refuse(w, NULL, bytes, CL_INVALID_VALUE, "nothing");
	refuse(w, words, 0, CL_INVALID_VALUE, "no bytes");
	refuse(w, &none, sizeof(none), CL_INVALID_VALUE, "a word that is none");
	refuse(w, words, bytes - 2, CL_INVALID_VALUE, "half a word less");
	kept = words[5];
	words[5] = kept | 0xffff0000u;
	refuse(w, words, bytes, CL_INVALID_VALUE, "an instruction that is too long");
	words[5] = kept & 0xffff;
	refuse(w, words, bytes, CL_INVALID_VALUE, "an instruction of nothing");
	words[5] = kept;
	check_program(w, words, bytes);
	free(words);
}
