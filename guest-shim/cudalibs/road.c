/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The usual road: a call is a launch of kernel library_call on the queue of its stream, in a buffer of the heap.
 *
 * Order. A call on a stream goes to that stream's queue, one without to the queue of the default stream. The worker makes the
 * calls of a queue one after the other. Of calls that have an object in common each may change it, or end it, or draw from it,
 * so they are made in the program's order, whatever their streams: where an earlier one is under way in another queue, its
 * answer is awaited for a second, and then the call is put behind its end.
 *
 * Together. What says something of an object and answers nothing starts nothing either, so nobody sees whether it was made yet: such calls stay
 * here, and go in front of the next call in the same buffer (proto/calls.h: GANTRY_CALLS_MORE), one task for all. They go alone where that one
 * may not take them along, and where there is no more room. Nothing that only waits for the device sends them, for nothing there waits for them.
 *
 * Answers. Buffers of 16 KiB are kept, so many as calls are under way; a longer call has one of its own. They are mapped, and
 * the worker says in them when a call has returned (GANTRY_CALLS_TOLD). The task that carried it ends later, when the
 * device has come there: to wait for that would let the device run empty each time. What a call answered that was not
 * waited for is read when its buffer is used again.
 *
 * Far. Behind a stream the buffers are the host's; what is mapped is a copy of ours. A call is written before it is put, and its answer is
 * read when its task has ended: two round trips more.
 */
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "guest-shim/cudalibs/call.h"
#include "guest-shim/cudalibs/road.h"
#include "guest-shim/cudalibs/stay.h"
#include "guest-shim/device.h"
#include "proto/wire.h"

#define BOXES	  64u
#define BOX_BYTES (16u << 10)
/* A call that has not returned after so many looks may be a long one: then it is looked at now and then. */
#define LOOKS	  20000u
#define LOOK_TASK 256u
#define NAP_NS	  50000
/* So many looks' time between two that need the lock. */
#define LOOK_LOCKED 16u
/* A longer call does not stay. */
#define STAY_BYTES 2048u
/* So long earlier calls that have an object in common are waited for, all of them together. */
#define ORDER_NS GANTRY_NS_PER_S

struct box {
	struct gantry_session *session; /* whose the buffer is */
	gantry_buffer buffer;
	uint8_t *at; /* where it is mapped; far: a copy */
	size_t bytes;
	gantry_ticket ticket; /* 0: nothing is under way */
	uint32_t nhandles;    /* of the calls under way */
	uint64_t handles[GANTRY_STAY_HANDLES + GANTRY_CALL_HANDLES];
	uint32_t ncalls;
	struct gantry_stay_call calls[GANTRY_CALLS_TOGETHER]; /* in their order */
	bool is_taken;
	bool is_read;	 /* its answer was looked at */
	bool is_fetched; /* far: the answer is in the copy */
};

static struct {
	pthread_mutex_t lock;
	pthread_mutex_t fetching; /* inside the other, where both are held */
	pthread_cond_t given;
	struct gantry_cuda_road_calls calls;
	void (*order)(void);
	bool is_far;
	struct gantry_session *session; /* written under the lock, read atomically */
	gantry_kernel kernel;
	bool takes_several; /* the kernel does */
	struct gantry_stay stay;
	uint32_t nboxes; /* that have a buffer: the first ones */
	struct box boxes[BOXES];
} way = { .lock = PTHREAD_MUTEX_INITIALIZER,
	  .fetching = PTHREAD_MUTEX_INITIALIZER,
	  .given = PTHREAD_COND_INITIALIZER };

/* ---- whose memory and streams ---- */

static const struct gantry_cuda_road *find_road(void)
{
	static const struct gantry_cuda_road *found;
	const struct gantry_cuda_road *road = gantry_load_acquire(&found);

	if (road)
		return road;
	road = dlsym(RTLD_DEFAULT, GANTRY_CUDA_ROAD_SYMBOL);
	if (!road) {
		/* A program that loaded it for itself alone. It stays loaded from now on. */
		void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

		road = driver ? dlsym(driver, GANTRY_CUDA_ROAD_SYMBOL) : NULL;
	}
	if (!road || road->version != GANTRY_CUDA_ROAD_VERSION || road->size < sizeof(*road))
		return NULL;
	gantry_store_release(&found, road);
	return road;
}

