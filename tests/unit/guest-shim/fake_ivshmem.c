/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/guest-shim/fake_ivshmem.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "tests/unit/guest-shim/fake_door.h"

struct fake_ivshmem *fake_ivshmem_of(struct fake_host *h)
{
	return h->door_state;
}

struct gantry_doormem_desk *fake_ivshmem_desk(struct fake_host *h, uint32_t index)
{
	struct fake_ivshmem *s = h->door_state;

	return (struct gantry_doormem_desk *)(s->base + GANTRY_PAGE +
					      (uint64_t)index * GANTRY_DOORMEM_DESK_BYTES);
}

struct gantry_doormem_desk *fake_ivshmem_served(struct fake_host *h)
{
	/* Acquire: pairs with the release in take_message(). */
	return fake_ivshmem_desk(h, gantry_load_acquire(&fake_ivshmem_of(h)->serving));
}

/* ---- life ---- */

static void make_memory(struct fake_host *h, struct fake_ivshmem *s)
{
	s->bytes = GANTRY_DOORMEM_MIN_BYTES;
	while (s->bytes < FAKE_DATA_OFF + h->segment_bytes)
		s->bytes *= 2;
	if (gantry_memfd_create("door", s->bytes, GANTRY_MEMFD_SEALED, &h->segment_fd) < 0)
		abort();
	h->segment_off = FAKE_DATA_OFF;
	s->base = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, h->segment_fd, 0);
	if (s->base == MAP_FAILED)
		abort();
	s->header = (struct gantry_doormem_header *)s->base;
	*s->header = (struct gantry_doormem_header){
		.magic = GANTRY_DOORMEM_MAGIC,
		.version = GANTRY_DOORMEM_VERSION,
		.ndesks = FAKE_NDESKS,
		.desks_off = GANTRY_PAGE,
		.data_off = FAKE_DATA_OFF,
		.bytes = s->bytes,
		.epoch = 7,
		.nvectors = FAKE_NVECTORS,
		.state = GANTRY_DOORMEM_OPEN,
	};
}

static void make_folder(struct fake_host *h, struct fake_ivshmem *s)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	char path[108], target[64];

	snprintf(s->folder, sizeof(s->folder), "/tmp/gantry-unit-XXXXXX");
	if (!mkdtemp(s->folder))
		abort();
	snprintf(h->where, sizeof(h->where), "ivshmem:%s", s->folder);
	snprintf(path, sizeof(path), "%s/resource2", s->folder);
	snprintf(target, sizeof(target), "/proc/%d/fd/%d", getpid(), h->segment_fd);
	if (symlink(target, path) < 0)
		abort();
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/doorbell", s->folder);
	s->doorbell = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(s->doorbell, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		abort();
}

static void open_door(struct fake_host *h)
{
	struct fake_ivshmem *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	make_memory(h, s);
	make_folder(h, s);
	h->door_state = s;
}

