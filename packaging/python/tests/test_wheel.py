"""Tests the contents of the wheel, its build, and the examples of its README."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import types
import unittest
import unittest.mock
from ctypes import CDLL, byref, c_int
from pathlib import Path

import gdrcopy
import gpu

PACKAGE = Path(gdrcopy.__file__).parent
SOURCES = Path(__file__).resolve().parent.parent
EXAMPLES = re.findall(r"```python\n(.*?)```", (SOURCES / "README.md").read_text(), re.DOTALL)
# A program that mypy must accept.
TYPED = """
import array, gdrcopy, numpy
class Array:
    __cuda_array_interface__: dict[str, object] = {}
class Torch:
    def __dlpack__(self, stream: int = 0) -> object: return self
    def __dlpack_device__(self) -> tuple[int, int]: return 2, 0
gdrcopy.Mapping(Array()), gdrcopy.Mapping(Torch())
floats = numpy.zeros(4)
with gdrcopy.Mapping((numpy.uint64(1 << 20), numpy.int64(100)), force_pcie=True) as mapping:
    for data in (bytearray(), memoryview(b""), array.array("d"), floats):
        mapping.write(data, numpy.int64(8))
    mapping.read_into(floats, numpy.int64(8))
    word: gdrcopy.Word = mapping.word(numpy.int64(0), 4)
    word.store(numpy.uint32(word.load()))
    print(numpy.asarray(mapping), memoryview(mapping), mapping.read(0, numpy.int64(4)))
"""


class Installed(unittest.TestCase):
    def test_version_is_that_of_the_wheel_and_of_the_library(self) -> None:
        major, minor = c_int(), c_int()
        CDLL(str(PACKAGE / "lib/libgdrapi.so")).gdr_runtime_get_version(byref(major), byref(minor))
        self.assertTrue(gdrcopy.__version__.startswith(f"{major.value}.{minor.value}."))
        self.assertEqual(gdrcopy.__version__, importlib.metadata.version("gdrcopy"))

    def test_objects_need_only_libraries_of_the_system(self) -> None:
        modules = [path.name for path in PACKAGE.glob("_native.*.so")]
        # Python 3.9 and 3.10 have a module each; later versions share one.
        oldest = re.search(r"^Tag: cp3(\d+)-", importlib.metadata.distribution("gdrcopy").read_text("WHEEL"), re.MULTILINE)
        self.assertEqual(len(modules), 12 - int(oldest[1]))
        for name in ("lib/libgdrapi.so", *modules):
            dynamic = subprocess.check_output(["readelf", "-dW", str(PACKAGE / name)], text=True)
            self.assertNotRegex(dynamic, r"\((RPATH|RUNPATH)\)")
            for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
                self.assertRegex(needed, r"^(lib(c|m|pthread|dl|gcc_s)|ld-linux.*|ld64)\.so\.\d+$")

    def test_names_in_tracebacks_are_those_of_the_package(self) -> None:
        for name in gdrcopy.__all__:
            self.assertEqual(getattr(gdrcopy, name).__module__, "gdrcopy")

    def test_typed_programs_pass_mypy(self) -> None:
        try:
            from mypy import api
        except ImportError:
            self.skipTest("mypy is not installed")
        self.assertTrue((PACKAGE / "py.typed").is_file())
        with tempfile.TemporaryDirectory() as cache:
            for arguments in (["-p", "gdrcopy"], ["-c", TYPED], *(["-c", example] for example in EXAMPLES)):
                output, errors, status = api.run(["--strict", "--ignore-missing-imports", "--cache-dir", cache, *arguments])
                self.assertEqual((status, errors), (0, ""), output)


class Build(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.output = Path(directory.name)

    def build(self, *arguments: object, **variables: str) -> "subprocess.CompletedProcess[str]":
        environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
        command = [sys.executable, "-B", str(SOURCES / "build.py"), *map(str, arguments), str(self.output)]
        return subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, check=False)

    def test_wheel_of_any_date_and_none_of_a_failing_build(self) -> None:
        parts = ("wheel", PACKAGE / "lib/libgdrapi.so", PACKAGE / "bin/gdrcopy", PACKAGE)
        self.assertNotEqual(self.build(*parts, OBJDUMP="false").returncode, 0)
        self.assertEqual(list(self.output.iterdir()), [])
        wheels = []
        for date in ({}, {"SOURCE_DATE_EPOCH": "0"}, {"SOURCE_DATE_EPOCH": "1700000000"}):
            result = self.build(*parts, **date)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            wheels.append(Path(result.stdout.strip()).read_bytes())
        self.assertEqual([wheel == wheels[0] for wheel in wheels], [True, True, False])

    def test_source_distribution_is_the_tarball_with_metadata(self) -> None:
        tarball = self.output / "gdrapi.tar"
        with tarfile.open(tarball, "w") as archive:
            archive.add(SOURCES / "README.md", "gdrapi-1/packaging/README.md")
        made = self.build("sdist", tarball).stdout.strip()
        root = f"gdrcopy-{gdrcopy.__version__}"
        self.assertEqual(os.path.basename(made), f"{root}.tar.gz")
        with tarfile.open(made) as archive:
            self.assertEqual(archive.getnames(), [f"{root}/PKG-INFO", f"{root}/packaging/README.md"])
            metadata = archive.extractfile(f"{root}/PKG-INFO").read()
        self.assertEqual(metadata.decode(), importlib.metadata.distribution("gdrcopy").read_text("METADATA"))


class Readme(unittest.TestCase):
    @gpu.needs_numpy
    def test_examples_run(self) -> None:
        allocation = gpu.Allocation(4096)
        self.addCleanup(allocation.free)
        torch = types.ModuleType("torch")
        torch.zeros = lambda size, device: gpu.TorchTensor(allocation, (size,), "<f4", bits=32)
        torch.cuda = types.SimpleNamespace(synchronize=lambda: None)
        self.assertEqual(len(EXAMPLES), 2)
        for example in EXAMPLES:
            with unittest.mock.patch.dict(sys.modules, torch=torch):
                exec(example, {})
        self.assertEqual(allocation.contents()[8:12], b"\x00\x00\x80\x3f")


if __name__ == "__main__":
    unittest.main()
