/* SPDX-License-Identifier: Apache-2.0 */
/* What works: buffers, kernels, programs. Lines are the same on every platform. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/system/guests/opencl_probe.h"

#define N 1000

/* ---- buffers ---- */

static cl_mem buffer(const struct world *w, cl_mem_flags flags, size_t bytes, void *host)
{
	cl_int result;
	cl_mem mem = cl.CreateBuffer(w->context, flags, bytes, host, &result);

	must(result, "clCreateBuffer");
	return mem;
}

static void show_buffer(const struct world *w, const char *name, cl_mem mem, size_t bytes)
{
	char *host = malloc(bytes);

	must(cl.EnqueueReadBuffer(w->queue, mem, CL_TRUE, 0, bytes, host, 0, NULL, NULL), name);
	show_bytes(name, host, bytes);
	free(host);
}

static void fill_some(unsigned char *bytes, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)((i * 7 + seed) ^ (i >> 5));
}

static void probe_rects(const struct world *w, cl_mem mem, unsigned char *host)
{
	const size_t a[3] = { 4, 3, 1 }, b[3] = { 2, 1, 0 }, region[3] = { 10, 5, 3 };
	unsigned char out[4096] = { 0 };

	must(cl.EnqueueWriteBufferRect(w->queue, mem, CL_TRUE, a, b, region, 32, 512, 20, 200, host,
				       0, NULL, NULL),
	     "clEnqueueWriteBufferRect");
	show_buffer(w, "write_rect", mem, 4096);
	must(cl.EnqueueCopyBufferRect(w->queue, mem, mem, a, (const size_t[3]){ 16, 3, 1 }, region,
				      32, 512, 32, 512, 0, NULL, NULL),
	     "clEnqueueCopyBufferRect");
	show_buffer(w, "copy_rect", mem, 4096);
	must(cl.EnqueueReadBufferRect(w->queue, mem, CL_TRUE, a, b, region, 32, 512, 20, 200, out,
				      0, NULL, NULL),
	     "clEnqueueReadBufferRect");
	show_bytes("read_rect", out, sizeof(out));
}

static void probe_maps(const struct world *w, cl_mem mem)
{
	cl_int result;
	cl_uint count = 0;
	unsigned char *at = cl.EnqueueMapBuffer(w->queue, mem, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
						64, 256, 0, NULL, NULL, &result);

	must(result, "clEnqueueMapBuffer");
	show_bytes("mapped", at, 256);
	at[3] = 99;
	must(cl.GetMemObjectInfo(mem, CL_MEM_MAP_COUNT, sizeof(count), &count, NULL),
	     "CL_MEM_MAP_COUNT");
	show("map_count", count);
	must(cl.EnqueueUnmapMemObject(w->queue, mem, at, 0, NULL, NULL), "clEnqueueUnmapMemObject");
	show_buffer(w, "unmapped", mem, 4096);
	at = cl.EnqueueMapBuffer(w->queue, mem, CL_TRUE, CL_MAP_WRITE_INVALIDATE_REGION, 1024, 128,
				 0, NULL, NULL, &result);
	must(result, "clEnqueueMapBuffer, invalidating");
	memset(at, 5, 128);
	must(cl.EnqueueUnmapMemObject(w->queue, mem, at, 0, NULL, NULL), "clEnqueueUnmapMemObject");
	show_buffer(w, "invalidated", mem, 4096);
}

static void probe_host_pointers(const struct world *w)
{
	unsigned char *own = aligned_alloc(4096, 4096);
	cl_mem mem;
	cl_int result;
	void *at;

	fill_some(own, 4096, 3);
	mem = buffer(w, CL_MEM_USE_HOST_PTR, 4096, own);
	must(cl.EnqueueFillBuffer(w->queue, mem, "ab", 2, 100, 200, 0, NULL, NULL),
	     "clEnqueueFillBuffer");
	at = cl.EnqueueMapBuffer(w->queue, mem, CL_TRUE, CL_MAP_READ, 0, 4096, 0, NULL, NULL,
				 &result);
	must(result, "clEnqueueMapBuffer");
	expect_true(at == own, "a buffer over the program's memory is mapped there");
	show_bytes("use_host_ptr", own, 4096);
	must(cl.EnqueueUnmapMemObject(w->queue, mem, at, 0, NULL, NULL), "clEnqueueUnmapMemObject");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
	must(cl.Finish(w->queue), "clFinish");
	free(own);
}

