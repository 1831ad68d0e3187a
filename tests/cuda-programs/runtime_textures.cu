/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, textures and surfaces over the Runtime API. With an argument it runs natively, for comparison: handles that are none are left out. */
/* cudaMemcpyToArray() and others are old, and in programs. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <cstring>
#include <vector>

#include "runtime_parts.cuh"

#define W 37
#define H 21
#define D 5

struct size3 {
	int x, y, z;
};

/* For the fake driver the same ones are in fake_kernels.c. */
extern "C" {
__global__ void read_linear(cudaTextureObject_t texture, float *out, size3 size, int shift)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x;

#ifdef FAKE_SO
	asm volatile(".pragma \"FAKECUDA so=" FAKE_SO " arch=sm_90\";");
#endif
	if (x < size.x)
		out[x] = tex1Dfetch<float>(texture, x + shift);
}

__global__ void read_plane(cudaTextureObject_t texture, float *out, size3 size, int shift)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;

	if (x < size.x)
		out[y * size.x + x] = tex2D<float>(texture, x + shift + 0.5f, y + 0.5f);
}

__global__ void read_space(cudaTextureObject_t texture, float *out, size3 size, int shift)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;

	if (x < size.x)
		out[(z * size.y + y) * size.x + x] =
			tex3D<float>(texture, x + shift + 0.5f, y + 0.5f, z + 0.5f);
}

__global__ void read_layers(cudaTextureObject_t texture, float *out, size3 size, int shift)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;

	if (x < size.x)
		out[(z * size.y + y) * size.x + x] =
			tex2DLayered<float>(texture, x + shift + 0.5f, y + 0.5f, z);
}

__global__ void twice(cudaSurfaceObject_t surface, int width, int height)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;

	if (x < width && y < height)
		surf2Dwrite(2 * surf2Dread<float>(surface, x * 4, y), surface, x * 4, y);
}

__global__ void read_between(cudaTextureObject_t texture, float *out, float x, float level)
{
	*out = level < 0 ? tex2D<float>(texture, x, 0.5f) : tex2DLod<float>(texture, x, 0.5f, level);
}
}

static bool is_native;
static float *out;
static std::vector<float> in(W *H *D), got(W *H *D);

static cudaChannelFormatDesc floats()
{
	return cudaCreateChannelDesc<float>();
}

static cudaTextureObject_t texture_of(const cudaResourceDesc &resource,
				      cudaTextureAddressMode mode = cudaAddressModeClamp)
{
	cudaTextureDesc how = {};
	cudaTextureObject_t texture;

	for (int i = 0; i < 3; i++)
		how.addressMode[i] = mode;
	how.filterMode = cudaFilterModePoint;
	how.readMode = cudaReadModeElementType;
	OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
	return texture;
}

static cudaResourceDesc resource_of(cudaArray_t array)
{
	cudaResourceDesc resource = {};

	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = array;
	return resource;
}

static dim3 blocks(size3 size)
{
	return dim3((size.x + 31) / 32, size.y, size.z);
}

/* What a kernel has read, of @size elements. */
static void fetch(size3 size)
{
	OK(cudaMemcpy(got.data(), out, size_t(size.x) * size.y * size.z * 4, cudaMemcpyDefault));
}

static float at(int x, int y, int z = 0)
{
	return in[(z * H + y) * W + x];
}

