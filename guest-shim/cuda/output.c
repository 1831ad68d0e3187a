/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels print. printf() of device code is the program's own output: CUDA's driver writes it to the program's standard output,
 * and what a failed assertion says to its standard error. So do we, by the program's own stdio, so that it comes in order with
 * what the program prints itself. These are the only bytes that any of our libraries writes there, and none of them is ours.
 *
 * The host puts them into a buffer of the session (struct gantry_output) before it tells that the kernels have finished: to look
 * there costs no round trip. There is one once an image has been loaded whose kernels may print.
 */
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "guest-shim/cuda/core.h"
#include "proto/wire.h"

#define BYTES_MAX (1u << 20)
#define BYTES_MIN (64u << 10)
#define CHUNK	  2048u

static struct {
	pthread_mutex_t
		lock; /* also keeps what is written in order; nothing of CUDA's is taken under it */
	bool is_asked;		    /* for a buffer: it is there, or cannot be */
	struct gantry_output *head; /* atomic; NULL: there is none */
	const uint8_t *ring[2];
	uint64_t bytes;	   /* of a ring */
	uint64_t shown[2]; /* atomic */
} output = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Thread_local bool is_due;

/* ---- whether anything can come ---- */

static bool has(const void *image, size_t bytes, const char *name)
{
	return memmem(image, bytes, name, strlen(name)) != NULL;
}

/* What printf() and assert() are in device code. Of what is compressed nobody knows. */
static bool may_print(const void *image, size_t bytes)
{
	return cu_image_is_compressed(image, bytes) || has(image, bytes, "vprintf") ||
	       has(image, bytes, "__assertfail");
}

static int make_locked(uint64_t bytes)
{
	gantry_buffer buffer;
	void *at;
	int r = gantry_alloc(cu.session, bytes, GANTRY_ALLOC_HOST | GANTRY_ALLOC_OUTPUT, &buffer);

	if (r < 0)
		return r;
	r = gantry_map(cu.session, buffer, 0, bytes, GANTRY_RW, GANTRY_FOREVER, &at);
	if (r < 0) {
		(void)gantry_free(cu.session, buffer);
		return r;
	}
	output.bytes = GANTRY_OUTPUT_RING(bytes);
	for (unsigned int i = 0; i < 2; i++) {
		output.ring[i] = (const uint8_t *)at + sizeof(struct gantry_output) +
				 i * output.bytes;
		output.shown[i] = gantry_load_relaxed(&((struct gantry_output *)at)->put[i]);
	}
	gantry_store_release(&output.head, (struct gantry_output *)at);
	return 0;
}

void cu_output_want(const void *image, size_t bytes)
{
	(void)pthread_mutex_lock(&output.lock);
	if (!output.is_asked && may_print(image, bytes)) {
		output.is_asked = true;
		/* An older host knows no such buffer, and a heap may be full: then it is lost, as it was before there was one. */
		for (uint64_t n = BYTES_MAX; n >= BYTES_MIN && make_locked(n) < 0; n /= 4)
			;
	}
	(void)pthread_mutex_unlock(&output.lock);
}

/* ---- showing ---- */

/* The newest that the ring holds of what came from *at on; the host may be writing over it just now. */
static size_t take_chunk(unsigned int which, uint64_t *at, uint64_t put, uint8_t chunk[CHUNK])
{
	for (;;) {
		uint64_t off, now;
		size_t n;

		if (put - *at > output.bytes)
			*at = put - output.bytes;
		off = *at % output.bytes;
		n = (size_t)GANTRY_MIN(GANTRY_MIN(put - *at, output.bytes - off), CHUNK);
		memcpy(chunk, output.ring[which] + off, n);
		/* Acquire: the bytes have been read. */
		now = gantry_load_acquire(&output.head->put[which]);
		if (now - *at <= output.bytes) {
			*at += n;
			return n;
		}
		put = now;
	}
}

static void show_locked(unsigned int which, FILE *to)
{
	/* Acquire: pairs with the host's release; the bytes are there. */
	uint64_t put = gantry_load_acquire(&output.head->put[which]);
	uint8_t chunk[CHUNK];
	uint64_t at = gantry_load_relaxed(&output.shown[which]);

	while (at < put) {
		size_t n = take_chunk(which, &at, put, chunk);

		gantry_store_relaxed(&output.shown[which], at);
		/* Where the program has no output any more, it goes nowhere, as with the driver. */
		(void)!fwrite(chunk, 1, n, to);
	}
}

static bool is_news(const struct gantry_output *head)
{
	return gantry_load_relaxed(&head->put[0]) != gantry_load_relaxed(&output.shown[0]) ||
	       gantry_load_relaxed(&head->put[1]) != gantry_load_relaxed(&output.shown[1]);
}

void cu_output_show(void)
{
	const struct gantry_output *head = gantry_load_acquire(&output.head);

	is_due = false;
	if (!head || !is_news(head))
		return;
	(void)pthread_mutex_lock(&output.lock);
	show_locked(0, stdout);
	show_locked(1, stderr);
	(void)pthread_mutex_unlock(&output.lock);
}

void cu_output_due(void)
{
	is_due = true;
}

void cu_output_leave(void)
{
	if (is_due)
		cu_output_show();
}

bool cu_output_comes(void)
{
	return gantry_load_acquire(&output.head) != NULL;
}

/* ---- faults ---- */

CUresult cu_output_fault(void)
{
	const struct gantry_output *head = gantry_load_acquire(&output.head);
	uint32_t fault = head ? gantry_load_relaxed(&head->fault) : 0;

	switch (fault) {
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
		return (CUresult)fault;
	default:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	}
}
