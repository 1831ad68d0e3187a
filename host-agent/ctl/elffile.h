/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an ELF file says of how it uses CUDA: whether it has a runtime of its own inside, and which folders its libraries are to
 * come from.
 *
 * Trust: the file may be anything; what does not hold together is taken for a file that says nothing.
 */
#ifndef GANTRY_HOST_AGENT_CTL_ELFFILE_H
#define GANTRY_HOST_AGENT_CTL_ELFFILE_H

#include <stdbool.h>

struct gantry_elf {
	bool is_elf; /* of 64 bits, as this machine has them */
	/* NVIDIA's runtime was linked in (nvcc's default), and the file is not that runtime itself. */
	bool has_static_runtime;
	/* DT_RPATH names folders of NVIDIA's wheels: they come before LD_LIBRARY_PATH. */
	bool names_wheels;
};

/* 0, or -errno where the file cannot be opened or read. */
int gantry_elf_look(const char *path, struct gantry_elf *ret_elf);

#endif
