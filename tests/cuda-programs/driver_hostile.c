/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bad input, one sort after the other: each call gets the code that CUDA documents, and what is good goes on after it. The image at argv[1] has the
 * kernels of kernels.cuh; argv[2] is a file to write. "exit HOW" in its place: the program ends in the middle of work.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda-programs/parts.h"

#define HUGE_BYTES (SIZE_MAX - 4095)

static CUcontext ctx;
static CUmodule module;
static CUfunction saxpy;
static CUdeviceptr memory; /* a MiB */

/* What was refused has broken nothing. */
static void still_works(void)
{
	unsigned int value = 0;

	OK(cuMemsetD32(memory, 4711, 16));
	OK(cuMemcpyDtoH(&value, memory + 60, 4));
	CHECK(value == 4711);
	OK(cuCtxSynchronize());
}

/* ---- unknown modules ---- */

static void write_file(const char *path, const void *bytes, size_t n)
{
	FILE *file = fopen(path, "we");

	CHECK(file && (n == 0 || fwrite(bytes, 1, n, file) == n));
	CHECK(fclose(file) == 0);
}

static void refused(CUresult result, const char *what, size_t n)
{
	if (result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX ||
	    result == CUDA_ERROR_NO_BINARY_FOR_GPU)
		return;
	printf("FAILED %s: %s of %zu bytes: %d\n", part, what, n, (int)result);
	exit(1);
}

static void refuse_file(const char *path, const void *bytes, size_t n)
{
	CUmodule none = (CUmodule)&n;
	CUlibrary library = (CUlibrary)&n;

	write_file(path, bytes, n);
	refused(cuModuleLoad(&none, path), "a module", n);
	CHECK(none == (CUmodule)&n);
	refused(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0), "a library",
		n);
	CHECK(library == (CUlibrary)&n);
}

static unsigned char *read_image(const char *path, size_t *ret_bytes)
{
	FILE *file = fopen(path, "re");
	unsigned char *image = malloc(16 << 20);

	CHECK(file && image);
	*ret_bytes = fread(image, 1, 16 << 20, file);
	(void)fclose(file);
	return image;
}

/* Files that end early, files whose headers say that they are larger, or that the image lies elsewhere. */
static void unknown_modules(const char *path, const char *scratch)
{
	static const uint64_t wrapper[3] = { 1ull << 32 | 0x466243b1u, 16, 0 };
	static const uint64_t fatbins[][2] = { { 16ull << 48 | 1ull << 32 | 0xba55ed50u, 1 << 20 },
					       { 16ull << 48 | 1ull << 32 | 0xba55ed50u,
						 UINT64_MAX - 15 },
					       { 0xffffull << 48 | 1ull << 32 | 0xba55ed50u, 0 } };
	size_t n;
	unsigned char *image = read_image(path, &n), *page;
	CUmodule none;
	void *fn = NULL;

	begin("unknown modules");
	for (size_t cut = 1; cut < n - n / 4; cut += cut < 80 ? 7 : n / 9 + 1)
		refuse_file(scratch, image, cut);
	write_file(scratch, NULL, 0);
	IS(cuModuleLoad(&none, scratch), INVALID_IMAGE);
	refuse_file(scratch, wrapper, sizeof(wrapper));
	for (size_t i = 0; i < sizeof(fatbins) / sizeof(fatbins[0]); i++)
		refuse_file(scratch, fatbins[i], sizeof(fatbins[i]));
	IS(cuModuleLoad(&none, "/"), FILE_NOT_FOUND);
	IS(cuModuleLoad(NULL, path), INVALID_VALUE);
	if (!is_native) {
		/* In memory, behind which there is none. */
		page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(page != MAP_FAILED && munmap(page + 4096, 4096) == 0);
		memcpy(page, image, n < 4096 ? n : 4096);
		page[0x28 + 3] = 1; /* its table of sections lies 16 MiB further */
		IS(cuModuleLoadData(&none, page), INVALID_IMAGE);
		memcpy(page, fatbins[0], sizeof(fatbins[0]));
		IS(cuModuleLoadData(&none, page), INVALID_IMAGE);
		memcpy(page, wrapper, sizeof(wrapper));
		IS(cuModuleLoadData(&none, page), INVALID_IMAGE);
		memset(page, 'x', 4096);
		IS(cuModuleLoadData(&none, page), INVALID_IMAGE);
		CHECK(munmap(page, 4096) == 0);
	}
	memset(image, 'k', 5000);
	image[5000] = '\0';
	IS(cuModuleGetFunction((CUfunction *)&fn, module, ""), NOT_FOUND);
	IS(cuModuleGetFunction((CUfunction *)&fn, module, (char *)image), NOT_FOUND);
	IS(cuModuleGetGlobal(NULL, NULL, module, ""), NOT_FOUND);
	IS(cuModuleGetGlobal(NULL, NULL, module, (char *)image), NOT_FOUND);
	CHECK(!fn);
	free(image);
	still_works();
	end();
}

/* ---- wrong handles ---- */

enum kind {
	CTX,
	MODULE,
	FUNC,
	STREAM,
	EVENT,
	GRAPH,
	NODE,
	EXEC,
	USER_OBJECT,
	POOL,
	ARRAY,
	MIPMAP,
	LINK,
	NKINDS,
};

static void *handles[NKINDS], *ended[NKINDS];

static void CUDA_CB nothing(void *data)
{
	(void)data;
}

static void CUDA_CB on_stream(CUstream stream, CUresult status, void *data)
{
	(void)stream;
	(void)status;
	(void)data;
}

