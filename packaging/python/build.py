#!/usr/bin/env python3
"""Makes the wheel gdrcopy from the package next to this file, the library and the program. Prints the wheel's path.

    packaging/python/build.py LIBRARY PROGRAM OUTPUT_DIRECTORY

The same files and SOURCE_DATE_EPOCH (1980 if unset) give the same bytes. Needs a C compiler (CC) and objdump (OBJDUMP)
for the library's arch.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SONAME = "libgdrapi.so.2"
# By e_machine of the ELF header; all are little-endian.
ARCHES = {21: "ppc64le", 62: "x86_64", 183: "aarch64"}
ZIP_EPOCH = 315532800  # 1980, the oldest date that zip files can have
LICENSES = ["LICENSE-APACHE", "LICENSE-MIT"]


def version() -> str:
    match = re.search(r'^__version__ = "(.*)"$', (HERE / "gdrcopy/__init__.py").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def platform_tag(objects: list[Path]) -> str:
    """manylinux with the newest glibc version that a symbol of an object needs; 2.17 is the oldest there is."""
    symbols = subprocess.check_output([os.environ.get("OBJDUMP", "objdump"), "-T", *objects], text=True)
    minor = max(17, *(int(number) for number in re.findall(r"\(GLIBC_2\.(\d+)", symbols)))
    e_machine = int.from_bytes(objects[0].read_bytes()[18:20], "little")
    return f"manylinux_2_{minor}_{ARCHES[e_machine]}"


def compile_object(name: str, *arguments: str, directory: Path) -> Path:
    command = [*os.environ.get("CC", "cc").split(), "-shared", "-Wl,--build-id=none", *arguments, "-o", name]
    subprocess.run(command, cwd=directory, check=True)
    return directory / name


def alias(directory: Path) -> Path:
    """An empty object with the name libgdrapi.so, which needs the library in the directory, from its own directory (by
    DT_RPATH: LD_LIBRARY_PATH would come before a RUNPATH). A second copy of the library would have a second state."""
    options = "-nostdlib -x c /dev/null -x none -Wl,-soname,libgdrapi.so -Wl,--no-as-needed".split()
    run_path = "-Wl,--disable-new-dtags -Wl,-rpath,$ORIGIN".split()
    return compile_object("libgdrapi.so", *options, SONAME, *run_path, directory=directory)


def native(directory: Path) -> Path:
    """The extension module, for the stable ABI of CPython 3.9 and later."""
    options = "-std=gnu11 -D_GNU_SOURCE -O2 -fPIC -fvisibility=hidden -Wall -Wextra -s".split()
    sources = [f"-I{ROOT / 'include'}", str(HERE / "native.c")]
    return compile_object("_native.abi3.so", *options, *sources, directory=directory)


def contents(library: Path, program: Path) -> tuple[str, dict[str, bytes]]:
    """The wheel's tag, and its files."""
    info = f"gdrcopy-{version()}.dist-info"
    sources = [path for path in (HERE / "gdrcopy").iterdir() if path.suffix in (".py", ".pyi", ".typed")]
    files = {f"gdrcopy/{path.name}": path.read_bytes() for path in sources}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / SONAME).write_bytes(library.read_bytes())
        files[f"gdrcopy/lib/{SONAME}"] = library.read_bytes()
        files["gdrcopy/lib/libgdrapi.so"] = alias(directory).read_bytes()
        files["gdrcopy/bin/gdrcopy"] = program.read_bytes()
        files["gdrcopy/_native.abi3.so"] = native(directory).read_bytes()
        tag = f"cp39-abi3-{platform_tag([library, program, directory / '_native.abi3.so'])}"
    licenses = "".join(f"License-File: {name}\n" for name in LICENSES)
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.4\nName: gdrcopy\nVersion: {version()}\n"
        "Summary: Low-latency CPU access to NVIDIA GPU memory, with libgdrapi\n"
        f"License-Expression: MIT OR Apache-2.0\n{licenses}Requires-Python: >=3.9\n"
        "Classifier: Operating System :: POSIX :: Linux\nClassifier: Typing :: Typed\n"
        "Description-Content-Type: text/markdown\n\n" + (HERE / "README.md").read_text()
    ).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: gdrapi\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    for name in LICENSES:
        files[f"{info}/licenses/{name}"] = (ROOT / name).read_bytes()
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in sorted(files.items()))
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    return tag, files


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main() -> None:
    library, program, output = map(Path, sys.argv[1:])
    date = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), ZIP_EPOCH))[:6]
    tag, files = contents(library, program)
    wheel = output / f"gdrcopy-{version()}-{tag}.whl"
    output.mkdir(parents=True, exist_ok=True)
    partial = wheel.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if data.startswith(b"\x7fELF") else 0o100644) << 16
            archive.writestr(entry, data)
    partial.replace(wheel)
    print(wheel)


main()
