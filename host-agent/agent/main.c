/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gantryd: started as the monitor, which starts itself again as the agent ("--agent-fd=N") and
 * gives it every
 * argument. Only the agent reads the configuration.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/build.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/run.h"
#include "host-agent/monitor/monitor.h"

#define DEFAULT_CONFIG	  "/etc/gantry/gantry.conf"
#define DEFAULT_RUN_DIR	  "/run/gantry"
#define DEFAULT_STATE_DIR "/var/lib/gantry"
#define EXIT_USAGE	  2

enum {
	OPT_AGENT_FD = 256,
	OPT_TAKEOVER,
	OPT_STANDBY,
	OPT_RESUME,
	OPT_SHELF,
	OPT_NO_MONITOR,
	OPT_CHECK,
	OPT_RUN_DIR,
	OPT_STATE_DIR,
	OPT_WORKER,
	OPT_LOG_LEVEL,
	OPT_FAILPOINTS,
};

static const struct option options[] = {
	{ "config", required_argument, NULL, 'c' },
	{ "run-dir", required_argument, NULL, OPT_RUN_DIR },
	{ "state-dir", required_argument, NULL, OPT_STATE_DIR },
	{ "worker", required_argument, NULL, OPT_WORKER },
	{ "log-level", required_argument, NULL, OPT_LOG_LEVEL },
	{ "check-config", no_argument, NULL, OPT_CHECK },
	{ "no-monitor", no_argument, NULL, OPT_NO_MONITOR },
	{ "descriptor-store", no_argument, NULL, OPT_SHELF },
	{ "failpoints", no_argument, NULL, OPT_FAILPOINTS },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	/* between our own processes */
	{ "agent-fd", required_argument, NULL, OPT_AGENT_FD },
	{ "monitor-takeover", no_argument, NULL, OPT_TAKEOVER },
	{ "monitor-resume", required_argument, NULL, OPT_RESUME },
	{ "standby", no_argument, NULL, OPT_STANDBY },
	{ NULL, 0, NULL, 0 },
};

struct args {
	struct gantry_agent_args agent;
	char worker[PATH_MAX];
	bool takeover;
	bool shelf;
	int resume_fd;
	bool no_monitor;
	bool check;
};

static void usage(FILE *out)
{
	fputs("usage: gantryd [options]\n"
	      "  -c, --config FILE   configuration (default " DEFAULT_CONFIG
	      ", and FILE.d/*.conf)\n"
	      "  --run-dir DIR       sockets and what is alive (default " DEFAULT_RUN_DIR ")\n"
	      "  --state-dir DIR     changes made with gantryctl (default " DEFAULT_STATE_DIR ")\n"
	      "  --worker FILE       the worker program (default: gantry-worker beside gantryd)\n"
	      "  --log-level LEVEL   err, warn, info, debug\n"
	      "  --check-config      read the configuration, say what is wrong, end\n"
	      "  --descriptor-store  systemd keeps our descriptors: sessions survive its restart of the service\n"
	      "  --no-monitor        run the agent alone, for a debugger: sessions end with it\n"
	      "  --failpoints        for tests: where a process can be made to die, if this build has such places\n"
	      "  --version, --help\n",
	      out);
}

/* gantry-worker: beside us, as in a build folder ("../worker"), or where packages put it. */
static void find_worker(char *path, size_t cap)
{
	static const char *const places[] = {
		"gantry-worker",
		"../worker/gantry-worker",
		"../libexec/gantry/gantry-worker",
		"../lib/gantry/gantry-worker",
	};
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	path[0] = '\0';
	if (n < 0)
		return;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return;
	*slash = '\0';
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(places); i++)
		if (gantry_str_format(path, cap, "%s/%s", self, places[i]) == 0 &&
		    access(path, X_OK) == 0)
			return;
}

static int set_log_level(const char *text)
{
	enum gantry_log_level level;

	if (gantry_log_level_parse(text, &level) < 0) {
		fprintf(stderr, "gantryd: --log-level is err, warn, info or debug, not %s\n", text);
		return -EINVAL;
	}
	gantry_log_level_set(level);
	return 0;
}

static int list_failpoints(void)
{
	const struct gantry_failpoint_info *info;

	for (uint32_t i = 0; (info = gantry_failpoint_at(i)); i++)
		printf("%u\t%s\t%s\t%s\t%s\n", i, info->name,
		       info->kind == GANTRY_FAILPOINT_IO ? "io" : "step", info->program,
		       info->what);
	if (gantry_failpoint_at(0))
		return EXIT_SUCCESS;
	fprintf(stderr, "gantryd: this build has no failpoints: they are Kconfig's FAILPOINTS\n");
	return EXIT_FAILURE;
}

