/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top: what devices, tenants and sessions did between two looks at the agent's counters.
 *
 * On a terminal each picture replaces the last, on the alternate screen, which every way out leaves again.
 */
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "host-agent/ctl/print.h"
#include "host-agent/ctl/verbs.h"

#define SESSIONS_SHOWN 12

/* --- looks --- */

/* The agent's answers at one moment. */
struct look {
	uint64_t now_ns;
	Gantry__Admin__AdminReply *devices;
	Gantry__Admin__AdminReply *tenants;
	Gantry__Admin__AdminReply *sessions;
};

static void look_fini(struct look *look)
{
	gantry_client_reply_free(look->devices);
	gantry_client_reply_free(look->tenants);
	gantry_client_reply_free(look->sessions);
	*look = (struct look){ 0 };
}

static int look_take(struct gantry_ctl *ctl, struct look *look)
{
	Gantry__Admin__SessionFilter filter = GANTRY__ADMIN__SESSION_FILTER__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__Empty empty = GANTRY__ADMIN__EMPTY__INIT;
	int r;

	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_DEVICE_LIST;
	request.device_list = &empty;
	r = gantry_ctl_ask(ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_DEVICES, &look->devices);
	if (r)
		return r;
	look->now_ns = gantry_now_ns();
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_TENANT_LIST;
	request.tenant_list = &empty;
	r = gantry_ctl_ask(ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_TENANTS, &look->tenants);
	if (r)
		return r;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_SESSION_LIST;
	request.session_list = &filter;
	return gantry_ctl_ask(ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_SESSIONS,
			      &look->sessions);
}

/* --- rows: plain structs, described like the agent's messages --- */

struct row {
	char *name; /* of the device or tenant */
	char *state;
	char *program;
	uint64_t session_id;
	double busy_percent;
	double share_percent;
	double tasks_per_s;
	uint32_t running;
	uint32_t waiting;
	uint32_t sessions;
	uint64_t weight;
	uint64_t mem_used;
	uint64_t mem_bytes;
};

#define ROW(member) .off = offsetof(struct row, member)
static const struct gantry_field device_rows[] = {
	{ "name", "DEVICE", GANTRY_FIELD_TEXT, ROW(name) },
	{ "state", "STATE", GANTRY_FIELD_TEXT, ROW(state) },
	{ "busy_percent", "BUSY%", GANTRY_FIELD_DOUBLE, ROW(busy_percent) },
	{ "running", "RUN", GANTRY_FIELD_U32, ROW(running) },
	{ "waiting", "WAIT", GANTRY_FIELD_U32, ROW(waiting) },
	{ "mem_used", "USED", GANTRY_FIELD_BYTES, ROW(mem_used) },
	{ "mem_bytes", "MEM", GANTRY_FIELD_BYTES, ROW(mem_bytes) },
};
static const struct gantry_field tenant_rows[] = {
	{ "name", "TENANT", GANTRY_FIELD_TEXT, ROW(name) },
	{ "share_percent", "SHARE%", GANTRY_FIELD_DOUBLE, ROW(share_percent) },
	{ "busy_percent", "BUSY%", GANTRY_FIELD_DOUBLE, ROW(busy_percent) },
	{ "tasks_per_s", "TASKS/S", GANTRY_FIELD_DOUBLE, ROW(tasks_per_s) },
	{ "weight", "WEIGHT", GANTRY_FIELD_U64, ROW(weight) },
	{ "sessions", "SESSIONS", GANTRY_FIELD_U32, ROW(sessions) },
	{ "mem_used", "USED", GANTRY_FIELD_BYTES, ROW(mem_used) },
	{ "mem_bytes", "MEM", GANTRY_FIELD_BYTES, ROW(mem_bytes) },
};
static const struct gantry_field session_rows[] = {
	{ "session_id", "SESSION", GANTRY_FIELD_U64, ROW(session_id) },
	{ "tenant", "TENANT", GANTRY_FIELD_TEXT, ROW(name) },
	{ "program", "PROGRAM", GANTRY_FIELD_TEXT, ROW(program) },
	{ "state", "STATE", GANTRY_FIELD_TEXT, ROW(state) },
	{ "busy_percent", "BUSY%", GANTRY_FIELD_DOUBLE, ROW(busy_percent) },
	{ "tasks_per_s", "TASKS/S", GANTRY_FIELD_DOUBLE, ROW(tasks_per_s) },
	{ "mem_used", "USED", GANTRY_FIELD_BYTES, ROW(mem_used) },
};
static const struct gantry_fields device_fields = { "device", "devices",
						    GANTRY_ARRAY_SIZE(device_rows), device_rows };
