"""GPU memory from libcuda, in objects as torch and CuPy have them. Under gdremu, an emulated GPU's."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import traceback
import unittest
from ctypes import (
    CFUNCTYPE,
    POINTER,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_ulong,
    c_void_p,
)
from typing import Callable, Iterator, List

import gdrcopy

try:
    import numpy
except ImportError:
    numpy = None

needs_numpy = unittest.skipIf(numpy is None, "NumPy is not installed")

cuda = ctypes.CDLL("libcuda.so.1")

SIZE = 200_000  # more than three pages of 64 KiB, and part of a fourth


def pattern(size: int) -> bytes:
    return bytes(index * 7 % 251 for index in range(size))


def check(result: int) -> None:
    if result != 0:
        raise RuntimeError(f"CUDA error {result}")


def initialize() -> None:
    device, context = c_int(), c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))


def has_views() -> bool:
    """Not where the memory is mapped for aligned accesses only."""
    return '"platform":"device"' not in os.environ.get("GDREMU_CONFIG", "")


# The functions that the package calls, with a gdr_mh_t as the number that it
# contains.
_PROTOTYPES = {
    "gdr_pin_buffer_v2": CFUNCTYPE(c_int, c_void_p, c_ulong, c_size_t, c_uint32, POINTER(c_ulong)),
    "gdr_map": CFUNCTYPE(c_int, c_void_p, c_ulong, POINTER(c_void_p), c_size_t),
    "gdr_unpin_buffer": CFUNCTYPE(c_int, c_void_p, c_ulong),
    "gdr_copy_from_mapping": CFUNCTYPE(c_int, c_ulong, c_void_p, c_void_p, c_size_t),
    "gdrx_attach_mapping": CFUNCTYPE(c_int, c_void_p, c_int, c_uint64, c_void_p, c_size_t),
    "gdrx_read_many": CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t),
    "gdrx_write_many": CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t),
}


_replacements: dict = {}


def _bind() -> None:
    def address(name: str) -> int:
        if name in _replacements:
            return ctypes.cast(_replacements[name], c_void_p).value
        return gdrcopy._library.address(name)

    gdrcopy._native.bind(address)


@contextlib.contextmanager
def replaced(name: str, make: Callable[[Callable[..., int]], Callable[..., int]]) -> Iterator[None]:
    """Has the package call make(function) in place of the library's function."""
    prototype = _PROTOTYPES[name]
    _replacements[name] = prototype(make(prototype(gdrcopy._library.address(name))))
    _bind()
    try:
        yield
    finally:
        del _replacements[name]
        _bind()


@contextlib.contextmanager
def unpins() -> Iterator[List[int]]:
    """The results of all unpins in the block."""
    results: List[int] = []

    def make(unpin: Callable[..., int]) -> Callable[..., int]:
        def recorded(*arguments: object) -> int:
            results.append(unpin(*arguments))
            return results[-1]

        return recorded

    with replaced("gdr_unpin_buffer", make):
        yield results


