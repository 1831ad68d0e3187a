/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binding: from an accepted task in the ledger to a command for this device, or to a status.
 *
 * The task is a private copy, but nobody has looked at it yet, and after a recovery it is input again: everything is
 * checked here, each time. Only a variable part in the heap is the guest's memory; it is copied once into `var`.
 */
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "host-agent/worker/memory.h"
#include "proto/codec.h"

#define STAMP_NS      1000u
#define COPY_FLOOR_NS 2000u /* what the shortest copy to or from a device of its own memory takes */

/* A checked task, on its way to a command. */
struct bound {
	union gantry_op_any args;
	const uint8_t *var;
	uint32_t var_bytes;
	uint8_t heap_copy[GANTRY_MAX_VAR_BYTES];
};

/* One per device thread would do; thread-local keeps it out of every signature. */
static _Thread_local struct bound bound;

static int fetch_var(struct wsession *s, const struct gantry_ledger_task *task, struct bound *b)
{
	void *ptr;

	b->var_bytes = task->desc.len_bytes;
	b->var = task->inl.bytes;
	if (b->var_bytes == 0 || (task->desc.flags & GANTRY_DESC_INLINE))
		return GANTRY_OK;
	if (gantry_region_span(&s->heap, task->desc.off_bytes, b->var_bytes, 8, &ptr) < 0)
		return GANTRY_E_SPAN;
	gantry_region_copy_out(b->heap_copy, ptr, b->var_bytes);
	b->var = b->heap_copy;
	return GANTRY_OK;
}

/* ---- launch ---- */

struct launch_parts {
	const struct gantry_op_launch *op;
	struct gantry_wire_access access[GANTRY_MAX_ACCESSES];
	const uint8_t *args;
};

static int launch_split(const struct bound *b, struct launch_parts *ret_parts)
{
	const struct gantry_op_launch *op = &b->args.launch;
	uint64_t want = (uint64_t)op->naccess * sizeof(struct gantry_wire_access) + op->args_bytes;

	if (want != b->var_bytes)
		return GANTRY_E_ARG;
	ret_parts->op = op;
	memcpy(ret_parts->access, b->var, op->naccess * sizeof(struct gantry_wire_access));
	ret_parts->args = b->var + op->naccess * sizeof(struct gantry_wire_access);
	for (uint32_t i = 0; i < op->naccess; i++) {
		int status = gantry_wire_access_check(&ret_parts->access[i], op->args_bytes);

		if (status != GANTRY_OK)
			return status;
	}
	return GANTRY_OK;
}

static bool mode_allows(uint32_t has, uint32_t wants)
{
	if (wants == GANTRY_C)
		return has == GANTRY_C || has == GANTRY_RW;
	return (has & wants) == wants;
}

/* The access whose address goes to @arg_off; accesses mostly come in argument order, so start at @hint. */
static const struct gantry_wire_access *access_at(const struct launch_parts *p, uint32_t arg_off,
						  uint32_t hint)
{
	for (uint32_t i = 0; i < p->op->naccess; i++) {
		const struct gantry_wire_access *a = &p->access[(hint + i) % p->op->naccess];

		if (a->arg_off == arg_off)
			return a;
	}
	return NULL;
}

static int access_range(struct wdevice *d, struct wqueue *q, const struct gantry_wire_access *a,
			struct gantry_range *ret_range)
{
	struct gantry_ledger_object *obj =
		worker_object_get(q->session, a->buffer, GANTRY_HANDLE_BUFFER, q, q->led->issued);

	if (!obj)
		return GANTRY_E_HANDLE;
	if (a->mode != GANTRY_R && !(obj->buffer.rights & GANTRY_W))
		return GANTRY_E_ACCESS;
	return worker_buffer_range(d, q->session, obj, a->off, a->len, a->mode != GANTRY_R,
				   ret_range);
}

static void scalar_load(union gantry_value *v, unsigned type, const uint8_t *from)
{
	v->u64 = 0;
	memcpy(v, from, gantry_arg_type_bytes(type));
}

