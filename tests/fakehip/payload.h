/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code objects for the stand-ins: ELF files as those for AMD GPUs, with their metadata, but in place of the machine code a
 * note "GANTRY" of type 1 that says what runs instead: for the CPU the path of a shared object, for the CUDA driver PTX, or an
 * image with machine code.
 * wrap.py makes them.
 */
#ifndef GANTRY_TESTS_FAKEHIP_PAYLOAD_H
#define GANTRY_TESTS_FAKEHIP_PAYLOAD_H

#include <elf.h>
#include <stdint.h>
#include <string.h>

/* The text of the note in @image, terminated; NULL: there is none. The image is whole: devices/hip has looked at it. */
static inline const char *fakehip_payload(const void *image)
{
	const unsigned char *bytes = image;
	const Elf64_Ehdr *header = image;

	for (unsigned i = 0; i < header->e_phnum; i++) {
		const Elf64_Phdr *segment = (const Elf64_Phdr *)(bytes + header->e_phoff) + i;
		uint64_t off = 0;

		while (segment->p_type == PT_NOTE &&
		       off + sizeof(Elf64_Nhdr) <= segment->p_filesz) {
			const Elf64_Nhdr *note =
				(const Elf64_Nhdr *)(bytes + segment->p_offset + off);
			const char *name = (const char *)(note + 1);
			const char *text = name + (note->n_namesz + 3) / 4 * 4;

			if (note->n_type == 1 && note->n_namesz == 7 &&
			    memcmp(name, "GANTRY", 7) == 0)
				return text;
			off += sizeof(*note) + (note->n_namesz + 3) / 4 * 4 +
			       (note->n_descsz + 3) / 4 * 4;
		}
	}
	return NULL;
}

#endif
