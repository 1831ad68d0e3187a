/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fpga backend over the test board, under the contract checker: results, sharing, changes of images, and boards that fail.
 * With GANTRY_TEST_SEATED=1 the same through a seat at another thread's device, as workers have it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/sha256.h"
#include "base/str.h"
#include "devices/registry.h"
#include "devices/seat/holder.h"
#include "tests/unit/runner.h"

#define VADD	"kernel vadd r:i32*,r:i32*,w:i32*,u64 window 0 run 100us pure\n"
#define SCALE	"kernel scale r:i32*,w:i32*,i32,u64 window 0 run 100us pure\n"
#define STENCIL "kernel stencil r:i32*,w:i32*,u32,u32 window 0 run 100us pure\n"
#define PAIR                                                   \
	"kernel vadd r:i32*,r:i32*,w:i32*,u64 window 0 pure\n" \
	"kernel scale r:i32*,w:i32*,i32,u64 window 1 pure\n"
#define N	   1024u
#define MAX_PUT	   8u
#define TIMEOUT_NS (50 * GANTRY_NS_PER_S)

static char folder[64];
static char images_opt[96];
static const char *put_names[MAX_PUT];
static unsigned int nput;
static const char *put_memory = "kept"; /* what loading an image does to it */
static struct gantry_device device;
static uint32_t nwakes; /* atomic; a futex */
static uint32_t
	cancel; /* atomic: everything is to be cancelled, or from the question behind the next on */
#define BEHIND_THE_NEXT 2u
static uint64_t last_tag;

static void wake(void *cookie)
{
	(void)cookie;
	gantry_fetch_add(&nwakes, 1);
	(void)gantry_futex_wake(&nwakes, 1);
}

static int cancelled(void *cookie, uint64_t tag)
{
	uint32_t next = BEHIND_THE_NEXT;

	(void)cookie;
	(void)tag;
	if (gantry_cas(&cancel, &next, 1u))
		return 0;
	return next != 0;
}

static const struct gantry_device_host host = { .wake = wake, .cancelled = cancelled };

/* ---- the directory of bitstreams ---- */

static void put_file(const char *name, const char *suffix, const void *bytes, size_t len)
{
	char path[192];

	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gantry_write_all(fd, bytes, len), 0);
	gantry_fd_close(fd);
}

/* Bitstream @name for both regions, with these kernels, whatever it really has. */
static void put(const char *name, const char *kernels)
{
	char path[512], text[1024], hex[2 * GANTRY_SHA256_BYTES + 1];
	uint8_t hash[GANTRY_SHA256_BYTES];
	struct gantry_sha256 sha;
	size_t len;
	char *bytes;

	if (!folder[0]) {
		(void)snprintf(folder, sizeof(folder), "/tmp/gantry-fpga-XXXXXX");
		ck_assert_ptr_nonnull(mkdtemp(folder));
		(void)snprintf(images_opt, sizeof(images_opt), "images=%s", folder);
	}
	(void)snprintf(path, sizeof(path), "%s/%s.bit", BITSTREAMS, name);
	ck_assert_int_eq(gantry_file_read(path, 64 << 20, &bytes, &len), 0);
	gantry_sha256_init(&sha);
	gantry_sha256_add(&sha, bytes, len);
	gantry_sha256_end(&sha, hash);
	(void)gantry_hex_encode(hash, sizeof(hash), hex, sizeof(hex));
	(void)snprintf(
		text, sizeof(text),
		"bitstream %s 1\nboard two-regions\nload 0 %s.bit %s\nload 1 %s.bit %s\nconfigure 2ms\nmemory %s\n%s",
		name, name, hex, name, hex, put_memory, kernels);
	put_file(name, ".bit", bytes, len);
	put_file(name, ".bitstream", text, strlen(text));
	free(bytes);
	put_names[nput++] = name;
}

static void drop_all(void)
{
	char path[192];

	for (unsigned int i = 0; i < nput; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s.bit", folder, put_names[i]);
		(void)unlink(path);
		(void)snprintf(path, sizeof(path), "%s/%s.bitstream", folder, put_names[i]);
		(void)unlink(path);
	}
	(void)rmdir(folder);
}

static void put_three(void)
{
	put("vadd", VADD);
	put("scale", SCALE);
	put("stencil", STENCIL);
}

/* ---- the device ---- */

static int try_open_with(const struct gantry_device_host *with, const char *board, const char *more,
			 struct gantry_device *ret_device, struct gantry_err *err)
{
	char board_opt[160];
	const char *opts[] = { "filters=contract", "driver=" DRIVER, images_opt, board_opt, more };
	const struct gantry_device_conf conf = {
		.name = "fpga0", .backend = "fpga", .nopts = more ? 5 : 4, .opts = opts
	};

	(void)snprintf(board_opt, sizeof(board_opt), "board=%s", board);
	return gantry_device_open(&conf, with, ret_device, err);
}

static int try_open(const char *board, const char *more, struct gantry_device *ret_device,
		    struct gantry_err *err)
{
	return try_open_with(&host, board, more, ret_device, err);
}

/* The process that holds the board, as a thread. */
static struct {
	struct gantry_seat_holder *holder;
	pthread_t thread;
	const char *board, *more;
	struct gantry_device device;
} held;

static bool is_seated(void)
{
	return getenv("GANTRY_TEST_SEATED") != NULL;
}

static void *hold(void *arg)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	(void)arg;
	ck_assert_msg(try_open_with(gantry_seat_holder_host(held.holder), held.board, held.more,
				    &held.device, &err) == 0,
		      "%s", err.text);
	(void)gantry_seat_holder_run(held.holder,
				     &held.device); /* a test may have the board lost */
	gantry_device_close(&held.device);
	return NULL;
}

