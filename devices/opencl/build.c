/* SPDX-License-Identifier: Apache-2.0 */
/* One piece of the builder's work, in a process of its own: compiling, or loading to see whether that works. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "devices/opencl/builder.h"
#include "devices/opencl/container.h"
#include "proto/spirv.h"

#define OPTIONS	      "-cl-kernel-arg-info"
#define LOG_BYTES     (64u << 10)
#define OPTIONS_BYTES (16u << 10)
#define MAX_KERNELS   4096u

#define GUEST_CPU_S	 20u /* however long a busy machine takes to give it */
#define GUEST_MEM_BYTES	 (4ull << 30)
#define GUEST_FILE_BYTES (256ull << 20)

/* ---- what a child gives up before it sees a guest's bytes ---- */

#define READS \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
/* Newer than the headers of Debian 12. */
#define ACCESS_FS_REFER	   (1ull << 13)
#define ACCESS_FS_TRUNCATE (1ull << 14)
#define ABI_REFER	   2
#define ABI_TRUNCATE	   3
#define WRITES                                                            \
	(LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE | \
	 LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_DIR |    \
	 LANDLOCK_ACCESS_FS_MAKE_REG | ACCESS_FS_REFER | ACCESS_FS_TRUNCATE)
#define OTHERS                                                          \
	(LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_SOCK |  \
	 LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | \
	 LANDLOCK_ACCESS_FS_MAKE_SYM)
/* What can be said of a file that is no folder. */
#define OF_FILES                                                     \
	(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | \
	 LANDLOCK_ACCESS_FS_WRITE_FILE | ACCESS_FS_TRUNCATE)

struct fence {
	int rules;
	uint64_t known; /* by this kernel */
};

static int permit(const struct fence *fence, const char *path, uint64_t access)
{
	struct landlock_path_beneath_attr attr = { .allowed_access = access & fence->known };
	_cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return 0; /* what is not there gives nothing away */
	if (!S_ISDIR(st.st_mode))
		attr.allowed_access &= OF_FILES;
	attr.parent_fd = fd;
	return syscall(SYS_landlock_add_rule, fence->rules, LANDLOCK_RULE_PATH_BENEATH, &attr, 0) <
			       0
		       ? -errno
		       : 0;
}

static int fence_open(struct fence *fence)
{
	struct landlock_ruleset_attr attr = { .handled_access_fs = READS | WRITES | OTHERS };
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	/* PoCL moves files from folder to folder, which the first version refuses. */
	if (abi < ABI_REFER)
		return -EOPNOTSUPP;
	if (abi < ABI_TRUNCATE)
		attr.handled_access_fs &= ~ACCESS_FS_TRUNCATE;
	fence->known = attr.handled_access_fs;
	fence->rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	return fence->rules < 0 ? -errno : 0;
}

/* What the loader of OpenCL reads where its administrator has told it to: files and folders, with ':' between them. */
static int permit_list(const struct fence *fence, const char *list)
{
	char path[PATH_MAX];
	int r = 0;

	while (list && *list && r == 0) {
		size_t len = strcspn(list, ":");

		if (list[0] == '/' && len < sizeof(path)) {
			memcpy(path, list, len);
			path[len] = '\0';
			r = permit(fence, path, READS);
		}
		list += len + (list[len] == ':');
	}
	return r;
}

/* What exists of these: GPUs' drivers are called through them. */
static int permit_gpus(const struct fence *fence)
{
	static const char *const patterns[] = { "/dev/nvidiactl",    "/dev/nvidia-uvm",
						"/dev/nvidia[0-9]*", "/dev/nvidia-caps",
						"/dev/kfd",	     "/dev/dri" };
	const uint64_t access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
				LANDLOCK_ACCESS_FS_READ_DIR;
	glob_t found = { 0 };
	int r = 0;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(patterns) && r == 0; i++) {
		if (glob(patterns[i], GLOB_NOSORT, NULL, &found) == 0)
			for (size_t k = 0; k < found.gl_pathc && r == 0; k++)
				r = permit(fence, found.gl_pathv[k], access);
		globfree(&found);
	}
	return r;
}

