/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls-guest FOLDER IMAGE [busy | measure N | nap MS | crowd MS | litter N | watch | tensors | normalize N]: cuBLAS, cuFFT and cuRAND through the forwarding libraries in FOLDER, on device memory
 * and queues of libgantry's. Prints a line for each thing tried, "ok WHAT" or "not ok WHAT", and "done" at the end.
 *
 * The rest is for stand-ins: a call that takes long, handles that nobody ends, how many there are.
 *
 * It has no libcuda: it is its own gantry_cuda_road. Its buffers' addresses it learns from a kernel of IMAGE.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cublasXt.h>
#include <cublas_v2.h>
#include <cufftXt.h>
#include <curand.h>

#include "base/array.h"
#include "base/atomic.h"
#include "guest-shim/cudalibs/road.h"
#include "proto/calls.h"
#include "tests/gpu/calls_guest.h"

#define N	64
#define BUFFERS 4
#define BYTES	(N * N * sizeof(cufftComplex))
#define STREAM	((cudaStream_t)0x51)
#define S10	10000000000ll

static struct gantry_session *session;
static gantry_image image;
static gantry_queue queues[2];
static gantry_buffer buffers[BUFFERS];
static float *at[BUFFERS]; /* their addresses on the device */
static int nfailed;
static uint64_t ntasks; /* of the road */

/* ---- the road ---- */

static struct gantry_session *the_session(void)
{
	return session;
}

static int queue_of(void *stream, gantry_queue *ret_queue)
{
	*ret_queue = queues[stream == STREAM];
	return 0;
}

static int apart(gantry_queue *ret_queue)
{
	*ret_queue = queues[0];
	return 0;
}

static int place(void *stream, gantry_queue *ret_queue, gantry_queue *ret_apart)
{
	(void)apart(ret_apart);
	return queue_of(stream, ret_queue);
}

static int is_device(const void *address)
{
	for (int i = 0; i < BUFFERS; i++)
		if ((uintptr_t)address - (uintptr_t)at[i] < BYTES)
			return 1;
	return (uintptr_t)address >> 40 == 0xdead;
}

static uint32_t uses(struct gantry_access *ret_access, uint32_t n)
{
	for (uint32_t i = 0; i < BUFFERS && i < n; i++)
		ret_access[i] = (struct gantry_access){ .buffer = buffers[i],
							.mode = GANTRY_RW,
							.arg_off = GANTRY_NO_ARG };
	return BUFFERS;
}

static int device(void)
{
	return 0;
}

static int count_and_submit(struct gantry_session *s, gantry_queue queue,
			    const struct gantry_task *tasks, unsigned int n,
			    gantry_ticket *ret_last)
{
	ntasks += n;
	return gantry_submit(s, queue, tasks, n, ret_last);
}

extern const struct gantry_cuda_road gantry_cuda_road;
const struct gantry_cuda_road gantry_cuda_road = {
	.size = sizeof(gantry_cuda_road),
	.version = GANTRY_CUDA_ROAD_VERSION,
	.calls = { .kernel_find = gantry_kernel_find,
		   .alloc = gantry_alloc,
		   .free = gantry_free,
		   .map = gantry_map,
		   .write = gantry_write,
		   .read = gantry_read,
		   .submit = count_and_submit,
		   .wait = gantry_wait,
		   .test = gantry_test },
	.session = the_session,
	.queue = queue_of,
	.is_device = is_device,
	.uses = uses,
	.device = device,
	.apart = apart,
	.place = place,
};

/* ---- helpers ---- */

static void tell(int good, const char *what)
{
	printf("%s %s\n", good ? "ok" : "not ok", what);
	(void)fflush(stdout);
	nfailed += !good;
}

static void need(int r, const char *what)
{
	if (r >= 0)
		return;
	printf("not ok %s: %s %s\n", what, gantry_strerror(r), gantry_last_error());
	exit(EXIT_FAILURE);
}

void calls_tell(int good, const char *what)
{
	tell(good, what);
}

float *calls_at(int i)
{
	return at[i];
}

void calls_read(int i, void *to, size_t bytes)
{
	need(gantry_read(session, buffers[i], 0, to, bytes), "read");
}

uint64_t calls_tasks(void)
{
	return ntasks;
}

void *calls_function(const char *folder, const char *soname, const char *name)
{
	char path[4096];
	void *library, *found;

	(void)snprintf(path, sizeof(path), "%s/%s", folder, soname);
	library = dlopen(path, RTLD_NOW);
	found = library ? dlsym(library, name) : NULL;
	if (!found) {
		printf("not ok %s: %s\n", name, dlerror());
		exit(EXIT_FAILURE);
	}
	return found;
}

#ifdef WITHOUT_CUDNN
void try_tensors(const char *folder, void *stream)
{
	(void)folder;
	(void)stream;
	printf("no cuDNN\n");
}

void measure_tensors(const char *folder, int n)
{
	(void)n;
	try_tensors(folder, NULL);
}
#endif

#define F(soname, name) \
	__typeof__(&name) f_##name = (__typeof__(&name))calls_function(folder, soname, #name)

