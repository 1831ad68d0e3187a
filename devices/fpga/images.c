/* SPDX-License-Identifier: Apache-2.0 */
/* Images of the fpga backend: the bitstreams that the administrator has put into a directory, and the kernels that guests name. */
#include <assert.h>
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
#include "devices/fpga/fpga.h"

#define SUFFIX ".bitstream"

static int is_bitstream(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > strlen(SUFFIX) &&
	       strcmp(entry->d_name + len - strlen(SUFFIX), SUFFIX) == 0;
}

static void bitstream_fini(struct gantry_fpga_bitstream *b)
{
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		gantry_fd_close(b->files[place].fd);
	free(b->manifest);
	free(b->path);
}

/* The bitstream whose manifest is at @path, with its files, which lie beside that. The caller ends it, also after a failure. */
static int bitstream_read(const char *path, struct gantry_fpga_bitstream *b, struct gantry_err *err)
{
	const char *name = strrchr(path, '/');
	_cleanup_free_ char *directory = name ? strndup(path, (size_t)(name - path)) : NULL;
	int r;

	*b = (struct gantry_fpga_bitstream){ .path = strdup(path) };
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		b->files[place].fd = -1;
	if (!directory || !b->path)
		return gantry_err_set(err, -ENOMEM, "no memory for %.80s", path);
	r = gantry_bitstream_read(path, &b->manifest, err);
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES && r == 0; place++)
		if (gantry_bitstream_fits(b->manifest, place))
			r = gantry_bitstream_open_file(b->manifest, directory, place,
						       &b->files[place].fd, err);
	return r;
}

/* What its manifest says, in a driver's words; it stays where it is from now on. */
static void describe(struct gantry_fpga_bitstream *b)
{
	for (uint32_t k = 0; k < b->manifest->nkernels; k++) {
		const struct gantry_bitstream_kernel *from = &b->manifest->kernels[k];
		struct gantry_board_kernel *to = &b->kernels[k];

		*to = (struct gantry_board_kernel){ .name = from->name,
						    .window = from->window,
						    .units = from->units,
						    .nargs = from->sig.nargs };
		for (uint32_t i = 0; i < from->sig.nargs; i++)
			if (!from->sig.args[i].mode)
				to->arg_bytes[i] =
					(uint8_t)gantry_arg_type_bytes(from->sig.args[i].type);
		if (from->ndrange) /* there is room: its registers were counted */
			to->arg_bytes[to->nargs++] = GANTRY_BOARD_ARG_SHAPE;
	}
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		b->files[place] = (struct gantry_board_file){
			.image = b->manifest->name,
			.place = place == GANTRY_BOARD_WHOLE ? GANTRY_BOARD_PLACE_WHOLE : place,
			.fd = b->files[place].fd,
			.nkernels = b->manifest->nkernels,
			.kernels = b->kernels,
		};
}

static void bitstream_take(struct gantry_dev *dev, const struct gantry_fpga_bitstream *b)
{
	struct gantry_fpga_bitstream *place = &dev->bitstreams[dev->nbitstreams++];

	*place = *b;
	describe(place);
}

static int add_bitstream(struct gantry_dev *dev, const char *directory, const char *name,
			 struct gantry_err *err)
{
	struct gantry_fpga_bitstream b;
	char path[PATH_MAX];
	int r;

	if (dev->nbitstreams == GANTRY_BOARD_MAX_IMAGES)
		return gantry_err_set(err, -EINVAL, "more than %u bitstreams in %s",
				      GANTRY_BOARD_MAX_IMAGES, directory);
	if (gantry_str_format(path, sizeof(path), "%s/%s", directory, name) < 0)
		return gantry_err_set(err, -EINVAL, "%.80s: the path is too long", directory);
	r = bitstream_read(path, &b, err);
	if (r < 0)
		bitstream_fini(&b);
	else
		bitstream_take(dev, &b);
	return r;
}

int gantry_fpga_bitstreams_open(struct gantry_dev *dev, const char *directory,
				struct gantry_err *err)
{
	struct dirent **names;
	struct stat st;
	int count, r = 0;

