/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the fpga backend: a board behind a driver (devices/board/driver.h), with the images of one directory.
 *
 * One thread, the board's, calls the driver; the device thread hands it commands through the rings of streams and
 * collects what became of them. Buffers lie in host memory: a launch's are copied to the board's memory before it begins, but for those
 * that are there still (keep.c), and what it wrote is copied back when it has ended, so that loading an image loses nothing.
 *
 * Threads: members say whose they are. @lock guards what both threads change.
 */
#ifndef GANTRY_DEVICES_FPGA_FPGA_H
#define GANTRY_DEVICES_FPGA_FPGA_H

#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"
#include "devices/board/board.h"
#include "devices/board/driver.h"
#include "devices/device.h"
#include "devices/hostmem.h"

#define GANTRY_FPGA_DEPTH	32u   /* commands of a stream; a power of two */
#define GANTRY_FPGA_MAX_STREAMS 8192u /* those of all seats (devices/seat) */
#define GANTRY_FPGA_MAX_RUNNING \
	128u /* launches on the board at once, those behind others included */
#define GANTRY_FPGA_MAX_BEHIND \
	(GANTRY_FPGA_MAX_RUNNING / 2)	   /* for units that are free there is room */
#define GANTRY_FPGA_MAX_RESULTS (1u << 20) /* bytes that one writes which has another behind it */
#define GANTRY_FPGA_MAX_PIECES	1024u /* of the board's memory, those that are only kept included */

struct gantry_kernel {
	struct gantry_list link;
	const struct gantry_signature *sig;
	uint32_t number;    /* the manager's */
	bool ndrange;	    /* its launches have a grid */
	uint64_t max_items; /* of so many work-items at most */
};

struct gantry_image {
	struct gantry_list link;
	struct gantry_dev *dev;
	char *path; /* of the bitstream's manifest */
	struct gantry_list kernels;
};

struct gantry_mem {
	struct gantry_hostmem host; /* first */
	uint64_t id;		    /* no other had it or will have it */
};

/* A part of the board's memory, with what is in range [off, off + len) of memory @mem. Board thread. */
struct gantry_fpga_piece {
	struct gantry_list link; /* in the order of addresses */
	uint64_t at;
	uint64_t bytes; /* whole beats */
	uint64_t mem;	/* its id */
	uint64_t off;
	uint64_t len;
	uint64_t contents; /* as gantry_range's; 0: nobody is to find it */
	uint64_t used;	   /* by a turn of the board's */
	uint32_t nusers;   /* arguments of launches at work */
	bool written;	   /* by its one user */
};

struct gantry_fpga_slot {
	struct gantry_cmd cmd;
	struct gantry_done done;
};

struct gantry_stream {
	struct gantry_list link;
	struct gantry_dev *dev;
	int32_t priority;
	uint32_t submitted; /* under the lock; the device thread's to change */
	uint32_t finished;  /* under the lock; the board thread's to change */
	uint32_t reaped;    /* the device thread's */
	uint32_t
		running; /* the board thread's: so many slots from @finished on are on the board: 0, 1, or 2 with one behind it */
	uint64_t
		spoilt_ns; /* the board thread's: of the board's time, for nothing, for the command at @finished */
	uint64_t served; /* the board thread's: when it last had a turn */
	uint64_t made;	 /* after so many others */
	struct gantry_fpga_slot slots[GANTRY_FPGA_DEPTH];
};

/* A launch on the board. */
struct gantry_fpga_launch {
	struct gantry_stream *stream; /* NULL: unused */
	struct gantry_board_unit unit;
	struct gantry_fpga_piece
		*pieces[GANTRY_MAX_CMD_ARGS]; /* NULL: no buffer, or an empty one */
	uint64_t began_ns;
	uint64_t unwanted_ns; /* since when nobody waits for it; 0: somebody does */
	/* The next of its stream, which the board begins by itself; NULL: none. What it wrote is then in @results, argument after argument. */
	struct gantry_fpga_launch *next;
	uint8_t *results; /* without one behind it: the driver's until it has ended */
	bool waits;	  /* it is another's next */
	bool spoilt; /* the one before did not end well, and it works on what that one left: it will begin anew */
};

/* A bitstream of the directory, and its files. */
struct gantry_fpga_bitstream {
	struct gantry_bitstream *manifest;
	char *path; /* of the manifest */
	bool gone;  /* the directory had another one, or none; under the lock */
	/* As the driver gets them; copies that were checked. fd -1: none for that place. */
	struct gantry_board_file files[GANTRY_BOARD_NPLACES];
	struct gantry_board_kernel kernels[GANTRY_BITSTREAM_MAX_KERNELS];
};