static void probe_parts(const struct world *w, cl_mem mem)
{
	const cl_buffer_region region = { 1024, 512 };
	cl_int result;
	cl_mem part = cl.CreateSubBuffer(mem, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
					 &region, &result);
	size_t off = 0;
	cl_mem parent = NULL;

	must(result, "clCreateSubBuffer");
	must(cl.EnqueueFillBuffer(w->queue, part, "wxyz", 4, 8, 64, 0, NULL, NULL),
	     "fill of a part");
	show_buffer(w, "filled_part", mem, 4096);
	must(cl.EnqueueCopyBuffer(w->queue, mem, part, 0, 128, 64, 0, NULL, NULL),
	     "copy into a part");
	show_buffer(w, "copied_part", part, 512);
	must(cl.GetMemObjectInfo(part, CL_MEM_OFFSET, sizeof(off), &off, NULL), "CL_MEM_OFFSET");
	must(cl.GetMemObjectInfo(part, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof(parent), &parent, NULL),
	     "parent");
	show("part_offset", off);
	expect_true(parent == mem, "a part knows its buffer");
	must(cl.ReleaseMemObject(part), "clReleaseMemObject");
}

void probe_buffers(const struct world *w)
{
	unsigned char host[4096];
	cl_mem mem;

	fill_some(host, sizeof(host), 1);
	mem = buffer(w, CL_MEM_COPY_HOST_PTR, sizeof(host), host);
	show_buffer(w, "copied_in", mem, sizeof(host));
	must(cl.EnqueueWriteBuffer(w->queue, mem, CL_FALSE, 10, 100, host + 500, 0, NULL, NULL),
	     "write");
	show_buffer(w, "written", mem, sizeof(host));
	must(cl.EnqueueCopyBuffer(w->queue, mem, mem, 0, 2048, 1024, 0, NULL, NULL),
	     "clEnqueueCopyBuffer");
	show_buffer(w, "copied", mem, sizeof(host));
	for (size_t n = 1; n <= 128; n *= 2) {
		must(cl.EnqueueFillBuffer(w->queue, mem, host + 7, n, 128, 1024, 0, NULL, NULL),
		     "fill");
		show_buffer(w, "filled", mem, sizeof(host));
	}
	probe_rects(w, mem, host);
	probe_maps(w, mem);
	probe_parts(w, mem);
	must(cl.EnqueueMigrateMemObjects(w->queue, 1, &mem, 0, 0, NULL, NULL),
	     "clEnqueueMigrateMemObjects");
	must(cl.Finish(w->queue), "clFinish");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
	probe_host_pointers(w);
}

/* ---- kernels ---- */

static void set(cl_kernel kernel, cl_uint i, size_t bytes, const void *value)
{
	must(cl.SetKernelArg(kernel, i, bytes, value), "clSetKernelArg");
}

static void run(const struct world *w, cl_kernel kernel, cl_uint ndims, const size_t *offset,
		const size_t *global, const size_t *local)
{
	must(cl.EnqueueNDRangeKernel(w->queue, kernel, ndims, offset, global, local, 0, NULL, NULL),
	     "clEnqueueNDRangeKernel");
}

static void probe_add(const struct world *w)
{
	const cl_int n = N;
	int a[N], b[N];
	size_t global = 1024;
	cl_kernel kernel = kernel_of(w, "add");
	cl_mem mems[3];

	for (int i = 0; i < N; i++) {
		a[i] = i * i;
		b[i] = 7 - i;
	}
	mems[0] = buffer(w, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof(a), a);
	mems[1] = buffer(w, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof(b), b);
	mems[2] = buffer(w, CL_MEM_WRITE_ONLY, sizeof(a), NULL);
	for (cl_uint i = 0; i < 3; i++)
		set(kernel, i, sizeof(cl_mem), &mems[i]);
	set(kernel, 3, sizeof(n), &n);
	run(w, kernel, 1, NULL, &global, NULL);
	/* What is set now is not what the launch has. */
	set(kernel, 2, sizeof(cl_mem), &mems[0]);
	show_buffer(w, "added", mems[2], sizeof(a));
	show_buffer(w, "operand", mems[0], sizeof(a));
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	for (int i = 0; i < 3; i++)
		must(cl.ReleaseMemObject(mems[i]), "clReleaseMemObject");
}