/* What compilers and linkers read is in the system's folders; what they write lies below @folder. */
static int close_files(const struct gantry_opencl_builder_request *req, const char *folder)
{
	static const char *const readable[] = { "/usr", "/lib", "/lib64", "/etc", "/sys/devices" };
	static const char *const told[] = { "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES",
					    "OPENCL_LAYERS" };
	struct fence fence = { .rules = -EBADF };
	int r = fence_open(&fence);

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(readable) && r == 0; i++)
		r = permit(&fence, readable[i], READS);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(told) && r == 0; i++)
		r = permit_list(&fence, getenv(told[i]));
	if (r == 0 && req->of_gpu)
		r = permit_gpus(&fence);
	if (r == 0)
		r = permit(&fence, "/proc",
			   LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR);
	if (r == 0)
		r = permit(&fence, "/dev/null",
			   LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE);
	if (r == 0)
		r = permit(&fence, folder, READS | WRITES);
	if (r == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		       syscall(SYS_landlock_restrict_self, fence.rules, 0) < 0))
		r = -errno;
	gantry_fd_close(fence.rules);
	return r;
}

static void limit(int what, uint64_t value)
{
	const struct rlimit l = { .rlim_cur = value, .rlim_max = value };

	(void)setrlimit(what, &l); /* one that was lower already stays */
}

/* A GPU's driver reserves more addresses than any limit would be worth: there what can be written counts. */
static void limit_memory(bool of_gpu)
{
	if (of_gpu) {
		limit(RLIMIT_DATA, GUEST_MEM_BYTES);
		return;
	}
#ifndef __SANITIZE_ADDRESS__ /* its shadow alone is more, and its first allocation behind the limit would end the process */
	limit(RLIMIT_AS, GUEST_MEM_BYTES);
#endif
}

static int give_up(const struct gantry_opencl_builder_request *req, const char *folder,
		   struct gantry_err *err)
{
	int r = close_files(req, folder);

	if (r < 0)
		return gantry_err_set_errno(
			err, -EOPNOTSUPP,
			"this host's kernel has no Landlock, without which no guest's "
			"OpenCL code is compiled or loaded");
	limit(RLIMIT_CPU, GUEST_CPU_S);
	limit(RLIMIT_FSIZE, GUEST_FILE_BYTES);
	limit_memory(req->of_gpu);
	return 0;
}

/*
 * PoCL leaves the intermediate code where it compiles, and would use it where it loads: with it, and a compiler, at the
 * first launch of each shape. So the one is not done where the other is.
 */
static int compile_apart(const char *folder, struct gantry_err *err)
{
	char apart[256];

	if (gantry_str_format(apart, sizeof(apart), "%s/" GANTRY_OPENCL_APART, folder) < 0 ||
	    (mkdir(apart, 0700) < 0 && errno != EEXIST) || setenv("POCL_CACHE_DIR", apart, 1) < 0)
		return gantry_err_set(err, -EIO, "making a folder in %s", folder);
	return 0;
}

/* ---- the work ---- */

struct job {
	const struct gantry_opencl_driver *cl;
	struct gantry_opencl_target target;
	cl_context context;
	cl_program program;
	char *log; /* LOG_BYTES, terminated; NULL until something was built, or without memory */
};

static int begin(struct job *job, const struct gantry_opencl_builder_request *req,
		 struct gantry_err *err)
{
	const struct gantry_opencl_choice choice = {
		.platform = req->platform[0] ? req->platform : NULL,
		.device = req->device[0] ? req->device : NULL,
	};
	cl_int result = CL_SUCCESS;
	int r = gantry_opencl_driver_open(req->library[0] ? req->library : NULL, &job->cl, err);

	if (r == 0)
		r = gantry_opencl_choose(job->cl, &choice, &job->target, err);
	if (r < 0)
		return r;
	job->context = job->cl->CreateContext(NULL, 1, &job->target.device, NULL, NULL, &result);
	return gantry_opencl_err(result, "clCreateContext", err);
}

static void fetch_log(struct job *job)
{
	job->log = calloc(1, LOG_BYTES);
	if (job->log &&
	    job->cl->GetProgramBuildInfo(job->program, job->target.device, CL_PROGRAM_BUILD_LOG,
					 LOG_BYTES - 1, job->log, NULL) != CL_SUCCESS)
		job->log[0] = '\0'; /* there is none, or it does not fit */
}

