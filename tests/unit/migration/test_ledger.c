/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "migration/ledger.h"
#include "tests/unit/runner.h"

#define NQUEUES	      4u
#define NSLOTS	      16u
#define SLAB_BYTES    (1ull << 20)
#define SEGMENT_BYTES (2ull << 20)

/* Slots of the objects of the ledger that the tests start from. */
enum {
	SLAB_A = 0,
	SLAB_B = 1,
	IN_HEAP = 2,
	OF_ITS_OWN = 3,
	VIRTUAL = 4,
	KERNEL = 5,
	IMAGE = 6,
	DYING = 7,
	LAST = GANTRY_LEDGER_NOBJECTS - 1,
};

static struct gantry_ledger ledger;
static int ledger_fd = -EBADF;

static void put_buffer(uint32_t slot, uint32_t place, uint64_t off, uint64_t bytes)
{
	struct gantry_ledger_object *o = &ledger.objects[slot];

	o->gen = 1;
	o->type = GANTRY_HANDLE_BUFFER;
	o->buffer.bytes = bytes;
	o->buffer.off = off;
	o->buffer.place = place;
	o->buffer.rights = GANTRY_RW;
	o->buffer.share_id = place == GANTRY_PLACE_OWN ? 7 : 0;
	o->state = GANTRY_OBJECT_LIVE;
}

static void put_queue(uint32_t slot, uint64_t done, uint64_t issued, uint64_t taken)
{
	struct gantry_ledger_queue *q = &ledger.queues[slot];

	q->taken = taken;
	q->issued = issued;
	q->done = done;
	q->state = GANTRY_QUEUE_OPEN;
	q->kind = GANTRY_KIND_CPU;
}

/* A ledger with one object of each kind; everything in it is allowed. */
static void setup(void)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_msg(gantry_ledger_create(42, "red", NQUEUES, NSLOTS, SEGMENT_BYTES, SLAB_BYTES,
					   &ledger, &ledger_fd, &err) == 0,
		      "%s", err.text);
	put_buffer(SLAB_A, GANTRY_PLACE_SLAB, 0, 4096);
	put_buffer(SLAB_B, GANTRY_PLACE_WINDOW, 4096, SLAB_BYTES / 2);
	put_buffer(LAST, GANTRY_PLACE_SLAB, SLAB_BYTES - 64, 64);
	put_buffer(IN_HEAP, GANTRY_PLACE_HEAP, SEGMENT_BYTES - 64, 64);
	put_buffer(OF_ITS_OWN, GANTRY_PLACE_OWN, 0, 1 << 30);
	put_buffer(VIRTUAL, GANTRY_PLACE_NONE, 0, GANTRY_MAX_BUFFER_BYTES);
	put_buffer(DYING, GANTRY_PLACE_SLAB, SLAB_BYTES - 4096, 1024);
	ledger.objects[DYING].state = GANTRY_OBJECT_DYING;
	ledger.objects[KERNEL].type = GANTRY_HANDLE_KERNEL;
	ledger.objects[KERNEL].state = GANTRY_OBJECT_LIVE;
	strcpy(ledger.objects[KERNEL].kernel.name, "gemm_f32");
	ledger.objects[IMAGE].type = GANTRY_HANDLE_IMAGE;
	ledger.objects[IMAGE].state = GANTRY_OBJECT_LIVE;
	strcpy(ledger.objects[IMAGE].image.module, "core");
	put_queue(0, 5, 5, 5);
	put_queue(1, 100, 104, 100 + NSLOTS);
	put_queue(2, 0, 0, 3);
}

static void teardown(void)
{
	gantry_ledger_close(&ledger);
	ledger_fd = gantry_fd_close(ledger_fd);
}

#define RANGE_HANDLE GANTRY_HANDLE(GANTRY_HANDLE_BUFFER, 1, DYING)

/* SLAB_B, in its window, lies in a range too. */
static void mapped(void)
{
	struct gantry_ledger_buffer *b = &ledger.objects[SLAB_B].buffer;

	b->alloc_flags = GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_FIXED | GANTRY_ALLOC_WHOLE;
	b->address = 1ull << 40;
	b->range = RANGE_HANDLE;
	b->range_off = 4096;
	b->range_rights = GANTRY_RW;
}

