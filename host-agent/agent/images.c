/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/images.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/image_store.h"
#include "host-agent/agent/kernels.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"

#define OPTION "images="
/* What one answer holds. */
#define LISTED_MAX 512u

const char *gantry_images_dir(const struct gantry_device_section *conf)
{
	if (strcmp(conf->backend, "fpga") != 0)
		return NULL;
	for (uint32_t i = 0; i < conf->nopts; i++)
		if (strncmp(conf->opts[i], OPTION, strlen(OPTION)) == 0)
			return conf->opts[i] + strlen(OPTION);
	return NULL;
}

/* ---- stores ---- */

int gantry_image_store_find(struct gantry_agent *a, const char *name,
			    struct gantry_image_store *ret_store, struct gantry_err *err)
{
	struct gantry_image_store found = { 0 };

	for (uint32_t i = 0; i < a->ndevices; i++) {
		struct gantry_agent_device *d = &a->devices[i];
		const char *dir = d->used ? gantry_images_dir(&d->conf) : NULL;

		if (!dir || (name[0] && strcmp(d->conf.name, name) != 0))
			continue;
		if (found.dir)
			return gantry_err_set(
				err, -EINVAL,
				"several devices have images: say which with --device");
		found = (struct gantry_image_store){ d, dir };
	}
	if (!found.dir)
		return name[0] ? gantry_err_set(err, -ENOENT,
						"there is no device %.31s that has images", name)
			       : gantry_err_set(err, -ENOENT, "no device of this host has images");
	*ret_store = found;
	return 0;
}

static int is_manifest(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > strlen(GANTRY_STORE_SUFFIX) &&
	       strcmp(entry->d_name + len - strlen(GANTRY_STORE_SUFFIX), GANTRY_STORE_SUFFIX) == 0;
}

/*
 * Calls @each with every manifest of the store, by file name, until it returns nonzero, which comes back; one that cannot be read
 * comes as NULL with the reason.
 */
typedef int store_each(void *cookie, const char *file, const struct gantry_bitstream *bitstream,
		       const struct gantry_err *why);

static int walk(const struct gantry_image_store *store, store_each *each, void *cookie,
		struct gantry_err *err)
{
	struct dirent **names;
	int r = 0, count = scandir(store->dir, &names, is_manifest, alphasort);

	if (count < 0)
		return gantry_err_set_errno(err, -errno, "%s", store->dir);
	for (int i = 0; i < count; i++) {
		_cleanup_free_ struct gantry_bitstream *bitstream = NULL;
		struct gantry_err why = GANTRY_ERR_NONE;
		char path[PATH_MAX];

		if (r == 0 && gantry_str_format(path, sizeof(path), "%s/%s", store->dir,
						names[i]->d_name) == 0) {
			(void)gantry_bitstream_read(path, &bitstream, &why);
			r = each(cookie, names[i]->d_name, bitstream, &why);
		}
		free(names[i]);
	}
	free(names);
	return r;
}

struct admission {
	const struct gantry_bitstream *bitstream;
	struct gantry_err *err;
};

static int conflicts(void *cookie, const char *file, const struct gantry_bitstream *other,
		     const struct gantry_err *why)
{
	struct admission *a = cookie;

	(void)why;
	if (!other)
		return 0;
	if (strcmp(other->name, a->bitstream->name) == 0)
		return gantry_err_set(a->err, -EEXIST,
				      "there is an image %s already: gantryctl image remove %s",
				      other->name, other->name);
	for (uint32_t i = 0; i < a->bitstream->nkernels; i++) {
		const struct gantry_bitstream_kernel *mine = &a->bitstream->kernels[i];
		const struct gantry_bitstream_kernel *same = gantry_bitstream_find(other,
										   mine->name);

		if (same && (!gantry_signature_same(&same->sig, &mine->sig) ||
			     same->ndrange != mine->ndrange))
			return gantry_err_set(a->err, -EEXIST,
					      "kernel %s has another signature in %s", mine->name,
					      file);
	}
	return 0;
}