class Allocation:
    """Memory on the GPU, by its address."""

    def __init__(self, size: int) -> None:
        address = c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(address), c_size_t(size)))
        self.address, self.size = address.value, size

    def fill(self, data: bytes) -> None:
        check(cuda.cuMemcpyHtoD_v2(c_uint64(self.address), data, c_size_t(len(data))))

    def contents(self) -> bytes:
        data = ctypes.create_string_buffer(self.size)
        check(cuda.cuMemcpyDtoH_v2(data, c_uint64(self.address), c_size_t(self.size)))
        return data.raw

    def free(self) -> None:
        check(cuda.cuMemFree_v2(c_uint64(self.address)))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp: pinned memory of device 0."""

    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", c_int * 2),
        ("metadata", c_void_p),
        ("compression", c_uint8),
        ("gpuDirectRDMACapable", c_uint8),
        ("others", c_uint8 * 6),
    ]


def create(size: int, rdma: bool, calls: int = 1) -> int:
    """The address of adjacent allocations from cuMemCreate, which are never freed, with or without the flag for GPUDirect
    RDMA."""
    device = (c_int * 2)(1, 0)
    properties = _Properties(type=1, location=device, gpuDirectRDMACapable=rdma)
    granularity, handle, address = c_size_t(), c_uint64(), c_uint64()
    check(cuda.cuMemGetAllocationGranularity(ctypes.byref(granularity), ctypes.byref(properties), 0))
    each = -(-size // granularity.value) * granularity.value
    whole = c_size_t(each * calls)
    check(cuda.cuMemAddressReserve(ctypes.byref(address), whole, c_size_t(0), c_uint64(0), c_uint64(0)))
    for offset in range(0, each * calls, each):
        check(cuda.cuMemCreate(ctypes.byref(handle), c_size_t(each), ctypes.byref(properties), c_uint64(0)))
        check(cuda.cuMemMap(c_uint64(address.value + offset), c_size_t(each), c_size_t(0), handle, c_uint64(0)))
    check(cuda.cuMemSetAccess(address, whole, ctypes.byref((c_int * 3)(*device, 3)), c_size_t(1)))
    return address.value


class OfOneAllocation(unittest.TestCase):
    def setUp(self) -> None:
        self.allocation = Allocation(SIZE)
        self.addCleanup(self.allocation.free)
        self.allocation.fill(pattern(SIZE))
        self.mapping = gdrcopy.Mapping((self.allocation.address, SIZE))
        self.addCleanup(self.mapping.close)


def many_reads(mapping: gdrcopy.Mapping) -> List[Callable[[], object]]:
    """Calls that make two reads each."""
    of_arrays = [lambda: mapping.gather([0, 8], "u4")] if numpy else []
    return [lambda: mapping.read_many([(0, 4), (8, 4)]), *of_arrays]


def many_writes(mapping: gdrcopy.Mapping) -> List[Callable[[], object]]:
    of_arrays = [lambda: mapping.scatter([0, 8], numpy.zeros(2, "u4"))] if numpy else []
    return [lambda: mapping.write_many([(0, b"abcd"), (8, b"efgh")]), *of_arrays]


def status_of_child(function: Callable[[], object]) -> int:
    """The exit status of a child that runs the function: 0 if it returns, 1 after an assertion, minus a signal's number."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            function()
            status = 0
        except SystemExit as error:
            status = error.code
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_script(script: str) -> "subprocess.CompletedProcess[str]":
    """Runs it in a gdremu of its own, as it may end with pins."""
    command = [os.environ["GDREMU"], "--", sys.executable, "-B", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Integer:
    """An integer that is no int, as NumPy's are."""

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


class _Tensor(ctypes.Structure):
    """DLTensor, by which a DLManagedTensor begins."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("byte_offset", c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("version", c_uint32 * 2),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


_DESTRUCTOR = ctypes.CFUNCTYPE(None, c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes, _new_capsule.restype = [c_void_p, c_char_p, c_void_p], ctypes.py_object


class DLPackArray:
    """The interface of arrays before DLPack 1.0. Counts the capsules that were deleted."""

    def __init__(
        self, allocation: Allocation, shape, bits=8, strides=None, byte_offset=0, device_type=2, read_only=False, code=0
    ):
        self.device_type = device_type
        self.deleted = 0
        self.shape = (c_int64 * len(shape))(*shape)
        self.strides = (c_int64 * len(strides))(*strides) if strides else None
        tensor = _Tensor(
            data=allocation.address,
            device_type=device_type,
            ndim=len(shape),
            code=code,
            bits=bits,
            lanes=1,
            shape=ctypes.addressof(self.shape),
            strides=ctypes.addressof(self.strides) if strides else None,
            byte_offset=byte_offset,
        )
        self.managed = _Versioned(version=(1, 0), flags=1 if read_only else 0, tensor=tensor)

        @_DESTRUCTOR
        def destroy(_capsule: int) -> None:
            self.deleted += 1

        self.destroy = destroy

    def capsule(self, name: bytes, structure: ctypes.Structure):
        return _new_capsule(ctypes.addressof(structure), name, ctypes.cast(self.destroy, c_void_p))

    def __dlpack_device__(self):
        return self.device_type, 0

    def __dlpack__(self, *, stream=None):
        assert stream is None  # JAX takes -1 for a stream's address
        return self.capsule(b"dltensor", self.managed.tensor)


class VersionedDLPackArray(DLPackArray):
    """The interface of arrays that export by DLPack 1.0 only."""

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        assert stream is None
        if max_version is None or max_version < (1, 0):
            raise BufferError("pass max_version=(1, 0)")
        return self.capsule(b"dltensor_versioned", self.managed)


class TorchTensor(DLPackArray):
    """The interface of torch, without __cuda_array_interface__ for some types and for tensors that require grad, and with
    DLPack for tensors of the current GPU only and not for conjugated views."""

    def __init__(
        self, allocation, shape, typestr="|u1", bits=8, other_gpu=False, requires_grad=False, conj=False, neg=False
    ):
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
