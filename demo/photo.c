/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A picture, worked on by the host's devices:
 *
 *   photo PHOTO.png FOLDER       writes edges.png, sharp.png and focus.png into FOLDER, and prints what it did
 *   photo --loop PHOTO.png [N]   the same work on N queues, again and again until standard input ends
 *
 * The pipeline: a light blur takes the grain away; Sobel finds the edges of its gray picture; the difference to the
 * original sharpens (unsharp masking); a wide blur is laid over everything that is far from an edge.
 */
#include "guest.h"

#include <inttypes.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct picture {
	uint32_t width, height, channels;
	uint64_t npixels, nbytes;
	uint8_t *data;
};

/* --- PNG --- */

static struct picture read_png(const char *path)
{
	png_image image = { .version = PNG_IMAGE_VERSION };
	struct picture p = { .channels = 3 };

	if (!png_image_begin_read_from_file(&image, path))
		die("%s: %s", path, image.message);
	image.format = PNG_FORMAT_RGB;
	p.width = image.width;
	p.height = image.height;
	p.npixels = (uint64_t)p.width * p.height;
	p.nbytes = p.npixels * p.channels;
	p.data = malloc(p.nbytes);
	if (!p.data || !png_image_finish_read(&image, NULL, p.data, 0, NULL))
		die("%s: %s", path, image.message);
	return p;
}

static void write_png(const char *folder, const char *name, const uint8_t *data,
		      const struct picture *like, uint32_t channels)
{
	png_image image = {
		.version = PNG_IMAGE_VERSION,
		.width = like->width,
		.height = like->height,
		.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB,
	};
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (!png_image_write_to_file(&image, path, 0, data, 0, NULL))
		die("%s: %s", path, image.message);
	printf("wrote %s\n", path);
}

/* --- the pipeline --- */

/*
 * The pictures between the steps of one round. Rounds in flight have each their own: a task of which nobody knows whether it
 * ran, for its worker died, runs again as long as none behind it may have written over what it reads.
 */
struct stage {
	gantry_buffer source, soft, gray, edges, halo, wide, sharp, focus;
};

struct studio {
	struct picture photo;
	gantry_kernel blur, grayscale, sobel, unsharp, combine;
	struct stage stage[LANES_MAX][DEPTH];
};

#define TASKS_PER_ROUND 8u

static void find_kernels(struct studio *studio, struct gantry_session *s)
{
	check(gantry_kernel_find(s, "gaussian_blur", "r:u8*,w:u8*,u32,u32,u32,u32,f32",
				 &studio->blur),
	      "kernel gaussian_blur");
	check(gantry_kernel_find(s, "grayscale", "r:u8*,w:u8*,u64", &studio->grayscale),
	      "kernel grayscale");
	check(gantry_kernel_find(s, "sobel", "r:u8*,w:u8*,u32,u32", &studio->sobel),
	      "kernel sobel");
	check(gantry_kernel_find(s, "unsharp", "r:u8*,r:u8*,w:u8*,u64,f32", &studio->unsharp),
	      "kernel unsharp");
	check(gantry_kernel_find(s, "combine", "r:u8*,r:u8*,r:u8*,w:u8*,u64,u32", &studio->combine),
	      "kernel combine");
}

static void alloc_stage(struct studio *studio, struct gantry_session *s, struct stage *stage)
{
	const struct picture *photo = &studio->photo;

	stage->source = alloc_buffer(s, photo->nbytes);
	stage->soft = alloc_buffer(s, photo->nbytes);
	stage->gray = alloc_buffer(s, photo->npixels);
	stage->edges = alloc_buffer(s, photo->npixels);
	stage->halo = alloc_buffer(s, photo->npixels);
	stage->wide = alloc_buffer(s, photo->nbytes);
	stage->sharp = alloc_buffer(s, photo->nbytes);
	stage->focus = alloc_buffer(s, photo->nbytes);
	check(gantry_write(s, stage->source, 0, photo->data, photo->nbytes), "writing the photo");
}

static void blur(struct work *work, unsigned lane, gantry_buffer from, gantry_buffer to,
		 uint32_t channels, uint32_t radius, float sigma)
{
	const struct studio *studio = work->arg;
	struct args {
		uint64_t src, dst;
		uint32_t width, height, channels, radius;
		float sigma;
	} args = { .width = studio->photo.width,
		   .height = studio->photo.height,
		   .channels = channels,
		   .radius = radius,
		   .sigma = sigma };
	struct gantry_access access[] = { ACCESS(struct args, src, from, R),
					  ACCESS(struct args, dst, to, W) };

	submit(work->session, work->queue[lane], studio->blur, &args, sizeof(args), access,
	       COUNT(access));
}