int gantry_image_store_admits(const struct gantry_image_store *store,
			      const struct gantry_bitstream *bitstream, struct gantry_err *err)
{
	const struct gantry_agent_device *d = store->device;
	struct admission admission = { bitstream, err };
	struct stat st;

	/* Of a device that no worker could open yet nothing is known; its worker looks again. */
	if (d->arch[0] && strncmp(d->arch, bitstream->board, sizeof(d->arch) - 1) != 0)
		return gantry_err_set(err, -EINVAL, "the image is for boards %s, device %s is a %s",
				      bitstream->board, d->conf.name, d->arch);
	for (uint32_t place = d->units; d->units && place < GANTRY_BOARD_MAX_REGIONS; place++)
		if (gantry_bitstream_fits(bitstream, place))
			return gantry_err_set(err, -EINVAL,
					      "the image is for region %u, device %s has %u", place,
					      d->conf.name, d->units);
	if (stat(store->dir, &st) == 0 && (st.st_mode & S_IWOTH))
		return gantry_err_set(err, -EPERM, "everybody may write to %s", store->dir);
	return walk(store, conflicts, &admission, err);
}

void gantry_image_store_refuse(struct gantry_answer *r, int code, const struct gantry_err *err)
{
	enum gantry_admin_code said = GANTRY_ADMIN_FAILED;

	if (code == -ENOENT)
		said = GANTRY_ADMIN_NOT_FOUND;
	else if (code == -EINVAL || code == -EEXIST || code == -EBADMSG || code == -EFBIG)
		said = GANTRY_ADMIN_USAGE;
	else if (code == -EBUSY)
		said = GANTRY_ADMIN_BUSY;
	gantry_answer_fail(r, said, "%s", err->text);
}

/* ---- who uses one ---- */

/* Which kernel of the session is the image's and of nothing else that the store has; NULL: none. */
struct use {
	const struct gantry_image_store *store;
	const struct gantry_bitstream *bitstream;
	const char *kernel;
};

static int has_kernel(void *cookie, const char *file, const struct gantry_bitstream *other,
		      const struct gantry_err *why)
{
	const struct use *use = cookie;

	(void)file;
	(void)why;
	return other && strcmp(other->name, use->bitstream->name) != 0 &&
	       (!other->tenant[0] || strcmp(other->tenant, use->bitstream->tenant) == 0) &&
	       gantry_bitstream_find(other, use->kernel) != NULL;
}

static bool depends(struct use *use, const struct gantry_session *s)
{
	size_t len = strlen(use->bitstream->name);

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_object o = s->ledger.objects[i];
		const char *slash;

		if (o.type != GANTRY_HANDLE_KERNEL || o.state != GANTRY_OBJECT_LIVE ||
		    GANTRY_LEDGER_IS_OWN(&o.kernel))
			continue;
		o.kernel.name[sizeof(o.kernel.name) - 1] = '\0';
		slash = strchr(o.kernel.name, '/');
		if (!slash || !gantry_bitstream_find(use->bitstream, slash + 1))
			continue;
		use->kernel = slash + 1;
		if (((size_t)(slash - o.kernel.name) == len &&
		     memcmp(o.kernel.name, use->bitstream->name, len) == 0) ||
		    (slash == o.kernel.name && walk(use->store, has_kernel, use, NULL) == 0))
			return true;
	}
	return false;
}

/* Sessions that could not go on without it; the first, or NULL. */
static uint32_t count_users(struct gantry_agent *a, const struct gantry_image_store *store,
			    const struct gantry_bitstream *bitstream,
			    const struct gantry_session **ret_first)
{
	uint64_t bit = 1ull << (store->device - a->devices);
	uint32_t n = 0;

	*ret_first = NULL;
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s) {
		struct use use = { .store = store, .bitstream = bitstream };

		if ((bitstream->tenant[0] &&
		     strcmp(bitstream->tenant, s->tenant->conf.name) != 0) ||
		    !(gantry_devices_mask(a, s->tenant->conf.devices) & bit) || !depends(&use, s))
			continue;
		if (n++ == 0)
			*ret_first = s;
	}
	return n;
}

