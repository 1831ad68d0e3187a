/* SPDX-License-Identifier: Apache-2.0 */
/* The holder's loop: seats that come and go, launches from their pages to the device, and how they ended. */
#include "devices/seat/holder.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "devices/seat/holder_seat.h"

#define DONE_MAX 32u
/* Pieces of memory of all seats: half of the mappings that a process has by Linux's defaults, so that each can be taken away again. */
#define MAX_PIECES 32768u
/* Of these each seat can count on so many, whatever others have; what is over is for whoever comes first. */
#define SHARE	   112u
#define MAX_EXTRAS (MAX_PIECES - GANTRY_SEAT_MAX_SEATS * SHARE)
#define BUSY_SEATS 8u /* messages of one seat in a pass */
/* When the device is lost workers hear how their launches ended, and end; so long they have for it. */
#define LOST_NS (2 * GANTRY_NS_PER_S)
#define LOST_MS 100

struct gantry_seat_holder {
	struct gantry_device_host host;
	const char *images;
	int bell; /* of the device, and of add() and stop(); no worker has it */
	struct gantry_list seats;
	uint32_t nseats; /* under the lock; those that wait count */
	uint32_t nflight;
	/* Where launches write whose worker is gone; nobody else reads or writes it. Sparse, and as long as the longest piece. */
	int refuge;
	uint64_t refuge_bytes;
	uint32_t npieces;
	uint32_t nextras; /* of them, beyond their seats' shares */
	uint64_t lost_ns; /* when it was seen that the device takes no more; 0: it does */
	struct {
		bool is_known;		  /* a launch is why, for it does not end */
		bool is_blamed;		  /* and that one has ended; others may end before it */
		struct gantry_seat *told; /* that is being told so; NULL: nobody */
		uint64_t worker;
		char kernel[GANTRY_KERNEL_NAME_MAX + 1];
	} endless;

	pthread_mutex_t lock;
	/* Under the lock. */
	bool stopping;
	uint32_t narrived;
	struct {
		int sock;
		uint64_t worker;
	} arrived[GANTRY_SEAT_MAX_SEATS];
};

/* ---- what the device calls; any thread ---- */

static void wake(void *cookie)
{
	struct gantry_seat_holder *holder = cookie;
	uint64_t one = 1;

	(void)!write(holder->bell, &one, sizeof(one));
}

static int cancelled(void *cookie, uint64_t tag)
{
	const struct gantry_seat_entry *entry = (const void *)(uintptr_t)tag;

	(void)cookie;
	return (int)gantry_load_acquire(&entry->cancelled);
}

/* ---- life ---- */

struct gantry_seat_holder *gantry_seat_holder_new(const char *images)
{
	struct gantry_seat_holder *holder = calloc(1, sizeof(*holder));

	if (!holder)
		return NULL;
	holder->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	holder->refuge = -EBADF;
	if (holder->bell < 0 || gantry_memfd_create("gantry-refuge", 0, 0, &holder->refuge) < 0) {
		gantry_fd_close(holder->bell);
		free(holder);
		return NULL;
	}
	holder->host = (struct gantry_device_host){ .wake = wake,
						    .cancelled = cancelled,
						    .cookie = holder };
	holder->images = images;
	gantry_list_init(&holder->seats);
	(void)pthread_mutex_init(&holder->lock, NULL);
	return holder;
}

void gantry_seat_holder_free(struct gantry_seat_holder *holder)
{
	if (!holder)
		return;
	for (uint32_t i = 0; i < holder->narrived; i++)
		gantry_fd_close(holder->arrived[i].sock);
	gantry_fd_close(holder->bell);
	gantry_fd_close(holder->refuge);
	(void)pthread_mutex_destroy(&holder->lock);
	free(holder);
}

const struct gantry_device_host *gantry_seat_holder_host(struct gantry_seat_holder *holder)
{
	return &holder->host;
}

bool gantry_seat_holder_blames(const struct gantry_seat_holder *holder, uint64_t *ret_worker,
			       const char **ret_kernel)
{
	if (!holder->endless.is_blamed)
		return false;
	*ret_worker = holder->endless.worker;
	*ret_kernel = holder->endless.kernel;
	return true;
}