	if (stat(directory, &st) < 0)
		return gantry_err_set_errno(err, -EINVAL, "images: %s", directory);
	if (st.st_mode & S_IWOTH)
		return gantry_err_set(err, -EINVAL, "images: everybody may write to %s", directory);
	count = scandir(directory, &names, is_bitstream, alphasort);
	if (count < 0)
		return gantry_err_set_errno(err, -EINVAL, "images: %s", directory);
	for (int i = 0; i < count; i++) {
		if (r == 0)
			r = add_bitstream(dev, directory, names[i]->d_name, err);
		free(names[i]);
	}
	free(names);
	if (r < 0)
		return gantry_err_wrap(err, r == -ENOMEM ? r : -EINVAL, "images");
	return 0; /* others may be registered later */
}

void gantry_fpga_bitstreams_close(struct gantry_dev *dev)
{
	for (uint32_t i = 0; i < dev->nbitstreams; i++)
		bitstream_fini(&dev->bitstreams[i]);
}

/* ---- more of them, while the board works ---- */

void gantry_fpga_adopt_locked(struct gantry_dev *dev)
{
	if (!dev->adding)
		return;
	dev->added = gantry_board_add(dev->board, dev->adding->manifest, dev->adding_err);
	if (dev->added >= 0)
		bitstream_take(dev, dev->adding);
	dev->adding = NULL;
	(void)pthread_cond_signal(&dev->done);
}

static bool same_content(const struct gantry_bitstream *a, const struct gantry_bitstream *b)
{
	return strcmp(a->name, b->name) == 0 && a->version == b->version &&
	       memcmp(a->files, b->files, sizeof(a->files)) == 0;
}

/* Does the board have the bitstream of @manifest? Entries that it has no more stay in the list, in front of newer ones. */
static bool is_known(const struct gantry_dev *dev, const struct gantry_bitstream *manifest)
{
	for (uint32_t i = 0; i < dev->nbitstreams; i++)
		if (!dev->bitstreams[i].gone && same_content(dev->bitstreams[i].manifest, manifest))
			return true;
	return false;
}

/* Has the board thread take the bitstream at @path, and waits for as long as the loading takes that it may be at. */
static int register_bitstream(struct gantry_dev *dev, const char *path, struct gantry_err *err)
{
	struct gantry_fpga_bitstream b;
	int r;

	if (!dev->driver->takes_later_files)
		return gantry_err_set(
			err, -ENOTSUP,
			"%s: driver %s takes a board's images when it opens the board, "
			"and has it open: the next worker there has this one",
			path, dev->driver->name);
	r = bitstream_read(path, &b, err);
	if (r < 0) {
		bitstream_fini(&b);
		return r;
	}
	(void)pthread_mutex_lock(&dev->lock);
	dev->adding = &b;
	dev->adding_err = err;
	gantry_fpga_wake(dev);
	while (dev->adding)
		(void)pthread_cond_wait(&dev->done, &dev->lock);
	r = dev->added;
	(void)pthread_mutex_unlock(&dev->lock);
	if (r < 0)
		bitstream_fini(&b);
	return r < 0 ? r : 0;
}

/* Another time it may be another answer: no word about the image. */
static bool may_pass(int r)
{
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EIO || r == -EAGAIN ||
	       r == -EINTR;
}

/*
 * The image of a module is the manifest of a bitstream of the board, which is registered if it is new; its kernels are those of the whole
 * board, and which bitstream has them is not a program's affair.
 */
static int know(struct gantry_dev *dev, const char *path, struct gantry_err *err)
{
	_cleanup_free_ struct gantry_bitstream *manifest = NULL;
	bool known;
	int r = gantry_bitstream_read(path, &manifest, err);

	if (r < 0)
		return may_pass(r) ? r : gantry_err_wrap(err, -ENOEXEC, "image");
	if (strcmp(manifest->board, dev->info.model) != 0)
		return gantry_err_set(err, -ENOEXEC, "image %s: it is for boards %s, not %s", path,
				      manifest->board, dev->info.model);
	(void)pthread_mutex_lock(&dev->lock);
	known = is_known(dev, manifest);
	(void)pthread_mutex_unlock(&dev->lock);
	r = known ? 0 : register_bitstream(dev, path, err);
	return r < 0 && !may_pass(r) ? gantry_err_wrap(err, -ENOEXEC, "image") : r;
}

int gantry_fpga_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			   size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	struct gantry_image *image;
	int r;

	assert(path && !bytes && nbytes == 0);
	r = know(dev, path, err);
	if (r < 0)
		return r;
	image = calloc(1, sizeof(*image));
	if (image)
		image->path = strdup(path);
	if (!image || !image->path) {
		free(image);
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	}
	image->dev = dev;
	gantry_list_init(&image->kernels);
	gantry_list_push_back(&dev->images, &image->link);
	*ret_image = image;
	return 0;
}

