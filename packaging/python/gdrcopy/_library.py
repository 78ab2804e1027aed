"""The libraries in this package: their files and functions."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from ctypes import POINTER, c_int, c_void_p

from . import _native
from ._error import Error

SONAME = "libgdrapi.so.2"
# An empty object, which is there for its name and needs the library.
ALIAS = "libgdrapi.so"
# Many copies by one call.
COMPANION = "libgdrx.so.1"

USE_PERSISTENT_MAPPING, USING_DMA_BUF_MMAP = 1, 3  # gdr_attr_t
FORCE_PCIE = 1  # gdr_pin_flags_t


def path(*names: str) -> str:
    """The file of this package. The loader reads files only, so a zip archive does not do."""
    file = os.path.join(os.path.dirname(os.path.abspath(__file__)), *names)
    if not os.path.isfile(file):
        raise Error(errno.ENOENT, f"{file} is missing", "install the wheel gdrcopy by pip, not in a zip archive")
    return file


def load(name: str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    file = path("lib", name)
    try:
        return ctypes.CDLL(file, mode, use_errno=True)
    except OSError as error:
        remedy = "install the wheel for this arch, and raise the limit of open files (ulimit -n) if it was reached"
        raise Error(errno.ELIBACC, str(error), remedy) from None


def address(name: str) -> int:
    """The address of a function of the libraries in this package."""
    library = load(COMPANION if name.startswith("gdrx_") else SONAME)
    return ctypes.cast(getattr(library, name), c_void_p).value or 0


@functools.lru_cache(maxsize=None)
def functions() -> ctypes.CDLL:
    """The functions that this package calls, of its own library even if another one is loaded."""
    library = load(SONAME)
    library.gdr_open.argtypes = []
    library.gdr_open.restype = c_void_p
    library.gdr_get_attribute.argtypes = [c_void_p, c_int, POINTER(c_int)]
    library.gdr_driver_get_version.argtypes = [c_void_p, POINTER(c_int), POINTER(c_int)]
    _native.bind(address)
    return library
