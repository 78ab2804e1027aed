"""CPU access to NVIDIA GPU memory through PCIe BAR1, by the libgdrapi in this package.

Mapping reads and writes GPU memory. preload() makes NCCL, NVSHMEM, UCX and others in this process use this package's
library; `python -m gdrcopy run script.py` does so for a whole program. Importing loads nothing.
"""

from ._error import Error
from ._mapping import Mapping
from ._preload import preload

__all__ = ["Error", "Mapping", "preload"]
__version__ = "2.6.0"
