/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/clock.h"

struct unit {
	const char *name;
	uint64_t factor;
};

/*
 * Both tables run from the largest unit to the smallest; the first name of a factor is the one
 * written.
 */
static const struct unit size_units[] = {
	{ "P", 1ull << 50 }, { "Pi", 1ull << 50 }, { "T", 1ull << 40 }, { "Ti", 1ull << 40 },
	{ "G", 1ull << 30 }, { "Gi", 1ull << 30 }, { "M", 1ull << 20 }, { "Mi", 1ull << 20 },
	{ "K", 1ull << 10 }, { "Ki", 1ull << 10 }, { "k", 1ull << 10 }, { "B", 1 },
	{ "", 1 }, /* last: format_exact() ends here */
};

static const struct unit duration_units[] = {
	{ "h", 3600 * GANTRY_NS_PER_S },
	{ "m", 60 * GANTRY_NS_PER_S },
	{ "s", GANTRY_NS_PER_S },
	{ "ms", GANTRY_NS_PER_MS },
	{ "us", GANTRY_NS_PER_US },
	{ "ns", 1 }, /* last: format_exact() and format_rounded() end here */
};

/* Decimal digits at *@text, which moves past them. -EINVAL: none; -ERANGE: more than 64 bits. */
static int take_digits(const char **text, uint64_t *ret_value)
{
	const char *p = *text;
	uint64_t value = 0;

	if (*p < '0' || *p > '9')
		return -EINVAL;
	for (; *p >= '0' && *p <= '9'; p++)
		if (gantry_mul_u64(value, 10, &value) < 0 ||
		    gantry_add_u64(value, (uint64_t)(*p - '0'), &value) < 0)
			return -ERANGE;
	*text = p;
	*ret_value = value;
	return 0;
}

/* A number with at most nine decimal places, as whole / scale. */
struct decimal {
	uint64_t whole;
	uint64_t fraction;
	uint64_t scale;
};

static int take_decimal(const char **text, struct decimal *ret_decimal)
{
	struct decimal d = { 0, 0, 1 };
	const char *p;
	int r = take_digits(text, &d.whole);

	if (r < 0)
		return r;
	if (**text == '.') {
		p = ++*text;
		r = take_digits(text, &d.fraction);
		if (r < 0)
			return r;
		if (*text - p > 9)
			return -EINVAL;
		for (; p < *text; p++)
			d.scale *= 10;
	}
	*ret_decimal = d;
	return 0;
}

/* @d units of @factor as a whole number. -EINVAL: it is not one; -ERANGE: too large. */
static int decimal_times(const struct decimal *d, uint64_t factor, uint64_t *ret_value)
{
	uint64_t whole;
	__uint128_t part = (__uint128_t)d->fraction * factor;

	if (part % d->scale != 0)
		return -EINVAL;
	if (gantry_mul_u64(d->whole, factor, &whole) < 0 ||
	    gantry_add_u64(whole, (uint64_t)(part / d->scale), ret_value) < 0)
		return -ERANGE;
	return 0;
}

static const struct unit *find_unit(const struct unit *units, size_t nunits, const char *name)
{
	for (size_t i = 0; i < nunits; i++)
		if (strcmp(units[i].name, name) == 0)
			return &units[i];
	return NULL;
}

static int parse_quantity(const char *text, const struct unit *units, size_t nunits,
			  uint64_t *ret_value)
{
	const char *rest = text;
	const struct unit *unit;
	struct decimal d;
	int r = take_decimal(&rest, &d);

	if (r < 0)
		return r;
	unit = find_unit(units, nunits, rest);
	if (!unit)
		return -EINVAL;
	return decimal_times(&d, unit->factor, ret_value);
}

static int explain(struct gantry_err *err, int r, const char *text, const char *what)
{
	if (r == -ERANGE)
		return gantry_err_set(err, r, "\"%s\" is too large for %s", text, what);
	return gantry_err_set(err, r, "\"%s\" is not %s", text, what);
}

int gantry_size_parse(const char *text, uint64_t *ret_bytes, struct gantry_err *err)
{
	int r = parse_quantity(text, size_units, GANTRY_ARRAY_SIZE(size_units), ret_bytes);

	return r < 0 ? explain(err, r, text, "a size (such as 512, 20480M or 20G)") : 0;
}

