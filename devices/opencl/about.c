/* SPDX-License-Identifier: Apache-2.0 */
/* What guests may know of a device and of their images, as text: libgantry-opencl makes OpenCL's answers of it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/str.h"
#include "devices/opencl/backend.h"

#define ABOUT_BYTES   8192u
#define TEXT_BYTES    2048u
#define NAME_BYTES    256u
#define KERNELS_MAX   1024u
#define LARGEST_VALUE 1024u /* bytes of an argument that is passed by value */
#define MOST_TRIALS   8192u /* of sizes, for one image: some milliseconds of the device thread */
#define FORMATS_MAX   256u

/* ---- text with a limit ---- */

struct text {
	char *at;
	size_t room; /* with the NUL */
	bool cut;    /* a line did not fit, and none after it was put */
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = t->cut ? -1 : vsnprintf(t->at, t->room, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= t->room) {
		t->cut = true;
		*t->at = '\0';
		return;
	}
	t->at += n;
	t->room -= (size_t)n;
}

/* ---- a device ---- */

static const struct {
	const char *key;
	cl_device_info what;
} numbers[] = {
	{ "type", CL_DEVICE_TYPE },
	{ "units", CL_DEVICE_MAX_COMPUTE_UNITS },
	{ "work_group", CL_DEVICE_MAX_WORK_GROUP_SIZE },
	{ "clock_mhz", CL_DEVICE_MAX_CLOCK_FREQUENCY },
	{ "address_bits", CL_DEVICE_ADDRESS_BITS },
	{ "max_alloc", CL_DEVICE_MAX_MEM_ALLOC_SIZE },
	{ "parameter_bytes", CL_DEVICE_MAX_PARAMETER_SIZE },
	{ "align_bits", CL_DEVICE_MEM_BASE_ADDR_ALIGN },
	{ "align_bytes", CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE },
	{ "single", CL_DEVICE_SINGLE_FP_CONFIG },
	{ "double", CL_DEVICE_DOUBLE_FP_CONFIG },
	{ "cache_type", CL_DEVICE_GLOBAL_MEM_CACHE_TYPE },
	{ "cache_line", CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE },
	{ "cache_bytes", CL_DEVICE_GLOBAL_MEM_CACHE_SIZE },
	{ "constant_bytes", CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE },
	{ "constant_args", CL_DEVICE_MAX_CONSTANT_ARGS },
	{ "local_type", CL_DEVICE_LOCAL_MEM_TYPE },
	{ "local_bytes", CL_DEVICE_LOCAL_MEM_SIZE },
	{ "ecc", CL_DEVICE_ERROR_CORRECTION_SUPPORT },
	{ "unified", CL_DEVICE_HOST_UNIFIED_MEMORY },
	{ "timer_ns", CL_DEVICE_PROFILING_TIMER_RESOLUTION },
	{ "little_endian", CL_DEVICE_ENDIAN_LITTLE },
	{ "printf_bytes", CL_DEVICE_PRINTF_BUFFER_SIZE },
	{ "images", CL_DEVICE_IMAGE_SUPPORT },
	{ "image_reads", CL_DEVICE_MAX_READ_IMAGE_ARGS },
	{ "image_writes", CL_DEVICE_MAX_WRITE_IMAGE_ARGS },
	{ "image2d_width", CL_DEVICE_IMAGE2D_MAX_WIDTH },
	{ "image2d_height", CL_DEVICE_IMAGE2D_MAX_HEIGHT },
	{ "image3d_width", CL_DEVICE_IMAGE3D_MAX_WIDTH },
	{ "image3d_height", CL_DEVICE_IMAGE3D_MAX_HEIGHT },
	{ "image3d_depth", CL_DEVICE_IMAGE3D_MAX_DEPTH },
	{ "image_buffer", CL_DEVICE_IMAGE_MAX_BUFFER_SIZE },
	{ "image_array", CL_DEVICE_IMAGE_MAX_ARRAY_SIZE },
	{ "samplers", CL_DEVICE_MAX_SAMPLERS },
	{ "vector_char", CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR },
	{ "vector_short", CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT },
	{ "vector_int", CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT },
	{ "vector_long", CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG },
	{ "vector_float", CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT },
	{ "vector_double", CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE },
};

