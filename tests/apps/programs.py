# SPDX-License-Identifier: Apache-2.0
"""The programs of public suites that tests/apps/run compares with themselves: natively and over our libraries.

Their sources are not here, and nothing fetches them: sources.json says by hash from which files tests/apps/build makes
the programs whose results docs/results tells. A program is looked for as NAME/NAME in the folder that the
runner is given, with its data files beside it; what is absent is skipped by name. It has to ask for libcudart.so.13.
"""
import dataclasses

# What a suite is, and where its authors keep it. The commits are in sources.json.
SUITES = {
    "cuda-samples": "NVIDIA/cuda-samples",
    "CUDALibrarySamples": "NVIDIA/CUDALibrarySamples",
    "rodinia": "yuhc/gpu-rodinia (Rodinia 3.1)",
}
# What the programs show that our libraries do: each word belongs to at least one of them.
COVERED = ("streams", "events", "graphs", "cooperative groups", "textures", "surfaces", "atomics", "managed memory", "pinned memory",
           "several devices", "NVRTC", "cuBLAS", "cuFFT", "cuRAND", "cuSPARSE", "cuSOLVER", "driver API",
           "kernels", "printf", "pools", "occupancy", "tensor cores", "dynamic parallelism", "virtual memory", "threads")


@dataclasses.dataclass(frozen=True)
class Program:
    """How one is run, and how its two runs are compared."""
    name: str
    suite: str
    covers: tuple
    args: tuple = ()
    # {path below the working folder: name in inputs.py}
    inputs: dict = dataclasses.field(default_factory=dict)
    # Files that it writes and that may differ; all others have to be equal.
    own_files: tuple = ()
    # Lines whose numbers are masked, and lines that do not count: regular expressions.
    masks: tuple = ()
    drop: tuple = ()
    tolerance: float = 0.0
    any_order: bool = False
    # The bytes that its copies bring to the host are equal, too.
    sums: bool = False
    # Whole runs are timed against native ones.
    timed: bool = False
    gpus: int = 1
    limit_s: int = 60
    # It seeds random numbers with the time of day.
    fixed_time: bool = False


def sample(name, *covers, **how):
    return Program(name, "cuda-samples", covers, **how)


def library(name, *covers, **how):
    return Program("lib-" + name, "CUDALibrarySamples", covers, **how)


def rodinia(name, *args, **how):
    how = {"sums": True, "timed": True, **how}
    return Program("rodinia-" + name, "rodinia", ("kernels",), args=args, **how)


RODINIA = [
    rodinia("backprop", "524288"),
    rodinia("bfs", "graph.txt", inputs={"graph.txt": "graph.txt"}),
    rodinia("btree", "file", "keys.txt", "command", "command.txt",
            inputs={"keys.txt": "keys.txt", "command.txt": "command.txt"}),
    rodinia("euler3d", "mesh.txt", inputs={"mesh.txt": "mesh.txt"}),
    rodinia("dwt2d", "rgb.raw", "-d", "1024x1024", "-f", "-5", "-l", "3", inputs={"../../data/dwt2d/rgb.raw": "rgb.raw"}),
    rodinia("gaussian", "-s", "1024", "-q", masks=("Global Memory",)),  # the tenant's
    rodinia("heartwall", "heart.avi", "10", inputs={"heart.avi": "heart.avi"}),
    rodinia("hotspot", "1024", "2", "4000", "temp_1024", "power_1024", "output.out",
            inputs={"temp_1024": "temp_1024", "power_1024": "power_1024"}),
    rodinia("hotspot3D", "256", "8", "400", "power_256x8", "temp_256x8", "output.out",
            inputs={"power_256x8": "power_256x8", "temp_256x8": "temp_256x8"}),
    rodinia("huffman", "symbols.in", inputs={"symbols.in": "symbols.in"}),
    rodinia("lavaMD", "-boxes1d", "20", fixed_time=True),
    rodinia("lud", "-s", "2048", fixed_time=True),
    rodinia("nn", "places.txt", "-r", "5", "-lat", "30", "-lng", "90", inputs={"places.txt": "places.txt", "places.db": "places.db"}),
    rodinia("nw", "4096", "10"),
    rodinia("particlefilter_naive", "-x", "128", "-y", "128", "-z", "10", "-np", "1000", fixed_time=True),
    rodinia("particlefilter_float", "-x", "128", "-y", "128", "-z", "10", "-np", "20000", fixed_time=True, masks=("Execution", "^SEND ", "^FREE ")),
    rodinia("pathfinder", "100000", "300", "20"),
    rodinia("srad_v1", "200", "0.5", "502", "458", inputs={"../../../data/srad/image.pgm": "image.pgm"}),
    rodinia("streamcluster", "10", "20", "256", "32768", "32768", "1000", "none", "output.txt", "1"),
]

