"""GPU memory that the CPU reads and writes."""

from __future__ import annotations

import operator
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Optional, Sequence, SupportsIndex, Tuple, Type, Union, overload

from ._connection import connection
from ._device import DeviceObject, device_memory
from ._library import FORCE_PCIE
from ._native import Memory, Word

if TYPE_CHECKING:
    from numpy import integer
    from numpy.typing import DTypeLike, NDArray

    from ._native import ReadableHost

    Shape = Union[SupportsIndex, Tuple[SupportsIndex, ...]]
    Offsets = Union[NDArray[integer[Any]], SupportsIndex, Sequence[SupportsIndex]]


class Mapping(Memory):
    """GPU memory, pinned and mapped into this process until close() or the end of a `with` block.

    obj is a contiguous object with __cuda_array_interface__ or __dlpack__ (a torch tensor, a CuPy or Numba array),
    or (address, size). Offsets and sizes are in bytes. CUDA is not called: synchronize with GPU kernels and copies that
    use the memory. Several threads may use a Mapping.

    Copies: write(), read(), read_into() and mapping[a:b], which reads bytes and writes them. A read is never older than
    the call. Writes of a thread arrive in the order of its calls, so write the data first, then the flag that announces
    it. word() makes a flag, with one load or store for each access.

    Many copies at once, in the time of a few: write_many() and read_many() of bytes, gather() and scatter() of NumPy
    arrays. One call is one write or read in the order of calls; within a call there is no order.

    Views: view(), memoryview(mapping), numpy.asarray(mapping). Each access is a plain load or store:
    - Most GPUs' memory is mapped write-combining. Stores are fast, and wait in buffers of the CPU, where they may pass
      each other, until flush(), or the next write() or store() of a word, which come after them.
    - A load is a PCIe round trip, about a microsecond for up to 8 bytes, and not cached; read() copies larger parts
      faster. Loads may run early: call flush() between the flag that was seen and the data that it announces.
    - While there is a view, or what was made of one, close() raises BufferError.
    - A view does not work in a forked child: accesses end the child by SIGSEGV.

    Do not free or resize the memory before close(). A mapping goes on showing the memory that was freed, which the
    object no longer has. Where the GPU driver ends pins of freed memory (GDR_ATTR_USE_PERSISTENT_MAPPING is 0), copies
    then raise Error; accesses by views, and a copy that is running when the memory is freed, end the process by SIGBUS.

    Raises Error if the library fails.
    """

    def __init__(self, obj: DeviceObject, *, force_pcie: bool = False) -> None:
        memory, opened = device_memory(obj), connection()
        self._pin(
            opened.handle,
            memory.address,
            memory.size,
            opened.page_size,
            FORCE_PCIE if force_pcie else 0,
            memory.writable,
            opened.pins_end_with_memory,
        )
        self._memory = memory

    @property
    def address(self) -> int:
        """The device address of the first byte."""
        return self._memory.address

    @property
    def size(self) -> int:
        """Bytes."""
        return self._memory.size

    @property
    def dtype(self) -> Optional[str]:
        """The type of the object's items, for NumPy: "<f4". None if NumPy has no such type, as for bfloat16."""
        return self._memory.typestr

    @property
    def shape(self) -> Tuple[int, ...]:
        """The object's, in items."""
        return self._memory.shape

    def __len__(self) -> int:
        return self.size

    def view(
        self, dtype: Optional[DTypeLike] = None, shape: Optional[Shape] = None, offset: SupportsIndex = 0
    ) -> NDArray[Any]:
        """Returns a NumPy array in the GPU memory itself, by default of the object's dtype and shape. With a dtype only,
        of all items from the offset on."""
        import numpy

        return numpy.ndarray(buffer=memoryview(self), **self._items(dtype, shape, offset))

    @overload
    def read(self, offset: SupportsIndex = 0, size: Optional[SupportsIndex] = None) -> bytes: ...

    @overload
    def read(
        self, offset: SupportsIndex = 0, *, dtype: Optional[DTypeLike] = None, shape: Optional[Shape] = None
    ) -> NDArray[Any]: ...

    def read(
        self,
        offset: SupportsIndex = 0,
        size: Optional[SupportsIndex] = None,
        *,
        dtype: Optional[DTypeLike] = None,
        shape: Optional[Shape] = None,
    ) -> Union[bytes, NDArray[Any]]:
        """Returns size bytes from the offset on, by default all, as they are at the call or later.

        With dtype or shape, a new NumPy array: dtype is by default the object's, the shape all items from the offset on.
        """
        if dtype is None and shape is None:
            return self._read_bytes(offset, size)
        if size is not None:
            raise TypeError("pass a size or a shape, not both")
        import numpy

        place = self._items(dtype, shape, offset)
        items = numpy.empty(place["shape"], place["dtype"])
        self.read_into(items, place["offset"])
        return items

    def _items(self, dtype: Optional[DTypeLike], shape: Optional[Shape], offset: SupportsIndex) -> Any:
        """dtype, shape and offset for NumPy, which takes offsets before the memory."""
        import numpy

        offset = self._offset(offset)
        if dtype is None and shape is None:
            shape = self.shape
        items = self._item_type(dtype)
        if shape is None:
            shape = (self.size - offset) // max(items.itemsize, 1)
        return {"dtype": items, "shape": shape, "offset": offset}

    def _offset(self, offset: SupportsIndex) -> int:
        offset = operator.index(offset)
        if not 0 <= offset <= self.size:
            raise ValueError(f"choose an offset from 0 to {self.size}, not {offset}")
        return offset

    def _item_type(self, dtype: Optional[DTypeLike]) -> Any:
        import numpy

        if dtype is None and self.dtype is None:
            raise TypeError("pass a dtype: NumPy has none for the items of this object")
        items = numpy.dtype(self.dtype if dtype is None else dtype)
        if items.hasobject:
            raise TypeError("pass a dtype without Python objects")
        return items

    def gather(self, offsets: Offsets, dtype: Optional[DTypeLike] = None) -> NDArray[Any]:
        """Returns a NumPy array of the item at each offset, in the shape of the offsets: integers, in an array or a
        sequence. dtype is by default the object's; items of one with a shape, as "(16,)f4", are rows.

        As read_many(): no item is older than the call, they have no order, and none is a single load."""
        import numpy

        places = self._offsets(offsets)
        items = numpy.empty(places.shape, self._item_type(dtype))
        self._copy_items(places, items, False)
        return items

    def scatter(self, offsets: Offsets, array: NDArray[Any]) -> None:
        """Writes array[i] to offsets[i], for each i, with one fence: the reverse of gather(). Items may be rows.

        As write_many(): together they are ordered as one write, among each other not. Of items with equal offsets, or
        that overlap, the bytes of any may stay."""
        import numpy

        places = self._offsets(offsets)
        if not isinstance(array, numpy.ndarray) or array.shape[: places.ndim] != places.shape:
            raise ValueError(f"pass a NumPy array whose shape begins as that of the offsets, {places.shape}")
        self._copy_items(places, numpy.asarray(array, self._item_type(array.dtype), order="C"), True)

    def _offsets(self, offsets: Offsets) -> Any:
        """A contiguous array of int64, or of uint64, where a value exceeds int64."""
        import numpy

        places = numpy.asarray(offsets)
        if places.dtype.kind == "b":
            raise TypeError("pass offsets, not a mask")
        if places.dtype.kind not in "iu":  # of none, of larger integers, or of objects with __index__
            places = numpy.vectorize(self._offset, otypes="q")(numpy.asarray(offsets, object))
        return numpy.asarray(places, "u8" if places.dtype.kind == "u" else "i8", order="C")

    def word(self, offset: SupportsIndex, size: SupportsIndex) -> Word:
        """An unsigned integer of 1, 2, 4 or 8 bytes in the memory, at an aligned address."""
        return Word(self, offset, size)

    def __getitem__(self, part: slice) -> bytes:
        return self._read_bytes(*self._range(part))

    def __setitem__(self, part: slice, data: ReadableHost) -> None:
        self._write_slice(data, *self._range(part))

    def _range(self, part: slice) -> Tuple[int, int]:
        if not isinstance(part, slice):
            raise TypeError("pass a slice of bytes, mapping[0:8], or use word()")
        start, stop, step = part.indices(self.size)
        if step != 1:
            raise ValueError("pass a slice without a step")
        return start, max(stop - start, 0)

    def close(self) -> None:
        """Unmaps and unpins the memory, after copies of other threads. Raises BufferError if there are views. Does nothing
        if it is closed, and in a forked child, which has no part in the mapping."""
        if self._unpin():
            self._memory = self._memory._replace(owner=None)

    def __enter__(self) -> Mapping:
        if self.closed:
            raise ValueError("the mapping is closed: make another one")
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.close()
        except BufferError:
            # The traceback of another exception keeps the block's views. Without them, the memory is unpinned.
            if kind is None:
                raise

    def __del__(self) -> None:
        # Without this too it would be unpinned, but after the memory's owner may have freed it.
        try:
            if self._unpin():
                warnings.warn(f"unclosed mapping of {self.size} bytes", ResourceWarning, source=self)
        except Exception:
            pass  # views end together with it, or the interpreter ends and its modules are gone

    def __reduce__(self) -> NoReturn:
        raise TypeError("make another Mapping of the memory: a Mapping cannot be copied or pickled")

    def __repr__(self) -> str:
        state = "closed " if self.closed else ""
        return f"<{state}gdrcopy.Mapping of {self.size} bytes at {self.address:#x}>"
