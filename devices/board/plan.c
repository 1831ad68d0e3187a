/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/board/plan.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"

/* A change for nothing but a rounding error, or for one part in fifty, is none. */
#define GAIN 1.02

int gantry_plan_mode_of_name(const char *name)
{
	static const char *const names[] = { "auto", "single", "spatial" };

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0)
			return (int)i;
	return -EINVAL;
}

/* What a board would hold: @resident, but that @image comes to @place after @delay_ns. */
struct layout {
	const struct gantry_plan_view *view;
	int resident[GANTRY_BOARD_NPLACES];
	uint32_t place; /* GANTRY_BOARD_NPLACES: nothing comes */
	bool stops_all;
	double delay_ns;
};

static struct layout layout_now(const struct gantry_plan_view *view)
{
	struct layout layout = { .view = view, .place = GANTRY_BOARD_NPLACES };

	memcpy(layout.resident, view->resident, sizeof(layout.resident));
	return layout;
}

static struct layout layout_with(const struct gantry_plan_view *view, uint32_t image,
				 uint32_t place, double delay_ns)
{
	struct layout layout = layout_now(view);

	if (place == GANTRY_BOARD_WHOLE)
		for (uint32_t i = 0; i < GANTRY_BOARD_MAX_REGIONS; i++)
			layout.resident[i] = -1;
	else
		layout.resident[GANTRY_BOARD_WHOLE] = -1;
	layout.resident[place] = (int)image;
	layout.place = place;
	layout.delay_ns = delay_ns;
	layout.stops_all = view->images[image].stops_all;
	return layout;
}

/* Work of @kernel that is done in a unit of time: all of the layout, and what of it goes on while the new image is loaded. */
struct pace {
	double all;
	double meanwhile;
};

static struct pace pace_of(const struct layout *layout, uint32_t kernel)
{
	const struct gantry_plan_demand *demand = &layout->view->demand[kernel];
	uint32_t streams = demand->ntasks ? demand->nstreams : 0;
	uint32_t meanwhile = streams;
	struct pace pace = { 0, 0 };

	/* Fastest units first would be a little better than in the order of places; few boards will mix them. */
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES && streams > 0; place++) {
		const struct gantry_plan_offer *offer;
		uint32_t used;

		if (layout->resident[place] < 0)
			continue;
		offer = &layout->view->images[layout->resident[place]].offers[kernel];
		used = offer->units < streams ? offer->units : streams;
		pace.all += used / (1 + offer->slower / 100.0);
		streams -= used;
		if (place == layout->place || layout->stops_all)
			continue;
		used = offer->units < meanwhile ? offer->units : meanwhile;
		pace.meanwhile += used / (1 + offer->slower / 100.0);
		meanwhile -= used;
	}
	return pace;
}

/* How much work the board does in a unit of time, as long as there is such work. */
static double rate(const struct layout *layout)
{
	double sum = 0;

	for (uint32_t k = 0; k < layout->view->nkernels; k++)
		sum += pace_of(layout, k).all;
	return sum;
}

static double queued_ns(const struct layout *layout, uint32_t kernel)
{
	const struct gantry_plan_demand *demand = &layout->view->demand[kernel];

	return (double)demand->ntasks * (double)demand->run_ns;
}

static double work_in(const struct layout *layout, struct pace pace, double ns)
{
	if (ns <= layout->delay_ns)
		return pace.meanwhile * ns;
	return pace.meanwhile * layout->delay_ns + pace.all * (ns - layout->delay_ns);
}

/* Until the queued work of all kernels that get faster by the change is done; 0: none does. */
static double horizon(const struct layout *now, const struct layout *with)
{
	double longest = 0;

	for (uint32_t k = 0; k < with->view->nkernels; k++) {
		double queued = queued_ns(with, k), early, ns;
		struct pace pace;

		if (queued <= 0)
			continue;
		pace = pace_of(with, k);
		if (pace.all <= pace_of(now, k).all)
			continue;
		early = pace.meanwhile * with->delay_ns; /* done while it is loaded */
		ns = early >= queued ? queued / pace.meanwhile
				     : with->delay_ns + (queued - early) / pace.all;
		longest = ns > longest ? ns : longest;
	}
	return longest;
}

/* What a change brings, against staying as it is, in the time of its horizon. */
struct value {
	double gained;
	double lost;
	double ns; /* 0: it brings nothing */
};

static struct value value_of(const struct layout *now, const struct layout *with)
{
	struct value value = { .ns = horizon(now, with) };

	if (value.ns <= 0)
		return value;
	for (uint32_t k = 0; k < with->view->nkernels; k++) {
		double queued = queued_ns(with, k), pace, work;

		if (queued <= 0)
			continue;
		pace = pace_of(now, k).all;
		work = work_in(with, pace_of(with, k), value.ns);
		/* Who is served now goes on asking, for all we know; the others get what they have queued. */
		if (pace <= 0 && work > queued)
			work = queued;
		work -= pace * value.ns;
		value.gained += work > 0 ? work : 0;
		value.lost += work < 0 ? -work : 0;
	}
	return value;
}

static bool covers(const struct gantry_plan_view *view, const int *resident, uint32_t kernel)
{
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		if (resident[place] >= 0 && view->images[resident[place]].offers[kernel].units > 0)
			return true;
	return false;
}

static bool suits(enum gantry_plan_mode mode, const struct gantry_plan_image *image)
{
	return mode == GANTRY_PLAN_AUTO ||
	       (mode == GANTRY_PLAN_SINGLE ? image->nunits == 1 : image->nunits > 1);
}

