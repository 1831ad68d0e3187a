/* SPDX-License-Identifier: Apache-2.0 */
/* Programs: texts and binaries, and what the host makes of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/calls.h"

#define LOG_BYTES 65536u
#define PACK_MARK "GANTRYCL"

/* What clGetProgramInfo() gives as a binary: what the host is given to make the program again. */
struct pack {
	char mark[8];
	uint32_t version;
	uint32_t
		sort; /* ICD_PACKED: a text with options; ICD_BUILTIN: names; ICD_LIBRARY: a text that is no executable */
	uint64_t bytes; /* of what follows */
	uint64_t sum;
};

/* ---- life ---- */

static void forget_build(struct _cl_program *program)
{
	if (program->image)
		(void)gantry_image_free(program->context->host->session, program->image);
	program->image = 0;
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
	free(program->options);
	free(program->flat);
	icd_object_drop(program->context);
}

static struct _cl_program *make(struct _cl_context *context, enum icd_program_sort sort)
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

static void throw_away(struct _cl_program *program)
{
	if (!program)
		return;
	program->object.refs = 0;
	icd_object_hold(program);
	icd_object_drop(program);
}

cl_int CL_API_CALL icd_clRetainProgram(cl_program program)
{
	return icd_object_retain(program, ICD_PROGRAM, CL_INVALID_PROGRAM);
}

cl_int CL_API_CALL icd_clReleaseProgram(cl_program program)
{
	return icd_object_release(program, ICD_PROGRAM, CL_INVALID_PROGRAM);
}

static struct _cl_device_id *compiler_of(const struct _cl_context *context)
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
static int load(struct gantry_session *session, struct load *l)
{
	const char *rest = "";
	char *text = calloc(1, LOG_BYTES);
	int r;

	l->log = NULL;
	l->image = 0;
	l->nkernels = 0;
	l->kernels = NULL;
	if (!text)
		return GANTRY_E_NO_MEMORY;
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
static char *with_options(const char *options, const char *text)
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
static cl_int build_from(struct _cl_program *program, const void *bytes, size_t nbytes,
			 cl_program_binary_type made, cl_int failure)
{
	struct load l = { .bytes = bytes, .nbytes = nbytes };
	int r;

	program->building = true;
	program->status = CL_BUILD_IN_PROGRESS;
	icd_object_hold(program);
	icd_gate_unlock();
	r = load(program->context->host->session, &l);
	icd_gate_lock();
	program->building = false;
	if (r == GANTRY_E_IMAGE && made == CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT &&
	    lacks_symbols_only(l.log))
		r = 0;
	take(program, &l, made, r);
	icd_object_drop(program);
	return result_of(r, failure);
}

static cl_int build_text(struct _cl_program *program, const char *options, uint32_t nheaders,
			 const struct icd_header *headers, cl_program_binary_type made,
			 cl_int failure)
{
	char *taken = icd_options_for_host(options);
	char *flat = icd_source_flatten(program->source, options, nheaders, headers);
	char *all = taken && flat ? with_options(taken, flat) : NULL;
	cl_int result;

	if (!taken)
		result = failure == CL_COMPILE_PROGRAM_FAILURE ? CL_INVALID_COMPILER_OPTIONS
							       : CL_INVALID_BUILD_OPTIONS;
	else if (!all)
		result = CL_OUT_OF_HOST_MEMORY;
	else
		result = build_from(program, all, strlen(all), made, failure);
	if (all) {
		free(program->flat);
		program->flat = all;
	}
	free(taken);
	free(flat);
	return result;
}

static cl_int check_build(const struct _cl_program *program, cl_uint n, const cl_device_id *devices,
			  bool has_notify, const void *user)
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
		if (!compiler_of(program->context))
			return CL_COMPILER_NOT_AVAILABLE;
		return build_text(program, options, 0, NULL, CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
				  CL_BUILD_PROGRAM_FAILURE);
	case ICD_PACKED:
		return build_from(program, program->source, strlen(program->source),
				  CL_PROGRAM_BINARY_TYPE_EXECUTABLE, CL_BUILD_PROGRAM_FAILURE);
	case ICD_BINARY:
		if (program->made != CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
			return CL_INVALID_BINARY;
		program->status = CL_BUILD_SUCCESS;
		return CL_SUCCESS;
	case ICD_BUILTIN:
		program->status = CL_BUILD_SUCCESS;
		return CL_SUCCESS;
	case ICD_LIBRARY:
		break;
	}
	return CL_INVALID_OPERATION;
}