int gantry_duration_parse(const char *text, uint64_t *ret_ns, struct gantry_err *err)
{
	int r;

	if (strcmp(text, "0") == 0) {
		*ret_ns = 0;
		return 0;
	}
	r = parse_quantity(text, duration_units, GANTRY_ARRAY_SIZE(duration_units), ret_ns);
	return r < 0 ? explain(err, r, text, "a duration (such as 500us, 2ms or 3s)") : 0;
}

static void format_exact(uint64_t value, const struct unit *units, size_t nunits,
			 char buf[GANTRY_QUANTITY_MAX])
{
	const struct unit *unit = &units[nunits - 1];

	for (size_t i = 0; i < nunits && value != 0; i++) {
		/* "B" is read but not written: a size without a unit is bytes. */
		if (units[i].factor > 1 && value % units[i].factor == 0) {
			unit = &units[i];
			break;
		}
	}
	(void)snprintf(buf, GANTRY_QUANTITY_MAX, "%" PRIu64 "%s", value / unit->factor, unit->name);
}

void gantry_size_format(uint64_t bytes, char buf[GANTRY_QUANTITY_MAX])
{
	format_exact(bytes, size_units, GANTRY_ARRAY_SIZE(size_units), buf);
}

void gantry_duration_format(uint64_t ns, char buf[GANTRY_QUANTITY_MAX])
{
	format_exact(ns, duration_units, GANTRY_ARRAY_SIZE(duration_units), buf);
}

void gantry_size_format_rounded(uint64_t bytes, char buf[GANTRY_QUANTITY_MAX])
{
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(size_units); i++) {
		const struct unit *unit = &size_units[i];
		double value = (double)bytes / (double)unit->factor;

		/* 0.99951 shows as 1.0 of this unit rather than 1024.0 of the next. */
		if (unit->factor > 1 && value < 0.9995)
			continue;
		if (unit->factor == 1 || bytes % unit->factor == 0)
			(void)snprintf(buf, GANTRY_QUANTITY_MAX, "%.0f%s", value,
				       unit->factor == 1 ? "" : unit->name);
		else
			(void)snprintf(buf, GANTRY_QUANTITY_MAX, "%.1f%s", value, unit->name);
		return;
	}
}

void gantry_duration_format_rounded(uint64_t ns, char buf[GANTRY_QUANTITY_MAX])
{
	/* "m" and "h" are left out: tables compare seconds more easily than mixtures. */
	for (size_t i = 2; i < GANTRY_ARRAY_SIZE(duration_units); i++) {
		const struct unit *unit = &duration_units[i];
		double value = (double)ns / (double)unit->factor;
		int places = value < 10 ? 2 : value < 100 ? 1 : 0;

		if (value < 1 && unit->factor > 1)
			continue;
		(void)snprintf(buf, GANTRY_QUANTITY_MAX, "%.*f%s", unit->factor > 1 ? places : 0,
			       value, unit->name);
		return;
	}
}

int gantry_percent_parse(const char *text, unsigned int *ret_percent, struct gantry_err *err)
{
	const char *rest = text;
	uint64_t value = 0;
	int r = take_digits(&rest, &value);

	if (r == 0 && *rest == '%')
		rest++;
	if (r == 0 && *rest != '\0')
		r = -EINVAL;
	if (r == 0 && value > 100)
		r = -ERANGE;
	if (r < 0)
		return explain(err, r, text, "a per cent value (0% to 100%)");
	*ret_percent = (unsigned int)value;
	return 0;
}

int gantry_u64_parse(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value,
		     struct gantry_err *err)
{
	const char *rest = text;
	uint64_t value = 0;
	int r = take_digits(&rest, &value);

	if (r == -EINVAL || (r == 0 && *rest != '\0'))
		return gantry_err_set(err, -EINVAL, "\"%s\" is not a whole number", text);
	if (r < 0 || value < min || value > max)
		return gantry_err_set(err, -ERANGE, "\"%s\" is not from %" PRIu64 " to %" PRIu64,
				      text, min, max);
	*ret_value = value;
	return 0;
}