static int is_device(void *cookie, const void *address)
{
	const struct gantry_cuda_road *road = find_road();

	(void)cookie;
	return road ? road->is_device(address) : 0;
}

static void unsupported(void *cookie, const char *name)
{
	const struct gantry_cuda_road *road = find_road();

	(void)cookie;
	if (road && road->unsupported)
		road->unsupported(name);
}

static int device(void *cookie)
{
	const struct gantry_cuda_road *road = find_road();

	(void)cookie;
	return road && road->device ? road->device() : -1;
}

static int enter_device(void *cookie, int number)
{
	const struct gantry_cuda_road *road = find_road();

	(void)cookie;
	return road && road->enter_device ? road->enter_device(number) : -ENODEV;
}

static void leave_device(void *cookie, int number)
{
	(void)cookie;
	find_road()->leave_device(number); /* which was entered */
}

/* The session is another one after a fork or an end: nothing of the old one means anything. */
static int enter_locked(const struct gantry_cuda_road *road)
{
	struct gantry_session *session = road->session();
	int r;

	if (!session)
		return -ENODEV;
	if (session == way.session)
		return 0;
	for (uint32_t i = 0; way.is_far && i < way.nboxes; i++)
		free(way.boxes[i].at);
	memset(way.boxes, 0, sizeof(way.boxes));
	way.nboxes = 0;
	gantry_stay_clear(&way.stay);
	gantry_call_session_began();
	way.calls = road->calls;
	way.order = road->order;
	way.is_far = road->is_far && road->is_far();
	r = way.calls.kernel_find(session, GANTRY_CALLS_KERNEL_TOGETHER, GANTRY_CALLS_SIGNATURE,
				  &way.kernel);
	way.takes_several = r >= 0;
	if (r < 0)
		r = way.calls.kernel_find(session, GANTRY_CALLS_KERNEL, GANTRY_CALLS_SIGNATURE,
					  &way.kernel);
	if (r < 0)
		return -ENOSYS;
	/* Release: whoever sees it goes on without the lock. */
	gantry_store_release(&way.session, session);
	return 0;
}

/* ---- boxes ---- */

/* Far: brings what the host has said once the task has ended. */
static void fetch(struct box *box)
{
	pthread_mutex_lock(&way.fetching); /* whose box it is looks without the lock */
	if (!box->is_fetched && box->ticket && way.calls.test(box->session, box->ticket) != 0) {
		/* Where it fails nothing was told. */
		(void)way.calls.read(box->session, box->buffer, 0, box->at, box->bytes);
		box->is_fetched = true;
	}
	pthread_mutex_unlock(&way.fetching);
}

static bool is_told(struct box *box)
{
	const uint8_t *word = box->at + offsetof(struct gantry_calls_reply, told);

	if (way.is_far)
		fetch(box);

	/* Acquire: pairs with the release in tell() of the worker; the reply is there. */
	if (gantry_load_acquire((const uint32_t *)(const void *)word) != GANTRY_CALLS_TOLD)
		return false;
	if (way.order)
		way.order();
	return true;
}

/* A call that nobody waited for: its failure is told later. */
static void note_late(const struct gantry_stay_call *call, uint32_t state, uint64_t ret)
{
	struct gantry_call_library *library = call->library;

	if (state == GANTRY_CALLS_UNKNOWN)
		gantry_store_relaxed(&library->late, gantry_call_unsupported(library, call->name));
	else if (state != GANTRY_CALLS_RAN)
		gantry_store_relaxed(&library->late, library->refused);
	else if (ret != 0)
		gantry_store_relaxed(&library->late, (int32_t)ret);
}

static void note_lost(const struct gantry_stay_call *calls, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		gantry_store_relaxed(&calls[i].library->late, calls[i].library->failed);
}

/* What failed of the calls before the box's last, which has been told. */
static void read_failures(const struct box *box)
{
	struct gantry_calls_failure failure;
	struct gantry_calls_reply reply;
	uint64_t at;

	if (box->ncalls < 2)
		return;
	memcpy(&reply, box->at, sizeof(reply));
	if (reply.nfailures == 0 || reply.nfailures >= box->ncalls ||
	    reply.bytes > box->bytes - sizeof(reply))
		return;
	at = sizeof(reply) + ((reply.bytes + 7) & ~7ull);
	for (uint64_t i = 0; i < reply.nfailures; i++, at += sizeof(failure)) {
		if (at > box->bytes - sizeof(failure))
			return;
		memcpy(&failure, box->at + at, sizeof(failure));
		if (failure.place < box->ncalls - 1)
			note_late(&box->calls[failure.place], failure.state, failure.ret);
	}
}

