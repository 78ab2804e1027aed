"""Many copies by one call under gdremu: of bytes, and of the items of NumPy arrays."""

import array
import contextlib
import errno
import unittest
from typing import Any, Callable, Iterator, List

import gdrcopy
import gpu
from gpu import SIZE, OfOneAllocation, needs_numpy, numpy, pattern


@contextlib.contextmanager
def counts(name: str) -> Iterator[List[int]]:
    """How many copies each call of the library's function makes in the block."""
    made: List[int] = []

    def make(function: Callable[..., int]) -> Callable[..., int]:
        def counted(description: int, copies: int, count: int) -> int:
            made.append(count)
            return function(description, copies, count)

        return counted

    with gpu.replaced(name, make):
        yield made


class Pairs(OfOneAllocation):
    def test_buffers_of_every_kind_are_written_by_one_call(self) -> None:
        floats = array.array("d", [1.5])
        items = [(100_000, b"bytes"), (0, bytearray(4096)), (SIZE, b""), (gpu.Integer(8192), floats), [SIZE - 1, b"!"]]
        expected = bytearray(pattern(SIZE))
        for offset, data in items:
            raw, begin = bytes(memoryview(data)), offset.__index__()
            expected[begin : begin + len(raw)] = raw
        with counts("gdrx_write_many") as made:
            self.mapping.write_many(iter(items))
        self.assertEqual((self.allocation.contents(), made), (expected, [5]))

    def test_each_range_is_read_in_order_by_one_call(self) -> None:
        data = pattern(SIZE)
        ranges = [(100_000, 5), (0, 0), (3, 4096), (SIZE - 1, 1)]
        with counts("gdrx_read_many") as made:
            self.assertEqual(self.mapping.read_many(iter(ranges)), [data[offset:][:size] for offset, size in ranges])
        self.assertEqual(made, [4])
        self.assertEqual(self.mapping.read_many([[gpu.Integer(8), gpu.Integer(4)]]), [data[8:12]])

    def test_no_pairs_are_no_copies(self) -> None:
        self.mapping.write_many(())
        self.assertEqual(self.mapping.read_many(iter(())), [])

    def test_one_refused_pair_refuses_all(self) -> None:
        outside = bytearray(2)
        for pair, error, text in (
            ((SIZE - 1, outside), ValueError, f"size from 0 to 1 at offset {SIZE - 1}, not 2"),
            ((-1, b""), ValueError, f"offset from 0 to {SIZE}, not -1"),
            ((1 << 64, b""), ValueError, f"not {1 << 64}"),
            ((0, b"", 0), ValueError, "pairs of an offset and data"),
            (0, TypeError, "iterable"),
            ((0, "text"), TypeError, "bytes-like"),
            ((0, memoryview(b"abcd")[::2]), BufferError, "contiguous"),
        ):
            data = bytearray(4)
            with self.subTest(pair), counts("gdrx_write_many") as made:
                with self.assertRaisesRegex(error, text):
                    self.mapping.write_many([(0, data), pair, (8, data)])
                self.assertEqual(made, [])
                data.append(0)  # no buffer of it is left
        outside.append(0)
        for pair, error, text in (
            ((0, 1 << 62), ValueError, f"not {1 << 62}"),
            ((5, -1), ValueError, "at offset 5, not -1"),
            ((-1, 0), ValueError, "not -1"),
            ((0,), ValueError, "pairs of an offset and a size"),
            ((0, 1.0), TypeError, "float"),
        ):
            with self.subTest(pair), counts("gdrx_read_many") as made:
                with self.assertRaisesRegex(error, text):
                    self.mapping.read_many([(0, 4), pair])
                self.assertEqual(made, [])
        self.assertEqual(self.allocation.contents(), pattern(SIZE))

    def test_iterators_that_raise_or_close_the_mapping(self) -> None:
        def pairs(value: Any, stop: Callable[[], object]) -> Iterator[Any]:
            yield 0, value
            stop()
            yield 8, value

        for stop, error in ((lambda: 1 // 0, ZeroDivisionError), (self.mapping.close, ValueError)):
            with self.assertRaises(error):
                self.mapping.write_many(pairs(b"abcd", stop))
            with self.assertRaises(error):
                self.mapping.read_many(pairs(4, stop))
        self.assertEqual(self.allocation.contents(), pattern(SIZE))


class AnyMany(OfOneAllocation):
    def test_read_only_object_refuses_writes(self) -> None:
        with gdrcopy.Mapping(gpu.CudaArray(self.allocation, read_only=True)) as mapping:
            for write in gpu.many_writes(mapping):
                with self.assertRaisesRegex(TypeError, "not read-only"):
                    write()
            for read in gpu.many_reads(mapping):
                read()

    def test_errors_name_the_function(self) -> None:
        for name, calls in (("gdrx_read_many", gpu.many_reads), ("gdrx_write_many", gpu.many_writes)):
            with gpu.replaced(name, lambda _function: lambda *_arguments: errno.EIO):
                for call in calls(self.mapping):
                    with self.assertRaisesRegex(gdrcopy.Error, f"{name}: Input/output error") as caught:
                        call()
                    self.assertEqual(caught.exception.errno, errno.EIO)

    def test_mapping_that_cannot_be_attached_is_unpinned(self) -> None:
        with gpu.unpins() as unpins:
            with gpu.replaced("gdrx_attach_mapping", lambda _attach: lambda *_arguments: errno.ENOMEM):
                with self.assertRaisesRegex(gdrcopy.Error, "gdrx_attach_mapping: "):
                    gdrcopy.Mapping((self.allocation.address, SIZE))
        self.assertEqual(unpins, [0])


@needs_numpy
class Arrays(OfOneAllocation):
    def expected(self, offsets: Any, dtype: Any) -> Any:
        """By one read of all bytes."""
        dtype, data = numpy.dtype(dtype), pattern(SIZE)
        raw = b"".join(data[offset : offset + dtype.itemsize] for offset in numpy.ravel(offsets).tolist())
        return numpy.frombuffer(raw, dtype).reshape(numpy.shape(offsets) + dtype.shape)

    def test_items_of_every_type_are_gathered_and_scattered_by_one_call(self) -> None:
        offsets = numpy.arange(0, 6000, 40).reshape(5, 30)[:, ::-1]
        for dtype in ("u1", "<f2", ">i4", "u8", "c16", "M8[ns]", "V3", "u1,u4", "(2,3)u2"):
            with self.subTest(dtype), counts("gdrx_read_many") as read, counts("gdrx_write_many") as written:
                items = self.mapping.gather(offsets, dtype)
                base = numpy.dtype(dtype).base
                self.assertEqual((items.dtype, items.shape[:2], read), (base, (5, 30), [150]))
                expected = self.expected(offsets, numpy.dtype(dtype)).reshape(items.shape)
                self.assertEqual(items.tobytes(), expected.tobytes())
                self.mapping.scatter(offsets + 100_000, items)
                self.assertEqual(self.mapping.gather(offsets + 100_000, dtype).tobytes(), expected.tobytes())
                self.assertEqual(written, [150])
                self.allocation.fill(pattern(SIZE))

    def test_scatter_writes_nothing_else(self) -> None:
        values = numpy.arange(40, dtype="u2")[::2]  # not contiguous
        expected = bytearray(pattern(SIZE))
        for index in range(20):
            expected[5 + 7 * index : 7 + 7 * index] = (2 * index).to_bytes(2, "little")
        self.mapping.scatter([5 + 7 * index for index in range(20)], values)
        self.assertEqual(self.allocation.contents(), expected)

    def test_offsets_of_every_kind(self) -> None:
        unaligned = numpy.zeros(33, "u1")[1:].view("i8")
        unaligned[:] = [3, 9, 1, 0]
        for offsets in (
            8,
            [],
            (1, 2),
            range(5),
            [[1, 2], [3, 4]],
            [numpy.uint8(200), 3],
            numpy.array([[200], [3]], "u1"),
            numpy.array([70_000, 3], ">u4"),
            numpy.array([70_000, 3], "u8"),
            numpy.arange(100)[::-3],
            unaligned,
        ):
            with self.subTest(offsets):
                items = self.mapping.gather(offsets, "u2")
                self.assertEqual(items.shape, numpy.shape(offsets))
                self.assertEqual(items.tolist(), self.expected(offsets, "u2").tolist())
        self.assertEqual(self.mapping.gather([gpu.Integer(9)], "u1").tolist(), [63])

    def test_dtype_is_by_default_that_of_the_object(self) -> None:
        with gdrcopy.Mapping(gpu.CudaArray(self.allocation, 0, (10, 20), "<f4")) as mapping:
            self.assertEqual(mapping.gather([4]).dtype, numpy.float32)
        with gdrcopy.Mapping(gpu.DLPackArray(self.allocation, (10,), bits=16, code=4)) as bfloat16:
            with self.assertRaisesRegex(TypeError, "pass a dtype"):
                bfloat16.gather([0])

    def test_one_refused_offset_refuses_all(self) -> None:
        for offsets, error, text in (
            ([0, SIZE - 3], ValueError, f"offsets from 0 to {SIZE - 4} for items of 4 bytes, not {SIZE - 3}"),
            ([0, -1], ValueError, "not -1"),
            (numpy.array([0, -2], ">i2"), ValueError, "not -2"),
            (numpy.array([0, 1 << 63], "u8"), ValueError, f"not {1 << 63}"),
            ([0, 1 << 64], ValueError, f"not {1 << 64}"),
            ([-1, 1 << 63], ValueError, "not -1"),
            ([0, 1.5], TypeError, "float"),
            ([True, False], TypeError, "not a mask"),
        ):
            with self.subTest(offsets), counts("gdrx_read_many") as read, counts("gdrx_write_many") as written:
                with self.assertRaisesRegex(error, text):
                    self.mapping.gather(offsets, "u4")
                with self.assertRaisesRegex(error, text):
                    self.mapping.scatter(offsets, numpy.zeros(2, "u4"))
                self.assertEqual((read, written), ([], []))

    def test_items_that_are_none_are_refused(self) -> None:
        for dtype, error, text in (
            (object, TypeError, "without Python objects"),
            ("O,i4", TypeError, "without Python objects"),
            (("u1", SIZE + 1), ValueError, f"at most {SIZE} bytes, not {SIZE + 1}"),
        ):
            with self.subTest(dtype):
                with self.assertRaisesRegex(error, text):
                    self.mapping.gather([0], dtype)
                with self.assertRaisesRegex(error, text):
                    self.mapping.scatter([0], numpy.empty(1, dtype))
        for items in ([1, 2], numpy.zeros(3, "u4"), numpy.uint32(1)):
            with self.subTest(items), self.assertRaisesRegex(ValueError, r"shape begins as .* offsets, \(2,\)"):
                self.mapping.scatter([0, 8], items)
        self.assertEqual(self.mapping.gather([0, SIZE], "V0").shape, (2,))
        self.assertEqual(self.allocation.contents(), pattern(SIZE))


if __name__ == "__main__":
    gpu.initialize()
    unittest.main(warnings="ignore")  # of mappings that are not closed