static int launch_args(struct wdevice *d, struct wqueue *q, const struct launch_parts *p,
		       const struct gantry_signature *sig)
{
	struct gantry_cmd_launch *launch = &d->cmd.launch;
	uint32_t nbuffers = 0;

	launch->raw = sig->is_raw ? p->args : NULL;
	launch->raw_bytes = sig->is_raw ? p->op->args_bytes : 0;
	/* The device knows how many bytes a raw kernel takes. */
	if (!sig->is_raw && p->op->args_bytes != sig->args_bytes)
		return GANTRY_E_SIGNATURE;
	for (uint32_t i = 0; i < sig->nargs; i++) {
		const struct gantry_sig_arg *arg = &sig->args[i];
		const struct gantry_wire_access *a;
		int status;

		if (arg->mode == 0 && arg->type >= GANTRY_ARG_BYTES) {
			launch->args[i].raw = (struct gantry_raw){ p->args + arg->off_bytes,
								   arg->len_bytes };
			continue;
		}
		if (arg->mode == 0) {
			scalar_load(&launch->args[i].value, arg->type, p->args + arg->off_bytes);
			continue;
		}
		a = access_at(p, arg->off_bytes, nbuffers++);
		if (!a || !mode_allows(a->mode, arg->mode))
			return GANTRY_E_SIGNATURE;
		status = access_range(d, q, a, &launch->args[i].range);
		if (status != GANTRY_OK)
			return status;
	}
	return GANTRY_OK;
}

/* Accesses that go to no argument still have to exist and be backed. */
static int touch_accesses(struct wdevice *d, struct wqueue *q, const struct launch_parts *p)
{
	for (uint32_t i = 0; i < p->op->naccess; i++) {
		struct gantry_range range;
		int status;

		if (p->access[i].arg_off != GANTRY_ARG_NONE && p->op->kernel)
			continue;
		status = access_range(d, q, &p->access[i], &range);
		if (status != GANTRY_OK)
			return status;
	}
	return GANTRY_OK;
}

/* The kernel an object stands for on this kind of device: a variant of its own, or the one found by name. */
static int kernel_get(struct wsession *s, uint64_t handle, uint32_t kind,
		      struct wkernel **ret_kernel)
{
	struct wobject *rt = &s->objects[GANTRY_HANDLE_SLOT(handle) % GANTRY_LEDGER_NOBJECTS];
	struct wkernel *k;

	if (!worker_object_get(s, handle, GANTRY_HANDLE_KERNEL, NULL, 0))
		return GANTRY_E_HANDLE;
	/* Acquire: pairs with the release where a kernel or a variant is made, perhaps by another thread. */
	k = gantry_load_acquire(&rt->kernel[kind]);
	if (!k)
		k = gantry_load_acquire(&rt->kernel[0]);
	/* Freed meanwhile, the slot may hold another kernel. */
	if (!worker_object_get(s, handle, GANTRY_HANDLE_KERNEL, NULL, 0))
		return GANTRY_E_HANDLE;
	*ret_kernel = k;
	return k ? GANTRY_OK : GANTRY_E_NO_KERNEL;
}

/* What its queue needs of a device that it goes to (migrate.c). */
static void note_kernel(const struct wqueue *q, uint64_t handle)
{
	struct wobject *rt = &q->session->objects[GANTRY_HANDLE_SLOT(handle)];

	if (!(gantry_load_relaxed(&rt->queues) >> q->slot & 1))
		(void)gantry_fetch_or(&rt->queues, 1ull << q->slot);
}

/* The number of what the task leaves, which has been bound; 0: nobody asks. */
static uint64_t made_by(const struct wqueue *q)
{
	return q->made_for == GANTRY_TICKET(q->slot, q->led->issued + 1) ? q->makes : 0;
}

static int bind_launch(struct wdevice *d, struct wqueue *q, struct bound *b,
		       struct wkernel **ret_kernel)
{
	const struct gantry_op_launch *op = &b->args.launch;
	struct gantry_cmd_launch *launch = &d->cmd.launch;
	struct launch_parts parts;
	struct wkernel *k;
	int status = launch_split(b, &parts);

