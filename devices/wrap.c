/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/wrap.h"

#include <stdlib.h>
#include <string.h>

void gantry_objects_init(struct gantry_objects *objects)
{
	gantry_list_init(&objects->list);
	objects->last_id = 0;
}

void gantry_objects_fini(struct gantry_objects *objects)
{
	gantry_list_for_each_safe(&objects->list, struct gantry_object, link, object) {
		gantry_list_remove(&object->link);
		free(object);
	}
}

struct gantry_object *gantry_object_new(struct gantry_objects *objects, struct gantry_dev *dev,
					uint32_t type, void *next)
{
	struct gantry_object *object = calloc(1, sizeof(*object));

	if (!object)
		return NULL;
	object->type = type;
	object->id = ++objects->last_id;
	object->dev = dev;
	object->next = next;
	gantry_list_push_back(&objects->list, &object->link);
	return object;
}

static void unwrap_range(struct gantry_range *range)
{
	if (range->mem)
		range->mem = gantry_object_of(range->mem)->next;
}

static void unwrap_launch(struct gantry_cmd_launch *launch)
{
	const struct gantry_object *kernel = gantry_object_of(launch->kernel);

	launch->kernel = kernel->next;
	for (uint32_t i = 0; i < launch->nargs; i++)
		if (kernel->sig->args[i].mode)
			unwrap_range(&launch->args[i].range);
}

void gantry_object_unwrap_cmd(const struct gantry_cmd *cmd, struct gantry_cmd *ret_cmd)
{
	memcpy(ret_cmd, cmd, sizeof(*cmd));
	switch (ret_cmd->kind) {
	case GANTRY_CMD_LAUNCH:
		unwrap_launch(&ret_cmd->launch);
		break;
	case GANTRY_CMD_COPY:
		unwrap_range(&ret_cmd->copy.dst);
		unwrap_range(&ret_cmd->copy.src);
		break;
	case GANTRY_CMD_FILL:
		unwrap_range(&ret_cmd->fill.dst);
		break;
	}
}

void gantry_object_unwrap_question(const struct gantry_question *question,
				   struct gantry_question *ret_question)
{
	*ret_question = *question;
	if (ret_question->kernel)
		ret_question->kernel = gantry_object_of(ret_question->kernel)->next;
	unwrap_range(&ret_question->range);
}
