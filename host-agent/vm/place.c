/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include <errno.h>

#include "base/bytes.h"

/* The slot below holds the host bridge on every machine. */
#define FIRST_SLOT 1u

static int place_on_root(const struct gantry_vm_domain *domain, const struct gantry_vm_pci *pci,
			 struct gantry_vm_address *ret_address, struct gantry_err *err)
{
	uint32_t used = domain->used[0] | (pci ? pci->used : 0);

	if (pci && !domain->acpi)
		return gantry_err_set(
			err, -EOPNOTSUPP,
			"a %s without <acpi/> in its <features> takes no device while it "
			"runs; add that, or shut it down and use --config",
			domain->machine);
	/* From the top: libvirt and QEMU fill from the bottom. */
	for (unsigned int slot = GANTRY_VM_SLOTS - 1; slot >= FIRST_SLOT; slot--)
		if (!(used & 1u << slot)) {
			*ret_address = (struct gantry_vm_address){ .slot = slot };
			return 0;
		}
	return gantry_err_set(
		err, -ENOSPC,
		"all slots of its PCI bus are taken; detach a device that it can miss");
}

static bool is_free(const struct gantry_vm_domain *domain, const struct gantry_vm_pci *pci,
		    unsigned int bus)
{
	const struct gantry_vm_port *port = &domain->port[bus];

	if (!port->there || domain->used[bus])
		return false;
	return !pci || !port->has_address || port->address.bus != 0 ||
	       !pci->root[port->address.slot][port->address.function].occupied;
}

/* A port of whose window nothing is known is given the benefit of the doubt: the guest is asked afterwards. */
static bool takes(const struct gantry_vm_domain *domain, const struct gantry_vm_pci *pci,
		  unsigned int bus, uint64_t bytes)
{
	const struct gantry_vm_port *port = &domain->port[bus];

	if (!pci || domain->native_hotplug || !port->has_address || port->address.bus != 0)
		return true;
	return gantry_vm_window_fits(&pci->root[port->address.slot][port->address.function], bytes);
}

static int place_on_port(const struct gantry_vm_domain *domain, const struct gantry_vm_pci *pci,
			 uint64_t bytes, struct gantry_vm_address *ret_address,
			 struct gantry_err *err)
{
	char size[GANTRY_QUANTITY_MAX];
	bool any = false;

	for (unsigned int bus = 1; bus < GANTRY_VM_BUSES; bus++) {
		if (!is_free(domain, pci, bus))
			continue;
		any = true;
		if (takes(domain, pci, bus, bytes)) {
			*ret_address = (struct gantry_vm_address){ .bus = bus };
			return 0;
		}
	}
	if (!any)
		return gantry_err_set(
			err, -ENOSPC,
			"it has no empty PCI Express root port; add <controller type='pci' "
			"model='pcie-root-port'/> to its definition and start it again");
	gantry_size_format(bytes, size);
	return gantry_err_set(
		err, -E2BIG,
		"no empty root port has a window for %s: start it with -global "
		"pcie-root-port.pref64-reserve=%s in <qemu:commandline>, or use a smaller "
		"--size; docs/vm.md tells more",
		size, size);
}

int gantry_vm_place(const struct gantry_vm_domain *domain, const struct gantry_vm_pci *pci,
		    uint64_t bytes, struct gantry_vm_address *ret_address, struct gantry_err *err)
{
	if (!domain->pci)
		return gantry_err_set(err, -EOPNOTSUPP,
				      "a %s has no PCI bus; use a machine of type pc or q35",
				      domain->machine);
	if (domain->pcie)
		return place_on_port(domain, pci, bytes, ret_address, err);
	return place_on_root(domain, pci, ret_address, err);
}

uint64_t gantry_vm_largest(const struct gantry_vm_domain *domain, const struct gantry_vm_pci *pci)
{
	struct gantry_vm_address at;

	if (gantry_vm_place(domain, pci, 1ull << 62, &at, NULL) == 0)
		return UINT64_MAX;
	for (uint64_t bytes = 1ull << 62; bytes; bytes >>= 1)
		if (gantry_vm_place(domain, pci, bytes, &at, NULL) == 0)
			return bytes;
	return 0;
}