	if (status != GANTRY_OK)
		return status;
	if (op->kernel == 0)
		return touch_accesses(d, q, &parts);
	status = kernel_get(q->session, op->kernel, d->device.info.kind, &k);
	if (status != GANTRY_OK)
		return status;
	if (worker_kernel_came_too_late(k, q, d->device.info.kind))
		return GANTRY_E_NO_KERNEL;
	status = worker_windows_known(q->session);
	if (status == GANTRY_OK)
		status = worker_kernel_on(d, k, &launch->kernel);
	if (status != GANTRY_OK)
		return status;
	note_kernel(q, op->kernel);
	status = launch_args(d, q, &parts, &k->sig);
	if (status != GANTRY_OK)
		return status;
	if (op->naccess) {
		status = touch_accesses(d, q, &parts);
		if (status != GANTRY_OK)
			return status;
	}
	launch->groups = op->task_flags & GANTRY_TASK_GROUPS;
	if (launch->groups && (!(d->device.info.caps & GANTRY_CAP_GROUPS) || !k->sig.is_raw))
		return GANTRY_E_UNSUPPORTED;
	memcpy(launch->grid, &op->grid_x, sizeof(launch->grid));
	memcpy(launch->block, &op->block_x, sizeof(launch->block));
	launch->shared_bytes = op->shared_bytes;
	launch->nargs = k->sig.nargs;
	launch->makes = made_by(q);
	*ret_kernel = k;
	return GANTRY_OK;
}

/* ---- copies ---- */

static int buffer_range(struct wdevice *d, struct wqueue *q, uint64_t handle, uint64_t off,
			uint64_t bytes, uint32_t mode, struct gantry_range *ret_range)
{
	struct gantry_wire_access a = {
		.buffer = handle,
		.off = off,
		.len = bytes,
		.mode = (uint16_t)mode,
	};

	/* A length of 0 means "to the end" to an access and nothing to a copy. */
	return bytes == 0 ? GANTRY_E_ARG : access_range(d, q, &a, ret_range);
}

static int bind_copy(struct wdevice *d, struct wqueue *q, const struct gantry_op_copy *op)
{
	struct gantry_cmd_copy *copy = &d->cmd.copy;
	int status = buffer_range(d, q, op->dst, op->dst_off, op->bytes, GANTRY_W, &copy->dst);

	if (status == GANTRY_OK)
		status = buffer_range(d, q, op->src, op->src_off, op->bytes, GANTRY_R, &copy->src);
	copy->makes = made_by(q);
	if (status == GANTRY_OK && op->dst == op->src && op->dst_off < op->src_off + op->bytes &&
	    op->src_off < op->dst_off + op->bytes)
		return GANTRY_E_ARG;
	return status;
}

static int bind_fill(struct wdevice *d, struct wqueue *q, const struct gantry_op_fill *op)
{
	uint32_t width = op->pattern_bytes;
	int status;

	if ((width & (width - 1)) || op->bytes % width)
		return GANTRY_E_ARG;
	d->cmd.fill.pattern = op->pattern;
	d->cmd.fill.pattern_bytes = width;
	status = buffer_range(d, q, op->buffer, op->off, op->bytes, GANTRY_W, &d->cmd.fill.dst);
	d->cmd.fill.makes = made_by(q);
	return status;
}

static int bind_write(struct wdevice *d, struct wqueue *q, const struct gantry_op_write *op)
{
	int status = buffer_range(d, q, op->buffer, op->off, op->bytes, GANTRY_W, &d->cmd.copy.dst);

	if (status == GANTRY_OK)
		status = worker_heap_range(d, q->session, op->heap_off, op->bytes,
					   &d->cmd.copy.src);
	if (status == GANTRY_OK)
		gantry_count_add(&q->session->ledger.hdr->bytes_in, op->bytes);
	d->cmd.copy.makes = made_by(q);
	return status;
}

static int bind_read(struct wdevice *d, struct wqueue *q, const struct gantry_op_read *op)
{
	int status = buffer_range(d, q, op->buffer, op->off, op->bytes, GANTRY_R, &d->cmd.copy.src);

	if (status == GANTRY_OK)
		status = worker_heap_range(d, q->session, op->heap_off, op->bytes,
					   &d->cmd.copy.dst);
	if (status == GANTRY_OK)
		gantry_count_add(&q->session->ledger.hdr->bytes_out, op->bytes);
	d->cmd.copy.makes = 0; /* the heap's contents have no numbers */
	return status;
}

/* ---- stamps, and words that the guest writes ---- */