static void learn_address(gantry_kernel where, int i)
{
	const uint64_t args[1] = { 0 };
	const struct gantry_access access = { .buffer = buffers[i], .mode = GANTRY_RW };
	const struct gantry_task task = { .kernel = where,
					  .grid = { 1, 1, 1 },
					  .block = { 1, 1, 1 },
					  .args = args,
					  .args_bytes = sizeof(args),
					  .naccess = 1,
					  .access = &access };
	gantry_ticket ticket;
	uint64_t address;

	need(gantry_submit(session, queues[0], &task, 1, &ticket), "submit");
	need(gantry_wait(session, &ticket, 1, S10), "wait");
	need(gantry_read(session, buffers[i], 0, &address, sizeof(address)), "read");
	at[i] = (float *)(uintptr_t)address;
}

static char *file(const char *path, size_t *ret_len)
{
	FILE *in = fopen(path, "re");
	char *bytes = malloc(16 << 20);

	if (!in || !bytes)
		exit(EXIT_FAILURE);
	*ret_len = fread(bytes, 1, 16 << 20, in);
	(void)fclose(in);
	return bytes;
}

static void start(const char *path)
{
	const struct gantry_limits limits = { .call_timeout_ns = 3 * S10 };
	const struct gantry_queue_options options = { .kind = GANTRY_KIND_CUDA };
	gantry_kernel where;
	size_t len;
	char *bytes = file(path, &len);

	need(gantry_open(NULL, &limits, &session), "open");
	for (int i = 0; i < 2; i++)
		need(gantry_queue_open(session, &options, &queues[i]), "queue");
	need(gantry_image_load(session, GANTRY_KIND_CUDA, bytes, len, &image), "image");
	need(gantry_kernel_from(session, image, "where", "rw:u64*", &where), "kernel");
	for (int i = 0; i < BUFFERS; i++) {
		need(gantry_alloc(session, BYTES, GANTRY_ALLOC_DEVICE, &buffers[i]), "alloc");
		learn_address(where, i);
	}
	free(bytes);
}

/* ---- what is tried ---- */

static float a[N * N], b[N * N], c[N * N];

static int is_product(float alpha, float beta, const float *before)
{
	for (int j = 0; j < N; j++)
		for (int i = 0; i < N; i++) {
			double sum = 0;

			for (int l = 0; l < N; l++)
				sum += (double)a[i + l * N] * b[l + j * N];
			sum = alpha * sum + beta * (before ? before[i + j * N] : 0);
			if (fabs(sum - c[i + j * N]) > 1e-3 * (1 + fabs(sum)))
				return 0;
		}
	return 1;
}

static void try_cublas(const char *folder)
{
	static const char so[] = "libcublas.so.13";
	static float before[N * N];
	const float one = 1, half = 0.5f, zero = 0;
	const float scalars[2] = { 2, 0 };
	cublasPointerMode_t mode = CUBLAS_POINTER_MODE_DEVICE;
	cudaStream_t stream = NULL;
	cublasHandle_t handle = NULL;
	float dot = 0;
	double expected = 0;
	int version = 0;
	F(so, cublasCreate_v2);
	F(so, cublasDestroy_v2);
	F(so, cublasGetVersion_v2);
	F(so, cublasGetStatusString);
	F(so, cublasSgemm_v2);
	F(so, cublasSdot_v2);
	F(so, cublasSetStream_v2);
	F(so, cublasGetStream_v2);
	F(so, cublasSetPointerMode_v2);
	F(so, cublasGetPointerMode_v2);

	for (int i = 0; i < N * N; i++) {
		a[i] = (float)(i % 13) - 6;
		b[i] = (float)(i % 7) - 3;
		expected += (double)a[i] * b[i];
	}
	need(gantry_write(session, buffers[0], 0, a, sizeof(a)), "write");
	need(gantry_write(session, buffers[1], 0, b, sizeof(b)), "write");
	tell(f_cublasCreate_v2(&handle) == 0 && handle, "a handle is made");
	tell(f_cublasGetVersion_v2(handle, &version) == 0 && version >= 130000, "it has a version");
	tell(strlen(f_cublasGetStatusString(CUBLAS_STATUS_SUCCESS)) > 0 &&
		     f_cublasGetStatusString(CUBLAS_STATUS_SUCCESS) ==
			     f_cublasGetStatusString(CUBLAS_STATUS_SUCCESS),
	     "a text stays where it is");

	tell(f_cublasSgemm_v2(handle, 0, 0, N, N, N, &one, at[0], N, at[1], N, &zero, at[2], N) ==
		     0,
	     "a product is asked for");
	need(gantry_read(session, buffers[2], 0, c, sizeof(c)), "read");
	tell(is_product(1, 0, NULL), "the product is right");

	memcpy(before, c, sizeof(c));
	tell(f_cublasSetStream_v2(handle, STREAM) == 0 &&
		     f_cublasGetStream_v2(handle, &stream) == 0 && stream == STREAM,
	     "a stream is set");
	tell(f_cublasSgemm_v2(handle, 0, 0, N, N, N, &half, at[0], N, at[1], N, &one, at[2], N) ==
		     0,
	     "a product on another stream");
	need(gantry_read(session, buffers[2], 0, c, sizeof(c)), "read");
	tell(is_product(0.5f, 1, before), "that product is right");
	tell(f_cublasSdot_v2(handle, N * N, at[0], 1, at[1], 1, &dot) == 0 &&
		     fabs(dot - expected) < 1,
	     "a number comes back");

	need(gantry_write(session, buffers[3], 0, scalars, sizeof(scalars)), "write");
	tell(f_cublasSetPointerMode_v2(handle, CUBLAS_POINTER_MODE_DEVICE) == 0,
	     "scalars on the device");
	tell(f_cublasSgemm_v2(handle, 0, 0, N, N, N, at[3], at[0], N, at[1], N, at[3] + 1, at[2],
			      N) == 0,
	     "a product with them");
	need(gantry_read(session, buffers[2], 0, c, sizeof(c)), "read");
	tell(is_product(2, 0, NULL), "that product is right too");
	tell(f_cublasGetPointerMode_v2(handle, &mode) == 0 && mode == CUBLAS_POINTER_MODE_DEVICE,
	     "the mode is what was set");
	tell(f_cublasSetPointerMode_v2(handle, CUBLAS_POINTER_MODE_HOST) == 0,
	     "scalars on the host");

	/* What is wrong is told, at the call or by the next that waits, and harms nothing. */
	(void)f_cublasSgemm_v2(handle, 0, 0, -1, N, N, &one, at[0], N, at[1], N, &zero, at[2], N);
	need(gantry_read(session, buffers[2], 0, c, sizeof(c)), "read");
	tell(f_cublasGetVersion_v2(handle, &version) == CUBLAS_STATUS_INVALID_VALUE,
	     "a size below zero is told later");
	tell(f_cublasGetVersion_v2(handle, &version) == 0, "and once");
	(void)f_cublasSgemm_v2(handle, 0, 0, N, N, N, &one, (float *)0xdead0000000000, N, at[1], N,
			       &zero, at[2], N);
	need(gantry_read(session, buffers[2], 0, c, sizeof(c)), "read");
	tell(f_cublasGetVersion_v2(handle, &version) != 0,
	     "an address outside all memory is told later");
	tell(f_cublasSdot_v2((cublasHandle_t)0x12345, N, at[0], 1, at[1], 1, &dot) ==
		     CUBLAS_STATUS_INVALID_VALUE,
	     "a handle that is none is refused");
	tell(f_cublasDestroy_v2(handle) == 0, "the handle ends");
	tell(f_cublasGetVersion_v2(handle, &version) != 0, "after its end it is none");
	tell(f_cublasDestroy_v2(handle) != 0, "and does not end twice");
}