/* The first line of a compiler's log that complains. */
static void complaint(const struct job *job, struct gantry_err *err)
{
	char line[256];
	const char *at = job->log ? strstr(job->log, "error") : NULL;
	size_t len;

	if (!job->log)
		return;
	while (at && at > job->log && at[-1] != '\n')
		at--;
	at = at ? at : job->log;
	len = strcspn(at, "\r\n");
	len = len < sizeof(line) ? len : sizeof(line) - 1;
	memcpy(line, at, len);
	line[len] = '\0';
	gantry_str_make_printable(line);
	if (line[0])
		(void)gantry_err_set(err, -ENOEXEC, "it does not compile: %s", line);
}

static int build(struct job *job, const char *options, struct gantry_err *err)
{
	cl_int result = job->cl->BuildProgram(job->program, 1, &job->target.device, options, NULL,
					      NULL);

	fetch_log(job);
	if (result == CL_SUCCESS)
		return 0;
	(void)gantry_err_set(err, -ENOEXEC, "it does not compile: %s", gantry_opencl_error(result));
	complaint(job, err);
	return gantry_opencl_errno(result) == -EOPNOTSUPP ? -EOPNOTSUPP : -ENOEXEC;
}

/* ---- options ---- */

/* Whether a word may stand among the options; *is_name: the word before was a -D or -U without its name. */
static bool word_is_allowed(const char *word, size_t len, bool *is_name)
{
	bool was_name = *is_name;

	*is_name = false;
	if (was_name)
		return true;
	if (len >= 2 && word[0] == '-' && (word[1] == 'D' || word[1] == 'U')) {
		*is_name = len == 2;
		return true;
	}
	return (len > 4 && strncmp(word, "-cl-", 4) == 0) ||
	       (len == 2 && strncmp(word, "-w", 2) == 0) ||
	       (len == 7 && strncmp(word, "-Werror", 7) == 0);
}

/* Options that name files or plug-ins of the compiler are not for guests, whatever the process may still open. */
static int check_options(const char *options, struct gantry_err *err)
{
	bool is_name = false;

	/* A compiler may split at any of them, and would see an option that we took for a part of a word. */
	static const char *const spaces = " \t\n\v\f\r";

	for (const char *at = options + strspn(options, spaces); *at; at += strspn(at, spaces)) {
		size_t len = strcspn(at, spaces);

		if (!word_is_allowed(at, len, &is_name))
			return gantry_err_set(err, -ENOEXEC, "option %.*s is not taken",
					      (int)(len < 64 ? len : 64), at);
		at += len;
	}
	return is_name ? gantry_err_set(err, -ENOEXEC, "-D or -U without a name") : 0;
}

/* What @text asks for in its first line, behind what is asked always. */
static int read_options(const char *text, size_t len, char ret_options[OPTIONS_BYTES],
			struct gantry_err *err)
{
	size_t mark = strlen(GANTRY_OPENCL_OPTIONS);
	const char *end;

	(void)gantry_str_copy(ret_options, OPTIONS_BYTES, OPTIONS);
	if (len < mark || memcmp(text, GANTRY_OPENCL_OPTIONS, mark) != 0)
		return 0;
	text += mark;
	end = memchr(text, '\n', len - mark);
	len = end ? (size_t)(end - text) : len - mark;
	if (gantry_str_format(ret_options, OPTIONS_BYTES, OPTIONS " %.*s", (int)len, text) < 0)
		return gantry_err_set(err, -ENOEXEC, "the options have more than %u bytes",
				      OPTIONS_BYTES);
	return check_options(ret_options, err);
}

/* Installed kernels divide as the cpu's do: a GPU comes only near, unless it is asked for more. */
static void ask_for_exact_division(const struct job *job,
				   const struct gantry_opencl_builder_request *req,
				   char options[OPTIONS_BYTES])
{
	size_t len = strlen(options);

	if (!req->of_guest && req->of_gpu &&
	    (gantry_opencl_number(job->cl, job->target.device, CL_DEVICE_SINGLE_FP_CONFIG, 0) &
	     CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT))
		(void)gantry_str_copy(
			options + len, OPTIONS_BYTES - len,
			" -cl-fp32-correctly-rounded-divide-sqrt"); /* a module's has room */
}

