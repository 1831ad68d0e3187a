/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/cuda/calls/recipe.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 4096u

static void refuse(struct gantry_calls_run *run)
{
	run->in.failed = true;
}

/* ---- noting ---- */

static void note(struct gantry_calls_notes *notes, uint32_t *ids, uint32_t *n, uint64_t id)
{
	if (*n == GANTRY_RECIPE_IDS)
		notes->failed = true;
	else
		ids[(*n)++] = (uint32_t)id;
}

void gantry_calls_note_taken(struct gantry_calls_run *run, uint64_t id)
{
	if (run->notes)
		note(run->notes, run->notes->others, &run->notes->nothers, id);
}

void gantry_calls_note_filled(struct gantry_calls_run *run, uint64_t id)
{
	if (run->notes)
		note(run->notes, run->notes->subjects, &run->notes->nsubjects, id);
}

/* ---- taking ---- */

void *gantry_calls_symbol(struct gantry_calls_run *run, const char *name)
{
	return run->site->symbol(run->site->cookie, run->library, name);
}

void gantry_calls_take(struct gantry_calls_run *run, void *dst, size_t len)
{
	gantry_unpack_into(&run->in, dst, len);
}

uint64_t gantry_calls_take_handle(struct gantry_calls_run *run, uint32_t kind, bool drop)
{
	uint64_t id = gantry_unpack_u64(&run->in);
	struct gantry_calls_object *object;

	run->parts = 1;
	if (id == 0)
		return 0;
	object = gantry_calls_table_find(&run->site->table, kind, id);
	if (!object) {
		refuse(run);
		return 0;
	}
	if (drop)
		run->dropping = id;
	run->parts += object->more_parts;
	gantry_calls_note_taken(run, id);
	return object->native;
}

uint64_t gantry_calls_peek(struct gantry_calls_run *run)
{
	struct gantry_unpack ahead = run->in;

	return gantry_unpack_u64(&ahead);
}

uint64_t gantry_calls_take_handle_or(struct gantry_calls_run *run, uint32_t kind, uint32_t other)
{
	bool is_other = gantry_calls_table_find(&run->site->table, other, gantry_calls_peek(run)) !=
			NULL;

	return gantry_calls_take_handle(run, is_other ? other : kind, false);
}

bool gantry_calls_is_bound(struct gantry_calls_run *run, uint32_t kind, uint64_t id)
{
	const struct gantry_calls_object *object = gantry_calls_table_find(&run->site->table, kind,
									   id);

	return !object || (object->bound && object->stream == run->stream);
}

void gantry_calls_note_bound(struct gantry_calls_run *run, uint32_t kind, uint64_t id)
{
	struct gantry_calls_object *object = gantry_calls_table_find(&run->site->table, kind, id);

	object->bound = true;
	object->stream = run->stream;
}

static void *check_device(struct gantry_calls_run *run, uint64_t address)
{
	if (run->in.failed || address == 0)
		return NULL;
	if (!run->site->reaches(run->site->cookie, run->stream, address)) {
		refuse(run);
		return NULL;
	}
	return (void *)(uintptr_t)address;
}

void gantry_calls_refuse(struct gantry_calls_run *run)
{
	refuse(run);
}

void *gantry_calls_reaches(struct gantry_calls_run *run, void *address)
{
	return run->site->reaches(run->site->cookie, run->stream, (uintptr_t)address) ? address
										      : NULL;
}

void *gantry_calls_take_device(struct gantry_calls_run *run)
{
	return check_device(run, gantry_unpack_u64(&run->in));
}

/* Memory of zeros that ends with the run; the reply gets it where @to_guest. */
static void *hold(struct gantry_calls_run *run, uint64_t bytes, bool to_guest)
{
	void *at = NULL;

	/* Of no bytes too there is an address: NULL means something else to a library. */
	if (!run->in.failed && run->nouts < GANTRY_CALLS_MAX_OUTS)
		at = calloc(1, bytes ? bytes : 1);
	if (!at) {
		refuse(run);
		return NULL;
	}
	run->outs[run->nouts].memory = at;
	run->outs[run->nouts].bytes = bytes;
	run->outs[run->nouts++].to_guest = to_guest;
	return at;
}

/* Of what a request may have beside itself. */
static void *memory(struct gantry_calls_run *run, uint64_t bytes, bool to_guest)
{
	if (run->in.failed || bytes > GANTRY_CALLS_MAX_BYTES - run->taken_bytes ||
	    (to_guest && bytes > run->out.max - run->reply_bytes)) {
		refuse(run);
		return NULL;
	}
	run->taken_bytes += bytes;
	if (to_guest)
		run->reply_bytes += bytes;
	return hold(run, bytes, to_guest);
}

