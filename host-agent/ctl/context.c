/* SPDX-License-Identifier: Apache-2.0 */
#include "context.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "host-agent/ctl/verbs.h"

void gantry_ctl_init(struct gantry_ctl *ctl)
{
	const char *named = getenv("GANTRY_ADMIN");
	const char *no_colour = getenv("NO_COLOR");

	*ctl = (struct gantry_ctl){
		.socket_path = named && *named ? named : GANTRY_CLIENT_SOCKET,
		.headings = true,
		.colour = isatty(STDOUT_FILENO) && !(no_colour && *no_colour),
		.timeout_ns = GANTRY_CTL_TIMEOUT_DEFAULT,
		.out = stdout,
		.err = stderr,
	};
}

void gantry_ctl_fini(struct gantry_ctl *ctl)
{
	ctl->client = gantry_client_close(ctl->client);
}

const char *gantry_ctl_option(const struct gantry_ctl *ctl, const char *name)
{
	const struct gantry_verb_option *option = ctl->verb->options;

	for (int i = 0; option && option[i].name; i++)
		if (strcmp(option[i].name, name) == 0)
			return ctl->values[i];
	assert(!"a handler asked for an option that its verb does not have");
	return NULL;
}

int gantry_ctl_bandwidth(struct gantry_ctl *ctl, uint64_t *ret_bytes)
{
	const char *given = gantry_ctl_option(ctl, "bandwidth");
	struct gantry_err err = GANTRY_ERR_NONE;
	uint64_t bytes = 0;

	if (given && gantry_size_parse(given, &bytes, &err) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE, "--bandwidth %s: %s", given,
				       err.text);
	if (given && bytes == 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "--bandwidth %s: with that nothing would go; leave it out "
				       "for all there is",
				       given);
	*ret_bytes = bytes;
	return 0;
}

uint64_t gantry_ctl_deadline(const struct gantry_ctl *ctl)
{
	return gantry_deadline_ns(ctl->timeout_ns);
}

int gantry_ctl_fail(struct gantry_ctl *ctl, int code, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* a longer sentence is cut short */
	va_end(ap);
	/* What an agent or a file put into it must not leave the line or move the cursor. */
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = ' ';
	if (ctl->into) {
		(void)gantry_err_set(ctl->into, -EIO, "%s", text); /* the code is ours */
		return code;
	}
	(void)fflush(ctl->out);
	fprintf(ctl->err, "gantryctl: %s\n", text);
	if (ctl->json && !ctl->failed) {
		json_object *object = gantry_ctl_json_new();
		json_object *error = json_object_new_object();

		json_object_object_add(error, "code", json_object_new_int(code));
		json_object_object_add(error, "text", json_object_new_string(text));
		json_object_object_add(object, "error", error);
		gantry_ctl_json_print(ctl, object);
	}
	ctl->failed = true;
	return code;
}

int gantry_ctl_fail_client(struct gantry_ctl *ctl, int r, const struct gantry_err *err)
{
	switch (r) {
	case -ETIMEDOUT:
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_TIMEOUT,
			"%s: %s; is the agent stuck? see its log, or give --timeout more",
			ctl->socket_path, err->text);
	case -EACCES:
	case -EPERM:
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_DENIED,
			"%s; reading needs group gantry, changing gantry-admin, or root",
			err->text);
	case -ENOENT:
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ENOTDIR:
	case -ENAMETOOLONG:
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_UNREACHABLE,
			"no agent at %s: %s; start gantryd, or name its socket with --socket",
			ctl->socket_path, err->text);
	default:
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED,
				       "%s: %s; is that gantryd's admin socket?", ctl->socket_path,
				       err->text);
	}
}

int gantry_ctl_connect(struct gantry_ctl *ctl)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int r;

	if (ctl->client)
		return 0;
	r = gantry_client_open(ctl->socket_path, gantry_ctl_deadline(ctl), &ctl->client, &err);
	return r < 0 ? gantry_ctl_fail_client(ctl, r, &err) : 0;
}