static void make(void *made[NKINDS], const char *path)
{
	const CUDA_ARRAY3D_DESCRIPTOR desc = {
		.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1
	};
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };

	OK(cuCtxCreate((CUcontext *)&made[CTX], NULL, 0, 0));
	OK(cuCtxPopCurrent(NULL));
	OK(cuModuleLoad((CUmodule *)&made[MODULE], path));
	OK(cuModuleGetFunction((CUfunction *)&made[FUNC], made[MODULE], "saxpy"));
	OK(cuStreamCreate((CUstream *)&made[STREAM], 0));
	OK(cuEventCreate((CUevent *)&made[EVENT], 0));
	OK(cuGraphCreate((CUgraph *)&made[GRAPH], 0));
	OK(cuGraphAddEmptyNode((CUgraphNode *)&made[NODE], made[GRAPH], NULL, 0));
	OK(cuGraphInstantiate((CUgraphExec *)&made[EXEC], made[GRAPH], 0));
	OK(cuUserObjectCreate((CUuserObject *)&made[USER_OBJECT], NULL, nothing, 1,
			      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuMemPoolCreate((CUmemoryPool *)&made[POOL], &props));
	OK(cuArray3DCreate((CUarray *)&made[ARRAY], &desc));
	OK(cuMipmappedArrayCreate((CUmipmappedArray *)&made[MIPMAP], &desc, 3));
	OK(cuLinkCreate(0, NULL, NULL, (CUlinkState *)&made[LINK]));
}

static void destroy(void *made[NKINDS])
{
	OK(cuLinkDestroy(made[LINK]));
	OK(cuMipmappedArrayDestroy(made[MIPMAP]));
	OK(cuArrayDestroy(made[ARRAY]));
	OK(cuMemPoolDestroy(made[POOL]));
	OK(cuUserObjectRelease(made[USER_OBJECT], 1));
	OK(cuGraphExecDestroy(made[EXEC]));
	OK(cuGraphDestroy(made[GRAPH]));
	OK(cuEventDestroy(made[EVENT]));
	OK(cuStreamDestroy(made[STREAM]));
	OK(cuModuleUnload(made[MODULE]));
	OK(cuCtxDestroy(made[CTX]));
}

static union {
	int number;
	unsigned int flags;
	size_t bytes;
	unsigned long long id;
	void *handle;
	CUDA_ARRAY_DESCRIPTOR desc;
	CUDA_KERNEL_NODE_PARAMS kernel;
	CUgraphExecUpdateResultInfo info;
	cuuint64_t mark;
	char text[4096];
} out;
static float ms;
static CUdeviceptr address;
static void *no_params[4];

#define CALL(name, call)              \
	static CUresult name(void *h) \
	{                             \
		return call;          \
	}
CALL(ctx_set, cuCtxSetCurrent(h))
CALL(ctx_push, cuCtxPushCurrent(h))
CALL(ctx_destroy, cuCtxDestroy(h))
CALL(ctx_version, cuCtxGetApiVersion(h, &out.flags))
CALL(module_function, cuModuleGetFunction((CUfunction *)&out.handle, h, "saxpy"))
CALL(module_global, cuModuleGetGlobal(&address, &out.bytes, h, "factor"))
CALL(module_unload, cuModuleUnload(h))
CALL(library_kernel, cuLibraryGetKernel((CUkernel *)&out.handle, h, "saxpy"))
CALL(library_module, cuLibraryGetModule((CUmodule *)&out.handle, h))
CALL(library_unload, cuLibraryUnload(h))
CALL(func_attribute, cuFuncGetAttribute(&out.number, CU_FUNC_ATTRIBUTE_NUM_REGS, h))
CALL(func_set, cuFuncSetAttribute(h, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024))
CALL(func_module, cuFuncGetModule((CUmodule *)&out.handle, h))
CALL(func_name, cuFuncGetName((const char **)&out.handle, h))
CALL(func_param, cuFuncGetParamInfo(h, 0, &out.bytes, NULL))
CALL(func_launch, cuLaunchKernel(h, 1, 1, 1, 1, 1, 1, 0, 0, no_params, NULL))
CALL(func_together, cuLaunchCooperativeKernel(h, 1, 1, 1, 1, 1, 1, 0, 0, no_params))
CALL(func_occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor(&out.number, h, 32, 0))
CALL(kernel_function, cuKernelGetFunction((CUfunction *)&out.handle, h))
CALL(stream_wait, cuStreamSynchronize(h))
CALL(stream_query, cuStreamQuery(h))
CALL(stream_destroy, cuStreamDestroy(h))
CALL(stream_flags, cuStreamGetFlags(h, &out.flags))
CALL(stream_priority, cuStreamGetPriority(h, &out.number))
CALL(stream_ctx, cuStreamGetCtx(h, (CUcontext *)&out.handle))
CALL(stream_id, cuStreamGetId(h, &out.id))
CALL(stream_event, cuStreamWaitEvent(h, handles[EVENT], 0))
CALL(stream_record, cuEventRecord(handles[EVENT], h))
CALL(stream_host, cuLaunchHostFunc(h, nothing, NULL))
CALL(stream_callback, cuStreamAddCallback(h, on_stream, NULL, 0))
CALL(stream_set, cuMemsetD8Async(memory, 0, 16, h))
CALL(stream_copy, cuMemcpyDtoDAsync(memory, memory + 4096, 16, h))
CALL(stream_alloc, cuMemAllocAsync(&address, 16, h))
CALL(stream_free, cuMemFreeAsync(memory, h))
CALL(stream_capture, cuStreamBeginCapture(h, CU_STREAM_CAPTURE_MODE_RELAXED))
CALL(stream_captured, cuStreamEndCapture(h, (CUgraph *)&out.handle))
CALL(stream_capturing, cuStreamIsCapturing(h, (CUstreamCaptureStatus *)&out.flags))
CALL(stream_launch, cuLaunchKernel(saxpy, 1, 1, 1, 1, 1, 1, 0, h, no_params, NULL))
CALL(stream_graph, cuGraphLaunch(handles[EXEC], h))
CALL(stream_word, cuStreamWriteValue32(h, memory, 1, 0))
CALL(stream_attribute, cuStreamCopyAttributes(h, handles[STREAM]))
CALL(event_query, cuEventQuery(h))
CALL(event_wait, cuEventSynchronize(h))
CALL(event_record, cuEventRecord(h, 0))
CALL(event_time, cuEventElapsedTime(&ms, h, handles[EVENT]))
CALL(event_waited, cuStreamWaitEvent(0, h, 0))
CALL(event_destroy, cuEventDestroy(h))
CALL(graph_instantiate, cuGraphInstantiate((CUgraphExec *)&out.handle, h, 0))
CALL(graph_clone, cuGraphClone((CUgraph *)&out.handle, h))
CALL(graph_nodes, cuGraphGetNodes(h, NULL, &out.bytes))
CALL(graph_roots, cuGraphGetRootNodes(h, NULL, &out.bytes))
CALL(graph_edges, cuGraphGetEdges(h, NULL, NULL, NULL, &out.bytes))
CALL(graph_add, cuGraphAddEmptyNode((CUgraphNode *)&out.handle, h, NULL, 0))
CALL(graph_child, cuGraphAddChildGraphNode((CUgraphNode *)&out.handle, handles[GRAPH], NULL, 0, h))
CALL(graph_update, cuGraphExecUpdate(handles[EXEC], h, &out.info))
CALL(graph_retain, cuGraphRetainUserObject(h, handles[USER_OBJECT], 1, 0))
CALL(graph_destroy, cuGraphDestroy(h))
CALL(node_type, cuGraphNodeGetType(h, (CUgraphNodeType *)&out.flags))
CALL(node_params, cuGraphKernelNodeGetParams(h, &out.kernel))
CALL(node_after,
     cuGraphAddEmptyNode((CUgraphNode *)&out.handle, handles[GRAPH], (CUgraphNode *)&h, 1))
