/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/modules.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "devices/board/bitstream.h"

#define SUFFIX	  ".manifest"
#define BITSTREAM ".bitstream"

/* What tells one content of a file from another without reading it. */
struct print {
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime;
	struct timespec ctime;
};

/* A manifest file; its module is NULL while it never was acceptable. */
struct entry {
	char *file;
	bool refused; /* as last seen */
	struct print manifest_print;
	struct print image_prints[GANTRY_NKINDS];
	struct gantry_module *module;
};

struct gantry_modules {
	char *directory;
	unsigned int nentries;
	struct entry entries[GANTRY_MODULES_MAX]; /* by file name */
};

/* A scan under way. */
struct scan {
	struct gantry_modules *modules;
	int dir_fd;
	gantry_module_changed *changed;
	void *arg;
	int nchanges;
};

static void module_free(struct gantry_module *module)
{
	if (!module)
		return;
	for (unsigned int kind = 0; kind < GANTRY_NKINDS; kind++)
		free(module->images[kind]);
	free(module->board);
	gantry_manifest_free(module->manifest);
	free(module);
}
GANTRY_DEFINE_CLEANUP(struct gantry_module *, module_free);

static void print_of(const struct stat *st, struct print *ret_print)
{
	/* memcmp() compares prints, so the padding counts. */
	memset(ret_print, 0, sizeof(*ret_print));
	ret_print->dev = st->st_dev;
	ret_print->ino = st->st_ino;
	ret_print->size = st->st_size;
	ret_print->mtime = st->st_mtim;
	ret_print->ctime = st->st_ctim;
}

static int check_file(const struct stat *st, const char *file, struct gantry_err *err)
{
	if (!S_ISREG(st->st_mode))
		return gantry_err_set(err, -EPERM, "%s: not a regular file", file);
	if (st->st_mode & S_IWOTH)
		return gantry_err_set(err, -EPERM, "%s: everybody may write to it", file);
	return 0;
}

static bool ends_in(const char *file, const char *suffix)
{
	size_t len = strlen(file);

	return len > strlen(suffix) && strcmp(file + len - strlen(suffix), suffix) == 0;
}

/* The manifest of a board's image is that of a module with its kernels. */
static int parse_text(const char *file, const char *text, size_t len,
		      struct gantry_manifest **ret_manifest, struct gantry_err *err)
{
	_cleanup_free_ struct gantry_bitstream *bitstream = NULL;
	_cleanup_free_ char *module = NULL;
	int r;

	if (!ends_in(file, BITSTREAM))
		return gantry_manifest_parse(text, len, ret_manifest, err);
	r = gantry_bitstream_parse(text, len, &bitstream, err);
	if (r < 0)
		return r;
	module = gantry_bitstream_module(bitstream, file);
	if (!module)
		return gantry_err_set(err, -ENOMEM, "no memory");
	return gantry_manifest_parse(module, strlen(module), ret_manifest, err);
}

static int read_manifest(int dir_fd, const char *file, struct print *ret_print,
			 struct gantry_manifest **ret_manifest, struct gantry_err *err)
{
	_cleanup_close_ int fd = -EBADF;
	_cleanup_free_ char *text = NULL;
	struct stat st;
	int r;

