/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of the program's: counted, and destroyed by a function of its own, which runs without the lock. */
#include <stdlib.h>

#include "guest-shim/cuda/graph.h"

static struct CUuserObject_st *dead;

CUresult cu_userobj_new_locked(void *data, CUhostFn destroy, unsigned int nrefs,
			       struct CUuserObject_st **ret_object)
{
	struct CUuserObject_st *object = calloc(1, sizeof(*object));

	if (!object || !cu_handle_add_locked(object, CU_KIND_USER_OBJECT)) {
		free(object);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	object->data = data;
	object->destroy = destroy;
	object->nrefs = nrefs;
	*ret_object = object;
	return CUDA_SUCCESS;
}

CUresult cu_userobj_drop_locked(struct CUuserObject_st *object, uint64_t n)
{
	if (n > object->nrefs)
		return CUDA_ERROR_INVALID_VALUE;
	object->nrefs -= n;
	if (object->nrefs == 0) {
		cu_handle_remove_locked(object);
		object->next = dead;
		dead = object;
	}
	return CUDA_SUCCESS;
}

void cu_userobj_destroy(void)
{
	struct CUuserObject_st *list;

	(void)pthread_mutex_lock(&cu.lock);
	list = dead;
	dead = NULL;
	(void)pthread_mutex_unlock(&cu.lock);
	while (list) {
		struct CUuserObject_st *object = list;
		bool was_in_callback = cu_in_callback;

		list = object->next;
		cu_in_callback = true;
		object->destroy(object->data);
		cu_in_callback = was_in_callback;
		free(object);
	}
}

/* ---- of graphs ---- */

static struct cu_held **find(struct CUgraph_st *graph, const struct CUuserObject_st *object)
{
	struct cu_held **at = &graph->held;

	while (*at && (*at)->object != object)
		at = &(*at)->next;
	return at;
}

CUresult cu_held_add_locked(struct CUgraph_st *graph, struct CUuserObject_st *object, uint32_t n)
{
	struct cu_held **at = find(graph, object);

	if (!*at)
		*at = calloc(1, sizeof(**at));
	if (!*at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (n > UINT32_MAX - (*at)->n)
		return CUDA_ERROR_INVALID_VALUE;
	(*at)->object = object;
	(*at)->n += n;
	return CUDA_SUCCESS;
}

CUresult cu_held_drop_locked(struct CUgraph_st *graph, struct CUuserObject_st *object, uint32_t n)
{
	struct cu_held **at = find(graph, object), *held = *at;

	if (!held || held->n < n)
		return CUDA_ERROR_INVALID_VALUE;
	held->n -= n;
	if (held->n == 0) {
		*at = held->next;
		free(held);
	}
	return cu_userobj_drop_locked(object, n);
}

CUresult cu_held_copy_locked(const struct CUgraph_st *from, struct CUgraph_st *to)
{
	for (const struct cu_held *held = from->held; held; held = held->next) {
		CUresult result = cu_held_add_locked(to, held->object, held->n);

		if (result != CUDA_SUCCESS)
			return result;
		held->object->nrefs += held->n;
	}
	return CUDA_SUCCESS;
}

void cu_held_drop_all_locked(struct CUgraph_st *graph)
{
	while (graph->held) {
		struct cu_held *held = graph->held;

		graph->held = held->next;
		(void)cu_userobj_drop_locked(held->object, held->n); /* so many it had */
		free(held);
	}
}
