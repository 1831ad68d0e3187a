/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/misuse/world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define READY_MS 15000

struct world world;

static const char *more_config = "";

/* ---- a process tree, as /proc tells it ---- */

static pid_t parent_of(pid_t pid, char comm[32])
{
	char path[64], text[512];
	char *end;
	int ppid = 0;
	FILE *f;
	size_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return -1;
	n = fread(text, 1, sizeof(text) - 1, f);
	(void)fclose(f);
	text[n] = '\0';
	end = strrchr(text, ')');
	if (!end || end[2] == 'Z' || sscanf(end + 3, "%d", &ppid) != 1)
		return -1;
	*end = '\0';
	if (comm)
		(void)snprintf(comm, 32, "%.31s", strchr(text, '(') + 1);
	return ppid;
}

static bool below(pid_t pid, pid_t root)
{
	for (int depth = 0; pid > 1 && depth < 8; depth++) {
		pid = parent_of(pid, NULL);
		if (pid == root)
			return true;
	}
	return false;
}

/* Live descendants of @root with this name ("" for any). */
static unsigned int find_processes(pid_t root, const char *name, pid_t *ret_pids, unsigned int cap)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;
	unsigned int n = 0;

	ck_assert(dir != NULL);
	while ((e = readdir(dir))) {
		pid_t pid = (pid_t)atoi(e->d_name);
		char comm[32];

		if (pid <= 0 || parent_of(pid, comm) < 0 ||
		    (*name && strncmp(comm, name, 15) != 0) || !below(pid, root))
			continue;
		if (n < cap)
			ret_pids[n] = pid;
		n++;
	}
	closedir(dir);
	return n;
}

pid_t world_agent_pid(void)
{
	pid_t pids[8];
	unsigned int n = find_processes(world.monitor, "gantryd", pids, 8);

	for (unsigned int i = 0; i < n && i < 8; i++)
		if (parent_of(pids[i], NULL) == world.monitor)
			return pids[i];
	return -1;
}

unsigned int world_workers(pid_t *ret_pids, unsigned int cap)
{
	return find_processes(world.monitor, "gantry-worker", ret_pids, cap);
}

unsigned int world_agent_fds(void)
{
	char path[64];
	struct dirent *e;
	unsigned int n = 0;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)world_agent_pid());
	dir = opendir(path);
	ck_assert_msg(dir != NULL, "no %s: did the agent die?", path);
	while ((e = readdir(dir)))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* ---- gantryd ---- */

void world_path(char path[108], const char *what)
{
	(void)snprintf(path, 108, "%s/run/%s", world.root, what);
}

void world_door(char path[108], const char *tenant)
{
	(void)snprintf(path, 108, "%s/run/doors/%s/door", world.root, tenant);
}

static void write_config(void)
{
	char path[128];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/gantryd.conf", world.root);
	f = fopen(path, "w");
	ck_assert(f != NULL);
	(void)fprintf(f,
		      "[agent]\nadmin = %s/run/admin.sock\nwarm_workers = 1\nmodule_dirs = %s\n"
		      "[device cpu0]\nbackend = cpu\ncores = 1\nmem = 1G\n"
		      "[tenant blue]\nmem = 64M\n"
		      "[tenant red]\nmem = 64M\nvirtual = 256M\nheap = 4M\n%s",
		      world.root, MISUSE_MODULE_DIR, more_config);
	(void)fclose(f);
}

static int notify_socket(char path[108])
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)snprintf(path, 108, "%s/notify", world.root);
	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%.107s", path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

