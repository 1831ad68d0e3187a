/* SPDX-License-Identifier: Apache-2.0 */
/* Images of boards: what is registered, one more, one less. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "devices/board/bitstream.h"
#include "host-agent/ctl/print.h"
#include "host-agent/ctl/verbs.h"

#define REQUEST(which) GANTRY__ADMIN__ADMIN_REQUEST__BODY_##which
#define REPLY(which)   GANTRY__ADMIN__ADMIN_REPLY__BODY_##which
/* With what is around them, parts fit the frame of a request. */
#define PART_BYTES     (60u * 1024u)
#define MANIFEST_BYTES (60u * 1024u)
#define LOOK_NS	       (100 * GANTRY_NS_PER_MS)

static int ask_list(struct gantry_ctl *ctl, Gantry__Admin__AdminReply **ret_reply)
{
	Gantry__Admin__Empty empty = GANTRY__ADMIN__EMPTY__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;

	request.body_case = REQUEST(IMAGE_LIST);
	request.image_list = &empty;
	return gantry_ctl_ask(ctl, &request, REPLY(IMAGES), ret_reply);
}

static char *text_option(struct gantry_ctl *ctl, const char *name)
{
	const char *value = gantry_ctl_option(ctl, name);

	return (char *)(uintptr_t)(value ? value : "");
}

int gantry_ctl_image_list(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	int r = ask_list(ctl, &reply);

	return r ? r
		 : gantry_print_list(ctl, &gantry_image_fields,
				     (const void *const *)reply->images->images,
				     reply->images->n_images);
}

/* ---- show ---- */

static const Gantry__Admin__Image *find_image(const Gantry__Admin__AdminReply *reply,
					      const char *name, const char *device)
{
	for (size_t i = 0; i < reply->images->n_images; i++)
		if (strcmp(reply->images->images[i]->name, name) == 0 &&
		    (!device[0] || strcmp(reply->images->images[i]->device, device) == 0))
			return reply->images->images[i];
	return NULL;
}

static int show_json(struct gantry_ctl *ctl, const Gantry__Admin__Image *image)
{
	const void *const one[] = { image };
	json_object *object = gantry_ctl_json_new();
	json_object *images = gantry_print_json_array(&gantry_image_fields, one, 1);
	json_object *shown = json_object_get(json_object_array_get_idx(images, 0));

	json_object_put(images);
	json_object_object_add(shown, "kernels",
			       gantry_print_json_array(&gantry_image_kernel_fields,
						       (const void *const *)image->kernels,
						       image->n_kernels));
	json_object_object_add(shown, "files",
			       gantry_print_json_array(&gantry_image_file_fields,
						       (const void *const *)image->files,
						       image->n_files));
	json_object_object_add(object, "image", shown);
	return gantry_ctl_json_print(ctl, object);
}

int gantry_ctl_image_show(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	const char *device = text_option(ctl, "device");
	const Gantry__Admin__Image *image;
	int r = ask_list(ctl, &reply);

	if (r)
		return r;
	image = find_image(reply, ctl->args[0], device);
	if (!image)
		return gantry_ctl_fail(ctl, GANTRY_CTL_NOT_FOUND,
				       "there is no image %s; see gantryctl image list",
				       ctl->args[0]);
	if (ctl->json)
		return show_json(ctl, image);
	r = gantry_print_one(ctl, &gantry_image_fields, image);
	if (r == 0)
		r = gantry_print_table(ctl, ctl->out, &gantry_image_kernel_fields,
				       (const void *const *)image->kernels, image->n_kernels);
	return r ? r
		 : gantry_print_table(ctl, ctl->out, &gantry_image_file_fields,
				      (const void *const *)image->files, image->n_files);
}

/* ---- add ---- */

static int begin(struct gantry_ctl *ctl, Gantry__Admin__AdminReply **ret_reply)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__ImageAdd add = GANTRY__ADMIN__IMAGE_ADD__INIT;
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	int r = gantry_file_read(ctl->args[0], MANIFEST_BYTES, &text, &len);

	if (r < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "%s: %s", ctl->args[0],
				       strerror(-r));
	add.device = text_option(ctl, "device");
	add.tenant = text_option(ctl, "tenant");
	add.manifest = (ProtobufCBinaryData){ len, (uint8_t *)text };
	request.body_case = REQUEST(IMAGE_ADD);
	request.image_add = &add;
	return gantry_ctl_ask(ctl, &request, REPLY(UPLOAD), ret_reply);
}

static int send_part(struct gantry_ctl *ctl, uint64_t id, char *file, uint8_t *bytes, size_t n)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__ImageData data = GANTRY__ADMIN__IMAGE_DATA__INIT;

	data.id = id;
	data.file = file;
	data.data = (ProtobufCBinaryData){ n, bytes };
	request.body_case = REQUEST(IMAGE_DATA);
	request.image_data = &data;
	return gantry_ctl_ask(ctl, &request, 0, &reply);
}

