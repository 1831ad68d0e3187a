/* SPDX-License-Identifier: Apache-2.0 */
/* Data over several GPUs that are one, there and back, against a library that has some; and what a guest may say of it that is not so. */
#include <cufftXt.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/calls/run.h"
#include "guest-shim/cudalibs/call.h"
#include "tests/unit/runner.h"

#define PLAN	 7
#define PARTS	 3
#define PART	 24u /* bytes */
#define HOST	 (PARTS * PART - 8u)
#define MEMORY	 0x200000000000ull
#define DEVICE	 5
#define NOT_MADE ((void *)0xdead0000000000)

extern const struct gantry_calls_library gantry_calls_cufft;
/* Nobody takes the usual road here. */
const struct gantry_call_road gantry_call_road_session = { 0 };

static struct gantry_calls_site site;
static cufftHandle plan;
static cudaLibXtDesc *seen[2];
static unsigned int ncopies, nlive, nallocs, nfrees;
static bool is_out_of_memory;
static bool stays;  /* data does not go to the host */
static int without; /* a format that the plan's data has not; 0: it has all */
static cufftResult without_says = CUFFT_INVALID_VALUE;
/* 8 bytes of the request become that; 0: they stay. */
static size_t lie_at;
static uint64_t lie;

/* ---- the library ---- */

static cufftResult set_gpus(cufftHandle of, int n, int *which)
{
	ck_assert_int_eq(of, PLAN);
	for (int i = 0; i < n; i++)
		ck_assert_int_eq(which[i], DEVICE + 1);
	return n < 2 ? CUFFT_INVALID_VALUE : CUFFT_SUCCESS;
}

/* What a call that says no has left behind counts for nothing, but it may write as for all that there can be. */
static cufftResult get_size(cufftHandle of, size_t *size)
{
	(void)of;
	for (int i = 0; i < MAX_CUDA_DESCRIPTOR_GPUS; i++)
		size[i] = (size_t)i + 1;
	return CUFFT_SUCCESS;
}

static cufftResult query(cufftHandle of, void *to, cufftXtQueryType type)
{
	(void)type;
	ck_assert_int_eq(of, PLAN);
	/* It ends the process. */
	ck_assert_int_eq(without, 0);
	memset(to, 1, sizeof(cufftXt1dFactors));
	return CUFFT_SUCCESS;
}

static cufftResult make(cufftHandle of, cudaLibXtDesc **ret, cufftXtSubFormat format)
{
	cudaLibXtDesc *d;

	if (without && (int)format == without)
		return without_says;
	d = calloc(1, sizeof(*d));
	ck_assert_ptr_nonnull(d);
	ck_assert_int_eq(of, PLAN);
	*ret = d;
	d->descriptor = calloc(1, sizeof(*d->descriptor));
	d->subFormat = (int)format;
	d->version = 11;
	d->libDescriptor = d;
	d->descriptor->version = 12;
	d->descriptor->nGPUs = PARTS;
	for (int i = 0; i < PARTS; i++) {
		d->descriptor->GPUs[i] = DEVICE + 1;
		d->descriptor->data[i] = &ncopies;
		d->descriptor->size[i] = PART;
	}
	nlive++;
	return CUFFT_SUCCESS;
}

static cufftResult end(cudaLibXtDesc *d)
{
	nlive--;
	free(d->descriptor);
	free(d);
	return CUFFT_SUCCESS;
}

/* HOST bytes, whatever anybody says; some look like what was there before. */
static cufftResult copy(cufftHandle of, void *to, void *from, cufftXtCopyType type)
{
	ck_assert_int_eq(of, PLAN);
	ncopies++;
	if (stays && type == CUFFT_COPY_DEVICE_TO_HOST)
		return CUFFT_INVALID_TYPE;
	if (type == CUFFT_COPY_DEVICE_TO_HOST)
		memset(to, 0xa5, HOST);
	else if (type == CUFFT_COPY_HOST_TO_DEVICE)
		for (size_t i = 0; i < HOST; i++)
			ck_assert_uint_le(((const uint8_t *)from)[i], 1);
	seen[0] = type == CUFFT_COPY_DEVICE_TO_HOST ? NULL : to;
	return CUFFT_SUCCESS;
}