/* Of one format: for what images of which types (bit: its number less the first) it may be used. */
struct format {
	cl_image_format format;
	uint32_t types[3]; /* read, written, both */
};

static struct format *find_format(struct format *formats, uint32_t *n,
				  const cl_image_format *wanted)
{
	for (uint32_t i = 0; i < *n; i++)
		if (formats[i].format.image_channel_order == wanted->image_channel_order &&
		    formats[i].format.image_channel_data_type == wanted->image_channel_data_type)
			return &formats[i];
	if (*n == FORMATS_MAX)
		return NULL;
	formats[*n] = (struct format){ .format = *wanted };
	return &formats[(*n)++];
}

/* One use of one type. Formats that no guest's driver could lay out are left away. */
static void note_formats(const struct gantry_dev *dev, uint32_t use, uint32_t type,
			 struct format *formats, uint32_t *n)
{
	static const cl_mem_flags uses[] = { CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY,
					     CL_MEM_READ_WRITE };
	cl_image_format found[FORMATS_MAX];
	struct format *format;
	cl_uint nfound = 0;

	if (dev->cl->GetSupportedImageFormats(dev->context, uses[use], GANTRY_IMAGE_2D + type,
					      FORMATS_MAX, found, &nfound) != CL_SUCCESS)
		return;
	for (cl_uint i = 0; i < nfound && i < FORMATS_MAX; i++) {
		if (!gantry_pixel_bytes(found[i].image_channel_order,
					found[i].image_channel_data_type))
			continue;
		format = find_format(formats, n, &found[i]);
		if (format)
			format->types[use] |= 1u << type;
	}
}

static void say_formats(struct text *t, const struct gantry_dev *dev)
{
	struct format *formats = calloc(FORMATS_MAX, sizeof(*formats));
	uint32_t n = 0;

	for (uint32_t use = 0; formats && use < 3; use++)
		for (uint32_t type = 0; type < GANTRY_IMAGE_NTYPES; type++)
			note_formats(dev, use, type, formats, &n);
	for (uint32_t i = 0; i < n; i++)
		put(t, "image_format %u %u %u %u %u\n", formats[i].format.image_channel_order,
		    formats[i].format.image_channel_data_type, formats[i].types[0],
		    formats[i].types[1], formats[i].types[2]);
	free(formats);
}

/* "partition" as it is; "domain BIT UNITS...", of each part. */
static void say_parts(struct text *t, const struct gantry_dev *dev)
{
	if (dev->partition)
		put(t, "partition %u\n", dev->partition);
	for (uint32_t d = 0; d < GANTRY_PART_NDOMAINS; d++) {
		if (dev->domains[d].nparts == 0)
			continue;
		put(t, "domain %u", 1u << d);
		for (uint32_t i = 0; i < dev->domains[d].nparts; i++)
			put(t, " %u", dev->domains[d].units[i]);
		put(t, "\n");
	}
}

/* Constants came with a later version of OpenCL than the language. */
static void say_languages(struct text *t, const struct gantry_dev *dev)
{
	cl_device_id device = dev->target.device;
	char words[NAME_BYTES], version[NAME_BYTES];
	unsigned int major = 0, minor = 0;

	if (!dev->cl->CreateProgramWithIL)
		return;
	gantry_opencl_text(dev->cl, device, GANTRY_OPENCL_IL_VERSION, words, sizeof(words));
	if (!words[0])
		return;
	put(t, "il %s\n", words);
	gantry_opencl_text(dev->cl, device, CL_DEVICE_VERSION, version, sizeof(version));
	if (dev->cl->SetProgramSpecializationConstant &&
	    sscanf(version, "OpenCL %u.%u", &major, &minor) == 2 &&
	    (major > 2 || (major == 2 && minor >= 2)))
		put(t, "il_constants 1\n");
}