	/* NONBLOCK: opening a FIFO of that name must not hang. */
	fd = openat(dir_fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return gantry_err_set_errno(err, -errno, "%s", file);
	r = check_file(&st, file, err);
	if (r < 0)
		return r;
	if (st.st_size > GANTRY_MANIFEST_MAX_BYTES)
		return gantry_err_set(err, -EFBIG, "%s: more than %u bytes", file,
				      GANTRY_MANIFEST_MAX_BYTES);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return gantry_err_set(err, -ENOMEM, "%s: no memory", file);
	r = gantry_read_all(fd, text, (size_t)st.st_size);
	if (r < 0)
		return gantry_err_set_errno(err, r, "%s", file);
	r = parse_text(file, text, (size_t)st.st_size, ret_manifest, err);
	if (r < 0)
		return gantry_err_wrap(err, r, "%s", file);
	print_of(&st, ret_print);
	return 0;
}

static int resolve_image(struct scan *scan, const char *file, struct print *ret_print,
			 char **ret_path, struct gantry_err *err)
{
	struct stat st;
	char *path;
	int r;

	if (fstatat(scan->dir_fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return gantry_err_set_errno(err, -errno, "image %s", file);
	r = check_file(&st, file, err);
	if (r < 0)
		return gantry_err_wrap(err, r, "image");
	if (asprintf(&path, "%s/%s", scan->modules->directory, file) < 0)
		return gantry_err_set(err, -ENOMEM, "no memory");
	print_of(&st, ret_print);
	*ret_path = path;
	return 0;
}

/* What cannot be read shows when the board is to have it. */
static int take_board(struct gantry_module *module, struct gantry_err *err)
{
	_cleanup_free_ struct gantry_bitstream *bitstream = NULL;

	if (!module->images[GANTRY_KIND_FPGA] ||
	    gantry_bitstream_read(module->images[GANTRY_KIND_FPGA], &bitstream, NULL) < 0)
		return 0;
	module->board = strdup(bitstream->board);
	return module->board ? 0 : gantry_err_set(err, -ENOMEM, "no memory");
}

/* Reads what @entry's file says now; its prints are of what was read, also when that is refused. */
static int load(struct scan *scan, struct entry *entry, struct gantry_module **ret_module,
		struct gantry_err *err)
{
	_cleanup_(module_freep) struct gantry_module *module = calloc(1, sizeof(*module));
	int r;

	if (!module)
		return gantry_err_set(err, -ENOMEM, "%s: no memory", entry->file);
	r = read_manifest(scan->dir_fd, entry->file, &entry->manifest_print, &module->manifest,
			  err);
	if (r < 0)
		return r;
	memset(entry->image_prints, 0, sizeof(entry->image_prints));
	for (unsigned int kind = 0; kind < GANTRY_NKINDS; kind++) {
		if (!module->manifest->images[kind])
			continue;
		r = resolve_image(scan, module->manifest->images[kind], &entry->image_prints[kind],
				  &module->images[kind], err);
		if (r < 0)
			return gantry_err_wrap(err, r, "%s", entry->file);
	}
	r = take_board(module, err);
	if (r < 0)
		return gantry_err_wrap(err, r, "%s", entry->file);
	*ret_module = GANTRY_TAKE_PTR(module);
	return 0;
}

/*
 * One name, one meaning: over all modules a kernel has one signature, and a module's name is its
 * own.
 */
static int check_against_others(const struct gantry_modules *modules, const struct entry *self,
				const struct gantry_manifest *manifest, struct gantry_err *err)
{
	for (unsigned int i = 0; i < modules->nentries; i++) {
		const struct entry *other = &modules->entries[i];
		const struct gantry_manifest *theirs;

		if (other == self || !other->module)
			continue;
		theirs = other->module->manifest;
		if (strcmp(theirs->module, manifest->module) == 0)
			return gantry_err_set(err, -EEXIST, "%s: %s is module %s already",
					      self->file, other->file, manifest->module);
		for (uint32_t k = 0; k < manifest->nkernels; k++) {
			const struct gantry_kernel_def *mine = &manifest->kernels[k];
			const struct gantry_kernel_def *same = gantry_manifest_find(theirs,
										    mine->name);

			if (same && strcmp(same->sig_text, mine->sig_text) != 0)
				return gantry_err_set(err, -EEXIST,
						      "%s: kernel %s has another signature in %s",
						      self->file, mine->name, other->file);
		}
	}
	return 0;
}

static bool same_file(int dir_fd, const char *file, const struct print *print)
{
	struct print now;
	struct stat st;

	if (fstatat(dir_fd, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	print_of(&st, &now);
	return memcmp(&now, print, sizeof(now)) == 0;
}

static bool unchanged(const struct scan *scan, const struct entry *entry)
{
	const struct gantry_manifest *manifest;

	if (!same_file(scan->dir_fd, entry->file, &entry->manifest_print))
		return false;
	/* What made a refused one unacceptable may lie elsewhere: it is always read again. */
	if (entry->refused)
		return false;
	manifest = entry->module->manifest;
	for (unsigned int kind = 0; kind < GANTRY_NKINDS; kind++)
		if (manifest->images[kind] &&
		    !same_file(scan->dir_fd, manifest->images[kind], &entry->image_prints[kind]))
			return false;
	return true;
}

/* A file beside the manifest says so. */
static bool is_leaving(const struct scan *scan, const struct entry *entry)
{
	char mark[NAME_MAX + 1];

	return ends_in(entry->file, BITSTREAM) &&
	       gantry_str_format(mark, sizeof(mark), "%s" GANTRY_BITSTREAM_LEAVING, entry->file) ==
		       0 &&
	       faccessat(scan->dir_fd, mark, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Whether it leaves by now, or stays after all. */
static void look_for_mark(struct scan *scan, struct entry *entry)
{
	bool leaving = is_leaving(scan, entry);

	if (!entry->module || entry->module->leaving == leaving)
		return;
	entry->module->leaving = leaving;
	scan->nchanges++;
}

static void tell(struct scan *scan, const struct entry *entry, enum gantry_module_change_kind kind,
		 const struct gantry_err *err)
{
	struct gantry_module_change change = { .kind = kind };

	scan->nchanges++;
	if (!scan->changed)
		return;
	(void)gantry_str_copy(change.file, sizeof(change.file), entry->file); /* may be cut short */
	if (err)
		change.err = *err;
	scan->changed(scan->arg, &change);
}

static void scan_entry(struct scan *scan, struct entry *entry)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_module *module = NULL;
	struct print before = entry->manifest_print;
	int r;

	if (unchanged(scan, entry))
		return;
	r = load(scan, entry, &module, &err);
	if (r == 0)
		r = check_against_others(scan->modules, entry, module->manifest, &err);
	if (r < 0) {
		module_free(module);
		/* The same refusal of the same bytes is old news. */
		if (!entry->refused || memcmp(&before, &entry->manifest_print, sizeof(before)) != 0)
			tell(scan, entry, GANTRY_MODULE_REFUSED, &err);
		entry->refused = true;
		return;
	}
	tell(scan, entry, entry->module ? GANTRY_MODULE_CHANGED : GANTRY_MODULE_ADDED, NULL);
	module_free(entry->module);
	entry->module = module;
	entry->refused = false;
}

static void entry_fini(struct entry *entry)
{
	module_free(entry->module);
	free(entry->file);
}

static void drop_entry(struct scan *scan, unsigned int idx)
{
	struct gantry_modules *modules = scan->modules;

	if (modules->entries[idx].module || modules->entries[idx].refused)
		tell(scan, &modules->entries[idx], GANTRY_MODULE_REMOVED, NULL);
	entry_fini(&modules->entries[idx]);
	modules->nentries--;
	memmove(&modules->entries[idx], &modules->entries[idx + 1],
		(modules->nentries - idx) * sizeof(modules->entries[0]));
}

/*
 * The entry of @file, made where it is missing; NULL: no memory. The caller has checked the count.
 */
static struct entry *entry_of(struct gantry_modules *modules, const char *file)
{
	unsigned int idx = 0;
	char *copy;

	while (idx < modules->nentries && strcmp(modules->entries[idx].file, file) < 0)
		idx++;
	if (idx < modules->nentries && strcmp(modules->entries[idx].file, file) == 0)
		return &modules->entries[idx];
	copy = strdup(file);
	if (!copy)
		return NULL;
	memmove(&modules->entries[idx + 1], &modules->entries[idx],
		(modules->nentries - idx) * sizeof(modules->entries[0]));
	modules->entries[idx] = (struct entry){ .file = copy };
	modules->nentries++;
	return &modules->entries[idx];
}

static int is_manifest(const struct dirent *entry)
{
	return entry->d_name[0] != '.' &&
	       (ends_in(entry->d_name, SUFFIX) || ends_in(entry->d_name, BITSTREAM));
}

static void free_names(struct dirent **names, int count)
{
	for (int i = 0; i < count; i++)
		free(names[i]);
	free(names);
}

/* Drops the entries whose file is gone, then marks or makes one for each of @names. */
static int match_names(struct scan *scan, struct dirent **names, int count)
{
	struct gantry_modules *modules = scan->modules;

	for (unsigned int i = modules->nentries; i-- > 0;) {
		bool found = false;

		for (int n = 0; n < count && !found; n++)
			found = strcmp(names[n]->d_name, modules->entries[i].file) == 0;
		if (!found)
			drop_entry(scan, i);
	}
	for (int n = 0; n < count; n++)
		if (!entry_of(modules, names[n]->d_name))
			return -ENOMEM;
	return 0;
}

static int open_directory(const char *directory, int *ret_fd, struct gantry_err *err)
{
	_cleanup_close_ int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return gantry_err_set_errno(err, -errno, "module directory %s", directory);
	if (st.st_mode & S_IWOTH)
		return gantry_err_set(err, -EPERM, "module directory %s: everybody may write to it",
				      directory);
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

int gantry_modules_rescan(struct gantry_modules *modules, gantry_module_changed *changed, void *arg,
			  struct gantry_err *err)
{
	_cleanup_close_ int dir_fd = -EBADF;
	struct scan scan = { .modules = modules, .changed = changed, .arg = arg };
	struct dirent **names;
	int count, r;

	r = open_directory(modules->directory, &dir_fd, err);
	if (r < 0)
		return r;
	scan.dir_fd = dir_fd;
	count = scandirat(dir_fd, ".", &names, is_manifest, alphasort);
	if (count < 0)
		return gantry_err_set_errno(err, -errno, "module directory %s", modules->directory);
	if (count > (int)GANTRY_MODULES_MAX)
		r = gantry_err_set(err, -E2BIG, "module directory %s: more than %u manifests",
				   modules->directory, GANTRY_MODULES_MAX);
	if (r == 0 && match_names(&scan, names, count) < 0)
		r = gantry_err_set(err, -ENOMEM, "module directory %s: no memory",
				   modules->directory);
	free_names(names, count);
	if (r < 0)
		return r;
	for (unsigned int i = 0; i < modules->nentries; i++) {
		scan_entry(&scan, &modules->entries[i]);
		look_for_mark(&scan, &modules->entries[i]);
	}
	return scan.nchanges;
}

int gantry_modules_open(const char *directory, gantry_module_changed *changed, void *arg,
			struct gantry_modules **ret_modules, struct gantry_err *err)
{
	struct gantry_modules *modules = calloc(1, sizeof(*modules));
	int r;

	if (!modules)
		return gantry_err_set(err, -ENOMEM, "no memory for the modules");
	/* Absolute: paths of images go to other processes. */
	modules->directory = realpath(directory, NULL);
	if (!modules->directory)
		r = gantry_err_set_errno(err, -errno, "module directory %s", directory);
	else
		r = gantry_modules_rescan(modules, changed, arg, err);
	if (r < 0) {
		gantry_modules_close(modules);
		return r;
	}
	*ret_modules = modules;
	return 0;
}

void gantry_modules_close(struct gantry_modules *modules)
{
	if (!modules)
		return;
	for (unsigned int i = 0; i < modules->nentries; i++)
		entry_fini(&modules->entries[i]);
	free(modules->directory);
	free(modules);
}

const struct gantry_module *gantry_modules_at(const struct gantry_modules *modules,
					      unsigned int idx)
{
	for (unsigned int i = 0; i < modules->nentries; i++)
		if (modules->entries[i].module && idx-- == 0)
			return modules->entries[i].module;
	return NULL;
}

static bool has_image(const struct gantry_module *module, int kind)
{
	return kind == GANTRY_KIND_ANY ||
	       (kind > 0 && kind < GANTRY_NKINDS && module->images[kind]);
}

const struct gantry_module *gantry_modules_find(const struct gantry_modules *modules,
						const char *name, int kind,
						const struct gantry_kernel_def **ret_def)
{
	for (unsigned int i = 0; i < modules->nentries; i++) {
		const struct gantry_module *module = modules->entries[i].module;
		const struct gantry_kernel_def *def;

		if (!module || !has_image(module, kind))
			continue;
		def = gantry_manifest_find(module->manifest, name);
		if (!def)
			continue;
		if (ret_def)
			*ret_def = def;
		return module;
	}
	return NULL;
}
