/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/hip/container.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/str.h"
#include "devices/hip/pack.h"

#define BUNDLE_MAGIC  "__CLANG_OFFLOAD_BUNDLE__"
#define COMPRESSED    "CCOB"
#define MAX_ENTRIES   256u
#define MACHINE	      224 /* EM_AMDGPU */
#define OSABI	      64  /* ELFOSABI_AMDGPU_HSA */
#define METADATA_NOTE 32  /* NT_AMDGPU_METADATA */

struct bytes {
	const uint8_t *at;
	uint64_t len;
};

static int bad(struct gantry_err *err, const char *why)
{
	return gantry_err_set(err, -ENOEXEC, "%s", why);
}

static bool part(struct bytes whole, uint64_t off, uint64_t len, struct bytes *ret_part)
{
	if (!gantry_range_inside(off, len, whole.len))
		return false;
	*ret_part = (struct bytes){ whole.at + off, len };
	return true;
}

static bool text_is(const char *text, uint32_t len, const char *wanted)
{
	return strlen(wanted) == len && memcmp(text, wanted, len) == 0;
}

/* ---- for which processor ---- */

/* "gfx90a:xnack-" serves a device "gfx90a:sramecc+:xnack-": what it names must be so, what it does not may be either. */
static bool target_fits(const char *target, uint64_t len, const char *arch)
{
	const char *end = target + len;
	size_t processor = strcspn(arch, ":");
	const char *colon = memchr(target, ':', len);
	const char *feature;

	if ((size_t)((colon ? colon : end) - target) != processor ||
	    memcmp(target, arch, processor) != 0)
		return false;
	while (colon) {
		feature = colon + 1;
		colon = memchr(feature, ':', (size_t)(end - feature));
		size_t n = (size_t)((colon ? colon : end) - feature);
		const char *has = arch + processor;
		bool found = false;

		while (*has == ':') {
			size_t m = strcspn(++has, ":");

			found = found || (m == n && memcmp(has, feature, n) == 0);
			has += m;
		}
		if (!found)
			return false;
	}
	return true;
}

/* "hip-amdgcn-amd-amdhsa--gfx90a", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-" */
static bool entry_fits(const char *id, uint64_t len, const char *arch)
{
	static const char *const prefixes[] = { "hip-amdgcn-amd-amdhsa--",
						"hipv4-amdgcn-amd-amdhsa--",
						"hip-amdgcn-amd-amdhsa-",
						"hipv4-amdgcn-amd-amdhsa-" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		size_t n = strlen(prefixes[i]);

		if (len > n && memcmp(id, prefixes[i], n) == 0)
			return target_fits(id + n, len - n, arch);
	}
	return false;
}

/* ---- bundles ---- */

static bool number_at(struct bytes whole, uint64_t *off, uint64_t *ret_value)
{
	struct bytes where;

	if (!part(whole, *off, sizeof(*ret_value), &where))
		return false;
	memcpy(ret_value, where.at, sizeof(*ret_value)); /* little-endian, as hosts are */
	*off += sizeof(*ret_value);
	return true;
}

static int choose_entry(struct bytes whole, const char *arch, struct bytes *ret_object,
			struct gantry_err *err)
{
	uint64_t off = strlen(BUNDLE_MAGIC);
	uint64_t count = 0;
	bool found = false;

	if (!number_at(whole, &off, &count) || count > MAX_ENTRIES)
		return bad(err, "the bundle is cut short, or has too many entries");
	for (uint64_t i = 0; i < count; i++) {
		uint64_t at = 0, len = 0, id_len = 0;
		struct bytes id, object;

		if (!number_at(whole, &off, &at) || !number_at(whole, &off, &len) ||
		    !number_at(whole, &off, &id_len) || !part(whole, off, id_len, &id) ||
		    !part(whole, at, len, &object))
			return bad(err, "the bundle is cut short");
		off += id_len;
		if (found || !entry_fits((const char *)id.at, id.len, arch))
			continue;
		*ret_object = object;
		found = true;
	}
	if (!found)
		return gantry_err_set(err, -ENOEXEC, "the bundle has no code object for %s", arch);
	return 0;
}

/* ---- code objects ---- */

static int check_header(struct bytes object, Elf64_Ehdr *ret_header, struct gantry_err *err)
{
	struct bytes where;

	if (!part(object, 0, sizeof(*ret_header), &where) || memcmp(where.at, ELFMAG, SELFMAG) != 0)
		return bad(err, "neither a code object nor a bundle of them");
	memcpy(ret_header, where.at, sizeof(*ret_header));
	if (ret_header->e_ident[EI_CLASS] != ELFCLASS64 ||
	    ret_header->e_ident[EI_DATA] != ELFDATA2LSB || ret_header->e_machine != MACHINE ||
	    ret_header->e_ident[EI_OSABI] != OSABI)
		return bad(err, "an ELF file, but none for AMD GPUs");
	if (ret_header->e_type != ET_DYN)
		return bad(err, "a code object that was not linked");
	if (ret_header->e_phentsize != sizeof(Elf64_Phdr) ||
	    (ret_header->e_shnum != 0 && ret_header->e_shentsize != sizeof(Elf64_Shdr)))
		return bad(err, "the code object has headers of other sizes");
	if (!part(object, ret_header->e_phoff, (uint64_t)ret_header->e_phnum * sizeof(Elf64_Phdr),
		  &where) ||
	    !part(object, ret_header->e_shoff, (uint64_t)ret_header->e_shnum * sizeof(Elf64_Shdr),
		  &where))
		return bad(err, "the code object is cut short");
	return 0;
}

