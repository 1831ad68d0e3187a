/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/guest-shim/fake_host.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "proto/segment.h"
#include "tests/unit/guest-shim/fake_door.h"

#define TICK_MS FAKE_TICK_MS

static const struct fake_door *const doors[] = { &fake_door_unix, &fake_door_ivshmem,
						 &fake_door_stream };

static const struct fake_door *door_of_environment(void)
{
	const char *name = getenv("GANTRY_TEST_DOOR");

	for (size_t i = 0; name && i < sizeof(doors) / sizeof(doors[0]); i++)
		if (strcmp(name, doors[i]->name) == 0)
			return doors[i];
	return &fake_door_unix;
}

bool fake_host_shares_memory(void)
{
	return door_of_environment() != &fake_door_stream;
}

void fake_host_init(struct fake_host *h)
{
	*h = (struct fake_host){
		.door = door_of_environment(),
		.answer = FAKE_WELCOME,
		.refuse_status = GANTRY_E_FULL,
		.nqueues = 8,
		.nslots = 16,
		.heap_bytes = 4u << 20,
		.segment_fd = -1,
		.bell = -1,
	};
}

/* ---- the host: operations ---- */

static struct fake_buffer *find_buffer(struct fake_host *h, uint64_t handle)
{
	for (uint32_t i = 0; i < h->nbuffers; i++)
		if (h->buffers[i].handle == handle && h->buffers[i].mem)
			return &h->buffers[i];
	return NULL;
}

void fake_host_settle(struct fake_host *h)
{
	pthread_mutex_lock(&h->lock);
	pthread_mutex_unlock(&h->lock);
}

const struct fake_buffer *fake_host_buffer(struct fake_host *h, uint64_t handle)
{
	fake_host_settle(h);
	return find_buffer(h, handle);
}

static uint8_t *span(struct fake_host *h, uint64_t handle, uint64_t off, uint64_t bytes)
{
	const struct fake_buffer *b = find_buffer(h, handle);

	return b && off <= b->bytes && bytes <= b->bytes - off ? b->mem + off : NULL;
}

static int run_task(struct fake_host *h, const struct gantry_desc *desc,
		    const union gantry_op_any *op)
{
	uint8_t *dst, *src;

	switch (desc->op) {
	case GANTRY_OP_launch:
		return -(int)op->launch.est_us;
	case GANTRY_OP_write:
		dst = span(h, op->write.buffer, op->write.off, op->write.bytes);
		if (!dst)
			return GANTRY_E_SPAN;
		memcpy(dst, h->heap + op->write.heap_off, op->write.bytes);
		return 0;
	case GANTRY_OP_read:
		src = span(h, op->read.buffer, op->read.off, op->read.bytes);
		if (!src)
			return GANTRY_E_SPAN;
		memcpy(h->heap + op->read.heap_off, src, op->read.bytes);
		return 0;
	case GANTRY_OP_copy:
		dst = span(h, op->copy.dst, op->copy.dst_off, op->copy.bytes);
		src = span(h, op->copy.src, op->copy.src_off, op->copy.bytes);
		if (!dst || !src)
			return GANTRY_E_SPAN;
		memmove(dst, src, op->copy.bytes);
		return 0;
	case GANTRY_OP_fill:
		dst = span(h, op->fill.buffer, op->fill.off, op->fill.bytes);
		if (!dst)
			return GANTRY_E_SPAN;
		for (uint64_t i = 0; i < op->fill.bytes; i++)
			dst[i] = (uint8_t)(op->fill.pattern >> (8 * (i % op->fill.pattern_bytes)));
		return 0;
	default:
		return 0;
	}
}

static uint64_t done_of(const struct fake_host *h, uint32_t queue)
{
	return gantry_load_relaxed(&h->rings[queue].map.area->done);
}

static bool tickets_done(struct fake_host *h, const struct gantry_op_wait *w)
{
	const uint64_t tickets[] = { w->ticket0, w->ticket1, w->ticket2,
				     w->ticket3, w->ticket4, w->ticket5 };

	for (int i = 0; i < 6; i++)
		if (tickets[i] &&
		    done_of(h, GANTRY_TICKET_QUEUE(tickets[i])) < GANTRY_TICKET_SEQ(tickets[i]))
			return false;
	return true;
}

static int make_buffer(struct fake_host *h, const struct gantry_op_buf_alloc *a,
		       uint64_t *ret_handle)
{
	struct fake_buffer *b = &h->buffers[h->nbuffers];

	if (gantry_load_relaxed(&h->nagain) > 0) {
		gantry_fetch_sub(&h->nagain, 1);
		return GANTRY_E_AGAIN;
	}
	if (h->nbuffers == FAKE_BUFFERS)
		return GANTRY_E_LIMIT;
	b->is_heap = a->alloc_flags == GANTRY_ALLOC_HOST;
	b->mem = b->is_heap ? h->heap + a->heap_off : calloc(1, a->bytes);
	b->bytes = a->bytes;
	b->handle = GANTRY_HANDLE(GANTRY_HANDLE_BUFFER, 1, ++h->nhandles);
	*ret_handle = b->handle;
	h->nbuffers++;
	return 0;
}

