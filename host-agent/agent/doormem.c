/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/doormem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/ask.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/channel.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/seat.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/monitor/store.h"
#include "host-agent/shared/wake.h"
#include "proto/region.h"
#include "proto/segment.h"
#include "proto/wire.h"

#define DESKS_OFF      4096u
#define DATA_OFF       GANTRY_SEGMENT_HEAP_ALIGN
#define COMING_NS      (120 * GANTRY_NS_PER_S) /* after a restart */
#define MAPPED_BYTES   (DESKS_OFF + GANTRY_DOORMEM_DESKS * GANTRY_DOORMEM_DESK_BYTES)
#define DEALINGS_MOST  256u
#define DEALINGS_PER_S 1000u
#define CLAIMS_MOST    64u
#define CLAIMS_PER_S   64u

static_assert(MAPPED_BYTES <= DATA_OFF, "segments come after the desks");

/* ---- budgets ---- */

static void budget_init(struct gantry_budget *b, uint32_t most, uint32_t per_s)
{
	*b = (struct gantry_budget){
		.left = most, .most = most, .per_s = per_s, .filled_ns = gantry_now_ns()
	};
}

static bool budget_take(struct gantry_budget *b)
{
	uint64_t now_ns = gantry_now_ns();
	uint64_t more = (now_ns - b->filled_ns) / (GANTRY_NS_PER_S / b->per_s);

	if (more > 0) {
		b->left = (uint32_t)(b->left + more > b->most ? b->most : b->left + more);
		b->filled_ns = now_ns;
	}
	if (b->left == 0)
		return false;
	b->left--;
	return true;
}

/* ---- the binding: a desk's boxes ---- */

static struct gantry_desk *of(struct gantry_conn *c)
{
	return gantry_list_entry(c, struct gantry_desk, conn);
}

static struct gantry_doormem_desk *shared_of(const struct gantry_desk *d)
{
	return &d->mem->shared[d->index];
}

static int post(uint8_t *box, uint32_t *posted, uint32_t *shared_posted,
		const uint32_t *shared_taken, const void *msg, size_t len)
{
	/* Acquire: the guest has copied the message before out of the box. */
	if (gantry_load_acquire(shared_taken) != *posted)
		return -EAGAIN;
	gantry_region_copy_in(box, msg, len);
	/* Release: whoever sees the count sees the message. */
	gantry_store_release(shared_posted, ++*posted);
	return 0;
}

static int desk_send(struct gantry_conn *c, const void *msg, size_t len)
{
	const struct gantry_door_header *h = msg;
	struct gantry_desk *d = of(c);
	struct gantry_doormem_desk *s = shared_of(d);

	if (h->kind == GANTRY_DOOR_NOTICE)
		return post(s->notice_box, &d->notice_posted, &s->notice_posted, &s->notice_taken,
			    msg, len);
	return post(s->host_box, &d->host_posted, &s->host_posted, &s->host_taken, msg, len);
}

static int desk_welcome(struct gantry_conn *c, const struct gantry_door_welcome *msg)
{
	struct gantry_desk *d = of(c);

	gantry_store_relaxed(&shared_of(d)->segment_off, c->session->segment_off);
	gantry_store_relaxed(&shared_of(d)->bell_vector, d->bell_vector);
	gantry_store_relaxed(&shared_of(d)->host_wake, d->wake);
	return desk_send(c, msg, sizeof(*msg));
}

static void desk_keep(struct gantry_conn *c)
{
	/* Which descriptor it is does not matter: that there is one says that the guest has attached. */
	gantry_keep(c->agent, of(c)->mem->fd, "s/%llx/door", (unsigned long long)c->session->id);
}

static void desk_close(struct gantry_conn *c)
{
	struct gantry_desk *d = of(c);

	if (c->session)
		gantry_keep_drop(c->agent, "s/%llx/door", (unsigned long long)c->session->id);
	gantry_conn_fini(c);
	gantry_parts_forget(d);
	d->open = false;
	/* Release: who sees it sees the last message too. */
	gantry_store_release(&shared_of(d)->served, 0ull);
}

