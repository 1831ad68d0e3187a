/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVRTC and nvJitLink, by their documented functions; declared here, for headers and libraries of both are no part of
 * what a build needs.
 */
#include "devices/cuda/compile.h"

#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "devices/cuda/rtc.h"
#include "proto/cuda_link.h"

#define MAX_ARCHS 64
#define PATH_ROOM 4096u

/* Of all devices that there are drivers for (CUDA C++ Programming Guide, technical specifications). */
#define REGISTERS_OF_BLOCK  65536u
#define REGISTERS_OF_THREAD 255u

typedef struct nvJitLink *nvjitlink_handle;

#define NVJITLINK_INPUT_CUBIN  1
#define NVJITLINK_INPUT_PTX    2
#define NVJITLINK_INPUT_FATBIN 4
#define NVJITLINK_PTX_COMPILE  4 /* a result */

struct nvjitlink {
	int (*create)(nvjitlink_handle *handle, uint32_t noptions, const char **options);
	int (*add)(nvjitlink_handle handle, int input, const void *data, size_t size,
		   const char *name);
	int (*complete)(nvjitlink_handle handle);
	int (*error_log_size)(nvjitlink_handle handle, size_t *ret_size);
	int (*error_log)(nvjitlink_handle handle, char *log);
	int (*info_log_size)(nvjitlink_handle handle, size_t *ret_size);
	int (*info_log)(nvjitlink_handle handle, char *log);
	int (*cubin_size)(nvjitlink_handle handle, size_t *ret_size);
	int (*cubin)(nvjitlink_handle handle, void *cubin);
};

/* Of this process, which is there for nothing else. */
static struct gantry_nvrtc nvrtc;
static struct nvjitlink nvjitlink;
static bool has_nvrtc, has_nvjitlink;

/* ---- libraries ---- */

struct wanted {
	const char *name;
	void *to; /* a function pointer */
};

/* POSIX wants this conversion to work; ISO C has no cast for it. */
static bool take(void *library, const char *name, void *to)
{
	void *address = dlsym(library, name);

	memcpy(to, &address, sizeof(address));
	return address != NULL;
}

static void *open_any(const char *const *names, size_t n)
{
	void *library = NULL;

	for (size_t i = 0; i < n && !library; i++)
		library = names[i] ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
	return library;
}

static bool open_nvrtc(const char *path)
{
	const char *const sonames[] = { "libnvrtc.so.13", "libnvrtc.so.12" };
	const struct wanted wanted[] = {
		{ "nvrtcCreateProgram", &nvrtc.create },
		{ "nvrtcCompileProgram", &nvrtc.compile },
		{ "nvrtcGetProgramLogSize", &nvrtc.log_size },
		{ "nvrtcGetProgramLog", &nvrtc.log },
		{ "nvrtcGetCUBINSize", &nvrtc.cubin_size },
		{ "nvrtcGetCUBIN", &nvrtc.cubin },
		{ "nvrtcGetPTXSize", &nvrtc.ptx_size },
		{ "nvrtcGetPTX", &nvrtc.ptx },
		{ "nvrtcGetNumSupportedArchs", &nvrtc.narchs },
		{ "nvrtcGetSupportedArchs", &nvrtc.archs },
		{ "nvrtcGetErrorString", &nvrtc.error },
	};
	const struct wanted optional[] = {
		{ "nvrtcAddNameExpression", &nvrtc.add_expression },
		{ "nvrtcGetLoweredName", &nvrtc.lowered },
		{ "nvrtcGetLTOIRSize", &nvrtc.ltoir_size },
		{ "nvrtcGetLTOIR", &nvrtc.ltoir },
		{ "nvrtcGetOptiXIRSize", &nvrtc.optixir_size },
		{ "nvrtcGetOptiXIR", &nvrtc.optixir },
	};
	void *library = path ? open_any(&path, 1) : open_any(sonames, GANTRY_ARRAY_SIZE(sonames));
	bool all = library != NULL;

	for (size_t i = 0; all && i < GANTRY_ARRAY_SIZE(wanted); i++)
		all = take(library, wanted[i].name, wanted[i].to);
	for (size_t i = 0; all && i < GANTRY_ARRAY_SIZE(optional); i++)
		(void)take(library, optional[i].name, optional[i].to);
	return all;
}