static void free_buffer(struct fake_buffer *b)
{
	if (!b->is_heap)
		free(b->mem);
	b->mem = NULL;
}

static int open_queue(struct fake_host *h, struct gantry_reply_queue *ret_queue)
{
	for (uint32_t i = 1; i < h->nqueues; i++) {
		if (h->queue_open[i])
			continue;
		h->queue_open[i] = true;
		*ret_queue = (struct gantry_reply_queue){
			.handle = GANTRY_HANDLE(GANTRY_HANDLE_QUEUE, 1 + h->nhandles++, i),
			.slot = i,
			.next_seq = h->rings[i].head + 1,
		};
		return 0;
	}
	return GANTRY_E_LIMIT;
}

static void run_control(struct fake_host *h, const struct gantry_desc *desc,
			const union gantry_op_any *op, struct gantry_reply *reply)
{
	struct gantry_reply_handle handle = { 0 };
	struct gantry_reply_queue queue;
	struct gantry_reply_props props = { .ndevices = 1, .lanes = 4, .name = "fake" };
	struct gantry_reply_stats stats = { .tasks_finished = 7 };
	const void *data = &handle;

	reply->len_bytes = sizeof(handle);
	switch (desc->op) {
	case GANTRY_OP_buf_alloc:
		reply->status = make_buffer(h, &op->buf_alloc, &handle.handle);
		break;
	case GANTRY_OP_buf_free:
		for (uint32_t i = 0; i < h->nbuffers; i++)
			if (h->buffers[i].handle == op->buf_free.buffer && h->buffers[i].mem)
				free_buffer(&h->buffers[i]);
		break;
	case GANTRY_OP_kernel_get:
		handle.handle = GANTRY_HANDLE(GANTRY_HANDLE_KERNEL, 1, ++h->nhandles);
		break;
	case GANTRY_OP_image_load:
		handle.handle = GANTRY_HANDLE(GANTRY_HANDLE_IMAGE, 1, ++h->nhandles);
		break;
	case GANTRY_OP_queue_open:
		reply->status = open_queue(h, &queue);
		reply->len_bytes = sizeof(queue);
		data = &queue;
		break;
	case GANTRY_OP_queue_close:
		h->queue_open[GANTRY_HANDLE_SLOT(op->queue_close.queue)] = false;
		break;
	case GANTRY_OP_props:
		reply->len_bytes = sizeof(props);
		data = &props;
		break;
	case GANTRY_OP_stats:
		reply->len_bytes = sizeof(stats);
		data = &stats;
		break;
	default:
		break;
	}
	if (reply->status == 0)
		memcpy(reply->data, data, reply->len_bytes);
	else
		snprintf(reply->text, sizeof(reply->text), "the fake host says %d", reply->status);
}

/* ---- the host: rings ---- */

static void remember(struct fake_host *h, uint32_t queue, const struct gantry_desc *desc,
		     const struct gantry_inline *inl)
{
	uint32_t n = gantry_load_relaxed(&h->nseen);
	struct fake_seen *seen = &h->seen[n % FAKE_SEEN];
	uint32_t len = desc->len_bytes < sizeof(seen->var) ? desc->len_bytes
							   : (uint32_t)sizeof(seen->var);

	seen->queue = queue;
	seen->seq = h->rings[queue].head + 1;
	seen->desc = *desc;
	memcpy(seen->var, desc->flags & GANTRY_DESC_INLINE ? inl->bytes : h->heap + desc->off_bytes,
	       len);
	gantry_store_release(&h->nseen, n + 1);
}

/* One operation of a ring; false if there is none that can be served. */
static bool serve(struct fake_host *h, uint32_t queue)
{
	struct gantry_ring_consumer *c = &h->rings[queue];
	uint64_t pos = c->head;
	union gantry_op_any op;
	struct gantry_inline inl;
	struct gantry_desc desc;
	int status;

	if (gantry_load_relaxed(queue ? &h->hold_tasks : &h->hold_control) ||
	    gantry_ring_ready(c) <= 0)
		return false;
	gantry_ring_peek(c, &desc, &inl);
	status = gantry_desc_decode(&desc, queue == 0, 1, &op);
	if (status == 0 && desc.op == GANTRY_OP_wait && !tickets_done(h, &op.wait))
		return false;
	remember(h, queue, &desc, &inl);
	gantry_ring_step(c);
	if (queue == 0) {
		struct gantry_reply reply = { .status = status };

		if (status == 0)
			run_control(h, &desc, &op, &reply);
		status = reply.status;
		gantry_ring_reply(c, pos, &reply);
	} else if (status == 0) {
		status = run_task(h, &desc, &op);
	}
	h->nfailed[queue] += status != 0;
	gantry_ring_set_status(c, pos, status, h->nfailed[queue]);
	gantry_ring_complete(c, pos + 1);
	gantry_ring_wake(c);
	gantry_ring_publish_head(c); /* last: it may lag behind done */
	return true;
}

