/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/ctl/elffile.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

#define PART_MAX   (64ull << 20)
#define WHEELS	   "/nvidia/"
#define RUNTIME	   "libcudart.so"
#define CONSTANTS  ".rodata"
#define LOOK_MAX   (1ull << 30) /* bytes of constants; a file may say that it has any number */
#define LOOK_BYTES (1u << 20)
#define MARK_MAX   64u /* bytes of the longest */

/*
 * What a runtime has among its constants, stripped or not, used by code for GPUs or by code of the host alone: the driver's name, and what
 * cudaGetErrorName() and cudaGetErrorString() say of one error. A program may have one of them for itself, not all. The last byte
 * stands for the NUL there: this program is not to have them itself.
 */
static const char *const marks[] = {
	"libcuda.so.1.",
	"cudaErrorInsufficientDriver.",
	"CUDA driver version is insufficient for CUDA runtime version.",
};

#define ALL_MARKS ((1u << GANTRY_ARRAY_SIZE(marks)) - 1)

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

/* Whether what the first entry with @tag names has @part in it; a file has at most one of either that is asked for. */
static bool dynamic_names(const struct elf *elf, const Elf64_Shdr *section, int64_t tag,
			  const char *part)
{
	struct texts names = take_texts(elf, section->sh_link);
	_cleanup_free_ char *own = names.bytes;
	_cleanup_free_ Elf64_Dyn *entries = take(elf->fd, section->sh_offset, section->sh_size);

	for (uint64_t i = 0; entries && i < section->sh_size / sizeof(*entries); i++)
		if (entries[i].d_tag == tag)
			return strstr(text_at(&names, entries[i].d_un.d_val), part) != NULL;
	return false;
}

/* The first section of that type. NULL: none. */
static const Elf64_Shdr *find_section(const struct elf *elf, uint32_t type)
{
	for (uint32_t i = 0; i < elf->nsections; i++)
		if (elf->sections[i].sh_type == type)
			return &elf->sections[i];
	return NULL;
}

/* ---- a runtime inside ---- */

static bool has_mark(const char *bytes, size_t len, const char *mark)
{
	char text[MARK_MAX];
	size_t n = strlen(mark);

	memcpy(text, mark, n); /* fits */
	text[n - 1] = '\0';
	return memmem(bytes, len, text, n) != NULL;
}

static uint32_t marks_in(const char *bytes, size_t len)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < GANTRY_ARRAY_SIZE(marks); i++)
		found |= has_mark(bytes, len, marks[i]) ? 1u << i : 0;
	return found;
}

/* The marks among @len bytes from @off on, in pieces; *@left: how much more may be looked at. */
static uint32_t marks_in_section(int fd, uint64_t off, uint64_t len, char *piece, uint64_t *left)
{
	uint32_t found = 0;

	while (found != ALL_MARKS && len > 0 && *left > 0) {
		ssize_t n = pread(fd, piece, GANTRY_MIN(GANTRY_MIN(len, *left), LOOK_BYTES),
				  (off_t)off);
		uint64_t step;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		found |= marks_in(piece, (size_t)n);
		/* A mark may lie across two pieces. */
		step = (uint64_t)n == len || n <= MARK_MAX ? (uint64_t)n : (uint64_t)n - MARK_MAX;
		off += step;
		len -= step;
		*left -= step;
	}
	return found;
}

static bool holds_runtime(const struct elf *elf, const struct texts *names)
{
	_cleanup_free_ char *piece = malloc(LOOK_BYTES);
	uint64_t left = LOOK_MAX;
	uint32_t found = 0;

	for (uint32_t i = 0; piece && i < elf->nsections && found != ALL_MARKS; i++) {
		const Elf64_Shdr *s = &elf->sections[i];

		if (s->sh_type == SHT_PROGBITS &&
		    gantry_str_starts(text_at(names, s->sh_name), CONSTANTS))
			found |= marks_in_section(elf->fd, s->sh_offset, s->sh_size, piece, &left);
	}
	return found == ALL_MARKS;
}

static void look(const struct elf *elf, uint32_t names_at, struct gantry_elf *ret_elf)
{
	struct texts names = take_texts(elf, names_at);
	_cleanup_free_ char *own = names.bytes;
	const Elf64_Shdr *dynamic = find_section(elf, SHT_DYNAMIC);

	ret_elf->names_wheels = dynamic && dynamic_names(elf, dynamic, DT_RPATH, WHEELS);
	ret_elf->has_static_runtime = holds_runtime(elf, &names) &&
				      !(dynamic && dynamic_names(elf, dynamic, DT_SONAME, RUNTIME));
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
