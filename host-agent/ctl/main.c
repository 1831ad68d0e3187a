/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/ctl/parse.h"
#include "host-agent/ctl/verbs.h"

static int run(struct gantry_ctl *ctl)
{
	return ctl->verb->run(ctl);
}

int main(int argc, char **argv)
{
	return gantry_ctl_main(argc, argv, run);
}