/* Matrices of the program's and of the device's, and what no call carries. */
static void try_cublas_xt(const char *folder)
{
	static const char so[] = "libcublas.so.13";
	const float one = 1, zero = 0;
	int first[1] = { 0 }, second[1] = { 1 }, both[2] = { 0, 1 };
	cublasXtHandle_t handle = NULL;
	F(so, cublasXtCreate);
	F(so, cublasXtDestroy);
	F(so, cublasXtDeviceSelect);
	F(so, cublasXtSgemm);

	need(gantry_write(session, buffers[0], 0, a, sizeof(a)), "write");
	need(gantry_write(session, buffers[1], 0, b, sizeof(b)), "write");
	tell(f_cublasXtCreate(&handle) == 0 && handle, "a handle of cublasXt is made");
	tell(f_cublasXtSgemm(handle, 0, 0, N, N, N, &one, a, N, b, N, &zero, c, N) != 0,
	     "it works on no device yet");
	tell(f_cublasXtDeviceSelect(handle, 1, second) == CUBLAS_STATUS_NOT_SUPPORTED &&
		     f_cublasXtDeviceSelect(handle, 2, both) == CUBLAS_STATUS_NOT_SUPPORTED &&
		     f_cublasXtDeviceSelect(handle, 1, NULL) == CUBLAS_STATUS_NOT_SUPPORTED,
	     "others' devices are not supported");
	tell(f_cublasXtDeviceSelect(handle, 1, first) == 0, "it gets the device");
	memset(c, 0, sizeof(c));
	tell(f_cublasXtSgemm(handle, 0, 0, N, N, N, &one, a, N, b, N, &zero, c, N) == 0 &&
		     is_product(1, 0, NULL),
	     "a product of the program's memory");
	memset(c, 0, sizeof(c));
	tell(f_cublasXtSgemm(handle, 0, 0, N, N, N, &one, at[0], N, b, N, &zero, c, N) == 0 &&
		     is_product(1, 0, NULL),
	     "a product of memory on both sides");
	tell(f_cublasXtSgemm(handle, 0, 0, N, N, N, &one, at[0], N, at[1], N, &zero, at[2], N) == 0,
	     "a product of device memory");
	need(gantry_read(session, buffers[2], 0, c, sizeof(c)), "read");
	tell(is_product(1, 0, NULL), "it is right");
	tell(f_cublasXtSgemm(handle, 0, 0, N, N, N, &one, a, N - 1, b, N, &zero, c, N) ==
			     CUBLAS_STATUS_INVALID_VALUE &&
		     f_cublasXtSgemm(handle, 0, 0, N, N, N, &one, NULL, N, b, N, &zero, c, N) ==
			     CUBLAS_STATUS_INVALID_VALUE &&
		     f_cublasXtSgemm(handle, 0, 0, SIZE_MAX, SIZE_MAX, SIZE_MAX, &one, a, SIZE_MAX,
				     b, SIZE_MAX, &zero, c,
				     SIZE_MAX) == CUBLAS_STATUS_INVALID_VALUE &&
		     f_cublasXtSgemm(handle, 9, 0, N, N, N, &one, a, N, b, N, &zero, c, N) ==
			     CUBLAS_STATUS_INVALID_VALUE,
	     "sizes that are none are refused");
	tell(f_cublasXtDestroy(handle) == 0 && f_cublasXtDestroy(handle) != 0, "it ends once");
}

