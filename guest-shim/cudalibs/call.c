/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/cudalibs/call.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "guest-shim/cudalibs/numbers.h"
#include "guest-shim/cudalibs/road.h"
#include "guest-shim/cudalibs/several.h"

#define PAGE	     4096u
#define SCALAR_BYTES 16u
#define TEXT_BYTES   4096u
#define SMALL_REPLY  256u /* with its head; one that takes no memory of its own */
#define PLACES	     65536u
/* In the caller's memory; numbers of objects are below it, addresses too. */
#define PLACED_MAGIC 0x9e3779b97f4a7c15ull

/* The streams of handles, by the place that is in a handle's low bits. */
static void *streams[PLACES];
/* Their pointer modes. */
static int modes[PLACES];
/* Over how many devices they are, less one. */
static uint8_t more_parts[PLACES];
static _Thread_local int nopen;
static const struct gantry_call_road *road = &gantry_call_road_session;

void gantry_call_road_set(const struct gantry_call_road *other)
{
	road = other ? other : &gantry_call_road_session;
}

void gantry_call_set_stream(uint64_t handle, void *stream)
{
	gantry_store_relaxed(&streams[handle % PLACES], stream);
}

void *gantry_call_get_stream(uint64_t handle)
{
	return gantry_load_relaxed(&streams[handle % PLACES]);
}

void gantry_call_set_mode(uint64_t handle, int mode)
{
	gantry_store_relaxed(&modes[handle % PLACES], mode);
}

void gantry_call_mode(struct gantry_call *call, uint64_t handle)
{
	call->mode = gantry_load_relaxed(&modes[handle % PLACES]);
}

void gantry_call_set_parts(uint64_t handle, int64_t n)
{
	uint8_t more = n > 1 && n <= (int64_t)GANTRY_CALLS_MAX_PARTS ? (uint8_t)(n - 1) : 0;

	gantry_store_relaxed(&more_parts[handle % PLACES], more);
}

int64_t gantry_call_parts(uint64_t handle)
{
	return 1 + gantry_load_relaxed(&more_parts[handle % PLACES]);
}

/* Whether the library is to have @at as an address of the device's. */
static bool goes_as_address(const struct gantry_call *call, const void *at)
{
	int side = road->is_device(road->cookie, at);

	return side == 1 || (side == 2 && call->mode != 0);
}

int32_t gantry_call_unsupported(struct gantry_call_library *library, const char *name)
{
	(void)gantry_fetch_add(&library->nunsupported, 1);
	if (road->unsupported)
		road->unsupported(road->cookie, name);
	return library->unsupported;
}

/* ---- putting ---- */

void gantry_call_begin(struct gantry_call *call, struct gantry_call_library *library,
		       const char *name, uint64_t function, unsigned flags)
{
	const struct gantry_calls_request request = {
		.version = GANTRY_CALLS_VERSION,
		.function = function,
	};

	call->library = library;
	call->name = name;
	call->stream = NULL;
	call->has_stream = false;
	call->flags = flags;
	if (flags & GANTRY_CALL_OPENS)
		nopen++;
	call->waits = (flags & GANTRY_CALL_WAITS) || nopen > 0;
	if ((flags & GANTRY_CALL_CLOSES) && nopen > 0)
		nopen--;
	call->refused = false;
	call->is_answered = false;
	call->record = NULL;
	call->mode = -1;
	call->dropped = 0;
	call->chosen = 0;
	call->device = -1;
	call->nouts = 0;
	call->nhandles = 0;
	call->reply_bytes = 0;
	call->text = "";
	gantry_pack_init_in(&call->pack, call->room, sizeof(call->room), GANTRY_CALLS_MAX_BYTES);
	gantry_pack_bytes(&call->pack, &request, sizeof(request));
}

void gantry_call_put(struct gantry_call *call, const void *value, size_t len)
{
	gantry_pack_bytes(&call->pack, value, len);
}

static void note_handle(struct gantry_call *call, uint64_t handle)
{
	if (call->nhandles < GANTRY_CALL_HANDLES)
		call->handles[call->nhandles++] = handle;
	else
		call->refused = true;
}

