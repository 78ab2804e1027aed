"""Tests which libgdrapi a process gets if it loads one as NCCL, NVSHMEM or UCX do, while another libgdrapi is installed."""

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

PACKAGE = Path(gdrcopy.__file__).parent
BUNDLED = str(PACKAGE / "lib/libgdrapi.so")

# Loads libgdrapi by the name in argv[1], and prints the file that dladdr reports for gdr_open. For "linked", it loads an
# object that is linked with libgdrapi.so.2, as UCX's plugin is.
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
print(os.path.realpath(os.fsdecode(info.file)))
"""
PRELOAD = "import gdrcopy\ngdrcopy.preload()\n"
WAYS = ("libgdrapi.so", "libgdrapi.so.2", "linked")
BEFORE = "another libgdrapi.so.* was loaded before: .*call gdrcopy.preload.. before other imports"


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

    def python(self, *arguments: str, cwd: Optional[Path] = None, **variables: Optional[str]):
        """Runs Python with these variables; None unsets one."""
        values = {"LD_LIBRARY_PATH": str(self.directory), "LINKED": str(self.linked), "NCCL_GDRCOPY_ENABLE": "1"}
        environment = {name: value for name, value in {**os.environ, **values, **variables}.items() if value is not None}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)

    def gdrcopy(self, *arguments: str, **options):
        return self.python("-m", "gdrcopy", *arguments, **options)

    def emulated(self, *arguments: str):
        """Runs another gdremu with these arguments."""
        return subprocess.run([os.environ["GDREMU"], *arguments], capture_output=True, text=True, check=False)

    def script(self, text: str) -> str:
        path = self.directory / "script.py"
        path.write_text(text)
        return str(path)

    def assert_prints(self, text: str, result) -> None:
        self.assertEqual((result.returncode, result.stdout), (0, f"{text}\n"), result.stderr)

    def test_preload_and_run_have_the_bundled_library_found(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                self.assert_prints(os.path.realpath(self.other), self.python(self.script("import gdrcopy\n" + LOADER), way))
                self.assert_prints(BUNDLED, self.python(self.script(PRELOAD + PRELOAD + LOADER), way))
                self.assert_prints(BUNDLED, self.gdrcopy("run", self.script(LOADER), way))
                self.assertRegex(self.python(self.script(LOADER + PRELOAD), way).stderr, BEFORE)

    def test_run_passes_arguments_options_exit_status_and_reaches_children(self) -> None:
        text = "import subprocess, sys\nsys.exit(subprocess.run([sys.executable, *sys.argv[1:]]).returncode + 7)"
        (self.directory / "parent.py").write_text(text)
        result = self.gdrcopy("run", str(self.directory / "parent.py"), self.script(LOADER), "libgdrapi.so")
        self.assertEqual((result.returncode, result.stdout), (7, f"{BUNDLED}\n"))
        text = "import sys\nprint(sys.flags.optimize, sys.warnoptions, sys._xoptions, sys.stdout.write_through, sys.argv[1:])"
        script = self.script(text)
        for call in (["-O", "-m", "gdrcopy"], ["-Om", "gdrcopy"], ["-Omgdrcopy"]):
            with self.subTest(call):
                result = self.python("-u", "-W", "error", "-X", "dev", *call, "run", "-X", "utf8", script, "--epochs", "3")
                self.assert_prints("1 ['default', 'error'] {'dev': True, 'utf8': True} True ['--epochs', '3']", result)
                self.assertEqual(result.stderr, "")

    def test_other_commands_print_the_usage(self) -> None:
        for command in ([], ["run"], ["run", ""], ["ran"], ["info", "x"]):
            result = self.gdrcopy(*command)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("usage: python -m gdrcopy run", result.stderr)

    def test_removed_tools_get_the_answer_of_the_program(self) -> None:
        result = self.gdrcopy("suspend", "1")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertRegex(result.stderr, "^gdrcopy: suspend was removed: .* before CRIU's dump")

    def test_run_says_that_nccl_is_not_asked_to_use_it(self) -> None:
        script = self.script("pass")
        for value, text in ((None, "gdrcopy: .*NCCL_GDRCOPY_ENABLE=1, which is not set\n"), ("0", "")):
            result = self.gdrcopy("run", script, NCCL_GDRCOPY_ENABLE=value)
            self.assertEqual(result.returncode, 0)
            self.assertRegex(result.stderr, f"^{text}$")

    def test_run_starts_programs_of_the_path_and_scripts_of_the_working_directory(self) -> None:
        program = self.directory / "launcher"
        program.write_text('#!/bin/sh\necho "$@" >&2\nexec "$@"\n')
        program.chmod(0o755)
        path = f"{self.directory}:{os.environ['PATH']}"
        arguments = [sys.executable, self.script(LOADER), "libgdrapi.so"]
        result = self.gdrcopy("run", "launcher", *arguments, PATH=path)
        self.assertEqual(result.stderr, " ".join(arguments) + "\n")
        self.assert_prints(BUNDLED, result)
        (self.directory / "sh").write_text("import sys\nprint(sys.argv[1:])")
        self.assert_prints("['argument']", self.gdrcopy("run", "sh", "argument", cwd=self.directory))
        (self.directory / "sh").unlink()
        (self.directory / "sh").mkdir()
        self.assert_prints("a program", self.gdrcopy("run", "sh", "-c", "echo a program", cwd=self.directory))

    def test_tools_use_the_bundled_library(self) -> None:
        result = self.gdrcopy("doctor")
        self.assertRegex(result.stdout, rf"on the path +{re.escape(BUNDLED)} .* by LD_PRELOAD\n")
        for name in ("libgdrapi.so", "libgdrapi.so.2"):
            self.assertRegex(result.stdout, rf"{name} +{re.escape(BUNDLED)} .this project's")
        for command in ("copylat", "ps"):
            result = self.gdrcopy(command, "--no-such-option")
            self.assertEqual(result.returncode, 2)
            self.assertIn("--no-such-option", result.stderr)
        program = "import ctypes; print(ctypes.CDLL('libgdrapi.so').gdr_get_attribute(None, 1, None))"
        result = self.gdrcopy("trace", "--", sys.executable, "-c", program)
        self.assert_prints("22", result)
        self.assertIn(f" loaded libgdrapi {BUNDLED} (this project's, 2.6), but never", result.stderr)

    def test_info_and_bench(self) -> None:
        result = self.gdrcopy("info")
        self.assertRegex(result.stdout, rf"library: {re.escape(BUNDLED)}\ndriver: gdrdrv 2\.6\n")
        self.assertIn("NCCL_GDRCOPY_ENABLE: 1\n", result.stdout)
        for platform, views in (("wc", 2), ("device", 0)):
            result = self.emulated("--platform", platform, "--", sys.executable, "-m", "gdrcopy", "bench")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertRegex(result.stdout, r"\n +\d+  Word.store of 8 bytes\n")
            self.assertEqual(result.stdout.count("memoryview"), views)
        for command in ("info", "bench"):
            result = self.emulated("--no-gdrdrv", "--", sys.executable, "-m", "gdrcopy", command)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, "^gdrcopy: open of /dev/gdrdrv failed .*is the gdrdrv module loaded")

    def test_import_loads_no_library_and_preload_one(self) -> None:
        text = "import gdrcopy\nif sys.argv[1:]: gdrcopy.preload(), gdrcopy._native.driver()\n"
        script = self.script(f"import sys\n{text}print(open('/proc/self/maps').read())")
        for arguments, expected in (((), set()), (("preload",), {BUNDLED, str(PACKAGE / "lib/libgdrapi-preload.so")})):
            maps = self.python(script, *arguments).stdout
            self.assertEqual({line.split()[-1] for line in maps.splitlines() if "libgdrapi" in line}, expected)
            self.assertNotIn("libcudart", maps)

    def test_run_replaces_another_preloaded_library(self) -> None:
        # names.so has no functions, as libgdrapi-preload.so has none. It is named libgdrapi.so.2, and loads another library
        # named libgdrapi.so. If names.so is preloaded, programs get these two in place of the wheel's library.
        names = self.directory / "names.so"
        (self.directory / "libgdrapi.so").unlink()
        self.compile("void *gdr_open(void) { return 0; }", self.directory / "libgdrapi.so", "-Wl,-soname,libgdrapi.so")
        options = ["-Wl,-soname,libgdrapi.so.2", "-Wl,--no-as-needed", str(self.directory / "libgdrapi.so")]
        self.compile("", names, *options)
        for way in WAYS:
            self.assert_prints(BUNDLED, self.gdrcopy("run", self.script(LOADER), way, LD_PRELOAD=str(names)))
        result = self.python(self.script(PRELOAD), LD_PRELOAD=str(names))
        self.assertRegex(result.stderr, "use python -m gdrcopy run, or .*without another libgdrapi in LD_PRELOAD")

    def test_missing_library_is_an_error(self) -> None:
        package = self.directory / "package"
        shutil.copytree(PACKAGE, package / "gdrcopy", ignore=shutil.ignore_patterns("lib", "bin", "__pycache__"))
        for arguments in (["run", self.script("print('ran')")], ["doctor"]):
            result = self.gdrcopy(*arguments, PYTHONPATH=str(package))
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertRegex(result.stderr, r"^gdrcopy: .*/(lib/libgdrapi-preload.so|bin/gdrcopy) is missing: install the wheel")
        self.assertIn("is missing: install the wheel", self.python(self.script(PRELOAD), PYTHONPATH=str(package)).stderr)

    def test_path_that_ld_preload_cannot_name_is_an_error(self) -> None:
        for name in ("two words", "a:b", "do$llars"):
            shutil.copytree(PACKAGE, self.directory / name / "gdrcopy")
            program = "import sys\nsys.path.insert(0, sys.argv.pop(1))\nfrom gdrcopy import __main__\n"
            result = self.python("-c", program + "sys.exit(__main__.main())", str(self.directory / name), "run", "script.py")
            self.assertEqual(result.returncode, 1)
            self.assertIn("LD_PRELOAD cannot name", result.stderr)

    def error_of(self, program: str, *options: str) -> str:
        return self.emulated(*options, "--", sys.executable, self.script(f"import gdrcopy\n{program}")).stderr

    def test_missing_driver_is_an_error_with_a_remedy(self) -> None:
        error = self.error_of("gdrcopy.Mapping((1 << 20, 100))", "--no-gdrdrv")
        self.assertRegex(error, r"gdrcopy.Error: \[Errno 2\] open of /dev/gdrdrv failed with ENOENT .*: is the gdrdrv module loaded")

    def test_errors_need_no_files_and_no_other_process(self) -> None:
        # The package must not start sys.executable, because in an application that contains its interpreter, this is the
        # application itself. No file can be opened, because the limit is 3 descriptors, and 0 to 2 are in use.
        before = "import os, resource, sys\nsys.executable = None\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        error = self.error_of(f"{before}gdrcopy.Mapping((1 << 20, 100))")
        self.assertRegex(error, r"gdrcopy.Error: \[Errno 24\] .*raise the limit")
        error = self.error_of(f"{before}gdrcopy.preload()")
        self.assertRegex(error, rf"gdrcopy.Error: \[Errno {errno.ELIBACC}\] .*raise the limit of open files")


if __name__ == "__main__":
    unittest.main()
