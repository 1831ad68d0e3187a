/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vhost-user device for tests: what QEMU says of a machine's memory and of a device's queues, and the queues (virtio
 * 1.0, split, without indirect buffers). What is in the buffers is the caller's.
 *
 * Trust: the machine is a test's; its numbers are bounded nonetheless. Threads: one. One device in a process.
 */
#ifndef GANTRY_TESTS_VM_VHOST_H
#define GANTRY_TESTS_VM_VHOST_H

#include <stdbool.h>
#include <stdint.h>

#define NQUEUES 3u

struct vring_desc;
struct vring_avail;
struct vring_used;

struct queue {
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	uint64_t desc_addr, avail_addr, used_addr; /* QEMU's */
	uint32_t num;
	uint16_t next;
	int kick;
	int call;
	bool is_started; /* from its kick on; until then its addresses may be those of before a reset */
	bool has_used; /* the guest is to be told */
};

struct vhost_options {
	const void *config; /* the device's configuration space; it stays */
	uint32_t config_bytes;
	void (*stopped)(void); /* a queue stops: the machine is reset, or the device goes */
};

/* Ends the program where the other side cannot be spoken with. */
void die(const char *what);

/* QEMU's connection; the caller polls it, and calls vhost_hear() when it is readable. Ends the program with it. */
void vhost_begin(int qemu, const struct vhost_options *options);
void vhost_hear(void);

struct queue *vhost_queue(uint32_t index);

bool has_buffer(const struct queue *q);
/* The next one, which stays the next, and which does not. */
uint16_t next_buffer(const struct queue *q);
uint16_t take_buffer(struct queue *q);
void give_back(struct queue *q, uint16_t head, uint32_t bytes);
/* An interrupt, where something was given back. */
void tell_guest(struct queue *q);

/* Copies between @buf and a chain, in the chain's direction. Bytes moved. */
uint32_t move_chain(struct queue *q, uint16_t head, uint8_t *buf, uint32_t bytes, bool to_guest);
uint32_t room_in(const struct queue *q, uint16_t head);

#endif
