/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's attributes of backend descriptors, there and back, against a library that notes what it was called with. */
#include <cudnn.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/calls/run.h"
#include "guest-shim/cudalibs/call.h"
#include "tests/unit/runner.h"

#define DEVICE	   0x200000000000ull
#define DESCRIPTOR 0x7000u /* what the library calls its objects */
#define OTHER	   0x7100u
#define MADE	   0x7700000u
#define HANDLE	   0x8000u
#define MANY	   1000

extern const struct gantry_calls_library gantry_calls_cudnn;
/* Nobody takes the usual road here. */
const struct gantry_call_road gantry_call_road_session = { 0 };

static struct gantry_calls_site site;
static uint32_t answered;
static bool waited;
static cudnnStatus_t verdict; /* of the library, for what runs or is finalized */
static cudnnBackendDescriptor_t descriptor, other;
static cudnnHandle_t handle;
static struct {
	unsigned int ncalls;
	void *descriptor;
	int64_t count;
	void *elements[MANY];
	int32_t first;
} seen;

/* ---- the library ---- */

static cudnnStatus_t set_attribute(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
				   cudnnBackendAttributeType_t type, int64_t count,
				   const void *elements)
{
	(void)name;
	ck_assert_ptr_nonnull(elements);
	seen.ncalls++;
	seen.descriptor = of;
	seen.count = count;
	if (type == CUDNN_TYPE_VOID_PTR || type == CUDNN_TYPE_BACKEND_DESCRIPTOR ||
	    type == CUDNN_TYPE_HANDLE || type == CUDNN_TYPE_INT64)
		memcpy(seen.elements, elements, (size_t)count * sizeof(void *));
	else
		memcpy(&seen.first, elements, sizeof(seen.first));
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t get_attribute(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
				   cudnnBackendAttributeType_t type, int64_t count,
				   int64_t *ret_count, void *elements)
{
	(void)name;
	seen.ncalls++;
	seen.descriptor = of;
	*ret_count = 2;
	if (count < 2)
		return CUDNN_STATUS_SUCCESS;
	memcpy(seen.elements, elements, 2 * sizeof(void *));
	if (type == CUDNN_TYPE_INT64) {
		((int64_t *)elements)[0] = 5;
		((int64_t *)elements)[1] = 6;
	} else if (type == CUDNN_TYPE_VOID_PTR) {
		((void **)elements)[0] = (void *)(uintptr_t)(DEVICE + 64);
		((void **)elements)[1] = &seen;
	} else if (type == CUDNN_TYPE_HANDLE) {
		((uint64_t *)elements)[0] = HANDLE;
		((uint64_t *)elements)[1] = 0x1234; /* nobody's */
	}
	return CUDNN_STATUS_SUCCESS;
}

/* A place without its descriptor, or the other way round, is a bad argument to the library. */
static cudnnStatus_t get_weights(cudnnHandle_t with, cudnnRNNDescriptor_t rnn, int32_t layer,
				 size_t bytes, const void *weights, int32_t id,
				 cudnnTensorDescriptor_t matrix, void **ret_matrix,
				 cudnnTensorDescriptor_t bias, void **ret_bias)
{
	(void)with;
	(void)rnn;
	(void)layer;
	(void)bytes;
	(void)weights;
	(void)id;
	if (!matrix != !ret_matrix || !bias != !ret_bias)
		return CUDNN_STATUS_BAD_PARAM;
	if (ret_matrix)
		*ret_matrix = (void *)(uintptr_t)(DEVICE + 8);
	if (ret_bias)
		*ret_bias = (void *)(uintptr_t)(DEVICE + 16);
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t execute(cudnnHandle_t with, cudnnBackendDescriptor_t plan,
			     cudnnBackendDescriptor_t pack)
{
	(void)with;
	(void)plan;
	(void)pack;
	return verdict;
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t of)
{
	(void)of;
	return verdict;
}

static cudnnStatus_t set_stream(cudnnHandle_t of, cudaStream_t stream)
{
	(void)of;
	(void)stream;
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy(cudnnBackendDescriptor_t of)
{
	(void)of;
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t create(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *ret)
{
	if (verdict == CUDNN_STATUS_SUCCESS)
		*ret = (void *)(uintptr_t)(MADE + (unsigned int)type);
	return verdict;
}

static void *find_symbol(void *cookie, const struct gantry_calls_library *library, const char *name)
{
	(void)cookie;
	(void)library;
	static const struct {
		const char *name;
		void *function;
	} symbols[] = {
		{ "cudnnBackendSetAttribute", (void *)set_attribute },
		{ "cudnnBackendGetAttribute", (void *)get_attribute },
		{ "cudnnBackendCreateDescriptor", (void *)create },
		{ "cudnnBackendDestroyDescriptor", (void *)destroy },
		{ "cudnnGetRNNWeightParams", (void *)get_weights },
		{ "cudnnBackendExecute", (void *)execute },
		{ "cudnnBackendFinalize", (void *)finalize },
		{ "cudnnSetStream", (void *)set_stream },
	};

	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		if (strcmp(name, symbols[i].name) == 0)
			return symbols[i].function;
	return NULL;
}

/* ---- the way ---- */

static int is_device(void *cookie, const void *address)
{
	(void)cookie;
	return (uintptr_t)address >> 40 == DEVICE >> 40;
}

static bool reaches(void *cookie, void *stream, uint64_t address)
{
	(void)stream;
	return is_device(cookie, (const void *)(uintptr_t)address);
}

/* @change, if not 0: the 8 bytes at which position of the items become @to. */
static size_t change;
static uint64_t change_to;

static int carry(void *cookie, struct gantry_call_library *library,
		 const struct gantry_call_route *route, const void *request, size_t bytes,
		 void *reply, size_t reply_bytes)
{
	const struct gantry_calls_library *const libraries[] = { &gantry_calls_cudnn, NULL };
	uint8_t *copy = malloc(bytes), *same = malloc(bytes);
	struct gantry_pack out;

	(void)cookie;
	(void)library;
	ck_assert(copy && same);
	memcpy(copy, request, bytes);
	if (change)
		memcpy(copy + sizeof(struct gantry_calls_request) + change, &change_to,
		       sizeof(change_to));
	memcpy(same, copy, bytes);
	gantry_pack_init(&out, GANTRY_CALLS_MAX_BYTES);
	gantry_calls_serve(&site, libraries, NULL, copy, bytes, &out);
	/* As it came it is written down for whoever makes objects anew. */
	ck_assert_mem_eq(copy, same, bytes);
	answered = ((const struct gantry_calls_reply *)out.bytes)->state;
	waited = route->waits;
	if (route->waits) {
		ck_assert_uint_le(out.len, reply_bytes);
		memcpy(reply, out.bytes, out.len);
	}
	gantry_pack_fini(&out);
	free(copy);
	free(same);
	return 0;
}

static const char *lacking;

static void note_lacking(void *cookie, const char *name)
{
	(void)cookie;
	lacking = name;
}

static uint64_t add(const char *type, uint64_t native)
{
	return gantry_calls_table_add(&site.table, gantry_calls_kind(type), native);
}

static void start(void)
{
	static const struct gantry_call_road road = { .carry = carry,
						      .is_device = is_device,
						      .unsupported = note_lacking };

	memset(&seen, 0, sizeof(seen));
	change = 0;
	lacking = "";
	verdict = CUDNN_STATUS_SUCCESS;
	site = (struct gantry_calls_site){ .symbol = find_symbol, .reaches = reaches };
	gantry_calls_table_init(&site.table);
	gantry_call_road_set(&road);
	descriptor = (void *)(uintptr_t)add("cudnnBackendDescriptor_t", DESCRIPTOR);
	other = (void *)(uintptr_t)add("cudnnBackendDescriptor_t", OTHER);
	handle = (void *)(uintptr_t)add("cudnnHandle_t", HANDLE);
}

static void finish(void)
{
	gantry_calls_table_fini(&site.table);
	gantry_call_road_set(NULL);
}

static cudnnStatus_t set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
			 int64_t count, const void *elements)
{
	answered = 0;
	return cudnnBackendSetAttribute(descriptor, name, type, count, elements);
}

/* ---- */

START_TEST(test_numbers_and_enumerations_arrive_as_they_are)
{
	const int64_t dims[] = { 8, 64, 56, 56 };
	const cudnnDataType_t half = CUDNN_DATA_HALF;

	start();
	ck_assert_int_eq(set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims), 0);
	ck_assert_uint_eq(answered, GANTRY_CALLS_RAN);
	ck_assert_ptr_eq(seen.descriptor, (void *)DESCRIPTOR);
	ck_assert_int_eq(seen.count, 4);
	ck_assert_mem_eq(seen.elements, dims, sizeof(dims));
	ck_assert_int_eq(set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &half), 0);
	ck_assert_int_eq(seen.first, CUDNN_DATA_HALF);
	finish();
}
END_TEST

START_TEST(test_objects_in_arrays_become_the_librarys)
{
	cudnnBackendDescriptor_t both[] = { other, descriptor };

	start();
	both[0] = other;
	both[1] = descriptor;
	ck_assert_int_eq(set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 2, both),
			 0);
	ck_assert_ptr_eq(seen.elements[0], (void *)OTHER);
	ck_assert_ptr_eq(seen.elements[1], (void *)DESCRIPTOR);
	ck_assert_int_eq(set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle), 0);
	ck_assert_ptr_eq(seen.elements[0], (void *)HANDLE);
	finish();
}
END_TEST

