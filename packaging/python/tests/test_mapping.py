"""Mapping under gdremu: what arrives in GPU memory, and what is refused."""

import array
import errno
import gc
import os
import threading
import unittest
import unittest.mock

import gdrcopy
import gpu

SIZE = 200_000  # more than three pages of 64 KiB, and part of a fourth


def pattern(size: int) -> bytes:
    return bytes(index * 7 % 251 for index in range(size))


class OfEveryKindOfObject(unittest.TestCase):
    def setUp(self) -> None:
        self.allocation = gpu.Allocation(SIZE)
        self.addCleanup(self.allocation.free)
        self.allocation.fill(bytes(SIZE))

    def check(self, obj, begin: int, size: int) -> None:
        """Writes through a mapping of obj, and looks for it at [begin, begin + size) of the allocation."""
        data = pattern(size)
        with gdrcopy.Mapping(obj) as mapping:
            self.assertEqual((mapping.address, mapping.size), (self.allocation.address + begin, size))
            mapping.write(data)
            self.assertEqual(mapping.read(), data)
        self.assertEqual(self.allocation.contents(), bytes(begin) + data + bytes(SIZE - begin - size))

    def test_address_and_size(self) -> None:
        self.check((self.allocation.address, SIZE), 0, SIZE)

    def test_address_within_a_page(self) -> None:
        self.check((self.allocation.address + 70_001, 777), 70_001, 777)

    def test_cuda_array_interface(self) -> None:
        self.check(gpu.CudaArray(self.allocation, 512, (10, 20), "<f4"), 512, 800)

    def test_cuda_array_interface_with_contiguous_strides(self) -> None:
        self.check(gpu.CudaArray(self.allocation, 0, (10, 1, 20), "<f8", (160, 4, 8)), 0, 1600)

    def test_dlpack(self) -> None:
        self.check(gpu.DLPackArray(self.allocation, (10, 20), bits=16, byte_offset=256), 256, 400)

    def test_dlpack_with_contiguous_strides(self) -> None:
        self.check(gpu.DLPackArray(self.allocation, (10, 20), bits=32, strides=(20, 1)), 0, 800)

    def test_strided_objects_are_refused(self) -> None:
        for obj in (
            gpu.CudaArray(self.allocation, 0, (10, 10), "<f4", (80, 4)),
            gpu.DLPackArray(self.allocation, (10, 10), strides=(1, 10)),
        ):
            with self.assertRaisesRegex(ValueError, "contiguous copy"):
                gdrcopy.Mapping(obj)

    def test_empty_objects_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "at least 1 byte"):
            gdrcopy.Mapping(gpu.CudaArray(self.allocation, 0, (0, 10)))

    def test_dlpack_on_the_host_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "CUDA device memory"):
            gdrcopy.Mapping(gpu.DLPackArray(self.allocation, (1,), device_type=1))

    def test_other_objects_are_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "__cuda_array_interface__.*bytes"):
            gdrcopy.Mapping(b"host")

    def test_read_only_object_is_read_but_not_written(self) -> None:
        with gdrcopy.Mapping(gpu.CudaArray(self.allocation, read_only=True)) as mapping:
            self.assertEqual(mapping.read(0, 10), bytes(10))
            with self.assertRaisesRegex(TypeError, "read-only"):
                mapping.write(b"x")

    def test_dlpack_tensor_is_released_at_close_only(self) -> None:
        obj = gpu.DLPackArray(self.allocation, (10,))
        mapping = gdrcopy.Mapping(obj)
        gc.collect()
        self.assertEqual(obj.deleted, 0)
        mapping.close()
        self.assertEqual(obj.deleted, 1)


