/* SPDX-License-Identifier: Apache-2.0 */
/* What commands on buffers have in common. Gate held, but where it says otherwise. */
#ifndef GANTRY_GUEST_SHIM_OPENCL_TRANSFER_H
#define GANTRY_GUEST_SHIM_OPENCL_TRANSFER_H

#include "guest-shim/opencl/calls.h"

/* The queue, the buffer, and the list; *ret_q and *ret_mem are what the handles stand for. any: an image will do as well. */
cl_int icd_transfer_check_any(cl_command_queue handle, cl_mem mem_handle,
			      const struct icd_waits *waits, struct _cl_command_queue **ret_q,
			      struct _cl_mem **ret_mem);
cl_int icd_transfer_check(cl_command_queue handle, cl_mem mem_handle, const struct icd_waits *waits,
			  struct _cl_command_queue **ret_q, struct _cl_mem **ret_mem);
cl_int icd_transfer_check_range(const struct _cl_mem *mem, size_t off, size_t bytes);
/* Whether the program may do to it what flag @against forbids. */
bool icd_transfer_host_may(const struct _cl_mem *mem, cl_mem_flags against);
/* The command holds them until it has ended; @other may be NULL. */
void icd_transfer_use(struct icd_work *work, struct _cl_mem *mem, struct _cl_mem *other);
/* Also without the gate. */
struct gantry_session *icd_transfer_session(const struct _cl_event *event);
/* What a task comes after, where the call that puts it has no list of its own. Status of libgantry. */
int icd_transfer_wait(const struct _cl_event *event, const gantry_ticket *after, unsigned nafter);

/*
 * Boxes: rows of region[0] bytes, region[1] of them in each of region[2] slices, with the pitches of row and slice on each side.
 * merge: what lies without a gap on both sides becomes fewer and longer rows.
 */
void icd_transfer_merge(size_t region[3], const size_t pitch[2], const size_t other_pitch[2]);
/* Of struct icd_work: on_host() between its memory and the program's, on_device() between its two memories. */
cl_int icd_transfer_read_box(struct _cl_event *event, struct icd_work *work);
cl_int icd_transfer_write_box(struct _cl_event *event, struct icd_work *work);
int icd_transfer_copy_box(struct _cl_event *event, struct icd_work *work,
			  const gantry_ticket *after, unsigned nafter, gantry_ticket *ret_ticket);
/* The same between a session's buffer and @host, for a part that is @what. Status of libgantry; without the gate. */
int icd_transfer_box(struct gantry_session *session, gantry_buffer buffer,
		     const struct icd_mapped *what, bool is_write, char *host,
		     const size_t host_pitch[2]);

#endif
