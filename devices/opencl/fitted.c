/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels of a guest's image have code for work-groups of one size, and having it made. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/str.h"
#include "devices/opencl/backend.h"
#include "devices/opencl/container.h"

#define FITTED_MAX    256u /* of one image: each is a file, and a fraction of a second of compiling */
#define WIDE	      ",wide"
#define TRIES	      3u /* at once, where what stands against it may pass */
#define MOST_TIMEOUTS 3u /* then it is not the machine that is busy */
#define MOST_LACKS    6u /* then it is the kernel that asks for too much */
#define FIRST_PAUSE_S 1	 /* after the second; four times as long after each that follows */

/* "@X,Y,Z" and what may follow, as this build writes it: no signs, no spaces. */
static int parse_size(const char *at, struct gantry_opencl_wish *wish)
{
	char same[40];
	int n = 0;

	if (sscanf(at, "@%5u,%5u,%5u%n", &wish->local[0], &wish->local[1], &wish->local[2], &n) !=
		    3 ||
	    !wish->local[0] || !wish->local[1] || !wish->local[2])
		return -ENOENT;
	if (strcmp(at + n, WIDE) == 0)
		wish->breadth = GANTRY_OPENCL_WIDE;
	else if (at[n])
		return -ENOENT;
	if (gantry_str_format(same, sizeof(same), "@%u,%u,%u", wish->local[0], wish->local[1],
			      wish->local[2]) < 0)
		return -ENOENT;
	return strncmp(same, at, (size_t)n) == 0 && strlen(same) == (size_t)n ? 0 : -ENOENT;
}

int gantry_opencl_wish_parse(const char *symbol, struct gantry_opencl_wish *ret_wish)
{
	size_t len = strcspn(symbol, "@");
	struct gantry_opencl_wish wish = { .breadth = GANTRY_OPENCL_NARROW };

	if (len == 0 || len >= sizeof(wish.name))
		return -ENOENT;
	memcpy(wish.name, symbol, len);
	if (symbol[len] && parse_size(symbol + len, &wish) < 0)
		return -ENOENT;
	*ret_wish = wish;
	return 0;
}

/* false: it has images or samplers, of which a launch that means nothing has none. */
static bool take_args(struct gantry_opencl_fit *fit, const struct gantry_signature *sig)
{
	for (uint32_t i = gantry_opencl_first_param(sig); i < sig->nargs; i++) {
		const struct gantry_sig_arg *arg = &sig->args[i];
		uint32_t bytes = gantry_arg_type_bytes(arg->type);

		if (!arg->mode &&
		    (arg->type == GANTRY_ARG_IMAGE || arg->type == GANTRY_ARG_SAMPLER))
			return false;
		if (arg->mode)
			bytes = GANTRY_OPENCL_FIT_BUFFER;
		else if (arg->type == GANTRY_ARG_LOCAL)
			bytes = GANTRY_OPENCL_FIT_LOCAL;
		else if (arg->type == GANTRY_ARG_BYTES)
			bytes = arg->len_bytes;
		fit->args[fit->nargs++] = (uint16_t)bytes;
	}
	return true;
}

static int make(const struct gantry_kernel *kernel, const char *name, const uint32_t local[3],
		uint32_t breadth, struct gantry_err *err)
{
	const struct gantry_image *image = kernel->image;
	struct gantry_opencl_work work = image->dev->work;
	struct gantry_opencl_fit fit = { .breadth = breadth };

	if (!take_args(&fit, kernel->sig) ||
	    gantry_str_copy(fit.kernel, sizeof(fit.kernel), name) < 0)
		return gantry_err_set(err, -EOPNOTSUPP, "kernel %.100s takes images or samplers",
				      name);
	(void)gantry_str_copy(fit.folder, sizeof(fit.folder),
			      gantry_opencl_pocl_folder(image->whole)); /* as long as that */
	memcpy(fit.local, local, sizeof(fit.local));
	work.of_guest = image->of_guest;
	return gantry_opencl_builder_fit(&work, image->whole, image->nwhole, &fit, err);
}