static void say_wake(struct gantry_desk *d, struct gantry_session_place *ret_place)
{
	ret_place->wake = GANTRY_SESSION_WAKE_NONE;
	ret_place->wake_fd = -EBADF;
	if (d->wake == GANTRY_WAKE_MSIX) {
		ret_place->wake = GANTRY_SESSION_WAKE_EVENTFD;
		ret_place->wake_fd = d->mem->vectors[d->wake_vector];
	} else if (d->wake == GANTRY_WAKE_BYTE) {
		ret_place->wake = GANTRY_SESSION_WAKE_SOCKET;
		ret_place->wake_fd = gantry_channel_socket(d->mem, d->wake_vector);
	}
	if (ret_place->wake_fd >= 0)
		return;
	/* Its channel has ended since it claimed. */
	ret_place->wake = GANTRY_SESSION_WAKE_NONE;
	d->wake = GANTRY_WAKE_POLL;
}

/* Sessions share doorbells; the first is the desks' own where there is another. */
static uint32_t choose_bell(struct gantry_doormem *m)
{
	return m->nvectors == 1 ? 0 : 1 + m->next_bell++ % (m->nvectors - 1);
}

/* What it gets does not depend on how much of what others have left is clean yet. */
static int find_part(struct gantry_desk *d, struct gantry_err *err)
{
	struct gantry_doormem *m = d->mem;
	const struct gantry_ask_room room = {
		.largest_bytes = gantry_extents_largest_later(&m->extents),
		.share_bytes = (m->bytes - DATA_OFF) / 4,
	};
	int r = gantry_ask_within(&d->conn.hello, &m->tenant->conf, &room, &d->shape, &d->version,
				  err);

	if (r < 0)
		return r;
	r = gantry_parts_take(d, d->shape.segment.segment_bytes);
	return r < 0 ? gantry_err_set(err, GANTRY_E_AGAIN,
				      "this machine's door memory is in too many pieces")
		     : r;
}

/* The part that is ready is its session's from here on. */
static void give_part(struct gantry_desk *d, struct gantry_session_place *ret_place)
{
	struct gantry_doormem *m = d->mem;

	d->part = GANTRY_PART_NONE;
	m->nsessions++;
	d->bell_vector = choose_bell(m);
	*ret_place = (struct gantry_session_place){
		.doormem = m,
		.desk = d->index,
		.generation = d->seen,
		.off = d->part_off,
		.fd = m->fd,
		.bell_fd = m->bells[d->bell_vector],
	};
	say_wake(d, ret_place);
}

static int desk_place(struct gantry_conn *c, struct gantry_shape *ret_shape, uint32_t *ret_version,
		      struct gantry_session_place *ret_place, struct gantry_err *err)
{
	struct gantry_desk *d = of(c);
	int r = d->part == GANTRY_PART_READY ? 0 : find_part(d, err);

	if (r != 0)
		return r;
	*ret_shape = d->shape;
	*ret_version = d->version;
	give_part(d, ret_place);
	return 0;
}

/* The same for a segment that was made elsewhere. */
static int find_part_for(struct gantry_desk *d, uint64_t bytes, struct gantry_err *err)
{
	uint64_t largest = gantry_extents_largest_later(&d->mem->extents);
	int r;

	if (bytes % GANTRY_SEGMENT_HEAP_ALIGN)
		return gantry_err_set(err, GANTRY_E_UNSUPPORTED,
				      "the session began at a door of another kind, and its memory "
				      "is of a size that this machine's device cannot have");
	r = bytes > largest ? -ENOSPC : gantry_parts_take(d, bytes);
	return r < 0 ? gantry_err_set(err, GANTRY_E_NO_MEMORY,
				      "the session's %llu MiB do not fit this machine's device, "
				      "which has %llu MiB in one piece",
				      (unsigned long long)(bytes >> 20),
				      (unsigned long long)(largest >> 20))
		     : r;
}

