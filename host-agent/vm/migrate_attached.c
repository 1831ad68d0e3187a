/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm migrate with the device in the machine: QEMU carries the door memory as it does the machine's own, and
 * host-agent/agent/seat.h says how sessions keep their seats in it. Each step is of the same place in the journey as the one of
 * the detached way (migrate_steps.c), so that it is undone in the same order.
 *
 *   step    does                                                 undo
 *   check   as there, and whether the device can stay in         -
 *   leave   newcomers wait at the doors                          they come in
 *   copy    sessions are copied ahead, and work on               they stay; who has gone comes back, and sits down again
 *   expect  the doors there expect the machine                   they do not
 *   move    libvirt; once the machine stands still, sessions     where it is there: back again, still standing
 *           are held, and the rest of them is copied
 *   seat    sessions go over and are seated; the machine runs    -
 *   return  as there                                             -
 *
 * The sessions' agents go by what libvirt has said by then: they are here until the machine is there.
 */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "host-agent/vm/door.h"
#include "host-agent/vm/migrate.h"

#define LOOK_MS 2
#define SEEN_NS ((int64_t)GANTRY_NS_PER_S)

/* ---- can it stay in? ---- */

/* libvirt 9.0 takes role='master' for a doorbell device, and does not tell QEMU. */
static bool is_master_to_qemu(const struct gantry_vm_machine *m, const struct gantry_vm_door *door)
{
	_cleanup_free_ char *answer = NULL;
	char command[2 * GANTRY_VM_TEXT];
	json_object *object, *value;
	bool is;

	(void)gantry_str_format(command, sizeof(command), /* it fits */
				"{\"execute\":\"qom-get\",\"arguments\":{\"path\":"
				"\"/machine/peripheral/%s\",\"property\":\"master\"}}",
				door->alias);
	answer = gantry_vm_ask_qemu(m, command);
	object = answer ? json_tokener_parse(answer) : NULL;
	is = object && json_object_object_get_ex(object, "return", &value) &&
	     strcmp(json_object_get_string(value), "on") == 0;
	json_object_put(object);
	return is;
}

static int cannot(struct gantry_err *err, const struct gantry_vm_door *door, const char *why)
{
	(void)gantry_err_set(err, -ENOTSUP, "the device of tenant %s cannot stay in: %s",
			     door->tenant, why);
	return GANTRY_CTL_UNSUPPORTED;
}

static int check_door(struct gantry_vm_trip *t, const struct gantry_vm_door *door,
		      struct gantry_err *err)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	const Gantry__Admin__DoorPeer *peer;
	int r;

	if (!door->is_master)
		return cannot(err, door, "its definition does not say role='master'");
	if (!is_master_to_qemu(&t->here.machine, door))
		return cannot(err, door,
			      "its QEMU was started without master=on; see vm.md for the "
			      "<qemu:override>");
	r = gantry_ctl_door_show(&t->here.ctl, door->tenant, &reply);
	if (r)
		return gantry_vm_said(&t->here, r, err);
	peer = gantry_vm_peer(reply->doors->ivshmem, t->here.machine.uuid);
	if (!peer)
		return cannot(err, door, "the agent here does not know the machine");
	if (strcmp(peer->state, "open") != 0)
		return cannot(err, door, "its door is not open");
	return 0;
}

int gantry_vm_trip_may_stay_in(struct gantry_vm_trip *t, struct gantry_err *err)
{
	const struct gantry_vm_domain *live;
	size_t n = 0;
	int r = gantry_vm_trip_look(t, &t->here, err);

	live = &t->here.machine.live;
	for (size_t i = 0; !r && i < live->ndoors; i++) {
		if (live->doors[i].transport != GANTRY_VM_IVSHMEM)
			continue;
		n++;
		r = check_door(t, &live->doors[i], err);
	}
	if (r || n)
		return r;
	(void)gantry_err_set(err, -ENOENT, "it has no shared-memory device that could stay in");
	return GANTRY_CTL_UNSUPPORTED;
}

/* ---- the definition that goes there ---- */

