"""Where buffers on the host are."""

from __future__ import annotations

import contextlib
import ctypes
from ctypes import POINTER, c_int, c_ssize_t, c_void_p
from typing import TYPE_CHECKING, Any, Iterator, Protocol, Tuple, Union

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class SupportsArrayInterface(Protocol):
    """A NumPy array, which is no buffer to type checkers before Python 3.12."""

    @property
    def __array_interface__(self) -> Any: ...


ReadableHost = Union["ReadableBuffer", SupportsArrayInterface]
WritableHost = Union["WriteableBuffer", SupportsArrayInterface]


class _PyBuffer(ctypes.Structure):
    """Py_buffer."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_void_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, POINTER(_PyBuffer), c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [POINTER(_PyBuffer)]
_release_buffer.restype = None


@contextlib.contextmanager
def host_buffer(obj: Any, *, writable: bool) -> Iterator[Tuple[int, int]]:
    """Address and size of a contiguous buffer, which stays there until the context ends."""
    # Not by memoryview: ctypes takes writable ones only, and NumPy's complex and structured types cannot be cast.
    view = _PyBuffer()
    _get_buffer(obj, view, 1 if writable else 0)  # PyBUF_WRITABLE, PyBUF_SIMPLE
    try:
        yield view.buf or 0, view.len
    finally:
        _release_buffer(view)
