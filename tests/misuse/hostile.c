/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/misuse/hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "tests/unit/runner.h"

#define SLICE_NS (50 * GANTRY_NS_PER_MS)

/* ---- door ---- */

static void blank(struct hostile *h)
{
	memset(h, 0, sizeof(*h));
	h->door = -EBADF;
	h->segment_fd = -EBADF;
	h->bell_fd = -EBADF;
}

int hostile_connect(struct hostile *h, const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	blank(h);
	ck_assert_uint_lt(strlen(path), sizeof(addr.sun_path));
	strcpy(addr.sun_path, path);
	h->door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (h->door < 0)
		return -errno;
	if (connect(h->door, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		int r = -errno;

		h->door = gantry_fd_close(h->door);
		return r;
	}
	return 0;
}

void hostile_hello_init(struct gantry_door_hello *hello)
{
	memset(hello, 0, sizeof(*hello));
	gantry_door_header_init(&hello->h, GANTRY_DOOR_HELLO, 0);
	hello->version_min = GANTRY_WIRE_VERSION_MIN;
	hello->version_max = GANTRY_WIRE_VERSION_MAX;
	hello->pid = (uint32_t)getpid();
	strcpy(hello->name, "hostile");
}

int hostile_send(struct hostile *h, const void *msg, size_t len)
{
	return send(h->door, msg, len, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int hostile_receive(struct hostile *h, void *msg, size_t cap, unsigned int timeout_ms)
{
	struct pollfd p = { .fd = h->door, .events = POLLIN };
	int fds[2];
	unsigned int nfds = 0;
	ssize_t n;

	if (poll(&p, 1, (int)timeout_ms) <= 0)
		return -ETIMEDOUT;
	n = gantry_fd_recv(h->door, msg, cap, fds, 2, &nfds, MSG_DONTWAIT);
	/* The agent closed without reading all we sent: the kernel says so first, and then hands out its last word. */
	if (n == -ECONNRESET)
		n = gantry_fd_recv(h->door, msg, cap, fds, 2, &nfds, MSG_DONTWAIT);
	if (n > 0 && nfds == 2 && h->segment_fd < 0) {
		h->segment_fd = fds[0];
		h->bell_fd = fds[1];
	} else if (n > 0) {
		for (unsigned int i = 0; i < nfds; i++)
			gantry_fd_close(fds[i]);
	}
	return n == -ECONNRESET ? 0 : (int)n;
}

static void map(struct hostile *h)
{
	off_t bytes = lseek(h->segment_fd, 0, SEEK_END);
	void *base;

	ck_assert_int_gt(bytes, 0);
	base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, h->segment_fd, 0);
	ck_assert(base != MAP_FAILED);
	h->segment = (struct gantry_region){ base, (uint64_t)bytes };
	h->shared = base;
	memcpy(&h->header, base, sizeof(h->header));
	h->heap = (struct gantry_region){ h->segment.base + h->header.heap_off,
					  h->header.heap_bytes };
	for (uint32_t i = 0; i < h->header.nqueues; i++) {
		struct gantry_ring_map ring;

		ck_assert_int_eq(gantry_ring_map_init(&ring, &h->segment, h->header.queues_off, i,
						      h->header.nslots),
				 0);
		gantry_ring_producer_init(&h->rings[i], &ring);
	}
}

int hostile_attach(struct hostile *h, const struct gantry_door_hello *hello,
		   char text[GANTRY_DOOR_TEXT])
{
	union {
		struct gantry_door_header h;
		struct gantry_door_welcome welcome;
		struct gantry_door_refuse refuse;
		uint8_t bytes[512];
	} msg;
	int r;

	if (text)
		text[0] = '\0';
	r = hostile_send(h, hello, sizeof(*hello));
	ck_assert(r == 0 || r == -EPIPE); /* refused before it spoke: the answer is there */
	r = hostile_receive(h, &msg, sizeof(msg), HOSTILE_WAIT_MS);
	ck_assert_msg(r > 0, "no answer to HELLO: %d", r);
	if (msg.h.kind == GANTRY_DOOR_REFUSE) {
		if (text)
			memcpy(text, msg.refuse.text, GANTRY_DOOR_TEXT);
		ck_assert_int_lt(msg.refuse.status, 0);
		return msg.refuse.status;
	}
	ck_assert_uint_eq(msg.h.kind, GANTRY_DOOR_WELCOME);
	ck_assert_int_ge(h->segment_fd, 0);
	h->welcome = msg.welcome;
	map(h);
	return GANTRY_OK;
}

int hostile_refused(struct hostile *h, unsigned int timeout_ms)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)timeout_ms * 1000000);
	int status = 0;

	for (;;) {
		union {
			struct gantry_door_refuse refuse;
			uint8_t bytes[512];
		} msg;
		uint64_t left = gantry_deadline_left_ns(deadline);
		int n = hostile_receive(h, &msg, sizeof(msg), (unsigned int)(left / 1000000));

		if (n == -ETIMEDOUT)
			return HOSTILE_TIMEOUT;
		if (n <= 0)
			return status;
		if (msg.refuse.h.kind == GANTRY_DOOR_REFUSE ||
		    msg.refuse.h.kind == GANTRY_DOOR_NOTICE) {
			status = msg.refuse.status;
			ck_assert_msg(msg.refuse.text[0], "status %d came without a sentence",
				      status);
		}
	}
}

