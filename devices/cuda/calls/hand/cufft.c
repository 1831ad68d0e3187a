/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuFFT's data over several GPUs, which are the session's one several times. The memory of its parts is the guest's; of what the library makes here
 * for such data only its sizes leave the call. On the wire:
 *
 *   cufftXtQueryPlan  the plan, the type; bytes out
 *   cufftXtMalloc   the plan, the format; bytes out, a gantry_calls_spread_measure
 *   cufftXtMemcpy   the plan, the type; parts of data, and then bytes in, bytes out, or parts of data that are the source
 */
#include <cufftXt.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/calls/run.h"

/* What a library may touch of host memory beyond what it says: nothing is known of it. */
#define SLACK 4096u

void *gantry_hand_take_cudaLibXtDesc(struct gantry_calls_run *run);
void gantry_hand_give_cudaLibXtDesc(struct gantry_calls_run *run, void *record);
void gantry_hand_serve_cufftXtMalloc(struct gantry_calls_run *run);
void gantry_hand_serve_cufftXtMemcpy(struct gantry_calls_run *run);
void gantry_hand_serve_cufftXtQueryPlan(struct gantry_calls_run *run);

/* ---- a descriptor as an argument ---- */

/* The library gets the first; its opaque members are NULL, as in what programs make themselves. */
struct taken {
	cudaLibXtDesc descriptor;
	cudaXtDesc parts;
	int32_t *format; /* what the guest gets */
};

static void take_parts(struct gantry_calls_run *run, struct taken *taken, int n)
{
	const int *devices = gantry_calls_take_parts(run, n);

	taken->parts.nGPUs = n;
	for (int i = 0; devices && i < n; i++) {
		struct gantry_calls_part part = { 0, 0 };

		taken->parts.data[i] = gantry_calls_take_device(run);
		gantry_calls_take(run, &part.bytes, sizeof(part.bytes));
		taken->parts.size[i] = part.bytes;
		taken->parts.GPUs[i] = devices[i];
	}
}

void *gantry_hand_take_cudaLibXtDesc(struct gantry_calls_run *run)
{
	struct gantry_calls_spread spread = { 0 };
	struct taken *taken;
	uint64_t how = 0;

	gantry_calls_take(run, &how, sizeof(how));
	if (how == 2 && run->record)
		return run->record;
	if (how > 1)
		gantry_calls_refuse(run);
	if (how != 1)
		return NULL;
	gantry_calls_take(run, &spread, sizeof(spread));
	taken = gantry_calls_take_scratch(run, sizeof(*taken));
	/* Of other parts than the plan's the library knows nothing, and nobody says that it looks. */
	if (!taken || spread.nparts != run->parts || spread.nparts > MAX_CUDA_DESCRIPTOR_GPUS) {
		gantry_calls_refuse(run);
		return NULL;
	}
	taken->descriptor.version = spread.version;
	taken->descriptor.descriptor = &taken->parts;
	taken->descriptor.library = (libFormat)spread.library;
	taken->descriptor.subFormat = spread.format;
	taken->parts.version = spread.parts_version;
	take_parts(run, taken, (int)spread.nparts);
	taken->format = gantry_calls_take_out(run, sizeof(*taken->format));
	run->record = taken;
	return run->in.failed ? NULL : taken;
}

/* After the library; its work is done then, as natively where a plan over several GPUs has no stream. */
void gantry_hand_give_cudaLibXtDesc(struct gantry_calls_run *run, void *record)
{
	struct taken *taken = record;

	(void)gantry_calls_settle(run); /* of a device that failed the next call tells */
	*taken->format = taken->descriptor.subFormat;
}

/* ---- what a plan's data is ---- */

struct cufft {
	__typeof__(&cufftXtMalloc) make;
	__typeof__(&cufftXtFree) end;
	__typeof__(&cufftXtMemcpy) copy;
	__typeof__(&cufftSetStream) set_stream;
};

