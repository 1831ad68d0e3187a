/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels print, as OpenCL shows it: by the end of clFinish(), and of waits for the events of what printed it. */
#include <string.h>

#include "guest-shim/opencl/icd.h"

void icd_output_expect(struct icd_host *host, const void *text, size_t bytes)
{
	const char *all = text;
	size_t off;

	if (gantry_spirv_find(text, bytes, &off)
		    ? !gantry_spirv_check(all + off, bytes - off) &&
			      gantry_spirv_prints(all + off, bytes - off)
		    : memmem(text, bytes, "printf", 6) != NULL)
		gantry_printed_want(&host->printed, host->session);
}

void icd_output_pass_on(struct icd_host *host)
{
	if (!gantry_printed_is_news(&host->printed))
		return;
	/* Whoever reads the program's output may take long, and the program let go of its context. */
	host->nusers++;
	icd_gate_unlock();
	gantry_printed_show(&host->printed);
	icd_gate_lock();
	icd_host_put(host);
}
