/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of an agent that does not exist, for tests of gantryctl: fixed, so that their JSON can be compared. */
#ifndef GANTRY_TESTS_UNIT_CTL_SAMPLES_H
#define GANTRY_TESTS_UNIT_CTL_SAMPLES_H

#include "admin.pb-c.h"
#include "peer.pb-c.h"

/*
 * Fills @reply's body for a request of @body_case. The messages are static. 0; -1: no body belongs to it, as the
 * request is a change.
 */
int gantry_sample_reply(int body_case, Gantry__Admin__AdminReply *reply);

/* The sample tenants' doors are DIR/NAME/door; @dir is kept by pointer. */
void gantry_sample_doors(const char *dir);

extern Gantry__Admin__Event *const gantry_sample_events[];
extern const size_t gantry_sample_nevents;
/* With memory of its own; not in the list, which tables are made of. */
extern const Gantry__Admin__Device gantry_sample_gpu;
extern Gantry__Peer__Device *const gantry_sample_peer_devices[];
extern const size_t gantry_sample_npeer_devices;

#endif
