/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an installed module keeps what makes its things of one session anew: calls that were made and succeeded, in the order they were
 * made. The core owns the memory, which outlives the module's run, its device and its worker; the module alone knows what is in it.
 *
 * Trust: who wrote it may have been broken into. A module that reads it checks it as it checks a guest.
 */
#ifndef GANTRY_DEVICES_KEEP_H
#define GANTRY_DEVICES_KEEP_H

#include <stdint.h>

/* The memory begins with this; zero when it is new. */
struct gantry_keep_head {
	uint32_t
		barred; /* atomic; 1: not all of it can be made anew, and @why has what stands against it */
	uint32_t active;  /* atomic; which of the two halves behind this counts */
	uint64_t used[2]; /* atomic; bytes of each */
	uint64_t writer;  /* atomic; who writes: no two at a time have the same. 0: nobody yet */
	char why[96];	  /* ends with a NUL */
};

struct gantry_keep {
	void *base; /* atomic; NULL: there is none yet */
	uint64_t bytes;
	/*
	 * Pages behind [@off, @off + @bytes), there for good from then on: to be asked for what is read or written beyond the head, as on a
	 * host without memory the access would end the process. 0, or -ENOMEM. May be asked again. Any thread.
	 */
	int (*reserve)(const struct gantry_keep *keep, uint64_t off, uint64_t bytes);
	int fd; /* the core's: where its pages come from; negative: from nobody's file */
	uint64_t fd_off;
};

#endif
