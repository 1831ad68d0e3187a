/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "host-agent/ctl/cdi.h"
#include "host-agent/ctl/fields.h"
#include "host-agent/ctl/parse.h"
#include "host-agent/ctl/progress.h"
#include "host-agent/ctl/verbs.h"
#include "host-agent/ctl/vm_text.h"
#include "tests/unit/ctl/samples.h"
#include "tests/unit/runner.h"

/* --- golden files: GANTRY_GOLDEN_UPDATE=1 writes them --- */

static void check_golden(const char *name, const char *text)
{
	_cleanup_free_ char *wanted = NULL;
	char path[512];

	snprintf(path, sizeof(path), "%s/ctl/%s", GOLDEN_DIR, name);
	if (getenv("GANTRY_GOLDEN_UPDATE"))
		ck_assert_int_eq(gantry_file_replace(path, text, strlen(text), 0644), 0);
	ck_assert_msg(gantry_file_read(path, 1 << 20, &wanted, NULL) == 0, "no %s", path);
	ck_assert_str_eq(text, wanted);
}

static void check_golden_json(const char *name, json_object *object)
{
	_cleanup_free_ char *text = NULL;
	const char *json = json_object_to_json_string_ext(
		object,
		JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);

	ck_assert_int_ge(asprintf(&text, "%s\n", json), 0);
	check_golden(name, text);
	json_object_put(object);
}

/* --- the table of verbs --- */

START_TEST(test_verbs_each_has_what_dispatch_and_help_need)
{
	for (size_t i = 0; i < gantry_nverbs; i++) {
		const struct gantry_verb *verb = &gantry_verbs[i];
		int words = 0, noptions = 0;

		ck_assert_ptr_nonnull(verb->run);
		ck_assert_ptr_nonnull(verb->args);
		ck_assert_int_gt((int)strlen(verb->summary), 4);
		ck_assert_int_ne(verb->summary[strlen(verb->summary) - 1], '.');
		ck_assert(verb->max_args < 0 || verb->max_args >= verb->min_args);
		ck_assert_ptr_eq(gantry_verb_find(verb->noun, verb->verb, &words), verb);
		ck_assert_int_eq(words, verb->verb ? 2 : 1);
		for (const struct gantry_verb_option *o = verb->options; o && o->name;
		     o++, noptions++) {
			ck_assert_ptr_nonnull(o->help);
			for (const struct gantry_verb_option *g = gantry_global_options; g->name;
			     g++)
				ck_assert_str_ne(o->name, g->name);
		}
		ck_assert_int_lt(noptions, GANTRY_CTL_OPTIONS_MAX);
	}
}
END_TEST

START_TEST(test_verbs_nouns_stand_together)
{
	/* Help and completion print a noun once because its verbs are neighbours. */
	for (size_t i = 0; i + 2 < gantry_nverbs; i++)
		for (size_t j = i + 2; j < gantry_nverbs; j++)
			if (strcmp(gantry_verbs[i].noun, gantry_verbs[j].noun) == 0)
				ck_assert_str_eq(gantry_verbs[j - 1].noun, gantry_verbs[j].noun);
}
END_TEST

/* --- the command line --- */

struct parsed {
	struct gantry_ctl ctl;
	char *err;
	size_t err_len;
	char *out;
	size_t out_len;
	int code;
};

#define MAX_WORDS 16

