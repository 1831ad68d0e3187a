/* SPDX-License-Identifier: Apache-2.0 */
/* Sub-devices: what they are, what runs on them, and what they are refused for. */
#include <stdio.h>
#include <string.h>

#include "tests/system/guests/opencl_probe.h"

#define MOST	   256u
#define SPINS	   200000
#define MEET_TRIES 100 /* a busy machine may run one unit's thread after the other's */

typedef cl_device_partition_property property_t;

static const char text[] =
	"__kernel void meet(__global volatile int *here, __global int *met, int spins)\n"
	"{ int g = get_group_id(0), all = 0; atomic_xchg(here + g, 1);\n"
	"  for (int i = 0; i < spins && !all; i++)\n"
	"  { all = 1; for (int j = 0; j < get_num_groups(0); j++) all &= atomic_add(here + j, 0); }\n"
	"  met[g] = all; }\n"
	"__kernel void go_on(__global uint *x, uint mul, uint add)\n"
	"{ size_t i = get_global_id(0); x[i] = x[i] * mul + add; }\n";

static cl_uint number_of(cl_device_id device, cl_device_info what)
{
	cl_uint number = 0;

	must(cl.GetDeviceInfo(device, what, sizeof(number), &number, NULL), "clGetDeviceInfo");
	return number;
}

static void show_list(cl_device_id device, cl_device_info what, const char *name)
{
	property_t list[16];
	size_t n = 0;

	must(cl.GetDeviceInfo(device, what, sizeof(list), list, &n), name);
	printf("%s", name);
	for (size_t i = 0; i < n / sizeof(list[0]); i++)
		printf(" %ld", (long)list[i]);
	printf("\n");
}

static void show_part(cl_device_id part, cl_device_id parent)
{
	cl_device_id of = NULL;

	must(cl.GetDeviceInfo(part, CL_DEVICE_PARENT_DEVICE, sizeof(of), &of, NULL), "parent");
	printf("part units %u most %u refs %u parent %d\n",
	       number_of(part, CL_DEVICE_MAX_COMPUTE_UNITS),
	       number_of(part, CL_DEVICE_PARTITION_MAX_SUB_DEVICES),
	       number_of(part, CL_DEVICE_REFERENCE_COUNT), of == parent);
	show_list(part, CL_DEVICE_PARTITION_PROPERTIES, "ways");
	show_list(part, CL_DEVICE_PARTITION_TYPE, "type");
}

/* Each is released again. */
static void divide(cl_device_id device, const char *name, const property_t *list, cl_uint room)
{
	cl_device_id parts[MOST];
	cl_uint n = 0;
	cl_int result = cl.CreateSubDevices(device, list, room, room ? parts : NULL, &n);

	printf("%s %d parts %u\n", name, result, result == CL_SUCCESS ? n : 0);
	for (cl_uint i = 0; room && result == CL_SUCCESS && i < n; i++) {
		show_part(parts[i], device);
		must(cl.ReleaseDevice(parts[i]), "clReleaseDevice");
	}
}

#define LIST(...)                 \
	(const property_t[])      \
	{                         \
		__VA_ARGS__, 0, 0 \
	}

static void probe_ways(const struct world *w, cl_uint units)
{
	cl_device_affinity_domain domains = 0;

	show_list(w->device, CL_DEVICE_PARTITION_PROPERTIES, "ways of the device");
	show_list(w->device, CL_DEVICE_PARTITION_TYPE, "type of the device");
	show("most parts", number_of(w->device, CL_DEVICE_PARTITION_MAX_SUB_DEVICES));
	must(cl.GetDeviceInfo(w->device, CL_DEVICE_PARTITION_AFFINITY_DOMAIN, sizeof(domains),
			      &domains, NULL),
	     "domains");
	show("domains", domains);
	divide(w->device, "ones", LIST(CL_DEVICE_PARTITION_EQUALLY, 1), MOST);
	divide(w->device, "how many ones", LIST(CL_DEVICE_PARTITION_EQUALLY, 1), 0);
	divide(w->device, "all in one", LIST(CL_DEVICE_PARTITION_EQUALLY, units), MOST);
	divide(w->device, "by counts", LIST(CL_DEVICE_PARTITION_BY_COUNTS, 1, units - 1), MOST);
	divide(w->device, "a part of it", LIST(CL_DEVICE_PARTITION_BY_COUNTS, 1), MOST);
}

