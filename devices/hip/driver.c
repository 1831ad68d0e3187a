/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/hip/driver.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/str.h"
#include "devices/library.h"

/*
 * hipDeviceProp_t has grown, and a caller cannot ask which one a library fills: the old name gives the old layout even in
 * ROCm 6. So only the name of the processor is read, out of more room than any of them takes.
 */
#define PROP_BYTES	8192u
#define ARCH_OFF_R0600	1160u
#define ARCH_OFF_R0000	396u
#define ARCH_BYTES	256u
#define IMPORT_BY_VALUE 70100000 /* 7.1 */
#define WINDOWS_SINCE	60000000 /* 6.0 */
/* Hardware queues of a process: streams beyond them share. Read by the library once, before hipInit(). */
#define QUEUES "8"

static struct {
	pthread_mutex_t lock; /* protects all of it */
	struct gantry_library library;
	bool started;
	struct gantry_hip_driver table;
} process = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.library = { .what = "HIP runtime",
		     .needed = "ROCm 5.2 or newer is needed",
		     .option = "library" },
};

static const struct gantry_library_symbol symbols[] = {
#define NEEDED(member, symbol, args) { #symbol, offsetof(struct gantry_hip_driver, member), false },
#define OPTIONAL(member, symbol, args) \
	{ #symbol, offsetof(struct gantry_hip_driver, member), true },
	GANTRY_HIP_FUNCTIONS(NEEDED) GANTRY_HIP_OPTIONAL(OPTIONAL)
#undef NEEDED
#undef OPTIONAL
};

static const char *const names[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
				     "libamdhip64.so" };

static int load_path(const char *path, struct gantry_err *err)
{
	return gantry_library_open(&process.library, path, symbols, GANTRY_ARRAY_SIZE(symbols),
				   &process.table, err);
}

static int load_locked(const char *path, struct gantry_err *err)
{
	int r = -ENODEV;

	if (path)
		return load_path(path, err);
	if (process.library.handle)
		return 0;
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(names) && r == -ENODEV; i++)
		r = load_path(names[i], err);
	if (r == -ENODEV)
		return gantry_err_wrap(err, r,
				       "libamdhip64.so.5 to .7 are not there, or not to be used");
	return r;
}

static int start_locked(struct gantry_err *err)
{
	gantry_hip_result result;
	int count = 0;

	if (process.started)
		return 0;
	(void)setenv("GPU_MAX_HW_QUEUES", QUEUES, 0); /* without it streams share four queues */
	result = process.table.Init(0);
	/* Without hardware it says that the device is invalid. */
	if (result == GANTRY_HIP_SUCCESS)
		result = process.table.GetDeviceCount(&count);
	if (result == GANTRY_HIP_NO_DEVICE || result == GANTRY_HIP_INVALID_DEVICE ||
	    (result == GANTRY_HIP_SUCCESS && count == 0))
		return gantry_err_set(err, -ENODEV, "the HIP runtime %s finds no GPU",
				      process.library.path);
	if (result == GANTRY_HIP_SUCCESS)
		result = process.table.RuntimeGetVersion(&process.table.version);
	if (result != GANTRY_HIP_SUCCESS) {
		(void)gantry_hip_err(result, "hipInit", err);
		return -ENODEV;
	}
	process.started = true;
	return 0;
}

int gantry_hip_driver_open(const char *path, const struct gantry_hip_driver **ret_driver,
			   struct gantry_err *err)
{
	int r;

	(void)pthread_mutex_lock(&process.lock);
	r = load_locked(path, err);
	if (r == 0)
		r = start_locked(err);
	(void)pthread_mutex_unlock(&process.lock);
	if (r < 0)
		return r;
	*ret_driver = &process.table;
	return 0;
}

/* ---- questions ---- */

int gantry_hip_attribute(const struct gantry_hip_driver *driver, int device, int attribute,
			 int otherwise)
{
	int value = 0;

	if (driver->DeviceGetAttribute(&value, attribute, device) != GANTRY_HIP_SUCCESS)
		return otherwise;
	return value;
}

/* "gfx" and what may follow: whatever else lies there was another layout's. */
static bool is_arch(const char *text)
{
	size_t len = strnlen(text, ARCH_BYTES);

	return strncmp(text, "gfx", 3) == 0 && len > 5 && len < ARCH_BYTES &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-+:") == len;
}

int gantry_hip_arch(const struct gantry_hip_driver *driver, int device, char *arch, size_t cap,
		    struct gantry_err *err)
{
	_Alignas(16) char props[PROP_BYTES] = { 0 };
	const char *text = NULL;

	if (driver->GetDevicePropertiesR0600 &&
	    driver->GetDevicePropertiesR0600(props, device) == GANTRY_HIP_SUCCESS)
		text = props + ARCH_OFF_R0600;
	else if (driver->GetDeviceProperties &&
		 driver->GetDeviceProperties(props, device) == GANTRY_HIP_SUCCESS)
		text = props + ARCH_OFF_R0000;
	if (!text || !is_arch(text) || gantry_str_copy(arch, cap, text) < 0)
		return gantry_err_set(
			err, -ENODEV,
			"the HIP runtime (version %d) does not name GPU %d's processor where versions 5 and 6 do",
			driver->version, device);
	return 0;
}

