"""Writes a message to GPU memory through a mapping, and checks that CUDA reads it there. docs/gdremu.md says how to run
this test without a GPU."""

import ctypes

import pytest

GPU_PAGE_SIZE = 65536
MESSAGE = b"straight into GPU memory"


class Handle(ctypes.Structure):  # gdr_mh_t
    _fields_ = [("h", ctypes.c_ulong)]


@pytest.fixture
def cuda():
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    return cuda


def test_message_arrives(cuda):
    address = ctypes.c_ulong()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(GPU_PAGE_SIZE)) == 0

    libgdrapi = ctypes.CDLL("libgdrapi.so.2")
    libgdrapi.gdr_open.restype = ctypes.c_void_p
    gdr = ctypes.c_void_p(libgdrapi.gdr_open())
    handle, mapping, size = Handle(), ctypes.c_void_p(), ctypes.c_size_t(GPU_PAGE_SIZE)
    assert libgdrapi.gdr_pin_buffer(gdr, address, size, ctypes.c_uint64(0), 0, ctypes.byref(handle)) == 0
    assert libgdrapi.gdr_map(gdr, handle, ctypes.byref(mapping), size) == 0
    assert libgdrapi.gdr_copy_to_mapping(handle, mapping, MESSAGE, ctypes.c_size_t(len(MESSAGE))) == 0

    seen = ctypes.create_string_buffer(len(MESSAGE))
    assert cuda.cuMemcpyDtoH_v2(seen, address, ctypes.c_size_t(len(MESSAGE))) == 0
    assert seen.raw == MESSAGE

    assert libgdrapi.gdr_unmap(gdr, handle, mapping, size) == 0
    assert libgdrapi.gdr_unpin_buffer(gdr, handle) == 0
    assert libgdrapi.gdr_close(gdr) == 0