/* What calls answered that nobody waited for. */
static void read_late(struct box *box)
{
	struct gantry_calls_reply reply;

	if (box->is_read || box->ncalls == 0)
		return;
	box->is_read = true;
	if (!is_told(box)) {
		note_lost(box->calls, box->ncalls);
		return;
	}
	read_failures(box);
	memcpy(&reply, box->at, sizeof(reply));
	note_late(&box->calls[box->ncalls - 1], reply.state, reply.ret);
}

/* Boxes whose calls have returned are free; @ended: and those whose tasks ended without. */
static void sweep_locked(bool ended)
{
	for (uint32_t i = 0; i < way.nboxes; i++) {
		struct box *box = &way.boxes[i];

		if (box->is_taken || !box->ticket)
			continue;
		if (is_told(box) || (ended && way.calls.test(way.session, box->ticket) != 0)) {
			read_late(box);
			box->ticket = 0;
		}
	}
}

/* Until the call in the box, the caller's, has returned, or its task has ended. 0; a negative status: there is no answer. */
static int await(struct box *box, gantry_ticket ticket)
{
	for (uint32_t i = way.is_far ? LOOKS : 1; !is_told(box); i++) {
		int r = 0;

		if (i >= LOOKS)
			r = way.calls.wait(box->session, &ticket, 1, NAP_NS);
		else if (i % LOOK_TASK == 0)
			r = way.calls.test(box->session, ticket);
		else
			gantry_cpu_relax();
		if (r == GANTRY_E_TIMEOUT)
			continue;
		/* It ended between the two looks, or without an answer. */
		if (r < 0 || i >= LOOKS || r > 0)
			return is_told(box) ? 0 : r < 0 ? r : GANTRY_E_KERNEL;
	}
	return 0;
}

static int make_box(struct box *box, size_t bytes)
{
	void *at = NULL;
	int r;

	box->session = way.session;
	r = way.calls.alloc(box->session, bytes, GANTRY_ALLOC_HOST | GANTRY_ALLOC_KEPT,
			    &box->buffer);
	if (r < 0) {
		box->buffer = 0;
		return r;
	}
	if (!way.is_far)
		r = way.calls.map(box->session, box->buffer, 0, bytes, GANTRY_RW, GANTRY_FOREVER,
				  &at);
	else if (!(at = calloc(1, bytes)))
		r = GANTRY_E_NO_MEMORY;
	if (r < 0) {
		(void)way.calls.free(box->session, box->buffer); /* nothing uses it */
		box->buffer = 0;
		return r;
	}
	box->at = at;
	box->bytes = bytes;
	return 0;
}

static struct box *free_locked(void)
{
	for (uint32_t i = 0; i < way.nboxes; i++)
		if (!way.boxes[i].is_taken && !way.boxes[i].ticket)
			return &way.boxes[i];
	if (way.nboxes == BOXES || make_box(&way.boxes[way.nboxes], BOX_BYTES) < 0)
		return NULL;
	return &way.boxes[way.nboxes++];
}

/* Ticket of a call that some box waits for; 0: all boxes are in threads' hands. */
static gantry_ticket pending_locked(void)
{
	for (uint32_t i = 0; i < way.nboxes; i++)
		if (!way.boxes[i].is_taken && way.boxes[i].ticket)
			return way.boxes[i].ticket;
	return 0;
}

static struct box *take_locked(void)
{
	for (bool ended = false;; ended = true) {
		struct box *box;
		gantry_ticket ticket;

		sweep_locked(ended);
		box = free_locked();
		if (box) {
			box->is_taken = true;
			return box;
		}
		if (!ended)
			continue;
		ticket = pending_locked();
		if (ticket) {
			struct gantry_session *session = way.session;
			int r;

			(void)pthread_mutex_unlock(&way.lock);
			r = way.calls.wait(session, &ticket, 1, NAP_NS);
			(void)pthread_mutex_lock(&way.lock);
			/* A failure of the task is what sweeping finds. */
			if ((r <= -100 && r > -200) || way.session != session)
				return NULL;
		} else {
			bool any = false;

			for (uint32_t i = 0; i < way.nboxes; i++)
				any = any || way.boxes[i].is_taken;
			if (!any)
				return NULL; /* the heap has no room */
			pthread_cond_wait(&way.given, &way.lock);
		}
	}
}

