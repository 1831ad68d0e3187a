/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers between sessions: SHARE makes a token, ADOPT shows one. The descriptor of each shared
 * buffer is kept once
 * for every session that uses it ("s/SESSION/x/SHARE/BYTES"), so that its workers' successors get
 * it.
 */
#include "host-agent/agent/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/journal.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/loan.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/token.h"
#include "host-agent/agent/worker.h"
#include "host-agent/control/packet.h"
#include "host-agent/monitor/store.h"
#include "proto/door.h"

/* A worker maps nothing any more a second before (worker/loan.c). */
#define EXCHANGE_NS	   (5 * GANTRY_NS_PER_S)
#define SHARED_PER_SESSION 100u /* a recovering Attach carries them all */

struct exchange {
	struct gantry_agent *agent;
	uint64_t session_id; /* who asked; looked up again when the answer comes */
	uint64_t worker_id;  /* its worker then */
	uint32_t tag;
	uint32_t mode;
	struct gantry_token token; /* of ADOPT */
	int fd;			   /* the adopter's copy; none of device memory */
	bool is_loan;
};

/* ---- kept descriptors ---- */

static void prefix_of(const struct gantry_session *s, uint64_t share_id,
		      char prefix[GANTRY_MONITOR_NAME_MAX])
{
	(void)gantry_str_format(prefix, GANTRY_MONITOR_NAME_MAX, "s/%llx/x/%llx/",
				/* it fits */
				(unsigned long long)s->id, (unsigned long long)share_id);
}

static int find_kept(const struct gantry_session *s, uint64_t share_id)
{
	const struct gantry_store *kept = &s->agent->kept;
	char prefix[GANTRY_MONITOR_NAME_MAX];

	prefix_of(s, share_id, prefix);
	for (size_t i = 0; i < kept->nentries; i++)
		if (gantry_str_starts(kept->entries[i].name, prefix))
			return kept->entries[i].fd;
	return -EBADF;
}

static void drop_kept(struct gantry_session *s, const char *prefix)
{
	struct gantry_store *kept = &s->agent->kept;

	for (size_t i = 0; i < kept->nentries; i++)
		if (gantry_str_starts(kept->entries[i].name, prefix))
			gantry_fd_close(kept->entries[i].fd); /* its entry goes below */
	gantry_keep_drop_tree(s->agent, "%s", prefix);
}

static unsigned int count_kept(const struct gantry_session *s)
{
	const struct gantry_store *kept = &s->agent->kept;
	char prefix[GANTRY_MONITOR_NAME_MAX];
	unsigned int n = 0;

	/* it fits */
	(void)gantry_str_format(prefix, sizeof(prefix), "s/%llx/x/", (unsigned long long)s->id);
	for (size_t i = 0; i < kept->nentries; i++)
		n += gantry_str_starts(kept->entries[i].name, prefix);
	return n;
}

/*
 * Takes @fd over. Another session's worker will map it: a memfd that could shrink would end that
 * one.
 */
static int keep_buffer(struct gantry_session *s, uint64_t share_id, uint64_t bytes, int fd)
{
	char prefix[GANTRY_MONITOR_NAME_MAX];

	if (bytes == 0 || gantry_memfd_check(fd, bytes) < 0) {
		gantry_event(s->agent, "session-condemned", NULL, s, NULL,
			     "its worker shares a buffer that is none");
		gantry_fd_close(fd);
		return GANTRY_E_INTERNAL;
	}
	prefix_of(s, share_id, prefix);
	drop_kept(s, prefix);
	gantry_keep(s->agent, fd, "%s%llx", prefix, (unsigned long long)bytes);
	if (find_kept(s, share_id) == fd)
		return GANTRY_OK;
	gantry_fd_close(fd); /* no room in the list */
	return GANTRY_E_NO_MEMORY;
}

