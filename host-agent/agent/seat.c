/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/seat.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/adopt.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/doormem.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/handover_out.h"
#include "host-agent/agent/ivshmem.h"
#include "host-agent/agent/journal.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/move_in.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "host-agent/monitor/store.h"
#include "host-agent/shared/wake.h"
#include "proto/region.h"
#include "proto/segment.h"
#include "proto/wire.h"

#define LINE_BYTES 64u

static_assert(GANTRY_SEAT_HOST_BYTES == LINE_BYTES + 2 * GANTRY_DOORMEM_MESSAGE,
	      "a host has a line and two boxes of a desk");
static_assert(offsetof(struct gantry_doormem_desk, notice_box) ==
		      offsetof(struct gantry_doormem_desk, host_box) + GANTRY_DOORMEM_MESSAGE,
	      "the host's boxes lie side by side");

/* ---- sessions ---- */

void gantry_seat_expect(struct gantry_session *s, bool keyed)
{
	s->is_seated = true;
	s->has_key = keyed;
	/* Which descriptor it is does not matter. */
	gantry_keep(s->agent, s->ledger_fd, GANTRY_KEPT_SEATED, (unsigned long long)s->id);
}

void gantry_seat_await(struct gantry_session *s)
{
	bool keyed = s->has_key;
	uint8_t key[sizeof(s->nonce)];

	memcpy(key, s->nonce, sizeof(key));
	if (!keyed && getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key)) {
		gantry_detach(s, GANTRY_E_INTERNAL, "the host has no random numbers");
		return;
	}
	gantry_adopt_expect(s, key);
	gantry_seat_expect(s, keyed);
	if (s->worker) /* that it is gone comes to gantry_adopt_worker_gone() */
		gantry_handover_leave_worker(s);
	else
		gantry_adopt_await(s);
}

void gantry_seat_follow(struct gantry_session *s, bool on)
{
	if (on == s->is_following)
		return;
	s->is_following = on;
	if (on)
		gantry_keep(s->agent, s->ledger_fd, GANTRY_KEPT_FOLLOWING,
			    (unsigned long long)s->id);
	else
		gantry_keep_drop(s->agent, GANTRY_KEPT_FOLLOWING, (unsigned long long)s->id);
}

static void nobody_followed(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_session *s = arg;

	(void)fd;
	(void)what;
	gantry_seat_follow(s, false);
	gantry_seat_await(s);
}

/* It has no guest, and nobody takes it over: without a way to another host it can only wait. */
static bool is_alone(const struct gantry_session *s)
{
	return s->is_following && !s->conn && !s->unadopted;
}

static bool is_adrift(const struct gantry_session *s)
{
	return is_alone(s) && !gantry_handover_of(s);
}

void gantry_seat_drift(struct gantry_session *s)
{
	gantry_event(s->agent, "session-adrift", NULL, s, NULL,
		     "its machine has gone, and nobody is about to send it after");
	if (!s->worker ||
	    gantry_timer_set(s->agent, &s->guest_timer, s->agent->config->agent.machine_grace_ns,
			     nobody_followed, s) < 0)
		nobody_followed(-1, 0, s);
}

void gantry_seat_drift_no_more(struct gantry_session *s)
{
	if (is_alone(s))
		gantry_event_free(&s->guest_timer);
}

static bool take_mark(struct gantry_session *s, const char *name)
{
	int fd = gantry_store_take(&s->agent->handed, name);

	gantry_fd_close(fd);
	return fd >= 0;
}

void gantry_seat_restore(struct gantry_session *s)
{
	char seated[GANTRY_MONITOR_NAME_MAX], following[GANTRY_MONITOR_NAME_MAX];
	unsigned long long id = s->id;

	(void)gantry_str_format(seated, sizeof(seated), GANTRY_KEPT_SEATED, id); /* they fit */
	(void)gantry_str_format(following, sizeof(following), GANTRY_KEPT_FOLLOWING, id);
	if (take_mark(s, seated))
		gantry_seat_expect(s, s->has_key && !s->unadopted);
	if (take_mark(s, following))
		gantry_seat_follow(s, true);
}

/* As its guest knows it. */
static uint64_t number_of(const struct gantry_session *s)
{
	return s->is_adopted ? s->guest_session : s->id;
}

/* ---- the door that is left ---- */

static void read_host_words(const struct gantry_doormem_desk *desk, uint8_t *to)
{
	gantry_region_copy_out(to, &desk->served, LINE_BYTES);
	gantry_region_copy_out(to + LINE_BYTES, desk->host_box, 2 * GANTRY_DOORMEM_MESSAGE);
}

static const struct gantry_session *session_at(const struct gantry_doormem *m, uint32_t desk)
{
	gantry_list_for_each(&m->agent->sessions, struct gantry_session, link, s)
		if (s->doormem == m && s->desk == desk)
			return s;
	return NULL;
}

