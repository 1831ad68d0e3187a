/* SPDX-License-Identifier: Apache-2.0 */
#include "domain.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "host-agent/ctl/vm_text.h"

#define XML_MAX_BYTES (4u << 20)
#define NO_ACPI_PLUG  "acpi-pci-hotplug-with-bridge-support=off"

/* --- the tree --- */

static bool is(const xmlNode *node, const char *name)
{
	return node->type == XML_ELEMENT_NODE && strcmp((const char *)node->name, name) == 0;
}

/* The first child of @parent with this name; NULL: none, or no parent. */
static const xmlNode *child(const xmlNode *parent, const char *name)
{
	const xmlNode *node = parent ? parent->children : NULL;

	while (node && !is(node, name))
		node = node->next;
	return node;
}

/* An attribute's value; "" when it is not there, or @node is not. */
static const char *attribute(const xmlNode *node, const char *name)
{
	const xmlAttr *attr = node ? node->properties : NULL;

	while (attr && strcmp((const char *)attr->name, name) != 0)
		attr = attr->next;
	return attr && attr->children && attr->children->content
		       ? (const char *)attr->children->content
		       : "";
}

/* Decimal, or hexadecimal after "0x", as libvirt writes them; below @end. */
static bool number(const char *text, unsigned int end, unsigned int *ret_value)
{
	char *rest;
	unsigned long value = strtoul(text, &rest, 0);

	if (!*text || *rest || value >= end)
		return false;
	*ret_value = (unsigned int)value;
	return true;
}

static bool read_address(const xmlNode *device, struct gantry_vm_address *ret_address)
{
	const xmlNode *node = child(device, "address");
	struct gantry_vm_address at;

	if (!node || strcmp(attribute(node, "type"), "pci") != 0 ||
	    !number(attribute(node, "bus"), GANTRY_VM_BUSES, &at.bus) ||
	    !number(attribute(node, "slot"), GANTRY_VM_SLOTS, &at.slot) ||
	    !number(attribute(node, "function"), 8, &at.function))
		return false;
	*ret_address = at;
	return true;
}

/* --- devices --- */

static void read_controller(struct gantry_vm_domain *domain, const xmlNode *node)
{
	const char *model = attribute(node, "model");
	unsigned int index;

	domain->has_ports |= strcmp(attribute(node, "type"), "virtio-serial") == 0;
	if (strcmp(attribute(node, "type"), "pci") != 0)
		return;
	domain->pci = true;
	if (strcmp(model, "pcie-root") == 0)
		domain->pcie = true;
	if (strcmp(model, "pcie-root-port") == 0 &&
	    strcmp(attribute(child(node, "target"), "hotplug"), "off") != 0 &&
	    number(attribute(node, "index"), GANTRY_VM_BUSES, &index)) {
		domain->port[index].there = true;
		domain->port[index].has_address = read_address(node, &domain->port[index].address);
	}
}

/* Whose door a device is, by its alias or by its name. */
static const char *tenant_of(const xmlNode *node)
{
	const char *alias = attribute(child(node, "alias"), "name");
	const char *name = attribute(node, "name");
	const char *tenant = NULL;

	if (gantry_str_starts(alias, GANTRY_VM_ALIAS))
		tenant = alias + strlen(GANTRY_VM_ALIAS);
	else if (gantry_str_starts(name, GANTRY_VM_NAME) && child(node, "server"))
		tenant = name + strlen(GANTRY_VM_NAME);
	return tenant && gantry_name_valid(tenant) ? tenant : NULL;
}

static char *dump(const struct gantry_libraries *lib, xmlNode *node)
{
	xmlBuffer *buffer = lib->xmlBufferCreate();
	char *text = NULL;

	if (buffer && lib->xmlNodeDump(buffer, node->doc, node, 0, 0) > 0)
		text = strdup((const char *)lib->xmlBufferContent(buffer));
	if (buffer)
		lib->xmlBufferFree(buffer);
	return text;
}

static int add_door(const struct gantry_libraries *lib, struct gantry_vm_domain *domain,
		    xmlNode *node, enum gantry_vm_transport transport, struct gantry_err *err)
{
	const char *tenant = tenant_of(node);
	struct gantry_vm_door *door = &domain->doors[domain->ndoors];
	unsigned int cid = 0;

	if (!tenant || domain->ndoors == GANTRY_VM_DOORS_MAX)
		return 0;
	*door = (struct gantry_vm_door){ .transport = transport };
	(void)number(attribute(child(node, "cid"), "address"), UINT32_MAX, &cid);
	door->cid = cid;
	door->is_master = strcmp(attribute(node, "role"), "master") == 0;
	door->has_address = read_address(node, &door->address);
	if (gantry_str_copy(door->tenant, sizeof(door->tenant), tenant) < 0 ||
	    gantry_str_copy(door->alias, sizeof(door->alias),
			    attribute(child(node, "alias"), "name")) < 0 ||
	    gantry_str_copy(door->socket, sizeof(door->socket),
			    attribute(child(node, "server"), "path")) < 0)
		return gantry_err_set(err, -EINVAL, "a name in the definition is too long");
	door->xml = dump(lib, node);
	if (!door->xml)
		return gantry_err_set(err, -ENOMEM, "no memory");
	domain->ndoors++;
	return 0;
}

