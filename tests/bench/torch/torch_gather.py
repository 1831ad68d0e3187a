#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the folder that GANTRY_TORCH_MORE names: torch_gather.py FOLDER ARCHIVES [PYTHON].

ARCHIVES is a folder with the files that torch_sources.json lists; what they hold is looked at. PYTHON is an interpreter of the version
that PyTorch's environment has, with Cython (before 3.3) and NumPy beside it: with it five of CuPy's libraries are built for the GPU of
GANTRY_TORCH_ARCH (90), which takes a quarter of an hour on one processor. Without PYTHON they are left out, and with them CuPy's tests.
"""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
# What has device code, or calls the runtime itself: of all others the wheel's are as good.
MODULES = ("cupy_backends.cuda.api.runtime", "cupy.cuda.cub", "cupy.cuda.thrust", "cupy.cuda.jitify", "cupy.random._generator_api")


def archives_of(folder):
    """{name: path}, each with the hash that is listed."""
    found, wrong = {}, []
    for name, row in json.loads((HERE / "torch_sources.json").read_text(encoding="utf-8")).items():
        path = folder / name
        if not path.is_file():
            wrong.append(f"{name} is missing: {row['from']}")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != row["sha256"]:
            wrong.append(f"{name} is another: its SHA-256 is not {row['sha256']}")
        else:
            found[name] = path
    if wrong:
        sys.exit("torch_gather.py: " + "\ntorch_gather.py: ".join(wrong))
    return found


def unpack(archive, target, inside):
    """What lies below @inside of its one folder."""
    with tarfile.open(archive) as file:
        for member in file:
            parts = pathlib.PurePosixPath(member.name).parts[1:]
            if member.isfile() and "/".join(parts).startswith(inside):
                path = target / pathlib.PurePosixPath(*parts).relative_to(pathlib.PurePosixPath(inside).parent)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.extractfile(member).read())


def with_shared_runtime(text):
    """CuPy's list of what it builds: the libraries of MODULES alone, and with the shared runtime."""
    text = text.replace("['cudart_static']", "[]").replace("['pthread', 'rt', 'dl'] if sys.platform == 'linux' else []", "['cudart']")
    text = re.sub(r"self\.modules = _cuda_files \+ \[[^]]*\]", f"self.modules = [{MODULES[0]!r}]", text)
    text = text.replace("            'cupy.random._bit_generator',\n            ('cupy.random._generator_api'", "            ('cupy.random._generator_api'")
    for feature in ("CUDA_cusolver", "CUDA_nccl", "CUDA_nvtx", "CUDA_cutensor", "CUDA_cusparselt", "COMMON_dlpack"):
        text = text.replace(f"            _from_dict({feature}, ctx),\n", "")
    return text


def relink(source, python, target):
    features = source / "install" / "cupy_builder" / "_features.py"
    features.write_text(with_shared_runtime(features.read_text(encoding="utf-8")), encoding="utf-8")
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    arch = os.environ.get("GANTRY_TORCH_ARCH", "90")
    env = dict(os.environ, CUDA_PATH=home, CUPY_NVCC_GENERATE_CODE=f"arch=compute_{arch},code=sm_{arch}", CUPY_NUM_BUILD_JOBS="1",
               CUPY_NUM_NVCC_THREADS="1", CUPY_INSTALL_NO_RPATH="1", PATH=f"{home}/bin:{os.environ['PATH']}")
    subprocess.run([python, "setup.py", "build_ext", "--build-lib", str(target)], cwd=source, env=env, check=True)
    built = sorted(target.rglob("*.so"))
    names = {".".join(path.relative_to(target).parts).split(".cpython")[0] for path in built}
    if names != set(MODULES):
        sys.exit(f"torch_gather.py: CuPy built {sorted(names)}, not {sorted(MODULES)}")
    for path in built:
        needs = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
        if "libcudart.so" not in needs:
            sys.exit(f"torch_gather.py: {path} does not take the shared runtime")
        subprocess.run(["strip", "-g", str(path)], check=True)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    target, found = pathlib.Path(sys.argv[1]).resolve(), archives_of(pathlib.Path(sys.argv[2]))
    target.mkdir(parents=True)
    for name, path in found.items():
        if name.endswith(".whl"):
            with zipfile.ZipFile(path) as wheel:
                wheel.extractall(target)
        elif name.startswith("pytorch"):
            unpack(path, target / "tests" / "torch", "test/test_cuda")
        else:
            unpack(path, target / "tests" / "cupy", "tests/cupy_tests/")
    (cupy,) = (path for name, path in found.items() if name.startswith("cupy"))
    if len(sys.argv) == 4:
        with tempfile.TemporaryDirectory(prefix="gantry-cupy-") as folder:
            unpack(cupy, pathlib.Path(folder), "")
            relink(pathlib.Path(folder), sys.argv[3], target / "relinked")
        (target / "relinked" / "VERSION").write_text(cupy.name.removeprefix("cupy-").removesuffix(".tar.gz") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
