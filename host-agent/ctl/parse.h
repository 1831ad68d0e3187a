/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of gantryctl, by the tables of verbs.h. */
#ifndef GANTRY_HOST_AGENT_CTL_PARSE_H
#define GANTRY_HOST_AGENT_CTL_PARSE_H

#include "host-agent/ctl/context.h"

/*
 * Fills @ctl from @argv, whose order may change. 0: run ctl->verb; else the exit code of what was reported.
 * "--help" anywhere before a "--" chooses the verb help. Not reentrant: getopt is not.
 */
int gantry_ctl_parse(struct gantry_ctl *ctl, int argc, char **argv);

/* What main() does: parse, @run, and a failure where the output could not be written. Returns the exit code. */
int gantry_ctl_main(int argc, char **argv, int (*run)(struct gantry_ctl *ctl));

#endif
