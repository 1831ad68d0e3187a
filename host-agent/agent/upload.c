/* SPDX-License-Identifier: Apache-2.0 */
/* An image on its way into its store: the manifest first, then the files' bytes, then the names. One at a time. */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/sha256.h"
#include "base/str.h"
#include "devices/board/bitstream.h"
#include "devices/opencl/container.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/image_store.h"
#include "host-agent/agent/images.h"
#include "host-agent/agent/kernels.h"
#include "host-agent/agent/tenant.h"

/* One that nobody goes on with makes room for another after this. */
#define IDLE_NS (30 * GANTRY_NS_PER_S)
#define MODE	0644

struct part {
	const struct gantry_bitstream_file *file; /* of the manifest */
	char temporary[64];
	int fd;
	uint64_t bytes;
	struct gantry_sha256 sum;
};

struct gantry_upload {
	uint64_t id;
	uint64_t last_ns;
	int dir_fd;
	char device[GANTRY_CONFIG_NAME];
	char *manifest; /* with the line for the tenant, if one was asked for */
	struct gantry_bitstream *bitstream;
	uint32_t nparts;
	struct part parts[GANTRY_BOARD_NPLACES];
};

void gantry_upload_free(struct gantry_upload *upload)
{
	if (!upload)
		return;
	for (uint32_t i = 0; i < upload->nparts; i++) {
		/* What has its name by now is found by this one no more. */
		(void)unlinkat(upload->dir_fd, upload->parts[i].temporary, 0);
		gantry_fd_close(upload->parts[i].fd);
	}
	gantry_fd_close(upload->dir_fd);
	free(upload->manifest);
	free(upload->bitstream);
	free(upload);
}
GANTRY_DEFINE_CLEANUP(struct gantry_upload *, gantry_upload_free);

/* ---- the beginning ---- */

/* What an agent that died was at. */
static void sweep(int dir_fd)
{
	_cleanup_close_ int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir)
		return;
	GANTRY_TAKE_FD(fd);
	while ((entry = readdir(dir)))
		if (strncmp(entry->d_name, GANTRY_STORE_TEMPORARY,
			    strlen(GANTRY_STORE_TEMPORARY)) == 0)
			(void)unlinkat(dir_fd, entry->d_name, 0);
	closedir(dir);
}

static int make_manifest(struct gantry_upload *u, const ProtobufCBinaryData *text,
			 const char *tenant, struct gantry_err *err)
{
	const char *bytes = text->len ? (const char *)text->data : "";
	int r = gantry_bitstream_parse(bytes, text->len, &u->bitstream, err);
	int len;

	if (r < 0)
		return r;
	if (tenant[0] && u->bitstream->tenant[0] && strcmp(tenant, u->bitstream->tenant) != 0)
		return gantry_err_set(err, -EINVAL, "the manifest says that it is %s's, not %s's",
				      u->bitstream->tenant, tenant);
	if (tenant[0] && !u->bitstream->tenant[0]) {
		(void)gantry_str_copy(u->bitstream->tenant, sizeof(u->bitstream->tenant), tenant);
		len = asprintf(&u->manifest, "%.*s\ntenant %s\n", (int)text->len, bytes, tenant);
	} else {
		len = asprintf(&u->manifest, "%.*s", (int)text->len, bytes);
	}
	if (len < 0) {
		u->manifest = NULL;
		return gantry_err_set(err, -ENOMEM, "no memory for the manifest");
	}
	return (size_t)len > GANTRY_BITSTREAM_MAX_BYTES
		       ? gantry_err_set(err, -EINVAL, "the manifest has more than %u bytes",
					GANTRY_BITSTREAM_MAX_BYTES)
		       : 0;
}