void gantry_exchange_keep(struct gantry_worker *w, const Gantry__Worker__Keep *msg, int fd)
{
	struct gantry_session *s = gantry_session_find(w->agent, msg->session_id);
	char prefix[GANTRY_MONITOR_NAME_MAX];

	if (!s || s->worker != w) {
		gantry_fd_close(fd);
		return;
	}
	if (fd < 0)
		gantry_loan_end(s, msg->share_id);
	if (fd >= 0 && (find_kept(s, msg->share_id) >= 0 || count_kept(s) < SHARED_PER_SESSION)) {
		(void)keep_buffer(s, msg->share_id, msg->bytes, fd); /* it tells */
		return;
	}
	if (fd >= 0)
		gantry_event(w->agent, "shared-buffers-many", NULL, s, w,
			     "buffers beyond %u are lost when the worker dies", SHARED_PER_SESSION);
	gantry_fd_close(fd);
	prefix_of(s, msg->share_id, prefix);
	drop_kept(s, prefix);
}

void gantry_exchange_session_gone(struct gantry_session *s)
{
	char prefix[GANTRY_MONITOR_NAME_MAX];

	gantry_tokens_drop_session(&s->agent->tokens, s->id);
	/* it fits */
	(void)gantry_str_format(prefix, sizeof(prefix), "s/%llx/x/", (unsigned long long)s->id);
	drop_kept(s, prefix);
}

/* ---- requests ---- */

static struct exchange *new_exchange(struct gantry_conn *c, uint32_t tag)
{
	struct exchange *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	*x = (struct exchange){
		.agent = c->agent,
		.session_id = c->session->id,
		.worker_id = c->session->worker ? c->session->worker->id : 0,
		.tag = tag,
		.fd = -EBADF,
	};
	return x;
}

/* Whose token it was. */
static void opened(struct exchange *x)
{
	struct gantry_session *owner = gantry_session_find(x->agent, x->token.session_id);

	if (owner && owner->nopening)
		owner->nopening--;
}

/* The asking guest's connection, if it is still there. */
static struct gantry_conn *asker(struct exchange *x)
{
	struct gantry_session *s = gantry_session_find(x->agent, x->session_id);

	if (s && s->conn)
		s->conn->noutstanding--;
	return s ? s->conn : NULL;
}

static void answer_share(struct gantry_conn *c, uint32_t tag, int status,
			 const uint8_t token[GANTRY_DOOR_TOKEN])
{
	struct gantry_door_shared msg = { .status = status };

	gantry_door_header_init(&msg.h, GANTRY_DOOR_SHARED, tag);
	if (token)
		memcpy(msg.token, token, sizeof(msg.token));
	/* a guest that does not read is gone now */
	(void)gantry_conn_send(c, &msg, sizeof(msg));
}

static void answer_adopt(struct gantry_conn *c, uint32_t tag, int status, uint32_t mode,
			 uint64_t buffer, uint64_t bytes)
{
	struct gantry_door_adopted msg = {
		.status = status,
		.mode = mode,
		.buffer = buffer,
		.bytes = bytes,
	};

	gantry_door_header_init(&msg.h, GANTRY_DOOR_ADOPTED, tag);
	/* a guest that does not read is gone now */
	(void)gantry_conn_send(c, &msg, sizeof(msg));
}

/*
 * Where device memory lies that its session's worker has exported. The ledger is the session's own, and the slabs are found by what it
 * says: what is wrong there lends what is the session's.
 */
static int find_lent(const struct gantry_session *owner, uint64_t share_id, uint64_t bytes,
		     struct gantry_lent *ret_lent)
{
	uint32_t slot = share_id & (GANTRY_LEDGER_NOBJECTS - 1);
	const struct gantry_ledger_object *o;
	struct gantry_lent lent = { .owner = owner->id };