static int read_channel(const struct gantry_libraries *lib, struct gantry_vm_domain *domain,
			xmlNode *node, struct gantry_err *err)
{
	const char *alias = attribute(child(node, "alias"), "name");

	if (!gantry_str_starts(alias, GANTRY_VM_CHANNEL_ALIAS) || domain->channel.xml ||
	    gantry_str_copy(domain->channel.tenant, sizeof(domain->channel.tenant),
			    alias + strlen(GANTRY_VM_CHANNEL_ALIAS)) < 0)
		return 0;
	domain->channel.xml = dump(lib, node);
	return domain->channel.xml ? 0 : gantry_err_set(err, -ENOMEM, "no memory");
}

static int read_device(const struct gantry_libraries *lib, struct gantry_vm_domain *domain,
		       xmlNode *node, struct gantry_err *err)
{
	struct gantry_vm_address at;

	if (node->type != XML_ELEMENT_NODE)
		return 0;
	if (read_address(node, &at))
		domain->used[at.bus] |= 1u << at.slot;
	if (is(node, "controller"))
		read_controller(domain, node);
	if (is(node, "channel"))
		return read_channel(lib, domain, node, err);
	if (is(node, "shmem"))
		return add_door(lib, domain, node, GANTRY_VM_IVSHMEM, err);
	if (is(node, "vsock")) {
		domain->has_vsock = true;
		(void)number(attribute(child(node, "cid"), "address"), UINT32_MAX,
			     &domain->vsock_cid);
		return add_door(lib, domain, node, GANTRY_VM_VSOCK, err);
	}
	return 0;
}

static int read_domain(const struct gantry_libraries *lib, const xmlNode *root,
		       struct gantry_vm_domain *domain, struct gantry_err *err)
{
	const xmlNode *devices = child(root, "devices");
	const xmlNode *qemu = child(root, "commandline");
	int r = gantry_str_copy(domain->machine, sizeof(domain->machine),
				attribute(child(child(root, "os"), "type"), "machine"));

	if (r < 0)
		return gantry_err_set(err, -EINVAL, "the machine's name is too long");
	domain->acpi = child(child(root, "features"), "acpi");
	for (xmlNode *arg = qemu ? qemu->children : NULL; arg; arg = arg->next)
		if (is(arg, "arg") && strstr(attribute(arg, "value"), NO_ACPI_PLUG))
			domain->native_hotplug = true;
	for (xmlNode *node = devices ? devices->children : NULL; node && r == 0; node = node->next)
		r = read_device(lib, domain, node, err);
	return r;
}

int gantry_vm_domain_parse(const struct gantry_libraries *lib, const char *text,
			   struct gantry_vm_domain *ret_domain, struct gantry_err *err)
{
	struct gantry_vm_domain domain = { 0 };
	size_t len = strlen(text);
	xmlDoc *doc = len < XML_MAX_BYTES
			      ? lib->xmlReadMemory(text, (int)len, NULL, NULL,
						   XML_PARSE_NONET | XML_PARSE_NOERROR |
							   XML_PARSE_NOWARNING | XML_PARSE_NOCDATA)
			      : NULL;
	const xmlNode *root = doc ? lib->xmlDocGetRootElement(doc) : NULL;
	int r;

	if (!root || !is(root, "domain"))
		r = gantry_err_set(err, -EINVAL, "that is no definition of a domain");
	else
		r = read_domain(lib, root, &domain, err);
	if (doc)
		lib->xmlFreeDoc(doc);
	if (r < 0) {
		gantry_vm_domain_fini(&domain);
		return r;
	}
	*ret_domain = domain;
	return 0;
}

void gantry_vm_domain_fini(struct gantry_vm_domain *domain)
{
	for (size_t i = 0; i < domain->ndoors; i++)
		free(domain->doors[i].xml);
	domain->ndoors = 0;
	free(domain->channel.xml);
	domain->channel.xml = NULL;
}

void gantry_vm_uri_host(const char *uri, char *buf, size_t cap)
{
	const char *start = strstr(uri, "://");
	size_t len, at;

	buf[0] = '\0';
	if (!start)
		return;
	start += 3;
	len = strcspn(start, "/?");
	for (at = len; at > 0 && start[at - 1] != '@';)
		at--;
	start += at;
	len -= at;
	if (*start == '[') {
		start++;
		len = strcspn(start, "]");
	} else {
		len = gantry_min_u64(len, strcspn(start, ":"));
	}
	if (len >= cap)
		return;
	memcpy(buf, start, len);
	buf[len] = '\0';
}
