/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/devtime.h"

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"

/* Expected of a kernel that never ran, and of any command besides its bytes. */
#define FIRST_ESTIMATE_NS 5000u
#define COPY_ESTIMATE_NS  1000u
/* A new sample counts an eighth. */
#define MEAN_SHIFT 3

#define LONG_NS 200000u
/* To an idle stream. Another process may have had the device: how long that takes to change is not the first command's. */
#define FIRST_LONG_NS 50000u
/* Two events make a copy some 4 us longer (H200). */
#define COPY_LONG_NS 1000000u

#define CALIBRATIONS	   16u
#define CALIBRATION_MAX_US 10u

bool gantry_devtime_calibrate(struct gantry_devtime *time,
			      bool (*write)(void *cookie, uint32_t number), void *cookie,
			      const uint32_t *word)
{
	uint64_t max = CALIBRATION_MAX_US * gantry_cycles_per_us();
	uint64_t best = max;

	for (uint32_t i = 1; i <= CALIBRATIONS; i++) {
		uint64_t start;

		if (!write(cookie, i))
			return false;
		start = gantry_cycles();
		while (gantry_load_acquire(word) != i && gantry_cycles() - start < 100 * max)
			gantry_cpu_relax();
		best = gantry_min_u64(best, gantry_cycles() - start);
	}
	time->idle_cycles = best == max ? 0 : best;
	return true;
}

/* ---- who is at work ---- */

static void advance(struct gantry_devtime *time)
{
	uint64_t now = gantry_cycles();

	if (time->nbusy)
		time->busy += (now - time->busy_at) / time->nbusy;
	time->busy_at = now;
}

void gantry_devtime_start(struct gantry_devtime_stream *time)
{
	advance(time->of);
	time->of->nbusy++;
	time->busy_from = time->of->busy;
	time->seen_from = time->of->busy_at;
	time->started_idle = true;
}

void gantry_devtime_stop(struct gantry_devtime_stream *time)
{
	time->of->nbusy--;
}

void gantry_devtime_pause(struct gantry_devtime_stream *time)
{
	advance(time->of);
	time->of->nbusy--;
}

/*
 * What the stream had of the device since it was last asked. *ret_part: of each nanosecond so much, as others had the
 * rest.
 */
static uint64_t take_ns(struct gantry_devtime_stream *time, double *ret_part)
{
	struct gantry_devtime *of = time->of;
	uint64_t cycles, seen;

	advance(of);
	cycles = of->busy - time->busy_from;
	seen = of->busy_at - time->seen_from;
	*ret_part = seen ? (double)cycles / (double)seen : 1;
	time->busy_from = of->busy;
	time->seen_from = of->busy_at;
	/* The way to the device and back is nobody's device time; behind other work it does not show. */
	if (time->started_idle)
		cycles = cycles > of->idle_cycles ? cycles - of->idle_cycles : 0;
	time->started_idle = false;
	return cycles * GANTRY_NS_PER_US / gantry_cycles_per_us();
}

/* ---- expectations ---- */

uint32_t gantry_devtime_of_kernel(uint32_t mean_ns)
{
	return mean_ns ? mean_ns : FIRST_ESTIMATE_NS;
}

uint32_t gantry_devtime_of_bytes(uint64_t len, uint32_t bytes_per_ns)
{
	return (uint32_t)gantry_min_u64(len / bytes_per_ns + COPY_ESTIMATE_NS, UINT32_MAX);
}

uint64_t gantry_devtime_oldest(struct gantry_devtime_stream *time, uint32_t from, uint32_t to)
{
	uint64_t sum = 0;

	for (uint32_t i = from; i != to; i++) {
		const struct gantry_devtime_cmd cmd = time->of->driver->cmd_at(time->stream, i);

		sum += cmd.estimate_ns;
		if (cmd.closes)
			break;
	}
	return sum;
}

void gantry_devtime_learn(uint32_t *mean_ns, uint64_t ns)
{
	uint32_t sample = (uint32_t)gantry_clamp_u64(ns, 1, UINT32_MAX);

	*mean_ns = *mean_ns ? *mean_ns - (*mean_ns >> MEAN_SHIFT) + (sample >> MEAN_SHIFT) : sample;
}

/* ---- events around batches ---- */

