"""Tests Mapping under gdremu: which objects it accepts, copies, words, views and pins. Checks what arrives in GPU memory,
what is refused, and that no access outlives a mapping."""

import array
import copy
import ctypes
import errno
import gc
import mmap
import os
import pickle
import signal
import sys
import threading
import unittest
import unittest.mock
import warnings
import weakref
from typing import Callable, List

import gdrcopy
import gdrcopy._device
import gpu
from gpu import SIZE, OfOneAllocation, ml_dtypes, needs_numpy, needs_views, numpy, pattern, status_of_child


class OfEveryKindOfObject(OfOneAllocation):
    def check(self, obj, begin: int, size: int) -> None:
        """Writes bytes through a mapping of obj, and checks that they are at [begin, begin + size) of the allocation."""
        self.allocation.fill(bytes(SIZE))
        data = pattern(size)
        with gdrcopy.Mapping(obj) as mapping:
            self.assertEqual((mapping.address, mapping.size), (self.allocation.address + begin, size))
            mapping.write(data)
            self.assertEqual(mapping.read(), data)
        self.assertEqual(self.allocation.contents(), bytes(begin) + data + bytes(SIZE - begin - size))

    def test_memory_of_every_object(self) -> None:
        allocation, ten = self.allocation, gpu.Integer(10)
        integers = gpu.CudaArray(allocation, 0, (ten, ten))
        integers.__cuda_array_interface__["data"] = (gpu.Integer(allocation.address), False)
        items = {"|b1": 1, "<M8[ns]": 8, "<m8[us]": 8, "<U4": 16, "|S5": 5, "<V2": 2, "<c16": 16}
        for name, obj, begin, size in (
            ("address and size", (allocation.address, SIZE), 0, SIZE),
            ("address within a page", (allocation.address + 70_001, 777), 70_001, 777),
            ("array interface", gpu.CudaArray(allocation, 512, (10, 20), "<f4"), 512, 800),
            ("contiguous strides", gpu.CudaArray(allocation, 0, (10, 1, 20), "<f8", (160, 4, 8)), 0, 1600),
            ("DLPack", gpu.DLPackArray(allocation, (10, 20), bits=16, byte_offset=256), 256, 400),
            ("DLPack, contiguous strides", gpu.DLPackArray(allocation, (10, 20), bits=32, strides=(20, 1)), 0, 800),
            ("versioned DLPack", gpu.VersionedDLPackArray(allocation, (10, 20), bits=16, byte_offset=256), 256, 400),
            ("torch, another GPU", gpu.TorchTensor(allocation, (10, 20), "<f4", other_gpu=True), 0, 800),
            ("torch, no typestr", gpu.TorchTensor(allocation, (10, 20), "float8"), 0, 200),
            ("other integers", (gpu.Integer(allocation.address), ten), 0, 10),
            ("other integers of an interface", integers, 0, 100),
            *((typestr, gpu.CudaArray(allocation, 0, (10,), typestr), 0, 10 * size) for typestr, size in items.items()),
        ):
            with self.subTest(name):
                self.check(obj, begin, size)

    def test_other_objects_are_refused(self) -> None:
        class Deleted:
            @property
            def __cuda_array_interface__(self):
                raise RuntimeError("deleted")

        allocation = self.allocation
        incomplete, address = gpu.CudaArray(allocation), allocation.address
        del incomplete.__cuda_array_interface__["shape"], incomplete.__cuda_array_interface__["typestr"]
        strides = [gpu.CudaArray(allocation, 0, (10, 20), "<f4", strides) for strides in ((), (4,), (80, 4, 4))]
        typestrs = ("|t4", "|O8", "f4", "<f", "<f4x", "<M8[", "<f-4")
        items = [gpu.CudaArray(allocation, 0, (10,), typestr) for typestr in typestrs]
        outside = ((address, 2**64), (address, 2**64 + 10), (address + 2**64, 10), (-1, 10), (address, -1))
        for obj, error, text in (
            (gpu.CudaArray(allocation, 0, (10, 10), "<f4", (80, 4)), ValueError, "contiguous copy"),
            (gpu.DLPackArray(allocation, (10, 10), strides=(1, 10)), ValueError, "contiguous copy"),
            (gpu.CudaArray(allocation, 0, (0, 10)), ValueError, "at least 1 byte"),
            (gpu.DLPackArray(allocation, (1,), device_type=1), ValueError, "CUDA device memory"),
            (gpu.VersionedDLPackArray(allocation, (1,), major=2), ValueError, "DLPack 1, not 2"),
            (gpu.DLPackArray(allocation, (-2, -8)), ValueError, "not negative"),
            (gpu.CudaArray(allocation, 0, (-2, -8)), ValueError, "not negative"),
            (Deleted(), RuntimeError, "deleted"),
            (b"host", TypeError, "__cuda_array_interface__.*not bytes"),
            (gpu.TorchTensor(allocation, (10,), requires_grad=True), BufferError, "detach"),
            (gpu.TorchTensor(allocation, (10,), conj=True), ValueError, "resolve_conj"),
            (gpu.TorchTensor(allocation, (10,), neg=True), ValueError, "resolve_neg"),
            (incomplete, ValueError, "__cuda_array_interface__ has shape, typestr"),
            *((obj, ValueError, "2 dimensions") for obj in strides),
            *((obj, ValueError, "whole bytes") for obj in items),
            *((pair, ValueError, "at least 1 byte below address 2") for pair in outside),
            *((pair, TypeError, "integer") for pair in ((float(address), 10), (address, 10.0), ("address", 10))),
            *((given, ValueError, rf"not a tuple of {len(given)}") for given in ((), (1,), (1, 2, 3))),
        ):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                gdrcopy.Mapping(obj)

    def test_read_only_objects_are_not_written(self) -> None:
        # DLPack before 1.0 has no read-only flag, so the flag of __cuda_array_interface__ must count.
        both = gpu.DLPackArray(self.allocation, (10,))
        both.__cuda_array_interface__ = gpu.CudaArray(self.allocation, read_only=True).__cuda_array_interface__
        versioned = gpu.VersionedDLPackArray(self.allocation, (SIZE,), read_only=True)
        for obj in (both, versioned, gpu.CudaArray(self.allocation, read_only=True)):
            with gdrcopy.Mapping(obj) as mapping:
                for write in (*writes(mapping), lambda: mapping.word(0, 4).store(1)):
                    self.assertRaisesRegex(TypeError, "not read-only", write)
                for read in reads(mapping):
                    read()
        self.assertEqual(self.allocation.contents(), pattern(SIZE))

    def test_dlpack_tensor_is_released_at_close_only(self) -> None:
        obj = gpu.DLPackArray(self.allocation, (10,))
        mapping = gdrcopy.Mapping(obj)
        gc.collect()
        self.assertEqual(obj.deleted, 0)
        mapping.close()
        self.assertEqual(obj.deleted, 1)

    def test_items_of_dlpack_by_their_names_in_numpy(self) -> None:
        for code, bits, dtype in ((0, 64, "<i8"), (1, 8, "<u1"), (2, 16, "<f2"), (5, 128, "<c16"), (6, 8, "<b1"), (2, 8, None)):
            with self.subTest(dtype), gdrcopy.Mapping(gpu.DLPackArray(self.allocation, (2, 3), bits, code=code)) as mapping:
                self.assertEqual((mapping.dtype, mapping.shape), (dtype, (2, 3)))

    @needs_numpy
    def test_layout_of_dlpack_is_that_of_numpy(self) -> None:
        items = numpy.zeros((10, 20), "f4")
        with unittest.mock.patch("gdrcopy._device._CUDA", 1):  # 1 is DLPack's device type for host memory
            memory = gdrcopy._device.device_memory(items)
        self.assertEqual(memory[:2] + memory[4:], (items.ctypes.data, 800, "<f4", (10, 20)))

    @needs_numpy
    def test_size_of_numpy_integers_does_not_overflow(self) -> None:
        # The size is 4 GiB and 64 KiB, which is more than is allocated. An int32 would overflow to 64 KiB.
        with self.assertRaises(gdrcopy.Error):
            gdrcopy.Mapping(gpu.CudaArray(self.allocation, 0, (numpy.int32(65536), numpy.int32(65537))))


