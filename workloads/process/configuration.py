"""How the network of this namespace is configured, read from the kernel, to be compared with what it was before.

Left out is what changes by itself: counters, whether a link has a carrier, neighbours that were asked for, metrics that
TCP has learned. A device that is down is left out too: a module that the host loads adds some to every namespace.
Rules of nftables are not read, which needs rights.
"""

import array
import fcntl
import socket
import struct
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from glob import iglob
from itertools import chain
from socket import inet_ntoa
from typing import NamedTuple

from wanbench.workloads.process.namespace import IFF_UP, LISTED, ask, attribute, attributes

Change = tuple[str, str]
"""A device or the namespace, and what has changed there: "wan0", "qdisc tbf, at the start noqueue"."""
Thing = tuple[str, str, str, bytes]
"""Its owner ("wan0"), a kind ("qdisc"), words ("tbf"), and values that have no words."""

NAMESPACE = "the namespace"
_ABSENT = {"device": "down or gone"}
_MOST_SHOWN = 60  # characters
_FILES = (
    "/proc/net/ip_tables_names",
    "/proc/sys/net/core/*",
    "/proc/sys/net/ipv4/*",
    "/proc/sys/net/ipv4/route/*",
    "/proc/sys/net/ipv4/conf/{}/forwarding",
    "/proc/sys/net/ipv4/conf/{}/rp_filter",
    "/proc/sys/net/ipv6/conf/{}/disable_ipv6",
)
# What modules of the host offer, and what the kernel draws when a program first uses it.
_NOT_SET = ("tcp_available_congestion_control", "tcp_allowed_congestion_control", "tcp_fastopen_key")
_SIOCETHTOOL, _ETHTOOL_GFEATURES, _FEATURE_BLOCKS = 0x8946, 0x3A, 4


class _Table(NamedTuple):
    """Things of a kind, which rtnetlink lists in answer to a request.

    Attributes:
        size: bytes of an answer before its attributes, the "beginning".
        words: from the beginning and the attributes.
        begin, attributes: which bytes and which attributes are compared.
        is_set: from the beginning, whether a thing was configured.
    """

    request: int
    kind: str
    size: int
    words: Callable[[bytes, Mapping[int, bytes]], str]
    begin: slice
    attributes: Collection[int]
    is_set: Callable[[bytes], bool] = lambda _: True


def _number(value: bytes) -> int:
    return int.from_bytes(value, sys.byteorder)


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="backslashreplace")


# The numbers are those of linux/rtnetlink.h and of the headers that it names.
_LINKS, _ROUTES, _RULES, _FILTERS = 18, 26, 34, 46
_IFLA_IFNAME, _IFLA_MTU, _IFA_ADDRESS, _IFA_LOCAL, _NDA_DST, _TCA_KIND, _FRA_PRIORITY = 3, 4, 1, 2, 1, 1, 6
_RTA_DST, _RTA_OIF, _RTA_CACHEINFO, _RTM_F_CLONED, _NUD_PERMANENT = 1, 4, 12, 0x200, 0x80
_ALL = frozenset(range(64))
_TABLES = (
    # hardware address, master, queue length, limits of segments, XDP
    _Table(_LINKS, "device", 16, lambda _, attrs: f"up with MTU {_number(attrs[_IFLA_MTU])}",
           slice(8), (1, 10, 13, 40, 41, 43, 58, 63, 64), lambda begin: _number(begin[8:12]) & IFF_UP != 0),
    _Table(22, "address", 8, lambda begin, attrs: f"{inet_ntoa(attrs.get(_IFA_LOCAL, attrs[_IFA_ADDRESS]))}/{begin[1]}",
           slice(2), (_IFA_ADDRESS, _IFA_LOCAL)),
    _Table(30, "neighbour", 12, lambda _, attrs: inet_ntoa(attrs[_NDA_DST]),
           slice(8), (_NDA_DST, 2), lambda begin: _number(begin[8:10]) & _NUD_PERMANENT != 0),
    # parent; kind, options, sizes of packets
    _Table(38, "qdisc", 20, lambda _, attrs: _text(attrs[_TCA_KIND]), slice(12, 16), (_TCA_KIND, 2, 8)),
    # handle, parent, priority and protocol; kind. What it does has counters.
    _Table(_FILTERS, "filter", 20, lambda _, attrs: _text(attrs[_TCA_KIND]), slice(8, 20), (_TCA_KIND,)),
    _Table(_ROUTES, "route", 12, lambda begin, attrs: f"{inet_ntoa(attrs.get(_RTA_DST, bytes(4)))}/{begin[1]}",
           slice(8), _ALL - {_RTA_CACHEINFO}, lambda begin: _number(begin[8:12]) & _RTM_F_CLONED == 0),
    _Table(_RULES, "rule", 12, lambda _, attrs: f"{_number(attrs.get(_FRA_PRIORITY, b''))}", slice(12), _ALL),
)  # fmt: skip


