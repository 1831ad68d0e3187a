/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/ctl/parse.h"
#include "host-agent/ctl/verbs.h"

int main(int argc, char **argv)
{
	struct gantry_ctl ctl;
	int code;

	gantry_ctl_init(&ctl);
	code = gantry_ctl_parse(&ctl, argc, argv);
	if (code == 0)
		code = ctl.verb->run(&ctl);
	if ((fflush(ctl.out) != 0 || ferror(ctl.out)) && code == 0)
		code = gantry_ctl_fail(&ctl, GANTRY_CTL_FAILED, "the output could not be written");
	gantry_ctl_fini(&ctl);
	return code;
}