static void probe_shapes(const struct world *w)
{
	const size_t global[3] = { 8, 6, 4 }, local[3] = { 4, 3, 2 }, offset[3] = { 5, 7, 9 },
		     odd = 97;
	cl_kernel kernel = kernel_of(w, "where");
	cl_mem out = buffer(w, 0, 8 * 192, NULL);

	set(kernel, 0, sizeof(out), &out);
	for (cl_uint ndims = 1; ndims <= 3; ndims++) {
		must(cl.EnqueueFillBuffer(w->queue, out, "", 1, 0, 8 * 192, 0, NULL, NULL), "fill");
		run(w, kernel, ndims, NULL, global, local);
		show_buffer(w, "shape", out, 8 * 192);
		run(w, kernel, ndims, offset, global, local);
		show_buffer(w, "shape_with_offset", out, 8 * 192);
		run(w, kernel, ndims, offset, global, NULL);
		show_buffer(w, "shape_without_local", out, 8 * 192);
	}
	run(w, kernel, 1, NULL, &odd, NULL);
	show_buffer(w, "odd_shape", out, 8 * 192);
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseMemObject(out), "clReleaseMemObject");
}

/* A kernel that says of which size its work-groups are. */
static void probe_wanted_shape(const struct world *w)
{
	const size_t global[2] = { 16, 8 }, offset[2] = { 0, 0 }, local[2] = { 8, 2 };
	cl_kernel kernel = kernel_of(w, "wants");
	cl_mem out = buffer(w, 0, 512, NULL);
	size_t wanted[3] = { 0 };

	must(cl.GetKernelWorkGroupInfo(kernel, w->device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
				       sizeof(wanted), wanted, NULL),
	     "CL_KERNEL_COMPILE_WORK_GROUP_SIZE");
	for (int i = 0; i < 3; i++)
		show("wanted", wanted[i]);
	set(kernel, 0, sizeof(out), &out);
	run(w, kernel, 2, offset, global, local);
	show_buffer(w, "wanted_shape", out, 512);
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseMemObject(out), "clReleaseMemObject");
}

static void probe_local(const struct world *w)
{
	size_t global = 256, local = 32;
	uint32_t host[256];
	cl_kernel kernel = kernel_of(w, "reverse");
	cl_mem mem;

	for (uint32_t i = 0; i < 256; i++)
		host[i] = i * 3;
	mem = buffer(w, CL_MEM_COPY_HOST_PTR, sizeof(host), host);
	set(kernel, 0, sizeof(mem), &mem);
	set(kernel, 1, local * sizeof(uint32_t), NULL);
	run(w, kernel, 1, NULL, &global, &local);
	show_buffer(w, "reversed", mem, sizeof(host));
	local = 64;
	set(kernel, 1, local * sizeof(uint32_t), NULL);
	run(w, kernel, 1, NULL, &global, &local);
	show_buffer(w, "reversed_again", mem, sizeof(host));
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
}

static void probe_values(const struct world *w)
{
	const cl_float4 v = { { 1.5f, 2, 3, 4.25f } };
	const cl_char c = -3;
	const cl_short2 s = { { 8, -9 } };
	const cl_double d = 0.125;
	const struct {
		cl_int a;
		cl_float b;
	} p = { 77, -0.5f };
	int k[2] = { 11, 22 };
	cl_kernel kernel = kernel_of(w, "values"), maybe = kernel_of(w, "maybe");
	cl_mem out = buffer(w, 0, 32, NULL);
	cl_mem constants = buffer(w, CL_MEM_COPY_HOST_PTR, sizeof(k), k);

	set(kernel, 0, sizeof(out), &out);
	set(kernel, 1, sizeof(v), &v);
	set(kernel, 2, sizeof(c), &c);
	set(kernel, 3, sizeof(s), &s);
	set(kernel, 4, sizeof(d), &d);
	set(kernel, 5, sizeof(p), &p);
	set(kernel, 6, sizeof(constants), &constants);
	must(cl.EnqueueTask(w->queue, kernel, 0, NULL, NULL), "clEnqueueTask");
	show_buffer(w, "values", out, 32);
	set(maybe, 0, sizeof(out), &out);
	set(maybe, 1, sizeof(cl_mem), &constants);
	must(cl.EnqueueTask(w->queue, maybe, 0, NULL, NULL), "clEnqueueTask");
	show_buffer(w, "with_buffer", out, 4);
	set(maybe, 1, sizeof(cl_mem), NULL);
	must(cl.EnqueueTask(w->queue, maybe, 0, NULL, NULL), "clEnqueueTask");
	show_buffer(w, "without_buffer", out, 4);
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseKernel(maybe), "clReleaseKernel");
	must(cl.ReleaseMemObject(out), "clReleaseMemObject");
	must(cl.ReleaseMemObject(constants), "clReleaseMemObject");
}

