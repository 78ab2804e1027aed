"""GPU memory from libcuda, in objects as torch and CuPy have them. Under gdremu, an emulated GPU's."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p

cuda = ctypes.CDLL("libcuda.so.1")


def check(result: int) -> None:
    if result != 0:
        raise RuntimeError(f"CUDA error {result}")


def initialize() -> None:
    device, context = c_int(), c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))


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


class CudaArray:
    """What CuPy, Numba and torch arrays have."""

    def __init__(self, allocation: Allocation, offset: int = 0, shape=None, typestr="|u1", strides=None, read_only=False):
        self.__cuda_array_interface__ = {
            "data": (allocation.address + offset, read_only),
            "shape": (allocation.size - offset,) if shape is None else shape,
            "typestr": typestr,
            "strides": strides,
            "version": 3,
        }


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

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
        ("context", c_void_p),
        ("deleter", c_void_p),
    ]


_DESTRUCTOR = ctypes.CFUNCTYPE(None, c_void_p)


class DLPackArray:
    """What torch, CuPy and JAX arrays have. Counts the capsules that were deleted."""

    def __init__(self, allocation: Allocation, shape, bits=8, strides=None, byte_offset=0, device_type=2):
        self.device_type = device_type
        self.deleted = 0
        self.shape = (c_int64 * len(shape))(*shape)
        self.strides = (c_int64 * len(strides))(*strides) if strides else None
        self.managed = _Managed(
            data=allocation.address,
            device_type=device_type,
            ndim=len(shape),
            bits=bits,
            lanes=1,
            shape=ctypes.addressof(self.shape),
            strides=ctypes.addressof(self.strides) if strides else None,
            byte_offset=byte_offset,
        )

        @_DESTRUCTOR
        def destroy(_capsule: int) -> None:
            self.deleted += 1

        self.destroy = destroy

    def __dlpack_device__(self):
        return self.device_type, 0

    def __dlpack__(self, *, stream=None):
        assert stream == -1
        new = ctypes.pythonapi.PyCapsule_New
        new.argtypes, new.restype = [c_void_p, c_char_p, c_void_p], ctypes.py_object
        return new(ctypes.addressof(self.managed), b"dltensor", ctypes.cast(self.destroy, c_void_p))
