/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs that become another program: run, config check, demo. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/ctl/cdi.h"
#include "host-agent/ctl/context.h"
#include "host-agent/ctl/elffile.h"
#include "host-agent/ctl/find.h"
#include "host-agent/ctl/verbs.h"

/* --- run --- */

/* Where the door is when the agent does not let us ask: beside its admin socket. */
static void usual_door(const struct gantry_ctl *ctl, const char *tenant, char door[PATH_MAX])
{
	const char *slash = strrchr(ctl->socket_path, '/');
	int len = slash ? (int)(slash - ctl->socket_path) : 0;

	(void)gantry_str_format(door, PATH_MAX, "%.*s/doors/%s/door", len, ctl->socket_path,
				tenant); /* connect() will say */
}

static int find_door(struct gantry_ctl *ctl, const char *tenant, char door[PATH_MAX])
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__Empty empty = GANTRY__ADMIN__EMPTY__INIT;

	usual_door(ctl, tenant, door);
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_TENANT_LIST;
	request.tenant_list = &empty;
	/* Whoever may use a door need not be allowed to administer: then the usual place has to do. */
	if (gantry_ctl_ask_quietly(ctl, &request, &reply, NULL) < 0 ||
	    reply->body_case != GANTRY__ADMIN__ADMIN_REPLY__BODY_TENANTS)
		return 0;
	for (size_t i = 0; i < reply->tenants->n_tenants; i++) {
		const Gantry__Admin__TenantSet *config = reply->tenants->tenants[i]->config;

		if (config && strcmp(config->name, tenant) == 0) {
			if (*config->door)
				(void)gantry_str_copy(door, PATH_MAX, config->door);
			return 0;
		}
	}
	return gantry_ctl_fail(ctl, GANTRY_CTL_NOT_FOUND,
			       "there is no tenant %s; see gantryctl tenant list", tenant);
}

static int check_door(struct gantry_ctl *ctl, const char *tenant, const char *door)
{
	_cleanup_close_ int sock = -EBADF;
	int r = gantry_unix_connect(door, SOCK_SEQPACKET | SOCK_NONBLOCK, &sock);

	switch (r) {
	case 0:
	case -EAGAIN: /* there, and busy */
		return 0;
	case -EACCES:
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_DENIED,
			"the door of %s at %s does not admit you; its owner and mode are in "
			"gantryctl tenant show %s",
			tenant, door, tenant);
	case -ENOENT:
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_NOT_FOUND,
			"there is no door at %s: no such tenant, or no agent; see gantryctl doctor",
			door);
	case -ECONNREFUSED:
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_UNREACHABLE,
			"nobody answers at the door %s; start gantryd, or see gantryctl doctor",
			door);
	default:
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "the door %s: %s", door,
				       strerror(-r));
	}
}

/*
 * Where the OpenCL driver is installed, loaders know of it. Elsewhere they are told, unless somebody has told them something:
 * they then find it alone.
 */
static int tell_opencl(void)
{
	char library[PATH_MAX], icd[PATH_MAX];

	if (access(GANTRY_CDI_ICD_AT, R_OK) == 0 || getenv("OCL_ICD_VENDORS") ||
	    gantry_find_opencl(library, icd) < 0)
		return 0;
	return setenv("OCL_ICD_VENDORS", library, 1);
}

/*
 * Our libraries for programs of CUDA come first: whoever runs a program behind a door means the door's devices, whatever
 * driver this machine has.
 */
static int tell_cuda(void)
{
	const char *others = getenv("LD_LIBRARY_PATH");
	_cleanup_free_ char *all = NULL;
	char library[PATH_MAX];

	if (gantry_find_cuda(library) < 0)
		return 0;
	*strrchr(library, '/') = '\0';
	if (strchr(library, ':')) /* a folder that no such list can hold */
		return 0;
	if (asprintf(&all, "%s%s%s", library, others && *others ? ":" : "", others ? others : "") <
	    0) {
		all = NULL;
		return -ENOMEM;
	}
	return setenv("LD_LIBRARY_PATH", all, 1);
}

/* The program as execvp() will find it, or as it was named. */
static void find_in_path(const char *name, char ret_path[PATH_MAX])
{
	const char *folders = getenv("PATH");

	(void)gantry_str_copy(ret_path, PATH_MAX, name);
	for (; !strchr(name, '/') && folders && *folders; folders += strspn(folders, ":")) {
		int len = (int)strcspn(folders, ":");

		if (gantry_str_format(ret_path, PATH_MAX, "%.*s/%s", len, folders, name) == 0 &&
		    access(ret_path, X_OK) == 0)
			return;
		folders += len;
	}
}

/* A program that brings NVIDIA's runtime with it uses nothing of ours, and finds no device. */
static void warn_of_static_runtime(const struct gantry_ctl *ctl, const char *name)
{
	char path[PATH_MAX], library[PATH_MAX];
	struct gantry_elf elf;

	if (gantry_find_cuda(library) < 0)
		return; /* there is nothing that it could use */
	find_in_path(name, path);
	if (gantry_elf_look(path, &elf) == 0 && elf.has_static_runtime)
		fprintf(ctl->err,
			"gantryctl: %s has NVIDIA's static runtime inside and will find no device: "
			"link it with nvcc -cudart shared\n",
			path);
}

