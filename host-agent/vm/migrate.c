/* SPDX-License-Identifier: Apache-2.0 */
/* vm migrate: what was asked for, the journey (journey.h), and what is said of it afterwards. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/vm/migrate.h"

#define LIMIT_DEFAULT_NS (600 * GANTRY_NS_PER_S)
#define XML_MAX_BYTES	 (1u << 20)

/* ---- what was asked for ---- */

static int read_time(struct gantry_ctl *ctl, const char *option, bool *ret_given, uint64_t *ret_ns)
{
	const char *text = gantry_ctl_option(ctl, option);
	struct gantry_err err = GANTRY_ERR_NONE;

	*ret_given = text;
	if (text && gantry_duration_parse(text, ret_ns, &err) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "--%s %s: %s; write it as 500ms or 10s", option, text,
				       err.text);
	return 0;
}

static int read_agents(struct gantry_vm_trip *t, struct gantry_ctl *ctl)
{
	const char *to = gantry_ctl_option(ctl, "to");
	const char *back = gantry_ctl_option(ctl, "back");

	if (to && gantry_str_copy(t->to, sizeof(t->to), to) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE, "--to is too long for a host");
	if (back && gantry_str_copy(t->back, sizeof(t->back), back) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE, "--back is too long for a host");
	if (!to)
		gantry_vm_uri_host(t->uri, t->to, sizeof(t->to));
	if (!*t->to)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "%s names no host: say with --to HOST where its agent is",
				       t->uri);
	if (!gantry_ctl_option(ctl, "to-socket"))
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_USAGE,
			"give --to-socket: %s's agent is asked, too; ssh -fNL /run/%s.sock:%s %s leads "
			"its admin socket here",
			t->to, t->to, GANTRY_CLIENT_SOCKET, t->to);
	return 0;
}

static int read_numbers(struct gantry_vm_trip *t, struct gantry_ctl *ctl)
{
	uint64_t bytes = 0;
	int r;

	t->how.limit_ns = LIMIT_DEFAULT_NS;
	r = read_time(ctl, "drain", &t->has_drain, &t->drain_ns);
	if (!r)
		r = read_time(ctl, "return", &t->has_return, &t->return_ns);
	if (!r)
		r = read_time(ctl, "limit", &t->has_limit, &t->how.limit_ns);
	if (!r)
		r = gantry_ctl_bandwidth(ctl, &bytes);
	if (r)
		return r;
	t->sessions.bandwidth = bytes;
	t->how.bandwidth_mib_per_s = bytes ? gantry_max_u64(1, bytes >> 20) : 0;
	return 0;
}

static int read_tenants(struct gantry_vm_trip *t, struct gantry_ctl *ctl)
{
	char name[GANTRY_NAME_LEN_MAX + 1];
	const char *at = t->tenants = gantry_ctl_option(ctl, "tenant");

	while (at && *at) {
		size_t len = strcspn(at, ",");

		if (gantry_str_format(name, sizeof(name), "%.*s", (int)len, at) < 0 ||
		    !gantry_name_valid(name))
			return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
					       "--tenant %s: \"%.*s\" is no name of a tenant",
					       t->tenants, (int)len, at);
		at += len + (at[len] == ',');
	}
	return 0;
}

static int read_xml(struct gantry_vm_trip *t, struct gantry_ctl *ctl)
{
	const char *path = gantry_ctl_option(ctl, "xml");
	size_t len;
	int r;

	if (!path)
		return 0;
	r = gantry_file_read(path, XML_MAX_BYTES, &t->how.xml, &len);
	return r < 0 ? gantry_ctl_fail(ctl, r == -ENOENT ? GANTRY_CTL_NOT_FOUND : GANTRY_CTL_FAILED,
				       "--xml %s: %s", path, strerror(-r))
		     : 0;
}

static int read_words(struct gantry_vm_trip *t, struct gantry_ctl *ctl)
{
	int r;

	t->domain = ctl->args[0];
	t->uri = ctl->args[1];
	t->how.uri = gantry_ctl_option(ctl, "migrate-uri");
	t->back_uri = gantry_ctl_option(ctl, "back-uri");
	t->how.persistent = gantry_ctl_option(ctl, "persistent");
	t->how.undefine = gantry_ctl_option(ctl, "undefine-source");
	t->how.show = !ctl->json && isatty(STDERR_FILENO);
	if (gantry_ctl_option(ctl, "attached"))
		t->asked_way = GANTRY_VM_ATTACHED;
	if (gantry_ctl_option(ctl, "detached")) {
		if (t->asked_way == GANTRY_VM_ATTACHED)
			return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
					       "--attached and --detached are two ways; say one");
		t->asked_way = GANTRY_VM_DETACHED;
	}
	r = read_agents(t, ctl);
	if (!r)
		r = read_numbers(t, ctl);
	if (!r)
		r = read_tenants(t, ctl);
	return r;
}

