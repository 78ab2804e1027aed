"""Tensors that other libraries export by DLPack."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, List, NamedTuple, Optional, Protocol, Tuple


class SupportsDLPack(Protocol):
    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> Tuple[int, int]: ...


class Tensor(NamedTuple):
    """Contents of a capsule, which releases the tensor when it is deleted."""

    address: int
    shape: List[int]
    strides: Optional[List[int]]
    item_bits: int
    typestr: Optional[str]
    read_only: bool
    capsule: object


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


_CUDA = 2  # DLDeviceType
# The kinds of NumPy by DLDataTypeCode, and the bits of their types.
_KINDS = {0: ("i", 8, 16, 32, 64), 1: ("u", 8, 16, 32, 64), 2: ("f", 16, 32, 64), 5: ("c", 64, 128), 6: ("b", 8)}
_READ_ONLY = 1  # flags

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.py_object, c_char_p]
_is_valid.restype = c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes = [ctypes.py_object, c_char_p]
_pointer.restype = c_void_p


def tensor_of(obj: Any) -> Tensor:
    device = int(obj.__dlpack_device__()[0])
    if device != _CUDA:
        raise ValueError(f"pass an object in CUDA device memory (DLPack device type 2), not of type {device}")
    # No stream has to wait, as no GPU kernel of ours uses the memory. That would be stream=-1, which JAX takes for a
    # stream's address. By default others let the legacy default stream wait, which is harmless.
    try:
        capsule = obj.__dlpack__(max_version=(1, 0))
    except TypeError:  # before DLPack 1.0
        capsule = obj.__dlpack__()
    # The capsule's name stays as it is, and so keeps the tensor.
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        tensor, read_only = versioned.tensor, bool(versioned.flags & _READ_ONLY)
    else:
        tensor, read_only = _DLTensor.from_address(_pointer(capsule, b"dltensor")), False
    return Tensor(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=tensor.shape[: tensor.ndim],
        strides=tensor.strides[: tensor.ndim] if tensor.strides else None,
        item_bits=tensor.bits * tensor.lanes,
        typestr=_typestr(tensor),
        read_only=read_only,
        capsule=capsule,
    )


def _typestr(tensor: _DLTensor) -> Optional[str]:
    kind = _KINDS.get(tensor.code)
    if kind is None or tensor.bits not in kind[1:] or tensor.lanes != 1:
        return None
    return f"<{kind[0]}{tensor.bits // 8}"
