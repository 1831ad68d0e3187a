/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantities as people write them: sizes, durations, per cents, whole numbers.
 *
 * Strict: no sign, no white space, nothing after the unit, no silent overflow or rounding. Units of
 * size are powers of two whether written "20G" or "20Gi". Every parser writes its result only on
 * success and returns 0, -EINVAL (not such a quantity) or -ERANGE (too large), with a sentence in
 * @err (may be NULL).
 * Threads: any.
 */
#ifndef GANTRY_BASE_BYTES_H
#define GANTRY_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Room for anything the format functions write, terminator included. */
#define GANTRY_QUANTITY_MAX 32

/*
 * "512" (bytes), "64K", "20480M", "20G", "20Gi", "1T", "1.5G" when it is a whole number of bytes.
 */
int gantry_size_parse(const char *text, uint64_t *ret_bytes, struct gantry_err *err);

/*
 * Exact: the largest unit that divides @bytes ("20G", "1536M", "513"). gantry_size_parse() reads it
 * back.
 */
void gantry_size_format(uint64_t bytes, char buf[GANTRY_QUANTITY_MAX]);

/* For tables: at most one decimal place, rounded ("19.5G"). */
void gantry_size_format_rounded(uint64_t bytes, char buf[GANTRY_QUANTITY_MAX]);

/* "3s", "2ms", "500us", "10ns", "5m", "1h", "1.5s"; "0" needs no unit. In nanoseconds. */
int gantry_duration_parse(const char *text, uint64_t *ret_ns, struct gantry_err *err);

/*
 * Exact: the largest unit that divides @ns ("2ms", "1500us"). gantry_duration_parse() reads it
 * back.
 */
void gantry_duration_format(uint64_t ns, char buf[GANTRY_QUANTITY_MAX]);

/* For tables: three significant digits ("1.23ms", "45.6s"). */
void gantry_duration_format_rounded(uint64_t ns, char buf[GANTRY_QUANTITY_MAX]);

/* "0" to "100", with or without "%". */
int gantry_percent_parse(const char *text, unsigned int *ret_percent, struct gantry_err *err);

/* A decimal number from @min to @max. */
int gantry_u64_parse(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value,
		     struct gantry_err *err);

#ifdef __cplusplus
}
#endif

#endif
