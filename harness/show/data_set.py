"""What an accuracy is of: claims about one data set do not hold for another."""

from __future__ import annotations

from wanbench.workloads.models.builtins import BUILTINS

_OF_THE_PAPERS = "ImageNet"


def data_set(workload: str) -> str:
    """The data set of a workload by name, "digits, not ImageNet"; of a model of the user's, its name."""
    builtin = BUILTINS.get(workload)
    if builtin is None or builtin.dataset is None:
        return workload
    return builtin.dataset if builtin.dataset == _OF_THE_PAPERS else f"{builtin.dataset}, not {_OF_THE_PAPERS}"
