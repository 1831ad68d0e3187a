/* SPDX-License-Identifier: Apache-2.0 */
/* Registers, launches and the memory of a board that OpenCL serves. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "devices/opencl/board.h"

#define FIRST_ARG (GANTRY_BOARD_ARGS / 8u)
#define LOST_S	  10 /* after clFinish() ends are told at once; longer takes only what is gone */

static int errno_of(struct gantry_opencl_board *board, cl_int result)
{
	if (result == CL_SUCCESS)
		return 0;
	if (result == CL_DEVICE_NOT_AVAILABLE)
		board->lost = true;
	return board->lost ? -ENODEV : -EIO;
}

/* ---- the memory ---- */

static struct gantry_opencl_piece *find_piece(struct gantry_opencl_board *board, uint64_t at,
					      uint64_t len)
{
	for (uint32_t i = 0; i < board->npieces; i++)
		if (board->pieces[i].at == at && board->pieces[i].len == len)
			return &board->pieces[i];
	return NULL;
}

/* What lies there is of launches that have ended. OpenCL keeps each for as long as a command uses it. */
static void drop_pieces(struct gantry_opencl_board *board, uint64_t at, uint64_t len)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < board->npieces; i++) {
		struct gantry_opencl_piece *piece = &board->pieces[i];

		if (piece->at < at + len && at < piece->at + piece->len)
			(void)board->cl->ReleaseMemObject(piece->mem);
		else
			board->pieces[left++] = *piece;
	}
	board->npieces = left;
}

void gantry_opencl_board_forget(struct gantry_opencl_board *board)
{
	drop_pieces(board, 0, board->mem_bytes);
}

static int need_room(struct gantry_opencl_board *board)
{
	uint32_t n = board->max_pieces ? 2 * board->max_pieces : 64;
	struct gantry_opencl_piece *pieces;

	if (board->npieces < board->max_pieces)
		return 0;
	pieces = realloc(board->pieces, n * sizeof(*pieces));
	if (!pieces)
		return -ENOMEM;
	board->pieces = pieces;
	board->max_pieces = n;
	return 0;
}

int gantry_opencl_board_mem_write(void *handle, uint64_t at, const void *from, uint64_t len)
{
	struct gantry_opencl_board *board = handle;
	cl_int result = CL_SUCCESS;
	cl_mem mem;

	if (len == 0)
		return 0;
	drop_pieces(board, at, len);
	if (need_room(board) < 0)
		return -ENOMEM;
	/* It only reads there; OpenCL knows no const. */
	mem = board->cl->CreateBuffer(board->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, len,
				      (void *)(uintptr_t)from, &result);
	if (result == CL_SUCCESS)
		board->pieces[board->npieces++] = (struct gantry_opencl_piece){ mem, at, len };
	return errno_of(board, result);
}

/* Of any region that has an image: a buffer is all regions', and whoever wrote it has ended. */
static cl_command_queue queue_for_copies(const struct gantry_opencl_board *board)
{
	for (uint32_t i = 0; i < board->nregions; i++)
		if (board->regions[i].copies)
			return board->regions[i].copies;
	return NULL;
}

int gantry_opencl_board_mem_read(void *handle, uint64_t at, void *to, uint64_t len)
{
	struct gantry_opencl_board *board = handle;
	const struct gantry_opencl_piece *piece = find_piece(board, at, len);
	cl_command_queue copies = queue_for_copies(board);

	if (len == 0)
		return 0;
	if (!piece || !copies)
		return -EIO;
	return errno_of(board, board->cl->EnqueueReadBuffer(copies, piece->mem, CL_TRUE, 0, len, to,
							    0, NULL, NULL));
}

/* ---- launches ---- */

static struct gantry_opencl_unit *unit_at(struct gantry_opencl_board *board, uint32_t region,
					  uint32_t off)
{
	uint32_t window = off / GANTRY_BOARD_WINDOW_BYTES;

	if (region >= board->nregions || window >= GANTRY_OPENCL_BOARD_WINDOWS ||
	    !board->regions[region].units[window].def)
		return NULL;
	return &board->regions[region].units[window];
}