/* @text with each @from written as @to; NULL: no memory. */
static char *replaced(const char *text, const char *from, const char *to)
{
	const size_t nfrom = strlen(from), nto = strlen(to);
	size_t len = strlen(text), n = 0;
	char *result, *end;

	for (const char *at = strstr(text, from); at; at = strstr(at + nfrom, from))
		n++;
	result = end = malloc(len + n * nto + 1);
	if (!result)
		return NULL;
	for (const char *at = strstr(text, from); at; at = strstr(text, from)) {
		memcpy(end, text, (size_t)(at - text));
		end += at - text;
		memcpy(end, to, nto);
		end += nto;
		text = at + nfrom;
	}
	memcpy(end, text, strlen(text) + 1);
	return result;
}

/* Where the definition says @from behind @words it says @to. */
static int rewrite(struct gantry_vm_trip *t, const char *words, const char *from, const char *to,
		   struct gantry_err *err)
{
	char old[GANTRY_VM_TEXT + 40], new[GANTRY_VM_TEXT + 40];
	char *text;

	if (strcmp(from, to) == 0)
		return 0;
	if (gantry_str_format(old, sizeof(old), "%s'%s'", words, from) < 0 ||
	    gantry_str_format(new, sizeof(new), "%s'%s'", words, to) < 0) {
		(void)gantry_err_set(err, -EINVAL, "a socket's name is too long; give --xml");
		return GANTRY_CTL_FAILED;
	}
	text = replaced(t->how.xml, old, new);
	if (!text) {
		(void)gantry_err_set(err, -ENOMEM, "no memory");
		return GANTRY_CTL_FAILED;
	}
	free(t->how.xml);
	t->how.xml = text;
	return 0;
}

/* The device's socket, and the one that ports connect to which wake programs. */
static int rewrite_sockets(struct gantry_vm_trip *t, const struct gantry_vm_door *door,
			   struct gantry_err *err)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *here = NULL;
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *there = NULL;
	int r = gantry_ctl_door_show(&t->there.ctl, door->tenant, &there);

	if (r || !there->doors->ivshmem)
		return gantry_vm_said(&t->there, r, err);
	r = rewrite(t, "<server path=", door->socket, there->doors->ivshmem->socket, err);
	if (r)
		return r;
	r = gantry_ctl_door_show(&t->here.ctl, door->tenant, &here);
	if (r || !here->doors->ivshmem)
		return gantry_vm_said(&t->here, r, err);
	if (!*here->doors->ivshmem->wake_socket || !*there->doors->ivshmem->wake_socket)
		return 0;
	return rewrite(t, "<source mode='connect' path=", here->doors->ivshmem->wake_socket,
		       there->doors->ivshmem->wake_socket, err);
}

int gantry_vm_trip_rewrite(struct gantry_vm_trip *t, struct gantry_err *err)
{
	const struct gantry_vm_machine *m = &t->here.machine;
	struct gantry_vm *vm = &t->here.vm;
	int r = 0;

	if (t->how.xml)
		return 0; /* who has said what it is there knows better */
	t->how.xml = vm->lib.virDomainGetXMLDesc(m->domain,
						 VIR_DOMAIN_XML_MIGRATABLE | VIR_DOMAIN_XML_SECURE);
	t->own_xml = t->how.xml ? strdup(t->how.xml) : NULL;
	if (!t->own_xml) {
		(void)gantry_err_set(err, -EIO, "its definition: %s", gantry_vm_error(vm));
		return GANTRY_CTL_FAILED;
	}
	for (size_t i = 0; !r && i < m->live.ndoors; i++)
		if (m->live.doors[i].transport == GANTRY_VM_IVSHMEM)
			r = rewrite_sockets(t, &m->live.doors[i], err);
	return r;
}

/* ---- asking agents about doors ---- */

