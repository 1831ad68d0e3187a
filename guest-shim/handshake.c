/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/handshake.h"

#include <errno.h>

#include "guest-shim/error.h"

static int refused(const struct gantry_door_refuse *refuse)
{
	int status = refuse->status < 0 ? refuse->status : GANTRY_E_DENIED;

	return gantry_fail(status, "%s",
			   refuse->text[0] ? refuse->text : gantry_status_text(status));
}

int gantry_handshake_answer(const union gantry_message *msg, uint16_t kind)
{
	if (kind == GANTRY_DOOR_WELCOME)
		return 0;
	if (kind == GANTRY_DOOR_NOTICE && msg->refuse.status == GANTRY_E_AGAIN) {
		(void)refused(&msg->refuse); /* for whoever has no time left */
		return GANTRY_HANDSHAKE_ANEW;
	}
	if (kind == GANTRY_DOOR_REFUSE || kind == GANTRY_DOOR_NOTICE)
		return refused(&msg->refuse);
	return gantry_fail(GANTRY_E_PROTOCOL, "the agent answered with a message of kind %u", kind);
}

int gantry_handshake_failed(int errnum)
{
	if (errnum == -ETIMEDOUT || errnum == -EAGAIN)
		return gantry_fail(GANTRY_E_NO_AGENT, "the agent did not answer in time");
	if (errnum == -EPROTO)
		return gantry_fail(GANTRY_E_PROTOCOL, "what answers at this door is no agent");
	return gantry_fail(GANTRY_E_NO_AGENT, "the agent hung up instead of answering");
}

int gantry_request_failed(int errnum)
{
	if (errnum == -ETIMEDOUT || errnum == -EAGAIN)
		return gantry_fail(GANTRY_E_TIMEOUT, "the agent did not answer in time");
	if (errnum == -EPROTO)
		return gantry_fail(GANTRY_E_PROTOCOL, "what the agent answered is no message");
	return gantry_fail(GANTRY_E_DETACHED, "the agent hung up");
}
