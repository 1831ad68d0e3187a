/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Library calls in the worker: the table of objects that libraries gave, and what generated code takes a request apart
 * and makes a reply with.
 *
 * The code of a function takes its arguments in the order of the wire, asks gantry_calls_may_run(), calls the library,
 * and gives what it answered. Everything that it takes was checked here: lengths against what the function's other
 * arguments say they must be, handles against the table and their kind, addresses against what the device has of the
 * session. After the first that does not fit all others are zero, and the library is not called.
 *
 * Trust: the request is a private copy, and hostile. Pointers to host memory that the library gets are into that copy
 *   or into memory of the run; a handle is never a pointer of the guest's.
 * Threads: one at a time for each table; a run belongs to the thread that made it.
 */
#ifndef GANTRY_DEVICES_CUDA_CALLS_RUN_H
#define GANTRY_DEVICES_CUDA_CALLS_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pack.h"
#include "proto/calls.h"

/* Objects alive at once that have a number of the worker's; the places above are the guest's (proto/calls.h). */
#define GANTRY_CALLS_BUCKETS	 4096u /* a power of two */
#define GANTRY_CALLS_MAX_OBJECTS (GANTRY_CALLS_CHOSEN - 1u)
#define GANTRY_CALLS_MAX_OUTS	 48u
/* The most that a type of the libraries' wants of the address of a value. */
#define GANTRY_CALLS_ALIGNMENT 16u
/* Values of the host's that an object may have. */
#define GANTRY_CALLS_MAX_KEPT 256u
/* Of all objects of a table together. */
#define GANTRY_CALLS_MAX_KEPT_BYTES GANTRY_CALLS_MAX_BYTES

struct gantry_calls_run;
struct gantry_recipes;

/* What a call that succeeded means to whoever is to make its objects anew (recipe.h). */
enum gantry_calls_recipe {
	GANTRY_RECIPE_NONE = 0,
	GANTRY_RECIPE_MAKES = 1,
	GANTRY_RECIPE_SETS = 2,	    /* its first object; the next such call takes its place */
	GANTRY_RECIPE_SETS_ONE = 3, /* one of several things, which its first value names */
	GANTRY_RECIPE_FILLS = 4,    /* those objects that the code by hand says */
	GANTRY_RECIPE_ENDS = 5,
	GANTRY_RECIPE_BARS = 6, /* it leaves something that nobody can make anew */
};

struct gantry_calls_function {
	uint64_t id;
	const char *name;
	void (*serve)(struct gantry_calls_run *run);
	uint32_t recipe; /* enum gantry_calls_recipe */
};

/* What ends objects of a kind at the end of whoever had them. @function: the library's function @name. */
struct gantry_calls_ender {
	uint32_t kind;
	const char *name;
	void (*end)(void *function, uint64_t native);
};

/* One vendor library. Constant. */
struct gantry_calls_library {
	const char *name;
	const char *soname;
	const char *const *needs; /* libraries to load before, ends with NULL */
	const struct gantry_calls_function *functions; /* by id */
	uint32_t nfunctions;
	const struct gantry_calls_ender *enders; /* ends with a name that is NULL */
	int32_t success;			 /* what a status says when all is well: 0 */
	bool has_groups; /* it notes what a thread asks for, so its calls are all made on one */
};

struct gantry_calls_object {
	uint64_t native; /* 0: the place is free */
	uint32_t kind;
	uint32_t generation;
	uint32_t next_free;
	uint32_t next_named; /* place; of those whose names lie in the same bucket */
	uint32_t born;	     /* the table's count of objects then */
	bool bound;
	bool is_chosen;	     /* its number is the guest's choice */
	bool is_lent;	     /* another object's: whoever ends that ends it */
	bool is_hosted;	     /* works on host memory, as others of its kind do on the device's */
	uint32_t more_parts; /* devices that it is over, less one */
	uint64_t
		extent_bytes; /* for code by hand: of host memory that it touches at most; 0: nobody has asked yet */
	/* Values that the library reads later, by address; freed with the object. */
	struct gantry_calls_kept *kept;
	uint32_t nkept;
	struct gantry_calls_steps *steps; /* NULL: none was made */
	void *stream;			  /* that the library works on for it, where it is bound */
};

