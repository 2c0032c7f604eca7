"""The data set of an accuracy: a claim about one data set does not hold for another."""

from __future__ import annotations

from wanbench.workloads.models.builtins import BUILTINS

_OF_THE_PAPERS = "ImageNet"


def data_set(workload: str) -> str:
    """The data set of a built-in workload, as "digits, not ImageNet"; for a user's own model, the workload's name."""
    builtin = BUILTINS.get(workload)
    if builtin is None or builtin.dataset is None:
        return workload
    return builtin.dataset if builtin.dataset == _OF_THE_PAPERS else f"{builtin.dataset}, not {_OF_THE_PAPERS}"
