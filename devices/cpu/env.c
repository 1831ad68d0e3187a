/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a running kernel is offered besides its arguments: scratch memory, libraries, the question
 * whether to stop.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "devices/cpu/cpu.h"

#define SCRATCH_ALIGN 64u

static struct gantry_cpu_lane *lane_of(struct gantry_env *env)
{
	return gantry_container_of(env, struct gantry_cpu_lane, env);
}

static int env_cancelled(struct gantry_env *env)
{
	struct gantry_cpu_lane *lane = lane_of(env);
	const struct gantry_device_host *host = lane->dev->host;

	return host->cancelled(host->cookie, lane->tag);
}

/*
 * The whole arena is reserved at a lane's first need; the kernel backs what is touched, and it
 * stays backed.
 */
static bool scratch_reserve(struct gantry_cpu_lane *lane)
{
	void *base = mmap(NULL, lane->dev->scratch_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return false;
	lane->scratch = base;
	return true;
}

static void *env_scratch(struct gantry_env *env, size_t bytes)
{
	struct gantry_cpu_lane *lane = lane_of(env);
	uint64_t limit = lane->dev->scratch_bytes;
	uint64_t rounded;
	void *part;

	/* Inside parallel() several threads share this lane's arena: refused, on one core too. */
	if (lane->splitting)
		return NULL;
	if (gantry_align_up(bytes ? bytes : 1, SCRATCH_ALIGN, &rounded) < 0 ||
	    !gantry_range_inside(lane->scratch_used, rounded, limit))
		return NULL;
	if (!lane->scratch && !scratch_reserve(lane))
		return NULL;
	part = lane->scratch + lane->scratch_used;
	lane->scratch_used += rounded;
	return part;
}

static bool symbol(void *library, const char *name, void *ret_function)
{
	void *address = dlsym(library, name);

	memcpy(ret_function, &address, sizeof(address));
	return address != NULL;
}

static struct gantry_openblas *openblas_open_locked(struct gantry_dev *dev)
{
	struct gantry_openblas table = { .size = sizeof(table) };
	void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return NULL;
	if (!symbol(library, "cblas_sgemm", &table.sgemm) ||
	    !symbol(library, "cblas_dgemm", &table.dgemm) ||
	    !symbol(library, "openblas_set_num_threads", &table.set_num_threads)) {
		(void)dlclose(library); /* one without these is of no use, loaded or not */
		return NULL;
	}
	/*
	 * Lanes are our unit of work: a library that brings threads of its own would take other
	 * tenants' cores.
	 */
	table.set_num_threads(1);
	dev->openblas_table = table;
	dev->openblas_library = library;
	return &dev->openblas_table;
}

static void *env_handle(struct gantry_env *env, const char *library)
{
	struct gantry_dev *dev = lane_of(env)->dev;
	struct gantry_openblas *openblas;

	if (strcmp(library, "openblas") != 0)
		return NULL;
	/* Acquire: pairs with the release below; the table is complete once the pointer shows. */
	openblas = gantry_load_acquire(&dev->openblas);
	if (openblas)
		return openblas;
	(void)pthread_mutex_lock(&dev->library_lock);
	openblas = dev->openblas;
	if (!openblas) {
		openblas = openblas_open_locked(dev);
		gantry_store_release(&dev->openblas, openblas);
	}
	(void)pthread_mutex_unlock(&dev->library_lock);
	return openblas;
}

void gantry_cpu_libraries_close(struct gantry_dev *dev)
{
	if (dev->openblas_library)
		(void)dlclose(dev->openblas_library);
}

void gantry_cpu_lane_init(struct gantry_cpu_lane *lane, struct gantry_dev *dev, uint32_t idx)
{
	lane->dev = dev;
	lane->idx = idx;
	lane->env = (struct gantry_env){
		.size = sizeof(lane->env),
		.abi = GANTRY_MODULE_ABI,
		.nlanes = dev->ncores,
		.parallel = gantry_cpu_parallel,
		.cancelled = env_cancelled,
		.scratch = env_scratch,
		.handle = env_handle,
	};
}

void gantry_cpu_lane_fini(struct gantry_cpu_lane *lane)
{
	if (lane->scratch)
		(void)munmap(lane->scratch, lane->dev->scratch_bytes); /* ours, so it cannot fail */
}
