/* SPDX-License-Identifier: Apache-2.0 */
/* The board's thread: it alone calls the driver and the manager of bitstreams, and runs what is at the heads of streams. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "devices/fpga/fpga.h"

#define WAIT_NS 100000u /* for a unit to end, where new commands are seen only after that */
#define MAX_IDLE_NS \
	10000000u /* between looks at what may be loaded, and at who is not wanted any more */

/* What the streams want, as seen under the lock. */
struct round {
	uint32_t nready;
	struct gantry_stream
		*ready[GANTRY_FPGA_MAX_STREAMS]; /* in the order in which they are served */
	uint32_t ntasks[GANTRY_BOARD_MAX_KERNELS];
	uint32_t nheads[GANTRY_BOARD_MAX_KERNELS];
};

static struct gantry_fpga_slot *head_of(struct gantry_stream *stream)
{
	return &stream->slots[stream->finished % GANTRY_FPGA_DEPTH];
}

/* The more urgent first, then who had no turn for longest. */
static int in_order(const void *a, const void *b)
{
	const struct gantry_stream *x = *(struct gantry_stream *const *)a,
				   *y = *(struct gantry_stream *const *)b;

	if (x->priority != y->priority)
		return x->priority > y->priority ? -1 : 1;
	if (x->served != y->served)
		return x->served < y->served ? -1 : 1;
	return x->made < y->made ? -1 : x->made > y->made;
}

static void collect_locked(struct gantry_dev *dev, struct round *round)
{
	round->nready = 0;
	memset(round->ntasks, 0, sizeof(round->ntasks));
	memset(round->nheads, 0, sizeof(round->nheads));
	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream) {
		uint32_t first = stream->finished + stream->running;

		if (!stream->running && first != stream->submitted)
			round->ready[round->nready++] = stream;
		for (uint32_t at = first; at != stream->submitted; at++) {
			const struct gantry_cmd *cmd = &stream->slots[at % GANTRY_FPGA_DEPTH].cmd;

			if (cmd->kind != GANTRY_CMD_LAUNCH)
				continue;
			round->ntasks[cmd->launch.kernel->number]++;
			if (at == first && !stream->running)
				round->nheads[cmd->launch.kernel->number]++;
		}
	}
	if (round->nready > 1)
		qsort(round->ready, round->nready, sizeof(*round->ready), in_order);
}

/* ---- the end of the board ---- */

/* All of a stream's: with the board; or, where one launch has cost it, that one by its own fault and the others by none of theirs. */
static void end_lost_locked(struct gantry_stream *stream, const struct gantry_stream *endless)
{
	/* What is behind the launch at work may not have begun, and nothing of it has come out. */
	stream->running = stream->running > 0;
	while (stream->finished != stream->submitted)
		if (!endless)
			gantry_fpga_finish_locked(stream, GANTRY_E_DEVICE_LOST, GANTRY_BLAST_DEVICE,
						  0);
		else
			gantry_fpga_finish_locked(stream,
						  !stream->running    ? GANTRY_E_INTERRUPTED
						  : stream == endless ? GANTRY_E_DEADLINE
								      : GANTRY_E_DEVICE_FAULT,
						  GANTRY_BLAST_CONTEXT, 0);
}

/*
 * Everything that was submitted ends at once, and submit() refuses from now on. @endless: whose launch is the reason, for it does not end, of
 * which poll() tells first; NULL: the board is gone.
 */
static void lose(struct gantry_dev *dev, struct gantry_stream *endless)
{
	const struct gantry_device_host *host = dev->host;

	/* With their results, where the board may still be writing: they stay for as long as the process does. */
	memset(dev->launches, 0, sizeof(dev->launches));
	dev->nrunning = 0;
	(void)pthread_mutex_lock(&dev->lock);
	dev->lost = true;
	dev->endless = endless != NULL;
	if (endless) {
		gantry_list_remove(&endless->link);
		gantry_list_push_front(&dev->streams, &endless->link);
	}
	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream)
		end_lost_locked(stream, endless);
	(void)pthread_mutex_unlock(&dev->lock);
	host->wake(host->cookie);
}

/* ---- changes ---- */

static void report(struct gantry_dev *dev, const struct gantry_board_action *action,
		   const struct gantry_err *why)
{
	const char *name = dev->bitstreams[action->image].manifest->name;

	(void)pthread_mutex_lock(&dev->lock);
	dev->ngiven_up++;
	(void)gantry_err_set(&dev->last, -EIO,
			     "bitstream %s did not load at %u in %u tries and rests: %s", name,
			     action->place, action->ntries, why->text);
	(void)pthread_mutex_unlock(&dev->lock);
}

