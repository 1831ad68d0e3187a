/* SPDX-License-Identifier: Apache-2.0 */
#include "door.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"

/* The agent has no way to call back: it is asked again after this long. */
#define ASK_AGAIN_NS	  (10 * GANTRY_NS_PER_MS)
#define CMDLINE_MAX_BYTES (256u << 10)

/* --- which machine --- */

/* libvirt starts QEMU with "-uuid UUID". -1: its command line cannot be read. */
static int is_qemu_of(uint32_t pid, const char *uuid)
{
	_cleanup_free_ char *line = NULL;
	char path[64];
	size_t len;

	(void)gantry_str_format(path, sizeof(path), "/proc/%u/cmdline", pid);
	if (pid == 0 || gantry_file_read(path, CMDLINE_MAX_BYTES, &line, &len) < 0)
		return -1;
	for (const char *word = line; word < line + len; word += strlen(word) + 1)
		if (strcmp(word, "-uuid") == 0 && word + 6 < line + len)
			return strcmp(word + 6, uuid) == 0;
	return 0;
}

const Gantry__Admin__DoorPeer *gantry_vm_peer(const Gantry__Admin__IvshmemDoor *door,
					      const char *uuid)
{
	const Gantry__Admin__DoorPeer *unknown = NULL;

	for (size_t i = 0; door && i < door->n_peers; i++) {
		int is = is_qemu_of(door->peers[i]->pid, uuid);

		if (is > 0)
			return door->peers[i];
		if (is < 0 && door->n_peers == 1)
			unknown = door->peers[i];
	}
	return unknown;
}

/* --- asking the agent --- */

static int change(struct gantry_ctl *ctl, Gantry__Admin__AdminRequest *request)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;

	return gantry_ctl_ask(ctl, request, -1, &reply);
}

static void fill_open(Gantry__Admin__AdminRequest *request, Gantry__Admin__DoorOpen *open,
		      const char *tenant)
{
	open->tenant = (char *)tenant;
	request->body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_DOOR_OPEN;
	request->door_open = open;
}

int gantry_vm_door_open(struct gantry_ctl *ctl, const char *tenant, uint64_t bytes)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__DoorOpen open = GANTRY__ADMIN__DOOR_OPEN__INIT;
	Gantry__Admin__UInt size = GANTRY__ADMIN__UINT__INIT;

	fill_open(&request, &open, tenant);
	size.value = bytes;
	open.size_bytes = bytes ? &size : NULL;
	return change(ctl, &request);
}

int gantry_vm_door_open_to(struct gantry_ctl *ctl, const char *tenant, uint32_t peer)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__DoorOpen open = GANTRY__ADMIN__DOOR_OPEN__INIT;
	Gantry__Admin__UInt id = GANTRY__ADMIN__UINT__INIT;

	fill_open(&request, &open, tenant);
	id.value = peer;
	open.peer = &id;
	return change(ctl, &request);
}

void gantry_vm_door_reopen(struct gantry_ctl *ctl, const char *tenant, uint32_t peer)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__DoorOpen open = GANTRY__ADMIN__DOOR_OPEN__INIT;
	Gantry__Admin__UInt id = GANTRY__ADMIN__UINT__INIT;

	fill_open(&request, &open, tenant);
	id.value = peer;
	open.peer = peer ? &id : NULL;
	(void)gantry_ctl_ask_quietly(ctl, &request, &reply, NULL);
}

int gantry_vm_door_drain(struct gantry_ctl *ctl, const char *tenant,
			 const Gantry__Admin__DoorPeer *peer, uint64_t ns)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__DoorDrain drain = GANTRY__ADMIN__DOOR_DRAIN__INIT;
	Gantry__Admin__UInt deadline = GANTRY__ADMIN__UINT__INIT;
	Gantry__Admin__UInt id = GANTRY__ADMIN__UINT__INIT;

	deadline.value = ns;
	drain.tenant = (char *)tenant;
	drain.deadline_ns = &deadline;
	drain.reason = (char *)"the device is being detached";
	if (peer) {
		id.value = peer->id;
		drain.peer = &id;
	}
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_DOOR_DRAIN;
	request.door_drain = &drain;
	return change(ctl, &request);
}

static void pause_a_little(void)
{
	const struct timespec pause = { .tv_nsec = ASK_AGAIN_NS };

	nanosleep(&pause, NULL);
}

int gantry_vm_door_wait_empty(struct gantry_ctl *ctl, const char *tenant, const char *uuid,
			      uint64_t deadline_ns, uint32_t *ret_left)
{
	for (;;) {
		_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
		const Gantry__Admin__DoorPeer *peer;
		int r = gantry_ctl_door_show(ctl, tenant, &reply);

		if (r)
			return r;
		peer = gantry_vm_peer(reply->doors->ivshmem, uuid);
		*ret_left = peer ? (peer->claims > peer->guests ? peer->claims : peer->guests) : 0;
		if (*ret_left == 0 || gantry_deadline_passed(deadline_ns) ||
		    gantry_vm_interrupted())
			return 0;
		pause_a_little();
	}
}

void gantry_vm_door_wait_gone(struct gantry_ctl *ctl, const char *tenant, const char *uuid,
			      uint64_t deadline_ns)
{
	bool there = true;

	while (there && !gantry_deadline_passed(deadline_ns)) {
		_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;

		if (gantry_ctl_door_show(ctl, tenant, &reply))
			return;
		there = gantry_vm_peer(reply->doors->ivshmem, uuid);
		if (there)
			pause_a_little();
	}
}