/* How many of @groups work-groups were running while all were. */
static cl_uint met(const struct world *w, cl_context context, cl_command_queue q, cl_kernel kernel,
		   cl_uint groups)
{
	cl_int zeros[MOST] = { 0 }, found[MOST], result;
	const cl_int spins = SPINS;
	size_t global = groups, one = 1;
	cl_mem here = cl.CreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(zeros), zeros, &result);
	cl_mem out = cl.CreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(zeros), zeros, &result);
	cl_uint n = 0;

	(void)w;
	must(result, "clCreateBuffer");
	must(cl.SetKernelArg(kernel, 0, sizeof(here), &here), "clSetKernelArg");
	must(cl.SetKernelArg(kernel, 1, sizeof(out), &out), "clSetKernelArg");
	must(cl.SetKernelArg(kernel, 2, sizeof(spins), &spins), "clSetKernelArg");
	must(cl.EnqueueNDRangeKernel(q, kernel, 1, NULL, &global, &one, 0, NULL, NULL), "meet");
	must(cl.EnqueueReadBuffer(q, out, CL_TRUE, 0, groups * sizeof(cl_int), found, 0, NULL,
				  NULL),
	     "clEnqueueReadBuffer");
	for (cl_uint i = 0; i < groups; i++)
		n += found[i] != 0;
	must(cl.ReleaseMemObject(here), "clReleaseMemObject");
	must(cl.ReleaseMemObject(out), "clReleaseMemObject");
	return n;
}

/* As many work-groups as the device has units are at work at once, and one more is not. */
static void probe_units(const struct world *w, cl_context context, cl_device_id device,
			cl_program program, const char *name)
{
	cl_uint units = number_of(device, CL_DEVICE_MAX_COMPUTE_UNITS);
	cl_int result;
	cl_command_queue q = cl.CreateCommandQueue(context, device, 0, &result);
	cl_device_id of = NULL;
	cl_kernel kernel;
	cl_uint n = 0;

	must(result, "clCreateCommandQueue");
	must(cl.GetCommandQueueInfo(q, CL_QUEUE_DEVICE, sizeof(of), &of, NULL), "CL_QUEUE_DEVICE");
	kernel = cl.CreateKernel(program, "meet", &result);
	must(result, "clCreateKernel");
	for (int i = 0; i < MEET_TRIES && n < units; i++)
		n = met(w, context, q, kernel, units);
	printf("%s of %u units: itself %d, met %u, one more %d\n", name, units, of == device, n,
	       met(w, context, q, kernel, units + 1) == units + 1);
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseCommandQueue(q), "clReleaseCommandQueue");
}

/* Commands of queues on several parts, each after the one before by its event: the order shows in the number. */
static void probe_order(cl_context context, cl_uint n, const cl_device_id *devices,
			cl_program program)
{
	cl_uint x[64] = { 0 }, add = 1;
	const cl_uint mul = 1664525u;
	size_t global = 64, one = 8;
	cl_int result;
	cl_command_queue queues[4];
	cl_event last = NULL, event;
	cl_kernel kernel = cl.CreateKernel(program, "go_on", &result);
	cl_mem mem;

	must(result, "clCreateKernel");
	mem = cl.CreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(x), x, &result);
	must(result, "clCreateBuffer");
	for (cl_uint i = 0; i < n; i++) {
		queues[i] = cl.CreateCommandQueue(context, devices[i], 0, &result);
		must(result, "clCreateCommandQueue");
	}
	must(cl.SetKernelArg(kernel, 0, sizeof(mem), &mem), "clSetKernelArg");
	must(cl.SetKernelArg(kernel, 1, sizeof(mul), &mul), "clSetKernelArg");
	for (; add < 200; add++) {
		must(cl.SetKernelArg(kernel, 2, sizeof(add), &add), "clSetKernelArg");
		must(cl.EnqueueNDRangeKernel(queues[add % n], kernel, 1, NULL, &global, &one,
					     last ? 1 : 0, last ? &last : NULL, &event),
		     "step");
		must(cl.Flush(queues[add % n]), "clFlush");
		if (last)
			must(cl.ReleaseEvent(last), "clReleaseEvent");
		last = event;
	}
	must(cl.EnqueueReadBuffer(queues[0], mem, CL_TRUE, 0, sizeof(x), x, 1, &last, NULL),
	     "clEnqueueReadBuffer");
	show_bytes("one after the other", x, sizeof(x));
	must(cl.ReleaseEvent(last), "clReleaseEvent");
	for (cl_uint i = 0; i < n; i++)
		must(cl.ReleaseCommandQueue(queues[i]), "clReleaseCommandQueue");
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
}

