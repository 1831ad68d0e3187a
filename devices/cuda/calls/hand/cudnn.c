/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN's attributes of backend descriptors. After name, type, count and descriptor come the elements:
 *
 *   set, addresses   each in either place, as a scalar: of the device, or 16 bytes of the host's
 *   set, otherwise   bytes in; handles and descriptors are numbers of the table
 *   get              the count, bytes out, then the elements: bytes out, of descriptors bytes in too
 *
 * A value of the host's is read by the library when the plan runs, so it stays as long as the descriptor has it.
 */
#include <cudnn.h>
#include <string.h>

#include "devices/cuda/calls/run.h"
#include "proto/calls_types.h"

void gantry_hand_serve_cudnnBackendSetAttribute(struct gantry_calls_run *run);
void gantry_hand_serve_cudnnBackendGetAttribute(struct gantry_calls_run *run);
void gantry_hand_serve_cudnnBackendFinalize(struct gantry_calls_run *run);

#define SCALAR_BYTES 16u
#define MAX_COUNT \
	65536 /* elements of an attribute; the largest that are documented have some thousand */

struct attribute {
	cudnnBackendAttributeName_t name;
	cudnnBackendAttributeType_t type;
	int64_t count;
	uint64_t id; /* the descriptor's number */
	void *descriptor;
	uint64_t bytes; /* of all elements */
};

static uint32_t kind_of(cudnnBackendAttributeType_t type)
{
	return type == CUDNN_TYPE_HANDLE ? gantry_calls_kind("cudnnHandle_t")
	       : type == CUDNN_TYPE_BACKEND_DESCRIPTOR
		       ? gantry_calls_kind("cudnnBackendDescriptor_t")
		       : 0;
}

static void take_attribute(struct gantry_calls_run *run, struct attribute *a)
{
	gantry_calls_take(run, &a->name, sizeof(a->name));
	gantry_calls_take(run, &a->type, sizeof(a->type));
	gantry_calls_take(run, &a->count, sizeof(a->count));
	a->id = gantry_calls_peek(run);
	a->descriptor = (void *)(uintptr_t)gantry_calls_take_handle(
		run, gantry_calls_kind("cudnnBackendDescriptor_t"), false);
	gantry_calls_need(run, a->descriptor);
	if (a->count < 0 || a->count > MAX_COUNT)
		gantry_calls_refuse(run);
	a->bytes = gantry_pack_span(a->count, gantry_cudnn_element_bytes(a->type));
	/* A type that came after this was made; or what the library takes for addresses, called something else. */
	if (gantry_cudnn_element_bytes(a->type) == 0 ||
	    (a->type != CUDNN_TYPE_VOID_PTR && (a->name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS ||
						a->name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE)))
		gantry_calls_refuse(run);
}

/* Numbers of the table become objects, in place. 0 stays. @fills: the call writes to them. */
static void to_natives(struct gantry_calls_run *run, uint32_t kind, uint64_t *elements,
		       int64_t count, bool fills)
{
	for (int64_t i = 0; i < count && !run->in.failed; i++) {
		const struct gantry_calls_object *object;

		if (elements[i] == 0)
			continue;
		object = gantry_calls_table_find(&run->site->table, kind, elements[i]);
		if (fills)
			gantry_calls_note_filled(run, elements[i]);
		else
			gantry_calls_note_taken(run, elements[i]);
		if (object)
			elements[i] = object->native;
		else
			gantry_calls_refuse(run);
	}
}

/* And back. What the guest has no number for is the library's own, and stays here. */
static void to_ids(struct gantry_calls_run *run, uint32_t kind, uint64_t *elements, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		elements[i] = gantry_calls_table_known(&run->site->table, kind, elements[i]);
}

/* Objects where the numbers were, in memory of the run: the request is written down as it came, for whoever makes the objects anew. */
static void *take_elements(struct gantry_calls_run *run, const struct attribute *a)
{
	void *numbers = gantry_calls_take_in(run, a->bytes), *objects;

	if (!numbers || !kind_of(a->type))
		return numbers;
	objects = gantry_calls_take_scratch(run, a->bytes);
	if (objects) {
		memcpy(objects, numbers, a->bytes);
		to_natives(run, kind_of(a->type), objects, a->count, false);
	}
	return objects;
}