static void planes()
{
	const size3 size = { W, H, 1 };
	cudaChannelFormatDesc channel;
	cudaTextureObject_t texture;
	cudaResourceDesc resource;
	cudaTextureDesc how;
	cudaExtent extent;
	unsigned int flags = 99;
	cudaArray_t array;

	part = "planes";
	channel = floats();
	OK(cudaMallocArray(&array, &channel, W, H));
	OK(cudaArrayGetInfo(&channel, &extent, &flags, array));
	CHECK(channel.x == 32 && channel.y == 0 && channel.f == cudaChannelFormatKindFloat);
	CHECK(extent.width == W && extent.height == H && extent.depth == 0 && flags == 0);
	OK(cudaMemcpy2DToArray(array, 0, 0, in.data(), W * 4, W * 4, H, cudaMemcpyHostToDevice));
	texture = texture_of(resource_of(array));
	OK(cudaGetTextureObjectResourceDesc(&resource, texture));
	CHECK(resource.resType == cudaResourceTypeArray && resource.res.array.array == array);
	OK(cudaGetTextureObjectTextureDesc(&how, texture));
	CHECK(how.addressMode[1] == cudaAddressModeClamp && how.readMode == cudaReadModeElementType);
	read_plane<<<blocks(size), 32>>>(texture, out, size, 0);
	fetch(size);
	CHECK(memcmp(got.data(), in.data(), W * H * 4) == 0);
	/* Past the right edge is the last column. */
	read_plane<<<blocks(size), 32>>>(texture, out, size, 3);
	fetch(size);
	CHECK(got[0] == at(3, 0) && got[W - 1] == at(W - 1, 0) && got[W * H - 1] == at(W - 1, H - 1));
	OK(cudaDestroyTextureObject(texture));
	/* A part of it, and back. */
	OK(cudaMemcpy2DToArray(array, 4 * 4, 2, in.data(), 5 * 4, 5 * 4, 3, cudaMemcpyHostToDevice));
	OK(cudaMemcpy2DFromArray(got.data(), W * 4, array, 0, 0, W * 4, H, cudaMemcpyDeviceToHost));
	for (int y = 0; y < H; y++)
		for (int x = 0; x < W; x++) {
			bool inside = x >= 4 && x < 9 && y >= 2 && y < 5;

			CHECK(got[y * W + x] == (inside ? in[(y - 2) * 5 + x - 4] : at(x, y)));
		}
	OK(cudaFreeArray(array));
	end();
}

static cudaArray_t box(unsigned int flags)
{
	cudaChannelFormatDesc channel = floats();
	cudaMemcpy3DParms copy = {};
	cudaArray_t array;

	OK(cudaMalloc3DArray(&array, &channel, make_cudaExtent(W, H, D), flags));
	copy.srcPtr = make_cudaPitchedPtr(in.data(), W * 4, W, H);
	copy.dstArray = array;
	copy.extent = make_cudaExtent(W, H, D);
	copy.kind = cudaMemcpyHostToDevice;
	OK(cudaMemcpy3D(&copy));
	return array;
}

static void spaces_and_layers()
{
	const size3 size = { W, H, D };
	cudaArray_t space = box(0), layers = box(cudaArrayLayered);
	cudaMemcpy3DParms copy = {};
	cudaTextureObject_t texture;

	part = "spaces and layers";
	texture = texture_of(resource_of(space), cudaAddressModeWrap);
	read_space<<<blocks(size), 32>>>(texture, out, size, 0);
	fetch(size);
	CHECK(memcmp(got.data(), in.data(), W * H * D * 4) == 0);
	OK(cudaDestroyTextureObject(texture));
	texture = texture_of(resource_of(layers), cudaAddressModeBorder);
	read_layers<<<blocks(size), 32>>>(texture, out, size, 1);
	fetch(size);
	CHECK(got[0] == at(1, 0) && got[W - 1] == 0 && got[(3 * H + 2) * W + 4] == at(5, 2, 3));
	OK(cudaDestroyTextureObject(texture));
	/* One layer from the device's memory, from a place inside. */
	OK(cudaMemcpy(out, in.data(), W * H * 4, cudaMemcpyDefault));
	copy.srcPtr = make_cudaPitchedPtr(out, W * 4, W, H);
	copy.dstArray = layers;
	copy.dstPos = make_cudaPos(0, 0, 3);
	copy.extent = make_cudaExtent(W, H, 1);
	copy.kind = cudaMemcpyDeviceToDevice;
	OK(cudaMemcpy3DAsync(&copy, 0));
	copy = {};
	copy.srcArray = layers;
	copy.srcPos = make_cudaPos(2, 1, 3);
	copy.dstPtr = make_cudaPitchedPtr(got.data(), 8 * 4, 8, 4);
	copy.extent = make_cudaExtent(8, 4, 1);
	copy.kind = cudaMemcpyDeviceToHost;
	OK(cudaMemcpy3D(&copy));
	for (int y = 0; y < 4; y++)
		for (int x = 0; x < 8; x++)
			CHECK(got[y * 8 + x] == at(x + 2, y + 1));
	OK(cudaFreeArray(space));
	OK(cudaFreeArray(layers));
	end();
}

