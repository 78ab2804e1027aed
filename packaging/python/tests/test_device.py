"""Which GPU memory a Mapping is of, by kinds of objects, under gdremu."""

import gc
import unittest

import gdrcopy
import gpu
from gpu import SIZE, needs_numpy, numpy, pattern


class OfEveryKindOfObject(unittest.TestCase):
    def setUp(self) -> None:
        self.allocation = gpu.Allocation(SIZE)
        self.addCleanup(self.allocation.free)
        self.allocation.fill(bytes(SIZE))

    def check(self, obj, begin: int, size: int) -> None:
        """Writes through a mapping of obj, and looks for it at [begin, begin + size) of the allocation."""
        self.allocation.fill(bytes(SIZE))
        data = pattern(size)
        with gdrcopy.Mapping(obj) as mapping:
            self.assertEqual((mapping.address, mapping.size), (self.allocation.address + begin, size))
            mapping.write(data)
            self.assertEqual(mapping.read(), data)
        self.assertEqual(self.allocation.contents(), bytes(begin) + data + bytes(SIZE - begin - size))

    def test_memory_of_every_object(self) -> None:
        allocation = self.allocation
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
        ):
            with self.subTest(name):
                self.check(obj, begin, size)

    def test_other_objects_are_refused(self) -> None:
        allocation = self.allocation
        for name, obj, error, text in (
            ("strided", gpu.CudaArray(allocation, 0, (10, 10), "<f4", (80, 4)), ValueError, "contiguous copy"),
            ("strided DLPack", gpu.DLPackArray(allocation, (10, 10), strides=(1, 10)), ValueError, "contiguous copy"),
            ("empty", gpu.CudaArray(allocation, 0, (0, 10)), ValueError, "at least 1 byte"),
            ("on the host", gpu.DLPackArray(allocation, (1,), device_type=1), ValueError, "CUDA device memory"),
            ("no interface", b"host", TypeError, "__cuda_array_interface__.*not bytes"),
            ("torch, grad", gpu.TorchTensor(allocation, (10,), requires_grad=True), BufferError, "detach"),
            ("torch, conj", gpu.TorchTensor(allocation, (10,), conj=True), ValueError, "resolve_conj"),
            ("torch, neg", gpu.TorchTensor(allocation, (10,), neg=True), ValueError, "resolve_neg"),
        ):
            with self.subTest(name), self.assertRaisesRegex(error, text):
                gdrcopy.Mapping(obj)

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

    def test_read_only_tensor_of_versioned_dlpack_is_not_written(self) -> None:
        with gdrcopy.Mapping(gpu.VersionedDLPackArray(self.allocation, (10,), read_only=True)) as mapping:
            with self.assertRaisesRegex(TypeError, "read-only"):
                mapping.write(b"x")

    def test_read_only_flag_counts_where_dlpack_has_none(self) -> None:
        obj = gpu.DLPackArray(self.allocation, (10,))
        obj.__cuda_array_interface__ = gpu.CudaArray(self.allocation, read_only=True).__cuda_array_interface__
        with gdrcopy.Mapping(obj) as mapping, self.assertRaisesRegex(TypeError, "read-only"):
            mapping.write(b"x")

    def test_error_of_the_interface_is_raised_where_there_is_no_dlpack(self) -> None:
        class Deleted:
            @property
            def __cuda_array_interface__(self):
                raise RuntimeError("deleted")

        with self.assertRaisesRegex(RuntimeError, "deleted"):
            gdrcopy.Mapping(Deleted())

    def test_every_whole_item_of_the_array_interface(self) -> None:
        sizes = {"|b1": 1, "<M8[ns]": 8, "<m8[us]": 8, "<U4": 16, "|S5": 5, "<V2": 2, "<c16": 16}
        for typestr, size in sizes.items():
            with self.subTest(typestr):
                with gdrcopy.Mapping(gpu.CudaArray(self.allocation, 0, (10,), typestr, (size,))) as mapping:
                    self.assertEqual(mapping.size, 10 * size)

    def test_items_without_a_size_in_bytes_are_refused(self) -> None:
        for typestr in ("|t4", "|O8", "f4", "<f", "<f4x", "<M8[", "<f-4"):
            with self.subTest(typestr), self.assertRaisesRegex(ValueError, "whole bytes"):
                gdrcopy.Mapping(gpu.CudaArray(self.allocation, 0, (10,), typestr))

    def test_strides_of_another_number_of_dimensions_are_refused(self) -> None:
        for strides in ((), (4,), (80, 4, 4)):
            with self.subTest(strides), self.assertRaisesRegex(ValueError, "2 dimensions"):
                gdrcopy.Mapping(gpu.CudaArray(self.allocation, 0, (10, 20), "<f4", strides))

    def test_integers_of_other_types(self) -> None:
        address, ten = gpu.Integer(self.allocation.address), gpu.Integer(10)
        self.check((address, ten), 0, 10)
        obj = gpu.CudaArray(self.allocation, 0, (ten, ten))
        obj.__cuda_array_interface__["data"] = (address, False)
        self.check(obj, 0, 100)

    @needs_numpy
    def test_size_of_numpy_integers_does_not_overflow(self) -> None:
        # 4 GiB, which is more than there is. 64 KiB as an int32.
        with self.assertRaises(gdrcopy.Error):
            gdrcopy.Mapping(gpu.CudaArray(self.allocation, 0, (numpy.int32(65536), numpy.int32(65537))))

    def test_other_tuples_are_refused(self) -> None:
        for given in ((), (1,), (1, 2, 3)):
            with self.assertRaisesRegex(ValueError, rf"pass \(address, size\), not a tuple of {len(given)}"):
                gdrcopy.Mapping(given)

    def test_incomplete_cuda_array_interface_is_refused(self) -> None:
        obj = gpu.CudaArray(self.allocation)
        del obj.__cuda_array_interface__["shape"], obj.__cuda_array_interface__["typestr"]
        with self.assertRaisesRegex(ValueError, "__cuda_array_interface__ has shape, typestr"):
            gdrcopy.Mapping(obj)

    def test_items_of_dlpack_by_their_names_in_numpy(self) -> None:
        for code, bits, dtype in ((0, 64, "<i8"), (1, 8, "<u1"), (2, 16, "<f2"), (5, 128, "<c16"), (6, 8, "<b1"), (2, 8, None)):
            with self.subTest(dtype), gdrcopy.Mapping(gpu.DLPackArray(self.allocation, (2, 3), bits, code=code)) as mapping:
                self.assertEqual((mapping.dtype, mapping.shape), (dtype, (2, 3)))

    def test_numbers_that_are_no_integers_are_refused(self) -> None:
        for pair in ((float(self.allocation.address), 10), (self.allocation.address, 10.0), ("address", 10)):
            with self.assertRaises(TypeError):
                gdrcopy.Mapping(pair)

    def test_memory_beyond_64_bits_is_refused(self) -> None:
        address = self.allocation.address
        for pair in ((address, 2**64), (address, 2**64 + 10), (address + 2**64, 10), (-1, 10), (address, -1)):
            with self.subTest(pair), self.assertRaisesRegex(ValueError, "at least 1 byte below address 2"):
                gdrcopy.Mapping(pair)


if __name__ == "__main__":
    gpu.initialize()
    unittest.main()