static int check_sections(struct bytes object, const Elf64_Ehdr *header, struct gantry_err *err)
{
	struct bytes where;
	Elf64_Shdr section;

	for (unsigned i = 0; i < header->e_shnum; i++) {
		memcpy(&section, object.at + header->e_shoff + i * sizeof(section),
		       sizeof(section));
		if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL &&
		    !part(object, section.sh_offset, section.sh_size, &where))
			return bad(err, "a section of the code object is cut short");
	}
	return 0;
}

/* The metadata among the notes of @notes. */
static bool find_note(struct bytes notes, struct bytes *ret_metadata)
{
	Elf64_Nhdr note;
	struct bytes name;
	uint64_t off = 0;

	while (gantry_range_inside(off, sizeof(note), notes.len)) {
		uint64_t name_off = off + sizeof(note), at;

		memcpy(&note, notes.at + off, sizeof(note));
		at = name_off + (((uint64_t)note.n_namesz + 3) & ~3ull);
		if (!part(notes, name_off, note.n_namesz, &name) ||
		    !gantry_range_inside(at, note.n_descsz, notes.len))
			return false;
		if (note.n_type == METADATA_NOTE && note.n_namesz == 7 &&
		    memcmp(name.at, "AMDGPU", 7) == 0)
			return part(notes, at, note.n_descsz, ret_metadata);
		off = at + (((uint64_t)note.n_descsz + 3) & ~3ull);
	}
	return false;
}

static int find_metadata(struct bytes object, const Elf64_Ehdr *header, struct bytes *ret_metadata,
			 struct gantry_err *err)
{
	bool found = false;

	for (unsigned i = 0; i < header->e_phnum; i++) {
		Elf64_Phdr segment;
		struct bytes where;

		memcpy(&segment, object.at + header->e_phoff + i * sizeof(segment),
		       sizeof(segment));
		if (!part(object, segment.p_offset, segment.p_filesz, &where))
			return bad(err, "a segment of the code object is cut short");
		if (segment.p_filesz > segment.p_memsz && segment.p_type == PT_LOAD)
			return bad(err, "a segment of the code object is larger than its memory");
		if (segment.p_type == PT_NOTE && !found)
			found = find_note(where, ret_metadata);
	}
	return found ? 0
		     : bad(err,
			   "the code object has no metadata (code object version 3 or newer is needed)");
}

/* ---- metadata ---- */

static bool take_name(struct gantry_pack *pack, struct gantry_hip_kernel *kernel)
{
	const char *text;
	uint32_t len = 0;

	if (!gantry_pack_text(pack, &text, &len) || len == 0 || len >= sizeof(kernel->name) ||
	    memchr(text, '\0', len))
		return false;
	memcpy(kernel->name, text, len);
	kernel->name[len] = '\0';
	return true;
}

/* True also for a parameter that the compiler adds, with *@ret_hidden. */
static bool take_param(struct gantry_pack *pack, struct gantry_hip_param *param, bool *ret_hidden)
{
	uint32_t nentries = 0, key_len = 0, kind_len = 0;
	uint64_t off = UINT64_MAX, size = UINT64_MAX;
	const char *key, *kind = "";

	if (!gantry_pack_map(pack, &nentries))
		return false;
	while (nentries-- > 0) {
		bool ok = gantry_pack_text(pack, &key, &key_len);

		if (ok && text_is(key, key_len, ".offset"))
			ok = gantry_pack_uint(pack, &off);
		else if (ok && text_is(key, key_len, ".size"))
			ok = gantry_pack_uint(pack, &size);
		else if (ok && text_is(key, key_len, ".value_kind"))
			ok = gantry_pack_text(pack, &kind, &kind_len);
		else
			ok = ok && gantry_pack_skip(pack);
		if (!ok)
			return false;
	}
	*ret_hidden = kind_len > 7 && memcmp(kind, "hidden_", 7) == 0;
	param->is_buffer = text_is(kind, kind_len, "global_buffer");
	param->off = (uint32_t)off;
	param->size = (uint32_t)size;
	return off < UINT32_MAX && size < UINT32_MAX &&
	       (*ret_hidden || param->is_buffer || text_is(kind, kind_len, "by_value"));
}