START_TEST(test_addresses_go_as_they_are_and_values_of_the_host_by_content)
{
	float scale[4] = { 0.125f }; /* of a value up to 16 bytes are read */
	void *data[] = { (void *)(uintptr_t)(DEVICE + 256), scale, NULL };
	float *kept;

	start();
	ck_assert_int_eq(set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data),
			 0);
	ck_assert_ptr_eq(seen.elements[0], data[0]);
	ck_assert_ptr_null(seen.elements[2]);
	kept = seen.elements[1];
	ck_assert_ptr_ne(kept, scale);
	scale[0] = 0;
	/* It is there when the plan runs, and other calls do not change it. */
	ck_assert_int_eq(set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data),
			 0);
	ck_assert(*kept == 0.125f);
	ck_assert_int_eq(cudnnBackendDestroyDescriptor(descriptor), 0);
	finish();
}
END_TEST

START_TEST(test_what_an_attribute_has_comes_back)
{
	int64_t count = 0, numbers[2] = { 0 };
	cudnnBackendDescriptor_t configs[2];
	cudnnHandle_t handles[2] = { NULL, NULL };
	void *addresses[2];

	start();
	configs[0] = descriptor;
	configs[1] = other;
	ck_assert_int_eq(cudnnBackendGetAttribute(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS,
						  CUDNN_TYPE_INT64, 2, &count, numbers),
			 0);
	ck_assert_int_eq(count, 2);
	ck_assert_int_eq(numbers[0], 5);
	ck_assert_int_eq(numbers[1], 6);
	/* The library fills objects of the caller's, which stay the same. */
	ck_assert_int_eq(cudnnBackendGetAttribute(other, CUDNN_ATTR_ENGINEHEUR_RESULTS,
						  CUDNN_TYPE_BACKEND_DESCRIPTOR, 2, &count,
						  configs),
			 0);
	ck_assert_ptr_eq(seen.elements[0], (void *)DESCRIPTOR);
	ck_assert_ptr_eq(seen.elements[1], (void *)OTHER);
	ck_assert(configs[0] == descriptor && configs[1] == other);
	ck_assert_int_eq(cudnnBackendGetAttribute(other, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
						  CUDNN_TYPE_HANDLE, 2, &count, handles),
			 0);
	ck_assert_ptr_eq(handles[0], handle);
	ck_assert_ptr_null(handles[1]);
	ck_assert_int_eq(cudnnBackendGetAttribute(other, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
						  CUDNN_TYPE_VOID_PTR, 2, &count, addresses),
			 0);
	ck_assert_ptr_eq(addresses[0], (void *)(uintptr_t)(DEVICE + 64));
	ck_assert_ptr_null(addresses[1]);
	finish();
}
END_TEST

