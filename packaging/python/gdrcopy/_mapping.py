"""GPU memory that the CPU reads and writes."""

from __future__ import annotations

import operator
import threading
from ctypes import c_void_p
from types import TracebackType
from typing import ContextManager, Iterable, List, NoReturn, Optional, SupportsIndex, Tuple, Type

from ._connection import connection
from ._device import DeviceObject, device_memory
from ._error import check
from ._host import HostBuffer, ReadableHost, WritableHost
from ._library import FORCE_PCIE, PinHandle, functions


class Mapping:
    """GPU memory, pinned and mapped into this process until close() or the end of a `with` block.

    obj is a contiguous object with __cuda_array_interface__ or __dlpack__ (a torch tensor, a CuPy or Numba array),
    or (address, size). Offsets and sizes are in bytes. CUDA is not called: synchronize with GPU kernels and copies that
    use the memory. Several threads may use a Mapping; their copies wait for each other.

    Do not free or resize the memory before close(). A mapping goes on showing the memory that was freed, which the
    object no longer has. Where the GPU driver ends pins of freed memory (GDR_ATTR_USE_PERSISTENT_MAPPING is 0), copies
    then raise Error, but a copy that is running when the memory is freed ends the process by SIGBUS.

    Raises Error if the library fails.
    """

    def __init__(self, obj: DeviceObject, *, force_pcie: bool = False) -> None:
        self._memory = memory = device_memory(obj)
        self._lock = threading.RLock()
        self._connection = connection()
        # Pins begin with a page to be mapped. The rest of the page is never touched.
        before = memory.address % self._connection.page_size
        length = before + memory.size
        # Known before the pin: a signal handler may raise as soon as the call has returned. 0 stands for no pin.
        self._handle, start = PinHandle(0), c_void_p()
        library, opened, flags = functions(), self._connection.handle, FORCE_PCIE if force_pcie else 0
        try:
            number = library.gdr_pin_buffer_v2(opened, memory.address - before, length, flags, self._handle)
            check("gdr_pin_buffer_v2", number)
            check("gdr_map", library.gdr_map(opened, self._handle, start, length))
        except BaseException:
            self._connection.unpin(self._handle)
            raise
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

    def write(self, data: ReadableHost, offset: SupportsIndex = 0) -> None:
        """Writes the bytes of data, any contiguous object with the buffer protocol: bytes, a NumPy array.

        The data reaches the GPU after all that this thread wrote before. 1, 2, 4 or 8 bytes to an aligned address are
        one store.
        """
        if not self._memory.writable:
            raise TypeError("pass an object that is not read-only to write to it")
        with HostBuffer(data, writable=False) as (address, size), self._locked():
            mapped = self._place(offset, size)
            check("gdr_copy_to_mapping", functions().gdr_copy_to_mapping(self._handle, mapped, address, size))

    def read(self, offset: SupportsIndex = 0, size: Optional[SupportsIndex] = None) -> bytes:
        """Returns size bytes from the offset on, by default all, as they are at the call or later."""
        length = max(self.size - operator.index(offset), 0) if size is None else operator.index(size)
        self._check_range(offset, length)  # before memory is allocated for it
        data = bytearray(length)
        self.read_into(data, offset)
        return bytes(data)

    def read_into(self, buffer: WritableHost, offset: SupportsIndex = 0) -> None:
        """Fills a contiguous, writable object with the buffer protocol: a bytearray, a NumPy array."""
        with HostBuffer(buffer, writable=True) as (address, size), self._locked():
            mapped = self._place(offset, size)
            check("gdr_copy_from_mapping", functions().gdr_copy_from_mapping(self._handle, address, mapped, size))

    def read_many(self, ranges: Iterable[Tuple[SupportsIndex, SupportsIndex]]) -> List[bytes]:
        """Reads each (offset, size), in this order."""
        return [self.read(offset, size) for offset, size in ranges]

    def _locked(self) -> ContextManager[bool]:
        # In a forked child, a thread that does not exist there may hold the lock.
        self._connection.check_process()
        return self._lock

    def _place(self, offset: SupportsIndex, size: int) -> int:
        """Where the range is mapped."""
        self._check_range(offset, size)
        self._connection.check_pin(self._handle)
        return self._start + operator.index(offset)

    def _check_range(self, offset: SupportsIndex, size: int) -> None:
        if self._handle.h == 0:
            raise ValueError("the mapping is closed: make another one")
        offset = operator.index(offset)
        if not 0 <= offset <= self.size:
            raise ValueError(f"choose an offset from 0 to {self.size}, not {offset}")
        if not 0 <= size <= self.size - offset:
            raise ValueError(f"choose a size from 0 to {self.size - offset} at offset {offset}, not {size}")

    def close(self) -> None:
        """Unmaps and unpins the memory, after copies of other threads. Does nothing if that was done, and in a forked
        child, which has no part in the mapping."""
        if not self._connection.inherited:
            with self._lock:
                self._connection.unpin(self._handle)
                self._memory = self._memory._replace(owner=None)

    def __enter__(self) -> Mapping:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # No copy is running, so the lock is not needed.
        try:
            self._connection.unpin(self._handle)
        except Exception:
            pass  # __init__ failed early, or the interpreter ends and its modules are gone: the kernel unpins

    def __reduce__(self) -> NoReturn:
        raise TypeError("make another Mapping of the memory: a Mapping cannot be copied or pickled")

    def __repr__(self) -> str:
        state = "closed " if self._handle.h == 0 else ""
        return f"<{state}gdrcopy.Mapping of {self.size} bytes at {self.address:#x}>"
