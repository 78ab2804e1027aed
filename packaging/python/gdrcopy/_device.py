"""Finds the GPU memory of an object, or checks memory that is given by its address."""

from __future__ import annotations

import ctypes
import math
import operator
import re
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, Mapping, NamedTuple, Optional, Protocol, Sequence, SupportsIndex, Tuple, Union


class SupportsDLPack(Protocol):
    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> Tuple[int, int]: ...


class SupportsCudaArrayInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]: ...


DeviceObject = Union[SupportsDLPack, SupportsCudaArrayInterface, Tuple[SupportsIndex, SupportsIndex]]


class DeviceMemory(NamedTuple):
    address: int
    size: int
    writable: bool
    owner: object  # keeps the memory allocated
    typestr: Optional[str]  # type of the items, as in __array_interface__; None if NumPy has no such type
    shape: Tuple[int, ...]


def device_memory(obj: DeviceObject) -> DeviceMemory:
    """Returns the GPU memory of an object, which must be contiguous, or of an address and a size in bytes."""
    if isinstance(obj, tuple):
        if len(obj) != 2:
            raise ValueError(f"pass (address, size), not a tuple of {len(obj)}")
        address, size = map(operator.index, obj)
        memory = DeviceMemory(address, size, True, None, "|u1", (size,))
    else:
        memory = _of_object(obj)
    if memory.address <= 0 or memory.size <= 0 or memory.address + memory.size > 1 << 64:
        raise ValueError(
            f"pass memory of at least 1 byte below address 2**64, not {memory.size} at address {memory.address:#x}"
        )
    return memory


def _of_object(obj: Any) -> DeviceMemory:
    # torch has lazy views, which conjugate or negate when they are read.
    if any(getattr(obj, name, bool)() for name in ("is_conj", "is_neg")):
        raise ValueError("pass a tensor after resolve_conj() and resolve_neg(): the memory of a view has other values")
    # __cuda_array_interface__ is preferred, because DLPack before 1.0 has no read-only flag, and torch exports tensors of
    # the current GPU only.
    try:
        interface = obj.__cuda_array_interface__
    except Exception as error:
        # __cuda_array_interface__ has no names for some types, such as torch's float8 or JAX's bfloat16.
        if hasattr(obj, "__dlpack_device__"):
            return _of_dlpack(obj)
        if not isinstance(error, AttributeError):
            raise
        raise TypeError(
            f"pass an object with __cuda_array_interface__ or __dlpack__, or (address, size), not {type(obj).__name__}"
        ) from None
    return _of_cuda_array_interface(interface, obj)


def _of_cuda_array_interface(interface: Mapping[str, Any], owner: object) -> DeviceMemory:
    missing = {"typestr", "shape", "data"} - set(interface)
    if missing:
        raise ValueError(f"pass an object whose __cuda_array_interface__ has {', '.join(sorted(missing))}")
    if interface.get("mask") is not None:
        raise ValueError("pass an object without a mask")
    typestr = interface["typestr"]
    item_size = _item_size(typestr)
    shape = tuple(operator.index(length) for length in interface["shape"])
    _check_contiguous(shape, interface.get("strides"), item_size)
    address, read_only = interface["data"]
    size = math.prod(shape) * item_size
    return DeviceMemory(operator.index(address or 0), size, not read_only, owner, typestr, shape)


def _item_size(typestr: str) -> int:
    """Returns the size of an item in bytes: 4 for <f4, 8 for <M8[ns], and 16 for <U4, which is 4 characters of 4 bytes."""
    match = re.fullmatch(r"[<>|]([biufcmMSUV])([0-9]+)(\[.*\])?", typestr)
    if match is None:
        raise ValueError(f"pass an object whose items are whole bytes, not of type {typestr}")
    return int(match[2]) * (4 if match[1] == "U" else 1)


class _DLTensor(ctypes.Structure):
    """DLTensor, the first member of DLManagedTensor."""

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


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _DLTensor),
    ]


_CUDA = 2  # kDLCUDA in the enum DLDeviceType
# For each DLDataTypeCode, NumPy's kind and the numbers of bits that NumPy has types for.
_KINDS = {0: ("i", 8, 16, 32, 64), 1: ("u", 8, 16, 32, 64), 2: ("f", 16, 32, 64), 5: ("c", 64, 128), 6: ("b", 8)}
_READ_ONLY = 1  # a bit of flags in DLManagedTensorVersioned

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.py_object, c_char_p]
_is_valid.restype = c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes = [ctypes.py_object, c_char_p]
_pointer.restype = c_void_p


def _of_dlpack(obj: Any) -> DeviceMemory:
    device = int(obj.__dlpack_device__()[0])
    if device != _CUDA:
        raise ValueError(f"pass an object in CUDA device memory (DLPack device type 2), not of type {device}")
    # No stream has to wait, because this package starts no GPU kernel. stream=-1 would say so, but JAX takes it for the
    # address of a stream. Without the argument, other packages make the legacy default stream wait, which is harmless.
    try:
        capsule = obj.__dlpack__(max_version=(1, 0))
    except TypeError:  # packages from before DLPack 1.0 have no max_version
        capsule = obj.__dlpack__()
    # A capsule that is not renamed to used_dltensor still owns the tensor, and releases it when the capsule is deleted.
    writable = True
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:  # another major version has another layout
            raise ValueError(f"pass an object with DLPack 1, not {versioned.major}")
        tensor, writable = versioned.tensor, not versioned.flags & _READ_ONLY
    else:
        tensor = _DLTensor.from_address(_pointer(capsule, b"dltensor"))
    shape = tensor.shape[: tensor.ndim]
    _check_contiguous(shape, tensor.strides[: tensor.ndim] if tensor.strides else None, 1)
    size = (math.prod(shape) * tensor.bits * tensor.lanes + 7) // 8
    kind, *sizes = _KINDS.get(tensor.code, ("",))
    typestr = f"<{kind}{tensor.bits // 8}" if tensor.bits in sizes and tensor.lanes == 1 else None
    return DeviceMemory((tensor.data or 0) + tensor.byte_offset, size, writable, capsule, typestr, tuple(shape))


def _check_contiguous(shape: Sequence[int], strides: Optional[Sequence[int]], item_size: int) -> None:
    if any(length < 0 for length in shape):
        raise ValueError(f"pass an object whose dimensions are not negative, not of shape {tuple(shape)}")
    if strides is None:
        return
    if len(strides) != len(shape):
        raise ValueError(f"pass an object with a stride for each of its {len(shape)} dimensions, not {len(strides)}")
    expected = item_size
    for length, stride in reversed(list(zip(shape, strides))):
        if length != 1 and stride != expected:
            raise ValueError("pass a contiguous object, or a contiguous copy of it")
        expected *= length
