/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/spirv.h"

#include <stdio.h>
#include <string.h>

#define HEADER_WORDS 5u
#define MOST_IDS     4194303u /* of a module, by the standard */
#define NEWEST_MINOR 6u

enum op {
	OP_EXT_INST = 12,
	OP_CAPABILITY = 17,
	OP_TYPE_INT = 21,
	OP_TYPE_FLOAT = 22,
	OP_SPEC_CONSTANT_TRUE = 48,
	OP_SPEC_CONSTANT_FALSE = 49,
	OP_SPEC_CONSTANT = 50,
	OP_DECORATE = 71,
};
#define CAPABILITY_KERNEL  6u
#define DECORATION_SPEC_ID 1u
#define OPENCL_STD_PRINTF  184u

/* ---- lines ---- */

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool starts_with(const char *at, const char *end, const char *word)
{
	size_t n = strlen(word);

	return (size_t)(end - at) >= n && memcmp(at, word, n) == 0;
}

static const char *after_line(const char *at, const char *end)
{
	const char *newline = memchr(at, '\n', (size_t)(end - at));

	return newline ? newline + 1 : NULL;
}

bool gantry_spirv_next(const char **at, const char *end, struct gantry_spirv_constant *ret_constant)
{
	struct gantry_spirv_constant found = { 0 };
	const char *c = *at;
	uint64_t id = 0;

	if (!starts_with(c, end, GANTRY_SPIRV_CONSTANT))
		return false;
	c += strlen(GANTRY_SPIRV_CONSTANT);
	for (; c < end && *c >= '0' && *c <= '9' && id <= UINT32_MAX; c++)
		id = id * 10 + (uint64_t)(*c - '0');
	if (c == end || *c++ != ' ' || id > UINT32_MAX)
		return false;
	for (; end - c >= 2 && digit(c[0]) >= 0 && digit(c[1]) >= 0; c += 2) {
		if (found.bytes == sizeof(found.value))
			return false;
		found.value[found.bytes++] = (uint8_t)(digit(c[0]) * 16 + digit(c[1]));
	}
	if (c == end || *c != '\n' || !found.bytes || (found.bytes & (found.bytes - 1)))
		return false;
	found.id = (uint32_t)id;
	*at = c + 1;
	*ret_constant = found;
	return true;
}

void gantry_spirv_line(const struct gantry_spirv_constant *constant, char line[GANTRY_SPIRV_LINE])
{
	int n = snprintf(line, GANTRY_SPIRV_LINE, GANTRY_SPIRV_CONSTANT "%u ", constant->id);

	for (uint32_t i = 0; i < constant->bytes && i < sizeof(constant->value); i++)
		n += snprintf(line + n, GANTRY_SPIRV_LINE - (size_t)n, "%02x", constant->value[i]);
	(void)snprintf(line + n, GANTRY_SPIRV_LINE - (size_t)n, "\n");
}

bool gantry_spirv_find(const void *bytes, size_t nbytes, size_t *ret_off)
{
	const char *begin = bytes, *end = begin + nbytes, *at = begin;
	const uint32_t magic = GANTRY_SPIRV_MAGIC;
	struct gantry_spirv_constant constant;
	uint32_t n = 0;

	if (starts_with(at, end, GANTRY_SPIRV_OPTIONS))
		at = after_line(at, end);
	while (at && n <= GANTRY_SPIRV_MAX_CONSTANTS && gantry_spirv_next(&at, end, &constant))
		n++;
	if (!at || n > GANTRY_SPIRV_MAX_CONSTANTS || (size_t)(end - at) < sizeof(magic) ||
	    memcmp(at, &magic, sizeof(magic)) != 0)
		return false;
	*ret_off = (size_t)(at - begin);
	return true;
}

/* ---- modules ---- */

/* The bytes may lie anywhere, and words of a module are not aligned then. */
static uint32_t word(const void *module, size_t i)
{
	uint32_t value;

	memcpy(&value, (const char *)module + i * sizeof(value), sizeof(value));
	return value;
}

