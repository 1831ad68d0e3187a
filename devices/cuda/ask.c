/* SPDX-License-Identifier: Apache-2.0 */
/* What guests ask: of the device, of kernels and variables of their images, of their memory. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "devices/cuda/backend.h"

#define MAX_CLUSTER 16u /* blocks */

/* Attributes that the driver does not know are 0; numbers end where those of its header do. */
static int ask_attributes(struct gantry_dev *dev, uint64_t first, int32_t *ret_values)
{
	uint32_t n = GANTRY_ANSWER_BYTES / sizeof(*ret_values);

	if (first == 0 || first >= CU_DEVICE_ATTRIBUTE_MAX)
		return -EINVAL;
	n = (uint32_t)gantry_min_u64(n, CU_DEVICE_ATTRIBUTE_MAX - first);
	for (uint32_t i = 0; i < n; i++) {
		int value = 0;

		if (dev->driver->DeviceGetAttribute(&value, (CUdevice_attribute)(first + i),
						    dev->device) != CUDA_SUCCESS)
			value = 0;
		ret_values[i] = value;
	}
	return (int)(n * sizeof(*ret_values));
}

static int ask_address(struct gantry_dev *dev, const struct gantry_range *range, void *ret_answer,
		       struct gantry_err *err)
{
	uint64_t address;

	if (!range->mem)
		return -EINVAL;
	if (!gantry_cuda_mem_reach(dev, range))
		return gantry_err_set(
			err, -EOPNOTSUPP,
			"the device does not reach this memory: it could not be pinned");
	address = range->mem->address + range->off;
	memcpy(ret_answer, &address, sizeof(address));
	return sizeof(address);
}

static int ask_managed(struct gantry_dev *dev, const struct gantry_range *range, void *ret_answer,
		       struct gantry_err *err)
{
	unsigned int is_managed = 0;
	uint32_t answer;
	CUresult result;

	if (!range->mem || range->mem->kind != GANTRY_CUDA_MEM_VARIABLE)
		return -EINVAL;
	result = dev->driver->PointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
						  range->mem->address);
	if (gantry_cuda_sticky(result))
		return gantry_cuda_check(dev, result, "cuPointerGetAttribute", err);
	answer = result == CUDA_SUCCESS && is_managed;
	memcpy(ret_answer, &answer, sizeof(answer));
	return sizeof(answer);
}

static int ask_kernel(struct gantry_dev *dev, const struct gantry_kernel *kernel, void *ret_answer,
		      struct gantry_err *err)
{
	struct gantry_reply_function answer = { .nparams = kernel->nparams,
						.params_bytes = kernel->params_bytes };

	for (int i = 0; i < (int)GANTRY_FUNCTION_ATTRIBUTES && i < CU_FUNC_ATTRIBUTE_MAX; i++) {
		CUresult result = dev->driver->FuncGetAttribute(
			&answer.attributes[i], (CUfunction_attribute)i, kernel->function);

		if (gantry_cuda_sticky(result))
			return gantry_cuda_check(dev, result, "cuFuncGetAttribute", err);
		if (result != CUDA_SUCCESS)
			answer.attributes[i] = 0;
	}
	memcpy(ret_answer, &answer, sizeof(answer));
	return sizeof(answer);
}

static int ask_params(const struct gantry_kernel *kernel, uint64_t first, void *ret_answer)
{
	uint64_t n = GANTRY_ANSWER_BYTES / sizeof(*kernel->layout);

	if (first > kernel->nparams)
		return -EINVAL;
	n = gantry_min_u64(n, kernel->nparams - first);
	if (n > 0)
		memcpy(ret_answer, &kernel->layout[first], n * sizeof(*kernel->layout));
	return (int)(n * sizeof(*kernel->layout));
}

static int ask_occupancy(struct gantry_dev *dev, const struct gantry_kernel *kernel,
			 const uint64_t *number, void *ret_answer, struct gantry_err *err)
{
	int nblocks = 0;
	uint32_t answer;
	CUresult result;

	if (number[0] == 0 || number[0] > dev->max_threads || number[1] > dev->max_shared)
		return -EINVAL;
	result = dev->driver->OccupancyMaxActiveBlocks(&nblocks, kernel->function, (int)number[0],
						       (size_t)number[1]);
	if (result != CUDA_SUCCESS)
		return gantry_cuda_check(dev, result, "occupancy", err);
	answer = (uint32_t)nblocks;
	memcpy(ret_answer, &answer, sizeof(answer));
	return sizeof(answer);
}

static uint32_t side(uint64_t block, unsigned int i)
{
	return (uint32_t)(block >> (16 * i)) & 0xffff;
}

static uint64_t threads(uint64_t block)
{
	return block >> 48 ? 0 : (uint64_t)side(block, 0) * side(block, 1) * side(block, 2);
}