static void device_open_seated(const char *board, const char *more)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	char seat_opt[32];
	const char *opts[] = { "filters=contract", seat_opt };
	const struct gantry_device_conf conf = {
		.name = "fpga0", .backend = "seat", .nopts = 2, .opts = opts
	};
	int socks[2];

	held.board = board;
	held.more = more;
	held.holder = gantry_seat_holder_new(folder);
	ck_assert_ptr_nonnull(held.holder);
	ck_assert_int_eq(pthread_create(&held.thread, NULL, hold, NULL), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks), 0);
	ck_assert_int_eq(gantry_seat_holder_add(held.holder, socks[0], 1), 0);
	(void)snprintf(seat_opt, sizeof(seat_opt), "seat=%d", socks[1]);
	ck_assert_msg(gantry_device_open(&conf, &host, &device, &err) == 0, "%s", err.text);
	gantry_fd_close(socks[1]);
	ck_assert(!(device.info.caps & (GANTRY_CAP_EXCLUSIVE | GANTRY_CAP_DRIVER)));
}

static int health_of_board(struct gantry_device_health *ret_health, struct gantry_err *err)
{
	const struct gantry_device *d = is_seated() ? &held.device : &device;

	return d->backend->health(d->dev, ret_health, err);
}

static void device_open(const char *board, const char *more)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	if (is_seated()) {
		device_open_seated(board, more);
		return;
	}
	ck_assert_msg(try_open(board, more, &device, &err) == 0, "%s", err.text);
	if (device.backend->thread_enter)
		ck_assert_int_eq(device.backend->thread_enter(device.dev, &err), 0);
}

static void device_close(void)
{
	gantry_device_close(&device);
	if (is_seated()) {
		gantry_seat_holder_stop(held.holder);
		(void)pthread_join(held.thread, NULL);
		gantry_seat_holder_free(held.holder);
	}
	drop_all();
	gantry_unit_forgive(); /* what the driver keeps */
}

static struct gantry_stream *stream_of(int32_t priority)
{
	const struct gantry_stream_attr attr = { .priority = priority };
	struct gantry_stream *stream;

	ck_assert_int_eq(device.backend->stream_create(device.dev, &attr, &stream, NULL), 0);
	return stream;
}

static struct gantry_signature sigs[8];
static unsigned int nsigs;

static struct gantry_kernel *kernel_of(const char *bitstream, const char *name, const char *sig)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_kernel *kernel;
	struct gantry_image *image;
	char path[192];

	(void)snprintf(path, sizeof(path), "%s/%s.bitstream", folder, bitstream);
	ck_assert_msg(device.backend->image_load(device.dev, path, NULL, 0, &image, &err) == 0,
		      "%s", err.text);
	ck_assert_int_eq(gantry_signature_parse(sig, &sigs[nsigs], NULL), 0);
	ck_assert_msg(device.backend->kernel_get(image, name, &sigs[nsigs], &kernel, &err) == 0,
		      "%s", err.text);
	nsigs++;
	return kernel;
}

static struct gantry_mem *mem_of(void *base, uint64_t len)
{
	struct gantry_mem *mem;

	ck_assert_int_eq(device.backend->mem_host(device.dev, base, len, &mem, NULL), 0);
	return mem;
}

static struct gantry_cmd launch_of(struct gantry_kernel *kernel, uint32_t nargs)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH };

	cmd.launch.kernel = kernel;
	cmd.launch.nargs = nargs;
	return cmd;
}

static void arg(struct gantry_cmd *cmd, uint32_t i, struct gantry_mem *mem, uint64_t off,
		uint64_t len)
{
	cmd->launch.args[i].range = (struct gantry_range){ .mem = mem, .off = off, .len = len };
}

static int submit(struct gantry_stream *stream, struct gantry_cmd *cmd)
{
	cmd->tag = ++last_tag;
	return device.backend->submit(stream, cmd);
}

static void wait_for(struct gantry_done *ret_done, unsigned int n)
{
	uint64_t deadline_ns = gantry_now_ns() + TIMEOUT_NS;
	unsigned int count = 0;

	while (count < n) {
		uint32_t seen = gantry_load_acquire(&nwakes);

		count += device.backend->poll(device.dev, ret_done + count, n - count);
		ck_assert_msg(gantry_now_ns() < deadline_ns, "%u of %u ended", count, n);
		if (count < n)
			(void)gantry_futex_wait(&nwakes, seen, gantry_now_ns() + 100000000u);
	}
}

static struct gantry_done run(struct gantry_stream *stream, struct gantry_cmd *cmd)
{
	struct gantry_done done;

	ck_assert_int_eq(submit(stream, cmd), 0);
	wait_for(&done, 1);
	ck_assert_uint_eq(done.tag, cmd->tag);
	return done;
}

/* ---- work ---- */

static int32_t in_a[N], in_b[N], out[8][N];

static void fill_inputs(void)
{
	for (uint32_t i = 0; i < N; i++) {
		in_a[i] = (int32_t)(i * 2654435761u);
		in_b[i] = (int32_t)(i * 40503u + 1);
	}
}

static struct gantry_cmd vadd_of(struct gantry_kernel *kernel, int32_t *to, uint64_t n)
{
	struct gantry_cmd cmd = launch_of(kernel, 4);

	arg(&cmd, 0, mem_of(in_a, sizeof(in_a)), 0, sizeof(in_a));
	arg(&cmd, 1, mem_of(in_b, sizeof(in_b)), 0, sizeof(in_b));
	arg(&cmd, 2, mem_of(to, 4ull * N), 0, 4ull * N);
	cmd.launch.args[3].value.u64 = n;
	return cmd;
}

static struct gantry_cmd scale_of(struct gantry_kernel *kernel, int32_t *to, int32_t factor)
{
	struct gantry_cmd cmd = launch_of(kernel, 4);

	arg(&cmd, 0, mem_of(in_a, sizeof(in_a)), 0, sizeof(in_a));
	arg(&cmd, 1, mem_of(to, 4ull * N), 0, 4ull * N);
	cmd.launch.args[2].value.i32 = factor;
	cmd.launch.args[3].value.u64 = N;
	return cmd;
}

static struct gantry_cmd stencil_of(struct gantry_kernel *kernel, int32_t *to)
{
	struct gantry_cmd cmd = launch_of(kernel, 4);

