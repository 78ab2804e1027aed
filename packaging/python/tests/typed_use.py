"""Uses that type checkers accept. It is checked, not run."""

from __future__ import annotations

import array
from typing import Any, Optional, Tuple, TypedDict

import numpy

import gdrcopy


class Interface(TypedDict):
    data: Tuple[int, bool]
    shape: Tuple[int, ...]
    typestr: str
    version: int


class Typed:
    @property
    def __cuda_array_interface__(self) -> Interface:
        raise NotImplementedError


class Untyped:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise NotImplementedError


class Torch:
    def __dlpack__(self, stream: Optional[int] = None) -> object:
        raise NotImplementedError

    def __dlpack_device__(self) -> Tuple[int, int]:
        raise NotImplementedError


def use(typed: Typed, untyped: Untyped, torch: Torch, floats: numpy.typing.NDArray[numpy.float32]) -> bytes:
    for obj in (typed, untyped, torch):
        gdrcopy.Mapping(obj)
    gdrcopy.Mapping((numpy.uint64(1 << 20), numpy.int64(100)))
    with gdrcopy.Mapping((1 << 20, 100), force_pcie=True) as mapping:
        for data in (b"", bytearray(), memoryview(b""), array.array("d"), floats):
            mapping.write(data, numpy.int64(8))
        mapping.read_into(floats)
        mapping.read_into(bytearray(8), 8)
        parts: list[bytes] = mapping.read_many([(0, 4), (numpy.int64(4), 4)])
        mapping.write_many((offset, floats) for offset in (0, 8))
        mapping.write_many([(0, b""), (numpy.int64(8), memoryview(b""))])
        items: numpy.typing.NDArray[Any] = mapping.view("f4", (3, 4), offset=8)
        items = mapping.read(dtype=numpy.float32, shape=3)
        items = numpy.asarray(mapping)
        items = mapping.gather([0, numpy.int64(8)])
        mapping.scatter(numpy.arange(3) * 8, mapping.gather(range(3), dtype="u4"))
        memoryview(mapping).cast("Q")[0] = 1
        flag: gdrcopy.Word = mapping.word(numpy.int64(0), 4)
        flag.store(numpy.uint32(1))
        mapping[8:16] = mapping[0:8] + items.tobytes()[: flag.load()]
        mapping.flush()
    try:
        gdrcopy.preload()
    except gdrcopy.Error as error:
        print(error.errno, error.remedy)
    return mapping.read(0, numpy.int64(4)) + parts[0]
