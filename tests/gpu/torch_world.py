# SPDX-License-Identifier: Apache-2.0
"""PyTorch's environment with our libraries in the place of NVIDIA's, for the tests and measurements that want it.

The wheel's libraries name the folders of NVIDIA's wheels themselves (DT_RPATH), before LD_LIBRARY_PATH. So the environment
is made again of links, with our libraries in the place of NVIDIA's: what bind mounts do for a container. NVRTC, nvJitLink
and the like stay NVIDIA's: they compile, and touch no GPU.

GANTRY_TORCH_PYTHON   the interpreter of an environment that has PyTorch for CUDA 13, with NVIDIA's wheels beside it
"""
import os
import pathlib
import subprocess

import gpu
import harness

PYTHON = os.environ.get("GANTRY_TORCH_PYTHON")
# Of NVIDIA's wheels, what does its work on the CPU alone.
KEPT = ("libnvrtc", "libnvJitLink", "libnvvm")
# Of ours, what stands for NVIDIA's; of the fake driver one has the same name.
OURS = ("libcublasLt.so.13", "libcudart.so.13", "libcuda.so.1", "libnvidia-ml.so.1")


def site_packages():
    if not PYTHON:
        raise harness.Skip("GANTRY_TORCH_PYTHON names no interpreter with PyTorch")
    code = "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('torch').submodule_search_locations[0]))"
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise harness.Skip(f"{PYTHON} has no PyTorch: {done.stderr.strip()[-200:]}")
    if gpu.BACKEND == "cpu":
        raise harness.Skip("PyTorch wants a GPU")
    return pathlib.Path(done.stdout.strip())


def our_libraries():
    """{name: path}"""
    found = {}
    for name in OURS:
        path = harness.find_in_build(name, lambda path: os.path.exists(path) and "fakecuda" not in path)
        if not path:
            raise harness.Skip(f"the build has no {name}")
        for one in pathlib.Path(path).parent.iterdir():
            if ".so" in one.name and one.is_file():
                found.setdefault(one.name, one)
    return {name: path for name, path in found.items() if not name.startswith(KEPT)}


def link_all(source, target, but=()):
    target.mkdir(parents=True, exist_ok=True)
    for one in source.iterdir():
        if one.name not in but and not (target / one.name).exists():
            (target / one.name).symlink_to(one)


def farm(site, root):
    """PyTorch's environment of links, with our libraries. The folders that DT_RPATH goes through are real ones."""
    link_all(site, root, but=("torch", "nvidia"))
    link_all(site / "torch", root / "torch", but=("lib",))
    link_all(site / "torch" / "lib", root / "torch" / "lib")
    for wheel in (site / "nvidia").iterdir():
        if wheel.is_dir():
            link_all(wheel, root / "nvidia" / wheel.name, but=("lib",))
    libraries = root / "nvidia" / "cu13" / "lib"
    libraries.mkdir(parents=True, exist_ok=True)
    for name, path in our_libraries().items():
        (libraries / name).symlink_to(path)
    for path in site.glob("nvidia/*/lib/*.so*"):
        if path.name.startswith(KEPT):
            (libraries / path.name).symlink_to(path)
    return libraries


def vendor_libraries(site, folder):
    """All of NVIDIA's in one folder, for the worker."""
    folder.mkdir()
    for path in site.glob("nvidia/*/lib/*.so*"):
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    return str(folder)


def overlay(site, replaced, target):
    """The packages of @site that files of @replaced belong to, of links, with these in the place of their own."""
    for path in sorted(path for path in replaced.rglob("*") if path.is_file() and path.parent != replaced):
        inside = path.relative_to(replaced)
        for folder in reversed(inside.parents[:-1]):
            if (target / folder).is_symlink():
                (target / folder).unlink()
            if not (target / folder).exists():
                link_all(site / folder, target / folder)
        (target / inside).unlink(missing_ok=True)
        (target / inside).symlink_to(path)


def guest_python(root, folder):
    """An interpreter whose own site-packages are @root: some look there for libraries, and not where PYTHONPATH says."""
    settings = pathlib.Path(PYTHON).parent.parent / "pyvenv.cfg"
    libraries = sorted(settings.parent.glob("lib/python3.*"))
    # One that is no virtual environment's finds what PYTHONPATH says.
    if not settings.exists() or not libraries:
        return PYTHON
    (folder / "bin").mkdir(parents=True)
    (folder / "lib" / libraries[0].name).mkdir(parents=True)
    (folder / "lib" / libraries[0].name / "site-packages").symlink_to(root)
    (folder / "pyvenv.cfg").write_text(settings.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "bin" / "python").symlink_to(os.path.realpath(PYTHON))
    return str(folder / "bin" / "python")


def environment(root, libraries):
    # The launcher's environment is a virtual one: its own site-packages come behind the links.
    return {"PYTHONPATH": str(root), "LD_LIBRARY_PATH": str(libraries), "TRITON_LIBCUDA_PATH": str(libraries),
            "PYTHONDONTWRITEBYTECODE": "1", "GANTRY_TORCH_QUICK_END": "1"}


def native_environment():
    """The machine's own, without what concerns us."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("GANTRY") and key != "PYTHONPATH"}
    return dict(own, PYTHONDONTWRITEBYTECODE="1", GANTRY_TORCH_QUICK_END="1")


class Place:
    """Both environments below one folder: guests over our libraries, and the machine's own programs."""

    def __init__(self, folder):
        os.chmod(folder, 0o755)
        self.folder = pathlib.Path(folder)
        self.site = site_packages()
        self.root = self.folder / "site"
        self.libraries = farm(self.site, self.root)
        self.guest_env = environment(self.root, self.libraries)
        self.python = guest_python(self.root, self.folder / "guest")
        self.vendor = vendor_libraries(self.site, self.folder / "vendor")

    def world(self, tenants=None, count=1, agent=None, **options):
        """A gantryd whose workers load NVIDIA's libraries of the same wheels."""
        return gpu.world(tenants, count, device={"libraries": self.vendor}, agent=agent, **options)
