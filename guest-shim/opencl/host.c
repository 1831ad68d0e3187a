/* SPDX-License-Identifier: Apache-2.0 */
/* The session of the process, and the tenant's devices: one for each kind, however many the host has of it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "guest-shim/opencl/icd.h"

#define ABOUT_BYTES (65536u)

static struct icd_host *current; /* one user: this */
static struct _cl_device_id devices[GANTRY_NKINDS];
static uint32_t ndevices;
static bool looked;

/* ---- the session ---- */

static void host_free(struct icd_host *host)
{
	gantry_close(host->session);
	icd_lines_free(host);
	(void)pthread_mutex_destroy(&host->printed.lock);
	free(host);
}

void icd_host_put(struct icd_host *host)
{
	if (host && --host->nusers == 0)
		host_free(host);
}

/* Whoever has one that died keeps it; a new context gets a new one. */
static bool is_alive(const struct icd_host *host)
{
	struct gantry_props props;

	return host->pid == getpid() &&
	       gantry_props_get(host->session, GANTRY_KIND_ANY, &props) > GANTRY_E_PROTOCOL;
}

cl_int icd_host_take(struct icd_host **ret_host)
{
	int r;

	if (current && !is_alive(current)) {
		icd_host_put(current);
		current = NULL;
	}
	if (!current) {
		current = calloc(1, sizeof(*current));
		if (!current)
			return CL_OUT_OF_HOST_MEMORY;
		r = gantry_open(NULL, NULL, &current->session);
		if (r < 0) {
			free(current);
			current = NULL;
			return icd_status(r);
		}
		gantry_list_init(&current->lines);
		current->printed = (struct gantry_printed)GANTRY_PRINTED_INIT;
		current->nusers = 1;
		current->pid = getpid();
	}
	current->nusers++;
	*ret_host = current;
	return CL_SUCCESS;
}

/* The kernel closes what a forked process had; all else is closed here. */
__attribute__((destructor)) static void leave(void)
{
	icd_gate_lock();
	icd_pump_end();
	if (current && current->nusers == 1)
		host_free(current);
	current = NULL;
	icd_gate_unlock();
}

/* ---- devices ---- */

const char *icd_device_line(const char *about, const char *key)
{
	size_t n = strlen(key);

	while (about) {
		if (strncmp(about, key, n) == 0 && about[n] == ' ')
			return about + n + 1;
		about = strchr(about, '\n');
		about = about ? about + 1 : NULL;
	}
	return NULL;
}

uint64_t icd_device_number(const struct _cl_device_id *device, const char *key)
{
	const char *text = icd_device_line(device->about, key);

	return text ? strtoull(text, NULL, 10) : 0;
}

/* What clGetDeviceInfo() tells is what the tenant may have, not what the host has. */
uint64_t icd_device_mem_bytes(const struct _cl_device_id *device)
{
	const struct gantry_props *p = &device->props;

	return p->mem_bytes < p->virtual_bytes ? p->mem_bytes : p->virtual_bytes;
}

uint64_t icd_device_alloc_bytes(const struct _cl_device_id *device)
{
	uint64_t mem = icd_device_mem_bytes(device);
	uint64_t most = icd_device_number(device, "max_alloc");

	return most && most < mem ? most : mem;
}

static void add_builtin(struct _cl_device_id *device, const char *line, size_t len)
{
	struct icd_builtin *more;
	const char *space = memchr(line, ' ', len);

	if (!space)
		return;
	more = realloc(device->builtins, (device->nbuiltins + 1) * sizeof(*more));
	if (!more)
		return;
	device->builtins = more;
	more[device->nbuiltins].name = strndup(line, (size_t)(space - line));
	more[device->nbuiltins].signature = strndup(space + 1, len - (size_t)(space + 1 - line));
	if (more[device->nbuiltins].name && more[device->nbuiltins].signature)
		device->nbuiltins++;
}

static void find_builtins(struct _cl_device_id *device)
{
	const char *at = device->about;

	while ((at = icd_device_line(at, "kernel")) != NULL) {
		size_t len = strcspn(at, "\n");

		add_builtin(device, at, len);
		at += len;
		at = *at ? at + 1 : NULL;
	}
}