static const struct gantry_fields tenant_fields = { "tenant", "tenants",
						    GANTRY_ARRAY_SIZE(tenant_rows), tenant_rows };
static const struct gantry_fields session_fields = { "session", "sessions",
						     GANTRY_ARRAY_SIZE(session_rows),
						     session_rows };

struct rows {
	struct row *list;
	const void **pointers;
	size_t n;
};

static int rows_init(struct rows *rows, size_t n)
{
	rows->list = calloc(n + 1, sizeof(*rows->list));
	rows->pointers = calloc(n + 1, sizeof(*rows->pointers));
	rows->n = n;
	if (!rows->list || !rows->pointers)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		rows->pointers[i] = &rows->list[i];
	return 0;
}

static void rows_fini(struct rows *rows)
{
	free(rows->list);
	free(rows->pointers);
}

/* One decimal place: more would be noise. */
static double rounded(double value)
{
	return round(value * 10) / 10;
}

/* Per second of the time between the looks; a counter that fell was started anew. */
static double rate(uint64_t before, uint64_t after, uint64_t elapsed_ns)
{
	return after < before || elapsed_ns == 0
		       ? 0
		       : (double)(after - before) * 1e9 / (double)elapsed_ns;
}

static void device_row(struct row *row, const Gantry__Admin__Device *d, const struct look *before,
		       uint64_t elapsed_ns)
{
	*row = (struct row){ .name = d->name,
			     .state = (char *)gantry_device_state_name((int)d->state),
			     .running = d->running,
			     .waiting = d->waiting,
			     .mem_used = d->mem_used,
			     .mem_bytes = d->mem_bytes };
	for (size_t i = 0; i < before->devices->devices->n_devices; i++) {
		const Gantry__Admin__Device *old = before->devices->devices->devices[i];

		if (strcmp(old->name, d->name) == 0)
			row->busy_percent =
				rounded(rate(old->device_ns, d->device_ns, elapsed_ns) / 1e7);
	}
}

static void tenant_row(struct row *row, const Gantry__Admin__Tenant *t, const struct look *before,
		       uint64_t elapsed_ns)
{
	const Gantry__Admin__TenantSet *config = t->config;

	*row = (struct row){ .name = config ? config->name : (char *)"",
			     .sessions = t->sessions,
			     .weight = config && config->weight ? config->weight->value : 0,
			     .mem_used = t->mem_used,
			     .mem_bytes = config && config->mem_bytes ? config->mem_bytes->value
								      : 0 };
	for (size_t i = 0; i < before->tenants->tenants->n_tenants; i++) {
		const Gantry__Admin__Tenant *old = before->tenants->tenants->tenants[i];

		if (!old->config || strcmp(old->config->name, row->name) != 0)
			continue;
		row->busy_percent = rounded(rate(old->device_ns, t->device_ns, elapsed_ns) / 1e7);
		row->tasks_per_s =
			rounded(rate(old->tasks_finished, t->tasks_finished, elapsed_ns));
	}
}

static void session_row(struct row *row, const Gantry__Admin__Session *s, const struct look *before,
			uint64_t elapsed_ns)
{
	*row = (struct row){ .name = s->tenant,
			     .state = s->state,
			     .program = s->program,
			     .session_id = s->session_id,
			     .mem_used = s->resident_used };
	for (size_t i = 0; i < before->sessions->sessions->n_sessions; i++) {
		const Gantry__Admin__Session *old = before->sessions->sessions->sessions[i];

		if (old->session_id != s->session_id)
			continue;
		row->busy_percent = rounded(rate(old->device_ns, s->device_ns, elapsed_ns) / 1e7);
		row->tasks_per_s =
			rounded(rate(old->tasks_finished, s->tasks_finished, elapsed_ns));
	}
}

static int busier_first(const void *a, const void *b)
{
	const struct row *left = a, *right = b;

	if (left->busy_percent != right->busy_percent)
		return left->busy_percent < right->busy_percent ? 1 : -1;
	return left->session_id > right->session_id   ? 1
	       : left->session_id < right->session_id ? -1
						      : 0;
}

