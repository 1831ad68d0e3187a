#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A guest that asks our libnvidia-ml.so.1: nvml_guest.py NVML [LIBCUDA]. Prints "ok PART" for each part."""
import ctypes
import faulthandler
import os
import signal
import sys
import threading

SUCCESS, UNINITIALIZED, INVALID, NOT_SUPPORTED, NOT_FOUND, TOO_SMALL, NO_DRIVER = 0, 1, 2, 3, 6, 7, 9


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Pci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16)] + [(name, ctypes.c_uint) for name in ("domain", "bus", "device", "id", "sub")] + [
        ("text", ctypes.c_char * 32)]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


class Rates(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


def must(got, wanted, what):
    if got != wanted:
        print(f"FAILED {what}: {got!r}, not {wanted!r}")
        sys.exit(1)


class Nvml:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def __call__(self, name, *args):
        return getattr(self.library, "nvml" + name)(*args)

    def text(self, name, *args):
        room = ctypes.create_string_buffer(96)
        must(self(name, *args, room, 96), SUCCESS, name)
        return room.value.decode()


def before_and_after(nvml):
    count = ctypes.c_uint(77)
    must(nvml("DeviceGetCount_v2", ctypes.byref(count)), UNINITIALIZED, "count before the beginning")
    must(nvml("Shutdown"), UNINITIALIZED, "end before the beginning")
    must(count.value, 77, "what was there stays")
    must(nvml("Init_v2"), SUCCESS, "beginning")
    must(nvml("InitWithFlags", 0), SUCCESS, "a second one")
    must(nvml("Shutdown"), SUCCESS, "one end")
    print("ok beginning")


def forks(nvml):
    """Children look, though another thread of their parent was about it when they came."""
    done = threading.Event()

    def look():
        while not done.is_set():
            must(nvml("Init_v2"), SUCCESS, "a look")
            must(nvml("Shutdown"), SUCCESS, "its end")

    must(nvml("Shutdown"), SUCCESS, "the end: else nobody looks")
    other = threading.Thread(target=look, daemon=True)
    other.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # one that hangs is ended
            ended = nvml("Init_v2")
            os._exit(ended if ended == SUCCESS else 1)
        must(os.waitpid(child, 0)[1], 0, "a child's look")
    done.set()
    other.join()
    must(nvml("Init_v2"), SUCCESS, "beginning again")
    print("ok forks")


def devices(nvml):
    count, first = ctypes.c_uint(), ctypes.c_void_p()
    must(nvml("DeviceGetCount_v2", ctypes.byref(count)), SUCCESS, "count")
    must(count.value >= 1, True, "there are devices")
    must(nvml("DeviceGetHandleByIndex_v2", count.value, ctypes.byref(first)), INVALID, "one too many")
    must(nvml("DeviceGetHandleByIndex_v2", 0, ctypes.byref(first)), SUCCESS, "the first")
    name, uuid = nvml.text("DeviceGetName", first), nvml.text("DeviceGetUUID", first)
    must(len(name) > 0 and len(uuid) == 40 and uuid.startswith("GPU-"), True, f"{name} {uuid}")
    other, pci = ctypes.c_void_p(), Pci()
    must(nvml("DeviceGetHandleByUUID", uuid.encode(), ctypes.byref(other)), SUCCESS, "by its number")
    must(other.value, first.value, "by its number: the same")
    must(nvml("DeviceGetPciInfo_v3", first, ctypes.byref(pci)), SUCCESS, "place")
    must(nvml("DeviceGetHandleByPciBusId_v2", pci.text, ctypes.byref(other)), SUCCESS, "by its place")
    must(other.value, first.value, "by its place: the same")
    must(nvml("DeviceGetHandleByPciBusId_v2", b"0000:7f:00.0", ctypes.byref(other)), NOT_FOUND, "a place where none is")
    major, minor, version = ctypes.c_int(), ctypes.c_int(-1), ctypes.c_int()
    must(nvml("DeviceGetCudaComputeCapability", first, ctypes.byref(major), ctypes.byref(minor)), SUCCESS, "capability")
    must(major.value >= 5 and minor.value >= 0, True, f"capability {major.value}.{minor.value}")
    must(nvml("SystemGetCudaDriverVersion_v2", ctypes.byref(version)), SUCCESS, "version")
    must(version.value, 13000, "version")
    nvml.text("SystemGetDriverVersion")
    print("ok devices")
    return first


def wrong(nvml, device):
    room, number = ctypes.create_string_buffer(96), ctypes.c_uint()
    must(nvml("DeviceGetName", device, room, 2), TOO_SMALL, "no room")
    must(nvml("DeviceGetName", device, None, 96), INVALID, "nowhere")
    for stranger in (None, ctypes.c_void_p(device.value + 1), ctypes.c_void_p(0x1234)):
        must(nvml("DeviceGetName", stranger, room, 96), INVALID, "no device")
    must(nvml("DeviceGetMemoryInfo", device, None), INVALID, "no place for an answer")
    must(nvml("DeviceGetTemperature", device, 0, ctypes.byref(number)), NOT_SUPPORTED, "of the board")
    nvml.library.nvmlErrorString.restype = ctypes.c_char_p
    must(nvml("ErrorString", NOT_SUPPORTED), b"Not Supported", "words")
    print("ok wrong calls")


def use(nvml, device, cuda):
    """What the process has is seen once it works with CUDA, and not before."""
    memory, count, infos = Memory(), ctypes.c_uint(4), (Process * 4)()
    must(nvml("DeviceGetMemoryInfo", device, ctypes.byref(memory)), SUCCESS, "memory")
    must(memory.total > 0 and memory.used == 0 and memory.free == memory.total, True, "nothing is used yet")
    must(nvml("DeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), infos), SUCCESS, "processes")
    must(count.value, 0, "none works yet")
    child = os.fork()
    if child == 0:
        os._exit(0 if cuda.cuInit(0) == 0 else 1)
    must(os.waitpid(child, 0)[1], 0, "a child may begin with CUDA after its parent has counted devices")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    must(cuda.cuInit(0), 0, "cuInit")
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0, "context")
    must(cuda.cuCtxSetCurrent(context), 0, "context")
    must(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8 << 20)), 0, "allocation")
    must(cuda.cuMemsetD8_v2(address, 1, ctypes.c_size_t(8 << 20)), 0, "use of it")
    must(cuda.cuCtxSynchronize(), 0, "its end")
    must(nvml("DeviceGetMemoryInfo", device, ctypes.byref(memory)), SUCCESS, "memory")
    must(memory.used >= 8 << 20 and memory.used + memory.free == memory.total, True, f"{memory.used} bytes are used")
    count.value = 0
    must(nvml("DeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), None), TOO_SMALL, "how many processes")
    count.value = 4
    must(nvml("DeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), infos), SUCCESS, "processes")
    must((count.value, infos[0].pid, infos[0].used), (1, os.getpid(), memory.used), "it is this one")
    print("ok use")


def work(nvml, cuda):
    """Each device is asked in turn, as tools do, and tells of the time since it was asked itself."""
    count, address, rates = ctypes.c_uint(), ctypes.c_uint64(), Rates()
    must(nvml("DeviceGetCount_v2", ctypes.byref(count)), SUCCESS, "count")
    handles = [ctypes.c_void_p() for _ in range(count.value)]
    for index, handle in enumerate(handles):
        must(nvml("DeviceGetHandleByIndex_v2", index, ctypes.byref(handle)), SUCCESS, "a device")
        must(nvml("DeviceGetUtilizationRates", handle, ctypes.byref(rates)), SUCCESS, "utilisation")
    must(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20)), 0, "allocation")
    for value in range(20):
        must(cuda.cuMemsetD8_v2(address, value, ctypes.c_size_t(64 << 20)), 0, "work")
        must(cuda.cuCtxSynchronize(), 0, "its end")
    for handle in handles:
        must(nvml("DeviceGetUtilizationRates", handle, ctypes.byref(rates)), SUCCESS, "utilisation")
        must(0 < rates.gpu <= 100, True, f"{rates.gpu} %")
    print("ok work")


def main():
    faulthandler.enable()  # says where, of parents and children
    nvml = Nvml(sys.argv[1])
    if len(sys.argv) < 3:
        must(nvml("Init_v2"), NO_DRIVER, "without an agent")
        print("ok no driver")
        return
    before_and_after(nvml)
    forks(nvml)
    device = devices(nvml)
    wrong(nvml, device)
    cuda = ctypes.CDLL(sys.argv[2])
    use(nvml, device, cuda)
    work(nvml, cuda)
    must(nvml("Shutdown"), SUCCESS, "the end")
    print("ok end")


if __name__ == "__main__":
    main()
