/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver takes longer for a launch than short kernels take the device. A graph of kernels in a row is one call, and
 * the device passes from one of its kernels to the next faster; even a graph of one kernel is launched sooner than
 * the kernel (figures: docs/nvidia.md).
 *
 * A batch is cut into rows of 32, 16, 8, 4, 2 and 1. A graph is made once for a length and used again: only those nodes are
 * told to the driver that differ from what they were the last time. Other arguments cost little; another function or size makes
 * the driver send the node to the device anew. So there are several graphs of each length, found by their shape,
 * which is all but the arguments. A short row for which there is none of its shape is launched one by one. To make
 * one takes as long as some twenty launches, so it is made when there were as many that missed it.
 */
#include "devices/rows.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define LENGTHS 6u /* 1 to 32 */
#define WAYS	4u /* graphs of a length */
/* Launches that miss a graph before it is made, or an old one is changed to their shape. */
#define WORTH 32u
/* From this length on a graph of another shape is still better than none. */
#define RESHAPED_LENGTH 4u
/* A device that has nothing to do gets these first. */
#define START 4u
/* After so many refusals by the driver the stream uses no more graphs. */
#define MAX_REFUSED 4u

static_assert(1u << (LENGTHS - 1) == GANTRY_ROWS_MAX, "the longest row is a whole batch");

struct graph {
	uint64_t shape;
	uint64_t used; /* gantry_rows.clock then */
	void *native;  /* has the nodes, so it stays as long as what was made of it */
	void *exec;    /* NULL: not made */
	void *nodes[GANTRY_ROWS_MAX];
	struct gantry_rows_call calls[]; /* as the nodes have them */
};

struct length {
	uint32_t missed;
	struct graph *ways[WAYS]; /* NULL: not made yet */
};

struct gantry_rows {
	const struct gantry_rows_driver *driver;
	struct gantry_stream *stream;
	uint32_t n;
	uint32_t nrefused;
	bool stopped; /* the context has failed: the rest stays here */
	uint64_t clock;
	uint32_t positions[GANTRY_ROWS_MAX]; /* in the stream */
	struct gantry_rows_call calls[GANTRY_ROWS_MAX];
	struct length lengths[LENGTHS];
};

/* ---- keeping ---- */

struct gantry_rows *gantry_rows_create(const struct gantry_rows_driver *driver,
				       struct gantry_stream *stream, bool graphs)
{
	struct gantry_rows *rows = calloc(1, sizeof(*rows));

	if (!rows)
		return NULL;
	rows->driver = driver;
	rows->stream = stream;
	rows->nrefused = graphs ? 0 : MAX_REFUSED;
	return rows;
}

struct gantry_rows_call *gantry_rows_room(struct gantry_rows *rows)
{
	return rows && rows->n < GANTRY_ROWS_MAX ? &rows->calls[rows->n] : NULL;
}

void gantry_rows_keep(struct gantry_rows *rows, uint32_t position)
{
	rows->positions[rows->n++] = position;
}

void gantry_rows_start(struct gantry_rows *rows, uint32_t finished)
{
	if (rows && rows->n == START && rows->positions[0] == finished)
		gantry_rows_push(rows);
}

/* ---- graphs ---- */

static bool same(const struct gantry_rows_call *a, const struct gantry_rows_call *b)
{
	return a->nargs == b->nargs && memcmp(a, b, offsetof(struct gantry_rows_call, args)) == 0 &&
	       memcmp(a->args, b->args, a->nargs * sizeof(a->args[0])) == 0;
}

/* Of all that comes before the arguments. Equal ones may be of different shapes: that costs time only. */
static uint64_t shape_of(const struct gantry_rows_call *calls, uint32_t n)
{
	uint64_t shape = n;

	static_assert(offsetof(struct gantry_rows_call, args) % sizeof(uint64_t) == 0,
		      "whole words");
	for (uint32_t i = 0; i < n; i++) {
		uint64_t words[offsetof(struct gantry_rows_call, args) / sizeof(uint64_t)];

		memcpy(words, &calls[i], sizeof(words));
		for (uint32_t k = 0; k < sizeof(words) / sizeof(words[0]); k++)
			shape = (shape ^ words[k]) * 0x9e3779b97f4a7c15ull;
		shape ^= shape >> 32;
	}
	return shape;
}

/* A row of kernels, each after the one before. */
static int add_nodes(struct gantry_rows *rows, struct graph *graph,
		     const struct gantry_rows_call *calls, uint32_t n)
{
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++) {
		r = rows->driver->add(rows->stream, graph->native, i ? graph->nodes[i - 1] : NULL,
				      &calls[i], &graph->nodes[i]);
		graph->calls[i] = calls[i];
	}
	return r;
}

static int graph_make(struct gantry_rows *rows, struct graph *graph,
		      const struct gantry_rows_call *calls, uint32_t n)
{
	int r = rows->driver->create(rows->stream, &graph->native);

	if (r == 0)
		r = add_nodes(rows, graph, calls, n);
	if (r == 0)
		r = rows->driver->instantiate(rows->stream, graph->native, &graph->exec);
	return r;
}

/* The nodes that are not as they shall be. */
static int graph_change(struct gantry_rows *rows, struct graph *graph,
			const struct gantry_rows_call *calls, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		int r;

		if (same(&graph->calls[i], &calls[i]))
			continue;
		r = rows->driver->change(rows->stream, graph->exec, graph->nodes[i], &calls[i]);
		if (r != 0)
			return r;
		graph->calls[i] = calls[i];
	}
	return 0;
}

static void graph_end(struct gantry_rows *rows, struct graph **graph)
{
	if (!*graph)
		return;
	rows->driver->destroy(rows->stream, (*graph)->native, (*graph)->exec);
	free(*graph);
	*graph = NULL;
}

