/* SPDX-License-Identifier: Apache-2.0 */
/* Images of the cpu backend: installed shared objects. */
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "devices/cpu/cpu.h"

#define SYMBOL_MAX 256u

int gantry_cpu_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			  size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	struct gantry_image *image;
	void *library;

	assert(path && !bytes && nbytes == 0);
	/* A bare name would be searched for in the system's folders. */
	if (!strchr(path, '/'))
		return gantry_err_set(err, -ENOEXEC, "image %s: not a path", path);
	/* Unresolved symbols must show now, not inside a command. */
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return gantry_err_set(err, -ENOEXEC, "image %s: %s", path, dlerror());
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
	char name[SYMBOL_MAX];
	struct gantry_kernel *kernel;
	void *body = NULL;

	if (gantry_str_format(name, sizeof(name), "gantry_kernel_%s", symbol) == 0)
		body = dlsym(image->library, name);
	if (!body)
		return gantry_err_set(err, -ENOENT, "the image has no kernel %s", symbol);
	kernel = calloc(1, sizeof(*kernel));
	if (!kernel)
		return gantry_err_set(err, -ENOMEM, "no memory for a kernel");
	/* POSIX wants this conversion to work; ISO C has no cast for it. */
	memcpy(&kernel->body, &body, sizeof(kernel->body));
	kernel->sig = sig;
	kernel->next = image->kernels;
	image->kernels = kernel;
	*ret_kernel = kernel;
	return 0;
}