void gantry_fpga_image_unload(struct gantry_image *image)
{
	if (!image)
		return;
	gantry_list_for_each_safe(&image->kernels, struct gantry_kernel, link, kernel)
		free(kernel);
	gantry_list_remove(&image->link);
	free(image->path);
	free(image);
}

int gantry_fpga_kernel_get(struct gantry_image *image, const char *symbol,
			   const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			   struct gantry_err *err)
{
	struct gantry_dev *dev = image->dev;
	struct gantry_kernel *kernel;
	bool same = false, ndrange = false;
	uint64_t max_items = 0;
	int number, r;

	/* Under its name there may be another bitstream by now, with other kernels. */
	r = know(dev, image->path, err);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&dev->lock);
	number = gantry_board_kernel(dev->board, symbol);
	if (number >= 0) {
		const struct gantry_bitstream_kernel *def =
			gantry_board_kernel_at(dev->board, (uint32_t)number);

		same = gantry_signature_same(&def->sig, sig);
		ndrange = def->ndrange;
		max_items = def->max_items;
	}
	(void)pthread_mutex_unlock(&dev->lock);
	if (number < 0)
		return gantry_err_set(err, -ENOENT, "no bitstream of the board has kernel %s",
				      symbol);
	if (!same)
		return gantry_err_set(err, -EINVAL,
				      "kernel %s has other arguments in its bitstream", symbol);
	kernel = calloc(1, sizeof(*kernel));
	if (!kernel)
		return gantry_err_set(err, -ENOMEM, "no memory for a kernel");
	kernel->sig = sig;
	kernel->number = (uint32_t)number;
	kernel->ndrange = ndrange;
	kernel->max_items = max_items;
	gantry_list_push_back(&image->kernels, &kernel->link);
	*ret_kernel = kernel;
	return 0;
}

/* ---- loading ---- */

/* A manifest that lies about its kernels is found out here, before a launch hangs. */
static int check_windows(struct gantry_dev *dev, uint32_t image, uint32_t place,
			 struct gantry_err *err)
{
	const struct gantry_bitstream *b = dev->bitstreams[image].manifest;
	struct gantry_board_unit unit = { .place = place, .image = image };

	for (unit.kernel = 0; unit.kernel < b->nkernels; unit.kernel++) {
		const struct gantry_bitstream_kernel *kernel = &b->kernels[unit.kernel];
		uint64_t expected = (uint64_t)GANTRY_BOARD_IDENTITY << 32 |
				    gantry_bitstream_registers(kernel);

		for (unit.unit = 0; unit.unit < kernel->units; unit.unit++) {
			uint64_t id = dev->driver->read(dev->handle, gantry_fpga_region_of(place),
							gantry_fpga_window_of(dev, &unit) +
								GANTRY_BOARD_ID);

			if (id != expected)
				return gantry_err_set(
					err, -EBADMSG,
					"window %u holds no kernel %s with %u arguments",
					kernel->window + unit.unit, kernel->name,
					kernel->sig.nargs);
		}
	}
	return 0;
}

/* Is what was registered what the directory has? */
static bool is_current(const struct gantry_fpga_bitstream *b)
{
	_cleanup_free_ struct gantry_bitstream *now = NULL;

	return gantry_bitstream_read(b->path, &now, NULL) == 0 && same_content(now, b->manifest);
}

int gantry_fpga_load(struct gantry_dev *dev, uint32_t image, uint32_t place, struct gantry_err *err)
{
	struct gantry_fpga_bitstream *b = &dev->bitstreams[image];
	char text[128] = "";
	int r;

	if (!is_current(b)) {
		(void)pthread_mutex_lock(&dev->lock);
		b->gone = true;
		gantry_board_retire(dev->board, image);
		(void)pthread_mutex_unlock(&dev->lock);
		return gantry_err_set(err, -ESTALE, "bitstream %s was removed, or is another now",
				      b->manifest->name);
	}
	r = dev->driver->load(dev->handle, &b->files[place], text, sizeof(text));

	if (r < 0) {
		text[sizeof(text) - 1] = '\0';
		gantry_str_make_printable(text);
		return gantry_err_set(err, r, "%s", text[0] ? text : strerror(-r));
	}
	return check_windows(dev, image, place, err);
}