static int desk_house(struct gantry_conn *c, uint64_t segment_bytes,
		      struct gantry_session_place *ret_place, struct gantry_err *err)
{
	struct gantry_desk *d = of(c);
	int r = d->part == GANTRY_PART_READY  ? 0
		: d->part == GANTRY_PART_NONE ? find_part_for(d, segment_bytes, err)
					      : 1;

	if (r == 0)
		give_part(d, ret_place);
	return r;
}

static const struct gantry_conn_ops desk_ops = {
	.send = desk_send,
	.welcome = desk_welcome,
	.keep = desk_keep,
	.close = desk_close,
	.place = desk_place,
	.house = desk_house,
};

/* ---- claims ---- */

/* Who claims in a younger kernel has found the older one's processes dead. */
static void see_boot(struct gantry_doormem *m, const uint8_t boot_id[16])
{
	if (memcmp(m->boot_id, boot_id, sizeof(m->boot_id)) == 0)
		return;
	memcpy(m->boot_id, boot_id, sizeof(m->boot_id));
	for (uint32_t i = 0; i < GANTRY_DOORMEM_DESKS; i++)
		if (m->desks[i].open &&
		    memcmp(m->desks[i].boot_id, boot_id, sizeof(m->boot_id)) != 0)
			gantry_conn_gone(&m->desks[i].conn);
}

static void copy_claim(const struct gantry_desk *d, struct gantry_doormem_desk *ret_line)
{
	gantry_region_copy_out(ret_line, shared_of(d),
			       offsetof(struct gantry_doormem_desk, progress));
}

/* What is used of what a claim offers. */
static uint32_t wake_of(const struct gantry_doormem *m, const struct gantry_doormem_desk *line)
{
	if (line->wake == GANTRY_WAKE_MSIX && line->wake_vector < m->nvectors)
		return GANTRY_WAKE_MSIX;
	if (line->wake == GANTRY_WAKE_BYTE && gantry_channel_socket(m, line->wake_vector) >= 0)
		return GANTRY_WAKE_BYTE;
	return GANTRY_WAKE_POLL;
}

static void take_claim(struct gantry_desk *d)
{
	struct gantry_doormem_desk line, *s = shared_of(d);

	copy_claim(d, &line);
	memcpy(d->boot_id, line.boot_id, sizeof(d->boot_id));
	d->wake = wake_of(d->mem, &line);
	d->wake_vector = line.wake_vector;
	d->mem->interrupts |= d->wake == GANTRY_WAKE_MSIX;
	d->taken = gantry_load_acquire(&s->posted);
	d->host_posted = gantry_load_acquire(&s->host_taken);
	d->notice_posted = gantry_load_acquire(&s->notice_taken);
	gantry_store_relaxed(&s->taken, d->taken);
	gantry_store_relaxed(&s->host_posted, d->host_posted);
	gantry_store_relaxed(&s->notice_posted, d->notice_posted);
	gantry_store_relaxed(&s->host_wake, d->wake);
}

static void open_desk(struct gantry_desk *d)
{
	gantry_conn_init(&d->conn, &desk_ops, GANTRY_CONN_IVSHMEM, d->mem->tenant);
	d->open = true;
}

static void serve(struct gantry_desk *d, uint64_t generation)
{
	d->seen = generation;
	take_claim(d);
	see_boot(d->mem, d->boot_id);
	open_desk(d);
	d->mem->tenant->nclaims++;
	/* Release: all of the line is about this generation. */
	gantry_store_release(&shared_of(d)->served, generation);
	gantry_conn_begin(&d->conn);
}

static void take_message(struct gantry_desk *d, uint32_t posted)
{
	_Alignas(8) uint8_t buf[GANTRY_CONN_MESSAGE_MAX];
	struct gantry_doormem_desk *s = shared_of(d);
	const struct gantry_door_header *h = (const struct gantry_door_header *)buf;

	static_assert(sizeof(buf) == GANTRY_DOORMEM_MESSAGE, "a box holds one message");
	if (posted != d->taken + 1) {
		gantry_conn_broke(&d->conn, "more than one message in a box");
		return;
	}
	gantry_region_copy_out(buf, s->guest_box, sizeof(buf));
	d->taken = posted;
	/* Release: the box has been copied. */
	gantry_store_release(&s->taken, posted);
	gantry_conn_message(&d->conn, buf, h->len_bytes < sizeof(buf) ? h->len_bytes : sizeof(buf));
}

