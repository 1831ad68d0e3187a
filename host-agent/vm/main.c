/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "host-agent/ctl/parse.h"
#include "host-agent/ctl/verbs.h"
#include "host-agent/vm/vm.h"

/* libvirt's calls wait for its daemon without a limit; then this program ends, and says so. */
#define WATCHDOG_EXTRA_S 60

static const struct {
	const char *verb;
	int (*run)(struct gantry_vm *vm);
} verbs[] = {
	{ "list", gantry_vm_list },
	{ "show", gantry_vm_show },
	{ "attach", gantry_vm_attach },
	{ "detach", gantry_vm_detach },
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	(void)number;
	interrupted = 1;
}

static void on_watchdog(int number)
{
	static const char text[] =
		"gantryctl: libvirt does not answer; is libvirtd stuck? what was asked for may "
		"be half done: see gantryctl vm show\n";

	(void)number;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1); /* nothing else can be done here */
	_exit(GANTRY_CTL_TIMEOUT);
}

bool gantry_vm_interrupted(void)
{
	return interrupted;
}

void gantry_vm_interrupt_heard(void)
{
	interrupted = 0;
}

static void watch(const struct gantry_ctl *ctl)
{
	const struct sigaction stop = { .sa_handler = on_signal };
	const struct sigaction late = { .sa_handler = on_watchdog };
	struct itimerval timer = { 0 };

	(void)sigaction(SIGINT, &stop, NULL); /* these cannot fail */
	(void)sigaction(SIGTERM, &stop, NULL);
	(void)sigaction(SIGALRM, &late, NULL);
	timer.it_value.tv_sec = (time_t)((uint64_t)ctl->timeout_ns / GANTRY_NS_PER_S) * 2 +
				WATCHDOG_EXTRA_S;
	(void)setitimer(ITIMER_REAL, &timer, NULL);
}

/* What libvirt would print itself, we put into a sentence. */
static void say_nothing(void *data, virErrorPtr error)
{
	(void)data;
	(void)error;
}

int gantry_vm_init(struct gantry_vm *vm, struct gantry_ctl *ctl)
{
	const char *uri = gantry_ctl_option(ctl, "connect");
	struct gantry_err err = GANTRY_ERR_NONE;

	*vm = (struct gantry_vm){ .ctl = ctl, .started_ns = gantry_now_ns() };
	if (gantry_libraries_load(&vm->lib, &err) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_UNSUPPORTED, "%s", err.text);
	vm->lib.virSetErrorFunc(NULL, say_nothing);
	/* Before the first connection, which else has no events. */
	if (vm->lib.virEventRegisterDefaultImpl() < 0)
		return gantry_vm_fail(vm, "libvirt's events");
	uri = uri ? uri : getenv("LIBVIRT_DEFAULT_URI");
	uri = uri && *uri ? uri : "qemu:///system";
	vm->connection = vm->lib.virConnectOpen(uri);
	if (!vm->connection)
		return gantry_ctl_fail(ctl, GANTRY_CTL_UNREACHABLE,
				       "no libvirt at %s: %s; start libvirtd, or name another with "
				       "--connect",
				       uri, gantry_vm_error(vm));
	return 0;
}

void gantry_vm_fini(struct gantry_vm *vm)
{
	if (vm->connection)
		(void)vm->lib.virConnectClose(vm->connection); /* the process ends */
	vm->connection = NULL;
}

static int run(struct gantry_ctl *ctl)
{
	struct gantry_vm vm;
	int code;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(verbs); i++) {
		if (strcmp(ctl->verb->noun, "vm") != 0 || !ctl->verb->verb ||
		    strcmp(ctl->verb->verb, verbs[i].verb) != 0)
			continue;
		watch(ctl);
		code = gantry_vm_init(&vm, ctl);
		if (code == 0)
			code = verbs[i].run(&vm);
		gantry_vm_fini(&vm);
		return code;
	}
	/* help, chosen by --help, is the same here as there. */
	if (strcmp(ctl->verb->noun, "help") == 0)
		return ctl->verb->run(ctl);
	return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
			       "gantry-vm is gantryctl's, for vm list, show, attach and detach");
}

int main(int argc, char **argv)
{
	return gantry_ctl_main(argc, argv, run);
}
