"""GPU memory that the CPU reads and writes."""

from __future__ import annotations

import threading
from ctypes import c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Iterable, List, Optional, Tuple, Type

from . import _library as library
from ._error import Error, check
from ._memory import DeviceObject, device_memory, host_buffer

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class Mapping:
    """GPU memory, pinned and mapped into this process until close() or the end of a `with` block.

    obj is a contiguous object with __dlpack__ or __cuda_array_interface__ (a torch tensor, a CuPy or Numba array),
    or (address, size). Offsets and sizes are in bytes. CUDA is not called: synchronize with GPU kernels and copies that
    use the memory. Several threads may use a Mapping; their copies wait for each other.

    Raises Error if the library fails. GPU memory given by its address must stay allocated until close().
    """

    def __init__(self, obj: DeviceObject, *, force_pcie: bool = False) -> None:
        self._handle: Optional[library.PinHandle] = None
        self._lock = threading.RLock()
        self._memory = device_memory(obj)
        self._connection = library.connection()
        # Pins begin with a page to be mapped. The rest of the page is never touched.
        before = self._memory.address % self._connection.page_size
        length = before + self._memory.size
        handle, start = library.PinHandle(), c_void_p()
        functions, connection = library.functions(), self._connection.handle
        flags = library.FORCE_PCIE if force_pcie else 0
        number = functions.gdr_pin_buffer_v2(connection, self._memory.address - before, length, flags, handle)
        check("gdr_pin_buffer_v2", number)
        number = functions.gdr_map(connection, handle, start, length)
        if number != 0:
            functions.gdr_unpin_buffer(connection, handle)
        check("gdr_map", number)
        self._handle = handle
        self._start = (start.value or 0) + before

    @property
    def address(self) -> int:
        """The device address of the first byte."""
        return self._memory.address

    @property
    def size(self) -> int:
        """Bytes."""
        return self._memory.size

    def __len__(self) -> int:
        return self.size

    def write(self, data: ReadableBuffer, offset: int = 0) -> None:
        """Writes the bytes of data, any contiguous object with the buffer protocol: bytes, a NumPy array.

        The data reaches the GPU after all that this thread wrote before. 1, 2, 4 or 8 bytes to an aligned address are
        one store.
        """
        if not self._memory.writable:
            raise TypeError("pass an object whose __cuda_array_interface__ is not read-only to write to it")
        with host_buffer(data, writable=False) as (address, size), self._lock:
            handle, mapped = self._place(offset, size)
            check("gdr_copy_to_mapping", library.functions().gdr_copy_to_mapping(handle, mapped, address, size))

    def read(self, offset: int = 0, size: Optional[int] = None) -> bytes:
        """Returns size bytes from the offset on, by default all, as they are at the call or later."""
        data = bytearray(max(self.size - offset, 0) if size is None else size)
        self.read_into(data, offset)
        return bytes(data)

    def read_into(self, buffer: WriteableBuffer, offset: int = 0) -> None:
        """Fills a contiguous, writable object with the buffer protocol: a bytearray, a NumPy array."""
        with host_buffer(buffer, writable=True) as (address, size), self._lock:
            handle, mapped = self._place(offset, size)
            check("gdr_copy_from_mapping", library.functions().gdr_copy_from_mapping(handle, address, mapped, size))

    def read_many(self, ranges: Iterable[Tuple[int, int]]) -> List[bytes]:
        """Reads each (offset, size), in this order."""
        return [self.read(offset, size) for offset, size in ranges]

    def _place(self, offset: int, size: int) -> Tuple[library.PinHandle, int]:
        if self._handle is None:
            raise ValueError("the mapping is closed: make another one")
        if offset < 0 or offset + size > self.size:
            raise ValueError(f"choose a range within {self.size} bytes, not {size} at offset {offset}")
        return self._handle, self._start + offset

    def close(self) -> None:
        """Unmaps and unpins the memory, after copies of other threads. Does nothing if that was done."""
        with self._lock:
            self._release()

    def _release(self) -> None:
        if self._handle is not None:
            number = library.functions().gdr_unpin_buffer(self._connection.handle, self._handle)
            check("gdr_unpin_buffer", number)
            self._handle = None
            self._memory = self._memory._replace(owner=None)

    def __enter__(self) -> Mapping:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # No copy is running, so the lock is not needed: in a forked child a thread that does not exist may hold it.
        try:
            self._release()
        except (AttributeError, Error):
            pass  # __init__ failed early; a forked child's copy of the parent's mapping

    def __repr__(self) -> str:
        state = "closed " if self._handle is None else ""
        return f"<{state}gdrcopy.Mapping of {self.size} bytes at {self.address:#x}>"