static cl_program build(cl_context context)
{
	const char *source = text;
	cl_int result;
	cl_program program = cl.CreateProgramWithSource(context, 1, &source, NULL, &result);

	must(result, "clCreateProgramWithSource");
	must(cl.BuildProgram(program, 0, NULL, NULL, NULL, NULL), "clBuildProgram");
	return program;
}

void probe_sub_devices(const struct world *w)
{
	cl_uint units = number_of(w->device, CL_DEVICE_MAX_COMPUTE_UNITS), n = 0;
	cl_device_id parts[3];
	cl_program program;
	cl_context context;
	cl_int result;

	if (units < 2) {
		printf("skip the device has one compute unit\n");
		return;
	}
	probe_ways(w, units);
	must(cl.CreateSubDevices(w->device, LIST(CL_DEVICE_PARTITION_BY_COUNTS, 1, units - 1), 2,
				 parts, &n),
	     "clCreateSubDevices");
	parts[2] = w->device;
	context = cl.CreateContext(NULL, 3, parts, NULL, NULL, &result);
	must(result, "clCreateContext");
	program = build(context);
	probe_units(w, context, parts[0], program, "first part");
	probe_units(w, context, parts[1], program, "second part");
	probe_units(w, context, parts[2], program, "whole device");
	probe_order(context, 3, parts, program);
	must(cl.RetainDevice(parts[0]), "clRetainDevice");
	show("references", number_of(parts[0], CL_DEVICE_REFERENCE_COUNT));
	must(cl.ReleaseDevice(parts[0]), "clReleaseDevice");
	show("references", number_of(parts[0], CL_DEVICE_REFERENCE_COUNT));
	must(cl.ReleaseProgram(program), "clReleaseProgram");
	must(cl.ReleaseContext(context), "clReleaseContext");
	must(cl.ReleaseDevice(parts[0]), "clReleaseDevice");
	must(cl.ReleaseDevice(parts[1]), "clReleaseDevice");
	must(cl.RetainDevice(w->device), "clRetainDevice");
	must(cl.ReleaseDevice(w->device), "clReleaseDevice");
	show("references of the device", number_of(w->device, CL_DEVICE_REFERENCE_COUNT));
}

/* ---- domains ---- */

/* Parts that share what @domain says; all released again. */
static void check_domain(const struct world *w, property_t domain, property_t came_to, cl_uint n,
			 cl_uint first, cl_uint last)
{
	cl_device_id parts[MOST] = { NULL };
	property_t list[4] = { 0 };
	cl_uint found = 0;
	size_t bytes = 0;

	expect(cl.CreateSubDevices(w->device, LIST(CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN, domain),
				   MOST, parts, &found),
	       CL_SUCCESS, "parts by a domain");
	expect_true(found == n, "are as many as it has");
	if (found == 0)
		return;
	must(cl.GetDeviceInfo(parts[0], CL_DEVICE_PARTITION_TYPE, sizeof(list), list, &bytes),
	     "CL_DEVICE_PARTITION_TYPE");
	expect_true(bytes == 3 * sizeof(list[0]) &&
			    list[0] == CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN &&
			    list[1] == came_to && list[2] == 0,
		    "and say by which");
	expect_true(number_of(parts[0], CL_DEVICE_MAX_COMPUTE_UNITS) == first &&
			    number_of(parts[n - 1], CL_DEVICE_MAX_COMPUTE_UNITS) == last,
		    "with the units of each");
	expect(cl.CreateSubDevices(parts[n - 1],
				   LIST(CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN, domain), MOST,
				   &(cl_device_id){ NULL }, &found),
	       CL_DEVICE_PARTITION_FAILED, "parts of a part by a domain");
	for (cl_uint i = 0; i < n; i++)
		must(cl.ReleaseDevice(parts[i]), "clReleaseDevice");
}

