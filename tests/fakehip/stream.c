/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fakehip/fake.h"

struct gantry_hip_stream {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct fake_op *first, **last;
	bool busy;
	bool ending;
};

struct gantry_hip_event {
	pthread_mutex_t lock;
	uint64_t time_ns; /* 0: not recorded yet */
	uint32_t nahead;  /* records of it that no stream has come to */
};

static uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct fake_op *take_locked(struct gantry_hip_stream *stream)
{
	struct fake_op *op = stream->first;

	if (op) {
		stream->first = op->next;
		if (!stream->first)
			stream->last = &stream->first;
	}
	return op;
}

static void *work(void *arg)
{
	struct gantry_hip_stream *stream = arg;

	pthread_mutex_lock(&stream->lock);
	for (;;) {
		struct fake_op *op = take_locked(stream);

		if (!op && stream->ending)
			break;
		stream->busy = op != NULL;
		if (!op) {
			pthread_cond_broadcast(&stream->changed);
			pthread_cond_wait(&stream->changed, &stream->lock);
			continue;
		}
		pthread_mutex_unlock(&stream->lock);
		op->run(stream, op);
		free(op);
		pthread_mutex_lock(&stream->lock);
	}
	pthread_mutex_unlock(&stream->lock);
	return NULL;
}

struct fake_op *fake_op_new(void (*run)(struct gantry_hip_stream *stream, struct fake_op *op))
{
	struct fake_op *op = calloc(1, sizeof(*op));

	if (op)
		op->run = run;
	return op;
}

gantry_hip_result fake_put(struct gantry_hip_stream *stream, struct fake_op *op)
{
	if (!op)
		return GANTRY_HIP_OUT_OF_MEMORY;
	if (!stream) {
		free(op);
		return GANTRY_HIP_INVALID_HANDLE;
	}
	pthread_mutex_lock(&stream->lock);
	*stream->last = op;
	stream->last = &op->next;
	stream->busy = true;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->lock);
	return GANTRY_HIP_SUCCESS;
}

/* ---- streams ---- */

gantry_hip_result hipStreamCreateWithPriority(struct gantry_hip_stream **ret_stream, unsigned flags,
					      int priority)
{
	struct gantry_hip_stream *stream = calloc(1, sizeof(*stream));

	(void)flags;
	(void)priority;
	if (!stream)
		return GANTRY_HIP_OUT_OF_MEMORY;
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->changed, NULL);
	stream->last = &stream->first;
	if (pthread_create(&stream->thread, NULL, work, stream) != 0) {
		free(stream);
		return GANTRY_HIP_OUT_OF_MEMORY;
	}
	*ret_stream = stream;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipStreamSynchronize(struct gantry_hip_stream *stream)
{
	if (!stream)
		return GANTRY_HIP_INVALID_HANDLE;
	pthread_mutex_lock(&stream->lock);
	while (stream->busy || stream->first)
		pthread_cond_wait(&stream->changed, &stream->lock);
	pthread_mutex_unlock(&stream->lock);
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipStreamDestroy(struct gantry_hip_stream *stream)
{
	if (!stream)
		return GANTRY_HIP_INVALID_HANDLE;
	pthread_mutex_lock(&stream->lock);
	stream->ending = true;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->lock);
	(void)pthread_join(stream->thread, NULL);
	pthread_cond_destroy(&stream->changed);
	pthread_mutex_destroy(&stream->lock);
	free(stream);
	return GANTRY_HIP_SUCCESS;
}

static void run_callback(struct gantry_hip_stream *stream, struct fake_op *op)
{
	op->callback(stream, GANTRY_HIP_SUCCESS, op->user);
}

gantry_hip_result hipStreamAddCallback(struct gantry_hip_stream *stream,
				       gantry_hip_callback *callback, void *user, unsigned flags)
{
	struct fake_op *op = fake_op_new(run_callback);

	(void)flags;
	if (op) {
		op->callback = callback;
		op->user = user;
	}
	return fake_put(stream, op);
}

/* ROCm 5 is played without: backends have to do with callbacks then. */
#ifndef FAKEHIP_ROCM5
static void run_write(struct gantry_hip_stream *stream, struct fake_op *op)
{
	(void)stream;
	__atomic_store_n((uint32_t *)op->dst, (uint32_t)op->pattern, __ATOMIC_RELEASE);
}

gantry_hip_result hipStreamWriteValue32(struct gantry_hip_stream *stream, void *address,
					uint32_t value, unsigned flags)
{
	struct fake_op *op = fake_op_new(run_write);

	(void)flags;
	if (op) {
		op->dst = address;
		op->pattern = value;
	}
	return fake_put(stream, op);
}

gantry_hip_result hipStreamQuery(struct gantry_hip_stream *stream)
{
	bool busy;

	pthread_mutex_lock(&stream->lock);
	busy = stream->busy || stream->first;
	pthread_mutex_unlock(&stream->lock);
	return busy ? GANTRY_HIP_NOT_READY : GANTRY_HIP_SUCCESS;
}
#endif

/* ---- events ---- */

