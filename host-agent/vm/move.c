/* SPDX-License-Identifier: Apache-2.0 */
#include "move.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/atomic.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "host-agent/ctl/progress.h"

#define TURN_MS 50

/* ---- watching ---- */

struct watch {
	const struct gantry_vm_machine *machine;
	const struct gantry_vm_move *how;
	bool show;
	uint64_t deadline_ns;
	/* Of the watching thread until it has ended. */
	uint64_t stopped_ns;
	bool has_arrived;
	bool told_stopped;
	bool told_arrived;
	uint32_t is_over;
	uint32_t aborted; /* 1: it was too slow; 2: ^C */
};

static uint64_t number(struct gantry_vm *vm, virTypedParameterPtr params, int n, const char *name)
{
	unsigned long long value = 0;

	return vm->lib.virTypedParamsGetULLong(params, n, name, &value) == 1 ? value : 0;
}

static void show_progress(const struct watch *w)
{
	struct gantry_vm *vm = w->machine->vm;
	virTypedParameterPtr params = NULL;
	struct gantry_progress p = { .state = "move" };
	int type = 0, n = 0;

	if (vm->lib.virDomainGetJobStats(w->machine->domain, &type, &params, &n, 0) < 0)
		return;
	p.all_bytes = number(vm, params, n, VIR_DOMAIN_JOB_DATA_TOTAL);
	p.done_bytes = number(vm, params, n, VIR_DOMAIN_JOB_DATA_PROCESSED);
	vm->lib.virTypedParamsFree(params, n);
	if (p.all_bytes)
		gantry_progress_draw(stderr, &p);
}

static void on_event(virConnectPtr connection, virDomainPtr domain, int event, int detail,
		     void *data)
{
	struct watch *w = data;

	(void)connection;
	(void)domain;
	if (event == VIR_DOMAIN_EVENT_SUSPENDED && detail == VIR_DOMAIN_EVENT_SUSPENDED_MIGRATED &&
	    !w->stopped_ns)
		w->stopped_ns = gantry_now_ns();
}

static void on_event_there(virConnectPtr connection, virDomainPtr domain, int event, int detail,
			   void *data)
{
	struct watch *w = data;
	struct gantry_vm *vm = w->machine->vm;
	char uuid[VIR_UUID_STRING_BUFLEN];

	(void)connection;
	if (event == VIR_DOMAIN_EVENT_SUSPENDED && detail == VIR_DOMAIN_EVENT_SUSPENDED_PAUSED &&
	    vm->lib.virDomainGetUUIDString(domain, uuid) == 0 &&
	    strcmp(uuid, w->machine->uuid) == 0)
		w->has_arrived = true;
}

/* Outside of the events' callbacks, for it takes its time. */
static void tell(struct watch *w)
{
	if (w->stopped_ns && !w->told_stopped) {
		w->told_stopped = true;
		if (w->how->stopped)
			w->how->stopped(w->how->arg);
	}
	if (w->has_arrived && !w->told_arrived) {
		w->told_arrived = true;
		if (w->how->arrived)
			w->how->arrived(w->how->arg);
	}
}

static void *watch(void *arg)
{
	struct watch *w = arg;
	struct gantry_vm *vm = w->machine->vm;

	/* Acquire: pairs with the release in gantry_vm_move(). */
	while (!gantry_load_acquire(&w->is_over)) {
		gantry_vm_turn(vm, TURN_MS);
		tell(w);
		if (w->show)
			show_progress(w);
		if (w->aborted)
			continue;
		if (gantry_vm_interrupted() || gantry_deadline_passed(w->deadline_ns)) {
			/* Before it has begun there is nothing to abort yet: again at the next turn. */
			if (vm->lib.virDomainAbortJob(w->machine->domain) == 0)
				w->aborted = gantry_vm_interrupted() ? 2 : 1;
		}
	}
	return NULL;
}

/* ---- the call ---- */

static int fill_params(struct gantry_vm *vm, const struct gantry_vm_move *how,
		       virTypedParameterPtr *params, int *n)
{
	int room = 0, r = 0;

	if (how->uri)
		r = vm->lib.virTypedParamsAddString(params, n, &room, VIR_MIGRATE_PARAM_URI,
						    how->uri);
	if (r == 0 && how->xml)
		r = vm->lib.virTypedParamsAddString(params, n, &room, VIR_MIGRATE_PARAM_DEST_XML,
						    how->xml);
	if (r == 0 && how->bandwidth_mib_per_s)
		r = vm->lib.virTypedParamsAddULLong(params, n, &room, VIR_MIGRATE_PARAM_BANDWIDTH,
						    how->bandwidth_mib_per_s);
	return r;
}

/* libvirt keeps these of the latest job, at either end. */
static void read_stats(struct gantry_vm *vm, virDomainPtr domain, struct gantry_vm_moved *moved)
{
	virTypedParameterPtr params = NULL;
	int type = 0, n = 0;

	if (vm->lib.virDomainGetJobStats(domain, &type, &params, &n,
					 VIR_DOMAIN_JOB_STATS_COMPLETED) < 0)
		return;
	moved->downtime_ns = number(vm, params, n, VIR_DOMAIN_JOB_DOWNTIME) * GANTRY_NS_PER_MS;
	moved->bytes = number(vm, params, n, VIR_DOMAIN_JOB_MEMORY_PROCESSED);
	vm->lib.virTypedParamsFree(params, n);
}

/* Events of both ends. Where there are none, nobody hears of a moment, and all takes longer. */
struct listening {
	int here;
	int there;
};