static int put_binary(const struct job *job, const struct gantry_opencl_builder_request *req,
		      int out, uint64_t *ret_nbytes, struct gantry_err *err)
{
	enum gantry_opencl_sort sort;
	unsigned char *binary;
	cl_uint nkernels = 0;
	size_t n = 0;
	cl_int result;

	if (job->cl->CreateKernelsInProgram(job->program, 0, NULL, &nkernels) == CL_SUCCESS &&
	    nkernels == 0)
		return gantry_err_set(err, -ENOEXEC, "the text holds no kernel");
	result = job->cl->GetProgramInfo(job->program, CL_PROGRAM_BINARY_SIZES, sizeof(n), &n,
					 NULL);
	if (result != CL_SUCCESS || n == 0)
		return gantry_err_set(err, -ENOEXEC, "the compiler gives no binary: %s",
				      gantry_opencl_error(result));
	binary = malloc(n);
	if (!binary)
		return gantry_err_set(err, -ENOMEM, "no memory for what was compiled");
	result = job->cl->GetProgramInfo(job->program, CL_PROGRAM_BINARIES, sizeof(binary), &binary,
					 NULL);
	if (result != CL_SUCCESS)
		return gantry_opencl_err(result, "CL_PROGRAM_BINARIES", err);
	/* A compiler that a text has broken into may say anything. */
	if (gantry_opencl_container_check(binary, n, &sort, err) < 0)
		return -ENOEXEC;
	if (sort == GANTRY_OPENCL_POCL && !req->of_guest)
		n = gantry_opencl_pocl_strip(binary, n, binary);
	if (gantry_write_all(out, binary, n) < 0)
		return gantry_err_set(err, -ENOMEM, "no memory for what was compiled");
	if (req->keep[0])
		(void)gantry_file_replace(req->keep, binary, n,
					  0600); /* else it is compiled again next time */
	*ret_nbytes = n;
	return 0;
}

static int set_constants(struct job *job, const char *lines, const char *end,
			 struct gantry_err *err)
{
	struct gantry_spirv_constant constant;
	cl_int result = CL_SUCCESS;

	/* The first line may be the options. */
	if (lines < end &&
	    strncmp(lines, GANTRY_SPIRV_CONSTANT, strlen(GANTRY_SPIRV_CONSTANT)) != 0)
		lines = (const char *)memchr(lines, '\n', (size_t)(end - lines)) + 1;
	while (result == CL_SUCCESS && gantry_spirv_next(&lines, end, &constant)) {
		if (!job->cl->SetProgramSpecializationConstant)
			return gantry_err_set(err, -EOPNOTSUPP,
					      "this device takes no specialization constants");
		result = job->cl->SetProgramSpecializationConstant(job->program, constant.id,
								   constant.bytes, constant.value);
	}
	return gantry_opencl_err(result, "clSetProgramSpecializationConstant", err);
}

static int compile_il(struct job *job, const struct gantry_opencl_builder_request *req,
		      const char *bytes, size_t off, int out, uint64_t *ret_nbytes,
		      struct gantry_err *err)
{
	char options[OPTIONS_BYTES], version[64] = "";
	_cleanup_free_ void *words = NULL;
	cl_int result = CL_SUCCESS;
	int r = read_options(bytes, off, options, err);

	if (r < 0)
		return r;
	if (job->cl->CreateProgramWithIL)
		gantry_opencl_text(job->cl, job->target.device, GANTRY_OPENCL_IL_VERSION, version,
				   sizeof(version));
	if (!version[0])
		return gantry_err_set(err, -EOPNOTSUPP,
				      "this device takes no intermediate language");
	words = malloc(req->nbytes -
		       off); /* behind lines it lies anywhere, and drivers read words */
	if (!words)
		return gantry_err_set(err, -ENOMEM, "no memory for a program");
	memcpy(words, bytes + off, req->nbytes - off);
	job->program = job->cl->CreateProgramWithIL(job->context, words, req->nbytes - off,
						    &result);
	if (result != CL_SUCCESS)
		return gantry_err_set(err, -ENOEXEC, "the device refuses the SPIR-V: %s",
				      gantry_opencl_error(result));
	r = set_constants(job, bytes, bytes + off, err);
	if (r == 0)
		r = build(job, options, err);
	return r < 0 ? r : put_binary(job, req, out, ret_nbytes, err);
}

