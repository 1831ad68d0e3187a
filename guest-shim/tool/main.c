/* SPDX-License-Identifier: Apache-2.0 */
/* gantry-guest: looks at the doors of the machine that it runs in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/gantry.h"
#include "guest-shim/pcidev.h"
#include "guest-shim/tool/commands.h"

#define USAGE	    2
#define INTERVAL_MS 2000

static const char help[] =
	"usage: gantry-guest [--devices FOLDER] COMMAND\n"
	"\n"
	"  status         the doors of this machine, and the programs at them\n"
	"  doctor [DOOR]  what keeps programs from using a door, and what to do about it\n"
	"  reap           clear what dead programs have left, now; programs that start do so too\n"
	"  watch [MS]     the same, again and again (2000 ms)\n"
	"  permit FOLDER  for udev: let group gantry use the device of FOLDER\n"
	"  version\n"
	"\n"
	"Exit status: 0 all is well, 1 something is not, 2 the command line is wrong.\n";

static int wrong(const char *what)
{
	fprintf(stderr, "gantry-guest: %s\n%s", what, help);
	return USAGE;
}

static int watch(const char *root, const char *interval)
{
	char *end = NULL;
	long ms = interval ? strtol(interval, &end, 10) : INTERVAL_MS;

	if (interval && (end == interval || *end || ms < 10 || ms > 3600000))
		return wrong("watch takes 10 to 3600000 milliseconds");
	return command_watch(root, (int)ms);
}

static int obey(const char *root, int argc, char **argv)
{
	const char *command = argc > 0 ? argv[0] : "status";
	const char *argument = argc > 1 ? argv[1] : NULL;

	if (argc > 2)
		return wrong("too many words");
	if (strcmp(command, "doctor") == 0)
		return command_doctor(root, argument);
	if (strcmp(command, "watch") == 0)
		return watch(root, argument);
	if (strcmp(command, "permit") == 0)
		return argument ? command_permit(argument) : wrong("permit what?");
	if (argument)
		return wrong("too many words");
	if (strcmp(command, "status") == 0)
		return command_status(root);
	if (strcmp(command, "reap") == 0)
		return command_reap(root);
	if (strcmp(command, "version") == 0 || strcmp(command, "--version") == 0) {
		printf("gantry-guest %s\n", gantry_version());
		return 0;
	}
	if (strcmp(command, "help") == 0 || strcmp(command, "--help") == 0) {
		printf("%s", help);
		return 0;
	}
	return wrong("no such command");
}

int main(int argc, char **argv)
{
	const char *root = GANTRY_PCI_DEVICES;

	argc--;
	argv++;
	if (argc > 1 && strcmp(argv[0], "--devices") == 0) {
		root = argv[1];
		argc -= 2;
		argv += 2;
	}
	return obey(root, argc, argv);
}
