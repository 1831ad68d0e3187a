/* SPDX-License-Identifier: Apache-2.0 */
/* What a successor makes of a ledger, at every step at which a worker may have died. */
#include <stdio.h>

#include "base/fd.h"
#include "host-agent/worker/worker.h"
#include "tests/inproc/fixture.h"

#define N 1024u

/* A host whose queue is paused with tasks that were taken and not issued. */
static struct fixture paused_fixture(void)
{
	struct fixture f = fixture_start(one_cpu, 1);

	pause_queue(&f, f.q, 1);
	return f;
}

static void recover_running(struct fixture *f, int verdict)
{
	ledger_queue(f, f->q)->guest_paused = 0;
	ck_assert_int_eq(inproc_recover(f->h, f->index, verdict), 0);
}

START_TEST(test_recovery_accepted_tasks_run)
{
	struct fixture f = paused_fixture();
	gantry_ticket t[3];

	for (int i = 0; i < 3; i++)
		t[i] = put_empty(&f, f.q);
	await_taken(&f, f.q, 3);
	inproc_crash(f.h, f.index);
	recover_running(&f, GANTRY_E_DEVICE_FAULT);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(outcome(&f, t[i]), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_tasks_in_the_ring_are_taken)
{
	struct fixture f = paused_fixture();
	gantry_ticket t;

	inproc_crash(f.h, f.index);
	/* The guest goes on putting while nobody serves. */
	t = 0;
	struct gantry_task task = { .kernel = 0 };
	ck_ok(gantry_submit(f.s, f.q, &task, 1, &t));
	recover_running(&f, 0);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_task_in_flight_is_in_doubt)
{
	struct fixture f = paused_fixture();
	gantry_ticket first = put_spin(&f, f.q, 1000);
	gantry_ticket second = put_spin(&f, f.q, 1000);

	await_taken(&f, f.q, 2);
	inproc_crash(f.h, f.index);
	ledger_queue(&f, f.q)->issued = 1;
	recover_running(&f, 0);
	ck_assert_int_eq(outcome(&f, second), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, first), GANTRY_E_IN_DOUBT);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_marker_between_tasks_in_flight_is_in_no_doubt)
{
	struct fixture f = paused_fixture();
	gantry_ticket first = put_spin(&f, f.q, 1000), marker, second;

	ck_ok(gantry_submit_marker(f.s, f.q, &marker));
	second = put_spin(&f, f.q, 1000);
	await_taken(&f, f.q, 3);
	inproc_crash(f.h, f.index);
	ledger_queue(&f, f.q)->issued = 3;
	recover_running(&f, 0);
	ck_assert_int_eq(outcome(&f, second), GANTRY_E_IN_DOUBT);
	ck_assert_int_eq(outcome(&f, first), GANTRY_E_IN_DOUBT);
	ck_assert_int_eq(outcome(&f, marker), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_idempotent_task_runs_again)
{
	struct fixture f = paused_fixture();
	uint64_t ns = 1000;
	gantry_ticket t = put_flags(&f, f.q, "spin", &ns, sizeof(ns), GANTRY_TASK_IDEMPOTENT);

	await_taken(&f, f.q, 1);
	inproc_crash(f.h, f.index);
	ledger_queue(&f, f.q)->issued = 1;
	recover_running(&f, 0);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_pure_kernel_and_copy_run_again)
{
	struct fixture f = paused_fixture();
	gantry_buffer a = make_buffer(&f, N * 4, GANTRY_ALLOC_DEVICE);
	gantry_buffer b = make_buffer(&f, N * 4, GANTRY_ALLOC_DEVICE);
	gantry_ticket fill = put_fill(&f, f.q, a, N, 7);
	gantry_ticket copy;
	uint32_t out[N];

	ck_ok(gantry_submit_copy(f.s, f.q, b, 0, a, 0, N * 4, &copy));
	await_taken(&f, f.q, 2);
	inproc_crash(f.h, f.index);
	ledger_queue(&f, f.q)->issued = 2;
	recover_running(&f, 0);
	ck_assert_int_eq(outcome(&f, copy), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, fill), GANTRY_OK);
	ck_ok(gantry_read(f.s, b, 0, out, sizeof(out)));
	ck_assert_uint_eq(out[N - 1], 7);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_verdict_is_for_the_oldest_task_only)
{
	struct fixture f = paused_fixture();
	uint64_t ns = 1000;
	gantry_ticket t[4];

	t[0] = put_flags(&f, f.q, "spin", &ns, sizeof(ns), GANTRY_TASK_IDEMPOTENT);
	t[1] = put_flags(&f, f.q, "spin", &ns, sizeof(ns), GANTRY_TASK_IDEMPOTENT);
	t[2] = put_spin(&f, f.q, ns);
	t[3] = put_spin(&f, f.q, ns);
	await_taken(&f, f.q, 4);
	inproc_crash(f.h, f.index);
	ledger_queue(&f, f.q)->issued = 3;
	recover_running(&f, GANTRY_E_DEVICE_FAULT);
	ck_assert_int_eq(outcome(&f, t[3]), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, t[0]), GANTRY_E_DEVICE_FAULT);
	ck_assert_int_eq(outcome(&f, t[1]), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, t[2]), GANTRY_E_IN_DOUBT);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_second_death_does_not_forget_the_doubt)
{
	struct fixture f = paused_fixture();
	gantry_ticket t = put_spin(&f, f.q, 1000);

	await_taken(&f, f.q, 1);
	inproc_crash(f.h, f.index);
	ledger_queue(&f, f.q)->issued = 1;
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0),
			 0); /* still paused: it does not come to it */
	inproc_crash(f.h, f.index);
	ck_assert_uint_eq(ledger_queue(&f, f.q)->issued, 0);
	recover_running(&f, GANTRY_E_DEVICE_FAULT);
	ck_assert_int_eq(outcome(&f, t), GANTRY_E_IN_DOUBT);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_cancelled_task_that_may_have_run_is_in_doubt)
{
	struct fixture f = paused_fixture();
	gantry_ticket first = put_spin(&f, f.q, 1000);
	gantry_ticket second = put_spin(&f, f.q, 1000);

	await_taken(&f, f.q, 2);
	inproc_crash(f.h, f.index);
	ledger_queue(&f, f.q)->issued = 1;
	ledger_queue(&f, f.q)->cancel_below = 2;
	recover_running(&f, 0);
	ck_assert_int_eq(outcome(&f, second), GANTRY_E_CANCELLED);
	ck_assert_int_eq(outcome(&f, first), GANTRY_E_IN_DOUBT);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_finished_tasks_and_data_stay)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer b = make_buffer(&f, N * 4, GANTRY_ALLOC_DEVICE);
	gantry_ticket bad = put_fail(&f, f.q);
	gantry_ticket fill = put_fill(&f, f.q, b, N, 9);
	uint32_t out[N];

	ck_assert_int_eq(outcome(&f, fill), GANTRY_OK);
	inproc_crash(f.h, f.index);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_int_eq(outcome(&f, bad), GANTRY_E_KERNEL);
	ck_assert_int_eq(outcome(&f, put_empty(&f, f.q)), GANTRY_OK);
	ck_ok(gantry_read(f.s, b, 0, out, sizeof(out)));
	ck_assert_uint_eq(out[0], 9);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_paused_queue_stays_paused)
{
	struct fixture f = paused_fixture();
	gantry_ticket t = put_empty(&f, f.q);

	await_taken(&f, f.q, 1);
	inproc_crash(f.h, f.index);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	(void)make_buffer(&f, 64, GANTRY_ALLOC_DEVICE); /* served, and nothing happened */
	ck_assert_int_eq(gantry_test(f.s, t), 0);
	pause_queue(&f, f.q, 0);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_closing_queue_is_closed)
{
	struct fixture f = fixture_start(one_cpu, 1);
	struct gantry_ledger_queue *queue = &host_session(&f)->ledger.queues[9];

	inproc_crash(f.h, f.index);
	queue->state = GANTRY_QUEUE_CLOSING;
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	eventually(gantry_load_acquire(&queue->state) == GANTRY_QUEUE_CLOSED);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_refused_queue_does_no_harm)
{
	struct fixture f = fixture_start(one_cpu, 1);
	const struct gantry_queue_options nowhere = { .kind = GANTRY_KIND_NULL };
	gantry_queue q;

	ck_assert_int_eq(gantry_queue_open(f.s, &nowhere, &q), GANTRY_E_NO_DEVICE);
	inproc_crash(f.h, f.index);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_int_eq(outcome(&f, put_empty(&f, f.q)), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

/* ---- objects ---- */

/* An object as a control operation that was not answered has made it. */
static struct gantry_ledger_object *half_made(struct fixture *f, uint32_t slot, uint8_t type)
{
	struct gantry_ledger_object *obj = &host_session(f)->ledger.objects[slot];

	ck_assert_uint_eq(obj->state, GANTRY_OBJECT_FREE);
	*obj = (struct gantry_ledger_object){
		.gen = 5,
		.type = type,
		.state = GANTRY_OBJECT_LIVE,
		.made_by = host_session(f)->ledger.queues[0].done + 1,
	};
	return obj;
}

START_TEST(test_recovery_half_made_objects_are_undone)
{
	struct fixture f = fixture_start(one_cpu, 1);
	struct gantry_ledger_queue *queue = &host_session(&f)->ledger.queues[9];
	struct gantry_ledger_object *buffer, *kernel, *image;

	inproc_crash(f.h, f.index);
	buffer = half_made(&f, 4000, GANTRY_HANDLE_BUFFER);
	buffer->buffer.bytes = 4096;
	buffer->buffer.rights = GANTRY_RW;
	host_session(&f)->ledger.hdr->virtual_used += 4096;
	f.h->quota->virtual_used += 4096;
	kernel = half_made(&f, 4001, GANTRY_HANDLE_KERNEL);
	strcpy(kernel->kernel.name, "core/empty");
	image = half_made(&f, 4002, GANTRY_HANDLE_IMAGE);
	strcpy(image->image.module, "core");
	ck_assert_uint_eq(queue->state, GANTRY_QUEUE_CLOSED);
	queue->state = GANTRY_QUEUE_OPEN;
	queue->opened_by = host_session(&f)->ledger.queues[0].done + 1;
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	eventually(gantry_load_acquire(&buffer->state) == GANTRY_OBJECT_FREE);
	eventually(gantry_load_acquire(&kernel->state) == GANTRY_OBJECT_FREE);
	eventually(gantry_load_acquire(&image->state) == GANTRY_OBJECT_FREE);
	ck_assert_uint_eq(gantry_load_acquire(&queue->state), GANTRY_QUEUE_CLOSED);
	eventually(gantry_load_acquire(&f.h->quota->virtual_used) ==
		   gantry_load_acquire(&host_session(&f)->ledger.hdr->virtual_used));
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_dying_buffer_is_given_back)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer b = make_buffer(&f, 1 << 20, GANTRY_ALLOC_DEVICE);

	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b, N, 1)), GANTRY_OK);
	ck_assert_uint_eq(f.h->quota->mem_used, 1 << 20);
	inproc_crash(f.h, f.index);
	ledger_object(&f, b)->state = GANTRY_OBJECT_DYING;
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	eventually(gantry_load_acquire(&ledger_object(&f, b)->state) == GANTRY_OBJECT_FREE);
	ck_assert_uint_eq(gantry_load_acquire(&f.h->quota->mem_used), 0);
	ck_assert_uint_eq(gantry_load_acquire(&f.h->pages[0]->hdr.mem_used), 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_buffer_that_was_being_backed_is_backed_anew)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer b = make_buffer(&f, 1 << 20, GANTRY_ALLOC_DEVICE);

	inproc_crash(f.h, f.index);
	ledger_object(&f, b)->buffer.place = GANTRY_PLACE_SLAB;
	ledger_object(&f, b)->buffer.off = 1 << 20;
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b, N, 1)), GANTRY_OK);
	ck_assert_uint_eq(f.h->quota->mem_used, 1 << 20);
	ck_assert_uint_eq(ledger_object(&f, b)->buffer.off, 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_counters_of_a_cut_charge_are_set_right)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer b = make_buffer(&f, 8192, GANTRY_ALLOC_DEVICE);

	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b, 16, 1)), GANTRY_OK);
	inproc_crash(f.h, f.index);
	host_session(&f)->ledger.hdr->resident_used += 4096;
	f.h->quota->mem_used += 4096;
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_uint_eq(f.h->quota->mem_used, 8192);
	ck_assert_uint_eq(host_session(&f)->ledger.hdr->resident_used, 8192);
	fixture_end(&f);
}
END_TEST