/* Its header gives each function a name with the version it was made for; the plain ones are there too. */
static bool open_nvjitlink(const char *path, const char *nvrtc_path)
{
	const char *const names[] = { "libnvJitLink.so.13", "libnvJitLink.so.12" };
	const struct wanted wanted[] = {
		{ "nvJitLinkCreate", &nvjitlink.create },
		{ "nvJitLinkAddData", &nvjitlink.add },
		{ "nvJitLinkComplete", &nvjitlink.complete },
		{ "nvJitLinkGetErrorLogSize", &nvjitlink.error_log_size },
		{ "nvJitLinkGetErrorLog", &nvjitlink.error_log },
		{ "nvJitLinkGetInfoLogSize", &nvjitlink.info_log_size },
		{ "nvJitLinkGetInfoLog", &nvjitlink.info_log },
		{ "nvJitLinkGetLinkedCubinSize", &nvjitlink.cubin_size },
		{ "nvJitLinkGetLinkedCubin", &nvjitlink.cubin },
	};
	const char *slash = nvrtc_path ? strrchr(nvrtc_path, '/') : NULL;
	char beside[PATH_ROOM];
	void *library = NULL;
	bool all;

	if (path)
		library = open_any(&path, 1);
	for (size_t i = 0; !path && !library && i < GANTRY_ARRAY_SIZE(names); i++) {
		const char *name = names[i];

		if (slash && gantry_str_format(beside, sizeof(beside), "%.*s/%s",
					       (int)(slash - nvrtc_path), nvrtc_path, name) == 0)
			name = beside;
		library = open_any(&name, 1);
	}
	all = library != NULL;
	for (size_t i = 0; all && i < GANTRY_ARRAY_SIZE(wanted); i++)
		all = take(library, wanted[i].name, wanted[i].to);
	return all;
}

/* Makes the libraries open what they open late, as NVRTC does its builtins. What comes of it does not matter. */
static void warm_up(void)
{
	static const char source[] = "extern \"C\" __global__ void k(float *x) { x[0] = 1; }";
	static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
				  ".visible .entry k() { ret; }\n";
	struct gantry_device_conf conf = { 0 };
	struct gantry_err err;
	char log[256];
	void *image;
	size_t nbytes;

	if (has_nvrtc && gantry_cuda_compile(&conf, "sm_80", source, strlen(source), &image,
					     &nbytes, log, sizeof(log), &err) == 0)
		free(image);
	if (has_nvjitlink && gantry_cuda_compile(&conf, "sm_80", ptx, strlen(ptx), &image, &nbytes,
						 log, sizeof(log), &err) == 0)
		free(image);
}

int gantry_cuda_compiler_open(const struct gantry_device_conf *conf, struct gantry_err *err)
{
	const char *nvrtc_path = gantry_device_opt(conf, "nvrtc");
	const char *folder = gantry_device_opt(conf, "libraries");
	char in_folder[PATH_ROOM];

	(void)err; /* what is missing shows when it is needed: PTX can do without either */
	if (!nvrtc_path && folder &&
	    gantry_str_format(in_folder, sizeof(in_folder), "%s/libnvrtc.so.13", folder) == 0 &&
	    open_nvrtc(in_folder))
		nvrtc_path = in_folder;
	has_nvrtc = nvrtc_path == in_folder || open_nvrtc(nvrtc_path);
	has_nvjitlink = open_nvjitlink(gantry_device_opt(conf, "nvjitlink"), nvrtc_path);
	warm_up();
	return 0;
}

/* ---- what to compile for ---- */

struct target {
	int arch; /* 90 */
	bool is_common; /* PTX that every one of several devices can take, or newer ones than NVRTC knows */
};