/* A grid of one cluster is as good as any: how many of them there are in a launch does not matter to how many there can be. */
static int ask_clusters(struct gantry_dev *dev, const struct gantry_kernel *kernel,
			const uint64_t *number, void *ret_answer, struct gantry_err *err)
{
	uint64_t block = number[0], cluster = number[2];
	CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
					.value.clusterDim = { side(cluster, 0), side(cluster, 1),
							      side(cluster, 2) } };
	CUlaunchConfig config = { .gridDimX = cluster ? side(cluster, 0) : MAX_CLUSTER,
				  .gridDimY = cluster ? side(cluster, 1) : 1,
				  .gridDimZ = cluster ? side(cluster, 2) : 1,
				  .blockDimX = side(block, 0),
				  .blockDimY = side(block, 1),
				  .blockDimZ = side(block, 2),
				  .sharedMemBytes = (unsigned int)number[1],
				  .attrs = &attribute,
				  .numAttrs = cluster != 0 };
	uint32_t answer;
	CUresult result;
	int n = 0;

	if (threads(block) == 0 || threads(block) > dev->max_threads ||
	    number[1] > dev->max_shared ||
	    (cluster && (threads(cluster) == 0 || threads(cluster) > MAX_CLUSTER)))
		return -EINVAL;
	result = cluster ? dev->driver->OccupancyMaxActiveClusters(&n, kernel->function, &config)
			 : dev->driver->OccupancyMaxPotentialClusterSize(&n, kernel->function,
									 &config);
	if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CLUSTER_SIZE)
		return -EINVAL;
	if (result != CUDA_SUCCESS)
		return gantry_cuda_check(dev, result, "occupancy of clusters", err);
	answer = (uint32_t)n;
	memcpy(ret_answer, &answer, sizeof(answer));
	return sizeof(answer);
}

