"""Reads rows out of a table in GPU memory: rows.py [MIB], 1024 by default."""

import sys

import gdrcopy
import numpy
from example import DeviceMemory, print_time

WANTED = 64  # rows at once
ROW = numpy.dtype(("u8", 8))
CHUNK = 1 << 20

size = int(sys.argv[1] if len(sys.argv) > 1 else 1024) * CHUNK
memory = DeviceMemory(size)
rows = numpy.zeros(CHUNK // ROW.itemsize, ROW)
for start in range(0, size, CHUNK):  # Each row begins with its own offset.
    rows[:, 0] = numpy.arange(start, start + CHUNK, ROW.itemsize)
    memory.set(start, rows)
random = numpy.random.default_rng(1)

with gdrcopy.Mapping((memory.address, memory.size)) as mapping:

    def choose():
        global offsets
        offsets = random.integers(0, size // ROW.itemsize, WANTED) * ROW.itemsize

    print(f"{WANTED} of {size // ROW.itemsize} rows of {ROW.itemsize} bytes; median, for each row:")
    print_time("Mapping.read", WANTED, lambda: [mapping.read(offset, ROW.itemsize) for offset in offsets], choose)
    print_time("Mapping.gather", WANTED, lambda: mapping.gather(offsets, ROW), choose)
    assert (mapping.gather(offsets, ROW)[:, 0] == offsets).all()
