/* SPDX-License-Identifier: Apache-2.0 */
/* Images and kernels: by name, from bytes, with variants. */
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "guest-shim/control.h"
#include "guest-shim/error.h"
#include "guest-shim/ranges.h"

/* Compiling takes longer than other calls; the host ends it well before. */
#define IMAGE_TIMEOUT_NS INT64_C(60000000000)

/* Bytes of @text with its NUL; 0 when it is longer than @max (NUL included). */
static uint32_t text_bytes(const char *text, uint32_t max)
{
	size_t len = strnlen(text, max);

	return len < max ? (uint32_t)len + 1 : 0;
}

static int check_name(const char *name, uint32_t max, uint32_t *ret_bytes)
{
	uint32_t bytes = name ? text_bytes(name, max) : 0;

	if (bytes < 2)
		return gantry_fail(GANTRY_E_ARG, "a name has 1 to %u characters", max - 1);
	*ret_bytes = bytes;
	return 0;
}

static int check_handle(uint64_t handle, enum gantry_handle_type type, const char *what)
{
	if (GANTRY_HANDLE_TYPE(handle) != type)
		return gantry_fail(GANTRY_E_HANDLE, "0x%llx is no %s", (unsigned long long)handle,
				   what);
	return 0;
}

/* ---- images ---- */

/* What the program gets of a compiler's log, and where the host puts it: behind the image. */
struct log {
	char *text;
	uint64_t bytes;
};

static void take_log(const struct log *log, const uint8_t *from, uint32_t bytes)
{
	if (bytes == 0)
		return;
	gantry_region_copy_out(log->text, from, bytes);
	log->text[bytes - 1] = '\0';
}

static uint64_t load_deadline(const struct gantry_session *s)
{
	uint64_t deadline_ns = gantry_session_deadline(s);

	return GANTRY_MAX(deadline_ns, gantry_deadline_ns(IMAGE_TIMEOUT_NS));
}

/*
 * The bytes go through the heap. The host says AGAIN until its own copy is loaded, so they stay there until it says
 * something else.
 */
static int load(struct gantry_session *s, int kind, const void *image, uint64_t bytes,
		const struct log *log, gantry_image *ret_image)
{
	uint64_t deadline_ns = load_deadline(s);
	struct gantry_op_image_load args = {
		.bytes = bytes,
		.kind = (uint32_t)kind,
		.log_bytes = (uint32_t)GANTRY_MIN(log->bytes, (uint64_t)GANTRY_MAX_IMAGE_LOG),
	};
	uint64_t at = (bytes + GANTRY_LINE - 1) & ~(uint64_t)(GANTRY_LINE - 1);
	struct gantry_range *range;
	struct gantry_desc desc;
	uint8_t *heap;
	int r = gantry_range_take(s, at + args.log_bytes, GANTRY_PAGE, deadline_ns, &range);

	if (r < 0)
		return r;
	heap = gantry_range_ptr(s, range);
	gantry_region_copy_in(heap, image, bytes);
	args.heap_off = range->off;
	if (args.log_bytes) {
		args.log_off = range->off + at;
		gantry_region_copy_in(heap + at, "", 1);
	}
	gantry_desc_put_image_load(&desc, &args);
	r = gantry_control_call_handle(s, &desc, NULL, 0, GANTRY_HANDLE_IMAGE, deadline_ns,
				       ret_image);
	if (r == 0 || (r != GANTRY_E_TIMEOUT && r > GANTRY_E_PROTOCOL))
		take_log(log, heap + at, args.log_bytes);
	gantry_range_put(s, range);
	return r;
}

int gantry_image_load(struct gantry_session *session, int kind, const void *image, uint64_t bytes,
		      gantry_image *ret_image)
{
	return gantry_image_load_log(session, kind, image, bytes, NULL, 0, ret_image);
}

int gantry_image_load_log(struct gantry_session *session, int kind, const void *image,
			  uint64_t bytes, char *log, uint64_t log_bytes, gantry_image *ret_image)
{
	int r = gantry_session_enter(session);

	if (r == 0)
		r = gantry_session_alive(session);
	if (r < 0)
		return r;
	if (!image || !ret_image || bytes == 0 || bytes > GANTRY_MAX_IMAGE_BYTES)
		return gantry_fail(GANTRY_E_ARG, "an image has 1 to %llu bytes",
				   GANTRY_MAX_IMAGE_BYTES);
	if (log_bytes && !log)
		return gantry_fail(GANTRY_E_ARG, "a log at NULL");
	if (kind <= GANTRY_KIND_ANY || kind >= GANTRY_NKINDS)
		return gantry_fail(GANTRY_E_ARG, "an image is for one kind of device, not for %d",
				   kind);
	if (kind == GANTRY_KIND_CPU)
		return gantry_fail(GANTRY_E_UNSUPPORTED, "cpu devices take installed modules only");
	return load(session, kind, image, bytes, &(struct log){ log, log_bytes }, ret_image);
}

