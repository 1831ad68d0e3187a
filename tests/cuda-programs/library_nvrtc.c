/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that compiles its kernel as it runs: the source in the file argv[1], which has a kernel saxpy and includes "step.h", a header that comes
 * with it. In folder argv[2] are files that another source includes, argv[3], and beside it one that nobody may. With two arguments
 * it only compiles source argv[1], which includes headers of the toolkit's in folder argv[2].
 */
#include <nvrtc.h>
#include <stdint.h>
#include <string.h>

#include "tests/cuda-programs/parts.h"

#define N 256

#define RTC(call, wanted) CHECK((call) == (wanted))

static char *read_source(const char *path)
{
	static char source[16384];
	FILE *file = fopen(path, "r");

	CHECK(file != NULL);
	source[fread(source, 1, sizeof(source) - 1, file)] = '\0';
	(void)fclose(file);
	return source;
}

static void say_log(nvrtcProgram program)
{
	size_t n = 0;
	char *log;

	RTC(nvrtcGetProgramLogSize(program, &n), NVRTC_SUCCESS);
	log = calloc(1, n + 1);
	RTC(nvrtcGetProgramLog(program, log), NVRTC_SUCCESS);
	printf("%s", log);
	free(log);
}

static char *compile(const char *path)
{
	const char *const header = "#define STEP 1\n", *const name = "step.h";
	const char *const options[] = { "--gpu-architecture=compute_80", "--std=c++17",
					"-default-device" };
	nvrtcProgram program = NULL;
	size_t n = 0;
	char *ptx;

	begin("compile");
	RTC(nvrtcCreateProgram(&program, read_source(path), "saxpy.cu", 1, &header, &name),
	    NVRTC_SUCCESS);
	RTC(nvrtcGetPTXSize(program, &n), NVRTC_ERROR_INVALID_PROGRAM);
	if (nvrtcCompileProgram(program, 3, options) != NVRTC_SUCCESS) {
		say_log(program);
		CHECK(!"it compiles");
	}
	RTC(nvrtcGetPTXSize(program, &n), NVRTC_SUCCESS);
	ptx = malloc(n);
	CHECK(ptx != NULL && n > 0);
	RTC(nvrtcGetPTX(program, ptx), NVRTC_SUCCESS);
	CHECK(strlen(ptx) + 1 == n);
	RTC(nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
	CHECK(program == NULL);
	end();
	return ptx;
}

static void run(const char *ptx)
{
	CUdeviceptr x, y;
	float seen[N], a = 2;
	int32_t n = N;
	void *params[] = { &n, &a, &x, &y };
	CUfunction saxpy;
	CUmodule module;

	begin("run");
	OK(cuModuleLoadData(&module, ptx));
	OK(cuModuleGetFunction(&saxpy, module, "saxpy"));
	OK(cuMemAlloc(&x, sizeof(seen)));
	OK(cuMemAlloc(&y, sizeof(seen)));
	OK(cuMemsetD32(x, 0x40400000, N)); /* 3.0 */
	OK(cuMemsetD32(y, 0x3f800000, N)); /* 1.0 */
	OK(cuLaunchKernel(saxpy, 1, 1, 1, N, 1, 1, 0, 0, params, NULL));
	OK(cuMemcpyDtoH(seen, y, sizeof(seen)));
	for (int i = 0; i < N; i++)
		CHECK(seen[i] == 7.0f);
	end();
}

/* Files of this process, which is not where the compiler is. */
static void include(const char *folder, const char *path)
{
	const char *const options[] = { "--gpu-architecture=compute_80", "-I", folder,
					"-default-device" };
	nvrtcProgram program = NULL;

	begin("include");
	RTC(nvrtcCreateProgram(&program, read_source(path), "includes.cu", 0, NULL, NULL),
	    NVRTC_SUCCESS);
	RTC(nvrtcCompileProgram(program, 1, options), NVRTC_ERROR_COMPILATION);
	for (int i = 0; i < 2; i++)
		if (nvrtcCompileProgram(program, 4, options) != NVRTC_SUCCESS) {
			say_log(program);
			CHECK(!"it finds them");
		}
	RTC(nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
	RTC(nvrtcCreateProgram(&program, "#include <../outside.h>\n", "outside.cu", 0, NULL, NULL),
	    NVRTC_SUCCESS);
	RTC(nvrtcCompileProgram(program, 4, options), NVRTC_ERROR_COMPILATION);
	say_log(program);
	RTC(nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
	end();
}

static void fail(void)
{
	nvrtcProgram program = NULL;

	begin("errors");
	RTC(nvrtcCreateProgram(&program, "#error nonsense\n", "bad.cu", 0, NULL, NULL),
	    NVRTC_SUCCESS);
	RTC(nvrtcCompileProgram(program, 0, NULL), NVRTC_ERROR_COMPILATION);
	say_log(program);
	RTC(nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
	RTC(nvrtcCompileProgram(program, 0, NULL), NVRTC_ERROR_INVALID_INPUT);
	RTC(nvrtcCreateProgram(&program, NULL, NULL, 0, NULL, NULL), NVRTC_ERROR_INVALID_INPUT);
	end();
}

/* A source that includes headers of the toolkit's, which lie in a folder. */
static void include_toolkit(const char *path, const char *folder)
{
	const char *const options[] = { "--gpu-architecture=compute_80", "-I", folder };
	nvrtcProgram program = NULL;
	size_t n = 0;

	begin("toolkit");
	RTC(nvrtcCreateProgram(&program, read_source(path), "toolkit.cu", 0, NULL, NULL),
	    NVRTC_SUCCESS);
	if (nvrtcCompileProgram(program, 3, options) != NVRTC_SUCCESS) {
		say_log(program);
		CHECK(!"it compiles");
	}
	RTC(nvrtcGetPTXSize(program, &n), NVRTC_SUCCESS);
	CHECK(n > 1);
	RTC(nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
	end();
}

int main(int argc, char **argv)
{
	char *ptx;

	if (argc == 3) {
		(void)set_out();
		include_toolkit(argv[1], argv[2]);
		return 0;
	}
	if (argc != 4)
		return 2;
	(void)set_out();
	ptx = compile(argv[1]);
	run(ptx);
	include(argv[2], argv[3]);
	fail();
	free(ptx);
	return 0;
}
