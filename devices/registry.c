/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/registry.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/str.h"
#include "devices/filter.h"

#define MAX_FILTERS 8u

/* The rest of a stack: filters[0] is the outermost, the backend comes after the last. */
struct gantry_filter_next {
	const struct gantry_filter *const *filters;
	unsigned int nfilters;
	const struct gantry_backend *backend;
};

const char *gantry_device_opt(const struct gantry_device_conf *conf, const char *key)
{
	size_t len = strlen(key);

	for (uint32_t i = 0; i < conf->nopts; i++)
		if (strncmp(conf->opts[i], key, len) == 0 && conf->opts[i][len] == '=')
			return conf->opts[i] + len + 1;
	return NULL;
}

/* "filters" and "FILTER.key" belong to the registry and to filters. */
static bool key_known(const char *key, size_t len, const char *const *keys)
{
	if (memchr(key, '.', len) || (len == 7 && memcmp(key, "filters", len) == 0))
		return true;
	for (; *keys; keys++)
		if (strlen(*keys) == len && memcmp(*keys, key, len) == 0)
			return true;
	return false;
}

int gantry_device_opts_check(const struct gantry_device_conf *conf, const char *const *keys,
			     struct gantry_err *err)
{
	for (uint32_t i = 0; i < conf->nopts; i++) {
		size_t len = strcspn(conf->opts[i], "=");

		if (conf->opts[i][len] == '\0' || !key_known(conf->opts[i], len, keys))
			return gantry_err_set(err, -EINVAL,
					      "the %s backend has no option \"%.60s\"",
					      conf->backend, conf->opts[i]);
	}
	return 0;
}

const struct gantry_backend *gantry_backend_find(const char *name)
{
	for (const struct gantry_backend *const *b = gantry_backends; *b; b++)
		if (strcmp((*b)->name, name) == 0)
			return *b;
	return NULL;
}

static const struct gantry_filter *filter_find(const char *name, size_t len)
{
	for (const struct gantry_filter *const *f = gantry_filters; *f; f++)
		if (strlen((*f)->name) == len && strncmp((*f)->name, name, len) == 0)
			return *f;
	return NULL;
}

/* "record,delay" to filters; returns how many, or -EINVAL. */
static int parse_filters(const char *list, const struct gantry_filter **ret_filters,
			 struct gantry_err *err)
{
	unsigned int count = 0;

	while (list && *list) {
		size_t len = strcspn(list, ",");

		if (count == MAX_FILTERS)
			return gantry_err_set(err, -EINVAL, "filters: more than %u", MAX_FILTERS);
		ret_filters[count] = filter_find(list, len);
		if (!ret_filters[count])
			return gantry_err_set(err, -EINVAL, "filters: this build has no \"%.*s\"",
					      (int)(len < 32 ? len : 32), list);
		count++;
		list += len + (list[len] == ',');
	}
	return (int)count;
}

int gantry_filter_open_next(const struct gantry_filter_next *next,
			    const struct gantry_device_conf *conf,
			    const struct gantry_device_host *host, struct gantry_device *ret_device,
			    struct gantry_err *err)
{
	struct gantry_device device = { .backend = next->backend };
	int r;

	if (next->nfilters > 0) {
		struct gantry_filter_next rest = *next;

		rest.filters++;
		rest.nfilters--;
		return next->filters[0]->open(&rest, conf, host, ret_device, err);
	}
	r = next->backend->open(conf, host, &device.dev, &device.info, err);
	if (r < 0)
		return r;
	*ret_device = device;
	return 0;
}

int gantry_device_open(const struct gantry_device_conf *conf, const struct gantry_device_host *host,
		       struct gantry_device *ret_device, struct gantry_err *err)
{
	const struct gantry_filter *filters[MAX_FILTERS];
	struct gantry_filter_next next = { .filters = filters };
	int r;

	next.backend = gantry_backend_find(conf->backend);
	if (!next.backend)
		return gantry_err_set(err, -ENODEV, "device %s: this build has no backend \"%s\"",
				      conf->name, conf->backend);
	assert(next.backend->abi == GANTRY_BACKEND_ABI &&
	       next.backend->size == sizeof(struct gantry_backend));

	r = parse_filters(gantry_device_opt(conf, "filters"), filters, err);
	if (r >= 0) {
		next.nfilters = (unsigned int)r;
		r = gantry_filter_open_next(&next, conf, host, ret_device, err);
	}
	return r < 0 ? gantry_err_wrap(err, r, "device %s", conf->name) : 0;
}

void gantry_device_close(struct gantry_device *device)
{
	if (!device || !device->backend)
		return;
	device->backend->close(device->dev);
	*device = (struct gantry_device){ 0 };
}
