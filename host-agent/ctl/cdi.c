/* SPDX-License-Identifier: Apache-2.0 */
#include "cdi.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/ctl/context.h"
#include "host-agent/ctl/find.h"
#include "host-agent/ctl/verbs.h"

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The folder that @path is in. */
static int dir_name(const char *path, char *buf, size_t cap)
{
	const char *slash = strrchr(path, '/');

	if (!slash || slash == path || (size_t)(slash - path) >= cap)
		return -EINVAL;
	memcpy(buf, path, (size_t)(slash - path));
	buf[slash - path] = '\0';
	return 0;
}

static json_object *mount_json(const char *from, const char *to, const char *const *options)
{
	json_object *mount = json_object_new_object();
	json_object *list = json_object_new_array();

	for (; *options; options++)
		json_object_array_add(list, json_object_new_string(*options));
	json_object_object_add(mount, "hostPath", json_object_new_string(from));
	json_object_object_add(mount, "containerPath", json_object_new_string(to));
	json_object_object_add(mount, "options", list);
	return mount;
}

/* Read-only does not stop connect(): it is about files, and a door is a socket. */
static const char *const door_options[] = { "ro", "nosuid", "nodev", "noexec", "bind", NULL };
static const char *const library_options[] = { "ro", "nosuid", "nodev", "bind", NULL };

/* Where containers see the OpenCL driver: loaders know it by its name, and find it where libgantry is found. */
static int opencl_at(const struct gantry_cdi *cdi, char *path, size_t cap)
{
	char dir[PATH_MAX];
	int r = dir_name(cdi->library_at, dir, sizeof(dir));

	return r < 0 ? r : gantry_str_format(path, cap, "%s/" GANTRY_CDI_OPENCL, dir);
}

/*
 * The folder of a wheel that has library @name; NULL: none has, or what it does is done without a GPU, and NVIDIA's own
 * serves best (its compilers).
 */
static const char *wheel_of(const char *name)
{
	static const struct {
		const char *begins;
		const char *wheel;
	} wheels[] = {
		{ "libgantry", NULL },	     { "libcuda.so", NULL },
		{ "libnvidia-ml", NULL },    { "libnvrtc", NULL },
		{ "libnvJitLink", NULL },    { "libcudnn", "cudnn" },
		{ "libnccl", "nccl" },	     { "libcusparseLt", "cusparselt" },
		{ "libnvshmem", "nvshmem" }, { "lib", "cu13" },
	};

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(wheels); i++)
		if (gantry_str_starts(name, wheels[i].begins))
			return wheels[i].wheel;
	return NULL;
}

static int is_library(const struct dirent *entry)
{
	return strstr(entry->d_name, ".so.") && !strpbrk(entry->d_name, ": \t\n,\"'\\$`");
}

typedef void visit_fn(const char *from, const char *to, void *cookie);

/* Each library that goes into a wheel's place: where it is, and where containers have it. In the order of their names. */
static void each_wheel(const struct gantry_cdi *cdi, visit_fn *visit, void *cookie)
{
	struct dirent **found = NULL;
	int n = cdi->cuda && cdi->wheels ? scandir(cdi->cuda, &found, is_library, alphasort) : 0;

	for (int i = 0; i < n; i++) {
		const char *wheel = wheel_of(found[i]->d_name);
		char from[PATH_MAX], to[PATH_MAX];

		if (wheel &&
		    gantry_str_format(from, sizeof(from), "%s/%s", cdi->cuda, found[i]->d_name) ==
			    0 &&
		    gantry_str_format(to, sizeof(to), "%s/nvidia/%s/lib/%s", cdi->wheels, wheel,
				      found[i]->d_name) == 0)
			visit(from, to, cookie);
		free(found[i]);
	}
	free(found);
}

static void add_wheel(const char *from, const char *to, void *cookie)
{
	json_object_array_add(cookie, mount_json(from, to, library_options));
}

