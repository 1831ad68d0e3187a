/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: the arguments as they are when the command is put, packed as libgantry wants them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/calls.h"

#define MAX_ACCESS	32u
#define ARGS_BYTES	4096u
#define SIGNATURE_ROOM	(ICD_MAX_ARGS * 8u + 16u)
#define PREFERRED_GROUP 256u

/* One launch; after it its arguments. */
struct launch {
	struct _cl_kernel *kernel; /* held */
	gantry_kernel handle;
	struct gantry_task task;
	struct gantry_access access[MAX_ACCESS];
	struct _cl_mem *mems[MAX_ACCESS]; /* held, one for each access */
	unsigned char args[ARGS_BYTES];
};

struct shape {
	cl_uint ndims;
	uint64_t offset[3], global[3], local[3];
};

/* ---- shapes ---- */

/* The largest divisor of @n up to @most. */
static uint64_t divisor(uint64_t n, uint64_t most)
{
	for (uint64_t d = most < n ? most : n; d > 1; d--)
		if (n % d == 0)
			return d;
	return 1;
}

/* The program leaves it to the driver: large groups, and enough of them. */
static void choose_local(const struct icd_kernel_info *info, struct shape *s)
{
	uint64_t most = info->work_group < PREFERRED_GROUP ? info->work_group : PREFERRED_GROUP;

	for (cl_uint i = 0; i < 3; i++) {
		s->local[i] = info->compiled[0] ? info->compiled[i]
						: divisor(s->global[i], most ? most : 1);
		most = most / s->local[i];
	}
}

static cl_int check_local(const struct icd_kernel_info *info, const struct _cl_device_id *device,
			  const struct shape *s)
{
	uint64_t all = 1;

	for (cl_uint i = 0; i < s->ndims; i++) {
		if (s->local[i] == 0)
			return CL_INVALID_WORK_GROUP_SIZE;
		if (s->local[i] > device->items[i])
			return CL_INVALID_WORK_ITEM_SIZE;
		if (s->global[i] % s->local[i] != 0 ||
		    __builtin_mul_overflow(all, s->local[i], &all))
			return CL_INVALID_WORK_GROUP_SIZE;
	}
	for (cl_uint i = 0; i < 3 && info->compiled[0]; i++)
		if (s->local[i] != info->compiled[i])
			return CL_INVALID_WORK_GROUP_SIZE;
	if (info->work_group == 0 || all <= info->work_group)
		return CL_SUCCESS;
	/* Of a GPU that is advice: NVIDIA's runs larger groups than it says. What the kernel cannot have the host's driver refuses. */
	return (icd_device_number(device, "type") & CL_DEVICE_TYPE_GPU) &&
			       all <= icd_device_number(device, "work_group")
		       ? CL_SUCCESS
		       : CL_INVALID_WORK_GROUP_SIZE;
}

static cl_int take_shape(const struct _cl_kernel *kernel, const struct _cl_device_id *device,
			 const size_t *offset, const size_t *global, const size_t *local,
			 struct shape *s)
{
	uint64_t end;
	cl_int result = CL_SUCCESS;

	if (s->ndims < 1 || s->ndims > 3)
		return CL_INVALID_WORK_DIMENSION;
	for (cl_uint i = 0; i < 3; i++) {
		s->global[i] = i < s->ndims && global ? global[i] : 1;
		s->offset[i] = i < s->ndims && offset ? offset[i] : 0;
		s->local[i] = i < s->ndims && local ? local[i] : 1;
		if (!global || s->global[i] == 0)
			return CL_INVALID_GLOBAL_WORK_SIZE;
		if (__builtin_add_overflow(s->offset[i], s->global[i], &end))
			return CL_INVALID_GLOBAL_OFFSET;
	}
	if (kernel->info->signature)
		return CL_SUCCESS;
	if (local)
		result = check_local(kernel->info, device, s);
	else
		choose_local(kernel->info, s);
	if (result == CL_SUCCESS && kernel->info->compiled[0] && !local)
		result = CL_INVALID_WORK_GROUP_SIZE;
	for (cl_uint i = 0; i < 3 && result == CL_SUCCESS; i++)
		if (s->global[i] / s->local[i] > UINT32_MAX || s->local[i] > UINT32_MAX)
			result = CL_INVALID_GLOBAL_WORK_SIZE;
	return result;
}

/* ---- arguments ---- */