static void *take_addresses(struct gantry_calls_run *run, const struct attribute *a)
{
	void **addresses;

	/* Each has two words at least, so what is left of the request bounds them. */
	if (a->count < 0 || (uint64_t)a->count > (run->in.len - run->in.pos) / (sizeof(uint64_t))) {
		gantry_calls_refuse(run);
		return NULL;
	}
	addresses = gantry_calls_take_scratch(run, a->bytes);
	for (int64_t i = 0; addresses && i < a->count && !run->in.failed; i++) {
		bool on_host;

		addresses[i] = gantry_calls_take_address(run, SCALAR_BYTES, &on_host);
		if (on_host)
			addresses[i] = gantry_calls_keep(run, a->id, addresses[i], SCALAR_BYTES);
	}
	return addresses;
}

void gantry_hand_serve_cudnnBackendSetAttribute(struct gantry_calls_run *run)
{
	__typeof__(&cudnnBackendSetAttribute) function = (__typeof__(&cudnnBackendSetAttribute))
		gantry_calls_symbol(run, "cudnnBackendSetAttribute");
	struct attribute a;
	cudnnStatus_t ret;
	void *elements;

	take_attribute(run, &a);
	elements = a.type == CUDNN_TYPE_VOID_PTR ? take_addresses(run, &a) : take_elements(run, &a);
	gantry_calls_need(run, elements);
	if (!gantry_calls_may_run(run))
		return;
	ret = function(a.descriptor, a.name, a.type, a.count, elements);
	gantry_calls_ran(run, (uint64_t)ret, ret == CUDNN_STATUS_SUCCESS);
}

static void *take_places(struct gantry_calls_run *run, const struct attribute *a)
{
	void *elements;

	if (a->type != CUDNN_TYPE_BACKEND_DESCRIPTOR)
		return gantry_calls_take_out(run, a->bytes);
	elements = gantry_calls_take_inout(run, a->bytes);
	if (elements)
		to_natives(run, kind_of(a->type), elements, a->count, true);
	return elements;
}

void gantry_hand_serve_cudnnBackendGetAttribute(struct gantry_calls_run *run)
{
	__typeof__(&cudnnBackendGetAttribute) function = (__typeof__(&cudnnBackendGetAttribute))
		gantry_calls_symbol(run, "cudnnBackendGetAttribute");
	struct attribute a;
	cudnnStatus_t ret;
	int64_t *count;
	void *elements;

	take_attribute(run, &a);
	count = gantry_calls_take_out(run, sizeof(*count));
	elements = take_places(run, &a);
	if (!gantry_calls_may_run(run))
		return;
	/* Without a place for objects only their number is asked. */
	ret = function(a.descriptor, a.name, a.type, elements ? a.count : 0, count, elements);
	if (ret == CUDNN_STATUS_SUCCESS && elements && kind_of(a.type))
		to_ids(run, kind_of(a.type), elements, a.count);
	/* Of its own memory the library tells the guest nothing. */
	if (elements && a.type == CUDNN_TYPE_VOID_PTR)
		for (int64_t i = 0; i < a.count; i++)
			((void **)elements)[i] = gantry_calls_reaches(run, ((void **)elements)[i]);
	gantry_calls_ran(run, (uint64_t)ret, ret == CUDNN_STATUS_SUCCESS);
}

void gantry_hand_serve_cudnnBackendFinalize(struct gantry_calls_run *run)
{
	__typeof__(&cudnnBackendFinalize) function =
		(__typeof__(&cudnnBackendFinalize))gantry_calls_symbol(run, "cudnnBackendFinalize");
	void *descriptor = (void *)(uintptr_t)gantry_calls_take_handle(
		run, gantry_calls_kind("cudnnBackendDescriptor_t"), false);
	cudnnStatus_t ret;

	gantry_calls_need(run, descriptor);
	if (!gantry_calls_may_run(run))
		return;
	ret = function(descriptor);
	gantry_calls_ran(run, (uint64_t)ret, ret == CUDNN_STATUS_SUCCESS);
}