/* ---- callbacks ---- */

typedef void(CL_CALLBACK *notify_fn)(cl_program, void *);

struct built {
	struct icd_call call; /* first */
	notify_fn fn;
	cl_program program;
	void *user;
};

static void run_notify(struct icd_call *call)
{
	struct built *built = (struct built *)call;

	built->fn(built->program, built->user);
	icd_gate_lock();
	icd_object_drop(built->program);
	icd_gate_unlock();
	free(built);
}

/* The build is over by then: a program that asks to be told is told soon. */
static void notify_later(notify_fn fn, struct _cl_program *program, void *user)
{
	struct built *built = fn && icd_pump_need() == CL_SUCCESS ? calloc(1, sizeof(*built))
								  : NULL;

	if (!built)
		return;
	*built = (struct built){ { .run = run_notify }, fn, program, user };
	icd_object_hold(program);
	icd_pump_call(&built->call);
}

cl_int CL_API_CALL icd_clBuildProgram(cl_program handle, cl_uint n, const cl_device_id *devices,
				      const char *options, notify_fn notify, void *user)
{
	struct _cl_program *program;
	cl_int result = CL_INVALID_PROGRAM;

	icd_gate_lock();
	program = icd_object_get(handle, ICD_PROGRAM);
	if (program)
		result = check_build(program, n, devices, notify != NULL, user);
	if (result == CL_SUCCESS) {
		result = build(program, options);
		notify_later(notify, program, user);
		if (notify && result == CL_BUILD_PROGRAM_FAILURE)
			result = CL_SUCCESS; /* the program's status says it */
	}
	icd_gate_unlock();
	return result;
}

/* ---- compiling and linking apart ---- */

static cl_int take_headers(cl_uint n, const cl_program *programs, const char **names,
			   struct icd_header *headers)
{
	for (cl_uint i = 0; i < n; i++) {
		const struct _cl_program *program = icd_object_get(programs[i], ICD_PROGRAM);

		if (!program || !program->source)
			return CL_INVALID_PROGRAM;
		if (!names[i])
			return CL_INVALID_VALUE;
		headers[i] = (struct icd_header){ names[i], program->source };
	}
	return CL_SUCCESS;
}

cl_int CL_API_CALL icd_clCompileProgram(cl_program handle, cl_uint n, const cl_device_id *devices,
					const char *options, cl_uint nheaders,
					const cl_program *header_programs, const char **names,
					notify_fn notify, void *user)
{
	struct icd_header *headers = calloc(nheaders + 1, sizeof(*headers));
	struct _cl_program *program;
	cl_int result = CL_INVALID_PROGRAM;

	icd_gate_lock();
	program = icd_object_get(handle, ICD_PROGRAM);
	if (program)
		result = check_build(program, n, devices, notify != NULL, user);
	if (result == CL_SUCCESS && (!nheaders != !header_programs || !nheaders != !names))
		result = CL_INVALID_VALUE;
	if (result == CL_SUCCESS && !headers)
		result = CL_OUT_OF_HOST_MEMORY;
	if (result == CL_SUCCESS)
		result = take_headers(nheaders, header_programs, names, headers);
	if (result == CL_SUCCESS && program->sort != ICD_SOURCE)
		result = CL_INVALID_OPERATION;
	if (result == CL_SUCCESS && !compiler_of(program->context))
		result = CL_COMPILER_NOT_AVAILABLE;
	if (result == CL_SUCCESS) {
		free(program->options);
		program->options = strdup(options ? options : "");
		result = build_text(program, options, nheaders, headers,
				    CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT,
				    CL_COMPILE_PROGRAM_FAILURE);
		notify_later(notify, program, user);
	}
	icd_gate_unlock();
	free(headers);
	return result;
}