/* One for each name: several places may have one file. */
static int make_parts(struct gantry_upload *u, struct gantry_err *err)
{
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++) {
		const struct gantry_bitstream_file *file = &u->bitstream->files[place];
		struct part *part = &u->parts[u->nparts];
		bool known = !file->name[0];

		for (uint32_t i = 0; i < u->nparts && !known; i++) {
			known = strcmp(u->parts[i].file->name, file->name) == 0;
			if (known && memcmp(u->parts[i].file->sha256, file->sha256,
					    sizeof(file->sha256)) != 0)
				return gantry_err_set(err, -EINVAL, "file %s has two sums",
						      file->name);
		}
		if (known)
			continue;
		if (faccessat(u->dir_fd, file->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return gantry_err_set(
				err, -EEXIST,
				"the store has a file %s already: give it another name",
				file->name);
		*part = (struct part){ .file = file };
		gantry_sha256_init(&part->sum);
		(void)gantry_str_format(part->temporary, sizeof(part->temporary),
					GANTRY_STORE_TEMPORARY "%llu-%u", (unsigned long long)u->id,
					place); /* it fits */
		part->fd = openat(u->dir_fd, part->temporary,
				  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, MODE);
		if (part->fd < 0)
			return gantry_err_set_errno(err, -errno, "writing into the store");
		u->nparts++;
	}
	return 0;
}

static int begin(struct gantry_agent *a, const Gantry__Admin__ImageAdd *ask,
		 struct gantry_upload **ret_upload, struct gantry_err *err)
{
	static uint64_t last_id;
	_cleanup_(gantry_upload_freep) struct gantry_upload *u = calloc(1, sizeof(*u));
	struct gantry_image_store store;
	int r;

	if (!u)
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	u->id = ++last_id;
	u->dir_fd = -EBADF;
	r = gantry_image_store_find(a, ask->device, &store, err);
	if (r < 0)
		return r;
	r = make_manifest(u, &ask->manifest, ask->tenant, err);
	if (r == 0 && u->bitstream->tenant[0] && !gantry_tenant_find(a, u->bitstream->tenant))
		r = gantry_err_set(err, -ENOENT, "there is no tenant %s", u->bitstream->tenant);
	if (r == 0)
		r = gantry_image_store_admits(&store, u->bitstream, err);
	if (r < 0)
		return r;
	(void)gantry_str_copy(u->device, sizeof(u->device), store.device->conf.name);
	u->dir_fd = open(store.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (u->dir_fd < 0)
		return gantry_err_set_errno(err, -errno, "%s", store.dir);
	sweep(u->dir_fd);
	r = make_parts(u, err);
	if (r < 0)
		return r;
	u->last_ns = gantry_now_ns();
	*ret_upload = GANTRY_TAKE_PTR(u);
	return 0;
}

void gantry_verb_image_add(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			   struct gantry_answer *r)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_upload *u = NULL;
	Gantry__Admin__Upload *msg;
	int code;

	if (a->upload && gantry_now_ns() - a->upload->last_ns < IDLE_NS) {
		gantry_answer_fail(r, GANTRY_ADMIN_BUSY,
				   "another image is on its way in; try again");
		return;
	}
	gantry_upload_free(a->upload);
	a->upload = NULL;
	code = begin(a, q->image_add, &u, &err);
	if (code < 0) {
		gantry_image_store_refuse(r, code, &err);
		return;
	}
	a->upload = u;
	msg = gantry_answer_take(r, sizeof(*msg));
	gantry__admin__upload__init(msg);
	msg->id = u->id;
	msg->files = gantry_answer_take(r, u->nparts * sizeof(*msg->files));
	for (uint32_t i = 0; i < u->nparts; i++)
		msg->files[msg->n_files++] = gantry_answer_text(r, u->parts[i].file->name);
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_UPLOAD;
	r->msg.upload = msg;
}

/* ---- the bytes ---- */

static struct gantry_upload *upload_of(struct gantry_agent *a, uint64_t id, struct gantry_answer *r)
{
	if (a->upload && a->upload->id == id)
		return a->upload;
	gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND, "that image is not on its way in any more");
	return NULL;
}