/* ---- order ---- */

/* A call that has no box has returned. */
static struct box *box_of(gantry_ticket ticket)
{
	for (uint32_t i = 0; i < way.nboxes; i++)
		if (way.boxes[i].ticket == ticket)
			return &way.boxes[i];
	return NULL;
}

static bool is_under_way_locked(gantry_ticket ticket)
{
	struct box *box = box_of(ticket);

	return box && !is_told(box);
}

/* Some time without the lock. Whether the task of @ticket has ended, where that was looked at. */
static bool pause_unlocked(struct gantry_session *session, gantry_ticket ticket, uint32_t round)
{
	if (round >= LOOKS / LOOK_LOCKED)
		return way.calls.wait(session, &ticket, 1, NAP_NS) != GANTRY_E_TIMEOUT;
	if (round % (LOOK_TASK / LOOK_LOCKED) == 0)
		return way.calls.test(session, ticket) != 0;
	for (uint32_t i = 0; i < LOOK_LOCKED; i++)
		gantry_cpu_relax();
	return false;
}

/*
 * The earlier call may take long, and others have nothing to do with it: the lock is given up meanwhile. Its failure is told
 * elsewhere. -ETIME: it may as well wait for what the program does only behind this call. -ENODEV: the session has ended.
 */
static int order_locked(gantry_ticket ticket, uint64_t end_ns)
{
	struct gantry_session *session = way.session;
	bool over = false;

	for (uint32_t round = 1; !over && is_under_way_locked(ticket); round++) {
		if (gantry_now_ns() > end_ns)
			return -ETIME;
		(void)pthread_mutex_unlock(&way.lock);
		over = pause_unlocked(session, ticket, round);
		(void)pthread_mutex_lock(&way.lock);
		if (way.session != session)
			return -ENODEV;
	}
	return 0;
}

/* ---- one call ---- */

/* With what stays, if it takes that along, or that alone. */
struct message {
	const struct gantry_call_route *route; /* NULL: what stays goes alone */
	struct gantry_call_library *library;
	const void *request;
	size_t bytes;
	size_t reply_bytes;
	gantry_queue queue;
	gantry_queue apart; /* of the same device; 0: nobody knows */
	bool takes;	    /* what stays along; by order_all_locked() */
};

static bool is_in(const struct box *box, gantry_queue queue)
{
	return queue && GANTRY_TICKET_QUEUE(box->ticket) == GANTRY_HANDLE_SLOT(queue);
}

/* Whether what stays may be made on another queue of its device, where the message goes: nothing of it is held up by that one's stream that was not anyhow. */
static bool may_change_locked(const struct message *message)
{
	const struct gantry_stay *stay = &way.stay;

	if (stay->queue != message->apart ||
	    !gantry_stay_is_about(stay, message->route->handles, message->route->nhandles))
		return false;
	/* It stays behind what it is behind. */
	for (uint32_t i = 0; i < way.nboxes; i++) {
		struct box *box = &way.boxes[i];

		if (box->ticket && !is_in(box, message->queue) &&
		    (is_in(box, stay->queue) ||
		     gantry_stay_shares(stay, box->handles, box->nhandles)) &&
		    !is_told(box))
			return false;
	}
	return true;
}

static size_t room_for_failures(void)
{
	return way.stay.n * sizeof(struct gantry_calls_failure);
}

static bool takes_locked(const struct message *message)
{
	const struct gantry_stay *stay = &way.stay;

	if (stay->n == 0 || !message->route)
		return stay->n != 0;
	if (stay->bytes + message->bytes > BOX_BYTES ||
	    message->reply_bytes + room_for_failures() > BOX_BYTES)
		return false;
	return message->queue == stay->queue || may_change_locked(message);
}

/* What stays has to be made before, and does not go along. */
static bool is_in_the_way_locked(const struct message *message)
{
	return way.stay.n > 0 && !takes_locked(message) &&
	       gantry_stay_shares(&way.stay, message->route->handles, message->route->nhandles);
}