static void linear_memory()
{
	const size3 row = { W * H, 1, 1 }, plane = { 16, H, 1 };
	cudaTextureObject_t texture;
	cudaResourceDesc resource = {};
	size_t pitch;
	float *memory;

	part = "linear memory";
	OK(cudaMalloc(&memory, W * H * 4));
	OK(cudaMemcpy(memory, in.data(), W * H * 4, cudaMemcpyDefault));
	resource.resType = cudaResourceTypeLinear;
	resource.res.linear.devPtr = memory;
	resource.res.linear.desc = floats();
	resource.res.linear.sizeInBytes = W * H * 4;
	texture = texture_of(resource);
	read_linear<<<blocks(row), 32>>>(texture, out, row, 0);
	fetch(row);
	CHECK(memcmp(got.data(), in.data(), W * H * 4) == 0);
	OK(cudaDestroyTextureObject(texture));
	/* One longer than its memory, as some programs make. */
	resource.res.linear.sizeInBytes = 2 * W * H * 4;
	texture = texture_of(resource);
	read_linear<<<blocks(row), 32>>>(texture, out, row, 0);
	fetch(row);
	CHECK(memcmp(got.data(), in.data(), W * H * 4) == 0);
	OK(cudaGetTextureObjectResourceDesc(&resource, texture));
	CHECK(resource.res.linear.sizeInBytes == 2 * W * H * 4);
	OK(cudaDestroyTextureObject(texture));
	OK(cudaFree(memory));
	OK(cudaMallocPitch(&memory, &pitch, 16 * 4, H));
	OK(cudaMemcpy2D(memory, pitch, in.data(), W * 4, 16 * 4, H, cudaMemcpyHostToDevice));
	resource = {};
	resource.resType = cudaResourceTypePitch2D;
	resource.res.pitch2D.devPtr = memory;
	resource.res.pitch2D.desc = floats();
	resource.res.pitch2D.width = 16;
	resource.res.pitch2D.height = H;
	resource.res.pitch2D.pitchInBytes = pitch;
	texture = texture_of(resource);
	read_plane<<<blocks(plane), 32>>>(texture, out, plane, 0);
	fetch(plane);
	for (int y = 0; y < H; y++)
		for (int x = 0; x < 16; x++)
			CHECK(got[y * 16 + x] == at(x, y));
	OK(cudaDestroyTextureObject(texture));
	OK(cudaFree(memory));
	end();
}

static void surfaces()
{
	cudaChannelFormatDesc channel = floats();
	cudaSurfaceObject_t surface;
	cudaResourceDesc resource;
	cudaArray_t array, plain;

	part = "surfaces";
	OK(cudaMallocArray(&array, &channel, W, H, cudaArraySurfaceLoadStore));
	OK(cudaMallocArray(&plain, &channel, W, H));
	OK(cudaMemcpyToArray(array, 0, 0, in.data(), W * H * 4, cudaMemcpyHostToDevice));
	resource = resource_of(array);
	OK(cudaCreateSurfaceObject(&surface, &resource));
	twice<<<dim3((W + 31) / 32, H), 32>>>(surface, W, H);
	OK(cudaMemcpyFromArray(got.data(), array, 0, 0, W * H * 4, cudaMemcpyDeviceToHost));
	for (int i = 0; i < W * H; i++)
		CHECK(got[i] == 2 * in[i]);
	/* From a place inside a row over its end. */
	OK(cudaMemcpyFromArray(got.data(), array, 8, 1, 50 * 4, cudaMemcpyDeviceToHost));
	CHECK(got[0] == 2 * at(2, 1) && got[49] == 2 * in[W + 2 + 49]);
	OK(cudaGetSurfaceObjectResourceDesc(&resource, surface));
	CHECK(resource.res.array.array == array);
	OK(cudaDestroySurfaceObject(surface));
	resource = resource_of(plain);
	/* CUDA makes one of an array that is not for it; reading through it is undefined. */
	if (!is_native) {
		IS(cudaCreateSurfaceObject(&surface, &resource), cudaErrorInvalidValue);
		(void)cudaGetLastError();
	} else if (cudaCreateSurfaceObject(&surface, &resource) == cudaSuccess) {
		OK(cudaDestroySurfaceObject(surface));
	}
	OK(cudaFreeArray(plain));
	OK(cudaFreeArray(array));
	end();
}

