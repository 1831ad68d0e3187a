/* SPDX-License-Identifier: Apache-2.0 */
#include "vm_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "proto/doormem.h"

/* --- quoting --- */

/* Inside an attribute that stands between apostrophes. */
static void put_xml(const char *text, FILE *out)
{
	for (; *text; text++)
		switch (*text) {
		case '&':
			fputs("&amp;", out);
			break;
		case '<':
			fputs("&lt;", out);
			break;
		case '\'':
			fputs("&apos;", out);
			break;
		default:
			fputc(*text, out);
		}
}

/* QEMU ends a value at a comma; two stand for one. */
static void put_qemu_value(const char *text, FILE *out)
{
	for (; *text; text++) {
		if (*text == ',')
			fputc(',', out);
		fputc(*text, out);
	}
}

/* One word of a shell. */
static void put_word(const char *text, FILE *out)
{
	if (!text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
			       "-_./,=:+@%")]) {
		fputs(text, out);
		return;
	}
	fputc('\'', out);
	for (; *text; text++)
		if (*text == '\'')
			fputs("'\\''", out);
		else
			fputc(*text, out);
	fputc('\'', out);
}

/* --- libvirt --- */

static void put_address(const struct gantry_vm_where *where, FILE *out)
{
	if (where)
		fprintf(out,
			"  <address type='pci' domain='0x0000' bus='0x%02x' slot='0x%02x' "
			"function='0x0'/>\n",
			where->bus, where->slot);
}

void gantry_vm_libvirt_xml(const struct gantry_vm_device_text *device,
			   const struct gantry_vm_where *where, FILE *out)
{
	if (device->cid) {
		fprintf(out, "<vsock model='virtio'>\n  <cid auto='no' address='%u'/>\n",
			device->cid);
		fprintf(out, "  <alias name='ua-gantry-%s'/>\n", device->tenant);
		put_address(where, out);
		fputs("</vsock>\n", out);
		return;
	}
	fprintf(out, "<shmem name='gantry-%s' role='peer'>\n", device->tenant);
	fputs("  <model type='ivshmem-doorbell'/>\n  <server path='", out);
	put_xml(device->socket, out);
	fprintf(out, "'/>\n  <msi vectors='%u' ioeventfd='on'/>\n", device->vectors);
	fprintf(out, "  <alias name='ua-gantry-%s'/>\n", device->tenant);
	put_address(where, out);
	fputs("</shmem>\n", out);
}

void gantry_vm_channel_xml(const struct gantry_vm_device_text *device, FILE *out)
{
	fputs("<channel type='unix'>\n  <source mode='connect' path='", out);
	put_xml(device->wake, out);
	fprintf(out,
		"'/>\n  <target type='virtio' name='" GANTRY_WAKE_PORT_NAME ".%s'/>\n"
		"  <alias name='" GANTRY_VM_CHANNEL_ALIAS "%s'/>\n</channel>\n",
		device->tenant, device->tenant);
}

/* --- QEMU --- */

static void put_chardev(const char *id, const char *tenant, const char *socket, FILE *out)
{
	_cleanup_free_ char *value = NULL;
	size_t len;
	FILE *text = open_memstream(&value, &len);

	if (!text)
		return;
	fprintf(text, "socket,id=%s-%s,path=", id, tenant);
	put_qemu_value(socket, text);
	fclose(text);
	fputs("-chardev ", out);
	put_word(value, out);
}

static void put_port(const struct gantry_vm_device_text *device, FILE *out)
{
	const char *tenant = device->tenant;

	fprintf(out, " -device virtio-serial-pci,id=gantry-ports-%s ", tenant);
	put_chardev("gantry-wake", tenant, device->wake, out);
	fprintf(out,
		" -device virtserialport,bus=gantry-ports-%s.0,chardev=gantry-wake-%s,"
		"name=" GANTRY_WAKE_PORT_NAME ".%s",
		tenant, tenant, tenant);
}

void gantry_vm_qemu_options(const struct gantry_vm_device_text *device, FILE *out)
{
	const char *tenant = device->tenant;

	if (device->cid && !device->socket) {
		fprintf(out, "-device vhost-vsock-pci,id=gantry-%s,guest-cid=%u\n", tenant,
			device->cid);
		return;
	}
	put_chardev("gantry", tenant, device->socket, out);
	if (device->cid)
		fprintf(out, " -device vhost-user-vsock-pci,id=gantry-vsock-%s,chardev=gantry-%s\n",
			tenant, tenant);
	else
		fprintf(out,
			" -device ivshmem-doorbell,id=gantry-shm-%s,chardev=gantry-%s,vectors=%u,master=on",
			tenant, tenant, device->vectors);
	if (!device->cid && device->wake)
		put_port(device, out);
	if (!device->cid)
		fputc('\n', out);
}

/* --- Proxmox --- */

void gantry_vm_proxmox_command(const struct gantry_vm_device_text *device, FILE *out)
{
	_cleanup_free_ char *options = NULL;
	size_t len;
	FILE *text = open_memstream(&options, &len);

	if (!text)
		return;
	gantry_vm_qemu_options(device, text);
	fclose(text);
	options[strcspn(options, "\n")] = '\0';
	fputs("qm set VMID --args ", out);
	put_word(options, out);
	fputc('\n', out);
}
