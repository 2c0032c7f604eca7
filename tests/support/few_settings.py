"""Options with which `advise` considers few algorithms, for claims that do not depend on how many there are."""

from wanbench.workloads.algorithms import registry

KINDS = ("ssgd", "delayed")
FEW = tuple(word for kind in registry.kinds() if kind not in KINDS for word in ("--exclude", kind))