/* The launch at work, and the one behind it. */
static struct gantry_opencl_run *run_of(struct gantry_opencl_unit *unit)
{
	return &unit->runs[unit->turn];
}

static struct gantry_opencl_run *behind(struct gantry_opencl_unit *unit)
{
	return &unit->runs[1 - unit->turn];
}

static void tell(struct gantry_opencl_run *run, bool *ret_over)
{
	struct gantry_opencl_board *board = run->unit->board;

	*ret_over = true;
	board->something_ended = true;
	run->unit->region->nwatched--;
	(void)pthread_cond_broadcast(&board->news);
}

/* A thread of OpenCL's, or the board's inside clSetEventCallback(). */
static void CL_CALLBACK on_end(cl_event event, cl_int result, void *user)
{
	struct gantry_opencl_run *run = user;

	(void)event;
	(void)pthread_mutex_lock(&run->unit->board->lock);
	run->result = result < 0 ? result : CL_SUCCESS;
	tell(run, &run->ended);
	(void)pthread_mutex_unlock(&run->unit->board->lock);
}

/* What became of each is asked when it is collected. */
static void CL_CALLBACK on_copied(cl_event event, cl_int result, void *user)
{
	struct gantry_opencl_run *run = user;

	(void)event;
	(void)result;
	(void)pthread_mutex_lock(&run->unit->board->lock);
	tell(run, &run->copied);
	(void)pthread_mutex_unlock(&run->unit->board->lock);
}

/* What a kernel gets for one argument of the signature: @at is its first register, moved on; @param its parameter. */
static cl_int set_arg(struct gantry_opencl_unit *unit, uint8_t bytes, const uint64_t **at,
		      cl_uint *param)
{
	const struct gantry_opencl_driver *cl = unit->board->cl;
	const struct gantry_opencl_piece *piece;
	cl_mem mem = NULL;
	cl_ulong len;
	cl_int result;

	if (bytes)
		return cl->SetKernelArg(unit->kernel, (*param)++, bytes, (*at)++);
	len = (*at)[1];
	piece = len ? find_piece(unit->board, (*at)[0], len) : NULL;
	if (len && !piece)
		return CL_INVALID_MEM_OBJECT;
	mem = piece ? piece->mem : NULL;
	*at += 2;
	result = cl->SetKernelArg(unit->kernel, (*param)++, sizeof(mem), &mem);
	if (result == CL_SUCCESS && unit->lengths)
		result = cl->SetKernelArg(unit->kernel, (*param)++, sizeof(len), &len);
	return result;
}

/* Blocks, and what each has, of 32 bits both: no product wraps. */
static void take_shape(struct gantry_opencl_unit *unit, const uint64_t *at)
{
	unit->ndims = at ? 3 : 1;
	for (unsigned int i = 0; i < 3; i++) {
		unit->group[i] = at ? (uint32_t)at[3 + i] : 1;
		unit->work[i] = at ? (uint32_t)at[i] * unit->group[i] : 1;
	}
}

static cl_int set_args(struct gantry_opencl_unit *unit)
{
	const uint64_t *at = &unit->registers[FIRST_ARG];
	cl_int result = CL_SUCCESS;
	cl_uint param = 0;

	take_shape(unit, NULL);
	for (uint32_t i = 0; i < unit->def->nargs && result == CL_SUCCESS; i++)
		if (unit->def->arg_bytes[i] == GANTRY_BOARD_ARG_SHAPE)
			take_shape(unit, at);
		else
			result = set_arg(unit, unit->def->arg_bytes[i], &at, &param);
	return result;
}