/*
 * @at, of a request whose items lie at multiples of 8, where a library may have it: a double complex wants multiples of 16, and
 * libraries are compiled to die where one lies elsewhere. What is kept stays where it is kept.
 */
static const void *aligned(struct gantry_calls_run *run, const void *at, uint64_t bytes)
{
	uint8_t *copy;

	if (!at || bytes < GANTRY_CALLS_ALIGNMENT || run->keeps ||
	    (uintptr_t)at % GANTRY_CALLS_ALIGNMENT == 0)
		return at;
	if (bytes <= sizeof(run->beside) - run->beside_bytes) {
		copy = run->beside + run->beside_bytes;
		run->beside_bytes += (uint32_t)(bytes + GANTRY_CALLS_ALIGNMENT - 1) &
				     ~(GANTRY_CALLS_ALIGNMENT - 1);
	} else {
		copy = hold(run, bytes, false);
	}
	return copy ? memcpy(copy, at, bytes) : NULL;
}

/* Whether the length that comes next is @bytes, which *ret_null does without. */
static bool take_length(struct gantry_calls_run *run, uint64_t bytes, bool *ret_null)
{
	uint64_t len = gantry_unpack_u64(&run->in);

	*ret_null = len == GANTRY_CALLS_NULL;
	if (!run->in.failed && !*ret_null && (len != bytes || bytes > GANTRY_CALLS_MAX_BYTES))
		refuse(run);
	return !run->in.failed && !*ret_null;
}

static const void *take_bytes(struct gantry_calls_run *run, uint64_t bytes)
{
	bool null;

	return take_length(run, bytes, &null) ? gantry_unpack_bytes(&run->in, bytes) : NULL;
}

void *gantry_calls_take_in(struct gantry_calls_run *run, uint64_t bytes)
{
	/* The copy is the run's own: a library that writes to it harms nobody. */
	return (void *)(uintptr_t)aligned(run, take_bytes(run, bytes), bytes);
}

void *gantry_calls_take_out(struct gantry_calls_run *run, uint64_t bytes)
{
	bool null;

	if (take_length(run, bytes, &null))
		return memory(run, bytes, true);
	return null ? memory(run, bytes, false) : NULL;
}

void *gantry_calls_take_out_of(struct gantry_calls_run *run, uint64_t bytes, uint64_t most)
{
	bool null, wanted = take_length(run, bytes, &null);

	if (wanted)
		return gantry_calls_hold_out(run, bytes, most);
	return null ? memory(run, bytes > most ? bytes : most, false) : NULL;
}

void *gantry_calls_hold_out(struct gantry_calls_run *run, uint64_t bytes, uint64_t most)
{
	void *at = memory(run, bytes > most ? bytes : most, false);

	if (!at)
		return NULL;
	if (bytes > run->out.max - run->reply_bytes) {
		refuse(run);
		return NULL;
	}
	run->reply_bytes += bytes;
	run->outs[run->nouts - 1].bytes = bytes;
	run->outs[run->nouts - 1].to_guest = true;
	return at;
}

void *gantry_calls_take_out_or_null(struct gantry_calls_run *run, uint64_t bytes)
{
	bool null;

	return take_length(run, bytes, &null) ? memory(run, bytes, true) : NULL;
}

void *gantry_calls_take_inout(struct gantry_calls_run *run, uint64_t bytes)
{
	const void *from = take_bytes(run, bytes);
	void *at = from ? memory(run, bytes, true) : NULL;

	if (at)
		memcpy(at, from, bytes);
	return at;
}

void *gantry_calls_take_either(struct gantry_calls_run *run, uint64_t bytes, bool in, bool out)
{
	uint32_t place = run->neither++;
	void *at;

	switch (gantry_unpack_u64(&run->in)) {
	case GANTRY_CALLS_NOWHERE:
		return NULL;
	case GANTRY_CALLS_DEVICE:
		at = gantry_calls_take_device(run);
		gantry_calls_need(run, at);
		if (place < 32)
			run->on_device |= 1u << place;
		return at;
	case GANTRY_CALLS_HOST:
		if (in && out)
			at = gantry_calls_take_inout(run, bytes);
		else
			at = in ? gantry_calls_take_in(run, bytes)
				: gantry_calls_take_out(run, bytes);
		gantry_calls_need(run, at);
		if (place < 32)
			run->on_host |= 1u << place;
		return at;
	default:
		refuse(run);
		return NULL;
	}
}

