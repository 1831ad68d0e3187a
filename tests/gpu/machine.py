# SPDX-License-Identifier: Apache-2.0
"""What this machine has, asked of the vendor's libraries without taking a GPU into use.

NVML only: libcuda's cuInit() would make this process a client of every GPU, and be in the way of what the tests look
at (processes, memory in use). Structures and constants are those of NVML's documentation.
"""
import ctypes
import os
import platform


class Memory(ctypes.Structure):
    """nvmlMemory_t"""
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Process(ctypes.Structure):
    """nvmlProcessInfo_t, of nvmlDeviceGetComputeRunningProcesses_v3"""
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint)]


class Nvml:
    """The few calls that we need. OSError where there is no NVML, RuntimeError where it refuses."""

    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.call("nvmlInit_v2")

    def call(self, name, *args):
        status = getattr(self.library, name)(*args)
        if status != 0:
            raise RuntimeError(f"{name}: NVML error {status}")

    def text(self, name, *args):
        buffer = ctypes.create_string_buffer(128)
        self.call(name, *args, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode(errors="replace")

    def count(self):
        number = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(number))
        return number.value

    def device(self, index):
        handle = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def memory(self, index):
        memory = Memory()
        self.call("nvmlDeviceGetMemoryInfo", self.device(index), ctypes.byref(memory))
        return memory

    def processes(self, index):
        """Pids of compute processes; None where this machine does not tell (containers, virtual machines)."""
        rows = (Process * 256)()
        number = ctypes.c_uint(len(rows))
        try:
            self.call("nvmlDeviceGetComputeRunningProcesses_v3", self.device(index), ctypes.byref(number), rows)
        except (RuntimeError, AttributeError):
            return None
        return sorted(row.pid for row in rows[:number.value])


def nvml():
    try:
        return Nvml()
    except (OSError, RuntimeError):
        return None


def find_gpus():
    """(driver version or None, [{"name", "uuid", "mem_bytes"}])"""
    library = nvml()
    if not library:
        return None, []
    found = []
    for index in range(library.count()):
        found.append({"name": library.text("nvmlDeviceGetName", library.device(index)),
                      "uuid": library.text("nvmlDeviceGetUUID", library.device(index)),
                      "mem_bytes": library.memory(index).total})
    return library.text("nvmlSystemGetDriverVersion"), found


def cuda_runtime():
    """The newest CUDA that the driver serves, "13.0"; asked without cuInit()."""
    try:
        version = ctypes.c_int()
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) != 0:
            return None
        return f"{version.value // 1000}.{version.value % 1000 // 10}"
    except OSError:
        return None


def choose(asked):
    """The backend, and what is known of the GPUs."""
    driver, gpus = find_gpus()
    if asked == "auto":
        asked = "cuda" if gpus or has_driver() else "cpu"
    return asked, {"driver": driver, "cuda": cuda_runtime(), "gpus": gpus}


def has_driver():
    """A driver without NVML still counts."""
    return os.path.exists("/dev/nvidiactl") and cuda_runtime() is not None


def cpu_model():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
        for line in info:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def distribution():
    try:
        with open("/etc/os-release", encoding="utf-8") as release:
            fields = dict(line.rstrip("\n").split("=", 1) for line in release if "=" in line)
        return fields.get("PRETTY_NAME", "").strip('"')
    except OSError:
        return "unknown"


def host():
    return {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "distribution": distribution()}


def headline(what):
    gpus = ", ".join(gpu["name"] for gpu in what["gpus"]) or "no GPU"
    gantry = what["gantry"]
    return (f"{gpus}; driver {what['driver']}, CUDA {what['cuda']}; {what['cpu']}, {what['cores']} cores, "
            f"Linux {what['kernel']}, {what['distribution']}; commit {gantry['commit']} of {gantry['date']}; "
            f"backend {what['backend']}")
