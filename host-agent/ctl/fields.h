/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent's objects consist of, as data: JSON keys, table headings and types follow from one list.
 *
 * Keys are promised to scripts: never renamed, never of another type; new ones may be added.
 * Threads: any. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_CTL_FIELDS_H
#define GANTRY_HOST_AGENT_CTL_FIELDS_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gantry_field_type {
	GANTRY_FIELD_TEXT, /* char * */
	GANTRY_FIELD_LIST, /* size_t count, then char ** */
	GANTRY_FIELD_BOOL, /* protobuf_c_boolean */
	GANTRY_FIELD_U32,
	GANTRY_FIELD_I32,
	GANTRY_FIELD_U64,
	GANTRY_FIELD_DOUBLE,
	GANTRY_FIELD_BYTES, /* uint64_t, a size */
	GANTRY_FIELD_NS,    /* uint64_t, a duration */
	GANTRY_FIELD_TIME,  /* uint64_t, nanoseconds since 1970 */
	GANTRY_FIELD_STATE, /* Gantry__Admin__DeviceState */
	/* Gantry__Admin__UInt * or SInt *, which may be NULL */
	GANTRY_FIELD_OPT_U64,
	GANTRY_FIELD_OPT_I64,
	GANTRY_FIELD_OPT_BYTES,
	GANTRY_FIELD_OPT_NS,
};

struct gantry_field {
	const char *key;
	const char *heading; /* NULL: not in lists, only in show and JSON */
	enum gantry_field_type type;
	uint16_t off; /* in the message */
	uint16_t via; /* off is in the message that this pointer names; 0: in the object itself */
};

struct gantry_fields {
	const char *one;  /* "device" */
	const char *many; /* "devices" */
	size_t n;
	const struct gantry_field *list;
};

extern const struct gantry_fields gantry_device_fields;
extern const struct gantry_fields gantry_tenant_fields;
extern const struct gantry_fields gantry_session_fields;
extern const struct gantry_fields gantry_missing_fields;
extern const struct gantry_fields gantry_queue_fields;
extern const struct gantry_fields gantry_migration_fields;
extern const struct gantry_fields gantry_worker_fields;
extern const struct gantry_fields gantry_policy_fields;
extern const struct gantry_fields gantry_group_fields;
extern const struct gantry_fields gantry_migration_fields;
extern const struct gantry_fields gantry_image_fields, gantry_image_kernel_fields,
	gantry_image_file_fields, gantry_kernel_fields;
extern const struct gantry_fields gantry_event_fields;
extern const struct gantry_fields gantry_check_fields;
extern const struct gantry_fields gantry_metric_fields;
extern const struct gantry_fields gantry_version_fields;
extern const struct gantry_fields gantry_peer_device_fields;

/* @object's fields as JSON. The caller puts the result. */
json_object *gantry_fields_json(const struct gantry_fields *fields, const void *object);

/*
 * One field as a table shows it; @raw: sizes and durations as plain numbers. The caller frees it. Control characters
 * are replaced: a guest chose some of these texts.
 */
char *gantry_field_text(const struct gantry_field *field, const void *object, bool raw);

/* Numbers stand at the right of their column. */
bool gantry_field_is_number(const struct gantry_field *field);

/* "enabled", ...; "unknown" for others. */
const char *gantry_device_state_name(int state);

/* "2024-05-01T12:00:00.123456789Z". @buf holds 40 bytes. */
void gantry_time_format(uint64_t unix_ns, char buf[40]);

#endif