SAMPLES = [
    sample("vectorAdd", "kernels"),
    sample("asyncAPI", "streams", "events", masks=("executed",)),
    sample("clock", "kernels", masks=("clocks",)),
    sample("clock_nvrtc", "NVRTC", masks=("clocks",)),
    sample("fp16ScalarProduct", "kernels", fixed_time=True),
    sample("matrixMul", "kernels", "events"),
    sample("mergeSort", "kernels"),
    sample("simpleAWBarrier", "cooperative groups"),
    sample("simpleAtomicIntrinsics", "atomics"),
    sample("simpleAtomicIntrinsics_nvrtc", "atomics", "NVRTC"),
    sample("simpleAttributes", "streams"),
    sample("simpleCallback", "streams", "threads", any_order=True),
    sample("simpleCooperativeGroups", "cooperative groups", "printf"),
    sample("simpleHyperQ", "streams", "events"),
    sample("simpleMultiCopy", "streams", "pinned memory"),
    sample("simpleMultiGPU", "several devices", "streams"),
    sample("simpleOccupancy", "occupancy", masks=("occupancy",)),
    sample("simpleP2P", "several devices", gpus=2),
    sample("simplePrintf", "printf", any_order=True),
    sample("simpleStreams", "streams", "pinned memory", masks=("^memcopy:", "^kernel:", "^non-streamed:", r"^\d+ streams:")),
    sample("simpleTemplates", "kernels"),
    sample("simpleVoteIntrinsics", "kernels"),
    sample("simpleZeroCopy", "pinned memory"),
    sample("systemWideAtomics", "atomics", "managed memory"),
    sample("template", "kernels"),
    # Threads draw sizes from one rand(), which say where each task runs: nothing but the end of all is the same twice.
    sample("UnifiedMemoryStreams", "managed memory", "cuBLAS", "threads", drop=(r"^Task \[", )),
    sample("simpleCubemapTexture", "textures"),
    sample("simpleLayeredTexture", "textures"),
    sample("simplePitchLinearTexture", "textures"),
    sample("simpleSurfaceWrite", "surfaces", "textures"),
    sample("simpleTexture", "textures"),
    sample("simpleTextureDrv", "textures", "driver API"),
    sample("simpleAssert", "printf"),
    sample("cudaOpenMP", "threads", any_order=True),
    sample("vectorAdd_nvrtc", "NVRTC", "driver API"),
    sample("matrixMulDrv", "driver API", masks=("global memory",)),
    sample("vectorAddDrv", "driver API"),
    sample("vectorAddMMAP", "virtual memory", "driver API"),
    sample("simpleDrvRuntime", "driver API"),
    sample("convolutionSeparable", "kernels"),
    sample("convolutionTexture", "textures"),
    sample("dct8x8", "textures", "kernels"),
    sample("eigenvalues", "kernels"),
    sample("histogram", "atomics"),
    sample("inlinePTX", "kernels"),
    sample("inlinePTX_nvrtc", "NVRTC"),
    sample("interval", "kernels"),
    sample("reduction", "kernels"),
    sample("reductionMultiBlockCG", "cooperative groups", tolerance=1e-6),
    sample("scalarProd", "kernels"),
    sample("scan", "kernels"),
    sample("shfl_scan", "kernels"),
    sample("sortingNetworks", "kernels"),
    sample("streamOrderedAllocation", "pools", "streams"),
    sample("streamOrderedAllocationP2P", "pools", "several devices", gpus=2),
    sample("threadFenceReduction", "atomics"),
    sample("radixSortThrust", "kernels"),
    sample("threadMigration", "driver API", "threads", any_order=True),
    sample("MC_EstimatePiInlineP", "cuRAND"),
    sample("MC_EstimatePiInlineQ", "cuRAND"),
    sample("MC_EstimatePiP", "cuRAND"),
    sample("MC_EstimatePiQ", "cuRAND"),
    sample("MC_SingleAsianOptionP", "cuRAND"),
    sample("StreamPriorities", "streams"),
    sample("bf16TensorCoreGemm", "tensor cores"),
    sample("cudaTensorCoreGemm", "tensor cores"),
    sample("dmmaTensorCoreGemm", "tensor cores"),
    sample("immaTensorCoreGemm", "tensor cores", masks=("^TOPS:", )),
    sample("tf32TensorCoreGemm", "tensor cores"),
    sample("binaryPartitionCG", "cooperative groups"),
    sample("globalToShmemAsyncCopy", "kernels"),
    sample("graphMemoryNodes", "graphs", "pools"),
    sample("graphMemoryFootprint", "graphs", "pools"),
    sample("graphConditionalNodes", "graphs"),
    sample("jacobiCudaGraphs", "graphs", tolerance=1e-6),
    sample("simpleCudaGraphs", "graphs", tolerance=1e-6),
    sample("newdelete", "kernels"),
    sample("warpAggregatedAtomicsCG", "cooperative groups", "atomics"),
    sample("ptxjit", "driver API"),
    sample("cudaCompressibleMemory", "virtual memory"),
    sample("cdpSimplePrint", "dynamic parallelism", "printf", any_order=True),
    sample("cdpSimpleQuicksort", "dynamic parallelism"),
    sample("MersenneTwisterGP11213", "cuRAND"),
    sample("batchCUBLAS", "cuBLAS", "streams"),
    sample("conjugateGradient", "cuBLAS", "cuSPARSE", "managed memory", tolerance=1e-5),
    sample("conjugateGradientCudaGraphs", "cuBLAS", "cuSPARSE", "graphs", tolerance=1e-5),
    sample("conjugateGradientMultiBlockCG", "cooperative groups", "managed memory", tolerance=1e-3),
    sample("conjugateGradientMultiDeviceCG", "cooperative groups", "several devices", gpus=2, tolerance=1e-3),
    sample("conjugateGradientPrecond", "cuBLAS", "cuSPARSE", tolerance=1e-5),
    sample("conjugateGradientUM", "cuBLAS", "cuSPARSE", "managed memory", tolerance=1e-5),
    sample("cuSolverDn_LinearSolver", "cuSOLVER", "cuBLAS"),
    sample("cuSolverRf", "cuSOLVER"),
    sample("cuSolverSp_LinearSolver", "cuSOLVER", "cuSPARSE"),
    sample("cuSolverSp_LowlevelCholesky", "cuSOLVER"),
    sample("cuSolverSp_LowlevelQR", "cuSOLVER"),
    sample("lineOfSight", "kernels", "textures"),
    sample("matrixMulCUBLAS", "cuBLAS"),
    sample("simpleCUBLAS", "cuBLAS"),
    sample("simpleCUBLAS_LU", "cuBLAS"),
    sample("simpleCUBLASXT", "cuBLAS"),
    sample("simpleCUFFT", "cuFFT"),
    sample("simpleCUFFT_MGPU", "cuFFT", "several devices", gpus=2),
    sample("simpleCUFFT_2d_MGPU", "cuFFT", "several devices", gpus=2),
    sample("BlackScholes", "kernels"),
    sample("BlackScholes_nvrtc", "NVRTC"),
    sample("binomialOptions", "kernels"),
    sample("binomialOptions_nvrtc", "NVRTC"),
    sample("FDTD3d", "kernels"),
    sample("HSOpticalFlow", "textures"),
    sample("MonteCarloMultiGPU", "cuRAND", "several devices", "streams", any_order=True),
    sample("SobolQRNG", "kernels"),
    sample("convolutionFFT2D", "cuFFT", "textures"),
    sample("dxtc", "kernels"),
    sample("fastWalshTransform", "kernels"),
    sample("p2pBandwidthLatencyTest", "several devices", gpus=2, masks=(r"^\s*\d+ ", )),
    sample("quasirandomGenerator", "kernels"),
    sample("quasirandomGenerator_nvrtc", "NVRTC"),
    sample("stereoDisparity", "textures"),
    sample("LargeKernelParameter", "kernels"),
    sample("alignedTypes", "kernels"),
    sample("transpose", "kernels"),
    sample("cudaGraphsPerfScaling", "graphs", masks=(".*",)),
]

