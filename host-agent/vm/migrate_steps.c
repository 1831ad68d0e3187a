/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of vm migrate, and how each is undone. What a step has done is looked up, not remembered, where that can be. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "host-agent/vm/door.h"
#include "host-agent/vm/migrate.h"

#define DRAIN_EMPTY_NS \
	(5 * GANTRY_NS_PER_S) /* for programs that are at a door and have no session */
#define DRAIN_SPARE_NS (3600 * GANTRY_NS_PER_S) /* the agent ends nobody: it is we who give up */
#define RETURN_LOOK_NS (3 * GANTRY_NS_PER_S)

int gantry_vm_said(const struct gantry_vm_side *side, int code, struct gantry_err *err)
{
	if (code)
		*err = side->said;
	return code;
}

uint64_t gantry_vm_trip_deadline(const struct gantry_vm_trip *t)
{
	return gantry_ctl_deadline(&t->here.ctl);
}

int gantry_vm_trip_look(struct gantry_vm_trip *t, struct gantry_vm_side *side,
			struct gantry_err *err)
{
	gantry_vm_machine_fini(&side->machine);
	return gantry_vm_said(
		side, gantry_vm_find(&side->vm, *t->uuid ? t->uuid : t->domain, &side->machine),
		err);
}

static const struct gantry_vm_door *door_of(const struct gantry_vm_machine *machine,
					    const char *tenant)
{
	for (size_t i = 0; i < machine->live.ndoors; i++)
		if (machine->live.doors[i].transport == GANTRY_VM_IVSHMEM &&
		    strcmp(machine->live.doors[i].tenant, tenant) == 0)
			return &machine->live.doors[i];
	return NULL;
}

/* ---- leave ---- */

/* Is somebody there, and goes along with all who are there? */
static bool goes_whole(const struct gantry_vm_trip *t, const struct gantry_vm_luggage *one)
{
	bool somebody = false;

	for (size_t i = 0; i < t->sessions.n; i++) {
		const struct gantry_vm_session *s = &t->sessions.list[i];

		if (!s->machine || s->machine != one->peer || strcmp(s->tenant, one->tenant) != 0)
			continue;
		if (s->stays)
			return false;
		somebody = true;
	}
	return somebody;
}

static int let_out(struct gantry_vm_trip *t, struct gantry_vm_luggage *one, struct gantry_err *err)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	uint64_t ns = t->has_drain ? t->drain_ns : DRAIN_EMPTY_NS;
	const Gantry__Admin__DoorPeer *peer;
	uint32_t left = 0;
	int r = gantry_ctl_door_show(&t->here.ctl, one->tenant, &reply);

	peer = r ? NULL : gantry_vm_peer(reply->doors->ivshmem, t->uuid);
	if (r || !peer)
		return gantry_vm_said(&t->here, r, err);
	one->drained = true;
	r = gantry_vm_door_drain(&t->here.ctl, one->tenant, peer, ns + DRAIN_SPARE_NS);
	if (!r)
		r = gantry_vm_door_wait_empty(&t->here.ctl, one->tenant, t->uuid,
					      gantry_deadline_ns((int64_t)ns), &left);
	if (r)
		return gantry_vm_said(&t->here, r, err);
	if (left) {
		(void)gantry_err_set(err, -EBUSY,
				     "%u programs of the machine did not leave the door of %s; "
				     "give --drain more, or end them",
				     left, one->tenant);
		return GANTRY_CTL_BUSY;
	}
	return 0;
}

/* Where all that is at a door goes along, nobody is asked to leave. */
static int leave(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r = 0;

	for (size_t i = 0; !r && i < t->nluggage; i++)
		if (!goes_whole(t, &t->luggage[i]))
			r = let_out(t, &t->luggage[i], err);
	return r;
}

static int open_again(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r = 0;

	for (size_t i = 0; i < t->nluggage; i++) {
		if (!t->luggage[i].drained)
			continue;
		if (gantry_vm_door_open_to(&t->here.ctl, t->luggage[i].tenant,
					   (uint32_t)t->luggage[i].peer) == 0)
			t->luggage[i].drained = false;
		else
			r = gantry_vm_said(&t->here, GANTRY_CTL_FAILED, err);
	}
	return r;
}

