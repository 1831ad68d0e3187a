/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of a vendor's library, put together by a generated stub, carried to the worker and answered.
 *
 * A stub begins a call, puts its arguments in the order of the wire (proto/calls.h), and finishes it. Calls that
 * answer nothing but a status are sent and not waited for: the stub returns success, and a failure is what the
 * library's next call that waits returns. All others make one round trip.
 *
 * Order: a call with a handle that has a stream runs in that stream's order. One without runs behind the calls that
 * used its handles. Streams are noted here (gantry_call_set_stream()) and go along with each call.
 *
 * Threads: any, one for each call object. Nothing here prints, exits, or keeps a thread; a log goes where the program says (log.c).
 */
#ifndef GANTRY_GUEST_SHIM_CUDALIBS_CALL_H
#define GANTRY_GUEST_SHIM_CUDALIBS_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/pack.h"
#include "proto/calls.h"

#define GANTRY_CALL_OUTS    24u
#define GANTRY_CALL_HANDLES 16u
/* Of a request that takes no memory of its own. */
#define GANTRY_CALL_ROOM 512u

typedef void gantry_call_logger(int level, const char *function, const char *message);
typedef void gantry_call_line_logger(const char *line);

/* Where a library's log goes; under the lock of log.c but for @mask. */
struct gantry_call_log {
	uint32_t mask; /* atomic: what is wanted, as the vendor's bits */
	bool has_ended;
	bool is_ours; /* @file was opened here */
	gantry_call_logger *callback;
	gantry_call_line_logger *lines;
	FILE *file;
	bool to_out, to_error; /* the program's standard streams, too */
};

/* A library's words for what goes wrong on this side. One object for each library, not constant. */
struct gantry_call_library {
	const char *name;
	int32_t refused;     /* an argument that cannot be sent, or that the worker refuses */
	int32_t unsupported; /* a function or a library that is not there */
	int32_t failed;	     /* no session, or its end */
	bool is_of_several; /* its objects know their device, and its groups span devices: several.h */
	/* Read and written atomically. */
	int32_t late;	       /* failure of a call that was not waited for; 0: none */
	uint64_t nunsupported; /* calls of functions that are not forwarded */
	struct gantry_call_log log;
};

enum gantry_call_flags {
	GANTRY_CALL_WAITS = 1 << 0,
	/* Of a handle: */
	GANTRY_CALL_DROPS = 1 << 1, /* a success ends it */
	GANTRY_CALL_BOUND = 1 << 2, /* the call is on its stream */
	/* Of the call: */
	GANTRY_CALL_PROVES =
		1 << 6, /* waits until the second of its objects has succeeded in it once */
	GANTRY_CALL_OPENS =
		1 << 7, /* until the thread closes what it opened all of its calls wait */
	GANTRY_CALL_CLOSES = 1 << 8,
	GANTRY_CALL_APART = 1 << 9,   /* no part of what streams do: no order of theirs is kept */
	GANTRY_CALL_LATER = 1 << 11,  /* what it answers into host memory comes with its stream */
	GANTRY_CALL_ASKS = 1 << 10,   /* answered from the host: in a captured stream it is apart */
	GANTRY_CALL_SETS = 1 << 12,   /* says something of an object, and starts nothing */
	GANTRY_CALL_NOW = 1 << 13,    /* goes at once, though nobody waits for it */
	GANTRY_CALL_OR_NULL = 1 << 5, /* 0 means something to the function */
	/* Of memory that may be the host's or the device's: */
	GANTRY_CALL_IN = 1 << 3,
	GANTRY_CALL_OUT = 1 << 4,
};

enum gantry_call_answer {
	GANTRY_CALL_BYTES,
	GANTRY_CALL_OBJECT, /* a handle of so many bytes */
	GANTRY_CALL_TEXT,
	GANTRY_CALL_TABLE, /* bytes that stay */
};

