/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mover after a lazy hand-over, whose other host is hostile (host-agent/mover/pull.c, words.c), with TLS played here. Input: a byte:
 * 1: it is the source, else the destination; 2: bytes of the other host wait when the agent is silent; the rest / 4: in what pieces they
 * come. Then how many words its agent says, and these; then what comes from the other host, each a byte that says what and how much.
 *
 * A source sends words and pages of its slab as they are; a destination writes where its agent asked, and nowhere else, and tells
 * of nothing that it was not asked for.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/fd.h"
#include "host-agent/mover/mover.h"
#include "host-agent/mover/pages.h"
#include "tests/fuzz/fuzz.h"

#define SLAB_BYTES (3ull * GANTRY_IMAGE_CHUNK)
#define STREAM_MAX (4u << 20)
#define WORDS_MAX  16u
#define MARK	   0xa5 /* in all of a destination's slab */

static uint8_t stream[STREAM_MAX]; /* what comes from the other host */
static size_t nstream, nread, step;
static uint8_t *slab;
static int slab_fd;
static bool is_source;
/* A destination: what its agent has asked for and was not told of. A source: what it was asked for, and what of that has gone. */
static uint64_t asked[WORDS_MAX][2];
static unsigned int nasked, ntold;
static uint64_t part_off, part_left;

static uint64_t number(struct fuzz_input *in)
{
	uint8_t how = fuzz_u8(in);

	if (how < 200) /* inside, and a little beyond */
		return how % 100 * (how < 100 ? GANTRY_PAGE : GANTRY_IMAGE_CHUNK / 16);
	return how < 220 ? (how - 200) * GANTRY_IMAGE_CHUNK : fuzz_u64(in);
}

static void make_word(struct fuzz_input *in, const uint32_t *kinds, size_t nkinds,
		      struct gantry_mover_msg *ret_msg)
{
	gantry_mover_init(ret_msg, kinds[fuzz_u8(in) % nkinds]);
	ret_msg->code = fuzz_u8(in) % 3;
	ret_msg->value[0] = number(in);
	ret_msg->value[1] = number(in);
}

/* ---- TLS, and what has to hold of what goes ---- */

static void put(const void *data, size_t len)
{
	len = GANTRY_MIN(len, STREAM_MAX - nstream);
	memcpy(stream + nstream, data, len);
	nstream += len;
}

static void put_all(struct fuzz_input *in)
{
	static const uint32_t kinds[] = { GANTRY_MOVER_PULL, GANTRY_MOVER_PART, GANTRY_MOVER_PULLED,
					  GANTRY_MOVER_FORGET, GANTRY_MOVER_REFUSED };
	static uint8_t filler[GANTRY_IMAGE_CHUNK];

	nstream = nread = 0;
	memset(filler, 0x3c, sizeof(filler));
	while (in->len > 0 && nstream < STREAM_MAX) {
		uint8_t what = fuzz_u8(in);
		struct gantry_mover_msg msg;

		if (what < 160) {
			make_word(in, kinds, GANTRY_ARRAY_SIZE(kinds), &msg);
			put(&msg, sizeof(msg));
			if (msg.kind == GANTRY_MOVER_PART && what < 120) /* with its bytes */
				put(filler, GANTRY_MIN(msg.value[1], sizeof(filler)));
		} else if (what < 224) {
			put(filler, (what - 160u) * GANTRY_PAGE);
		} else {
			uint8_t raw[32];

			put(raw, fuzz_take(in, raw, what - 223u));
		}
	}
}

static void check_word(const struct gantry_mover_msg *msg)
{
	assert(msg->magic == GANTRY_MOVER_MAGIC);
	if (!is_source) {
		assert(msg->kind == GANTRY_MOVER_PULL || msg->kind == GANTRY_MOVER_FORGET);
		return;
	}
	assert(msg->kind == GANTRY_MOVER_PART || msg->kind == GANTRY_MOVER_PULLED);
	assert(gantry_range_inside(msg->value[0], msg->value[1], SLAB_BYTES));
	if (msg->kind != GANTRY_MOVER_PART)
		return;
	assert(msg->value[1] > 0 && msg->value[1] <= GANTRY_IMAGE_CHUNK);
	for (uint64_t i = 0; msg->code && i < msg->value[1]; i++)
		assert(slab[msg->value[0] + i] == 0);
	part_off = msg->value[0];
	part_left = msg->code ? 0 : msg->value[1];
}

int gantry_tls_send(struct gantry_tls *t, const void *data, size_t len)
{
	(void)t;
	if (part_left) {
		assert(len == part_left && memcmp(data, slab + part_off, len) == 0);
		part_left = 0;
		return 0;
	}
	assert(len == sizeof(struct gantry_mover_msg));
	check_word(data);
	return 0;
}

int gantry_tls_send_more(struct gantry_tls *t, const void *data, size_t len)
{
	return gantry_tls_send(t, data, len);
}