/* Of the instruction at word @i. */
static uint32_t op_of(const void *module, size_t i)
{
	return word(module, i) & 0xffff;
}

static uint32_t words_of(const void *module, size_t i)
{
	return word(module, i) >> 16;
}

static const char *check_header(const void *module, size_t nbytes)
{
	uint32_t version;

	if (nbytes < HEADER_WORDS * sizeof(uint32_t) || nbytes % sizeof(uint32_t))
		return "a SPIR-V module that is cut short";
	if (word(module, 0) != GANTRY_SPIRV_MAGIC)
		return "no SPIR-V module";
	version = word(module, 1);
	if ((version & 0xff0000ffu) || version >> 16 != 1 || (version >> 8 & 0xff) > NEWEST_MINOR)
		return "SPIR-V of an unknown version";
	if (word(module, 3) == 0 || word(module, 3) > MOST_IDS)
		return "a SPIR-V module with more names than there can be";
	return word(module, 4) ? "a SPIR-V module of an unknown schema" : NULL;
}

const char *gantry_spirv_check(const void *module, size_t nbytes)
{
	const char *wrong = check_header(module, nbytes);
	size_t n = nbytes / sizeof(uint32_t);
	bool is_kernels = false;

	if (wrong)
		return wrong;
	for (size_t i = HEADER_WORDS; i < n; i += words_of(module, i)) {
		uint32_t words = words_of(module, i);

		if (words == 0 || words > n - i)
			return "a SPIR-V module whose instructions do not fit into it";
		if (op_of(module, i) == OP_CAPABILITY && words == 2)
			is_kernels = is_kernels || word(module, i + 1) == CAPABILITY_KERNEL;
	}
	return is_kernels ? NULL : "a SPIR-V module that is none of OpenCL's";
}

/* The id that is decorated with specialization constant @id; 0: none. */
static uint32_t decorated(const void *module, size_t n, uint32_t id)
{
	for (size_t i = HEADER_WORDS; i < n; i += words_of(module, i))
		if (op_of(module, i) == OP_DECORATE && words_of(module, i) == 4 &&
		    word(module, i + 2) == DECORATION_SPEC_ID && word(module, i + 3) == id)
			return word(module, i + 1);
	return 0;
}

/* Of a scalar type. */
static uint32_t type_bytes(const void *module, size_t n, uint32_t type)
{
	for (size_t i = HEADER_WORDS; i < n; i += words_of(module, i)) {
		uint32_t op = op_of(module, i);
		uint32_t bits;

		if ((op != OP_TYPE_INT && op != OP_TYPE_FLOAT) || words_of(module, i) < 3 ||
		    word(module, i + 1) != type)
			continue;
		bits = word(module, i + 2);
		return bits == 8 || bits == 16 || bits == 32 || bits == 64 ? bits / 8 : 0;
	}
	return 0;
}

uint32_t gantry_spirv_constant_bytes(const void *module, size_t nbytes, uint32_t id)
{
	size_t n = nbytes / sizeof(uint32_t);
	uint32_t name = decorated(module, n, id);

	for (size_t i = HEADER_WORDS; name && i < n; i += words_of(module, i)) {
		uint32_t op = op_of(module, i);

		if (words_of(module, i) < 3 || word(module, i + 2) != name)
			continue;
		if (op == OP_SPEC_CONSTANT_TRUE || op == OP_SPEC_CONSTANT_FALSE)
			return 1;
		if (op == OP_SPEC_CONSTANT)
			return type_bytes(module, n, word(module, i + 1));
	}
	return 0;
}

bool gantry_spirv_prints(const void *module, size_t nbytes)
{
	size_t n = nbytes / sizeof(uint32_t);

	for (size_t i = HEADER_WORDS; i < n; i += words_of(module, i))
		if (op_of(module, i) == OP_EXT_INST && words_of(module, i) >= 5 &&
		    word(module, i + 4) == OPENCL_STD_PRINTF)
			return true;
	return false;
}
