/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/opencl/driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/str.h"
#include "devices/library.h"

#define MAX_PLATFORMS 16u
#define MAX_DEVICES   32u
#define TEXT_ROOM     512u

/* The one library of the process; @lock protects all of it. */
static struct {
	pthread_mutex_t lock;
	struct gantry_library library;
	struct gantry_opencl_driver table;
} process = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.library = { .what = "OpenCL loader", .needed = "1.2 is needed", .option = "library" },
};

static const struct gantry_library_symbol symbols[] = {
#define SYMBOL(member, symbol) { #symbol, offsetof(struct gantry_opencl_driver, member), false },
	GANTRY_OPENCL_FUNCTIONS(SYMBOL)
#undef SYMBOL
#define SYMBOL(member, symbol) { #symbol, offsetof(struct gantry_opencl_driver, member), true },
		GANTRY_OPENCL_NEWER_FUNCTIONS(SYMBOL)
#undef SYMBOL
};

int gantry_opencl_driver_open(const char *path, const struct gantry_opencl_driver **ret_driver,
			      struct gantry_err *err)
{
	int r;

	(void)pthread_mutex_lock(&process.lock);
	r = gantry_library_open(&process.library, path ? path : "libOpenCL.so.1", symbols,
				GANTRY_ARRAY_SIZE(symbols), &process.table, err);
	(void)pthread_mutex_unlock(&process.lock);
	if (r < 0)
		return r;
	*ret_driver = &process.table;
	return 0;
}

/* ---- questions ---- */

uint64_t gantry_opencl_number(const struct gantry_opencl_driver *driver, cl_device_id device,
			      cl_device_info what, uint64_t otherwise)
{
	uint64_t number = 0;
	size_t n = 0;

	/* Numbers have 4 or 8 bytes, and hosts of OpenCL devices are little-endian. */
	if (driver->GetDeviceInfo(device, what, sizeof(number), &number, &n) != CL_SUCCESS ||
	    n == 0)
		return otherwise;
	return number;
}

void gantry_opencl_text(const struct gantry_opencl_driver *driver, cl_device_id device,
			cl_device_info what, char *text, size_t cap)
{
	char whole[TEXT_ROOM] = "";

	if (driver->GetDeviceInfo(device, what, sizeof(whole) - 1, whole, NULL) != CL_SUCCESS)
		whole[0] = '\0';
	gantry_str_make_printable(whole);
	(void)gantry_str_copy(text, cap, whole); /* may be cut short */
}

void gantry_opencl_platform_text(const struct gantry_opencl_driver *driver, cl_platform_id platform,
				 cl_platform_info what, char *text, size_t cap)
{
	char whole[TEXT_ROOM] = "";

	if (driver->GetPlatformInfo(platform, what, sizeof(whole) - 1, whole, NULL) != CL_SUCCESS)
		whole[0] = '\0';
	gantry_str_make_printable(whole);
	(void)gantry_str_copy(text, cap, whole); /* may be cut short */
}

/* ---- choosing ---- */

struct gantry_opencl_choice gantry_opencl_choice_of(const struct gantry_device_conf *conf)
{
	return (struct gantry_opencl_choice){
		.platform = gantry_device_opt(conf, "platform"),
		.device = gantry_device_opt(conf, "device"),
	};
}

/* Is the @i-th of something, called @name, what @wanted says? */
static bool fits(const char *wanted, unsigned int i, const char *name)
{
	char *end;
	unsigned long number;

	if (!wanted)
		return true;
	number = strtoul(wanted, &end, 10);
	if (end != wanted && *end == '\0')
		return number == i;
	return strstr(name, wanted) != NULL;
}

static bool choose_device(const struct gantry_opencl_driver *driver, cl_platform_id platform,
			  const char *wanted, cl_device_id *ret_device)
{
	cl_device_id devices[MAX_DEVICES];
	cl_uint n = 0;

	if (driver->GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, MAX_DEVICES, devices, &n) !=
	    CL_SUCCESS)
		return false;
	for (cl_uint i = 0; i < n && i < MAX_DEVICES; i++) {
		char name[TEXT_ROOM];

		gantry_opencl_text(driver, devices[i], CL_DEVICE_NAME, name, sizeof(name));
		if (!fits(wanted, i, name))
			continue;
		*ret_device = devices[i];
		return true;
	}
	return false;
}

int gantry_opencl_choose(const struct gantry_opencl_driver *driver,
			 const struct gantry_opencl_choice *choice,
			 struct gantry_opencl_target *ret_target, struct gantry_err *err)
{
	cl_platform_id platforms[MAX_PLATFORMS];
	char name[TEXT_ROOM] = "";
	char seen[160] = "";
	cl_uint n = 0;

	/* The loader answers with an error of its own where there is no driver. */
	if (driver->GetPlatformIDs(MAX_PLATFORMS, platforms, &n) != CL_SUCCESS || n == 0)
		return gantry_err_set(err, -ENODEV, "the OpenCL loader finds no platform");
	for (cl_uint i = 0; i < n && i < MAX_PLATFORMS; i++) {
		size_t used = strlen(seen);

		gantry_opencl_platform_text(driver, platforms[i], CL_PLATFORM_NAME, name,
					    sizeof(name));
		(void)gantry_str_format(seen + used, sizeof(seen) - used, "%s%s", used ? ", " : "",
					name); /* may be cut short */
		if (!fits(choice->platform, i, name) ||
		    !choose_device(driver, platforms[i], choice->device, &ret_target->device))
			continue;
		ret_target->platform = platforms[i];
		return 0;
	}
	return gantry_err_set(err, -ENODEV,
			      "no OpenCL device fits platform=%s, device=%s; platforms: %s",
			      choice->platform ? choice->platform : "(any)",
			      choice->device ? choice->device : "(any)", seen);
}

