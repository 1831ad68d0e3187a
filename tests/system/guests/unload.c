/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads libgantry as a plugin would be, opens a session and makes it busy; then unloads the library with the session
 * open, says so, and ends when told to by the end of its input.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "guest-shim/gantry.h"

#define SYMBOL(lib, name) ((__typeof__(&(name)))(uintptr_t)dlsym(lib, #name))

int main(void)
{
	void *lib = dlopen("libgantry.so.0", RTLD_NOW | RTLD_LOCAL);
	struct gantry_session *s;
	struct gantry_task task = { 0 };
	gantry_queue queue;
	gantry_ticket ticket;

	if (!lib) {
		printf("no library: %s\n", dlerror());
		return 1;
	}
	if (SYMBOL(lib, gantry_open)(NULL, NULL, &s) < 0 ||
	    SYMBOL(lib, gantry_queue_open)(s, NULL, &queue) < 0 ||
	    SYMBOL(lib, gantry_kernel_find)(s, "endless", NULL, &task.kernel) < 0 ||
	    SYMBOL(lib, gantry_submit)(s, queue, &task, 1, &ticket) < 0) {
		printf("failed: %s\n", SYMBOL(lib, gantry_last_error)());
		return 1;
	}
	printf("busy\n");
	if (dlclose(lib) != 0)
		printf("not unloaded\n");
	printf("unloaded\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
