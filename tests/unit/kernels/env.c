/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels/env.h"

#include <pthread.h>

struct job {
	void (*fn)(void *arg, uint64_t begin, uint64_t end);
	void *arg;
	uint64_t n;
	uint64_t step;
	_Atomic uint64_t next;
};

/* Ranges of the smallest size allowed, so that a test meets many of their borders. */
static void *job_work(void *arg)
{
	struct job *job = arg;
	uint64_t begin;

	while ((begin = atomic_fetch_add(&job->next, job->step)) < job->n) {
		uint64_t left = job->n - begin;

		job->fn(job->arg, begin, begin + (left < job->step ? left : job->step));
	}
	return NULL;
}

static void env_parallel(struct gantry_env *env, uint64_t n, uint64_t grain,
			 void (*fn)(void *arg, uint64_t begin, uint64_t end), void *arg)
{
	struct test_env *te = (struct test_env *)env;
	struct job job = { .fn = fn, .arg = arg, .n = n, .step = grain };
	pthread_t threads[ENV_NTHREADS];

	if (te->mode == ENV_INLINE) {
		(void)job_work(&job);
		return;
	}
	for (unsigned int i = 0; i < ENV_NTHREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, job_work, &job), 0);
	for (unsigned int i = 0; i < ENV_NTHREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

static int env_cancelled(struct gantry_env *env)
{
	struct test_env *te = (struct test_env *)env;

	if (te->asks_left < 0)
		return 0;
	if (te->asks_left == 0)
		return 1;
	te->asks_left--;
	return 0;
}

static void *allocate(struct test_env *te, size_t bytes)
{
	void *ptr;

	ck_assert_uint_lt(te->nallocations, ENV_ALLOCATIONS_MAX);
	/* posix_memalign, not aligned_alloc: its size need not be a multiple of the alignment. */
	if (posix_memalign(&ptr, 64, bytes) != 0)
		return NULL;
	te->allocations[te->nallocations++] = ptr;
	return ptr;
}

static void *env_scratch(struct gantry_env *env, size_t bytes)
{
	struct test_env *te = (struct test_env *)env;
	void *ptr;

	if (bytes > te->scratch_limit_bytes - te->scratch_bytes)
		return NULL;
	ptr = allocate(te, bytes);
	/* Contents are undefined: make them unlike what a kernel would like to find. */
	if (ptr)
		memset(ptr, 0xa5, bytes);
	te->scratch_bytes += bytes;
	return ptr;
}

static void *env_handle(struct gantry_env *env, const char *library)
{
	struct test_env *te = (struct test_env *)env;

	if (strcmp(library, "openblas") == 0)
		return te->openblas;
	return env_device && env_device->handle ? env_device->handle(te, library) : NULL;
}

TCase *env_case(Suite *suite, const char *name)
{
	TCase *tc;

	if (env_is_inside())
		return gantry_unit_case(suite, name);
	/* Drivers keep threads and descriptors, and take their time to start. */
	tc = tcase_create(name);
	tcase_set_timeout(tc, 6 * GANTRY_UNIT_TIMEOUT_S);
	suite_add_tcase(suite, tc);
	return tc;
}

void env_init(struct test_env *te, enum env_mode mode)
{
	*te = (struct test_env){
		.env = {
			.size = sizeof(te->env),
			.abi = GANTRY_MODULE_ABI,
			.nlanes = mode == ENV_THREADS ? ENV_NTHREADS : 1,
			.parallel = env_parallel,
			.cancelled = env_cancelled,
			.scratch = env_scratch,
			.handle = env_handle,
		},
		.mode = mode,
		.asks_left = -1,
		.scratch_limit_bytes = 256u << 20,
	};
}

void env_fini(struct test_env *te)
{
	for (unsigned int i = 0; i < te->nallocations; i++)
		free(te->allocations[i]);
}

void *env_array(struct test_env *te, size_t count, size_t elem_bytes)
{
	void *ptr = allocate(te, count * elem_bytes);

	ck_assert_ptr_nonnull(ptr);
	memset(ptr, 0, count * elem_bytes);
	return ptr;
}

uint32_t env_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

float *env_floats(struct test_env *te, size_t count, uint32_t seed)
{
	float *x = env_array(te, count, sizeof(*x));
	uint32_t state = seed * 2654435761u + 1;

	for (size_t i = 0; i < count; i++)
		x[i] = (float)(int32_t)env_random(&state) * 0x1p-31f;
	return x;
}

int env_run(struct test_env *te, gantry_body *kernel, const union gantry_value *args, size_t nargs)
{
	struct gantry_call call = { .nargs = (uint32_t)nargs, .args = args };
	unsigned int nkept = te->nallocations;
	int r;

	te->scratch_bytes = 0;
	r = env_device ? env_device->run(te, kernel, &call) : kernel(&te->env, &call);
	while (te->nallocations > nkept)
		free(te->allocations[--te->nallocations]);
	return r;
}

struct scribbler {
	pthread_t thread;
	atomic_bool stop;
	volatile uint32_t *ptr; /* volatile: another "process" writes, whenever it likes */
	size_t nwords;
	uint32_t below;
};

static void *scribble(void *arg)
{
	struct scribbler *s = arg;
	uint32_t state = 1;

	while (!atomic_load(&s->stop))
		s->ptr[env_random(&state) % s->nwords] = env_random(&state) % s->below;
	return NULL;
}

struct scribbler *scribbler_start(uint32_t *ptr, size_t nwords, uint32_t below)
{
	struct scribbler *s;

#if defined(__SANITIZE_THREAD__)
	gantry_unit_skip("the thread sanitizer reports the race that this test makes");
#endif
	s = calloc(1, sizeof(*s));
	ck_assert_ptr_nonnull(s);
	s->ptr = ptr;
	s->nwords = nwords;
	s->below = below;
	ck_assert_int_eq(pthread_create(&s->thread, NULL, scribble, s), 0);
	return s;
}

void scribbler_stop(struct scribbler *s)
{
	atomic_store(&s->stop, true);
	ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
	free(s);
}
