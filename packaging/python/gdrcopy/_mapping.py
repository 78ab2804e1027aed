"""GPU memory that the CPU reads and writes."""

from __future__ import annotations

import errno
import os
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Optional, SupportsIndex, Tuple, Type

from . import _native
from ._device import DeviceMemory, DeviceObject, device_memory
from ._error import Error
from ._native import Memory, Word

if TYPE_CHECKING:
    from numpy.typing import NDArray

# With PyTorch's option expandable_segments, tensors may be in memory that cannot be pinned. The library's message does not name
# this option, so this text is added to it.
EXPANDABLE = "nor of several calls of cuMemCreate, as with expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF"
# CUDA does not work in the child of a process that used it, and no memory of the parent can be pinned there.
SPAWN = "the memory of this process's parent cannot be used after a fork, nor can CUDA: start it by spawn"
_forked_after_use = False


def _after_fork_in_child() -> None:
    global _forked_after_use
    _forked_after_use = _native.forked() or _forked_after_use


os.register_at_fork(after_in_child=_after_fork_in_child)


class Mapping(Memory):
    """GPU memory, pinned and mapped into this process until close() or the end of a `with` block.

    obj is a contiguous object with __cuda_array_interface__ or __dlpack__ (a torch tensor, a CuPy or Numba array),
    or (address, size). Offsets and sizes are in bytes. CUDA is not called: synchronize with GPU kernels and copies that
    use the memory. Several threads may use a Mapping.

    Copies are write(), read() and read_into(). A read is never older than the call. Writes of a thread arrive in the order of
    its calls. word() makes a flag, with one load or store for each access.

    Views are view(), memoryview(mapping) and numpy.asarray(mapping). Each access is a plain load or store. Stores may pass
    each other until flush(), or the next write() or store() of a word, which come after them. Loads are PCIe round trips,
    and may run early: call flush() between the flag that was seen and the data that it announces. While there is a view,
    close() raises BufferError. In a forked child, accesses by a view raise SIGSEGV.

    Do not free or resize the memory before close(): the README of the package says what happens then.

    Raises Error if the library fails.
    """

    _memory: DeviceMemory

    def __new__(cls, obj: DeviceObject, *, force_pcie: bool = False) -> Mapping:
        memory = device_memory(obj)
        try:
            mapping = super().__new__(cls, memory.address, memory.size, memory.writable, force_pcie)
        except Error as error:
            if error.errno != errno.EINVAL:
                raise
            raise Error(errno.EINVAL, f"{error.strerror}; {SPAWN if _forked_after_use else EXPANDABLE}") from None
        mapping._memory = memory
        return mapping

    @property
    def address(self) -> int:
        """The device address of the first byte."""
        return self._memory.address

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self._memory.size

    @property
    def dtype(self) -> Optional[str]:
        """The type of the object's items, for NumPy: "<f4". None if NumPy has no such type, as for bfloat16."""
        return self._memory.typestr

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape of the object, in items."""
        return self._memory.shape

    def __len__(self) -> int:
        return self.size

    def view(self) -> NDArray[Any]:
        """Returns a NumPy array in the GPU memory itself, with the object's dtype and shape. For another type, call NumPy's
        view() on numpy.asarray(mapping), which is an array of bytes."""
        import numpy

        if self.dtype is None:
            raise TypeError("use numpy.asarray(mapping): NumPy has no type for the items of this object")
        return numpy.ndarray(self.shape, self.dtype, memoryview(self))

    def word(self, offset: SupportsIndex, size: SupportsIndex) -> Word:
        """Returns an unsigned integer of 1, 2, 4 or 8 bytes in the memory, at an aligned address."""
        return Word(self, offset, size)

    def close(self) -> None:
        """Unmaps and unpins the memory, after waiting for copies of other threads. Raises BufferError if there are views.
        Does nothing if the mapping is closed, or in a forked child, in which the memory is not mapped."""
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
            # The exception that ended the `with` block keeps the block's views in its traceback, so close() fails. The
            # memory is unpinned when the views end.
            if kind is None:
                raise

    def __del__(self) -> None:
        # The base class would also unpin the memory, but perhaps only after the memory's owner has freed it.
        try:
            if self._unpin():
                warnings.warn(f"unclosed mapping of {self.size} bytes", ResourceWarning, source=self)
        except Exception:
            pass  # Views of this mapping still exist, or the interpreter is ending and its modules are gone.

    def __reduce__(self) -> NoReturn:
        raise TypeError("make another Mapping of the memory: a Mapping cannot be copied or pickled")

    def __repr__(self) -> str:
        state = "closed " if self.closed else ""
        return f"<{state}gdrcopy.Mapping of {self.size} bytes at {self.address:#x}>"
