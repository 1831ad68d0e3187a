/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/sim/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "devices/manifest.h"
#include "devices/statements.h"

#define MAX_WORDS 10u

#define DEFAULT_LINK_GB_PER_S  10.0
#define DEFAULT_INNER_GB_PER_S 100.0
#define DEFAULT_KERNEL_NS      10000u

struct parser {
	struct gantry_sim_machine *machine;
	unsigned int nwords;
	char **words;
	struct gantry_err *err;
};

/* A number of any size above or at 0, such as "0.25". */
static int parse_number(const char *text, double *ret_number, struct gantry_err *err)
{
	char *end;
	double number = strtod(text, &end);

	/* The comparison also refuses what is not a number; strtod() reads "inf". */
	if (end == text || *end != '\0' || !(number >= 0 && number <= 1e15))
		return gantry_err_set(err, -EINVAL, "\"%.40s\" is no number", text);
	*ret_number = number;
	return 0;
}

int gantry_sim_device_find(const struct gantry_sim_machine *machine, const char *name)
{
	for (uint32_t i = 0; i < machine->ndevices; i++)
		if (strcmp(machine->devices[i].name, name) == 0)
			return (int)i;
	return -ENOENT;
}

/* "lanes N" and "copies N" from word 4 on. */
static int parse_device_counts(struct parser *p, struct gantry_sim_device *device)
{
	for (unsigned int i = 4; i < p->nwords; i += 2) {
		uint64_t value;
		int r;

		if (i + 1 == p->nwords)
			return gantry_err_set(p->err, -EINVAL,
					      "a number is missing after \"%.40s\"", p->words[i]);
		r = gantry_u64_parse(p->words[i + 1], 1, GANTRY_SIM_MAX_LANES, &value, p->err);
		if (r < 0)
			return -EINVAL;
		if (strcmp(p->words[i], "lanes") == 0)
			device->nlanes = (uint32_t)value;
		else if (strcmp(p->words[i], "copies") == 0)
			device->ncopies = (uint32_t)value;
		else
			return gantry_err_set(p->err, -EINVAL, "\"%.40s\" is not lanes or copies",
					      p->words[i]);
	}
	return 0;
}

static int parse_device(struct parser *p)
{
	struct gantry_sim_machine *m = p->machine;
	struct gantry_sim_device device = { .nlanes = 1, .ncopies = 2 };

	if (p->nwords < 4)
		return gantry_err_set(p->err, -EINVAL,
				      "write \"device NAME KIND MEMORY [lanes N] [copies N]\"");
	if (!gantry_name_valid(p->words[1]) || strcmp(p->words[1], "host") == 0 ||
	    strcmp(p->words[1], "any") == 0 || gantry_kind_of_name(p->words[1]) > 0)
		return gantry_err_set(p->err, -EINVAL, "\"%.40s\" cannot be a device's name",
				      p->words[1]);
	if (gantry_sim_device_find(m, p->words[1]) >= 0)
		return gantry_err_set(p->err, -EINVAL, "device %s stands there twice", p->words[1]);
	if (m->ndevices == GANTRY_SIM_MAX_DEVICES)
		return gantry_err_set(p->err, -EINVAL, "more than %u devices",
				      GANTRY_SIM_MAX_DEVICES);
	device.kind = gantry_kind_of_name(p->words[2]);
	if (device.kind < 0)
		return gantry_err_set(p->err, -EINVAL, "\"%.40s\" is no kind of device",
				      p->words[2]);
	if (gantry_size_parse(p->words[3], &device.mem_bytes, p->err) < 0)
		return -EINVAL;
	if (parse_device_counts(p, &device) < 0)
		return -EINVAL;
	(void)gantry_str_copy(device.name, sizeof(device.name),
			      p->words[1]); /* valid, so it fits */
	m->devices[m->ndevices++] = device;
	return 0;
}