int gantry_vm_migrate_words(struct gantry_ctl *ctl)
{
	struct gantry_vm_trip *t = calloc(1, sizeof(*t)); /* large: of two machines */
	int r = t ? read_words(t, ctl) : gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "no memory");

	free(t);
	return r;
}

static int read_options(struct gantry_vm_trip *t, struct gantry_ctl *ctl)
{
	int r = read_words(t, ctl);

	return r ? r : read_xml(t, ctl);
}

/* ---- the two sides ---- */

static void begin_side(struct gantry_vm_side *side, const struct gantry_ctl *ctl,
		       const char *socket_path)
{
	side->said = (struct gantry_err)GANTRY_ERR_NONE;
	side->ctl = *ctl;
	side->ctl.client = NULL;
	side->ctl.into = &side->said;
	if (socket_path)
		side->ctl.socket_path = socket_path;
	side->vm.ctl = &side->ctl;
}

static void begin_sides(struct gantry_vm_trip *t, struct gantry_vm *vm)
{
	begin_side(&t->here, vm->ctl, NULL);
	begin_side(&t->there, vm->ctl, gantry_ctl_option(vm->ctl, "to-socket"));
	t->here.vm = *vm;
	t->here.vm.ctl = &t->here.ctl;
	t->sessions.vm = &t->here.vm;
	t->sessions.agent[GANTRY_VM_HERE] = &t->here.ctl;
	t->sessions.agent[GANTRY_VM_THERE] = &t->there.ctl;
	t->sessions.host[GANTRY_VM_HERE] = t->back;
	t->sessions.host[GANTRY_VM_THERE] = t->to;
}

static void end_sides(struct gantry_vm_trip *t)
{
	gantry_vm_machine_fini(&t->here.machine);
	gantry_vm_machine_fini(&t->there.machine);
	if (t->there.vm.connection)
		gantry_vm_fini(&t->there.vm);
	gantry_ctl_fini(&t->here.ctl);
	gantry_ctl_fini(&t->there.ctl);
	gantry_vm_trip_forget_seats(t);
	free(t->how.xml);
	free(t->own_xml);
}

/* ---- what both agents hear ---- */

static uint64_t pause_ns(const struct gantry_vm_trip *t)
{
	uint64_t longest_ns = 0;

	for (size_t i = 0; i < t->sessions.n; i++) {
		const struct gantry_vm_session *one = &t->sessions.list[i];

		if (one->held_ns && one->back_ns > one->held_ns)
			longest_ns = gantry_max_u64(longest_ns, one->back_ns - one->held_ns);
	}
	return longest_ns;
}

/* The machine's: in the attached way it stands still until its sessions sit. */
static uint64_t downtime_ns(const struct gantry_vm_trip *t)
{
	return t->moved.stopped_ns && t->resumed_ns > t->moved.stopped_ns
		       ? t->resumed_ns - t->moved.stopped_ns
		       : t->moved.downtime_ns;
}

static void note_to(struct gantry_vm_trip *t, struct gantry_vm_side *side, const char *host,
		    const char *outcome, const char *text)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__VmMigrationNote note = GANTRY__ADMIN__VM_MIGRATION_NOTE__INIT;

	note.domain = (char *)t->domain;
	note.host = (char *)host;
	note.outcome = (char *)outcome;
	note.text = (char *)text;
	note.pause_ns = pause_ns(t);
	note.total_ns = t->moved.total_ns;
	note.downtime_ns = downtime_ns(t);
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_VM_MIGRATION_NOTE;
	request.vm_migration_note = &note;
	/* One that does not take it has no such event, and that is all. */
	(void)gantry_ctl_ask_quietly(&side->ctl, &request, &reply, NULL);
}

void gantry_vm_trip_note(struct gantry_vm_trip *t, const char *outcome, const char *text)
{
	note_to(t, &t->here, t->to, outcome, text);
	note_to(t, &t->there, *t->back ? t->back : "another host", outcome, text);
}

/* ---- what is said ---- */

