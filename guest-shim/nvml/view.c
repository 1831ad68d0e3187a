/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/nvml/view.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "guest-shim/cudalibs/road.h"
#include "guest-shim/device.h"
#include "guest-shim/gantry.h"

/* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR; the minor one is next. */
#define CAPABILITY 75u
/* More are not looked for: no agent has so many. */
#define PLACES 64u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gantry_nvml_view the_view;

struct gantry_nvml_view *gantry_nvml_lock(void)
{
	(void)pthread_mutex_lock(&lock);
	return &the_view;
}

void gantry_nvml_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

static void before_fork(void)
{
	(void)gantry_nvml_lock();
}

__attribute__((constructor)) static void watch_forks(void)
{
	/* Without memory for it a child may hang. The C library takes the handlers back when this one is unloaded. */
	(void)pthread_atfork(before_fork, gantry_nvml_unlock, gantry_nvml_unlock);
}

static int take_devices(struct gantry_session *session, struct gantry_nvml_view *view)
{
	view->ndevices = 0;
	for (uint32_t i = 0; i < PLACES && view->ndevices < GANTRY_NVML_DEVICES; i++) {
		struct gantry_nvml_device *device = &view->devices[view->ndevices];
		int r;

		memset(device, 0, sizeof(*device));
		r = gantry_device_ask(session, GANTRY_ASK_DEVICE, i, 0,
				      (struct gantry_ask_numbers){ { 0 } }, &device->info,
				      sizeof(device->info));
		if (r == GANTRY_E_NO_DEVICE || (r >= 0 && device->info.kind != GANTRY_KIND_CUDA))
			continue;
		if (r < 0)
			return r;
		device->ordinal = view->ndevices++;
		/* Without an answer it is of capability 0.0. */
		(void)gantry_device_ask(session, GANTRY_ASK_ATTRIBUTES, i, 0,
					(struct gantry_ask_numbers){ { CAPABILITY } },
					device->capability, sizeof(device->capability));
	}
	return 0;
}

int gantry_nvml_look(struct gantry_nvml_view *view)
{
	struct gantry_session *session = NULL;
	int r = gantry_open(NULL, NULL, &session);

	if (r == 0)
		r = take_devices(session, view);
	gantry_close(session);
	return r;
}

/* Our libcuda, if the process has it. */
static const struct gantry_cuda_road *find_road(void)
{
	const struct gantry_cuda_road *road = dlsym(RTLD_DEFAULT, GANTRY_CUDA_ROAD_SYMBOL);

	if (!road) {
		void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

		road = driver ? dlsym(driver, GANTRY_CUDA_ROAD_SYMBOL) : NULL;
		if (driver)
			(void)dlclose(driver); /* it stays: the process has it */
	}
	return road && road->version == GANTRY_CUDA_ROAD_VERSION && road->size >= sizeof(*road)
		       ? road
		       : NULL;
}

struct gantry_nvml_use gantry_nvml_use(void)
{
	const struct gantry_cuda_road *road = find_road();
	struct gantry_nvml_use use = { 0 };
	struct gantry_stats stats;

	if (!road || !road->stats || road->stats(&stats) < 0)
		return use;
	use.is_open = true;
	use.resident_bytes = stats.resident_bytes;
	use.device_ns = stats.device_ns;
	return use;
}