static cufftResult exec(cufftHandle of, cudaLibXtDesc *input, cudaLibXtDesc *output, int direction)
{
	const cudaXtDesc *parts = input->descriptor;

	(void)direction;
	ck_assert_int_eq(of, PLAN);
	ck_assert(!input->libDescriptor && !parts->cudaXtState);
	for (int i = 0; i < parts->nGPUs; i++)
		ck_assert_int_eq(parts->GPUs[i], DEVICE + 1);
	seen[0] = input;
	seen[1] = output;
	input->subFormat = CUFFT_XT_FORMAT_INPUT;
	output->subFormat = CUFFT_XT_FORMAT_INPLACE_SHUFFLED;
	return CUFFT_SUCCESS;
}

static cufftResult set_stream(cufftHandle of, cudaStream_t stream)
{
	(void)of, (void)stream;
	return CUFFT_SUCCESS;
}

static void *find_symbol(void *cookie, const struct gantry_calls_library *library, const char *name)
{
	static const struct {
		const char *name;
		void *function;
	} symbols[] = {
		{ "cufftXtSetGPUs", (void *)set_gpus },
		{ "cufftGetSize", (void *)get_size },
		{ "cufftXtMalloc", (void *)make },
		{ "cufftXtFree", (void *)end },
		{ "cufftXtMemcpy", (void *)copy },
		{ "cufftXtQueryPlan", (void *)query },
		{ "cufftXtExecDescriptorC2C", (void *)exec },
		{ "cufftSetStream", (void *)set_stream },
	};

	(void)cookie, (void)library;
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		if (strcmp(name, symbols[i].name) == 0)
			return symbols[i].function;
	return NULL;
}

static bool reaches(void *cookie, void *stream, uint64_t address)
{
	(void)cookie, (void)stream;
	return address - MEMORY < 1u << 20;
}

static int32_t workers_device(void *cookie)
{
	(void)cookie;
	return DEVICE + 1;
}

/* ---- the way ---- */

static int carry(void *cookie, struct gantry_call_library *library,
		 const struct gantry_call_route *route, const void *request, size_t bytes,
		 void *reply, size_t reply_bytes)
{
	const struct gantry_calls_library *const libraries[] = { &gantry_calls_cufft, NULL };
	uint8_t *sent = malloc(bytes);
	struct gantry_pack out;

	(void)cookie, (void)library;
	ck_assert_ptr_nonnull(sent);
	memcpy(sent, request, bytes);
	if (lie_at) {
		ck_assert_uint_le(lie_at + sizeof(lie), bytes);
		memcpy(sent + lie_at, &lie, sizeof(lie));
	}
	gantry_pack_init(&out, GANTRY_CALLS_MAX_BYTES);
	gantry_calls_serve(&site, libraries, NULL, sent, bytes, &out);
	if (route->waits) {
		ck_assert_uint_le(out.len, reply_bytes);
		memcpy(reply, out.bytes, out.len);
	}
	gantry_pack_fini(&out);
	free(sent);
	return 0;
}

static int is_device(void *cookie, const void *address)
{
	(void)cookie, (void)address;
	return 0;
}

static int guests_device(void *cookie)
{
	(void)cookie;
	return DEVICE;
}

static int mem_alloc(void *cookie, uint64_t bytes, uint64_t *ret_address)
{
	(void)cookie;
	ck_assert_uint_ge(bytes, PARTS * PART);
	if (is_out_of_memory)
		return -1;
	nallocs++;
	*ret_address = MEMORY;
	return 0;
}

static int mem_free(void *cookie, uint64_t address)
{
	(void)cookie;
	ck_assert_uint_eq(address, MEMORY);
	nfrees++;
	return 0;
}

