/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a session within MILLISECONDS at $GANTRY_DOOR, and says what came of it: "ok ID", or "err STATUS SENTENCE". With
 * a session it then takes lines from standard input: "task" runs one, "wait" waits for one that never comes, until
 * the session ends; each is answered likewise. Ends when its input does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/gantry.h"

static struct gantry_session *session;
static gantry_queue queue;

static int answer(int status, uint64_t value)
{
	if (status < 0)
		printf("err %d %s\n", status, gantry_last_error());
	else
		printf("ok %" PRIu64 "\n", value);
	return status;
}

static int run_task(void)
{
	gantry_ticket ticket;
	int r = gantry_submit_marker(session, queue, &ticket);

	return r < 0 ? r : gantry_wait(session, &ticket, 1, GANTRY_FOREVER);
}

static int open_session(const char *milliseconds)
{
	const struct gantry_limits ask = { .call_timeout_ns = atoll(milliseconds) * 1000000 };
	struct gantry_props props;
	int r = gantry_open(NULL, &ask, &session);

	if (r == 0)
		r = gantry_props_get(session, GANTRY_KIND_ANY, &props);
	if (r == 0)
		r = gantry_queue_open(session, NULL, &queue);
	return answer(r, r < 0 ? 0 : props.session_id);
}

int main(int argc, char **argv)
{
	char line[64];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 2) {
		fprintf(stderr, "usage: door-guest MILLISECONDS\n");
		return 2;
	}
	if (open_session(argv[1]) < 0)
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "task\n") == 0)
			answer(run_task(), 0);
		while (strcmp(line, "wait\n") == 0)
			if (run_task() < 0) {
				answer(run_task(), 0);
				break;
			}
	}
	gantry_close(session);
	return 0;
}