/* Is this image thought of? One that does not suit the mode is for a kernel that is asked for and that none which suits has. */
static bool may_use(const struct gantry_plan_view *view, const struct gantry_plan_image *image)
{
	if (suits(view->mode, image))
		return true;
	for (uint32_t k = 0; k < view->nkernels; k++) {
		bool offered = false;

		if (image->offers[k].units == 0 || view->demand[k].ntasks == 0)
			continue;
		for (uint32_t i = 0; i < view->nimages && !offered; i++)
			offered = view->images[i].places && view->images[i].offers[k].units > 0 &&
				  suits(view->mode, &view->images[i]);
		if (!offered)
			return true;
	}
	return false;
}

static bool is_resident(const struct gantry_plan_view *view, uint32_t image, uint32_t place)
{
	return view->resident[place] == (int)image;
}

/* Time went by since the last look: who would have done more in it has credit, who less loses some. */
static void give_credit(struct gantry_plan *plan, const struct gantry_plan_view *view)
{
	double ns = plan->seen ? (double)(view->now_ns - plan->last_ns) : 0;
	struct layout now = layout_now(view);
	double rate_now = rate(&now);

	plan->seen = true;
	plan->last_ns = view->now_ns;
	for (uint32_t i = 0; ns > 0 && i < view->nimages; i++) {
		for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++) {
			double *credit = &plan->credit[i][place];
			struct layout with;
			double there;

			if (!(view->images[i].places >> place & 1) || is_resident(view, i, place))
				continue;
			with = layout_with(view, i, place, 0);
			there = rate(&with);
			*credit += there > 0 ? ns * (there - rate_now) / there : 0;
			*credit = *credit < 0 ? 0 : *credit;
		}
	}
}

/* A kernel that has waited for half the bound: the other half is for the turns of those before it. */
struct overdue {
	int kernel; /* that waits longest, with an image to be had and none loaded; -1: none */
	bool turn;  /* what is loaded has had its part */
};

static struct overdue find_overdue(const struct gantry_plan *plan,
				   const struct gantry_plan_view *view)
{
	uint64_t least_ns = 0, due_ns = view->age_ns / 2;
	struct overdue worst = { .kernel = -1 };
	uint32_t nwaiting = 0;

	for (uint32_t k = 0; k < view->nkernels; k++) {
		bool can = false;

		if (view->demand[k].wait_ns == 0 || covers(view, view->resident, k))
			continue;
		for (uint32_t i = 0; i < view->nimages; i++) {
			const struct gantry_plan_image *image = &view->images[i];

			if (!image->places || image->offers[k].units == 0)
				continue;
			least_ns = gantry_max_u64(least_ns, image->cost_ns);
			can = true;
		}
		if (!can)
			continue;
		nwaiting++;
		if (view->demand[k].wait_ns >= due_ns &&
		    (worst.kernel < 0 ||
		     view->demand[k].wait_ns > view->demand[worst.kernel].wait_ns))
			worst.kernel = (int)k;
	}
	if (worst.kernel >= 0)
		worst.turn = view->now_ns - plan->loaded_ns >=
			     gantry_max_u64(due_ns / nwaiting, least_ns);
	return worst;
}

struct candidate {
	struct gantry_plan_choice choice;
	struct value value;
	bool found;
};

static double rank(const struct candidate *candidate)
{
	return (candidate->value.gained - candidate->value.lost) / candidate->value.ns;
}

/* Of equals one that displaces nothing. */
static bool is_better(const struct gantry_plan_view *view, const struct candidate *a,
		      const struct candidate *b)
{
	if (!b->found || rank(a) != rank(b))
		return !b->found || rank(a) > rank(b);
	return view->resident[a->choice.place] < 0 && view->resident[b->choice.place] >= 0;
}

/* The best of the images that have @kernel, or any image if it is -1. */
static struct candidate best_of(const struct gantry_plan *plan, const struct gantry_plan_view *view,
				int kernel)
{
	struct layout now = layout_now(view);
	struct candidate best = { .found = false };

	for (uint32_t i = 0; i < view->nimages; i++) {
		const struct gantry_plan_image *image = &view->images[i];

		if (!image->places || !may_use(view, image) ||
		    (kernel >= 0 && image->offers[kernel].units == 0))
			continue;
		for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++) {
			struct candidate its = { .choice = { .image = i, .place = place },
						 .found = true };
			double delay_ns = (double)image->cost_ns - plan->credit[i][place];
			struct layout with;

			if (!(image->places >> place & 1) || is_resident(view, i, place))
				continue;
			with = layout_with(view, i, place, delay_ns < 0 ? 0 : delay_ns);
			its.value = value_of(&now, &with);
			if (its.value.ns > 0 && is_better(view, &its, &best))
				best = its;
		}
	}
	return best;
}

bool gantry_plan_choose(struct gantry_plan *plan, const struct gantry_plan_view *view,
			struct gantry_plan_choice *ret_choice)
{
	struct layout now = layout_now(view);
	struct overdue overdue;
	struct candidate best;

	give_credit(plan, view);
	overdue = find_overdue(plan, view);
	best = best_of(plan, view, overdue.kernel);
	if (!best.found)
		return false;
	/* Before its turn an overdue kernel gets what costs the others nothing, and nobody else gets anything. */
	if (!(overdue.turn || rate(&now) <= 0) &&
	    (best.value.gained <= 0 || best.value.gained <= GAIN * best.value.lost))
		return false;
	best.choice.overdue = overdue.turn;
	best.choice.kernel = overdue.turn ? (uint32_t)overdue.kernel : 0;
	*ret_choice = best.choice;
	return true;
}

void gantry_plan_changed(struct gantry_plan *plan, uint64_t now_ns)
{
	memset(plan->credit, 0, sizeof(plan->credit));
	plan->loaded_ns = now_ns;
	plan->last_ns = now_ns;
	plan->seen = true;
}