bool gantry_hip_has_windows(const struct gantry_hip_driver *driver, int device)
{
	return driver->version >= WINDOWS_SINCE && driver->MemGetAllocationGranularity &&
	       driver->MemAddressReserve && driver->MemAddressFree && driver->MemCreate &&
	       driver->MemRelease && driver->MemMap && driver->MemUnmap && driver->MemSetAccess &&
	       driver->MemExport && driver->MemImport &&
	       gantry_hip_attribute(driver, device, GANTRY_HIP_ATTR_VIRTUAL_MEMORY, 0) != 0;
}

bool gantry_hip_has_graphs(const struct gantry_hip_driver *driver)
{
	return driver->GraphCreate && driver->GraphDestroy && driver->GraphAddKernelNode &&
	       driver->GraphInstantiate && driver->GraphExecDestroy &&
	       driver->GraphExecKernelNodeSetParams && driver->GraphLaunch;
}

gantry_hip_result gantry_hip_import(const struct gantry_hip_driver *driver, int fd,
				    struct gantry_hip_handle **ret_handle)
{
	void *os_handle = driver->version >= IMPORT_BY_VALUE ? (void *)(intptr_t)fd : &fd;

	return driver->MemImport(ret_handle, os_handle, GANTRY_HIP_HANDLE_FD);
}

/* ---- errors ---- */

#define RESULTS(R)                                                                         \
	R(GANTRY_HIP_INVALID_VALUE, "InvalidValue", EINVAL)                                \
	R(GANTRY_HIP_OUT_OF_MEMORY, "OutOfMemory", ENOMEM)                                 \
	R(GANTRY_HIP_NOT_INITIALIZED, "NotInitialized", EIO)                               \
	R(GANTRY_HIP_DEINITIALIZED, "Deinitialized", EIO)                                  \
	R(GANTRY_HIP_INVALID_CONFIGURATION, "InvalidConfiguration", EINVAL)                \
	R(GANTRY_HIP_INVALID_DEVICE_FUNCTION, "InvalidDeviceFunction", ENOEXEC)            \
	R(GANTRY_HIP_NO_DEVICE, "NoDevice", ENODEV)                                        \
	R(GANTRY_HIP_INVALID_DEVICE, "InvalidDevice", ENODEV)                              \
	R(GANTRY_HIP_INVALID_IMAGE, "InvalidImage", ENOEXEC)                               \
	R(GANTRY_HIP_MAP_FAILED, "MapFailed", ENOMEM)                                      \
	R(GANTRY_HIP_NO_BINARY_FOR_GPU, "NoBinaryForGpu", ENOEXEC)                         \
	R(GANTRY_HIP_INVALID_KERNEL_FILE, "InvalidKernelFile", ENOEXEC)                    \
	R(GANTRY_HIP_INVALID_SOURCE, "InvalidSource", ENOEXEC)                             \
	R(GANTRY_HIP_FILE_NOT_FOUND, "FileNotFound", ENOEXEC)                              \
	R(GANTRY_HIP_SYMBOL_NOT_FOUND, "SharedObjectSymbolNotFound", ENOEXEC)              \
	R(GANTRY_HIP_OBJECT_INIT_FAILED, "SharedObjectInitFailed", ENOEXEC)                \
	R(GANTRY_HIP_INVALID_HANDLE, "InvalidHandle", EINVAL)                              \
	R(GANTRY_HIP_NOT_FOUND, "NotFound", ENOENT)                                        \
	R(GANTRY_HIP_NOT_READY, "NotReady", EIO)                                           \
	R(GANTRY_HIP_ILLEGAL_ADDRESS, "IllegalAddress", EIO)                               \
	R(GANTRY_HIP_LAUNCH_OUT_OF_RESOURCES, "LaunchOutOfResources", EINVAL)              \
	R(GANTRY_HIP_LAUNCH_TIMED_OUT, "LaunchTimeOut", EIO)                               \
	R(GANTRY_HIP_PEER_ACCESS_ALREADY_ENABLED, "PeerAccessAlreadyEnabled", EIO)         \
	R(GANTRY_HIP_ASSERT, "Assert", EIO)                                                \
	R(GANTRY_HIP_HOST_MEMORY_ALREADY_REGISTERED, "HostMemoryAlreadyRegistered", EBUSY) \
	R(GANTRY_HIP_LAUNCH_FAILURE, "LaunchFailure", EIO)                                 \
	R(GANTRY_HIP_NOT_SUPPORTED, "NotSupported", EOPNOTSUPP)                            \
	R(GANTRY_HIP_UNKNOWN, "Unknown", EIO)

const char *gantry_hip_error(gantry_hip_result result)
{
	switch (result) {
#define NAME(number, name, error) \
	case number:              \
		return "hipError" name;
		RESULTS(NAME)
#undef NAME
	default:
		return "a HIP error";
	}
}

bool gantry_hip_sticky(gantry_hip_result result)
{
	return result == GANTRY_HIP_ILLEGAL_ADDRESS || result == GANTRY_HIP_LAUNCH_TIMED_OUT ||
	       result == GANTRY_HIP_ASSERT || result == GANTRY_HIP_LAUNCH_FAILURE;
}

int gantry_hip_errno(gantry_hip_result result)
{
	switch (result) {
	case GANTRY_HIP_SUCCESS:
		return 0;
#define NUMBER(number, name, error) \
	case number:                \
		return -error;
		RESULTS(NUMBER)
#undef NUMBER
	default:
		return -EIO;
	}
}

int gantry_hip_err(gantry_hip_result result, const char *what, struct gantry_err *err)
{
	if (result == GANTRY_HIP_SUCCESS)
		return 0;
	return gantry_err_set(err, gantry_hip_errno(result), "%s: %s (%d)", what,
			      gantry_hip_error(result), result);
}