/* The layer's: a NUMA node of one unit, one of the rest, and a level 3 cache for each unit. */
void probe_domains(const struct world *w)
{
	cl_uint units = number_of(w->device, CL_DEVICE_MAX_COMPUTE_UNITS);
	cl_device_affinity_domain domains = 0;
	cl_device_id nodes[2], halves[2];
	cl_program program;
	cl_context context;
	cl_int result;

	must(cl.GetDeviceInfo(w->device, CL_DEVICE_PARTITION_AFFINITY_DOMAIN, sizeof(domains),
			      &domains, NULL),
	     "domains");
	expect_true(domains ==
			    (CL_DEVICE_AFFINITY_DOMAIN_NUMA | CL_DEVICE_AFFINITY_DOMAIN_L3_CACHE |
			     CL_DEVICE_AFFINITY_DOMAIN_NEXT_PARTITIONABLE),
		    "domains of the device");
	check_domain(w, CL_DEVICE_AFFINITY_DOMAIN_NUMA, CL_DEVICE_AFFINITY_DOMAIN_NUMA, 2, 1,
		     units - 1);
	check_domain(w, CL_DEVICE_AFFINITY_DOMAIN_NEXT_PARTITIONABLE,
		     CL_DEVICE_AFFINITY_DOMAIN_NUMA, 2, 1, units - 1);
	check_domain(w, CL_DEVICE_AFFINITY_DOMAIN_L3_CACHE, CL_DEVICE_AFFINITY_DOMAIN_L3_CACHE,
		     units, 1, 1);
	expect(cl.CreateSubDevices(w->device,
				   LIST(CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN,
					CL_DEVICE_AFFINITY_DOMAIN_L2_CACHE),
				   2, nodes, NULL),
	       CL_INVALID_VALUE, "parts by a domain that the device does not have");
	must(cl.CreateSubDevices(w->device,
				 LIST(CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN,
				      CL_DEVICE_AFFINITY_DOMAIN_NUMA),
				 2, nodes, NULL),
	     "clCreateSubDevices");
	must(cl.CreateSubDevices(nodes[1], LIST(CL_DEVICE_PARTITION_BY_COUNTS, 1, units - 2), 2,
				 halves, NULL),
	     "clCreateSubDevices");
	context = cl.CreateContext(NULL, 2, (cl_device_id[]){ nodes[1], halves[1] }, NULL, NULL,
				   &result);
	must(result, "clCreateContext");
	program = build(context);
	probe_units(w, context, nodes[1], program, "second node");
	probe_units(w, context, halves[1], program, "part of it");
	must(cl.ReleaseProgram(program), "clReleaseProgram");
	must(cl.ReleaseDevice(nodes[0]), "clReleaseDevice");
	must(cl.ReleaseDevice(nodes[1]), "clReleaseDevice");
	must(cl.ReleaseDevice(halves[0]), "clReleaseDevice");
	must(cl.ReleaseDevice(halves[1]), "clReleaseDevice");
	must(cl.ReleaseContext(context), "clReleaseContext");
}

/* ---- what a part costs ---- */