static void levels()
{
	const size3 size = { 16, 8, 1 };
	cudaChannelFormatDesc channel = floats();
	cudaMipmappedArray_t mipmap;
	cudaTextureObject_t texture;
	cudaArray_t level, same;
	cudaExtent extent;

	part = "levels";
	OK(cudaMallocMipmappedArray(&mipmap, &channel, make_cudaExtent(32, 16, 0), 3));
	OK(cudaGetMipmappedArrayLevel(&level, mipmap, 1));
	OK(cudaGetMipmappedArrayLevel(&same, mipmap, 1));
	OK(cudaArrayGetInfo(nullptr, &extent, nullptr, level));
	CHECK(extent.width == 16 && extent.height == 8);
	IS(cudaGetMipmappedArrayLevel(&same, mipmap, 3), cudaErrorInvalidValue);
	(void)cudaGetLastError();
	OK(cudaMemcpy2DToArray(level, 0, 0, in.data(), 64, 64, 8, cudaMemcpyHostToDevice));
	texture = texture_of(resource_of(level));
	read_plane<<<blocks(size), 32>>>(texture, out, size, 0);
	fetch(size);
	CHECK(memcmp(got.data(), in.data(), 16 * 8 * 4) == 0);
	OK(cudaDestroyTextureObject(texture));
	OK(cudaFreeMipmappedArray(mipmap));
	end();
}

static void between_arrays()
{
	cudaChannelFormatDesc channel = floats();
	cudaArray_t one, other;
	std::vector<float> zeroes(40 * 30);

	part = "between arrays";
	OK(cudaMallocArray(&one, &channel, W, H));
	OK(cudaMallocArray(&other, &channel, 40, 30));
	OK(cudaMemcpy2DToArray(one, 0, 0, in.data(), W * 4, W * 4, H, cudaMemcpyHostToDevice));
	OK(cudaMemcpy2DToArray(other, 0, 0, zeroes.data(), 160, 160, 30, cudaMemcpyHostToDevice));
	OK(cudaMemcpy2DArrayToArray(other, 8, 1, one, 4, 2, 10 * 4, 3, cudaMemcpyDeviceToDevice));
	OK(cudaMemcpy2DFromArray(got.data(), 160, other, 0, 0, 160, 5, cudaMemcpyDeviceToHost));
	for (int y = 0; y < 5; y++)
		for (int x = 0; x < 40; x++) {
			bool inside = x >= 2 && x < 12 && y >= 1 && y < 4;

			CHECK(got[y * 40 + x] == (inside ? at(x - 1, y + 1) : 0));
		}
	OK(cudaFreeArray(one));
	OK(cudaFreeArray(other));
	end();
}

static void captured()
{
	cudaChannelFormatDesc channel = floats();
	const size3 size = { W, H, 1 };
	cudaTextureObject_t texture;
	cudaMemcpy3DParms copy = {};
	cudaGraphExec_t exec;
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaArray_t array;
	float *memory;

	part = "captured";
	OK(cudaMalloc(&memory, W * H * 4));
	OK(cudaMallocArray(&array, &channel, W, H));
	texture = texture_of(resource_of(array));
	OK(cudaStreamCreate(&stream));
	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
	copy.srcPtr = make_cudaPitchedPtr(memory, W * 4, W, H);
	copy.dstArray = array;
	copy.extent = make_cudaExtent(W, H, 1);
	copy.kind = cudaMemcpyDeviceToDevice;
	OK(cudaMemcpy3DAsync(&copy, stream));
	read_plane<<<blocks(size), 32, 0, stream>>>(texture, out, size, 0);
	OK(cudaStreamEndCapture(stream, &graph));
	OK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 3; i++) {
		OK(cudaMemcpy(memory, in.data() + i, W * H * 4, cudaMemcpyHostToDevice));
		OK(cudaGraphLaunch(exec, stream));
		OK(cudaStreamSynchronize(stream));
		fetch(size);
		CHECK(memcmp(got.data(), in.data() + i, W * H * 4) == 0);
	}
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaStreamDestroy(stream));
	OK(cudaDestroyTextureObject(texture));
	OK(cudaFreeArray(array));
	OK(cudaFree(memory));
	end();
}

