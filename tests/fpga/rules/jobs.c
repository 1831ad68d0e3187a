/* SPDX-License-Identifier: Apache-2.0 */
/* Launches in time: when each begins and ends, by the units of its kernel, whatever the device below took to compute it. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fpga/rules/rules.h"

#define NAMES_BYTES 4096u
#define NS_PER_S    1000000000u

/*
 * The command that is seen as the launch is a marker behind the real one and behind a user event. The user event is set when the
 * launch's time is over.
 */
struct job {
	struct job *next;	/* of those that wait for a unit, or run */
	struct job *next_known; /* of all */
	const cl_icd_dispatch *below;
	struct rules_kernel *kernel;
	struct board_file *board;
	cl_event user;
	cl_event seen;
	bool fails;
	bool done, forgotten;
	void(CL_CALLBACK *notify)(
		cl_event, cl_int,
		void *); /* told by us: PoCL tells nobody of a marker that fails */
	void *notify_user;
	uint64_t start_ns, end_ns;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static struct job *running; /* by their ends */
static struct job *known;
static bool started;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- rules ---- */

static uint32_t units_of(const struct rules_image *image)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < image->nkernels; i++)
		n += image->kernels[i].units;
	return n;
}

/* "NAME_uN_tN" or "NAME_uN_tN_sN"; a name may have underscores, so it is read from its end. */
static bool parse_rule(const char *text, struct rules_kernel *kernel, unsigned int *ret_slower)
{
	unsigned int units, micros, slower;
	const char *at = NULL;

	for (const char *u = text; (u = strstr(u, "_u")); u++)
		at = u;
	if (!at || (size_t)(at - text) >= sizeof(kernel->name))
		return false;
	*ret_slower = UINT32_MAX;
	if (sscanf(at, "_u%u_t%u_s%u", &units, &micros, &slower) == 3)
		*ret_slower = slower;
	else if (sscanf(at, "_u%u_t%u", &units, &micros) != 2)
		return false;
	memset(kernel, 0, sizeof(*kernel));
	memcpy(kernel->name, text, (size_t)(at - text));
	kernel->units = units ? units : 1;
	kernel->run_ns = micros * 1000ull;
	return true;
}

static unsigned int slower_of(uint32_t nunits)
{
	return nunits < 2 ? 0 : nunits == 2 ? 17 : nunits == 3 ? 35 : 52;
}

static void read_rules(char *name, struct rules_image *image, unsigned int *slower)
{
	char *next;

	for (char *at = strstr(name, "__"); at && image->nkernels < RULES_MAX_KERNELS; at = next) {
		at += 2;
		next = strstr(at, "__");
		if (next)
			*next = '\0';
		image->nkernels += parse_rule(at, &image->kernels[image->nkernels],
					      &slower[image->nkernels]);
		if (next)
			*next = '_';
	}
}

void rules_image_read(const cl_icd_dispatch *below, cl_program program, struct rules_image *image)
{
	unsigned int slower[RULES_MAX_KERNELS];
	char names[NAMES_BYTES] = "", *save = NULL;

	if (image->known || below->clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES,
						    sizeof(names) - 1, names, NULL) != CL_SUCCESS)
		return;
	image->known = true;
	for (char *name = strtok_r(names, ";", &save); name; name = strtok_r(NULL, ";", &save))
		if (strncmp(name, "rules__", 7) == 0)
			read_rules(name, image, slower);
	for (uint32_t i = 0; i < image->nkernels; i++) {
		unsigned int percent = slower[i] == UINT32_MAX ? slower_of(units_of(image))
							       : slower[i];

		image->kernels[i].run_ns += image->kernels[i].run_ns * percent / 100;
	}
}

/* ---- units, under the lock ---- */

static void begin(struct job *job, uint64_t at_ns)
{
	struct job **to = &running;

	job->kernel->busy++;
	job->start_ns = at_ns;
	job->end_ns = at_ns + job->kernel->run_ns;
	job->board->nrunning++;
	if (job->board->nrunning > job->board->most_running)
		job->board->most_running = job->board->nrunning;
	while (*to && (*to)->end_ns <= job->end_ns)
		to = &(*to)->next;
	job->next = *to;
	*to = job;
	pthread_cond_broadcast(&changed);
}

/* The real work is done, and what is before it in its queue. */
static void ready(struct job *job)
{
	struct rules_kernel *kernel = job->kernel;

	job->next = NULL;
	if (kernel->busy < kernel->units) {
		begin(job, now_ns());
		return;
	}
	if (kernel->last)
		kernel->last->next = job;
	else
		kernel->first = job;
	kernel->last = job;
}

static void CL_CALLBACK on_real(cl_event event, cl_int status, void *user)
{
	struct job *job = user;

	(void)event;
	pthread_mutex_lock(&lock);
	job->fails = job->fails || status < 0;
	ready(job);
	pthread_mutex_unlock(&lock);
}

static void drop(struct job *job)
{
	struct job **at = &known;

	while (*at != job)
		at = &(*at)->next_known;
	*at = job->next_known;
	free(job);
}

