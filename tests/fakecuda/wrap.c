/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda-wrap OUTPUT SO [ARCH [SYMBOLS]]: writes an image for the fake driver, as a cubin (OUTPUT ends with .cubin), a fatbin
 * (.fatbin) or PTX. SYMBOLS, a text, lie behind it, as names of what it calls do in a real one.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/nvrtc.h"

static int ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), end_len = strlen(end);

	return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

/* Made by the fake compiler: it knows how. */
static char *compile(const char *so, const char *arch, int cubin, size_t *ret_bytes)
{
	char source[4096], opt[64];
	nvrtcProgram program;
	char *image = NULL;

	(void)snprintf(source, sizeof(source), "// FAKECUDA so=%s arch=%s\n", so, arch);
	(void)snprintf(opt, sizeof(opt), "-arch=%s", arch);
	if (nvrtcCreateProgram(&program, source, "wrap", 0, NULL, NULL) ||
	    nvrtcCompileProgram(program, 1, (const char *[]){ opt }))
		return NULL;
	if (cubin ? nvrtcGetCUBINSize(program, ret_bytes) : nvrtcGetPTXSize(program, ret_bytes))
		return NULL;
	image = malloc(*ret_bytes);
	if (image)
		(void)(cubin ? nvrtcGetCUBIN(program, image) : nvrtcGetPTX(program, image));
	(void)nvrtcDestroyProgram(&program);
	return image;
}

/* Of a fatbin with one part, a cubin that is not compressed. */
static void write_heads(FILE *out, uint64_t nbytes, const char *arch)
{
	/* Magic, version 1, a header of 16 bytes, and the length of what follows. */
	const uint32_t head[] = { 0xba55ed50u, 0x00100001u };
	/* Kind 2, version 1.1, a header of 32 bytes; then what the part has. */
	const uint32_t part[] = { 0x01010002u, 32 };
	const uint32_t rest[] = { 0, 0, 0, (uint32_t)atoi(arch + strlen("sm_")) };
	const uint64_t len = nbytes + sizeof(part) + sizeof(nbytes) + sizeof(rest);

	(void)fwrite(head, sizeof(head), 1, out);
	(void)fwrite(&len, sizeof(len), 1, out);
	(void)fwrite(part, sizeof(part), 1, out);
	(void)fwrite(&nbytes, sizeof(nbytes), 1, out);
	(void)fwrite(rest, sizeof(rest), 1, out);
}

int main(int argc, char **argv)
{
	size_t nbytes = 0;
	char *image;
	FILE *out;
	int cubin;
	const char *symbols = argc > 4 ? argv[4] : "";

	if (argc < 3)
		return EXIT_FAILURE;
	cubin = ends_with(argv[1], ".cubin") || ends_with(argv[1], ".fatbin");
	image = compile(argv[2], argc > 3 ? argv[3] : "sm_90", cubin, &nbytes);
	out = image ? fopen(argv[1], "we") : NULL;
	if (!out)
		return EXIT_FAILURE;
	if (ends_with(argv[1], ".fatbin"))
		write_heads(out, nbytes + strlen(symbols), argc > 3 ? argv[3] : "sm_90");
	(void)fwrite(image, 1, nbytes, out);
	(void)fwrite(symbols, 1, strlen(symbols), out);
	free(image);
	return fclose(out) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