/* The streams keep pointers into @p: it must not move. */
static void parse(struct parsed *p, const char *line)
{
	static char words[512];
	static char *argv[MAX_WORDS + 1];
	char *save = NULL;
	int argc = 0;

	snprintf(words, sizeof(words), "%s", line);
	memset(p, 0, sizeof(*p));
	memset(argv, 0, sizeof(argv));
	for (char *word = strtok_r(words, " ", &save); word && argc < MAX_WORDS;
	     word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	unsetenv("GANTRY_ADMIN");
	gantry_ctl_init(&p->ctl);
	p->ctl.err = open_memstream(&p->err, &p->err_len);
	p->ctl.out = open_memstream(&p->out, &p->out_len);
	p->code = gantry_ctl_parse(&p->ctl, argc, argv);
	fflush(p->ctl.err);
}

static void parsed_fini(struct parsed *p)
{
	fclose(p->ctl.err);
	fclose(p->ctl.out);
	free(p->err);
	free(p->out);
	gantry_ctl_fini(&p->ctl);
}

START_TEST(test_parse_options_stand_anywhere)
{
	struct parsed p;

	parse(&p, "gantryctl --json tenant --timeout 2s set --weight 3 red --socket /s --mem=1G");
	ck_assert_int_eq(p.code, 0);
	ck_assert(p.ctl.json);
	ck_assert_int_eq(p.ctl.timeout_ns, 2000000000);
	ck_assert_str_eq(p.ctl.socket_path, "/s");
	ck_assert_int_eq(p.ctl.nargs, 1);
	ck_assert_str_eq(p.ctl.args[0], "red");
	ck_assert_str_eq(gantry_ctl_option(&p.ctl, "weight"), "3");
	ck_assert_str_eq(gantry_ctl_option(&p.ctl, "mem"), "1G");
	ck_assert_ptr_null(gantry_ctl_option(&p.ctl, "heap"));
	parsed_fini(&p);
}
END_TEST

START_TEST(test_parse_run_leaves_the_command_alone)
{
	struct parsed p;

	parse(&p, "gantryctl run red -- ls --json -l");
	ck_assert_int_eq(p.code, 0);
	ck_assert(!p.ctl.json);
	ck_assert_int_eq(p.ctl.nargs, 5);
	ck_assert_str_eq(p.ctl.args[3], "--json");
	parsed_fini(&p);
}
END_TEST

START_TEST(test_parse_help_wins_over_missing_arguments)
{
	struct parsed p;

	parse(&p, "gantryctl device show --help");
	ck_assert_int_eq(p.code, 0);
	ck_assert_str_eq(p.ctl.verb->noun, "help");
	ck_assert_int_eq(p.ctl.nargs, 2);
	ck_assert_str_eq(p.ctl.args[1], "show");
	parsed_fini(&p);
}
END_TEST

START_TEST(test_parse_mistakes_are_usage_with_one_line)
{
	static const char *const lines[] = {
		"gantryctl",
		"gantryctl bogus",
		"gantryctl device",
		"gantryctl device bogus",
		"gantryctl device show",
		"gantryctl device show a b",
		"gantryctl device list --bogus",
		"gantryctl --timeout device list",
		"gantryctl --timeout nonsense device list",
		"gantryctl --timeout",
		"gantryctl run red",
		"gantryctl device list --json=yes",
		"gantryctl tenant set red --weight",
		"gantryctl -x",
	};

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(lines); i++) {
		struct parsed p;

		parse(&p, lines[i]);
		ck_assert_msg(p.code == GANTRY_CTL_USAGE, "%s: exit %d", lines[i], p.code);
		ck_assert_msg(strncmp(p.err, "gantryctl: ", 11) == 0, "%s: %s", lines[i], p.err);
		ck_assert_ptr_eq(strchr(p.err, '\n'), p.err + p.err_len - 1);
		parsed_fini(&p);
	}
}
END_TEST

START_TEST(test_parse_mistakes_name_what_can_be_typed)
{
	static const struct {
		const char *line, *names;
	} rows[] = {
		{ "gantryctl device list --bogus", "see gantryctl device list --help\n" },
		{ "gantryctl --bogus", "see gantryctl --help\n" },
		{ "gantryctl migration list a", "usage: gantryctl migration list\n" },
		{ "gantryctl device show a b", "usage: gantryctl device show DEVICE\n" },
	};

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(rows); i++) {
		struct parsed p;

		parse(&p, rows[i].line);
		ck_assert_msg(strstr(p.err, rows[i].names), "%s", p.err);
		parsed_fini(&p);
	}
}
END_TEST

