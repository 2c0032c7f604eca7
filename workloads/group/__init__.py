"""A process group for torch.distributed, made for slow and distant links: `init_process_group("wan")`.

Layout
    group.py      WanGroup: the methods that torch calls, in terms of transfers and reductions
    work.py       an operation in progress, as torch sees it, and the watchdog that ends those that take too long
    joining.py    how ranks find and connect to each other; settings.py: what the environment says about the network
"""

from functools import partial
from typing import Any

NAME = "wan"


def register() -> None:
    """Register the backend `wan` with torch. An entry point calls it when torch is imported."""
    import torch.distributed as dist

    if dist.is_available() and NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
        of_gloo = dist.monitored_barrier

        def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
            """Torch's own, which refuses all groups but gloo's by the name of their backend, for this group as well."""
            own: Any = dist.group.WORLD if group is None else group
            is_wan = getattr(own, "name", str)() == NAME
            (own.monitored_barrier if is_wan else partial(of_gloo, group))(timeout, wait_all_ranks)

        dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = monitored_barrier


def _create(options: object, _backend_options: object) -> object:
    from wanbench.workloads.group.group import create

    return create(options)
