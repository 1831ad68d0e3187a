/* SPDX-License-Identifier: Apache-2.0 */
/* Input: the manifest of a bitstream. What is taken goes on to a board. */
#include "devices/board/bitstream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "devices/board/board.h"
#include "tests/fuzz/fuzz.h"

static void check_bitstream(const struct gantry_bitstream *b)
{
	uint32_t nunits = 0;

	assert(gantry_name_valid(b->name) && gantry_name_valid(b->board));
	assert(b->nkernels > 0 && b->nkernels <= GANTRY_BITSTREAM_MAX_KERNELS);
	for (uint32_t i = 0; i < b->nkernels; i++) {
		const struct gantry_bitstream_kernel *kernel = &b->kernels[i];

		assert(gantry_bitstream_find(b, kernel->name) == kernel);
		assert(gantry_kernel_name_valid(kernel->name));
		assert(kernel->units >= 1 && kernel->units <= GANTRY_BITSTREAM_MAX_UNITS);
		assert(kernel->window + kernel->units <= GANTRY_BITSTREAM_MAX_WINDOWS);
		nunits += kernel->units;
	}
	assert(nunits == b->nunits);
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		assert(!gantry_bitstream_fits(b, place) ||
		       gantry_file_name_valid(b->files[place].name));
}

/* A launch of each kernel in turn, through whatever has to be loaded. */
static void use(const struct gantry_bitstream *b)
{
	const struct gantry_board_conf conf = { .model = b->board,
						.nregions = GANTRY_BOARD_MAX_REGIONS };
	struct gantry_board *board;
	uint64_t now_ns = 1;

	if (gantry_board_new(&conf, &b, 1, &board, NULL) < 0)
		return;
	for (uint32_t k = 0; k < b->nkernels; k++) {
		struct gantry_board_unit unit;
		int number = gantry_board_kernel(board, b->kernels[k].name);

		assert(number >= 0);
		gantry_board_demand(board, (uint32_t)number, 1, 1, now_ns);
		now_ns +=
			b->configure_ns; /* others may come at the same time: it waits for part of that */
		while (gantry_board_step(board, now_ns).what != GANTRY_BOARD_NOTHING)
			gantry_board_did(board, 0, ++now_ns);
		assert(gantry_board_begin(board, (uint32_t)number, now_ns, &unit) == 0);
		gantry_board_demand(board, (uint32_t)number, 0, 0, now_ns);
		gantry_board_end(board, &unit, 1000, now_ns += 1000);
	}
	gantry_board_free(board);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct gantry_bitstream *b = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;

	if (gantry_bitstream_parse((const char *)data, len, &b, &err) < 0) {
		assert(err.code < 0 && err.text[0] && b == NULL);
		return 0;
	}
	check_bitstream(b);
	use(b);
	free(b);
	return 0;
}
