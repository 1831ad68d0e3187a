/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What device code looks like from outside: fatbins, cubins, PTX, source.
 *
 * The driver takes an address and no length, and believes what headers say of sizes: an image that says more than there
 * is makes it read on. So every size that it may follow is checked here. What is inside a part (instructions, compressed
 * bytes) is the driver's to judge.
 */
#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "devices/cuda/compile.h"
#include "proto/cuda_graph.h"
#include "proto/cuda_link.h"

#define FATBIN_MAGIC 0xba55ed50u

/* A fatbin: this, and parts up to @bytes. */
struct fatbin_header {
	uint32_t magic;
	uint16_t version;
	uint16_t header_bytes;
	uint64_t bytes; /* of all parts */
};

enum part_kind {
	PART_PTX = 1,
	PART_CUBIN = 2,
};

/* The beginning of a part's header; @header_bytes says where its contents are. */
struct part_header {
	uint16_t kind; /* enum part_kind; others exist */
	uint16_t version;
	uint32_t header_bytes;
	uint64_t bytes;		   /* of the contents, as they lie here */
	uint32_t compressed_bytes; /* 0: not compressed */
	uint32_t reserved;
	uint16_t minor;
	uint16_t major;
	uint32_t arch; /* 90 */
};

/* ---- architectures ---- */

/* 90 of "sm_90"; 0 for anything else. */
static unsigned arch_number(const char *arch)
{
	unsigned number = 0;

	return arch && sscanf(arch, "sm_%u", &number) == 1 ? number : 0;
}

/* Does a device of @device run a cubin made for @code? The same major, and no newer minor, version. */
static bool runs_cubin(unsigned device, unsigned code)
{
	return code / 10 == device / 10 && code % 10 <= device % 10;
}

/* ---- cubins ---- */

static unsigned cubin_arch(const Elf64_Ehdr *header)
{
	/* Since CUDA 13 the number stands in the second byte. */
	return header->e_ident[EI_ABIVERSION] >= 8 ? header->e_flags >> 8 & 0xff
						   : header->e_flags & 0xff;
}

static bool table_inside(uint64_t off, uint64_t count, uint64_t entry_bytes, uint64_t nbytes)
{
	return gantry_range_inside(off, count * entry_bytes,
				   nbytes); /* 16 bits each: no overflow */
}

static int cut_short(struct gantry_err *err, const char *what)
{
	return gantry_err_set(err, -ENOEXEC, "the %s is cut short: it announces more than there is",
			      what);
}

static bool sections_inside(const unsigned char *bytes, uint64_t nbytes, const Elf64_Ehdr *header)
{
	for (unsigned i = 0; i < header->e_shnum; i++) {
		Elf64_Shdr section;

		memcpy(&section, bytes + header->e_shoff + i * sizeof(section), sizeof(section));
		if (section.sh_type != SHT_NOBITS &&
		    !gantry_range_inside(section.sh_offset, section.sh_size, nbytes))
			return false;
	}
	return true;
}

static bool segments_inside(const unsigned char *bytes, uint64_t nbytes, const Elf64_Ehdr *header)
{
	for (unsigned i = 0; i < header->e_phnum; i++) {
		Elf64_Phdr segment;

		memcpy(&segment, bytes + header->e_phoff + i * sizeof(segment), sizeof(segment));
		if (!gantry_range_inside(segment.p_offset, segment.p_filesz, nbytes))
			return false;
	}
	return true;
}

/* *@ret_arch: what it is made for. */
static int check_cubin(const unsigned char *bytes, uint64_t nbytes, unsigned *ret_arch,
		       struct gantry_err *err)
{
	Elf64_Ehdr header;

	if (nbytes < sizeof(header))
		return cut_short(err, "cubin");
	memcpy(&header, bytes, sizeof(header));
	if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
	    header.e_machine != EM_CUDA)
		return gantry_err_set(err, -ENOEXEC, "the image is an ELF file, but no cubin");
	if ((header.e_shnum && header.e_shentsize != sizeof(Elf64_Shdr)) ||
	    (header.e_phnum && header.e_phentsize != sizeof(Elf64_Phdr)) ||
	    (header.e_shnum && header.e_shstrndx >= header.e_shnum))
		return gantry_err_set(err, -ENOEXEC, "the cubin's headers make no sense");
	if (!table_inside(header.e_shoff, header.e_shnum, sizeof(Elf64_Shdr), nbytes) ||
	    !table_inside(header.e_phoff, header.e_phnum, sizeof(Elf64_Phdr), nbytes) ||
	    !sections_inside(bytes, nbytes, &header) || !segments_inside(bytes, nbytes, &header))
		return cut_short(err, "cubin");
	*ret_arch = cubin_arch(&header);
	return 0;
}

static int check_lone_cubin(const void *bytes, size_t nbytes, unsigned device,
			    struct gantry_err *err)
{
	unsigned arch = 0;
	int r = check_cubin(bytes, nbytes, &arch, err);

	if (r == 0 && device && !runs_cubin(device, arch))
		return gantry_err_set(err, -ENOEXEC,
				      "the cubin is for sm_%u, and the device is sm_%u", arch,
				      device);
	return r;
}

/* ---- fatbins ---- */

/* Whether a device can use the part. */
static bool part_fits(const struct part_header *part, unsigned device)
{
	if (part->kind == PART_PTX)
		return part->arch <= device;
	return part->kind == PART_CUBIN && runs_cubin(device, part->arch);
}