static void describe(const struct gantry_vm_trip *t, bool dry, char *text, size_t cap)
{
	char pause[GANTRY_QUANTITY_MAX], total[GANTRY_QUANTITY_MAX], down[GANTRY_QUANTITY_MAX];
	size_t there = gantry_vm_sessions_count(&t->sessions, GANTRY_VM_THERE), stay = 0;
	char missing[80] = "";

	for (size_t i = 0; i < t->sessions.n; i++)
		stay += t->sessions.list[i].stays;
	gantry_duration_format_rounded(pause_ns(t), pause);
	gantry_duration_format_rounded(t->moved.total_ns, total);
	gantry_duration_format_rounded(downtime_ns(t), down);
	if (t->missing)
		(void)gantry_str_format(missing, sizeof(missing),
					"; %zu guests have not come back to theirs yet",
					t->missing);
	if (dry)
		(void)gantry_str_format(
			text, cap, /* cut short where names are long */
			"%s: %.80s would take it, with %zu sessions and %zu doors%s; %zu programs "
			"would have to leave; it stays here",
			t->domain, t->to, t->sessions.n - stay, t->nluggage,
			t->attached ? ", which would stay in" : "", stay);
	else
		(void)gantry_str_format(
			text, cap,
			"%s: is at %.80s, with %zu sessions, which stood still for %s%s; libvirt took "
			"%s, and the machine stood still for %s%s%s%s",
			t->domain, t->to, there, pause, missing, total, down,
			t->attached ? ", with its device in it" : "",
			t->why_detached.text[0] ? "; " : "", t->why_detached.text);
}

static int report(const struct gantry_vm_trip *t, struct gantry_ctl *ctl, bool dry)
{
	json_object *object, *steps;
	char text[640];

	describe(t, dry, text, sizeof(text));
	if (!ctl->json) {
		fprintf(ctl->out, "%s\n", text);
		if (t->caution.text[0])
			fprintf(ctl->out, "%s: %s\n", t->domain, t->caution.text);
		return 0;
	}
	object = gantry_ctl_json_new();
	steps = json_object_new_object();
	for (int i = 0; i < GANTRY_VM_NSTEPS; i++)
		json_object_object_add(steps, gantry_vm_trip_step_name(t, (enum gantry_vm_step)i),
				       json_object_new_uint64(t->journey.took_ns[i]));
	json_object_object_add(object, "ok", json_object_new_boolean(true));
	json_object_object_add(object, "text", json_object_new_string(text));
	json_object_object_add(object, "sessions", json_object_new_uint64(t->sessions.n));
	json_object_object_add(object, "doors", json_object_new_uint64(t->nluggage));
	json_object_object_add(object, "missing", json_object_new_uint64(t->missing));
	json_object_object_add(object, "pause_ns", json_object_new_uint64(pause_ns(t)));
	json_object_object_add(object, "libvirt_total_ns",
			       json_object_new_uint64(t->moved.total_ns));
	json_object_object_add(object, "libvirt_downtime_ns",
			       json_object_new_uint64(t->moved.downtime_ns));
	json_object_object_add(object, "machine_pause_ns", json_object_new_uint64(downtime_ns(t)));
	json_object_object_add(object, "way",
			       json_object_new_string(t->attached ? "attached" : "detached"));
	json_object_object_add(object, "why", json_object_new_string(t->why_detached.text));
	json_object_object_add(object, "caution", json_object_new_string(t->caution.text));
	json_object_object_add(object, "memory_bytes", json_object_new_uint64(t->moved.bytes));
	json_object_object_add(object, "steps_ns", steps);
	return gantry_ctl_json_print(ctl, object);
}

/* What of it is where, for one who has to mend it. */
static void say_halves(struct gantry_vm_trip *t, char *text, size_t cap)
{
	static const char *const machine[] = {
		[GANTRY_VM_AT_SOURCE] = "runs here",
		[GANTRY_VM_AT_DESTINATION] = "runs there",
		[GANTRY_VM_NOWHERE] = "is seen to run at neither end",
	};
	enum gantry_vm_where where = gantry_vm_where(&t->here.vm, &t->there.vm, t->uuid);

	(void)gantry_str_format(
		text, cap, /* it fits */
		"the machine %s, %zu sessions are here, %zu there, %zu in doubt; gantryctl session migrate, "
		"virsh migrate and gantryctl vm attach bring them together",
		machine[where], gantry_vm_sessions_count(&t->sessions, GANTRY_VM_HERE),
		gantry_vm_sessions_count(&t->sessions, GANTRY_VM_THERE),
		gantry_vm_sessions_count(&t->sessions, GANTRY_VM_IN_DOUBT));
}

