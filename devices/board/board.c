/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/board/board.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"

#define REST_NS		60000000000u
#define GUESS_NS	1000000u /* of a launch that nobody has said or seen anything of */
#define AGE_LOADINGS	40u
#define LOOKS_A_LOADING 32u
#define BLANK_PART \
	8u /* of a loading that a board with nothing on it waits for others who come at the same time */
/*
 * A kernel that ran a moment ago is still asked for: a program that waits for each result before it asks for the next is not
 * to lose the board in between. The moment is this part of the shortest loading.
 */
#define LINGER_PART 16u

enum phase {
	IDLE,
	DRAIN,
	SAVE,
	LOAD,
	RESTORE
};

struct kernel {
	const struct gantry_bitstream_kernel *def;
	uint64_t run_ns; /* of one in an image of its own, as seen; 0: never */
	uint32_t nwaiting;
	uint32_t nstreams;
	uint32_t nrunning;
	uint64_t since_ns; /* the last one began, or the first of those that wait came */
	uint64_t ended_ns;
	bool ran;
};

struct image {
	const struct gantry_bitstream *def;
	uint32_t kernels[GANTRY_BITSTREAM_MAX_KERNELS]; /* their numbers over all images */
	uint64_t rests_until_ns[GANTRY_BOARD_NPLACES];
	bool retired; /* not loaded any more */
};

/* What is at a place. */
struct spot {
	int image; /* -1: nothing */
	uint32_t nbusy;
	uint32_t busy[GANTRY_BITSTREAM_MAX_KERNELS]; /* units of each kernel, bit by bit */
};

struct gantry_board {
	struct gantry_board_conf conf;
	uint32_t nimages;
	uint32_t nkernels;
	struct image images[GANTRY_BOARD_MAX_IMAGES];
	struct kernel kernels[GANTRY_BOARD_MAX_KERNELS];
	struct spot spots[GANTRY_BOARD_NPLACES];
	struct gantry_board_counts counts;
	uint64_t shortest_ns; /* loading */
	bool own_age;	      /* the bound of age is ours, and follows the longest loading */

	/* The change that is under way. */
	enum phase phase;
	bool asked;  /* the caller is at it */
	bool saved;  /* the memory is with the host, and not on the board */
	bool report; /* one is due before anything else */
	struct gantry_board_action told;
	uint32_t image;
	uint32_t place;
	uint32_t ntries;

	uint64_t look_ns; /* the next look */
	bool settling;	  /* it is put off, so that what comes at the same time is seen with it */
	struct gantry_plan plan;
	struct gantry_plan_image plan_images[GANTRY_BOARD_MAX_IMAGES];
	struct gantry_plan_demand plan_demand[GANTRY_BOARD_MAX_KERNELS];
};
GANTRY_DEFINE_CLEANUP(struct gantry_board *, gantry_board_free);

/* ---- making it ---- */

/* Known kernels have one signature, and there is room for the others. */
static int check_kernels(const struct gantry_board *board, const struct gantry_bitstream *def,
			 struct gantry_err *err)
{
	uint32_t n = board->nkernels;

	for (uint32_t k = 0; k < def->nkernels; k++) {
		int known = gantry_board_kernel(board, def->kernels[k].name);

		if (known < 0)
			n++;
		else if (!gantry_signature_same(&board->kernels[known].def->sig,
						&def->kernels[k].sig) ||
			 board->kernels[known].def->ndrange != def->kernels[k].ndrange ||
			 board->kernels[known].def->max_items != def->kernels[k].max_items)
			return gantry_err_set(err, -EINVAL,
					      "kernel %s has another signature in another image",
					      def->kernels[k].name);
	}
	return n > GANTRY_BOARD_MAX_KERNELS ? gantry_err_set(err, -E2BIG, "more than %u kernels",
							     GANTRY_BOARD_MAX_KERNELS)
					    : 0;
}

/* Its number over all images. */
static uint32_t take_kernel(struct gantry_board *board, const struct gantry_bitstream_kernel *def)
{
	int known = gantry_board_kernel(board, def->name);

	if (known >= 0)
		return (uint32_t)known;
	board->kernels[board->nkernels].def = def;
	return board->nkernels++;
}

