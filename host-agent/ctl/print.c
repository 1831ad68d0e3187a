/* SPDX-License-Identifier: Apache-2.0 */
#include "print.h"

#include <libsmartcols.h>
#include <string.h>

#include "base/array.h"

const char *gantry_print_colour(const char *state)
{
	static const struct {
		const char *state;
		const char *colour;
	} colours[] = {
		{ "enabled", "green" },	  { "open", "green" },	      { "attached", "green" },
		{ "ok", "green" },	  { "busy", "green" },	      { "draining", "yellow" },
		{ "disabled", "yellow" }, { "recovering", "yellow" }, { "warn", "yellow" },
		{ "ending", "yellow" },	  { "failed", "red" },	      { "fail", "red" },
	};

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(colours); i++)
		if (strcmp(colours[i].state, state) == 0)
			return colours[i].colour;
	return NULL;
}

static struct libscols_table *table_new(struct gantry_ctl *ctl, FILE *out)
{
	struct libscols_table *table;

	scols_init_debug(0);
	table = scols_new_table();
	if (!table)
		return NULL;
	scols_table_set_stream(table, out);
	scols_table_enable_colors(table, ctl->colour);
	scols_table_enable_noheadings(table, !ctl->headings);
	return table;
}

/* Takes @text, which may be NULL when there was no memory for it. */
static int set_cell(struct gantry_ctl *ctl, struct libscols_line *line, size_t column,
		    const struct gantry_field *field, char *text)
{
	if (!text)
		return -ENOMEM;
	if (ctl->colour && strcmp(field->key, "state") == 0) {
		const char *colour = gantry_print_colour(text);

		if (colour)
			(void)scols_cell_set_color(scols_line_get_cell(line, column), colour);
	}
	return scols_line_refer_data(line, column, text);
}

static int fill_table(struct gantry_ctl *ctl, struct libscols_table *table,
		      const struct gantry_fields *fields, const void *const *objects, size_t n)
{
	for (size_t i = 0; i < fields->n; i++)
		if (fields->list[i].heading &&
		    !scols_table_new_column(
			    table, fields->list[i].heading, 0,
			    gantry_field_is_number(&fields->list[i]) ? SCOLS_FL_RIGHT : 0))
			return -ENOMEM;
	for (size_t row = 0; row < n; row++) {
		struct libscols_line *line = scols_table_new_line(table, NULL);
		size_t column = 0;

		if (!line)
			return -ENOMEM;
		for (size_t i = 0; i < fields->n; i++) {
			const struct gantry_field *field = &fields->list[i];

			if (field->heading &&
			    set_cell(ctl, line, column++, field,
				     gantry_field_text(field, objects[row], ctl->raw_bytes)))
				return -ENOMEM;
		}
	}
	return 0;
}

int gantry_print_table(struct gantry_ctl *ctl, FILE *out, const struct gantry_fields *fields,
		       const void *const *objects, size_t n)
{
	struct libscols_table *table = table_new(ctl, out);
	int r = table ? fill_table(ctl, table, fields, objects, n) : -ENOMEM;

	if (r == 0)
		r = scols_print_table(table);
	scols_unref_table(table);
	return r ? gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "no memory for the table") : 0;
}

json_object *gantry_print_json_array(const struct gantry_fields *fields, const void *const *objects,
				     size_t n)
{
	json_object *array = json_object_new_array();

	for (size_t i = 0; i < n; i++)
		json_object_array_add(array, gantry_fields_json(fields, objects[i]));
	return array;
}

int gantry_print_list(struct gantry_ctl *ctl, const struct gantry_fields *fields,
		      const void *const *objects, size_t n)
{
	json_object *object;

	if (!ctl->json)
		return gantry_print_table(ctl, ctl->out, fields, objects, n);
	object = gantry_ctl_json_new();
	json_object_object_add(object, fields->many, gantry_print_json_array(fields, objects, n));
	return gantry_ctl_json_print(ctl, object);
}

int gantry_print_one(struct gantry_ctl *ctl, const struct gantry_fields *fields, const void *object)
{
	int width = 0;

	if (ctl->json) {
		json_object *outer = gantry_ctl_json_new();

		json_object_object_add(outer, fields->one, gantry_fields_json(fields, object));
		return gantry_ctl_json_print(ctl, outer);
	}
	for (size_t i = 0; i < fields->n; i++) {
		int len = (int)strlen(fields->list[i].key);

		width = len > width ? len : width;
	}
	for (size_t i = 0; i < fields->n; i++) {
		_cleanup_free_ char *text = gantry_field_text(&fields->list[i], object,
							      ctl->raw_bytes);

		fprintf(ctl->out, "%-*s  %s\n", width, fields->list[i].key, text ? text : "");
	}
	return 0;
}