class Copies(unittest.TestCase):
    def setUp(self) -> None:
        self.allocation = gpu.Allocation(SIZE)
        self.addCleanup(self.allocation.free)
        self.allocation.fill(pattern(SIZE))
        self.mapping = gdrcopy.Mapping((self.allocation.address, SIZE))
        self.addCleanup(self.mapping.close)

    def test_read_many_returns_each_range_in_order(self) -> None:
        data = pattern(SIZE)
        ranges = [(100_000, 5), (0, 0), (3, 4096), (SIZE - 1, 1)]
        self.assertEqual(self.mapping.read_many(ranges), [data[offset : offset + size] for offset, size in ranges])

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
        for offset, size in ((0, SIZE + 1), (SIZE, 1), (-1, 1), (SIZE + 1, 0)):
            with self.assertRaisesRegex(ValueError, "range within"):
                self.mapping.write(bytes(size), offset)
            with self.assertRaisesRegex(ValueError, "range within"):
                self.mapping.read(offset, size)
        self.assertEqual(self.allocation.contents(), pattern(SIZE))

    def test_closed_mapping_refuses_copies(self) -> None:
        self.mapping.close()
        self.mapping.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            self.mapping.read()
        with self.assertRaisesRegex(ValueError, "closed"):
            self.mapping.write(b"x")

    def test_close_waits_for_copies_of_other_threads(self) -> None:
        functions, calls = gdrcopy._library.functions(), []
        copy, unpin = functions.gdr_copy_from_mapping, functions.gdr_unpin_buffer
        closer = threading.Thread(target=self.mapping.close)

        def copy_while_another_thread_closes(*arguments: object) -> int:
            closer.start()
            closer.join(0.2)  # as long as a close that does not wait may take to show
            calls.append("copied")
            return copy(*arguments)

        def recorded_unpin(*arguments: object) -> int:
            calls.append("unpinned")
            return unpin(*arguments)

        replaced = {"gdr_copy_from_mapping": copy_while_another_thread_closes, "gdr_unpin_buffer": recorded_unpin}
        with unittest.mock.patch.multiple(functions, **replaced):
            self.assertEqual(self.mapping.read(0, 4), pattern(4))
            closer.join()
        self.assertEqual(calls, ["copied", "unpinned"])

    def test_numpy_arrays_of_every_type(self) -> None:
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        for dtype in ("f2", "c16", "i4,f8"):
            written = numpy.frombuffer(pattern(480), dtype).reshape(2, -1)
            read = numpy.zeros_like(written)
            self.mapping.write(written, 64)
            self.mapping.read_into(read, 64)
            self.assertEqual(read.tobytes(), written.tobytes())


class Pins(unittest.TestCase):
    def test_force_pcie_is_a_flag_of_the_pin(self) -> None:
        functions = gdrcopy._library.functions()
        for force_pcie, flags in ((False, 0), (True, 1)):
            with unittest.mock.patch.object(functions, "gdr_pin_buffer_v2", return_value=errno.EOPNOTSUPP) as pin:
                with self.assertRaisesRegex(gdrcopy.Error, "without force_pcie"):
                    gdrcopy.Mapping((1 << 20, 100), force_pcie=force_pcie)
            self.assertEqual(pin.call_args.args[3], flags)


class Errors(unittest.TestCase):
    def test_memory_that_is_not_on_the_gpu_is_refused_with_a_remedy(self) -> None:
        with self.assertRaisesRegex(gdrcopy.Error, "gdr_pin_buffer_v2: Invalid argument; pass device memory") as caught:
            gdrcopy.Mapping((1 << 20, 100))
        self.assertEqual(caught.exception.errno, errno.EINVAL)
        self.assertIn("not host, managed or freed memory", caught.exception.remedy)
        self.assertIsInstance(caught.exception, OSError)

    def test_forked_child_cannot_use_the_mapping_but_makes_its_own(self) -> None:
        allocation = gpu.Allocation(SIZE)
        self.addCleanup(allocation.free)
        with gdrcopy.Mapping((allocation.address, SIZE)) as mapping:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    mapping.read()
                except gdrcopy.Error as error:
                    # The child has no CUDA memory to pin: what is refused is the pin, not the connection.
                    try:
                        gdrcopy.Mapping((1 << 20, 100))
                    except gdrcopy.Error as of_pin:
                        status = 0 if (error.errno, of_pin.errno) == (errno.EACCES, errno.EINVAL) else 2
                finally:
                    os._exit(status)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertEqual(len(mapping.read()), SIZE)


if __name__ == "__main__":
    gpu.initialize()
    unittest.main()