static bool find_cufft(struct gantry_calls_run *run, struct cufft *ret)
{
	ret->make = (__typeof__(&cufftXtMalloc))gantry_calls_symbol(run, "cufftXtMalloc");
	ret->end = (__typeof__(&cufftXtFree))gantry_calls_symbol(run, "cufftXtFree");
	ret->copy = (__typeof__(&cufftXtMemcpy))gantry_calls_symbol(run, "cufftXtMemcpy");
	ret->set_stream = (__typeof__(&cufftSetStream))gantry_calls_symbol(run, "cufftSetStream");
	return ret->make && ret->end && ret->copy && ret->set_stream;
}

/* Its parts together; UINT64_MAX: more than there can be. */
static uint64_t bytes_of(const cudaXtDesc *parts)
{
	uint64_t bytes = 0;

	for (int i = 0; i < parts->nGPUs && i < MAX_CUDA_DESCRIPTOR_GPUS; i++)
		if (__builtin_add_overflow(bytes, parts->size[i], &bytes))
			return UINT64_MAX;
	return bytes;
}

/* How many bytes the library writes from the beginning of @room on, which had @mark in each of @most; what has that value too is found by another mark. */
static bool measure_copy(const struct cufft *cufft, cufftHandle plan, cudaLibXtDesc *from,
			 uint8_t *room, uint64_t most, uint8_t mark, uint64_t *longest)
{
	uint64_t n = most;

	memset(room, mark, most);
	if (cufft->copy(plan, room, from, CUFFT_COPY_DEVICE_TO_HOST) != CUFFT_SUCCESS)
		return false;
	while (n > *longest && room[n - 1] == mark)
		n--;
	*longest = n;
	return true;
}

/*
 * The data as one piece on the host: parts may have room that a transform wants and the data has not, and nothing tells how much. UINT64_MAX: nobody
 * knows, as the library copies no such data to the host; with any length it would be copied wrong.
 */
static uint64_t host_bytes_of(const struct cufft *cufft, cufftHandle plan, cudaLibXtDesc *made)
{
	uint64_t most = bytes_of(made->descriptor), longest = 0;
	bool is_known;
	uint8_t *room;

	if (most == 0 || most > GANTRY_CALLS_MAX_BYTES)
		return most; /* nothing, or more than a call can copy */
	room = malloc(most + SLACK);
	is_known = room && measure_copy(cufft, plan, made, room, most, 0x5a, &longest) &&
		   measure_copy(cufft, plan, made, room, most, 0xa5, &longest);
	free(room);
	return is_known ? longest : UINT64_MAX;
}

static void tell(const struct cufft *cufft, cufftHandle plan, cudaLibXtDesc *made,
		 struct gantry_calls_spread_measure *measure)
{
	const cudaXtDesc *parts = made->descriptor;

	measure->spread = (struct gantry_calls_spread){
		.version = made->version,
		.parts_version = parts->version,
		.library = (int32_t)made->library,
		.format = made->subFormat,
		.nparts = (uint64_t)parts->nGPUs,
	};
	measure->host_bytes = host_bytes_of(cufft, plan, made);
	for (int i = 0; i < parts->nGPUs && i < MAX_CUDA_DESCRIPTOR_GPUS; i++)
		measure->bytes[i] = parts->size[i];
}

/* A plan on the wire, and the call's stream told to it. */
struct plan {
	cufftHandle native;
	uint64_t id;
	uint32_t kind;
};

static void take_plan(struct gantry_calls_run *run, struct plan *plan)
{
	plan->kind = gantry_calls_kind("cufftHandle");
	plan->id = gantry_calls_peek(run);
	plan->native = (cufftHandle)gantry_calls_take_handle(run, plan->kind, false);
}