static void read_seat(const struct gantry_doormem *m, uint32_t desk, struct gantry_answer *r,
		      Gantry__Admin__DoorSeat *seat)
{
	const struct gantry_session *s = session_at(m, desk);

	gantry__admin__door_seat__init(seat);
	seat->desk = desk;
	seat->generation = m->desks[desk].seen;
	seat->host.len = GANTRY_SEAT_HOST_BYTES;
	seat->host.data = gantry_answer_take(r, GANTRY_SEAT_HOST_BYTES);
	read_host_words(&m->shared[desk], seat->host.data);
	if (!s)
		return;
	seat->guest_session = number_of(s);
	seat->attached_unix_ns = s->attached_unix_ns;
	seat->segment_off = s->segment_off;
	seat->segment_bytes = s->shape.segment.segment_bytes;
	seat->address = s->shape.address;
	seat->bell_vector = m->desks[desk].bell_vector;
	/* After a restart it is as the guest's page has it: one that is none must not end the machine's trip. */
	seat->wake_vector = m->desks[desk].wake_vector;
	seat->wake = m->desks[desk].wake == GANTRY_WAKE_MSIX && seat->wake_vector >= m->nvectors
			     ? GANTRY_WAKE_POLL
			     : m->desks[desk].wake;
}

void gantry_seats_read(const struct gantry_doormem *m, struct gantry_answer *r,
		       Gantry__Admin__DoorSeats *ret_seats)
{
	gantry__admin__door_seats__init(ret_seats);
	ret_seats->epoch = m->epoch;
	ret_seats->bytes = m->bytes;
	ret_seats->vectors = m->nvectors;
	ret_seats->host_peer = m->host_peer;
	ret_seats->seats = gantry_answer_take(r, GANTRY_DOORMEM_DESKS * sizeof(*ret_seats->seats));
	for (uint32_t i = 0; i < GANTRY_DOORMEM_DESKS; i++) {
		Gantry__Admin__DoorSeat *seat;

		if (!m->desks[i].open && !session_at(m, i))
			continue;
		seat = gantry_answer_take(r, sizeof(*seat));
		read_seat(m, i, r, seat);
		ret_seats->seats[ret_seats->n_seats++] = seat;
	}
}

void gantry_seats_stay(struct gantry_doormem *m)
{
	m->leaves_until_ns = 0;
	gantry_list_for_each(&m->agent->sessions, struct gantry_session, link, s)
		if (s->doormem == m && s->conn && !gantry_handover_of(s))
			gantry_seat_follow(s, false);
}

/* ---- the door that is come to ---- */

void gantry_seat_came(struct gantry_machine *machine)
{
	struct gantry_tenant *t = machine->tenant;

	if (!t->expected.until_ns)
		return;
	if (gantry_deadline_passed(t->expected.until_ns)) {
		t->expected.until_ns = 0;
		return;
	}
	gantry_doormem_await(machine->mem, t->expected.until_ns);
	gantry_event(t->agent, "machine-coming", t, NULL, NULL,
		     "machine %llu, pid %d, may come from another host with its sessions",
		     (unsigned long long)machine->mem->id, (int)machine->pid);
}

void gantry_seat_expect_no_more(struct gantry_tenant *t)
{
	t->expected.until_ns = 0;
	gantry_list_for_each(&t->machines, struct gantry_machine, link, machine)
		if (machine->mem->is_coming && machine->mem->nseating == 0)
			gantry_doormem_came(machine->mem);
}

/* The one that @seat is for: it has come, and waits. */
static struct gantry_session *find_session(const struct gantry_doormem *m,
					   const Gantry__Admin__DoorSeat *seat)
{
	gantry_list_for_each(&m->agent->sessions, struct gantry_session, link, s)
		if (s->tenant == m->tenant && s->unadopted && s->phase == GANTRY_PHASE_HELD &&
		    !s->conn && !s->moving && !gantry_handover_of(s) &&
		    number_of(s) == seat->guest_session &&
		    s->attached_unix_ns == seat->attached_unix_ns)
			return s;
	return NULL;
}

/* The machine is here again, without the session's having been sent after it: whoever asks for it now finds it a moment later. */
static void await_adrift(const struct gantry_doormem *m, const Gantry__Admin__DoorSeat *seat)
{
	gantry_list_for_each_safe(&m->agent->sessions, struct gantry_session, link, s)
		if (s->tenant == m->tenant && is_adrift(s) && number_of(s) == seat->guest_session &&
		    s->attached_unix_ns == seat->attached_unix_ns)
			nobody_followed(-1, 0, s);
}

