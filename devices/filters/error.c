/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error filter: makes chosen calls fail.
 *
 * Options: error.CALL=WHEN:WHAT, where CALL is open, image, import, alloc, host, slab (slab_create),
 * scrub (slab_scrub), window (window_open), texture (texture_make), stream, submit or done; WHEN counts
 * calls from 1: "5" the fifth, "5+" the fifth and all later ones, "5%" each with that probability; WHAT is an errno
 * ("ENOMEM"), or for done a status ("DEVICE_LOST"). error.seed=N makes other coincidences. A failed
 * call does not reach the device. A failed "done" did run: only its outcome is another.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "base/str.h"
#include "devices/filter.h"

enum call {
	CALL_OPEN,
	CALL_IMAGE,
	CALL_IMPORT,
	CALL_ALLOC,
	CALL_HOST,
	CALL_SLAB,
	CALL_SCRUB,
	CALL_WINDOW,
	CALL_TEXTURE,
	CALL_STREAM,
	CALL_SUBMIT,
	CALL_DONE
};
#define NCALLS 12u

static const char *const call_keys[NCALLS] = {
	"error.open",	 "error.image",	 "error.import", "error.alloc",
	"error.host",	 "error.slab",	 "error.scrub",	 "error.window",
	"error.texture", "error.stream", "error.submit", "error.done",
};

struct rule {
	int what;     /* -errno or status; 0: no rule */
	uint64_t nth; /* 0: by probability */
	bool later_too;
	unsigned percent;
	uint64_t ncalls;
};

struct gantry_dev {
	struct gantry_filter_dev filter; /* first: devices/filter.h */
	struct rule rules[NCALLS];
	uint64_t random;
	struct gantry_list streams;
};

struct gantry_stream {
	struct gantry_list link;
	struct gantry_dev *dev;
	struct gantry_stream *next;
};

struct name {
	const char *text;
	int value;
};

static const struct name errnos[] = {
	{ "EAGAIN", -EAGAIN },	 { "EBUSY", -EBUSY },	{ "EINVAL", -EINVAL },
	{ "EIO", -EIO },	 { "ENODEV", -ENODEV }, { "ENOENT", -ENOENT },
	{ "ENOEXEC", -ENOEXEC }, { "ENOMEM", -ENOMEM }, { "ENOSPC", -ENOSPC },
	{ "EPERM", -EPERM },
};

static const struct name statuses[] = {
#define STATUS_NAME(name, value, text) { #name, value },
	GANTRY_STATUS_LIST(STATUS_NAME)
};

static int find_name(const struct name *names, size_t count, const char *text)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(names[i].text, text) == 0)
			return names[i].value;
	return 0;
}

/* "5", "5+" or "5%" */
static int parse_when(char *text, struct rule *rule, struct gantry_err *err)
{
	size_t len = strlen(text);
	char last = len ? text[len - 1] : '\0';
	int r;

	if (last == '%')
		return gantry_percent_parse(text, &rule->percent, err);
	if (last == '+') {
		rule->later_too = true;
		text[len - 1] = '\0';
	}
	r = gantry_u64_parse(text, 1, UINT64_MAX, &rule->nth, err);
	return r;
}

static int parse_rule(const char *text, enum call call, struct rule *ret_rule,
		      struct gantry_err *err)
{
	struct rule rule = { 0 };
	char when[32];
	size_t len = strcspn(text, ":");
	int r;

	if (text[len] != ':' || len >= sizeof(when))
		return gantry_err_set(err, -EINVAL, "%s: write WHEN:WHAT", call_keys[call]);
	memcpy(when, text, len);
	when[len] = '\0';
	r = parse_when(when, &rule, err);
	if (r < 0)
		return gantry_err_wrap(err, -EINVAL, "%s", call_keys[call]);
	text += len + 1;
	rule.what = call == CALL_DONE ? find_name(statuses, GANTRY_ARRAY_SIZE(statuses), text)
				      : find_name(errnos, GANTRY_ARRAY_SIZE(errnos), text);
	if (rule.what == 0)
		return gantry_err_set(err, -EINVAL, "%s: unknown \"%.40s\"", call_keys[call], text);
	*ret_rule = rule;
	return 0;
}