/* The texts one after the other, and the options of all of them. */
static char *join(cl_uint n, const cl_program *programs)
{
	size_t room = 64;
	char *options, *text, *all;

	for (cl_uint i = 0; i < n; i++)
		room += strlen(programs[i]->flat ? programs[i]->flat : programs[i]->source) + 64;
	options = calloc(1, room);
	text = calloc(1, room);
	for (cl_uint i = 0; options && text && i < n; i++) {
		const char *flat = programs[i]->flat ? programs[i]->flat : programs[i]->source;
		const char *body = flat;

		if (strncmp(flat, "//gantry-options:", 17) == 0) {
			body = strchr(flat, '\n') + 1;
			strncat(options, flat + 17, (size_t)(body - flat - 18));
		}
		strcat(text, body);
		strcat(text, "\n");
	}
	all = options && text ? with_options(options, text) : NULL;
	free(options);
	free(text);
	return all;
}

static cl_int check_inputs(const struct _cl_context *context, cl_uint n, const cl_program *programs)
{
	if (n == 0 || !programs)
		return CL_INVALID_VALUE;
	for (cl_uint i = 0; i < n; i++) {
		const struct _cl_program *program = icd_object_get(programs[i], ICD_PROGRAM);

		if (!program || program->context != context)
			return CL_INVALID_PROGRAM;
		if ((program->made != CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT &&
		     program->made != CL_PROGRAM_BINARY_TYPE_LIBRARY) ||
		    (!program->flat && !program->source))
			return CL_INVALID_OPERATION;
	}
	return CL_SUCCESS;
}

static cl_int check_link_options(const char *options, bool *ret_library)
{
	char *copy = strdup(options ? options : ""), *save = NULL;
	cl_int result = copy ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
	bool enables = false;

	*ret_library = false;
	for (char *word = copy ? strtok_r(copy, " \t", &save) : NULL; word;
	     word = strtok_r(NULL, " \t", &save)) {
		if (strcmp(word, "-create-library") == 0)
			*ret_library = true;
		else if (strcmp(word, "-enable-link-options") == 0)
			enables = true;
		else if (strncmp(word, "-cl-", 4) != 0)
			result = CL_INVALID_LINKER_OPTIONS;
	}
	if (enables && !*ret_library)
		result = CL_INVALID_LINKER_OPTIONS;
	free(copy);
	return result;
}

static cl_int link_into(struct _cl_program *program, bool is_library, cl_uint n,
			const cl_program *programs)
{
	program->source = join(n, programs);
	if (!program->source)
		return CL_OUT_OF_HOST_MEMORY;
	if (!is_library)
		return build_from(program, program->source, strlen(program->source),
				  CL_PROGRAM_BINARY_TYPE_EXECUTABLE, CL_LINK_PROGRAM_FAILURE);
	program->status = CL_BUILD_SUCCESS;
	program->made = CL_PROGRAM_BINARY_TYPE_LIBRARY;
	return CL_SUCCESS;
}

