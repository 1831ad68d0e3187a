/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/vm/emulated.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdint.h>

#define MENDED_IN_MAJOR 9
#define COLLECTED_BYTES (64u * 4096u) /* pages whose bits are one word */

/* The member at the end of @path (NULL-terminated) of what @text returns. */
static json_object *find(json_object *answer, const char *const *path)
{
	json_object *value = answer;

	for (; value && *path; path++)
		if (!json_object_object_get_ex(value, *path, &value))
			value = NULL;
	return value;
}

static bool read_number(const char *text, const char *const *path, json_type type,
			uint64_t *ret_number)
{
	json_object *answer = text ? json_tokener_parse(text) : NULL;
	json_object *value = find(answer, path);
	bool found = json_object_is_type(value, type);

	if (found)
		*ret_number = json_object_get_uint64(value);
	json_object_put(answer);
	return found;
}

bool gantry_vm_loses_writes(const struct gantry_vm_emulation *answers,
			    struct gantry_err *ret_caution)
{
	static const char *const enabled[] = { "return", "enabled", NULL };
	static const char *const major[] = { "return", "qemu", "major", NULL };
	static const char *const minor[] = { "return", "qemu", "minor", NULL };
	static const char *const base[] = { "return", "base-memory", NULL };
	uint64_t kvm, version[2], bytes;

	if (!read_number(answers->kvm, enabled, json_type_boolean, &kvm) || kvm ||
	    !read_number(answers->version, major, json_type_int, &version[0]) ||
	    !read_number(answers->version, minor, json_type_int, &version[1]) ||
	    version[0] >= MENDED_IN_MAJOR ||
	    !read_number(answers->memory, base, json_type_int, &bytes) || bytes % COLLECTED_BYTES)
		return false;
	(void)gantry_err_set(
		ret_caution, -ENOTRECOVERABLE,
		"QEMU %llu.%llu runs it without KVM, and may lose what it writes while it goes, "
		"as before 9.0 it does; see vm.md",
		(unsigned long long)version[0], (unsigned long long)version[1]);
	return true;
}