static bool is_buffer(const struct icd_arg *arg)
{
	return !icd_arg_is_image(arg) && (arg->where == CL_KERNEL_ARG_ADDRESS_GLOBAL ||
					  arg->where == CL_KERNEL_ARG_ADDRESS_CONSTANT);
}

static bool is_read_only(const struct icd_arg *arg)
{
	if (icd_arg_is_image(arg))
		return arg->access == CL_KERNEL_ARG_ACCESS_READ_ONLY;
	return arg->where == CL_KERNEL_ARG_ADDRESS_CONSTANT ||
	       (arg->qualifiers & CL_KERNEL_ARG_TYPE_CONST);
}

static cl_int check_values(const struct _cl_kernel *kernel, const struct _cl_device_id *device)
{
	const struct icd_kernel_info *info = kernel->info;
	uint64_t local = info->local_bytes;
	uint64_t most = device->local_bytes;
	uint32_t nbuffers = 0, nimages = 0;

	for (uint32_t i = 0; i < info->nargs; i++) {
		const struct icd_value *v = &kernel->values[i];

		if (!v->set)
			return CL_INVALID_KERNEL_ARGS;
		if (v->mem &&
		    (!icd_object_get(v->mem, ICD_MEM) || v->mem->object.serial != v->serial))
			return CL_INVALID_KERNEL_ARGS; /* it is no more */
		nbuffers += is_buffer(&info->args[i]);
		nimages += icd_arg_is_image(&info->args[i]);
		if (info->args[i].where == CL_KERNEL_ARG_ADDRESS_LOCAL)
			local += v->bytes;
	}
	/* What an image is takes the place of an argument of its own. */
	if (info->nargs + nimages > ICD_MAX_ARGS || nbuffers + nimages > MAX_ACCESS ||
	    (most && local > most))
		return CL_OUT_OF_RESOURCES;
	return CL_SUCCESS;
}

/* What the kernel's parameters are with the values that they have now. false: it does not fit. */
static bool write_signature(const struct _cl_kernel *kernel, char *text, size_t room)
{
	size_t len = (size_t)snprintf(text, room, "range");

	for (uint32_t i = 0; i < kernel->info->nargs && len < room; i++) {
		const struct icd_arg *arg = &kernel->info->args[i];
		const struct icd_value *v = &kernel->values[i];
		char *at = text + len;

		if (icd_arg_is_image(arg))
			len += (size_t)snprintf(at, room - len, ",image,%s:u8*",
						is_read_only(arg) ? "r" : "rw");
		else if (icd_arg_is_sampler(arg))
			len += (size_t)snprintf(at, room - len, ",sampler");
		else if (is_buffer(arg) && v->mem)
			len += (size_t)snprintf(at, room - len, ",%s:u8*",
						is_read_only(arg) ? "r" : "rw");
		else if (arg->where == CL_KERNEL_ARG_ADDRESS_PRIVATE)
			len += (size_t)snprintf(at, room - len, ",b%u", v->bytes);
		else
			len += (size_t)snprintf(at, room - len, ",local");
	}
	return len < room;
}

/* The host's kernel; asked for again where a value's size or a NULL has changed what it is. */
static int find_kernel(struct _cl_kernel *kernel)
{
	struct gantry_session *session = kernel->program->context->host->session;
	char signature[SIGNATURE_ROOM];
	gantry_kernel found;
	char *told;
	int r;

	if (kernel->info->signature) {
		if (kernel->kernel)
			return 0;
		return gantry_kernel_find(session, kernel->info->name, NULL, &kernel->kernel);
	}
	if (kernel->is_found)
		return 0;
	if (!write_signature(kernel, signature, sizeof(signature)))
		return GANTRY_E_LIMIT;
	kernel->is_found = kernel->kernel && strcmp(kernel->signature, signature) == 0;
	if (kernel->is_found)
		return 0;
	r = gantry_kernel_from(session, kernel->program->image, kernel->info->name, signature,
			       &found);
	if (r < 0)
		return r;
	told = strdup(signature);
	if (!told) {
		(void)gantry_kernel_free(session, found);
		return GANTRY_E_NO_MEMORY;
	}
	if (kernel->kernel)
		icd_kernel_free(kernel->program->context->host, kernel->kernel);
	kernel->kernel = found;
	free(kernel->signature);
	kernel->signature = told;
	kernel->is_found = true;
	return 0;
}

