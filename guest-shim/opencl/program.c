/* SPDX-License-Identifier: Apache-2.0 */
/* Programs: texts and binaries, and what the host makes of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/program.h"

#define LOG_BYTES 65536u

/* ---- life ---- */

static void forget_build(struct _cl_program *program)
{
	if (program->image)
		(void)gantry_image_free(program->context->host->session, program->image);
	program->image = 0;
	free(program->fitted);
	program->fitted = NULL;
	program->nfitted = 0;
	icd_kernel_infos_free(program->kernels, program->nkernels);
	program->kernels = NULL;
	program->nkernels = 0;
	free(program->log);
	program->log = NULL;
}

void icd_program_end(struct _cl_program *program)
{
	forget_build(program);
	free(program->source);
	free(program->binary);
	icd_il_end(&program->il);
	free(program->options);
	free(program->flat);
	icd_object_drop(program->context);
}

struct _cl_program *icd_program_new(struct _cl_context *context, enum icd_program_sort sort)
{
	struct _cl_program *program = icd_object_new(ICD_PROGRAM);

	if (!program)
		return NULL;
	program->context = context;
	program->sort = sort;
	program->status = CL_BUILD_NONE;
	program->made = CL_PROGRAM_BINARY_TYPE_NONE;
	icd_object_hold(context);
	return program;
}

cl_int CL_API_CALL icd_clRetainProgram(cl_program program)
{
	return icd_object_retain(program, ICD_PROGRAM, CL_INVALID_PROGRAM);
}

cl_int CL_API_CALL icd_clReleaseProgram(cl_program program)
{
	return icd_object_release(program, ICD_PROGRAM, CL_INVALID_PROGRAM);
}

struct _cl_device_id *icd_program_compiler(const struct _cl_context *context)
{
	for (uint32_t i = 0; i < context->ndevices; i++)
		if (context->devices[i]->compiles)
			return context->devices[i];
	return NULL;
}

/* ---- what the host makes of it ---- */

struct load {
	const void *bytes;
	size_t nbytes;
	char *log;
	gantry_image image;
	struct icd_kernel_info *kernels;
	uint32_t nkernels;
};

/* A program may have functions only; the host calls that no image. */
static bool is_without_kernels(const char *log)
{
	return strstr(gantry_last_error(), "no kernel") != NULL && strstr(log, "error") == NULL;
}

/* Without the gate. Status of libgantry. */
static int load(struct icd_host *host, struct load *l)
{
	struct gantry_session *session = host->session;
	const char *rest = "";
	char *text = calloc(1, LOG_BYTES);
	int r;

	l->log = NULL;
	l->image = 0;
	l->nkernels = 0;
	l->kernels = NULL;
	if (!text)
		return GANTRY_E_NO_MEMORY;
	icd_output_expect(host, l->bytes, l->nbytes);
	r = gantry_image_load_log(session, GANTRY_KIND_OPENCL, l->bytes, l->nbytes, text, LOG_BYTES,
				  &l->image);
	if (r < 0) {
		l->log = strdup(text[0] ? text : gantry_last_error());
		if (is_without_kernels(text))
			r = 0;
	} else if (!icd_kernels_parse(text, &l->kernels, &l->nkernels, &rest)) {
		(void)gantry_image_free(session, l->image);
		l->image = 0;
		l->log = strdup("the program's kernels are too many to be described");
		r = GANTRY_E_LIMIT;
	} else {
		l->log = strdup(rest);
	}
	free(text);
	return r;
}

/* "//gantry-options: ...": see docs/opencl.md. */
char *icd_program_with_options(const char *options, const char *text)
{
	size_t room = strlen(options) + strlen(text) + 48;
	char *all = malloc(room);

	if (all)
		(void)snprintf(all, room, "//gantry-options: %s\n#line 1\n%s", options, text);
	return all;
}

