/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the worker: images that guests load.
 *
 *   store.c   the session's image store: bytes that outlive the worker
 *   image.c   an image in use: its form on each device, its kernels, its end
 *   setting.c what the guest has set of a kernel, set again where it is found anew
 *   load.c    jobs: what control operations on images do that may take long
 *   account.c what a session may have compiled
 *   compile.h the process that compiles
 *
 * An image has users: ledger objects (its handles, kernels made from it). When the last is gone, each device thread of
 * the session lets go of its form once no command in flight uses it, and the last of them frees the rest.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_IMAGE_H
#define GANTRY_HOST_AGENT_WORKER_IMAGE_H

#include "base/sha256.h"
#include "host-agent/worker/worker.h"

#define WORKER_IMAGE_KERNELS 4096u /* of one image, by symbol and signature */

struct wimage {
	struct gantry_list link; /* of the session; under the lock */
	struct wsession *session;
	uint32_t kind; /* of device */
	uint64_t off;  /* in the store */
	uint64_t bytes;
	uint8_t hash[GANTRY_SHA256_BYTES]; /* of what the guest loaded */
	uint32_t nusers;		   /* under the lock */
	uint32_t nholders;		   /* atomic; device threads that have not let go yet */
	struct gantry_list dying[GANTRY_ENGINE_MAX_DEVICES]; /* each device's thread its own */
	struct gantry_image *on[GANTRY_ENGINE_MAX_DEVICES];  /* likewise */
	struct gantry_list kernels;			     /* struct wkernel; under the lock */
	uint32_t nkernels;
};

/* ---- store.c ---- */
/* Makes the session's store, or maps the one at @fd (duplicated). 0 or a status. Any thread, one at a time. */
int worker_store_open(struct wsession *s, int fd);
void worker_store_close(struct wsession *s);
/* Makes the store where there is none yet, and has the agent keep it. 0 or a status. */
int worker_store_ready_locked(struct wsession *s);
/* The name under which the agent keeps the store of a session. */
uint64_t worker_store_share_id(const struct wsession *s);
/* A free range, backed by pages; or exactly [off, off + bytes), at a recovery. 0 or a status. */
int worker_store_take_locked(struct wsession *s, uint64_t bytes, uint64_t *ret_off);
int worker_store_retake_locked(struct wsession *s, uint64_t off, uint64_t bytes);
void worker_store_put_locked(struct wsession *s, uint64_t off);
/* Gives back the pages of a range that is not taken. */
void worker_store_clear(struct wsession *s, uint64_t off, uint64_t bytes);
uint8_t *worker_store_at(const struct wsession *s, uint64_t off);

/* Charges @bytes to session and tenant as allocated device memory, or gives them back. 0 or LIMIT. */
int worker_store_charge(struct wsession *s, uint64_t bytes);
void worker_store_refund(struct wsession *s, uint64_t bytes);

/* ---- image.c ---- */
/* Takes the range at @off over. One user: the caller. NULL: no memory. */
struct wimage *worker_image_new_locked(struct wsession *s, uint32_t kind, uint64_t off,
				       uint64_t bytes, const uint8_t hash[GANTRY_SHA256_BYTES]);
/* One with the same bytes for the same kind, with the caller as another user; NULL: none. */
struct wimage *worker_image_same_locked(struct wsession *s, uint32_t kind,
					const uint8_t hash[GANTRY_SHA256_BYTES]);
void worker_image_unuse_locked(struct wimage *image);
/* The image on this device, loaded now where it was not. Device thread. 0 or a status, with a sentence. */
int worker_image_on(struct wdevice *d, struct wimage *image, struct gantry_err *err);
/* A kernel of a guest's image on this device. Device thread. 0 or a status, with a sentence. */
int worker_image_kernel_on(struct wdevice *d, struct wkernel *k, struct gantry_kernel **ret_kernel,
			   struct gantry_err *err);
/* ---- setting.c ---- */
/* The guest has set @number of @k to @value on @d, which took it: the ledger has it. Device thread. */
void worker_setting_note(struct wdevice *d, struct wkernel *k, uint64_t number, uint64_t value);
/* The session's devices have changed places: what was set is looked at again, also where the kernel was before. */
void worker_settings_moved_locked(struct wsession *s);
/* What was set on this device, under the number that the guest has for it, is set of k->on. Device thread. 0 or a status, with a sentence. */
int worker_settings_apply(struct wdevice *d, struct wkernel *k, struct gantry_err *err);

