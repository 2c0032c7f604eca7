"""Random numbers by counter: draw number n of a stream depends only on the stream's name and on n.

Thousands of paths can therefore draw in one numpy call, and the draws of a path do not depend on other paths.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wanbench.harness.testbeds.virtual import Floats

Words = NDArray[np.uint64]

_WEYL = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(11), np.uint64(30), np.uint64(27), np.uint64(31)


def key(seed: int, *name: object) -> int:
    """Return the 64-bit key of the stream `name` of `seed`."""
    text = "/".join(str(part) for part in (seed, *name))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


@dataclass
class Stream:
    """The numbers of one stream, one after another.

    Attributes:
        key: of the stream. drawn: how many were drawn.
    """

    key: int
    drawn: int = 0

    def next(self) -> float:
        """Draw a number in (0, 1)."""
        self.drawn += 1
        return float(uniform(np.array([self.key], np.uint64), np.array([self.drawn - 1], np.uint64))[0])

    def sample(self, count: int, of: int) -> list[int]:
        """Draw `count` different numbers from 0 to `of` - 1, in their order (Floyd)."""
        chosen: set[int] = set()
        for last in range(of - count, of):
            number = int(self.next() * (last + 1))
            chosen.add(last if number in chosen else number)
        return sorted(chosen)


def uniform(keys: Words, counters: Words) -> Floats:
    """Return numbers in (0, 1): draw `counters[i]` of stream `keys[i]`, by two rounds of splitmix64."""
    words = _mixed(keys + _mixed(counters))
    words >>= _SHIFTS[0]
    numbers = words.astype(np.float64)
    numbers += 0.5
    numbers /= 2.0**53
    return numbers


def _mixed(words: Words) -> Words:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014); arrays of numpy count modulo 2^64."""
    words = words + _WEYL
    words ^= words >> _SHIFTS[1]
    words *= _FACTORS[0]
    words ^= words >> _SHIFTS[2]
    words *= _FACTORS[1]
    words ^= words >> _SHIFTS[3]
    return words