	arg(&cmd, 0, mem_of(in_a, sizeof(in_a)), 0, sizeof(in_a));
	arg(&cmd, 1, mem_of(to, 4ull * N), 0, 4ull * N);
	cmd.launch.args[2].value.u32 = 32;
	cmd.launch.args[3].value.u32 = N / 32;
	return cmd;
}

static void check_vadd(const int32_t *got, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (got[i] != (int32_t)((uint32_t)in_a[i] + (uint32_t)in_b[i]))
			ck_abort_msg("vadd: element %u is %d", i, got[i]);
}

static void check_scale(const int32_t *got, int32_t factor)
{
	for (uint32_t i = 0; i < N; i++)
		if (got[i] != (int32_t)((uint32_t)in_a[i] * (uint32_t)factor))
			ck_abort_msg("scale: element %u is %d", i, got[i]);
}

static uint32_t cell(int x, int y)
{
	return x < 0 || y < 0 || x >= 32 || y >= (int)(N / 32) ? 0 : (uint32_t)in_a[32 * y + x];
}

static void check_stencil(const int32_t *got)
{
	for (int i = 0; i < (int)N; i++) {
		int x = i % 32, y = i / 32;
		uint32_t expected = 4 * cell(x, y) - cell(x - 1, y) - cell(x + 1, y) -
				    cell(x, y - 1) - cell(x, y + 1);

		if ((uint32_t)got[i] != expected)
			ck_abort_msg("stencil: element %d is %d", i, got[i]);
	}
}

/* ---- tests ---- */

START_TEST(test_open_says_what_is_wrong)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device none;

	put_three();
	ck_assert_int_eq(try_open("speed=3", NULL, &none, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "board: no such option"));
	ck_assert_int_eq(try_open("", "mode=fast", &none, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "mode: \"fast\" is not auto, single or spatial"));
	ck_assert_int_eq(try_open("", "age=soon", &none, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "age"));
	put_file("scale", ".bit", "bits", 4);
	ck_assert_int_eq(try_open("", NULL, &none, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "scale.bit is not the file that the manifest"));
	put_file("scale", ".bitstream", "bitstream scale 1\nboard b\n", 26);
	ck_assert_int_eq(try_open("", NULL, &none, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "scale.bitstream: "));
	drop_all();
	gantry_unit_forgive();
}
END_TEST

START_TEST(test_one_process_has_the_board)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device second;
	char lock[] = "/tmp/gantry-fpga-lock-XXXXXX", options[64];
	int fd = mkstemp(lock);

	ck_assert_int_ge(fd, 0);
	(void)snprintf(options, sizeof(options), "lock=%s", lock);
	put_three();
	device_open(options, NULL);
	ck_assert_uint_eq(device.info.kind, GANTRY_KIND_FPGA);
	ck_assert(device.info.caps & GANTRY_CAP_EXCLUSIVE);
	ck_assert_int_eq(try_open(options, NULL, &second, &err), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.text, "board: another process has the board"));
	gantry_fd_close(fd);
	(void)unlink(lock);
	device_close();
}
END_TEST