int gantry_seat_holder_add(struct gantry_seat_holder *holder, int sock, uint64_t worker)
{
	int r = 0;

	(void)pthread_mutex_lock(&holder->lock);
	if (holder->nseats == GANTRY_SEAT_MAX_SEATS) {
		r = -EMFILE;
	} else {
		holder->arrived[holder->narrived].sock = sock;
		holder->arrived[holder->narrived++].worker = worker;
		holder->nseats++;
	}
	(void)pthread_mutex_unlock(&holder->lock);
	if (r < 0)
		gantry_fd_close(sock);
	else
		wake(holder);
	return r;
}

void gantry_seat_holder_stop(struct gantry_seat_holder *holder)
{
	(void)pthread_mutex_lock(&holder->lock);
	holder->stopping = true;
	(void)pthread_mutex_unlock(&holder->lock);
	wake(holder);
}

/* false: it is to stop. */
static bool admit(struct gantry_seat_holder *holder, const struct gantry_device *device)
{
	bool go_on;

	(void)pthread_mutex_lock(&holder->lock);
	while (holder->narrived > 0) {
		int sock = holder->arrived[--holder->narrived].sock;
		struct gantry_seat *seat =
			gantry_seat_new(holder, device, holder->images, sock,
					holder->arrived[holder->narrived].worker);

		if (seat) {
			gantry_list_push_back(&holder->seats, &seat->link);
			continue;
		}
		gantry_fd_close(sock); /* the worker does without the device */
		holder->nseats--;
	}
	go_on = !holder->stopping;
	(void)pthread_mutex_unlock(&holder->lock);
	return go_on;
}

static void bury(struct gantry_seat_holder *holder)
{
	gantry_list_for_each_safe(&holder->seats, struct gantry_seat, link, seat) {
		if (!seat->gone || seat->nflight > 0)
			continue;
		if (holder->endless.told == seat)
			holder->endless.told = NULL;
		gantry_seat_free(seat);
		(void)pthread_mutex_lock(&holder->lock);
		holder->nseats--;
		(void)pthread_mutex_unlock(&holder->lock);
	}
}

/* ---- memory of workers that are gone ---- */

int gantry_seat_holder_refuge(struct gantry_seat_holder *holder, struct gantry_seat *seat,
			      uint64_t len, int *ret_fd)
{
	bool extra = seat->npieces >= SHARE;

	if ((extra && holder->nextras == MAX_EXTRAS) || len > INT64_MAX)
		return -ENOMEM;
	if (len > holder->refuge_bytes) {
		if (ftruncate(holder->refuge, (off_t)len) < 0)
			return -ENOMEM;
		holder->refuge_bytes = len;
	}
	holder->npieces++;
	holder->nextras += extra;
	seat->npieces++;
	*ret_fd = holder->refuge;
	return 0;
}

/* What dead launches wrote is given back when the last piece is. */
void gantry_seat_holder_refuge_end(struct gantry_seat_holder *holder, struct gantry_seat *seat)
{
	holder->nextras -= seat->npieces > SHARE;
	seat->npieces--;
	if (--holder->npieces > 0)
		return;
	if (ftruncate(holder->refuge, 0) == 0)
		holder->refuge_bytes = 0;
}

/* ---- from a page to the device ---- */

/* A buffer as the worker says it; false: it is not its own, or not all of it is there. */
static bool take_range(const struct gantry_seat *seat, const struct gantry_seat_arg *arg,
		       struct gantry_range *ret_range)
{
	const struct gantry_seat_memory *m;
	uint64_t end;

	*ret_range = (struct gantry_range){ 0 };
	if (arg->mem == 0)
		return arg->len == 0;
	if (arg->mem > GANTRY_SEAT_MAX_MEMS)
		return false;
	m = &seat->mems[arg->mem - 1];
	/* A part begins where its guest says: no rule of the page's is broken by that. */
	if (!m->base || gantry_add_u64(arg->off, arg->len, &end) < 0 || end > m->len)
		return false;
	*ret_range = (struct gantry_range){ m->mem, arg->off, arg->len, arg->contents };
	return true;
}

