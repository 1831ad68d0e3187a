/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

int gantry_str_copy(char *dst, size_t cap, const char *src)
{
	size_t len = strnlen(src, cap);

	if (len < cap) {
		memcpy(dst, src, len + 1);
		return 0;
	}
	memcpy(dst, src, cap - 1);
	dst[cap - 1] = '\0';
	return -E2BIG;
}

int gantry_str_format(char *dst, size_t cap, const char *fmt, ...)
{
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(dst, cap, fmt, args);
	va_end(args);
	return len < 0 || (size_t)len >= cap ? -E2BIG : 0;
}

void gantry_str_make_printable(char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

bool gantry_str_equal(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

bool gantry_str_starts(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool gantry_name_valid_bounded(const char *name, size_t cap)
{
	size_t len = strnlen(name, cap);

	if (len == cap || len == 0 || len > GANTRY_NAME_LEN_MAX || !is_alnum(name[0]))
		return false;
	for (size_t i = 1; i < len; i++)
		if (!is_alnum(name[i]) && name[i] != '_' && name[i] != '.' && name[i] != '-')
			return false;
	return true;
}

bool gantry_name_valid(const char *name)
{
	return name && gantry_name_valid_bounded(name, GANTRY_NAME_LEN_MAX + 1);
}

int gantry_hex_encode(const void *data, size_t len, char *dst, size_t cap)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *bytes = data;

	if (cap == 0 || len > (cap - 1) / 2)
		return -E2BIG;
	for (size_t i = 0; i < len; i++) {
		dst[2 * i] = digits[bytes[i] >> 4];
		dst[2 * i + 1] = digits[bytes[i] & 15];
	}
	dst[2 * len] = '\0';
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -EINVAL;
}

int gantry_hex_decode(const char *hex, void *dst, size_t len)
{
	unsigned char *bytes = dst;

	for (size_t i = 0; i < len; i++) {
		int high = hex_digit(hex[2 * i]);
		int low = high < 0 ? high : hex_digit(hex[2 * i + 1]);

		if (low < 0)
			return -EINVAL;
		bytes[i] = (unsigned char)(high << 4 | low);
	}
	return hex[2 * len] == '\0' ? 0 : -EINVAL;
}

int gantry_random_bytes(void *dst, size_t len)
{
	unsigned char *bytes = dst;

	while (len > 0) {
		ssize_t n = getrandom(bytes, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		bytes += n;
		len -= (size_t)n;
	}
	return 0;
}
