/* SPDX-License-Identifier: Apache-2.0 */
#include "guest_pci.h"

#include <errno.h>
#include <json-c/json.h>
#include <string.h>

#define DEPTH_MAX 8 /* of bridges behind bridges */

static uint64_t number(json_object *object, const char *key)
{
	json_object *value;

	return json_object_object_get_ex(object, key, &value) ? json_object_get_uint64(value) : 0;
}

static const char *text_of(json_object *object, const char *key)
{
	json_object *value;
	const char *text = json_object_object_get_ex(object, key, &value)
				   ? json_object_get_string(value)
				   : NULL;

	return text ? text : "";
}

static json_object *part(json_object *object, const char *key)
{
	json_object *value;

	return object && json_object_object_get_ex(object, key, &value) ? value : NULL;
}

static size_t length(json_object *array)
{
	return json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
}

static void read_device(json_object *device, struct gantry_vm_pci *pci)
{
	json_object *regions = part(device, "regions");

	pci->found = true;
	pci->address = (struct gantry_vm_address){
		.bus = (unsigned int)number(device, "bus"),
		.slot = (unsigned int)number(device, "slot"),
		.function = (unsigned int)number(device, "function"),
	};
	for (size_t i = 0; i < length(regions); i++) {
		json_object *region = json_object_array_get_idx(regions, i);
		uint64_t which = number(region, "bar");
		json_object *address = part(region, "address");

		if (which >= GANTRY_VM_BARS)
			continue;
		/* -1: not assigned, or switched off; 0 is nowhere for memory */
		pci->bar[which].assigned = address && json_object_get_int64(address) > 0;
		pci->bar[which].address = pci->bar[which].assigned ? number(region, "address") : 0;
		pci->bar[which].bytes = number(region, "size");
	}
}

static void read_root_slot(json_object *device, struct gantry_vm_pci *pci)
{
	uint64_t slot = number(device, "slot"), function = number(device, "function");
	json_object *bridge = part(device, "pci_bridge");
	json_object *range = part(part(bridge, "bus"), "prefetchable_range");
	struct gantry_vm_root_slot *at;

	if (slot >= GANTRY_VM_SLOTS || function >= GANTRY_VM_FUNCTIONS)
		return;
	pci->used |= 1u << slot;
	at = &pci->root[slot][function];
	at->bridge = bridge;
	at->occupied = length(part(bridge, "devices")) > 0;
	at->window_base = range ? number(range, "base") : 0;
	at->window_end = range ? number(range, "limit") + 1 : 0;
}

static void read_bus(json_object *devices, const char *id, int depth, struct gantry_vm_pci *pci)
{
	for (size_t i = 0; i < length(devices); i++) {
		json_object *device = json_object_array_get_idx(devices, i);
		json_object *behind = part(part(device, "pci_bridge"), "devices");

		if (depth == 0 && number(device, "bus") == 0)
			read_root_slot(device, pci);
		if (id && strcmp(text_of(device, "qdev_id"), id) == 0)
			read_device(device, pci);
		if (behind && depth < DEPTH_MAX)
			read_bus(behind, id, depth + 1, pci);
	}
}

int gantry_vm_pci_parse(const char *text, const char *id, struct gantry_vm_pci *ret_pci,
			struct gantry_err *err)
{
	json_object *answer = json_tokener_parse(text);
	json_object *buses = part(answer, "return");
	struct gantry_vm_pci pci = { 0 };
	int r = 0;

	if (!json_object_is_type(buses, json_type_array))
		r = gantry_err_set(err, -EINVAL, "QEMU does not say what is on its PCI buses");
	for (size_t i = 0; r == 0 && i < length(buses); i++)
		read_bus(part(json_object_array_get_idx(buses, i), "devices"), id, 0, &pci);
	json_object_put(answer);
	if (r == 0)
		*ret_pci = pci;
	return r;
}

bool gantry_vm_window_fits(const struct gantry_vm_root_slot *slot, uint64_t bytes)
{
	uint64_t start = (slot->window_base + bytes - 1) / bytes * bytes;

	return slot->window_end > slot->window_base && start >= slot->window_base &&
	       start <= slot->window_end && slot->window_end - start >= bytes;
}
