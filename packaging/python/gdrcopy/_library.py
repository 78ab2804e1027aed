"""The libgdrapi in this package: loading it, and its functions."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import subprocess
import sys
import threading
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint32, c_ulong, c_void_p
from typing import Optional

from ._error import Error, check

SONAME = "libgdrapi.so.2"
NAMES = ("libgdrapi.so", SONAME)

USING_DMA_BUF_MMAP = 3  # gdr_attr_t
FORCE_PCIE = 1  # gdr_pin_flags_t


class PinHandle(ctypes.Structure):
    """gdr_mh_t."""

    _fields_ = [("h", c_ulong)]


def path(name: str) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", name)


@functools.lru_cache(maxsize=None)
def functions() -> ctypes.CDLL:
    """The functions that this package calls, of its own library even if another one is loaded."""
    library = ctypes.CDLL(path(SONAME), use_errno=True)
    library.gdr_open.argtypes = []
    library.gdr_open.restype = c_void_p
    library.gdr_get_attribute.argtypes = [c_void_p, c_int, POINTER(c_int)]
    library.gdr_pin_buffer_v2.argtypes = [c_void_p, c_ulong, c_size_t, c_uint32, POINTER(PinHandle)]
    library.gdr_unpin_buffer.argtypes = [c_void_p, PinHandle]
    library.gdr_map.argtypes = [c_void_p, PinHandle, POINTER(c_void_p), c_size_t]
    library.gdr_copy_to_mapping.argtypes = [PinHandle, c_void_p, c_void_p, c_size_t]
    library.gdr_copy_from_mapping.argtypes = [PinHandle, c_void_p, c_void_p, c_size_t]
    return library


class Connection:
    """A gdr_t. It is never closed: the kernel does that when the process ends."""

    def __init__(self) -> None:
        self.handle = functions().gdr_open()
        if not self.handle:
            number = ctypes.get_errno()
            raise Error(number, f"gdr_open: {os.strerror(number)}", _why_open_fails())
        dma_bufs = c_int()
        check("gdr_get_attribute", functions().gdr_get_attribute(self.handle, USING_DMA_BUF_MMAP, dma_bufs))
        # What the address of a pin must be a multiple of, to be mapped.
        self.page_size = os.sysconf("SC_PAGE_SIZE") if dma_bufs.value else 1 << 16


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


# A forked child cannot use its parent's.
os.register_at_fork(after_in_child=_forget_connection)


def _why_open_fails() -> str:
    """What the library logs about it, in a child process: here, logging would print to stderr from then on."""
    script = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).gdr_open()"
    environment = {**os.environ, "GDRCOPY_ENABLE_LOGGING": "1", "GDRCOPY_LOG_LEVEL": "4"}
    child = subprocess.run(
        [sys.executable, "-ISc", script, path(SONAME)], env=environment, capture_output=True, text=True, check=False
    )
    prefix = "ERR:  "
    lines = [line[len(prefix) :] for line in child.stderr.splitlines() if line.startswith(prefix)]
    return "; ".join(lines) or "run `gdrcopy doctor`"


class _DlInfo(ctypes.Structure):
    _fields_ = [("file", c_char_p), ("base", c_void_p), ("symbol", c_char_p), ("address", c_void_p)]


def _loaded_file(name: str) -> Optional[str]:
    """The file whose functions a dlopen of the name finds, if it needs to load none."""
    try:
        function = ctypes.CDLL(name, os.RTLD_NOLOAD | os.RTLD_NOW).gdr_open
    except (OSError, AttributeError):
        return None
    info = _DlInfo()
    ctypes.CDLL(None).dladdr(ctypes.cast(function, c_void_p), ctypes.byref(info))
    return os.fsdecode(info.file)


def preload() -> None:
    """Loads the library so that what this process loads afterwards uses it, linked with it or by either name.

    Call it before importing what uses libgdrapi, such as torch. Raises Error if another libgdrapi is loaded.
    """
    for name in NAMES:
        file = _loaded_file(name)
        if file is not None and not os.path.samefile(file, path(SONAME)):
            remedy = "call gdrcopy.preload() before other imports, or use python -m gdrcopy run"
            raise Error(errno.EEXIST, f"{name} was loaded before, from {file}", remedy)
    # An empty object, which is there for its name and needs the library.
    ctypes.CDLL(path("libgdrapi.so"), ctypes.RTLD_GLOBAL)
