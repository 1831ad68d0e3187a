/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images that are still to be linked (proto/cuda_link.h): by the driver, when they are loaded. A stranger has made them: sizes and
 * inputs are checked as those of other images are before the driver gets any.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/str.h"
#include "devices/cuda/backend.h"
#include "devices/cuda/compile.h"
#include "proto/cuda_link.h"

#define LOG_BYTES 16384u

/* ---- checks ---- */

static bool is_option(uint32_t option)
{
#define IS(name) || option == name
	return false GANTRY_LINK_OPTIONS(IS);
#undef IS
}

/* At @index of the tables behind the header. */
struct gantry_link_option gantry_cuda_link_option(const void *bytes, uint32_t index)
{
	struct gantry_link_option option;

	memcpy(&option,
	       (const char *)bytes + sizeof(struct gantry_link_header) + index * sizeof(option),
	       sizeof(option));
	return option;
}

struct gantry_link_input gantry_cuda_link_input(const void *bytes,
						const struct gantry_link_header *header,
						uint32_t index)
{
	struct gantry_link_input input;

	memcpy(&input,
	       (const char *)bytes + sizeof(*header) +
		       header->noptions * sizeof(struct gantry_link_option) + index * sizeof(input),
	       sizeof(input));
	return input;
}

static int check_input(const void *bytes, const struct gantry_link_header *header,
		       uint64_t tables_bytes, const struct gantry_link_input *input,
		       struct gantry_err *err)
{
	enum gantry_cuda_image_sort sort;
	const char *at;

	if (input->reserved || input->off < tables_bytes || input->off % 8 || input->bytes == 0 ||
	    !gantry_range_inside(input->off, input->bytes, header->bytes) ||
	    !memchr(input->name, '\0', sizeof(input->name)))
		return gantry_err_set(err, -ENOEXEC, "an input of the link lies nowhere");
	at = (const char *)bytes + input->off;
	sort = gantry_cuda_image_sort(at, input->bytes);
	if (!(input->type == CU_JIT_INPUT_PTX && sort == GANTRY_CUDA_PTX) &&
	    !(input->type == CU_JIT_INPUT_CUBIN && sort == GANTRY_CUDA_CUBIN) &&
	    !(input->type == CU_JIT_INPUT_FATBINARY && sort == GANTRY_CUDA_FATBIN))
		return gantry_err_set(err, -ENOEXEC,
				      "an input of the link is not what it is said to be: PTX, "
				      "cubins and fatbins can be linked");
	return gantry_cuda_image_check(at, input->bytes, NULL, err);
}