/* Its unit is the next one's, from the same moment on. Its end is told without the lock. */
static void end(struct job *job)
{
	struct rules_kernel *kernel = job->kernel;
	const cl_icd_dispatch *below = job->below;
	struct job *next = kernel->first;
	struct job ended;

	kernel->busy--;
	job->board->nrunning--;
	job->fails = job->fails || job->board->gone;
	job->done = true;
	if (next) {
		kernel->first = next->next;
		if (!kernel->first)
			kernel->last = NULL;
		begin(next, job->end_ns);
	}
	ended = *job;
	if (job->forgotten)
		drop(job);
	pthread_mutex_unlock(&lock);
	/* What is behind it in its queue goes on, as on a board. */
	below->clSetUserEventStatus(ended.user, CL_COMPLETE);
	below->clReleaseEvent(ended.user);
	if (ended.notify)
		ended.notify(ended.seen, ended.fails ? CL_OUT_OF_RESOURCES : CL_COMPLETE,
			     ended.notify_user);
	pthread_mutex_lock(&lock);
}

static void *tell_time(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	for (;;) {
		struct job *job = running;
		struct timespec until;

		if (!job) {
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		if (now_ns() >= job->end_ns) {
			running = job->next;
			end(job);
			continue;
		}
		until.tv_sec = (time_t)(job->end_ns / NS_PER_S);
		until.tv_nsec = (long)(job->end_ns % NS_PER_S);
		pthread_cond_timedwait(&changed, &lock, &until);
	}
	return NULL;
}

static bool start_clock(void)
{
	pthread_condattr_t attr;
	pthread_t thread;

	if (started)
		return true;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &attr);
	pthread_condattr_destroy(&attr);
	started = pthread_create(&thread, NULL, tell_time, NULL) == 0;
	if (started)
		pthread_detach(thread);
	return started;
}

static struct rules_kernel *find_kernel(struct rules_image *image, const char *name)
{
	for (uint32_t i = 0; i < image->nkernels; i++)
		if (strcmp(image->kernels[i].name, name) == 0)
			return &image->kernels[i];
	return NULL;
}

/* A kernel without a rule has one unit, and takes no longer than it does. */
static struct rules_kernel *need_kernel(struct rules_image *image, const char *name)
{
	struct rules_kernel *kernel = find_kernel(image, name);

	if (kernel || image->nkernels == RULES_MAX_KERNELS)
		return kernel;
	kernel = &image->kernels[image->nkernels++];
	memset(kernel, 0, sizeof(*kernel));
	snprintf(kernel->name, sizeof(kernel->name), "%s", name);
	kernel->units = 1;
	return kernel;
}

cl_int rules_job_start(const cl_icd_dispatch *below, cl_command_queue queue, cl_event real,
		       struct rules_image *image, const char *name, struct board_file *board,
		       cl_event *ret_event)
{
	struct job *job = calloc(1, sizeof(*job));
	cl_context context = NULL;
	cl_event both[2] = { real };
	cl_int result = CL_OUT_OF_HOST_MEMORY;

	below->clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(context), &context, NULL);
	if (job)
		job->user = below->clCreateUserEvent(context, &result);
	if (job && result == CL_SUCCESS) {
		both[1] = job->user;
		result = below->clEnqueueMarkerWithWaitList(queue, 2, both, &job->seen);
	}
	if (result != CL_SUCCESS) {
		free(job);
		below->clReleaseEvent(real);
		return result;
	}
	pthread_mutex_lock(&lock);
	job->below = below;
	job->board = board;
	job->kernel = need_kernel(image, name);
	board->nlaunches++;
	if (board->fail_launches > 0) {
		board->fail_launches--;
		job->fails = true;
	}
	job->next_known = known;
	known = job;
	job->forgotten = !ret_event;
	assert(job->kernel && start_clock());
	pthread_mutex_unlock(&lock);
	if (ret_event)
		*ret_event = job->seen;
	else
		below->clReleaseEvent(job->seen);
	/* From here the job may be gone at any time if nobody wants its event. */
	result = below->clSetEventCallback(real, CL_COMPLETE, on_real, job);
	below->clReleaseEvent(real);
	return result;
}

bool rules_job_times(cl_event event, uint64_t *ret_start_ns, uint64_t *ret_end_ns)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct job *job = known; job && !found; job = job->next_known) {
		if (job->seen != event || job->forgotten)
			continue;
		found = true;
		*ret_start_ns = job->start_ns;
		*ret_end_ns = job->end_ns;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

bool rules_job_watch(cl_event event, void(CL_CALLBACK *notify)(cl_event, cl_int, void *),
		     void *user)
{
	bool found = false, done = false, fails = false;

	pthread_mutex_lock(&lock);
	for (struct job *job = known; job && !found; job = job->next_known) {
		if (job->seen != event || job->forgotten)
			continue;
		found = true;
		done = job->done;
		fails = job->fails;
		job->notify = notify;
		job->notify_user = user;
	}
	pthread_mutex_unlock(&lock);
	if (done)
		notify(event, fails ? CL_OUT_OF_RESOURCES : CL_COMPLETE, user);
	return found;
}

void rules_job_forget(cl_event event)
{
	struct job *job;

	pthread_mutex_lock(&lock);
	for (job = known; job; job = job->next_known)
		if (job->seen == event && !job->forgotten)
			break;
	if (job && job->done)
		drop(job);
	else if (job)
		job->forgotten = true;
	pthread_mutex_unlock(&lock);
}

void rules_jobs_fail(void)
{
	pthread_mutex_lock(&lock);
	for (struct job *job = running; job; job = job->next)
		job->end_ns = 0;
	if (started)
		pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}
