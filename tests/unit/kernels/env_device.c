/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of the installed kernels on any device, through its backend: a run copies the spans' bytes to
 * the device, launches the kernel by its name, and copies back what changed.
 *
 * GANTRY_TEST_DEVICE: "BACKEND [KEY=VALUE ...]", a backend and its options; "cuda" if unset. Where
 * the machine has no such device all tests are skipped.
 * GANTRY_TEST_KERNELS: the folder of the manifest and images; where the build or a bundle has them if
 * unset.
 * GANTRY_TEST_MANIFEST: the name of the manifest there; "core" if unset.
 */
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "devices/manifest.h"
#include "devices/registry.h"
#include "tests/unit/kernels/env.h"

#define OPTS_MAX   16u
#define SPANS_MAX  16u
#define ARENA	   (16u << 20)
#define REGION	   256u /* starts keep their place in one of these */
#define RUN_NS	   (60 * GANTRY_NS_PER_S)
#define TEXT_BYTES 1024u

/* Bodies that stand for kernels: what a test passes to RUN() is looked up by its address. */
#define KERNEL(name)                                                                     \
	gantry_body gantry_kernel_##name;                                                \
	int gantry_kernel_##name(struct gantry_env *env, const struct gantry_call *call) \
	{                                                                                \
		(void)env;                                                               \
		(void)call;                                                              \
		return -(1000 + __COUNTER__); /* different, so that none are merged */   \
	}
#include "kernels.def"
#undef KERNEL

static const struct {
	gantry_body *body;
	const char *name;
} kernels[] = {
#define KERNEL(name) { gantry_kernel_##name, #name },
#include "kernels.def"
#undef KERNEL
};

/* Of this process, opened by the first run; each test has a process. */
static struct {
	bool is_open;
	struct gantry_device device;
	struct gantry_device_host host;
	struct gantry_manifest *manifest;
	struct gantry_image *image;
	struct gantry_stream *stream;
	struct gantry_mem *arena, *staging;
	char *base; /* of the staging memory */
	uint64_t tag;
	int64_t asks_left; /* as test_env's; atomic: the backend's threads ask */
} dut;

/* Bytes of the host that spans name, without gaps: where they begin there, and in the arena. */
struct region {
	uintptr_t begin, end;
	uint64_t off;
};

static void wake(void *cookie)
{
	(void)cookie; /* we poll */
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	(void)tag;
	if (__atomic_load_n(&dut.asks_left, __ATOMIC_RELAXED) < 0)
		return 0;
	if (__atomic_fetch_sub(&dut.asks_left, 1, __ATOMIC_RELAXED) > 0)
		return 0;
	__atomic_store_n(&dut.asks_left, 0, __ATOMIC_RELAXED);
	return 1;
}

static void device_open(void)
{
	static char text[TEXT_BYTES];
	static const char *opts[OPTS_MAX];
	struct gantry_device_conf conf = { .name = "dut", .opts = opts };
	const char *wanted = getenv("GANTRY_TEST_DEVICE");
	struct gantry_err err = GANTRY_ERR_NONE;
	char *save = NULL, *word;
	int r;

	ck_assert_int_lt(snprintf(text, sizeof(text), "%s", wanted ? wanted : "cuda"),
			 (int)sizeof(text));
	conf.backend = strtok_r(text, " ", &save);
	ck_assert_ptr_nonnull(conf.backend);
	while (conf.nopts < OPTS_MAX && (word = strtok_r(NULL, " ", &save)))
		opts[conf.nopts++] = word;
	dut.host = (struct gantry_device_host){ wake, cancelled, NULL };
	dut.asks_left = -1;
	r = gantry_device_open(&conf, &dut.host, &dut.device, &err);
	if (r == -ENODEV)
		gantry_unit_skip("neither this build nor this machine has such a device");
	ck_assert_msg(r == 0, "%s", err.text);
	if (dut.device.backend->thread_enter)
		ck_assert_int_eq(dut.device.backend->thread_enter(dut.device.dev, &err), 0);
}

/* Whether the manifest is in @folder; its path then. */
static bool manifest_in(const char *folder, char path[static PATH_MAX])
{
	const char *name = getenv("GANTRY_TEST_MANIFEST");

	return snprintf(path, PATH_MAX, "%s/%s.manifest", folder, name ? name : "core") <
		       PATH_MAX &&
	       access(path, R_OK) == 0;
}