/* ---- list ---- */

struct listing {
	struct gantry_agent *agent;
	const struct gantry_image_store *store;
	struct gantry_answer *answer;
	Gantry__Admin__ImageList *list;
};

static Gantry__Admin__ImageKernel *list_kernel(struct gantry_answer *r,
					       const struct gantry_bitstream_kernel *kernel)
{
	Gantry__Admin__ImageKernel *msg = gantry_answer_take(r, sizeof(*msg));
	char signature[GANTRY_SIGNATURE_TEXT_MAX] = "";

	gantry__admin__image_kernel__init(msg);
	/* It was parsed from a text that is not shorter. */
	(void)gantry_signature_format(&kernel->sig, signature, sizeof(signature));
	msg->name = gantry_answer_text(r, kernel->name);
	msg->signature = gantry_answer_text(r, signature);
	msg->window = kernel->window;
	msg->units = kernel->units;
	msg->slower_percent = kernel->slower;
	msg->run_ns = kernel->run_ns;
	msg->pure = kernel->pure;
	return msg;
}

static Gantry__Admin__ImageFile *list_file(const struct listing *l, uint32_t place,
					   const struct gantry_bitstream_file *file)
{
	Gantry__Admin__ImageFile *msg = gantry_answer_take(l->answer, sizeof(*msg));
	char hash[2 * GANTRY_SHA256_BYTES + 1] = "", path[PATH_MAX], where[16] = "whole";
	struct stat st;

	gantry__admin__image_file__init(msg);
	if (place != GANTRY_BOARD_WHOLE)
		(void)gantry_str_format(where, sizeof(where), "%u", place);
	(void)gantry_hex_encode(file->sha256, sizeof(file->sha256), hash, sizeof(hash));
	msg->place = gantry_answer_text(l->answer, where);
	msg->file = gantry_answer_text(l->answer, file->name);
	msg->sha256 = gantry_answer_text(l->answer, hash);
	if (gantry_str_format(path, sizeof(path), "%s/%s", l->store->dir, file->name) == 0 &&
	    lstat(path, &st) == 0)
		msg->bytes = (uint64_t)st.st_size;
	return msg;
}

static int list_one(void *cookie, const char *file, const struct gantry_bitstream *b,
		    const struct gantry_err *why)
{
	struct listing *l = cookie;
	struct gantry_answer *r = l->answer;
	const struct gantry_session *first;
	Gantry__Admin__Image *msg;

	if (l->list->n_images == LISTED_MAX)
		return 1;
	msg = gantry_answer_take(r, sizeof(*msg));
	gantry__admin__image__init(msg);
	l->list->images[l->list->n_images++] = msg;
	msg->device = gantry_answer_text(r, l->store->device->conf.name);
	msg->name = gantry_answer_text(r, b ? b->name : file);
	if (!b) {
		msg->problem = gantry_answer_text(r, why->text);
		return 0;
	}
	msg->version = b->version;
	msg->board = gantry_answer_text(r, b->board);
	msg->tenant = gantry_answer_text(r, b->tenant);
	msg->configure_ns = b->configure_ns;
	msg->memory_kept = b->keeps_memory;
	msg->sessions = count_users(l->agent, l->store, b, &first);
	msg->kernels = gantry_answer_take(r, b->nkernels * sizeof(*msg->kernels));
	for (uint32_t i = 0; i < b->nkernels; i++)
		msg->kernels[msg->n_kernels++] = list_kernel(r, &b->kernels[i]);
	msg->files = gantry_answer_take(r, GANTRY_BOARD_NPLACES * sizeof(*msg->files));
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		if (gantry_bitstream_fits(b, place))
			msg->files[msg->n_files++] = list_file(l, place, &b->files[place]);
	return 0;
}

