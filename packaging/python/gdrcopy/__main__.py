"""python -m gdrcopy run script.py [argument ...]"""

import os
import re
import sys
from pathlib import Path
from typing import List

from ._error import Error
from ._preload import preload_children

USAGE = """usage: python -m gdrcopy run [python option ...] script.py [argument ...]

Runs the script with the libgdrapi of this package in place of any other, in its child processes too."""


def interpreter_options() -> List[str]:
    """The options before -m gdrcopy. Only the command line has them all (sys.orig_argv: since Python 3.10)."""
    line = os.fsdecode(Path("/proc/self/cmdline").read_bytes())
    match = re.search(r"\0((?:[^\0]*\0)*?)(-[a-zA-Z]*)m\0?gdrcopy", line)  # -m, or -Om
    if match is None:
        return []
    words, flags = match[1].split("\0")[:-1], match[2]
    return words if flags == "-" else [*words, flags]


def main() -> int:
    command, arguments = sys.argv[1:2], sys.argv[2:]
    if command in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if command != ["run"] or not arguments:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        preload_children()
    except Error as error:
        print(f"gdrcopy: {error.strerror}", file=sys.stderr)
        return 1
    os.execv(sys.executable, [sys.executable, *interpreter_options(), *arguments])


if __name__ == "__main__":
    sys.exit(main())
