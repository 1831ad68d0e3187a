/* SPDX-License-Identifier: Apache-2.0 */
/* The road of library calls, between a program's threads and a session that is played here. */
#include "guest-shim/cudalibs/road.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "guest-shim/cudalibs/call.h"
#include "proto/wire.h"
#include "tests/unit/runner.h"

#define NBUFFERS 80u
#define BYTES	 (16u << 10)
#define LATE	 7
#define APART	 9u /* the queue of what is apart */

static uint8_t sessions[2]; /* their addresses are all that is known of them */
static uint32_t current;
static bool gone;
static uint32_t nfreed[2]; /* buffers, in each session; atomic */
static uint8_t *buffers[NBUFFERS];
static uint32_t nbuffers, ntasks, nlooks, nafter;
static gantry_ticket last, after;
static uint64_t last_bytes; /* of the newest task's requests */
static bool takes_one;	    /* the worker is one that takes no more in a task */
static struct gantry_calls_failure
	failed;	       /* that the played worker tells with an answer; at place 0 */
static uintptr_t held; /* stream that is; 0: none */
static uint32_t nholds, nputs, nlet_go; /* atomic */
static int refuses;			/* what submitting answers instead */
static bool no_memory;
static uintptr_t captured;			     /* stream that is; 0: none */
static gantry_ticket behind[GANTRY_CUDA_ROAD_AFTER]; /* what the newest node is */
static uint32_t nbehind, nnodes;
static struct gantry_calls_reply
	*told_late; /* of a write-combining heap: its words are seen before what they tell of */

/* The road's clock is ours: it stands still, unless a test says that time passes for whoever waits. */
static uint64_t now_ns = GANTRY_NS_PER_S; /* atomic */
static bool time_passes;

static struct gantry_call_library library = { .name = "played", .refused = 1, .failed = 2 };

uint64_t __wrap_gantry_now_ns(void);
uint64_t __wrap_gantry_now_ns(void)
{
	return gantry_load_relaxed(&now_ns);
}

/* ---- the session ---- */

static int kernel_find(struct gantry_session *s, const char *name, const char *signature,
		       gantry_kernel *ret_kernel)
{
	(void)s;
	(void)signature;
	if (takes_one && strcmp(name, GANTRY_CALLS_KERNEL) != 0)
		return GANTRY_E_NO_KERNEL;
	*ret_kernel = 1;
	return GANTRY_OK;
}

static int alloc(struct gantry_session *s, uint64_t len_bytes, unsigned int flags,
		 gantry_buffer *ret_buffer)
{
	(void)s;
	(void)flags;
	if (no_memory)
		return GANTRY_E_NO_MEMORY;
	ck_assert_uint_lt(nbuffers, NBUFFERS);
	buffers[nbuffers] = calloc(1, len_bytes);
	*ret_buffer = ++nbuffers;
	return GANTRY_OK;
}

static int give_back(struct gantry_session *s, gantry_buffer buffer)
{
	(void)buffer;
	(void)gantry_fetch_add(&nfreed[(uint8_t *)(void *)s - sessions], 1u);
	return GANTRY_OK;
}

static int map(struct gantry_session *s, gantry_buffer buffer, uint64_t off, uint64_t len, int mode,
	       int64_t timeout_ns, void **ret_ptr)
{
	(void)s;
	(void)off;
	(void)len;
	(void)mode;
	(void)timeout_ns;
	*ret_ptr = buffers[buffer - 1];
	return GANTRY_OK;
}

/* Tickets are places of buffers, in queues. */
static int submit(struct gantry_session *s, gantry_queue queue, const struct gantry_task *tasks,
		  uint32_t count, gantry_ticket *ret_last)
{
	struct gantry_calls_reply *reply =
		(struct gantry_calls_reply *)(void *)buffers[tasks->access[0].buffer - 1];

	(void)s;
	(void)count;
	if (refuses)
		return refuses;
	memcpy(&last_bytes, (const uint8_t *)tasks->args + sizeof(uint64_t), sizeof(last_bytes));
	gantry_store_relaxed(&reply->told, 0u);
	*ret_last = (uint64_t)GANTRY_HANDLE_SLOT(queue) << 56 | (gantry_fetch_add(&ntasks, 1u) + 1);
	ck_assert_uint_eq(GANTRY_TICKET_QUEUE(*ret_last), GANTRY_HANDLE_SLOT(queue));
	last = *ret_last;
	nafter = tasks->nafter;
	after = nafter ? tasks->after[0] : 0;
	return GANTRY_OK;
}