/* Of all of it, or of a part that begins where the board's memory could not have it begin. */
START_TEST(test_kernel_works_on_memory_behind_a_descriptor)
{
	uint64_t off = _i == 2 ? 4 : 0;
	struct gantry_stream *stream;
	struct gantry_cmd cmd;
	struct gantry_done done;
	struct gantry_mem *mem;
	int32_t *seen;
	int fd;

	put_three();
	device_open("", NULL);
	stream = stream_of(0);
	fill_inputs();
	ck_assert_int_eq(gantry_memfd_create("fpga", 2 * sizeof(in_a), _i ? GANTRY_MEMFD_SEALED : 0,
					     &fd),
			 0);
	ck_assert_int_eq(
		device.backend->mem_import(device.dev, fd, 0, 2 * sizeof(in_a), &mem, NULL), 0);
	cmd = vadd_of(kernel_of("vadd", "vadd", "r:i32*,r:i32*,w:i32*,u64"), out[0], N - 1);
	arg(&cmd, 2, mem, off, sizeof(in_a));
	done = run(stream, &cmd);
	ck_assert_int_eq(done.status, GANTRY_OK);
	ck_assert_uint_gt(done.device_ns, 0);
	seen = mmap(NULL, 2 * sizeof(in_a), PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(seen, MAP_FAILED);
	check_vadd(seen + off / 4, N - 1);
	/* What the kernel does not write stays. */
	ck_assert_int_eq(seen[off / 4 + N - 1], 0);
	munmap(seen, 2 * sizeof(in_a));
	gantry_fd_close(fd);
	device_close();
}
END_TEST

START_TEST(test_copies_and_fills_keep_their_order_with_launches)
{
	struct gantry_cmd fill = { .kind = GANTRY_CMD_FILL }, copy = { .kind = GANTRY_CMD_COPY };
	struct gantry_stream *stream;
	struct gantry_cmd cmd;
	struct gantry_done done[4];

	put_three();
	device_open("", NULL);
	stream = stream_of(0);
	fill_inputs();
	cmd = scale_of(kernel_of("scale", "scale", "r:i32*,w:i32*,i32,u64"), out[0], 3);
	fill.fill.dst = (struct gantry_range){ mem_of(out[0], sizeof(out[0])), 0, sizeof(out[0]) };
	fill.fill.pattern = 0x0102030405060708;
	fill.fill.pattern_bytes = 8;
	copy.copy.src = (struct gantry_range){ mem_of(out[0], sizeof(out[0])), 0, 2048 };
	copy.copy.dst = (struct gantry_range){ mem_of(out[1], sizeof(out[1])), 2048, 2048 };
	ck_assert_int_eq(submit(stream, &fill), 0);
	ck_assert_int_eq(submit(stream, &cmd), 0);
	ck_assert_int_eq(submit(stream, &copy), 0);
	fill.fill.pattern_bytes = 1;
	ck_assert_int_eq(submit(stream, &fill), 0);
	wait_for(done, 4);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(done[i].status, GANTRY_OK);
	ck_assert_int_eq(out[1][512], (int32_t)((uint32_t)in_a[0] * 3));
	ck_assert_int_eq(out[1][1023], (int32_t)((uint32_t)in_a[511] * 3));
	ck_assert_int_eq(out[0][7], 0x08080808);
	device_close();
}
END_TEST

static const struct {
	const char *mode;
	const char *board;
} mixes[] = {
	{ "mode=auto", "" },
	{ "mode=single", "load_ms=3" },
	{ "mode=spatial", "" },
	{ "age=200ms", "memory_lost=1 load_ms=1" },
};

/* Three kernels for two regions, five streams: images have to be changed, and every result is right. */
START_TEST(test_streams_of_several_kernels_share_the_board)
{
	struct gantry_kernel *vadd, *scale, *stencil;
	struct gantry_done done[60];

	put_three();
	put("pair", PAIR);
	device_open(mixes[_i].board, mixes[_i].mode);
	fill_inputs();
	vadd = kernel_of("pair", "vadd", "r:i32*,r:i32*,w:i32*,u64");
	scale = kernel_of("pair", "scale", "r:i32*,w:i32*,i32,u64");
	stencil = kernel_of("vadd", "stencil", "r:i32*,w:i32*,u32,u32");
	for (int s = 0; s < 5; s++) {
		struct gantry_stream *stream = stream_of(s == 4);
		struct gantry_cmd cmd = s % 3 == 0   ? vadd_of(vadd, out[s], N)
					: s % 3 == 1 ? scale_of(scale, out[s], s + 5)
						     : stencil_of(stencil, out[s]);

		for (int i = 0; i < 12; i++)
			ck_assert_int_eq(submit(stream, &cmd), 0);
	}
	wait_for(done, 60);
	for (int i = 0; i < 60; i++)
		ck_assert_int_eq(done[i].status, GANTRY_OK);
	check_vadd(out[0], N);
	check_scale(out[1], 6);
	check_stencil(out[2]);
	check_vadd(out[3], N);
	check_scale(out[4], 9);
	device_close();
}
END_TEST

START_TEST(test_refused_arguments_hurt_their_command_only)
{
	struct gantry_kernel *vadd;
	struct gantry_stream *stream;
	struct gantry_cmd cmd;
	struct gantry_done done;

	put_three();
	device_open("", NULL);
	stream = stream_of(0);
	fill_inputs();
	vadd = kernel_of("vadd", "vadd", "r:i32*,r:i32*,w:i32*,u64");
	cmd = vadd_of(vadd, out[0], N + 1);
	done = run(stream, &cmd);
	ck_assert_int_eq(done.status, GANTRY_E_KERNEL);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	ck_assert_int_eq(out[0][0], 0);
	cmd = vadd_of(vadd, out[0], N);
	ck_assert_int_eq(run(stream, &cmd).status, GANTRY_OK);
	check_vadd(out[0], N);
	device_close();
}
END_TEST

START_TEST(test_grid_is_refused)
{
	struct gantry_cmd cmd;

	put_three();
	device_open("", NULL);
	cmd = vadd_of(kernel_of("vadd", "vadd", "r:i32*,r:i32*,w:i32*,u64"), out[0], N);
	cmd.launch.grid[0] = 2;
	ck_assert_int_eq(submit(stream_of(0), &cmd), -EINVAL);
	device_close();
}
END_TEST

START_TEST(test_kernel_get_knows_names_and_arguments)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_signature sig;
	struct gantry_kernel *kernel = NULL;
	struct gantry_image *image;
	char path[192];

	put_three();
	device_open("", NULL);
	(void)snprintf(path, sizeof(path), "%s/vadd.bit", folder);
	ck_assert_int_eq(device.backend->image_load(device.dev, path, NULL, 0, &image, &err),
			 -ENOEXEC);
	(void)snprintf(path, sizeof(path), "%s/vadd.bitstream", folder);
	ck_assert_int_eq(device.backend->image_load(device.dev, path, NULL, 0, &image, &err), 0);
	ck_assert_int_eq(gantry_signature_parse("r:i32*,r:i32*,w:i32*,u32", &sig, NULL), 0);
	ck_assert_int_eq(device.backend->kernel_get(image, "vadd", &sig, &kernel, &err), -EINVAL);
	ck_assert_int_eq(device.backend->kernel_get(image, "nobody", &sig, &kernel, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.text, "nobody"));
	ck_assert_ptr_null(kernel);
	device_close();
}
END_TEST

START_TEST(test_launch_that_no_board_has_room_for_says_so_and_others_wait_for_theirs)
{
	struct gantry_kernel *vadd;
	struct gantry_cmd cmd;
	struct gantry_done done[8];

	/* Room for one launch at a time. */
	put("vadd", VADD);
	device_open("memory=16384", NULL);
	fill_inputs();
	vadd = kernel_of("vadd", "vadd", "r:i32*,r:i32*,w:i32*,u64");
	for (int s = 0; s < 4; s++) {
		cmd = vadd_of(vadd, out[s], N);
		ck_assert_int_eq(submit(stream_of(0), &cmd), 0);
	}
	wait_for(done, 4);
	for (int s = 0; s < 4; s++) {
		ck_assert_int_eq(done[s].status, GANTRY_OK);
		check_vadd(out[s], N);
	}
	arg(&cmd, 2, mem_of(out, sizeof(out)), 0, 3 * sizeof(out[0]));
	done[0] = run(stream_of(0), &cmd);
	ck_assert_int_eq(done[0].status, GANTRY_E_NO_MEMORY);
	ck_assert_uint_eq(done[0].blast, GANTRY_BLAST_CMD);
	device_close();
}
END_TEST

/* ---- what stays on the board ---- */

/* Bytes that were copied to it, kept and copied back, since the last time. */
static void check_copies(uint64_t copied_in, uint64_t kept, uint64_t copied_out)
{
	static struct gantry_device_health before;
	struct gantry_device_health now;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(health_of_board(&now, &err), 0);
	ck_assert(now.known & GANTRY_HEALTH_COPIES);
	ck_assert_uint_eq(now.copied_in - before.copied_in, copied_in);
	ck_assert_uint_eq(now.kept - before.kept, kept);
	ck_assert_uint_eq(now.copied_out - before.copied_out, copied_out);
	before = now;
}