static struct gantry_opencl_fitted *find(const struct gantry_image *image, uint32_t function,
					 const uint32_t local[3], uint32_t breadth)
{
	for (uint32_t i = 0; i < image->nfitted; i++) {
		struct gantry_opencl_fitted *fitted = &image->fitted[i];

		if (fitted->function == function && fitted->breadth == breadth &&
		    memcmp(fitted->local, local, sizeof(fitted->local)) == 0)
			return fitted;
	}
	return NULL;
}

/* No word about the kernel's code: the host has none of something just now. */
static bool may_pass(int r)
{
	return r == -EAGAIN || r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -ENOSPC ||
	       r == -EINTR || r == -EIO;
}

/* None after the first: the host may have it already. */
static int64_t pause_ns(uint32_t nlacks)
{
	return nlacks < 2 ? 0 : (int64_t)GANTRY_NS_PER_S * FIRST_PAUSE_S << 2 * (nlacks - 2);
}

/* The host lacked something. A kernel can be what there is never enough for: it is not tried for ever. */
static int remember_lack(struct gantry_opencl_fitted *fitted, struct gantry_err *err)
{
	if (++fitted->nlacks == MOST_LACKS) {
		fitted->r = -EOPNOTSUPP;
		return gantry_err_wrap(err, fitted->r, "given up after %u times", MOST_LACKS);
	}
	if (pause_ns(fitted->nlacks))
		fitted->again_ns = gantry_deadline_ns(pause_ns(fitted->nlacks));
	return -EAGAIN;
}

/* The outcome, if it is one. */
static int remember(struct gantry_opencl_fitted *fitted, int r, struct gantry_err *err)
{
	if (may_pass(r))
		return remember_lack(fitted, err);
	fitted->ntimeouts += r == -ETIMEDOUT;
	if (r != -ETIMEDOUT || fitted->ntimeouts == MOST_TIMEOUTS)
		fitted->r = r;
	return r == -ETIMEDOUT ? -EAGAIN : r;
}

/* A place for the size, new or of one that failed before and may go now. */
static int place_for(struct gantry_image *image, uint32_t function, const uint32_t local[3],
		     uint32_t breadth, struct gantry_opencl_fitted **ret_place,
		     struct gantry_err *err)
{
	struct gantry_opencl_fitted *fitted = find(image, function, local, breadth);

	if (!fitted && image->nfitted == FITTED_MAX)
		return gantry_err_set(err, -E2BIG, "the image has code for %u sizes already",
				      FITTED_MAX);
	if (!fitted) {
		fitted = realloc(image->fitted, (image->nfitted + 1) * sizeof(*fitted));
		if (!fitted)
			return gantry_err_set(err, -ENOMEM, "no memory for a kernel's code");
		image->fitted = fitted;
		fitted += image->nfitted++;
		*fitted = (struct gantry_opencl_fitted){ .function = function,
							 .breadth = breadth,
							 .r = -EAGAIN };
		memcpy(fitted->local, local, sizeof(fitted->local));
	}
	*ret_place = fitted;
	return 0;
}

int gantry_opencl_fit(struct gantry_kernel *kernel, const char *name, const uint32_t local[3],
		      uint32_t breadth, struct gantry_err *err)
{
	struct gantry_image *image = kernel->image;
	struct gantry_opencl_fitted *fitted;
	int r;

	if (!image->whole)
		return gantry_err_set(err, -EOPNOTSUPP, "the image has no intermediate code");
	r = place_for(image, kernel->function, local, breadth, &fitted, err);
	if (r < 0)
		return r;
	if (fitted->r != -EAGAIN)
		return fitted->r < 0 ? gantry_err_set(err, fitted->r, "it could not be made before")
				     : 0;
	if (fitted->again_ns && !gantry_deadline_passed(fitted->again_ns))
		return gantry_err_set(err, -EAGAIN, "the host lacked something a moment ago");
	/*
	 * A wish is asked for once, before the first launch of the size, and PoCL does not look again then. So what may be over at once, as
	 * a lack of processes or descriptors, is not the end of it.
	 */
	r = -EAGAIN;
	for (uint32_t i = 0; i < TRIES && may_pass(r); i++)
		r = make(kernel, name, local, breadth, err);
	return remember(fitted, r, err);
}