gantry_hip_result hipEventCreateWithFlags(struct gantry_hip_event **event, unsigned flags)
{
	(void)flags;
	*event = calloc(1, sizeof(**event));
	if (!*event)
		return GANTRY_HIP_OUT_OF_MEMORY;
	pthread_mutex_init(&(*event)->lock, NULL);
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipEventDestroy(struct gantry_hip_event *event)
{
	pthread_mutex_destroy(&event->lock);
	free(event);
	return GANTRY_HIP_SUCCESS;
}

static void run_record(struct gantry_hip_stream *stream, struct fake_op *op)
{
	(void)stream;
	pthread_mutex_lock(&op->event->lock);
	op->event->time_ns = now_ns();
	op->event->nahead--;
	pthread_mutex_unlock(&op->event->lock);
}

gantry_hip_result hipEventRecord(struct gantry_hip_event *event, struct gantry_hip_stream *stream)
{
	struct fake_op *op = fake_op_new(run_record);

	if (op) {
		op->event = event;
		pthread_mutex_lock(&event->lock);
		event->nahead++;
		pthread_mutex_unlock(&event->lock);
	}
	return fake_put(stream, op);
}

gantry_hip_result hipEventQuery(struct gantry_hip_event *event)
{
	bool ahead;

	pthread_mutex_lock(&event->lock);
	ahead = event->nahead > 0;
	pthread_mutex_unlock(&event->lock);
	return ahead ? GANTRY_HIP_NOT_READY : GANTRY_HIP_SUCCESS;
}

static uint64_t time_of(struct gantry_hip_event *event)
{
	uint64_t time_ns;

	pthread_mutex_lock(&event->lock);
	time_ns = event->time_ns;
	pthread_mutex_unlock(&event->lock);
	return time_ns;
}

gantry_hip_result hipEventElapsedTime(float *ms, struct gantry_hip_event *from,
				      struct gantry_hip_event *to)
{
	uint64_t begin = time_of(from), end = time_of(to);

	if (!begin || !end)
		return GANTRY_HIP_NOT_READY;
	*ms = (float)((double)(int64_t)(end - begin) / 1e6);
	return GANTRY_HIP_SUCCESS;
}

/* ---- copies and fills ---- */

/* Host memory that is not registered is carried by the processor; only it may be out of a GPU's reach. */
static void run_copy(struct gantry_hip_stream *stream, struct fake_op *op)
{
	(void)stream;
	if (op->width != GANTRY_HIP_DEVICE_TO_HOST && !fake_reaches(op->dst, op->len))
		fake_fault("copy", op->dst);
	if (op->width != GANTRY_HIP_HOST_TO_DEVICE && !fake_reaches(op->src, op->len))
		fake_fault("copy", op->src);
	memmove(op->dst, op->src, op->len);
}

gantry_hip_result hipMemcpyAsync(void *dst, const void *src, size_t bytes, int kind,
				 struct gantry_hip_stream *stream)
{
	struct fake_op *op;

	if (kind < GANTRY_HIP_HOST_TO_DEVICE || kind > GANTRY_HIP_DEVICE_TO_DEVICE)
		return GANTRY_HIP_INVALID_VALUE;
	op = fake_op_new(run_copy);
	if (op) {
		op->dst = dst;
		op->src = src;
		op->len = bytes;
		op->width = (uint32_t)kind;
	}
	return fake_put(stream, op);
}

gantry_hip_result hipMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
				     size_t bytes, struct gantry_hip_stream *stream)
{
	if (dst_device < 0 || src_device < 0 || dst_device >= fake_ngpus() ||
	    src_device >= fake_ngpus())
		return GANTRY_HIP_INVALID_DEVICE;
	return hipMemcpyAsync(dst, src, bytes, GANTRY_HIP_DEVICE_TO_DEVICE, stream);
}

static void run_set(struct gantry_hip_stream *stream, struct fake_op *op)
{
	(void)stream;
	if (!fake_reaches(op->dst, op->len))
		fake_fault("fill", op->dst);
	for (uint64_t off = 0; off < op->len; off += op->width)
		memcpy((unsigned char *)op->dst + off, &op->pattern, op->width);
}

static gantry_hip_result set(void *dst, uint64_t pattern, uint32_t width, uint64_t count,
			     struct gantry_hip_stream *stream)
{
	struct fake_op *op;

	if ((uintptr_t)dst % width != 0)
		return GANTRY_HIP_INVALID_VALUE;
	op = fake_op_new(run_set);
	if (op) {
		op->dst = dst;
		op->pattern = pattern;
		op->width = width;
		op->len = width * count;
	}
	return fake_put(stream, op);
}

gantry_hip_result hipMemsetAsync(void *dst, int value, size_t bytes,
				 struct gantry_hip_stream *stream)
{
	return set(dst, (unsigned char)value, 1, bytes, stream);
}

gantry_hip_result hipMemsetD16Async(void *dst, unsigned short value, size_t count,
				    struct gantry_hip_stream *stream)
{
	return set(dst, value, 2, count, stream);
}

gantry_hip_result hipMemsetD32Async(void *dst, int value, size_t count,
				    struct gantry_hip_stream *stream)
{
	return set(dst, (uint32_t)value, 4, count, stream);
}
