/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record filter: writes down every call that passes, one line each, appended to a file.
 *
 * Option: record.file=PATH. Lines name objects by number, in order of their making, so that two
 * runs can be compared; times are not written for the same reason. poll() writes a line for each
 * command it tells of.
 *
 *	3 stream_create priority=0 -> 0
 *	submit stream=3 tag=17 fill dst=1+0:4096 pattern=0x0/4 -> 0
 *	done tag=17 status=GANTRY_OK blast=0
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "devices/wrap.h"

struct gantry_dev {
	struct gantry_filter_dev filter; /* first: devices/filter.h */
	struct gantry_objects objects;
	FILE *file; /* line buffered: what was told is in the file when a crash comes */
};

static uint32_t id_of(const void *opaque)
{
	return opaque ? gantry_object_of(opaque)->id : 0;
}

/* Wraps what a call made, and gives it to the caller. */
static int made(struct gantry_dev *dev, int r, uint32_t type, void *next, void *ret_opaque,
		struct gantry_err *err)
{
	struct gantry_object *object;

	if (r < 0)
		return r;
	object = gantry_object_new(&dev->objects, dev, type, next);
	if (!object)
		return gantry_err_set(err, -ENOMEM, "no memory for the record");
	*(struct gantry_object **)ret_opaque = object;
	return 0;
}

static int record_thread_enter(struct gantry_dev *dev, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r = next->backend->thread_enter(next->dev, err);

	fprintf(dev->file, "thread_enter -> %d\n", r);
	return r;
}

static int record_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			     size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_image *image;
	int r = next->backend->image_load(next->dev, path, bytes, nbytes, &image, err);

	fprintf(dev->file, "%u image_load path=%s bytes=%zu -> %d\n", dev->objects.last_id + 1,
		path ? path : "-", nbytes, r);
	return made(dev, r, GANTRY_OBJECT_IMAGE, image, ret_image, err);
}

static void record_image_unload(struct gantry_image *opaque)
{
	struct gantry_object *image = gantry_object_of(opaque);

	if (!image)
		return;
	fprintf(image->dev->file, "image_unload %u\n", image->id);
	image->dev->filter.next.backend->image_unload(image->next);
}

static void record_image_say(struct gantry_dev *dev, struct gantry_image *opaque, char *text,
			     size_t cap)
{
	struct gantry_object *image = opaque ? gantry_object_of(opaque) : NULL;
	struct gantry_device *next = &dev->filter.next;

	fprintf(dev->file, "image_say image=%u\n", image ? image->id : 0);
	next->backend->image_say(next->dev, image ? image->next : NULL, text, cap);
}

static int record_kernel_get(struct gantry_image *opaque, const char *symbol,
			     const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			     struct gantry_err *err)
{
	struct gantry_object *image = gantry_object_of(opaque);
	struct gantry_dev *dev = image->dev;
	char text[GANTRY_SIGNATURE_TEXT_MAX] = "?";
	struct gantry_kernel *kernel;
	int r = dev->filter.next.backend->kernel_get(image->next, symbol, sig, &kernel, err);

	(void)gantry_signature_format(sig, text, sizeof(text)); /* "?" is what is left on failure */
	fprintf(dev->file, "%u kernel_get image=%u %s %s -> %d\n", dev->objects.last_id + 1,
		image->id, symbol, text, r);
	r = made(dev, r, GANTRY_OBJECT_KERNEL, kernel, ret_kernel, err);
	if (r == 0)
		gantry_object_of(*ret_kernel)->sig = sig;
	return r;
}

static int record_ask(struct gantry_dev *dev, const struct gantry_question *question,
		      void *ret_answer, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_question inner;
	int r;

	gantry_object_unwrap_question(question, &inner);
	r = next->backend->ask(next->dev, &inner, ret_answer, err);
	fprintf(dev->file, "ask what=%u kernel=%u -> %d\n", question->what,
		question->kernel ? id_of(question->kernel) : 0, r);
	return r;
}

static int record_image_variable(struct gantry_image *opaque, const char *symbol,
				 struct gantry_mem **ret_mem, uint64_t *ret_len,
				 struct gantry_err *err)
{
	struct gantry_object *image = gantry_object_of(opaque);
	struct gantry_dev *dev = image->dev;
	struct gantry_mem *mem;
	int r = dev->filter.next.backend->image_variable(image->next, symbol, &mem, ret_len, err);

	fprintf(dev->file, "%u image_variable image=%u %s -> %d\n", dev->objects.last_id + 1,
		image->id, symbol, r);
	return made(dev, r, GANTRY_OBJECT_MEM, mem, ret_mem, err);
}