/* Memory that a seat's holder has too, of @n times BYTES; seen at kept[@i]. */
static int32_t *kept[8];

static struct gantry_mem *shared(uint32_t i, uint64_t n)
{
	struct gantry_mem *mem;
	int fd;

	ck_assert_int_eq(gantry_memfd_create("fpga", n * sizeof(in_a), GANTRY_MEMFD_SEALED, &fd),
			 0);
	ck_assert_int_eq(
		device.backend->mem_import(device.dev, fd, 0, n * sizeof(in_a), &mem, NULL), 0);
	kept[i] = mmap(NULL, n * sizeof(in_a), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(kept[i], MAP_FAILED);
	gantry_fd_close(fd);
	memcpy(kept[i], in_a, sizeof(in_a));
	return mem;
}

#define SCALE_SIG "r:i32*,w:i32*,i32,u64"
#define VADD_SIG  "r:i32*,r:i32*,w:i32*,u64"
#define BYTES	  (4ull * N)

/* scale of @from to @to with these contents before, and @makes after. */
static struct gantry_cmd known_scale(struct gantry_kernel *kernel, struct gantry_mem *from,
				     struct gantry_mem *to, uint64_t in, uint64_t out_before,
				     uint64_t makes)
{
	struct gantry_cmd cmd = launch_of(kernel, 4);

	arg(&cmd, 0, from, 0, BYTES);
	arg(&cmd, 1, to, 0, BYTES);
	cmd.launch.args[0].range.contents = in;
	cmd.launch.args[1].range.contents = out_before;
	cmd.launch.args[2].value.i32 = 3;
	cmd.launch.args[3].value.u64 = N;
	cmd.launch.makes = makes;
	return cmd;
}

static void run_well(struct gantry_stream *stream, struct gantry_cmd cmd)
{
	ck_assert_int_eq(run(stream, &cmd).status, GANTRY_OK);
}

START_TEST(test_contents_that_are_the_same_are_not_copied_again)
{
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *m[3];

	put("scale", SCALE);
	device_open("", NULL);
	ck_assert(device.info.caps & GANTRY_CAP_KEEPS);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	m[0] = shared(0, 1);
	m[1] = shared(1, 1);
	m[2] = shared(2, 1);
	run_well(stream, known_scale(scale, m[0], m[1], 1, 2, 3));
	check_copies(2 * BYTES, 0, BYTES);
	/* Nothing is copied to the board; what it has is the same. */
	run_well(stream, known_scale(scale, m[0], m[1], 1, 3, 4));
	check_copies(0, 2 * BYTES, BYTES);
	check_scale(kept[1], 3);
	/* What a launch wrote is what the next reads. */
	run_well(stream, known_scale(scale, m[1], m[2], 4, 5, 6));
	check_copies(BYTES, BYTES, BYTES);
	check_scale(kept[2], 9);
	/* Other contents: the host wrote them. */
	kept[0][0] = ++in_a[0];
	run_well(stream, known_scale(scale, m[0], m[1], 7, 4, 8));
	check_copies(BYTES, BYTES, BYTES);
	check_scale(kept[1], 3);
	/* Not known: copied each time. */
	for (int i = 0; i < 2; i++) {
		kept[0][0] = ++in_a[0];
		run_well(stream, known_scale(scale, m[0], m[1], 0, 0, 0));
		check_copies(2 * BYTES, 0, BYTES);
		check_scale(kept[1], 3);
	}
	/* And what was known of them before is nothing any more. */
	run_well(stream, known_scale(scale, m[0], m[1], 7, 8, 9));
	check_copies(2 * BYTES, 0, BYTES);
	device_close();
}
END_TEST

/* A loading that loses memory, or fails; the board that says so has other bytes there then. */
START_TEST(test_nothing_is_found_on_a_board_that_lost_its_memory)
{
	struct gantry_kernel *scale, *vadd;
	struct gantry_stream *stream;
	struct gantry_mem *m[2];
	struct gantry_cmd cmd;

	put_memory = "lost";
	put("scale", SCALE);
	put("vadd", VADD);
	device_open("memory_lost=1", NULL);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	vadd = kernel_of("vadd", "vadd", VADD_SIG);
	m[0] = shared(0, 1);
	m[1] = shared(1, 1);
	run_well(stream, known_scale(scale, m[0], m[1], 1, 2, 3));
	cmd = vadd_of(vadd, out[1], N);
	run_well(stream, cmd);
	check_copies(5 * BYTES, 0, 2 * BYTES);
	run_well(stream, known_scale(scale, m[1], m[0], 3, 1, 4));
	check_copies(2 * BYTES, 0, BYTES);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(kept[0][i], (int32_t)(i * 2654435761u * 9));
	device_close();
	put_memory = "kept";
}
END_TEST

START_TEST(test_what_is_kept_makes_room_for_launches_that_need_it)
{
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *m[8];

	/* Room for three buffers and a bit. */
	put("scale", SCALE);
	device_open("memory=14336", NULL);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	m[0] = shared(0, 1);
	for (uint64_t i = 1; i < 8; i++) {
		m[i] = shared((uint32_t)i, 1);
		run_well(stream, known_scale(scale, m[0], m[i], 1, 10 + i, 20 + i));
		check_scale(kept[i], 3);
	}
	/* The one that all of them used was there each time, and two of the others'. */
	check_copies(8 * BYTES, 6 * BYTES, 7 * BYTES);
	run_well(stream, known_scale(scale, m[7], m[6], 27, 26, 30));
	check_copies(0, 2 * BYTES, BYTES);
	check_scale(kept[6], 9);
	device_close();
}
END_TEST

START_TEST(test_launch_that_fails_or_is_not_wanted_leaves_nothing_to_be_found)
{
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *m[2];
	struct gantry_cmd cmd;

	put("scale", SCALE);
	device_open("", NULL);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	m[0] = shared(0, 1);
	m[1] = shared(1, 1);
	memset(kept[1], 0, BYTES);
	cmd = known_scale(scale, m[0], m[1], 1, 2, 3);
	cmd.launch.args[3].value.u64 = N + 1; /* the unit refuses it */
	ck_assert_int_eq(run(stream, &cmd).status, GANTRY_E_KERNEL);
	check_copies(2 * BYTES, 0, 0);
	ck_assert_int_eq(kept[1][1], 0);
	run_well(stream, known_scale(scale, m[0], m[1], 1, 3, 4));
	check_copies(2 * BYTES, 0, BYTES);
	check_scale(kept[1], 3);
	device_close();
}
END_TEST

/* Ranges that overlap, of one memory: what one launch writes is not what another's part had. */
START_TEST(test_writing_a_part_makes_other_parts_stale)
{
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *both;
	struct gantry_cmd cmd;

	put("scale", SCALE);
	device_open("", NULL);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	both = shared(0, 8);
	cmd = known_scale(scale, both, both, 1, 1, 2);
	cmd.launch.args[1].range.off = BYTES;
	run_well(stream, cmd);
	/* Half of what is read, with the same number. */
	cmd = known_scale(scale, both, both, 2, 2, 3);
	cmd.launch.args[0].range.off = BYTES;
	cmd.launch.args[1].range.off = BYTES / 2;
	run_well(stream, cmd);
	check_copies(2 * BYTES + BYTES, BYTES, 2 * BYTES);
	cmd = known_scale(scale, both, both, 2, 2, 4);
	cmd.launch.args[0].range.off = BYTES;
	cmd.launch.args[1].range.off = 4 * BYTES;
	run_well(stream, cmd);
	check_copies(2 * BYTES, 0, BYTES);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(kept[0][4 * N + i], (int32_t)((uint32_t)kept[0][N + i] * 3));
	device_close();
}
END_TEST

START_TEST(test_board_that_is_to_keep_nothing_keeps_nothing)
{
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *m[2];
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device none;

	put("scale", SCALE);
	if (!is_seated()) {
		ck_assert_int_eq(try_open("", "keep=some", &none, &err), -EINVAL);
		ck_assert_ptr_nonnull(strstr(err.text, "keep: \"some\" is not yes or no"));
	}
	device_open("", "keep=no");
	ck_assert(!(device.info.caps & GANTRY_CAP_KEEPS));
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	m[0] = shared(0, 1);
	m[1] = shared(1, 1);
	for (uint64_t i = 0; i < 2; i++)
		run_well(stream, known_scale(scale, m[0], m[1], 1, 2 + i, 3 + i));
	check_copies(4 * BYTES, 0, 2 * BYTES);
	device_close();
}
END_TEST

START_TEST(test_failed_loading_is_tried_again)
{
	struct gantry_device_health health;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_cmd cmd;

	put_three();
	device_open("fail_loads=2", NULL);
	fill_inputs();
	cmd = vadd_of(kernel_of("vadd", "vadd", "r:i32*,r:i32*,w:i32*,u64"), out[0], N);
	ck_assert_int_eq(run(stream_of(0), &cmd).status, GANTRY_OK);
	check_vadd(out[0], N);
	ck_assert_int_eq(health_of_board(&health, &err), 0);
	ck_assert_uint_eq(health.nfaults, 0);
	device_close();
}
END_TEST

START_TEST(test_image_that_does_not_load_is_reported_and_others_go_on)
{
	struct gantry_device_health health;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_cmd cmd;
	struct gantry_done done;

	put_three();
	/* Twice in each of two regions. */
	device_open("fail_loads=4", "retries=1");
	fill_inputs();
	cmd = vadd_of(kernel_of("vadd", "vadd", "r:i32*,r:i32*,w:i32*,u64"), out[0], N);
	done = run(stream_of(0), &cmd);
	ck_assert_int_eq(done.status, GANTRY_E_IMAGE);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	ck_assert_int_eq(health_of_board(&health, &err), 0);
	ck_assert_uint_eq(health.nfaults, 2);
	ck_assert_ptr_nonnull(strstr(err.text, "bitstream vadd did not load at "));
	ck_assert_ptr_nonnull(strstr(err.text, "the configuration port reports an error"));
	cmd = scale_of(kernel_of("scale", "scale", "r:i32*,w:i32*,i32,u64"), out[1], 7);
	ck_assert_int_eq(run(stream_of(0), &cmd).status, GANTRY_OK);
	check_scale(out[1], 7);
	device_close();
}
END_TEST

START_TEST(test_manifest_that_lies_about_its_kernels_is_found_out)
{
	static const char *const lies[] = {
		"kernel scale r:i32*,w:i32*,i32 window 0\n",
		"kernel scale r:i32*,w:i32*,i32,u64 window 1\n",
		"kernel scale r:i32*,w:i32*,i32,u64 window 0 units 2\n",
	};
	struct gantry_device_health health;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_cmd cmd;

	put("scale", lies[_i]);
	device_open("", "retries=0");
	fill_inputs();
	if (_i == 0) {
		cmd = scale_of(kernel_of("scale", "scale", "r:i32*,w:i32*,i32"), out[0], 7);
		cmd.launch.nargs = 3;
	} else {
		cmd = scale_of(kernel_of("scale", "scale", "r:i32*,w:i32*,i32,u64"), out[0], 7);
	}
	ck_assert_int_eq(run(stream_of(0), &cmd).status, GANTRY_E_IMAGE);
	ck_assert_int_eq(health_of_board(&health, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "holds no kernel scale"));
	device_close();
}
END_TEST

START_TEST(test_failed_copy_to_the_board_fails_its_launch_only)
{
	struct gantry_stream *stream;
	struct gantry_cmd cmd;
	struct gantry_done done;

	put_three();
	device_open("fail_copies=1", NULL);
	stream = stream_of(0);
	fill_inputs();
	cmd = vadd_of(kernel_of("vadd", "vadd", "r:i32*,r:i32*,w:i32*,u64"), out[0], N);
	done = run(stream, &cmd);
	ck_assert_int_eq(done.status, GANTRY_E_DEVICE_FAULT);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	ck_assert_int_eq(run(stream, &cmd).status, GANTRY_OK);
	check_vadd(out[0], N);
	device_close();
}
END_TEST

START_TEST(test_lost_board_ends_everything_and_takes_nothing_more)
{
	struct gantry_device_health health;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_kernel *vadd;
	struct gantry_cmd cmd;
	struct gantry_done done[8];
	unsigned int nsubmitted = 0;

	put_three();
	device_open("lost_after=0", NULL);
	fill_inputs();
	vadd = kernel_of("vadd", "vadd", "r:i32*,r:i32*,w:i32*,u64");
	cmd = vadd_of(vadd, out[0], N);
	for (int s = 0; s < 4; s++) {
		struct gantry_stream *stream = stream_of(0);

		/* The first of them may find the board lost already. */
		for (int i = 0; i < 2; i++)
			if (submit(stream, &cmd) == 0)
				nsubmitted++;
	}
	ck_assert_uint_ge(nsubmitted, 1);
	wait_for(done, nsubmitted);
	for (unsigned int i = 0; i < nsubmitted; i++) {
		ck_assert_int_eq(done[i].status, GANTRY_E_DEVICE_LOST);
		ck_assert_uint_eq(done[i].blast, GANTRY_BLAST_DEVICE);
	}
	ck_assert_int_eq(health_of_board(&health, &err), -EIO);
	ck_assert_str_eq(err.text, "the board is gone");
	device_close();
}
END_TEST

/* It is told of its launch; what cannot know is a successor's affair, from whom a seat hears nothing. */
static void check_endless(const struct gantry_done *done)
{
	struct gantry_device_health health;
	struct gantry_err err;
	uint64_t worker = 0;
	const char *kernel = "";

	ck_assert_int_eq(done->status, GANTRY_E_DEADLINE);
	ck_assert_uint_eq(done->blast, is_seated() ? GANTRY_BLAST_CMD : GANTRY_BLAST_CONTEXT);
	ck_assert_int_eq(health_of_board(&health, &err), 0); /* the board itself is well */
	if (!is_seated())
		return;
	ck_assert(gantry_seat_holder_blames(held.holder, &worker, &kernel));
	ck_assert_uint_eq(worker, 1);
	ck_assert_str_eq(kernel, "vadd");
}

/* A board has no way to take one off it, and others wait for the region. */
START_TEST(test_cancelled_launch_that_does_not_end_costs_the_board)
{
	struct gantry_stream *stream;
	struct gantry_done done;
	struct gantry_cmd cmd;

	put_three();
	device_open("hang=1", "stuck=200ms");
	fill_inputs();
	stream = stream_of(0);
	cmd = vadd_of(kernel_of("vadd", "vadd", "r:i32*,r:i32*,w:i32*,u64"), out[0], N);
	/* One that was cancelled before it was on the board just ends; so the next is given longer to get there. */
	for (uint64_t ms = 50; ms < 20000; ms *= 2) {
		uint64_t until_ns = gantry_now_ns() + ms * GANTRY_NS_PER_MS;

		ck_assert_int_eq(submit(stream, &cmd), 0);
		while (gantry_now_ns() < until_ns) {
			uint32_t seen = gantry_load_acquire(&nwakes);

			ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 0);
			(void)gantry_futex_wait(&nwakes, seen, until_ns);
		}
		gantry_store_release(&cancel, 1u);
		wait_for(&done, 1);
		if (done.status != GANTRY_E_CANCELLED)
			break;
		gantry_store_release(&cancel, 0u);
	}
	check_endless(&done);
	device_close();
}
END_TEST