/* ---- sessions ---- */

static int send(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;

	return gantry_vm_said(&t->here,
			      gantry_vm_sessions_send(&t->sessions, GANTRY_VM_HERE,
						      gantry_vm_trip_deadline(t)),
			      err);
}

/* How the agent there reaches this one: by the name in the certificate that it has seen. */
static int find_back(struct gantry_vm_trip *t, struct gantry_err *err)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__MigrationFilter filter = GANTRY__ADMIN__MIGRATION_FILTER__INIT;
	int r;

	if (*t->back)
		return 0;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_MIGRATION_LIST;
	request.migration_list = &filter;
	r = gantry_ctl_ask(&t->there.ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_MIGRATIONS,
			   &reply);
	for (size_t i = 0; !r && i < reply->migrations->n_migrations; i++)
		if (strcmp(reply->migrations->migrations[i]->direction, "in") == 0)
			(void)gantry_str_copy(t->back, sizeof(t->back), /* as long */
					      reply->migrations->migrations[i]->host);
	if (!r && !*t->back)
		r = gantry_ctl_fail(
			&t->there.ctl, GANTRY_CTL_FAILED,
			"the agent there does not know how to reach this one; give --back");
	return gantry_vm_said(&t->there, r, err);
}

int gantry_vm_trip_bring_back(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r, back;

	gantry_vm_interrupt_heard();
	r = gantry_vm_said(
		&t->here, gantry_vm_sessions_settle(&t->sessions, gantry_vm_trip_deadline(t)), err);
	if (gantry_vm_sessions_count(&t->sessions, GANTRY_VM_THERE) == 0)
		return r;
	back = find_back(t, err);
	if (!back) {
		t->sessions.host[GANTRY_VM_HERE] = t->back;
		back = gantry_vm_said(&t->there,
				      gantry_vm_sessions_send(&t->sessions, GANTRY_VM_THERE,
							      gantry_vm_trip_deadline(t)),
				      err);
	}
	return back ? back : r;
}

/* ---- detach ---- */

static int take_out(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r = gantry_vm_trip_look(t, &t->here, err);

	for (size_t i = 0; !r && i < t->nluggage; i++) {
		const struct gantry_vm_door *door = door_of(&t->here.machine, t->luggage[i].tenant);

		if (!door)
			continue;
		r = gantry_vm_take_out(&t->here.machine, door, err);
		if (r)
			r = r == -ETIMEDOUT ? GANTRY_CTL_TIMEOUT : GANTRY_CTL_FAILED;
		else
			t->luggage[i].drained = false; /* what left was drained, and nothing else */
	}
	return r;
}

static int put_back(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r, first;

	gantry_vm_interrupt_heard();
	first = r = gantry_vm_trip_look(t, &t->here, err);
	for (size_t i = 0; !r && i < t->nluggage; i++) {
		const struct gantry_vm_luggage *one = &t->luggage[i];
		int attached;

		if (door_of(&t->here.machine, one->tenant))
			continue;
		attached = gantry_vm_said(&t->here,
					  gantry_vm_attach_door(&t->here.vm, &t->here.machine,
								one->tenant, one->bytes, false),
					  err);
		first = first ? first : attached;
	}
	return first;
}

/* ---- move ---- */