void gantry_verb_image_list(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			    struct gantry_answer *r)
{
	Gantry__Admin__ImageList *list = gantry_answer_take(r, sizeof(*list));

	(void)q;
	gantry__admin__image_list__init(list);
	list->images = gantry_answer_take(r, LISTED_MAX * sizeof(*list->images));
	for (uint32_t i = 0; i < a->ndevices; i++) {
		struct gantry_agent_device *d = &a->devices[i];
		struct gantry_image_store store = { d,
						    d->used ? gantry_images_dir(&d->conf) : NULL };
		struct listing l = { a, &store, r, list };

		/* A folder that is not there has no images; its device's health says so. */
		if (store.dir)
			(void)walk(&store, list_one, &l, NULL);
	}
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_IMAGES;
	r->msg.images = list;
}

/* ---- remove ---- */

struct removal {
	const char *name;
	char file[NAME_MAX + 1]; /* of the manifest; "": not found */
	struct gantry_bitstream bitstream;
};

static int find_named(void *cookie, const char *file, const struct gantry_bitstream *b,
		      const struct gantry_err *why)
{
	struct removal *removal = cookie;

	(void)why;
	if (!b || strcmp(b->name, removal->name) != 0)
		return 0;
	(void)gantry_str_copy(removal->file, sizeof(removal->file), file); /* it fits */
	removal->bitstream = *b;
	return 1;
}

struct share {
	const char *file;
};

static int names_file(void *cookie, const char *file, const struct gantry_bitstream *b,
		      const struct gantry_err *why)
{
	const struct share *share = cookie;

	(void)file;
	(void)why;
	for (uint32_t place = 0; b && place < GANTRY_BOARD_NPLACES; place++)
		if (strcmp(b->files[place].name, share->file) == 0)
			return 1;
	return 0;
}

/* The manifest first: nothing names what is gone then. Files that came by hand may be others' too. */
static int remove_files(const struct gantry_image_store *store, const struct removal *removal,
			struct gantry_err *err)
{
	_cleanup_close_ int dir_fd = open(store->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir_fd < 0 || unlinkat(dir_fd, removal->file, 0) < 0)
		return gantry_err_set_errno(err, -errno, "removing %s", removal->file);
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++) {
		struct share share = { removal->bitstream.files[place].name };

		if (share.file[0] && walk(store, names_file, &share, NULL) == 0)
			(void)unlinkat(dir_fd, share.file, 0); /* gone already for another place */
	}
	return 0;
}

static int remove_image(struct gantry_agent *a, const Gantry__Admin__ImageName *ask,
			struct gantry_err *err)
{
	struct removal removal = { .name = ask->name };
	const struct gantry_session *first;
	struct gantry_image_store store;
	uint32_t users;
	int r = gantry_image_store_find(a, ask->device, &store, err);

	if (r == 0)
		r = walk(&store, find_named, &removal, err);
	if (r < 0)
		return r;
	if (!removal.file[0])
		return gantry_err_set(err, -ENOENT, "device %s has no image %.31s",
				      store.device->conf.name, ask->name);
	users = count_users(a, &store, &removal.bitstream, &first);
	if (users > 0)
		return gantry_err_set(
			err, -EBUSY,
			"%u sessions have kernels that no other image has, the first is "
			"%llu of tenant %s: end them, or add another image with these",
			users, (unsigned long long)first->id, first->tenant->conf.name);
	r = remove_files(&store, &removal, err);
	if (r == 0)
		gantry_event(a, "image-removed", NULL, NULL, NULL, "image %s of device %s",
			     removal.bitstream.name, store.device->conf.name);
	return r;
}

void gantry_verb_image_remove(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			      struct gantry_answer *r)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int code = remove_image(a, q->image_remove, &err);

	if (code < 0)
		gantry_image_store_refuse(r, code, &err);
	else
		gantry_kernels_rescan(a);
}
