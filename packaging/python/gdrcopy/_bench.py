"""python -m gdrcopy bench: prints how long the calls of a Mapping take."""

from __future__ import annotations

import ctypes
import errno
import timeit
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Callable, Dict

from ._error import Error
from ._mapping import Mapping

SIZE = 65536


def allocate(size: int) -> int:
    """Allocates memory on the first GPU, and returns its address. The GPU's context is then current in this thread."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Error(errno.ELIBACC, f"{error}: install the NVIDIA GPU driver, or run under gdremu") from None
    device, context, address = c_int(), c_void_p(), c_uint64()
    for function, *arguments in (
        ("cuInit", 0),
        ("cuDeviceGet", byref(device), 0),
        ("cuDevicePrimaryCtxRetain", byref(context), device),
        ("cuCtxSetCurrent", context),
        ("cuMemAlloc_v2", byref(address), c_size_t(size)),
    ):
        result = cuda[function](*arguments)
        if result != 0:
            raise Error(errno.EIO, f"{function} failed with CUDA error {result}: make a GPU visible to this process")
    return address.value


def _calls(mapping: Mapping) -> Dict[str, Callable[[], object]]:
    word = mapping.word(0, 8)
    small, page, buffer = bytes(8), bytes(4096), bytearray(4096)
    views: Dict[str, Callable[[], object]] = {}
    try:
        words = memoryview(mapping).cast("Q")
    except BufferError:
        pass  # memory has no views if it is mapped for aligned accesses only
    else:

        def store() -> None:
            words[0] = 1

        views["memoryview: store of 8 bytes"] = store
        views["memoryview: load of 8 bytes"] = lambda: words[0]
    return {
        **views,
        "Word.store of 8 bytes": lambda: word.store(1),
        "Word.load of 8 bytes": word.load,
        "write of 8 bytes": lambda: mapping.write(small),
        "read of 8 bytes": lambda: mapping.read(0, 8),
        "write of 4096 bytes": lambda: mapping.write(page),
        "read_into of 4096 bytes": lambda: mapping.read_into(buffer),
        "flush": mapping.flush,
        "Mapping of 64 KiB, and close": lambda: Mapping((mapping.address, SIZE)).close(),
    }


def main() -> None:
    mapping = Mapping((allocate(SIZE), SIZE))
    print("ns per call, the least of 20 rounds")
    for name, call in _calls(mapping).items():
        timer = timeit.Timer(call)
        number = max(1, int(0.002 / timer.timeit(1)))
        print(f"{min(timer.repeat(20, number)) / number * 1e9:9.0f}  {name}")