static bool comes_after_locked(const struct message *message, const struct box *box)
{
	if (!box->ticket || is_in(box, message->queue))
		return false;
	return (message->route &&
		gantry_stay_share(message->route->handles, message->route->nhandles, box->handles,
				  box->nhandles)) ||
	       (message->takes && gantry_stay_shares(&way.stay, box->handles, box->nhandles));
}

/* Besides 0 and what is negative. */
enum outcome {
	STAY_FIRST = 1, /* what stays has to go first */
	NOTHING = 2,	/* there is nothing to go */
};

#define PASSES 4u /* looks for what comes before; then all that is found is late */

static bool is_among(gantry_ticket ticket, const gantry_ticket *tickets, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (tickets[i] == ticket)
			return true;
	return false;
}

static uint32_t drop_told_locked(gantry_ticket *tickets, uint32_t n)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < n; i++)
		if (is_under_way_locked(tickets[i]))
			tickets[left++] = tickets[i];
	return left;
}

/*
 * Behind what comes before in other queues than the message's; 0: in all. What takes long is left to @ret_after: the worker begins behind its end. That
 * is later than it has to be, so it is not done at once. Nothing has changed since the last look when this returns. Or STAY_FIRST.
 */
static int order_all_locked(struct message *message, gantry_ticket ret_after[BOXES],
			    uint32_t *ret_nafter)
{
	const uint64_t end_ns = gantry_now_ns() + ORDER_NS;
	gantry_ticket tickets[BOXES];
	uint32_t n;
	int r = 0;

	*ret_nafter = 0;
	for (uint32_t pass = 0;; pass++) {
		*ret_nafter = drop_told_locked(ret_after, *ret_nafter);
		if (message->route && is_in_the_way_locked(message))
			return STAY_FIRST;
		message->takes = takes_locked(message);
		if (!message->route)
			message->queue = way.stay.queue;
		n = 0;
		for (uint32_t i = 0; i < way.nboxes; i++)
			if (comes_after_locked(message, &way.boxes[i]) &&
			    !is_among(way.boxes[i].ticket, ret_after, *ret_nafter) &&
			    !is_told(&way.boxes[i]))
				tickets[n++] = way.boxes[i].ticket;
		if (n == 0)
			return 0;
		for (uint32_t i = 0; i < n; i++) {
			r = pass < PASSES ? order_locked(tickets[i], end_ns) : -ETIME;
			if (r == -ETIME && *ret_nafter < BOXES)
				ret_after[(*ret_nafter)++] = tickets[i];
			if (r == -ENODEV)
				return r;
		}
	}
}

static void *stream_of(const struct gantry_call_route *route)
{
	return route->has_stream ? route->stream : NULL;
}

/* The requests, and whose they are. So many bytes. */
static size_t fill_locked(const struct message *message, struct box *box)
{
	size_t bytes = 0;

	box->ncalls = box->nhandles = 0;
	/* Whatever was told here before is over with it. */
	if (message->takes) {
		bytes = gantry_stay_take(&way.stay, box->at, message->route != NULL);
		box->ncalls = way.stay.n;
		memcpy(box->calls, way.stay.calls, box->ncalls * sizeof(box->calls[0]));
		box->nhandles = way.stay.nhandles;
		memcpy(box->handles, way.stay.handles, box->nhandles * sizeof(box->handles[0]));
	}
	if (!message->route)
		return bytes;
	memcpy(box->at + bytes, message->request, message->bytes);
	box->calls[box->ncalls++] = (struct gantry_stay_call){ .library = message->library,
							       .name = message->route->name };
	memcpy(box->handles + box->nhandles, message->route->handles,
	       message->route->nhandles * sizeof(box->handles[0]));
	box->nhandles += message->route->nhandles;
	return bytes + message->bytes;
}

/* 0, an outcome, or negative. What is taken along stays where this fails. */
static int submit_locked(const struct gantry_cuda_road *road, struct message *message,
			 struct box *box)
{
	uint64_t args[2] = { 0, 0 };
	struct gantry_access access[1 + GANTRY_CUDA_ROAD_USES] = { { .buffer = box->buffer,
								     .mode = GANTRY_RW } };
	struct gantry_task task = {
		.kernel = way.kernel,
		.args = args,
		.args_bytes = sizeof(args),
		.naccess = 1,
		.access = access,
	};
	gantry_ticket after[BOXES], ticket;
	int r = order_all_locked(message, after, &task.nafter);