static int heap_word(struct wsession *s, uint64_t heap_off, uint64_t **ret_word)
{
	void *ptr;

	if (gantry_region_span(&s->heap, heap_off, sizeof(**ret_word), sizeof(**ret_word), &ptr) <
	    0)
		return GANTRY_E_SPAN;
	*ret_word = ptr;
	return GANTRY_OK;
}

void worker_stamp(struct wqueue *q, uint64_t ns)
{
	const struct gantry_ledger_task *task = gantry_ledger_task(&q->session->ledger, q->slot,
								   q->led->done);
	struct gantry_op_stamp op;
	uint64_t *word;

	memcpy(&op, task->desc.imm, sizeof(op));
	if (task->desc.op == GANTRY_OP_stamp &&
	    heap_word(q->session, op.heap_off, &word) == GANTRY_OK)
		gantry_store_relaxed(word, ns);
}

/* A device without a clock has the host's; such a task is bound for the last time when it is the oldest. */
static int bind_stamp(const struct wdevice *d, const struct wqueue *q,
		      const struct gantry_op_stamp *op, bool *ret_nothing)
{
	uint64_t *word;
	int status = heap_word(q->session, op->heap_off, &word);

	*ret_nothing = !(d->device.info.caps & GANTRY_CAP_STAMP);
	if (status == GANTRY_OK && *ret_nothing)
		gantry_store_relaxed(word, gantry_now_ns());
	return status;
}

static enum wbind bind_await(const struct wqueue *q, const struct gantry_op_await *op,
			     int *ret_status)
{
	uint64_t *word;

	*ret_status = heap_word(q->session, op->heap_off, &word);
	if (*ret_status != GANTRY_OK)
		return WBIND_FINISH;
	/* Acquire: what the guest wrote before is there for the tasks behind. */
	return gantry_load_acquire(word) >= op->value ? WBIND_FINISH : WBIND_WAIT;
}

/* ---- tickets ---- */

/* 1: finished, 0: not yet, negative: no such ticket can ever finish. */
static int ticket_finished(const struct wqueue *q, uint64_t ticket)
{
	const struct wsession *s = q->session;
	uint32_t slot = GANTRY_TICKET_QUEUE(ticket);
	uint64_t seq = GANTRY_TICKET_SEQ(ticket);

	if (ticket == 0)
		return 1;
	if (slot >= s->ledger.nqueues)
		return GANTRY_E_HANDLE;
	/* Acquire: pairs with the release in worker_finish(), the other queue may be another thread's. */
	if (gantry_load_acquire(&s->ledger.queues[slot].done) >= seq)
		return 1;
	/*
	 * A ticket of a later task of this queue, or of a task that was not even put, may never finish: refuse rather than hang.
	 * The tail is the guest's word for what it has put; lying only changes its own answer.
	 */
	if (slot == q->slot ? seq > q->led->issued : seq > worker_queue_tail(&s->queues[slot]))
		return GANTRY_E_ARG;
	return 0;
}

static enum wbind look_at_tickets(const struct wqueue *q, const struct gantry_op_wait *op,
				  int *ret_status)
{
	const uint64_t tickets[] = { op->ticket0, op->ticket1, op->ticket2,
				     op->ticket3, op->ticket4, op->ticket5 };

	*ret_status = GANTRY_OK;
	for (unsigned i = 0; i < 6; i++) {
		int r = ticket_finished(q, tickets[i]);

		if (r == 0)
			return WBIND_WAIT;
		if (r < 0)
			*ret_status = r;
	}
	return WBIND_FINISH;
}

static enum wbind bind_wait(const struct wdevice *d, const struct wqueue *q,
			    const struct gantry_op_wait *op, int *ret_status)
{
	uint32_t *waiting = &q->session->waiting;

	if (look_at_tickets(q, op, ret_status) == WBIND_FINISH)
		return WBIND_FINISH;
	if (gantry_load_relaxed(waiting) >> d->index & 1)
		return WBIND_WAIT;
	(void)gantry_fetch_or(waiting, 1u << d->index);
	/* Full fence: pairs with the one in worker_publish(). The other thread sees us wait, or we see it done. */
	gantry_fence_full();
	return look_at_tickets(q, op, ret_status);
}

/* ---- recovery ---- */