cl_program CL_API_CALL icd_clLinkProgram(cl_context handle, cl_uint n, const cl_device_id *devices,
					 const char *options, cl_uint nprograms,
					 const cl_program *programs, notify_fn notify, void *user,
					 cl_int *ret)
{
	struct _cl_program *program = NULL;
	struct _cl_context *context;
	bool is_library = false;
	cl_int result = CL_INVALID_CONTEXT;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context)
		result = !n != !devices || (!notify && user)
				 ? CL_INVALID_VALUE
				 : check_inputs(context, nprograms, programs);
	for (cl_uint i = 0; result == CL_SUCCESS && i < n; i++)
		if (!icd_device_valid(devices[i]) || !icd_context_has(context, devices[i]))
			result = CL_INVALID_DEVICE;
	if (result == CL_SUCCESS)
		result = check_link_options(options, &is_library);
	if (result == CL_SUCCESS) {
		program = make(context, is_library ? ICD_LIBRARY : ICD_PACKED);
		result = program ? link_into(program, is_library, nprograms, programs)
				 : CL_OUT_OF_HOST_MEMORY;
	}
	if (result == CL_SUCCESS) {
		program->options = strdup(options ? options : "");
		notify_later(notify, program, user);
	} else {
		throw_away(program);
		program = NULL;
	}
	icd_gate_unlock();
	return icd_result(ret, result, program);
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
		program = make(context, ICD_SOURCE);
		if (program)
			program->source = join_strings(n, strings, lengths);
		if (!program || !program->source) {
			throw_away(program);
			program = NULL;
			result = CL_OUT_OF_HOST_MEMORY;
		}
	}
	icd_gate_unlock();
	return icd_result(ret, result, program);
}

/* ---- from binaries ---- */

static uint64_t sum_of(const void *bytes, size_t n)
{
	const uint8_t *at = bytes;
	uint64_t sum = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < n; i++)
		sum = (sum ^ at[i]) * 0x100000001b3ull;
	return sum;
}

/* What the program is packed as; NULL: it cannot be. */
static const char *inner_of(const struct _cl_program *program, uint32_t *ret_sort)
{
	*ret_sort = program->sort == ICD_SOURCE ? ICD_PACKED : program->sort;
	if (program->sort == ICD_SOURCE)
		return program->status == CL_BUILD_SUCCESS ? program->flat : NULL;
	return program->source;
}

/* A binary that the host took as it is stays one. NULL: none, or no memory. */
static void *pack(const struct _cl_program *program, size_t *ret_bytes)
{
	uint32_t sort;
	const char *inner = inner_of(program, &sort);
	size_t n = inner ? strlen(inner) : 0;
	struct pack *p;

	*ret_bytes = program->sort == ICD_BINARY ? program->nbinary : inner ? sizeof(*p) + n : 0;
	if (*ret_bytes == 0)
		return NULL;
	p = malloc(*ret_bytes);
	if (!p)
		return NULL;
	if (program->sort == ICD_BINARY)
		return memcpy(p, program->binary, program->nbinary);
	*p = (struct pack){ .version = 1, .sort = sort, .bytes = n, .sum = sum_of(inner, n) };
	memcpy(p->mark, PACK_MARK, sizeof(p->mark));
	memcpy(p + 1, inner, n);
	return p;
}

static bool is_packed(const uint8_t *bytes, size_t n)
{
	return n >= 8 && memcmp(bytes, PACK_MARK, 8) == 0;
}

static bool add_builtin(struct _cl_program *program, const struct icd_builtin *builtin)
{
	struct icd_kernel_info *more = realloc(program->kernels,
					       (program->nkernels + 1) * sizeof(*more));

	if (!more)
		return false;
	program->kernels = more;
	if (!icd_kernel_of_builtin(builtin, &more[program->nkernels]))
		return false;
	program->nkernels++;
	return true;
}

/* Of @devices the first that has it. */
static const struct icd_builtin *find_builtin(cl_uint n, const cl_device_id *devices,
					      const char *name)
{
	const struct icd_builtin *found = NULL;

	for (cl_uint i = 0; i < n && !found; i++)
		found = icd_device_builtin(devices[i], name);
	return found;
}