def writes(mapping: gdrcopy.Mapping) -> List[Callable[[], object]]:
    return [lambda: mapping.write(b"x"), lambda: mapping.write(bytearray(5000))]


def reads(mapping: gdrcopy.Mapping) -> List[Callable[[], object]]:
    return [mapping.read, lambda: mapping.read(0, 8), lambda: mapping.read_into(bytearray(1)), mapping.flush]


class Copies(OfOneAllocation):
    def test_buffers_of_every_kind_are_written(self) -> None:
        floats = array.array("d", [1.5, -2.5])
        read_only = memoryview(bytes(range(100)))[10:20]
        for data in (b"bytes", b"", bytearray(b"bytearray"), floats, read_only, bytes(10_000)):
            for at in (1000, 1003, gpu.Integer(1024)):
                self.mapping.write(data, at)
                raw, at = bytes(memoryview(data)), at.__index__()
                self.assertEqual(self.allocation.contents()[at : at + len(raw)], raw)

    def test_reads_of_every_kind(self) -> None:
        buffer = array.array("I", [0] * 25)
        self.mapping.read_into(buffer, gpu.Integer(12))
        self.assertEqual(buffer.tobytes(), pattern(SIZE)[12:112])
        self.assertEqual(self.mapping.read(gpu.Integer(8), gpu.Integer(8)), pattern(16)[8:])
        self.assertEqual(self.mapping.read(3), pattern(SIZE)[3:])

    def test_unsuitable_buffers_are_refused(self) -> None:
        for use, error in (
            (lambda: self.mapping.read_into(b"read-only"), BufferError),
            (lambda: self.mapping.write(memoryview(b"not contiguous")[::2]), BufferError),
            (lambda: self.mapping.write("text"), TypeError),
            (lambda: self.mapping.read(1.0), TypeError),
        ):
            self.assertRaises(error, use)
        data = bytearray(SIZE + 1)
        self.assertRaises(ValueError, self.mapping.write, data)
        data.append(0)  # This fails while a buffer of the bytearray is held.

    def test_ranges_outside_are_refused_and_allocate_nothing(self) -> None:
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
            with self.assertRaisesRegex(ValueError, text):
                self.mapping.read_into(bytearray(size), offset)
        for offset, size in ((0, 1 << 62), (5, -1), (-1, None), (1 << 80, None)):
            self.assertRaises((ValueError, OverflowError), self.mapping.read, offset, size)
        self.assertEqual(self.allocation.contents(), pattern(SIZE))

    def test_python_objects_are_refused(self) -> None:
        buffers = []
        for names in (("a", "b"), ("a:", "b"), ("a::", "b"), ("a:", "b:")):
            fields = [(names[0], ctypes.c_int), (names[1], ctypes.py_object)]
            buffers.append(type("Items", (ctypes.Structure,), {"_fields_": fields})())
        if numpy:
            objects = numpy.full(4, None, object)
            buffers += [objects, memoryview(objects), numpy.zeros(4, "u8,O"), numpy.zeros(4, "M8[ns],O")]
        for buffer in buffers:
            for use in (self.mapping.read_into, self.mapping.write):
                with self.assertRaisesRegex((TypeError, ValueError), "without Python objects|cannot include dtype"):
                    use(buffer)
        offset = type("Items", (ctypes.Structure,), {"_fields_": [("Offset", ctypes.c_int)]})()
        self.mapping.read_into(offset)
        self.assertEqual(bytes(offset), pattern(4))

    @needs_numpy
    def test_numpy_arrays_of_every_type(self) -> None:
        # NumPy has no buffer format for datetime64, nor for the types of ml_dtypes, which JAX uses.
        types = ["f2", "c16", "i4,f8", [("Offset", "u8")], "M8[ns]", "m8[us]", "M8[ns],f4"]
        if ml_dtypes:
            types += [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, [("Offset", ml_dtypes.bfloat16)]]
        for dtype in types:
            with self.subTest(dtype):
                items = numpy.zeros((2, 5), dtype)
                self.mapping.read_into(items, 64)
                self.assertEqual(items.tobytes(), pattern(SIZE)[64 : 64 + items.nbytes])
                self.mapping.write(items, 1024)
                self.assertEqual(self.mapping.read(1024, items.nbytes), items.tobytes())

    def test_closed_mapping_refuses_everything(self) -> None:
        word = self.mapping.word(0, 8)
        self.mapping.close()
        self.mapping.close()
        of_words = (word.load, lambda: word.store(1), lambda: self.mapping.word(0, 3), lambda: memoryview(self.mapping))
        for use in (*reads(self.mapping), *writes(self.mapping), *of_words, lambda: self.mapping.read(0, 1 << 62)):
            with self.assertRaisesRegex(ValueError, "closed"):
                use()
        with self.assertRaisesRegex(ValueError, "closed"), self.mapping:
            self.fail("entered")

    def test_conversions_that_close_the_mapping(self) -> None:
        class Closes:
            def __index__(self) -> int:
                mapping.close()
                return 0

        for use in (
            lambda: mapping.write(b"x", Closes()),
            lambda: mapping.read(0, Closes()),
            lambda: mapping.read_into(bytearray(8), Closes()),
            lambda: mapping.word(Closes(), 4),
            lambda: word.store(Closes()),
        ):
            mapping = self.new()
            word = mapping.word(0, 4)
            self.assertRaisesRegex(ValueError, "closed", use)


