/* SPDX-License-Identifier: Apache-2.0 */
/* The guest library's end: a device whose memory is the input's, opened, claimed, greeted, asked and left. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "guest-shim/desk.h"
#include "guest-shim/error.h"
#include "guest-shim/transport.h"
#include "proto/segment.h"
#include "tests/fuzz/desk.h"

#define NDESKS	    2u
#define DATA_OFF    GANTRY_SEGMENT_HEAP_ALIGN
#define DESKS_OFF   GANTRY_PAGE
#define SCRIBBLED   (DESKS_OFF + NDESKS * GANTRY_DOORMEM_DESK_BYTES)
#define STEPS_MAX   64
#define CALL_NS	    20000 /* nobody answers: every call ends by this */
#define GREETING_NS INT64_C(20000000)

static char folder[64];
static int memory = -1;
static int doorbell = -1;
static uint8_t *base;

enum step {
	HOST_SERVES,  /* the claim that there is */
	HOST_ANSWERS, /* a message into the box */
	HOST_NOTICES,
	HOST_COUNTS, /* what it says it posted */
	HOST_SCRIBBLES,
	GUEST_GREETS, /* and the message that follows answers it */
	GUEST_ASKS,
	GUEST_PEEKS,
	GUEST_TAKES, /* with the claim of a desk of its own */
	NSTEPS
};

/* ---- a device ---- */