static void try_cufft(const char *folder)
{
	static const char so[] = "libcufft.so.12";
	static cufftComplex in[N], out[N];
	void *routine[1] = { at[0] };
	cufftHandle plan = 0;
	double worst = 0;
	F(so, cufftPlan1d);
	F(so, cufftDestroy);
	F(so, cufftExecC2C);
	F(so, cufftSetStream);
	F(so, cufftXtClearCallback);
	F(so, cufftXtSetCallback);

	for (int i = 0; i < N; i++)
		in[i] = (cufftComplex){ (float)(i % 5), (float)(i % 3) };
	need(gantry_write(session, buffers[0], 0, in, sizeof(in)), "write");
	tell(f_cufftPlan1d(&plan, N, CUFFT_C2C, 1) == 0 && plan > 0, "a plan is made");
	tell(f_cufftSetStream(plan, STREAM) == 0, "a plan's stream");
	tell(f_cufftExecC2C(plan, (cufftComplex *)at[0], (cufftComplex *)at[1], CUFFT_FORWARD) == 0,
	     "there");
	tell(f_cufftExecC2C(plan, (cufftComplex *)at[1], (cufftComplex *)at[1], CUFFT_INVERSE) == 0,
	     "and back");
	need(gantry_read(session, buffers[1], 0, out, sizeof(out)), "read");
	for (int i = 0; i < N; i++)
		worst = fmax(worst, fabs(out[i].x / N - in[i].x) + fabs(out[i].y / N - in[i].y));
	tell(worst < 1e-3, "the transform of the transform is what was there");
	tell(f_cufftXtSetCallback(plan, routine, CUFFT_CB_LD_COMPLEX, NULL) ==
			     CUFFT_NOT_IMPLEMENTED &&
		     f_cufftXtClearCallback(plan, CUFFT_CB_LD_COMPLEX) == CUFFT_NOT_IMPLEMENTED,
	     "callbacks that are linked with the program are the static library's, as natively");
	tell(f_cufftDestroy(plan) == 0 && f_cufftDestroy(plan) != 0, "a plan ends once");
}

/* Code that a plan is linked with, and plans over GPUs that a session has not. */
static void try_cufft_callbacks(const char *folder)
{
	static const char so[] = "libcufft.so.12";
	static char code[4096];
	int own[1] = { 0 }, both[2] = { 0, 1 }, many[65] = { 0 }, version;
	int is_stand_in;
	cufftHandle plan = 0, other = 0;
	size_t work[1] = { 0 };
	F(so, cufftCreate);
	F(so, cufftDestroy);
	F(so, cufftGetVersion);
	F(so, cufftMakePlan1d);
	F(so, cufftXtSetGPUs);
	F(so, cufftXtSetJITCallback);

	is_stand_in = f_cufftGetVersion(&version) != 0;
	tell(f_cufftCreate(&plan) == 0 && f_cufftCreate(&other) == 0, "plans are made");
	tell(f_cufftXtSetGPUs(plan, 1, own) == CUFFT_INVALID_VALUE,
	     "one GPU is too few for a plan over several, as natively");
	tell(f_cufftXtSetGPUs(plan, 2, both) == CUFFT_INVALID_DEVICE,
	     "another GPU is none, as natively where there is one");
	tell(f_cufftXtSetGPUs(plan, 2, NULL) == CUFFT_INVALID_VALUE &&
		     f_cufftXtSetGPUs(plan, 65, many) == CUFFT_INVALID_VALUE &&
		     f_cufftXtSetGPUs(plan, 17, many) == CUFFT_INVALID_VALUE &&
		     f_cufftXtSetGPUs(plan, -1, own) == CUFFT_INVALID_VALUE,
	     "nor can there be any number of them");
	memset(code, 'x', sizeof(code));
	tell(f_cufftXtSetJITCallback(plan, "load", code, sizeof(code), CUFFT_CB_LD_COMPLEX, NULL) !=
			     0 ||
		     f_cufftMakePlan1d(plan, N, CUFFT_C2C, 1, work) != 0,
	     "code that is none is not linked");
	tell(f_cufftXtSetJITCallback(plan, NULL, code, 1, CUFFT_CB_LD_COMPLEX, NULL) ==
			     CUFFT_INVALID_VALUE &&
		     f_cufftXtSetJITCallback(plan, "load", NULL, 1, CUFFT_CB_LD_COMPLEX, NULL) ==
			     CUFFT_INVALID_VALUE &&
		     f_cufftXtSetJITCallback(plan, "load", code, SIZE_MAX, CUFFT_CB_LD_COMPLEX,
					     NULL) == CUFFT_INVALID_VALUE,
	     "nor is nothing, or more than there is");
	/* It is read later than the call that brought it. */
	if (is_stand_in) {
		void *info[1] = { at[0] }, *wrong[1] = { (void *)0xdead0000000000 };

		tell(f_cufftXtSetJITCallback(other, "store", "storestorestore", 15,
					     CUFFT_CB_ST_COMPLEX, info) == 0,
		     "code is taken");
		tell(f_cufftXtSetJITCallback(plan, "load", "loadloadload", 12, CUFFT_CB_LD_COMPLEX,
					     NULL) == 0,
		     "and other code");
		tell(f_cufftMakePlan1d(other, N, CUFFT_C2C, 1, work) == 0 &&
			     f_cufftMakePlan1d(plan, N, CUFFT_C2C, 1, work) == 0,
		     "plans are linked with theirs");
		tell(f_cufftXtSetJITCallback(plan, "load", "loadloadload", 12, CUFFT_CB_LD_COMPLEX,
					     wrong) == CUFFT_INVALID_VALUE,
		     "an address outside all memory is refused");
	}
	(void)f_cufftDestroy(plan);
	tell(f_cufftDestroy(other) == 0, "they end");
}

