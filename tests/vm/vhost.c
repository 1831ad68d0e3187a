/* SPDX-License-Identifier: Apache-2.0 */
#include "vhost.h"

#include <errno.h>
#include <linux/virtio_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define NREGIONS 8u

/* ---- formats ---- */

enum request {
	GET_FEATURES = 1,
	SET_MEM_TABLE = 5,
	SET_VRING_NUM = 8,
	SET_VRING_ADDR = 9,
	SET_VRING_BASE = 10,
	GET_VRING_BASE = 11,
	SET_VRING_KICK = 12,
	SET_VRING_CALL = 13,
	SET_VRING_ERR = 14,
	GET_PROTOCOL_FEATURES = 15,
	GET_QUEUE_NUM = 17,
	GET_CONFIG = 24,
};

#define FEATURES	  (1ull << 32 | 1ull << 30) /* VERSION_1, PROTOCOL_FEATURES */
#define PROTOCOL_FEATURES (1ull << 9 | 1ull << 3)   /* CONFIG, REPLY_ACK */
#define FLAG_VERSION	  1u
#define FLAG_REPLY	  4u
#define FLAG_NEED_REPLY	  8u
#define NO_FD		  (1u << 8)

struct region {
	uint64_t guest_addr;
	uint64_t bytes;
	uint64_t user_addr;
	uint64_t mmap_off;
};

struct __attribute__((packed)) message {
	uint32_t request;
	uint32_t flags;
	uint32_t bytes;
	union {
		uint64_t number;
		struct {
			uint32_t index;
			uint32_t value;
		} state;
		struct {
			uint32_t index;
			uint32_t flags;
			uint64_t desc;
			uint64_t used;
			uint64_t avail;
			uint64_t log;
		} addr;
		struct {
			uint32_t n;
			uint32_t pad;
			struct region regions[NREGIONS];
		} memory;
		struct {
			uint32_t off;
			uint32_t bytes;
			uint32_t flags;
			uint8_t data[256];
		} config;
		uint8_t raw[512];
	} u;
};
#define MESSAGE_HEAD 12u

/* ---- state ---- */

static struct {
	int qemu;
	struct vhost_options options;
	struct region regions[NREGIONS];
	uint8_t *maps[NREGIONS]; /* where each region's first byte is */
	uint32_t nregions;
	struct queue queues[NQUEUES];
} v;

