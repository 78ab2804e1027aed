"""Uses arrays, streams and events of numba-cuda, and writes to an array by libgdrapi. Prints a line for each test that
passes."""

import ctypes

import numpy
from numba import cuda

PAGE = 65536
LIBRARY = ctypes.CDLL("libgdrapi.so.2")
LIBRARY.gdr_open.restype = ctypes.c_void_p


def arrays() -> None:
    numbers = numpy.arange(1000, dtype=numpy.uint32)
    stream = cuda.stream()
    with stream.auto_synchronize():
        first = cuda.to_device(numbers, stream=stream)
        second = cuda.device_array_like(first)
        second.copy_to_device(first, stream=stream)
        copied = second.copy_to_host(stream=stream)
    assert (copied == numbers).all()
    assert (second[10:20].copy_to_host() == numbers[10:20]).all()


def events() -> None:
    stream, other = cuda.stream(), cuda.stream()
    start, end = cuda.event(), cuda.event()
    start.record(stream)
    end.record(stream)
    end.wait(other)
    end.synchronize()
    assert end.query() and cuda.event_elapsed_time(start, end) >= 0


def host_memory() -> None:
    pinned = cuda.pinned_array(1000, dtype=numpy.uint8)
    pinned[:] = 3
    assert (cuda.to_device(pinned).copy_to_host() == 3).all()
    assert cuda.current_context().get_memory_info().free > 0


def gdrcopy() -> None:
    array = cuda.device_array(2 * PAGE, dtype=numpy.uint8)
    address = array.__cuda_array_interface__["data"][0]
    start = -(-address // PAGE) * PAGE
    driver, pin, mapped = LIBRARY.gdr_open(), ctypes.c_ulong(), ctypes.c_void_p()
    assert driver
    call = [ctypes.c_void_p(driver), pin]
    assert LIBRARY.gdr_pin_buffer(call[0], ctypes.c_ulong(start), ctypes.c_size_t(PAGE), ctypes.c_uint64(0), 0,
                                  ctypes.byref(pin)) == 0
    assert LIBRARY.gdr_map(*call, ctypes.byref(mapped), ctypes.c_size_t(PAGE)) == 0
    assert LIBRARY.gdr_copy_to_mapping(pin, mapped, b"\5" * PAGE, ctypes.c_size_t(PAGE)) == 0
    assert (array[start - address : start - address + PAGE].copy_to_host() == 5).all()
    assert LIBRARY.gdr_unmap(*call, mapped, ctypes.c_size_t(PAGE)) == 0
    assert LIBRARY.gdr_unpin_buffer(*call) == 0
    assert LIBRARY.gdr_close(call[0]) == 0


for test in (arrays, events, host_memory, gdrcopy):
    print("test", test.__name__)
    test()
    print("ok", test.__name__)