	static_assert((GANTRY_LEDGER_NOBJECTS & (GANTRY_LEDGER_NOBJECTS - 1)) == 0 &&
			      GANTRY_LEDGER_NOBJECTS <= 1u << 13,
		      "a share id ends with a slot");
	if (!owner->ledger.hdr)
		return GANTRY_E_AGAIN;
	o = &owner->ledger.objects[slot];
	lent.device = gantry_load_relaxed(&o->buffer.device);
	lent.off = gantry_load_relaxed(&o->buffer.off);
	lent.bytes = gantry_load_relaxed(&o->buffer.bytes);
	if (gantry_load_acquire(&o->state) != GANTRY_OBJECT_LIVE ||
	    o->type != GANTRY_HANDLE_BUFFER ||
	    (o->gen & 0x7ffffffu) != (share_id >> 13 & 0x7ffffffu) ||
	    gantry_load_relaxed(&o->buffer.place) != GANTRY_PLACE_WINDOW ||
	    !gantry_load_relaxed(&o->buffer.address) || lent.bytes != bytes || bytes == 0 ||
	    !gantry_range_inside(lent.off, bytes, owner->shape.slab_bytes) ||
	    lent.device >= owner->agent->ndevices)
		return GANTRY_E_NOT_FOUND;
	*ret_lent = lent;
	return GANTRY_OK;
}

/* Device memory that was freed since: nobody told us, and its token opens nothing. */
static bool is_stale(const struct gantry_token *token, void *arg)
{
	struct gantry_session *owner = gantry_session_find(arg, token->session_id);
	struct gantry_lent lent;

	return owner && find_kept(owner, token->share_id) < 0 &&
	       find_lent(owner, token->share_id, token->buffer_bytes, &lent) == GANTRY_E_NOT_FOUND;
}

static int make_token(struct exchange *x, struct gantry_session *s,
		      const Gantry__Worker__Exported *exported, uint8_t token[GANTRY_DOOR_TOKEN])
{
	const struct gantry_token like = {
		.session_id = s->id,
		.share_id = exported->share_id,
		.buffer_bytes = exported->bytes,
		.tenant_slot = s->tenant->slot,
		.mode = x->mode,
	};
	int r = gantry_tokens_add(&x->agent->tokens, &like, token);

	if (r == -EDQUOT && gantry_tokens_sweep(&x->agent->tokens, is_stale, x->agent))
		r = gantry_tokens_add(&x->agent->tokens, &like, token);

	/* Before the answer: once a guest holds a token, the next agent must know it too. */
	if (r == 0)
		gantry_journal_now(x->agent);
	return r == 0 ? GANTRY_OK : r == -EDQUOT ? GANTRY_E_LIMIT : GANTRY_E_NO_MEMORY;
}

static void exported(void *arg, const Gantry__Worker__FromWorker *answer, int fd)
{
	struct exchange *x = arg;
	struct gantry_conn *c = asker(x);
	uint8_t token[GANTRY_DOOR_TOKEN] = { 0 };
	int status = GANTRY_E_AGAIN; /* its worker died just now */

	if (answer && answer->body_case == GANTRY__WORKER__FROM_WORKER__BODY_EXPORTED)
		status = answer->exported->status == GANTRY_OK
				 ? GANTRY_OK
				 : gantry_status_of_worker(answer->exported->status,
							   GANTRY_E_INTERNAL);
	if (c && status == GANTRY_OK && fd < 0) {
		struct gantry_lent lent;

		/* Device memory, whose slabs are ours anyway. */
		status = find_lent(c->session, answer->exported->share_id, answer->exported->bytes,
				   &lent);
		if (status == GANTRY_OK)
			status = make_token(x, c->session, answer->exported, token);
	} else if (c && status == GANTRY_OK) {
		status = keep_buffer(c->session, answer->exported->share_id,
				     answer->exported->bytes, GANTRY_TAKE_FD(fd));
		if (status == GANTRY_OK)
			status = make_token(x, c->session, answer->exported, token);
	}
	gantry_fd_close(fd);
	if (c)
		answer_share(c, x->tag, status, status == GANTRY_OK ? token : NULL);
	free(x);
}