struct gantry_calls_table {
	struct gantry_calls_object *objects;
	struct gantry_calls_object *chosen; /* whose numbers the guest gave */
	uint32_t nobjects;		    /* made room for */
	uint32_t nchosen;
	uint32_t first_free; /* index + 1 */
	uint32_t nborn;
	uint64_t kept_bytes;
	uint32_t
		buckets[GANTRY_CALLS_BUCKETS]; /* places, by what the library calls them; 0: none */
};

void gantry_calls_table_init(struct gantry_calls_table *table);
void gantry_calls_table_fini(struct gantry_calls_table *table);
/* The number that the guest gets for @native, the same while it is there; 0: no room. */
uint64_t gantry_calls_table_add(struct gantry_calls_table *table, uint32_t kind, uint64_t native);
/* Whether the guest may give a new object that number. */
bool gantry_calls_table_is_free(const struct gantry_calls_table *table, uint64_t id);
/* @native, not 0, gets number @id of the guest's, which is free. False: no memory. */
bool gantry_calls_table_add_as(struct gantry_calls_table *table, uint32_t kind, uint64_t native,
			       uint64_t id);
/*
 * @native, not 0, gets number @id of the worker's, in a table of which nothing was ever dropped since it had another from
 * gantry_calls_table_add(); gantry_calls_table_settle() comes before the next of those. False: it is no such number, or taken.
 */
bool gantry_calls_table_put(struct gantry_calls_table *table, uint32_t kind, uint64_t native,
			    uint64_t id);
void gantry_calls_table_settle(struct gantry_calls_table *table);
/* The number that @native has; 0: none. */
uint64_t gantry_calls_table_known(struct gantry_calls_table *table, uint32_t kind, uint64_t native);
/* NULL: there is none of this kind. */
struct gantry_calls_object *gantry_calls_table_find(struct gantry_calls_table *table, uint32_t kind,
						    uint64_t id);
/* A copy of @from that is freed with object @id, which there is; NULL: it has too many, or there is no memory. */
void *gantry_calls_table_keep(struct gantry_calls_table *table, uint64_t id, const void *from,
			      size_t bytes);
void gantry_calls_table_drop(struct gantry_calls_table *table, uint64_t id);
/* Calls @each for all objects, the newest first, and forgets them all. Without memory for that in no order. */
void gantry_calls_table_end(struct gantry_calls_table *table,
			    void (*each)(void *arg, const struct gantry_calls_object *object),
			    void *arg);

/* What the table calls a type of objects: a sum over its name. */
static inline uint32_t gantry_calls_kind(const char *type)
{
	uint64_t sum = 0xcbf29ce484222325u;

	for (; *type; type++)
		sum = (sum ^ (uint8_t)*type) * 0x100000001b3u;
	return (uint32_t)sum;
}

#define GANTRY_CALLS_CALLED 256u /* a power of two */

/* Where calls run, of the same libraries always. */
struct gantry_calls_site {
	struct gantry_calls_table table;
	/* The library's function, or NULL; a library is loaded when first asked for. */
	void *(*symbol)(void *cookie, const struct gantry_calls_library *library, const char *name);
	/* Whether @address is the session's on this device. */
	bool (*reaches)(void *cookie, void *stream, uint64_t address);
	/* The device's number, as libraries count them in this process. */
	int32_t (*device)(void *cookie);
	/* Until the call's stream has done all that it has: 0, or -errno. NULL: nothing is left to streams. */
	int (*settle)(void *cookie);
	void *cookie;
	struct gantry_recipes *recipes; /* NULL: nothing is written down */
	/* Functions that were called here, by the low bits of their numbers. */
	struct {
		const struct gantry_calls_function *function;
		const struct gantry_calls_library *library;
	} called[GANTRY_CALLS_CALLED];
};

/* Objects of one request. */
#define GANTRY_RECIPE_IDS 1024u

/* What a run notes of them: those that it makes, sets or ends, and the others that it takes. */
struct gantry_calls_notes {
	uint32_t nsubjects;
	uint32_t nothers;
	bool failed; /* there were too many */
	uint32_t subjects[GANTRY_RECIPE_IDS];
	uint32_t others[GANTRY_RECIPE_IDS];
};