static int under_way(struct gantry_session *s, const gantry_ticket *tickets, uint32_t count,
		     int64_t timeout_ns)
{
	(void)s;
	(void)tickets;
	(void)count;
	(void)timeout_ns;
	(void)gantry_fetch_add(&nlooks, 1u);
	if (time_passes)
		(void)gantry_fetch_add(&now_ns, 100 * GANTRY_NS_PER_MS);
	(void)sched_yield();
	return GANTRY_E_TIMEOUT;
}

static int test(struct gantry_session *s, gantry_ticket ticket)
{
	(void)s;
	(void)ticket;
	(void)gantry_fetch_add(&nlooks, 1u);
	return 0;
}

static struct gantry_session *the_session(void)
{
	return gone ? NULL : (struct gantry_session *)(void *)&sessions[current];
}

/* A stream is the number of its queue. */
static int queue_of(void *stream, gantry_queue *ret_queue)
{
	*ret_queue = (gantry_queue)(uintptr_t)stream;
	return 0;
}

/* As the driver's library, which the road's lock is not held for; whose it is nobody asks here. */
static int hold(void *stream, gantry_queue *ret_queue, gantry_queue *ret_apart)
{
	gantry_store_relaxed(&held, (uintptr_t)stream);
	(void)gantry_fetch_add(&nholds, 1u);
	*ret_apart = APART;
	return queue_of(stream, ret_queue);
}

static int place(void *stream, gantry_queue *ret_queue, gantry_queue *ret_apart)
{
	*ret_apart = APART;
	return queue_of(stream, ret_queue);
}

static void put(void *stream, gantry_ticket ticket)
{
	ck_assert_uint_eq(GANTRY_TICKET_QUEUE(ticket),
			  GANTRY_HANDLE_SLOT((gantry_queue)(uintptr_t)stream));
	gantry_store_relaxed(&held, (uintptr_t)0);
	(void)gantry_fetch_add(&nputs, 1u);
}

static void let_go(void *stream)
{
	ck_assert_uint_eq(gantry_load_relaxed(&held), (uintptr_t)stream);
	gantry_store_relaxed(&held, (uintptr_t)0);
	(void)gantry_fetch_add(&nlet_go, 1u);
}

static int apart(gantry_queue *ret_queue)
{
	*ret_queue = APART;
	return 0;
}

/* The driver's library has no lock while it asks. */
static int capture(void *stream, const struct gantry_cuda_road_node *node)
{
	if (!captured || (uintptr_t)stream != captured)
		return 0;
	if (node->waits)
		return GANTRY_E_UNSUPPORTED;
	nbehind = node->behind ? node->behind(node->cookie, behind) : 0;
	nnodes++;
	return 1;
}

static void order(void)
{
	if (told_late)
		told_late->ret = LATE;
}

extern const struct gantry_cuda_road gantry_cuda_road;
const struct gantry_cuda_road gantry_cuda_road = {
	.size = sizeof(gantry_cuda_road),
	.version = GANTRY_CUDA_ROAD_VERSION,
	.calls = { .kernel_find = kernel_find,
		   .alloc = alloc,
		   .free = give_back,
		   .map = map,
		   .submit = submit,
		   .wait = under_way,
		   .test = test },
	.session = the_session,
	.queue = queue_of,
	.order = order,
	.put = put,
	.hold = hold,
	.let_go = let_go,
	.capture = capture,
	.apart = apart,
	.place = place,
};

/* ---- who calls ---- */

static int call(uint64_t handle, uintptr_t stream, bool waits, struct gantry_calls_reply *ret)
{
	const struct gantry_call_route route = { .name = "call",
						 .stream = (void *)stream,
						 .has_stream = stream != 0,
						 .waits = waits,
						 .nhandles = 1,
						 .handles = &handle };
	struct gantry_calls_reply request = { .state = GANTRY_CALLS_RAN };

	return gantry_call_road_session.carry(NULL, &library, &route, &request, sizeof(request),
					      ret, waits ? sizeof(*ret) : 0);
}

static void tell(uint32_t buffer)
{
	struct gantry_calls_reply *reply = (struct gantry_calls_reply *)(void *)buffers[buffer];

	reply->state = GANTRY_CALLS_RAN;
	reply->ret = reply->bytes = reply->nfailures = 0;
	if (failed.state) {
		reply->nfailures = 1;
		memcpy(reply + 1, &failed, sizeof(failed));
	}
	/* Release: as the worker's, for is_told(). */
	gantry_store_release(&reply->told, GANTRY_CALLS_TOLD);
}

static void await_count(const uint32_t *count, uint32_t least)
{
	while (gantry_load_acquire(count) < least)
		(void)sched_yield();
}

/* Of object 1; NULL: on no stream. */
static void *call_on(void *stream)
{
	ck_assert_int_eq(call(1, (uintptr_t)stream, false, NULL), 0);
	return NULL;
}