	if (r == 0 && !message->route && !message->takes)
		r = NOTHING;
	if (r != 0)
		return r;
	task.after = after;
	if (road->uses)
		task.naccess += road->uses(access + 1, GANTRY_CUDA_ROAD_USES);
	args[1] = fill_locked(message, box);
	box->is_fetched = false;
	if (way.is_far)
		r = way.calls.write(way.session, box->buffer, 0, box->at, args[1]);
	if (r == 0)
		r = way.calls.submit(way.session, message->queue, &task, 1, &ticket);
	if (r < 0)
		return r;
	box->ticket = ticket;
	if (message->takes)
		gantry_stay_clear(&way.stay);
	if (road->put && message->route && !message->route->is_apart)
		road->put(stream_of(message->route), ticket);
	return 0;
}

/* The reply is copied once. */
static int collect(const struct message *message, struct box *box, void *reply)
{
	if (await(box, box->ticket) < 0) {
		note_lost(box->calls, box->ncalls - 1);
		return -EIO;
	}
	memcpy(reply, box->at, message->reply_bytes);
	read_failures(box);
	return 0;
}

/* The box's calls are under way, or it is free again. */
static void put_back_locked(struct box *box, bool is_under_way, bool is_read)
{
	box->is_taken = false;
	if (!is_under_way)
		box->ticket = 0;
	box->is_read = is_read;
	pthread_cond_signal(&way.given);
}

static void lose_stay_locked(void)
{
	note_lost(way.stay.calls, way.stay.n);
	gantry_stay_clear(&way.stay);
}

/* What stays goes now, alone. Where it cannot, that is told later, as of any call that nobody waited for. */
static void send_stay_locked(const struct gantry_cuda_road *road)
{
	struct message message = { .queue = way.stay.queue };
	struct box *box = take_locked();
	int r;

	if (!box) {
		lose_stay_locked();
		return;
	}
	r = submit_locked(road, &message, box);
	put_back_locked(box, r == 0, false);
	if (r < 0)
		lose_stay_locked();
}

static bool may_hold(const struct gantry_cuda_road *road, const struct gantry_call_route *route)
{
	return road->hold && road->let_go && road->put && !route->is_apart;
}

static int find_queue(const struct gantry_cuda_road *road, struct message *message)
{
	const struct gantry_call_route *route = message->route;
	int r;

	if (route->is_apart && road->apart) {
		r = road->apart(&message->queue);
		message->apart = message->queue;
		return r;
	}
	if (may_hold(road, route))
		return road->hold(stream_of(route), &message->queue, &message->apart);
	if (road->place)
		return road->place(stream_of(route), &message->queue, &message->apart);
	return road->queue(stream_of(route), &message->queue);
}

/*
 * From the time that its queue is known until the call is there the stream is this thread's: another may put a graph into it, and give the library's
 * lock up meanwhile. Way's lock is not held, for that may take until the graph is there. @session: whose the box is.
 */
static int put_call(const struct gantry_cuda_road *road, struct message *message,
		    const struct gantry_session *session, struct box *box)
{
	const struct gantry_call_route *route = message->route;
	int r = find_queue(road, message);

	if (r < 0)
		return r;
	pthread_mutex_lock(&way.lock);
	r = way.session == session ? submit_locked(road, message, box) : -ENODEV;
	pthread_mutex_unlock(&way.lock);
	if (r != 0 && may_hold(road, route))
		road->let_go(stream_of(route));
	return r;
}

static size_t buffer_bytes(const struct message *message)
{
	return message->bytes > message->reply_bytes ? message->bytes : message->reply_bytes;
}

