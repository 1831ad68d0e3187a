/* SPDX-License-Identifier: Apache-2.0 */
#include "row.h"

#include "base/array.h"

#define ROW(member) .off = offsetof(struct gantry_vm_row, member)
static const struct gantry_field list[] = {
	{ "domain", "DOMAIN", GANTRY_FIELD_TEXT, ROW(domain) },
	{ "state", "STATE", GANTRY_FIELD_TEXT, ROW(state) },
	{ "machine", "MACHINE", GANTRY_FIELD_TEXT, ROW(machine) },
	{ "tenant", "TENANT", GANTRY_FIELD_TEXT, ROW(tenant) },
	{ "transport", "TRANSPORT", GANTRY_FIELD_TEXT, ROW(transport) },
	{ "in", "IN", GANTRY_FIELD_TEXT, ROW(in) },
	{ "door", "DOOR", GANTRY_FIELD_TEXT, ROW(door) },
	{ "bytes", "SIZE", GANTRY_FIELD_OPT_BYTES, ROW(bytes) },
	{ "guests", "GUESTS", GANTRY_FIELD_OPT_U64, ROW(guests) },
	{ "claims", NULL, GANTRY_FIELD_OPT_U64, ROW(claims) },
	{ "desks", NULL, GANTRY_FIELD_OPT_U64, ROW(desks) },
	{ "epoch", NULL, GANTRY_FIELD_OPT_U64, ROW(epoch) },
	{ "uuid", NULL, GANTRY_FIELD_TEXT, ROW(uuid) },
	{ "alias", NULL, GANTRY_FIELD_TEXT, ROW(alias) },
	{ "socket", NULL, GANTRY_FIELD_TEXT, ROW(socket) },
	{ "cid", NULL, GANTRY_FIELD_OPT_U64, ROW(cid) },
	{ "pci", NULL, GANTRY_FIELD_TEXT, ROW(pci) },
	{ "address", NULL, GANTRY_FIELD_TEXT, ROW(address) },
	{ "largest_bytes", NULL, GANTRY_FIELD_OPT_BYTES, ROW(largest) },
};
const struct gantry_fields gantry_vm_fields = {
	.one = "vm",
	.many = "vms",
	.n = GANTRY_ARRAY_SIZE(list),
	.list = list,
};