struct gantry_dev {
	const struct gantry_device_host *host;
	void *library;
	const struct gantry_board_driver *driver;
	void *handle;
	struct gantry_board_info info;
	uint64_t stuck_ns;   /* so long may a launch that nobody waits for take to end */
	uint64_t longest_ns; /* and any launch; 0: as long as it likes */

	bool keeps;

	/* The device thread's. */
	uint64_t nmems; /* that there ever were */
	struct gantry_list mems;
	struct gantry_list images;

	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_t thread;
	bool started;
	/* Under the lock. */
	struct gantry_list streams;
	uint32_t nstreams;
	uint64_t nmade;
	bool stopping;
	bool lost;    /* nothing is taken any more ... */
	bool endless; /* ... for a launch does not end; the board itself may be well */
	/* One that the device thread wants added, and is waiting for; the board thread makes it NULL. */
	struct gantry_fpga_bitstream *adding;
	int added; /* what came of it */
	struct gantry_err *adding_err;
	pthread_cond_t done;
	uint64_t ngiven_up;
	struct gantry_err last; /* what was given up, and why */

	/* The board thread's. */
	struct gantry_board *board;
	uint32_t nbitstreams;
	struct gantry_fpga_bitstream bitstreams[GANTRY_BOARD_MAX_IMAGES];
	struct gantry_fpga_launch launches[GANTRY_FPGA_MAX_RUNNING];
	uint32_t nrunning;
	uint64_t turn;
	struct gantry_list pieces;
	uint32_t npieces;
	/* Atomic: counted by the board thread. */
	uint64_t copied_in;
	uint64_t kept;
	uint64_t copied_out;
	uint64_t followed; /* launches that the board began by itself */
};

/* images.c */
int gantry_fpga_bitstreams_open(struct gantry_dev *dev, const char *directory,
				struct gantry_err *err);
void gantry_fpga_bitstreams_close(struct gantry_dev *dev);
int gantry_fpga_image_load(struct gantry_dev *dev, const char *path, const void *bytes,
			   size_t nbytes, struct gantry_image **ret_image, struct gantry_err *err);
void gantry_fpga_image_unload(struct gantry_image *image);
int gantry_fpga_kernel_get(struct gantry_image *image, const char *symbol,
			   const struct gantry_signature *sig, struct gantry_kernel **ret_kernel,
			   struct gantry_err *err);
/* Takes the bitstream that the device thread waits for, if there is one. Board thread, with the lock. */
void gantry_fpga_adopt_locked(struct gantry_dev *dev);
/*
 * Loads image @image at @place, and sees that its windows are what the manifest says. One whose manifest is gone, or
 * another by now, is loaded no more: -ESTALE. Board thread.
 */
int gantry_fpga_load(struct gantry_dev *dev, uint32_t image, uint32_t place,
		     struct gantry_err *err);

/* mem.c */
int gantry_fpga_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err);
int gantry_fpga_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			 struct gantry_mem **ret_mem, struct gantry_err *err);
void gantry_fpga_mem_free(struct gantry_mem *mem);

/* keep.c: the board's memory. Board thread. */
/* Whether @bytes are free, or could be: not while others run, if not. */
bool gantry_fpga_has_room(struct gantry_dev *dev, uint64_t bytes);
/*
 * A piece for @range, whose length in whole beats is countable, with one more user. *ret_there: it holds the range's contents; else they are
 * to be copied, and what it holds then is the caller's to say. -EAGAIN: there is no room for it; -ENOMEM.
 */
int gantry_fpga_piece_take(struct gantry_dev *dev, const struct gantry_range *range, bool writes,
			   struct gantry_fpga_piece **ret_piece, bool *ret_there);
void gantry_fpga_piece_put(struct gantry_dev *dev, struct gantry_fpga_piece *piece);
/* One that holds the contents of @range and that nobody is writing; and nobody using, if @writes. NULL. */
struct gantry_fpga_piece *gantry_fpga_piece_there(struct gantry_dev *dev,
						  const struct gantry_range *range, bool writes);
/* One more user, to which its contents are what the launch needs. */
void gantry_fpga_piece_use(struct gantry_dev *dev, struct gantry_fpga_piece *piece);
/* One of its users is about to write it. */
void gantry_fpga_piece_write(struct gantry_fpga_piece *piece);
bool gantry_fpga_piece_is_for(const struct gantry_fpga_piece *piece,
			      const struct gantry_range *range);
