/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linking on the spot: driver_link A B [ALSO]. A and B are PTX; of B is the kernel `linked`, which puts 42 where its parameter points,
 * with what A has. ALSO: a kernel that A has.
 */
#include <stdint.h>
#include <string.h>

#include "tests/cuda-programs/parts.h"

static char info[4096], error[4096];
static void *values[8];
static CUjit_option options[8] = {
	CU_JIT_INFO_LOG_BUFFER,	 CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
	CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
	CU_JIT_LOG_VERBOSE,	 CU_JIT_MAX_REGISTERS,
	CU_JIT_WALL_TIME,	 CU_JIT_TARGET_FROM_CUCONTEXT,
};

static void set_options(void)
{
	values[0] = info;
	values[1] = (void *)(uintptr_t)sizeof(info);
	values[2] = error;
	values[3] = (void *)(uintptr_t)sizeof(error);
	values[4] = (void *)(uintptr_t)1;
	values[5] = (void *)(uintptr_t)64;
	values[6] = NULL;
	values[7] = NULL;
	memset(info, 'x', sizeof(info));
	memset(error, 'x', sizeof(error));
}

static char *read_all(const char *path, size_t *ret_bytes)
{
	static char text[1 << 16];
	FILE *file = fopen(path, "re");

	CHECK(file != NULL);
	*ret_bytes = fread(text, 1, sizeof(text) - 1, file);
	(void)fclose(file);
	text[*ret_bytes] = '\0';
	return text;
}

static void run(const void *cubin, const char *also)
{
	CUmodule module;
	CUfunction function;
	CUdeviceptr p;
	int got = 0;
	void *params[] = { &p };

	OK(cuModuleLoadData(&module, cubin));
	OK(cuModuleGetFunction(&function, module, "linked"));
	OK(cuMemAlloc(&p, 4));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL));
	OK(cuMemcpyDtoH(&got, p, 4));
	CHECK(got == 42);
	if (also)
		OK(cuModuleGetFunction(&function, module, also));
	IS(cuModuleGetFunction(&function, module, "no such"), NOT_FOUND);
	OK(cuMemFree(p));
	OK(cuModuleUnload(module));
}

static void linked(const char *a, const char *b, const char *also)
{
	CUlinkState link;
	size_t bytes, cubin_bytes = 0;
	char *text, *copy;
	void *cubin;

	begin("linked");
	set_options();
	OK(cuLinkCreate(8, options, values, &link));
	OK(cuLinkAddFile(link, CU_JIT_INPUT_PTX, a, 0, NULL, NULL));
	text = read_all(b, &bytes);
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, text, bytes + 1, "b", 0, NULL, NULL));
	OK(cuLinkComplete(link, &cubin, &cubin_bytes));
	CHECK(cubin_bytes > 0);
	CHECK((size_t)(uintptr_t)values[1] == strlen(info) && strlen(info) > 0);
	CHECK((size_t)(uintptr_t)values[3] == strlen(error) && error[0] == '\0');
	run(cubin, also);
	/* As programs keep it. */
	copy = malloc(cubin_bytes);
	CHECK(copy != NULL);
	memcpy(copy, cubin, cubin_bytes);
	OK(cuLinkDestroy(link));
	run(copy, also);
	free(copy);
	end();
}

static void what_does_not_link(const char *b)
{
	static char broken[] = ".version 8.0\n.target sm_80\n.address_size 64\nnonsense;\n";
	static char garbage[] = "nonsense";
	CUlinkState link;
	size_t bytes;
	char *text;
	void *cubin;

	begin("what does not link");
	set_options();
	OK(cuLinkCreate(8, options, values, &link));
	IS(cuLinkComplete(link, &cubin, &bytes), INVALID_VALUE);
	IS(cuLinkAddData(link, CU_JIT_INPUT_PTX, garbage, sizeof(garbage), "g", 0, NULL, NULL),
	   INVALID_PTX);
	IS(cuLinkAddData(link, CU_JIT_INPUT_CUBIN, garbage, sizeof(garbage), "g", 0, NULL, NULL),
	   INVALID_IMAGE);
	IS(cuLinkAddData(link, CU_JIT_INPUT_FATBINARY, garbage, sizeof(garbage), "g", 0, NULL,
			 NULL),
	   INVALID_IMAGE);
	IS(cuLinkAddData(link, CU_JIT_INPUT_OBJECT, garbage, sizeof(garbage), "g", 0, NULL, NULL),
	   NOT_SUPPORTED);
	IS(cuLinkAddData(link, CU_JIT_NUM_INPUT_TYPES, garbage, sizeof(garbage), "g", 0, NULL,
			 NULL),
	   INVALID_VALUE);
	IS(cuLinkAddData(link, CU_JIT_INPUT_PTX, NULL, 8, "g", 0, NULL, NULL), INVALID_VALUE);
	IS(cuLinkAddData(link, CU_JIT_INPUT_PTX, broken, 0, "g", 0, NULL, NULL), INVALID_VALUE);
	IS(cuLinkAddFile(link, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL, NULL), FILE_NOT_FOUND);
	/* A host of ours tells at the end what the driver tells at once. */
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, broken, sizeof(broken), "broken", 0, NULL, NULL));
	IS(cuLinkComplete(link, &cubin, &bytes), INVALID_PTX);
	CHECK(strstr(error, "error") != NULL);
	OK(cuLinkDestroy(link));
	IS(cuLinkDestroy(link), INVALID_HANDLE);
	IS(cuLinkComplete(link, &cubin, &bytes), INVALID_HANDLE);
	/* What the other input has is missing. */
	set_options();
	OK(cuLinkCreate(8, options, values, &link));
	text = read_all(b, &bytes);
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, text, bytes, NULL, 0, NULL, NULL));
	IS(cuLinkComplete(link, &cubin, &bytes), INVALID_IMAGE);
	CHECK(strstr(error, "ndefined") != NULL);
	IS(cuLinkAddData(link, CU_JIT_INPUT_PTX, text, bytes, NULL, 0, NULL, NULL), INVALID_VALUE);
	OK(cuLinkDestroy(link));
	options[0] = CU_JIT_GLOBAL_SYMBOL_NAMES;
	IS(cuLinkCreate(1, options, values, &link), NOT_SUPPORTED);
	options[0] = CU_JIT_NUM_OPTIONS;
	IS(cuLinkCreate(1, options, values, &link), INVALID_VALUE);
	IS(cuLinkCreate(1, NULL, NULL, &link), INVALID_VALUE);
	IS(cuLinkCreate(0, NULL, NULL, NULL), INVALID_VALUE);
	end();
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	(void)set_out();
	linked(argv[1], argv[2], argc > 3 ? argv[3] : NULL);
	what_does_not_link(argv[2]);
	return 0;
}
