/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/marks.h"

#include "base/atomic.h"

/* Copies in are followed by a mark from so many bytes on, where something runs before them. */
#define IN_BYTES     (256u << 10)
#define MARK_ONLY_NS 1000000u

bool gantry_marks_want(bool from_host, bool to_host, uint64_t len)
{
	if (from_host)
		return !to_host && len >= IN_BYTES;
	return to_host;
}

bool gantry_marks_put(struct gantry_marks *marks, uint32_t submitted)
{
	uint32_t i = marks->next % GANTRY_MARKS;

	if (!marks->wanted || marks->next - marks->first == GANTRY_MARKS ||
	    !marks->driver->put(marks->stream, &marks->events[i]))
		return false;
	marks->at[i] = submitted;
	marks->next++;
	return true;
}

void gantry_marks_sent(struct gantry_marks *marks, bool unwritten)
{
	struct gantry_watch *watch = marks->watch;

	if (marks->unwritten == unwritten)
		return;
	marks->unwritten = unwritten;
	gantry_store_relaxed(&watch->nunwritten, watch->nunwritten + (unwritten ? 1u : -1u));
}

bool gantry_marks_need_word(uint64_t flying_ns)
{
	return flying_ns > MARK_ONLY_NS;
}

uint32_t gantry_marks_look(struct gantry_marks *marks, uint32_t finished)
{
	for (; marks->first != marks->next; marks->first++) {
		uint32_t i = marks->first % GANTRY_MARKS;

		if ((int32_t)(marks->at[i] - finished) <= 0)
			continue; /* a word has told it */
		if (marks->driver->look(marks->stream, marks->events[i]) != GANTRY_MARK_PASSED)
			break;
		finished = marks->at[i];
	}
	return finished;
}

void gantry_marks_seen(struct gantry_marks *marks, uint32_t place, uint32_t word, uint32_t finished,
		       bool all)
{
	if ((int32_t)(finished - marks->written) >= 0)
		word = marks->written;
	gantry_store_relaxed(&marks->watch->seen[place], word);
	if (all)
		gantry_marks_sent(marks, false);
}

void gantry_marks_drop(struct gantry_marks *marks)
{
	marks->first = marks->next;
	gantry_marks_sent(marks, false);
}

void gantry_marks_fini(struct gantry_marks *marks)
{
	for (uint32_t i = 0; i < GANTRY_MARKS; i++)
		if (marks->events[i])
			marks->driver->destroy(marks->stream, marks->events[i]);
}