/* Whether what is kept in the board's memory is there still once the image is loaded. */
static bool keeps_memory(const struct gantry_dev *dev, const struct gantry_board_action *action)
{
	return dev->bitstreams[action->image].manifest->keeps_memory &&
	       action->place != GANTRY_BOARD_WHOLE && dev->info.nregions > 1;
}

static int load(struct gantry_dev *dev, const struct gantry_board_action *action,
		struct gantry_err *err)
{
	struct gantry_fpga_probe probe = { .piece = NULL };
	int r, lost;

	if (keeps_memory(dev, action))
		gantry_fpga_probe_begin(dev, &probe);
	else
		gantry_fpga_pieces_forget(dev);
	r = gantry_fpga_load(dev, action->image, action->place, err);
	lost = gantry_fpga_probe_end(dev, &probe);
	if (r == 0 && lost < 0)
		r = gantry_err_set(
			err, lost,
			"its manifest says that the board's memory is kept, and loading it loses that");
	if (r < 0)
		gantry_fpga_pieces_forget(dev);
	return r;
}

/* Host memory has everything between launches: there is nothing to save. -ENODEV: the board is lost. */
static int change(struct gantry_dev *dev, bool *ret_changed)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_board_action action;

	while ((action = gantry_board_step(dev->board, gantry_now_ns())).what !=
	       GANTRY_BOARD_NOTHING) {
		int r = 0;

		*ret_changed = true;
		if (action.what == GANTRY_BOARD_REPORT) {
			report(dev, &action, &err);
			continue;
		}
		if (action.what == GANTRY_BOARD_LOAD)
			r = load(dev, &action, &err);
		if (r == -ENODEV)
			return r;
		gantry_board_did(dev->board, r, gantry_now_ns());
	}
	return 0;
}

/* ---- commands ---- */

static void move(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	uint64_t began_ns = gantry_now_ns();

	gantry_hostmem_move(cmd);
	gantry_fpga_finish(stream, GANTRY_OK, GANTRY_BLAST_NONE, gantry_now_ns() - began_ns);
}

struct gantry_fpga_launch *gantry_fpga_unused_launch(struct gantry_dev *dev)
{
	for (uint32_t i = 0; i < GANTRY_FPGA_MAX_RUNNING; i++)
		if (!dev->launches[i].stream)
			return &dev->launches[i];
	return NULL;
}

/* 0: it is on the board. 1: not now. A status: it has failed. -ENODEV as -errno is told by @ret_lost. */
static int begin(struct gantry_dev *dev, struct gantry_stream *stream,
		 const struct gantry_cmd_launch *cmd, bool *ret_lost)
{
	struct gantry_fpga_launch *entry = gantry_fpga_unused_launch(dev);
	struct gantry_fpga_launch launch = { .stream = stream };
	uint64_t bytes;
	int r;

	if (!entry)
		return 1;
	if (gantry_fpga_bytes_of(dev, cmd, &bytes) < 0 || bytes > dev->info.mem_bytes)
		return GANTRY_E_NO_MEMORY;
	if (!gantry_fpga_has_room(dev, bytes))
		return 1; /* while others run */
	launch.began_ns = gantry_now_ns();
	r = gantry_board_begin(dev->board, cmd->kernel->number, launch.began_ns, &launch.unit);
	if (r < 0)
		return r == -EAGAIN ? 1 : GANTRY_E_IMAGE;
	r = gantry_fpga_stage_in(dev, &launch, cmd);
	if (r < 0) {
		gantry_board_end(dev->board, &launch.unit, 0, gantry_now_ns());
		*ret_lost = r == -ENODEV;
		return GANTRY_E_DEVICE_FAULT;
	}
	dev->driver->write(dev->handle, gantry_fpga_region_of(launch.unit.place),
			   gantry_fpga_window_of(dev, &launch.unit) + GANTRY_BOARD_CONTROL,
			   GANTRY_BOARD_START);
	*entry = launch;
	dev->nrunning++;
	stream->running = 1;
	return 0;
}

/* Returns whether anything came of it. */
static bool serve(struct gantry_dev *dev, struct gantry_stream *stream, bool *ret_lost)
{
	const struct gantry_cmd *cmd = &head_of(stream)->cmd;
	int r;

	if (dev->host->cancelled(dev->host->cookie, cmd->tag)) {
		gantry_fpga_finish(stream, GANTRY_E_CANCELLED, GANTRY_BLAST_CMD, 0);
		return true;
	}
	if (cmd->kind != GANTRY_CMD_LAUNCH) {
		stream->served = ++dev->turn;
		move(stream, cmd);
		return true;
	}
	r = begin(dev, stream, &cmd->launch, ret_lost);
	if (r == 1 || *ret_lost)
		return false;
	stream->served = ++dev->turn;
	if (r < 0)
		gantry_fpga_finish(stream, r, GANTRY_BLAST_CMD, 0);
	return true;
}