void *gantry_calls_take_address(struct gantry_calls_run *run, uint64_t bytes, bool *ret_on_host)
{
	uint64_t place = gantry_unpack_u64(&run->in);

	*ret_on_host = place == GANTRY_CALLS_HOST;
	if (place == GANTRY_CALLS_HOST)
		return gantry_calls_take_in(run, bytes);
	if (place == GANTRY_CALLS_DEVICE)
		return gantry_calls_take_device(run);
	if (place != GANTRY_CALLS_NOWHERE)
		refuse(run);
	return NULL;
}

void *gantry_calls_keep(struct gantry_calls_run *run, uint64_t id, const void *from, size_t bytes)
{
	void *kept = run->in.failed || !from
			     ? NULL
			     : gantry_calls_table_keep(&run->site->table, id, from, bytes);

	if (!kept)
		refuse(run);
	return kept;
}

void gantry_calls_keep_rest(struct gantry_calls_run *run, uint32_t kind, uint64_t id)
{
	const void *kept = NULL;

	if (!run->in.failed && gantry_calls_table_find(&run->site->table, kind, id))
		kept = gantry_calls_table_keep(&run->site->table, id, run->in.bytes, run->in.len);
	if (!kept) {
		refuse(run);
		return;
	}
	run->in.bytes = kept;
	run->keeps = true;
}

void *gantry_calls_take_string(struct gantry_calls_run *run)
{
	uint64_t len = gantry_unpack_u64(&run->in);
	const char *text;

	if (run->in.failed || len == GANTRY_CALLS_NULL)
		return NULL;
	text = len > 0 ? gantry_unpack_bytes(&run->in, len) : NULL;
	if (!text || memchr(text, 0, len) != text + len - 1) {
		refuse(run);
		return NULL;
	}
	return (void *)(uintptr_t)text;
}

void *gantry_calls_take_strings(struct gantry_calls_run *run, int64_t count)
{
	uint64_t n = gantry_unpack_u64(&run->in);
	char **texts;

	if (run->in.failed || n == GANTRY_CALLS_NULL)
		return NULL;
	/* Each has a length at least, so what is left of the request bounds them. */
	if (n != (uint64_t)(count < 0 ? 0 : count) ||
	    n > (run->in.len - run->in.pos) / sizeof(uint64_t)) {
		refuse(run);
		return NULL;
	}
	texts = memory(run, n * sizeof(*texts), false);
	for (uint64_t i = 0; texts && i < n; i++) {
		texts[i] = gantry_calls_take_string(run);
		if (!texts[i])
			refuse(run);
	}
	return texts;
}

void *gantry_calls_take_scratch(struct gantry_calls_run *run, uint64_t bytes)
{
	return memory(run, bytes, false);
}

void *gantry_calls_take_null(struct gantry_calls_run *run)
{
	if (gantry_unpack_u64(&run->in) != 0)
		refuse(run);
	return NULL;
}

void *gantry_calls_take_place(struct gantry_calls_run *run)
{
	uint64_t wanted = gantry_unpack_u64(&run->in);

	if (wanted > 1) {
		if (run->chosen || !gantry_calls_table_is_free(&run->site->table, wanted)) {
			refuse(run);
			return NULL;
		}
		run->chosen = wanted;
	}
	return wanted ? memory(run, sizeof(uint64_t), false) : NULL;
}

void *gantry_calls_take_table(struct gantry_calls_run *run, uint64_t bytes)
{
	void *place = gantry_calls_take_place(run);

	if (!place)
		return NULL;
	/* With its length before it. */
	if (run->out.max - run->reply_bytes < sizeof(uint64_t) ||
	    bytes > run->out.max - run->reply_bytes - sizeof(uint64_t)) {
		refuse(run);
		return NULL;
	}
	run->reply_bytes += bytes + sizeof(uint64_t);
	return place;
}

void *gantry_calls_take_devices(struct gantry_calls_run *run, int64_t count)
{
	int32_t *devices = NULL;

	if (count != 1 || !run->site->device)
		refuse(run);
	else
		devices = memory(run, sizeof(*devices), false);
	if (devices)
		*devices = run->site->device(run->site->cookie);
	return devices;
}