/* Data over several GPUs that are one, with descriptors of the program's own. */
static void try_cufft_spread(const char *folder)
{
	static const char so[] = "libcufft.so.12";
	static cufftComplex in[N], out[N];
	int twice[2] = { 0, 0 };
	cudaXtDesc parts = { .nGPUs = 2,
			     .data = { at[0], at[1] },
			     .size = { sizeof(in) / 2, sizeof(in) / 2 } };
	cudaLibXtDesc data = { .descriptor = &parts, .subFormat = CUFFT_XT_FORMAT_INPLACE }, *made;
	size_t work[2] = { SIZE_MAX, SIZE_MAX };
	cufftHandle plan = 0;
	double worst = 0;
	F(so, cufftCreate);
	F(so, cufftDestroy);
	F(so, cufftMakePlan1d);
	F(so, cufftXtExecDescriptorC2C);
	F(so, cufftXtFree);
	F(so, cufftXtMalloc);
	F(so, cufftXtMemcpy);
	F(so, cufftXtSetGPUs);

	for (int i = 0; i < N; i++)
		in[i] = (cufftComplex){ (float)(i % 5), (float)(i % 3) };
	tell(f_cufftCreate(&plan) == 0 && f_cufftXtSetGPUs(plan, 2, twice) == 0,
	     "a plan over one GPU twice");
	tell(f_cufftMakePlan1d(plan, N, CUFFT_C2C, 1, work) == 0 && work[0] != SIZE_MAX &&
		     work[1] != SIZE_MAX,
	     "has two work areas");
	tell(f_cufftXtMemcpy(plan, &data, in, CUFFT_COPY_HOST_TO_DEVICE) == 0, "data goes there");
	tell(f_cufftXtExecDescriptorC2C(plan, &data, &data, CUFFT_FORWARD) == 0 &&
		     data.subFormat == CUFFT_XT_FORMAT_INPLACE_SHUFFLED,
	     "its transform is in another order");
	tell(f_cufftXtMemcpy(plan, out, &data, CUFFT_COPY_DEVICE_TO_HOST) == 0, "and comes back");
	for (int k = 0; k < N; k += 7) {
		double re = 0, im = 0;

		for (int j = 0; j < N; j++) {
			double angle = -2 * M_PI * j * k / N;

			re += in[j].x * cos(angle) - in[j].y * sin(angle);
			im += in[j].x * sin(angle) + in[j].y * cos(angle);
		}
		worst = fmax(worst, fabs(out[k].x - re) + fabs(out[k].y - im));
	}
	tell(worst < 1e-2, "in its own, as it is by the definition");
	tell(f_cufftXtMemcpy(plan, &data, in, CUFFT_COPY_HOST_TO_DEVICE) != 0,
	     "nothing goes where another order is");
	data.subFormat = CUFFT_XT_FORMAT_INPLACE;
	parts.data[1] = (void *)0xdead0000000000;
	tell(f_cufftXtExecDescriptorC2C(plan, &data, &data, CUFFT_FORWARD) == CUFFT_INVALID_VALUE,
	     "an address outside all memory is refused");
	parts.data[1] = at[1];
	parts.GPUs[1] = 1;
	tell(f_cufftXtExecDescriptorC2C(plan, &data, &data, CUFFT_FORWARD) == CUFFT_INVALID_VALUE,
	     "another GPU too");
	parts.GPUs[1] = 0;
	parts.nGPUs = 65;
	tell(f_cufftXtExecDescriptorC2C(plan, &data, &data, CUFFT_FORWARD) == CUFFT_INVALID_VALUE,
	     "and more than there can be");
	parts.nGPUs = 2;
	parts.size[0] = parts.size[1] = SIZE_MAX / 2;
	tell(f_cufftXtMemcpy(plan, &data, in, CUFFT_COPY_HOST_TO_DEVICE) == CUFFT_INVALID_VALUE,
	     "nor is more copied than a call can take");
	tell(f_cufftXtExecDescriptorC2C(plan, NULL, NULL, CUFFT_FORWARD) != 0,
	     "nothing is no data");
	/* Memory for a descriptor is libcuda's to give, and there is none here. */
	tell(f_cufftXtMalloc(plan, &made, CUFFT_XT_FORMAT_INPLACE) == CUFFT_ALLOC_FAILED,
	     "without memory nothing is made");
	tell(f_cufftXtFree(NULL) == 0 && f_cufftXtFree(&data) == CUFFT_INVALID_VALUE,
	     "what was not made here is not freed");
	tell(f_cufftDestroy(plan) == 0, "it ends");
}