/* Of sessions and of machines, one as the other. */
START_TEST(test_bandwidth_is_a_size_and_not_none)
{
	static const struct {
		const char *line;
		int code;
		uint64_t bytes;
	} rows[] = {
		{ "gantryctl session migrate 1 --to a", 0, 0 },
		{ "gantryctl session migrate 1 --to a --bandwidth 2M", 0, 2u << 20 },
		{ "gantryctl session migrate 1 --to a --bandwidth 0", GANTRY_CTL_USAGE, 7 },
		{ "gantryctl session migrate 1 --to a --bandwidth fast", GANTRY_CTL_USAGE, 7 },
		{ "gantryctl vm migrate m u --bandwidth 0G", GANTRY_CTL_USAGE, 7 },
	};

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(rows); i++) {
		uint64_t bytes = 7;
		struct parsed p;

		parse(&p, rows[i].line);
		ck_assert_int_eq(p.code, 0);
		ck_assert_int_eq(gantry_ctl_bandwidth(&p.ctl, &bytes), rows[i].code);
		ck_assert_uint_eq(bytes, rows[i].bytes);
		parsed_fini(&p);
	}
}
END_TEST

START_TEST(test_fail_that_is_kept_is_not_written)
{
	struct gantry_err kept = GANTRY_ERR_NONE;
	struct parsed p;

	parse(&p, "gantryctl --json version");
	p.ctl.into = &kept;
	ck_assert_int_eq(gantry_ctl_fail(&p.ctl, GANTRY_CTL_BUSY, "not %s", "now"),
			 GANTRY_CTL_BUSY);
	fflush(p.ctl.err);
	fflush(p.ctl.out);
	ck_assert_str_eq(kept.text, "not now");
	ck_assert_uint_eq(p.err_len + p.out_len, 0);
	ck_assert(!p.ctl.failed);
	parsed_fini(&p);
}
END_TEST

START_TEST(test_fail_text_cannot_leave_its_line)
{
	struct parsed p;

	parse(&p, "gantryctl --json device list");
	ck_assert_int_eq(gantry_ctl_fail(&p.ctl, 3, "a\nb\033[2Jc"), 3);
	fflush(p.ctl.err);
	fflush(p.ctl.out);
	ck_assert_str_eq(p.err, "gantryctl: a b [2Jc\n");
	ck_assert_ptr_nonnull(strstr(p.out, "\"code\": 3"));
	parsed_fini(&p);
}
END_TEST

START_TEST(test_code_of_a_later_agent_is_failed)
{
	ck_assert_int_eq(gantry_ctl_code(3), GANTRY_CTL_NOT_FOUND);
	ck_assert_int_eq(gantry_ctl_code(124), GANTRY_CTL_TIMEOUT);
	ck_assert_int_eq(gantry_ctl_code(99), GANTRY_CTL_FAILED);
	ck_assert_int_eq(gantry_ctl_code(-1), GANTRY_CTL_FAILED);
	ck_assert_int_eq(gantry_ctl_code(256), GANTRY_CTL_FAILED);
}
END_TEST

/* --- fields --- */

