/* SPDX-License-Identifier: Apache-2.0 */
/* dlopen libgantry, open a session and a queue with work in it, dlclose with all of it alive, several times, exit. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#include "guest-shim/gantry.h"

#define CALL(lib, name) ((__typeof__(&name))dlsym(lib, #name))

static int once(int close_first)
{
	void *lib = dlopen("libgantry.so", RTLD_NOW | RTLD_LOCAL);
	struct gantry_session *s;
	struct gantry_task task = { 0 };
	gantry_queue q;
	gantry_ticket t;
	uint64_t ns = 20000000;

	if (!lib) {
		printf("dlopen: %s\n", dlerror());
		return 1;
	}
	if (CALL(lib, gantry_open)(NULL, NULL, &s) || CALL(lib, gantry_queue_open)(s, NULL, &q) ||
	    CALL(lib, gantry_kernel_find)(s, "spin", NULL, &task.kernel)) {
		printf("gantry: %s\n", CALL(lib, gantry_last_error)());
		return 1;
	}
	task.args = &ns;
	task.args_bytes = sizeof(ns);
	for (int i = 0; i < 5; i++)
		if (CALL(lib, gantry_submit)(s, q, &task, 1, &t))
			return 1;
	if (close_first)
		CALL(lib, gantry_close)(s);
	return dlclose(lib);
}

int main(void)
{
	for (int i = 0; i < 4; i++)
		if (once(i & 1))
			return 1;
	printf("done\n");
	return 0;
}