/* One part at @bytes, of which @nbytes are there. *@ret_len: with its header. */
static int check_part(const unsigned char *bytes, uint64_t nbytes, struct part_header *ret_part,
		      uint64_t *ret_len, struct gantry_err *err)
{
	struct part_header part;
	unsigned arch;

	if (nbytes < sizeof(part))
		return cut_short(err, "fatbin");
	memcpy(&part, bytes, sizeof(part));
	if (part.header_bytes < sizeof(part))
		return gantry_err_set(err, -ENOEXEC, "the fatbin's headers make no sense");
	if (part.header_bytes > nbytes || part.bytes > nbytes - part.header_bytes ||
	    part.compressed_bytes > part.bytes)
		return cut_short(err, "fatbin");
	*ret_part = part;
	*ret_len = part.header_bytes + part.bytes;
	bytes += part.header_bytes;
	if (part.kind == PART_CUBIN && part.compressed_bytes == 0 && part.bytes >= SELFMAG &&
	    memcmp(bytes, ELFMAG, SELFMAG) == 0)
		return check_cubin(bytes, part.bytes, &arch, err);
	return 0;
}

static int check_fatbin(const unsigned char *bytes, uint64_t nbytes, unsigned device,
			struct gantry_err *err)
{
	struct fatbin_header header;
	struct part_header part = { 0 };
	bool fits = device == 0;
	unsigned arch = 0;
	uint64_t off, len = 0;
	int r;

	if (nbytes < sizeof(header))
		return cut_short(err, "fatbin");
	memcpy(&header, bytes, sizeof(header));
	if (header.header_bytes < sizeof(header))
		return gantry_err_set(err, -ENOEXEC, "the fatbin's headers make no sense");
	if (header.header_bytes > nbytes || header.bytes > nbytes - header.header_bytes)
		return cut_short(err, "fatbin");
	nbytes = header.header_bytes + header.bytes;
	for (off = header.header_bytes; off < nbytes; off += len) {
		r = check_part(bytes + off, nbytes - off, &part, &len, err);
		if (r < 0)
			return r;
		arch = part.arch;
		fits = fits || part_fits(&part, device);
	}
	if (!fits)
		return gantry_err_set(
			err, -ENOEXEC,
			"the fatbin has nothing for sm_%u; its last part is for sm_%u", device,
			arch);
	return 0;
}

/* ---- PTX ---- */

/* Past blanks and comments. */
static size_t skip_blanks(const char *text, size_t len, size_t at)
{
	while (at < len) {
		if (isspace((unsigned char)text[at])) {
			at++;
		} else if (len - at >= 2 && text[at] == '/' && text[at + 1] == '/') {
			while (at < len && text[at] != '\n')
				at++;
		} else if (len - at >= 2 && text[at] == '/' && text[at + 1] == '*') {
			at += 2;
			while (at < len && !(text[at] == '/' && text[at - 1] == '*'))
				at++;
			at += at < len;
		} else {
			break;
		}
	}
	return at;
}

/* Every PTX module begins with its version. */
static bool is_ptx(const char *text, size_t len)
{
	static const char first[] = ".version";
	size_t at = skip_blanks(text, len, 0);

	return len - at > sizeof(first) - 1 && memcmp(text + at, first, sizeof(first) - 1) == 0 &&
	       isspace((unsigned char)text[at + sizeof(first) - 1]);
}

static int check_ptx(const char *text, size_t nbytes, struct gantry_err *err)
{
	const char *end = memchr(text, '\0', nbytes);

	if (!end)
		return gantry_err_set(err, -ENOEXEC, "the PTX does not end with a NUL");
	if (end != text + nbytes - 1)
		return gantry_err_set(err, -ENOEXEC, "the PTX has a NUL inside");
	return 0;
}

/* ---- all ---- */

enum gantry_cuda_image_sort gantry_cuda_image_sort(const void *bytes, size_t nbytes)
{
	static const uint32_t magic = FATBIN_MAGIC;

	if (nbytes >= sizeof(magic) && memcmp(bytes, &magic, sizeof(magic)) == 0)
		return GANTRY_CUDA_FATBIN;
	if (nbytes >= SELFMAG && memcmp(bytes, ELFMAG, SELFMAG) == 0)
		return GANTRY_CUDA_CUBIN;
	return is_ptx(bytes, nbytes) ? GANTRY_CUDA_PTX : GANTRY_CUDA_SOURCE;
}

bool gantry_cuda_link_is(const void *bytes, size_t nbytes)
{
	return nbytes >= GANTRY_LINK_MAGIC_BYTES &&
	       memcmp(bytes, GANTRY_LINK_MAGIC, GANTRY_LINK_MAGIC_BYTES) == 0;
}

bool gantry_cuda_graph_is(const void *bytes, size_t nbytes)
{
	return nbytes == GANTRY_CUDA_GRAPH_MAGIC_BYTES &&
	       memcmp(bytes, GANTRY_CUDA_GRAPH_MAGIC, GANTRY_CUDA_GRAPH_MAGIC_BYTES) == 0;
}

int gantry_cuda_image_check(const void *bytes, size_t nbytes, const char *arch,
			    struct gantry_err *err)
{
	switch (gantry_cuda_image_sort(bytes, nbytes)) {
	case GANTRY_CUDA_FATBIN:
		return check_fatbin(bytes, nbytes, arch_number(arch), err);
	case GANTRY_CUDA_CUBIN:
		return check_lone_cubin(bytes, nbytes, arch_number(arch), err);
	case GANTRY_CUDA_PTX:
		return check_ptx(bytes, nbytes, err);
	default:
		return gantry_err_set(err, -ENOEXEC, "the image is neither fatbin, cubin nor PTX");
	}
}