/* What waits is what its socket shows. */
bool gantry_tls_has_more(const struct gantry_tls *t)
{
	(void)t;
	return false;
}

int64_t gantry_tls_recv(struct gantry_tls *t, void *data, size_t cap, uint64_t timeout_ns)
{
	size_t n = GANTRY_MIN(GANTRY_MIN(cap, step), nstream - nread);

	(void)t;
	(void)timeout_ns;
	if (n == 0)
		return -ECONNRESET;
	memcpy(data, stream + nread, n);
	nread += n;
	return (int64_t)n;
}

/* ---- the agent ---- */

/* All that it says; a FORGET at last, so that a destination does not wait for ever. */
static void talk(int sock, struct fuzz_input *in)
{
	static const uint32_t kinds[] = { GANTRY_MOVER_PULL, GANTRY_MOVER_PULL, GANTRY_MOVER_PULL,
					  GANTRY_MOVER_FORGET, GANTRY_MOVER_CANCEL };
	unsigned int n = is_source ? 0 : fuzz_u8(in) % WORDS_MAX;
	struct gantry_mover_msg msg;

	nasked = ntold = 0;
	for (unsigned int i = 0; i < n; i++) {
		make_word(in, kinds, GANTRY_ARRAY_SIZE(kinds), &msg);
		if (msg.kind == GANTRY_MOVER_PULL) {
			asked[nasked][0] = msg.value[0];
			asked[nasked++][1] = msg.value[1];
		}
		if (gantry_fd_send(sock, &msg, sizeof(msg), NULL, 0, MSG_DONTWAIT) < 0)
			abort();
	}
	gantry_mover_init(&msg, GANTRY_MOVER_FORGET);
	if (!is_source && gantry_fd_send(sock, &msg, sizeof(msg), NULL, 0, MSG_DONTWAIT) < 0)
		abort();
}

/* It is told of what it asked for, in that order. */
static void check_told(int sock)
{
	struct gantry_mover_msg msg;

	while (gantry_fd_recv(sock, &msg, sizeof(msg), NULL, 0, NULL, MSG_DONTWAIT) > 0) {
		if (msg.kind != GANTRY_MOVER_PULLED) {
			assert(msg.kind == GANTRY_MOVER_READY);
			continue;
		}
		assert(gantry_range_inside(msg.value[0], msg.value[1], SLAB_BYTES));
		if (is_source)
			continue;
		assert(ntold < nasked && msg.value[0] == asked[ntold][0] &&
		       msg.value[1] == asked[ntold][1]);
		ntold++;
	}
}

static bool was_asked(uint64_t at)
{
	for (unsigned int i = 0; i < nasked; i++)
		if (asked[i][0] <= at && at - asked[i][0] < asked[i][1])
			return true;
	return false;
}

/* ---- the slab ---- */

static void make_slab(void)
{
	if (gantry_memfd_create("slab", SLAB_BYTES, 0, &slab_fd) < 0)
		abort();
	slab = mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, slab_fd, 0);
	if (slab == MAP_FAILED)
		abort();
}

/* A source's first third is zero, but for a byte at the end of a page. */
static void fill_slab(void)
{
	if (!is_source) {
		memset(slab, MARK, SLAB_BYTES);
		return;
	}
	memset(slab, 0, SLAB_BYTES / 3);
	slab[5 * GANTRY_PAGE - 1] = 1;
	memset(slab + SLAB_BYTES / 3, 0x77, SLAB_BYTES - SLAB_BYTES / 3);
}

static void check_slab(void)
{
	for (uint64_t at = 0; at < SLAB_BYTES; at += GANTRY_PAGE)
		if (!was_asked(at))
			assert(slab[at] == MARK &&
			       memcmp(slab + at, slab + at + 1, GANTRY_PAGE - 1) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };
	uint8_t how = fuzz_u8(&in);
	struct gantry_mover m = { .code = 1 };
	int agent[2], link[2];
	int r;

	if (!slab)
		make_slab();
	is_source = how & 1;
	step = (size_t)(how >> 2) * 97 + 1;
	part_left = 0;
	fill_slab();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, agent) < 0 ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, link) < 0)
		abort();
	talk(agent[0], &in);
	put_all(&in);
	if ((how & 2) && write(link[0], "x", 1) != 1)
		abort();
	m.agent_fd = agent[1];
	m.sock = link[1];
	m.fds[1] = slab_fd;
	if (is_source)
		r = gantry_mover_serve(&m,
				       &(struct gantry_pages){ .map = slab, .bytes = SLAB_BYTES });
	else
		r = gantry_mover_pull(&m, SLAB_BYTES);
	assert(r == 0 || (r == -1 && m.err.text[0]));
	check_told(agent[0]);
	if (!is_source)
		check_slab();
	for (int i = 0; i < 2; i++) {
		close(agent[i]);
		close(link[i]);
	}
	return 0;
}
