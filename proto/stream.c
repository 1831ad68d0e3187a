/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/stream.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "proto/codec.h"

/* ---- format ---- */

void gantry_stream_header_init(struct gantry_door_header *h, uint16_t kind, uint32_t len_bytes,
			       uint32_t tag)
{
	*h = (struct gantry_door_header){
		.magic = GANTRY_DOOR_MAGIC,
		.kind = kind,
		.len_bytes = len_bytes,
		.tag = tag,
	};
}

/* Least length of a kind; 0 for one that is not of this file. */
static uint32_t least_len(uint16_t kind)
{
	switch (kind) {
	case GANTRY_STREAM_POSITIONS:
		return sizeof(struct gantry_stream_positions) + 2 * sizeof(uint64_t);
	case GANTRY_STREAM_DATA:
		return sizeof(struct gantry_stream_data) + 1;
	case GANTRY_STREAM_PUT:
		return sizeof(struct gantry_stream_put) + sizeof(struct gantry_desc);
	case GANTRY_STREAM_DONE:
		return sizeof(struct gantry_stream_done);
	case GANTRY_STREAM_STATE:
		return sizeof(struct gantry_stream_state);
	case GANTRY_STREAM_BYE:
		return sizeof(struct gantry_door_header);
	default:
		return 0;
	}
}

int gantry_stream_check(const struct gantry_door_header *h)
{
	uint32_t least = least_len(h->kind);

	if (h->magic != GANTRY_DOOR_MAGIC || h->reserved != 0)
		return -EPROTO;
	if (least == 0)
		return gantry_door_len(h->kind) == h->len_bytes && h->len_bytes != 0 ? 0 : -EPROTO;
	if (h->len_bytes < least)
		return -EPROTO;
	if (h->kind == GANTRY_STREAM_DATA)
		return h->len_bytes - (least - 1) <= GANTRY_STREAM_CHUNK ? 0 : -EPROTO;
	return h->len_bytes <= GANTRY_STREAM_FRAME_MAX && h->len_bytes % 8 == 0 ? 0 : -EPROTO;
}

/* ---- ranges ---- */

static unsigned int add_range(struct gantry_stream_range *ranges, unsigned int n, uint64_t off,
			      uint64_t bytes, uint64_t heap_bytes)
{
	if (bytes == 0 || off > heap_bytes || bytes > heap_bytes - off)
		return n;
	ranges[n] = (struct gantry_stream_range){ off, bytes };
	return n + 1;
}

unsigned int gantry_stream_reads(const struct gantry_desc *desc, uint64_t heap_bytes,
				 struct gantry_stream_range ret_ranges[GANTRY_STREAM_NRANGES])
{
	struct gantry_op_write write;
	struct gantry_op_image_load image;
	unsigned int n = 0;

	if (!(desc->flags & GANTRY_DESC_INLINE) && desc->len_bytes <= GANTRY_MAX_VAR_BYTES)
		n = add_range(ret_ranges, n, desc->off_bytes, desc->len_bytes, heap_bytes);
	if (desc->op == GANTRY_OP_write) {
		memcpy(&write, desc->imm, sizeof(write));
		n = add_range(ret_ranges, n, write.heap_off, write.bytes, heap_bytes);
	} else if (desc->op == GANTRY_OP_image_load) {
		memcpy(&image, desc->imm, sizeof(image));
		if (!image.by_name && image.bytes <= GANTRY_MAX_IMAGE_BYTES)
			n = add_range(ret_ranges, n, image.heap_off, image.bytes, heap_bytes);
	}
	return n;
}

unsigned int gantry_stream_writes(const struct gantry_desc *desc, int status, uint64_t heap_bytes,
				  struct gantry_stream_range *ret_range)
{
	struct gantry_op_read read;
	struct gantry_op_stamp stamp;
	struct gantry_op_image_load image;