/* ---- image.c, kernels ---- */
/* The image's kernel, if it was made before; else NULL. */
struct wkernel *worker_image_kernel_find_locked(struct wimage *image, const char *symbol,
						const char *sig_text);
/* A kernel that belongs to nobody yet. @sig_text is parsed. NULL: no memory. */
struct wkernel *worker_image_kernel_new(struct wimage *image, const char *symbol,
					const struct gantry_signature *sig, const char *sig_text);
/* Makes @k the image's, with its recipe in the store. 0 or a status: then it stays the caller's. */
int worker_image_kernel_add_locked(struct wkernel *k);
void worker_image_kernel_free(struct wkernel *k);
/* The first device of the session for images of @kind; NULL: none. */
struct wdevice *worker_image_device(const struct wsession *s, uint32_t kind);

/* The object at @slot, a guest's kernel or image, ends; handles that kept each other alive too. */
void worker_image_object_free_locked(struct wsession *s, uint32_t slot);

/* At a recovery, images before kernels. false: what the ledger says cannot be, or memory is short. */
bool worker_image_recover(struct wsession *s, uint32_t slot);
bool worker_image_kernel_recover(struct wsession *s, uint32_t slot);
/* All were: what is left over goes, and what nothing in the ledger names is emptied. */
void worker_images_recovered(struct wsession *s);

/* Device thread: images that nothing in flight uses any more. Returns how many it let go of. */
unsigned worker_images_reap(struct wdevice *d);
/* Device thread, nothing of the session in flight: it forgets the session's images. */
void worker_images_leave(struct wdevice *d, struct wsession *s);
/* No thread uses the session any more. */
void worker_images_release(struct wsession *s);

/* ---- load.c ---- */
/* Whether the session may load images of its own onto the device. */
bool worker_load_takes(const struct wsession *s, const struct wdevice *d);
int worker_load_image(struct wsession *s, const struct gantry_op_image_load *op, uint64_t made_by,
		      struct gantry_reply *reply, uint64_t *ret_handle);
/*
 * A kernel of image object @handle. @sig: what it is to have, with its text. AGAIN: a device is being asked; *ret_kernel
 * else, on success. Both: the thread that serves the control queue, or its stand-in; 0 or a status with a sentence in @reply.
 */
int worker_load_kernel(struct wsession *s, uint64_t handle, const char *symbol,
		       const struct gantry_signature *sig, const char *sig_text,
		       struct gantry_reply *reply, struct wkernel **ret_kernel);
void worker_load_release(struct wsession *s);

/* ---- account.c ---- */
struct worker_compilation;
/* As worker_compile(), where the session has not had too much compiled lately: else LIMIT. Any thread. */
int worker_compile_charged(struct wsession *s, const struct worker_compilation *what, int *ret_fd,
			   uint64_t *ret_bytes, char *log, struct gantry_err *err);
/* For compilations: whether they are to stop. */
bool worker_session_is_ending(void *session);
/* gantry_stream_attr.compile, of a struct wqueue. A thread on which something of the queue's runs. */
int worker_compile_for_module(void *queue, const void *text, size_t nbytes, void **ret_made,
			      size_t *ret_nbytes);

/* ---- ask.c ---- */
/*
 * Questions to a device, and variables of images, of the control queue; @home is the thread that serves it, or whose
 * stand-in does. @name: of name_bytes, or "". A status; AGAIN: being asked. Both fill @reply.
 */
int worker_ask(struct wdevice *home, struct wsession *s, const struct gantry_op_ask *op,
	       struct gantry_reply *reply);
int worker_ask_texture(struct wdevice *home, struct wsession *s, const struct gantry_op_texture *op,
		       const uint8_t *spec, uint64_t made_by, struct gantry_reply *reply);
int worker_ask_reserve(struct wdevice *home, struct wsession *s, const struct gantry_op_reserve *op,
		       uint64_t made_by, struct gantry_reply *reply);
int worker_ask_map(struct wdevice *home, struct wsession *s, const struct gantry_op_map *op,
		   struct gantry_reply *reply);
int worker_ask_variable(struct wdevice *home, struct wsession *s,
			const struct gantry_op_image_variable *op, const char *name,
			uint64_t made_by, struct gantry_reply *reply);
void worker_ask_release(struct wsession *s);
/* Every session is ending: returns when no job runs any more. */
void worker_load_drain(struct gantry_engine *e);

#endif
