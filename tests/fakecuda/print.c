/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels print, as the Programming Guide has it: kept in a ring of the context's (CU_LIMIT_PRINTF_FIFO_SIZE), where the
 * newest replaces the oldest, and written to standard output by launches, synchronisations, blocking copies, loading of modules
 * and the end of the context. What a failed assertion says is written to standard error by the first call that sees the fault, a query too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/fake.h"

#define FIFO_BYTES (1u << 20)

static size_t size_of(const struct CUctx_st *ctx)
{
	size_t limit = ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE];

	return limit ? limit : FIFO_BYTES;
}

void fake_print(void *cookie, const char *text)
{
	struct CUctx_st *ctx = ((struct CUstream_st *)cookie)->ctx;
	size_t len = strlen(text);

	pthread_mutex_lock(&fake.lock);
	if (!ctx->fifo) {
		ctx->fifo_bytes = size_of(ctx);
		ctx->fifo = malloc(ctx->fifo_bytes);
	}
	for (size_t i = 0; ctx->fifo && i < len; i++)
		ctx->fifo[ctx->printed++ % ctx->fifo_bytes] = text[i];
	pthread_mutex_unlock(&fake.lock);
}

/* The size may change from here on. */
static void flush_locked(struct CUctx_st *ctx)
{
	uint64_t from = ctx->printed > ctx->fifo_bytes ? ctx->printed - ctx->fifo_bytes : 0;

	for (uint64_t i = from; ctx->fifo && i < ctx->printed; i++)
		(void)fputc(ctx->fifo[i % ctx->fifo_bytes], stdout);
	free(ctx->fifo);
	ctx->fifo = NULL;
	ctx->printed = 0;
	ctx->fifo_bytes = 0;
}

/* Whoever asks first learns of it, also where nothing is waited for. */
void fake_print_assert_locked(struct CUctx_st *ctx)
{
	if (ctx->sticky == CUDA_ERROR_ASSERT && !ctx->assert_told) {
		ctx->assert_told = true;
		(void)fprintf(stderr, "fake.cu:1: void assert(): block: [0,0,0], thread: [0,0,0] "
				      "Assertion `false` failed.\n");
	}
}

void fake_print_flush_locked(struct CUctx_st *ctx)
{
	flush_locked(ctx);
	fake_print_assert_locked(ctx);
}

void fake_print_flush(void)
{
	struct CUctx_st *ctx = fake_ctx_current();

	if (!ctx)
		return;
	pthread_mutex_lock(&fake.lock);
	fake_print_flush_locked(ctx);
	pthread_mutex_unlock(&fake.lock);
}
