/* SPDX-License-Identifier: Apache-2.0 */
/* What kernel "speak" does for workers that may speak with each other: each answers a number, or a negative errno. */
#ifndef GANTRY_TESTS_SYSTEM_CONFINE_SPEAK_H
#define GANTRY_TESTS_SYSTEM_CONFINE_SPEAK_H

enum speak {
	SPEAK_LISTEN,  /* the port, of the loopback, that it listens at until the worker ends */
	SPEAK_CONNECT, /* to port A */
	SPEAK_SOCKET,  /* of family A and type B */
	SPEAK_NAME,    /* a datagram socket with abstract name A */
	SPEAK_SEND,    /* a byte to that of name A */
	SPEAK_FILE, /* makes a file of NCCL's, writes to it, finds it by its name, removes it: 1; A: the name of another */
	SPEAK_WALK, /* interfaces that there are */
};

#endif