static int move(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r = gantry_vm_trip_look(t, &t->here, err);

	if (r)
		return r;
	r = gantry_vm_move(&t->here.machine, &t->there.vm, &t->how, &t->moved, err);
	if (!r)
		return 0;
	switch (gantry_vm_where(&t->here.vm, &t->there.vm, t->uuid)) {
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
	int r;

	gantry_vm_interrupt_heard();
	switch (gantry_vm_where(&t->here.vm, &t->there.vm, t->uuid)) {
	case GANTRY_VM_AT_SOURCE:
		return 0;
	case GANTRY_VM_NOWHERE:
		(void)gantry_err_set(err, -EIO,
				     "it is seen to run at neither end; see virsh list "
				     "at both");
		return GANTRY_CTL_FAILED;
	default:
		break;
	}
	how.uri = t->back_uri;
	how.xml = t->how.xml ? t->own_xml : NULL;
	r = gantry_vm_trip_look(t, &t->there, err);
	return r ? r : gantry_vm_move(&t->there.machine, &t->here.vm, &how, &moved, err);
}

/* ---- attach ---- */

static int put_in(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r = t->nluggage ? gantry_vm_trip_look(t, &t->there, err) : 0;

	for (size_t i = 0; !r && i < t->nluggage; i++)
		r = gantry_vm_said(&t->there,
				   gantry_vm_attach_door(&t->there.vm, &t->there.machine,
							 t->luggage[i].tenant, t->luggage[i].bytes,
							 true),
				   err);
	return r;
}

static int take_out_again(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	int r = t->nluggage ? gantry_vm_trip_look(t, &t->there, err) : 0;

	gantry_vm_interrupt_heard();
	for (size_t i = 0; !r && i < t->nluggage; i++) {
		const struct gantry_vm_door *door = door_of(&t->there.machine,
							    t->luggage[i].tenant);

		if (door && gantry_vm_take_out(&t->there.machine, door, err) < 0)
			r = GANTRY_CTL_FAILED;
		gantry_vm_door_reopen(&t->there.ctl, t->luggage[i].tenant, 0);
	}
	return r;
}

/* ---- return ---- */

int gantry_vm_trip_await_guests(void *arg, struct gantry_err *err)
{
	struct gantry_vm_trip *t = arg;
	uint64_t ns = t->has_return ? t->return_ns : RETURN_LOOK_NS;
	int r = gantry_vm_said(&t->there,
			       gantry_vm_sessions_await(
				       &t->sessions, gantry_deadline_ns((int64_t)ns), &t->missing),
			       err);

	if (!t->has_return)
		return 0; /* all is there; who has not come, may still */
	if (r || !t->missing)
		return r;
	(void)gantry_err_set(
		err, -ETIMEDOUT,
		"%zu guests did not come back to their sessions; does the machine's door there "
		"lead to the agent at %.80s?",
		t->missing, t->to);
	return GANTRY_CTL_TIMEOUT;
}

/* ---- all of it ---- */

bool gantry_vm_trip_interrupted(void *arg)
{
	(void)arg;
	return gantry_vm_interrupted();
}

void gantry_vm_trip_tell(void *arg, enum gantry_vm_step step, bool undo)
{
	struct gantry_vm_trip *t = arg;

	if (step == GANTRY_VM_LEAVE && !undo)
		gantry_vm_trip_note(t, "begun", "the first change follows");
	if (t->how.show)
		fprintf(stderr, "%-10s %s\n", gantry_vm_trip_step_name(t, step),
			undo ? "undone" : "...");
}

const struct gantry_vm_journey_ops gantry_vm_trip_ops = {
	.run = { [GANTRY_VM_CHECK] = gantry_vm_trip_check,
		 [GANTRY_VM_LEAVE] = leave,
		 [GANTRY_VM_SESSIONS] = send,
		 [GANTRY_VM_TAKE_OUT] = take_out,
		 [GANTRY_VM_MOVE] = move,
		 [GANTRY_VM_PUT_IN] = put_in,
		 [GANTRY_VM_RETURN] = gantry_vm_trip_await_guests },
	.undo = { [GANTRY_VM_LEAVE] = open_again,
		  [GANTRY_VM_SESSIONS] = gantry_vm_trip_bring_back,
		  [GANTRY_VM_TAKE_OUT] = put_back,
		  [GANTRY_VM_MOVE] = move_back,
		  [GANTRY_VM_PUT_IN] = take_out_again },
	.interrupted = gantry_vm_trip_interrupted,
	.tell = gantry_vm_trip_tell,
};
