"""Build a netem plan in the kernel through pyroute2, in network namespaces without names.

Only a descriptor holds a namespace. The kernel removes it, with its devices and queues, when the last descriptor is
closed and the last process in it has ended, however they end.

pyroute2 0.9 lacks netem with a rate, bfifo, and packet sizes without the Ethernet header: its own netem plugin cannot
set `rate` (the kernel refuses its message), drops keywords that it does not know, and has no distributions, nanoseconds
or seeds. The layouts here are those of linux/pkt_sched.h.
"""

import array
import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink import nla
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT
from pyroute2.netlink.rtnl.tcmsg import plugins

from wanbench.harness.emulators.netem.plan import (
    GATEWAY,
    NO_IPV6,
    ONLY_LOCAL_IPV6,
    ROUTER_SYSCTLS,
    Address,
    Class,
    End,
    Fifo,
    From,
    Netem,
    Root,
    Route,
    Router,
    Shape,
    Step,
    Veth,
    Worker,
    described,
    leaf_of,
)
from wanbench.harness.emulators.plan import IMPAIRMENTS
from wanbench.workloads.process import configuration
from wanbench.workloads.process.configuration import Thing
from wanbench.workloads.process.namespace import DNS_PORT, OUTSIDE_PRIORITY, OUTSIDE_TABLE

_HEADER = ("delay", "limit", "loss", "gap", "duplicate", "jitter")
_OURS = frozenset(
    {"delay_ns", "jitter_ns", "loss", "burst_begins", "burst_ends", "limit", "rate", "distribution", "seed"}
)
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
    if given != _OURS:
        raise TypeError(f"netem: unknown {sorted(given - _OURS)}, missing {sorted(_OURS - given)}")
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
    for name in _OURS:
        request.pop(name, None)


def install() -> None:
    """Install these queues into pyroute2."""
    plugins["netem"] = SimpleNamespace(
        parent=TC_H_ROOT, options=NetemOptions, get_parameters=netem_parameters, fix_request=_forget_ours
    )
    plugins["bfifo"] = SimpleNamespace(
        parent=TC_H_ROOT, options=FifoOptions, get_parameters=lambda request: {"limit": request["limit"]}
    )


_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_NS_GET_USERNS = 0xB701
_SIOCETHTOOL = 0x8946
_OFFLOADS = {"tso": (0x1E, 0x1F), "gso": (0x23, 0x24), "gro": (0x2B, 0x2C)}  # ETHTOOL_G..., ETHTOOL_S...
_ROOT = 0x10000
KINDS: Mapping[type[Shape], str] = {Class: "htb", Fifo: "bfifo", Netem: "netem"}
_PERMANENT = 0x80
_ETH_P_IP = 0x0800

_libc = ctypes.CDLL(None, use_errno=True)


class KernelError(ValueError):
    """The kernel refused a request. The message has what was attempted, and what helps."""


