"""Which libgdrapi a process gets that loads it as NCCL, NVSHMEM or UCX do, while another one is installed."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import gdrcopy

BUNDLED = os.path.join(os.path.dirname(gdrcopy.__file__), "lib", "libgdrapi.so.2")

# Loads by the name in argv[1] and prints the file that dladdr reports for gdr_open; "linked": by an object that needs
# libgdrapi.so.2, such as UCX's.
LOADER = """
import ctypes, os, sys
name = os.environ["LINKED"] if sys.argv[1] == "linked" else sys.argv[1]
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("at", ctypes.c_void_p)]
info = Info()
dlsym = ctypes.CDLL(None).dlsym
dlsym.restype, dlsym.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
function = dlsym(ctypes.CDLL(name, os.RTLD_NOW | os.RTLD_LOCAL)._handle, b"gdr_open")
ctypes.CDLL(None).dladdr(ctypes.c_void_p(function), ctypes.byref(info))
print(os.fsdecode(info.file))
"""
PRELOAD = "import gdrcopy\ngdrcopy.preload()\n"
WAYS = ("libgdrapi.so", "libgdrapi.so.2", "linked")


class Preload(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.other = self.directory / "libgdrapi.so.2"
        self.compile("void *gdr_open(void) { return 0; }", self.other, "-Wl,-soname,libgdrapi.so.2")
        (self.directory / "libgdrapi.so").symlink_to(self.other.name)
        self.linked = self.directory / "libuses.so"
        self.compile("", self.linked, "-Wl,--no-as-needed", str(self.other))

    def compile(self, source: str, output: Path, *options: str) -> None:
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", *options, "-o", str(output)]
        subprocess.run(command, input=source, text=True, check=True)

    def python(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.directory), "LINKED": str(self.linked), **variables}
        return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)

    def found(self, *arguments: str) -> str:
        result = self.python(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return os.path.realpath(result.stdout.strip())

    def script(self, text: str) -> str:
        path = self.directory / "script.py"
        path.write_text(text)
        return str(path)

    def test_without_preload_the_other_library_is_found(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                self.assertEqual(self.found(self.script("import gdrcopy\n" + LOADER), way), os.path.realpath(self.other))

    def test_after_preload_the_bundled_library_is_found(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                self.assertEqual(self.found(self.script(PRELOAD + LOADER), way), os.path.realpath(BUNDLED))

    def test_run_makes_a_script_find_the_bundled_library(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                found = self.found("-m", "gdrcopy", "run", self.script(LOADER), way)
                self.assertEqual(found, os.path.realpath(BUNDLED))

    def test_run_reaches_child_processes(self) -> None:
        self.script(LOADER)
        parent = self.directory / "parent.py"
        parent.write_text("import subprocess, sys\nsubprocess.run([sys.executable, *sys.argv[1:]], check=True)\n")
        found = self.found("-m", "gdrcopy", "run", str(parent), str(self.directory / "script.py"), "libgdrapi.so")
        self.assertEqual(found, os.path.realpath(BUNDLED))

    def test_run_passes_arguments_and_exit_status(self) -> None:
        result = self.python(
            "-m", "gdrcopy", "run", self.script("import sys\nprint(sys.argv[1:])\nsys.exit(7)"), "--epochs", "3"
        )
        self.assertEqual((result.returncode, result.stdout), (7, "['--epochs', '3']\n"))

    def test_run_without_a_script_prints_its_usage(self) -> None:
        result = self.python("-m", "gdrcopy", "run")
        self.assertEqual(result.returncode, 2)
        self.assertIn("usage: python -m gdrcopy run", result.stderr)

    def test_preload_after_another_library_fails_with_a_remedy(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                result = self.python(self.script(LOADER + PRELOAD), way)
                self.assertIn(f"was loaded before, from {self.directory}", result.stderr)
                self.assertIn("call gdrcopy.preload() before other imports", result.stderr)

    def test_preload_twice_is_preload_once(self) -> None:
        found = self.found(self.script(PRELOAD + PRELOAD + LOADER), "libgdrapi.so")
        self.assertEqual(found, os.path.realpath(BUNDLED))

    def test_preload_and_mapping_use_one_copy_of_the_library(self) -> None:
        script = self.script(PRELOAD + "from gdrcopy import _library\n_library.functions()\nprint(open('/proc/self/maps').read())")
        maps = self.python(script).stdout
        files = {line.split()[-1] for line in maps.splitlines() if line.endswith("libgdrapi.so.2")}
        self.assertEqual(files, {BUNDLED})

    def test_import_loads_no_library(self) -> None:
        maps = self.python(self.script("import gdrcopy\nprint(open('/proc/self/maps').read())")).stdout
        self.assertIn("python", maps)
        for name in ("libgdrapi", "libcudart"):
            self.assertNotIn(name, maps)

    def test_missing_driver_is_an_error_with_the_text_of_the_log(self) -> None:
        script = self.script("import gdrcopy\ngdrcopy.Mapping((1 << 20, 100))")
        command = [os.environ["GDREMU"], "--no-gdrdrv", "--", sys.executable, script]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertIn("gdrcopy._error.Error: [Errno 2] gdr_open: No such file or directory; ", result.stderr)
        self.assertIn("/dev/gdrdrv", result.stderr)


if __name__ == "__main__":
    unittest.main()
