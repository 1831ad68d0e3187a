/* SPDX-License-Identifier: Apache-2.0 */
/* Installed kernels: found by name, loaded on each device at first use, kept for the engine's life. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "host-agent/worker/image.h"

struct image_entry {
	struct gantry_list link;
	char *path;
	struct gantry_image *image;
};

/* The path that was a kernel's image before. */
struct old_path {
	struct gantry_list link;
	char *path;
};

int worker_modules_open(struct gantry_engine *e, const struct gantry_engine_conf *conf,
			struct gantry_err *err)
{
	gantry_store_relaxed(&e->ndrains, 1u);
	gantry_store_relaxed(&e->images_turn, 1u);
	for (uint32_t i = 0; i < conf->nmodule_dirs; i++) {
		int r;

		if (e->nmodules == WORKER_MAX_MODULE_DIRS)
			return gantry_err_set(err, -E2BIG, "more than %u module folders",
					      WORKER_MAX_MODULE_DIRS);
		r = gantry_modules_open(conf->module_dirs[i], NULL, NULL, &e->modules[e->nmodules],
					err);
		if (r < 0)
			return gantry_err_wrap(err, r, "module folder %s", conf->module_dirs[i]);
		e->nmodules++;
	}
	return 0;
}

static void kernel_free(struct wkernel *k)
{
	if (!k)
		return;
	for (uint32_t i = 0; i < GANTRY_NKINDS; i++)
		free(k->image_paths[i]);
	gantry_list_for_each_safe(&k->old_paths, struct old_path, link, old) {
		free(old->path);
		free(old);
	}
	free(k->module);
	free(k->name);
	free(k->tenant);
	free(k->sig_text);
	free(k);
}

void worker_modules_free(struct gantry_engine *e)
{
	gantry_list_for_each_safe(&e->kernels, struct wkernel, link, k)
		kernel_free(k);
	for (uint32_t i = 0; i < e->nmodules; i++)
		gantry_modules_close(e->modules[i]);
}

/* A module of another tenant is not there. */
static bool is_for(const struct gantry_module *m, const char *tenant)
{
	return !m->manifest->tenant || strcmp(m->manifest->tenant, tenant) == 0;
}

/* Takes from module @m what it has for @k; the first module to name an image for a kind provides it. */
static int kernel_add(struct wkernel *k, const char *tenant, const struct gantry_module *m)
{
	const struct gantry_kernel_def *def = gantry_manifest_find(m->manifest, k->name);

	if (!def)
		return 0;
	/* Others may find something else by this name, or nothing. */
	if (m->manifest->tenant && !k->tenant) {
		k->tenant = strdup(tenant);
		if (!k->tenant)
			return -ENOMEM;
	}
	if (!is_for(m, tenant))
		return 0;
	if (!k->sig_text) {
		k->sig_text = strdup(def->sig_text);
		k->module = strdup(m->manifest->module);
		k->sig = def->sig;
		k->flags = def->flags;
		if (!k->sig_text || !k->module)
			return -ENOMEM;
	} else if (strcmp(k->sig_text, def->sig_text) != 0) {
		return 0; /* another kernel of the same name: reachable through its own module only */
	}
	for (uint32_t kind = 0; kind < GANTRY_NKINDS; kind++) {
		if (!m->images[kind] || k->image_paths[kind])
			continue;
		k->image_paths[kind] = strdup(m->images[kind]);
		if (!k->image_paths[kind])
			return -ENOMEM;
	}
	return 0;
}