static json_object *mounts_json(const struct gantry_cdi *cdi)
{
	json_object *mounts = json_object_new_array();
	char dir[PATH_MAX] = "";

	(void)dir_name(cdi->door, dir, sizeof(dir)); /* checked before */
	json_object_array_add(mounts, mount_json(dir, GANTRY_CDI_DOOR_DIR, door_options));
	if (cdi->library)
		json_object_array_add(mounts,
				      mount_json(cdi->library, cdi->library_at, library_options));
	if (cdi->opencl) {
		(void)opencl_at(cdi, dir, sizeof(dir)); /* as long as the library's place, nearly */
		json_object_array_add(mounts, mount_json(cdi->opencl, dir, library_options));
		json_object_array_add(mounts,
				      mount_json(cdi->opencl_icd, GANTRY_CDI_ICD_AT, door_options));
	}
	if (cdi->cuda)
		json_object_array_add(mounts,
				      mount_json(cdi->cuda, GANTRY_CDI_CUDA_AT, library_options));
	each_wheel(cdi, add_wheel, mounts);
	return mounts;
}

static json_object *env_json(const struct gantry_cdi *cdi)
{
	json_object *env = json_object_new_array();
	char text[PATH_MAX];

	(void)gantry_str_format(text, sizeof(text), "GANTRY_DOOR=unix:" GANTRY_CDI_DOOR_DIR "/%s",
				base_name(cdi->door)); /* shorter than the door's path allows */
	json_object_array_add(env, json_object_new_string(text));
	if (cdi->cuda)
		json_object_array_add(
			env, json_object_new_string("LD_LIBRARY_PATH=" GANTRY_CDI_CUDA_AT));
	return env;
}

json_object *gantry_cdi_json(const struct gantry_cdi *cdi)
{
	json_object *file = json_object_new_object();
	json_object *devices = json_object_new_array();
	json_object *device = json_object_new_object();
	json_object *edits = json_object_new_object();

	json_object_object_add(edits, "env", env_json(cdi));
	json_object_object_add(edits, "mounts", mounts_json(cdi));
	json_object_object_add(device, "name", json_object_new_string(cdi->tenant));
	json_object_object_add(device, "containerEdits", edits);
	json_object_array_add(devices, device);
	json_object_object_add(file, "cdiVersion", json_object_new_string(GANTRY_CDI_VERSION));
	json_object_object_add(file, "kind", json_object_new_string(GANTRY_CDI_KIND));
	json_object_object_add(file, "devices", devices);
	return file;
}

char *gantry_cdi_text(const struct gantry_cdi *cdi)
{
	json_object *file = gantry_cdi_json(cdi);
	const char *json = json_object_to_json_string_ext(
		file,
		JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE);
	char *text = NULL;

	if (json && asprintf(&text, "%s\n", json) < 0)
		text = NULL;
	json_object_put(file);
	return text;
}

int gantry_cdi_path(const char *dir, const char *tenant, char *buf, size_t cap)
{
	return gantry_str_format(buf, cap, "%s/gantry-%s.json", dir, tenant) < 0 ? -ENAMETOOLONG
										 : 0;
}

/* In "-v FROM:TO:ro" a path cannot hold these, and a shell splits at white space. */
static int check_flag_path(const char *path, struct gantry_err *err)
{
	if (path && strpbrk(path, ": \t\n,\"'\\$`"))
		return gantry_err_set(err, -EINVAL, "%s cannot be written as a flag", path);
	return 0;
}

