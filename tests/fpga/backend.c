/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the fpga backend have in common: a store of bitstreams, the device over the test board, and work for it. */
#include "tests/fpga/backend.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/sha256.h"
#include "base/str.h"
#include "devices/registry.h"

#define MAX_PUT 8u

char folder[64];
static char images_opt[96];
static const char *put_names[MAX_PUT];
static unsigned int nput;
const char *put_memory = "kept";
struct gantry_device device;
uint32_t nwakes;
uint32_t cancel;
uint64_t cancel_tag;
uint32_t cancel_gate;
uint64_t last_tag;

static void wake(void *cookie)
{
	(void)cookie;
	gantry_fetch_add(&nwakes, 1);
	(void)gantry_futex_wake(&nwakes, 1);
}

static int cancelled(void *cookie, uint64_t tag)
{
	static uint32_t nasked; /* about cancel_tag; atomic */
	uint32_t next = BEHIND_THE_NEXT;

	(void)cookie;
	if (tag == gantry_load_relaxed(&cancel_tag)) {
		while (!is_seated() && !gantry_load_acquire(&cancel_gate))
			(void)usleep(1000);
		return gantry_fetch_add(&nasked, 1) > 0;
	}
	if (gantry_cas(&cancel, &next, 1u))
		return 0;
	return next != 0;
}

static const struct gantry_device_host host = { .wake = wake, .cancelled = cancelled };

/* ---- the directory of bitstreams ---- */

void put_file(const char *name, const char *suffix, const void *bytes, size_t len)
{
	char path[192];

	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(gantry_write_all(fd, bytes, len), 0);
	gantry_fd_close(fd);
}

void put(const char *name, const char *kernels)
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

void drop_all(void)
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

void put_three(void)
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

int try_open(const char *board, const char *more, struct gantry_device *ret_device,
	     struct gantry_err *err)
{
	return try_open_with(&host, board, more, ret_device, err);
}

struct backend_held held;

bool is_seated(void)
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

int health_of_board(struct gantry_device_health *ret_health, struct gantry_err *err)
{
	const struct gantry_device *d = is_seated() ? &held.device : &device;

	return d->backend->health(d->dev, ret_health, err);
}

void device_open(const char *board, const char *more)
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

void device_close(void)
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

struct gantry_stream *stream_of(int32_t priority)
{
	const struct gantry_stream_attr attr = { .priority = priority };
	struct gantry_stream *stream;

	ck_assert_int_eq(device.backend->stream_create(device.dev, &attr, &stream, NULL), 0);
	return stream;
}

static struct gantry_signature sigs[8];
static unsigned int nsigs;

struct gantry_kernel *kernel_of(const char *bitstream, const char *name, const char *sig)
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

struct gantry_mem *mem_of(void *base, uint64_t len)
{
	struct gantry_mem *mem;

	ck_assert_int_eq(device.backend->mem_host(device.dev, base, len, &mem, NULL), 0);
	return mem;
}

struct gantry_cmd launch_of(struct gantry_kernel *kernel, uint32_t nargs)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH };

	cmd.launch.kernel = kernel;
	cmd.launch.nargs = nargs;
	return cmd;
}

void arg(struct gantry_cmd *cmd, uint32_t i, struct gantry_mem *mem, uint64_t off, uint64_t len)
{
	cmd->launch.args[i].range = (struct gantry_range){ .mem = mem, .off = off, .len = len };
}

int submit(struct gantry_stream *stream, struct gantry_cmd *cmd)
{
	cmd->tag = ++last_tag;
	return device.backend->submit(stream, cmd);
}

void wait_for(struct gantry_done *ret_done, unsigned int n)
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

struct gantry_done run(struct gantry_stream *stream, struct gantry_cmd *cmd)
{
	struct gantry_done done;

	ck_assert_int_eq(submit(stream, cmd), 0);
	wait_for(&done, 1);
	ck_assert_uint_eq(done.tag, cmd->tag);
	return done;
}

/* ---- work ---- */