CALL(node_before, cuGraphNodeGetDependencies(h, NULL, NULL, &out.bytes))
CALL(node_enable, cuGraphNodeSetEnabled(handles[EXEC], h, 1))
CALL(node_destroy, cuGraphDestroyNode(h))
CALL(exec_launch, cuGraphLaunch(h, 0))
CALL(exec_upload, cuGraphUpload(h, 0))
CALL(exec_update, cuGraphExecUpdate(h, handles[GRAPH], &out.info))
CALL(exec_destroy, cuGraphExecDestroy(h))
CALL(user_retain, cuUserObjectRetain(h, 1))
CALL(user_release, cuUserObjectRelease(h, 1))
CALL(user_graph, cuGraphRetainUserObject(handles[GRAPH], h, 1, 0))
CALL(pool_alloc, cuMemAllocFromPoolAsync(&address, 16, h, 0))
CALL(pool_trim, cuMemPoolTrimTo(h, 0))
CALL(pool_get, cuMemPoolGetAttribute(h, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &out.mark))
CALL(pool_of, cuDeviceSetMemPool(0, h))
CALL(pool_destroy, cuMemPoolDestroy(h))
CALL(array_desc, cuArrayGetDescriptor(&out.desc, h))
CALL(array_to, cuMemcpyHtoA(h, 0, &ms, 4))
CALL(array_from, cuMemcpyAtoH(&ms, h, 0, 4))
CALL(array_destroy, cuArrayDestroy(h))
CALL(mipmap_level, cuMipmappedArrayGetLevel((CUarray *)&out.handle, h, 0))
CALL(mipmap_destroy, cuMipmappedArrayDestroy(h))
CALL(link_add, cuLinkAddData(h, CU_JIT_INPUT_PTX, out.text, 16, "x", 0, NULL, NULL))
CALL(link_complete, cuLinkComplete(h, &out.handle, &out.bytes))
CALL(link_destroy, cuLinkDestroy(h))

#define ROW(kind, code, call)                        \
	{                                            \
		kind, CUDA_ERROR_##code, call, #call \
	}