/* A call that is longer than a box: in a buffer made for it, and waited for. */
static int carry_long(const struct gantry_cuda_road *road, struct message *message, void *reply)
{
	struct box box = { 0 };
	bool is_far;
	int r;

	pthread_mutex_lock(&way.lock);
	is_far = way.is_far;
	r = make_box(&box, buffer_bytes(message));
	pthread_mutex_unlock(&way.lock);
	while (r == 0 && (r = put_call(road, message, box.session, &box)) == STAY_FIRST) {
		pthread_mutex_lock(&way.lock);
		send_stay_locked(road);
		pthread_mutex_unlock(&way.lock);
		r = 0;
	}
	if (r == 0)
		r = message->route->waits ? collect(message, &box, reply) : await(&box, box.ticket);
	pthread_mutex_lock(&way.lock);
	/* What was submitted keeps the memory until it is done. With its session it is gone. */
	if (box.buffer && way.session == box.session)
		(void)way.calls.free(box.session, box.buffer);
	pthread_mutex_unlock(&way.lock);
	if (is_far)
		free(box.at);
	return r < 0 ? -EIO : 0;
}

static int carry_short(const struct gantry_cuda_road *road, struct message *message, void *reply)
{
	const struct gantry_session *session;
	struct box *box;
	int r = 0;

	do {
		pthread_mutex_lock(&way.lock);
		if (r == STAY_FIRST)
			send_stay_locked(road);
		box = take_locked();
		session = way.session;
		pthread_mutex_unlock(&way.lock);
		if (!box)
			return -ENOMEM;
		r = put_call(road, message, session, box);
		if (r == 0 && message->route->waits)
			r = collect(message, box, reply);
		pthread_mutex_lock(&way.lock);
		put_back_locked(box, r == 0 && !message->route->waits, message->route->waits);
		pthread_mutex_unlock(&way.lock);
	} while (r == STAY_FIRST);
	return r < 0 ? -EIO : 0;
}

/* Whether the call may stay behind what stays already. */
static bool joins_locked(const struct message *message)
{
	const struct gantry_stay *stay = &way.stay;

	return gantry_stay_has_room(stay, message->bytes, message->route->nhandles) &&
	       (stay->n == 0 || message->queue == stay->queue);
}

/* On a stream of the program's own it would have to go there, between what others put. */
static bool may_stay(const struct gantry_cuda_road *road, struct message *message)
{
	const struct gantry_call_route *route = message->route;
	int r;

	if (!route->may_stay || !way.takes_several || message->bytes > STAY_BYTES || !road->apart ||
	    !road->place)
		return false;
	if (route->is_apart) {
		r = road->apart(&message->queue);
		message->apart = message->queue;
	} else {
		r = road->place(stream_of(route), &message->queue, &message->apart);
	}
	return r == 0 && message->queue == message->apart;
}

static int carry_later(const struct gantry_cuda_road *road, const struct message *message)
{
	struct gantry_session *session;
	int r = 0;

	pthread_mutex_lock(&way.lock);
	session = way.session;
	while (!joins_locked(message) && way.session == session)
		send_stay_locked(road);
	if (way.session != session) {
		r = -ENODEV;
	} else {
		gantry_stay_add(&way.stay, message->library, message->route, message->request,
				message->bytes);
		way.stay.queue = message->queue;
	}
	pthread_mutex_unlock(&way.lock);
	return r;
}

/* Of each queue the newest: the others end before it. */
static uint32_t keep_newest(gantry_ticket *tickets, uint32_t n)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = 0;

		while (at < left &&
		       GANTRY_TICKET_QUEUE(tickets[at]) != GANTRY_TICKET_QUEUE(tickets[i]))
			at++;
		if (at == left)
			tickets[left++] = tickets[i];
		else if (tickets[at] < tickets[i])
			tickets[at] = tickets[i];
	}
	return left;
}

struct captured {
	const struct gantry_cuda_road *road;
	const struct message *message;
};

/*
 * What the handles of a call have under way when it becomes a node, for the graph knows nothing of that: it is waited for, and what takes long
 * the node comes behind. That may wait for what the program does only behind the capture.
 */
static uint32_t settle(void *cookie, gantry_ticket *ret_after)
{
	const struct captured *captured = cookie;
	struct message message = { .route = captured->message->route };
	uint32_t n = 0;
	int r;

	static_assert(BOXES <= GANTRY_CUDA_ROAD_AFTER, "each may be under way");
	pthread_mutex_lock(&way.lock);
	if (way.stay.n > 0)
		send_stay_locked(captured->road);
	while ((r = order_all_locked(&message, ret_after, &n)) == STAY_FIRST)
		send_stay_locked(captured->road);
	pthread_mutex_unlock(&way.lock);
	/* With its session the graph has ended, too. */
	return r < 0 ? 0 : keep_newest(ret_after, n);
}