static int runc_json(const struct gantry_cdi *cdi, FILE *out)
{
	json_object *object = json_object_new_object();
	json_object *process = json_object_new_object();
	json_object *mounts = mounts_json(cdi);

	/* The runtime specification has other names for the same. */
	for (size_t i = 0; i < json_object_array_length(mounts); i++) {
		json_object *mount = json_object_array_get_idx(mounts, i);
		json_object *value;

		if (json_object_object_get_ex(mount, "hostPath", &value))
			json_object_object_add(mount, "source", json_object_get(value));
		if (json_object_object_get_ex(mount, "containerPath", &value))
			json_object_object_add(mount, "destination", json_object_get(value));
		json_object_object_del(mount, "hostPath");
		json_object_object_del(mount, "containerPath");
		json_object_object_add(mount, "type", json_object_new_string("bind"));
	}
	json_object_object_add(process, "env", env_json(cdi));
	json_object_object_add(object, "process", process);
	json_object_object_add(object, "mounts", mounts);
	fprintf(out, "%s\n",
		json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY |
							       JSON_C_TO_STRING_SPACED |
							       JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(object);
	return 0;
}

static void print_wheel(const char *from, const char *to, void *cookie)
{
	fprintf(cookie, " -v %s:%s:ro", from, to);
}

int gantry_cdi_flags(const struct gantry_cdi *cdi, const char *engine, FILE *out,
		     struct gantry_err *err)
{
	char dir[PATH_MAX] = "";

	if (strcmp(engine, "runc") == 0)
		return runc_json(cdi, out);
	if (strcmp(engine, "podman") != 0 && strcmp(engine, "docker") != 0)
		return gantry_err_set(err, -ENOTSUP,
				      "no flags for %s, only for podman, docker and runc", engine);
	if (check_flag_path(cdi->door, err) < 0 || check_flag_path(cdi->library, err) < 0 ||
	    check_flag_path(cdi->library_at, err) < 0 || check_flag_path(cdi->opencl, err) < 0 ||
	    check_flag_path(cdi->opencl_icd, err) < 0 || check_flag_path(cdi->cuda, err) < 0 ||
	    check_flag_path(cdi->wheels, err) < 0)
		return -EINVAL;
	(void)dir_name(cdi->door, dir, sizeof(dir)); /* checked before */
	fprintf(out, "-v %s:" GANTRY_CDI_DOOR_DIR ":ro", dir);
	if (cdi->library)
		fprintf(out, " -v %s:%s:ro", cdi->library, cdi->library_at);
	if (cdi->opencl && opencl_at(cdi, dir, sizeof(dir)) == 0)
		fprintf(out, " -v %s:%s:ro -v %s:" GANTRY_CDI_ICD_AT ":ro", cdi->opencl, dir,
			cdi->opencl_icd);
	if (cdi->cuda)
		fprintf(out, " -v %s:" GANTRY_CDI_CUDA_AT ":ro", cdi->cuda);
	each_wheel(cdi, print_wheel, out);
	if (cdi->cuda)
		fprintf(out, " -e LD_LIBRARY_PATH=" GANTRY_CDI_CUDA_AT);
	fprintf(out, " -e GANTRY_DOOR=unix:" GANTRY_CDI_DOOR_DIR "/%s\n", base_name(cdi->door));
	return 0;
}

/* --- the verb --- */

struct request {
	const char *only;   /* tenant */
	const char *output; /* folder, or "-" */
	const char *engine; /* of --print-flags */
	char library[PATH_MAX];
	bool have_library;
	char opencl[PATH_MAX], opencl_icd[PATH_MAX];
	bool have_opencl;
	char cuda[PATH_MAX];
	bool have_cuda;
	const char *wheels;
	const char *library_at;
	json_object *written; /* paths, for --json */
};

static int choose_library(struct gantry_ctl *ctl, struct request *req)
{
	const char *named = gantry_ctl_option(ctl, "library");
	const char *at = gantry_ctl_option(ctl, "library-at");

	req->library_at = at ? at : GANTRY_CDI_LIBRARY_AT;
	if (named && strcmp(named, "none") == 0)
		return 0;
	if (named) {
		if (!realpath(named, req->library))
			return gantry_ctl_fail(ctl, GANTRY_CTL_NOT_FOUND, "--library %s: %s", named,
					       strerror(errno));
	} else if (gantry_find_library(req->library) < 0) {
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_NOT_FOUND,
			"libgantry.so.0 is not installed; name it with --library, or give "
			"--library none for containers that bring their own");
	}
	req->have_library = true;
	/* Only beside the installed library: who names another one has reasons. */
	req->have_opencl = !named && gantry_find_opencl(req->opencl, req->opencl_icd) == 0;
	return 0;
}