static const struct {
	enum kind kind;
	CUresult code;
	CUresult (*call)(void *handle);
	const char *name;
} calls[] = {
	ROW(CTX, INVALID_CONTEXT, ctx_set),
	ROW(CTX, INVALID_CONTEXT, ctx_push),
	ROW(CTX, INVALID_CONTEXT, ctx_destroy),
	ROW(CTX, INVALID_CONTEXT, ctx_version),
	ROW(MODULE, INVALID_HANDLE, module_function),
	ROW(MODULE, INVALID_HANDLE, module_global),
	ROW(MODULE, INVALID_HANDLE, module_unload),
	ROW(MODULE, INVALID_HANDLE, library_kernel),
	ROW(MODULE, INVALID_HANDLE, library_module),
	ROW(MODULE, INVALID_HANDLE, library_unload),
	ROW(FUNC, INVALID_HANDLE, func_attribute),
	ROW(FUNC, INVALID_HANDLE, func_set),
	ROW(FUNC, INVALID_HANDLE, func_module),
	ROW(FUNC, INVALID_HANDLE, func_name),
	ROW(FUNC, INVALID_HANDLE, func_param),
	ROW(FUNC, INVALID_HANDLE, func_launch),
	ROW(FUNC, INVALID_HANDLE, func_together),
	ROW(FUNC, INVALID_HANDLE, func_occupancy),
	ROW(FUNC, INVALID_HANDLE, kernel_function),
	ROW(STREAM, INVALID_HANDLE, stream_wait),
	ROW(STREAM, INVALID_HANDLE, stream_query),
	ROW(STREAM, INVALID_HANDLE, stream_destroy),
	ROW(STREAM, INVALID_HANDLE, stream_flags),
	ROW(STREAM, INVALID_HANDLE, stream_priority),
	ROW(STREAM, INVALID_HANDLE, stream_ctx),
	ROW(STREAM, INVALID_HANDLE, stream_id),
	ROW(STREAM, INVALID_HANDLE, stream_event),
	ROW(STREAM, INVALID_HANDLE, stream_record),
	ROW(STREAM, INVALID_HANDLE, stream_host),
	ROW(STREAM, INVALID_HANDLE, stream_callback),
	ROW(STREAM, INVALID_HANDLE, stream_set),
	ROW(STREAM, INVALID_HANDLE, stream_copy),
	ROW(STREAM, INVALID_HANDLE, stream_alloc),
	ROW(STREAM, INVALID_HANDLE, stream_free),
	ROW(STREAM, INVALID_HANDLE, stream_capture),
	ROW(STREAM, INVALID_HANDLE, stream_captured),
	ROW(STREAM, INVALID_HANDLE, stream_capturing),
	ROW(STREAM, INVALID_HANDLE, stream_launch),
	ROW(STREAM, INVALID_HANDLE, stream_graph),
	ROW(STREAM, INVALID_HANDLE, stream_word),
	ROW(STREAM, INVALID_HANDLE, stream_attribute),
	ROW(EVENT, INVALID_HANDLE, event_query),
	ROW(EVENT, INVALID_HANDLE, event_wait),
	ROW(EVENT, INVALID_HANDLE, event_record),
	ROW(EVENT, INVALID_HANDLE, event_time),
	ROW(EVENT, INVALID_HANDLE, event_waited),
	ROW(EVENT, INVALID_HANDLE, event_destroy),
	ROW(GRAPH, INVALID_VALUE, graph_instantiate),
	ROW(GRAPH, INVALID_VALUE, graph_clone),
	ROW(GRAPH, INVALID_VALUE, graph_nodes),
	ROW(GRAPH, INVALID_VALUE, graph_roots),
	ROW(GRAPH, INVALID_VALUE, graph_edges),
	ROW(GRAPH, INVALID_VALUE, graph_add),
	ROW(GRAPH, INVALID_VALUE, graph_child),
	ROW(GRAPH, INVALID_VALUE, graph_update),
	ROW(GRAPH, INVALID_VALUE, graph_retain),
	ROW(GRAPH, INVALID_VALUE, graph_destroy),
	ROW(NODE, INVALID_VALUE, node_type),
	ROW(NODE, INVALID_VALUE, node_params),
	ROW(NODE, INVALID_VALUE, node_after),
	ROW(NODE, INVALID_VALUE, node_before),
	ROW(NODE, INVALID_VALUE, node_enable),
	ROW(NODE, INVALID_VALUE, node_destroy),
	ROW(EXEC, INVALID_VALUE, exec_launch),
	ROW(EXEC, INVALID_VALUE, exec_upload),
	ROW(EXEC, INVALID_VALUE, exec_update),
	ROW(EXEC, INVALID_VALUE, exec_destroy),
	ROW(USER_OBJECT, INVALID_VALUE, user_retain),
	ROW(USER_OBJECT, INVALID_VALUE, user_release),
	ROW(USER_OBJECT, INVALID_VALUE, user_graph),
	ROW(POOL, INVALID_VALUE, pool_alloc),
	ROW(POOL, INVALID_VALUE, pool_trim),
	ROW(POOL, INVALID_VALUE, pool_get),
	ROW(POOL, INVALID_VALUE, pool_of),
	ROW(POOL, INVALID_VALUE, pool_destroy),
	ROW(ARRAY, INVALID_HANDLE, array_desc),
	ROW(ARRAY, INVALID_HANDLE, array_to),
	ROW(ARRAY, INVALID_HANDLE, array_from),
	ROW(ARRAY, INVALID_HANDLE, array_destroy),
	ROW(MIPMAP, INVALID_HANDLE, mipmap_level),
	ROW(MIPMAP, INVALID_HANDLE, mipmap_destroy),
	ROW(LINK, INVALID_HANDLE, link_add),
	ROW(LINK, INVALID_HANDLE, link_complete),
	ROW(LINK, INVALID_HANDLE, link_destroy),
};

/* A handle's kind is the wrong one, it is none at all, or it was one. */
static int nwrong;
static void try_handle(size_t row, void *handle, const char *what, unsigned int i)
{
	CUresult result = calls[row].call(handle);

	if (result == calls[row].code)
		return;
	printf("%s with %s %u: %d, not %d\n", calls[row].name, what, i, (int)result,
	       (int)calls[row].code);
	nwrong++;
}

static void wrong_handles(const char *path)
{
	static const char no_object[64];
	CUcontext now;

	begin("wrong handles");
	if (is_native) { /* it would look into each */
		end();
		return;
	}
	make(handles, path);
	make(ended, path);
	destroy(ended);
	for (size_t row = 0; row < sizeof(calls) / sizeof(calls[0]); row++) {
		for (unsigned int kind = 0; kind < NKINDS; kind++)
			if (kind != calls[row].kind)
				try_handle(row, handles[kind], "one of another kind,", kind);
		try_handle(row, ended[calls[row].kind], "one that has ended,", 0);
		try_handle(row, (void *)(uintptr_t)no_object, "no object,", 0);
		try_handle(row, (void *)(uintptr_t)UINTPTR_MAX, "no address,", 0);
		try_handle(row, (void *)(uintptr_t)8, "no address,", 8);
		/* Of a stream that is the legacy one, of a context none, of a pool's device its own. */
		if (calls[row].kind != STREAM && calls[row].call != ctx_set &&
		    calls[row].call != ctx_version && calls[row].call != node_enable)
			try_handle(row, NULL, "NULL,", 0);
	}
	CHECK(nwrong == 0);
	IS(cuTexObjectDestroy(4711), INVALID_VALUE);
	IS(cuSurfObjectDestroy(4711), INVALID_VALUE);
	OK(cuCtxGetCurrent(&now));
	CHECK(now == ctx);
	destroy(handles);
	still_works();
	end();
}