static void try_curand(const char *folder)
{
	static const char so[] = "libcurand.so.10";
	static float first[N], second[N];
	curandGenerator_t generator = NULL;
	int good = 1;
	F(so, curandCreateGenerator);
	F(so, curandDestroyGenerator);
	F(so, curandSetPseudoRandomGeneratorSeed);
	F(so, curandGenerateUniform);

	for (int round = 0; round < 2; round++) {
		float *to = round ? second : first;

		good = good &&
		       f_curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT) == 0 &&
		       f_curandSetPseudoRandomGeneratorSeed(generator, 42) == 0 &&
		       f_curandGenerateUniform(generator, at[round], N) == 0;
		need(gantry_read(session, buffers[round], 0, to, sizeof(first)), "read");
		good = good && f_curandDestroyGenerator(generator) == 0;
	}
	tell(good, "random numbers are made");
	for (int i = 0; i < N; i++)
		good = good && first[i] > 0 && first[i] <= 1 && first[i] == second[i];
	tell(good, "the same seed gives the same");
}

/* Generators that fill memory of the program's: each side takes its own memory and no other. */
static void try_curand_on_the_host(const char *folder)
{
	static const char so[] = "libcurand.so.10";
	static float first[2 * N], second[N];
	curandGenerator_t host = NULL, device = NULL;
	int good = 1;
	F(so, curandCreateGenerator);
	F(so, curandCreateGeneratorHost);
	F(so, curandDestroyGenerator);
	F(so, curandSetPseudoRandomGeneratorSeed);
	F(so, curandSetStream);
	F(so, curandGenerateUniform);

	for (int round = 0; round < 2; round++) {
		good = good &&
		       f_curandCreateGeneratorHost(&host, CURAND_RNG_PSEUDO_PHILOX4_32_10) == 0 &&
		       f_curandSetPseudoRandomGeneratorSeed(host, 42) == 0 &&
		       f_curandSetStream(host, round ? STREAM : NULL) == 0 &&
		       f_curandGenerateUniform(host, round ? second : first, N) == 0;
		if (round == 0)
			good = good && f_curandDestroyGenerator(host) == 0;
	}
	for (int i = 0; i < N; i++)
		good = good && first[i] > 0 && first[i] <= 1 && first[i] == second[i] &&
		       first[N + i] == 0;
	tell(good, "random numbers are made on the host, the same on any stream");
	/* What is not waited for is told later, and once. */
	(void)f_curandGenerateUniform(host, at[0], N);
	tell(f_curandGenerateUniform(host, first, N) == CURAND_STATUS_OUT_OF_RANGE,
	     "a generator of the host's gets no device memory");
	(void)f_curandGenerateUniform(host, NULL, N);
	tell(f_curandGenerateUniform(host, first, N) == CURAND_STATUS_OUT_OF_RANGE,
	     "nor nothing to fill");
	tell(f_curandGenerateUniform(host, first, 1ull << 40) == CURAND_STATUS_OUT_OF_RANGE,
	     "nor more than a call carries");
	tell(f_curandGenerateUniform(host, first, N) == 0 && first[N - 1] > 0,
	     "and goes on after that");
	tell(f_curandCreateGenerator(&device, CURAND_RNG_PSEUDO_DEFAULT) == 0 &&
		     f_curandGenerateUniform(device, first, N) == CURAND_STATUS_OUT_OF_RANGE,
	     "one of the device's gets no host memory");
	tell(f_curandDestroyGenerator(host) == 0 && f_curandDestroyGenerator(device) == 0 &&
		     f_curandGenerateUniform(host, first, N) != 0,
	     "they end, and are none then");
}

/* More calls than are kept under way. */
static void try_many(const char *folder)
{
	static const char so[] = "libcublas.so.13";
	const float one = 1, zero = 0;
	cublasHandle_t handle = NULL;
	int good = 1, version;
	F(so, cublasCreate_v2);
	F(so, cublasDestroy_v2);
	F(so, cublasGetVersion_v2);
	F(so, cublasSetStream_v2);
	F(so, cublasSgemm_v2);

	good = f_cublasCreate_v2(&handle) == 0;
	for (int i = 0; i < 500 && good; i++)
		good = f_cublasSetStream_v2(handle, i % 3 ? NULL : STREAM) == 0 &&
		       f_cublasSgemm_v2(handle, 0, 0, 8, 8, 8, &one, at[0], 8, at[1], 8, &zero,
					at[2], 8) == 0;
	tell(good, "five hundred products");
	tell(f_cublasGetVersion_v2(handle, &version) == 0 && f_cublasDestroy_v2(handle) == 0,
	     "and none failed");
}

