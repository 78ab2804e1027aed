"""python -m gdrcopy run script.py [argument ...]"""

import os
import sys

from ._library import path

USAGE = """usage: python -m gdrcopy run [python option ...] script.py [argument ...]

Runs the script with the libgdrapi of this package in place of any other, in its child processes too."""


def main() -> int:
    command, arguments = sys.argv[1:2], sys.argv[2:]
    if command in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if command != ["run"] or not arguments:
        print(USAGE, file=sys.stderr)
        return 2
    # The object for the name libgdrapi.so needs the library by its other name: the loader then has both.
    library = path("libgdrapi.so")
    if set(library) & set(" :"):
        print(
            f"gdrcopy: LD_PRELOAD cannot name {library}: install into a path without blanks and colons, "
            "or call gdrcopy.preload() in the script",
            file=sys.stderr,
        )
        return 1
    os.environ["LD_PRELOAD"] = ":".join(filter(None, (library, os.environ.get("LD_PRELOAD"))))
    os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    sys.exit(main())