bool gantry_doormem_is_leaving(struct gantry_doormem *m)
{
	if (m->leaves_until_ns && gantry_deadline_passed(m->leaves_until_ns))
		m->leaves_until_ns = 0;
	return m->leaves_until_ns != 0;
}

/* Whether there was anything to do with it, and room for it in this second. */
static bool look_at(struct gantry_desk *d)
{
	/* Acquire, both: the claim's line, or the message, was written before. */
	uint64_t generation = gantry_load_acquire(&shared_of(d)->generation);
	bool claimed = generation & 1;
	uint32_t posted;

	if (generation != d->seen) {
		bool welcome = d->mem->state == GANTRY_DOORMEM_OPEN &&
			       !gantry_doormem_is_leaving(d->mem);

		if ((claimed && !welcome && !d->open) || !budget_take(&d->mem->dealings))
			return false;
		if (d->open)
			gantry_conn_gone(&d->conn);
		if (!claimed)
			d->seen = generation;
		else if (welcome && budget_take(&d->mem->claims))
			serve(d, generation);
		return true;
	}
	if (!d->open)
		return false;
	posted = gantry_load_acquire(&shared_of(d)->posted);
	if (posted == d->taken || !budget_take(&d->mem->dealings))
		return false;
	take_message(d, posted);
	return true;
}

unsigned gantry_doormem_look(struct gantry_doormem *m)
{
	unsigned found = 0;

	if (m->is_coming)
		return 0;
	m->tenant->nlooks++;
	for (uint32_t i = 0; i < GANTRY_DOORMEM_DESKS && !m->abandoned; i++)
		found += look_at(&m->desks[(m->first + i) % GANTRY_DOORMEM_DESKS]);
	/* Where the budget ends is another desk each time. */
	m->first = (m->first + 1) % GANTRY_DOORMEM_DESKS;
	return found;
}

uint32_t gantry_doormem_guests(const struct gantry_doormem *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < GANTRY_DOORMEM_DESKS; i++)
		n += m->desks[i].open && m->desks[i].conn.state == GANTRY_CONN_ATTACHED;
	return n;
}

uint32_t gantry_doormem_claims(const struct gantry_doormem *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < GANTRY_DOORMEM_DESKS; i++)
		n += m->desks[i].open;
	return n;
}

/* ---- the memory ---- */

/* All of it that is ours, again: whoever scribbled over it sees what is true. */
static void write_header(struct gantry_doormem *m)
{
	const struct gantry_doormem_header line = {
		.magic = GANTRY_DOORMEM_MAGIC,
		.version = GANTRY_DOORMEM_VERSION,
		.ndesks = GANTRY_DOORMEM_DESKS,
		.desks_off = DESKS_OFF,
		.data_off = DATA_OFF,
		.bytes = m->bytes,
		.epoch = m->epoch,
		.nvectors = m->nvectors,
		.host_peer = m->host_peer,
	};

	gantry_region_copy_in(m->hdr, &line, offsetof(struct gantry_doormem_header, state));
	gantry_store_release(&m->hdr->heartbeat, m->heartbeat);
	gantry_store_release(&m->hdr->state, m->state);
}

/* ---- machines that bring their sessions along ---- */

void gantry_doormem_await(struct gantry_doormem *m, uint64_t until_ns)
{
	m->is_coming = true;
	m->coming_until_ns = until_ns;
	gantry_keep(m->agent, m->fd, GANTRY_KEPT_COMING, (unsigned long long)m->id);
}

void gantry_doormem_came(struct gantry_doormem *m)
{
	m->is_coming = false;
	gantry_keep_drop(m->agent, GANTRY_KEPT_COMING, (unsigned long long)m->id);
	write_header(m);
	gantry_doormem_resume(m);
}

