/* SPDX-License-Identifier: Apache-2.0 */
#include "find.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/str.h"

/* From the folder of this program; a build tree has one folder a room. */
static const char *const program_places[] = {
	".",	   "../sbin",	"../libexec/gantry", "../agent", "../monitor",
	"../main", "../worker", "../../demo",	     "../vm",
};
static const char *const opencl_places[] = {
	"../../guest-shim/opencl",
	"../lib",
	"../lib/x86_64-linux-gnu",
};
static const char *const cuda_places[] = {
	"../../guest-shim/cuda",
	"../lib/gantry/cuda",
	"../lib/x86_64-linux-gnu/gantry/cuda",
};
static const char *const icd_places[] = {
	"../../guest-shim/opencl",
	"../../etc/OpenCL/vendors",
	"../etc/OpenCL/vendors",
};
static const char *const library_places[] = {
	"../../guest-shim",
	"../lib",
	"../lib/x86_64-linux-gnu",
};

static int own_folder(char *path, size_t cap)
{
	ssize_t n = readlink("/proc/self/exe", path, cap - 1);
	char *slash;

	if (n <= 0)
		return -ENOENT;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	return 0;
}

static int find_in(const char *name, const char *const *places, size_t nplaces, int mode,
		   char *ret_path)
{
	char folder[PATH_MAX], path[PATH_MAX];
	int r = own_folder(folder, sizeof(folder));

	for (size_t i = 0; r == 0 && i < nplaces; i++) {
		if (gantry_str_format(path, sizeof(path), "%s/%s/%s", folder, places[i], name) < 0)
			continue;
		if (access(path, mode) == 0 && realpath(path, ret_path))
			return 0;
	}
	return -ENOENT;
}

static int find_at(const char *folder, const char *name, int mode, char *ret_path)
{
	char path[PATH_MAX];

	if (gantry_str_format(path, sizeof(path), "%s/%s", folder, name) < 0 ||
	    access(path, mode) < 0)
		return -ENOENT;
	(void)gantry_str_copy(ret_path, PATH_MAX, path); /* as long as it was */
	return 0;
}

int gantry_find_program(const char *name, char ret_path[PATH_MAX])
{
	if (find_in(name, program_places, GANTRY_ARRAY_SIZE(program_places), X_OK, ret_path) == 0)
		return 0;
	if (find_at(GANTRY_LIBEXECDIR, name, X_OK, ret_path) == 0)
		return 0;
	return find_at("/usr/sbin", name, X_OK, ret_path);
}

int gantry_find_library(char ret_path[PATH_MAX])
{
	const char *name = "libgantry.so.0";

	if (find_in(name, library_places, GANTRY_ARRAY_SIZE(library_places), R_OK, ret_path) == 0)
		return 0;
	return find_at(GANTRY_LIBDIR, name, R_OK, ret_path);
}

int gantry_find_opencl(char ret_path[PATH_MAX], char ret_icd[PATH_MAX])
{
	const char *name = "libgantry-opencl.so.1", *icd = "gantry.icd";

	if (find_in(icd, icd_places, GANTRY_ARRAY_SIZE(icd_places), R_OK, ret_icd) < 0 &&
	    find_at("/etc/OpenCL/vendors", icd, R_OK, ret_icd) < 0)
		return -ENOENT;
	if (find_in(name, opencl_places, GANTRY_ARRAY_SIZE(opencl_places), R_OK, ret_path) == 0)
		return 0;
	return find_at(GANTRY_LIBDIR, name, R_OK, ret_path);
}

int gantry_find_cuda(char ret_path[PATH_MAX])
{
	const char *name = "libcuda.so.1";

	if (find_in(name, cuda_places, GANTRY_ARRAY_SIZE(cuda_places), R_OK, ret_path) == 0)
		return 0;
	return find_at(GANTRY_LIBDIR "/gantry/cuda", name, R_OK, ret_path);
}
