/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fpga/simulation.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "devices/sim/clock.h"

#define HASH "0000000000000000000000000000000000000000000000000000000000000000"

/* A program while it runs. */
struct state {
	struct simulation_program *program;
	uint32_t kernel; /* the manager's number */
	uint32_t left;	 /* that have not begun */
	bool arrived;
	bool running;
	uint64_t ready_ns;
	uint64_t run_ns;
	struct gantry_board_unit unit;
};

struct run {
	struct simulation *sim;
	struct gantry_board *board;
	struct gantry_sim_clock clock;
	struct state states[SIMULATION_MAX_PROGRAMS];
	uint32_t nloads;
	uint64_t first_ns;
	struct gantry_board_action action; /* that is being done */
	char look;
	uint64_t look_ns; /* the look that is to come; 0: none */
};

void simulation_init(struct simulation *sim, const char *machine_text, uint64_t configure_ns)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	*sim = (struct simulation){ .nregions = 1, .configure_ns = configure_ns };
	if (gantry_sim_machine_parse(machine_text, strlen(machine_text), &sim->machine, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		abort();
	}
}

void simulation_fini(struct simulation *sim)
{
	for (uint32_t i = 0; i < sim->nimages; i++)
		free(sim->images[i]);
	free(sim->machine);
}

static uint64_t kernel_ns(const struct simulation *sim, const char *kernel)
{
	return gantry_sim_kernel_ns(sim->machine, 0, kernel, 0, 0);
}

void simulation_add_image(struct simulation *sim, const struct simulation_image *image)
{
	char text[2048], words[512], place[16];
	struct gantry_err err = GANTRY_ERR_NONE;
	const char *places = image->places ? image->places : "whole";
	unsigned int window = 0, units, slower;
	char *save = NULL;
	int n, len;

	n = snprintf(text, sizeof(text), "bitstream %s 1\nboard sim\nconfigure %lluns\nmemory %s\n",
		     image->name, (unsigned long long)sim->configure_ns,
		     sim->loses_memory ? "lost" : "kept");
	for (; sscanf(places, "%15s%n", place, &len) == 1; places += len)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "load %s %s.bit " HASH "\n",
			      place, image->name);
	(void)snprintf(words, sizeof(words), "%s", image->kernels);
	for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		char kernel[64];

		if (sscanf(word, "%63[^:]:%u:%u", kernel, &units, &slower) != 3)
			abort();
		n += snprintf(text + n, sizeof(text) - (size_t)n,
			      "kernel %s void window %u units %u slower %u%%\n", kernel, window,
			      units, slower);
		window += units;
	}
	assert(sim->nimages < SIMULATION_MAX_IMAGES);
	if (gantry_bitstream_parse(text, (size_t)n, &sim->images[sim->nimages], &err) < 0) {
		fprintf(stderr, "%s\n%s", err.text, text);
		abort();
	}
	sim->nimages++;
}

struct simulation_program *simulation_add_program(struct simulation *sim, const char *kernel,
						  uint32_t nlaunches)
{
	struct simulation_program *program = &sim->programs[sim->nprograms++];

	assert(sim->nprograms <= SIMULATION_MAX_PROGRAMS);
	*program = (struct simulation_program){ .kernel = kernel,
						.nlaunches = nlaunches,
						.depth = 64 };
	return program;
}

/* ---- under the manager ---- */

static void after(struct run *run, uint64_t ns, void *what)
{
	if (gantry_sim_clock_add(&run->clock, ns, what) < 0)
		abort();
}

static void tell_demand(struct run *run)
{
	for (uint32_t i = 0; i < run->sim->nprograms; i++) {
		const struct state *state = &run->states[i];
		uint32_t ntasks = 0, nstreams = 0;

		for (uint32_t j = 0; j < run->sim->nprograms; j++) {
			const struct state *other = &run->states[j];
			uint32_t seen = other->program->depth - other->running;

			if (!other->arrived || other->kernel != state->kernel || other->left == 0)
				continue;
			ntasks += other->left < seen ? other->left : seen;
			nstreams += !other->running;
		}
		gantry_board_demand(run->board, state->kernel, ntasks, nstreams, run->clock.now_ns);
	}
}

static bool begin(struct run *run, struct state *state)
{
	const struct gantry_bitstream *image;
	uint64_t waited_ns;

	if (gantry_board_begin(run->board, state->kernel, run->clock.now_ns, &state->unit) < 0)
		return false;
	image = run->sim->images[state->unit.image];
	waited_ns = run->clock.now_ns - state->ready_ns;
	state->program->longest_wait_ns = gantry_max_u64(state->program->longest_wait_ns,
							 waited_ns);
	state->left--;
	state->running = true;
	state->run_ns = kernel_ns(run->sim, state->program->kernel) *
			(100 + image->kernels[state->unit.kernel].slower) / 100;
	after(run, state->run_ns, state);
	return true;
}

/* Who waits longest is first. */
static void begin_all(struct run *run)
{
	bool refused[SIMULATION_MAX_PROGRAMS] = { false };
	struct state *first;

	do {
		first = NULL;
		for (uint32_t i = 0; i < run->sim->nprograms; i++) {
			struct state *state = &run->states[i];

			if (state->arrived && !state->running && state->left > 0 && !refused[i] &&
			    (!first || state->ready_ns < first->ready_ns))
				first = state;
		}
		if (first && !begin(run, first))
			refused[first - run->states] = true;
	} while (first);
}

