/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/ctl/elffile.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#define PART_MAX (64ull << 20)
/* Where nvcc puts what it registers when a program begins, and the function that does so. */
#define REGISTERED "__cudaRegisterFatBinary"
#define SEGMENT	   ".nvFatBinSegment"
#define WHEELS	   "/nvidia/"

struct elf {
	int fd;
	Elf64_Shdr *sections;
	uint32_t nsections;
};

/* A table of texts; the last byte is NUL. */
struct texts {
	char *bytes;
	uint64_t len;
};

/* @len bytes from @off on and a NUL, malloc'd; NULL: there are not so many. */
static void *take(int fd, uint64_t off, uint64_t len)
{
	char *bytes;
	uint64_t got = 0;

	if (len > PART_MAX || off > INT64_MAX - len)
		return NULL;
	bytes = malloc(len + 1);
	while (bytes && got < len) {
		ssize_t n = pread(fd, bytes + got, len - got, (off_t)(off + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			free(bytes);
			return NULL;
		}
		got += (uint64_t)n;
	}
	if (bytes)
		bytes[len] = '\0';
	return bytes;
}

static struct texts take_texts(const struct elf *elf, uint32_t section)
{
	struct texts texts = { 0 };

	if (section >= elf->nsections || elf->sections[section].sh_type != SHT_STRTAB)
		return texts;
	texts.bytes = take(elf->fd, elf->sections[section].sh_offset,
			   elf->sections[section].sh_size);
	texts.len = texts.bytes ? elf->sections[section].sh_size : 0;
	return texts;
}

static const char *text_at(const struct texts *texts, uint64_t off)
{
	return off < texts->len ? texts->bytes + off : "";
}

/* Whether the dynamic symbols in @section want REGISTERED from another file. */
static bool wants_runtime(const struct elf *elf, const Elf64_Shdr *section)
{
	struct texts names = take_texts(elf, section->sh_link);
	_cleanup_free_ char *own = names.bytes;
	_cleanup_free_ Elf64_Sym *symbols = take(elf->fd, section->sh_offset, section->sh_size);

	for (uint64_t i = 0; symbols && i < section->sh_size / sizeof(*symbols); i++)
		if (symbols[i].st_shndx == SHN_UNDEF &&
		    strcmp(text_at(&names, symbols[i].st_name), REGISTERED) == 0)
			return true;
	return false;
}

/* A file has at most one DT_RPATH. */
static bool names_wheels(const struct elf *elf, const Elf64_Shdr *section)
{
	struct texts names = take_texts(elf, section->sh_link);
	_cleanup_free_ char *own = names.bytes;
	_cleanup_free_ Elf64_Dyn *entries = take(elf->fd, section->sh_offset, section->sh_size);

	for (uint64_t i = 0; entries && i < section->sh_size / sizeof(*entries); i++)
		if (entries[i].d_tag == DT_RPATH)
			return strstr(text_at(&names, entries[i].d_un.d_val), WHEELS) != NULL;
	return false;
}

/* The first section of that type: a file has at most one of either that is asked for. NULL: none. */
static const Elf64_Shdr *find_section(const struct elf *elf, uint32_t type)
{
	for (uint32_t i = 0; i < elf->nsections; i++)
		if (elf->sections[i].sh_type == type)
			return &elf->sections[i];
	return NULL;
}

static void look(const struct elf *elf, uint32_t names_at, struct gantry_elf *ret_elf)
{
	struct texts names = take_texts(elf, names_at);
	_cleanup_free_ char *own = names.bytes;
	const Elf64_Shdr *symbols = find_section(elf, SHT_DYNSYM);
	const Elf64_Shdr *dynamic = find_section(elf, SHT_DYNAMIC);

	for (uint32_t i = 0; i < elf->nsections && !ret_elf->has_gpu_code; i++)
		ret_elf->has_gpu_code = strcmp(text_at(&names, elf->sections[i].sh_name),
					       SEGMENT) == 0;
	ret_elf->names_wheels = dynamic && names_wheels(elf, dynamic);
	ret_elf->has_static_runtime = ret_elf->has_gpu_code &&
				      !(symbols && wants_runtime(elf, symbols));
}

int gantry_elf_look(const char *path, struct gantry_elf *ret_elf)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	_cleanup_free_ Elf64_Ehdr *header = NULL;
	_cleanup_free_ Elf64_Shdr *sections = NULL;
	struct gantry_elf found = { 0 };
	struct elf elf = { .fd = fd };

	if (fd < 0)
		return -errno;
	header = take(fd, 0, sizeof(*header));
	found.is_elf = header && memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
		       header->e_ident[EI_CLASS] == ELFCLASS64 &&
		       header->e_ident[EI_DATA] == ELFDATA2LSB;
	if (found.is_elf && header->e_shentsize == sizeof(*sections))
		sections = take(fd, header->e_shoff, header->e_shnum * sizeof(*sections));
	if (sections) {
		elf.sections = sections;
		elf.nsections = header->e_shnum;
		look(&elf, header->e_shstrndx, &found);
	}
	*ret_elf = found;
	return 0;
}
