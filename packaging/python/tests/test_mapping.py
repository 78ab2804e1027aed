"""Mapping under gdremu: what arrives in GPU memory, and what is refused."""

import array
import copy
import ctypes
import errno
import gc
import os
import pickle
import sys
import threading
import unittest
from typing import Callable, List

import gdrcopy
import gpu
from gpu import SIZE, OfOneAllocation, needs_numpy, numpy, pattern, status_of_child


def copies(mapping: gdrcopy.Mapping) -> List[Callable[[], object]]:
    single = (mapping.read, lambda: mapping.write(b"x"), lambda: mapping.read_into(bytearray(1)))
    return [*single, *gpu.many_reads(mapping), *gpu.many_writes(mapping)]


class Copies(OfOneAllocation):
    def test_buffers_of_every_kind_are_written(self) -> None:
        floats = array.array("d", [1.5, -2.5])
        read_only = memoryview(bytes(range(100)))[10:20]
        for data in (b"bytes", bytearray(b"bytearray"), floats, read_only):
            self.mapping.write(data, 1000)
            raw = bytes(memoryview(data))
            self.assertEqual(self.allocation.contents()[1000 : 1000 + len(raw)], raw)

    def test_read_into_fills_the_buffer(self) -> None:
        buffer = array.array("I", [0] * 25)
        self.mapping.read_into(buffer, 12)
        self.assertEqual(buffer.tobytes(), pattern(SIZE)[12:112])

    def test_unsuitable_buffers_are_refused(self) -> None:
        with self.assertRaises(BufferError):
            self.mapping.read_into(b"read-only")
        with self.assertRaises(BufferError):
            self.mapping.write(memoryview(b"not contiguous")[::2])

    def test_ranges_outside_are_refused(self) -> None:
        for offset, size, text in (
            (0, SIZE + 1, f"size from 0 to {SIZE} at offset 0, not {SIZE + 1}"),
            (SIZE, 1, f"size from 0 to 0 at offset {SIZE}, not 1"),
            (-1, 1, f"offset from 0 to {SIZE}, not -1"),
            (SIZE + 1, 0, f"offset from 0 to {SIZE}, not {SIZE + 1}"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                self.mapping.write(bytes(size), offset)
            with self.assertRaisesRegex(ValueError, text):
                self.mapping.read(offset, size)
        self.assertEqual(self.allocation.contents(), pattern(SIZE))

    def test_read_outside_allocates_nothing(self) -> None:
        for offset, size, text in (
            (0, 1 << 62, f"not {1 << 62}"),
            (5, -1, "at offset 5, not -1"),
            (-1, None, "offset .* not -1"),
            (1 << 80, None, f"not {1 << 80}"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                self.mapping.read(offset, size)
        self.mapping.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            self.mapping.read(0, 1 << 62)

    def test_offsets_and_sizes_of_other_integer_types(self) -> None:
        eight, buffer = gpu.Integer(8), bytearray(8)
        self.mapping.write(b"12345678", eight)
        self.assertEqual(self.mapping.read(eight, eight), b"12345678")
        self.mapping.read_into(buffer, eight)
        self.assertEqual(buffer, b"12345678")
        with self.assertRaises(TypeError):
            self.mapping.read(1.0)

    def test_closed_mapping_refuses_copies(self) -> None:
        self.mapping.close()
        self.mapping.close()
        for use in (*copies(self.mapping), lambda: self.mapping.write_many([])):
            with self.assertRaisesRegex(ValueError, "closed"):
                use()

    def test_conversions_that_close_the_mapping(self) -> None:
        class Closes:
            def __index__(self) -> int:
                mapping.close()
                return 0

        of_arrays = [
            lambda: mapping.gather([Closes()], "u4"),
            lambda: mapping.scatter([Closes()], numpy.zeros(1, "u4")),
        ]
        for use in (
            lambda: mapping.write(b"x", Closes()),
            lambda: mapping.read(Closes(), 4),
            lambda: mapping.read(0, Closes()),
            lambda: mapping.read_into(bytearray(8), Closes()),
            lambda: mapping.read_many([(Closes(), 4)]),
            lambda: mapping.read_many([(0, Closes())]),
            lambda: mapping.write_many([(0, b"x"), (Closes(), b"x")]),
            lambda: mapping.word(Closes(), 4),
            lambda: mapping.word(0, Closes()),
            lambda: word.store(Closes()),
            *(of_arrays if numpy else []),
        ):
            mapping = gdrcopy.Mapping((self.allocation.address, SIZE))
            word = mapping.word(0, 4)
            with self.assertRaisesRegex(ValueError, "closed"):
                use()

    def test_closed_mapping_is_not_entered(self) -> None:
        self.mapping.close()
        with self.assertRaisesRegex(ValueError, "closed"), self.mapping:
            self.fail("entered")

    def test_close_waits_for_copies_of_other_threads(self) -> None:
        offsets = range(0, 5600, 8)
        for name, read in (
            ("gdr_copy_from_mapping", lambda mapping: mapping.read(0, 5600)),
            ("gdrx_read_many", lambda mapping: b"".join(mapping.read_many((offset, 8) for offset in offsets))),
            *([("gdrx_read_many", lambda mapping: mapping.gather(offsets, "V8").tobytes())] if numpy else []),
        ):
            mapping = gdrcopy.Mapping((self.allocation.address, SIZE))
            waits, closing = [], threading.Thread(target=mapping.close)

            def make(copy: Callable[..., int]) -> Callable[..., int]:
                def copy_while_another_thread_closes(*arguments: object) -> int:
                    closing.start()
                    closing.join(0.2)  # as long as a close that does not wait may take to show
                    waits.append(closing.is_alive())
                    return copy(*arguments)

                return copy_while_another_thread_closes

            with gpu.unpins() as unpins, gpu.replaced(name, make):
                self.assertEqual(read(mapping), pattern(5600))
                closing.join()
            self.assertEqual((waits, unpins, mapping.closed), ([True], [0], True))

    def test_close_comes_between_copies_of_other_threads(self) -> None:
        def copy() -> None:
            with self.assertRaisesRegex(ValueError, "closed"):
                while True:
                    self.mapping.write(bytes(SIZE))

        threads = [threading.Thread(target=copy) for _ in range(3)]
        for thread in threads:
            thread.start()
        self.mapping.close()
        for thread in threads:
            thread.join()

    @needs_numpy
    def test_numpy_arrays_of_every_type(self) -> None:
        for dtype in ("f2", "c16", "i4,f8"):
            written = numpy.frombuffer(pattern(480), dtype).reshape(2, -1)
            read = numpy.zeros_like(written)
            self.mapping.write(written, 64)
            self.mapping.read_into(read, 64)
            self.assertEqual(read.tobytes(), written.tobytes())

    def test_copies_refuse_python_objects_of_ctypes(self) -> None:
        for names in (("a", "b"), ("a:", "b"), ("a::", "b"), ("a:", "b:")):
            fields = [(names[0], ctypes.c_int), (names[1], ctypes.py_object)]
            for read in (self.mapping.read_into, self.mapping.write):
                with self.assertRaisesRegex(TypeError, "without Python objects"):
                    read(type("Items", (ctypes.Structure,), {"_fields_": fields})())
        offset = type("Items", (ctypes.Structure,), {"_fields_": [("Offset", ctypes.c_int)]})()
        self.mapping.read_into(offset)
        self.assertEqual(bytes(offset), pattern(4))

    @needs_numpy
    def test_copies_refuse_python_objects(self) -> None:
        objects = numpy.full(4, None, object)
        for buffer in (objects, memoryview(objects), numpy.zeros(4, "u8,O"), numpy.zeros(4, "M8[s],O")):
            with self.assertRaisesRegex(TypeError, "without Python objects"):
                self.mapping.read_into(buffer)
            with self.assertRaisesRegex(TypeError, "without Python objects"):
                self.mapping.write(buffer)
            with self.assertRaisesRegex(TypeError, "without Python objects"):
                self.mapping.write_many([(0, buffer)])
        self.assertEqual(list(objects), [None] * 4)
        for dtype in ("M8[s]", [("Offset", "u8")]):
            items = numpy.zeros(4, dtype)
            self.mapping.read_into(items)
            self.assertEqual(items.tobytes(), pattern(32))


class Pins(OfOneAllocation):
    def test_force_pcie_is_a_flag_of_the_pin(self) -> None:
        flags = []

        def refused(_pin: Callable[..., int]) -> Callable[..., int]:
            return lambda _gdr, _address, _size, given, _handle: flags.append(given) or errno.EOPNOTSUPP

        for force_pcie in (False, True):
            with gpu.replaced("gdr_pin_buffer_v2", refused), self.assertRaisesRegex(gdrcopy.Error, "without force_pcie"):
                gdrcopy.Mapping((1 << 20, 100), force_pcie=force_pcie)
        self.assertEqual(flags, [0, 1])

    def test_pin_that_cannot_be_mapped_is_unpinned(self) -> None:
        with gpu.unpins() as unpins:
            with gpu.replaced("gdr_map", lambda _map: lambda *_arguments: errno.ENOMEM):
                with self.assertRaisesRegex(gdrcopy.Error, "gdr_map: .*ulimit -v"):
                    gdrcopy.Mapping((self.allocation.address, SIZE))
        self.assertEqual(unpins, [0])

    def test_unpin_that_fails_can_be_repeated(self) -> None:
        with gpu.replaced("gdr_unpin_buffer", lambda _unpin: lambda *_arguments: errno.EIO):
            with self.assertRaisesRegex(gdrcopy.Error, "gdr_unpin_buffer"):
                self.mapping.close()
        self.assertEqual(len(self.mapping.read()), SIZE)
        self.mapping.close()
        self.assertTrue(self.mapping.closed)

    def test_unreferenced_mapping_unpins(self) -> None:
        with gpu.unpins() as unpins:
            mapping = gdrcopy.Mapping((self.allocation.address, SIZE))
            mapping.itself = mapping
            del mapping
            gc.collect()
        self.assertEqual(unpins, [0])

    def test_mapping_is_not_copied(self) -> None:
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.subTest(duplicate.__name__), self.assertRaisesRegex(TypeError, "make another Mapping"):
                duplicate(self.mapping)

    def test_mapping_that_outlives_the_package_at_exit_prints_no_exception(self) -> None:
        result = gpu.run_script(
            "import gdrcopy, gpu, os\n"
            "gpu.initialize()\n"
            "os.mapping = gdrcopy.Mapping((gpu.Allocation(100).address, 100))\n"
        )
        self.assertEqual(result.returncode, 0)
        self.assertNotIn("Exception", result.stderr)

    def test_close_at_exit_does_not_wait_for_a_thread_that_has_ended(self) -> None:
        result = gpu.run_script(
            "import gdrcopy, gpu, os, threading\n"
            "class Owner:\n"
            "    mapping = None\n"
            "    def __del__(self):\n"
            "        self.mapping.close()\n"
            "        os.write(1, b'closed')\n"
            "gpu.initialize()\n"
            "size, owner = 1 << 26, Owner()\n"
            "owner.mapping = gdrcopy.Mapping((gpu.Allocation(size).address, size))\n"
            # With globals of its own, so that the owner ends before the thread.
            "write = eval('lambda mapping, data: [mapping.write(data) for _ in iter(int, 1)]', {})\n"
            "threading.Thread(target=write, args=(owner.mapping, bytes(size)), daemon=True).start()\n"
        )
        self.assertEqual((result.returncode, result.stdout), (0, "closed"), result.stderr)

    def test_copies_after_the_free_fail_where_the_pin_has_ended(self) -> None:
        allocation = gpu.Allocation(SIZE)
        allocation.fill(pattern(SIZE))
        with gdrcopy.Mapping((allocation.address, SIZE)) as mapping:
            allocation.free()
            if gdrcopy._connection.connection().pins_end_with_memory:
                for use in copies(mapping):
                    with self.assertRaisesRegex(gdrcopy.Error, "was freed; keep it allocated") as caught:
                        use()
                    self.assertEqual(caught.exception.errno, errno.EFAULT)
            else:
                self.assertEqual(mapping.read(), pattern(SIZE))


class Errors(unittest.TestCase):
    def test_memory_that_is_not_on_the_gpu_is_refused_with_a_remedy(self) -> None:
        with self.assertRaisesRegex(gdrcopy.Error, "gdr_pin_buffer_v2: Invalid argument; pass device memory") as caught:
            gdrcopy.Mapping((1 << 20, 100))
        self.assertEqual(caught.exception.errno, errno.EINVAL)
        self.assertIn("not host, managed or freed memory", caught.exception.remedy)
        self.assertIsInstance(caught.exception, OSError)

    def test_memory_from_cumemcreate_that_cannot_be_pinned_is_refused_with_a_remedy(self) -> None:
        with gdrcopy.Mapping((gpu.create(SIZE, rdma=True), SIZE)) as mapping:
            mapping.write(b"x")
        without = (gpu.create(SIZE, rdma=False), SIZE)
        across = (gpu.create(1 << 21, rdma=True, calls=2), 1 << 22)
        for memory in (without, across):
            if not os.path.exists("/dev/gdrdrv"):  # dma-bufs need neither the flag nor one allocation.
                gdrcopy.Mapping(memory).close()
                continue
            with self.assertRaises(gdrcopy.Error) as caught:
                gdrcopy.Mapping(memory)
            self.assertEqual(caught.exception.errno, errno.EINVAL)
            self.assertIn("gpuDirectRDMACapable or from several calls", caught.exception.remedy)
            self.assertIn("PYTORCH_CUDA_ALLOC_CONF", caught.exception.remedy)

    def test_error_is_that_of_the_interpreter(self) -> None:
        result = gpu.run_script(
            "import gdrcopy, sys\n"
            "gdrcopy._library.functions()\n"
            "try:\n"
            "    import _interpreters as interpreters\n"
            "except ImportError:\n"
            "    import _xxsubinterpreters as interpreters\n"
            "other = interpreters.create('legacy') if sys.version_info >= (3, 13) else interpreters.create(isolated=False)\n"
            "program = 'import gdrcopy\\ntry: gdrcopy.Mapping((1, 1))\\nexcept gdrcopy.Error: print(1)'\n"
            "interpreters.run_string(other, program)\n"
            "interpreters.destroy(other)\n"
            "try:\n"
            "    gdrcopy.Mapping((1, 1))\n"
            "except gdrcopy.Error:\n"
            "    print(2)\n"
        )
        self.assertEqual((result.returncode, result.stdout), (0, "1\n2\n"), result.stderr)

    def test_mapping_outlives_the_interpreter_that_imported_first(self) -> None:
        result = gpu.run_script(
            "import os, sys\n"
            "try:\n"
            "    import _interpreters as interpreters\n"
            "except ImportError:\n"
            "    import _xxsubinterpreters as interpreters\n"
            "def other():\n"
            "    legacy = sys.version_info >= (3, 13)\n"
            "    created = interpreters.create('legacy') if legacy else interpreters.create(isolated=False)\n"
            "    interpreters.run_string(created, 'import gdrcopy; gdrcopy.Mapping, gdrcopy.Word')\n"
            "    return created\n"
            "first = other()\n"
            "import gdrcopy, gpu\n"
            "gpu.initialize()\n"
            "mapping = gdrcopy.Mapping((gpu.Allocation(4096).address, 4096))\n"
            "interpreters.destroy(first)\n"
            "second = other()\n"
            "mapping.word(0, 4).store(3)\n"
            "interpreters.destroy(second)\n"
            "print(mapping.word(0, 4).load(), memoryview(mapping)[0], flush=True)\n"
            "os._exit(0)\n"  # Python 3.12.1 crashes at its end if a first importer was destroyed.
        )
        self.assertEqual((result.returncode, result.stdout), (0, "3 3\n"), result.stderr)


class ForkedChild(OfOneAllocation):
    def test_makes_its_own_mapping_only(self) -> None:
        def use() -> None:
            for use_memory in copies(self.mapping):
                with self.assertRaisesRegex(gdrcopy.Error, "make one after the fork") as caught:
                    use_memory()
                self.assertEqual(caught.exception.errno, errno.EACCES)
            # It has no CUDA memory to pin, so the pin is refused, not the connection.
            with self.assertRaises(gdrcopy.Error) as caught:
                gdrcopy.Mapping((self.mapping.address, SIZE))
            self.assertEqual(caught.exception.errno, errno.EINVAL)
            self.assertIn("start it by spawn", caught.exception.remedy)

        self.assertEqual(status_of_child(use), 0)
        self.assertEqual(len(self.mapping.read()), SIZE)

    def test_exits_from_a_with_block(self) -> None:
        def leave() -> None:
            with self.mapping:
                sys.exit(7)

        self.assertEqual(status_of_child(leave), 7)
        self.assertEqual(len(self.mapping.read()), SIZE)

    def test_closes_while_a_thread_of_its_parent_copies(self) -> None:
        def make(copy: Callable[..., int]) -> Callable[..., int]:
            def copy_in_a_process_that_forks(*arguments: object) -> int:
                statuses.append(status_of_child(self.mapping.close))
                return copy(*arguments)

            return copy_in_a_process_that_forks

        statuses = []
        with gpu.replaced("gdr_copy_from_mapping", make):
            self.mapping.read()
        self.assertEqual(statuses, [0])


if __name__ == "__main__":
    gpu.initialize()
    unittest.main(warnings="ignore")  # of mappings that are not closed