/* A build's outcome becomes the program's. */
static void take(struct _cl_program *program, struct load *l, cl_program_binary_type made, int r)
{
	forget_build(program);
	program->log = l->log;
	program->image = l->image;
	program->kernels = l->kernels;
	program->nkernels = l->nkernels;
	program->status = r < 0 ? CL_BUILD_ERROR : CL_BUILD_SUCCESS;
	program->made = r < 0 ? CL_PROGRAM_BINARY_TYPE_NONE : made;
}

static cl_int result_of(int r, cl_int failure)
{
	switch (r) {
	case GANTRY_E_IMAGE:
		return failure;
	case GANTRY_E_UNSUPPORTED:
		return CL_COMPILER_NOT_AVAILABLE;
	case GANTRY_E_LIMIT:
	case GANTRY_E_TIMEOUT:
		return CL_OUT_OF_RESOURCES;
	default:
		return icd_status(r);
	}
}

/* The host compiles and links at once; what another program has shows when they are linked. */
static bool lacks_symbols_only(const char *log)
{
	return log && !strstr(log, "error:") &&
	       (strstr(log, "find symbol") || strstr(log, "ndefined symbol") ||
		strstr(log, "nresolved"));
}

/* Gate held, let go meanwhile: other threads' calls find the program being built. */
cl_int icd_program_build_from(struct _cl_program *program, const void *bytes, size_t nbytes,
			      cl_program_binary_type made, cl_int failure)
{
	struct load l = { .bytes = bytes, .nbytes = nbytes };
	int r;

	program->building = true;
	program->status = CL_BUILD_IN_PROGRESS;
	icd_object_hold(program);
	icd_gate_unlock();
	r = load(program->context->host, &l);
	icd_gate_lock();
	program->building = false;
	if (r == GANTRY_E_IMAGE && made == CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT &&
	    lacks_symbols_only(l.log))
		r = 0;
	take(program, &l, made, r);
	icd_object_drop(program);
	return result_of(r, failure);
}

cl_int icd_program_build_text(struct _cl_program *program, const char *options, uint32_t nheaders,
			      const struct icd_header *headers, cl_program_binary_type made,
			      cl_int failure)
{
	char *taken = icd_options_for_host(options);
	char *flat = icd_source_flatten(program->source, options, nheaders, headers);
	char *all = taken && flat ? icd_program_with_options(taken, flat) : NULL;
	cl_int result;

	if (!taken)
		result = failure == CL_COMPILE_PROGRAM_FAILURE ? CL_INVALID_COMPILER_OPTIONS
							       : CL_INVALID_BUILD_OPTIONS;
	else if (!all)
		result = CL_OUT_OF_HOST_MEMORY;
	else
		result = icd_program_build_from(program, all, strlen(all), made, failure);
	if (all) {
		free(program->flat);
		program->flat = all;
	}
	free(taken);
	free(flat);
	return result;
}

cl_int icd_program_check_build(const struct _cl_program *program, cl_uint n,
			       const cl_device_id *devices, bool has_notify, const void *user)
{
	if (!n != !devices || (!has_notify && user))
		return CL_INVALID_VALUE;
	for (cl_uint i = 0; i < n; i++)
		if (!icd_device_valid(devices[i]) || !icd_context_has(program->context, devices[i]))
			return CL_INVALID_DEVICE;
	return program->nmade || program->building ? CL_INVALID_OPERATION : CL_SUCCESS;
}