int gantry_cuda_link_check(const void *bytes, size_t nbytes, struct gantry_err *err)
{
	struct gantry_link_header header;
	uint64_t tables_bytes;

	if (nbytes < sizeof(header))
		return gantry_err_set(err, -ENOEXEC, "the link is cut short");
	memcpy(&header, bytes, sizeof(header));
	if (header.version != GANTRY_LINK_VERSION || header.reserved)
		return gantry_err_set(err, -ENOEXEC, "a link of version %u is not known here",
				      header.version);
	if (header.ninputs == 0 || header.ninputs > GANTRY_LINK_MAX_INPUTS ||
	    header.noptions > GANTRY_LINK_MAX_OPTIONS)
		return gantry_err_set(err, -ENOEXEC, "a link has 1 to %u inputs and %u options",
				      GANTRY_LINK_MAX_INPUTS, GANTRY_LINK_MAX_OPTIONS);
	tables_bytes = sizeof(header) + header.noptions * sizeof(struct gantry_link_option) +
		       header.ninputs * sizeof(struct gantry_link_input);
	if (header.bytes != nbytes || tables_bytes > nbytes)
		return gantry_err_set(err, -ENOEXEC, "the link is cut short");
	for (uint32_t i = 0; i < header.noptions; i++)
		if (!is_option(gantry_cuda_link_option(bytes, i).option))
			return gantry_err_set(err, -ENOEXEC, "a link with option %u",
					      gantry_cuda_link_option(bytes, i).option);
	for (uint32_t i = 0; i < header.ninputs; i++) {
		const struct gantry_link_input input = gantry_cuda_link_input(bytes, &header, i);
		int r = check_input(bytes, &header, tables_bytes, &input, err);

		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- linking ---- */

/* What is under way. */
struct linking {
	struct gantry_dev *dev;
	CUlinkState state;
	char info[LOG_BYTES];
	char error[LOG_BYTES];
};

/* The linker's own line says what is wrong. */
static int refuse(struct linking *l, CUresult result, const char *what, struct gantry_err *err)
{
	const char *line = strstr(l->error, "error");
	size_t len;
	int r = gantry_cuda_check(l->dev, result, what, err);

	if (r == -ENOMEM || gantry_cuda_sticky(result))
		return r;
	line = line ? line : l->error;
	len = strcspn(line, "\r\n");
	/* Without a log the driver's code has to do. */
	if (len == 0)
		return gantry_err_wrap(err, -ENOEXEC, "%s", what);
	(void)gantry_err_set(err, -ENOEXEC, "%s: %.*s", what, (int)gantry_min_u64(len, 180), line);
	gantry_str_make_printable(err->text);
	return -ENOEXEC;
}

static CUresult begin(struct linking *l, const void *bytes, const struct gantry_link_header *header)
{
	CUjit_option options[GANTRY_LINK_MAX_OPTIONS + 4] = {
		CU_JIT_INFO_LOG_BUFFER,
		CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
		CU_JIT_ERROR_LOG_BUFFER,
		CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
	};
	/* The driver writes to them until the link ends. */
	static _Thread_local void *values[GANTRY_LINK_MAX_OPTIONS + 4];
	unsigned int n = 4;

	values[0] = l->info;
	values[1] = (void *)(uintptr_t)(sizeof(l->info) - 1);
	values[2] = l->error;
	values[3] = (void *)(uintptr_t)(sizeof(l->error) - 1);
	for (uint32_t i = 0; i < header->noptions; i++) {
		const struct gantry_link_option option = gantry_cuda_link_option(bytes, i);

		options[n] = (CUjit_option)option.option;
		values[n++] = (void *)(uintptr_t)option.value;
	}
	return l->dev->driver->LinkCreate(n, options, values, &l->state);
}

static int add_all(struct linking *l, const void *bytes, const struct gantry_link_header *header,
		   struct gantry_err *err)
{
	for (uint32_t i = 0; i < header->ninputs; i++) {
		const struct gantry_link_input input = gantry_cuda_link_input(bytes, header, i);
		CUresult result = l->dev->driver->LinkAddData(
			l->state, (CUjitInputType)input.type,
			(void *)(uintptr_t)((const char *)bytes + input.off), input.bytes,
			input.name, 0, NULL, NULL);

		if (result != CUDA_SUCCESS)
			return refuse(l, result,
				      input.type == CU_JIT_INPUT_PTX ? "PTX does not assemble"
								     : "an input of the link",
				      err);
	}
	return 0;
}

/* For gantry_cuda_image_say(). */
static void keep_log(struct linking *l)
{
	size_t bytes = strlen(l->info) + strlen(l->error) + 2;

	free(l->dev->link_log);
	l->dev->link_log = malloc(bytes);
	if (l->dev->link_log)
		(void)snprintf(l->dev->link_log, bytes, "%s%c%s", l->info, GANTRY_LINK_LOGS_APART,
			       l->error);
}

static int run(struct linking *l, const void *bytes, CUmodule *ret_module, struct gantry_err *err)
{
	struct gantry_link_header header;
	void *cubin = NULL;
	size_t cubin_bytes = 0;
	CUresult result;
	int r;

	memcpy(&header, bytes, sizeof(header));
	result = begin(l, bytes, &header);
	if (result != CUDA_SUCCESS)
		return refuse(l, result, "the link does not begin", err);
	r = add_all(l, bytes, &header, err);
	if (r < 0)
		return r;
	result = l->dev->driver->LinkComplete(l->state, &cubin, &cubin_bytes);
	if (result != CUDA_SUCCESS)
		return refuse(l, result, "it does not link", err);
	return gantry_cuda_code_load(l->dev, cubin, ret_module, err);
}

int gantry_cuda_link(struct gantry_dev *dev, const void *bytes, size_t nbytes, CUmodule *ret_module,
		     struct gantry_err *err)
{
	struct linking *l;
	int r = gantry_cuda_link_check(bytes, nbytes, err);

	if (r < 0)
		return r;
	l = calloc(1, sizeof(*l));
	if (!l)
		return gantry_err_set(err, -ENOMEM, "no memory for a link");
	l->dev = dev;
	r = run(l, bytes, ret_module, err);
	/* Fails with the context only. */
	if (l->state)
		(void)dev->driver->LinkDestroy(l->state);
	keep_log(l);
	free(l);
	return r;
}

void gantry_cuda_link_forget(struct gantry_dev *dev)
{
	free(dev->link_log);
	dev->link_log = NULL;
}

void gantry_cuda_image_say(struct gantry_dev *dev, struct gantry_image *image, char *text,
			   size_t cap)
{
	(void)image;
	(void)gantry_str_copy(text, cap, dev->link_log ? dev->link_log : ""); /* may be cut */
	gantry_cuda_link_forget(dev);
}