/* Drivers differ in how they write them. */
static void probe_attributes(const struct world *w, const char *name, const char *has)
{
	cl_kernel kernel = kernel_of(w, name);
	char text[256];

	must(cl.GetKernelInfo(kernel, CL_KERNEL_ATTRIBUTES, sizeof(text), text, NULL),
	     "CL_KERNEL_ATTRIBUTES");
	expect_true(has ? strstr(text, has) != NULL : !text[0], "attributes of a kernel");
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
}

static void probe_arg_info(const struct world *w)
{
	cl_kernel kernel = kernel_of(w, "add"), local = kernel_of(w, "reverse");
	cl_kernel_arg_address_qualifier where;
	cl_kernel_arg_type_qualifier qualifiers;
	char text[64];
	cl_uint n = 0;

	must(cl.GetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(n), &n, NULL),
	     "CL_KERNEL_NUM_ARGS");
	for (cl_uint i = 0; i < n; i++) {
		must(cl.GetKernelArgInfo(kernel, i, CL_KERNEL_ARG_NAME, sizeof(text), text, NULL),
		     "name");
		printf("arg_name %s\n", text);
		must(cl.GetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_NAME, sizeof(text), text,
					 NULL),
		     "type");
		printf("arg_type %s\n", text);
		must(cl.GetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof(where),
					 &where, NULL),
		     "where");
		show("arg_where", where);
		must(cl.GetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_QUALIFIER,
					 sizeof(qualifiers), &qualifiers, NULL),
		     "qualifiers");
		show("arg_qualifiers", qualifiers);
	}
	must(cl.GetKernelArgInfo(local, 1, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof(where), &where,
				 NULL),
	     "where");
	show("arg_local", where);
	probe_attributes(w, "wants", "reqd_work_group_size(8, 2, 1");
	probe_attributes(w, "add", NULL);
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseKernel(local), "clReleaseKernel");
}

void probe_kernels(const struct world *w)
{
	probe_add(w);
	probe_shapes(w);
	probe_wanted_shape(w);
	probe_local(w);
	probe_values(w);
	probe_arg_info(w);
}

/* ---- programs ---- */

static void run_one(const struct world *w, cl_program program, const char *kernel_name,
		    const char *name)
{
	struct world other = *w;
	cl_kernel kernel;
	cl_mem out = buffer(w, 0, 4, NULL);

	other.program = program;
	kernel = kernel_of(&other, kernel_name);
	set(kernel, 0, sizeof(out), &out);
	must(cl.EnqueueTask(w->queue, kernel, 0, NULL, NULL), "clEnqueueTask");
	show_buffer(w, name, out, 4);
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseMemObject(out), "clReleaseMemObject");
}

static void probe_binary(const struct world *w, cl_program program)
{
	const unsigned char *binary;
	unsigned char *bytes;
	size_t n = 0;
	cl_int result, status = 1;
	cl_program again;

	must(cl.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(n), &n, NULL), "sizes");
	expect_true(n > 0, "a program that was built has a binary");
	binary = bytes = malloc(n);
	must(cl.GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(bytes), &bytes, NULL),
	     "binaries");
	again = cl.CreateProgramWithBinary(w->context, 1, &w->device, &n, &binary, &status,
					   &result);
	must(result, "clCreateProgramWithBinary");
	show("binary_status", (uint64_t)status);
	must(cl.BuildProgram(again, 0, NULL, NULL, NULL, NULL), "clBuildProgram of a binary");
	run_one(w, again, "answer", "answer_of_binary");
	must(cl.ReleaseProgram(again), "clReleaseProgram");
	free(bytes);
}