def read() -> list[Thing]:
    """Return what is set in the network namespace of this thread. It needs no rights.

    Raises:
        OSError: the kernel refuses to list something.
    """
    names: dict[int, str] = {}  # filled by what is listed first
    return [*_listed(names), *_offloads(names.values()), *_files(names.values())]


def first_change(before: Sequence[Thing], now: Sequence[Thing]) -> Change | None:
    """Return the first difference; None if there is none."""
    here, there = set(now), set(before)
    gone, new = [thing for thing in before if thing not in here], [thing for thing in now if thing not in there]
    for owner, kind, *_ in (*gone, *new):
        then, has = _words(gone, owner, kind), _words(new, owner, kind)
        return owner, f"{kind} {has}, at the start {then if then != has else 'with other values'}"
    return None


def _words(things: Sequence[Thing], owner: str, kind: str) -> str:
    words = [words for *of, words, _ in things if of == [owner, kind]]
    return words[0][:_MOST_SHOWN] if words else _ABSENT.get(kind, "none")


def _listed(names: dict[int, str]) -> Iterator[Thing]:
    """Yield what rtnetlink lists. Add the names of the devices that are up, by index."""
    for table in _TABLES:
        for device in names if table.request == _FILTERS else (0,):
            request = struct.pack("B3xi", socket.AF_INET, device).ljust(table.size, b"\0")
            for answer in ask(table.request, request, LISTED):
                begin, attrs = answer[: table.size], attributes(answer[table.size :])
                if not table.is_set(begin):
                    continue
                index = {_ROUTES: attrs.get(_RTA_OIF, b""), _RULES: b""}.get(table.request, begin[4:8])
                if table.request == _LINKS:
                    names[_number(index)] = _text(attrs[_IFLA_IFNAME])
                owner = names.get(_number(index)) if index else NAMESPACE
                values = [attribute(kind, attrs[kind]) for kind in sorted(attrs.keys() & table.attributes)]
                if owner is not None:
                    yield owner, table.kind, table.words(begin, attrs), begin[table.begin] + b"".join(values)


def _offloads(names: Iterable[str]) -> Iterator[Thing]:
    """Yield which features of a device are active, as bits."""
    for name in names:
        words = array.array("I", [_ETHTOOL_GFEATURES, _FEATURE_BLOCKS, *[0] * 4 * _FEATURE_BLOCKS])
        request = struct.pack("16sP16x", name.encode(), words.buffer_info()[0])
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock, _SIOCETHTOOL, request)
            yield name, "offloads", "set", words[4::4].tobytes()


def _files(names: Iterable[str]) -> Iterator[Thing]:
    """Yield the sysctls, and the tables of the old iptables that are in use."""
    patterns = dict.fromkeys(pattern.format(name) for pattern in _FILES for name in ("all", *names))
    paths = chain.from_iterable(map(iglob, patterns))
    for path in (path for path in paths if not path.endswith(_NOT_SET)):
        # Some are folders, or not for this user.
        with suppress(OSError), open(path, "rb", buffering=0) as file:
            yield NAMESPACE, path, _text(b" ".join(file.read().split())), b""
