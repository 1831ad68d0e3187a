/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest library that keeps no rule: raw door messages, raw shared memory.
 *
 * It holds what any guest holds (door, segment, bell) and gives the tests every word of it. What it does by itself is
 * what an honest guest does, so that a test breaks one rule at a time.
 *
 * Order of calls: connect, hello, map; or adopt for a segment that came another way; then anything; then close.
 * Threads: one, unless a test says so. Blocking: every wait has a limit; HOSTILE_TIMEOUT is its answer.
 */
#ifndef GANTRY_TESTS_MISUSE_HOSTILE_H
#define GANTRY_TESTS_MISUSE_HOSTILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/codec.h"
#include "proto/door.h"
#include "proto/ring.h"

#define HOSTILE_TIMEOUT 1      /* no status: those are zero or negative */
#define HOSTILE_WAIT_MS 10000u /* what a test waits for something that has to come */

struct hostile {
	int door; /* negative: the session came without one */
	int segment_fd;
	int bell_fd;
	struct gantry_door_welcome welcome;
	struct gantry_region segment;
	struct gantry_region heap;
	struct gantry_segment_header header; /* as it was at the start */
	struct gantry_segment_header *shared;
	struct gantry_ring_producer rings[GANTRY_MAX_QUEUES];
	uint64_t heap_used; /* by hostile_heap() */
};

/* ---- door ---- */

/* Connects, says nothing. 0 or -errno. */
int hostile_connect(struct hostile *h, const char *path);
/* A HELLO as an honest guest sends it; tests change it. */
void hostile_hello_init(struct gantry_door_hello *hello);
int hostile_send(struct hostile *h, const void *msg, size_t len);
/*
 * The next message from the door: its length, 0 when the agent hung up, -errno (-ETIMEDOUT). Descriptors that come
 * with a WELCOME go to @h, others are closed.
 */
int hostile_receive(struct hostile *h, void *msg, size_t cap, unsigned int timeout_ms);
/* Sends @hello and takes the answer: GANTRY_OK and mapped, or the refusal's status with its sentence in @text. */
int hostile_attach(struct hostile *h, const struct gantry_door_hello *hello,
		   char text[GANTRY_DOOR_TEXT]);
/* The agent ends this connection, with a NOTICE or REFUSE first or without; its status, or 0 if it just hung up. */
int hostile_refused(struct hostile *h, unsigned int timeout_ms);

/* ---- segment ---- */

/* Takes duplicates of a segment and a bell and maps them. */
void hostile_adopt(struct hostile *h, int segment_fd, int bell_fd);
void hostile_close(struct hostile *h);

/* @bytes of the heap, 64-byte aligned, never given back. Returns the offset. */
uint64_t hostile_heap(struct hostile *h, uint64_t bytes);
void *hostile_heap_at(struct hostile *h, uint64_t off);

/* Rings the bell unless that would block. */
void hostile_ring(struct hostile *h);
/* Puts one descriptor, with an inline part if @inl. Returns its sequence number, 0 when there is no room. */
uint64_t hostile_put(struct hostile *h, uint32_t queue, const struct gantry_desc *desc,
		     const void *inl, uint32_t inl_bytes);
/* The status of a put task; HOSTILE_TIMEOUT; the reason if the session ended meanwhile. */
int hostile_wait(struct hostile *h, uint32_t queue, uint64_t seq, unsigned int timeout_ms);
/* Waits until the session has ended: its reason, or HOSTILE_TIMEOUT. */
int hostile_ended(struct hostile *h, unsigned int timeout_ms);
bool hostile_alive(struct hostile *h);

/* ---- honest requests ---- */

/* A control operation and its reply (may be NULL). The status, HOSTILE_TIMEOUT, or the reason of the end. */
int hostile_control(struct hostile *h, const struct gantry_desc *desc, const void *inl,
		    uint32_t inl_bytes, struct gantry_reply *ret_reply);
int hostile_queue(struct hostile *h, uint32_t *ret_slot, uint64_t *ret_handle);
int hostile_buffer(struct hostile *h, uint64_t bytes, unsigned int flags, uint64_t *ret_handle);
int hostile_buffer_free(struct hostile *h, uint64_t handle);
int hostile_kernel(struct hostile *h, const char *name, const char *signature, uint64_t *ret_handle,
		   struct gantry_reply *ret_reply);
/* A launch with an inline part of @naccess accesses and @args_bytes arguments (192 bytes at most). */
uint64_t hostile_launch(struct hostile *h, uint32_t queue, uint64_t kernel,
			const struct gantry_wire_access *access, uint16_t naccess, const void *args,
			uint16_t args_bytes);
/* An empty task and its end: does the session work? The status. */
int hostile_ping(struct hostile *h, uint32_t queue);

/* Repeatable noise. */
uint64_t hostile_random(uint64_t *state);
void hostile_noise(uint64_t *state, void *buf, size_t len);

#endif