void *gantry_calls_take_parts(struct gantry_calls_run *run, int64_t count)
{
	int32_t *devices = NULL;

	if (count < 0 || count > (int64_t)GANTRY_CALLS_MAX_PARTS || !run->site->device)
		refuse(run);
	else
		devices = memory(run, (uint64_t)count * sizeof(*devices), false);
	for (int64_t i = 0; devices && i < count; i++)
		devices[i] = run->site->device(run->site->cookie);
	return devices;
}

int64_t gantry_calls_parts(struct gantry_calls_run *run, uint32_t kind, uint64_t id)
{
	const struct gantry_calls_object *object = gantry_calls_table_find(&run->site->table, kind,
									   id);

	return object ? 1 + (int64_t)object->more_parts : 1;
}

void gantry_calls_note_parts(struct gantry_calls_run *run, uint32_t kind, uint64_t id, int64_t n)
{
	struct gantry_calls_object *object = gantry_calls_table_find(&run->site->table, kind, id);

	if (object)
		object->more_parts = n > 1 && n <= (int64_t)GANTRY_CALLS_MAX_PARTS
					     ? (uint32_t)(n - 1)
					     : 0;
}

void *gantry_calls_take_addresses(struct gantry_calls_run *run, uint64_t bytes)
{
	void *addresses = gantry_calls_take_in(run, bytes);

	for (uint64_t i = 0; addresses && i < bytes / sizeof(uint64_t); i++) {
		uint64_t address;

		memcpy(&address, (const uint8_t *)addresses + i * sizeof(address), sizeof(address));
		(void)check_device(run, address);
	}
	return addresses;
}

void gantry_calls_need(struct gantry_calls_run *run, const void *at)
{
	if (!at)
		refuse(run);
}

bool gantry_calls_fits_mode(struct gantry_calls_run *run, int mode)
{
	bool fits = mode == 0		     ? run->on_device == 0
		    : mode >= 1 && mode <= 3 ? run->on_host == 0
		    : mode == 4		     ? run->on_device <= 1 && (run->on_host & 1) == 0
					     : false;

	if (!fits)
		run->state = GANTRY_CALLS_REFUSED;
	return fits;
}

bool gantry_calls_may_run(struct gantry_calls_run *run)
{
	/* More than a function takes is no request of its. */
	if (run->in.pos != run->in.len)
		refuse(run);
	if (run->in.failed) {
		run->state = GANTRY_CALLS_REFUSED;
		return false;
	}
	return true;
}

bool gantry_calls_is_hosted(struct gantry_calls_run *run, uint32_t kind, uint64_t id)
{
	const struct gantry_calls_object *object = gantry_calls_table_find(&run->site->table, kind,
									   id);

	return object && object->is_hosted;
}

void gantry_calls_note_hosted(struct gantry_calls_run *run, uint32_t kind, uint64_t native)
{
	struct gantry_calls_table *table = &run->site->table;
	uint64_t id = gantry_calls_table_known(table, kind, native);
	struct gantry_calls_object *object = gantry_calls_table_find(table, kind, id);

	if (object)
		object->is_hosted = true;
}

bool gantry_calls_settle(struct gantry_calls_run *run)
{
	return !run->site->settle || run->site->settle(run->site->cookie) == 0;
}

/* ---- giving ---- */

void gantry_calls_ran(struct gantry_calls_run *run, uint64_t ret, bool good)
{
	run->state = GANTRY_CALLS_RAN;
	run->ret = ret;
	run->good = good;
	if (!good)
		run->out.failed = true; /* what the library left half written is nobody's */
	else if (run->dropping)
		gantry_calls_table_drop(&run->site->table, run->dropping);
	for (uint32_t i = 0; i < run->nouts; i++)
		if (run->outs[i].to_guest)
			gantry_pack_bytes(&run->out, run->outs[i].memory, run->outs[i].bytes);
}

/* A new one, or that which it had. */
static uint64_t give_number(struct gantry_calls_run *run, uint32_t kind, uint64_t native)
{
	struct gantry_calls_table *table = &run->site->table;
	uint64_t id = 0;

	if (!run->remade)
		id = gantry_calls_table_add(table, kind, native);
	else if (run->nremade && native &&
		 gantry_calls_table_put(table, kind, native, *run->remade))
		id = *run->remade;
	if (run->remade && run->nremade) {
		run->remade++;
		run->nremade--;
	}
	if (id)
		gantry_calls_note_filled(run, id);
	return id;
}

