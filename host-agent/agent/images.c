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

#include "base/checked.h"
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
/* Of one store; a board takes fewer. */
#define ENTRIES_MAX 1024u

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

static int read_all(const struct gantry_image_store *store, struct dirent **names, uint32_t n,
		    struct gantry_image_entries *entries)
{
	entries->list = calloc(n, sizeof(*entries->list));
	for (uint32_t i = 0; entries->list && i < n; i++) {
		struct gantry_image_entry *entry = &entries->list[entries->n];
		char path[PATH_MAX];

		if (gantry_str_format(path, sizeof(path), "%s/%s", store->dir, names[i]->d_name) <
		    0)
			continue;
		entry->file = strdup(names[i]->d_name);
		if (!entry->file)
			return -ENOMEM;
		entries->n++;
		(void)gantry_bitstream_read(path, &entry->bitstream, &entry->why);
		entry->leaving = gantry_str_format(path, sizeof(path),
						   "%s/%s" GANTRY_BITSTREAM_LEAVING, store->dir,
						   entry->file) == 0 &&
				 access(path, F_OK) == 0;
	}
	return entries->list || n == 0 ? 0 : -ENOMEM;
}

int gantry_image_store_read(const struct gantry_image_store *store,
			    struct gantry_image_entries *ret_entries, struct gantry_err *err)
{
	struct gantry_image_entries entries = { 0 };
	struct dirent **names;
	int count = scandir(store->dir, &names, is_manifest, alphasort);
	int r;

	if (count < 0)
		return gantry_err_set_errno(err, -errno, "%s", store->dir);
	r = read_all(store, names, GANTRY_MIN((uint32_t)count, ENTRIES_MAX), &entries);
	for (int i = 0; i < count; i++)
		free(names[i]);
	free(names);
	if (r < 0) {
		gantry_image_entries_free(&entries);
		return gantry_err_set(err, r, "no memory for the list of images");
	}
	*ret_entries = entries;
	return 0;
}

void gantry_image_entries_free(struct gantry_image_entries *entries)
{
	for (uint32_t i = 0; i < entries->n; i++) {
		free(entries->list[i].file);
		free(entries->list[i].bitstream);
	}
	free(entries->list);
	*entries = (struct gantry_image_entries){ 0 };
}

static int conflicts(const struct gantry_image_entry *entry,
		     const struct gantry_bitstream *bitstream, struct gantry_err *err)
{
	const struct gantry_bitstream *other = entry->bitstream;

	if (!other)
		return 0;
	if (strcmp(other->name, bitstream->name) == 0 && entry->leaving)
		return gantry_err_set(err, -EBUSY,
				      "image %s is being removed: wait until it is gone, or "
				      "gantryctl image remove --now %s",
				      other->name, other->name);
	if (strcmp(other->name, bitstream->name) == 0)
		return gantry_err_set(err, -EEXIST,
				      "there is an image %s already: gantryctl image remove %s",
				      other->name, other->name);
	for (uint32_t i = 0; i < bitstream->nkernels; i++) {
		const struct gantry_bitstream_kernel *mine = &bitstream->kernels[i];
		const struct gantry_bitstream_kernel *same = gantry_bitstream_find(other,
										   mine->name);

		if (same && (!gantry_signature_same(&same->sig, &mine->sig) ||
			     same->ndrange != mine->ndrange || same->max_items != mine->max_items))
			return gantry_err_set(err, -EEXIST, "kernel %s has another signature in %s",
					      mine->name, entry->file);
	}
	return 0;
}

