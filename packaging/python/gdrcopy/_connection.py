"""This process's connection to the GPU driver."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from ctypes import c_int
from typing import Optional

from ._error import INHERITED, Error, check
from ._library import USE_PERSISTENT_MAPPING, USING_DMA_BUF_MMAP, PinHandle, functions


class Connection:
    """A gdr_t. It is never closed: the kernel does that when the process ends."""

    def __init__(self) -> None:
        self.handle = functions().gdr_open()
        if not self.handle:
            check("gdr_open", ctypes.get_errno())
        # What the address of a pin must be a multiple of, to be mapped.
        self.page_size = os.sysconf("SC_PAGE_SIZE") if self._attribute(USING_DMA_BUF_MMAP) else 1 << 16
        self._pins_end_with_memory = not self._attribute(USE_PERSISTENT_MAPPING)

    def _attribute(self, number: int) -> int:
        value = c_int()
        check("gdr_get_attribute", functions().gdr_get_attribute(self.handle, number, value))
        return value.value

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child, which cannot use it."""
        return self is not _connection

    def check_process(self) -> None:
        if self.inherited:
            raise Error(errno.EACCES, "this is a forked child", INHERITED)

    def check_pin(self, handle: PinHandle) -> None:
        """Raises Error if the pin has ended. It may still end before it is used."""
        if self._pins_end_with_memory:
            freed = c_int()
            check("gdr_get_callback_flag", functions().gdr_get_callback_flag(self.handle, handle, freed))
            if freed.value:
                raise Error(errno.EFAULT, "the GPU memory was freed", "keep it allocated while it is mapped")

    def unpin(self, handle: PinHandle) -> None:
        """Unmaps and unpins the memory, and sets the handle to 0. Does nothing if it is 0, or in a forked child."""
        if handle.h != 0 and not self.inherited:
            # In this order: if a signal handler raises in between, no second unpin can end another pin of this handle.
            pinned, handle.h = PinHandle(handle.h), 0
            check("gdr_unpin_buffer", functions().gdr_unpin_buffer(self.handle, pinned))


_lock = threading.Lock()
_connection: Optional[Connection] = None


def connection() -> Connection:
    """This process's connection, opened by the first call."""
    global _connection
    with _lock:
        if _connection is None:
            _connection = Connection()
        return _connection


def _forget_connection() -> None:
    global _lock, _connection
    _lock, _connection = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_connection)
