/* SPDX-License-Identifier: Apache-2.0 */
/* Images of the cpu backend: installed shared objects. */
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "devices/cpu/cpu.h"
#include "devices/installed.h"

int gantry_cpu_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			  size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	struct gantry_image *image;
	void *library;
	int r;

	assert(path && !bytes && nbytes == 0);
	r = gantry_installed_open(path, &library, err);
	if (r < 0)
		return r;
	image = calloc(1, sizeof(*image));
	if (!image) {
		(void)dlclose(library); /* nothing more can be done about it */
		return gantry_err_set(err, -ENOMEM, "no memory for an image");
	}
	image->library = library;
	gantry_list_push_back(&dev->images, &image->link);
	*ret_image = image;
	return 0;
}

void gantry_cpu_image_unload(struct gantry_image *image)
{
	struct gantry_kernel *next;

	if (!image)
		return;
	for (struct gantry_kernel *kernel = image->kernels; kernel; kernel = next) {
		next = kernel->next;
		free(kernel);
	}
	gantry_list_remove(&image->link);
	(void)dlclose(image->library); /* a library that stays loaded harms nobody */
	free(image);
}

int gantry_cpu_kernel_get(struct gantry_image *image, const char *symbol,
			  const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			  struct gantry_err *err)
{
	gantry_body *body = gantry_installed_body(image->library, symbol);
	struct gantry_kernel *kernel;

	if (!body)
		return gantry_err_set(err, -ENOENT, "the image has no kernel %s", symbol);
	kernel = calloc(1, sizeof(*kernel));
	if (!kernel)
		return gantry_err_set(err, -ENOMEM, "no memory for a kernel");
	kernel->body = body;
	kernel->sig = sig;
	kernel->next = image->kernels;
	image->kernels = kernel;
	*ret_kernel = kernel;
	return 0;
}
