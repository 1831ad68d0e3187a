/* SPDX-License-Identifier: Apache-2.0 */
#include "libraries.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#include "base/array.h"

enum library {
	LIBVIRT,
	LIBVIRT_QEMU,
	LIBXML,
	NLIBRARIES
};

static const struct {
	const char *file;
	const char *package;
} libraries[NLIBRARIES] = {
	[LIBVIRT] = { "libvirt.so.0", "libvirt0" },
	[LIBVIRT_QEMU] = { "libvirt-qemu.so.0", "libvirt0" },
	[LIBXML] = { "libxml2.so.2", "libxml2" },
};

static const struct {
	enum library library;
	const char *name;
	size_t off;
} calls[] = {
#define CALL(which, call)     { which, #call, offsetof(struct gantry_libraries, call) },
#define OF_LIBVIRT(name)      CALL(LIBVIRT, name)
#define OF_LIBVIRT_QEMU(name) CALL(LIBVIRT_QEMU, name)
#define OF_LIBXML(name)	      CALL(LIBXML, name)
	GANTRY_LIBVIRT_CALLS(OF_LIBVIRT) GANTRY_LIBVIRT_QEMU_CALLS(OF_LIBVIRT_QEMU)
		GANTRY_LIBXML_CALLS(OF_LIBXML)
};

int gantry_libraries_load(struct gantry_libraries *ret_lib, struct gantry_err *err)
{
	struct gantry_libraries lib;
	void *handles[NLIBRARIES];

	for (size_t i = 0; i < NLIBRARIES; i++) {
		handles[i] = dlopen(libraries[i].file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
		if (!handles[i])
			return gantry_err_set(
				err, -ENOENT,
				"%s is not installed here; on Debian: apt-get install %s",
				libraries[i].file, libraries[i].package);
	}
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(calls); i++) {
		void *found = dlsym(handles[calls[i].library], calls[i].name);

		if (!found)
			return gantry_err_set(err, -ENOENT, "%s has no %s: it is older than 9.0",
					      libraries[calls[i].library].file, calls[i].name);
		*(void **)(void *)((char *)&lib + calls[i].off) = found;
	}
	*ret_lib = lib;
	return 0;
}
