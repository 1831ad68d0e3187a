/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the Fourier transforms, which are cuFFT's. */
#include <limits.h>

#include "devices/kernels/core/cuda/body.h"

/* What the library may take for granted; a buffer's start has it. */
#define ALIGN 16u

#define FORWARD	 (-1)
#define BACKWARD 1

struct fft {
	int kind; /* enum gantry_cufft_kind */
	uint64_t n, batch;
	int direction;
	uint64_t nin, nout; /* floats of one transform */
};

static int fft_start(struct gantry_env *env, const struct gantry_cufft *cufft, const struct fft *f,
		     float *in, float *out)
{
	uint64_t work_bytes;
	void *work;
	int plan, r = cufft->plan(cufft->cache, f->kind, (int)f->n, (int)f->batch, &plan,
				  &work_bytes);

	if (r < 0)
		return r;
	work = kernel_scratch(env, work_bytes, 1);
	if (!work)
		return -ENOMEM;
	if (cufft->work(plan, work) != 0)
		return -EIO;
	if (f->kind == GANTRY_CUFFT_C2C)
		r = cufft->c2c(plan, in, out, f->direction);
	else if (f->kind == GANTRY_CUFFT_R2C)
		r = cufft->r2c(plan, in, out);
	else
		r = cufft->c2r(plan, in, out);
	return r == 0 ? 0 : -EIO;
}

static int fft_call(struct gantry_env *env, const struct gantry_call *call, const struct fft *f)
{
	const struct gantry_cufft *cufft;
	float *in, *out;

	if (f->n == 0 || f->batch == 0)
		return 0;
	if (f->n * f->batch > INT_MAX || (f->direction != FORWARD && f->direction != BACKWARD))
		return -EINVAL;
	in = kernel_arg(call, 0, f->nin * f->batch, sizeof(float), ALIGN);
	out = kernel_arg(call, 1, f->nout * f->batch, sizeof(float), ALIGN);
	if (!in || !out)
		return -EINVAL;
	cufft = env->handle(env, "cufft");
	return cufft ? fft_start(env, cufft, f, in, out) : -EOPNOTSUPP;
}

static uint64_t half_of(uint64_t n)
{
	return n / 2 + 1;
}

KERNEL(fft)
{
	uint64_t n = call->args[2].u32;
	const struct fft f = {
		.kind = GANTRY_CUFFT_C2C,
		.n = n,
		.batch = call->args[3].u32,
		.direction = call->args[4].i32,
		.nin = 2 * n,
		.nout = 2 * n,
	};

	return fft_call(env, call, &f);
}

KERNEL(fft_r2c)
{
	uint64_t n = call->args[2].u32;
	const struct fft f = {
		.kind = GANTRY_CUFFT_R2C,
		.n = n,
		.batch = call->args[3].u32,
		.direction = FORWARD,
		.nin = n,
		.nout = 2 * half_of(n),
	};

	return fft_call(env, call, &f);
}

KERNEL(fft_c2r)
{
	uint64_t n = call->args[2].u32;
	const struct fft f = {
		.kind = GANTRY_CUFFT_C2R,
		.n = n,
		.batch = call->args[3].u32,
		.direction = BACKWARD,
		.nin = 2 * half_of(n),
		.nout = n,
	};

	return fft_call(env, call, &f);
}