static void exec_gantryd(const char *notify)
{
	char config[128], run[128], state[128], log[128];
	int fd;

	(void)snprintf(config, sizeof(config), "%s/gantryd.conf", world.root);
	(void)snprintf(run, sizeof(run), "%s/run", world.root);
	(void)snprintf(state, sizeof(state), "%s/state", world.root);
	(void)snprintf(log, sizeof(log), "%s/log", world.root);
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	(void)dup2(fd, STDOUT_FILENO);
	(void)dup2(fd, STDERR_FILENO);
	(void)setsid();
	/* Whatever ends this test, time limits too: the monitor ends the rest in order. */
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	(void)setenv("NOTIFY_SOCKET", notify, 1);
	(void)execl(MISUSE_GANTRYD, MISUSE_GANTRYD, "--config", config, "--run-dir", run,
		    "--state-dir", state, "--worker", MISUSE_WORKER, (char *)NULL);
	_exit(127);
}

static void say_log(void)
{
	char path[128], line[512];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/log", world.root);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		(void)fprintf(stderr, "# gantryd: %s", line);
	if (f)
		(void)fclose(f);
}

static void wait_ready(int fd)
{
	uint64_t deadline = gantry_deadline_ns(READY_MS * 1000000ll);

	while (!gantry_deadline_passed(deadline)) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		char text[512];
		ssize_t n;

		if (waitpid(world.monitor, NULL, WNOHANG) == world.monitor)
			break;
		if (poll(&p, 1, 100) <= 0)
			continue;
		n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
		text[n > 0 ? n : 0] = '\0';
		if (strstr(text, "READY=1"))
			return;
	}
	say_log();
	ck_abort_msg("gantryd did not become ready");
}

static void make_folders(void)
{
	static const char *const names[] = { "", "/run", "/state" };
	char path[128];

	(void)snprintf(world.root, sizeof(world.root), "/tmp/gantry-misuse.XXXXXX");
	ck_assert(mkdtemp(world.root) != NULL);
	for (unsigned int i = 0; i < 3; i++) {
		(void)snprintf(path, sizeof(path), "%s%s", world.root, names[i]);
		(void)mkdir(path, 0755);
		(void)chmod(path, 0755);
	}
}

static void remove_tree(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		char sub[512];

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		(void)snprintf(sub, sizeof(sub), "%s/%s", path, e->d_name);
		if (e->d_type == DT_DIR)
			remove_tree(sub);
		else
			(void)unlink(sub);
	}
	if (dir)
		closedir(dir);
	(void)rmdir(path);
}

/* A mount name space of our own keeps the mount from everybody else's eyes, and ends with us. */
static void mount_small_disk(void)
{
	char path[108];

	world_path(path, "");
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", path, "tmpfs", 0, "size=256k") < 0) {
		remove_tree(world.root);
		gantry_unit_skip("mounting a small file system is not permitted");
	}
}