static int check(struct gantry_err *err)
{
	return gantry_ledger_check(ledger.hdr, ledger.bytes, err);
}

static void assert_refused(const char *words)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_ledger other;

	ck_assert_int_eq(check(&err), -EINVAL);
	ck_assert_msg(strstr(err.text, words) != NULL, "'%s' lacks '%s'", err.text, words);
	ck_assert_int_eq(gantry_ledger_open(ledger_fd, &other, NULL), -EINVAL);
}

/* ---- shape ---- */

START_TEST(test_ledger_bytes_shape_not_allowed_is_zero)
{
	ck_assert_uint_eq(gantry_ledger_bytes(0, 16), 0);
	ck_assert_uint_eq(gantry_ledger_bytes(GANTRY_MAX_QUEUES + 1, 16), 0);
	ck_assert_uint_eq(gantry_ledger_bytes(1, 0), 0);
	ck_assert_uint_eq(gantry_ledger_bytes(1, 8), 0);
	ck_assert_uint_eq(gantry_ledger_bytes(1, 24), 0);
	ck_assert_uint_eq(gantry_ledger_bytes(1, GANTRY_MAX_SLOTS * 2), 0);
	ck_assert_uint_eq(gantry_ledger_bytes(UINT32_MAX, 16), 0);
}
END_TEST

START_TEST(test_ledger_bytes_holds_all_tables)
{
	uint64_t bytes = gantry_ledger_bytes(GANTRY_MAX_QUEUES, GANTRY_MAX_SLOTS);

	ck_assert_uint_ge(bytes, (uint64_t)GANTRY_MAX_QUEUES * GANTRY_MAX_SLOTS * 256 +
					 (uint64_t)GANTRY_LEDGER_NOBJECTS * 128);
	ck_assert_uint_eq(bytes % GANTRY_PAGE, 0);
}
END_TEST

START_TEST(test_create_bad_arguments_leaves_outputs_alone)
{
	struct gantry_ledger l = { .bytes = 77 };
	int fd = -7;

	ck_assert_int_eq(gantry_ledger_create(1, "red", 0, 16, 0, 0, &l, &fd, NULL), -EINVAL);
	ck_assert_int_eq(gantry_ledger_create(1, "", 1, 16, 0, 0, &l, &fd, NULL), -EINVAL);
	ck_assert_int_eq(gantry_ledger_create(1, NULL, 1, 16, 0, 0, &l, &fd, NULL), -EINVAL);
	ck_assert_int_eq(gantry_ledger_create(1, "Red!", 1, 16, 0, 0, &l, &fd, NULL), -EINVAL);
	ck_assert_int_eq(gantry_ledger_create(1, "r2345678901234567890123456789012", 1, 16, 0, 0,
					      &l, &fd, NULL),
			 -EINVAL);
	ck_assert_int_eq(gantry_ledger_create(1, "red", 1, 16, UINT64_MAX, 0, &l, &fd, NULL),
			 -EINVAL);
	ck_assert_int_eq(gantry_ledger_create(1, "red", 1, 16, 0, UINT64_MAX, &l, &fd, NULL),
			 -EINVAL);
	ck_assert_int_eq(fd, -7);
	ck_assert_uint_eq(l.bytes, 77);
}
END_TEST

START_TEST(test_close_null_and_closed_are_harmless)
{
	struct gantry_ledger l = { 0 };

	gantry_ledger_close(NULL);
	gantry_ledger_close(&l);
	gantry_ledger_close(&l);
}
END_TEST

