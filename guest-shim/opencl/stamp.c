/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a command began and ended, as the host says: two words of the session's heap that tasks before and behind the command
 * write a clock to. It is not this machine's clock: what is known of their difference is that nobody has heard of an end before it was.
 */
#include <stdlib.h>

#include "guest-shim/device.h"
#include "guest-shim/opencl/icd.h"
#include "guest-shim/ranges.h"

#define PER_RANGE  64u
#define CELL_BYTES (2u * sizeof(uint64_t))

struct icd_cell {
	struct icd_cell *next; /* free, or given back */
	struct gantry_range *range;
	uint64_t off;		     /* in @range */
	struct icd_cell *next_block; /* of a block's first: what was allocated at once */
	gantry_ticket ticket;
};

static bool make(struct icd_host *host)
{
	struct icd_cell *cells = calloc(PER_RANGE, sizeof(*cells));
	struct gantry_range *range;

	if (!cells)
		return false;
	if (gantry_range_take(host->session, PER_RANGE * CELL_BYTES, CELL_BYTES, 0, &range) < 0) {
		free(cells);
		return false;
	}
	for (uint32_t i = 0; i < PER_RANGE; i++) {
		cells[i] = (struct icd_cell){ .next = host->free_cells,
					      .range = range,
					      .off = i * CELL_BYTES };
		host->free_cells = &cells[i];
	}
	cells[0].next_block = host->cell_blocks;
	host->cell_blocks = cells;
	return true;
}

/* Those that nothing writes to any more. */
static void reap(struct icd_host *host)
{
	for (struct icd_cell **at = &host->put_cells, *cell; (cell = *at) != NULL;) {
		if (gantry_test(host->session, cell->ticket) == 0) {
			at = &cell->next;
			continue;
		}
		*at = cell->next;
		cell->next = host->free_cells;
		host->free_cells = cell;
	}
}

void icd_cells_free(struct icd_host *host)
{
	struct icd_cell *next;

	for (struct icd_cell *cells = host->cell_blocks; cells; cells = next) {
		next = cells->next_block;
		free(cells);
	}
	host->cell_blocks = NULL;
}

struct icd_cell *icd_cell_take(struct icd_host *host)
{
	struct icd_cell *cell;

	if (!host->free_cells)
		reap(host);
	if (!host->free_cells && !make(host))
		return NULL;
	cell = host->free_cells;
	host->free_cells = cell->next;
	return cell;
}

void icd_cell_put(struct icd_host *host, struct icd_cell *cell, gantry_ticket ticket)
{
	cell->ticket = ticket;
	cell->next = host->put_cells;
	host->put_cells = cell;
}

static uint64_t *word_of(const struct icd_host *host, const struct icd_cell *cell, unsigned which)
{
	return (uint64_t *)((uint8_t *)gantry_range_ptr(host->session, cell->range) + cell->off) +
	       which;
}

int icd_stamp(struct icd_host *host, const struct icd_line *line, const struct icd_cell *cell,
	      unsigned which, gantry_ticket *ret_ticket)
{
	*word_of(host, cell, which) = 0;
	return gantry_submit_stamp(host->session, line->queue,
				   cell->range->off + cell->off + which * sizeof(uint64_t),
				   ret_ticket);
}

/* The host writes these words: whatever they are is a time. */
void icd_stamps_read(struct icd_host *host, struct icd_line *line, const struct icd_cell *cell,
		     uint64_t heard_ns, uint64_t ret_ns[2])
{
	int64_t apart;

	for (unsigned i = 0; i < 2; i++)
		ret_ns[i] = *(volatile uint64_t *)word_of(host, cell, i);
	if (ret_ns[0] == 0 || ret_ns[1] < ret_ns[0])
		ret_ns[0] = ret_ns[1] = 0; /* the task that was to write them failed */
	if (ret_ns[1] == 0)
		return;
	apart = (int64_t)(heard_ns - ret_ns[1]);
	if (!line->knows_apart || apart < line->apart_ns)
		line->apart_ns = apart;
	line->knows_apart = true;
}
