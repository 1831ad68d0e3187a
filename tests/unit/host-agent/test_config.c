/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fd.h"
#include "host-agent/agent/config.h"
#include "tests/unit/runner.h"

static int parse(const char *text, struct gantry_config **ret_config, struct gantry_err *err)
{
	struct gantry_config *config = gantry_config_new();
	int r = gantry_config_parse(config, "t.conf", text, strlen(text), err);

	if (r == 0)
		r = gantry_config_check(config, err);
	if (r == 0)
		*ret_config = config;
	else
		gantry_config_free(config);
	return r;
}

static const char whole[] =
	"[agent]\n"
	"admin = /run/a.sock\nadmin_mode = 0600\nmetrics = 127.0.0.1:9477\n"
	"warm_workers = 4\nwarm_packed = 3\nmodule_dirs = /a:/b\nconfine = no\nspin = 20us\n"
	"cgroup = /sys/fs/cgroup/g\nworker_user = 64321:64322\n"
	"segment_range = 0x100000000000-0x110000000000\n"
	"mps = /usr/bin/nvidia-cuda-mps-control\nmps_clients = 60\nmps_multiuser = no\n"
	"[device cpu0]\nbackend = cpu\ncores = 2\nmem = 1G\nlanes = 3\n"
	"filters = record\nrecord.file = /tmp/x\n"
	"# a comment\n"
	"[tenant red]\n"
	"mem = 1G\nvirtual = 8G\nheap = 32M\nhost_mem = 256M\nweight = 300\n"
	"priority = -3\nsessions = 5\nqueues = 7\ninflight = 99\ndeadline = 2s\n"
	"isolation = packed\ntrust_group = lab\ndevices = cpu0\ndoor = /d/door\n"
	"door_mode = 0666\ndoor_owner = root:root\ndoor_uids = 0, 1000\non_full = queue\n"
	"worker_cpu = 1.25/200\nworker_mem = 0\nworker_pids = 77\n"
	"compute_percent = 40\nspin = 300us\n"
	"ivshmem = yes\nivshmem_size = 16M\nivshmem_vectors = 4\nivshmem_machines = 2\n"
	"ivshmem_mode = 0666\nivshmem_owner = root:root\n"
	"group = g\nmin_devices = 1\nmax_devices = 3\nreplicas = no\nrecipes = always\n"
	"communicators = no\n"
	"[group g]\ndevices = cpu0\npolicy = mine\noptions = fast=1\n"
	"[policy mine]\npath = /p/mine.so\ntimeout = 5ms\nfallback = spread\n";

