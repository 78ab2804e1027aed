"""The contents of the wheel, its build, and the examples of its README."""

import contextlib
import importlib.metadata
import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import types
import unittest
import unittest.mock
from ctypes import byref, c_int
from pathlib import Path

import gdrcopy
import gpu

PACKAGE = Path(gdrcopy.__file__).parent
SOURCES = Path(__file__).resolve().parent.parent


class Installed(unittest.TestCase):
    def test_type_checkers_find_the_annotations(self) -> None:
        self.assertTrue((PACKAGE / "py.typed").is_file())

    def test_version_is_that_of_the_wheel_and_of_the_library(self) -> None:
        major, minor = c_int(), c_int()
        gdrcopy._library.functions().gdr_runtime_get_version(byref(major), byref(minor))
        self.assertTrue(gdrcopy.__version__.startswith(f"{major.value}.{minor.value}."))
        self.assertEqual(gdrcopy.__version__, importlib.metadata.version("gdrcopy"))

    def test_libraries_need_only_those_of_the_system(self) -> None:
        exported = {"libgdrapi.so.2": 17, "libgdrx.so.1": 7}
        for name, count in exported.items():
            with self.subTest(name):
                file = str(PACKAGE / "lib" / name)
                dynamic = subprocess.check_output(["readelf", "-dW", file], text=True)
                self.assertEqual(re.findall(r"\(SONAME\).*\[(.*)\]", dynamic), [name])
                self.assertNotRegex(dynamic, r"\((RPATH|RUNPATH)\)")
                for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
                    self.assertRegex(needed, r"^(lib(c|m|pthread|dl|gcc_s)|ld-linux.*|ld64)\.so\.\d+$")
                symbols = subprocess.check_output(["nm", "-D", "--defined-only", file], text=True)
                self.assertEqual(len(re.findall(r" T gdrx?_", symbols)), count)

    def test_names_in_tracebacks_are_those_of_the_package(self) -> None:
        for name in gdrcopy.__all__:
            self.assertEqual(getattr(gdrcopy, name).__module__, "gdrcopy")

    def test_typed_programs_pass_mypy(self) -> None:
        try:
            from mypy import api
        except ImportError:
            self.skipTest("mypy is not installed")
        with tempfile.TemporaryDirectory() as cache:
            options = ["--strict", "--cache-dir", cache]
            for what in (["-p", "gdrcopy"], ["typed_use.py"]):
                output, errors, status = api.run([*options, *what])
                self.assertEqual((status, errors), (0, ""), output)


class Build(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.output = Path(directory.name)

    def build(self, **variables: str) -> "subprocess.CompletedProcess[str]":
        environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
        parts = [str(PACKAGE / "lib/libgdrapi.so.2"), str(PACKAGE / "bin/gdrcopy")]
        command = [sys.executable, "-B", str(SOURCES / "build.py"), "wheel", *parts, str(self.output)]
        return subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, check=False)

    def test_wheel_of_any_date(self) -> None:
        wheels = []
        for date in ({}, {"SOURCE_DATE_EPOCH": "0"}, {"SOURCE_DATE_EPOCH": "1700000000"}):
            with self.subTest(date):
                result = self.build(**date)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                wheels.append(Path(result.stdout.strip()).read_bytes())
        self.assertEqual(wheels[0], wheels[1])
        self.assertNotEqual(wheels[0], wheels[2])

    def test_failing_build_leaves_no_wheel(self) -> None:
        self.assertNotEqual(self.build(CC="false").returncode, 0)
        self.assertEqual(list(self.output.iterdir()), [])

    def test_extension_is_correct_by_the_declarations_of_python_h(self) -> None:
        include = sysconfig.get_path("include")
        if sys.version_info < (3, 11) or not os.path.exists(f"{include}/Python.h"):
            self.skipTest("no Python.h with buffers in the stable ABI")
        options = f"-std=gnu11 -Wall -Wextra -Werror -fsyntax-only -DPy_LIMITED_API=0x030b0000 -I{include} -include Python.h"
        command = ["cc", *options.split(), f"-I{SOURCES.parent.parent / 'include'}", str(SOURCES / "native.c")]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_source_distribution_is_the_tarball_with_metadata(self) -> None:
        tarball = self.output / "gdrapi.tar"
        with tarfile.open(tarball, "w") as archive:
            archive.add(SOURCES / "README.md", "gdrapi-1/packaging/README.md")
        command = [sys.executable, "-B", str(SOURCES / "build.py"), "sdist", str(tarball), str(self.output)]
        made = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        root = f"gdrcopy-{gdrcopy.__version__}"
        self.assertEqual(os.path.basename(made), f"{root}.tar.gz")
        with tarfile.open(made) as archive:
            self.assertEqual(archive.getnames(), [f"{root}/PKG-INFO", f"{root}/packaging/README.md"])
            metadata = archive.extractfile(f"{root}/PKG-INFO").read()
        installed = importlib.metadata.distribution("gdrcopy").read_text("METADATA")
        self.assertEqual(metadata.decode(), installed)


class Readme(unittest.TestCase):
    @gpu.needs_numpy
    def test_examples_run(self) -> None:
        allocation = gpu.Allocation(4096)
        self.addCleanup(allocation.free)
        torch = types.ModuleType("torch")
        torch.zeros = lambda size, device: gpu.TorchTensor(allocation, (size,), "<f4", bits=32)
        torch.cuda = types.SimpleNamespace(synchronize=lambda: None)
        examples = re.findall(r"```python\n(.*?)```", (SOURCES / "README.md").read_text(), re.DOTALL)
        self.assertEqual(len(examples), 2)
        for example in examples:
            with self.subTest(example), unittest.mock.patch.dict(sys.modules, torch=torch):
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(example, {})
        self.assertEqual(allocation.contents()[8:12], b"\x00\x00\x80\x3f")


if __name__ == "__main__":
    gpu.initialize()
    unittest.main()
