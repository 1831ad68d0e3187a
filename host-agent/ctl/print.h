/* SPDX-License-Identifier: Apache-2.0 */
/* Objects as tables, as lists of values, or as JSON, as the command line asks. */
#ifndef GANTRY_HOST_AGENT_CTL_PRINT_H
#define GANTRY_HOST_AGENT_CTL_PRINT_H

#include "host-agent/ctl/context.h"
#include "host-agent/ctl/fields.h"

/* @objects: pointers to @n messages; type void *const * because each message type has its own pointer type. */
int gantry_print_list(struct gantry_ctl *ctl, const struct gantry_fields *fields,
		      const void *const *objects, size_t n);

/* All fields of one object, one a line. */
int gantry_print_one(struct gantry_ctl *ctl, const struct gantry_fields *fields,
		     const void *object);

/* The array alone, to be put into a larger JSON object. */
json_object *gantry_print_json_array(const struct gantry_fields *fields, const void *const *objects,
				     size_t n);

/* The table alone, to @out. */
int gantry_print_table(struct gantry_ctl *ctl, FILE *out, const struct gantry_fields *fields,
		       const void *const *objects, size_t n);

/* The colour of a state, as libsmartcols names it; NULL: none. */
const char *gantry_print_colour(const char *state);

#endif