static int parse_options(const struct gantry_device_conf *conf, struct gantry_dev *dev,
			 struct gantry_err *err)
{
	const char *text = gantry_device_opt(conf, "error.seed");
	int r = 0;

	dev->random = 1;
	if (text)
		r = gantry_u64_parse(text, 1, UINT64_MAX, &dev->random, err);
	for (unsigned int call = 0; r == 0 && call < NCALLS; call++) {
		text = gantry_device_opt(conf, call_keys[call]);
		if (text)
			r = parse_rule(text, (enum call)call, &dev->rules[call], err);
	}
	return r < 0 ? -EINVAL : 0;
}

/* xorshift64*: the same coincidences for the same seed, everywhere. */
static uint64_t next_random(struct gantry_dev *dev)
{
	dev->random ^= dev->random >> 12;
	dev->random ^= dev->random << 25;
	dev->random ^= dev->random >> 27;
	return dev->random * 0x2545f4914f6cdd1dull;
}

/* What this call should fail with; 0: let it pass. */
static int strike(struct gantry_dev *dev, enum call call)
{
	struct rule *rule = &dev->rules[call];
	bool hit;

	if (rule->what == 0)
		return 0;
	rule->ncalls++;
	if (rule->nth == 0)
		hit = next_random(dev) % 100 < rule->percent;
	else
		hit = rule->ncalls == rule->nth || (rule->later_too && rule->ncalls > rule->nth);
	return hit ? rule->what : 0;
}

static int strike_err(struct gantry_dev *dev, enum call call, struct gantry_err *err)
{
	int r = strike(dev, call);

	return r < 0 ? gantry_err_set(err, r, "%s struck", call_keys[call]) : 0;
}

static int error_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			    size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r = strike_err(dev, CALL_IMAGE, err);

	return r < 0 ? r
		     : next->backend->image_load(next->dev, path, bytes, nbytes, ret_image, err);
}

static int error_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			    struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r = strike_err(dev, CALL_IMPORT, err);

	return r < 0 ? r : next->backend->mem_import(next->dev, fd, off, len, ret_mem, err);
}

static int error_mem_alloc(struct gantry_dev *dev, uint64_t len, struct gantry_mem **ret_mem,
			   struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r = strike_err(dev, CALL_ALLOC, err);

	return r < 0 ? r : next->backend->mem_alloc(next->dev, len, ret_mem, err);
}

static int error_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			  struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r = strike_err(dev, CALL_HOST, err);

	return r < 0 ? r : next->backend->mem_host(next->dev, base, len, ret_mem, err);
}

static int error_slab_create(struct gantry_dev *dev, uint64_t len, int *ret_fd,
			     struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r = strike_err(dev, CALL_SLAB, err);

	return r < 0 ? r : next->backend->slab_create(next->dev, len, ret_fd, err);
}

static int error_slab_scrub(struct gantry_dev *dev, int fd, uint64_t len, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r = strike_err(dev, CALL_SCRUB, err);

	return r < 0 ? r : next->backend->slab_scrub(next->dev, fd, len, err);
}

static int error_window_open(struct gantry_dev *dev, uint64_t address, uint64_t len,
			     struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r = strike_err(dev, CALL_WINDOW, err);

	return r < 0 ? r : next->backend->window_open(next->dev, address, len, ret_mem, err);
}

static int error_texture_make(struct gantry_dev *dev, uint32_t what,
			      const struct gantry_wire_texture *spec, struct gantry_mem *of,
			      struct gantry_mem **ret_mem, uint64_t *ret_len, uint64_t *ret_value,
			      struct gantry_err *err)
{
	struct gantry_device *next = &dev->filter.next;
	int r = strike_err(dev, CALL_TEXTURE, err);

	return r < 0 ? r
		     : next->backend->texture_make(next->dev, what, spec, of, ret_mem, ret_len,
						   ret_value, err);
}