void gantry_call_handle(struct gantry_call *call, uint64_t handle, unsigned flags)
{
	gantry_pack_u64(&call->pack, call->library->is_of_several
					     ? gantry_several_number(handle, &call->device)
					     : handle);
	if (handle == 0) {
		call->refused |= !(flags & GANTRY_CALL_OR_NULL);
		return;
	}
	note_handle(call, handle);
	/* What has ended is known here, and nothing of it has to be asked. */
	if (gantry_call_number_has_ended(handle))
		call->refused = true;
	if (flags & GANTRY_CALL_BOUND)
		gantry_call_stream(call, gantry_call_get_stream(handle));
	if (flags & GANTRY_CALL_DROPS) {
		call->dropped = handle;
		call->waits |= !gantry_call_number_is_chosen(handle);
	}
}

void gantry_call_stream(struct gantry_call *call, void *stream)
{
	call->stream = stream;
	call->has_stream = true;
}

void gantry_call_device(struct gantry_call *call, const void *address)
{
	gantry_pack_u64(&call->pack, (uintptr_t)address);
}

void gantry_call_in(struct gantry_call *call, const void *from, uint64_t bytes)
{
	gantry_pack_u64(&call->pack, from ? bytes : GANTRY_CALLS_NULL);
	if (from)
		gantry_pack_bytes(&call->pack, from, bytes);
}

static void expect(struct gantry_call *call, void *to, uint64_t bytes,
		   enum gantry_call_answer answer)
{
	call->waits = true;
	if (call->nouts == GANTRY_CALL_OUTS || bytes > GANTRY_CALLS_MAX_BYTES) {
		call->refused = true;
		return;
	}
	call->outs[call->nouts].to = to;
	call->outs[call->nouts].bytes = bytes;
	call->outs[call->nouts].count = NULL;
	call->outs[call->nouts++].answer = answer;
	/* With what padding and lengths may want. */
	call->reply_bytes += (answer == GANTRY_CALL_TEXT ? TEXT_BYTES : bytes) +
			     2 * sizeof(uint64_t);
}

void gantry_call_out(struct gantry_call *call, const void *to, uint64_t bytes)
{
	gantry_pack_u64(&call->pack, to ? bytes : GANTRY_CALLS_NULL);
	if (to)
		expect(call, (void *)(uintptr_t)to, bytes, GANTRY_CALL_BYTES);
}

void gantry_call_inout(struct gantry_call *call, const void *both, uint64_t bytes)
{
	gantry_call_in(call, both, bytes);
	if (both)
		expect(call, (void *)(uintptr_t)both, bytes, GANTRY_CALL_BYTES);
}

void gantry_call_counted(struct gantry_call *call, const int64_t *count, uint64_t element_bytes)
{
	if (call->nouts == 0)
		return;
	call->outs[call->nouts - 1].count = count;
	call->outs[call->nouts - 1].element_bytes = element_bytes;
}

void gantry_call_either(struct gantry_call *call, const void *at, uint64_t bytes, unsigned flags)
{
	if (!at) {
		gantry_pack_u64(&call->pack, GANTRY_CALLS_NOWHERE);
	} else if (goes_as_address(call, at)) {
		gantry_pack_u64(&call->pack, GANTRY_CALLS_DEVICE);
		gantry_call_device(call, at);
	} else {
		gantry_pack_u64(&call->pack, GANTRY_CALLS_HOST);
		if ((flags & GANTRY_CALL_IN) && (flags & GANTRY_CALL_OUT))
			gantry_call_inout(call, at, bytes);
		else if (flags & GANTRY_CALL_IN)
			gantry_call_in(call, at, bytes);
		else
			gantry_call_out(call, at, bytes);
	}
}

static void put_scalar(struct gantry_call *call, const void *at)
{
	uint8_t scalar[SCALAR_BYTES] = { 0 };
	uintptr_t left = PAGE - ((uintptr_t)at & (PAGE - 1));

	memcpy(scalar, at, left < sizeof(scalar) ? left : sizeof(scalar));
	gantry_call_in(call, scalar, sizeof(scalar));
}