START_TEST(test_fields_json_is_as_promised)
{
	Gantry__Admin__AdminReply reply = GANTRY__ADMIN__ADMIN_REPLY__INIT;

#define SAMPLE(REQUEST)   \
	ck_assert_int_eq( \
		gantry_sample_reply(GANTRY__ADMIN__ADMIN_REQUEST__BODY_##REQUEST, &reply), 0)
	SAMPLE(DEVICE_LIST);
	check_golden_json("device.json",
			  gantry_fields_json(&gantry_device_fields, reply.devices->devices[0]));
	check_golden_json("device-gpu.json",
			  gantry_fields_json(&gantry_device_fields, &gantry_sample_gpu));
	check_golden_json("device-failed.json",
			  gantry_fields_json(&gantry_device_fields, reply.devices->devices[1]));
	SAMPLE(TENANT_LIST);
	check_golden_json("tenant.json",
			  gantry_fields_json(&gantry_tenant_fields, reply.tenants->tenants[0]));
	check_golden_json("tenant-bare.json",
			  gantry_fields_json(&gantry_tenant_fields, reply.tenants->tenants[1]));
	SAMPLE(SESSION_LIST);
	check_golden_json("session.json",
			  gantry_fields_json(&gantry_session_fields, reply.sessions->sessions[0]));
	SAMPLE(QUEUE_LIST);
	check_golden_json("queue.json",
			  gantry_fields_json(&gantry_queue_fields, reply.queues->queues[0]));
	SAMPLE(WORKER_LIST);
	check_golden_json("worker.json",
			  gantry_fields_json(&gantry_worker_fields, reply.workers->workers[0]));
	SAMPLE(POLICY_LIST);
	check_golden_json("policy.json",
			  gantry_fields_json(&gantry_policy_fields, reply.policies->policies[1]));
	SAMPLE(GROUP_LIST);
	check_golden_json("group.json",
			  gantry_fields_json(&gantry_group_fields, reply.groups->groups[0]));
	SAMPLE(MIGRATION_LIST);
	check_golden_json("migration.json", gantry_fields_json(&gantry_migration_fields,
							       reply.migrations->migrations[0]));
	SAMPLE(KERNEL_LIST);
	check_golden_json("kernel.json",
			  gantry_fields_json(&gantry_kernel_fields, reply.kernels->kernels[0]));
	SAMPLE(STATS);
	check_golden_json("metric.json",
			  gantry_fields_json(&gantry_metric_fields, reply.stats->metrics[0]));
	SAMPLE(DOCTOR);
	check_golden_json("check.json",
			  gantry_fields_json(&gantry_check_fields, reply.doctor->checks[1]));
	SAMPLE(VERSION);
	check_golden_json("version.json",
			  gantry_fields_json(&gantry_version_fields, reply.version));
	check_golden_json("event.json",
			  gantry_fields_json(&gantry_event_fields, gantry_sample_events[1]));
	check_golden_json("peer-device.json", gantry_fields_json(&gantry_peer_device_fields,
								 gantry_sample_peer_devices[0]));
}
END_TEST

START_TEST(test_fields_keys_are_unique)
{
	static const struct gantry_fields *const all[] = {
		&gantry_device_fields,	&gantry_tenant_fields,	    &gantry_session_fields,
		&gantry_queue_fields,	&gantry_worker_fields,	    &gantry_kernel_fields,
		&gantry_event_fields,	&gantry_check_fields,	    &gantry_metric_fields,
		&gantry_version_fields, &gantry_peer_device_fields, &gantry_migration_fields,
	};

	for (size_t f = 0; f < GANTRY_ARRAY_SIZE(all); f++)
		for (size_t i = 0; i < all[f]->n; i++)
			for (size_t j = i + 1; j < all[f]->n; j++)
				ck_assert_str_ne(all[f]->list[i].key, all[f]->list[j].key);
}
END_TEST

static void check_text(const struct gantry_fields *fields, const char *key, const void *object,
		       bool raw, const char *wanted)
{
	for (size_t i = 0; i < fields->n; i++) {
		_cleanup_free_ char *text = NULL;

		if (strcmp(fields->list[i].key, key) != 0)
			continue;
		text = gantry_field_text(&fields->list[i], object, raw);
		ck_assert_str_eq(text, wanted);
		return;
	}
	ck_abort_msg("no field %s", key);
}

START_TEST(test_field_text_reads_well_and_hides_control_characters)
{
	Gantry__Admin__AdminReply reply = GANTRY__ADMIN__ADMIN_REPLY__INIT;

	SAMPLE(DEVICE_LIST);
	check_text(&gantry_device_fields, "mem_bytes", reply.devices->devices[0], false, "1G");
	check_text(&gantry_device_fields, "mem_bytes", reply.devices->devices[0], true,
		   "1073741824");
	check_text(&gantry_device_fields, "temperature_c", &gantry_sample_gpu, false, "36");
	check_text(&gantry_device_fields, "board_mem_used", &gantry_sample_gpu, false, "3G");
	check_text(&gantry_device_fields, "temperature_c", reply.devices->devices[0], false, "");
	check_text(&gantry_device_fields, "state", reply.devices->devices[1], false, "failed");
	check_text(&gantry_device_fields, "opts", reply.devices->devices[0], false,
		   "cores=1,mem=1G");
	SAMPLE(TENANT_LIST);
	check_text(&gantry_tenant_fields, "priority", reply.tenants->tenants[0], false, "-2");
	check_text(&gantry_tenant_fields, "mem_bytes", reply.tenants->tenants[1], false, "");
	SAMPLE(SESSION_LIST);
	check_text(&gantry_session_fields, "program", reply.sessions->sessions[0], false,
		   "evil?[2J?name");
	check_text(&gantry_session_fields, "attached_unix_ns", reply.sessions->sessions[0], false,
		   "2023-11-14T22:13:20.123456789Z");
}
END_TEST

/* --- CDI --- */

static const struct gantry_cdi cdi = {
	.tenant = "red",
	.door = "/run/gantry/doors/red/door",
	.library = "/usr/lib/x86_64-linux-gnu/libgantry.so.0",
	.library_at = GANTRY_CDI_LIBRARY_AT,
};

/* ---- progress ---- */

static const char *progress(struct gantry_progress p)
{
	static char text[GANTRY_PROGRESS_TEXT];

	gantry_progress_text(&p, text);
	return text;
}

START_TEST(test_progress_text_has_bar_amounts_and_round)
{
	ck_assert_str_eq(progress((struct gantry_progress){ "copying", 16u << 20, 64u << 20, 2 }),
			 "copying    [#######.......................] 16M of 64M, round 2");
	ck_assert_str_eq(progress((struct gantry_progress){ "move", 1536, 0, 0 }),
			 "move       [..............................] 1.5K");
	ck_assert_str_eq(progress((struct gantry_progress){ "done", 5, 9, 0, .is_over = true }),
			 "done       [##############################] 5 of 9");
}
END_TEST

START_TEST(test_progress_bar_is_full_only_when_it_is_over)
{
	const char *full = "##############################";
	struct gantry_progress p = { "copying", 136u << 10, 12u << 10, 1 };

	ck_assert_str_eq(progress(p), "copying    [#############################.] 136K, round 1");
	p.done_bytes = UINT64_MAX;
	ck_assert_ptr_null(strstr(progress(p), full));
	p.is_over = true;
	ck_assert_ptr_nonnull(strstr(progress(p), full));
	p.state =
		"a state of a later agent that is longer than any line ought to be, and than the text: 0123456789";
	p.all_bytes = UINT64_MAX;
	p.round = UINT32_MAX;
	ck_assert_uint_lt(strlen(progress(p)), GANTRY_PROGRESS_TEXT - 1);
}
END_TEST

START_TEST(test_cdi_text_is_as_promised)
{
	struct gantry_cdi bare = cdi;
	_cleanup_free_ char *with = gantry_cdi_text(&cdi), *without = NULL;

	bare.library = NULL;
	without = gantry_cdi_text(&bare);
	check_golden("cdi.json", with);
	check_golden("cdi-no-library.json", without);
	ck_assert_ptr_null(strstr(with, "deviceNodes"));
}
END_TEST

static char *flags_of(const struct gantry_cdi *of, const char *engine, int wanted);

START_TEST(test_cdi_has_the_opencl_driver_beside_the_library)
{
	struct gantry_cdi opencl = cdi;
	_cleanup_free_ char *text = NULL, *flags = NULL, *refused = NULL;

	opencl.opencl = "/usr/lib/x86_64-linux-gnu/libgantry-opencl.so.1";
	opencl.opencl_icd = "/etc/OpenCL/vendors/gantry.icd";
	opencl.library_at = "/usr/lib64/libgantry.so.0";
	text = gantry_cdi_text(&opencl);
	ck_assert_ptr_nonnull(strstr(text, "\"/usr/lib64/libgantry-opencl.so.1\""));
	ck_assert_ptr_nonnull(strstr(text, "\"/etc/OpenCL/vendors/gantry.icd\""));
	flags = flags_of(&opencl, "docker", 0);
	ck_assert_ptr_nonnull(strstr(
		flags, "-v /usr/lib/x86_64-linux-gnu/libgantry-opencl.so.1:"
		       "/usr/lib64/libgantry-opencl.so.1:ro "
		       "-v /etc/OpenCL/vendors/gantry.icd:/etc/OpenCL/vendors/gantry.icd:ro "));
	opencl.opencl_icd = "/a b/gantry.icd";
	refused = flags_of(&opencl, "docker", -EINVAL);
	ck_assert_str_eq(refused, "");
}
END_TEST

static char *flags_of(const struct gantry_cdi *of, const char *engine, int wanted)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	ck_assert_int_eq(gantry_cdi_flags(of, engine, out, &err), wanted);
	fclose(out);
	ck_assert_int_eq(err.code, wanted);
	return text;
}

/* A folder of empty libraries; the caller removes it. */
static void cuda_folder(char folder[], bool end)
{
	static const char *const names[] = { "libcuda.so.1",	"libcublas.so.13",
					     "libcudnn.so.9",	"libnvrtc.so.13",
					     "libnccl.so.2",	"libodd name.so.1",
					     "libcudart.so.13", "libnvidia-ml.so.1" };
	char path[PATH_MAX];

	if (!end)
		ck_assert_ptr_nonnull(mkdtemp(folder));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		if (end)
			unlink(path);
		else
			fclose(fopen(path, "w"));
	}
	if (end)
		rmdir(folder);
}