static void manifest_find(char path[static PATH_MAX])
{
	/* From the program: of the build; of a bundle, whose programs lie in tests/bin. */
	static const char *const places[] = { "../../../devices/kernels",
					      "../../lib/gantry/kernels",
					      "../../lib/x86_64-linux-gnu/gantry/kernels" };
	const char *named = getenv("GANTRY_TEST_KERNELS");
	char self[PATH_MAX / 2], folder[PATH_MAX / 2 + 64];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (named && manifest_in(named, path))
		return;
	ck_assert_msg(!named && len > 0, "no core.manifest in %s", named ? named : "?");
	self[len] = '\0';
	*strrchr(self, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		(void)snprintf(folder, sizeof(folder), "%s/%s", self, places[i]);
		if (manifest_in(folder, path))
			return;
	}
	ck_abort_msg("no core.manifest near %s; name its folder in GANTRY_TEST_KERNELS", self);
}

static void image_open(void)
{
	const struct gantry_backend *backend = dut.device.backend;
	struct gantry_err err = GANTRY_ERR_NONE;
	char path[PATH_MAX], text[16384];
	const char *image;
	size_t len;
	FILE *file;

	manifest_find(path);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	len = fread(text, 1, sizeof(text), file);
	ck_assert(feof(file));
	fclose(file);
	ck_assert_msg(gantry_manifest_parse(text, len, &dut.manifest, &err) == 0, "%s", err.text);
	image = dut.manifest->images[dut.device.info.kind];
	if (!image)
		gantry_unit_skip("this build has no image of the kernels for such a device");
	(void)snprintf(strrchr(path, '/') + 1, PATH_MAX / 2, "%s", image);
	ck_assert_msg(backend->image_load(dut.device.dev, path, NULL, 0, &dut.image, &err) == 0,
		      "%s", err.text);
}

/* Memory of the device alone, or what comes nearest. */
static int arena_open(struct gantry_err *err)
{
	const struct gantry_backend *backend = dut.device.backend;
	int fd, r;

	if (backend->mem_alloc)
		return backend->mem_alloc(dut.device.dev, ARENA, &dut.arena, err);
	ck_assert_int_eq(gantry_memfd_create("arena", ARENA, 0, &fd), 0);
	r = backend->mem_import(dut.device.dev, fd, 0, ARENA, &dut.arena, err);
	gantry_fd_close(fd);
	return r;
}

static void memory_open(void)
{
	const struct gantry_stream_attr attr = { 0 };
	const struct gantry_backend *backend = dut.device.backend;
	struct gantry_err err = GANTRY_ERR_NONE;
	int fd;

	ck_assert_int_eq(gantry_memfd_create("staging", ARENA, 0, &fd), 0);
	dut.base = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(dut.base != MAP_FAILED);
	gantry_fd_close(fd);
	ck_assert_msg(backend->stream_create(dut.device.dev, &attr, &dut.stream, &err) == 0, "%s",
		      err.text);
	ck_assert_msg(backend->mem_host(dut.device.dev, dut.base, ARENA, &dut.staging, &err) == 0,
		      "%s", err.text);
	ck_assert_msg(arena_open(&err) == 0, "%s", err.text);
}

static struct gantry_done command_run(struct gantry_cmd *cmd)
{
	const struct gantry_backend *backend = dut.device.backend;
	uint64_t deadline = gantry_deadline_ns((int64_t)RUN_NS);
	struct gantry_done done;

	cmd->tag = ++dut.tag;
	ck_assert_int_eq(backend->submit(dut.stream, cmd), 0);
	if (backend->flush)
		backend->flush(dut.stream);
	while (backend->poll(dut.device.dev, &done, 1) == 0) {
		ck_assert_msg(!gantry_deadline_passed(deadline), "a command does not end");
		(void)sched_yield();
	}
	ck_assert_uint_eq(done.tag, cmd->tag);
	return done;
}

static void region_move(const struct region *region, bool to_device)
{
	struct gantry_range there = { dut.arena, region->off, region->end - region->begin };
	struct gantry_range here = { dut.staging, region->off, there.len };
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_COPY };

	cmd.copy.dst = to_device ? there : here;
	cmd.copy.src = to_device ? here : there;
	if (to_device)
		memcpy(dut.base + region->off, (void *)region->begin, there.len);
	ck_assert_int_eq(command_run(&cmd).status, GANTRY_OK);
	/* What did not change may be constant. */
	if (!to_device && memcmp((void *)region->begin, dut.base + region->off, there.len) != 0)
		memcpy((void *)region->begin, dut.base + region->off, there.len);
}