/* Variables of images have no place in the slab, and are lost with their worker. */
START_TEST(test_recovery_variables_of_images_are_in_nobodys_way)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer b = make_buffer(&f, 8192, GANTRY_ALLOC_DEVICE), variable[2];

	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b, N, 7)), GANTRY_OK);
	ck_assert_uint_eq(ledger_object(&f, b)->buffer.off, 0);
	for (uint32_t i = 0; i < 2; i++)
		variable[i] = make_buffer(&f, 256, GANTRY_ALLOC_DEVICE);
	inproc_crash(f.h, f.index);
	for (uint32_t i = 0; i < 2; i++) {
		ledger_object(&f, variable[i])->buffer.place = GANTRY_PLACE_IMAGE;
		ledger_object(&f, variable[i])->buffer.alloc_flags = 0;
	}
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_uint_eq(f.h->quota->virtual_used, 8192); /* a variable is its image's */
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b, N, 8)), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, variable[0], 64, 8)), GANTRY_E_NOT_FOUND);
	for (uint32_t i = 0; i < 2; i++)
		ck_ok(gantry_free(f.s, variable[i]));
	ck_ok(gantry_free(f.s, b));
	eventually(gantry_load_acquire(&f.h->quota->virtual_used) == 0);
	fixture_end(&f);
}
END_TEST

