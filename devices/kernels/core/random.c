/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers by position: element i of a call is number offset + i of the seed's stream,
 * whoever makes it and with however many lanes. So a vector may be made in parts, and a task may
 * run again.
 */
#include "devices/kernels/core/philox.h"
#include "devices/kernels/kernel.h"

#define GRAIN 16384u
/* Words made in one go; a multiple of 4, the words of one counter. */
#define BATCH 256u

struct numbers {
	void *out;
	uint64_t seed;
	uint64_t offset;
	float shift; /* the least uniform, or the mean */
	float scale; /* the width, or the standard deviation */
};

HOT static void words_make(uint64_t seed, uint64_t counter, uint32_t words[static BATCH])
{
	for (uint64_t i = 0; i < BATCH / 4; i++)
		philox(seed, 0, counter + i, words + 4 * i);
}

/*
 * Makes the batch that holds number @pos of the stream. Returns how many of the numbers from @pos
 * on it holds, at most @wanted; the first is ret_words[*ret_skip].
 */
static uint64_t batch_make(const struct numbers *nb, uint64_t pos, uint64_t wanted,
			   uint32_t ret_words[static BATCH], uint64_t *ret_skip)
{
	words_make(nb->seed, pos / 4, ret_words);
	*ret_skip = pos % 4;
	return gantry_min_u64(wanted, BATCH - pos % 4);
}

static void u32_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct numbers *nb = arg;
	uint32_t words[BATCH], *out = nb->out;
	uint64_t skip, count;

	for (uint64_t i = begin; i < end; i += count) {
		count = batch_make(nb, nb->offset + i, end - i, words, &skip);
		for (uint64_t j = 0; j < count; j++)
			out[i + j] = words[skip + j];
	}
}

static void uniform_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct numbers *nb = arg;
	uint32_t words[BATCH];
	float *out = nb->out;
	uint64_t skip, count;

	for (uint64_t i = begin; i < end; i += count) {
		count = batch_make(nb, nb->offset + i, end - i, words, &skip);
		for (uint64_t j = 0; j < count; j++)
			out[i + j] = nb->shift + nb->scale * word_to_uniform(words[skip + j]);
	}
}

static void normal_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct numbers *nb = arg;
	uint32_t words[BATCH];
	float normals[BATCH], *out = nb->out;
	uint64_t skip, count;

	for (uint64_t i = begin; i < end; i += count) {
		count = batch_make(nb, nb->offset + i, end - i, words, &skip);
		for (uint64_t j = 0; j < skip + count; j += 2)
			words_to_normal(words + j, normals + j);
		for (uint64_t j = 0; j < count; j++)
			out[i + j] = nb->shift + nb->scale * normals[skip + j];
	}
}

KERNEL(random_u32)
{
	uint64_t n = call->args[1].u64;
	struct numbers nb = {
		.out = ARG(uint32_t, call, 0, n),
		.seed = call->args[2].u64,
		.offset = call->args[3].u64,
	};

	if (!nb.out)
		return -EINVAL;
	env->parallel(env, n, GRAIN, u32_range, &nb);
	return 0;
}

static int floats_make(struct gantry_env *env, const struct gantry_call *call,
		       void (*range)(void *arg, uint64_t begin, uint64_t end))
{
	uint64_t n = call->args[1].u64;
	struct numbers nb = {
		.out = ARG(float, call, 0, n),
		.seed = call->args[2].u64,
		.offset = call->args[3].u64,
		.shift = call->args[4].f32,
		.scale = call->args[5].f32,
	};

	if (!nb.out)
		return -EINVAL;
	env->parallel(env, n, GRAIN, range, &nb);
	return 0;
}

KERNEL(random_uniform)
{
	return floats_make(env, call, uniform_range);
}

KERNEL(random_normal)
{
	return floats_make(env, call, normal_range);
}