/* Installed kernels by @names, with ";" between them. */
static cl_int take_builtins(struct _cl_program *program, cl_uint n, const cl_device_id *devices,
			    const char *names)
{
	char *save = NULL;

	program->source = strdup(names);
	for (char *copy = strdup(names), *name = copy ? strtok_r(copy, ";", &save) : NULL;;) {
		const struct icd_builtin *builtin = name ? find_builtin(n, devices, name) : NULL;

		if (!name) {
			free(copy);
			break;
		}
		if (!builtin || !add_builtin(program, builtin)) {
			free(copy);
			return builtin ? CL_OUT_OF_HOST_MEMORY : CL_INVALID_VALUE;
		}
		name = strtok_r(NULL, ";", &save);
	}
	if (!program->source || program->nkernels == 0)
		return program->source ? CL_INVALID_VALUE : CL_OUT_OF_HOST_MEMORY;
	program->status = CL_BUILD_SUCCESS;
	program->made = CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
	return CL_SUCCESS;
}

static cl_int unpack(struct _cl_program *program, cl_device_id device, const uint8_t *bytes,
		     size_t n)
{
	struct pack p;

	if (n < sizeof(p))
		return CL_INVALID_BINARY;
	memcpy(&p, bytes, sizeof(p));
	if (p.version != 1 || p.bytes != n - sizeof(p) ||
	    p.sum != sum_of(bytes + sizeof(p), n - sizeof(p)) ||
	    memchr(bytes + sizeof(p), '\0', n - sizeof(p)))
		return CL_INVALID_BINARY;
	if (p.sort != ICD_PACKED && p.sort != ICD_LIBRARY && p.sort != ICD_BUILTIN)
		return CL_INVALID_BINARY;
	program->sort = p.sort;
	if (p.sort == ICD_BUILTIN) {
		char *names = strndup((const char *)bytes + sizeof(p), p.bytes);
		cl_int result = names ? take_builtins(program, 1, &device, names)
				      : CL_OUT_OF_HOST_MEMORY;

		free(names);
		return result == CL_INVALID_VALUE ? CL_INVALID_BINARY : result;
	}
	if (!device->compiles)
		return CL_INVALID_BINARY;
	program->source = strndup((const char *)bytes + sizeof(p), p.bytes);
	if (p.sort == ICD_LIBRARY) {
		program->status = CL_BUILD_SUCCESS;
		program->made = CL_PROGRAM_BINARY_TYPE_LIBRARY;
	}
	return program->source ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

/* A vendor's. A board has the images that the administrator installed: what is in the file is not looked at. */
static cl_int take_foreign(struct _cl_program *program, cl_device_id device, const uint8_t *bytes,
			   size_t n)
{
	cl_int result;

	if (device->kind == GANTRY_KIND_FPGA) {
		char *names = icd_device_builtin_names(device);

		program->sort = ICD_BUILTIN;
		result = names ? take_builtins(program, 1, &device, names) : CL_OUT_OF_HOST_MEMORY;
		free(names);
		return result == CL_INVALID_VALUE ? CL_INVALID_BINARY : result;
	}
	if (!device->compiles)
		return CL_INVALID_BINARY;
	program->binary = malloc(n);
	if (!program->binary)
		return CL_OUT_OF_HOST_MEMORY;
	memcpy(program->binary, bytes, n);
	program->nbinary = n;
	result = build_from(program, program->binary, n, CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
			    CL_INVALID_BINARY);
	if (result == CL_SUCCESS)
		program->status = CL_BUILD_NONE; /* until the program asks for it */
	return result;
}

static cl_int check_binaries(const struct _cl_context *context, cl_uint n,
			     const cl_device_id *devices, const size_t *lengths,
			     const unsigned char **binaries, cl_int *status)
{
	if (n == 0 || !devices || !lengths || !binaries)
		return CL_INVALID_VALUE;
	for (cl_uint i = 0; i < n; i++)
		if (!icd_device_valid(devices[i]) || !icd_context_has(context, devices[i]))
			return CL_INVALID_DEVICE;
	for (cl_uint i = 0; i < n; i++) {
		if (status)
			status[i] = lengths[i] && binaries[i] ? CL_SUCCESS : CL_INVALID_VALUE;
		if (lengths[i] == 0 || !binaries[i])
			return CL_INVALID_VALUE;
	}
	return CL_SUCCESS;
}

cl_program CL_API_CALL icd_clCreateProgramWithBinary(cl_context handle, cl_uint n,
						     const cl_device_id *devices,
						     const size_t *lengths,
						     const unsigned char **binaries, cl_int *status,
						     cl_int *ret)
{
	struct _cl_program *program = NULL;
	struct _cl_context *context;
	cl_int result = CL_INVALID_CONTEXT;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context)
		result = check_binaries(context, n, devices, lengths, binaries, status);
	if (result == CL_SUCCESS) {
		program = make(context, ICD_BINARY);
		if (!program)
			result = CL_OUT_OF_HOST_MEMORY;
		else if (is_packed(binaries[0], lengths[0]))
			result = unpack(program, devices[0], binaries[0], lengths[0]);
		else
			result = take_foreign(program, devices[0], binaries[0], lengths[0]);
		if (status)
			status[0] = result;
	}
	if (result != CL_SUCCESS) {
		throw_away(program);
		program = NULL;
	}
	icd_gate_unlock();
	return icd_result(ret, result, program);
}

