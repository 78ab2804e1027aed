"""Makes other packages and programs use the library of this package."""

from __future__ import annotations

import ctypes
import errno
import os
from ctypes import c_void_p
from typing import Optional

from ._error import Error

LIBRARY = "libgdrapi.so"  # Its SONAME is libgdrapi.so.2.
# This object is empty. Its SONAME is libgdrapi.so.2, and it is linked with libgdrapi.so. So once it is loaded, the loader has a
# library for each of the two names.
PRELOAD = "libgdrapi-preload.so"


def path(*names: str) -> str:
    """Returns the path of a file of this package. The loader reads only files, so the package must not be in a zip archive."""
    file = os.path.join(os.path.dirname(os.path.abspath(__file__)), *names)
    if not os.path.isfile(file):
        raise Error(errno.ENOENT, f"{file} is missing: install the wheel gdrcopy by pip, not in a zip archive")
    return file


def load(name: str, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    file = path("lib", name)
    try:
        return ctypes.CDLL(file, mode)
    except OSError as error:
        remedy = "install the wheel for this arch, and raise the limit of open files (ulimit -n) if it was reached"
        raise Error(errno.ELIBACC, f"{error}: {remedy}") from None


def _gdr_open(library: ctypes.CDLL) -> Optional[int]:
    return ctypes.cast(library.gdr_open, c_void_p).value


def _is_another(name: str) -> bool:
    """Returns whether dlopen of this name would find a loaded library other than this package's."""
    try:
        address = _gdr_open(ctypes.CDLL(name, os.RTLD_NOLOAD | os.RTLD_NOW))
    except (OSError, AttributeError):
        return False
    return address != _gdr_open(load(LIBRARY))


def preload() -> None:
    """Loads the library. Packages that are imported afterwards use it, whether they link libgdrapi or load it by dlopen.

    Call it before importing packages that use libgdrapi, such as torch. Raises Error if another libgdrapi is loaded.
    """
    for name in ("libgdrapi.so", "libgdrapi.so.2"):
        if _is_another(name):
            remedy = (
                "use python -m gdrcopy run, or call gdrcopy.preload() before other imports and without another "
                "libgdrapi in LD_PRELOAD"
            )
            raise Error(errno.EEXIST, f"another {name} was loaded before: {remedy}")
    load(PRELOAD, ctypes.RTLD_GLOBAL)


def preload_children() -> None:
    """Loads the library into programs that this process starts or becomes, by LD_PRELOAD."""
    file = path("lib", PRELOAD)
    if set(file) & set(" :$"):
        remedy = "install into a path without blanks, colons and dollar signs, or call gdrcopy.preload() in the script"
        raise Error(errno.EINVAL, f"LD_PRELOAD cannot name {file}: {remedy}")
    os.environ["LD_PRELOAD"] = ":".join([file, *filter(None, [os.environ.get("LD_PRELOAD")])])
