/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor: looks at the installation as an administrator would, and says what to do. What this process cannot see, the
 * agent is asked.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/ctl/cdi.h"
#include "host-agent/ctl/elffile.h"
#include "host-agent/ctl/find.h"
#include "host-agent/ctl/print.h"
#include "host-agent/ctl/verbs.h"

#define CDI_FILE_MAX 65536u

struct findings {
	struct gantry_ctl *ctl;
	Gantry__Admin__Check **list; /* owned, room for cap of them */
	size_t n, cap;
	bool failed;
};

static void add(struct findings *f, const char *name, const char *state, const char *advice,
		const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* One more, empty; NULL without memory, which is told: there may be what nobody reads of. */
static Gantry__Admin__Check *new_check(struct findings *f)
{
	size_t cap = f->cap ? 2 * f->cap : 64;
	Gantry__Admin__Check **list = f->n < f->cap ? f->list
						    : reallocarray(f->list, cap, sizeof(*list));
	Gantry__Admin__Check *check = list ? malloc(sizeof(*check)) : NULL;

	if (list && f->n == f->cap)
		f->cap = cap;
	f->list = list ? list : f->list;
	if (!check) {
		fprintf(f->ctl->err, "gantryctl: no memory for all that was found\n");
		f->failed = true;
		return NULL;
	}
	gantry__admin__check__init(check);
	f->list[f->n++] = check;
	return check;
}

/* @advice may be NULL. */
static void add(struct findings *f, const char *name, const char *state, const char *advice,
		const char *fmt, ...)
{
	Gantry__Admin__Check *check;
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* a longer sentence is cut short */
	va_end(ap);
	if (strcmp(state, "fail") == 0)
		f->failed = true;
	check = new_check(f);
	if (!check)
		return;
	check->name = strdup(name);
	check->state = strdup(state);
	check->text = strdup(text);
	check->advice = strdup(advice ? advice : "");
}

static void findings_fini(struct findings *f)
{
	for (size_t i = 0; i < f->n; i++) {
		free(f->list[i]->name);
		free(f->list[i]->state);
		free(f->list[i]->text);
		free(f->list[i]->advice);
		free(f->list[i]);
	}
	free(f->list);
}

/* --- what this process can see --- */

static void check_programs(struct findings *f)
{
	static const char *const names[] = { "gantryd", "gantry-worker" };
	char path[PATH_MAX];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (gantry_find_program(names[i], path) == 0)
			add(f, names[i], "ok", NULL, "%s", path);
		else
			add(f, names[i], "warn",
			    "install the gantry host package, if this is a host with accelerators",
			    "not found beside gantryctl, nor installed");
	if (gantry_find_library(path) == 0)
		add(f, "libgantry", "ok", NULL, "%s", path);
	else
		add(f, "libgantry", "warn",
		    "install it, or containers have to bring their own libgantry.so.0",
		    "not found beside gantryctl, nor installed");
}

static void check_groups(struct findings *f)
{
	static const char *const names[] = { "gantry", "gantry-admin" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (getgrnam(names[i]))
			add(f, "groups", "ok", NULL, "group %s exists", names[i]);
		else
			add(f, "groups", "warn",
			    i == 0 ? "groupadd --system gantry, and add who may look"
				   : "groupadd --system gantry-admin, and add who may change things",
			    "no group %s: only root and the agent's own user are served", names[i]);
}

/* A socket that strangers may write to lets them in. */
static void check_socket(struct findings *f, const char *name, const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		add(f, name, "fail", "start gantryd, or name its socket with --socket", "%s: %s",
		    path, strerror(errno));
	else if (!S_ISSOCK(st.st_mode))
		add(f, name, "fail", "remove it and restart gantryd", "%s is no socket", path);
	else if (st.st_mode & S_IWOTH)
		add(f, name, "fail", "set its mode to 0660 in the configuration",
		    "%s is open to everybody (mode %04o)", path,
		    (unsigned int)(st.st_mode & 07777));
	else
		add(f, name, "ok", NULL, "%s, mode %04o", path, (unsigned int)(st.st_mode & 07777));
}

static void check_kernel(struct findings *f)
{
	_cleanup_free_ char *actions = NULL;
	int fd = -EBADF;
	int r = gantry_memfd_create("gantry-doctor", 4096, GANTRY_MEMFD_SEALED, &fd);

	gantry_fd_close(fd);
	if (r < 0)
		add(f, "memfd", "fail", "a kernel of version 4.14 or later is needed",
		    "no sealed shared memory: %s", strerror(-r));
	else
		add(f, "memfd", "ok", NULL, "sealed shared memory works");
	if (gantry_file_read("/proc/sys/kernel/seccomp/actions_avail", 4096, &actions, NULL) < 0)
		add(f, "seccomp", "warn", "workers then run without a system call filter",
		    "this kernel has no seccomp filters");
	else
		add(f, "seccomp", "ok", NULL, "the kernel has system call filters");
	if (access("/sys/fs/cgroup", W_OK) == 0)
		add(f, "cgroup", "ok", NULL, "/sys/fs/cgroup can be written");
	else
		add(f, "cgroup", "warn",
		    "run gantryd as a service with Delegate=yes, else workers have no limits of their own",
		    "/sys/fs/cgroup: %s", strerror(errno));
	if (access("/proc/self/ns/net", R_OK) == 0)
		add(f, "namespaces", "ok", NULL, "the kernel has network namespaces");
	else
		add(f, "namespaces", "warn", "workers then share the host's network",
		    "no network namespaces");
}

static size_t count_manifests(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	size_t n = 0;

	while (dir && (entry = readdir(dir))) {
		size_t len = strlen(entry->d_name);

		n += len > 9 && strcmp(entry->d_name + len - 9, ".manifest") == 0;
	}
	if (dir)
		closedir(dir);
	return n;
}

static void check_modules(struct findings *f)
{
	size_t n = count_manifests(GANTRY_LIBDIR "/gantry/kernels");

	if (n > 0)
		add(f, "modules", "ok", NULL,
		    "%zu kernel modules in " GANTRY_LIBDIR "/gantry/kernels", n);
	else
		add(f, "modules", "warn",
		    "install kernel modules there, or set module_dirs in the configuration",
		    "no kernel modules in " GANTRY_LIBDIR "/gantry/kernels");
}

/* --- with the agent's help --- */

static void check_door(struct findings *f, const Gantry__Admin__Tenant *tenant)
{
	char name[64];

	(void)gantry_str_format(name, sizeof(name), "door %s",
				tenant->config->name); /* cut is fine */
	if (strcmp(tenant->state, "open") != 0)
		add(f, name, "fail", "see the agent's log; gantryctl reload tries again", "%s",
		    tenant->state);
	else if (access(tenant->config->door, F_OK) < 0)
		add(f, name, "fail", "restart gantryd", "%s: %s", tenant->config->door,
		    strerror(errno));
	else
		add(f, name, "ok", NULL, "%s, mode %s", tenant->config->door,
		    tenant->config->door_mode);
}

/* What --wheels was when @text was written, which ends there then; NULL: there was none. */
static const char *wheels_of(char *text)
{
	char *end = strstr(text, "/nvidia/cu13/lib/libcudart.so.13\"");

	if (!end)
		return NULL;
	*end = '\0';
	return strrchr(text, '"') ? strrchr(text, '"') + 1 : NULL;
}

/* Is @path, if it is there, what would be written today? */
static void check_cdi_file(struct findings *f, const char *path, const char *tenant,
			   const char *door)
{
	_cleanup_free_ char *seen = NULL, *wanted = NULL, *copy = NULL;
	struct gantry_cdi cdi = { .tenant = tenant,
				  .door = door,
				  .library_at = GANTRY_CDI_LIBRARY_AT };
	char library[PATH_MAX], opencl[PATH_MAX], icd[PATH_MAX], cuda[PATH_MAX];

	if (gantry_file_read(path, CDI_FILE_MAX, &seen, NULL) < 0)
		return;
	if (gantry_find_library(library) == 0)
		cdi.library = library;
	if (cdi.library && gantry_find_opencl(opencl, icd) == 0) {
		cdi.opencl = opencl;
		cdi.opencl_icd = icd;
	}
	if (gantry_find_cuda(cuda) == 0) {
		*strrchr(cuda, '/') = '\0';
		cdi.cuda = cuda;
		copy = strdup(seen);
		cdi.wheels = copy ? wheels_of(copy) : NULL;
	}
	wanted = gantry_cdi_text(&cdi);
	if (wanted && strcmp(seen, wanted) == 0)
		add(f, "cdi", "ok", NULL, "%s", path);
	else
		add(f, "cdi", "warn", "gantryctl cdi generate writes it anew",
		    "%s is not what would be written today", path);
}

/* A file for a tenant that is gone gives a container a mount that fails. */
static void check_cdi_orphans(struct findings *f, const char *dir_path,
			      const Gantry__Admin__TenantList *tenants)
{
	DIR *dir = opendir(dir_path);
	struct dirent *entry;
	char wanted[NAME_MAX + 1];

	while (dir && (entry = readdir(dir))) {
		bool known = false;

		if (!gantry_str_starts(entry->d_name, "gantry-"))
			continue;
		for (size_t i = 0; i < tenants->n_tenants && !known; i++)
			known = tenants->tenants[i]->config &&
				gantry_str_format(wanted, sizeof(wanted), "gantry-%s.json",
						  tenants->tenants[i]->config->name) == 0 &&
				strcmp(wanted, entry->d_name) == 0;
		if (!known)
			add(f, "cdi", "warn", "remove it",
			    "%s/%s is for a tenant that does not exist", dir_path, entry->d_name);
	}
	if (dir)
		closedir(dir);
}

static void check_cdi(struct findings *f, const Gantry__Admin__TenantList *tenants)
{
	const char *named = gantry_ctl_option(f->ctl, "cdi-dir");
	const char *dirs[] = { named ? named : "/etc/cdi", named ? NULL : GANTRY_CDI_DIR };
	char path[PATH_MAX];

	for (size_t d = 0; d < 2 && dirs[d]; d++) {
		for (size_t i = 0; i < tenants->n_tenants; i++) {
			const Gantry__Admin__TenantSet *config = tenants->tenants[i]->config;

			if (config && *config->door &&
			    gantry_cdi_path(dirs[d], config->name, path, sizeof(path)) == 0)
				check_cdi_file(f, path, config->name, config->door);
		}
		check_cdi_orphans(f, dirs[d], tenants);
	}
}

static bool ask(struct findings *f, int body, Gantry__Admin__AdminReply **ret_reply)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__Empty empty = GANTRY__ADMIN__EMPTY__INIT;
	struct gantry_err err = GANTRY_ERR_NONE;
	int r;

	request.body_case = (Gantry__Admin__AdminRequest__BodyCase)body;
	request.doctor = &empty; /* the members of the union are one pointer */
	r = gantry_ctl_ask_quietly(f->ctl, &request, ret_reply, &err);
	if (r == 0 && (*ret_reply)->code == 0)
		return true;
	add(f, "agent", "fail",
	    r == 0 || r == -EACCES ? "ask as root or as a member of gantry"
				   : "start gantryd; its log says more",
	    "%s", r == 0 ? (*ret_reply)->text : err.text);
	return false;
}

static void check_agent(struct findings *f)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *tenants = NULL,
								       *doctor = NULL;

	if (!ask(f, GANTRY__ADMIN__ADMIN_REQUEST__BODY_TENANT_LIST, &tenants))
		return;
	add(f, "agent", "ok", NULL, "answers at %s", f->ctl->socket_path);
	if (tenants->body_case == GANTRY__ADMIN__ADMIN_REPLY__BODY_TENANTS) {
		if (tenants->tenants->n_tenants == 0)
			add(f, "tenants", "warn", "gantryctl tenant create NAME --mem SIZE",
			    "there is no tenant yet");
		for (size_t i = 0; i < tenants->tenants->n_tenants; i++)
			if (tenants->tenants->tenants[i]->config)
				check_door(f, tenants->tenants->tenants[i]);
		check_cdi(f, tenants->tenants);
	}
	if (!ask(f, GANTRY__ADMIN__ADMIN_REQUEST__BODY_DOCTOR, &doctor) ||
	    doctor->body_case != GANTRY__ADMIN__ADMIN_REPLY__BODY_DOCTOR)
		return;
	for (size_t i = 0; i < doctor->doctor->n_checks; i++) {
		const Gantry__Admin__Check *check = doctor->doctor->checks[i];

		add(f, check->name, check->state, check->advice, "%s", check->text);
	}
}