static int lowest_arch(const char *archs, bool *ret_several)
{
	int lowest = 0;

	*ret_several = strchr(archs, ',') != NULL;
	for (const char *at = archs; at; at = strchr(at, ',')) {
		int arch;

		at += *at == ',';
		arch = strncmp(at, "sm_", 3) == 0 ? atoi(at + 3) : 0;
		if (arch > 0 && (lowest == 0 || arch < lowest))
			lowest = arch;
	}
	return lowest;
}

/* NVRTC knows architectures up to those of its time; PTX for an older one runs on all that follow. */
static void choose_target(const char *archs, struct target *t)
{
	int known[MAX_ARCHS];
	int n = 0, best = 0;

	t->arch = lowest_arch(archs, &t->is_common);
	if (nvrtc.narchs(&n) != 0 || n <= 0 || n > MAX_ARCHS || nvrtc.archs(known) != 0)
		return;
	for (int i = 0; i < n; i++)
		if (known[i] <= t->arch && known[i] > best)
			best = known[i];
	if (best != 0 && best != t->arch) {
		t->arch = best;
		t->is_common = true;
	}
}

/* ---- logs ---- */

/* The first line that says "error", for a sentence. */
static int refuse(struct gantry_err *err, const char *log, const char *otherwise)
{
	const char *at = strstr(log, "error");
	size_t len;

	while (at && at > log && at[-1] != '\n')
		at--;
	if (!at || !*at)
		at = otherwise;
	len = strcspn(at, "\r\n");
	(void)gantry_err_set(err, -ENOEXEC, "%.*s", (int)len, at);
	gantry_str_make_printable(err->text);
	return -ENOEXEC;
}

static void copy_log(char *log, size_t log_bytes, const char *from, size_t n)
{
	size_t len = strnlen(from, n);

	len = len < log_bytes ? len : log_bytes - 1;
	memcpy(log, from, len);
	log[len] = '\0';
}

/* ---- NVRTC ---- */

static void take_nvrtc_log(gantry_nvrtc_program program, char *log, size_t log_bytes)
{
	size_t n = 0;
	char *text;

	if (nvrtc.log_size(program, &n) != 0 || n == 0)
		return;
	text = calloc(1, n + 1);
	if (text && nvrtc.log(program, text) == 0)
		copy_log(log, log_bytes, text, n);
	free(text);
}

static int take_nvrtc_output(gantry_nvrtc_program program, bool ptx, void **ret_image,
			     size_t *ret_nbytes, struct gantry_err *err)
{
	size_t n = 0;
	int r = ptx ? nvrtc.ptx_size(program, &n) : nvrtc.cubin_size(program, &n);
	char *image;

	if (r != 0 || n == 0)
		return gantry_err_set(err, -ENOEXEC, "NVRTC gives no code");
	image = malloc(n);
	if (!image)
		return gantry_err_set(err, -ENOMEM, "no memory for what was compiled");
	if ((ptx ? nvrtc.ptx(program, image) : nvrtc.cubin(program, image)) != 0) {
		free(image);
		return gantry_err_set(err, -ENOEXEC, "NVRTC gives no code");
	}
	*ret_image = image;
	*ret_nbytes = n;
	return 0;
}

static int compile_source(const char *archs, const char *source, void **ret_image,
			  size_t *ret_nbytes, char *log, size_t log_bytes, struct gantry_err *err)
{
	struct target t = { 0 };
	char option[64];
	const char *options[] = { option, "--std=c++17" };
	gantry_nvrtc_program program;
	int r;

	if (!has_nvrtc)
		return gantry_err_set(err, -EOPNOTSUPP,
				      "this host has no NVRTC: load PTX or a binary");
	choose_target(archs, &t);
	(void)gantry_str_format(option, sizeof(option), "--gpu-architecture=%s_%d",
				t.is_common ? "compute" : "sm", t.arch); /* it fits */
	r = nvrtc.create(&program, source, "source.cu", 0, NULL, NULL);
	if (r != 0)
		return gantry_err_set(err, -ENOEXEC, "NVRTC: %s", nvrtc.error(r));
	r = nvrtc.compile(program, GANTRY_ARRAY_SIZE(options), options);
	take_nvrtc_log(program, log, log_bytes);
	if (r != 0)
		return refuse(err, log, nvrtc.error(r));
	/* The process ends after this: nothing is given back. */
	return take_nvrtc_output(program, t.is_common, ret_image, ret_nbytes, err);
}