class Words(OfOneAllocation):
    def test_words_of_every_size_load_and_store(self) -> None:
        for size in (1, 2, 4, 8):
            with self.subTest(size):
                word = self.mapping.word(gpu.Integer(16), size)
                self.assertEqual(word.load(), int.from_bytes(self.allocation.contents()[16 : 16 + size], "little"))
                word.store(gpu.Integer((1 << 8 * size) - 2))
                expected = b"\xfe" + b"\xff" * (size - 1) + pattern(SIZE)[16 + size : 32]
                self.assertEqual(self.allocation.contents()[16:32], expected)
                self.allocation.fill(pattern(SIZE))

    def test_words_and_values_that_are_none_are_refused(self) -> None:
        for offset, size, text in (
            (0, 3, "1, 2, 4 or 8 bytes, not 3"),
            (2, 4, "a multiple of 4"),
            (SIZE - 4, 8, "from 0 to 4 at offset"),
            (SIZE, 1, "from 0 to 0 at offset"),
            (-8, 8, "offset from 0"),
        ):
            with self.subTest((offset, size)), self.assertRaisesRegex(ValueError, text):
                self.mapping.word(offset, size)
        with gdrcopy.Mapping((self.allocation.address + 2, 100)) as mapping:
            with self.assertRaisesRegex(ValueError, "a multiple of 4"):
                mapping.word(0, 4)
            self.assertEqual(mapping.word(2, 4).load(), int.from_bytes(pattern(8)[4:], "little"))
        for value, error in ((256, OverflowError), (-1, OverflowError), (1 << 64, OverflowError), (1.0, TypeError)):
            self.assertRaises(error, self.mapping.word(0, 1).store, value)
        self.assertEqual(self.allocation.contents(), pattern(SIZE))