void die(const char *what)
{
	fprintf(stderr, "vhost-vsock: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- the machine's memory ---- */

static void *place(uint64_t addr, uint64_t bytes, bool is_guest_addr)
{
	for (uint32_t i = 0; i < v.nregions; i++) {
		const struct region *r = &v.regions[i];
		uint64_t first = is_guest_addr ? r->guest_addr : r->user_addr;

		if (addr >= first && addr - first <= r->bytes && bytes <= r->bytes - (addr - first))
			return v.maps[i] + (addr - first);
	}
	return NULL;
}

static void find_rings(struct queue *q)
{
	q->desc = q->num ? place(q->desc_addr, q->num * sizeof(*q->desc), false) : NULL;
	q->avail = q->num ? place(q->avail_addr, 6 + 2ull * q->num, false) : NULL;
	q->used = q->num ? place(q->used_addr, 6 + 8ull * q->num, false) : NULL;
}

static void set_memory(const struct message *m, const int *fds, unsigned int nfds)
{
	v.nregions = m->u.memory.n < nfds ? m->u.memory.n : nfds;
	for (uint32_t i = 0; i < v.nregions; i++) {
		const struct region r = m->u.memory.regions[i];
		uint8_t *map = mmap(NULL, r.bytes + r.mmap_off, PROT_READ | PROT_WRITE, MAP_SHARED,
				    fds[i], 0);

		if (map == MAP_FAILED)
			die("mapping the machine's memory");
		v.regions[i] = r;
		v.maps[i] = map + r.mmap_off;
	}
	for (uint32_t i = 0; i < NQUEUES; i++)
		find_rings(&v.queues[i]);
}

/* ---- queues ---- */

static bool is_ready(const struct queue *q)
{
	return q->is_started && q->desc && q->avail && q->used;
}

bool has_buffer(const struct queue *q)
{
	return is_ready(q) && __atomic_load_n(&q->avail->idx, __ATOMIC_ACQUIRE) != q->next;
}

uint16_t next_buffer(const struct queue *q)
{
	return q->avail->ring[q->next % q->num];
}

uint16_t take_buffer(struct queue *q)
{
	return q->avail->ring[q->next++ % q->num];
}

void give_back(struct queue *q, uint16_t head, uint32_t bytes)
{
	q->used->ring[q->used->idx % q->num] = (struct vring_used_elem){ head, bytes };
	__atomic_store_n(&q->used->idx, (uint16_t)(q->used->idx + 1), __ATOMIC_RELEASE);
	q->has_used = true;
}

void tell_guest(struct queue *q)
{
	uint64_t one = 1;

	if (!q->has_used)
		return;
	q->has_used = false;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!(q->avail->flags & VRING_AVAIL_F_NO_INTERRUPT) && q->call >= 0)
		(void)!write(q->call, &one, sizeof(one));
}

uint32_t move_chain(struct queue *q, uint16_t head, uint8_t *buf, uint32_t bytes, bool to_guest)
{
	uint32_t moved = 0;
	uint16_t at = head;

	for (uint32_t steps = 0; steps < q->num && at < q->num; steps++) {
		const struct vring_desc *d = &q->desc[at];
		uint32_t n = d->len < bytes - moved ? d->len : bytes - moved;
		uint8_t *ptr = place(d->addr, n, true);

		if (!ptr || !(d->flags & VRING_DESC_F_WRITE) == to_guest)
			break;
		if (to_guest)
			memcpy(ptr, buf + moved, n);
		else
			memcpy(buf + moved, ptr, n);
		moved += n;
		if (!(d->flags & VRING_DESC_F_NEXT) || moved == bytes)
			break;
		at = d->next;
	}
	return moved;
}

uint32_t room_in(const struct queue *q, uint16_t head)
{
	uint32_t room = 0;
	uint16_t at = head;

	for (uint32_t steps = 0; steps < q->num && at < q->num; steps++) {
		room += q->desc[at].len;
		if (!(q->desc[at].flags & VRING_DESC_F_NEXT))
			break;
		at = q->desc[at].next;
	}
	return room;
}

/* ---- QEMU ---- */

static void set_fd(int *fd, const struct message *m, const int *fds, unsigned int nfds)
{
	if (*fd >= 0)
		close(*fd);
	*fd = nfds == 1 && !(m->u.number & NO_FD) ? dup(fds[0]) : -1;
}

/* true: @m is the answer. */
static bool obey(struct message *m, const int *fds, unsigned int nfds)
{
	uint32_t index = m->u.state.index & 0xff;
	struct queue *q = &v.queues[index < NQUEUES ? index : 0];

	switch (m->request) {
	case GET_FEATURES:
		m->u.number = FEATURES;
		break;
	case GET_PROTOCOL_FEATURES:
		m->u.number = PROTOCOL_FEATURES;
		break;
	case GET_QUEUE_NUM:
		m->u.number = NQUEUES;
		break;
	case GET_CONFIG:
		memcpy(m->u.config.data, v.options.config, v.options.config_bytes);
		return true;
	case GET_VRING_BASE:
		m->u.state.value = q->next;
		q->is_started = false;
		v.options.stopped();
		break;
	case SET_MEM_TABLE:
		set_memory(m, fds, nfds);
		return false;
	case SET_VRING_NUM:
		q->num = m->u.state.value;
		return false;
	case SET_VRING_ADDR:
		q->desc_addr = m->u.addr.desc;
		q->used_addr = m->u.addr.used;
		q->avail_addr = m->u.addr.avail;
		find_rings(q);
		return false;
	case SET_VRING_BASE:
		q->next = (uint16_t)m->u.state.value;
		return false;
	case SET_VRING_KICK:
		set_fd(&q->kick, m, fds, nfds);
		q->is_started = true;
		return false;
	case SET_VRING_CALL:
		set_fd(&q->call, m, fds, nfds);
		return false;
	default:
		return false;
	}
	m->bytes = sizeof(m->u.number);
	return true;
}

void vhost_hear(void)
{
	struct message m = { 0 };
	int fds[NREGIONS];
	unsigned int nfds = 0;
	char control[CMSG_SPACE(sizeof(fds))];
	struct iovec iov = { &m, MESSAGE_HEAD };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	bool answer;

	if (recvmsg(v.qemu, &msg, MSG_CMSG_CLOEXEC) != MESSAGE_HEAD)
		exit(0);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		nfds = (unsigned int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), nfds * sizeof(int));
	}
	if (m.bytes > sizeof(m.u) ||
	    (m.bytes && recv(v.qemu, &m.u, m.bytes, MSG_WAITALL) != (ssize_t)m.bytes))
		exit(0);
	answer = obey(&m, fds, nfds);
	for (unsigned int i = 0; i < nfds; i++)
		close(fds[i]);
	if (!answer && (m.flags & FLAG_NEED_REPLY)) {
		m.u.number = 0;
		m.bytes = sizeof(m.u.number);
		answer = true;
	}
	m.flags = FLAG_VERSION | FLAG_REPLY;
	if (answer && send(v.qemu, &m, MESSAGE_HEAD + m.bytes, MSG_NOSIGNAL) < 0)
		exit(0);
}

void vhost_begin(int qemu, const struct vhost_options *options)
{
	v.qemu = qemu;
	v.options = *options;
	for (uint32_t i = 0; i < NQUEUES; i++)
		v.queues[i].kick = v.queues[i].call = -1;
}

struct queue *vhost_queue(uint32_t index)
{
	return &v.queues[index];
}
