"""This process's connection to the GPU driver."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import byref, c_int
from typing import Optional, Tuple

from . import _error, _native
from ._error import check
from ._library import USE_PERSISTENT_MAPPING, USING_DMA_BUF_MMAP, functions


class Connection:
    """A gdr_t. It is never closed: the kernel does that when the process ends."""

    def __init__(self) -> None:
        self.handle = functions().gdr_open()
        if not self.handle:
            check("gdr_open", ctypes.get_errno())
        self.uses_dma_bufs = self._attribute(USING_DMA_BUF_MMAP)
        # The address of a pin must be a multiple of this, to be mapped.
        self.page_size = os.sysconf("SC_PAGE_SIZE") if self.uses_dma_bufs else 1 << 16
        self.pins_end_with_memory = not self._attribute(USE_PERSISTENT_MAPPING)

    def _attribute(self, number: int) -> bool:
        value = c_int()
        check("gdr_get_attribute", functions().gdr_get_attribute(self.handle, number, value))
        return bool(value.value)

    def driver_version(self) -> Tuple[int, int]:
        major, minor = c_int(), c_int()
        number = functions().gdr_driver_get_version(self.handle, byref(major), byref(minor))
        check("gdr_driver_get_version", number)
        return major.value, minor.value


_lock = threading.Lock()
_connection: Optional[Connection] = None


def connection() -> Connection:
    """This process's connection, opened by the first call."""
    global _connection
    with _lock:
        if _connection is None:
            _connection = Connection()
        return _connection


def _after_fork_in_child() -> None:
    global _lock, _connection
    _native.forked()
    if _connection is not None:
        _error.forked_after_use = True
    _lock, _connection = threading.Lock(), None


os.register_at_fork(after_in_child=_after_fork_in_child)