static void wrong_arrays()
{
	cudaChannelFormatDesc channel = floats(), none = cudaCreateChannelDesc(8, 32, 0, 0, cudaChannelFormatKindUnsigned);
	cudaResourceDesc resource = {};
	cudaTextureDesc how = {};
	cudaTextureObject_t texture;
	cudaArray_t array, gone;

	part = "wrong arrays";
	IS(cudaMallocArray(&array, &none, 16, 16), cudaErrorInvalidChannelDescriptor);
	IS(cudaMallocArray(&array, &channel, 0, 16), cudaErrorInvalidValue);
	IS(cudaMalloc3DArray(&array, &channel, make_cudaExtent(8, 7, 6), cudaArrayCubemap), cudaErrorInvalidValue);
	OK(cudaFreeArray(nullptr));
	OK(cudaMallocArray(&array, &channel, W, H));
	IS(cudaMemcpy2DToArray(array, 8, 0, in.data(), W * 4, W * 4, H, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
	IS(cudaMemcpy2DToArray(array, 0, 1, in.data(), W * 4, W * 4, H, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
	IS(cudaMemcpy2DToArray(array, 0, 0, in.data(), 4, W * 4, H, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
	IS(cudaMemcpy2DToArray(array, 0, 0, in.data(), W * 4, W * 4, H, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
	IS(cudaCreateTextureObject(&texture, nullptr, &how, nullptr), cudaErrorInvalidValue);
	resource.resType = cudaResourceTypeLinear;
	resource.res.linear.devPtr = in.data(); /* the program's own */
	resource.res.linear.desc = channel;
	resource.res.linear.sizeInBytes = 64;
	if (!is_native)
		IS(cudaCreateTextureObject(&texture, &resource, &how, nullptr), cudaErrorInvalidValue);
	resource.res.linear.devPtr = out;
	resource.res.linear.sizeInBytes = size_t(1) << 40;
	if (!is_native)
		IS(cudaCreateTextureObject(&texture, &resource, &how, nullptr), cudaErrorInvalidValue);
	resource = resource_of(array);
	gone = array;
	OK(cudaFreeArray(array));
	if (!is_native) {
		IS(cudaFreeArray(gone), cudaErrorInvalidResourceHandle);
		IS(cudaCreateTextureObject(&texture, &resource, &how, nullptr), cudaErrorInvalidResourceHandle);
		IS(cudaMemcpyFromArray(got.data(), gone, 0, 0, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidResourceHandle);
		IS(cudaDestroyTextureObject(123456789), cudaErrorInvalidValue);
		how.filterMode = (cudaTextureFilterMode)77;
		OK(cudaMallocArray(&array, &channel, W, H));
		resource = resource_of(array);
		IS(cudaCreateTextureObject(&texture, &resource, &how, nullptr), cudaErrorInvalidValue);
		OK(cudaFreeArray(array));
	}
	(void)cudaGetLastError();
	end();
}

/* Memory of arrays comes back. */
static void many_arrays()
{
	cudaChannelFormatDesc channel = cudaCreateChannelDesc<float4>();
	size_t before, during, after, total;
	cudaArray_t arrays[8];

	part = "many arrays";
	OK(cudaMemGetInfo(&before, &total));
	for (int round = 0; round < 40; round++) {
		for (cudaArray_t &array : arrays)
			OK(cudaMallocArray(&array, &channel, 512, 256));
		OK(cudaMemGetInfo(&during, &total));
		CHECK(is_native || during + sizeof(arrays) / sizeof(*arrays) * (2u << 20) <= total);
		for (cudaArray_t array : arrays)
			OK(cudaFreeArray(array));
	}
	/* It is charged until the device has let go of it, which nobody waits for. */
	do {
		OK(cudaDeviceSynchronize());
		OK(cudaMemGetInfo(&after, &total));
	} while (!is_native && after + (1 << 20) < before);
	end();
}

#ifndef FAKE_SO
static float between(cudaTextureObject_t texture, float x, float level)
{
	float value;

	read_between<<<1, 1>>>(texture, out, x, level);
	OK(cudaMemcpy(&value, out, 4, cudaMemcpyDefault));
	return value;
}

/* The fraction by which the device takes either neighbour has 8 bits, and what it reads 16. */
static bool is_near(float value, float wanted)
{
	return value >= wanted - 0.01f && value <= wanted + 0.01f;
}

static void filtered()
{
	cudaChannelFormatDesc channel = cudaCreateChannelDesc<unsigned char>();
	const unsigned char bytes[] = { 0, 255, 0, 255 };
	cudaResourceDesc resource;
	cudaTextureDesc how = {};
	cudaTextureObject_t texture;
	cudaArray_t array;

	part = "filtered";
	OK(cudaMallocArray(&array, &channel, 4, 1));
	OK(cudaMemcpy2DToArray(array, 0, 0, bytes, 4, 4, 1, cudaMemcpyHostToDevice));
	resource = resource_of(array);
	how.addressMode[0] = how.addressMode[1] = cudaAddressModeWrap;
	how.filterMode = cudaFilterModeLinear;
	how.readMode = cudaReadModeNormalizedFloat;
	how.normalizedCoords = 1;
	OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
	CHECK(is_near(between(texture, 0.125f, -1), 0) && is_near(between(texture, 0.375f, -1), 1));
	CHECK(is_near(between(texture, 0.25f, -1), 0.5f) && is_near(between(texture, 1.25f, -1), 0.5f));
	OK(cudaDestroyTextureObject(texture));
	OK(cudaFreeArray(array));
	end();
}

static void levels_between()
{
	cudaChannelFormatDesc channel = floats();
	const float first[] = { 1, 1, 1, 1 }, second[] = { 3, 3 };
	cudaResourceDesc resource = {};
	cudaTextureDesc how = {};
	cudaMipmappedArray_t mipmap;
	cudaTextureObject_t texture;
	cudaArray_t level;

	part = "levels between";
	OK(cudaMallocMipmappedArray(&mipmap, &channel, make_cudaExtent(4, 1, 0), 2));
	OK(cudaGetMipmappedArrayLevel(&level, mipmap, 0));
	OK(cudaMemcpy2DToArray(level, 0, 0, first, 16, 16, 1, cudaMemcpyHostToDevice));
	OK(cudaGetMipmappedArrayLevel(&level, mipmap, 1));
	OK(cudaMemcpy2DToArray(level, 0, 0, second, 8, 8, 1, cudaMemcpyHostToDevice));
	resource.resType = cudaResourceTypeMipmappedArray;
	resource.res.mipmap.mipmap = mipmap;
	how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
	how.filterMode = cudaFilterModeLinear;
	how.mipmapFilterMode = cudaFilterModeLinear;
	how.readMode = cudaReadModeElementType;
	how.normalizedCoords = 1;
	how.maxMipmapLevelClamp = 1;
	OK(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
	CHECK(is_near(between(texture, 0.5f, 0), 1) && is_near(between(texture, 0.5f, 1), 3));
	CHECK(is_near(between(texture, 0.5f, 0.5f), 2));
	OK(cudaDestroyTextureObject(texture));
	OK(cudaFreeMipmappedArray(mipmap));
	end();
}
#endif

int main(int argc, char **argv)
{
	(void)argv;
	is_native = argc > 1;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < in.size(); i++)
		in[i] = float(i % 9973);
	OK(cudaMalloc(&out, in.size() * sizeof(float)));
	planes();
	spaces_and_layers();
	linear_memory();
	surfaces();
	levels();
	between_arrays();
	captured();
	wrong_arrays();
	many_arrays();
#ifndef FAKE_SO
	filtered();
	levels_between();
#endif
	return 0;
}