static int compile(struct job *job, const struct gantry_opencl_builder_request *req,
		   const void *bytes, int out, uint64_t *ret_nbytes, struct gantry_err *err)
{
	const char *text = bytes;
	size_t len = strnlen(text, req->nbytes);
	char options[OPTIONS_BYTES];
	cl_int result = CL_SUCCESS;
	size_t off;
	int r;

	if (gantry_spirv_find(bytes, req->nbytes, &off))
		return compile_il(job, req, bytes, off, out, ret_nbytes, err);
	r = read_options(text, len, options, err);

	if (r < 0)
		return r;
	ask_for_exact_division(job, req, options);
	job->program = job->cl->CreateProgramWithSource(job->context, 1, &text, &len, &result);
	r = gantry_opencl_err(result, "clCreateProgramWithSource", err);
	if (r == 0)
		r = build(job, options, err);
	return r < 0 ? r : put_binary(job, req, out, ret_nbytes, err);
}

static int load(struct job *job, const void *bytes, size_t nbytes, struct gantry_err *err)
{
	const unsigned char *binary = bytes;
	cl_int result = CL_SUCCESS, status = CL_SUCCESS;

	job->program = job->cl->CreateProgramWithBinary(job->context, 1, &job->target.device,
							&nbytes, &binary, &status, &result);
	if (result == CL_SUCCESS)
		result = status;
	return result == CL_SUCCESS
		       ? build(job, OPTIONS, err)
		       : gantry_err_set(err, -ENOEXEC, "the device refuses the binary: %s",
					gantry_opencl_error(result));
}

static int try(struct job *job, const void *bytes, size_t nbytes, struct gantry_err *err)
{
	cl_kernel *kernels = calloc(MAX_KERNELS, sizeof(*kernels));
	cl_uint n = 0;
	int r;

	if (!kernels)
		return gantry_err_set(err, -ENOMEM, "no memory to try a binary");
	r = load(job, bytes, nbytes, err);
	if (r == 0 && (job->cl->CreateKernelsInProgram(job->program, MAX_KERNELS, kernels, &n) !=
			       CL_SUCCESS ||
		       n == 0))
		r = gantry_err_set(err, -ENOEXEC, "the binary holds no kernel");
	free(kernels);
	return r;
}

static int fit(struct job *job, const struct gantry_opencl_builder_request *req, const void *bytes,
	       struct gantry_err *err)
{
	int r = load(job, bytes, req->nbytes, err);

	return r < 0 ? r
		     : gantry_opencl_fit_make(job->cl, job->target.device, job->context,
					      job->program, &req->fit, getenv("POCL_CACHE_DIR"),
					      err);
}

void gantry_opencl_build(const struct gantry_opencl_builder_request *req, int in, int out,
			 const char *folder, struct gantry_opencl_builder_answer *answer)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct job job = { 0 };
	uint64_t nbytes = 0;
	void *bytes = MAP_FAILED;
	int r = 0;

	if (req->nbytes)
		bytes = mmap(NULL, req->nbytes, PROT_READ, MAP_PRIVATE, in, 0);
	if (bytes == MAP_FAILED)
		r = gantry_err_set(&err, -EINVAL, "nothing to work on");
	if (r == 0 && req->of_guest)
		r = give_up(req, folder, &err);
	if (r == 0 && req->op != GANTRY_OPENCL_TRY)
		r = compile_apart(folder, &err);
	if (r == 0)
		r = begin(&job, req, &err);
	if (r == 0 && req->op == GANTRY_OPENCL_COMPILE)
		r = compile(&job, req, bytes, out, &nbytes, &err);
	else if (r == 0 && req->op == GANTRY_OPENCL_FIT)
		r = fit(&job, req, bytes, &err);
	else if (r == 0)
		r = try(&job, bytes, req->nbytes, &err);
	answer->nbytes = r < 0 ? 0 : nbytes;
	if (job.log && pwrite(out, job.log, strlen(job.log), (off_t)answer->nbytes) > 0)
		answer->log_bytes = strlen(job.log);
	(void)gantry_str_copy(answer->text, sizeof(answer->text), err.text);
	answer->r = r;
}