/* A copy of a task becomes a command; false: it breaks the rules. */
static bool take_task(struct gantry_seat *seat, const struct gantry_seat_task *task,
		      struct gantry_seat_entry *entry, struct gantry_cmd *ret_cmd)
{
	struct gantry_cmd_launch *launch = &ret_cmd->launch;
	const struct gantry_seat_kernel *kernel;

	if (task->stream == 0 || task->stream > GANTRY_SEAT_MAX_STREAMS ||
	    !seat->streams[task->stream - 1].stream || task->kernel == 0 ||
	    task->kernel > GANTRY_SEAT_MAX_KERNELS || !seat->kernels[task->kernel - 1])
		return false;
	kernel = seat->kernels[task->kernel - 1];
	if (task->nargs != kernel->sig.nargs)
		return false;
	*ret_cmd = (struct gantry_cmd){ .kind = GANTRY_CMD_LAUNCH, .tag = (uintptr_t)entry };
	launch->kernel = kernel->kernel;
	memcpy(launch->grid, task->grid, sizeof(launch->grid));
	memcpy(launch->block, task->block, sizeof(launch->block));
	launch->shared_bytes = task->shared_bytes;
	launch->nargs = task->nargs;
	launch->makes = task->makes;
	entry->stream = task->stream - 1;
	entry->kernel = task->kernel - 1;
	entry->nmems = 0;
	for (uint32_t i = 0; i < task->nargs; i++) {
		if (!kernel->sig.args[i].mode)
			launch->args[i].value.u64 = task->args[i].off;
		else if (!take_range(seat, &task->args[i], &launch->args[i].range))
			return false;
		else if (task->args[i].mem)
			entry->mems[entry->nmems++] = task->args[i].mem - 1;
	}
	return true;
}

static void entry_begin(struct gantry_seat *seat, struct gantry_seat_entry *entry)
{
	entry->busy = true;
	seat->streams[entry->stream].nflight++;
	seat->kernels[entry->kernel]->nusers++;
	for (uint32_t i = 0; i < entry->nmems; i++)
		seat->mems[entry->mems[i]].nusers++;
	seat->nflight++;
}

static void entry_end(struct gantry_seat *seat, struct gantry_seat_entry *entry)
{
	entry->busy = false;
	seat->streams[entry->stream].nflight--;
	seat->kernels[entry->kernel]->nusers--;
	for (uint32_t i = 0; i < entry->nmems; i++)
		seat->mems[entry->mems[i]].nusers--;
	seat->nflight--;
}

static void tell(struct gantry_seat *seat, uint32_t slot, const struct gantry_done *done)
{
	seat->page->holder.ends[seat->ended % GANTRY_SEAT_TASKS] =
		(struct gantry_seat_end){ .slot = slot,
					  .status = done->status,
					  .blast = done->blast,
					  .device_ns = done->device_ns };
	/* Release: pairs with the acquire in the worker's take_ends(). */
	gantry_store_release(&seat->page->holder.ended, ++seat->ended);
	seat->has_news = true;
}

static int status_of(int r)
{
	return r == -EINVAL   ? GANTRY_E_ARG
	       : r == -ENOMEM ? GANTRY_E_NO_MEMORY
	       : r == -ENODEV ? GANTRY_E_DEVICE_LOST
			      : GANTRY_E_INTERNAL;
}

/* One task. 1: on to the next; 0: there is none, or the device is full. */
static int take_one(struct gantry_seat_holder *holder, struct gantry_seat *seat)
{
	struct gantry_seat_page *page = seat->page;
	/* Acquire: pairs with the release in the worker's hand(). */
	uint32_t ready = gantry_load_acquire(&page->worker.put) - seat->taken;
	uint32_t slot = gantry_load_relaxed(&page->worker.queue[seat->taken % GANTRY_SEAT_TASKS]);
	struct gantry_done refused = { .blast = GANTRY_BLAST_CMD };
	struct gantry_seat_entry *entry;
	struct gantry_seat_task task;
	struct gantry_cmd cmd;
	int r;

	if (ready == 0)
		return 0;
	if (ready > GANTRY_SEAT_TASKS || slot >= GANTRY_SEAT_TASKS || seat->entries[slot].busy) {
		gantry_seat_condemn(seat, "its queue is in disorder");
		return 0;
	}
	entry = &seat->entries[slot];
	memcpy(&task, &page->worker.tasks[slot],
	       sizeof(task)); /* once; the copy is checked and used */
	entry->slot = slot;
	gantry_store_release(&entry->cancelled, 0u);
	if (!take_task(seat, &task, entry, &cmd)) {
		gantry_seat_condemn(seat, "a task names what its seat has not");
		return 0;
	}
	r = holder->lost_ns
		    ? -ENODEV
		    : seat->device->backend->submit(seat->streams[entry->stream].stream, &cmd);
	seat->stuck = r == -EAGAIN;
	if (seat->stuck)
		return 0;
	seat->taken++;
	if (r == 0) {
		entry_begin(seat, entry);
		holder->nflight++;
		return 1;
	}
	refused.status = status_of(r);
	if (r == -ENODEV)
		refused.blast = GANTRY_BLAST_DEVICE;
	tell(seat, slot, &refused);
	return 1;
}

