/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device over the fake of NVIDIA's driver, and launches whose results tell in which order and with what they ran: backend
 * cuda, or hip over the stand-in for AMD's runtime on that driver. One at a time.
 */
#ifndef GANTRY_TESTS_UNIT_DEVICES_STEPS_H
#define GANTRY_TESTS_UNIT_DEVICES_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/registry.h"

enum steps_backend {
	STEPS_CUDA,
	STEPS_HIP,
	STEPS_BACKENDS,
};

struct steps {
	struct gantry_device device;
	struct gantry_stream *stream;
	struct gantry_image *image;
	struct gantry_mem *mem;	    /* of the device's; @step works on its first word */
	struct gantry_mem *of_host; /* @bytes */
	unsigned char bytes[4096];
	uint32_t nwakes; /* changed and woken by the backend */
	struct gantry_err err;
};
extern struct steps steps;

/* @fail: what the fake driver refuses, see its fake.h; @opt: another option of the device's. Either may be NULL. */
void steps_begin(enum steps_backend backend, const char *fail, const char *opt);
/* Without the filter that asserts the contract: steps.stream is the backend's own. */
void steps_begin_bare(enum steps_backend backend);
void steps_end(void);
/* Another image of the same functions. */
struct gantry_image *steps_image(void);
/* Of one thread. Signatures are kept until steps_forget(). */
struct gantry_cmd steps_launch_of(const char *name, const char *signature);
void steps_forget(void);
/* *x = *x * @factor + 1, with x the first word of the device's memory. Of steps.image as it was the first time. */
struct gantry_cmd steps_step(uint32_t factor);
void steps_submit(struct gantry_cmd cmd, uint64_t tag);
void steps_wait(struct gantry_done *ret_done, unsigned int n);
/* As steps_wait() of one, by who polls only when it is woken. */
void steps_sleep(struct gantry_done *ret_done);
uint32_t steps_word(void);
/* The backend takes @kernel for one that took so long. */
void steps_expect(struct gantry_kernel *kernel, uint32_t ns);
/* Commands that it keeps back; of steps_begin_bare(). */
uint32_t steps_nkept(void);
/* The end of what was sent last is told by a mark alone; of steps_begin_bare(). */
bool steps_marked(void);

#endif