void gantry_calls_give_object(struct gantry_calls_run *run, uint32_t kind, uint64_t native)
{
	struct gantry_calls_object *object;
	uint64_t id;

	if (run->out.failed)
		return;
	if (run->chosen) {
		/* Without memory the guest's next call with it is refused; the object lives until the worker ends. */
		if (native &&
		    gantry_calls_table_add_as(&run->site->table, kind, native, run->chosen))
			gantry_calls_note_filled(run, run->chosen);
		run->chosen = 0;
		return;
	}
	/* 0, where the table is full, is what the guest then has; the object lives until the worker ends. */
	id = give_number(run, kind, native);
	object = gantry_calls_table_find(&run->site->table, kind, id);
	if (object)
		object->is_lent = object->is_hosted = false;
	gantry_pack_u64(&run->out, id);
}

void gantry_calls_lend_object(struct gantry_calls_run *run, uint32_t kind, uint64_t native)
{
	struct gantry_calls_table *table = &run->site->table;
	uint64_t id = gantry_calls_table_known(table, kind, native);
	struct gantry_calls_object *object;

	if (run->out.failed)
		return;
	if (id == 0) {
		id = give_number(run, kind, native);
		object = gantry_calls_table_find(table, kind, id);
		if (object)
			object->is_lent = true;
	}
	gantry_pack_u64(&run->out, id);
}

void gantry_calls_give_text(struct gantry_calls_run *run, const char *text)
{
	size_t len = text ? strnlen(text, TEXT_MAX - 1) : 0;
	char *room;

	gantry_pack_u64(&run->out, text ? len + 1 : GANTRY_CALLS_NULL);
	room = text ? gantry_pack_room(&run->out, len + 1) : NULL;
	if (room)
		memcpy(room, text, len); /* the room is zero */
}

void gantry_calls_give_table(struct gantry_calls_run *run, const void *table, uint64_t bytes)
{
	gantry_pack_u64(&run->out, table ? bytes : GANTRY_CALLS_NULL);
	if (table)
		gantry_pack_bytes(&run->out, table, bytes);
}

/* ---- serving ---- */

static const struct gantry_calls_function *find(const struct gantry_calls_library *const *libraries,
						uint64_t id,
						const struct gantry_calls_library **ret_library)
{
	for (; *libraries; libraries++) {
		uint32_t low = 0, high = (*libraries)->nfunctions;

		while (low < high) {
			uint32_t mid = low + (high - low) / 2;
			const struct gantry_calls_function *f = &(*libraries)->functions[mid];

			if (f->id == id) {
				*ret_library = *libraries;
				return f;
			}
			if (f->id < id)
				low = mid + 1;
			else
				high = mid;
		}
	}
	return NULL;
}

static const struct gantry_calls_function *find_called(
	struct gantry_calls_site *site, const struct gantry_calls_library *const *libraries,
	uint64_t id, const struct gantry_calls_library **ret_library)
{
	const uint64_t i = id & (GANTRY_CALLS_CALLED - 1);
	const struct gantry_calls_function *f = site->called[i].function;

	if (f && f->id == id) {
		*ret_library = site->called[i].library;
		return f;
	}
	f = find(libraries, id, ret_library);
	if (f) {
		site->called[i].function = f;
		site->called[i].library = *ret_library;
	}
	return f;
}

bool gantry_calls_has_groups(const struct gantry_calls_site *site, uint64_t function)
{
	const uint64_t i = function & (GANTRY_CALLS_CALLED - 1);

	return site->called[i].function && site->called[i].function->id == function &&
	       site->called[i].library->has_groups;
}

static void serve(struct gantry_calls_run *run, const struct gantry_calls_library *const *libraries,
		  const struct gantry_calls_request *request, size_t bytes)
{
	const struct gantry_calls_function *function;

	if (bytes < sizeof(*request) || request->version != GANTRY_CALLS_VERSION ||
	    (request->flags & ~GANTRY_CALLS_KEEPS) || request->bytes != bytes - sizeof(*request) ||
	    request->reply_bytes > GANTRY_CALLS_MAX_BYTES) {
		run->state = GANTRY_CALLS_REFUSED;
		return;
	}
	run->out.max = request->reply_bytes;
	run->in = (struct gantry_unpack){ .bytes = (const uint8_t *)(request + 1),
					  .len = request->bytes };
	function = find_called(run->site, libraries, request->function, &run->library);
	run->function = function;
	if (function && gantry_calls_symbol(run, function->name))
		function->serve(run);
}