static uint64_t device_ns_of(const struct gantry_dev *dev, uint64_t cycles, uint64_t wall_ns)
{
	if (!dev->info.clock_hz)
		return wall_ns;
	return (uint64_t)((double)cycles * 1e9 / (double)dev->info.clock_hz);
}

/* Its unit is the next one's, which the board has begun; or nobody's. */
static void leave_unit(struct gantry_dev *dev, struct gantry_fpga_launch *launch, bool good,
		       uint64_t now_ns)
{
	struct gantry_fpga_launch *next = launch->next;
	uint64_t run_ns = good ? now_ns - launch->began_ns : 0;

	if (next) {
		next->waits = false;
		next->spoilt = !good;
		next->began_ns = now_ns;
		gantry_board_pass_on(dev->board, &launch->unit, run_ns, now_ns);
	} else {
		gantry_board_end(dev->board, &launch->unit, run_ns, now_ns);
	}
	free(launch->results);
	*launch = (struct gantry_fpga_launch){ .stream = NULL };
	dev->nrunning--;
}

/* The launch has ended; -ENODEV: with the board. */
static int end(struct gantry_dev *dev, struct gantry_fpga_launch *launch, uint64_t control)
{
	uint32_t region = gantry_fpga_region_of(launch->unit.place);
	uint32_t window = gantry_fpga_window_of(dev, &launch->unit);
	struct gantry_stream *stream = launch->stream;
	const struct gantry_cmd_launch *cmd = &head_of(stream)->cmd.launch;
	uint64_t now_ns = gantry_now_ns(), wall_ns = now_ns - launch->began_ns, cycles;
	bool good;
	int r = 0, status = GANTRY_OK;

	cycles = dev->driver->read(dev->handle, region, window + GANTRY_BOARD_CYCLES);
	dev->driver->write(dev->handle, region, window + GANTRY_BOARD_CONTROL, GANTRY_BOARD_DONE);
	if (control & GANTRY_BOARD_REFUSED)
		status = GANTRY_E_KERNEL;
	else if (control & GANTRY_BOARD_FAILED)
		status = GANTRY_E_DEVICE_FAULT;
	else if (dev->host->cancelled(dev->host->cookie, head_of(stream)->cmd.tag))
		status = GANTRY_E_CANCELLED; /* nobody wants what it wrote */
	else
		r = gantry_fpga_stage_out(dev, launch, cmd);
	if (r == -ENODEV)
		return r;
	if (r < 0)
		status = GANTRY_E_DEVICE_FAULT;
	good = status == GANTRY_OK;
	gantry_fpga_stage_end(dev, launch, cmd, good);
	leave_unit(dev, launch, good, now_ns);
	gantry_fpga_finish(stream, status, good ? GANTRY_BLAST_NONE : GANTRY_BLAST_CMD,
			   device_ns_of(dev, cycles, wall_ns));
	return 0;
}

/* What it worked on was not what it should be: it is as if it had not begun. */
static int end_spoilt(struct gantry_dev *dev, struct gantry_fpga_launch *launch)
{
	uint32_t region = gantry_fpga_region_of(launch->unit.place);
	uint32_t window = gantry_fpga_window_of(dev, &launch->unit);
	struct gantry_stream *stream = launch->stream;
	uint64_t now_ns = gantry_now_ns(), cycles;

	cycles = dev->driver->read(dev->handle, region, window + GANTRY_BOARD_CYCLES);
	dev->driver->write(dev->handle, region, window + GANTRY_BOARD_CONTROL, GANTRY_BOARD_DONE);
	/* The board's time all the same, which its tenant has had. */
	stream->spoilt_ns += device_ns_of(dev, cycles, now_ns - launch->began_ns);
	gantry_fpga_stage_end(dev, launch, &head_of(stream)->cmd.launch, false);
	leave_unit(dev, launch, false, now_ns);
	stream->running = 0;
	return 0;
}

/*
 * A launch cannot be taken off its board. One that nobody waits for any more, or that takes longer than any may, and that does not end
 * either, would keep its region from everybody for ever: then the board is opened anew.
 */
static bool is_stuck(const struct gantry_dev *dev, struct gantry_fpga_launch *launch)
{
	uint64_t now_ns = gantry_now_ns();

	if (dev->longest_ns && now_ns - launch->began_ns > dev->longest_ns)
		return true;
	if (!dev->host->cancelled(dev->host->cookie, head_of(launch->stream)->cmd.tag))
		return false;
	if (launch->unwanted_ns == 0)
		launch->unwanted_ns = now_ns;
	return now_ns - launch->unwanted_ns > dev->stuck_ns;
}

