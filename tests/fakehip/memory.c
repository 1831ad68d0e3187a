/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fakehip/fake.h"

#define MEMFD_NAME  "fakehip"
#define GRANULARITY (2ull << 20)
#define PAGE	    4096ull

enum kind {
	ALLOCATED,
	PINNED,	    /* by hipHostMalloc() */
	REGISTERED, /* somebody else's */
	RESERVED,   /* addresses, with nothing behind them */
	MAPPED,
};

struct range {
	struct range *next;
	enum kind kind;
	bool accessible;
	unsigned char *at;
	uint64_t len;
};

struct gantry_hip_handle {
	int fd;
	uint64_t len;
};

static struct {
	pthread_mutex_t lock;
	struct range *ranges;
	uint64_t used;
} memory = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct range **find_locked(enum kind kind, const void *at)
{
	struct range **slot = &memory.ranges;

	while (*slot && ((*slot)->kind != kind || (*slot)->at != at))
		slot = &(*slot)->next;
	return slot;
}

static bool add(enum kind kind, void *at, uint64_t len, bool accessible)
{
	struct range *range = calloc(1, sizeof(*range));

	if (!range)
		return false;
	*range = (struct range){ .kind = kind, .accessible = accessible, .at = at, .len = len };
	pthread_mutex_lock(&memory.lock);
	range->next = memory.ranges;
	memory.ranges = range;
	pthread_mutex_unlock(&memory.lock);
	return true;
}

/* Its length, or 0. */
static uint64_t drop(enum kind kind, const void *at)
{
	struct range **slot, *range;
	uint64_t len = 0;

	pthread_mutex_lock(&memory.lock);
	slot = find_locked(kind, at);
	range = *slot;
	if (range) {
		*slot = range->next;
		len = range->len;
		free(range);
	}
	pthread_mutex_unlock(&memory.lock);
	return len;
}

/* A range may cross several mappings. */
bool fake_reaches(const void *address, uint64_t len)
{
	const unsigned char *at = address;
	bool moved = true;

	pthread_mutex_lock(&memory.lock);
	while (len > 0 && moved) {
		moved = false;
		for (const struct range *r = memory.ranges; r && len > 0; r = r->next) {
			uint64_t n;

			if (!r->accessible || at < r->at || at >= r->at + r->len)
				continue;
			n = (uint64_t)(r->at + r->len - at);
			n = n < len ? n : len;
			at += n;
			len -= n;
			moved = true;
		}
	}
	pthread_mutex_unlock(&memory.lock);
	return len == 0;
}

gantry_hip_result hipMemGetInfo(size_t *available, size_t *total)
{
	pthread_mutex_lock(&memory.lock);
	*available = FAKE_GPU_BYTES - memory.used;
	pthread_mutex_unlock(&memory.lock);
	*total = FAKE_GPU_BYTES;
	return GANTRY_HIP_SUCCESS;
}

static bool charge(uint64_t len)
{
	bool fits;

	pthread_mutex_lock(&memory.lock);
	fits = len <= FAKE_GPU_BYTES - memory.used;
	memory.used += fits ? len : 0;
	pthread_mutex_unlock(&memory.lock);
	return fits;
}

static void uncharge(uint64_t len)
{
	pthread_mutex_lock(&memory.lock);
	memory.used -= len;
	pthread_mutex_unlock(&memory.lock);
}