static int say(uint64_t a, uint64_t b, uint64_t mark, bool drops);

static void *say_on(void *arg)
{
	(void)arg;
	ck_assert_int_eq(say(0x20000, 0, 1, false), 0);
	return NULL;
}

/* A long call of object 1, and a thread that waits for it. */
static pthread_t begin(void)
{
	pthread_t thread;

	ck_assert_int_eq(call(1, 0, false, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, call_on, (void *)(uintptr_t)2), 0);
	await_count(&nlooks, 1);
	return thread;
}

static void finish_all(void)
{
	while (nbuffers > 0)
		free(buffers[--nbuffers]);
}

static void finish(pthread_t thread)
{
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	finish_all();
}

START_TEST(test_thread_that_waits_for_an_earlier_call_holds_nobody_up)
{
	pthread_t thread = begin();

	for (uint64_t handle = 2; handle < 10; handle++)
		ck_assert_int_eq(call(handle, 3, false, NULL), 0);
	ck_assert_uint_eq(gantry_load_acquire(&ntasks),
			  9); /* the waiting one's is not among them */
	/* Long enough for looks to become rare. */
	await_count(&nlooks, 200);
	ck_assert_uint_eq(gantry_load_acquire(&ntasks), 9);
	tell(0);
	await_count(&ntasks, 10);
	finish(thread);
}
END_TEST

START_TEST(test_child_of_a_process_whose_thread_waits_is_told_that_it_has_no_session)
{
	pthread_t thread = begin();

	for (int i = 0; i < 50; i++) {
		int status;
		pid_t pid = fork();

		ck_assert_int_ge(pid, 0);
		if (pid == 0) {
			gone = true;
			(void)alarm(10);
			_exit(call(2, 3, false, NULL) == -ENODEV ? 0 : 1);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
	tell(0);
	finish(thread);
}
END_TEST

/* Object 1 is used on streams 2 and 3, the former has not returned, and then on @stream; 0: none. */
static void comes_last(uintptr_t stream)
{
	pthread_t thread;

	ck_assert_int_eq(call(1, 2, false, NULL), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, call_on, (void *)(uintptr_t)3), 0);
	await_count(&nlooks, 1);
	ck_assert_uint_eq(gantry_load_acquire(&ntasks), 1);
	tell(0);
	await_count(&ntasks, 2);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	gantry_store_release(&nlooks, 0u);
	ck_assert_int_eq(call(2, 4, false, NULL), 0); /* it has nothing to do with those */
	ck_assert_int_eq(pthread_create(&thread, NULL, call_on, (void *)stream), 0);
	await_count(&nlooks, 1);
	ck_assert_uint_eq(gantry_load_acquire(&ntasks), 3);
	tell(1);
	await_count(&ntasks, 4);
	finish(thread);
}

START_TEST(test_calls_of_an_object_on_several_streams_are_made_in_the_program_s_order)
{
	comes_last(5);
}
END_TEST

START_TEST(test_call_on_no_stream_waits_for_those_on_streams)
{
	comes_last(0);
}
END_TEST

/* The earlier call's stream may wait for what the program does only behind the later one. */
START_TEST(test_call_behind_one_that_does_not_return_is_put_behind_its_end)
{
	gantry_ticket first;

	time_passes = true;
	ck_assert_int_eq(call(1, 2, false, NULL), 0);
	first = last;
	ck_assert_int_eq(call(1, 3, false, NULL), 0);
	ck_assert_uint_eq(ntasks, 2);
	ck_assert_uint_eq(nafter, 1);
	ck_assert_uint_eq(after, first);
	tell(0);
	tell(1);
	ck_assert_int_eq(call(1, 2, false, NULL), 0);
	ck_assert_uint_eq(nafter, 0);
	finish_all();
}
END_TEST

/* Of one queue, that does not go on: a second in all. */
START_TEST(test_call_behind_many_that_do_not_return_waits_once)
{
	uint64_t began_ns = now_ns;

	time_passes = true;
	for (uint32_t i = 0; i < 63; i++)
		ck_assert_int_eq(call(1, 2, false, NULL), 0);
	ck_assert_int_eq(call(1, 3, false, NULL), 0);
	ck_assert_uint_eq(ntasks, 64);
	ck_assert_uint_eq(nafter, 63);
	ck_assert_uint_lt(now_ns - began_ns, 2 * GANTRY_NS_PER_S);
	finish_all();
}
END_TEST

/* The program may let the earlier one go on only when its graph is made. */
START_TEST(test_call_captured_behind_one_that_does_not_return_is_a_node_behind_its_end)
{
	gantry_ticket others[2];

	time_passes = true;
	ck_assert_int_eq(call(1, 2, false, NULL), 0);
	ck_assert_int_eq(call(1, 2, false, NULL), 0);
	others[0] = last;
	ck_assert_int_eq(call(2, 4, false, NULL), 0); /* it has nothing to do with those */
	ck_assert_int_eq(call(1, 5, false, NULL), 0);
	others[1] = last;
	ck_assert_int_eq(say(1, 0, 10, false), 0);
	captured = 3;
	ck_assert_int_eq(call(1, 3, false, NULL), 1);
	ck_assert_uint_eq(nnodes, 1);
	ck_assert_uint_eq(ntasks, 5);  /* with what stayed, and is no part of the graph */
	ck_assert_uint_eq(nbehind, 3); /* the newest of each queue */
	ck_assert_uint_eq(behind[0], others[0]);
	ck_assert_uint_eq(behind[1], others[1]);
	ck_assert_uint_eq(behind[2], last);
	finish_all();
}
END_TEST

START_TEST(test_call_captured_behind_what_has_returned_is_behind_nothing)
{
	ck_assert_int_eq(call(1, 2, false, NULL), 0);
	tell(0);
	captured = 3;
	ck_assert_int_eq(call(1, 3, false, NULL), 1);
	ck_assert_uint_eq(nnodes, 1);
	ck_assert_uint_eq(nbehind, 0);
	finish_all();
}
END_TEST

START_TEST(test_call_captured_that_waits_is_refused_at_once)
{
	struct gantry_calls_reply reply;

	ck_assert_int_eq(call(1, 2, false, NULL), 0);
	captured = 3;
	ck_assert_int_eq(call(1, 3, true, &reply), -EIO);
	ck_assert_uint_eq(nnodes, 0);
	ck_assert_uint_eq(nlooks, 0);
	finish_all();
}
END_TEST

static void *tell_later(void *arg)
{
	(void)arg;
	await_count(&ntasks, 1);
	told_late = (struct gantry_calls_reply *)(void *)buffers[0];
	tell(0);
	return NULL;
}

START_TEST(test_reply_is_read_after_the_heap_was_put_in_order)
{
	struct gantry_calls_reply reply;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, tell_later, NULL), 0);
	ck_assert_int_eq(call(1, 1, true, &reply), 0);
	ck_assert_uint_eq(reply.ret, LATE);
	finish(thread);
}
END_TEST