struct gantry_calls_run {
	struct gantry_calls_site *site;
	const struct gantry_calls_library *const *libraries;
	const struct gantry_calls_library *library;
	void *stream; /* that the call's queue is on */
	struct gantry_unpack in;
	struct gantry_pack out;
	uint64_t ret;
	const struct gantry_calls_function *function;
	bool good;
	struct gantry_calls_notes *notes; /* NULL: nothing is noted */
	const uint32_t *remade; /* numbers that what the call makes is to have; NULL: new ones */
	uint32_t nremade;
	uint64_t dropping; /* a handle that a success ends */
	uint64_t chosen;   /* number that the guest gave what the call makes; 0: none */
	uint32_t state;	   /* enum gantry_calls_state */
	/* Values that may lie on either side, in the order they were taken: a bit each. NULL is on none. */
	uint32_t on_device;
	uint32_t on_host;
	uint32_t neither;
	uint64_t taken_bytes; /* of the memory below */
	uint64_t reply_bytes; /* of it that the reply is to have, with padding */
	uint32_t nouts;
	struct {
		void *memory; /* NULL: it was not asked for */
		uint64_t bytes;
		bool to_guest;
	} outs[GANTRY_CALLS_MAX_OUTS];
	_Alignas(8) uint8_t room[256]; /* of @out, while it is enough */
	bool keeps;		       /* what is left of @in lives as long as its object */
	void *record;		       /* taken last, by code by hand */
	uint32_t parts;		       /* of the object taken last: over how many devices it is */
	uint32_t beside_bytes;
	/* Small values that lay in @in where no library may have them. */
	_Alignas(GANTRY_CALLS_ALIGNMENT) uint8_t beside[128];
};

/*
 * Answers the request of @bytes at @request, a private copy aligned to 8, with a header and items in @reply, which the
 * caller made with gantry_pack_init() and ends. @libraries ends with NULL. What is wrong is the reply's; returns its state.
 */
uint32_t gantry_calls_serve(struct gantry_calls_site *site,
			    const struct gantry_calls_library *const *libraries, void *stream,
			    const void *request, size_t bytes, struct gantry_pack *reply);

/* The same where nobody reads what was answered but what the library returned, which is 0 where it was not called. */
uint32_t gantry_calls_serve_unread(struct gantry_calls_site *site,
				   const struct gantry_calls_library *const *libraries,
				   void *stream, const void *request, size_t bytes,
				   uint64_t *ret_ret);

/*
 * Serves once more a request that made, set or ended objects, in a table that is to become as it was: what it makes gets the numbers
 * @ids. False: it did not succeed. Then gantry_calls_table_settle().
 */
bool gantry_calls_remake(struct gantry_calls_site *site,
			 const struct gantry_calls_library *const *libraries, void *stream,
			 const uint32_t *ids, uint32_t nids, const void *request, size_t bytes);

/*
 * Ends every object of the site's table by its library's own function, the newest first, and frees the table. What no function ends
 * (what a library only lent) goes with those. The site may not be used again.
 */
void gantry_calls_end(struct gantry_calls_site *site,
		      const struct gantry_calls_library *const *libraries);

/* ---- for generated code ---- */

void *gantry_calls_symbol(struct gantry_calls_run *run, const char *name);
void gantry_calls_take(struct gantry_calls_run *run, void *dst, size_t len);
uint64_t gantry_calls_take_handle(struct gantry_calls_run *run, uint32_t kind, bool drop);
/* One of kind @kind, or of @other, which a library takes in its place. */
uint64_t gantry_calls_take_handle_or(struct gantry_calls_run *run, uint32_t kind, uint32_t other);
/* The number that gantry_calls_take_handle() takes next. */
uint64_t gantry_calls_peek(struct gantry_calls_run *run);
/*
 * Whether the library works for handle @id on the call's stream; where it does not it is to be told, and then
 * gantry_calls_note_bound(). Between gantry_calls_may_run() and gantry_calls_ran().
 */
