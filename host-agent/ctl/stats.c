/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "host-agent/ctl/print.h"
#include "host-agent/ctl/verbs.h"

static void print_prometheus(FILE *out, const Gantry__Admin__Stats *stats)
{
	const char *last = "";

	for (size_t i = 0; i < stats->n_metrics; i++) {
		const Gantry__Admin__Metric *m = stats->metrics[i];
		size_t len = strlen(m->name);

		if (strcmp(m->name, last) != 0)
			fprintf(out, "# TYPE %s %s\n", m->name,
				len > 6 && strcmp(m->name + len - 6, "_total") == 0 ? "counter"
										    : "gauge");
		last = m->name;
		fprintf(out, "%s%s%s%s %.17g\n", m->name, *m->labels ? "{" : "", m->labels,
			*m->labels ? "}" : "", m->value);
	}
}

int gantry_ctl_stats(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__Empty empty = GANTRY__ADMIN__EMPTY__INIT;
	int r;

	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_STATS;
	request.stats = &empty;
	r = gantry_ctl_ask(ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_STATS, &reply);
	if (r)
		return r;
	if (gantry_ctl_option(ctl, "prometheus")) {
		if (ctl->json)
			return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
					       "stats: --json or --prometheus, not both");
		print_prometheus(ctl->out, reply->stats);
		return 0;
	}
	return gantry_print_list(ctl, &gantry_metric_fields,
				 (const void *const *)reply->stats->metrics,
				 reply->stats->n_metrics);
}