START_TEST(test_cdi_has_the_libraries_of_cuda_and_puts_them_in_the_place_of_wheels)
{
	char folder[] = "/tmp/gantry-cuda-XXXXXX", wanted[1024];
	struct gantry_cdi cuda = cdi;
	_cleanup_free_ char *text = NULL, *plain = NULL, *flags = NULL, *refused = NULL;

	cuda_folder(folder, false);
	cuda.library = NULL;
	cuda.cuda = folder;
	plain = flags_of(&cuda, "docker", 0);
	(void)snprintf(
		wanted, sizeof(wanted),
		"-v /run/gantry/doors/red:/run/gantry:ro -v %s:/usr/lib/gantry/cuda:ro "
		"-e LD_LIBRARY_PATH=/usr/lib/gantry/cuda -e GANTRY_DOOR=unix:/run/gantry/door\n",
		folder);
	ck_assert_str_eq(plain, wanted);
	cuda.wheels = "/app/site-packages";
	flags = flags_of(&cuda, "podman", 0);
	(void)snprintf(
		wanted, sizeof(wanted),
		" -v %s/libcublas.so.13:/app/site-packages/nvidia/cu13/lib/libcublas.so.13:ro"
		" -v %s/libcudart.so.13:/app/site-packages/nvidia/cu13/lib/libcudart.so.13:ro"
		" -v %s/libcudnn.so.9:/app/site-packages/nvidia/cudnn/lib/libcudnn.so.9:ro"
		" -v %s/libnccl.so.2:/app/site-packages/nvidia/nccl/lib/libnccl.so.2:ro"
		" -e LD_LIBRARY_PATH",
		folder, folder, folder, folder);
	ck_assert_ptr_nonnull(strstr(flags, wanted));
	text = gantry_cdi_text(&cuda);
	ck_assert_ptr_nonnull(strstr(text, "\"LD_LIBRARY_PATH=/usr/lib/gantry/cuda\""));
	ck_assert_ptr_nonnull(strstr(text, "nvidia/cudnn/lib/libcudnn.so.9\""));
	/* What compiles stays NVIDIA's; what wheels do not have is in the folder alone. */
	ck_assert_ptr_null(strstr(text, "nvrtc"));
	ck_assert_ptr_null(strstr(text, "libcuda.so.1"));
	cuda.wheels = "/a b";
	refused = flags_of(&cuda, "docker", -EINVAL);
	ck_assert_str_eq(refused, "");
	cuda_folder(folder, true);
}
END_TEST

