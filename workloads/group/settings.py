"""What the environment of a process says about its network.

`wanbench exec` sets these variables. Outside, all may be missing: connections then send as fast as TCP lets them.
"""

import fcntl
import json
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from wanbench.workloads.comm.base import CommError

COLLECTIVE, STREAMS, PACES, ONE_SHOT = "WAN_COLLECTIVE", "WAN_STREAMS", "WAN_PACES", "WAN_ONE_SHOT_BYTES"
SITES, RING, REPLACES_GLOO = "WAN_SITES", "WAN_RING", "WAN_REPLACES_GLOO"
COLLECTIVES = ("direct", "hierarchical", "ring")
_SIOCGIFADDR = 0x8915
_ONE_SHOT_BYTES = 16 << 10
AUTO = "auto"
_EXAMPLE = '["paris", "paris", "tokyo"]'


@dataclass(frozen=True)
class Settings:
    """The network of one process.

    Attributes:
        address: where it listens.
        collective: one of `COLLECTIVES`.
        streams: connections per pair of ranks; None is as many as fill the path.
        paces: by rank of the whole program, payload bytes/s of a collective and of a message; None is unlimited.
        one_shot_bytes: the largest vector that an all-reduce sends whole to every rank.
        sites: by rank of the whole program, its site; empty if unknown.
        ring: all ranks of the whole program in the order of `ring`; empty is that of their numbers.
    """

    address: str
    collective: str = "direct"
    streams: int | None = None
    paces: tuple[tuple[float | None, float | None], ...] = ()
    one_shot_bytes: int = _ONE_SHOT_BYTES
    sites: tuple[str, ...] = ()
    ring: tuple[int, ...] = ()


def settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the environment. Raises: CommError: a variable cannot be used."""
    collective = environment.get(COLLECTIVE, "direct")
    if collective not in COLLECTIVES:
        raise CommError(f"{COLLECTIVE}={collective}: expected one of {', '.join(COLLECTIVES)}")
    sites = _sites(environment, needed=collective == "hierarchical")
    if collective == "hierarchical" and not sites:
        raise CommError(f"{COLLECTIVE}=hierarchical: needs {SITES}, the site of each rank, such as {_EXAMPLE}")
    return Settings(
        _own_address(environment),
        collective,
        None if environment.get(STREAMS, AUTO) == AUTO else _number(environment, STREAMS, 1, least=1),
        _paces(environment),
        _number(environment, ONE_SHOT, _ONE_SHOT_BYTES, least=0),
        sites,
        _ring(environment),
    )


def _sites(environment: Mapping[str, str], *, needed: bool) -> tuple[str, ...]:
    """A JSON list of names; written by hand, names without a comma can be separated by commas."""
    text = environment.get(SITES, "")
    try:
        sites = json.loads(text) if text.lstrip().startswith("[") else [*filter(None, text.split(","))]
    except ValueError:
        sites = [None]
    count = environment.get("WORLD_SIZE", str(len(sites)))
    if not all(isinstance(site, str) for site in sites) or (needed and sites and count != str(len(sites))):
        raise CommError(f"{SITES}={text}: expected a JSON list with the site of each of {count} ranks: {_EXAMPLE}")
    return tuple(sites)


def _ring(environment: Mapping[str, str]) -> tuple[int, ...]:
    """The numbers of all ranks, separated by commas, each once."""
    text = environment.get(RING, "")
    ranks = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    if text and (len(ranks) != len(text.split(",")) or sorted(ranks) != [*range(len(ranks))]):
        raise CommError(f"{RING}={text}: expected every rank once, separated by commas, such as 0,2,1")
    return tuple(ranks)


def _number(environment: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = environment.get(name, str(default))
    if not text.isdecimal() or int(text) < least:
        raise CommError(f"{name}={text}: expected a whole number, at least {least}")
    return int(text)


def _paces(environment: Mapping[str, str]) -> tuple[tuple[float | None, float | None], ...]:
    text = environment.get(PACES, "[]")
    try:
        return tuple((together, alone) for together, alone in json.loads(text, parse_constant=int))
    except (ValueError, TypeError):
        raise CommError(f"{PACES}={text}: expected a JSON list of [together, alone] in bytes/s, one per rank") from None


def _own_address(environment: Mapping[str, str]) -> str:
    """The address of the interface named for gloo, or the one from which this host reaches MASTER_ADDR."""
    interface = environment.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            if interface:
                request = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
                return socket.inet_ntoa(request[20:24])
            # A route is looked up; nothing is sent. Without a master, it is that of this host's name, as for gloo.
            sock.connect((environment.get("MASTER_ADDR") or socket.gethostname(), 9))
            return str(sock.getsockname()[0])
        except OSError as error:
            where = f"GLOO_SOCKET_IFNAME={interface}" if interface else "MASTER_ADDR"
            raise CommError(f"{where}: no IPv4 address of this host: {error.strerror or error}") from None
