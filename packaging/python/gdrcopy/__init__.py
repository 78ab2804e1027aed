"""CPU access to NVIDIA GPU memory through PCIe BAR1.

Mapping reads and writes GPU memory. preload() makes NCCL, NVSHMEM, UCX and others in this process use the libgdrapi in this
package; `python -m gdrcopy run script.py` does so for a whole program. Importing loads no library.
"""

from ._error import Error
from ._mapping import Mapping
from ._native import Word
from ._preload import preload

__all__ = ["Error", "Mapping", "Word", "preload"]
__version__ = "2.6.0"

# This makes tracebacks and signatures say gdrcopy.Error, the name that programs import, and not gdrcopy._error.Error.
Error.__module__ = Mapping.__module__ = preload.__module__ = __name__