/* @leaving: also of images that are about to go. */
static struct wkernel *kernel_make_locked(struct gantry_engine *e, const char *tenant,
					  const char *module, const char *name, bool leaving)
{
	struct wkernel *k = calloc(1, sizeof(*k));
	const struct gantry_module *m;

	if (!k)
		return NULL;
	gantry_list_init(&k->link);
	gantry_list_init(&k->old_paths);
	k->any_module = module == NULL;
	k->name = strdup(name);
	for (uint32_t i = 0; k->name && i < e->nmodules; i++) {
		for (unsigned int n = 0; (m = gantry_modules_at(e->modules[i], n)); n++) {
			if ((m->leaving && !leaving) ||
			    (module && strcmp(m->manifest->module, module) != 0))
				continue;
			if (kernel_add(k, tenant, m) == 0)
				continue;
			kernel_free(k);
			return NULL;
		}
	}
	if (k->sig_text)
		return k;
	kernel_free(k);
	return NULL;
}

/* ---- boards of several models ---- */

#define MAX_CHOICES \
	8u /* images of one board that have a kernel; the board knows the others when it has one */

static bool has_kernel(const struct gantry_module *m, const struct wkernel *k)
{
	const struct gantry_kernel_def *def = gantry_manifest_find(m->manifest, k->name);

	return def && m->images[GANTRY_KIND_FPGA] && is_for(m, k->tenant ? k->tenant : "") &&
	       (k->any_module || strcmp(m->manifest->module, k->module) == 0) &&
	       strcmp(def->sig_text, k->sig_text) == 0;
}

/* What images are made for may be cut short there; a board refuses what is not its own. */
static bool is_for_board(const struct gantry_module *m, const struct wdevice *d)
{
	const struct gantry_device_info *info = &d->device.info;

	return info->kind == GANTRY_KIND_FPGA &&
	       (!m->board || strncmp(m->board, info->arch, sizeof(info->arch) - 1) == 0);
}

static void find_boards_locked(struct gantry_engine *e, struct wkernel *k)
{
	const struct gantry_module *m;
	uint32_t boards = 0;

	for (uint32_t i = 0; i < e->nmodules; i++)
		for (unsigned int n = 0; (m = gantry_modules_at(e->modules[i], n)); n++)
			for (uint32_t d = 0; has_kernel(m, k) && d < e->ndevices; d++)
				boards |= is_for_board(m, e->devices[d]) ? 1u << d : 0;
	gantry_store_relaxed(&k->boards, boards);
}

/* Copies of paths of images that device @d may have for the kernel, the one that others use first; how many. */
static uint32_t choose_images(struct wdevice *d, struct wkernel *k, char **ret_paths)
{
	struct gantry_engine *e = d->engine;
	const struct gantry_module *m;
	uint32_t count = 0;

	pthread_mutex_lock(&e->module_lock);
	for (int leaving = 0; leaving < 2; leaving++)
		for (uint32_t i = 0; i < e->nmodules; i++)
			for (unsigned int n = 0; (m = gantry_modules_at(e->modules[i], n)); n++)
				if (count < MAX_CHOICES && m->leaving == leaving &&
				    has_kernel(m, k) && is_for_board(m, d))
					ret_paths[count++] = strdup(m->images[GANTRY_KIND_FPGA]);
	pthread_mutex_unlock(&e->module_lock);
	return count;
}

/* ---- images that leave ---- */

/* A module that stays, with the kernel as @k has it, for all who have @k. */
static const struct gantry_module *staying_locked(const struct gantry_engine *e,
						  const struct wkernel *k)
{
	const struct gantry_module *m;

	for (uint32_t i = 0; i < e->nmodules; i++)
		for (unsigned int n = 0; (m = gantry_modules_at(e->modules[i], n)); n++)
			if (!m->leaving && has_kernel(m, k))
				return m;
	return NULL;
}

/* The image that it was found in may go while another has the kernel; which of a board's images runs it is not asked here. */
static void change_path(struct wkernel *k, const char *path)
{
	char *before = k->image_paths[GANTRY_KIND_FPGA];
	struct old_path *old;
	char *now;

	if (strcmp(before, path) == 0)
		return;
	old = malloc(sizeof(*old));
	now = strdup(path);
	if (!old || !now) { /* as it was: it works where it was used before */
		free(old);
		free(now);
		return;
	}
	old->path = before;
	gantry_list_push_back(&k->old_paths, &old->link);
	/* Release: pairs with the acquire in worker_kernel_on(). */
	gantry_store_release(&k->image_paths[GANTRY_KIND_FPGA], now);
}