static uint32_t long_ns(bool copies, bool idle)
{
	if (copies)
		return COPY_LONG_NS;
	return idle ? FIRST_LONG_NS : LONG_NS;
}

static struct gantry_devtime_span *span_at(struct gantry_devtime_stream *time, uint32_t i)
{
	return &time->spans[i % GANTRY_DEVTIME_SPANS];
}

void gantry_devtime_open(struct gantry_devtime_stream *time, uint32_t position,
			 uint32_t estimate_ns, bool copies, bool idle)
{
	struct gantry_devtime_span *span = span_at(time, time->next);

	time->open = false;
	if (estimate_ns < long_ns(copies, idle) || time->next - time->first == GANTRY_DEVTIME_SPANS)
		return;
	span->from = position;
	time->open = time->of->driver->record(time->stream, &span->begin);
}

void gantry_devtime_close(struct gantry_devtime_stream *time, uint32_t position)
{
	struct gantry_devtime_span *span = span_at(time, time->next);

	if (!time->open)
		return;
	time->open = false;
	if (!time->of->driver->record(time->stream, &span->end))
		return; /* the batch has no time of its own, that is all */
	span->to = position;
	time->next++;
}

/* The next batch with a time of its own, of those that ended before command @end. */
static bool next_span(struct gantry_devtime_stream *time, uint32_t end,
		      struct gantry_devtime_span *ret_span, uint64_t *ret_ns)
{
	while (time->first != time->next) {
		const struct gantry_devtime_span *span = span_at(time, time->first);
		float ms;

		if ((int32_t)(span->to - end) > 0)
			return false;
		time->first++;
		if (!time->of->driver->elapsed(time->stream, span->begin, span->end, &ms))
			continue;
		*ret_span = *span;
		*ret_ns = (uint64_t)((double)ms * GANTRY_NS_PER_MS);
		return true;
	}
	return false;
}

void gantry_devtime_drop(struct gantry_devtime_stream *time)
{
	time->first = time->next;
	time->open = false;
}

void gantry_devtime_fini(struct gantry_devtime_stream *time)
{
	for (uint32_t i = 0; i < GANTRY_DEVTIME_SPANS; i++) {
		struct gantry_devtime_span *span = &time->spans[i];

		if (span->begin)
			time->of->driver->destroy(time->stream, span->begin);
		if (span->end)
			time->of->driver->destroy(time->stream, span->end);
	}
}

/* ---- sharing out ---- */

/* @ns among the commands from @from up to @end. */
static void share_out(struct gantry_devtime_stream *time, uint32_t from, uint32_t end, uint64_t ns)
{
	const struct gantry_devtime_driver *driver = time->of->driver;
	uint64_t sum = 0;

	for (uint32_t i = from; i != end; i++)
		sum += driver->cmd_at(time->stream, i).estimate_ns;
	if (sum == 0)
		return;
	for (uint32_t i = from; i != end; i++) {
		const struct gantry_devtime_cmd cmd = driver->cmd_at(time->stream, i);

		if (cmd.estimate_ns == 0)
			continue; /* it never reached the device */
		*cmd.device_ns =
			gantry_max_u64(GANTRY_DEVTIME_FLOOR_NS,
				       (uint64_t)((double)ns * cmd.estimate_ns / (double)sum));
		if (cmd.mean_ns)
			gantry_devtime_learn(cmd.mean_ns, *cmd.device_ns);
	}
}

/* From the device where it said so, the others what is left of what was seen. */
void gantry_devtime_account(struct gantry_devtime_stream *time, uint32_t from, uint32_t end)
{
	struct gantry_devtime_span span;
	double part;
	uint64_t seen_ns = take_ns(time, &part);
	uint64_t ns;

	while (next_span(time, end, &span, &ns)) {
		/* Device code of a guest can have the word say that a batch has ended in its middle. */
		if ((int32_t)(span.to - from) <= 0)
			continue;
		if ((int32_t)(span.from - from) < 0)
			span.from = from;
		ns = (uint64_t)((double)ns * part);
		/* Nothing lies before it mostly: that had its word, or was seen together with it. */
		share_out(time, from, span.from, seen_ns > ns ? seen_ns - ns : 0);
		share_out(time, span.from, span.to, ns);
		seen_ns = 0;
		from = span.to;
	}
	share_out(time, from, end, seen_ns);
}
