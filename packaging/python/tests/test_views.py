"""Views, words and slices of a Mapping under gdremu: what arrives in GPU memory, and that no access outlives the mapping."""

import ctypes
import gc
import mmap
import os
import signal
import threading
import unittest
import warnings

import gdrcopy
import gpu
from gpu import SIZE, OfOneAllocation, needs_numpy, numpy, pattern, status_of_child


@unittest.skipIf(not gpu.has_views(), "memory that is mapped for aligned accesses has no views")
class Views(OfOneAllocation):
    def test_memoryview_is_of_all_bytes(self) -> None:
        with memoryview(self.mapping) as view:
            self.assertEqual((view.nbytes, view.format, view.itemsize, view.readonly), (SIZE, "B", 1, False))
            self.assertEqual(view.tobytes(), pattern(SIZE))
            view[1000:1008] = b"12345678"
            words = view.cast("Q")
            words[1] = 0x0807060504030201
            words.release()
        self.mapping.flush()
        self.assertEqual(self.allocation.contents()[8:16], bytes(range(1, 9)))
        self.assertEqual(self.allocation.contents()[1000:1008], b"12345678")

    def test_mapping_within_a_page_shows_its_own_bytes_only(self) -> None:
        with gdrcopy.Mapping((self.allocation.address + 70_001, 777)) as mapping, memoryview(mapping) as view:
            self.assertEqual(view.tobytes(), pattern(SIZE)[70_001:70_778])

    def test_read_only_object_has_read_only_views(self) -> None:
        with gdrcopy.Mapping(gpu.CudaArray(self.allocation, read_only=True)) as mapping:
            with memoryview(mapping) as view:
                self.assertTrue(view.readonly)
            with self.assertRaisesRegex(TypeError, "not writable"):
                (ctypes.c_char * 8).from_buffer(mapping)
            with self.assertRaisesRegex(TypeError, "read-only"):
                mapping.word(0, 4).store(1)

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
                mapping.flush()
                self.assertEqual(self.allocation.contents()[512 + 64 * 4 :][:4], b"\x00\x00\xc0\x3f")
                del view

    @needs_numpy
    def test_view_of_another_dtype_shape_and_offset(self) -> None:
        data = numpy.frombuffer(pattern(SIZE), "u1")
        for arguments, expected in (
            (("u1",), data),
            (("<u4", (3, 5), 16), data[16:76].view("<u4").reshape(3, 5)),
            (("<u8", None, SIZE - 17), data[SIZE - 17 : SIZE - 1].view("<u8")),
            (("<f2", 7), data[:14].view("<f2")),
            ((None, 9), data[:9]),
            (("i4,f8", 2, 1), data[1:25].view("i4,f8")),
        ):
            with self.subTest(arguments):
                self.assertEqual(self.mapping.view(*arguments).tobytes(), expected.tobytes())
                self.assertEqual(self.mapping.view(*arguments).shape, expected.shape)

    @needs_numpy
    def test_asarray_is_a_view(self) -> None:
        numpy.asarray(self.mapping)[5] = 77
        self.mapping.flush()
        self.assertEqual(self.allocation.contents()[5], 77)

    @needs_numpy
    def test_views_outside_and_of_objects_are_refused(self) -> None:
        for arguments in (
            ("u1", 1, -1),
            ("u1", 1, SIZE),
            ("u1", SIZE + 1),
            ("u4", 1 << 62),
            ("u4", -2),
            ("u1", 1, 1 << 70),
            ("u1", None, SIZE + 1),
            (object, 1),
            ("O,i4", 1),
        ):
            with self.subTest(arguments):
                with self.assertRaises((ValueError, TypeError)):
                    self.mapping.view(*arguments)
                dtype, shape, offset = (*arguments, 0)[:3]
                with self.assertRaises((ValueError, TypeError, MemoryError)):
                    self.mapping.read(offset, dtype=dtype, shape=shape)

    @needs_numpy
    def test_view_of_items_that_numpy_has_not_needs_a_dtype(self) -> None:
        with gdrcopy.Mapping(gpu.DLPackArray(self.allocation, (10,), bits=16, code=4)) as bfloat16:
            self.assertIsNone(bfloat16.dtype)
            with self.assertRaisesRegex(TypeError, "pass a dtype"):
                bfloat16.view()
            self.assertEqual(bfloat16.view("u2").tobytes(), pattern(20))

    def test_stores_by_views_and_words_arrive(self) -> None:
        with memoryview(self.mapping) as view:
            view[0] = 9
            self.mapping.word(8, 8).store(1)
        self.assertEqual(self.allocation.contents()[:16], b"\x09" + pattern(8)[1:] + b"\x01" + bytes(7))


