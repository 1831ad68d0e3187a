/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fpga backend over the test board, under the contract checker; with GANTRY_TEST_SEATED=1 through a seat at another thread's device, as
 * workers have it. A test puts bitstreams, opens the device, has it work, and closes it.
 */
#ifndef GANTRY_TESTS_FPGA_BACKEND_H
#define GANTRY_TESTS_FPGA_BACKEND_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "devices/device.h"
#include "devices/registry.h"
#include "devices/seat/holder.h"
#include "tests/unit/runner.h"

#define VADD_SIG    "r:i32*,r:i32*,w:i32*,u64"
#define SCALE_SIG   "r:i32*,w:i32*,i32,u64"
#define STENCIL_SIG "r:i32*,w:i32*,u32,u32"
#define VADD	    "kernel vadd " VADD_SIG " window 0 run 100us pure\n"
#define SCALE	    "kernel scale " SCALE_SIG " window 0 run 100us pure\n"
#define STENCIL	    "kernel stencil " STENCIL_SIG " window 0 run 100us pure\n"
#define PAIR	    "kernel vadd " VADD_SIG " window 0 pure\nkernel scale " SCALE_SIG " window 1 pure\n"
#define N	    1024u
#define BYTES	    (4ull * N)
#define TIMEOUT_NS  (50 * GANTRY_NS_PER_S)

/* ---- the store of bitstreams ---- */

extern char folder[64];
extern const char *put_memory; /* what manifests say that loading an image does to it */

void put_file(const char *name, const char *suffix, const void *bytes, size_t len);
/* Bitstream @name for both regions, with these kernels, whatever it really has. */
void put(const char *name, const char *kernels);
void put_three(void);
void drop_all(void);

/* ---- the device ---- */

/* The process that holds the board, as a thread. */
struct backend_held {
	struct gantry_seat_holder *holder;
	pthread_t thread;
	const char *board, *more;
	struct gantry_device device;
};
extern struct backend_held held;
extern struct gantry_device device;
extern uint32_t nwakes; /* atomic; a futex */
/* Atomic: everything is to be cancelled, or from the question behind the next on. */
extern uint32_t cancel;
#define BEHIND_THE_NEXT 2u
/*
 * Atomic: the command of this tag is, from the question behind the first one about it on. The board's own thread waits with that for the
 * gate to be open, so that what is submitted meanwhile is there when the command begins. 0: none.
 */
extern uint32_t cancel_gate; /* atomic */
extern uint64_t cancel_tag;

extern uint64_t last_tag; /* of a command */

bool is_seated(void);
/* @board: for its driver; @more: an option of the device's, or NULL. */
int try_open(const char *board, const char *more, struct gantry_device *ret_device,
	     struct gantry_err *err);
void device_open(const char *board, const char *more);
void device_close(void);
int health_of_board(struct gantry_device_health *ret_health, struct gantry_err *err);
struct gantry_stream *stream_of(int32_t priority);
struct gantry_kernel *kernel_of(const char *bitstream, const char *name, const char *sig);
struct gantry_mem *mem_of(void *base, uint64_t len);

/* ---- commands ---- */

struct gantry_cmd launch_of(struct gantry_kernel *kernel, uint32_t nargs);
void arg(struct gantry_cmd *cmd, uint32_t i, struct gantry_mem *mem, uint64_t off, uint64_t len);
int submit(struct gantry_stream *stream, struct gantry_cmd *cmd);
void wait_for(struct gantry_done *ret_done, unsigned int n);
struct gantry_done run(struct gantry_stream *stream, struct gantry_cmd *cmd);
void run_well(struct gantry_stream *stream, struct gantry_cmd cmd);

/* ---- work ---- */

extern int32_t in_a[N], in_b[N], out[8][N];

void fill_inputs(void);
struct gantry_cmd vadd_of(struct gantry_kernel *kernel, int32_t *to, uint64_t n);
struct gantry_cmd scale_of(struct gantry_kernel *kernel, int32_t *to, int32_t factor);
struct gantry_cmd stencil_of(struct gantry_kernel *kernel, int32_t *to);
void check_vadd(const int32_t *got, uint32_t n);
void check_scale(const int32_t *got, int32_t factor);
void check_stencil(const int32_t *got);

/* ---- what stays on the board ---- */

/* Bytes that were copied to it, kept and copied back, since the last time. */
void check_copies(uint64_t copied_in, uint64_t not_copied, uint64_t copied_out);
/* Memory that a seat's holder has too, of @n times BYTES; seen at kept[@i]. It begins with in_a. */
extern int32_t *kept[8];
struct gantry_mem *shared(uint32_t i, uint64_t n);
/* scale by 3 of @from to @to with these contents before, and @makes after. */
struct gantry_cmd known_scale(struct gantry_kernel *kernel, struct gantry_mem *from,
			      struct gantry_mem *to, uint64_t in, uint64_t out_before,
			      uint64_t makes);

/* ---- the files of tests ---- */

void backend_keep_tests(TCase *tc);
void backend_follow_tests(TCase *tc);
void backend_fault_tests(TCase *tc);

#endif