void gantry_exchange_share(struct gantry_conn *c, const struct gantry_door_share *msg)
{
	Gantry__Worker__ToWorker request = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__Export export = GANTRY__WORKER__EXPORT__INIT;
	struct gantry_session *s = c->session;
	struct exchange *x = new_exchange(c, msg->h.tag);

	if (!x || s->phase != GANTRY_PHASE_ATTACHED || gantry_handover_settles(s) ||
	    count_kept(s) >= SHARED_PER_SESSION) {
		free(x);
		answer_share(c, msg->h.tag,
			     count_kept(s) >= SHARED_PER_SESSION ? GANTRY_E_LIMIT : GANTRY_E_AGAIN,
			     NULL);
		return;
	}
	x->mode = msg->mode;
	export.session_id = s->id;
	export.buffer = msg->buffer;
	export.mode = msg->mode;
	request.body_case = GANTRY__WORKER__TO_WORKER__BODY_EXPORT;
	request.export = &export;
	c->noutstanding++;
	if (gantry_call(s->worker, &request, NULL, 0, EXCHANGE_NS, exported, x) < 0) {
		c->noutstanding--;
		free(x);
		answer_share(c, msg->h.tag, GANTRY_E_AGAIN, NULL);
	}
}

/* One that could not be mapped, or not in time. Whose worker died meanwhile has none any more. */
static void end_failed_loan(const struct exchange *x, const Gantry__Worker__FromWorker *answer)
{
	struct gantry_session *s = gantry_session_find(x->agent, x->session_id);

	if (!s || !s->worker || s->worker->dead || s->worker->id != x->worker_id)
		return;
	if (!answer || answer->body_case != GANTRY__WORKER__FROM_WORKER__BODY_IMPORTED ||
	    answer->imported->status != GANTRY_OK)
		gantry_loan_end(s, x->token.share_id);
}

static void imported(void *arg, const Gantry__Worker__FromWorker *answer, int fd)
{
	struct exchange *x = arg;
	struct gantry_conn *c = asker(x);
	int status = GANTRY_E_AGAIN; /* its worker died just now */
	uint64_t buffer = 0;

	gantry_fd_close(fd);
	opened(x);
	if (x->is_loan)
		end_failed_loan(x, answer);
	if (answer && answer->body_case == GANTRY__WORKER__FROM_WORKER__BODY_IMPORTED) {
		status = answer->imported->status == GANTRY_OK
				 ? GANTRY_OK
				 : gantry_status_of_worker(answer->imported->status,
							   GANTRY_E_INTERNAL);
		buffer = answer->imported->buffer;
	}
	if (c && status == GANTRY_OK && !x->is_loan)
		(void)keep_buffer(c->session, x->token.share_id, x->token.buffer_bytes,
				  GANTRY_TAKE_FD(x->fd)); /* it tells; the buffer works without */
	if (c)
		answer_adopt(c, x->tag, status, x->token.mode, buffer, x->token.buffer_bytes);
	gantry_fd_close(x->fd);
	free(x);
}

/* The descriptor behind a token, duplicated for the adopter; or a status. */
static int open_token(struct gantry_conn *c, struct exchange *x,
		      const uint8_t bytes[GANTRY_DOOR_TOKEN])
{
	const struct gantry_token *token = gantry_tokens_find(&c->agent->tokens, bytes);
	struct gantry_session *owner = token ? gantry_session_find(c->agent, token->session_id)
					     : NULL;

	if (!owner)
		return GANTRY_E_NOT_FOUND;
	if (gantry_handover_settles(owner))
		return GANTRY_E_AGAIN; /* it leaves, or stays and answers then */
	if (count_kept(c->session) >= SHARED_PER_SESSION)
		return GANTRY_E_LIMIT;
	x->token = *token;
	x->is_loan = find_kept(owner, token->share_id) < 0;
	if (x->is_loan) /* its slabs are found when they are sent */
		return owner->tenant == c->session->tenant ? GANTRY_OK : GANTRY_E_NOT_FOUND;
	x->fd = fcntl(find_kept(owner, token->share_id), F_DUPFD_CLOEXEC, 0);
	if (x->fd < 0)
		return errno == EBADF ? GANTRY_E_NOT_FOUND : GANTRY_E_AGAIN;
	return GANTRY_OK;
}