void gantry_doormem_become(struct gantry_doormem *m, uint64_t epoch)
{
	unsigned long long id = m->id;

	gantry_keep_drop(m->agent, GANTRY_KEPT_DOORMEM, id, m->tenant->slot, m->nvectors,
			 (unsigned long long)m->epoch);
	m->epoch = epoch;
	if (epoch > m->agent->last_doormem_epoch)
		m->agent->last_doormem_epoch = epoch;
	gantry_keep(m->agent, m->fd, GANTRY_KEPT_DOORMEM, id, m->tenant->slot, m->nvectors,
		    (unsigned long long)epoch);
	write_header(m);
}

/* Who was to say which sessions it has has fallen silent: what its programs had is lost. */
static void come_alone(struct gantry_doormem *m)
{
	gantry_event(m->agent, "machine-came-alone", m->tenant, NULL, NULL,
		     "machine %llu: nobody has said which sessions it brings along",
		     (unsigned long long)m->id);
	gantry_doormem_came(m);
}

void gantry_doormem_beat(struct gantry_doormem *m)
{
	if (m->is_coming && m->nseating == 0 && gantry_deadline_passed(m->coming_until_ns))
		come_alone(m);
	if (m->is_coming)
		return;
	m->heartbeat++;
	gantry_store_relaxed(&m->hdr->heartbeat, m->heartbeat);
	gantry_store_relaxed(&m->hdr->state, m->state);
}

void gantry_doormem_open(struct gantry_doormem *m)
{
	if (m->state == GANTRY_DOORMEM_ABSENT)
		m->state = GANTRY_DOORMEM_OPEN;
	write_header(m);
}

bool gantry_doormem_is_open(const struct gantry_doormem *m)
{
	return gantry_load_acquire(&m->hdr->state) != GANTRY_DOORMEM_ABSENT;
}

void gantry_doormem_drain(struct gantry_doormem *m, bool drain)
{
	if (m->state == GANTRY_DOORMEM_CLOSED)
		return;
	m->state = drain ? GANTRY_DOORMEM_DRAIN : GANTRY_DOORMEM_OPEN;
	gantry_store_release(&m->hdr->state, m->state);
	if (drain)
		gantry_keep(m->agent, m->fd, "m/%llx/drain", (unsigned long long)m->id);
	else
		gantry_keep_drop(m->agent, "m/%llx/drain", (unsigned long long)m->id);
}

static void free_mem(struct gantry_doormem *m)
{
	if (m->hdr)
		(void)munmap(m->hdr, MAPPED_BYTES); /* it is mapped */
	for (uint32_t i = 0; i < m->nvectors; i++) {
		gantry_fd_close(m->bells[i]);
		gantry_fd_close(m->vectors[i]);
	}
	gantry_fd_close(m->seek_fd);
	gantry_fd_close(m->fd);
	free(m);
}

static void free_last(struct gantry_doormem *m)
{
	struct gantry_tenant *t = m->tenant;

	gantry_list_remove(&m->clearing_link);
	t->host_mem_used -= m->bytes < t->host_mem_used ? m->bytes : t->host_mem_used;
	t->ndoormems--;
	free_mem(m);
	gantry_tenant_reap(t);
}

/*
 * What is freed by the last who closes it is freed in one go, and the last may be we. Where we are in a hurry it is.
 */
void gantry_doormem_reap(struct gantry_doormem *m)
{
	if (!m->abandoned || m->nsessions > 0)
		return;
	if (!m->is_ending) {
		m->is_ending = true;
		gantry_keep_drop_tree(m->agent, "m/%llx/", (unsigned long long)m->id);
		gantry_parts_clear_all(m, DATA_OFF);
	}
	if (m->nclearing == 0 || m->agent->stopping)
		free_last(m);
}

void gantry_doormems_end(struct gantry_tenant *t)
{
	t->nsessions++; /* keeps the tenant alive meanwhile */
	gantry_list_for_each_safe(&t->agent->clearing, struct gantry_doormem, clearing_link, m)
		if (m->tenant == t && m->is_ending)
			free_last(m);
	t->nsessions--;
}