static int record_texture_make(struct gantry_dev *dev, uint32_t what,
			       const struct gantry_wire_texture *spec, struct gantry_mem *of,
			       struct gantry_mem **ret_mem, uint64_t *ret_len, uint64_t *ret_value,
			       struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem;
	int r = next->backend->texture_make(next->dev, what, spec,
					    of ? gantry_object_of(of)->next : NULL, &mem, ret_len,
					    ret_value, err);

	fprintf(dev->file, "%u texture_make what=%u of=%u -> %d\n", dev->objects.last_id + 1, what,
		of ? id_of(of) : 0, r);
	return made(dev, r, GANTRY_OBJECT_MEM, mem, ret_mem, err);
}

static int record_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			     struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem;
	int r = next->backend->mem_import(next->dev, fd, off, len, &mem, err);

	fprintf(dev->file, "%u mem_import off=%" PRIu64 " len=%" PRIu64 " -> %d\n",
		dev->objects.last_id + 1, off, len, r);
	return made(dev, r, GANTRY_OBJECT_MEM, mem, ret_mem, err);
}

static int record_mem_alloc(struct gantry_dev *dev, uint64_t len, struct gantry_mem **ret_mem,
			    struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem;
	int r = next->backend->mem_alloc(next->dev, len, &mem, err);

	fprintf(dev->file, "%u mem_alloc len=%" PRIu64 " -> %d\n", dev->objects.last_id + 1, len,
		r);
	return made(dev, r, GANTRY_OBJECT_MEM, mem, ret_mem, err);
}

static int record_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem;
	int r = next->backend->mem_host(next->dev, base, len, &mem, err);

	fprintf(dev->file, "%u mem_host len=%" PRIu64 " -> %d\n", dev->objects.last_id + 1, len, r);
	return made(dev, r, GANTRY_OBJECT_MEM, mem, ret_mem, err);
}

static void record_mem_free(struct gantry_mem *opaque)
{
	struct gantry_object *mem = gantry_object_of(opaque);

	if (!mem)
		return;
	fprintf(mem->dev->file, "mem_free %u\n", mem->id);
	mem->dev->filter.next.backend->mem_free(mem->next);
}

static int record_slab_create(struct gantry_dev *dev, uint64_t len, int *ret_fd,
			      struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r = next->backend->slab_create(next->dev, len, ret_fd, err);

	fprintf(dev->file, "slab_create len=%" PRIu64 " -> %d\n", len, r);
	return r;
}

static int record_slab_scrub(struct gantry_dev *dev, int fd, uint64_t len, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r = next->backend->slab_scrub(next->dev, fd, len, err);

	fprintf(dev->file, "slab_scrub len=%" PRIu64 " -> %d\n", len, r);
	return r;
}

static int record_window_open(struct gantry_dev *dev, uint64_t address, uint64_t len,
			      struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_mem *mem;
	int r = next->backend->window_open(next->dev, address, len, &mem, err);

	fprintf(dev->file, "%u window_open address=0x%" PRIx64 " len=%" PRIu64 " -> %d\n",
		dev->objects.last_id + 1, address, len, r);
	return made(dev, r, GANTRY_OBJECT_MEM, mem, ret_mem, err);
}

static int record_window_map(struct gantry_mem *opaque, uint64_t off, uint64_t len, int fd,
			     struct gantry_err *err)
{
	struct gantry_object *mem = gantry_object_of(opaque);
	int r = mem->dev->filter.next.backend->window_map(mem->next, off, len, fd, err);

	fprintf(mem->dev->file, "window_map %u off=%" PRIu64 " len=%" PRIu64 " -> %d\n", mem->id,
		off, len, r);
	return r;
}

static void record_window_unmap(struct gantry_mem *opaque, uint64_t off, uint64_t len)
{
	struct gantry_object *mem = gantry_object_of(opaque);

	fprintf(mem->dev->file, "window_unmap %u off=%" PRIu64 " len=%" PRIu64 "\n", mem->id, off,
		len);
	mem->dev->filter.next.backend->window_unmap(mem->next, off, len);
}

static int record_window_alias(struct gantry_mem *opaque, uint64_t off, struct gantry_mem *window,
			       uint64_t from, uint64_t len, struct gantry_err *err)
{
	struct gantry_object *mem = gantry_object_of(opaque);
	const struct gantry_object *of = gantry_object_of(window);
	int r = mem->dev->filter.next.backend->window_alias(mem->next, off, of->next, from, len,
							    err);

	fprintf(mem->dev->file,
		"window_alias %u off=%" PRIu64 " of=%u from=%" PRIu64 " len=%" PRIu64 " -> %d\n",
		mem->id, off, of->id, from, len, r);
	return r;
}