/* Its device's thread had made it, and the control queue had not come for it. */
START_TEST(test_recovery_variable_that_nobody_was_told_of_is_undone)
{
	struct fixture f = fixture_start(one_cpu, 1);
	struct gantry_ledger_object *variable;

	inproc_crash(f.h, f.index);
	variable = half_made(&f, 4000, GANTRY_HANDLE_BUFFER);
	variable->made_by = GANTRY_LEDGER_POSITION_MAX;
	variable->buffer.bytes = 8;
	variable->buffer.rights = GANTRY_RW;
	variable->buffer.place = GANTRY_PLACE_IMAGE;
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	eventually(gantry_load_acquire(&variable->state) == GANTRY_OBJECT_FREE);
	ck_assert_uint_eq(f.h->quota->virtual_used, 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_variant_of_a_kernel)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_kernel k = find(&f, "empty");
	struct gantry_task task = { .kernel = k };
	gantry_image image;
	gantry_ticket t;

	ck_ok(gantry_image_find(f.s, "core", &image));
	ck_ok(gantry_kernel_variant(f.s, k, image, "empty", GANTRY_KIND_CPU));
	inproc_crash(f.h, f.index);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_ok(gantry_submit(f.s, f.q, &task, 1, &t));
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	/* Its slot as a buffer's: nothing of the variant is left in it. */
	ck_ok(gantry_kernel_free(f.s, k));
	for (int i = 0; i < 8; i++)
		(void)make_buffer(&f, 64, GANTRY_ALLOC_DEVICE);
	inproc_crash(f.h, f.index);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_shared_buffer_is_found_or_lost)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer kept = make_buffer(&f, N * 4, GANTRY_ALLOC_SHARED);
	gantry_buffer lost = make_buffer(&f, N * 4, GANTRY_ALLOC_SHARED);
	uint64_t lost_id = ledger_object(&f, lost)->buffer.share_id;
	uint32_t out[N];

	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, kept, N, 3)), GANTRY_OK);
	inproc_crash(f.h, f.index);
	for (uint32_t i = 0; i < INPROC_MAX_KEPT; i++)
		if (f.h->kept[i].used && f.h->kept[i].share_id == lost_id) {
			gantry_fd_close(f.h->kept[i].fd);
			f.h->kept[i].used = false;
		}
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_ok(gantry_read(f.s, kept, 0, out, sizeof(out)));
	ck_assert_uint_eq(out[N - 1], 3);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, lost, N, 3)), GANTRY_E_HANDLE);
	fixture_end(&f);
}
END_TEST