static void close_door(struct fake_host *h)
{
	struct fake_ivshmem *s = h->door_state;
	char path[108];

	snprintf(path, sizeof(path), "%s/resource2", s->folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/doorbell", s->folder);
	unlink(path);
	rmdir(s->folder);
	gantry_fd_close(s->doorbell);
	munmap(s->base, s->bytes);
	free(s);
}

/* ---- messages ---- */

static void give_up(struct fake_host *h)
{
	gantry_store_release(&fake_ivshmem_served(h)->served, 0);
}

static void send_message(struct fake_host *h, const void *msg, size_t len)
{
	struct gantry_doormem_desk *desk = fake_ivshmem_served(h);
	const struct gantry_door_header *head = msg;
	bool is_message = len >= sizeof(*head);
	bool is_notice = is_message && head->kind == GANTRY_DOOR_NOTICE;
	uint32_t *posted = is_notice ? &desk->notice_posted : &desk->host_posted;
	const uint32_t *taken = is_notice ? &desk->notice_taken : &desk->host_taken;

	/* A guest that takes nothing more, as one that ended does, gets nothing more. */
	for (int i = 0; i < 1000 && gantry_load_acquire(taken) != gantry_load_relaxed(posted); i++)
		poll(NULL, 0, 1);
	memcpy(is_notice ? desk->notice_box : desk->host_box, msg, len);
	gantry_store_release(posted, gantry_load_relaxed(posted) + 1);
	if (is_message && head->kind == GANTRY_DOOR_REFUSE)
		give_up(h);
}

static void send_welcome(struct fake_host *h, const struct gantry_door_welcome *msg)
{
	struct fake_ivshmem *s = h->door_state;
	struct gantry_doormem_desk *desk = fake_ivshmem_served(h);

	desk->segment_off = h->answer == FAKE_NO_SEGMENT    ? 0
			    : h->answer == FAKE_BAD_SEGMENT ? s->bytes - (2u << 20)
							    : h->segment_off;
	desk->bell_vector = h->answer == FAKE_BAD_BELL ? FAKE_NVECTORS : FAKE_BELL;
	send_message(h, msg, sizeof(*msg));
}

static void take_message(struct fake_host *h, uint32_t index)
{
	struct fake_ivshmem *s = h->door_state;
	struct gantry_doormem_desk *desk = fake_ivshmem_desk(h, index);
	uint32_t posted = gantry_load_acquire(&desk->posted);
	uint64_t msg[GANTRY_DOORMEM_MESSAGE / 8];

	if (posted == s->posted_seen[index])
		return;
	s->posted_seen[index] = posted;
	memcpy(msg, desk->guest_box, sizeof(msg));
	gantry_store_release(&desk->taken, posted);
	gantry_store_release(&s->serving, index);
	if (s->nforgets > 0) {
		s->nforgets--;
		s->forgotten[index] = gantry_load_relaxed(&desk->generation);
		give_up(h);
	} else if (s->is_greeted[index]) {
		fake_host_answer(h, msg, ((const struct gantry_door_header *)msg)->len_bytes);
	} else {
		s->is_greeted[index] = true;
		memcpy(&h->hello, msg, sizeof(h->hello));
		fake_host_greet(h);
	}
}

/* ---- claims ---- */

static void look_at_desk(struct fake_host *h, uint32_t index)
{
	struct fake_ivshmem *s = h->door_state;
	struct gantry_doormem_desk *desk = fake_ivshmem_desk(h, index);
	uint64_t generation = gantry_load_acquire(&desk->generation);
	uint64_t served = gantry_load_relaxed(&desk->served);

	if (served == generation && served & 1) {
		take_message(h, index);
		return;
	}
	if (!(generation & 1)) {
		s->is_greeted[index] = false;
		gantry_store_release(&desk->served, generation);
		return;
	}
	if (served == 0 && (s->is_greeted[index] || s->forgotten[index] == generation))
		return; /* hung up on, or forgotten: nothing more for this claim, however long its guest takes to see it */
	s->posted_seen[index] = desk->posted;
	s->is_greeted[index] = false;
	desk->taken = desk->posted;
	desk->host_posted = desk->host_taken;
	desk->notice_posted = desk->notice_taken;
	gantry_count_add(&s->nclaims, 1);
	gantry_store_release(&desk->served, generation);
}

static void step(struct fake_host *h)
{
	struct fake_ivshmem *s = h->door_state;
	struct pollfd pfd = { .fd = s->doorbell, .events = POLLIN };
	uint64_t one = 1;
	uint32_t value;

	if (poll(&pfd, 1, FAKE_TICK_MS) > 0)
		while (recv(s->doorbell, &value, sizeof(value), 0) == sizeof(value))
			if (value == FAKE_BELL && write(h->bell, &one, sizeof(one)) < 0)
				abort();
	for (uint32_t i = 0; i < FAKE_NDESKS && !gantry_load_relaxed(&s->is_deaf); i++)
		look_at_desk(h, i);
	if (gantry_load_relaxed(&s->is_deaf))
		gantry_store_release(&s->is_still, 1);
}

const struct fake_door fake_door_ivshmem = {
	.name = "ivshmem",
	.ops = &gantry_transport_ivshmem,
	.shares_memory = true,
	.open = open_door,
	.close = close_door,
	.step = step,
	.send = send_message,
	.welcome = send_welcome,
	.hang_up = give_up,
};