START_TEST(test_cdi_flags_by_engine)
{
	struct gantry_cdi odd = cdi;
	_cleanup_free_ char *podman = flags_of(&cdi, "podman", 0),
			    *runc = flags_of(&cdi, "runc", 0);
	_cleanup_free_ char *other = flags_of(&cdi, "chroot", -ENOTSUP), *refused = NULL;

	ck_assert_str_eq(podman,
			 "-v /run/gantry/doors/red:/run/gantry:ro "
			 "-v /usr/lib/x86_64-linux-gnu/libgantry.so.0:/usr/lib/libgantry.so.0:ro "
			 "-e GANTRY_DOOR=unix:/run/gantry/door\n");
	check_golden("cdi-runc.json", runc);
	ck_assert_str_eq(other, "");
	odd.door = "/run/a:b/door";
	refused = flags_of(&odd, "docker", -EINVAL);
	ck_assert_str_eq(refused, "");
}
END_TEST

static char *vm_text_of(const struct gantry_vm_device_text *device,
			void (*write)(const struct gantry_vm_device_text *device, FILE *out))
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	write(device, out);
	fclose(out);
	return text;
}

START_TEST(test_vm_text_quotes_paths_for_where_they_go)
{
	const struct gantry_vm_device_text device = { .tenant = "red",
						      .socket = "/a b,c'&<d",
						      .vectors = 4 };
	const struct gantry_vm_where where = { .bus = 2, .slot = 0 };
	_cleanup_free_ char *qemu = vm_text_of(&device, gantry_vm_qemu_options);
	_cleanup_free_ char *xml = NULL;
	size_t len;
	FILE *out = open_memstream(&xml, &len);

	gantry_vm_libvirt_xml(&device, &where, out);
	fclose(out);
	ck_assert_str_eq(
		qemu,
		"-chardev 'socket,id=gantry-red,path=/a b,,c'\\''&<d' -device "
		"ivshmem-doorbell,id=gantry-shm-red,chardev=gantry-red,vectors=4,master=on\n");
	ck_assert_str_eq(xml, "<shmem name='gantry-red' role='peer'>\n"
			      "  <model type='ivshmem-doorbell'/>\n"
			      "  <server path='/a b,c&apos;&amp;&lt;d'/>\n"
			      "  <msi vectors='4' ioeventfd='on'/>\n"
			      "  <alias name='ua-gantry-red'/>\n"
			      "  <address type='pci' domain='0x0000' bus='0x02' slot='0x00' "
			      "function='0x0'/>\n"
			      "</shmem>\n");
}
END_TEST