/* A context's answers are the same for every tenant: the model's name and its numbers, no address and no serial number. */
void gantry_opencl_about(struct gantry_dev *dev)
{
	const struct gantry_opencl_driver *cl = dev->cl;
	cl_device_id device = dev->target.device;
	size_t items[3] = { 0 };
	char words[TEXT_BYTES];
	struct text t = { .room = ABOUT_BYTES };

	dev->about = t.at = calloc(1, ABOUT_BYTES);
	if (!dev->about)
		return;
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(numbers); i++)
		put(&t, "%s %llu\n", numbers[i].key,
		    (unsigned long long)gantry_opencl_number(cl, device, numbers[i].what, 0));
	if (cl->GetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof(items), items, NULL) ==
	    CL_SUCCESS)
		put(&t, "work_items %zu %zu %zu\n", items[0], items[1], items[2]);
	gantry_opencl_text(cl, device, CL_DEVICE_NAME, words, NAME_BYTES);
	gantry_str_make_printable(words);
	put(&t, "model %s\n", words);
	gantry_opencl_text(cl, device, CL_DEVICE_EXTENSIONS, words, sizeof(words));
	gantry_str_make_printable(words);
	put(&t, "extensions %s\n", words);
	say_parts(&t, dev);
	say_languages(&t, dev);
	if (gantry_opencl_number(cl, device, CL_DEVICE_IMAGE_SUPPORT, 0))
		say_formats(&t, dev);
}

/* ---- an image ---- */

/* Numbers of an address qualifier, an access qualifier and type qualifiers stand as OpenCL has them. */
static void arg_text(const struct gantry_opencl_driver *cl, cl_kernel kernel, cl_uint i,
		     cl_kernel_arg_info what, char text[NAME_BYTES])
{
	text[0] = '\0';
	if (cl->GetKernelArgInfo(kernel, i, what, NAME_BYTES - 1, text, NULL) != CL_SUCCESS)
		text[0] = '\0';
	text[NAME_BYTES - 1] = '\0';
	gantry_str_make_printable(text);
}

static uint64_t arg_number(const struct gantry_opencl_driver *cl, cl_kernel kernel, cl_uint i,
			   cl_kernel_arg_info what)
{
	uint64_t number = 0;

	return cl->GetKernelArgInfo(kernel, i, what, sizeof(number), &number, NULL) == CL_SUCCESS
		       ? number
		       : 0;
}

/* What is said of an image, and how much was tried for it. */
struct saying {
	struct text text;
	const struct gantry_dev *dev;
	uint32_t ntrials;
};

/*
 * OpenCL tells no sizes, but takes an argument only of the right one. Of types with names of OpenCL's own it is known; of
 * others sizes are tried that most have. 0: unknown; a wrong one then shows when a kernel runs.
 */
static uint32_t value_bytes(struct saying *s, cl_kernel kernel, cl_uint i, const char *type)
{
	static const unsigned char zeros[LARGEST_VALUE];
	uint32_t found = gantry_opencl_type_bytes(type);

	if (found || strcmp(type, "sampler_t") == 0)
		return found;
	for (uint32_t n = 1; n <= LARGEST_VALUE; n += n < 4 ? n : 4) {
		if (s->ntrials == MOST_TRIALS)
			return 0;
		s->ntrials++;
		if (s->dev->cl->SetKernelArg(kernel, i, n, zeros) != CL_SUCCESS)
			continue;
		if (found)
			return 0; /* it takes several, so nothing is known */
		found = n;
	}
	return found;
}

static void say_arg(struct saying *s, cl_kernel kernel, cl_uint i)
{
	const struct gantry_opencl_driver *cl = s->dev->cl;
	uint64_t where = arg_number(cl, kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER);
	char type[NAME_BYTES], name[NAME_BYTES];

	arg_text(cl, kernel, i, CL_KERNEL_ARG_TYPE_NAME, type);
	arg_text(cl, kernel, i, CL_KERNEL_ARG_NAME, name);
	put(&s->text, "arg\t%llu\t%llu\t%llu\t%u\t%s\t%s\n", (unsigned long long)where,
	    (unsigned long long)arg_number(cl, kernel, i, CL_KERNEL_ARG_ACCESS_QUALIFIER),
	    (unsigned long long)arg_number(cl, kernel, i, CL_KERNEL_ARG_TYPE_QUALIFIER),
	    where == CL_KERNEL_ARG_ADDRESS_PRIVATE ? value_bytes(s, kernel, i, type) : 0, type,
	    name);
}