/* How long there is nothing else to do, unless somebody wakes. */
static uint64_t idle_ns(const struct gantry_dev *dev)
{
	uint64_t due_ns = gantry_board_due_ns(dev->board), now_ns = gantry_now_ns();

	return due_ns > now_ns ? GANTRY_MIN(due_ns - now_ns, (uint64_t)MAX_IDLE_NS) : 0;
}

void gantry_fpga_wake(struct gantry_dev *dev)
{
	(void)pthread_cond_signal(&dev->work);
	if (dev->driver->wake)
		dev->driver->wake(dev->handle);
}

/* @more: what was done may have made way for the next of its stream, of which nobody tells. */
static uint64_t wait_ns(const struct gantry_dev *dev, bool more)
{
	if (!dev->driver->wake)
		return WAIT_NS;
	return more ? 0 : GANTRY_MAX(idle_ns(dev), (uint64_t)WAIT_NS);
}

/* One look at all that run; -ETIME: *@ret_endless does not end. */
static int reap_once(struct gantry_dev *dev, struct gantry_stream **ret_endless)
{
	int count = 0, r = 0;

	for (uint32_t i = 0; i < GANTRY_FPGA_MAX_RUNNING && r >= 0; i++) {
		struct gantry_fpga_launch *launch = &dev->launches[i];
		uint64_t control;

		if (!launch->stream || launch->waits)
			continue;
		control = dev->driver->read(dev->handle, gantry_fpga_region_of(launch->unit.place),
					    gantry_fpga_window_of(dev, &launch->unit) +
						    GANTRY_BOARD_CONTROL);
		if (!(control & GANTRY_BOARD_DONE)) {
			if (!is_stuck(dev, launch))
				continue;
			*ret_endless = launch->stream;
			return -ETIME;
		}
		r = launch->spoilt ? end_spoilt(dev, launch) : end(dev, launch, control);
		count++;
	}
	return r < 0 ? -ENODEV : count;
}

/* Launches that have ended; a count, or -ENODEV. -ETIME: the one of *@ret_endless does not. */
static int reap(struct gantry_dev *dev, bool more, struct gantry_stream **ret_endless)
{
	int count = 0, r;

	if (dev->nrunning == 0)
		return 0;
	if (dev->driver->wait(dev->handle, wait_ns(dev, more)) < 0)
		return -ENODEV;
	/* What is behind one that has ended may have, too; that was told, once, together. */
	do {
		r = reap_once(dev, ret_endless);
		count += r;
	} while (r > 0);
	return r < 0 ? r : count;
}

/* ---- the loop ---- */

/* One pass over all there is to do; 1: something came of it, 0: nothing; errors as reap()'s. */
static int pass(struct gantry_dev *dev, const struct round *round,
		struct gantry_stream **ret_endless)
{
	bool progress = false, lost = false;
	int r;

	for (uint32_t k = 0; k < GANTRY_BOARD_MAX_KERNELS; k++)
		gantry_board_demand(dev->board, k, round->ntasks[k], round->nheads[k],
				    gantry_now_ns());
	r = change(dev, &progress);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < round->nready && !lost; i++)
		progress = serve(dev, round->ready[i], &lost) || progress;
	if (!lost)
		gantry_fpga_follow(dev);
	r = lost ? -ENODEV : reap(dev, progress, ret_endless);
	return r < 0 ? r : progress || r > 0;
}

/* Until something is submitted, or it is time to look at what may be loaded. */
static void sleep_locked(struct gantry_dev *dev, bool waiting)
{
	struct timespec until;

	if (!waiting) {
		(void)pthread_cond_wait(&dev->work, &dev->lock);
		return;
	}
	(void)clock_gettime(CLOCK_MONOTONIC, &until); /* cannot fail for this clock */
	until.tv_nsec += (long)idle_ns(dev);
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	(void)pthread_cond_timedwait(&dev->work, &dev->lock, &until);
}

void *gantry_fpga_work(void *arg)
{
	struct gantry_dev *dev = arg;
	static _Thread_local struct round round;
	struct gantry_stream *endless;
	int r = 0;

	(void)pthread_mutex_lock(&dev->lock);
	while (!dev->stopping) {
		gantry_fpga_adopt_locked(dev);
		collect_locked(dev, &round);
		/* Without progress, and nothing at work whose end driver->wait() would wait for. */
		if (dev->lost || (dev->nrunning == 0 && (round.nready == 0 || r == 0))) {
			bool waiting = !dev->lost && round.nready > 0;

			r = 1;
			sleep_locked(dev, waiting);
			continue;
		}
		(void)pthread_mutex_unlock(&dev->lock);
		endless = NULL;
		r = pass(dev, &round, &endless);
		if (r < 0)
			lose(dev, endless);
		(void)pthread_mutex_lock(&dev->lock);
	}
	(void)pthread_mutex_unlock(&dev->lock);
	return NULL;
}
