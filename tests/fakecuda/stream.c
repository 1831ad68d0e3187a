/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, and the calls that put a command into a stream. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakecuda/fake.h"

#define LEAST_PRIORITY	  0
#define GREATEST_PRIORITY (-5)

struct fake_cmd *fake_cmd_new(enum fake_cmd_kind kind)
{
	struct fake_cmd *cmd = calloc(1, sizeof(*cmd));

	if (cmd)
		cmd->kind = kind;
	return cmd;
}

void fake_cmds_free(struct fake_cmd *cmds)
{
	while (cmds) {
		struct fake_cmd *cmd = cmds;

		cmds = cmd->next;
		fake_cmd_free(cmd);
	}
}

static bool copy_list(const struct fake_cmd *from, struct fake_cmd **ret_list)
{
	struct fake_cmd **at = ret_list;

	for (*at = NULL; from; from = from->next) {
		*at = fake_cmd_copy(from);
		if (!*at)
			return false;
		at = &(*at)->next;
	}
	return true;
}

static bool copy_bodies(const struct fake_cmd *from, struct fake_cmd *cmd)
{
	bool fits = true;

	cmd->branch.bodies = calloc(from->branch.n, sizeof(struct fake_cmd *));
	if (!cmd->branch.bodies)
		return false;
	for (uint32_t i = 0; fits && from->branch.bodies && i < from->branch.n; i++)
		fits = copy_list(from->branch.bodies[i], &cmd->branch.bodies[i]);
	return fits;
}

/* With its own copy of what it points to; events get another reference. With the lock. */
struct fake_cmd *fake_cmd_copy(const struct fake_cmd *from)
{
	struct fake_cmd *cmd = fake_cmd_new(from->kind);

	if (!cmd)
		return NULL;
	*cmd = *from;
	cmd->next = NULL;
	if (cmd->kind == FAKE_RECORD || cmd->kind == FAKE_AWAIT_EVENT)
		cmd->event.event->nrefs++;
	if (cmd->kind == FAKE_BRANCH && !copy_bodies(from, cmd)) {
		fake_cmd_free(cmd);
		return NULL;
	}
	if (cmd->kind != FAKE_LAUNCH || !from->launch.bytes)
		return cmd;
	cmd->launch.bytes = malloc(from->launch.func->param_bytes);
	if (!cmd->launch.bytes) {
		free(cmd);
		return NULL;
	}
	memcpy(cmd->launch.bytes, from->launch.bytes, from->launch.func->param_bytes);
	for (uint32_t i = 0; i < cmd->launch.nparams; i++)
		cmd->launch.params[i] = cmd->launch.bytes + from->launch.func->params[i].offset;
	return cmd;
}

/* With the lock, for the events in it. */
void fake_cmd_free(struct fake_cmd *cmd)
{
	if (cmd->kind == FAKE_LAUNCH)
		free(cmd->launch.bytes);
	for (uint32_t i = 0; cmd->kind == FAKE_BRANCH && cmd->branch.bodies && i < cmd->branch.n;
	     i++)
		fake_cmds_free(cmd->branch.bodies[i]);
	if (cmd->kind == FAKE_BRANCH)
		free(cmd->branch.bodies);
	if (cmd->kind == FAKE_RECORD || cmd->kind == FAKE_AWAIT_EVENT)
		fake_event_unref_locked(cmd->event.event);
	free(cmd);
}

static void drop_commands(struct CUstream_st *stream)
{
	while (stream->head) {
		struct fake_cmd *cmd = stream->head;

		stream->head = cmd->next;
		fake_cmd_free(cmd);
	}
	stream->tail = &stream->head;
}

static void run_next_locked(struct CUstream_st *stream)
{
	struct fake_cmd *cmd = stream->head;
	CUresult r;

	stream->head = cmd->next;
	if (!stream->head)
		stream->tail = &stream->head;
	stream->busy = true;
	stream->launch = cmd->kind == FAKE_LAUNCH || cmd->kind == FAKE_BRANCH;
	pthread_mutex_unlock(&fake.lock);
	r = fake_run(stream, cmd);
	pthread_mutex_lock(&fake.lock);
	if (r != CUDA_SUCCESS) {
		fake_group_tell(r);
		fake_fail_locked(stream->ctx, r);
	}
	fake_cmd_free(cmd);
	stream->busy = false;
	stream->launch = false;
	pthread_cond_broadcast(&fake.changed);
}