static void pass_cancels(struct gantry_seat *seat)
{
	for (uint32_t i = 0; i < GANTRY_SEAT_TASKS; i++)
		if (seat->entries[i].busy && gantry_load_relaxed(&seat->page->worker.cancel[i]))
			gantry_store_release(&seat->entries[i].cancelled, 1u);
}

static bool serve(struct gantry_seat_holder *holder, struct gantry_seat *seat)
{
	uint32_t count = 0;

	while (count < BUSY_SEATS && gantry_seat_hear(seat))
		count++;
	if (seat->gone || !seat->page)
		return count > 0;
	while (count < GANTRY_SEAT_TASKS && !seat->gone && !holder->endless.is_known &&
	       take_one(holder, seat))
		count++;
	if (!seat->gone && seat->nflight)
		pass_cancels(seat);
	return count > 0;
}

/* ---- from the device to pages ---- */

/* Its launch did not end, which costs all others the device: it is told; nobody else is, for their launches did nothing wrong. */
static void blame(struct gantry_seat_holder *holder, const struct gantry_seat_entry *entry)
{
	struct gantry_seat *seat = entry->seat;

	holder->endless.is_blamed = true;
	holder->endless.worker = seat->worker;
	(void)gantry_str_copy(holder->endless.kernel, sizeof(holder->endless.kernel),
			      seat->kernels[entry->kernel]->name); /* as long */
	holder->endless.told = seat->gone ? NULL : seat;
}

/* How one ended whose device has no future; false: its worker's successor finds out. */
static bool is_told_of_loss(struct gantry_seat_holder *holder, struct gantry_done *done)
{
	const struct gantry_seat_entry *entry = (void *)(uintptr_t)done->tag;

	if (!holder->lost_ns)
		holder->lost_ns = gantry_now_ns();
	if (done->blast >= GANTRY_BLAST_DEVICE)
		return true;
	holder->endless.is_known = true;
	if (done->status != GANTRY_E_DEADLINE)
		return false;
	blame(holder, entry);
	done->blast = GANTRY_BLAST_CMD;
	return true;
}

static bool collect(struct gantry_seat_holder *holder, const struct gantry_device *device)
{
	struct gantry_done done[DONE_MAX];
	unsigned n = device->backend->poll(device->dev, done, DONE_MAX);

	for (unsigned i = 0; i < n; i++) {
		struct gantry_seat_entry *entry = (void *)(uintptr_t)done[i].tag;
		struct gantry_seat *seat = entry->seat;
		bool is_told = done[i].blast < GANTRY_BLAST_CONTEXT ||
			       is_told_of_loss(holder, &done[i]);

		entry_end(seat, entry);
		holder->nflight--;
		if (is_told && !seat->gone)
			tell(seat, entry->slot, &done[i]);
	}
	gantry_list_for_each(&holder->seats, struct gantry_seat, link, s)
		s->stuck = s->stuck && n == 0;
	return n > 0;
}

static void tell_all(struct gantry_seat_holder *holder)
{
	gantry_list_for_each(&holder->seats, struct gantry_seat, link, seat)
		if (seat->has_news)
			gantry_seat_tell(seat);
}

/* ---- the loop ---- */

static void set_asleep(struct gantry_seat_holder *holder, uint32_t asleep)
{
	gantry_list_for_each(&holder->seats, struct gantry_seat, link, seat)
		if (seat->page)
			gantry_store_relaxed(&seat->page->holder.asleep, asleep);
}