static bool serve_all(struct fake_host *h)
{
	bool any = false;

	pthread_mutex_lock(&h->lock);
	for (uint32_t i = 0; i < h->nqueues; i++)
		while (serve(h, i))
			any = true;
	pthread_mutex_unlock(&h->lock);
	return any;
}

static void sleep_till_bell(struct fake_host *h)
{
	struct pollfd pfd = { .fd = h->bell, .events = POLLIN };
	uint64_t count;

	for (uint32_t i = 0; i < h->nqueues; i++)
		gantry_ring_park(&h->rings[i]);
	if (!serve_all(h) && poll(&pfd, 1, TICK_MS) > 0 && read(h->bell, &count, sizeof(count)) > 0)
		gantry_count_add(&h->nkicks, (uint32_t)count);
	for (uint32_t i = 0; i < h->nqueues; i++)
		gantry_ring_unpark(&h->rings[i]);
}

static void *host_main(void *arg)
{
	struct fake_host *h = arg;

	while (!gantry_load_acquire(&h->stop))
		if (!serve_all(h)) {
			if (h->is_awake)
				(void)sched_yield();
			else
				sleep_till_bell(h);
		}
	return NULL;
}

/* ---- the agent ---- */

static void send_refuse(struct fake_host *h, uint16_t kind, int status, const char *text)
{
	struct gantry_door_refuse msg = { .status = status, .version_min = 1, .version_max = 1 };

	gantry_door_header_init(&msg.h, kind, 0);
	snprintf(msg.text, sizeof(msg.text), "%s", text);
	h->door->send(h, &msg, sizeof(msg));
}

static void send_welcome(struct fake_host *h)
{
	struct gantry_door_welcome msg = {
		.version = 1,
		.props = h->props,
		.session_id = 42,
		.segment_bytes = h->segment_bytes,
		.address = h->address,
		.nqueues = h->nqueues,
		.nslots = h->nslots,
	};

	gantry_door_header_init(&msg.h, GANTRY_DOOR_WELCOME, 0);
	if (h->mangle)
		h->mangle(h, &msg);
	h->door->welcome(h, &msg);
}

void fake_host_greet(struct fake_host *h)
{
	switch (h->answer) {
	case FAKE_REFUSE:
		send_refuse(h, GANTRY_DOOR_REFUSE, h->refuse_status, "the fake agent refuses");
		break;
	case FAKE_MAKES_WAY:
		send_refuse(h, GANTRY_DOOR_NOTICE, GANTRY_E_AGAIN, "another agent comes");
		break;
	case FAKE_GARBAGE:
		h->door->send(h, "garbage", 7);
		break;
	case FAKE_WRONG_KIND: {
		struct gantry_door_shared shared = { .status = 0 };

		gantry_door_header_init(&shared.h, GANTRY_DOOR_SHARED, 0);
		h->door->send(h, &shared, sizeof(shared));
		break;
	}
	case FAKE_SILENCE:
		break;
	case FAKE_HANG_UP:
		h->door->hang_up(h);
		break;
	default:
		send_welcome(h);
	}
}

static void answer_share(struct fake_host *h, const struct gantry_door_share *msg)
{
	struct gantry_door_shared late = { .status = GANTRY_E_DENIED }, answer = { .status = 0 };

	/* An answer to a question of long ago, which the guest must not take for this one's. */
	gantry_door_header_init(&late.h, GANTRY_DOOR_SHARED, msg->h.tag - 1);
	h->door->send(h, &late, sizeof(late));
	gantry_store_relaxed(&h->shared, msg->buffer);
	memset(answer.token, 0x5a, sizeof(answer.token));
	gantry_door_header_init(&answer.h, GANTRY_DOOR_SHARED, msg->h.tag);
	h->door->send(h, &answer, sizeof(answer));
}

static void answer_adopt(struct fake_host *h, const struct gantry_door_adopt *msg)
{
	struct gantry_door_adopted answer = { .mode = GANTRY_RW, .bytes = 4096 };

	if (!gantry_load_relaxed(&h->shared) || msg->token[0] != 0x5a)
		answer.status = GANTRY_E_NOT_FOUND;
	answer.buffer = GANTRY_HANDLE(GANTRY_HANDLE_BUFFER, 2, 1000);
	gantry_door_header_init(&answer.h, GANTRY_DOOR_ADOPTED, msg->h.tag);
	h->door->send(h, &answer, sizeof(answer));
}

