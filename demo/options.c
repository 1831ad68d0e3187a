/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A book of European options, priced by the host's devices (Black and Scholes 1973):
 *
 *   options [N]              prices N options and compares each with the closed form, computed here
 *   options --loop [QUEUES]  a smaller book again and again until standard input ends
 *   options --greedy BYTES   asks for a buffer of that size, and prints the answer
 */
#include "guest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOPTIONS 200000u
#define NLOOPED \
	25000u /* in a loop: a task of less than a millisecond, as fair sharing likes them */
#define RATE	   0.03f
#define VOLATILITY 0.25f
#define CENT	   0.01

/* One queue's book and its prices. */
struct book {
	gantry_buffer spot, strike, years, call, put;
};

struct desk {
	uint64_t n;
	float *spot, *strike, *years;
	gantry_kernel price;
	struct book book[LANES_MAX];
};

#define TASKS_PER_ROUND 2u

/* --- the book --- */

/* The same book on every run: numbers between @low and @high from a small generator. */
static float draw(uint32_t *state, float low, float high)
{
	*state = *state * 1664525u + 1013904223u;
	return low + (high - low) * (float)(*state >> 8) / (float)(1 << 24);
}

static float *column(uint64_t n)
{
	float *values = malloc(n * sizeof(*values));

	if (!values)
		die("no memory for %" PRIu64 " options", n);
	return values;
}

static void make_book(struct desk *desk)
{
	uint32_t state = 2024;

	desk->spot = column(desk->n);
	desk->strike = column(desk->n);
	desk->years = column(desk->n);
	for (uint64_t i = 0; i < desk->n; i++) {
		desk->spot[i] = draw(&state, 60, 140);
		desk->strike[i] = draw(&state, 70, 130);
		desk->years[i] = draw(&state, 0.1f, 3);
	}
}

static gantry_buffer filled(struct gantry_session *s, const float *values, uint64_t n)
{
	gantry_buffer buffer = alloc_buffer(s, n * sizeof(float));

	check(gantry_write(s, buffer, 0, values, n * sizeof(float)), "writing the book");
	return buffer;
}

static void open_book(struct desk *desk, struct gantry_session *s, struct book *book)
{
	book->spot = filled(s, desk->spot, desk->n);
	book->strike = filled(s, desk->strike, desk->n);
	book->years = filled(s, desk->years, desk->n);
	book->call = alloc_buffer(s, desk->n * sizeof(float));
	book->put = alloc_buffer(s, desk->n * sizeof(float));
}

static gantry_ticket price_book(struct work *work, unsigned lane, unsigned slot)
{
	const struct desk *desk = work->arg;
	const struct book *book = &desk->book[lane];
	struct args {
		uint64_t spot, strike, years, call, put, n;
		float rate, volatility;
	} args = { .n = desk->n, .rate = RATE, .volatility = VOLATILITY };
	struct gantry_access access[] = {
		ACCESS(struct args, spot, book->spot, R),
		ACCESS(struct args, strike, book->strike, R),
		ACCESS(struct args, years, book->years, R),
		ACCESS(struct args, call, book->call, W),
		ACCESS(struct args, put, book->put, W),
	};

	submit(work->session, work->queue[lane], desk->price, &args, sizeof(args), access,
	       COUNT(access));
	return work_checksum(work, lane, slot, book->call, desk->n * sizeof(float));
}

/* --- the comparison --- */

static double normal(double d)
{
	return 0.5 * erfc(-d * M_SQRT1_2);
}

static double closed_form(double spot, double strike, double years, double *ret_put)
{
	double spread = VOLATILITY * sqrt(years);
	double d1 = (log(spot / strike) + (RATE + VOLATILITY * VOLATILITY / 2) * years) / spread;
	double discounted = strike * exp(-RATE * years);
	double call = spot * normal(d1) - discounted * normal(d1 - spread);

	*ret_put = call - spot + discounted; /* put-call parity */
	return call;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static int price_once(struct work *work)
{
	struct desk *desk = work->arg;
	float *call = column(desk->n), *put = column(desk->n);
	double start_s = now_s(), worst = 0, total = 0;
	gantry_ticket ticket = price_book(work, 0, 0);
	uint64_t off = 0;

	check(gantry_wait(work->session, &ticket, 1, GANTRY_FOREVER), "pricing the book");
	start_s = now_s() - start_s;
	check(gantry_read(work->session, desk->book[0].call, 0, call, desk->n * sizeof(*call)),
	      "reading calls");
	check(gantry_read(work->session, desk->book[0].put, 0, put, desk->n * sizeof(*put)),
	      "reading puts");
	for (uint64_t i = 0; i < desk->n; i++) {
		double wanted_put, wanted = closed_form(desk->spot[i], desk->strike[i],
							desk->years[i], &wanted_put);
		double error = larger(fabs(call[i] - wanted), fabs(put[i] - wanted_put));

		/* Written so that a NaN counts as wrong. */
		off += !(error < CENT);
		worst = larger(worst, error);
		total += call[i];
	}
	printf("book options=%" PRIu64 " ms=%.1f worst_error=%.6f wrong=%" PRIu64
	       " mean_call=%.4f\n",
	       desk->n, start_s * 1e3, worst, off, total / (double)desk->n);
	free(call);
	free(put);
	return off != 0;
}

static int be_greedy(struct gantry_session *s, uint64_t bytes)
{
	gantry_buffer buffer;
	int status = gantry_alloc(s, bytes, GANTRY_ALLOC_DEVICE, &buffer);

	printf("answer status=%d text=%s\n", status, status < 0 ? gantry_last_error() : "granted");
	/* Being refused is no reason to stop: the session is as good as before. */
	alloc_buffer(s, 4096);
	gantry_close(s);
	return status == GANTRY_E_LIMIT ? 0 : 1;
}

int main(int argc, char **argv)
{
	struct desk desk = { .n = NOPTIONS };
	struct work work = {
		.nlanes = 1, .tasks_per_round = TASKS_PER_ROUND, .round = price_book, .arg = &desk
	};
	int loop = argc > 1 && strcmp(argv[1], "--loop") == 0;
	int status;

	check(gantry_open(NULL, NULL, &work.session), "opening a session");
	if (argc > 2 && strcmp(argv[1], "--greedy") == 0)
		return be_greedy(work.session, strtoull(argv[2], NULL, 10));
	if (loop)
		desk.n = NLOOPED;
	if (loop && argc > 2)
		work.nlanes = (unsigned)atoi(argv[2]);
	else if (!loop && argc > 1)
		desk.n = strtoull(argv[1], NULL, 10);
	if (work.nlanes < 1 || work.nlanes > LANES_MAX || desk.n < 1)
		die("usage: options [N], options --loop [QUEUES] or options --greedy BYTES");
	work_open(&work);
	check(gantry_kernel_find(work.session, "black_scholes_book",
				 "r:f32*,r:f32*,r:f32*,w:f32*,w:f32*,u64,f32,f32", &desk.price),
	      "kernel black_scholes_book");
	make_book(&desk);
	for (unsigned lane = 0; lane < work.nlanes; lane++)
		open_book(&desk, work.session, &desk.book[lane]);
	status = loop ? work_loop(&work) : price_once(&work);
	gantry_close(work.session);
	free(desk.spot);
	free(desk.strike);
	free(desk.years);
	return status;
}