/* ---- errors ---- */

#define RESULTS(R)                                           \
	R(CL_DEVICE_NOT_FOUND, ENODEV)                       \
	R(CL_DEVICE_NOT_AVAILABLE, EBUSY)                    \
	R(CL_COMPILER_NOT_AVAILABLE, EOPNOTSUPP)             \
	R(CL_MEM_OBJECT_ALLOCATION_FAILURE, ENOMEM)          \
	R(CL_OUT_OF_RESOURCES, ENOMEM)                       \
	R(CL_OUT_OF_HOST_MEMORY, ENOMEM)                     \
	R(CL_PROFILING_INFO_NOT_AVAILABLE, EIO)              \
	R(CL_MEM_COPY_OVERLAP, EINVAL)                       \
	R(CL_IMAGE_FORMAT_MISMATCH, EINVAL)                  \
	R(CL_IMAGE_FORMAT_NOT_SUPPORTED, EINVAL)             \
	R(CL_BUILD_PROGRAM_FAILURE, ENOEXEC)                 \
	R(CL_MISALIGNED_SUB_BUFFER_OFFSET, EINVAL)           \
	R(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, EIO) \
	R(CL_COMPILE_PROGRAM_FAILURE, ENOEXEC)               \
	R(CL_LINKER_NOT_AVAILABLE, EOPNOTSUPP)               \
	R(CL_LINK_PROGRAM_FAILURE, ENOEXEC)                  \
	R(CL_KERNEL_ARG_INFO_NOT_AVAILABLE, EOPNOTSUPP)      \
	R(CL_INVALID_VALUE, EINVAL)                          \
	R(CL_INVALID_PLATFORM, ENODEV)                       \
	R(CL_INVALID_DEVICE, ENODEV)                         \
	R(CL_INVALID_CONTEXT, EIO)                           \
	R(CL_INVALID_COMMAND_QUEUE, EIO)                     \
	R(CL_INVALID_HOST_PTR, EINVAL)                       \
	R(CL_INVALID_MEM_OBJECT, EINVAL)                     \
	R(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR, EINVAL)        \
	R(CL_INVALID_IMAGE_DESCRIPTOR, EINVAL)               \
	R(CL_INVALID_IMAGE_SIZE, EINVAL)                     \
	R(CL_INVALID_SAMPLER, EINVAL)                        \
	R(CL_INVALID_BINARY, ENOEXEC)                        \
	R(CL_INVALID_BUILD_OPTIONS, EINVAL)                  \
	R(CL_INVALID_PROGRAM, ENOEXEC)                       \
	R(CL_INVALID_PROGRAM_EXECUTABLE, ENOEXEC)            \
	R(CL_INVALID_KERNEL_NAME, ENOENT)                    \
	R(CL_INVALID_KERNEL_DEFINITION, EINVAL)              \
	R(CL_INVALID_KERNEL, EINVAL)                         \
	R(CL_INVALID_ARG_INDEX, EINVAL)                      \
	R(CL_INVALID_ARG_VALUE, EINVAL)                      \
	R(CL_INVALID_ARG_SIZE, EINVAL)                       \
	R(CL_INVALID_KERNEL_ARGS, EINVAL)                    \
	R(CL_INVALID_WORK_DIMENSION, EINVAL)                 \
	R(CL_INVALID_WORK_GROUP_SIZE, EINVAL)                \
	R(CL_INVALID_WORK_ITEM_SIZE, EINVAL)                 \
	R(CL_INVALID_GLOBAL_OFFSET, EINVAL)                  \
	R(CL_INVALID_EVENT_WAIT_LIST, EIO)                   \
	R(CL_INVALID_EVENT, EIO)                             \
	R(CL_INVALID_OPERATION, EOPNOTSUPP)                  \
	R(CL_INVALID_BUFFER_SIZE, EINVAL)                    \
	R(CL_INVALID_GLOBAL_WORK_SIZE, EINVAL)

const char *gantry_opencl_error(cl_int result)
{
	switch (result) {
#define NAME(name, number) \
	case name:         \
		return #name;
		RESULTS(NAME)
#undef NAME
	default:
		return "an OpenCL error";
	}
}

int gantry_opencl_errno(cl_int result)
{
	switch (result) {
	case CL_SUCCESS:
		return 0;
#define NUMBER(name, number) \
	case name:           \
		return -number;
		RESULTS(NUMBER)
#undef NUMBER
	default:
		return -EIO;
	}
}

int gantry_opencl_err(cl_int result, const char *what, struct gantry_err *err)
{
	if (result == CL_SUCCESS)
		return 0;
	return gantry_err_set(err, gantry_opencl_errno(result), "%s: %s (%d)", what,
			      gantry_opencl_error(result), (int)result);
}
