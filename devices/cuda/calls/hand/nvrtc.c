/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling a program of NVRTC's. After the number of options come the program, the options, and a source: none where the program is compiled as it was made.
 * Else the number of its headers, their contents and their names follow: those that it was made with and files of the guest's, as the source has them.
 */
#include <nvrtc.h>

#include "devices/cuda/calls/run.h"

void gantry_hand_serve_nvrtcCompileProgram(struct gantry_calls_run *run);

typedef int compile_with(nvrtcProgram program, int noptions, const char *const *options,
			 const char *source, uint32_t nheaders, const char *const *headers,
			 const char *const *names);

void gantry_hand_serve_nvrtcCompileProgram(struct gantry_calls_run *run)
{
	__typeof__(&nvrtcCompileProgram) function =
		(__typeof__(&nvrtcCompileProgram))gantry_calls_symbol(run, "nvrtcCompileProgram");
	compile_with *with = (compile_with *)gantry_calls_symbol(run, "nvrtcCompileProgramWith");
	const char *const *options, *const *headers = NULL, *const *names = NULL;
	const char *source;
	nvrtcProgram program;
	uint32_t nheaders = 0;
	int noptions, ret;

	gantry_calls_take(run, &noptions, sizeof(noptions));
	program = (void *)(uintptr_t)gantry_calls_take_handle(
		run, gantry_calls_kind("nvrtcProgram"), false);
	gantry_calls_need(run, program);
	options = gantry_calls_take_strings(run, noptions);
	source = gantry_calls_take_string(run);
	if (source) {
		gantry_calls_take(run, &nheaders, sizeof(nheaders));
		headers = gantry_calls_take_strings(run, nheaders);
		names = gantry_calls_take_strings(run, nheaders);
		gantry_calls_need(run, headers);
		gantry_calls_need(run, names);
	}
	if (source && !with)
		gantry_calls_refuse(run);
	if (!gantry_calls_may_run(run))
		return;
	ret = source ? with(program, noptions, options, source, nheaders, headers, names)
		     : (int)function(program, noptions, options);
	gantry_calls_ran(run, (uint64_t)ret, ret == 0);
}