/* The file of that name beside the manifest. What it is is the agent's to say. */
static int send_file(struct gantry_ctl *ctl, uint64_t id, char *file)
{
	const char *manifest = ctl->args[0], *slash = strrchr(manifest, '/');
	_cleanup_free_ uint8_t *bytes = malloc(PART_BYTES);
	_cleanup_close_ int fd = -EBADF;
	char path[PATH_MAX];
	struct stat st;
	ssize_t n;
	int r = 0;

	if (!bytes ||
	    gantry_str_format(path, sizeof(path), "%.*s%s", slash ? (int)(slash - manifest + 1) : 0,
			      manifest, file) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "%s: the path is too long", file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "%s: %s", path, strerror(errno));
	/* The agent counts for itself; this spares it half a gigabyte. */
	if (fstat(fd, &st) == 0 && st.st_size > GANTRY_BITSTREAM_MAX_FILE_BYTES)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "%s has more than %u bytes: no image is so long", path,
				       GANTRY_BITSTREAM_MAX_FILE_BYTES);
	while (r == 0 && (n = read(fd, bytes, PART_BYTES)) != 0) {
		if (n < 0)
			return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "%s: %s", path,
					       strerror(errno));
		r = send_part(ctl, id, file, bytes, (size_t)n);
	}
	return r;
}

/* 0: the agent has all of it, and its workers have been told. */
static int add(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL, *end = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__UInt id = GANTRY__ADMIN__UINT__INIT;
	int r = begin(ctl, &reply);

	for (size_t i = 0; r == 0 && i < reply->upload->n_files; i++)
		r = send_file(ctl, reply->upload->id, reply->upload->files[i]);
	if (r)
		return r;
	id.value = reply->upload->id;
	request.body_case = REQUEST(IMAGE_END);
	request.image_end = &id;
	return gantry_ctl_ask(ctl, &request, -1, &end);
}

int gantry_ctl_image_add(struct gantry_ctl *ctl)
{
	int r = add(ctl);

	/* Who is told that it is there may launch it at once, by a handle of before too. */
	if (r == 0)
		r = gantry_ctl_await_workers(ctl, "the image is registered");
	return r ? r : gantry_ctl_done(ctl, "%s: registered", ctl->args[0]);
}

/* ---- remove ---- */

/* On a terminal one line that is written over, else a line for each change. */
static void tell_left(struct gantry_ctl *ctl, const Gantry__Admin__Image *image, uint64_t *told)
{
	bool is_terminal = isatty(fileno(ctl->err));

	if (ctl->json || (image->tasks == *told && !is_terminal))
		return;
	*told = image->tasks;
	fprintf(ctl->err,
		"%simage %s: %" PRIu64 " accepted tasks have not ended, of %u sessions%s%s%s",
		is_terminal ? "\r" : "", image->name, image->tasks, image->waits_for,
		image->waits_first[0] ? ", the first is " : "", image->waits_first,
		is_terminal ? "    " : "\n");
	(void)fflush(ctl->err); /* a terminal that is gone shows at the end */
}

/* Until it is gone, or stays after all. --timeout, where it was given, ends the waiting and not the removal. */
static int await_removal(struct gantry_ctl *ctl, const char *name, const char *device)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	uint64_t deadline_ns = ctl->timeout_given ? gantry_ctl_deadline(ctl)
						  : GANTRY_DEADLINE_NEVER;
	uint64_t told = UINT64_MAX;

	for (;;) {
		_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
		const Gantry__Admin__Image *image;
		int r = ask_list(ctl, &reply);

		if (r)
			return r;
		image = find_image(reply, name, device);
		if (image && image->leaving)
			tell_left(ctl, image, &told);
		else if (told != UINT64_MAX && isatty(fileno(ctl->err)))
			fputc('\n', ctl->err);
		if (!image)
			return 0;
		if (!image->leaving)
			return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED,
					       "image %s: it stays, somebody asked for that", name);
		if (gantry_now_ns() >= deadline_ns)
			return gantry_ctl_fail(ctl, GANTRY_CTL_TIMEOUT,
					       "image %s is removed once %" PRIu64
					       " tasks have ended; see gantryctl image list",
					       name, image->tasks);
		(void)nanosleep(&pause, NULL); /* shorter is no harm */
	}
}

int gantry_ctl_image_remove(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__ImageName name = GANTRY__ADMIN__IMAGE_NAME__INIT;
	bool leaves;
	int r;

	name.name = ctl->args[0];
	name.device = text_option(ctl, "device");
	name.now = gantry_ctl_option(ctl, "now") != NULL;
	name.cancel = gantry_ctl_option(ctl, "cancel") != NULL;
	if (name.cancel && (name.now || gantry_ctl_option(ctl, "no-wait")))
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "--cancel goes with neither --now nor --no-wait");
	request.body_case = REQUEST(IMAGE_REMOVE);
	request.image_remove = &name;
	r = gantry_ctl_ask(ctl, &request, -1, &reply);
	if (r)
		return r;
	if (name.cancel)
		return gantry_ctl_done(ctl, "image %s: it stays", name.name);
	leaves = reply->body_case == REPLY(IMAGES) && reply->images->n_images > 0;
	if (leaves && gantry_ctl_option(ctl, "no-wait"))
		return gantry_ctl_done(
			ctl, "image %s: it is removed once what was queued has ended", name.name);
	r = leaves ? await_removal(ctl, name.name, name.device) : 0;
	return r ? r : gantry_ctl_done(ctl, "image %s: removed", name.name);
}