START_TEST(test_how_many_there_are_can_be_asked_without_a_place_for_them)
{
	int64_t count = 0;

	start();
	ck_assert_int_eq(cudnnBackendGetAttribute(descriptor, CUDNN_ATTR_ENGINEHEUR_RESULTS,
						  CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL),
			 0);
	ck_assert_int_eq(count, 2);
	finish();
}
END_TEST

START_TEST(test_no_more_comes_back_than_the_attribute_has)
{
	int64_t count = 0, *numbers = malloc(2 * sizeof(*numbers)), more[9];

	start();
	ck_assert_ptr_nonnull(numbers);
	memset(more, 0x5a, sizeof(more));
	/* Asked for as many as there can be, with room for as many as there are: a sanitizer sees who writes further. */
	ck_assert_int_eq(cudnnBackendGetAttribute(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS,
						  CUDNN_TYPE_INT64, 9, &count, numbers),
			 0);
	ck_assert_int_eq(numbers[1], 6);
	ck_assert_int_eq(cudnnBackendGetAttribute(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS,
						  CUDNN_TYPE_INT64, 9, NULL, more),
			 0);
	ck_assert_int_eq(more[0], 5);
	ck_assert_int_eq(more[1], 6);
	for (int i = 2; i < 9; i++)
		ck_assert_int_eq(more[i], 0x5a5a5a5a5a5a5a5a);
	ck_assert_int_eq(cudnnBackendGetAttribute(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS,
						  CUDNN_TYPE_INT64, 9, &count, NULL),
			 0);
	ck_assert_int_eq(count, 2);
	/* Of objects too; how many there are is asked without any. */
	ck_assert_int_eq(cudnnBackendGetAttribute(other, CUDNN_ATTR_ENGINEHEUR_RESULTS,
						  CUDNN_TYPE_BACKEND_DESCRIPTOR, 9, &count, NULL),
			 0);
	ck_assert_int_eq(count, 2);
	free(numbers);
	finish();
}
END_TEST