START_TEST(test_failure_that_nobody_waited_for_is_read_after_the_heap_was_put_in_order)
{
	ck_assert_int_eq(call(1, 1, false, NULL), 0);
	told_late = (struct gantry_calls_reply *)(void *)buffers[0];
	tell(0);
	ck_assert_int_eq(call(2, 1, false, NULL), 0); /* looks through what has returned */
	ck_assert_int_eq(gantry_load_relaxed(&library.late), LATE);
	finish_all();
}
END_TEST

START_TEST(test_stream_is_held_from_when_its_queue_is_known_until_the_call_is_there)
{
	pthread_t thread;

	ck_assert_int_eq(call(1, 2, false, NULL), 0);
	ck_assert_uint_eq(gantry_load_relaxed(&nputs), 1);
	ck_assert_uint_eq(gantry_load_relaxed(&held), 0);
	/* One that waits for an earlier call has its stream meanwhile. */
	ck_assert_int_eq(pthread_create(&thread, NULL, call_on, (void *)(uintptr_t)3), 0);
	await_count(&nlooks, 1);
	ck_assert_uint_eq(gantry_load_relaxed(&held), 3);
	ck_assert_uint_eq(gantry_load_relaxed(&nputs), 1);
	tell(0);
	finish(thread);
	ck_assert_uint_eq(gantry_load_relaxed(&held), 0);
	ck_assert_uint_eq(gantry_load_relaxed(&nputs), 2);
	ck_assert_uint_eq(gantry_load_relaxed(&nlet_go), 0);
}
END_TEST

START_TEST(test_stream_of_a_call_that_is_not_taken_is_let_go_of)
{
	static uint8_t long_one[2 * BYTES]; /* nor one for which there is no memory */
	const struct gantry_call_route route = { .name = "long",
						 .stream = (void *)2,
						 .has_stream = true };

	refuses = GANTRY_E_LIMIT;
	ck_assert_int_eq(call(1, 2, false, NULL), -EIO);
	ck_assert_uint_eq(gantry_load_relaxed(&nholds), 1);
	ck_assert_uint_eq(gantry_load_relaxed(&nlet_go), 1);
	ck_assert_uint_eq(gantry_load_relaxed(&held), 0);
	ck_assert_uint_eq(gantry_load_relaxed(&nputs), 0);
	refuses = 0;
	ck_assert_int_eq(call(1, 2, false, NULL), 0); /* its box is free again */
	ck_assert_uint_eq(nbuffers, 1);
	tell(0);
	no_memory = true;
	ck_assert_int_eq(gantry_call_road_session.carry(NULL, &library, &route, long_one,
							sizeof(long_one), NULL, 0),
			 -EIO);
	ck_assert_uint_eq(gantry_load_relaxed(&nholds), 2); /* not at all */
	finish_all();
}
END_TEST

