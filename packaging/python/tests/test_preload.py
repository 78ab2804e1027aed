"""Which libgdrapi a process gets that loads it as NCCL, NVSHMEM or UCX do, while another one is installed."""

import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Optional

import gdrcopy

BUNDLED = os.path.join(os.path.dirname(gdrcopy.__file__), "lib", "libgdrapi.so.2")

# Loads by the name in argv[1] and prints the file that dladdr reports for gdr_open. "linked" loads by an object that
# needs libgdrapi.so.2, such as UCX's.
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

    def python(
        self, *arguments: str, cwd: Optional[Path] = None, **variables: Optional[str]
    ) -> "subprocess.CompletedProcess[str]":
        """Runs Python with these variables; None unsets one."""
        values = {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.directory),
            "LINKED": str(self.linked),
            "NCCL_GDRCOPY_ENABLE": "1",
            **variables,
        }
        environment = {name: value for name, value in values.items() if value is not None}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)

    def emulated(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """In a gdremu of its own, with these arguments."""
        return subprocess.run([os.environ["GDREMU"], *arguments], capture_output=True, text=True, check=False)

    def found(self, *arguments: str) -> str:
        result = self.python(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return os.path.realpath(result.stdout.strip())

    def script(self, text: str) -> str:
        path = self.directory / "script.py"
        path.write_text(text)
        return str(path)

    def test_preload_and_run_have_the_bundled_library_found(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                self.assertEqual(self.found(self.script("import gdrcopy\n" + LOADER), way), os.path.realpath(self.other))
                self.assertEqual(self.found(self.script(PRELOAD + LOADER), way), os.path.realpath(BUNDLED))
                run = self.found("-m", "gdrcopy", "run", self.script(LOADER), way)
                self.assertEqual(run, os.path.realpath(BUNDLED))

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

    def test_other_commands_print_the_usage(self) -> None:
        for command in ([], ["run"], ["run", ""], ["ran"], ["info", "x"]):
            result = self.python("-m", "gdrcopy", *command)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("usage: python -m gdrcopy run", result.stderr)

    def test_run_says_that_nccl_is_not_asked_to_use_it(self) -> None:
        script = self.script("pass")
        for value, text in ((None, "NCCL_GDRCOPY_ENABLE=1, which is not set"), ("0", "")):
            result = self.python("-m", "gdrcopy", "run", script, NCCL_GDRCOPY_ENABLE=value)
            self.assertEqual(result.returncode, 0)
            self.assertRegex(result.stderr, f"^(gdrcopy: .*{text}\n)$" if text else "^$")

    def test_run_starts_programs_of_the_path(self) -> None:
        program = self.directory / "launcher"
        program.write_text('#!/bin/sh\necho "$@" >&2\nexec "$@"\n')
        program.chmod(0o755)
        path = f"{self.directory}:{os.environ['PATH']}"
        arguments = [sys.executable, self.script(LOADER), "libgdrapi.so"]
        result = self.python("-m", "gdrcopy", "run", "launcher", *arguments, PATH=path)
        self.assertEqual(result.stderr, " ".join(arguments) + "\n")
        self.assertEqual(os.path.realpath(result.stdout.strip()), os.path.realpath(BUNDLED))

    def test_run_takes_a_script_of_the_working_directory_for_it(self) -> None:
        self.script("import sys\nprint(sys.argv[1:])")
        (self.directory / "script.py").rename(self.directory / "sh")
        result = self.python("-m", "gdrcopy", "run", "sh", "argument", cwd=self.directory)
        self.assertEqual((result.stdout, result.stderr), ("['argument']\n", ""))
        (self.directory / "sh").unlink()
        (self.directory / "sh").mkdir()
        result = self.python("-m", "gdrcopy", "run", "sh", "-c", "echo a program", cwd=self.directory)
        self.assertEqual((result.stdout, result.stderr), ("a program\n", ""))

    def test_tools_use_the_bundled_library(self) -> None:
        result = self.python("-m", "gdrcopy", "doctor")
        self.assertRegex(result.stdout, rf"on the path +{re.escape(BUNDLED)} .* by LD_PRELOAD\n")
        for name in ("libgdrapi.so", "libgdrapi.so.2"):
            self.assertRegex(result.stdout, rf"{name} +{re.escape(os.path.realpath(BUNDLED))} .this project's")
        on_the_path = rf"on the path +{re.escape(os.path.dirname(BUNDLED))}/libgdrapi.so .this project's"
        self.assertRegex(result.stdout, on_the_path)
        result = self.python("-m", "gdrcopy", "copylat", "--no-such-option")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--no-such-option", result.stderr)

    def test_tools_for_processes_that_doctor_names(self) -> None:
        for command in ("ps", "checkpoint", "suspend", "resume"):
            result = self.python("-m", "gdrcopy", command, "--no-such-option")
            self.assertIn("--no-such-option", result.stderr)

    def test_trace_forwards_to_the_bundled_library(self) -> None:
        program = "import ctypes; print(ctypes.CDLL('libgdrapi.so').gdr_get_attribute(None, 1, None))"
        result = self.python("-m", "gdrcopy", "trace", "--", sys.executable, "-c", program)
        self.assertEqual(result.stdout, "22\n")
        self.assertIn(f" loaded libgdrapi {os.path.realpath(BUNDLED)} (this project's, 2.6), but never", result.stderr)

    def test_info_and_bench(self) -> None:
        result = self.python("-m", "gdrcopy", "info")
        self.assertRegex(result.stdout, rf"library: {re.escape(BUNDLED)}\ndriver: gdrdrv 2\.6\n")
        self.assertIn("NCCL_GDRCOPY_ENABLE: 1\n", result.stdout)
        result = self.python("-m", "gdrcopy", "bench")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"\n +\d+  Word.store of 8 bytes\n")

    def test_bench_without_views(self) -> None:
        result = self.emulated("--platform", "device", "--", sys.executable, "-m", "gdrcopy", "bench")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertNotIn("memoryview", result.stdout)
        self.assertRegex(result.stdout, r"\n +\d+  Word.store of 8 bytes\n")

    def test_commands_without_a_driver_fail_with_a_remedy(self) -> None:
        for command in ("info", "bench"):
            result = self.emulated("--no-gdrdrv", "--", sys.executable, "-m", "gdrcopy", command)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, "^gdrcopy: gdr_open: .*; load the kernel module gdrdrv")

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

    def test_run_passes_interpreter_options(self) -> None:
        text = "import sys\nprint(sys.flags.optimize, sys.warnoptions, sys._xoptions, sys.stdout.write_through)"
        script = self.script(text)
        options = ["-u", "-W", "error", "-X", "dev"]
        for call in (["-O", "-m", "gdrcopy"], ["-Om", "gdrcopy"], ["-Omgdrcopy"]):
            with self.subTest(call):
                result = self.python(*options, *call, "run", "-X", "utf8", script)
                expected = "1 ['default', 'error'] {'dev': True, 'utf8': True} True\n"
                self.assertEqual((result.stderr, result.stdout), ("", expected))

    def test_run_replaces_another_preloaded_library(self) -> None:
        # As libgdrapi-preload.so is made, empty, and the loader finds the other library through it by either name.
        names = self.directory / "names.so"
        (self.directory / "libgdrapi.so").unlink()
        self.compile("void *gdr_open(void) { return 0; }", self.directory / "libgdrapi.so", "-Wl,-soname,libgdrapi.so")
        options = ["-Wl,-soname,libgdrapi.so.2", "-Wl,--no-as-needed", str(self.directory / "libgdrapi.so")]
        self.compile("", names, *options)
        for way in WAYS:
            with self.subTest(way):
                result = self.python("-m", "gdrcopy", "run", self.script(LOADER), way, LD_PRELOAD=str(names))
                self.assertEqual(os.path.realpath(result.stdout.strip()), os.path.realpath(BUNDLED), result.stderr)
        result = self.python(self.script(PRELOAD), LD_PRELOAD=str(names))
        self.assertIn("use python -m gdrcopy run, or", result.stderr)
        self.assertIn("without another libgdrapi in LD_PRELOAD", result.stderr)

    def package_without_library(self, directory: Path) -> None:
        ignored = shutil.ignore_patterns("lib", "bin", "__pycache__")
        shutil.copytree(os.path.dirname(gdrcopy.__file__), directory / "gdrcopy", ignore=ignored)

    def test_missing_library_is_an_error(self) -> None:
        package = self.directory / "package"
        self.package_without_library(package)
        path = str(package)
        result = self.python("-m", "gdrcopy", "run", self.script("print('ran')"), PYTHONPATH=path)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertRegex(result.stderr, r"^gdrcopy: .*/lib/libgdrapi.so.2 is missing; install the wheel")
        for use in ("preload()", "Mapping((1 << 20, 100))"):
            result = self.python(self.script(f"import gdrcopy\ngdrcopy.{use}"), PYTHONPATH=path)
            self.assertIn("is missing; install the wheel", result.stderr)
        result = self.python("-m", "gdrcopy", "doctor", PYTHONPATH=path)
        self.assertRegex(result.stderr, r"^gdrcopy: .*/bin/gdrcopy is missing; install the wheel")

    def test_path_that_ld_preload_cannot_name_is_an_error(self) -> None:
        for name in ("two words", "a:b", "do$llars"):
            with self.subTest(name):
                package = self.directory / name
                shutil.copytree(os.path.dirname(gdrcopy.__file__), package / "gdrcopy")
                program = "import sys\nsys.path.insert(0, sys.argv.pop(1))\nfrom gdrcopy import __main__\n"
                result = self.python("-c", program + "sys.exit(__main__.main())", str(package), "run", "script.py")
                self.assertEqual(result.returncode, 1)
                self.assertIn("LD_PRELOAD cannot name", result.stderr)

    def test_preload_after_a_library_whose_file_cannot_be_found_fails_with_a_remedy(self) -> None:
        relative = f"os.chdir({str(self.directory)!r})\nctypes.CDLL('./libgdrapi.so.2')\nos.chdir('/')\n"
        deleted = f"ctypes.CDLL({str(self.other)!r})\nos.unlink({str(self.other)!r})\n"
        for load in (relative, deleted):
            with self.subTest(load):
                result = self.python(self.script("import ctypes, os\n" + load + PRELOAD))
                self.assertRegex(result.stderr, "gdrcopy.Error: .* was loaded before, from .*libgdrapi.so.2")
                self.assertIn("call gdrcopy.preload() before other imports", result.stderr)

    def error_of_mapping(self, *options: str, before: str = "") -> str:
        script = self.script(f"import gdrcopy\n{before}\ngdrcopy.Mapping((1 << 20, 100))")
        return self.emulated(*options, "--", sys.executable, script).stderr

    def test_missing_driver_is_an_error_with_a_remedy(self) -> None:
        for options, text in (
            (["--no-gdrdrv"], r"\[Errno 2\] gdr_open: No such file or directory; load the kernel module gdrdrv"),
            (["--gdrdrv-errno", "EACCES"], r"\[Errno 13\] .*; make /dev/gdrdrv readable and writable"),
            (["--gdrdrv-errno", "EPERM"], r"\[Errno 1\] .*; pass --device=/dev/gdrdrv to the container"),
            (["--gdrdrv-errno", "EMFILE"], r"\[Errno 24\] .*; raise the limit of open files"),
            (["--gdrdrv-errno", "EIO"], r"\[Errno 5\] .*; set GDRCOPY_ENABLE_LOGGING=1 to log"),
        ):
            with self.subTest(options):
                self.assertRegex(self.error_of_mapping(*options), "gdrcopy.Error: " + text)

    def test_errors_need_no_files_and_no_other_process(self) -> None:
        # An application that was frozen with its interpreter would start itself.
        frozen = "import os, resource, sys\nsys.executable = None\n"
        # Three descriptors, which are in use, 0 to 2.
        exhausted = frozen + "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        for before, text in (
            (frozen, r"\[Errno 2\] gdr_open"),
            ("gdrcopy._library.functions()\n" + exhausted, r"\[Errno \d+\] gdr_open"),
            (exhausted, rf"\[Errno {errno.ELIBACC}\] .*; .*raise the limit of open files"),
        ):
            with self.subTest(text):
                error = self.error_of_mapping("--no-gdrdrv", before=before)
                self.assertRegex(error, "gdrcopy.Error: " + text)


if __name__ == "__main__":
    unittest.main()