/* 1: the call's stream is captured, and the call is a node now. */
static int capture(const struct gantry_cuda_road *road, const struct message *message)
{
	const struct gantry_call_route *route = message->route;
	struct captured captured = { road, message };
	const struct gantry_cuda_road_node node = {
		.kernel = way.kernel,
		.message = message->request,
		.bytes = message->bytes,
		.room = ((message->bytes + 7) & ~7ul) + message->reply_bytes,
		.waits = route->waits && route->nanswers == 0,
		.answers = route->answers,
		.nanswers = route->nanswers,
		.behind = settle,
		.cookie = &captured,
	};
	int r;

	if (!road->capture || !route->has_stream)
		return 0;
	r = road->capture(route->stream, &node);
	return r < 0 ? -EIO : r;
}

/* What asks in a captured stream is no part of the graph, as natively: it goes behind the calls that used its handles. */
static bool asks_beside(const struct gantry_cuda_road *road, const struct gantry_call_route *route)
{
	return route->asks && route->has_stream && road->captures && road->apart &&
	       road->captures(route->stream);
}

/* A child has no session, and none of the threads that may have had the lock. */
static void in_child(void)
{
	(void)pthread_mutex_init(&way.lock, NULL);
	(void)pthread_mutex_init(&way.fetching, NULL);
	(void)pthread_cond_init(&way.given, NULL);
	way.session = NULL;
}

static void watch_forks(void)
{
	(void)pthread_atfork(NULL, NULL, in_child); /* or a child may hang */
}

static int enter_session(const struct gantry_cuda_road *road)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct gantry_session *session = road->session();
	int r;

	/* Acquire: pairs with the release in enter_locked(). */
	if (session && session == gantry_load_acquire(&way.session))
		return 0;
	(void)pthread_once(&once, watch_forks);
	pthread_mutex_lock(&way.lock);
	r = enter_locked(road);
	pthread_mutex_unlock(&way.lock);
	return r;
}

static void enter(void *cookie)
{
	const struct gantry_cuda_road *road = find_road();

	(void)cookie;
	if (road)
		(void)enter_session(road); /* the call that follows says why there is none */
}

static int carry(void *cookie, struct gantry_call_library *library,
		 const struct gantry_call_route *asked, const void *request, size_t bytes,
		 void *reply, size_t reply_bytes)
{
	const struct gantry_cuda_road *road = find_road();
	struct gantry_call_route beside = *asked;
	const struct gantry_call_route *route = &beside;
	struct message message = {
		.route = route, .library = library, .request = request, .bytes = bytes
	};
	int r;

	(void)cookie;
	if (!road)
		return -ENODEV;
	if (asks_beside(road, asked)) {
		beside.has_stream = false;
		beside.is_apart = true;
	}
	message.reply_bytes = reply ? reply_bytes : sizeof(struct gantry_calls_reply);
	r = enter_session(road);
	if (r == 0)
		r = capture(road, &message);
	if (r != 0)
		return r;
	if (may_stay(road, &message))
		return carry_later(road, &message);
	r = buffer_bytes(&message) > BOX_BYTES ? carry_long(road, &message, reply)
					       : carry_short(road, &message, reply);
	if (r == 0 && route->waits) {
		pthread_mutex_lock(&way.lock);
		sweep_locked(false);
		pthread_mutex_unlock(&way.lock);
	}
	return r;
}

static int mem_alloc(void *cookie, uint64_t bytes, uint64_t *ret_address)
{
	const struct gantry_cuda_road *road = find_road();

	(void)cookie;
	if (!road || !road->mem_alloc)
		return -ENODEV;
	return road->mem_alloc(bytes, ret_address) < 0 ? -ENOMEM : 0;
}

static int mem_free(void *cookie, uint64_t address)
{
	const struct gantry_cuda_road *road = find_road();

	(void)cookie;
	return road && road->mem_free && road->mem_free(address) == 0 ? 0 : -EINVAL;
}

const struct gantry_call_road gantry_call_road_session = {
	.enter = enter,
	.carry = carry,
	.is_device = is_device,
	.unsupported = unsupported,
	.device = device,
	.mem_alloc = mem_alloc,
	.mem_free = mem_free,
	.enter_device = enter_device,
	.leave_device = leave_device,
};