/* The range of host memory has been written: pieces with any of it are found no more. */
void gantry_fpga_pieces_stale(struct gantry_dev *dev, const struct gantry_range *range);
/* Nothing is found any more: the board's memory is lost, or the room is wanted. */
void gantry_fpga_pieces_forget(struct gantry_dev *dev);
void gantry_fpga_pieces_free(struct gantry_dev *dev);
/* Something that is kept, before an image is loaded of which its manifest says that the memory stays as it is. */
struct gantry_fpga_probe {
	const struct gantry_fpga_piece *piece;
	uint8_t *bytes; /* owned; NULL: nothing that is kept is small enough to look at */
};
void gantry_fpga_probe_begin(struct gantry_dev *dev, struct gantry_fpga_probe *probe);
/* 0: it is there still, for all we know. -EBADMSG: it is not; -ENODEV: the board is lost. */
int gantry_fpga_probe_end(struct gantry_dev *dev, struct gantry_fpga_probe *probe);

/* stage.c: what a launch needs of it. Board thread. */
/* How much of the board's memory a launch takes. -EOVERFLOW. */
int gantry_fpga_bytes_of(const struct gantry_dev *dev, const struct gantry_cmd_launch *launch,
			 uint64_t *ret_bytes);
/*
 * Takes pieces, for which there is room, copies to them what is not there and writes its arguments' registers. -errno of the driver, -ENOMEM;
 * then it has no pieces.
 */
int gantry_fpga_stage_in(struct gantry_dev *dev, struct gantry_fpga_launch *launch,
			 const struct gantry_cmd_launch *cmd);
void gantry_fpga_put_pieces(struct gantry_dev *dev, struct gantry_fpga_launch *launch);
bool gantry_fpga_is_buffer(const struct gantry_cmd_launch *cmd, uint32_t arg);
bool gantry_fpga_is_written(const struct gantry_cmd_launch *cmd, uint32_t arg);
/* Of several arguments that wrote the same bytes none has what the host has. */
bool gantry_fpga_wrote_alone(const struct gantry_cmd_launch *cmd, uint32_t arg);
/* Its argument registers; returns how many. */
uint32_t gantry_fpga_args_of(const struct gantry_fpga_launch *launch,
			     const struct gantry_cmd_launch *cmd,
			     uint64_t ret_args[GANTRY_BOARD_MAX_ARGS]);
/* Copies what it wrote back. */
int gantry_fpga_stage_out(struct gantry_dev *dev, const struct gantry_fpga_launch *launch,
			  const struct gantry_cmd_launch *cmd);
/* Its pieces are given up; @good: it ran, and what it wrote was copied back: they may be kept. */
void gantry_fpga_stage_end(struct gantry_dev *dev, struct gantry_fpga_launch *launch,
			   const struct gantry_cmd_launch *cmd, bool good);
/* The region and the offset of a unit's control window. */
uint32_t gantry_fpga_region_of(uint32_t place);
uint32_t gantry_fpga_window_of(const struct gantry_dev *dev, const struct gantry_board_unit *unit);

/*
 * follow.c: the next launch of a stream, behind the one at work, so that the board need not wait for us in between. Board thread.
 */
/* Puts behind every launch what may be there. */
void gantry_fpga_follow(struct gantry_dev *dev);

/* stream.c */
int gantry_fpga_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			      struct gantry_stream **ret_stream, struct gantry_err *err);
void gantry_fpga_stream_destroy(struct gantry_stream *stream);
int gantry_fpga_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd);
unsigned gantry_fpga_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n);
/* The command at the head has ended. Board thread; without the lock, or with it, and then the caller wakes the host. */
void gantry_fpga_finish(struct gantry_stream *stream, int status, uint32_t blast,
			uint64_t device_ns);
void gantry_fpga_finish_locked(struct gantry_stream *stream, int status, uint32_t blast,
			       uint64_t device_ns);

/* work.c */
/* NULL: as many as may be are on the board. Board thread. */
struct gantry_fpga_launch *gantry_fpga_unused_launch(struct gantry_dev *dev);
/* There is something for the board's thread to do, which was waiting for a launch's end perhaps. Any thread. */
void gantry_fpga_wake(struct gantry_dev *dev);
/* The board thread's main(). */
void *gantry_fpga_work(void *arg);

#endif
