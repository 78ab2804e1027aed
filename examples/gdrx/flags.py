"""Polls 64 flags in GPU memory: GPU kernels set them, each in a line of its own, and the CPU looks at all of them."""

import gdrcopy
import numpy
from example import DeviceMemory, print_time

FLAGS = 64
STRIDE = 192  # bytes from one flag to the next, an odd number of lines, so that more loads overlap

memory = DeviceMemory(FLAGS * STRIDE)
offsets = numpy.arange(FLAGS) * STRIDE
for flag, offset in enumerate(offsets):
    memory.set(int(offset), numpy.array([flag + 1], "u4"))

with gdrcopy.Mapping((memory.address, memory.size)) as mapping:
    words = [mapping.word(offset, 4) for offset in offsets]
    print(f"{FLAGS} flags, {STRIDE} bytes apart; median, for each flag:")
    print_time("Word.load", FLAGS, lambda: [word.load() for word in words])
    print_time("Mapping.gather", FLAGS, lambda: mapping.gather(offsets, "u4"))
    assert (mapping.gather(offsets, "u4") == numpy.arange(FLAGS) + 1).all()