START_TEST(test_config_every_key_is_read)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_config *c = NULL;
	const struct gantry_tenant_conf *t;

	ck_assert_msg(parse(whole, &c, &err) == 0, "%s", err.text);
	ck_assert_str_eq(c->agent.admin, "/run/a.sock");
	ck_assert_uint_eq(c->agent.admin_mode, 0600);
	ck_assert_str_eq(c->agent.metrics, "127.0.0.1:9477");
	ck_assert_uint_eq(c->agent.warm_workers, 4);
	ck_assert_uint_eq(c->agent.warm_packed, 3);
	ck_assert_uint_eq(c->agent.ndirs, 2);
	ck_assert(!c->agent.confine);
	ck_assert_uint_eq(c->agent.spin_ns, 20000);
	ck_assert_str_eq(c->agent.cgroup, "/sys/fs/cgroup/g");
	ck_assert_uint_eq(c->agent.worker_uid, 64321);
	ck_assert_uint_eq(c->agent.worker_gid, 64322);
	ck_assert_uint_eq(c->agent.segments_base, 0x100000000000);
	ck_assert_uint_eq(c->agent.segments_end, 0x110000000000);
	ck_assert_str_eq(c->agent.mps, "/usr/bin/nvidia-cuda-mps-control");
	ck_assert_uint_eq(c->agent.mps_clients, 60);
	ck_assert_uint_eq(c->agent.mps_multiuser, GANTRY_MPS_MULTIUSER_NO);
	ck_assert_uint_eq(c->ndevices, 1);
	ck_assert_uint_eq(c->devices[0].lanes, 3);
	ck_assert_uint_eq(c->devices[0].nopts, 3);
	ck_assert_str_eq(c->devices[0].opts[0], "cores=2");
	t = gantry_config_tenant(c, "red");
	ck_assert_ptr_nonnull(t);
	ck_assert_uint_eq(t->mem_bytes, 1ull << 30);
	ck_assert_int_eq(t->priority, -3);
	ck_assert_uint_eq(t->deadline_ns, 2000000000);
	ck_assert_uint_eq(t->isolation, GANTRY_PACKED);
	ck_assert_uint_eq(t->compute_percent, 40);
	ck_assert_str_eq(t->group, "g");
	ck_assert_uint_eq(t->min_devices, 1);
	ck_assert_uint_eq(t->max_devices, 3);
	ck_assert_uint_eq(t->replicas, 0);
	ck_assert_uint_eq(t->recipes, GANTRY_RECIPES_ALWAYS);
	ck_assert(t->set & GANTRY_TENANT_COMMUNICATORS);
	ck_assert_uint_eq(t->communicators, 0);
	ck_assert_str_eq(gantry_config_group(c, "g")->policy, "mine");
	ck_assert_str_eq(gantry_config_group(c, "g")->options, "fast=1");
	ck_assert_str_eq(gantry_config_policy(c, "mine")->path, "/p/mine.so");
	ck_assert_uint_eq(gantry_config_policy(c, "mine")->timeout_ns, 5000000);
	ck_assert_str_eq(gantry_config_policy(c, "mine")->fallback, "spread");
	ck_assert_uint_eq(t->spin_ns, 300000);
	ck_assert_uint_eq(t->ivshmem, 1);
	ck_assert_uint_eq(t->ivshmem_bytes, 16 << 20);
	ck_assert_uint_eq(t->ivshmem_vectors, 4);
	ck_assert_uint_eq(t->ivshmem_machines, 2);
	ck_assert_uint_eq(t->ivshmem_mode, 0666);
	ck_assert_str_eq(t->ivshmem_owner, "root:root");
	ck_assert_uint_eq(t->nuids, 2);
	ck_assert_uint_eq(t->door_uids[1], 1000);
	ck_assert_uint_eq(t->on_full, GANTRY_ON_FULL_QUEUE);
	ck_assert_uint_eq(t->worker_cpu.milli, 1250);
	ck_assert_uint_eq(t->worker_cpu.weight, 200);
	ck_assert_uint_eq(t->worker_mem_bytes, 0);
	ck_assert_uint_eq(t->worker_pids, 77);
	ck_assert_str_eq(t->source, "t.conf");
	gantry_config_free(c);
}
END_TEST

START_TEST(test_config_section_without_keys_exists)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_config *c = NULL;

	ck_assert_msg(parse("[tenant red]\n", &c, &err) == 0, "%s", err.text);
	ck_assert_ptr_nonnull(gantry_config_tenant(c, "red"));
	gantry_config_free(c);
}
END_TEST

START_TEST(test_config_indented_keys_are_keys)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_config *c = NULL;

	ck_assert_msg(parse("[tenant red]\n  mem = 64M\n\tweight = 2\n", &c, &err) == 0, "%s",
		      err.text);
	ck_assert_uint_eq(c->tenants[0].mem_bytes, 64u << 20);
	ck_assert_uint_eq(c->tenants[0].weight, 2);
	gantry_config_free(c);
}
END_TEST

START_TEST(test_config_device_says_its_pool_its_processors_and_its_backend_s_options)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_config *c = NULL;

	ck_assert_msg(parse("[device a]\nbackend = cpu\nslab_pool = 1G\naffinity = 0-3,8\n"
			    "[device b]\nbackend = cpu\nturn_pause = 250us\n"
			    "[device c]\nbackend = sim\nwork = cpu\n"
			    "[device d]\nbackend = hip\ngraphs = no\nprocesses = beside\n",
			    &c, &err) == 0,
		      "%s", err.text);
	ck_assert_uint_eq(c->devices[0].slab_pool_bytes, 1u << 30);
	ck_assert_str_eq(c->devices[0].affinity, "0-3,8");
	ck_assert_uint_eq(c->devices[1].slab_pool_bytes, GANTRY_CONFIG_SLAB_POOL);
	ck_assert_str_eq(c->devices[1].affinity, "");
	ck_assert_uint_eq(c->devices[0].turn_pause_ns, 100000);
	ck_assert_uint_eq(c->devices[1].turn_pause_ns, 250000);
	ck_assert_str_eq(c->devices[2].opts[0], "work=cpu");
	ck_assert(gantry_device_section_says(&c->devices[3], "graphs=no"));
	ck_assert(gantry_device_section_says(&c->devices[3], "processes=beside"));
	ck_assert(!gantry_device_section_says(&c->devices[3], "processes=turns"));
	ck_assert(!gantry_device_section_says(&c->devices[2], "graphs=no"));
	gantry_config_free(c);
}
END_TEST

