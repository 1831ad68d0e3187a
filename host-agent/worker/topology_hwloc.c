/* SPDX-License-Identifier: Apache-2.0 */
/* Where devices are, by hwloc, which is loaded if it is there. */
#include <dlfcn.h>
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>

#include "base/array.h"
#include "host-agent/worker/affinity.h"

struct calls {
	void *library;
	int (*init)(hwloc_topology_t *);
	int (*io_filter)(hwloc_topology_t, enum hwloc_type_filter_e);
	int (*load)(hwloc_topology_t);
	void (*destroy)(hwloc_topology_t);
	hwloc_obj_t (*by_depth)(hwloc_topology_t, int, unsigned);
	int (*next)(hwloc_const_bitmap_t, int);
};

static int load_calls(struct calls *c)
{
	const struct {
		void *pointer;
		const char *name;
	} symbols[] = {
		{ &c->init, "hwloc_topology_init" },
		{ &c->io_filter, "hwloc_topology_set_io_types_filter" },
		{ &c->load, "hwloc_topology_load" },
		{ &c->destroy, "hwloc_topology_destroy" },
		{ &c->by_depth, "hwloc_get_obj_by_depth" },
		{ &c->next, "hwloc_bitmap_next" },
	};

	c->library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
	if (!c->library)
		return -ENOENT;
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(symbols); i++) {
		void *found = dlsym(c->library, symbols[i].name);

		if (!found) {
			(void)dlclose(c->library);
			return -ENOENT;
		}
		*(void **)symbols[i].pointer = found;
	}
	return 0;
}

struct place {
	bool is_pci;
	unsigned int domain, bus, dev, func;
	unsigned int node;
};

static bool is_it(const struct place *p, hwloc_obj_t obj)
{
	const struct hwloc_pcidev_attr_s *pci = &obj->attr->pcidev;

	if (!p->is_pci)
		return obj->os_index == p->node;
	return pci->domain == p->domain && pci->bus == p->bus && pci->dev == p->dev &&
	       pci->func == p->func;
}

static int find(const struct calls *c, hwloc_topology_t topology, const struct place *p,
		cpu_set_t *ret_set)
{
	int depth = p->is_pci ? HWLOC_TYPE_DEPTH_PCI_DEVICE : HWLOC_TYPE_DEPTH_NUMANODE;
	hwloc_obj_t obj;
	cpu_set_t set;
	unsigned int i = 0;

	while ((obj = c->by_depth(topology, depth, i)) && !is_it(p, obj))
		i++;
	while (obj && !obj->cpuset)
		obj = obj->parent; /* a device hangs below what is near it */
	if (!obj)
		return -ENOENT;
	CPU_ZERO(&set);
	for (int cpu = c->next(obj->cpuset, -1); cpu >= 0 && cpu < CPU_SETSIZE;
	     cpu = c->next(obj->cpuset, cpu))
		CPU_SET(cpu, &set);
	*ret_set = set;
	return 0;
}

int gantry_topology_near(const char *pci, int node, cpu_set_t *ret_set)
{
	struct place p = { .is_pci = pci, .node = (unsigned int)node };
	hwloc_topology_t topology;
	struct calls c;
	int r;

	if (pci && sscanf(pci, "%x:%x:%x.%x", &p.domain, &p.bus, &p.dev, &p.func) != 4)
		return -EINVAL;
	r = load_calls(&c);
	if (r < 0)
		return r;
	r = -ENOENT;
	if (c.init(&topology) == 0) {
		if (c.io_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
		    c.load(topology) == 0)
			r = find(&c, topology, &p, ret_set);
		c.destroy(topology);
	}
	(void)dlclose(c.library);
	return r;
}
