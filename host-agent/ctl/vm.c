/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doors of virtual machines: what needs no libvirt. The verbs that do are gantry-vm's, which is started with the same
 * command line.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host-agent/ctl/context.h"
#include "host-agent/ctl/find.h"
#include "host-agent/ctl/verbs.h"
#include "host-agent/ctl/vm_text.h"

#define PROGRAM "gantry-vm"

int gantry_ctl_vm_libvirt(struct gantry_ctl *ctl)
{
	const char *named = getenv("GANTRY_PROGRAM_GANTRY_VM");
	char path[PATH_MAX];

	if (named && *named) {
		if (strlen(named) >= sizeof(path))
			return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED,
					       "GANTRY_PROGRAM_GANTRY_VM is too long for a path");
		memcpy(path, named, strlen(named) + 1);
	} else if (gantry_find_program(PROGRAM, path) < 0) {
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_UNSUPPORTED,
			"this build has no gantry-vm, which speaks with libvirt; build it where libvirt-dev "
			"and libxml2-dev are installed, or do it by hand: gantryctl vm args T "
			"--format=libvirt");
	}
	execv(path, ctl->argv);
	return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "cannot run %s: %s", path, strerror(errno));
}

/* --- args --- */

static int describe(struct gantry_ctl *ctl, const Gantry__Admin__Doors *doors,
		    const char *transport, struct gantry_vm_device_text *ret_device)
{
	bool shared = doors->ivshmem && *doors->ivshmem->socket;
	bool stream = doors->vsock && doors->vsock->cid;

	*ret_device = (struct gantry_vm_device_text){ .tenant = ctl->args[0] };
	if (shared && (!transport || strcmp(transport, "ivshmem") == 0)) {
		ret_device->socket = doors->ivshmem->socket;
		ret_device->vectors = doors->ivshmem->vectors;
		ret_device->wake = *doors->ivshmem->wake_socket ? doors->ivshmem->wake_socket
								: NULL;
		return 0;
	}
	if (stream && (!transport || strcmp(transport, "vsock") == 0)) {
		ret_device->socket = *doors->vsock->socket ? doors->vsock->socket : NULL;
		ret_device->cid = doors->vsock->cid;
		return 0;
	}
	if (transport && strcmp(transport, "vsock") == 0)
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_DENIED,
			"tenant %s has no door for virtual machines by vsock; vsock_cid = N below "
			"[tenant %s] of the configuration gives machine N one",
			ctl->args[0], ctl->args[0]);
	return gantry_ctl_fail(
		ctl, GANTRY_CTL_DENIED,
		"tenant %s has no door for virtual machines%s; gantryctl tenant set %s --ivshmem yes "
		"gives it one",
		ctl->args[0], transport ? " by ivshmem" : "", ctl->args[0]);
}

/* virsh attach-device takes one element at a time. */
static int print_channel(struct gantry_ctl *ctl, const struct gantry_vm_device_text *device,
			 const char *format)
{
	if (strcmp(format, "libvirt") != 0)
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_USAGE,
			"--wake is for --format=libvirt; the others have it included");
	if (!device->wake)
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_UNSUPPORTED,
			"by vsock, and by this agent, programs are woken without a channel");
	gantry_vm_channel_xml(device, ctl->out);
	return 0;
}

static int print_args(struct gantry_ctl *ctl, const struct gantry_vm_device_text *device,
		      const char *format)
{
	if (gantry_ctl_option(ctl, "wake"))
		return print_channel(ctl, device, format);
	if (strcmp(format, "qemu") == 0)
		gantry_vm_qemu_options(device, ctl->out);
	else if (strcmp(format, "proxmox") == 0)
		gantry_vm_proxmox_command(device, ctl->out);
	else if (device->cid && device->socket)
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_UNSUPPORTED,
			"libvirt has no element for a vhost-user vsock device; put the options of "
			"--format=qemu into <qemu:commandline>");
	else
		gantry_vm_libvirt_xml(device, NULL, ctl->out);
	return 0;
}

int gantry_ctl_vm_args(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	const char *transport = gantry_ctl_option(ctl, "transport");
	const char *format = gantry_ctl_option(ctl, "format");
	struct gantry_vm_device_text device;
	int r;

	format = format ? format : "qemu";
	if (ctl->json)
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_USAGE,
			"vm args: it prints text for other programs, and has no --json");
	if (strcmp(format, "qemu") != 0 && strcmp(format, "libvirt") != 0 &&
	    strcmp(format, "proxmox") != 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "--format is qemu, libvirt or proxmox, not %s", format);
	if (transport && strcmp(transport, "ivshmem") != 0 && strcmp(transport, "vsock") != 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "--transport is ivshmem or vsock, not %s", transport);
	r = gantry_ctl_door_show(ctl, ctl->args[0], &reply);
	if (!r)
		r = describe(ctl, reply->doors, transport, &device);
	return r ? r : print_args(ctl, &device, format);
}

/* --- the agent's doors --- */

int gantry_ctl_door_show(struct gantry_ctl *ctl, const char *tenant,
			 Gantry__Admin__AdminReply **ret_reply)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__Name name = GANTRY__ADMIN__NAME__INIT;

	name.name = (char *)tenant;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_DOOR_SHOW;
	request.door_show = &name;
	return gantry_ctl_ask(ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_DOORS, ret_reply);
}