static int record_window_rights(struct gantry_mem *opaque, uint64_t off, uint64_t len,
				uint32_t rights, struct gantry_err *err)
{
	struct gantry_object *mem = gantry_object_of(opaque);
	int r = mem->dev->filter.next.backend->window_rights(mem->next, off, len, rights, err);

	fprintf(mem->dev->file,
		"window_rights %u off=%" PRIu64 " len=%" PRIu64 " rights=%u -> %d\n", mem->id, off,
		len, rights, r);
	return r;
}

static int record_window_swap(struct gantry_mem *opaque, struct gantry_mem *other,
			      struct gantry_err *err)
{
	struct gantry_object *mem = gantry_object_of(opaque);
	int r = mem->dev->filter.next.backend->window_swap(mem->next, gantry_object_of(other)->next,
							   err);

	fprintf(mem->dev->file, "window_swap %u -> %d\n", mem->id, r);
	return r;
}

static int record_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
				struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_stream *stream;
	int r = next->backend->stream_create(next->dev, attr, &stream, err);

	fprintf(dev->file, "%u stream_create priority=%d -> %d\n", dev->objects.last_id + 1,
		attr->priority, r);
	return made(dev, r, GANTRY_OBJECT_STREAM, stream, ret_stream, err);
}

static void record_stream_destroy(struct gantry_stream *opaque)
{
	struct gantry_object *stream = gantry_object_of(opaque);

	if (!stream)
		return;
	fprintf(stream->dev->file, "stream_destroy %u\n", stream->id);
	stream->dev->filter.next.backend->stream_destroy(stream->next);
}

static void write_range(FILE *file, const char *name, const struct gantry_range *range)
{
	fprintf(file, " %s=%u+%" PRIu64 ":%" PRIu64, name, id_of(range->mem), range->off,
		range->len);
}

static void write_raw(FILE *file, const struct gantry_raw *raw)
{
	const unsigned char *bytes = raw->bytes;

	fputs(" arg=", file);
	for (uint32_t i = 0; i < raw->len; i++)
		fprintf(file, "%02x", bytes[i]);
}

static void write_launch(FILE *file, const struct gantry_cmd_launch *launch)
{
	const struct gantry_signature *sig = gantry_object_of(launch->kernel)->sig;

	fprintf(file, " launch kernel=%u grid=%u,%u,%u block=%u,%u,%u", id_of(launch->kernel),
		launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0],
		launch->block[1], launch->block[2]);
	for (uint32_t i = 0; i < launch->nargs; i++) {
		uint32_t bytes = gantry_arg_type_bytes(sig->args[i].type);

		if (sig->args[i].mode)
			write_range(file, "arg", &launch->args[i].range);
		else if (bytes == 0)
			write_raw(file, &launch->args[i].raw);
		else /* the bits; what lies past the type is not part of the argument */
			fprintf(file, " arg=0x%" PRIx64,
				launch->args[i].value.u64 & (UINT64_MAX >> (64 - 8 * bytes)));
	}
}

static void write_cmd(FILE *file, const struct gantry_cmd *cmd)
{
	if (cmd->kind == GANTRY_CMD_LAUNCH) {
		write_launch(file, &cmd->launch);
	} else if (cmd->kind == GANTRY_CMD_COPY) {
		fputs(" copy", file);
		write_range(file, "dst", &cmd->copy.dst);
		write_range(file, "src", &cmd->copy.src);
	} else if (cmd->kind == GANTRY_CMD_STAMP) {
		fputs(" stamp", file);
	} else {
		fputs(" fill", file);
		write_range(file, "dst", &cmd->fill.dst);
		fprintf(file, " pattern=0x%" PRIx64 "/%u", cmd->fill.pattern,
			cmd->fill.pattern_bytes);
	}
}

static int record_submit(struct gantry_stream *opaque, const struct gantry_cmd *cmd)
{
	struct gantry_object *stream = gantry_object_of(opaque);
	struct gantry_dev *dev = stream->dev;
	struct gantry_cmd inner;
	int r;

	gantry_object_unwrap_cmd(cmd, &inner);
	r = dev->filter.next.backend->submit(stream->next, &inner);
	fprintf(dev->file, "submit stream=%u tag=%" PRIu64, stream->id, cmd->tag);
	write_cmd(dev->file, cmd);
	fprintf(dev->file, " -> %d\n", r);
	return r;
}

static unsigned record_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	struct gantry_device *next = &dev->filter.next;
	unsigned count = next->backend->poll(next->dev, ret_done, n);

	for (unsigned int i = 0; i < count; i++)
		fprintf(dev->file, "done tag=%" PRIu64 " status=%s blast=%u\n", ret_done[i].tag,
			gantry_status_name(ret_done[i].status), ret_done[i].blast);
	return count;
}