/* The sessions of seats that were checked, by desk. */
struct seating {
	uint64_t desks; /* bit d: desk d has been seen */
	struct gantry_session *sessions[GANTRY_DOORMEM_DESKS];
};

static bool has_seat(const struct seating *seen, const struct gantry_session *s)
{
	for (uint32_t i = 0; i < GANTRY_DOORMEM_DESKS; i++)
		if (seen->sessions[i] == s)
			return true;
	return false;
}

static int check_seat(const struct gantry_doormem *m, const Gantry__Admin__DoorSeat *seat,
		      struct seating *seen, struct gantry_err *err)
{
	struct gantry_session *s;

	if (seat->desk >= GANTRY_DOORMEM_DESKS || (seen->desks >> seat->desk & 1) ||
	    seat->host.len != GANTRY_SEAT_HOST_BYTES || !(seat->generation & 1) ||
	    seat->bell_vector >= m->nvectors ||
	    (seat->wake == GANTRY_WAKE_MSIX && seat->wake_vector >= m->nvectors))
		return gantry_err_set(err, -EINVAL, "desk %u is none, or taken", seat->desk);
	seen->desks |= 1ull << seat->desk;
	if (!seat->guest_session)
		return 0;
	s = find_session(m, seat);
	if (!s)
		await_adrift(m, seat);
	if (!s)
		return gantry_err_set(err, -ENOENT, "session %llu of the machine has not come",
				      (unsigned long long)seat->guest_session);
	if (has_seat(seen, s))
		return gantry_err_set(err, -EINVAL, "session %llu of the machine has two seats",
				      (unsigned long long)seat->guest_session);
	if (seat->segment_bytes != s->shape.segment.segment_bytes ||
	    seat->segment_off % GANTRY_SEGMENT_HEAP_ALIGN)
		return gantry_err_set(err, -EINVAL, "session %llu cannot sit there",
				      (unsigned long long)seat->guest_session);
	seen->sessions[seat->desk] = s;
	return 0;
}

static int check(const struct gantry_doormem *m, const Gantry__Admin__DoorSeats *seats,
		 struct seating *seen, struct gantry_err *err)
{
	int r = 0;

	if (!m->is_coming || m->nseating)
		return gantry_err_set(err, -EBUSY,
				      "the machine is served already, or was not expected");
	if (seats->bytes != m->bytes || seats->vectors != m->nvectors ||
	    seats->host_peer != m->host_peer || !seats->epoch)
		return gantry_err_set(
			err, -EINVAL,
			"its device has %llu bytes and %u doorbells there, and %llu and %u here",
			(unsigned long long)seats->bytes, seats->vectors,
			(unsigned long long)m->bytes, m->nvectors);
	for (size_t i = 0; r == 0 && i < seats->n_seats; i++)
		r = check_seat(m, seats->seats[i], seen, err);
	return r;
}

static int claim_parts(struct gantry_doormem *m, const Gantry__Admin__DoorSeats *seats,
		       struct gantry_err *err)
{
	for (size_t i = 0; i < seats->n_seats; i++) {
		const Gantry__Admin__DoorSeat *seat = seats->seats[i];

		if (!seat->guest_session ||
		    gantry_extents_claim(&m->extents, seat->segment_off, seat->segment_bytes) == 0)
			continue;
		while (i-- > 0)
			if (seats->seats[i]->guest_session) /* it is there */
				(void)gantry_extents_put(&m->extents, seats->seats[i]->segment_off);
		return gantry_err_set(err, -EINVAL, "session %llu has no place there",
				      (unsigned long long)seat->guest_session);
	}
	return 0;
}

/* The machine has its interrupts with it. Of a channel only its program can say which one it has here: until it does, it polls. */
static uint32_t wake_here(const Gantry__Admin__DoorSeat *seat)
{
	return seat->wake == GANTRY_WAKE_MSIX ? GANTRY_WAKE_MSIX : GANTRY_WAKE_POLL;
}

/* What the host before this one had said there; QEMU has carried an older state of it. */
static void write_host_words(struct gantry_doormem *m, const Gantry__Admin__DoorSeat *seat)
{
	struct gantry_doormem_desk *desk = &m->shared[seat->desk];

	gantry_region_copy_in(&desk->served, seat->host.data, LINE_BYTES);
	gantry_region_copy_in(desk->host_box, seat->host.data + LINE_BYTES,
			      2 * GANTRY_DOORMEM_MESSAGE);
	if (seat->guest_session) /* that host may have cleared it when the machine had gone */
		desk->served = seat->generation;
	gantry_store_relaxed(&desk->host_wake, wake_here(seat));
	m->desks[seat->desk].bell_vector = seat->bell_vector;
}

