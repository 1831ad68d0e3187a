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

static int take_args(struct gantry_stream *stream, const struct gantry_signature *sig,
		     const struct gantry_cmd_launch *launch, gantry_installed_take *take,
		     union gantry_value *ret_args)
{
	struct gantry_opencl_buffer *buffer;
	int r;

	for (uint32_t i = 0; i < launch->nargs; i++) {
		const struct gantry_range *range = &launch->args[i].range;

		if (!sig->args[i].mode) {
			ret_args[i] = launch->args[i].value;
			continue;
		}
		ret_args[i].span = (struct gantry_span){ NULL, 0 };
		if (!range->mem || range->len == 0)
			continue;
		r = take(stream, range, sig->args[i].mode, &buffer);
		if (r < 0)
			return r;
		ret_args[i].span = (struct gantry_span){ buffer, range->len };
	}
	return 0;
}

int gantry_installed_run(struct gantry_stream *stream, struct gantry_env *env, gantry_body *body,
			 const struct gantry_signature *sig, const struct gantry_cmd_launch *launch,
			 gantry_installed_take *take, int *ret_result)
{
	union gantry_value args[GANTRY_MAX_CMD_ARGS];
	struct gantry_call call = { .nargs = launch->nargs, .args = args };
	int r = take_args(stream, sig, launch, take, args);

	if (r < 0)
		return r;
	memcpy(call.grid, launch->grid, sizeof(call.grid));
	memcpy(call.block, launch->block, sizeof(call.block));
	*ret_result = body(env, &call);
	return 0;
}

void gantry_installed_ended(struct gantry_done *done, int result)
{
	done->status = result == -ECANCELED ? GANTRY_E_CANCELLED : GANTRY_E_KERNEL;
	done->blast = GANTRY_BLAST_CMD;
}