void gantry_call_scalar(struct gantry_call *call, const void *at)
{
	if (!at || goes_as_address(call, at)) {
		gantry_call_either(call, at, 0, GANTRY_CALL_IN);
		return;
	}
	gantry_pack_u64(&call->pack, GANTRY_CALLS_HOST);
	put_scalar(call, at);
}

void gantry_call_immediate(struct gantry_call *call, const void *at)
{
	if (at && road->is_device(road->cookie, at) == 1) {
		call->refused = true;
		at = NULL;
	}
	if (at)
		put_scalar(call, at);
	else
		gantry_call_in(call, NULL, 0);
}

int gantry_call_own_device(void)
{
	return road->device ? road->device(road->cookie) : -1;
}

bool gantry_call_is_own_device(const int *devices, int64_t n)
{
	return devices && n == 1 && *devices >= 0 && gantry_call_own_device() == *devices;
}

bool gantry_call_fits_parts(const int *devices, int64_t n)
{
	return devices && n >= 0 && n <= (int64_t)GANTRY_CALLS_MAX_PARTS;
}

bool gantry_call_are_own_devices(const int *devices, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (!gantry_call_is_own_device(devices + i, 1))
			return false;
	return true;
}

void gantry_call_answer(struct gantry_call *call, int32_t ret)
{
	call->is_answered = true;
	call->answer = ret;
}

int gantry_call_mem_alloc(uint64_t bytes, uint64_t *ret_address)
{
	return road->mem_alloc ? road->mem_alloc(road->cookie, bytes, ret_address) : -ENODEV;
}

int gantry_call_mem_free(uint64_t address)
{
	return road->mem_free ? road->mem_free(road->cookie, address) : -ENODEV;
}

void gantry_call_string(struct gantry_call *call, const char *text)
{
	gantry_call_in(call, text, text ? strlen(text) + 1 : 0);
}

void gantry_call_strings(struct gantry_call *call, const char *const *texts, int64_t count)
{
	gantry_pack_u64(&call->pack, texts ? (uint64_t)(count < 0 ? 0 : count) : GANTRY_CALLS_NULL);
	for (int64_t i = 0; texts && i < count && !call->pack.failed; i++)
		gantry_call_string(call, texts[i]);
}

void gantry_call_null(struct gantry_call *call, const void *at)
{
	gantry_pack_u64(&call->pack, 0);
	if (at)
		call->refused = true;
}

void gantry_call_object(struct gantry_call *call, void *to, size_t handle_bytes)
{
	gantry_pack_u64(&call->pack, to ? 1 : 0);
	if (to)
		expect(call, to, handle_bytes, GANTRY_CALL_OBJECT);
}

void gantry_call_chosen(struct gantry_call *call, void *to, size_t handle_bytes)
{
	uint64_t number = 0;

	/* A session that begins with this very call must not take the number for one of the last session's. */
	if (road->enter)
		road->enter(road->cookie);
	if (to && handle_bytes == sizeof(uint64_t))
		number = gantry_call_number_choose();
	if (number == 0) {
		gantry_call_object(call, to, handle_bytes);
		return;
	}
	gantry_pack_u64(&call->pack, number);
	/* Calls with it run behind this one. */
	note_handle(call, number);
	call->chosen = number;
	call->chosen_to = to;
}

void gantry_call_text(struct gantry_call *call, void *to)
{
	gantry_pack_u64(&call->pack, to ? 1 : 0);
	if (to)
		expect(call, to, sizeof(char *), GANTRY_CALL_TEXT);
}

void gantry_call_table(struct gantry_call *call, void *to, uint64_t bytes)
{
	gantry_pack_u64(&call->pack, to ? 1 : 0);
	if (to)
		expect(call, to, bytes, GANTRY_CALL_TABLE);
}

/* ---- objects in the caller's memory ---- */