class Pins(OfOneAllocation):
    def test_force_pcie_is_a_flag_of_the_pin(self) -> None:
        if '"platform":"cached"' in os.environ["GDREMU_CONFIG"]:
            return gdrcopy.Mapping((self.allocation.address, SIZE), force_pcie=True).close()
        with self.assertRaisesRegex(gdrcopy.Error, "FORCE_PCIE works on coherent|FORCE_PCIE where it cannot work"):
            gdrcopy.Mapping((self.allocation.address, SIZE), force_pcie=True)

    def test_failures_leave_no_pin_and_can_be_repeated(self) -> None:
        script = (
            "mapping, memory = None, (gpu.Allocation(100).address, 100)\n"
            "try: mapping = gdrcopy.Mapping(memory); mapping.close()\nexcept gdrcopy.Error as error: print(error)\n"
            "if mapping: print(mapping.closed); mapping.close(); print(mapping.closed)\n"
        )
        for fault, text in (
            ("mmap:ENOMEM@1", r"^\[Errno 12\] mmap failed with ENOMEM .*: out of address space"),
            ("unpin_buffer:EIO@1", r"^\[Errno 5\] ioctl UNPIN_BUFFER failed.*\nFalse\nTrue\n$"),
        ):
            result = gpu.run_script(script, "--fault", fault, "--leak-exit", "9")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stdout, text)

    def test_unreferenced_mapping_unpins_with_a_warning(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            mapping = self.new(8)
            mapping.itself, collected = mapping, weakref.ref(mapping)
            del mapping
            with self.new(8):
                pass
            gc.collect()
        self.assertIsNone(collected())  # gdremu --leak-exit would find a pin that is left.
        self.assertEqual([(w.category, str(w.message)) for w in caught], [(ResourceWarning, "unclosed mapping of 8 bytes")])

    def test_mapping_is_not_copied(self) -> None:
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.subTest(duplicate.__name__), self.assertRaisesRegex(TypeError, "make another Mapping"):
                duplicate(self.mapping)

    def test_close_at_exit_does_not_wait_for_a_thread_that_has_ended(self) -> None:
        result = gpu.run_script(
            "import os, threading\n"
            "class Owner:\n"
            "    mapping = None\n"
            "    def __del__(self):\n"
            "        self.mapping.close()\n"
            "        os.write(1, b'closed')\n"
            "size, owner = 1 << 26, Owner()\n"
            "owner.mapping = gdrcopy.Mapping((gpu.Allocation(size).address, size))\n"
            # `owner` is a global of the script. The thread's function has globals of its own (`{}`), so that `owner`
            # is deleted at exit, although the thread never returns from the function.
            "write = eval('lambda mapping, data: [mapping.write(data) for _ in iter(int, 1)]', {})\n"
            "threading.Thread(target=write, args=(owner.mapping, bytes(size)), daemon=True).start()\n"
        )
        self.assertEqual((result.returncode, result.stdout), (0, "closed"), result.stderr)

    def test_copies_after_the_free_fail_where_the_pin_has_ended(self) -> None:
        allocation = gpu.Allocation(SIZE)
        allocation.fill(pattern(SIZE))
        with gdrcopy.Mapping((allocation.address, SIZE)) as mapping:
            allocation.free()
            version, uses_dma_bufs, is_persistent = gdrcopy._native.driver()
            if is_persistent:
                self.assertEqual(mapping.read(), pattern(SIZE))
            else:
                for use in (*reads(mapping), *writes(mapping), lambda: memoryview(mapping)):
                    with self.assertRaisesRegex(gdrcopy.Error, "revoked the mapping.*freed: map live memory"):
                        use()

    def test_memory_that_cannot_be_pinned_is_refused_with_a_remedy(self) -> None:
        with self.assertRaises(gdrcopy.Error) as caught:
            gdrcopy.Mapping((1 << 20, 100))
        self.assertEqual(caught.exception.errno, errno.EINVAL)
        self.assertRegex(caught.exception.remedy, "(?s)managed, host or freed memory.*PYTORCH_CUDA_ALLOC_CONF")

    def test_other_interpreters_are_refused(self) -> None:
        result = gpu.run_script(
            "import sys\n"
            "try:\n"
            "    import _interpreters as interpreters\n"
            "except ImportError:\n"
            "    import _xxsubinterpreters as interpreters\n"
            "legacy = sys.version_info >= (3, 13)\n"
            "other = interpreters.create('legacy') if legacy else interpreters.create(isolated=False)\n"
            "program = 'try: import gdrcopy\\nexcept ImportError as error: print(error, flush=True)'\n"
            "interpreters.run_string(other, program)\n"
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("subinterpreters", result.stdout)


@needs_views
class Views(OfOneAllocation):
    def test_memoryview_is_of_all_bytes(self) -> None:
        with memoryview(self.mapping) as view:
            self.assertEqual((view.nbytes, view.format, view.itemsize, view.readonly), (SIZE, "B", 1, False))
            self.assertEqual(view.tobytes(), pattern(SIZE))
            view[1000:1008] = b"12345678"
            words = view.cast("Q")
            words[1] = 0x0807060504030201
            words.release()
            self.mapping.word(16, 8).store(1)
        self.assertEqual(self.allocation.contents()[8:24], bytes(range(1, 9)) + b"\x01" + bytes(7))
        self.assertEqual(self.allocation.contents()[1000:1008], b"12345678")

    def test_read_only_object_has_read_only_views(self) -> None:
        with gdrcopy.Mapping(gpu.CudaArray(self.allocation, read_only=True)) as mapping:
            with memoryview(mapping) as view:
                self.assertTrue(view.readonly)
            with self.assertRaisesRegex(TypeError, "not writable"):
                (ctypes.c_char * 8).from_buffer(mapping)

    @needs_numpy
    def test_view_has_the_dtype_and_shape_of_the_object(self) -> None:
        for obj in (
            gpu.CudaArray(self.allocation, 512, (10, 20), "<f4"),
            gpu.DLPackArray(self.allocation, (10, 20), bits=32, byte_offset=512, code=2),
        ):
            with gdrcopy.Mapping(obj) as mapping:
                self.assertEqual((mapping.dtype, mapping.shape), ("<f4", (10, 20)))
                view = mapping.view()
                self.assertEqual((view.dtype, view.shape), (numpy.float32, (10, 20)))
                view[3, 4] = 1.5
                numpy.asarray(mapping)[5] = 77
                mapping.flush()
                self.assertEqual(self.allocation.contents()[512 + 64 * 4 :][:4], b"\x00\x00\xc0\x3f")
                self.assertEqual(self.allocation.contents()[512 + 5], 77)
                del view

    @needs_numpy
    def test_items_that_numpy_has_not_are_viewed_as_bytes(self) -> None:
        with gdrcopy.Mapping(gpu.DLPackArray(self.allocation, (10,), bits=16, code=4)) as bfloat16:
            self.assertIsNone(bfloat16.dtype)
            with self.assertRaisesRegex(TypeError, "use numpy.asarray"):
                bfloat16.view()
            self.assertEqual(numpy.asarray(bfloat16).view("u2").tobytes(), pattern(20))


@unittest.skipIf(gpu.HAS_VIEWS, "of memory that is mapped for aligned accesses")
class Aligned(OfOneAllocation):
    def test_views_are_refused(self) -> None:
        with self.assertRaisesRegex(BufferError, "use read and write"):
            memoryview(self.mapping)
        self.mapping.close()


@needs_views
class Lifetimes(OfOneAllocation):
    """No view outlives its mapping."""

    def assert_keeps_open(self, view: object) -> None:
        with self.assertRaisesRegex(BufferError, "delete all views"):
            self.mapping.close()
        self.assertFalse(self.mapping.closed)
        self.assertEqual(self.mapping.read(8, 4), pattern(12)[8:])
        del view

    def test_close_is_refused_while_there_are_views(self) -> None:
        of_arrays = (
            lambda mapping: mapping.view()[5::2],
            lambda mapping: mapping.view().base,
            numpy.asarray,
            lambda mapping: numpy.asarray(mapping)[1:2].reshape(1, 1).view("i1"),
            lambda mapping: numpy.frombuffer(mapping, "u1"),
            lambda mapping: numpy.ndarray(8, "u1", memoryview(mapping)),
        ) if numpy else ()
        for make in (
            memoryview,
            lambda mapping: memoryview(mapping)[8:16].cast("B"),
            lambda mapping: memoryview(memoryview(mapping)),
            (ctypes.c_char * 8).from_buffer,
            # Releases the memoryview, but keeps the object that exports its buffer, as torch.frombuffer does.
            lambda mapping: memoryview(mapping).obj,
            *of_arrays,
        ):
            self.assert_keeps_open(make(self.mapping))
        lease = memoryview(self.mapping).obj
        self.assertRaises(TypeError, memoryview, lease)
        self.assertRaises(TypeError, type(lease))
        del lease
        self.mapping.close()

    @needs_numpy
    def test_base_of_an_array_cannot_be_released(self) -> None:
        self.assertFalse(hasattr(self.mapping.view().base, "release"))

    def test_views_and_words_keep_a_mapping_without_references(self) -> None:
        view, word = memoryview(self.new(8)), self.new(8).word(0, 8)
        gc.collect()
        self.assertEqual((view.tobytes(), word.load()), (pattern(8), int.from_bytes(pattern(8), "little")))

    def test_with_block_does_not_end_while_there_are_views_nor_hide_an_exception(self) -> None:
        for value, error in ((1, BufferError), (0, ZeroDivisionError)):
            with self.assertRaises(error), self.mapping:
                view = memoryview(self.mapping)
                view[0] = 0 // value
            self.assertEqual(view[0], 0)
            view.release()

    def test_cycle_with_a_view_unpins_after_its_finalizers(self) -> None:
        seen = []

        class Holder:
            def __init__(self, mapping: gdrcopy.Mapping) -> None:
                self.view, self.word, mapping.holder = memoryview(mapping), mapping.word(0, 8), self

            def __del__(self) -> None:
                seen.append((self.view[0], self.word.load() & 0xFF))

        Holder(self.new(8))
        gc.collect()
        self.assertEqual(seen, [(0, 0)])

    def test_threads_that_view_copy_and_close(self) -> None:
        errors = []

        def use(mapping: gdrcopy.Mapping) -> None:
            try:
                while True:
                    mapping.write(bytes(20_000))
                    with memoryview(mapping) as view:
                        view[0:8] = view[8:16]
                    self.assertEqual(len(mapping.read()), SIZE)
            except ValueError as error:
                errors.append(str(error))

        for _ in range(20):
            mapping = self.new()
            threads = [threading.Thread(target=use, args=(mapping,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            while not mapping.closed:
                try:
                    mapping.close()
                except BufferError:
                    pass
            for thread in threads:
                thread.join()
        self.assertEqual(errors, ["the mapping is closed: make another one"] * 60)

    def test_process_that_ends_with_views_prints_nothing(self) -> None:
        result = gpu.run_script(
            "import os, sys, threading\n"
            "mapping = gdrcopy.Mapping((gpu.Allocation(100).address, 100))\n"
            "mapping.view, mapping.itself = memoryview(mapping), mapping\n"
            "os.view, sys.word, threading.mapping = memoryview(mapping), mapping.word(0, 4), mapping\n"
            "os.mapping = gdrcopy.Mapping((gpu.Allocation(100).address, 100))\n"
            "threading.Thread(target=lambda: [os.view.__setitem__(0, 1) for _ in iter(int, 1)], daemon=True).start()\n"
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))


class ForkedChild(OfOneAllocation):
    def test_makes_its_own_mapping_only(self) -> None:
        word = self.mapping.word(0, 4)

        def use() -> None:
            more = (word.load, lambda: word.store(1), lambda: memoryview(self.mapping))
            for use_memory in (*reads(self.mapping), *writes(self.mapping), *more):
                with self.assertRaisesRegex(gdrcopy.Error, "a forked child must open") as caught:
                    use_memory()
                self.assertEqual(caught.exception.errno, errno.EACCES)
            # The child has no CUDA memory to pin. So the pin is refused, but the connection is not.
            with self.assertRaises(gdrcopy.Error) as caught:
                self.new()
            self.assertEqual(caught.exception.errno, errno.EINVAL)
            self.assertIn("start it by spawn", caught.exception.remedy)
            with self.mapping:
                sys.exit(7)

        self.assertEqual(status_of_child(use), 7)
        self.assertEqual(len(self.mapping.read()), SIZE)

    def test_closes_while_threads_of_its_parent_copy_and_pin(self) -> None:
        def work() -> None:
            while not stop:
                self.new().close()
                self.mapping.write(bytes(SIZE))

        def let_go() -> None:
            kept.clear()
            self.mapping.close()
            del self.mapping
            gc.collect()

        kept: List[object] = [memoryview(self.mapping) if gpu.HAS_VIEWS else None, self.mapping.word(0, 4)]
        stop: List[bool] = []
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        statuses = [status_of_child(let_go) for _ in range(20)]
        stop.append(True)
        for thread in threads:
            thread.join()
        self.assertEqual(statuses, [0] * 20)
        kept.clear()

    @needs_views
    def test_accesses_by_a_view_end_it(self) -> None:
        view = memoryview(self.mapping)
        self.assertEqual(status_of_child(lambda: view[0]), -signal.SIGSEGV)
        self.assertEqual(view[0], 0)
        view.release()

    @needs_views
    def test_addresses_of_views_are_not_used_again(self) -> None:
        # Each new mapping gets the addresses of the mapping that was closed before it. The object of the closed mapping
        # is deleted only afterwards.
        mapping = self.mapping
        for _ in range(3):
            self.check_addresses_are_not_used_again(mapping)
            mapping.close()
            mapping = self.new()
        mapping.close()

    def check_addresses_are_not_used_again(self, mapping: gdrcopy.Mapping) -> None:
        view = memoryview(mapping)
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))

        def map_much() -> None:
            maps = [mmap.mmap(-1, size) for size in (SIZE, 65536, 4096) for _ in range(100)]
            with open("/proc/self/maps") as file:
                for line in file:
                    begin, end = (int(number, 16) for number in line.split()[0].split("-"))
                    if begin <= address < end:
                        self.assertEqual(line.split()[1], "---p")
                        return
            self.fail(f"{len(maps)} maps, and the addresses are free")

        self.assertEqual(status_of_child(map_much), 0)
        gc.collect()
        view.release()


if __name__ == "__main__":
    unittest.main(warnings="ignore")  # Some tests do not close their mappings, which causes warnings.