/* ---- nvJitLink ---- */

static void take_nvjitlink_log(nvjitlink_handle handle, bool errors, char *log, size_t log_bytes)
{
	size_t n = 0;
	char *text;

	if ((errors ? nvjitlink.error_log_size : nvjitlink.info_log_size)(handle, &n) != 0 ||
	    n == 0)
		return;
	text = calloc(1, n + 1);
	if (text && (errors ? nvjitlink.error_log : nvjitlink.info_log)(handle, text) == 0)
		copy_log(log, log_bytes, text, n);
	free(text);
}

static int take_nvjitlink_output(nvjitlink_handle handle, void **ret_image, size_t *ret_nbytes,
				 struct gantry_err *err)
{
	size_t n = 0;
	void *image;

	if (nvjitlink.cubin_size(handle, &n) != 0 || n == 0)
		return gantry_err_set(err, -ENOEXEC, "nvJitLink gives no code");
	image = malloc(n);
	if (!image)
		return gantry_err_set(err, -ENOMEM, "no memory for what was compiled");
	if (nvjitlink.cubin(handle, image) != 0) {
		free(image);
		return gantry_err_set(err, -ENOEXEC, "nvJitLink gives no code");
	}
	*ret_image = image;
	*ret_nbytes = n;
	return 0;
}

/* What a guest may ask for; 0: nothing of the kind. */
struct wishes {
	uint32_t registers; /* of a thread, at most */
	bool is_plain;	    /* nothing is optimized */
	bool debug;
	bool line_info;
	bool verbose;
};

/* -EOPNOTSUPP: it does not know the architecture. */
static int jitlink_open(int arch, const struct wishes *wishes, nvjitlink_handle *ret_handle,
			struct gantry_err *err)
{
	char target[32], registers[32];
	const char *options[6] = { target };
	uint32_t n = 1;

	(void)gantry_str_format(target, sizeof(target), "-arch=sm_%d", arch);
	(void)gantry_str_format(registers, sizeof(registers), "-maxrregcount=%u",
				wishes->registers); /* both fit */
	if (nvjitlink.create(ret_handle, n, options) != 0)
		return gantry_err_set(err, -EOPNOTSUPP, "nvJitLink knows no sm_%d", arch);
	if (wishes->registers)
		options[n++] = registers;
	if (wishes->is_plain)
		options[n++] = "-O0";
	if (wishes->debug)
		options[n++] = "-g";
	if (wishes->line_info)
		options[n++] = "-lineinfo";
	if (wishes->verbose)
		options[n++] = "-verbose";
	/* The process ends after this: the other one is not given back. */
	if (n > 1 && nvjitlink.create(ret_handle, n, options) != 0)
		return gantry_err_set(err, -ENOEXEC, "the link's options do not go together");
	return 0;
}

static int assemble(int arch, const char *ptx, void **ret_image, size_t *ret_nbytes, char *log,
		    size_t log_bytes, struct gantry_err *err)
{
	nvjitlink_handle handle;
	int r = jitlink_open(arch, &(struct wishes){ 0 }, &handle, err);

	if (r < 0)
		return r;
	r = nvjitlink.add(handle, NVJITLINK_INPUT_PTX, ptx, strlen(ptx) + 1, "image.ptx");
	if (r == 0)
		r = nvjitlink.complete(handle);
	if (r != 0) {
		take_nvjitlink_log(handle, true, log, log_bytes);
		return refuse(err, log, "the PTX does not assemble");
	}
	return take_nvjitlink_output(handle, ret_image, ret_nbytes, err);
}

static bool can_link_for(const char *archs, int *ret_arch)
{
	bool several;

	*ret_arch = lowest_arch(archs, &several);
	return has_nvjitlink && !several && *ret_arch > 0;
}