/* --- pictures --- */

struct picture {
	double elapsed_s;
	struct rows devices, tenants, sessions;
};

static void picture_fini(struct picture *picture)
{
	rows_fini(&picture->devices);
	rows_fini(&picture->tenants);
	rows_fini(&picture->sessions);
}

static int picture_make(struct picture *picture, const struct look *before,
			const struct look *after)
{
	uint64_t elapsed_ns = after->now_ns - before->now_ns;
	double total = 0;

	*picture = (struct picture){ .elapsed_s = (double)elapsed_ns / 1e9 };
	if (rows_init(&picture->devices, after->devices->devices->n_devices) < 0 ||
	    rows_init(&picture->tenants, after->tenants->tenants->n_tenants) < 0 ||
	    rows_init(&picture->sessions, after->sessions->sessions->n_sessions) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < picture->devices.n; i++)
		device_row(&picture->devices.list[i], after->devices->devices->devices[i], before,
			   elapsed_ns);
	for (size_t i = 0; i < picture->tenants.n; i++) {
		tenant_row(&picture->tenants.list[i], after->tenants->tenants->tenants[i], before,
			   elapsed_ns);
		total += picture->tenants.list[i].busy_percent;
	}
	for (size_t i = 0; i < picture->tenants.n && total > 0; i++)
		picture->tenants.list[i].share_percent =
			rounded(picture->tenants.list[i].busy_percent * 100 / total);
	for (size_t i = 0; i < picture->sessions.n; i++)
		session_row(&picture->sessions.list[i], after->sessions->sessions->sessions[i],
			    before, elapsed_ns);
	qsort(picture->sessions.list, picture->sessions.n, sizeof(struct row), busier_first);
	return 0;
}

static int picture_json(struct gantry_ctl *ctl, const struct picture *picture, bool line)
{
	json_object *object = gantry_ctl_json_new();

	json_object_object_add(object, "elapsed_s", json_object_new_double(picture->elapsed_s));
	json_object_object_add(object, "devices",
			       gantry_print_json_array(&device_fields, picture->devices.pointers,
						       picture->devices.n));
	json_object_object_add(object, "tenants",
			       gantry_print_json_array(&tenant_fields, picture->tenants.pointers,
						       picture->tenants.n));
	json_object_object_add(object, "sessions",
			       gantry_print_json_array(&session_fields, picture->sessions.pointers,
						       picture->sessions.n));
	return line ? gantry_ctl_json_line(ctl, object) : gantry_ctl_json_print(ctl, object);
}

static int picture_text(struct gantry_ctl *ctl, const struct picture *picture, FILE *out)
{
	size_t shown = picture->sessions.n < SESSIONS_SHOWN ? picture->sessions.n : SESSIONS_SHOWN;
	time_t now = time(NULL);
	char clock[16] = "";
	struct tm tm;
	int r;

	if (localtime_r(&now, &tm))
		(void)strftime(clock, sizeof(clock), "%H:%M:%S", &tm); /* fits */
	fprintf(out, "gantry %s   %s   %zu devices, %zu tenants, %zu sessions   over %.1f s\n\n",
		GANTRY_VERSION, clock, picture->devices.n, picture->tenants.n, picture->sessions.n,
		picture->elapsed_s);
	r = gantry_print_table(ctl, out, &device_fields, picture->devices.pointers,
			       picture->devices.n);
	fputc('\n', out);
	if (!r)
		r = gantry_print_table(ctl, out, &tenant_fields, picture->tenants.pointers,
				       picture->tenants.n);
	fputc('\n', out);
	if (!r)
		r = gantry_print_table(ctl, out, &session_fields, picture->sessions.pointers,
				       shown);
	if (shown < picture->sessions.n)
		fprintf(out, "and %zu more, less busy\n", picture->sessions.n - shown);
	return r;
}

/* --- the screen --- */

struct screen {
	bool on;
	bool keys; /* stdin gives single keys */
	struct termios saved;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	(void)number;
	interrupted = 1;
}

static void screen_open(struct screen *screen, bool wanted)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct termios raw;

	(void)sigaction(SIGINT, &action, NULL); /* these two cannot fail */
	(void)sigaction(SIGTERM, &action, NULL);
	if (!wanted)
		return;
	screen->on = true;
	if (tcgetattr(STDIN_FILENO, &screen->saved) == 0) {
		raw = screen->saved;
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		screen->keys = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
	}
	/* The alternate screen, no cursor. */
	fputs("\033[?1049h\033[?25l", stdout);
	(void)fflush(stdout); /* nothing else to do about a terminal that is gone */
}

