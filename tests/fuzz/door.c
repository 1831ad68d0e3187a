/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input: a byte that chooses. 0: the rest is a message at the door, in either direction. Else: what an agent might give a
 * guest, byte by byte: WELCOME, the segment's header, one queue area, an answer to a request, a reply.
 * The guest library opens a session over it, asks for this and that and leaves. It may refuse; it may not crash or hang.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "guest-shim/transport.h"
#include "proto/ring.h"
#include "tests/fuzz/fuzz.h"

#define SEGMENT_MAX   (4u << 20) /* of memory that the target is willing to lay out */
#define CALL_LIMIT_NS 20000	 /* nobody answers: every call ends by this */

/* ---- messages ---- */

static void check_message(const uint8_t *data, size_t len)
{
	uint64_t aligned[64];
	uint16_t kind = 0;
	size_t n = len < sizeof(aligned) ? len : sizeof(aligned);

	if (n > 0)
		memcpy(aligned, data, n);
	if (gantry_door_check(aligned, n, &kind) < 0)
		return;
	assert(gantry_door_len(kind) == n);
	if (kind == GANTRY_DOOR_HELLO) {
		const struct gantry_door_hello *hello = (const void *)aligned;

		assert(strlen(hello->name) < sizeof(hello->name));
		assert(gantry_version_choose(hello->version_min, hello->version_max, 1, 1) <= 1);
	}
}

/* ---- an agent made of bytes ---- */

static int fake_handshake(void *cookie, const struct gantry_door_hello *hello, uint64_t deadline_ns,
			  struct gantry_attachment *ret_attachment)
{
	struct fuzz_input *in = cookie;
	struct gantry_segment_header header;
	struct gantry_queue_area area;
	uint64_t bytes;
	int fd;

	(void)hello;
	(void)deadline_ns;
	memset(ret_attachment, 0, sizeof(*ret_attachment));
	fuzz_take(in, &ret_attachment->welcome, sizeof(ret_attachment->welcome));
#ifdef __SANITIZE_THREAD__
	ret_attachment->welcome.address =
		0; /* this sanitizer ends a program that maps where it does not like */
#endif
	fuzz_take(in, &header, sizeof(header));
	fuzz_take(in, &area, sizeof(area));
	/* A transport promises a memfd as large as announced; what it cannot promise it refuses. */
	bytes = ret_attachment->welcome.segment_bytes;
	if (bytes > SEGMENT_MAX || gantry_memfd_create("fuzz", bytes, GANTRY_MEMFD_SEALED, &fd) < 0)
		return GANTRY_E_PROTOCOL;
	/* Short writes are as good: the rest is zero. */
	(void)!pwrite(fd, &header, sizeof(header), 0);
	if (header.queues_off < bytes)
		(void)!pwrite(fd, &area, sizeof(area), (off_t)header.queues_off);
	ret_attachment->segment_fd = fd;
	return 0;
}

static void fake_kick(void *cookie)
{
	(void)cookie;
}

static int fake_request(void *cookie, void *msg, uint16_t kind, void *ret_answer,
			uint64_t deadline_ns)
{
	(void)msg;
	(void)deadline_ns;
	fuzz_take(cookie, ret_answer, gantry_door_len(kind));
	return 0;
}

static int fake_peek(void *cookie, struct gantry_door_refuse *ret_notice)
{
	fuzz_take(cookie, ret_notice, sizeof(*ret_notice));
	/* A transport keeps only notices that gantry_door_check() let pass. */
	ret_notice->text[sizeof(ret_notice->text) - 1] = '\0';
	if (ret_notice->status > 0)
		ret_notice->status = 0;
	return ret_notice->status < 0 ? -ECONNRESET : 0;
}

static void fake_close(void *cookie)
{
	(void)cookie;
}

static const struct gantry_transport_ops fake = {
	.prefix = "fuzz:",
	.handshake = fake_handshake,
	.kick = fake_kick,
	.request = fake_request,
	.peek = fake_peek,
	.close = fake_close,
};

static void use(struct gantry_session *session)
{
	static const uint64_t ticket = GANTRY_TICKET(1, 1);
	struct gantry_props props;
	struct gantry_stats stats;
	gantry_buffer buffer;
	gantry_queue queue;
	uint64_t len;
	int fd = -1;

	(void)gantry_props_get(session, GANTRY_KIND_ANY, &props);
	(void)gantry_stats_get(session, &stats);
	(void)gantry_queue_open(session, NULL, &queue);
	if (gantry_alloc(session, 4096, GANTRY_ALLOC_HOST, &buffer) == 0) {
		if (gantry_share(session, buffer, GANTRY_R, &fd) == 0) {
			(void)gantry_adopt(session, fd, &buffer, &len);
			close(fd);
		}
		(void)gantry_free(session, buffer);
	}
	(void)gantry_test(session, ticket);
	(void)gantry_wait(session, &ticket, 1, 1000);
	assert(gantry_last_error() != NULL);
}

static void attach(struct fuzz_input in)
{
	const struct gantry_limits ask = { .call_timeout_ns = CALL_LIMIT_NS };
	struct gantry_session *session = NULL;
	int status = gantry_session_open_transport(&fake, &in, &ask, &session);

	if (status < 0) {
		assert(session == NULL);
		return;
	}
	use(session);
	gantry_close(session);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct fuzz_input in = { data, len };

	if (fuzz_u8(&in) == 0)
		check_message(in.data, in.len);
	else
		attach(in);
	return 0;
}
