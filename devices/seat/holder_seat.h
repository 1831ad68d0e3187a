/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the holder: a seat. holder.c has the loop and what goes through pages, holder_seat.c what seats ask for and their end.
 *
 * Threads: the device thread's, except where a member says otherwise.
 */
#ifndef GANTRY_DEVICES_SEAT_HOLDER_SEAT_H
#define GANTRY_DEVICES_SEAT_HOLDER_SEAT_H

#include <stdbool.h>

#include "base/list.h"
#include "devices/seat/holder.h"
#include "devices/seat/seat.h"
#include "devices/statements.h"

struct gantry_seat_memory {
	unsigned char *base; /* NULL: unused */
	uint64_t len;
	struct gantry_mem *mem;
	int refuge;	 /* the holder's: mapped there when the worker is gone */
	uint32_t nusers; /* launches under way */
};

struct gantry_seat_stream {
	struct gantry_stream *stream; /* NULL: unused */
	uint32_t nflight;
};

struct gantry_seat_kernel {
	struct gantry_kernel *kernel; /* NULL: unused, or its image is gone */
	char name[GANTRY_KERNEL_NAME_MAX + 1];
	uint32_t image;
	uint32_t nusers;
	struct gantry_signature sig;
};

/* A launch that the device has; its address is the command's tag. */
struct gantry_seat_entry {
	struct gantry_seat *seat;
	bool busy;
	uint32_t cancelled; /* atomic; any thread reads it */
	uint32_t slot;
	uint32_t stream;
	uint32_t kernel;
	uint32_t nmems;
	uint32_t mems[GANTRY_MAX_CMD_ARGS];
};

struct gantry_seat {
	struct gantry_list link;
	struct gantry_seat_holder *holder;
	const struct gantry_device *device;
	const char *images;
	uint64_t worker; /* whose it is */
	int sock;
	bool gone;
	struct gantry_seat_page *page; /* NULL before HELLO */
	uint32_t taken;
	uint32_t ended;
	bool has_news; /* ends that the worker was not told of yet */
	bool is_rung;  /* and it has not heard it, if it has heard @heard still */
	uint32_t heard;
	bool stuck; /* the device had no room for its next task, and nothing has ended since */
	uint32_t nflight;
	uint32_t npieces; /* of memory, as the holder counts them */
	struct gantry_seat_memory mems[GANTRY_SEAT_MAX_MEMS];
	struct gantry_seat_stream streams[GANTRY_SEAT_MAX_STREAMS];
	struct gantry_image *images_of[GANTRY_SEAT_MAX_IMAGES];
	struct gantry_seat_kernel *kernels[GANTRY_SEAT_MAX_KERNELS];
	struct gantry_seat_entry entries[GANTRY_SEAT_TASKS];
};

/* The holder's: seats whose worker has ended leave, now. */
void gantry_seat_holder_see_ends(struct gantry_seat_holder *holder);
/*
 * The holder's, for all seats: before a piece of memory of @seat's is mapped, that what launches still write when its worker is gone has
 * a place (a descriptor of the holder's, at least @len bytes long); and one less. -ENOMEM: the holder has all the pieces it can take away
 * again, but for those that each seat can count on.
 */
int gantry_seat_holder_refuge(struct gantry_seat_holder *holder, struct gantry_seat *seat,
			      uint64_t len, int *ret_fd);
void gantry_seat_holder_refuge_end(struct gantry_seat_holder *holder, struct gantry_seat *seat);

struct gantry_seat *gantry_seat_new(struct gantry_seat_holder *holder,
				    const struct gantry_device *device, const char *images,
				    int sock, uint64_t worker);
/* It broke the rules: it is told @why, and gone. */
void gantry_seat_condemn(struct gantry_seat *seat, const char *why);
/* Nobody is there any more: nothing that its launches still do reaches its memory. */
void gantry_seat_leave(struct gantry_seat *seat);
/* Of one that is gone, without launches under way. */
void gantry_seat_free(struct gantry_seat *seat);
/* Tells it that something is new in its page. */
void gantry_seat_tell(struct gantry_seat *seat);
/* Reads one message, if there is one, and answers it. false: there was none. */
bool gantry_seat_hear(struct gantry_seat *seat);

#endif