int gantry_ctl_run(struct gantry_ctl *ctl)
{
	char door[PATH_MAX], where[PATH_MAX + sizeof("unix:")];
	const char *tenant = ctl->args[0];
	char **command = ctl->args + 1;
	int r;

	if (strcmp(command[0], "--") == 0)
		command++;
	if (!command[0])
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "run what? usage: gantryctl run TENANT -- COMMAND");
	if (!gantry_name_valid(tenant))
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE, "\"%s\" is no name of a tenant",
				       tenant);
	r = find_door(ctl, tenant, door);
	if (!r)
		r = check_door(ctl, tenant, door);
	if (r)
		return r;
	(void)gantry_str_format(where, sizeof(where), "unix:%s", door); /* fits */
	if (setenv("GANTRY_DOOR", where, 1) < 0 || tell_opencl() < 0 || tell_cuda() < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "no memory");
	warn_of_static_runtime(ctl, command[0]);
	gantry_ctl_fini(ctl);
	execvp(command[0], command);
	return gantry_ctl_fail(ctl, errno == ENOENT ? GANTRY_CTL_NOT_FOUND : GANTRY_CTL_FAILED,
			       "cannot run %s: %s", command[0], strerror(errno));
}

/* --- config check --- */

#define CHECK_OUTPUT_MAX (1024u * 1024u)

/* Runs @argv; its output, of both kinds, is malloc'd. Returns its exit code, or -errno. */
static int capture(char *const *argv, char **ret_text)
{
	int fds[2], status;
	size_t len = 0;
	FILE *text;
	pid_t pid;
	char buf[4096];
	ssize_t n;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		if (dup2(fds[1], STDOUT_FILENO) >= 0 && dup2(fds[1], STDERR_FILENO) >= 0)
			execvp(argv[0], argv);
		_exit(127);
	}
	gantry_fd_close(fds[1]);
	*ret_text = NULL;
	text = pid > 0 ? open_memstream(ret_text, &len) : NULL;
	while (text && ((n = read(fds[0], buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR)))
		if (n > 0 && len < CHECK_OUTPUT_MAX) {
			(void)fwrite(buf, 1, (size_t)n, text); /* what does not fit is not shown */
			(void)fflush(text);
		}
	gantry_fd_close(fds[0]);
	if (text)
		fclose(text);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -ECHILD;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* "FILE:LINE: sentence", or a sentence of another form. */
static json_object *problem_json(const char *line)
{
	json_object *problem = json_object_new_object();
	const char *colon;
	char *end = NULL;
	long number;

	if (gantry_str_starts(line, "gantryd: "))
		line += strlen("gantryd: ");
	colon = strchr(line, ':');
	number = colon ? strtol(colon + 1, &end, 10) : 0;
	if (number > 0 && end && end[0] == ':') {
		json_object_object_add(problem, "file",
				       json_object_new_string_len(line, (int)(colon - line)));
		json_object_object_add(problem, "line", json_object_new_int64(number));
		line = end + 1 + (end[1] == ' ');
	}
	json_object_object_add(problem, "text", json_object_new_string(line));
	return problem;
}

static int report_check(struct gantry_ctl *ctl, int code, char *text)
{
	json_object *object, *problems;
	char *save = NULL;

	if (!ctl->json) {
		fputs(text, ctl->out);
		if (code == 0 && !*text)
			fprintf(ctl->out, "the configuration is good\n");
		return code == 0 ? GANTRY_CTL_OK : GANTRY_CTL_FAILED;
	}
	object = gantry_ctl_json_new();
	problems = json_object_new_array();
	for (char *line = strtok_r(text, "\n", &save); line && code;
	     line = strtok_r(NULL, "\n", &save))
		json_object_array_add(problems, problem_json(line));
	json_object_object_add(object, "ok", json_object_new_boolean(code == 0));
	json_object_object_add(object, "problems", problems);
	gantry_ctl_json_print(ctl, object);
	return code == 0 ? GANTRY_CTL_OK : GANTRY_CTL_FAILED;
}

int gantry_ctl_config_check(struct gantry_ctl *ctl)
{
	const char *named = getenv("GANTRY_PROGRAM_GANTRYD");
	char path[PATH_MAX] = "gantryd";
	char *argv[] = { path, (char *)"--check-config", NULL, NULL, NULL };
	_cleanup_free_ char *text = NULL;
	int code;

	if (named && *named)
		(void)gantry_str_copy(path, sizeof(path), named);
	else
		(void)gantry_find_program("gantryd", path); /* else by $PATH */
	if (ctl->nargs > 0) {
		if (access(ctl->args[0], R_OK) < 0)
			return gantry_ctl_fail(
				ctl, errno == ENOENT ? GANTRY_CTL_NOT_FOUND : GANTRY_CTL_DENIED,
				"%s: %s", ctl->args[0], strerror(errno));
		argv[2] = (char *)"--config";
		argv[3] = ctl->args[0];
	}
	code = capture(argv, &text);
	if (code < 0 || code == 127 || !text)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED,
				       "cannot run gantryd, which knows its configuration; "
				       "is it installed?");
	return report_check(ctl, code, text);
}

/* --- demo --- */

int gantry_ctl_demo(struct gantry_ctl *ctl)
{
	static const char *const valued[][2] = {
		{ "output", "--output" },
		{ "gpu", "--gpu" },
		{ "device", "--device" },
	};
	char path[PATH_MAX];
	char *argv[9] = { path };
	int argc = 1;

	if (gantry_find_program("gantry-demo", path) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_NOT_FOUND,
				       "the demo is not installed here; in the source tree, "
				       "./dev demo builds and runs it");
	if (ctl->json)
		return gantry_ctl_fail(ctl, GANTRY_CTL_UNSUPPORTED,
				       "demo: it is for people, and has no --json");
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(valued); i++) {
		const char *value = gantry_ctl_option(ctl, valued[i][0]);

		if (value) {
			argv[argc++] = (char *)valued[i][1];
			argv[argc++] = (char *)value;
		}
	}
	if (gantry_ctl_option(ctl, "log"))
		argv[argc++] = (char *)"--log";
	execv(path, argv);
	return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "cannot run %s: %s", path, strerror(errno));
}
