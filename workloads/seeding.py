"""Independent random streams from one seed. A stream depends on its name, not on the order of use."""

from random import Random


def stream(seed: int, *name: object) -> Random:
    """Return the random stream `name` of `seed`; equal arguments give equal numbers on every machine.

    Python's string seeding is stable across versions (its `version=2`, which hashes with SHA-512).
    """
    return Random("/".join(str(part) for part in (seed, *name)))


def torch_seed(seed: int, *name: object) -> int:
    """Return a seed for a `torch.Generator`, from the stream `name` of `seed`."""
    return stream(seed, *name).getrandbits(63)