static void act(struct run *run)
{
	struct gantry_board_action action = gantry_board_step(run->board, run->clock.now_ns);

	while (action.what == GANTRY_BOARD_REPORT)
		action = gantry_board_step(run->board, run->clock.now_ns);
	if (action.what == GANTRY_BOARD_NOTHING)
		return;
	run->action = action;
	after(run, action.what == GANTRY_BOARD_LOAD ? run->sim->configure_ns : run->sim->save_ns,
	      &run->action);
}

static void acted(struct run *run)
{
	bool load = run->action.what == GANTRY_BOARD_LOAD;
	int r = load && run->sim->load_fails
			? run->sim->load_fails(run->action.image, ++run->nloads)
			: 0;

	if (load && r == 0 && !run->first_ns)
		run->first_ns = run->clock.now_ns;
	gantry_board_did(run->board, r, run->clock.now_ns);
}

static void happen(struct run *run, void *what)
{
	struct state *state = what;

	if (what == &run->look) {
		run->look_ns = run->clock.now_ns >= run->look_ns ? 0 : run->look_ns;
		return;
	}
	if (what == &run->action) {
		acted(run);
		return;
	}
	if (!state->arrived) {
		state->arrived = true;
		state->ready_ns = run->clock.now_ns;
		return;
	}
	gantry_board_end(run->board, &state->unit, state->run_ns, run->clock.now_ns);
	state->running = false;
	state->ready_ns = run->clock.now_ns;
	if (state->left == 0)
		state->program->ended_ns = run->clock.now_ns;
}

/* Time goes on also while nothing happens. */
static void look_later(struct run *run)
{
	uint64_t due_ns = gantry_board_due_ns(run->board);

	if (due_ns == UINT64_MAX || (run->look_ns && run->look_ns <= due_ns))
		return;
	run->look_ns = gantry_max_u64(due_ns, run->clock.now_ns + 1);
	after(run, run->look_ns - run->clock.now_ns, &run->look);
}

static void start(struct run *run, enum gantry_plan_mode mode)
{
	struct gantry_board_conf conf = { .model = "sim",
					  .nregions = run->sim->nregions,
					  .mode = mode,
					  .age_ns = run->sim->age_ns,
					  .save_ns = run->sim->save_ns,
					  .nretries = 2 };
	struct gantry_err err = GANTRY_ERR_NONE;

	if (gantry_board_new(&conf, (const struct gantry_bitstream *const *)run->sim->images,
			     run->sim->nimages, &run->board, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		abort();
	}
	for (uint32_t i = 0; i < run->sim->nprograms; i++) {
		struct simulation_program *program = &run->sim->programs[i];
		int kernel = gantry_board_kernel(run->board, program->kernel);

		assert(kernel >= 0);
		program->ended_ns = program->longest_wait_ns = 0;
		run->states[i] = (struct state){ .program = program,
						 .kernel = (uint32_t)kernel,
						 .left = program->nlaunches };
		after(run, program->starts_ns, &run->states[i]);
	}
}

static struct gantry_bitstream *image_named(const struct simulation *sim, const char *name)
{
	for (uint32_t i = 0; i < sim->nimages; i++)
		if (strcmp(sim->images[i]->name, name) == 0)
			return sim->images[i];
	abort();
}

struct simulation_result simulation_run(struct simulation *sim, enum gantry_plan_mode mode,
					const char *only)
{
	struct simulation one = *sim;
	struct run run = { .sim = sim };
	struct simulation_result result = { 0 };
	void *what;

	if (only) {
		one.nimages = 1;
		one.images[0] = image_named(sim, only);
		run.sim = &one;
	}
	start(&run, mode);
	while ((what = gantry_sim_clock_next(&run.clock))) {
		happen(&run, what);
		if (gantry_sim_clock_due(&run.clock))
			continue;
		tell_demand(&run);
		begin_all(&run);
		tell_demand(&run);
		act(&run);
		begin_all(&run);
		look_later(&run);
	}
	for (uint32_t i = 0; i < sim->nprograms; i++) {
		struct simulation_program *program = &sim->programs[i];

		if (only)
			*program = one.programs[i];
		if (program->ended_ns > result.total_ns)
			result.total_ns = program->ended_ns;
	}
	result.first_ns = run.first_ns;
	result.total_ns -= run.first_ns;
	result.counts = *gantry_board_counts(run.board);
	gantry_board_free(run.board);
	gantry_sim_clock_fini(&run.clock);
	return result;
}

/* ---- without one ---- */

uint64_t simulation_alone_ns(const struct simulation *sim, const char *image)
{
	const struct gantry_bitstream *shared = image ? image_named(sim, image) : NULL;
	uint64_t ns = 0;

	for (uint32_t i = 0; i < sim->nprograms; i++) {
		const struct simulation_program *program = &sim->programs[i];
		uint64_t one_ns = kernel_ns(sim, program->kernel);

		if (shared)
			one_ns = one_ns *
				 (100 + gantry_bitstream_find(shared, program->kernel)->slower) /
				 100;
		else if (i > 0 && strcmp(program->kernel, sim->programs[i - 1].kernel) != 0)
			ns += sim->configure_ns;
		ns += program->nlaunches * one_ns;
	}
	return ns;
}