#define NFILLS 24u

static uint32_t *of_board(const char *name)
{
	void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD);
	uint32_t *number = driver ? dlsym(driver, name) : NULL;

	ck_assert_ptr_nonnull(number);
	(void)dlclose(driver); /* the device has it open */
	return number;
}

static void wait_for_more_than(const uint32_t *number, uint32_t before)
{
	uint64_t deadline_ns = gantry_now_ns() + TIMEOUT_NS;
	struct gantry_done done;

	while (gantry_load_acquire(number) == before) {
		ck_assert_uint_lt(gantry_now_ns(), deadline_ns);
		ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 0);
		(void)usleep(1000);
	}
}

/* Each makes way for the next, of which nobody tells the board's thread: one that sleeps until it is told never does them. */
START_TEST(test_commands_behind_each_other_do_not_wait_for_the_launch_of_another_stream)
{
	struct gantry_stream *busy, *stream;
	struct gantry_done done[NFILLS];
	struct gantry_kernel *vadd;
	struct gantry_cmd cmd, fill = { .kind = GANTRY_CMD_FILL };
	uint32_t *sleeps, *naps, before;

	put_three();
	device_open("hang=1 naps=1", "stuck=200ms");
	sleeps = of_board("gantry_test_board_sleeps");
	naps = of_board("gantry_test_board_naps");
	fill_inputs();
	busy = stream_of(0);
	stream = stream_of(0);
	vadd = kernel_of("vadd", "vadd", "r:i32*,r:i32*,w:i32*,u64");
	cmd = vadd_of(vadd, out[0], N);
	before = gantry_load_acquire(naps);
	ck_assert_int_eq(submit(busy, &cmd), 0);
	wait_for_more_than(naps, before); /* only beside a launch that is on the board */
	fill.fill.dst = (struct gantry_range){ mem_of(out[1], sizeof(out[1])), 0, 64 };
	fill.fill.pattern_bytes = 1;
	gantry_store_release(sleeps, 1u);
	for (unsigned int i = 0; i < NFILLS; i++)
		ck_assert_int_eq(submit(stream, &fill), 0);
	wait_for(done, NFILLS);
	gantry_store_release(sleeps, 0u);
	ck_assert_int_eq(submit(stream, &fill), 0); /* which wakes it */
	wait_for(done, 1);
	gantry_store_release(&cancel, 1u);
	wait_for(done, 1);
	gantry_store_release(&cancel, 0u);
	device_close();
}
END_TEST