/* Each is looked up, by a thread that others may wait for. */
START_TEST(test_more_elements_than_attributes_have_are_refused)
{
	int64_t *numbers = calloc(65537, sizeof(*numbers));
	int64_t count = 0;

	start();
	ck_assert_ptr_nonnull(numbers);
	ck_assert_int_eq(cudnnBackendGetAttribute(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS,
						  CUDNN_TYPE_INT64, 65536, &count, numbers),
			 0);
	ck_assert_int_ne(cudnnBackendGetAttribute(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS,
						  CUDNN_TYPE_INT64, 65537, &count, numbers),
			 0);
	free(numbers);
	finish();
}
END_TEST

START_TEST(test_one_of_an_rnns_weights_is_asked_without_the_other)
{
	void *address = NULL;
	cudnnRNNDescriptor_t rnn;
	cudnnTensorDescriptor_t tensor;

	start();
	rnn = (void *)(uintptr_t)add("cudnnRNNDescriptor_t", 0x9100);
	tensor = (void *)(uintptr_t)add("cudnnTensorDescriptor_t", 0x9200);
	ck_assert_int_eq(cudnnGetRNNWeightParams(handle, rnn, 0, 64, NULL, 0, tensor, &address,
						 NULL, NULL),
			 0);
	ck_assert_ptr_eq(address, (void *)(uintptr_t)(DEVICE + 8));
	ck_assert_int_eq(cudnnGetRNNWeightParams(handle, rnn, 0, 64, NULL, 0, NULL, NULL, tensor,
						 &address),
			 0);
	ck_assert_ptr_eq(address, (void *)(uintptr_t)(DEVICE + 16));
	finish();
}
END_TEST

static void must_refuse(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
			int64_t count, const void *elements)
{
	unsigned int before = seen.ncalls;

	(void)set(name, type, count, elements);
	ck_assert_uint_ne(answered, GANTRY_CALLS_RAN);
	ck_assert_uint_eq(seen.ncalls, before);
}

START_TEST(test_what_is_no_object_no_address_and_no_type_is_refused)
{
	void *strange[] = { (void *)0x77770001 };
	void *wrong_sort[1];
	int64_t number = 1;

	start();
	wrong_sort[0] = handle;
	must_refuse(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, strange);
	must_refuse(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, wrong_sort);
	must_refuse(CUDNN_ATTR_TENSOR_DIMENSIONS, (cudnnBackendAttributeType_t)999, 1, &number);
	must_refuse(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 1, NULL);
	/* Addresses that call themselves numbers. */
	must_refuse(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_INT64, 1, &number);
	ck_assert_int_eq(cudnnBackendSetAttribute(NULL, CUDNN_ATTR_TENSOR_DIMENSIONS,
						  CUDNN_TYPE_INT64, 1, &number),
			 CUDNN_STATUS_BAD_PARAM);
	finish();
}
END_TEST

START_TEST(test_a_lying_count_or_address_is_refused)
{
	void *data[] = { (void *)(uintptr_t)(DEVICE + 256) };
	int64_t number = 1;
	static const uint64_t lies[] = { 0, 2, 1u << 20, INT64_MAX, UINT64_MAX };

	start();
	change = 16; /* the count, behind name and type */
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		change_to = lies[i];
		must_refuse(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 1, &number);
		must_refuse(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, data);
	}
	change = 40; /* the address, behind its place */
	change_to = (uintptr_t)&seen;
	must_refuse(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, data);
	finish();
}
END_TEST