/* ---- segment ---- */

void hostile_adopt(struct hostile *h, int segment_fd, int bell_fd)
{
	blank(h);
	h->segment_fd = fcntl(segment_fd, F_DUPFD_CLOEXEC, 0);
	h->bell_fd = fcntl(bell_fd, F_DUPFD_CLOEXEC, 0);
	ck_assert_int_ge(h->segment_fd, 0);
	ck_assert_int_ge(h->bell_fd, 0);
	map(h);
}

void hostile_close(struct hostile *h)
{
	if (h->segment.base)
		(void)munmap(h->segment.base, h->segment.bytes);
	gantry_fd_close(h->segment_fd);
	gantry_fd_close(h->bell_fd);
	gantry_fd_close(h->door);
	blank(h);
}

uint64_t hostile_heap(struct hostile *h, uint64_t bytes)
{
	uint64_t off = h->heap_used;

	h->heap_used += (bytes + 63) & ~63ull;
	ck_assert_uint_le(h->heap_used, h->heap.bytes);
	return off;
}

void *hostile_heap_at(struct hostile *h, uint64_t off)
{
	return h->heap.base + off;
}

void hostile_ring(struct hostile *h)
{
	struct pollfd p = { .fd = h->bell_fd, .events = POLLOUT };
	uint64_t one = 1;

	if (poll(&p, 1, 0) > 0)
		(void)!write(h->bell_fd, &one, sizeof(one));
}

uint64_t hostile_put(struct hostile *h, uint32_t queue, const struct gantry_desc *desc,
		     const void *inl, uint32_t inl_bytes)
{
	struct gantry_ring_producer *p = &h->rings[queue];
	uint64_t deadline = gantry_deadline_ns((int64_t)HOSTILE_WAIT_MS * 1000000);
	uint64_t seq;

	while (gantry_ring_reserve(p, 1) < 0 ||
	       p->tail - gantry_ring_done(&p->map) >= p->map.nslots) {
		if (gantry_deadline_passed(deadline) || !hostile_alive(h))
			return 0;
		hostile_ring(h);
		(void)gantry_ring_wait_sleep(&p->map, gantry_ring_done(&p->map) + 1,
					     gantry_now_ns() + 1000000);
	}
	*gantry_ring_desc(p, 0) = *desc;
	if (inl)
		memcpy(gantry_ring_inline(p, 0), inl, inl_bytes);
	seq = gantry_ring_publish(p, 1);
	(void)gantry_fetch_add(&h->shared->bell, 1);
	if (gantry_ring_must_kick(&p->map))
		hostile_ring(h);
	return seq;
}

bool hostile_alive(struct hostile *h)
{
	struct pollfd p = { .fd = h->door, .events = 0 };

	if (gantry_load_acquire(&h->shared->state) == GANTRY_SESSION_DETACHED)
		return false;
	return h->door < 0 || poll(&p, 1, 0) <= 0;
}

int hostile_ended(struct hostile *h, unsigned int timeout_ms)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)timeout_ms * 1000000);
	int status;

	if (h->door >= 0) {
		status = hostile_refused(h, timeout_ms);
		return status == 0 ? GANTRY_E_DETACHED : status;
	}
	while (gantry_load_acquire(&h->shared->state) != GANTRY_SESSION_DETACHED) {
		if (gantry_deadline_passed(deadline))
			return HOSTILE_TIMEOUT;
		(void)poll(NULL, 0, 1);
	}
	return gantry_load_relaxed(&h->shared->reason);
}

int hostile_wait(struct hostile *h, uint32_t queue, uint64_t seq, unsigned int timeout_ms)
{
	const struct gantry_ring_map *ring = &h->rings[queue].map;
	uint64_t deadline = gantry_deadline_ns((int64_t)timeout_ms * 1000000);
	int status;

	ck_assert_uint_ne(seq, 0);
	while (gantry_ring_done(ring) < seq) {
		uint64_t now = gantry_now_ns();

		if (!hostile_alive(h)) {
			status = hostile_ended(h, 100);
			return status == HOSTILE_TIMEOUT ? GANTRY_E_DETACHED : status;
		}
		if (now >= deadline)
			return HOSTILE_TIMEOUT;
		gantry_ring_wait_enter(ring);
		(void)gantry_ring_wait_sleep(ring, seq,
					     now + SLICE_NS < deadline ? now + SLICE_NS : deadline);
		gantry_ring_wait_leave(ring);
	}
	return gantry_ring_status(ring, seq - 1);
}

/* ---- honest requests ---- */