static void gantryd_start(bool small_disk)
{
	char notify[108];
	int fd;

	(void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	make_folders();
	if (small_disk)
		mount_small_disk();
	write_config();
	fd = notify_socket(notify);
	world.monitor = fork();
	ck_assert_int_ge(world.monitor, 0);
	if (world.monitor == 0)
		exec_gantryd(notify);
	wait_ready(fd);
	gantry_fd_close(fd);
	world.agent = world_agent_pid();
	ck_assert_int_gt(world.agent, 0);
}

static bool gone(pid_t pid)
{
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	return parent_of(pid, NULL) < 0;
}

/* Ours and its children: those that outlive a SIGTERM are killed. Returns how many those were. */
static unsigned int gantryd_stop(void)
{
	uint64_t deadline = gantry_deadline_ns(8 * (int64_t)GANTRY_NS_PER_S);
	pid_t pids[512];
	unsigned int n = find_processes(world.monitor, "", pids, 511);
	unsigned int left;

	n = n > 511 ? 511 : n;
	pids[n++] = world.monitor;
	(void)kill(world.monitor, SIGTERM);
	do {
		left = 0;
		for (unsigned int i = 0; i < n; i++)
			left += !gone(pids[i]);
		if (left)
			(void)poll(NULL, 0, 5);
	} while (left && !gantry_deadline_passed(deadline));
	for (unsigned int i = 0; left && i < n; i++)
		if (!gone(pids[i]))
			(void)kill(pids[i], SIGKILL);
	for (unsigned int i = 0; left && i < n; i++)
		while (!gone(pids[i]))
			(void)poll(NULL, 0, 1);
	return left;
}

/* ---- the world ---- */

static void start_engine(void)
{
	static const char *const one_cpu[] = { "cpu cores=1" };
	uint32_t index;

	world.kind = WORLD_ENGINE;
	world.host = inproc_start(one_cpu, 1);
	ck_assert_int_eq(inproc_open(world.host, NULL, &world.honest, &index), GANTRY_OK);
	neighbour_start(&world.neighbour, world.honest);
}

static void start_agent_on(bool small_disk)
{
	char door[108];

	world.kind = WORLD_AGENT;
	gantryd_start(small_disk);
	world_door(door, "blue");
	ck_assert_msg(gantry_open(door, NULL, &world.honest) == GANTRY_OK, "%s",
		      gantry_last_error());
	neighbour_start(&world.neighbour, world.honest);
}

static void start_agent(void)
{
	start_agent_on(false);
}

static void start_agent_on_small_disk(void)
{
	start_agent_on(true);
}

/* Runs in the process of a failed test too, where check gives it the chance: leave nothing behind. */
static void end(void)
{
	pid_t agent = world.kind == WORLD_AGENT ? world_agent_pid() : 0;
	unsigned int left = 0;

	neighbour_check(&world.neighbour);
	neighbour_stop(&world.neighbour);
	gantry_close(world.honest);
	if (world.kind == WORLD_ENGINE) {
		inproc_stop(world.host);
	} else {
		left = gantryd_stop();
		if (agent != world.agent || left)
			say_log();
		if (!getenv("GANTRY_TEST_KEEP"))
			remove_tree(world.root);
		ck_assert_msg(agent == world.agent, "the agent died during the test");
		ck_assert_msg(left == 0, "%u processes outlived gantryd's orderly end", left);
	}
}

TCase *world_case(Suite *suite, const char *name, enum world_kind kind)
{
	static void (*const starts[])(void) = { start_engine, start_agent,
						start_agent_on_small_disk };
	TCase *tc = gantry_unit_case(suite, name);

	tcase_set_timeout(tc, 40);
	tcase_add_checked_fixture(tc, starts[kind], end);
	return tc;
}

void world_config(const char *text)
{
	more_config = text;
}

/* ---- sessions ---- */

/* The library's object of an in-process attacker: only its memory is wanted. */
static struct gantry_session *engine_sessions[INPROC_MAX_SESSIONS];

void world_hostile(struct hostile *h)
{
	struct gantry_door_hello hello;
	char door[108], text[GANTRY_DOOR_TEXT];
	struct gantry_session *s;
	uint32_t index;
	int r;

	if (world.kind == WORLD_ENGINE) {
		ck_assert_int_eq(inproc_open(world.host, NULL, &s, &index), GANTRY_OK);
		engine_sessions[index] = s;
		hostile_adopt(h, world.host->sessions[index].segment_fd,
			      world.host->sessions[index].bell_fd);
		h->welcome.session_id = index; /* for world_hostile_end() */
		return;
	}
	world_door(door, "red");
	r = hostile_connect(h, door);
	ck_assert_int_eq(r, 0);
	hostile_hello_init(&hello);
	r = hostile_attach(h, &hello, text);
	ck_assert_msg(r == GANTRY_OK, "%d: %s", r, text);
}

void world_hostile_end(struct hostile *h)
{
	uint64_t index = h->welcome.session_id;

	hostile_close(h);
	if (world.kind == WORLD_ENGINE) {
		gantry_close(engine_sessions[index]);
		engine_sessions[index] = NULL;
		inproc_detach(world.host, (uint32_t)index);
	}
}

int world_open(struct gantry_session **ret_session)
{
	char door[108];
	uint32_t index;

	if (world.kind == WORLD_ENGINE)
		return inproc_open(world.host, NULL, ret_session, &index);
	world_door(door, "red");
	return gantry_open(door, NULL, ret_session);
}
