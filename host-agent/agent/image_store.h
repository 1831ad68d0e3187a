/* SPDX-License-Identifier: Apache-2.0 */
/* The store of a board's images, as upload.c, images.c and image_users.c see it. Threads: the agent's one. Blocking: file system calls. */
#ifndef GANTRY_HOST_AGENT_AGENT_IMAGE_STORE_H
#define GANTRY_HOST_AGENT_AGENT_IMAGE_STORE_H

#include "base/err.h"
#include "devices/board/bitstream.h"
#include "host-agent/agent/admin.h"

struct gantry_agent;
struct gantry_agent_device;
struct gantry_session;

#define GANTRY_STORE_SUFFIX    ".bitstream"
#define GANTRY_STORE_TEMPORARY ".image-"

struct gantry_image_store {
	struct gantry_agent_device *device;
	const char *dir; /* the device's configuration's */
};

/* A manifest of the store. */
struct gantry_image_entry {
	char *file;
	struct gantry_bitstream *bitstream; /* NULL: it cannot be read */
	struct gantry_err why;		    /* then */
	/* gantry_image_users_count() */
	uint32_t nusers;
	const struct gantry_session *first_user;
	bool leaving; /* its manifest has a mark */
	/* gantry_image_users_count(), of one that leaves: tasks that were accepted and have not ended, and whose they are */
	uint64_t ntasks;
	uint32_t nwaited;
	const struct gantry_session *first_waited;
};

struct gantry_image_entries {
	struct gantry_image_entry *list; /* by file name */
	uint32_t n;
};

/* All that is there now. -errno: the folder cannot be read; -ENOMEM. */
int gantry_image_store_read(const struct gantry_image_store *store,
			    struct gantry_image_entries *ret_entries, struct gantry_err *err);
void gantry_image_entries_free(struct gantry_image_entries *entries);
/* How many sessions could not go on without each. Its cost does not grow with what guests do, but for one look at each of their handles. 0, or -ENOMEM: nobody knows. */
int gantry_image_users_count(struct gantry_agent *a, const struct gantry_image_store *store,
			     struct gantry_image_entries *entries, struct gantry_err *err);

/* Of device @name; "": of the only one that has images. -ENOENT, -EINVAL: there is none, or there are several. */
int gantry_image_store_find(struct gantry_agent *a, const char *name,
			    struct gantry_image_store *ret_store, struct gantry_err *err);
/* Is it for this board, and at odds with nothing that is there? -EINVAL, -EEXIST. */
int gantry_image_store_admits(const struct gantry_image_store *store,
			      const struct gantry_bitstream *bitstream, struct gantry_err *err);
/* Its manifest, its mark, and the files that no other names. */
int gantry_image_store_remove(const struct gantry_image_store *store,
			      const struct gantry_image_entries *entries,
			      const struct gantry_image_entry *removed, struct gantry_err *err);
/* Puts the mark beside its manifest, or takes it away, and tells everybody who looks. */
int gantry_image_leave(struct gantry_agent *a, const struct gantry_image_store *store,
		       const struct gantry_image_entry *entry, bool leave, struct gantry_err *err);
/* @code, -errno with a sentence, as an answer. */
void gantry_image_store_refuse(struct gantry_answer *r, int code, const struct gantry_err *err);

#endif