static cl_int build(struct _cl_program *program, const char *options)
{
	char *kept = strdup(options ? options : "");

	if (!kept)
		return CL_OUT_OF_HOST_MEMORY;
	free(program->options);
	program->options = kept;
	switch ((enum icd_program_sort)program->sort) {
	case ICD_SOURCE:
		if (!icd_program_compiler(program->context))
			return CL_COMPILER_NOT_AVAILABLE;
		return icd_program_build_text(program, options, 0, NULL,
					      CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
					      CL_BUILD_PROGRAM_FAILURE);
	case ICD_PACKED:
		return icd_program_build_from(program, program->source, strlen(program->source),
					      CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
					      CL_BUILD_PROGRAM_FAILURE);
	case ICD_BINARY:
		if (program->made != CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
			return CL_INVALID_BINARY;
		program->status = CL_BUILD_SUCCESS;
		return CL_SUCCESS;
	case ICD_BUILTIN:
		program->status = CL_BUILD_SUCCESS;
		return CL_SUCCESS;
	case ICD_IL:
		return icd_il_build(program, options);
	case ICD_LIBRARY:
		break;
	}
	return CL_INVALID_OPERATION;
}

/* ---- callbacks ---- */

struct built {
	struct icd_call call; /* first */
	icd_notify_fn fn;
	cl_program program;
	void *user;
};

static void run_notify(struct icd_call *call)
{
	struct built *built = (struct built *)call;

	built->fn(built->program, built->user);
	icd_gate_lock();
	icd_object_let_go(built->program);
	icd_gate_unlock();
	free(built);
}

/* The build is over by then: a program that asks to be told is told soon. */
void icd_program_notify(icd_notify_fn fn, struct _cl_program *program, void *user)
{
	struct built *built = fn && icd_pump_need() == CL_SUCCESS ? calloc(1, sizeof(*built))
								  : NULL;

	if (!built)
		return;
	*built = (struct built){ { .run = run_notify }, fn, program, user };
	program->object.refs++; /* the callback may ask about it */
	icd_pump_call(&built->call);
}

cl_int CL_API_CALL icd_clBuildProgram(cl_program handle, cl_uint n, const cl_device_id *devices,
				      const char *options, icd_notify_fn notify, void *user)
{
	struct _cl_program *program;
	cl_int result = CL_INVALID_PROGRAM;

	icd_gate_lock();
	program = icd_object_get(handle, ICD_PROGRAM);
	if (program)
		result = icd_program_check_build(program, n, devices, notify != NULL, user);
	if (result == CL_SUCCESS) {
		icd_object_hold(program); /* another thread may let go of it meanwhile */
		result = build(program, options);
		icd_program_notify(notify, program, user);
		icd_object_drop(program);
		if (notify && result == CL_BUILD_PROGRAM_FAILURE)
			result = CL_SUCCESS; /* the program's status says it */
	}
	icd_gate_unlock();
	return result;
}

/* ---- from texts ---- */

static char *join_strings(cl_uint n, const char **strings, const size_t *lengths)
{
	size_t room = 1;
	char *all, *at;

	for (cl_uint i = 0; i < n; i++)
		room += lengths && lengths[i] ? lengths[i] : strlen(strings[i]);
	all = at = malloc(room);
	for (cl_uint i = 0; all && i < n; i++) {
		size_t len = lengths && lengths[i] ? lengths[i] : strlen(strings[i]);

		memcpy(at, strings[i], len);
		at += len;
	}
	if (all)
		*at = '\0';
	return all;
}

cl_program CL_API_CALL icd_clCreateProgramWithSource(cl_context handle, cl_uint n,
						     const char **strings, const size_t *lengths,
						     cl_int *ret)
{
	struct _cl_program *program = NULL;
	struct _cl_context *context;
	cl_int result = CL_INVALID_CONTEXT;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context)
		result = n == 0 || !strings ? CL_INVALID_VALUE : CL_SUCCESS;
	for (cl_uint i = 0; result == CL_SUCCESS && i < n; i++)
		if (!strings[i])
			result = CL_INVALID_VALUE;
	if (result == CL_SUCCESS) {
		program = icd_program_new(context, ICD_SOURCE);
		if (program)
			program->source = join_strings(n, strings, lengths);
		if (!program || !program->source) {
			icd_object_throw_away(program);
			program = NULL;
			result = CL_OUT_OF_HOST_MEMORY;
		}
	}
	icd_gate_unlock();
	return icd_result(ret, result, program);
}
