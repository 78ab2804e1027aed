"""An order book in GPU memory: the CPU changes price levels all over it, and then rings a doorbell, by which a GPU kernel knows
that it may read them."""

import gdrcopy
import numpy
from example import DeviceMemory, print_time

LEVELS = 1 << 20
CHANGES = 64  # before each ring
LEVEL = numpy.dtype([("price", "u8"), ("quantity", "u8"), ("orders", "u8"), ("sequence", "u8"), ("rest", "u8", 4)])
DOORBELL = LEVELS * LEVEL.itemsize

memory = DeviceMemory(DOORBELL + 65536)
random = numpy.random.default_rng(1)
levels = numpy.zeros(CHANGES, LEVEL)

with gdrcopy.Mapping((memory.address, memory.size)) as mapping:
    doorbell = mapping.word(DOORBELL, 4)

    def choose():
        global offsets
        mapping.flush()  # The writes before have arrived.
        offsets = random.choice(LEVELS, CHANGES, replace=False) * LEVEL.itemsize
        levels["sequence"] += 1

    def one_by_one():
        for offset, level in zip(offsets, levels):
            mapping.write(level.tobytes(), offset)
        doorbell.store(int(levels["sequence"][0]))

    def together():
        mapping.scatter(offsets, levels)
        doorbell.store(int(levels["sequence"][0]))

    print(f"{CHANGES} levels of {LEVEL.itemsize} bytes, then the doorbell; median, for each level:")
    print_time("Mapping.write", CHANGES, one_by_one, choose)
    print_time("Mapping.scatter", CHANGES, together, choose)
    assert doorbell.load() == levels["sequence"][0]
    assert (mapping.gather(offsets, LEVEL) == levels).all()
