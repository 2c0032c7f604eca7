"""Queues that pyroute2 0.9 lacks: netem with a rate, bfifo, and packet sizes without the Ethernet header.

Its own netem plugin cannot set `rate` (the kernel refuses its message), drops keywords that it does not know, and has
no distributions, nanoseconds or seeds. The layouts are those of linux/pkt_sched.h.
"""

from __future__ import annotations

import struct
from functools import cache
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

from pyroute2.netlink import nla
from pyroute2.netlink.rtnl import TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import plugins

_HEADER = ("delay", "limit", "loss", "gap", "duplicate", "jitter")
_OURS = frozenset(
    {"delay_ns", "jitter_ns", "loss", "burst_begins", "burst_ends", "limit", "rate", "distribution", "seed"}
)
_OPTIONAL = frozenset({"duplicate"})  # 0 if left out
_ADDRESSING = frozenset({"kind", "index", "handle", "parent", "family"})
_DISTRIBUTION_SCALE = 8192  # samples are deviations from the mean in units of jitter / 8192
_DISTRIBUTION_SAMPLES = 4096
_RATE_32 = 2**32 - 1
_ETHERNET_HEADER = 14


class NetemOptions(nla):  # type: ignore[misc]
    """TCA_OPTIONS of a netem qdisc, complete."""

    fields = tuple((name, "I") for name in _HEADER)
    nla_map = (
        ("TCA_NETEM_UNSPEC", "none"),
        ("TCA_NETEM_CORR", "hex"),
        ("TCA_NETEM_DELAY_DIST", "cdata"),
        ("TCA_NETEM_REORDER", "hex"),
        ("TCA_NETEM_CORRUPT", "uint64"),
        ("TCA_NETEM_LOSS", "netem_loss"),
        ("TCA_NETEM_RATE", "netem_rate"),
        ("TCA_NETEM_ECN", "uint32"),
        ("TCA_NETEM_RATE64", "uint64"),
        ("TCA_NETEM_PAD", "hex"),
        ("TCA_NETEM_LATENCY64", "int64"),
        ("TCA_NETEM_JITTER64", "int64"),
        ("TCA_NETEM_SLOT", "hex"),
        ("TCA_NETEM_SLOT_DIST", "hex"),
        ("TCA_NETEM_PRNG_SEED", "uint64"),
    )

    class netem_rate(nla):  # type: ignore[misc]
        """struct tc_netem_rate; bytes per second."""

        fields = (("rate", "I"), ("packet_overhead", "i"), ("cell_size", "I"), ("cell_overhead", "i"))

    class netem_loss(nla):  # type: ignore[misc]
        """The nested models of loss."""

        nla_map = (("NETEM_LOSS_UNSPEC", "none"), ("NETEM_LOSS_GI", "hex"), ("NETEM_LOSS_GE", "gemodel"))

        class gemodel(nla):  # type: ignore[misc]
            """struct tc_netem_gemodel, of 2^32-1: good to bad, bad to good, survival in bad, loss in good."""

            fields = (("p", "I"), ("r", "I"), ("h", "I"), ("k1", "I"))


class FifoOptions(nla):  # type: ignore[misc]
    """struct tc_fifo_qopt: the limit of a bfifo, in bytes."""

    fields = (("limit", "I"),)


def netem_parameters(request: dict[str, Any]) -> dict[str, Any]:
    """Return TCA_OPTIONS from keywords. All are required, because a `change` resets or keeps an option left out.

    Args:
        request: `delay_ns`, `jitter_ns` (one standard deviation), `loss` (of 2^32-1), `burst_begins` and
            `burst_ends` (per packet, of 2^32-1; 0 for no bursts), `limit` (packets, including the delay line), `rate`
            (bytes/s, 0 for none), `distribution` (signed 16-bit samples), `seed` (or None).

    Raises:
        TypeError: a keyword is unknown or missing.
    """
    given = set(request) - _ADDRESSING
    if not _OURS <= given <= _OURS | _OPTIONAL:
        raise TypeError(f"netem: unknown {sorted(given - _OURS - _OPTIONAL)}, missing {sorted(_OURS - given)}")
    rate = request["rate"]
    attrs: list[list[Any]] = [
        ["TCA_NETEM_LATENCY64", request["delay_ns"]],
        ["TCA_NETEM_JITTER64", request["jitter_ns"]],
        ["TCA_NETEM_DELAY_DIST", request["distribution"]],
        [
            "TCA_NETEM_RATE",
            {"rate": min(rate, _RATE_32), "packet_overhead": 0, "cell_size": 0, "cell_overhead": 0},
        ],
    ]
    if rate > _RATE_32:
        attrs.append(["TCA_NETEM_RATE64", rate])
    if request["burst_begins"]:
        model = {"p": request["burst_begins"], "r": request["burst_ends"], "h": 0, "k1": 0}
        attrs.append(["TCA_NETEM_LOSS", {"attrs": [["NETEM_LOSS_GE", model]]}])
    if request["seed"] is not None:
        attrs.append(["TCA_NETEM_PRNG_SEED", request["seed"]])
    header = dict.fromkeys(_HEADER, 0) | {name: request[name] for name in _HEADER if name in request}
    return header | {"attrs": attrs}


def netem_values(options: Any) -> dict[str, int | None]:
    """Return a netem qdisc's values by our keywords. The kernel does not report the distribution."""
    rate = options.get_attr("TCA_NETEM_RATE64") or options.get_attr("TCA_NETEM_RATE")["rate"]
    model = options.get_nested("TCA_NETEM_LOSS", "NETEM_LOSS_GE") or dict.fromkeys(("p", "r", "h", "k1"), 0)
    return {
        "delay_ns": options.get_attr("TCA_NETEM_LATENCY64"),
        "jitter_ns": options.get_attr("TCA_NETEM_JITTER64"),
        "loss": options["loss"],
        "burst_begins": model["p"],
        "burst_ends": model["r"],
        "burst_survival": model["h"],
        "loss_between_bursts": model["k1"],
        "limit": options["limit"],
        "rate": rate,
        "gap": options["gap"],
        "duplicate": options["duplicate"],
        "corrupt": options.get_attr("TCA_NETEM_CORRUPT") or 0,
        "seed": options.get_attr("TCA_NETEM_PRNG_SEED"),
    }


@cache
def normal() -> bytes:
    """Return a normal distribution in netem's format: equally spaced samples of its inverse."""
    inverse, count = NormalDist().inv_cdf, _DISTRIBUTION_SAMPLES
    samples = [round(inverse((index + 0.5) / count) * _DISTRIBUTION_SCALE) for index in range(count)]
    return struct.pack(f"={count}h", *samples)


def without_ethernet_header() -> bytes:
    """Return the TCA_STAB with which a root qdisc, and all below it, count IP bytes."""
    base = struct.pack("=BBhiIIII", 0, 0, 0, -_ETHERNET_HEADER, 0, 0, 0, 0)
    return struct.pack("=HH", 4 + len(base), 1) + base


def _forget_ours(request: dict[str, Any]) -> None:
    # pyroute2 sends every key that is left in a request as a TCA_* attribute of that name, at the wrong level.
    for name in _OURS | _OPTIONAL:
        request.pop(name, None)


def install() -> None:
    """Install these queues into pyroute2."""
    plugins["netem"] = SimpleNamespace(
        parent=TC_H_ROOT, options=NetemOptions, get_parameters=netem_parameters, fix_request=_forget_ours
    )
    plugins["bfifo"] = SimpleNamespace(
        parent=TC_H_ROOT, options=FifoOptions, get_parameters=lambda request: {"limit": request["limit"]}
    )
