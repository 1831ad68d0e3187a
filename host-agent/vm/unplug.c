/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "host-agent/vm/vm.h"

#define TICK_MS 50 /* how soon a deadline or ^C is noticed */

struct wait {
	const char *alias;
	bool removed;
	bool refused;
};

static void on_removed(virConnectPtr connection, virDomainPtr domain, const char *alias, void *data)
{
	struct wait *wait = data;

	(void)connection;
	(void)domain;
	wait->removed = wait->removed || strcmp(alias, wait->alias) == 0;
}

static void on_refused(virConnectPtr connection, virDomainPtr domain, const char *alias, void *data)
{
	struct wait *wait = data;

	(void)connection;
	(void)domain;
	wait->refused = wait->refused || strcmp(alias, wait->alias) == 0;
}

/* Only ends a round of the event loop. */
static void on_tick(int timer, void *data)
{
	(void)timer;
	(void)data;
}

static int wait_for(struct gantry_vm *vm, const struct wait *wait, uint64_t deadline_ns,
		    struct gantry_err *err)
{
	int timer = vm->lib.virEventAddTimeout(TICK_MS, on_tick, NULL, NULL);
	int r = 0;

	if (timer < 0)
		return gantry_err_set(err, -EIO, "libvirt's events: %s", gantry_vm_error(vm));
	while (r == 0 && !wait->removed && !wait->refused) {
		if (gantry_vm_interrupted())
			r = gantry_err_set(err, -ECANCELED, "interrupted");
		else if (gantry_deadline_passed(deadline_ns))
			r = gantry_err_set(err, -ETIMEDOUT,
					   "the guest does not let the device go; does its system "
					   "run, and take part in hot-plug?");
		else if (vm->lib.virEventRunDefaultImpl() < 0)
			r = gantry_err_set(err, -EIO, "libvirt's events: %s", gantry_vm_error(vm));
	}
	(void)vm->lib.virEventRemoveTimeout(timer);
	if (wait->removed)
		return 0;
	return wait->refused
		       ? gantry_err_set(err, -ECANCELED, "the guest refused to let the device go")
		       : r;
}

void gantry_vm_turn(struct gantry_vm *vm, int ms)
{
	int timer = vm->lib.virEventAddTimeout(ms, on_tick, NULL, NULL);

	/* Without events there is only the waiting. */
	if (timer < 0 || vm->lib.virEventRunDefaultImpl() < 0)
		(void)poll(NULL, 0, ms);
	if (timer >= 0)
		(void)vm->lib.virEventRemoveTimeout(timer);
}

int gantry_vm_unplug(const struct gantry_vm_machine *machine, const char *alias,
		     uint64_t deadline_ns, struct gantry_err *err)
{
	struct gantry_vm *vm = machine->vm;
	struct wait wait = { .alias = alias };
	/* Before the command: its events must not be missed. */
	int removed = vm->lib.virConnectDomainEventRegisterAny(
		vm->connection, machine->domain, VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED,
		VIR_DOMAIN_EVENT_CALLBACK(on_removed), &wait, NULL);
	int refused = vm->lib.virConnectDomainEventRegisterAny(
		vm->connection, machine->domain, VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED,
		VIR_DOMAIN_EVENT_CALLBACK(on_refused), &wait, NULL);
	int r;

	if (removed < 0 || refused < 0)
		r = gantry_err_set(err, -EIO, "libvirt's events: %s", gantry_vm_error(vm));
	else if (vm->lib.virDomainDetachDeviceAlias(machine->domain, alias,
						    VIR_DOMAIN_AFFECT_LIVE) < 0)
		r = gantry_err_set(err, -EIO, "%s", gantry_vm_error(vm));
	else
		r = wait_for(vm, &wait, deadline_ns, err);
	if (removed >= 0)
		(void)vm->lib.virConnectDomainEventDeregisterAny(vm->connection, removed);
	if (refused >= 0)
		(void)vm->lib.virConnectDomainEventDeregisterAny(vm->connection, refused);
	return r;
}