static int check_image(const struct gantry_board *board, const struct gantry_bitstream *def,
		       struct gantry_err *err)
{
	if (strcmp(def->board, board->conf.model) != 0)
		return gantry_err_set(err, -EINVAL, "it is for boards %s, not %s", def->board,
				      board->conf.model);
	for (uint32_t i = 0; i < board->nimages; i++)
		if (!board->images[i].retired && strcmp(board->images[i].def->name, def->name) == 0)
			return gantry_err_set(err, -EINVAL, "there is another of that name");
	for (uint32_t place = board->conf.nregions; place < GANTRY_BOARD_MAX_REGIONS; place++)
		if (gantry_bitstream_fits(def, place))
			return gantry_err_set(err, -EINVAL,
					      "it is for region %u of a board with %u", place,
					      board->conf.nregions);
	return 0;
}

int gantry_board_add(struct gantry_board *board, const struct gantry_bitstream *def,
		     struct gantry_err *err)
{
	struct image *image = &board->images[board->nimages];
	struct gantry_plan_image *plan = &board->plan_images[board->nimages];
	int r;

	if (board->nimages == GANTRY_BOARD_MAX_IMAGES)
		return gantry_err_set(err, -E2BIG, "more than %u images", GANTRY_BOARD_MAX_IMAGES);
	r = check_image(board, def, err);
	if (r == 0)
		r = check_kernels(board, def, err);
	if (r < 0)
		return gantry_err_wrap(err, r, "image %s", def->name);
	for (uint32_t k = 0; k < def->nkernels; k++) {
		image->kernels[k] = take_kernel(board, &def->kernels[k]);
		plan->offers[image->kernels[k]] = (struct gantry_plan_offer){
			.units = (uint16_t)def->kernels[k].units,
			.slower = (uint16_t)def->kernels[k].slower,
		};
	}
	image->def = def;
	plan->nunits = def->nunits;
	plan->stops_all = !def->keeps_memory;
	plan->cost_ns = def->configure_ns + (def->keeps_memory ? 0 : 2 * board->conf.save_ns);
	board->shortest_ns = gantry_min_u64(board->shortest_ns, plan->cost_ns);
	if (board->own_age)
		board->conf.age_ns = gantry_max_u64(board->conf.age_ns,
						    AGE_LOADINGS * plan->cost_ns);
	return (int)board->nimages++;
}

int gantry_board_new(const struct gantry_board_conf *conf,
		     const struct gantry_bitstream *const *images, uint32_t nimages,
		     struct gantry_board **ret_board, struct gantry_err *err)
{
	_cleanup_(gantry_board_freep) struct gantry_board *board = NULL;

	board = calloc(1, sizeof(*board));
	if (!board)
		return gantry_err_set(err, -ENOMEM, "no memory for a board");
	board->conf = *conf;
	board->shortest_ns = UINT64_MAX;
	board->own_age = conf->age_ns == 0;
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		board->spots[place].image = -1;
	for (uint32_t i = 0; i < nimages; i++) {
		int r = gantry_board_add(board, images[i], err);

		if (r < 0)
			return r;
	}
	if (!board->conf.rest_ns)
		board->conf.rest_ns = REST_NS;
	*ret_board = GANTRY_TAKE_PTR(board);
	return 0;
}

void gantry_board_retire(struct gantry_board *board, uint32_t image)
{
	assert(image < board->nimages);
	board->images[image].retired = true;
}

void gantry_board_free(struct gantry_board *board)
{
	free(board);
}

int gantry_board_kernel(const struct gantry_board *board, const char *name)
{
	for (uint32_t k = 0; k < board->nkernels; k++)
		if (strcmp(board->kernels[k].def->name, name) == 0)
			return (int)k;
	return -ENOENT;
}

const struct gantry_bitstream_kernel *gantry_board_kernel_at(const struct gantry_board *board,
							     uint32_t kernel)
{
	return board->kernels[kernel].def;
}

/* ---- launches ---- */

static bool is_loaded(const struct gantry_board *board, uint32_t kernel)
{
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++) {
		int image = board->spots[place].image;

		if (image >= 0 && board->plan_images[image].offers[kernel].units > 0)
			return true;
	}
	return false;
}