struct gantry_call {
	struct gantry_call_library *library;
	const char *name;
	struct gantry_pack pack; /* the request */
	void *stream;
	bool has_stream;
	bool waits;
	bool refused;
	bool is_answered; /* here, by code by hand: with @answer */
	int32_t answer;
	const void *record; /* that was put last, by code by hand */
	unsigned flags;	    /* of the whole call */
	/* Where the library looks for values that may lie on either side: 0 on the host; -1: it goes by the address. */
	int mode;
	uint64_t dropped;
	uint64_t chosen; /* number of the object that the call makes; 0: the worker gives it one */
	void *chosen_to;
	int device; /* that its objects are of; negative: the thread's, or its stream's */
	uint32_t nouts;
	uint32_t nhandles;
	uint64_t handles[GANTRY_CALL_HANDLES];
	uint64_t reply_bytes;
	int64_t count; /* for code by hand: where an answer goes that the caller has no place for */
	const char *text; /* what a function that returns a text returned */
	struct {
		void *to;
		uint64_t bytes;
		uint32_t answer;      /* enum gantry_call_answer */
		const int64_t *count; /* NULL: all of the bytes are the caller's */
		uint64_t element_bytes;
	} outs[GANTRY_CALL_OUTS];
	_Alignas(8) uint8_t room[GANTRY_CALL_ROOM];
};

struct gantry_cuda_road_answer; /* of road.h */

/* What a call needs of its way. */
struct gantry_call_route {
	const char *name; /* of the function; a text for good */
	void *stream;
	bool has_stream;
	bool waits;
	bool is_apart; /* of what streams do */
	bool asks;     /* is apart where its stream is captured */
	bool may_stay; /* here, until another call goes: nobody sees whether it was made */
	bool drops;    /* ends its objects */
	uint32_t nhandles;
	const uint64_t *handles;
	/* Where its answers go each time, if the call may become a node of a graph all the same as it waits. */
	uint32_t nanswers;
	const struct gantry_cuda_road_answer *answers;
};

/*
 * How calls get to the worker. carry: 0, with @reply written where route->waits; 1: the stream is captured, and the call is a node
 * now; -errno. failure: the
 * status of an earlier call of @library that was not waited for, or 0.
 */
struct gantry_call_road {
	/* The session that calls would go to now has begun (gantry_call_session_began()). NULL: there is but one. */
	void (*enter)(void *cookie);
	int (*carry)(void *cookie, struct gantry_call_library *library,
		     const struct gantry_call_route *route, const void *request, size_t bytes,
		     void *reply, size_t reply_bytes);
	/* As road.h says. */
	int (*is_device)(void *cookie, const void *address);
	/* NULL: nobody wants to know. */
	void (*unsupported)(void *cookie, const char *name);
	/* As road.h says. */
	int (*device)(void *cookie);
	/* As road.h says; NULL: there is no such memory. */
	int (*mem_alloc)(void *cookie, uint64_t bytes, uint64_t *ret_address);
	int (*mem_free)(void *cookie, uint64_t address);
	/* As road.h says. */
	int (*enter_device)(void *cookie, int device);
	void (*leave_device)(void *cookie, int device);
	void *cookie;
};
/* NULL: the usual one. Before the first call, or by tests. */
void gantry_call_road_set(const struct gantry_call_road *road);
extern const struct gantry_call_road gantry_call_road_session;

/*
 * The process has another session: what was noted of the last one's objects (that graphs name them, that they have succeeded) is
 * not true of those that get their numbers now. Any thread; by the road, before it carries the first call of the session.
 */
void gantry_call_session_began(void);

/* ---- for generated code ---- */

void gantry_call_begin(struct gantry_call *call, struct gantry_call_library *library,
		       const char *name, uint64_t function, unsigned flags);
void gantry_call_put(struct gantry_call *call, const void *value, size_t len);
void gantry_call_handle(struct gantry_call *call, uint64_t handle, unsigned flags);
void gantry_call_stream(struct gantry_call *call, void *stream);
void gantry_call_device(struct gantry_call *call, const void *address);
void gantry_call_in(struct gantry_call *call, const void *from, uint64_t bytes);
void gantry_call_out(struct gantry_call *call, const void *to, uint64_t bytes);
void gantry_call_inout(struct gantry_call *call, const void *both, uint64_t bytes);
/*
 * The answer put last has as many elements of @element_bytes as *count says, which an answer before it is: the caller's
 * memory may have no room for more, whatever it asked for.
 */
