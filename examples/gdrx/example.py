"""GPU memory and a table for the examples. Programs with torch or CuPy pass their arrays to gdrcopy.Mapping."""

import ctypes
import statistics
import time


class DeviceMemory:
    """GPU memory, as (address, size) for gdrcopy.Mapping."""

    def __init__(self, size):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, address = ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.address, self.size = address.value, size

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: CUDA error {result}")

    def set(self, offset, data):
        """As a GPU kernel would write it. `data` is a NumPy array."""
        pointer = ctypes.c_void_p(data.ctypes.data)
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address + offset), pointer, ctypes.c_size_t(data.nbytes))
        self.call("cuCtxSynchronize")


def print_time(what, items, call, prepare=lambda: None):
    """Prints the median of many rounds, by item."""
    times = []
    for _ in range(1000):
        prepare()
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    print(f"{what:28} {statistics.median(times) / items:8.1f} ns")
