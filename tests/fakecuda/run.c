/* SPDX-License-Identifier: Apache-2.0 */
/* What commands do, on the thread of their stream and without the lock. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fakecuda/fake.h"

#define LOOK_NS 50000 /* how often a stream looks at a word that it waits for */

/* Named so in every image. */
static const struct {
	const char *name;
	CUresult code;
} faults[] = {
	{ "fault", CUDA_ERROR_ILLEGAL_ADDRESS },
	{ "trap", CUDA_ERROR_LAUNCH_FAILED },
	{ "assert", CUDA_ERROR_ASSERT },
};

static bool stopped(struct CUstream_st *stream)
{
	bool is;

	pthread_mutex_lock(&fake.lock);
	is = stream->ctx->ending || stream->ctx->sticky != CUDA_SUCCESS || fake.cut;
	pthread_mutex_unlock(&fake.lock);
	return is;
}

static int ending(void *cookie)
{
	return stopped(cookie);
}

static bool both_reach(uint32_t devices, uint64_t dst, uint64_t src, uint64_t len)
{
	bool reaches;

	pthread_mutex_lock(&fake.lock);
	reaches = fake_reaches(dst, len, devices) && fake_reaches(src, len, devices);
	pthread_mutex_unlock(&fake.lock);
	return reaches;
}

static uint32_t device_of(const struct CUstream_st *stream)
{
	return 1u << stream->ctx->ordinal;
}

static CUresult run_copy(const struct CUstream_st *stream, const struct fake_cmd *cmd)
{
	uint32_t devices = cmd->copy.peer ? UINT32_MAX : device_of(stream);

	if (!both_reach(devices, cmd->copy.dst, cmd->copy.src, cmd->copy.len))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	memmove((void *)(uintptr_t)cmd->copy.dst, (const void *)(uintptr_t)cmd->copy.src,
		cmd->copy.len);
	return CUDA_SUCCESS;
}

static CUresult run_set(const struct CUstream_st *stream, const struct fake_cmd *cmd)
{
	uint64_t len = cmd->set.count * cmd->set.width;
	unsigned char *dst = (unsigned char *)(uintptr_t)cmd->set.dst;

	if (!both_reach(device_of(stream), cmd->set.dst, cmd->set.dst, len))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	if (cmd->set.width == 1)
		memset(dst, (int)cmd->set.value, len);
	else
		for (uint64_t i = 0; i < len; i += cmd->set.width)
			memcpy(dst + i, &cmd->set.value, cmd->set.width);
	return CUDA_SUCCESS;
}

/* Until the context fails or ends. */
static CUresult run_endless(struct CUstream_st *stream)
{
	pthread_mutex_lock(&fake.lock);
	while (!stream->ctx->ending && stream->ctx->sticky == CUDA_SUCCESS && !fake.cut)
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
	return CUDA_SUCCESS;
}

static CUresult run_launch(struct CUstream_st *stream, struct fake_cmd *cmd)
{
	const struct CUfunc_st *func = cmd->launch.func;

	cmd->launch.geometry.print = fake_print;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (strcmp(func->name, faults[i].name) == 0)
			return faults[i].code;
	if (strcmp(func->name, "endless") == 0)
		return run_endless(stream);
	cmd->launch.geometry.ending = ending;
	cmd->launch.geometry.cookie = stream;
	cmd->launch.geometry.texture_read = fake_texture_read;
	cmd->launch.geometry.set_condition = fake_condition_set;
	cmd->launch.geometry.surface_write = fake_surface_write;
	return (CUresult)func->fn(cmd->launch.params, &cmd->launch.geometry);
}

/* A device's writes go to memory in order: so must the one that tells of them. */
static CUresult run_write(const struct CUstream_st *stream, const struct fake_cmd *cmd)
{
	if (!both_reach(device_of(stream), cmd->word.at, cmd->word.at, cmd->word.width))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	if (cmd->word.width == 8)
		__atomic_store_n((uint64_t *)(uintptr_t)cmd->word.at, cmd->word.value,
				 __ATOMIC_SEQ_CST);
	else
		__atomic_store_n((uint32_t *)(uintptr_t)cmd->word.at, (uint32_t)cmd->word.value,
				 __ATOMIC_SEQ_CST);
	return CUDA_SUCCESS;
}