START_TEST(test_launch_that_takes_longer_than_any_may_ends_and_nobody_else_is_told_of_a_fault)
{
	const char *of_vadd = "r:i32*,r:i32*,w:i32*,u64";
	struct gantry_stream *endless, *other;
	struct gantry_kernel *vadd;
	struct gantry_done done;
	struct gantry_cmd cmd;

	put_three();
	device_open("hang_n=100", "longest=300ms");
	fill_inputs();
	vadd = kernel_of("vadd", "vadd", of_vadd);
	endless = stream_of(0);
	other = stream_of(0);
	cmd = vadd_of(vadd, out[1], N);
	ck_assert_int_eq(submit(other, &cmd), 0);
	wait_for(&done, 1);
	ck_assert_int_eq(done.status, GANTRY_OK);
	cmd = vadd_of(vadd, out[0], 100);
	ck_assert_int_eq(submit(endless, &cmd), 0);
	wait_for(&done, 1);
	check_endless(&done);
	device_close();
}
END_TEST

START_TEST(test_cancelled_launch_changes_nothing)
{
	struct gantry_cmd cmd;

	put_three();
	device_open("", NULL);
	fill_inputs();
	cmd = vadd_of(kernel_of("vadd", "vadd", "r:i32*,r:i32*,w:i32*,u64"), out[0], N);
	gantry_store_release(&cancel, 1);
	ck_assert_int_eq(run(stream_of(0), &cmd).status, GANTRY_E_CANCELLED);
	ck_assert_int_eq(out[0][1], 0);
	device_close();
}
END_TEST

