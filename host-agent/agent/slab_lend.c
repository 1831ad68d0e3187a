/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs that other sessions of the tenant have mapped too: marked at the monitor, and never anybody else's again (loan.h has the loans). */
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/loan.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab_inside.h"
#include "host-agent/control/packet.h"
#include "host-agent/monitor/store.h"
#include "proto/vocab.h"

#define LENT_MAX	1024u /* of the host: the monitor has each twice */
#define LENT_PER_TENANT (LENT_MAX / 4)

static uint32_t lent_of(const struct gantry_agent *a, const struct gantry_tenant *tenant)
{
	uint32_t n = 0;

	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		if (!tenant || s->tenant == tenant)
			gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab)
				n += slab->lent;
	return n;
}

static bool may_lend(const struct gantry_session *s, uint32_t n)
{
	return n == 0 || (lent_of(s->agent, s->tenant) + n <= LENT_PER_TENANT &&
			  lent_of(s->agent, NULL) + n <= LENT_MAX);
}

/* What a next agent does not hear of it would have cleared for somebody else. */
static int mark_lent(struct gantry_slab *slab)
{
	if (slab->lent)
		return GANTRY_OK;
	if (gantry_keep_surely(slab->agent, slab->fd, GANTRY_KEPT_LENT,
			       (unsigned long long)slab->session->id, slab->device,
			       (unsigned long long)slab->off, (unsigned long long)slab->bytes) < 0)
		return GANTRY_E_AGAIN;
	slab->lent = true;
	return GANTRY_OK;
}

/* The slabs behind @what; @ret_nnew of them were never lent. */
static int find_behind(const struct gantry_session *s, const struct gantry_lent *what,
		       struct gantry_slab **ret_slabs, uint32_t max, uint32_t *ret_n,
		       uint32_t *ret_nnew)
{
	uint64_t at = what->off, end = what->off + what->bytes;
	uint32_t n = 0;

	*ret_nnew = 0;
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab) {
		if (slab->device != what->device || slab->off + slab->bytes <= at || at >= end)
			continue;
		if (slab->off > at || slab->state != GANTRY_SLAB_HELD)
			return GANTRY_E_NOT_FOUND;
		if (n == max)
			return GANTRY_E_LIMIT;
		*ret_nnew += !slab->lent;
		ret_slabs[n++] = slab;
		at = slab->off + slab->bytes;
	}
	*ret_n = n;
	return at < end ? GANTRY_E_NOT_FOUND : GANTRY_OK;
}

int gantry_slabs_lend(struct gantry_session *s, const struct gantry_lent *what,
		      struct gantry_slab_lent *ret_slabs, uint32_t max, uint32_t *ret_n,
		      struct gantry_lent *ret_whole)
{
	struct gantry_slab *slabs[GANTRY_PACKET_MAX_FDS];
	uint32_t n, nnew;
	int status = find_behind(s, what, slabs, GANTRY_MIN(max, GANTRY_PACKET_MAX_FDS), &n, &nnew);

	if (status == GANTRY_OK && !may_lend(s, nnew))
		status = GANTRY_E_LIMIT;
	for (uint32_t i = 0; status == GANTRY_OK && i < n; i++)
		status = mark_lent(slabs[i]);
	if (status != GANTRY_OK)
		return status;
	for (uint32_t i = 0; i < n; i++)
		ret_slabs[i] = (struct gantry_slab_lent){ slabs[i]->off, slabs[i]->bytes,
							  slabs[i]->fd };
	*ret_n = n;
	*ret_whole = *what;
	ret_whole->off = slabs[0]->off;
	ret_whole->bytes = slabs[n - 1]->off + slabs[n - 1]->bytes - slabs[0]->off;
	return GANTRY_OK;
}

/* The driver has it back when the last who has it mapped lets go, and clears it for nobody: the next slab is cleared when it is made. */
void gantry_slab_let_out(struct gantry_slab *slab)
{
	struct gantry_agent *a = slab->agent;
	const struct gantry_lent lent = { slab->session->id, slab->device, slab->off, slab->bytes };

	gantry_keep_drop(a, GANTRY_KEPT_LENT, (unsigned long long)lent.owner, lent.device,
			 (unsigned long long)lent.off, (unsigned long long)lent.bytes);
	gantry_slab_pool_of(slab)->is_short =
		gantry_slab_pool_of(slab)->is_short &&
		!gantry_list_is_empty(&gantry_slab_pool_of(slab)->wanted);
	gantry_slab_free(slab);
	gantry_loans_orphan(a, &lent);
	gantry_devices_room_again(a);
}

/* ---- after an agent that died ---- */

bool gantry_slab_was_lent(struct gantry_agent *a, const char *kept,
			  char name[GANTRY_MONITOR_NAME_MAX])
{
	unsigned long long id, off, bytes;
	unsigned int device;

	if (sscanf(kept, GANTRY_KEPT_SLAB, &id, &device, &off, &bytes) != 4)
		return false;
	(void)gantry_str_format(name, GANTRY_MONITOR_NAME_MAX, GANTRY_KEPT_LENT, id, device, off,
				bytes); /* it fits */
	for (size_t i = 0; i < a->handed.nentries; i++)
		if (strcmp(a->handed.entries[i].name, name) == 0)
			return true;
	return false;
}

void gantry_slab_take_markers(struct gantry_session *s)
{
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab) {
		char name[GANTRY_MONITOR_NAME_MAX];

		if (!slab->lent)
			continue;
		(void)gantry_str_format(name, sizeof(name), GANTRY_KEPT_LENT, /* it fits */
					(unsigned long long)s->id, slab->device,
					(unsigned long long)slab->off,
					(unsigned long long)slab->bytes);
		gantry_fd_close(gantry_store_take(&s->agent->handed, name));
	}
}

void gantry_slab_forget_lent(struct gantry_agent *a)
{
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		unsigned long long id, off, bytes;
		unsigned int device;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		if (sscanf(name, GANTRY_KEPT_LENT, &id, &device, &off, &bytes) != 4) {
			i++;
			continue;
		}
		gantry_fd_close(gantry_store_take(&a->handed, name));
		gantry_keep_drop(a, "%s", name);
	}
}