	if (desc->op == GANTRY_OP_stamp && status == GANTRY_OK) {
		memcpy(&stamp, desc->imm, sizeof(stamp));
		return add_range(ret_range, 0, stamp.heap_off, sizeof(uint64_t), heap_bytes);
	}
	if (desc->op == GANTRY_OP_read && status == GANTRY_OK) {
		memcpy(&read, desc->imm, sizeof(read));
		return add_range(ret_range, 0, read.heap_off, read.bytes, heap_bytes);
	}
	if (desc->op == GANTRY_OP_image_load && status != GANTRY_E_AGAIN) {
		memcpy(&image, desc->imm, sizeof(image));
		return image.log_bytes <= GANTRY_MAX_IMAGE_LOG
			       ? add_range(ret_range, 0, image.log_off, image.log_bytes, heap_bytes)
			       : 0;
	}
	return 0;
}

/* ---- receiving ---- */

void gantry_stream_rx_init(struct gantry_stream_rx *rx)
{
	rx->begin = rx->end = 0;
	rx->payload = NULL;
	rx->payload_bytes = 0;
}

static uint32_t available(const struct gantry_stream_rx *rx)
{
	return rx->end - rx->begin;
}

/* Payload that came behind its frame's header in one piece with it. */
static void take_payload(struct gantry_stream_rx *rx)
{
	uint32_t n = rx->payload_bytes < available(rx) ? rx->payload_bytes : available(rx);

	if (n == 0)
		return;
	memcpy(rx->payload, rx->buf + rx->begin, n);
	rx->begin += n;
	rx->payload += n;
	rx->payload_bytes -= n;
}

static int begin_payload(struct gantry_stream_rx *rx, const struct gantry_stream_sink *sink)
{
	struct gantry_stream_data data;

	memcpy(&data, rx->buf + rx->begin, sizeof(data));
	rx->payload_bytes = data.h.len_bytes - (uint32_t)sizeof(data);
	rx->payload = sink->payload(sink->cookie, data.heap_off, rx->payload_bytes);
	if (!rx->payload) {
		rx->payload_bytes = 0;
		return -EPROTO;
	}
	rx->begin += (uint32_t)sizeof(data);
	take_payload(rx);
	return 1;
}

/* One frame out of the buffer: 1; 0: more has to come first. */
static int take_frame(struct gantry_stream_rx *rx, const struct gantry_stream_sink *sink)
{
	const uint32_t magic = GANTRY_DOOR_MAGIC;
	struct gantry_door_header h;
	int r;

	if (rx->payload_bytes > 0 || available(rx) == 0)
		return 0;
	/* What speaks another language may never say as much as a header. */
	if (memcmp(rx->buf + rx->begin, &magic,
		   available(rx) < sizeof(magic) ? available(rx) : sizeof(magic)) != 0)
		return -EPROTO;
	if (available(rx) < sizeof(h))
		return 0;
	memcpy(&h, rx->buf + rx->begin, sizeof(h));
	r = gantry_stream_check(&h);
	if (r < 0)
		return r;
	if (h.kind == GANTRY_STREAM_DATA)
		return available(rx) < sizeof(struct gantry_stream_data) ? 0
									 : begin_payload(rx, sink);
	if (available(rx) < h.len_bytes)
		return 0;
	memcpy(rx->frame, rx->buf + rx->begin, h.len_bytes);
	rx->begin += h.len_bytes;
	r = sink->frame(sink->cookie, (const struct gantry_door_header *)rx->frame);
	return r == 0 ? 1 : r;
}