/* It was wanted when it went to the board, and is not any more when it ends there. */
START_TEST(test_launch_that_is_cancelled_on_the_board_ends_there_and_changes_nothing)
{
	struct gantry_kernel *scale;
	struct gantry_stream *stream;
	struct gantry_mem *m[2];
	struct gantry_cmd cmd;
	struct gantry_done done;

	put("scale", SCALE);
	device_open("", NULL);
	stream = stream_of(0);
	fill_inputs();
	scale = kernel_of("scale", "scale", SCALE_SIG);
	m[0] = shared(0, 1);
	m[1] = shared(1, 1);
	/* Its image is there: then the board's thread asks once before it begins. */
	run_well(stream, known_scale(scale, m[0], m[1], 1, 2, 3));
	check_copies(2 * BYTES, 0, BYTES);
	memset(kept[1], 0, BYTES);
	cmd = known_scale(scale, m[0], m[1], 4, 5, 6);
	/* A seat's holder asks of all that its page says. */
	gantry_store_release(&cancel, is_seated() ? 1u : BEHIND_THE_NEXT);
	done = run(stream, &cmd);
	gantry_store_release(&cancel, 0u);
	ck_assert_int_eq(done.status, GANTRY_E_CANCELLED);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_CMD);
	check_copies(is_seated() ? 0 : 2 * BYTES, 0, 0); /* it was there, and nothing came back */
	ck_assert_int_eq(kept[1][1], 0);
	/* Nothing that it wrote is found there; its unit and its stream go on. */
	run_well(stream, known_scale(scale, m[0], m[1], 4, 5, 7));
	check_copies(2 * BYTES, 0, BYTES);
	check_scale(kept[1], 3);
	device_close();
}
END_TEST

START_TEST(test_close_does_not_wait_for_what_is_queued)
{
	struct gantry_cmd cmd;

	put_three();
	device_open("load_ms=20", NULL);
	fill_inputs();
	cmd = stencil_of(kernel_of("stencil", "stencil", "r:i32*,w:i32*,u32,u32"), out[0]);
	for (int s = 0; s < 8; s++) {
		struct gantry_stream *stream = stream_of(0);

		while (submit(stream, &cmd) == 0)
			;
	}
	device_close();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fpga backend");
	TCase *tc = gantry_unit_case(suite, "backend");

	if (!is_seated()) {
		tcase_add_test(tc, test_open_says_what_is_wrong);
		tcase_add_test(tc, test_one_process_has_the_board);
		tcase_add_test(tc, test_grid_is_refused);
	}
	tcase_add_loop_test(tc, test_kernel_works_on_memory_behind_a_descriptor, 0, 3);
	tcase_add_test(tc, test_copies_and_fills_keep_their_order_with_launches);
	tcase_add_loop_test(tc, test_streams_of_several_kernels_share_the_board, 0,
			    (int)GANTRY_ARRAY_SIZE(mixes));
	tcase_add_test(tc, test_refused_arguments_hurt_their_command_only);
	tcase_add_test(tc, test_kernel_get_knows_names_and_arguments);
	tcase_add_test(tc,
		       test_launch_that_no_board_has_room_for_says_so_and_others_wait_for_theirs);
	tcase_add_test(tc, test_contents_that_are_the_same_are_not_copied_again);
	tcase_add_test(tc, test_nothing_is_found_on_a_board_that_lost_its_memory);
	tcase_add_test(tc, test_what_is_kept_makes_room_for_launches_that_need_it);
	tcase_add_test(tc, test_launch_that_fails_or_is_not_wanted_leaves_nothing_to_be_found);
	tcase_add_test(tc, test_writing_a_part_makes_other_parts_stale);
	tcase_add_test(tc, test_board_that_is_to_keep_nothing_keeps_nothing);
	tcase_add_test(
		tc, test_commands_behind_each_other_do_not_wait_for_the_launch_of_another_stream);
	tcase_add_test(tc, test_failed_loading_is_tried_again);
	tcase_add_test(tc, test_image_that_does_not_load_is_reported_and_others_go_on);
	tcase_add_loop_test(tc, test_manifest_that_lies_about_its_kernels_is_found_out, 0, 3);
	tcase_add_test(tc, test_failed_copy_to_the_board_fails_its_launch_only);
	tcase_add_test(tc, test_lost_board_ends_everything_and_takes_nothing_more);
	tcase_add_test(tc, test_cancelled_launch_that_does_not_end_costs_the_board);
	tcase_add_test(
		tc,
		test_launch_that_takes_longer_than_any_may_ends_and_nobody_else_is_told_of_a_fault);
	tcase_add_test(tc, test_cancelled_launch_changes_nothing);
	tcase_add_test(tc,
		       test_launch_that_is_cancelled_on_the_board_ends_there_and_changes_nothing);
	tcase_add_test(tc, test_close_does_not_wait_for_what_is_queued);
	return gantry_unit_run(suite);
}