void gantry_call_place(void *at, size_t bytes, uint64_t number)
{
	const struct gantry_call_placed placed = { PLACED_MAGIC, number, (uintptr_t)at, 0 };

	memset(at, 0, bytes);
	memcpy(at, &placed, sizeof(placed));
}

bool gantry_call_is_placed(const void *at)
{
	struct gantry_call_placed placed;

	memcpy(&placed, at, sizeof(placed));
	return placed.magic == PLACED_MAGIC && placed.at == (uintptr_t)at;
}

uint64_t gantry_call_number(const void *object)
{
	struct gantry_call_placed placed;

	if ((uintptr_t)object <= INT32_MAX)
		return (uintptr_t)object;
	memcpy(&placed, object, sizeof(placed));
	return placed.magic == PLACED_MAGIC ? placed.number : (uintptr_t)object;
}

/* ---- the answer ---- */

/* Texts and tables that stubs returned: programs keep them, so they are never freed, but equal ones are one. */
struct text {
	struct text *next;
	size_t len;
	_Alignas(16) char bytes[];
};

static struct {
	pthread_mutex_t lock;
	struct text *first;
} texts = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void lock_texts(void)
{
	(void)pthread_mutex_lock(&texts.lock);
}

static void unlock_texts(void)
{
	(void)pthread_mutex_unlock(&texts.lock);
}

static void watch_forks(void)
{
	(void)pthread_atfork(lock_texts, unlock_texts, unlock_texts); /* or a child may hang */
}

/* NULL: no memory. */
static const char *keep(const char *bytes, size_t len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct text *text;

	(void)pthread_once(&once, watch_forks);
	lock_texts();
	for (text = texts.first; text; text = text->next)
		if (text->len == len && memcmp(text->bytes, bytes, len) == 0)
			break;
	if (!text) {
		text = malloc(sizeof(*text) + len);
		if (text) {
			memcpy(text->bytes, bytes, len);
			text->len = len;
			text->next = texts.first;
			texts.first = text;
		}
	}
	unlock_texts();
	return text ? text->bytes : NULL;
}

static const char *take_text(struct gantry_unpack *in)
{
	uint64_t len = gantry_unpack_u64(in);
	const char *text;

	if (in->failed || len == GANTRY_CALLS_NULL || len == 0)
		return NULL;
	text = gantry_unpack_bytes(in, len);
	return text && text[len - 1] == 0 ? keep(text, len) : NULL;
}

/* The length, and then what it is of: exactly what was asked for. */
static const char *take_table(struct gantry_unpack *in, uint64_t bytes)
{
	uint64_t len = gantry_unpack_u64(in);
	const char *table = len == bytes ? gantry_unpack_bytes(in, bytes) : NULL;

	return table ? keep(table, bytes) : NULL;
}

static void take_object(const struct gantry_call *call, struct gantry_unpack *in, void *to,
			size_t bytes)
{
	uint64_t handle = gantry_unpack_u64(in);

	if (in->failed)
		return;
	if (call->library->is_of_several && handle)
		handle = gantry_several_handle(handle, call->device);
	if (bytes == sizeof(int32_t))
		*(int32_t *)to = (int32_t)handle;
	else
		*(uint64_t *)to = handle;
	gantry_call_set_stream(handle, NULL);
	gantry_call_set_mode(handle, 0);
	gantry_call_set_parts(handle, 1);
}

/* Of the bytes of an answer those that the caller is to have. */
static uint64_t bytes_wanted(const struct gantry_call *call, uint32_t i)
{
	uint64_t bytes = call->outs[i].bytes, counted;

	if (!call->outs[i].count)
		return bytes;
	if (*call->outs[i].count <= 0)
		return 0;
	counted = gantry_pack_span(*call->outs[i].count, call->outs[i].element_bytes);
	return counted < bytes ? counted : bytes;
}

