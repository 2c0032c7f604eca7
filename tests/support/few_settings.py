"""Options with which `advise` considers few settings, for claims that do not depend on how many there are."""

from wanbench.workloads.algorithms import registry


def only(*kinds: str) -> tuple[str, ...]:
    return tuple(word for kind in registry.kinds() if kind not in kinds for word in ("--exclude", kind))


FEW = only("ssgd", "delayed")
FEWEST = only("ssgd", "overlap-localsgd")