/* Longer than the buffers that are kept, and answered. */
static void *call_long(void *arg)
{
	static uint8_t request[2 * BYTES];
	const struct gantry_call_route route = { .name = "long", .is_apart = true, .waits = true };
	struct gantry_calls_reply reply;

	(void)arg;
	ck_assert_int_eq(gantry_call_road_session.carry(NULL, &library, &route, request,
							sizeof(request), &reply, sizeof(reply)),
			 0);
	return NULL;
}

START_TEST(test_buffer_of_a_long_call_is_freed_when_it_has_returned)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, call_long, NULL), 0);
	await_count(&ntasks, 1);
	ck_assert_uint_eq(gantry_load_relaxed(&nfreed[0]), 0);
	tell(0);
	finish(thread);
	ck_assert_uint_eq(gantry_load_relaxed(&nfreed[0]), 1);
}
END_TEST

/* There its number may be another buffer's. */
START_TEST(test_buffer_of_a_long_call_is_not_freed_in_another_session)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, call_long, NULL), 0);
	await_count(&ntasks, 1);
	current = 1;
	ck_assert_int_eq(call(1, 2, false, NULL), 0);
	tell(0);
	finish(thread);
	ck_assert_uint_eq(gantry_load_relaxed(&nfreed[1]), 0);
}
END_TEST

START_TEST(test_call_that_is_no_part_of_a_stream_holds_none)
{
	const struct gantry_calls_reply request = { .state = GANTRY_CALLS_RAN };
	const struct gantry_call_route route = { .name = "apart", .is_apart = true };

	ck_assert_int_eq(gantry_call_road_session.carry(NULL, &library, &route, &request,
							sizeof(request), NULL, 0),
			 0);
	ck_assert_uint_eq(ntasks, 1);
	ck_assert_uint_eq(nholds + nputs + nlet_go, 0);
	finish_all();
}
END_TEST

/* ---- texts ---- */

#define NFORKS 5u

/* What the text says that is answered next. */
static _Thread_local uint32_t said;
/* A thread that gets a new text, and has the lock until another forks. */
static _Thread_local bool waits_for_fork, is_keeping;
static uint32_t keeps, nforked; /* atomic */
static pid_t forking;

static int carry_text(void *cookie, struct gantry_call_library *of,
		      const struct gantry_call_route *route, const void *request, size_t bytes,
		      void *reply, size_t reply_bytes)
{
	struct {
		struct gantry_calls_reply reply;
		uint64_t len;
		char text[16];
	} answer = { .reply = { .state = GANTRY_CALLS_RAN, .bytes = 24 } };

	(void)cookie;
	(void)of;
	(void)route;
	(void)request;
	(void)bytes;
	ck_assert_uint_ge(reply_bytes, sizeof(answer));
	answer.len = (uint64_t)snprintf(answer.text, sizeof(answer.text), "%u", said) + 1;
	memcpy(reply, &answer, sizeof(answer));
	is_keeping = waits_for_fork;
	return 0;
}

static const char *text_of(uint32_t what)
{
	struct gantry_call asked;

	said = what;
	gantry_call_begin(&asked, &library, "text", 1, 0);
	return gantry_call_finish_text(&asked);
}

/* Does the thread that forks sleep? It does for the lock of texts, and for little else. */
static bool is_asleep(pid_t thread)
{
	char path[64], stat[256] = "", *state;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(stat, sizeof(stat), file));
	(void)fclose(file);
	state = strrchr(stat, ')');
	return state && state[2] == 'S';
}

/* The memory for a text that is new is taken with the lock. */
void *__wrap_malloc(size_t n);
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
	if (is_keeping) {
		is_keeping = false;
		gantry_store_release(&keeps, 1u);
		while (!gantry_load_acquire(&nforked) && !is_asleep(forking))
			(void)sched_yield();
	}
	return __real_malloc(n);
}

static void *ask_meanwhile(void *what)
{
	waits_for_fork = true;
	ck_assert_ptr_nonnull(text_of((uint32_t)(uintptr_t)what));
	return NULL;
}