#define CPU0 "[device cpu0]\nbackend = cpu\n"

/* Each bad text, where its error is, and a word of its sentence. */
static const struct {
	const char *text;
	const char *where;
	const char *word;
} bad[] = {
	{ "[agent]\nfoo = 1\n", "t.conf:2", "no key \"foo\"" },
	{ "[agent]\nwarm_workers = many\n", "t.conf:2", "warm_workers" },
	{ "[agent]\nwarm_workers = 1000\n", "t.conf:2", "warm_workers" },
	{ "[agent]\nwarm_packed = 17\n", "t.conf:2", "warm_packed" },
	{ "[agent]\nwarm_packed = few\n", "t.conf:2", "warm_packed" },
	{ "[agent]\nmetrics = nowhere\n", "t.conf:2", "metrics is" },
	{ "[agent]\nmetrics = 127.0.0.1:99999\n", "t.conf:2", "metrics is" },
	{ "[agent]\nmodule_dirs = lib\n", "t.conf:2", "no full path" },
	{ "[agent]\nconfine = perhaps\n", "t.conf:2", "\"yes\" or \"no\"" },
	{ "[agent]\nspin = fast\n", "t.conf:2", "spin" },
	{ "[agent]\nadmin_mode = 9\n", "t.conf:2", "octal" },
	{ "[agent]\ncgroup = here\n", "t.conf:2", "cgroup is" },
	{ "[agent]\nworker_user = root\n", "t.conf:2", "must not be root" },
	{ "[agent]\nworker_user = nosuchuser\n", "t.conf:2", "no user" },
	{ "[agent]\nworker_user = 5:nosuchgroup\n", "t.conf:2", "no group" },
	{ "[agent]\nsegment_range = 0x1-0x2\n", "t.conf:2", "2 MiB" },
	{ "[agent]\nsegment_range = 0x7f0000000000-0x7e0000000000\n", "t.conf:2", "in this order" },
	{ "[agent]\nsegment_range = everywhere\n", "t.conf:2", "hexadecimal" },
	{ "[tenant a]\nworker_cpu = 1.2345\n", "t.conf:2", "worker_cpu is" },
	{ "[tenant a]\nworker_cpu = 1/0\n", "t.conf:2", "worker_cpu is" },
	{ "[tenant a]\nworker_cpu = all\n", "t.conf:2", "worker_cpu is" },
	{ "[tenant a]\nworker_mem = much\n", "t.conf:2", "worker_mem" },
	{ "[tenant a]\nworker_pids = -1\n", "t.conf:2", "worker_pids" },
	{ "[devices]\n", "t.conf:1", "none of" },
	{ "[device CPU0]\n", "t.conf:1", "no name" },
	{ "[device ]\n", "t.conf:1", "no name" },
	{ "[tenant red\n", "t.conf:1", "\"]\"" },
	{ "mem = 1G\n", "t.conf:1", "before the first" },
	{ "[device a]\nbackend = cpu\nspeed = 3\n", "t.conf:3", "no key \"speed\"" },
	{ "[device a]\nbackend = C P U\n", "t.conf:2", "backend" },
	{ "[device a]\nlanes = 65\n", "t.conf:2", "lanes" },
	{ "[device a]\nslab_pool = much\n", "t.conf:2", "slab_pool" },
	{ "[device a]\nturn_pause = long\n", "t.conf:2", "turn_pause" },
	{ "[device a]\nturn_pause = 1001us\n", "t.conf:2", "turn_pause is 0 to 1000 us" },
	{ "[device a]\naffinity = near\n", "t.conf:2", "affinity is" },
	{ "[device a]\naffinity = 1 2\n", "t.conf:2", "affinity is" },
	{ "[device a]\nmem = lots\n", "t.conf:2", "mem" },
	{ "[device a]\nmem = 1G\n", "names no backend", "names no backend" },
	{ "[tenant a]\nmem = 0\n", "t.conf:2", "mem must be" },
	{ "[tenant a]\nmem = 1Q\n", "t.conf:2", "mem" },
	{ "[tenant a]\nweight = 0\n", "t.conf:2", "weight" },
	{ "[tenant a]\nweight = 10001\n", "t.conf:2", "weight" },
	{ "[tenant a]\npriority = 101\n", "t.conf:2", "priority" },
	{ "[tenant a]\npriority = --1\n", "t.conf:2", "priority" },
	{ "[tenant a]\nqueues = 64\n", "t.conf:2", "queues" },
	{ "[tenant a]\ndeadline = soon\n", "t.conf:2", "deadline" },
	{ "[agent]\nmigration_still = 0\n", "t.conf:2", "migration_still is 1 ms at least" },
	{ "[agent]\nmigration_still = 2h\n", "t.conf:2", "at most an hour" },
	{ "[tenant a]\nisolation = none\n", "t.conf:2", "isolation is" },
	{ "[tenant a]\nisolation = steward\n", "t.conf:2", "isolation is" },
	{ "[tenant a]\ncompute_percent = 101\n", "t.conf:2", "compute_percent" },
	{ "[tenant a]\nspin = long\n", "t.conf:2", "spin" },
	{ "[tenant a]\nivshmem = maybe\n", "t.conf:2", "ivshmem is" },
	{ "[tenant a]\nivshmem_size = 100M\n", "t.conf:2", "power of two" },
	{ "[tenant a]\nivshmem_size = 4M\n", "t.conf:2", "ivshmem_size must be" },
	{ "[tenant a]\nivshmem_size = 128G\n", "t.conf:2", "ivshmem_size must be" },
	{ "[tenant a]\nivshmem_vectors = 17\n", "t.conf:2", "ivshmem_vectors" },
	{ "[tenant a]\nivshmem_machines = 0\n", "t.conf:2", "ivshmem_machines" },
	{ "[tenant a]\nivshmem_mode = rw\n", "t.conf:2", "octal" },
	{ "[tenant a]\nivshmem_owner = nosuchuser\n", "t.conf:2", "ivshmem_owner" },
	{ "[tenant a]\nivshmem = yes\nivshmem_size = 4G\n", "ivshmem_size", "host_mem" },
	{ "[agent]\nmps = nvidia-cuda-mps-control\n", "t.conf:2", "mps is" },
	{ "[agent]\nmps_clients = 61\n", "t.conf:2", "mps_clients" },
	{ "[agent]\nmps_multiuser = maybe\n", "t.conf:2", "mps_multiuser is" },
	{ "[tenant a]\nrecipes = yes\n", "t.conf:2", "recipes is" },
	{ "[tenant a]\ncommunicators = 1\n", "t.conf:2", "communicators is" },
	{ "[tenant a]\ncommunicators = yes\nisolation = pooled\n", "communicators",
	  "isolation = isolated" },
	{ "[tenant a]\non_full = panic\n", "t.conf:2", "on_full is" },
	{ "[tenant a]\ntrust_group = A B\n", "t.conf:2", "trust_group" },
	{ "[tenant a]\ndoor = rel/path\n", "full path", "full path" },
	{ "[tenant a]\ndoor_mode = rw\n", "t.conf:2", "octal" },
	{ "[tenant a]\ndoor_uids = nosuchuser\n", "t.conf:2", "no user" },
	{ "[tenant a]\ndevices = gpu7\n", "gpu7", "not configured" },
	{ "[tenant a]\ndevices =\n", "t.conf:2", "empty" },
	{ "[tenant a]\ndevices =; cpu0\n", "t.conf:2", "semicolon" },
	{ "[tenant a]\ndoor = /a\tb\n", "t.conf:2", "control character" },
	{ "[tenant a]\nheap = 1G\nhost_mem = 64M\n", "host_mem", "does not fit" },
	{ "[tenant a]\nmem = 1G\nmem = 2G\n", "t.conf:3", "twice" },
	{ "[tenant a]\nnonsense\n", "t.conf:2", "neither" },
	{ "[agent]\npolicy = luck\n", "luck", "neither built in" },
	{ "[agent]\npolicy = elastic\npolicy_options = stay\n", "elastic", "key=value" },
	{ "[agent]\npolicy_options = a=1\n", "static", "no options" },
	{ "[group g]\nspeed = 1\n", "t.conf:2", "no key \"speed\"" },
	{ "[group G]\n", "t.conf:1", "no name" },
	{ "[group g]\n", "group g", "no devices" },
	{ "[group g]\ndevices = gpu7\n", "gpu7", "not configured" },
	{ CPU0 "[group g]\ndevices = cpu0\npolicy = luck\n", "group g", "neither built in" },
	{ CPU0 "[group g]\ndevices = cpu0\noptions = stay=long\n", "group g", "stay" },
	{ CPU0 "[group g]\ndevices = cpu0\n[group h]\ndevices = cpu0\n", "cpu0",
	  "in groups g and h" },
	{ "[policy elastic]\npath = /x\n", "elastic", "built-in policy has that name" },
	{ "[policy mine]\n", "mine", "no path" },
	{ "[policy mine]\npath = mine.so\n", "t.conf:2", "full path" },
	{ "[policy mine]\npath = /x\nfallback = mine\n", "mine", "no built-in" },
	{ "[policy mine]\ntimeout = 1us\n", "t.conf:2", "from 1ms" },
	{ "[policy mine]\nspeed = 1\n", "t.conf:2", "no key \"speed\"" },
	{ "[tenant a]\ngroup = g\n", "group g", "not configured" },
	{ "[tenant a]\ngroup = G\n", "t.conf:2", "group" },
	{ "[tenant a]\nmax_devices = 9\n", "t.conf:2", "max_devices" },
	{ "[tenant a]\nmin_devices = 3\nmax_devices = 2\n", "min_devices, 3", "more than" },
	{ CPU0 "[device cpu1]\nbackend = cpu\n[group g]\ndevices = cpu0\n"
	       "[tenant a]\ngroup = g\ndevices = cpu1\n",
	  "tenant a", "none of the devices of its group" },
};