bool gantry_calls_is_bound(struct gantry_calls_run *run, uint32_t kind, uint64_t id);
void gantry_calls_note_bound(struct gantry_calls_run *run, uint32_t kind, uint64_t id);
void *gantry_calls_take_device(struct gantry_calls_run *run);
/* @bytes: what it must be. At a multiple of GANTRY_CALLS_ALIGNMENT, but for what is kept. */
void *gantry_calls_take_in(struct gantry_calls_run *run, uint64_t bytes);
/* Memory even where the guest has no place for it: what a library does without one is not known of all. */
void *gantry_calls_take_out(struct gantry_calls_run *run, uint64_t bytes);
/* Of a function to which NULL means something: none where the guest has no place. */
void *gantry_calls_take_out_or_null(struct gantry_calls_run *run, uint64_t bytes);
/* With room for @most bytes: what a library writes when it thinks otherwise is nobody's. */
void *gantry_calls_take_out_of(struct gantry_calls_run *run, uint64_t bytes, uint64_t most);
void *gantry_calls_take_inout(struct gantry_calls_run *run, uint64_t bytes);
void *gantry_calls_take_either(struct gantry_calls_run *run, uint64_t bytes, bool in, bool out);
/* A text, which ends where it says. */
void *gantry_calls_take_string(struct gantry_calls_run *run);
void *gantry_calls_take_strings(struct gantry_calls_run *run, int64_t count);
/* @bytes of memory that the library works in and nobody else reads. */
void *gantry_calls_take_scratch(struct gantry_calls_run *run, uint64_t bytes);
/* NULL, and that is checked. */
void *gantry_calls_take_null(struct gantry_calls_run *run);
/* Where the library puts an object or a text: 8 bytes, or NULL where the guest has no place for it. */
void *gantry_calls_take_place(struct gantry_calls_run *run);

/* As take_place, for the address of @bytes of the library's memory, which the reply is to have. */
void *gantry_calls_take_table(struct gantry_calls_run *run, uint64_t bytes);

/* The numbers of @count devices to work on: there is one, the call's. */
void *gantry_calls_take_devices(struct gantry_calls_run *run, int64_t count);
/* The same for an object over several: the call's, so many times. */
void *gantry_calls_take_parts(struct gantry_calls_run *run, int64_t count);
/* Over how many devices object @id is. */
int64_t gantry_calls_parts(struct gantry_calls_run *run, uint32_t kind, uint64_t id);
void gantry_calls_note_parts(struct gantry_calls_run *run, uint32_t kind, uint64_t id, int64_t n);
/* An array of the host's, of @bytes, with addresses of the device's. */
void *gantry_calls_take_addresses(struct gantry_calls_run *run, uint64_t bytes);

/* Refuses the request where @at is NULL: libraries do not all look. */
void gantry_calls_need(struct gantry_calls_run *run, const void *at);

/* What is taken from here on stays as long as object @id: the library reads it later. */
void gantry_calls_keep_rest(struct gantry_calls_run *run, uint32_t kind, uint64_t id);

/* ---- of functions that work on the host: host.c ---- */

/* A sparse matrix in the request. NULL is allowed for all of them, and refused elsewhere. */
struct gantry_calls_matrix {
	const int32_t *rows; /* where each row begins: @nrows, and the end of the last */
	const int32_t *ends; /* or where each ends; NULL: where the next begins */
	int64_t nrows;
	const int32_t *columns;
	int64_t ncolumns;
	int64_t nonzeros;
	int base; /* what is counted from: 0, 1; -1: nobody says, so from what the first row says */
};

/* Refuses what a library would follow out of the request's memory. */
void gantry_calls_need_matrix(struct gantry_calls_run *run,
			      const struct gantry_calls_matrix *matrix);
void gantry_calls_need_permutation(struct gantry_calls_run *run, const int32_t *at, int64_t n);
/* What a descriptor of cuSPARSE's counts from; -1: nobody says. */
int gantry_calls_index_base(struct gantry_calls_run *run, void *descriptor);

/*
 * Objects that are gone through step by step: the library does not look whether a step comes in its order and with the numbers and
 * the pattern of the first, and writes where it must not. What a call leaves out is -1, or NULL.
 */
enum gantry_calls_step_what {
	GANTRY_CALLS_ANALYSE = 1,
	GANTRY_CALLS_MEASURE = 2, /* says how much memory the next want */
	GANTRY_CALLS_SET_UP = 3,
	GANTRY_CALLS_FACTOR = 4,
	GANTRY_CALLS_USE = 5, /* of what was factored */
};

