/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/ctl/progress.h"

#include <string.h>
#include <unistd.h>

#include "base/bytes.h"

#define CELLS 30u
#define WIDTH 79

static uint32_t full_cells(const struct gantry_progress *p)
{
	double part = p->all_bytes ? (double)p->done_bytes / (double)p->all_bytes : 0;

	if (p->is_over)
		return CELLS;
	return part * CELLS < CELLS - 1 ? (uint32_t)(part * CELLS) : CELLS - 1;
}

void gantry_progress_text(const struct gantry_progress *p, char ret_text[GANTRY_PROGRESS_TEXT])
{
	char bar[CELLS + 1], done[GANTRY_QUANTITY_MAX], all[GANTRY_QUANTITY_MAX];
	char round[24] = "", of[GANTRY_QUANTITY_MAX + 8] = "";

	memset(bar, '.', CELLS);
	memset(bar, '#', full_cells(p));
	bar[CELLS] = '\0';
	gantry_size_format_rounded(p->done_bytes, done);
	gantry_size_format_rounded(p->all_bytes, all);
	if (p->all_bytes && p->done_bytes <= p->all_bytes) /* else more went than was counted */
		(void)snprintf(of, sizeof(of), " of %s", all);
	if (p->round)
		(void)snprintf(round, sizeof(round), ", round %u", p->round);
	(void)snprintf(ret_text, GANTRY_PROGRESS_TEXT, "%-10.20s [%s] %s%s%s", p->state, bar, done,
		       of, round);
}

void gantry_progress_draw(FILE *to, const struct gantry_progress *p)
{
	char text[GANTRY_PROGRESS_TEXT];

	if (!isatty(fileno(to)))
		return;
	gantry_progress_text(p, text);
	fprintf(to, "\r%-*s", WIDTH, text); /* what was there may have been longer */
	(void)fflush(to);		    /* a terminal that is gone shows at the end */
}

void gantry_progress_clear(FILE *to)
{
	if (isatty(fileno(to)))
		fprintf(to, "\r%*s\r", WIDTH, "");
}