static void listen_to(struct listening *l, struct gantry_vm *to, struct watch *w)
{
	const struct gantry_vm_machine *m = w->machine;

	l->here = m->vm->lib.virConnectDomainEventRegisterAny(m->vm->connection, m->domain,
							      VIR_DOMAIN_EVENT_ID_LIFECYCLE,
							      VIR_DOMAIN_EVENT_CALLBACK(on_event),
							      w, NULL);
	l->there = to->lib.virConnectDomainEventRegisterAny(
		to->connection, NULL, VIR_DOMAIN_EVENT_ID_LIFECYCLE,
		VIR_DOMAIN_EVENT_CALLBACK(on_event_there), w, NULL);
}

static void listen_no_more(const struct listening *l, struct gantry_vm *to, const struct watch *w)
{
	struct gantry_vm *vm = w->machine->vm;

	if (l->here >= 0)
		(void)vm->lib.virConnectDomainEventDeregisterAny(vm->connection, l->here);
	if (l->there >= 0)
		(void)to->lib.virConnectDomainEventDeregisterAny(to->connection, l->there);
}

static int explain(struct gantry_vm *vm, const struct watch *w, const struct gantry_vm_move *how,
		   struct gantry_err *err)
{
	char limit[GANTRY_QUANTITY_MAX];

	if (w->aborted == 2) {
		(void)gantry_err_set(err, -ECANCELED, "interrupted");
		return GANTRY_CTL_FAILED;
	}
	if (w->aborted == 1) {
		gantry_duration_format_rounded(how->limit_ns, limit);
		(void)gantry_err_set(
			err, -ETIMEDOUT,
			"libvirt was not done within %s and was stopped; give --limit more, or a busy "
			"machine less to do",
			limit);
		return GANTRY_CTL_TIMEOUT;
	}
	(void)gantry_err_set(err, -EIO, "libvirt: %s", gantry_vm_error(vm));
	return gantry_vm_error_code(vm);
}

int gantry_vm_move(const struct gantry_vm_machine *machine, struct gantry_vm *to,
		   const struct gantry_vm_move *how, struct gantry_vm_moved *ret_moved,
		   struct gantry_err *err)
{
	const unsigned int flags = VIR_MIGRATE_LIVE |
				   (how->persistent ? VIR_MIGRATE_PERSIST_DEST : 0) |
				   (how->undefine ? VIR_MIGRATE_UNDEFINE_SOURCE : 0) |
				   (how->paused ? VIR_MIGRATE_PAUSED : 0);
	struct gantry_vm *vm = machine->vm;
	struct gantry_vm_moved moved = { 0 };
	struct watch w = { .machine = machine,
			   .how = how,
			   .show = how->show,
			   .deadline_ns = gantry_deadline_ns((int64_t)how->limit_ns) };
	virTypedParameterPtr params = NULL;
	uint64_t began_ns = gantry_now_ns();
	virDomainPtr arrived = NULL;
	pthread_t watcher;
	int n = 0, r;
	struct listening listening;

	listen_to(&listening, to, &w);
	if (fill_params(vm, how, &params, &n) < 0 ||
	    pthread_create(&watcher, NULL, watch, &w) != 0) {
		vm->lib.virTypedParamsFree(params, n);
		listen_no_more(&listening, to, &w);
		(void)gantry_err_set(err, -ENOMEM, "no memory for a migration");
		return GANTRY_CTL_FAILED;
	}
	arrived = vm->lib.virDomainMigrate3(machine->domain, to->connection, params,
					    (unsigned int)n, flags);
	moved.total_ns = gantry_now_ns() - began_ns;
	r = arrived ? 0 : explain(vm, &w, how, err); /* of this thread's call, before any other */
	/* Release: pairs with the acquire in watch(). */
	gantry_store_release(&w.is_over, 1u);
	(void)pthread_join(watcher, NULL); /* it is there, and ends */
	listen_no_more(&listening, to, &w);
	moved.stopped_ns = w.stopped_ns;
	vm->lib.virTypedParamsFree(params, n);
	if (how->show)
		fprintf(stderr, "\r%*s\r", 70, "");
	if (r) {
		*ret_moved = moved;
		return r;
	}
	read_stats(to, arrived, &moved);
	(void)to->lib.virDomainFree(arrived); /* ours alone */
	*ret_moved = moved;
	return 0;
}

/* ---- where ---- */

static bool runs_at(struct gantry_vm *vm, const char *uuid, bool or_stands)
{
	virDomainPtr domain = vm->lib.virDomainLookupByUUIDString(vm->connection, uuid);
	int state = VIR_DOMAIN_NOSTATE;
	bool runs;

	if (!domain)
		return false;
	runs = vm->lib.virDomainGetState(domain, &state, NULL, 0) == 0 &&
	       (state == VIR_DOMAIN_RUNNING || state == VIR_DOMAIN_BLOCKED ||
		(or_stands && state == VIR_DOMAIN_PAUSED));
	(void)vm->lib.virDomainFree(domain);
	return runs;
}

enum gantry_vm_where gantry_vm_where(struct gantry_vm *from, struct gantry_vm *to, const char *uuid)
{
	if (runs_at(from, uuid, false))
		return GANTRY_VM_AT_SOURCE;
	return runs_at(to, uuid, false) ? GANTRY_VM_AT_DESTINATION : GANTRY_VM_NOWHERE;
}

enum gantry_vm_where gantry_vm_where_stands(struct gantry_vm *from, struct gantry_vm *to,
					    const char *uuid)
{
	if (runs_at(from, uuid, false))
		return GANTRY_VM_AT_SOURCE;
	return !runs_at(from, uuid, true) && runs_at(to, uuid, true) ? GANTRY_VM_AT_DESTINATION
								     : GANTRY_VM_NOWHERE;
}