/* What rides with an Import of device memory. */
struct loan_packet {
	Gantry__Worker__Slab slabs[GANTRY_PACKET_MAX_FDS];
	Gantry__Worker__Slab *list[GANTRY_PACKET_MAX_FDS];
	int fds[GANTRY_PACKET_MAX_FDS];
	uint32_t n;
};

static int lend(struct gantry_session *to, const struct gantry_token *token,
		Gantry__Worker__Import *import, struct loan_packet *p)
{
	struct gantry_session *owner = gantry_session_find(to->agent, token->session_id);
	struct gantry_slab_lent slabs[GANTRY_PACKET_MAX_FDS];
	struct gantry_lent lent, whole;
	int status = find_lent(owner, token->share_id, token->buffer_bytes, &lent);

	if (status == GANTRY_OK && gantry_loans_of(to) >= SHARED_PER_SESSION)
		status = GANTRY_E_LIMIT;
	if (status == GANTRY_OK)
		status = gantry_slabs_lend(owner, &lent, slabs, GANTRY_PACKET_MAX_FDS, &p->n,
					   &whole);
	if (status == GANTRY_OK && gantry_loan_begin(to, token->share_id, &whole) < 0)
		status = GANTRY_E_NO_MEMORY;
	if (status != GANTRY_OK)
		return status;
	for (uint32_t i = 0; i < p->n; i++) {
		gantry__worker__slab__init(&p->slabs[i]);
		p->slabs[i].off = slabs[i].off;
		p->slabs[i].bytes = slabs[i].bytes;
		p->list[i] = &p->slabs[i];
		p->fds[i] = slabs[i].fd;
	}
	import->device = lent.device;
	import->skip = lent.off - whole.off;
	import->slabs = p->list;
	import->n_slabs = p->n;
	return GANTRY_OK;
}

void gantry_exchange_adopt(struct gantry_conn *c, const struct gantry_door_adopt *msg)
{
	static struct loan_packet packet; /* static: large */
	Gantry__Worker__ToWorker request = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__Import import = GANTRY__WORKER__IMPORT__INIT;
	struct gantry_session *s = c->session;
	struct exchange *x = new_exchange(c, msg->h.tag);
	int status = x && s->phase == GANTRY_PHASE_ATTACHED && !gantry_handover_settles(s)
			     ? open_token(c, x, msg->token)
			     : GANTRY_E_AGAIN;

	if (status == GANTRY_OK && x->is_loan)
		status = lend(s, &x->token, &import, &packet);
	if (status == GANTRY_OK) {
		import.session_id = s->id;
		import.share_id = x->token.share_id;
		import.bytes = x->token.buffer_bytes;
		import.mode = x->token.mode;
		request.body_case = GANTRY__WORKER__TO_WORKER__BODY_IMPORT;
		request.import = &import;
		c->noutstanding++;
		if (gantry_call(s->worker, &request, x->is_loan ? packet.fds : &x->fd,
				x->is_loan ? packet.n : 1, EXCHANGE_NS, imported, x) == 0) {
			gantry_session_find(c->agent, x->token.session_id)->nopening++;
			return;
		}
		c->noutstanding--;
		status = GANTRY_E_AGAIN;
		if (x->is_loan)
			gantry_loan_end(s, x->token.share_id);
	}
	if (x)
		gantry_fd_close(x->fd);
	free(x);
	answer_adopt(c, msg->h.tag, status, 0, 0, 0);
}