/* ---- sizes that overflow ---- */

static void sizes_of_allocations(void)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemGenericAllocationHandle physical = 0;
	CUdeviceptr p = 77;
	size_t pitch = 0;
	void *host = &pitch;

	IS(cuMemAlloc(&p, SIZE_MAX), OUT_OF_MEMORY);
	IS(cuMemAlloc(&p, HUGE_BYTES), OUT_OF_MEMORY);
	IS(cuMemAllocAsync(&p, SIZE_MAX, 0), OUT_OF_MEMORY);
	IS(cuMemAllocManaged(&p, SIZE_MAX, CU_MEM_ATTACH_GLOBAL), OUT_OF_MEMORY);
	IS(cuMemHostAlloc(&host, SIZE_MAX, 0), OUT_OF_MEMORY);
	IS(cuMemAllocHost(&host, HUGE_BYTES), OUT_OF_MEMORY);
	CHECK(p == 77 && host == &pitch);
	/* Its rows times their width is more than there are numbers. */
	CHECK(cuMemAllocPitch(&p, &pitch, (size_t)1 << 40, (size_t)1 << 40, 4) != CUDA_SUCCESS);
	CHECK(cuMemAllocPitch(&p, &pitch, SIZE_MAX, 2, 4) != CUDA_SUCCESS);
	CHECK(cuMemCreate(&physical, HUGE_BYTES & ~(((size_t)2 << 20) - 1), &prop, 0) ==
	      CUDA_ERROR_OUT_OF_MEMORY);
	IS(cuMemCreate(&physical, SIZE_MAX, &prop, 0), INVALID_VALUE);
	CHECK(cuMemAddressReserve(&p, HUGE_BYTES & ~(((size_t)2 << 20) - 1), 0, 0, 0) !=
	      CUDA_SUCCESS);
	CHECK(cuMemHostRegister(&pitch, HUGE_BYTES, 0) != CUDA_SUCCESS);
	CHECK(p == 77 && physical == 0);
}

static void sizes_of_copies(void)
{
	CUDA_MEMCPY2D plane = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				.srcDevice = memory,
				.srcPitch = (size_t)1 << 40,
				.dstMemoryType = CU_MEMORYTYPE_DEVICE,
				.dstDevice = memory,
				.dstPitch = (size_t)1 << 40,
				.WidthInBytes = 16,
				.Height = (size_t)1 << 40 };
	CUDA_MEMCPY3D space = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				.srcDevice = memory,
				.srcPitch = 1 << 20,
				.srcHeight = (size_t)1 << 44,
				.dstMemoryType = CU_MEMORYTYPE_DEVICE,
				.dstDevice = memory,
				.dstPitch = 1 << 20,
				.dstHeight = (size_t)1 << 44,
				.WidthInBytes = 16,
				.Height = 1,
				.Depth = 2 };
	unsigned char byte = 0;

	IS(cuMemcpy2D(&plane), INVALID_VALUE);
	plane.srcPitch = plane.dstPitch = 16;
	plane.srcXInBytes = SIZE_MAX - 7;
	IS(cuMemcpy2D(&plane), INVALID_VALUE);
	plane.srcXInBytes = 0;
	plane.srcY = SIZE_MAX / 16 + 1; /* times the pitch: 0 */
	plane.Height = 1;
	IS(cuMemcpy2D(&plane), INVALID_VALUE);
	IS(cuMemcpy3D(&space), INVALID_VALUE);
	space.srcZ = SIZE_MAX;
	IS(cuMemcpy3D(&space), INVALID_VALUE);
	IS(cuMemcpyHtoD(memory, &byte, SIZE_MAX), INVALID_VALUE);
	IS(cuMemcpyDtoD(memory, memory + 4096, SIZE_MAX - 4095), INVALID_VALUE);
	IS(cuMemcpyDtoHAsync(&byte, memory + 16, SIZE_MAX - 15, 0), INVALID_VALUE);
	IS(cuMemsetD32(memory, 0, SIZE_MAX / 4 + 2), INVALID_VALUE);
	IS(cuMemsetD16(memory, 0, SIZE_MAX / 2 + 1), INVALID_VALUE);
	IS(cuMemsetD2D8(memory, (size_t)1 << 40, 0, 16, (size_t)1 << 40), INVALID_VALUE);
	IS(cuMemsetD2D32(memory, 64, 0, SIZE_MAX / 4 + 2, 2), INVALID_VALUE);
}

static void sizes_that_overflow(void)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { .Width = SIZE_MAX,
					 .Height = SIZE_MAX,
					 .Depth = SIZE_MAX,
					 .Format = CU_AD_FORMAT_FLOAT,
					 .NumChannels = 4 };
	CUarray array = NULL;
	CUmipmappedArray levels = NULL;
	CUdeviceptr x = memory;
	int n = 0;
	float a = 1;
	void *params[] = { &n, &a, &x, &x };

	begin("sizes that overflow");
	sizes_of_allocations();
	if (!is_native) /* NVIDIA's driver says of some that it did them */
		sizes_of_copies();
	CHECK(cuArray3DCreate(&array, &desc) != CUDA_SUCCESS && !array);
	CHECK(cuMipmappedArrayCreate(&levels, &desc, 1000) != CUDA_SUCCESS && !levels);
	IS(cuLaunchKernel(saxpy, UINT32_MAX, UINT32_MAX, UINT32_MAX, 1, 1, 1, 0, 0, params, NULL),
	   INVALID_VALUE);
	IS(cuLaunchKernel(saxpy, 1, 1, 1, UINT32_MAX, UINT32_MAX, 2, 0, 0, params, NULL),
	   INVALID_VALUE);
	IS(cuLaunchKernel(saxpy, 1, 1, 1, 1, 1, 1, UINT32_MAX, 0, params, NULL), INVALID_VALUE);
	still_works();
	end();
}

