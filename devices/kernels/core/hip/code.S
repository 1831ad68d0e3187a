/* SPDX-License-Identifier: Apache-2.0 */
/* The text compiled for each processor, in a bundle; meson says where GANTRY_BUNDLE lies. */
	.section .rodata
	.globl gantry_core_hip, gantry_core_hip_end
	.hidden gantry_core_hip, gantry_core_hip_end
	.balign 4096
gantry_core_hip:
	.incbin GANTRY_BUNDLE
gantry_core_hip_end:
	.section .note.GNU-stack, "", @progbits