static unsigned char *place(struct launch *l, uint32_t align, uint32_t bytes)
{
	uint32_t at = (l->task.args_bytes + align - 1) & ~(align - 1);

	if (at + bytes > ARGS_BYTES)
		return NULL;
	l->task.args_bytes = at + bytes;
	return l->args + at;
}

static bool put_buffer(struct launch *l, const struct icd_arg *arg, struct _cl_mem *mem)
{
	unsigned char *at = place(l, 8, 8);

	if (!at)
		return false;
	icd_object_hold(mem);
	l->mems[l->task.naccess] = mem;
	l->access[l->task.naccess++] = (struct gantry_access){
		.buffer = mem->buffer,
		.off = mem->origin,
		.len = mem->bytes,
		.mode = is_read_only(arg) ? GANTRY_R : GANTRY_RW,
		.arg_off = (uint16_t)(at - l->args),
	};
	return true;
}

/* What the buffer is, and then the buffer. */
static bool put_image(struct launch *l, const struct icd_arg *arg, struct _cl_mem *mem)
{
	unsigned char *at = place(l, 8, sizeof(struct gantry_launch_image));

	if (at)
		memcpy(at, &mem->image, sizeof(struct gantry_launch_image));
	return at && put_buffer(l, arg, mem);
}

static bool put_value(struct launch *l, const struct icd_arg *arg, const struct icd_value *v,
		      bool is_installed)
{
	uint64_t bytes = arg->where == CL_KERNEL_ARG_ADDRESS_LOCAL ? v->bytes : 0;
	unsigned char *at;

	if (arg->where == CL_KERNEL_ARG_ADDRESS_PRIVATE) {
		at = place(l, is_installed ? v->bytes : 8, v->bytes);
		if (at)
			memcpy(at, v->value, v->bytes);
		return at != NULL;
	}
	at = place(l, 8, 8);
	if (at)
		memcpy(at, &bytes, sizeof(bytes));
	return at != NULL;
}

static bool put_args(struct launch *l, const struct _cl_kernel *kernel, const struct shape *s,
		     const struct gantry_launch_part *part)
{
	bool is_installed = kernel->info->signature != NULL;
	struct gantry_launch_range range = {
		.ndims = (uint8_t)s->ndims,
		.domain = (uint8_t)part->domain,
		.index = part->index,
		.first = part->first,
		.count = part->count,
	};

	if (!is_installed) {
		memcpy(range.offset, s->offset, sizeof(range.offset));
		memcpy(place(l, 8, sizeof(range)), &range, sizeof(range));
	}
	for (uint32_t i = 0; i < kernel->info->nargs; i++) {
		const struct icd_arg *arg = &kernel->info->args[i];
		const struct icd_value *v = &kernel->values[i];

		if (!(icd_arg_is_image(arg)	 ? put_image(l, arg, v->mem)
		      : is_buffer(arg) && v->mem ? put_buffer(l, arg, v->mem)
						 : put_value(l, arg, v, is_installed)))
			return false;
	}
	return place(l, 8, 0) != NULL;
}

/* ---- the command ---- */

static int run(struct _cl_event *event, struct icd_work *work, const gantry_ticket *after,
	       unsigned nafter, gantry_ticket *ret_ticket)
{
	struct launch *l = work->owned;

	l->task.after = after;
	l->task.nafter = nafter;
	return gantry_submit(event->context->host->session, event->queue->line->queue, &l->task, 1,
			     ret_ticket);
}

static void launch_free(struct launch *l)
{
	for (uint32_t i = 0; i < l->task.naccess; i++)
		icd_object_drop(l->mems[i]);
	icd_object_drop(l->kernel);
	free(l);
}

static void fini(struct icd_work *work)
{
	launch_free(work->owned);
}

static struct launch *launch_new(struct _cl_kernel *kernel, const struct shape *s,
				 const struct gantry_launch_part *part)
{
	struct launch *l = malloc(sizeof(*l));
	bool decides = kernel->info->signature && s->global[0] == 1 && s->global[1] == 1 &&
		       s->global[2] == 1;

	if (!l)
		return NULL;
	l->kernel = kernel;
	icd_object_hold(kernel);
	l->task = (struct gantry_task){ .kernel = kernel->kernel };
	if (!put_args(l, kernel, s, part)) {
		launch_free(l);
		return NULL;
	}
	for (int i = 0; i < 3 && !decides; i++) {
		l->task.grid[i] = (uint32_t)(s->global[i] / s->local[i]);
		l->task.block[i] = (uint32_t)s->local[i];
	}
	l->task.args = l->args;
	l->task.access = l->access;
	return l;
}