/* The guest's words of the first page, which no mover brings, are where the machine has them. */
static void keep_guest_words(const struct gantry_doormem *m, struct gantry_session *s,
			     uint64_t segment_off)
{
	const size_t at = offsetof(struct gantry_segment_header, bell);
	uint8_t words[LINE_BYTES];

	if (pread(m->fd, words, sizeof(words), (off_t)(segment_off + at)) == sizeof(words))
		memcpy((uint8_t *)s->segment + at, words, sizeof(words));
}

/* Programs may have put addresses of their heap where only they and their kernels look. */
static void keep_address(struct gantry_session *s, uint64_t address)
{
	const struct gantry_agent_conf *conf = &s->agent->config->agent;
	uint64_t bytes = s->shape.segment.segment_bytes;

	if (address == s->shape.address || address % GANTRY_SEGMENT_HEAP_ALIGN ||
	    address < conf->segments_base || address >= conf->segments_end ||
	    bytes > conf->segments_end - address)
		return;
	gantry_list_for_each(&s->agent->sessions, struct gantry_session, link, other)
		if (other != s && other->shape.address < address + bytes &&
		    address < other->shape.address + other->shape.segment.segment_bytes)
			return;
	s->shape.address = address;
	s->ledger.hdr->address = address;
}

/* All have their seats. */
static void seated_one(struct gantry_doormem *m)
{
	if (--m->nseating > 0)
		return;
	gantry_doormem_came(m);
}

void gantry_seat_forget(struct gantry_session *s)
{
	struct gantry_doormem *m = s->seating;

	s->seating = NULL;
	if (m)
		seated_one(m);
}

static void serve(struct gantry_session *s)
{
	gantry_keep_drop_tree(s->agent, "s/%llx/seated", (unsigned long long)s->id);
	s->is_seated = false;
	gantry_adopt_settle(s);
	s->ledger.hdr->epoch++;
	gantry_store_relaxed(&s->segment->epoch, s->ledger.hdr->epoch);
	gantry_store_release(&s->segment->state, (uint32_t)GANTRY_SESSION_RECOVERING);
	s->died_ns = gantry_now_ns();
	s->phase = GANTRY_PHASE_RECOVERING;
	gantry_event(s->agent, "session-seated", NULL, s, NULL,
		     "at desk %u of its machine, %llu us after it was here", s->desk,
		     (unsigned long long)((s->died_ns - s->began_ns) / GANTRY_NS_PER_US));
	gantry_attach_want(s);
}

static void moved_in(struct gantry_session *s, int r, const struct gantry_err *err)
{
	if (r == 0)
		gantry_doormem_rejoin(s);
	if (s->conn) {
		s->conn->ops->keep(s->conn);
		serve(s);
		gantry_seat_forget(s);
	} else {
		gantry_detach(s, r < 0 ? GANTRY_E_INTERNAL : GANTRY_E_CLOSED,
			      r < 0 ? err->text : "the machine is gone");
	}
}

static void seat(struct gantry_doormem *m, const Gantry__Admin__DoorSeat *seat,
		 struct gantry_session *s)
{
	const bool is_interrupted = wake_here(seat) == GANTRY_WAKE_MSIX;
	const struct gantry_session_place place = {
		.doormem = m,
		.desk = seat->desk,
		.generation = seat->generation,
		.off = seat->segment_off,
		.fd = m->fd,
		.bell_fd = m->bells[seat->bell_vector],
		.wake = is_interrupted ? GANTRY_SESSION_WAKE_EVENTFD : GANTRY_SESSION_WAKE_NONE,
		.wake_fd = is_interrupted ? m->vectors[seat->wake_vector] : -EBADF,
		.is_used = true,
	};

	gantry_adopt_withhold(s);
	keep_guest_words(m, s, seat->segment_off);
	keep_address(s, seat->address);
	m->desks[seat->desk].seen = seat->generation;
	m->nsessions++; /* its part is claimed */
	m->interrupts |= is_interrupted;
	s->seating = m;
	gantry_move_in(s, &place, moved_in);
}

int gantry_seats_take(struct gantry_doormem *m, const Gantry__Admin__DoorSeats *seats,
		      struct gantry_err *err)
{
	struct seating seen = { 0 };
	int r = check(m, seats, &seen, err);

	if (r == 0)
		r = claim_parts(m, seats, err);
	if (r < 0)
		return r;
	gantry_doormem_become(m, seats->epoch);
	for (size_t i = 0; i < seats->n_seats; i++)
		write_host_words(m, seats->seats[i]);
	m->nseating = 1; /* so that the first is not the last */
	for (size_t i = 0; i < seats->n_seats; i++) {
		if (!seats->seats[i]->guest_session)
			continue;
		m->nseating++;
		seat(m, seats->seats[i], seen.sessions[seats->seats[i]->desk]);
	}
	seated_one(m);
	gantry_seat_expect_no_more(m->tenant); /* others who came meanwhile are others */
	return 0;
}
