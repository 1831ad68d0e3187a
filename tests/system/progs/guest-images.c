/* SPDX-License-Identifier: Apache-2.0 */
/* Images of the guest's own, kernels of them, and launches with arguments of any kind. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/system/progs/guest.h"

#define MAX_ARGS 16u

static const char *signature_of(const char *word)
{
	return word && strcmp(word, "-") != 0 ? word : NULL;
}

/* The bytes of a file, with a zero after them: source of a program is text. */
static char *read_file(const char *path, uint64_t *ret_bytes)
{
	FILE *file = fopen(path, "rbe");
	char *bytes = NULL;
	long len;

	if (!file || fseek(file, 0, SEEK_END) < 0 || (len = ftell(file)) < 0)
		goto out;
	rewind(file);
	bytes = calloc(1, (size_t)len + 1);
	if (bytes && fread(bytes, 1, (size_t)len, file) != (size_t)len) {
		free(bytes);
		bytes = NULL;
	}
	*ret_bytes = (uint64_t)len;
out:
	if (file)
		(void)fclose(file);
	return bytes;
}

/* image NAME KIND FILE [BYTES]: loads the file, or its first BYTES */
void do_image(char **w)
{
	uint64_t bytes = 0;
	char *image = read_file(w[3], &bytes);
	gantry_image handle = 0;
	int r;

	if (!image) {
		printf("error NONE cannot read %s\n", w[3]);
		return;
	}
	r = gantry_image_load(session, atoi(w[2]), image, w[4] ? strtoull(w[4], NULL, 0) : bytes,
			      &handle);
	free(image);
	answer_named(r, w[1], handle);
}

/* image_find NAME MODULE */
void do_image_find(char **w)
{
	gantry_image handle = 0;
	int r = gantry_image_find(session, w[2], &handle);

	answer_named(r, w[1], handle);
}

/* image_free NAME */
void do_image_free(char **w)
{
	answer(gantry_image_free(session, get(w[1])));
}

/* kernel NAME IMAGE SYMBOL [SIGNATURE] */
void do_kernel(char **w)
{
	gantry_kernel kernel = 0;
	int r = gantry_kernel_from(session, get(w[2]), w[3], signature_of(w[4]), &kernel);

	answer_named(r, w[1], kernel);
}

/* find NAME KERNEL [SIGNATURE] */
void do_find(char **w)
{
	gantry_kernel kernel = 0;
	int r = gantry_kernel_find(session, w[2], signature_of(w[3]), &kernel);

	answer_named(r, w[1], kernel);
}

struct packed {
	unsigned char args[MAX_ARGS * 8];
	uint32_t bytes;
	struct gantry_access access[MAX_ARGS];
	uint32_t naccess;
	uint32_t flags;
};

static void pack(struct packed *p, const void *value, uint32_t size)
{
	p->bytes = (p->bytes + size - 1) / size * size;
	memcpy(p->args + p->bytes, value, size);
	p->bytes += size;
}

/* "r:BUFFER[:OFF[:LEN]]", w, rw; "u32=7"; idem */
static bool pack_word(struct packed *p, char *word)
{
	char *eq = strchr(word, '='), *save = NULL;
	uint64_t zero = 0;

	if (strcmp(word, "idem") == 0) {
		p->flags |= GANTRY_TASK_IDEMPOTENT;
		return true;
	}
	if (eq) {
		uint64_t u64 = strtoull(eq + 1, NULL, 0);
		uint32_t u32 = (uint32_t)u64;
		double f64 = strtod(eq + 1, NULL);
		float f32 = (float)f64;

		if (strncmp(word, "f32", 3) == 0)
			pack(p, &f32, 4);
		else if (strncmp(word, "f64", 3) == 0)
			pack(p, &f64, 8);
		else if (strncmp(word + 1, "32", 2) == 0)
			pack(p, &u32, 4);
		else
			pack(p, &u64, 8);
		return true;
	}
	const char *mode = strtok_r(word, ":", &save), *name = strtok_r(NULL, ":", &save);
	const char *off = strtok_r(NULL, ":", &save), *len = strtok_r(NULL, ":", &save);

	if (!mode || !name)
		return false;
	pack(p, &zero, 8);
	p->access[p->naccess++] = (struct gantry_access){
		.buffer = get(name),
		.off = off ? strtoull(off, NULL, 0) : 0,
		.len = len ? strtoull(len, NULL, 0) : 0,
		.mode = strcmp(mode, "r") == 0	 ? GANTRY_R
			: strcmp(mode, "w") == 0 ? GANTRY_W
						 : GANTRY_RW,
		.arg_off = (uint16_t)(p->bytes - 8),
	};
	return true;
}

static void three(const char *word, uint32_t ret[3])
{
	ret[0] = ret[1] = ret[2] = 1;
	(void)sscanf(word, "%" SCNu32 ",%" SCNu32 ",%" SCNu32, &ret[0], &ret[1], &ret[2]);
	if (strcmp(word, "-") == 0)
		ret[0] = ret[1] = ret[2] = 0;
}

/* launch QUEUE TICKET KERNEL COUNT GRID BLOCK SHARED [ARG...]; GRID and BLOCK: "4", "4,2,1" or "-" */
void do_launch(char **w)
{
	struct packed p = { .bytes = 0 };
	struct gantry_task task = { .kernel = get(w[3]),
				    .shared_bytes = (uint32_t)strtoul(w[7], NULL, 0) };
	gantry_ticket t = 0;
	int r = 0;

	three(w[5], task.grid);
	three(w[6], task.block);
	for (unsigned i = 8; w[i] && i < 8 + MAX_ARGS; i++)
		if (!pack_word(&p, w[i])) {
			printf("error NONE what is the argument %s?\n", w[i]);
			return;
		}
	p.bytes = (p.bytes + 7) / 8 * 8;
	task.args = p.bytes ? p.args : NULL;
	task.args_bytes = p.bytes;
	task.access = p.naccess ? p.access : NULL;
	task.naccess = p.naccess;
	task.flags = p.flags;
	for (int i = atoi(w[4]); i > 0 && r == 0; i--)
		r = gantry_submit(session, get(w[1]), &task, 1, &t);
	answer_named(r, w[2], t);
}

/* first KERNEL: "ok OPEN-NS TOTAL-NS", from nothing to the first task done */
void do_first(char **w)
{
	const struct gantry_limits ask = { .call_timeout_ns = 30 * SECOND };
	struct gantry_task task = { .kernel = 0 };
	uint64_t start = now_ns(), opened = 0;
	gantry_queue queue = 0;
	gantry_ticket t = 0;
	int r = gantry_open(NULL, &ask, &session);

	opened = now_ns();
	if (r == 0)
		r = gantry_queue_open(session, NULL, &queue);
	if (r == 0)
		r = gantry_kernel_find(session, w[1], NULL, &task.kernel);
	if (r == 0)
		r = gantry_submit(session, queue, &task, 1, &t);
	if (r == 0)
		r = gantry_wait(session, &t, 1, 30 * SECOND);
	if (r < 0)
		answer(r);
	else
		printf("ok %" PRIu64 " %" PRIu64 "\n", opened - start, now_ns() - start);
}
