/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/str.h"

static int check_symbols(const struct gantry_library *library, void *handle,
			 const struct gantry_library_symbol *symbols, size_t n,
			 struct gantry_err *err)
{
	for (size_t i = 0; i < n; i++)
		if (!symbols[i].optional && !dlsym(handle, symbols[i].name))
			return gantry_err_set(err, -ENODEV, "the %s has no %s: %s", library->what,
					      symbols[i].name, library->needed);
	return 0;
}

int gantry_library_open(struct gantry_library *library, const char *path,
			const struct gantry_library_symbol *symbols, size_t n, void *table,
			struct gantry_err *err)
{
	void *handle;
	int r;

	if (library->handle) {
		if (strcmp(library->path, path) == 0)
			return 0;
		return gantry_err_set(err, -EBUSY, "%s: this process has loaded %s",
				      library->option, library->path);
	}
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return gantry_err_set(err, -ENODEV, "no %s: %s", library->what, dlerror());
	r = check_symbols(library, handle, symbols, n, err);
	if (r == 0 && gantry_str_copy(library->path, sizeof(library->path), path) < 0)
		r = gantry_err_set(err, -EINVAL, "%s: the path is too long", library->option);
	if (r < 0) {
		(void)dlclose(handle); /* nothing of it was used */
		return r;
	}
	for (size_t i = 0; i < n; i++) {
		void *address = dlsym(handle, symbols[i].name);

		memcpy((char *)table + symbols[i].off, &address, sizeof(address));
	}
	library->handle = handle;
	return 0;
}