/* Its machine has gone where it is about to go: it is held, until somebody says whether the machine has arrived. */
static void let_follow(struct gantry_conn *c)
{
	struct gantry_session *s = c->session;
	struct gantry_handover *h = gantry_handover_staged(s);

	gantry_conn_close(c);
	if (h)
		gantry_handover_proceed(h, false);
	else
		gantry_seat_drift(s);
}

static void end_all(struct gantry_doormem *m, int status, const char *text)
{
	for (uint32_t i = 0; i < GANTRY_DOORMEM_DESKS; i++) {
		struct gantry_conn *c = &m->desks[i].conn;

		if (!m->desks[i].open)
			continue;
		if (m->has_hung_up && c->session && c->session->is_following)
			let_follow(c);
		else if (c->session)
			gantry_detach(c->session, status, text);
		else
			gantry_conn_refuse(c, status, text);
	}
}

void gantry_doormem_evict(struct gantry_doormem *m, const char *text)
{
	end_all(m, GANTRY_E_DETACHED, text);
}

void gantry_doormem_close(struct gantry_doormem *m, int status, const char *text)
{
	m->state = GANTRY_DOORMEM_CLOSED;
	gantry_store_release(&m->hdr->state, m->state);
	m->nsessions++; /* it stays while its sessions end under us */
	end_all(m, status, text);
	m->abandoned = true;
	m->nsessions--;
	gantry_doormem_reap(m);
}

void gantry_doormem_put(struct gantry_doormem *m, uint64_t off)
{
	m->nsessions--;
	gantry_parts_put(m, off);
	gantry_doormem_reap(m);
}

static struct gantry_doormem *blank(struct gantry_tenant *t, uint64_t id, uint32_t nvectors)
{
	struct gantry_doormem *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->agent = t->agent;
	m->tenant = t;
	m->id = id;
	m->nvectors = nvectors;
	m->host_peer = GANTRY_DOORMEM_HOST_PEER;
	m->state = GANTRY_DOORMEM_ABSENT; /* until the machine has it */
	m->fd = m->seek_fd = -EBADF;
	gantry_list_init(&m->orphan_link);
	gantry_list_init(&m->clearing_link);
	for (uint32_t i = 0; i < GANTRY_DOORMEM_MAX_VECTORS; i++)
		m->bells[i] = m->vectors[i] = -EBADF;
	for (uint32_t i = 0; i < GANTRY_DOORMEM_DESKS; i++) {
		m->desks[i].mem = m;
		m->desks[i].index = i;
	}
	budget_init(&m->dealings, DEALINGS_MOST, DEALINGS_PER_S);
	budget_init(&m->claims, CLAIMS_MOST, CLAIMS_PER_S);
	return m;
}

static int map(struct gantry_doormem *m, struct gantry_err *err)
{
	void *base = mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	char path[32];

	if (base == MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "mapping a door's memory");
	/* Without it nothing is known to be clean. */
	(void)gantry_str_format(path, sizeof(path), "/proc/self/fd/%d", m->fd); /* it fits */
	m->seek_fd = open(path, O_RDONLY | O_CLOEXEC);
	m->hdr = base;
	m->shared = (struct gantry_doormem_desk *)((uint8_t *)base + DESKS_OFF);
	gantry_extents_init(&m->extents, DATA_OFF, m->bytes);
	return 0;
}

