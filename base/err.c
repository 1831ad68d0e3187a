/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

int gantry_err_set(struct gantry_err *err, int code, const char *fmt, ...)
{
	va_list args;

	if (!err)
		return code;
	va_start(args, fmt);
	(void)vsnprintf(err->text, sizeof(err->text), fmt,
			args); /* cutting short is the contract */
	va_end(args);
	err->code = code;
	return code;
}

/* Put "<sentence of fmt>: <inner>" into @err; @inner may be err->text itself. */
static void compose(struct gantry_err *err, const char *inner, const char *fmt, va_list args)
{
	char outer[GANTRY_ERR_TEXT_MAX];
	char whole[2 * GANTRY_ERR_TEXT_MAX + 2];

	(void)vsnprintf(outer, sizeof(outer), fmt, args);
	(void)snprintf(whole, sizeof(whole), "%s: %s", outer, inner);
	memcpy(err->text, whole, sizeof(err->text) - 1);
	err->text[sizeof(err->text) - 1] = '\0';
}

int gantry_err_set_errno(struct gantry_err *err, int code, const char *fmt, ...)
{
	char reason[96];
	va_list args;

	if (!err)
		return code;
	va_start(args, fmt);
	compose(err, strerror_r(code < 0 ? -code : code, reason, sizeof(reason)), fmt, args);
	va_end(args);
	err->code = code;
	return code;
}

int gantry_err_wrap(struct gantry_err *err, int code, const char *fmt, ...)
{
	char reason[96];
	const char *inner;
	va_list args;

	if (!err)
		return code;
	inner = err->text;
	if (inner[0] == '\0')
		inner = strerror_r(code < 0 ? -code : code, reason, sizeof(reason));
	va_start(args, fmt);
	compose(err, inner, fmt, args);
	va_end(args);
	err->code = code;
	return code;
}