/* ---- ledgers that lie ---- */

static void lie_heap(struct fixture *f, gantry_buffer b)
{
	struct gantry_ledger_buffer *buffer = &ledger_object(f, b)->buffer;

	/* Inside the segment, past the heap. */
	buffer->place = GANTRY_PLACE_HEAP;
	buffer->off = host_session(f)->segment_bytes - buffer->bytes;
}

static void lie_device(struct fixture *f, gantry_buffer b)
{
	ledger_object(f, b)->buffer.device = 63;
}

static void lie_nowhere_but_charged(struct fixture *f, gantry_buffer b)
{
	ledger_object(f, b)->buffer.off = 1ull << 40;
	ledger_object(f, b)->buffer.charged_bytes = 4096;
}

static void lie_slab_between_pages(struct fixture *f, gantry_buffer b)
{
	ledger_object(f, b)->buffer.place = GANTRY_PLACE_SLAB;
	ledger_object(f, b)->buffer.charged_bytes = 4096;
	ledger_object(f, b)->buffer.off = 64;
}

static void lie_slab_adopted(struct fixture *f, gantry_buffer b)
{
	ledger_object(f, b)->buffer.place = GANTRY_PLACE_SLAB;
	ledger_object(f, b)->buffer.adopted = 1;
}

static void lie_slab_overcharged(struct fixture *f, gantry_buffer b)
{
	ledger_object(f, b)->buffer.place = GANTRY_PLACE_SLAB;
	ledger_object(f, b)->buffer.charged_bytes = 1ull << 40;
}