START_TEST(test_config_error_names_line_and_reason)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_config *c = NULL;

	ck_assert_int_eq(parse(bad[_i].text, &c, &err), -EINVAL);
	ck_assert_msg(strstr(err.text, bad[_i].where), "\"%s\" has no \"%s\"", err.text,
		      bad[_i].where);
	ck_assert_msg(strstr(err.text, bad[_i].word), "\"%s\" has no \"%s\"", err.text,
		      bad[_i].word);
}
END_TEST

START_TEST(test_config_gpu_that_is_several_devices_needs_memory_for_each)
{
	static const struct {
		const char *text;
		const char *sentence; /* NULL: right */
	} cases[] = {
		{ "[device a]\nbackend=cuda\ngpu=1\nmem=1G\n[device b]\nbackend=cuda\ngpu=1\nmem=2G\n",
		  NULL },
		{ "[device a]\nbackend=cuda\ngpu=1\n[device b]\nbackend=cuda\n", NULL },
		{ "[device a]\nbackend=cuda\n[device b]\nbackend=hip\n[device c]\nbackend=cpu\n[device d]\nbackend=cpu\n",
		  NULL },
		{ "[device a]\nbackend=cuda\ngpu=1\nmem=1G\n[device b]\nbackend=cuda\ngpu=1\n",
		  "[device a] and [device b] are one GPU, 1: each needs mem, and b has none" },
		{ "[device a]\nbackend=cuda\n[device x]\nbackend=cpu\n[device b]\nbackend=cuda\nmem=2G\ngpu=0\n",
		  "[device a] and [device b] are one GPU, 0: each needs mem, and a has none" },
	};

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(cases); i++) {
		struct gantry_err err = GANTRY_ERR_NONE;
		struct gantry_config *c = NULL;
		int r = parse(cases[i].text, &c, &err);

		ck_assert_int_eq(r, cases[i].sentence ? -EINVAL : 0);
		if (cases[i].sentence)
			ck_assert_str_eq(err.text, cases[i].sentence);
		else
			gantry_config_free(c);
	}
}
END_TEST