/* Into the payload first, what is more into the buffer: one call for both. *@ret_room is what would have fit. */
static ssize_t fill(struct gantry_stream_rx *rx, int sock, bool waits, size_t *ret_room)
{
	struct iovec iov[2];
	struct msghdr msg = { .msg_iov = iov };
	ssize_t n;

	if (rx->begin > 0) {
		memmove(rx->buf, rx->buf + rx->begin, available(rx));
		rx->end -= rx->begin;
		rx->begin = 0;
	}
	if (rx->payload_bytes > 0)
		iov[msg.msg_iovlen++] = (struct iovec){ rx->payload, rx->payload_bytes };
	iov[msg.msg_iovlen++] = (struct iovec){ rx->buf + rx->end, sizeof(rx->buf) - rx->end };
	*ret_room = rx->payload_bytes + sizeof(rx->buf) - rx->end;
	do {
		n = recvmsg(sock, &msg, (waits ? 0 : MSG_DONTWAIT) | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR && !waits); /* one that waits would begin to wait anew */
	if (n < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	return n;
}

int gantry_stream_receive(struct gantry_stream_rx *rx, int sock, bool waits,
			  const struct gantry_stream_sink *sink)
{
	size_t room = 0;
	ssize_t n = fill(rx, sock, waits, &room);
	int came = n > 0 && (size_t)n == room ? GANTRY_STREAM_CAME_MORE : GANTRY_STREAM_CAME;
	int r;

	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return -ECONNRESET;
	if ((size_t)n < rx->payload_bytes) {
		rx->payload += n;
		rx->payload_bytes -= (uint32_t)n;
		return came;
	}
	rx->end += (uint32_t)n - rx->payload_bytes;
	rx->payload_bytes = 0;
	do {
		r = take_frame(rx, sink);
	} while (r > 0);
	return r < 0 ? r : came;
}

/* ---- sending ---- */

void gantry_stream_tx_init(struct gantry_stream_tx *tx)
{
	tx->begin = tx->end = 0;
	tx->payload = NULL;
	tx->payload_bytes = 0;
}

void *gantry_stream_tx_room(struct gantry_stream_tx *tx, uint32_t bytes)
{
	if (tx->payload_bytes > 0 || bytes > sizeof(tx->buf) - tx->end)
		return NULL;
	return tx->buf + tx->end;
}

void gantry_stream_tx_add(struct gantry_stream_tx *tx, uint32_t bytes)
{
	tx->end += bytes;
}

int gantry_stream_tx_put(struct gantry_stream_tx *tx, const void *frame, uint32_t bytes)
{
	void *room = gantry_stream_tx_room(tx, bytes);

	if (!room)
		return -EAGAIN;
	memcpy(room, frame, bytes);
	gantry_stream_tx_add(tx, bytes);
	return 0;
}

int gantry_stream_tx_data(struct gantry_stream_tx *tx, uint64_t heap_off, const void *ptr,
			  uint32_t bytes)
{
	struct gantry_stream_data data = { .heap_off = heap_off };
	int r;

	gantry_stream_header_init(&data.h, GANTRY_STREAM_DATA, (uint32_t)sizeof(data) + bytes, 0);
	r = gantry_stream_tx_put(tx, &data, sizeof(data));
	if (r < 0)
		return r;
	tx->payload = ptr;
	tx->payload_bytes = bytes;
	return 0;
}

static void sent(struct gantry_stream_tx *tx, size_t n)
{
	uint32_t of_buf = tx->end - tx->begin;

	if (n < of_buf) {
		tx->begin += (uint32_t)n;
		return;
	}
	n -= of_buf;
	tx->begin = tx->end = 0;
	if (tx->payload_bytes > 0) {
		tx->payload += n;
		tx->payload_bytes -= (uint32_t)n;
	}
}

int gantry_stream_flush(struct gantry_stream_tx *tx, int sock)
{
	while (!gantry_stream_tx_is_empty(tx)) {
		struct iovec iov[2] = {
			{ tx->buf + tx->begin, tx->end - tx->begin },
			{ (void *)(uintptr_t)tx->payload, tx->payload_bytes },
		};
		struct msghdr msg = { .msg_iov = iov, .msg_iovlen = tx->payload_bytes ? 2 : 1 };
		ssize_t n = sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == ENOBUFS ? -EAGAIN : -ECONNRESET;
		sent(tx, (size_t)n);
	}
	return 0;
}