/* Whether a task that may have run halfway can run again and leave what one run would have left. */
static bool replayable(const struct wqueue *q, const struct bound *b, uint16_t op, uint32_t kind)
{
	struct launch_parts p;
	struct wkernel *k;
	int status;

	switch (op) {
	case GANTRY_OP_copy:
	case GANTRY_OP_fill:
	case GANTRY_OP_write:
	case GANTRY_OP_read:
		return true; /* ranges of a copy never overlap: bind_copy() refuses that */
	case GANTRY_OP_launch:
		break;
	default:
		return true; /* no effects */
	}
	if (b->args.launch.kernel == 0 || (b->args.launch.task_flags & GANTRY_TASK_IDEMPOTENT))
		return true;
	status = kernel_get(q->session, b->args.launch.kernel, kind, &k);
	if (status != GANTRY_OK || !(k->flags & GANTRY_KERNEL_PURE) ||
	    launch_split(b, &p) != GANTRY_OK)
		return false;
	for (uint32_t i = 0; i < p.op->naccess; i++) {
		if (p.access[i].mode != GANTRY_R && p.access[i].mode != GANTRY_W)
			return false;
		for (uint32_t j = 0; j < i; j++)
			if (p.access[i].buffer == p.access[j].buffer &&
			    p.access[i].mode != p.access[j].mode)
				return false;
	}
	return true;
}

/* ---- kernels that are elsewhere ---- */

/* Another device that the queue may use and that has a form of the kernel; negative: none. */
static int device_with(const struct wdevice *d, const struct wqueue *q, uint64_t kernel)
{
	const struct gantry_engine *e = d->engine;

	for (uint32_t i = 0; i < e->ndevices; i++)
		if (i != d->index && worker_queue_fits(q->session, q, i) &&
		    worker_kernel_has_form(q->session, GANTRY_HANDLE_SLOT(kernel), e->devices[i]))
			return (int)i;
	return -1;
}

/* The queue goes to device @to as soon as what it has in flight is finished; its next task is bound there. */
static bool send_to(const struct wdevice *d, struct wqueue *q, uint32_t to)
{
	uint32_t here = d->index;

	/* Release: pairs with the acquire in queue_leaves(). Whoever sends it elsewhere just now is right. */
	return gantry_cas(&q->target, &here, to);
}

/*
 * The device lacks the kernel: the queue goes to one that has it, and back as soon as a kernel is there. True: it goes.
 */
static bool follow_kernel(const struct wdevice *d, struct wqueue *q, uint64_t kernel, int status)
{
	int to;

	if (kernel == 0 || (status != GANTRY_E_NO_DEVICE && status != GANTRY_E_NO_KERNEL))
		return false;
	to = device_with(d, q, kernel);
	if (to < 0 || !send_to(d, q, (uint32_t)to))
		return false;
	if (q->native == 0)
		q->native = d->index + 1;
	return true;
}

static bool go_home(const struct wdevice *d, struct wqueue *q, uint64_t kernel)
{
	uint32_t home = q->native - 1;

	if (kernel == 0)
		return false;
	if (home == d->index || !worker_queue_fits(q->session, q, home)) {
		q->native = 0;
		return false;
	}
	if (!worker_kernel_has_form(q->session, GANTRY_HANDLE_SLOT(kernel),
				    d->engine->devices[home]) ||
	    !send_to(d, q, home))
		return false;
	q->native = 0;
	return true;
}

/*
 * A queue that has launched nothing, such as the one of a library's own copies, goes where the buffer is; else each read of
 * what another queue works on would fetch it from there.
 */
static bool follow_buffer(const struct wdevice *d, struct wqueue *q, uint64_t handle)
{
	const struct wsession *s = q->session;
	uint32_t slot = GANTRY_HANDLE_SLOT(handle) % GANTRY_LEDGER_NOBJECTS;
	const struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	uint32_t device = gantry_load_relaxed(&b->device); /* a hint: it may be on its way */

	if (q->has_launched || gantry_load_relaxed(&b->place) != GANTRY_PLACE_WINDOW ||
	    s->ledger.objects[slot].type != GANTRY_HANDLE_BUFFER || device == d->index ||
	    device >= s->engine->ndevices || !worker_queue_fits(s, q, device))
		return false;
	return send_to(d, q, device);
}