/* The child asks for a text that there is and one that is new, its parent's thread having had the lock when the fork began. */
static void fork_while_asked(uint32_t what, const char *first)
{
	pthread_t thread;
	pid_t pid;
	int status;

	gantry_store_relaxed(&keeps, 0u);
	gantry_store_relaxed(&nforked, 0u);
	ck_assert_int_eq(pthread_create(&thread, NULL, ask_meanwhile, (void *)(uintptr_t)what), 0);
	await_count(&keeps, 1);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)alarm(10);
		_exit(text_of(0) == first && text_of(what) ? 0 : 1);
	}
	gantry_store_release(&nforked, 1u);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

START_TEST(test_child_of_a_process_whose_thread_gets_a_text_gets_it_too)
{
	static const struct gantry_call_road talk = { .carry = carry_text };
	const char *first;

	gantry_call_road_set(&talk);
	forking = gettid();
	first = text_of(0);
	for (uint32_t i = 1; i <= NFORKS; i++)
		fork_while_asked(i, first);
	gantry_call_road_set(NULL);
}
END_TEST

/* ---- calls that stay until another goes ---- */

/* About objects @a and @b (0: none), with what tells it from others. */
static int say(uint64_t a, uint64_t b, uint64_t mark, bool drops)
{
	const uint64_t handles[2] = { a, b };
	const struct gantry_call_route route = { .name = "say",
						 .is_apart = true,
						 .may_stay = true,
						 .drops = drops,
						 .nhandles = b ? 2 : 1,
						 .handles = handles };
	const struct gantry_calls_request request = { .version = GANTRY_CALLS_VERSION,
						      .function = mark };

	return gantry_call_road_session.carry(NULL, &library, &route, &request, sizeof(request),
					      NULL, 0);
}

/* Of object @handle on @stream; its mark is 99. */
static int use(uint64_t handle, uintptr_t stream)
{
	const struct gantry_call_route route = { .name = "use",
						 .stream = (void *)stream,
						 .has_stream = true,
						 .nhandles = 1,
						 .handles = &handle };
	const struct gantry_calls_request request = { .version = GANTRY_CALLS_VERSION,
						      .function = 99 };

	return gantry_call_road_session.carry(NULL, &library, &route, &request, sizeof(request),
					      NULL, 0);
}

static uint64_t queue_of_last(void)
{
	return GANTRY_TICKET_QUEUE(last);
}

/* What a task of that buffer brought, in its order; all but the last say that there are more. */
static void expect_marks(uint32_t buffer, uint64_t first, uint32_t n, bool and_a_use)
{
	struct gantry_calls_request request;
	uint32_t total = n + and_a_use;

	ck_assert_uint_eq(last_bytes, total * sizeof(request));
	for (uint32_t i = 0; i < total; i++) {
		memcpy(&request, buffers[buffer] + i * sizeof(request), sizeof(request));
		ck_assert_uint_eq(request.function, i < n ? first + i : 99);
		if (i > 0) /* of the first the told word has come there */
			ck_assert_uint_eq(request.flags, i + 1 < total ? GANTRY_CALLS_MORE : 0);
	}
}

START_TEST(test_calls_that_may_stay_go_in_front_of_the_next_about_their_objects)
{
	for (uint64_t i = 0; i < 5; i++)
		ck_assert_int_eq(say(1, 0, 10 + i, false), 0);
	ck_assert_uint_eq(ntasks, 0);
	ck_assert_int_eq(use(1, 2), 0);
	ck_assert_uint_eq(ntasks, 1);
	ck_assert_uint_eq(queue_of_last(), GANTRY_HANDLE_SLOT((gantry_queue)2));
	expect_marks(0, 10, 5, true);
	/* They went once. */
	ck_assert_int_eq(use(1, 2), 0);
	expect_marks(1, 0, 0, true);
	finish_all();
}
END_TEST

START_TEST(test_calls_that_may_stay_go_alone_where_there_is_no_more_room)
{
	for (uint64_t i = 0; i < GANTRY_CALLS_TOGETHER - 1; i++)
		ck_assert_int_eq(say(1, 0, 10 + i, false), 0);
	ck_assert_uint_eq(ntasks, 0);
	ck_assert_int_eq(say(1, 0, 100, false), 0);
	ck_assert_uint_eq(ntasks, 1);
	ck_assert_uint_eq(queue_of_last(), GANTRY_HANDLE_SLOT((gantry_queue)APART));
	expect_marks(0, 10, GANTRY_CALLS_TOGETHER - 1, false);
	tell(0);
	ck_assert_int_eq(use(1, 2), 0);
	ck_assert_uint_eq(ntasks, 2);
	finish_all();
}
END_TEST

START_TEST(test_call_about_other_objects_leaves_what_stays)
{
	ck_assert_int_eq(say(1, 0, 10, false), 0);
	ck_assert_int_eq(use(2, 3), 0);
	expect_marks(0, 0, 0, true);
	ck_assert_int_eq(use(1, 3), 0);
	expect_marks(1, 10, 1, true);
	ck_assert_uint_eq(ntasks, 2);
	finish_all();
}
END_TEST