static int by_begin(const void *a, const void *b)
{
	const struct region *p = a, *q = b;

	return p->begin < q->begin ? -1 : p->begin > q->begin;
}

/* The regions of all spans of @call: spans that meet share one, so they meet on the device too. */
static unsigned int regions_of(const struct gantry_signature *sig, const struct gantry_call *call,
			       struct region regions[static SPANS_MAX])
{
	unsigned int nspans = 0, nregions = 0;
	uint64_t off = 0;

	for (uint32_t i = 0; i < call->nargs; i++) {
		const struct gantry_span *span = &call->args[i].span;

		if (!sig->args[i].mode || !span->ptr || span->len_bytes == 0)
			continue;
		ck_assert_uint_lt(nspans, SPANS_MAX);
		regions[nspans++] = (struct region){ (uintptr_t)span->ptr,
						     (uintptr_t)span->ptr + span->len_bytes, 0 };
	}
	qsort(regions, nspans, sizeof(*regions), by_begin);
	for (unsigned int i = 0; i < nspans; i++) {
		if (nregions > 0 && regions[i].begin < regions[nregions - 1].end) {
			if (regions[i].end > regions[nregions - 1].end)
				regions[nregions - 1].end = regions[i].end;
			continue;
		}
		regions[nregions++] = regions[i];
	}
	for (unsigned int i = 0; i < nregions; i++) {
		regions[i].off = off + regions[i].begin % REGION;
		off = (regions[i].off + (regions[i].end - regions[i].begin) + REGION) / REGION *
		      REGION;
		ck_assert_uint_le(off, ARENA);
	}
	return nregions;
}

static struct gantry_range range_of(const struct gantry_span *span, const struct region *regions,
				    unsigned int nregions)
{
	uintptr_t begin = (uintptr_t)span->ptr;

	for (unsigned int i = 0; span->ptr && i < nregions; i++)
		if (begin >= regions[i].begin && begin < regions[i].end && span->len_bytes > 0)
			return (struct gantry_range){ dut.arena,
						      regions[i].off + (begin - regions[i].begin),
						      span->len_bytes };
	return (struct gantry_range){ NULL, 0, 0 };
}

static const struct gantry_kernel_def *def_of(gantry_body *kernel)
{
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		if (kernels[i].body == kernel)
			return gantry_manifest_find(dut.manifest, kernels[i].name);
	return NULL;
}

static int result_of(const struct gantry_done *done)
{
	if (done->status == GANTRY_OK)
		return 0;
	if (done->status == GANTRY_E_CANCELLED)
		return -ECANCELED;
	ck_assert_int_eq(done->status, GANTRY_E_KERNEL);
	ck_assert_uint_eq(done->blast, GANTRY_BLAST_CMD);
	return ENV_REFUSED;
}

static int device_run(struct test_env *te, gantry_body *kernel, const struct gantry_call *call)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH };
	const struct gantry_kernel_def *def;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct region regions[SPANS_MAX];
	unsigned int nregions;
	struct gantry_done done;

	if (!dut.is_open) {
		device_open();
		image_open();
		memory_open();
		dut.is_open = true;
	}
	def = def_of(kernel);
	ck_assert_ptr_nonnull(def);
	ck_assert_uint_eq(call->nargs, def->sig.nargs);
	ck_assert_msg(dut.device.backend->kernel_get(dut.image, def->name, &def->sig,
						     &cmd.launch.kernel, &err) == 0,
		      "%s", err.text);
	nregions = regions_of(&def->sig, call, regions);
	cmd.launch.nargs = call->nargs;
	for (uint32_t i = 0; i < call->nargs; i++)
		if (def->sig.args[i].mode)
			cmd.launch.args[i].range = range_of(&call->args[i].span, regions, nregions);
		else
			cmd.launch.args[i].value = call->args[i];
	for (unsigned int i = 0; i < nregions; i++)
		region_move(&regions[i], true);
	__atomic_store_n(&dut.asks_left, te->asks_left, __ATOMIC_RELAXED);
	done = command_run(&cmd);
	__atomic_store_n(&dut.asks_left, -1, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < nregions; i++)
		region_move(&regions[i], false);
	return result_of(&done);
}

static const struct env_device device = { .run = device_run };

const struct env_device *const env_device = &device;