/* A device without formats, or one that says it has no images, has none. */
static void find_formats(struct _cl_device_id *device)
{
	const char *at = icd_device_number(device, "images") ? device->about : NULL;
	struct icd_format *more, found;

	while ((at = icd_device_line(at, "image_format")) != NULL) {
		if (sscanf(at, "%u %u %u %u %u", &found.format.image_channel_order,
			   &found.format.image_channel_data_type, &found.types[0], &found.types[1],
			   &found.types[2]) != 5 ||
		    !gantry_pixel_bytes(found.format.image_channel_order,
					found.format.image_channel_data_type))
			continue;
		more = realloc(device->formats, (device->nformats + 1) * sizeof(*more));
		if (!more)
			return;
		device->formats = more;
		more[device->nformats++] = found;
	}
}

static cl_device_type type_of(const struct _cl_device_id *device)
{
	cl_device_type told;

	if (device->kind == GANTRY_KIND_FPGA)
		return CL_DEVICE_TYPE_ACCELERATOR;
	if (device->kind != GANTRY_KIND_OPENCL)
		return CL_DEVICE_TYPE_CUSTOM;
	told = icd_device_number(device, "type") & (CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU);
	return told ? told : CL_DEVICE_TYPE_CPU;
}

static void find_items(struct _cl_device_id *device)
{
	const char *text = icd_device_line(device->about, "work_items");
	uint64_t *items = device->items;

	if (!text ||
	    sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &items[0], &items[1], &items[2]) != 3)
		items[0] = items[1] = items[2] = UINT64_MAX;
}

/* Its own kind's name too, if the tenant has any of it. */
static void add_device(struct gantry_session *session, uint32_t kind)
{
	struct _cl_device_id *device = &devices[ndevices];
	const char *compiles;
	uint64_t bytes;

	*device = (struct _cl_device_id){
		.object = { .dispatch = &icd_dispatch, .type = ICD_DEVICE, .refs = 1 },
		.kind = kind,
	};
	if (gantry_props_get(session, (int)kind, &device->props) < 0)
		return;
	device->about = calloc(1, ABOUT_BYTES);
	/* An older agent describes nothing: then the device has no kernels, and defaults where numbers are asked for. */
	if (!device->about ||
	    gantry_describe(session, (int)kind, device->about, ABOUT_BYTES, &bytes) < 0) {
		free(device->about);
		return;
	}
	device->type = type_of(device);
	device->local_bytes = icd_device_number(device, "local_bytes");
	find_items(device);
	compiles = icd_device_line(device->about, "code");
	device->compiles = kind == GANTRY_KIND_OPENCL && compiles &&
			   strncmp(compiles, "yes", 3) == 0;
	find_builtins(device);
	icd_parts_find(device);
	if (device->compiles)
		find_formats(device);
	ndevices++;
}

uint32_t icd_devices(struct _cl_device_id **ret_devices)
{
	static const uint32_t kinds[] = { GANTRY_KIND_OPENCL, GANTRY_KIND_FPGA, GANTRY_KIND_CPU,
					  GANTRY_KIND_CUDA, GANTRY_KIND_HIP };
	const char *wish = getenv("GANTRY_OPENCL");
	struct gantry_props props;
	struct icd_host *host;

	if (wish && strcmp(wish, "off") == 0)
		return 0;
	if (!looked && icd_host_take(&host) == CL_SUCCESS) {
		looked = gantry_props_get(host->session, GANTRY_KIND_ANY, &props) == 0;
		for (size_t i = 0; looked && i < GANTRY_ARRAY_SIZE(kinds); i++)
			if (props.kinds >> kinds[i] & 1)
				add_device(host->session, kinds[i]);
		/* A host that did not answer in time may do so yet. */
		looked = looked && ndevices > 0;
		icd_host_put(host);
	}
	*ret_devices = devices;
	return ndevices;
}

bool icd_device_valid(const struct _cl_device_id *device)
{
	for (uint32_t i = 0; i < ndevices; i++)
		if (device == &devices[i])
			return true;
	return icd_object_get_held(device, ICD_DEVICE) != NULL;
}

const struct icd_builtin *icd_device_builtin(const struct _cl_device_id *device, const char *name)
{
	for (uint32_t i = 0; i < device->nbuiltins; i++)
		if (strcmp(device->builtins[i].name, name) == 0)
			return &device->builtins[i];
	return NULL;
}

char *icd_device_builtin_names(const struct _cl_device_id *device)
{
	size_t room = 1;
	char *names, *at;

	for (uint32_t i = 0; i < device->nbuiltins; i++)
		room += strlen(device->builtins[i].name) + 1;
	names = at = calloc(1, room);
	for (uint32_t i = 0; names && i < device->nbuiltins; i++)
		at += snprintf(at, room - (size_t)(at - names), "%s%s", i ? ";" : "",
			       device->builtins[i].name);
	return names;
}
