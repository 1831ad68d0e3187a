/* SPDX-License-Identifier: Apache-2.0 */
/* What programs give as an image: whether it is one, and how long. */
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "guest-shim/cuda/core.h"
#include "guest-shim/cuda/pages.h"
#include "proto/cuda_link.h"

#define WRAPPER_MAGIC 0x466243b1u /* fatbinary.h: what nvcc leaves around a fatbin */
#define FATBIN_MAGIC  0xba55ed50u

struct wrapper {
	uint32_t magic;
	uint32_t version;
	const void *data;
	void *files;
};

struct fatbin {
	uint32_t magic;
	uint16_t version;
	uint16_t header_bytes;
	uint64_t bytes;
};

/*
 * Programs give no length of what is in memory, so the headers say it, as they do to the driver; that nothing of theirs is there is
 * no reason to crash. Of what was a file the length is known.
 */
struct source {
	const void *image;
	uint64_t bytes; /* 0: not known */
};

/* Whether the program has pages there. */
static bool is_mapped(const void *at, uint64_t bytes)
{
	uintptr_t from = (uintptr_t)at & -(uintptr_t)CU_PAGE;
	unsigned char seen[1024]; /* a byte for each page */
	uint64_t end;

	if (gantry_add_u64((uintptr_t)at, bytes, &end) < 0)
		return false;
	while (from < end) {
		uint64_t part = GANTRY_MIN(end - from, sizeof(seen) * CU_PAGE);

		/* Whatever else it has to say, it has looked. */
		if (mincore((void *)from, part, seen) < 0 && errno == ENOMEM)
			return false;
		from += part + CU_PAGE - 1 - (part - 1) % CU_PAGE;
	}
	return true;
}

static bool is_there(const struct source *source, uint64_t bytes)
{
	return source->bytes ? bytes <= source->bytes : is_mapped(source->image, bytes);
}

/* With the NUL at its end; 0: there is none. */
static uint64_t text_bytes(const struct source *source)
{
	const char *text = source->image;
	uint64_t n = 0;

	if (source->bytes)
		return strlen(text) + 1; /* it was read with a NUL behind it */
	while (n < GANTRY_MAX_IMAGE_BYTES) {
		uint64_t part = CU_PAGE - ((uintptr_t)text + n) % CU_PAGE, len;

		if (!is_mapped(text + n, part))
			return 0;
		len = strnlen(text + n, part);
		n += len;
		if (len < part)
			return n + 1;
	}
	return 0;
}

/* What cuLinkComplete() has made. */
static bool is_link(const struct source *source)
{
	return is_there(source, GANTRY_LINK_MAGIC_BYTES) &&
	       memcmp(source->image, GANTRY_LINK_MAGIC, GANTRY_LINK_MAGIC_BYTES) == 0;
}

static bool has_magic(const struct source *source, uint32_t magic)
{
	return is_there(source, sizeof(magic)) && memcmp(source->image, &magic, sizeof(magic)) == 0;
}

static bool is_elf(const struct source *source)
{
	return is_there(source, SELFMAG) && memcmp(source->image, ELFMAG, SELFMAG) == 0;
}

/* The end of a table; UINT64_MAX: nowhere. */
static uint64_t end_of(uint64_t off, uint64_t n, uint64_t bytes)
{
	uint64_t end;

	return gantry_add_u64(off, n * bytes, &end) < 0 ? UINT64_MAX : end;
}

static uint64_t elf_bytes(const struct source *source)
{
	uint64_t sections, segments;
	Elf64_Ehdr elf;

	if (!is_there(source, sizeof(elf)))
		return 0;
	memcpy(&elf, source->image, sizeof(elf));
	sections = end_of(elf.e_shoff, elf.e_shnum, elf.e_shentsize);
	segments = end_of(elf.e_phoff, elf.e_phnum, elf.e_phentsize);
	return GANTRY_MAX(sections, segments);
}

static uint64_t fatbin_bytes(const struct source *source)
{
	struct fatbin fatbin;

	if (!is_there(source, sizeof(fatbin)))
		return 0;
	memcpy(&fatbin, source->image, sizeof(fatbin));
	return end_of(fatbin.header_bytes, fatbin.bytes, 1);
}

static uint64_t link_bytes(const struct source *source)
{
	struct gantry_link_header link;

	if (!is_there(source, sizeof(link)))
		return 0;
	memcpy(&link, source->image, sizeof(link));
	return link.bytes;
}

/* 0: it is no image, or not all of it is there. */
static uint64_t image_bytes(const struct source *source)
{
	uint64_t bytes;

	if (is_link(source))
		bytes = link_bytes(source);
	else if (has_magic(source, FATBIN_MAGIC))
		bytes = fatbin_bytes(source);
	else if (is_elf(source))
		bytes = elf_bytes(source);
	else
		return is_there(source, 1) ? text_bytes(source) : 0;
	return bytes <= GANTRY_MAX_IMAGE_BYTES && is_there(source, bytes) ? bytes : 0;
}

/* The driver compiles no source: what is not one of its formats is refused here, as there. */
static bool is_ptx(const char *text)
{
	const char *at = strstr(text, ".version");

	return at && (at == text || at[-1] == '\n' || at[-1] == ' ' || at[-1] == '\t');
}

/* A wrapper has the image's address, so it is none that was a file. */
static void unwrap(struct source *source)
{
	struct wrapper wrapper;

	if (source->bytes || !has_magic(source, WRAPPER_MAGIC) ||
	    !is_there(source, sizeof(wrapper)))
		return;
	memcpy(&wrapper, source->image, sizeof(wrapper));
	source->image = wrapper.data;
}

uint64_t cu_image_find(const void **image, uint64_t file_bytes)
{
	struct source source = { .image = *image, .bytes = file_bytes };
	uint64_t bytes;

	unwrap(&source);
	bytes = image_bytes(&source);
	if (bytes == 0 || bytes > GANTRY_MAX_IMAGE_BYTES)
		return 0;
	if (!has_magic(&source, FATBIN_MAGIC) && !is_elf(&source) && !is_link(&source) &&
	    !is_ptx(source.image))
		return 0;
	*image = source.image;
	return bytes;
}

/* As devices/cuda/format.c knows parts of fatbins. */
struct part {
	uint16_t kind;
	uint16_t version;
	uint32_t header_bytes;
	uint64_t bytes; /* of the contents, as they lie here */
	uint32_t compressed_bytes;
	uint32_t reserved;
};

bool cu_image_is_compressed(const void *image, size_t bytes)
{
	struct fatbin fatbin;
	struct part part;

	if (bytes < sizeof(fatbin))
		return false;
	memcpy(&fatbin, image, sizeof(fatbin));
	if (fatbin.magic != FATBIN_MAGIC)
		return false;
	for (size_t off = fatbin.header_bytes; off < bytes;
	     off += part.header_bytes + (size_t)part.bytes) {
		if (!gantry_range_inside(off, sizeof(part), bytes))
			return true;
		memcpy(&part, (const char *)image + off, sizeof(part));
		if (part.compressed_bytes != 0 || part.header_bytes < sizeof(part) ||
		    !gantry_range_inside(off, part.header_bytes, bytes) ||
		    !gantry_range_inside(off + part.header_bytes, part.bytes, bytes))
			return true;
	}
	return false;
}