/* Kernels of boards that no image has any more, but those that leave, leave; true: some have begun to. */
static bool see_leaving_locked(struct gantry_engine *e, struct wkernel *k)
{
	const struct gantry_module *m;
	uint32_t leaves = gantry_load_relaxed(&k->leaves);

	if (!k->image_paths[GANTRY_KIND_FPGA])
		return false;
	find_boards_locked(e, k);
	m = staying_locked(e, k);
	if (m)
		change_path(k, m->images[GANTRY_KIND_FPGA]);
	if (!m == !!leaves)
		return false;
	/* Release: pairs with the acquire in worker_kernel_came_too_late(). */
	gantry_store_release(&k->leaves, m ? 0 : gantry_load_relaxed(&e->ndrains) + 1);
	return m == NULL;
}

static void look_for_leaving_locked(struct gantry_engine *e)
{
	bool any = false;

	gantry_list_for_each(&e->kernels, struct wkernel, link, k)
		any = see_leaving_locked(e, k) || any;
	/* Release: pairs with the acquire in worker_queue_hear_of_drains(). */
	if (any)
		gantry_store_release(&e->ndrains, gantry_load_relaxed(&e->ndrains) + 1);
}

int worker_modules_rescan(struct gantry_engine *e, struct gantry_err *err)
{
	int r = 0;

	pthread_mutex_lock(&e->module_lock);
	for (uint32_t i = 0; i < e->nmodules && r >= 0; i++)
		r = gantry_modules_rescan(e->modules[i], NULL, NULL, err);
	look_for_leaving_locked(e);
	/* Release: who sees it finds what was found just now. */
	gantry_store_release(&e->images_turn, gantry_load_relaxed(&e->images_turn) + 1);
	pthread_mutex_unlock(&e->module_lock);
	return r < 0 ? r : 0;
}

static void hear_of(struct wqueue *q, uint32_t drain)
{
	if (q->drain_seen >= drain)
		return;
	q->drain_seen = drain;
	q->accepted_below = q->led->taken;
}

void worker_queue_hear_of_drains(struct wqueue *q)
{
	hear_of(q, gantry_load_acquire(&q->session->engine->ndrains));
}

bool worker_kernel_came_too_late(const struct wkernel *k, struct wqueue *q, uint32_t kind)
{
	uint32_t leaves = kind == GANTRY_KIND_FPGA ? gantry_load_acquire(&k->leaves) : 0;

	if (leaves == 0)
		return false;
	hear_of(q, leaves);
	return q->led->issued >= q->accepted_below;
}

/* ---- finding ---- */

static struct wkernel *find_locked(struct gantry_engine *e, const char *tenant, const char *module,
				   const char *name, bool leaving)
{
	struct wkernel *k;

	gantry_list_for_each(&e->kernels, struct wkernel, link, known)
		if (strcmp(known->name, name) == 0 &&
		    (!known->tenant || strcmp(known->tenant, tenant) == 0) &&
		    (leaving || !gantry_load_relaxed(&known->leaves)) &&
		    (module ? !known->any_module && strcmp(known->module, module) == 0
			    : known->any_module))
			return known;
	k = kernel_make_locked(e, tenant, module, name, leaving);
	if (k) {
		gantry_list_push_back(&e->kernels, &k->link);
		find_boards_locked(e, k);
		if (k->image_paths[GANTRY_KIND_FPGA] && !staying_locked(e, k))
			gantry_store_release(&k->leaves, gantry_load_relaxed(&e->ndrains));
	}
	return k;
}

struct wkernel *worker_kernel_find(struct gantry_engine *e, const char *tenant, const char *module,
				   const char *name)
{
	struct wkernel *k;

	pthread_mutex_lock(&e->module_lock);
	k = find_locked(e, tenant, module, name, false);
	pthread_mutex_unlock(&e->module_lock);
	return k;
}

