/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/sha256.h"
#include "tests/unit/runner.h"

static void hash(const void *bytes, size_t n, size_t step, char ret_hex[65])
{
	uint8_t digest[GANTRY_SHA256_BYTES];
	const uint8_t *from = bytes;
	struct gantry_sha256 s;

	gantry_sha256_init(&s);
	for (size_t at = 0; at < n; at += step)
		gantry_sha256_add(&s, from + at, step < n - at ? step : n - at);
	gantry_sha256_end(&s, digest);
	for (unsigned int i = 0; i < sizeof(digest); i++) {
		ret_hex[2 * i] = "0123456789abcdef"[digest[i] >> 4];
		ret_hex[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
	}
	ret_hex[64] = '\0';
}

/* The examples of FIPS 180-4, and lengths around the end of a block (from another implementation). */
START_TEST(test_sha256_of_known_bytes)
{
	static const struct {
		const char *byte;
		size_t n;
		const char *hex;
	} rows[] = {
		{ "a", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "a", 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318" },
		{ "a", 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a" },
		{ "a", 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34" },
		{ "a", 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb" },
		{ "a", 119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb" },
		{ "a", 120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c" },
		{ "a", 1000000,
		  "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0" },
	};
	static uint8_t bytes[1000000];
	char hex[65];

	hash("abc", 3, 3, hex);
	ck_assert_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, 56, hex);
	ck_assert_str_eq(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		memset(bytes, rows[i].byte[0], sizeof(bytes));
		hash(bytes, rows[i].n, rows[i].n ? rows[i].n : 1, hex);
		ck_assert_str_eq(hex, rows[i].hex);
	}
}
END_TEST

START_TEST(test_sha256_in_pieces_is_the_same)
{
	uint8_t bytes[300];
	char whole[65], pieces[65];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7);
	hash(bytes, sizeof(bytes), sizeof(bytes), whole);
	for (size_t step = 1; step < 130; step++) {
		hash(bytes, sizeof(bytes), step, pieces);
		ck_assert_str_eq(pieces, whole);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sha256");
	TCase *tc = gantry_unit_case(suite, "sha256");

	tcase_add_test(tc, test_sha256_of_known_bytes);
	tcase_add_test(tc, test_sha256_in_pieces_is_the_same);
	return gantry_unit_run(suite);
}
