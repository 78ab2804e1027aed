#!/usr/bin/env python3
"""functions.py HEADERS LIBRARY NAME=PATH...: lists which functions of CUDA and NVML programs name, and which of these
gdremu has.

HEADERS is a directory with cuda.h, cuda_runtime_api.h and nvml.h. LIBRARY is libgdremu_cuda.so. A PATH is a file, a
directory, or a list of functions, separated by commas. In a source file, calls and quoted names count. In a binary, all
texts that are the name of a function count. So a binary that contains NVIDIA's CUDA runtime names all functions that
the runtime looks up.

Prints a line for each NAME, with tabs between the columns: how many functions it names, how many of these gdremu has,
how many it refuses by name, how many it lacks, whether the CUDA runtime is linked in, and the names that are refused or
missing.
"""

import re
import subprocess
import sys
from pathlib import Path

FUNCTION = re.compile(rb"\b(?:cu[A-Z]|cuda[A-Z]|nvml[A-Z])\w+")
CALL = re.compile(rb"""(?:\b|")((?:cu[A-Z]|cuda[A-Z]|nvml[A-Z])\w+)(?:\s*\(|")""")
SOURCES = {".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".m4", ".py", ".pyx", ".pxd", ".rs"}


def declared(headers: Path) -> tuple[set[str], dict[str, str]]:
    """Returns the names of the headers' functions, and for names that are macros the symbols for which they stand."""
    functions, symbols = set(), {}
    for header in headers.rglob("*.h"):
        if header.name not in ("cuda.h", "cuda_runtime_api.h", "nvml.h"):
            continue
        text = header.read_text(errors="replace")
        functions.update(re.findall(r"(?:CUDAAPI|CUDARTAPI(?:_CDECL)?|DECLDIR)\s+(\w+)\s*\(", text))
        macro = r"#define (cu[A-Z]\w+|nvml[A-Z]\w+)\s+(?:__CUDA_API_PT[DS]S?Z?\()?(\w+_v\d+)\)?\s*$"
        symbols.update(re.findall(macro, text, re.MULTILINE))
    return functions | set(symbols), symbols


def refused(source: str) -> set[str]:
    """Returns the names of the functions that the macro `refused!` in missing.rs defines."""
    names = set()
    for block in re.findall(r"^refused! \{\n(.*?)^\}", source, re.MULTILINE | re.DOTALL):
        for rule in block.split(";"):
            begins, _, ends = rule.partition(":")
            for end, suffixes in re.findall(r"(\w+)(?:\(([\w\s]*)\))?", ends):
                for begin in re.findall(r'"(\w+)"', begins):
                    names.update(begin + end + suffix for suffix in ["", *suffixes.split()])
    return names


def exported(library: str) -> set[str]:
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in lines.splitlines()}


def named(path: Path) -> tuple[set[str], bool]:
    """Returns the names in a file, or in all files below a directory, that may be functions, and whether a file
    contains the CUDA runtime."""
    names, has_runtime = set(), False
    for file in [path] if path.is_file() else path.rglob("*"):
        # Directories named "sys" have bindings, which declare functions and do not call them.
        if not file.is_file() or file.is_symlink() or "sys" in file.parts[-3:-1]:
            continue
        bytes = file.read_bytes()
        if file.suffix in SOURCES:
            names.update(name.decode() for name in CALL.findall(bytes))
        elif bytes.startswith((b"\x7fELF", b"!<arch>")):
            names.update(name.decode() for name in FUNCTION.findall(bytes))
            has_runtime |= b"cuGetExportTable" in bytes and b"cudart" in bytes and b"libcuda.so.1" in bytes
    return names, has_runtime


def main() -> None:
    headers, library, *consumers = sys.argv[1:]
    functions, symbols = declared(Path(headers))
    root = Path(__file__).resolve().parents[2]
    refusals = refused((root / "gdremu/cuda/src/missing.rs").read_text())
    has = exported(library)
    for consumer in consumers:
        name, _, place = consumer.partition("=")
        found, has_runtime = (set(place.split(",")), False) if "/" not in place else named(Path(place))
        wanted = {symbols.get(function, function) for function in found & functions}
        missing = wanted - has
        by_name = wanted & refusals
        print(name, len(wanted), len(wanted - missing - by_name), len(by_name), len(missing),
              "CUDA runtime" if has_runtime else "-", "refused: " + " ".join(sorted(by_name)),
              "missing: " + " ".join(sorted(missing)), sep="\t")


if __name__ == "__main__":
    main()
