/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library's own that let streams go on which wait for this process, and the queue by which each tells the host. */
#include "base/thread.h"
#include "guest-shim/cuda/core.h"

bool cu_bell_start(struct cu_bell *bell, void *(*fn)(void *))
{
	pthread_t thread;

	if (bell->runs)
		return true;
	if (!bell->queue && gantry_queue_open(cu.session, NULL, &bell->queue) < 0)
		return false;
	bell->runs = gantry_thread_start(&thread, fn, NULL) == 0;
	if (bell->runs)
		(void)pthread_detach(thread);
	return bell->runs;
}

bool cu_bell_ring(const struct cu_bell *bell, const struct cu_cell *cell, bool again)
{
	uint64_t off = cu_cell_off(cell);
	int r = again ? gantry_await_again(cu.session, bell->queue, off)
		      : gantry_await_end(cu.session, bell->queue, off, 1);

	/* Fails with the session, and then nothing waits. */
	return r != GANTRY_E_AGAIN;
}