/* ---- pointers outside any allocation, and of the host where the device's are meant ---- */

static void try_copies(CUdeviceptr where)
{
	CUDA_MEMCPY2D plane = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				.srcDevice = where,
				.dstMemoryType = CU_MEMORYTYPE_DEVICE,
				.dstDevice = memory,
				.WidthInBytes = 16,
				.Height = 2 };
	CUDA_MEMCPY3D space = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				.srcDevice = memory,
				.dstMemoryType = CU_MEMORYTYPE_DEVICE,
				.dstDevice = where,
				.WidthInBytes = 16,
				.Height = 2,
				.Depth = 2 };
	unsigned char bytes[64] = { 0 };

	IS(cuMemcpyHtoD(where, bytes, 16), INVALID_VALUE);
	IS(cuMemcpyDtoH(bytes, where, 16), INVALID_VALUE);
	IS(cuMemcpyDtoD(where, memory, 16), INVALID_VALUE);
	IS(cuMemcpyDtoD(memory, where, 16), INVALID_VALUE);
	IS(cuMemcpyDtoHAsync(bytes, where, 16, 0), INVALID_VALUE);
	IS(cuMemcpyPeer(memory, ctx, where, ctx, 16), INVALID_VALUE);
	IS(cuMemcpy2D(&plane), INVALID_VALUE);
	IS(cuMemcpy3D(&space), INVALID_VALUE);
	IS(cuMemsetD8(where, 1, 16), INVALID_VALUE);
	IS(cuMemsetD2D32(where, 64, 1, 4, 2), INVALID_VALUE);
}

static void try_objects(CUdeviceptr where)
{
	CUDA_RESOURCE_DESC linear = { .resType = CU_RESOURCE_TYPE_LINEAR,
				      .res.linear = { .devPtr = where,
						      .format = CU_AD_FORMAT_FLOAT,
						      .numChannels = 1,
						      .sizeInBytes = 4096 } };
	CUDA_TEXTURE_DESC how = { 0 };
	CUtexObject texture = 77;
	CUdeviceptr base = 0;
	CUmemoryPool pool;
	CUipcMemHandle ipc;
	size_t bytes = 0;
	unsigned int flags;

	IS(cuMemFree(where), INVALID_VALUE);
	IS(cuMemFreeAsync(where, 0), INVALID_VALUE);
	CHECK(cuMemGetAddressRange(&base, &bytes, where) != CUDA_SUCCESS && !base && !bytes);
	IS(cuTexObjectCreate(&texture, &linear, &how, NULL), INVALID_VALUE);
	CHECK(texture == 77);
	IS(cuIpcGetMemHandle(&ipc, where), INVALID_VALUE);
	IS(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, where), INVALID_VALUE);
	IS(cuMemAdvise(where, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY,
		       (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_DEVICE }),
	   INVALID_VALUE);
	IS(cuStreamAttachMemAsync(0, where, 0, CU_MEM_ATTACH_GLOBAL), INVALID_VALUE);
	IS(cuMemUnmap(where & ~(((CUdeviceptr)2 << 20) - 1), 2 << 20), INVALID_VALUE);
	IS(cuMemFreeHost((void *)(uintptr_t)where), INVALID_VALUE);
	CHECK(cuMemHostUnregister((void *)(uintptr_t)where) != CUDA_SUCCESS);
	IS(cuMemHostGetFlags(&flags, (void *)(uintptr_t)where), INVALID_VALUE);
	IS(cuMemHostGetDevicePointer(&base, (void *)(uintptr_t)where, 0), INVALID_VALUE);
}

static void pointers_outside(void)
{
	CUdeviceptr freed, others[6];

	begin("pointers outside any allocation");
	OK(cuMemAlloc(&freed, 4 << 20));
	OK(cuMemFree(freed));
	others[0] = freed;
	others[1] = memory + (1 << 20); /* behind the last byte */
	others[2] = memory - 16;
	others[3] = 16;
	others[4] = (CUdeviceptr)1 << 46;
	others[5] = UINT64_MAX - 15;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]) && !is_native; i++) {
		try_copies(others[i]);
		try_objects(others[i]);
	}
	still_works();
	end();
}

static void pointers_of_the_host(void)
{
	static unsigned char mine[8192] __attribute__((aligned(4096)));
	CUdeviceptr here = (CUdeviceptr)(uintptr_t)mine;
	unsigned char *heap = malloc(1 << 20);
	unsigned char stack[4096];

	begin("host pointers where device is meant");
	if (!is_native) {
		try_copies(here);
		try_objects(here);
		try_copies((CUdeviceptr)(uintptr_t)heap);
		try_copies((CUdeviceptr)(uintptr_t)stack);
		for (size_t i = 0; i < sizeof(mine); i++)
			CHECK(mine[i] == 0);
	}
	free(heap);
	still_works();
	end();
}

/* ---- callbacks that call back into CUDA ---- */

static CUresult (*const from_callback[])(void *) = {
	stream_wait,	stream_query,  stream_destroy, stream_set,    stream_copy,
	stream_alloc,	stream_free,   stream_host,    stream_launch, stream_graph,
	stream_capture, event_query,   event_wait,     event_record,  event_destroy,
	graph_destroy,	exec_launch,   exec_destroy,   graph_clone,   ctx_set,
	ctx_destroy,	module_unload, pool_alloc,     array_destroy, link_destroy,
};
static void *const callback_handles[] = {
	&handles[STREAM], &handles[STREAM], &handles[STREAM], &handles[STREAM], &handles[STREAM],
	&handles[STREAM], &handles[STREAM], &handles[STREAM], &handles[STREAM], &handles[STREAM],
	&handles[STREAM], &handles[EVENT],  &handles[EVENT],  &handles[EVENT],	&handles[EVENT],
	&handles[GRAPH],  &handles[EXEC],   &handles[EXEC],   &handles[GRAPH],	&handles[CTX],
	&handles[CTX],	  &handles[MODULE], &handles[POOL],   &handles[ARRAY],	&handles[LINK]
};
static unsigned int npermitted, ncallbacks;