/* The folder that our libcuda.so.1 is in. Like the driver for OpenCL, only beside the installed library if none is named. */
static int choose_cuda(struct gantry_ctl *ctl, struct request *req)
{
	const char *named = gantry_ctl_option(ctl, "cuda");
	char driver[PATH_MAX];

	req->wheels = gantry_ctl_option(ctl, "wheels");
	if (req->wheels && req->wheels[0] != '/')
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "--wheels %s: a path in the container, from /", req->wheels);
	if (named && strcmp(named, "none") == 0) {
		req->have_cuda = false;
	} else if (named) {
		if (gantry_str_format(driver, sizeof(driver), "%s/libcuda.so.1", named) < 0 ||
		    access(driver, R_OK) < 0 || !realpath(named, req->cuda))
			return gantry_ctl_fail(ctl, GANTRY_CTL_NOT_FOUND,
					       "--cuda %s: no folder with our libcuda.so.1", named);
		req->have_cuda = true;
	} else if (!gantry_ctl_option(ctl, "library") && gantry_find_cuda(req->cuda) == 0) {
		*strrchr(req->cuda, '/') = '\0';
		req->have_cuda = true;
	}
	if (req->wheels && !req->have_cuda)
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_NOT_FOUND,
			"--wheels: there are no libraries for programs of CUDA to put "
			"there; name their folder with --cuda");
	return 0;
}

static int write_file(struct gantry_ctl *ctl, struct request *req, const struct gantry_cdi *cdi)
{
	_cleanup_free_ char *text = gantry_cdi_text(cdi);
	char path[PATH_MAX];
	int r;

	if (!text)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "no memory");
	if (strcmp(req->output, "-") == 0) {
		if (ctl->json)
			json_object_array_add(req->written, gantry_cdi_json(cdi));
		else
			fputs(text, ctl->out);
		return 0;
	}
	if (mkdir(req->output, 0755) < 0 && errno != EEXIST)
		return gantry_ctl_fail(ctl, errno == EACCES ? GANTRY_CTL_DENIED : GANTRY_CTL_FAILED,
				       "making %s: %s", req->output, strerror(errno));
	r = gantry_cdi_path(req->output, cdi->tenant, path, sizeof(path));
	if (r == 0)
		r = gantry_file_replace(path, text, strlen(text), 0644);
	if (r < 0)
		return gantry_ctl_fail(
			ctl, r == -EACCES ? GANTRY_CTL_DENIED : GANTRY_CTL_FAILED,
			"writing %s: %s; is that where CDI files belong? see --output", path,
			strerror(-r));
	if (ctl->json)
		json_object_array_add(req->written, json_object_new_string(path));
	else
		fprintf(ctl->out, "%s: --device " GANTRY_CDI_KIND "=%s\n", path, cdi->tenant);
	return 0;
}

static int generate_one(struct gantry_ctl *ctl, struct request *req, const char *tenant,
			const char *door)
{
	struct gantry_cdi cdi = {
		.tenant = tenant,
		.door = door,
		.library = req->have_library ? req->library : NULL,
		.library_at = req->library_at,
		.opencl = req->have_opencl ? req->opencl : NULL,
		.opencl_icd = req->have_opencl ? req->opencl_icd : NULL,
		.cuda = req->have_cuda ? req->cuda : NULL,
		.wheels = req->wheels,
	};
	struct gantry_err err = GANTRY_ERR_NONE;
	char dir[PATH_MAX];
	int r;

	/* Both come from outside: the name becomes part of a path. */
	if (!gantry_name_valid(tenant) || door[0] != '/' || dir_name(door, dir, sizeof(dir)) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED,
				       "tenant %s: its door %s is no place to mount", tenant, door);
	if (!req->engine)
		return write_file(ctl, req, &cdi);
	if (ctl->json) {
		json_object_array_add(req->written, gantry_cdi_json(&cdi));
		return 0;
	}
	r = gantry_cdi_flags(&cdi, req->engine, ctl->out, &err);
	if (r < 0)
		return gantry_ctl_fail(ctl,
				       r == -ENOTSUP ? GANTRY_CTL_UNSUPPORTED : GANTRY_CTL_FAILED,
				       "%s", err.text);
	return 0;
}