/* Until there is something to do, and the device is ours. */
static void wait_locked(struct CUstream_st *stream)
{
	pthread_cond_wait(&stream->work, &fake.lock);
	if (!stream->head || fake.switch_us == 0)
		return;
	pthread_mutex_unlock(&fake.lock);
	(void)usleep((useconds_t)fake.switch_us);
	pthread_mutex_lock(&fake.lock);
}

static void *stream_main(void *arg)
{
	struct CUstream_st *stream = arg;

	pthread_mutex_lock(&fake.lock);
	while (!stream->ctx->ending) {
		/* Nothing runs in a context that has failed. */
		if (stream->ctx->sticky != CUDA_SUCCESS && stream->head) {
			drop_commands(stream);
			pthread_cond_broadcast(&fake.changed);
		}
		if (stream->head)
			run_next_locked(stream);
		else if (stream->closing)
			break;
		else
			wait_locked(stream);
	}
	drop_commands(stream);
	stream->left = true;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
	return NULL;
}

/* The lock is given up while its thread ends. */
static void unlink_and_free_locked(struct CUstream_st *stream)
{
	struct CUstream_st **at = &stream->ctx->streams;

	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	if (stream->ctx->null_stream == stream)
		stream->ctx->null_stream = NULL;
	pthread_mutex_unlock(&fake.lock);
	if (stream->started)
		(void)pthread_join(stream->thread, NULL);
	pthread_mutex_lock(&fake.lock);
	drop_commands(stream);
	(void)pthread_cond_destroy(&stream->work);
	free(stream);
}

static void reap_locked(struct CUctx_st *ctx)
{
	struct CUstream_st *stream = ctx->streams;

	while (stream && !(stream->closing && (stream->left || !stream->started)))
		stream = stream->next;
	if (!stream)
		return;
	unlink_and_free_locked(stream);
	reap_locked(ctx);
}

bool fake_launches_locked(const struct CUctx_st *ctx)
{
	const struct CUstream_st *stream = ctx->streams;

	while (stream && !stream->launch && !(stream->head && stream->head->kind == FAKE_LAUNCH))
		stream = stream->next;
	return stream != NULL;
}

void fake_streams_end_locked(struct CUctx_st *ctx)
{
	for (struct CUstream_st *s = ctx->streams; s; s = s->next)
		pthread_cond_broadcast(&s->work);
	pthread_cond_broadcast(&fake.changed);
	while (ctx->streams)
		unlink_and_free_locked(ctx->streams);
}

static struct CUstream_st *stream_new_locked(struct CUctx_st *ctx, unsigned int flags, int priority)
{
	struct CUstream_st *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	(void)pthread_cond_init(&stream->work, NULL);
	stream->ctx = ctx;
	stream->flags = flags;
	stream->priority = priority < GREATEST_PRIORITY ? GREATEST_PRIORITY
			   : priority > LEAST_PRIORITY	? LEAST_PRIORITY
							: priority;
	stream->tail = &stream->head;
	stream->next = ctx->streams;
	ctx->streams = stream;
	return stream;
}

struct CUstream_st *fake_stream_locked(struct CUctx_st *ctx, CUstream stream)
{
	if (stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD)
		return stream;
	if (!ctx->null_stream)
		ctx->null_stream = stream_new_locked(ctx, 0, 0);
	return ctx->null_stream;
}