static void lie_closed_with_tasks(struct fixture *f, gantry_buffer b)
{
	(void)b;
	host_session(f)->ledger.queues[9].taken = 1;
}

static void (*const lies[])(struct fixture *f, gantry_buffer b) = {
	lie_heap,	  lie_device,		lie_nowhere_but_charged, lie_slab_between_pages,
	lie_slab_adopted, lie_slab_overcharged, lie_closed_with_tasks,
};

START_TEST(test_recovery_ledger_that_lies_is_refused)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer b = make_buffer(&f, 4096, GANTRY_ALLOC_DEVICE);
	struct gantry_ledger_object honest;

	inproc_crash(f.h, f.index);
	honest = *ledger_object(&f, b);
	lies[_i](&f, b);
	ck_assert_int_lt(inproc_recover(f.h, f.index, 0), 0);
	*ledger_object(&f, b) = honest;
	host_session(&f)->ledger.queues[9].taken = 0;
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b, N, 3)), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_settle_refunds_at_most_the_sessions_own_limit)
{
	struct fixture f = fixture_start(one_cpu, 1);
	struct fixture g = { .h = f.h };
	struct gantry_ledger_header *hdr = host_session(&f)->ledger.hdr;
	struct gantry_share_page *pages[1] = { f.h->pages[0] };
	gantry_buffer b;

	fixture_session(&g, NULL);
	b = make_buffer(&g, 1 << 20, GANTRY_ALLOC_DEVICE);
	ck_assert_int_eq(outcome(&g, put_fill(&g, g.q, b, N, 1)), GANTRY_OK);
	inproc_crash(f.h, f.index);
	hdr->resident_used = UINT64_MAX;
	hdr->virtual_used = UINT64_MAX;
	gantry_quota_settle(f.h->quota, pages, 1, &host_session(&f)->ledger, 0, 0);
	ck_assert_uint_eq(f.h->quota->mem_used, 1 << 20);
	ck_assert_uint_ge(f.h->quota->virtual_used, 1 << 20);
	ck_assert_uint_eq(hdr->resident_used, 0);
	gantry_close(g.s);
	fixture_end(&f);
}
END_TEST