static cl_int enqueue(struct gantry_opencl_unit *unit, cl_event *ret_event)
{
	const struct gantry_opencl_driver *cl = unit->board->cl;

	return cl->EnqueueNDRangeKernel(unit->queue, unit->kernel, unit->ndims, NULL, unit->work,
					unit->group, 0, NULL, ret_event);
}

/*
 * The end of @event will be told, and *@over set then. False: it has come already, for nobody could be told of it. The flag is under the
 * board's lock.
 */
static bool watch(struct gantry_opencl_run *run, cl_event event,
		  void(CL_CALLBACK *notify)(cl_event, cl_int, void *), bool *over)
{
	struct gantry_opencl_unit *unit = run->unit;
	struct gantry_opencl_board *board = unit->board;
	bool told;

	(void)pthread_mutex_lock(&board->lock);
	*over = false;
	unit->region->nwatched++;
	(void)pthread_mutex_unlock(&board->lock);
	told = board->cl->SetEventCallback(event, CL_COMPLETE, notify, run) == CL_SUCCESS;
	/* What cannot be started shows in the event. */
	(void)board->cl->Flush(unit->queue);
	if (told)
		return true;
	(void)board->cl->Finish(unit->queue);
	(void)pthread_mutex_lock(&board->lock);
	tell(run, over);
	(void)pthread_mutex_unlock(&board->lock);
	return false;
}

static cl_int result_of(const struct gantry_opencl_board *board, cl_event event)
{
	cl_int status = CL_COMPLETE;

	return board->cl->GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status),
				       &status, NULL) == CL_SUCCESS &&
			       status < 0
		       ? status
		       : CL_SUCCESS;
}

static void watch_launch(struct gantry_opencl_run *run)
{
	struct gantry_opencl_board *board = run->unit->board;
	cl_int result;

	if (watch(run, run->event, on_end, &run->ended))
		return;
	result = result_of(board, run->event);
	(void)pthread_mutex_lock(&board->lock);
	run->result = result;
	(void)pthread_mutex_unlock(&board->lock);
}

static void start(struct gantry_opencl_unit *unit)
{
	struct gantry_opencl_run *run = run_of(unit);
	cl_int result = set_args(unit);
	bool refused = result != CL_SUCCESS;

	if (result == CL_SUCCESS) {
		result = enqueue(unit, &run->event);
		/* The grid is the guest's. */
		refused = result == CL_INVALID_WORK_GROUP_SIZE ||
			  result == CL_INVALID_WORK_ITEM_SIZE ||
			  result == CL_INVALID_GLOBAL_WORK_SIZE;
	}
	unit->control = 0;
	if (result == CL_SUCCESS) {
		watch_launch(run);
		return;
	}
	run->event = NULL;
	unit->ns = 0;
	unit->control = GANTRY_BOARD_DONE | (refused ? GANTRY_BOARD_REFUSED : GANTRY_BOARD_FAILED);
	(void)errno_of(unit->board, result);
}

/* Behind the launch in @run. Those that were enqueued before one could not be are made, too. */
static cl_int copy_behind(struct gantry_opencl_run *run, const struct gantry_board_copy *copies,
			  uint32_t ncopies)
{
	struct gantry_opencl_unit *unit = run->unit;
	const struct gantry_opencl_driver *cl = unit->board->cl;
	cl_int result = CL_SUCCESS;
	uint32_t n = 0;

	for (; n < ncopies && result == CL_SUCCESS; n += result == CL_SUCCESS) {
		const struct gantry_opencl_piece *piece = find_piece(unit->board, copies[n].at,
								     copies[n].len);

		result = piece ? cl->EnqueueReadBuffer(unit->queue, piece->mem, CL_FALSE, 0,
						       copies[n].len, copies[n].to, 0, NULL,
						       &run->copies[n])
			       : CL_INVALID_MEM_OBJECT;
	}
	run->ncopies = n;
	if (n > 0)
		(void)watch(run, run->copies[n - 1], on_copied, &run->copied);
	return result;
}