/* Whether the queue leaves for another device before this task, which it is bound on then. */
static bool goes_first(const struct wdevice *d, struct wqueue *q, uint16_t op)
{
	switch (op) {
	case GANTRY_OP_launch:
		q->has_launched = true;
		return q->native && go_home(d, q, bound.args.launch.kernel);
	case GANTRY_OP_write:
		return follow_buffer(d, q, bound.args.write.buffer);
	case GANTRY_OP_read:
		return follow_buffer(d, q, bound.args.read.buffer);
	default:
		return false;
	}
}

/* ---- all of them ---- */

static int bind_command(struct wdevice *d, struct wqueue *q, uint16_t op,
			struct wkernel **ret_kernel, bool *ret_nothing)
{
	struct bound *b = &bound;

	*ret_nothing = false;
	switch (op) {
	case GANTRY_OP_launch:
		d->cmd.kind = GANTRY_CMD_LAUNCH;
		*ret_nothing = b->args.launch.kernel == 0;
		return bind_launch(d, q, b, ret_kernel);
	case GANTRY_OP_copy:
		d->cmd.kind = GANTRY_CMD_COPY;
		return bind_copy(d, q, &b->args.copy);
	case GANTRY_OP_fill:
		d->cmd.kind = GANTRY_CMD_FILL;
		return bind_fill(d, q, &b->args.fill);
	case GANTRY_OP_write:
		d->cmd.kind = GANTRY_CMD_COPY;
		return bind_write(d, q, &b->args.write);
	case GANTRY_OP_read:
		d->cmd.kind = GANTRY_CMD_COPY;
		return bind_read(d, q, &b->args.read);
	case GANTRY_OP_marker:
		*ret_nothing = true;
		return GANTRY_OK;
	case GANTRY_OP_stamp:
		d->cmd.kind = GANTRY_CMD_STAMP;
		return bind_stamp(d, q, &b->args.stamp, ret_nothing);
	default:
		return GANTRY_E_UNSUPPORTED;
	}
}

struct wcopy worker_copy_of(const struct wdevice *d, const struct wqueue *q)
{
	const struct wwindow *w = q->session->windows[d->index];
	const struct gantry_cmd_copy *copy = &d->cmd.copy;
	bool into, out;

	if (d->cmd.kind != GANTRY_CMD_COPY || !w)
		return (struct wcopy){ 0 };
	into = copy->dst.mem == w->mem;
	out = copy->src.mem == w->mem;
	if (!into && !out)
		return (struct wcopy){ 0 };
	return (struct wcopy){ copy->dst.len, into && out ? WCOPY_WITHIN : WCOPY_OVER_BUS };
}

static uint64_t bytes_per_s(const struct wdevice *d, const struct wqueue *q)
{
	const struct gantry_device_info *info = &d->device.info;
	struct wcopy copy = worker_copy_of(d, q);

	if (copy.bytes && d->copied_per_s[copy.way])
		return d->copied_per_s[copy.way];
	return copy.bytes && copy.way == WCOPY_WITHIN && info->within_bytes_per_s
		       ? info->within_bytes_per_s
		       : info->bytes_per_s;
}

static uint64_t estimate(const struct wdevice *d, const struct wqueue *q, const struct wkernel *k)
{
	uint64_t per_s = bytes_per_s(d, q);
	uint64_t known_ns = k ? worker_flight_expect_ns(d, q, k) : 0;

	if (known_ns)
		return known_ns;
	if (d->cmd.kind == GANTRY_CMD_STAMP)
		return STAMP_NS;
	if (d->cmd.kind == GANTRY_CMD_COPY && per_s && !d->runs_here)
		return COPY_FLOOR_NS +
		       (uint64_t)((double)d->cmd.copy.dst.len * GANTRY_NS_PER_S / (double)per_s);
	return bound.args.launch.est_us && d->cmd.kind == GANTRY_CMD_LAUNCH
		       ? bound.args.launch.est_us * 1000ull
		       : 0;
}

static bool is_cancelled(const struct wqueue *q)
{
	/* Acquire: pairs with the release in op_queue_cancel(). */
	return q->led->issued < gantry_load_acquire(&q->led->cancel_below);
}

bool worker_doomed(const struct wqueue *q)
{
	return is_cancelled(q) || gantry_load_relaxed(&q->led->broken);
}