START_TEST(test_config_nul_byte_and_long_line_are_refused)
{
	static const char nul[] = "[agent]\nconfine = y\0es\n";
	struct gantry_config *c = gantry_config_new();
	struct gantry_err err = GANTRY_ERR_NONE;
	char longline[400] = "[agent]\nadmin = ";

	ck_assert_int_eq(gantry_config_parse(c, "t.conf", nul, sizeof(nul) - 1, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "t.conf:2"));
	memset(longline + strlen(longline), 'x', 300);
	longline[320] = '\0';
	ck_assert_int_eq(gantry_config_parse(c, "t.conf", longline, strlen(longline), &err),
			 -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "longer"));
	gantry_config_free(c);
}
END_TEST

START_TEST(test_tenant_written_reads_back_the_same)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_config *c = NULL, *again = gantry_config_new();
	const struct gantry_tenant_conf *b;
	struct gantry_tenant_conf *a;
	char *text;

	ck_assert_int_eq(parse(whole, &c, &err), 0);
	a = gantry_config_tenant(c, "red");
	ck_assert_int_eq(gantry_tenant_conf_write(a, UINT64_MAX, &text), 0);
	ck_assert_msg(gantry_config_parse(again, "t.conf", text, strlen(text), &err) == 0, "%s",
		      err.text);
	b = gantry_config_tenant(again, "red");
	ck_assert_ptr_nonnull(b);
	a->set = b->set; /* every key was written, defaults too */
	ck_assert_mem_eq(a, b, sizeof(*a));
	free(text);
	gantry_config_free(c);
	gantry_config_free(again);
}
END_TEST