static int make_vectors(struct gantry_doormem *m, struct gantry_err *err)
{
	for (uint32_t i = 0; i < m->nvectors; i++) {
		m->bells[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		m->vectors[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (m->bells[i] < 0 || m->vectors[i] < 0)
			return gantry_err_set_errno(err, -errno, "making a door's doorbells");
	}
	return 0;
}

static void keep_all(struct gantry_doormem *m)
{
	unsigned long long id = m->id;

	for (uint32_t i = 0; i < m->nvectors; i++) {
		gantry_keep(m->agent, m->bells[i], "m/%llx/bell/%u", id, i);
		gantry_keep(m->agent, m->vectors[i], "m/%llx/vector/%u", id, i);
	}
	gantry_keep(m->agent, m->fd, GANTRY_KEPT_DOORMEM, id, m->tenant->slot, m->nvectors,
		    (unsigned long long)m->epoch);
}

/* The time it is made, but never one that another has had. */
static uint64_t next_epoch(struct gantry_agent *a)
{
	uint64_t now_ns = gantry_unix_now_ns();

	a->last_doormem_epoch = now_ns > a->last_doormem_epoch ? now_ns : a->last_doormem_epoch + 1;
	return a->last_doormem_epoch;
}

int gantry_doormem_new(struct gantry_tenant *t, uint64_t id, uint64_t bytes, uint32_t nvectors,
		       struct gantry_doormem **ret_mem, struct gantry_err *err)
{
	struct gantry_doormem *m = blank(t, id, nvectors);
	int r;

	if (!m)
		return gantry_err_set(err, -ENOMEM, "no memory for a door");
	m->bytes = bytes;
	m->epoch = next_epoch(t->agent);
	r = gantry_memfd_create("gantry-doormem", bytes, GANTRY_MEMFD_SEALED, &m->fd);
	if (r < 0)
		(void)gantry_err_set_errno(err, r, "making a door's memory");
	if (r == 0)
		r = make_vectors(m, err);
	if (r == 0)
		r = map(m, err);
	if (r < 0) {
		free_mem(m);
		return r;
	}
	write_header(m);
	t->host_mem_used += bytes;
	t->ndoormems++;
	keep_all(m);
	*ret_mem = m;
	return 0;
}

/* ---- after a restart ---- */

static int take_vectors(struct gantry_doormem *m, struct gantry_err *err)
{
	char name[GANTRY_MONITOR_NAME_MAX];

	for (uint32_t i = 0; i < m->nvectors; i++) {
		unsigned long long id = m->id;

		(void)gantry_str_format(name, sizeof(name), "m/%llx/bell/%u", id, i); /* it fits */
		m->bells[i] = gantry_store_take(&m->agent->handed, name);
		(void)gantry_str_format(name, sizeof(name), "m/%llx/vector/%u", id, i);
		m->vectors[i] = gantry_store_take(&m->agent->handed, name);
		if (m->bells[i] < 0 || m->vectors[i] < 0)
			return gantry_err_set(err, -ENOENT, "a doorbell of it is missing");
	}
	return 0;
}

static void take_drain(struct gantry_doormem *m)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	int fd;

	/* it fits */
	(void)gantry_str_format(name, sizeof(name), "m/%llx/drain", (unsigned long long)m->id);
	fd = gantry_store_take(&m->agent->handed, name);
	gantry_fd_close(fd);
	if (fd < 0)
		return;
	m->state = GANTRY_DOORMEM_DRAIN;
	gantry_keep(m->agent, m->fd, "%s", name);
}

/* As long again as it takes to be told. */
static void take_coming(struct gantry_doormem *m)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	int fd;

	/* it fits */
	(void)gantry_str_format(name, sizeof(name), GANTRY_KEPT_COMING, (unsigned long long)m->id);
	fd = gantry_store_take(&m->agent->handed, name);
	gantry_fd_close(fd);
	if (fd >= 0)
		gantry_doormem_await(m, gantry_deadline_ns((int64_t)COMING_NS));
}