/* A size that the function has not: no number of a guest's, which have 32 bits. */
#define GANTRY_CALLS_LEFT_OUT INT64_MIN

struct gantry_calls_step {
	uint32_t what; /* enum gantry_calls_step_what */
	char letter;   /* S, D, C, Z: what is computed with; X: any */
	bool wants_setup;
	int64_t m, n, nonzeros;
	const int32_t *rows;
	const int32_t *columns;
	struct gantry_calls_steps *steps; /* of the object, once it was looked at */
};

/* Whether object @id has come to @step; refuses the request if not. */
void gantry_calls_need_step(struct gantry_calls_run *run, uint32_t kind, uint64_t id,
			    struct gantry_calls_step *step);
/* Of the matrix that the object began with; 0: it has not begun. */
int64_t gantry_calls_step_columns(const struct gantry_calls_step *step);
/* Bytes that the library wants to work in. */
uint64_t gantry_calls_work(struct gantry_calls_run *run, const struct gantry_calls_step *step);
/* The step has been done; @work_bytes: what a measuring one said. */
void gantry_calls_note_step(struct gantry_calls_run *run, const struct gantry_calls_step *step,
			    uint64_t work_bytes);
void gantry_calls_steps_free(struct gantry_calls_steps *steps);

/* ---- for code by hand besides ---- */

void gantry_calls_refuse(struct gantry_calls_run *run);
/* The call takes object @id, or it is one of those that it fills. */
void gantry_calls_note_taken(struct gantry_calls_run *run, uint64_t id);
void gantry_calls_note_filled(struct gantry_calls_run *run, uint64_t id);
/* Device memory, NULL, or *ret_on_host: @bytes of the request. Not subject to gantry_calls_fits_mode(). */
void *gantry_calls_take_address(struct gantry_calls_run *run, uint64_t bytes, bool *ret_on_host);
/* Memory of @most bytes, of which the reply is to have @bytes. */
void *gantry_calls_hold_out(struct gantry_calls_run *run, uint64_t bytes, uint64_t most);
/* A copy of @bytes at @from that lives as long as object @id; refuses what is too much. */
void *gantry_calls_keep(struct gantry_calls_run *run, uint64_t id, const void *from, size_t bytes);
/* @address where it is the guest's device memory, else NULL. */
void *gantry_calls_reaches(struct gantry_calls_run *run, void *address);

bool gantry_calls_may_run(struct gantry_calls_run *run);
/*
 * Whether the values that may lie on either side are where a library looks for them that is in pointer mode @mode: 0 the
 * host, 1 to 3 the device, 4 the first on the device and the second on the host. Refuses the request if not. After
 * gantry_calls_may_run().
 */
bool gantry_calls_fits_mode(struct gantry_calls_run *run, int mode);
/* Of object @id, whether it works on host memory; and that the new one @native does. */
bool gantry_calls_is_hosted(struct gantry_calls_run *run, uint32_t kind, uint64_t id);
void gantry_calls_note_hosted(struct gantry_calls_run *run, uint32_t kind, uint64_t native);
/*
 * Until the call's stream has done all that it has: what the library is to find is there, and so is what it left to the stream, which would
 * write to host memory that is free by then. False: the device has failed.
 */
bool gantry_calls_settle(struct gantry_calls_run *run);
/* @good: it succeeded. What follows gives items in the order they were taken. */
void gantry_calls_ran(struct gantry_calls_run *run, uint64_t ret, bool good);
void gantry_calls_give_object(struct gantry_calls_run *run, uint32_t kind, uint64_t native);
/* One that the library has in another. */
void gantry_calls_lend_object(struct gantry_calls_run *run, uint32_t kind, uint64_t native);
void gantry_calls_give_text(struct gantry_calls_run *run, const char *text);
void gantry_calls_give_table(struct gantry_calls_run *run, const void *table, uint64_t bytes);

/* Whether @function, which the site has just called, is of a library whose calls are all made on one thread. */
bool gantry_calls_has_groups(const struct gantry_calls_site *site, uint64_t function);

#endif