/* A program has one, as a rule; of several, what kernels print goes to the newest, wherever the ledger has it. */
START_TEST(test_recovery_prints_to_the_buffer_that_was_made_last)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_buffer other = make_buffer(&f, 4096, GANTRY_ALLOC_HOST), first, last = 0;
	struct wsession *s;

	f.h->quota->nobjects = 16;
	ck_ok(gantry_alloc(f.s, GANTRY_OUTPUT_MIN_BYTES, GANTRY_ALLOC_HOST | GANTRY_ALLOC_OUTPUT,
			   &first));
	ck_ok(gantry_free(f.s, other));
	/* Places are used in turn. */
	do {
		if (last)
			ck_ok(gantry_free(f.s, last));
		ck_ok(gantry_alloc(f.s, GANTRY_OUTPUT_MIN_BYTES,
				   GANTRY_ALLOC_HOST | GANTRY_ALLOC_OUTPUT, &last));
	} while (GANTRY_HANDLE_SLOT(last) > GANTRY_HANDLE_SLOT(first));
	inproc_crash(f.h, f.index);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	s = worker_session_get(f.h->engine, host_session(&f)->id);
	ck_assert_ptr_nonnull(s);
	ck_assert_uint_eq(gantry_load_relaxed(&s->output), GANTRY_HANDLE_SLOT(last) + 1);
	worker_session_leave(s);
	fixture_end(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("recovery");
	TCase *tc = gantry_unit_case(suite, "recovery");

	tcase_add_test(tc, test_recovery_prints_to_the_buffer_that_was_made_last);
	tcase_add_test(tc, test_recovery_accepted_tasks_run);
	tcase_add_test(tc, test_recovery_tasks_in_the_ring_are_taken);
	tcase_add_test(tc, test_recovery_task_in_flight_is_in_doubt);
	tcase_add_test(tc, test_recovery_marker_between_tasks_in_flight_is_in_no_doubt);
	tcase_add_test(tc, test_recovery_idempotent_task_runs_again);
	tcase_add_test(tc, test_recovery_pure_kernel_and_copy_run_again);
	tcase_add_test(tc, test_recovery_verdict_is_for_the_oldest_task_only);
	tcase_add_test(tc, test_recovery_second_death_does_not_forget_the_doubt);
	tcase_add_test(tc, test_recovery_cancelled_task_that_may_have_run_is_in_doubt);
	tcase_add_test(tc, test_recovery_finished_tasks_and_data_stay);
	tcase_add_test(tc, test_recovery_paused_queue_stays_paused);
	tcase_add_test(tc, test_recovery_closing_queue_is_closed);
	tcase_add_test(tc, test_recovery_refused_queue_does_no_harm);
	tcase_add_test(tc, test_recovery_half_made_objects_are_undone);
	tcase_add_test(tc, test_recovery_dying_buffer_is_given_back);
	tcase_add_test(tc, test_recovery_buffer_that_was_being_backed_is_backed_anew);
	tcase_add_test(tc, test_recovery_counters_of_a_cut_charge_are_set_right);
	tcase_add_test(tc, test_recovery_variables_of_images_are_in_nobodys_way);
	tcase_add_test(tc, test_recovery_variable_that_nobody_was_told_of_is_undone);
	tcase_add_test(tc, test_recovery_variant_of_a_kernel);
	tcase_add_test(tc, test_recovery_shared_buffer_is_found_or_lost);
	tcase_add_loop_test(tc, test_recovery_ledger_that_lies_is_refused, 0,
			    (int)(sizeof(lies) / sizeof(lies[0])));
	tcase_add_test(tc, test_settle_refunds_at_most_the_sessions_own_limit);
	return gantry_unit_run(suite);
}
