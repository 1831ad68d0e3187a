/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does QEMU lose what a machine writes while it is migrated? Without KVM it does before 9.0: it collects the bits of pages
 * written for 64 pages at a time, and forgets then to have its processors mark their next writes there. Memory that is no
 * multiple of 64 pages is collected page by page, as it should be. Nothing fails: the machine there has old pages among new
 * ones, and hangs, resets or works on with them.
 *
 * Trust: QEMU's answers.
 * Threads: any. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_VM_EMULATED_H
#define GANTRY_HOST_AGENT_VM_EMULATED_H

#include <stdbool.h>

#include "base/err.h"

/* What QEMU was asked: its answers to these of QMP's commands, as JSON texts. */
struct gantry_vm_emulation {
	const char *kvm;     /* query-kvm */
	const char *version; /* query-version */
	const char *memory;  /* query-memory-size-summary */
};

/* True, with a sentence in *@ret_caution; false where it loses nothing, or an answer is none. */
bool gantry_vm_loses_writes(const struct gantry_vm_emulation *answers,
			    struct gantry_err *ret_caution);

#endif