/* ---- files and their precedence ---- */

static char dir[64];

static void make_dirs(void)
{
	char path[128];

	(void)snprintf(dir, sizeof(dir), "/tmp/gantry-config.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/g.conf.d", dir);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/tenants.d", dir);
	ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void put(const char *name, const char *text)
{
	char path[160];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	ck_assert_int_eq(gantry_file_replace(path, text, strlen(text), 0600), 0);
}

static void remove_dirs(void)
{
	static const char *const names[] = { "g.conf",
					     "g.conf.d/10.conf",
					     "g.conf.d/20.conf",
					     "tenants.d/red.conf",
					     "tenants.d/blue.conf",
					     "g.conf.d",
					     "tenants.d" };
	char path[160];

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(names); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		(void)remove(path); /* not every test makes every file */
	}
	(void)rmdir(dir); /* best effort */
}

static int load(struct gantry_config **ret_config, struct gantry_err *err)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/g.conf", dir);
	return gantry_config_load(path, false, dir, ret_config, err);
}

START_TEST(test_config_later_sources_win_key_by_key)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_config *c = NULL;

	put("g.conf", "[tenant red]\nweight = 1\nsessions = 1\nqueues = 1\n");
	put("g.conf.d/20.conf", "[tenant red]\nsessions = 3\n");
	put("g.conf.d/10.conf", "[tenant red]\nsessions = 2\nqueues = 2\n");
	put("tenants.d/red.conf", "[tenant red]\nweight = 9\n");
	put("tenants.d/blue.conf", "[tenant blue]\nweight = 5\n");
	ck_assert_msg(load(&c, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(c->tenants[0].weight, 9);
	ck_assert_uint_eq(c->tenants[0].sessions, 3);
	ck_assert_uint_eq(c->tenants[0].queues, 2);
	ck_assert_ptr_nonnull(strstr(c->tenants[0].source, "g.conf"));
	ck_assert_str_eq(gantry_config_tenant(c, "blue")->source, "cli");
	gantry_config_free(c);
}
END_TEST

START_TEST(test_config_missing_file_is_an_error_unless_optional)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_config *c = NULL;
	char path[128];

	ck_assert_int_eq(load(&c, &err), -ENOENT);
	(void)snprintf(path, sizeof(path), "%s/g.conf", dir);
	ck_assert_int_eq(gantry_config_load(path, true, NULL, &c, &err), 0);
	ck_assert_uint_eq(c->ntenants, 0);
	gantry_config_free(c);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *tc = gantry_unit_case(suite, "parse");

	tcase_add_test(tc, test_config_every_key_is_read);
	tcase_add_test(tc, test_config_section_without_keys_exists);
	tcase_add_test(tc, test_config_indented_keys_are_keys);
	tcase_add_test(tc,
		       test_config_device_says_its_pool_its_processors_and_its_backend_s_options);
	tcase_add_loop_test(tc, test_config_error_names_line_and_reason, 0,
			    (int)GANTRY_ARRAY_SIZE(bad));
	tcase_add_test(tc, test_config_gpu_that_is_several_devices_needs_memory_for_each);
	tcase_add_test(tc, test_config_nul_byte_and_long_line_are_refused);
	tcase_add_test(tc, test_tenant_written_reads_back_the_same);
	tc = gantry_unit_case(suite, "files");
	tcase_add_checked_fixture(tc, make_dirs, remove_dirs);
	tcase_add_test(tc, test_config_later_sources_win_key_by_key);
	tcase_add_test(tc, test_config_missing_file_is_an_error_unless_optional);
	return gantry_unit_run(suite);
}