static int graph_launch(struct gantry_rows *rows, struct graph *graph,
			const struct gantry_rows_call *calls, uint32_t n)
{
	int r = graph->exec ? graph_change(rows, graph, calls, n)
			    : graph_make(rows, graph, calls, n);

	return r == 0 ? rows->driver->launch(rows->stream, graph->exec) : r;
}

/* An unused one, or the one whose use was longest ago. */
static struct graph **oldest(struct length *length)
{
	struct graph **found = &length->ways[0];

	for (uint32_t i = 0; i < WAYS; i++) {
		if (!length->ways[i])
			return &length->ways[i];
		if (length->ways[i]->used < (*found)->used)
			found = &length->ways[i];
	}
	return found;
}

/* NULL: the row is better launched without one. */
static struct graph **graph_for(struct gantry_rows *rows, uint64_t shape, uint32_t n, bool counts)
{
	struct length *length = &rows->lengths[__builtin_ctz(n)];

	for (uint32_t i = 0; i < WAYS; i++)
		if (length->ways[i] && length->ways[i]->shape == shape)
			return &length->ways[i];
	if (counts)
		length->missed += n;
	if (length->missed >= WORTH) {
		length->missed = 0;
		return oldest(length);
	}
	if (n < RESHAPED_LENGTH || !length->ways[0])
		return NULL;
	return length->ways[WAYS - 1] ? oldest(length) : &length->ways[0];
}

/*
 * A call for the @n from @first on has found that nothing more can be done. What comes behind them never got there, and
 * neither did they where it was so before.
 */
static void stop(struct gantry_rows *rows, uint32_t first, uint32_t n, int result)
{
	rows->stopped = true;
	for (uint32_t i = first + (result == GANTRY_ROWS_EARLIER ? 0 : n); i < rows->n; i++)
		rows->driver->unsent(rows->stream, rows->positions[i]);
}

/* Whether a graph has taken the row of @n calls from @first on. */
static bool push_graph(struct gantry_rows *rows, uint32_t first, uint32_t n, bool counts)
{
	struct graph **graph;
	uint64_t shape;
	int r;

	if (rows->nrefused >= MAX_REFUSED)
		return false;
	shape = shape_of(&rows->calls[first], n);
	graph = graph_for(rows, shape, n, counts);
	if (!graph)
		return false;
	if (!*graph)
		*graph = calloc(1, sizeof(**graph) + n * sizeof((*graph)->calls[0]));
	if (!*graph)
		return false;
	(*graph)->shape = shape;
	(*graph)->used = ++rows->clock;
	r = graph_launch(rows, *graph, &rows->calls[first], n);
	if (r > 0)
		stop(rows, first, n, r);
	if (r >= 0)
		return true;
	/* Which of them the driver does not want is seen when they are launched one by one. */
	rows->nrefused++;
	graph_end(rows, graph);
	return false;
}

/* ---- pushing ---- */

static void push_one(struct gantry_rows *rows, uint32_t i)
{
	int r = rows->driver->single(rows->stream, &rows->calls[i]);

	if (r > 0)
		stop(rows, i, 1, r);
	else if (r < 0)
		rows->driver->refused(rows->stream, rows->positions[i], r);
}

void gantry_rows_refuse(struct gantry_done *done, int error)
{
	done->status = error == -EINVAL	  ? GANTRY_E_ARG
		       : error == -ENOMEM ? GANTRY_E_NO_MEMORY
		       : error == -ENODEV ? GANTRY_E_DEVICE_LOST
					  : GANTRY_E_INTERNAL;
	done->blast = GANTRY_BLAST_CMD;
}

/* @n, a power of two, from @first on. A row that has no graph is halved; its parts are not counted again. */
static void push_row(struct gantry_rows *rows, uint32_t first, uint32_t n, bool counts)
{
	if (push_graph(rows, first, n, counts))
		return;
	if (n == 1) {
		push_one(rows, first);
		return;
	}
	push_row(rows, first, n / 2, false);
	if (!rows->stopped)
		push_row(rows, first + n / 2, n / 2, false);
}

void gantry_rows_push(struct gantry_rows *rows)
{
	uint32_t done = 0;

	if (!rows)
		return;
	for (uint32_t i = 0; i < rows->n && rows->stopped; i++)
		rows->driver->unsent(rows->stream, rows->positions[i]);
	for (uint32_t n = GANTRY_ROWS_MAX; n > 0 && !rows->stopped; n /= 2) {
		if (!(rows->n & n))
			continue;
		push_row(rows, done, n, true);
		done += n;
	}
	rows->n = 0;
}

uint32_t gantry_rows_drop(struct gantry_rows *rows, uint32_t otherwise)
{
	if (!rows || rows->n == 0)
		return otherwise;
	rows->n = 0;
	return rows->positions[0];
}

static bool knows(const struct graph *graph, uint32_t n, const struct gantry_image *image)
{
	for (uint32_t i = 0; graph && i < n; i++)
		if (graph->calls[i].image == image)
			return true;
	return false;
}

void gantry_rows_forget(struct gantry_rows *rows, const struct gantry_image *image)
{
	for (uint32_t i = 0; rows && i < LENGTHS; i++)
		for (uint32_t k = 0; k < WAYS; k++)
			if (knows(rows->lengths[i].ways[k], 1u << i, image))
				graph_end(rows, &rows->lengths[i].ways[k]);
}

void gantry_rows_free(struct gantry_rows *rows)
{
	for (uint32_t i = 0; rows && i < LENGTHS; i++)
		for (uint32_t k = 0; k < WAYS; k++)
			graph_end(rows, &rows->lengths[i].ways[k]);
	free(rows);
}
