"""Where memory is: of objects on the GPU, and of buffers on the host."""

from __future__ import annotations

import contextlib
import ctypes
import math
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_ssize_t, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, Dict, Iterator, NamedTuple, Optional, Protocol, Sequence, Tuple, Union


class SupportsCudaArrayInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]: ...


class SupportsDLPack(Protocol):
    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

    def __dlpack_device__(self) -> Tuple[int, int]: ...


DeviceObject = Union[SupportsDLPack, SupportsCudaArrayInterface, Tuple[int, int]]


class DeviceMemory(NamedTuple):
    address: int
    size: int
    writable: bool
    owner: object  # keeps the memory allocated


def device_memory(obj: DeviceObject) -> DeviceMemory:
    """The GPU memory of an object, which must be contiguous, or of an address and a size in bytes."""
    if isinstance(obj, tuple):
        address, size = obj
        memory = DeviceMemory(address, size, True, None)
    elif hasattr(obj, "__dlpack_device__"):
        memory = _from_dlpack(obj)
    elif hasattr(obj, "__cuda_array_interface__"):
        memory = _from_cuda_array_interface(obj)
    else:
        raise TypeError(
            f"pass an object with __dlpack__ or __cuda_array_interface__, or (address, size), not {type(obj).__name__}"
        )
    if memory.address <= 0 or memory.size <= 0:
        raise ValueError(f"pass memory of at least 1 byte, not {memory.size} at address {memory.address:#x}")
    return memory


def _from_cuda_array_interface(obj: Any) -> DeviceMemory:
    interface = obj.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise ValueError("pass an object without a mask")
    item_size = int(interface["typestr"][2:])
    strides = interface.get("strides")
    _check_contiguous(interface["shape"], strides, item_size)
    address, read_only = interface["data"]
    return DeviceMemory(address or 0, math.prod(interface["shape"]) * item_size, not read_only, obj)


class _DLTensor(ctypes.Structure):
    """DLTensor, by which a DLManagedTensor begins."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


_DL_CUDA = 2

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.py_object, c_char_p]
_capsule_pointer.restype = POINTER(_DLTensor)


def _from_dlpack(obj: Any) -> DeviceMemory:
    device = int(obj.__dlpack_device__()[0])
    if device != _DL_CUDA:
        raise ValueError(f"pass an object in CUDA device memory (DLPack device type 2), not of type {device}")
    # -1: no stream needs to wait, as no GPU kernel of ours uses the memory. The capsule, whose name stays as it is,
    # releases the tensor when it is deleted.
    capsule = obj.__dlpack__(stream=-1)
    tensor = _capsule_pointer(capsule, b"dltensor").contents
    shape = tensor.shape[: tensor.ndim]
    strides = tensor.strides[: tensor.ndim] if tensor.strides else None
    _check_contiguous(shape, strides, 1)
    size = (math.prod(shape) * tensor.bits * tensor.lanes + 7) // 8
    return DeviceMemory((tensor.data or 0) + tensor.byte_offset, size, True, capsule)


def _check_contiguous(shape: Sequence[int], strides: Optional[Sequence[int]], item_size: int) -> None:
    expected = item_size
    for length, stride in reversed(list(zip(shape, strides or ()))):
        if length != 1 and stride != expected:
            raise ValueError("pass a contiguous object, or a contiguous copy of it")
        expected *= length


class _PyBuffer(ctypes.Structure):
    """Py_buffer."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_void_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, POINTER(_PyBuffer), c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [POINTER(_PyBuffer)]
_release_buffer.restype = None


@contextlib.contextmanager
def host_buffer(obj: Any, *, writable: bool) -> Iterator[Tuple[int, int]]:
    """Address and size of a contiguous buffer, which stays there until the context ends."""
    # Not by memoryview: ctypes takes writable ones only, and NumPy's complex and structured types cannot be cast.
    view = _PyBuffer()
    _get_buffer(obj, view, 1 if writable else 0)  # PyBUF_WRITABLE, PyBUF_SIMPLE
    try:
        yield view.buf or 0, view.len
    finally:
        _release_buffer(view)
