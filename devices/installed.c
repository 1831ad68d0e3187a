/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/installed.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/str.h"

#define SYMBOL_MAX 256u

int gantry_installed_open(const char *path, void **ret_library, struct gantry_err *err)
{
	void *library;

	if (!strchr(path, '/'))
		return gantry_err_set(err, -ENOEXEC, "image %s: not a path", path);
	/* Unresolved symbols must show now, not inside a command. */
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return gantry_err_set(err, -ENOEXEC, "image %s: %s", path, dlerror());
	*ret_library = library;
	return 0;
}

gantry_body *gantry_installed_body(void *library, const char *symbol)
{
	char name[SYMBOL_MAX];
	gantry_body *body = NULL;
	void *address = NULL;

	if (library && gantry_str_format(name, sizeof(name), "gantry_kernel_%s", symbol) == 0)
		address = dlsym(library, name);
	/* POSIX wants this conversion to work; ISO C has no cast for it. */
	memcpy(&body, &address, sizeof(body));
	return body;
}

void gantry_installed_serial(struct gantry_env *env, uint64_t n, uint64_t grain,
			     void (*fn)(void *arg, uint64_t begin, uint64_t end), void *arg)
{
	(void)env;
	(void)grain;
	if (n > 0)
		fn(arg, 0, n);
}