/* Runs kernel library_call on the first @bytes of @buffer; its status. */
static int run_raw(gantry_kernel kernel, gantry_buffer buffer, uint64_t bytes)
{
	const uint64_t args[2] = { 0, bytes };
	const struct gantry_access access = { .buffer = buffer, .mode = GANTRY_RW };
	const struct gantry_task task = { .kernel = kernel,
					  .args = args,
					  .args_bytes = sizeof(args),
					  .naccess = 1,
					  .access = &access };
	gantry_ticket ticket;

	need(gantry_submit(session, queues[0], &task, 1, &ticket), "submit");
	return gantry_wait(session, &ticket, 1, S10);
}

/* Whoever has a session can launch the kernel with anything. */
static void try_garbage(void)
{
	static uint8_t bytes[4096];
	struct gantry_calls_request request = { .version = GANTRY_CALLS_VERSION };
	struct gantry_calls_reply reply;
	gantry_kernel kernel;
	gantry_buffer box;

	need(gantry_kernel_find(session, GANTRY_CALLS_KERNEL, GANTRY_CALLS_SIGNATURE, &kernel),
	     "kernel");
	need(gantry_alloc(session, sizeof(bytes), GANTRY_ALLOC_HOST, &box), "box");
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + 3);
	need(gantry_write(session, box, 0, bytes, sizeof(bytes)), "write");
	tell(run_raw(kernel, box, sizeof(bytes)) == 0, "garbage is answered");
	need(gantry_read(session, box, 0, &reply, sizeof(reply)), "read");
	tell(reply.state == GANTRY_CALLS_REFUSED, "with a refusal");
	request.bytes = sizeof(bytes) - sizeof(request);
	need(gantry_write(session, box, 0, &request, sizeof(request)), "write");
	tell(run_raw(kernel, box, sizeof(bytes)) == 0, "a function that is none is answered");
	need(gantry_read(session, box, 0, &reply, sizeof(reply)), "read");
	tell(reply.state == GANTRY_CALLS_UNKNOWN, "as unknown");
	tell(run_raw(kernel, box, 1ull << 40) == GANTRY_E_KERNEL,
	     "more bytes than the buffer has fail");
	tell(run_raw(kernel, buffers[0], sizeof(bytes)) == GANTRY_E_KERNEL,
	     "a buffer of the device fails");
	need(gantry_free(session, box), "free");
}

/* The device is busy until *word is written, by a task that is @ret_ticket's. */
static gantry_buffer keep_busy(uint64_t **ret_word, gantry_ticket *ret_ticket)
{
	const uint64_t args[1] = { 0 };
	struct gantry_access access = { .mode = GANTRY_RW };
	struct gantry_task task = { .grid = { 1, 1, 1 },
				    .block = { 1, 1, 1 },
				    .args = args,
				    .args_bytes = sizeof(args),
				    .naccess = 1,
				    .access = &access };
	void *mapped;

	need(gantry_alloc(session, sizeof(uint64_t), GANTRY_ALLOC_HOST, &access.buffer), "alloc");
	need(gantry_map(session, access.buffer, 0, sizeof(uint64_t), GANTRY_RW, S10, &mapped),
	     "map");
	*ret_word = mapped;
	gantry_store_release(*ret_word, 0);
	need(gantry_kernel_from(session, image, "until", "rw:u64*", &task.kernel), "kernel");
	need(gantry_submit(session, queues[0], &task, 1, ret_ticket), "submit");
	return access.buffer;
}

/*
 * The device is busy until the calls have returned: what a library answers from the host comes at once, and so do calls
 * that answer nothing.
 */
static void try_busy(const char *folder)
{
	static const char so[] = "libcublas.so.13";
	cublasHandle_t handle = NULL;
	gantry_ticket ticket;
	gantry_buffer buffer;
	uint64_t *word;
	int version = 0, good;
	F(so, cublasCreate_v2);
	F(so, cublasGetVersion_v2);
	F(so, cublasSetPointerMode_v2);
	F(so, cublasDestroy_v2);

	tell(f_cublasCreate_v2(&handle) == 0, "a handle before the device is busy");
	buffer = keep_busy(&word, &ticket);
	good = f_cublasGetVersion_v2(handle, &version) == 0 && version > 0;
	/* More than there are boxes. */
	for (int i = 0; i < 100; i++)
		good = good && f_cublasSetPointerMode_v2(handle, CUBLAS_POINTER_MODE_HOST) == 0;
	tell(good && gantry_test(session, ticket) == 0, "answers while the device is busy");
	gantry_store_release(word, 1);
	need(gantry_wait(session, &ticket, 1, S10), "wait");
	tell(f_cublasGetVersion_v2(handle, &version) == 0, "an answer afterwards");
	tell(f_cublasDestroy_v2(handle) == 0, "the handle's end");
	need(gantry_free(session, buffer), "free");
}