static int place_of(struct parser *p, const char *name)
{
	int idx;

	if (strcmp(name, "host") == 0)
		return GANTRY_SIM_HOST;
	idx = gantry_sim_device_find(p->machine, name);
	if (idx < 0)
		return gantry_err_set(p->err, -EINVAL, "\"%.40s\" is no device above, nor host",
				      name);
	return idx;
}

static int parse_link(struct parser *p)
{
	struct gantry_sim_link link = { 0 };
	int a, b;

	if (p->nwords != 4 && p->nwords != 5)
		return gantry_err_set(p->err, -EINVAL, "write \"link A B GB/S [LATENCY]\"");
	a = place_of(p, p->words[1]);
	b = a < 0 ? a : place_of(p, p->words[2]);
	if (b < 0)
		return b;
	if (parse_number(p->words[3], &link.gb_per_s, p->err) < 0)
		return -EINVAL;
	if (link.gb_per_s == 0)
		return gantry_err_set(p->err, -EINVAL, "a link of no speed: leave it out");
	if (p->nwords == 5 && gantry_duration_parse(p->words[4], &link.latency_ns, p->err) < 0)
		return -EINVAL;
	p->machine->links[a][b] = link;
	p->machine->links[b][a] = link;
	return 0;
}

static int parse_kernel_place(struct parser *p, struct gantry_sim_kernel *kernel)
{
	const char *word = p->words[2];

	kernel->device = gantry_sim_device_find(p->machine, word);
	if (kernel->device >= 0)
		return 0;
	kernel->device = -1;
	kernel->kind = strcmp(word, "any") == 0 ? GANTRY_KIND_ANY : gantry_kind_of_name(word);
	if (kernel->kind < 0)
		return gantry_err_set(p->err, -EINVAL,
				      "\"%.40s\" is no device above, no kind, nor any", word);
	return 0;
}

static int parse_kernel(struct parser *p)
{
	struct gantry_sim_machine *m = p->machine;
	struct gantry_sim_kernel kernel = { 0 };

	if (p->nwords < 4 || p->nwords > 6)
		return gantry_err_set(p->err, -EINVAL,
				      "write \"kernel NAME WHERE TIME [NS/BYTE [NS/ELEMENT]]\"");
	if (m->nkernels == GANTRY_SIM_MAX_KERNELS)
		return gantry_err_set(p->err, -EINVAL, "more than %u kernels",
				      GANTRY_SIM_MAX_KERNELS);
	if (gantry_str_copy(kernel.name, sizeof(kernel.name), p->words[1]) < 0)
		return gantry_err_set(p->err, -EINVAL, "the kernel's name is too long");
	if (parse_kernel_place(p, &kernel) < 0 ||
	    gantry_duration_parse(p->words[3], &kernel.constant_ns, p->err) < 0)
		return -EINVAL;
	if (p->nwords > 4 && parse_number(p->words[4], &kernel.ns_per_byte, p->err) < 0)
		return -EINVAL;
	if (p->nwords > 5 && parse_number(p->words[5], &kernel.ns_per_element, p->err) < 0)
		return -EINVAL;
	m->kernels[m->nkernels++] = kernel;
	return 0;
}

static int parse_statement(void *arg, char **words, unsigned int nwords, struct gantry_err *err)
{
	struct parser *p = arg;

	p->words = words;
	p->nwords = nwords;
	p->err = err;
	if (strcmp(words[0], "device") == 0)
		return parse_device(p);
	if (strcmp(words[0], "link") == 0)
		return parse_link(p);
	if (strcmp(words[0], "kernel") == 0)
		return parse_kernel(p);
	return gantry_err_set(err, -EINVAL, "\"%.40s\" is not device, link or kernel", words[0]);
}

int gantry_sim_machine_parse(const char *text, size_t len, struct gantry_sim_machine **ret_machine,
			     struct gantry_err *err)
{
	_cleanup_free_ struct gantry_sim_machine *machine = NULL;
	struct parser p = { 0 };
	int r;