static void record_flush(struct gantry_stream *opaque)
{
	struct gantry_object *stream = gantry_object_of(opaque);

	fprintf(stream->dev->file, "flush stream=%u\n", stream->id);
	stream->dev->filter.next.backend->flush(stream->next);
}

static void record_boundary(struct gantry_stream *opaque)
{
	struct gantry_object *stream = gantry_object_of(opaque);

	fprintf(stream->dev->file, "boundary stream=%u\n", stream->id);
	stream->dev->filter.next.backend->boundary(stream->next);
}

static int record_region_configure(struct gantry_dev *dev, uint32_t region,
				   struct gantry_image *opaque, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	struct gantry_object *image = gantry_object_of(opaque);
	int r = next->backend->region_configure(next->dev, region, image->next, err);

	fprintf(dev->file, "region_configure region=%u image=%u -> %d\n", region, image->id, r);
	return r;
}

static void record_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	fputs("close\n", dev->file);
	gantry_device_close(&dev->filter.next);
	gantry_objects_fini(&dev->objects);
	(void)fclose(dev->file); /* a record cut short must not stop the device */
	free(dev);
}

static void replace_calls(struct gantry_backend *ops)
{
	ops->thread_enter = ops->thread_enter ? record_thread_enter : NULL;
	if (ops->image_load) {
		ops->image_load = record_image_load;
		ops->image_unload = record_image_unload;
		ops->kernel_get = record_kernel_get;
		ops->image_say = ops->image_say ? record_image_say : NULL;
	}
	ops->ask = ops->ask ? record_ask : NULL;
	ops->image_variable = ops->image_variable ? record_image_variable : NULL;
	ops->texture_make = ops->texture_make ? record_texture_make : NULL;
	ops->mem_import = ops->mem_import ? record_mem_import : NULL;
	ops->mem_alloc = ops->mem_alloc ? record_mem_alloc : NULL;
	ops->mem_host = ops->mem_host ? record_mem_host : NULL;
	ops->mem_free = record_mem_free;
	if (ops->window_open) {
		ops->slab_create = record_slab_create;
		ops->slab_scrub = record_slab_scrub;
		ops->window_open = record_window_open;
		ops->window_map = record_window_map;
		ops->window_unmap = record_window_unmap;
		ops->window_alias = ops->window_alias ? record_window_alias : NULL;
		ops->window_rights = ops->window_rights ? record_window_rights : NULL;
		ops->window_swap = ops->window_swap ? record_window_swap : NULL;
	}
	ops->stream_create = record_stream_create;
	ops->stream_destroy = record_stream_destroy;
	ops->submit = record_submit;
	ops->poll = record_poll;
	ops->flush = ops->flush ? record_flush : NULL;
	ops->boundary = ops->boundary ? record_boundary : NULL;
	ops->region_configure = ops->region_configure ? record_region_configure : NULL;
}

static int open_file(const struct gantry_device_conf *conf, FILE **ret_file, struct gantry_err *err)
{
	const char *path = gantry_device_opt(conf, "record.file");
	FILE *file;

	if (!path)
		return gantry_err_set(err, -EINVAL, "record.file: name a file");
	file = fopen(path, "ae");
	if (!file)
		return gantry_err_set_errno(err, -EINVAL, "record.file: %s", path);
	(void)setvbuf(file, NULL, _IOLBF, 0); /* the default would do as well */
	*ret_file = file;
	return 0;
}

static int record_open(const struct gantry_filter_next *next, const struct gantry_device_conf *conf,
		       const struct gantry_device_host *host, struct gantry_device *ret_device,
		       struct gantry_err *err)
{
	struct gantry_dev *dev = calloc(1, sizeof(*dev));
	struct gantry_device below;
	int r;

	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for the record filter");
	r = open_file(conf, &dev->file, err);
	if (r < 0)
		goto free_dev;
	r = gantry_filter_open_next(next, conf, host, &below, err);
	fprintf(dev->file, "open %s backend=%s -> %d\n", conf->name, conf->backend, r);
	if (r < 0)
		goto close_file;
	gantry_objects_init(&dev->objects);
	gantry_filter_init(&dev->filter, &below, record_close);
	replace_calls(&dev->filter.ops);
	*ret_device = (struct gantry_device){ &dev->filter.ops, dev, below.info };
	return 0;

close_file:
	(void)fclose(dev->file); /* the failure being reported is the one that matters */
free_dev:
	free(dev);
	return r;
}

const struct gantry_filter gantry_filter_record = { .name = "record", .open = record_open };