/* Launches on @units of the device, some milliseconds of work altogether; the whole device where that is 0. */
void probe_cost(const struct world *w, unsigned units)
{
	const cl_uint mul = 1664525u, add = 1;
	size_t global = 1 << 16, local = 64;
	cl_device_id device = w->device;
	cl_command_queue q;
	cl_context context;
	cl_program program;
	cl_kernel kernel;
	cl_int result;
	cl_mem mem;

	if (units)
		must(cl.CreateSubDevices(w->device, LIST(CL_DEVICE_PARTITION_BY_COUNTS, units), 1,
					 &device, NULL),
		     "clCreateSubDevices");
	context = cl.CreateContext(NULL, 1, &device, NULL, NULL, &result);
	must(result, "clCreateContext");
	program = build(context);
	q = cl.CreateCommandQueue(context, device, 0, &result);
	must(result, "clCreateCommandQueue");
	mem = cl.CreateBuffer(context, CL_MEM_READ_WRITE, global * sizeof(mul), NULL, &result);
	must(result, "clCreateBuffer");
	kernel = cl.CreateKernel(program, "go_on", &result);
	must(result, "clCreateKernel");
	must(cl.SetKernelArg(kernel, 0, sizeof(mem), &mem), "clSetKernelArg");
	must(cl.SetKernelArg(kernel, 1, sizeof(mul), &mul), "clSetKernelArg");
	must(cl.SetKernelArg(kernel, 2, sizeof(add), &add), "clSetKernelArg");
	for (int i = 0; i < 100; i++)
		must(cl.EnqueueNDRangeKernel(q, kernel, 1, NULL, &global, &local, 0, NULL, NULL),
		     "clEnqueueNDRangeKernel");
	must(cl.Finish(q), "clFinish");
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
	must(cl.ReleaseCommandQueue(q), "clReleaseCommandQueue");
	must(cl.ReleaseProgram(program), "clReleaseProgram");
	must(cl.ReleaseContext(context), "clReleaseContext");
	if (units)
		must(cl.ReleaseDevice(device), "clReleaseDevice");
}

/* ---- misuse ---- */

static void refuse(const struct world *w, const property_t *list, cl_uint room, cl_int wanted,
		   const char *name)
{
	cl_device_id parts[MOST] = { NULL };
	cl_uint n = 77;

	expect(cl.CreateSubDevices(w->device, list, room, parts, &n), wanted, name);
	expect_true(n == 77 && !parts[0], "and gives nothing");
}

static void misuse_lists(const struct world *w, cl_uint units)
{
	property_t many[MOST + 3] = { CL_DEVICE_PARTITION_BY_COUNTS };

	refuse(w, NULL, MOST, CL_INVALID_VALUE, "parts of no list");
	refuse(w, LIST(0), MOST, CL_INVALID_VALUE, "parts of an empty list");
	refuse(w, LIST(0x7777, 1), MOST, CL_INVALID_VALUE, "parts in an unknown way");
	refuse(w, LIST(CL_DEVICE_PARTITION_EQUALLY, 0), MOST, CL_INVALID_VALUE, "parts of nothing");
	refuse(w, LIST(CL_DEVICE_PARTITION_EQUALLY, -1), MOST, CL_INVALID_VALUE,
	       "parts of fewer than none");
	refuse(w, LIST(CL_DEVICE_PARTITION_EQUALLY, units + 1), MOST, CL_INVALID_VALUE,
	       "parts of more than there is");
	refuse(w, LIST(CL_DEVICE_PARTITION_EQUALLY, 1, CL_DEVICE_PARTITION_EQUALLY, 1), MOST,
	       CL_INVALID_VALUE, "parts in two ways");
	refuse(w, LIST(CL_DEVICE_PARTITION_EQUALLY, 1), units - 1, CL_INVALID_VALUE,
	       "more parts than there is room for");
	refuse(w, LIST(CL_DEVICE_PARTITION_BY_COUNTS, 0), MOST, CL_INVALID_DEVICE_PARTITION_COUNT,
	       "counts of nothing");
	refuse(w, LIST(CL_DEVICE_PARTITION_BY_COUNTS, units, 1), MOST,
	       CL_INVALID_DEVICE_PARTITION_COUNT, "counts of more than there is");
	refuse(w, LIST(CL_DEVICE_PARTITION_BY_COUNTS, 1, -1), MOST,
	       CL_INVALID_DEVICE_PARTITION_COUNT, "a count below nothing");
	for (unsigned i = 1; i < MOST + 1; i++)
		many[i] = 1;
	refuse(w, many, MOST, CL_INVALID_DEVICE_PARTITION_COUNT, "more counts than units");
	refuse(w, LIST(CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN, 0x8000), MOST, CL_INVALID_VALUE,
	       "parts by an unknown domain");
}

