/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log that a program asks its library for. The vendor's library is on the host, and so is its log, which is not the
 * guest's to see; this is the log of the stubs: what was called, and what came back. It goes to the program's function
 * or file, and where it gave neither, nowhere.
 *
 * Levels are the vendor's: 1 failures, 5 all calls; the others have nothing here. A mask has a bit for each.
 */
#include <pthread.h>

#include "base/atomic.h"
#include "guest-shim/cudalibs/call.h"

#define LEVEL_FAILED 1
#define LEVEL_CALLS  5
#define ALL_LEVELS   ((1 << LEVEL_CALLS) - 1)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

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
	gantry_call_logger *callback;
	char message[32];

	if (level == 0)
		return;
	(void)snprintf(message, sizeof(message), "returned %d", ret); /* fits */
	pthread_mutex_lock(&lock);
	callback = library->log.callback;
	if (library->log.file)
		(void)fprintf(library->log.file, "[%s][%d][%s] %s\n", library->name, level,
			      function, message);
	pthread_mutex_unlock(&lock);
	/* It may call the library. */
	if (callback)
		callback(level, function, message);
}
