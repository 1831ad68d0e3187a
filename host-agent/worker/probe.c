/* SPDX-License-Identifier: Apache-2.0 */
/* What devices this machine has, printed. */
#include "host-agent/worker/probe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "devices/registry.h"

#define PROBE_MAX 16u

static void wake(void *cookie)
{
	(void)cookie;
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	(void)tag;
	return 0;
}

/* Drivers' texts: quotes and what does not print are replaced. */
static void put_text(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		bool plain = *text >= ' ' && *text <= '~' && *text != '"' && *text != '\\';

		fputc(plain ? *text : '?', out);
	}
	fputc('"', out);
}

static void put_member(FILE *out, const char *key, const char *text)
{
	fprintf(out, ", \"%s\": ", key);
	put_text(out, text);
}

static void put_head(FILE *out, unsigned int n, const char *backend)
{
	fprintf(out, "%s\n  {\"backend\": ", n ? "," : "");
	put_text(out, backend);
}

static void put_device(FILE *out, unsigned int n, const struct gantry_device_conf *conf,
		       const struct gantry_device_info *info)
{
	put_head(out, n, conf->backend);
	fputs(", \"section\": [", out);
	for (uint32_t i = 0; i < conf->nopts; i++) {
		if (i > 0)
			fputs(", ", out);
		put_text(out, conf->opts[i]);
	}
	fputs("]", out);
	put_member(out, "model", info->name);
	put_member(out, "id", info->id);
	put_member(out, "arch", info->arch);
	fprintf(out,
		", \"mem_bytes\": %" PRIu64 ", \"units\": %u, \"lanes\": %u, \"numa_node\": %d}",
		info->mem_bytes, info->units, info->lanes, info->numa_node);
}

struct problem {
	const char *backend;
	bool absent; /* nothing there, which is no fault */
	struct gantry_err err;
};

static const char *sentence(const struct problem *p)
{
	return p->err.text[0] ? p->err.text : "it cannot be opened";
}

/* Opens what @backend finds; what cannot be opened becomes a problem. */
static void probe_backend(FILE *out, const struct gantry_backend *backend, unsigned int *n,
			  struct problem *problems, unsigned int *nproblems)
{
	static const struct gantry_device_host host = { .wake = wake, .cancelled = cancelled };
	struct gantry_device_conf confs[PROBE_MAX];
	struct problem found = { .backend = backend->name, .absent = true };
	int count = backend->probe(confs, PROBE_MAX, &found.err);

	if (count <= 0 && found.err.text[0] && *nproblems < PROBE_MAX)
		problems[(*nproblems)++] = found;
	for (int i = 0; i < count; i++) {
		struct problem problem = { .backend = backend->name };
		struct gantry_device device;

		if (gantry_device_open(&confs[i], &host, &device, &problem.err) == 0) {
			put_device(out, (*n)++, &confs[i], &device.info);
			gantry_device_close(&device);
		} else if (*nproblems < PROBE_MAX) {
			problems[(*nproblems)++] = problem;
		}
	}
}

int gantry_probe_print(FILE *out)
{
	struct problem problems[PROBE_MAX];
	unsigned int n = 0, nproblems = 0;

	fputs("{\"devices\": [", out);
	for (size_t i = 0; gantry_backends[i]; i++)
		if (gantry_backends[i]->probe)
			probe_backend(out, gantry_backends[i], &n, problems, &nproblems);
	fputs("],\n \"problems\": [", out);
	for (unsigned int i = 0; i < nproblems; i++) {
		put_head(out, i, problems[i].backend);
		put_member(out, "text", sentence(&problems[i]));
		fprintf(out, ", \"absent\": %s}", problems[i].absent ? "true" : "false");
	}
	fputs("]}\n", out);
	return fflush(out) == 0 && !ferror(out) ? (int)n : -EIO;
}