/* --- what the machine has --- */

/* A driver may take seconds, and a broken one for ever. */
#define PROBE_TIMEOUT_MS 30000
#define PROBE_BYTES	 65536u

/* All that the worker program prints of itself, in @text; 0 or -errno. */
static int run_probe(const char *path, char text[PROBE_BYTES])
{
	uint64_t end_ns = gantry_now_ns() + PROBE_TIMEOUT_MS * GANTRY_NS_PER_MS;
	size_t len = 0;
	ssize_t n = -1;
	int fds[2], status = 0;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		if (dup2(fds[1], STDOUT_FILENO) >= 0)
			execl(path, path, "--probe", (char *)NULL);
		_exit(127);
	}
	gantry_fd_close(fds[1]);
	while (pid > 0 && len + 1 < PROBE_BYTES) {
		struct pollfd p = { .fd = fds[0], .events = POLLIN };

		if (poll(&p, 1, gantry_deadline_poll_ms(end_ns)) <= 0)
			break;
		n = read(fds[0], text + len, PROBE_BYTES - 1 - len);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	text[len] = '\0';
	gantry_fd_close(fds[0]);
	if (pid < 0)
		return -EAGAIN;
	if (n != 0) /* it has not ended its output */
		(void)kill(pid, SIGKILL);
	(void)waitpid(pid, &status, 0);
	return n != 0 ? -ETIMEDOUT : WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static const char *member(json_object *object, const char *key)
{
	json_object *value = json_object_object_get(object, key);

	return value ? json_object_get_string(value) : "";
}

static void add_probed(struct findings *f, json_object *device)
{
	json_object *section = json_object_object_get(device, "section");
	json_object *mem = json_object_object_get(device, "mem_bytes");
	char keys[256] = "", size[GANTRY_QUANTITY_MAX];

	for (size_t i = 0; section && i < json_object_array_length(section); i++) {
		size_t len = strlen(keys);

		(void)snprintf(keys + len, sizeof(keys) - len, ", %s", /* for people */
			       json_object_get_string(json_object_array_get_idx(section, i)));
	}
	gantry_size_format((uint64_t)json_object_get_int64(mem), size);
	add(f, "hardware", "ok", NULL, "%s%s%s, %s: backend=%s%s", member(device, "model"),
	    *member(device, "id") ? " " : "", member(device, "id"), size, member(device, "backend"),
	    keys);
}

/* What could be configured: whether it is, the agent's own findings say. */
static void check_hardware(struct findings *f)
{
	char path[PATH_MAX], text[PROBE_BYTES];
	json_object *found, *list;
	int r;

	if (gantry_find_program("gantry-worker", path) < 0)
		return; /* told already */
	r = run_probe(path, text);
	found = r == 0 ? json_tokener_parse(text) : NULL;
	if (!found) {
		add(f, "hardware", "warn", "run gantry-worker --probe by hand, as root",
		    "devices could not be looked for: %s",
		    r < 0 ? strerror(-r) : "the worker printed something else");
		return;
	}
	list = json_object_object_get(found, "devices");
	for (size_t i = 0; list && i < json_object_array_length(list); i++)
		add_probed(f, json_object_array_get_idx(list, i));
	if (!list || json_object_array_length(list) == 0)
		add(f, "hardware", "ok", NULL, "no device but the host's processors was found");
	list = json_object_object_get(found, "problems");
	for (size_t i = 0; list && i < json_object_array_length(list); i++) {
		json_object *problem = json_object_array_get_idx(list, i);

		add(f, "hardware",
		    json_object_get_boolean(json_object_object_get(problem, "absent")) ? "ok"
										       : "warn",
		    NULL, "%s: %s", member(problem, "backend"), member(problem, "text"));
	}
	json_object_put(found);
}

/* A program that somebody wants to run with CUDA, or a library of one. */
static void check_file(struct findings *f, const char *path)
{
	struct gantry_elf elf;
	int r = gantry_elf_look(path, &elf);

	if (r < 0)
		add(f, "program", "fail", "name files of programs or libraries", "%s: %s", path,
		    strerror(-r));
	else if (!elf.is_elf)
		add(f, "program", "ok", NULL, "%s is no ELF file: what it loads counts", path);
	else if (elf.has_static_runtime)
		add(f, "program", "fail", "link it with nvcc -cudart shared",
		    "%s has NVIDIA's static runtime inside and will find no device", path);
	else if (elf.names_wheels)
		add(f, "program", "warn",
		    "put Gantry's libraries in the place of the wheels' (gantryctl cdi generate "
		    "--wheels, docs/cuda-libraries.md)",
		    "%s takes NVIDIA's libraries from wheels beside it, before LD_LIBRARY_PATH",
		    path);
	else
		add(f, "program", "ok", NULL, "%s takes CUDA from the libraries it finds", path);
}

static int report(struct findings *f)
{
	json_object *object;
	int r;

	if (f->ctl->json) {
		object = gantry_ctl_json_new();
		json_object_object_add(object, "ok", json_object_new_boolean(!f->failed));
		json_object_object_add(object, "checks",
				       gantry_print_json_array(&gantry_check_fields,
							       (const void *const *)f->list, f->n));
		gantry_ctl_json_print(f->ctl, object);
		return f->failed ? GANTRY_CTL_FAILED : GANTRY_CTL_OK;
	}
	r = gantry_print_table(f->ctl, f->ctl->out, &gantry_check_fields,
			       (const void *const *)f->list, f->n);
	if (r)
		return r;
	for (size_t i = 0; i < f->n; i++)
		if (strcmp(f->list[i]->state, "ok") != 0 && *f->list[i]->advice)
			fprintf(f->ctl->out, "%s: %s\n", f->list[i]->name, f->list[i]->advice);
	return f->failed ? GANTRY_CTL_FAILED : GANTRY_CTL_OK;
}

int gantry_ctl_doctor(struct gantry_ctl *ctl)
{
	struct findings f = { .ctl = ctl };
	int r;

	check_programs(&f);
	check_groups(&f);
	check_kernel(&f);
	check_modules(&f);
	check_hardware(&f);
	check_socket(&f, "admin socket", ctl->socket_path);
	check_agent(&f);
	for (int i = 0; i < ctl->nargs; i++)
		check_file(&f, ctl->args[i]);
	r = report(&f);
	findings_fini(&f);
	return r;
}