static int set_attribute(struct gantry_dev *dev, struct gantry_kernel *kernel,
			 const uint64_t *number, struct gantry_err *err)
{
	int value = (int)(int64_t)number[1];
	CUresult result;

	if (number[0] >= CU_FUNC_ATTRIBUTE_MAX || (int64_t)number[1] != value)
		return -EINVAL;
	result = dev->driver->FuncSetAttribute(kernel->function, (CUfunction_attribute)number[0],
					       value);
	if (result != CUDA_SUCCESS)
		return gantry_cuda_check(dev, result, "cuFuncSetAttribute", err);
	if (number[0] == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
		kernel->dyn_shared = (uint32_t)value;
	return 0;
}

static int ask_of_kernel(struct gantry_dev *dev, const struct gantry_question *q, void *ret_answer,
			 struct gantry_err *err)
{
	if (!q->kernel || !q->kernel->function)
		return -EINVAL;
	switch (q->what) {
	case GANTRY_QUESTION_KERNEL:
		return ask_kernel(dev, q->kernel, ret_answer, err);
	case GANTRY_QUESTION_PARAMS:
		return ask_params(q->kernel, q->number[0], ret_answer);
	case GANTRY_QUESTION_OCCUPANCY:
		return ask_occupancy(dev, q->kernel, q->number, ret_answer, err);
	case GANTRY_QUESTION_CLUSTERS:
		return ask_clusters(dev, q->kernel, q->number, ret_answer, err);
	case GANTRY_QUESTION_SET:
		return set_attribute(dev, q->kernel, q->number, err);
	default:
		return -EOPNOTSUPP;
	}
}

#define NLIMITS 3u
static_assert(NLIMITS == sizeof(((struct gantry_dev *)0)->limits) / sizeof(uint64_t) &&
		      NLIMITS <= GANTRY_QUESTION_LIMITS,
	      "a device notes each limit that may be set");

/*
 * Whether the session may ask for it. A stack is as large as the driver lets it be, but the device has one for each thread that it
 * can hold, and nobody is charged for them; the others are bounded by a number.
 */
static int check_limit(const struct gantry_dev *dev, const struct gantry_question *question,
		       struct gantry_err *err)
{
	static const uint64_t most[NLIMITS] = {
		[CU_LIMIT_STACK_SIZE] = 512u << 10,
		[CU_LIMIT_PRINTF_FIFO_SIZE] = 16u << 20,
		[CU_LIMIT_MALLOC_HEAP_SIZE] = 128u << 20,
	};
	uint64_t which = question->number[0], asked = question->number[1];

	if (asked > most[which])
		return gantry_err_set(err, -EINVAL, "such a limit is at most %zu bytes here",
				      (size_t)most[which]);
	/* No product overflows: see above. */
	if (which == CU_LIMIT_STACK_SIZE && question->mem_bytes && asked > dev->limits[which] &&
	    asked * dev->nresident > question->mem_bytes)
		return gantry_err_set(err, -EINVAL,
				      "%u stacks of %zu bytes are more than the session's memory",
				      dev->nresident, (size_t)asked);
	return 0;
}

/* Of the context, which is one for all sessions of the worker: below what others want it is not set, nor below what it was at first. */
static int set_limit(struct gantry_dev *dev, const struct gantry_question *question,
		     void *ret_answer, struct gantry_err *err)
{
	uint64_t which = question->number[0], wanted, answer;
	size_t value = 0;
	CUresult result;
	int r;

	if (which >= NLIMITS)
		return -EOPNOTSUPP;
	result = dev->driver->CtxGetLimit(&value, (CUlimit)which);
	if (result != CUDA_SUCCESS)
		return gantry_cuda_check(dev, result, "cuCtxGetLimit", err);
	if (!dev->limits[which])
		dev->limits[which] = value;
	r = check_limit(dev, question, err);
	if (r < 0)
		return r;
	wanted = gantry_max_u64(question->number[1], question->at_least);
	wanted = gantry_max_u64(wanted, dev->limits[which]);
	/* What those of the GPU's other devices want is not known here: it stays. */
	if (gantry_cuda_has_twin(dev))
		wanted = gantry_max_u64(wanted, value);
	/* To set one may wait for all that runs. */
	if (wanted != value)
		result = dev->driver->CtxSetLimit((CUlimit)which, wanted);
	if (result == CUDA_SUCCESS)
		result = dev->driver->CtxGetLimit(&value, (CUlimit)which);
	if (result != CUDA_SUCCESS)
		return gantry_cuda_check(dev, result, "cuCtxSetLimit", err);
	answer = value;
	memcpy(ret_answer, &answer, sizeof(answer));
	return sizeof(answer);
}

int gantry_cuda_ask(struct gantry_dev *dev, const struct gantry_question *question,
		    void *ret_answer, struct gantry_err *err)
{
	switch (question->what) {
	case GANTRY_QUESTION_ATTRIBUTES:
		return ask_attributes(dev, question->number[0], ret_answer);
	case GANTRY_QUESTION_ADDRESS:
		return ask_address(dev, &question->range, ret_answer, err);
	case GANTRY_QUESTION_MANAGED:
		return ask_managed(dev, &question->range, ret_answer, err);
	case GANTRY_QUESTION_LIMIT:
		return set_limit(dev, question, ret_answer, err);
	case GANTRY_QUESTION_TENSOR:
		return gantry_cuda_ask_tensor(dev, question, ret_answer, err);
	default:
		return ask_of_kernel(dev, question, ret_answer, err);
	}
}

/* ---- variables ---- */

int gantry_cuda_image_variable(struct gantry_image *image, const char *symbol,
			       struct gantry_mem **ret_mem, uint64_t *ret_len,
			       struct gantry_err *err)
{
	struct gantry_dev *dev = image->dev;
	struct gantry_mem *mem;
	CUdeviceptr address = 0;
	size_t len = 0;
	CUresult result = dev->driver->ModuleGetGlobal(&address, &len, image->module, symbol);

	if (result == CUDA_ERROR_NOT_FOUND || (result == CUDA_SUCCESS && len == 0))
		return gantry_err_set(err, -ENOENT, "the image has no variable %.100s", symbol);
	if (result != CUDA_SUCCESS)
		return gantry_cuda_check(dev, result, "cuModuleGetGlobal", err);
	mem = gantry_cuda_mem_new(dev, GANTRY_CUDA_MEM_VARIABLE, len);
	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for a memory object");
	mem->address = address;
	mem->reachable = true;
	*ret_mem = mem;
	*ret_len = len;
	return 0;
}

/* ---- parameters as they are ---- */

static uint32_t count_params(const struct gantry_dev *dev, CUfunction function)
{
	size_t off, size;
	uint32_t n = 0;

	while (n <= GANTRY_MAX_RAW_BYTES &&
	       dev->driver->FuncGetParamInfo(function, n, &off, &size) == CUDA_SUCCESS)
		n++;
	return n;
}

int gantry_cuda_layout_take(struct gantry_kernel *kernel, struct gantry_err *err)
{
	const struct gantry_dev *dev = kernel->image->dev;
	uint32_t n = count_params(dev, kernel->function);

	kernel->layout = calloc(n ? n : 1, sizeof(*kernel->layout));
	if (!kernel->layout)
		return gantry_err_set(err, -ENOMEM, "no memory for a kernel's parameters");
	for (uint32_t i = 0; i < n; i++) {
		size_t off, size;

		if (dev->driver->FuncGetParamInfo(kernel->function, i, &off, &size) != CUDA_SUCCESS)
			return gantry_err_set(err, -EINVAL, "parameters that change");
		if (off > GANTRY_MAX_RAW_BYTES || size > GANTRY_MAX_RAW_BYTES - off)
			return gantry_err_set(err, -EOPNOTSUPP,
					      "the kernel's parameters take more than %u bytes",
					      GANTRY_MAX_RAW_BYTES);
		kernel->layout[i] = (struct gantry_reply_param){ (uint16_t)off, (uint16_t)size };
		if (off + size > kernel->params_bytes)
			kernel->params_bytes = (uint32_t)(off + size);
	}
	kernel->nparams = n;
	return 0;
}
