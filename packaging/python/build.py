#!/usr/bin/env python3
"""Makes the wheel gdrcopy from the package next to this file, the library, the program and the extension modules; or the
source distribution from a release tarball. Prints the path of the file that it made. pyproject.toml names this file as the
build backend, for pip.

    packaging/python/build.py wheel LIBRARY PROGRAM EXTENSION_DIRECTORY OUTPUT_DIRECTORY
    packaging/python/build.py sdist TARBALL OUTPUT_DIRECTORY

The same files and SOURCE_DATE_EPOCH (1980 if unset) give the same bytes. A wheel needs an objdump for the
library's arch, which OBJDUMP can name. One wheel serves all versions of CPython; maturin would make one for each ABI.
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
LIBRARY = "libgdrapi.so"  # The library has this name in the wheel, because libgdrapi-preload.so needs it by this name.
PRELOAD = "libgdrapi-preload.so"
TRACER = "lib/gdrcopy"  # `gdrcopy trace` looks for its objects in this directory, beside bin.
# The names of arches in wheel tags, by e_machine of the ELF header. All these arches are little-endian.
ARCHES = {21: "ppc64le", 62: "x86_64", 183: "aarch64"}
DATE = max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)  # zip files have no dates before 1980
LICENSES = ["LICENSE-APACHE", "LICENSE-MIT"]
METADATA = """\
Metadata-Version: 2.4
Name: gdrcopy
Version: {version}
Summary: Low-latency CPU access to NVIDIA GPU memory, with libgdrapi
Author: gdrapi contributors
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-APACHE
License-File: LICENSE-MIT
Keywords: GDRCopy,GPU,CUDA,GPUDirect RDMA,BAR1,NCCL,NVSHMEM,UCX
Requires-Python: >=3.9
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: Implementation :: CPython
Classifier: Programming Language :: Rust
Classifier: Topic :: System :: Hardware
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{readme}"""


def version() -> str:
    match = re.search(r'^__version__ = "(.*)"$', (HERE / "gdrcopy/__init__.py").read_text(), re.MULTILINE)
    assert match is not None
    return match[1]


def metadata() -> bytes:
    return METADATA.format(version=version(), readme=(HERE / "README.md").read_text()).encode()


def platform_tag(objects: list[Path]) -> str:
    """Returns the manylinux tag of the newest glibc that symbols of the objects need. The oldest tag is 2.17."""
    symbols = subprocess.check_output([os.environ.get("OBJDUMP", "objdump"), "-T", *objects], text=True)
    minor = max(17, *(int(number) for number in re.findall(r"\(GLIBC_2\.(\d+)", symbols)))
    e_machine = int.from_bytes(objects[0].read_bytes()[18:20], "little")
    return f"manylinux_2_{minor}_{ARCHES[e_machine]}"


# The minor version of the first CPython that loads the module with the stable ABI.
STABLE_ABI = 11


def contents(library: Path, program: Path, extensions: Path) -> tuple[str, dict[str, bytes]]:
    """Returns the wheel's tag, and its files by name."""
    info = f"gdrcopy-{version()}.dist-info"
    sources = [path for path in (HERE / "gdrcopy").iterdir() if path.suffix in (".py", ".pyi", ".typed")]
    modules = sorted(extensions.glob("_native.*.so"))
    assert modules, "extension modules are missing: make extension"
    tracer = sorted((program.parent.parent / TRACER).iterdir())
    files = {f"gdrcopy/{path.name}": path.read_bytes() for path in [*sources, *modules]}
    files.update((f"gdrcopy/{TRACER}/{path.name}", path.read_bytes()) for path in tracer)
    files.update((f"{info}/licenses/{name}", (ROOT / name).read_bytes()) for name in LICENSES)
    files["gdrcopy/bin/gdrcopy"] = program.read_bytes()
    files[f"gdrcopy/lib/{LIBRARY}"] = library.read_bytes()
    files[f"gdrcopy/lib/{PRELOAD}"] = library.with_name(PRELOAD).read_bytes()
    # The tag names the oldest CPython for which there is a module. A newer CPython accepts the wheel too, and loads its module.
    versions = [re.search(r"cpython-3(\d+)", module.name) for module in modules]
    oldest = min(int(version[1]) if version else STABLE_ABI for version in versions)
    tag = f"cp3{oldest}-abi3-{platform_tag([library, program, *tracer, *modules])}"
    files[f"{info}/METADATA"] = metadata()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: gdrapi\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in sorted(files.items()))
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    return tag, files


def finish(data: io.BytesIO, output: Path) -> Path:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(data.getvalue())
    return output


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def wheel(library: Path, program: Path, extensions: Path, output: Path) -> Path:
    tag, files = contents(library, program, extensions)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, time.gmtime(DATE)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if content.startswith(b"\x7fELF") else 0o100644) << 16
            archive.writestr(entry, content)
    return finish(data, output / f"gdrcopy-{version()}-{tag}.whl")


def sdist(tarball: Path, output: Path) -> Path:
    """Makes the source distribution: the release tarball with PKG-INFO, in a directory named as pip expects."""
    root = f"gdrcopy-{version()}"
    data = io.BytesIO()
    info = tarfile.TarInfo(f"{root}/PKG-INFO")
    info.size, info.mtime, info.mode = len(metadata()), DATE, 0o644
    with gzip.GzipFile("", "wb", fileobj=data, mtime=DATE) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(info, io.BytesIO(metadata()))
        with tarfile.open(tarball) as release:
            for member in release:
                member.name = root + member.name[member.name.index("/") :] if "/" in member.name else root
                archive.addfile(member, release.extractfile(member) if member.isfile() else None)
    return finish(data, output / f"{root}.tar.gz")


def build_wheel(directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """Makes the wheel for pip, which may read the standard output."""
    subprocess.run(["make", "-C", str(ROOT), "wheel_parts"], check=True, stdout=sys.stderr)
    build = ROOT / "build"
    return wheel(build / "lib" / LIBRARY, build / "program/bin/gdrcopy", build / "extension", Path(directory)).name


def build_sdist(directory: str, config_settings: object = None) -> str:
    """Makes the source distribution for build frontends. Needs a clone of the repository, and packs its HEAD."""
    with tempfile.TemporaryDirectory() as name:
        tarball = Path(name, "release.tar.gz")
        command = ["git", "-C", str(ROOT), "-c", "tar.umask=0022", "archive", "--prefix=release/", "-o", str(tarball), "HEAD"]
        subprocess.run(command, check=True)
        return sdist(tarball, Path(directory)).name


if __name__ == "__main__":
    print({"wheel": wheel, "sdist": sdist}[sys.argv[1]](*map(Path, sys.argv[2:])))
