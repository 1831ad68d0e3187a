/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several requests in one task (GANTRY_CALLS_MORE): the last one is answered, and of the others what failed is told behind its answer.
 *
 * Threads: those of gantry_calls_serve().
 */
#ifndef GANTRY_DEVICES_CUDA_CALLS_BATCH_H
#define GANTRY_DEVICES_CUDA_CALLS_BATCH_H

#include "devices/cuda/calls/quick.h"
#include "devices/cuda/calls/run.h"

/*
 * The functions of the @bytes at @requests, in their order: so many; 0: that is no request, or several that do not lie one behind the other as they
 * must. The memory may change meanwhile: then they are any.
 */
uint32_t gantry_calls_functions(const void *requests, size_t bytes,
				uint64_t ret_functions[GANTRY_CALLS_TOGETHER]);

/*
 * As gantry_calls_serve() of the last one, after the others, which it changes. None is served where they do not lie as they must.
 * What ran is told to @quick, which may be NULL.
 */
uint32_t gantry_calls_serve_all(struct gantry_calls_site *site,
				const struct gantry_calls_library *const *libraries, void *stream,
				void *requests, size_t bytes, struct gantry_quick *quick,
				struct gantry_pack *reply);

#endif