static void screen_close(struct screen *screen)
{
	if (!screen->on)
		return;
	screen->on = false;
	fputs("\033[?25h\033[?1049l", stdout);
	(void)fflush(stdout);
	if (screen->keys)
		(void)tcsetattr(STDIN_FILENO, TCSANOW, &screen->saved);
}

/* Waits @ns, or until a key or a signal says to end: then true. */
static bool wait_or_quit(const struct screen *screen, uint64_t ns)
{
	struct pollfd pfd = { .fd = screen->keys ? STDIN_FILENO : -1, .events = POLLIN };
	uint64_t deadline_ns = gantry_deadline_ns((int64_t)ns);
	sigset_t block, old;
	bool quit = false;

	/* A signal counts also when it comes just before the wait. */
	(void)sigemptyset(&block);
	(void)sigaddset(&block, SIGINT);
	(void)sigaddset(&block, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &block, &old);
	while (!quit && !interrupted && !gantry_deadline_passed(deadline_ns)) {
		uint64_t left = gantry_deadline_left_ns(deadline_ns);
		struct timespec time = { (time_t)(left / GANTRY_NS_PER_S),
					 (long)(left % GANTRY_NS_PER_S) };
		char key;

		if (ppoll(&pfd, 1, &time, &old) > 0)
			quit = read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q';
	}
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	return quit || interrupted;
}

/* The whole picture is written at once, so that it does not flicker. */
static int show(struct gantry_ctl *ctl, const struct screen *screen, const struct picture *picture,
		bool once)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	FILE *out;
	int r;

	if (ctl->json)
		return picture_json(ctl, picture, !once);
	out = open_memstream(&text, &len);
	if (!out)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "no memory");
	r = picture_text(ctl, picture, out);
	fclose(out);
	if (r)
		return r;
	if (screen->on)
		fputs("\033[H\033[J", ctl->out);
	fwrite(text, 1, len, ctl->out);
	if (screen->on)
		fputs("\nq ends\n", ctl->out);
	else if (!once)
		fputc('\n', ctl->out);
	(void)fflush(ctl->out); /* main() checks at the end */
	return 0;
}

static int watch(struct gantry_ctl *ctl, const struct screen *screen, uint64_t interval_ns,
		 uint64_t count)
{
	struct look before = { 0 }, after = { 0 };
	int r = look_take(ctl, &before);

	for (uint64_t i = 0; !r && i < count && !wait_or_quit(screen, interval_ns); i++) {
		struct picture picture;

		r = look_take(ctl, &after);
		if (!r && picture_make(&picture, &before, &after) < 0)
			r = gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "no memory");
		else if (!r)
			r = show(ctl, screen, &picture, count == 1);
		if (after.sessions)
			picture_fini(&picture);
		look_fini(&before);
		before = after;
		after = (struct look){ 0 };
	}
	look_fini(&before);
	look_fini(&after);
	return r;
}

int gantry_ctl_top(struct gantry_ctl *ctl)
{
	const char *interval = gantry_ctl_option(ctl, "interval"),
		   *number = gantry_ctl_option(ctl, "count");
	bool once = gantry_ctl_option(ctl, "once") != NULL;
	uint64_t interval_ns = GANTRY_NS_PER_S, count = once ? 1 : UINT64_MAX;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct screen screen = { 0 };
	int r;

	if (interval &&
	    (gantry_duration_parse(interval, &interval_ns, &err) < 0 ||
	     interval_ns < 10 * GANTRY_NS_PER_MS || interval_ns > 3600 * GANTRY_NS_PER_S))
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "--interval %s: write it as 500ms or 2s, from 10ms to 1h",
				       interval);
	if (number && gantry_u64_parse(number, 1, UINT64_MAX, &count, &err) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE, "--count %s: %s", number, err.text);
	/* An agent that is not there is said on the ordinary screen. */
	r = gantry_ctl_connect(ctl);
	if (r)
		return r;
	screen_open(&screen, !once && !ctl->json && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO));
	r = watch(ctl, &screen, interval_ns, count);
	screen_close(&screen);
	return r;
}