static bool is_blank(const struct gantry_board *board)
{
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		if (board->spots[place].image >= 0)
			return false;
	return true;
}

void gantry_board_demand(struct gantry_board *board, uint32_t kernel, uint32_t ntasks,
			 uint32_t nstreams, uint64_t now_ns)
{
	struct kernel *k = &board->kernels[kernel];

	if (k->nwaiting == 0 && ntasks > 0) {
		k->since_ns = now_ns;
		if (!is_loaded(board, kernel) && !board->settling) {
			board->settling = true;
			board->look_ns = now_ns +
					 board->shortest_ns /
						 (is_blank(board) ? BLANK_PART : LOOKS_A_LOADING);
		}
	}
	k->nwaiting = ntasks;
	k->nstreams = nstreams;
}

/* Does what is at @place go when the image of the change is loaded? */
static bool is_displaced(const struct gantry_board *board, uint32_t place)
{
	return place == board->place || place == GANTRY_BOARD_WHOLE ||
	       board->place == GANTRY_BOARD_WHOLE;
}

/*
 * Are launches kept away from @place? By a change that displaces what is there or the memory, or because the memory is with the host.
 */
static bool is_closed(const struct gantry_board *board, uint32_t place)
{
	if (board->saved)
		return true;
	return board->phase != IDLE &&
	       (is_displaced(board, place) || !board->images[board->image].def->keeps_memory);
}

static bool may_load(const struct gantry_board *board, uint32_t image, uint32_t place,
		     uint64_t now_ns)
{
	return gantry_bitstream_fits(board->images[image].def, place) &&
	       !board->images[image].retired &&
	       now_ns >= board->images[image].rests_until_ns[place];
}

/* Whether @kernel has, or may get, an image. */
static bool is_to_be_had(const struct gantry_board *board, uint32_t kernel, uint64_t now_ns)
{
	for (uint32_t i = 0; i < board->nimages; i++) {
		if (board->plan_images[i].offers[kernel].units == 0)
			continue;
		for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
			if (board->spots[place].image == (int)i ||
			    may_load(board, i, place, now_ns))
				return true;
	}
	return false;
}

static int free_unit(const struct gantry_board *board, const struct spot *spot, uint32_t kernel,
		     struct gantry_board_unit *ret_unit)
{
	const struct image *image = &board->images[spot->image];

	for (uint32_t k = 0; k < image->def->nkernels; k++) {
		uint32_t units = image->def->kernels[k].units;

		if (image->kernels[k] != kernel)
			continue;
		for (uint32_t unit = 0; unit < units; unit++) {
			if (spot->busy[k] >> unit & 1)
				continue;
			*ret_unit = (struct gantry_board_unit){ .place = (uint32_t)(spot -
										    board->spots),
								.image = (uint32_t)spot->image,
								.kernel = k,
								.unit = unit };
			return 0;
		}
	}
	return -EAGAIN;
}

int gantry_board_begin(struct gantry_board *board, uint32_t kernel, uint64_t now_ns,
		       struct gantry_board_unit *ret_unit)
{
	struct kernel *k = &board->kernels[kernel];
	uint32_t best_slower = UINT32_MAX;
	struct gantry_board_unit best, unit;

	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++) {
		const struct spot *spot = &board->spots[place];
		uint32_t slower;

		if (spot->image < 0 || is_closed(board, place) ||
		    free_unit(board, spot, kernel, &unit) < 0)
			continue;
		slower = board->plan_images[spot->image].offers[kernel].slower;
		if (slower < best_slower) {
			best_slower = slower;
			best = unit;
		}
	}
	if (best_slower == UINT32_MAX)
		return is_to_be_had(board, kernel, now_ns) ? -EAGAIN : -ENXIO;
	board->spots[best.place].busy[best.kernel] |= 1u << best.unit;
	board->spots[best.place].nbusy++;
	board->counts.nlaunches++;
	k->nrunning++;
	k->nstreams -= k->nstreams > 0; /* until demand() says it anew */
	k->since_ns = now_ns;
	*ret_unit = best;
	return 0;
}

