/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the Fourier transforms. */
#include <limits.h>

#include "devices/kernels/core/opencl/body.h"

/* What the libraries of other devices want of ranges. */
#define ALIGN 16u
/* Groups for each compute unit: each has memory for a transform. */
#define GROUPS_PER_UNIT 4u

/* As in fft.cl. */
enum shape {
	COMPLEX = 0,
	REAL_TO_COMPLEX = 1,
	COMPLEX_TO_REAL = 2,
};

struct point {
	double re, im;
};

struct fft {
	uint32_t shape;
	int32_t sign;
	uint64_t n, batch;
	uint64_t
		m; /* what Stockham's transform is made of: n, or a power of two of 2 n - 1 and more */
	bool chirps;
	ocl_buffer in, out, roots, chirp, filter, slots, verdict;
	uint64_t nslots;
};

static int memory_get(struct gantry_env *env, struct fft *f)
{
	f->chirps = (f->n & (f->n - 1)) != 0;
	f->m = f->n;
	f->chirp = f->filter = &ocl_nothing;
	if (f->chirps) {
		for (f->m = 1; f->m < 2 * f->n - 1;)
			f->m *= 2;
		f->chirp = SCRATCH(struct point, env, f->n);
		f->filter = SCRATCH(struct point, env, f->m);
	}
	f->roots = SCRATCH(struct point, env, f->m / 2 + 1);
	f->verdict = ocl_calls(env)->verdict(env);
	f->nslots = gantry_min_u64(f->batch, (uint64_t)ocl_calls(env)->nunits * GROUPS_PER_UNIT);
	f->slots = SCRATCH(struct point, env, 2 * f->m * f->nslots);
	if (!f->slots) {
		/* One after another, then. */
		f->nslots = 1;
		f->slots = SCRATCH(struct point, env, 2 * f->m);
	}
	return f->chirp && f->filter && f->roots && f->verdict && f->slots ? 0 : -ENOMEM;
}

static int tables_make(struct gantry_env *env, const struct fft *f)
{
	uint64_t nchirp = f->chirps ? f->n : 0;
	int32_t roots_sign = f->chirps ? -1 : f->sign;
	int r = LAUNCH_ITEMS(env, OCL_fft_tables, gantry_max_u64(f->m / 2, nchirp), BUF(f->roots),
			     BUF(f->chirp), VAL(nchirp), VAL(f->m), VAL(f->sign), VAL(roots_sign));

	if (r < 0 || !f->chirps)
		return r;
	return LAUNCH_GROUP(env, OCL_fft_filter, BUF(f->roots), BUF(f->chirp), BUF(f->filter),
			    BUF(f->slots), VAL(f->n), VAL(f->m));
}

static int fft_run(struct gantry_env *env, struct fft *f)
{
	const struct gantry_opencl_param params[] = {
		BUF(f->in),	 BUF(f->out),	BUF(f->roots),	BUF(f->slots),
		BUF(f->verdict), VAL(f->shape), VAL(f->n),	VAL(f->m),
		VAL(f->batch),	 BUF(f->chirp), BUF(f->filter),
	};
	uint32_t nparams = GANTRY_ARRAY_SIZE(params);
	int r = tables_make(env, f);

	if (r < 0)
		return r;
	return ocl_launch_groups(env, f->chirps ? OCL_fft_chirps : OCL_fft, f->nslots, params,
				 f->chirps ? nparams : nparams - 2);
}

static ocl_buffer aligned_arg(const struct gantry_call *call, uint32_t idx, uint64_t count)
{
	ocl_buffer buffer = ARG(float, call, idx, count);

	return buffer && buffer->align >= ALIGN ? buffer : NULL;
}

/* Per transform: @nin floats come in, @nout go out. */
static int fft_call(struct gantry_env *env, const struct gantry_call *call, struct fft *f,
		    uint64_t nin, uint64_t nout)
{
	int r;

	if (f->n == 0 || f->batch == 0)
		return 0;
	/* Libraries of other devices count in int. */
	if (f->n * f->batch > INT_MAX || (f->sign != 1 && f->sign != -1))
		return -EINVAL;
	f->in = aligned_arg(call, 0, nin * f->batch);
	f->out = aligned_arg(call, 1, nout * f->batch);
	if (!f->in || !f->out)
		return -EINVAL;
	r = memory_get(env, f);
	return r < 0 ? r : fft_run(env, f);
}

KERNEL(fft)
{
	struct fft f = {
		.shape = COMPLEX,
		.n = call->args[2].u32,
		.batch = call->args[3].u32,
		.sign = call->args[4].i32,
	};

	return fft_call(env, call, &f, 2 * f.n, 2 * f.n);
}

KERNEL(fft_r2c)
{
	struct fft f = {
		.shape = REAL_TO_COMPLEX,
		.n = call->args[2].u32,
		.batch = call->args[3].u32,
		.sign = -1,
	};

	return fft_call(env, call, &f, f.n, 2 * (f.n / 2 + 1));
}

KERNEL(fft_c2r)
{
	struct fft f = {
		.shape = COMPLEX_TO_REAL,
		.n = call->args[2].u32,
		.batch = call->args[3].u32,
		.sign = 1,
	};

	return fft_call(env, call, &f, 2 * (f.n / 2 + 1), f.n);
}
