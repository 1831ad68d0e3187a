/* SPDX-License-Identifier: Apache-2.0 */
/* The names here are those that libraries ask for, with and without 64, and not what a header makes of them. */
#undef _FILE_OFFSET_BITS
#include "host-agent/worker/communicators.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fd.h"
#include "devices/hosts.h"

#define PREFIX	  "/dev/shm/nccl-"
#define FILES_MAX 256u

#define EXPORT __attribute__((visibility("default")))

/* As the C library declares them; 64 is the same here. */
EXPORT int mkstemp(char *template);
EXPORT int mkstemp64(char *template);
EXPORT int open(const char *path, int flags, ...);
EXPORT int open64(const char *path, int flags, ...);
EXPORT int unlink(const char *path);

struct file {
	char name[32];
	int fd; /* 0: the entry is free */
};

static struct {
	bool on; /* written before there is a second thread */
	pthread_mutex_t lock;
	uint32_t made;
	struct file files[FILES_MAX];
} shm = { .lock = PTHREAD_MUTEX_INITIALIZER };

void worker_communicators_prepare(void)
{
	/* Its digits are written in place later, so it is memory for good, and ours. */
	static char host[] = "NCCL_HOSTID=" GANTRY_COMMUNICATORS_WHOLE;
	static const struct {
		const char *name, *value;
	} said[] = {
		{ "NCCL_SOCKET_IFNAME", "lo" }, /* there is nothing else */
		{ "NCCL_IB_DISABLE", "1" },	/* it would leave the tenant's network */
		{ "NCCL_SHM_DISABLE", "1" },	/* files that two processes open */
		{ "NCCL_PXN_DISABLE", "1" },	/* likewise */
	};

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(said); i++)
		(void)setenv(said[i].name, said[i].value, 1); /* without memory NCCL fails */
	(void)putenv(host);				      /* likewise */
	shm.on = true;
}

/* ---- files that are memory ---- */

static bool is_ours(const char *path)
{
	return shm.on && path && strncmp(path, PREFIX, strlen(PREFIX)) == 0;
}

static struct file *find_locked(const char *name)
{
	for (uint32_t i = 0; i < FILES_MAX; i++)
		if (shm.files[i].fd > 0 && strcmp(shm.files[i].name, name) == 0)
			return &shm.files[i];
	return NULL;
}

static struct file *free_locked(void)
{
	for (uint32_t i = 0; i < FILES_MAX; i++)
		if (shm.files[i].fd == 0)
			return &shm.files[i];
	return NULL;
}

/* A descriptor for the caller beside the entry's; -1 and errno. */
static int make_locked(const char *name)
{
	struct file *file = free_locked();
	int fd = -1, theirs = -1;

	if (!file || strlen(name) >= sizeof(file->name)) {
		errno = ENFILE;
		return -1;
	}
	fd = memfd_create("nccl", MFD_CLOEXEC);
	if (fd >= 0)
		theirs = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (theirs < 0) {
		gantry_fd_close(fd);
		return -1;
	}
	(void)snprintf(file->name, sizeof(file->name), "%s", name); /* it fits */
	file->fd = fd;
	return theirs;
}

static int make_new(char *template)
{
	char *x = template + strlen(template) - 6;
	int fd = -1;

	if (strlen(template) < strlen(PREFIX) + 6 || strcmp(x, "XXXXXX") != 0) {
		errno = EINVAL;
		return -1;
	}
	(void)pthread_mutex_lock(&shm.lock);
	for (uint32_t n = shm.made++ % 1000000u, i = 6; i-- > 0; n /= 10)
		x[i] = (char)('0' + n % 10);
	fd = make_locked(template);
	(void)pthread_mutex_unlock(&shm.lock);
	return fd;
}

static int open_ours(const char *path, int flags)
{
	struct file *file;
	int fd = -1;

	(void)pthread_mutex_lock(&shm.lock);
	file = find_locked(path);
	if (file)
		fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 3);
	else if (flags & O_CREAT)
		fd = make_locked(path);
	else
		errno = ENOENT;
	(void)pthread_mutex_unlock(&shm.lock);
	return fd;
}

static int forget(const char *path)
{
	struct file *file;

	(void)pthread_mutex_lock(&shm.lock);
	file = find_locked(path);
	if (file) {
		gantry_fd_close(file->fd);
		file->fd = 0;
	}
	(void)pthread_mutex_unlock(&shm.lock);
	if (!file)
		errno = ENOENT;
	return file ? 0 : -1;
}

/* ---- in place of the C library's ---- */

static int open_any(const char *path, int flags, mode_t mode)
{
	if (is_ours(path))
		return open_ours(path, flags);
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* What is there where no mode was given is not looked at. */
#define MODE_OF(flags, mode)                 \
	do {                                 \
		va_list args;                \
		va_start(args, flags);       \
		mode = va_arg(args, mode_t); \
		va_end(args);                \
	} while (0)

static bool has_mode(int flags)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;

	if (has_mode(flags))
		MODE_OF(flags, mode);
	return open_any(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	mode_t mode = 0;

	if (has_mode(flags))
		MODE_OF(flags, mode);
	return open_any(path, flags, mode);
}

int unlink(const char *path)
{
	return is_ours(path) ? forget(path) : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

static int make_any(char *template)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	uint8_t random[6];
	size_t len = strlen(template);

	if (is_ours(template))
		return make_new(template);
	if (len < 6 || strcmp(template + len - 6, "XXXXXX") != 0) {
		errno = EINVAL;
		return -1;
	}
	for (;;) {
		int fd;

		if (syscall(SYS_getrandom, random, sizeof(random), 0) != (long)sizeof(random))
			return -1;
		for (size_t i = 0; i < sizeof(random); i++)
			template[len - 6 + i] = letters[random[i] % (sizeof(letters) - 1)];
		fd = open_any(template, O_RDWR | O_CREAT | O_EXCL, 0600);
		if (fd >= 0 || errno != EEXIST)
			return fd;
	}
}

int mkstemp(char *template)
{
	return make_any(template);
}

int mkstemp64(char *template)
{
	return make_any(template);
}