int32_t in_a[N], in_b[N], out[8][N];

void fill_inputs(void)
{
	for (uint32_t i = 0; i < N; i++) {
		in_a[i] = (int32_t)(i * 2654435761u);
		in_b[i] = (int32_t)(i * 40503u + 1);
	}
}

struct gantry_cmd vadd_of(struct gantry_kernel *kernel, int32_t *to, uint64_t n)
{
	struct gantry_cmd cmd = launch_of(kernel, 4);

	arg(&cmd, 0, mem_of(in_a, sizeof(in_a)), 0, sizeof(in_a));
	arg(&cmd, 1, mem_of(in_b, sizeof(in_b)), 0, sizeof(in_b));
	arg(&cmd, 2, mem_of(to, 4ull * N), 0, 4ull * N);
	cmd.launch.args[3].value.u64 = n;
	return cmd;
}

struct gantry_cmd scale_of(struct gantry_kernel *kernel, int32_t *to, int32_t factor)
{
	struct gantry_cmd cmd = launch_of(kernel, 4);

	arg(&cmd, 0, mem_of(in_a, sizeof(in_a)), 0, sizeof(in_a));
	arg(&cmd, 1, mem_of(to, 4ull * N), 0, 4ull * N);
	cmd.launch.args[2].value.i32 = factor;
	cmd.launch.args[3].value.u64 = N;
	return cmd;
}

struct gantry_cmd stencil_of(struct gantry_kernel *kernel, int32_t *to)
{
	struct gantry_cmd cmd = launch_of(kernel, 4);

	arg(&cmd, 0, mem_of(in_a, sizeof(in_a)), 0, sizeof(in_a));
	arg(&cmd, 1, mem_of(to, 4ull * N), 0, 4ull * N);
	cmd.launch.args[2].value.u32 = 32;
	cmd.launch.args[3].value.u32 = N / 32;
	return cmd;
}

void check_vadd(const int32_t *got, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (got[i] != (int32_t)((uint32_t)in_a[i] + (uint32_t)in_b[i]))
			ck_abort_msg("vadd: element %u is %d", i, got[i]);
}

void check_scale(const int32_t *got, int32_t factor)
{
	for (uint32_t i = 0; i < N; i++)
		if (got[i] != (int32_t)((uint32_t)in_a[i] * (uint32_t)factor))
			ck_abort_msg("scale: element %u is %d", i, got[i]);
}

static uint32_t cell(int x, int y)
{
	return x < 0 || y < 0 || x >= 32 || y >= (int)(N / 32) ? 0 : (uint32_t)in_a[32 * y + x];
}

void check_stencil(const int32_t *got)
{
	for (int i = 0; i < (int)N; i++) {
		int x = i % 32, y = i / 32;
		uint32_t expected = 4 * cell(x, y) - cell(x - 1, y) - cell(x + 1, y) -
				    cell(x, y - 1) - cell(x, y + 1);

		if ((uint32_t)got[i] != expected)
			ck_abort_msg("stencil: element %d is %d", i, got[i]);
	}
}

/* ---- what stays on the board ---- */

void check_copies(uint64_t copied_in, uint64_t not_copied, uint64_t copied_out)
{
	static struct gantry_device_health before;
	struct gantry_device_health now;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(health_of_board(&now, &err), 0);
	ck_assert(now.known & GANTRY_HEALTH_COPIES);
	ck_assert_uint_eq(now.copied_in - before.copied_in, copied_in);
	ck_assert_uint_eq(now.kept - before.kept, not_copied);
	ck_assert_uint_eq(now.copied_out - before.copied_out, copied_out);
	before = now;
}

int32_t *kept[8];

struct gantry_mem *shared(uint32_t i, uint64_t n)
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

struct gantry_cmd known_scale(struct gantry_kernel *kernel, struct gantry_mem *from,
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

void run_well(struct gantry_stream *stream, struct gantry_cmd cmd)
{
	ck_assert_int_eq(run(stream, &cmd).status, GANTRY_OK);
}