int hostile_control(struct hostile *h, const struct gantry_desc *desc, const void *inl,
		    uint32_t inl_bytes, struct gantry_reply *ret_reply)
{
	uint64_t seq = hostile_put(h, 0, desc, inl, inl_bytes);
	const struct gantry_ring_map *ring = &h->rings[0].map;
	int status;

	if (seq == 0)
		return hostile_alive(h) ? HOSTILE_TIMEOUT : hostile_ended(h, 100);
	status = hostile_wait(h, 0, seq, HOSTILE_WAIT_MS);
	if (ret_reply)
		memcpy(ret_reply, &ring->inl[(seq - 1) & ring->mask], sizeof(*ret_reply));
	return status;
}

int hostile_queue(struct hostile *h, uint32_t *ret_slot, uint64_t *ret_handle)
{
	struct gantry_op_queue_open op = { 0 };
	struct gantry_reply_queue answer;
	struct gantry_reply reply;
	struct gantry_desc desc;
	int status;

	gantry_desc_put_queue_open(&desc, &op);
	status = hostile_control(h, &desc, NULL, 0, &reply);
	if (status != GANTRY_OK)
		return status;
	memcpy(&answer, reply.data, sizeof(answer));
	ck_assert_uint_lt(answer.slot, h->header.nqueues);
	*ret_slot = answer.slot;
	if (ret_handle)
		*ret_handle = answer.handle;
	return status;
}

int hostile_buffer(struct hostile *h, uint64_t bytes, unsigned int flags, uint64_t *ret_handle)
{
	struct gantry_op_buf_alloc op = { .bytes = bytes, .alloc_flags = flags };
	struct gantry_reply reply;
	struct gantry_desc desc;
	int status;

	if (flags == GANTRY_ALLOC_HOST)
		op.heap_off = hostile_heap(h, bytes);
	gantry_desc_put_buf_alloc(&desc, &op);
	status = hostile_control(h, &desc, NULL, 0, &reply);
	if (status == GANTRY_OK)
		memcpy(ret_handle, reply.data, sizeof(*ret_handle));
	return status;
}

int hostile_buffer_free(struct hostile *h, uint64_t handle)
{
	struct gantry_op_buf_free op = { .buffer = handle };
	struct gantry_desc desc;

	gantry_desc_put_buf_free(&desc, &op);
	return hostile_control(h, &desc, NULL, 0, NULL);
}

int hostile_kernel(struct hostile *h, const char *name, const char *signature, uint64_t *ret_handle,
		   struct gantry_reply *ret_reply)
{
	struct gantry_op_kernel_get op = { .name_bytes = (uint16_t)(strlen(name) + 1),
					   .sig_bytes = (uint16_t)(signature ? strlen(signature) + 1
									     : 0) };
	char text[GANTRY_INLINE_BYTES] = { 0 };
	struct gantry_reply reply;
	struct gantry_desc desc;
	int status;

	ck_assert_uint_le(op.name_bytes + op.sig_bytes, sizeof(text));
	memcpy(text, name, op.name_bytes);
	if (signature)
		memcpy(text + op.name_bytes, signature, op.sig_bytes);
	gantry_desc_put_kernel_get(&desc, &op);
	gantry_desc_set_inline(&desc, (uint32_t)op.name_bytes + op.sig_bytes);
	status = hostile_control(h, &desc, text, sizeof(text), &reply);
	if (status == GANTRY_OK && ret_handle)
		memcpy(ret_handle, reply.data, sizeof(*ret_handle));
	if (ret_reply)
		*ret_reply = reply;
	return status;
}

uint64_t hostile_launch(struct hostile *h, uint32_t queue, uint64_t kernel,
			const struct gantry_wire_access *access, uint16_t naccess, const void *args,
			uint16_t args_bytes)
{
	struct gantry_op_launch op = { .kernel = kernel,
				       .naccess = naccess,
				       .args_bytes = args_bytes };
	uint32_t access_bytes = naccess * (uint32_t)sizeof(*access);
	uint8_t inl[GANTRY_INLINE_BYTES] = { 0 };
	struct gantry_desc desc;

	ck_assert_uint_le(access_bytes + args_bytes, sizeof(inl));
	if (naccess)
		memcpy(inl, access, access_bytes);
	if (args_bytes)
		memcpy(inl + access_bytes, args, args_bytes);
	gantry_desc_put_launch(&desc, &op);
	if (access_bytes + args_bytes)
		gantry_desc_set_inline(&desc, access_bytes + args_bytes);
	return hostile_put(h, queue, &desc, inl, sizeof(inl));
}

int hostile_ping(struct hostile *h, uint32_t queue)
{
	struct gantry_op_marker op = { 0 };
	struct gantry_desc desc;
	uint64_t seq;

	gantry_desc_put_marker(&desc, &op);
	seq = hostile_put(h, queue, &desc, NULL, 0);
	if (seq == 0)
		return hostile_alive(h) ? HOSTILE_TIMEOUT : hostile_ended(h, 100);
	return hostile_wait(h, queue, seq, HOSTILE_WAIT_MS);
}

/* ---- noise ---- */

uint64_t hostile_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull); /* splitmix64 */

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

void hostile_noise(uint64_t *state, void *buf, size_t len)
{
	uint8_t *at = buf;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = hostile_random(state);

		memcpy(at + i, &word, len - i < 8 ? len - i : 8);
	}
}
