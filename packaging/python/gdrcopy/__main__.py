"""python -m gdrcopy COMMAND"""

import os
import re
import shutil
import sys
from pathlib import Path
from typing import List, NoReturn

from . import __version__
from ._error import Error
from ._native import driver
from ._preload import LIBRARY, path, preload_children

# These tools no longer exist. The program gdrcopy prints what to use instead.
REMOVED_TOOLS = ("checkpoint", "suspend", "resume")
TOOLS = ("doctor", "copybw", "copylat", "compare", "apiperf", "pplat", "tune", "trace", "ps")
USAGE = f"""usage: python -m gdrcopy run [python option ...] script.py [argument ...]
       python -m gdrcopy run program [argument ...]
       python -m gdrcopy info | bench
       python -m gdrcopy {" | ".join(TOOLS)} [option ...]

run: runs the script, or a program by its name such as torchrun, with the libgdrapi of this package in place of any
other, in its child processes too. info: prints the library, the driver and how they work together. bench: measures the
calls of this package. The others are the tools of the program gdrcopy, with the libgdrapi that run gives to programs;
doctor finds out why GDRCopy does not work."""


def interpreter_options() -> List[str]:
    """Returns the options before -m gdrcopy. sys.orig_argv exists since Python 3.10 only, so the command line is read."""
    line = os.fsdecode(Path("/proc/self/cmdline").read_bytes())
    match = re.search(r"\0((?:[^\0]*\0)*?)(-[a-zA-Z]*)m\0?gdrcopy", line)  # -m gdrcopy, or -Om gdrcopy
    if match is None:
        return []
    words, flags = match[1].split("\0")[:-1], match[2]
    return words if flags == "-" else [*words, flags]


def run(arguments: List[str]) -> NoReturn:
    preload_children()
    if "NCCL_GDRCOPY_ENABLE" not in os.environ:
        print("gdrcopy: NCCL uses GDRCopy only with NCCL_GDRCOPY_ENABLE=1, which is not set", file=sys.stderr)
    name = arguments[0]
    # The program is searched in PATH, as by a shell. But a script in the working directory needs no ./ before its name.
    if name[0] != "-" and "/" not in name and not os.path.isfile(name) and shutil.which(name):
        os.execvp(name, arguments)
    os.execv(sys.executable, [sys.executable, *interpreter_options(), *arguments])


def tool(arguments: List[str]) -> NoReturn:
    program = path("bin", "gdrcopy")
    preload_children()
    os.execv(program, [program, *arguments])


def info() -> None:
    print(f"gdrcopy {__version__}, Python {sys.version.split()[0]}")
    print(f"library: {path('lib', LIBRARY)}")
    version, uses_dma_bufs, is_persistent = driver()
    print("driver: none, dma-bufs of CUDA" if uses_dma_bufs else f"driver: gdrdrv {version}")
    print("freed memory:", "stays until its mapping is closed" if is_persistent else "ends its mapping")
    print("NCCL_GDRCOPY_ENABLE:", os.environ.get("NCCL_GDRCOPY_ENABLE", "not set, so NCCL does not use GDRCopy"))


def main() -> int:
    command, *arguments = sys.argv[1:] or [""]
    if command in ("-h", "--help"):
        print(USAGE)
        return 0
    try:
        if command == "run" and arguments and arguments[0]:
            run(arguments)
        if command in TOOLS or command in REMOVED_TOOLS:
            tool([command, *arguments])
        if command == "info" and not arguments:
            info()
            return 0
        if command == "bench" and not arguments:
            from . import _bench

            _bench.main()
            return 0
    except Error as error:
        print(f"gdrcopy: {error.strerror}", file=sys.stderr)
        return 1
    print(USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
