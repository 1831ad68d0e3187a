/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/opencl/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "devices/opencl/container.h"

#define LINE 64u /* bytes in digits of one comment */

static const char head[] = "//\n// Made by a stand-in\n//\n\n.version 9.0\n.target sm_90, "
			   "texmode_independent\n.address_size 64\n\n";

static void put(unsigned char *dst, size_t *at, char c)
{
	if (dst)
		dst[*at] = (unsigned char)c;
	(*at)++;
}

size_t gpu_ptx(const unsigned char *binary, size_t n, unsigned char *dst)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char *stripped = malloc(n);
	size_t at = 0;

	if (!stripped)
		abort();
	n = gantry_opencl_pocl_strip(binary, n, stripped);
	for (size_t i = 0; i < sizeof(head) - 1; i++)
		put(dst, &at, head[i]);
	for (size_t i = 0; i < n; i++) {
		if (i % LINE == 0) {
			put(dst, &at, '/');
			put(dst, &at, '/');
		}
		put(dst, &at, digits[stripped[i] >> 4]);
		put(dst, &at, digits[stripped[i] & 15]);
		if (i % LINE == LINE - 1 || i == n - 1)
			put(dst, &at, '\n');
	}
	put(dst, &at, '\0');
	put(dst, &at, '\0');
	free(stripped);
	return at;
}

static int digit(unsigned char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

unsigned char *gpu_inside(const unsigned char *ptx, size_t n, size_t *ret_n)
{
	unsigned char *inside;
	size_t at = 0;

	if (n < sizeof(head) + 1 || memcmp(ptx, head, sizeof(head) - 1) != 0 || ptx[n - 1] != '\0')
		return NULL;
	inside = malloc(n);
	for (size_t i = sizeof(head) - 1; inside && i + 1 < n; i++) {
		if (digit(ptx[i]) < 0 || digit(ptx[i + 1]) < 0)
			continue;
		inside[at++] = (unsigned char)(digit(ptx[i]) << 4 | digit(ptx[i + 1]));
		i++;
	}
	*ret_n = at;
	/* PoCL believes what a container says of itself. */
	if (inside && gantry_opencl_container_check(inside, at, NULL,
						    &(struct gantry_err)GANTRY_ERR_NONE) == 0)
		return inside;
	free(inside);
	return NULL;
}