struct wkernel *worker_kernel_find_again(struct gantry_engine *e, const char *tenant,
					 const char *module, const char *name)
{
	struct wkernel *k;

	pthread_mutex_lock(&e->module_lock);
	k = find_locked(e, tenant, module, name, false);
	if (!k)
		k = find_locked(e, tenant, module, name, true);
	pthread_mutex_unlock(&e->module_lock);
	return k;
}

bool worker_kernel_is_leaving(struct gantry_engine *e, const char *tenant, const char *module,
			      const char *name)
{
	const struct gantry_module *m;
	bool found = false;

	pthread_mutex_lock(&e->module_lock);
	for (uint32_t i = 0; i < e->nmodules; i++)
		for (unsigned int n = 0; (m = gantry_modules_at(e->modules[i], n)); n++)
			found = found || (m->leaving && is_for(m, tenant) &&
					  (!module || strcmp(m->manifest->module, module) == 0) &&
					  gantry_manifest_find(m->manifest, name));
	pthread_mutex_unlock(&e->module_lock);
	return found;
}

void worker_kernels_each(struct gantry_engine *e, const char *tenant, uint32_t kind,
			 void (*fn)(void *cookie, const char *name, const char *sig), void *cookie)
{
	const struct gantry_module *m;

	pthread_mutex_lock(&e->module_lock);
	for (uint32_t i = 0; i < e->nmodules; i++)
		for (unsigned int n = 0; (m = gantry_modules_at(e->modules[i], n)); n++)
			for (uint32_t k = 0; m->images[kind] && !m->leaving && is_for(m, tenant) &&
					     k < m->manifest->nkernels;
			     k++)
				fn(cookie, m->manifest->kernels[k].name,
				   m->manifest->kernels[k].sig_text);
	pthread_mutex_unlock(&e->module_lock);
}

uint64_t worker_kernel_sig_hash(const struct wkernel *k)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (const char *c = k->sig_text; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 0x100000001b3ull;
	return hash;
}

bool worker_module_exists(struct gantry_engine *e, const char *tenant, const char *module)
{
	const struct gantry_module *m;
	bool exists = false;

	pthread_mutex_lock(&e->module_lock);
	for (uint32_t i = 0; i < e->nmodules; i++)
		for (unsigned int n = 0; (m = gantry_modules_at(e->modules[i], n)); n++)
			exists = exists ||
				 (is_for(m, tenant) && strcmp(m->manifest->module, module) == 0);
	pthread_mutex_unlock(&e->module_lock);
	return exists;
}

/* What the device said of an image or of a kernel in it; all else may be over the next time. */
static bool is_final(int r)
{
	return r == -ENOEXEC || r == -ENOENT || r == -EINVAL || r == -ENOTSUP;
}

/* *@ret_final, on failure: whether the device will say so as long as there is no other image. */
static int image_on(struct wdevice *d, const char *path, struct gantry_image **ret_image,
		    bool *ret_final)
{
	struct image_entry *entry;
	struct gantry_err err;
	int r;

	*ret_final = false;
	gantry_list_for_each(&d->images, struct image_entry, link, known)
		if (strcmp(known->path, path) == 0) {
			*ret_image = known->image;
			return GANTRY_OK;
		}
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return GANTRY_E_NO_MEMORY;
	gantry_list_init(&entry->link);
	entry->path = strdup(path);
	r = entry->path ? d->device.backend->image_load(d->device.dev, path, NULL, 0, &entry->image,
							&err)
			: -ENOMEM;
	if (r < 0) {
		*ret_final = is_final(r);
		free(entry->path);
		free(entry);
		return GANTRY_E_IMAGE;
	}
	gantry_list_push_back(&d->images, &entry->link);
	*ret_image = entry->image;
	return GANTRY_OK;
}

