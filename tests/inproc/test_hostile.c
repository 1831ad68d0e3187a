/* SPDX-License-Identifier: Apache-2.0 */
/* What a hostile guest puts into its rings: only it notices. */
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "proto/ring.h"
#include "proto/segment.h"
#include "tests/inproc/fixture.h"

#define NSLOTS 64u

struct hostile {
	struct fixture f;
	struct gantry_region heap;
	struct gantry_ring_producer
		rings[3]; /* control, and two queues that were opened in order */
	struct fixture witness;
};

static struct hostile hostile_start(const char *const *devices, uint32_t n)
{
	struct hostile x = { .f = { .h = inproc_start(devices, n) } };
	const struct gantry_limits small = { .nslots = NSLOTS, .heap_bytes = 1 << 20 };
	struct gantry_segment_layout layout;
	struct gantry_region segment;
	struct inproc_session *s;
	gantry_queue other;

	x.witness.h = x.f.h;
	fixture_session(&x.witness, NULL);
	fixture_session(&x.f, &small);
	ck_ok(gantry_queue_open(x.f.s, NULL, &other));
	s = host_session(&x.f);
	segment = (struct gantry_region){ s->segment->base, s->segment->bytes };
	ck_assert_int_eq(
		gantry_segment_layout_of(s->ledger.nqueues, NSLOTS, segment.bytes, &layout), 0);
	x.heap = (struct gantry_region){ segment.base + layout.heap_off, layout.heap_bytes };
	for (uint32_t i = 0; i < 3; i++) {
		struct gantry_ring_map map;

		ck_assert_int_eq(gantry_ring_map_init(&map, &segment, layout.queues_off, i, NSLOTS),
				 0);
		gantry_ring_producer_init(&x.rings[i], &map);
	}
	return x;
}

static void bell(const struct hostile *x)
{
	const uint64_t one = 1;

	(void)!write(host_session(&x->f)->bell_fd, &one, sizeof(one));
}

static int ended(const struct hostile *x)
{
	return gantry_load_acquire(&host_session(&x->f)->ended);
}

static void ask_witness(struct hostile *x)
{
	ck_assert_int_eq(outcome(&x->witness, put_empty(&x->witness, x->witness.q)), GANTRY_OK);
}