/* 0: go on; else an exit status + 1. */
static int take_option(struct args *args, int opt)
{
	switch (opt) {
	case 'c':
		args->agent.config_path = optarg;
		args->agent.config_optional = false;
		return 0;
	case OPT_RUN_DIR:
		args->agent.run_dir = optarg;
		return 0;
	case OPT_STATE_DIR:
		args->agent.state_dir = optarg;
		return 0;
	case OPT_WORKER:
		args->agent.worker_path = optarg;
		return 0;
	case OPT_LOG_LEVEL:
		return set_log_level(optarg) < 0 ? EXIT_USAGE + 1 : 0;
	case OPT_CHECK:
		args->check = true;
		return 0;
	case OPT_NO_MONITOR:
		args->no_monitor = true;
		return 0;
	case OPT_AGENT_FD:
		args->agent.monitor_fd = atoi(optarg);
		return 0;
	case OPT_TAKEOVER:
		args->takeover = true;
		return 0;
	case OPT_STANDBY:
		args->agent.standby = true;
		return 0;
	case OPT_RESUME:
		args->resume_fd = atoi(optarg);
		return 0;
	case OPT_SHELF:
		args->shelf = true;
		return 0;
	case OPT_FAILPOINTS:
		return list_failpoints() + 1;
	case 'h':
		usage(stdout);
		return EXIT_SUCCESS + 1;
	case 'V':
		printf("gantryd %s\n", gantry_build_version);
		return EXIT_SUCCESS + 1;
	default:
		usage(stderr);
		return EXIT_USAGE + 1;
	}
}

static bool is_between_us(const char *arg)
{
	return gantry_str_starts(arg, "--agent-fd=") ||
	       gantry_str_starts(arg, "--monitor-resume=") ||
	       strcmp(arg, "--monitor-takeover") == 0 || strcmp(arg, "--standby") == 0;
}

/* The arguments without those that are between our own processes. */
static char **own_arguments(int argc, char **argv)
{
	char **kept = calloc((size_t)argc + 1, sizeof(*kept));
	int n = 0;

	for (int i = 0; kept && i < argc; i++)
		if (!is_between_us(argv[i]))
			kept[n++] = argv[i];
	return kept;
}

/* The monitor keeps as many as the agent has, and hands them to the next one in one go. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	/* What cannot be had is told when descriptors run out. */
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int check_config(const struct gantry_agent_args *args)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_config *config;

	if (gantry_config_load(args->config_path, args->config_optional, args->state_dir, &config,
			       &err) < 0) {
		fprintf(stderr, "gantryd: %s\n", err.text);
		return EXIT_USAGE;
	}
	printf("%u devices, %u tenants: good\n", config->ndevices, config->ntenants);
	gantry_config_free(config);
	return EXIT_SUCCESS;
}

static int run_monitor(const struct args *args, char *const *own)
{
	const char *kept = getenv("FDSTORE"); /* how many systemd keeps, where it says so */
	const struct gantry_monitor_args monitor = {
		.argv = own,
		.takeover_fd = args->takeover ? args->agent.monitor_fd : -EBADF,
		.resume_fd = args->resume_fd,
		.shelf = args->shelf || (kept && strtol(kept, NULL, 10) > 0),
	};

	return gantry_monitor_run(&monitor);
}

static int run(struct args *args, int argc, char **argv)
{
	char **own;
	int status;

	if (args->check)
		return check_config(&args->agent);
	own = own_arguments(argc, argv);
	if (!own)
		return EXIT_FAILURE;
	raise_descriptor_limit();
	args->agent.argv = own;
	if (!args->takeover && (args->agent.monitor_fd >= 0 || args->no_monitor))
		status = gantry_agent_run(&args->agent);
	else
		status = run_monitor(args, own);
	free(own);
	return status;
}

int main(int argc, char **argv)
{
	static struct args args; /* static: large */
	int opt;

	args.agent = (struct gantry_agent_args){
		.config_path = DEFAULT_CONFIG,
		.config_optional = true,
		.run_dir = DEFAULT_RUN_DIR,
		.state_dir = DEFAULT_STATE_DIR,
		.monitor_fd = -EBADF,
	};
	args.resume_fd = -EBADF;
	/* Started by descriptor, the kernel would name us by its number. For people only. */
	(void)prctl(PR_SET_NAME, "gantryd");
	gantry_log_open("gantryd");
	gantry_failpoints_open();
	while ((opt = getopt_long(argc, argv, "c:hV", options, NULL)) != -1) {
		int r = take_option(&args, opt);

		if (r > 0)
			return r - 1;
	}
	if (optind < argc) {
		fprintf(stderr, "gantryd: what is %s?\n", argv[optind]);
		usage(stderr);
		return EXIT_USAGE;
	}
	if (!args.agent.worker_path) {
		find_worker(args.worker, sizeof(args.worker));
		args.agent.worker_path = args.worker;
	}
	return run(&args, argc, argv);
}