static int take_bytes(struct part *part, const ProtobufCBinaryData *data, struct gantry_err *err)
{
	int r;

	if (data->len > GANTRY_BITSTREAM_MAX_FILE_BYTES - part->bytes)
		return gantry_err_set(err, -EFBIG, "%s has more than %u bytes", part->file->name,
				      GANTRY_BITSTREAM_MAX_FILE_BYTES);
	r = gantry_write_all(part->fd, data->data, data->len);
	if (r < 0)
		return gantry_err_set_errno(err, r, "writing %s into the store", part->file->name);
	gantry_sha256_add(&part->sum, data->data, data->len);
	part->bytes += data->len;
	return 0;
}

void gantry_verb_image_data(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			    struct gantry_answer *r)
{
	const Gantry__Admin__ImageData *data = q->image_data;
	struct gantry_upload *u = upload_of(a, data->id, r);
	struct gantry_err err = GANTRY_ERR_NONE;
	int code = -ENOENT;

	if (!u)
		return;
	u->last_ns = gantry_now_ns();
	(void)gantry_err_set(&err, code, "the manifest names no file %.60s", data->file);
	for (uint32_t i = 0; i < u->nparts; i++)
		if (strcmp(u->parts[i].file->name, data->file) == 0)
			code = take_bytes(&u->parts[i], &data->data, &err);
	if (code == 0)
		return;
	gantry_image_store_refuse(r, code, &err);
	gantry_upload_free(u);
	a->upload = NULL;
}

/* ---- the end ---- */

static int check_sums(struct gantry_upload *u, struct gantry_err *err)
{
	for (uint32_t i = 0; i < u->nparts; i++) {
		uint8_t hash[GANTRY_SHA256_BYTES];

		gantry_sha256_end(&u->parts[i].sum, hash);
		if (memcmp(hash, u->parts[i].file->sha256, sizeof(hash)) != 0)
			return gantry_err_set(
				err, -EBADMSG,
				"%s is not the file that the manifest was written for",
				u->parts[i].file->name);
	}
	return 0;
}

static bool is_opencl(const struct gantry_upload *u, struct gantry_agent *a)
{
	const struct gantry_agent_device *d = gantry_agent_device_find(a, u->device);

	for (uint32_t i = 0; d && i < d->conf.nopts; i++)
		if (strcmp(d->conf.opts[i], "driver=opencl") == 0)
			return true;
	return false;
}

/* Another driver's files are its own affair (a program for a soft processor is an ELF file of 32 bits), but for the usual sorts. */
static bool is_usual(const unsigned char *bytes, size_t nbytes, enum gantry_opencl_sort sort)
{
	return sort == GANTRY_OPENCL_XCLBIN ||
	       (sort == GANTRY_OPENCL_ELF && nbytes > EI_DATA && bytes[EI_CLASS] == ELFCLASS64 &&
		bytes[EI_DATA] == ELFDATA2LSB);
}

/*
 * The right sum says that the file is the one that the manifest was written for, not that it is whole: it may have been cut short before. What
 * its container says of itself is looked at, where that is of a sort that is known; a board behind OpenCL takes no other.
 */