/* The kernel's of a launch that has ended on @unit. */
static struct kernel *learn(struct gantry_board *board, const struct gantry_board_unit *unit,
			    uint64_t run_ns, uint64_t now_ns)
{
	const struct image *image = &board->images[unit->image];
	struct kernel *k = &board->kernels[image->kernels[unit->kernel]];
	uint32_t slower = image->def->kernels[unit->kernel].slower;

	assert(board->spots[unit->place].image == (int)unit->image && k->nrunning > 0);
	assert(board->spots[unit->place].busy[unit->kernel] >> unit->unit & 1);
	k->ended_ns = now_ns;
	k->ran = true;
	if (run_ns) {
		uint64_t alone_ns = (uint64_t)((double)run_ns / (1 + slower / 100.0));

		k->run_ns = k->run_ns ? k->run_ns - k->run_ns / 8 + alone_ns / 8 : alone_ns;
	}
	return k;
}

bool gantry_board_may_follow(const struct gantry_board *board, uint32_t kernel)
{
	if (board->phase != IDLE)
		return false;
	for (uint32_t k = 0; k < board->nkernels; k++)
		if (board->kernels[k].nwaiting > 0 && !is_loaded(board, k))
			return false;
	return board->kernels[kernel].nstreams == 0;
}

void gantry_board_pass_on(struct gantry_board *board, const struct gantry_board_unit *unit,
			  uint64_t run_ns, uint64_t now_ns)
{
	learn(board, unit, run_ns, now_ns)->since_ns = now_ns;
	board->counts.nlaunches++;
}

void gantry_board_end(struct gantry_board *board, const struct gantry_board_unit *unit,
		      uint64_t run_ns, uint64_t now_ns)
{
	struct spot *spot = &board->spots[unit->place];
	struct kernel *k = learn(board, unit, run_ns, now_ns);

	assert(spot->nbusy > 0);
	spot->busy[unit->kernel] &= ~(1u << unit->unit);
	spot->nbusy--;
	k->nrunning--;
	if (k->nrunning == 0 && k->nwaiting == 0)
		board->look_ns = gantry_min_u64(board->look_ns,
						now_ns + board->shortest_ns / LINGER_PART);
}

/* ---- changes ---- */

static bool lingers(const struct gantry_board *board, const struct kernel *k, uint64_t now_ns)
{
	return k->ran && now_ns - k->ended_ns < board->shortest_ns / LINGER_PART;
}

static void see(const struct gantry_board *board, const struct kernel *k, uint64_t now_ns,
		struct gantry_plan_demand *ret_demand)
{
	struct gantry_plan_demand demand = {
		.ntasks = k->nwaiting + k->nrunning,
		.nstreams = k->nstreams + k->nrunning,
		.run_ns = k->run_ns ? k->run_ns : k->def->run_ns,
	};

	if (demand.ntasks == 0 && lingers(board, k, now_ns))
		demand.ntasks = demand.nstreams = 1;
	if (demand.run_ns == 0)
		demand.run_ns = GUESS_NS;
	/* At least 1: 0 says that none waits. */
	if (k->nwaiting > 0)
		demand.wait_ns = gantry_max_u64(1, now_ns - k->since_ns);
	*ret_demand = demand;
}

static bool look(struct gantry_board *board, uint64_t now_ns, struct gantry_plan_choice *ret_choice)
{
	struct gantry_plan_view view = {
		.mode = board->conf.mode,
		.nregions = board->conf.nregions,
		.nimages = board->nimages,
		.nkernels = board->nkernels,
		.now_ns = now_ns,
		.age_ns = board->conf.age_ns,
		.images = board->plan_images,
		.demand = board->plan_demand,
	};

	for (uint32_t k = 0; k < board->nkernels; k++)
		see(board, &board->kernels[k], now_ns, &board->plan_demand[k]);
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		view.resident[place] = board->spots[place].image;
	for (uint32_t i = 0; i < board->nimages; i++) {
		board->plan_images[i].places = 0;
		for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
			if (may_load(board, i, place, now_ns))
				board->plan_images[i].places |= 1u << place;
	}
	return gantry_plan_choose(&board->plan, &view, ret_choice);
}

static bool is_drained(const struct gantry_board *board)
{
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		if (is_closed(board, place) && board->spots[place].nbusy > 0)
			return false;
	return true;
}