/* A stand-in's function that takes @ms on the host; and, through another queue, what goes on meanwhile. */
static void nap(const char *folder, int ms)
{
	static const char so[] = "libcublas.so.13";
	cublasHandle_t handle = NULL;
	float took = 0;
	F(so, cublasCreate_v2);
	F(so, cublasSasum_v2);

	tell(f_cublasCreate_v2(&handle) == 0, "a handle is made");
	printf("napping\n");
	(void)fflush(stdout);
	tell(f_cublasSasum_v2(handle, ms, at[0], 1, &took) == 0 && took == (float)ms,
	     "a long call");
	printf("napped\n");
}

/* One that nobody waits for, and work that has been put behind it. */
static void crowd(const char *folder, int ms)
{
	static const char so[] = "libcublas.so.13";
	const float one = 1, zero = 0;
	cublasHandle_t handle = NULL;
	int good, version;
	F(so, cublasCreate_v2);
	F(so, cublasGetVersion_v2);
	F(so, cublasSgemm_v2);
	F(so, cublasSscal_v2);

	tell(f_cublasCreate_v2(&handle) == 0, "a handle is made");
	good = f_cublasSscal_v2(handle, ms, &one, at[0], 1) == 0;
	for (int i = 0; i < 8; i++)
		good = good && f_cublasSgemm_v2(handle, 0, 0, 8, 8, 8, &one, at[0], 8, at[1], 8,
						&zero, at[2], 8) == 0;
	printf("napping\n");
	(void)fflush(stdout);
	tell(good && f_cublasGetVersion_v2(handle, &version) == 0, "a long call");
	printf("napped\n");
}

double calls_now_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* that clock is always there */
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* What a call costs that is waited for, and one of many that are not. */
static void measure(const char *folder, int n)
{
	static const char so[] = "libcublas.so.13";
	const float one = 1, zero = 0;
	cublasHandle_t handle = NULL;
	int good = 1, version;
	double began = 0;
	F(so, cublasCreate_v2);
	F(so, cublasGetVersion_v2);
	F(so, cublasSgemm_v2);

	good = f_cublasCreate_v2(&handle) == 0;
	for (int part = 0; part < 2; part++) {
		/* The first ones are looked at more closely. */
		for (int i = 0; i < n + 100 && good; i++) {
			if (i == 100)
				began = calls_now_us();
			good = part ? f_cublasSgemm_v2(handle, 0, 0, 8, 8, 8, &one, at[0], 8, at[1],
						       8, &zero, at[2], 8) == 0
				    : f_cublasGetVersion_v2(handle, &version) == 0;
		}
		good = good && f_cublasGetVersion_v2(handle, &version) == 0;
		printf("%s %.2f us\n", part ? "sent" : "answered", (calls_now_us() - began) / n);
	}
	tell(good, "calls");
}

static int handles_alive(const char *folder)
{
	static const char so[] = "libcublas.so.13";
	int n = -1;
	F(so, cublasGetProperty);

	return f_cublasGetProperty(PATCH_LEVEL, &n) == 0 ? n : -1;
}

/* Leaves @n handles to whoever looks after sessions that have ended. */
static void litter(const char *folder, int n)
{
	static const char so[] = "libcublas.so.13";
	cublasHandle_t handle;
	F(so, cublasCreate_v2);

	for (int i = 0; i < n; i++)
		tell(f_cublasCreate_v2(&handle) == 0, "a handle is made");
	tell(handles_alive(folder) >= n, "they are there");
}

/* For each line on standard input: how many handles the worker's library has. */
static void watch(const char *folder)
{
	char line[16];

	while (fgets(line, sizeof(line), stdin)) {
		printf("alive %d\n", handles_alive(folder));
		(void)fflush(stdout);
	}
}

static void try_all(const char *folder)
{
	try_garbage();
	try_cublas(folder);
	try_cufft(folder);
	try_cublas_xt(folder);
	try_cufft_callbacks(folder);
	try_cufft_spread(folder);
	try_curand(folder);
	try_curand_on_the_host(folder);
	try_many(folder);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return EXIT_FAILURE;
	start(argv[2]);
	if (argc == 5 && strcmp(argv[3], "nap") == 0)
		nap(argv[1], atoi(argv[4]));
	else if (argc == 5 && strcmp(argv[3], "crowd") == 0)
		crowd(argv[1], atoi(argv[4]));
	else if (argc == 5 && strcmp(argv[3], "measure") == 0)
		measure(argv[1], atoi(argv[4]));
	else if (argc == 5 && strcmp(argv[3], "litter") == 0)
		litter(argv[1], atoi(argv[4]));
	else if (argc == 4 && strcmp(argv[3], "busy") == 0)
		try_busy(argv[1]);
	else if (argc == 4 && strcmp(argv[3], "tensors") == 0)
		try_tensors(argv[1], STREAM);
	else if (argc == 5 && strcmp(argv[3], "normalize") == 0)
		measure_tensors(argv[1], atoi(argv[4]));
	else if (argc == 4 && strcmp(argv[3], "watch") == 0)
		watch(argv[1]);
	else
		try_all(argv[1]);
	printf("done\n");
	gantry_close(session);
	return nfailed ? EXIT_FAILURE : EXIT_SUCCESS;
}
