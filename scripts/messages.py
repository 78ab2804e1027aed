#!/usr/bin/env python3
"""Makes docs/data/messages.txt, a list of the messages that programs and the kernel print when something of GDRCopy
fails. The messages come from the sources or binaries of these programs. ci/scripts/check-messages.sh looks for each of
them in docs/troubleshooting.md.

    scripts/messages.py [CACHE]        (default: ~/.cache/gdrapi-messages)

Fetches Debian's source packages by apt-get, wheels by pip, and the UCX release that a crate contains by cargo. In the
list, … stands for a value that a program prints. Messages that only other versions of the programs have are not in the
list, but some of them are in docs/troubleshooting.md. PyTorch has no messages of its own: no file of its wheel 2.7.1
for CPUs names GDRCopy. This script reads NCCL and NVSHMEM, which PyTorch uses.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(sys.argv[1] if len(sys.argv) > 1 else Path.home() / ".cache/gdrapi-messages").resolve()

# These patterns choose some messages of programs that have many. They choose those about building, loading and opening,
# and those of the functions that GDRCopy's users call first.
DKMS = r"headers|make\.log|BUILD_EXCLUSIVE|build of module|module build|already (added|installed|built)|is broken|modules won't be signed|BUILD_DEPENDS|Missing module"
KERNEL = r"GPL-only symbols|Unknown symbol|disagrees about version|no symbol version|version magic|is rejected|out-of-tree module|module license"
MODPROBE = r"could not (insert|load|remove)|not found|is in use|not currently loaded|is builtin"
LOADER = (
    r"cannot open shared|version .* not found|be preloaded|static TLS|failed to map|wrong ELF class|invalid ELF header"
    r"|file too short|undefined symbol|executable stack|symbol lookup error|while loading shared"
)
CUDA = (
    r"not yet initialized|display driver|no CUDA-capable|forward compatibility|MPS (client failed|server is not)|insufficient for CUDA runtime"
    r"|OS call failed|busy or unavailable|stub library|valid Grid license|^initialization error|uncorrectable ECC|integrity checks"
)
UCX_CORE = r"mem type domain|not available, please|no value configured for key|Failed to read iface|Invalid value for …|failed to register address|unused environment"
# These messages report no failure.
FINE = r"^GDRCOPY enabled library|GDR driver version|library version: |symbols found|usage is|mapping enabled using|enabled using NCCL|and is available|either not specified|Coherent platform detected|is EGM|handler will be|unused by transport"


def run(*command: str, cwd: Path | None = None) -> str:
    return subprocess.run(command, check=True, cwd=cwd, stdout=subprocess.PIPE, text=True).stdout


def debian(package: str, version: str) -> Path:
    """Returns the directory with the sources of a Debian package. apt gets a configuration that is only for this
    script, with the releases that have the packages."""
    apt = CACHE / "apt"
    if not apt.exists():
        (apt / "lists/partial").mkdir(parents=True)
        (apt / "cache/archives/partial").mkdir(parents=True)
        mirror = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main").split()[0]
        key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
        (apt / "sources.list").write_text("".join(f"deb-src {key} {mirror} {suite} main\n" for suite in ("sid", "trixie", "bookworm")))
        lines = [f'Dir::Etc::sourcelist "{apt}/sources.list";', 'Dir::Etc::sourceparts "/dev/null";', f'Dir::State::lists "{apt}/lists";']
        lines += [f'Dir::Cache "{apt}/cache";', 'APT::Sandbox::User "";']
        (apt / "apt.conf").write_text("\n".join(lines))
        run("env", f"APT_CONFIG={apt}/apt.conf", "apt-get", "-qq", "update")
    directory = CACHE / f"{package}-{version}"
    if not directory.exists():
        directory.mkdir()
        run("env", f"APT_CONFIG={apt}/apt.conf", "apt-get", "-qq", "source", "--download-only", "--tar-only", f"{package}={version}", cwd=directory)
        run("sh", "-c", "tar -xf *.orig.tar.* --strip-components 1 && rm *.orig.tar.*", cwd=directory)
    return directory


def linux(package: str) -> Path:
    """Returns the directory with the sources of the kernel's module loader, from Debian's package of kernel sources."""
    directory = CACHE / package
    if not directory.exists():
        directory.mkdir()
        run("apt-get", "-qq", "-o", "APT::Sandbox::User=", "download", package, cwd=directory)
        tar = f"dpkg-deb --fsys-tarfile *.deb | tar -xO ./usr/src/{package}.tar.xz | tar -xJ --strip-components 1 --wildcards '*/kernel/module/*.c'"
        run("bash", "-o", "pipefail", "-c", f"{tar} && rm *.deb", cwd=directory)
    return directory


def wheel(package: str, version: str) -> Path:
    directory = CACHE / f"{package}-{version}"
    if not directory.exists():
        run(sys.executable, "-m", "pip", "-q", "download", "--no-deps", "-d", str(directory), f"{package}=={version}")
        run("sh", "-c", "unzip -qo *.whl '*.so*' && rm *.whl", cwd=directory)
    return directory


def ucx() -> Path:
    """Returns the directory with the sources of the UCX release that ci/consumers/ucx.sh builds."""
    directory = CACHE / "ucx-1.22.0"
    if not directory.exists():
        fetch = CACHE / "fetch"
        (fetch / "src").mkdir(parents=True, exist_ok=True)
        (fetch / "src/lib.rs").touch()
        (fetch / "Cargo.toml").write_text(
            '[workspace]\n[package]\nname = "fetch"\n[dependencies]\nucx-rs = { version = "=0.1.0", default-features = false }\n'
        )
        run("cargo", "vendor", "--quiet", cwd=fetch)
        directory.mkdir()
        run("tar", "-xf", str(fetch / "vendor/ucx-rs/vendor/ucx-1.22.0.tar.gz"), "-C", str(directory), "--strip-components", "1")
    return directory


def literals(files: Iterator[Path], call: str) -> Iterator[str]:
    """Yields the first string of each call. Adjacent literals are joined, as C joins them."""
    for file in files:
        text = re.sub(r'" *(?:PRI|SCN)[a-zA-Z0-9]+ *"', "d", file.read_text(errors="replace"))
        for found in re.finditer(rf'\b(?:{call})\s*\((?:[^";]|\n)*?((?:"(?:[^"\\]|\\.)*"\s*)+)', text):
            yield "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', found[1]))


def strings(files: Iterator[Path]) -> Iterator[str]:
    """Yields the printable texts of at least eight bytes in binaries."""
    for file in files:
        for found in re.findall(rb"[\t\n\x20-\x7e]{8,}", file.read_bytes()):
            yield found.decode()


def quoted(file: Path) -> Iterator[str]:
    """Yields the strings in double quotes of a shell script."""
    yield from re.findall(r'"((?:[^"\\]|\\.)*)"', file.read_text())


def as_printed(message: str) -> str:
    """Returns the first line of the message, as it is printed. Values (formats of C or variables of the shell) become
    …, and values at the ends of the line are left out."""
    message = message.replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"').strip().split("\n")[0]
    message = re.sub(r"%\*?[-+#0-9.*]*(?:hh|h|ll|l|z|j|t)?[a-zA-Z]", "…", message)
    message = re.sub(r"\$\{[^}]*\}|\$\([^)]*\)|\$[a-zA-Z_0-9]+", "…", message)
    message = re.sub(r"…(?:[\s/]*…)+", "…", message)
    return re.sub(r"^[… :]+(?:\(\):… )?|[… \t]+$", "", message)


def select(messages: Iterator[str], wanted: str, unwanted: str = FINE) -> list[str]:
    printed = {as_printed(message) for message in messages}
    chosen = {text for text in printed if " " in text and re.search(wanted, text) and not re.search(unwanted, text)}
    # A message that is a part of a longer one is left out, because a document with the longer one contains both.
    return sorted((text for text in chosen if not any(other != text and text in other for other in chosen)), key=str.casefold)


def collect() -> Iterator[tuple[str, list[str]]]:
    plugin = "src/uct/cuda/gdr_copy"
    logs = r"ucs_(?:error|warn|diag|debug|fatal|log|string_buffer_appendf)|uct_md_log_mem_\w+"
    for title, source in (("UCX 1.22.0", ucx()), ("UCX 1.13.1", debian("ucx", "1.13.1-1"))):
        yield f"{title}, gdr_copy", select(literals(source.glob(f"{plugin}/*.c"), logs), ".")
        yield title, select(literals(source.glob("src/uc?/**/*.c"), logs), UCX_CORE)
    libraries = wheel("nvidia-nccl-cu13", "2.32.3").glob("**/libnccl.so.*")
    yield "NCCL 2.32.3", select(strings(libraries), r"(?i)gdr_?copy|gdr_\w+\(|in gdr_|libgdrapi|gdr_pin_buffer|internal DMA-BUF|^GIN is un", rf"{FINE}|::|\w\(void|_t\b.*\)$")
    libraries = wheel("nvidia-nvshmem-cu13", "3.8.0").glob("**/*.so.*")
    yield "NVSHMEM 3.8.0", select(strings(libraries), r"(?i)gdr_?copy|in gdr_|libgdrapi|GPU CPU mapping", rf"{FINE}|::|VERSION=|_t\b.*\)$|^GDRCopy library$")
    libfabric = debian("libfabric", "2.1.0-1.1")
    files = [libfabric / "src/hmem_cuda_gdrcopy.c", *libfabric.glob("prov/efa/src/**/*.c"), *libfabric.glob("prov/opx/src/*.c")]
    calls = r"FI_(?:WARN|INFO|DBG|LOG)|EFA_(?:WARN|INFO)|fprintf"
    yield "libfabric 2.1.0", select(literals(iter(files), calls), r"(?i)gdr")
    dpdk = debian("dpdk", "22.11.11-0+deb12u1")
    yield "DPDK 22.11.11", select(literals(dpdk.glob("drivers/gpu/cuda/*.c"), "rte_cuda_log"), r"(?i)gdr ?copy")
    yield "DKMS 3.2.2", select(quoted(debian("dkms", "3.2.2-1") / "dkms.in"), DKMS, "^DKMS|^for module|^Please install")
    kmod = debian("kmod", "34.2-2")
    yield "kmod 34.2", select(literals(kmod.glob("tools/*mod*.c"), "ERR|WRN|LOG|SHOW|log_printf"), MODPROBE)
    kernel = linux("linux-source-6.1")
    yield "Linux 6.1", select(literals(kernel.glob("kernel/module/*.c"), r"pr_\w+"), KERNEL)
    yield "ld.so of glibc", select(strings(Path("/lib64").glob("ld-linux-x86-64.so.2")), LOADER, "^weak")
    cuda = wheel("nvidia-cuda-runtime", "13.5.37").glob("**/libcudart.so.*")
    yield "CUDA 13.5", select(strings(cuda), CUDA)


def main() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    lines = ["# Made by scripts/messages.py. ci/scripts/check-messages.sh looks for each line in docs/troubleshooting.md."]
    for title, messages in collect():
        assert messages, f"no message of {title}: its sources have changed"
        lines += ["", f"# {title}", *messages]
    (ROOT / "docs/data/messages.txt").write_text("\n".join(lines) + "\n")


main()