static void misuse_part(const struct world *w, cl_device_id part)
{
	const property_t ones[] = { CL_DEVICE_PARTITION_EQUALLY, 1, 0 };
	cl_int result;
	cl_device_id both[2] = { part, part }, of = NULL;
	cl_context context = cl.CreateContext(NULL, 2, both, NULL, NULL, &result);
	cl_command_queue q;
	cl_uint n = 0;

	must(result, "clCreateContext");
	expect(cl.GetContextInfo(context, CL_CONTEXT_DEVICES, sizeof(of), &of, NULL), CL_SUCCESS,
	       "devices of a part's context");
	expect_true(of == part, "are the part, once");
	expect(cl.CreateSubDevices(part, ones, 0, NULL, &n), CL_DEVICE_PARTITION_FAILED,
	       "parts of one unit");
	(void)cl.CreateCommandQueue(w->context, part, 0, &result);
	expect(result, CL_INVALID_DEVICE, "a queue on a part that the context does not have");
	(void)cl.CreateCommandQueue(context, w->device, 0, &result);
	expect(result, CL_INVALID_DEVICE, "a queue on the whole of the context's part");
	(void)cl.CreateProgramWithBuiltInKernels(context, 1, &part, "vsquare", &result);
	expect(result, CL_INVALID_VALUE, "an installed kernel on a part");
	q = cl.CreateCommandQueue(context, part, 0, &result);
	must(result, "clCreateCommandQueue");
	/* The queue has it yet. */
	must(cl.ReleaseDevice(part), "clReleaseDevice");
	expect(cl.ReleaseDevice(part), CL_INVALID_DEVICE, "a part that was released");
	must(cl.ReleaseContext(context), "clReleaseContext");
	expect(cl.GetCommandQueueInfo(q, CL_QUEUE_DEVICE, sizeof(of), &of, NULL), CL_SUCCESS,
	       "the part of a queue");
	expect_true(of == part, "is what it was");
	expect_true(number_of(of, CL_DEVICE_MAX_COMPUTE_UNITS) == 1, "and knows its units");
	must(cl.RetainDevice(of), "clRetainDevice");
	must(cl.ReleaseCommandQueue(q), "clReleaseCommandQueue");
	expect_true(number_of(of, CL_DEVICE_REFERENCE_COUNT) == 1, "and is kept by who asks");
	must(cl.ReleaseDevice(of), "clReleaseDevice");
	expect(cl.GetDeviceInfo(of, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(n), &n, NULL),
	       CL_INVALID_DEVICE, "a part that nobody has");
	expect(cl.RetainDevice(of), CL_INVALID_DEVICE, "and cannot be had again");
}

void probe_sub_device_misuse(const struct world *w)
{
	cl_uint units = number_of(w->device, CL_DEVICE_MAX_COMPUTE_UNITS);
	const property_t first[] = { CL_DEVICE_PARTITION_BY_COUNTS, 1, 0 };
	cl_device_id part = NULL;

	if (number_of(w->device, CL_DEVICE_PARTITION_MAX_SUB_DEVICES) == 0) {
		refuse(w, first, 1, CL_INVALID_VALUE, "parts of a device that has none");
		return;
	}
	misuse_lists(w, units);
	must(cl.CreateSubDevices(w->device, first, 1, &part, NULL), "clCreateSubDevices");
	misuse_part(w, part);
	expect(cl.GetDeviceInfo(w->device, CL_DEVICE_PARENT_DEVICE, 1, &part, NULL),
	       CL_INVALID_VALUE, "a parent in no room");
}