static void bind_plan(struct gantry_calls_run *run, const struct cufft *cufft,
		      const struct plan *plan)
{
	if (!gantry_calls_is_bound(run, plan->kind, plan->id) &&
	    cufft->set_stream(plan->native, run->stream) == CUFFT_SUCCESS)
		gantry_calls_note_bound(run, plan->kind, plan->id);
}

/* ---- calls ---- */

void gantry_hand_serve_cufftXtMalloc(struct gantry_calls_run *run)
{
	struct gantry_calls_spread_measure *measure;
	cudaLibXtDesc *made = NULL;
	struct cufft cufft;
	struct plan plan;
	int32_t format = 0;
	cufftResult ret;

	take_plan(run, &plan);
	gantry_calls_take(run, &format, sizeof(format));
	measure = gantry_calls_take_out(run, sizeof(*measure));
	gantry_calls_need(run, measure);
	if (!find_cufft(run, &cufft))
		gantry_calls_refuse(run);
	if (!gantry_calls_may_run(run))
		return;
	bind_plan(run, &cufft, &plan);
	ret = cufft.make(plan.native, &made, (cufftXtSubFormat)format);
	if (ret == CUFFT_SUCCESS && made) {
		tell(&cufft, plan.native, made, measure);
		(void)cufft.end(made);
	}
	gantry_calls_ran(run, (uint64_t)ret, ret == CUFFT_SUCCESS);
}

/* Whether the plan has data of that format. */
static bool has_format(const struct cufft *cufft, cufftHandle plan, cufftXtSubFormat format)
{
	cudaLibXtDesc *made = NULL;

	if (cufft->make(plan, &made, format) != CUFFT_SUCCESS || !made)
		return false;
	(void)cufft->end(made);
	return true;
}

/*
 * The library divides by nothing where a plan over several GPUs is of several transforms. Those have no order of their own for what comes out,
 * and what goes in has one for one dimension only.
 */
static bool may_be_asked(struct gantry_calls_run *run, const struct cufft *cufft,
			 const struct plan *plan)
{
	return gantry_calls_parts(run, plan->kind, plan->id) == 1 ||
	       (has_format(cufft, plan->native, CUFFT_XT_FORMAT_INPLACE_SHUFFLED) &&
		has_format(cufft, plan->native, CUFFT_XT_FORMAT_1D_INPUT_SHUFFLED));
}

void gantry_hand_serve_cufftXtQueryPlan(struct gantry_calls_run *run)
{
	__typeof__(&cufftXtQueryPlan) ask =
		(__typeof__(&cufftXtQueryPlan))gantry_calls_symbol(run, "cufftXtQueryPlan");
	cufftXt1dFactors *factors;
	struct cufft cufft;
	struct plan plan;
	int32_t type = 0;
	cufftResult ret;

	take_plan(run, &plan);
	gantry_calls_take(run, &type, sizeof(type));
	factors = gantry_calls_take_out(run, sizeof(*factors));
	gantry_calls_need(run, factors);
	if (!ask || !find_cufft(run, &cufft))
		gantry_calls_refuse(run);
	if (!gantry_calls_may_run(run))
		return;
	ret = may_be_asked(run, &cufft, &plan) ? ask(plan.native, factors, (cufftXtQueryType)type)
					       : CUFFT_INVALID_PLAN;
	gantry_calls_ran(run, (uint64_t)ret, ret == CUFFT_SUCCESS);
}

/*
 * What the library may touch on the host when it copies the plan's data, whatever a guest says of that. Data that there was no memory for may
 * be the longest, so then it is not known; nor of a plan that has none.
 */