int gantry_image_find(struct gantry_session *session, const char *module, gantry_image *ret_image)
{
	struct gantry_op_image_load args = { .by_name = 1 };
	struct gantry_desc desc;
	uint32_t name_bytes = 0;
	int r = gantry_session_enter(session);

	if (r == 0)
		r = check_name(module, GANTRY_MAX_NAME, &name_bytes);
	if (r < 0)
		return r;
	if (!ret_image)
		return gantry_fail(GANTRY_E_ARG, "there is nowhere to put the image");
	gantry_desc_put_image_load(&desc, &args);
	return gantry_control_call_handle(session, &desc, module, name_bytes, GANTRY_HANDLE_IMAGE,
					  gantry_session_deadline(session), ret_image);
}

static int free_object(struct gantry_session *s, uint64_t object, enum gantry_handle_type type,
		       const char *what)
{
	struct gantry_reply reply;
	struct gantry_desc desc;
	int r = gantry_session_enter(s);

	if (r == 0)
		r = check_handle(object, type, what);
	if (r < 0)
		return r;
	gantry_desc_put_object_free(&desc, &(struct gantry_op_object_free){ .object = object });
	return gantry_control_call(s, &desc, NULL, 0, gantry_session_deadline(s), &reply);
}

int gantry_image_free(struct gantry_session *session, gantry_image image)
{
	return free_object(session, image, GANTRY_HANDLE_IMAGE, "image");
}

/* ---- kernels ---- */

static int get(struct gantry_session *s, gantry_image image, const char *name,
	       const char *signature, gantry_kernel *ret_kernel)
{
	uint8_t var[GANTRY_MAX_SYMBOL + GANTRY_MAX_SIGNATURE];
	struct gantry_op_kernel_get args = { .image = image };
	uint32_t name_bytes = 0, sig_bytes;
	struct gantry_desc desc;
	int r = check_name(name, image ? GANTRY_MAX_SYMBOL : GANTRY_MAX_NAME, &name_bytes);

	if (r < 0)
		return r;
	if (!ret_kernel)
		return gantry_fail(GANTRY_E_ARG, "there is nowhere to put the kernel");
	if (!signature)
		signature = "";
	sig_bytes = text_bytes(signature, GANTRY_MAX_SIGNATURE);
	if (sig_bytes == 0)
		return gantry_fail(GANTRY_E_ARG, "a signature has up to %u characters",
				   GANTRY_MAX_SIGNATURE - 1);
	args.name_bytes = (uint16_t)name_bytes;
	args.sig_bytes = (uint16_t)sig_bytes;
	memcpy(var, name, name_bytes);
	memcpy(var + name_bytes, signature, sig_bytes);
	gantry_desc_put_kernel_get(&desc, &args);
	return gantry_control_call_handle(s, &desc, var, name_bytes + sig_bytes,
					  GANTRY_HANDLE_KERNEL, gantry_session_deadline(s),
					  ret_kernel);
}

int gantry_kernel_find(struct gantry_session *session, const char *name, const char *signature,
		       gantry_kernel *ret_kernel)
{
	int r = gantry_session_enter(session);

	return r < 0 ? r : get(session, 0, name, signature, ret_kernel);
}

int gantry_kernel_from(struct gantry_session *session, gantry_image image, const char *name,
		       const char *signature, gantry_kernel *ret_kernel)
{
	int r = gantry_session_enter(session);

	if (r == 0)
		r = check_handle(image, GANTRY_HANDLE_IMAGE, "image");
	return r < 0 ? r : get(session, image, name, signature, ret_kernel);
}

int gantry_kernel_variant(struct gantry_session *session, gantry_kernel kernel, gantry_image image,
			  const char *symbol, int kind)
{
	struct gantry_op_kernel_variant args = { .kernel = kernel,
						 .image = image,
						 .kind = (uint32_t)kind };
	struct gantry_reply reply;
	struct gantry_desc desc;
	uint32_t symbol_bytes = 0;
	int r = gantry_session_enter(session);

	if (r == 0)
		r = check_handle(kernel, GANTRY_HANDLE_KERNEL, "kernel");
	if (r == 0)
		r = check_handle(image, GANTRY_HANDLE_IMAGE, "image");
	if (r == 0)
		r = check_name(symbol, GANTRY_MAX_SYMBOL, &symbol_bytes);
	if (r < 0)
		return r;
	if (kind <= GANTRY_KIND_ANY || kind >= GANTRY_NKINDS)
		return gantry_fail(GANTRY_E_ARG, "a variant is for one kind of device, not for %d",
				   kind);
	args.symbol_bytes = (uint16_t)symbol_bytes;
	gantry_desc_put_kernel_variant(&desc, &args);
	return gantry_control_call(session, &desc, symbol, symbol_bytes,
				   gantry_session_deadline(session), &reply);
}

int gantry_kernel_free(struct gantry_session *session, gantry_kernel kernel)
{
	return free_object(session, kernel, GANTRY_HANDLE_KERNEL, "kernel");
}
