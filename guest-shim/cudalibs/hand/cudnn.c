/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN's attributes of backend descriptors: arrays whose elements are what another argument says, objects and
 * addresses among them. The other end is devices/cuda/calls/hand/cudnn.c, and what lies on the wire is said there.
 */
#include <cudnn.h>

#include "guest-shim/cudalibs/call.h"
#include "proto/calls_types.h"

void gantry_hand_cudnnBackendSetAttribute(struct gantry_call *call,
					  cudnnBackendDescriptor_t descriptor,
					  cudnnBackendAttributeName_t name,
					  cudnnBackendAttributeType_t type, int64_t count,
					  const void *elements);
void gantry_hand_cudnnBackendGetAttribute(struct gantry_call *call,
					  cudnnBackendDescriptor_t descriptor,
					  cudnnBackendAttributeName_t name,
					  cudnnBackendAttributeType_t type, int64_t count,
					  int64_t *ret_count, void *elements);
void gantry_hand_cudnnBackendFinalize(struct gantry_call *call,
				      cudnnBackendDescriptor_t descriptor);

/* What a descriptor has for a mode: it is a pack of addresses, made for each run of a plan. */
#define IS_PACK 1

static bool is_of_pack(cudnnBackendAttributeName_t name)
{
	return name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS ||
	       name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS ||
	       name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE;
}

/* An address of the device as it is; a value of the host's, which the library takes when the plan runs, by content. */
static void put_address(struct gantry_call *call, const void *at)
{
	gantry_call_scalar(call, at);
}

void gantry_hand_cudnnBackendSetAttribute(struct gantry_call *call,
					  cudnnBackendDescriptor_t descriptor,
					  cudnnBackendAttributeName_t name,
					  cudnnBackendAttributeType_t type, int64_t count,
					  const void *elements)
{
	uint64_t bytes = gantry_pack_span(count, gantry_cudnn_element_bytes(type));

	call->flags |= GANTRY_CALL_APART; /* addresses are said, and nothing is looked at there */
	if (is_of_pack(name))
		gantry_call_set_mode((uint64_t)(uintptr_t)descriptor, IS_PACK);
	gantry_call_put(call, &name, sizeof(name));
	gantry_call_put(call, &type, sizeof(type));
	gantry_call_put(call, &count, sizeof(count));
	gantry_call_handle(call, (uint64_t)(uintptr_t)descriptor, 0);
	if (type == CUDNN_TYPE_VOID_PTR && elements) {
		for (int64_t i = 0; i < count && !call->pack.failed; i++)
			put_address(call, ((void *const *)elements)[i]);
		return;
	}
	/* Numbers of objects are bytes here; the worker knows better. */
	gantry_call_in(call, elements, bytes);
}

void gantry_hand_cudnnBackendGetAttribute(struct gantry_call *call,
					  cudnnBackendDescriptor_t descriptor,
					  cudnnBackendAttributeName_t name,
					  cudnnBackendAttributeType_t type, int64_t count,
					  int64_t *ret_count, void *elements)
{
	uint64_t bytes = gantry_pack_span(count, gantry_cudnn_element_bytes(type));

	call->flags |= GANTRY_CALL_APART;
	call->waits = true;
	if (!ret_count)
		ret_count = &call->count;
	gantry_call_put(call, &name, sizeof(name));
	gantry_call_put(call, &type, sizeof(type));
	gantry_call_put(call, &count, sizeof(count));
	gantry_call_handle(call, (uint64_t)(uintptr_t)descriptor, 0);
	gantry_call_out(call, ret_count, sizeof(*ret_count));
	/* The library fills objects that the caller made. */
	if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
		gantry_call_inout(call, elements, bytes);
	else
		gantry_call_out(call, elements, bytes);
	/* Programs ask for as many as there can be, into memory for as many as there are. */
	if (elements)
		gantry_call_counted(call, ret_count, gantry_cudnn_element_bytes(type));
}

/* Whether a plan can be had programs ask by finalizing it; of a pack they know. */
void gantry_hand_cudnnBackendFinalize(struct gantry_call *call, cudnnBackendDescriptor_t descriptor)
{
	call->flags |= GANTRY_CALL_APART;
	gantry_call_handle(call, (uint64_t)(uintptr_t)descriptor, 0);
	gantry_call_mode(call, (uint64_t)(uintptr_t)descriptor);
	call->waits |= call->mode != IS_PACK;
}
