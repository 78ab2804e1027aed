"""Errors of the libraries as exceptions."""

from __future__ import annotations

import errno
import os
from typing import Dict, Tuple

REMEDIES: Dict[Tuple[str, int], str] = {
    ("gdr_open", errno.ENOENT): "load the kernel module gdrdrv (into a container pass --device=/dev/gdrdrv), or use a "
    "GPU driver that serves CUDA 13.3 or later; GDRCOPY_ENABLE_LOGGING=1 logs what is missing",
    ("gdr_open", errno.EACCES): "make /dev/gdrdrv readable and writable for this user",
    ("gdr_open", errno.EPERM): "pass --device=/dev/gdrdrv to the container",
    ("gdr_open", errno.EMFILE): "raise the limit of open files (ulimit -n) or close some",
    ("gdr_pin_buffer_v2", errno.EINVAL): "pass device memory of this process that can be used for GPUDirect RDMA: "
    "not host, managed or freed memory, nor memory from cuMemCreate without gpuDirectRDMACapable or from several calls "
    "of it, as PyTorch's may be with expandable_segments:True in PYTORCH_CUDA_ALLOC_CONF",
    ("gdr_pin_buffer_v2", errno.ENOMEM): "close other mappings: BAR1 of the GPU may be full",
    ("gdr_pin_buffer_v2", errno.EMFILE): "raise the limit of open files (ulimit -n) or close other mappings",
    ("gdr_pin_buffer_v2", errno.EOPNOTSUPP): "this GPU does not support it; without force_pcie it may",
    ("gdr_map", errno.EAGAIN): "keep the GPU memory allocated while it is mapped",
    ("gdr_map", errno.ENOMEM): "raise the limit of address space (ulimit -v) or close other mappings",
    ("gdr_get_callback_flag", errno.EFAULT): "the GPU memory was freed; keep it allocated while it is mapped",
}
INHERITED = "mappings belong to the process that made them: make one after the fork"
# CUDA does not work in the child of a process that used it, and no memory of the parent can be pinned there.
FORKED_AFTER_USE = "; the memory of this process's parent cannot be used after a fork, nor can CUDA: start it by spawn"
LOG = "set GDRCOPY_ENABLE_LOGGING=1 to log the reason on stderr"

forked_after_use = False


class Error(OSError):
    """A function of libgdrapi or libgdrx failed: errno, and in remedy what to do."""

    remedy: str

    def __init__(self, number: int, message: str, remedy: str = "") -> None:
        super().__init__(number, f"{message}; {remedy}" if remedy else message)
        self.remedy = remedy


def check(function: str, number: int) -> None:
    """Raises Error if the function's result is an errno value."""
    if number != 0:
        remedy = REMEDIES.get((function, number), INHERITED if number == errno.EACCES else LOG)
        if forked_after_use and (function, number) == ("gdr_pin_buffer_v2", errno.EINVAL):
            remedy += FORKED_AFTER_USE
        raise Error(number, f"{function}: {os.strerror(number)}", remedy)
