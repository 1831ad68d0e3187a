/* SPDX-License-Identifier: Apache-2.0 */
/* How the host wakes threads of a guest that sleep on words of its segment: said with Attach, kept by the monitor. */
#ifndef GANTRY_HOST_AGENT_SHARED_WAKE_H
#define GANTRY_HOST_AGENT_SHARED_WAKE_H

enum gantry_session_wake {
	GANTRY_SESSION_WAKE_FUTEX = 0,
	GANTRY_SESSION_WAKE_NONE = 1,	 /* they poll */
	GANTRY_SESSION_WAKE_EVENTFD = 2, /* of which others may hold copies, as QEMU does */
	GANTRY_SESSION_WAKE_SOCKET = 3,	 /* a byte into it */
};

#endif
