/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake of NVRTC: a "compiler" for source that has a FAKECUDA line in a comment, which becomes that line as PTX.
 * A line that begins with #error is an error, and so is one that includes what no header is called; the log says which, as the real one's does.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/nvrtc.h"

struct program {
	char *source;
	int nheaders;
	char **headers, **names;
	char name[64];
	char log[512];
	char *ptx;
	char arch[32];
};

nvrtcResult nvrtcVersion(int *major, int *minor)
{
	*major = 13;
	*minor = 0;
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetNumSupportedArchs(int *ret_count)
{
	*ret_count = 1;
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetSupportedArchs(int *archs)
{
	archs[0] = 90;
	return NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(nvrtcResult result)
{
	return result == NVRTC_SUCCESS		   ? "NVRTC_SUCCESS"
	       : result == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION"
						   : "NVRTC_ERROR";
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *ret_program, const char *source, const char *name,
			       int nheaders, const char *const *headers,
			       const char *const *include_names)
{
	struct program *program;

	if (!source || nheaders < 0)
		return NVRTC_ERROR_INVALID_INPUT;
	program = calloc(1, sizeof(*program));
	if (!program)
		return NVRTC_ERROR_OUT_OF_MEMORY;
	program->nheaders = nheaders;
	program->headers = calloc((size_t)nheaders + 1, sizeof(char *));
	program->names = calloc((size_t)nheaders + 1, sizeof(char *));
	for (int i = 0; i < nheaders; i++) {
		program->headers[i] = strdup(headers[i]);
		program->names[i] = strdup(include_names[i]);
	}
	program->source = strdup(source);
	(void)snprintf(program->name, sizeof(program->name), "%s", name ? name : "default_program");
	(void)snprintf(program->arch, sizeof(program->arch), "sm_90");
	*ret_program = program;
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program)
{
	if (!*program)
		return NVRTC_ERROR_INVALID_PROGRAM;
	for (int i = 0; i < (*program)->nheaders; i++) {
		free((*program)->headers[i]);
		free((*program)->names[i]);
	}
	free((*program)->headers);
	free((*program)->names);
	free((*program)->source);
	free((*program)->ptx);
	free(*program);
	*program = NULL;
	return NVRTC_SUCCESS;
}

/* The number of the line that holds @at. */
static int line_of(const char *source, const char *at)
{
	int line = 1;

	for (; source < at; source++)
		line += *source == '\n';
	return line;
}

#define DEPTH 32 /* of headers in headers */

/* What a text at the beginning of a line includes, and no header is called. Takes no notice of conditions. */
static bool lacks_header(struct program *program, const char *where, const char *text, int depth)
{
	char name[256];

	for (const char *at = text; depth < DEPTH && (at = strstr(at, "#include ")); at++) {
		int i = 0;

		if ((at > text && at[-1] != '\n') ||
		    sscanf(at, "#include %*1[<\"]%255[^>\"]", name) != 1)
			continue;
		while (i < program->nheaders && strcmp(program->names[i], name) != 0)
			i++;
		if (i == program->nheaders) {
			(void)snprintf(
				program->log, sizeof(program->log),
				"%s(%d): catastrophic error: could not open source file \"%s\" (no directories in search list)\n",
				where, line_of(text, at), name);
			return true;
		}
		if (lacks_header(program, name, program->headers[i], depth + 1))
			return true;
	}
	return false;
}

static bool complain(struct program *program)
{
	const char *error = strstr(program->source, "#error");

	if (error) {
		int len = (int)strcspn(error, "\n"), skip = (int)strlen("#error");

		skip += (int)strspn(error + skip, " \t");
		(void)snprintf(program->log, sizeof(program->log),
			       "%s(%d): catastrophic error: #error directive: %.*s\n"
			       "  %.*s\n   ^\n\n"
			       "1 catastrophic error detected in the compilation of \"%s\".\n"
			       "Compilation terminated.\n",
			       program->name, line_of(program->source, error), len - skip,
			       error + skip, len, error, program->name);
	}
	if (!error && !lacks_header(program, program->name, program->source, 0) &&
	    !strstr(program->source, "FAKECUDA so="))
		(void)snprintf(program->log, sizeof(program->log),
			       "%s(1): error: no FAKECUDA line\n", program->name);
	return program->log[0] != '\0';
}

static void take_option(struct program *program, const char *opt)
{
	const char *arch = strstr(opt, "-arch=");

	if (!arch)
		arch = strstr(opt, "-gpu-architecture=");
	if (arch)
		(void)snprintf(program->arch, sizeof(program->arch), "%s", strchr(arch, '=') + 1);
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int nopts, const char *const *opts)
{
	const char *line;

	if (!program)
		return NVRTC_ERROR_INVALID_PROGRAM;
	for (int i = 0; i < nopts; i++)
		take_option(program, opts[i]);
	if (complain(program))
		return NVRTC_ERROR_COMPILATION;
	line = strstr(program->source, "FAKECUDA so=");
	free(program->ptx);
	if (asprintf(&program->ptx, ".version 8.0\n.target %s\n.address_size 64\n// %.*s\n",
		     program->arch, (int)strcspn(line, "\n"), line) < 0) {
		program->ptx = NULL;
		return NVRTC_ERROR_OUT_OF_MEMORY;
	}
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *ret_bytes)
{
	*ret_bytes = strlen(program->log) + 1;
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log)
{
	memcpy(log, program->log, strlen(program->log) + 1);
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *ret_bytes)
{
	if (!program->ptx)
		return NVRTC_ERROR_INVALID_PROGRAM;
	*ret_bytes = strlen(program->ptx) + 1;
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *ptx)
{
	if (!program->ptx)
		return NVRTC_ERROR_INVALID_PROGRAM;
	memcpy(ptx, program->ptx, strlen(program->ptx) + 1);
	return NVRTC_SUCCESS;
}

/*
 * A cubin is an ELF file for machine 190. This one has headers only, and the line behind them: the section table
 * is where it would end, so that whoever believes the headers finds the line inside.
 */
#define CUBIN_HEADER 64
#define CUBIN_SHDR   64

static size_t cubin_bytes(const struct program *program)
{
	size_t text = (strlen(program->ptx) + 1 + 7) & ~(size_t)7;

	return CUBIN_HEADER + text + CUBIN_SHDR;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *ret_bytes)
{
	if (!program->ptx)
		return NVRTC_ERROR_INVALID_PROGRAM;
	*ret_bytes = cubin_bytes(program);
	return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *cubin)
{
	static const unsigned char ident[16] = { 0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33, 7 };
	unsigned short half[] = { 2, 190 }, sizes[] = { CUBIN_HEADER, 56, 0, CUBIN_SHDR, 1, 0 };
	unsigned int version = 1, flags;
	unsigned long long shoff;

	if (!program->ptx)
		return NVRTC_ERROR_INVALID_PROGRAM;
	memset(cubin, 0, cubin_bytes(program));
	memcpy(cubin, ident, sizeof(ident));
	memcpy(cubin + 16, half, sizeof(half));
	memcpy(cubin + 20, &version, sizeof(version));
	shoff = cubin_bytes(program) - CUBIN_SHDR;
	memcpy(cubin + 40, &shoff, sizeof(shoff));
	flags = (unsigned int)atoi(program->arch + strcspn(program->arch, "0123456789"));
	flags |= flags << 16;
	memcpy(cubin + 48, &flags, sizeof(flags));
	memcpy(cubin + 52, sizes, sizeof(sizes));
	memcpy(cubin + CUBIN_HEADER, program->ptx, strlen(program->ptx) + 1);
	return NVRTC_SUCCESS;
}