/* Else the stream of the one would hold up the object of the other. */
START_TEST(test_what_stays_goes_alone_where_it_is_about_more_than_the_call)
{
	pthread_t thread;

	ck_assert_int_eq(say(1, 0, 10, false), 0);
	ck_assert_int_eq(say(2, 0, 11, false), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, call_on, (void *)(uintptr_t)3), 0);
	await_count(&nlooks, 1);
	ck_assert_uint_eq(gantry_load_acquire(&ntasks), 1);
	ck_assert_uint_eq(queue_of_last(), GANTRY_HANDLE_SLOT((gantry_queue)APART));
	expect_marks(0, 10, 2, false);
	/* And the call is made behind it. */
	tell(0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(ntasks, 2);
	ck_assert_uint_eq(queue_of_last(), GANTRY_HANDLE_SLOT((gantry_queue)3));
	finish_all();
}
END_TEST

START_TEST(test_what_ends_goes_along_with_any_call)
{
	ck_assert_int_eq(say(1, 0, 10, true), 0);
	ck_assert_int_eq(say(2, 0, 11, false), 0);
	ck_assert_int_eq(say(2, 1, 12, false), 0);
	ck_assert_int_eq(use(2, 3), 0);
	ck_assert_uint_eq(ntasks, 1);
	expect_marks(0, 10, 3, true);
	finish_all();
}
END_TEST

/* The number is another one; the worker's place for it is the same. */
START_TEST(test_object_in_the_place_of_one_that_ends_comes_behind_its_end)
{
	pthread_t thread;

	ck_assert_int_eq(say(0x10000, 0, 10, true), 0);
	ck_assert_int_eq(say(2, 0, 11, false), 0);
	ck_assert_int_eq(use(2, 3), 0);
	ck_assert_uint_eq(ntasks, 1);
	ck_assert_int_eq(say(0x20000, 0, 12, false), 0);
	ck_assert_uint_eq(ntasks, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, call_on, (void *)(uintptr_t)4), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_eq(ntasks, 2); /* another object's */
	for (uint64_t i = 0; i < GANTRY_CALLS_TOGETHER - 2; i++)
		ck_assert_int_eq(say(0x20000, 0, 13 + i, false), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, say_on, NULL), 0);
	await_count(&nlooks, 1);
	ck_assert_uint_eq(gantry_load_acquire(&ntasks), 2);
	tell(0);
	await_count(&ntasks, 3);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	finish_all();
}
END_TEST

/* Its settings go on that stream, which has to be held for them. */
START_TEST(test_call_that_sets_on_a_stream_of_the_program_s_own_does_not_stay)
{
	uint64_t handle = 1;
	struct gantry_call_route route = { .name = "set",
					   .stream = (void *)5,
					   .has_stream = true,
					   .may_stay = true,
					   .nhandles = 1,
					   .handles = &handle };
	const struct gantry_calls_request request = { .version = GANTRY_CALLS_VERSION,
						      .function = 10 };

	ck_assert_int_eq(gantry_call_road_session.carry(NULL, &library, &route, &request,
							sizeof(request), NULL, 0),
			 0);
	ck_assert_uint_eq(ntasks, 1);
	ck_assert_uint_eq(gantry_load_relaxed(&nputs), 1);
	/* On the default one it does. */
	tell(0);
	route.stream = (void *)(uintptr_t)APART;
	ck_assert_int_eq(gantry_call_road_session.carry(NULL, &library, &route, &request,
							sizeof(request), NULL, 0),
			 0);
	ck_assert_uint_eq(ntasks, 1);
	ck_assert_int_eq(use(1, APART), 0);
	ck_assert_uint_eq(ntasks, 2);
	expect_marks(0, 10, 1, true);
	finish_all();
}
END_TEST

START_TEST(test_what_stays_and_cannot_go_is_told_later)
{
	ck_assert_int_eq(say(1, 0, 10, false), 0);
	ck_assert_int_eq(say(2, 0, 11, false), 0);
	refuses = GANTRY_E_LIMIT;
	ck_assert_int_eq(use(1, 3), -EIO);
	ck_assert_uint_eq(gantry_load_relaxed(&held), 0);
	ck_assert_int_eq(gantry_load_relaxed(&library.late), library.failed);
	refuses = 0;
	ck_assert_int_eq(use(1, 3), 0);
	expect_marks(0, 0, 0, true);
	finish_all();
}
END_TEST