static cl_int check(cl_command_queue q_handle, cl_kernel kernel_handle,
		    const struct icd_waits *waits, struct _cl_command_queue **ret_q,
		    struct _cl_kernel **ret_kernel)
{
	struct _cl_command_queue *q = icd_object_get(q_handle, ICD_QUEUE);
	struct _cl_kernel *kernel = icd_object_get(kernel_handle, ICD_KERNEL);

	if (!q)
		return CL_INVALID_COMMAND_QUEUE;
	if (!kernel)
		return CL_INVALID_KERNEL;
	if (kernel->program->context != q->context)
		return CL_INVALID_CONTEXT;
	if (kernel->info->signature ? !icd_device_builtin(q->device, kernel->info->name)
				    : q->device->kind != GANTRY_KIND_OPENCL)
		return CL_INVALID_PROGRAM_EXECUTABLE;
	*ret_q = q;
	*ret_kernel = kernel;
	return icd_waits_check(waits, q->context);
}

static cl_int put(struct _cl_command_queue *q, struct _cl_kernel *kernel, const struct shape *s,
		  cl_command_type command, const struct icd_waits *waits, cl_event *ret_event)
{
	struct icd_work work = { .on_device = run, .fini = fini };
	struct launch *l = launch_new(kernel, s, &q->device->part);

	if (!l)
		return CL_OUT_OF_RESOURCES;
	work.owned = l;
	work.mems = l->mems;
	work.nmems = l->task.naccess;
	return icd_enqueue(q, command, &work, false, waits, ret_event);
}

/* All that a launch needs: what it is about, and the host's kernel. */
static cl_int prepare(cl_command_queue q_handle, cl_kernel kernel_handle,
		      const struct icd_waits *waits, const size_t *offset, const size_t *global,
		      const size_t *local, struct shape *s, struct _cl_command_queue **ret_q,
		      struct _cl_kernel **ret_kernel)
{
	cl_int result = check(q_handle, kernel_handle, waits, ret_q, ret_kernel);
	int r;

	if (result == CL_SUCCESS)
		result = check_values(*ret_kernel, (*ret_q)->device);
	if (result == CL_SUCCESS)
		result = take_shape(*ret_kernel, (*ret_q)->device, offset, global, local, s);
	if (result != CL_SUCCESS)
		return result;
	r = find_kernel(*ret_kernel);
	return r == GANTRY_E_SIGNATURE ? CL_OUT_OF_RESOURCES : icd_status(r);
}

static cl_int enqueue(cl_command_queue q_handle, cl_kernel kernel_handle, cl_command_type command,
		      cl_uint ndims, const size_t *offset, const size_t *global,
		      const size_t *local, const struct icd_waits *waits, cl_event *ret_event)
{
	struct shape shape = { .ndims = ndims };
	struct _cl_command_queue *q;
	struct _cl_kernel *kernel;
	cl_int result;

	icd_gate_lock();
	result = prepare(q_handle, kernel_handle, waits, offset, global, local, &shape, &q,
			 &kernel);
	/* Another thread may have changed anything meanwhile. */
	if (result == CL_SUCCESS && icd_fit(kernel, shape.offset, shape.global, shape.local))
		result = prepare(q_handle, kernel_handle, waits, offset, global, local, &shape, &q,
				 &kernel);
	if (result == CL_SUCCESS)
		result = put(q, kernel, &shape, command, waits, ret_event);
	icd_gate_unlock();
	return result;
}

cl_int CL_API_CALL icd_clEnqueueNDRangeKernel(cl_command_queue q, cl_kernel kernel, cl_uint ndims,
					      const size_t *offset, const size_t *global,
					      const size_t *local, cl_uint n, const cl_event *list,
					      cl_event *ret_event)
{
	return enqueue(q, kernel, CL_COMMAND_NDRANGE_KERNEL, ndims, offset, global, local,
		       &(struct icd_waits){ n, list }, ret_event);
}

cl_int CL_API_CALL icd_clEnqueueTask(cl_command_queue q, cl_kernel kernel, cl_uint n,
				     const cl_event *list, cl_event *ret_event)
{
	static const size_t one = 1;

	return enqueue(q, kernel, CL_COMMAND_TASK, 1, NULL, &one, &one,
		       &(struct icd_waits){ n, list }, ret_event);
}
