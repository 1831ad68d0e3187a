/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of kernels need: something that runs a kernel. Which is decided by the program that a
 * test is linked into (env_device): the cpu's bodies, called here; the cuda image's, whose device code
 * an emulator runs; or any device, through its backend. The checks are the same.
 *
 * On the cpu this is a gantry_env: parallel() on this thread in small ranges, or on real threads;
 * scratch and buffers of exactly the size asked, so that the address sanitizer sees the first byte
 * past them.
 *
 *	struct test_env te;
 *
 *	env_init(&te, ENV_THREADS);
 *	x = env_array(&te, 100, sizeof(*x));
 *	ck_assert_int_eq(RUN(&te, gantry_kernel_sum, SPAN(x, 100), SPAN(&total, 1), U64(100)), 0);
 *	env_fini(&te);
 *
 * Threads: a struct test_env belongs to the thread of its test.
 */
#ifndef GANTRY_TESTS_UNIT_KERNELS_ENV_H
#define GANTRY_TESTS_UNIT_KERNELS_ENV_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "devices/module.h"
#include "tests/unit/runner.h"

enum env_mode {
	ENV_INLINE,
	ENV_THREADS,
	ENV_NMODES, /* tests of both modes loop over _i */
};

struct test_env;

/* Where kernels run, if not on the cpu by a call. */
struct env_device {
	/*
	 * Calls @kernel, or does what stands for it; what the kernel returns, or finds later. Of
	 * refusals it may know no more than ENV_REFUSED.
	 */
	int (*run)(struct test_env *te, gantry_body *kernel, const struct gantry_call *call);
	/* More libraries for env->handle(). May be NULL. */
	void *(*handle)(struct test_env *te, const char *library);
	/* Kernels are called here: their codes come back, and te's limits hold. */
	bool is_inside;
};

/* NULL: the cpu, by calls. */
extern const struct env_device *const env_device;

/* What a device that runs elsewhere says for each refusal. */
#define ENV_REFUSED (-EREMOTEIO)

/* @code, as this program's device tells it. */
static inline int env_refusal(int code)
{
	return env_device && !env_device->is_inside ? ENV_REFUSED : code;
}

#define REFUSED(code) env_refusal(-(code))

/* For checks of what only we can arrange: memory that is not there, spans that lie. */
static inline bool env_is_inside(void)
{
	return !env_device || env_device->is_inside;
}

/* A kernel that was to stop half way: on a device it may be through before it asks. */
#define ASSERT_CANCELLED(result)                                  \
	do {                                                      \
		int cancelled_ = (result);                        \
                                                                  \
		if (!env_device || cancelled_ != 0)               \
			ck_assert_int_eq(cancelled_, -ECANCELED); \
	} while (0)

/* As gantry_unit_case(), for what a device's driver leaves behind in a process. */
TCase *env_case(Suite *suite, const char *name);

#define ENV_NTHREADS	    3u
#define ENV_ALLOCATIONS_MAX 256u

struct test_env {
	struct gantry_env env; /* first: kernels are given its address */
	enum env_mode mode;
	/* How often cancelled() says no before it says yes; negative: always no. */
	int64_t asks_left;
	size_t scratch_limit_bytes;
	size_t scratch_bytes;
	void *openblas;
	unsigned int nallocations;
	void *allocations[ENV_ALLOCATIONS_MAX];
};

void env_init(struct test_env *te, enum env_mode mode);
void env_fini(struct test_env *te);

/* Zeroed, 64-byte aligned, owned by @te. Fails the test when there is no memory. */
void *env_array(struct test_env *te, size_t count, size_t elem_bytes);

/* Numbers in [-1, 1), the same for the same seed. */
float *env_floats(struct test_env *te, size_t count, uint32_t seed);

/* xorshift32; @state must not be 0. */
uint32_t env_random(uint32_t *state);

/*
 * Writes random bytes over @bytes of @ptr from another thread until stopped: a guest that changes a
 * buffer during the kernel. Words written are below @below.
 */
struct scribbler;
struct scribbler *scribbler_start(uint32_t *ptr, size_t nwords, uint32_t below);
void scribbler_stop(struct scribbler *scribbler);

#define SPAN(array, count) \
	((union gantry_value){ .span = { (void *)(array), (uint64_t)(count) * sizeof(*(array)) } })
#define I32(value) ((union gantry_value){ .i32 = (value) })
#define U32(value) ((union gantry_value){ .u32 = (value) })
#define I64(value) ((union gantry_value){ .i64 = (value) })
#define U64(value) ((union gantry_value){ .u64 = (value) })
#define F32(value) ((union gantry_value){ .f32 = (value) })
#define F64(value) ((union gantry_value){ .f64 = (value) })

#define RUN(te, kernel, ...)                                             \
	env_run(te, kernel, (const union gantry_value[]){ __VA_ARGS__ }, \
		sizeof((const union gantry_value[]){ __VA_ARGS__ }) / sizeof(union gantry_value))

int env_run(struct test_env *te, gantry_body *kernel, const union gantry_value *args, size_t nargs);

/* What main.c runs; each is a file here. */
Suite *kernels_dp_suite(void);
Suite *kernels_fft_suite(void);
Suite *kernels_finance_suite(void);
Suite *kernels_gemm_suite(void);
Suite *kernels_image_suite(void);
Suite *kernels_linear_suite(void);
Suite *kernels_memory_suite(void);
Suite *kernels_particles_suite(void);
Suite *kernels_random_suite(void);
Suite *kernels_search_suite(void);
Suite *kernels_spin_suite(void);
Suite *kernels_stencil_suite(void);
Suite *kernels_vector_suite(void);

/* |a - b| <= tolerance, with the two numbers in the message. */
#define ASSERT_NEAR(a, b, tolerance) \
	ck_assert_double_eq_tol((double)(a), (double)(b), (double)(tolerance))

#endif