void gantry_call_counted(struct gantry_call *call, const int64_t *count, uint64_t element_bytes);
void gantry_call_either(struct gantry_call *call, const void *at, uint64_t bytes, unsigned flags);
/* Up to 16 bytes from @at, no further than its page: how many count only the library knows. */
void gantry_call_scalar(struct gantry_call *call, const void *at);
/* The same where a device address cannot be. */
void gantry_call_immediate(struct gantry_call *call, const void *at);
/* Whether the @n numbers of devices are the calling thread's alone: what works on others is another worker's. */
bool gantry_call_is_own_device(const int *devices, int64_t n);
/* The calling thread's; negative: it has none. */
int gantry_call_own_device(void);
/* The same where one device may be there several times, of an object that is over so many: whether there are @n, and whether all are the thread's. */
bool gantry_call_fits_parts(const int *devices, int64_t n);
bool gantry_call_are_own_devices(const int *devices, int64_t n);
void gantry_call_string(struct gantry_call *call, const char *text);
void gantry_call_strings(struct gantry_call *call, const char *const *texts, int64_t count);
void gantry_call_null(struct gantry_call *call, const void *at);
/* @handle_bytes: 4 or 8. */
void gantry_call_object(struct gantry_call *call, void *to, size_t handle_bytes);
/*
 * The same of an object that gets its number here: the call is not waited for, and where it fails the calls with the object
 * fail. Without a free number the worker gives one.
 */
void gantry_call_chosen(struct gantry_call *call, void *to, size_t handle_bytes);
void gantry_call_text(struct gantry_call *call, void *to);
/* The library's own memory: @to gets the address of a copy, which lives as long as the process; equal ones are one. */
void gantry_call_table(struct gantry_call *call, void *to, uint64_t bytes);
/* For code by hand: calls that it makes from here to the leave are on @device. 0, or -errno. */
int gantry_call_enter_device(int device);
void gantry_call_leave_device(int device);
/* The function's result, or one of the library's words as int32_t; ends @call. */
uint64_t gantry_call_finish(struct gantry_call *call);
/* A function that returns no status: 0 where it could not be asked. */
uint64_t gantry_call_finish_value(struct gantry_call *call);
/* A text; it lives as long as the process, and equal ones are one. "" where it could not be asked. */
const char *gantry_call_finish_text(struct gantry_call *call);

/*
 * An object in memory of the caller's: what the worker calls it, and where it was put, for copies of it are the same object
 * and do not end it.
 */
struct gantry_call_placed {
	uint64_t magic;
	uint64_t number;
	uint64_t at;
	uint64_t reserved;
};
/* Puts object @number into @bytes of memory @at. */
void gantry_call_place(void *at, size_t bytes, uint64_t number);
/* Whether that was done to this memory before. */
bool gantry_call_is_placed(const void *at);
/* The number of an object that may be a number or lie in the caller's memory. */
uint64_t gantry_call_number(const void *object);

/* log.c: false: no such level or mask, or the file cannot be opened. Until the log has ended: then nothing is logged any more. */
void gantry_call_log_callback(struct gantry_call_library *library, gantry_call_logger *callback);
void gantry_call_log_file(struct gantry_call_library *library, FILE *file);
bool gantry_call_log_open(struct gantry_call_library *library, const char *path);
/* cuBLAS's: whether there is a log, where else it goes, and a function that gets whole lines. */
bool gantry_call_log_configure(struct gantry_call_library *library, int on, int to_out,
			       int to_error, const char *path);
void gantry_call_log_lines(struct gantry_call_library *library, gantry_call_line_logger *lines);
gantry_call_line_logger *gantry_call_log_get_lines(struct gantry_call_library *library);
bool gantry_call_log_level(struct gantry_call_library *library, int level);
bool gantry_call_log_mask(struct gantry_call_library *library, int mask);
void gantry_call_log_end(struct gantry_call_library *library);
/* A call returned @ret, a status. */
void gantry_call_log(struct gantry_call_library *library, const char *function, int32_t ret);

/* @name is a text for good. */
int32_t gantry_call_unsupported(struct gantry_call_library *library, const char *name);
void gantry_call_set_stream(uint64_t handle, void *stream);
void *gantry_call_get_stream(uint64_t handle);
/* The library looks for scalars where @mode of @handle says; memory that both sides have counts as that side's. */
void gantry_call_set_mode(uint64_t handle, int mode);
void gantry_call_mode(struct gantry_call *call, uint64_t handle);
/* Over how many devices an object is: 1, where nobody said more. */
void gantry_call_set_parts(uint64_t handle, int64_t n);
int64_t gantry_call_parts(uint64_t handle);

/* ---- for code by hand besides ---- */

/* The call's end is @ret: it was finished before, or never goes to the worker. */
void gantry_call_answer(struct gantry_call *call, int32_t ret);
/* Device memory of the program's, as it would allocate it itself. 0, or -errno. */
int gantry_call_mem_alloc(uint64_t bytes, uint64_t *ret_address);
int gantry_call_mem_free(uint64_t address);

#endif