static int compile_ptx(const char *archs, char *ptx, void **ret_image, size_t *ret_nbytes,
		       char *log, size_t log_bytes, struct gantry_err *err)
{
	int r = -EOPNOTSUPP;
	int arch;

	if (can_link_for(archs, &arch))
		r = assemble(arch, ptx, ret_image, ret_nbytes, log, log_bytes, err);
	if (r != -EOPNOTSUPP)
		return r;
	*ret_nbytes = strlen(ptx) + 1;
	*ret_image = strdup(ptx);
	return *ret_image ? 0 : gantry_err_set(err, -ENOMEM, "no memory for an image");
}

/* ---- links ---- */

static void want_registers(struct wishes *wishes, uint32_t n)
{
	if (n > 0 && n < REGISTERS_OF_THREAD && (wishes->registers == 0 || n < wishes->registers))
		wishes->registers = n;
}

/* What CUDA's options are to nvJitLink, which knows no optimization and all of it. */
static void wish(struct wishes *wishes, const struct gantry_link_option *option)
{
	switch (option->option) {
	case CU_JIT_MAX_REGISTERS:
		want_registers(wishes, option->value);
		return;
	case CU_JIT_THREADS_PER_BLOCK:
		/* A block of so many threads can be launched, as far as registers go. */
		if (option->value)
			want_registers(wishes, REGISTERS_OF_BLOCK / option->value & ~7u);
		return;
	case CU_JIT_OPTIMIZATION_LEVEL:
		wishes->is_plain = option->value == 0;
		return;
	case CU_JIT_GENERATE_DEBUG_INFO:
		wishes->debug = option->value;
		return;
	case CU_JIT_LOG_VERBOSE:
		wishes->verbose = option->value;
		return;
	case CU_JIT_GENERATE_LINE_INFO:
		wishes->line_info = option->value;
		return;
	default:
		return;
	}
}

static int jitlink_input(uint32_t type)
{
	switch (type) {
	case CU_JIT_INPUT_PTX:
		return NVJITLINK_INPUT_PTX;
	case CU_JIT_INPUT_FATBINARY:
		return NVJITLINK_INPUT_FATBIN;
	default:
		return NVJITLINK_INPUT_CUBIN;
	}
}

/* Both logs, as gantry_cuda_image_say() gives them where the driver links. */
static void take_link_logs(nvjitlink_handle handle, char *log, size_t log_bytes)
{
	size_t len;

	take_nvjitlink_log(handle, false, log, log_bytes - 1);
	len = strlen(log);
	log[len++] = GANTRY_LINK_LOGS_APART;
	log[len] = '\0';
	take_nvjitlink_log(handle, true, log + len, log_bytes - len);
}

/* For the caller to free; NULL: no memory. */
static struct gantry_link_input *copy_inputs(const void *bytes,
					     const struct gantry_link_header *header)
{
	struct gantry_link_input *inputs = calloc(header->ninputs, sizeof(*inputs));

	for (uint32_t i = 0; inputs && i < header->ninputs; i++)
		inputs[i] = gantry_cuda_link_input(bytes, header, i);
	return inputs;
}

/* nvJitLink reads their names when all of them are there, too. */
static int link_with(nvjitlink_handle handle, const void *bytes,
		     const struct gantry_link_input *inputs, uint32_t ninputs)
{
	int r = 0;

	for (uint32_t i = 0; i < ninputs && r == 0; i++)
		r = nvjitlink.add(handle, jitlink_input(inputs[i].type),
				  (const char *)bytes + inputs[i].off, inputs[i].bytes,
				  inputs[i].name);
	return r == 0 ? nvjitlink.complete(handle) : r;
}

static int refuse_link(int r, const char *log, struct gantry_err *err)
{
	const char *what = r == NVJITLINK_PTX_COMPILE ? "PTX does not assemble"
						      : "it does not link";

	(void)refuse(err, strchr(log, GANTRY_LINK_LOGS_APART) + 1, "nvJitLink does not say why");
	return gantry_err_wrap(err, -ENOEXEC, "%s", what);
}