static void find_edges(struct work *work, unsigned lane, const struct stage *stage)
{
	const struct studio *studio = work->arg;
	struct gray_args {
		uint64_t rgb, gray, npixels;
	} gray = { .npixels = studio->photo.npixels };
	struct sobel_args {
		uint64_t gray, edges;
		uint32_t width, height;
	} sobel = { .width = studio->photo.width, .height = studio->photo.height };
	struct gantry_access gray_access[] = { ACCESS(struct gray_args, rgb, stage->soft, R),
					       ACCESS(struct gray_args, gray, stage->gray, W) };
	struct gantry_access sobel_access[] = { ACCESS(struct sobel_args, gray, stage->gray, R),
						ACCESS(struct sobel_args, edges, stage->edges, W) };

	submit(work->session, work->queue[lane], studio->grayscale, &gray, sizeof(gray),
	       gray_access, COUNT(gray_access));
	submit(work->session, work->queue[lane], studio->sobel, &sobel, sizeof(sobel), sobel_access,
	       COUNT(sobel_access));
}

static void sharpen(struct work *work, unsigned lane, const struct stage *stage)
{
	const struct studio *studio = work->arg;
	struct args {
		uint64_t src, blurred, dst, nbytes;
		float amount;
	} args = { .nbytes = studio->photo.nbytes, .amount = 1.5f };
	struct gantry_access access[] = { ACCESS(struct args, src, stage->source, R),
					  ACCESS(struct args, blurred, stage->soft, R),
					  ACCESS(struct args, dst, stage->sharp, W) };

	submit(work->session, work->queue[lane], studio->unsharp, &args, sizeof(args), access,
	       COUNT(access));
}

static void focus(struct work *work, unsigned lane, const struct stage *stage)
{
	const struct studio *studio = work->arg;
	struct args {
		uint64_t a, b, mask, dst, npixels;
		uint32_t channels;
	} args = { .npixels = studio->photo.npixels, .channels = studio->photo.channels };
	struct gantry_access access[] = { ACCESS(struct args, a, stage->sharp, R),
					  ACCESS(struct args, b, stage->wide, R),
					  ACCESS(struct args, mask, stage->halo, R),
					  ACCESS(struct args, dst, stage->focus, W) };

	submit(work->session, work->queue[lane], studio->combine, &args, sizeof(args), access,
	       COUNT(access));
}

static gantry_ticket pipeline(struct work *work, unsigned lane, unsigned slot)
{
	struct studio *studio = work->arg;
	const struct stage *stage = &studio->stage[lane][slot % DEPTH];

	blur(work, lane, stage->source, stage->soft, 3, 3, 1.4f);
	find_edges(work, lane, stage);
	blur(work, lane, stage->edges, stage->halo, 1, 8, 5);
	blur(work, lane, stage->source, stage->wide, 3, 12, 6);
	sharpen(work, lane, stage);
	focus(work, lane, stage);
	return work_checksum(work, lane, slot, stage->focus, studio->photo.nbytes);
}

/* --- once --- */

static void save(struct work *work, const char *folder, const char *name, gantry_buffer buffer,
		 uint32_t channels)
{
	const struct studio *studio = work->arg;
	uint64_t nbytes = studio->photo.npixels * channels;
	uint8_t *data = malloc(nbytes);

	if (!data)
		die("no memory for %s", name);
	check(gantry_read(work->session, buffer, 0, data, nbytes), "reading a picture");
	write_png(folder, name, data, &studio->photo, channels);
	free(data);
}

static int work_once(struct work *work, const char *folder)
{
	struct studio *studio = work->arg;
	double start_s = now_s();
	gantry_ticket ticket = pipeline(work, 0, 0);
	uint64_t sum;

	check(gantry_wait(work->session, &ticket, 1, GANTRY_FOREVER), "the pipeline");
	check(gantry_read(work->session, work->sums[0], 0, &sum, sizeof(sum)),
	      "reading a checksum");
	printf("pipeline width=%u height=%u tasks=%u ms=%.1f checksum=%016" PRIx64 "\n",
	       studio->photo.width, studio->photo.height, TASKS_PER_ROUND,
	       (now_s() - start_s) * 1e3, sum);
	save(work, folder, "edges.png", studio->stage[0][0].edges, 1);
	save(work, folder, "sharp.png", studio->stage[0][0].sharp, 3);
	save(work, folder, "focus.png", studio->stage[0][0].focus, 3);
	return 0;
}

int main(int argc, char **argv)
{
	struct studio studio = { 0 };
	struct work work = {
		.nlanes = 1, .tasks_per_round = TASKS_PER_ROUND, .round = pipeline, .arg = &studio
	};
	int loop = argc > 2 && strcmp(argv[1], "--loop") == 0;
	int status;

	if (argc < 3)
		die("usage: photo PHOTO.png FOLDER, or photo --loop PHOTO.png [QUEUES]");
	if (loop && argc > 3)
		work.nlanes = (unsigned)atoi(argv[3]);
	if (work.nlanes < 1 || work.nlanes > LANES_MAX)
		die("1 to %u queues", LANES_MAX);
	studio.photo = read_png(argv[loop ? 2 : 1]);
	check(gantry_open(NULL, NULL, &work.session), "opening a session");
	work_open(&work);
	find_kernels(&studio, work.session);
	for (unsigned lane = 0; lane < work.nlanes; lane++)
		for (unsigned slot = 0; slot < DEPTH; slot++)
			alloc_stage(&studio, work.session, &studio.stage[lane][slot]);
	status = loop ? work_loop(&work) : work_once(&work, argv[2]);
	gantry_close(work.session);
	free(studio.photo.data);
	return status;
}