/* Bytes come first, then objects and texts, each in the order of their arguments. */
static bool take_answer(struct gantry_call *call, struct gantry_unpack *in)
{
	for (uint32_t i = 0; i < call->nouts; i++)
		if (call->outs[i].answer == GANTRY_CALL_BYTES) {
			const void *from = gantry_unpack_bytes(in, call->outs[i].bytes);

			if (from)
				memcpy(call->outs[i].to, from, bytes_wanted(call, i));
		}
	for (uint32_t i = 0; i < call->nouts; i++) {
		if (call->outs[i].answer == GANTRY_CALL_OBJECT) {
			take_object(call, in, call->outs[i].to, call->outs[i].bytes);
		} else if (call->outs[i].answer == GANTRY_CALL_TABLE) {
			*(const char **)call->outs[i].to = take_table(in, call->outs[i].bytes);
		} else if (call->outs[i].answer == GANTRY_CALL_TEXT) {
			const char *text = take_text(in);

			if (call->outs[i].to)
				*(const char **)call->outs[i].to = text;
			else if (text)
				call->text = text;
		}
	}
	return !in->failed;
}

static int32_t late_failure(struct gantry_call_library *library)
{
	return gantry_load_relaxed(&library->late) ? gantry_exchange(&library->late, 0) : 0;
}

/* *ret_ret: what the library returned. 0, or a word of the library's. */
static int32_t answer(struct gantry_call *call, const void *bytes, size_t len, uint64_t *ret_ret)
{
	const struct gantry_calls_reply *reply = bytes;
	struct gantry_unpack in = { .bytes = (const uint8_t *)(reply + 1) };

	if (reply->state == GANTRY_CALLS_UNKNOWN)
		return gantry_call_unsupported(call->library, call->name);
	if (reply->state == GANTRY_CALLS_REFUSED)
		return call->library->refused;
	if (reply->state != GANTRY_CALLS_RAN || reply->bytes > len - sizeof(*reply))
		return call->library->failed;
	in.len = reply->bytes;
	if (in.len > 0 && !take_answer(call, &in))
		return call->library->failed;
	*ret_ret = reply->ret;
	return 0;
}

/* Of a call whose answers may come later: how many, and where they go. 0: it is waited for, or answers nothing. */
static uint32_t answers_of(const struct gantry_call *call,
			   struct gantry_cuda_road_answer answers[GANTRY_CALL_OUTS])
{
	if (!(call->flags & GANTRY_CALL_LATER) || nopen > 0)
		return 0;
	for (uint32_t i = 0; i < call->nouts; i++) {
		if (call->outs[i].answer != GANTRY_CALL_BYTES || call->outs[i].count)
			return 0;
		answers[i] = (struct gantry_cuda_road_answer){ call->outs[i].to,
							       call->outs[i].bytes };
	}
	return call->nouts;
}

static int32_t carry_here(struct gantry_call *call, uint64_t *ret_ret)
{
	struct gantry_cuda_road_answer answers[GANTRY_CALL_OUTS];
	size_t len = sizeof(struct gantry_calls_reply) + call->reply_bytes;
	_Alignas(8) uint8_t small[SMALL_REPLY];
	_cleanup_free_ void *large = NULL;
	void *reply = NULL;
	const struct gantry_call_route route = {
		.name = call->name,
		.stream = call->stream,
		.has_stream = call->has_stream,
		.waits = call->waits,
		.is_apart = call->flags & GANTRY_CALL_APART,
		.asks = call->flags & GANTRY_CALL_ASKS,
		.may_stay = !call->waits && !(call->flags & GANTRY_CALL_NOW) &&
			    (call->flags & (GANTRY_CALL_APART | GANTRY_CALL_SETS)),
		.drops = call->dropped != 0,
		.nhandles = call->nhandles,
		.handles = call->handles,
		.nanswers = answers_of(call, answers),
		.answers = answers,
	};
	struct gantry_calls_request *request = (struct gantry_calls_request *)call->pack.bytes;
	int r;

	*ret_ret = 0;
	if (call->refused || call->pack.failed || call->reply_bytes > GANTRY_CALLS_MAX_BYTES)
		return call->library->refused;
	if (call->dropped && gantry_call_number_is_in_graph(call->dropped))
		return 0;
	request->bytes = call->pack.len - sizeof(*request);
	request->reply_bytes = call->reply_bytes;
	if (call->waits && len > sizeof(small)) {
		reply = large = calloc(1, len);
		if (!large)
			return call->library->failed;
	} else if (call->waits) {
		reply = memset(small, 0, len);
	}
	r = road->carry(road->cookie, call->library, &route, request, call->pack.len, reply, len);
	if (r < 0)
		return call->library->failed;
	if (r == 1) {
		for (uint32_t i = 0; i < call->nhandles; i++)
			gantry_call_number_in_graph(call->handles[i]);
		return 0;
	}
	return call->waits ? answer(call, reply, len, ret_ret) : 0;
}