static void hostile_end(struct hostile *x)
{
	ask_witness(x);
	gantry_close(x->witness.s);
	fixture_end(&x->f);
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Mostly sense, so that it gets past the first check. */
static void random_desc(uint64_t *state, uint32_t ring, struct gantry_desc *desc)
{
	static const uint16_t control[] = { GANTRY_OP_buf_alloc,      GANTRY_OP_buf_free,
					    GANTRY_OP_kernel_get,     GANTRY_OP_kernel_variant,
					    GANTRY_OP_image_load,     GANTRY_OP_object_free,
					    GANTRY_OP_queue_cancel,   GANTRY_OP_props,
					    GANTRY_OP_stats,	      GANTRY_OP_ask,
					    GANTRY_OP_image_variable, GANTRY_OP_texture };
	/* Not await: one that nobody ends holds its queue up for good, as it should. */
	static const uint16_t task[] = { GANTRY_OP_marker, GANTRY_OP_launch, GANTRY_OP_copy,
					 GANTRY_OP_fill,   GANTRY_OP_write,  GANTRY_OP_read,
					 GANTRY_OP_stamp };
	uint64_t words[8];

	for (unsigned i = 0; i < 8; i++) {
		uint64_t r = next_random(state);

		switch (r % 5) {
		case 0:
			words[i] = 0;
			break;
		case 1: /* a handle, or nearly */
			words[i] = GANTRY_HANDLE(1 + r / 8 % 3, r / 64 % 3, r / 512 % 8);
			break;
		case 2:
			words[i] = r / 8 % 8192;
			break;
		case 3:
			words[i] = UINT64_MAX - r / 8 % 8192;
			break;
		default:
			words[i] = r;
			break;
		}
	}
	memcpy(desc, words, sizeof(*desc));
	desc->op = ring == 0 ? control[next_random(state) % GANTRY_ARRAY_SIZE(control)]
			     : task[next_random(state) % GANTRY_ARRAY_SIZE(task)];
	desc->flags = next_random(state) % 4 == 0 ? (uint16_t)next_random(state)
						  : next_random(state) % 2;
	desc->len_bytes = next_random(state) % 2 ? 0 : (uint32_t)(next_random(state) % 300);
	desc->off_bytes = desc->flags & GANTRY_DESC_INLINE || !desc->len_bytes ? 0
									       : desc->off_bytes;
}

/* Handles of buffers that were told, some of them freed since; and how many arrays and textures there were among them. */
static uint64_t told[16];
static uint32_t ntold, nmade;

static void remember(const uint8_t *inl)
{
	uint64_t words[sizeof(struct gantry_reply) / 8];
	struct gantry_reply reply;

	memcpy(&reply, inl, sizeof(reply));
	nmade += reply.status == GANTRY_OK &&
		 reply.len_bytes == sizeof(struct gantry_reply_variable);
	memcpy(words, inl, sizeof(words));
	for (uint32_t i = 0; i < GANTRY_ARRAY_SIZE(words); i++)
		if (GANTRY_HANDLE_TYPE(words[i]) == GANTRY_HANDLE_BUFFER &&
		    GANTRY_HANDLE_SLOT(words[i]) < GANTRY_LEDGER_NOBJECTS)
			told[ntold++ % GANTRY_ARRAY_SIZE(told)] = words[i];
}

static uint64_t one_told(uint64_t *state)
{
	return told[next_random(state) % GANTRY_ARRAY_SIZE(told)];
}

/* Arrays, and textures of what may be one: mostly such as a device takes. */
static struct gantry_op_texture random_texture(uint64_t *state,
					       struct gantry_wire_texture *ret_spec)
{
	static const uint32_t formats[] = { 1, 2, 3, 8, 9, 10, 16, 32, 77 };
	const struct gantry_op_texture op = {
		.device = (uint32_t)(next_random(state) % 3),
		.what = 1 + (uint32_t)(next_random(state) % (GANTRY_NTEXTURES - 1)),
		.object = next_random(state) % 2 ? 0 : one_told(state),
	};
	uint64_t wild = next_random(state);

	*ret_spec = (struct gantry_wire_texture){
		.width = next_random(state) % 64,
		.height = next_random(state) % 64,
		.depth = next_random(state) % 4,
		.format = formats[next_random(state) % GANTRY_ARRAY_SIZE(formats)],
		.channels = 1u << next_random(state) % 3,
		.flags = next_random(state) % 4 ? 0 : (uint32_t)(next_random(state) % 64),
		.levels = next_random(state) % 2 ? 0 : (uint32_t)(next_random(state) % 4),
	};
	if (next_random(state) % 3 == 0)
		memcpy((uint8_t *)ret_spec + next_random(state) % (sizeof(*ret_spec) / 8) * 8,
		       &wild, 8);
	return op;
}

/* What a device of another thread is asked has to be asked again to be answered. */
static void put_texture(uint64_t *state, struct gantry_desc *desc, uint8_t *inl)
{
	static struct gantry_op_texture op;
	static struct gantry_wire_texture spec;

	if (op.what == 0 || next_random(state) % 4 == 0)
		op = random_texture(state, &spec);
	gantry_desc_put_texture(desc, &op);
	desc->flags = GANTRY_DESC_INLINE;
	desc->len_bytes = sizeof(spec);
	memcpy(inl, &spec, sizeof(spec));
}

static void random_free(uint64_t *state, struct gantry_desc *desc)
{
	const struct gantry_op_buf_free op = { .buffer = one_told(state) };

	gantry_desc_put_buf_free(desc, &op);
}

/* Between two that are, or were, perhaps arrays. */
static void random_copy(uint64_t *state, struct gantry_desc *desc)
{
	const struct gantry_op_copy op = { .dst = one_told(state),
					   .dst_off = next_random(state) % 4096,
					   .src = one_told(state),
					   .src_off = next_random(state) % 4096,
					   .bytes = next_random(state) % 8192 };

	gantry_desc_put_copy(desc, &op);
}

static void storm(struct hostile *x, uint32_t rounds, uint64_t state)
{
	for (uint32_t i = 0; i < rounds; i++) {
		uint32_t ring = (uint32_t)next_random(&state) % 3;
		struct gantry_ring_producer *p = &x->rings[ring];
		uint8_t *inl;

		/* Until the slot is ours alone: ThreadSanitizer would find what the guest does to itself otherwise. */
		while (gantry_ring_reserve(p, 1) < 0 ||
		       gantry_ring_done(&p->map) + NSLOTS <= p->tail) {
			bell(x);
			sched_yield();
			ck_assert_int_eq(ended(x), 0);
		}
		inl = gantry_ring_inline(p, 0)->bytes;
		if (ring == 0 && p->tail >= NSLOTS)
			remember(inl);
		random_desc(&state, ring, gantry_ring_desc(p, 0));
		for (unsigned k = 0; k < GANTRY_INLINE_BYTES; k += 8) {
			uint64_t r = next_random(&state);

			memcpy(inl + k, &r, 8);
		}
		if (ring == 0 && next_random(&state) % 4 == 0)
			put_texture(&state, gantry_ring_desc(p, 0), inl);
		else if (ring == 0 && next_random(&state) % 4 == 0)
			random_free(&state, gantry_ring_desc(p, 0));
		else if (ring != 0 && next_random(&state) % 4 == 0)
			random_copy(&state, gantry_ring_desc(p, 0));
		(void)gantry_ring_publish(p, 1);
	}
	bell(x);
	for (uint32_t i = 0; i < 3; i++)
		eventually(gantry_ring_done(&x->rings[i].map) == x->rings[i].tail);
	ck_assert_int_eq(ended(x), 0);
}

START_TEST(test_hostile_random_descriptors_end_with_statuses)
{
	struct hostile x = hostile_start(one_cpu, 1);

	gantry_store_relaxed(&x.f.h->quota->virtual_bytes, (uint64_t)(64u << 20));
	gantry_store_relaxed(&x.f.h->quota->mem_bytes, (uint64_t)(16u << 20));
	storm(&x, 30000, 0x9e3779b97f4a7c15ull);
	hostile_end(&x);
}
END_TEST

START_TEST(test_hostile_random_descriptors_on_two_devices)
{
	struct hostile x = hostile_start(two_cpus, 2);

	gantry_store_relaxed(&x.f.h->quota->virtual_bytes, (uint64_t)(64u << 20));
	gantry_store_relaxed(&x.f.h->quota->mem_bytes, (uint64_t)(16u << 20));
	storm(&x, 30000, 0x2545f4914f6cdd1dull);
	hostile_end(&x);
}
END_TEST

#ifdef FAKE_DRIVER
#define FAKE_GPU "cuda driver=" FAKE_DRIVER " nvml=none"
static const char *const cpu_and_gpu[] = { "cpu cores=1", FAKE_GPU };
static const char *const gpu_and_cpu[] = { FAKE_GPU, "cpu cores=1" };

/* Questions to a device of another thread, or of the one that serves the control queue. */
START_TEST(test_hostile_random_descriptors_beside_a_gpu)
{
	struct hostile x = hostile_start(_i ? gpu_and_cpu : cpu_and_gpu, 2);
	const struct gantry_queue_options on_cpu = { .kind = GANTRY_KIND_CPU };

	ck_ok(gantry_queue_open(x.witness.s, &on_cpu, &x.witness.q));
	gantry_store_relaxed(&x.f.h->quota->virtual_bytes, (uint64_t)(64u << 20));
	gantry_store_relaxed(&x.f.h->quota->mem_bytes, (uint64_t)(16u << 20));
	storm(&x, 30000, 0xd1342543de82ef95ull);
	/* Of another thread's answers, many are asked for and not fetched. */
	ck_assert_uint_ge(nmade, _i ? 20 : 0);
	hostile_end(&x);
}
END_TEST
#endif

static const uint64_t tails[] = { NSLOTS + 1, UINT64_MAX, 1ull << 32, 1ull << 63 };

START_TEST(test_hostile_tail_that_makes_no_sense_ends_the_session)
{
	struct hostile x = hostile_start(one_cpu, 1);
	struct gantry_ring_producer *p = &x.rings[_i % 2 ? 0 : 1];

	gantry_store_release(&p->map.area->tail, p->tail + tails[_i]);
	bell(&x);
	eventually(ended(&x) == GANTRY_E_PROTOCOL);
	eventually(gantry_load_acquire(&host_session(&x.f)->detached));
	hostile_end(&x);
}
END_TEST

START_TEST(test_hostile_lower_tail_frees_no_buffer_in_use)
{
	struct hostile x = hostile_start(two_cpus, 2);
	gantry_buffer b = make_buffer(&x.f, 4096, GANTRY_ALLOC_DEVICE);
	struct gantry_ring_producer *p = &x.rings[1];
	gantry_ticket t;

	pause_queue(&x.f, x.f.q, 1);
	t = put_fill(&x.f, x.f.q, b, 1024, 1);
	await_taken(&x.f, x.f.q, GANTRY_TICKET_SEQ(t));
	gantry_store_release(&p->map.area->tail, (uint64_t)0);
	ck_ok(gantry_free(x.f.s, b));
	eventually(ended(&x) == GANTRY_E_PROTOCOL ||
		   gantry_load_acquire(&ledger_object(&x.f, b)->state) == GANTRY_OBJECT_DYING);
	ck_assert_int_ne(gantry_load_acquire(&ledger_object(&x.f, b)->state), GANTRY_OBJECT_FREE);
	hostile_end(&x);
}
END_TEST

static void put_wait(struct gantry_ring_producer *p, uint64_t ticket)
{
	ck_assert_int_eq(gantry_ring_reserve(p, 1), 0);
	gantry_desc_put_wait(gantry_ring_desc(p, 0), &(struct gantry_op_wait){ .ticket0 = ticket });
	(void)gantry_ring_publish(p, 1);
}

START_TEST(test_hostile_waits_that_cannot_end_are_refused)
{
	struct hostile x = hostile_start(one_cpu, 1);
	struct gantry_ring_producer *p = &x.rings[1];

	put_wait(p, GANTRY_TICKET(1, 1));   /* itself */
	put_wait(p, GANTRY_TICKET(1, 100)); /* later in its own queue */
	put_wait(p, GANTRY_TICKET(2, 1));   /* never put */
	put_wait(p, GANTRY_TICKET(63, 1));  /* no such queue */
	put_wait(p, GANTRY_TICKET(2, 0));   /* the task before all tasks */
	bell(&x);
	eventually(gantry_ring_done(&p->map) == p->tail);
	ck_assert_int_eq(gantry_ring_status(&p->map, 0), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_ring_status(&p->map, 1), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_ring_status(&p->map, 2), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_ring_status(&p->map, 3), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_ring_status(&p->map, 4), GANTRY_OK);
	hostile_end(&x);
}
END_TEST

START_TEST(test_hostile_circle_of_waits_hangs_alone_and_can_be_cancelled)
{
	struct hostile x = hostile_start(one_cpu, 1);
	struct gantry_ring_producer *a = &x.rings[1];
	struct gantry_ring_producer *b = &x.rings[2];

	/* Both are put before either is looked at. */
	pause_queue(&x.f, x.f.q, 1);
	put_wait(a, GANTRY_TICKET(2, 1));
	put_wait(b, GANTRY_TICKET(1, 1));
	bell(&x);
	pause_queue(&x.f, x.f.q, 0);
	for (int i = 0; i < 10; i++)
		ask_witness(&x);
	ck_assert_uint_eq(gantry_ring_done(&a->map), 0);
	ck_ok(gantry_cancel(x.f.s, x.f.q));
	eventually(gantry_ring_done(&b->map) == 1);
	ck_assert_int_eq(gantry_ring_status(&a->map, 0), GANTRY_E_CANCELLED);
	ck_assert_int_eq(gantry_ring_status(&b->map, 0), GANTRY_OK);
	hostile_end(&x);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hostile");
	TCase *tc = gantry_unit_case(suite, "hostile");

	tcase_add_test(tc, test_hostile_random_descriptors_end_with_statuses);
	tcase_add_test(tc, test_hostile_random_descriptors_on_two_devices);
#ifdef FAKE_DRIVER
	tcase_add_loop_test(tc, test_hostile_random_descriptors_beside_a_gpu, 0, 2);
#endif
	tcase_add_loop_test(tc, test_hostile_tail_that_makes_no_sense_ends_the_session, 0,
			    (int)(sizeof(tails) / sizeof(tails[0])));
	tcase_add_test(tc, test_hostile_lower_tail_frees_no_buffer_in_use);
	tcase_add_test(tc, test_hostile_waits_that_cannot_end_are_refused);
	tcase_add_test(tc, test_hostile_circle_of_waits_hangs_alone_and_can_be_cancelled);
	return gantry_unit_run(suite);
}
