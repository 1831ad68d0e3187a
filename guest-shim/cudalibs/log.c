/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log that a program asks its library for. The vendor's library is on the host, and so is its log, which is not the
 * guest's to see; this is the log of the stubs: what was called, and what came back. It goes to the program's function
 * or file, or to its own streams where it says so, and where it gave none, nowhere.
 *
 * Levels are the vendor's: 1 failures, 5 all calls; the others have nothing here. A mask has a bit for each.
 */
#include <pthread.h>

#include "base/atomic.h"
#include "guest-shim/cudalibs/call.h"

#define LEVEL_FAILED 1
#define LEVEL_CALLS  5
#define ALL_LEVELS   ((1 << LEVEL_CALLS) - 1)
#define LINE_BYTES   256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The program's files may be slow, so no fork waits for them; a child has nobody who is writing there. */
static void in_child(void)
{
	(void)pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(NULL, NULL, in_child); /* or a child may hang */
}

static void let_go_locked(struct gantry_call_log *log)
{
	if (log->is_ours)
		(void)fclose(log->file); /* what could not be written is lost */
	log->file = NULL;
	log->is_ours = false;
}

void gantry_call_log_callback(struct gantry_call_library *library, gantry_call_logger *callback)
{
	pthread_mutex_lock(&lock);
	library->log.callback = callback;
	pthread_mutex_unlock(&lock);
}

void gantry_call_log_file(struct gantry_call_library *library, FILE *file)
{
	pthread_mutex_lock(&lock);
	let_go_locked(&library->log);
	library->log.file = file;
	pthread_mutex_unlock(&lock);
}

bool gantry_call_log_open(struct gantry_call_library *library, const char *path)
{
	FILE *file = path ? fopen(path, "we") : NULL;

	if (!file)
		return false;
	gantry_call_log_file(library, file);
	pthread_mutex_lock(&lock);
	library->log.is_ours = library->log.file == file;
	pthread_mutex_unlock(&lock);
	return true;
}

bool gantry_call_log_mask(struct gantry_call_library *library, int mask)
{
	if (mask < 0 || mask > ALL_LEVELS)
		return false;
	pthread_mutex_lock(&lock);
	if (!library->log.has_ended)
		gantry_store_relaxed(&library->log.mask, (uint32_t)mask);
	pthread_mutex_unlock(&lock);
	return true;
}

void gantry_call_log_lines(struct gantry_call_library *library, gantry_call_line_logger *lines)
{
	pthread_mutex_lock(&lock);
	library->log.lines = lines;
	pthread_mutex_unlock(&lock);
}

gantry_call_line_logger *gantry_call_log_get_lines(struct gantry_call_library *library)
{
	gantry_call_line_logger *lines;

	pthread_mutex_lock(&lock);
	lines = library->log.lines;
	pthread_mutex_unlock(&lock);
	return lines;
}

bool gantry_call_log_configure(struct gantry_call_library *library, int on, int to_out,
			       int to_error, const char *path)
{
	if (path && !gantry_call_log_open(library, path))
		return false;
	if (!path)
		gantry_call_log_file(library, NULL);
	pthread_mutex_lock(&lock);
	library->log.to_out = to_out != 0;
	library->log.to_error = to_error != 0;
	pthread_mutex_unlock(&lock);
	return gantry_call_log_mask(library, on ? ALL_LEVELS : 0);
}

bool gantry_call_log_level(struct gantry_call_library *library, int level)
{
	return level >= 0 && level <= LEVEL_CALLS &&
	       gantry_call_log_mask(library, (1 << level) - 1);
}

void gantry_call_log_end(struct gantry_call_library *library)
{
	pthread_mutex_lock(&lock);
	library->log.has_ended = true;
	gantry_store_relaxed(&library->log.mask, 0u);
	let_go_locked(&library->log);
	pthread_mutex_unlock(&lock);
}

void gantry_call_log(struct gantry_call_library *library, const char *function, int32_t ret)
{
	uint32_t mask = gantry_load_relaxed(&library->log.mask);
	int level = ret != 0 && (mask & 1u << (LEVEL_FAILED - 1)) ? LEVEL_FAILED
		    : mask & 1u << (LEVEL_CALLS - 1)		  ? LEVEL_CALLS
								  : 0;
	gantry_call_line_logger *lines;
	gantry_call_logger *callback;
	FILE *places[3];
	char message[32], line[LINE_BYTES];

	if (level == 0)
		return;
	(void)snprintf(message, sizeof(message), "returned %d", ret); /* fits */
	/* Names of functions are shorter. */
	(void)snprintf(line, sizeof(line), "[%s][%d][%s] %s\n", library->name, level, function,
		       message);
	pthread_mutex_lock(&lock);
	callback = library->log.callback;
	lines = library->log.lines;
	places[0] = library->log.file;
	places[1] = library->log.to_out ? stdout : NULL;
	places[2] = library->log.to_error ? stderr : NULL;
	for (unsigned int i = 0; i < 3; i++)
		if (places[i])
			(void)fputs(line, places[i]);
	pthread_mutex_unlock(&lock);
	/* They may call the library. */
	if (callback)
		callback(level, function, message);
	if (lines)
		lines(line);
}
