/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gantry-worker --probe: what devices this machine has, whether configured or not, as one JSON object on @out.
 *
 *   {"devices": [{"backend": "cuda", "section": ["gpu=0"], "model": ..., "id": ..., ...}], "problems": [{...}]}
 *
 * "section" is what a [device NAME] of the configuration would say beside its backend.
 * Threads: one. Blocking: opens each device, as long as drivers take.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_PROBE_H
#define GANTRY_HOST_AGENT_WORKER_PROBE_H

#include <stdio.h>

/* Returns how many devices could be opened; -errno: @out could not be written. */
int gantry_probe_print(FILE *out);

#endif
