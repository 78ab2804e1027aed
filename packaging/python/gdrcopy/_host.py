"""Where buffers on the host are."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int, c_ssize_t, c_void_p
from typing import TYPE_CHECKING, Any, Protocol, Tuple, Union

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


class HostBuffer:
    """A contiguous buffer, which stays where it is until the context ends."""

    # Not by memoryview: ctypes takes writable ones only, and NumPy's complex and structured types cannot be cast. Not by
    # contextlib, which is slow beside a small copy.

    def __init__(self, obj: Any, *, writable: bool) -> None:
        self._view = _PyBuffer()
        _get_buffer(obj, self._view, 1 if writable else 0)  # PyBUF_WRITABLE, PyBUF_SIMPLE

    def __enter__(self) -> Tuple[int, int]:
        """Its address and size."""
        return self._view.buf or 0, self._view.len

    def __exit__(self, *_exception: object) -> None:
        _release_buffer(self._view)