/* Its seats as they are now, instead of those that were known; newcomers wait for @limit_ns. */
static int read_seats(struct gantry_vm_trip *t, struct gantry_vm_luggage *one, uint64_t limit_ns)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__DoorLeave body = GANTRY__ADMIN__DOOR_LEAVE__INIT;
	Gantry__Admin__AdminReply *reply = NULL;
	int r;

	body.tenant = one->tenant;
	body.peer = (uint32_t)one->peer;
	body.limit_ns = limit_ns;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_DOOR_SEATS;
	request.door_seats = &body;
	r = gantry_ctl_ask(&t->here.ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_SEATS, &reply);
	/* One that has hung up and had no programs is known to nobody any more, and has not changed. */
	if (r == GANTRY_CTL_NOT_FOUND && one->seats && one->seats->seats->n_seats == 0)
		return 0;
	if (r)
		return r;
	gantry_client_reply_freep(&one->seats);
	one->seats = reply;
	return 0;
}

void gantry_vm_trip_forget_seats(struct gantry_vm_trip *t)
{
	for (size_t i = 0; i < t->nluggage; i++)
		gantry_client_reply_freep(&t->luggage[i].seats);
}

static int expect_at(struct gantry_vm_trip *t, struct gantry_vm_side *side,
		     const struct gantry_vm_luggage *one, uint64_t limit_ns)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__DoorExpect body = GANTRY__ADMIN__DOOR_EXPECT__INIT;

	body.tenant = (char *)one->tenant;
	body.uuid = t->uuid;
	body.bytes = one->bytes;
	body.limit_ns = limit_ns;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_DOOR_EXPECT;
	request.door_expect = &body;
	return gantry_ctl_ask(&side->ctl, &request, -1, &reply);
}

static int find_peer(struct gantry_vm_trip *t, struct gantry_vm_side *side,
		     const struct gantry_vm_luggage *one, uint32_t *ret_id, bool *ret_open)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	const Gantry__Admin__DoorPeer *peer;
	int r = gantry_ctl_door_show(&side->ctl, one->tenant, &reply);

	if (r)
		return r;
	peer = gantry_vm_peer(reply->doors->ivshmem, t->uuid);
	if (!peer)
		return gantry_ctl_fail(&side->ctl, GANTRY_CTL_NOT_FOUND,
				       "the machine is not at the door of tenant %s", one->tenant);
	*ret_id = peer->id;
	*ret_open = strcmp(peer->state, "open") == 0;
	return 0;
}

static int take_seats(struct gantry_vm_trip *t, struct gantry_vm_side *side,
		      const struct gantry_vm_luggage *one)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__DoorTake body = GANTRY__ADMIN__DOOR_TAKE__INIT;
	bool is_open;
	int r = find_peer(t, side, one, &body.peer, &is_open);

	if (r)
		return r;
	body.tenant = (char *)one->tenant;
	body.seats = one->seats->seats;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_DOOR_TAKE;
	request.door_take = &body;
	return gantry_ctl_ask(&side->ctl, &request, -1, &reply);
}

static int await_open(struct gantry_vm_trip *t, struct gantry_vm_side *side,
		      const struct gantry_vm_luggage *one, uint64_t deadline_ns)
{
	for (;;) {
		bool is_open = false;
		uint32_t id;
		int r = find_peer(t, side, one, &id, &is_open);

		if (r || is_open)
			return r;
		if (gantry_deadline_passed(deadline_ns))
			return gantry_ctl_fail(&side->ctl, GANTRY_CTL_TIMEOUT,
					       "its sessions did not get their seats in time");
		gantry_vm_turn(&side->vm, LOOK_MS);
	}
}

