/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of the session, and what may go only when the tasks in them are done. */
#include <stdlib.h>

#include "guest-shim/opencl/icd.h"

#define MOST_SPARE 32u

/* ---- queues ---- */

int icd_line_take(struct icd_host *host, uint32_t kind, struct icd_line **ret_line)
{
	const struct gantry_queue_options options = { .kind = kind };
	struct icd_line *fresh;
	int r;

	gantry_list_for_each(&host->lines, struct icd_line, link, line) {
		if (!line->is_spare || line->kind != kind)
			continue;
		line->is_spare = false;
		host->nspare--;
		*ret_line = line;
		return 0;
	}
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return GANTRY_E_NO_MEMORY;
	r = gantry_queue_open(host->session, &options, &fresh->queue);
	if (r < 0) {
		free(fresh);
		return r;
	}
	fresh->kind = kind;
	gantry_list_push_back(&host->lines, &fresh->link);
	*ret_line = fresh;
	return 0;
}

static void line_free(struct icd_line *line)
{
	gantry_list_remove(&line->link);
	free(line);
}

void icd_line_put(struct icd_host *host, struct icd_line *line)
{
	if (host->nspare == MOST_SPARE) {
		(void)gantry_queue_close(host->session, line->queue);
		line_free(line);
		return;
	}
	line->is_spare = true;
	host->nspare++;
}

/* ---- kernels ---- */

struct icd_freed {
	struct icd_freed *next;
	gantry_kernel kernel;
	uint32_t n;
	gantry_ticket tickets[]; /* of tasks that may use it */
};

static bool is_done(const struct icd_host *host, gantry_ticket ticket)
{
	return gantry_test(host->session, ticket) != 0;
}

/* true: nothing uses it any more, and the host has let go of it. */
static bool has_ended(const struct icd_host *host, struct icd_freed *f)
{
	while (f->n > 0 && is_done(host, f->tickets[f->n - 1]))
		f->n--;
	if (f->n > 0)
		return false;
	(void)gantry_kernel_free(host->session, f->kernel);
	return true;
}

static void look_at_freed(struct icd_host *host)
{
	for (struct icd_freed **at = &host->freed, *f; (f = *at) != NULL;) {
		if (has_ended(host, f)) {
			*at = f->next;
			free(f);
		} else {
			at = &f->next;
		}
	}
}

static size_t count_lines(const struct icd_host *host)
{
	size_t n = 0;

	gantry_list_for_each(&host->lines, struct icd_line, link, line)
		n += line->last != 0;
	return n;
}

/* Without memory for it it is the session's for as long as that lives. */
void icd_kernel_free(struct icd_host *host, gantry_kernel kernel)
{
	size_t n = count_lines(host);
	struct icd_freed *f = malloc(sizeof(*f) + n * sizeof(f->tickets[0]));

	look_at_freed(host);
	if (!f)
		return;
	*f = (struct icd_freed){ .next = host->freed, .kernel = kernel };
	gantry_list_for_each(&host->lines, struct icd_line, link, line)
		if (line->last && !is_done(host, line->last))
			f->tickets[f->n++] = line->last;
	if (has_ended(host, f))
		free(f);
	else
		host->freed = f;
}

void icd_lines_free(struct icd_host *host)
{
	struct icd_freed *next;

	icd_cells_free(host);
	gantry_list_for_each_safe(&host->lines, struct icd_line, link, line)
		line_free(line);
	for (struct icd_freed *f = host->freed; f; f = next) {
		next = f->next;
		free(f);
	}
	host->freed = NULL;
}