static void start(void)
{
	static const struct gantry_call_road road = { .carry = carry,
						      .is_device = is_device,
						      .device = guests_device,
						      .mem_alloc = mem_alloc,
						      .mem_free = mem_free };
	int which[PARTS] = { DEVICE, DEVICE, DEVICE };

	ncopies = nlive = nallocs = nfrees = 0;
	lie_at = 0;
	without = 0;
	without_says = CUFFT_INVALID_VALUE;
	is_out_of_memory = stays = false;
	site = (struct gantry_calls_site){ .symbol = find_symbol,
					   .reaches = reaches,
					   .device = workers_device };
	gantry_calls_table_init(&site.table);
	gantry_call_road_set(&road);
	plan = (cufftHandle)gantry_calls_table_add(&site.table, gantry_calls_kind("cufftHandle"),
						   PLAN);
	ck_assert_int_eq(cufftXtSetGPUs(plan, PARTS, which), CUFFT_SUCCESS);
}

static void finish(void)
{
	ck_assert_uint_eq(nlive, 0);
	ck_assert_uint_eq(nallocs, nfrees);
	gantry_call_set_parts((uint64_t)plan, 1);
	gantry_calls_table_fini(&site.table);
	gantry_call_road_set(NULL);
}

static cudaLibXtDesc *allocate(void)
{
	cudaLibXtDesc *d = NULL;

	ck_assert_int_eq(cufftXtMalloc(plan, &d, CUFFT_XT_FORMAT_INPLACE), CUFFT_SUCCESS);
	ck_assert_ptr_nonnull(d);
	return d;
}

START_TEST(test_descriptor_says_what_the_library_s_did_of_memory_of_the_program)
{
	cudaLibXtDesc *d;

	start();
	d = allocate();
	ck_assert(d->version == 11 && d->library == LIB_FORMAT_CUFFT && !d->libDescriptor);
	ck_assert(d->descriptor->version == 12 && d->descriptor->nGPUs == PARTS);
	for (uint32_t i = 0; i < PARTS; i++) {
		ck_assert_int_eq(d->descriptor->GPUs[i], DEVICE);
		ck_assert_uint_eq(d->descriptor->size[i], PART);
		ck_assert_uint_eq((uintptr_t)d->descriptor->data[i] % 256, 0);
		ck_assert_uint_ge((uintptr_t)d->descriptor->data[i], MEMORY);
	}
	ck_assert_uint_eq(nlive, 0); /* the library's own is no more */
	ck_assert_int_eq(cufftXtFree(d), CUFFT_SUCCESS);
	finish();
}
END_TEST

START_TEST(test_descriptor_is_freed_once_and_only_where_it_was_made)
{
	cudaLibXtDesc *d, own = { 0 };

	start();
	d = allocate();
	ck_assert_int_eq(cufftXtFree(&own), CUFFT_INVALID_VALUE);
	ck_assert_int_eq(cufftXtFree(d), CUFFT_SUCCESS);
	ck_assert_int_eq(cufftXtFree(d), CUFFT_INVALID_VALUE);
	ck_assert_int_eq(cufftXtFree(NULL), CUFFT_SUCCESS);
	is_out_of_memory = true;
	d = NULL;
	ck_assert_int_eq(cufftXtMalloc(plan, &d, CUFFT_XT_FORMAT_INPLACE), CUFFT_ALLOC_FAILED);
	ck_assert_ptr_null(d);
	ck_assert_int_eq(cufftXtMalloc(plan, NULL, CUFFT_XT_FORMAT_INPLACE), CUFFT_INVALID_VALUE);
	finish();
}
END_TEST