static int fail(struct gantry_vm_trip *t, struct gantry_ctl *ctl)
{
	const struct gantry_vm_journey *j = &t->journey;
	const char *step = gantry_vm_trip_step_name(t, j->failed);
	char halves[320];

	switch (j->outcome) {
	case GANTRY_VM_STAYED:
		return gantry_ctl_fail(ctl, j->code, "%s: %s", t->domain, j->why.text);
	case GANTRY_VM_BACK:
		gantry_vm_trip_note(t, "back", j->why.text);
		return gantry_ctl_fail(ctl, j->code, "%s: %s: %s; all is as it was", t->domain,
				       step, j->why.text);
	default:
		gantry_vm_trip_note(t, "half", j->why.text);
		say_halves(t, halves, sizeof(halves));
		return gantry_ctl_fail(ctl, GANTRY_CTL_HALF,
				       "%s: %s: %s; it could not be undone (%s: %s): %s", t->domain,
				       step, j->why.text, gantry_vm_trip_step_name(t, j->stuck),
				       j->stuck_why.text, halves);
	}
}

/* ---- the verb ---- */

static int keep_own_xml(struct gantry_vm_trip *t)
{
	struct gantry_vm *vm = &t->here.vm;
	virDomainPtr domain;

	if (!t->how.xml)
		return 0;
	domain = vm->lib.virDomainLookupByName(vm->connection, t->domain);
	if (!domain)
		domain = vm->lib.virDomainLookupByUUIDString(vm->connection, t->domain);
	if (!domain)
		return 0; /* the check says so */
	t->own_xml = vm->lib.virDomainGetXMLDesc(domain,
						 VIR_DOMAIN_XML_MIGRATABLE | VIR_DOMAIN_XML_SECURE);
	(void)vm->lib.virDomainFree(domain);
	return t->own_xml ? 0 : gantry_vm_fail(vm, "%s: its definition", t->domain);
}

/* Which way, where that is ours to say: the device stays in where it can. */
static int choose_way(struct gantry_vm_trip *t, struct gantry_ctl *ctl)
{
	struct gantry_err why = GANTRY_ERR_NONE;
	int r;

	if (t->asked_way == GANTRY_VM_DETACHED)
		return 0;
	r = gantry_vm_trip_may_stay_in(t, &why);
	t->attached = t->sessions.staged = r == 0;
	if (r && t->asked_way == GANTRY_VM_ATTACHED)
		return gantry_ctl_fail(ctl, r, "%s: %s", t->domain, why.text);
	if (r == GANTRY_CTL_UNSUPPORTED && why.code == -ENOTSUP)
		t->why_detached = why;
	return 0;
}

static int go(struct gantry_vm_trip *t, struct gantry_ctl *ctl)
{
	bool dry = gantry_ctl_option(ctl, "dry-run");
	int r = keep_own_xml(t);

	if (r)
		return gantry_ctl_fail(ctl, r, "%s", t->here.said.text);
	r = choose_way(t, ctl);
	if (r)
		return r;
	if (t->how.show && t->why_detached.text[0])
		fprintf(stderr, "%s\n", t->why_detached.text);
	/* Every step has --timeout, there and back; libvirt's has its own. */
	gantry_vm_watchdog(2 * (t->how.limit_ns + t->drain_ns + t->return_ns) +
			   2 * GANTRY_VM_NSTEPS * (uint64_t)ctl->timeout_ns);
	gantry_vm_journey_run(t->attached ? &gantry_vm_attached_ops : &gantry_vm_trip_ops, t, dry,
			      &t->journey);
	if (t->journey.code)
		return fail(t, ctl);
	if (!dry)
		gantry_vm_trip_note(t, "done", "its sessions went with it");
	return report(t, ctl, dry);
}

int gantry_vm_migrate(struct gantry_vm *vm)
{
	struct gantry_vm_trip *t = calloc(1, sizeof(*t)); /* large: of two machines */
	int r;

	if (!t)
		return gantry_ctl_fail(vm->ctl, GANTRY_CTL_FAILED, "no memory");
	r = read_options(t, vm->ctl);
	if (!r) {
		begin_sides(t, vm);
		r = go(t, vm->ctl);
	}
	end_sides(t);
	free(t);
	return r;
}