/* Of what sets an object, that is the first one; what ends one takes no other. */
static void settle_notes(const struct gantry_calls_run *run)
{
	struct gantry_calls_notes *notes = run->notes;
	uint32_t recipe = run->function->recipe;

	if (recipe == GANTRY_RECIPE_ENDS) {
		notes->subjects[0] = (uint32_t)run->dropping;
		notes->nsubjects = run->dropping ? 1 : 0;
	} else if ((recipe == GANTRY_RECIPE_SETS || recipe == GANTRY_RECIPE_SETS_ONE) &&
		   notes->nothers > 0) {
		notes->subjects[0] = notes->others[0];
		notes->nsubjects = 1;
		memmove(notes->others, notes->others + 1, --notes->nothers * sizeof(uint32_t));
	}
}

static void end_outs(struct gantry_calls_run *run)
{
	gantry_pack_fini(&run->out);
	for (uint32_t i = 0; i < run->nouts; i++)
		free(run->outs[i].memory);
}

bool gantry_calls_remake(struct gantry_calls_site *site,
			 const struct gantry_calls_library *const *libraries, void *stream,
			 const uint32_t *ids, uint32_t nids, const void *request, size_t bytes)
{
	struct gantry_calls_run run = {
		.site = site,
		.libraries = libraries,
		.stream = stream,
		.remade = ids,
		.nremade = nids,
	};

	gantry_pack_init_in(&run.out, run.room, sizeof(run.room), 0);
	serve(&run, libraries, request, bytes);
	end_outs(&run);
	return run.state == GANTRY_CALLS_RAN && run.good;
}

/* Until end_outs() of it. */
static void serve_noting(struct gantry_calls_run *run,
			 const struct gantry_calls_library *const *libraries, const void *request,
			 size_t bytes)
{
	struct gantry_calls_notes notes;

	notes.nsubjects = notes.nothers = 0;
	notes.failed = false;
	run->notes = run->site->recipes ? &notes : NULL;
	gantry_pack_init_in(&run->out, run->room, sizeof(run->room), 0);
	serve(run, libraries, request, bytes);
	if (run->notes && run->good && run->function->recipe) {
		settle_notes(run);
		gantry_recipes_note(run->site->recipes, run->function, &notes, request, bytes);
	}
	run->notes = NULL;
}

uint32_t gantry_calls_serve_unread(struct gantry_calls_site *site,
				   const struct gantry_calls_library *const *libraries,
				   void *stream, const void *request, size_t bytes,
				   uint64_t *ret_ret)
{
	struct gantry_calls_run run = {
		.site = site,
		.libraries = libraries,
		.stream = stream,
		.state = GANTRY_CALLS_UNKNOWN,
	};

	serve_noting(&run, libraries, request, bytes);
	end_outs(&run);
	*ret_ret = run.ret;
	return run.state;
}

uint32_t gantry_calls_serve(struct gantry_calls_site *site,
			    const struct gantry_calls_library *const *libraries, void *stream,
			    const void *request, size_t bytes, struct gantry_pack *reply)
{
	struct gantry_calls_run run = {
		.site = site,
		.libraries = libraries,
		.stream = stream,
		.state = GANTRY_CALLS_UNKNOWN,
	};
	struct gantry_calls_reply header = { 0 };

	serve_noting(&run, libraries, request, bytes);
	header.state = run.state;
	header.ret = run.ret;
	header.bytes = run.out.failed ? 0 : run.out.len;
	gantry_pack_bytes(reply, &header, sizeof(header));
	gantry_pack_bytes(reply, run.out.bytes, header.bytes);
	end_outs(&run);
	return run.state;
}

/* ---- ending ---- */

struct ending {
	struct gantry_calls_site *site;
	const struct gantry_calls_library *const *libraries;
};

static void end_object(void *arg, const struct gantry_calls_object *object)
{
	const struct ending *ending = arg;

	if (object->is_lent)
		return;
	for (const struct gantry_calls_library *const *l = ending->libraries; *l; l++)
		for (const struct gantry_calls_ender *ender = (*l)->enders; ender->name; ender++) {
			void *function;

			if (ender->kind != object->kind)
				continue;
			function = ending->site->symbol(ending->site->cookie, *l, ender->name);
			if (function)
				ender->end(function, object->native);
			return;
		}
}

void gantry_calls_end(struct gantry_calls_site *site,
		      const struct gantry_calls_library *const *libraries)
{
	struct ending ending = { site, libraries };

	gantry_calls_table_end(&site->table, end_object, &ending);
}