/* One of the launches of which one made the context fail, as the worker of then has sorted out. */
static bool is_suspect(const struct wqueue *q, uint64_t pos, uint16_t op)
{
	return q->verdict == GANTRY_E_DEVICE_FAULT && pos < q->suspect_below &&
	       op == GANTRY_OP_launch;
}

/* What a task gets that may have run under an earlier worker and is not to run again; or one that is not to run. */
static int sentence(const struct wqueue *q, uint16_t op)
{
	uint64_t pos = q->led->issued;

	/* Of several suspects each that cannot be tried again: it is among them. */
	if (is_suspect(q, pos, op))
		return q->verdict;
	if (pos < q->doubt_below)
		return q->verdict && pos == q->verdict_pos ? q->verdict : GANTRY_E_IN_DOUBT;
	return is_cancelled(q) ? GANTRY_E_CANCELLED : GANTRY_E_INTERRUPTED;
}

/*
 * Whether the task at @pos is what the verdict of a recovery is about. After a fault the only suspect of the session; of
 * several those that may run again do so, one at a time, and who faults again was it. Where suspects are not known,
 * the oldest in flight: the oldest launch where completions come in batches, for copies and fills before the
 * one that ended the context may have finished unseen.
 */
static bool is_judged(const struct wdevice *d, struct wqueue *q, uint64_t pos, uint16_t op)
{
	if (pos >= q->doubt_below || !q->verdict)
		return false;
	if (q->suspect_below && q->verdict == GANTRY_E_DEVICE_FAULT)
		return q->session->nsuspects == 1 && is_suspect(q, pos, op);
	if (!q->judged && q->verdict == GANTRY_E_DEVICE_FAULT && d->device.backend->flush) {
		if (op != GANTRY_OP_launch)
			return false;
		q->verdict_pos = pos;
	}
	q->judged = true; /* from the oldest on, whoever is asked about it again */
	return pos == q->verdict_pos;
}

enum wbind worker_bind(struct wdevice *d, struct wqueue *q, int *ret_status, uint64_t *ret_est_ns,
		       struct wkernel **ret_kernel)
{
	uint64_t pos = q->led->issued;
	const struct gantry_ledger_task *task = gantry_ledger_task(&q->session->ledger, q->slot,
								   pos);
	bool nothing;
	int status;

	*ret_kernel = NULL;
	*ret_status = sentence(q, task->desc.op);
	if (is_cancelled(q) || gantry_load_relaxed(&q->led->broken))
		return WBIND_FINISH;
	if (is_judged(d, q, pos, task->desc.op)) {
		*ret_status = q->verdict;
		return WBIND_FINISH;
	}

	status = gantry_desc_decode(&task->desc, false, q->session->version, &bound.args);
	if (status == GANTRY_OK)
		status = fetch_var(q->session, task, &bound);
	if (status != GANTRY_OK) {
		*ret_status = status;
		return WBIND_FINISH;
	}
	if (task->desc.op == GANTRY_OP_wait)
		return bind_wait(d, q, &bound.args.wait, ret_status);
	if (task->desc.op == GANTRY_OP_await)
		return bind_await(q, &bound.args.await, ret_status);
	if (pos < q->doubt_below && !(replayable(q, &bound, task->desc.op, d->device.info.kind) &&
				      worker_replay_reads_the_same(q, pos)))
		return WBIND_FINISH;
	d->binding = q;
	d->binds_use = task->desc.op != GANTRY_OP_write && task->desc.op != GANTRY_OP_read;
	if (goes_first(d, q, task->desc.op))
		return WBIND_WAIT;
	status = bind_command(d, q, task->desc.op, ret_kernel, &nothing);
	if (status == GANTRY_E_AGAIN)
		return WBIND_WAIT;
	if (task->desc.op == GANTRY_OP_launch &&
	    follow_kernel(d, q, bound.args.launch.kernel, status))
		return WBIND_WAIT;
	if (gantry_load_relaxed(&q->session->mover) == q)
		worker_move_over(q->session);
	if (status != GANTRY_OK || nothing) {
		*ret_status = status;
		return WBIND_FINISH;
	}
	*ret_est_ns = estimate(d, q, *ret_kernel);
	return WBIND_COMMAND;
}
