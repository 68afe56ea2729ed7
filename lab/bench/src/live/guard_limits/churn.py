"""A cache of Python objects that is filled, mostly emptied, and filled again with values of another
size. Values of over 512 bytes come from malloc.

Arguments: MiB of values, number of deletions, milliseconds between deletion and refill. It is ready
with half of the values."""

import random
import sys
import time

import console

LOOK_UPS_PER_MIB = 2000
DELETED_PERCENT = 85
SMALL = (513, 1536)
LARGE = (8 << 10, 64 << 10)


class Cache:
    def __init__(self):
        self.values = {}
        self.keys = []
        self.bytes = self.operations = self.next_key = 0
        self.random = random.Random(1)

    def fill(self, until, sizes):
        while self.bytes < until:
            size = self.random.randrange(*sizes)
            self.values[self.next_key] = bytes((self.next_key & 255 | 1,)) * size
            self.keys.append(self.next_key)
            self.bytes += size
            self.next_key += 1
            self.operations += 1

    def look_up(self, count):
        for _ in range(count):
            key = self.keys[int(self.random.random() * len(self.keys))]
            value = self.values[key]
            if value[int(self.random.random() * len(value))] != key & 255 | 1:
                raise ArithmeticError(f"the value of key {key} is wrong")
        self.operations += count

    def delete_most(self):
        kept = []
        for key in self.keys:
            if self.random.random() * 100 >= DELETED_PERCENT:
                kept.append(key)
                continue
            self.bytes -= len(self.values.pop(key))
            self.operations += 1
        self.keys = kept


def program(console, mib):
    deletions, pause_s = int(sys.argv[2]), int(sys.argv[3]) / 1e3
    cache = Cache()
    size, look_ups = mib << 20, mib * LOOK_UPS_PER_MIB
    cache.fill(size // 2, SMALL)
    console.ready()
    begun, before = time.monotonic(), cache.operations
    cache.fill(size, SMALL)
    cache.look_up(look_ups)
    for n in range(deletions):
        cache.delete_most()
        cache.look_up(look_ups // 4)
        time.sleep(pause_s)
        cache.fill(size, (LARGE, SMALL)[n % 2])
        cache.look_up(look_ups)
    console.finished(time.monotonic() - begun - deletions * pause_s, cache.operations - before)


console.run(program)