static void set_blank(struct gantry_board *board)
{
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		if (is_displaced(board, place))
			board->spots[place].image = -1;
}

static void end_change(struct gantry_board *board, uint64_t now_ns)
{
	board->phase = IDLE;
	board->settling = false;
	board->look_ns = now_ns;
	gantry_plan_changed(&board->plan, now_ns);
}

static void give_up(struct gantry_board *board, int error, uint64_t now_ns)
{
	bool saving = board->phase == SAVE;
	uint64_t until_ns = now_ns + board->conf.rest_ns;

	board->images[board->image].rests_until_ns[board->place] = until_ns;
	board->counts.ngiven_up++;
	board->report = true;
	board->told = (struct gantry_board_action){ .what = GANTRY_BOARD_REPORT,
						    .image = board->image,
						    .place = board->place,
						    .ntries = board->ntries,
						    .error = error,
						    .saving = saving };
	end_change(board, now_ns);
}

static struct gantry_board_action ask(struct gantry_board *board, enum gantry_board_do what)
{
	board->asked = true;
	return (struct gantry_board_action){
		.what = what, .image = board->image, .place = board->place, .ntries = board->ntries
	};
}

static struct gantry_board_action next_of_change(struct gantry_board *board)
{
	static const struct gantry_board_action nothing = { .what = GANTRY_BOARD_NOTHING };

	if (board->phase == DRAIN) {
		if (!is_drained(board))
			return nothing;
		board->phase = board->images[board->image].def->keeps_memory || board->saved ? LOAD
											     : SAVE;
	}
	switch (board->phase) {
	case SAVE:
		return ask(board, GANTRY_BOARD_SAVE);
	case LOAD:
		board->ntries++;
		set_blank(board);
		return ask(board, GANTRY_BOARD_LOAD);
	case RESTORE:
		return ask(board, GANTRY_BOARD_RESTORE);
	default:
		return nothing;
	}
}

struct gantry_board_action gantry_board_step(struct gantry_board *board, uint64_t now_ns)
{
	static const struct gantry_board_action nothing = { .what = GANTRY_BOARD_NOTHING };
	struct gantry_plan_choice choice;

	if (board->report) {
		board->report = false;
		return board->told;
	}
	if (board->asked)
		return nothing;
	if (board->phase == IDLE && now_ns >= board->look_ns) {
		board->settling = false;
		board->look_ns = now_ns + board->shortest_ns / LOOKS_A_LOADING;
		if (look(board, now_ns, &choice)) {
			board->phase = DRAIN;
			board->image = choice.image;
			board->place = choice.place;
			board->ntries = 0;
			board->counts.noverdue += choice.overdue;
		}
	}
	return next_of_change(board);
}

void gantry_board_did(struct gantry_board *board, int r, uint64_t now_ns)
{
	assert(board->asked);
	board->asked = false;
	if (board->phase == SAVE && r < 0) {
		give_up(board, r, now_ns);
	} else if (board->phase == SAVE) {
		board->saved = true;
		board->phase = LOAD;
	} else if (board->phase == LOAD && r < 0) {
		board->counts.nfailures++;
		if (board->ntries > board->conf.nretries)
			give_up(board, r, now_ns);
	} else if (board->phase == LOAD) {
		board->counts.nloads++;
		board->spots[board->place].image = (int)board->image;
		if (board->saved)
			board->phase = RESTORE;
		else
			end_change(board, now_ns);
	} else {
		board->saved = false;
		end_change(board, now_ns);
	}
}

uint64_t gantry_board_due_ns(const struct gantry_board *board)
{
	bool wanted = false;

	for (uint32_t k = 0; k < board->nkernels; k++)
		wanted = wanted || board->kernels[k].nwaiting > 0;
	return board->phase == IDLE && wanted ? board->look_ns : UINT64_MAX;
}

int gantry_board_resident(const struct gantry_board *board, uint32_t place)
{
	return board->spots[place].image;
}

bool gantry_board_is_changing(const struct gantry_board *board)
{
	return board->phase != IDLE;
}

const struct gantry_board_counts *gantry_board_counts(const struct gantry_board *board)
{
	return &board->counts;
}
