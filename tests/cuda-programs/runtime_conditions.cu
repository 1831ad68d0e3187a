/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs with conditions over the Runtime API. */
#include "conditions.cuh"
#include "runtime_parts.cuh"

/* Three words of the device's. */
static unsigned int *left, *chosen, *sum;

static unsigned int get(const unsigned int *at)
{
	unsigned int value;

	OK(cudaMemcpy(&value, at, sizeof(value), cudaMemcpyDeviceToHost));
	return value;
}

static void set(unsigned int *at, unsigned int value)
{
	OK(cudaMemcpy(at, &value, sizeof(value), cudaMemcpyHostToDevice));
}

static cudaGraphNode_t put_kernel(cudaGraph_t graph, cudaGraphNode_t after, void *function, void **args)
{
	cudaGraphNodeParams params = {};
	cudaGraphNode_t node;

	params.type = cudaGraphNodeTypeKernel;
	params.kernel.func = function;
	params.kernel.gridDim = dim3(1);
	params.kernel.blockDim = dim3(1);
	params.kernel.kernelParams = args;
	OK(cudaGraphAddNode(&node, graph, after ? &after : nullptr, nullptr, after ? 1 : 0, &params));
	return node;
}

static cudaGraph_t *put_branch(cudaGraph_t graph, const cudaGraphNode_t *after, size_t nafter,
			       cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type, unsigned int n,
			       cudaGraphNode_t *ret_node)
{
	cudaGraphNodeParams params = {};

	params.type = cudaGraphNodeTypeConditional;
	params.conditional.handle = handle;
	params.conditional.type = type;
	params.conditional.size = n;
	OK(cudaGraphAddNode(ret_node, graph, after, nullptr, nafter, &params));
	return params.conditional.phGraph_out;
}

static void built()
{
	cudaGraphConditionalHandle handle = 0;
	cudaGraphNode_t node, setter;
	unsigned int one = 1, ten = 10;
	cudaGraphExec_t exec;
	cudaGraph_t graph, *bodies;

	part = "conditions built";
	OK(cudaGraphCreate(&graph, 0));
	IS(cudaGraphConditionalHandleCreate(nullptr, graph), cudaErrorInvalidValue);
	IS(cudaGraphConditionalHandleCreate(&handle, graph, 0, 2), cudaErrorInvalidValue);
	(void)cudaGetLastError();
	OK(cudaGraphConditionalHandleCreate(&handle, graph, 0, cudaGraphCondAssignDefault));
	void *choosing[] = { &handle, &chosen };
	void *adding_one[] = { &sum, &one };
	void *adding_ten[] = { &sum, &ten };
	setter = put_kernel(graph, nullptr, (void *)choose, choosing);
	bodies = put_branch(graph, &setter, 1, handle, cudaGraphCondTypeIf, 2, &node);
	(void)put_kernel(bodies[0], nullptr, (void *)add, adding_one);
	(void)put_kernel(bodies[1], nullptr, (void *)add, adding_ten);
	OK(cudaGraphInstantiate(&exec, graph, 0));
	set(sum, 0);
	set(chosen, 1);
	OK(cudaGraphLaunch(exec, 0));
	OK(cudaDeviceSynchronize());
	CHECK(get(sum) == 1);
	set(chosen, 0);
	OK(cudaGraphLaunch(exec, 0));
	OK(cudaDeviceSynchronize());
	CHECK(get(sum) == 11);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	end();
}

static void captured()
{
	cudaGraphConditionalHandle handle;
	cudaStreamCaptureStatus status;
	const cudaGraphNode_t *tips;
	cudaStream_t stream, inside;
	cudaGraph_t graph, *bodies;
	cudaGraphNode_t node;
	cudaGraphExec_t exec;
	size_t ntips;

	part = "conditions captured";
	OK(cudaStreamCreate(&stream));
	OK(cudaStreamCreate(&inside));
	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	add<<<1, 1, 0, stream>>>(sum, 100);
	OK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &tips, nullptr, &ntips));
	OK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
	bodies = put_branch(graph, tips, ntips, handle, cudaGraphCondTypeWhile, 1, &node);
	OK(cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
	OK(cudaStreamBeginCaptureToGraph(inside, bodies[0], nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
	count_down<<<1, 1, 0, inside>>>(handle, left);
	add<<<1, 1, 0, inside>>>(sum, 1);
	OK(cudaStreamEndCapture(inside, nullptr));
	add<<<1, 1, 0, stream>>>(sum, 1000);
	OK(cudaStreamEndCapture(stream, &graph));
	(void)cudaGetLastError();
	OK(cudaGraphInstantiate(&exec, graph, 0));
	set(sum, 0);
	set(left, 10);
	OK(cudaGraphLaunch(exec, stream));
	OK(cudaStreamSynchronize(stream));
	CHECK(get(sum) == 1110 && get(left) == 0);
	OK(cudaGraphExecDestroy(exec));
	OK(cudaGraphDestroy(graph));
	OK(cudaStreamDestroy(inside));
	OK(cudaStreamDestroy(stream));
	end();
}

int main()
{
	(void)setvbuf(stdout, nullptr, _IOLBF, 0);
	OK(cudaMalloc(&left, 4096));
	chosen = left + 1;
	sum = left + 2;
	built();
	captured();
	OK(cudaFree(left));
	return 0;
}