class Stack:
    """One network namespace: a descriptor that holds it, and sockets inside."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd
        _setns(fd, _CLONE_NEWNET, name)
        self.routes = IPRoute()
        self._ioctl = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._index: dict[str, int] = {}
        self.made: list[str] = []  # the devices that we made

    def index(self, device: str) -> int:
        """Return the interface index of a device. Raises: KernelError."""
        if device not in self._index:
            indices = self.routes.link_lookup(ifname=device)
            if not indices:
                raise KernelError(f"{self.name}: {device}: device does not exist")
            self._index[device] = indices[0]
        return self._index[device]

    def remove_devices(self) -> None:
        """Remove the devices that we made."""
        for device in self.made:
            with _attempt(f"{self.name}: remove {device}", unless=errno.ENODEV):
                self.routes.link("del", index=self.index(device))
        self._index, self.made = {}, []

    def sysctl(self, values: dict[str, str]) -> None:
        """Write sysctls of this namespace. IPv6 settings are skipped if the kernel has no IPv6."""
        _setns(self.fd, _CLONE_NEWNET, self.name)
        for name, text in values.items():
            path = Path("/proc/sys", *name.split("."))
            if "ipv6" in name and not path.exists():
                continue
            try:
                path.write_text(text)
            except OSError as error:
                hint = "; mount /proc/sys writable" if error.errno == errno.EROFS else ""
                raise KernelError(f"{self.name}: sysctl {name}={text}: {error.strerror}{hint}") from None

    def lead_outside(self) -> None:
        """Set the rules of `workloads.process.namespace.lead_outside`, which remain until the namespace ends."""
        ports = f"{DNS_PORT}:{DNS_PORT}"
        rules: tuple[dict[str, Any], ...] = (
            {"priority": OUTSIDE_PRIORITY, "dport_range": ports, "action": "FR_ACT_UNREACHABLE"},
            {"priority": OUTSIDE_PRIORITY + 1, "table": OUTSIDE_TABLE},
        )
        for rule in rules:
            with _attempt(f"{self.name}: rule for UDP", unless=errno.EEXIST):
                self.routes.rule("add", ip_proto=socket.IPPROTO_UDP, **rule)

    def offloads_off(self, device: str) -> None:
        """Switch segmentation and coalescing off, so that every packet has wire size. Raises: KernelError."""
        for name, (get, put) in _OFFLOADS.items():
            self._ethtool(device, put, 0, name)
            if self._ethtool(device, get, 0, name):
                raise KernelError(f"{self.name}: {device}: offload {name} cannot be switched off")

    def close(self) -> None:
        """Release the namespace."""
        self.routes.close()
        self._ioctl.close()
        os.close(self.fd)

    def _ethtool(self, device: str, command: int, value: int, name: str) -> int:
        data = array.array("I", [command, value])
        address, _ = data.buffer_info()
        try:
            fcntl.ioctl(self._ioctl, _SIOCETHTOOL, struct.pack("16sP16x", device.encode(), address))
        except OSError as error:
            raise KernelError(f"{self.name}: {device}: offload {name}: {error.strerror}") from None
        return data[1]


class Kernel:
    """The namespaces of one emulated network."""

    def __init__(self) -> None:
        install()
        self._routers: dict[str, Stack] = {}
        self._workers: dict[int, Stack] = {}
        self._placed: dict[str, Stack] = {}

    def attach(self, rank: int, fd: int) -> None:
        """Take the namespace of a worker. It replaces the one that this rank had before.

        Raises:
            KernelError: the namespace belongs to a user namespace that this process cannot enter.
        """
        self.tear_down()
        old = self._workers.pop(rank, None)
        if old is not None:
            old.close()
        self._enter_user_namespace_of(fd, rank)
        self._workers[rank] = Stack(f"worker-{rank}", fd)

    def build(self, steps: Iterable[Step]) -> None:
        """Build a placement. It replaces the one before. Raises: KernelError."""
        self.tear_down()
        try:
            for step in steps:
                with _attempt(described(step)):
                    self._step(step)
        except BaseException:
            self.tear_down()
            raise

    def tear_down(self) -> None:
        """Remove the placement. Workers remain attached."""
        for stack in self._workers.values():
            stack.remove_devices()
        for stack in self._routers.values():
            stack.close()
        self._routers, self._placed = {}, {}

    def shape(self, shape: Shape, *, exists: bool) -> None:
        """Set all attributes of a class or leaf. Raises: KernelError."""
        verb = "change" if exists else "add"
        with _attempt(f"{shape.at}: {verb} {type(shape).__name__.lower()} ({shape.path})"):
            stack, index = self._at(shape.at)
            node, kind = _ROOT + shape.minor, KINDS[type(shape)]
            if isinstance(shape, Class):
                stack.routes.tc(f"{verb}-class", kind, index, node, parent=_ROOT, **keywords(shape))
            else:
                stack.routes.tc(verb, kind, index, leaf_of(shape.minor), parent=node, **keywords(shape))

    def qdiscs(self, at: End) -> list[Any]:
        """Read the qdiscs of a device from the kernel. Raises: KernelError."""
        stack, index = self._at(at)
        with _attempt(f"{at}: qdiscs"):
            return list(stack.routes.get_qdiscs(index=index))

    def classes(self, at: End) -> list[Any]:
        """Read the classes of a device from the kernel. Raises: KernelError."""
        stack, index = self._at(at)
        with _attempt(f"{at}: classes"):
            return list(stack.routes.get_classes(index=index))

    def link(self, at: End) -> Any:
        """Read a device from the kernel. Raises: KernelError."""
        stack, index = self._at(at)
        with _attempt(str(at)):
            return next(iter(stack.routes.get_links(index)))

    def routers(self) -> list[Thing]:
        """Return how the routers are configured, without the values of their qdiscs. Raises: KernelError, OSError."""
        things: list[Thing] = []
        for name, stack in self._routers.items():
            _setns(stack.fd, _CLONE_NEWNET, name)
            for where, kind, words, values in configuration.read():
                things.append((f"{where} of router {name}", kind, words, b"" if kind == "qdisc" else values))
        return things

    # ---------------------------------------------------------------- steps

    def _at(self, at: End) -> tuple[Stack, int]:
        stack = self._placed[at.namespace]
        return stack, stack.index(at.device)

    def _step(self, step: Step) -> None:
        match step:
            case Router(namespace):
                self._routers[namespace] = self._placed[namespace] = Stack(namespace, _new_namespace())
                self._placed[namespace].sysctl(ROUTER_SYSCTLS | NO_IPV6)
                # Without an address the namespace has no local routing table, and rejects every gateway.
                self._placed[namespace].routes.link("set", index=1, state="up")
            case Worker(namespace, rank):
                if rank not in self._workers:
                    raise KernelError(f"worker {rank} is not attached")
                self._placed[namespace] = self._workers[rank]
                self._placed[namespace].sysctl(ONLY_LOCAL_IPV6)
                self._placed[namespace].lead_outside()
            case Veth():
                self._join(step)
            case Address(at, address):
                stack, index = self._at(at)
                stack.routes.addr("add", index=index, address=address, prefixlen=32)
            case Route(namespace, to, None):
                self._placed[namespace].routes.route("add", dst=to, type="blackhole")
            case Route(namespace, to, str(device), table):
                stack = self._placed[namespace]
                stack.routes.route(
                    "add", dst=to, table=table, gateway=GATEWAY, oif=stack.index(device), flags=["onlink"]
                )
            case Root(at, default):
                stack, index = self._at(at)
                stack.routes.tc("add", "htb", index, _ROOT, default=default, stab=without_ethernet_header())
            case From(at, address, minor):
                stack, index = self._at(at)
                source = f"0x{socket.inet_aton(address).hex()}/0xffffffff+12"
                classes = {"parent": _ROOT, "target": _ROOT + minor}
                stack.routes.tc("add-filter", "u32", index, prio=1, protocol=_ETH_P_IP, keys=[source], **classes)

    def _join(self, cable: Veth) -> None:
        a, b = self._placed[cable.a.namespace], self._placed[cable.b.namespace]
        peer = {"ifname": cable.b.device, "address": cable.mac(cable.b), "net_ns_fd": b.fd, "mtu": cable.mtu}
        a.routes.link("add", kind="veth", ifname=cable.a.device, address=cable.mac(cable.a), mtu=cable.mtu, peer=peer)
        b.made.append(cable.b.device)
        for end, other in ((cable.a, cable.b), (cable.b, cable.a)):
            stack, index = self._at(end)
            stack.offloads_off(end.device)
            stack.routes.link("set", index=index, state="up")
            stack.routes.neigh("replace", dst=GATEWAY, lladdr=cable.mac(other), ifindex=index, state=_PERMANENT)

    def _enter_user_namespace_of(self, fd: int, rank: int) -> None:
        """Rootless workers have their own user namespace. This process is root there as well."""
        try:
            user_namespace = fcntl.ioctl(fd, _NS_GET_USERNS)
        except OSError as error:
            raise KernelError(
                f"worker {rank}: its network namespace cannot be joined: {_remedy(error.errno or 0)}"
            ) from None
        try:
            if os.fstat(user_namespace).st_ino != os.stat("/proc/self/ns/user").st_ino:
                _setns(user_namespace, _CLONE_NEWUSER, f"worker {rank}: its user namespace")
        finally:
            os.close(user_namespace)


def keywords(shape: Shape) -> dict[str, Any]:
    """Return pyroute2's keywords for a class or leaf."""
    if isinstance(shape, Class):
        per_s, burst = shape.rate, shape.burst
        return {"rate": per_s, "ceil": per_s, "burst": burst, "cburst": burst, "quantum": shape.quantum}
    if isinstance(shape, Fifo):
        return {"limit": shape.limit}
    words = {"limit": shape.limit, "rate": shape.rate, "distribution": normal(), "seed": shape.seed}
    for impairment in IMPAIRMENTS.values():
        words |= impairment.netem(shape.link)
    return words


def _new_namespace() -> int:
    if _libc.unshare(_CLONE_NEWNET) != 0:
        raise KernelError(f"new network namespace: {_remedy(ctypes.get_errno())}")
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _setns(fd: int, kind: int, name: str) -> None:
    if _libc.setns(fd, kind) != 0:
        raise KernelError(f"{name}: cannot enter it: {_remedy(ctypes.get_errno())}")


def _remedy(number: int) -> str:
    """The kernel's reason for an error number, and what helps."""
    if number == errno.ENOENT:
        return "the kernel does not have it; run: sudo modprobe -a sch_netem sch_htb cls_u32, or use --emulator relay"
    if number == errno.EEXIST:
        return "it exists already, and wanbench did not make it"
    return os.strerror(number) + ("; run as root, or use --emulator relay" if number == errno.EPERM else "")


@contextmanager
def _attempt(what: str, unless: int = 0) -> Iterator[None]:
    """Add what was attempted to pyroute2's error number. The number `unless` is not an error."""
    try:
        yield
    except NetlinkError as error:
        if error.code == unless:
            return
        raise KernelError(f"{what}: {_remedy(error.code)}") from None