static void call_back(void)
{
	unsigned int value;
	CUdeviceptr p;

	for (size_t i = 0; i < sizeof(from_callback) / sizeof(from_callback[0]); i++)
		if (from_callback[i](*(void **)callback_handles[i]) != CUDA_ERROR_NOT_PERMITTED) {
			printf("call %zu of a callback was permitted\n", i);
			npermitted++;
		}
	npermitted += cuCtxSynchronize() != CUDA_ERROR_NOT_PERMITTED;
	npermitted += cuMemAlloc(&p, 16) != CUDA_ERROR_NOT_PERMITTED;
	npermitted += cuMemFree(memory) != CUDA_ERROR_NOT_PERMITTED;
	npermitted += cuMemcpyDtoH(&value, memory, 4) != CUDA_ERROR_NOT_PERMITTED;
	npermitted += cuMemcpyHtoD(memory, &value, 4) != CUDA_ERROR_NOT_PERMITTED;
	npermitted += cuDevicePrimaryCtxReset(0) != CUDA_ERROR_NOT_PERMITTED;
	ncallbacks++;
}

static void CUDA_CB calls_on_host(void *data)
{
	(void)data;
	call_back();
}

static void CUDA_CB calls_on_stream(CUstream stream, CUresult status, void *data)
{
	(void)stream;
	(void)data;
	CHECK(status == CUDA_SUCCESS);
	call_back();
}

static void callbacks(const char *path)
{
	CUDA_HOST_NODE_PARAMS host = { .fn = calls_on_host };
	CUuserObject object;
	CUgraph graph, held;
	CUgraphExec exec;
	CUgraphNode node;

	begin("callbacks that call back");
	make(handles, path);
	OK(cuLaunchHostFunc(handles[STREAM], calls_on_host, NULL));
	OK(cuStreamAddCallback(handles[STREAM], calls_on_stream, NULL, 0));
	OK(cuGraphCreate(&graph, 0));
	OK(cuGraphAddHostNode(&node, graph, NULL, 0, &host));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphLaunch(exec, handles[STREAM]));
	OK(cuStreamSynchronize(handles[STREAM]));
	CHECK(ncallbacks == 3 && npermitted == 0);
	/* What ends an object of the program's is such a function too. */
	OK(cuUserObjectCreate(&object, NULL, calls_on_host, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuGraphCreate(&held, 0));
	OK(cuGraphRetainUserObject(held, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cuGraphDestroy(held));
	while (__atomic_load_n(&ncallbacks, __ATOMIC_ACQUIRE) < 4)
		(void)usleep(1000);
	CHECK(npermitted == 0);
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	destroy(handles);
	still_works();
	end();
}

/* ---- after the context ---- */

static void after_the_context(const char *path)
{
	const CUDA_ARRAY_DESCRIPTOR desc = {
		.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1
	};
	CUdeviceptr p, q, managed;
	CUcontext other;
	CUstream stream;
	CUevent event;
	CUmodule its;
	CUfunction function;
	CUarray array;
	CUgraph graph, calling;
	CUgraphExec exec, call;
	CUgraphNode node;
	CUDA_MEMSET_NODE_PARAMS fill = { .elementSize = 4, .width = 4, .height = 1 };
	CUDA_KERNEL_NODE_PARAMS kernel = { .gridDimX = 1,
					   .gridDimY = 1,
					   .gridDimZ = 1,
					   .blockDimX = 1,
					   .blockDimY = 1,
					   .blockDimZ = 1 };
	unsigned int value = 5;
	void *host;
	int n = 0;
	float a = 1;
	void *params[] = { &n, &a, &p, &p };

	begin("after the context");
	if (is_native) {
		end();
		return;
	}
	OK(cuCtxCreate(&other, NULL, 0, 0));
	OK(cuMemAlloc(&p, 1 << 20));
	OK(cuMemAllocAsync(&q, 1 << 20, 0));
	OK(cuMemAllocManaged(&managed, 1 << 16, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemHostAlloc(&host, 4096, 0));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, 0));
	OK(cuModuleLoad(&its, path));
	OK(cuModuleGetFunction(&function, its, "saxpy"));
	OK(cuArrayCreate(&array, &desc));
	OK(cuGraphCreate(&graph, 0));
	fill.dst = p;
	OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, other));
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphCreate(&calling, 0));
	kernel.func = function;
	kernel.kernelParams = params;
	OK(cuGraphAddKernelNode(&node, calling, NULL, 0, &kernel));
	OK(cuGraphInstantiate(&call, calling, 0));
	OK(cuGraphLaunch(call, stream));
	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	for (unsigned int i = 0; i < 100; i++)
		OK(cuMemsetD8Async(p, (unsigned char)i, 1 << 20, stream));
	OK(cuCtxDestroy(other));
	IS(cuCtxSetCurrent(other), INVALID_CONTEXT);
	IS(cuCtxDestroy(other), INVALID_CONTEXT);
	IS(cuMemcpyDtoH(&value, p, 4), INVALID_VALUE);
	IS(cuMemsetD8(p, 1, 1), INVALID_VALUE);
	IS(cuMemFree(p), INVALID_VALUE);
	IS(cuMemFree(managed), INVALID_VALUE);
	IS(cuMemFreeHost(host), INVALID_VALUE);
	IS(cuStreamSynchronize(stream), INVALID_HANDLE);
	IS(cuStreamDestroy(stream), INVALID_HANDLE);
	IS(cuEventRecord(event, 0), INVALID_HANDLE);
	IS(cuEventDestroy(event), INVALID_HANDLE);
	IS(cuModuleUnload(its), INVALID_HANDLE);
	IS(cuModuleGetFunction(&function, its, "saxpy"), INVALID_HANDLE);
	IS(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL), INVALID_HANDLE);
	IS(cuArrayDestroy(array), INVALID_HANDLE);
	CHECK(cuGraphLaunch(exec, 0) != CUDA_SUCCESS);
	CHECK(cuGraphLaunch(call, 0) != CUDA_SUCCESS);
	CHECK(cuGraphInstantiate(&exec, calling, 0) != CUDA_SUCCESS ||
	      cuGraphLaunch(exec, 0) != CUDA_SUCCESS);
	OK(cuGraphExecDestroy(call));
	OK(cuGraphDestroy(calling));
	OK(cuGraphExecDestroy(exec));
	OK(cuGraphDestroy(graph));
	still_works();
	end();
}

