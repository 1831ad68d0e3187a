/* SPDX-License-Identifier: Apache-2.0 */
/* What libvirt says of its machines. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "host-agent/vm/vm.h"

const char *gantry_vm_error(struct gantry_vm *vm)
{
	const virError *error = vm->lib.virGetLastError();

	return error && error->message ? error->message : "libvirt gives no reason";
}

static int code_of(const virError *error)
{
	static const struct {
		int error;
		enum gantry_ctl_exit code;
	} codes[] = {
		{ VIR_ERR_NO_DOMAIN, GANTRY_CTL_NOT_FOUND },
		{ VIR_ERR_AUTH_FAILED, GANTRY_CTL_DENIED },
		{ VIR_ERR_AUTH_CANCELLED, GANTRY_CTL_DENIED },
		{ VIR_ERR_AUTH_UNAVAILABLE, GANTRY_CTL_DENIED },
		{ VIR_ERR_ACCESS_DENIED, GANTRY_CTL_DENIED },
		{ VIR_ERR_OPERATION_DENIED, GANTRY_CTL_DENIED },
		{ VIR_ERR_OPERATION_TIMEOUT, GANTRY_CTL_TIMEOUT },
		{ VIR_ERR_NO_SUPPORT, GANTRY_CTL_UNSUPPORTED },
		{ VIR_ERR_CONFIG_UNSUPPORTED, GANTRY_CTL_UNSUPPORTED },
		{ VIR_ERR_OPERATION_UNSUPPORTED, GANTRY_CTL_UNSUPPORTED },
		{ VIR_ERR_ARGUMENT_UNSUPPORTED, GANTRY_CTL_UNSUPPORTED },
	};

	for (size_t i = 0; error && i < GANTRY_ARRAY_SIZE(codes); i++)
		if (codes[i].error == error->code)
			return codes[i].code;
	return GANTRY_CTL_FAILED;
}

int gantry_vm_error_code(struct gantry_vm *vm)
{
	return code_of(vm->lib.virGetLastError());
}

int gantry_vm_fail(struct gantry_vm *vm, const char *fmt, ...)
{
	char what[GANTRY_ERR_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, ap); /* a longer sentence is cut short */
	va_end(ap);
	return gantry_ctl_fail(vm->ctl, code_of(vm->lib.virGetLastError()), "%s: %s", what,
			       gantry_vm_error(vm));
}

static int read_definition(struct gantry_vm_machine *machine, unsigned int flags,
			   struct gantry_vm_domain *ret_domain)
{
	struct gantry_vm *vm = machine->vm;
	_cleanup_free_ char *text = vm->lib.virDomainGetXMLDesc(machine->domain, flags);
	struct gantry_err err = GANTRY_ERR_NONE;

	if (!text)
		return gantry_vm_fail(vm, "reading the definition of %s", machine->name);
	if (gantry_vm_domain_parse(&vm->lib, text, ret_domain, &err) < 0)
		return gantry_ctl_fail(vm->ctl, GANTRY_CTL_FAILED, "%s: %s", machine->name,
				       err.text);
	return 0;
}

int gantry_vm_read(struct gantry_vm *vm, virDomainPtr domain, struct gantry_vm_machine *ret_machine)
{
	struct gantry_vm_machine *m = ret_machine;
	int r;

	*m = (struct gantry_vm_machine){ .vm = vm, .domain = domain };
	(void)gantry_str_copy(m->name, sizeof(m->name), vm->lib.virDomainGetName(domain));
	if (vm->lib.virDomainGetUUIDString(domain, m->uuid) < 0 ||
	    vm->lib.virDomainGetState(domain, &m->state, NULL, 0) < 0)
		return gantry_vm_fail(vm, "the state of %s", m->name);
	m->running = m->state != VIR_DOMAIN_SHUTOFF && m->state != VIR_DOMAIN_CRASHED &&
		     m->state != VIR_DOMAIN_NOSTATE;
	m->persistent = vm->lib.virDomainIsPersistent(domain) == 1;
	r = m->running ? read_definition(m, 0, &m->live) : 0;
	if (!r && m->persistent)
		r = read_definition(m, VIR_DOMAIN_XML_INACTIVE, &m->kept);
	return r;
}

int gantry_vm_find(struct gantry_vm *vm, const char *name, struct gantry_vm_machine *ret_machine)
{
	virDomainPtr domain = vm->lib.virDomainLookupByName(vm->connection, name);

	*ret_machine = (struct gantry_vm_machine){ 0 };
	if (!domain)
		domain = vm->lib.virDomainLookupByUUIDString(vm->connection, name);
	if (domain)
		return gantry_vm_read(vm, domain, ret_machine);
	if (code_of(vm->lib.virGetLastError()) == GANTRY_CTL_DENIED)
		return gantry_vm_fail(vm, "%s", name);
	return gantry_ctl_fail(vm->ctl, GANTRY_CTL_NOT_FOUND,
			       "libvirt has no domain %s; see gantryctl vm list", name);
}

void gantry_vm_machine_fini(struct gantry_vm_machine *machine)
{
	gantry_vm_domain_fini(&machine->live);
	gantry_vm_domain_fini(&machine->kept);
	if (machine->domain)
		(void)machine->vm->lib.virDomainFree(machine->domain); /* ours alone */
	machine->domain = NULL;
}

char *gantry_vm_ask_qemu(const struct gantry_vm_machine *machine, const char *command)
{
	char *answer = NULL;

	if (machine->vm->lib.virDomainQemuMonitorCommand(
		    machine->domain, command, &answer, VIR_DOMAIN_QEMU_MONITOR_COMMAND_DEFAULT) < 0)
		return NULL;
	return answer;
}

int gantry_vm_read_pci(const struct gantry_vm_machine *machine, const char *id,
		       struct gantry_vm_pci *ret_pci, struct gantry_err *err)
{
	_cleanup_free_ char *answer = gantry_vm_ask_qemu(machine, "{\"execute\":\"query-pci\"}");

	if (!answer)
		return gantry_err_set(err, -EIO, "asking its QEMU: %s",
				      gantry_vm_error(machine->vm));
	return gantry_vm_pci_parse(answer, id, ret_pci, err);
}

int gantry_vm_user(const struct gantry_vm_machine *machine, uid_t *ret_uid, gid_t *ret_gid)
{
	struct gantry_vm *vm = machine->vm;
	virSecurityLabelPtr labels = NULL;
	int n = vm->lib.virDomainGetSecurityLabelList(machine->domain, &labels), r = -ENOENT;

	for (int i = 0; i < n; i++) {
		unsigned int uid, gid;
		char end;

		/* The one of libvirt's DAC driver; others have other forms. */
		if (sscanf(labels[i].label, "+%u:+%u%c", &uid, &gid, &end) == 2) {
			*ret_uid = uid;
			*ret_gid = gid;
			r = 0;
		}
	}
	free(labels);
	return r;
}