START_TEST(test_vm_text_has_the_port_that_wakes)
{
	const struct gantry_vm_device_text device = {
		.tenant = "red", .socket = "/run/iv.sock", .wake = "/run/w,&.sock", .vectors = 8
	};
	_cleanup_free_ char *qemu = vm_text_of(&device, gantry_vm_qemu_options);
	_cleanup_free_ char *xml = vm_text_of(&device, gantry_vm_channel_xml);

	ck_assert_str_eq(
		qemu,
		"-chardev socket,id=gantry-red,path=/run/iv.sock -device "
		"ivshmem-doorbell,id=gantry-shm-red,chardev=gantry-red,vectors=8,master=on -device "
		"virtio-serial-pci,id=gantry-ports-red -chardev "
		"'socket,id=gantry-wake-red,path=/run/w,,&.sock' -device virtserialport,"
		"bus=gantry-ports-red.0,chardev=gantry-wake-red,name=org.gantry.wake.red\n");
	ck_assert_str_eq(xml, "<channel type='unix'>\n"
			      "  <source mode='connect' path='/run/w,&amp;.sock'/>\n"
			      "  <target type='virtio' name='org.gantry.wake.red'/>\n"
			      "  <alias name='ua-gantrywake-red'/>\n"
			      "</channel>\n");
}
END_TEST

