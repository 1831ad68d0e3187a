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

/* What its manifest says, in a driver's words. */
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
	}
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		b->files[place] = (struct gantry_board_file){
			.image = b->manifest->name,
			.place = place == GANTRY_BOARD_WHOLE ? GANTRY_BOARD_PLACE_WHOLE : place,
			.fd = -1,
			.nkernels = b->manifest->nkernels,
			.kernels = b->kernels,
		};
}

static int add_bitstream(struct gantry_dev *dev, const char *directory, const char *name,
			 struct gantry_err *err)
{
	struct gantry_fpga_bitstream *b = &dev->bitstreams[dev->nbitstreams];
	char path[PATH_MAX];
	int r;

	if (dev->nbitstreams == GANTRY_BOARD_MAX_IMAGES)
		return gantry_err_set(err, -EINVAL, "more than %u bitstreams in %s",
				      GANTRY_BOARD_MAX_IMAGES, directory);
	if (gantry_str_format(path, sizeof(path), "%s/%s", directory, name) < 0)
		return gantry_err_set(err, -EINVAL, "%.80s: the path is too long", directory);
	r = gantry_bitstream_read(path, &b->manifest, err);
	if (r < 0)
		return r;
	describe(b);
	dev->nbitstreams++;
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES && r == 0; place++)
		if (gantry_bitstream_fits(b->manifest, place))
			r = gantry_bitstream_open_file(b->manifest, directory, place,
						       &b->files[place].fd, err);
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
	return count > 0 ? 0
			 : gantry_err_set(err, -EINVAL, "images: %s has no *" SUFFIX, directory);
}

void gantry_fpga_bitstreams_close(struct gantry_dev *dev)
{
	for (uint32_t i = 0; i < dev->nbitstreams; i++) {
		for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
			gantry_fd_close(dev->bitstreams[i].files[place].fd);
		free(dev->bitstreams[i].manifest);
	}
}

/*
 * The image of a module is the manifest of a bitstream of the board, whichever: kernels are the board's, and which bitstream has them is not a
 * program's affair.
 */
int gantry_fpga_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			   size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	_cleanup_free_ struct gantry_bitstream *manifest = NULL;
	struct gantry_image *image;
	int r;

	assert(path && !bytes && nbytes == 0);
	r = gantry_bitstream_read(path, &manifest, err);
	if (r < 0)
		return r == -ENOMEM ? r : gantry_err_wrap(err, -ENOEXEC, "image");
	if (strcmp(manifest->board, dev->info.model) != 0)
		return gantry_err_set(err, -ENOEXEC, "image %s: it is for boards %s, not %s", path,
				      manifest->board, dev->info.model);
	image = calloc(1, sizeof(*image));
	if (!image)
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
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
	free(image);
}

int gantry_fpga_kernel_get(struct gantry_image *image, const char *symbol,
			   const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			   struct gantry_err *err)
{
	int number = gantry_board_kernel(image->dev->board, symbol);
	struct gantry_kernel *kernel;

	if (number < 0)
		return gantry_err_set(err, -ENOENT, "no bitstream of the board has kernel %s",
				      symbol);
	if (!gantry_signature_same(
		    &gantry_board_kernel_at(image->dev->board, (uint32_t)number)->sig, sig))
		return gantry_err_set(err, -EINVAL,
				      "kernel %s has other arguments in its bitstream", symbol);
	kernel = calloc(1, sizeof(*kernel));
	if (!kernel)
		return gantry_err_set(err, -ENOMEM, "no memory for a kernel");
	kernel->sig = sig;
	kernel->number = (uint32_t)number;
	gantry_list_push_back(&image->kernels, &kernel->link);
	*ret_kernel = kernel;
	return 0;
}

/* ---- loading ---- */

static uint32_t registers_of(const struct gantry_signature *sig)
{
	uint32_t n = sig->nargs;

	for (uint32_t i = 0; i < sig->nargs; i++)
		n += sig->args[i].mode != 0;
	return n;
}

/* A manifest that lies about its kernels is found out here, before a launch hangs. */
static int check_windows(struct gantry_dev *dev, uint32_t image, uint32_t place,
			 struct gantry_err *err)
{
	const struct gantry_bitstream *b = dev->bitstreams[image].manifest;
	struct gantry_board_unit unit = { .place = place, .image = image };

	for (unit.kernel = 0; unit.kernel < b->nkernels; unit.kernel++) {
		const struct gantry_bitstream_kernel *kernel = &b->kernels[unit.kernel];
		uint64_t expected = (uint64_t)GANTRY_BOARD_IDENTITY << 32 |
				    registers_of(&kernel->sig);

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

int gantry_fpga_load(struct gantry_dev *dev, uint32_t image, uint32_t place, struct gantry_err *err)
{
	char text[128] = "";
	int r = dev->driver->load(dev->handle, &dev->bitstreams[image].files[place], text,
				  sizeof(text));

	if (r < 0) {
		text[sizeof(text) - 1] = '\0';
		gantry_str_make_printable(text);
		return gantry_err_set(err, r, "%s", text[0] ? text : strerror(-r));
	}
	return check_windows(dev, image, place, err);
}
