"""Where GPU memory is: of objects, or given by its address."""

from __future__ import annotations

import math
import operator
import re
from typing import Any, Mapping, NamedTuple, Optional, Protocol, Sequence, SupportsIndex, Tuple, Union

from ._dlpack import SupportsDLPack, tensor_of


class SupportsCudaArrayInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]: ...


DeviceObject = Union[SupportsDLPack, SupportsCudaArrayInterface, Tuple[SupportsIndex, SupportsIndex]]


class DeviceMemory(NamedTuple):
    address: int
    size: int
    writable: bool
    owner: object  # keeps the memory allocated
    typestr: Optional[str]  # of the items, as in __array_interface__; None if NumPy has no such type
    shape: Tuple[int, ...]


def device_memory(obj: DeviceObject) -> DeviceMemory:
    """The GPU memory of an object, which must be contiguous, or of an address and a size in bytes."""
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
    # Lazy views of torch, which conjugate or negate when they are read.
    if any(getattr(obj, name, bool)() for name in ("is_conj", "is_neg")):
        raise ValueError("pass a tensor after resolve_conj() and resolve_neg(): the memory of a view has other values")
    # __cuda_array_interface__ first. DLPack before 1.0 has no read-only flag, and torch exports tensors of the current
    # GPU only.
    try:
        interface = obj.__cuda_array_interface__
    except Exception as error:
        # It has no names for some types, as torch's float8 or JAX's bfloat16.
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
    """Bytes of an item: 4 of <f4, 8 of <M8[ns]; <U4 are 4 characters of 4 bytes."""
    match = re.fullmatch(r"[<>|]([biufcmMSUV])([0-9]+)(\[.*\])?", typestr)
    if match is None:
        raise ValueError(f"pass an object whose items are whole bytes, not of type {typestr}")
    return int(match[2]) * (4 if match[1] == "U" else 1)


def _of_dlpack(obj: Any) -> DeviceMemory:
    tensor = tensor_of(obj)
    _check_contiguous(tensor.shape, tensor.strides, 1)
    size = (math.prod(tensor.shape) * tensor.item_bits + 7) // 8
    return DeviceMemory(
        tensor.address, size, not tensor.read_only, tensor.capsule, tensor.typestr, tuple(tensor.shape)
    )


def _check_contiguous(shape: Sequence[int], strides: Optional[Sequence[int]], item_size: int) -> None:
    if strides is None:
        return
    if len(strides) != len(shape):
        raise ValueError(f"pass an object with a stride for each of its {len(shape)} dimensions, not {len(strides)}")
    expected = item_size
    for length, stride in reversed(list(zip(shape, strides))):
        if length != 1 and stride != expected:
            raise ValueError("pass a contiguous object, or a contiguous copy of it")
        expected *= length
