/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/missing.h"

#include <stdlib.h>
#include <string.h>

#include "host-agent/agent/agent.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"

static struct gantry_missing *find(const struct gantry_session *s, const char *name)
{
	for (uint32_t i = 0; i < s->nmissing; i++)
		if (strcmp(s->missing[i].name, name) == 0)
			return &s->missing[i];
	return NULL;
}

static struct gantry_missing *add(struct gantry_session *s, const char *name)
{
	struct gantry_missing *entry;

	if (!s->missing)
		s->missing = calloc(GANTRY_MISSING_MAX, sizeof(*s->missing));
	if (!s->missing || s->nmissing == GANTRY_MISSING_MAX)
		return NULL;
	entry = &s->missing[s->nmissing++];
	memcpy(entry->name, name, sizeof(entry->name));
	gantry_event(s->agent, "call-missing", s->tenant, s, NULL,
		     "%s is not there; gantryctl session show --unsupported %llu has all of them",
		     name, (unsigned long long)s->id);
	return entry;
}

static int note(struct gantry_session *s, const struct gantry_door_missing *msg)
{
	struct gantry_missing *entry = find(s, msg->name);

	if (!entry)
		entry = add(s, msg->name);
	if (!entry) {
		s->tenant->calls_missing++;
		return GANTRY_E_LIMIT;
	}
	/* It grows, as the guest has it; what a guest says of itself need not be believed further. */
	if (msg->calls > entry->calls) {
		s->tenant->calls_missing += msg->calls - entry->calls;
		entry->calls = msg->calls;
	}
	return GANTRY_OK;
}

void gantry_missing_note(struct gantry_conn *c, const struct gantry_door_missing *msg)
{
	struct gantry_door_noted answer = { .status = note(c->session, msg) };

	gantry_door_header_init(&answer.h, GANTRY_DOOR_NOTED, msg->h.tag);
	(void)gantry_conn_send(c, &answer, sizeof(answer)); /* who does not read is gone by now */
}

void gantry_missing_free(struct gantry_session *s)
{
	free(s->missing);
	s->missing = NULL;
	s->nmissing = 0;
}
