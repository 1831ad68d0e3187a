/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all doors say and hear alike: the messages that may answer HELLO, and the sentences for those that do not.
 *
 * Returns: as guest-shim/error.h says, statuses with their sentence recorded. Threads: any. Blocking: never.
 */
#ifndef GANTRY_GUEST_SHIM_HANDSHAKE_H
#define GANTRY_GUEST_SHIM_HANDSHAKE_H

#include <stdint.h>

#include "proto/door.h"

#define GANTRY_MESSAGE_MAX 256u /* more than any message has: a longer one is seen to be one */

union gantry_message {
	struct gantry_door_header h;
	struct gantry_door_welcome welcome;
	struct gantry_door_refuse refuse;
	uint8_t bytes[GANTRY_MESSAGE_MAX];
};

/* Nothing was decided, for the agent makes way for another: whoever still has time connects anew. */
#define GANTRY_HANDSHAKE_ANEW 1

/*
 * @msg, checked and of @kind, as the answer to HELLO: 0 for WELCOME; ANEW, with status AGAIN's sentence recorded; the refusal's
 * status and sentence; PROTOCOL.
 */
int gantry_handshake_answer(const union gantry_message *msg, uint16_t kind);

/* No answer to HELLO came, for the reason @errnum (negative): -ETIMEDOUT, -EPROTO, or the other side hung up. */
int gantry_handshake_failed(int errnum);

/* The same of a request after it: TIMEOUT, PROTOCOL or DETACHED. */
int gantry_request_failed(int errnum);

#endif