START_TEST(test_values_that_are_kept_have_an_end)
{
	static void *data[MANY];
	float one[4] = { 1 };

	start();
	for (int i = 0; i < MANY; i++)
		data[i] = one;
	must_refuse(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, MANY, data);
	finish();
}
END_TEST

START_TEST(test_a_finalized_descriptor_goes_on_and_what_finalizing_answers_is_told)
{
	start();
	ck_assert_int_eq(cudnnBackendFinalize(descriptor), 0);
	ck_assert_int_eq(cudnnBackendFinalize(descriptor), 0);
	verdict = CUDNN_STATUS_NOT_SUPPORTED;
	ck_assert_int_eq(cudnnBackendFinalize(descriptor), CUDNN_STATUS_NOT_SUPPORTED);
	finish();
}
END_TEST

START_TEST(test_a_plan_is_waited_for_until_it_has_run_once)
{
	start();
	verdict = CUDNN_STATUS_EXECUTION_FAILED;
	ck_assert_int_eq(cudnnBackendExecute(handle, descriptor, other),
			 CUDNN_STATUS_EXECUTION_FAILED);
	verdict = CUDNN_STATUS_SUCCESS;
	ck_assert_int_eq(cudnnBackendExecute(handle, descriptor, other), 0);
	ck_assert(waited);
	ck_assert_int_eq(cudnnBackendExecute(handle, descriptor, other), 0);
	ck_assert(!waited);
	ck_assert_int_eq(cudnnBackendExecute(handle, other, descriptor), 0);
	ck_assert(waited);
	finish();
}
END_TEST

START_TEST(test_functions_that_are_not_there_are_told_by_name)
{
	int64_t number = 1;

	start();
	ck_assert_int_eq(cudnnSetCallback(0, NULL, NULL), CUDNN_STATUS_NOT_SUPPORTED);
	ck_assert_str_eq(lacking, "cudnnSetCallback");
	/* The worker's library has none of this name. */
	ck_assert_int_eq(cudnnDestroyTensorDescriptor(
				 (void *)(uintptr_t)add("cudnnTensorDescriptor_t", 0x9000)),
			 CUDNN_STATUS_NOT_SUPPORTED);
	ck_assert_str_eq(lacking, "cudnnDestroyTensorDescriptor");
	lacking = "";
	ck_assert_int_eq(set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 1, &number), 0);
	ck_assert_str_eq(lacking, "");
	finish();
}
END_TEST

/* Made and sent on; @state is what the worker made of it. */
static cudnnBackendDescriptor_t made(cudnnBackendDescriptorType_t type, uint32_t state)
{
	cudnnBackendDescriptor_t descriptor_ = NULL;

	answered = 0;
	ck_assert_int_eq(cudnnBackendCreateDescriptor(type, &descriptor_), 0);
	ck_assert(!waited);
	ck_assert_uint_eq(answered, state);
	return descriptor_;
}

START_TEST(test_a_pack_of_addresses_is_made_used_and_ended_without_an_answer)
{
	void *data[] = { (void *)(uintptr_t)DEVICE };
	cudnnBackendDescriptor_t before = NULL;

	start();
	/* More than there are places: each is free again. */
	for (int i = 0; i < 40000; i++) {
		descriptor = made(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, GANTRY_CALLS_RAN);
		ck_assert_ptr_ne(descriptor, before);
		ck_assert_int_eq(set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1,
				     data),
				 0);
		ck_assert(!waited);
		ck_assert_uint_eq(answered, GANTRY_CALLS_RAN);
		ck_assert_ptr_eq(seen.descriptor,
				 (void *)(uintptr_t)(MADE + CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
		ck_assert_int_eq(cudnnBackendFinalize(descriptor), 0);
		ck_assert(!waited);
		ck_assert_int_eq(cudnnBackendDestroyDescriptor(descriptor), 0);
		ck_assert(!waited);
		before = descriptor;
	}
	/* What has ended the guest's side knows. */
	answered = 0;
	ck_assert_int_eq(cudnnBackendDestroyDescriptor(before), CUDNN_STATUS_BAD_PARAM);
	ck_assert_int_eq(cudnnBackendFinalize(before), CUDNN_STATUS_BAD_PARAM);
	ck_assert_uint_eq(answered, 0);
	finish();
}
END_TEST

START_TEST(test_a_descriptor_in_the_place_of_a_pack_is_asked_again)
{
	start();
	descriptor = made(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, GANTRY_CALLS_RAN);
	ck_assert_int_eq(
		set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 0, &descriptor), 0);
	ck_assert_int_eq(cudnnBackendDestroyDescriptor(descriptor), 0);
	descriptor = made(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, GANTRY_CALLS_RAN);
	verdict = CUDNN_STATUS_NOT_SUPPORTED;
	ck_assert_int_eq(cudnnBackendFinalize(descriptor), CUDNN_STATUS_NOT_SUPPORTED);
	ck_assert(waited);
	verdict = CUDNN_STATUS_SUCCESS;
	ck_assert_int_eq(cudnnBackendDestroyDescriptor(descriptor), 0);
	finish();
}
END_TEST

