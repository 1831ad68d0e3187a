/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "guest-shim/gantry.h"

#define TEXT_MAX 256

static __thread char last_error[TEXT_MAX];

void gantry_fail_text(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(last_error, sizeof(last_error), fmt, args); /* a longer sentence is cut */
	va_end(args);
}

int gantry_fail_plain(int status)
{
	(void)gantry_str_copy(last_error, sizeof(last_error), gantry_status_text(status));
	return status;
}

int gantry_fail_errno(int status, int errnum, const char *what)
{
	const char *why =
		strerrordesc_np(errnum); /* unlike strerror() it may be called from any thread */

	return gantry_fail(status, "%s: %s", what, why ? why : "unknown error");
}

const char *gantry_last_error(void)
{
	return last_error;
}

const char *gantry_strerror(int status)
{
	return gantry_status_text(status);
}

const char *gantry_version(void)
{
	return GANTRY_VERSION_TEXT;
}