class Typed(OfOneAllocation):
    @needs_numpy
    def test_read_returns_an_array_of_the_dtype_and_shape(self) -> None:
        data = numpy.frombuffer(pattern(SIZE), "u1")
        read = self.mapping.read(16, dtype="<u4", shape=(3, 5))
        self.assertEqual((read.shape, read.tobytes()), ((3, 5), data[16:76].tobytes()))
        self.assertEqual(self.mapping.read(SIZE - 17, dtype="<u8").tobytes(), data[SIZE - 17 : SIZE - 1].tobytes())
        self.assertEqual(self.mapping.read(shape=4).tolist(), data[:4].tolist())
        # It is a copy.
        self.mapping.close()
        self.assertEqual(read.tobytes(), data[16:76].tobytes())

    @needs_numpy
    def test_read_takes_a_size_or_a_shape(self) -> None:
        with self.assertRaisesRegex(TypeError, "not both"):
            self.mapping.read(0, 8, dtype="u4")

    def test_slices_read_and_write_bytes(self) -> None:
        data = bytearray(pattern(SIZE))
        for part in (slice(3, 11), slice(None), slice(-5, None), slice(SIZE - 2, SIZE + 9), slice(9, 3)):
            self.assertEqual(self.mapping[part], data[part])
        self.mapping[8:16] = data[8:16] = b"abcdefgh"
        self.mapping[-4:] = data[-4:] = memoryview(b"1234").cast("I")
        self.assertEqual(self.allocation.contents(), data)

    def test_other_slices_are_refused(self) -> None:
        for size in (7, 9):
            with self.assertRaisesRegex(ValueError, f"pass 8 bytes for this slice, not {size}"):
                self.mapping[0:8] = bytes(size)
        with self.assertRaisesRegex(ValueError, "without a step"):
            self.mapping[0:8:2]
        with self.assertRaisesRegex(TypeError, "use word"):
            self.mapping[0]
        self.assertEqual(self.allocation.contents(), pattern(SIZE))


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

    def test_words_that_are_none_are_refused(self) -> None:
        for offset, size, text in (
            (0, 3, "1, 2, 4 or 8 bytes, not 3"),
            (2, 4, "a multiple of 4"),
            (SIZE - 4, 8, "8 bytes before the end"),
            (SIZE, 1, "1 bytes before the end"),
            (-8, 8, "offset from 0"),
        ):
            with self.subTest((offset, size)), self.assertRaisesRegex(ValueError, text):
                self.mapping.word(offset, size)
        with gdrcopy.Mapping((self.allocation.address + 2, 100)) as mapping:
            with self.assertRaisesRegex(ValueError, "a multiple of 4"):
                mapping.word(0, 4)
            self.assertEqual(mapping.word(2, 4).load(), int.from_bytes(pattern(8)[4:], "little"))

    def test_values_that_do_not_fit_are_refused(self) -> None:
        for value, error in ((256, OverflowError), (-1, OverflowError), (1 << 64, OverflowError), (1.0, TypeError)):
            with self.subTest(value), self.assertRaises(error):
                self.mapping.word(0, 1).store(value)
        self.assertEqual(self.allocation.contents(), pattern(SIZE))

    def test_word_keeps_its_mapping_and_fails_once_it_is_closed(self) -> None:
        word = gdrcopy.Mapping((self.allocation.address, 8)).word(0, 8)
        gc.collect()
        self.assertEqual(word.load(), int.from_bytes(pattern(8), "little"))
        word = self.mapping.word(0, 8)
        self.mapping.close()
        for use in (word.load, lambda: word.store(1), lambda: self.mapping.word(0, 8), self.mapping.flush):
            with self.assertRaisesRegex(ValueError, "closed"):
                use()


@unittest.skipIf(gpu.has_views(), "of memory that is mapped for aligned accesses")
class Aligned(OfOneAllocation):
    def test_views_are_refused(self) -> None:
        with self.assertRaisesRegex(BufferError, "use read and write"):
            memoryview(self.mapping)
        self.mapping.close()