/* The sessions are @side's, and the machine stands still there: they sit down in it, and it runs. */
static int sit_down(struct gantry_vm_trip *t, struct gantry_vm_side *side, struct gantry_err *err)
{
	uint64_t deadline_ns = gantry_vm_trip_deadline(t);
	int r = 0;

	for (size_t i = 0; !r && i < t->nluggage; i++) {
		r = take_seats(t, side, &t->luggage[i]);
		/* One whose worker is still ending here. */
		while (r == GANTRY_CTL_NOT_FOUND && side == &t->here &&
		       !gantry_deadline_passed(deadline_ns)) {
			gantry_vm_turn(&side->vm, LOOK_MS);
			r = take_seats(t, side, &t->luggage[i]);
		}
	}
	if (r)
		return gantry_vm_said(side, r, err);
	t->seated = true;
	r = gantry_vm_trip_look(t, side, err); /* while they sit down */
	if (r)
		return r;
	for (size_t i = 0; !r && i < t->nluggage; i++)
		r = await_open(t, side, &t->luggage[i], deadline_ns);
	if (r)
		return gantry_vm_said(side, r, err);
	if (side->machine.state == VIR_DOMAIN_PAUSED &&
	    side->vm.lib.virDomainResume(side->machine.domain) < 0) {
		(void)gantry_err_set(err, -EIO, "virsh resume: %s", gantry_vm_error(&side->vm));
		return GANTRY_CTL_FAILED;
	}
	t->resumed_ns = gantry_now_ns();
	return 0;
}

/* ---- leave ---- */

static int hold_doors(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r = 0;

	for (size_t i = 0; !r && i < t->nluggage; i++)
		r = read_seats(t, &t->luggage[i], 2 * t->how.limit_ns);
	return gantry_vm_said(&t->here, r, err);
}

static int open_doors(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r = 0;

	(void)err;
	for (size_t i = 0; i < t->nluggage; i++)
		r = t->came_back ? 0 : read_seats(t, &t->luggage[i], 0);
	(void)r; /* it ends by itself */
	return 0;
}

/* ---- copy ---- */

static int stage(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;

	return gantry_vm_said(&t->here,
			      gantry_vm_sessions_stage(
				      &t->sessions, gantry_deadline_ns((int64_t)t->how.limit_ns)),
			      err);
}

static int unstage(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r;

	gantry_vm_sessions_cancel(&t->sessions);
	t->sessions.staged = false; /* they come back as they are */
	r = gantry_vm_trip_bring_back(t, err);
	if (r || !t->came_back)
		return r;
	return sit_down(t, &t->here, err);
}

/* ---- expect ---- */

/* QEMU was started with so many, and is there as it is here. */
static int check_vectors(struct gantry_vm_trip *t, const struct gantry_vm_luggage *one)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	const Gantry__Admin__DoorSeats *seats = one->seats->seats;
	int r = gantry_ctl_door_show(&t->there.ctl, one->tenant, &reply);

	if (r || !reply->doors->ivshmem || reply->doors->ivshmem->vectors == seats->vectors)
		return r;
	return gantry_ctl_fail(
		&t->there.ctl, GANTRY_CTL_UNSUPPORTED,
		"the machine's device has %u doorbells, and those of tenant %s there "
		"have %u; set ivshmem_vectors alike, or go --detached",
		seats->vectors, one->tenant, reply->doors->ivshmem->vectors);
}

static int expect(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r = 0;

	for (size_t i = 0; !r && i < t->nluggage; i++) {
		r = check_vectors(t, &t->luggage[i]);
		if (!r)
			r = expect_at(t, &t->there, &t->luggage[i], 2 * t->how.limit_ns);
	}
	return gantry_vm_said(&t->there, r, err);
}

static int expect_no_more(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;

	(void)err;
	for (size_t i = 0; i < t->nluggage; i++)
		(void)expect_at(t, &t->there, &t->luggage[i], 0); /* it ends by itself */
	return 0;
}

/* ---- seat ---- */

static int seat_all(struct gantry_vm_trip *t, struct gantry_err *err)
{
	int r = gantry_vm_sessions_await_held(&t->sessions, gantry_vm_trip_deadline(t));

	for (size_t i = 0; !r && i < t->nluggage; i++)
		r = read_seats(t, &t->luggage[i], t->how.limit_ns);
	if (!r)
		r = gantry_vm_sessions_go(&t->sessions, gantry_vm_trip_deadline(t));
	r = r ? gantry_vm_said(&t->here, r, err) : sit_down(t, &t->there, err);
	if (!r) /* to see when they work on; who has not come back by then is for the last step */
		(void)gantry_vm_sessions_await(&t->sessions, gantry_deadline_ns(SEEN_NS),
					       &t->missing);
	return r;
}