static bool take_params(struct gantry_pack *pack, struct gantry_hip_kernel *kernel)
{
	uint32_t count = 0;

	if (!gantry_pack_array(pack, &count))
		return false;
	while (count-- > 0) {
		struct gantry_hip_param param = { 0 };
		bool hidden = false;

		if (!take_param(pack, &param, &hidden))
			return false;
		if (hidden)
			continue;
		if (kernel->nparams == GANTRY_HIP_MAX_PARAMS)
			return false;
		kernel->params[kernel->nparams++] = param;
	}
	return true;
}

static bool take_kernel(struct gantry_pack *pack, struct gantry_hip_kernel *kernel)
{
	uint32_t nentries = 0, len = 0;
	uint64_t threads = 0;
	const char *key;

	if (!gantry_pack_map(pack, &nentries))
		return false;
	while (nentries-- > 0) {
		bool ok = gantry_pack_text(pack, &key, &len);

		if (ok && text_is(key, len, ".name"))
			ok = take_name(pack, kernel);
		else if (ok && text_is(key, len, ".args"))
			ok = kernel->nparams == 0 && take_params(pack, kernel);
		else if (ok && text_is(key, len, ".max_flat_workgroup_size"))
			ok = gantry_pack_uint(pack, &threads) && threads < UINT32_MAX;
		else
			ok = ok && gantry_pack_skip(pack);
		if (!ok)
			return false;
	}
	kernel->max_threads = (uint32_t)threads;
	return kernel->name[0] != '\0';
}

static bool take_kernels(struct gantry_pack *pack, struct gantry_hip_object *object)
{
	uint32_t count = 0;

	if (object->kernels || !gantry_pack_array(pack, &count) || count > GANTRY_HIP_MAX_KERNELS ||
	    count > (size_t)(pack->end - pack->at))
		return false;
	object->kernels = calloc(count ? count : 1, sizeof(*object->kernels));
	if (!object->kernels)
		return false;
	for (; object->nkernels < count; object->nkernels++)
		if (!take_kernel(pack, &object->kernels[object->nkernels]))
			return false;
	return true;
}

static int read_metadata(struct bytes metadata, const char *arch, struct gantry_hip_object *object,
			 struct gantry_err *err)
{
	static const char triple[] = "amdgcn-amd-amdhsa--";
	struct gantry_pack pack = { metadata.at, metadata.at + metadata.len };
	uint32_t nentries = 0, len = 0, target_len = 0;
	const char *key, *target = "";

	if (!gantry_pack_map(&pack, &nentries))
		return bad(err, "the code object's metadata are not well-formed");
	while (nentries-- > 0) {
		bool ok = gantry_pack_text(&pack, &key, &len);

		if (ok && text_is(key, len, "amdhsa.kernels"))
			ok = take_kernels(&pack, object);
		else if (ok && text_is(key, len, "amdhsa.target"))
			ok = gantry_pack_text(&pack, &target, &target_len);
		else
			ok = ok && gantry_pack_skip(&pack);
		if (!ok)
			return bad(err, "the code object's metadata are not well-formed");
	}
	if (target_len < sizeof(triple) || memcmp(target, triple, sizeof(triple) - 1) != 0 ||
	    !target_fits(target + sizeof(triple) - 1, target_len - (sizeof(triple) - 1), arch))
		return gantry_err_set(err, -ENOEXEC,
				      "the code object is for %.*s, the device is %s",
				      (int)(target_len < 60 ? target_len : 60), target, arch);
	return 0;
}

int gantry_hip_container_open(const void *bytes, size_t nbytes, const char *arch,
			      struct gantry_hip_object *ret_object, struct gantry_err *err)
{
	struct gantry_hip_object object = { 0 };
	struct bytes whole = { bytes, nbytes }, metadata = { 0 };
	Elf64_Ehdr header;
	int r = 0;

	if (nbytes >= 4 && memcmp(bytes, COMPRESSED, 4) == 0)
		return bad(err, "a compressed bundle: compile with --no-offload-compress");
	if (nbytes >= strlen(BUNDLE_MAGIC) &&
	    memcmp(bytes, BUNDLE_MAGIC, strlen(BUNDLE_MAGIC)) == 0)
		r = choose_entry(whole, arch, &whole, err);
	if (r == 0)
		r = check_header(whole, &header, err);
	if (r == 0)
		r = check_sections(whole, &header, err);
	if (r == 0)
		r = find_metadata(whole, &header, &metadata, err);
	if (r == 0)
		r = read_metadata(metadata, arch, &object, err);
	if (r < 0) {
		free(object.kernels);
		return r;
	}
	object.bytes = whole.at;
	object.nbytes = whole.len;
	*ret_object = object;
	return 0;
}

void gantry_hip_object_free(struct gantry_hip_object *object)
{
	free(object->kernels);
	*object = (struct gantry_hip_object){ 0 };
}

const struct gantry_hip_kernel *gantry_hip_object_find(const struct gantry_hip_object *object,
						       const char *name)
{
	for (uint32_t i = 0; i < object->nkernels; i++)
		if (strcmp(object->kernels[i].name, name) == 0)
			return &object->kernels[i];
	return NULL;
}