@unittest.skipIf(not gpu.has_views(), "no views")
class Lifetimes(OfOneAllocation):
    """No view outlives its mapping."""

    def assert_keeps_open(self, view: object) -> None:
        with self.assertRaisesRegex(BufferError, "delete all views"):
            self.mapping.close()
        self.assertFalse(self.mapping.closed)
        del view

    def test_close_is_refused_while_there_are_views(self) -> None:
        for make in (
            memoryview,
            lambda mapping: memoryview(mapping)[8:16].cast("B"),
            lambda mapping: memoryview(memoryview(mapping)),
            (ctypes.c_char * 8).from_buffer,
            # torch.frombuffer releases the buffer, and keeps its object.
            lambda mapping: memoryview(mapping).obj,
        ):
            self.assert_keeps_open(make(self.mapping))
        self.mapping.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            memoryview(self.mapping)

    @needs_numpy
    def test_close_is_refused_while_there_are_arrays(self) -> None:
        for make in (
            lambda mapping: mapping.view("u4")[5::2],
            lambda mapping: mapping.view().base,
            numpy.asarray,
            lambda mapping: numpy.asarray(mapping)[1:2].reshape(1, 1).view("i1"),
            lambda mapping: numpy.frombuffer(mapping, "u1"),
            lambda mapping: numpy.ndarray(8, "u1", memoryview(mapping)),
        ):
            self.assert_keeps_open(make(self.mapping))
        self.mapping.close()

    @needs_numpy
    def test_base_of_an_array_cannot_be_released(self) -> None:
        self.assertFalse(hasattr(self.mapping.view().base, "release"))

    def test_view_keeps_a_mapping_without_references(self) -> None:
        view = memoryview(gdrcopy.Mapping((self.allocation.address, 8)))
        gc.collect()
        self.assertEqual(view.tobytes(), pattern(8))

    def test_with_block_is_refused_to_end_while_there_are_views(self) -> None:
        with self.assertRaises(BufferError), self.mapping:
            view = memoryview(self.mapping)
        self.assertEqual(view[0], 0)
        view.release()

    def test_exception_in_a_with_block_is_not_hidden_by_views(self) -> None:
        with self.assertRaises(ZeroDivisionError), self.mapping:
            view = memoryview(self.mapping)
            view[0] = 1 // 0
        self.assertEqual(view[0], 0)
        view.release()

    def test_cycle_with_a_view_unpins_after_its_finalizers(self) -> None:
        seen = []

        class Holder:
            def __init__(self, mapping: gdrcopy.Mapping) -> None:
                self.view, self.word, mapping.holder = memoryview(mapping), mapping.word(0, 8), self

            def __del__(self) -> None:
                seen.append((self.view[0], self.word.load() & 0xFF))

        with gpu.unpins() as unpins:
            Holder(gdrcopy.Mapping((self.allocation.address, 8)))
            gc.collect()
        self.assertEqual((seen, unpins), ([(0, 0)], [0]))
        # It is not among the mappings whose addresses a child reserves.
        child = os.fork()
        if child == 0:
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

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
            mapping = gdrcopy.Mapping((self.allocation.address, SIZE))
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

    def test_objects_without_a_pin_are_refused(self) -> None:
        empty = gdrcopy.Mapping.__new__(gdrcopy.Mapping)
        for use in (memoryview, lambda mapping: gdrcopy.Word(mapping, 0, 1), gdrcopy.Mapping.flush):
            with self.assertRaisesRegex(ValueError, "closed"):
                use(empty)
        with self.assertRaisesRegex(TypeError, "make another Mapping"):
            self.mapping.__init__((self.allocation.address, 8))
        lease = type(memoryview(self.mapping).obj)
        lease()
        with self.assertRaises(TypeError):
            memoryview(lease())
        self.mapping.close()

    def test_process_that_ends_with_views_prints_nothing(self) -> None:
        result = gpu.run_script(
            "import gdrcopy, gpu, os, sys, threading\n"
            "gpu.initialize()\n"
            "mapping = gdrcopy.Mapping((gpu.Allocation(100).address, 100))\n"
            "mapping.view, mapping.itself = memoryview(mapping), mapping\n"
            "os.view, sys.word, threading.mapping = memoryview(mapping), mapping.word(0, 4), mapping\n"
            "threading.Thread(target=lambda: [os.view.__setitem__(0, 1) for _ in iter(int, 1)], daemon=True).start()\n"
        )
        lines = [line for line in result.stderr.splitlines() if not line.startswith("gdremu: ")]
        self.assertEqual((result.returncode, lines), (0, []))


class Unclosed(OfOneAllocation):
    def test_mapping_that_was_not_closed_is_a_resource_warning(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gdrcopy.Mapping((self.allocation.address, 8))
            with gdrcopy.Mapping((self.allocation.address, 8)):
                pass
            gc.collect()
        self.assertEqual([(w.category, str(w.message)) for w in caught], [(ResourceWarning, "unclosed mapping of 8 bytes")])


@unittest.skipIf(not gpu.has_views(), "no views")
class ForkedChild(OfOneAllocation):
    def test_accesses_by_a_view_end_it(self) -> None:
        view = memoryview(self.mapping)
        self.assertEqual(status_of_child(lambda: view[0]), -signal.SIGSEGV)
        self.assertEqual(view[0], 0)
        view.release()

    def test_addresses_of_views_are_not_used_again(self) -> None:
        view = memoryview(self.mapping)
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

    def test_lets_views_and_words_go(self) -> None:
        views = [memoryview(self.mapping), self.mapping.word(0, 4)]

        def let_go() -> None:
            for use in (lambda: memoryview(self.mapping), views[1].load, self.mapping.flush, lambda: self.mapping[0:8]):
                with self.assertRaisesRegex(gdrcopy.Error, "make one after the fork"):
                    use()
            views.clear()
            self.mapping.close()
            del self.mapping
            gc.collect()

        self.assertEqual(status_of_child(let_go), 0)
        self.assertEqual(views[0].tobytes(), pattern(SIZE))
        views.clear()


if __name__ == "__main__":
    gpu.initialize()
    unittest.main(warnings="ignore")  # of mappings that are not closed