static cufftResult learn_extent(struct gantry_calls_run *run, const struct cufft *cufft,
				const struct plan *plan, uint64_t *ret_bytes)
{
	static const cufftXtSubFormat formats[] = { CUFFT_XT_FORMAT_INPUT, CUFFT_XT_FORMAT_OUTPUT,
						    CUFFT_XT_FORMAT_INPLACE };
	struct gantry_calls_object *object = gantry_calls_table_find(&run->site->table, plan->kind,
								     plan->id);
	cufftResult one, ret = CUFFT_INVALID_PLAN;

	*ret_bytes = object ? object->extent_bytes : 0;
	if (*ret_bytes)
		return CUFFT_SUCCESS;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		cudaLibXtDesc *made = NULL;

		one = cufft->make(plan->native, &made, formats[i]);
		if (one == CUFFT_ALLOC_FAILED || one == CUFFT_INTERNAL_ERROR)
			return one;
		if (one != CUFFT_SUCCESS || !made)
			continue;
		ret = CUFFT_SUCCESS;
		if (*ret_bytes < bytes_of(made->descriptor))
			*ret_bytes = bytes_of(made->descriptor);
		(void)cufft->end(made);
	}
	if (object && ret == CUFFT_SUCCESS)
		object->extent_bytes = *ret_bytes;
	return ret;
}

/* Memory for the program's side, larger than anybody's word for it; of what goes in a copy. */
static void *take_host(struct gantry_calls_run *run, uint64_t extent, const struct taken *data,
		       bool to_guest)
{
	uint64_t most = bytes_of(&data->parts), len = gantry_unpack_u64(&run->in);
	const void *from = NULL;
	void *at;

	if (most < extent)
		most = extent;
	if (len > most || most > GANTRY_CALLS_MAX_BYTES) {
		gantry_calls_refuse(run);
		return NULL;
	}
	if (to_guest)
		return gantry_calls_hold_out(run, len, most + SLACK);
	from = gantry_unpack_bytes(&run->in, len);
	at = gantry_calls_take_scratch(run, most + SLACK);
	if (at && from)
		memcpy(at, from, len);
	return at;
}

void gantry_hand_serve_cufftXtMemcpy(struct gantry_calls_run *run)
{
	void *to = NULL, *from = NULL;
	struct cufft cufft;
	struct plan plan;
	int32_t type = CUFFT_COPY_UNDEFINED;
	uint64_t extent = 0;
	cufftResult ret = CUFFT_SUCCESS;

	take_plan(run, &plan);
	gantry_calls_take(run, &type, sizeof(type));
	if (!find_cufft(run, &cufft))
		gantry_calls_refuse(run);
	if (type == CUFFT_COPY_DEVICE_TO_HOST)
		from = gantry_hand_take_cudaLibXtDesc(run);
	else
		to = gantry_hand_take_cudaLibXtDesc(run);
	/* The library makes data of its own to tell how much it is, and not for what is wrong. */
	if (type == CUFFT_COPY_DEVICE_TO_DEVICE)
		from = gantry_hand_take_cudaLibXtDesc(run);
	else if (to || from)
		ret = learn_extent(run, &cufft, &plan, &extent);
	if (ret != CUFFT_SUCCESS) {
		gantry_calls_ran(run, (uint64_t)ret, false);
		return;
	}
	if (type == CUFFT_COPY_HOST_TO_DEVICE && to)
		from = take_host(run, extent, to, false);
	else if (type == CUFFT_COPY_DEVICE_TO_HOST && from)
		to = take_host(run, extent, from, true);
	gantry_calls_need(run, to);
	gantry_calls_need(run, from);
	if (!gantry_calls_may_run(run))
		return;
	bind_plan(run, &cufft, &plan);
	/* Its copies may go beside the stream. */
	ret = gantry_calls_settle(run) ? cufft.copy(plan.native, to, from, (cufftXtCopyType)type)
				       : CUFFT_EXEC_FAILED;
	if (type != CUFFT_COPY_HOST_TO_DEVICE)
		gantry_hand_give_cudaLibXtDesc(run, from);
	if (type != CUFFT_COPY_DEVICE_TO_HOST)
		gantry_hand_give_cudaLibXtDesc(run, to);
	gantry_calls_ran(run, (uint64_t)ret, ret == CUFFT_SUCCESS);
}