static bool has_tasks(struct gantry_seat_holder *holder)
{
	if (holder->endless.is_known)
		return false;
	gantry_list_for_each(&holder->seats, struct gantry_seat, link, seat)
		if (seat->page && !seat->gone && !seat->stuck &&
		    gantry_load_acquire(&seat->page->worker.put) != seat->taken)
			return true;
	return false;
}

/* Of every seat, whether its worker has ended; returns how many are in @p, from 1 on. */
static nfds_t look_at_all(struct gantry_seat_holder *holder, struct pollfd *p,
			  struct gantry_seat **ret_of)
{
	nfds_t n = 1;

	p[0] = (struct pollfd){ .fd = holder->bell, .events = POLLIN };
	gantry_list_for_each(&holder->seats, struct gantry_seat, link, seat) {
		if (seat->gone)
			continue;
		ret_of[n] = seat;
		p[n++] = (struct pollfd){ .fd = seat->sock, .events = POLLIN | POLLRDHUP };
	}
	return n;
}

static void leave_ended(const struct pollfd *p, struct gantry_seat *const *of, nfds_t n)
{
	for (nfds_t i = 1; i < n; i++)
		if (p[i].revents & (POLLHUP | POLLERR | POLLNVAL | POLLRDHUP))
			gantry_seat_leave(of[i]);
}

void gantry_seat_holder_see_ends(struct gantry_seat_holder *holder)
{
	struct pollfd p[1 + GANTRY_SEAT_MAX_SEATS];
	struct gantry_seat *of[1 + GANTRY_SEAT_MAX_SEATS];
	nfds_t n = look_at_all(holder, p, of);

	if (poll(p, n, 0) > 0)
		leave_ended(p, of, n);
}

/* Until something happens. What the device has no room for waits for an end, which wakes. */
static void rest(struct gantry_seat_holder *holder, bool caller_runs)
{
	struct pollfd p[1 + GANTRY_SEAT_MAX_SEATS];
	struct gantry_seat *of[1 + GANTRY_SEAT_MAX_SEATS];
	nfds_t n = look_at_all(holder, p, of);
	uint64_t count;

	set_asleep(holder, 1);
	gantry_fence_full(); /* pairs with the fence of a worker that rings */
	if (poll(p, n,
		 has_tasks(holder) || (caller_runs && holder->nflight) ? 0
		 : holder->lost_ns				       ? LOST_MS
								       : -1) > 0) {
		leave_ended(p, of, n);
		if (p[0].revents)
			(void)!read(holder->bell, &count, sizeof(count));
	}
	set_asleep(holder, 0);
}

static void end_all(struct gantry_seat_holder *holder, const struct gantry_device *device)
{
	gantry_list_for_each(&holder->seats, struct gantry_seat, link, seat)
		gantry_seat_leave(seat);
	while (holder->nflight > 0)
		if (!collect(holder, device))
			rest(holder, (device->info.caps & GANTRY_CAP_CALLER_RUNS) != 0);
	bury(holder);
}

/* Of a launch that does not end its own worker is told, whose end may come behind others'; else every worker is. */
static bool is_over(const struct gantry_seat_holder *holder)
{
	bool waits = !holder->endless.is_known	 ? !gantry_list_is_empty(&holder->seats)
		     : holder->endless.is_blamed ? holder->endless.told != NULL
						 : holder->nflight > 0;

	return holder->lost_ns && (!waits || gantry_now_ns() - holder->lost_ns > LOST_NS);
}

int gantry_seat_holder_run(struct gantry_seat_holder *holder, const struct gantry_device *device)
{
	bool go_on;

	while ((go_on = admit(holder, device)) && !is_over(holder)) {
		bool progress = false;

		gantry_list_for_each(&holder->seats, struct gantry_seat, link, seat)
			progress = serve(holder, seat) || progress;
		progress = collect(holder, device) || progress;
		tell_all(holder);
		bury(holder);
		if (!progress)
			rest(holder, (device->info.caps & GANTRY_CAP_CALLER_RUNS) != 0);
	}
	end_all(holder, device);
	return go_on ? -ENODEV : 0;
}