int gantry_call_enter_device(int device)
{
	return road->enter_device ? road->enter_device(road->cookie, device) : -ENOSYS;
}

void gantry_call_leave_device(int device)
{
	road->leave_device(road->cookie, device);
}

static int thread_device(void)
{
	return road->device ? road->device(road->cookie) : -1;
}

/* On the device of its objects, which goes with what it makes. */
static int32_t carry_on_device(struct gantry_call *call, uint64_t *ret_ret)
{
	int here = thread_device(), device = call->device < 0 ? here : call->device;
	int32_t failed;

	*ret_ret = 0;
	call->device = device;
	if (device == here)
		return carry_here(call, ret_ret);
	if (gantry_call_enter_device(device) < 0)
		return call->library->refused;
	failed = carry_here(call, ret_ret);
	gantry_call_leave_device(device);
	return failed;
}

/* ---- groups of several devices ---- */

/* A call that takes and answers nothing: the group's beginning or its end. */
static int32_t carry_mark(struct gantry_call_library *library,
			  const struct gantry_several_mark *mark,
			  const struct gantry_several_place *place, bool waits, uint64_t *ret_ret)
{
	struct gantry_call call;
	int32_t failed;

	gantry_call_begin(&call, library, mark->name, mark->function,
			  GANTRY_CALL_NOW | (place->has_stream ? 0 : GANTRY_CALL_APART));
	if (place->has_stream)
		gantry_call_stream(&call, place->stream);
	call.waits = waits;
	call.device = place->device;
	failed = carry_on_device(&call, ret_ret);
	gantry_pack_fini(&call.pack);
	return failed;
}

/* A group of nothing. */
static int32_t carry_marks(struct gantry_call_library *library, const struct gantry_several *group,
			   const struct gantry_several_mark *end,
			   const struct gantry_several_place *place, bool waits)
{
	uint64_t ret;
	int32_t failed = carry_mark(library, &group->start, place, waits, &ret);

	return failed ? failed : carry_mark(library, end, place, waits, &ret);
}

/* The worker's threads know of the group as soon as one has a call in it. */
static int32_t join_group(struct gantry_call *call, uint64_t *ret_ret)
{
	struct gantry_several *group = gantry_several_group();
	struct gantry_several_place place = { call->device < 0 ? thread_device() : call->device,
					      call->has_stream, call->stream };
	uint32_t n = group->nplaces;

	*ret_ret = 0;
	if (gantry_several_has(group, &place))
		return 0;
	if (n == GANTRY_SEVERAL_PLACES)
		return call->library->refused;
	group->places[group->nplaces++] = place;
	return gantry_several_is_first(group, n)
		       ? carry_mark(call->library, &group->start, &place, true, ret_ret)
		       : 0;
}

/*
 * On each device the group ends without one end being waited for before the next is on its way: they may wait for each other. What has
 * ended is known by a group of nothing behind it.
 */