static void remove_device(void)
{
	char path[108];

	snprintf(path, sizeof(path), "%s/resource2", folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/doorbell", folder);
	unlink(path);
	rmdir(folder);
}

static void make_device(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	char path[108], target[64];

	snprintf(folder, sizeof(folder), "/tmp/gantry-fuzz-XXXXXX");
	if (!mkdtemp(folder) ||
	    gantry_memfd_create("desk", GANTRY_DOORMEM_MIN_BYTES, GANTRY_MEMFD_SEALED, &memory) < 0)
		abort();
	base = mmap(NULL, GANTRY_DOORMEM_MIN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	snprintf(path, sizeof(path), "%s/resource2", folder);
	snprintf(target, sizeof(target), "/proc/%d/fd/%d", getpid(), memory);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/doorbell", folder);
	doorbell = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (base == MAP_FAILED || symlink(target, path) < 0 ||
	    bind(doorbell, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		abort();
	(void)atexit(remove_device);
}

static struct gantry_doormem_desk *desk_at(uint32_t index)
{
	return (struct gantry_doormem_desk *)(base + DESKS_OFF +
					      (uint64_t)index * GANTRY_DOORMEM_DESK_BYTES);
}

static void reset_device(void)
{
	uint32_t value;

	memset(base, 0, SCRIBBLED);
	*(struct gantry_doormem_header *)base = (struct gantry_doormem_header){
		.magic = GANTRY_DOORMEM_MAGIC,
		.version = GANTRY_DOORMEM_VERSION,
		.ndesks = NDESKS,
		.desks_off = DESKS_OFF,
		.data_off = DATA_OFF,
		.bytes = GANTRY_DOORMEM_MIN_BYTES,
		.epoch = 7,
		.nvectors = 2,
		.state = GANTRY_DOORMEM_OPEN,
	};
	while (recv(doorbell, &value, sizeof(value), 0) > 0)
		;
}

/* The desk that is claimed; the first, if none is. */
static struct gantry_doormem_desk *claimed(void)
{
	for (uint32_t i = 0; i < NDESKS; i++)
		if (gantry_load_relaxed(&desk_at(i)->generation) & 1)
			return desk_at(i);
	return desk_at(0);
}

static void serve_claim(void)
{
	struct gantry_doormem_desk *desk = claimed();

	gantry_store_release(&desk->served, gantry_load_relaxed(&desk->generation));
}

static void post(uint32_t *posted)
{
	gantry_store_release(posted, gantry_load_relaxed(posted) + 1);
}

/* ---- calls ---- */

/* Answers one HELLO, as an agent's thread does. */
static void *answer_main(void *arg)
{
	struct gantry_doormem_desk *desk = arg;
	uint64_t until_ns = gantry_deadline_ns(GREETING_NS);

	while (gantry_load_acquire(&desk->posted) == gantry_load_relaxed(&desk->taken))
		if (gantry_deadline_passed(until_ns))
			return NULL;
	post(&desk->host_posted);
	return NULL;
}

static void close_attachment(const struct gantry_attachment *a)
{
	const struct gantry_door_welcome *w = &a->welcome;

	assert(a->segment_off >= DATA_OFF && w->segment_bytes <= GANTRY_DOORMEM_MIN_BYTES &&
	       a->segment_off <= GANTRY_DOORMEM_MIN_BYTES - w->segment_bytes);
	gantry_fd_close(a->segment_fd);
	if (a->is_split)
		gantry_fd_close(a->heap_fd);
}

static void greet(void *cookie, struct fuzz_input *in)
{
	struct gantry_door_hello hello = { .version_min = 1, .version_max = 1 };
	struct gantry_doormem_desk *desk = claimed();
	struct gantry_attachment a = { .segment_fd = -EBADF };
	pthread_t thread;
	int r;

	gantry_door_header_init(&hello.h, GANTRY_DOOR_HELLO, 0);
	desk->segment_off = fuzz_u64(in);
	desk->bell_vector = fuzz_u8(in);
	fuzz_take_box(in, desk->host_box, sizeof(desk->host_box));
	serve_claim();
	if (pthread_create(&thread, NULL, answer_main, desk) != 0)
		abort();
	r = gantry_transport_ivshmem.handshake(cookie, &hello, gantry_deadline_ns(GREETING_NS), &a);
	(void)pthread_join(thread, NULL);
	if (r == 0)
		close_attachment(&a);
	else
		assert(r < 0 && gantry_last_error()[0]);
}

static void ask(void *cookie)
{
	struct gantry_door_share msg = { .buffer = 7, .mode = GANTRY_R };
	struct gantry_door_shared answer;

	gantry_door_header_init(&msg.h, GANTRY_DOOR_SHARE, 0);
	if (gantry_transport_ivshmem.request(cookie, &msg, GANTRY_DOOR_SHARED, &answer,
					     gantry_deadline_ns(CALL_NS)) == 0)
		assert(answer.h.kind == GANTRY_DOOR_SHARED && answer.h.tag == msg.h.tag);
}

static void peek(void *cookie)
{
	struct gantry_door_refuse notice;

	(void)gantry_transport_ivshmem.peek(cookie, &notice);
	assert(notice.status <= 0 && memchr(notice.text, '\0', sizeof(notice.text)));
}

/* A claim beside the door's, if there is a desk left. */
static void take(void)
{
	union gantry_message msg;
	struct gantry_pcidev dev;
	struct gantry_desk desk;
	uint16_t kind;

	if (gantry_pcidev_open("", folder, &dev) < 0)
		return;
	if (gantry_desk_open(&dev, GANTRY_WAKE_POLL, GANTRY_DOORMEM_NO_VECTOR, &desk) == 0) {
		desk.host_taken++; /* so that something lies there */
		if (gantry_desk_take(&desk, &msg, &kind) == 0)
			assert(gantry_door_len(kind) == msg.h.len_bytes);
		gantry_desk_close(&desk, false);
		assert(desk.generation & 1);
	}
	gantry_pcidev_close(&dev, false);
}

static void do_step(void *cookie, struct fuzz_input *in)
{
	struct gantry_doormem_desk *desk = claimed();

	switch (fuzz_u8(in) % NSTEPS) {
	case HOST_SERVES:
		serve_claim();
		break;
	case HOST_ANSWERS:
		fuzz_take_box(in, desk->host_box, sizeof(desk->host_box));
		post(&desk->host_posted);
		break;
	case HOST_NOTICES:
		fuzz_take_box(in, desk->notice_box, sizeof(desk->notice_box));
		post(&desk->notice_posted);
		break;
	case HOST_COUNTS:
		desk->taken = fuzz_u32(in);
		desk->host_posted = fuzz_u32(in);
		break;
	case HOST_SCRIBBLES:
		fuzz_scribble(in, base, SCRIBBLED);
		break;
	case GUEST_GREETS:
		greet(cookie, in);
		break;
	case GUEST_ASKS:
		ask(cookie);
		break;
	case GUEST_PEEKS:
		peek(cookie);
		break;
	default:
		take();
	}
}

void fuzz_desk_of_guest(struct fuzz_input *in)
{
	const struct gantry_transport_ops *ops = &gantry_transport_ivshmem;
	void *cookie;

	if (!base)
		make_device();
	reset_device();
	while (in->len > 0 && in->data[0] % NSTEPS == HOST_SCRIBBLES) { /* before anybody looks */
		(void)fuzz_u8(in);
		fuzz_scribble(in, base, SCRIBBLED);
	}
	if (ops->connect(folder, gantry_deadline_ns(CALL_NS), &cookie) < 0)
		return;
	for (int i = 0; i < STEPS_MAX && in->len > 0; i++)
		do_step(cookie, in);
	ops->close(cookie);
}