START_TEST(test_open_after_create_sees_the_same)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_ledger other;

	ck_assert_msg(gantry_ledger_open(ledger_fd, &other, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(other.bytes, gantry_ledger_bytes(NQUEUES, NSLOTS));
	ck_assert_uint_eq(other.hdr->session_id, 42);
	ck_assert_str_eq(other.hdr->tenant, "red");
	ck_assert_uint_eq(other.queues[1].issued, 104);
	ck_assert_str_eq(other.objects[KERNEL].kernel.name, "gemm_f32");
	ck_assert_uint_eq(other.objects[LAST].buffer.bytes, 64);

	gantry_ledger_task(&ledger, NQUEUES - 1, 15)->desc.op = 9;
	ck_assert_uint_eq(gantry_ledger_task(&other, NQUEUES - 1, 15 + NSLOTS)->desc.op, 9);
	ck_assert_ptr_eq(gantry_ledger_task(&other, 0, 0), other.tasks);
	/* What its writer does to the header later moves no reader past the end. */
	ledger.hdr->nslots = 1u << 30;
	ck_assert_ptr_eq(gantry_ledger_task(&other, 1, NSLOTS - 1), &other.tasks[2 * NSLOTS - 1]);
	gantry_ledger_close(&other);
	ck_assert_ptr_null(other.hdr);
}
END_TEST

START_TEST(test_open_unsealed_memfd_refused)
{
	struct gantry_ledger other;
	int fd = -EBADF;

	ck_assert_int_eq(gantry_memfd_create("x", ledger.bytes, 0, &fd), 0);
	ck_assert_int_eq(gantry_write_all(fd, ledger.hdr, ledger.bytes), 0);
	ck_assert_int_eq(gantry_ledger_open(fd, &other, NULL), -EPERM);
	gantry_fd_close(fd);
}
END_TEST

START_TEST(test_open_tiny_or_huge_memfd_refused)
{
	struct gantry_ledger other;
	int fd = -EBADF;

	ck_assert_int_eq(gantry_memfd_create("x", 64, GANTRY_MEMFD_SEALED, &fd), 0);
	ck_assert_int_eq(gantry_ledger_open(fd, &other, NULL), -ERANGE);
	fd = gantry_fd_close(fd);
	ck_assert_int_eq(gantry_memfd_create("x", 1ull << 40, GANTRY_MEMFD_SEALED, &fd), 0);
	ck_assert_int_eq(gantry_ledger_open(fd, &other, NULL), -EINVAL);
	gantry_fd_close(fd);
	ck_assert_int_lt(gantry_ledger_open(-1, &other, NULL), 0);
}
END_TEST

/* ---- one test for each kind of corruption: @statement breaks the ledger, the sentence says @words ---- */

#define REFUSED(name, statement, words)           \
	START_TEST(test_check_##name##_refused)   \
	{                                         \
		ck_assert_int_eq(check(NULL), 0); \
		statement;                        \
		assert_refused(words);            \
	}                                         \
	END_TEST

#define HDR	     (ledger.hdr)
#define QUEUE	     (&ledger.queues[1])
#define OBJECT(slot) (&ledger.objects[slot])
#define BUFFER(slot) (&ledger.objects[slot].buffer)

START_TEST(test_devices_that_change_places_keep_their_numbers_apart)
{
	uint64_t places = 0;

	for (uint32_t i = 0; i < 10; i++)
		ck_assert_uint_eq(gantry_ledger_device(0, i), i);
	places = gantry_ledger_exchange(places, 0, 1);
	ck_assert_uint_eq(gantry_ledger_device(places, 0), 1);
	ck_assert_uint_eq(gantry_ledger_device(places, 1), 0);
	ck_assert_uint_eq(gantry_ledger_device(places, 2), 2);
	ck_assert_uint_eq(gantry_ledger_number(places, 1), 0);
	/* On from there: what the guest calls 0 is at 7 now, and 1 stays where it went. */
	places = gantry_ledger_exchange(places, 1, 7);
	ck_assert_uint_eq(gantry_ledger_device(places, 0), 7);
	ck_assert_uint_eq(gantry_ledger_device(places, 1), 0);
	ck_assert_uint_eq(gantry_ledger_device(places, 7), 1);
	for (uint32_t i = 0; i < 10; i++)
		ck_assert_uint_eq(gantry_ledger_number(places, gantry_ledger_device(places, i)), i);
	HDR->places = places | GANTRY_LEDGER_HANDS_OVER(1, 7);
	ck_assert_int_eq(check(NULL), 0);
	ck_assert_uint_eq(GANTRY_LEDGER_HANDS_FROM(HDR->places), 1);
	ck_assert_uint_eq(GANTRY_LEDGER_HANDS_TO(HDR->places), 7);
	ck_assert_uint_eq(GANTRY_LEDGER_NUMBERING(HDR->places), places);
	/* And all the way back. */
	places = gantry_ledger_exchange(gantry_ledger_exchange(places, 7, 1), 1, 0);
	ck_assert_uint_eq(places, 0);
}
END_TEST

static __typeof__(((struct gantry_ledger_image *)0)->own) *own_image(uint64_t off, uint64_t bytes)
{
	struct gantry_ledger_image *image = &OBJECT(IMAGE)->image;

	memset(image, 0, sizeof(*image));
	image->own.off = off;
	image->own.bytes = bytes;
	image->own.kind = GANTRY_KIND_CUDA;
	return &image->own;
}

static __typeof__(((struct gantry_ledger_kernel *)0)->own) *own_kernel(void)
{
	struct gantry_ledger_kernel *kernel = &OBJECT(KERNEL)->kernel;

	memset(kernel, 0, sizeof(*kernel));
	kernel->own.image = GANTRY_HANDLE(GANTRY_HANDLE_IMAGE, 1, IMAGE);
	kernel->own.symbol_bytes = 4;
	kernel->own.sig_bytes = 5;
	return &kernel->own;
}

/* REFUSED_LIST names each once, for the tests and for main(). */
#define REFUSED_LIST(R)                                                                            \
	R(magic, HDR->magic++, "no ledger")                                                        \
	R(version, HDR->version++, "version")                                                      \
	R(nqueues_zero, HDR->nqueues = 0, "queues")                                                \
	R(nqueues_huge, HDR->nqueues = UINT32_MAX, "queues")                                       \
	R(nqueues_more, HDR->nqueues++, "not")                                                     \
	R(nslots_odd, HDR->nslots = 17, "slots")                                                   \
	R(nslots_huge, HDR->nslots = 1u << 31, "slots")                                            \
	R(nslots_double, HDR->nslots *= 2, "bytes")                                                \
	R(nobjects, HDR->nobjects--, "objects")                                                    \
	R(queues_off, HDR->queues_off -= 64, "belongs")                                            \
	R(objects_off, HDR->objects_off = UINT64_MAX - 63, "belongs")                              \
	R(tasks_off, HDR->tasks_off += 4096, "belongs")                                            \
	R(ledger_bytes, HDR->ledger_bytes += 4096, "bytes")                                        \
	R(segment_huge, HDR->segment_bytes = UINT64_MAX, "segment")                                \
	R(slab_huge, HDR->slab_bytes = UINT64_MAX, "slab")                                         \
	R(tenant_unterminated, memset(HDR->tenant, 'a', sizeof(HDR->tenant)), "tenant")            \
	R(tenant_empty, HDR->tenant[0] = '\0', "tenant")                                           \
	R(tenant_path, strcpy(HDR->tenant, "../red"), "tenant")                                    \
	R(detach, HDR->detach = 2, "detach")                                                       \
	R(condemned, HDR->condemned = UINT64_MAX, "condemned")                                     \
	R(numbers_twice, HDR->places = 1, "numbers")                                               \
	R(numbers_past_all, HDR->places = 8, "numbers")                                            \
	R(hands_over_from_nowhere, HDR->places = 1ull << 40, "numbers")                            \
	R(hands_over_to_itself, HDR->places = GANTRY_LEDGER_HANDS_OVER(2, 2), "numbers")           \
	R(hands_over_past_all, HDR->places = GANTRY_LEDGER_HANDS_OVER(0, 8), "numbers")            \
	R(hands_over_rest, HDR->places = 1ull << 63, "numbers")                                    \
	R(header_reserved, HDR->pad1[0] = 1, "reserved")                                           \
	R(cursor_done_past_issued, QUEUE->done = QUEUE->issued + 1, "queue 1")                     \
	R(cursor_issued_past_taken, QUEUE->issued = QUEUE->taken + 1, "queue 1")                   \
	R(cursor_taken_past_ring, QUEUE->taken++, "queue 1")                                       \
	R(cursor_wraps, QUEUE->done = QUEUE->issued = QUEUE->taken = UINT64_MAX, "queue 1")        \
	R(cursor_taken_zero, QUEUE->taken = 0, "queue 1")                                          \
	R(failed_past_taken, QUEUE->nfailed = QUEUE->taken + 1, "queue 1")                         \
	R(queue_state, QUEUE->state = GANTRY_QUEUE_CLOSING + 1, "state 3")                         \
	R(queue_kind, QUEUE->kind = GANTRY_NKINDS, "kind")                                         \
	R(queue_device, QUEUE->device = 64, "device 64")                                           \
	R(queue_fail_stop, QUEUE->fail_stop = 2, "flag")                                           \
	R(queue_guest_paused, QUEUE->guest_paused = 2, "flag")                                     \
	R(queue_broken, QUEUE->broken = UINT32_MAX, "flag")                                        \
	R(queue_paused, QUEUE->paused = 8, "flag")                                                 \
	R(queue_sorted, QUEUE->sorted = 2, "flag")                                                 \
	R(queue_untried, QUEUE->untried_below = UINT64_MAX, "queue 1")                             \
	R(queue_verdict_positive, QUEUE->verdict = 1, "verdict")                                   \
	R(queue_verdict_unknown, QUEUE->verdict = INT32_MIN, "verdict")                            \
	R(queue_lane_of_no_device, QUEUE->lane = 1, "lane")                                        \
	R(queue_lane_of_device_64, QUEUE->lane = GANTRY_LEDGER_LANE(64, 0), "lane")                \
	R(queue_lane_64, QUEUE->lane = GANTRY_LEDGER_LANE(0, 64), "lane")                          \
	R(queue_reserved, QUEUE->pad1[43] = 1, "reserved")                                         \
	R(object_state, OBJECT(SLAB_A)->state = 3, "state 3")                                      \
	R(object_type_none, OBJECT(SLAB_A)->type = GANTRY_HANDLE_NONE, "type 0")                   \
	R(object_type_queue, OBJECT(SLAB_A)->type = GANTRY_HANDLE_QUEUE, "type 4")                 \
	R(queue_doubt_past_taken, QUEUE->doubt_below = QUEUE->taken + 1, "queue 1")                \
	R(queue_opened_by, QUEUE->opened_by = UINT64_MAX, "queue 1")                               \
	R(object_variant_of_buffer, OBJECT(LAST)->variant_of = 1, "variant")                       \
	R(object_variant_kind, OBJECT(KERNEL)->variant_kind = 1, "variant")                        \
	R(object_variant_nowhere, OBJECT(KERNEL)->variant_of = UINT64_MAX, "variant")              \
	R(object_made_by, OBJECT(LAST)->made_by = UINT64_MAX, "made by")                           \
	R(buffer_empty, BUFFER(SLAB_A)->bytes = 0, "0 bytes")                                      \
	R(buffer_huge, BUFFER(VIRTUAL)->bytes = GANTRY_MAX_BUFFER_BYTES + 1, "bytes")              \
	R(buffer_charge, BUFFER(SLAB_A)->charged_bytes = UINT64_MAX, "charged")                    \
	R(buffer_place, BUFFER(SLAB_A)->place = GANTRY_PLACE_RANGE + 1, "nowhere")                 \
	R(buffer_variable_placed,                                                                  \
	  (BUFFER(SLAB_A)->place = GANTRY_PLACE_IMAGE, BUFFER(SLAB_A)->off = 4096), "nowhere")     \
	R(buffer_host_charge, BUFFER(SLAB_A)->host_bytes = UINT64_MAX, "charged")                  \
	R(buffer_host_copy, BUFFER(SLAB_B)->host_copy = GANTRY_HOST_COPY_CLEAN + 1, "flag")        \
	R(buffer_to, BUFFER(SLAB_B)->to = 65, "device")                                            \
	R(window_past_slab, BUFFER(SLAB_B)->off = SLAB_BYTES / 2 + 4096, "nowhere")                \
	R(buffer_past_slab, BUFFER(LAST)->bytes = 65, "nowhere")                                   \
	R(buffer_off_wraps, BUFFER(LAST)->off = UINT64_MAX - 31, "nowhere")                        \
	R(buffer_past_segment, BUFFER(IN_HEAP)->off += 1, "nowhere")                               \
	R(buffer_own_unnamed, BUFFER(OF_ITS_OWN)->share_id = 0, "nowhere")                         \
	R(buffer_own_off_wraps, BUFFER(OF_ITS_OWN)->off = UINT64_MAX, "nowhere")                   \
	R(buffer_device, BUFFER(SLAB_A)->device = 64, "device")                                    \
	R(buffer_rights_none, BUFFER(SLAB_A)->rights = 0, "rights")                                \
	R(buffer_rights_unknown, BUFFER(SLAB_A)->rights = GANTRY_C, "rights")                      \
	R(buffer_flags, BUFFER(SLAB_A)->alloc_flags = 64, "flag")                                  \
	R(buffer_output_elsewhere, BUFFER(SLAB_A)->alloc_flags = GANTRY_ALLOC_OUTPUT,              \
	  "output of kernels")                                                                     \
	R(buffer_adopted, BUFFER(SLAB_A)->adopted = 2, "flag")                                     \
	R(buffer_replicas, BUFFER(SLAB_A)->replicas = 1, "in no window")                           \
	R(buffer_address_without_fixed, BUFFER(SLAB_A)->address = 4096, "of what has none")        \
	R(range_nowhere, BUFFER(SLAB_A)->place = GANTRY_PLACE_RANGE, "nowhere")                    \
	R(range_wraps,                                                                             \
	  (BUFFER(SLAB_A)->place = GANTRY_PLACE_RANGE, BUFFER(SLAB_A)->off = 0,                    \
	   BUFFER(SLAB_A)->address = UINT64_MAX),                                                  \
	  "nowhere")                                                                               \
	R(mapped_without_slabs, BUFFER(SLAB_A)->range = RANGE_HANDLE, "mapped so")                 \
	R(mapped_nowhere, (mapped(), BUFFER(SLAB_B)->range = 1), "mapped so")                      \
	R(mapped_past_all, (mapped(), BUFFER(SLAB_B)->range_off = UINT64_MAX), "mapped so")        \
	R(mapped_rights, (mapped(), BUFFER(SLAB_B)->range_rights = 2), "mapped so")                \
	R(mapped_reserved, (mapped(), BUFFER(SLAB_B)->reserved = 1), "mapped so")                  \
	R(slab_overlap_by_one, BUFFER(SLAB_A)->bytes = 4097, "objects 0 and 1")                    \
	R(slab_overlap_same, BUFFER(SLAB_B)->off = 0, "lie on each other")                         \
	R(slab_overlap_inside, BUFFER(LAST)->off = 8192, "lie on each other")                      \
	R(slab_overlap_dying, BUFFER(LAST)->off = SLAB_BYTES - 4096, "lie on each other")          \
	R(kernel_unterminated, memset(OBJECT(KERNEL)->kernel.name, 'k', 96), "name")               \
	R(kernel_unnamed, OBJECT(KERNEL)->kernel.name[0] = '\0', "name")                           \
	R(image_unterminated, memset(OBJECT(IMAGE)->image.module, 'i', 96), "name")                \
	R(image_unnamed, OBJECT(IMAGE)->image.module[0] = '\0', "name")                            \
	R(own_image_empty, own_image(0, 0), "name")                                                \
	R(own_image_past_the_store, own_image(GANTRY_LEDGER_STORE_BYTES, 1), "cannot be")          \
	R(own_image_of_no_kind, own_image(0, 64)->kind = 0, "cannot be")                           \
	R(own_image_of_an_unknown_kind, own_image(0, 64)->kind = GANTRY_NKINDS, "cannot be")       \
	R(own_image_reserved, own_image(0, 64)->reserved = 1, "cannot be")                         \
	R(own_kernel_of_no_image, own_kernel()->image = 0, "nor is there an image")                \
	R(own_kernel_image_slot, own_kernel()->image |= 0xffffff, "nor is there an image")         \
	R(own_kernel_symbol_empty, own_kernel()->symbol_bytes = 1, "nowhere")                      \
	R(own_kernel_symbol_long, own_kernel()->symbol_bytes = 1025, "nowhere")                    \
	R(own_kernel_signature_long, own_kernel()->sig_bytes = 513, "nowhere")                     \
	R(own_kernel_past_the_store, own_kernel()->off = GANTRY_LEDGER_STORE_BYTES - 8, "nowhere") \
	R(own_kernel_set_nowhere, own_kernel()->set.devices = 1 << 8, "settings")                  \
	R(own_kernel_set_what, own_kernel()->set.which = 1 << 8, "settings")

REFUSED_LIST(REFUSED)

/* ---- what is allowed ---- */

START_TEST(test_check_ledgers_of_the_version_before_are_read)
{
	HDR->version = GANTRY_LEDGER_VERSION_OLDEST;
	ck_assert_int_eq(check(NULL), 0);
	HDR->version = GANTRY_LEDGER_VERSION_OLDEST - 1;
	ck_assert_int_eq(check(NULL), -EINVAL);
}
END_TEST

START_TEST(test_check_free_slot_may_hold_anything)
{
	memset(OBJECT(100), 0xff, sizeof(*OBJECT(100)));
	OBJECT(100)->state = GANTRY_OBJECT_FREE;
	ck_assert_int_eq(check(NULL), 0);
}
END_TEST

START_TEST(test_check_images_of_guests_accepted)
{
	(void)own_image(GANTRY_LEDGER_STORE_BYTES - 64, 64);
	own_kernel()->set = (struct gantry_ledger_settings){ 255, 255, { -1, 60 } };
	ck_assert_int_eq(check(NULL), 0);
}
END_TEST

START_TEST(test_check_variant_of_kernel_accepted)
{
	OBJECT(KERNEL)->variant_of = GANTRY_HANDLE(GANTRY_HANDLE_KERNEL, 1, 7);
	OBJECT(KERNEL)->variant_kind = GANTRY_KIND_CPU;
	ck_assert_int_eq(check(NULL), 0);
}
END_TEST

START_TEST(test_check_neighbours_in_slab_accepted)
{
	for (uint32_t i = 8; i < 1024; i++)
		put_buffer(i, GANTRY_PLACE_SLAB, 4096 + SLAB_BYTES / 2 + (1032 - i) * 64ull, 64);
	ck_assert_int_eq(check(NULL), 0);
	put_buffer(1024, GANTRY_PLACE_SLAB, 4096 + SLAB_BYTES / 2 + 20 * 64 + 63, 1);
	assert_refused("lie on each other");
}
END_TEST

START_TEST(test_check_many_identical_ranges_refused_soon)
{
	for (uint32_t i = 8; i < LAST; i++)
		put_buffer(i, GANTRY_PLACE_SLAB, SLAB_BYTES - 128, 64);
	assert_refused("lie on each other");
}
END_TEST

/* ---- never past the end ---- */

/* @bytes of the ledger that end where memory ends. */
static uint8_t *at_the_edge(uint64_t bytes, void **ret_map, uint64_t *ret_map_bytes)
{
	uint64_t room = (ledger.bytes + GANTRY_PAGE - 1) & ~(uint64_t)(GANTRY_PAGE - 1);
	uint8_t *map = mmap(NULL, room + GANTRY_PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_assert_int_eq(mprotect(map + room, GANTRY_PAGE, PROT_NONE), 0);
	memcpy(map + room - bytes, ledger.hdr, bytes);
	*ret_map = map;
	*ret_map_bytes = room + GANTRY_PAGE;
	return map + room - bytes;
}

START_TEST(test_check_truncated_never_reads_past_end)
{
	const uint64_t cuts[] = { 0,
				  1,
				  63,
				  sizeof(struct gantry_ledger_header) - 1,
				  sizeof(struct gantry_ledger_header),
				  sizeof(struct gantry_ledger_header) + 191,
				  4096,
				  ledger.hdr->objects_off,
				  ledger.hdr->objects_off + 127,
				  ledger.hdr->tasks_off - 1,
				  ledger.hdr->tasks_off,
				  ledger.bytes - 1 };

	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		uint64_t map_bytes;
		void *map;
		uint8_t *edge = at_the_edge(cuts[i], &map, &map_bytes);

		ck_assert_int_eq(gantry_ledger_check(edge, cuts[i], NULL), -EINVAL);
		munmap(map, map_bytes);
	}
}
END_TEST

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Damage where there is something to damage: the header, the queues, the objects in use. */
static uint64_t random_place(uint64_t *state)
{
	switch (next_random(state) % 3) {
	case 0:
		return next_random(state) % sizeof(struct gantry_ledger_header);
	case 1:
		return ledger.hdr->queues_off +
		       next_random(state) % (NQUEUES * sizeof(struct gantry_ledger_queue));
	default:
		return ledger.hdr->objects_off +
		       next_random(state) % (8 * sizeof(struct gantry_ledger_object));
	}
}

START_TEST(test_check_random_damage_never_crashes_nor_lets_cursors_through)
{
	uint64_t state = 0x9e3779b97f4a7c15ull;
	uint64_t map_bytes;
	void *map;
	uint8_t *edge = at_the_edge(ledger.bytes, &map, &map_bytes);
	int naccepted = 0;

	for (int i = 0; i < 3000; i++) {
		uint64_t at[2] = { random_place(&state), random_place(&state) };
		uint8_t was[2] = { edge[at[0]], edge[at[1]] };
		const struct gantry_ledger_queue *q;

		edge[at[0]] = (uint8_t)next_random(&state);
		edge[at[1]] = (uint8_t)next_random(&state);
		q = (const void *)(edge + ledger.hdr->queues_off);
		if (gantry_ledger_check(edge, ledger.bytes, NULL) == 0) {
			naccepted++;
			for (uint32_t j = 0; j < NQUEUES; j++)
				ck_assert(q[j].done <= q[j].issued && q[j].issued <= q[j].taken &&
					  q[j].taken <= q[j].done + NSLOTS);
		}
		edge[at[1]] = was[1];
		edge[at[0]] = was[0];
	}
	ck_assert_int_gt(naccepted, 0);
	ck_assert_int_eq(gantry_ledger_check(edge, ledger.bytes, NULL), 0);
	munmap(map, map_bytes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ledger");
	TCase *shape = gantry_unit_case(suite, "shape");
	TCase *tc = gantry_unit_case(suite, "check");

	tcase_add_test(shape, test_ledger_bytes_shape_not_allowed_is_zero);
	tcase_add_test(shape, test_ledger_bytes_holds_all_tables);
	tcase_add_test(shape, test_create_bad_arguments_leaves_outputs_alone);
	tcase_add_test(shape, test_close_null_and_closed_are_harmless);

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_open_after_create_sees_the_same);
	tcase_add_test(tc, test_open_unsealed_memfd_refused);
	tcase_add_test(tc, test_open_tiny_or_huge_memfd_refused);
#define ADD_REFUSED(name, statement, words) tcase_add_test(tc, test_check_##name##_refused);
	REFUSED_LIST(ADD_REFUSED)
	tcase_add_test(tc, test_devices_that_change_places_keep_their_numbers_apart);
	tcase_add_test(tc, test_check_ledgers_of_the_version_before_are_read);
	tcase_add_test(tc, test_check_free_slot_may_hold_anything);
	tcase_add_test(tc, test_check_images_of_guests_accepted);
	tcase_add_test(tc, test_check_variant_of_kernel_accepted);
	tcase_add_test(tc, test_check_neighbours_in_slab_accepted);
	tcase_add_test(tc, test_check_many_identical_ranges_refused_soon);
	tcase_add_test(tc, test_check_truncated_never_reads_past_end);
	tcase_add_test(tc, test_check_random_damage_never_crashes_nor_lets_cursors_through);
	return gantry_unit_run(suite);
}