static int link_all(int arch, const void *bytes, void **ret_image, size_t *ret_nbytes, char *log,
		    size_t log_bytes, struct gantry_err *err)
{
	_cleanup_free_ struct gantry_link_input *inputs = NULL;
	struct gantry_link_header header;
	struct wishes wishes = { 0 };
	nvjitlink_handle handle;
	int r;

	memcpy(&header, bytes, sizeof(header));
	inputs = copy_inputs(bytes, &header);
	if (!inputs)
		return gantry_err_set(err, -ENOMEM, "no memory for a link");
	for (uint32_t i = 0; i < header.noptions; i++) {
		const struct gantry_link_option option = gantry_cuda_link_option(bytes, i);

		wish(&wishes, &option);
	}
	r = jitlink_open(arch, &wishes, &handle, err);
	if (r < 0)
		return r;
	r = link_with(handle, bytes, inputs, header.ninputs);
	take_link_logs(handle, log, log_bytes);
	return r != 0 ? refuse_link(r, log, err)
		      : take_nvjitlink_output(handle, ret_image, ret_nbytes, err);
}

/* What it cannot do for these devices the driver does, when the image is loaded. */
static int compile_link(const char *archs, const void *bytes, size_t nbytes, void **ret_image,
			size_t *ret_nbytes, char *log, size_t log_bytes, struct gantry_err *err)
{
	int r = gantry_cuda_link_check(bytes, nbytes, err);
	int arch;

	if (r < 0)
		return r;
	r = -EOPNOTSUPP;
	if (can_link_for(archs, &arch))
		r = link_all(arch, bytes, ret_image, ret_nbytes, log, log_bytes, err);
	if (r != -EOPNOTSUPP)
		return r;
	*ret_image = malloc(nbytes);
	if (!*ret_image)
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	memcpy(*ret_image, bytes, nbytes);
	*ret_nbytes = nbytes;
	return 0;
}

/* ---- members of the table ---- */

bool gantry_cuda_image_is_text(const void *bytes, size_t nbytes)
{
	enum gantry_cuda_image_sort sort = gantry_cuda_image_sort(bytes, nbytes);

	return gantry_cuda_link_is(bytes, nbytes) || sort == GANTRY_CUDA_PTX ||
	       (sort == GANTRY_CUDA_SOURCE && !gantry_cuda_graph_is(bytes, nbytes));
}

int gantry_cuda_compile(const struct gantry_device_conf *conf, const char *arch, const void *bytes,
			size_t nbytes, void **ret_image, size_t *ret_nbytes, char *log,
			size_t log_bytes, struct gantry_err *err)
{
	char *text;
	int r;

	(void)conf;
	log[0] = '\0';
	if (gantry_cuda_link_is(bytes, nbytes))
		return compile_link(arch, bytes, nbytes, ret_image, ret_nbytes, log, log_bytes,
				    err);
	if (gantry_cuda_rtc_is(bytes, nbytes))
		return has_nvrtc ? gantry_cuda_rtc_compile(&nvrtc, bytes, nbytes, ret_image,
							   ret_nbytes, err)
				 : gantry_err_set(err, -EOPNOTSUPP, "this host has no NVRTC");
	text = malloc(nbytes + 1);
	if (!text)
		return gantry_err_set(err, -ENOMEM, "no memory for a text");
	memcpy(text, bytes, nbytes);
	text[nbytes] = '\0';
	if (strlen(text) + 1 < nbytes) /* a NUL at the end is allowed */
		r = gantry_err_set(err, -ENOEXEC,
				   "neither text nor an image: there are NULs inside");
	else if (gantry_cuda_image_sort(bytes, nbytes) == GANTRY_CUDA_PTX)
		r = compile_ptx(arch, text, ret_image, ret_nbytes, log, log_bytes, err);
	else
		r = compile_source(arch, text, ret_image, ret_nbytes, log, log_bytes, err);
	free(text);
	return r;
}