START_TEST(test_worker_that_takes_one_call_in_a_task_gets_one)
{
	takes_one = true;
	ck_assert_int_eq(say(1, 0, 10, false), 0);
	ck_assert_uint_eq(ntasks, 1);
	expect_marks(0, 10, 1, false);
	finish_all();
}
END_TEST

/* With the answer of the call that took it along. */
START_TEST(test_failure_of_a_call_that_stayed_is_told_with_the_answer)
{
	uint64_t handle = 1;
	const struct gantry_call_route route = { .name = "ask",
						 .stream = (void *)3,
						 .has_stream = true,
						 .waits = true,
						 .nhandles = 1,
						 .handles = &handle };
	struct gantry_calls_request request = { .version = GANTRY_CALLS_VERSION };
	struct gantry_calls_reply reply;
	pthread_t thread;

	failed = (struct gantry_calls_failure){ .state = GANTRY_CALLS_RAN, .ret = LATE };
	ck_assert_int_eq(say(1, 0, 10, false), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, tell_later, NULL), 0);
	ck_assert_int_eq(gantry_call_road_session.carry(NULL, &library, &route, &request,
							sizeof(request), &reply, sizeof(reply)),
			 0);
	ck_assert_int_eq(gantry_load_relaxed(&library.late), LATE);
	finish(thread);
}
END_TEST

START_TEST(test_failures_that_a_worker_invents_are_nobody_s)
{
	failed =
		(struct gantry_calls_failure){ .place = 1000, .state = GANTRY_CALLS_RAN, .ret = 5 };
	ck_assert_int_eq(say(1, 0, 10, false), 0);
	ck_assert_int_eq(use(1, 3), 0);
	tell(0);
	ck_assert_int_eq(use(2, 3), 0); /* looks through what has returned */
	ck_assert_int_eq(gantry_load_relaxed(&library.late), 0);
	finish_all();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("road");
	TCase *tc = gantry_unit_case(suite, "road");

	tcase_add_test(tc,
		       test_stream_is_held_from_when_its_queue_is_known_until_the_call_is_there);
	tcase_add_test(tc, test_stream_of_a_call_that_is_not_taken_is_let_go_of);
	tcase_add_test(tc, test_call_that_is_no_part_of_a_stream_holds_none);
	tcase_add_test(tc, test_buffer_of_a_long_call_is_freed_when_it_has_returned);
	tcase_add_test(tc, test_buffer_of_a_long_call_is_not_freed_in_another_session);
	tcase_add_test(tc, test_child_of_a_process_whose_thread_gets_a_text_gets_it_too);

	tcase_add_test(tc, test_thread_that_waits_for_an_earlier_call_holds_nobody_up);
	tcase_add_test(tc,
		       test_calls_of_an_object_on_several_streams_are_made_in_the_program_s_order);
	tcase_add_test(tc, test_call_on_no_stream_waits_for_those_on_streams);
	tcase_add_test(tc, test_call_behind_one_that_does_not_return_is_put_behind_its_end);
	tcase_add_test(tc, test_call_behind_many_that_do_not_return_waits_once);
	tcase_add_test(tc,
		       test_call_captured_behind_one_that_does_not_return_is_a_node_behind_its_end);
	tcase_add_test(tc, test_call_captured_behind_what_has_returned_is_behind_nothing);
	tcase_add_test(tc, test_call_captured_that_waits_is_refused_at_once);
	tcase_add_test(tc,
		       test_child_of_a_process_whose_thread_waits_is_told_that_it_has_no_session);
	tcase_add_test(tc, test_reply_is_read_after_the_heap_was_put_in_order);
	tcase_add_test(tc,
		       test_failure_that_nobody_waited_for_is_read_after_the_heap_was_put_in_order);
	tcase_add_test(tc, test_calls_that_may_stay_go_in_front_of_the_next_about_their_objects);
	tcase_add_test(tc, test_calls_that_may_stay_go_alone_where_there_is_no_more_room);
	tcase_add_test(tc, test_call_about_other_objects_leaves_what_stays);
	tcase_add_test(tc, test_what_stays_goes_alone_where_it_is_about_more_than_the_call);
	tcase_add_test(tc, test_what_ends_goes_along_with_any_call);
	tcase_add_test(tc, test_object_in_the_place_of_one_that_ends_comes_behind_its_end);
	tcase_add_test(tc, test_call_that_sets_on_a_stream_of_the_program_s_own_does_not_stay);
	tcase_add_test(tc, test_what_stays_and_cannot_go_is_told_later);
	tcase_add_test(tc, test_worker_that_takes_one_call_in_a_task_gets_one);
	tcase_add_test(tc, test_failure_of_a_call_that_stayed_is_told_with_the_answer);
	tcase_add_test(tc, test_failures_that_a_worker_invents_are_nobody_s);
	return gantry_unit_run(suite);
}