static int error_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			       struct gantry_stream **ret_stream, struct gantry_err *err)
{
	_cleanup_free_ struct gantry_stream *stream = calloc(1, sizeof(*stream));
	struct gantry_device *next = &dev->filter.next;
	int r = strike_err(dev, CALL_STREAM, err);

	if (r == 0 && !stream)
		r = gantry_err_set(err, -ENOMEM, "no memory for a stream");
	if (r == 0)
		r = next->backend->stream_create(next->dev, attr, &stream->next, err);
	if (r < 0)
		return r;
	stream->dev = dev;
	gantry_list_push_back(&dev->streams, &stream->link);
	*ret_stream = GANTRY_TAKE_PTR(stream);
	return 0;
}

static void error_stream_destroy(struct gantry_stream *stream)
{
	if (!stream)
		return;
	stream->dev->filter.next.backend->stream_destroy(stream->next);
	gantry_list_remove(&stream->link);
	free(stream);
}

static int error_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	int r = strike(stream->dev, CALL_SUBMIT);

	return r < 0 ? r : stream->dev->filter.next.backend->submit(stream->next, cmd);
}

static void error_flush(struct gantry_stream *stream)
{
	stream->dev->filter.next.backend->flush(stream->next);
}

static void error_boundary(struct gantry_stream *stream)
{
	stream->dev->filter.next.backend->boundary(stream->next);
}

/* Whom a status of a real device would hurt. */
static uint32_t blast_of(int status)
{
	if (status == GANTRY_E_DEVICE_LOST)
		return GANTRY_BLAST_DEVICE;
	if (status == GANTRY_E_DEVICE_FAULT)
		return GANTRY_BLAST_CONTEXT;
	return GANTRY_BLAST_CMD;
}

static unsigned error_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	struct gantry_device *next = &dev->filter.next;
	unsigned count = next->backend->poll(next->dev, ret_done, n);

	for (unsigned int i = 0; i < count; i++) {
		int status = strike(dev, CALL_DONE);

		if (status == 0)
			continue;
		ret_done[i].status = status;
		ret_done[i].blast = blast_of(status);
	}
	return count;
}

static void error_close(struct gantry_dev *dev)
{
	if (!dev)
		return;
	gantry_device_close(&dev->filter.next); /* with all of its streams */
	gantry_list_for_each_safe(&dev->streams, struct gantry_stream, link, stream) {
		gantry_list_remove(&stream->link);
		free(stream);
	}
	free(dev);
}

static void replace_calls(struct gantry_backend *ops)
{
	ops->image_load = ops->image_load ? error_image_load : NULL;
	ops->mem_import = ops->mem_import ? error_mem_import : NULL;
	ops->mem_alloc = ops->mem_alloc ? error_mem_alloc : NULL;
	ops->mem_host = ops->mem_host ? error_mem_host : NULL;
	ops->slab_create = ops->slab_create ? error_slab_create : NULL;
	ops->slab_scrub = ops->slab_scrub ? error_slab_scrub : NULL;
	ops->window_open = ops->window_open ? error_window_open : NULL;
	ops->texture_make = ops->texture_make ? error_texture_make : NULL;
	ops->stream_create = error_stream_create;
	ops->stream_destroy = error_stream_destroy;
	ops->submit = error_submit;
	ops->flush = ops->flush ? error_flush : NULL;
	ops->boundary = ops->boundary ? error_boundary : NULL;
	ops->poll = error_poll;
}

static int error_open(const struct gantry_filter_next *next, const struct gantry_device_conf *conf,
		      const struct gantry_device_host *host, struct gantry_device *ret_device,
		      struct gantry_err *err)
{
	_cleanup_free_ struct gantry_dev *dev = calloc(1, sizeof(*dev));
	struct gantry_device below;
	int r;

	if (!dev)
		return gantry_err_set(err, -ENOMEM, "no memory for the error filter");
	gantry_list_init(&dev->streams);
	r = parse_options(conf, dev, err);
	if (r == 0)
		r = strike_err(dev, CALL_OPEN, err);
	if (r == 0)
		r = gantry_filter_open_next(next, conf, host, &below, err);
	if (r < 0)
		return r;
	gantry_filter_init(&dev->filter, &below, error_close);
	replace_calls(&dev->filter.ops);
	*ret_device = (struct gantry_device){ &dev->filter.ops, dev, below.info };
	dev = NULL; /* the device owns it now */
	return 0;
}

const struct gantry_filter gantry_filter_error = { .name = "error", .open = error_open };
