/* SPDX-License-Identifier: Apache-2.0 */
/* The text of the device code; meson says where GANTRY_TEXT lies. */
	.section .rodata
	.globl gantry_core_opencl, gantry_core_opencl_end
	.hidden gantry_core_opencl, gantry_core_opencl_end
gantry_core_opencl:
	.incbin GANTRY_TEXT
	.byte 0
gantry_core_opencl_end:
	.section .note.GNU-stack, "", @progbits