static bool word_is_there(const struct fake_cmd *cmd)
{
	uint64_t is, value = cmd->word.value;
	uint64_t mask = cmd->word.width == 8 ? UINT64_MAX : UINT32_MAX;
	uint64_t sign = cmd->word.width == 8 ? 1ull << 63 : 1ull << 31;

	is = cmd->word.width == 8
		     ? __atomic_load_n((uint64_t *)(uintptr_t)cmd->word.at, __ATOMIC_SEQ_CST)
		     : __atomic_load_n((uint32_t *)(uintptr_t)cmd->word.at, __ATOMIC_SEQ_CST);
	switch (cmd->word.flags & 3) {
	case CU_STREAM_WAIT_VALUE_EQ:
		return is == value;
	case CU_STREAM_WAIT_VALUE_AND:
		return (is & value) != 0;
	case CU_STREAM_WAIT_VALUE_NOR:
		return (~(is | value) & mask) != 0;
	default:
		return (((is - value) & mask) & sign) == 0;
	}
}

static CUresult run_await(struct CUstream_st *stream, const struct fake_cmd *cmd)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };

	if (!both_reach(device_of(stream), cmd->word.at, cmd->word.at, cmd->word.width))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	while (!word_is_there(cmd) && !stopped(stream))
		(void)nanosleep(&pause, NULL);
	return CUDA_SUCCESS;
}

static void run_record(const struct fake_cmd *cmd)
{
	struct CUevent_st *event = cmd->event.event;

	pthread_mutex_lock(&fake.lock);
	if (cmd->event.seq > event->done)
		event->done = cmd->event.seq;
	event->time_ns = fake_now_ns();
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

static void run_await_event(struct CUstream_st *stream, const struct fake_cmd *cmd)
{
	pthread_mutex_lock(&fake.lock);
	while (cmd->event.event->done < cmd->event.seq && !stream->ctx->ending &&
	       stream->ctx->sticky == CUDA_SUCCESS)
		pthread_cond_wait(&fake.changed, &fake.lock);
	pthread_mutex_unlock(&fake.lock);
}

static void run_free(const struct fake_cmd *cmd)
{
	struct fake_range *range;

	pthread_mutex_lock(&fake.lock);
	range = fake_range_at(FAKE_ALLOC, cmd->free_at);
	if (range)
		fake_range_drop(range);
	pthread_mutex_unlock(&fake.lock);
}

static CUresult run_body(struct CUstream_st *stream, const struct fake_cmd *branch, uint32_t i)
{
	CUresult r = CUDA_SUCCESS;

	for (struct fake_cmd *cmd = i < branch->branch.n ? branch->branch.bodies[i] : NULL;
	     cmd && r == CUDA_SUCCESS; cmd = cmd->next)
		r = fake_run(stream, cmd);
	return r;
}

static CUresult run_branch(struct CUstream_st *stream, const struct fake_cmd *cmd)
{
	uint32_t value = fake_condition_get(cmd->branch.number);
	CUresult r = CUDA_SUCCESS;

	switch (cmd->branch.type) {
	case CU_GRAPH_COND_TYPE_IF:
		return run_body(stream, cmd, value ? 0 : 1);
	case CU_GRAPH_COND_TYPE_SWITCH:
		return run_body(stream, cmd, value);
	case CU_GRAPH_COND_TYPE_WHILE:
		while (r == CUDA_SUCCESS && !stopped(stream) &&
		       fake_condition_get(cmd->branch.number))
			r = run_body(stream, cmd, 0);
		break;
	}
	return r;
}

CUresult fake_run(struct CUstream_st *stream, struct fake_cmd *cmd)
{
	CUresult r = CUDA_SUCCESS;

	switch (cmd->kind) {
	case FAKE_COPY:
		return run_copy(stream, cmd);
	case FAKE_SET:
		return run_set(stream, cmd);
	case FAKE_LAUNCH:
		fake_group_busy(1);
		r = run_launch(stream, cmd);
		fake_group_busy(-1);
		return r;
	case FAKE_WRITE:
		return run_write(stream, cmd);
	case FAKE_AWAIT:
		return run_await(stream, cmd);
	case FAKE_RECORD:
		run_record(cmd);
		break;
	case FAKE_AWAIT_EVENT:
		run_await_event(stream, cmd);
		break;
	case FAKE_CALL:
		cmd->call.fn(cmd->call.data);
		break;
	case FAKE_FREE:
		run_free(cmd);
		break;
	case FAKE_BOX:
		return fake_run_box(&cmd->box);
	case FAKE_ASSIGN:
		(void)fake_condition_set(cmd->assign.number, cmd->assign.value);
		break;
	case FAKE_BRANCH:
		return run_branch(stream, cmd);
	}
	return r;
}