/* A container sees all of the folder: another tenant's door must not be in it. */
static int check_alone(struct gantry_ctl *ctl, const Gantry__Admin__TenantList *tenants,
		       size_t which)
{
	const char *door = tenants->tenants[which]->config->door;
	char mine[PATH_MAX], theirs[PATH_MAX];

	if (dir_name(door, mine, sizeof(mine)) < 0)
		return 0; /* refused by name later */
	for (size_t i = 0; i < tenants->n_tenants; i++) {
		const Gantry__Admin__TenantSet *other = tenants->tenants[i]->config;

		if (i == which || !other || dir_name(other->door, theirs, sizeof(theirs)) < 0 ||
		    strcmp(mine, theirs) != 0)
			continue;
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_FAILED,
			"the doors of tenants %s and %s share the folder %s, so a container would see "
			"both; give each door a folder of its own",
			tenants->tenants[which]->config->name, other->name, mine);
	}
	return 0;
}

static int generate_asked(struct gantry_ctl *ctl, struct request *req)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__Empty empty = GANTRY__ADMIN__EMPTY__INIT;
	bool found = false;
	int r;

	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_TENANT_LIST;
	request.tenant_list = &empty;
	r = gantry_ctl_ask(ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_TENANTS, &reply);
	for (size_t i = 0; !r && i < reply->tenants->n_tenants; i++) {
		const Gantry__Admin__TenantSet *tenant = reply->tenants->tenants[i]->config;

		if (!tenant || (req->only && strcmp(tenant->name, req->only) != 0))
			continue;
		found = true;
		r = check_alone(ctl, reply->tenants, i);
		if (!r)
			r = generate_one(ctl, req, tenant->name, tenant->door);
	}
	if (!r && req->only && !found)
		return gantry_ctl_fail(ctl, GANTRY_CTL_NOT_FOUND,
				       "there is no tenant %s; see gantryctl tenant list",
				       req->only);
	return r;
}

static int generate(struct gantry_ctl *ctl, struct request *req)
{
	const char *doors = gantry_ctl_option(ctl, "doors");
	char door[PATH_MAX];

	if (!doors)
		return generate_asked(ctl, req);
	if (!req->only)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "cdi generate: --doors needs --tenant");
	if (gantry_str_format(door, sizeof(door), "%s/%s/door", doors, req->only) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE, "--doors %s: too long", doors);
	return generate_one(ctl, req, req->only, door);
}

int gantry_ctl_cdi_generate(struct gantry_ctl *ctl)
{
	struct request req = {
		.only = gantry_ctl_option(ctl, "tenant"),
		.output = gantry_ctl_option(ctl, "output"),
		.engine = gantry_ctl_option(ctl, "print-flags"),
	};
	json_object *object;
	int r = choose_library(ctl, &req);

	if (!r)
		r = choose_cuda(ctl, &req);
	if (r)
		return r;
	if (!req.output)
		req.output = GANTRY_CDI_DIR;
	req.written = json_object_new_array();
	r = generate(ctl, &req);
	if (r || !ctl->json) {
		json_object_put(req.written);
		return r;
	}
	object = gantry_ctl_json_new();
	json_object_object_add(object,
			       req.engine || strcmp(req.output, "-") == 0 ? "specs" : "files",
			       req.written);
	return gantry_ctl_json_print(ctl, object);
}