void worker_images_free(struct wdevice *d)
{
	gantry_list_for_each_safe(&d->images, struct image_entry, link, entry) {
		d->device.backend->image_unload(entry->image);
		free(entry->path);
		free(entry);
	}
}

static int form_of(struct wdevice *d, struct wkernel *k, const char *path, bool *ret_final)
{
	struct gantry_image *image;
	struct gantry_err err;
	int status = image_on(d, path, &image, ret_final);
	int r;

	if (status != GANTRY_OK)
		return status;
	r = d->device.backend->kernel_get(image, k->name, &k->sig, &k->on[d->index], &err);
	*ret_final = is_final(r);
	return r < 0 ? GANTRY_E_NO_KERNEL : GANTRY_OK;
}

/* Of a board: from the first of its images that it takes. */
static int choose_form(struct wdevice *d, struct wkernel *k, const char *path, bool *ret_final)
{
	int status = GANTRY_E_NO_KERNEL;
	bool final = true;
	char *paths[MAX_CHOICES];
	uint32_t count;

	if (gantry_load_relaxed(&k->boards) >> d->index & 1) {
		count = choose_images(d, k, paths);
		for (uint32_t i = 0; i < count; i++) {
			if (status != GANTRY_OK)
				status = paths[i] ? form_of(d, k, paths[i], &final)
						  : GANTRY_E_NO_MEMORY;
			*ret_final = *ret_final && final && paths[i];
			free(paths[i]);
		}
		/* They may all be gone, and the board have one of them still. */
		if (count > 0)
			return status;
	} else if (gantry_load_relaxed(&k->boards)) {
		return status; /* another model's */
	}
	return form_of(d, k, path, ret_final);
}

/* What it has said of all images there are is not asked again for each task, until there may be others. */
static int form_of_board(struct wdevice *d, struct wkernel *k, const char *path)
{
	/* Acquire: pairs with the release in worker_modules_rescan(); before the look, so that what comes meanwhile is looked at. */
	uint32_t turn = gantry_load_acquire(&d->engine->images_turn);
	bool final = true;
	int status;

	if (k->none_at[d->index] == turn && turn > 0)
		return k->none_status[d->index];
	status = choose_form(d, k, path, &final);
	k->none_status[d->index] = status;
	k->none_at[d->index] = status != GANTRY_OK && final ? turn : 0;
	return status;
}

int worker_kernel_on(struct wdevice *d, struct wkernel *k, struct gantry_kernel **ret_kernel)
{
	/* Acquire: pairs with the release in change_path(). */
	const char *path = gantry_load_acquire(&k->image_paths[d->device.info.kind]);
	struct gantry_err err;
	bool final;
	int status;

	if (k->image)
		return worker_image_kernel_on(d, k, ret_kernel, &err);
	if (!k->on[d->index]) {
		if (!path)
			return GANTRY_E_NO_DEVICE;
		status = d->device.info.kind == GANTRY_KIND_FPGA ? form_of_board(d, k, path)
								 : form_of(d, k, path, &final);
		if (status != GANTRY_OK)
			return status;
	}
	*ret_kernel = k->on[d->index];
	return GANTRY_OK;
}

bool worker_kernel_has_form(const struct wsession *s, uint32_t slot, const struct wdevice *d)
{
	const struct wobject *rt = &s->objects[slot % GANTRY_LEDGER_NOBJECTS];
	uint32_t kind = d->device.info.kind;
	/* Acquire: pairs with the release where a kernel or a variant is made. */
	const struct wkernel *k = gantry_load_acquire(&rt->kernel[kind]);

	if (!k)
		k = gantry_load_acquire(&rt->kernel[0]);
	if (!k)
		return false;
	if (k->image)
		return k->image->kind == kind;
	return gantry_load_relaxed(&k->image_paths[kind]) &&
	       (kind != GANTRY_KIND_FPGA || (!gantry_load_relaxed(&k->leaves) &&
					     (gantry_load_relaxed(&k->boards) >> d->index & 1)));
}
