"""GPU memory from libcuda, in objects like those of torch and CuPy. Under gdremu, the GPU is emulated."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import traceback
import unittest
from ctypes import c_int64, c_size_t, c_uint64, c_void_p
from typing import Callable

import gdrcopy
from gdrcopy._bench import allocate
from gdrcopy._device import _DLTensor, _Versioned  # test_layout_of_dlpack checks these against NumPy

try:
    import numpy
except ImportError:
    numpy = None
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

needs_numpy = unittest.skipIf(numpy is None, "NumPy is not installed")
# Memory has no views if it is mapped for aligned accesses only.
HAS_VIEWS = '"platform":"device"' not in os.environ.get("GDREMU_CONFIG", "")
needs_views = unittest.skipIf(not HAS_VIEWS, "memory that is mapped for aligned accesses has no views")

cuda = ctypes.CDLL("libcuda.so.1")

SIZE = 200_000  # three pages of 64 KiB, and a part of a fourth


@functools.lru_cache(maxsize=None)
def pattern(size: int) -> bytes:
    return bytes(index * 7 % 251 for index in range(size))


def check(result: int) -> None:
    if result != 0:
        raise RuntimeError(f"CUDA error {result}")


class Allocation:
    """Memory on the GPU, by its address."""

    def __init__(self, size: int) -> None:
        self.address, self.size = allocate(size), size

    def fill(self, data: bytes) -> None:
        check(cuda.cuMemcpyHtoD_v2(c_uint64(self.address), data, c_size_t(len(data))))

    def contents(self) -> bytes:
        data = ctypes.create_string_buffer(self.size)
        check(cuda.cuMemcpyDtoH_v2(data, c_uint64(self.address), c_size_t(self.size)))
        return data.raw

    def free(self) -> None:
        check(cuda.cuMemFree_v2(c_uint64(self.address)))


class OfOneAllocation(unittest.TestCase):
    def setUp(self) -> None:
        self.allocation = Allocation(SIZE)
        self.addCleanup(self.allocation.free)
        self.allocation.fill(pattern(SIZE))
        self.mapping = self.new()
        self.addCleanup(self.mapping.close)

    def new(self, size: int = SIZE) -> gdrcopy.Mapping:
        return gdrcopy.Mapping((self.allocation.address, size))


def status_of_child(function: Callable[[], object]) -> int:
    """Returns the exit status of a child that runs the function: 0 if it returns, 1 after an exception, the status of sys.exit,
    or minus the number of a signal."""
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        except SystemExit as error:
            os._exit(error.code)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_script(script: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Runs a script, after imports of gdrcopy and gpu, under a gdremu of its own, because the script may leave pins,
    which the tests' gdremu would report. Removes gdremu's messages from the result."""
    command = [os.environ["GDREMU"], *options, "--", sys.executable, "-B", "-c", f"import gdrcopy, gpu\n{script}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    result.stderr = "".join(line for line in result.stderr.splitlines(True) if not line.startswith("gdremu: "))
    return result


class Integer:
    """An integer that is not an int, like those of NumPy."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class CudaArray:
    """The interface of CuPy, Numba and torch arrays."""

    def __init__(self, allocation: Allocation, offset: int = 0, shape=None, typestr="|u1", strides=None, read_only=False):
        self.__cuda_array_interface__ = {
            "data": (allocation.address + offset, read_only),
            "shape": (allocation.size - offset,) if shape is None else shape,
            "typestr": typestr,
            "strides": strides,
            "version": 3,
        }


_DESTRUCTOR = ctypes.CFUNCTYPE(None, c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes, _new_capsule.restype = [c_void_p, ctypes.c_char_p, c_void_p], ctypes.py_object


class DLPackArray:
    """The interface of arrays before DLPack 1.0. Counts the capsules that were deleted."""

    def __init__(self, allocation, shape, bits=8, strides=None, byte_offset=0, device_type=2, read_only=False, code=0, major=1):
        self.device_type = device_type
        self.deleted = 0
        self.shape = (c_int64 * len(shape))(*shape)
        self.strides = (c_int64 * len(strides))(*strides) if strides else None
        kind = (code, bits, 1)
        tensor = _DLTensor(allocation.address, device_type, 0, len(shape), *kind, self.shape, self.strides, byte_offset)
        self.managed = _Versioned(major, 0, None, None, 1 if read_only else 0, tensor)

        @_DESTRUCTOR
        def destroy(_capsule: int) -> None:
            self.deleted += 1

        self.destroy = destroy

    def capsule(self, name: bytes, structure: ctypes.Structure):
        return _new_capsule(ctypes.addressof(structure), name, ctypes.cast(self.destroy, c_void_p))

    def __dlpack_device__(self):
        return self.device_type, 0

    def __dlpack__(self, *, stream=None):
        assert stream is None  # JAX would use another value, even -1, as the address of a stream
        return self.capsule(b"dltensor", self.managed.tensor)


class VersionedDLPackArray(DLPackArray):
    """The interface of arrays that export by DLPack 1.0 only."""

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        assert stream is None
        if max_version is None or max_version < (1, 0):
            raise BufferError("pass max_version=(1, 0)")
        return self.capsule(b"dltensor_versioned", self.managed)


class TorchTensor(DLPackArray):
    """The interface of torch. Some types, and tensors that require grad, have no __cuda_array_interface__. DLPack works only
    for tensors of the current GPU, and not for conjugated views."""

    def __init__(self, allocation, shape, typestr="|u1", bits=8, other_gpu=False, requires_grad=False, conj=False, neg=False):
        super().__init__(allocation, shape, bits)
        self.interface = CudaArray(allocation, 0, shape, typestr).__cuda_array_interface__
        self.typestr, self.other_gpu, self.requires_grad = typestr, other_gpu, requires_grad
        self.is_conj, self.is_neg = lambda: conj, lambda: neg

    @property
    def __cuda_array_interface__(self):
        if self.requires_grad:
            raise RuntimeError("requires grad: use detach()")
        if self.typestr == "float8":
            raise KeyError(self.typestr)
        return self.interface

    def __dlpack__(self, *, stream=None, max_version=None):
        if self.other_gpu or self.is_conj():
            raise BufferError("a tensor of another GPU, or conjugated")
        if self.requires_grad:
            raise BufferError("requires grad: use tensor.detach()")
        return super().__dlpack__(stream=stream)