int gantry_image_store_admits(const struct gantry_image_store *store,
			      const struct gantry_bitstream *bitstream, struct gantry_err *err)
{
	const struct gantry_agent_device *d = store->device;
	_cleanup_(gantry_image_entries_free) struct gantry_image_entries entries = { 0 };
	struct stat st;
	int r;

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
	r = gantry_image_store_read(store, &entries, err);
	for (uint32_t i = 0; i < entries.n && r == 0; i++)
		r = conflicts(&entries.list[i], bitstream, err);
	return r;
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

/* ---- list ---- */

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

static Gantry__Admin__ImageFile *list_file(struct gantry_answer *r,
					   const struct gantry_image_store *store, uint32_t place,
					   const struct gantry_bitstream_file *file)
{
	Gantry__Admin__ImageFile *msg = gantry_answer_take(r, sizeof(*msg));
	char hash[2 * GANTRY_SHA256_BYTES + 1] = "", path[PATH_MAX], where[16] = "whole";
	struct stat st;

	gantry__admin__image_file__init(msg);
	if (place != GANTRY_BOARD_WHOLE)
		(void)gantry_str_format(where, sizeof(where), "%u", place);
	(void)gantry_hex_encode(file->sha256, sizeof(file->sha256), hash, sizeof(hash));
	msg->place = gantry_answer_text(r, where);
	msg->file = gantry_answer_text(r, file->name);
	msg->sha256 = gantry_answer_text(r, hash);
	if (gantry_str_format(path, sizeof(path), "%s/%s", store->dir, file->name) == 0 &&
	    lstat(path, &st) == 0)
		msg->bytes = (uint64_t)st.st_size;
	return msg;
}

static char *name_session(struct gantry_answer *r, const struct gantry_session *s)
{
	char text[GANTRY_NAME_LEN_MAX + 64];

	(void)gantry_str_format(text, sizeof(text), "session %llu of tenant %s",
				(unsigned long long)s->id, s->tenant->conf.name); /* it fits */
	return gantry_answer_text(r, text);
}

static Gantry__Admin__Image *list_one(struct gantry_answer *r,
				      const struct gantry_image_store *store,
				      const struct gantry_image_entry *entry)
{
	Gantry__Admin__Image *msg = gantry_answer_take(r, sizeof(*msg));
	const struct gantry_bitstream *b = entry->bitstream;

	gantry__admin__image__init(msg);
	msg->device = gantry_answer_text(r, store->device->conf.name);
	msg->name = gantry_answer_text(r, b ? b->name : entry->file);
	if (!b) {
		msg->problem = gantry_answer_text(r, entry->why.text);
		return msg;
	}
	msg->version = b->version;
	msg->board = gantry_answer_text(r, b->board);
	msg->tenant = gantry_answer_text(r, b->tenant);
	msg->configure_ns = b->configure_ns;
	msg->memory_kept = b->keeps_memory;
	msg->sessions = entry->nusers;
	msg->leaving = entry->leaving;
	msg->tasks = entry->ntasks;
	msg->waits_for = entry->nwaited;
	if (entry->first_waited)
		msg->waits_first = name_session(r, entry->first_waited);
	msg->kernels = gantry_answer_take(r, b->nkernels * sizeof(*msg->kernels));
	for (uint32_t i = 0; i < b->nkernels; i++)
		msg->kernels[msg->n_kernels++] = list_kernel(r, &b->kernels[i]);
	msg->files = gantry_answer_take(r, GANTRY_BOARD_NPLACES * sizeof(*msg->files));
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		if (gantry_bitstream_fits(b, place))
			msg->files[msg->n_files++] = list_file(r, store, place, &b->files[place]);
	return msg;
}

static int list_store(struct gantry_agent *a, const struct gantry_image_store *store,
		      struct gantry_answer *r, Gantry__Admin__ImageList *list,
		      struct gantry_err *err)
{
	_cleanup_(gantry_image_entries_free) struct gantry_image_entries entries = { 0 };
	int code;

	/* A folder that is not there has no images; its device's health says so. */
	if (gantry_image_store_read(store, &entries, NULL) < 0)
		return 0;
	code = gantry_image_users_count(a, store, &entries, err);
	if (code < 0)
		return code;
	for (uint32_t i = 0; i < entries.n && list->n_images < LISTED_MAX; i++)
		list->images[list->n_images++] = list_one(r, store, &entries.list[i]);
	return 0;
}

void gantry_verb_image_list(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			    struct gantry_answer *r)
{
	Gantry__Admin__ImageList *list = gantry_answer_take(r, sizeof(*list));
	struct gantry_err err = GANTRY_ERR_NONE;
	int code = 0;

	(void)q;
	gantry__admin__image_list__init(list);
	list->images = gantry_answer_take(r, LISTED_MAX * sizeof(*list->images));
	for (uint32_t i = 0; i < a->ndevices; i++) {
		struct gantry_agent_device *d = &a->devices[i];
		struct gantry_image_store store = { d,
						    d->used ? gantry_images_dir(&d->conf) : NULL };

		if (store.dir && code == 0)
			code = list_store(a, &store, r, list, &err);
	}
	if (code < 0) {
		gantry_image_store_refuse(r, code, &err);
		return;
	}
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_IMAGES;
	r->msg.images = list;
}

/* ---- remove ---- */

static struct gantry_image_entry *find_named(const struct gantry_image_entries *entries,
					     const char *name)
{
	for (uint32_t i = 0; i < entries->n; i++)
		if (entries->list[i].bitstream &&
		    strcmp(entries->list[i].bitstream->name, name) == 0)
			return &entries->list[i];
	return NULL;
}

static bool names_file(const struct gantry_image_entry *entry, const char *file)
{
	for (uint32_t place = 0; entry->bitstream && place < GANTRY_BOARD_NPLACES; place++)
		if (strcmp(entry->bitstream->files[place].name, file) == 0)
			return true;
	return false;
}

/* The manifest first: nothing names what is gone then. Files that came by hand may be others' too. */
int gantry_image_store_remove(const struct gantry_image_store *store,
			      const struct gantry_image_entries *entries,
			      const struct gantry_image_entry *removed, struct gantry_err *err)
{
	_cleanup_close_ int dir_fd = open(store->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char mark[NAME_MAX + 1];

	if (dir_fd < 0 || unlinkat(dir_fd, removed->file, 0) < 0)
		return gantry_err_set_errno(err, -errno, "removing %s", removed->file);
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++) {
		const char *file = removed->bitstream->files[place].name;
		bool is_shared = !file[0];

		for (uint32_t i = 0; i < entries->n; i++)
			is_shared = is_shared || (&entries->list[i] != removed &&
						  names_file(&entries->list[i], file));
		if (!is_shared)
			(void)unlinkat(dir_fd, file, 0); /* gone already for another place */
	}
	if (gantry_str_format(mark, sizeof(mark), "%s" GANTRY_BITSTREAM_LEAVING, removed->file) ==
	    0)
		(void)unlinkat(dir_fd, mark, 0); /* mostly there is none */
	return 0;
}

/* It is used, or may be: it leaves. Who asks again is told the same again. */
static int let_leave(struct gantry_agent *a, const struct gantry_image_store *store,
		     struct gantry_image_entry *entry, struct gantry_answer *r,
		     struct gantry_err *err)
{
	Gantry__Admin__ImageList *list = gantry_answer_take(r, sizeof(*list));
	int code = gantry_image_leave(a, store, entry, true, err);

	if (code < 0)
		return code;
	entry->leaving = true;
	gantry__admin__image_list__init(list);
	list->images = gantry_answer_take(r, sizeof(*list->images));
	list->images[list->n_images++] = list_one(r, store, entry);
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_IMAGES;
	r->msg.images = list;
	return 0;
}

static int stay(struct gantry_agent *a, const struct gantry_image_store *store,
		const struct gantry_image_entry *entry, struct gantry_err *err)
{
	if (!entry->leaving)
		return gantry_err_set(err, -EINVAL, "image %s is not being removed",
				      entry->bitstream->name);
	return gantry_image_leave(a, store, entry, false, err);
}

static int remove_image(struct gantry_agent *a, const Gantry__Admin__ImageName *ask,
			struct gantry_answer *r, struct gantry_err *err)
{
	_cleanup_(gantry_image_entries_free) struct gantry_image_entries entries = { 0 };
	struct gantry_image_entry *entry;
	struct gantry_image_store store;
	int code = gantry_image_store_find(a, ask->device, &store, err);

	if (code == 0)
		code = gantry_image_store_read(&store, &entries, err);
	if (code < 0)
		return code;
	entry = find_named(&entries, ask->name);
	if (!entry)
		return gantry_err_set(err, -ENOENT, "device %s has no image %.31s",
				      store.device->conf.name, ask->name);
	if (ask->cancel)
		return stay(a, &store, entry, err);
	code = gantry_image_users_count(a, &store, &entries, err);
	if (code < 0)
		return code;
	if (!ask->now && entry->nusers > 0)
		return let_leave(a, &store, entry, r, err);
	code = gantry_image_store_remove(&store, &entries, entry, err);
	if (code == 0)
		gantry_event(a, "image-removed", NULL, NULL, NULL, "image %s of device %s%s",
			     entry->bitstream->name, store.device->conf.name,
			     entry->nusers > 0 ? ", at once" : "");
	gantry_kernels_rescan(a);
	return code;
}

void gantry_verb_image_remove(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			      struct gantry_answer *r)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int code = remove_image(a, q->image_remove, r, &err);

	if (code < 0)
		gantry_image_store_refuse(r, code, &err);
}
