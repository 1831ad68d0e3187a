/* SPDX-License-Identifier: Apache-2.0 */
/* The device code as nvcc made it; meson says where GANTRY_FATBIN lies. Packed images want 8 bytes. */
	.section .rodata
	.globl gantry_core_fatbin, gantry_core_fatbin_end
	.hidden gantry_core_fatbin, gantry_core_fatbin_end
	.balign 64
gantry_core_fatbin:
	.incbin GANTRY_FATBIN
	.byte 0 /* were it text, it would end here */
gantry_core_fatbin_end:
	.section .note.GNU-stack, "", @progbits