START_TEST(test_what_could_not_be_made_is_no_object_of_the_worker)
{
	start();
	verdict = CUDNN_STATUS_NOT_SUPPORTED;
	descriptor = made(CUDNN_BACKEND_ENGINE_DESCRIPTOR, GANTRY_CALLS_RAN);
	verdict = CUDNN_STATUS_SUCCESS;
	ck_assert_int_eq(cudnnBackendFinalize(descriptor), CUDNN_STATUS_BAD_PARAM);
	ck_assert_uint_eq(answered, GANTRY_CALLS_REFUSED);
	ck_assert_int_eq(cudnnBackendDestroyDescriptor(descriptor), 0);
	finish();
}
END_TEST

START_TEST(test_a_number_that_is_not_the_guests_to_give_is_refused)
{
	static const uint64_t bad[] = {
		2, 0x10001, 0x1ffff & 0x17fff, 1ull << 31 | 0x8001, 1ull << 40 | 0x18001, UINT64_MAX
	};

	start();
	change = 8; /* behind the type */
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		change_to = bad[i];
		(void)made(CUDNN_BACKEND_ENGINE_DESCRIPTOR, GANTRY_CALLS_REFUSED);
	}
	ck_assert_uint_eq(site.table.nchosen, 0);
	/* The last place is one, and taken then whatever the generation. */
	change_to = 0x1ffff;
	(void)made(CUDNN_BACKEND_ENGINE_DESCRIPTOR, GANTRY_CALLS_RAN);
	(void)made(CUDNN_BACKEND_ENGINE_DESCRIPTOR, GANTRY_CALLS_REFUSED);
	change_to = 0x2ffff;
	(void)made(CUDNN_BACKEND_ENGINE_DESCRIPTOR, GANTRY_CALLS_REFUSED);
	ck_assert_uint_eq(site.table.nchosen, 32768);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cudnn by hand");
	TCase *tc = gantry_unit_case(suite, "backend");

	tcase_add_test(tc, test_numbers_and_enumerations_arrive_as_they_are);
	tcase_add_test(tc, test_objects_in_arrays_become_the_librarys);
	tcase_add_test(tc, test_addresses_go_as_they_are_and_values_of_the_host_by_content);
	tcase_add_test(tc, test_what_an_attribute_has_comes_back);
	tcase_add_test(tc, test_how_many_there_are_can_be_asked_without_a_place_for_them);
	tcase_add_test(tc, test_no_more_comes_back_than_the_attribute_has);
	tcase_add_test(tc, test_more_elements_than_attributes_have_are_refused);
	tcase_add_test(tc, test_one_of_an_rnns_weights_is_asked_without_the_other);
	tcase_add_test(tc, test_what_is_no_object_no_address_and_no_type_is_refused);
	tcase_add_test(tc, test_a_lying_count_or_address_is_refused);
	tcase_add_test(tc, test_values_that_are_kept_have_an_end);
	tcase_add_test(tc, test_a_finalized_descriptor_goes_on_and_what_finalizing_answers_is_told);
	tcase_add_test(tc, test_functions_that_are_not_there_are_told_by_name);
	tcase_add_test(tc, test_a_plan_is_waited_for_until_it_has_run_once);
	tcase_add_test(tc, test_a_pack_of_addresses_is_made_used_and_ended_without_an_answer);
	tcase_add_test(tc, test_a_descriptor_in_the_place_of_a_pack_is_asked_again);
	tcase_add_test(tc, test_what_could_not_be_made_is_no_object_of_the_worker);
	tcase_add_test(tc, test_a_number_that_is_not_the_guests_to_give_is_refused);
	return gantry_unit_run(suite);
}