gantry_hip_result hipMalloc(void **address, size_t bytes)
{
	void *at;

	*address = NULL;
	if (bytes == 0)
		return GANTRY_HIP_SUCCESS;
	if (!charge(bytes))
		return GANTRY_HIP_OUT_OF_MEMORY;
	at = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
	if (!at || !add(ALLOCATED, at, bytes, true)) {
		free(at);
		uncharge(bytes);
		return GANTRY_HIP_OUT_OF_MEMORY;
	}
	memset(at, 0xdb, bytes); /* device memory is not clean */
	*address = at;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipFree(void *address)
{
	uint64_t len = address ? drop(ALLOCATED, address) : 0;

	if (!len)
		return address ? GANTRY_HIP_INVALID_VALUE : GANTRY_HIP_SUCCESS;
	uncharge(len);
	free(address);
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipHostMalloc(void **address, size_t bytes, unsigned flags)
{
	void *at = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);

	(void)flags;
	if (!at || !add(PINNED, at, bytes, true)) {
		free(at);
		return GANTRY_HIP_OUT_OF_MEMORY;
	}
	memset(at, 0, bytes);
	*address = at;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipHostFree(void *address)
{
	if (!drop(PINNED, address))
		return GANTRY_HIP_INVALID_VALUE;
	free(address);
	return GANTRY_HIP_SUCCESS;
}

static bool registered(const void *address, uint64_t bytes)
{
	const unsigned char *at = address;
	bool is = false;

	pthread_mutex_lock(&memory.lock);
	for (const struct range *r = memory.ranges; r; r = r->next)
		is = is || (r->kind == REGISTERED && at < r->at + r->len && r->at < at + bytes);
	pthread_mutex_unlock(&memory.lock);
	return is;
}

gantry_hip_result hipHostRegister(void *address, size_t bytes, unsigned flags)
{
	(void)flags;
	if (!address || bytes == 0)
		return GANTRY_HIP_INVALID_VALUE;
	if (registered(address, bytes))
		return GANTRY_HIP_HOST_MEMORY_ALREADY_REGISTERED;
	return add(REGISTERED, address, bytes, true) ? GANTRY_HIP_SUCCESS
						     : GANTRY_HIP_OUT_OF_MEMORY;
}

gantry_hip_result hipHostUnregister(void *address)
{
	return drop(REGISTERED, address) ? GANTRY_HIP_SUCCESS : GANTRY_HIP_INVALID_VALUE;
}

gantry_hip_result hipHostGetDevicePointer(void **device, void *host, unsigned flags)
{
	(void)flags;
	if (!fake_reaches(host, 1))
		return GANTRY_HIP_INVALID_VALUE;
	*device = host;
	return GANTRY_HIP_SUCCESS;
}

#ifndef FAKEHIP_ROCM5

/* ---- memory behind descriptors ---- */

gantry_hip_result hipMemGetAllocationGranularity(size_t *granularity,
						 const struct gantry_hip_prop *prop, int option)
{
	(void)prop;
	(void)option;
	*granularity = GRANULARITY;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipMemAddressReserve(void **address, size_t bytes, size_t align, void *wish,
				       unsigned long long flags)
{
	int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	uintptr_t at, whole;
	void *got = MAP_FAILED;

	(void)flags;
	align = align ? align : GRANULARITY;
	if (wish)
		got = mmap(wish, bytes, PROT_NONE, how | MAP_FIXED_NOREPLACE, -1, 0);
	if (got == MAP_FAILED) {
		got = mmap(NULL, bytes + align, PROT_NONE, how, -1, 0);
		if (got == MAP_FAILED)
			return GANTRY_HIP_OUT_OF_MEMORY;
		whole = (uintptr_t)got;
		at = (whole + align - 1) / align * align;
		if (at != whole)
			(void)munmap(got, at - whole);
		(void)munmap((void *)(at + bytes), whole + align - at);
		got = (void *)at;
	}
	if (!add(RESERVED, got, bytes, false)) {
		(void)munmap(got, bytes);
		return GANTRY_HIP_OUT_OF_MEMORY;
	}
	*address = got;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipMemAddressFree(void *address, size_t bytes)
{
	if (drop(RESERVED, address) != bytes)
		return GANTRY_HIP_INVALID_VALUE;
	(void)munmap(address, bytes);
	return GANTRY_HIP_SUCCESS;
}

static struct gantry_hip_handle *handle_new(int fd, uint64_t len)
{
	struct gantry_hip_handle *handle = fd < 0 ? NULL : calloc(1, sizeof(*handle));

	if (handle)
		*handle = (struct gantry_hip_handle){ fd, len };
	else if (fd >= 0)
		close(fd);
	return handle;
}

gantry_hip_result hipMemCreate(struct gantry_hip_handle **handle, size_t bytes,
			       const struct gantry_hip_prop *prop, unsigned long long flags)
{
	int fd;

	(void)flags;
	if (!prop || prop->type != GANTRY_HIP_PINNED || prop->handle_type != GANTRY_HIP_HANDLE_FD ||
	    prop->location.type != GANTRY_HIP_ON_DEVICE || bytes == 0 || bytes % GRANULARITY)
		return GANTRY_HIP_INVALID_VALUE;
	fd = memfd_create(MEMFD_NAME, MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, (off_t)bytes) < 0) {
		close(fd);
		fd = -1;
	}
	*handle = handle_new(fd, bytes);
	return *handle ? GANTRY_HIP_SUCCESS : GANTRY_HIP_OUT_OF_MEMORY;
}

gantry_hip_result hipMemRelease(struct gantry_hip_handle *handle)
{
	if (!handle)
		return GANTRY_HIP_INVALID_VALUE;
	close(handle->fd);
	free(handle);
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipMemExportToShareableHandle(void *os_handle, struct gantry_hip_handle *handle,
						int type, unsigned long long flags)
{
	int fd = type == GANTRY_HIP_HANDLE_FD ? dup(handle->fd) : -1;

	(void)flags;
	if (fd < 0)
		return GANTRY_HIP_INVALID_VALUE;
	*(int *)os_handle = fd;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipMemImportFromShareableHandle(struct gantry_hip_handle **handle,
						  void *os_handle, int type)
{
	int fd = fake_version() >= 70100000 ? (int)(intptr_t)os_handle : *(const int *)os_handle;
	char link[64], name[64] = "";
	struct stat st;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (type != GANTRY_HIP_HANDLE_FD || readlink(link, name, sizeof(name) - 1) < 0 ||
	    strncmp(name, "/memfd:" MEMFD_NAME, strlen("/memfd:" MEMFD_NAME)) != 0 ||
	    fstat(fd, &st) < 0)
		return GANTRY_HIP_INVALID_VALUE;
	*handle = handle_new(fcntl(fd, F_DUPFD_CLOEXEC, 0), (uint64_t)st.st_size);
	return *handle ? GANTRY_HIP_SUCCESS : GANTRY_HIP_OUT_OF_MEMORY;
}

gantry_hip_result hipMemMap(void *address, size_t bytes, size_t off,
			    struct gantry_hip_handle *handle, unsigned long long flags)
{
	(void)flags;
	if (off != 0 || bytes > handle->len)
		return GANTRY_HIP_INVALID_VALUE;
	if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, handle->fd, 0) ==
	    MAP_FAILED)
		return GANTRY_HIP_MAP_FAILED;
	return add(MAPPED, address, bytes, false) ? GANTRY_HIP_SUCCESS : GANTRY_HIP_OUT_OF_MEMORY;
}

gantry_hip_result hipMemUnmap(void *address, size_t bytes)
{
	if (drop(MAPPED, address) != bytes)
		return GANTRY_HIP_INVALID_VALUE;
	(void)mmap(address, bytes, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipMemSetAccess(void *address, size_t bytes,
				  const struct gantry_hip_access *access, size_t count)
{
	gantry_hip_result result = GANTRY_HIP_INVALID_VALUE;
	struct range *range;

	pthread_mutex_lock(&memory.lock);
	range = *find_locked(MAPPED, address);
	if (range && range->len == bytes && count > 0 && access[0].flags == GANTRY_HIP_READ_WRITE) {
		range->accessible = true;
		result = GANTRY_HIP_SUCCESS;
	}
	pthread_mutex_unlock(&memory.lock);
	return result;
}

#endif