static void print_log(const struct world *w, cl_program program)
{
	char log[4096] = "";

	(void)cl.GetProgramBuildInfo(program, w->device, CL_PROGRAM_BUILD_LOG, sizeof(log), log,
				     NULL);
	printf("log %s\n", log);
}

static void probe_link(const struct world *w)
{
	const char *parts[] = {
		"#include \"deep/seven.h\"\nint seven(void) { return SEVEN; }\n",
		"int seven(void);\n__kernel void give(__global int *out) { *out = seven() + 1; }\n"
	};
	const char *header = "#define SEVEN 7\n", *name = "deep/seven.h";
	cl_program programs[2], headers, linked;
	cl_int result;

	headers = cl.CreateProgramWithSource(w->context, 1, &header, NULL, &result);
	must(result, "clCreateProgramWithSource");
	for (int i = 0; i < 2; i++) {
		programs[i] = cl.CreateProgramWithSource(w->context, 1, &parts[i], NULL, &result);
		must(result, "clCreateProgramWithSource");
		result = cl.CompileProgram(programs[i], 0, NULL, "", i == 0,
					   i == 0 ? &headers : NULL, i == 0 ? &name : NULL, NULL,
					   NULL);
		if (result != CL_SUCCESS)
			print_log(w, programs[i]);
		must(result, "clCompileProgram");
	}
	linked = cl.LinkProgram(w->context, 0, NULL, "", 2, programs, NULL, NULL, &result);
	must(result, "clLinkProgram");
	run_one(w, linked, "give", "linked");
	must(cl.ReleaseProgram(linked), "clReleaseProgram");
	must(cl.ReleaseProgram(headers), "clReleaseProgram");
	must(cl.ReleaseProgram(programs[0]), "clReleaseProgram");
	must(cl.ReleaseProgram(programs[1]), "clReleaseProgram");
}

static void probe_failing_build(const struct world *w)
{
	const char *text = "__kernel void bad(__global int *out) { out[0] = nothing_like_it; }\n";
	cl_int result;
	cl_program program = cl.CreateProgramWithSource(w->context, 1, &text, NULL, &result);
	cl_build_status status = CL_SUCCESS;
	char log[8192] = "";

	must(result, "clCreateProgramWithSource");
	expect(cl.BuildProgram(program, 0, NULL, "-DX=1", NULL, NULL), CL_BUILD_PROGRAM_FAILURE,
	       "a text that does not compile");
	must(cl.GetProgramBuildInfo(program, w->device, CL_PROGRAM_BUILD_STATUS, sizeof(status),
				    &status, NULL),
	     "status");
	expect(status, CL_BUILD_ERROR, "its status");
	must(cl.GetProgramBuildInfo(program, w->device, CL_PROGRAM_BUILD_LOG, sizeof(log), log,
				    NULL),
	     "log");
	expect_true(strstr(log, "nothing_like_it") != NULL, "the log names what is wrong");
	must(cl.ReleaseProgram(program), "clReleaseProgram");
}

void probe_programs(const struct world *w)
{
	cl_program program =
		program_of(w,
			   "__kernel void answer(__global int *out) { *out = ANSWER; }\n"
			   "__kernel void other(__global int *out) { *out = 1; }\n",
			   "-D ANSWER=42 -cl-mad-enable");
	cl_kernel kernels[4];
	cl_uint n = 0;
	size_t nkernels = 0;

	run_one(w, program, "answer", "answer");
	must(cl.GetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof(nkernels), &nkernels, NULL),
	     "kernels");
	show("kernels", nkernels);
	must(cl.CreateKernelsInProgram(program, 4, kernels, &n), "clCreateKernelsInProgram");
	show("made", n);
	for (cl_uint i = 0; i < n; i++)
		must(cl.ReleaseKernel(kernels[i]), "clReleaseKernel");
	probe_binary(w, program);
	must(cl.ReleaseProgram(program), "clReleaseProgram");
	probe_failing_build(w);
	probe_link(w);
}