/* The machine is there: while libvirt clears up here, or after that where nobody has heard of it. */
static void machine_arrived(void *arg)
{
	struct gantry_vm_trip *t = arg;

	if (t->has_tried_seats)
		return;
	t->has_tried_seats = true;
	t->seat_code = seat_all(t, &t->seat_why);
}

static int seat(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;

	machine_arrived(t);
	*err = t->seat_why;
	return t->seat_code;
}

/* ---- move ---- */

static void machine_stopped(void *arg)
{
	struct gantry_vm_trip *t = arg;

	gantry_vm_sessions_hold(&t->sessions);
}

static int move(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r = gantry_vm_trip_look(t, &t->here, err);

	if (r)
		return r;
	t->how.paused = true;
	t->how.stopped = machine_stopped;
	t->how.arrived = machine_arrived;
	t->how.arg = t;
	r = gantry_vm_move(&t->here.machine, &t->there.vm, &t->how, &t->moved, err);
	if (!r || t->has_tried_seats) /* what it says after that is about what is left here */
		return 0;
	switch (gantry_vm_where_stands(&t->here.vm, &t->there.vm, t->uuid)) {
	case GANTRY_VM_AT_SOURCE:
		return r;
	case GANTRY_VM_AT_DESTINATION: /* its end was not told, but it has come to one */
		return 0;
	default:
		return GANTRY_VM_LOST;
	}
}

static int move_back(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	struct gantry_vm_move how = t->how;
	struct gantry_vm_moved moved;
	int r = 0;

	gantry_vm_interrupt_heard();
	if (gantry_vm_where_stands(&t->here.vm, &t->there.vm, t->uuid) == GANTRY_VM_AT_SOURCE)
		return 0;
	if (t->seated) {
		(void)gantry_err_set(
			err, -EIO,
			"its sessions sit in it there already; virsh resume there has it "
			"run");
		return GANTRY_CTL_FAILED;
	}
	for (size_t i = 0; !r && i < t->nluggage; i++)
		r = gantry_vm_said(
			&t->here, expect_at(t, &t->here, &t->luggage[i], 2 * t->how.limit_ns), err);
	how.uri = t->back_uri;
	how.xml = t->own_xml;
	how.stopped = how.arrived = NULL;
	if (!r)
		r = gantry_vm_trip_look(t, &t->there, err);
	if (!r)
		r = gantry_vm_move(&t->there.machine, &t->here.vm, &how, &moved, err);
	t->came_back = r == 0;
	return r;
}

const char *gantry_vm_trip_step_name(const struct gantry_vm_trip *t, enum gantry_vm_step step)
{
	static const char *const names[] = {
		[GANTRY_VM_CHECK] = "check",   [GANTRY_VM_LEAVE] = "leave",
		[GANTRY_VM_SESSIONS] = "copy", [GANTRY_VM_TAKE_OUT] = "expect",
		[GANTRY_VM_MOVE] = "move",     [GANTRY_VM_PUT_IN] = "seat",
		[GANTRY_VM_RETURN] = "return",
	};

	return t->attached ? names[step] : gantry_vm_step_name(step);
}

const struct gantry_vm_journey_ops gantry_vm_attached_ops = {
	.run = { [GANTRY_VM_CHECK] = gantry_vm_trip_check,
		 [GANTRY_VM_LEAVE] = hold_doors,
		 [GANTRY_VM_SESSIONS] = stage,
		 [GANTRY_VM_TAKE_OUT] = expect,
		 [GANTRY_VM_MOVE] = move,
		 [GANTRY_VM_PUT_IN] = seat,
		 [GANTRY_VM_RETURN] = gantry_vm_trip_await_guests },
	.undo = { [GANTRY_VM_LEAVE] = open_doors,
		  [GANTRY_VM_SESSIONS] = unstage,
		  [GANTRY_VM_TAKE_OUT] = expect_no_more,
		  [GANTRY_VM_MOVE] = move_back },
	.interrupted = gantry_vm_trip_interrupted,
	.tell = gantry_vm_trip_tell,
};