int gantry_opencl_board_follow(void *handle, uint32_t region, uint32_t off, const uint64_t *args,
			       uint32_t nargs, const struct gantry_board_copy *copies,
			       uint32_t ncopies)
{
	struct gantry_opencl_unit *unit = unit_at(handle, region, off);
	struct gantry_opencl_run *run, *next;
	cl_int result;

	if (!unit || nargs > GANTRY_BOARD_MAX_ARGS || ncopies > GANTRY_BOARD_MAX_ARGS)
		return -EINVAL;
	run = run_of(unit);
	next = behind(unit);
	if (!run->event || run->ncopies > 0 || next->event)
		return -EAGAIN;
	memcpy(&unit->registers[FIRST_ARG], args, nargs * sizeof(*args));
	/* The launch at work has those that were set when it was enqueued. */
	result = set_args(unit);
	if (result == CL_SUCCESS)
		result = copy_behind(run, copies, ncopies);
	if (result == CL_SUCCESS)
		result = enqueue(unit, &next->event);
	if (result != CL_SUCCESS) {
		int r = errno_of(unit->board, result);

		next->event = NULL;
		/* Copies that were enqueued cannot be taken back, nor waited for here: it may be long until they are made. */
		return run->ncopies > 0 ? 1 : r;
	}
	watch_launch(next);
	return 0;
}

static uint64_t time_of(const struct gantry_opencl_board *board, cl_event event,
			cl_profiling_info what)
{
	cl_ulong ns = 0;

	return board->cl->GetEventProfilingInfo(event, what, sizeof(ns), &ns, NULL) == CL_SUCCESS
		       ? ns
		       : 0;
}

/* Its copies have been made; the first that was not says why. */
static cl_int end_copies(struct gantry_opencl_run *run, cl_int result)
{
	struct gantry_opencl_board *board = run->unit->board;

	for (uint32_t i = 0; i < run->ncopies; i++) {
		if (result == CL_SUCCESS)
			result = result_of(board, run->copies[i]);
		(void)board->cl->ReleaseEvent(run->copies[i]);
	}
	run->ncopies = 0;
	return result;
}

/* A launch that has ended shows in the unit's control register. */
static void collect(struct gantry_opencl_unit *unit)
{
	struct gantry_opencl_board *board = unit->board;
	struct gantry_opencl_run *run = run_of(unit);
	uint64_t from, until;
	cl_int result;
	bool ended;

	if (!run->event)
		return;
	(void)pthread_mutex_lock(&board->lock);
	ended = run->ended && (run->ncopies == 0 || run->copied);
	result = run->result;
	(void)pthread_mutex_unlock(&board->lock);
	if (!ended)
		return;
	result = end_copies(run, result);
	from = time_of(board, run->event, CL_PROFILING_COMMAND_START);
	until = time_of(board, run->event, CL_PROFILING_COMMAND_END);
	unit->ns = until > from ? until - from : 0;
	unit->control = GANTRY_BOARD_DONE | (result < 0 ? GANTRY_BOARD_FAILED : 0);
	(void)errno_of(board, result);
	(void)board->cl->ReleaseEvent(run->event);
	run->event = NULL;
}

/* It was seen that the launch has ended: the window is the next one's. */
static void pass_on(struct gantry_opencl_unit *unit)
{
	unit->control = 0;
	if (behind(unit)->event)
		unit->turn = 1 - unit->turn;
}

bool gantry_opencl_board_drain(struct gantry_opencl_board *board,
			       struct gantry_opencl_region *region)
{
	struct timespec until;
	bool out;