CUresult fake_put_locked(struct CUstream_st *stream, struct fake_cmd *cmd)
{
	CUresult r = stream->ctx->sticky;

	if (r == CUDA_SUCCESS && !stream->started) {
		stream->started = pthread_create(&stream->thread, NULL, stream_main, stream) == 0;
		r = stream->started ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
	}
	if (r != CUDA_SUCCESS) {
		fake_cmd_free(cmd);
		return r;
	}
	if (cmd->kind == FAKE_RECORD)
		cmd->event.seq = ++cmd->event.event->recorded;
	*stream->tail = cmd;
	stream->tail = &cmd->next;
	pthread_cond_signal(&stream->work);
	return CUDA_SUCCESS;
}

CUresult fake_put(CUstream stream, struct CUctx_st *ctx, struct fake_cmd *cmd)
{
	CUresult r;

	pthread_mutex_lock(&fake.lock);
	r = fake_put_locked(fake_stream_locked(ctx, stream), cmd);
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult fake_drain_locked(struct CUstream_st *stream)
{
	struct CUctx_st *ctx = stream->ctx;

	while ((stream->head || stream->busy) && ctx->sticky == CUDA_SUCCESS && !ctx->ending)
		pthread_cond_wait(&fake.changed, &fake.lock);
	return ctx->sticky;
}

CUresult cuStreamCreateWithPriority(CUstream *ret_stream, unsigned int flags, int priority)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);
	struct CUstream_st *stream;

	if (r != CUDA_SUCCESS)
		return r;
	if (flags & ~1u)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	reap_locked(ctx);
	stream = stream_new_locked(ctx, flags, priority);
	pthread_mutex_unlock(&fake.lock);
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *ret_stream, unsigned int flags)
{
	return cuStreamCreateWithPriority(ret_stream, flags, 0);
}

/* What is in it still runs. */
CUresult cuStreamDestroy(CUstream stream)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&fake.lock);
	stream->closing = true;
	pthread_cond_broadcast(&stream->work);
	reap_locked(ctx);
	pthread_mutex_unlock(&fake.lock);
	return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS) {
		fake_print_flush();
		return r;
	}
	pthread_mutex_lock(&fake.lock);
	r = fake_drain_locked(fake_stream_locked(ctx, stream));
	fake_print_flush_locked(ctx);
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult cuStreamQuery(CUstream stream)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);
	struct CUstream_st *s;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	s = fake_stream_locked(ctx, stream);
	r = ctx->sticky;
	if (r == CUDA_SUCCESS && (s->head || s->busy))
		r = CUDA_ERROR_NOT_READY;
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult cuStreamGetPriority(CUstream stream, int *ret_priority)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r == CUDA_SUCCESS)
		*ret_priority = stream ? stream->priority : 0;
	return r;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int *ret_flags)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r == CUDA_SUCCESS)
		*ret_flags = stream ? stream->flags : 0;
	return r;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *data)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);
	struct fake_cmd *cmd;

	if (r != CUDA_SUCCESS)
		return r;
	cmd = fake_cmd_new(FAKE_CALL);
	if (!cmd)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cmd->call.fn = fn;
	cmd->call.data = data;
	return fake_put(stream, ctx, cmd);
}

/* Events. */

void fake_event_unref_locked(struct CUevent_st *event)
{
	if (--event->nrefs == 0)
		free(event);
}

CUresult cuEventCreate(CUevent *ret_event, unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);
	struct CUevent_st *event;

	if (r != CUDA_SUCCESS)
		return r;
	event = calloc(1, sizeof(*event));
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->nrefs = 1;
	event->flags = flags;
	event->ctx = ctx;
	*ret_event = event;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
	CUresult r = fake_fail_ask(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&fake.lock);
	fake_event_unref_locked(event);
	pthread_mutex_unlock(&fake.lock);
	return CUDA_SUCCESS;
}

static CUresult put_event(const char *call, enum fake_cmd_kind kind, CUstream stream, CUevent event)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(call, &ctx);
	struct fake_cmd *cmd;

	if (r != CUDA_SUCCESS)
		return r;
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	cmd = fake_cmd_new(kind);
	if (!cmd)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&fake.lock);
	event->nrefs++;
	cmd->event.event = event;
	cmd->event.seq = event->recorded;
	r = fake_put_locked(fake_stream_locked(ctx, stream), cmd);
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return put_event(__func__, FAKE_RECORD, stream, event);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	(void)flags;
	return put_event(__func__, FAKE_RECORD, stream, event);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	(void)flags;
	return put_event(__func__, FAKE_AWAIT_EVENT, stream, event);
}