static int32_t end_group(struct gantry_call_library *library, const struct gantry_several *group,
			 const struct gantry_several_mark *end, uint64_t *ret_ret)
{
	uint32_t n = group->nplaces, last = 0;
	int32_t failed = 0;

	*ret_ret = 0;
	for (uint32_t i = 0; i < n; i++)
		last = gantry_several_is_first(group, i) ? i : last;
	for (uint32_t i = 0; i < n && !failed; i++)
		if (gantry_several_is_first(group, i))
			failed = carry_mark(library, end, &group->places[i], i == last, ret_ret);
	for (uint32_t i = 0; i < last && !failed; i++)
		if (gantry_several_is_first(group, i))
			failed = carry_marks(library, group, end, &group->places[i], true);
	for (uint32_t i = 0; i < n && !failed; i++)
		if (!gantry_several_is_first(group, i))
			failed = carry_marks(library, group, end, &group->places[i], false);
	return failed;
}

static int32_t carry_of_several(struct gantry_call *call, uint64_t *ret_ret)
{
	struct gantry_several *group = gantry_several_group();
	struct gantry_several_mark mark = { call->name, 0 };
	int32_t failed;

	memcpy(&mark.function, call->pack.bytes + offsetof(struct gantry_calls_request, function),
	       sizeof(mark.function));
	*ret_ret = 0;
	if (call->flags & GANTRY_CALL_OPENS) {
		gantry_several_open(group, &mark);
		return 0;
	}
	if (group->depth == 0)
		return carry_on_device(call, ret_ret);
	if (call->flags & GANTRY_CALL_CLOSES) {
		struct gantry_several ended = *group;

		return gantry_several_close(group)
			       ? end_group(call->library, &ended, &mark, ret_ret)
			       : 0;
	}
	failed = join_group(call, ret_ret);
	return failed || *ret_ret ? failed : carry_on_device(call, ret_ret);
}

static int32_t carry(struct gantry_call *call, uint64_t *ret_ret)
{
	return call->library->is_of_several ? carry_of_several(call, ret_ret)
					    : carry_here(call, ret_ret);
}

/* The object whose first success is waited for; 0: none. */
static uint64_t unproven(const struct gantry_call *call)
{
	uint64_t object = call->nhandles > 1 ? call->handles[1] : 0;

	if (!(call->flags & GANTRY_CALL_PROVES) || object == 0)
		return 0;
	return gantry_call_number_is_proven(object) ? 0 : object;
}

/* The numbers given here: of an object that the call has made, and of one that it has ended. */
static void settle_numbers(struct gantry_call *call, bool good)
{
	if (call->chosen && good) {
		memcpy(call->chosen_to, &call->chosen, sizeof(call->chosen));
		gantry_call_set_stream(call->chosen, NULL);
		gantry_call_set_mode(call->chosen, 0);
	} else if (call->chosen) {
		gantry_call_number_give_up(call->chosen);
	}
	if (call->dropped && good) {
		gantry_call_set_stream(call->dropped, NULL);
		gantry_call_number_end(call->dropped);
	}
}

uint64_t gantry_call_finish(struct gantry_call *call)
{
	uint64_t object = unproven(call);
	uint64_t ret;
	int32_t failed;

	if (call->is_answered) {
		gantry_pack_fini(&call->pack);
		return (uint64_t)(int64_t)call->answer;
	}
	call->waits |= object != 0;
	failed = carry(call, &ret);
	if (!failed && ret == 0 && object)
		gantry_call_number_prove(object);
	settle_numbers(call, !failed && ret == 0);
	if (!failed && ret == 0 && call->waits)
		failed = late_failure(call->library);
	gantry_pack_fini(&call->pack);
	if (gantry_load_relaxed(&call->library->log.mask))
		gantry_call_log(call->library, call->name, failed ? failed : (int32_t)ret);
	return failed ? (uint64_t)(int64_t)failed : ret;
}

uint64_t gantry_call_finish_value(struct gantry_call *call)
{
	uint64_t ret;
	int32_t failed;

	call->waits = true;
	failed = carry(call, &ret);
	gantry_pack_fini(&call->pack);
	return failed ? 0 : ret;
}

const char *gantry_call_finish_text(struct gantry_call *call)
{
	uint64_t ret;

	expect(call, NULL, sizeof(char *), GANTRY_CALL_TEXT);
	(void)carry(call, &ret); /* then the text is empty */
	gantry_pack_fini(&call->pack);
	return call->text;
}
