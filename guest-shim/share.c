/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving a buffer to another session: the agent makes a token, a sealed memfd carries it, the other
 * side's agent exchanges it for a handle.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "guest-shim/control.h"
#include "guest-shim/device.h"
#include "guest-shim/error.h"
#include "guest-shim/memory.h"

#define SHARE_MAGIC   0x45524148534e5447ull /* "GTNSHARE" read as little-endian bytes */
#define SHARE_VERSION 1u

/* What the descriptor holds. */
struct share_file {
	uint64_t magic;
	uint32_t version;
	uint32_t reserved; /* 0 */
	uint8_t token[GANTRY_DOOR_TOKEN];
};
static_assert(sizeof(struct share_file) == 32, "share_file is a file format");

/* What the agent says of a token: 0 or negative, whatever else it is. */
static int answered(int32_t status)
{
	if (status == 0)
		return 0;
	return gantry_fail_plain(status < 0 ? status : GANTRY_E_INTERNAL);
}

static int make_file(const struct share_file *file, int *ret_fd)
{
	_cleanup_close_ int fd = memfd_create("gantry-share", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r;

	if (fd < 0)
		return -errno;
	if (gantry_write_all(fd, file, sizeof(*file)) < 0)
		return -EIO;
	r = gantry_memfd_freeze(fd);
	if (r < 0)
		return r;
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

int gantry_device_share(struct gantry_session *session, gantry_buffer buffer, int mode,
			uint8_t ret_token[GANTRY_DOOR_TOKEN])
{
	struct gantry_door_share msg = { .buffer = buffer, .mode = (uint32_t)mode };
	struct gantry_door_shared answer;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	gantry_door_header_init(&msg.h, GANTRY_DOOR_SHARE, 0);
	r = gantry_session_request(session, &msg, GANTRY_DOOR_SHARED, &answer);
	if (r == 0)
		r = answered(answer.status);
	if (r == 0)
		memcpy(ret_token, answer.token, sizeof(answer.token));
	return r;
}

int gantry_share(struct gantry_session *session, gantry_buffer buffer, int mode, int *ret_fd)
{
	struct share_file file = { .magic = SHARE_MAGIC, .version = SHARE_VERSION };
	struct gantry_buffer_info info;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	if (!ret_fd || (mode != GANTRY_R && mode != GANTRY_RW))
		return gantry_fail(GANTRY_E_ARG, "a buffer is shared for GANTRY_R or GANTRY_RW");
	r = gantry_memory_find(session, buffer, &info);
	if (r < 0)
		return r;
	if (!(info.flags & GANTRY_ALLOC_SHARED))
		return gantry_fail(GANTRY_E_ARG,
				   "the buffer was not made with GANTRY_ALLOC_SHARED");
	r = gantry_device_share(session, buffer, mode, file.token);
	if (r < 0)
		return r;
	r = make_file(&file, ret_fd);
	return r < 0 ? gantry_fail_errno(GANTRY_E_NO_MEMORY, -r, "a descriptor for the share") : 0;
}

/*
 * Anybody may have made the descriptor. Only a file in memory has seals, so what has them can be
 * read without waiting for anybody.
 */
static int read_file(int fd, struct share_file *ret_file)
{
	struct share_file file;

	if (fcntl(fd, F_GET_SEALS) < 0)
		return -EINVAL;
	if (pread(fd, &file, sizeof(file), 0) != (ssize_t)sizeof(file))
		return -EINVAL;
	if (file.magic != SHARE_MAGIC || file.version != SHARE_VERSION || file.reserved != 0)
		return -EINVAL;
	*ret_file = file;
	return 0;
}

static int add_adopted(struct gantry_session *s, const struct gantry_door_adopted *answer)
{
	struct gantry_buffer_info *info;
	int r;

	if (GANTRY_HANDLE_TYPE(answer->buffer) != GANTRY_HANDLE_BUFFER || answer->bytes == 0 ||
	    answer->bytes > GANTRY_MAX_BUFFER_BYTES)
		return gantry_control_bad_reply(s, "an adopted buffer that is none");
	info = calloc(1, sizeof(*info));
	if (!info)
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	*info = (struct gantry_buffer_info){
		.handle = answer->buffer,
		.bytes = answer->bytes,
		.flags = GANTRY_ALLOC_DEVICE, /* not SHARED: only its owner may pass it on */
	};
	r = gantry_memory_add(s, info);
	if (r < 0)
		free(info);
	return r;
}

int gantry_device_adopt(struct gantry_session *session, const uint8_t token[GANTRY_DOOR_TOKEN],
			gantry_buffer *ret_buffer, uint64_t *ret_bytes)
{
	struct gantry_door_adopt msg;
	struct gantry_door_adopted answer;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	gantry_door_header_init(&msg.h, GANTRY_DOOR_ADOPT, 0);
	memcpy(msg.token, token, sizeof(msg.token));
	r = gantry_session_request(session, &msg, GANTRY_DOOR_ADOPTED, &answer);
	if (r == 0)
		r = answered(answer.status);
	if (r == 0)
		r = add_adopted(session, &answer);
	if (r < 0)
		return r;
	*ret_buffer = answer.buffer;
	if (ret_bytes)
		*ret_bytes = answer.bytes;
	return 0;
}

int gantry_adopt(struct gantry_session *session, int fd, gantry_buffer *ret_buffer,
		 uint64_t *ret_bytes)
{
	struct share_file file;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	if (!ret_buffer || read_file(fd, &file) < 0)
		return gantry_fail(GANTRY_E_ARG, "the descriptor is none that gantry_share() made");
	return gantry_device_adopt(session, file.token, ret_buffer, ret_bytes);
}