/* The parts have more room than that, and the program's memory ends. */
START_TEST(test_copy_touches_as_much_of_the_program_s_memory_as_the_library)
{
	uint8_t host[HOST + 1];
	cudaLibXtDesc *d;

	start();
	d = allocate();
	memset(host, 1, sizeof(host));
	ck_assert_int_eq(cufftXtMemcpy(plan, d, host, CUFFT_COPY_HOST_TO_DEVICE), CUFFT_SUCCESS);
	ck_assert_int_eq(cufftXtMemcpy(plan, host, d, CUFFT_COPY_DEVICE_TO_HOST), CUFFT_SUCCESS);
	for (size_t i = 0; i < HOST; i++)
		ck_assert_uint_eq(host[i], 0xa5);
	ck_assert_uint_eq(host[HOST], 1);
	ck_assert_int_eq(cufftXtMemcpy(plan, d, d, CUFFT_COPY_DEVICE_TO_DEVICE), CUFFT_SUCCESS);
	ck_assert_int_eq(cufftXtMemcpy(plan, d, host, CUFFT_COPY_UNDEFINED), CUFFT_INVALID_VALUE);
	ck_assert_int_eq(cufftXtMemcpy(plan, NULL, d, CUFFT_COPY_DEVICE_TO_HOST),
			 CUFFT_INVALID_VALUE);
	ck_assert_int_eq(cufftXtFree(d), CUFFT_SUCCESS);
	finish();
}
END_TEST

/* As long as nobody knows how much it is: none of it would arrive. */
START_TEST(test_data_that_does_not_come_back_does_not_go_as_nothing)
{
	uint8_t host[HOST] = { 0 };
	cudaLibXtDesc *d;

	start();
	stays = true;
	d = allocate();
	ncopies = 0;
	ck_assert_int_eq(cufftXtMemcpy(plan, d, host, CUFFT_COPY_HOST_TO_DEVICE),
			 CUFFT_INVALID_VALUE);
	ck_assert_uint_eq(ncopies, 0);
	ck_assert_int_eq(cufftXtMemcpy(plan, d, d, CUFFT_COPY_DEVICE_TO_DEVICE), CUFFT_SUCCESS);
	ck_assert_int_eq(cufftXtFree(d), CUFFT_SUCCESS);
	finish();
}
END_TEST

/* The library goes by the plan, and not by what is said of parts: of less nobody knows how much that is. */
START_TEST(test_nothing_is_copied_to_the_host_where_the_device_has_no_room_to_tell_how_much)
{
	cudaXtDesc parts = { .nGPUs = PARTS, .GPUs = { DEVICE, DEVICE, DEVICE } };
	cudaLibXtDesc d = { .descriptor = &parts };
	uint8_t host[HOST] = { 0 };

	start();
	without = CUFFT_XT_FORMAT_OUTPUT;
	without_says = CUFFT_ALLOC_FAILED;
	ck_assert_int_eq(cufftXtMemcpy(plan, host, &d, CUFFT_COPY_DEVICE_TO_HOST),
			 CUFFT_ALLOC_FAILED);
	ck_assert_int_eq(cufftXtMemcpy(plan, &d, host, CUFFT_COPY_HOST_TO_DEVICE),
			 CUFFT_ALLOC_FAILED);
	ck_assert_uint_eq(ncopies, 0);
	/* Nor is that what is known of it from then on. */
	without = 0;
	ck_assert_int_eq(cufftXtMemcpy(plan, host, &d, CUFFT_COPY_DEVICE_TO_HOST), CUFFT_SUCCESS);
	ck_assert_uint_eq(ncopies, 1);
	finish();
}
END_TEST

