/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that only tests want: they misbehave on purpose, or tell what reached them. */
#include <string.h>

#include "devices/kernels/kernel.h"

KERNEL(endless)
{
	while (!env->cancelled(env))
		;
	return -ECANCELED;
}

/* Never asks: only ending the worker helps. */
KERNEL(stuck)
{
	for (;;)
		;
}

/* Not for the sanitizer to judge: the fault itself is wanted. */
__attribute__((no_sanitize("undefined"))) static void write_nowhere(void)
{
	/*
	 * Twice volatile: a compiler that knows the address drops the store, or traps in a way of
	 * its own.
	 */
	volatile int *volatile nowhere = NULL;

	*nowhere = 1;
}

KERNEL(crash)
{
	write_nowhere();
	return 0;
}

/* Answers what it is told, errnos or not. */
KERNEL(fail)
{
	return call->args[0].i32;
}

#define ECHO_NARGS 19u
/* Arguments before this one are buffers. */
#define ECHO_NBUFFERS	   13u
#define ECHO_INCREMENT_IDX 10u
#define ECHO_COMMUTE_IDX   11u
#define ECHO_OUT_IDX	   12u
#define ECHO_OUT_WORDS	   (2u * ECHO_NARGS + 6u)

/* Bytes of the element or scalar of each argument, in the order of the signature. */
static const uint8_t echo_bytes[ECHO_NARGS] = { 1, 1, 2, 2, 4, 4, 8, 8, 4, 8,
						4, 4, 8, 4, 4, 8, 8, 4, 8 };

static void echo_argument(const union gantry_value *arg, uint32_t idx, uint64_t ret_words[2])
{
	bool is_buffer = idx < ECHO_NBUFFERS;
	bool has_value = !is_buffer || gantry_span_count(&arg->span, echo_bytes[idx]) > 0;

	ret_words[0] = is_buffer ? arg->span.len_bytes : 0;
	ret_words[1] = 0;
	if (has_value)
		memcpy(&ret_words[1], is_buffer ? arg->span.ptr : arg, echo_bytes[idx]);
}

KERNEL(echo)
{
	uint64_t nincrement = gantry_span_count(&call->args[ECHO_INCREMENT_IDX].span,
						sizeof(uint32_t));
	uint64_t ncommute = gantry_span_count(&call->args[ECHO_COMMUTE_IDX].span, sizeof(float));
	uint32_t *increment = ARG(uint32_t, call, ECHO_INCREMENT_IDX, nincrement);
	float *commute = ARG(float, call, ECHO_COMMUTE_IDX, ncommute);
	uint64_t *out = ARG(uint64_t, call, ECHO_OUT_IDX, ECHO_OUT_WORDS);

	if (call->nargs != ECHO_NARGS || !increment || !commute || !out)
		return -EINVAL;
	for (uint32_t i = 0; i < ECHO_NARGS; i++)
		echo_argument(&call->args[i], i, out + 2 * i);
	for (uint32_t i = 0; i < 3; i++) {
		out[2 * ECHO_NARGS + i] = call->grid[i];
		out[2 * ECHO_NARGS + 3 + i] = call->block[i];
	}
	for (uint64_t i = 0; i < nincrement; i++)
		increment[i]++;
	for (uint64_t i = 0; i < ncommute; i++)
		commute[i] += 1.0f;
	return 0;
}