/* With none current; and after the primary one was reset, in which all was. */
static void after_all(const char *path)
{
	CUcontext top = ctx;
	CUdeviceptr p = 77;
	CUstream stream;
	unsigned int value;

	begin("after all of it");
	OK(cuCtxSetCurrent(NULL));
	IS(cuMemAlloc(&p, 16), INVALID_CONTEXT);
	IS(cuMemcpyDtoH(&value, memory, 4), INVALID_CONTEXT);
	IS(cuStreamCreate(&stream, 0), INVALID_CONTEXT);
	IS(cuCtxSynchronize(), INVALID_CONTEXT);
	IS(cuModuleLoad(&module, path), INVALID_CONTEXT);
	IS(cuCtxPopCurrent(&top), INVALID_CONTEXT);
	OK(cuCtxSetCurrent(ctx));
	OK(cuMemsetD8Async(memory, 1, 1 << 20, 0));
	OK(cuDevicePrimaryCtxReset(0));
	if (!is_native) {
		CHECK(cuMemAlloc(&p, 16) != CUDA_SUCCESS && p == 77);
		CHECK(cuCtxSynchronize() != CUDA_SUCCESS);
		CHECK(cuMemcpyDtoH(&value, memory, 4) != CUDA_SUCCESS);
		CHECK(cuModuleUnload(module) != CUDA_SUCCESS);
	}
	/* It may begin anew. */
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuModuleLoad(&module, path));
	OK(cuModuleGetFunction(&saxpy, module, "saxpy"));
	OK(cuMemAlloc(&memory, 1 << 20));
	still_works();
	end();
}

/* ---- exits in the middle of work ---- */

static sem_t entered, forever;

static void CUDA_CB waits(void *data)
{
	(void)data;
	(void)sem_post(&entered);
	(void)sem_wait(&forever);
}

static void CUDA_CB exits(void *data)
{
	(void)data;
	exit(7);
}

static void at_exit(void)
{
	unsigned int value;

	/* CUDA may be gone by then, or be there: it does not crash, and does not wait for ever. */
	(void)cuMemcpyDtoH(&value, memory, 4);
	(void)cuMemFree(memory);
	(void)cuCtxDestroy(ctx);
}

static void *synchronize(void *arg)
{
	(void)sem_post(&entered);
	(void)cuStreamSynchronize(arg);
	return NULL;
}

static int exit_in_the_middle(const char *how)
{
	CUstream stream, held;
	pthread_t thread;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
	(void)sem_init(&entered, 0, 0);
	(void)sem_init(&forever, 0, 0);
	for (unsigned int i = 0; i < 500; i++)
		OK(cuMemsetD8Async(memory, (unsigned char)i, 1 << 20, stream));
	if (strcmp(how, "returns") == 0)
		return 7;
	if (strcmp(how, "_exits") == 0)
		_exit(7);
	if (strcmp(how, "aborts") == 0)
		abort();
	if (strcmp(how, "calls at its exit") == 0) {
		CHECK(atexit(at_exit) == 0);
		exit(7);
	}
	if (strcmp(how, "captures") == 0) {
		OK(cuStreamBeginCapture(held, CU_STREAM_CAPTURE_MODE_RELAXED));
		OK(cuMemsetD8Async(memory, 1, 16, held));
		exit(7);
	}
	if (strcmp(how, "exits from a function of its own") == 0) {
		OK(cuLaunchHostFunc(held, exits, NULL));
		(void)cuStreamSynchronize(held);
		(void)sem_wait(&forever);
	}
	/* One of its functions never ends, and a thread waits for that. */
	OK(cuLaunchHostFunc(held, waits, NULL));
	OK(cuMemsetD8Async(memory, 1, 16, held));
	(void)sem_wait(&entered);
	CHECK(pthread_create(&thread, NULL, synchronize, held) == 0);
	(void)sem_wait(&entered);
	if (strcmp(how, "exits while others wait") == 0)
		exit(7);
	pthread_exit(NULL); /* "is left waiting": until somebody kills it */
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	is_native = argc > 4;
	ctx = set_out();
	OK(cuModuleLoad(&module, argv[1]));
	OK(cuModuleGetFunction(&saxpy, module, "saxpy"));
	OK(cuMemAlloc(&memory, 1 << 20));
	if (argc > 3 && strcmp(argv[2], "exit") == 0)
		return exit_in_the_middle(argv[3]);
	unknown_modules(argv[1], argv[2]);
	wrong_handles(argv[1]);
	sizes_that_overflow();
	pointers_outside();
	pointers_of_the_host();
	callbacks(argv[1]);
	after_the_context(argv[1]);
	after_all(argv[1]);
	return 0;
}
