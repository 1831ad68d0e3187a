/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakehip/cl_builtins.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int cl_run(emulator_entry *entry, void **params, const struct fakecuda_geometry *geometry)
{
	(void)pthread_mutex_lock(&lock);
	emulator_run(entry, geometry->grid[0], geometry->block[0], 0, params);
	(void)pthread_mutex_unlock(&lock);
	return 0;
}

/* @symbol is the name that compilers of OpenCL C give the function with these types. */
#define BUILTIN(type, name, symbol, ...)        \
	type name(__VA_ARGS__) __asm__(symbol); \
	type name(__VA_ARGS__)

/* Work-items have one dimension here. */
BUILTIN(size_t, local_id, "_Z12get_local_idj", unsigned int dimension)
{
	return dimension == 0 ? thread_idx() : 0;
}

BUILTIN(size_t, local_size, "_Z14get_local_sizej", unsigned int dimension)
{
	return dimension == 0 ? block_threads() : 1;
}

BUILTIN(size_t, group_id, "_Z12get_group_idj", unsigned int dimension)
{
	return dimension == 0 ? block_idx() : 0;
}

BUILTIN(size_t, num_groups, "_Z14get_num_groupsj", unsigned int dimension)
{
	return dimension == 0 ? grid_blocks() : 1;
}

BUILTIN(size_t, global_id, "_Z13get_global_idj", unsigned int dimension)
{
	return group_id(dimension) * local_size(dimension) + local_id(dimension);
}

BUILTIN(size_t, global_size, "_Z15get_global_sizej", unsigned int dimension)
{
	return num_groups(dimension) * local_size(dimension);
}

BUILTIN(void, cl_barrier, "_Z7barrierj", unsigned int fences)
{
	(void)fences;
	block_sync();
}

/* Nothing runs at the same time. */
BUILTIN(uint32_t, cl_atomic_inc, "_Z10atomic_incPU7CLlocalVj", volatile uint32_t *word)
{
	return (*word)++;
}

BUILTIN(uint32_t, cl_atomic_or, "_Z9atomic_orPU8CLglobalVjj", volatile uint32_t *word,
	uint32_t bits)
{
	uint32_t before = *word;

	*word |= bits;
	return before;
}

typedef uint32_t uint4 __attribute__((vector_size(16)));

BUILTIN(void, cl_vstore4, "_Z7vstore4Dv4_jmPU9CLprivatej", uint4 value, size_t at, uint32_t *to)
{
	memcpy(to + 4 * at, &value, sizeof(value));
}

BUILTIN(int, cl_isnan, "_Z5isnanf", float x)
{
	return isnan(x);
}

#define MATH(type, function, symbol)                 \
	BUILTIN(type, cl_##function, symbol, type x) \
	{                                            \
		return function(x);                  \
	}

MATH(double, cos, "_Z3cosd")
MATH(float, cosf, "_Z3cosf")
MATH(double, sin, "_Z3sind")
MATH(float, sinf, "_Z3sinf")
MATH(double, exp, "_Z3expd")
MATH(float, expf, "_Z3expf")
MATH(double, log, "_Z3logd")
MATH(float, logf, "_Z3logf")
MATH(double, sqrt, "_Z4sqrtd")
MATH(float, sqrtf, "_Z4sqrtf")

#define CHOICE(name, type, sign, symbol)            \
	BUILTIN(type, name, symbol, type a, type b) \
	{                                           \
		return a sign b ? a : b;            \
	}

CHOICE(cl_max_int, int, >, "_Z3maxii")
CHOICE(cl_min_int, int, <, "_Z3minii")
CHOICE(cl_max_ulong, uint64_t, >, "_Z3maxmm")
CHOICE(cl_min_ulong, uint64_t, <, "_Z3minmm")
