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
#define KEEPALIVE_S	 10
#define KEEPALIVE_TRIES	 6

static const struct {
	const char *verb;
	int (*run)(struct gantry_vm *vm);
	int (*words)(struct gantry_ctl *ctl); /* first; NULL: its words need no look */
} verbs[] = {
	{ "list", gantry_vm_list, NULL },
	{ "show", gantry_vm_show, NULL },
	{ "attach", gantry_vm_attach, NULL },
	{ "detach", gantry_vm_detach, NULL },
	{ "migrate", gantry_vm_migrate, gantry_vm_migrate_words },
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

void gantry_vm_watchdog(uint64_t ns)
{
	struct itimerval timer = { 0 };

	timer.it_value.tv_sec = (time_t)(ns / GANTRY_NS_PER_S) + 1;
	(void)setitimer(ITIMER_REAL, &timer, NULL); /* a valid time */
}

static void watch(const struct gantry_ctl *ctl)
{
	const struct sigaction stop = { .sa_handler = on_signal };
	const struct sigaction late = { .sa_handler = on_watchdog };

	(void)sigaction(SIGINT, &stop, NULL); /* these cannot fail */
	(void)sigaction(SIGTERM, &stop, NULL);
	(void)sigaction(SIGALRM, &late, NULL);
	gantry_vm_watchdog(2 * (uint64_t)ctl->timeout_ns + WATCHDOG_EXTRA_S * GANTRY_NS_PER_S);
}

/* What libvirt would print itself, we put into a sentence. */
static void say_nothing(void *data, virErrorPtr error)
{
	(void)data;
	(void)error;
}

static int connect_to(struct gantry_vm *vm, const char *uri, const char *option)
{
	vm->connection = vm->lib.virConnectOpen(uri);
	if (!vm->connection)
		return gantry_ctl_fail(vm->ctl, GANTRY_CTL_UNREACHABLE,
				       "no libvirt at %s: %s; start libvirtd, or name another with "
				       "%s",
				       uri, gantry_vm_error(vm), option);
	return 0;
}

int gantry_vm_connect(struct gantry_vm *vm, struct gantry_ctl *ctl, const struct gantry_vm *like,
		      const char *uri)
{
	int r;

	*vm = (struct gantry_vm){ .ctl = ctl, .lib = like->lib, .started_ns = gantry_now_ns() };
	r = connect_to(vm, uri, "DESTURI");

	/* One that hangs is to be noticed, where it can be: not by test drivers. */
	if (!r)
		(void)vm->lib.virConnectSetKeepAlive(vm->connection, KEEPALIVE_S, KEEPALIVE_TRIES);
	return r;
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
	return connect_to(vm, uri, "--connect");
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
		code = verbs[i].words ? verbs[i].words(ctl) : 0;
		if (code)
			return code;
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
	return gantry_ctl_fail(
		ctl, GANTRY_CTL_USAGE,
		"gantry-vm is gantryctl's, for vm list, show, attach, detach and migrate");
}

int main(int argc, char **argv)
{
	return gantry_ctl_main(argc, argv, run);
}