cl_program CL_API_CALL icd_clCreateProgramWithBuiltInKernels(cl_context handle, cl_uint n,
							     const cl_device_id *devices,
							     const char *names, cl_int *ret)
{
	struct _cl_program *program = NULL;
	struct _cl_context *context;
	cl_int result = CL_INVALID_CONTEXT;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context)
		result = n == 0 || !devices || !names ? CL_INVALID_VALUE : CL_SUCCESS;
	for (cl_uint i = 0; result == CL_SUCCESS && i < n; i++)
		if (!icd_device_valid(devices[i]) || !icd_context_has(context, devices[i]))
			result = CL_INVALID_DEVICE;
	if (result == CL_SUCCESS) {
		program = make(context, ICD_BUILTIN);
		result = program ? take_builtins(program, n, devices, names)
				 : CL_OUT_OF_HOST_MEMORY;
	}
	if (result != CL_SUCCESS) {
		throw_away(program);
		program = NULL;
	}
	icd_gate_unlock();
	return icd_result(ret, result, program);
}

cl_int CL_API_CALL icd_clUnloadPlatformCompiler(cl_platform_id platform)
{
	return platform == &icd_platform ? CL_SUCCESS : CL_INVALID_PLATFORM;
}

cl_int CL_API_CALL icd_clUnloadCompiler(void)
{
	return CL_SUCCESS;
}

/* ---- questions ---- */

const struct icd_kernel_info *icd_program_kernel(const struct _cl_program *program,
						 const char *name)
{
	for (uint32_t i = 0; i < program->nkernels; i++)
		if (strcmp(program->kernels[i].name, name) == 0)
			return &program->kernels[i];
	return NULL;
}

static cl_int answer_names(const struct _cl_program *program, const struct icd_to *to)
{
	size_t room = 1;
	char *names, *at;
	cl_int result;

	for (uint32_t i = 0; i < program->nkernels; i++)
		room += strlen(program->kernels[i].name) + 1;
	names = at = calloc(1, room);
	if (!names)
		return CL_OUT_OF_HOST_MEMORY;
	for (uint32_t i = 0; i < program->nkernels; i++)
		at += snprintf(at, room - (size_t)(at - names), "%s%s", i ? ";" : "",
			       program->kernels[i].name);
	result = icd_answer_text(to, names);
	free(names);
	return result;
}

/* Which of the context's devices the program is for. */
static bool is_for(const struct _cl_program *program, const struct _cl_device_id *device)
{
	return program->sort == ICD_BUILTIN
		       ? program->nkernels && icd_device_builtin(device, program->kernels[0].name)
		       : device->compiles;
}

