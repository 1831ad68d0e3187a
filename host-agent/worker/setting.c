/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest has set of a kernel of its own image (GANTRY_ASK_SET): attributes of the function, which are the context's. They are written down
 * in the ledger, with each handle that the kernel has, and set again before the kernel is next used where it was found anew: in the worker after
 * this one, and on the device to which all of a session's work has gone.
 *
 * They are of the number that the guest has for a device, as what is kept of libraries is: so they go along when devices change places.
 * Trust: in a ledger they are what a worker left that may have been broken into; the driver is asked for them as for a guest's own.
 */
#include "base/atomic.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/memory.h"

static uint32_t bit_of(const struct wdevice *d, const struct wsession *s)
{
	uint32_t number = worker_number_of(s, d->index);

	return number < GANTRY_LEDGER_NUMBERS ? 1u << number : 0;
}

static void write_down_locked(struct wsession *s, const struct wkernel *k)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (obj->state != GANTRY_OBJECT_FREE && obj->type == GANTRY_HANDLE_KERNEL &&
		    GANTRY_LEDGER_IS_OWN(&obj->kernel) && s->objects[i].kernel[0] == k)
			obj->kernel.own.set = k->set;
	}
	/* Of an older version's no longer: it has something that those builds do not read. */
	gantry_store_relaxed(&s->ledger.hdr->version, GANTRY_LEDGER_VERSION);
}

void worker_setting_note(struct wdevice *d, struct wkernel *k, uint64_t number, uint64_t value)
{
	struct wsession *s = k->image->session;
	uint64_t i = number - GANTRY_LEDGER_SET_FIRST;
	uint32_t turn;

	if (i >= GANTRY_LEDGER_NSET)
		return;
	pthread_mutex_lock(&s->lock);
	turn = gantry_load_relaxed(&k->set_turn);
	k->set.value[i] = (int32_t)value;
	k->set.which |= 1u << i;
	k->set.devices |= bit_of(d, s);
	write_down_locked(s, k);
	/* This device has it, and had all before. */
	k->set_seen[d->index] = turn + 1;
	gantry_store_release(&k->set_turn, turn + 1);
	pthread_mutex_unlock(&s->lock);
}

void worker_settings_moved_locked(struct wsession *s)
{
	gantry_list_for_each(&s->images, struct wimage, link, image)
		gantry_list_for_each(&image->kernels, struct wkernel, link, k)
			if (k->set.which)
				gantry_store_release(&k->set_turn,
						     gantry_load_relaxed(&k->set_turn) + 1);
}

static int set_again(struct wdevice *d, struct wkernel *k, const struct gantry_ledger_settings *set,
		     struct gantry_err *err)
{
	struct gantry_question question = { .what = GANTRY_QUESTION_SET,
					    .kernel = k->on[d->index] };
	uint8_t answer[GANTRY_ANSWER_BYTES];

	for (uint32_t i = 0; i < GANTRY_LEDGER_NSET; i++) {
		int r;

		if (!(set->which >> i & 1))
			continue;
		question.number[0] = GANTRY_LEDGER_SET_FIRST + i;
		question.number[1] = (uint64_t)(int64_t)set->value[i];
		r = d->device.backend->ask(d->device.dev, &question, answer, err);
		if (r < 0)
			return worker_device_status(r);
	}
	return GANTRY_OK;
}

/*
 * Of a kernel that is new on @d, or that was there before its work went to another device and came back. A program that has set it on several
 * devices may have given each a value of its own, and goes from none to another: there only what is new is set.
 */
static bool is_to_be_set(const struct wdevice *d, const struct wsession *s,
			 const struct gantry_ledger_settings *set, bool is_new)
{
	return (set->devices & bit_of(d, s)) && d->device.backend->ask &&
	       (is_new || __builtin_popcount(set->devices) == 1);
}

int worker_settings_apply(struct wdevice *d, struct wkernel *k, struct gantry_err *err)
{
	struct wsession *s = k->image->session;
	uint32_t *seen = &k->set_seen[d->index];
	struct gantry_ledger_settings set;
	uint32_t turn;
	int status = GANTRY_OK;

	/* Acquire: what was set by then is seen under the lock. A launch pays one look. */
	if (*seen == gantry_load_acquire(&k->set_turn))
		return GANTRY_OK;
	pthread_mutex_lock(&s->lock);
	turn = gantry_load_relaxed(&k->set_turn);
	set = k->set;
	pthread_mutex_unlock(&s->lock);
	if (is_to_be_set(d, s, &set, *seen == 0))
		status = set_again(d, k, &set, err);
	if (status == GANTRY_OK)
		*seen = turn;
	return status;
}