static uint64_t group_number(const struct gantry_dev *dev, cl_kernel kernel,
			     cl_kernel_work_group_info what)
{
	uint64_t number = 0;

	return dev->cl->GetKernelWorkGroupInfo(kernel, dev->target.device, what, sizeof(number),
					       &number, NULL) == CL_SUCCESS
		       ? number
		       : 0;
}

/* What its text says of it, as the driver has that; nothing where it is much. */
static void say_attributes(struct saying *s, cl_kernel kernel)
{
	char words[NAME_BYTES * 4] = "";

	if (s->dev->cl->GetKernelInfo(kernel, CL_KERNEL_ATTRIBUTES, sizeof(words) - 1, words,
				      NULL) != CL_SUCCESS ||
	    !words[0])
		return;
	gantry_str_make_printable(words);
	put(&s->text, "attributes\t%s\n", words);
}

static void say_kernel(struct saying *s, cl_kernel kernel)
{
	const struct gantry_dev *dev = s->dev;
	const struct gantry_opencl_driver *cl = dev->cl;
	size_t wanted[3] = { 0 };
	char name[NAME_BYTES * 4] = "";
	cl_uint n = 0;

	if (cl->GetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof(name) - 1, name, NULL) !=
		    CL_SUCCESS ||
	    cl->GetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(n), &n, NULL) != CL_SUCCESS)
		return;
	(void)cl->GetKernelWorkGroupInfo(kernel, dev->target.device,
					 CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof(wanted), wanted,
					 NULL); /* zeros where it does not say */
	put(&s->text, "kernel\t%s\t%llu\t%zu\t%zu\t%zu\t%llu\t%llu\t%llu\n", name,
	    (unsigned long long)group_number(dev, kernel, CL_KERNEL_WORK_GROUP_SIZE), wanted[0],
	    wanted[1], wanted[2],
	    (unsigned long long)group_number(dev, kernel, CL_KERNEL_LOCAL_MEM_SIZE),
	    (unsigned long long)group_number(dev, kernel, CL_KERNEL_PRIVATE_MEM_SIZE),
	    (unsigned long long)group_number(dev, kernel,
					     CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE));
	say_attributes(s, kernel);
	for (cl_uint i = 0; i < n && !s->text.cut; i++)
		say_arg(s, kernel, i);
}

static void say_kernels(struct saying *s, cl_program program)
{
	const struct gantry_dev *dev = s->dev;
	cl_kernel *kernels = calloc(KERNELS_MAX, sizeof(cl_kernel));
	cl_uint n = 0;

	if (!kernels ||
	    dev->cl->CreateKernelsInProgram(program, KERNELS_MAX, kernels, &n) != CL_SUCCESS)
		n = 0;
	for (cl_uint i = 0; i < n && i < KERNELS_MAX; i++) {
		if (!s->text.cut)
			say_kernel(s, kernels[i]);
		(void)dev->cl->ReleaseKernel(kernels[i]);
	}
	free(kernels);
}

void gantry_opencl_image_say(struct gantry_dev *dev, struct gantry_image *image, char *text,
			     size_t cap)
{
	struct saying s = { .text = { .at = text, .room = cap }, .dev = dev };
	const char *log = dev->log;

	*text = '\0';
	if (image) {
		log = image->log ? image->log : "";
		/* Asking its kernels is work of this thread's, which others wait for: once. */
		if (image->said) {
			put(&s.text, "%s", image->said);
		} else {
			put(&s.text, "kernels\n");
			say_kernels(&s, image->program);
			put(&s.text, "end\n");
			image->said = strdup(text); /* without memory it is asked again */
		}
		/* What was cut when it was asked is no whole answer later. */
		s.text.cut = s.text.cut || s.text.at - text < 4 ||
			     strcmp(s.text.at - 4, "end\n") != 0;
	}
	if (!s.text.cut)
		(void)gantry_str_copy(s.text.at, s.text.room, log); /* as much as fits */
}