LIBRARIES = [
    *(library(f"cuRAND-Host-{name}", "cuRAND") for name in ("philox", "mt19937", "sobol64")),
    *(library(f"cuFFT-{name}", "cuFFT") for name in ("1d_c2c", "1d_r2c_c2r", "2d_c2r_r2c", "3d_c2c")),
    *(library(f"cuSPARSE-{name}", "cuSPARSE", tolerance=1e-6) for name in (
        "axpby", "cg", "bicgstab", "gather", "spmv_csr", "spmm_csr", "sddmm_csr", "spgemm", "sparse2dense_csr", "dense2sparse_csr",
        "graph_capture", "spsv_csr", "spsm_csr", "spvv")),
    *(library(f"cuSOLVER-{name}", "cuSOLVER", tolerance=1e-6) for name in (
        "Xgetrf", "Xgesvd", "Xgeqrf", "Xpotrf", "Xsyevd", "gesvdj", "getrf", "ormqr", "potrfBatched", "syevjBatched", "syevd", "csrqr")),
    *(library(f"cuBLAS-{name}", "cuBLAS") for name in (
        "Level-1-dot", "Level-1-rot", "Level-2-gemv", "Level-2-trsv", "Level-3-gemm", "Level-3-gemmBatched", "Level-3-trsm",
        "Extensions-GemmEx", "Extensions-GemmStridedBatchedEx")),
]

PROGRAMS = RODINIA + SAMPLES + LIBRARIES
