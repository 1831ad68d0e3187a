/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bitstream of the test board: a shared object with the model of one region, made by Verilator of rtl/region.v. It exports model_entry.
 */
#ifndef GANTRY_TESTS_FPGA_MODEL_H
#define GANTRY_TESTS_FPGA_MODEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MODEL_BEAT_BYTES 64u

/* The signals of a region in one cycle. */
struct model_port {
	/* in */
	uint8_t wr_valid;
	uint8_t window; /* of the register that is written or read */
	uint8_t reg;
	uint64_t wr_data;
	uint8_t ready; /* the memory takes the request of this cycle */
	uint8_t answer;
	uint8_t answer_to;
	const uint8_t *answer_data; /* a beat; valid with answer */
	/* out */
	uint8_t req;
	uint8_t we;
	uint8_t from;
	uint16_t lanes;
	uint64_t addr;
	uint64_t rd_data;
	uint8_t data[MODEL_BEAT_BYTES]; /* valid with we */
};

struct model {
	void *(*create)(void); /* after reset; NULL: no memory */
	void (*destroy)(void *region);
	/* The first half of a cycle: what comes out for what goes in, without ready. */
	void (*settle)(void *region, struct model_port *port);
	/* The second: the clock's edge, with ready. */
	void (*clock)(void *region, struct model_port *port);
};

extern const struct model model_entry;

#ifdef __cplusplus
}
#endif

#endif