int gantry_ctl_code(int code)
{
	return (code >= GANTRY_CTL_FAILED && code <= GANTRY_CTL_UNSUPPORTED) ||
			       code == GANTRY_CTL_TIMEOUT
		       ? code
		       : GANTRY_CTL_FAILED;
}

int gantry_ctl_ask_quietly(struct gantry_ctl *ctl, Gantry__Admin__AdminRequest *request,
			   Gantry__Admin__AdminReply **ret_reply, struct gantry_err *err)
{
	uint64_t deadline_ns = gantry_ctl_deadline(ctl);
	int r = 0;

	if (!ctl->client)
		r = gantry_client_open(ctl->socket_path, deadline_ns, &ctl->client, err);
	if (r < 0)
		return r;
	r = gantry_client_call(ctl->client, request, deadline_ns, ret_reply, err);
	/* An answer that comes late must not be taken for that of another request. */
	if (r < 0)
		ctl->client = gantry_client_close(ctl->client);
	return r;
}

int gantry_ctl_ask(struct gantry_ctl *ctl, Gantry__Admin__AdminRequest *request, int want,
		   Gantry__Admin__AdminReply **ret_reply)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;
	int r = gantry_ctl_ask_quietly(ctl, request, &reply, &err);

	if (r < 0)
		return gantry_ctl_fail_client(ctl, r, &err);
	if (reply->code != 0)
		return gantry_ctl_fail(ctl, gantry_ctl_code(reply->code), "%s",
				       *reply->text ? reply->text
						    : "the agent refused, and did not say why");
	if (want >= 0 && (int)reply->body_case != want)
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_UNSUPPORTED,
			"the agent answered something else; are its version and ours alike? "
			"see gantryctl version");
	*ret_reply = GANTRY_TAKE_PTR(reply);
	return 0;
}

/* The agent may have more to say, in @more, than that it did it. */
static int print_done(struct gantry_ctl *ctl, const char *more, const char *fmt, va_list ap)
{
	json_object *object;
	char text[512];

	(void)vsnprintf(text, sizeof(text), fmt, ap); /* a longer sentence is cut short */
	if (!ctl->json) {
		fprintf(ctl->out, "%s%s%s\n", text, *more ? ": " : "", more);
		return 0;
	}
	object = gantry_ctl_json_new();
	json_object_object_add(object, "ok", json_object_new_boolean(true));
	json_object_object_add(object, "text", json_object_new_string(*more ? more : text));
	return gantry_ctl_json_print(ctl, object);
}

int gantry_ctl_done(struct gantry_ctl *ctl, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = print_done(ctl, "", fmt, ap);
	va_end(ap);
	return r;
}

int gantry_ctl_change(struct gantry_ctl *ctl, Gantry__Admin__AdminRequest *request, const char *fmt,
		      ...)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	va_list ap;
	int r = gantry_ctl_ask(ctl, request, -1, &reply);

	if (r)
		return r;
	va_start(ap, fmt);
	r = print_done(ctl, reply->text, fmt, ap);
	va_end(ap);
	return r;
}

json_object *gantry_ctl_json_new(void)
{
	json_object *object = json_object_new_object();

	json_object_object_add(object, "schema", json_object_new_int(GANTRY_CTL_SCHEMA));
	return object;
}

static void print_object(struct gantry_ctl *ctl, json_object *object, int flags)
{
	fprintf(ctl->out, "%s\n",
		json_object_to_json_string_ext(object, flags | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(object);
}

int gantry_ctl_json_print(struct gantry_ctl *ctl, json_object *object)
{
	print_object(ctl, object, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED);
	return 0;
}

int gantry_ctl_json_line(struct gantry_ctl *ctl, json_object *object)
{
	print_object(ctl, object, JSON_C_TO_STRING_PLAIN);
	(void)fflush(ctl->out); /* a reader that is gone shows at the end */
	return 0;
}