CUresult cuEventQuery(CUevent event)
{
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	r = event->ctx->sticky;
	if (r == CUDA_SUCCESS && event->done < event->recorded)
		r = CUDA_ERROR_NOT_READY;
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult cuEventSynchronize(CUevent event)
{
	CUresult r = fake_enter(__func__);
	uint64_t seq;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	seq = event->recorded;
	while (event->done < seq && event->ctx->sticky == CUDA_SUCCESS && !event->ctx->ending)
		pthread_cond_wait(&fake.changed, &fake.lock);
	r = event->ctx->sticky;
	fake_print_flush_locked(event->ctx);
	pthread_mutex_unlock(&fake.lock);
	return r;
}

static CUresult elapsed(const char *call, float *ret_ms, CUevent start, CUevent end)
{
	CUresult r = fake_enter(call);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
		r = CUDA_ERROR_INVALID_HANDLE;
	else if (!start->recorded || !end->recorded)
		r = CUDA_ERROR_INVALID_HANDLE;
	else if (start->done < start->recorded || end->done < end->recorded)
		r = CUDA_ERROR_NOT_READY;
	else
		*ret_ms = (float)((double)(int64_t)(end->time_ns - start->time_ns) / 1e6);
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult cuEventElapsedTime(float *ret_ms, CUevent start, CUevent end)
{
	return elapsed(__func__, ret_ms, start, end);
}

/* Newer headers give the name to a newer function; the driver has both. */
#ifdef cuEventElapsedTime
#undef cuEventElapsedTime
__attribute__((visibility("default"))) CUresult cuEventElapsedTime(float *ret_ms, CUevent start,
								   CUevent end);

CUresult cuEventElapsedTime(float *ret_ms, CUevent start, CUevent end)
{
	return elapsed(__func__, ret_ms, start, end);
}
#endif

/* Stream memory operations. */

static CUresult put_word(const char *call, CUstream stream, enum fake_cmd_kind kind, uint64_t at,
			 uint64_t value, uint32_t width, unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(call, &ctx);
	struct fake_cmd *cmd;

	if (r != CUDA_SUCCESS)
		return r;
	if (at % width)
		return CUDA_ERROR_INVALID_VALUE;
	cmd = fake_cmd_new(kind);
	if (!cmd)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cmd->word.at = at;
	cmd->word.value = value;
	cmd->word.width = width;
	cmd->word.flags = flags;
	return fake_put(stream, ctx, cmd);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned int flags)
{
	return put_word(__func__, stream, FAKE_WRITE, at, value, 4, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned int flags)
{
	return put_word(__func__, stream, FAKE_WRITE, at, value, 8, flags);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned int flags)
{
	return put_word(__func__, stream, FAKE_AWAIT, at, value, 4, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned int flags)
{
	return put_word(__func__, stream, FAKE_AWAIT, at, value, 8, flags);
}

static CUresult put_batched(const char *call, CUstream stream, const CUstreamBatchMemOpParams *op)
{
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return put_word(call, stream, FAKE_WRITE, op->writeValue.address,
				op->writeValue.value, 4, op->writeValue.flags);
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return put_word(call, stream, FAKE_WRITE, op->writeValue.address,
				op->writeValue.value64, 8, op->writeValue.flags);
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return put_word(call, stream, FAKE_AWAIT, op->waitValue.address,
				op->waitValue.value, 4, op->waitValue.flags);
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return put_word(call, stream, FAKE_AWAIT, op->waitValue.address,
				op->waitValue.value64, 8, op->waitValue.flags);
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
	case CU_STREAM_MEM_OP_BARRIER:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,
			    unsigned int flags)
{
	CUresult r = flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;

	for (unsigned int i = 0; i < count && r == CUDA_SUCCESS; i++)
		r = put_batched(__func__, stream, &ops[i]);
	return r;
}