	if (len > GANTRY_SIM_MAX_BYTES)
		return gantry_err_set(err, -EINVAL, "the machine has more than %u bytes",
				      GANTRY_SIM_MAX_BYTES);
	machine = calloc(1, sizeof(*machine));
	if (!machine)
		return gantry_err_set(err, -ENOMEM, "no memory for the machine");
	p.machine = machine;
	r = gantry_statements_parse(text, len, MAX_WORDS, parse_statement, &p, err);
	if (r < 0)
		return r;
	*ret_machine = GANTRY_TAKE_PTR(machine);
	return 0;
}

int gantry_sim_machine_read(const char *path, struct gantry_sim_machine **ret_machine,
			    struct gantry_err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	int r = gantry_file_read(path, GANTRY_SIM_MAX_BYTES, &text, &len);

	if (r < 0)
		return gantry_err_set_errno(err, r, "%s", path);
	r = gantry_sim_machine_parse(text, len, ret_machine, err);
	return r < 0 ? gantry_err_wrap(err, r, "%s", path) : 0;
}

/* Rounded up: a transfer takes time. Saturates far beyond any simulation's end. */
static uint64_t to_ns(double ns)
{
	if (ns >= 9e18)
		return 9000000000000000000u;
	return (uint64_t)ns + ((double)(uint64_t)ns < ns);
}

static uint64_t link_ns(const struct gantry_sim_link *link, double default_gb_per_s, uint64_t bytes)
{
	double speed = link->gb_per_s > 0 ? link->gb_per_s : default_gb_per_s;

	return link->latency_ns + to_ns((double)bytes / speed);
}

uint64_t gantry_sim_copy_ns(const struct gantry_sim_machine *machine, uint32_t from, uint32_t to,
			    uint64_t bytes)
{
	const struct gantry_sim_link *link = &machine->links[from][to];

	if (from == to)
		return link_ns(link, DEFAULT_INNER_GB_PER_S, bytes);
	if (link->gb_per_s > 0 || from == GANTRY_SIM_HOST || to == GANTRY_SIM_HOST)
		return link_ns(link, DEFAULT_LINK_GB_PER_S, bytes);
	return link_ns(&machine->links[from][GANTRY_SIM_HOST], DEFAULT_LINK_GB_PER_S, bytes) +
	       link_ns(&machine->links[GANTRY_SIM_HOST][to], DEFAULT_LINK_GB_PER_S, bytes);
}

/* How well a line fits; 0: not at all. A name weighs more than any place. */
static unsigned int fit(const struct gantry_sim_kernel *line,
			const struct gantry_sim_machine *machine, uint32_t idx, const char *kernel)
{
	unsigned int place = 1;

	if (line->device >= 0) {
		if ((uint32_t)line->device != idx)
			return 0;
		place = 3;
	} else if (line->kind != GANTRY_KIND_ANY) {
		if (line->kind != machine->devices[idx].kind)
			return 0;
		place = 2;
	}
	if (strcmp(line->name, kernel) == 0)
		return place + 3;
	return strcmp(line->name, "*") == 0 ? place : 0;
}

uint64_t gantry_sim_kernel_ns(const struct gantry_sim_machine *machine, uint32_t idx,
			      const char *kernel, uint64_t bytes, uint64_t elements)
{
	const struct gantry_sim_kernel *best = NULL;
	unsigned int best_fit = 0;

	for (uint32_t i = 0; i < machine->nkernels; i++) {
		unsigned int f = fit(&machine->kernels[i], machine, idx, kernel);

		if (f > best_fit) {
			best_fit = f;
			best = &machine->kernels[i];
		}
	}
	if (!best)
		return DEFAULT_KERNEL_NS;
	return best->constant_ns + to_ns(best->ns_per_byte * (double)bytes) +
	       to_ns(best->ns_per_element * (double)elements);
}
