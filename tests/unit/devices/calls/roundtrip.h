/* SPDX-License-Identifier: Apache-2.0 */
/* What the generated trials of library calls are made of (tools/stubgen/emit_test.py). */
#ifndef GANTRY_TESTS_UNIT_DEVICES_CALLS_ROUNDTRIP_H
#define GANTRY_TESTS_UNIT_DEVICES_CALLS_ROUNDTRIP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/calls/run.h"

/* What functions that tell a length answer. */
#define MOCK_LENGTH 11

struct mock {
	const char *name;
	void *function;
};

struct attempt {
	const char *name;
	void (*run)(void);
};

/* Of the generated file. */
extern const struct mock mocks[];
extern const struct attempt attempts[];
extern const struct gantry_calls_library *const tried;

/* Both sides. Notes go where expect() or note_name() said. */
void note_bytes(const void *bytes, size_t len);
void note_u64(uint64_t value);
/* An object that the function cannot be without. */
void note_object(uint64_t native);
void note_text(const char *text);
void note_texts(const char *const *texts, int64_t count);
void note_memory(const void *at, uint64_t len);
/* Which want multiples of 8. */
void note_addresses(const void *at, uint64_t len);

/* The library. */
void note_name(const char *name);
void bound_to(void *stream);
/* Whether it is function @name that is tried. */
bool is_expected(const char *name);
/* Where values lie that may be on either side: 0 the host, 1 the device. */
int mock_mode(void);
/* Over how many devices the object is, whatever it is called with. */
int64_t mock_parts(uint32_t kind, uint64_t native);
void fill(void *at, uint64_t len);
void new_handle(void *to, size_t len);
const char *mock_text(void);
void *mock_table(uint64_t len);

/* The caller. */
void expect(const char *name);
void expect_bound(uint64_t handle);
void done_expecting(void);
uint64_t native_of(uint32_t kind, uint64_t handle);
void random_bytes(void *to, size_t len);
int small(void);
uint64_t some_handle(uint32_t kind, bool may_be_null);
/* The object works on host memory or the device's, as values lie this time. */
void some_side(uint32_t kind, uint64_t handle);
/* From now on the object is over so many devices. */
int64_t some_parts(uint32_t kind, uint64_t handle);
void *some_stream(void);
void *some_device(void);
const char *some_text(void);
void *some_texts(int64_t count, bool may_be_null);
/* At times NULL where it may be; device memory where @either and mock_mode() says so. */
void *some_memory(uint64_t len, bool either, bool may_be_null);
void *own_devices(int n);
/* Until clean_up(). */
void *keep_zeroed(size_t len);
void *some_addresses(int64_t n);
/* What a library takes for a sparse matrix; what it takes for a permutation. */
void some_matrix(void *rows, void *ends, int64_t nrows, void *columns, int64_t ncolumns,
		 int64_t nonzeros);
void some_permutation(void *at, int64_t n);
/* Takes the object through the steps before @step. */
void go_before(uint32_t kind, uint64_t handle, const struct gantry_calls_step *step);
void check_notes(void);
/* @always: the library wrote even where the caller had no place for it. */
void check_fill(const void *at, uint64_t len, bool always);
void check_ended(const void *object);
void check_new(uint32_t kind, uint64_t handle, size_t len);
void check_text(const char *text);
void check_table(const void *table, uint64_t len);
void check_ret(uint64_t ret, uint64_t wanted);
void clean_up(void);

#endif