START_TEST(test_one_descriptor_for_both_is_one_to_the_library)
{
	cudaXtDesc parts[2] = { { .nGPUs = PARTS,
				  .GPUs = { DEVICE, DEVICE, DEVICE },
				  .data = { (void *)MEMORY },
				  .size = { PART } } };
	cudaLibXtDesc d[2] = { { .descriptor = &parts[0], .libDescriptor = NOT_MADE } };

	start();
	parts[1] = parts[0];
	d[1] = (cudaLibXtDesc){ .descriptor = &parts[1] };
	ck_assert_int_eq(cufftXtExecDescriptorC2C(plan, &d[0], &d[0], 1), CUFFT_SUCCESS);
	ck_assert_ptr_eq(seen[0], seen[1]);
	ck_assert_int_eq(d[0].subFormat, CUFFT_XT_FORMAT_INPLACE_SHUFFLED);
	ck_assert_int_eq(cufftXtExecDescriptorC2C(plan, &d[0], &d[1], 1), CUFFT_SUCCESS);
	ck_assert_ptr_ne(seen[0], seen[1]);
	ck_assert_int_eq(d[0].subFormat, CUFFT_XT_FORMAT_INPUT);
	ck_assert_int_eq(d[1].subFormat, CUFFT_XT_FORMAT_INPLACE_SHUFFLED);
	/* Nothing there, other devices, more parts or fewer than the plan has, or memory that is not the session's. */
	parts[0].GPUs[0] = DEVICE + 1;
	ck_assert_int_eq(cufftXtExecDescriptorC2C(plan, &d[0], &d[0], 1), CUFFT_INVALID_VALUE);
	parts[0].GPUs[0] = DEVICE;
	parts[0].nGPUs = MAX_CUDA_DESCRIPTOR_GPUS + 1;
	ck_assert_int_eq(cufftXtExecDescriptorC2C(plan, &d[0], &d[0], 1), CUFFT_INVALID_VALUE);
	parts[0].nGPUs = PARTS - 1;
	ck_assert_int_eq(cufftXtExecDescriptorC2C(plan, &d[0], &d[0], 1), CUFFT_INVALID_VALUE);
	parts[0].nGPUs = 0;
	ck_assert_int_eq(cufftXtExecDescriptorC2C(plan, &d[0], &d[0], 1), CUFFT_INVALID_VALUE);
	parts[0].nGPUs = PARTS;
	parts[0].data[0] = NOT_MADE;
	ck_assert_int_eq(cufftXtExecDescriptorC2C(plan, &d[0], &d[0], 1), CUFFT_INVALID_VALUE);
	d[0].descriptor = NULL;
	ck_assert_int_eq(cufftXtExecDescriptorC2C(plan, &d[0], &d[0], 1), CUFFT_INVALID_VALUE);
	ck_assert_int_eq(cufftXtExecDescriptorC2C(plan, NULL, NULL, 1), CUFFT_INVALID_VALUE);
	finish();
}
END_TEST

/* A guest may send anything; behind the head come the plan, the type, and what is said of the data. */
START_TEST(test_other_words_about_data_are_refused_by_the_worker)
{
	static const size_t head = sizeof(struct gantry_calls_request);
	static const struct {
		size_t at; /* in items of 8 bytes */
		uint64_t word;
	} lies[] = {
		{ 2, 2 },
		{ 2, 3 },
		{ 2, 0 }, /* what was told before: nothing was */
		{ 5, 65 },
		{ 5, 0 },
		{ 5, UINT64_MAX }, /* parts */
		{ 6, 1 },	   /* an address */
		{ 12, 5 },	   /* the format's bytes */
		{ 13, HOST + 1000 },
		{ 13, UINT64_MAX },
		{ 13, 1u << 30 }, /* of the host's memory */
	};
	uint8_t host[HOST] = { 0 };
	cudaLibXtDesc *d;

	start();
	d = allocate();
	ncopies = 0;
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		lie_at = head + 8 * lies[i].at;
		lie = lies[i].word;
		ck_assert_int_eq(cufftXtMemcpy(plan, d, host, CUFFT_COPY_HOST_TO_DEVICE),
				 CUFFT_INVALID_VALUE);
	}
	ck_assert_uint_eq(ncopies, 0);
	lie_at = 0;
	ck_assert_int_eq(cufftXtMemcpy(plan, d, host, CUFFT_COPY_HOST_TO_DEVICE), CUFFT_SUCCESS);
	ck_assert_int_eq(cufftXtFree(d), CUFFT_SUCCESS);
	finish();
}
END_TEST