static int check_container(const struct gantry_upload *u, const struct part *part, bool opencl,
			   struct gantry_err *err)
{
	_cleanup_close_ int fd = openat(u->dir_fd, part->temporary,
					O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	enum gantry_opencl_sort sort;
	void *bytes;
	int r = 0;

	if (fd < 0)
		return gantry_err_set_errno(err, -errno, "reading %s", part->file->name);
	if (part->bytes == 0)
		return gantry_err_set(err, -EBADMSG, "%s is empty", part->file->name);
	/* Of a file that the agent made and that only its user may write. */
	bytes = mmap(NULL, part->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "reading %s", part->file->name);
	sort = gantry_opencl_sort(bytes, part->bytes);
	if (opencl && sort != GANTRY_OPENCL_POCL && sort != GANTRY_OPENCL_ELF &&
	    sort != GANTRY_OPENCL_XCLBIN)
		r = gantry_err_set(err, -EBADMSG,
				   "%s is no image: neither an ELF file nor an .xclbin",
				   part->file->name);
	else if ((opencl || is_usual(bytes, part->bytes, sort)) &&
		 gantry_opencl_container_check(bytes, part->bytes, NULL, err) < 0)
		r = gantry_err_wrap(err, -EBADMSG, "%s", part->file->name);
	(void)munmap(bytes, part->bytes); /* cannot fail for what mmap() returned */
	return r;
}

static int check_containers(struct gantry_upload *u, struct gantry_agent *a, struct gantry_err *err)
{
	bool opencl = is_opencl(u, a);
	int r = 0;

	for (uint32_t i = 0; i < u->nparts && r == 0; i++)
		r = check_container(u, &u->parts[i], opencl, err);
	return r;
}

/* The manifest last: what it names is there then. */
static int give_names(struct gantry_upload *u, struct gantry_err *err)
{
	char name[GANTRY_FILE_NAME_MAX + 1], mark[NAME_MAX + 1], temporary[64];
	_cleanup_close_ int fd = -EBADF;
	int r;

	(void)gantry_str_format(name, sizeof(name), "%s" GANTRY_STORE_SUFFIX, u->bitstream->name);
	(void)gantry_str_format(temporary, sizeof(temporary), GANTRY_STORE_TEMPORARY "%llu",
				(unsigned long long)u->id); /* both fit */
	for (uint32_t i = 0; i < u->nparts; i++)
		if (renameat2(u->dir_fd, u->parts[i].temporary, u->dir_fd, u->parts[i].file->name,
			      RENAME_NOREPLACE) < 0) {
			r = gantry_err_set_errno(err, -errno, "%s", u->parts[i].file->name);
			while (i-- > 0)
				(void)unlinkat(u->dir_fd, u->parts[i].file->name, 0);
			return r;
		}
	fd = openat(u->dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    MODE);
	r = fd < 0 ? -errno : gantry_write_all(fd, u->manifest, strlen(u->manifest));
	/* Of one of the name that was removed, by an agent that died at it. */
	if (gantry_str_format(mark, sizeof(mark), "%s" GANTRY_BITSTREAM_LEAVING, name) == 0)
		(void)unlinkat(u->dir_fd, mark, 0);
	if (r == 0 && renameat2(u->dir_fd, temporary, u->dir_fd, name, RENAME_NOREPLACE) < 0)
		r = -errno;
	if (r == 0)
		return 0;
	(void)unlinkat(u->dir_fd, temporary, 0);
	for (uint32_t i = 0; i < u->nparts; i++)
		(void)unlinkat(u->dir_fd, u->parts[i].file->name, 0);
	return gantry_err_set_errno(err, r, "%s", name);
}

void gantry_verb_image_end(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			   struct gantry_answer *r)
{
	_cleanup_(gantry_upload_freep) struct gantry_upload *u = upload_of(a, q->image_end->value,
									   r);
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_image_store store;
	int code;

	if (!u)
		return;
	a->upload = NULL;
	code = check_sums(u, &err);
	if (code == 0)
		code = check_containers(u, a, &err);
	/* Another may have come by hand, or the device may have gone meanwhile. */
	if (code == 0)
		code = gantry_image_store_find(a, u->device, &store, &err);
	if (code == 0)
		code = gantry_image_store_admits(&store, u->bitstream, &err);
	if (code == 0)
		code = give_names(u, &err);
	if (code < 0) {
		gantry_image_store_refuse(r, code, &err);
		return;
	}
	gantry_event(a, "image-added", NULL, NULL, NULL,
		     "image %s for device %s, with %u kernels%s%s", u->bitstream->name, u->device,
		     u->bitstream->nkernels, u->bitstream->tenant[0] ? ", for tenant " : "",
		     u->bitstream->tenant);
	gantry_kernels_rescan(a);
}
