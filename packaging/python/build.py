#!/usr/bin/env python3
"""Makes the wheel gdrcopy from the package next to this file, the libraries and the program; or the source distribution from
a release tarball. Prints the path of what it made. Also the build backend of pyproject.toml, for pip.

    packaging/python/build.py wheel LIBRARY PROGRAM OUTPUT_DIRECTORY
    packaging/python/build.py sdist TARBALL OUTPUT_DIRECTORY

The same files and SOURCE_DATE_EPOCH (1980 if unset) give the same bytes. A wheel needs a C compiler (CC) and objdump
(OBJDUMP) for the libraries' arch.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SONAME = "libgdrapi.so.2"
COMPANION = "libgdrx.so.1"  # in the library's directory
TRACER = "lib/gdrcopy"  # beside the program's directory, where it looks for the objects
# By e_machine of the ELF header; all are little-endian.
ARCHES = {21: "ppc64le", 62: "x86_64", 183: "aarch64"}
ZIP_EPOCH = 315532800  # 1980, the oldest date that zip files can have
LICENSES = ["LICENSE-APACHE", "LICENSE-MIT"]
KEYWORDS = "GDRCopy,GPU,CUDA,GPUDirect RDMA,BAR1,NCCL,NVSHMEM,UCX"
CLASSIFIERS = [
    "Environment :: GPU :: NVIDIA CUDA",
    "Intended Audience :: Developers",
    "Intended Audience :: Science/Research",
    "Operating System :: POSIX :: Linux",
    "Programming Language :: C",
    "Programming Language :: Python :: 3",
    *(f"Programming Language :: Python :: 3.{minor}" for minor in range(9, 14)),
    "Programming Language :: Python :: Implementation :: CPython",
    "Programming Language :: Rust",
    "Topic :: Scientific/Engineering",
    "Topic :: System :: Distributed Computing",
    "Topic :: System :: Hardware",
    "Typing :: Typed",
]


def version() -> str:
    match = re.search(r'^__version__ = "(.*)"$', (HERE / "gdrcopy/__init__.py").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def metadata() -> bytes:
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", "gdrcopy"),
        ("Version", version()),
        ("Summary", "Low-latency CPU access to NVIDIA GPU memory, with libgdrapi"),
        ("Author", "gdrapi contributors"),
        ("License-Expression", "MIT OR Apache-2.0"),
        *(("License-File", name) for name in LICENSES),
        ("Keywords", KEYWORDS),
        ("Requires-Python", ">=3.9"),
        *(("Classifier", classifier) for classifier in CLASSIFIERS),
        ("Description-Content-Type", "text/markdown"),
    ]
    lines = "".join(f"{name}: {value}\n" for name, value in fields)
    return f"{lines}\n{(HERE / 'README.md').read_text()}".encode()


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
    companion = library.with_name(COMPANION)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / SONAME).write_bytes(library.read_bytes())
        files[f"gdrcopy/lib/{SONAME}"] = library.read_bytes()
        files[f"gdrcopy/lib/{COMPANION}"] = companion.read_bytes()
        files["gdrcopy/lib/libgdrapi.so"] = alias(directory).read_bytes()
        files["gdrcopy/bin/gdrcopy"] = program.read_bytes()
        tracer = sorted((program.parent.parent / TRACER).iterdir())
        files.update((f"gdrcopy/{TRACER}/{path.name}", path.read_bytes()) for path in tracer)
        files["gdrcopy/_native.abi3.so"] = native(directory).read_bytes()
        tag = f"cp39-abi3-{platform_tag([library, companion, program, *tracer, directory / '_native.abi3.so'])}"
    files[f"{info}/METADATA"] = metadata()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: gdrapi\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    for name in LICENSES:
        files[f"{info}/licenses/{name}"] = (ROOT / name).read_bytes()
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in sorted(files.items()))
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    return tag, files


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def date() -> int:
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), ZIP_EPOCH)


def finish(data: bytes, output: Path) -> Path:
    """Writes the file, completely or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f"{output.name}.partial")
    partial.write_bytes(data)
    return partial.replace(output)


def wheel(library: Path, program: Path, output: Path) -> Path:
    tag, files = contents(library, program)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, time.gmtime(date())[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if content.startswith(b"\x7fELF") else 0o100644) << 16
            archive.writestr(entry, content)
    return finish(data.getvalue(), output / f"gdrcopy-{version()}-{tag}.whl")


def sdist(tarball: Path, output: Path) -> Path:
    """The release tarball with PKG-INFO, and the names that pip expects."""
    root = f"gdrcopy-{version()}"
    data = io.BytesIO()
    info = tarfile.TarInfo(f"{root}/PKG-INFO")
    info.size, info.mtime, info.mode = len(metadata()), date(), 0o644
    with gzip.GzipFile("", "wb", fileobj=data, mtime=date()) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(info, io.BytesIO(metadata()))
        with tarfile.open(tarball) as release:
            for member in release:
                member.name = root + member.name[member.name.index("/") :] if "/" in member.name else root
                archive.addfile(member, release.extractfile(member) if member.isfile() else None)
    return finish(data.getvalue(), output / f"{root}.tar.gz")


def make(*arguments: str) -> None:
    # make's output belongs to the log, because a build frontend may read the standard
    # output.
    subprocess.run(["make", "-C", str(ROOT), *arguments], check=True, stdout=sys.stderr)


def build_wheel(directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """Called by pip."""
    make("wheel_parts")
    return wheel(ROOT / "build/lib" / SONAME, ROOT / "build/program/bin/gdrcopy", Path(directory)).name


def build_sdist(directory: str, config_settings: object = None) -> str:
    """Called by build frontends, in a clone of the repository."""
    with tempfile.TemporaryDirectory() as name:
        tarball = Path(name, "release.tar.gz")
        command = ["git", "-C", str(ROOT), "-c", "tar.umask=0022", "archive", "--prefix=release/", "-o", str(tarball), "HEAD"]
        subprocess.run(command, check=True)
        return sdist(tarball, Path(directory)).name


def main() -> None:
    makes = {"wheel": wheel, "sdist": sdist}
    print(makes[sys.argv[1]](*map(Path, sys.argv[2:])))


if __name__ == "__main__":
    main()