/* As many as the plan has GPUs, though the library wrote more. */
START_TEST(test_sizes_come_for_each_part_and_no_more)
{
	size_t sizes[PARTS + 1] = { 0 };
	int other[2] = { DEVICE, DEVICE + 1 }, one[1] = { DEVICE };

	start();
	ck_assert_int_eq(cufftGetSize(plan, sizes), CUFFT_SUCCESS);
	for (size_t i = 0; i < PARTS; i++)
		ck_assert_uint_eq(sizes[i], i + 1);
	ck_assert_uint_eq(sizes[PARTS], 0);
	/* What is refused changes nothing. */
	ck_assert_int_eq(cufftXtSetGPUs(plan, 2, other), CUFFT_INVALID_DEVICE);
	ck_assert_int_eq(cufftXtSetGPUs(plan, 1, one), CUFFT_INVALID_VALUE);
	ck_assert_int_eq(cufftXtSetGPUs(plan, 65, one), CUFFT_INVALID_VALUE);
	ck_assert_int_eq(cufftXtSetGPUs(plan, -1, one), CUFFT_INVALID_VALUE);
	ck_assert_int_eq(cufftXtSetGPUs(plan, 2, NULL), CUFFT_INVALID_VALUE);
	ck_assert_int_eq(cufftGetSize(plan, sizes), CUFFT_SUCCESS);
	/* A guest that thinks otherwise is refused. */
	gantry_call_set_parts((uint64_t)plan, 2);
	ck_assert_int_eq(cufftGetSize(plan, sizes), CUFFT_INVALID_VALUE);
	finish();
}
END_TEST

/* Of others the library ends the process: several transforms, several dimensions. */
START_TEST(test_only_a_plan_of_one_transform_in_one_dimension_is_asked_for_its_factors)
{
	static const int formats[] = { CUFFT_XT_FORMAT_INPLACE_SHUFFLED,
				       CUFFT_XT_FORMAT_1D_INPUT_SHUFFLED };
	cufftXt1dFactors factors = { 0 };

	start();
	for (size_t i = 0; i < 2; i++) {
		without = formats[i];
		ck_assert_int_eq(cufftXtQueryPlan(plan, &factors, CUFFT_QUERY_1D_FACTORS),
				 CUFFT_INVALID_PLAN);
		ck_assert_int_eq(factors.size, 0);
	}
	without = 0;
	ck_assert_int_eq(cufftXtQueryPlan(plan, &factors, CUFFT_QUERY_1D_FACTORS), CUFFT_SUCCESS);
	ck_assert_int_ne(factors.size, 0);
	ck_assert_int_eq(cufftXtQueryPlan(plan, NULL, CUFFT_QUERY_1D_FACTORS), CUFFT_INVALID_VALUE);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cufft spread");
	TCase *tc = gantry_unit_case(suite, "spread");

	tcase_add_test(tc, test_descriptor_says_what_the_library_s_did_of_memory_of_the_program);
	tcase_add_test(tc, test_descriptor_is_freed_once_and_only_where_it_was_made);
	tcase_add_test(tc, test_copy_touches_as_much_of_the_program_s_memory_as_the_library);
	tcase_add_test(
		tc,
		test_nothing_is_copied_to_the_host_where_the_device_has_no_room_to_tell_how_much);
	tcase_add_test(tc, test_data_that_does_not_come_back_does_not_go_as_nothing);
	tcase_add_test(tc, test_one_descriptor_for_both_is_one_to_the_library);
	tcase_add_test(tc, test_other_words_about_data_are_refused_by_the_worker);
	tcase_add_test(tc, test_sizes_come_for_each_part_and_no_more);
	tcase_add_test(tc,
		       test_only_a_plan_of_one_transform_in_one_dimension_is_asked_for_its_factors);
	return gantry_unit_run(suite);
}