	for (uint32_t i = 0; i < GANTRY_OPENCL_BOARD_WINDOWS; i++)
		/* Also where the end was told: OpenCL may be at work on what is behind it. */
		if (region->units[i].queue)
			(void)board->cl->Finish(
				region->units[i].queue); /* what failed shows no more */
	(void)clock_gettime(CLOCK_MONOTONIC, &until);	 /* cannot fail for this clock */
	until.tv_sec += LOST_S;
	(void)pthread_mutex_lock(&board->lock);
	while (region->nwatched > 0)
		if (pthread_cond_timedwait(&board->news, &board->lock, &until) == ETIMEDOUT)
			break;
	out = region->nwatched == 0;
	(void)pthread_mutex_unlock(&board->lock);
	for (uint32_t i = 0; i < GANTRY_OPENCL_BOARD_WINDOWS && out; i++) {
		collect(&region->units[i]);
		pass_on(&region->units[i]);
		collect(&region->units[i]);
	}
	return out;
}

/* ---- registers ---- */

static uint32_t registers_of(const struct gantry_board_kernel *kernel)
{
	uint32_t n = kernel->nargs;

	for (uint32_t i = 0; i < kernel->nargs; i++)
		n += kernel->arg_bytes[i] == 0 ? 1
		     : kernel->arg_bytes[i] == GANTRY_BOARD_ARG_SHAPE
			     ? GANTRY_BOARD_SHAPE_REGISTERS - 1
			     : 0;
	return n;
}

uint64_t gantry_opencl_board_read(void *handle, uint32_t region, uint32_t off)
{
	struct gantry_opencl_unit *unit = unit_at(handle, region, off);

	if (!unit)
		return UINT64_MAX;
	switch (off % GANTRY_BOARD_WINDOW_BYTES) {
	case GANTRY_BOARD_CONTROL:
		collect(unit);
		return run_of(unit)->event ? 0 : unit->control | GANTRY_BOARD_IDLE;
	case GANTRY_BOARD_ID:
		/* Its kernel was compared with this when it was loaded. */
		return (uint64_t)GANTRY_BOARD_IDENTITY << 32 | registers_of(unit->def);
	case GANTRY_BOARD_CYCLES:
		return unit->ns;
	default:
		return unit->registers[off % GANTRY_BOARD_WINDOW_BYTES / 8];
	}
}

void gantry_opencl_board_write(void *handle, uint32_t region, uint32_t off, uint64_t value)
{
	struct gantry_opencl_unit *unit = unit_at(handle, region, off);

	if (!unit)
		return;
	if (off % GANTRY_BOARD_WINDOW_BYTES != GANTRY_BOARD_CONTROL)
		unit->registers[off % GANTRY_BOARD_WINDOW_BYTES / 8] = value;
	else if (value & GANTRY_BOARD_START && !run_of(unit)->event)
		start(unit);
	else if (value & GANTRY_BOARD_DONE && !run_of(unit)->event)
		pass_on(unit);
}

/* ---- time ---- */

int gantry_opencl_board_wait(void *handle, uint64_t timeout_ns)
{
	struct gantry_opencl_board *board = handle;
	struct timespec until;
	bool ended;

	(void)clock_gettime(CLOCK_MONOTONIC, &until); /* cannot fail for this clock */
	until.tv_nsec += (long)(timeout_ns % GANTRY_NS_PER_S);
	until.tv_sec += (time_t)(timeout_ns / GANTRY_NS_PER_S) + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	(void)pthread_mutex_lock(&board->lock);
	while (!board->something_ended && !board->lost)
		if (pthread_cond_timedwait(&board->news, &board->lock, &until) == ETIMEDOUT)
			break;
	ended = board->something_ended;
	board->something_ended = false;
	(void)pthread_mutex_unlock(&board->lock);
	return board->lost ? -ENODEV : ended;
}

void gantry_opencl_board_wake(void *handle)
{
	struct gantry_opencl_board *board = handle;

	(void)pthread_mutex_lock(&board->lock);
	board->something_ended = true; /* or as good as that */
	(void)pthread_cond_broadcast(&board->news);
	(void)pthread_mutex_unlock(&board->lock);
}

uint64_t gantry_opencl_board_cycles(void *handle)
{
	(void)handle;
	return gantry_now_ns();
}