void fake_host_answer(struct fake_host *h, const void *msg, size_t len)
{
	uint16_t kind;

	if (gantry_load_relaxed(&h->mute_door) || gantry_door_check(msg, len, &kind) < 0)
		return;
	if (kind == GANTRY_DOOR_SHARE)
		answer_share(h, msg);
	else if (kind == GANTRY_DOOR_ADOPT)
		answer_adopt(h, msg);
}

static void *agent_main(void *arg)
{
	struct fake_host *h = arg;

	while (!gantry_load_acquire(&h->stop))
		h->door->step(h);
	return NULL;
}

/* ---- life ---- */

static void make_segment(struct fake_host *h)
{
	uint64_t stride = gantry_ring_stride_bytes(h->nslots);
	uint64_t queues_end = GANTRY_PAGE + h->nqueues * stride;
	uint64_t heap_off = (queues_end + GANTRY_SEGMENT_HEAP_ALIGN - 1) &
			    ~(uint64_t)(GANTRY_SEGMENT_HEAP_ALIGN - 1);
	struct gantry_region region;

	h->segment_bytes = heap_off + h->heap_bytes;
	h->door->open(h);
	h->segment = mmap(NULL, h->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, h->segment_fd,
			  (off_t)h->segment_off);
	assert(h->segment != MAP_FAILED);
	h->heap = h->segment + heap_off;
	h->header = (struct gantry_segment_header *)h->segment;
	*h->header = (struct gantry_segment_header){
		.magic = GANTRY_WIRE_MAGIC,
		.version = 1,
		.nqueues = h->nqueues,
		.nslots = h->nslots,
		.queue_stride_bytes = (uint32_t)stride,
		.queues_off = GANTRY_PAGE,
		.heap_off = heap_off,
		.heap_bytes = h->heap_bytes,
		.segment_bytes = h->segment_bytes,
		.session_id = 42,
		.state = GANTRY_SESSION_ATTACHED,
	};
	region = (struct gantry_region){ h->segment, h->segment_bytes };
	for (uint32_t i = 0; i < h->nqueues; i++) {
		struct gantry_ring_map map;

		if (gantry_ring_map_init(&map, &region, GANTRY_PAGE, i, h->nslots) < 0)
			abort();
		gantry_ring_consumer_init(&h->rings[i], &map, 0, 0);
	}
}

void fake_host_start(struct fake_host *h)
{
	pthread_mutex_init(&h->lock, NULL);
	h->bell = eventfd(0, EFD_CLOEXEC); /* blocking: the guest has to see to that */
	make_segment(h);
	h->seen = calloc(FAKE_SEEN, sizeof(*h->seen));
	pthread_create(&h->agent_thread, NULL, agent_main, h);
	pthread_create(&h->host_thread, NULL, host_main, h);
	h->started = true;
}

void fake_host_stop(struct fake_host *h)
{
	gantry_store_release(&h->stop, 1);
	pthread_join(h->agent_thread, NULL);
	pthread_join(h->host_thread, NULL);
	for (uint32_t i = 0; i < h->nbuffers; i++)
		free_buffer(&h->buffers[i]);
	free(h->seen);
	munmap(h->segment, h->segment_bytes);
	h->door->close(h);
	gantry_fd_close(h->segment_fd);
	gantry_fd_close(h->bell);
}

void fake_host_hang_up(struct fake_host *h)
{
	h->door->hang_up(h);
}

void fake_host_notice(struct fake_host *h, int status, const char *text)
{
	send_refuse(h, GANTRY_DOOR_NOTICE, status, text);
}

void fake_host_welcome_again(struct fake_host *h)
{
	send_welcome(h);
}

void fake_host_detach(struct fake_host *h, int reason, bool hang_up)
{
	gantry_store_relaxed(&h->header->reason, reason);
	gantry_store_release(&h->header->state, GANTRY_SESSION_DETACHED);
	if (hang_up)
		fake_host_hang_up(h);
}

const struct fake_seen *fake_host_last(struct fake_host *h, uint16_t op)
{
	fake_host_settle(h);
	for (uint32_t i = gantry_load_acquire(&h->nseen); i > 0; i--)
		if (h->seen[(i - 1) % FAKE_SEEN].desc.op == op)
			return &h->seen[(i - 1) % FAKE_SEEN];
	return NULL;
}

uint32_t fake_host_count(struct fake_host *h, uint16_t op)
{
	uint32_t nseen = gantry_load_acquire(&h->nseen), n = 0;

	for (uint32_t i = 0; i < nseen && i < FAKE_SEEN; i++)
		n += h->seen[i].desc.op == op;
	return n;
}