START_TEST(test_vm_text_of_a_vhost_user_back_end)
{
	const struct gantry_vm_device_text device = { .tenant = "red",
						      .socket = "/run/v.sock",
						      .cid = 42 };
	_cleanup_free_ char *qemu = vm_text_of(&device, gantry_vm_qemu_options);
	_cleanup_free_ char *proxmox = vm_text_of(&device, gantry_vm_proxmox_command);

	ck_assert_str_eq(qemu, "-chardev socket,id=gantry-red,path=/run/v.sock -device "
			       "vhost-user-vsock-pci,id=gantry-vsock-red,chardev=gantry-red\n");
	ck_assert_str_eq(proxmox,
			 "qm set VMID --args '-chardev socket,id=gantry-red,path=/run/v.sock "
			 "-device vhost-user-vsock-pci,id=gantry-vsock-red,chardev=gantry-red'\n");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ctl");
	TCase *verbs = gantry_unit_case(suite, "verbs");
	TCase *parse_case = gantry_unit_case(suite, "parse");
	TCase *fields = gantry_unit_case(suite, "fields");
	TCase *containers = gantry_unit_case(suite, "cdi");
	TCase *machines = gantry_unit_case(suite, "vm");

	tcase_add_test(verbs, test_verbs_each_has_what_dispatch_and_help_need);
	tcase_add_test(verbs, test_verbs_nouns_stand_together);
	tcase_add_test(parse_case, test_parse_options_stand_anywhere);
	tcase_add_test(parse_case, test_parse_run_leaves_the_command_alone);
	tcase_add_test(parse_case, test_parse_help_wins_over_missing_arguments);
	tcase_add_test(parse_case, test_parse_mistakes_are_usage_with_one_line);
	tcase_add_test(parse_case, test_parse_mistakes_name_what_can_be_typed);
	tcase_add_test(parse_case, test_bandwidth_is_a_size_and_not_none);
	tcase_add_test(parse_case, test_fail_that_is_kept_is_not_written);
	tcase_add_test(parse_case, test_fail_text_cannot_leave_its_line);
	tcase_add_test(parse_case, test_code_of_a_later_agent_is_failed);
	tcase_add_test(fields, test_fields_json_is_as_promised);
	tcase_add_test(fields, test_fields_keys_are_unique);
	tcase_add_test(fields, test_field_text_reads_well_and_hides_control_characters);
	tcase_add_test(fields, test_progress_text_has_bar_amounts_and_round);
	tcase_add_test(fields, test_progress_bar_is_full_only_when_it_is_over);
	tcase_add_test(containers, test_cdi_text_is_as_promised);
	tcase_add_test(containers, test_cdi_flags_by_engine);
	tcase_add_test(containers,
		       test_cdi_has_the_libraries_of_cuda_and_puts_them_in_the_place_of_wheels);
	tcase_add_test(containers, test_cdi_has_the_opencl_driver_beside_the_library);
	tcase_add_test(machines, test_vm_text_quotes_paths_for_where_they_go);
	tcase_add_test(machines, test_vm_text_has_the_port_that_wakes);
	tcase_add_test(machines, test_vm_text_of_a_vhost_user_back_end);
	return gantry_unit_run(suite);
}