static cl_int answer_sizes(const struct _cl_program *program, const struct icd_to *to)
{
	size_t sizes[GANTRY_NKINDS] = { 0 }, bytes = 0;
	void *packed = pack(program, &bytes);

	for (uint32_t i = 0; i < program->context->ndevices; i++)
		sizes[i] = packed && is_for(program, program->context->devices[i]) ? bytes : 0;
	free(packed);
	return icd_answer(to, sizes, program->context->ndevices * sizeof(sizes[0]));
}

static cl_int answer_binaries(const struct _cl_program *program, const struct icd_to *to)
{
	size_t n = program->context->ndevices, bytes = 0;
	unsigned char **places = to->value;
	void *packed;

	if (to->ret)
		*to->ret = n * sizeof(*places);
	if (!places)
		return CL_SUCCESS;
	if (to->size < n * sizeof(*places))
		return CL_INVALID_VALUE;
	packed = pack(program, &bytes);
	for (size_t i = 0; packed && i < n; i++)
		if (places[i] && is_for(program, program->context->devices[i]))
			memcpy(places[i], packed, bytes);
	free(packed);
	return CL_SUCCESS;
}

static cl_int info(const struct _cl_program *program, cl_program_info what, const struct icd_to *to)
{
	bool is_built = program->status == CL_BUILD_SUCCESS;

	switch (what) {
	case CL_PROGRAM_REFERENCE_COUNT:
		return ICD_ANSWER(to, cl_uint, program->object.refs);
	case CL_PROGRAM_CONTEXT:
		return ICD_ANSWER(to, cl_context, program->context);
	case CL_PROGRAM_NUM_DEVICES:
		return ICD_ANSWER(to, cl_uint, program->context->ndevices);
	case CL_PROGRAM_DEVICES:
		return icd_answer(to, program->context->devices,
				  program->context->ndevices * sizeof(cl_device_id));
	case CL_PROGRAM_SOURCE:
		return icd_answer_text(to, program->sort == ICD_SOURCE ? program->source : "");
	case CL_PROGRAM_BINARY_SIZES:
		return answer_sizes(program, to);
	case CL_PROGRAM_BINARIES:
		return answer_binaries(program, to);
	case CL_PROGRAM_NUM_KERNELS:
		return is_built ? ICD_ANSWER(to, size_t, program->nkernels)
				: CL_INVALID_PROGRAM_EXECUTABLE;
	case CL_PROGRAM_KERNEL_NAMES:
		return is_built ? answer_names(program, to) : CL_INVALID_PROGRAM_EXECUTABLE;
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL icd_clGetProgramInfo(cl_program handle, cl_program_info what, size_t size,
					void *value, size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	struct _cl_program *program;
	cl_int result = CL_INVALID_PROGRAM;

	icd_gate_lock();
	program = icd_object_get(handle, ICD_PROGRAM);
	if (program)
		result = info(program, what, &to);
	icd_gate_unlock();
	return result;
}

static cl_int build_info(const struct _cl_program *program, cl_program_build_info what,
			 const struct icd_to *to)
{
	switch (what) {
	case CL_PROGRAM_BUILD_STATUS:
		return ICD_ANSWER(to, cl_build_status, program->status);
	case CL_PROGRAM_BUILD_OPTIONS:
		return icd_answer_text(to, program->options);
	case CL_PROGRAM_BUILD_LOG:
		return icd_answer_text(to, program->log);
	case CL_PROGRAM_BINARY_TYPE:
		return ICD_ANSWER(to, cl_program_binary_type, program->made);
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL icd_clGetProgramBuildInfo(cl_program handle, cl_device_id device,
					     cl_program_build_info what, size_t size, void *value,
					     size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	struct _cl_program *program;
	cl_int result = CL_INVALID_PROGRAM;

	icd_gate_lock();
	program = icd_object_get(handle, ICD_PROGRAM);
	if (program && (!icd_device_valid(device) || !icd_context_has(program->context, device)))
		result = CL_INVALID_DEVICE;
	else if (program)
		result = build_info(program, what, &to);
	icd_gate_unlock();
	return result;
}