int gantry_doormem_restore(struct gantry_tenant *t, uint64_t id, uint32_t nvectors, uint64_t epoch,
			   int fd, struct gantry_doormem **ret_mem, struct gantry_err *err)
{
	struct gantry_doormem *m = blank(t, id, nvectors);
	struct stat st;
	int r;

	if (!m)
		return gantry_err_set(err, -ENOMEM, "no memory for a door");
	m->epoch = epoch;
	m->bytes = fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
	r = m->bytes > DATA_OFF ? take_vectors(m, err)
				: gantry_err_set(err, -EINVAL, "its memory is too small");
	if (r == 0) {
		m->fd = fd;
		r = map(m, err);
	}
	if (r < 0) {
		m->fd = -EBADF;
		free_mem(m);
		return r;
	}
	m->heartbeat = gantry_load_relaxed(&m->hdr->heartbeat); /* it has to grow, no more */
	/* What our predecessor told its hypervisor: a machine that wrote there misses its own doorbells. */
	if (gantry_load_relaxed(&m->hdr->host_peer) == GANTRY_DOORMEM_OWN_PEER)
		m->host_peer = GANTRY_DOORMEM_OWN_PEER;
	t->host_mem_used += m->bytes;
	t->ndoormems++;
	if (epoch > t->agent->last_doormem_epoch)
		t->agent->last_doormem_epoch = epoch;
	keep_all(m);
	take_drain(m);
	take_coming(m);
	*ret_mem = m;
	return 0;
}

int gantry_doormem_adopt(struct gantry_doormem *m, struct gantry_session *s, uint32_t desk,
			 uint64_t off, uint64_t bytes, uint64_t generation, struct gantry_err *err)
{
	if (desk >= GANTRY_DOORMEM_DESKS)
		return gantry_err_set(err, -EINVAL, "its desk is none");
	if (gantry_extents_claim(&m->extents, off, bytes) < 0)
		return gantry_err_set(err, -EINVAL, "its part of the door's memory is another's");
	m->nsessions++;
	if (!s)
		return 0;
	s->doormem = m;
	s->desk = desk;
	s->segment_off = off;
	m->desks[desk].seen = generation;
	return 0;
}

void gantry_doormem_rejoin(struct gantry_session *s)
{
	struct gantry_desk *d = &s->doormem->desks[s->desk];
	struct gantry_doormem_desk line, *shared = shared_of(d);

	if (d->open || s->doormem->abandoned)
		return;
	copy_claim(d, &line);
	memcpy(d->boot_id, line.boot_id, sizeof(d->boot_id));
	memcpy(d->mem->boot_id, line.boot_id, sizeof(d->boot_id));
	d->wake = s->wake == GANTRY_SESSION_WAKE_EVENTFD  ? GANTRY_WAKE_MSIX
		  : s->wake == GANTRY_SESSION_WAKE_SOCKET ? GANTRY_WAKE_BYTE
							  : GANTRY_WAKE_POLL;
	d->wake_vector = line.wake_vector;
	d->mem->interrupts |= d->wake == GANTRY_WAKE_MSIX;
	/* Where our predecessor was; a machine that wrote there has harmed itself. */
	d->taken = gantry_load_relaxed(&shared->taken);
	d->host_posted = gantry_load_relaxed(&shared->host_posted);
	d->notice_posted = gantry_load_relaxed(&shared->notice_posted);
	open_desk(d);
	gantry_conn_resume(&d->conn, s);
}

void gantry_doormem_release_claim(struct gantry_session *s)
{
	struct gantry_desk *d = &s->doormem->desks[s->desk];

	if (!d->open)
		gantry_store_release(&shared_of(d)->served, 0ull);
}

void gantry_doormem_resume(struct gantry_doormem *m)
{
	for (uint32_t i = 0; i < GANTRY_DOORMEM_DESKS; i++) {
		struct gantry_desk *d = &m->desks[i];
		uint64_t generation = gantry_load_acquire(&shared_of(d)->generation);

		/* One that was served and has no session: its guest waits for an answer that is lost. */
		if (m->is_coming || d->open || d->seen ||
		    gantry_load_relaxed(&shared_of(d)->served) != generation)
			continue;
		d->seen = generation;
		gantry_store_release(&shared_of(d)->served, 0ull);
	}
}

bool gantry_doormem_claim_of(const struct gantry_session *s, struct gantry_doormem_desk *ret_line)
{
	if (!s->doormem)
		return false;
	memset(ret_line, 0, sizeof(*ret_line));
	copy_claim(&s->doormem->desks[s->desk], ret_line);
	ret_line->host_wake = s->doormem->desks[s->desk].wake;
	ret_line->wake_vector = s->doormem->desks[s->desk].wake_vector;
	return true;
}
